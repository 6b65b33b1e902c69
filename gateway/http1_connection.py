"""One connection of the transport's to a provider: HTTP/1.1 on asyncio with httptools' parser
(https://www.rfc-editor.org/rfc/rfc9112).

What came since the reader last looked is handed over as one piece, and to a reader that waits in the moment it comes: to wake a task
for each delta costs more than the delta. Bytes come before errors: what was received is read before the failure that followed it is
raised, also while the reader was paused. Leaving aborts the socket at once, in any phase.

Deliberate oddities:
* httptools fires header-complete *and* message-complete for a 1xx, has no limit on header bytes, tells trailers like headers, and
  has no call for the end of a connection: interim answers are skipped, bytes counted and the end judged from the headers, here.
* A `BufferedProtocol`: the loops' own reads of 256 KB would double what may wait for the reader.
* TLS by hand (`tls.py`): the loops' own keeps too much, and throws away what it has received.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any

import httptools
import httpx

from gateway.tls import Tls, tls_failure

HEAD_LIMIT = 64 * 1024  # bytes of a response's head, as nginx and most servers have it; and of what else is no body
WAITING_LIMIT = 256 * 1024  # bytes waiting for the reader: then the provider feels back-pressure
PIECE = 64 * 1024  # bytes read from the socket, and handed out, at once

Fields = list[tuple[bytes, bytes]]
"""Header fields, their names in lower case."""

Take = Callable[[bytes], bool]
"""Takes a piece of a body where it arrives, without waiting; false when the reader's task has to go on itself."""


