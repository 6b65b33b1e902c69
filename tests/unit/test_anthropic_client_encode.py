"""What Claude's clients are told: the events without the gateway's own, and errors in Claude's shape."""

import json
from typing import Any

import pytest

from gateway.errors import CAUSES, GatewayError
from gateway.events import (
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    Stats,
    TextDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.formats import Asked
from gateway.formats.anthropic.client import CLAUDE_CLIENT

Json = dict[str, Any]
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 0, "output_tokens": 0},
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
EVENTS: list[Event] = [
    MessageStart(MESSAGE),
    ContentBlockStart(0, {"type": "text", "text": ""}),
    ContentBlockDelta(0, TextDelta("a\u2028b")),
    ContentBlockDelta(0, UnknownDelta({"type": "mood_delta", "mood": "fine"})),
    ContentBlockStop(0),
    UnknownEvent({"type": "weather", "sunny": True}),
    ContentBlockStart(1, CALL),
    ContentBlockDelta(1, InputJsonDelta('{"city": "Par')),
    ContentBlockStop(1, invalid_input=InvalidInput('{"city": "Par', "truncated")),
    MessageDelta(
        {"stop_reason": "end_turn", "stop_sequence": None, "raw_stop_reason": "eos"},
        {"input_tokens": 3, "output_tokens": 5, "estimated": True},
        {"context_management": {"applied_edits": []}},
    ),
    MessageStop(Stats(attempts=1)),
]


def frames(written: bytes) -> list[Json]:
    """Each as Claude's SDKs want it: a name, one line of data that says the same, a blank line."""
    *whole, rest = written.decode().split("\n\n")
    assert rest == ""
    found = []
    for frame in whole:
        name, data = frame.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_the_events_go_out_without_what_is_the_gateways() -> None:
    assert frames(CLAUDE_CLIENT.encoder().feed(EVENTS)) == [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a\u2028b"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "mood_delta", "mood": "fine"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "weather", "sunny": True},
        {"type": "content_block_start", "index": 1, "content_block": CALL},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"city": "Par'}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 3, "output_tokens": 5},
            "context_management": {"applied_edits": []},
        },
        {"type": "message_stop"},
    ]


def test_the_document_is_the_same_message() -> None:
    document = CLAUDE_CLIENT.document()
    assert document.feed(EVENTS[:-1]) == b""
    assert json.loads(document.feed(EVENTS[-1:])) == {
        **MESSAGE,
        "content": [{"type": "text", "text": "a\u2028b", "mood": "fine"}, CALL],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 5},
        "context_management": {"applied_edits": []},
    }


def test_a_heartbeat_is_claudes_ping() -> None:
    assert CLAUDE_CLIENT.encoder().heartbeat() == CLAUDE_CLIENT.encoder().feed([Ping()]) == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert CLAUDE_CLIENT.document().heartbeat() == b""


def test_a_failure_in_the_stream_is_claudes_error() -> None:
    error = GatewayError("overloaded", "Too much.", provider="claude", provider_code="overloaded_error")
    assert frames(CLAUDE_CLIENT.encoder().failed(error, "req_1", partial=True)) == [
        {
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Too much.", "details": {"error_code": "upstream_overloaded"}},
            "request_id": "req_1",
        }
    ]


def test_the_providers_own_code_is_kept_for_sdks_that_act_on_it() -> None:
    error = GatewayError("rejected", "No.", provider="claude", provider_code="image_dimensions_too_large")
    assert json.loads(CLAUDE_CLIENT.refusal(error, "req_1").body)["error"]["details"] == {"error_code": "image_dimensions_too_large"}


def test_whoever_is_stopped_is_told_an_error() -> None:
    [said] = frames(CLAUDE_CLIENT.encoder().feed([Abort("stopped")]))
    assert said["error"] == {"type": "api_error", "message": "The answer was stopped.", "details": {"error_code": "stopped"}}


def test_there_is_no_word_for_a_reset() -> None:
    assert CLAUDE_CLIENT.encoder().feed([Reset("restart", 2)]) == b""


@pytest.mark.parametrize("name", CAUSES)
def test_a_refusal_has_claudes_shape_and_its_own_status(name: str) -> None:
    refusal = CLAUDE_CLIENT.refusal(GatewayError(name, "No."), "req_1")
    cause = CAUSES[name]
    assert json.loads(refusal.body) == {
        "type": "error",
        "error": {"type": cause.type, "message": "No.", "details": {"error_code": cause.code}},
        "request_id": "req_1",
    }
    assert refusal.status == cause.status
    headers = dict(refusal.headers)
    assert headers.pop("request-id") == "req_1"
    # What the SDK does on its own: 408, 409, 429 and everything above 499.
    assert headers == ({} if cause.retryable or cause.status < 500 else {"x-should-retry": "false"})


def test_what_had_come_of_a_document_is_told_beside_its_error() -> None:
    document = CLAUDE_CLIENT.document()
    assert document.partial is None
    document.feed(EVENTS[:8])
    refusal = CLAUDE_CLIENT.refusal(GatewayError("interrupted", "Broken."), "req_1", partial=True, message=document.partial)
    said = json.loads(refusal.body)["partial_message"]
    assert said["content"] == [{"type": "text", "text": "a\u2028b", "mood": "fine"}, CALL]
    assert said["stop_reason"] is None


def test_the_answers_own_header_is_the_request_id() -> None:
    assert CLAUDE_CLIENT.headers(Asked("req_1")) == (("request-id", "req_1"),)
