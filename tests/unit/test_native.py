"""The gateway's own format: what a caller may ask for, what is said when the request is wrong, and the events on the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestRefused, UpstreamFailed
from gateway.events import (
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Event,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    TextDelta,
    UnknownDelta,
    UnknownEvent,
    decode,
)
from gateway.formats import native
from gateway.formats.anthropic import parse as claude
from gateway.formats.native import NATIVE, parse

CANARY = "canary-prompt"
HI = [{"role": "user", "content": "hi"}]


def request(**fields: Any) -> bytes:
    return json.dumps({"messages": HI} | fields).encode()


def refused(body: bytes) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse(body)
    assert CANARY not in caught.value.message
    assert caught.value.message.endswith((".", "?"))
    return caught.value


def complaint(**fields: Any) -> str:
    failed = refused(request(**fields))
    assert (failed.status, failed.cause.code) == (400, "invalid_request")
    return failed.message


def test_the_least_request_has_its_defaults() -> None:
    asked = parse(request())
    assert (asked.model, asked.stream, asked.max_tokens, asked.messages[0].content) == ("default", True, None, "hi")


def test_every_field_is_read() -> None:
    fields = {
        "model": "a/b/c",
        "system": [{"type": "text", "text": "s"}],
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "stop_sequences": ["x"],
        "tools": [{"name": "f", "anything": 1}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "effort": "xhigh",
        "response_format": {"type": "json_schema", "schema": {}},
        "metadata": {"user_id": "u"},
        "stream": False,
        "resumable": False,
        "extra": {"top_k": 1},
    }
    asked = parse(request(**fields))
    assert {key: getattr(asked, key) for key in fields} == fields


def test_nulls_nul_characters_and_a_byte_order_mark_are_fine() -> None:
    asked = parse(b"\xef\xbb\xbf" + request(system=None, max_tokens=None, messages=[{"role": "user", "content": "a\0b"}]))
    assert asked.messages[0].content == "a\0b"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"max_tokens": "7"}, "max_tokens: expected an integer, got a string."),
        ({"max_tokens": 1.5}, "max_tokens: expected an integer, got a number."),
        ({"max_tokens": 0}, "max_tokens: expected an integer of at least 1."),
        ({"temperature": "hot"}, "temperature: expected a number, got a string."),
        ({"stream": 1}, "stream: expected true or false, got an integer."),
        ({"system": 4}, "system: expected a string or a list, got an integer."),
        ({"stop_sequences": ["a", 1]}, "stop_sequences[1]: expected a string, got an integer."),
        ({"tools": {}}, "tools: expected a list, got an object."),
        ({"effort": CANARY}, "effort: expected one of low, medium, high, xhigh, max."),
        ({"messages": []}, "messages: expected 1 to 10000 messages."),
        ({"messages": HI * 10_001}, "messages: expected 1 to 10000 messages."),
        ({"messages": CANARY}, "messages: expected a list, got a string."),
        ({"messages": [{"role": CANARY, "content": ""}]}, "messages[0].role: expected one of user, assistant, system, tool."),
        ({"messages": [*HI, {"role": "user"}]}, "messages[1].content: required."),
        ({"messages": [{"content": CANARY}]}, "messages[0].role: required."),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content: expected a string or a list, got null."),
        ({"messages": [{"role": "user", "content": [CANARY]}]}, "messages[0].content[0]: expected an object, got a string."),
        ({"messages": [*HI, CANARY]}, "messages[1]: expected an object, got a string."),
        ({"messages": [{"role": "user", "content": [{"text": CANARY}]}]}, "messages[0].content[0].type: expected a string."),
        ({"messages": [{"role": "user", "content": [{"type": 5}]}]}, "messages[0].content[0].type: expected a string."),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text: expected a string."),
        ({"system": [{}]}, "system[0].type: expected a string."),
        ({"tools": [{"name": "f"}, {"type": "function", "function": {"name": "g"}}]}, "tools[1].name: expected a string."),
        ({"tool_choice": {}}, "tool_choice.type: expected a string."),
        ({"thinking": {"type": 1}}, "thinking.type: expected a string."),
        ({"response_format": {"type": CANARY}}, "response_format.type: expected one of text, json_object, json_schema."),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema: expected an object."),
    ],
)
def test_a_wrong_field_is_named_by_its_path_and_never_quoted(fields: dict[str, Any], sentence: str) -> None:
    assert complaint(**fields) == sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"temprature": 1}, "temprature: unknown key; did you mean temperature?"),
        ({"maxTokens": 1}, "maxTokens: unknown key; did you mean max_tokens?"),
        ({"messages": [{"role": "user", "content": "a", "contents": CANARY}]}, "messages[0].contents: unknown key; did you mean content?"),
        ({"messages": [{"role": "user", "content": "a", "zzz": 1}]}, "messages[0].zzz: unknown key."),
        ({"a`b": 1}, "a`b: unknown key"),
        ({"k" * 5000: 1}, "k" * 60 + "…: unknown key"),
        ({f"k - at `$.{'k' * 5000}": 1}, "k"),
    ],
)
def test_an_unknown_key_is_named_with_what_may_have_been_meant(fields: dict[str, Any], sentence: str) -> None:
    assert complaint(**fields).startswith(sentence)


def test_an_unknown_key_without_a_likeness_is_answered_with_the_known_ones() -> None:
    assert "max_tokens" in complaint(zzz=1)


@pytest.mark.parametrize("read", [native, claude])
def test_what_an_endless_key_may_have_meant_is_not_searched_for(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(read, "get_close_matches", lambda word, *_, **__: asked.append(word) or [])
    with pytest.raises(RequestRefused):
        read.parse(b'{"%b": 1, "messages": []}' % (b"k" * 1_000_000))
    assert len(asked[0]) < 100


def test_a_missing_messages_key_is_told() -> None:
    assert refused(b"{}").message == "messages: required."


def test_a_tool_message_names_its_call_and_no_other_message_does() -> None:
    tool = {"role": "tool", "content": "x"}
    assert parse(request(messages=[*HI, {**tool, "tool_use_id": "a"}, {**tool, "tool_call_id": "b"}])).messages[2].tool_call_id == "b"
    assert complaint(messages=[*HI, tool]).startswith("messages[1].tool_use_id: ")
    assert complaint(messages=[*HI, {**tool, "tool_call_id": ""}]).startswith("messages[1].tool_use_id: ")
    assert complaint(messages=[{**HI[0], "tool_call_id": "a"}]) == "messages[0].tool_call_id: only a tool message has one."
    assert complaint(messages=[{**HI[0], "tool_use_id": "a"}]) == "messages[0].tool_use_id: only a tool message has one."


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"type": "tool_use", "name": "f", "input": {}}, "id: expected a string."),
        ({"type": "tool_use", "id": "a", "input": {}}, "name: expected a string."),
        ({"type": "tool_use", "id": "a", "name": "f", "input": [CANARY]}, "input: expected an object."),
        ({"type": "tool_use", "id": "a", "name": "f", "input": CANARY}, "input: the tool's arguments are not JSON."),
        ({"type": "tool_use", "id": "a", "name": "f", "input": "[1]"}, "input: expected an object."),
        ({"type": "tool_result", "content": CANARY}, "tool_use_id: expected a string."),
    ],
)
def test_tool_blocks_of_the_history_are_checked(block: dict[str, Any], sentence: str) -> None:
    assert (
        complaint(messages=[*HI, {"role": "assistant", "content": [{"type": "text", "text": "x"}, block]}])
        == f"messages[1].content[1].{sentence}"
    )


@pytest.mark.parametrize("given", [{}, {"a": 1}, "", '{"a":1}'])
def test_tool_arguments_may_be_an_object_or_its_text(given: Any) -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": given}
    assert parse(request(messages=[{"role": "assistant", "content": [block]}])).messages[0].content == [block]


def test_blocks_and_tools_keep_their_unknown_keys() -> None:
    block = {"type": "new", "z": {"b": 1, "a": None}}
    tool = {"name": "f", "input_schema": {"x": 1}, "new": True}
    asked = parse(request(messages=[{"role": "user", "content": [block]}], tools=[tool]))
    assert json.dumps(asked.messages[0].content) == json.dumps([block])
    assert asked.tools == [tool]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body is empty: expected a JSON object."),
        (b" \n", "The body is empty: expected a JSON object."),
        (b"[]", "The body: expected an object, got a list."),
        (b"null", "The body: expected an object, got null."),
        (b"canary-prompt", "The body is not JSON (byte 0)."),
        (b'{"messages"', "The body is not JSON."),
        (request() + b"x", "The body is not JSON (byte "),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "The body is not UTF-8."),
        (request().decode().encode("utf-16"), "The body is not UTF-8."),
        (b'{"messages":[{"role":"user","content":"canary-prompt \\ud83d"}]}', "The body is not strict JSON: "),
        (b'{"messages":[{"role":"user","content":"a"}],"temperature":NaN}', "The body is not strict JSON: "),
        (b'{"messages":[{"role":"user","content":"a"}],"temperature":1e999}', "temperature: this value cannot be taken."),
        (b'{"messages":[{"role":"user","content":"a"}],"extra":{"a":1e999}}', "extra"),
        (b'{"extra":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}", "The body: the JSON is nested too deeply."),
        (b'{"extra":{"a":[' + b"[]," * 110_000 + b"[]]}}", "The body: the JSON has too many values."),
    ],
)
def test_what_is_no_request_is_told_in_a_sentence(body: bytes, sentence: str) -> None:
    failed = refused(body)
    assert failed.message.startswith(sentence)
    assert failed.cause.code == "invalid_request"


def test_what_is_not_built_is_unsupported() -> None:
    failed = refused(request(resumable=True))
    assert (failed.status, failed.cause.code) == (400, "unsupported")


@given(
    st.binary(max_size=30)
    | st.recursive(
        st.none() | st.text(max_size=3) | st.integers(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["messages", "role", "content", "type", "system", "x"]), x),
        max_leaves=8,
    ).map(lambda x: json.dumps(x).encode())
)
def test_any_body_is_a_request_or_refused(body: bytes) -> None:
    try:
        parse(body)
    except RequestRefused as error:
        failed = error
    else:
        return
    assert failed.status == 400
    assert len(failed.message) < 600


# The answer.

EVENTS: list[Event] = [
    Ping(),
    MessageStart({"id": "m", "content": []}),
    ContentBlockStart(0, {"type": "text", "text": ""}),
    ContentBlockDelta(0, TextDelta("a\u2028b\nc")),
    ContentBlockDelta(0, UnknownDelta({"type": "compaction_delta", "content": "x"})),
    ContentBlockStop(0),
    UnknownEvent({"type": "container.updated", "id": 1}),
    Reset("stream_interrupted", 2),
    MessageDelta({"stop_reason": "end_turn"}, {"output_tokens": 1}, {"context_management": {}}),
    Abort("stopped"),
    MessageStop(),
]


def test_an_event_is_a_named_frame_of_one_line() -> None:
    frame = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":%b}\n\n'
    said = b'{"type":"text_delta","text":"a\\u2028b\\nc"}'
    assert NATIVE.encoder().feed([ContentBlockDelta(0, TextDelta("a\u2028b\nc"))]) == frame % said


def test_every_event_comes_back_from_its_frame() -> None:
    frames = NATIVE.encoder().feed(EVENTS).decode().split("\n\n")
    assert frames.pop() == ""
    lines = [frame.split("\n") for frame in frames]
    assert all(len(pair) == 2 for pair in lines)
    assert [decode(data.removeprefix("data: ")) for _, data in lines] == EVENTS
    assert [name for name, _ in lines] == [f"event: {json.loads(data.removeprefix('data: '))['type']}" for _, data in lines]


def test_the_heartbeat_is_a_ping_and_no_events_are_no_bytes() -> None:
    encoder = NATIVE.encoder()
    assert encoder.heartbeat() == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert encoder.feed([]) == b""


def test_a_failure_is_an_error_event() -> None:
    failed = UpstreamFailed("overloaded", "Busy.", provider="claude", provider_code="overloaded_error")
    name, data, *_ = NATIVE.encoder().failed(failed, "req_1", partial=True).decode().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "error": {
            "type": "overloaded_error",
            "message": "Busy.",
            "code": "upstream_overloaded",
            "retryable": True,
            "partial": True,
            "provider": "claude",
            "provider_code": "overloaded_error",
        },
        "request_id": "req_1",
    }
