"""The simulator as a server: each request on a raw socket is answered with its script, faults and resets included.

A client that leaves ends its answer at once, in whatever step it is: like a provider, this server reads while it writes. Shutting
only the writing half counts as leaving.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import httptools

from gateway.play import play
from gateway.simulator import Script

LARGEST_BODY = 64 * 1024 * 1024  # bytes of one request
LINGER = 2.0  # seconds in which the peer may see our FIN and close its side
BACKLOG = 1024
PIPELINED = 16  # requests that may wait behind the one that is answered


class SimulateServer:
    """Answers what arrives at `listener` with the script that `respond` makes of a path and a body."""

    def __init__(self, listener: socket.socket, respond: Callable[[str, bytes], Script]) -> None:
        self._listener = listener
        self._respond = respond
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._server = await asyncio.start_server(self._accepted, sock=self._listener, backlog=BACKLOG)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(kind, error, trace)
        await self._server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._group.create_task(self._serve(reader, writer), name="simulated connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never got to start

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(connection.read(), name="simulated connection: reading")
                await self._converse(connection, writer)
                raise _Over
        except* (_Over, ConnectionError, httptools.HttpParserError):
            pass  # said all, or left, or no HTTP: in every case there is nobody to tell
        finally:
            writer.transport.abort()

    async def _converse(self, connection: "_Connection", writer: asyncio.StreamWriter) -> None:
        while True:
            request = await connection.request()
            script = self._respond(request.path, bytes(request.body))
            if request.method == "HEAD":
                script = replace(script, headers=(*script.headers, ("content-length", "0")), steps=())
            if not await play(script, writer) or not request.keep_alive:
                break
        if not writer.is_closing():
            writer.write_eof()
            await asyncio.sleep(LINGER)


class _Over(Exception):
    """The connection's last word is said."""


class _Request:
    def __init__(self) -> None:
        self.path = ""
        self.method = ""
        self.keep_alive = True
        self.body = bytearray()


class _Connection:
    """Reads all the time, so that a peer's leaving is seen while its answer is played. The `on_…` are the parser's callbacks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = httptools.HttpRequestParser(self)
        self._coming = _Request()
        self._requests: deque[_Request] = deque()
        self._changed = asyncio.Event()
        self._idle = True

    async def read(self) -> None:
        """Until the peer leaves, which is a `ConnectionError`."""
        while data := await self._reader.read(65536):
            self._parser.feed_data(data)
        raise ConnectionResetError("The peer closed its side.")

    async def request(self) -> _Request:
        """The next whole one."""
        self._idle = True
        while not self._requests:
            self._changed.clear()
            await self._changed.wait()
        self._idle = False
        return self._requests.popleft()

    def on_message_begin(self) -> None:
        self._coming = _Request()

    def on_url(self, url: bytes) -> None:
        self._coming.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect" and value.lower() == b"100-continue" and self._idle:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._coming.body += body
        if len(self._coming.body) > LARGEST_BODY:
            raise ConnectionAbortedError("The request is too large.")

    def on_message_complete(self) -> None:
        self._coming.method = self._parser.get_method().decode("latin-1")
        self._coming.keep_alive = self._parser.should_keep_alive()
        self._requests.append(self._coming)
        if len(self._requests) > PIPELINED:
            raise ConnectionAbortedError("Too many requests wait behind each other.")
        self._changed.set()


