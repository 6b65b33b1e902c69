"""Through a real forward proxy, over httpx's own transport: streams, aborts in every phase, and the ends that are none.

`make test` does without tinyproxy where there is none; with REQUIRE_PROXY=1, as in `.ci/run`, its absence is a failure.
"""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest

from gateway.connections import Connection, login
from gateway.routing import Retry, Timeouts
from gateway.wiring import Wiring
from tests.e2e import authority
from tests.e2e.abort_matrix import PHASES, WAYS, Phase, Stage
from tests.e2e.client import Client, Json, Way
from tests.e2e.provider import BEGUN, GOOD, OPENAI_BEGUN, OPENAI_DONE, OPENAI_FINISH, WHOLE, Hang, Reset, Wait, delta, refusal, stream
from tests.e2e.proxies import SecureUpstream, Tinyproxy, require_tinyproxy, tinyproxy
from tests.e2e.running import Running, process, provider, running, wiring
from tests.e2e.wires import listening
from tests.upstream import Answer, Request, Respond, ScriptedUpstream, full_listener, refusing_port
from tests.waiting import until

pytestmark = pytest.mark.anyio
Road = Literal["plain", "tunnel"]
ROADS: tuple[Road, ...] = ("plain", "tunnel")
DEAF = ("before headers", "plain")  # see the test of its own
FEW = 3
DEADLINE = 5.0
USER, PASSWORD = "gateway", "CANARY/proxy+pass=word"
LOGIN = f"{USER}:{quote(PASSWORD, safe='')}"
CANARIES = ("CANARY", quote(PASSWORD, safe=""), base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()[:-4])


@pytest.fixture(autouse=True)
def _tinyproxy_is_there() -> None:
    require_tinyproxy()


@dataclass
class Scene:
    """The gateway, and what is behind it where a test has it."""

    gateway: Running
    upstream: ScriptedUpstream | None
    proxy: Tinyproxy | None

    @asynccontextmanager
    async def leaving(self, way: Way) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A chat, and how its client leaves: when that returns, it is recorded, and is no complaint."""
        async with self.gateway.chat() as client:

            async def leave() -> None:
                client.leave(way)
                assert (await self.gateway.record())["outcome"] == "client_disconnected"

            yield leave
        assert not self.gateway.complaints

    async def until_nothing_left(self, *, go_on: bool = True) -> None:
        """Neither tasks nor places nor connections; and the next request works."""
        await self.gateway.until_idle()
        await until(lambda: not stuck(self.gateway), lambda: f"an end of {stuck(self.gateway)}")
        if self.proxy is not None and not kept(self.gateway):
            await self.proxy.until_released()
        if go_on:
            async with self.gateway.chat(NEXT) as client:
                assert text(await client.events()) == "Hello world"
            await self.gateway.until_idle()


NEXT: Json = {"messages": [{"role": "user", "content": "next"}]}


def next_is_good(answer: Answer) -> Respond:
    return lambda request: GOOD if b'"next"' in request.body else answer


def kept(gateway: Running) -> list[Any]:
    """What httpx's transport has, of all providers."""
    return [connection for transport in gateway.gateway.transports.values() for connection in transport._pool.connections]  # type: ignore[attr-defined]


def stuck(gateway: Running) -> list[str]:
    """What it has and will neither use again nor close."""
    return [repr(connection) for connection in kept(gateway) if not connection.is_idle()]


def through(proxy: str, url: str, folder: Path, kind: str = "anthropic") -> Connection:
    return replace(provider(url, kind=kind, hidden=login(proxy)), proxy=proxy, ca_file=str(authority.trusting(folder)))


def upstream_at(road: Road, respond: Respond) -> ScriptedUpstream:
    return ScriptedUpstream(respond) if road == "plain" else SecureUpstream(respond)


@dataclass
class Behind(Scene):
    upstream: ScriptedUpstream
    proxy: Tinyproxy


