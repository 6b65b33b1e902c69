"""ONE attempt at a provider: the request goes out, the status comes back, the body arrives in pieces.

Runs on an httpx transport called directly, without a client around it: no redirects, no cookies, no environment proxies.
What httpx raises is translated here, once.
"""

import time
import zlib
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import anyio
import httpx
from msgspec import structs

from gateway import json_text
from gateway.errors import UpstreamFailed
from gateway.formats import Provider, Target, UpstreamRequest
from gateway.http1 import DEAD, Body, Http1Transport, Origin, Wire, head_lines, origin_of
from gateway.http1_connection import Fields, Take
from gateway.refusals import refused_by_status, tidy

SLICE = 64 * 1024  # bytes handled before the loop gets its turn
ERROR_BODY_LIMIT = 64 * 1024  # bytes of a refusal that are read,
ERROR_BODY_TIME = 2.0  # seconds at most
DRAIN_LIMIT = 64 * 1024  # bytes that may follow a finished answer,
DRAIN_TIME = 0.1  # seconds at most, so that the connection can be kept
CLOSE_TIME = 1.0  # seconds that closing may take, shielded

FOREIGN = (httpx.HTTPError, httpx.InvalidURL, OSError)


class Exchange:
    """A request and its answer. Entered once the head says 2xx, `UpstreamFailed` for anything else; leaving ends it.

    `connect` in seconds. A class: a generator around each exchange, and one around its body, cost 1 % of a short request.
    """

    content_type: str

    def __init__(self, transport: httpx.AsyncBaseTransport, provider: Provider, request: UpstreamRequest, *, connect: float | None) -> None:
        self._transport, self._provider, self._request, self._connect = transport, provider, request, connect
        self._inflater: _Inflater | None = None
        self._pieces: Iterator[bytes] = iter(())  # of the last read, if it was more than one
        self._handled = 0  # bytes since the loop last had its turn
        self._began = False  # some body byte was read

    async def __aenter__(self) -> "Exchange":
        try:
            status, fields, self._stream = await _send(self._transport, self._provider, self._request, self._connect)
        except FOREIGN as error:
            raise _translated(error, self._provider) from error
        self._own = self._stream if isinstance(self._stream, Body) else None
        self._iterator = aiter(self._stream)
        self.content_type = _field(fields, b"content-type")
        self._encoding = _field(fields, b"content-encoding").strip().lower()
        if not 200 <= status < 300:
            try:
                raise await self._refused(status, fields)
            finally:
                await self._close()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def read(self, take: Take | None = None) -> bytes | None:
        """The next piece of the body, decompressed, ≤ 64 KiB, the loop having its turn in between; None at the end.

        `take` as for `http1.Body.read`, of what needs no decompression; on another transport than our own it is not called.
        """
        if self._handled > SLICE // 2:
            self._handled = 0
            await anyio.lowlevel.checkpoint()
        if self._inflater is None and self._encoding not in ("", "identity"):
            self._inflater = _Inflater(self._provider.name, self._encoding)
        piece = next(self._pieces, None)
        while piece is None:
            try:
                # Not one coroutine in another for each of this: all are woken with the first bytes of an answer.
                read = await (self._iterator.__anext__() if self._own is None else self._own.read(None if self._inflater else take))
            except StopAsyncIteration:
                break
            except FOREIGN as error:
                raise self._broken(error) from error
            if read is None:
                break
            self._began = True
            if self._inflater is None and len(read) <= SLICE:
                piece = read
            else:
                self._pieces = self._inflater.feed(read) if self._inflater else _slices(read)
                piece = next(self._pieces, None)
        if piece is not None:
            self._handled += len(piece)
        elif self._inflater is not None:
            self._inflater.close()
        return piece

    async def drain(self) -> None:
        """Reads what follows a finished answer, within bounds, so that the connection can be used again."""
        if self._complete:
            return
        left = DRAIN_LIMIT
        with anyio.move_on_after(DRAIN_TIME):
            try:
                while left >= 0 and (piece := await self.read()) is not None:
                    left -= len(piece)
            except UpstreamFailed:
                pass  # the answer is finished: how the connection ends is nobody's business any more

    async def beginning(self) -> bytes:
        """What comes of a short body in little time, ≤ 64 KiB; how it ends does not matter."""
        body = b""
        with anyio.move_on_after(ERROR_BODY_TIME):
            try:
                while len(body) < ERROR_BODY_LIMIT and (piece := await self.read()) is not None:
                    body += piece
            except UpstreamFailed:
                pass  # the status says enough
        return body[:ERROR_BODY_LIMIT]

    @property
    def _complete(self) -> bool:
        """All of it has been read, and closing waits for nothing: only our own transport can tell."""
        return self._own is not None and self._own.complete

    def _broken(self, error: Exception) -> UpstreamFailed:
        began = self._began or (self._own is not None and self._own.taken)
        return _translated(error, self._provider, began=began)

    async def _close(self) -> None:
        if self._complete:
            await self._stream.aclose()
        else:
            with anyio.move_on_after(CLOSE_TIME, shield=True):
                await self._stream.aclose()

    async def _refused(self, status: int, fields: Fields) -> UpstreamFailed:
        provider = self._provider
        if status == 407:
            return _kept_out(407, provider.name)
        body = await self.beginning()
        headers = dict(httpx.Headers(fields).items())
        now = datetime.fromtimestamp(time.time(), UTC)
        return refused_by_status(status, headers, body, provider=provider.name, secrets=provider.secrets, now=now)


