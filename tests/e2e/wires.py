"""A provider played by hand, one call at a time: a listener, and the wires that the gateway's transport opens to it.

    async with listening() as peer, asking(transport, peer) as asked:
        wire = await peer.accept()
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\\r\\n...")
        response = await asked

Plain sockets on the test's own loop (asyncio's or uvloop's): nothing here buffers, parses or closes on its own.
"""

import asyncio
import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.waiting import until

DEADLINE = 5.0


@dataclass
class Wire:
    """One connection, the provider's side."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)

    async def request(self) -> bytes:
        """One whole request that has a content-length."""
        async with asyncio.timeout(DEADLINE):
            while b"\r\n\r\n" not in self.received:
                assert await self.more(), "the connection ended before a request came"
            head, _, _ = bytes(self.received).partition(b"\r\n\r\n")
            fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
            size = len(head) + 4 + sum(int(value) for name, _, value in fields if name.lower() == b"content-length")
            while len(self.received) < size:
                assert await self.more(), "the connection ended inside a request"
        request = bytes(self.received[:size])
        del self.received[:size]
        return request

    async def more(self) -> bytes:
        read = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        self.received += read
        return read

    async def send(self, *pieces: bytes) -> None:
        """The pieces one after the other, each in a segment of its own where the reader is quick enough."""
        loop = asyncio.get_running_loop()
        for piece in pieces:
            await loop.sock_sendall(self.socket, piece)
            if len(pieces) > 1:
                await asyncio.sleep(0)

    async def send_what_fits(self, content: bytes) -> int:
        """Until the kernel has taken no more for ten turns of the loop; how much it took."""
        sent = refused = 0
        while sent < len(content) and refused < 10:
            try:
                sent += self.socket.send(content[sent:])
                refused = 0
            except BlockingIOError:
                refused += 1
            await asyncio.sleep(0)
        return sent

    async def until_still(self) -> int:
        """Until all has arrived, or nothing more for 200 ms; how much has not, the kernel says.

        It tells of no change, so this polls; and an acknowledgement may be 40 ms late.
        """
        left, since = -1, time.monotonic()
        while left != 0 and time.monotonic() < since + 0.2:
            before, left = left, struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, b"1234"))[0]
            since = since if left == before else time.monotonic()
            await asyncio.sleep(0)
        return left

    def fin(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def end(self, how: str) -> None:
        self.fin() if how == "FIN" else self.reset()

    async def until_closed(self) -> None:
        """The other side closed, by FIN or RST; what came before is thrown away."""
        try:
            async with asyncio.timeout(DEADLINE):
                while await self.more():
                    pass
        except ConnectionError:
            pass


class Peer:
    def __init__(self, listener: socket.socket, scheme: str) -> None:
        self.listener = listener
        self.wires: list[Wire] = []
        self.port: int = listener.getsockname()[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}/v1"

    async def accept(self) -> Wire:
        async with asyncio.timeout(DEADLINE):
            accepted, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(accepted)
        self.wires.append(wire)
        return wire

    async def answered(self, transport: httpx.AsyncBaseTransport, *answer: bytes) -> tuple[httpx.Response, Wire]:
        """One exchange on a new connection, up to its head."""
        async with asking(transport, self) as asked:
            wire = await self.accept()
            await wire.request()
            await wire.send(*answer)
            return await asked, wire


@asynccontextmanager
async def listening(scheme: str = "http", family: int = socket.AF_INET, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Peer]:
    with socket.socket(family) as listener:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(256)
        peer = Peer(listener, scheme)
        try:
            yield peer
        finally:
            for wire in peer.wires:
                wire.socket.close()


def request(url: str, *, connect: float | None = DEADLINE, body: bytes = b"{}") -> httpx.Request:
    timeout: Mapping[str, float | None] = {"connect": connect}
    return httpx.Request("POST", url, content=body, extensions={"timeout": timeout})


@asynccontextmanager
async def asking(transport: httpx.AsyncBaseTransport, peer: Peer, **how: Any) -> AsyncIterator["asyncio.Task[httpx.Response]"]:
    async with asyncio.timeout(2 * DEADLINE), asyncio.TaskGroup() as group:
        yield group.create_task(transport.handle_async_request(request(peer.url, **how)), name="asking")


async def body(response: httpx.Response) -> tuple[bytes, Exception | None]:
    """What the reader gets, then what it is told; the exchange is over."""
    received = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async with asyncio.timeout(DEADLINE):
        try:
            async for piece in response.stream:
                assert 0 < len(piece) <= 64 * 1024
                received += piece
        except httpx.HTTPError as error:
            return bytes(received), error
        finally:
            await response.stream.aclose()
    return bytes(received), None


def descriptors() -> int:
    """Sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def running() -> set["asyncio.Task[Any]"]:
    """All tasks but those in which pytest's plugin runs tests and fixtures."""
    return {task for task in asyncio.all_tasks() if "TestRunner" not in getattr(task.get_coro(), "__qualname__", "")}


async def until_nothing_left(sockets: int, tasks: set["asyncio.Task[Any]"]) -> None:
    """Polls, as neither loop tells when it has closed a socket."""

    def left() -> str:
        return f"an end of {descriptors() - sockets} sockets and of the tasks {running() - tasks}"

    await until(lambda: running() <= tasks and descriptors() <= sockets, left, DEADLINE)
