"""The transport against providers that break every rule, over sockets, on both loops: each gets its clear error, and nothing is left."""

import asyncio
import gzip
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import pytest

from gateway.errors import UpstreamFailed
from gateway.formats import Provider, UpstreamRequest
from gateway.http1 import IDLE_CONNECTIONS, Http1Transport
from gateway.http1_connection import HEAD_LIMIT, PIECE, WAITING_LIMIT
from gateway.upstream import Exchange
from tests.e2e.wires import Peer, Wire, asking, body, descriptors, listening, request, running, until_nothing_left
from tests.upstream import full_listener, refusing_port
from tests.waiting import until

pytestmark = pytest.mark.anyio

KIB = 1024
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
EVENT = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def transport(anyio_backend: object) -> AsyncIterator[Http1Transport]:
    """Closed after the test; then no socket and no task may be left."""
    sockets, tasks = descriptors(), running()
    async with Http1Transport() as opened:
        yield opened
    await until_nothing_left(sockets, tasks)


@pytest.fixture
async def peer(transport: Http1Transport) -> AsyncIterator[Peer]:
    async with listening() as opened:
        yield opened


# What an answer may look like.


@pytest.mark.parametrize("cut", ["whole", "byte by byte"])
@pytest.mark.parametrize(
    ("answer", "status", "text", "reused"),
    [
        pytest.param(OK, 200, b"ok", True, id="content-length"),
        pytest.param(CHUNKED + b"2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", 200, b"ok!", True, id="chunked"),
        pytest.param(CHUNKED + b"2  \r\nok\r\n0 \r\n\r\n", 200, b"ok", True, id="chunk sizes padded with spaces"),
        pytest.param(CHUNKED + b"2;a=b\r\nok\r\n0\r\n\r\n", 200, b"ok", True, id="chunk extension"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\nx-sum: 1\r\nstatus: 500\r\n\r\n", 200, b"ok", True, id="trailers"),
        pytest.param(b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, b"", True, id="no reason phrase"),
        pytest.param(b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, b"", True, id="an empty line before"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True, id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b"", True, id="304 with a length"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok", True, id="1xx before"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK, 200, b"ok", True, id="1xx twice"),
        pytest.param(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", True, id="1.0 kept"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", False, id="1.0 with a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", False, id="Connection: close"),
        pytest.param(OK.replace(b"\r\n", b"\r\nupgrade: h2c\r\nconnection: upgrade\r\n", 1), 200, b"ok", True, id="upgrade offered"),
        pytest.param(OK + b"more", 200, b"ok", False, id="a content-length that is too short"),
        pytest.param(OK + b"HTTP/1.1 500 No\r\nevil: 1\r\ncontent-length: 1\r\n\r\nx", 200, b"ok", False, id="a second answer behind it"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\n\r\n0\r\n\r\n", 200, b"ok", False, id="bytes after the last chunk"),
        pytest.param(b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok", 204, b"", False, id="204 with a body"),
    ],
)
async def test_an_answer_is_read_whole_and_its_connection_kept_only_if_it_is_clean(
    transport: Http1Transport, peer: Peer, answer: bytes, status: int, text: bytes, reused: bool, cut: str
) -> None:
    sent = [answer] if cut == "whole" else [answer[at : at + 1] for at in range(len(answer))]
    async with asking(transport, peer) as asked:
        wire = await peer.accept()
        await wire.request()
        await wire.send(*sent)
        response = await asked
    assert response.status_code == status
    assert not {"x-sum", "status", "link", "evil"} & set(response.headers)
    if not reused:
        wire.fin()  # not before all is sent: else the reader could be done, and the connection in use again, before the rest came
        await anyio.wait_readable(wire.socket)
    assert await body(response) == (text, None)
    if not reused:
        return await wire.until_closed()
    async with asking(transport, peer) as asked:
        await wire.request()
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)
    assert len(peer.wires) == 1


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_without_length_and_chunks_the_body_ends_with_the_connection(transport: Http1Transport, peer: Peer, version: str) -> None:
    response, wire = await peer.answered(transport, f"HTTP/{version} 200 OK\r\n\r\nall ".encode())
    await wire.send(b"of it")
    wire.fin()
    assert await body(response) == (b"all of it", None)
    await wire.until_closed()


async def test_a_close_delimited_body_ended_by_a_reset_is_broken(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, b"HTTP/1.1 200 OK\r\n\r\nhalf")
    wire.reset()
    text, error = await body(response)
    assert text == b"half"
    assert isinstance(error, httpx.ReadError)


async def test_an_answer_that_comes_before_its_request_is_read(transport: Http1Transport, peer: Peer) -> None:
    """Full servers refuse whoever connects."""
    async with asking(transport, peer) as asked:
        wire = await peer.accept()
        await wire.send(b"HTTP/1.1 503 Full\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        wire.fin()
        response = await asked
    assert response.status_code == 503
    assert await body(response) == (b"", None)


# What is no answer.


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9\r\n", "no HTTP/1.1", id="another protocol"),
        pytest.param(b"HTTP/1.1 2000 OK\r\n\r\n", "no HTTP/1.1", id="a status of four digits"),
        pytest.param(b"HTTP/1.1 099 Low\r\n\r\n", "status is 99", id="a status below 100"),
        pytest.param(b"HTTP/1.1 101 Switching\r\n\r\nab", "status is 101", id="101"),
        pytest.param(b"HTTP/1.1 101 S\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nab", "status is 101", id="101 with an upgrade"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", "Content-Length", id="two lengths"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok", "Content-Length", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\nok", "Length", id="chunks and a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "transfer-encoding", id="gzip as transfer-encoding"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", "larger than 64 KiB", id="one header of 100 KB"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"x: 1234567890\r\n" * 7_000 + b"\r\n", "larger than 64 KiB", id="a head of 100 KB"),
        pytest.param(OK.replace(b"\r\n", b"\r\nx: " + b"y" * HEAD_LIMIT + b"\r\n", 1), "larger than 64 KiB", id="just over the limit"),
        pytest.param(b"HTTP/1.1 102 Processing\r\n\r\n" * 4_000, "larger than 64 KiB", id="1xx without end"),
    ],
)
async def test_what_is_no_answer_is_a_clear_error(transport: Http1Transport, peer: Peer, answer: bytes, sentence: str) -> None:
    wire, error = await refused(transport, peer, answer)
    assert isinstance(error, httpx.RemoteProtocolError)
    assert sentence in str(error)
    await wire.until_closed()


async def refused(
    transport: Http1Transport, peer: Peer, answer: bytes = b"", end: str | None = None
) -> tuple[Wire, BaseException | None]:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(failure(transport.handle_async_request(request(peer.url))))
        wire = await peer.accept()
        await wire.request()
        with suppress(ConnectionError):  # it may not wait for the rest
            await wire.send(answer)
        if end:
            wire.end(end)
        async with asyncio.timeout(5):
            error = await asked
    return wire, error


async def failure(asked: Awaitable[object]) -> BaseException | None:
    try:
        await asked
    except httpx.HTTPError as error:
        return error
    return None


async def test_a_head_of_64_kib_is_read(transport: Http1Transport, peer: Peer) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: "
    response, _ = await peer.answered(transport, head + b"y" * (HEAD_LIMIT - len(head) - 4) + b"\r\n\r\nok")
    assert await body(response) == (b"ok", None)


async def test_a_dripped_head_ends_at_its_limit(transport: Http1Transport, peer: Peer) -> None:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(failure(transport.handle_async_request(request(peer.url))))
        wire = await peer.accept()
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n")
        dripped = 0
        while not asked.done():
            try:
                await wire.send(b"a-header: of some length, again\r\n" * 4, b"")
            except ConnectionError:
                break
            dripped += 132
    assert "larger than 64 KiB" in str(asked.result())
    assert dripped < 2 * 1024 * KIB


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        pytest.param(b"zz\r\nabc\r\n", "chunk size", id="no number"),
        pytest.param(b"-1\r\nabc\r\n", "chunk size", id="a negative one"),
        pytest.param(b"\r\nabc\r\n", "chunk size", id="none"),
        pytest.param(b"f" * 17 + b"\r\nabc\r\n", "overflow", id="one beyond 64 bits"),
        pytest.param(b"3\r\nabcd\r\n", "no HTTP/1.1", id="one that is too small"),
        pytest.param(b"0\r\n" + b"trailer: x\r\n" * 20_000, "larger than 64 KiB", id="trailers without end"),
        pytest.param(b"0\r\nt: " + b"x" * 200_000, "larger than 64 KiB", id="a trailer without end"),
        pytest.param(b"3;" + b"x" * 200_000, "larger than 64 KiB", id="a chunk extension without end"),
    ],
)
async def test_bad_framing_is_an_error_behind_what_came_before_it(
    transport: Http1Transport, peer: Peer, tail: bytes, sentence: str
) -> None:
    async with asking(transport, peer) as asked:
        wire = await peer.accept()
        await wire.request()
        with suppress(ConnectionError):  # it may not wait for the rest
            await wire.send(EVENT + tail)
        response = await asked
    text, error = await body(response)
    assert text == b"abc" + (b"abc" if sentence == "no HTTP/1.1" else b"")
    assert isinstance(error, httpx.RemoteProtocolError)
    assert sentence in str(error)
    await wire.until_closed()


# The connection ends.


@pytest.mark.parametrize("end", ["FIN", "RST"])
@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        pytest.param(b"", "without an answer", id="before the answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: ", "inside the head", id="in the head"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n", "inside the head", id="after a 1xx"),
    ],
)
async def test_an_end_without_an_answer_is_a_clear_error(
    transport: Http1Transport, peer: Peer, sent: bytes, sentence: str, end: str
) -> None:
    _, error = await refused(transport, peer, sent, end)
    assert isinstance(error, httpx.RemoteProtocolError if end == "FIN" else httpx.ReadError)
    assert (sentence if end == "FIN" else "Connection reset by peer") in str(error)