async def first_model(transport: httpx.AsyncBaseTransport, target: Target, *, connect: float | None) -> str:
    """The first model that an OpenAI-compatible provider lists."""
    provider = target.provider
    url = f"{provider.base_url}/models"
    request = UpstreamRequest(url, (*provider.credentials, ("accept-encoding", "identity")), b"")
    async with Exchange(transport, provider, request, connect=connect) as exchange:
        body = await exchange.beginning()
    try:
        return str(json_text.read(body)["data"][0]["id"])
    except (json_text.MalformedJson, LookupError, TypeError):
        sentence = f"Provider {provider.name} lists no models: name one in OPENAI_MODEL or in the configuration."
        raise UpstreamFailed("unavailable", sentence, provider=provider.name) from None


def _send(
    transport: httpx.AsyncBaseTransport, provider: Provider, request: UpstreamRequest, connect: float | None
) -> Awaitable[tuple[int, Fields, httpx.AsyncByteStream]]:
    standing = _standing("POST" if request.body else "GET", request.url, tuple(provider.query.items()), request.headers)
    if isinstance(transport, Http1Transport):
        return transport.exchange(standing.wire(request.body), connect)
    return _send_foreign(transport, standing, request.body, connect)


async def _send_foreign(
    transport: httpx.AsyncBaseTransport, standing: "_Standing", body: bytes, connect: float | None
) -> tuple[int, Fields, httpx.AsyncByteStream]:
    timeout = {"connect": connect, "read": None, "write": None, "pool": None}
    response = await _unless_dead(transport, standing, body, {"timeout": timeout})
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response.status_code, [(name.lower(), value) for name, value in response.headers.raw], response.stream


async def _unless_dead(
    transport: httpx.AsyncBaseTransport, standing: "_Standing", body: bytes, extensions: dict[str, object]
) -> httpx.Response:
    """One fresh try if a *reused* connection was dead before its answer came, as our own transport does."""
    fresh = False

    async def trace(event: str, _: Mapping[str, object]) -> None:
        nonlocal fresh
        fresh = fresh or event == "connection.connect_tcp.started"

    for last in (False, True):
        fresh, asked = False, {**extensions, "trace": trace}
        outgoing = httpx.Request(standing.method, standing.url, headers=standing.headers, content=body, extensions=asked)
        try:
            return await transport.handle_async_request(outgoing)
        except DEAD:
            if fresh or last:
                raise
    raise AssertionError("unreachable")


