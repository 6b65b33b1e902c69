"""The routes: HTTP requests become answers. What may be configured arrives as one `Wiring`."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gateway import json_text
from gateway.access import Access, caller, refuse, request_id
from gateway.admission import Admission
from gateway.answer import Answer
from gateway.chat import ChatRequest
from gateway.deadlines import Facts
from gateway.errors import GatewayError, RequestRefused
from gateway.formats import AnswerFormat
from gateway.formats.native import parse
from gateway.formats.whole import WHOLE_MESSAGE, WHOLE_TEXT
from gateway.front_page import front_page
from gateway.generation import Generation, Upstreams
from gateway.routing import Caller, Router
from gateway.telemetry import Feed, Live, StreamRecord, emit
from gateway.wiring import ANSWERS, Wiring

BODY_LIMIT = 10 * 1024 * 1024  # bytes of a request
BODY_TIME = 60.0  # seconds in which it must have arrived
STARTED = int(time.time())


class Gateway:
    """What a process holds beside its configuration: connections, slots, the answers under way."""

    def __init__(self, wiring: Wiring, transports: Mapping[str, httpx.AsyncBaseTransport]) -> None:
        self.wiring = wiring
        self.transports = transports
        self.upstreams = Upstreams(transports)
        self.admission = Admission(wiring.access.max_streams)
        self.shares = {one: self.admission.share(one.max_streams) for one in wiring.access.callers}
        self.live = Live()
        self.answers: set[Answer] = set()

    async def chat(self, request: Request) -> Response | Answer:
        """`POST /chat`: everything that can be refused is refused here; nothing is opened before the answer runs."""
        who = caller(request.scope)
        record = StreamRecord(request_id(request.scope), "native", "", time.monotonic(), caller=who.name if who else None)
        try:
            body = await _body(request)
            record.began = time.monotonic()
            asked = parse(body)
            record.model = asked.model
            return self._answer(asked, request.query_params.get("format", "native"), record, who)
        except ClientDisconnect:
            record.outcome = "client_disconnected"
            self._refused(record, None)
            return Response(status_code=400)  # nobody will see it
        except RequestRefused as error:
            self._refused(record, error)
            return _Refusal(error, record.request_id)

    def _answer(self, asked: ChatRequest, format_name: str, record: StreamRecord, who: Caller | None) -> Answer:
        answer_format = _answer_format(asked, format_name)
        record.format = answer_format.name
        model = self._router(who).resolve(asked.model)
        facts = Facts(began=record.began, commits=asked.stream)
        return Answer(
            Generation(asked, model, self.upstreams, facts, record),
            record,
            answer_format=answer_format,
            encoder=answer_format.encoder(),
            timeouts=model.timeouts,
            streaming=self.wiring.streaming,
            admission=self.shares[who] if who else self.admission,
            live=self.live,
            open_answers=self.answers,
        )

    def _router(self, who: Caller | None) -> Router:
        """The models that a caller may use."""
        return self.wiring.router if who is None or who.models is None else self.wiring.router.only(who.models)

    def _refused(self, record: StreamRecord, error: RequestRefused | None) -> None:
        if error is not None:
            record.outcome, record.error, record.status = "refused", error, error.status
        record.ended = time.monotonic()
        emit(record, self.live)

    async def models(self, request: Request) -> JSONResponse:
        """`GET /v1/models`: what the caller may use, in one shape that both official SDKs read."""
        names = self._router(caller(request.scope)).names()
        rows = [
            {
                "id": name,
                "object": "model",
                "type": "model",
                "created": STARTED,
                "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED)),
                "owned_by": "gateway",
                "display_name": name,
            }
            for name in names
        ]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return JSONResponse({"object": "list", "data": rows, "has_more": False, **ends})

    async def readyz(self) -> JSONResponse:
        stopping = self.admission.stopping
        return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)

    async def live_feed(self) -> Response:
        """`GET /live`: the records of finished streams as they happen."""
        from sse_starlette import EventSourceResponse  # here: nobody else pays for its import

        return EventSourceResponse(_Lines(self.live.subscribe()), ping=15, sep="\n", headers={"x-accel-buffering": "no"})


class _Lines:
    """A feed as server-sent events."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __aiter__(self) -> "_Lines":
        return self

    async def __anext__(self) -> dict[str, str]:
        return {"event": "stream", "data": json_text.write(await anext(self._feed)).decode()}

    async def aclose(self) -> None:
        await self._feed.aclose()


class _Refusal(Response):
    """A `RequestRefused` in the native format."""

    def __init__(self, error: GatewayError, request_id: str, headers: dict[str, str] | None = None) -> None:
        self._error, self._request_id, self._fields = error, request_id, headers
        self.background = None
        self.status_code = error.status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await refuse(self._error, self._request_id, send, self._fields)


def create_app(gateway: Gateway) -> Access:
    """The ASGI application, access rules around it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for transport in gateway.transports.values():
            await transport.aclose()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan)
    app.add_route("/chat", gateway.chat, methods=["POST"])  # type: ignore[arg-type]  # an Answer is an ASGI response
    app.add_api_route("/v1/models", gateway.models, methods=["GET"])
    app.add_api_route("/live", gateway.live_feed, methods=["GET"], response_model=None)
    app.add_api_route("/readyz", gateway.readyz, methods=["GET"])
    app.add_api_route("/healthz", _healthz, methods=["GET"])
    app.add_api_route("/", _front_page(gateway.wiring), methods=["GET"], response_class=HTMLResponse)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(Exception, _exception)
    access, loopback = gateway.wiring.access, gateway.wiring.server.loopback
    return Access(app, access.origins, access.callers, loopback=loopback)


async def _healthz() -> JSONResponse:
    return JSONResponse({"status": "ok"})


def _front_page(wiring: Wiring) -> Any:
    # The page wants no key, so it says nothing that one is needed for.
    names = ("/v1/models, with your key",) if wiring.access.callers else wiring.router.names()

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(front_page(str(request.base_url).rstrip("/"), names))

    return page


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    method, path, headers = request.method, request.url.path, dict(error.headers or {})
    if error.status_code == 405:
        refusal = RequestRefused("method", f"{path} does not take {method}; it takes {headers.get('Allow', 'another method')}.")
    else:
        refusal = RequestRefused("not_here", f"There is nothing at {path[:200]}: chats are posted to /chat.")
    return _Refusal(refusal, request_id(request.scope), headers)


async def _exception(request: Request, error: Exception) -> Response:
    return _Refusal(GatewayError("internal", "The gateway failed; the log says how."), request_id(request.scope))


async def _body(request: Request) -> bytes:
    """The whole body, within its limits; `RequestRefused` beyond them."""
    too_large = RequestRefused("too_large", f"The request is larger than {BODY_LIMIT // 2**20} MiB: send less history or smaller images.")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > BODY_LIMIT:
        raise too_large
    body = bytearray()
    with anyio.move_on_after(BODY_TIME) as limit:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_LIMIT:
                raise too_large
    if limit.cancelled_caught:
        raise RequestRefused("invalid_request", f"The request's body did not arrive within {BODY_TIME:g} s.", status=408)
    return bytes(body)


def _answer_format(asked: ChatRequest, name: str) -> AnswerFormat:
    if name not in ANSWERS:
        raise RequestRefused("unsupported", f"There is no format {name[:40]!r} here: use {', '.join(ANSWERS)}.")
    if asked.stream:
        return ANSWERS[name]
    if name == "ndjson":
        raise RequestRefused("invalid_request", "format=ndjson is a stream: it cannot be had with stream: false.")
    return WHOLE_TEXT if name == "text" else WHOLE_MESSAGE
