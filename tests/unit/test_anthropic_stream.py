"""The Claude decoder: what a provider sends, frame by frame, and what is made of it. Order and blocks are the Sequencer's tests."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import ChatRequest, Message
from gateway.errors import UpstreamFailed
from gateway.events import (
    OPEN_BLOCK,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.formats import Decoder, Provider, Step, Target
from gateway.formats.anthropic import ANTHROPIC

SECRET = "sk-canary-0123456789"
TARGET = Target(Provider("claude", "https://claude.example", key=SECRET), ANTHROPIC, "claude-sonnet-5-5")

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}
START: dict[str, Any] = {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 5, "output_tokens": 1}}}
TEXT: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
STOP_BLOCK: dict[str, Any] = {"type": "content_block_stop", "index": 0}
ENDING: dict[str, Any] = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"output_tokens": 2},
}
STOP: dict[str, Any] = {"type": "message_stop"}
OVERLOADED: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def text(said: str, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": said}}


def delta(body: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": body, **fields}


def frame(value: Any, event: str | None = None) -> bytes:
    data = value if isinstance(value, str) else json.dumps(value)
    name = event if event is not None else value.get("type", "") if isinstance(value, dict) else ""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def fresh(content_type: str = "text/event-stream") -> Decoder:
    return ANTHROPIC.decoder(ChatRequest([Message("user", "hi")]), TARGET, content_type)


def comparable(steps: list[Step]) -> list[Any]:
    """A failure is equal to itself only: compared is what it says."""
    return [(step.cause.code, step.status, step.message) if isinstance(step, UpstreamFailed) else step for step in steps]


def steps_of(body: bytes, decoder: Decoder | None = None) -> list[Step]:
    decoder = decoder or fresh()
    return decoder.feed(body) + decoder.close()


def decode(*frames: Any) -> list[Step]:
    """The steps of frames between a message's start and its end, without those two."""
    steps = steps_of(b"".join(map(frame, (START, *frames, ENDING, STOP))))
    assert isinstance(steps[0], MessageStart)
    assert isinstance(steps[-2], MessageDelta)
    assert isinstance(steps[-1], MessageStop)
    return steps[1:-2]


def failure(steps: list[Step]) -> UpstreamFailed:
    assert isinstance(steps[-1], UpstreamFailed)
    assert not [step for step in steps[:-1] if isinstance(step, UpstreamFailed | MessageStop)]
    return steps[-1]


def test_a_documented_stream_becomes_its_events() -> None:
    assert steps_of(b"".join(map(frame, (START, TEXT, text("Hi"), STOP_BLOCK, ENDING, STOP)))) == [
        MessageStart(START["message"]),
        ContentBlockStart(0, {"type": "text", "text": ""}),
        ContentBlockDelta(0, TextDelta("Hi")),
        ContentBlockStop(0),
        MessageDelta({"stop_reason": "end_turn", "stop_sequence": None}, {"output_tokens": 2}),
        MessageStop(),
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"type": "text_delta", "text": "é\u2028 "}, TextDelta("é\u2028 ")),
        ({"type": "thinking_delta", "thinking": "hm"}, ThinkingDelta("hm")),
        ({"type": "signature_delta", "signature": "c2ln"}, SignatureDelta("c2ln")),
        ({"type": "input_json_delta", "partial_json": '{"a'}, InputJsonDelta('{"a')),
        ({"type": "citations_delta", "citation": {"type": "x", "new": 1}}, CitationsDelta({"type": "x", "new": 1})),
        ({"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 3}, "unknown"),
        ({"type": "compaction_delta", "content": "whole"}, "unknown"),
    ],
)
def test_every_delta_is_kept_and_a_new_field_makes_it_an_unknown_one(body: Any, expected: Any) -> None:
    assert decode(delta(body)) == [ContentBlockDelta(0, UnknownDelta(body) if expected == "unknown" else expected)]


