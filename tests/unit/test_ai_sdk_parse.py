"""What `useChat` posts, read into the request vocabulary."""

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from gateway.chat import ChatRequest, Message
from gateway.errors import RequestRefused
from gateway.formats import Provider, Target
from gateway.formats.ai_sdk import AI_SDK, is_use_chat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.openai import OPENAI

Json = dict[str, Any]
STEP = {"type": "step-start"}
PNG = "data:image/png;base64,AAAA"


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def user(*parts: Json) -> Json:
    return {"id": "u", "role": "user", "parts": list(parts)}


def assistant(*parts: Json) -> Json:
    return {"id": "a", "role": "assistant", "parts": list(parts)}


def tool(state: str = "output-available", *, name: str = "f", id: str = "c1", **more: Any) -> Json:
    return {"type": f"tool-{name}", "toolCallId": id, "state": state, "input": {"a": 1}, **more}


HI = user(text("hi"))


def body(*messages: Any, **said: Any) -> bytes:
    return json.dumps({"id": "chat", "trigger": "submit-message", "messages": list(messages) or [HI], **said}).encode()


def asked(**said: Any) -> ChatRequest:
    return AI_SDK.parse(body(**said)).request


def turns(*messages: Any) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in AI_SDK.parse(body(*messages)).request.messages]


def warnings(*messages: Any, **said: Any) -> tuple[str, ...]:
    return AI_SDK.parse(body(*messages, **said)).warnings


def refused(*messages: Any, **said: Any) -> str:
    with pytest.raises(RequestRefused) as error:
        AI_SDK.parse(body(*messages, **said))
    return error.value.message


