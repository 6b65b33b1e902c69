"""Events as OpenAI's clients get them, chunk by chunk and as one document."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from gateway.errors import CAUSES, GatewayError, RequestRefused, UpstreamFailed
from gateway.events import (
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.formats import Asked
from gateway.formats.openai import OPENAI_CLIENT
from gateway.formats.openai.words import usage
from gateway.json_text import Json

TEXT: Json = {"type": "text", "text": ""}
THINKING: Json = {"type": "thinking", "thinking": "", "signature": ""}
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 1},
}


def tool(call_id: str = "call_1", name: str = "f", **more: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}


def block(index: int, start: Json, *deltas: Delta, **stop: Any) -> list[Event]:
    if start["type"] == "tool_use" and not stop:
        stop = {"input": {}}
    return [
        ContentBlockStart(index, start),
        *(ContentBlockDelta(index, delta) for delta in deltas),
        ContentBlockStop(index, **stop),
    ]


def answer(
    *blocks: list[Event], reason: str = "end_turn", sequence: str | None = None, told: Json | None = None, **more: Any
) -> list[Event]:
    said = {"stop_reason": reason, "stop_sequence": sequence, **more}
    ending = [MessageDelta(said, told or {"input_tokens": 5, "output_tokens": 9}), MessageStop()]
    return [MessageStart(MESSAGE), *(event for each in blocks for event in each), *ending]


def frames(data: bytes) -> list[str]:
    pieces = data.decode().split("\n\n")
    assert pieces.pop() == ""
    assert all(piece.startswith("data: ") and "\n" not in piece for piece in pieces)
    return [piece.removeprefix("data: ") for piece in pieces]


def chunks(events: list[Event], *, include_usage: bool = False, one_by_one: bool = False) -> list[Json]:
    """The chunks of a whole answer, which ends with `[DONE]`."""
    encoder = OPENAI_CLIENT.encoder(Asked(created=7, include_usage=include_usage))
    data = b"".join(encoder.feed([event]) for event in events) if one_by_one else encoder.feed(events)
    found = frames(data)
    assert found.pop() == "[DONE]"
    read = [json.loads(chunk) for chunk in found]
    for chunk in read:
        assert [chunk[key] for key in ("id", "object", "created", "model")] == ["msg_1", "chat.completion.chunk", 7, "claude"]
    return read


def said(events: list[Event]) -> list[Any]:
    """The deltas, and the finish reason last."""
    found = [chunk["choices"][0] for chunk in chunks(events)]
    assert all(choice["index"] == 0 for choice in found)
    assert [choice["finish_reason"] for choice in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1]["delta"] == {}
    return [*(choice["delta"] for choice in found[:-1]), found[-1]["finish_reason"]]


def document(events: list[Event]) -> Json:
    written = OPENAI_CLIENT.document(Asked(created=7))
    assert written.feed(events[:-1]) == b""
    return dict(json.loads(written.feed(events[-1:])))


ROLE = {"role": "assistant", "content": ""}
ROLE_BEFORE_CALL = {"role": "assistant", "content": None}


def test_text_is_content_after_one_chunk_with_the_role() -> None:
    events = answer(block(0, TEXT, TextDelta("Hel"), TextDelta("lo")))
    assert said(events) == [ROLE, {"content": "Hel"}, {"content": "lo"}, "stop"]


def test_it_makes_no_difference_how_the_events_come_together() -> None:
    events = answer(
        block(0, THINKING, ThinkingDelta("hm"), SignatureDelta("s")),
        block(1, TEXT, TextDelta("Hello"), CitationsDelta({"type": "search_result_location", "source": "https://a"})),
        block(2, tool(), InputJsonDelta("{}")),
        reason="tool_use",
    )
    assert chunks(events, one_by_one=True, include_usage=True) == chunks(events, include_usage=True)


def test_thinking_is_reasoning_content_and_its_signature_is_left_out() -> None:
    events = answer(block(0, THINKING, ThinkingDelta("hm"), SignatureDelta("s")), block(1, TEXT, TextDelta("yes")))
    assert said(events) == [ROLE_BEFORE_CALL, {"reasoning_content": "hm"}, {"content": "yes"}, "stop"]


def test_a_call_has_its_id_type_and_name_in_its_first_fragment_only() -> None:
    events = answer(block(0, tool(), InputJsonDelta('{"a"'), InputJsonDelta(": 1}"), input={"a": 1}), reason="tool_use")
    assert said(events) == [
        ROLE_BEFORE_CALL,
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        "tool_calls",
    ]


def test_calls_are_counted_from_0_whatever_stands_between_them() -> None:
    events = answer(
        block(0, TEXT, TextDelta("a")),
        block(1, tool("c1"), InputJsonDelta("{}")),
        block(2, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, InputJsonDelta('{"q":1}')),
        block(3, tool("c2"), InputJsonDelta("{}")),
        reason="tool_use",
    )
    calls = [delta["tool_calls"] for delta in said(events)[:-1] if "tool_calls" in delta]
    assert all(len(each) == 1 for each in calls)
    assert [each[0]["index"] for each in calls] == [0, 0, 1, 1]


@pytest.mark.parametrize("deltas", [[], [InputJsonDelta(" ")]])
def test_a_call_without_arguments_says_an_empty_object_at_its_stop(deltas: list[Delta]) -> None:
    events = answer(block(0, tool(), *deltas), reason="tool_use")
    fragments = [delta["tool_calls"][0]["function"]["arguments"] for delta in said(events)[1:-1]]
    assert json.loads("".join(fragments)) == {}
    assert fragments[-1] == "{}"
    assert document(events)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_arguments_that_were_cut_off_stay_as_they_are() -> None:
    cut = InvalidInput("", "truncated")
    events = answer(block(0, tool(), invalid_input=cut, input=UNSET), reason="max_tokens")
    assert said(events)[1:] == [
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        "length",
    ]


def test_server_tools_redacted_thinking_and_unknown_things_are_left_out() -> None:
    events = answer(
        block(0, {"type": "redacted_thinking", "data": "x"}),
        block(1, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
        block(2, {"type": "newer", "x": 1}, UnknownDelta({"type": "newer_delta", "x": 1})),
        block(3, TEXT, TextDelta("a")),
    )
    events.insert(1, UnknownEvent({"type": "newer_event"}))
    assert said(events) == [ROLE, {"content": "a"}, "stop"]


def test_a_known_delta_with_more_fields_is_that_delta() -> None:
    more = {"type": "text_delta", "text": "a", "obfuscation": "xyz"}
    thought = {"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 1}
    arguments = {"type": "input_json_delta", "partial_json": "{}", "x": 1}
    events = answer(
        block(0, THINKING, UnknownDelta(thought)),
        block(1, TEXT, UnknownDelta(more)),
        block(2, tool(), UnknownDelta(arguments)),
        reason="tool_use",
    )
    assert list(said(events)[1:3]) == [{"reasoning_content": "hm"}, {"content": "a"}]
    assert document(events)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_empty_answer_has_a_role_and_an_ending() -> None:
    assert said(answer()) == [ROLE, "stop"]
    assert document(answer())["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}


def test_annotations_come_in_one_chunk_before_the_finish_and_say_where_they_belong() -> None:
    found = {"type": "web_search_result_location", "url": "https://a", "title": "A", "cited_text": "so", "encrypted_index": "e"}
    placed = {"type": "search_result_location", "source": "https://b", "title": None, "cited_text": "", "start_index": 1, "end_index": 2}
    local = {"type": "char_location", "document_index": 0, "cited_text": "x"}
    events = answer(
        block(0, TEXT, TextDelta("ab")),
        block(1, TEXT, TextDelta("cde"), CitationsDelta(found), CitationsDelta(local), CitationsDelta(placed)),
    )
    notes = [
        {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A", "start_index": 2, "end_index": 5, "content": "so"}},
        {"type": "url_citation", "url_citation": {"url": "https://b", "title": "", "start_index": 1, "end_index": 2}},
    ]
    assert said(events) == [ROLE, {"content": "ab"}, {"content": "cde"}, {"annotations": notes}, "stop"]
    assert document(events)["choices"][0]["message"]["annotations"] == notes


def test_a_source_that_is_no_address_is_no_annotation() -> None:
    events = answer(block(0, TEXT, TextDelta("a"), CitationsDelta({"type": "search_result_location", "source": "doc-7"})))
    assert said(events) == [ROLE, {"content": "a"}, "stop"]


@pytest.mark.parametrize(
    ("reason", "finish", "beside"),
    [
        ("end_turn", "stop", None),
        ("stop_sequence", "stop", None),
        ("max_tokens", "length", None),
        ("tool_use", "tool_calls", None),
        ("refusal", "content_filter", None),
        ("model_context_window_exceeded", "length", "model_context_window_exceeded"),
        ("pause_turn", "stop", "pause_turn"),
        ("compaction", "stop", "compaction"),
        ("newer", "stop", "newer"),
    ],
)
def test_each_stop_reason_has_a_finish_reason_and_what_it_loses_stands_on_the_root(reason: str, finish: str, beside: str | None) -> None:
    events = answer(block(0, TEXT, TextDelta("a")), reason=reason)
    last, whole = chunks(events)[-1], document(events)
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": finish}]
    assert whole["choices"][0]["finish_reason"] == finish
    expected = None if beside is None else {"stop_reason": beside}
    assert last.get("gateway") == whole.get("gateway") == expected


def test_the_stop_sequence_stands_where_vllm_says_it() -> None:
    events = answer(block(0, TEXT, TextDelta("a")), reason="stop_sequence", sequence="END")
    assert chunks(events)[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}]
    assert document(events)["choices"][0]["stop_reason"] == "END"


def test_usage_comes_in_a_chunk_of_its_own_and_only_when_it_was_asked_for() -> None:
    events = answer(block(0, TEXT, TextDelta("a")))
    counted = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    assert all("usage" not in chunk for chunk in chunks(events))
    *before, last = chunks(events, include_usage=True)
    assert (last["choices"], last["usage"]) == ([], counted)
    assert all("usage" not in chunk for chunk in before)
    assert document(events)["usage"] == counted


def test_usage_of_several_events_is_what_was_told_last() -> None:
    events = answer(block(0, TEXT, TextDelta("a")), told={"output_tokens": 9})
    events.insert(1, MessageDelta({"stop_reason": None, "stop_sequence": None}, {"input_tokens": 6, "output_tokens": 2}))
    assert chunks(events, include_usage=True)[-1]["usage"] == {"prompt_tokens": 6, "completion_tokens": 9, "total_tokens": 15}


def test_prompt_tokens_hold_what_the_cache_read_and_wrote() -> None:
    told = {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 100,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
        "service_tier": "standard",
    }
    assert usage(told) == {
        "prompt_tokens": 123,
        "completion_tokens": 7,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 4},
        "service_tier": "standard",
    }


def test_what_the_provider_never_told_is_marked() -> None:
    assert usage({"input_tokens": 0, "output_tokens": 0, "estimated": True})["estimated"] is True


def test_one_document_has_everything() -> None:
    events = answer(
        block(0, THINKING, ThinkingDelta("hm"), SignatureDelta("s")),
        block(1, TEXT, TextDelta("Hel"), TextDelta("lo")),
        block(2, tool(), InputJsonDelta('{"a": '), InputJsonDelta("1}"), input={"a": 1}),
        reason="tool_use",
    )
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "Hello", "refusal": None, "reasoning_content": "hm", "tool_calls": [call]}
    assert document(events) == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": 7,
        "model": "claude",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14},
    }


def test_a_document_without_text_has_null_for_content() -> None:
    events = answer(block(0, tool(), InputJsonDelta("{}")), reason="tool_use")
    assert document(events)["choices"][0]["message"]["content"] is None


def test_a_broken_document_shows_what_had_come() -> None:
    written = OPENAI_CLIENT.document(Asked(created=7))
    assert written.partial is None
    written.feed(
        [MessageStart(MESSAGE), *block(0, TEXT, TextDelta("a")), ContentBlockStart(1, tool()), ContentBlockDelta(1, InputJsonDelta('{"a'))]
    )
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    assert written.partial == {"role": "assistant", "content": "a", "refusal": None, "tool_calls": [call]}
    failed = UpstreamFailed("interrupted", "It broke.")
    body = json.loads(OPENAI_CLIENT.refusal(failed, "r", partial=True, message=written.partial).body)
    assert body["error"]["code"] == "stream_interrupted"
    assert (body["partial"], body["partial_message"]) == (True, written.partial)


def test_a_thought_signature_goes_out_with_its_call() -> None:
    extra = {"google": {"thought_signature": "s"}}
    events = answer(block(0, tool(extra_content=extra), InputJsonDelta("{}")), reason="tool_use")
    assert said(events)[1]["tool_calls"][0]["extra_content"] == extra
    assert document(events)["choices"][0]["message"]["tool_calls"][0]["extra_content"] == extra


def test_characters_at_which_naive_clients_cut_lines_are_escaped() -> None:
    text = "a\u2028b\u2029c\u0085d\nü"
    encoder = OPENAI_CLIENT.encoder()
    data = encoder.feed(answer(block(0, TEXT, TextDelta(text), TextDelta(text)))).decode()
    assert not {"\u2028", "\u2029", "\u0085"} & set(data)
    assert "ü" in data
    assert [delta["content"] for delta in said(answer(block(0, TEXT, TextDelta(text), TextDelta(text))))[1:-1]] == [text, text]


def test_a_heartbeat_is_a_comment() -> None:
    encoder = OPENAI_CLIENT.encoder()
    assert encoder.heartbeat() == encoder.feed([Ping()]) == b": ping\n\n"
    assert OPENAI_CLIENT.document().heartbeat() == b""


def test_an_error_in_the_stream_is_an_error_object_and_no_done() -> None:
    encoder = OPENAI_CLIENT.encoder()
    encoder.feed([MessageStart(MESSAGE), ContentBlockStart(0, TEXT), ContentBlockDelta(0, TextDelta("a"))])
    error = UpstreamFailed("overloaded", "Provider p is overloaded.")
    expected = {"error": {"message": "Provider p is overloaded.", "type": "server_error", "param": None, "code": "upstream_overloaded"}}
    assert [json.loads(frame) for frame in frames(encoder.failed(error, "r", partial=True))] == [expected]
    assert [json.loads(frame) for frame in frames(encoder.feed([error.event("r", partial=True)]))] == [expected]


@pytest.mark.parametrize(("event", "code"), [(Abort("stopped"), "stopped"), (Reset("restart", 2), "stream_interrupted")])
def test_what_openai_cannot_say_is_an_error_and_no_done(event: Event, code: str) -> None:
    found = frames(OPENAI_CLIENT.encoder().feed([event]))
    assert [json.loads(frame)["error"]["code"] for frame in found] == [code]


@pytest.mark.parametrize(
    ("cause", "status", "kind"),
    [
        ("invalid_request", 400, "invalid_request_error"),
        ("unauthorized", 401, "invalid_request_error"),
        ("forbidden_origin", 403, "invalid_request_error"),
        ("unknown_model", 404, "invalid_request_error"),
        ("too_large", 413, "invalid_request_error"),
        ("rate_limited", 429, "rate_limit_exceeded"),
        ("internal", 500, "server_error"),
        ("unavailable", 502, "server_error"),
        ("busy", 503, "server_error"),
        ("overloaded", 503, "server_error"),
        ("idle", 504, "timeout"),
    ],
)
def test_a_refusal_is_in_openais_words_with_the_gateways_code(cause: str, status: int, kind: str) -> None:
    refused = OPENAI_CLIENT.refusal(GatewayError(cause, "No."), "r")
    assert refused.status == status
    assert json.loads(refused.body) == {"error": {"message": "No.", "type": kind, "param": None, "code": CAUSES[cause].code}}


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_whoever_would_ask_again_for_nothing_is_told_so(cause: str) -> None:
    refused = OPENAI_CLIENT.refusal(GatewayError(cause, "No."), "r")
    # What the SDK does on its own: 408, 409, 429 and everything above 499.
    hopeless = CAUSES[cause].status >= 500 and not CAUSES[cause].retryable
    assert refused.headers == ((("x-should-retry", "false"),) if hopeless else ())


def test_a_refusal_names_the_field_it_is_about() -> None:
    error = RequestRefused("invalid_request", "messages[1].tool_calls[0].function.arguments: the tool's arguments are not JSON.")
    found = json.loads(OPENAI_CLIENT.refusal(error, "r").body)
    assert found["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


def test_a_quota_that_is_used_up_is_told_in_the_word_that_clients_look_for() -> None:
    error = UpstreamFailed("rate_limited", "No more.", provider="p", provider_code="insufficient_quota")
    assert json.loads(OPENAI_CLIENT.refusal(error, "r").body)["error"]["type"] == "insufficient_quota"
