"""`gateway simulate` as other people's programs meet it: real SDKs, a gateway, clients that leave, and Ctrl-C."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anthropic
import httpx
import pytest

from gateway.settings import load
from gateway.simulate_server import SimulateServer
from gateway.simulator import Hang, Script, Send, Wait, answer
from gateway.wiring import wire
from tests.e2e.client import ASK, Client, Json, Truncated, Way
from tests.e2e.running import ROOT, provider, running, wiring
from tests.waiting import until

pytestmark = pytest.mark.anyio
DEADLINE = 5.0
HI = [{"role": "user", "content": "hi"}]
QUICK = "speed=0"


@asynccontextmanager
async def simulator(wishes: str = QUICK) -> AsyncIterator[tuple[SimulateServer, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with SimulateServer(listener, lambda path, body: answer(path, body, wishes)) as server:
        yield server, listener.getsockname()[1]


async def until_empty(server: SimulateServer) -> None:
    await until(lambda: not server.connections, "the end of all connections")


def claude(port: int) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="any", max_retries=0)


# SDKs


async def test_the_official_claude_sdk_streams_and_asks_for_whole_messages() -> None:
    async with simulator() as (_, port), claude(port) as sdk:
        async with sdk.messages.stream(model="simulator", max_tokens=100, messages=HI) as stream:  # type: ignore[arg-type]  # plain dicts
            text = [piece async for piece in stream.text_stream]
            streamed = await stream.get_final_message()
        whole = await sdk.messages.create(model="simulator", max_tokens=100, messages=HI)  # type: ignore[arg-type]
    assert [block.type for block in streamed.content] == ["thinking", "text", "tool_use"]
    assert len(text) > 10
    assert streamed.stop_reason == whole.stop_reason == "tool_use"
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert streamed.content[1].text == whole.content[1].text == "".join(text)  # type: ignore[union-attr]


async def test_the_official_claude_sdk_lists_models_and_reads_errors() -> None:
    async with simulator("fault=status:529") as (_, port), claude(port) as sdk:
        assert [model.id async for model in sdk.models.list()] == ["simulator", "simulator-fast"]
        with pytest.raises(anthropic.APIStatusError) as refused:
            await sdk.messages.create(model="simulator", max_tokens=1, messages=HI)  # type: ignore[arg-type]
    assert refused.value.status_code == 529


@pytest.mark.parametrize("chunk", ["", "chunk=1", "chunk=7"])
async def test_an_openai_client_streams_whatever_the_borders_of_the_reads(chunk: str) -> None:
    async with simulator(f"{QUICK} {chunk}") as (_, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1") as client:
        ask: Json = {"model": "simulator", "messages": HI, "stream": True}
        async with client.stream("POST", "/chat/completions", json=ask) as response:
            lines = [line async for line in response.aiter_lines() if line]
        whole = (await client.post("/chat/completions", json={**ask, "stream": False})).json()
        listed = (await client.get("/models")).json()
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "tool_calls"
    assert [row["id"] for row in listed["data"]] == ["simulator", "simulator-fast"]


async def test_a_connection_carries_request_after_request() -> None:
    async with simulator() as (server, port), httpx.AsyncClient() as client:
        for _ in range(20):
            assert (await client.post(f"http://127.0.0.1:{port}/v1/messages", json={"messages": HI, "stream": True})).status_code == 200
        assert server.connections == 1


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_gateway_pointed_at_it_answers(kind: str) -> None:
    async with simulator() as (_, port), running(wiring(provider(f"http://127.0.0.1:{port}", kind=kind))) as gateway:
        for _ in range(3):
            async with gateway.chat() as client:
                events = await client.events()
            assert events[-1]["type"] == "message_stop"
            blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
            assert blocks == ["thinking", "text", "tool_use"]


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ("speed=0 fault=cut", "stream_interrupted"),
        ("speed=0 fault=reset", "stream_interrupted"),
        ("speed=0 fault=error", "upstream_overloaded"),
        ("speed=0 fault=cut after=0", "upstream_unavailable"),
        ("speed=0 fault=reset after=0", "upstream_unavailable"),
        ("fault=html", "upstream_unavailable"),
        ("fault=status:429", "upstream_rate_limited"),
    ],
)
async def test_each_fault_reaches_a_gateway_as_what_it_is(wishes: str, code: str) -> None:
    async with simulator(wishes) as (_, port), running(wiring(provider(f"http://127.0.0.1:{port}"))) as gateway:
        async with gateway.chat() as client:
            await client.body()
        assert (await gateway.record())["error_code"] == code


async def test_a_request_can_undo_the_servers_fault() -> None:
    async with simulator("speed=0 fault=status:529") as (_, port), httpx.AsyncClient() as client:
        ask = {"messages": [{"role": "user", "content": "fault=none"}]}
        assert (await client.post(f"http://127.0.0.1:{port}/v1/messages", json=ask)).status_code == 200


# sockets


@pytest.mark.parametrize("way", ["fin", "rst"])
@pytest.mark.parametrize("steps", [(Hang(),), (Send(b"x"), Wait(60)), (Send(b"x" * 65536),) * 1000], ids=["hang", "wait", "full"])
async def test_a_client_that_leaves_ends_its_answer(steps: tuple[Hang | Send | Wait, ...], way: Way) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with SimulateServer(listener, lambda path, body: Script(200, (), steps)) as server, Client.open(port) as client:
        await client.post()
        await client.head()
        assert server.connections == 1
        client.leave(way)
        await until_empty(server)


async def test_a_client_that_leaves_before_its_request_is_whole_leaves_nothing() -> None:
    async with simulator() as (server, port):
        for beginning in (b"", b"POST /v1/mess", b"POST /v1/messages HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
            async with Client.open(port) as client:
                await client.send_raw(beginning)
        await until_empty(server)


async def test_what_is_no_http_is_let_go() -> None:
    async with simulator() as (server, port), Client.open(port) as client:
        await client.send_raw(b"\x16\x03\x01\x02\x00 hello")
        await client.until_lost()
        await until_empty(server)


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with simulator() as (_, port), Client.open(port) as client:
        for number in range(5):
            await client.post({"messages": HI, "model": f"m{number}"}, path="/v1/messages")
        for number in range(5):
            assert await client.head() == 200
            assert (await client.json())["model"] == f"m{number}"


async def test_a_chunked_request_is_read() -> None:
    body = json.dumps({"messages": HI}).encode()
    async with simulator() as (_, port), Client.open(port) as client:
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        await client.send_raw(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunked)
        assert await client.head() == 200
        assert (await client.json())["stop_reason"] == "tool_use"


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it() -> None:
    body = json.dumps({"messages": HI}).encode()
    async with simulator() as (_, port), asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


async def test_a_head_request_has_no_body_and_close_is_honoured() -> None:
    async with simulator() as (server, port), Client.open(port) as client:
        await client.send("HEAD", "/v1/models")
        assert await client.head() == 200
        await client.send("GET", "/v1/models", headers={"connection": "close"})
        assert await client.head() == 200
        await client.body()
        with pytest.raises(Truncated):
            await client.head()
        assert server.connections == 1  # it waits for our side
    async with asyncio.timeout(DEADLINE):
        await until_empty(server)


# the process


@asynccontextmanager
async def simulate(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The command, and its screen."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "simulate", "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
    )
    assert started.stdout is not None
    try:
        async with asyncio.timeout(30):
            screen = (await started.stdout.readuntil(b"Ctrl-C\n")).decode()
        yield started, screen
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


def address(screen: str) -> str:
    return next(line.split()[1] for line in screen.splitlines() if line.startswith("  Claude"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_it_quietly_in_the_middle_of_answers(number: signal.Signals) -> None:
    async with simulate("--fault", "hang") as (started, screen), Client.open(int(address(screen).rpartition(":")[2])) as client:
        await client.post({**ASK, "stream": True}, path="/v1/messages")
        await client.head()
        started.send_signal(number)
        assert await started.wait() == 0
        assert started.stdout is not None
        assert (await started.stdout.read()).strip() == b""
        await client.until_lost()


async def test_what_the_screen_says_works(tmp_path: Path) -> None:
    async with simulate("--speed", "0", "--tokens", "3") as (_, screen):
        environment = dict(word.split("=", 1) for word in screen.split() if word.startswith(("ANTHROPIC_", "OPENAI_")))
        assert set(environment) == {"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"}
        for vendor in ("ANTHROPIC", "OPENAI"):
            chosen = {name: value for name, value in environment.items() if name.startswith(vendor)}
            wired = wire(load(chosen, directory=tmp_path, secrets=tmp_path))
            async with running(wired) as gateway, gateway.chat() as client:
                events = await client.events()
            text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
            assert (text, events[-1]["type"]) == ("Hello! You wrote:", "message_stop")
