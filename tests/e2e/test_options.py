"""What else than messages a client asks for, in its own format's words, and the words in which each provider is asked for it."""

import json
from typing import Any

import pytest

from gateway.simulator import Script
from tests.e2e.provider import BEGUN, ENDING, OPENAI_BEGUN, OPENAI_DONE, OPENAI_FINISH, stream
from tests.quirks.running import post, running
from tests.upstream import Request, ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

PATHS = {"native": "/chat", "anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
PDF = "JVBERi0xLjQK"
PNG = "iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
TOOL = {"name": "f", "description": "d", "input_schema": SCHEMA}
MARK = {"cache_control": {"type": "ephemeral"}}
ABSENT = None


def respond(request: Request) -> Script:
    return stream(BEGUN + ENDING) if request.path.endswith("/v1/messages") else stream(OPENAI_BEGUN + OPENAI_FINISH + OPENAI_DONE)


async def asked(format: str, target: str, fields: Json) -> tuple[Json, list[str]]:
    """The body that reaches the target, and the warnings in the log."""
    async with ScriptedUpstream(respond) as upstream:
        key = {"api_key": "sk-of-the-gateway"}
        base = {"type": "openai", "base_url": f"{upstream.url}/v1", **key}
        providers = {
            "claude": {"type": "anthropic", "base_url": upstream.url, "quirks": {"url_sources": True}, **key},
            "openai": {**base, "preset": "openai"},
            "router": {**base, "preset": "openrouter"},
            "glm": {**base, "preset": "zhipu"},
            "plain": base,
        }
        async with running({"providers": providers, "models": {"m": {"targets": [target]}}}) as here:
            body = {"model": "m", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "hi"}], **fields}
            answer = await post(here.port, body, path=PATHS[format])
            assert answer.status == 200, answer.body
            return json.loads(upstream.requests[0].body), here.log.lines[0].get("warnings", [])


CLAUDE, OLD_CLAUDE = "claude/claude-sonnet-5-5", "claude/claude-sonnet-4-5"
GPT, REASONING = "openai/gpt-4o", "openai/gpt-5"