def test_the_kind_comes_from_the_json_and_else_from_the_event_line() -> None:
    nameless = b"".join(frame(value, "") for value in (START, text("Hi"), ENDING, STOP))
    typeless = b"".join(
        frame({k: v for k, v in value.items() if k != "type"}, value["type"]) for value in (START, text("Hi"), ENDING, STOP)
    )
    lying = b"".join(frame(value, "content_block_stop") for value in (START, text("Hi"), ENDING, STOP))
    whole = steps_of(b"".join(map(frame, (START, text("Hi"), ENDING, STOP))))
    assert steps_of(nameless) == steps_of(typeless) == steps_of(lying) == whole


@pytest.mark.parametrize("fields", [{"index": None}, {}])
def test_a_missing_index_means_the_open_block(fields: dict[str, Any]) -> None:
    pieces: list[dict[str, Any]] = [{"content_block": {"type": "text", "text": ""}}, {"delta": {"type": "text_delta", "text": "Hi"}}, {}]
    kinds = ("content_block_start", "content_block_delta", "content_block_stop")
    assert decode(*({"type": kind, **fields, **piece} for kind, piece in zip(kinds, pieces, strict=True))) == [
        ContentBlockStart(OPEN_BLOCK, {"type": "text", "text": ""}),
        ContentBlockDelta(OPEN_BLOCK, TextDelta("Hi")),
        ContentBlockStop(OPEN_BLOCK),
    ]


def test_pings_comments_and_the_other_formats_end_mark_are_swallowed() -> None:
    noise = (
        frame({"type": "ping"})
        + frame({}, "ping")
        + b": hb\n\n"
        + frame('{"type": "ping" }  ', "ping")
        + frame("[DONE]", "")
        + frame("null", "")
    )
    body = frame(START) + noise + frame(text("Hi")) + noise + frame(ENDING) + frame(STOP) + frame("[DONE]", "data")
    decoder = fresh()
    assert steps_of(body, decoder) == steps_of(b"".join(map(frame, (START, text("Hi"), ENDING, STOP))))
    assert decoder.dropped == 0


def test_unknown_events_and_blocks_travel_as_they_came() -> None:
    block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"b": 1, "a": []}], "caller": {"type": "direct"}}
    news = {"type": "container.updated", "z": 1, "a": {"b": None}}
    assert decode({"type": "content_block_start", "index": 3, "content_block": block}, news) == [
        ContentBlockStart(3, block),
        UnknownEvent(news),
    ]


@pytest.mark.parametrize("name", ["abort", "reset", "Bad", "a b", "x" * 65, "", "message", "a\nb"])
def test_an_upstream_forges_no_event_of_the_gateways_own(name: str) -> None:
    decoder = fresh()
    steps = steps_of(frame(START) + frame({"type": name, "reason": "stopped"}, "") + frame(ENDING) + frame(STOP), decoder)
    assert [type(step) for step in steps] == [MessageStart, MessageDelta, MessageStop]
    assert decoder.dropped == 1


def test_an_upstream_forges_no_input_no_stats_and_no_estimate() -> None:
    stop = {"type": "content_block_stop", "index": 0, "input": {"rm": "-rf"}, "invalid_input": {}}
    ending = {**ENDING, "usage": {"output_tokens": 2, "estimated": True}, "stats": {"ttft_ms": 1}}
    steps = steps_of(frame(START) + frame(stop) + frame(ending) + frame({"type": "message_stop", "stats": {"ttft_ms": 1}}))
    assert steps[1:] == [
        ContentBlockStop(0),
        MessageDelta({"stop_reason": "end_turn", "stop_sequence": None}, {"output_tokens": 2}),
        MessageStop(),
    ]