@asynccontextmanager
async def behind(
    road: Road, folder: Path, answer: Answer | Respond, *, kind: str = "anthropic", send_buffer: int | None = None, **how: Any
) -> AsyncIterator[Behind]:
    respond = answer if callable(answer) else lambda _: answer
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(upstream_at(road, respond))
        proxy = await stack.enter_async_context(tinyproxy())
        wired = wiring(through(proxy.url, upstream.url, folder, kind), **how)
        yield Behind(await stack.enter_async_context(running(wired, send_buffer=send_buffer)), upstream, proxy)


def text(events: list[Json]) -> str:
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


async def refused(client: Client) -> Json:
    error: Json = (await client.json())["error"]
    return error


# streams

WHOLE_STREAMS = {
    "anthropic": (GOOD, "/v1/messages", "Hello world"),
    "openai": (stream(OPENAI_BEGUN, OPENAI_FINISH, OPENAI_DONE), "/v1/chat/completions", "Hello"),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("kind", WHOLE_STREAMS)
async def test_a_stream_goes_through_the_proxy(road: Road, kind: str, tmp_path: Path) -> None:
    answer, path, said = WHOLE_STREAMS[kind]
    async with behind(road, tmp_path, answer, kind=kind) as scene:
        for number in range(2):
            async with scene.gateway.chat() as client:
                events = await client.events()
            assert text(events) == said
            assert events[-1]["type"] == "message_stop"
            assert (await scene.upstream.request(number)).path == path
        asked, headers = scene.proxy.asked(), scene.upstream.requests[0].headers
        host = scene.upstream.url.partition("//")[2]
        if road == "plain":
            assert asked == [f"POST http://{host}{path} HTTP/1.1"] * 2
            assert headers["via"].startswith("1.1 tests")
        else:
            assert asked == [f"CONNECT {host} HTTP/1.1"]  # the second request went through the first one's tunnel
            assert "via" not in headers
        assert headers["host"] == host
        assert not {"proxy-authorization", "proxy-connection"} & set(headers)


async def test_the_first_event_arrives_although_the_provider_falls_silent_after_it(tmp_path: Path) -> None:
    for road in ROADS:
        async with behind(road, tmp_path, stream(BEGUN, Hang())) as scene, scene.gateway.chat() as client:
            await client.until("content_block_delta")


@pytest.mark.parametrize("road", ROADS)
async def test_a_provider_may_think_for_longer_than_a_dial_may_take(road: Road, tmp_path: Path) -> None:
    slow = stream(WHOLE, before=(Wait(0.6),))
    async with behind(road, tmp_path, slow, timeouts=Timeouts(connect=0.3)) as scene, scene.gateway.chat() as client:
        assert text(await client.events()) == "Hello world"


async def test_a_proxy_that_speaks_tls_is_trusted_as_the_provider_is(tmp_path: Path) -> None:
    async with SecureUpstream(lambda _: GOOD) as proxy:
        async with running(wiring(through(proxy.url, "http://127.0.0.1:9", tmp_path))) as gateway, gateway.chat() as client:
            assert text(await client.events()) == "Hello world"
        assert proxy.requests[0].path == "http://127.0.0.1:9/v1/messages"


async def test_a_provider_without_a_proxy_is_asked_directly_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tinyproxy() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.lower(), proxy.url)
        async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
            async with gateway.chat() as client:
                assert text(await client.events()) == "Hello world"
            assert "via" not in upstream.requests[0].headers
        assert proxy.asked() == []


async def test_a_provider_with_a_proxy_goes_there_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_port() as closed:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{closed}")
        monkeypatch.setenv("NO_PROXY", "*")
        for road in ROADS:
            async with behind(road, tmp_path, GOOD) as scene:
                async with scene.gateway.chat() as client:
                    assert text(await client.events()) == "Hello world"
                assert len(scene.proxy.asked()) == 1