def call(id: str = "c1", name: str = "f", **more: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": {"a": 1}, **more}


def result(content: str, id: str = "c1", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


# ---- the body


def test_a_plain_body_is_a_streamed_request_to_the_default_model() -> None:
    request = asked()
    assert request.messages == [Message("user", "hi")]
    assert (request.model, request.stream, request.tools, request.max_tokens) == ("default", True, [], None)


def test_a_completion_is_a_question_without_a_history() -> None:
    parsed = AI_SDK.parse(b'{"prompt":"Hello?","model":"fast"}')
    assert (parsed.request.messages, parsed.request.model, parsed.warnings) == ([Message("user", "Hello?")], "fast", ())
    with pytest.raises(RequestRefused, match="messages: required"):
        AI_SDK.parse(b'{"prompt":""}')


def test_what_the_page_adds_is_read() -> None:
    said = {"model": "fast", "system": "Be brief.", "temperature": 0.5, "effort": "low", "thinking": {"type": "adaptive"}, "stream": False}
    request = asked(**said, extra={"seed": 1}, response_format={"type": "json_object"}, metadata={"user_id": "u", "page": 3})
    assert {key: getattr(request, key) for key in said} == said
    assert (request.extra, request.response_format, request.metadata) == ({"seed": 1}, {"type": "json_object"}, {"user_id": "u"})


@pytest.mark.parametrize(
    "said",
    [
        {"max_tokens": 5, "top_p": 0.9, "stop_sequences": ["END"]},
        {"maxOutputTokens": 5, "topP": 0.9, "stopSequences": ["END"]},
        {"callSettings": {"maxTokens": 5, "topP": 0.9, "stopSequences": ["END"]}},
        {"max_tokens": 5, "top_p": 0.9, "stop_sequences": ["END"], "callSettings": {"maxTokens": 6, "max_tokens": 6}},
    ],
)
def test_settings_are_read_in_either_spelling(said: Json) -> None:
    request = asked(**said)
    assert (request.max_tokens, request.top_p, request.stop_sequences) == (5, 0.9, ["END"])


def test_a_pages_keys_for_providers_are_never_used_and_its_model_is() -> None:
    assert asked(config={"modelName": "fast", "apiKey": "k", "baseUrl": "http://evil"}).model == "fast"


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "d", "input_schema": SCHEMA}


@pytest.mark.parametrize(
    "tools",
    [
        [WEATHER],
        {"weather": {"description": "d", "parameters": SCHEMA}},
        {"weather": {"description": "d", "inputSchema": {"jsonSchema": SCHEMA}}},
        [{"type": "function", "name": "weather", "description": "d", "inputSchema": SCHEMA}],
    ],
)
def test_tools_are_a_list_or_an_object_by_name(tools: Any) -> None:
    assert asked(tools=tools).tools == [WEATHER]


def test_a_tool_of_the_providers_own_goes_on_as_it_is_and_a_bare_one_takes_nothing() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    assert asked(tools=[search, {"name": "now"}]).tools == [search, {"name": "now", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ({"type": "tool", "toolName": "weather"}, {"type": "tool", "name": "weather"}),
        ({"type": "tool", "name": "weather"}, {"type": "tool", "name": "weather"}),
    ],
)
def test_the_choice_of_a_tool_is_read_in_either_spelling(given: Any, choice: Json) -> None:
    assert asked(tools=[WEATHER], toolChoice=given).tool_choice == asked(tools=[WEATHER], tool_choice=given).tool_choice == choice


def test_without_tools_there_is_nothing_to_choose() -> None:
    assert asked(toolChoice="auto").tool_choice is None


def test_what_means_nothing_here_is_left_out_with_a_warning_that_repeats_nothing() -> None:
    assert warnings(HI, sessionToken="secret", other=1) == ("2 keys of the body that mean nothing here were left out",)
    assert warnings(HI, messageId="m", trigger="regenerate-message", id="x") == ()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"messages": []}, "messages: a list of 1 to 10000 messages is expected."),
        ({"messages": None}, "messages: required."),
        ({"model": 1}, "model: a string is expected."),
        ({"system": 1}, "system: a string or a list of blocks is expected."),
        ({"system": [{}]}, "system[0].type: a string is expected."),
        ({"maxTokens": 0}, "maxTokens: an integer of at least 1 is expected."),
        ({"topP": "1"}, "topP: a number is expected."),
        ({"temperature": True}, "temperature: a number is expected."),
        ({"stopSequences": "END"}, "stopSequences: a list of strings is expected."),
        ({"tools": 1}, "tools: a list, or an object by name, is expected."),
        ({"tools": [{}]}, "tools[0].name: a name is expected."),
        ({"tools": {"f": 1}}, "tools.f: an object is expected."),
        ({"tools": {"f": {"inputSchema": 1}}}, "tools.f.inputSchema: a JSON schema is expected."),
        ({"toolChoice": 1}, "toolChoice: one of auto, none, required, or an object with a type, is expected."),
        ({"thinking": {}}, "thinking: an object with a type is expected."),
        ({"effort": "huge"}, "effort: one of low, medium, high, xhigh, max is expected."),
        ({"response_format": {"type": "xml"}}, "response_format.type: one of text, json_object, json_schema is expected."),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema: an object is expected."),
        ({"stream": 1}, "stream: true or false is expected."),
        ({"extra": 1}, "extra: an object is expected."),
        ({"resumable": True}, "resumable: streams that survive a disconnect are not available here."),
    ],
)
def test_a_wrong_key_is_named(said: Json, sentence: str) -> None:
    assert refused(**said) == sentence


@pytest.mark.parametrize("data", [b"", b" ", b"{", b"[]", b"\xff", b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(RequestRefused, match="body"):
        AI_SDK.parse(data)


def test_a_body_is_known_by_its_parts() -> None:
    assert is_use_chat(body(HI))
    assert is_use_chat(body(HI, {"parts": 1}))  # wrong, but who else would say so
    for other in (body({"role": "user", "content": '"parts"'}), body(HI, {"role": "user", "content": "x"}), b'"parts"', b'{"messages":[]}'):
        assert not is_use_chat(other)
    assert not is_use_chat(b'{"messages":[{"parts":' + b"[" * 100_000)


# ---- users and systems


def test_several_parts_stay_several_blocks() -> None:
    said = user(text("look"), {"type": "file", "mediaType": "image/png", "url": PNG}, text(""), {"type": "data-x", "data": 1})
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert turns(said) == [("user", [{"type": "text", "text": "look"}, image])]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"mediaType": "image/jpeg", "url": "https://a/b"}, {"type": "image", "source": {"type": "url", "url": "https://a/b"}}),
        ({"mediaType": "application/pdf", "url": "https://a/b"}, {"type": "document", "source": {"type": "url", "url": "https://a/b"}}),
        (
            {"mediaType": "application/pdf", "url": "data:application/pdf;base64,AAAA", "filename": "a.pdf"},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}, "title": "a.pdf"},
        ),
        ({"url": PNG}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        (
            {"mediaType": "image/svg+xml", "url": "data:image/svg+xml,%3Csvg%2F%3E"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/svg+xml", "data": base64.b64encode(b"<svg/>").decode()}},
        ),
    ],
)
def test_a_file_is_an_image_or_a_document(part: Json, block: Json) -> None:
    assert turns(user({"type": "file", **part})) == [("user", [block])]


