"""The socket, the signals, the drain, and uvicorn.

Subclasses two of uvicorn's classes for what ASGI cannot do; its version is bounded in pyproject.toml and a test pins the names:
* `HttpToolsProtocol`: an answer can cut or abort its connection, and *every* unfinished request of a lost connection hears of
  it at once (uvicorn tells only the newest, so one with a pipelined request behind it would run on; it stops reading then, so
  it would not see the client leave either; and at a FIN it first waits until all that was written has been read). It knows no limit
  for a request's head, nor for the requests that wait.
* `Server`: the first SIGTERM or SIGINT begins a drain while the port stays open; a second one ends the process.
"""

import asyncio
import functools
import gc
import logging
import os
import socket
import ssl
import sys
import time
from types import FrameType
from typing import Any

import httpx
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.app import Gateway, create_app
from gateway.errors import GatewayError
from gateway.http1 import HEAD_LIMIT, IDLE_CONNECTIONS, IDLE_TIME, Http1Transport
from gateway.play import PlayTransport
from gateway.telemetry import configure_logging
from gateway.wiring import Connection, Wiring

LOG = logging.getLogger("gateway")

LAST_WORDS = 2.0  # seconds for the endings after the grace
BACKLOG = 2048
PIPELINED = 8  # requests that may wait behind a running one before their connection is no longer read
MOST_PIPELINED = 1000  # and before it is ended: one read can hold thousands, and nobody waits for so many answers


class Protocol(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None
        self._bodiless = 0  # bytes since the last one of a body: of a head, or of what else is none

    def on_message_begin(self) -> None:
        super().on_message_begin()
        connection: dict[object, object] = {"cut": self.transport.close, "abort": self._abort}
        self.scope["extensions"] = {"gateway": connection}

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        self._bodiless += len(data)
        super().data_received(data)
        if len(self.pipeline) > MOST_PIPELINED:
            self._abort()
        elif self._bodiless > HEAD_LIMIT and not self.transport.is_closing():
            if self._running is None or self._running.response_complete:
                self.send_400_response(f"The head of the request is larger than {HEAD_LIMIT // 1024} KiB.")
            else:
                self._abort()

    def on_headers_complete(self) -> None:
        self._bodiless = 0
        super().on_headers_complete()
        if 0 < len(self.pipeline) <= PIPELINED:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        self._bodiless = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if len(self.pipeline) > PIPELINED:
            self.flow.pause_reading()

    def eof_received(self) -> None:
        self._tell_running()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell_running()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _abort(self) -> None:
        self._tell_running()
        self.transport.abort()

    def _tell_running(self) -> None:
        """The running request hears that its client is gone."""
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()


class Server(uvicorn.Server):
    """The first signal begins the drain; the process then ends by itself, with exit code 0."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._stopping_since: float | None = None
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self._gateway.admission.stopping = True
            LOG.info("stopping: %d streams open", self._gateway.admission.streams)
            return
        sys.stderr.flush()
        os._exit(1)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn asks ten times a second whether to exit."""
        if await super().on_tick(counter):
            return True
        if self._stopping_since is None:
            return False
        limits, gateway = self._gateway.wiring.server, self._gateway
        elapsed = time.monotonic() - self._stopping_since - limits.drain_delay
        if elapsed < 0:
            return False
        if elapsed >= limits.shutdown_grace and not self._told:
            self._told = True
            for answer in tuple(gateway.answers):
                answer.stop(GatewayError("shutdown", "The gateway is stopping: try again in a few seconds.", retry_after=5))
        if gateway.admission.streams and elapsed < limits.shutdown_grace + LAST_WORDS:
            return False
        for answer in tuple(gateway.answers):
            answer.abort()
        gateway.live.close()
        return True


def bind(wiring: Wiring) -> socket.socket:
    """The listening socket; `OSError` if the port is taken."""
    host, port = wiring.server.host, wiring.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Accepted connections inherit it: a client that vanished without a FIN is let go once something is unacknowledged.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(wiring.server.tcp_user_timeout * 1000))
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def server(gateway: Gateway) -> Server:
    """uvicorn, set up for streams: no access log, no compression, a keep-alive longer than nginx's."""
    config = uvicorn.Config(
        create_app(gateway),
        http=Protocol,
        loop="uvloop",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(gateway.wiring.server.keep_alive),
        timeout_graceful_shutdown=int(LAST_WORDS),
    )
    return Server(config, gateway)


def run(wiring: Wiring, listener: socket.socket) -> int:
    """The process's main thread: serves until a signal; returns the exit code."""
    configure_logging()

    async def main() -> None:
        serving = server(Gateway(wiring, transports(wiring)))
        # All that was imported lives as long as the process: looked through at every full collection, it held up every stream for
        # 100 ms and more.
        gc.collect()
        gc.freeze()
        await serving.serve(sockets=[listener])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0


def transports(wiring: Wiring) -> dict[str, httpx.AsyncBaseTransport]:
    """One per provider, so that none can take another's connections."""
    return {name: _transport(connection) for name, connection in wiring.providers.items()}


def _transport(connection: Connection) -> httpx.AsyncBaseTransport:
    if connection.transport == "simulator":
        return PlayTransport()
    tls = _tls(connection.ca_file)
    if connection.proxy is None:
        return Http1Transport(tls)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS, keepalive_expiry=IDLE_TIME)
    return httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits, proxy=connection.proxy)


@functools.cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """Reading a machine's certificates takes 20 ms: once, not once a provider."""
    return ssl.create_default_context(cafile=ca_file)