@pytest.mark.parametrize("end", ["FIN", "RST"])
@pytest.mark.parametrize("head", [EVENT, EVENT + b"9\r\n", SHORT], ids=["between chunks", "in a chunk", "too long a length"])
async def test_an_end_inside_the_body_is_an_error_behind_what_came(transport: Http1Transport, peer: Peer, head: bytes, end: str) -> None:
    response, wire = await peer.answered(transport, head)
    wire.end(end)
    text, error = await body(response)
    assert text == b"abc"
    assert isinstance(error, httpx.RemoteProtocolError if end == "FIN" else httpx.ReadError)
    assert ("inside the body" if end == "FIN" else "Connection reset by peer") in str(error)


@pytest.mark.parametrize("end", ["FIN", "RST"])
async def test_an_end_behind_a_complete_answer_does_not_harm_it(transport: Http1Transport, peer: Peer, end: str) -> None:
    response, wire = await peer.answered(transport, OK)
    wire.end(end)
    assert await body(response) == (b"ok", None)


@pytest.mark.parametrize("end", ["FIN", "RST"])
@pytest.mark.parametrize("size", [200_000, 3_000_000], ids=["less than may wait", "more than may wait"])
async def test_what_came_while_the_reader_paused_is_read_before_the_error(
    transport: Http1Transport, peer: Peer, size: int, end: str
) -> None:
    """60 of 60: a transport that loses it lost it in all 60."""
    text = bytes(range(250)) * (size // 250)
    for _ in range(60 if size == 200_000 else 3):
        response, wire = await peer.answered(transport, b"HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n")
        if size < WAITING_LIMIT:
            await wire.send(text)
            sent = size
        else:
            sent = await wire.send_what_fits(text)
        arrived = sent - await wire.until_still()
        assert arrived == size or size > WAITING_LIMIT
        wire.end(end)
        await turns(20)
        received, error = await body(response)
        # With a RST the provider's kernel throws away what it could not deliver yet.
        assert (arrived if end == "RST" else sent) <= len(received) <= sent
        assert received == text[: len(received)]
        assert isinstance(error, httpx.RemoteProtocolError if end == "FIN" else httpx.ReadError)
        wire.socket.close()


async def turns(amount: int) -> None:
    """The loop goes round, as it does while a reader is busy elsewhere."""
    for _ in range(amount):
        await asyncio.sleep(0)


# Back-pressure.


async def test_a_flooding_provider_is_paused_at_256_kib_and_nothing_is_lost(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, b"HTTP/1.1 200 OK\r\n\r\n")
    pattern = bytes(range(251)) * 1_000
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while sent < 64 * 1024 * KIB:
            try:
                sent += wire.socket.send(pattern[sent % 251 :])
            except BlockingIOError:
                await anyio.wait_writable(wire.socket)
        wire.fin()

    async with asyncio.TaskGroup() as group:
        flooding = group.create_task(flood())
        stalled = -1
        while stalled != sent:  # the provider could not send for 50 ms: it is blocked
            stalled = sent
            await asyncio.sleep(0.05)
        assert not flooding.done()
        count = 0
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for piece in response.stream:
            assert len(piece) <= PIECE
            assert piece == (pattern + pattern[:PIECE])[count % 251 : count % 251 + len(piece)]
            count += len(piece)
    assert count == sent >= 64 * 1024 * KIB
    await response.aclose()


async def test_what_waits_for_readers_is_bounded_in_memory(transport: Http1Transport, peer: Peer) -> None:
    streams = [await peer.answered(transport, CHUNKED) for _ in range(5)]
    flood = b"8\r\nabcdefgh\r\n" * 1_000_000
    tracemalloc.start()
    try:
        async with asyncio.TaskGroup() as group:
            floods = [group.create_task(wire.send(flood)) for _, wire in streams]
            held = -1
            while held != (now := tracemalloc.get_traced_memory()[0]):  # nothing comes in any more
                held = now
                await asyncio.sleep(0.1)
            for task in floods:
                task.cancel()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A bytearray keeps an eighth in reserve, and needs old and new while it grows.
    assert len(streams) * (WAITING_LIMIT - PIECE) < peak < (len(streams) + 1) * WAITING_LIMIT * 1.25
    for response, _ in streams:
        await response.aclose()


async def test_pieces_that_wait_together_leave_the_loop_its_turn_in_between(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, b"HTTP/1.1 200 OK\r\n\r\n")
    await wire.send(bytes(4 * PIECE))
    await turns(50)
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    seen = []
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        stream = aiter(response.stream)  # type: ignore[arg-type]
        received = 0
        while received < 4 * PIECE:
            received += len(await anext(stream))
            seen.append(rounds)
        counting.cancel()
    assert seen == sorted(set(seen))
    await response.aclose()


# The pool.


async def test_connections_are_kept_and_used_again(transport: Http1Transport, peer: Peer) -> None:
    wire = None
    for _ in range(5):
        async with asking(transport, peer) as asked:
            wire = wire or await peer.accept()
            await wire.request()
            await wire.send(OK)
            assert await body(await asked) == (b"ok", None)
    assert len(peer.wires) == 1


async def test_a_beginning_of_an_answer_that_nobody_asked_for_is_not_the_next_one_s(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, OK + b"HTTP/1.1 2")
    assert await body(response) == (b"ok", None)
    await wire.until_closed()
    await rested(transport, peer)
    assert len(peer.wires) == 2


async def test_exchanges_at_the_same_time_have_connections_of_their_own(transport: Http1Transport, peer: Peer) -> None:
    async with asking(transport, peer) as first, asking(transport, peer) as second:
        one, other = await peer.accept(), await peer.accept()
        for wire in (one, other):
            await wire.request()
        await other.send(OK.replace(b"ok", b"22"))
        await one.send(OK.replace(b"ok", b"11"))
        assert {(await body(await first))[0], (await body(await second))[0]} == {b"11", b"22"}


async def test_a_pool_is_its_transports_own(transport: Http1Transport, peer: Peer) -> None:
    await rested(transport, peer)
    async with Http1Transport() as another:
        await rested(another, peer)
        assert len(peer.wires) == 2


async def rested(transport: Http1Transport, peer: Peer) -> Wire:
    response, wire = await peer.answered(transport, OK)
    assert await body(response) == (b"ok", None)
    return wire


@pytest.mark.parametrize("news", ["bytes", "FIN", "RST"])
async def test_a_resting_connection_is_closed_at_any_news(transport: Http1Transport, peer: Peer, news: str) -> None:
    wire = await rested(transport, peer)
    if news == "bytes":
        await wire.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    else:
        wire.end(news)
    if news != "RST":
        await wire.until_closed()
    await turns(5)
    await rested(transport, peer)
    assert len(peer.wires) == 2


async def test_a_resting_connection_expires(peer: Peer) -> None:
    async with Http1Transport(idle_time=0.02) as transport:
        wire = await rested(transport, peer)
        await wire.until_closed()
        await rested(transport, peer)
        assert len(peer.wires) == 2


async def test_at_most_a_hundred_connections_rest(transport: Http1Transport, peer: Peer) -> None:
    amount = IDLE_CONNECTIONS + 1
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(transport.handle_async_request(request(peer.url))) for _ in range(amount)]
        for _ in range(amount):
            wire = await peer.accept()
            await wire.request()
            await wire.send(OK)
    for task in asked:
        assert await body(task.result()) == (b"ok", None)
    await turns(5)
    gone = [wire for wire in peer.wires if is_closed(wire)]
    assert len(gone) == 1


