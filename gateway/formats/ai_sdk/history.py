"""UI messages as the gateway's: one with several steps becomes several turns, with the results of its tools between them.

https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message (`convertToModelMessages` does this where a page has a server of its own)

A call that never got a result would make every provider refuse the history: it is answered with what is known, or left out.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from gateway import json_text
from gateway.chat import MOST_MESSAGES, Content, Message
from gateway.deltas import read_input
from gateway.errors import RequestRefused
from gateway.events import InvalidInput
from gateway.formats import fields
from gateway.formats.ai_sdk import terms
from gateway.formats.fields import refusal
from gateway.json_text import Json
from gateway.kept import warn_once

DATA_URL = re.compile(r"data:(?P<type>[a-z]+/[a-z0-9.+-]+)?(?:;(?!base64,)[^,;]*)*(?P<base64>;base64)?,", re.IGNORECASE)
LONGEST_HEAD = 1000  # characters of a data: URL before its data; a pattern that is looked for in megabytes takes seconds
STRAY = re.compile(rb"%(?![0-9A-Fa-f]{2})")
TEXTS = re.compile(r"text/.*|application/(json|xml|yaml|x-yaml|toml|javascript|x-ndjson|sql)|.*\+(json|xml)")

NOT_RUN = "The tool was not run."
UNDECIDED = "The tool was not run: nobody has approved it yet."
APPROVED = "The tool was approved, but it was not run."
DENIED = "The tool was not run: the user denied it."

# Parts that are for the page's eyes.
UNSEEN = frozenset({"source-url", "source-document", "step-start"})


def turns(given: Any, warnings: list[str]) -> list[Message]:
    """`messages`, at least one; `RequestRefused` with the path of what is wrong."""
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_MESSAGES:
        raise refusal("messages", "required" if given is None else f"a list of 1 to {MOST_MESSAGES} messages is expected")
    reading = _Reading(given, warnings)
    found = [turn for number, message in enumerate(given) for turn in reading.turn(number, message)]
    if not found:
        raise refusal("messages", "at least one must say something")
    return found


class _Reading:
    """Knows which results of calls at the provider have a place of their own, and which message is the last."""

    def __init__(self, given: list[Any], warnings: list[str]) -> None:
        self._warnings = warnings
        self._last = len(given) - 1
        blocks = [part.get("data") for message in given for part in _list(message, "parts") if _kind(part) == terms.BLOCK]
        self._placed = {block["tool_use_id"] for block in blocks if terms.is_result(block)}

    def turn(self, number: int, said: Any) -> Iterator[Message]:
        path = f"messages[{number}]"
        parts = _parts(path, said)
        match said.get("role"):
            case "user":
                if blocks := [block for place, part in parts for block in self._shown(place, part)]:
                    yield Message("user", _plain(blocks))
            case "assistant":
                yield from self._assistant(path, parts, last=number == self._last)
            case "system":
                texts = [fields.text(f"{place}.text", part.get("text")) for place, part in parts if part["type"] == "text"]
                if text := "".join(texts):
                    yield Message("system", text)
            case _:
                raise refusal(f"{path}.role", "expected one of user, assistant, system")

    def _assistant(self, path: str, parts: list[tuple[str, Json]], *, last: bool) -> Iterator[Message]:
        """An answer that was stopped before its first word is none."""
        blocks: list[Json] = []
        results: list[Json] = []
        for place, part in [*parts, ("", {"type": "step-start"})]:
            if part["type"] in ("step-start", "steering-message"):
                if blocks:
                    yield Message("assistant", _plain(blocks))
                if results:
                    yield Message("user", results)
                blocks, results = [], []
            match part["type"]:
                case "steering-message":  # what the user wrote while the answer was coming
                    said = [block for at, inner in _parts(place, part) for block in self._shown(at, inner)]
                    if said:
                        yield Message("user", _plain(said))
                case "text":
                    if text := fields.text(f"{place}.text", part.get("text")):
                        blocks.append({**_text_block(text, part), **_citations(part)})
                case "reasoning":
                    blocks += self._reasoning(place, part)
                case terms.BLOCK:
                    if not _is_block(block := part.get("data")):
                        raise refusal(f"{place}.data", "a content block, an object with a type, is expected")
                    blocks.append(block)
                case str(kind) if kind == "dynamic-tool" or kind.startswith("tool-"):
                    self._tool(place, part, blocks, results, last=last)
                case "file" | "reasoning-file":
                    warn_once(self._warnings, "files in an answer were left out")
                case kind:
                    self._pass_over(kind)

    def _reasoning(self, place: str, part: Json) -> Iterator[Json]:
        text, theirs = fields.text(f"{place}.text", part.get("text")), _metadata(part, terms.ANTHROPIC)
        signature, hidden = theirs.get("signature"), theirs.get("redactedData")
        if isinstance(hidden, str) and hidden:
            yield _extended({"type": "redacted_thinking", "data": hidden}, part)
        elif text or signature:
            sealed = signature if isinstance(signature, str) else ""
            yield _extended({"type": "thinking", "thinking": text, "signature": sealed}, part)

    def _tool(self, place: str, part: Json, blocks: list[Json], results: list[Json], *, last: bool) -> None:
        dynamic = part["type"] == "dynamic-tool"
        key, said = ("toolName", part.get("toolName")) if dynamic else ("type", part["type"].removeprefix("tool-"))
        name = fields.name(f"{place}.{key}", said)
        call_id = fields.name(f"{place}.toolCallId", part.get("toolCallId"))
        if part.get("state") == "input-streaming":
            warn_once(self._warnings, "a call whose arguments broke off was left out")
            return
        at_provider = part.get("providerExecuted") is True
        call: Json = {"type": "tool_use", "id": call_id, "name": name, "input": _input(part)}
        if at_provider:
            kind = _metadata(part, terms.OWN, "callProviderMetadata").get("type")
            call["type"] = kind if kind in terms.SERVER_CALLS else "server_tool_use"
        call = _extended(call, part, "callProviderMetadata")
        if not at_provider:
            blocks.append(call)
            results.append({"type": "tool_result", "tool_use_id": call_id, **_result(place, part)})
            return
        output = part.get("output")
        if call_id in self._placed:
            blocks.append(call)
        elif terms.is_result(output) and output["tool_use_id"] == call_id:
            blocks += [call, output]
        elif last and "output" not in part and "errorText" not in part:
            blocks.append(call)  # its result comes with the answer to this request
        else:
            warn_once(self._warnings, "a call that ran at the provider was left out: its result is not known as it came")

    def _shown(self, place: str, part: Json) -> Iterator[Json]:
        """What a user sends."""
        match part["type"]:
            case "text":
                if text := fields.text(f"{place}.text", part.get("text")):
                    yield _text_block(text, part)
            case "file":
                yield _file(place, part) | _cache_control(part)
            case kind:
                self._pass_over(kind)

    def _pass_over(self, kind: str) -> None:
        if kind not in UNSEEN and not kind.startswith("data-"):
            warn_once(self._warnings, "parts of an unknown type were left out")


def _result(place: str, part: Json) -> Json:
    """What became of a call, for the model to read."""
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            return {"content": output if isinstance(output, str) else json_text.write(output).decode()}
        case "output-error":
            return {"content": fields.text(f"{place}.errorText", part.get("errorText")) or NOT_RUN, "is_error": True}
        case "output-denied":
            return {"content": _reason(part) or DENIED, "is_error": True}
        case "approval-requested":
            return {"content": UNDECIDED, "is_error": True}
        case "approval-responded":
            approval = part.get("approval")
            approved = isinstance(approval, dict) and approval.get("approved") is True
            return {"content": APPROVED if approved else _reason(part) or DENIED, "is_error": True}
        case "input-available":
            return {"content": NOT_RUN, "is_error": True}
        case _:
            raise refusal(f"{place}.state", "a state of a tool's part (input-available, output-available, output-error, …) is expected")


def _reason(part: Json) -> str | None:
    approval = part.get("approval")
    reason = approval.get("reason") if isinstance(approval, dict) else None
    return reason if isinstance(reason, str) and reason else None


def _input(part: Json) -> Json:
    """Arguments that were refused may be anything; the model sees what was wrong with them in the result."""
    given = part.get("input") if part.get("input") is not None else part.get("rawInput")
    if isinstance(given, str):
        read = read_input(given)
        return {} if isinstance(read, InvalidInput) else read
    return given if isinstance(given, dict) else {}


def _file(place: str, part: Json) -> Json:
    """An image, a PDF or a text; by its type, which the page knows better than the URL."""
    url, kind = part.get("url"), part.get("mediaType")
    if not isinstance(url, str) or not url:
        raise refusal(f"{place}.url", "a data: or http(s) URL is expected")
    if not isinstance(kind, str | None):
        raise refusal(f"{place}.mediaType", "a string is expected")
    data = DATA_URL.match(url, 0, LONGEST_HEAD)
    if data is None and not url.lower().startswith(terms.URL):
        raise refusal(f"{place}.url", "a data: or http(s) URL is expected; others mean something in the page only")
    kind = (kind or (data and data["type"]) or "").lower().partition(";")[0]
    named = {"title": part["filename"]} if isinstance(part.get("filename"), str) and part["filename"] else {}
    if kind.startswith("image/"):
        return {"type": "image", "source": _source(place, url, data, kind)}
    if kind == "application/pdf":
        return {"type": "document", "source": _source(place, url, data, kind), **named}
    if data and TEXTS.fullmatch(kind):
        text = _decoded(place, url, data).decode("utf-8", "replace")
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **named}
    raise RequestRefused("unsupported", f"{place}.mediaType: only images, PDFs and texts can be sent (texts as data: URLs).")


def _source(place: str, url: str, data: re.Match[str] | None, kind: str) -> Json:
    if data is None:
        return {"type": "url", "url": url}
    encoded = url[data.end() :] if data["base64"] else base64.b64encode(_decoded(place, url, data)).decode()
    return {"type": "base64", "media_type": kind, "data": encoded}


def _decoded(place: str, url: str, data: re.Match[str]) -> bytes:
    content = _unquoted(place, url[data.end() :].encode("utf-8", "replace"))
    if not data["base64"]:
        return content
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise refusal(f"{place}.url", "the data is not base64") from error


def _unquoted(place: str, data: bytes) -> bytes:
    """Percent-encoded bytes, by the decoder of quoted-printable: urllib's takes a microsecond for each, and a body holds millions."""
    if b"%" not in data:
        return data
    if STRAY.search(data):
        raise refusal(f"{place}.url", "a percent sign is followed by two hexadecimal digits, or written %25")
    return binascii.a2b_qp(data.replace(b"=", b"=3D").replace(b"%", b"="))


