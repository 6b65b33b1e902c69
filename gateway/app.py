"""The routes: HTTP requests become answers. What may be configured arrives as one `Wiring`."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import anyio
import httpx
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import json_text, model_list
from gateway.access import Access, caller, refuse, request_id
from gateway.admission import Admission, stopping
from gateway.answer import Answer, Written
from gateway.count_tokens import Count
from gateway.deadlines import Facts
from gateway.errors import GatewayError, RequestRefused, internal
from gateway.formats import AnswerFormat, Asked, Parsed, RequestFormat
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI_CLIENT
from gateway.front_page import front_page
from gateway.generation import Generation, Upstreams
from gateway.json_text import Json
from gateway.routing import Caller, Router
from gateway.rules import ruled
from gateway.telemetry import Feed, Live, StreamRecord, emit
from gateway.wiring import ALSO, ANSWERS, COUNTS, REQUESTS, Wiring

BODY_LIMIT = 10 * 1024 * 1024  # bytes of a request
BODY_TIME = 60.0  # seconds in which it must have arrived
LONGEST_PATH_REPEATED = 200  # characters, in a refusal
STARTED = int(time.time())
COUNT = "/v1/messages/count_tokens"
VERSIONED = ("/v1/messages", COUNT, "/v1/chat/completions", "/v1/models")
WITHOUT_V1 = frozenset(path.removeprefix("/v1") for path in VERSIONED)
RESPONSES = "/v1/responses"  # of OpenAI's, which some of its clients ask unless they are told otherwise
FORMATS: dict[str, RequestFormat] = {**REQUESTS, COUNT: CLAUDE_CLIENT, RESPONSES: OPENAI_CLIENT}  # by path: in which errors are told
NO_RESPONSES = (
    "The Responses API is not here: ask /v1/chat/completions. In OpenAI's SDKs that is client.chat.completions; "
    'in the AI SDK createOpenAI(…).chat("model"); in the Agents SDK OpenAIChatCompletionsModel; in LangChain use_responses_api=False.'
)

LOG = logging.getLogger("gateway")


class Gateway:
    """What a process holds beside its configuration: connections, slots, the answers under way."""

    def __init__(self, wiring: Wiring, transports: Mapping[str, httpx.AsyncBaseTransport]) -> None:
        self.wiring = wiring
        self.transports = transports
        self.upstreams = Upstreams(transports)
        self.admission = Admission(wiring.access.max_streams)
        self.shares = {one: self.admission.share(one.max_streams) for one in wiring.access.callers}
        self._routers = {one: wiring.router.only(one.models) for one in wiring.access.callers if one.models is not None}
        self.live = Live()
        self.answers: set[Answer] = set()
        self._unread: set[anyio.CancelScope] = set()  # requests whose bodies are being read

    def chat(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """A chat in one of `REQUESTS`, an ASGI application: what can be refused is refused before anything is opened."""
        return self._post(scope, receive, send, REQUESTS[scope["path"]], self._answer)

    def count_tokens(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """A chat that is not answered, but counted."""
        return self._post(scope, receive, send, CLAUDE_CLIENT, self._count)

    async def _post(self, scope: Scope, receive: Receive, send: Send, asks: RequestFormat, answering: "Answering") -> None:
        answer = await self._read(scope, receive, asks, answering)
        await answer(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, asks: RequestFormat, answering: "Answering") -> ASGIApp:
        if scope["method"] != "POST":
            wrong = _wrong_method(scope["method"], scope["path"], "POST")
            return _Refusal(wrong, request_id(scope), {"Allow": "POST"}, format=asks)
        who = caller(scope)
        record = StreamRecord(request_id(scope), asks.answer.name, "", time.monotonic(), caller=who.name if who else None)
        try:
            if self.admission.stopping:
                raise stopping()
            body = await _body(scope, receive, self._unread)
            if body is None:
                raise stopping()
            record.began = time.monotonic()
            asks = _asked_in(scope["path"], body, asks)
            record.format = asks.answer.name
            parsed = asks.parse(body, scope["headers"])
            record.model = parsed.request.model
            record.warnings.extend(parsed.warnings)
            return answering(scope, parsed, asks, record, who)
        except ClientDisconnect:
            record.outcome = "client_disconnected"
            self._refused(record, None)
            return Response(status_code=400)  # nobody will see it
        except RequestRefused as error:
            self._refused(record, error)
            return _Refusal(error, record.request_id, format=asks)
        except Exception:  # ours: it must not end as a torn connection
            LOG.exception("a request failed")
            return _Refusal(internal(), record.request_id, format=asks)

    def refuse_unread(self) -> None:
        """The gateway stops: who is still sending a chat is told so."""
        for reading in tuple(self._unread):
            reading.cancel()

    def _answer(self, scope: Scope, parsed: Parsed, asks: RequestFormat, record: StreamRecord, who: Caller | None) -> Answer:
        request, wished = parsed.request, _parameter(scope, "format")
        answer_format = asks.answer if wished is None else _answer_format(wished)
        record.format = answer_format.name
        asked = Asked(record.request_id, int(time.time()), parsed.include_usage, parsed.continues)
        written = _written(answer_format, asked, stream=request.stream)
        model = self._router(who).resolve(request.model)
        request, warnings = ruled(request, model.rules, model.name)
        record.warnings.extend(warnings)
        facts = Facts(began=record.began, commits=request.stream)
        return Answer(
            Generation(request, model, self.upstreams, facts, record),
            record,
            request_format=asks,
            written=written,
            timeouts=model.timeouts,
            streaming=self.wiring.streaming,
            admission=self.shares[who] if who else self.admission,
            live=self.live,
            open_answers=self.answers,
        )

    def _count(self, scope: Scope, parsed: Parsed, asks: RequestFormat, record: StreamRecord, who: Caller | None) -> Count:
        model = self._router(who).resolve(parsed.request.model)
        request, _ = ruled(parsed.request, model.rules, model.name)
        admission = self.shares[who] if who else self.admission
        return Count(request, model, COUNTS, self.transports, asks, record.request_id, admission, self._unread)

    def _router(self, who: Caller | None) -> Router:
        """The models that a caller may use."""
        return self.wiring.router if who is None or who.models is None else self._routers[who]

    def _refused(self, record: StreamRecord, error: RequestRefused | None) -> None:
        if error is not None:
            record.outcome, record.error, record.status = "refused", error, error.status
        record.ended = time.monotonic()
        emit(record, self.live)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`: what the caller may use."""
        names = self._router(caller(request.scope)).names()
        return _listed(request, lambda: model_list.page(names, request.query_params, STARTED))

    async def model(self, request: Request, first: str, rest: str) -> Response:
        """`GET /v1/models/{id}`: one of them."""
        router = self._router(caller(request.scope))
        return _listed(request, lambda: model_list.entry(router.resolve(first + rest).name, STARTED))

    async def readyz(self) -> JSONResponse:
        stopping = self.admission.stopping
        return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)

    async def live_feed(self) -> Response:
        """`GET /live`: the records of finished streams as they happen."""
        from sse_starlette import EventSourceResponse  # here: nobody else pays for its import

        return EventSourceResponse(_Lines(self.live.subscribe()), ping=15, sep="\n", headers={"x-accel-buffering": "no"})


