"""An httpx transport made for streams: the connections of one provider, dialled, kept, used again (`http1_connection.py` is one).

uvloop's `create_connection` knows no happy eyeballs: aiohappyeyeballs finds the socket.
"""

import asyncio
import math
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable
from typing import NamedTuple

import aiohappyeyeballs
import anyio
import httpx

from gateway.http1_connection import PIECE, Connection, Fields, Pool, Take, reason
from gateway.tls import Tls

IDLE_CONNECTIONS = 100  # kept per provider,
IDLE_TIME = 30.0  # seconds at most
ATTEMPT_DELAY = 0.25  # seconds between the addresses of one name (RFC 8305)

DEAD = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)  # what a connection says that has died

_UNWRITABLE = re.compile(rb"[\r\n\0]")

Origin = tuple[str, str, int]
"""Scheme, host and port."""


class Wire(NamedTuple):
    """A request as it is sent."""

    origin: Origin
    head: bytes
    body: bytes


class Http1Transport(httpx.AsyncBaseTransport):
    """One provider's connections, for requests whose body is bytes. Raises httpx's exceptions.

    Honours `extensions["timeout"]["connect"]`: seconds, from the look-up of the name to the end of the TLS handshake.
    `exchange` is the same without httpx's `Request` and `Response`, whose making a short answer would feel.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None, *, idle_time: float = IDLE_TIME) -> None:
        self._ssl = ssl_context
        self._idle_time = idle_time
        self._idle: dict[Origin, Pool] = {}
        self._expiry: asyncio.TimerHandle | None = None  # one timer for all that are idle
        self._closed = False
        # One for all: a loop fills it and has it read before it turns to another connection.
        self._buffer = memoryview(bytearray(PIECE))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        head = head_lines(request.method, request.url, request.headers) + b"\r\n"
        wire = Wire(origin_of(request.url), head, await request.aread())
        connect = request.extensions.get("timeout", {}).get("connect")
        status, fields, body = await self.exchange(wire, connect)
        return httpx.Response(status, headers=fields, stream=body)

    async def exchange(self, wire: Wire, connect: float | None) -> tuple[int, Fields, "Body"]:
        """Status, header fields and body of the answer. `connect` in seconds.

        A reused connection may have died unseen: if no byte of an answer came, the request is sent once more, on a fresh one.
        """
        idle = self._idle.get(wire.origin)
        reused = idle.popitem()[0] if idle else None  # the one used last: the longest idle may grow old and go
        while True:
            connection = reused or await self._dial(wire.origin, connect)
            try:
                connection.begin(wire.head, wire.body)
                status, fields = await connection.head()
                return status, fields, Body(self, wire.origin, connection)
            except BaseException as error:  # a caller that leaves, too: nobody will read what comes now
                connection.abort()
                if reused is None or connection.heard or not isinstance(error, DEAD):
                    raise
            reused = None

    async def aclose(self) -> None:
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for idle in self._idle.values():
            for connection in list(idle):
                connection.abort()

    def put_back(self, origin: Origin, connection: Connection) -> None:
        """A connection after its exchange: kept if it may carry another, else aborted."""
        idle = self._idle.setdefault(origin, {})
        if self._closed or not connection.reusable or len(idle) >= IDLE_CONNECTIONS:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        idle[connection] = loop.time() + self._idle_time
        connection.rest(idle)
        if self._expiry is None:
            self._expiry = loop.call_later(self._idle_time, self._expire)

    def _expire(self) -> None:
        """Those that nobody wanted for too long go; the timer is set for the next one."""
        loop, soonest = asyncio.get_running_loop(), math.inf
        for idle in self._idle.values():
            for connection, end in list(idle.items()):
                if end > loop.time():
                    soonest = min(soonest, end)
                    break  # they are in the order in which they came
                connection.abort()
        self._expiry = None if soonest == math.inf else loop.call_later(soonest - loop.time(), self._expire)

    async def _dial(self, origin: Origin, connect: float | None) -> Connection:
        try:
            with anyio.fail_after(connect):
                return await self._connect(*origin)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("connecting took too long") from error
        except (OSError, ValueError) as error:  # ValueError: a name that neither DNS nor TLS can write
            raise httpx.ConnectError(reason(error)) from error

    async def _connect(self, scheme: str, host: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        tls = None
        if scheme == "https":
            self._ssl = self._ssl or httpx.create_ssl_context(trust_env=False)
            tls = Tls(self._ssl, host)
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=ATTEMPT_DELAY)
        connection = Connection(self._buffer, tls)
        try:
            await loop.create_connection(lambda: connection, sock=found)
            await connection.secured()
        except BaseException:  # a caller that leaves, too: no half-made connection is left
            connection.abort()
            found.close()
            raise
        return connection


class Body(httpx.AsyncByteStream):
    """An iterator, not a generator: left alone it has nothing to finish in another task."""

    def __init__(self, transport: Http1Transport, origin: Origin, connection: Connection) -> None:
        self._transport, self._origin, self._connection = transport, origin, connection
        self._closed = False

    @property
    def complete(self) -> bool:
        """All of it has been handed out."""
        return self._connection.spent

    @property
    def taken(self) -> bool:
        """Some of it a `Take` was given."""
        return self._connection.taken

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.read()
        if piece is None:
            raise StopAsyncIteration
        return piece

    def read(self, take: Take | None = None) -> Awaitable[bytes | None]:
        """The next piece, ≤ 64 KiB; None at the end.

        While there is none, `take` is given what comes, where it comes; b"" once it returned false. What it raises is raised here.
        """
        if self._closed:  # the connection may be another's by now
            raise httpx.StreamClosed
        return self._connection.read(take)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.put_back(self._origin, self._connection)


def origin_of(url: httpx.URL) -> Origin:
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


def head_lines(method: str, url: httpx.URL, headers: httpx.Headers) -> bytes:
    """A head but for the empty line at its end; `httpx.LocalProtocolError` for a value that would smuggle another header."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), url.raw_path)]
    for name, value in headers.raw:
        line = b"%b: %b" % (name, value)
        if _UNWRITABLE.search(line):
            raise httpx.LocalProtocolError(f"the value of the request's header {name.decode('latin-1')!r} holds a line break")
        lines.append(line + b"\r\n")
    return b"".join(lines)
