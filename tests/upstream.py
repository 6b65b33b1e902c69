"""The tests' provider: real sockets that play scripts, and say when the gateway came, what it asked and when it left.

    async with ScriptedUpstream(lambda request: script) as upstream:
        ...  # point a provider at upstream.url
        request = await upstream.request()
        await request.until_sent(100)
        ...  # the client leaves
        closed = await request.connection.until_closed()

Everything happens on the test's own loop (asyncio's or uvloop), and every `until_…` has a deadline. Linux only: a leaving peer is
seen by EPOLLRDHUP, because only that reports a FIN or a RST while nothing reads, and behind bytes that nobody has read yet.
"""

import asyncio
import os
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from gateway.play import play
from gateway.simulator import Script, Send, Step, Wait

Answer = Script | bytes
Respond = Callable[["Request"], Answer]
DEADLINE = 5.0


class Bell:
    """Wakes whoever waits for a condition each time something has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def ring(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
        try:
            async with asyncio.timeout(deadline):
                while not holds():
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"{what}: not within {deadline} s") from None


@dataclass(eq=False)
class Connection:
    """One TCP connection. Times are `time.monotonic`'s; uvloop's clock only knows milliseconds."""

    bell: Bell
    opened: float
    closed: float | None = None
    """When the gateway's side closed it, by FIN or RST; or when our `Reset` ended it for both."""
    requests: "list[Request]" = field(default_factory=list)

    async def until_closed(self, deadline: float = DEADLINE) -> float:
        await self.bell.until(lambda: self.closed is not None, "the gateway closes its connection", deadline)
        assert self.closed is not None
        return self.closed


@dataclass(eq=False)
class Request:
    """One request of the gateway, whole, and how much of its answer is on the way."""

    method: str
    path: str
    headers: dict[str, str]
    """Lower-cased names; repeated fields are joined by a comma."""
    body: bytes
    arrived: float
    connection: Connection
    sent: int = 0
    """Bytes of the answer that the kernel has taken, headers and chunk framing included."""
    answered: bool = False
    """The whole script has been played."""

    @property
    def closed(self) -> float | None:
        return self.connection.closed

    async def until_sent(self, amount: int, deadline: float = DEADLINE) -> None:
        await self.connection.bell.until(lambda: self.sent >= amount, f"{amount} bytes are sent", deadline)

    async def until_answered(self, deadline: float = DEADLINE) -> None:
        await self.connection.bell.until(lambda: self.answered, "the answer is played to its end", deadline)

    async def until_closed(self, deadline: float = DEADLINE) -> float:
        return await self.connection.until_closed(deadline)


class ScriptedUpstream:
    """Answers each request with the script, or the bytes, that `respond` gives for it.

    Bytes are a whole HTTP response: they are sent as they are, and then our side is closed. `reading` is set; cleared, new
    connections are accepted and nothing is read from them until it is set again. An exception in `respond` fails the test.
    After our FIN a connection is kept until the gateway closes its side too, so that `closed` always tells what the gateway did.
    """

    def __init__(self, respond: Respond) -> None:
        self.requests: list[Request] = []
        self.connections: list[Connection] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._respond = respond
        self._bell = Bell()
        self._gone = select.epoll()
        self._leaving: dict[int, Callable[[], None]] = {}
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def silent(self) -> list[Connection]:
        """Connections on which no whole request has come."""
        return [connection for connection in self.connections if not connection.requests]

    @property
    def open(self) -> list[Connection]:
        """Connections which the gateway still holds."""
        return [connection for connection in self.connections if connection.closed is None]

    async def request(self, number: int = 0, deadline: float = DEADLINE) -> Request:
        """The request of that number, from 0, once it is there."""
        await self._bell.until(lambda: len(self.requests) > number, f"request {number} arrives", deadline)
        return self.requests[number]

    async def connection(self, number: int = 0, deadline: float = DEADLINE) -> Connection:
        await self._bell.until(lambda: len(self.connections) > number, f"connection {number} is accepted", deadline)
        return self.connections[number]

    async def until_all_closed(self, deadline: float = DEADLINE) -> None:
        await self._bell.until(lambda: not self.open, "the gateway closes all its connections", deadline)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        asyncio.get_running_loop().add_reader(self._gone.fileno(), self._notice)
        # The limit is that of one header line; a request's body is read in pieces.
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=1 << 20, backlog=1024)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
            await self._server.wait_closed()
        finally:
            asyncio.get_running_loop().remove_reader(self._gone.fileno())
            self._gone.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._bell, time.monotonic())
        self.connections.append(connection)
        task = self._group.create_task(self._serve(_Conversation(connection, reader, writer)), name="scripted upstream")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never got to start
        self._bell.ring()

    def _notice(self) -> None:
        for number, _ in self._gone.poll(0):
            if number in self._leaving:
                self._leaving[number]()

    async def _serve(self, conversation: "_Conversation") -> None:
        task = asyncio.current_task()
        assert task is not None

        def left() -> None:
            conversation.end()
            # A request that came together with the FIN is read and counted all the same: the reader ends by itself.
            if not conversation.listening:
                task.cancel()

        # A descriptor of our own: the transport closes its own at a RST, and with it the news would be lost.
        number = os.dup(conversation.writer.get_extra_info("socket").fileno())
        self._leaving[number] = left
        self._gone.register(number, select.EPOLLRDHUP | select.EPOLLONESHOT)
        try:
            await self._converse(conversation)
        except (ConnectionError, asyncio.IncompleteReadError):
            conversation.end()
        finally:
            conversation.writer.transport.abort()  # here: a StreamWriter collected before that is a warning
            del self._leaving[number]
            self._gone.unregister(number)
            os.close(number)

    async def _converse(self, conversation: "_Conversation") -> None:
        if not self.reading.is_set():
            conversation.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport does both
            await self.reading.wait()
            conversation.writer.transport.resume_reading()  # type: ignore[attr-defined]
        usable = True
        while usable:
            request = await conversation.read_request()
            self.requests.append(request)
            self._bell.ring()
            if request.closed is not None:
                return
            usable = await conversation.answer(request, self._respond(request))
        if not conversation.reset:
            await asyncio.get_running_loop().create_future()  # until the gateway closes: `left` cancels


