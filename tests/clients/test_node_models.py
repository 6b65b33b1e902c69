"""`GET /v1/models` and `GET /v1/models/{id}`: the official Node SDKs of both vendors, over one shape."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.conformance.many_models import NAMES, with_models
from tests.e2e.running import running

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
async def test_every_model_is_listed_and_told_of(node: Node, sdk: str) -> None:
    async with running(with_models(NAMES)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        asked = [
            {"way": "models"},
            {"way": "eachModel"},
            *({"way": "model", "id": name} for name in NAMES[:3]),
            {"way": "model", "id": "no"},
        ]
        pages, every, *found, missing = await node(f"{sdk}.mjs", [{**one, "url": url} for one in asked])
    assert pages["made"] == [list(NAMES)]
    assert every["made"] == list(NAMES)
    assert [one["made"]["id"] for one in found] == list(NAMES[:3])
    assert (missing["raised"]["class"], missing["raised"]["status"], missing["raised"]["type"]) == ("NotFoundError", 404, "not_found_error")
    assert "Model 'no' is unknown" in missing["raised"]["message"]


async def test_claudes_sdk_pages_through_them_forwards_and_backwards(node: Node) -> None:
    pages = [{"limit": 1}, {"limit": 20}, {"limit": 7, "after_id": NAMES[4]}, {"limit": 7, "before_id": NAMES[-1]}, {"limit": 0}]
    async with running(with_models(NAMES)) as gateway:
        url = f"http://127.0.0.1:{gateway.port}"
        told = await node("anthropic.mjs", [{"way": "models", "page": page, "url": url} for page in pages])
    one_each, twenties, after, before = (one["made"] for one in told[:4])
    assert one_each == [[name] for name in NAMES]
    assert twenties == [list(NAMES[:20]), list(NAMES[20:40]), list(NAMES[40:])]
    assert [name for page in after for name in page] == list(NAMES[5:])
    assert [name for page in reversed(before) for name in page] == list(NAMES[:-1])
    assert told[4]["raised"]["class"] == "BadRequestError"