@pytest.mark.parametrize(
    ("value", "event", "code", "status"),
    [
        (OVERLOADED, "error", "upstream_overloaded", 529),
        (OVERLOADED, "", "upstream_overloaded", 529),
        ({"error": {"code": 429, "message": "slow down"}}, "", "upstream_rate_limited", 429),
        ({"error": "a string"}, "", "upstream_unavailable", 502),
        ({"message": "something broke"}, "error", "upstream_unavailable", 502),
        ({"type": "overloaded_error", "message": "Overloaded"}, "error", "upstream_overloaded", 529),
        ([{"error": {"code": 429, "message": "slow down"}}], "", "upstream_rate_limited", 429),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}}, "error", "upstream_rejected", 400),
    ],
)
def test_an_error_in_any_shape_ends_the_answer(value: Any, event: str, code: str, status: int) -> None:
    decoder = fresh()
    said = value if isinstance(value, dict) else json.dumps(value)
    failed = failure(decoder.feed(frame(START) + frame(text("Hel")) + frame(said, event) + frame(text("lo")) + frame(STOP)))
    assert (failed.cause.code, failed.status, failed.provider) == (code, status, "claude")
    assert decoder.feed(frame(STOP)) == []
    assert decoder.close() == []


def test_an_error_never_repeats_a_key() -> None:
    value = {"type": "error", "error": {"type": "api_error", "message": f"the key {SECRET} is odd"}}
    assert SECRET not in failure(steps_of(frame(value))).message


def test_an_error_field_of_a_relay_is_an_error() -> None:
    failed = failure(steps_of(frame(START) + frame(text("Hi")) + b'error: {"detail":"x","error":{"message":"out of memory"}}\n\n'))
    assert failed.message == "out of memory"


def test_an_error_after_the_stop_reason_is_ignored_and_told() -> None:
    decoder = fresh()
    steps = steps_of(b"".join(map(frame, (START, text("Hi"), ENDING, OVERLOADED))), decoder)
    assert isinstance(steps[-1], MessageStop)
    assert "an error after the stop reason was ignored" in decoder.warnings


def test_an_end_before_the_stop_reason_is_an_interruption() -> None:
    failed = failure(steps_of(frame(START) + frame(TEXT) + frame(text("Hi"))))
    assert (failed.cause.code, failed.cause.retryable) == ("stream_interrupted", True)


def test_a_break_before_the_stop_reason_is_told_as_it_was() -> None:
    broken = UpstreamFailed("interrupted", "The connection was reset.")
    decoder = fresh()
    decoder.feed(frame(START) + frame(text("Hi")))
    assert decoder.close(broken) == [broken]


def test_a_stop_reason_and_any_end_is_finished() -> None:
    for broken in (None, UpstreamFailed("interrupted", "The connection was reset.")):
        decoder = fresh()
        decoder.feed(b"".join(map(frame, (START, text("Hi"), ENDING))))
        assert decoder.finishing
        assert decoder.close(broken) == [MessageStop()]
        assert decoder.close(broken) == []


def test_the_last_frame_counts_without_its_blank_line() -> None:
    decoder = fresh()
    assert decoder.feed(frame(START) + frame(text("Hi")) + frame(ENDING).rstrip()) == [
        MessageStart(START["message"]),
        ContentBlockDelta(0, TextDelta("Hi")),
    ]
    assert [type(step) for step in decoder.close()] == [MessageDelta, MessageStop]


def test_done_after_a_stop_reason_ends_an_answer_whose_connection_stays_open() -> None:
    decoder = fresh()
    steps = decoder.feed(b"".join(map(frame, (START, text("Hi"), ENDING))) + frame("[DONE]", ""))
    assert isinstance(steps[-1], MessageStop)