Answering = Callable[[Scope, Parsed, RequestFormat, StreamRecord, Caller | None], ASGIApp]
"""What becomes of a request that was read; `RequestRefused` if nothing does."""


class _Lines:
    """A feed as server-sent events; before them an empty piece, with which the head leaves at once."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._begun = False

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> dict[str, str] | bytes:
        if not self._begun:
            self._begun = True
            return b""
        return {"event": "stream", "data": json_text.write(await anext(self._feed)).decode()}

    async def aclose(self) -> None:
        await self._feed.aclose()


class _Refusal(Response):
    """An error that is the whole answer."""

    def __init__(
        self, error: GatewayError, request_id: str, headers: dict[str, str] | None = None, *, format: RequestFormat = NATIVE
    ) -> None:
        self._error, self._request_id, self._fields, self._format = error, request_id, headers, format
        self.background = None
        self.status_code = error.status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await refuse(self._error, self._request_id, send, self._fields, format=self._format)


def _listed(request: Request, document: Callable[[], Json]) -> Response:
    try:
        return JSONResponse(document())
    except RequestRefused as error:
        known_as = request_id(request.scope)
        return _Refusal(error, known_as, {"request-id": known_as})  # where Claude's SDKs look for it


def create_app(gateway: Gateway) -> Access:
    """The ASGI application, access rules around it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for transport in gateway.transports.values():
            await transport.aclose()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    app.add_api_route("/v1/models", gateway.models, methods=["GET"], response_model=None)
    # An id may hold slashes; in two parts, since a `path` alone may be empty.
    app.add_api_route("/v1/models/{first}{rest:path}", gateway.model, methods=["GET"], response_model=None)
    app.add_api_route("/live", gateway.live_feed, methods=["GET"], response_model=None)
    app.add_api_route("/readyz", gateway.readyz, methods=["GET"])
    app.add_api_route("/healthz", _healthz, methods=["GET"])
    app.add_api_route("/", _front_page(gateway.wiring), methods=["GET"], response_class=HTMLResponse)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _exception)
    access, loopback = gateway.wiring.access, gateway.wiring.server.loopback
    return Access(_Routes(gateway, app), access.origins, access.callers, loopback=loopback, formats=FORMATS)


async def _healthz() -> JSONResponse:
    return JSONResponse({"status": "ok"})


