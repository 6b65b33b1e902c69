"""LangChain's ChatOpenAI, at the provider and through the gateway.

https://docs.langchain.com/oss/python/integrations/chat/openai · It drops `reasoning_content`, and asks for no usage in a stream unless
`stream_usage` is set.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import reduce
from operator import add
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from tests.clients import trials
from tests.conformance.places import OPENAI_ROADS, gateway_over, openai_place
from tests.conformance.said import CASES, Json, Said, claude, plain
from tests.upstream import ScriptedUpstream

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")]  # of its parsed chunks


@asynccontextmanager
async def at(url: str, **options: Any) -> AsyncIterator[ChatOpenAI]:
    # Its own httpx clients live as long as the process does; these are closed, and read no certificates.
    async with openai.DefaultAsyncHttpxClient(verify=False) as client:
        with openai.DefaultHttpxClient(verify=False) as also:
            yield ChatOpenAI(
                model="default",
                base_url=f"{url}/v1",
                api_key=trials.KEY,  # type: ignore[arg-type]  # pydantic makes a SecretStr of it
                http_async_client=client,
                http_client=also,
                **{"max_retries": 0, "stream_usage": True, **options},
            )


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


@pytest.mark.parametrize(("where", "name"), OPENAI_ROADS)
async def test_langchain_makes_the_same_of_an_answer_through_the_gateway(where: str, name: str) -> None:
    said = CASES[name]
    async with openai_place("direct", said) as direct, openai_place(where, said) as through, at(direct) as there, at(through) as here:
        for way in WAYS:
            options = said.ask
            assert await way(here.bind(**options)) == await way(there.bind(**options)), way.__name__


async def test_without_stream_usage_the_stream_tells_none() -> None:
    async with openai_place("claude", CASES["text"]) as url, at(url, stream_usage=False) as model:
        assert (await streamed(model))["usage_metadata"] is None


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


async def looped(model: Any) -> list[Json]:
    """The whole conversation, with one streamed answer and one whole one."""
    history: list[BaseMessage] = [HumanMessage("How is the weather?")]
    able = model.bind_tools([weather])
    history.append(reduce(add, [chunk async for chunk in able.astream(history)]))
    history += [await weather.ainvoke(call) for call in history[-1].tool_calls]
    history.append(await able.ainvoke(history))
    return [seen(message) for message in history]


def with_bare_arguments(messages: list[Json]) -> list[Json]:
    """The gateway reads arguments, and writes them again without spaces."""
    for call in (call for message in messages for call in message.get("tool_calls", ())):
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), separators=(",", ":"))
    return messages


async def test_a_tool_loop_is_the_same_through_the_gateway() -> None:
    first, then = CASES["text and a call"], Said(text=("Take an umbrella.",))
    seen: list[Any] = []
    bodies: list[list[Json]] = []
    async with ScriptedUpstream(trials.twice(plain(first), plain(then))) as upstream, at(upstream.url) as model:
        seen.append(await looped(model))
        bodies.append([json.loads(request.body) for request in upstream.requests])
    for write, kind in ((plain, "openai"), (claude, "anthropic")):
        async with gateway_over(trials.twice(write(first), write(then)), kind) as (url, upstream, _), at(url) as model:
            seen.append(await looped(model))
            bodies.append([json.loads(request.body) for request in upstream.requests])
    assert seen[0] == seen[1] == seen[2]
    assert [message["type"] for message in seen[0]] == ["human", "AIMessageChunk", "tool", "ai"]
    assert seen[0][-1]["content"] == "Take an umbrella."
    assert bodies[1][1]["messages"] == with_bare_arguments(bodies[0][1]["messages"])
    called, result = bodies[2][1]["messages"][1:]
    assert called["content"][-1] == {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}}
    assert result["content"][0]["tool_use_id"] == "call_1"


class City(BaseModel):
    """A city."""

    name: str


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_a_structured_output_is_parsed(method: Any) -> None:
    called = Said(calls=(("call_1", "City", ('{"name":', ' "Paris"}')),), finish="tool_calls")
    said = called if method == "function_calling" else Said(text=('{"name":', ' "Paris"}'))
    places = ("direct", "openai", "odd", "claude")
    for where in places[:-1] if method == "json_mode" else places:  # Claude is not asked for JSON without a schema
        async with openai_place(where, said) as url, at(url) as model:
            asking = model.with_structured_output(City, method=method)
            assert await asking.ainvoke("A city, as JSON?") == City(name="Paris"), where
            assert [part async for part in asking.astream("A city, as JSON?")][-1] == City(name="Paris"), where


# ---- errors and leaving


async def whole(url: str) -> Json:
    async with at(url) as model:
        return await invoked(model)


async def in_stream(url: str) -> Json:
    async with at(url) as model:
        return await streamed(model)


RAISES = {401: openai.AuthenticationError, 429: openai.RateLimitError, 500: openai.InternalServerError}


@pytest.mark.parametrize("ask", [whole, in_stream])
@pytest.mark.parametrize("status", trials.REFUSALS)
async def test_a_refusal_raises_its_class(status: int, ask: trials.Ask) -> None:
    direct, passed = await trials.refused(ask, "openai", status)
    assert type(passed) is type(direct)
    assert isinstance(passed, RAISES[status])


async def test_an_error_inside_the_stream_raises_as_it_does_at_the_provider() -> None:
    direct, *passed = await trials.broken(in_stream, "openai")
    assert type(direct) is openai.APIError
    for error in passed:
        assert type(error) is openai.APIError
        assert "Too busy." in str(error)


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
    await trials.left(leaving, "openai")