@pytest.mark.parametrize(
    "again",
    [
        text("more"),
        delta({"type": "thinking_delta", "thinking": "hm"}),
        delta({"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 1}),
        delta({"type": "signature_delta", "signature": "s"}),
        delta({"type": "input_json_delta", "partial_json": "{"}),
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    ],
)
def test_content_after_the_stop_reason_reopens_the_answer(again: Any) -> None:
    decoder = fresh()
    decoder.feed(b"".join(map(frame, (START, text("Hi"), ENDING, again))))
    assert not decoder.finishing
    assert failure(decoder.close()).cause.code == "stream_interrupted"
    assert isinstance(steps_of(b"".join(map(frame, (START, text("Hi"), ENDING, again, ENDING))))[-1], MessageStop)
    assert isinstance(steps_of(b"".join(map(frame, (START, text("Hi"), ENDING, again))) + frame("[DONE]", ""))[-1], MessageStop)


@pytest.mark.parametrize(
    "quiet",
    [
        {"type": "ping"},
        text(""),
        delta({"type": "citations_delta", "citation": {"type": "x"}}),
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}},
        {"type": "news"},
        STOP_BLOCK,
    ],
)
def test_what_is_no_content_leaves_a_finished_answer_finished(quiet: Any) -> None:
    decoder = fresh()
    decoder.feed(b"".join(map(frame, (START, text("Hi"), ENDING, quiet))))
    assert decoder.finishing


def test_everything_after_message_stop_is_ignored() -> None:
    decoder = fresh()
    steps = decoder.feed(b"".join(map(frame, (START, ENDING, STOP, OVERLOADED, text("x"), START))))
    assert isinstance(steps[-1], MessageStop)
    assert decoder.feed(frame(OVERLOADED)) == []
    assert decoder.close(UpstreamFailed("interrupted", "reset")) == []


def test_message_stop_without_a_stop_reason_is_finished_and_told() -> None:
    decoder = fresh()
    assert isinstance(steps_of(frame(START) + frame(text("Hi")) + frame(STOP), decoder)[-1], MessageStop)
    assert decoder.warnings == ["finished without a stop reason"]


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, MessageDelta({"stop_reason": "end_turn"}, {})),
        ({"type": "message_delta", "delta": None, "usage": None}, MessageDelta({}, {})),
        ({"type": "message_delta", "usage": {"output_tokens": 7}}, MessageDelta({}, {"output_tokens": 7})),
        ({"type": "message_delta", "delta": {"stop_reason": ""}, "usage": {}}, MessageDelta({"stop_reason": None}, {})),
        ({"type": "message_delta", "delta": {"stop_reason": 5}, "usage": {}}, MessageDelta({"stop_reason": None}, {})),
        (
            {
                "type": "message_delta",
                "delta": {"stop_reason": "new_one", "container": {"id": "c"}},
                "usage": {},
                "context_management": {"a": []},
            },
            MessageDelta({"stop_reason": "new_one", "container": {"id": "c"}}, {}, {"context_management": {"a": []}}),
        ),
        (
            {
                "type": "message_delta",
                "delta": {},
                "usage": {"output_tokens": 12, "input_tokens": None, "cost": 0.1, "server_tool_use": None},
            },
            MessageDelta({}, {"output_tokens": 12, "cost": 0.1, "server_tool_use": None}),
        ),
        (
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3.0, "input_tokens": "5"}},
            MessageDelta({}, {"output_tokens": 3}),
        ),
    ],
)
def test_a_message_delta_keeps_what_it_says_and_survives_what_it_lacks(ending: Any, expected: MessageDelta) -> None:
    assert steps_of(frame(START) + frame(ending) + frame(STOP))[1] == expected


def test_a_start_with_half_of_its_fields_is_still_one() -> None:
    assert steps_of(frame({"type": "message_start"}) + frame(ENDING))[0] == MessageStart({})
    start = steps_of(frame({"type": "message_start", "message": {"id": "x", "usage": 5, "content": None, "model": None}}) + frame(ENDING))[
        0
    ]
    assert isinstance(start, MessageStart)
    assert start.message["content"] == []
    assert start.message["usage"] == {}


