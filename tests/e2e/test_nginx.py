"""Behind a real nginx with the project's own files: nothing waits, an abort passes, and what nginx refuses is said as the gateway would.

Times are shown (`pytest -s`) and asserted nowhere. That nothing waits is a matter of order: an event arrives although the provider
says nothing more until it has.

`make test` does without nginx where there is none; with REQUIRE_NGINX=1, as in `.ci/run`, its absence is a failure.
"""

import asyncio
import json
import os
import shutil
import socket
import statistics
import string
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import ASK, DEADLINE, Client, Json, Truncated, Way
from tests.e2e.provider import BEGUN, BLOCK, ENDING, GOOD, SILENCE, START, Hang, Reset, Script, Send, delta, stream
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import ScriptedUpstream, refusing_port

pytestmark = pytest.mark.anyio
FILES = Path(__file__).resolve().parents[2] / "nginx"
LARGE = 20_000  # characters: more than a chunk that nginx would pass on by itself
ABORTS = 50
HERE = "gateway_here"  # the upstream of upstream.conf

Edit = Callable[[str], str]


def replacing(*pairs: tuple[str, str]) -> Edit:
    """Replaces texts that are there exactly once."""

    def edit(text: str) -> str:
        for old, new in pairs:
            assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        return text

    return edit


def nginx_program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


@pytest.fixture(autouse=True)
def _nginx_is_there() -> None:
    if nginx_program() is None:
        absent = "These tests run the real nginx and there is none: apt-get install nginx"
        assert os.environ.get("REQUIRE_NGINX") != "1", absent
        pytest.skip(absent)


