"""OpenAI's official SDK for Node: what it makes of an answer is the same whether the provider or the gateway answers it.

https://github.com/openai/openai-node
"""

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.routing import Caller, Streaming
from gateway.simulator import Cut, Script, Send, Step, Wait
from gateway.wiring import Access
from tests.conformance.heartbeats import Heartbeats
from tests.conformance.said import (
    CASES,
    SSE,
    Json,
    Said,
    body_of,
    claude,
    claude_stream,
    data,
    odd,
    odd_claude,
    openai_stream,
    plain,
    refusing,
)
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Request, Respond, ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]
ASKED: Json = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
COUNTED: Json = {"stream_options": {"include_usage": True}}
WAYS = ["create", "iterate", "stream", "streamRelayed"]
ROADS = {
    "openai": (plain, "openai"),
    "odd": (odd, "openai"),
    "claude": (claude, "anthropic"),
    "odd claude": (odd_claude, "anthropic"),
}


@asynccontextmanager
async def both(
    respond: Respond, kind: str = "openai", wrap: Callable[[Any], Any] | None = None, **wired: Any
) -> AsyncIterator[tuple[ScriptedUpstream, Running]]:
    async with ScriptedUpstream(respond) as upstream, running(wiring(provider(upstream.url, kind=kind), **wired), wrap=wrap) as gateway:
        yield upstream, gateway
        await gateway.until_idle()


