"""Events as Chat Completions' chunks: what the official SDKs and the frontends made for them read without a change.

https://platform.openai.com/docs/api-reference/chat/streaming

Deliberate oddities, each for a client that breaks without it:
* The role is said once, in a chunk of its own before anything else: the Python SDK joins it to "assistantassistant".
* A call's id, type and name are in its first fragment only, and a chunk has one call: the SDK joins them too, NextChat reads one.
* All annotations come in one chunk, and nothing of the gateway's in a delta: a list that comes twice is a RuntimeError.
* Content, finish reason and usage never share a chunk: LobeChat reads one of them.
* Thinking goes out as `reasoning_content`; signatures, redacted thinking and what runs at the provider have no place and are left out.
"""

from gateway import json_text
from gateway.deltas import read_delta
from gateway.errors import GatewayError
from gateway.events import (
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Error,
    ErrorBody,
    Event,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    TextDelta,
    ThinkingDelta,
    UnknownEvent,
)
from gateway.formats.openai import words
from gateway.json_text import Json
from gateway.kept import LIMIT, cost, too_much
from gateway.message import model_after
from gateway.usage import merged

HEARTBEAT = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
STOPPED = ErrorBody("api_error", "The answer was stopped.", "stopped", False)
RESTARTED = ErrorBody("api_error", "The answer broke off and began anew, which this format cannot say.", "stream_interrupted", True)

TAIL = b'},"finish_reason":null}]}\n\n'
CALL_TAIL = b"}}]" + TAIL


