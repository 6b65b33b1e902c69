"""An answer written for OpenAI's clients and read again as an OpenAI provider's is the same answer, but for what `LOSSES` names."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.events import (
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Event,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from gateway.formats import Asked, Provider
from gateway.formats.openai import OPENAI_CLIENT
from gateway.formats.openai.stream import OpenAIDecoder
from gateway.json_text import Json
from gateway.message import Assembler
from gateway.sequence import Sequencer
from tests.grammar import check
from tests.laws.test_answer_laws import TARGETS, answer, bodies, frames

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
        for citation in block.get("citations", ()):
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


# Each with what the answer is without it; in this order.
LOSSES: dict[str, Callable[[Json], Json]] = {
    "signatures of thinking": without_seals,
    "redacted thinking, what runs at the provider, and blocks that nobody here knows": without_what_has_no_place,
    "fields of a block or a message that OpenAI does not have": without_extras,
    "where citations stand, and those that have no address": with_citations_at_the_end,
    "borders between texts, or thoughts, that follow each other": joined,
    "blocks without a visible character": without_blanks,
    "stop reasons that OpenAI has no word for": with_openais_reasons,
    "that usage is not the provider's own, and details of it that OpenAI does not have": with_openais_usage,
}


def events_of(message: Json, dice: random.Random) -> Iterator[Event]:
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
                written = json.dumps(start["input"], ensure_ascii=False) if start["input"] or dice.random() < 0.5 else ""
                deltas = [InputJsonDelta(part) for part in cut(written, dice)]
                stop = ContentBlockStop(index, input=start["input"])
                start["input"] = {}
        yield ContentBlockStart(index, start)
        yield from (ContentBlockDelta(index, delta) for delta in deltas)
        yield stop
    yield MessageDelta({"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}, message["usage"])
    yield MessageStop()


def cut(text: str, dice: random.Random) -> Iterator[str]:
    while text:
        size = dice.randint(1, 6)
        yield text[:size]
        text = text[size:]


def again(events: list[Event], dice: random.Random) -> Json:
    """Through OpenAI's format and back."""
    encoder = OPENAI_CLIENT.encoder(Asked(created=1, include_usage=True))
    body, left = b"", events
    while left:
        size = dice.randint(1, 9)
        body += encoder.feed(left[:size]) + (encoder.heartbeat() if dice.random() < 0.2 else b"")
        left = left[size:]
    return read(body)


def read(body: bytes) -> Json:
    decoder, sequencer, assembler = OpenAIDecoder(Provider("p", "http://p/v1")), Sequencer("m", "msg_0"), Assembler()
    found = sequencer.feed(decoder.feed(body) + decoder.close())
    assert sequencer.failure is None
    assert decoder.dropped == sequencer.dropped == 0
    check(found)
    assembler.feed(found)
    return assembler.message


def document(events: list[Event]) -> Json:
    written = OPENAI_CLIENT.document(Asked(created=1))
    return read(b"".join(written.feed([event]) for event in events))


def lost(message: Json) -> Json:
    for loss in LOSSES.values():
        message = loss(message)
    return message


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


messages = st.builds(message, st.lists(any_blocks, max_size=6), endings, usages, st.sampled_from([{}, {"container": {"id": "c"}}]))
seeds = st.integers(0, 1 << 30)


@given(messages, seeds)
def test_an_answer_comes_back_but_for_the_losses_that_have_a_name(said: Json, seed: int) -> None:
    dice = random.Random(seed)
    assert again(list(events_of(said, dice)), dice) == lost(said)


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


@given(plain, seeds)
def test_what_openai_has_words_for_loses_nothing_and_the_document_says_the_same(said: Json, seed: int) -> None:
    dice = random.Random(seed)
    events = list(events_of(said, dice))
    assert again(events, dice) == document(events) == said == lost(said)


LOST: dict[str, tuple[list[Json], tuple[str, str | None], Json]] = {
    "signatures of thinking": ([{"type": "thinking", "thinking": "hm", "signature": "s"}], ("end_turn", None), {}),
    "redacted thinking, what runs at the provider, and blocks that nobody here knows": (
        [{"type": "redacted_thinking", "data": "x"}],
        ("end_turn", None),
        {},
    ),
    "fields of a block or a message that OpenAI does not have": ([{"type": "text", "text": "a", "newer": 1}], ("end_turn", None), {}),
    "borders between texts, or thoughts, that follow each other": ([{"type": "text", "text": "a"}] * 2, ("end_turn", None), {}),
    "where citations stand, and those that have no address": (
        [{"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "x"}]}],
        ("end_turn", None),
        {},
    ),
    "blocks without a visible character": (
        [{"type": "text", "text": " "}, {"type": "thinking", "thinking": "hm", "signature": ""}],
        ("end_turn", None),
        {},
    ),
    "stop reasons that OpenAI has no word for": ([{"type": "text", "text": "a"}], ("pause_turn", None), {}),
    "that usage is not the provider's own, and details of it that OpenAI does not have": ([], ("end_turn", None), {"estimated": True}),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_is_named_that_is_none(name: str) -> None:
    content, ending, usage = LOST[name]
    said = message(content, ending, {"input_tokens": 1, "output_tokens": 1, **usage}, {})
    dice = random.Random(1)
    found: Any = again(list(events_of(said, dice)), dice)
    others = said
    for other, loss in LOSSES.items():
        others = others if other == name else loss(others)
    assert found == lost(said) != others


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
