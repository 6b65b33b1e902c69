"""The official Python SDK of Claude, once at the provider itself and once through the gateway: it must not see a difference.

https://github.com/anthropics/anthropic-sdk-python
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import anyio
import anyio.to_thread
import pydantic
import pytest

from gateway.routing import Caller, Streaming
from gateway.simulator import Hang, Script, Send, Wait
from gateway.wiring import Access
from tests.conformance import claude_wire
from tests.conformance.claude_wire import MESSAGES, MUTATIONS, SSE, events, frame, message, refusing, stream, telling, text
from tests.conformance.heartbeats import Heartbeats
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Answer, Request, Respond, ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
ASKED: Json = {"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello?"}]}
KEY = "sk-ant-the-callers-key"


@asynccontextmanager
async def both(
    respond: Respond, kind: str = "anthropic", wrap: Callable[[Any], Any] | None = None, **wired: Any
) -> AsyncIterator[tuple[ScriptedUpstream, Running]]:
    async with ScriptedUpstream(respond) as upstream, running(wiring(provider(upstream.url, kind=kind), **wired), wrap=wrap) as gateway:
        yield upstream, gateway


def client(url: str, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(**{"base_url": url, "api_key": KEY, "max_retries": 0, **options})


def url(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


# The ways to ask. Each returns what the program sees, as plain values.


async def created(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> Json:
    return (await claude.messages.create(**asked)).model_dump(warnings=False)


async def iterated(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> list[Json]:
    return [event.model_dump(warnings=False) async for event in await claude.messages.create(**asked, stream=True)]


async def streamed(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> Json:
    async with claude.messages.stream(**asked) as stream:
        texts = [piece async for piece in stream.text_stream]
        return {**(await stream.get_final_message()).model_dump(warnings=False), "texts": texts}


async def helped(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> list[Json]:
    async with claude.messages.stream(**asked) as stream:
        return [event.model_dump(warnings=False) async for event in stream]


async def created_beta(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> Json:
    return (await claude.beta.messages.create(**asked)).model_dump(warnings=False)


async def streamed_beta(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> Json:
    async with claude.beta.messages.stream(**asked) as stream:
        return (await stream.get_final_message()).model_dump(warnings=False)


async def blocking(claude: anthropic.AsyncAnthropic, asked: Json = ASKED) -> list[Any]:
    def ask() -> list[Any]:
        with anthropic.Anthropic(base_url=claude.base_url, api_key=KEY, max_retries=0) as blocked:
            whole = blocked.messages.create(**asked).model_dump(warnings=False)
            raw = [event.model_dump(warnings=False) for event in blocked.messages.create(**asked, stream=True)]
            with blocked.messages.stream(**asked) as stream:
                return [whole, raw, list(stream.text_stream), stream.get_final_message().model_dump(warnings=False)]

    return await anyio.to_thread.run_sync(ask)


WAYS: dict[str, Callable[[anthropic.AsyncAnthropic, Json], Awaitable[Any]]] = {
    "create": created,
    "iterated": iterated,
    "text_stream and get_final_message": streamed,
    "the helper's events": helped,
    "beta create": created_beta,
    "beta stream": streamed_beta,
    "blocking": blocking,
}


async def all_messages(way: Callable[[anthropic.AsyncAnthropic, Json], Awaitable[Any]], url: str) -> Json:
    """What the program sees of each of `MESSAGES`, by its name."""
    async with client(url) as claude:
        return {name: await way(claude, {**ASKED, "metadata": {"user_id": name}}) for name in MESSAGES}


def told_by(write: Callable[[Json], Script] | None = None) -> Respond:
    """A provider that says the message whose name it is asked for: as `write` does, or as a good provider would."""

    def respond(request: Request) -> Answer:
        said = MESSAGES[json.loads(request.body)["metadata"]["user_id"]]
        return write(said) if write else telling(said)(request)

    return respond


@pytest.mark.parametrize("way", WAYS)
async def test_every_message_is_the_very_same_through_the_gateway(way: str) -> None:
    async with both(told_by()) as (upstream, gateway):
        direct = await all_messages(WAYS[way], upstream.url)
        assert await all_messages(WAYS[way], url(gateway)) == direct


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda one: one.__name__)
async def test_what_a_relay_mangled_is_mended_on_the_way(mutate: Callable[[Json], Script]) -> None:
    ways = (created, streamed)
    async with both(told_by()) as (upstream, _):
        direct = [_without_texts(await all_messages(way, upstream.url)) for way in ways]
    async with both(told_by(mutate)) as (_, gateway):
        assert [_without_texts(await all_messages(way, url(gateway))) for way in ways] == direct


def _without_texts(seen: Json) -> Json:
    """How a text is cut into pieces is the relay's."""
    return {name: {**message, "texts": "".join(message.get("texts", ()))} for name, message in seen.items()}


