"""What an answer loses on its way through a client's format and back, row by row of the table in docs/formats.md and nothing besides.

There and back: `anthropic` and `openai` are read again as a provider's answer, `ai-sdk` as the history of the next request. A row has
an example that shows it, and the answer without it; what differs from the rows' sum, or a row that makes no difference, fails.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.deltas import read_input
from gateway.errors import CAUSES, GatewayError
from gateway.events import (
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Error,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    SignatureDelta,
    Stats,
    TextDelta,
    ThinkingDelta,
    UnknownEvent,
)
from gateway.formats import Asked
from gateway.formats.ai_sdk import AI_SDK
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.openai import OPENAI_CLIENT
from gateway.json_text import Json
from gateway.message import Assembler
from gateway.refusals import tidy
from gateway.sequence import Sequencer
from tests.grammar import check
from tests.laws.test_answer_laws import REQUEST, TARGETS, answer, bodies, frames

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
ROW = re.compile(r"\| `(?P<format>[a-z-]+)` \| (?P<what>.+?) \| (?P<becomes>.+?) \|")
CLIENTS = {"anthropic": CLAUDE_CLIENT, "openai": OPENAI_CLIENT}


@dataclass(frozen=True)
class Told:
    """All that a stream tells: its message, or what there is of it, and how it ended."""

    message: Json
    error: Json | None = None
    stopped: bool = False
    heartbeats: int = 0
    unknown: list[Json] = field(default_factory=list)


Loss = Callable[[Told], Told]


def rows() -> list[tuple[str, str]]:
    """Format and what it loses, as the document says."""
    return [(found["format"], found["what"]) for line in DOCUMENT.read_text("utf-8").split("\n") if (found := ROW.fullmatch(line))]


def of(change: Callable[[Json], Json]) -> Loss:
    """What is lost of a message, if there is one."""
    return lambda told: replace(told, message=change(told.message)) if told.message else told


KEPT = {"text", "thinking", "tool_use"}
REASONS = {
    "model_context_window_exceeded": "max_tokens",
    **{reason: reason for reason in ("max_tokens", "tool_use", "refusal", "stop_sequence")},
}


def blocks(message: Json, change: Callable[[Json], list[Json]]) -> Json:
    return {**message, "content": [made for block in message["content"] for made in change(block)]}


def without_seals(message: Json) -> Json:
    return blocks(message, lambda block: [{**block, "signature": ""}] if block["type"] == "thinking" else [block])


def without_what_has_no_place(message: Json) -> Json:
    return blocks(message, lambda block: [block] if block["type"] in KEPT else [])


def without_extras(message: Json) -> Json:
    known = {"text": {"text", "citations"}, "thinking": {"thinking", "signature"}, "tool_use": {"id", "name", "input", "extra_content"}}
    bare = blocks(
        message, lambda block: [{key: value for key, value in block.items() if key in {"type", *known.get(block["type"], block)}}]
    )
    return {key: bare[key] for key in ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")}


def with_citations_at_the_end(message: Json) -> Json:
    notes: list[Json] = []
    length = 0
    for block in message["content"]:
        start, length = length, length + len(block.get("text", ""))
        for citation in block.get("citations") or ():
            url = citation.get("url") or citation.get("source") or ""
            if not url.startswith("http"):
                continue
            place = (citation.get("start_index", start), citation.get("end_index", length))
            if (url, *place) in [(note["source"], note["start_index"], note["end_index"]) for note in notes]:
                continue
            note = {"type": "search_result_location", "source": url, "title": citation.get("title") or None}
            note |= {"cited_text": citation["cited_text"], "search_result_index": len(notes), "start_block_index": 0, "end_block_index": 0}
            notes.append({**note, "start_index": place[0], "end_index": place[1]})
    bare = blocks(message, lambda block: [{key: value for key, value in block.items() if key != "citations"}])
    if notes:
        bare["content"].append({"type": "text", "text": "", "citations": notes})
    return bare


def joined(message: Json) -> Json:
    said = [block for block in message["content"] if block.get(block["type"], True) or block.get("citations")]
    content: list[Json] = []
    for kind, run in groupby(said, lambda block: block["type"]):
        if kind not in ("text", "thinking"):
            content += run
        else:
            found = list(run)
            content.append({**found[-1], kind: "".join(block[kind] for block in found)})
    return {**message, "content": content}


def without_blanks(message: Json) -> Json:
    said = [block for block in message["content"] if block["type"] != "text" or block["text"]]
    if len(said) == 1 and said[0]["type"] == "text":
        return message  # all that there is

    def change(block: Json) -> list[Json]:
        if block["type"] not in ("text", "thinking") or (block[block["type"]] if block["type"] == "thinking" else block["text"].strip()):
            return [block]
        return [{**block, "text": ""}] if block.get("citations") else []

    return blocks(message, change)


def with_openais_reasons(message: Json) -> Json:
    if message["stop_reason"] is None:
        return message
    reason, sequence = REASONS.get(message["stop_reason"], "end_turn"), message["stop_sequence"]
    if reason == "stop_sequence" and not sequence:
        reason = "end_turn"
    if reason in ("end_turn", "stop_sequence") and any(block["type"] == "tool_use" for block in message["content"]):
        reason = "tool_use"
    return {**message, "stop_reason": reason, "stop_sequence": sequence if reason == "stop_sequence" else None}


def with_openais_usage(message: Json) -> Json:
    counted = {key: value for key, value in message["usage"].items() if key != "estimated" and value is not None}
    if isinstance(details := counted.pop("output_tokens_details", None), dict) and "thinking_tokens" in details:
        counted["output_tokens_details"] = {"thinking_tokens": details["thinking_tokens"]}
    return {**message, "usage": counted}


def without(*keys: str) -> Callable[[Json], Json]:
    return lambda message: {key: value for key, value in message.items() if key not in keys}


def without_estimate(message: Json) -> Json:
    return {**message, "usage": {key: value for key, value in message["usage"].items() if key != "estimated"}}


def without_heartbeats(told: Told) -> Told:
    return replace(told, heartbeats=0)


def without_unknown_events(told: Told) -> Told:
    return replace(told, unknown=[])


def with_stop_as_error(told: Told) -> Told:
    if not told.stopped:
        return told
    error = {"type": "api_error", "message": "The answer was stopped.", "code": "stopped", "retryable": False, "request_id": None}
    return replace(told, stopped=False, error=error)


def with_the_readers_causes(told: Told) -> Told:
    """What the reader knows of an error: its type, its sentence, and a code."""
    if (error := told.error) is None:
        return told
    cause = next(cause for name, cause in CAUSES.items() if name in READERS and cause.type == error["type"])
    own = error.get("provider_code")
    own = own if own != error["type"] else None
    if own and own.isdigit():
        own = error["type"]  # of several words a reader takes the more telling one
    found = {"type": cause.type, "message": tidy(error["message"]), "code": cause.code, "retryable": cause.retryable}
    return replace(told, error={**found, "provider": "p", "provider_code": own or error["code"], "request_id": "again"})


# Of the causes that have the same type the one that a provider's error of this type is.
READERS = ("rejected", "not_found", "rejected_size", "rate_limited", "overloaded", "upstream_timeout", "unavailable")
OPENAIS_TYPES = {
    "not_found_error": "invalid_request_error",
    "request_too_large": "invalid_request_error",
    "overloaded_error": "api_error",
}


def with_openais_types(told: Told) -> Told:
    if (error := told.error) is None:
        return told
    return replace(told, error={**error, "type": OPENAIS_TYPES.get(error["type"], error["type"])})


def with_openais_code(told: Told) -> Told:
    return told if told.error is None else replace(told, error={**told.error, "provider_code": None})


def content_alone(message: Json) -> Json:
    return {"content": message["content"]}


def without_nulls(message: Json) -> Json:
    kept = {"redacted_thinking", "tool_use", "text", "thinking"}
    return blocks(message, lambda block: [{k: v for k, v in block.items() if v is not None} if block["type"] in kept else block])


def without_empty_blocks(message: Json) -> Json:
    return blocks(message, lambda block: [] if is_empty(block) else [block])


def is_empty(block: Json) -> bool:
    return (block["type"] == "text" and not block["text"]) or (
        block["type"] == "thinking" and not (block["thinking"] or block["signature"])
    )


def with_empty_arguments(message: Json) -> Json:
    def change(block: Json) -> list[Json]:
        if (broken := block.get("invalid_input")) is None:
            return [block]
        read = read_input(broken["partial_json"])
        return [{**{key: block[key] for key in ("type", "id", "name")}, "input": read if isinstance(read, dict) else {}}]

    return blocks(message, change)


def without_calls_that_wait(message: Json) -> Json:
    answered = [block.get("tool_use_id") for block in message["content"]]
    return blocks(message, lambda block: [block] if block["type"] != "server_tool_use" or block["id"] in answered else [])


def without_images(message: Json) -> Json:
    return blocks(message, lambda block: [block] if block["type"] != "image" else [])


def without_a_stop(told: Told) -> Told:
    return replace(told, stopped=False)


def without_errors(told: Told) -> Told:
    return replace(told, error=None)


# Each with what the answer is without it; in this order.
LOSSES: dict[str, dict[str, Loss]] = {
    "anthropic": {
        "heartbeats": without_heartbeats,
        "`stats`": of(without("stats")),
        "`estimated` of usage": of(without_estimate),
        "`raw_stop_reason`": of(without("raw_stop_reason")),
        "`abort`": with_stop_as_error,
        "an error's `code`, `retryable`, `provider` and request id": with_the_readers_causes,
    },
    "ai-sdk": {
        "id, model, stop reason and usage of an answer": of(content_alone),
        "fields that are null": of(without_nulls),
        "texts and thoughts without a character": of(without_empty_blocks),
        "arguments that broke off, or are no JSON object": of(with_empty_arguments),
        "a call at the provider that has no result": of(without_calls_that_wait),
        "images": of(without_images),
        "heartbeats": without_heartbeats,
        "events that nobody here knows": without_unknown_events,
        "`abort`": without_a_stop,
        "errors": without_errors,
    },
    "openai": {
        "signatures of thinking": of(without_seals),
        "redacted thinking, what runs at the provider, and blocks that nobody here knows": of(without_what_has_no_place),
        "fields of a block or a message that OpenAI does not have": of(without_extras),
        "where citations stand, and those that have no address": of(with_citations_at_the_end),
        "borders between texts, or thoughts, that follow each other": of(joined),
        "blocks without a visible character": of(without_blanks),
        "stop reasons that OpenAI has no word for": of(with_openais_reasons),
        "that usage is not the provider's own, and details of it that OpenAI does not have": of(with_openais_usage),
        "heartbeats": without_heartbeats,
        "events that nobody here knows": without_unknown_events,
        "`abort`": with_stop_as_error,
        "an error's type where OpenAI has no word for it": with_openais_types,
        "a provider's own error code": with_openais_code,
        "an error's `code`, `retryable`, `provider` and request id": with_the_readers_causes,
    },
}


def events_of(message: Json, dice: random.Random, raw: str | None = None) -> Iterator[Event]:
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
    yield MessageStart(begun)
    for index, block in enumerate(message["content"]):
        start, deltas = dict(block), list[Delta]()
        stop = ContentBlockStop(index)
        match block["type"]:
            case "text":
                deltas = [TextDelta(part) for part in cut(start["text"], dice)]
                deltas += [CitationsDelta(citation) for citation in start.pop("citations", ())]
                start["text"] = ""
            case "thinking":
                deltas = [ThinkingDelta(part) for part in cut(start["thinking"], dice)]
                deltas += [SignatureDelta(start["signature"])] if start["signature"] else []
                start |= {"thinking": "", "signature": ""}
            case "tool_use":
                # Without a word at the token limit it would be a call that broke off.
                told_anyway = message["stop_reason"] == "max_tokens" or dice.random() < 0.5
                written = json.dumps(start["input"], ensure_ascii=False) if start["input"] or told_anyway else ""
                stop = ContentBlockStop(index, input=start["input"])
                if broken := start.pop("invalid_input", None):
                    written = broken["partial_json"]
                    stop = ContentBlockStop(index, invalid_input=InvalidInput(**broken))
                deltas = [InputJsonDelta(part) for part in cut(written, dice)]
                start["input"] = {}
        yield ContentBlockStart(index, start)
        yield from (ContentBlockDelta(index, delta) for delta in deltas)
        yield stop
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield MessageDelta(ending | ({"raw_stop_reason": raw} if raw else {}), message["usage"])
    yield MessageStop()


def cut(text: str, dice: random.Random) -> Iterator[str]:
    while text:
        size = dice.randint(1, 6)
        yield text[:size]
        text = text[size:]


def told(events: list[Event]) -> Told:
    assembler = Assembler()
    assembler.feed(events)
    message = assembler.message if assembler.complete else assembler.partial
    last = events[-1]
    error: Json | None = None
    if isinstance(last, Error):
        error = {**msgspec.to_builtins(last.error), "request_id": last.request_id}
        error.pop("partial", None)  # the grammar looks at it
    return Told(
        message or {},
        error,
        isinstance(last, Abort),
        sum(isinstance(event, Ping) for event in events),
        [event.body for event in events if isinstance(event, UnknownEvent)],
    )


def again(name: str, events: list[Event], dice: random.Random) -> list[Event]:
    """Through the format and back."""
    encoder = CLIENTS[name].encoder(Asked(created=1, include_usage=True))
    body, left = b"", events
    while left:
        size = dice.randint(1, 9)
        body += encoder.feed(left[:size]) + (encoder.heartbeat() if dice.random() < 0.2 else b"")
        left = left[size:]
    return read(name, body)


def read(name: str, body: bytes) -> list[Event]:
    decoder, sequencer = TARGETS[name].format.decoder(REQUEST, TARGETS[name]), Sequencer("m", "msg_0")
    found = sequencer.feed(decoder.feed(body)) + sequencer.feed(decoder.close())
    assert decoder.dropped == sequencer.dropped == 0
    if sequencer.failure is not None:
        found.append(sequencer.failure.event("again", partial=sequencer.content))
    check(found)
    return found


def posted_again(events: list[Event]) -> Told:
    """By way of the page, which keeps the UI message and posts it with the next question."""
    encoder = AI_SDK.document()
    written = b"".join(encoder.feed([event]) for event in events)
    shown = json.loads(written) if written else encoder.partial
    asked = [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]
    body = json.dumps({"messages": [*asked, shown, *asked]}).encode()
    content: list[Json] = []
    for turn in AI_SDK.parse(body).request.messages:
        if turn.role == "assistant":
            content += [{"type": "text", "text": turn.content}] if isinstance(turn.content, str) else turn.content
    return Told({"content": content})


def document(name: str, events: list[Event]) -> Json:
    written = CLIENTS[name].document(Asked(created=1))
    return told(read(name, b"".join(written.feed([event]) for event in events))).message


def lost(name: str, said: Told) -> Told:
    for loss in LOSSES[name].values():
        said = loss(said)
    return said


# ---- answers

# Blanks alone are lost or kept by what follows them: test_openai_stream.py says how.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: not text.isspace())
words = st.text("abc", min_size=1, max_size=5)
objects = st.dictionaries(st.text("ab", max_size=2), st.integers(-9, 9) | texts | st.lists(st.booleans(), max_size=2), max_size=3)
urls = words.map(lambda word: f"https://{word}")
citations = st.one_of(
    st.builds(
        lambda url, text: {"type": "web_search_result_location", "url": url, "title": "T", "encrypted_index": "e", "cited_text": text},
        urls,
        texts,
    ),
    st.builds(
        lambda url, place: {"type": "search_result_location", "source": url, "title": None, "cited_text": "", **place},
        urls | words,
        st.sampled_from([{}, {"start_index": 0, "end_index": 1}]),
    ),
    st.just({"type": "char_location", "document_index": 0, "document_title": None, "cited_text": "x"}),
)
simple_blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature}, texts, words | st.just("")),
    st.builds(lambda name, value: {"type": "tool_use", "name": name, "input": value}, words, objects),
)
any_blocks = st.one_of(
    simple_blocks,
    st.builds(lambda text, cited: {"type": "text", "text": text, "citations": cited}, texts, st.lists(citations, min_size=1, max_size=3)),
    words.map(lambda word: {"type": "redacted_thinking", "data": word}),
    words.map(lambda word: {"type": "web_search_tool_result", "tool_use_id": word, "content": []}),
    words.map(lambda word: {"type": "newer_block", "x": word}),
    words.map(lambda word: {"type": "tool_use", "name": word, "input": {}, "caller": {"type": "direct"}}),
    words.map(lambda word: {"type": "tool_use", "name": word, "input": {"a": 1}, "extra_content": {"google": {"thought_signature": word}}}),
)
SEARCH: Json = {"type": "server_tool_use", "name": "web_search", "input": {"query": "a"}}
FOUND: Json = {
    "type": "web_search_tool_result",
    "content": [{"type": "web_search_result", "url": "https://a", "title": "A", "page_age": None}],
}


def numbered(block: Json, part: int) -> Json:
    """A search of its own in each part."""
    return {key: f"{value}_{part}" if key in ("id", "tool_use_id") and value.startswith("srv_") else value for key, value in block.items()}


searches = st.builds(
    lambda name, caller, between, result: [
        {**SEARCH, "id": f"srv_{name}", **caller},
        *between,
        *([{**FOUND, "tool_use_id": f"srv_{name}", **caller}] if result else []),
    ],
    words,
    st.sampled_from([{}, {"caller": {"type": "direct"}}]),
    st.lists(simple_blocks, max_size=1),
    st.booleans(),
)
image = st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}})
contents = st.lists(st.lists(any_blocks | image, max_size=3) | searches, max_size=3).map(
    lambda parts: [numbered(block, number) for number, part in enumerate(parts) for block in part]
)
counts = st.integers(0, 1000)
usages = st.fixed_dictionaries(
    {"input_tokens": counts, "output_tokens": counts},
    optional={
        "cache_read_input_tokens": counts,
        "cache_creation_input_tokens": counts,
        "output_tokens_details": st.fixed_dictionaries({}, optional={"thinking_tokens": counts, "newer": counts}),
        "server_tool_use": st.just({"web_search_requests": 1}),
        "service_tier": st.sampled_from(["standard", None]),
        "cost": st.just(0.5),
        "estimated": st.just(True),
    },
)
endings = st.sampled_from(
    [
        *[
            (reason, None)
            for reason in ("end_turn", "max_tokens", "tool_use", "pause_turn", "refusal", "newer", "model_context_window_exceeded")
        ],
        ("stop_sequence", "END"),
        ("stop_sequence", None),
        ("max_tokens", "odd"),
    ]
)


def message(content: list[Json], ending: tuple[str, str | None], usage: Json, more: Json) -> Json:
    numbered = [{**block, "id": f"call_{number}"} if block["type"] == "tool_use" else block for number, block in enumerate(content)]
    said: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": numbered}
    return {**said, "stop_reason": ending[0], "stop_sequence": ending[1], "usage": usage, **more}


messages = st.builds(message, contents, endings, usages, st.sampled_from([{}, {"container": {"id": "c"}}]))
seeds = st.integers(0, 1 << 30)


errors = st.builds(
    lambda cause, text, code: GatewayError(cause, text, provider="far", provider_code=code),
    st.sampled_from([*READERS, "interrupted", "idle", "shutdown", "internal"]),
    st.sampled_from(["Half of it is missing.", "messages: too many images"]),
    st.sampled_from([None, "capacity", "insufficient_quota"]),
)
endings_besides = st.none() | st.just("abort") | errors


def gateways_own(events: list[Event], ending: str | GatewayError | None, dice: random.Random) -> list[Event]:
    """With what only a gateway says: heartbeats, the times, a stop, an error; and with events that nobody knows."""
    said = list(events)
    # Neither a call's stop nor a block's start is sent before it is clear how the answer goes on, so nothing comes right after it.
    if ending is not None:
        del said[dice.randint(0, len(said) - 2) :]
        while said and (isinstance(said[-1], ContentBlockStart) or stops_a_call(said[-1])):
            del said[-1]
    stop = len(said) - 2 if ending is None else len(said)
    for at in sorted({dice.randint(1, stop) for _ in range(dice.randint(0, 2))} if stop >= 1 else (), reverse=True):
        if not stops_a_call(said[at - 1]):
            said.insert(at, UnknownEvent({"type": "newer_event", "x": at}))
    for at in sorted((dice.randint(0, len(said) - (ending is None)) for _ in range(dice.randint(0, 3))), reverse=True):
        said.insert(at, Ping())
    if ending is None:
        return [*said[:-1], MessageStop(Stats(1.0, attempts=2))] if dice.random() < 0.5 else said
    if ending == "abort":
        return [*said, Abort("stopped")]
    assert isinstance(ending, GatewayError)
    content = any(isinstance(event, ContentBlockDelta) or unlike_text(event) for event in said)
    return [*said, ending.event("req", partial=content)]


def stops_a_call(event: Event) -> bool:
    return isinstance(event, ContentBlockStop) and isinstance(event.input, dict)


def unlike_text(event: Event) -> bool:
    return isinstance(event, ContentBlockStart) and event.content_block["type"] not in ("text", "thinking")


def test_the_rows_of_the_document_are_the_losses_that_are_known_here() -> None:
    assert rows() == [(name, what) for name, losses in LOSSES.items() for what in losses]


@given(messages, st.none() | st.sampled_from(["eos", "bored"]), endings_besides, seeds)
def test_an_answer_comes_back_from_claudes_format_but_for_the_losses(
    said: Json, raw: str | None, ending: str | GatewayError | None, seed: int
) -> None:
    dice = random.Random(seed)
    events = gateways_own(list(events_of(said, dice, raw)), ending, dice)
    check(events)
    found = again("anthropic", events, dice)
    assert told(found) == lost("anthropic", told(events))
    assert between(found) == between(events)


def between(events: list[Event]) -> list[Event]:
    """What comes between the start and the end, where nothing at all may differ; an error drops nothing but what is said once more."""
    return [event for event in events if not isinstance(event, MessageStart | MessageDelta | MessageStop | Ping | Error | Abort)]


@given(st.sampled_from(sorted(TARGETS)), bodies | frames, seeds)
def test_whatever_a_provider_sends_comes_back_from_claudes_format(name: str, body: bytes, seed: int) -> None:
    events = answer(TARGETS[name], [body])
    found = again("anthropic", events, random.Random(seed))
    assert told(found) == lost("anthropic", told(events))
    assert between(found) == between(events)


@given(messages, st.none() | st.sampled_from(["eos", "bored"]), seeds)
def test_an_answer_comes_back_from_openais_format_but_for_the_losses(said: Json, raw: str | None, seed: int) -> None:
    dice = random.Random(seed)
    events = gateways_own(list(events_of(said, dice, raw)), None, dice)
    check(events)
    assert told(again("openai", events, dice)) == lost("openai", told(events))


@given(messages, st.just("abort") | errors, seeds)
def test_an_ending_that_is_none_comes_back_from_openais_format_but_for_the_losses(
    said: Json, ending: str | GatewayError, seed: int
) -> None:
    dice = random.Random(seed)
    events = gateways_own(list(events_of(said, dice)), ending, dice)
    found, wanted = told(again("openai", events, dice)), lost("openai", told(events))
    assert replace(found, message={}) == replace(wanted, message={})


@given(messages, endings_besides, seeds)
def test_an_answer_comes_back_from_the_ai_sdks_page_but_for_the_losses(said: Json, ending: str | GatewayError | None, seed: int) -> None:
    dice = random.Random(seed)
    events = gateways_own(list(events_of(said, dice)), ending, dice)
    if any(isinstance(event, MessageStart) for event in events):
        assert posted_again(events) == lost("ai-sdk", told(events))


plain = st.builds(
    message,
    st.tuples(
        st.lists(texts.filter(str.strip).map(lambda text: {"type": "thinking", "thinking": text, "signature": ""}), max_size=1),
        st.lists(texts.filter(str.strip).map(lambda text: {"type": "text", "text": text}), max_size=1),
        st.lists(st.builds(lambda name, value: {"type": "tool_use", "name": name, "input": value}, words, objects), min_size=1, max_size=3),
    ).map(lambda parts: [block for part in parts for block in part]),
    st.just(("tool_use", None)),
    st.fixed_dictionaries({"input_tokens": counts, "output_tokens": counts}, optional={"cache_read_input_tokens": counts}),
    st.just({}),
)


@given(plain, st.sampled_from(sorted(CLIENTS)), seeds)
def test_what_every_format_has_words_for_loses_nothing_and_the_document_says_the_same(said: Json, name: str, seed: int) -> None:
    dice = random.Random(seed)
    events = list(events_of(said, dice))
    assert told(again(name, events, dice)).message == document(name, events) == said
    assert told(events) == lost(name, told(events))


TEXT: Json = {"type": "text", "text": "a"}
LATE = GatewayError("interrupted", "It broke off.", provider="far")
FULL = GatewayError("overloaded", "Too many.", provider="far", provider_code="capacity")
# By loss: the blocks, the stop reason, more usage, and the provider's own stop reason or another ending.
LOST: dict[str, tuple[list[Json], str, Json, Any]] = {
    "heartbeats": ([TEXT], "end_turn", {}, Ping()),
    "events that nobody here knows": ([TEXT], "end_turn", {}, UnknownEvent({"type": "newer_event"})),
    "`stats`": ([TEXT], "end_turn", {}, Stats(1.0)),
    "`estimated` of usage": ([TEXT], "end_turn", {"estimated": True}, None),
    "`raw_stop_reason`": ([TEXT], "end_turn", {}, "bored"),
    "`abort`": ([TEXT], "end_turn", {}, Abort("stopped")),
    "an error's `code`, `retryable`, `provider` and request id": ([TEXT], "end_turn", {}, LATE),
    "an error's type where OpenAI has no word for it": ([TEXT], "end_turn", {}, FULL),
    "a provider's own error code": ([TEXT], "end_turn", {}, FULL),
    "id, model, stop reason and usage of an answer": ([TEXT], "end_turn", {}, None),
    "fields that are null": ([{**TEXT, "newer": None}], "end_turn", {}, None),
    "texts and thoughts without a character": ([{"type": "text", "text": ""}, TEXT], "end_turn", {}, None),
    "arguments that broke off, or are no JSON object": (
        [{"type": "tool_use", "name": "f", "input": {}, "invalid_input": {"partial_json": "{", "reason": "invalid_json"}}],
        "tool_use",
        {},
        None,
    ),
    "a call at the provider that has no result": ([{**SEARCH, "id": "srv_1"}, TEXT], "end_turn", {}, None),
    "images": ([TEXT, {"type": "image", "source": {"type": "url", "url": "https://a"}}], "end_turn", {}, None),
    "errors": ([TEXT], "end_turn", {}, LATE),
    "signatures of thinking": ([{"type": "thinking", "thinking": "hm", "signature": "s"}], "end_turn", {}, None),
    "redacted thinking, what runs at the provider, and blocks that nobody here knows": (
        [{"type": "redacted_thinking", "data": "x"}, TEXT],
        "end_turn",
        {},
        None,
    ),
    "fields of a block or a message that OpenAI does not have": ([{**TEXT, "newer": 1}], "end_turn", {}, None),
    "borders between texts, or thoughts, that follow each other": ([TEXT] * 2, "end_turn", {}, None),
    "where citations stand, and those that have no address": (
        [{**TEXT, "citations": [{"type": "char_location", "cited_text": "x"}]}],
        "end_turn",
        {},
        None,
    ),
    "blocks without a visible character": (
        [{"type": "text", "text": " "}, {"type": "thinking", "thinking": "hm", "signature": ""}],
        "end_turn",
        {},
        None,
    ),
    "stop reasons that OpenAI has no word for": ([TEXT], "pause_turn", {}, None),
    "that usage is not the provider's own, and details of it that OpenAI does not have": ([], "end_turn", {"estimated": True}, None),
}


def example(what: str) -> list[Event]:
    content, reason, usage, besides = LOST[what]
    said = message(content, (reason, None), {"input_tokens": 1, "output_tokens": 1, **usage}, {})
    events = list(events_of(said, random.Random(1), besides if isinstance(besides, str) else None))
    match besides:
        case Ping() | UnknownEvent():
            return [events[0], besides, *events[1:]]
        case Stats():
            return [*events[:-1], MessageStop(besides)]
        case Abort():
            return [*events[:3], besides]
        case GatewayError():
            return [*events[:3], besides.event("req", partial=True)]
        case _:
            return events


@pytest.mark.parametrize(("name", "what"), rows())
def test_no_loss_is_named_that_is_none(name: str, what: str) -> None:
    events = example(what)
    check(events)
    found = posted_again(events) if name == "ai-sdk" else told(again(name, events, random.Random(1)))
    wanted, others = lost(name, told(events)), told(events)
    for other, loss in LOSSES[name].items():
        others = others if other == what else loss(others)
    assert found == wanted != others


@given(st.sampled_from(sorted(TARGETS)), bodies | frames, st.integers(1, 5))
def test_whatever_a_provider_sends_is_what_openais_clients_can_read(name: str, body: bytes, size: int) -> None:
    events = answer(TARGETS[name], [body])
    encoder, written = OPENAI_CLIENT.encoder(Asked(created=1)), OPENAI_CLIENT.document(Asked(created=1))
    sent = b"".join(encoder.feed(events[start : start + size]) for start in range(0, len(events), size))
    values = [frame.removeprefix("data: ") for frame in sent.decode().split("\n\n")[:-1]]
    finished = isinstance(events[-1], MessageStop)
    assert (values[-1] == "[DONE]") is finished
    said = [json.loads(value) for value in values if value != "[DONE]"]
    choices = [chunk["choices"][0] for chunk in said if "error" not in chunk]
    assert ["role" in choice["delta"] for choice in choices] == [number == 0 for number in range(len(choices))]
    assert [choice["finish_reason"] is not None for choice in choices] == [finished and choice is choices[-1] for choice in choices]
    calls = [choice["delta"]["tool_calls"][0] for choice in choices if "tool_calls" in choice["delta"]]
    firsts = [call["index"] for call in calls if "id" in call]
    assert firsts == list(range(len(firsts)))
    if finished:
        message = json.loads(written.feed(events))["choices"][0]["message"]
        assert (message["content"] or "") == "".join(choice["delta"].get("content") or "" for choice in choices)
        assert [call["id"] for call in message.get("tool_calls", ())] == [call["id"] for call in calls if "id" in call]
