"""A conversation as Chat Completions' messages.

https://platform.openai.com/docs/api-reference/chat/create

Providers demand an order that the gateway's vocabulary does not: all tool messages directly after the assistant's calls, and only text
in them, so that a result's images follow in a user message.
"""

from itertools import groupby
from typing import Any

from gateway import json_text
from gateway.chat import ChatRequest, Content, Message
from gateway.formats import Quirks
from gateway.formats.calls import paired
from gateway.formats.fields import refusal
from gateway.formats.openai.parts import Parts, as_content, blocks_of, inner_blocks, string, text_part, word
from gateway.json_text import Json

# What Kimi takes for reasoning that is missing in a turn; it refuses an empty string.
NO_REASONING = " "

SERVER_BLOCKS = frozenset({"server_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing", "fallback"})


class History:
    """`messages` in the provider's order; `warnings` for what had to be left out."""

    def __init__(self, request: ChatRequest, quirks: Quirks) -> None:
        self.messages: list[Json] = []
        self.warnings: list[str] = []
        self._quirks = quirks
        self._parts = Parts(quirks, self.warnings)
        self._echoes = quirks.echo_reasoning != "never" and _thinks(request)
        first = self._system(request)
        # Since the last assistant turn: tool results, the images in them, and everything else in its order.
        self._results: list[Json] = []
        self._images: list[Json] = []
        self._rest: list[Json] = []
        for number, message in paired(request.messages, quirks.tool_ids, self.warnings, first):
            if message.role == "user" and isinstance(message.content, str):
                self._rest.append({"role": "user", "content": message.content})  # as `_user` would, after a look at every part
            else:
                self._message(f"messages[{number}]", message)
        self._end_turn()
        if quirks.alternating:
            self.messages = _alternating(self.messages)

    def _system(self, request: ChatRequest) -> int:
        """One system message of the request's and all leading ones; returns how many those were."""
        parts = [] if request.system is None else self._parts.texts("system", request.system)
        first = 0
        for message in request.messages:
            if message.role != "system":
                break
            parts += self._parts.texts(f"messages[{first}]", message.content)
            first += 1
        if parts:
            self.messages.append({"role": "system", "content": as_content(parts)})
        return first

    def _message(self, path: str, message: Message) -> None:
        match message.role:
            case "user":
                self._user(path, message.content)
            case "assistant":
                self._end_turn()
                self._assistant(path, message.content)
            case "tool":
                call_id = message.tool_use_id or message.tool_call_id
                if not call_id:
                    raise refusal(f"{path}.tool_use_id", "a tool message names the call that it answers")
                self._result(f"{path}.content", call_id, message.content, is_error=False)
            case "system":
                text = self._parts.text(path, message.content)
                if not text:
                    return
                if self._quirks.later_system == "keep":
                    self._rest.append({"role": "system", "content": text})
                else:
                    self._rest.append({"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"})

    def _user(self, path: str, content: str | list[Json]) -> None:
        parts: list[Json] = []
        results = 0
        for number, block in enumerate(blocks_of(content)):
            where = f"{path}.content[{number}]"
            if block.get("type") == "tool_result":
                results += 1
                call_id = block.get("tool_use_id")
                if not isinstance(call_id, str) or not call_id:
                    raise refusal(f"{where}.tool_use_id", "a tool result names the call that it answers")
                self._result(f"{where}.content", call_id, block.get("content"), is_error=block.get("is_error") is True)
            else:
                parts += self._parts.of(where, block)
        if parts or not results:
            self._rest.append({"role": "user", "content": as_content(parts)})

    def _result(self, path: str, call_id: str, content: Any, *, is_error: bool) -> None:
        texts: list[str] = []
        images: list[Json] = []
        for number, block in enumerate(inner_blocks(path, content)):
            for part in self._parts.of(f"{path}[{number}]", block):
                if part["type"] == "text":
                    texts.append(part["text"])
                else:
                    images.append(part)
        text = "\n\n".join(texts)
        if not text and images:
            text = "The result is in the user message that follows."
        # There is no field for it, and a model that takes a failure for a result goes wrong.
        if is_error and not text.lower().startswith("error"):
            text = f"Error: {text}"
        self._results.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._images += images

    def _end_turn(self) -> None:
        self.messages += self._results
        if self._images:
            # In one with the text that follows: many chat templates refuse two user messages in a row.
            if self._rest and self._rest[0]["role"] == "user":
                self._rest[0]["content"] = self._images + _as_parts(self._rest[0]["content"])
            else:
                self._rest.insert(0, {"role": "user", "content": self._images})
        self.messages += self._rest
        self._results, self._images, self._rest = [], [], []

    def _assistant(self, path: str, content: Content) -> None:
        texts, blocks = ([content], []) if isinstance(content, str) else ([], content)
        thoughts: list[str] = []
        calls: list[Json] = []
        for number, block in enumerate(blocks):
            where = f"{path}.content[{number}]"
            kind = block.get("type")
            if block.get("cache_control") is not None:
                self._parts.warn("cache_control was left out")  # nobody takes it in what the model said
            if kind == "tool_use":
                calls.append(_call(where, block))
            elif kind == "text":
                texts.append(string(f"{where}.text", block.get("text")))
            elif kind == "thinking":
                thoughts.append(string(f"{where}.thinking", block.get("thinking")))
            elif kind == "redacted_thinking":
                self._parts.warn("redacted thinking was left out")
            elif kind in SERVER_BLOCKS or (isinstance(kind, str) and kind.endswith("_tool_result")):
                self._parts.warn("server tool blocks were left out")
            else:
                raise refusal(where, f"an assistant's {word(kind)} block cannot be sent to an OpenAI-compatible provider")
        # Citations and the like cut one text into several blocks: nothing stood between them.
        text = "".join(texts)
        if not text and not calls:
            return
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        echo = self._quirks.echo_reasoning
        if echo == "always" or (echo == "tool_turns" and calls):
            if self._echoes:
                message["reasoning_content"] = "".join(thoughts) or NO_REASONING
        elif thoughts:
            self._parts.warn("thinking was left out")
        self.messages.append(message)


