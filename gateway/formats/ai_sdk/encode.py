"""Events as chunks of the UI message stream, which every `ai` from 5.0.92 on reads.

https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol

Deliberate oddities, each for a client that breaks without it:
* An unknown type or a null ends the stream, in early versions any further key too: only what version 5 knows, keys as it has them.
* An end without `finish` or `error` looks like success: one of the two is always there.
* An output without its call is fatal: the result of a call of an earlier answer travels as a block that nobody shows.
* Of a message that goes on (a tool's output was posted) the id is repeated, else the client takes it for another message.
"""

from msgspec import UNSET

from gateway import json_text
from gateway.deltas import read_delta, read_input
from gateway.errors import GatewayError
from gateway.events import (
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Error,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    TextDelta,
    ThinkingDelta,
    UnknownEvent,
)
from gateway.formats.ai_sdk import terms
from gateway.json_text import Json
from gateway.kept import LIMIT, Text, cost, too_much
from gateway.message import Assembler, model_after
from gateway.usage import merged

HEARTBEAT = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
TAIL = b"}\n\n"
RESTARTED = "The answer broke off and began anew, which this format cannot say."


class ChunkEncoder:
    """One answer. `continues`: the id of the message that it is a further part of, empty if that has none; None for a new message."""

    partial: Json | None = None

    def __init__(self, continues: str | None = None) -> None:
        self._continues = continues
        self._message: Json = {}
        self._usage: Json = {}
        self._sources = terms.Sources("")
        self._over = False
        self._kept = 0  # bytes of what is kept until the end of its block, or of the answer
        self._calls = terms.Calls()
        self._at_provider: dict[object, Json] = {}  # the calls that run there, by the provider's ids
        self._last_call: object = None  # if the block before was one: its id
        # Of the open block:
        self._id = b""
        self._block: Json = {}
        self._call: Json = {}  # how it is named, if it is one
        self._text = self._thought = self._arguments = b""  # a chunk up to its delta, for what the block takes
        self._citations: list[Json] = []
        self._signature = ""
        self._input: Text | None = None  # of a call that runs at the provider: nobody else reads its arguments
        self._whole: Assembler | None = None  # of a block that can only be told whole

    def feed(self, events: list[Event]) -> bytes:
        pieces: list[bytes] = []
        for event in events:
            if type(event) is not ContentBlockDelta:
                self._take(event, pieces)
                continue
            # The hot path, written out.
            delta = event.delta
            if type(delta) is TextDelta and self._text:
                pieces += (self._text, json_text.write(delta.text), TAIL)
            elif type(delta) is ThinkingDelta and self._thought:
                pieces += (self._thought, json_text.write(delta.thinking), TAIL)
            elif type(delta) is InputJsonDelta and self._arguments and self._input is None:
                pieces += (self._arguments, json_text.write(delta.partial_json), TAIL)
            elif not self._over:
                self._take_delta(delta, event, pieces)
        return b"".join(pieces)

    def heartbeat(self) -> bytes:
        return HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return _failure(error.message)

    def _take(self, event: Event, pieces: list[bytes]) -> None:
        if self._over:
            return
        match event:
            case ContentBlockStart(index=index, content_block=block):
                self._start_block(index, block, pieces)
            case ContentBlockStop():
                self._stop_block(event, pieces)
            case ContentBlockDelta(delta=delta):
                self._take_delta(delta, event, pieces)
            case MessageStart(message=message):
                self._start(message, pieces)
            case MessageDelta(delta=delta, usage=usage):
                self._usage = merged(self._usage, usage)
                self._message |= {"stop_reason": delta.get("stop_reason"), "raw_stop_reason": delta.get("raw_stop_reason")}
            case MessageStop():
                self._finish(pieces)
            case Error(error=error):
                pieces.append(_failure(error.message))
                self._over = True
            case Reset():
                pieces.append(_failure(RESTARTED))
                self._over = True
            case Abort():
                pieces += (_chunk({"type": "abort"}), DONE)
                self._over = True
            case Ping():
                pieces.append(HEARTBEAT)
            case UnknownEvent():
                pieces.append(_chunk({"type": terms.EVENT, "data": event.body, "transient": True}))

    def _start(self, message: Json, pieces: list[bytes]) -> None:
        self._message = {"model": message["model"]}
        self._usage = dict(message["usage"])
        self._sources = terms.Sources(message["id"])
        name = message["id"] if self._continues is None else self._continues
        pieces += (_chunk({"type": "start", "messageId": name} if name else {"type": "start"}), _chunk({"type": "start-step"}))

    def _finish(self, pieces: list[bytes]) -> None:
        message = {**self._message, "usage": self._usage}
        said = {"finishReason": terms.finish_reason(message.get("stop_reason")), "messageMetadata": terms.metadata(message)}
        pieces += (_chunk({"type": "finish-step"}), _chunk({"type": "finish", **said}), DONE)
        self._over = True

    def _start_block(self, index: int, block: Json, pieces: list[bytes]) -> None:
        self._block, self._id = block, json_text.write(str(index))
        match block["type"]:
            case "text":
                pieces.append(b'data: {"type":"text-start","id":%b}\n\n' % self._id)
                self._text = b'data: {"type":"text-delta","id":%b,"delta":' % self._id
                self._citations = []
                for citation in block.get("citations") or ():
                    self._cite(citation, pieces)
            case "thinking":
                pieces.append(b'data: {"type":"reasoning-start","id":%b}\n\n' % self._id)
                self._thought = b'data: {"type":"reasoning-delta","id":%b,"delta":' % self._id
                self._signature = ""
            case "redacted_thinking":
                pieces.append(_chunk({"type": "reasoning-start", "id": str(index), "providerMetadata": terms.redacted_metadata(block)}))
            case "tool_use":
                self._start_call({}, pieces)
            case kind if kind in terms.SERVER_CALLS:
                self._start_call(terms.AT_PROVIDER, pieces)
                self._input = Text()
            case _:
                self._whole = Assembler()
                self._whole.feed([MessageStart({"usage": {}}), ContentBlockStart(index, block)])

    def _start_call(self, where: Json, pieces: list[bytes]) -> None:
        self._call = self._calls.named(self._block)
        self._keep(cost(self._call["toolCallId"]))
        pieces.append(_chunk({"type": "tool-input-start", **self._call, **where}))
        self._arguments = b'data: {"type":"tool-input-delta","toolCallId":%b,"inputTextDelta":' % json_text.write(self._call["toolCallId"])

    def _take_delta(self, delta: Delta, event: ContentBlockDelta, pieces: list[bytes]) -> None:
        """What is not on the hot path, also a known kind that came with more fields than it has."""
        if self._whole is not None:
            self._whole.feed([event])
            return
        match read_delta(delta):
            case ("text_delta" | "thinking_delta", "", _):
                pass  # it says only what no chunk has a place for
            case ("text_delta", str(text), _) if self._text:
                pieces += (self._text, json_text.write(text), TAIL)
            case ("thinking_delta", str(text), _) if self._thought:
                pieces += (self._thought, json_text.write(text), TAIL)
            case ("input_json_delta", str(text), _) if self._arguments:
                pieces += (self._arguments, json_text.write(text), TAIL)
                if self._input is not None:
                    self._keep(len(text))
                    self._input.add(text)
            case ("signature_delta", str(text), _) if self._thought:
                self._signature = text or self._signature
            case ("citations_delta", dict(citation), _) if self._text:
                self._cite(citation, pieces)
            case _:
                pass  # deltas nobody here knows

    def _available(self, given: Json | InvalidInput, where: Json) -> Json:
        """The open call, whose arguments are complete, valid or not."""
        if isinstance(given, InvalidInput):
            return {"type": "tool-input-error", **self._call, **terms.broken(given), **where}
        chunk = {"type": "tool-input-available", **self._call, "input": given, **where}
        return terms.with_metadata(chunk, terms.call_metadata(self._block))

    def _cite(self, citation: Json, pieces: list[bytes]) -> None:
        self._keep(cost(citation))
        self._citations.append(citation)
        self._tell(self._sources.of_citation(citation), pieces)

    def _stop_block(self, event: ContentBlockStop, pieces: list[bytes]) -> None:
        block = self._block
        called: object = None
        match block["type"]:
            case "text":
                pieces.append(self._end("text-end", terms.text_metadata(block, self._citations)))
            case "thinking":
                pieces.append(self._end("reasoning-end", terms.thinking_metadata(block, self._signature)))
            case "redacted_thinking":
                pieces.append(self._end("reasoning-end", {}))
            case "tool_use":
                given = event.input if event.input is not UNSET else event.invalid_input
                if given is not UNSET:
                    pieces.append(_chunk(self._available(given, {})))
            case kind if kind in terms.SERVER_CALLS:
                called = str(block.get("id", ""))
                self._at_provider[called] = self._call
                said = str(self._input)
                pieces.append(_chunk(self._available(read_input(said) if said else block.get("input") or {}, terms.AT_PROVIDER)))
            case _:
                self._tell_whole(self._gathered(event), pieces)
        self._text = self._thought = self._arguments = b""
        self._input = self._whole = None
        self._last_call = called

    def _end(self, kind: str, metadata: Json) -> bytes:
        if not metadata:
            return b'data: {"type":"%b","id":%b}\n\n' % (kind.encode(), self._id)
        return b'data: {"type":"%b","id":%b,"providerMetadata":%b}\n\n' % (kind.encode(), self._id, json_text.write(metadata))

    def _gathered(self, stop: ContentBlockStop) -> Json:
        assert self._whole is not None
        self._whole.feed([stop])
        message = self._whole.partial
        assert message is not None
        block: Json = message["content"][0]
        return block

    def _tell_whole(self, block: Json, pieces: list[bytes]) -> None:
        if block["type"] == "fallback":
            self._message["model"] = model_after(block) or self._message["model"]
        chunks, told = [], False
        if terms.is_result(block) and (call := self._at_provider.get(block["tool_use_id"])) is not None:
            chunks.append({"type": "tool-output-available", "toolCallId": call["toolCallId"], "output": block, **terms.AT_PROVIDER})
            told = block["tool_use_id"] == self._last_call
        elif (file := terms.file_of(block)) is not None:
            chunks.append(file)
            told = True
        if not told:
            chunks.append({"type": terms.BLOCK, "data": block})
        pieces += map(_chunk, chunks)
        self._tell(self._sources.of_result(block), pieces)

    def _tell(self, sources: list[Json], pieces: list[bytes]) -> None:
        for source in sources:
            self._keep(cost(source["sourceId"]) + cost(source.get("url", "")))
            pieces.append(_chunk(source))

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > LIMIT:
            raise too_much()


def _failure(sentence: str) -> bytes:
    return _chunk({"type": "error", "errorText": sentence}) + DONE


def _chunk(chunk: Json) -> bytes:
    return b"data: %b\n\n" % json_text.write(chunk)
