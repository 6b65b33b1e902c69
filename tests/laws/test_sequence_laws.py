"""Laws of the Sequencer, the Assembler and the event vocabulary, over anything a decoder could hand in."""

from itertools import pairwise
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway import json_text
from gateway.deltas import is_content
from gateway.errors import GatewayError, UpstreamFailed
from gateway.events import (
    DELTAS,
    KINDS,
    OPEN_BLOCK,
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    ErrorBody,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    SignatureDelta,
    Stats,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    decode,
    encode,
)
from gateway.message import Assembler
from gateway.sequence import Sequencer
from gateway.usage import Usage
from tests.grammar import check

Json = dict[str, Any]

pieces = st.sampled_from(["", "a", "Hi", " ", "é", "你好", "\u2028", "\ud83d", "\ude00", "\ud83d\ude00", "x\ud83d", "\ude00y", "😀"])
arguments = st.sampled_from(["", "{", "}", '{"a":1}', '{"a":', "1}", "[1]", "null", "\ud83d", '"\\ud83d"', "{}", " "])
values = st.sampled_from([None, "", 0, 7, -1, 2.0, 2.5, True, "9", [], {}, {"a": 1}, [1]])
indices = st.sampled_from([OPEN_BLOCK, 0, 0, 0, 1, 1, 2, 3, 17])
counts = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation", "estimated", "service_tier"]),
    values,
    max_size=4,
)
block_kinds = st.sampled_from(
    [
        "text",
        "text",
        "thinking",
        "tool_use",
        "tool_use",
        "server_tool_use",
        "redacted_thinking",
        "web_search_tool_result",
        "newer",
        "",
        None,
    ]
)
blocks = st.builds(
    lambda kind, more: {"type": kind, **more},
    block_kinds,
    st.dictionaries(
        st.sampled_from(["text", "thinking", "signature", "input", "id", "name", "citations"]), values | pieces | arguments, max_size=3
    ),
)
deltas = st.one_of(
    pieces.map(TextDelta),
    pieces.map(ThinkingDelta),
    pieces.map(SignatureDelta),
    arguments.map(InputJsonDelta),
    values.filter(lambda value: isinstance(value, dict)).map(CitationsDelta),
    st.builds(
        lambda kind, more: UnknownDelta({"type": kind, **more}),
        st.sampled_from([*DELTAS, "newer_delta", "", None]),
        st.dictionaries(
            st.sampled_from(["text", "thinking", "signature", "partial_json", "citation", "more"]), values | pieces, max_size=3
        ),
    ),
)
message_deltas = st.builds(
    MessageDelta,
    st.dictionaries(
        st.sampled_from(["stop_reason", "stop_sequence", "container"]), values | st.sampled_from(["end_turn", "max_tokens", "tool_use"])
    ),
    counts,
    st.dictionaries(st.sampled_from(["type", "delta", "usage", "context_management"]), values, max_size=2),
)
names = st.sampled_from(["newer", "reset", "error", "Bad", "a b", "vendor.event", "", 5, None])
step = st.one_of(
    st.builds(ContentBlockDelta, indices, deltas),
    st.builds(ContentBlockDelta, indices, deltas),
    st.builds(ContentBlockStart, indices, blocks),
    st.builds(ContentBlockStop, indices),
    st.builds(ContentBlockStop, indices, st.just({"forged": 1}), st.just(InvalidInput("", "forged"))),
    message_deltas,
    st.builds(
        lambda message: MessageStart(message), st.dictionaries(st.sampled_from(["id", "model", "usage", "content", "x"]), values | counts)
    ),
    st.builds(Usage, counts),
    st.builds(lambda name: UnknownEvent({"type": name, "x": 1}), names),
    st.sampled_from([Ping(), Abort("forged"), Reset("forged", 1), Error(ErrorBody("a", "b", "c", False), "r")]),
)
endings = st.sampled_from([MessageStop(), MessageStop(Stats()), UpstreamFailed("interrupted", "The answer ended early.")])
steps = st.builds(lambda body, ending, late: [*body, ending, *late], st.lists(step, max_size=14), endings, st.lists(step, max_size=2))


def fresh() -> Sequencer:
    return Sequencer("m", "msg_0", max_tokens=7)


def with_terminal(sequencer: Sequencer, events: list[Event]) -> list[Event]:
    if sequencer.failure is None:
        return events
    return [*events, sequencer.failure.event("req", partial=any(is_content(event) for event in events))]