def _thinks(request: ChatRequest) -> bool:
    """Whether reasoning is asked for, or was before."""
    if request.effort is not None or (request.thinking or {"type": "disabled"}).get("type") != "disabled":
        return True
    said = (message.content for message in request.messages if message.role == "assistant" and not isinstance(message.content, str))
    return any(block.get("type") == "thinking" for blocks in said for block in blocks)


def _alternating(messages: list[Json]) -> list[Json]:
    """Messages in a row of a user's, or of an assistant's, as one. Behind calls stand their results."""
    merged: list[Json] = []
    for role, row in groupby(messages, key=lambda message: str(message["role"])):
        said = list(row)
        if role not in ("user", "assistant"):
            merged += said
            continue
        whole: Json = {}
        for message in said:
            whole |= message
        merged.append({**whole, "content": _joined([message["content"] for message in said])})
    return merged


def _joined(contents: list[str | list[Json] | None]) -> str | list[Json] | None:
    if any(isinstance(content, list) for content in contents):
        return [part for content in contents for part in _as_parts(content)]
    return "\n\n".join(text for text in contents if isinstance(text, str) and text) or contents[0]


def _as_parts(content: str | list[Json] | None) -> list[Json]:
    return content if isinstance(content, list) else [text_part(content)] if content else []


def _call(path: str, block: Json) -> Json:
    """A tool use; its input may be the text of arguments that another client stored."""
    call_id, name, said = block.get("id"), block.get("name"), block.get("input")
    if not isinstance(call_id, str) or not call_id:
        raise refusal(f"{path}.id", "a tool use has an id")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.name", "a tool use has a name")
    if isinstance(said, str):
        try:
            said = json_text.read(said) if said.strip() else {}
        except json_text.MalformedJson as error:
            raise refusal(f"{path}.input", "the tool's arguments are not valid JSON") from error
    if said is None:
        said = {}
    if not isinstance(said, dict):
        raise refusal(f"{path}.input", "a tool's input is a JSON object")
    call: Json = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json_text.write(said).decode()}}
    if isinstance(block.get("extra_content"), dict):
        call["extra_content"] = block["extra_content"]  # Gemini's signature of its thought, which it demands back
    return call
