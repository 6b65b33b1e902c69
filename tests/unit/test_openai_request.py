"""A request as an OpenAI-compatible provider gets it, and its conversation in the order that providers demand."""

import json
import time
from typing import Any

import msgspec
import pytest

from gateway.chat import ChatRequest, Message
from gateway.errors import RequestRefused
from gateway.formats import Provider, Quirks, Target, UpstreamRequest
from gateway.formats.openai import OPENAI, models

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
USE = {"type": "tool_use", "id": "call_a", "name": "shot", "input": {"x": 1}}
OFF = {"type": "disabled"}
CALL = {"id": "call_a", "type": "function", "function": {"name": "shot", "arguments": '{"x":1}'}}


def result(content: Any, call_id: str = "call_a", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def build(
    asked: dict[str, Any] | None = None, *, stream_usage: bool = True, provider: dict[str, Any] | None = None, **quirks: Any
) -> UpstreamRequest:
    request = msgspec.convert({"messages": [{"role": "user", "content": "hi"}], **(asked or {})}, ChatRequest)
    made = Provider("p", "http://p/v1", key="sk-secret", quirks=Quirks(**quirks), **(provider or {}))
    return OPENAI.build(request, Target(made, OPENAI, "m"), stream_usage=stream_usage)


def body(asked: dict[str, Any] | None = None, **how: Any) -> Any:
    return json.loads(build(asked, **how).body)


def messages(*said: Any, **how: Any) -> Any:
    """Each `(role, content)`, or a whole message."""
    return body({"messages": [{"role": one[0], "content": one[1]} if isinstance(one, tuple) else one for one in said]}, **how)["messages"]


def refused(asked: dict[str, Any], **how: Any) -> str:
    with pytest.raises(RequestRefused) as caught:
        build(asked, **how)
    assert (caught.value.status, caught.value.cause.code) == (400, "invalid_request")
    return caught.value.message


def test_a_plain_request_asks_for_a_stream_with_usage() -> None:
    built = build()
    assert built.url == "http://p/v1/chat/completions"
    assert dict(built.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "authorization": "Bearer sk-secret",
    }
    assert json.loads(built.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert built.warnings == ()


def test_usage_is_not_asked_for_where_it_was_refused() -> None:
    assert "stream_options" not in body(stream_usage=False)
    assert "stream_options" not in body(stream_usage=True, refuses=("stream_options",))
    made = Provider("p", "http://p/v1", quirks=Quirks(stream_usage=False))
    request = ChatRequest(messages=[Message("user", "hi")])
    assert "stream_options" not in json.loads(OPENAI.build(request, Target(made, OPENAI, "m")).body)


def test_parameters_have_the_providers_names() -> None:
    asked = {"max_tokens": 9, "temperature": 0.5, "top_p": 1.0, "stop_sequences": ["x"], "effort": "high", "metadata": {"user_id": "u"}}
    expected = {"max_completion_tokens": 9, "temperature": 0.5, "top_p": 1.0, "stop": ["x"], "reasoning_effort": "high", "user": "u"}
    assert expected.items() <= body(asked, max_tokens_field="max_completion_tokens").items()
    assert body(asked)["max_tokens"] == 9


def test_the_operators_headers_and_body_come_last() -> None:
    provider = {"headers": {"Authorization": "Basic x", "api-key": "k"}, "body": {"seed": 1, "temperature": 0}}
    built = build({"temperature": 1.0}, provider=provider)
    assert dict(built.headers)["authorization"] == "Basic x"
    assert [name for name, _ in built.headers][-1] == "api-key"
    assert {"seed": 1, "temperature": 0}.items() <= json.loads(built.body).items()


def test_a_key_may_go_out_in_a_header_of_its_own() -> None:
    headers = dict(build(provider={"auth": "x-api-key"}).headers)
    assert headers["x-api-key"] == "sk-secret"
    assert "authorization" not in headers


def test_extra_keys_pass_and_those_that_the_gateway_writes_are_refused() -> None:
    assert body({"extra": {"top_k": 4, "chat_template_kwargs": {"a": 1}}})["top_k"] == 4
    for key in ("model", "messages", "stream", "stream_options", "tools", "n", "max_tokens", "reasoning_effort"):
        assert refused({"extra": {key: 1}}).startswith(f"extra.{key}: ")


def test_keys_that_a_provider_refuses_are_left_out_with_a_warning() -> None:
    built = build({"temperature": 0.5}, refuses=("temperature", "top_p"))
    assert "temperature" not in json.loads(built.body)
    assert built.warnings == ("temperature was left out: the provider refuses it",)


def test_what_has_no_word_here_is_left_out_with_a_warning() -> None:
    built = build({"thinking": {"type": "enabled", "budget_tokens": 2048}, "metadata": {"trace": "x"}})
    assert set(json.loads(built.body)) == {"model", "messages", "stream", "stream_options"}
    assert built.warnings == ("thinking was left out: this format only knows effort", "metadata was left out, but for user_id")


def test_tools_are_functions() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [
        {"name": "f", "description": "does", "input_schema": schema, "strict": True, "cache_control": {"type": "ephemeral"}},
        {"name": "g"},
    ]
    assert body({"tools": tools})["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": schema, "description": "does", "strict": True}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
    ],
)
def test_tool_choices_are_translated(choice: dict[str, Any], expected: dict[str, Any]) -> None:
    written = body({"tools": [{"name": "f"}], "tool_choice": choice})
    assert {key: value for key, value in written.items() if key in ("tool_choice", "parallel_tool_calls")} == expected
    assert "tool_choice" not in body({"tool_choice": choice})