def url(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


def named(name: str) -> Json:
    """A request whose answer the scripted provider finds by that name."""
    return {**ASKED, "user": name}


def by_name(answers: Callable[[str], Respond]) -> Respond:
    def respond(request: Request) -> Any:
        asked = json.loads(request.body)
        return answers(asked["user"] if "user" in asked else asked["metadata"]["user_id"])(request)

    return respond


async def made(node: Node, way: str, url: str, asked: list[Json], **job: Any) -> list[Any]:
    """What the SDK makes of each answer."""
    told = await node("openai.mjs", [{"way": way, "url": url, "asked": one, **job} for one in asked])
    assert not [one for one in told if "raised" in one]
    return [one["made"] for one in told]


async def raised(node: Node, way: str, url: str, names: list[str], **job: Any) -> list[Json]:
    """What it raises over each of the named answers."""
    told = await node("openai.mjs", [{"way": way, "url": url, "asked": named(name), **job} for name in names])
    assert not [one for one in told if "made" in one]
    return [{**one["raised"], "seen": one["seen"]} for one in told]


def folded(chunks: list[Json]) -> Json:
    """What a program makes of raw chunks, where two providers may cut them differently; and what it relies on in them."""
    first = chunks[0]
    assert first["choices"][0]["delta"]["role"] == "assistant"
    said: Json = {"content": "", "reasoning_content": "", "annotations": [], "calls": [], "finish": None, "usage": None}
    for chunk in chunks:
        assert [chunk[key] for key in ("object", "id", "model", "created")] == [first[key] for key in ("object", "id", "model", "created")]
        assert said["usage"] is None, "the usage comes last"
        if chunk.get("usage"):
            assert chunk["choices"] == []
            said["usage"] = chunk["usage"]
            continue
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        assert said["finish"] is None
        assert "role" not in delta or chunk is first
        said["finish"] = choice["finish_reason"]
        for key in ("content", "reasoning_content", "annotations"):
            said[key] += delta.get(key) or type(said[key])()
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(said["calls"]):
                said["calls"].append([call["id"], call["type"], call["function"]["name"], ""])
            assert call["index"] == len(said["calls"]) - 1
            said["calls"][-1][-1] += call["function"].get("arguments", "")
    assert said["finish"] is not None
    return said


def _however_cut(made: Json, way: str) -> Json:
    """What does not hang on how a text was cut: of reasoning the SDK's helper keeps the last piece alone, having no word for it."""
    if way != "create":
        (choice,) = (made["final"] if way == "stream" else made)["choices"]
        choice["message"].pop("reasoning_content", None)
    return {**made, "chunks": None}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("road", ROADS)
async def test_every_answer_is_the_same_through_the_gateway(node: Node, road: str, way: str) -> None:
    write, kind = ROADS[road]
    # Claude's citations have no place in a text.
    names = [name for name in CASES if kind == "openai" or name != "annotations"]
    asked = [{**named(name), **CASES[name].ask, "user": name, **({} if way == "create" else COUNTED)} for name in names]
    provided, through = by_name(lambda name: plain(CASES[name])), by_name(lambda name: write(CASES[name]))
    async with both(provided) as (openai, _), both(through, kind) as (_, gateway):
        jobs = [{"way": way, "url": base, "asked": one} for base in (openai.url, url(gateway)) for one in asked]
        told = await node("openai.mjs", jobs)
    for name, direct, passed in zip(names, told, told[len(names) :], strict=False):
        if "raised" in direct and "seen" in direct:
            assert direct["raised"]["class"] == {"length": "LengthFinishReasonError"}.get(
                CASES[name].finish, "ContentFilterFinishReasonError"
            )
            assert passed["raised"]["class"] == direct["raised"]["class"], name
        elif way == "iterate":
            assert folded(passed["made"]) == folded(direct["made"]), name
        else:
            assert _however_cut(passed["made"], way) == _however_cut(direct["made"], way), name


# What the SDK builds upon it.

BERN = ("call_1", "weather", ('{"city":', ' "Bern"}'))


def _asked_and_told(write: Callable[[Said], Respond]) -> Respond:
    """A provider that asks for the weather first, and then answers."""
    turns = write(Said(text=("Let me look.",), calls=(BERN,), finish="tool_calls")), write(Said(text=("Take an umbrella.",)))
    return lambda request: turns["it rains" in request.body.decode()](request)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("road", ROADS)
async def test_run_tools_runs_a_tool_and_asks_again(node: Node, road: str, streaming: bool) -> None:
    write, kind = ROADS[road]
    job: Json = {"way": "runTools", "asked": ASKED, "streaming": streaming}
    async with both(_asked_and_told(plain)) as (openai, _), both(_asked_and_told(write), kind) as (upstream, gateway):
        direct, passed = await node("openai.mjs", [{**job, "url": openai.url}, {**job, "url": url(gateway)}])
        asked, told = (json.loads(requests[1].body)["messages"] for requests in (openai.requests, upstream.requests))
    assert passed == direct
    assert passed["made"]["asked"] == ["Bern"]
    assert passed["made"]["final"] == "Take an umbrella."
    if kind == "openai":
        assert [(one["role"], one.get("tool_call_id")) for one in told] == [(one["role"], one.get("tool_call_id")) for one in asked]
    else:
        assert [one["role"] for one in told] == ["user", "assistant", "user"]


@pytest.mark.parametrize("way", ["parse", "streamParsed"])
@pytest.mark.parametrize("road", ROADS)
async def test_a_structured_output_is_parsed(node: Node, road: str, way: str) -> None:
    write, kind = ROADS[road]
    said = Said(text=('{"city": ', '"Bern", "people": 134000}'))
    async with both(plain(said)) as (openai, _), both(write(said), kind) as (upstream, gateway):
        direct, passed = [(await made(node, way, base, [ASKED]))[0] for base in (openai.url, url(gateway))]
        asked, told = (json.loads(requests[0].body) for requests in (openai.requests, upstream.requests))
    assert passed == direct == {"city": "Bern", "people": 134000}
    schema = told["response_format"]["json_schema"]["schema"] if kind == "openai" else told["output_config"]["format"]["schema"]
    assert schema["properties"] == asked["response_format"]["json_schema"]["schema"]["properties"]


@pytest.mark.parametrize("road", ROADS)
async def test_the_arguments_of_calls_are_parsed(node: Node, road: str) -> None:
    write, kind = ROADS[road]
    said = Said(calls=(BERN,), finish="tool_calls")
    async with both(write(said), kind) as (_, gateway):
        assert await made(node, "parseCalls", url(gateway), [ASKED]) == [[{"city": "Bern"}]]


# Errors.

CLASSES = {
    400: "BadRequestError",
    401: "InternalServerError",  # it is the gateway's key that was refused, not the caller's
    404: "NotFoundError",
    413: "APIError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "InternalServerError",
    529: "InternalServerError",
}
STATUSES = [str(status) for status in CLASSES]


@pytest.mark.parametrize("way", ["create", "iterate", "stream"])
async def test_a_refusal_raises_the_same_class(node: Node, way: str) -> None:
    async with both(by_name(lambda name: refusing(int(name), retry_after="7"))) as (upstream, gateway):
        direct = await raised(node, way, upstream.url, STATUSES)
        passed = await raised(node, way, url(gateway), STATUSES)
    for status, one, other in zip(CLASSES, direct, passed, strict=True):
        assert other["class"] == CLASSES[status] == (one["class"] if status != 401 else "InternalServerError")
        assert other["status"] == {401: 502, 500: 502, 529: 503}.get(status, status)
        assert other["requestID"]
        assert other["code"]
        if status != 401:
            assert "The provider says no." in other["message"]
        if status in (429, 503, 529):
            assert other["retryAfter"] == one["retryAfter"] == "7"


async def test_the_sdk_asks_again_as_often_as_it_would_at_the_provider(node: Node) -> None:
    async with both(by_name(lambda name: refusing(int(name)))) as (upstream, gateway):
        await raised(node, "create", upstream.url, STATUSES, retries=1)
        direct = Counter(json.loads(request.body)["user"] for request in upstream.requests)
        await raised(node, "create", url(gateway), STATUSES, retries=1)
        passed = Counter(json.loads(request.body)["user"] for request in upstream.requests) - direct
    assert passed == direct
    assert {name: times for name, times in direct.items() if times > 1} == {"429": 2, "500": 2, "503": 2, "529": 2}


async def test_an_answer_at_the_second_try_is_as_any_other(node: Node) -> None:
    answers = one_after_another(refusing(529)(None), body_of(openai_stream(CASES["text"], True)))  # type: ignore[arg-type]
    async with both(plain(CASES["text"])) as (openai, _), both(answers) as (upstream, gateway):
        asked = [{**ASKED, **COUNTED}]
        assert await made(node, "stream", url(gateway), asked, retries=1) == await made(node, "stream", openai.url, asked)
        assert len(upstream.requests) == 2


async def test_the_gateways_own_refusals_raise_their_classes(node: Node) -> None:
    access = Access(callers=(Caller("web", hashlib.sha256(b"right").digest()),))
    job: Json = {"way": "create", "key": "right", "asked": ASKED}
    large = {**ASKED, "messages": [{"role": "user", "content": "x" * (11 << 20)}]}
    async with both(lambda _: b"", access=access) as (upstream, gateway):
        jobs = [{"key": "wrong"}, {"asked": {**ASKED, "model": "gpt-9"}}, {"asked": large}, {"asked": {**ASKED, "n": 2}}]
        told = await node("openai.mjs", [{**job, **other, "url": url(gateway)} for other in jobs])
        assert not upstream.requests
    assert [(one["raised"]["class"], one["raised"]["code"], one["raised"]["param"]) for one in told] == [
        ("AuthenticationError", "unauthorized", None),
        ("NotFoundError", "unknown_model", None),
        ("APIError", "too_large", None),
        ("BadRequestError", "unsupported", "n"),
    ]


async def test_an_error_inside_the_stream_is_raised_after_what_came_before_it(node: Node) -> None:
    failure = data({"error": {"message": "Too busy.", "type": "server_error", "param": None, "code": "overloaded"}})
    broken = body_of([*openai_stream(CASES["text"], False)[:3], failure])
    async with both(lambda _: broken) as (upstream, gateway):
        (direct,) = await raised(node, "iterate", upstream.url, ["text"])
        (passed,) = await raised(node, "iterate", url(gateway), ["text"])
        (helped,) = await raised(node, "stream", url(gateway), ["text"])
    for one in (direct, passed):
        assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in one["seen"]) == "Hello "
    assert (passed["class"], passed["status"]) == (direct["class"], direct["status"]) == (helped["class"], None) == ("APIError", None)
    assert (passed["code"], passed["type"]) == (helped["code"], helped["type"]) == ("upstream_overloaded", "server_error")
    assert "Too busy." in passed["message"]


