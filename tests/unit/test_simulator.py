"""The simulator's scripts are legal streams, read here by hand so that no code of ours judges another."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.simulator import Cut, Hang, Reset, Script, Send, Step, Wait, answer

CLAUDE, OPENAI = "/v1/messages", "/v1/chat/completions"
BOTH = pytest.mark.parametrize("path", [CLAUDE, OPENAI])
EVIL = 'say "hi"\\ \x00\u2028\nevent: error\n\n data: {"x": 😀 \ud83d'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["user", "tool", "tool_result", "x", "speed=0 chunk=3", "fault=cut"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "name", "function", "enum"]), inner)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["model", "stream", "stream_options", "tools", "tool_choice", "thinking", "reasoning_effort"])


def ask(path: str, prompt: str = "hi", **request: Any) -> Script:
    return answer(path, json.dumps({"messages": [{"role": "user", "content": prompt}], "stream": True} | request).encode())


def body(script: Script) -> bytes:
    return b"".join(step.data for step in script.steps if isinstance(step, Send))


def frames(script: Script) -> list[tuple[str | None, Any]]:
    """(event, data) of each frame; every frame is whole, and has one line of data."""
    text = body(script).decode("utf-8")
    assert text.endswith("\n\n")
    found: list[tuple[str | None, Any]] = []
    for frame in text[:-2].split("\n\n"):
        *event, data = frame.split("\n")
        assert data.startswith("data: ")
        assert len(event) <= 1
        assert not event or event[0].startswith("event: ")
        found.append((event[0][7:] if event else None, data[6:] if data == "data: [DONE]" else json.loads(data[6:])))
    return found


def claude_message(script: Script) -> dict[str, Any]:
    """The message that a legal Claude stream tells; every rule of the order is asserted on the way."""
    events = frames(script)
    assert all(name == data["type"] for name, data in events)
    assert [events[0][0], events[-2][0], events[-1][0]] == ["message_start", "message_delta", "message_stop"]
    message: dict[str, Any] = events[0][1]["message"]
    assert (message["type"], message["role"], message["content"], message["stop_reason"]) == ("message", "assistant", [], None)
    assert isinstance(message["usage"]["input_tokens"], int)
    assert isinstance(message["usage"]["output_tokens"], int)
    open_block: dict[str, Any] | None = None
    for name, data in events[1:-2]:
        if name == "ping":
            continue
        if name == "content_block_start":
            assert open_block is None
            assert data["index"] == len(message["content"])
            open_block = data["content_block"] | {"json": ""}
            continue
        assert open_block is not None
        assert data["index"] == len(message["content"])
        if name == "content_block_stop":
            arguments = open_block.pop("json")
            if open_block["type"] == "tool_use":
                open_block["arguments"] = arguments
            message["content"].append(open_block)
            open_block = None
            continue
        assert name == "content_block_delta"
        delta = data["delta"]
        kind, field, target = {
            "text_delta": ("text", "text", "text"),
            "thinking_delta": ("thinking", "thinking", "thinking"),
            "signature_delta": ("thinking", "signature", "signature"),
            "input_json_delta": ("tool_use", "partial_json", "json"),
        }[delta["type"]]
        assert open_block["type"] == kind
        open_block[target] += delta[field]
    assert open_block is None
    message |= events[-2][1]["delta"]
    message["usage"] |= events[-2][1]["usage"]
    return message


def openai_message(script: Script) -> dict[str, Any]:
    *chunks, done = [data for event, data in frames(script) if event is None]
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    message: dict[str, Any] = {"role": "", "content": "", "reasoning_content": "", "call": None, "finish_reason": None, "usage": None}
    for chunk in chunks:
        message["usage"] = chunk.get("usage")
        assert len(chunk["choices"]) == (0 if message["usage"] else 1)
        for choice in chunk["choices"]:
            assert choice["index"] == 0
            assert message["finish_reason"] is None
            message["finish_reason"] = choice["finish_reason"]
            for key in ("role", "content", "reasoning_content"):
                message[key] += choice["delta"].get(key, "")
            for call in choice["delta"].get("tool_calls", []):
                assert call["index"] == 0
                if message["call"] is None:
                    assert (call["type"], call["id"][:5]) == ("function", "call_")
                    message["call"] = {"name": call["function"]["name"], "arguments": ""}
                message["call"]["arguments"] += call["function"]["arguments"]
    assert message["role"] == "assistant"
    return message


def faults(script: Script) -> list[Step]:
    return [step for step in script.steps if not isinstance(step, Send | Wait)]


def test_claude_answer_thinks_speaks_and_calls_a_tool() -> None:
    script = ask(CLAUDE, model="simulator")
    message = claude_message(script)
    thinking, text, call = message["content"]
    assert (script.status, dict(script.headers)["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert thinking["thinking"]
    assert thinking["signature"]
    assert '"hi"' in text["text"]
    assert "simulation" in text["text"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})
    assert (message["stop_reason"], message["model"]) == ("tool_use", "simulator")
    assert message["usage"]["output_tokens"] > 10


def test_openai_answer_thinks_speaks_and_calls_a_tool() -> None:
    message = openai_message(ask(OPENAI, stream_options={"include_usage": True}))
    assert message["reasoning_content"]
    assert '"hi"' in message["content"]
    assert message["call"] == {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    assert message["finish_reason"] == "tool_calls"
    assert message["usage"]["total_tokens"] == message["usage"]["prompt_tokens"] + message["usage"]["completion_tokens"]


def test_openai_usage_comes_only_when_asked_for() -> None:
    assert b'"usage"' not in body(ask(OPENAI))


@BOTH
def test_a_document_says_the_same_as_the_stream(path: str) -> None:
    request = {"stream_options": {"include_usage": True}, "model": EVIL}
    document = json.loads(body(ask(path, EVIL, stream=False, **request)))
    if path == CLAUDE:
        message = claude_message(ask(path, EVIL, **request))
        assert [block["type"] for block in document["content"]] == ["thinking", "text", "tool_use"]
        assert document["content"][0]["thinking"] == message["content"][0]["thinking"]
        assert document["content"][1] == {"type": "text", "text": message["content"][1]["text"]}
        assert document["content"][2]["input"] == json.loads(message["content"][2]["arguments"])
        assert document["stop_reason"] == message["stop_reason"]
        assert document["usage"]["output_tokens"] == message["usage"]["output_tokens"]
    else:
        message = openai_message(ask(path, EVIL, **request))
        choice = document["choices"][0]
        assert choice["message"]["content"] == message["content"]
        assert choice["message"]["reasoning_content"] == message["reasoning_content"]
        assert choice["message"]["tool_calls"][0]["function"] == message["call"]
        assert choice["finish_reason"] == message["finish_reason"]
        assert document["usage"]["completion_tokens"] == message["usage"]["completion_tokens"]


@BOTH
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "weather?"}, {"role": "assistant"}, {"role": "user", "content": [{"type": "tool_result"}]}],
        [{"role": "user", "content": "weather?"}, {"role": "assistant"}, {"role": "tool", "content": "sunny"}],
        [{"role": "user", "content": "weather?"}, {"role": "tool", "content": "sunny"}, {"role": "user", "content": [{"type": "image"}]}],
    ],
)
def test_after_a_tool_result_the_answer_ends_without_another_call(path: str, messages: list[dict[str, Any]]) -> None:
    script = ask(path, messages=messages)
    if path == CLAUDE:
        message = claude_message(script)
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        assert message["stop_reason"] == "end_turn"
        assert "weather?" in message["content"][1]["text"]
    else:
        assert openai_message(script)["finish_reason"] == "stop"


def test_an_older_tool_result_does_not_count() -> None:
    messages = [
        {"role": "tool", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "and now?"},
    ]
    assert openai_message(ask(OPENAI, messages=messages))["call"]


def test_the_first_tool_of_the_request_is_called_with_its_required_properties() -> None:
    schema = {
        "properties": {
            "a": {"type": "integer"}, "b": {"enum": ["x", "y"]}, "c": {"type": "string"}, "d": {"type": "boolean"}, "e": {},
            "f": {"type": ["null"]},
        },
        "required": ["a", "b", "c", "e", "f", "missing", 7],
    }  # fmt: skip
    claude = ask(CLAUDE, tools=["odd", {"type": "web_search_20250305", "name": "web_search"}, {"name": "find", "input_schema": schema}])
    openai = ask(OPENAI, tools=[{"type": "function", "function": {"name": "find", "parameters": schema}}])
    expected = {"a": 1, "b": "x", "c": "Paris", "e": "Paris", "f": "Paris"}
    assert json.loads(claude_message(claude)["content"][2]["arguments"]) == expected
    assert json.loads(openai_message(openai)["call"]["arguments"]) == expected


def test_a_tool_without_a_schema_is_called_with_an_empty_object() -> None:
    assert openai_message(ask(OPENAI, tools=[{"type": "function", "function": {"name": "now"}}]))["call"] == {
        "name": "now",
        "arguments": "{}",
    }


@pytest.mark.parametrize("request_", [{"tool_choice": "none"}, {"tool_choice": {"type": "none"}}])
def test_a_forbidden_tool_is_not_called(request_: dict[str, Any]) -> None:
    assert claude_message(ask(CLAUDE, **request_))["stop_reason"] == "end_turn"


@pytest.mark.parametrize("request_", [{"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}, {"model": "simulator,thinking=0"}])
def test_thinking_can_be_left_out(request_: dict[str, Any]) -> None:
    assert [block["type"] for block in claude_message(ask(CLAUDE, **request_))["content"]] == ["text", "tool_use"]
    assert openai_message(ask(OPENAI, **request_))["reasoning_content"] == ""


@BOTH
@pytest.mark.parametrize("content", [EVIL, [{"type": "text", "text": EVIL}, {"type": "image"}, "odd", {"text": 7}], "", None, 5])
def test_any_prompt_gives_a_legal_stream(path: str, content: object) -> None:
    script = ask(path, messages=[{"role": "user", "content": content}], model=EVIL)
    assert claude_message(script) if path == CLAUDE else openai_message(script)


def test_the_text_is_as_long_as_wished() -> None:
    text = openai_message(ask(OPENAI, "please [tokens=500 tool=0]"))
    assert len(text["content"].split()) == 500
    assert text["finish_reason"] == "stop"
    assert [block["type"] for block in claude_message(ask(CLAUDE, "tokens=0"))["content"]] == ["thinking", "tool_use"]
    assert claude_message(ask(CLAUDE, "tokens=0 thinking=0 tool=0"))["content"] == []


def test_wishes_have_bounds() -> None:
    script = ask(OPENAI, "tokens=99999999 wait=99999999 speed=0 tool=0")
    assert len(openai_message(script)["content"].split()) == 10_000
    assert script.before == (Wait(600.0),)


def test_there_is_a_wait_between_events_and_none_in_a_fast_model() -> None:
    slow, fast = ask(CLAUDE, "speed=0.5").steps, ask(CLAUDE, model="simulator-fast").steps
    assert {step.seconds for step in slow if isinstance(step, Wait)} == {0.5}
    assert [isinstance(step, Wait) for step in slow] == [number % 2 == 1 for number in range(len(slow))]
    assert all(isinstance(step, Send) for step in fast)
    assert all(step.data.count(b"\n\n") == 1 for step in fast if isinstance(step, Send))


def test_the_prompt_is_stronger_than_the_model_name() -> None:
    assert ask(CLAUDE, "wait=2", model="simulator,wait=1").before == (Wait(2.0),)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_chunk_cuts_the_same_bytes_elsewhere(size: int) -> None:
    whole, cut = ask(CLAUDE, model="simulator-fast"), ask(CLAUDE, model="simulator-fast", metadata={}, stop=f"chunk={size}")
    assert body(whole) != body(cut)  # the id tells requests apart
    cut = ask(CLAUDE, f"chunk={size}", model="simulator-fast")
    sizes = [len(step.data) for step in cut.steps if isinstance(step, Send)]
    assert set(sizes[:-1]) <= {size}
    assert claude_message(cut)


@BOTH
@pytest.mark.parametrize(("word", "fault"), [("cut", Cut()), ("reset", Reset()), ("hang", Hang())])
def test_a_fault_comes_after_the_wished_number_of_events(path: str, word: str, fault: Step) -> None:
    script = ask(path, f"fault={word} after=3")
    assert len(frames(script)) == 3
    assert faults(script) == [fault]
    assert script.steps[-1] == fault
    assert script.before == ()
    assert len(frames(ask(path, f"fault={word}"))) == 5
    assert ask(path, f"fault={word} after=0 wait=1").before == (Wait(1.0), fault)


def test_an_error_event_ends_the_stream() -> None:
    *_, (name, data) = frames(ask(CLAUDE, "fault=error"))
    assert (name, data["type"], data["error"]["type"]) == ("error", "error", "overloaded_error")
    events = frames(ask(OPENAI, "fault=error after=2"))
    assert len(events) == 3
    assert events[-1][1]["error"]["type"] == "server_error"
    assert ask(CLAUDE, "fault=error", stream=False).status == 529


@BOTH
def test_a_cut_tool_leaves_its_arguments_unfinished(path: str) -> None:
    script = ask(path, "fault=truncate_tool tool=0")
    if path == CLAUDE:
        message = claude_message(script)
        assert message["stop_reason"] == "max_tokens"
        arguments = message["content"][2]["arguments"]
        document = json.loads(body(ask(path, "fault=truncate_tool", stream=False)))
        assert document["content"][2]["input"] == {}
    else:
        message = openai_message(script)
        assert message["finish_reason"] == "length"
        arguments = message["call"]["arguments"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [(529, "overloaded_error", "server_error"), (429, "rate_limit_error", "invalid_request_error"), (418, "invalid_request_error", None),
     (503, "api_error", "server_error")],
)  # fmt: skip
def test_a_status_comes_with_the_providers_error_body(status: int, name: str, kind: str | None) -> None:
    claude, openai = ask(CLAUDE, f"fault=status:{status}"), ask(OPENAI, f"fault=status:{status}")
    assert claude.status == openai.status == status
    assert json.loads(body(claude))["error"]["type"] == name
    assert json.loads(body(openai))["error"]["type"] == (kind or "invalid_request_error")
    assert ("retry-after", "1") in claude.headers or status != 429


@pytest.mark.parametrize("wish", ["fault=status:200", "fault=status:9", "fault=nonsense", "speed=abc", "default=cut"])
def test_an_unknown_wish_is_no_wish(wish: str) -> None:
    assert claude_message(ask(CLAUDE, wish))["stop_reason"] == "tool_use"


def test_a_web_page_comes_with_status_200() -> None:
    script = ask(CLAUDE, "fault=html")
    assert (script.status, script.headers) == (200, (("content-type", "text/html"),))
    assert body(script).startswith(b"<!DOCTYPE html>")


@BOTH
@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'{"messages": []}', b'{"messages": ["hi"]}', b"\xff", b"[" * 100_000])
def test_what_is_no_chat_is_refused_in_the_providers_words(path: str, sent: bytes) -> None:
    script = answer(path, sent)
    error = json.loads(body(script))
    assert script.status == 400
    assert error["error"]["type"] == "invalid_request_error"
    assert error.get("type") == ("error" if path == CLAUDE else None)


@pytest.mark.parametrize("path", ["/v1/models", "/models?limit=20", "/anthropic/v1/models/"])
def test_models_are_listed_in_a_shape_for_both(path: str) -> None:
    listed = json.loads(body(answer(path, b"")))
    assert [row["id"] for row in listed["data"]] == ["simulator", "simulator-fast"]
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", False, "simulator")


def test_a_query_does_not_hide_the_path() -> None:
    assert claude_message(answer("/v1/messages?beta=true", b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'))


@pytest.mark.parametrize(("path", "key"), [("/v1/messages/batches", "type"), ("/v1/embeddings", "error")])
def test_other_paths_are_not_found(path: str, key: str) -> None:
    script = answer(path, b"{}")
    assert script.status == 404
    assert key in json.loads(body(script))


def test_tokens_are_counted_as_an_answer_counts_them() -> None:
    asked = b'{"messages":[{"role":"user","content":"hi, how are you?"}]}'
    counted = json.loads(body(answer("/v1/messages/count_tokens", asked)))
    assert counted == {"input_tokens": json.loads(body(answer("/v1/messages", asked)))["usage"]["input_tokens"]}
    assert answer("/v1/messages/count_tokens", b"{}").status == 400
    assert answer("/v1/messages/count_tokens", asked, "fault=status:529").status == 529


@BOTH
def test_the_same_request_gives_the_same_script(path: str) -> None:
    assert ask(path, "again") == ask(path, "again")


@BOTH
@settings(max_examples=200)
@given(request=st.dictionaries(KEYS, VALUES), messages=st.lists(VALUES, min_size=1, max_size=3))
def test_any_request_gets_an_answer(path: str, request: dict[str, Any], messages: list[Any]) -> None:
    script = answer(path, json.dumps(request | {"messages": messages}).encode())
    assert script.status in (200, 400)
    assert body(script).decode("utf-8")
