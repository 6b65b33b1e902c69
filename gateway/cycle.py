"""One request and its answer on a client's connection, as uvicorn has them, but for when and how the answer's bytes are written.

Its head leaves with the first bytes of its body, in one write: each is a system call, and for a short answer the dearest thing there is.
Who wants the head out before there is any body sends an empty piece of it. And what needs no waiting can be written by a plain call,
`begin` or `push`, that writes what `send` would.

Like uvicorn's own it raises `RuntimeError` for what is no answer: a head or a body where the other is due, broken fields, a wrong length.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class Cycle(RequestResponseCycle):
    logger = logging.getLogger("uvicorn.error")

    def __init__(
        self, scope: Any, transport: Any, flow: FlowControl, default_headers: list[tuple[bytes, bytes]], on_response: Callable[..., None]
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.default_headers = default_headers
        self.on_response = on_response
        self.message_event = asyncio.Event()
        self.disconnected = False
        self.waiting_for_100_continue = False
        self.keep_alive = False  # until the request is here to its end an answer is the connection's last: nobody would read the rest
        self.body = bytearray()
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0
        self._head = b""  # begun, and not yet written
        self._on_leaving: Callable[[], None] | None = None

    def tell(self, on_leaving: Callable[[], None] | None) -> None:
        """Has it called when the client leaves before its answer is complete; at once if it has left. None: no more."""
        self._on_leaving = on_leaving
        if on_leaving is not None and self.disconnected:
            on_leaving()

    def leave(self) -> None:
        """The client is gone: whoever answers it hears of it now."""
        if self.disconnected:
            return
        self.disconnected = True
        self.message_event.set()
        if self._on_leaving is not None:
            self._on_leaving()

    def whole(self) -> bytes | None:
        """The request's body if it is here to its end, which `receive` then has no more; else None."""
        if self.more_body or self.disconnected or self.response_complete:
            return None
        body, self.body = bytes(self.body), bytearray()
        self.waiting_for_100_continue = False
        self.message_event.clear()
        self.flow.resume_reading()
        return body

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_complete:
            raise RuntimeError(f"Unexpected ASGI message '{message['type']}' sent, after response already completed.")
        due = "http.response.body" if self.response_started else "http.response.start"
        if message["type"] != due:
            raise RuntimeError(f"Expected ASGI message '{due}', but got '{message['type']}'.")
        if self.response_started:
            self._go_on(message.get("body", b""), message.get("more_body", False))
        else:
            self._begin(message["status"], message.get("headers", ()))

    def push(self, data: bytes, more: bool = True) -> bool:
        """Writes a piece of a body without waiting. False, and nothing is written, where only `send` can: the answer has not begun, or
        its client is gone or reads too slowly, or it would be longer than it said."""
        if not self.response_started or self.response_complete or self.disconnected or self.flow.write_paused:
            return False
        if not self.chunked_encoding and len(data) > self.expected_content_length:
            return False
        self._go_on(data, more)
        return True

    def begin(self, status: int, fields: list[tuple[bytes, bytes]], data: bytes, more: bool) -> bool:
        """The same for a head and the first piece. Whoever changes a head on its way through `send` takes this out of the scope."""
        if self.response_started or self.disconnected or self.flow.write_paused:
            return False
        self._begin(status, fields)
        self._go_on(data, more)
        return True

    def _begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        closes = False
        for name, value in (*self.default_headers, *fields):
            name, line = _line(name, value)
            lines.append(line)
            if name not in FRAMING:
                continue
            if name == b"connection":
                closes = closes or b"close" in [token.lower().strip() for token in value.split(b",")]
            elif name == b"transfer-encoding":
                if value.lower() == b"chunked":
                    self.expected_content_length, self.chunked_encoding = 0, True
            elif self.chunked_encoding is None:
                self.expected_content_length, self.chunked_encoding = int(value), False
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _go_on(self, data: bytes, more: bool) -> None:
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            data = head
        elif self.chunked_encoding:
            end = b"" if more else b"0\r\n\r\n"
            data = b"".join((head, b"%x\r\n" % len(data), data, b"\r\n", end)) if data else head + end
        elif len(data) > self.expected_content_length:
            raise RuntimeError("Response content longer than Content-Length")
        else:
            self.expected_content_length -= len(data)
            data = head + data
        if data:
            self.transport.write(data)
        if more:
            return
        if self.expected_content_length != 0:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.scope.pop("extensions", None)  # they lead back here, and would keep a finished request for the collector
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


@lru_cache(maxsize=32)  # a caller may choose a value, of at most HEAD_LIMIT; nearly all fields are the same in every answer
def _line(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A field's name in small letters, and its line."""
    if HEADER_RE.search(name):
        raise RuntimeError("Invalid HTTP header name.")
    if HEADER_VALUE_RE.search(value):
        raise RuntimeError("Invalid HTTP header value.")
    name = name.lower()
    return name, b"%b: %b\r\n" % (name, value)
