"""LangChain's ChatAnthropic, at the provider and through the gateway.

https://docs.langchain.com/oss/python/integrations/chat/anthropic
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import reduce
from operator import add
from typing import Any

import anthropic
import anyio
import anyio.to_thread
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_anthropic._client_utils import _get_default_async_httpx_client, _get_default_httpx_client
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from tests.clients import trials
from tests.conformance import claude_wire
from tests.conformance.claude_wire import MESSAGES
from tests.conformance.places import CLAUDE_ROADS, claude_place, gateway_over
from tests.conformance.said import CASES, PARIS, Json, Said, plain
from tests.upstream import ScriptedUpstream

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),  # of blocks that the SDK does not know
    pytest.mark.filterwarnings("ignore:Received unexpected tool content block:UserWarning"),  # for tools it was not given
]


@asynccontextmanager
async def at(url: str, **options: Any) -> AsyncIterator[ChatAnthropic]:
    model = ChatAnthropic(model="default", base_url=url, api_key=trials.KEY, **{"max_retries": 0, "max_tokens": 2000, **options})  # type: ignore[arg-type]
    try:
        yield model
    finally:
        # Its httpx clients live as long as the process does, closed or not, for whoever asks at the same address; and ports come again.
        await model._async_client.close()
        model._client.close()
        _get_default_async_httpx_client.cache_clear()
        _get_default_httpx_client.cache_clear()


def seen(message: BaseMessage) -> Json:
    """All that LangChain made of it but its own random id."""
    return {**message.model_dump(), "id": None}


async def invoked(model: Any) -> Json:
    return seen(await model.ainvoke("hi"))


async def streamed(model: Any) -> Json:
    return seen(reduce(add, [chunk async for chunk in model.astream("hi")]))


async def blocking(model: Any) -> list[Json]:
    def ask() -> list[Json]:
        return [seen(model.invoke("hi")), seen(reduce(add, model.stream("hi")))]

    return await anyio.to_thread.run_sync(ask)


WAYS: list[Callable[[Any], Awaitable[Any]]] = [invoked, streamed, blocking]


def unsigned(value: Any) -> Any:
    """Without the signatures of thinking, which OpenAI has no place for, and without the `{}` that Claude leaves unsaid."""
    if isinstance(value, dict):
        return {key: unsigned(one) for key, one in value.items() if key != "signature" and one not in ("{}", "")}
    return [unsigned(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("where", "name"), CLAUDE_ROADS)
async def test_langchain_makes_the_same_of_an_answer_whoever_gives_it(where: str, name: str) -> None:
    same = unsigned if where in ("openai", "odd") else lambda value: value
    async with (
        claude_place("direct", CASES[name]) as direct,
        claude_place(where, CASES[name]) as through,
        at(direct) as there,
        at(through) as here,
    ):
        for way in WAYS:
            assert same(await way(here)) == same(await way(there)), way.__name__


@pytest.mark.parametrize("where", ["claude", "mangled"])
@pytest.mark.parametrize("name", MESSAGES)
async def test_what_only_claude_says_is_the_same_too(where: str, name: str) -> None:
    said = MESSAGES[name]
    async with claude_place("direct", said) as direct, claude_place(where, said) as through, at(direct) as there, at(through) as here:
        assert await invoked(here) == await invoked(there)
        assert await streamed(here) == await streamed(there)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


THOUGHT = claude_wire.message(
    claude_wire.THINKING, claude_wire.text("I look."), claude_wire.call("toolu_1", "weather", {"city": "Paris"}), stop_reason="tool_use"
)
ANSWERED = claude_wire.message(claude_wire.text("Take an umbrella."))


async def looped(url: str) -> list[Json]:
    """The whole conversation, with one streamed answer and one whole one."""
    history: list[BaseMessage] = [HumanMessage("How is the weather?")]
    async with at(url, thinking={"type": "enabled", "budget_tokens": 1024}) as model:
        able = model.bind_tools([weather])
        history.append(reduce(add, [chunk async for chunk in able.astream(history)]))
        history += [await weather.ainvoke(call) for call in history[-1].tool_calls]
        history.append(await able.ainvoke(history))
    return [seen(message) for message in history]


async def test_a_tool_loop_with_signed_thinking_is_the_same_through_the_gateway() -> None:
    respond = trials.twice(claude_wire.telling(THOUGHT), claude_wire.telling(ANSWERED))
    async with ScriptedUpstream(respond) as upstream:
        direct = await looped(upstream.url)
        asked = [json.loads(request.body) for request in upstream.requests]
    async with gateway_over(respond, "anthropic") as (url, upstream, _):
        assert await looped(url) == direct
        assert [json.loads(request.body) for request in upstream.requests] == [{**body, "model": "m", "stream": True} for body in asked]
    assert direct[-1]["content"] == "Take an umbrella."
    assert asked[1]["messages"][1]["content"][0]["signature"] == claude_wire.THINKING["signature"]


async def test_a_tool_loop_runs_over_an_openai_provider() -> None:
    first = Said(thinking=("Hm.",), text=("I look.",), calls=(PARIS,), finish="tool_calls")
    respond = trials.twice(plain(first), plain(Said(text=("Take an umbrella.",))))
    async with gateway_over(respond, "openai") as (url, upstream, _):
        found = await looped(url)
        told = json.loads(upstream.requests[1].body)["messages"]
    assert found[-1]["content"] == "Take an umbrella."
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]
    assert told[1]["tool_calls"][0]["id"] == told[2]["tool_call_id"] == "call_1"


class City(BaseModel):
    """A city."""

    name: str


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
async def test_a_structured_output_is_parsed(method: Any) -> None:
    called = Said(calls=(("call_1", "City", ('{"name":', ' "Paris"}')),), finish="tool_calls")
    said = called if method == "function_calling" else Said(text=('{"name":', ' "Paris"}'))
    for where in ("direct", "claude", "mangled", "openai", "odd"):
        async with claude_place(where, said) as url, at(url) as model:
            asking = model.with_structured_output(City, method=method)
            assert await asking.ainvoke("A city?") == City(name="Paris"), where
            assert [part async for part in asking.astream("A city?")][-1] == City(name="Paris"), where


# ---- errors and leaving


async def whole(url: str) -> Json:
    async with at(url) as model:
        return await invoked(model)


async def in_stream(url: str) -> Json:
    async with at(url) as model:
        return await streamed(model)


RAISES = {401: anthropic.AuthenticationError, 429: anthropic.RateLimitError, 500: anthropic.InternalServerError}


@pytest.mark.parametrize("ask", [whole, in_stream])
@pytest.mark.parametrize("status", trials.REFUSALS)
async def test_a_refusal_raises_its_class(status: int, ask: trials.Ask) -> None:
    direct, passed = await trials.refused(ask, "anthropic", status)
    assert type(passed) is type(direct)
    assert isinstance(passed, RAISES[status])


async def test_an_error_inside_the_stream_raises_as_it_does_at_the_provider() -> None:
    direct, *passed = await trials.broken(in_stream, "anthropic")
    for error in passed:
        assert type(error) is type(direct)
        assert isinstance(error, anthropic.APIStatusError)
        assert "Too busy." in str(error)
        assert error.type == "overloaded_error"


@asynccontextmanager
async def breaking(url: str) -> AsyncIterator[None]:
    async with at(url) as model:
        async for _chunk in model.astream("hi"):
            break
        yield


@asynccontextmanager
async def closing(url: str) -> AsyncIterator[None]:
    async with at(url) as model:
        async with aclosing(model.astream("hi")) as stream:  # type: ignore[type-var]  # it is a generator
            await anext(stream)
        yield


@asynccontextmanager
async def cancelled(url: str) -> AsyncIterator[None]:
    async with at(url) as model:
        with anyio.CancelScope() as scope:
            async for _chunk in model.astream("hi"):
                scope.cancel()
        yield


@pytest.mark.parametrize("leaving", [breaking, closing, cancelled])
async def test_whoever_leaves_the_stream_stops_the_provider(leaving: trials.Leaving) -> None:
    await trials.left(leaving, "anthropic")