CALLED = {"role": "assistant", "content": [USE]}


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [{"name": "f"}], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_use_id"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]}, "messages[0].content[0].id"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "messages[0].content[0].name"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{**USE, "input": "{bad"}]}]},
            "messages[1].content[0].input",
        ),
        ({"messages": [{"role": "assistant", "content": [{**USE, "input": [1]}]}]}, "messages[0].content[0].input"),
        ({"messages": [{"role": "assistant", "content": [PNG]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]}, "messages[0].content[0].source"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]},
            "messages[0].content[0].source",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64"}}]}]},
            "messages[0].content[0].source",
        ),
        ({"messages": [CALLED, {"role": "user", "content": [result(7)]}]}, "messages[1].content[0].content"),
        ({"messages": [CALLED, {"role": "user", "content": [result([7])]}]}, "messages[1].content[0].content[0]"),
        ({"messages": [CALLED, {"role": "user", "content": [result([{"type": "browser_state"}])]}]}, "messages[1].content[0].content[0]"),
        ({"system": [PNG]}, "system[0]"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_path(asked: dict[str, Any], path: str) -> None:
    assert refused(asked).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("wanted", "written"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "json_object"}),
        ({"type": "json_schema", "schema": {"a": 1}}, {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"a": 1}}}),
        (
            {"type": "json_schema", "schema": {}, "name": "n", "strict": True},
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
        ),
    ],
)
def test_response_formats_are_translated(wanted: dict[str, Any], written: dict[str, Any] | None) -> None:
    assert body({"response_format": wanted}).get("response_format") == written


def test_system_and_leading_system_messages_are_one_message() -> None:
    asked = {
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [{"role": "system", "content": "c"}, {"role": "user", "content": "hi"}],
    }
    assert body(asked)["messages"] == [{"role": "system", "content": "a\n\nb\n\nc"}, {"role": "user", "content": "hi"}]


def test_a_later_system_message_keeps_its_place_or_becomes_a_reminder() -> None:
    said = ("user", "a"), ("system", "b"), ("user", "c")
    assert messages(*said) == [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]
    assert messages(*said, later_system="reminder")[1] == {"role": "user", "content": "<system-reminder>\nb\n</system-reminder>"}