class _Conversation:
    """One connection's reading and writing."""

    def __init__(self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection = connection
        self.listening = False
        self.reset = False
        self.writer = _CountingWriter(writer, reader)
        self._reader = reader

    def end(self) -> None:
        if self.connection.closed is None:
            self.connection.closed = time.monotonic()
            self.connection.bell.ring()

    async def read_request(self) -> Request:
        self.listening = True
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head[:-4].split("\r\n")
        method, path, _ = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        assert "transfer-encoding" not in headers, "the gateway knows the length of what it sends"
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        self.listening = False
        request = Request(method, path, headers, body, time.monotonic(), self.connection)
        self.connection.requests.append(request)
        return request

    async def answer(self, request: Request, answer: Answer) -> bool:
        self.writer.request = request
        if isinstance(answer, bytes):
            self.writer.transport.set_write_buffer_limits(high=0)
            self.writer.write(answer)
            await self.writer.drain()
            usable = False
        else:
            usable = await play(answer, self.writer)
        request.answered = True
        self.reset = self.writer.is_closing()
        if self.reset:
            self.end()
        elif not usable:
            self.writer.write_eof()
        self.connection.bell.ring()
        return usable


class _CountingWriter(asyncio.StreamWriter):
    """Counts what `drain` has seen leave for the kernel. One for a connection: a forgotten StreamWriter closes its transport."""

    request: Request

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        super().__init__(writer.transport, writer.transport.get_protocol(), reader, asyncio.get_running_loop())
        self._original = writer
        self._written = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += len(data)
        super().write(data)

    async def drain(self) -> None:
        await super().drain()
        self.request.sent, self._written = self.request.sent + self._written, 0
        self.request.connection.bell.ring()


def one_after_another(*answers: Answer) -> Respond:
    """The first answer to the first request, and so on; the last one repeats."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def split(body: bytes, every: int, wait: float = 0.002) -> tuple[Step, ...]:
    """The bytes in pieces of that size with a pause between them, so that each is a network read of its own."""
    steps: list[Step] = []
    for start in range(0, len(body), every):
        steps += [Wait(wait), Send(body[start : start + every])]
    return tuple(steps[1:])


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port at which every connection is refused, and which nobody else can be given meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@dataclass(frozen=True, slots=True)
class FullListener:
    port: int

    def dialling(self) -> int:
        """How many sockets are trying to connect to it (state SYN_SENT), the kernel says."""
        with open("/proc/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table][1:]
        return sum(row[3] == "02" and row[2].endswith(f":{self.port:04X}") for row in rows)

    async def until_dialling(self, amount: int, deadline: float = DEADLINE) -> None:
        """Polls, as the kernel tells of no connection that it drops; for 0, until nobody dials any more."""
        async with asyncio.timeout(deadline):
            while self.dialling() != amount:
                await asyncio.sleep(0.0005)


@asynccontextmanager
async def full_listener() -> AsyncIterator[FullListener]:
    """A listener whose backlog is full and that never accepts: whoever connects to it dials for ever."""
    loop = asyncio.get_running_loop()
    fillers: list[socket.socket] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        try:
            for _ in range(16):
                filler = socket.socket()
                fillers.append(filler)
                filler.setblocking(False)
                async with asyncio.timeout(0.1):
                    await loop.sock_connect(filler, address)
        except TimeoutError:
            fillers.pop().close()
        else:
            raise RuntimeError("the kernel accepts more connections than the backlog says")
        try:
            yield FullListener(address[1])
        finally:
            for filler in fillers:
                filler.close()
