"""Who may call, while there are no callers yet: programs and pages of this machine, and pages of the configured origins.

Pure ASGI around the whole application, with Starlette's CORS headers on every answer, errors included. A page elsewhere must
not spend a laptop's keys: the Host must be a loopback name (DNS rebinding), a present Origin must be allowed, and what a
browser sends must be `application/json`, so that it had to ask first.
"""

import re
import secrets
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import GatewayError, RequestRefused
from gateway.events import encode

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LOOPBACK_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
EXPOSED = ["x-request-id", "retry-after"]


def request_id(scope: Scope) -> str:
    """The caller's `x-request-id` if it is a harmless one, else a new one."""
    given = _header(scope, b"x-request-id")
    return given if given and REQUEST_ID.fullmatch(given) else secrets.token_hex(12)


class Access:
    """`origins`: further allowed origins, exactly as browsers write them (`https://app.example.com`)."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._app = CORSMiddleware(
            app,
            allow_origins=[origin.rstrip("/") for origin in origins],
            allow_origin_regex=LOOPBACK_ORIGIN,
            allow_methods=["GET", "POST", "OPTIONS"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
            max_age=600,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refusal(scope)):
            await refuse(error, request_id(scope), send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> GatewayError | None:
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if _hostname(f"//{host}") not in LOOPBACK:
            return _forbidden("The Host header must be localhost, 127.0.0.1 or [::1]: this gateway answers its own machine only.")
        if origin is not None and not self._allowed(origin):
            return _forbidden("This Origin may not use the gateway: add it to access.origins in the configuration.")
        if scope["method"] == "POST" and (origin is not None or _header(scope, b"sec-fetch-site") is not None):
            kind = (_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return _forbidden("A page must send its chat with the content type application/json.")
        return None

    def _allowed(self, origin: str) -> bool:
        """Parsed, never by prefix: `http://localhost.evil.example` is not localhost."""
        return origin.lower() in self._origins or (origin.startswith(("http://", "https://")) and _hostname(origin) in LOOPBACK)


async def refuse(error: GatewayError, request_id: str, send: Send, headers: dict[str, str] | None = None) -> None:
    """An error as the whole answer, outside of any stream."""
    body = encode(error.event(request_id, partial=False))
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "x-request-id": request_id,
        **(headers or {}),
    }
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _forbidden(sentence: str) -> RequestRefused:
    return RequestRefused("forbidden_origin", sentence)


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