# A name; the same wish in each client's words; what is in each provider's request, None where it must not be.
ROWS: list[tuple[str, dict[str, Json], dict[str, Json]]] = [
    (
        "sampling",
        {format: {"temperature": 0.5, "top_p": 0.9} for format in PATHS},
        {
            CLAUDE: {"temperature": ABSENT, "top_p": ABSENT},
            OLD_CLAUDE: {"temperature": 0.5, "top_p": ABSENT},
            GPT: {"temperature": 0.5, "top_p": 0.9},
            REASONING: {"temperature": ABSENT, "top_p": ABSENT},
            "plain/some": {"temperature": 0.5, "top_p": 0.9},
        },
    ),
    (
        "most tokens",
        {"native": {"max_tokens": 7}, "anthropic": {"max_tokens": 7}, "openai": {"max_tokens": 9, "max_completion_tokens": 7}},
        {CLAUDE: {"max_tokens": 7}, GPT: {"max_completion_tokens": 7, "max_tokens": ABSENT}, "plain/some": {"max_tokens": 7}},
    ),
    (
        "stop sequences",
        {"native": {"stop_sequences": ["END"]}, "anthropic": {"stop_sequences": ["END"]}, "openai": {"stop": "END"}},
        {CLAUDE: {"stop_sequences": ["END"]}, "plain/some": {"stop": ["END"], "stop_sequences": ABSENT}},
    ),
    (
        "structured output",
        {
            "native": {"response_format": {"type": "json_schema", "schema": SCHEMA, "name": "answer", "strict": True}},
            "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "openai": {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}},
        },
        {
            CLAUDE: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "response_format": ABSENT},
            GPT: {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
        },
    ),
    (
        "effort",
        {"native": {"effort": "high"}, "anthropic": {"output_config": {"effort": "high"}}, "openai": {"reasoning_effort": "high"}},
        {
            CLAUDE: {"output_config": {"effort": "high"}, "reasoning_effort": ABSENT},
            OLD_CLAUDE: {"output_config": ABSENT},
            REASONING: {"reasoning_effort": "high"},
            "plain/some": {"reasoning_effort": "high"},
        },
    ),
    (
        "the most effort",
        {"native": {"effort": "max"}, "anthropic": {"output_config": {"effort": "max"}}, "openai": {"reasoning_effort": "max"}},
        {CLAUDE: {"output_config": {"effort": "max"}}, REASONING: {"reasoning_effort": "high"}, "plain/some": {"reasoning_effort": "max"}},
    ),
    (
        "no thinking",
        {
            "native": {"thinking": {"type": "disabled"}},
            "anthropic": {"thinking": {"type": "disabled"}},
            "openai": {"thinking": {"type": "disabled"}},
        },
        {
            "claude/claude-opus-5-5": {"thinking": ABSENT},
            CLAUDE: {"thinking": {"type": "between_tools"}},
            OLD_CLAUDE: {"thinking": {"type": "disabled"}},
            "glm/glm-4.6": {"thinking": {"type": "disabled"}},
        },
    ),
    (
        "a budget of thinking",
        {format: {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}} for format in PATHS},
        {
            CLAUDE: {"thinking": {"type": "adaptive"}},
            OLD_CLAUDE: {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            "claude/an-unknown-model": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        },
    ),
    (
        "any tool",
        {
            "native": {"tools": [TOOL], "tool_choice": {"type": "any"}},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "any"}},
            "openai": {"tools": [FUNCTION], "tool_choice": "required"},
        },
        {CLAUDE: {"tools": [TOOL], "tool_choice": {"type": "any"}}, GPT: {"tools": [FUNCTION], "tool_choice": "required"}},
    ),
    (
        "no tool",
        {
            "native": {"tools": [TOOL], "tool_choice": {"type": "none"}},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "none"}},
            "openai": {"tools": [FUNCTION], "tool_choice": "none"},
        },
        {CLAUDE: {"tool_choice": {"type": "none"}}, GPT: {"tool_choice": "none", "parallel_tool_calls": ABSENT}},
    ),
    (
        "that tool",
        {
            "native": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}},
            "openai": {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        },
        {
            CLAUDE: {"tool_choice": {"type": "tool", "name": "f"}},
            GPT: {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        },
    ),
    (
        "one tool at a time",
        {
            "native": {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "anthropic": {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "openai": {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False},
        },
        {
            CLAUDE: {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            GPT: {"tool_choice": "auto", "parallel_tool_calls": False},
        },
    ),
    (
        "who asks",
        {"native": {"metadata": {"user_id": "u"}}, "anthropic": {"metadata": {"user_id": "u"}}, "openai": {"user": "u"}},
        {CLAUDE: {"metadata": {"user_id": "u"}}, GPT: {"user": "u", "metadata": ABSENT}},
    ),
]


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize(("name", "said", "wanted"), ROWS, ids=[row[0] for row in ROWS])
async def test_each_provider_is_asked_in_its_own_words(name: str, said: dict[str, Json], wanted: dict[str, Json], format: str) -> None:
    for target, fields in wanted.items():
        body, _ = await asked(format, target, said[format])
        for key, value in fields.items():
            found = body.get(key)
            if key == "response_format" and isinstance(found, dict):  # Claude's format has no name and no `strict`
                found["json_schema"].pop("strict", None)
            assert found == value, (target, key)


def content(format: str, *blocks: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


IMAGE_URL = "https://pictures.example/a.png"
IMAGES: dict[str, dict[str, Json]] = {
    "base64": {
        "claude": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    },
    "url": {
        "claude": {"type": "image", "source": {"type": "url", "url": IMAGE_URL}},
        "openai": {"type": "image_url", "image_url": {"url": IMAGE_URL}},
    },
    "pdf": {
        "claude": {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}, "title": "a.pdf"},
        "openai": {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"}},
    },
    "file id": {
        "claude": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        "openai": {"type": "file", "file": {"file_id": "file_1"}},
    },
}


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("kind", IMAGES)
async def test_images_and_documents_have_each_formats_shape(format: str, kind: str) -> None:
    given = IMAGES[kind]["openai" if format == "openai" else "claude"]
    for target, shape in ((CLAUDE, "claude"), (GPT, "openai")):
        body, warnings = await asked(format, target, content(format, {"type": "text", "text": "What is it?"}, given))
        assert body["messages"][0]["content"] == [{"type": "text", "text": "What is it?"}, IMAGES[kind][shape]]
        assert not warnings


@pytest.mark.parametrize("format", PATHS)
async def test_how_closely_an_image_is_looked_at_is_openais_word(format: str) -> None:
    fine: Json = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "high"}}
    given = fine if format == "openai" else {**IMAGES["base64"]["claude"], "detail": "high"}
    body, _ = await asked(format, GPT, content(format, given))
    assert body["messages"][0]["content"] == [fine]
    body, _ = await asked(format, CLAUDE, content(format, given))
    assert body["messages"][0]["content"] == [IMAGES["base64"]["claude"]]


@pytest.mark.parametrize("format", PATHS)
async def test_a_cache_mark_reaches_those_who_take_it_and_the_log_elsewhere(format: str) -> None:
    marked: Json = {"type": "text", "text": "long", **MARK}
    tool = {**FUNCTION, **MARK} if format == "openai" else {**TOOL, **MARK}
    fields = {**content(format, marked), "tools": [tool]}
    for target in (CLAUDE, "router/anthropic/claude-sonnet-5.5"):
        body, warnings = await asked(format, target, fields)
        assert body["messages"][0]["content"] == [marked]
        assert body["tools"][0]["cache_control"] == MARK["cache_control"]
        assert not warnings
    for target in (GPT, "plain/some"):
        body, warnings = await asked(format, target, fields)
        assert "cache_control" not in json.dumps(body)
        assert warnings == ["cache_control was left out"]


async def test_what_frontends_always_send_does_not_stop_claude() -> None:
    body, warnings = await asked(
        "openai", CLAUDE, {"temperature": 0.5, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "stream_options": {}}
    )
    assert not {"temperature", "top_p", "presence_penalty", "frequency_penalty"} & body.keys()
    unsaid = "what only openai has words for was left out: presence_penalty, frequency_penalty"
    assert sorted(warnings) == ["temperature left out", "top_p left out", unsaid]


async def test_penalties_are_kept_from_openais_reasoning_models_too() -> None:
    body, _ = await asked("openai", REASONING, {"temperature": 0.5, "presence_penalty": 0, "logit_bias": {}, "seed": 1})
    assert not {"temperature", "presence_penalty", "logit_bias"} & body.keys()
    assert body["seed"] == 1