def _parts(path: str, said: Any) -> list[tuple[str, Json]]:
    if not isinstance(said, dict):
        raise refusal(path, "an object is expected")
    parts = said.get("parts")
    if not isinstance(parts, list):
        hint = " (content is for the native format, at /chat)" if "content" in said else ""
        raise refusal(f"{path}.parts", f"a list of parts is expected{hint}")
    found = []
    for number, part in enumerate(parts):
        if not isinstance(_kind(part), str):
            raise refusal(f"{path}.parts[{number}].type", "a string is expected")
        found.append((f"{path}.parts[{number}]", part))
    return found


def _plain(blocks: list[Json]) -> Content:
    """Text alone as one string."""
    alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return str(blocks[0]["text"]) if alone else blocks


def _text_block(text: str, part: Json) -> Json:
    return _extended({"type": "text", "text": text, **_cache_control(part)}, part)


def _extended(block: Json, part: Json, key: str = "providerMetadata") -> Json:
    """With the fields that the gateway had found in it besides."""
    return {**_metadata(part, terms.OWN, key), **block}


def _cache_control(part: Json) -> Json:
    """The AI SDK's way to say it to Claude."""
    theirs = _metadata(part, terms.ANTHROPIC)
    wish = theirs.get("cacheControl", theirs.get("cache_control"))
    return {"cache_control": wish} if isinstance(wish, dict) else {}


def _citations(part: Json) -> Json:
    cited = _metadata(part, terms.ANTHROPIC).get("citations")
    return {"citations": cited} if isinstance(cited, list) and cited and all(isinstance(one, dict) for one in cited) else {}


def _metadata(part: Json, provider: str, key: str = "providerMetadata") -> Json:
    every = part.get(key)
    found = every.get(provider) if isinstance(every, dict) else None
    return found if isinstance(found, dict) else {}


def _is_block(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] != ""


def _kind(part: Any) -> Any:
    return part.get("type") if isinstance(part, dict) else None


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
