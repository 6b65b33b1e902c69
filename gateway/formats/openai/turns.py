"""Chat Completions' messages as the gateway's: the way back of `history`.

https://platform.openai.com/docs/api-reference/chat/create
"""

import re
from collections.abc import Iterator
from typing import Any

from gateway.chat import MOST_MESSAGES, Content, Message
from gateway.deltas import read_input
from gateway.errors import RequestRefused
from gateway.events import InvalidInput
from gateway.formats.fields import refusal
from gateway.formats.openai.parts import word
from gateway.json_text import Json
from gateway.kept import warn_once

DATA_URL = re.compile(r"data:(?P<type>[a-z]+/[a-z0-9.+-]+)(?:;[^,;]*)*;base64,", re.IGNORECASE)
LONGEST_HEAD = 1000  # characters of a data: URL before its data; a pattern that is looked for in megabytes takes seconds
# What a user's message may hold that has no way through here.
REFUSED = {"input_audio": "audio", "audio": "audio"}
WHAT_BLOCKS = "content is a string or a list of parts"


def turns(given: Any, warnings: list[str]) -> list[Message]:
    """`messages`, at least one; `RequestRefused` with the path of what is wrong."""
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MESSAGES:
        raise refusal("messages", f"a list of 1 to {MOST_MESSAGES} messages is expected")
    reading = _Reading(warnings)
    found = [turn for number, message in enumerate(given) for turn in reading.turn(number, message)]
    if not found:
        raise refusal("messages", "at least one must say something")
    return found


class _Reading:
    """Remembers what the deprecated function messages leave unsaid: which call each answers."""

    def __init__(self, warnings: list[str]) -> None:
        self._warnings = warnings
        self._function_calls: dict[str, str] = {}  # a function's name → the id that its last call was given

    def turn(self, number: int, said: Any) -> Iterator[Message]:
        path = f"messages[{number}]"
        if not isinstance(said, dict):
            raise refusal(path, "a message is an object")
        content = said.get("content")
        if said.get("name") is not None and said.get("role") != "function":
            warn_once(self._warnings, "names of participants were left out")
        match said.get("role"):
            case "system" | "developer":
                yield Message("system", _texts(path, content))
            case "user":
                yield Message("user", self._content(path, content))
            case "assistant":
                if blocks := list(self._assistant(number, path, said)):
                    yield Message("assistant", _plain(blocks))
            case "tool":
                call = _text(f"{path}.tool_call_id", said.get("tool_call_id"))
                yield Message("tool", self._content(path, content or ""), tool_call_id=call)
            case "function":
                name = _text(f"{path}.name", said.get("name"))
                if name not in self._function_calls:
                    raise refusal(f"{path}.name", "no function of that name was called before")
                yield Message("tool", self._content(path, content or ""), tool_call_id=self._function_calls[name])
            case _:
                raise refusal(f"{path}.role", "expected one of system, developer, user, assistant, tool")

    def _assistant(self, number: int, path: str, said: Json) -> Iterator[Json]:
        """An answer as a client stored it; an empty one, which was broken off before its first word, is none."""
        for name in ("reasoning_content", "reasoning"):
            if isinstance(said.get(name), str) and said[name]:
                yield {"type": "thinking", "thinking": said[name]}
                break
        for place, part in _parts(path, said.get("content") or []):
            match part:
                case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                    if text:
                        yield _text_block(text, part)
                case _:
                    raise _no_part(place, part, "text or a refusal")
        if isinstance(said.get("refusal"), str) and said["refusal"]:
            yield {"type": "text", "text": said["refusal"]}
        if said.get("audio") is not None:
            warn_once(self._warnings, "audio was left out")
        calls = said.get("tool_calls")
        if not isinstance(calls, list | None):
            raise refusal(f"{path}.tool_calls", "a list is expected")
        for position, call in enumerate(calls or ()):
            yield _call(f"{path}.tool_calls[{position}]", call)
        if said.get("function_call") is not None:
            block = _function(f"{path}.function_call", f"call_{number}", said["function_call"])
            self._function_calls[block["name"]] = block["id"]
            yield block

    def _content(self, path: str, given: Any) -> Content:
        if isinstance(given, str):
            return given
        return [_block(place, part) for place, part in _parts(path, given)]


