"""What stands in a chunk of Chat Completions, wherever a provider put it.

https://platform.openai.com/docs/api-reference/chat/streaming

The typed reading takes the one shape that nearly every chunk has, which is then decoded in a fifth of the time. Its fields that are
only ever None are those that `stream` reads besides: where one of them says something, the typed reading refuses and the chunk is
read untyped. They stand in the order in which providers write them, in which msgspec finds them soonest.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway import json_text
from gateway.formats.openai.think_tags import Passage
from gateway.formats.openai.tool_calls import Fragment
from gateway.json_text import Json


class Function(Struct, frozen=True, gc=False):
    arguments: str
    name: None = None


class CallPiece(Struct, frozen=True, gc=False):
    """A fragment that continues a call."""

    index: int
    function: Function
    id: None = None
    extra_content: None = None


class Delta(Struct, frozen=True, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: None = None
    reasoning_details: tuple[()] | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: None = None
    refusal: None = None
    annotations: tuple[()] | None = None
    citations: None = None
    images: None = None
    audio: None = None


class Choice(Struct, frozen=True, gc=False, kw_only=True):
    index: Literal[0] = 0
    delta: Delta
    finish_reason: Literal[""] | None = None
    text: str | None = None
    finishReason: None = None
    usage: None = None


class Chunk(Struct, frozen=True, gc=False, kw_only=True):
    id: str | None = None
    object: Literal["chat.completion.chunk"] | None = None
    model: str | None = None
    choices: tuple[Choice]
    usage: dict[str, Any] | None = None
    error: None = None
    citations: None = None
    x_groq: None = None
    type: None = None
    event: None = None


# More than the one shape has, with a few details of its usage.
PLAIN_BRACKETS = 32

_decode = msgspec.json.Decoder(Chunk).decode


def read(data: bytes) -> Any:
    """A `Chunk`, or any other JSON value; `MalformedJson` if it is none."""
    if len(data) > json_text.DEEPEST and data.count(b"[") + data.count(b"{") > PLAIN_BRACKETS:
        return json_text.read(data)  # which has bounds for what a typed reading takes without looking
    try:
        return _decode(data)
    except json_text.UNREADABLE:
        return json_text.read(data)


def read_run(data: list[bytes]) -> list[Chunk] | None:
    """The same of many, if all of them are a `Chunk`; else None."""
    return json_text.read_typed(_decode, data)


def finish_reason(choice: Json) -> str:
    """An empty string is none."""
    for name in ("finish_reason", "finishReason"):
        if isinstance(choice.get(name), str) and choice[name]:
            return str(choice[name])
    return ""


def stop_sequence(choice: Json) -> str | None:
    """vLLM and SGLang tell which string ended the answer; a number is a token's."""
    for name in ("stop_reason", "matched_stop"):
        if isinstance(choice.get(name), str) and choice[name]:
            return str(choice[name])
    return None


def reasoning(delta: Json) -> str:
    """The first field that has some: several hold the same."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(delta.get(name), str) and delta[name]:
            return str(delta[name])
    details = "".join(_texts(delta.get("reasoning_details"), "text", "summary"))
    thinking = delta.get("thinking")
    return details or (thinking if isinstance(thinking, str) else "")


def seals(delta: Json) -> Iterator[tuple[Literal["signature", "data"], str]]:
    """Signatures and encrypted reasoning, to be sent back one day as they came."""
    for detail in _dicts(delta.get("reasoning_details")):
        if isinstance(detail.get("signature"), str) and detail["signature"]:
            yield "signature", detail["signature"]
        if detail.get("type") == "reasoning.encrypted" and isinstance(detail.get("data"), str) and detail["data"]:
            yield "data", detail["data"]


def _texts(value: Any, *names: str) -> Iterator[str]:
    for item in _dicts(value):
        yield from (item[name] for name in names if isinstance(item.get(name), str))


def _dicts(value: Any) -> Iterator[Json]:
    yield from (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))


class Reading:
    """`odd` counts what stood where it makes no sense; it is left out."""

    def __init__(self) -> None:
        self.odd = 0

    def first_choices(self, chunk: Json) -> Iterator[Json]:
        """The choices of the first candidate; without an index there is only one."""
        for choice in self._objects(chunk.get("choices")):
            index = choice.get("index")
            if index == 0 or not isinstance(index, int):
                yield choice

    def passages(self, content: Any) -> Iterator[Passage]:
        """A message's content: text, or a list of parts and strings."""
        if isinstance(content, str):
            yield "text", content
        elif isinstance(content, dict):
            yield from self._part(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, str):
                    yield "text", part
                elif isinstance(part, dict):
                    yield from self._part(part)
                else:
                    self.odd += 1
        elif content is not None:
            self.odd += 1

    def call_fragments(self, delta: Json, *, whole: bool) -> Iterator[Fragment]:
        """`whole`: each is a call of its own, as in a complete message."""
        for number, said in enumerate(self._objects(delta.get("tool_calls"))):
            extra = said.get("extra_content")  # Gemini's thought signatures, wanted back with the call
            fragment = self._fragment(number if whole else said.get("index"), said.get("id"), said.get("function"))
            if fragment is not None:
                yield fragment if not isinstance(extra, dict) else msgspec.structs.replace(fragment, extra={"extra_content": extra})
        if delta.get("function_call") is not None:  # what tool calls were called until 2023
            fragment = self._fragment(None, None, delta["function_call"])
            if fragment is not None:
                yield fragment

    def _part(self, part: Json) -> Iterator[Passage]:
        if "thinking" in part:
            thought = part["thinking"]
            yield "thinking", thought if isinstance(thought, str) else "".join(_texts(thought, "text"))
        elif isinstance(part.get("text"), str):
            yield "text", part["text"]
        else:
            self.odd += 1

    def _fragment(self, index: Any, call_id: Any, function: Any) -> Fragment | None:
        said = {} if function is None else function
        if not isinstance(said, dict):
            self.odd += 1
            return None
        arguments, name = said.get("arguments"), said.get("name")
        if isinstance(arguments, dict | list):
            arguments = json_text.write(arguments).decode()
        elif not isinstance(arguments, str):
            self.odd += arguments is not None
            arguments = ""
        return Fragment(
            index if isinstance(index, int) and not isinstance(index, bool) else None,
            call_id if isinstance(call_id, str) else "",
            name if isinstance(name, str) else "",
            arguments,
        )

    def _objects(self, value: Any) -> Iterator[Json]:
        """A list of objects, or one that somebody forgot to put into a list."""
        items = [value] if isinstance(value, dict) else value
        if isinstance(items, list):
            for item in items:
                if isinstance(item, dict):
                    yield item
                else:
                    self.odd += 1
        elif value is not None:
            self.odd += 1
