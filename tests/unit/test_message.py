"""The Assembler: which message a stream's events make, also before they are complete."""

from typing import Any

import pytest

from gateway import message
from gateway.errors import UpstreamFailed
from gateway.events import (
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
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
)
from gateway.message import Assembler

Json = dict[str, Any]

STARTED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 3},
}
BEGIN = MessageStart(STARTED)
END = [MessageDelta({"stop_reason": "end_turn", "stop_sequence": None}, {"input_tokens": 5, "output_tokens": 2}), MessageStop()]


def block(index: int, start: Json, *deltas: Delta, stop: ContentBlockStop | None = None) -> list[Event]:
    return [ContentBlockStart(index, start), *(ContentBlockDelta(index, delta) for delta in deltas), stop or ContentBlockStop(index)]


def assembled(*events: Event) -> Json:
    assembler = Assembler()
    assembler.feed([BEGIN, *events, *END])
    return assembler.message


def content(start: Json, *deltas: Delta, stop: ContentBlockStop | None = None) -> Json:
    (only,) = assembled(*block(0, start, *deltas, stop=stop))["content"]
    assert isinstance(only, dict)
    return only


TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}


def test_text_is_appended() -> None:
    assert content(TEXT, TextDelta("Hel"), TextDelta("lo")) == {"type": "text", "text": "Hello"}


def test_thinking_is_appended_and_the_signature_set() -> None:
    said = content(THINKING, ThinkingDelta("h"), ThinkingDelta("m"), SignatureDelta("old"), SignatureDelta("new"))
    assert said == {"type": "thinking", "thinking": "hm", "signature": "new"}


def test_citations_are_appended_to_none_null_or_some() -> None:
    one, two = CitationsDelta({"n": 1}), CitationsDelta({"n": 2})
    assert content(TEXT, TextDelta("a"), one, two)["citations"] == [{"n": 1}, {"n": 2}]
    assert content({**TEXT, "citations": None}, one)["citations"] == [{"n": 1}]
    assert content({**TEXT, "citations": [{"n": 0}]}, one)["citations"] == [{"n": 0}, {"n": 1}]
    assert content({**TEXT, "citations": 7}, one)["citations"] == [{"n": 1}]


def test_a_tools_input_is_the_one_its_stop_tells() -> None:
    assert content(TOOL, InputJsonDelta('{"a":1}'), stop=ContentBlockStop(0, input={"a": 1})) == {**TOOL, "input": {"a": 1}}


def test_a_broken_input_is_empty_and_says_why() -> None:
    said = content(TOOL, InputJsonDelta("{"), stop=ContentBlockStop(0, invalid_input=InvalidInput("{", "truncated")))
    assert said == {**TOOL, "invalid_input": {"partial_json": "{", "reason": "truncated"}}


def test_a_server_tools_input_is_read_from_its_deltas() -> None:
    assert content(SEARCH, InputJsonDelta('{"q"'), InputJsonDelta(":1}")) == {**SEARCH, "input": {"q": 1}}
    assert content({**SEARCH, "input": {"q": 2}}) == {**SEARCH, "input": {"q": 2}}
    assert content(SEARCH, InputJsonDelta("{"))["invalid_input"] == {"partial_json": "{", "reason": "invalid_json"}


def test_blocks_without_deltas_stay_as_they_are() -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]}
    assert content(result) == result