def is_closed(wire: Wire) -> bool:
    try:
        return wire.socket.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_closing_the_transport_closes_what_rests_and_keeps_nothing_more(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, OK)
    resting = await rested(transport, peer)
    await transport.aclose()
    await resting.until_closed()
    assert await body(response) == (b"ok", None)
    await wire.until_closed()


async def test_a_body_left_half_read_closes_its_connection(transport: Http1Transport, peer: Peer) -> None:
    response, wire = await peer.answered(transport, EVENT)
    await response.aclose()
    await wire.until_closed()
    with pytest.raises(httpx.StreamClosed):
        await anext(aiter(response.stream))  # type: ignore[arg-type]


async def test_an_answer_that_broke_on_a_reused_connection_is_not_asked_for_again(transport: Http1Transport, peer: Peer) -> None:
    """It may have cost money."""
    wire = await rested(transport, peer)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(failure(transport.handle_async_request(request(peer.url))))
        await wire.request()
        await wire.send(b"HTTP/1.1 2")
        wire.fin()
        assert isinstance(await asked, httpx.RemoteProtocolError)
    assert len(peer.wires) == 1


async def test_each_idle_connection_goes_in_its_time(peer: Peer) -> None:
    async with Http1Transport(idle_time=0.05) as transport, asking(transport, peer) as first, asking(transport, peer) as other:
        for asked in (first, other):
            wire = await peer.accept()
            await wire.request()
            await wire.send(OK)
            assert await body(await asked) == (b"ok", None)
            await wire.until_closed()
    assert len(peer.wires) == 2


