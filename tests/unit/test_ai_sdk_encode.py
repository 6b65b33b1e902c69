"""Events as the AI SDK's clients get them, chunk by chunk and as one UI message."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from gateway.errors import GatewayError
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
from gateway.formats.ai_sdk import AI_SDK
from gateway.formats.ai_sdk.terms import usage
from gateway.json_text import Json
from tests.ui_stream import chunks, fold

TEXT: Json = {"type": "text", "text": ""}
THINKING: Json = {"type": "thinking", "thinking": "", "signature": ""}
SEARCH: Json = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND: Json = {"type": "web_search_result", "url": "https://a", "title": "A", "encrypted_content": "e", "page_age": "1 day"}
RESULT: Json = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [FOUND, FOUND]}
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
BEGIN = [{"type": "start", "messageId": "msg_1"}, {"type": "start-step"}]
AT_PROVIDER = {"providerExecuted": True, "dynamic": True}


def tool(call_id: str = "call_1", name: str = "f", **more: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}


def block(index: int, start: Json, *deltas: Delta, **stop: Any) -> list[Event]:
    if start["type"] == "tool_use" and not stop:
        stop = {"input": {}}
    return [ContentBlockStart(index, start), *(ContentBlockDelta(index, delta) for delta in deltas), ContentBlockStop(index, **stop)]


def answer(*blocks: list[Event], reason: str = "end_turn", told: Json | None = None) -> list[Event]:
    ending = MessageDelta({"stop_reason": reason, "stop_sequence": None}, told or {"input_tokens": 5, "output_tokens": 9})
    return [MessageStart(MESSAGE), *(event for each in blocks for event in each), ending, MessageStop()]


def stream(events: list[Event], asked: Asked | None = None) -> list[Json]:
    return chunks(AI_SDK.encoder(asked or Asked()).feed(events))


def said(*blocks: list[Event], **more: Any) -> list[Json]:
    """The chunks between the beginning and the end."""
    found = stream(answer(*blocks, **more))
    assert found[:2] == BEGIN
    assert [chunk["type"] for chunk in found[-2:]] == ["finish-step", "finish"]
    return found[2:-2]


def message(events: list[Event], asked: Asked | None = None) -> Json:
    written = AI_SDK.document(asked or Asked())
    assert written.feed(events[:-1]) == b""
    return dict(json.loads(written.feed(events[-1:])))


def test_the_bytes_are_these() -> None:
    body = AI_SDK.encoder().feed(answer(block(0, TEXT, TextDelta("Hel"), TextDelta("lö\u2028"))))
    assert body.decode() == (
        'data: {"type":"start","messageId":"msg_1"}\n\n'
        'data: {"type":"start-step"}\n\n'
        'data: {"type":"text-start","id":"0"}\n\n'
        'data: {"type":"text-delta","id":"0","delta":"Hel"}\n\n'
        'data: {"type":"text-delta","id":"0","delta":"lö\\u2028"}\n\n'
        'data: {"type":"text-end","id":"0"}\n\n'
        'data: {"type":"finish-step"}\n\n'
        'data: {"type":"finish","finishReason":"stop","messageMetadata":{"usage":{"inputTokens":5,"outputTokens":9,"totalTokens":14},'
        '"model":"claude","stopReason":"end_turn"}}\n\n'
        "data: [DONE]\n\n"
    )


def test_thinking_ends_with_its_signature() -> None:
    assert said(block(0, THINKING, ThinkingDelta("hm"), SignatureDelta("s"))) == [
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-delta", "id": "0", "delta": "hm"},
        {"type": "reasoning-end", "id": "0", "providerMetadata": {"anthropic": {"signature": "s"}}},
    ]


def test_thinking_without_a_signature_has_no_metadata() -> None:
    assert said(block(0, THINKING, ThinkingDelta("hm")))[-1] == {"type": "reasoning-end", "id": "0"}


def test_a_signature_delta_that_only_says_something_else_leaves_the_signature() -> None:
    more = UnknownDelta({"type": "signature_delta", "signature": "", "newer": 1})
    events = answer(block(0, THINKING, SignatureDelta("s"), more))
    assert stream(events)[-3]["providerMetadata"] == {"anthropic": {"signature": "s"}}
    assert message(events) == fold(stream(events))


def test_redacted_thinking_is_a_reasoning_without_text() -> None:
    assert said(block(0, {"type": "redacted_thinking", "data": "x"})) == [
        {"type": "reasoning-start", "id": "0", "providerMetadata": {"anthropic": {"redactedData": "x"}}},
        {"type": "reasoning-end", "id": "0"},
    ]


def test_a_call_is_started_previewed_and_only_then_complete() -> None:
    parts = InputJsonDelta('{"a"'), InputJsonDelta(":1}")
    assert said(block(0, tool(), *parts, input={"a": 1}), reason="tool_use") == [
        {"type": "tool-input-start", "toolCallId": "call_1", "toolName": "f"},
        {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": '{"a"'},
        {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": ":1}"},
        {"type": "tool-input-available", "toolCallId": "call_1", "toolName": "f", "input": {"a": 1}},
    ]


@pytest.mark.parametrize(
    ("reason", "word"), [("truncated", "token limit"), ("invalid_json", "not JSON"), ("not_an_object", "not a JSON object")]
)
def test_arguments_that_must_not_run_are_an_error_of_the_call(reason: str, word: str) -> None:
    *_, last = said(block(0, tool(), InputJsonDelta('{"a'), invalid_input=InvalidInput('{"a', reason)))
    text = last.pop("errorText")
    assert word in text
    assert last == {"type": "tool-input-error", "toolCallId": "call_1", "toolName": "f", "input": '{"a'}


def test_an_id_that_comes_twice_is_made_two_for_a_client_knows_a_call_by_it_alone() -> None:
    events = answer(*(block(number, tool(name)) for number, name in enumerate(["c", "c", "c_2", "c"])), reason="tool_use")
    ids = [chunk["toolCallId"] for chunk in stream(events) if chunk["type"] == "tool-input-available"]
    assert ids == ["c", "c_2", "c_2_2", "c_3"]
    assert message(events) == fold(stream(events))


def test_what_a_call_has_besides_goes_along_for_the_next_request() -> None:
    *_, last = said(block(0, tool(extra_content={"google": {"thought_signature": "s"}})))
    assert last["providerMetadata"] == {"chatStreamGateway": {"extra_content": {"google": {"thought_signature": "s"}}}}


def test_a_call_at_the_provider_gets_its_result_and_its_sources() -> None:
    called = block(0, SEARCH, InputJsonDelta('{"query":'), InputJsonDelta('"x"}'))
    assert said(called, block(1, RESULT)) == [
        {"type": "tool-input-start", "toolCallId": "srv_1", "toolName": "web_search", **AT_PROVIDER},
        {"type": "tool-input-delta", "toolCallId": "srv_1", "inputTextDelta": '{"query":'},
        {"type": "tool-input-delta", "toolCallId": "srv_1", "inputTextDelta": '"x"}'},
        {"type": "tool-input-available", "toolCallId": "srv_1", "toolName": "web_search", "input": {"query": "x"}, **AT_PROVIDER},
        {"type": "tool-output-available", "toolCallId": "srv_1", "output": RESULT, **AT_PROVIDER},
        {
            "type": "source-url",
            "sourceId": "msg_1-source-1",
            "url": "https://a",
            "title": "A",
            "providerMetadata": {"anthropic": {"pageAge": "1 day"}},
        },
    ]


def test_a_call_whose_input_came_at_once_has_it() -> None:
    *_, last = said(block(0, {**SEARCH, "input": {"query": "x"}}))
    assert last["input"] == {"query": "x"}


def test_the_result_of_an_earlier_answers_call_is_no_output_for_there_is_no_such_call() -> None:
    assert said(block(0, {**RESULT, "content": []})) == [{"type": "data-gateway-block", "data": {**RESULT, "content": []}}]


def test_a_result_that_does_not_follow_its_call_keeps_its_place_too() -> None:
    found = said(block(0, SEARCH), block(1, TEXT, TextDelta("a")), block(2, {**RESULT, "content": []}))
    assert [chunk["type"] for chunk in found[-2:]] == ["tool-output-available", "data-gateway-block"]


def test_a_call_of_an_mcp_server_says_whose_it_is() -> None:
    *_, last = said(block(0, {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "s", "input": {"a": 1}}))
    assert last["providerMetadata"] == {"chatStreamGateway": {"type": "mcp_tool_use", "server_name": "s"}}
    assert last["input"] == {"a": 1}


CITED = {
    "a page": (
        {
            "type": "page_location",
            "document_index": 0,
            "document_title": "D",
            "start_page_number": 1,
            "end_page_number": 2,
            "cited_text": "x",
        },
        {
            "type": "source-document",
            "sourceId": "msg_1-source-1",
            "mediaType": "application/pdf",
            "title": "D",
            "providerMetadata": {"anthropic": {"citedText": "x", "startPageNumber": 1, "endPageNumber": 2}},
        },
    ),
    "characters of a document without a title": (
        {"type": "char_location", "document_index": 1, "document_title": None, "start_char_index": 3, "end_char_index": 4},
        {
            "type": "source-document",
            "sourceId": "msg_1-source-1",
            "mediaType": "text/plain",
            "title": "Document 2",
            "providerMetadata": {"anthropic": {"startCharIndex": 3, "endCharIndex": 4}},
        },
    ),
    "an address": (
        {"type": "search_result_location", "source": "https://b", "title": None, "cited_text": ""},
        {"type": "source-url", "sourceId": "msg_1-source-1", "url": "https://b"},
    ),
    "what has no address": (
        {"type": "search_result_location", "source": "shelf 3", "title": "Book"},
        {"type": "source-document", "sourceId": "msg_1-source-1", "mediaType": "text/plain", "title": "Book"},
    ),
    "a web page": (
        {"type": "web_search_result_location", "url": "https://a", "title": "A", "encrypted_index": "e"},
        {"type": "source-url", "sourceId": "msg_1-source-1", "url": "https://a", "title": "A"},
    ),
}


@pytest.mark.parametrize("name", CITED)
def test_a_citation_is_a_source_once_and_goes_along_whole_with_its_text(name: str) -> None:
    citation, source = CITED[name]
    found = said(block(0, TEXT, TextDelta("a"), CitationsDelta(citation), CitationsDelta(citation)))
    assert found[2:] == [source, {"type": "text-end", "id": "0", "providerMetadata": {"anthropic": {"citations": [citation] * 2}}}]


@pytest.mark.parametrize("citation", [{"type": "newer_location"}, {"type": "web_search_result_location", "url": "javascript:alert(1)"}])
def test_what_cannot_be_shown_as_a_source_is_none(citation: Json) -> None:
    assert [chunk["type"] for chunk in said(block(0, TEXT, CitationsDelta(citation)))] == ["text-start", "text-end"]


def test_an_image_is_a_file() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert said(block(0, image)) == [{"type": "file", "url": "data:image/png;base64,AAAA", "mediaType": "image/png"}]


def test_a_block_that_no_part_can_show_travels_whole() -> None:
    deltas = [UnknownDelta({"type": "compaction_delta", "content": "so far"})]
    assert said(block(0, {"type": "compaction", "content": None}, *deltas)) == [
        {"type": "data-gateway-block", "data": {"type": "compaction", "content": "so far"}}
    ]


def test_what_is_said_in_a_block_that_nobody_knows_is_no_text_of_the_answer() -> None:
    deltas = [TextDelta("b"), ThinkingDelta("c"), InputJsonDelta("{}")]
    before = [block(0, TEXT, TextDelta("a")), block(1, THINKING, ThinkingDelta("hm")), block(2, tool(), InputJsonDelta("{}"))]
    found = said(*before, block(3, {"type": "newer"}, *deltas))
    assert found[len(said(*before)) :] == [
        {"type": "data-gateway-block", "data": {"type": "newer", "text": "b", "thinking": "c", "input": {}}}
    ]


def test_a_result_may_come_although_the_arguments_were_none() -> None:
    events = answer(block(0, SEARCH, InputJsonDelta("{")), block(1, RESULT))
    assert [chunk["type"] for chunk in stream(events)[4:6]] == ["tool-input-error", "tool-output-available"]
    assert message(events) == fold(stream(events))


def test_an_unknown_event_passes_by_and_is_not_kept() -> None:
    event = UnknownEvent({"type": "newer", "x": None})
    assert said([event]) == [{"type": "data-gateway-event", "data": {"type": "newer", "x": None}, "transient": True}]


def test_known_deltas_with_more_fields_are_what_they_are() -> None:
    found = said(
        block(0, THINKING, UnknownDelta({"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 3})),
        block(1, TEXT, UnknownDelta({"type": "text_delta", "text": "a", "x": 1}), UnknownDelta({"type": "newer_delta"})),
    )
    assert [chunk["delta"] for chunk in found if "delta" in chunk] == ["hm", "a"]


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        *(("end_turn", "stop"), ("stop_sequence", "stop"), ("pause_turn", "stop"), ("max_tokens", "length"), ("tool_use", "tool-calls")),
        *(("model_context_window_exceeded", "length"), ("refusal", "content-filter"), ("compaction", "other"), ("newer", "other")),
    ],
)
def test_the_stop_reason_is_a_finish_reason_and_stands_in_the_metadata(reason: str, word: str) -> None:
    last = stream(answer(reason=reason))[-1]
    assert (last["finishReason"], last["messageMetadata"]["stopReason"]) == (word, reason)


def test_input_tokens_are_with_what_the_cache_read_and_wrote() -> None:
    told = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    assert usage(told) == {"inputTokens": 321, "outputTokens": 9, "totalTokens": 330, "reasoningTokens": 4, "cachedInputTokens": 20}


def test_usage_that_nobody_told_says_so() -> None:
    last = stream(answer(told={"input_tokens": 0, "output_tokens": 0, "estimated": True}))[-1]
    assert last["messageMetadata"]["usage"] == {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0, "estimated": True}


def test_after_a_fallback_the_other_model_is_named() -> None:
    fallback = {"type": "fallback", "from": {"model": "claude"}, "to": {"model": "lesser"}}
    events = answer(block(0, fallback))
    assert stream(events)[-1]["messageMetadata"]["model"] == message(events)["metadata"]["model"] == "lesser"


def test_a_message_that_goes_on_keeps_its_id() -> None:
    events = answer(block(0, TEXT, TextDelta("a")))
    assert stream(events, Asked(continues="ui-7"))[0] == {"type": "start", "messageId": "ui-7"}
    assert message(events, Asked(continues="ui-7"))["id"] == "ui-7"
    assert stream(events, Asked(continues=""))[0] == {"type": "start"}


FAILED = GatewayError("interrupted", "It broke off.")


@pytest.mark.parametrize(
    ("ending", "chunk"),
    [
        (FAILED.event("req", partial=True), {"type": "error", "errorText": "It broke off."}),
        (Abort("stopped"), {"type": "abort"}),
        (Reset("failover", 1), {"type": "error", "errorText": "The answer broke off and began anew, which this format cannot say."}),
    ],
)
def test_an_answer_that_breaks_off_says_so_and_nothing_after(ending: Event, chunk: Json) -> None:
    begun = [MessageStart(MESSAGE), *block(0, tool(), InputJsonDelta('{"a"'))[:-1]]
    after: list[Event] = [MessageStart(MESSAGE), *block(0, TEXT, TextDelta("b"))]
    found = stream([*begun, ending, *(after if isinstance(ending, Reset) else [])])
    assert found[-1] == chunk
    assert fold(found)["parts"][-1]["state"] == "input-streaming"


def test_a_failure_before_the_message_is_an_error_alone() -> None:
    encoder = AI_SDK.encoder()
    body = encoder.feed([Ping()]) + encoder.heartbeat() + encoder.failed(FAILED, "req", partial=False)
    assert body == b': ping\n\n: ping\n\ndata: {"type":"error","errorText":"It broke off."}\n\ndata: [DONE]\n\n'


def test_the_document_is_the_message_that_a_client_makes_of_the_stream() -> None:
    events = answer(
        block(0, THINKING, ThinkingDelta("hm"), SignatureDelta("s")),
        block(1, SEARCH, InputJsonDelta("{}")),
        block(2, RESULT),
        block(3, TEXT, TextDelta("Hi"), CitationsDelta(CITED["a page"][0])),
        block(4, tool(caller={"type": "direct"})),
        block(5, tool("call_2"), InputJsonDelta("{"), input=UNSET, invalid_input=InvalidInput("{", "truncated")),
        block(6, {"type": "newer"}),
        reason="tool_use",
    )
    assert message(events) == fold(stream(events))


def test_what_there_is_of_a_document_that_broke_off_is_told_in_json() -> None:
    written = AI_SDK.document()
    assert written.partial is None
    written.feed([MessageStart(MESSAGE), *block(0, TEXT, TextDelta("Hel"))[:-1]])
    refusal = AI_SDK.refusal(FAILED, "req", partial=True, message=written.partial)
    told = json.loads(refusal.body)
    assert refusal.content_type == "application/json"
    assert (told["error"]["code"], told["error"]["partial"]) == ("stream_interrupted", True)
    parts = [{"type": "step-start"}, {"type": "text", "text": "Hel", "state": "done"}]
    assert told["partial_message"] == {"id": "msg_1", "role": "assistant", "parts": parts}


def test_an_error_before_the_answer_is_one_sentence() -> None:
    refusal = AI_SDK.refusal(FAILED, "req")
    assert (refusal.status, refusal.body, refusal.content_type) == (502, b"It broke off.", "text/plain; charset=utf-8")