async def test_a_stream_that_breaks_off_is_an_error_and_never_a_quiet_end(node: Node) -> None:
    broken = Script(200, SSE, (*(Send(frame) for frame in openai_stream(CASES["text"], False)[:3]), Cut()))
    async with both(lambda _: broken) as (_, gateway):
        (passed,) = await raised(node, "iterate", url(gateway), ["text"])
        (whole,) = await raised(node, "create", url(gateway), ["text"])
    assert (passed["class"], passed["code"]) == ("APIError", "stream_interrupted")
    assert (whole["class"], whole["status"], whole["code"]) == ("InternalServerError", 502, "stream_interrupted")


# Silence.


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_silence_is_bridged_by_comments_that_no_way_of_the_sdk_minds(node: Node, kind: str) -> None:
    """A minute of silence before the first word and one in the middle, at the default of a ping in 15 s, two hundred times as fast."""

    def slow(name: str) -> Respond:
        said = CASES[name]
        frames = openai_stream(said, True) if kind == "openai" else claude_stream(said)
        steps: list[Step] = [Send(frame) for frame in frames]
        return lambda _: Script(200, SSE, (Wait(0.3), *steps[:3], Wait(0.3), *steps[3:]))

    names = ["text", "reasoning", "parallel calls"]
    beats, streaming = Heartbeats(), Streaming(heartbeat=0.075, commit_after=0.025)
    provided = by_name(lambda name: plain(CASES[name]))
    async with both(provided) as (openai, _), both(by_name(slow), kind, beats.around, streaming=streaming) as (_, gateway):
        for way in WAYS:
            asked = [{**named(name), **CASES[name].ask, **({} if way == "create" else COUNTED)} for name in names]
            direct, passed = [await made(node, way, base, asked) for base in (openai.url, url(gateway))]
            for one, other in zip(direct, passed, strict=True):
                if way == "iterate":
                    assert folded(other) == folded(one)
                else:
                    assert _however_cut(other, way) == _however_cut(one, way)
    assert beats.sent >= len(names) * (len(WAYS) - 1)
