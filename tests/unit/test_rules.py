"""What an alias lets through, and what it adds."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from gateway.chat import ChatRequest, Message
from gateway.errors import RequestRefused
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.openai import OPENAI_CLIENT
from gateway.rules import FEATURES, NO_RULES, Feature, Rules, ruled

Json = dict[str, Any]
HELLO: Json = {"messages": [{"role": "user", "content": "hi"}]}


def native(**fields: Any) -> ChatRequest:
    return msgspec.convert(HELLO | fields, ChatRequest)


def claude(**fields: Any) -> ChatRequest:
    return CLAUDE_CLIENT.parse(msgspec.json.encode(HELLO | {"model": "a", "max_tokens": 9} | fields)).request


def openai(**fields: Any) -> ChatRequest:
    return OPENAI_CLIENT.parse(msgspec.json.encode(HELLO | {"model": "a"} | fields)).request


def without(*features: Feature) -> Rules:
    return Rules(allow=frozenset(FEATURES) - set(features))


def refusal(request: ChatRequest, rules: Rules) -> str:
    with pytest.raises(RequestRefused) as refused:
        ruled(request, rules, "shop")
    assert (refused.value.status, refused.value.cause.code) == (400, "unsupported")
    return refused.value.message


def test_without_rules_a_request_is_itself() -> None:
    request = native(extra={"anything": 1}, thinking={"type": "adaptive"})
    assert ruled(request, NO_RULES, "a") == (request, [])
    assert ruled(request, NO_RULES, "a")[0] is request


@pytest.mark.parametrize(
    ("own", "both"),
    [
        (None, "Shop."),
        ("", "Shop."),
        ("Be brief.", "Shop.\n\nBe brief."),
        ([{"type": "text", "text": "Be brief.", "cache_control": {}}],
         [{"type": "text", "text": "Shop."}, {"type": "text", "text": "Be brief.", "cache_control": {}}]),
    ],
)  # fmt: skip
def test_the_aliass_text_stands_before_the_callers(own: Any, both: Any) -> None:
    assert ruled(native(system=own), Rules(system="Shop."), "a")[0].system == both


@pytest.mark.parametrize(
    ("rules", "asked", "sent", "warned"),
    [
        (Rules(default=100), None, 100, False),
        (Rules(default=100), 5000, 5000, False),
        (Rules(default=100, cap=200), None, 100, False),
        (Rules(cap=200), None, 200, False),
        (Rules(default=300, cap=200), None, 200, False),
        (Rules(cap=200), 200, 200, False),
        (Rules(cap=200), 201, 200, True),
        (Rules(system="x"), None, None, False),
    ],
)
def test_max_tokens_has_a_default_and_a_cap(rules: Rules, asked: int | None, sent: int | None, warned: bool) -> None:
    request, warnings = ruled(native(max_tokens=asked), rules, "a")
    assert (request.max_tokens, bool(warnings)) == (sent, warned)


@pytest.mark.parametrize(("cap", "budget"), [(8000, 4000), (1500, 1024), (1024, None), (20_000, 10_000)])
def test_a_lowered_answer_leaves_thinking_less_room(cap: int, budget: int | None) -> None:
    asked = native(max_tokens=32_000, thinking={"type": "enabled", "budget_tokens": 30_000})
    thinking = ruled(asked, Rules(cap=cap), "a")[0].thinking
    assert thinking == (budget and {"type": "enabled", "budget_tokens": budget})


@pytest.mark.parametrize(("cap", "most", "budget"), [(None, 5000, 4000), (8000, 5000, 4000), (3000, 3000, 1500)])
def test_the_aliass_default_is_for_the_answer_besides_its_thinking(cap: int | None, most: int, budget: int) -> None:
    asked = native(thinking={"type": "enabled", "budget_tokens": 4000})
    request = ruled(asked, Rules(default=1000, cap=cap), "a")[0]
    assert (request.max_tokens, request.thinking) == (most, {"type": "enabled", "budget_tokens": budget})


@pytest.mark.parametrize(
    "said", [{"thinking_budget": 90_000}, {"reasoning": {"max_tokens": 90_000, "exclude": True}}, {"n_predict": 90_000}]
)
def test_a_budget_in_a_providers_own_words_is_lowered_to_the_cap(said: Json) -> None:
    lowered = msgspec.json.decode(msgspec.json.encode(said).replace(b"90000", b"4000"))
    particulars = ruled(openai(max_tokens=10, **said), Rules(cap=4000), "a")[0].particulars
    assert particulars is not msgspec.UNSET
    assert particulars.body == lowered
    assert ruled(native(extra=said), Rules(cap=4000), "a")[0].extra == lowered
    assert ruled(native(extra=said), Rules(cap=100_000), "a")[0].extra == said


def test_less_than_zero_is_no_way_around_the_cap() -> None:
    assert ruled(native(extra={"n_predict": -1}), Rules(cap=4000), "a")[0].extra == {"n_predict": 4000}


def test_a_budget_beyond_the_cap_is_lowered_whatever_the_answer_may_have() -> None:
    asked = native(max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 90_000})
    assert ruled(asked, Rules(cap=4000), "a")[0].thinking == {"type": "enabled", "budget_tokens": 2000}


def test_a_budget_that_fits_the_cap_stays() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert ruled(native(max_tokens=32_000, thinking=thinking), Rules(cap=4000), "a")[0].thinking == thinking


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}


def said(*blocks: Json) -> list[Json]:
    return [{"role": "user", "content": list(blocks)}]


@pytest.mark.parametrize(
    ("feature", "request_", "path"),
    [
        ("tools", native(tools=[TOOL]), "tools[0]"),
        ("tools", native(tools=[{"type": "custom", **TOOL}]), "tools[0]"),
        ("tools", claude(tools=[{"type": "bash_20250124", "name": "bash"}]), "tools[0]"),
        ("tools", openai(tools=[FUNCTION]), "tools[0]"),
        ("tools", native(messages=[{"role": "system", "content": [{"type": "tool_addition", "tool": TOOL}]}]), "messages[0].content[0]"),
        ("server_tools", claude(tools=[{"type": "web_search_20260318", "name": "web_search"}]), "tools[0]"),
        ("server_tools", claude(mcp_servers=[{"type": "url", "url": "https://a.example"}]), "mcp_servers"),
        ("server_tools", claude(container="c1"), "container"),
        ("server_tools", native(extra={"mcp_servers": [{}]}), "extra.mcp_servers"),
        ("server_tools", openai(web_search_options={"a": 1}), "web_search_options"),
        ("server_tools", openai(web_search_options={}), "web_search_options"),
        ("server_tools", native(extra={"enable_code_interpreter": True}), "extra.enable_code_interpreter"),
        ("thinking", openai(extra_body={"google": {"thinking_config": {"thinking_budget": 9}}}), "extra_body"),
        ("server_tools", openai(enable_search=True), "enable_search"),
        ("server_tools", native(messages=said({"type": "tool_addition"})), "messages[0].content[0]"),
        ("thinking", native(thinking={"type": "adaptive"}), "thinking"),
        ("thinking", native(effort="low"), "effort"),
        ("thinking", openai(reasoning_effort="high"), "effort"),
        ("thinking", openai(thinking={"type": "new"}), "thinking"),
        ("thinking", openai(chat_template_kwargs={"enable_thinking": True}), "chat_template_kwargs"),
        ("thinking", native(extra={"reasoning": {"effort": "high"}}), "extra.reasoning"),
        ("thinking", claude(output_config={"effort": "tomorrow"}), "output_config.effort"),
        ("thinking", claude(messages=[*HELLO["messages"], {"role": "system", "content": "x", "output_config": {"effort": "max"}}]),
         "messages[1].output_config.effort"),
        ("url_sources", native(messages=said(PICTURE, IMAGE)), "messages[0].content[1].source"),
        ("url_sources", native(system=[IMAGE]), "system[0].source"),
        ("url_sources", openai(messages=said({"type": "image_url", "image_url": {"url": "https://a.example/b"}})),
         "messages[0].content[0].source"),
        ("url_sources", native(messages=said({"type": "image_url", "image_url": "https://a.example/b"})),
         "messages[0].content[0].image_url"),
        ("url_sources", native(messages=said({"type": "tool_result", "tool_use_id": "t", "content": [PICTURE, IMAGE]})),
         "messages[0].content[0].content[1].source"),
        ("url_sources", native(messages=said({"type": "tool_result", "tool_use_id": "t", "source": {"content": []}, "content": [IMAGE]})),
         "messages[0].content[0].content[0].source"),
        ("url_sources", native(messages=said({"type": "tool_result", "tool_use_id": "t", "content": {"type": "x", "content": [IMAGE]}})),
         "messages[0].content[0].content.content[0].source"),
        ("url_sources", native(messages=said({"type": "document", "source": {"type": "content", "content": [IMAGE]}})),
         "messages[0].content[0].source.content[0].source"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_its_field(feature: Feature, request_: ChatRequest, path: str) -> None:
    assert refusal(request_, without(feature)).startswith(f"{path}: model 'shop' allows no {feature}; it allows ")
    others = [other for other in FEATURES if other != feature]
    ruled(request_, without(*others), "shop")


def test_looking_for_urls_takes_no_more_than_the_history_does() -> None:
    content: list[Json] = [{"type": "text", "text": "x"}] * 20_000
    for _ in range(200):
        content = [{"type": "tool_result", "tool_use_id": "t", "content": content}]
    request = ChatRequest([Message("user", content)])
    tracemalloc.start()
    try:
        ruled(request, without("url_sources"), "shop")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000  # with the path of each block it was three times that
    finally:
        tracemalloc.stop()


def test_the_refusal_says_what_is_allowed() -> None:
    assert refusal(native(tools=[TOOL]), without("tools", "server_tools")) == (
        "tools[0]: model 'shop' allows no tools; it allows thinking, url_sources."
    )
    assert refusal(native(tools=[TOOL]), without(*FEATURES)).endswith("it allows none of tools, server_tools, thinking, url_sources.")


@pytest.mark.parametrize(
    "request_",
    [
        native(),
        native(thinking={"type": "disabled"}),
        native(messages=said(PICTURE, {"type": "image_url", "image_url": "data:image/png;base64,aaaa"})),
        openai(reasoning_effort="none"),
        openai(enable_thinking=False, thinking_budget=0, reasoning={"effort": "none"}, chat_template_kwargs={"enable_thinking": False}),
        claude(output_config={"format": {"type": "json_schema", "schema": {}}}),
        native(messages=[
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"source": {"type": "url"}}}]},
            {"role": "tool", "tool_use_id": "t", "content": "x"},
        ]),
    ],
)  # fmt: skip
def test_a_plain_chat_and_the_history_of_another_model_need_no_leave(request_: ChatRequest) -> None:
    ruled(request_, without(*FEATURES), "shop")


KEYED = Rules(keyed=True)


@pytest.mark.parametrize(
    ("rules", "request_", "path"),
    [
        (KEYED, native(extra={"seed": 1}), "extra.seed"),
        (KEYED, openai(service_tier="priority"), "service_tier"),
        (KEYED, openai(models=["a/b"]), "models"),
        (KEYED, claude(speed="fast"), "speed"),
        (KEYED, claude(inference_geo="us"), "inference_geo"),
        (Rules(extra=frozenset({"seed"}), keyed=True), native(extra={"seed": 1, "models": []}), "extra.models"),
        (Rules(extra=frozenset({"seed"})), openai(seed=1, presence_penalty=1), "presence_penalty"),
        (Rules(extra=frozenset()), claude(top_k=5), "top_k"),
    ],
)
def test_a_key_that_may_not_pass_is_refused_by_its_name(rules: Rules, request_: ChatRequest, path: str) -> None:
    assert refusal(request_, rules).startswith(f"{path}: model 'shop' does not pass this key on; it passes ")


@pytest.mark.parametrize(
    ("rules", "request_"),
    [
        (NO_RULES, native(extra={"models": []})),
        (KEYED, openai(seed=1, presence_penalty=0, frequency_penalty=0, reasoning_effort="minimal")),
        (KEYED, claude(top_k=5, service_tier="auto", max_tokens=0)),
        (Rules(extra=frozenset({"seed"}), keyed=True), native(extra={"seed": 1})),
        (Rules(extra=frozenset({"models"}), keyed=True), openai(models=["a"])),
        (Rules(extra=frozenset({"speed"}), keyed=True), claude(speed="fast")),
        (Rules(extra=frozenset()), claude(max_tokens=0, output_config={"effort": "tomorrow"})),
        (Rules(extra=frozenset()), openai(reasoning_effort="minimal", response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": {}, "description": "y"}})),
    ],
)  # fmt: skip
def test_keys_that_may_pass_do(rules: Rules, request_: ChatRequest) -> None:
    ruled(request_, rules, "shop")


def test_the_refusal_says_which_keys_pass() -> None:
    listed = Rules(extra=frozenset({"seed", "min_p"}))
    assert refusal(native(extra={"x" * 100: 1}), listed).endswith("; it passes min_p, seed.")
    assert len(refusal(native(extra={"x" * 100: 1}), listed)) < 160
    assert refusal(native(extra={"x": 1}), Rules(extra=frozenset())).endswith("; it passes none.")
