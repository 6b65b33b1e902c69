"""Claude's official SDK for Node, once at the provider itself and once through the gateway: it must not see a difference.

https://github.com/anthropics/anthropic-sdk-typescript
"""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.routing import Caller, Streaming
from gateway.simulator import Script, Send, Wait
from gateway.wiring import Access
from tests.conformance import claude_wire
from tests.conformance import said as openai_wire
from tests.conformance.claude_wire import MESSAGES, MUTATIONS, SSE, Json, Mutation, events, frame, message, telling, text
from tests.conformance.heartbeats import Heartbeats
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Request, Respond, ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]
ASKED: Json = {"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello?"}]}
STREAMS = ["iterate", "stream", "streamEvents", "streamBeta", "streamRelayed"]
WAYS = ["create", "createBeta", *STREAMS]


@asynccontextmanager
async def both(
    respond: Respond, kind: str = "anthropic", wrap: Callable[[Any], Any] | None = None, **wired: Any
) -> AsyncIterator[tuple[ScriptedUpstream, Running]]:
    async with ScriptedUpstream(respond) as upstream, running(wiring(provider(upstream.url, kind=kind), **wired), wrap=wrap) as gateway:
        yield upstream, gateway
        await gateway.until_idle()


def url(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


def named(name: str) -> Json:
    """A request whose answer the scripted provider finds by that name."""
    return {**ASKED, "metadata": {"user_id": name}}


def by_name(answers: Callable[[str], Respond]) -> Respond:
    return lambda request: answers(json.loads(request.body)["metadata"]["user_id"])(request)


async def made(node: Node, way: str, url: str, names: list[str], **job: Any) -> list[Any]:
    """What the SDK makes of each of the named answers."""
    told = await node("anthropic.mjs", [{"way": way, "url": url, "asked": named(name), **job} for name in names])
    assert not [one for one in told if "raised" in one]
    return [one["made"] for one in told]


async def raised(node: Node, way: str, url: str, names: list[str], **job: Any) -> list[Json]:
    """What it raises over each of them."""
    told = await node("anthropic.mjs", [{"way": way, "url": url, "asked": named(name), **job} for name in names])
    assert not [one for one in told if "made" in one]
    return [{**one["raised"], "seen": one["seen"]} for one in told]


def told_by(write: Mutation | None = None) -> Respond:
    """A provider that says the message whose name it is asked for: as `write` does, or as a good provider would."""

    def said(name: str) -> Respond:
        whole = MESSAGES[name]
        return (lambda _: write(whole)) if write else telling(whole)

    return by_name(said)


@pytest.mark.parametrize("way", WAYS)
async def test_every_message_is_the_very_same_through_the_gateway(node: Node, way: str) -> None:
    async with both(told_by()) as (upstream, gateway):
        direct = await made(node, way, upstream.url, list(MESSAGES))
        passed = await made(node, way, url(gateway), list(MESSAGES))
    for name, one, other in zip(MESSAGES, direct, passed, strict=True):
        assert other == one, name


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda one: one.__name__)
async def test_what_a_relay_mangled_is_mended_on_the_way(node: Node, mutate: Mutation) -> None:
    async with both(told_by()) as (upstream, _), both(told_by(mutate)) as (_, gateway):
        for way in ("create", "stream"):
            direct, passed = [await made(node, way, base, list(MESSAGES)) for base in (upstream.url, url(gateway))]
            for name, one, other in zip(MESSAGES, direct, passed, strict=True):
                # How an input is written is the relay's; what it says is in the message.
                assert {**other, "inputs": None} == {**one, "inputs": None}, name


# Claude's citations have no place in an OpenAI provider's text, nor the other way round.
ELSEWHERE = [name for name in openai_wire.CASES if name != "annotations"]


