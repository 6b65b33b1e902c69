"""One client's connection: HTTP/1.1 as uvicorn reads and writes it, but for what it knows no answer to.

An answer can cut or abort its connection and ask whether its request is here, and *every* unfinished request of a lost connection
hears of it at once (uvicorn tells only the newest, so one with a pipelined request behind it would run on; it stops reading then, so
it would not see the client leave either; and at a FIN it first waits until all that was written has been read). uvicorn knows no
limit for a request's head, neither in bytes nor in time, nor for the requests that wait; it loses the body behind an `Upgrade`; and
after an answer that came before the request's end it reads the rest for ever.

Nothing of `HttpToolsProtocol` is public: uvicorn's version is bounded in pyproject.toml, and a test pins the names.
"""

import asyncio
import math
import secrets
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.access import document, trace
from gateway.cycle import Cycle
from gateway.errors import RequestRefused
from gateway.http1_connection import HEAD_LIMIT

HEAD_TIME = 10.0  # seconds in which a request's head must be complete, from a new connection's beginning or its own first byte
LINGER = 5.0  # seconds in which a client that was answered too early may see it, while what it still sends is thrown away
LAST_LINGER = 1.0  # the same when the gateway stops
PIPELINED = 8  # requests that may wait behind a running one before their connection is no longer read
CLOCK = 0.001  # seconds: how exact the loop's clock is
MOST_PIPELINED = 1000  # and before it is ended: one read can hold thousands, and nobody waits for so many answers


