"""The event vocabulary: what a stream is made of, inside the gateway and on the native wire.

Anthropic's eight message events (https://docs.anthropic.com/en/docs/build-with-claude/streaming) and a few of the
gateway's own; `type` is the tag. The hot ones are closed structs. What is rare (messages, content blocks, usage) is
carried whole as JSON, so that a field nobody here knows of survives. `encode` and `decode` are each other's inverse.
"""

import re
from typing import Any, final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway import json_text
from gateway.json_text import Json

# A decoder's index for "the block that is open": some providers leave the index out.
OPEN_BLOCK = -1


class TextDelta(Struct, frozen=True, gc=False, tag="text_delta", forbid_unknown_fields=True):
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False, tag="thinking_delta", forbid_unknown_fields=True):
    thinking: str


class SignatureDelta(Struct, frozen=True, gc=False, tag="signature_delta", forbid_unknown_fields=True):
    signature: str


class InputJsonDelta(Struct, frozen=True, gc=False, tag="input_json_delta", forbid_unknown_fields=True):
    partial_json: str


class CitationsDelta(Struct, frozen=True, gc=False, tag="citations_delta", forbid_unknown_fields=True):
    citation: Json


class UnknownDelta(json_text.Verbatim):
    """A delta of a newer kind, or a known one with more fields: `body` as it came, its `type` included."""

    __slots__ = ()


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta | UnknownDelta


class MessageStart(Struct, frozen=True, tag="message_start"):
    """`message`: `{id, type, role, model, content: [], stop_reason: null, stop_sequence: null, usage, …}`."""

    message: Json


@final
class ContentBlockStart(Struct, frozen=True, tag="content_block_start"):
    """`content_block`: `{type, …}`; `index` counts from 0."""

    index: int
    content_block: Json


@final
class ContentBlockDelta(Struct, frozen=True, gc=False, tag="content_block_delta"):
    index: int
    delta: Delta


class InvalidInput(Struct, frozen=True):
    """Tool arguments that must not be executed; `reason`: `truncated`, `invalid_json` or `not_an_object`."""

    partial_json: str
    reason: str


@final
class ContentBlockStop(Struct, frozen=True, tag="content_block_stop"):
    """For a `tool_use` block with either `input`, the validated object, or `invalid_input`."""

    index: int
    input: Json | UnsetType = UNSET
    invalid_input: InvalidInput | UnsetType = UNSET


class MessageDelta(Struct, frozen=True, tag="message_delta"):
    """`delta`: `{stop_reason, stop_sequence, …}`; `usage` in tokens, cumulative; `rest`: further keys of the event."""

    delta: Json
    usage: Json
    rest: Json = {}


class Stats(Struct, frozen=True):
    """Times in milliseconds from the request's last byte; null where it does not apply."""

    ttft_ms: float | None = None
    thinking_ttft_ms: float | None = None
    duration_ms: float | None = None
    output_tokens_per_s: float | None = None
    provider: str | None = None
    target: str | None = None
    attempts: int = 0
    dropped_frames: int = 0


class MessageStop(Struct, frozen=True, tag="message_stop"):
    """The upstream finished. `stats` is added once, by the gateway."""

    stats: Stats | UnsetType = UNSET


class Ping(Struct, frozen=True, tag="ping"):
    """The gateway's own heartbeat."""


class ErrorBody(Struct, frozen=True, omit_defaults=True):
    """`type` from Anthropic's list, `code` from the gateway's (errors.py); `partial`: content was sent before it."""

    type: str
    message: str
    code: str
    retryable: bool
    partial: bool | UnsetType = UNSET
    provider: str | None = None
    provider_code: str | None = None


class Error(Struct, frozen=True, tag="error"):
    """Terminal. Before the answer has begun it is the body of the HTTP error instead."""

    error: ErrorBody
    request_id: str


class Abort(Struct, frozen=True, tag="abort"):
    """Terminal: somebody pressed stop (`reason`: `stopped`)."""

    reason: str


class Reset(Struct, frozen=True, tag="reset"):
    """Forget everything since `message_start`: another attempt (`attempt` counts from 1) begins the answer anew."""

    reason: str
    attempt: int


class UnknownEvent(json_text.Verbatim):
    """An event this gateway does not know: `body` as it came, its `type` included."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self.body["type"])


Event = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | Error
    | Abort
    | Reset
    | UnknownEvent
)

NAMES = {
    kind: str(kind.__struct_config__.tag)
    for kind in (MessageStart, ContentBlockStart, ContentBlockDelta, ContentBlockStop, MessageDelta, MessageStop, Ping, Error, Abort, Reset)
}
KINDS: dict[str, Any] = {name: kind for kind, name in NAMES.items()}
DELTAS: dict[str, Any] = {
    str(kind.__struct_config__.tag): kind for kind in (TextDelta, ThinkingDelta, SignatureDelta, InputJsonDelta, CitationsDelta)
}

# The names an upstream may invent: they become an `event:` line, so nothing that could break one.
PASSABLE = re.compile(r"[a-z][a-z0-9_.]{0,63}")


def name(event: Event) -> str:
    """The event's `type`."""
    return event.name if isinstance(event, UnknownEvent) else NAMES[type(event)]


def encode(event: Event) -> bytes:
    """The event as one line of compact JSON."""
    if type(event) is MessageDelta:
        return json_text.write({"type": "message_delta", "delta": event.delta, "usage": event.usage, **event.rest})
    return json_text.write(event)


def encode_deltas(events: list[Event]) -> list[bytes] | None:
    """The same of many that are nothing but deltas, as in a flood; None if another is among them."""
    if type(events[0]) is ContentBlockDelta is type(events[-1]) and set(map(type, events)) == {ContentBlockDelta}:
        return json_text.write_each(events)
    return None


def decode(data: bytes | str) -> Event:
    """The event of such a line; `ValueError` if it is none."""
    body = json_text.read(data)
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise ValueError("an event is a JSON object with a `type`")
    return from_json(body)


def from_json(body: Json) -> Event:
    """The event of a JSON object with a `type`: the reverse of `encode`."""
    kind = KINDS.get(body["type"])
    if kind is None:
        return UnknownEvent(body)
    if kind is MessageDelta:
        rest = {key: value for key, value in body.items() if key not in ("type", "delta", "usage")}
        return MessageDelta(delta=body["delta"], usage=body["usage"], rest=rest)
    if kind is ContentBlockDelta:
        return ContentBlockDelta(index=body["index"], delta=delta_from_json(body["delta"]))
    event: Event = msgspec.convert(body, kind)
    return event


def delta_from_json(body: Json) -> Delta:
    """A known delta if it is exactly one, else an `UnknownDelta`."""
    if kind := DELTAS.get(body.get("type", "")):
        try:
            delta: Delta = msgspec.convert(body, kind)
        except msgspec.ValidationError:
            return UnknownDelta(body)
        return delta
    return UnknownDelta(body)