@pytest.mark.parametrize("write", [openai_wire.plain, openai_wire.odd])
async def test_an_openai_provider_answers_as_claude_would_have(node: Node, write: Callable[[openai_wire.Said], Respond]) -> None:
    def at_claude(name: str) -> Respond:
        return openai_wire.claude(openai_wire.CASES[name])

    def elsewhere(name: str) -> Respond:
        return write(openai_wire.CASES[name])

    async with both(by_name(at_claude)) as (claude, _), both(told_by_user(elsewhere), kind="openai") as (_, gateway):
        direct = await made(node, "stream", claude.url, ELSEWHERE)
        passed = await made(node, "stream", url(gateway), ELSEWHERE)
        whole = await made(node, "create", url(gateway), ELSEWHERE)
    for name, at_provider, streamed, document in zip(ELSEWHERE, direct, passed, whole, strict=True):
        assert _across(streamed["message"]) == _across(document) == _across(at_provider["message"]), name
        assert {key: streamed[key] for key in HEARD} == {key: at_provider[key] for key in HEARD}, name
        assert streamed["inputs"] in (at_provider["inputs"], "{}"), "Claude says nothing for no arguments"


HEARD = ("texts", "thoughts", "ended")


def told_by_user(answers: Callable[[str], Respond]) -> Respond:
    """As `by_name`, of a provider to whom Claude's metadata is the field `user`."""
    return lambda request: answers(json.loads(request.body)["user"])(request)


def _across(said: Json) -> Json:
    """What both formats have words for; a signature is Claude's own."""
    blocks = [{key: value for key, value in block.items() if key not in ("signature", "citations")} for block in said["content"]]
    usage = {key: value for key, value in said["usage"].items() if value}
    return {
        **{key: said[key] for key in ("id", "model", "role", "type", "stop_reason", "stop_sequence")},
        "content": blocks,
        "usage": usage,
    }


# What the SDK builds upon it.

WEATHER: Json = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}


CALL = openai_wire.Said(text=("Let me look.",), calls=(("toolu_1", "weather", ('{"city":', ' "Bern"}')),), finish="tool_calls")
ANSWER = openai_wire.Said(text=("Take an umbrella.",))
PARSED = '{"city": "Bern", "people": 134000}'
# By road: the kind of provider; what asks for the weather, what answers then, and what is to be parsed, as it says them.
ROADS: dict[str, tuple[str, list[Respond]]] = {
    "claude": (
        "anthropic",
        [
            telling(message(text("Let me look."), WEATHER, stop_reason="tool_use")),
            telling(message(text("Take an umbrella."))),
            telling(message(text(PARSED))),
        ],
    ),
    **{
        road: (kind, [write(said) for said in (CALL, ANSWER, openai_wire.Said(text=(PARSED,)))])
        for road, kind, write in [
            ("odd claude", "anthropic", openai_wire.odd_claude),
            ("openai", "openai", openai_wire.plain),
            ("odd", "openai", openai_wire.odd),
        ]
    },
}


def _asked_and_told(road: str) -> Respond:
    """A provider that asks for the weather first, and then answers."""
    _, (asks, answers, _) = ROADS[road]
    return lambda request: (answers if "Bern" in request.body.decode() else asks)(request)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("road", ROADS)
async def test_the_tool_runner_runs_a_tool_and_asks_again(node: Node, road: str, streaming: bool) -> None:
    kind, _ = ROADS[road]
    job: Json = {"way": "runTools", "asked": ASKED, "streaming": streaming}
    async with both(_asked_and_told("claude")) as (provider, _), both(_asked_and_told(road), kind) as (upstream, gateway):
        direct, passed = await node("anthropic.mjs", [{**job, "url": provider.url}, {**job, "url": url(gateway)}])
        told = json.loads(upstream.requests[1].body)["messages"]
    assert passed["made"]["asked"] == direct["made"]["asked"] == ["Bern"]
    assert passed["made"]["final"]["content"] == direct["made"]["final"]["content"]
    if road == "claude":
        assert passed == direct
    if kind == "anthropic":
        # Not as directly: there the SDK leaves the history with the provider, and goes on without that where it is refused.
        assert [one["role"] for one in told] == ["user", "assistant", "user"]
        assert told[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "In Bern it rains."}]
    else:
        assert [(one["role"], one.get("tool_call_id")) for one in told] == [("user", None), ("assistant", None), ("tool", "toolu_1")]


