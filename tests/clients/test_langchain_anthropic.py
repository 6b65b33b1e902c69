"""LangChain's ChatAnthropic, at the provider and through the gateway.

https://docs.langchain.com/oss/python/integrations/chat/anthropic
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import reduce
from operator import add
from typing import Any

import anyio.to_thread
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage

from tests.clients import trials
from tests.conformance.claude_wire import MESSAGES
from tests.conformance.places import CLAUDE_ROADS, claude_place
from tests.conformance.said import CASES, Json

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def at(url: str, **options: Any) -> AsyncIterator[ChatAnthropic]:
    model = ChatAnthropic(model="default", base_url=url, api_key=trials.KEY, **{"max_retries": 0, "max_tokens": 2000, **options})  # type: ignore[arg-type]
    try:
        yield model
    finally:
        # Its httpx clients live as long as the process does.
        await model._async_client.close()
        model._client.close()


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
    """Without the signatures of thinking, which OpenAI has no place for."""
    if isinstance(value, dict):
        return {key: unsigned(one) for key, one in value.items() if key != "signature"}
    return [unsigned(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("where", "name"), CLAUDE_ROADS)
async def test_langchain_makes_the_same_of_an_answer_whoever_gives_it(where: str, name: str) -> None:
    same = unsigned if where in ("openai", "odd") else lambda value: value
    async with claude_place("direct", CASES[name]) as direct, claude_place(where, CASES[name]) as through:
        async with at(direct) as there, at(through) as here:
            for way in WAYS:
                assert same(await way(here)) == same(await way(there)), way.__name__


@pytest.mark.parametrize("where", ["claude", "mangled"])
@pytest.mark.parametrize("name", MESSAGES)
async def test_what_only_claude_says_is_the_same_too(where: str, name: str) -> None:
    async with claude_place("direct", MESSAGES[name]) as direct, claude_place(where, MESSAGES[name]) as through:
        async with at(direct) as there, at(through) as here:
            assert await invoked(here) == await invoked(there)
            assert await streamed(here) == await streamed(there)