def test_tool_results_follow_the_calls_at_once_and_text_comes_after_them() -> None:
    second = {**USE, "id": "call_b"}
    said = (
        ("user", "hi"),
        ("assistant", [{"type": "text", "text": "Wait"}, USE, second]),
        ("user", [{"type": "text", "text": "look"}, result("A")]),
        {"role": "tool", "tool_call_id": "call_b", "content": "B"},
        ("assistant", "done"),
    )
    assert messages(*said) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Wait", "tool_calls": [CALL, {**CALL, "id": "call_b"}]},
        {"role": "tool", "tool_call_id": "call_a", "content": "A"},
        {"role": "tool", "tool_call_id": "call_b", "content": "B"},
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "done"},
    ]


def test_images_in_tool_results_follow_in_a_user_message() -> None:
    said = ("user", "hi"), ("assistant", [USE]), ("user", [result([{"type": "text", "text": "taken"}, PNG])])
    assert messages(*said) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_a", "content": "taken"},
        {"role": "user", "content": [PNG_PART]},
    ]


def test_such_images_go_with_the_text_that_follows_them() -> None:
    said = ("assistant", [USE]), ("user", [result([PNG]), {"type": "text", "text": "what is it?"}])
    assert messages(*said)[1:] == [
        {"role": "tool", "tool_call_id": "call_a", "content": "The result is in the user message that follows."},
        {"role": "user", "content": [PNG_PART, {"type": "text", "text": "what is it?"}]},
    ]


def test_a_result_that_is_an_error_says_so() -> None:
    assert messages(("assistant", [USE]), ("user", [result("no file", is_error=True)]))[1]["content"] == "Error: no file"
    assert messages(("assistant", [USE]), ("user", [result(None)]))[1]["content"] == ""


def test_texts_alone_are_one_string_and_images_are_parts() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    assert messages(("user", texts)) == [{"role": "user", "content": "a\n\nb"}]
    assert messages(("user", [PNG, *texts]))[0]["content"] == [PNG_PART, texts[0], texts[2]]


def test_urls_go_only_to_providers_that_fetch_them_themselves() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://x/a.png"}}
    assert messages(("user", [image]), url_sources=True) == [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/a.png"}}]}
    ]


def test_documents_and_search_results_of_text_are_text() -> None:
    plain = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}
    inner = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "E"}]}}
    found = {"type": "search_result", "title": "F", "source": "http://x", "content": [{"type": "text", "text": "G"}]}
    assert messages(("user", [plain, inner, found])) == [{"role": "user", "content": "T\n\nD\n\nE\n\nF\nhttp://x\nG"}]


@pytest.mark.parametrize(
    ("stored", "arguments"), [({}, "{}"), (None, "{}"), ("", "{}"), ('{"a": 1}', '{"a":1}'), ({"a": "\ud83d"}, '{"a":"�"}')]
)
def test_a_tools_input_is_written_as_arguments(stored: Any, arguments: str) -> None:
    asked = ChatRequest(messages=[Message("assistant", [{**USE, "input": stored}])])
    built = OPENAI.build(asked, Target(Provider("p", "http://p/v1"), OPENAI, "m"))
    assert json.loads(built.body)["messages"][0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_thoughts_signature_goes_back_with_its_call() -> None:
    google = {"google": {"thought_signature": "s"}}
    assert messages(("assistant", [{**USE, "extra_content": google}]))[0]["tool_calls"] == [{**CALL, "extra_content": google}]


def test_thinking_goes_back_only_where_a_row_wants_it() -> None:
    said = (
        ("user", "hi"),
        ("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}]),
        ("user", "and?"),
        ("assistant", [USE]),
    )

    def echoed(**how: Any) -> list[Any]:
        return [message.get("reasoning_content") for message in messages(*said, **how) if message["role"] == "assistant"]

    assert echoed() == [None, None]
    assert echoed(echo_reasoning="always") == ["hm", " "]
    assert echoed(echo_reasoning="tool_turns") == [None, " "]
    assert [message.get("reasoning_content") for message in messages(("assistant", [USE]), echo_reasoning="always")] == [None]


def test_what_only_claude_understands_is_left_out_with_a_warning() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "It is ", "citations": []},
        {"type": "text", "text": "so."},
    ]
    built = build({"messages": [{"role": "assistant", "content": blocks}, {"role": "assistant", "content": blocks[:2]}]})
    assert json.loads(built.body)["messages"] == [{"role": "assistant", "content": "It is so."}]
    assert built.warnings == ("redacted thinking was left out", "server tool blocks were left out", "thinking was left out")


