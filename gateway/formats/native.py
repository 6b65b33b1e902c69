"""The gateway's own format: the request vocabulary as JSON, the event vocabulary as Server-Sent Events.

A refusal names the field in the caller's words and never repeats a value: it may be part of a prompt.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from gateway import json_text, sse
from gateway.chat import MOST_MESSAGES, ChatRequest, Effort, Message, Role
from gateway.errors import GatewayError, RequestRefused
from gateway.events import NAMES, ContentBlockDelta, Event, Ping, UnknownEvent, encode, encode_deltas
from gateway.formats import UNASKED, AnswerFormat, Asked, Headers, Parsed, Refusal
from gateway.formats.whole import Document
from gateway.json_text import Json

_decoder = msgspec.json.Decoder(ChatRequest)

# What msgspec says of a value of the wrong type, in words. Its own message may quote the value.
AT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)
MISSING = re.compile(r"Object missing required field `(?P<key>\w+)`")
WRONG = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
KNOWN = tuple(key for key in ChatRequest.__struct_fields__ if key != "particulars")
CHOICES = {"role": get_args(Role), "effort": get_args(Effort)}
FORMATS = ("text", "json_object", "json_schema")
BOUNDS = {
    "max_tokens": "expected an integer of at least 1",
    "messages": f"expected 1 to {MOST_MESSAGES} messages",
}


def parse(body: bytes) -> ChatRequest:
    """The request; `RequestRefused` with a sentence that names the field."""
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        json_text.refuse_excess(body)
        request = _decoder.decode(body)
    except json_text.MalformedJson as error:
        raise _refused(f"The body: {error}") from error
    except msgspec.ValidationError as error:
        raise _refused(_sentence(str(error))) from error
    except msgspec.DecodeError as error:
        raise _refused(_no_json(body, str(error))) from error
    if request.particulars is not UNSET:
        raise _refused(_unknown_key("", "particulars"))
    if request.resumable:
        raise RequestRefused("unsupported", "resumable: streams that survive a disconnect are not available here.")
    for problem in _problems(request):
        raise _refused(problem)
    return request


def _problems(request: ChatRequest) -> Iterator[str]:
    """What the types do not say. Lazy: the first problem is the answer."""
    if isinstance(request.system, list):
        yield from _untyped("system", request.system)
    for number, message in enumerate(request.messages):
        if type(message.content) is str and message.role != "tool" and message.tool_use_id is message.tool_call_id is None:
            continue  # most of them
        yield from _message_problems(f"messages[{number}]", message)
    for number, tool in enumerate(request.tools):
        if not _is_text(tool.get("name")):
            yield f"tools[{number}].name: expected a string"
    for key, value in (("tool_choice", request.tool_choice), ("thinking", request.thinking)):
        if value is not None and not _is_text(value.get("type")):
            yield f"{key}.type: expected a string"
    if (wanted := request.response_format) is not None:
        if wanted.get("type") not in FORMATS:
            yield f"response_format.type: expected one of {', '.join(FORMATS)}"
        if wanted.get("type") == "json_schema" and not isinstance(wanted.get("schema"), dict):
            yield "response_format.schema: expected an object"


def _message_problems(path: str, message: Message) -> Iterator[str]:
    if message.role == "tool":
        if not (message.tool_use_id or message.tool_call_id):
            yield f"{path}.tool_use_id: a tool message names the call that it answers (tool_use_id or tool_call_id)"
    elif message.tool_use_id is not None or message.tool_call_id is not None:
        yield f"{path}.{'tool_call_id' if message.tool_use_id is None else 'tool_use_id'}: only a tool message has one"
    if isinstance(message.content, list):
        yield from _untyped(f"{path}.content", message.content)
        for number, block in enumerate(message.content):
            if block["type"] == "tool_use":
                yield from _call_problems(f"{path}.content[{number}]", block)
            elif block["type"] == "tool_result" and not _is_text(block.get("tool_use_id")):
                yield f"{path}.content[{number}].tool_use_id: expected a string"
            elif block["type"] == "text" and not isinstance(block.get("text"), str):
                yield f"{path}.content[{number}].text: expected a string"


def _call_problems(path: str, block: Json) -> Iterator[str]:
    for key in ("id", "name"):
        if not _is_text(block.get(key)):
            yield f"{path}.{key}: expected a string"
    given = block.get("input")
    if isinstance(given, str):
        try:
            given = json_text.read(given) if given.strip() else {}
        except json_text.MalformedJson:
            yield f"{path}.input: the tool's arguments are not JSON"
    if not isinstance(given, dict | None):
        yield f"{path}.input: expected an object"


def _untyped(path: str, blocks: list[Json]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        if not _is_text(block.get("type")):
            yield f"{path}[{number}].type: expected a string"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _sentence(said: str) -> str:
    """msgspec's complaint in the caller's words."""
    found = AT.fullmatch(said)
    what, path = (found["what"], _shown(found["path"] or "")) if found else (said, "")
    if unknown := UNKNOWN.fullmatch(what):
        return _unknown_key(path, unknown["key"])
    if missing := MISSING.fullmatch(what):
        return f"{_join(path, missing['key'])}: required"
    field = path.rpartition(".")[2]
    if what.startswith("Invalid enum value") and field in CHOICES:
        return f"{path}: expected one of {', '.join(CHOICES[field])}"
    if wrong := WRONG.fullmatch(what):
        wanted = [WORDS.get(word, word) for word in wrong["wanted"].split(" | ") if word != "null"]
        return f"{path or 'The body'}: expected {' or '.join(wanted)}, got {WORDS.get(wrong['got'], wrong['got'])}"
    return f"{path or 'The body'}: {BOUNDS.get(path, 'this value cannot be taken')}"


def _unknown_key(path: str, key: str) -> str:
    known = Message.__struct_fields__ if path else KNOWN
    close = get_close_matches(_shown(key), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else f" (known: {', '.join(known)}; provider-specific ones go under extra)" * (not path)
    return f"{_join(path, _shown(key))}: unknown key{hint}"


def _shown(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}…"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _no_json(body: bytes, said: str) -> str:
    if not body.strip():
        return "The body is empty: expected a JSON object"
    try:
        body.decode()
    except UnicodeDecodeError:
        return "The body is not UTF-8"
    try:
        json_text.read(body)
    except json_text.MalformedJson:
        place = re.search(r"\(byte \d+\)", said)
        return f"The body is not JSON{f' {place[0]}' if place else ''}"
    return "The body is not strict JSON: it holds NaN, Infinity, half of a surrogate pair or a raw control character"


def _refused(sentence: str) -> RequestRefused:
    return RequestRefused("invalid_request", sentence if sentence.endswith("?") else f"{sentence}.")


class NativeEncoder:
    """Every event as `event:` and one line of `data:`."""

    partial: Json | None = None

    def feed(self, events: list[Event]) -> bytes:
        if len(events) > 1 and (lines := encode_deltas(events)) is not None:
            return sse.alike(_DELTA, lines)
        pieces: list[bytes] = []
        for event in events:
            if type(event) is ContentBlockDelta:  # nearly all are
                pieces += (_DELTA, json_text.write(event), b"\n\n")
            else:
                pieces += (_prefix(event) if type(event) is UnknownEvent else _PREFIXES[type(event)], encode(event), b"\n\n")
        return b"".join(pieces)

    def heartbeat(self) -> bytes:
        return _HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return self.feed([error.event(request_id, partial=partial)])


class NativeFormat:
    name = "native"
    content_type = "text/event-stream; charset=utf-8"
    document_type = "application/json"

    @property
    def answer(self) -> AnswerFormat:
        return self

    def parse(self, body: bytes, headers: Headers = ()) -> Parsed:
        return Parsed(parse(body))

    def refusal(self, error: GatewayError, request_id: str, *, partial: bool = False, message: Json | None = None) -> Refusal:
        body = encode(error.event(request_id, partial=partial))
        return Refusal(error.status, body if message is None else json_text.write({**json_text.read(body), "partial_message": message}))

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return ()

    def encoder(self, asked: Asked = UNASKED) -> NativeEncoder:
        return NativeEncoder()

    def document(self, asked: Asked = UNASKED) -> Document:
        return Document(lambda message, last: json_text.write({**message, "stats": last.stats}))


def _prefix(event: UnknownEvent) -> bytes:
    return b"event: %b\ndata: " % event.name.encode()


_PREFIXES: dict[type[Event], bytes] = {kind: b"event: %b\ndata: " % name.encode() for kind, name in NAMES.items()}
_DELTA = _PREFIXES[ContentBlockDelta]
_HEARTBEAT = NativeEncoder().feed([Ping()])

NATIVE = NativeFormat()
