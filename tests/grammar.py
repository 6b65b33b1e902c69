"""The grammar of the event vocabulary, written down by hand: what every client may rely on, whatever the upstream sent.

    stream   = ping* (message_start body (reset ping* message_start body)*)? terminal
    body     = (block | message_delta | ping | unknown event)*
    block    = content_block_start (content_block_delta | ping | unknown event)* content_block_stop
    terminal = message_stop | error | abort

It shares nothing with the gateway but the classes of the events.
"""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from gateway.events import (
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    Event,
    InputJsonDelta,
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

MESSAGE_KEYS = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
OWN_NAMES = {
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"),
    *("ping", "error", "abort", "reset"),
}
DELTA_OF_BLOCK = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
    "redacted_thinking": set(),
    "web_search_tool_result": set(),
}
KNOWN_DELTAS = {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}


class Broken(AssertionError):
    """The events do not obey the grammar."""


def check(events: Iterable[Event], *, terminal: bool = True) -> None:
    """Raises `Broken` with the number of the event that is wrong. `terminal=False`: the events may stop anywhere."""
    reader = _Reader()
    number = -1
    for number, event in enumerate(events):
        try:
            reader.read(event)
        except Broken as error:
            raise Broken(f"event {number}, {event!r}: {error}") from None
    if terminal and not reader.ended:
        raise Broken(f"no terminal event after {number + 1} events")


class _Reader:
    def __init__(self) -> None:
        self.ended = False
        self.begun = False  # a message_start, not taken back by a reset
        self.ever_begun = False
        self.blocks = 0
        self.open: dict[str, Any] | None = None
        self.stop_reason: str | None = None
        self.content = False

    def read(self, event: Event) -> None:
        need(not self.ended, "nothing may follow a terminal event")
        if self.stop_reason is not None:
            need(isinstance(event, MessageStop | Ping), "only message_stop may follow the stop reason")
        if self.ever_begun and not self.begun:
            need(isinstance(event, MessageStart | Ping), "only message_start may follow a reset")
        match event:
            case Ping():
                pass
            case MessageStart():
                need(not self.begun, "a second message_start")
                check_message(event.message)
                self.begun = self.ever_begun = True
            case Error():
                need(event.error.partial in (UNSET, self.content), "`partial` means that content was sent")
                need(bool(event.error.code and event.error.type and event.error.message), "an error has type, code and message")
                self.ended = True
            case Abort():
                need(event.reason == "stopped", "the one reason to abort")
                self.ended = True
            case _:
                need(self.begun, "before message_start")
                self.read_body(event)

    def read_body(self, event: Event) -> None:
        match event:
            case ContentBlockStart():
                need(self.open is None, "a block starts in another")
                need(event.index == self.blocks, f"indices are contiguous: {self.blocks} is next")
                self.blocks += 1
                self.open = event.content_block
                check_block(event.content_block)
                if event.content_block["type"] not in ("text", "thinking"):
                    self.content = True
            case ContentBlockDelta():
                need(self.open is not None, "a delta without an open block")
                assert self.open is not None
                need(event.index == self.blocks - 1, "a delta for another block than the open one")
                check_delta(self.open["type"], event)
                self.content = True
            case ContentBlockStop():
                need(self.open is not None, "a stop without an open block")
                assert self.open is not None
                need(event.index == self.blocks - 1, "a stop of another block than the open one")
                check_stop(self.open["type"], event)
                self.open = None
            case MessageDelta():
                need(self.open is None, "a message_delta inside a block")
                need({"stop_reason", "stop_sequence"} <= event.delta.keys(), "stop_reason and stop_sequence are always there")
                need(not {"type", "delta", "usage"} & event.rest.keys(), "`rest` holds further keys only")
                check_usage(event.usage)
                need(event.usage.get("estimated", True) is True, "`estimated` is true or absent")
                self.stop_reason = event.delta["stop_reason"]
                need(self.stop_reason is None or (isinstance(self.stop_reason, str) and self.stop_reason != ""), "a stop reason is a word")
                need(self.stop_reason is not None or "estimated" not in event.usage, "`estimated` is known at the end")
            case MessageStop():
                need(self.stop_reason is not None, "message_stop without a stop reason")
                self.ended = True
            case Reset():
                self.begun, self.open, self.blocks, self.content = False, None, 0, False
            case UnknownEvent():
                need(isinstance(event.body.get("type"), str), "an event has a type")
                need(event.name not in OWN_NAMES, "a forged event")
                need(re.fullmatch(r"[a-z][a-z0-9_.]{0,63}", event.name) is not None, "a name that cannot pass")
            case _:
                raise Broken("no event of the vocabulary")


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