def _parts(path: str, given: Any) -> Iterator[tuple[str, Json]]:
    if isinstance(given, str):
        given = [{"type": "text", "text": given}]
    if not isinstance(given, list):
        raise refusal(f"{path}.content", WHAT_BLOCKS)
    for number, part in enumerate(given):
        if not isinstance(part, dict):
            raise refusal(f"{path}.content[{number}]", "a part is an object with a type")
        yield f"{path}.content[{number}]", part


def _texts(path: str, given: Any) -> Content:
    if isinstance(given, str):
        return given
    blocks = []
    for place, part in _parts(path, given):
        match part:
            case {"type": "text", "text": str(text)}:
                blocks.append(_text_block(text, part))
            case _:
                raise _no_part(place, part, "text")
    return blocks


def _block(place: str, part: Json) -> Json:
    """A part of a user's or a tool's message."""
    match part:
        case {"type": "text", "text": str(text)}:
            return _text_block(text, part)
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            image: Json = {"type": "image", "source": _source(f"{place}.image_url", url)}
            if isinstance(part["image_url"], dict) and isinstance(detail := part["image_url"].get("detail"), str):
                image["detail"] = detail
            return image | _cache_control(part)
        case {"type": "file", "file": dict(file)}:
            return _file(f"{place}.file", file) | _cache_control(part)
        case {"type": str(kind)} if kind in REFUSED:
            sentence = f"{place}: {REFUSED[kind]} cannot be sent through this format here, only text, images and files."
            raise RequestRefused("unsupported", sentence)
        case _:
            raise _no_part(place, part, "text, image_url or file")


def _file(place: str, file: Json) -> Json:
    """A document, or an image that came as a file."""
    match file:
        case {"file_data": str(url)}:
            source = _source(f"{place}.file_data", url)
        case {"file_id": str(file_id)} if file_id:
            source = {"type": "file", "file_id": file_id}
        case _:
            raise refusal(place, "file_data, a data: URL in base64, or file_id is expected")
    block: Json = {"type": "image" if source.get("media_type", "").startswith("image/") else "document", "source": source}
    name = file.get("filename")
    return block | ({"title": name} if block["type"] == "document" and isinstance(name, str) and name else {})


def _source(place: str, url: str) -> Json:
    if found := DATA_URL.match(url, 0, LONGEST_HEAD):
        return {"type": "base64", "media_type": found["type"].lower(), "data": url[found.end() :]}
    if url.lower().startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise refusal(place, "an http(s) URL or a data: URL in base64, with its media type, is expected")


def _call(path: str, given: Any) -> Json:
    match given:
        case {"type": "custom"}:
            raise RequestRefused("unsupported", f"{path}: calls of tools that take free text are not available here.")
        case {"function": function}:
            block = _function(f"{path}.function", _text(f"{path}.id", given.get("id")), function)
        case _:
            raise refusal(f"{path}.function", "an object is expected")
    if isinstance(given.get("extra_content"), dict):
        block["extra_content"] = given["extra_content"]
    return block


def _function(path: str, call_id: str, given: Any) -> Json:
    if not isinstance(given, dict):
        raise refusal(path, "an object is expected")
    arguments = given.get("arguments")
    if isinstance(arguments, str):
        arguments = read_input(arguments)
    if isinstance(arguments, InvalidInput):
        why = "are not a JSON object" if arguments.reason == "not_an_object" else "are not JSON"
        raise refusal(f"{path}.arguments", f"the tool's arguments {why}")
    if not isinstance(arguments, dict | None):
        raise refusal(f"{path}.arguments", "a string of JSON is expected")
    return {"type": "tool_use", "id": call_id, "name": _text(f"{path}.name", given.get("name")), "input": arguments or {}}


def _plain(blocks: list[Json]) -> Content:
    """Text alone as one string."""
    alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return str(blocks[0]["text"]) if alone else blocks


def _text_block(text: str, part: Json) -> Json:
    return {"type": "text", "text": text, **_cache_control(part)}


def _cache_control(part: Json) -> Json:
    """OpenRouter's way to say it to Claude."""
    return {"cache_control": part["cache_control"]} if isinstance(part.get("cache_control"), dict) else {}


def _no_part(place: str, part: Json, expected: str) -> RequestRefused:
    return refusal(place, f"{expected} is expected, not {word(part.get('type'))}")


def _text(path: str, given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise refusal(path, "a string is expected")
    return given