@pytest.mark.parametrize(
    "nonsense",
    [
        {"type": "message_start", "message": "hi"},
        {"type": "content_block_start", "index": "0", "content_block": {"type": "text"}},
        {"type": "content_block_start", "index": 0, "content_block": {"text": "typeless"}},
        {"type": "content_block_start", "index": 0, "content_block": [1]},
        {"type": "content_block_start", "index": 0},
        delta([1]),
        delta({"text": "typeless"}),
        delta({"type": ["text_delta"], "text": "x"}),
        delta({"type": "text_delta", "text": None}),
        delta({"type": "text_delta"}),
        delta({"type": "citations_delta", "citation": "x"}),
        delta({"type": "text_delta", "text": "x"}, index="0"),
        delta({"type": "text_delta", "text": "x"}, index=-1),
        delta({"type": "text_delta", "text": "x"}, index=True),
        delta({"type": "text_delta", "text": "x"}, index=1.5),
        {"type": "content_block_stop", "index": {}},
        {"type": ["message_stop"]},
        {"id": "c1", "choices": [{"delta": {"content": "Hi"}}]},
        {"type": "message", "content": 5},
    ],
)
def test_nonsense_is_dropped_and_counted(nonsense: Any) -> None:
    decoder = fresh()
    steps = steps_of(frame(START) + frame(nonsense, "") + frame(ENDING) + frame(STOP), decoder)
    assert [type(step) for step in steps] == [MessageStart, MessageDelta, MessageStop]
    assert decoder.dropped == 1


def test_a_null_delta_is_a_keep_alive() -> None:
    assert decode(delta(None)) == []


def test_arguments_that_come_as_an_object_become_text() -> None:
    assert decode(delta({"type": "input_json_delta", "partial_json": {"city": "Oslo"}})) == [
        ContentBlockDelta(0, InputJsonDelta('{"city":"Oslo"}'))
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}', "a\ud83d"),
        (b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\xff"}}', "a\ufffd"),
        (b'{"type":"content_block_delta","index":0,"x":NaN,"delta":{"type":"text_delta","text":"a"}}', "a"),
        (b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\tb"}}', "a\tb"),
        (b'{"type":"content_block_delta","index":0,"x":1e999,"delta":{"type":"text_delta","text":"a"},"glm":1}', "a"),
    ],
)
def test_odd_bytes_cost_no_text(data: bytes, said: str) -> None:
    steps = steps_of(frame(START) + b"data: " + data + b"\n\n" + frame(ENDING))
    assert steps[1] == ContentBlockDelta(0, TextDelta(said))


def test_json_nested_too_deeply_is_one_dropped_frame() -> None:
    deep = '{"type":"news","x":' + "[" * 100_000 + "]" * 100_000 + "}"
    decoder = fresh()
    steps = steps_of(frame(START) + frame(deep, "") + frame(ENDING) + frame(STOP), decoder)
    assert [type(step) for step in steps] == [MessageStart, MessageDelta, MessageStop]
    assert decoder.dropped == 1


def test_a_message_document_becomes_the_events_of_its_stream() -> None:
    citation = {"type": "char_location", "cited_text": "t"}
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "Hi", "citations": [citation]},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 5, "output_tokens": 9}
    document = {**MESSAGE, "content": blocks, "stop_reason": "tool_use", "usage": usage, "container": {"id": "c"}}
    expected = [
        MessageStart({**MESSAGE, "usage": usage, "container": {"id": "c"}}),
        ContentBlockStart(0, blocks[0]),
        ContentBlockStop(0),
        ContentBlockStart(1, {"type": "text", "text": "Hi", "citations": []}),
        ContentBlockDelta(1, CitationsDelta(citation)),
        ContentBlockStop(1),
        ContentBlockStart(2, blocks[2]),
        ContentBlockStop(2),
        MessageDelta({"stop_reason": "tool_use", "stop_sequence": None}, usage),
        MessageStop(),
    ]
    assert steps_of(json.dumps(document).encode(), fresh("application/json")) == expected
    assert steps_of(json.dumps(document, indent=1).encode(), fresh()) == expected
    del document["type"]
    assert steps_of(json.dumps(document).encode()) == expected


