"""What Claude's clients may ask, and in which words they are refused."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from gateway.chat import Message, Particulars
from gateway.errors import RequestRefused
from gateway.formats import Provider, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.anthropic.parse import MOST_BETAS, parse

Json = dict[str, Any]
ASKED: Json = {"model": "default", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello?"}]}
TARGET = Target(Provider("claude", "https://claude.example", version="2023-06-01"), ANTHROPIC, "m")


def asked(**fields: Any) -> bytes:
    return json.dumps({**ASKED, **fields}).encode()


def refused(body: bytes) -> str:
    with pytest.raises(RequestRefused) as raised:
        parse(body)
    assert raised.value.status == 400
    return raised.value.message


def sent(body: bytes, *headers: tuple[bytes, bytes]) -> Json:
    """What becomes of it on its way to a Claude provider."""
    sent: Json = json.loads(ANTHROPIC.build(parse(body, headers).request, TARGET).body)
    return sent


def test_a_plain_request_is_the_vocabularys() -> None:
    request = parse(asked(temperature=1, top_p=0.5, stop_sequences=["x"], metadata={"user_id": "u"}, system="s")).request
    assert (request.model, request.max_tokens, request.messages) == ("default", 10, [Message("user", "Hello?")])
    assert (request.temperature, request.top_p, request.stop_sequences) == (1, 0.5, ["x"])
    assert (request.metadata, request.system, request.particulars) == ({"user_id": "u"}, "s", UNSET)


def test_it_is_a_document_unless_a_stream_is_asked_for() -> None:
    assert parse(asked()).request.stream is False
    assert parse(asked(stream=True)).request.stream is True


def test_a_null_is_no_value() -> None:
    nothing = dict.fromkeys(("thread", "system", "temperature", "tools", "tool_choice", "thinking", "container", "output_config", "stream"))
    assert parse(asked(**nothing)).request == parse(asked()).request


def test_what_only_claude_knows_goes_along() -> None:
    request = parse(asked(top_k=5, service_tier="auto", container={"id": "c", "skills": []})).request
    assert request.particulars == Particulars(
        "anthropic", {"top_k": 5, "service_tier": "auto", "container": {"id": "c", "skills": []}}
    )  # fmt: skip


def test_an_output_config_that_every_upstream_knows_is_nothing_particular() -> None:
    config = {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}
    request = parse(asked(output_config=config)).request
    assert (request.effort, request.response_format, request.particulars) == ("low", config["format"], UNSET)
    assert sent(asked(output_config=config))["output_config"] == config


def test_more_in_an_output_config_goes_along() -> None:
    config = {"effort": "low", "task_budget": {"type": "tokens", "total": 9}, "format": {"type": "json_schema", "schema": {}, "x": 1}}
    assert parse(asked(output_config=config)).request.effort == "low"
    assert sent(asked(output_config=config))["output_config"] == config


def test_an_effort_is_lowered_whatever_stands_beside_it() -> None:
    config = {"effort": "max", "task_budget": {"type": "tokens", "total": 9}}
    built = ANTHROPIC.build(parse(asked(output_config=config)).request, Target(TARGET.provider, ANTHROPIC, "claude-opus-4-5"))
    assert json.loads(built.body)["output_config"] == config | {"effort": "high"}


def test_an_effort_of_tomorrow_goes_along() -> None:
    assert parse(asked(output_config={"effort": "ultra"})).request.effort is None
    assert sent(asked(output_config={"effort": "ultra"}))["output_config"] == {"effort": "ultra"}


def test_no_tokens_at_all_fill_the_cache() -> None:
    assert parse(asked(max_tokens=0)).request.max_tokens is None
    assert sent(asked(max_tokens=0))["max_tokens"] == 0


def test_keys_of_a_later_system_message_stay_with_it() -> None:
    messages = [*ASKED["messages"], {"role": "system", "content": "Be quick.", "clear_at": "next_user_message"}]
    assert sent(asked(messages=messages))["messages"] == messages


def test_a_toolset_needs_no_name() -> None:
    tools = [{"type": "mcp_toolset", "mcp_server_name": "mine"}]
    assert sent(asked(tools=tools))["tools"] == tools


def betas(*lines: str) -> tuple[str, ...]:
    found = parse(asked(), [(b"anthropic-beta", line.encode()) for line in lines]).request.particulars
    return () if found is UNSET else found.betas


def test_beta_features_of_messages_go_along_once_each() -> None:
    assert betas("interleaved-thinking-2025-05-14, context-1m-2025-08-07", "context-1m-2025-08-07") == (
        "interleaved-thinking-2025-05-14",
        "context-1m-2025-08-07",
    )


@pytest.mark.parametrize("beta", ["oauth-2025-04-20", "managed-agents-2026-04-01", "files-api", "x\r\ny: z", "user-profiles-2026-09-04"])
def test_other_betas_stay_here(beta: str) -> None:
    assert betas(beta) == ()
    assert parse(asked(), [(b"anthropic-beta", beta.encode())]).warnings == ("a beta left out",)


def test_betas_are_bounded() -> None:
    assert len(betas(",".join(f"pdfs-2024-{number:02}-01" for number in range(MOST_BETAS + 9)))) == MOST_BETAS


def test_the_callers_betas_come_after_the_configured_ones() -> None:
    target = Target(Provider("claude", "https://claude.example", headers={"Anthropic-Beta": "a-1, pdfs-2024-09-25"}), ANTHROPIC, "m")
    request = parse(asked(), [(b"anthropic-beta", b"pdfs-2024-09-25,skills-2025-10-02")]).request
    assert dict(ANTHROPIC.build(request, target).headers)["anthropic-beta"] == "a-1,pdfs-2024-09-25,skills-2025-10-02"


def test_top_k_is_kept_from_a_model_that_refuses_it() -> None:
    built = ANTHROPIC.build(parse(asked(top_k=5)).request, Target(TARGET.provider, ANTHROPIC, "claude-opus-4-7"))
    assert "top_k" not in json.loads(built.body)
    assert built.warnings == ("top_k left out",)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body is empty: expected a JSON object."),
        (b"[]", "The body: expected an object."),
        (b'{"model": ', "The body is not JSON."),
        (b"[" * 100_000, "The body: the JSON is nested too deeply."),
        (b'{"messages":[' + b"[]," * 110_000 + b"[]]}", "The body: the JSON has too many values."),
        (b'{"max_tokens": 1}', "messages: required."),
        (asked(messages=[]), "messages: expected 1 to 10000 messages."),
        (asked(messages="hi"), "messages: expected 1 to 10000 messages."),
        (asked(messages=["hi"]), "messages[0]: expected an object."),
        (asked(messages=[{"role": "tool", "content": "x"}]), "messages[0].role: expected one of user, assistant, system."),
        (asked(messages=[{"role": ["user"], "content": "x"}]), "messages[0].role: expected one of user, assistant, system."),
        (asked(messages=[{"role": "user"}]), "messages[0].content: required."),
        (asked(messages=[{"role": "user", "content": 1}]), "messages[0].content: expected a string or a list of blocks."),
        (asked(messages=[{"role": "user", "content": ["x"]}]), "messages[0].content[0]: expected an object."),
        (asked(messages=[{"role": "user", "content": [{}]}]), "messages[0].content[0].type: expected a string."),
        (asked(messages=[{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text: expected a string."),
        (
            asked(messages=[{"role": "user", "content": [{"type": "tool_use", "id": "x"}]}]),
            "messages[0].content[0].name: expected a string.",
        ),
        (
            asked(messages=[{"role": "user", "content": [{"type": "tool_use", "id": "x", "name": "y", "input": "{}"}]}]),
            "messages[0].content[0].input: expected an object.",
        ),
        (
            asked(messages=[{"role": "user", "content": [{"type": "tool_result"}]}]),
            "messages[0].content[0].tool_use_id: expected a string.",
        ),
        (asked(messages=[{"role": "user", "content": "x", "nmae": "y"}]), "messages[0].nmae: unknown key."),
        (asked(model=7), "model: expected a string."),
        (asked(max_tokens=-1), "max_tokens: expected an integer of at least 0."),
        (asked(max_tokens=True), "max_tokens: expected an integer of at least 0."),
        (asked(temperature="hot"), "temperature: expected a number."),
        (asked(stream="yes"), "stream: expected true or false."),
        (asked(stop_sequences=[1]), "stop_sequences: expected a list of strings."),
        (asked(system=[{"text": "x"}]), "system[0].type: expected a string."),
        (asked(system=1), "system: expected a string or a list of blocks."),
        (asked(tools=[{"description": "x"}]), "tools[0].name: expected a string."),
        (asked(tools={}), "tools: expected a list."),
        (asked(tool_choice={}), "tool_choice.type: expected a string."),
        (asked(output_config=[]), "output_config: expected an object."),
        (asked(output_config={"format": {}}), "output_config.format.type: expected a string."),
        (asked(output_config={"format": {"type": "json_schema"}}), "output_config.format.schema: expected an object."),
        (asked(max_token=1), "max_token: unknown key; did you mean max_tokens?"),
        (asked(user_profile_id="x"), "user_profile_id: unknown key."),
        (
            asked(thread={"type": "create"}),
            "thread: no history is held at a provider, for the next answer may come from another one; send all messages.",
        ),
        (asked(fallbacks=[{"model": "x"}]), 'fallbacks: only "default" is passed on; further models are the gateway\'s to configure.'),
    ],
)
def test_a_refusal_names_the_field(body: bytes, sentence: str) -> None:
    assert refused(body) == sentence


def test_a_refusal_repeats_no_value() -> None:
    for key in ("system", "messages", "tools", "output_config", "stop_sequences", "tool_choice", "thinking"):
        for value in (7.25, ["my secret", 1], {"a": "my secret", "type": 1, "format": 1}):
            assert "secret" not in refused(asked(**{key: value}))


def test_the_native_vocabulary_has_no_particulars() -> None:
    from gateway.formats.native import parse as parse_native

    for value in (None, {"format": "anthropic", "body": {"model": "x"}}):
        with pytest.raises(RequestRefused) as raised:
            parse_native(asked(particulars=value))
        assert "particulars" in raised.value.message