class ChunkEncoder:
    """One answer. `created` in seconds since 1970; `usage`: the client asked for a chunk with the token counts."""

    partial: Json | None = None

    def __init__(self, created: int, *, usage: bool = False) -> None:
        self._created = created
        self._wants_usage = usage
        self._begun = False  # the role was said
        self._id = ""
        self._head = b""  # of every chunk, up to its choices
        self._delta = b""  # and of one with a delta, up to what is in it
        self._text = b""
        self._thinking = b""
        self._arguments = b""  # the same for the call that is open; empty while none is
        self._calls = 0
        self._argued = False  # the open call has arguments that are not blank
        self._usage: Json = {}
        self._length = 0  # characters of text so far: annotations count in them
        self._block_start = 0
        self._citations: list[Json] = []  # of the open block
        self._annotations: list[Json] = []
        self._kept = 0

    def feed(self, events: list[Event]) -> bytes:
        pieces: list[bytes] = []
        for event in events:
            if type(event) is not ContentBlockDelta:
                self._take(event, pieces)
                continue
            # The hot path, written out.
            delta = event.delta
            if type(delta) is TextDelta and self._begun:
                self._length += len(delta.text)
                pieces += (self._text, json_text.write(delta.text), TAIL)
            elif type(delta) is ThinkingDelta and self._begun:
                pieces += (self._thinking, json_text.write(delta.thinking), TAIL)
            elif type(delta) is InputJsonDelta and self._argued:
                pieces += (self._arguments, json_text.write(delta.partial_json), CALL_TAIL)
            else:
                self._take_delta(delta, pieces)
        return b"".join(pieces)

    def heartbeat(self) -> bytes:
        return HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return _error(error.event(request_id, partial=partial).error)

    def _take(self, event: Event, pieces: list[bytes]) -> None:
        match event:
            case ContentBlockDelta(delta=delta):
                self._take_delta(delta, pieces)
            case ContentBlockStart(content_block=block):
                self._block_start = self._length
                if block.get("type") == "tool_use":
                    self._call(block, pieces)
                elif block.get("type") == "fallback" and (model := model_after(block)):
                    self._name(model)
            case ContentBlockStop():
                self._stop(event, pieces)
            case MessageStart(message=message):
                self._start(message)
            case MessageDelta():
                self._usage = merged(self._usage, event.usage)
                if event.delta.get("stop_reason") is not None:
                    self._finish(event.delta, pieces)
            case MessageStop():
                pieces.append(DONE)
            case Error(error=error):
                pieces.append(_error(error))
            case Abort():
                pieces.append(_error(STOPPED))
            case Reset():
                pieces.append(_error(RESTARTED))
            case Ping():
                pieces.append(HEARTBEAT)
            case UnknownEvent():
                pass

    def _start(self, message: Json) -> None:
        self._id = message["id"]
        self._name(message["model"])
        self._usage = dict(message["usage"])

    def _name(self, model: str) -> None:
        """What follows comes from this model."""
        said = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": model}
        self._head = b"data: " + json_text.write(said)[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":{'
        self._text = self._delta + b'"content":'
        self._thinking = self._delta + b'"reasoning_content":'

    def _begin(self, content: bytes, pieces: list[bytes]) -> None:
        """OpenAI says `null` for an answer that begins with a call; what it says otherwise is the text so far."""
        if not self._begun:
            self._begun = True
            pieces += (self._delta, b'"role":"assistant","content":', content, TAIL)

    def _take_delta(self, delta: Delta, pieces: list[bytes]) -> None:
        """Also a known kind that came with more fields than it has."""
        match read_delta(delta):
            case ("text_delta" | "thinking_delta", "", _):
                pass  # it says only what this format has no place for
            case ("text_delta", str(text), _):
                self._begin(b'""', pieces)
                self._length += len(text)
                pieces += (self._text, json_text.write(text), TAIL)
            case ("thinking_delta", str(text), _):
                self._begin(b"null", pieces)
                pieces += (self._thinking, json_text.write(text), TAIL)
            case ("input_json_delta", str(text), _) if self._arguments:
                self._argued = self._argued or bool(text.strip())
                pieces += (self._arguments, json_text.write(text), CALL_TAIL)
            case ("citations_delta", dict(citation), _):
                self._kept += cost(citation)
                if self._kept > LIMIT:
                    raise too_much()
                self._citations.append(citation)
            case _:
                pass  # signatures, what runs at the provider, and deltas nobody here knows

    def _call(self, block: Json, pieces: list[bytes]) -> None:
        self._begin(b"null", pieces)
        function = {"name": block.get("name"), "arguments": ""}
        call: Json = {"index": self._calls, "id": block.get("id"), "type": "function", "function": function}
        if isinstance(block.get("extra_content"), dict):
            call["extra_content"] = block["extra_content"]  # Gemini demands its thought's signature back with the call
        pieces += (self._delta, b'"tool_calls":[', json_text.write(call), b"]", TAIL)
        self._arguments = self._delta + b'"tool_calls":[{"index":%d,"function":{"arguments":' % self._calls
        self._argued = False
        self._calls += 1

    def _stop(self, event: ContentBlockStop, pieces: list[bytes]) -> None:
        if self._arguments and not self._argued and isinstance(event.input, dict):
            pieces += (self._arguments, b'"{}"', CALL_TAIL)
        self._arguments, self._argued = b"", False
        for citation in self._citations:
            if (note := words.annotation(citation, self._block_start, self._length)) is not None:
                self._annotations.append(note)
        self._citations = []

    def _finish(self, said: Json, pieces: list[bytes]) -> None:
        self._begin(b'""', pieces)
        if self._annotations:
            pieces += (self._delta, b'"annotations":', json_text.write(self._annotations), TAIL)
        choice, beside = words.ending(said)
        pieces += (self._head, b',"choices":[', json_text.write({"index": 0, "delta": {}, **choice}), b"]")
        if beside:
            pieces += (b',"gateway":', json_text.write(beside))
        pieces.append(b"}\n\n")
        if self._wants_usage:
            pieces += (self._head, b',"choices":[],"usage":', json_text.write(words.usage(self._usage)), b"}\n\n")


def _error(error: ErrorBody) -> bytes:
    """And then no `[DONE]`: the answer is not there."""
    return b"data: %b\n\n" % json_text.write(words.error_body(error))