def test_a_refused_message_document_keeps_its_details() -> None:
    details = {"type": "refusal", "category": "cyber"}
    document = {**MESSAGE, "stop_reason": "refusal", "stop_details": details, "usage": {}}
    steps = steps_of(json.dumps(document).encode())
    assert steps[1:] == [MessageDelta({"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}, {}), MessageStop()]


def test_a_whole_answer_inside_message_start_becomes_blocks_and_its_stop_reason() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}, "caller": {"type": "code_execution_20260120"}}
    start = {"type": "message_start", "message": {**MESSAGE, "content": [call], "stop_reason": "tool_use", "usage": {"output_tokens": 3}}}
    decoder = fresh()
    steps = decoder.feed(frame(start))
    assert steps == [
        MessageStart({**MESSAGE, "usage": {"output_tokens": 3}}),
        ContentBlockStart(0, call),
        ContentBlockStop(0),
        MessageDelta({"stop_reason": "tool_use", "stop_sequence": None}, {"output_tokens": 3}),
    ]
    assert decoder.finishing
    assert decoder.feed(frame(STOP)) == [MessageStop()]


def test_a_json_error_with_status_200_is_the_error_it_says() -> None:
    failed = failure(steps_of(json.dumps(OVERLOADED).encode(), fresh("application/json")))
    assert (failed.cause.code, failed.status) == ("upstream_overloaded", 529)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "upstream_unavailable"),
        (b"<!doctype html><h1>Welcome</h1>", "upstream_unavailable"),
        (b"data: {broken\n\n", "stream_malformed"),
        (b": only comments\n\n", "stream_malformed"),
    ],
)
def test_a_body_that_is_no_answer_is_an_error(body: bytes, code: str) -> None:
    assert failure(steps_of(body)).cause.code == code


def test_an_event_over_the_limit_fails_at_once_and_a_finished_answer_all_the_same() -> None:
    flood = b"data: {" + b"x" * (17 * 1024 * 1024)
    decoder = fresh()
    assert failure(decoder.feed(frame(START) + frame(text("Hi")) + flood)).cause.code == "event_too_large"
    assert decoder.close() == []
    assert isinstance(fresh().feed(frame(START) + frame(ENDING) + flood)[-1], MessageStop)


def test_a_malformed_frame_between_good_ones_is_dropped_and_counted() -> None:
    decoder = fresh()
    steps = steps_of(frame(START) + frame("{broken", "") + frame(text("Hi")) + frame(ENDING) + frame(STOP), decoder)
    assert [type(step) for step in steps] == [MessageStart, ContentBlockDelta, MessageDelta, MessageStop]
    assert decoder.dropped == 1


# Further rows of what real services sent.


def test_gateway_fields_of_a_relay_in_usage_survive_with_nulls_left_to_the_merge() -> None:
    usage = {"input_tokens": None, "output_tokens": 1, "service_tier": None, "cache_creation": {"ephemeral_5m_input_tokens": 0}}
    start = steps_of(frame({"type": "message_start", "message": {**MESSAGE, "provider": "p", "usage": usage}}) + frame(ENDING))[0]
    assert isinstance(start, MessageStart)
    assert start.message["provider"] == "p"
    assert start.message["usage"] == {"output_tokens": 1, "service_tier": None, "cache_creation": {"ephemeral_5m_input_tokens": 0}}


def test_an_answer_without_any_block_is_an_answer() -> None:
    ending = {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "X"}, "usage": {"output_tokens": 1}}
    assert [type(step) for step in steps_of(frame(START) + frame(ending) + frame(STOP))] == [MessageStart, MessageDelta, MessageStop]


def test_a_stream_spliced_from_two_messages_hands_both_starts_on() -> None:
    steps = steps_of(b"".join(map(frame, (START, text("a"), START, text("b"), ENDING, STOP))))
    kinds = [MessageStart, ContentBlockDelta, MessageStart, ContentBlockDelta, MessageDelta, MessageStop]
    assert [type(step) for step in steps] == kinds


