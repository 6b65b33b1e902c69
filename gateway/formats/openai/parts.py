"""Content blocks as Chat Completions' parts: text, images, files.

https://platform.openai.com/docs/api-reference/chat/create
"""

import re
from typing import Any

from gateway.formats import Quirks
from gateway.formats.fields import refusal
from gateway.json_text import Json
from gateway.kept import warn_once

WORD = re.compile(r"[a-z][a-z0-9_.]{0,39}")


class Parts:
    """What a provider takes of a user's blocks, or of a tool's; `warnings` gets what had to be left out, each once."""

    def __init__(self, quirks: Quirks, warnings: list[str]) -> None:
        self._quirks = quirks
        self._warnings = warnings

    def warn(self, warning: str) -> None:
        warn_once(self._warnings, warning)

    def cached(self, part: Json, block: Json) -> Json:
        """The part with the block's mark that the provider shall cache up to here, where it takes one."""
        mark = block.get("cache_control")
        if mark is None:
            return part
        if not self._quirks.cache_control:
            self.warn("cache_control was left out")
            return part
        return {**part, "cache_control": mark}

    def of(self, path: str, block: Json) -> list[Json]:
        """A block of a user's or a tool's as parts."""
        match block.get("type"):
            case "text":
                text = string(f"{path}.text", block.get("text"))
                return [self.cached(text_part(text), block)] if text else []
            case "image":
                image: Json = {"url": self._image(f"{path}.source", block.get("source"))}
                if isinstance(block.get("detail"), str):
                    image["detail"] = block["detail"]
                return [self.cached({"type": "image_url", "image_url": image}, block)]
            case "document":
                return self._document(path, block)
            case "search_result":
                heading = [text for text in (block.get("title"), block.get("source")) if isinstance(text, str)]
                return [self.cached(text_part("\n".join([*heading, self.text(path, block.get("content"))])), block)]
            case "thinking" | "redacted_thinking":
                self.warn("thinking was left out")
                return []
            case kind:
                raise refusal(path, f"a {word(kind)} block cannot be sent to an OpenAI-compatible provider")

    def texts(self, path: str, content: Any) -> list[Json]:
        """Content that may be nothing but text."""
        parts = []
        for number, block in enumerate(inner_blocks(path, content)):
            if block.get("type") != "text":
                raise refusal(f"{path}[{number}]", f"a {word(block.get('type'))} block stands where only text can be")
            if text := string(f"{path}[{number}].text", block.get("text")):
                parts.append(self.cached(text_part(text), block))
        return parts

    def text(self, path: str, content: Any) -> str:
        return "\n\n".join(part["text"] for part in self.texts(path, content))

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
        source, title = block.get("source"), block.get("title")
        name = title if isinstance(title, str) else ""
        match source:
            case {"type": "text", "data": str(text)}:
                parts = [text_part(text)]
            case {"type": "content", "content": content}:
                parts = [
                    part
                    for number, inner in enumerate(inner_blocks(f"{path}.source.content", content))
                    for part in self.of(f"{path}.source.content[{number}]", inner)
                ]
            case {"type": "base64", "media_type": str(media_type), "data": str(encoded)} if self._quirks.files:
                file = {"filename": name or "document.pdf", "file_data": f"data:{media_type};base64,{encoded}"}
                return [self.cached({"type": "file", "file": file}, block)]
            case {"type": "file", "file_id": str(file_id)} if self._quirks.files:
                return [self.cached({"type": "file", "file": {"file_id": file_id}}, block)]
            case _:
                kind = source.get("type") if isinstance(source, dict) else None
                raise refusal(f"{path}.source", f"a document of type {word(kind)} cannot be sent to this provider, only text")
        return [text_part(name), *parts] if name else parts


def word(said: Any) -> str:
    """A word of the vocabulary's kind, as it was said; what is none may be part of a prompt and is not repeated."""
    return repr(said) if isinstance(said, str) and WORD.fullmatch(said) else "other"


def blocks_of(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def inner_blocks(path: str, content: Any) -> list[Json]:
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


def as_content(parts: list[Json]) -> str | list[Json]:
    """Text alone as one string, which every server takes."""
    if all(part.keys() == {"type", "text"} for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def string(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise refusal(path, "a string is expected")
    return value