def _field(fields: Fields, name: bytes) -> str:
    """Twice sent, it is a list (https://www.rfc-editor.org/rfc/rfc9110#section-5.3)."""
    return ", ".join([value.decode("latin-1") for other, value in fields if other == name])


def _slices(read: bytes) -> Iterator[bytes]:
    for start in range(0, len(read), SLICE):
        yield read[start : start + SLICE]


class _Inflater:
    """One gzip layer (we ask for none, some send it all the same); any other coding, or two of them, is malformed."""

    def __init__(self, provider: str, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip"):
            sentence = f"Provider {provider} answered with a content-encoding that was not asked for."
            raise UpstreamFailed("malformed", sentence, provider=provider)
        self._provider = provider
        self._inflate = zlib.decompressobj(wbits=31)

    def feed(self, read: bytes) -> Iterator[bytes]:
        while read and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(read, SLICE)
            except zlib.error as error:
                raise self._broken() from error
            read = self._inflate.unconsumed_tail
            if piece:
                yield piece

    def close(self) -> None:
        if not self._inflate.eof:
            raise UpstreamFailed("interrupted", f"Provider {self._provider} broke off inside a gzip body.", provider=self._provider)

    def _broken(self) -> UpstreamFailed:
        return UpstreamFailed("malformed", f"Provider {self._provider} sent a gzip body that is none.", provider=self._provider)


def _translated(error: Exception, provider: Provider, *, began: bool = False) -> UpstreamFailed:
    """httpx's exception as ours: before the first body byte the provider was unavailable, after it the stream broke."""
    name = provider.name
    if isinstance(error, httpx.ProxyError) and (status := str(error)[:3]).isdigit():
        return _kept_out(int(status), name)
    # The text may quote what was received.
    what = type(error).__name__ + (f": {text}" if (text := tidy(str(error), provider.secrets)) else "")
    if began:
        cause, sentence = "interrupted", f"The connection to provider {name} broke in mid-answer ({what})."
    elif isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        cause, sentence = "upstream_timeout", f"Provider {name} could not be reached in time ({what})."
    else:
        cause, sentence = "unavailable", f"Provider {name} could not be reached or gave no answer ({what})."
    return UpstreamFailed(cause, sentence, provider=name)


def _kept_out(status: int, provider: str) -> UpstreamFailed:
    """The proxy said no: to CONNECT, or by the one status that only a proxy gives. Its own words are not repeated."""
    if status in (401, 403, 407):
        cause, sentence = "auth", f"The proxy before provider {provider} does not let the gateway through (it answered {status})."
    else:
        cause, sentence = "unavailable", f"The proxy before provider {provider} could not reach it (it answered {status})."
    return UpstreamFailed(cause, sentence, provider=provider)


@dataclass(frozen=True, slots=True)
class _Standing:
    """What is the same in every request of a target: to parse it and write it takes 50 µs."""

    method: str
    url: httpx.URL
    headers: httpx.Headers  # as httpx makes them, `Host` first
    origin: Origin
    lines: bytes

    def wire(self, body: bytes) -> Wire:
        length = b"content-length: %d\r\n\r\n" % len(body) if body else b"\r\n"
        return Wire(self.origin, self.lines + length, body)


@lru_cache(maxsize=1024)
def _standing(method: str, url: str, query: tuple[tuple[str, str], ...], headers: tuple[tuple[str, str], ...]) -> _Standing:
    whole = httpx.URL(url).copy_merge_params(dict(query)) if query else httpx.URL(url)
    fields = httpx.Request("GET", whole, headers=list(headers)).headers
    return _Standing(method, whole, fields, origin_of(whole), head_lines(method, whole, fields))


def named(target: Target, model: str) -> Target:
    return structs.replace(target, model=model)