# Requests.


@pytest.mark.parametrize("value", ["a\r\nevil: 1", "a\nb", "a\0b"])
async def test_a_header_that_would_smuggle_another_is_not_sent(transport: Http1Transport, peer: Peer, value: str) -> None:
    asked = httpx.Request("POST", peer.url, headers={"x-title": value}, content=b"{}")
    with pytest.raises(httpx.LocalProtocolError, match="'x-title' holds a line break"):
        await transport.handle_async_request(asked)


async def test_a_request_arrives_as_it_was_built(transport: Http1Transport, peer: Peer) -> None:
    async with asking(transport, peer, body=b'{"a":1}') as asked:
        wire = await peer.accept()
        head, _, content = (await wire.request()).partition(b"\r\n\r\n")
        await wire.send(OK)
        await body(await asked)
    assert head.split(b"\r\n")[0] == b"POST /v1 HTTP/1.1"
    assert f"Host: 127.0.0.1:{peer.port}".encode() in head.split(b"\r\n")
    assert content == b'{"a":1}'


async def test_an_answer_to_half_a_request_is_read_and_its_connection_not_used_again(transport: Http1Transport, peer: Peer) -> None:
    async with asking(transport, peer, body=bytes(10_000_000)) as asked:
        wire = await peer.accept()
        await wire.more()
        await wire.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge")
        response = await asked
    assert response.status_code == 413
    assert await body(response) == (b"large", None)
    await wire.until_closed()


