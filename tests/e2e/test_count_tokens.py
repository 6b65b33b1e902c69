"""Counting tokens: which provider is asked, and how it ends when there is no number."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.formats import Quirks
from gateway.simulator import Hang, Script, Send
from tests.e2e.client import Client
from tests.e2e.provider import refusal
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
ASKED: Json = {"model": "default", "messages": [{"role": "user", "content": "Hello?"}]}
JSON = (("content-type", "application/json"),)
COUNTED = Script(200, JSON, (Send(b'{"input_tokens": 7, "context_management": {"original_input_tokens": 9}}'),))


@asynccontextmanager
async def asking(gateway: Running) -> AsyncIterator[Client]:
    async with Client.open(gateway.port) as client:
        await client.send("POST", "/v1/messages/count_tokens", ASKED, None)
        yield client


async def test_the_next_claude_target_counts_when_the_first_cannot() -> None:
    async with (
        ScriptedUpstream(lambda _: b"") as other,
        ScriptedUpstream(lambda _: refusal(529)) as busy,
        ScriptedUpstream(lambda _: COUNTED) as good,
        running(
            wiring(provider(other.url, "other", "openai"), provider(busy.url, "busy"), provider(good.url, "good"))
        ) as gateway,
        asking(gateway) as client,
    ):  # fmt: skip
        assert await client.head() == 200
        assert await client.json() == {"input_tokens": 7, "context_management": {"original_input_tokens": 9}}
        assert client.headers["request-id"] == client.headers["x-request-id"]
        assert (len(other.requests), len(busy.requests), len(good.requests)) == (0, 1, 1)
        await gateway.until_idle()


async def test_a_target_that_cannot_be_asked_such_a_thing_is_passed_over() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    async with (
        ScriptedUpstream(lambda _: b"") as local,
        ScriptedUpstream(lambda _: COUNTED) as cloud,
        running(wiring(provider(local.url, "local"), provider(cloud.url, "cloud", quirks=Quirks(url_sources=True)))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post({"model": "default", "messages": [{"role": "user", "content": [picture]}]}, path="/v1/messages/count_tokens")
        assert await client.head() == 200
        assert (await client.json())["input_tokens"] == 7
        assert not local.requests


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"input_tokens": "many"}', b'{"x": "' + b"y" * 70_000])
async def test_what_is_no_number_is_a_failure(body: bytes) -> None:
    async with (
        ScriptedUpstream(lambda _: Script(200, JSON, (Send(body),))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        asking(gateway) as client,
    ):
        assert await client.head() == 502
        assert (await client.json())["error"]["details"] == {"error_code": "stream_malformed"}
        await gateway.until_idle()


async def test_a_refusal_that_no_other_target_could_mend_is_the_answer() -> None:
    async with (
        ScriptedUpstream(lambda _: refusal(400)) as upstream,
        running(wiring(provider(upstream.url), provider(upstream.url, "second"))) as gateway,
        asking(gateway) as client,
    ):
        assert await client.head() == 400
        assert len(upstream.requests) == 1


async def test_a_count_under_way_ends_when_the_gateway_stops() -> None:
    async with (
        ScriptedUpstream(lambda _: Script(200, JSON, (Hang(),))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        asking(gateway) as client,
    ):
        asked = await upstream.request()
        gateway.gateway.refuse_unread()
        assert await client.head() == 503
        assert (await client.json())["error"]["details"] == {"error_code": "shutdown"}
        assert client.headers["retry-after"] == "5"
        await asked.until_closed()
        await gateway.until_idle()


async def test_only_what_a_count_takes_is_sent() -> None:
    async with (
        ScriptedUpstream(lambda _: COUNTED) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        asking(gateway) as client,
    ):
        assert await client.head() == 200
        assert set(json.loads(upstream.requests[0].body)) == {"model", "messages"}
