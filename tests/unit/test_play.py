"""What a played script looks like on a raw socket and in an httpx response; and that the tests' provider sees what it claims to."""

import asyncio
import select
import socket
import struct
import time
from typing import Any

import anyio
import httpx
import pytest

from gateway.play import PlayTransport, play
from gateway.simulator import Cut, Hang, Reset, Script, Send, Wait
from tests.upstream import Respond, ScriptedUpstream, full_listener, one_after_another, refusing_port, split

pytestmark = pytest.mark.anyio
ASK = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Two: a\r\nx-two: b\r\nContent-Length: 5\r\n\r\nhello"
HEADERS = (("content-type", "text/plain"),)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": False})], ids=["asyncio"])  # uvloop tells nobody
async def test_a_cut_that_finds_nobody_is_a_lost_connection(anyio_backend: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as peer:
        accepted, _ = listener.accept()
        _, writer = await asyncio.open_connection(sock=accepted)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        with pytest.raises(ConnectionResetError):
            await play(Script(200, (("content-length", "9"),), (), (Cut(),)), writer)
        writer.transport.abort()


class Client:
    """A raw client that shows exactly what came, and by what the connection ended."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def send(self, data: bytes = ASK) -> None:
        await self._loop.sock_sendall(self._socket, data)

    async def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = await self._loop.sock_recv(self._socket, size - len(found))
            assert piece, found
            found += piece
        return found

    async def read_to_end(self) -> tuple[bytes, str]:
        found = b""
        while True:
            try:
                piece = await self._loop.sock_recv(self._socket, 65536)
            except ConnectionResetError:
                return found, "RST"
            if not piece:
                return found, "FIN"
            found += piece

    def is_silent_and_open(self) -> bool:
        return not select.select([self._socket], [], [], 0)[0]

    def leave(self, how: str = "FIN") -> None:
        if how == "RST":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def always(*steps: Any, before: Any = (), headers: tuple[tuple[str, str], ...] = HEADERS, status: int = 200) -> Respond:
    return lambda _: Script(status, headers, steps, before)


async def test_a_script_is_sent_as_chunks_byte_for_byte() -> None:
    async with ScriptedUpstream(always(Send(b"one"), Send(b""), Wait(0), Send(b"x" * 17))) as upstream, Client(upstream.port) as client:
        expected = HEAD + b"3\r\none\r\n" + b"11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n"
        await client.send()
        assert await client.read(len(expected)) == expected
        request = await upstream.request()
        await request.until_answered()
        assert request.sent == len(expected)


async def test_a_request_is_recorded_whole() -> None:
    async with ScriptedUpstream(always()) as upstream, Client(upstream.port) as client:
        await client.send()
        request = await upstream.request()
        assert (request.method, request.path, request.body) == ("POST", "/v1/messages", b"hello")
        assert request.headers == {"host": "x", "x-two": "a, b", "content-length": "5"}
        assert request.connection.opened <= request.arrived <= time.monotonic()
        assert request.closed is None
        assert upstream.open == upstream.connections == [request.connection]


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with ScriptedUpstream(one_after_another(*[Script(200, HEADERS, (Send(data),)) for data in (b"1", b"2")])) as upstream:
        async with Client(upstream.port) as client:
            for data in (b"1", b"2", b"2"):
                await client.send()
                expected = HEAD + b"1\r\n" + data + b"\r\n0\r\n\r\n"
                assert await client.read(len(expected)) == expected
        assert len(upstream.requests) == 3
        assert len(upstream.connections) == 1
        await upstream.until_all_closed()


async def test_connection_close_ends_with_a_fin() -> None:
    respond = always(Send(b"1"), headers=(("Connection", "Close"), ("Content-Length", "1")))
    async with ScriptedUpstream(respond) as upstream, Client(upstream.port) as client:
        await client.send()
        assert await client.read_to_end() == (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\n1", "FIN")
        assert (await upstream.connection()).closed is None
        client.leave()
        await upstream.until_all_closed()


async def test_a_status_without_a_known_name_has_none() -> None:
    async with ScriptedUpstream(always(status=529)) as upstream, Client(upstream.port) as client:
        await client.send()
        assert (await client.read(14)) == b"HTTP/1.1 529 \r"


async def test_raw_bytes_are_replayed_as_they_are() -> None:
    async with ScriptedUpstream(lambda _: b"HTTP/1.0 200 odd\n\nbody\x00") as upstream, Client(upstream.port) as client:
        await client.send()
        assert await client.read_to_end() == (b"HTTP/1.0 200 odd\n\nbody\x00", "FIN")
        assert (await upstream.request()).sent == 23


async def test_cut_leaves_a_chunk_unfinished_and_sends_a_fin() -> None:
    async with ScriptedUpstream(always(Send(b"one"), Cut(), Send(b"never"))) as upstream, Client(upstream.port) as client:
        await client.send()
        assert await client.read_to_end() == (HEAD + b"3\r\none\r\n1000\r\n", "FIN")


async def test_reset_sends_a_rst_after_all_the_bytes() -> None:
    async with ScriptedUpstream(always(*[Send(b"x" * 100)] * 100, Reset())) as upstream, Client(upstream.port) as client:
        await client.send()
        request = await upstream.request()
        await request.until_closed()
        assert await client.read_to_end() == (HEAD + (b"64\r\n" + b"x" * 100 + b"\r\n") * 100, "RST")


async def test_what_is_sent_counts_only_what_the_kernel_took() -> None:
    data = b"x" * 50_000_000
    async with ScriptedUpstream(always(Send(data))) as upstream, Client(upstream.port) as client:
        await client.send()
        request = await upstream.request()
        await client.read(1_000_000)
        assert request.sent == len(HEAD)
        await client.read(len(data) - 1_000_000)
        await request.until_sent(len(HEAD) + len(data))


@pytest.mark.parametrize(("pause", "end"), [(Cut(), "FIN"), (Reset(), "RST")])
async def test_a_connection_can_end_before_its_headers(pause: Cut | Reset, end: str) -> None:
    async with ScriptedUpstream(always(Send(b"never"), before=(Wait(0), pause))) as upstream, Client(upstream.port) as client:
        await client.send()
        assert await client.read_to_end() == (b"", end)


async def test_hang_stays_open_and_silent() -> None:
    async with ScriptedUpstream(always(Send(b"one"), Hang(), Send(b"never"))) as upstream, Client(upstream.port) as client:
        await client.send()
        await client.read(len(HEAD) + 8)
        request = await upstream.request()
        await request.until_sent(len(HEAD) + 8)
        await anyio.wait_all_tasks_blocked()
        assert client.is_silent_and_open()
        assert not request.answered


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize(
    "phase", ["accepted", "held", "half a request", "before headers", "waiting", "hanging", "sending", "answered", "after our FIN"]
)
async def test_a_client_that_leaves_is_noticed_at_once_in_every_phase(phase: str, how: str) -> None:
    steps: dict[str, Script] = {
        "before headers": Script(200, HEADERS, (), (Hang(),)),
        "waiting": Script(200, HEADERS, (Send(b"1"), Wait(60))),
        "hanging": Script(200, HEADERS, (Send(b"1"), Hang())),
        "sending": Script(200, HEADERS, (Send(b"x" * 65536),) * 500),
        "answered": Script(200, HEADERS, (Send(b"1"),)),
        "after our FIN": Script(200, HEADERS, (Send(b"1"), Cut())),
    }
    async with ScriptedUpstream(lambda _: steps[phase]) as upstream, Client(upstream.port) as client:
        if phase == "held":
            upstream.reading.clear()
        if phase != "accepted":
            await client.send(ASK[:-1] if phase == "half a request" else ASK)
        connection = await upstream.connection()
        if phase in steps:
            request = await upstream.request()
            if phase != "before headers":
                await request.until_sent(len(HEAD))
            if phase in ("answered", "after our FIN"):
                await request.until_answered()
        await anyio.wait_all_tasks_blocked()
        left = time.monotonic()
        client.leave(how)
        assert await connection.until_closed() - left < 0.25
        assert upstream.silent == ([connection] if phase in ("accepted", "held", "half a request") else [])


async def test_a_request_that_comes_together_with_the_fin_is_counted() -> None:
    async with ScriptedUpstream(always(Send(b"1"))) as upstream, Client(upstream.port) as client:
        await client.send()
        client.leave()
        request = await upstream.request()
        await request.until_closed()


async def test_a_held_connection_is_read_once_the_hold_is_lifted() -> None:
    async with ScriptedUpstream(always(Send(b"1"))) as upstream, Client(upstream.port) as client:
        upstream.reading.clear()
        await client.send()
        connection = await upstream.connection()
        await anyio.wait_all_tasks_blocked()
        assert connection in upstream.silent
        upstream.reading.set()
        await client.read(len(HEAD))
        assert upstream.silent == []


async def test_an_exception_in_respond_fails_the_test() -> None:
    def respond(_: object) -> Script:
        raise LookupError("no such script")

    async def ask() -> None:
        async with ScriptedUpstream(respond) as upstream, Client(upstream.port) as client:
            await client.send()
            await upstream.request(1)

    with pytest.raises(ExceptionGroup) as caught:
        await ask()
    assert isinstance(caught.value.exceptions[0], LookupError)


async def test_a_condition_that_never_holds_is_named() -> None:
    async with ScriptedUpstream(always()) as upstream:
        with pytest.raises(TimeoutError, match=r"request 3 arrives: not within 0\.01 s"):
            await upstream.request(3, deadline=0.01)


async def test_split_pieces_are_reads_of_their_own() -> None:
    pieces = []
    async with ScriptedUpstream(always(*split(b"abcdefgh", 3))) as upstream, httpx.AsyncHTTPTransport(retries=0) as transport:
        response = await transport.handle_async_request(httpx.Request("POST", upstream.url, content=b"hello"))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for piece in response.stream:
            pieces.append(piece)
        await response.aclose()
    assert pieces == [b"abc", b"def", b"gh"]


async def test_a_refusing_port_refuses() -> None:
    with refusing_port() as port, pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_full_listener_lets_nobody_in() -> None:
    async with full_listener() as listener, anyio.create_task_group() as group:
        assert listener.dialling() == 0
        group.start_soon(asyncio.open_connection, "127.0.0.1", listener.port)
        await listener.until_dialling(1)
        group.cancel_scope.cancel()
        await listener.until_dialling(0)


def simulated(prompt: str) -> httpx.Request:
    return httpx.Request("POST", "http://simulator/v1/messages", json={"messages": [{"role": "user", "content": prompt}], "stream": True})


async def opened(prompt: str) -> tuple[httpx.Response, httpx.AsyncByteStream]:
    response = await PlayTransport().handle_async_request(simulated(prompt))
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response, response.stream


async def test_the_transport_plays_the_simulators_answer() -> None:
    response, stream = await opened("speed=0 chunk=100")
    pieces = [piece async for piece in stream]
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert {len(piece) for piece in pieces[:-1]} == {100}
    assert b"".join(pieces).endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


@pytest.mark.parametrize(("fault", "error"), [("cut", httpx.RemoteProtocolError), ("reset", httpx.ReadError)])
async def test_the_transport_breaks_as_a_connection_does(fault: str, error: type[Exception]) -> None:
    _, stream = await opened(f"speed=0.0001 fault={fault} after=2")
    pieces = aiter(stream)
    for _ in range(2):
        assert await anext(pieces)
    with pytest.raises(error):
        await anext(pieces)
    with pytest.raises(error):
        await opened(f"fault={fault} after=0")


@pytest.mark.parametrize("prompt", ["fault=hang after=2", "speed=60", "fault=hang after=0", "wait=60"])
async def test_the_transport_ends_when_cancelled(prompt: str) -> None:
    stream: httpx.AsyncByteStream | None = None

    async def read() -> None:
        nonlocal stream
        _, stream = await opened(prompt)
        async for _ in stream:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    if stream is not None:
        await stream.aclose()
        assert [piece async for piece in stream] == []


async def test_a_fast_script_lets_others_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    _, stream = await opened("speed=0 tokens=200")
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        pieces = [piece async for piece in stream]
        group.cancel_scope.cancel()
    assert turns >= len(pieces) // 2