# Requests.

REQUEST: Json = {
    "model": "default",
    "max_tokens": 3000,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": "Hello?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ=="},
                {"type": "text", "text": "Let me look.", "citations": None},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}, "caller": {"type": "direct"}},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                claude_wire.SEARCHED,
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no"}, {"type": "tool_reference", "tool_name": "other"}],
                },
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "A fact."},
                    "citations": {"enabled": True},
                    "title": "Facts",
                },
                {"type": "hologram", "of": "x"},
                {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": "The user is in a hurry."},
    ],
    "tools": [
        {"name": "weather", "description": "It rains.", "input_schema": {"type": "object"}, "strict": True, "defer_loading": False},
        {"type": "web_search_20260318", "name": "web_search", "max_uses": 3},
    ],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "adaptive", "display": "omitted"},
    "output_config": {"effort": "xhigh", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "stop_sequences": ["STOP"],
    "metadata": {"user_id": "u-1"},
    "service_tier": "standard_only",
    "inference_geo": "eu",
    "container": "container_1",
    "cache_control": {"type": "ephemeral"},
    "speed": "fast",
    "diagnostics": {"previous_message_id": "msg_0"},
}
BETA: Json = {
    "mcp_servers": [{"type": "url", "name": "mine", "url": "https://mcp.example", "authorization_token": "tok"}],
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
    "fallbacks": "default",
    "betas": ["mcp-client-2025-11-20", "context-management-2025-06-27"],
    "extra_body": {"top_k": 40, "compaction": {"type": "summarize"}},
}


async def test_a_request_reaches_claude_as_the_program_wrote_it() -> None:
    async with both(telling(message(text("ok")))) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude:
                await claude.messages.create(**REQUEST)
        direct, passed = (json.loads(request.body) for request in upstream.requests)
    assert passed == {**direct, "model": "m", "stream": True}


async def test_beta_fields_and_their_header_reach_claude() -> None:
    async with both(telling(message(text("ok")))) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude:
                await claude.beta.messages.create(**REQUEST, **BETA)
        direct, passed = upstream.requests
    assert json.loads(passed.body) == {**json.loads(direct.body), "model": "m", "stream": True}
    assert passed.headers["anthropic-beta"] == direct.headers["anthropic-beta"]
    assert KEY not in str(passed.headers), "the caller's key stays here"


async def test_older_clients_may_say_beta_in_the_query_and_any_version() -> None:
    async with both(telling(message(text("ok")))) as (_, gateway), client(url(gateway)) as claude:
        said = await claude.messages.create(**ASKED, extra_query={"beta": "true"}, extra_headers={"anthropic-version": "2031-01-01"})
    assert said.content[0].text == "ok"  # type: ignore[union-attr]


async def test_the_request_id_is_where_the_sdk_looks_for_it() -> None:
    async with both(telling(message(text("ok")))) as (_, gateway), client(url(gateway)) as claude:
        said = await claude.messages.create(**ASKED, extra_headers={"x-request-id": "mine-1"})
    assert said._request_id == "mine-1"


# What the SDK builds upon it.


