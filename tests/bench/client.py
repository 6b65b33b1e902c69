"""The load's client: raw HTTP/1.1 on a uvloop protocol. It only stores what comes, with the time; it is judged afterwards."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.bench.answers import LAST_CHUNK, Digest, chunks

HOST = "127.0.0.1"
# Where Claude's deltas, and the chunks of the AI SDK, say something; OpenAI's are read apart.
CLAUDE_FIELDS = {"thinking_delta": ("thinking", "thinking"), "text_delta": ("text", "text"), "input_json_delta": ("tool", "partial_json")}
AI_SDK_FIELDS = {"reasoning-delta": ("thinking", "delta"), "text-delta": ("text", "delta"), "tool-input-delta": ("tool", "inputTextDelta")}


class Wrong(Exception):
    """A stream that is not what was sent: the whole run is worth nothing."""


@dataclass(slots=True)
class Reply:
    """One answer as it came: pieces with their arrival times."""

    asked: float
    pieces: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def body(self) -> bytes:
        head, body = self._split()
        return b"".join(payload for payload, _ in chunks(body)) if b"chunked" in head else body

    def deltas(self) -> list[tuple[str, str]]:
        return [delta for delta, _ in self._deltas(self.body())]

    def arrivals(self) -> list[float]:
        """When the last byte of each delta's frame came."""
        head, body = self._split()
        wire_ends, payload_ends, size = [], [], 0
        for payload, end in chunks(body):
            size += len(payload)
            wire_ends.append(len(head) + 4 + end)
            payload_ends.append(size)
        received, total = [], 0
        for data in self.pieces:
            total += len(data)
            received.append(total)
        times, chunk, piece = [], 0, 0
        for _, end in self._deltas(self.body()):
            while payload_ends[chunk] < end:
                chunk += 1
            # To the byte, for one chunk may carry many deltas and come in several reads.
            wire = wire_ends[chunk] - 2 - (payload_ends[chunk] - end)
            while received[piece] < wire:
                piece += 1
            times.append(self.times[piece])
        return times

    def _split(self) -> tuple[bytes, bytes]:
        head, _, body = b"".join(self.pieces).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Wrong(f"the answer is {head[:200]!r} {body[:300]!r}")
        return head.lower(), body

    @staticmethod
    def _deltas(body: bytes) -> Iterator[tuple[tuple[str, str], int]]:
        """Non-empty deltas and where their lines end."""
        at = 0
        for line in body.split(b"\n"):
            at += len(line) + 1
            start = line.find(b"{", 0, 7)
            if start < 0 or line.startswith(b"event"):
                continue
            for delta in said(json.loads(line[start:])):
                if delta[1]:
                    yield delta, at


def said(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What one event of any format says, as (kind, text)."""
    if "choices" in event:
        for choice in event["choices"]:
            delta = choice["delta"]
            yield "thinking", delta.get("reasoning_content") or ""
            yield "text", delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                yield "tool", call["function"].get("arguments") or ""
    elif event["type"] == "content_block_delta":
        kind, name = CLAUDE_FIELDS[event["delta"]["type"]]
        yield kind, event["delta"][name]
    elif event["type"] in AI_SDK_FIELDS:
        kind, name = AI_SDK_FIELDS[event["type"]]
        yield kind, event[name]
    elif event["type"] in ("error", "abort"):
        raise Wrong(f"the stream says {event}")


def check(reply: Reply, wanted: Digest) -> None:
    """The whole answer, nothing twice, and an ending."""
    body = reply.body()
    found = Digest.of(reply.deltas())
    if found != wanted:
        raise Wrong(f"{found} instead of {wanted}: …{body[-300:]!r}")
    if b"message_stop" not in body[-700:] and b"[DONE]" not in body[-700:] and b'"usage"' not in body[-700:]:
        raise Wrong(f"no ending: …{body[-300:]!r}")


def check_text(reply: Reply, wanted: Digest) -> None:
    found = Digest.of([("text", reply.body().decode())])
    if found != wanted:
        raise Wrong(f"text {found} instead of {wanted}")


def check_document(reply: Reply, wanted: Digest) -> None:
    """An assembled message; its deltas can no longer be counted."""
    message = json.loads(reply.body())
    said = []
    for block in message["content"]:
        if block["type"] == "tool_use":
            said.append(("tool", json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))))
        else:
            said.append((block["type"], block[block["type"]]))
    found = Digest.of(said)
    if found.sha256 != wanted.sha256:
        raise Wrong(f"the document {found} instead of {wanted}")


class Connection(asyncio.Protocol):
    """One exchange at a time."""

    def __init__(self) -> None:
        self._reply = Reply(0.0)
        self._done: asyncio.Future[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._length: int | None = None
        self._headed = False
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport by type

    def ask(self, request: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        self._done, self._begun, self._headed = loop.create_future(), loop.create_future(), False
        self.transport.write(request)
        self._reply = Reply(time.monotonic())
        return self._reply

    async def done(self) -> None:
        assert self._done is not None
        await self._done

    async def begun(self) -> None:
        """Something of the answer came."""
        assert self._begun is not None
        await asyncio.shield(self._begun)

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        reply.times.append(time.monotonic())
        reply.pieces.append(data)
        if not self._headed:
            self._read_head()
        if self._length is None:
            tail = data if len(data) >= 5 else b"".join(reply.pieces[-5:])
            if tail.endswith(LAST_CHUNK):
                self._finish()
        else:
            self._length -= len(data)
            if self._length <= 0:
                self._finish()

    def _read_head(self) -> None:
        received = b"".join(self._reply.pieces)
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        self._headed, self._length = True, None
        for line in received[:end].lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self._length = int(line[15:]) - (len(received) - end - 4) + len(self._reply.pieces[-1])
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for waiting in (self._done, self._begun):
            if waiting is not None and not waiting.done():
                waiting.set_exception(Wrong(f"the connection was lost: {b''.join(self._reply.pieces)[-300:]!r}"))
                waiting.exception()


class Client:
    """Connections to one port, kept and used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    async def connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, self._port)
        return connection

    async def ask(self, request: bytes) -> Reply:
        connection = await self.connection()
        reply = connection.ask(request)
        await connection.done()
        self._idle.append(connection)
        return reply

    async def get(self, path: str) -> Any:
        reply = await self.ask(f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
        return json.loads(reply.body())

    def close(self) -> None:
        while self._idle:
            self._idle.pop().transport.close()


def post(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\naccept: */*\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data
