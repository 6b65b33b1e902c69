"""An httpx transport through an HTTP proxy: httpx's own, made to let go of what fails on the way.

httpcore's tunnels (https://github.com/encode/httpcore) have two gaps, and pool and socket would keep what fell through them for good:
* An answer to CONNECT is awaited without a limit; `connect` counts here until the request itself is sent.
* A TLS handshake in a tunnel that fails, or whose caller leaves, closes neither the tunnel nor its place in the pool.

A connection outside of a tunnel carries one request: tinyproxy hands a second one on unread, with the proxy's password in it.
"""

import math
import ssl
from typing import Any

import anyio
import httpcore
import httpx

CLOSE_TIME = 1.0  # seconds that closing may take, shielded


class ProxiedTransport(httpx.AsyncHTTPTransport):
    def __init__(self, proxy: str, tls: ssl.SSLContext, limits: httpx.Limits) -> None:
        secure = httpx.URL(proxy).scheme == "https"  # httpcore refuses a context for a proxy that speaks no TLS
        way = httpx.Proxy(proxy, ssl_context=tls if secure else None)
        super().__init__(verify=tls, trust_env=False, limits=limits, proxy=way)
        create = self._pool.create_connection

        def connection(origin: httpcore.Origin) -> _Connection:
            return _Connection(create(origin), reusable=origin.scheme == b"https")

        self._pool.create_connection = connection  # type: ignore[method-assign]  # httpx makes the pool, and asks for no class

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        limit = request.extensions.get("timeout", {}).get("connect")
        told = request.extensions.get("trace")
        with anyio.CancelScope(deadline=math.inf if limit is None else anyio.current_time() + limit) as dialling:

            async def trace(event: str, facts: dict[str, Any]) -> None:
                if event == "http11.send_request_headers.started" and facts["request"].method != b"CONNECT":
                    dialling.deadline = math.inf
                if told is not None:
                    await told(event, facts)

            request.extensions = {**request.extensions, "trace": trace}
            return await super().handle_async_request(request)
        raise httpx.ConnectTimeout("connecting through the proxy took too long")


class _Connection(httpcore.AsyncConnectionInterface):
    """One of httpcore's, which is closed by whatever ends a request before its answer began: HTTP/1.1 could not go on with it."""

    def __init__(self, connection: httpcore.AsyncConnectionInterface, *, reusable: bool) -> None:
        self._connection = connection
        self._reusable = reusable

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        try:
            return await self._connection.handle_async_request(request)
        except httpcore.ConnectionNotAvailable:
            raise  # it is busy with another request
        except BaseException:  # a caller that leaves, too: httpcore would keep the tunnel
            with anyio.move_on_after(CLOSE_TIME, shield=True):
                await self._connection.aclose()
            raise

    async def aclose(self) -> None:
        await self._connection.aclose()

    def info(self) -> str:
        return self._connection.info()

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        return self._connection.can_handle_request(origin)

    def is_available(self) -> bool:
        return self._connection.is_available()

    def has_expired(self) -> bool:
        return self._connection.has_expired() or (not self._reusable and self._connection.is_idle())

    def is_idle(self) -> bool:
        return self._connection.is_idle()

    def is_closed(self) -> bool:
        return self._connection.is_closed()
