"""The event vocabulary on the wire: what each event looks like, and what is read as which."""

import json
from typing import Any

import pytest

from gateway.events import (
    DELTAS,
    KINDS,
    PASSABLE,
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    ErrorBody,
    Event,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    Stats,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    decode,
    delta_from_json,
    encode,
    name,
)
from gateway.wiring import ANSWERS

WIRE: list[tuple[Event, str]] = [
    (MessageStart({"id": "msg_1", "content": []}), '{"type":"message_start","message":{"id":"msg_1","content":[]}}'),
    (
        ContentBlockStart(0, {"type": "text", "text": ""}),
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    ),
    (ContentBlockDelta(0, TextDelta("Hi")), '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}'),
    (
        ContentBlockDelta(2, UnknownDelta({"type": "newer_delta", "x": [1]})),
        '{"type":"content_block_delta","index":2,"delta":{"type":"newer_delta","x":[1]}}',
    ),
    (ContentBlockStop(0), '{"type":"content_block_stop","index":0}'),
    (ContentBlockStop(0, input={"a": 1}), '{"type":"content_block_stop","index":0,"input":{"a":1}}'),
    (
        ContentBlockStop(0, invalid_input=InvalidInput("{", "truncated")),
        '{"type":"content_block_stop","index":0,"invalid_input":{"partial_json":"{","reason":"truncated"}}',
    ),
    (
        MessageDelta({"stop_reason": "end_turn"}, {"output_tokens": 2}, {"context_management": {}}),
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2},"context_management":{}}',
    ),
    (MessageStop(), '{"type":"message_stop"}'),
    (Ping(), '{"type":"ping"}'),
    (
        Error(ErrorBody("api_error", "It broke.", "stream_interrupted", True, True), "req_1"),
        '{"type":"error","error":{"type":"api_error","message":"It broke.","code":"stream_interrupted","retryable":true,"partial":true},'
        '"request_id":"req_1"}',
    ),
    (Abort("stopped"), '{"type":"abort","reason":"stopped"}'),
    (Reset("stream_interrupted", 2), '{"type":"reset","reason":"stream_interrupted","attempt":2}'),
    (UnknownEvent({"type": "newer", "x": None}), '{"type":"newer","x":null}'),
]


@pytest.mark.parametrize(("event", "line"), WIRE, ids=[name(event) for event, _ in WIRE])
def test_an_event_is_one_line_of_compact_json_and_back(event: Event, line: str) -> None:
    assert encode(event).decode() == line
    assert decode(line) == event
    assert name(event) == json.loads(line)["type"]


def test_the_stats_of_a_stop_are_there_even_where_they_do_not_apply() -> None:
    stats = json.loads(encode(MessageStop(Stats(ttft_ms=1.5))))["stats"]
    assert stats["ttft_ms"] == 1.5
    assert stats["thinking_ttft_ms"] is None
    assert set(stats) == {
        *("ttft_ms", "thinking_ttft_ms", "duration_ms", "output_tokens_per_s"),
        *("provider", "target", "attempts", "dropped_frames"),
    }


def test_characters_at_which_naive_clients_cut_lines_are_escaped() -> None:
    line = encode(ContentBlockDelta(0, TextDelta("a\u2028b\u2029c\u0085d")))
    assert b"a\\u2028b\\u2029c\\u0085d" in line
    assert decode(line) == ContentBlockDelta(0, TextDelta("a\u2028b\u2029c\u0085d"))


def test_a_lone_surrogate_goes_out_as_the_replacement_character() -> None:
    assert decode(encode(MessageStart({"id": "\ud83d"}))) == MessageStart({"id": "\ufffd"})


@pytest.mark.parametrize("line", ["", "5", "[]", "{}", '{"type":5}', "{", '{"type":"content_block_stop","index":"x"}'])
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each reader has its own words
        decode(line)


def test_a_delta_is_known_only_if_it_is_exactly_that() -> None:
    assert delta_from_json({"type": "thinking_delta", "thinking": "hm"}) == ThinkingDelta("hm")
    for odd in (
        {"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 3},
        {"type": "text_delta"},
        {"type": "text_delta", "text": None},
        {},
    ):
        assert delta_from_json(odd) == UnknownDelta(odd)
    assert delta_from_json({"type": "citations_delta", "citation": {"x": 1}}) == CitationsDelta({"x": 1})


def test_unknown_events_and_deltas_are_equal_by_their_body_and_have_no_hash() -> None:
    for kind in (UnknownEvent, UnknownDelta):
        one: Any = kind({"type": "x", "y": [1]})
        assert one == kind({"type": "x", "y": [1]})
        assert one != kind({"type": "x"})
        assert one != {"type": "x", "y": [1]}
        assert "'y': [1]" in repr(one)
        with pytest.raises(TypeError):
            hash(one)


def test_the_tables_name_every_kind_once() -> None:
    assert set(KINDS.values()) == {type(event) for event, _ in WIRE} - {UnknownEvent}
    assert set(DELTAS) == {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}


@pytest.mark.parametrize("said", ["newer", "vendor.event_2", "x" * 64])
def test_a_name_that_cannot_break_a_line_passes(said: str) -> None:
    assert PASSABLE.fullmatch(said)


@pytest.mark.parametrize("said", ["", "Bad", "a b", "a\n", "a:b", "2a", "x" * 65])
def test_any_other_name_does_not(said: str) -> None:
    assert not PASSABLE.fullmatch(said)


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("said", [["a", "é", "\u2028\u0085"], ["a", "b"], ["a", "\ud800"]])
def test_many_deltas_are_written_as_each_of_them_is(name: str, said: list[str]) -> None:
    message = {"id": "msg_1", "model": "m", "usage": {"input_tokens": 0, "output_tokens": 0}}
    beginning: list[Event] = [MessageStart(message), ContentBlockStart(0, {"type": "text", "text": ""})]
    deltas: list[Event] = [ContentBlockDelta(0, UnknownDelta({"type": "text_delta", "text": text, "more": 1})) for text in said]
    deltas += [ContentBlockDelta(0, TextDelta(text)) for text in said if text.isprintable()]
    together, singly = ANSWERS[name].encoder(), ANSWERS[name].encoder()
    together.feed(beginning)
    singly.feed(beginning)
    assert together.feed(deltas) == b"".join(singly.feed([delta]) for delta in deltas)
