"""How the bytes of an answer leave: as uvicorn writes them, but for the head, which waits for the body."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.protocol import Protocol
from tests.e2e.client import Client
from tests.waiting import until

pytestmark = pytest.mark.anyio

App = Callable[[Any, Any, Any], Awaitable[None]]
Message = dict[str, Any]
PLAIN = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\nhost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
UNREAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n"


def start(*fields: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(fields)}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def length(number: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % number


@asynccontextmanager
async def served(app: App, protocol: type[HttpToolsProtocol], send_buffer: int | None = None) -> AsyncIterator[tuple[Client, ServerState]]:
    """A client, connected to that application by that protocol."""
    config = uvicorn.Config(app, ws="none", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"today")]
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)

    def made() -> HttpToolsProtocol:
        return protocol(config=config, server_state=state, app_state={})

    serving = await asyncio.get_running_loop().create_server(made, sock=listener)
    try:
        async with Client.open(listener.getsockname()[1], receive_buffer=send_buffer) as client:
            yield client, state
        await until(lambda: not state.tasks and not state.connections, "the end of the request")
    finally:
        serving.close()


async def exchange(app: App, request: bytes, protocol: type[HttpToolsProtocol]) -> bytes:
    """All that comes back until the application has ended and we have left."""

    async def ending(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        ended.set()

    def read() -> bool:
        pieces.append(arrived(client))
        return ended.is_set()

    ended = asyncio.Event()
    pieces: list[bytes] = []
    async with served(ending, protocol) as (client, _):
        await client.send_raw(request)
        await until(read, "the end of the application")
        client.leave("fin")
        return b"".join(pieces) + await everything(client)


async def everything(client: Client) -> bytes:
    found = b""
    while piece := await client._loop.sock_recv(client._socket, 65536):
        found += piece
    return found


def arrived(client: Client) -> bytes:
    """What has come, without waiting."""
    try:
        return client._socket.recv(65536)
    except BlockingIOError:
        return b""


ANSWERS: dict[str, list[Message]] = {
    "chunked": [start(), body(b"one", more=True), body(b"", more=True), body(b"two")],
    "chunked, in one": [start(), body(b"one")],
    "chunked, with an empty end": [start(), body(b"one", more=True), body(b"")],
    "chunked, and it says so": [start((b"transfer-encoding", b"chunked")), body(b"one")],
    "chunked in spite of a length": [start(length(3), (b"transfer-encoding", b"chunked")), body(b"longer")],
    "long": [start(), body(b"x" * 100_000, more=True), body(b"y" * 17)],
    "empty": [start(), body(b"")],
    "no body named": [start(), {"type": "http.response.body"}],
    "no fields": [{"type": "http.response.start", "status": 200}, body(b"one")],
    "length": [start(length(3)), body(b"one")],
    "length, in pieces": [start(length(6)), body(b"one", more=True), body(b"two")],
    "no content": [start(status=204), body(b"")],
    "not modified": [start(status=304), body(b"")],
    "unknown status": [start(status=599), body(b"")],
    "closed": [start((b"connection", b"Keep, Close")), body(b"one")],
    "kept": [start((b"connection", b"keep-alive")), body(b"one")],
    "capitals": [start((b"Content-Length", b"3"), (b"X-More", b"Yes"), (b"x-again", b"1"), (b"x-again", b"2")), body(b"one")],
}


@pytest.mark.parametrize("request_bytes", [PLAIN, HEAD, OLD, LAST, UNREAD], ids=["plain", "HEAD", "1.0", "last", "unread"])
@pytest.mark.parametrize("messages", ANSWERS.values(), ids=ANSWERS)
async def test_answer_is_byte_for_byte_as_uvicorn_writes_it(messages: list[Message], request_bytes: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    ours, uvicorns = [await exchange(app, request_bytes, protocol) for protocol in (Protocol, HttpToolsProtocol)]
    if request_bytes is UNREAD:  # our last word: nobody would read the rest of the request
        assert b"connection: close\r\n" in ours or b"connection: Keep, Close\r\n" in ours
        ours = ours.replace(b"connection: close\r\n", b"")
    assert ours == uvicorns


MISUSES: dict[str, list[Message]] = {
    "body first": [body(b"one")],
    "two heads": [start(), start()],
    "head after the end": [start(), body(b""), start()],
    "body after the end": [start(), body(b""), body(b"one")],
    "broken name": [start((b"a b", b"1"))],
    "broken value": [start((b"x-more", b"1\r\nset-cookie: a"))],
    "too long": [start(length(2)), body(b"one")],
    "too long in the end": [start(length(4)), body(b"one", more=True), body(b"two")],
    "too short": [start(length(4)), body(b"one")],
    "unwanted body": [start(status=204), body(b"one")],
}


@pytest.mark.parametrize("messages", MISUSES.values(), ids=MISUSES)
async def test_misuse_raises_what_uvicorn_raises(messages: list[Message]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            for message in messages:
                await send(message)
        except RuntimeError as error:
            raised.append(str(error))

    raised: list[str] = []
    logging.getLogger("uvicorn.error").disabled = True  # it complains of an answer without an end
    try:
        for protocol in (Protocol, HttpToolsProtocol):
            await exchange(app, PLAIN, protocol)
    finally:
        logging.getLogger("uvicorn.error").disabled = False
    assert len(raised) == 2
    assert raised[0] == raised[1]


async def test_head_waits_for_the_first_piece_even_an_empty_one() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        seen.append(arrived(client))
        await send(body(b"", more=True))
        seen.append(arrived(client))
        await send(body(b"one"))

    seen: list[bytes] = []
    async with served(app, Protocol) as (client, state):
        await client.send_raw(PLAIN)
        await until(lambda: state.total_requests, "the end of the answer")
        assert seen == [b"", b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"]
        assert arrived(client) == b"3\r\none\r\n0\r\n\r\n"


async def test_client_that_leaves_before_the_body_gets_no_more() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        while (await receive())["type"] != "http.disconnect":
            pass
        await send(body(b"one"))
        pushed.append(scope["extensions"]["gateway"]["push"](b"two"))

    pushed: list[bool] = []
    async with served(app, Protocol) as (client, _):
        await client.send_raw(PLAIN)
        client.leave("fin")
        assert await everything(client) == b""
        await until(lambda: pushed, "the push")
    assert pushed == [False]


# push


@pytest.mark.parametrize("messages", [[start()], [start(), body(b"zero", more=True)]], ids=["head", "head and body"])
@pytest.mark.parametrize("fields", [[], [length(10)]], ids=["chunked", "length"])
async def test_what_is_pushed_is_what_would_have_been_sent(messages: list[Message], fields: list[tuple[bytes, bytes]]) -> None:
    pieces = [b"one", b"", b"two"] if messages[1:] else [b"zero", b"one", b"two"]

    async def sends(scope: Any, receive: Any, send: Any) -> None:
        for message in ({**messages[0], "headers": fields}, *messages[1:], *(body(piece, more=True) for piece in pieces), body(b"")):
            await send(message)

    async def pushes(scope: Any, receive: Any, send: Any) -> None:
        push = scope["extensions"]["gateway"]["push"]
        for message in ({**messages[0], "headers": fields}, *messages[1:]):
            await send(message)
        assert all(push(piece) for piece in pieces)
        await send(body(b""))

    pushed = await exchange(pushes, PLAIN, Protocol)
    assert pushed == await exchange(sends, PLAIN, Protocol)
    assert pushed.count(b"zero") == 1


@pytest.mark.parametrize("request_bytes", [PLAIN, HEAD], ids=["GET", "HEAD"])
@pytest.mark.parametrize("fields", [[], [length(6)]], ids=["chunked", "length"])
async def test_whole_answer_is_written_by_calls_as_it_would_have_been_sent(
    fields: list[tuple[bytes, bytes]], request_bytes: bytes
) -> None:
    async def sends(scope: Any, receive: Any, send: Any) -> None:
        await send({**start(), "headers": fields})
        await send(body(b"one", more=True))
        await send(body(b"two"))

    async def calls(scope: Any, receive: Any, send: Any) -> None:
        ours = scope["extensions"]["gateway"]
        assert ours["begin"](200, fields, b"one", True)
        assert not ours["begin"](200, fields, b"!", True)
        assert request_bytes is HEAD or ours["push"](b"two", False)
        if request_bytes is HEAD:  # its body is nobody's business, and its end is told by `send`
            await send(body(b""))
        assert not ours["push"](b"!", False)

    assert await exchange(calls, request_bytes, Protocol) == await exchange(sends, request_bytes, Protocol)


@pytest.mark.parametrize("request_bytes", [PLAIN, HEAD], ids=["GET", "HEAD"])
async def test_nothing_is_pushed_outside_of_an_answer_or_beyond_its_length(request_bytes: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        push = scope["extensions"]["gateway"]["push"]
        pushed.append(push(b"one"))
        await send(start(length(2)))
        pushed.append(push(b"one"))
        await send(body(b"ab"))
        pushed.append(push(b"one"))

    pushed: list[bool] = []
    answer = await exchange(app, request_bytes, Protocol)
    assert answer == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\n\r\n" + (b"ab" if request_bytes is PLAIN else b"")
    assert pushed == [False, False, False]


async def test_nothing_is_pushed_to_a_client_that_reads_too_slowly() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        push = scope["extensions"]["gateway"]["push"]
        while push(PIECE):
            written.append(PIECE)
        assert not push(b"more")
        full.set()
        await send(body(b"the end"))

    PIECE = b"x" * 10_000
    written: list[bytes] = []
    full = asyncio.Event()
    async with served(app, Protocol, send_buffer=4096) as (client, state):
        await client.send_raw(PLAIN)
        await full.wait()
        assert 1 < len(written) < 100
        assert state.total_requests == 0
        assert await client.body() == PIECE * len(written) + b"the end"