async def test_an_answer_to_half_a_request_survives_the_reset_behind_it(transport: Http1Transport, peer: Peer) -> None:
    """What a server does that refuses a body: it answers and closes, with bytes unread, so its kernel resets."""
    async with asking(transport, peer, body=bytes(10_000_000)) as asked:
        wire = await peer.accept()
        await wire.more()
        await wire.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge")
        wire.socket.close()
        response = await asked
    assert response.status_code == 413
    assert await body(response) == (b"large", None)


async def test_a_request_that_nobody_reads_ends_with_its_caller(transport: Http1Transport, peer: Peer) -> None:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(transport.handle_async_request(request(peer.url, body=bytes(10_000_000))))
        wire = await peer.accept()
        await wire.more()
        asked.cancel()
    await wire.until_closed()


# Leaving, in every phase.


Leave = Callable[[asyncio.Task[Any], anyio.CancelScope], None]


def by_scope(_: asyncio.Task[Any], scope: anyio.CancelScope) -> None:
    scope.cancel()


def by_task(task: asyncio.Task[Any], _: anyio.CancelScope) -> None:
    task.cancel()


@pytest.fixture(params=[by_scope, by_task], ids=["scope", "task"])
def leave(request: pytest.FixtureRequest) -> Leave:
    return request.param  # type: ignore[no-any-return]


class Caller:
    """A task that makes one exchange and reads it, unless it is told to leave."""

    def __init__(self, group: asyncio.TaskGroup, transport: Http1Transport, url: str, read: bool = True) -> None:
        self.scope = anyio.CancelScope()
        self.paused = asyncio.Event()
        self.task = group.create_task(self._run(transport, url, read))

    async def _run(self, transport: Http1Transport, url: str, read: bool) -> None:
        with self.scope:
            response = await transport.handle_async_request(request(url, connect=None))
            try:
                if not read:
                    self.paused.set()
                    await asyncio.get_running_loop().create_future()
                async for _ in response.stream:  # type: ignore[union-attr]
                    pass
            finally:
                await response.aclose()


async def test_leaving_while_the_name_is_looked_up(transport: Http1Transport, monkeypatch: pytest.MonkeyPatch, leave: Leave) -> None:
    loop = asyncio.get_running_loop()
    looking = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        looking.set()
        await loop.create_future()

    monkeypatch.setattr(loop, "getaddrinfo", never)
    async with asyncio.TaskGroup() as group:
        caller = Caller(group, transport, "http://provider.test/v1")
        await looking.wait()
        leave(caller.task, caller.scope)


async def test_leaving_while_dialling(transport: Http1Transport, leave: Leave) -> None:
    async with full_listener() as full, asyncio.TaskGroup() as group:
        caller = Caller(group, transport, f"http://127.0.0.1:{full.port}/v1")
        await full.until_dialling(1)
        leave(caller.task, caller.scope)
        await full.until_dialling(0)


