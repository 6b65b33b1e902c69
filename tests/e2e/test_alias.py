"""What an alias says about its requests, from a client's bytes in each format to the bytes that reach the provider."""

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.e2e.provider import GOOD
from tests.quirks.running import Answer, post, running
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
HELLO: Json = {"model": "shop", "messages": [{"role": "user", "content": "hi"}]}
PATHS = ("/chat", "/v1/messages", "/v1/chat/completions")
KEY = "a-key-of-a-caller"


async def asked(path: str, body: Json, alias: Json, *, kind: str = "anthropic", **settings: Any) -> tuple[Answer, Json | None, list[Json]]:
    """The answer, the body that reached the provider, and the log's lines."""
    async with ScriptedUpstream(lambda _: GOOD) as upstream:
        provider = {"type": kind, "base_url": upstream.url, "api_key": "sk-of-the-gateway"}
        configuration = {"providers": {"p": provider}, "models": {"shop": {"targets": ["p/m"], "retry": {"attempts": 1}, **alias}}}
        async with running({**configuration, **settings}) as here:
            headers = {"x-api-key": KEY} if "access" in settings else {}
            answer = await post(here.port, body, path=path, headers=headers)
            seen = json.loads(upstream.requests[0].body) if upstream.requests else None
            return answer, seen, here.log.lines


def error(answer: Answer) -> str:
    message: str = json.loads(answer.body)["error"]["message"]
    return message


@pytest.mark.parametrize("path", PATHS)
async def test_the_aliass_text_reaches_the_provider_before_the_callers(path: str) -> None:
    own: Json = {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}
    if path == "/v1/messages":
        own = {"system": "Be brief.", "max_tokens": 5}
    for kind in ("anthropic", "openai"):
        _, seen, _ = await asked(path, {**HELLO, **own}, {"system": "Shop."}, kind=kind)
        assert seen is not None
        system = seen["system"] if kind == "anthropic" else seen["messages"][0]["content"]
        assert system == "Shop.\n\nBe brief."


@pytest.mark.parametrize("path", PATHS)
async def test_a_longer_answer_than_the_cap_is_lowered_and_the_log_says_so(path: str) -> None:
    _, seen, lines = await asked(path, {**HELLO, "max_tokens": 9000}, {"max_tokens": {"cap": 700}})
    assert seen is not None
    assert seen["max_tokens"] == 700
    assert lines[0]["warnings"] == ["max_tokens lowered to the alias's cap"]


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions"])
async def test_who_asks_for_no_length_gets_the_aliass(path: str) -> None:
    for kind in ("anthropic", "openai"):
        _, seen, _ = await asked(path, HELLO, {"max_tokens": {"default": 300, "cap": 700}}, kind=kind)
        assert seen is not None
        assert seen["max_tokens"] == 300


TOOLS: Json = {
    "/chat": {"name": "f", "input_schema": {"type": "object"}},
    "/v1/messages": {"name": "f", "input_schema": {"type": "object"}},
    "/v1/chat/completions": {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
}


@pytest.mark.parametrize("path", PATHS)
async def test_what_the_alias_does_not_allow_is_refused_before_anything_is_opened(path: str) -> None:
    answer, seen, lines = await asked(path, {**HELLO, "max_tokens": 5, "tools": [TOOLS[path]]}, {"allow": ["thinking"]})
    assert (answer.status, seen) == (400, None)
    assert error(answer) == "tools[0]: model 'shop' allows no tools; it allows thinking."
    assert (lines[0]["outcome"], lines[0]["error_code"]) == ("refused", "unsupported")


async def test_counting_tokens_obeys_the_alias_too() -> None:
    count = "/v1/messages/count_tokens"
    answer, seen, _ = await asked(count, {**HELLO, "tools": [TOOLS["/chat"]]}, {"allow": []})
    assert (answer.status, seen) == (400, None)
    _, seen, _ = await asked(count, {**HELLO, "system": "Be brief."}, {"system": "Shop."})
    assert seen is not None
    assert seen["system"] == "Shop.\n\nBe brief."


EXTRA: Json = {"/chat": {"extra": {"top_k": 5}}, "/v1/messages": {"top_k": 5}, "/v1/chat/completions": {"top_k": 5}}


@pytest.mark.parametrize("path", PATHS)
async def test_extra_allowed_covers_every_format(path: str) -> None:
    body = {**HELLO, "max_tokens": 5, **EXTRA[path]}
    kind = "openai" if path == "/v1/chat/completions" else "anthropic"
    answer, seen, _ = await asked(path, body, {"extra_allowed": ["seed"]}, kind=kind)
    assert (answer.status, seen) == (400, None)
    name = "extra.top_k" if path == "/chat" else "top_k"
    assert error(answer) == f"{name}: model 'shop' does not pass this key on; it passes seed."
    _, seen, _ = await asked(path, body, {"extra_allowed": ["seed", "top_k"]}, kind=kind)
    assert seen is not None
    assert seen["top_k"] == 5


async def test_where_callers_have_keys_nothing_passes_that_nobody_listed() -> None:
    access = {"keys": {"web": {"sha256": sha256(KEY.encode()).hexdigest()}}}
    for path, body, name in (
        ("/chat", {"extra": {"models": ["another/one"]}}, "extra.models"),
        ("/v1/chat/completions", {"models": ["another/one"]}, "models"),
        ("/v1/chat/completions", {"service_tier": "priority"}, "service_tier"),
    ):
        answer, seen, _ = await asked(path, {**HELLO, **body}, {}, kind="openai", access=access)
        assert (answer.status, seen) == (400, None)
        assert error(answer).startswith(f"{name}: model 'shop' does not pass this key on")
    answer, seen, _ = await asked("/v1/chat/completions", {**HELLO, "seed": 1, "presence_penalty": 0}, {}, kind="openai", access=access)
    assert seen is not None
    assert seen["seed"] == 1


@pytest.mark.parametrize("key", ["model", "messages", "stream", "max_tokens", "tools", "n"])
async def test_extra_can_never_write_what_the_gateway_writes(key: str) -> None:
    for kind in ("anthropic", "openai"):
        answer, seen, _ = await asked("/chat", {**HELLO, "extra": {key: 1}}, {}, kind=kind)
        assert (answer.status, seen) == (400, None)
        assert error(answer) == f"extra.{key}: the gateway writes this key itself."