@given(steps)
def test_whatever_the_steps_are_the_events_obey_the_grammar(steps: list[Event | Usage | GatewayError]) -> None:
    sequencer = fresh()
    events = sequencer.feed(steps)
    assert sequencer.done != (sequencer.failure is not None)
    check(with_terminal(sequencer, events))
    assert sequencer.content == any(is_content(event) for event in events)


flowing = st.builds(ContentBlockDelta, indices, pieces.map(TextDelta) | pieces.map(ThinkingDelta) | arguments.map(InputJsonDelta))
flows = st.builds(lambda body, ending: [*body, ending], st.lists(flowing | flowing | flowing | step, max_size=20), endings)


def patiently(step: Event | Usage | GatewayError) -> Event | Usage | GatewayError:
    """The same, but a delta comes as one of which nothing is known, and so has to be looked at."""
    if not isinstance(step, ContentBlockDelta) or isinstance(step.delta, UnknownDelta):
        return step
    return ContentBlockDelta(step.index, UnknownDelta({"type": step.delta.__struct_config__.tag, **structs.asdict(step.delta)}))


@given(flows)
def test_a_delta_that_passes_quickly_becomes_what_one_that_is_looked_at_becomes(steps: list[Event | Usage | GatewayError]) -> None:
    quick, patient = fresh(), fresh()
    assert list(map(encode, quick.feed(steps))) == list(map(encode, patient.feed(map(patiently, steps))))
    assert (quick.content, quick.dropped, quick.warnings, quick.stop_reason) == (
        patient.content,
        patient.dropped,
        patient.warnings,
        patient.stop_reason,
    )


@given(steps)
def test_before_the_ending_the_events_are_the_beginning_of_something_grammatical(steps: list[Event | Usage | GatewayError]) -> None:
    check(fresh().feed(steps[:-1]), terminal=False)


@given(steps, st.lists(st.integers(0, 17), max_size=5))
def test_any_batches_of_the_steps_give_the_same_events(steps: list[Event | Usage | GatewayError], cuts: list[int]) -> None:
    at_once, in_batches = fresh(), fresh()
    expected = at_once.feed(steps)
    edges = [0, *sorted(cuts), len(steps)]
    events = [event for begin, end in pairwise(edges) for event in in_batches.feed(steps[begin:end])]
    assert events == expected
    assert (in_batches.usage, in_batches.dropped, in_batches.stop_reason) == (at_once.usage, at_once.dropped, at_once.stop_reason)


@given(steps)
def test_well_formed_events_pass_a_second_sequencer_unchanged(steps: list[Event | Usage | GatewayError]) -> None:
    """All but `estimated`, which only the gateway may say."""
    events = fresh().feed(steps)
    again = fresh().feed(events)
    assert again[:-2] == events[:-2]
    check(again, terminal=False)


@given(steps)
def test_a_grammatical_stream_always_assembles_and_encodes(steps: list[Event | Usage | GatewayError]) -> None:
    sequencer = fresh()
    events = sequencer.feed(steps)
    assembler = Assembler()
    for event in events:
        assembler.feed([event])
        json_text.write(assembler.partial)
        assert decode(encode(event)) is not None
    assert assembler.complete == sequencer.done
    if sequencer.done:
        message = assembler.message
        assert message["stop_reason"] == sequencer.stop_reason
        assert len(message["content"]) == sum(isinstance(event, ContentBlockStart) for event in events)


# What Claude really sends, as its documents say, so that the official SDK can be asked for the same message.
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | word,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=3),
    max_leaves=6,
)
inputs = st.dictionaries(word, json_values, max_size=3)
citations = st.builds(
    lambda text: {
        "type": "web_search_result_location",
        "cited_text": text,
        "url": "https://a.example",
        "title": None,
        "encrypted_index": "e",
    },
    words,
)


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted({position % (len(text) + 1) for position in at}), len(text)]
    return [text[begin:end] for begin, end in pairwise(edges)]


cuts = st.lists(st.integers(0, 40), max_size=3)


