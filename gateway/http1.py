"""An httpx transport made for streams: HTTP/1.1 on asyncio with httptools' parser (https://www.rfc-editor.org/rfc/rfc9112).

What came since the reader last looked is handed over as one piece. Bytes come before errors: what was received is read before
the failure that followed it is raised, also while the reader was paused. Leaving aborts the socket at once, in any phase.

Deliberate oddities:
* httptools fires header-complete *and* message-complete for a 1xx, has no limit on header bytes, and no call for the end of
  a connection: interim answers are skipped, bytes counted and the end judged from the headers, here.
* uvloop's `create_connection` knows no happy eyeballs: aiohappyeyeballs finds the socket.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohappyeyeballs
import anyio
import httptools
import httpx

HEAD_LIMIT = 64 * 1024  # bytes of a response's head, as nginx and most servers have it
PAUSE_ABOVE = 256 * 1024  # bytes waiting for the reader: then the provider feels back-pressure
PIECE = 64 * 1024  # bytes handed out at once
IDLE_CONNECTIONS = 100  # kept per provider,
IDLE_TIME = 30.0  # seconds at most
ATTEMPT_DELAY = 0.25  # seconds between the addresses of one name (RFC 8305)

Origin = tuple[str, str, int]


class Http1Transport(httpx.AsyncBaseTransport):
    """One provider's connections. Honours `extensions["timeout"]["connect"]` (seconds) and `extensions["trace"]`
    (`connection.connect_tcp.started`: the connection is not a reused one). Raises httpx's exceptions."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl = ssl_context
        self._idle: dict[Origin, deque[_Connection]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        connection = self._reuse(origin) or await self._dial(origin, request.extensions)
        try:
            connection.begin(_head(request) + await request.aread())
            status, headers = await connection.head()
        except BaseException:
            connection.abort()
            raise
        return httpx.Response(status, headers=headers, stream=_Body(self, origin, connection))

    async def aclose(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop().abort()

    def put_back(self, origin: Origin, connection: "_Connection") -> None:
        """A connection whose answer is complete: kept if it may carry another, else aborted."""
        idle = self._idle.setdefault(origin, deque())
        if connection.reusable and len(idle) < IDLE_CONNECTIONS:
            connection.rest(idle)
        else:
            connection.abort()

    def _reuse(self, origin: Origin) -> "_Connection | None":
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            connection.wake()
            if connection.reusable:
                return connection
            connection.abort()
        return None

    async def _dial(self, origin: Origin, extensions: Any) -> "_Connection":
        trace: Callable[[str, Any], Awaitable[None]] | None = extensions.get("trace")
        if trace is not None:
            await trace("connection.connect_tcp.started", {})
        try:
            with anyio.fail_after(extensions.get("timeout", {}).get("connect")):
                return await self._connect(*origin)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("connecting took too long") from error
        except (OSError, ssl.SSLError) as error:
            raise httpx.ConnectError(str(error) or type(error).__name__) from error

    async def _connect(self, scheme: str, host: str, port: int) -> "_Connection":
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=1)  # socket.SOCK_STREAM
        found = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=ATTEMPT_DELAY)
        try:
            if scheme == "https":
                context = self._ssl or ssl.create_default_context()
                _, connection = await loop.create_connection(_Connection, sock=found, ssl=context, server_hostname=host)
            else:
                _, connection = await loop.create_connection(_Connection, sock=found)
        except BaseException:
            found.close()
            raise
        return connection


