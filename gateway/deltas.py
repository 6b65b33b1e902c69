"""What a delta says: its kind, its value, and which block takes it; and what a tool's arguments come to.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from collections.abc import Callable

from gateway import json_text
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
from gateway.json_text import Json, MalformedJson

# Where each known delta has its value, and the block that is made for one that comes without.
FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "citations_delta": "citation",
}
TEXTS: dict[str, Callable[[str], Delta]] = {
    "text_delta": TextDelta,
    "thinking_delta": ThinkingDelta,
    "signature_delta": SignatureDelta,
    "input_json_delta": InputJsonDelta,
}
HOMES = {"text_delta": "text", "citations_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}

# What the known block types take; a type that is not here takes anything. Unknown deltas go wherever a block is open.
_ARGUMENTS = frozenset({"input_json_delta"})
_NOTHING: frozenset[str] = frozenset()
TAKES = {
    "text": frozenset({"text_delta", "citations_delta"}),
    "thinking": frozenset({"thinking_delta", "signature_delta"}),
    "tool_use": _ARGUMENTS,
    "server_tool_use": _ARGUMENTS,
    "mcp_tool_use": _ARGUMENTS,
    "redacted_thinking": _NOTHING,
    "container_upload": _NOTHING,
    "fallback": _NOTHING,
    "mcp_tool_listing": _NOTHING,
}


def is_content(event: Event) -> bool:
    """Whether the answer has begun with it: a non-empty delta, or the start of a block other than an empty text or thinking block."""
    match event:
        case ContentBlockDelta(delta=delta):
            said = read_delta(delta)
            return said is not None and (bool(said[1]) or said[2])
        case ContentBlockStart(content_block=block):
            kind = block.get("type")
            if kind == "thinking":
                return bool(block.get("thinking") or block.get("signature"))
            return kind != "text" or bool(block.get("text"))
        case MessageStart() | ContentBlockStop() | MessageDelta() | MessageStop() | Ping() | Error() | Abort() | Reset() | UnknownEvent():
            return False


def read_delta(delta: Delta) -> tuple[str, object, bool] | None:
    """Its kind, its value, and whether it says something besides; None if it is no delta."""
    match delta:
        case TextDelta(text=text):
            return "text_delta", text, False
        case ThinkingDelta(thinking=text):
            return "thinking_delta", text, False
        case InputJsonDelta(partial_json=text):
            return "input_json_delta", text, False
        case SignatureDelta(signature=text):
            return "signature_delta", text, False
        case CitationsDelta(citation=citation):
            return "citations_delta", citation, False
        case UnknownDelta(body=body):
            kind = body.get("type")
            if not isinstance(kind, str) or not kind:
                return None
            if kind not in FIELDS:
                return kind, None, True
            field = FIELDS[kind]
            value = body.get(field)
            more = any(other not in (None, "", [], {}) for key, other in body.items() if key not in ("type", field))
            if kind == "citations_delta":
                return (kind, value, more) if value is None or isinstance(value, dict) else None
            if kind == "input_json_delta":
                value = arguments_text(value)
            elif value is None:
                value = ""
            return (kind, value, more) if isinstance(value, str) else None


def takes(block: str, delta: str) -> bool:
    if delta not in FIELDS:
        return True
    return delta in TAKES[block] if block in TAKES else not block.endswith("_tool_result")


def same_value(kind: str, before: str, value: object) -> bool:
    """Whether a first delta merely repeats what the start held; a tool's input may be spaced otherwise."""
    if value == before:
        return True
    return kind == "input_json_delta" and read_input(before) == read_input(str(value))


def read_input(text: str) -> Json | InvalidInput:
    """A tool's input of the text of its arguments; no text and `null` are an empty one."""
    if not text.strip():
        return {}
    try:
        value = json_text.read(text)
    except MalformedJson:
        return InvalidInput(text, "invalid_json")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return InvalidInput(text, "not_an_object")
    if "\\u" in text and "\\ud" in text.lower():
        # An escape may have named half of a surrogate pair, which no UTF-8 can hold.
        value = json_text.read(json_text.write(value))
    return dict(value)


def arguments_text(said: object) -> str:
    """A tool's input as text: an object is written out; nothing and an empty object (to PHP also `[]`) are no text."""
    if isinstance(said, str):
        return said
    return json_text.write(said).decode() if said not in (None, {}, []) else ""