async def test_the_proxy_gets_the_user_and_password_and_the_provider_does_not(tmp_path: Path) -> None:
    for road in ROADS:
        async with tinyproxy(f"BasicAuth {USER} secret-1") as proxy, upstream_at(road, lambda _: GOOD) as upstream:
            url = proxy.url.replace("//", f"//{USER}:secret%2D1@")
            async with running(wiring(through(url, upstream.url, tmp_path))) as gateway, gateway.chat() as client:
                assert text(await client.events()) == "Hello world"
            assert "proxy-authorization" not in upstream.requests[0].headers


async def test_a_provider_that_keeps_its_connection_never_sees_the_password_either(tmp_path: Path) -> None:
    """tinyproxy hands on what follows a request as it is."""
    async with tinyproxy(f"BasicAuth {USER} secret-1") as proxy, ScriptedUpstream(lambda _: GOOD) as upstream:
        url = proxy.url.replace("//", f"//{USER}:secret-1@")
        async with running(wiring(through(url, upstream.url, tmp_path))) as gateway:
            for _ in range(2):
                async with gateway.chat() as client:
                    assert text(await client.events()) == "Hello world"
            await gateway.until_idle()
            assert kept(gateway) == []
        assert len(proxy.asked()) == 2
        assert [request.path for request in upstream.requests] == ["/v1/messages"] * 2
        assert not any("proxy-authorization" in request.headers for request in upstream.requests)


# the client leaves


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("phase", "road"),
    [(phase, road) for phase in PHASES for road in ROADS if phase.name != "retry's wait" and (phase.name, road) != DEAF],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
async def test_client_leaving_closes_the_provider_behind_the_proxy(phase: Phase, road: Road, way: Way, tmp_path: Path) -> None:
    def respond(request: Request) -> Answer:
        return GOOD if b'"next"' in request.body else phase.answer

    buffers = {"receive_buffer": 4096} if phase.small_buffers else {}
    small = 16_384 if phase.small_buffers else None
    async with behind(road, tmp_path, respond, send_buffer=small, timeouts=Timeouts(write=60)) as scene:
        print(f"\n{await Stage(phase, scene.gateway, scene.upstream, buffers, DEADLINE).abort(FEW, way, 'native')}")
        assert {record["outcome"] for record in scene.gateway.records[:FEW]} == {"client_disconnected"}
        assert not scene.gateway.complaints
        assert stuck(scene.gateway) == []


@pytest.mark.parametrize("way", WAYS)
async def test_client_leaving_before_the_head_closes_the_connection_to_a_proxy_that_would_not_hear_of_it(way: Way, tmp_path: Path) -> None:
    """While it waits for a provider's head, tinyproxy looks at nothing else (tunnels apart): it keeps the provider, the gateway has let
    go of it."""
    async with behind("plain", tmp_path, next_is_good(stream(before=(Hang(),)))) as scene:
        async with scene.leaving(way) as leave:
            await scene.upstream.request()
            await leave()
        await scene.until_nothing_left()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("road", ROADS)
async def test_client_leaving_while_a_retry_waits_ends_it(road: Road, way: Way, tmp_path: Path) -> None:
    retry = Retry(attempts=2, max_retry_after=10)
    async with behind(road, tmp_path, next_is_good(refusal(429, retry_after="9")), retry=retry) as scene:
        async with scene.leaving(way) as leave:
            await scene.gateway.until_waiting()
            await leave()
        assert len(scene.upstream.requests) == 1
        await scene.until_nothing_left()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_client_leaving_while_the_proxy_dials_lets_go_of_it(scheme: str, way: Way, tmp_path: Path) -> None:
    async with full_listener() as nobody, tinyproxy() as proxy:
        wired = wiring(through(proxy.url, f"{scheme}://127.0.0.1:{nobody.port}", tmp_path), timeouts=Timeouts(connect=60))
        async with running(wired) as gateway:
            scene = Scene(gateway, None, proxy)
            async with scene.leaving(way) as leave:
                await nobody.until_dialling(1)
                await leave()
            await scene.until_nothing_left(go_on=False)


