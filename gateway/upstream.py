"""ONE attempt at a provider: the request goes out, the status comes back, the body arrives in pieces.

Runs on an httpx transport called directly, without a client around it: no redirects, no cookies, no environment proxies.
What httpx raises is translated here, once.
"""

import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

import anyio
import httpx

from gateway import json_text
from gateway.errors import UpstreamFailed
from gateway.formats import Provider, Target, UpstreamRequest
from gateway.http1 import Fields, Http1Transport, Origin, Wire, head_lines, origin_of
from gateway.refusals import refused_by_status, tidy

SLICE = 64 * 1024  # bytes handled before the loop gets its turn
ERROR_BODY_LIMIT = 64 * 1024  # bytes of a refusal that are read,
ERROR_BODY_TIME = 2.0  # seconds at most
DRAIN_LIMIT = 64 * 1024  # bytes that may follow a finished answer,
DRAIN_TIME = 0.1  # seconds at most, so that the connection can be kept
CLOSE_TIME = 1.0  # seconds that closing may take, shielded

FOREIGN = (httpx.HTTPError, httpx.InvalidURL, OSError)


@dataclass(slots=True)
class Exchange:
    """An answer under way: its head, and its body through `pieces`."""

    provider: Provider
    content_type: str
    encoding: str
    stream: AsyncIterator[bytes]
    began: bool = False  # some body byte came

    @property
    def complete(self) -> bool:
        """All of it has been read, and closing waits for nothing: only our own transport can tell."""
        return getattr(self.stream, "complete", False)


@asynccontextmanager
async def opened(
    transport: httpx.AsyncBaseTransport, provider: Provider, request: UpstreamRequest, *, connect: float | None
) -> AsyncIterator[Exchange]:
    """The exchange, once its head says 2xx; leaving ends it. `UpstreamFailed` for anything else. `connect` in seconds."""
    try:
        status, fields, stream = await _send(transport, provider, request, connect)
    except FOREIGN as error:
        raise _translated(error, provider) from error
    encoding = _field(fields, b"content-encoding").strip().lower()
    exchange = Exchange(provider, _field(fields, b"content-type"), "" if encoding == "identity" else encoding, aiter(stream))
    try:
        if not 200 <= status < 300:
            if status == 407:
                raise _kept_out(407, provider.name)
            body = await _refusal_body(exchange)
            headers = dict(httpx.Headers(fields).items())
            now = datetime.fromtimestamp(time.time(), UTC)
            raise refused_by_status(status, headers, body, provider=provider.name, secrets=provider.secrets, now=now)
        yield exchange
    finally:
        if exchange.complete:
            await stream.aclose()
        else:
            with anyio.move_on_after(CLOSE_TIME, shield=True):
                await stream.aclose()


async def pieces(exchange: Exchange) -> AsyncGenerator[bytes, None]:
    """The body, decompressed, ≤ 64 KiB at a time, the loop having its turn in between."""
    inflater = _Inflater(exchange) if exchange.encoding else None
    handled = 0
    while (read := await _next(exchange)) is not None:
        exchange.began = True
        for piece in inflater.feed(read) if inflater else _slices(read):
            yield piece
            handled += len(piece)
            if handled > SLICE // 2:
                handled = 0
                await anyio.lowlevel.checkpoint()
    if inflater:
        inflater.close()


async def drain(exchange: Exchange) -> None:
    """Reads what follows a finished answer, within bounds, so that the connection can be used again."""
    if exchange.complete:
        return
    left = DRAIN_LIMIT
    with anyio.move_on_after(DRAIN_TIME):
        try:
            while left >= 0 and (read := await _next(exchange)) is not None:
                left -= len(read)
        except UpstreamFailed:
            pass  # the answer is finished: how the connection ends is nobody's business any more


async def first_model(transport: httpx.AsyncBaseTransport, target: Target, *, connect: float | None) -> str:
    """The first model that an OpenAI-compatible provider lists."""
    provider = target.provider
    url = f"{provider.base_url}/models"
    request = UpstreamRequest(url, (*provider.credentials, ("accept-encoding", "identity")), b"")
    async with opened(transport, provider, request, connect=connect) as exchange:
        body = await _refusal_body(exchange)
    try:
        return str(json_text.read(body)["data"][0]["id"])
    except (json_text.MalformedJson, LookupError, TypeError):
        sentence = f"Provider {provider.name} lists no models: name one in OPENAI_MODEL or in the configuration."
        raise UpstreamFailed("unavailable", sentence, provider=provider.name) from None


async def _next(exchange: Exchange) -> bytes | None:
    try:
        return await exchange.stream.__anext__()
    except StopAsyncIteration:
        return None
    except FOREIGN as error:
        raise _translated(error, exchange.provider, began=exchange.began) from error


async def _send(
    transport: httpx.AsyncBaseTransport, provider: Provider, request: UpstreamRequest, connect: float | None
) -> tuple[int, Fields, httpx.AsyncByteStream]:
    """One fresh try if a *reused* connection was dead before any byte of the answer came."""
    standing = _standing("POST" if request.body else "GET", request.url, tuple(provider.query.items()), request.headers)
    for last in (False, True):
        fresh = False

        async def trace(event: str, _: Mapping[str, object]) -> None:
            nonlocal fresh
            fresh = fresh or event in ("connection.connect_tcp.started", "answer.began")

        try:
            if isinstance(transport, Http1Transport):
                return await transport.exchange(standing.wire(request.body), connect, trace)
            extensions = {"timeout": {"connect": connect, "read": None, "write": None, "pool": None}, "trace": trace}
            outgoing = httpx.Request(standing.method, standing.url, headers=standing.headers, content=request.body, extensions=extensions)
            response = await transport.handle_async_request(outgoing)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if fresh or last:
                raise
        else:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            return response.status_code, [(name.lower(), value) for name, value in response.headers.raw], response.stream
    raise AssertionError("unreachable")


async def _refusal_body(exchange: Exchange) -> bytes:
    body = b""
    with anyio.move_on_after(ERROR_BODY_TIME):
        try:
            async for piece in pieces(exchange):
                body += piece
                if len(body) >= ERROR_BODY_LIMIT:
                    break
        except UpstreamFailed:
            pass  # the status says enough
    return body[:ERROR_BODY_LIMIT]


def _field(fields: Fields, name: bytes) -> str:
    """Twice sent, it is a list (https://www.rfc-editor.org/rfc/rfc9110#section-5.3)."""
    return ", ".join([value.decode("latin-1") for other, value in fields if other == name])


def _slices(read: bytes) -> Iterator[bytes]:
    if len(read) <= SLICE:
        yield read
        return
    for start in range(0, len(read), SLICE):
        yield read[start : start + SLICE]


class _Inflater:
    """One gzip layer (we ask for none, some send it all the same); any other coding, or two of them, is malformed."""

    def __init__(self, exchange: Exchange) -> None:
        if exchange.encoding not in ("gzip", "x-gzip"):
            sentence = f"Provider {exchange.provider.name} answered with a content-encoding that was not asked for."
            raise UpstreamFailed("malformed", sentence, provider=exchange.provider.name)
        self._provider = exchange.provider.name
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
    return replace(target, model=model)