@pytest.mark.parametrize("way", ["parse", "streamParsed"])
@pytest.mark.parametrize("road", ROADS)
async def test_a_structured_output_is_parsed(node: Node, road: str, way: str) -> None:
    kind, (*_, respond) = ROADS[road]
    async with both(ROADS["claude"][1][-1]) as (claude, _), both(respond, kind) as (upstream, gateway):
        told = await node("anthropic.mjs", [{"way": way, "url": base, "asked": ASKED} for base in (claude.url, url(gateway))])
        asked, passed = (json.loads(requests[0].body) for requests in (claude.requests, upstream.requests))
    assert [one["made"] for one in told] == [{"city": "Bern", "people": 134000}] * 2
    if kind == "anthropic":
        assert passed["output_config"] == asked["output_config"]
    else:
        assert passed["response_format"]["json_schema"]["schema"] == asked["output_config"]["format"]["schema"]


async def test_tokens_are_counted_by_the_provider(node: Node) -> None:
    def respond(request: Request) -> Script:
        assert request.path == "/v1/messages/count_tokens"
        return Script(200, claude_wire.JSON, (Send(b'{"input_tokens": 2095}'),))

    job: Json = {"way": "countTokens", "asked": {key: ASKED[key] for key in ("model", "messages")}}
    async with both(respond) as (upstream, gateway), both(respond, "openai") as (other, elsewhere):
        told = await node("anthropic.mjs", [{**job, "url": base} for base in (upstream.url, url(gateway), url(elsewhere))])
        assert not other.requests
    assert told[0] == told[1] == {"made": {"input_tokens": 2095}}
    assert (told[2]["raised"]["class"], told[2]["raised"]["errorCode"]) == ("NotFoundError", "unsupported")


# Errors.

KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
KINDS |= {429: "rate_limit_error", 500: "api_error", 503: "overloaded_error", 529: "overloaded_error"}
CLASSES = {
    400: "BadRequestError",
    401: "InternalServerError",  # it is the gateway's key that was refused, not the caller's
    404: "NotFoundError",
    413: "ContentTooLargeError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    529: "OverloadedError",
}


def _refusing(name: str) -> Respond:
    return lambda _: claude_wire.refusing(int(name), KINDS[int(name)], retry_after="7")


@pytest.mark.parametrize("way", ["create", "iterate", "stream"])
async def test_a_refusal_raises_the_same_class(node: Node, way: str) -> None:
    async with both(by_name(_refusing)) as (upstream, gateway):
        names = [str(status) for status in KINDS]
        direct = await raised(node, way, upstream.url, names)
        passed = await raised(node, way, url(gateway), names)
    for status, one, other in zip(KINDS, direct, passed, strict=True):
        assert other["class"] == CLASSES[status] == (one["class"] if status != 401 else "InternalServerError")
        assert other["status"] == (502 if status in (401, 500) else status)
        assert other["requestID"]
        if status != 401:
            assert other["type"] == one["type"]
            assert f"The provider says {status}." in other["message"]
        if status in (429, 503, 529):
            assert other["retryAfter"] == one["retryAfter"] == "7"


async def test_the_sdk_asks_again_as_often_as_it_would_at_the_provider(node: Node) -> None:
    async with both(by_name(_at_once_refusing)) as (upstream, gateway):
        names = [str(status) for status in KINDS]
        await raised(node, "create", upstream.url, names, retries=1)
        direct = _times_asked(upstream)
        await raised(node, "create", url(gateway), names, retries=1)
        passed = _times_asked(upstream) - direct
    assert passed == direct
    assert {name: times for name, times in direct.items() if times > 1} == {"429": 2, "500": 2, "503": 2, "529": 2}


def _at_once_refusing(name: str) -> Respond:
    return lambda _: claude_wire.refusing(int(name), KINDS[int(name)])


def _times_asked(upstream: ScriptedUpstream) -> Counter[str]:
    return Counter(json.loads(request.body)["metadata"]["user_id"] for request in upstream.requests)


