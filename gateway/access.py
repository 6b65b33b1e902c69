"""Who may call: programs and pages of this machine while nobody has a key; those with a key, and nobody else, once somebody has.

Pure ASGI around the whole application, in three layers. Outside, Host and Origin: a page elsewhere must not spend a laptop's
keys, so on a loopback bind the Host must be a loopback name (DNS rebinding), and a present Origin must be allowed everywhere.
Then Starlette's CORS headers, on every answer that a page may read, errors included; it answers preflights, which carry no key.
Inside, what a browser sends must be `application/json`, so that it had to ask first, and a key must be somebody's: decided by
the headers alone, before a byte of the body is read.
"""

import hashlib
import hmac
import ipaddress
import logging
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.errors import LATER, GatewayError, RequestRefused
from gateway.formats import RequestFormat
from gateway.formats.native import NATIVE
from gateway.routing import Caller

LOG = logging.getLogger("gateway")

# What browsers write as an origin, whole: no user, no path, nothing that one reader takes for the host and another does not.
AUTHORITY = r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._~%!$&'()*+,;=-]+)(:(?P<port>\d{1,5})?)?"
HOST = re.compile(AUTHORITY, re.IGNORECASE)
ORIGIN = re.compile(rf"(?P<scheme>https?)://{AUTHORITY}", re.IGNORECASE)
LOOPBACK_ORIGIN = r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?"
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
EXPOSED = ["x-request-id", "request-id", "retry-after", "x-should-retry", "x-vercel-ai-ui-message-stream"]
KEYLESS = frozenset({"/", "/healthz", "/readyz"})  # paths that need no key: they say nothing about anybody
PORTS = {"http": 80, "https": 443}
# One text for no key and for a wrong one: whoever tries keys learns nothing from it.
NO_KEY = "No key that is known here was sent: send yours as the header `Authorization: Bearer KEY` or `x-api-key: KEY`."
CHALLENGE = {"www-authenticate": "Bearer"}
TRACES = 5  # log lines a second for refusals: who is refused need not have a key, and must not fill a disk
LONGEST_TRACED = 200  # characters of a header in one


def request_id(scope: Scope) -> str:
    """The caller's `x-request-id` if it is a harmless one, else a new one."""
    given = _header(scope, b"x-request-id")
    if given and REQUEST_ID.fullmatch(given):
        return given
    return random.getrandbits(96).to_bytes(12).hex()  # no secret, and the kernel's random numbers take 10 µs


def caller(scope: Scope) -> Caller | None:
    """Who sent this request; None where nobody has a key."""
    found = scope.get("gateway.caller")
    return found if isinstance(found, Caller) else None


