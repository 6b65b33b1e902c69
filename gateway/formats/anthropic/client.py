"""Claude's own clients: the native events without what is the gateway's, and errors in Claude's words.

https://docs.anthropic.com/en/docs/build-with-claude/streaming · https://docs.anthropic.com/en/api/errors

Deliberate oddities:
* In `details.error_code`, where Claude has a code since late 2026, stands the provider's own, else the gateway's: SDKs act on Claude's.
* A status above 499 says `retry` to every SDK. Where nothing would come of it, `x-should-retry: false` says so.
* Of a `reset` nothing can be told: there is no word for "forget that". None is made for this format.
"""

from typing import Any

from gateway import json_text, sse
from gateway.errors import GatewayError
from gateway.events import (
    NAMES,
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    Event,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    UnknownEvent,
    encode,
    encode_deltas,
)
from gateway.formats import UNASKED, AnswerFormat, Asked, Headers, Parsed, Refusal, hopeless
from gateway.formats.anthropic.parse import NAME, parse
from gateway.formats.whole import Document
from gateway.json_text import Json

UNASKED_FOR = frozenset({"estimated"})  # keys of a usage that are the gateway's own
TOLD_ONCE = frozenset({"cache_creation", "service_tier", "inference_geo"})  # keys of a usage that Claude tells in message_start alone
OWN_IN_MESSAGE = frozenset({"raw_stop_reason", "stats"})  # and of a message
OWN_IN_BLOCK = frozenset({"invalid_input"})  # and of a content block


class ClaudeClient:
    """The request's and the answer's side in one."""

    name = NAME
    content_type = "text/event-stream; charset=utf-8"
    document_type = "application/json"

    @property
    def answer(self) -> AnswerFormat:
        return self

    def parse(self, body: bytes, headers: Headers = ()) -> Parsed:
        return parse(body, headers)

    def refusal(self, error: GatewayError, request_id: str, *, partial: bool = False, message: Json | None = None) -> Refusal:
        body = _failure(error.event(request_id, partial=partial))
        if message is not None:
            body["partial_message"] = message
        headers = [("request-id", request_id)]
        if hopeless(error):
            headers.append(("x-should-retry", "false"))
        return Refusal(error.status, json_text.write(body), tuple(headers))

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return (("request-id", asked.request_id),)

    def encoder(self, asked: Asked = UNASKED) -> "ClaudeEncoder":
        return ClaudeEncoder()

    def document(self, asked: Asked = UNASKED) -> Document:
        return Document(lambda message, _: json_text.write(_plain(message)), _plain)


class ClaudeEncoder:
    """Every event as `event:` and one line of `data:`."""

    partial: Json | None = None

    def __init__(self) -> None:
        self._begun: Json = {}  # the usage of message_start

    def feed(self, events: list[Event]) -> bytes:
        if len(events) > 1 and (lines := encode_deltas(events)) is not None:
            return sse.alike(_DELTA, lines)
        pieces: list[bytes] = []
        for event in events:
            if type(event) is ContentBlockDelta:  # nearly all are
                pieces += (_DELTA, json_text.write(event), b"\n\n")
                continue
            match event:
                case ContentBlockStart() | Ping():
                    pieces += (_PREFIXES[type(event)], encode(event), b"\n\n")
                case MessageStart(message=message):
                    self._begun = message["usage"]
                    pieces += (_PREFIXES[MessageStart], encode(event), b"\n\n")
                case ContentBlockStop(index=index):
                    pieces.append(_STOP % index)
                case MessageDelta(delta=delta, usage=usage, rest=rest):
                    plain = MessageDelta(_without(delta, OWN_IN_MESSAGE), self._new(usage), rest)
                    pieces += (_PREFIXES[MessageDelta], encode(plain), b"\n\n")
                case MessageStop():
                    pieces.append(_LAST)
                case UnknownEvent():
                    pieces += (b"event: %b\ndata: " % event.name.encode(), encode(event), b"\n\n")
                case Error():
                    pieces.append(_frame(_failure(event)))
                case Abort(reason=reason):
                    pieces.append(_frame(_error("api_error", f"The answer was {reason}.", "stopped", None)))
                case Reset():
                    pass
        return b"".join(pieces)

    def _new(self, usage: Json) -> Json:
        """Without what message_start told, as Claude does: LangChain counts otherwise where it is told again."""
        told = {key for key in TOLD_ONCE & usage.keys() if key in self._begun and self._begun[key] == usage[key]}
        return _without(usage, UNASKED_FOR | told)

    def heartbeat(self) -> bytes:
        return _HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return self.feed([error.event(request_id, partial=partial)])


def _failure(event: Error) -> Json:
    error = event.error
    own = error.provider_code if error.provider_code != error.type else None
    return _error(error.type, error.message, own or error.code, event.request_id)


def _error(kind: str, message: str, code: str, request_id: str | None) -> Json:
    error = {"type": kind, "message": message, "details": {"error_code": code}}
    return {"type": "error", "error": error, "request_id": request_id}


def _frame(error: Json) -> bytes:
    return b"event: error\ndata: %b\n\n" % json_text.write(error)


def _plain(message: Json) -> Json:
    """A message as Claude would have sent it."""
    plain = _without(message, OWN_IN_MESSAGE)
    plain["content"] = [_without(block, OWN_IN_BLOCK) for block in message["content"]]
    plain["usage"] = _without(message["usage"], UNASKED_FOR)
    return plain


def _without(value: Json, keys: frozenset[str]) -> Json:
    return {key: item for key, item in value.items() if key not in keys}


_PREFIXES: dict[Any, bytes] = {kind: b"event: %b\ndata: " % name.encode() for kind, name in NAMES.items()}
_DELTA = _PREFIXES[ContentBlockDelta]
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_LAST = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_HEARTBEAT = ClaudeEncoder().feed([Ping()])

CLAUDE_CLIENT = ClaudeClient()
