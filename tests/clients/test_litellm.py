"""LiteLLM as a client, in OpenAI's and in Claude's words, at the provider and through the gateway.

https://docs.litellm.ai/docs/providers/openai_compatible · https://docs.litellm.ai/docs/providers/anthropic · In OpenAI's words a stream
has the provider's usage only if `stream_options` asks for it; LiteLLM counts by itself otherwise.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import litellm
import pytest
from pydantic import BaseModel

from tests.clients import trials
from tests.conformance.claude_wire import MESSAGES
from tests.conformance.places import CLAUDE_ROADS, OPENAI_ROADS, claude_place, gateway_over, openai_place
from tests.conformance.said import CASES, PARIS, WEATHER, Json, Said, claude, plain
from tests.upstream import Respond, ScriptedUpstream

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Accessing the 'model_.*fields' attribute:DeprecationWarning"),  # it does
    pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning"),  # of its own classes, while they are imported
]

SPEAKS = ("openai", "anthropic")
ROADS = [("openai", *road) for road in OPENAI_ROADS] + [("anthropic", *road) for road in CLAUDE_ROADS]
PLACES: dict[str, Callable[[str, Any], Any]] = {"openai": openai_place, "anthropic": claude_place}
OWN: dict[str, Callable[[Said], Respond]] = {"openai": plain, "anthropic": claude}
USER: Json = {"role": "user", "content": "hi"}


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    """It keeps its clients for the life of the process, and each test has a loop of its own."""
    yield
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


async def completion(speaks: str, url: str, *messages: Json, **options: Any) -> Any:
    base = f"{url}/v1" if speaks == "openai" else url
    asked = {"model": f"{speaks}/default", "api_base": base, "api_key": trials.KEY, "max_retries": 0, "messages": list(messages) or [USER]}
    return await litellm.acompletion(**asked, **options)


def seen(answer: Any) -> Json:
    """All that it made of it, but for ids and times."""
    return {key: value for key, value in answer.model_dump().items() if key not in ("id", "created")}


async def asked(speaks: str, url: str) -> Json:
    return seen(await completion(speaks, url))


async def streamed(speaks: str, url: str) -> Json:
    stream = await completion(speaks, url, stream=True, stream_options={"include_usage": True})
    return seen(litellm.stream_chunk_builder([chunk async for chunk in stream]))


SEALED = frozenset({"signature", "thinking_blocks", "provider_specific_fields"})


def unsealed(value: Any) -> Any:
    """Without the thinking with its signature, which OpenAI has no place for; as `reasoning_content` it is still there."""
    if isinstance(value, dict):
        return {key: unsealed(one) for key, one in value.items() if key not in SEALED}
    return [unsealed(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("speaks", "where", "name"), ROADS)
async def test_an_answer_is_the_same_through_the_gateway(speaks: str, where: str, name: str) -> None:
    same = unsealed if speaks == "anthropic" and where in ("openai", "odd") else lambda value: value
    place, said = PLACES[speaks], CASES[name]
    async with place("direct", said) as direct, place(where, said) as through:
        for way in (asked, streamed):
            assert same(await way(speaks, through)) == same(await way(speaks, direct)), way.__name__


@pytest.mark.parametrize("where", ["claude", "mangled"])
@pytest.mark.parametrize("name", MESSAGES)
async def test_what_only_claude_says_is_the_same_too(where: str, name: str) -> None:
    said = MESSAGES[name]
    async with claude_place("direct", said) as direct, claude_place(where, said) as through:
        for way in (asked, streamed):
            assert await way("anthropic", through) == await way("anthropic", direct), way.__name__


# ---- tools


async def looped(speaks: str, url: str) -> list[Json]:
    history: list[Any] = [USER]
    stream = await completion(speaks, url, *history, tools=[WEATHER], stream=True)
    first = litellm.stream_chunk_builder([chunk async for chunk in stream]).choices[0].message
    history.append(first.model_dump(exclude_none=True))
    for call in first.tool_calls:
        city = json.loads(call.function.arguments)["city"]
        history.append({"role": "tool", "tool_call_id": call.id, "content": f"It rains in {city}."})
    last = (await completion(speaks, url, *history, tools=[WEATHER])).choices[0]
    return [*history, last.model_dump(exclude_none=True)]


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_a_tool_loop_is_the_same_through_the_gateway(speaks: str) -> None:
    def respond(kind: str) -> Respond:
        called = Said(thinking=("Hm.",), text=("I look.",), calls=(PARIS,), finish="tool_calls")
        return trials.twice(OWN[kind](called), OWN[kind](Said(text=("Take", " an umbrella."))))

    async with ScriptedUpstream(respond(speaks)) as upstream:
        direct = await looped(speaks, upstream.url)
    assert direct[-1]["message"]["content"] == "Take an umbrella."
    for kind in SPEAKS:
        async with gateway_over(respond(kind), kind) as (url, _, _gateway):
            assert unsealed(await looped(speaks, url)) == unsealed(direct), kind


class City(BaseModel):
    name: str


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_a_structured_output_is_what_the_schema_says(speaks: str) -> None:
    # In Claude's words it asks for a call of a tool of its own.
    called = Said(calls=(("call_1", "json_tool_call", ('{"name":', ' "Paris"}')),), finish="tool_calls")
    said = called if speaks == "anthropic" else Said(text=('{"name":', ' "Paris"}'))
    for where in sorted({where for other, where, _ in ROADS if other == speaks} | {"direct"}):
        async with PLACES[speaks](where, said) as url:
            answer = await completion(speaks, url, response_format=City)
            assert City.model_validate_json(answer.choices[0].message.content) == City(name="Paris"), where


# ---- errors and leaving

RAISES = {401: litellm.AuthenticationError, 429: litellm.RateLimitError, 500: litellm.InternalServerError}


def whole(speaks: str) -> trials.Ask:
    return lambda url: asked(speaks, url)


def in_stream(speaks: str) -> trials.Ask:
    return lambda url: streamed(speaks, url)


@pytest.mark.parametrize("way", [whole, in_stream])
@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("status", trials.REFUSALS)
async def test_a_refusal_raises_its_class(status: int, speaks: str, way: Callable[[str], trials.Ask]) -> None:
    direct, passed = await trials.refused(way(speaks), speaks, status)
    assert type(direct) is RAISES[status]
    assert type(passed) is (litellm.BadGatewayError if status == 500 else RAISES[status])


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_an_error_inside_the_stream_raises_as_it_does_at_the_provider(speaks: str) -> None:
    direct, *passed = await trials.broken(in_stream(speaks), speaks)
    for error in passed:
        assert type(error) is type(direct)
        assert "Too busy." in str(error)


def breaking(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        stream = await completion(speaks, url, stream=True)
        async for _chunk in stream:
            break
        yield
        await stream.aclose()  # forgetting it would not do, either

    return leaving


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_a_break_alone_leaves_the_stream_open_until_it_is_closed(speaks: str) -> None:
    await trials.stayed(breaking(speaks), speaks)


def closing(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        async with aclosing(await completion(speaks, url, stream=True)) as stream:
            await anext(stream)
        yield

    return leaving


def cancelling(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        with anyio.CancelScope() as scope:
            async for _chunk in await completion(speaks, url, stream=True):
                scope.cancel()
        yield

    return leaving


@pytest.mark.parametrize("leave", [closing, cancelling])
@pytest.mark.parametrize("speaks", SPEAKS)
async def test_whoever_leaves_the_stream_stops_the_provider(speaks: str, leave: Callable[[str], trials.Leaving]) -> None:
    await trials.left(leave(speaks), speaks)