def check_message(message: dict[str, Any]) -> None:
    need(message.keys() >= MESSAGE_KEYS, f"message_start lacks {MESSAGE_KEYS - message.keys()}")
    need(message["type"] == "message" and message["role"] == "assistant", "an assistant's message")
    need(message["content"] == [], "content begins empty")
    need(message["stop_reason"] is None and message["stop_sequence"] is None, "the stop reason is null at the start")
    need(isinstance(message["id"], str) and message["id"] != "", "a message has an id")
    need(isinstance(message["model"], str), "a message has a model")
    check_usage(message["usage"])
    need("estimated" not in message["usage"], "`estimated` is known at the end")


def check_usage(usage: dict[str, Any]) -> None:
    for key in ("input_tokens", "output_tokens"):
        need(type(usage.get(key)) is int and usage[key] >= 0, f"usage.{key} is always a count")


def check_block(block: dict[str, Any]) -> None:
    match block.get("type"):
        case "text":
            need(block.get("text") == "", "a text block starts empty")
        case "thinking":
            need(block.get("thinking") == "" and block.get("signature") == "", "a thinking block starts empty")
        case "tool_use":
            need(block.get("input") == {}, "a tool_use starts with an empty input")
            need(isinstance(block.get("id"), str) and block["id"] != "", "a tool_use has an id")
            need(isinstance(block.get("name"), str), "a tool_use has a name")
        case kind:
            need(isinstance(kind, str) and kind != "", "a block has a type")


def check_delta(block: str, event: ContentBlockDelta) -> None:
    match event.delta:
        case TextDelta(text=text):
            kind, value = "text_delta", text
        case ThinkingDelta(thinking=text):
            kind, value = "thinking_delta", text
        case SignatureDelta(signature=text):
            kind, value = "signature_delta", text
        case InputJsonDelta(partial_json=text):
            kind, value = "input_json_delta", text
        case CitationsDelta():
            kind, value = "citations_delta", "a citation"
        case UnknownDelta(body=body):
            kind, value = body.get("type", ""), next((v for k, v in body.items() if k != "type" and isinstance(v, str)), "unknown")
            need(isinstance(kind, str) and kind != "", "a delta has a type")
            need(len(body) > 1 or kind not in KNOWN_DELTAS, "an empty delta")
            value = re.sub("[\ud800-\udfff]", "", value) or "unknown"
        case _:
            raise Broken("no delta of the vocabulary")
    need(value != "", "an empty delta")
    need(re.search("[\ud800-\udfff]", value) is None, "half of a surrogate pair")
    if kind in KNOWN_DELTAS:
        need(kind in DELTA_OF_BLOCK.get(block, KNOWN_DELTAS), f"a {kind} in a {block} block")


def check_stop(block: str, event: ContentBlockStop) -> None:
    if block != "tool_use":
        need(event.input is UNSET and event.invalid_input is UNSET, "only a tool_use has an input")
        return
    need((event.input is UNSET) != (event.invalid_input is UNSET), "either an input or an invalid one")
    if event.input is not UNSET:
        need(isinstance(event.input, dict), "an input is an object")
    elif event.invalid_input is not UNSET:
        need(event.invalid_input.reason in ("truncated", "invalid_json", "not_an_object"), "one of the three reasons")