def test_starts_are_handed_on_as_they_came() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": ""},
        {"type": "text", "text": "", "citations": None},
        {"type": "tool_use", "id": "t", "name": "f"},
        {"type": "server_tool_use", "id": "s", "name": "web_fetch", "input": {"url": "u"}, "caller": {"type": "direct"}},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "compaction", "content": None},
    ]
    assert decode(*({"type": "content_block_start", "index": n, "content_block": block} for n, block in enumerate(blocks))) == [
        ContentBlockStart(n, block) for n, block in enumerate(blocks)
    ]


# Laws.

ODD = st.sampled_from(
    [None, "", "x", 0, 1, -1, 2**70, 1.5, True, [], [1], {}, {"type": "text"}, {"type": "text", "text": "a"}, {"type": 5}, "\ud800"]
)
BLOCKS = ["content_block_start", "content_block_delta", "content_block_stop"]
KINDS = st.sampled_from(
    ["message_start", *BLOCKS, "message_delta", "message_stop", "message", "ping", "error", "abort", "news", "", None, 5]
)
DELTAS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text_delta", "thinking_delta", "input_json_delta", "citations_delta", "other", None])},
    optional={"text": ODD, "thinking": ODD, "partial_json": ODD, "citation": ODD, "stop_reason": ODD},
)
VALUES = st.fixed_dictionaries(
    {"type": KINDS},
    optional={
        "index": ODD,
        "delta": ODD | DELTAS,
        "content_block": ODD,
        "usage": ODD,
        "error": ODD,
        "role": st.just("assistant"),
        "content": ODD | st.lists(ODD, max_size=3),
        "stop_reason": ODD,
        "message": ODD
        | st.fixed_dictionaries(
            {}, optional={"content": ODD | st.lists(ODD, max_size=3), "stop_reason": ODD, "usage": ODD, "stop_details": ODD}
        ),
    },
)
GOOD = st.sampled_from([START, TEXT, text("Hi"), text("é", 1), STOP_BLOCK, ENDING, STOP, OVERLOADED, delta(None)])
FRAMES = st.one_of(GOOD.map(frame), VALUES.map(lambda value: frame(json.dumps(value), "")), st.binary(max_size=12))
BODIES = st.lists(FRAMES, max_size=8).map(b"".join)


@given(BODIES)
def test_any_bytes_end_once(body: bytes) -> None:
    decoder = fresh()
    steps = decoder.feed(body)
    tail = decoder.close()
    ends = [number for number, step in enumerate(steps + tail) if isinstance(step, MessageStop | UpstreamFailed)]
    assert ends == [len(steps + tail) - 1]
    assert decoder.close() == []


@given(BODIES, st.integers(0, 2**32))
def test_any_cut_of_the_bytes_gives_the_same_steps(body: bytes, seed: int) -> None:
    whole = fresh()
    expected = comparable(steps_of(body, whole))
    cuts = random.Random(seed)
    for size in (1, 3, 7, 0):
        decoder, rest, steps = fresh(), body, []
        while rest:
            length = size or cuts.randint(1, 40)
            steps += decoder.feed(rest[:length])
            rest = rest[length:]
        steps += decoder.close()
        assert comparable(steps) == expected
        assert (decoder.finishing, decoder.warnings) == (whole.finishing, whole.warnings)


TYPED = VALUES.filter(lambda value: value["type"] in ("message_start", *BLOCKS, "message_delta", "message_stop"))


@given(st.lists(TYPED | st.sampled_from([START, TEXT, text("Hi"), STOP_BLOCK, ENDING, STOP]), max_size=6))
def test_the_quick_reading_and_the_patient_one_give_the_same_steps(values: list[dict[str, Any]]) -> None:
    def made(**more: Any) -> list[Any]:
        return comparable(steps_of(b"".join(frame(json.dumps({**value, **more}), "") for value in values)))

    assert made() == made(stats="which the quick one refuses, and the patient one leaves out")
