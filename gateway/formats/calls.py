"""Calls of tools and their results in a history: each call answered right after it, under an id that the target takes.

Claude and OpenAI refuse a whole conversation over one call without its result, a result elsewhere than right after its call, an id
given twice, or one of the wrong shape. Such histories are common: a person stopped the model, a frontend cut the oldest messages, the
next answer comes from another provider. What is well-formed already goes out as it came in.
"""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import structs

from gateway.chat import Content, Message
from gateway.json_text import Json
from gateway.kept import warn_once

Ids = Literal["any", "word", "at_most_40", "alphanumeric_9"]

NOT_CARRIED_OUT = "No result: this call was not carried out."
WITHOUT_CALL = "Result of a tool call that is not part of this conversation:"
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"

Numbered = list[tuple[int, Message]]
"""Messages, each with the number by which its caller knows it."""


def _call(digest: bytes) -> str:
    return f"call_{digest.hex()[:24]}"


def _nine(digest: bytes) -> str:
    number = int.from_bytes(digest, "big")
    return "".join(ALPHABET[number // 36**place % 36] for place in range(9))


# What an id may look like, and how one is made that does.
SHAPES: dict[Ids, tuple[re.Pattern[str], Callable[[bytes], str]]] = {
    "any": (re.compile(r".+", re.DOTALL), _call),
    "word": (re.compile(r"[a-zA-Z0-9_-]+"), _call),
    "at_most_40": (re.compile(r".{1,40}", re.DOTALL), _call),
    "alphanumeric_9": (re.compile(r"[a-zA-Z0-9]{9}"), _nine),
}


@dataclass(eq=False, slots=True)
class _Call:
    """`id` as it came in, `sent` as it goes out, and the block that answers it. Each is only itself: a history may hold thousands."""

    id: str
    sent: str
    result: Json | None = None


@dataclass(slots=True)
class _Book:
    """All calls of a history, by the message that makes them, and by the original id those that have no result yet."""

    by_message: dict[int, list[_Call]] = field(default_factory=dict)
    unanswered: dict[str, deque[_Call]] = field(default_factory=dict)
    results: dict[tuple[int, int], _Call] = field(default_factory=dict)  # message and block → the call that it answers


def paired(messages: list[Message], ids: Ids, warnings: list[str], first: int = 0) -> Numbered:
    """The messages from number `first` on; `warnings` for what was put right."""
    numbered = list(enumerate(messages[first:], first))
    if all(isinstance(message.content, str) and message.role != "tool" for _, message in numbered):
        return numbered  # texts have neither
    if not any(_calls(message) or _has_results(message) for _, message in numbered):
        return numbered
    book = _book(numbered, ids)
    written: Numbered = []
    at = 0
    while at < len(numbered):
        number, message = numbered[at]
        calls = book.by_message.get(number)
        if calls is None:
            written += [(number, left)] if (left := _without_results(number, message, book, warnings)) is not None else []
            at += 1
            continue
        written.append((number, _renamed(message, calls)))
        after = _well_formed(numbered, at + 1, calls, book)
        if after is not None:
            written += [(place, _answering(place, answer, book)) for place, answer in numbered[at + 1 : after]]
            at = after
            continue
        at += 1
        if at == len(numbered):
            break  # nobody answers it: the provider's own words for that are the clearest
        if any(call.result is None for call in calls):
            warn_once(warnings, "a tool call without a result was told so")
        else:
            warn_once(warnings, "tool results were moved to their calls")
        written.append((number, Message("user", [_result(call) for call in calls])))
    return written


def _book(numbered: Numbered, ids: Ids) -> _Book:
    book = _Book()
    naming = _Naming((block["id"] for _, message in numbered for _, block in _calls(message)), ids)
    for number, message in numbered:
        for _, block in _calls(message):
            call = _Call(block["id"], naming(block["id"]))
            book.by_message.setdefault(number, []).append(call)
            book.unanswered.setdefault(call.id, deque()).append(call)
        for place, block in _results(message):
            waiting = book.unanswered.get(block["tool_use_id"])
            if waiting:
                call = waiting.popleft()
                call.result = block
                book.results[number, place] = call
    return book


class _Naming:
    """Ids that fit stay, each for its first call; all others are made of a hash, so that the next request says the same."""

    def __init__(self, given: Iterable[str], ids: Ids) -> None:
        self._fits, self._make = SHAPES[ids]
        self._taken = {id for id in given if self._fits.fullmatch(id)}
        self._seen: Counter[str] = Counter()

    def __call__(self, given: str) -> str:
        self._seen[given] += 1
        if self._seen[given] == 1 and given in self._taken:
            return given
        seed = given if self._seen[given] == 1 else f"{given}\0{self._seen[given]}"
        while True:
            made = self._make(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest())
            if made not in self._taken:
                self._taken.add(made)
                return made
            seed += "\0"


def _well_formed(numbered: Numbered, start: int, calls: list[_Call], book: _Book) -> int | None:
    """Behind the messages that answer all the calls, and nothing else, before anything else is said; None if they do not."""
    answered, wanted = 0, set(calls)
    for at in range(start, len(numbered)):
        number, message = numbered[at]
        places = [place for place, _ in _results(message)]
        if not places:
            return None
        if places != list(range(len(places))) or any(book.results.get((number, place)) not in wanted for place in places):
            return None
        answered += len(places)
        if answered == len(calls):
            return at + 1
        if message.role == "user" and len(places) < len(message.content):
            return None  # something is said before the last result
    return None


def _answering(number: int, message: Message, book: _Book) -> Message:
    """The message with its results under the ids that the calls have now."""
    if message.role == "tool":
        call = book.results[number, 0]
        return message if call.id == call.sent else structs.replace(message, tool_use_id=call.sent, tool_call_id=None)
    content = [_named(block, book.results.get((number, place))) for place, block in enumerate(_blocks(message))]
    return message if all(new is old for new, old in zip(content, message.content, strict=True)) else Message("user", content)


def _named(block: Json, call: _Call | None) -> Json:
    return block if call is None or call.id == call.sent else {**block, "tool_use_id": call.sent}


def _renamed(message: Message, calls: list[_Call]) -> Message:
    if all(call.id == call.sent for call in calls):
        return message
    places = dict(zip((place for place, _ in _calls(message)), calls, strict=True))
    content = [{**block, "id": places[place].sent} if place in places else block for place, block in enumerate(_blocks(message))]
    return structs.replace(message, content=content)


def _result(call: _Call) -> Json:
    if call.result is None:
        return {"type": "tool_result", "tool_use_id": call.sent, "content": NOT_CARRIED_OUT, "is_error": True}
    return _named(call.result, call)


def _without_results(number: int, message: Message, book: _Book, warnings: list[str]) -> Message | None:
    """What a message says besides the results that now stand elsewhere; a result without its call becomes text."""
    if not _has_results(message):
        return message
    if message.role == "tool":
        if (number, 0) in book.results:
            return None
        warn_once(warnings, "a tool result without its call was made text")
        return Message("user", _as_text(message.content))
    places = dict(_results(message))
    content: list[Json] = []
    for place, block in enumerate(_blocks(message)):
        if place not in places or not _can_be_said(block.get("content")):
            content.append(block)
        elif (number, place) not in book.results:
            warn_once(warnings, "a tool result without its call was made text")
            content += _as_text(block.get("content") or [])
    return structs.replace(message, content=content) if content else None


def _can_be_said(content: Any) -> bool:
    """What is not is left to those who know how to refuse it."""
    return isinstance(content, str | None) or (isinstance(content, list) and all(isinstance(block, dict) for block in content))


def _as_text(content: Content) -> list[Json]:
    """A result as a user may say it."""
    said = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{"type": "text", "text": WITHOUT_CALL}, *said]


def _blocks(message: Message) -> list[Json]:
    return [] if isinstance(message.content, str) else message.content


def _calls(message: Message) -> Iterator[tuple[int, Json]] | tuple[()]:
    if message.role != "assistant" or isinstance(message.content, str):
        return ()
    return _of("tool_use", "id", message.content)


def _has_results(message: Message) -> bool:
    return any(True for _ in _results(message))


def _results(message: Message) -> Iterable[tuple[int, Json]]:
    """The results in a message, and where; a tool message is one."""
    if message.role == "tool":
        call = message.tool_use_id or message.tool_call_id
        return [(0, {"type": "tool_result", "tool_use_id": call, "content": message.content})] if call else ()
    if message.role != "user" or isinstance(message.content, str):
        return ()
    return _of("tool_result", "tool_use_id", message.content)


def _of(kind: str, key: str, blocks: list[Json]) -> Iterator[tuple[int, Json]]:
    return ((place, block) for place, block in enumerate(blocks) if block.get("type") == kind and isinstance(block.get(key), str))
