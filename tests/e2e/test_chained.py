"""A gateway as the provider of another one, over sockets: `link` is the format in which they speak to each other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.routing import Retry, Streaming
from gateway.simulator import Hang, Script, Wait
from tests.conformance import claude_wire, said
from tests.conformance.claude_wire import MESSAGES
from tests.e2e.client import Client
from tests.e2e.provider import BEGUN, ENDING, OVERLOADED, WHOLE, refusal, stream
from tests.e2e.running import Running, provider, running, wiring
from tests.laws.test_loss_laws import LOSSES, Told
from tests.upstream import Respond, ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
LINKS = ("anthropic", "openai")
ASK: Json = {"max_tokens": 100, "messages": [{"role": "user", "content": "Hello?"}]}


@asynccontextmanager
async def chained(
    respond: Respond, link: str, kind: str = "anthropic", *, inner: Streaming | None = None, outer: Streaming | None = None
) -> AsyncIterator[tuple[ScriptedUpstream, Running, Running]]:
    """The provider, the gateway before it, and the one that clients ask."""
    async with (
        ScriptedUpstream(respond) as upstream,
        running(wiring(provider(upstream.url, kind=kind), streaming=inner)) as second,
        running(wiring(provider(url(second), "next", kind=link), targets=["next/default"], streaming=outer)) as first,
    ):
        yield upstream, second, first


def url(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


async def answered(gateway: Running, body: Json) -> tuple[int, Client, Json]:
    async with gateway.chat({**ASK, **body, "stream": False}) as client:
        found = await client.json()
        return client.status, client, found


async def message_of(gateway: Running, body: Json) -> Json:
    status, _, found = await answered(gateway, body)
    assert status == 200
    found.pop("stats")
    return found


def lost(link: str, message: Json) -> Json:
    """What is left of it where the gateways speak that format."""
    found = Told(message)
    for loss in LOSSES[link].values():
        found = loss(found)
    return found.message


@pytest.mark.parametrize("link", LINKS)
async def test_a_message_is_the_same_but_for_what_the_link_has_no_words_for(link: str) -> None:
    for name, message in MESSAGES.items():
        async with chained(claude_wire.telling(message), link) as (_, second, first):
            assert await message_of(first, {}) == lost(link, await message_of(second, {})), name


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_what_both_formats_have_words_for_is_the_very_same(kind: str, link: str) -> None:
    write = {"openai": said.plain, "anthropic": said.claude}[kind]
    for name, case in said.CASES.items():
        if name == "annotations" or (case.thinking and kind != "openai"):
            continue  # Claude signs its thinking; where citations stand is a loss with a name
        async with chained(write(case), link, kind) as (_, second, first):
            assert await message_of(first, {}) == await message_of(second, {}), name


REQUEST: Json = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {
            "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
        }]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern", "days": [1, 2.5, None]}},
            {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "It rains."},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "It snows."},
            {"type": "text", "text": "And now?"},
        ]},
    ],
    "tools": [
        {"name": "weather", "description": "It rains.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    ],
    "tool_choice": {"type": "any"},
    "temperature": 0.5,
    "stop_sequences": ["STOP"],
}  # fmt: skip
THOUGHT: Json = {
    "thinking": {"type": "enabled", "budget_tokens": 50},
    "messages": [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "It rains."}]},
    ],
    "tools": REQUEST["tools"],
}  # fmt: skip


async def sent(asked: Json, link: str | None, kind: str) -> Json:
    """What the provider is asked in the end."""
    respond = {"openai": said.plain, "anthropic": said.claude}[kind](said.CASES["text"])
    async with chained(respond, link or "anthropic", kind) as (upstream, second, first):
        await message_of(first if link else second, asked)
        body: Json = json.loads(upstream.requests[0].body)
    return body


def in_turns(body: Json) -> Json:
    """With what one side says in a row as one message, as Claude reads it: in OpenAI's words a tool's result is a message of its own."""
    turns: list[Json] = []
    for message in body["messages"]:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if turns and turns[-1]["role"] == message["role"] == "user":
            turns[-1]["content"] += parts
        else:
            turns.append({**message, "content": parts})
    return {**body, "messages": turns}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_request_with_tools_and_images_reaches_the_provider_as_through_one_gateway(kind: str, link: str) -> None:
    assert in_turns(await sent(REQUEST, link, kind)) == in_turns(await sent(REQUEST, None, kind))


async def test_signed_thinking_reaches_claude_through_two_gateways() -> None:
    found = await sent(THOUGHT, "anthropic", "anthropic")
    assert found == await sent(THOUGHT, None, "anthropic")
    assert found["messages"][1] == THOUGHT["messages"][1]
    assert found["thinking"] == THOUGHT["thinking"]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("begun", [False, True])
async def test_whoever_leaves_the_first_gateway_stops_the_provider_behind_the_second(begun: bool, link: str) -> None:
    answer = stream(BEGUN, Hang()) if begun else stream(Hang())
    async with chained(lambda _: answer, link) as (upstream, _, first), first.chat() as client:
        request = await upstream.request()
        if begun:
            await client.until("content_block_delta")
        client.leave("rst")
        await request.until_closed()
        await first.record(1)
        assert [record["outcome"] for record in first.records] == ["client_disconnected"] * 2  # the log is the process's: both are in it


STATUSES = [
    (400, {"anthropic": 400, "openai": 400}),
    (404, {"anthropic": 404, "openai": 404}),
    (413, {"anthropic": 413, "openai": 413}),
    (429, {"anthropic": 429, "openai": 429}),
    (500, {"anthropic": 502, "openai": 502}),
    (529, {"anthropic": 529, "openai": 503}),  # OpenAI has no 529
]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("status", "wanted"), STATUSES)
async def test_a_refusal_passes_with_its_status_and_what_it_says(status: int, wanted: Json, link: str) -> None:
    async with chained(lambda _: refusal(status, "The provider says no.", retry_after="7"), link) as (_, second, first):
        _, _, alone = await answered(second, {})
        found, client, body = await answered(first, {})
    assert found == wanted[link]
    error, before = body["error"], alone["error"]
    assert error["message"] == before["message"] == "The provider says no."
    assert (error["type"], error["code"], error["retryable"]) == (before["type"], before["code"], before["retryable"])
    assert client.headers.get("retry-after") == ("7" if found in (429, 503, 529) else None)


@pytest.mark.parametrize("link", LINKS)
async def test_the_second_gateways_own_refusal_passes_with_its_code(link: str) -> None:
    async with (
        running(wiring(provider("http://127.0.0.1:1"))) as second,
        running(wiring(provider(url(second), "next", kind=link), targets=["next/no-such-model"])) as first,
    ):
        status, _, body = await answered(first, {})
    assert status == 404
    assert (body["error"]["type"], body["error"]["code"]) == ("not_found_error", "upstream_rejected")
    assert body["error"]["provider_code"] == "unknown_model"


@pytest.mark.parametrize("link", LINKS)
async def test_an_error_inside_the_stream_passes(link: str) -> None:
    async with chained(lambda _: stream(BEGUN, OVERLOADED), link) as (_, second, first):
        async with second.chat() as client:
            alone = (await client.events())[-1]["error"]
        async with first.chat() as client:
            *_, before, last = await client.events()
    assert before["delta"] == {"type": "text_delta", "text": "Hello"}
    error = last["error"]
    assert (error["message"], error["retryable"], error["partial"]) == (alone["message"], True, True)
    assert error["provider_code"] == "upstream_overloaded" if link == "openai" else error["type"] == alone["type"]


@pytest.mark.parametrize("link", LINKS)
async def test_a_second_gateway_that_stops_is_an_error_worth_another_try(link: str) -> None:
    async with chained(lambda _: stream(BEGUN, Hang()), link) as (_, second, first), first.chat() as client:
        await client.until("content_block_delta")
        for answer in tuple(second.gateway.answers):
            answer.stop(GatewayError("shutdown", "The gateway is stopping."))
        error = (await client.until("error"))["error"]
    assert (error["retryable"], error["partial"], error["provider_code"]) == (True, True, "shutdown")


@pytest.mark.parametrize("link", LINKS)
async def test_the_heartbeats_of_two_gateways_do_not_add_up(link: str) -> None:
    """Only the first one's reach the client, at its own pace."""
    quick, slow = Streaming(heartbeat=0.01, commit_after=0.01), Streaming(heartbeat=0.2, commit_after=0.2)
    silence = (Wait(0.3), BEGUN, Wait(0.3), ENDING)
    async with chained(lambda _: stream(*silence), link, inner=quick, outer=slow) as (_, _, first), first.chat() as client:
        kinds = [event["type"] for event in await client.events()]
    assert 1 <= kinds.count("ping") <= 4
    assert kinds[-1] == "message_stop"
    async with chained(lambda _: stream(*silence), link, inner=slow, outer=quick) as (_, _, first), first.chat() as client:
        assert [event["type"] for event in await client.events()].count("ping") >= 10


@pytest.mark.parametrize("link", LINKS)
async def test_of_two_gateways_that_try_again_each_does_so_for_itself(link: str) -> None:
    """The first one asks the second once; what the second asks is its own affair."""
    answers = [stream(OVERLOADED), stream(WHOLE)]

    def respond(_: Any) -> Script:
        return answers.pop(0)

    async with ScriptedUpstream(respond) as upstream:
        async with (
            running(wiring(provider(upstream.url), retry=Retry(attempts=2))) as second,
            running(wiring(provider(url(second), "next", kind=link), targets=["next/default"])) as first,
        ):
            found = await message_of(first, {})
            assert found["content"][0]["text"] == "Hello world"
            await first.record(1)
            assert sorted(record["attempts"] for record in first.records) == [1, 2]  # the log is the process's: both are in it
        assert len(upstream.requests) == 2
