"""Chat Completions requests as clients write them, read into the request vocabulary."""

import json
from typing import Any

import pytest

from gateway.chat import ChatRequest, Message, Particulars
from gateway.errors import RequestRefused
from gateway.formats import Provider, Quirks, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.openai import OPENAI
from gateway.formats.openai.parse import parse

HI = {"role": "user", "content": "hi"}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}}}
TIME = {"type": "function", "function": {"name": "time"}}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}


def asked(**said: Any) -> ChatRequest:
    return parse(json.dumps({"model": "m", "messages": [HI], **said}).encode()).request


def turns(*messages: Any) -> list[Message]:
    return asked(messages=list(messages)).messages


def refused(**said: Any) -> str:
    with pytest.raises(RequestRefused) as error:
        asked(**said)
    return error.value.message


def body_to(format: Any, request: ChatRequest, **provider: Any) -> dict[str, Any]:
    target = Target(Provider("p", "http://p/v1", **provider), format, "m")
    return dict(json.loads(format.build(request, target).body))


def test_the_plain_fields_have_their_names_here() -> None:
    request = asked(model="fast", max_tokens=5, temperature=0.5, top_p=1, stop=["a", "b"], user="u", stream=True)
    assert (request.model, request.max_tokens, request.temperature, request.top_p, request.stream) == ("fast", 5, 0.5, 1, True)
    assert request.stop_sequences == ["a", "b"]
    assert request.metadata == {"user_id": "u"}


def test_an_answer_is_streamed_only_when_it_is_asked_for() -> None:
    assert asked().stream is False
    assert asked(stream=None).stream is False


def test_the_newer_word_for_the_most_tokens_counts() -> None:
    assert asked(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert asked(max_completion_tokens=7.0).max_tokens == 7


def test_a_single_stop_sequence_and_none() -> None:
    assert asked(stop="END").stop_sequences == ["END"]
    assert asked(stop=None).stop_sequences == asked(stop="").stop_sequences == []


def test_nulls_are_nothing() -> None:
    request = asked(max_tokens=None, tools=None, tool_choice=None, response_format=None, seed=None, n=None, logprobs=None)
    assert request == asked()


def test_usage_is_asked_for_in_the_stream_options() -> None:
    def usage(**said: Any) -> bool:
        return parse(json.dumps({"messages": [HI], **said}).encode()).include_usage

    assert usage(stream=True, stream_options={"include_usage": True})
    assert not usage(stream=True)
    assert not usage(stream=True, stream_options={"include_obfuscation": False})


def test_developer_and_system_messages_are_system_messages() -> None:
    assert turns({"role": "developer", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "b"}]}, HI) == [
        Message("system", "a"),
        Message("system", [{"type": "text", "text": "b"}]),
        Message("user", "hi"),
    ]


def test_images_by_address_and_as_data() -> None:
    parts = [
        {"type": "text", "text": "what?", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
        {"type": "image_url", "image_url": "https://a.example/b.png"},
    ]
    assert turns({"role": "user", "content": parts})[0].content == [
        {"type": "text", "text": "what?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}, "detail": "low"},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
    ]


@pytest.mark.parametrize(
    ("file", "block"),
    [
        (
            {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, "title": "a.pdf"},
        ),
        (
            {"file_data": "data:image/png;base64,AAAA", "filename": "a.png"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ),
        ({"file_id": "file-1"}, {"type": "document", "source": {"type": "file", "file_id": "file-1"}}),
        ({"file_data": "https://a.example/b.pdf"}, {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}}),
    ],
)
def test_files_are_documents_and_reach_an_openai_provider_as_they_were(file: dict[str, Any], block: dict[str, Any]) -> None:
    part = {"type": "file", "file": file}
    assert turns({"role": "user", "content": [part]})[0].content == [block]
    if block["type"] == "document" and block["source"]["type"] != "url":
        request = asked(messages=[{"role": "user", "content": [part]}])
        assert body_to(OPENAI, request, quirks=Quirks(files=True))["messages"][0]["content"] == [part]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "data:image/png,AAAA", "ftp://a/b", ""])
def test_any_other_address_of_an_image_is_refused(url: str) -> None:
    message = refused(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert message.startswith("messages[0].content[0].image_url: an http(s) URL or a data: URL")


def test_a_tool_round_becomes_a_tool_use_and_its_result() -> None:
    assert turns(
        HI, {"role": "assistant", "content": None, "tool_calls": [CALLED]}, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    ) == [
        Message("user", "hi"),
        Message("assistant", [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}}]),
        Message("tool", "sunny", tool_call_id="call_1"),
    ]