@pytest.mark.parametrize(
    ("prefill", "message", "more"),
    [
        ("pass", {}, {}),
        ("prefix", {"prefix": True}, {}),
        ("partial", {"partial": True}, {}),
        ("continue_final_message", {}, {"continue_final_message": True, "add_generation_prompt": False}),
    ],
)
def test_a_last_message_of_the_assistants_is_continued_as_the_provider_wants_it(
    prefill: str, message: dict[str, Any], more: dict[str, Any]
) -> None:
    begun = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]}
    written = body(begun, prefill=prefill)
    assert written["messages"][-1] == {"role": "assistant", "content": "Once", **message}
    assert {key: written[key] for key in ("continue_final_message", "add_generation_prompt") if key in written} == more
    assert "prefix" not in body({"messages": begun["messages"][:1]}, prefill=prefill)["messages"][-1]


def test_a_provider_that_continues_nothing_says_so() -> None:
    begun = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}]}
    assert refused(begun, prefill="refuse") == (
        "messages: the last one is the assistant's, which this provider does not continue; end with a user message."
    )


CACHED = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}


def test_cache_marks_go_to_those_who_take_them_and_are_told_of_elsewhere() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    asked = {"system": [CACHED], "messages": [{"role": "user", "content": [CACHED, {"type": "text", "text": "hi"}]}], "tools": [tool]}
    kept = body(asked, cache_control=True)
    assert kept["messages"][0]["content"] == [CACHED]
    assert kept["messages"][1]["content"] == [CACHED, {"type": "text", "text": "hi"}]
    assert kept["tools"][0]["cache_control"] == {"type": "ephemeral"}
    built = build(asked)
    assert b"cache_control" not in built.body
    assert json.loads(built.body)["messages"][1]["content"] == "long\n\nhi"
    assert built.warnings == ("cache_control was left out",)


def test_user_and_assistant_take_turns_where_a_row_says_so() -> None:
    said = [("user", "a"), ("user", [PNG]), ("assistant", "b"), ("assistant", "c"), ("system", "d"), ("user", "e"), ("assistant", [USE])]
    sent = messages(*said, alternating=True, later_system="reminder")
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "assistant"]
    assert sent[0]["content"] == [{"type": "text", "text": "a"}, PNG_PART]
    assert sent[1]["content"] == "b\n\nc"
    assert sent[2]["content"].endswith("</system-reminder>\n\ne")
    assert len(messages(*said)) == len(said)


def test_thousands_of_messages_in_a_row_are_joined_at_once() -> None:
    began = time.process_time()
    sent = messages(*[("user", "x" * 1000)] * 10_000, alternating=True)
    assert [len(message["content"]) for message in sent] == [10_000 * 1002 - 2]
    assert time.process_time() - began < 2  # each joined to all before it would copy 50 GB


def test_no_empty_text_stands_beside_an_image() -> None:
    assert messages(("user", ""), ("user", [PNG]), alternating=True) == [{"role": "user", "content": [PNG_PART]}]
    shot = messages(("assistant", [USE]), ("user", [result([PNG])]), ("user", ""))
    assert shot[-1] == {"role": "user", "content": [PNG_PART]}