@st.composite
def claude_block(draw: st.DrawFn) -> tuple[Json, list[Any]]:
    match draw(st.sampled_from(["text", "thinking", "tool_use", "server_tool_use", "redacted_thinking", "web_search_tool_result"])):
        case "text":
            cited = draw(st.lists(citations, max_size=2))
            texts = [TextDelta(piece) for piece in cut(draw(words), draw(cuts))]
            return {"type": "text", "text": ""}, [*texts, *(CitationsDelta(citation) for citation in cited)]
        case "thinking":
            thoughts = [ThinkingDelta(piece) for piece in cut(draw(words), draw(cuts))]
            return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, SignatureDelta(draw(word))]
        case "tool_use" | "server_tool_use" as kind:
            name = "web_search" if kind == "server_tool_use" else draw(word)
            said = json_text.write(draw(inputs)).decode()
            return {"type": kind, "id": "toolu_1", "name": name, "input": {}}, [InputJsonDelta(piece) for piece in cut(said, draw(cuts))]
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": draw(word)}, []
        case _:
            return {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, []


@st.composite
def claude_answer(draw: st.DrawFn) -> list[Event]:
    usage = {"input_tokens": draw(st.integers(0, 99)), "output_tokens": 1, "cache_read_input_tokens": draw(st.none() | st.integers(0, 9))}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None}
    events: list[Event] = [MessageStart({**message, "stop_sequence": None, "usage": usage})]
    for index, (block, said) in enumerate(draw(st.lists(claude_block(), max_size=4))):
        events += [ContentBlockStart(index, block), *(ContentBlockDelta(index, delta) for delta in said), ContentBlockStop(index)]
    told: Json = {"output_tokens": draw(st.integers(0, 99))}
    if draw(st.booleans()):
        told |= {"input_tokens": draw(st.integers(0, 99)), "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}
    reason = draw(st.sampled_from(["end_turn", "tool_use", "refusal", "pause_turn"]))
    return [*events, MessageDelta({"stop_reason": reason, "stop_sequence": None}, told), MessageStop()]


def without_nulls(value: Any) -> Any:
    """The SDK keeps no difference between a key that is null and one that is not there."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@given(claude_answer())
def test_the_assembled_message_is_what_the_official_sdk_accumulates(events: list[Event]) -> None:
    assembler = Assembler()
    assembler.feed(Sequencer("m", "msg_0").feed(events))
    snapshot = None
    buffers: dict[int, bytes] = {}
    for event in events:
        snapshot = accumulate_event(event=json_text.read(encode(event)), current_snapshot=snapshot, json_bufs=buffers)  # type: ignore[arg-type]
    assert snapshot is not None
    assert without_nulls(assembler.message) == without_nulls(snapshot.to_dict(mode="json"))


names_of_newer = st.from_regex(r"[a-z][a-z0-9_.]{0,20}", fullmatch=True)
objects = st.dictionaries(word, json_values, max_size=3)
any_delta = st.one_of(
    words.map(TextDelta),
    words.map(ThinkingDelta),
    words.map(SignatureDelta),
    words.map(InputJsonDelta),
    objects.map(CitationsDelta),
    st.builds(lambda name, body: UnknownDelta({**body, "type": name}), names_of_newer.filter(lambda name: name not in DELTAS), objects),
    words.map(lambda text: UnknownDelta({"type": "thinking_delta", "thinking": text, "estimated_tokens": 4})),
)
optional = st.none() | word
numbers = st.none() | st.floats(0, 1e9)
any_event = st.one_of(
    objects.map(MessageStart),
    st.builds(ContentBlockStart, st.integers(0, 99), objects),
    st.builds(ContentBlockDelta, st.integers(0, 99), any_delta),
    st.builds(ContentBlockStop, st.integers(0, 99)),
    st.builds(lambda index, said: ContentBlockStop(index, input=said), st.integers(0, 99), objects),
    st.builds(lambda index, text: ContentBlockStop(index, invalid_input=InvalidInput(text, "truncated")), st.integers(0, 99), words),
    st.builds(
        MessageDelta,
        objects,
        objects,
        st.dictionaries(word.filter(lambda key: key not in ("type", "delta", "usage")), json_values, max_size=2),
    ),
    st.just(MessageStop()),
    st.builds(MessageStop, st.builds(Stats, numbers, numbers, numbers, numbers, optional, optional, st.integers(0, 9), st.integers(0, 9))),
    st.just(Ping()),
    st.builds(Error, st.builds(ErrorBody, word, words, word, st.booleans(), st.booleans(), optional, optional), words),
    st.builds(Error, st.builds(ErrorBody, word, words, word, st.booleans()), words),
    words.map(Abort),
    st.builds(Reset, words, st.integers(0, 9)),
    st.builds(lambda name, body: UnknownEvent({**body, "type": name}), names_of_newer.filter(lambda name: name not in KINDS), objects),
)


@given(any_event)
def test_decoding_what_was_encoded_gives_the_same_event(event: Event) -> None:
    line = encode(event)
    assert decode(line) == event
    assert type(decode(line)) is type(event)
    assert encode(decode(line)) == line
    assert len(line.decode().splitlines()) == 1
