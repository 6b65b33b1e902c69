"""The socket, the signals, the drain, and uvicorn.

uvicorn's own `Server` closes the port at the first signal; this one begins a drain then. Its version is bounded in pyproject.toml,
and a test pins the names that are used.
"""

import asyncio
import functools
import gc
import logging
import os
import socket
import ssl
import time
from types import FrameType

import httpx
import uvicorn
import uvloop

from gateway.admission import stopping
from gateway.app import Gateway, create_app
from gateway.connections import Connection
from gateway.http1 import IDLE_CONNECTIONS, IDLE_TIME, Http1Transport
from gateway.log import Paint, configure_logging
from gateway.play import PlayTransport
from gateway.protocol import Protocol
from gateway.proxied import ProxiedTransport
from gateway.wiring import Server as Limits
from gateway.wiring import Wiring

LOG = logging.getLogger("gateway")

LAST_WORDS = 2.0  # seconds for the endings after the grace
BACKLOG = 2048


class Server(uvicorn.Server):
    """The first signal begins the drain; the process then ends by itself, with exit code 0."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._stopping_since: float | None = None
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        gateway = self._gateway
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            gateway.admission.stopping = True
            LOG.info("stopping: %s", _prospect(gateway.admission.streams, gateway.wiring.server))
            return
        for answer in tuple(gateway.answers):
            answer.cut_off()
        logging.shutdown()
        os._exit(1)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn asks ten times a second whether to exit."""
        if await super().on_tick(counter):
            return True
        if self._stopping_since is None:
            return False
        limits, gateway = self._gateway.wiring.server, self._gateway
        gateway.refuse_unread()
        elapsed = time.monotonic() - self._stopping_since - limits.drain_delay
        if elapsed < 0:
            return False
        if elapsed >= limits.shutdown_grace and not self._told:
            self._told = True
            for answer in tuple(gateway.answers):
                answer.stop(stopping())
        if gateway.admission.streams and elapsed < limits.shutdown_grace + LAST_WORDS:
            return False
        for answer in tuple(gateway.answers):
            answer.abort()
        gateway.live.close()
        return True


def _prospect(streams: int, limits: Limits) -> str:
    """What the first signal begins."""
    if not streams:
        return "no stream is open"
    seconds = f"{limits.drain_delay + limits.shutdown_grace:g} s to end; a second signal cuts"
    return f"1 stream is open and has {seconds} it" if streams == 1 else f"{streams} streams are open and have {seconds} them"


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
        interface="asgi3",  # which uvicorn takes only coroutine functions for, unless it is told
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


def run(wiring: Wiring, listener: socket.socket, paint: Paint) -> int:
    """The process's main thread: serves until a signal; returns the exit code."""
    configure_logging(paint)

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
    return ProxiedTransport(connection.proxy, tls, limits)


@functools.cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """Reading a machine's certificates takes 20 ms: once, not once a provider."""
    return ssl.create_default_context(cafile=ca_file)
