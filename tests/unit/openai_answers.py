"""What becomes of a Chat Completions answer: the events, in a short form for comparing."""

import json
from typing import Any

from gateway.errors import UpstreamFailed
from gateway.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    TextDelta,
    ThinkingDelta,
    encode,
)
from gateway.formats import Provider, Quirks, Step
from gateway.formats.openai.stream import OpenAIDecoder
from gateway.sequence import Sequencer

DONE = b"data: [DONE]\n\n"


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> bytes:
    """One chunk of the documented shape; `more` goes into its root."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return frame({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more})


def call(arguments: Any = None, *, index: int | None = 0, finish: Any = None, name: Any = None, **more: Any) -> bytes:
    """A chunk with one fragment of a tool call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment = {"function": function, **more}
    return chunk({"tool_calls": [fragment if index is None else {"index": index, **fragment}]}, finish)


def decoder(**quirks: Any) -> OpenAIDecoder:
    return OpenAIDecoder(Provider("p", "http://p/v1", quirks=Quirks(**quirks)))


def steps(body: bytes, *, read: int | None = None, broken: UpstreamFailed | None = None, **quirks: Any) -> list[Step]:
    """`read`: how many bytes come at a time."""
    made = decoder(**quirks)
    size = read or len(body) or 1
    fed = [step for start in range(0, len(body), size) for step in made.feed(body[start : start + size])]
    return fed + made.close(broken)


def answer(*frames: bytes, max_tokens: int | None = None, **quirks: Any) -> list[Any]:
    """`["text", "…"]`, `["thinking", "…"]`, `["tool", id, name, input]` and other blocks, then the stop reason or the error's code."""
    sequencer = Sequencer("target-model", "msg_1", max_tokens)
    blocks: list[list[Any]] = []
    ending: Any = None
    for event in sequencer.feed(steps(b"".join(frames), **quirks)):
        encode(event)
        match event:
            case ContentBlockStart(content_block={"type": "tool_use"} as block):
                blocks.append(["tool", block["id"], block["name"]])
            case ContentBlockStart(content_block=block):
                blocks.append([block["type"], ""] if block["type"] in ("text", "thinking") else [block["type"], block])
            case ContentBlockDelta(delta=TextDelta(text=text) | ThinkingDelta(thinking=text)):
                blocks[-1][1] += text
            case ContentBlockDelta(delta=InputJsonDelta()) | MessageStart() | MessageStop():
                pass
            case ContentBlockDelta(delta=delta):
                blocks[-1].append(delta)
            case ContentBlockStop(index=index) if blocks[index][0] == "tool":
                blocks[index].append(event.invalid_input.reason if event.invalid_input else event.input)
            case MessageDelta(delta=delta):
                ending = delta["stop_reason"]
            case _:
                pass
    return [*blocks, sequencer.failure.cause.code if sequencer.failure else ending]


def usage(*frames: bytes, **quirks: Any) -> Any:
    """The merged usage."""
    sequencer = Sequencer("target-model", "msg_1")
    sequencer.feed(steps(b"".join(frames), **quirks))
    return sequencer.usage


def failure(*frames: bytes, **quirks: Any) -> UpstreamFailed:
    last = steps(b"".join(frames), **quirks)[-1]
    assert isinstance(last, UpstreamFailed)
    return last
