"""Plays a script: as an httpx transport, when there is no key, and as real HTTP/1.1 on a socket.

On the socket a body goes out chunked, one chunk a `Send`, unless the script has a content-length of its own.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from http.client import responses

import anyio
import anyio.lowlevel
import httpx

from gateway.simulator import Cut, Hang, Reset, Script, Send, Step, Wait, answer


class PlayTransport(httpx.AsyncBaseTransport):
    """The simulator in the place of a provider: what the gateway does with its answers is what it does with real ones."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        script = answer(request.url.path, await request.aread())
        await _PlayedBody(script.before).read()
        return httpx.Response(script.status, headers=list(script.headers), stream=_PlayedBody(script.steps))


class _PlayedBody(httpx.AsyncByteStream):
    """An iterator, not a generator: cancelled or left alone, it has nothing to finish in another task."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._steps = iter(steps)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.read()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def read(self) -> bytes | None:
        for step in self._steps:
            match step:
                case Send(data):
                    await anyio.lowlevel.checkpoint()  # a script without waits must not keep the loop from everybody else
                    return data
                case Wait(seconds):
                    await anyio.sleep(seconds)
                case Hang():
                    await anyio.sleep_forever()
                case Cut():
                    raise httpx.RemoteProtocolError("the simulator closed the connection before its answer was complete")
                case Reset():
                    raise httpx.ReadError("the simulator reset the connection")
        return None

    async def aclose(self) -> None:
        self._steps = iter(())


async def play(script: Script, writer: asyncio.StreamWriter) -> bool:
    """Writes one answer; true if the connection can carry another.

    After a `Cut` our side has sent its FIN and the caller still has to close; after a `Reset` the connection is gone, and with it
    what the peer's window had no room for.
    A peer that leaves shows as `ConnectionError` at the next write only: who plays must also read.
    """
    # `drain` then waits until the kernel has all of it: an abort throws away what has not got that far.
    writer.transport.set_write_buffer_limits(high=0)
    if not await _play_steps(script.before, writer, chunked=False):
        return False
    names = {name.lower() for name, _ in script.headers}
    chunked = "content-length" not in names
    lines = [f"HTTP/1.1 {script.status} {responses.get(script.status, '')}", *(f"{name}: {value}" for name, value in script.headers)]
    if chunked and "transfer-encoding" not in names:
        lines.append("transfer-encoding: chunked")
    await _write(writer, "\r\n".join([*lines, "", ""]).encode("latin-1"))
    if not await _play_steps(script.steps, writer, chunked=chunked):
        return False
    if chunked:
        await _write(writer, b"0\r\n\r\n")
    return ("connection", "close") not in [(name.lower(), value.lower()) for name, value in script.headers]


async def _play_steps(steps: tuple[Step, ...], writer: asyncio.StreamWriter, *, chunked: bool) -> bool:
    for step in steps:
        match step:
            case Send(data):
                if not chunked:
                    await _write(writer, data)
                elif data:  # an empty chunk would be the last one
                    await _write(writer, b"%x\r\n%b\r\n" % (len(data), data))
            case Wait(seconds):
                await anyio.sleep(seconds)
            case Hang():
                await anyio.sleep_forever()
            case Cut():
                if chunked:
                    await _write(writer, b"1000\r\n")  # a promise that is not kept
                try:
                    writer.write_eof()
                except OSError as error:  # asyncio's own: nobody is connected any more, and it was not seen yet
                    raise ConnectionResetError from error
                return False
            case Reset():
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
                return False
    return True


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