class Nginx:
    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self._folder = folder

    def errors(self) -> str:
        return (self._folder / "error.log").read_text("utf-8")

    async def lines(self, number: int) -> list[Json]:
        """The first lines of the log of requests. They are written after the answer, of which nginx gives no sign."""
        async with asyncio.timeout(DEADLINE):
            while len(lines := (self._folder / "access.log").read_text("utf-8").splitlines()) < number:
                await asyncio.sleep(0.001)
        return [json.loads(line) for line in lines]

    @asynccontextmanager
    async def chat(self, body: Json | bytes = ASK, headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
        async with Client.open(self.port) as client:
            await client.post(body, headers=headers)
            yield client

    async def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[Client, bytes]:
        async with Client.open(self.port) as client:
            await client.send("GET", path, headers=headers)
            return client, await client.body()


@contextmanager
def files(*gateways: int, place: str = HERE, names: str = "", site: Edit = str) -> Iterator[tuple[int, Path]]:
    """The project's files, filled in for a free port, in a folder of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx's workers are somebody else when the tests are root's
        main = (FILES / "nginx.conf").read_text("utf-8").replace("/tmp/", f"{folder}/")
        main = replacing(
            ("/dev/stderr", f"{folder}/error.log"),
            ("/dev/stdout", f"{folder}/access.log"),
            ("worker_rlimit_nofile 10000;", ""),  # not everybody's to raise
        )(main)
        (folder / "nginx.conf").write_text(main, "utf-8")
        template = string.Template((FILES / "gateway.conf.template").read_text("utf-8"))
        filled = template.safe_substitute(LISTEN=f"127.0.0.1:{port}", NAMES=names, GATEWAY=place)
        servers = "\n".join(f"server 127.0.0.1:{gateway};" for gateway in gateways)
        group = replacing(("server             127.0.0.1:8000;", servers))((FILES / "upstream.conf").read_text("utf-8"))
        (folder / "gateway.conf").write_text(f"{site(filled)}\n{group}", "utf-8")
        yield port, folder


def arguments(folder: Path) -> tuple[str, ...]:
    return (nginx_program() or "nginx", "-e", f"{folder}/error.log", "-p", str(folder), "-c", f"{folder}/nginx.conf")


@asynccontextmanager
async def nginx(*gateways: int, **options: Any) -> AsyncIterator[Nginx]:
    with files(*gateways, **options) as (port, folder):
        process = await asyncio.create_subprocess_exec(*arguments(folder), "-g", "daemon off;", stderr=asyncio.subprocess.PIPE)
        found = Nginx(port, folder)
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        async with Client.open(port):
                            break
                    except ConnectionRefusedError:
                        assert process.returncode is None, found.errors()
                        await asyncio.sleep(0.01)
            yield found
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


class Talker:
    """A Claude that says what the test tells it, when the test tells it."""

    def __init__(self) -> None:
        self._words: asyncio.Queue[bytes] = asyncio.Queue()
        self.said = 0.0

    def say(self, data: bytes) -> None:
        self._words.put_nowait(data)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        listener = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with listener:
            yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        while data := await self._words.get():
            writer.write(data)
            await writer.drain()
            self.said = time.monotonic()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def behind(script: Script = GOOD, **options: Any) -> AsyncIterator[tuple[Nginx, Running, ScriptedUpstream]]:
    """nginx, the gateway, and a provider that always plays the script."""
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(lambda _: script))
        gateway = await stack.enter_async_context(running(wiring(provider(upstream.url))))
        yield await stack.enter_async_context(nginx(gateway.port, **options)), gateway, upstream


async def refused(client: Client, *, head: bool = True) -> Json:
    """The error of an answer that is one, in the gateway's form."""
    if head:
        await client.head()
    assert client.headers["content-type"] == "application/json"
    assert client.headers["cache-control"] == "no-store"
    found = await client.json()
    assert found["type"] == "error"
    assert found["request_id"] == client.headers["x-request-id"]
    error = found["error"]
    assert isinstance(error, dict)
    assert set(error) - {"provider", "provider_code"} == {"type", "message", "code", "retryable", "partial"}
    return error


# nothing waits


async def test_a_large_event_arrives_although_nothing_follows_it() -> None:
    talker, lags = Talker(), []
    async with talker.listening() as url, running(wiring(provider(url))) as gateway, nginx(gateway.port) as proxy, proxy.chat() as client:
        talker.say(START + BLOCK)
        for number in range(5):
            talker.say(delta(f"{number}" * LARGE))
            event = await client.until("content_block_delta")
            lags.append((time.monotonic() - talker.said) * 1000)
            assert event["delta"]["text"] == f"{number}" * LARGE
        talker.say(ENDING)
        talker.say(b"")
        assert (await client.events())[-1]["type"] == "message_stop"
    print(f"\nevents of {LARGE} characters behind nginx: at most {max(lags):.1f} ms late")


async def test_without_the_setting_and_the_header_a_large_event_waits_for_the_next() -> None:
    unset = replacing(("proxy_buffering   off;", "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"))
    talker = Talker()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(talker.listening())
        gateway = await stack.enter_async_context(running(wiring(provider(url))))
        proxy = await stack.enter_async_context(nginx(gateway.port, site=unset))
        client = await stack.enter_async_context(proxy.chat())
        talker.say(START + BLOCK)
        talker.say(delta("0" * LARGE))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(client.until("content_block_delta"))
            await asyncio.wait({first}, timeout=0.3)  # what the provider's next event takes
            assert not first.done()
            talker.say(delta("1" * LARGE))
        talker.say(ENDING)
        talker.say(b"")
        assert (await client.events())[-1]["type"] == "message_stop"


async def test_an_answer_is_neither_compressed_nor_delimited_by_the_connection() -> None:
    async with behind() as (proxy, _, _), proxy.chat(headers={"accept-encoding": "gzip, br"}) as client:
        assert await client.head() == 200
        assert client.headers["transfer-encoding"] == "chunked"
        assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-encoding" not in client.headers
        assert (await client.events())[-1]["type"] == "message_stop"


# the client leaves


@pytest.mark.parametrize("way", ["fin", "rst"])
@pytest.mark.parametrize("begun", [True, False], ids=["mid-stream", "before the head"])
async def test_client_leaving_nginx_closes_upstream(way: Way, begun: bool) -> None:
    script = stream(BEGUN, *SILENCE) if begun else stream(*SILENCE)
    unlimited = replacing(("burst=50", "burst=5000"))
    times = []
    async with behind(script, site=unlimited) as (proxy, gateway, upstream):
        for number in range(ABORTS):
            async with proxy.chat() as client:
                asked = await upstream.request(number)
                if begun:
                    await client.until("content_block_delta")
                left = client.leave(way)
                times.append((await asked.until_closed() - left) * 1000)
            assert (await gateway.record(number))["outcome"] == "client_disconnected"
        await gateway.until_idle()
    print(f"\nabort through nginx by {way}: p50 {statistics.median(times):.1f} ms, max {max(times):.1f} ms, of {ABORTS}")


# what passes


async def test_a_request_has_one_id_in_the_answer_and_both_logs() -> None:
    async with behind() as (proxy, gateway, _):
        for number, given in enumerate(["mine-1", "not a proper id", ""]):
            async with proxy.chat(headers={"x-request-id": given}) as client:
                await client.events()
                found = client.headers["x-request-id"]
            assert (found == given) == (number == 0)
            assert (await gateway.record(number))["request_id"] == found
            assert (await proxy.lines(number + 1))[number]["request_id"] == found


async def test_the_log_has_the_path_and_no_query() -> None:
    async with behind() as (proxy, _, _):
        await proxy.get("/v1/models?key=secret")
        await proxy.get("/metrics?key=secret")
        lines = await proxy.lines(2)
        assert [(line["path"], line["status"]) for line in lines] == [("/v1/models", 200), ("/metrics", 404)]
        assert "secret" not in json.dumps(lines)


async def test_the_gateway_hears_what_nginx_knows_and_not_what_the_caller_claims() -> None:
    claims = {"x-forwarded-for": "6.6.6.6", "forwarded": "for=6.6.6.6", "x-real-ip": "6.6.6.6", "x-forwarded-proto": "https"}
    async with ScriptedUpstream(lambda _: GOOD) as asked, nginx(asked.port) as proxy:
        async with proxy.chat(headers={**claims, "host": f"127.0.0.1:{proxy.port}", "authorization": "Bearer k"}) as client:
            assert await client.head() == 200
        headers = (await asked.request()).headers
    assert headers["x-forwarded-for"] == headers["x-real-ip"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["host"] == headers["x-forwarded-host"] == f"127.0.0.1:{proxy.port}"
    assert headers["authorization"] == "Bearer k"
    assert not {"forwarded", "connection"} & set(headers)


async def test_connections_to_the_gateway_are_used_again() -> None:
    answer = b'{"status":"ok"}'
    whole = Script(200, (("content-length", str(len(answer))),), (Send(answer),))
    async with ScriptedUpstream(lambda _: whole) as asked, nginx(asked.port) as proxy:
        async with Client.open(proxy.port) as client:  # one connection is served by one worker, whose connections these are
            for _ in range(5):
                await client.send("GET", "/v1/models")
                assert await client.head() == 200
                assert await client.body() == answer
        assert len(asked.requests) == 5
        assert len(asked.connections) == 1


async def test_a_gateway_that_refuses_is_passed_over_and_one_that_was_asked_is_not() -> None:
    gone = stream(before=(Reset(),))
    with refusing_port() as closed:
        async with ScriptedUpstream(lambda _: GOOD) as second, nginx(closed, second.port) as proxy:
            for _ in range(2):
                async with proxy.chat() as client:
                    assert await client.head() == 200
            assert len(second.requests) == 2
    async with ScriptedUpstream(lambda _: gone) as first, ScriptedUpstream(lambda _: gone) as second:
        async with nginx(first.port, second.port) as proxy, proxy.chat() as client:
            error = await refused(client)
        assert (client.status, error["type"], error["code"], error["retryable"]) == (502, "api_error", "upstream_unavailable", True)
        assert len(first.requests) + len(second.requests) == 1


async def test_a_gateway_named_by_its_address_is_looked_up_with_each_request() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as asked, nginx(1, place=f"127.0.0.1:{asked.port}") as proxy:
        async with proxy.chat() as client:
            assert await client.head() == 200
        assert [request.path for request in asked.requests] == ["/chat"]


async def test_errors_of_the_gateway_pass_unchanged() -> None:
    async with behind() as (proxy, _, _), proxy.chat({"model": "nobody", **ASK}) as client:
        error = await refused(client)
        assert (client.status, error["code"]) == (404, "unknown_model")
        assert "default" in error["message"]


# what nginx refuses


OPERATORS = ("/metrics", "/live", "/docs", "/docs/oauth2-redirect", "/openapi.json", "//live", "/%6cive", "/a/../live", "/live/")


@pytest.mark.parametrize("path", OPERATORS)
async def test_what_is_for_operators_is_not_here(path: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, nginx(upstream.port) as proxy, Client.open(proxy.port) as client:
        await client.send("GET", path)
        error = await refused(client)
        assert (client.status, error["type"], error["code"], error["retryable"]) == (404, "not_found_error", "invalid_request", False)
        assert not upstream.requests


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.2"])
async def test_a_name_that_was_not_given_is_refused(host: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, nginx(upstream.port, names="chat.example.com") as proxy:
        async with proxy.chat(headers={"host": host}) as client:
            error = await refused(client)
        assert (client.status, error["type"], error["code"]) == (403, "permission_error", "forbidden_origin")
        assert not upstream.requests
        for known in ("chat.example.com", "localhost:8080", "[::1]", "127.0.0.1"):
            async with proxy.chat(headers={"host": known}) as client:
                assert await client.head() == 200


async def test_chats_that_come_too_quickly_are_told_to_wait() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as asked, nginx(asked.port) as proxy:
        passed = 0
        for _ in range(500):
            async with proxy.chat() as client:
                if await client.head() == 429:
                    error = await refused(client, head=False)
                    break
                passed += 1
        else:
            raise AssertionError("nobody was told to wait")
        assert passed > 50
        assert (error["type"], error["code"], error["retryable"]) == ("rate_limit_error", "rate_limited", True)
        assert client.headers["retry-after"] == "2"
        # Pages and preflights are not chats.
        for _ in range(60):
            assert (await proxy.get("/v1/models"))[0].status == 200


async def test_one_address_has_forty_answers_at_once() -> None:
    async with behind(stream(BEGUN, *SILENCE)) as (proxy, gateway, upstream), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(proxy.chat()) for _ in range(40)]
        for client in clients:
            await client.until("content_block_delta")
        async with proxy.chat() as client:
            error = await refused(client)
        assert (client.status, error["code"], client.headers["retry-after"]) == (429, "rate_limited", "2")
        assert len(upstream.requests) == 40
        # Who looks after the gateway is not counted.
        assert (await proxy.get("/healthz"))[0].status == 200
        clients[0].leave("rst")
        await gateway.record()
        await until_free(proxy)


async def until_free(proxy: Nginx) -> None:
    """nginx counts down after the gateway has noticed; there is no sign of it but being served."""
    async with asyncio.timeout(DEADLINE):
        while True:
            async with proxy.chat() as client:
                if await client.head() == 200:
                    return


async def test_a_body_is_too_large_for_the_gateway_and_then_for_nginx() -> None:
    async with behind() as (proxy, gateway, _):
        said = []
        async with proxy.chat(b" " * (10 * 2**20 + 1)) as client:
            said.append(await refused(client))
            assert client.status == 413
        assert len(gateway.records) == 1
        async with Client.open(proxy.port) as client:
            await client.send("POST", "/chat", headers={"content-length": str(12 * 2**20)})
            said.append(await refused(client))
            assert client.status == 413
        assert len(gateway.records) == 1
        assert said[0] == said[1]
        assert said[0]["code"] == "too_large"


async def test_a_gateway_that_is_not_there_is_an_error_of_ours() -> None:
    with refusing_port() as closed:
        async with nginx(closed) as proxy, proxy.chat(headers={"x-request-id": "mine"}) as client:
            error = await refused(client)
            assert (client.status, error["type"], error["code"], error["retryable"]) == (502, "api_error", "upstream_unavailable", True)
            assert client.headers["x-request-id"] == "mine"
            assert client.headers["retry-after"] == "2"


PAGE = json.dumps({"messages": [{"id": "q", "role": "user", "parts": [{"type": "text", "text": "Hello?"}]}]}).encode()


async def test_a_page_with_use_chat_is_refused_in_one_sentence_to_show() -> None:
    with refusing_port() as closed:
        async with nginx(closed) as proxy:
            for length, status, sentence, later in (
                (len(PAGE), 502, b"The gateway cannot be reached just now: try again in a few seconds.", "2"),
                (12 * 2**20, 413, b"The request is larger than 10 MiB: send less history or smaller images.", None),
            ):
                async with Client.open(proxy.port) as client:
                    await client.send("POST", "/api/chat", PAGE, headers={"content-length": str(length)})
                    assert (await client.head(), await client.body()) == (status, sentence)
                    assert client.headers["content-type"] == "text/plain; charset=utf-8"
                    assert (client.headers["cache-control"], client.headers.get("retry-after")) == ("no-store", later)
                    assert client.headers["x-request-id"]


async def test_every_path_of_a_chat_goes_through() -> None:
    async with behind() as (proxy, _, _):
        for path, body in (("/chat", json.dumps(ASK).encode()), ("/api/chat", PAGE)):
            async with Client.open(proxy.port) as client:
                await client.send("POST", path, body, headers={"content-type": "application/json"})
                assert (await client.head(), client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        client, page = await proxy.get("/v1/models/a%2Fb/live")
        assert (client.status, json.loads(page)["error"]["code"]) == (404, "unknown_model")


async def test_a_gateway_that_says_nothing_is_an_error_of_ours() -> None:
    soon = replacing(("proxy_read_timeout    660s;", "proxy_read_timeout 100ms;"))
    async with ScriptedUpstream(lambda _: stream(before=(Hang(),))) as asked, nginx(asked.port, site=soon) as proxy, proxy.chat() as client:
        error = await refused(client)
        assert (client.status, error["type"], error["code"], error["retryable"]) == (504, "timeout_error", "upstream_unavailable", True)


async def test_a_stream_that_breaks_off_looks_broken() -> None:
    soon = replacing(("proxy_read_timeout    660s;", "proxy_read_timeout 100ms;"))
    async with ScriptedUpstream(lambda _: stream(BEGUN, *SILENCE)) as asked, nginx(asked.port, site=soon) as proxy, proxy.chat() as client:
        assert await client.head() == 200
        with pytest.raises(Truncated):
            await client.body()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["host", "two lengths", "large header", "long path", "no host"],
)
async def test_a_malformed_head_is_told_so(head: bytes) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, nginx(upstream.port) as proxy, Client.open(proxy.port) as client:
        await client.send_raw(head)
        error = await refused(client)
        assert (client.status, error["type"], error["code"]) == (400, "invalid_request_error", "invalid_request")
        assert not upstream.requests


# the files


@pytest.mark.parametrize("place", [HERE, "gateway:8000"])
async def test_nginx_finds_no_fault_with_the_files(place: str) -> None:
    with files(8000, place=place, names="chat.example.com www.example.com") as (_, folder):
        process = await asyncio.create_subprocess_exec(*arguments(folder), "-t", stderr=asyncio.subprocess.PIPE)
        said = (await process.communicate())[1].decode()
        assert process.returncode == 0, said
        assert "[warn]" not in said