async def test_the_tool_runner_runs_a_tool_and_asks_again() -> None:
    asked_for: list[str] = []

    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        """The weather of a city."""
        asked_for.append(city)
        return "It rains."

    called = message(text("Let me look."), claude_wire.call("toolu_1", "weather", {"city": "Bern"}), stop_reason="tool_use")
    answers = one_after_another(stream(called), stream(message(text("Take an umbrella."))))
    async with both(answers) as (upstream, gateway), client(url(gateway)) as claude:
        runner = claude.beta.messages.tool_runner(**ASKED, tools=[weather])
        final = await runner.until_done()
        told = json.loads(upstream.requests[1].body)["messages"]
    assert asked_for == ["Bern"], "and the SDK went on without the thread that it would rather have had"
    assert final.content[0].text == "Take an umbrella."  # type: ignore[union-attr]
    assert [part["role"] for part in told] == ["user", "assistant", "user"]
    assert told[2]["content"][0]["tool_use_id"] == "toolu_1"


class Capital(pydantic.BaseModel):
    city: str
    people: int


async def test_a_structured_output_is_parsed() -> None:
    said = message(text('{"city": "Bern", "people": 134000}'))
    async with both(telling(said)) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude:
                parsed = await claude.messages.parse(**ASKED, output_format=Capital)
                assert parsed.parsed_output == Capital(city="Bern", people=134000)
        direct, passed = (json.loads(request.body) for request in upstream.requests)
    assert passed["output_config"] == direct["output_config"]


async def test_the_models_are_listed() -> None:
    async with both(lambda _: b"") as (_, gateway), client(url(gateway)) as claude:
        assert [model.id async for model in claude.models.list()] == ["default"]


async def test_whoever_leaves_a_stream_closes_the_upstream() -> None:
    begun = tuple(Send(frame(event)) for event in events(MESSAGES["text"])[:4])
    async with both(lambda _: Script(200, SSE, (*begun, Hang()))) as (upstream, gateway), client(url(gateway)) as claude:
        async with claude.messages.stream(**ASKED) as stream:
            assert await anext(stream.text_stream)
        await (await upstream.request()).until_closed()
        assert (await gateway.record())["outcome"] == "client_disconnected"


async def test_gateways_can_be_chained() -> None:
    async with both(told_by()) as (upstream, inner), running(wiring(provider(url(inner)), targets=["claude/default"])) as outer:
        for way in (created, streamed):
            assert await all_messages(way, url(outer)) == await all_messages(way, upstream.url)


# Counting.


async def test_tokens_are_counted_by_the_provider() -> None:
    def respond(request: Request) -> Script:
        return Script(200, claude_wire.JSON, (Send(b'{"input_tokens": 2095}'),))

    counted = {key: value for key, value in REQUEST.items() if key in ("model", "messages", "system", "tools", "tool_choice", "thinking")}
    async with both(respond) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude:
                assert (await claude.messages.count_tokens(**counted)).input_tokens == 2095
        direct, passed = upstream.requests
    assert passed.path == direct.path == "/v1/messages/count_tokens"
    assert json.loads(passed.body) == {**json.loads(direct.body), "model": "m"}


async def test_tokens_are_not_counted_without_a_claude_target() -> None:
    async with both(lambda _: b"", kind="openai") as (upstream, gateway), client(url(gateway)) as claude:
        with pytest.raises(anthropic.NotFoundError) as raised:
            await claude.messages.count_tokens(model="default", messages=[{"role": "user", "content": "Hello?"}])
        assert not upstream.requests
    assert raised.value.body["error"]["details"] == {"error_code": "unsupported"}  # type: ignore[index]


async def test_a_refused_count_is_told_as_the_provider_told_it() -> None:
    async with both(lambda _: refusing(429, "rate_limit_error", retry_after="9")) as (_, gateway), client(url(gateway)) as claude:
        with pytest.raises(anthropic.RateLimitError) as raised:
            await claude.messages.count_tokens(model="default", messages=[{"role": "user", "content": "Hello?"}])
    assert raised.value.response.headers["retry-after"] == "9"


