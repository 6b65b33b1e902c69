"""The request that Claude is asked with."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.chat import ChatRequest, Message, Particulars
from gateway.errors import RequestRefused
from gateway.formats import Provider, Quirks, Target, UpstreamRequest
from gateway.formats.anthropic import ANTHROPIC

HI = [Message("user", "hi")]
PROVIDER = Provider("claude", "https://claude.example", key="k-1", auth="x-api-key")
TARGET = Target(PROVIDER, ANTHROPIC, "claude-sonnet-5-5")


def target(model: str = "m", **fields: Any) -> Target:
    return Target(replace(PROVIDER, **fields), ANTHROPIC, model)


def build(messages: list[Message] | None = None, where: Target = TARGET, **fields: Any) -> UpstreamRequest:
    return ANTHROPIC.build(ChatRequest(messages or HI, **fields), where)


def body(messages: list[Message] | None = None, where: Target = TARGET, **fields: Any) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(build(messages, where, **fields).body)
    return written


def refused(messages: list[Message] | None = None, where: Target = TARGET, **fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        build(messages, where, **fields)
    return caught.value


def test_the_least_request() -> None:
    assert body() == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }


def test_the_address_and_the_headers() -> None:
    request = build()
    assert request.url == "https://claude.example/v1/messages"
    assert dict(request.headers) == {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
        "anthropic-version": "2023-06-01",
        "x-api-key": "k-1",
    }
    assert "k-1" not in repr(request)


def test_the_key_goes_where_the_provider_wants_it_and_nowhere_without_one() -> None:
    assert dict(build(where=target(auth="bearer")).headers)["authorization"] == "Bearer k-1"
    assert not {"x-api-key", "authorization"} & dict(build(where=target(key=None)).headers).keys()


def test_the_providers_own_headers_win_whatever_their_case() -> None:
    headers = build(where=target(headers={"X-Api-Key": "other", "anthropic-beta": "b"}, version="2026-10-21")).headers
    assert dict(headers) | {"x-api-key": "other", "anthropic-beta": "b", "anthropic-version": "2026-10-21"} == dict(headers)
    assert len({name for name, _ in headers}) == len(headers)


def test_everything_a_caller_may_ask_for_is_written() -> None:
    asked: dict[str, Any] = {
        "max_tokens": 7,
        "stop_sequences": ["X"],
        "tools": [
            {"name": "f", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20260318", "name": "web_search"},
        ],
        "tool_choice": {"type": "any"},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "metadata": {"user_id": "u"},
    }
    schema = {"type": "object"}
    written = body(effort="high", response_format={"type": "json_schema", "schema": schema, "name": "n", "strict": True}, **asked)
    assert {key: written[key] for key in asked} == asked
    assert written["output_config"] == {"effort": "high", "format": {"type": "json_schema", "schema": schema}}


def test_text_is_no_output_format() -> None:
    assert "output_config" not in body(response_format={"type": "text"})


def test_an_output_format_that_claude_has_not_is_refused() -> None:
    assert refused(response_format={"type": "json_object"}).cause.code == "unsupported"
    assert refused(response_format={"type": "json_schema"}).message == "response_format.schema: expected an object."
    assert refused(response_format={"type": "xml"}).cause.code == "invalid_request"


def test_sampling_goes_to_unknown_models_and_not_to_known_ones_that_refuse_it() -> None:
    assert body(where=target("glm-5"), temperature=0.0, top_p=1.0)["temperature"] == 0.0
    request = build(temperature=0.5, top_p=1.0)
    assert not {"temperature", "top_p"} & json.loads(request.body).keys()
    assert request.warnings == ("temperature left out", "top_p left out")
    assert "temperature" not in body(where=target("glm-5", version="2026-10-21"), temperature=0.5)


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}, "temperature": 0.5}, {}),
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}, "temperature": 1}, {"temperature": 1}),
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}, "top_p": 0.5}, {}),
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}, "top_p": 0.95}, {"top_p": 0.95}),
        ("claude-sonnet-4-5", {"thinking": {"type": "disabled"}, "temperature": 0.5}, {"temperature": 0.5}),
        ("claude-sonnet-4-5", {"temperature": 1.7}, {"temperature": 1}),
        ("glm-4.6", {"temperature": 1.7, "top_p": 0.5, "thinking": {"type": "enabled"}}, {"temperature": 1.7, "top_p": 0.5}),
    ],
)
def test_sampling_is_what_the_model_takes_while_it_thinks(model: str, asked: dict[str, Any], sent: dict[str, Any]) -> None:
    built = build(None, target(model), **asked)
    written = json.loads(built.body)
    assert {key: written[key] for key in ("temperature", "top_p") if key in written} == sent
    assert bool(built.warnings) == (sent != {key: asked[key] for key in ("temperature", "top_p") if key in asked})


def test_an_answer_has_room_beside_its_thinking() -> None:
    assert body()["max_tokens"] == 8192
    assert body(where=target(), thinking={"type": "enabled", "budget_tokens": 20_000})["max_tokens"] == 28_192
    assert body(where=target(), thinking={"type": "enabled", "budget_tokens": 20_000}, max_tokens=30_000)["max_tokens"] == 30_000


def test_thinking_and_effort_are_asked_for_as_the_model_knows_them() -> None:
    built = build(None, target("claude-haiku-4-5"), thinking={"type": "adaptive"}, effort="max", max_tokens=4000)
    written = json.loads(built.body)
    assert written["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert "output_config" not in written
    assert built.warnings == ("thinking given a budget: this model does not choose one", "effort left out")


def test_a_choice_without_tools_and_stops_of_white_space_are_left_out() -> None:
    built = build(tool_choice={"type": "auto"}, stop_sequences=["\n", "END", " "])
    written = json.loads(built.body)
    assert "tool_choice" not in written
    assert written["stop_sequences"] == ["END"]
    assert built.warnings == ("stop sequences of white space left out", "tool_choice left out: there are no tools")
    assert "stop_sequences" not in body(stop_sequences=["\n"])


@pytest.mark.parametrize(
    ("tool", "sent"),
    [
        ({"name": "f"}, {"name": "f", "input_schema": {"type": "object"}}),
        ({"name": "f", "input_schema": {"properties": {}}}, {"name": "f", "input_schema": {"type": "object", "properties": {}}}),
        ({"type": "custom", "name": "f", "input_schema": {"type": "object", "x": 1}}, None),
        ({"type": "bash_20250124", "name": "bash"}, None),
    ],
)
def test_a_tools_schema_is_an_objects(tool: dict[str, Any], sent: dict[str, Any] | None) -> None:
    assert body(tools=[tool])["tools"] == [sent or tool]


@pytest.mark.parametrize(
    "choice",
    [{"type": "auto", "disable_parallel_tool_use": True}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}],
)
def test_a_tool_choice_is_claudes_own(choice: dict[str, Any]) -> None:
    assert body(tools=[{"name": "f", "input_schema": {"type": "object"}}], tool_choice=choice)["tool_choice"] == choice


def test_what_stands_beside_a_message_is_not_repeated_beside_its_results() -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    beside = Particulars("anthropic", messages={1: {"clear_at": "x"}})
    sent = body([*HI, Message("assistant", [call]), *HI], particulars=beside)["messages"]
    assert [message.get("clear_at") for message in sent] == [None, "x", None, None]


def test_an_answer_that_broke_off_before_its_first_word_is_left_out() -> None:
    empty = Message("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": ""}])
    built = build([*HI, empty, Message("assistant", ""), *HI])
    assert json.loads(built.body)["messages"] == [{"role": "user", "content": "hi"}] * 2
    assert built.warnings == ("thinking without a signature left out", "an answer without content left out")


def test_a_provider_row_says_what_else_is_left_out() -> None:
    request = build(where=target(quirks=Quirks(refuses=("metadata", "top_k"))), metadata={"user_id": "u"})
    assert "metadata" not in json.loads(request.body)
    assert request.warnings == ("metadata left out",)


def test_extras_are_passed_on_but_never_over_the_gateways_own_keys() -> None:
    assert body(extra={"service_tier": "auto", "top_k": 3})["service_tier"] == "auto"
    for key in ("model", "messages", "system", "stream", "stream_options", "tools", "n", "max_tokens", "temperature", "output_config"):
        failed = refused(extra={key: 1})
        assert (failed.status, failed.cause.code) == (400, "invalid_request")
        assert failed.message == f"extra.{key}: the gateway writes this key itself."


def test_extra_brings_no_further_models_past_the_aliases() -> None:
    assert body(extra={"fallbacks": "default"})["fallbacks"] == "default"
    assert "extra.fallbacks" in refused(extra={"fallbacks": [{"model": "another"}]}).message


def test_the_providers_body_is_merged_last() -> None:
    written = body(where=target(body={"metadata": {"b": 2}, "max_tokens": 5, "speed": "fast"}), metadata={"a": 1})
    assert (written["metadata"], written["max_tokens"], written["speed"]) == ({"a": 1, "b": 2}, 5, "fast")


def test_blocks_go_out_as_they_came_in() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "café 🌍 \\u00e9  \u2028", "signature": "c2lnLTE="},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "Hi  ", "x_unknown": {"b": 1, "a": [], "n": 1.0, "big": 2**70}, "citations": []},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "compaction", "content": None},
    ]
    written = build([Message("user", "hi"), Message("assistant", blocks), Message("user", [{"text": "again", "type": "text"}])]).body
    sent = json.loads(written)["messages"]
    assert json.dumps(sent[1]["content"]) == json.dumps(blocks)
    assert list(sent[2]["content"][0]) == ["text", "type"]


@pytest.mark.parametrize("fields", [{}, {"signature": ""}, {"signature": None}])
def test_thinking_that_nobody_signed_is_left_out_and_told_once(fields: dict[str, Any]) -> None:
    thinking = {"type": "thinking", "thinking": "hm", **fields}
    request = build([*HI, Message("assistant", [thinking, thinking, {"type": "text", "text": "a"}]), *HI])
    assert json.loads(request.body)["messages"][1]["content"] == [{"type": "text", "text": "a"}]
    assert request.warnings == ("thinking without a signature left out",)


def test_empty_text_is_left_out_and_white_space_is_not() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    empty, blank = {"type": "text", "text": ""}, {"type": "text", "text": "\n\n"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [empty, blank]}
    sent = body([*HI, Message("assistant", [empty, blank, call]), Message("user", [result])])["messages"]
    assert sent[1]["content"] == [blank, call]
    assert sent[2]["content"] == [{**result, "content": [blank]}]


def test_a_message_of_nothing_but_empty_text_has_an_empty_content() -> None:
    assert body([*HI, Message("assistant", [{"type": "text", "text": ""}])])["messages"][1]["content"] == ""


def test_tool_messages_become_one_user_message_of_results() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    messages = [
        *HI,
        Message("assistant", [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("a", "b")]),
        Message("tool", "one", tool_use_id="a"),
        Message("tool", [image], tool_call_id="b"),
        Message("user", "go on"),
    ]
    sent = body(messages)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "user"]
    assert sent[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b", "content": [image]},
    ]


def test_a_tool_message_without_its_call_is_refused() -> None:
    assert refused([*HI, Message("tool", "x")]).message.startswith("messages[1].tool_use_id: ")


def test_ids_that_claude_refuses_are_mapped_alike_in_call_and_result() -> None:
    messages = [
        *HI,
        Message("assistant", [{"type": "tool_use", "id": "functions.f:0", "name": "f", "input": {}}]),
        Message("user", [{"type": "tool_result", "tool_use_id": "functions.f:0", "content": "x"}]),
    ]
    sent = body(messages)["messages"]
    ids = {sent[1]["content"][0]["id"], sent[2]["content"][0]["tool_use_id"]}
    assert len(ids) == 1
    assert "." not in ids.pop()


@pytest.mark.parametrize(("given", "sent"), [("", {}), (" ", {}), ('{"a":1}', {"a": 1})])
def test_arguments_as_text_become_an_object(given: str, sent: Any) -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": given}
    assert body([*HI, Message("assistant", [call])])["messages"][1]["content"][0]["input"] == sent


@pytest.mark.parametrize("given", ['{"a":1}{"b":2}', "{", "[1]", "null"])
def test_arguments_that_are_no_object_are_refused_by_place(given: str) -> None:
    call = {"type": "tool_use", "id": "a", "name": "f", "input": given}
    failed = refused([*HI, Message("assistant", [{"type": "text", "text": "x"}, call])])
    assert failed.message.startswith("messages[1].content[1].input: ")
    assert failed.cause.code == "invalid_request"


def test_leading_system_messages_become_the_system_text() -> None:
    messages = [Message("system", "two"), Message("system", "three"), *HI]
    assert body(messages, system="one")["system"] == "one\n\ntwo\n\nthree"
    assert body(messages)["system"] == "two\n\nthree"
    assert body(messages)["messages"] == [{"role": "user", "content": "hi"}]


def test_system_blocks_stay_blocks() -> None:
    cached = {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}
    assert body([Message("system", "two"), *HI], system=[cached, {"type": "text", "text": ""}])["system"] == [
        cached,
        {"type": "text", "text": "two"},
    ]
    assert "system" not in body(system="")
    assert "system" not in body(system=[])


def test_a_later_system_message_keeps_its_place_or_becomes_a_reminder() -> None:
    messages = [*HI, Message("system", "be brief"), Message("system", [{"type": "text", "text": "x", "y": 1}]), *HI]
    assert body(messages)["messages"][1] == {"role": "system", "content": "be brief"}
    sent = body(messages, target(quirks=Quirks(later_system="reminder")))["messages"]
    assert sent[1] == {"role": "user", "content": "<system-reminder>\nbe brief\n</system-reminder>"}
    assert sent[2]["content"] == [{"type": "text", "text": "<system-reminder>\nx\n</system-reminder>", "y": 1}]


def test_a_request_of_system_messages_alone_is_refused() -> None:
    assert refused([Message("system", "x")]).message.startswith("messages: ")


URL = {"type": "image", "source": {"type": "url", "url": "http://169.254.169.254/"}}


@pytest.mark.parametrize(
    ("block", "place"),
    [
        (URL, ".source"),
        ({**URL, "type": "document"}, ".source"),
        ({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}, URL]}, ".content[1].source"),
        ({"type": "document", "source": {"type": "content", "content": [URL]}}, ".source.content[0].source"),
        ({"type": "image_url", "image_url": {"url": "http://x"}}, ".image_url"),
        ({"type": "image_url", "image_url": "http://x"}, ".image_url"),
    ],
)
def test_urls_are_refused_by_place_unless_the_provider_fetches_them_outside(block: dict[str, Any], place: str) -> None:
    call = Message("assistant", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}])
    messages = [*HI, *([call] if block["type"] == "tool_result" else []), Message("user", [block])]
    failed = refused(messages)
    where = f"messages[{len(messages) - 1}].content[0]{place}"
    assert failed.message == f"{where}: this model takes no URL sources; send the content as base64."
    assert "169.254" not in failed.message
    assert body(messages, target(quirks=Quirks(url_sources=True)))["messages"][-1]["content"] == [block]


def test_a_url_in_a_tool_message_is_refused_too() -> None:
    assert "messages[1].content[0].source" in refused([*HI, Message("tool", [URL], tool_use_id="a")]).message


def test_an_image_in_the_request_itself_is_no_url() -> None:
    block = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert body([Message("user", [block])])["messages"][0]["content"] == [block]


def test_what_another_formats_client_said_in_its_own_words_is_left_out() -> None:
    request = build(particulars=Particulars("openai", {"my secret": 1, "seed": 2}, unvetted=("my secret",)))
    assert request.warnings == ("what only openai has words for was left out: seed",)


def test_a_citation_that_another_provider_made_goes_without_its_place_in_the_text() -> None:
    claudes = {"type": "search_result_location", "source": "https://a.example", "title": None, "cited_text": "", "search_result_index": 0}
    foreign = {**claudes, "start_index": 3, "end_index": 9}
    text = {"type": "text", "text": "It is so.", "citations": [foreign, {"type": "char_location", "start_index": 1}]}
    sent = body([*HI, Message("assistant", [text]), *HI])["messages"][1]["content"]
    assert sent == [{**text, "citations": [claudes, {"type": "char_location", "start_index": 1}]}]
