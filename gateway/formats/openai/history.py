"""A conversation as Chat Completions' messages.

https://platform.openai.com/docs/api-reference/chat/create

Providers demand an order that the gateway's vocabulary does not: all tool messages directly after the assistant's calls, and only text
in them, so that a result's images follow in a user message.
"""

import re
from collections.abc import Sequence
from typing import Any

from gateway import json_text
from gateway.chat import ChatRequest, Message
from gateway.errors import RequestRefused
from gateway.formats import Quirks
from gateway.formats.calls import paired
from gateway.json_text import Json

# What Kimi takes for reasoning that is missing in a turn; it refuses an empty string.
NO_REASONING = " "

WORD = re.compile(r"[a-z][a-z0-9_.]{0,39}")

SERVER_BLOCKS = frozenset({"server_tool_use", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing", "fallback"})


def word(said: Any) -> str:
    """A word of the vocabulary's kind, as it was said; what is none may be part of a prompt and is not repeated."""
    return repr(said) if isinstance(said, str) and WORD.fullmatch(said) else "other"


class History:
    """`messages` in the provider's order; `warnings` for what had to be left out."""

    def __init__(self, request: ChatRequest, quirks: Quirks) -> None:
        self.messages: list[Json] = []
        self.warnings: list[str] = []
        self._quirks = quirks
        assistants = [message for message in request.messages if message.role == "assistant"]
        self._thinks = any(block.get("type") == "thinking" for message in assistants for block in _blocks(message.content))
        first = self._system(request)
        # Since the last assistant turn: tool results, the images in them, and everything else in its order.
        self._results: list[Json] = []
        self._images: list[Json] = []
        self._rest: list[Json] = []
        for number, message in paired(request.messages, quirks.tool_ids, self.warnings, first):
            self._message(f"messages[{number}]", message)
        self._end_turn()

    def _system(self, request: ChatRequest) -> int:
        """One system message of the request's and all leading ones; returns how many those were."""
        texts = [] if request.system is None else [self._text("system", request.system)]
        first = 0
        for message in request.messages:
            if message.role != "system":
                break
            texts.append(self._text(f"messages[{first}]", message.content))
            first += 1
        if text := "\n\n".join(text for text in texts if text):
            self.messages.append({"role": "system", "content": text})
        return first

    def _message(self, path: str, message: Message) -> None:
        match message.role:
            case "user":
                self._user(path, message.content)
            case "assistant":
                self._end_turn()
                self._assistant(path, _blocks(message.content))
            case "tool":
                call_id = message.tool_use_id or message.tool_call_id
                if not call_id:
                    raise refusal(f"{path}.tool_use_id", "a tool message names the call that it answers")
                self._result(f"{path}.content", call_id, message.content, is_error=False)
            case "system":
                text = self._text(path, message.content)
                if not text:
                    return
                if self._quirks.later_system == "keep":
                    self._rest.append({"role": "system", "content": text})
                else:
                    self._rest.append({"role": "user", "content": f"<system-reminder>\n{text}\n</system-reminder>"})

    def _user(self, path: str, content: str | list[Json]) -> None:
        parts: list[Json] = []
        results = 0
        for number, block in enumerate(_blocks(content)):
            where = f"{path}.content[{number}]"
            if block.get("type") == "tool_result":
                results += 1
                call_id = block.get("tool_use_id")
                if not isinstance(call_id, str) or not call_id:
                    raise refusal(f"{where}.tool_use_id", "a tool result names the call that it answers")
                self._result(f"{where}.content", call_id, block.get("content"), is_error=block.get("is_error") is True)
            else:
                parts += self._parts(where, block)
        if parts or not results:
            self._rest.append({"role": "user", "content": _content(parts)})

    def _result(self, path: str, call_id: str, content: Any, *, is_error: bool) -> None:
        texts: list[str] = []
        images: list[Json] = []
        for number, block in enumerate(_inner_blocks(path, content)):
            for part in self._parts(f"{path}[{number}]", block):
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
                following = self._rest[0]["content"]
                self._rest[0]["content"] = self._images + ([_text_part(following)] if isinstance(following, str) else following)
            else:
                self._rest.insert(0, {"role": "user", "content": self._images})
        self.messages += self._rest
        self._results, self._images, self._rest = [], [], []

    def _assistant(self, path: str, blocks: Sequence[Json]) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for number, block in enumerate(blocks):
            where = f"{path}.content[{number}]"
            kind = block.get("type")
            if kind == "tool_use":
                calls.append(_call(where, block))
            elif kind == "text":
                texts.append(_string(f"{where}.text", block.get("text")))
            elif kind == "thinking":
                thoughts.append(_string(f"{where}.thinking", block.get("thinking")))
            elif kind == "redacted_thinking":
                self._warn("redacted thinking was left out")
            elif kind in SERVER_BLOCKS or (isinstance(kind, str) and kind.endswith("_tool_result")):
                self._warn("server tool blocks were left out")
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
            if self._thinks:
                message["reasoning_content"] = "".join(thoughts) or NO_REASONING
        elif thoughts:
            self._warn("thinking was left out")
        self.messages.append(message)

    def _parts(self, path: str, block: Json) -> list[Json]:
        """A block of a user's or a tool's as text and image parts."""
        match block.get("type"):
            case "text":
                text = _string(f"{path}.text", block.get("text"))
                return [_text_part(text)] if text else []
            case "image":
                return [{"type": "image_url", "image_url": {"url": self._image(f"{path}.source", block.get("source"))}}]
            case "document":
                return self._document(path, block)
            case "search_result":
                heading = [text for text in (block.get("title"), block.get("source")) if isinstance(text, str)]
                return [_text_part("\n".join([*heading, self._text(path, block.get("content"))]))]
            case "thinking" | "redacted_thinking":
                self._warn("thinking was left out")
                return []
            case kind:
                raise refusal(path, f"a {word(kind)} block cannot be sent to an OpenAI-compatible provider")

    def _image(self, path: str, source: Any) -> str:
        match source:
            case {"type": "base64", "media_type": str(media_type), "data": str(encoded)}:
                return f"data:{media_type};base64,{encoded}"
            case {"type": "url", "url": str(url)} if self._quirks.url_sources:
                return url
            case {"type": "url"}:
                raise refusal(path, "this provider is not given URLs to fetch (quirks.url_sources): send the image as base64")
            case _:
                raise refusal(path, "an image is {type: base64, media_type, data}")

    def _document(self, path: str, block: Json) -> list[Json]:
        source = block.get("source")
        match source:
            case {"type": "text", "data": str(text)}:
                parts = [_text_part(text)]
            case {"type": "content", "content": content}:
                parts = [
                    part
                    for number, inner in enumerate(_inner_blocks(f"{path}.source.content", content))
                    for part in self._parts(f"{path}.source.content[{number}]", inner)
                ]
            case _:
                kind = source.get("type") if isinstance(source, dict) else None
                raise refusal(f"{path}.source", f"a document of type {word(kind)} cannot be sent to this provider, only text")
        title = block.get("title")
        return [_text_part(title), *parts] if isinstance(title, str) and title else parts

    def _text(self, path: str, content: Any) -> str:
        """Content that may be nothing but text."""
        texts = []
        for number, block in enumerate(_inner_blocks(path, content)):
            if block.get("type") != "text":
                raise refusal(f"{path}[{number}]", f"a {block.get('type')!r} block stands where only text can be")
            texts.append(_string(f"{path}[{number}].text", block.get("text")))
        return "\n\n".join(text for text in texts if text)

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)


def refusal(path: str, why: str) -> RequestRefused:
    return RequestRefused("invalid_request", f"{path}: {why}.")


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


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _inner_blocks(path: str, content: Any) -> list[Json]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise refusal(path, "content is a string or a list of blocks")
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            raise refusal(f"{path}[{number}]", "a block is an object with a type")
    return content


def _content(parts: list[Json]) -> str | list[Json]:
    """Text alone as one string, which every server takes."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _string(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise refusal(path, "a string is expected")
    return value