@pytest.mark.parametrize("handshake", ["silent", "dripping"])
async def test_leaving_in_the_handshake(transport: Http1Transport, leave: Leave, handshake: str) -> None:
    async with listening("https") as peer, asyncio.TaskGroup() as group:
        caller = Caller(group, transport, peer.url)
        wire = await peer.accept()
        assert (await wire.more()).startswith(b"\x16\x03")  # a ClientHello
        if handshake == "dripping":
            await wire.send(b"\x16", b"\x03", b"\x03", b"\x40", b"\x00", b"\x02")
        leave(caller.task, caller.scope)
        await wire.until_closed()


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nx: ", EVENT], ids=["before the head", "in the head", "in the body"])
async def test_leaving_while_waiting_for_the_answer(transport: Http1Transport, peer: Peer, leave: Leave, sent: bytes) -> None:
    async with asyncio.TaskGroup() as group:
        caller = Caller(group, transport, peer.url)
        wire = await peer.accept()
        await wire.request()
        await wire.send(sent)
        await turns(3)
        leave(caller.task, caller.scope)
        await wire.until_closed()


async def test_leaving_while_the_provider_is_paused(transport: Http1Transport, peer: Peer, leave: Leave) -> None:
    async with asyncio.TaskGroup() as group:
        caller = Caller(group, transport, peer.url, read=False)
        wire = await peer.accept()
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n", bytes(1 << 20))
        await caller.paused.wait()
        leave(caller.task, caller.scope)
        await wire.until_closed()


async def test_leaving_at_any_moment_leaves_nothing(transport: Http1Transport, leave: Leave) -> None:
    """Some leave while dialling, some later: the transport's fixture counts what is left."""
    reached = 0
    async with listening() as peer, asyncio.TaskGroup() as group:

        async def serve() -> None:
            nonlocal reached
            while True:
                wire = await peer.accept()
                reached += 1
                group.create_task(answer(wire))

        async def answer(wire: Wire) -> None:
            try:
                await wire.request()
                await wire.send(EVENT)
                await wire.until_closed()
            except (AssertionError, ConnectionError, TimeoutError):
                pass  # it left before
            wire.socket.close()

        serving = group.create_task(serve())
        for number in range(300):
            caller = Caller(group, transport, peer.url)
            while number % 3 and reached < number // 2:
                await asyncio.sleep(0)
            await turns(number % 12)
            leave(caller.task, caller.scope)
        await turns(50)
        serving.cancel()
    assert reached >= 140


# Connecting.


async def test_a_refused_connection_is_a_clear_error(transport: Http1Transport) -> None:
    with refusing_port() as port, pytest.raises(httpx.ConnectError, match=r"^Connection refused$"):
        await transport.handle_async_request(request(f"http://127.0.0.1:{port}/v1"))


@pytest.mark.parametrize("host", ["provider.invalid", "a" * 64 + ".test", ".invalid"])
async def test_a_name_that_leads_nowhere_is_a_clear_error(transport: Http1Transport, host: str) -> None:
    for scheme in ("http", "https"):
        with pytest.raises(httpx.ConnectError):
            await transport.handle_async_request(request(f"{scheme}://{host}/v1"))


async def test_dialling_has_a_deadline(transport: Http1Transport) -> None:
    async with full_listener() as full:
        with pytest.raises(httpx.ConnectTimeout, match="took too long"):
            await transport.handle_async_request(request(f"http://127.0.0.1:{full.port}/v1", connect=0.05))
        await full.until_dialling(0)


@pytest.mark.parametrize("dead", ["refusing", "silent"])
async def test_a_dead_ipv6_address_does_not_keep_from_the_living_one(
    transport: Http1Transport, peer: Peer, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    loop = asyncio.get_running_loop()
    original = loop.getaddrinfo
    async with full_listener() as full:
        unreachable = (socket.AF_INET6, ("::1", peer.port, 0, 0)) if dead == "refusing" else (socket.AF_INET, ("127.0.0.1", full.port))

        async def names(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
            if host != "provider.test":  # uvloop asks for each address once more
                return await original(host, port, **how)  # type: ignore[return-value]
            found = (unreachable, (socket.AF_INET, ("127.0.0.1", port)))
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address) for family, address in found]

        monkeypatch.setattr(loop, "getaddrinfo", names)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(transport.handle_async_request(request(f"http://provider.test:{peer.port}/v1")))
            wire = await peer.accept()
            await wire.request()
            await wire.send(OK)
            assert await body(await asked) == (b"ok", None)
        await full.until_dialling(0)