class Access:
    """`origins`: further allowed origins, exactly as browsers write them (`https://app.example.com`); `loopback`: other machines
    cannot reach the address that the gateway listens on; `formats`: by path, in which errors are told."""

    def __init__(
        self,
        app: ASGIApp,
        origins: tuple[str, ...],
        callers: tuple[Caller, ...] = (),
        *,
        loopback: bool = True,
        formats: Mapping[str, RequestFormat] = {},
    ) -> None:
        self._formats = formats
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)
        self._loopback = loopback
        self._gate = _Gate(app, callers, loopback, formats)
        self._cors = CORSMiddleware(
            self._gate,
            allow_origins=[origin.rstrip("/") for origin in origins],
            allow_origin_regex=LOOPBACK_ORIGIN if loopback else None,
            allow_methods=["GET", "POST", "OPTIONS"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
            max_age=600,
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._gate(scope, receive, send)
        if error := self._refusal(scope):
            trace(error, scope)
            return refuse(error, request_id(scope), send, format=self._formats.get(scope["path"], NATIVE))
        if scope["method"] == "POST" and b"origin" not in _fields(scope):
            return self._gate(scope, receive, send)  # no page asks, and no cache keeps the answer to a POST
        scope.get("extensions", {}).get("gateway", {}).pop("begin", None)  # it would write a head without what a page needs
        return self._cors(scope, receive, send)

    def _refusal(self, scope: Scope) -> GatewayError | None:
        fields = _fields(scope)
        if self._loopback and not _is_local(fields.get(b"host")):
            return _forbidden("The Host header must be localhost, 127.0.0.1 or [::1]: this gateway answers its own machine only.")
        if b"origin" in fields and not self._allowed(fields[b"origin"].decode("latin-1"), scope):
            return _forbidden("This Origin may not use the gateway: add it to access.origins in the configuration.")
        return None

    def _allowed(self, origin: str, scope: Scope) -> bool:
        """Parsed, never by prefix: `http://localhost.evil.example` is not localhost."""
        if origin.lower() in self._origins:
            return True
        page = _place(origin)
        if page is None:
            return False
        return (self._loopback and _is_loopback(page[1])) or page == _place(f"{_scheme(scope)}://{_header(scope, b'host')}")


class _Gate:
    """What the headers say about the request itself: its content type, and whose key it carries."""

    def __init__(self, app: ASGIApp, callers: tuple[Caller, ...], loopback: bool, formats: Mapping[str, RequestFormat]) -> None:
        self._app = app
        self._formats = formats
        self._callers = callers
        self._loopback = loopback

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        try:
            if scope["type"] == "http":
                self._admit(scope)
        except RequestRefused as error:
            trace(error, scope)
            challenge = CHALLENGE if error.status == 401 else None
            return refuse(error, request_id(scope), send, challenge, format=self._formats.get(scope["path"], NATIVE))
        return self._app(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        fields = _fields(scope)
        if scope["method"] == "POST" and (b"origin" in fields or b"sec-fetch-site" in fields):
            kind = (_header(scope, b"content-type") or "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise _forbidden("A page must send its chat with the content type application/json.")
        live = scope["path"].rstrip("/") == "/live"
        if not self._callers:
            if live and not self._loopback:
                raise _forbidden("/live shows everybody's streams: it wants a key with live: true, and this gateway has no keys.")
        elif scope["path"] not in KEYLESS:
            found = self._caller(scope)
            if found is None:
                raise RequestRefused("unauthorized", NO_KEY)
            if live and not found.live:
                raise _forbidden("/live shows everybody's streams: it wants a key with live: true.")
            scope["gateway.caller"] = found

    def _caller(self, scope: Scope) -> Caller | None:
        """Every entry is compared with every key sent, so that the time tells nothing."""
        found = None
        for key in _keys(scope):
            digest = hashlib.sha256(key).digest()
            for one in self._callers:
                if hmac.compare_digest(digest, one.digest):
                    found = found or one
        return found


async def refuse(
    error: GatewayError, request_id: str, send: Send, headers: dict[str, str] | None = None, *, format: RequestFormat = NATIVE
) -> None:
    """An error as the whole answer, outside of any stream."""
    status, fields, body = document(error, request_id, headers, format=format)
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def document(
    error: GatewayError, request_id: str, headers: dict[str, str] | None = None, *, format: RequestFormat = NATIVE
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of an error that is the whole answer."""
    refusal = format.refusal(error, request_id)
    fields = {
        "content-type": refusal.content_type,
        "content-length": str(len(refusal.body)),
        "cache-control": "no-store",
        "x-request-id": request_id,
        **dict(refusal.headers),
        **(headers or {}),
    }
    if error.retry_after is not None and error.status in LATER:
        fields["retry-after"] = str(math.ceil(error.retry_after))
    if error.cause.code == "shutdown":
        fields["connection"] = "close"
    return refusal.status, [(name.encode(), value.encode()) for name, value in fields.items()], refusal.body


class Trace:
    """A log line for what is refused before it is a chat; a few a second, the next one after them counts those left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = 0.0
        self._lines = 0
        self._left_out = 0

    def __call__(self, error: GatewayError, scope: Scope | None = None) -> None:
        now = self._clock()
        if now - self._since >= 1:
            self._since, self._lines = now, 0
        if self._lines >= TRACES:
            self._left_out += 1
            return
        self._lines += 1
        more = f" ({self._left_out} more were refused before this)" if self._left_out else ""
        self._left_out = 0
        LOG.info("refused with %d: %s%s%s", error.status, error.message, _whence(scope) if scope else "", more)


trace = Trace()


def _whence(scope: Scope) -> str:
    name = "Origin" if _header(scope, b"origin") is not None else "Host"
    value = _header(scope, name.lower().encode()) or ""
    return f" {name}: {value[:LONGEST_TRACED]!r}{'…' if len(value) > LONGEST_TRACED else ''}"


def _forbidden(sentence: str) -> RequestRefused:
    return RequestRefused("forbidden_origin", sentence)


def _keys(scope: Scope) -> list[bytes]:
    """What was sent as a key: SDKs that know both headers may fill both."""
    scheme, _, token = (_header(scope, b"authorization") or "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    plain = (_header(scope, b"x-api-key") or "").strip()
    return [key.encode("latin-1") for key in (bearer, plain) if key]


def _fields(scope: Scope) -> dict[bytes, bytes]:
    """The request's header fields by name, of each name the first; its list is looked through once."""
    fields: dict[bytes, bytes] | None = scope.get("gateway.fields")
    if fields is None:
        fields = scope["gateway.fields"] = dict(reversed(scope["headers"]))
    return fields


def _header(scope: Scope, name: bytes) -> str | None:
    value = _fields(scope).get(name)
    return None if value is None else value.decode("latin-1")


def _scheme(scope: Scope) -> str:
    """The one that the browser used, where a proxy in front speaks TLS. No page can send this header to a gateway that is not its own
    without asking first."""
    return _header(scope, b"x-forwarded-proto") or str(scope["scheme"])


def _place(origin: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an http(s) origin."""
    parts = ORIGIN.fullmatch(origin)
    if parts is None:
        return None
    scheme = parts["scheme"].lower()
    return scheme, parts["host"].lower(), int(parts["port"] or PORTS[scheme])


@lru_cache(maxsize=16)  # of at most HEAD_LIMIT each
def _is_local(host: bytes | None) -> bool:
    """Whether a Host header names this machine."""
    parts = HOST.fullmatch((host or b"").decode("latin-1"))
    return parts is not None and _is_loopback(parts["host"].lower())


def _is_loopback(hostname: str) -> bool:
    """A name that every machine has for itself. Any address of the kind may be the one listened on, and none can be rebound."""
    if hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname.strip("[]")).is_loopback
    except ValueError:
        return False