class _Writing:
    """The connection as one answer sees it: `close` waits for a client that is still sending. No call more for what it writes."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write, self.is_closing, self.close = transport.write, transport.is_closing, close


class Protocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: Cycle | None = None
        self._bodiless = 0  # bytes since the last one of a body: of a head, or of what else is none
        self._head_begun = False
        self._lingering = False  # answered before the request's end: what still comes of it is thrown away
        self._swallows = math.inf  # bytes of that
        self._stopping = False
        self._keeps_alive = True  # the connection is wanted after the request that is being read
        self._due = math.inf  # when the connection's wait is over
        self._strikes = math.inf  # when its timer looks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._writing = _Writing(transport, self._close)
        self._wait(HEAD_TIME)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._head_begun = True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        assert isinstance(cycle, Cycle)
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def data_received(self, data: bytes) -> None:
        """uvicorn's, but for: an upgrade is ignored, a head has its time, and garbage is refused in our words."""
        if self._lingering:
            self._swallows -= len(data)
            if self._swallows < 0:
                self._abort()
            return
        waited = self._head_begun
        self._bodiless += len(data)
        self._read(data)
        if self.transport.is_closing():
            return
        if len(self.pipeline) > MOST_PIPELINED:
            self._abort()
        elif self._bodiless > HEAD_LIMIT:
            self.send_400_response(f"The head of the request is larger than {HEAD_LIMIT // 1024} KiB.")
        elif self._head_begun and not waited and not self._answering:
            self._wait(HEAD_TIME)

    def _read(self, data: bytes) -> None:
        try:
            while len(self.pipeline) <= MOST_PIPELINED:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as upgrade:
                    data = self._without_upgrade() + data[upgrade.args[0] :]
        except httptools.HttpParserError:
            self.send_400_response("This is not HTTP/1.1, or it is broken.")

    def _without_upgrade(self) -> bytes:
        """The head again, for a new parser: the old one takes what follows for another protocol. A server may ignore an upgrade
        (https://www.rfc-editor.org/rfc/rfc9110#section-7.8), and Java's client and curl offer h2c with every first request."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise httptools.HttpParserError("a tunnel is no request")
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(fields))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head

    def on_headers_complete(self) -> None:
        parser = self.parser
        if parser.should_upgrade():
            return  # it comes again
        self._bodiless, self._head_begun = 0, False
        self._due = math.inf
        version = parser.get_http_version()
        path, raw_path, query = _target(self.url)
        connection: dict[str, object] = {"cut": self.transport.close, "abort": self._abort}
        scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
            "extensions": {"gateway": connection},
        }
        self.cycle = cycle = Cycle(scope, self._writing, self.flow, self.server_state.default_headers, self.on_response_complete)
        cycle.waiting_for_100_continue = self.expect_100_continue
        connection |= {"whole": cycle.whole, "begin": cycle.begin, "push": cycle.push, "tell": cycle.tell}
        self._keeps_alive = version != "1.0" and parser.should_keep_alive()
        if not self._answering:
            self._start_asgi_task(cycle, self.app)
            return
        self.pipeline.appendleft((cycle, self.app))
        if len(self.pipeline) > PIPELINED:
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._bodiless = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        cycle = self.cycle
        if cycle.response_complete:
            return
        if not cycle.response_started:
            cycle.keep_alive = self._keeps_alive and not self._stopping
        cycle.more_body = False
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        if self._lingering:
            return
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._head_begun:
            self._wait(HEAD_TIME)
        else:
            self._wait(self.timeout_keep_alive)
        if len(self.pipeline) > PIPELINED:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestRefused("invalid_request", msg))

    def timeout_keep_alive_handler(self) -> None:
        if self._lingering:
            self._abort()
        elif self._head_begun and self.url:
            sentence = f"The head of the request did not arrive within {HEAD_TIME:g} s."
            self._refuse(RequestRefused("invalid_request", sentence, status=408))
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        self._stopping = True
        super().shutdown()
        if self._lingering:
            self._wait(LAST_LINGER)

    def eof_received(self) -> None:
        self._tell_running()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell_running()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        super().connection_lost(exc)

    @property
    def _answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _wait(self, seconds: float) -> None:
        """The connection has one timer, for whichever of its waits this is; a timer that strikes too early is set again then, for
        most waits of a busy connection end before."""
        self._due = self.loop.time() + seconds
        if self._due < self._strikes:
            self._set_timer()

    def _set_timer(self) -> None:
        self._unset_keepalive_if_required()
        self._strikes = self._due
        self.timeout_keep_alive_task = self.loop.call_later(self._due - self.loop.time(), self._strike)

    def _strike(self) -> None:
        self._strikes = math.inf
        if self._due - self.loop.time() < CLOCK:
            self.timeout_keep_alive_handler()
        elif self._due < math.inf:
            self._set_timer()

    def _refuse(self, error: RequestRefused) -> None:
        """What is no request gets an answer all the same, unless it would stand in the middle of another one."""
        if self._answering:
            self._abort()
            return
        trace(error)
        _, fields, body = document(error, secrets.token_hex(12), {"connection": "close"})
        lines = [b"%b: %b" % field for field in (*self.server_state.default_headers, *fields)]
        status = b"HTTP/1.1 %d %b" % (error.status, HTTPStatus(error.status).phrase.encode())
        self.transport.write(b"\r\n".join([status, *lines, b"", body]))
        self._swallows = HEAD_LIMIT
        self._linger()

    def _close(self) -> None:
        """A running answer's last word. To close while bytes are unread would be a RST, which takes the answer from the client."""
        if self._running is not None and self._running.more_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        if not self.transport.is_closing():
            self._lingering = True
            self.transport.write_eof()
            self.flow.resume_reading()
            self._wait(LAST_LINGER if self._stopping else LINGER)

    def _abort(self) -> None:
        self._tell_running()
        self.transport.abort()

    def _tell_running(self) -> None:
        """The running request hears that its client is gone."""
        running = self._running
        if running is not None and not running.response_complete:
            running.leave()


@lru_cache(maxsize=16)  # of at most HEAD_LIMIT each; most clients ask for one and the same
def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """The path, as it was meant and as it came, and the query."""
    parts = httptools.parse_url(url)
    path = parts.path.decode("ascii")
    return unquote(path) if "%" in path else path, parts.path, parts.query or b""