def test_a_known_delta_with_more_fields_counts_as_its_kind() -> None:
    more = UnknownDelta({"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 4})
    empty = UnknownDelta({"type": "signature_delta", "signature": "", "x": 1})
    assert content(THINKING, more, SignatureDelta("s"), empty) == {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert content(TEXT, UnknownDelta({"type": "text_delta", "text": "a", "x": 1})) == {"type": "text", "text": "a"}
    assert content(SEARCH, UnknownDelta({"type": "input_json_delta", "partial_json": '{"q":1}', "x": 1}))["input"] == {"q": 1}
    assert content(TEXT, UnknownDelta({"type": "citations_delta", "citation": {"n": 1}, "x": 1}))["citations"] == [{"n": 1}]
    assert content(TEXT, UnknownDelta({"type": "citations_delta", "citation": None, "x": 1})) == TEXT


def test_a_compaction_delta_holds_the_whole_value() -> None:
    start = {"type": "compaction", "content": None}
    deltas = [UnknownDelta({"type": "compaction_delta", "content": text}) for text in ("old", "new")]
    assert content(start, *deltas) == {"type": "compaction", "content": "new"}


def test_an_unknown_delta_is_merged_as_its_values_suggest() -> None:
    start = {"type": "newer", "known": 1}
    first = UnknownDelta({"type": "newer_delta", "said": "a", "items": [1], "count": 1, "known": {"x": 1}, "odd": "text"})
    second = UnknownDelta({"type": "newer_delta", "said": "b", "items": [2], "count": 2, "known": None, "odd": 7})
    assert content(start, first, second) == {"type": "newer", "said": "ab", "items": [1, 2], "count": 2, "known": {"x": 1}, "odd": 7}


def test_the_final_message_delta_is_merged() -> None:
    said = {"stop_reason": "refusal", "stop_sequence": None, "stop_details": {"type": "refusal"}, "id": "forged", "usage": 5}
    rest = {"context_management": {"applied_edits": []}, "content": "forged"}
    assembler = Assembler()
    assembler.feed([BEGIN, MessageDelta(said, {"output_tokens": 7, "input_tokens": 6, "tier": None}, rest), MessageStop()])
    assert assembler.message == {
        **STARTED,
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal"},
        "context_management": {"applied_edits": []},
        "usage": {"input_tokens": 6, "output_tokens": 7, "cache_read_input_tokens": 3, "tier": None},
    }


def test_an_earlier_message_delta_does_not_take_the_reason_away() -> None:
    update = MessageDelta({"stop_reason": None, "stop_sequence": None, "container": {"id": "c"}}, {"output_tokens": 1})
    said = assembled(update)
    assert (said["stop_reason"], said["container"]) == ("end_turn", {"id": "c"})


def test_a_fallback_block_names_the_model_that_answered() -> None:
    fallback = {"type": "fallback", "from": {"model": "m"}, "to": {"model": "m-2"}}
    assert assembled(*block(0, fallback))["model"] == "m-2"
    assert assembled(*block(0, fallback))["content"] == [fallback]
    assert assembled(*block(0, {"type": "fallback", "to": "odd"}))["model"] == "m"


def test_stats_are_part_of_the_message_where_the_gateway_told_them() -> None:
    assembler = Assembler()
    assembler.feed([BEGIN, END[0], MessageStop(Stats(attempts=1))])
    assert assembler.message["stats"]["attempts"] == 1
    assert "stats" not in assembled()


def test_pings_unknown_events_and_failures_are_no_part_of_it() -> None:
    others = [Ping(), UnknownEvent({"type": "newer"})]
    assert assembled(*others) == assembled()
    assembler = Assembler()
    assembler.feed([BEGIN, Error(ErrorBody("api_error", "x", "internal", False), "r"), Abort("stopped")])
    assert assembler.partial == STARTED


def test_a_reset_forgets_what_came_before() -> None:
    assembler = Assembler()
    assembler.feed([BEGIN, *block(0, TEXT, TextDelta("a")), Reset("interrupted", 1)])
    assert assembler.partial is None
    assembler.feed([BEGIN, *block(0, TEXT, TextDelta("b")), *END])
    assert assembler.message["content"] == [{"type": "text", "text": "b"}]


def test_an_incomplete_message_is_not_given_as_a_complete_one() -> None:
    assembler = Assembler()
    with pytest.raises(ValueError, match="not complete"):
        _ = assembler.message
    assembler.feed([BEGIN, *END[:1]])
    assert not assembler.complete
    with pytest.raises(ValueError, match="not complete"):
        _ = assembler.message


def test_what_there_is_can_be_seen_at_any_time() -> None:
    assembler = Assembler()
    assert assembler.partial is None
    assembler.feed([BEGIN, ContentBlockStart(0, TEXT), ContentBlockDelta(0, TextDelta("Hel"))])
    assert assembler.partial == {**STARTED, "content": [{"type": "text", "text": "Hel"}]}
    assembler.feed([ContentBlockDelta(0, TextDelta("lo")), ContentBlockStop(0)])
    assert assembler.partial == {**STARTED, "content": [{"type": "text", "text": "Hello"}]}


def test_an_unfinished_tool_call_is_marked() -> None:
    assembler = Assembler()
    assembler.feed([BEGIN, ContentBlockStart(0, TOOL), ContentBlockDelta(0, InputJsonDelta('{"a":1}'))])
    assert assembler.partial is not None
    assert assembler.partial["content"] == [{**TOOL, "invalid_input": {"partial_json": '{"a":1}', "reason": "truncated"}}]


def test_the_events_are_not_changed() -> None:
    start = {"type": "text", "text": "", "citations": []}
    events = [BEGIN, *block(0, start, TextDelta("a"), CitationsDelta({"n": 1})), *END]
    Assembler().feed(events)
    assert start == {"type": "text", "text": "", "citations": []}
    assert STARTED["content"] == []


def test_an_answer_beyond_the_limit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "LIMIT", 3000)
    assembler = Assembler()
    assembler.feed([BEGIN, ContentBlockStart(0, TEXT), ContentBlockDelta(0, TextDelta("a" * 500))])
    with pytest.raises(UpstreamFailed) as failed:
        assembler.feed([ContentBlockDelta(0, TextDelta("a" * 2000))])
    assert failed.value.cause.code == "event_too_large"
    assert assembler.partial is not None
    assert assembler.partial["content"] == [{"type": "text", "text": "a" * 500}]
