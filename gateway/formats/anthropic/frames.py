"""Claude's frames as JSON (https://docs.anthropic.com/en/docs/build-with-claude/streaming).

Nearly every one is exactly as documented: it is decoded typed. Whatever that refuses is read as any JSON.
"""

from typing import Annotated, Any

import msgspec

from gateway import json_text
from gateway.events import OPEN_BLOCK, InputJsonDelta, SignatureDelta, TextDelta, ThinkingDelta
from gateway.json_text import Json

Index = Annotated[int, msgspec.Meta(ge=0)]


class DeltaFrame(msgspec.Struct, frozen=True, gc=False, tag="content_block_delta", forbid_unknown_fields=True):
    """The hot frame. Not `events.ContentBlockDelta` itself, whose delta may be an unknown one."""

    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta  # a citation is an object, whose depth has to be looked at
    index: Index = OPEN_BLOCK


class StartFrame(msgspec.Struct, frozen=True, gc=False, tag="content_block_start", forbid_unknown_fields=True):
    content_block: Json
    index: Index = OPEN_BLOCK


class StopFrame(msgspec.Struct, frozen=True, gc=False, tag="content_block_stop", forbid_unknown_fields=True):
    index: Index = OPEN_BLOCK


class MessageStartFrame(msgspec.Struct, frozen=True, gc=False, tag="message_start", forbid_unknown_fields=True):
    message: Json


class MessageDeltaFrame(msgspec.Struct, frozen=True, gc=False, tag="message_delta", forbid_unknown_fields=True):
    delta: Json
    usage: Json


class MessageStopFrame(msgspec.Struct, frozen=True, gc=False, tag="message_stop", forbid_unknown_fields=True):
    pass


TypedFrame = DeltaFrame | StartFrame | StopFrame | MessageStartFrame | MessageDeltaFrame | MessageStopFrame

_delta = msgspec.json.Decoder(DeltaFrame)
_frame = msgspec.json.Decoder(TypedFrame)


def read(data: bytes) -> Any:
    """A typed frame, or any other JSON value; `MalformedJson` if it is none."""
    # A long text need not be looked through, all else that is long has to be: it may be too deep, or too many values.
    typed = _frame if len(data) <= json_text.DEEPEST else _delta if b"content_block_delta" in data[:64] else None
    if typed is not None:
        try:
            return typed.decode(data)
        except json_text.UNREADABLE:
            pass
    return json_text.read(data)


def read_run(data: list[bytes]) -> list[TypedFrame] | None:
    """The same of many, if all of them are typed frames; else None."""
    return json_text.read_typed(_frame.decode, data)