async def test_a_client_that_leaves_while_tokens_are_counted_closes_the_upstream() -> None:
    async with both(lambda _: Script(200, claude_wire.JSON, (Hang(),))) as (upstream, gateway):
        async with client(url(gateway)) as claude, anyio.create_task_group() as group:
            group.start_soon(lambda: claude.messages.count_tokens(model="default", messages=ASKED["messages"]))
            asked = await upstream.request()
            group.cancel_scope.cancel()
        await asked.until_closed()
        await gateway.until_idle()


# Errors.

REFUSALS = {400: "invalid_request_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
REFUSALS |= {500: "api_error", 529: "overloaded_error"}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refusal_raises_the_same_exception(status: int, streaming: bool) -> None:
    seen: list[anthropic.APIStatusError] = []
    async with both(lambda _: refusing(status, REFUSALS[status], retry_after="7")) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude:
                with pytest.raises(anthropic.APIStatusError) as raised:
                    await claude.messages.create(**ASKED, stream=streaming)
                seen.append(raised.value)
    direct, passed = seen
    assert type(passed) is type(direct)
    assert passed.type == direct.type == REFUSALS[status]
    assert passed.status_code == (502 if status == 500 else status)
    assert passed.request_id
    assert f"The provider says {status}." in passed.message
    if status in (429, 529):
        assert passed.response.headers["retry-after"] == "7"


async def test_a_wrong_key_raises_the_sdks_own_exception() -> None:
    access = Access(callers=(Caller("web", b"\0" * 32),))
    async with both(lambda _: b"", access=access) as (upstream, gateway), client(url(gateway)) as claude:
        with pytest.raises(anthropic.AuthenticationError) as raised:
            await claude.messages.create(**ASKED)
        assert not upstream.requests
    assert raised.value.type == "authentication_error"
    assert raised.value.request_id == raised.value.response.headers["x-request-id"]


async def test_an_unknown_model_is_not_found() -> None:
    async with both(lambda _: b"") as (_, gateway), client(url(gateway)) as claude:
        with pytest.raises(anthropic.NotFoundError) as raised:
            await claude.messages.create(**{**ASKED, "model": "claude-opus-9"})
    assert raised.value.type == "not_found_error"


async def test_a_request_beyond_the_gateways_limit_is_too_large() -> None:
    async with both(lambda _: b"") as (_, gateway), client(url(gateway)) as claude:
        with pytest.raises(anthropic.APIStatusError) as raised:
            await claude.messages.create(**{**ASKED, "messages": [{"role": "user", "content": "x" * (11 << 20)}]})
    assert (raised.value.status_code, raised.value.type) == (413, "request_too_large")


async def test_an_error_inside_the_stream_raises_as_it_does_directly() -> None:
    failure = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    broken = Script(200, SSE, tuple(Send(frame(event)) for event in [*events(MESSAGES["text"])[:4], failure]))
    seen: list[tuple[str, anthropic.APIStatusError]] = []
    async with both(lambda _: broken) as (upstream, gateway):
        for base in (upstream.url, url(gateway)):
            async with client(base) as claude, claude.messages.stream(**ASKED) as stream:
                seen.append(await _until_it_breaks(stream.text_stream))
    (told, direct), (passed_on, passed) = seen
    assert passed_on == told
    assert (type(passed), passed.status_code, passed.type) == (type(direct), direct.status_code, "overloaded_error")


async def _until_it_breaks(texts: AsyncIterator[str]) -> tuple[str, anthropic.APIStatusError]:
    told = ""
    try:
        async for piece in texts:
            told += piece
    except anthropic.APIStatusError as error:
        return told, error
    raise AssertionError("it did not break")


async def test_a_stream_that_breaks_off_is_an_error_even_where_the_provider_says_nothing() -> None:
    broken = Script(200, SSE, tuple(Send(frame(event)) for event in events(MESSAGES["text"])[:4]))
    async with both(lambda _: broken) as (_, gateway), client(url(gateway)) as claude, claude.messages.stream(**ASKED) as stream:
        with pytest.raises(anthropic.APIStatusError) as raised:
            await stream.get_final_message()
    assert raised.value.type == "api_error"
    assert raised.value.body["error"]["details"] == {"error_code": "stream_interrupted"}  # type: ignore[index]


async def test_the_sdk_asks_again_as_it_would_at_the_provider() -> None:
    answers = one_after_another(refusing(529, "overloaded_error"), stream(MESSAGES["text"]))
    async with both(answers) as (upstream, gateway), client(url(gateway), max_retries=2) as claude:
        said = await claude.messages.create(**ASKED)
        assert said.model_dump(warnings=False)["content"][0]["text"] == MESSAGES["text"]["content"][0]["text"]
        assert len(upstream.requests) == 2


async def test_the_sdk_does_not_ask_again_where_nothing_would_come_of_it() -> None:
    async with both(lambda _: refusing(401, "authentication_error")) as (upstream, gateway):
        async with client(url(gateway), max_retries=2) as claude:
            with pytest.raises(anthropic.InternalServerError) as raised:
                await claude.messages.create(**ASKED)
        assert len(upstream.requests) == 1
    assert raised.value.status_code == 502


@pytest.mark.parametrize("way", WAYS)
async def test_silence_is_bridged_by_pings_that_the_sdk_does_not_mind(way: str) -> None:
    """A minute of it before the first word and one after the first piece of it, four hundred times as fast."""

    def slow(said: Json) -> Script:
        start, block, piece, *rest = (Send(frame(event)) for event in events(said))
        return Script(200, SSE, (Wait(0.15), start, block, piece, Wait(0.15), *rest))

    beats = Heartbeats()
    streaming = Streaming(heartbeat=15 / 400, commit_after=5 / 400)
    async with both(told_by()) as (upstream, _), both(told_by(slow), wrap=beats.around, streaming=streaming) as (_, gateway):
        for name in ("text", "thinking", "parallel tools"):
            asked = {**ASKED, "metadata": {"user_id": name}}
            async with client(upstream.url) as direct, client(url(gateway)) as passed:
                assert await WAYS[way](passed, asked) == await WAYS[way](direct, asked)
    assert beats.sent >= (0 if "create" in way else 3)


# Other providers.


def _chunk(delta: Json, finish: str | None = None, **fields: Any) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test", "choices": choices, **fields}
    return b"data: %b\n\n" % json.dumps(whole).encode()


async def test_an_openai_provider_answers_a_claude_program() -> None:
    function = {"name": "weather", "arguments": '{"city": '}
    chunks = [
        _chunk({"role": "assistant", "content": ""}),
        _chunk({"reasoning_content": "Hm."}),
        _chunk({"content": "Let me "}),
        _chunk({"content": "look."}),
        _chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}),
        _chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Bern"}'}}]}),
        _chunk({}, "tool_calls"),
        _chunk({}, choices=[], usage={"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}),
        b"data: [DONE]\n\n",
    ]
    spoken = Script(200, SSE, tuple(Send(chunk) for chunk in chunks))
    async with both(lambda _: spoken, kind="openai") as (_, gateway), client(url(gateway)) as claude:
        whole, final = await created(claude), await streamed(claude)
    assert "".join(final["texts"]) == "Let me look."
    for said in (whole, final):
        thought, told, called = said["content"]
        assert thought["thinking"] == "Hm."
        assert told["text"] == "Let me look."
        assert (called["id"], called["name"], called["input"]) == ("call_1", "weather", {"city": "Bern"})
        assert (said["role"], said["model"], said["stop_reason"]) == ("assistant", "gpt-test", "tool_use")
        usage = said["usage"]
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (12, 8, 9)


async def test_what_only_claude_has_words_for_is_left_out_elsewhere() -> None:
    spoken = Script(200, SSE, (Send(_chunk({"role": "assistant", "content": "ok"}, "stop")), Send(b"data: [DONE]\n\n")))
    async with both(lambda _: spoken, kind="openai") as (upstream, gateway), client(url(gateway)) as claude:
        await claude.messages.create(**ASKED, service_tier="auto", extra_body={"top_k": 5})
        asked = json.loads(upstream.requests[0].body)
        record = await gateway.record()
    assert not {"service_tier", "top_k"} & set(asked)
    assert [warning for warning in record["warnings"] if "what only anthropic has words for" in warning]