@pytest.mark.parametrize("arguments", ["", "  ", "{}", "null", None, {}])
def test_no_arguments_are_an_empty_input(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert turns(HI, {"role": "assistant", "tool_calls": [call]})[1].content == [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]


@pytest.mark.parametrize(("arguments", "why"), [('{"a":', "are not JSON"), ("[1]", "are not a JSON object"), ("nan", "are not JSON")])
def test_arguments_that_are_none_are_refused_by_the_number_of_their_message(arguments: str, why: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    found = refused(messages=[HI, {"role": "assistant", "tool_calls": [CALLED, call]}])
    assert found == f"messages[1].tool_calls[1].function.arguments: the tool's arguments {why}."


def test_reasoning_comes_back_as_thinking_that_nobody_signed() -> None:
    message = turns(HI, {"role": "assistant", "content": "yes", "reasoning_content": "hm", "reasoning": "hm"})[1]
    assert message.content == [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    request = asked(messages=[HI, {"role": "assistant", "content": "yes", "reasoning_content": "hm"}, HI])
    assert body_to(ANTHROPIC, request)["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert turns(HI, {"role": "assistant", "content": None, "refusal": "no"})[1] == Message("assistant", "no")
    assert turns(HI, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]})[1] == Message("assistant", "no")


def test_an_answer_that_broke_off_before_its_first_word_is_left_out() -> None:
    assert turns(HI, {"role": "assistant", "content": ""}, HI) == [Message("user", "hi")] * 2
    assert refused(messages=[{"role": "assistant", "content": ""}]) == "messages: at least one must say something."


def test_the_deprecated_function_messages_are_a_call_and_its_result() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert turns(HI, call, {"role": "function", "name": "f", "content": "7"})[1:] == [
        Message("assistant", [{"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]),
        Message("tool", "7", tool_call_id="call_1"),
    ]
    assert "no function of that name" in refused(messages=[HI, {"role": "function", "name": "g", "content": "7"}])


def test_a_thought_signature_of_a_call_stays_with_it() -> None:
    extra = {"google": {"thought_signature": "s"}}
    message = turns(HI, {"role": "assistant", "tool_calls": [{**CALLED, "extra_content": extra}]})[1]
    assert isinstance(message.content, list)
    assert message.content[0]["extra_content"] == extra


def test_tools_are_functions_with_a_schema() -> None:
    strict = {"type": "function", "function": {"name": "f", "parameters": None, "strict": True}}
    assert asked(tools=[WEATHER, strict]).tools == [
        {"name": "weather", "description": "d", "input_schema": {"type": "object"}},
        {"name": "f", "input_schema": {"type": "object", "properties": {}}, "strict": True},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", {"type": "none"}),
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "time"}}, {"type": "tool", "name": "time"}),
        (None, None),
    ],
)
def test_each_tool_choice_has_its_counterpart(choice: Any, expected: Any) -> None:
    assert asked(tools=[WEATHER, TIME], tool_choice=choice).tool_choice == expected


def test_allowed_tools_are_the_only_ones_sent() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    request = asked(tools=[WEATHER, TIME], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool["name"] for tool in request.tools] == ["time"]
    assert request.tool_choice == {"type": "any"}


def test_one_call_at_a_time() -> None:
    assert asked(tools=[TIME], parallel_tool_calls=False).tool_choice == {"type": "auto", "disable_parallel_tool_use": True}
    assert asked(tools=[TIME], parallel_tool_calls=False, tool_choice="required").tool_choice == {
        "type": "any",
        "disable_parallel_tool_use": True,
    }
    assert asked(tools=[TIME], parallel_tool_calls=True).tool_choice is None
    assert asked(parallel_tool_calls=False).tool_choice is None


def test_structured_output() -> None:
    schema = {"type": "object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert asked(response_format=wanted).response_format == {"type": "json_schema", "schema": schema, "name": "n", "strict": True}
    assert asked(response_format={"type": "json_object"}).response_format == {"type": "json_object"}


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_an_effort_that_both_know_is_that_effort(effort: str) -> None:
    assert asked(reasoning_effort=effort).effort == effort


def test_minimal_effort_is_low_and_none_is_no_thinking_and_an_openai_provider_gets_the_word() -> None:
    minimal, none = asked(reasoning_effort="minimal"), asked(reasoning_effort="none")
    assert (minimal.effort, minimal.thinking) == ("low", None)
    assert (none.effort, none.thinking) == (None, {"type": "disabled"})
    assert [body_to(OPENAI, request)["reasoning_effort"] for request in (minimal, none)] == ["minimal", "none"]
    assert body_to(ANTHROPIC, none)["thinking"] == {"type": "disabled"}


def test_thinking_in_anthropics_words_reaches_claude_and_in_its_own_a_lookalike() -> None:
    request = asked(thinking={"type": "enabled", "budget_tokens": 2000})
    assert body_to(OPENAI, request)["thinking"] == body_to(ANTHROPIC, request)["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert asked(thinking={"type": "enabled"}).thinking is None


def test_what_only_openai_has_words_for_reaches_only_its_likes() -> None:
    more = {"seed": 1, "presence_penalty": 0.5, "metadata": {"a": "b"}, "some_vendors_key": [1]}
    request = asked(**more)
    assert request.particulars == Particulars("openai", body=more, unvetted=("some_vendors_key",))
    assert body_to(OPENAI, request).items() >= more.items()
    assert not body_to(ANTHROPIC, request).keys() & more.keys()


def test_the_most_tokens_are_said_once_whatever_the_provider_calls_them() -> None:
    request = asked(max_tokens=5, max_output_tokens=99_999)
    assert body_to(OPENAI, request, quirks=Quirks(max_tokens_field="max_output_tokens"))["max_output_tokens"] == 5


def test_a_whole_request_reaches_an_openai_provider_as_it_was() -> None:
    said = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "high"}},
                ],
            },
            {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [{**CALLED, "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "max_tokens": 10,
        "temperature": 0.1,
        "top_p": 0.9,
        "stop": ["x"],
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "description": "d", "schema": {"type": "object"}, "strict": True},
        },
        "user": "u",
        "seed": 7,
        "logit_bias": {"5": -100},
        "verbosity": "low",
    }
    assert body_to(OPENAI, asked(**said)) == said


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"messages": None}, "messages: a list of 1 to 10000 messages is expected."),
        ({"messages": []}, "messages: a list of 1 to 10000 messages is expected."),
        ({"messages": ["hi"]}, "messages[0]: a message is an object."),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role: expected one of system, developer, user, assistant, tool."),
        ({"messages": [{"role": "user"}]}, "messages[0].content: content is a string or a list of parts."),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]: a part is an object with a type."),
        (
            {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
            "messages[0].content[0]: text, image_url or file is expected, not 'video'.",
        ),
        (
            {"messages": [{"role": "system", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0]: text is expected, not 'image_url'.",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id: a string is expected."),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]}]},
            "messages[0].tool_calls[0].id: a string is expected.",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls: a list is expected."),
        ({"model": 4}, "model: a string is expected."),
        ({"temperature": "hot"}, "temperature: a number is expected."),
        ({"temperature": True}, "temperature: a number is expected."),
        ({"max_tokens": 0}, "max_tokens: an integer of at least 1 is expected."),
        ({"max_completion_tokens": "9"}, "max_completion_tokens: an integer of at least 1 is expected."),
        ({"stop": [1]}, "stop: a string or a list of strings is expected."),
        ({"stream": "yes"}, "stream: true or false is expected."),
        ({"stream_options": []}, "stream_options: an object is expected."),
        ({"reasoning_effort": "huge"}, "reasoning_effort: one of none, low, medium, high, xhigh, max, minimal is expected."),
        ({"response_format": {"type": "xml"}}, "response_format.type: one of text, json_object, json_schema is expected."),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema: an object is expected."),
        ({"tools": {}}, "tools: a list is expected."),
        ({"tools": [{"type": "function"}]}, "tools[0].function: an object is expected."),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name: a name is expected."),
        ({"tools": [WEATHER], "tool_choice": "some"}, "tool_choice: none, auto, required, a function or allowed_tools is expected."),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice.function.name: the name of one of the tools is expected.",
        ),
        ({"tool_choice": "required"}, "tool_choice: there are no tools to choose from."),
    ],
)
def test_a_wrong_field_is_named(said: dict[str, Any], message: str) -> None:
    assert refused(**said) == message


