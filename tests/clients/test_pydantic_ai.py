"""Pydantic AI with its models for OpenAI's chat completions and for Claude, at the provider and through the gateway.

https://ai.pydantic.dev/models/openai/ · https://ai.pydantic.dev/models/anthropic/
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelAPIError, ModelHTTPError, ModelMessagesTypeAdapter, ModelProfile
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients import trials
from tests.conformance import claude_wire
from tests.conformance.claude_wire import MESSAGES
from tests.conformance.places import CLAUDE_ROADS, OPENAI_ROADS, claude_place, gateway_over, openai_place
from tests.conformance.said import CASES, PARIS, Json, Said, claude, plain
from tests.upstream import Respond, ScriptedUpstream

pytestmark = pytest.mark.anyio

SPEAKS = ("openai", "anthropic")
ROADS = [("openai", *road) for road in OPENAI_ROADS] + [("anthropic", *road) for road in CLAUDE_ROADS]
PLACES: dict[str, Callable[[str, Any], Any]] = {"openai": openai_place, "anthropic": claude_place}
OWN: dict[str, Callable[[Said], Respond]] = {"openai": plain, "anthropic": claude}
ASKED: list[ModelMessage] = [ModelRequest.user_text_prompt("hi")]


@asynccontextmanager
async def at(speaks: str, url: str) -> AsyncIterator[Model]:
    if speaks == "openai":
        async with trials.gpt(url) as gpt:
            yield OpenAIChatModel("default", provider=OpenAIProvider(openai_client=gpt))
    else:
        async with trials.claude(url) as sdk:
            # What the model can do it knows by the names of Claude's models; this is an alias.
            able = ModelProfile(supports_json_schema_output=True)
            yield AnthropicModel("default", provider=AnthropicProvider(anthropic_client=sdk), profile=able)


def seen(messages: list[Any]) -> list[Json]:
    """All that it made of them, but for ids, times and addresses."""
    found: list[Json] = plainly(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))
    return found


OWN_WORDS = frozenset({"timestamp", "run_id", "conversation_id", "provider_url"})


def plainly(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plainly(one) for key, one in value.items() if key not in OWN_WORDS}
    return [plainly(one) for one in value] if isinstance(value, list) else value


def unsigned(value: Any) -> Any:
    """Without the signatures of thinking, which OpenAI has no place for, and whether it is an empty one; and without `{}` unsaid."""
    if isinstance(value, dict):
        return {key: unsigned(one) for key, one in value.items() if key != "signature" and one not in ("{}", "", None)}
    return [unsigned(one) for one in value] if isinstance(value, list) else value


async def asked(model: Model) -> list[Json]:
    return seen([await model_request(model, ASKED)])


async def streamed(model: Model) -> list[Json]:
    async with model_request_stream(model, ASKED) as stream:
        async for _event in stream:
            pass
        return seen([stream.get()])


@pytest.mark.parametrize(("speaks", "where", "name"), ROADS)
async def test_an_answer_is_the_same_through_the_gateway(speaks: str, where: str, name: str) -> None:
    same = unsigned if speaks == "anthropic" and where in ("openai", "odd") else lambda value: value
    place, said = PLACES[speaks], CASES[name]
    async with (
        place("direct", said) as direct,
        place(where, said) as through,
        at(speaks, direct) as there,
        at(speaks, through) as here,
    ):
        for way in (asked, streamed):
            assert same(await way(here)) == same(await way(there)), way.__name__


@pytest.mark.parametrize("where", ["claude", "mangled"])
@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "blocks and fields nobody knows"])  # nor does it itself
async def test_what_only_claude_says_is_the_same_too(where: str, name: str) -> None:
    said = MESSAGES[name]
    async with (
        claude_place("direct", said) as direct,
        claude_place(where, said) as through,
        at("anthropic", direct) as there,
        at("anthropic", through) as here,
    ):
        for way in (asked, streamed):
            assert await way(here) == await way(there), way.__name__


# ---- agents


THOUGHT = claude_wire.message(
    claude_wire.THINKING, claude_wire.call("toolu_1", "weather", {"city": "Paris"}), stop_reason="tool_use"
)
ANSWERED = Said(text=("Take", " an umbrella."))
LOOKS = Said(thinking=("Hm.",), calls=(PARIS,), finish="tool_calls")  # a text would end `run_stream`


def weather(city: str) -> str:
    """The weather of a city."""
    return f"It rains in {city}."


async def looped(speaks: str, url: str) -> list[Any]:
    """What an agent with a tool says: whole, streamed, and event by event."""
    async with at(speaks, url) as model:
        agent = Agent(model, tools=[weather], instructions="Be brief.")
        whole = await agent.run("How is the weather?")
        async with agent.run_stream("How is the weather?") as stream:
            pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
            streamed = [await stream.get_output(), seen(stream.new_messages()), str(stream.usage)]
        async with agent.run_stream_events("How is the weather?") as events:
            kinds = [event.event_kind async for event in events]
    assert "function_tool_result" in kinds
    assert "".join(pieces) == whole.output == streamed[0] == "Take an umbrella."
    return [whole.output, seen(whole.new_messages()), str(whole.usage), streamed]


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_a_tool_loop_is_the_same_through_the_gateway(speaks: str) -> None:
    def respond(kind: str) -> Respond:
        return trials.twice(OWN[kind](LOOKS), OWN[kind](ANSWERED))

    async with ScriptedUpstream(respond(speaks)) as upstream:
        direct = await looped(speaks, upstream.url)
    for kind in SPEAKS:
        async with gateway_over(respond(kind), kind) as (url, _, _gateway):
            assert unsigned(await looped(speaks, url)) == unsigned(direct), kind


async def test_signed_thinking_comes_back_in_a_tool_loop() -> None:
    respond = trials.twice(claude_wire.telling(THOUGHT), claude(ANSWERED))
    async with ScriptedUpstream(respond) as upstream:
        direct = await looped("anthropic", upstream.url)
        wanted = [json.loads(request.body) for request in upstream.requests]
    async with gateway_over(respond, "anthropic") as (url, upstream, _):
        assert await looped("anthropic", url) == direct
        asked = [json.loads(request.body) for request in upstream.requests]
    assert asked == [{**body, "model": "m", "stream": True} for body in wanted]
    assert asked[1]["messages"][1]["content"][0] == claude_wire.THINKING


class City(BaseModel):
    name: str


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput, PromptedOutput])
@pytest.mark.parametrize("speaks", SPEAKS)
async def test_a_structured_output_is_validated(speaks: str, kind: Any) -> None:
    called = Said(calls=(("call_1", "final_result", ('{"name":', ' "Paris"}')),), finish="tool_calls")
    said = called if kind is ToolOutput else Said(text=('{"name":', ' "Paris"}'))
    for where in sorted({where for other, where, _ in ROADS if other == speaks} - ({"claude"} if kind is PromptedOutput else set())):
        async with PLACES[speaks](where, said) as url, at(speaks, url) as model:
            agent = Agent(model, output_type=kind(City))
            assert (await agent.run("A city?")).output == City(name="Paris"), where
            async with agent.run_stream("A city?") as stream:
                assert [part async for part in stream.stream_output(debounce_by=None)][-1] == City(name="Paris"), where


# ---- errors and leaving


def whole(speaks: str) -> trials.Ask:
    async def ask(url: str) -> Any:
        async with at(speaks, url) as model:
            return await asked(model)

    return ask


def in_stream(speaks: str) -> trials.Ask:
    async def ask(url: str) -> Any:
        async with at(speaks, url) as model:
            return await streamed(model)

    return ask


@pytest.mark.parametrize("way", [whole, in_stream])
@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("status", trials.REFUSALS)
async def test_a_refusal_raises_its_class(status: int, speaks: str, way: Callable[[str], trials.Ask]) -> None:
    direct, passed = await trials.refused(way(speaks), speaks, status)
    assert type(passed) is type(direct)
    assert isinstance(passed, ModelHTTPError)
    assert passed.status_code == (502 if status == 500 else status)


@pytest.mark.parametrize("speaks", SPEAKS)
async def test_an_error_inside_the_stream_raises_as_it_does_at_the_provider(speaks: str) -> None:
    direct, *passed = await trials.broken(in_stream(speaks), speaks)
    for error in passed:
        assert type(error) is type(direct)
        assert isinstance(error, ModelAPIError)
        assert "Too busy." in str(error)


def breaking(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        async with at(speaks, url) as model:
            async with Agent(model).run_stream("hi") as stream:
                async for _text in stream.stream_text(debounce_by=None):
                    break
            yield

    return leaving


def cancelling(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        async with at(speaks, url) as model:
            with anyio.CancelScope() as scope:
                async with Agent(model).run_stream("hi") as stream:
                    async for _text in stream.stream_text(debounce_by=None):
                        scope.cancel()
            yield

    return leaving


def leaving_events(speaks: str) -> trials.Leaving:
    @asynccontextmanager
    async def leaving(url: str) -> AsyncIterator[None]:
        async with at(speaks, url) as model:
            async with Agent(model).run_stream_events("hi") as events:
                async for event in events:
                    if event.event_kind == "part_start":
                        break
            yield

    return leaving


@pytest.mark.parametrize("leave", [breaking, cancelling, leaving_events])
@pytest.mark.parametrize("speaks", SPEAKS)
async def test_whoever_leaves_the_stream_stops_the_provider(speaks: str, leave: Callable[[str], trials.Leaving]) -> None:
    await trials.left(leave(speaks), speaks)
