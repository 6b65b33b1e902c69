"""Assembler: well-formed events folded back into the complete message, as the official SDK's `get_final_message()` gives it.

https://github.com/anthropics/anthropic-sdk-python/blob/main/src/anthropic/lib/streaming/_messages.py (`accumulate_event`)

Deliberate oddity: the SDK repairs broken tool arguments. Here their block gets `input: {}` and the `invalid_input` that says why.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from gateway.deltas import read_input
from gateway.events import (
    Abort,
    CitationsDelta,
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
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.json_text import Json
from gateway.kept import EACH, LIMIT, Text, cost, too_much
from gateway.usage import merged, overlaid

T = TypeVar("T")

# Bytes that a text takes while it grows, or the smallest block, beside what they hold.
TEXT_COST = 4 * EACH

# Only a message_start may say these.
FIXED = frozenset({"id", "type", "role", "model", "content", "usage"})


class Assembler:
    """`complete`: the `message_stop` has come."""

    def __init__(self) -> None:
        self.complete = False
        self._clear()

    def _clear(self) -> None:
        self._message: Json | None = None
        self._content: list[Json] = []
        self._texts: dict[str, Text] = {}  # of the open block, by key: joined once, not at each delta
        self._lists: dict[str, list[Any]] = {}
        self._is_open = False
        self._size = 0

    @property
    def message(self) -> Json:
        """The complete message; `ValueError` while it is none."""
        message = self.partial
        if message is None or not self.complete:
            raise ValueError("the message is not complete")
        return message

    @property
    def partial(self) -> Json | None:
        """What there is of the message, at any time; None before its start. A tool call that was not finished is marked."""
        if self._message is None:
            return None
        content = list(self._content)
        if self._is_open:
            content[-1] = self._joined(content[-1])
            if content[-1]["type"] == "tool_use":
                said = InvalidInput(str(self._texts.get("partial_json", "")), "truncated")
                content[-1]["invalid_input"] = msgspec.to_builtins(said)
        return {**self._message, "content": content}

    def feed(self, events: Iterable[Event]) -> None:
        """`UpstreamFailed` if more would have to be kept than may be."""
        for event in events:
            match event:
                case ContentBlockDelta(delta=delta):
                    self._add(delta)
                case ContentBlockStart(content_block=block):
                    self._count(cost(block) + TEXT_COST)
                    self._content.append(dict(block))
                    self._texts, self._lists = {}, {}
                    self._is_open = True
                    if block["type"] == "fallback" and self._message is not None:
                        # What follows comes from another model (https://docs.anthropic.com/en/api/messages).
                        self._message["model"] = model_after(block) or self._message["model"]
                case ContentBlockStop():
                    self._stop(event)
                case MessageStart(message=message):
                    self._keep(message)
                    self._message = dict(message)
                case MessageDelta():
                    self._end(event)
                case MessageStop(stats=stats):
                    if stats is not UNSET and self._message is not None:
                        self._message["stats"] = msgspec.to_builtins(stats)
                    self.complete = True
                case Reset():
                    self._clear()
                case Ping() | Error() | Abort() | UnknownEvent():
                    pass

    def _keep(self, value: Any) -> None:
        self._count(cost(value))

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > LIMIT:
            raise too_much()

    def _add(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=text):
                self._append("text", text)
            case ThinkingDelta(thinking=text):
                self._append("thinking", text)
            case InputJsonDelta(partial_json=text):
                self._append("partial_json", text)
            case SignatureDelta(signature=text):
                self._set("signature", text)
            case CitationsDelta(citation=citation):
                self._cite(citation)
            case UnknownDelta(body=body):
                self._add_unknown(body)

    def _add_unknown(self, body: Json) -> None:
        """A known kind with more fields is its kind, as for the SDK; `compaction_delta` holds the whole final value."""
        match body:
            case {"type": "text_delta", "text": str(text)}:
                self._append("text", text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._append("thinking", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                self._append("partial_json", text)
            case {"type": "signature_delta", "signature": str(text)}:
                if text:
                    self._set("signature", text)
            case {"type": "citations_delta"}:
                if citation := body.get("citation"):
                    self._cite(citation)
            case {"type": "compaction_delta"}:
                for key, value in body.items():
                    if key != "type":
                        self._set(key, value)
            case _:
                for key, value in body.items():
                    if key != "type":
                        self._merge(key, value)

    def _append(self, key: str, text: str) -> None:
        kept = self._texts.get(key)
        if kept is None:
            self._count(len(key) + TEXT_COST)
            kept = self._texts[key] = Text()
        self._count(len(text))
        kept.add(text)

    def _set(self, key: str, value: Any) -> None:
        self._keep({key: value})
        self._texts.pop(key, None)
        self._lists.pop(key, None)
        self._content[-1][key] = value

    def _cite(self, citation: Json) -> None:
        self._keep(citation)
        self._lists.setdefault("citations", []).append(citation)

    def _merge(self, key: str, value: Any) -> None:
        """A delta of a kind nobody here knows: texts and lists grow, all else is the latest."""
        known = self._content[-1].get(key)
        if isinstance(value, str) and (known is None or isinstance(known, str)):
            self._append(key, value)
        elif isinstance(value, list) and (known is None or isinstance(known, list)):
            self._keep({key: value})
            self._lists.setdefault(key, []).extend(value)
        elif value is not None:
            self._set(key, value)

    def _joined(self, block: Json) -> Json:
        """The open block with what has come for it; arguments are no text but become `input` at the stop."""
        texts = {key: (_if(str, block.get(key)) or "") + str(text) for key, text in self._texts.items() if key != "partial_json"}
        lists = {key: [*(_if(list, block.get(key)) or ()), *parts] for key, parts in self._lists.items()}
        return {**block, **texts, **lists}

    def _stop(self, event: ContentBlockStop) -> None:
        block = self._content[-1] = self._joined(self._content[-1])
        read: Json | InvalidInput | None = None
        if event.input is not UNSET:
            read = event.input
        elif event.invalid_input is not UNSET:
            read = event.invalid_input
        elif text := self._texts.get("partial_json"):
            read = read_input(str(text))
        if isinstance(read, InvalidInput):
            block["input"], block["invalid_input"] = {}, msgspec.to_builtins(read)
        elif read is not None:
            block["input"] = read
            said = self._texts.pop("partial_json", None)
            self._count(cost(read) - (said.size if said else 0))  # it takes the text's place
        self._texts, self._lists = {}, {}
        self._is_open = False

    def _end(self, event: MessageDelta) -> None:
        if self._message is None:
            return
        said = {key: value for key, value in {**event.rest, **event.delta}.items() if key not in FIXED}
        self._keep([said, event.usage])
        usage = merged(self._message["usage"], event.usage)
        self._message = {**overlaid(self._message, said), "usage": usage}


def _if(kind: type[T], value: object) -> T | None:
    return value if isinstance(value, kind) else None


def model_after(fallback: Json) -> str | None:
    """The model that goes on after a block of the type `fallback`."""
    served = _if(dict, fallback.get("to")) or {}
    return _if(str, served.get("model"))