@pytest.mark.parametrize(
    ("said", "beginning"),
    [
        ({"n": 2}, "n: "),
        ({"logprobs": True}, "logprobs: "),
        ({"top_logprobs": 3}, "logprobs: "),
        ({"modalities": ["text", "audio"]}, "modalities: "),
        ({"audio": {"voice": "alloy"}}, "modalities: "),
        ({"functions": [{"name": "f"}]}, "functions: "),
        ({"function_call": "auto"}, "function_call: "),
        ({"system": "be brief"}, "system: "),
        ({"stop_sequences": ["a"]}, "stop_sequences: "),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type: "),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type: "),
        ({"tools": [WEATHER], "tool_choice": {"type": "custom", "custom": {"name": "f"}}}, "tool_choice.type: "),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages[0].content[0]: audio "),
        ({"messages": [{"role": "user", "content": [{"type": "audio", "audio": {}}]}]}, "messages[0].content[0]: audio "),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}]}, "messages[0].tool_calls[0]: "),
    ],
)
def test_what_is_not_here_is_refused_and_not_silently_left_out(said: dict[str, Any], beginning: str) -> None:
    with pytest.raises(RequestRefused) as error:
        asked(**said)
    assert error.value.message.startswith(beginning)
    assert error.value.cause.code == "unsupported"


@pytest.mark.parametrize(
    ("body", "message"), [(b"", "The body is empty"), (b"{", "The body is not JSON"), (b"[]", "The body: a JSON object")]
)
def test_a_body_that_is_no_object_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(RequestRefused) as error:
        parse(body)
    assert error.value.message.startswith(message)


def test_names_are_left_out_with_a_warning() -> None:
    parsed = parse(json.dumps({"messages": [{**HI, "name": "Ann"}, {**HI, "name": "Bob"}]}).encode())
    assert parsed.warnings == ("names of participants were left out",)


def test_half_of_a_surrogate_pair_and_a_byte_order_mark_are_taken() -> None:
    body = b'\xef\xbb\xbf{"messages":[{"role":"user","content":"\\ud83d"}]}'
    assert parse(body).request.messages[0].content == "\ud83d"
