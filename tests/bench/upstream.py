"""The provider of the benchmark: precomputed bytes on a uvloop protocol, Claude's and OpenAI's paths.

A request's model says what to do: `MODE.COUNT.RATE.ID`.
  each    a write for every delta, as providers flush them, as fast as the socket takes them
  burst   the whole answer in one write
  paced   COUNT deltas at RATE a second, one write each
  silent  the head, then nothing
  large   one delta of COUNT bytes in chunks of 4 KiB, as fast as the socket takes it
`GET /streams` tells which are open, `GET /sent/ID` when each delta was written, `GET /closed/ID` when the peer left
(seconds of the machine's monotonic clock, which all its processes share).
"""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator

import uvloop

from tests.bench import answers

MODEL = re.compile(rb'"model"\s*:\s*"(?:[\w-]+/)?(each|burst|paced|silent|large)\.(\d+)\.(\d+)\.(\w+)"')
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
LARGE_PIECE = 4096
TURN = 100  # writes before other streams have their turn

open_streams: dict[str, "Connection"] = {}
sent: dict[str, list[float]] = {}
closed: dict[str, float] = {}


class Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport by type
        self._received = b""
        self._stream = ""
        self._timer: asyncio.TimerHandle | None = None
        self._pending: Iterator[bytes] = iter(())
        self._socket: int = transport.get_extra_info("socket").fileno()
        self._transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = LENGTH.search(self._received, 0, head + 2)
        end = head + 4 + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return
        request, self._received = self._received[:end], self._received[end:]
        method, path, _ = request[: request.index(b"\r\n")].decode().split(" ", 2)
        if method == "GET":
            self._report(path)
        else:
            self._answer(path.partition("?")[0], request)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stream:
            closed[self._stream] = time.monotonic()
            open_streams.pop(self._stream, None)

    def _report(self, path: str) -> None:
        _, what, *name = path.split("/")
        found = {"streams": list(open_streams), "sent": sent.pop("".join(name), None), "closed": closed.get("".join(name))}[what]
        body = json.dumps(found).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    def _answer(self, path: str, request: bytes) -> None:
        found = MODEL.search(request)
        if found is None:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            return
        mode, count, rate, name = found[1].decode(), int(found[2]), int(found[3]), found[4].decode()
        if mode == "each":
            self._pending = _writes(path, count)
            self._send()
        elif mode == "burst":
            self._transport.write(answers.answer(path, count).whole)
        elif mode == "large":
            self._transport.write(answers.large(path, count, LARGE_PIECE).whole)
        else:
            self._stream = name
            open_streams[name] = self
            self._transport.write(answers.HEAD)
            if mode == "paced":
                self._pace(answers.answer(path, count), name, rate)

    def _send(self) -> None:
        """Writes to the socket itself, for a transport would put small writes together; what it refuses goes through the transport,
        whose `resume_writing` tells when there is room again."""
        for _ in range(TURN):
            data = next(self._pending, None)
            if data is None:
                return
            try:
                taken = os.write(self._socket, data)
            except BlockingIOError:
                taken = 0
            except OSError:
                return  # the peer left; `connection_lost` follows
            if taken < len(data):
                self._transport.write(data[taken:])
                return
        asyncio.get_running_loop().call_soon(self._send)

    def resume_writing(self) -> None:
        self._send()

    def _pace(self, answer: answers.Answer, name: str, rate: int) -> None:
        loop, times = asyncio.get_running_loop(), sent.setdefault(name, [])
        start, steps = loop.time(), answer.steps

        def step() -> None:
            number = len(times)
            times.append(time.monotonic())
            if number + 1 < len(steps):
                self._transport.write(steps[number])
                self._timer = loop.call_at(start + (number + 1) / rate, step)
            else:
                self._transport.write(steps[number] + answer.ending)
                open_streams.pop(self._stream, None)
                self._stream = ""

        step()


def _writes(path: str, count: int) -> Iterator[bytes]:
    """The head goes out with the first delta."""
    if (path, count) not in writes:
        answer = answers.answer(path, count)
        first, *middle, last = (answers.HEAD, *answer.steps, answer.ending)
        writes[path, count] = [first + middle[0], *middle[1:], last]
    return iter(writes[path, count])


writes: dict[tuple[str, int], list[bytes]] = {}


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