class Connection(asyncio.BufferedProtocol):
    """One connection, one exchange at a time. A new one is in its first: some servers refuse before they are asked."""

    def __init__(self, buffer: memoryview, tls: Tls | None) -> None:
        self._loop = asyncio.get_running_loop()  # kept: to ask for it is a system call on Python 3.11
        self._transport: asyncio.Transport | None = None
        self._buffer = buffer
        self._tls = tls
        self._waiter: asyncio.Future[Exception | bool] | None = None  # its result: whether a `Take` has stopped, or what it raised
        self._take: Take | None = None  # there while a reader waits that has one
        self._pool: Pool | None = None  # there while it rests
        self._spoiled = False  # bytes came that nobody asked for, or the peer will close
        self._ended = False  # aborted, lost, or the peer sent its FIN
        self._parser: Any = httptools.HttpResponseParser(self)
        # Old proxies pad the sizes of chunks to a fixed width.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        self._begin_exchange()

    def _begin_exchange(self) -> None:
        self._headers: Fields = []
        self._status: int | None = None
        self._until_close = False  # neither length nor chunks: the body ends with the connection
        self._bodiless = 0  # bytes since the last one of the body
        self._waiting = bytearray()
        self._more = False  # the last piece was not all that waited
        self.taken = False  # a `Take` was given something
        self._paused = False
        self._complete = False
        self._error: httpx.HTTPError | None = None

    # What the transport does with it.

    @property
    def reusable(self) -> bool:
        done = self._complete and not (self._spoiled or self._ended or self._until_close or self._waiting)
        # A peer that answered before it read the request may never read the rest of it.
        return done and self._transport is not None and not self._transport.get_write_buffer_size()

    @property
    def spent(self) -> bool:
        return self._complete and not self._waiting

    @property
    def heard(self) -> bool:
        return self._status is not None or self._bodiless > 0

    async def secured(self) -> None:
        while self._tls is not None and not self._tls.ready:
            await self._news()

    def begin(self, head: bytes, body: bytes) -> None:
        if self._pool is not None:
            self._pool = None
            self._begin_exchange()
        if len(body) <= PIECE:
            self._write(head + body)  # one segment
        else:
            self._write(head)
            self._write(body)

    async def head(self) -> tuple[int, Fields]:
        while self._status is None:
            await self._news()
        return self._status, self._headers

    async def read(self, take: Take | None) -> bytes | None:
        """What came since the last time, ≤ 64 KiB; None at the end; b"" once `take` stopped."""
        if self._more:
            await asyncio.sleep(0)  # nobody gets all that may wait in one turn of the loop
        while not self._waiting:
            if self._complete:
                return None
            self._take = take
            try:
                stopped = await self._news()
            finally:
                self._take = None
            if isinstance(stopped, Exception):
                raise stopped
            if stopped:
                return b""
        if len(self._waiting) <= PIECE:
            piece = bytes(self._waiting)
            self._waiting.clear()
        else:
            piece = bytes(self._waiting[:PIECE])
            del self._waiting[:PIECE]
        self._more = bool(self._waiting)
        if self._paused and len(self._waiting) <= PIECE and self._transport is not None and not self._ended:
            self._paused = False
            self._transport.resume_reading()
        return piece

    def rest(self, pool: "Pool") -> None:
        """In the pool, which it leaves if it ends there."""
        self._pool = pool

    def abort(self) -> None:
        self._ended = True
        if self._transport is not None:
            self._transport.abort()
        if self._pool is not None:
            self._pool.pop(self, None)
            self._pool = None

    def _news(self) -> "asyncio.Future[Exception | bool]":
        """Comes when something changes; raises what went wrong."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _tell(self, stopped: Exception | bool = False) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(stopped)

    def _hand_over(self, take: Take) -> None:
        """What has come, to a reader that takes it here."""
        piece = bytes(self._waiting)
        self._waiting.clear()
        self.taken = True
        try:
            going = take(piece)
        except Exception as error:  # it is the reader's, whose task is told
            self._tell(error)
        else:
            if not going or self._complete or self._error is not None:
                self._tell(not going)

    def _write(self, plain: bytes) -> None:
        if self._transport is None or self._ended:
            return  # the reader hears of it
        if self._tls is not None:
            self._tls.encrypt(plain)
            plain = self._tls.outgoing()
        self._transport.write(plain)

    # asyncio's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport by type
        if self._tls is not None:
            self._decrypt(self._tls, b"")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        received = self._buffer[:nbytes]
        if self._tls is None:
            self._parse(received)
        else:
            self._decrypt(self._tls, received)
        if len(self._waiting) > WAITING_LIMIT - PIECE and not self._paused and self._transport is not None and not self._ended:
            self._paused = True
            self._transport.pause_reading()
        # A read that filled the buffer is one of a flood: the task takes that, and gives others their turn.
        if self._take is not None and self._waiting and nbytes < PIECE and self._waiter is not None and not self._waiter.done():
            self._hand_over(self._take)
        else:
            self._tell()

    def eof_received(self) -> bool:
        self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._transport = self._parser = None  # the parser points back at its callbacks

    def _decrypt(self, tls: Tls, received: bytes | memoryview) -> None:
        try:
            for plain in tls.decrypt(received):
                self._parse(plain)
        except ssl.SSLError as error:
            self._fail(httpx.ReadError(reason(error)) if tls.ready else httpx.ConnectError(reason(error)))
        outgoing = tls.outgoing()
        if outgoing and self._transport is not None and not self._ended:
            self._transport.write(outgoing)
        if tls.ended:
            self._end(None)

    def _parse(self, received: bytes | memoryview) -> None:
        if self._pool is not None:
            self.abort()
            return
        self._bodiless += len(received)
        try:
            self._parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx.RemoteProtocolError(f"the answer is no HTTP/1.1: {error}"))
        if self._bodiless > HEAD_LIMIT:
            what = "the answer's head is larger than" if self._status is None else "something that is no body is larger than"
            self._fail(httpx.RemoteProtocolError(f"{what} {HEAD_LIMIT // 1024} KiB"))

    def _end(self, error: Exception | None) -> None:
        if error is None and self._until_close and self._error is None:
            self._complete = True
        elif self._tls is not None and not self._tls.ready:
            self._fail(httpx.ConnectError(reason(error) if error else "the connection closed in the TLS handshake"))
        elif error is not None:
            self._fail(httpx.ReadError(reason(error)))
        elif self._status is not None:
            self._fail(httpx.RemoteProtocolError("the connection closed inside the body"))
        else:
            self._fail(httpx.RemoteProtocolError("the connection closed " + ("inside the head" if self.heard else "without an answer")))
        self.abort()
        self._tell()

    def _fail(self, error: httpx.HTTPError) -> None:
        """A complete answer stays one, whatever comes behind it; of several failures the first counts."""
        self._spoiled = True
        if not self._complete and self._error is None:
            self._error = error
            self.abort()

    # httptools' callbacks. Nothing behind a complete answer, and no trailer, may change it.

    def on_message_begin(self) -> None:
        if self._complete:  # the parser is kept, and would make the next exchange's answer of it
            self._spoiled = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._status is not None:
            self._spoiled = True
        elif status == 101 or status < 100:
            self._fail(httpx.RemoteProtocolError(f"the answer's status is {status}, which nobody asked for"))
        elif status < 200:
            self._headers = []
        else:
            self._take_head(status)

    def _take_head(self, status: int) -> None:
        size, codings, sized = 0, b"", status in (204, 304)
        for name, value in self._headers:
            size += len(name) + len(value)
            if name == b"content-length":
                sized = True
            elif name == b"transfer-encoding":
                codings += b"," + value.lower()
        chunked = {coding.strip() for coding in codings.split(b",")} - {b"", b"identity"}
        if size > HEAD_LIMIT:
            self._fail(httpx.RemoteProtocolError(f"the answer's head is larger than {HEAD_LIMIT // 1024} KiB"))
        elif chunked - {b"chunked"}:
            self._fail(httpx.RemoteProtocolError("the answer has a transfer-encoding that nobody asked for"))
        else:
            self._until_close = not (chunked or sized)
            self._status = status

    def on_body(self, body: bytes) -> None:
        if self._status is not None and not self._complete:
            self._bodiless = 0
            self._waiting += body

    def on_message_complete(self) -> None:
        if self._status is not None and not self._until_close:
            self._complete = True
            self._spoiled = self._spoiled or not self._parser.should_keep_alive()


Pool = dict[Connection, float]
"""Connections that rest, in the order in which they came; until when, by the loop's clock."""


def reason(error: Exception) -> str:
    """Short, and without the addresses that asyncio writes into its messages."""
    if isinstance(error, ssl.SSLError):
        return tls_failure(error)
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