def test_what_is_percent_encoded_is_read() -> None:
    said = "a=b =3D 100 % =\r\n%41 ö \x00"
    [(_, [block])] = turns(user({"type": "file", "mediaType": "text/plain", "url": f"data:text/plain,{quote(said)}=%3D%3d\n"}))
    assert block["source"]["data"] == f"{said}===\n"


@pytest.mark.parametrize("kind", ["text/plain", "text/csv", "application/json", "application/ld+json"])
def test_a_text_is_a_document_that_every_provider_can_read(kind: str) -> None:
    url = f"data:{kind};charset=utf-8;base64,{base64.b64encode('a,ö'.encode()).decode()}"
    source = {"type": "text", "media_type": "text/plain", "data": "a,ö"}
    said = turns(user({"type": "file", "mediaType": f"{kind}; charset=utf-8", "url": url, "filename": "t"}))
    assert said == [("user", [{"type": "document", "source": source, "title": "t"}])]


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"type": "file"}, "messages[0].parts[0].url: a data: or http(s) URL is expected."),
        (
            {"type": "file", "mediaType": "image/png", "url": "blob:http://a/1"},
            "messages[0].parts[0].url: a data: or http(s) URL is expected; others mean something in the page only.",
        ),
        ({"type": "file", "mediaType": 1, "url": PNG}, "messages[0].parts[0].mediaType: a string is expected."),
        (
            {"type": "file", "mediaType": "audio/mpeg", "url": "data:audio/mpeg;base64,AAAA"},
            "messages[0].parts[0].mediaType: only images, PDFs and texts can be sent (texts as data: URLs).",
        ),
        ({"type": "file", "mediaType": "text/plain", "url": "data:;base64,?"}, "messages[0].parts[0].url: the data is not base64."),
        (
            {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,100%"},
            "messages[0].parts[0].url: a percent sign is followed by two hexadecimal digits, or written %25.",
        ),
        ({"type": "text", "text": 1}, "messages[0].parts[0].text: a string is expected."),
        ({"text": "a"}, "messages[0].parts[0].type: a string is expected."),
    ],
)
def test_a_wrong_part_is_named(part: Json, sentence: str) -> None:
    assert refused(user(part)) == sentence


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (1, "messages[0]: an object is expected."),
        ({"role": "user"}, "messages[0].parts: a list of parts is expected."),
        (
            {"role": "user", "content": "hi"},
            "messages[0].parts: a list of parts is expected (content is for the native format, at /chat).",
        ),
        ({"role": "tool", "parts": []}, "messages[0].role: expected one of user, assistant, system."),
        ({"role": "user", "parts": []}, "messages: at least one must say something."),
        (assistant({"type": "tool-", "toolCallId": "c"}), "messages[0].parts[0].type: a name is expected."),
        (assistant({"type": "dynamic-tool", "toolCallId": "c"}), "messages[0].parts[0].toolName: a name is expected."),
        (assistant({"type": "tool-f"}), "messages[0].parts[0].toolCallId: a name is expected."),
        (
            assistant(tool("newer")),
            "messages[0].parts[0].state: a state of a tool's part (input-available, output-available, output-error, …) is expected.",
        ),
        (
            assistant({"type": "data-gateway-block", "data": {}}),
            "messages[0].parts[0].data: a content block, an object with a type, is expected.",
        ),
    ],
)
def test_a_wrong_message_is_named(message: Any, sentence: str) -> None:
    assert refused(message) == sentence


def test_a_system_message_is_its_text() -> None:
    said = {"id": "s", "role": "system", "parts": [text("Be "), text("brief.")]}
    assert turns(said, HI) == [("system", "Be brief."), ("user", "hi")]


