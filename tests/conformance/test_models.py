"""`GET /v1/models` and `GET /v1/models/{id}`: the official Python SDKs of both vendors, over one shape."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from gateway.routing import Caller
from gateway.wiring import Access
from tests.conformance.many_models import NAMES, with_models
from tests.e2e.running import Running, running

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def both(gateway: Running, key: str = "none") -> AsyncIterator[tuple[anthropic.AsyncAnthropic, openai.AsyncOpenAI]]:
    url = f"http://127.0.0.1:{gateway.port}"
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as claude,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as gpt,
    ):
        yield claude, gpt


async def ids(models: Any) -> list[str]:
    return [model.id async for model in models]


async def test_both_sdks_are_told_every_model() -> None:
    async with running(with_models(NAMES)) as gateway, both(gateway) as (claude, gpt):
        assert await ids(claude.models.list()) == list(NAMES)
        assert await ids(gpt.models.list()) == list(NAMES), "which knows of no pages"


@pytest.mark.parametrize("limit", [1, 7, 20, len(NAMES) - 1, len(NAMES), 1000])
async def test_claudes_sdk_pages_through_them_forwards_and_backwards(limit: int) -> None:
    async with running(with_models(NAMES)) as gateway, both(gateway) as (claude, _):
        first = await claude.models.list(limit=limit)
        assert len(first.data) == min(limit, len(NAMES))
        assert await ids(claude.models.list(limit=limit)) == list(NAMES)
        assert await ids(claude.models.list(limit=limit, after_id=NAMES[4])) == list(NAMES[5:])
        pages = [
            [model.id for model in page.data] async for page in (await claude.models.list(limit=limit, before_id=NAMES[-1])).iter_pages()
        ]
        assert [id for page in reversed(pages) for id in page] == list(NAMES[:-1])


async def test_one_model_is_told_of_by_its_name_however_it_is_spelled() -> None:
    async with running(with_models(NAMES)) as gateway, both(gateway) as (claude, gpt):
        for name in (*NAMES[:3], "somewhere/any/model"):
            one, other = await claude.models.retrieve(name), await gpt.models.retrieve(name)
            assert (one.id, one.type, one.display_name) == (name, "model", name)
            assert (other.id, other.object, other.created) == (name, "model", int(one.created_at.timestamp()))


async def test_an_unknown_model_is_not_found_by_either() -> None:
    async with running(with_models(NAMES)) as gateway, both(gateway) as (claude, gpt):
        with pytest.raises(anthropic.NotFoundError, match="Model 'nothing-like-it' is unknown") as by_claude:
            await claude.models.retrieve("nothing-like-it")
        assert by_claude.value.type == "not_found_error"
        with pytest.raises(openai.NotFoundError, match="Model 'nothing-like-it' is unknown") as by_openai:
            await gpt.models.retrieve("nothing-like-it")
        assert (by_openai.value.code, by_openai.value.type) == ("unknown_model", "not_found_error")
        assert by_openai.value.request_id
        assert by_claude.value.request_id


async def test_a_page_that_cannot_be_is_a_bad_request_and_not_an_empty_list() -> None:
    async with running(with_models(NAMES)) as gateway, both(gateway) as (claude, _):
        for asked in ({"limit": 0}, {"limit": 1001}, {"after_id": "nobody"}, {"before_id": "nobody"}):
            with pytest.raises(anthropic.BadRequestError, match=next(iter(asked))):
                await claude.models.list(**asked)  # type: ignore[arg-type]


async def test_a_caller_is_told_only_of_what_it_may_use() -> None:
    access = Access(callers=(Caller("phone", hashlib.sha256(b"right").digest(), models=frozenset({NAMES[1]})),))
    async with running(with_models(NAMES, access)) as gateway:
        async with both(gateway, "right") as (claude, gpt):
            assert await ids(claude.models.list()) == await ids(gpt.models.list()) == [NAMES[1]]
            assert (await gpt.models.retrieve(NAMES[1])).id == NAMES[1]
            for name in (NAMES[0], "somewhere/any/model"):
                with pytest.raises(anthropic.NotFoundError):
                    await claude.models.retrieve(name)
                with pytest.raises(openai.NotFoundError):
                    await gpt.models.retrieve(name)
        async with both(gateway, "wrong") as (claude, gpt):
            with pytest.raises(anthropic.AuthenticationError):
                await claude.models.list()
            with pytest.raises(openai.AuthenticationError):
                await gpt.models.retrieve(NAMES[1])