@pytest.mark.parametrize("way", WAYS)
async def test_client_leaving_in_the_handshake_behind_the_proxy_ends_it(way: Way, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mute = await stack.enter_async_context(listening("https"))
        proxy = await stack.enter_async_context(tinyproxy())
        wired = wiring(through(proxy.url, mute.url, tmp_path), timeouts=Timeouts(connect=60))
        scene = Scene(await stack.enter_async_context(running(wired)), None, proxy)
        async with scene.leaving(way) as leave:
            wire = await mute.accept()
            assert await wire.more()  # the hello
            await leave()
        await wire.until_closed()
        await scene.until_nothing_left(go_on=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_client_leaving_while_the_gateway_dials_the_proxy_ends_the_dial(scheme: str, way: Way, tmp_path: Path) -> None:
    async with full_listener() as nobody:
        wired = wiring(through(f"http://127.0.0.1:{nobody.port}", f"{scheme}://127.0.0.1:9", tmp_path), timeouts=Timeouts(connect=60))
        async with running(wired) as gateway:
            scene = Scene(gateway, None, None)
            async with scene.leaving(way) as leave:
                await nobody.until_dialling(1)
                await leave()
            await nobody.until_dialling(0)
            await scene.until_nothing_left(go_on=False)


@pytest.mark.parametrize("way", WAYS)
async def test_client_leaving_while_the_proxy_says_nothing_to_connect_closes_it(way: Way, tmp_path: Path) -> None:
    async with ScriptedUpstream(lambda _: stream(before=(Hang(),))) as proxy:
        wired = wiring(through(proxy.url, "https://127.0.0.1:9", tmp_path), timeouts=Timeouts(connect=60))
        async with running(wired) as gateway:
            scene = Scene(gateway, proxy, None)
            async with scene.leaving(way) as leave:
                asked = await proxy.request()
                assert asked.method == "CONNECT"
                await leave()
            await asked.until_closed()
            await scene.until_nothing_left(go_on=False)


# the way to the provider fails


async def failed(wired: Wiring) -> tuple[Client, Json]:
    """The error of the first chat, which is in no log either; nothing of it is left."""
    async with running(wired, complaints=True) as gateway:
        async with gateway.chat() as client:
            error = await refused(client)
        record = await gateway.record()
        await gateway.until_idle()
        assert stuck(gateway) == []
        said = repr((error, client.headers, [vars(log) for log in gateway.logs]))
        assert not [form for form in CANARIES if form in said]
        assert record["error_code"] == error["code"]
    return client, error


def without_end(scheme: str, port: int, folder: Path, **timeouts: float) -> Wiring:
    """A provider that nobody reaches, behind the proxy at that port."""
    return wiring(through(f"http://{LOGIN}@127.0.0.1:{port}", f"{scheme}://127.0.0.1:9", folder), timeouts=Timeouts(**timeouts))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_connections_is_unavailable(scheme: str, tmp_path: Path) -> None:
    with refusing_port() as closed:
        client, error = await failed(without_end(scheme, closed, tmp_path))
    assert (client.status, error["code"], error["retryable"]) == (502, "upstream_unavailable", True)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_never_accepts_is_a_timeout(scheme: str, tmp_path: Path) -> None:
    async with full_listener() as nobody:
        client, error = await failed(without_end(scheme, nobody.port, tmp_path, connect=0.1))
        await nobody.until_dialling(0)
    assert (client.status, error["code"], error["retryable"]) == (504, "upstream_unavailable", True)


async def test_a_proxy_that_never_answers_to_connect_is_a_timeout(tmp_path: Path) -> None:
    async with ScriptedUpstream(lambda _: stream(before=(Hang(),))) as proxy:
        client, error = await failed(without_end("https", proxy.port, tmp_path, connect=0.1))
        await proxy.until_all_closed()
    assert (client.status, error["code"], error["retryable"]) == (504, "upstream_unavailable", True)


async def test_a_handshake_behind_the_proxy_that_never_ends_is_a_timeout(tmp_path: Path) -> None:
    async with listening("https") as mute, tinyproxy() as proxy:
        client, error = await failed(wiring(through(proxy.url, mute.url, tmp_path), timeouts=Timeouts(connect=0.2)))
        await proxy.until_released()
    assert (client.status, error["code"], error["retryable"]) == (504, "upstream_unavailable", True)


async def test_a_certificate_behind_the_proxy_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    async with SecureUpstream(lambda _: GOOD) as upstream, tinyproxy() as proxy:
        client, error = await failed(wiring(replace(provider(upstream.url), proxy=proxy.url)))
        await proxy.until_released()
    assert (client.status, error["code"]) == (502, "upstream_unavailable")
    assert "certificate" in error["message"]


@pytest.mark.parametrize("road", ROADS)
async def test_a_proxy_that_does_not_know_the_password_is_told_so(road: Road, tmp_path: Path) -> None:
    async with tinyproxy(f"BasicAuth {USER} another") as proxy, upstream_at(road, lambda _: GOOD) as upstream:
        client, error = await failed(wiring(through(proxy.url.replace("//", f"//{LOGIN}@"), upstream.url, tmp_path)))
        await proxy.until_released()
        assert not upstream.requests
    assert (client.status, error["code"], error["retryable"]) == (502, "upstream_auth", False)
    # tinyproxy answers 401, as a provider would, where 407 is meant.
    assert ("proxy" if road == "tunnel" else "401") in error["message"]


async def test_a_proxy_that_opens_no_tunnel_to_that_port_is_unavailable(tmp_path: Path) -> None:
    async with tinyproxy("ConnectPort 443") as proxy, SecureUpstream(lambda _: GOOD) as upstream:
        client, error = await failed(wiring(through(proxy.url, upstream.url, tmp_path)))
        await proxy.until_released()
    assert (client.status, error["code"]) == (502, "upstream_auth")
    assert "The proxy" in error["message"]
    assert "403" in error["message"]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_provider_that_the_proxy_cannot_reach_is_unavailable(scheme: str, tmp_path: Path) -> None:
    with refusing_port() as closed:
        async with tinyproxy() as proxy:
            client, error = await failed(wiring(through(proxy.url, f"{scheme}://127.0.0.1:{closed}", tmp_path)))
            await proxy.until_released()
    assert (client.status, error["code"], error["retryable"]) == (502, "upstream_unavailable", True)


def said_no(reason: str = "No", kind: str = "text/plain", body: str = "") -> str:
    """An answer but for its status."""
    return f"HTTP/1.1 %d {reason}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n{body}"


ECHOES: dict[str, Callable[[str], str]] = {
    "in the reason": lambda given: said_no(reason=given),
    "in the body": lambda given: said_no(kind="application/json", body=json.dumps({"error": {"message": given, "code": given}})),
    "in a page": lambda given: said_no(kind="text/html", body=f"<p>{given}</p>"),
    "in a header": lambda given: said_no(kind=given, body="."),
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("status", "code"), [(407, "upstream_auth"), (502, "upstream_unavailable"), (403, "upstream_auth")])
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_proxy_that_repeats_the_password_is_not_believed(echo: str, status: int, code: str, scheme: str, tmp_path: Path) -> None:
    def respond(request: Request) -> bytes:
        assert request.headers["proxy-authorization"] == f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
        given = f"{request.headers['proxy-authorization']} {PASSWORD}"
        return (ECHOES[echo](given) % status).encode()

    async with ScriptedUpstream(respond) as proxy:
        client, error = await failed(without_end(scheme, proxy.port, tmp_path))
        await proxy.until_all_closed()
        assert {request.method for request in proxy.requests} == {"CONNECT" if scheme == "https" else "POST"}
    assert (client.status, error["code"]) == (502, code)


async def test_a_password_in_the_configuration_is_hidden_from_what_the_proxy_repeats() -> None:
    async with ScriptedUpstream(lambda request: (ECHOES["in the body"](request.headers["proxy-authorization"]) % 500).encode()) as proxy:
        claude = {"type": "anthropic", "base_url": "http://127.0.0.1:9", "proxy": proxy.url.replace("//", f"//{LOGIN}@")}
        async with process({"providers": {"claude": claude}, "retry": {"attempts": 1}}) as gateway, gateway.chat() as client:
            error = await refused(client)
            await until(lambda: len(gateway.records()) > 0, "the stream's record")
            assert "[redacted]" in error["message"]
            assert not [form for form in CANARIES if form in f"{error} {gateway.log()}"]


# ends that are none

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


BEFORE_THE_HEAD: dict[str, Answer] = {
    "FIN": b"",
    "RST": stream(before=(Reset(),)),
    "half a head": HEAD[:40],
    "no HTTP": b"hello\r\n\r\n",
}
IN_THE_BODY: dict[str, Answer] = {
    "FIN": HEAD + chunk(BEGUN),
    "truncated chunk": HEAD + chunk(BEGUN) + b"1000\r\nevent",
    "no chunk": HEAD + chunk(BEGUN) + b"nonsense\r\n",
    "RST": stream(BEGUN, Wait(0.1), Reset()),
    "short": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9000\r\n\r\n" + BEGUN,
}
AFTER_THE_END: dict[str, Answer] = {
    "FIN": HEAD + chunk(WHOLE),
    "truncated chunk": HEAD + chunk(WHOLE) + b"1000\r\nevent",
    "RST": stream(WHOLE, Wait(0.1), Reset()),
    "short": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9000\r\n\r\n" + WHOLE,
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("end", BEFORE_THE_HEAD)
async def test_an_end_before_the_head_is_unavailable(end: str, road: Road, tmp_path: Path) -> None:
    async with behind(road, tmp_path, next_is_good(BEFORE_THE_HEAD[end])) as scene:
        async with scene.gateway.chat() as client:
            error = await refused(client)
        # Where tinyproxy reads the head itself, its own 503 is the answer to half of one.
        expected = (503, "upstream_overloaded") if (end, road) == ("half a head", "plain") else (502, "upstream_unavailable")
        assert (client.status, error["code"], error["retryable"]) == (*expected, True)
        await scene.until_nothing_left()


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("end", IN_THE_BODY)
async def test_an_end_in_the_body_is_told_after_what_came_before_it(end: str, road: Road, tmp_path: Path) -> None:
    async with behind(road, tmp_path, next_is_good(IN_THE_BODY[end])) as scene:
        async with scene.gateway.chat() as client:
            events = await client.events()
        assert text(events) == "Hello"
        assert events[-1]["type"] == "error"
        assert (events[-1]["error"]["code"], events[-1]["error"]["retryable"]) == ("stream_interrupted", True)
        await scene.until_nothing_left()


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("end", AFTER_THE_END)
async def test_a_broken_end_after_a_whole_answer_is_none(end: str, road: Road, tmp_path: Path) -> None:
    async with behind(road, tmp_path, next_is_good(AFTER_THE_END[end])) as scene:
        async with scene.gateway.chat() as client:
            events = await client.events()
        assert text(events) == "Hello world"
        assert events[-1]["type"] == "message_stop"
        assert (await scene.gateway.record())["outcome"] == "finished"
        await scene.until_nothing_left()


@pytest.mark.parametrize("road", ROADS)
async def test_what_came_before_a_broken_end_is_delivered_to_a_client_that_read_late(road: Road, tmp_path: Path) -> None:
    words = ["x" * 20_000 + str(number) for number in range(100)]
    broken = HEAD + chunk(BEGUN) + b"".join(chunk(delta(word)) for word in words) + b"1000\r\nevent"
    async with behind(road, tmp_path, next_is_good(broken), send_buffer=16_384) as scene:
        async with scene.gateway.chat(receive_buffer=4096) as client:
            await scene.gateway.until_blocked()
            events = await client.events()
        assert text(events) == "Hello" + "".join(words)
        assert events[-1]["error"]["code"] == "stream_interrupted"
        await scene.until_nothing_left()
