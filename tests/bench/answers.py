"""The load: answers of any number of deltas in both upstream formats, and what must be left of them at the client.

60 % of the deltas are text, 30 % thinking, 10 % fragments of one tool call. The same count gives the same bytes in every process.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

WORDS = (
    " the", " a", " stream", " of", " tokens", " arrives", " and", " is", " passed", " on", " at", " once", ".", ",", " café", " naïve",
    " “quoted”", " 东京", " 🙂", "\n\n", " \\frac{1}{2}", ' "text"', " un", "believ", "able", " Gateway", " model", " answer", " 42",
    " then",
)  # fmt: skip
CLAUDE, OPENAI = "/v1/messages", "/v1/chat/completions"
KINDS = ("thinking", "text", "tool")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Digest:
    """How many deltas, and a hash of what they say, kind by kind."""

    deltas: int
    sha256: str

    @classmethod
    def of(cls, deltas: Iterable[tuple[str, str]]) -> "Digest":
        """Of (kind, text) pairs; empty ones do not count, as formats differ in them."""
        count = 0
        texts: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for kind, text in deltas:
            if text:
                count += 1
                texts[kind].append(text)
        hashed = hashlib.sha256("\0".join("".join(texts[kind]) for kind in KINDS).encode("utf-8", "surrogatepass"))
        return cls(count, hashed.hexdigest())


@dataclass(frozen=True, slots=True)
class Answer:
    """`steps[0]` is everything up to the first delta, each of the others one delta and the block borders before it."""

    steps: tuple[bytes, ...]
    ending: bytes

    @property
    def whole(self) -> bytes:
        return b"".join((HEAD, *self.steps, self.ending))


@cache
def deltas(count: int) -> tuple[tuple[str, str], ...]:
    thinking, tool = count * 3 // 10, max(count > 1, count // 10)
    chance = random.Random(count)
    said = [("thinking", chance.choice(WORDS)) for _ in range(thinking)]
    said += [("text", chance.choice(WORDS)) for _ in range(count - thinking - tool)]
    said[0] = (said[0][0], "First")  # blanks at the beginning of an answer may be held back
    if thinking:
        said[thinking] = ("text", "Next")
    said += [("tool", fragment) for fragment in _arguments(tool, chance)]
    return tuple(said)


def _arguments(count: int, chance: random.Random) -> list[str]:
    if count < 3:
        return ['{"query":"tokens"}'] if count == 1 else ['{"query":', '"tokens"}']
    words = [chance.choice((" alpha", " beta", " é", " gamma")) for _ in range(count - 2)]
    return ['{"query":"', *words, '"}']


@cache
def digest(count: int) -> Digest:
    return Digest.of(deltas(count))


@cache
def text_digest(count: int) -> Digest:
    """For plain text, where deltas cannot be counted."""
    return Digest.of([("text", "".join(text for kind, text in deltas(count) if kind == "text"))])


@cache
def answer(path: str, count: int) -> Answer:
    return (_claude if path == CLAUDE else _openai)(deltas(count))


@cache
def large(path: str, size: int, piece: int) -> Answer:
    """One delta of `size` bytes, cut into HTTP chunks of `piece`."""
    text = "0123456789abcdef" * (size // 16)
    whole = (_claude if path == CLAUDE else _openai)((("text", text),))
    body = b"".join(payload for payload, _ in chunks(whole.steps[0]))
    return Answer(tuple(chunk(body[start : start + piece]) for start in range(0, len(body), piece)), whole.ending)


def large_digest(size: int) -> Digest:
    return Digest.of([("text", "0123456789abcdef" * (size // 16))])


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The payloads of complete HTTP chunks, and where each ends on the wire."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        size = int(data[at:end].partition(b";")[0], 16)
        at = end + 4 + size
        yield data[end + 2 : at - 2], at


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _event(value: dict[str, Any]) -> bytes:
    return chunk(b"event: %b\ndata: %b\n\n" % (value["type"].encode(), _json(value)))


BLOCKS = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
    "tool": {"type": "tool_use", "id": "toolu_01BenchBenchBenchBench", "name": "search", "input": {}},
}
DELTAS = {"thinking": ("thinking_delta", "thinking"), "text": ("text_delta", "text"), "tool": ("input_json_delta", "partial_json")}


def _claude(said: tuple[tuple[str, str], ...]) -> Answer:
    usage = {"input_tokens": 25, "output_tokens": 1}
    message = {"id": "msg_01BenchBenchBenchBench", "type": "message", "role": "assistant", "model": "claude-bench", "content": []}
    before = _event({"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}})
    steps, index, current = [], -1, ""
    for kind, text in said:
        if kind != current:
            if current:
                before += _event({"type": "content_block_stop", "index": index})
            index, current = index + 1, kind
            before += _event({"type": "content_block_start", "index": index, "content_block": BLOCKS[kind]})
        name, field = DELTAS[kind]
        steps.append(before + _event({"type": "content_block_delta", "index": index, "delta": {"type": name, field: text}}))
        before = b""
    reason = "tool_use" if current == "tool" else "end_turn"
    ending = _event({"type": "content_block_stop", "index": index})
    ending += _event(
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": len(said)}}
    )
    return Answer(tuple(steps), ending + _event({"type": "message_stop"}) + LAST_CHUNK)


def _openai(said: tuple[tuple[str, str], ...]) -> Answer:
    root = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_760_000_000, "model": "bench"}

    def frame(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return chunk(b"data: %b\n\n" % _json({**root, "choices": [choice]}))

    before, steps, calling = frame({"role": "assistant", "content": ""}), [], False
    for kind, text in said:
        if kind == "tool" and not calling:
            calling = True
            call = {"index": 0, "id": "call_bench", "type": "function", "function": {"name": "search", "arguments": ""}}
            before += frame({"tool_calls": [call]})
        delta: dict[str, Any] = {"content": text}
        if kind == "thinking":
            delta = {"reasoning_content": text}
        elif kind == "tool":
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        steps.append(before + frame(delta))
        before = b""
    usage = {"prompt_tokens": 25, "completion_tokens": len(said), "total_tokens": 25 + len(said)}
    ending = frame({}, "tool_calls" if calling else "stop") + chunk(b"data: %b\n\n" % _json({**root, "choices": [], "usage": usage}))
    return Answer(tuple(steps), ending + chunk(b"data: [DONE]\n\n") + LAST_CHUNK)