def test_a_cache_mark_for_claude_is_passed_on() -> None:
    mark = {"providerMetadata": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}}
    assert turns(user(text("long", **mark))) == [("user", [{"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}])]


# ---- answers


def test_steps_become_turns_with_the_results_between_them() -> None:
    steps = assistant(STEP, text("let me see"), tool(output={"t": 21}), STEP, tool(id="c2", output="ok"), STEP, text("21 degrees"))
    assert turns(HI, steps) == [
        ("user", "hi"),
        ("assistant", [{"type": "text", "text": "let me see"}, call()]),
        ("user", [result('{"t":21}')]),
        ("assistant", [call("c2")]),
        ("user", [result("ok", "c2")]),
        ("assistant", "21 degrees"),
    ]


def test_parallel_calls_are_answered_in_one_turn() -> None:
    said = assistant(STEP, tool(output="1"), tool(id="c2", name="g", output="2"))
    assert turns(HI, said)[1:] == [("assistant", [call(), call("c2", "g")]), ("user", [result("1"), result("2", "c2")])]


@pytest.mark.parametrize(
    ("part", "content", "failed"),
    [
        (tool(output=None), "null", False),
        (tool(output=""), "", False),
        (tool("output-error", errorText="no such city"), "no such city", True),
        (tool("output-denied", approval={"id": "1", "approved": False, "reason": "too dear"}), "too dear", True),
        (tool("output-denied"), "The tool was not run: the user denied it.", True),
        (tool("approval-requested", approval={"id": "1"}), "The tool was not run: nobody has approved it yet.", True),
        (tool("approval-responded", approval={"id": "1", "approved": False}), "The tool was not run: the user denied it.", True),
        (tool("approval-responded", approval={"id": "1", "approved": True}), "The tool was approved, but it was not run.", True),
        (tool("input-available"), "The tool was not run.", True),
    ],
)
def test_every_call_has_a_result_for_without_one_a_provider_refuses_the_history(part: Json, content: str, failed: bool) -> None:
    wanted = result(content, **({"is_error": True} if failed else {}))
    assert turns(HI, assistant(STEP, part), HI) == [("user", "hi"), ("assistant", [call()]), ("user", [wanted]), ("user", "hi")]


def test_a_call_that_broke_off_is_left_out_and_so_is_an_answer_without_a_word() -> None:
    assert turns(HI, assistant(STEP, tool("input-streaming")), assistant(), assistant(STEP, text("")), HI) == [("user", "hi")] * 2
    assert warnings(HI, assistant(tool("input-streaming"))) == ("a call whose arguments broke off was left out",)


@pytest.mark.parametrize(("raw", "arguments"), [('{"a":1}', {"a": 1}), ('{"a', {}), ([1], {}), (None, {})])
def test_arguments_that_were_refused_are_sent_as_far_as_they_are_an_object(raw: Any, arguments: Json) -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-error", "rawInput": raw, "errorText": "not JSON"}
    assert turns(HI, assistant(part))[1] == ("assistant", [{**call(), "input": arguments}])


def test_a_dynamic_call_is_a_call_like_any_other() -> None:
    part = {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "state": "output-available", "input": {"a": 1}, "output": "ok"}
    assert turns(HI, assistant(part))[1:] == [("assistant", [call()]), ("user", [result("ok")])]


def test_what_a_call_had_besides_is_sent_back_with_it() -> None:
    metadata = {"chatStreamGateway": {"extra_content": {"google": {}}, "id": "forged", "type": "server_tool_use"}}
    assert turns(HI, assistant(tool(output="1", callProviderMetadata=metadata)))[1] == ("assistant", [call(extra_content={"google": {}})])


def reasoning(said: str, **theirs: Any) -> Json:
    return {"type": "reasoning", "text": said, "providerMetadata": {"anthropic": theirs}}


def test_thinking_comes_back_with_its_signature_so_that_claude_goes_on_after_a_tool() -> None:
    hidden = reasoning("", redactedData="x")
    said = assistant(STEP, reasoning("hm", signature="s"), hidden, reasoning("", signature="t"), tool(output="1"))
    request = AI_SDK.parse(body(HI, said)).request
    wanted = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "", "signature": "t"},
        call(),
    ]
    assert request.messages[1] == Message("assistant", wanted)
    sent = json.loads(ANTHROPIC.build(request, Target(Provider("p", "http://p"), ANTHROPIC, "m")).body)
    assert sent["messages"][1]["content"] == wanted
    other = json.loads(OPENAI.build(request, Target(Provider("p", "http://p/v1"), OPENAI, "m")).body)
    assert [message["role"] for message in other["messages"]] == ["user", "assistant", "tool"]


def test_citations_come_back_with_their_text() -> None:
    cited = [{"type": "char_location", "document_index": 0}]
    said = text("so", providerMetadata={"anthropic": {"citations": cited}})
    assert turns(HI, assistant(said))[1] == ("assistant", [{"type": "text", "text": "so", "citations": cited}])


SEARCH = {"type": "dynamic-tool", "toolName": "web_search", "toolCallId": "s1", "providerExecuted": True, "input": {"q": "x"}}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
CALLED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}


def test_a_call_at_the_provider_stays_in_its_turn_with_its_result_as_it_came() -> None:
    said = {**SEARCH, "state": "output-available", "output": RESULT}
    assert turns(HI, assistant(said, text("so")))[1:] == [("assistant", [CALLED, RESULT, {"type": "text", "text": "so"}])]


def test_a_result_with_a_place_of_its_own_is_there_and_nowhere_else() -> None:
    said = {**SEARCH, "state": "output-available", "output": RESULT}
    placed = {"type": "data-gateway-block", "data": RESULT}
    assert turns(HI, assistant(said, text("so"), placed))[1:] == [("assistant", [CALLED, {"type": "text", "text": "so"}, RESULT])]


def test_a_call_at_the_provider_waits_for_its_result_in_the_last_message_only() -> None:
    waiting = assistant({**SEARCH, "state": "input-available"}, text("so"))
    assert turns(HI, waiting)[1:] == [("assistant", [CALLED, {"type": "text", "text": "so"}])]
    assert turns(HI, waiting, HI)[1:] == [("assistant", "so"), ("user", "hi")]


def test_a_result_that_another_server_rewrote_is_left_out_with_its_call() -> None:
    said = assistant({**SEARCH, "state": "output-available", "output": [{"url": "https://a"}]}, text("so"))
    assert turns(HI, said)[1:] == [("assistant", "so")]
    assert warnings(HI, said) == ("a call that ran at the provider was left out: its result is not known as it came",)


def test_the_result_of_another_call_is_not_taken_for_this_ones() -> None:
    said = assistant({**SEARCH, "state": "output-available", "output": {**RESULT, "tool_use_id": "s2"}}, text("so"))
    assert turns(HI, said)[1:] == [("assistant", "so")]


def test_a_block_that_no_part_could_show_is_sent_back_as_it_came() -> None:
    block = {"type": "compaction", "content": "so far", "signature": "s"}
    assert turns(HI, assistant({"type": "data-gateway-block", "data": block}))[1:] == [("assistant", [block])]


def test_what_the_user_wrote_in_between_ends_the_turn() -> None:
    steered = {"type": "steering-message", "id": "x", "parts": [text("shorter")]}
    assert turns(HI, assistant(STEP, text("long"), steered, STEP, text("short")))[1:] == [
        ("assistant", "long"),
        ("user", "shorter"),
        ("assistant", "short"),
    ]


def test_sources_data_and_files_of_an_answer_are_for_the_page() -> None:
    source = {"type": "source-url", "sourceId": "1", "url": "https://a"}
    said = assistant(STEP, text("so"), source, {"type": "data-weather", "data": 1}, {"type": "file", "url": PNG, "mediaType": "image/png"})
    assert turns(HI, said)[1:] == [("assistant", "so")]
    assert warnings(HI, said) == ("files in an answer were left out",)


def test_a_part_of_a_newer_kind_is_passed_over() -> None:
    assert turns(user(text("hi"), {"type": "newer"})) == [("user", "hi")]
    assert warnings(HI, assistant({"type": "custom", "kind": "a.b"})) == ("parts of an unknown type were left out",)


@pytest.mark.parametrize(
    ("messages", "continues"),
    [([HI], None), ([HI, assistant(tool(output="1"))], "a"), ([HI, {**assistant(tool(output="1")), "id": None}], "")],
)
def test_after_an_answer_of_its_own_the_same_message_goes_on(messages: list[Json], continues: str | None) -> None:
    assert AI_SDK.parse(body(*messages)).continues == continues