async def test_an_ipv6_address_can_be_written(transport: Http1Transport) -> None:
    async with listening(family=socket.AF_INET6, host="::1") as peer, asyncio.TaskGroup() as group:
        asked = group.create_task(transport.handle_async_request(request(f"http://[::1]:{peer.port}/v1")))
        wire = await peer.accept()
        assert f"Host: [::1]:{peer.port}".encode() in await wire.request()
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)


async def test_small_segments_are_not_held_back(transport: Http1Transport, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nagle's algorithm would hold a request's last segment for an answer's acknowledgement."""
    opened = []
    original = socket.socket.__init__

    def remember(self: socket.socket, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        opened.append(self)

    monkeypatch.setattr(socket.socket, "__init__", remember)
    response, wire = await peer.answered(transport, EVENT)
    ours = [each for each in opened if each.fileno() >= 0 and each.getsockname() == wire.socket.getpeername()]
    assert ours
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in ours)
    await response.aclose()


# Through `gateway.upstream`: what it makes of these.


def provider(peer: Peer) -> Provider:
    return Provider("claude", peer.url)


def exchange(transport: Http1Transport, peer: Peer) -> Exchange:
    return Exchange(transport, provider(peer), UpstreamRequest(peer.url, (), b"{}"), connect=5)


async def fetched(transport: Http1Transport, peer: Peer) -> tuple[bytes, UpstreamFailed | None]:
    received = bytearray()
    try:
        async with exchange(transport, peer) as answer:
            while (piece := await answer.read()) is not None:
                assert len(piece) <= PIECE
                received += piece
            await answer.drain()
    except UpstreamFailed as error:
        return bytes(received), error
    return bytes(received), None


async def fetching(transport: Http1Transport, peer: Peer, headers: bytes, content: bytes) -> tuple[bytes, UpstreamFailed | None]:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fetched(transport, peer))
        wire = await peer.accept()
        await wire.request()
        with suppress(ConnectionError):  # it may not wait for the rest
            await wire.send(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (headers, len(content), content))
        return await asked


async def test_one_layer_of_gzip_is_decoded(transport: Http1Transport, peer: Peer) -> None:
    text = b"data: hello\n\n" * 10_000
    assert await fetching(transport, peer, b"content-encoding: gzip\r\n", gzip.compress(text)) == (text, None)


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        (b"content-encoding: gzip, gzip\r\n", gzip.compress(gzip.compress(b"x"))),
        (b"content-encoding: gzip\r\ncontent-encoding: gzip\r\n", gzip.compress(gzip.compress(b"x"))),
        (b"content-encoding: br\r\n", b"\x0b\x00\x80x\x03"),
        (b"content-encoding: gzip\r\n", b"no gzip at all"),
    ],
    ids=["twice", "twice in two headers", "brotli", "none"],
)
async def test_any_other_coding_is_refused(transport: Http1Transport, peer: Peer, headers: bytes, content: bytes) -> None:
    text, error = await fetching(transport, peer, headers, content)
    assert text == b""
    assert error is not None
    assert error.cause.code == "stream_malformed"


async def test_a_gzip_bomb_stays_small(transport: Http1Transport, peer: Peer) -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(first_pieces(transport, peer, 100))
        wire = await peer.accept()
        await wire.request()
        tracemalloc.start()
        try:
            await wire.send(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(bomb), bomb))
            assert await reading == 100
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * 1024 * KIB


async def first_pieces(transport: Http1Transport, peer: Peer, amount: int) -> int:
    seen = 0
    async with exchange(transport, peer) as answer:
        while seen < amount and (piece := await answer.read()) is not None:
            assert len(piece) <= PIECE
            seen += 1
    return seen


@pytest.mark.parametrize("end", ["FIN", "RST"])
async def test_a_reused_connection_that_is_dead_gets_one_fresh_try(transport: Http1Transport, peer: Peer, end: str) -> None:
    wire = await rested(transport, peer)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fetched(transport, peer))
        await wire.request()
        wire.end(end)
        fresh = await peer.accept()
        await fresh.request()
        await fresh.send(OK)
        assert await asked == (b"ok", None)


async def test_a_fresh_try_is_the_last(transport: Http1Transport, peer: Peer) -> None:
    wire = await rested(transport, peer)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fetched(transport, peer))
        await wire.request()
        wire.fin()
        fresh = await peer.accept()
        await fresh.request()
        fresh.fin()
        text, error = await asked
    assert text == b""
    assert error is not None
    assert error.cause.code == "upstream_unavailable"
    assert len(peer.wires) == 2


async def test_a_broken_body_is_an_interruption_behind_what_came(transport: Http1Transport, peer: Peer) -> None:
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(fetched(transport, peer))
        wire = await peer.accept()
        await wire.request()
        await wire.send(EVENT)
        wire.fin()
        text, error = await asked
    assert text == b"abc"
    assert error is not None
    assert error.cause.code == "stream_interrupted"