def _front_page(wiring: Wiring) -> Any:
    # The page wants no key, so it says nothing that one is needed for.
    names = ("/v1/models, with your key",) if wiring.access.callers else wiring.router.names()

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(front_page(str(request.base_url).rstrip("/"), names, keyed=bool(wiring.access.callers)))

    return page


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path, headers = request.method, request.url.path, dict(error.headers or {})
    if path == RESPONSES or path.startswith(f"{RESPONSES}/"):
        return _Refusal(RequestRefused("not_built", NO_RESPONSES), request_id(request.scope), format=OPENAI_CLIENT)
    if error.status_code == 405:
        refusal = _wrong_method(method, path, headers.get("Allow", "another method"))
    else:
        refusal = RequestRefused("not_here", f"There is nothing at {_shown(path)}: {_remedy(path)}.")
    return _Refusal(refusal, request_id(request.scope), headers)


def _remedy(path: str) -> str:
    """Most who are lost have an SDK whose base URL has a part too few or too many: what it was asked for tells which."""
    if path in WITHOUT_V1:
        return "your client's base URL wants /v1 at its end"
    for right in VERSIONED:
        if path.endswith(right):
            return f"take {_shown(path.removesuffix(right))} off your client's base URL, which already asks for {right}"
    if path.endswith("/chat/completions"):
        return "the base URL of a client of OpenAI's is this gateway's address and /v1, no more"
    return f"chats are posted to {', '.join(REQUESTS)}"


def _wrong_method(method: str, path: str, right: str) -> RequestRefused:
    return RequestRefused("method", f"{_shown(path)} does not take {_shown(method)}; it takes {right}.")


def _shown(text: str) -> str:
    """A path may be as long as a request's head."""
    return text if len(text) <= LONGEST_PATH_REPEATED else f"{text[:LONGEST_PATH_REPEATED]}…"


async def _exception(request: Request, error: Exception) -> Response:
    return _Refusal(internal(), request_id(request.scope))


async def _body(scope: Scope, receive: Receive, unread: set[anyio.CancelScope]) -> bytes | None:
    """The whole body, within its limits; `RequestRefused` beyond them. Whoever cancels the scope in `unread` gets None."""
    whole = scope.get("extensions", {}).get("gateway", {}).get("whole")
    body: bytes | None = whole() if whole is not None else None
    if body is not None:
        return body  # it is here, so nothing has to be waited for, and no larger than the connection lets come unread
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if length.isdigit() and int(length) > BODY_LIMIT:
        raise _too_large()
    began = time.monotonic()
    with anyio.move_on_after(BODY_TIME) as reading:
        unread.add(reading)
        try:
            return await _pieces(receive)
        finally:
            unread.discard(reading)
    if time.monotonic() - began < BODY_TIME:
        return None
    raise RequestRefused("invalid_request", f"The request's body did not arrive within {BODY_TIME:g} s.", status=408)


async def _pieces(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    left = BODY_LIMIT
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        left -= len(pieces[-1])
        if left < 0:
            raise _too_large()
        if not message.get("more_body", False):
            return b"".join(pieces)


def _too_large() -> RequestRefused:
    return RequestRefused("too_large", f"The request is larger than {BODY_LIMIT // 2**20} MiB: send less history or smaller images.")


def _asked_in(path: str, body: bytes, usual: RequestFormat) -> RequestFormat:
    """The format of a request, where a path takes more than one."""
    known_by, other = ALSO.get(path, (None, usual))
    return other if known_by is not None and known_by(body) else usual


def _parameter(scope: Scope, name: str) -> str | None:
    """The last value of a query parameter."""
    query = scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)).get(name) if query else None


class _Routes:
    """A chat goes straight to its answer: the framework's layers would cost 0.1 ms."""

    def __init__(self, gateway: Gateway, framework: ASGIApp) -> None:
        self._framework = framework
        self._posted: Mapping[str, ASGIApp] = dict.fromkeys(REQUESTS, gateway.chat) | {COUNT: gateway.count_tokens}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        posted = self._posted.get(scope["path"]) if scope["type"] == "http" else None
        return (posted or self._framework)(scope, receive, send)


def _answer_format(name: str) -> AnswerFormat:
    if name not in ANSWERS:
        raise RequestRefused("unsupported", f"There is no format {name[:40]!r} here: use {', '.join(ANSWERS)}.")
    return ANSWERS[name]


def _written(format: AnswerFormat, asked: Asked, *, stream: bool) -> Written:
    if stream:
        return Written(format.encoder(asked), format.content_type, format.headers(asked))
    document = format.document(asked)
    if document is None:
        raise RequestRefused("invalid_request", f"format={format.name} is a stream: it cannot be had with stream: false.")
    return Written(document, format.document_type, format.headers(asked))