async def test_an_answer_at_the_second_try_is_as_any_other(node: Node) -> None:
    answers = one_after_another(claude_wire.refusing(529, "overloaded_error"), claude_wire.stream(MESSAGES["text"]))
    async with both(told_by()) as (claude, _), both(answers) as (upstream, gateway):
        assert await made(node, "stream", url(gateway), ["text"], retries=1) == await made(node, "stream", claude.url, ["text"])
        assert len(upstream.requests) == 2


async def test_the_gateways_own_refusals_raise_their_classes(node: Node) -> None:
    access = Access(callers=(Caller("web", hashlib.sha256(b"right").digest()),))
    job: Json = {"way": "create", "key": "right", "asked": ASKED}
    large = {**ASKED, "messages": [{"role": "user", "content": "x" * (11 << 20)}]}
    async with both(lambda _: b"", access=access) as (upstream, gateway):
        jobs = [{"key": "wrong"}, {"asked": {**ASKED, "model": "claude-opus-9"}}, {"asked": large}, {"asked": {**ASKED, "messages": []}}]
        told = await node("anthropic.mjs", [{**job, **other, "url": url(gateway)} for other in jobs])
        assert not upstream.requests
    assert [(one["raised"]["class"], one["raised"]["type"], one["raised"]["errorCode"]) for one in told] == [
        ("AuthenticationError", "authentication_error", "unauthorized"),
        ("NotFoundError", "not_found_error", "unknown_model"),
        ("ContentTooLargeError", "request_too_large", "too_large"),
        ("BadRequestError", "invalid_request_error", "invalid_request"),
    ]


@pytest.mark.parametrize("way", ["iterate", "stream", "streamEvents"])
async def test_an_error_inside_the_stream_raises_as_it_does_directly(node: Node, way: str) -> None:
    failure = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    broken = Script(200, SSE, tuple(Send(frame(event)) for event in [*events(MESSAGES["text"])[:4], failure]))
    async with both(lambda _: broken) as (upstream, gateway):
        (direct,) = await raised(node, way, upstream.url, ["text"])
        (passed,) = await raised(node, way, url(gateway), ["text"])
    assert passed["seen"] == direct["seen"]
    assert bool(passed["seen"]) == (way != "stream")
    assert (passed["class"], passed["status"], passed["type"]) == (direct["class"], direct["status"], "overloaded_error")


async def test_a_stream_that_breaks_off_is_an_error_even_where_the_provider_says_nothing(node: Node) -> None:
    broken = Script(200, SSE, tuple(Send(frame(event)) for event in events(MESSAGES["text"])[:4]))
    async with both(lambda _: broken) as (_, gateway):
        (passed,) = await raised(node, "iterate", url(gateway), ["text"])
        (whole,) = await raised(node, "create", url(gateway), ["text"])
    assert (passed["class"], passed["errorCode"], len(passed["seen"])) == ("APIError", "stream_interrupted", 4)
    assert (whole["class"], whole["status"], whole["errorCode"]) == ("InternalServerError", 502, "stream_interrupted")


# Silence.


async def test_silence_is_bridged_by_pings_that_no_way_of_the_sdk_minds(node: Node) -> None:
    """A minute of silence before the first word and one in the middle, at the default of a ping in 15 s, two hundred times as fast."""

    def slow(name: str) -> Respond:
        first, *rest = [Send(frame(event)) for event in events(MESSAGES[name])]
        return lambda _: Script(200, SSE, (Wait(0.3), first, *rest[:2], Wait(0.3), *rest[2:]))

    names = ["text", "thinking", "parallel tools"]
    beats, streaming = Heartbeats(), Streaming(heartbeat=0.075, commit_after=0.025)
    async with both(told_by()) as (claude, _), both(by_name(slow), wrap=beats.around, streaming=streaming) as (_, gateway):
        for way in ["create", *STREAMS]:
            direct, passed = [await made(node, way, base, names) for base in (claude.url, url(gateway))]
            assert passed == direct, way
    assert beats.sent >= len(names) * len(STREAMS)
