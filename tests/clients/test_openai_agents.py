"""OpenAI's Agents SDK with chat completions, at the provider and through the gateway.

https://openai.github.io/openai-agents-python/models/ · Its default is the Responses API, which the gateway does not have:
`OpenAIChatCompletionsModel`, or `set_default_openai_api("chat_completions")`.
"""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel

from tests.clients import trials
from tests.conformance.places import OPENAI_ROADS, gateway_over, openai_place
from tests.conformance.said import CASES, PARIS, ROME, Json, Said, claude, odd, plain
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio

set_tracing_disabled(True)  # it would tell OpenAI of every run
SETTINGS = ModelSettings(include_usage=True)  # else a stream tells none


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


@asynccontextmanager
async def agent(url: str, **options: Any) -> AsyncIterator[Agent]:
    async with trials.gpt(url) as client:
        model = OpenAIChatCompletionsModel(model="default", openai_client=client)
        yield Agent(name="test", instructions="Be brief.", model=model, model_settings=SETTINGS, **options)


def seen(result: RunResult | RunResultStreaming) -> Json:
    return {
        "input": result.to_input_list(),
        "output": result.final_output,
        "usage": [str(response.usage) for response in result.raw_responses],
    }


async def whole(url: str, **options: Any) -> Json:
    async with agent(url, **options) as asked:
        return seen(await Runner.run(asked, "How is the weather?"))


async def streamed(url: str, **options: Any) -> Json:
    async with agent(url, **options) as asked:
        result = Runner.run_streamed(asked, "How is the weather?")
        kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    return seen(result)


ANSWERS = [(where, name) for where, name in OPENAI_ROADS if not CASES[name].calls]


@pytest.mark.parametrize(("where", "name"), ANSWERS)
async def test_a_run_is_the_same_through_the_gateway(where: str, name: str) -> None:
    async with openai_place("direct", CASES[name]) as direct, openai_place(where, CASES[name]) as through:
        for way in (whole, streamed):
            assert await way(through) == await way(direct), way.__name__


@pytest.mark.parametrize("calls", [(PARIS,), (PARIS, ROME)], ids=["one call", "two calls"])
async def test_a_tool_loop_is_the_same_through_the_gateway(calls: Any) -> None:
    first = Said(thinking=("Hm.",), text=("I look.",), calls=calls, finish="tool_calls")
    then = Said(text=("Take", " an umbrella."))
    seen: list[Any] = []
    bodies: list[Json] = []
    async with ScriptedUpstream(trials.twice(plain(first), plain(then))) as upstream:
        for way in (whole, streamed):
            seen.append(await way(upstream.url, tools=[weather]))
        bodies += [json.loads(request.body) for request in upstream.requests]
    assert [one["output"] for one in seen] == ["Take an umbrella."] * 2
    results = [item["output"] for item in seen[0]["input"] if item.get("type") == "function_call_output"]
    assert results == ["It rains in Paris.", "It rains in Rome."][: len(calls)]
    for write, kind in ((plain, "openai"), (odd, "openai"), (claude, "anthropic")):
        async with gateway_over(trials.twice(write(first), write(then)), kind) as (url, upstream, _):
            for way, direct in zip((whole, streamed), seen, strict=True):
                assert await way(url, tools=[weather]) == direct, write.__name__
            assert len(upstream.requests) == len(bodies)


class City(BaseModel):
    name: str


async def test_a_structured_output_is_validated() -> None:
    said = Said(text=('{"name":', ' "Paris"}'))
    for where in ("direct", "openai", "odd", "claude"):
        async with openai_place(where, said) as url:
            for way in (whole, streamed):
                assert (await way(url, output_type=City))["output"] == City(name="Paris"), where


async def test_who_asks_for_the_responses_api_is_told_what_to_use(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "openai.agents")
    async with gateway_over(plain(CASES["text"])) as (url, upstream, _), trials.gpt(url) as client:
        asked = Agent(name="test", model=OpenAIResponsesModel(model="default", openai_client=client))
        with pytest.raises(openai.NotFoundError) as raised:
            await Runner.run(asked, "hi", run_config=RunConfig(tracing_disabled=True))
        assert not upstream.requests
    assert raised.value.code == "unsupported"
    assert "/v1/chat/completions" in raised.value.message


# ---- errors and leaving

RAISES = {401: openai.AuthenticationError, 429: openai.RateLimitError, 500: openai.InternalServerError}


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("status", trials.REFUSALS)
async def test_a_refusal_raises_its_class(status: int, ask: trials.Ask) -> None:
    direct, passed = await trials.refused(ask, "openai", status)
    assert type(passed) is type(direct) is RAISES[status]


async def test_an_error_inside_the_stream_raises_as_it_does_at_the_provider() -> None:
    direct, *passed = await trials.broken(streamed, "openai")
    for error in passed:
        assert type(error) is type(direct) is openai.APIError
        assert "Too busy." in str(error)


@asynccontextmanager
async def breaking(url: str) -> AsyncIterator[None]:
    """The run goes on in a task of its own."""
    async with agent(url) as asked:
        result = Runner.run_streamed(asked, "hi")
        async for _event in result.stream_events():
            break
        yield
        result.cancel()


async def test_a_break_alone_lets_the_run_go_on_until_it_is_cancelled() -> None:
    await trials.stayed(breaking, "openai")


@asynccontextmanager
async def cancelling(url: str) -> AsyncIterator[None]:
    async with agent(url) as asked:
        result = Runner.run_streamed(asked, "hi")
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                result.cancel()
        yield


@asynccontextmanager
async def cancelled(url: str) -> AsyncIterator[None]:
    async with agent(url) as asked:
        with anyio.CancelScope() as scope:
            async for event in Runner.run_streamed(asked, "hi").stream_events():
                if event.type == "raw_response_event":
                    scope.cancel()
        yield


@pytest.mark.parametrize("leaving", [cancelling, cancelled])
async def test_whoever_leaves_the_run_stops_the_provider(leaving: trials.Leaving) -> None:
    await trials.left(leaving, "openai")