class _Body(httpx.AsyncByteStream):
    """An iterator, not a generator: left alone it has nothing to finish in another task."""

    def __init__(self, transport: Http1Transport, origin: Origin, connection: "_Connection") -> None:
        self._transport, self._origin, self._connection = transport, origin, connection
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._connection.read()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.put_back(self._origin, self._connection)


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._busy = False  # an exchange is under way
        self._spoiled = False  # bytes came that nobody asked for
        self._ended = False  # the peer sent its FIN, or the connection is lost
        self._reset_exchange()

    def _reset_exchange(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._status: int | None = None
        self._until_close = False  # neither length nor chunks: the body ends with the connection
        self._pieces: deque[bytes] = deque()
        self._waiting = 0  # bytes in pieces
        self._paused = False
        self._complete = False
        self._error: Exception | None = None

    # what the transport does with it

    @property
    def reusable(self) -> bool:
        return self._complete and self._error is None and not (self._spoiled or self._ended or self._until_close or self._waiting)

    def begin(self, request: bytes) -> None:
        assert self._transport is not None
        self._reset_exchange()
        self._busy = True
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        while self._status is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._status, self._headers

    async def read(self) -> bytes:
        """What came since the last time, ≤ 64 KiB; b"" at the end."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._complete:
                return b""
            await self._wait()
        piece = self._take()
        self._waiting -= len(piece)
        if self._paused and self._waiting <= PIECE:
            self._paused = False
            if self._transport is not None and not self._ended:
                self._transport.resume_reading()
        return piece

    def _take(self) -> bytes:
        pieces = self._pieces
        first = pieces.popleft()
        if len(first) >= PIECE or not pieces:
            if len(first) > PIECE:
                pieces.appendleft(first[PIECE:])
            return first[:PIECE]
        taken, size = [first], len(first)
        while pieces and size + len(pieces[0]) <= PIECE:
            taken.append(pieces.popleft())
            size += len(taken[-1])
        return b"".join(taken)

    def rest(self, idle: "deque[_Connection]") -> None:
        """Into the pool, for a while."""
        self._busy = False

        def expire() -> None:
            idle.remove(self)
            self.abort()

        self._expiry = asyncio.get_running_loop().call_later(IDLE_TIME, expire)
        idle.append(self)

    def wake(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport by type

    def data_received(self, data: bytes) -> None:
        if not self._busy or self._complete:
            self._spoiled = True
            if not self._busy:
                self.abort()
            return
        if self._status is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._misread(error)
        if self._status is None and self._head_bytes > HEAD_LIMIT:
            self._fail(httpx.RemoteProtocolError(f"the answer's head is larger than {HEAD_LIMIT // 1024} KiB"))
        self._tell()

    def eof_received(self) -> bool:
        self._end(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        self._transport = None

    def _end(self, exc: Exception | None) -> None:
        self._ended = True
        if self._busy and not self._complete and self._error is None:
            if exc is None and self._status is not None and self._until_close:
                self._complete = True
            elif self._status is None:
                self._error = httpx.RemoteProtocolError("the connection closed without an answer") if exc is None else _read_error(exc)
            else:
                self._error = httpx.RemoteProtocolError("the connection closed inside the body") if exc is None else _read_error(exc)
        self._tell()

    def _misread(self, error: Exception) -> None:
        if self._complete:
            self._spoiled = True  # bytes behind a complete answer: not this answer's fault
        else:
            self._fail(httpx.RemoteProtocolError(f"the answer is no HTTP/1.1: {error}"))

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self.abort()

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete:
            self._spoiled = True
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._headers = []
            if status == 101:
                self._fail(httpx.RemoteProtocolError("the answer switches protocols, which nobody asked for"))
            return
        names = {name for name, _ in self._headers}
        codings = [value.strip().lower() for name, value in self._headers if name == b"transfer-encoding"]
        bodiless = status in (204, 304)
        self._until_close = not bodiless and b"content-length" not in names and not (codings and codings[-1].endswith(b"chunked"))
        self._status = status

    def on_body(self, body: bytes) -> None:
        if self._complete or self._status is None:
            return
        self._pieces.append(body)
        self._waiting += len(body)
        if self._waiting > PAUSE_ABOVE and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._status is not None and not self._until_close:
            self._complete = True
            if not self._parser.should_keep_alive():
                self._spoiled = True


def _read_error(error: Exception) -> httpx.ReadError:
    return httpx.ReadError(str(error) or type(error).__name__)


def _head(request: httpx.Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b" % field for field in request.headers.raw]
    return b"\r\n".join([*lines, b"", b""])