class Reader:
    """Takes what comes where it comes, until a piece ends with an exclamation mark or asks for an exception."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.given: list[bytes | None] = []  # to its task

    def take(self, piece: bytes) -> bool:
        self.taken.append(piece)
        if piece.endswith(b"?"):
            raise LookupError(piece.decode())
        return not piece.endswith(b"!")

    async def read(self, transport: Http1Transport, peer: Peer) -> Exception | None:
        try:
            async with exchange(transport, peer) as answer:
                while not self.given or self.given[-1] is not None:
                    self.given.append(await answer.read(self.take))
        except (UpstreamFailed, LookupError) as error:
            return error
        return None


@asynccontextmanager
async def waiting(
    transport: Http1Transport, peer: Peer, answer: bytes = EVENT, given: bytes = b"abc"
) -> AsyncIterator[tuple[Reader, "asyncio.Task[Exception | None]", Wire]]:
    """A reader that waits for more: its task was given what came with the head, if anything did."""
    reader = Reader()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.read(transport, peer))
        wire = await peer.accept()
        await wire.request()
        await wire.send(answer)
        await until(lambda: reader.given == [given] * bool(given), "the first piece")
        yield reader, task, wire


async def test_a_waiting_reader_is_given_what_comes_where_it_comes(transport: Http1Transport, peer: Peer) -> None:
    async with waiting(transport, peer) as (reader, task, wire):
        for number, text in enumerate((b"de", b"stop!", b"fg"), 1):
            await wire.send(b"%x\r\n%b\r\n" % (len(text), text))
            await until(lambda: reader.taken[number - 1 :] == [text], f"piece {number}")  # noqa: B023 -- asked at once
        await wire.send(b"0\r\n\r\n")
        assert await task is None
    assert reader.taken == [b"de", b"stop!", b"fg"]
    assert reader.given == [b"abc", b"", None]  # "" is for the one that stopped


async def test_a_read_that_filled_the_buffer_is_the_task_s(transport: Http1Transport, peer: Peer) -> None:
    text = b"x" * (4 * PIECE)
    async with waiting(transport, peer) as (reader, task, wire):
        await wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text))
        assert await task is None
    assert sum(len(piece) for piece in [*reader.taken, *reader.given] if piece) == 3 + len(text)
    assert all(len(piece) < PIECE for piece in reader.taken)
    assert any(reader.given[1:])


async def test_what_a_reader_raises_where_it_takes_is_raised_in_its_task(transport: Http1Transport, peer: Peer) -> None:
    async with waiting(transport, peer) as (_, task, wire):
        await wire.send(b"4\r\nwhy?\r\n")
        error = await task
        await wire.until_closed()
    assert isinstance(error, LookupError)


@pytest.mark.parametrize("end", ["FIN", "RST"])
async def test_a_break_comes_behind_what_was_taken(transport: Http1Transport, peer: Peer, end: str) -> None:
    async with waiting(transport, peer) as (reader, task, wire):
        await wire.send(b"2\r\nde\r\n")
        await until(lambda: reader.taken == [b"de"], "the second piece")
        wire.end(end)
        error = await task
    assert isinstance(error, UpstreamFailed)
    assert error.cause.code == "stream_interrupted"


@pytest.mark.parametrize("end", ["FIN", "RST"])
async def test_a_break_behind_nothing_but_what_was_taken_is_an_interruption(transport: Http1Transport, peer: Peer, end: str) -> None:
    async with waiting(transport, peer, CHUNKED, given=b"") as (reader, task, wire):
        await turns(20)
        await wire.send(b"2\r\nde\r\n")
        await until(lambda: reader.taken == [b"de"], "the first piece")
        wire.end(end)
        error = await task
    assert isinstance(error, UpstreamFailed)
    assert error.cause.code == "stream_interrupted"
    assert reader.given == []


async def test_a_reader_that_leaves_takes_no_more(transport: Http1Transport, peer: Peer) -> None:
    async with waiting(transport, peer) as (reader, task, wire):
        await wire.send(b"2\r\nde\r\n")
        await until(lambda: reader.taken == [b"de"], "the second piece")
        task.cancel()
        with suppress(ConnectionError):
            await wire.send(b"1\r\nf\r\n")
        await wire.until_closed()
    assert reader.taken == [b"de"]


async def test_a_drained_answer_leaves_its_connection_for_the_next(transport: Http1Transport, peer: Peer) -> None:
    wire = None
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(fetched(transport, peer))
            wire = wire or await peer.accept()
            await wire.request()
            await wire.send(EVENT, b"0\r\n\r\n")
            assert await asked == (b"abc", None)
    assert len(peer.wires) == 1