def test_a_turn_gets_its_filler_where_thinking_is_asked_for_or_was_done() -> None:
    said = {"messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [result("ok")]}]}
    for asked, filler in (({}, None), ({"effort": "low"}, " "), ({"thinking": {"type": "adaptive"}}, " "), ({"thinking": OFF}, None)):
        assert body({**said, **asked}, echo_reasoning="tool_turns")["messages"][0].get("reasoning_content") == filler


@pytest.mark.parametrize(
    ("row", "asked", "written"),
    [
        ("effort", {"thinking": {"type": "disabled"}}, {}),
        ("effort", {"thinking": {"type": "adaptive"}, "effort": "low"}, {"reasoning_effort": "low"}),
        ("type", {"thinking": {"type": "disabled"}}, {"thinking": {"type": "disabled"}}),
        ("type", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"thinking": {"type": "enabled"}}),
        ("type", {"thinking": {"type": "adaptive"}, "effort": "high"}, {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("enable_thinking", {"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        (
            "enable_thinking",
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"enable_thinking": True, "thinking_budget": 2000},
        ),
        ("template", {"thinking": {"type": "adaptive"}}, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("reasoning", {"thinking": {"type": "disabled"}}, {"reasoning": {"enabled": False}}),
        ("reasoning", {"thinking": {"type": "adaptive"}, "effort": "high"}, {"reasoning": {"effort": "high"}}),
        ("reasoning", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"reasoning": {"max_tokens": 2000}}),
        ("reasoning", {"effort": "high"}, {"reasoning_effort": "high"}),
    ],
)
def test_thinking_is_asked_for_where_the_provider_looks_for_it(row: str, asked: dict[str, Any], written: dict[str, Any]) -> None:
    sent = body(asked, thinking=row)
    keys = ("reasoning_effort", "thinking", "enable_thinking", "thinking_budget", "chat_template_kwargs", "reasoning")
    assert {key: sent[key] for key in keys if key in sent} == written


@pytest.mark.parametrize(
    ("model", "asked", "left"),
    [
        ("o3-mini", {}, {}),
        ("gpt-5", {}, {}),
        ("openai/gpt-5-mini-2025-08-07", {}, {}),
        ("gpt-5-chat-latest", {}, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-5.1", {}, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-5.1", {"effort": "low"}, {}),
        ("gpt-5.6-terra", {}, {}),
        ("gpt-6", {}, {}),
        ("gpt-4o", {}, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-4.1", {"effort": "low"}, {"temperature": 0.5, "top_p": 0.9}),
        ("gpt-oss-120b", {"effort": "low"}, {"temperature": 0.5, "top_p": 0.9}),
        ("deepseek-reasoner", {}, {"temperature": 0.5, "top_p": 0.9}),
    ],
)
def test_sampling_is_kept_from_models_that_reason(model: str, asked: dict[str, Any], left: dict[str, Any]) -> None:
    request = msgspec.convert({"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "top_p": 0.9, **asked}, ChatRequest)
    built = OPENAI.build(request, Target(Provider("p", "http://p/v1"), OPENAI, model))
    sent = json.loads(built.body)
    assert {key: sent[key] for key in ("temperature", "top_p") if key in sent} == left
    told = tuple(f"{key} was left out: the model refuses it" for key in ("temperature", "top_p") if key not in left)
    assert built.warnings == told


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("o3", "max", "high"),
        ("gpt-5", "xhigh", "high"),
        ("gpt-5.1", "xhigh", "high"),
        ("gpt-5.1-codex-max", "xhigh", "xhigh"),
        ("gpt-5.2", "max", "xhigh"),
        ("gpt-5.6", "max", "max"),
        ("o3", "none", "low"),
        ("o3", "minimal", "low"),
        ("gpt-5", "none", "minimal"),
        ("gpt-5", "minimal", "minimal"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.1", "none", "none"),
        ("grok-4", "max", "max"),
        ("gpt-5", "tomorrow", "tomorrow"),
    ],
)
def test_effort_is_the_nearest_that_the_model_knows(model: str, asked: str, sent: str) -> None:
    assert models.effort(model, asked) == sent


def test_no_message_at_all_is_refused() -> None:
    assert refused({"messages": [{"role": "assistant", "content": ""}]}) == "messages: at least one must say something."


def test_a_decoder_is_made_fresh_for_each_attempt() -> None:
    target = Target(Provider("p", "http://p/v1"), OPENAI, "m")
    assert OPENAI.decoder(ChatRequest(messages=[]), target) is not OPENAI.decoder(ChatRequest(messages=[]), target, "text/html")
