"""The official `openai` SDK, over sockets: what it makes of an answer is the same whether the provider or the gateway answers it.

`direct` is the SDK at the OpenAI provider itself; beside it the gateway over that provider, over the same one with
harmless oddities, over Claude, and over Claude with them.
"""

import hashlib
import json
import re
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from gateway.routing import Caller, Streaming
from gateway.simulator import Cut, Hang, Script, Send, Step, Wait
from gateway.wiring import Access
from tests.conformance.claude_wire import stream
from tests.conformance.heartbeats import Heartbeats
from tests.conformance.places import OPENAI_ROADS, gateway_over, openai_place
from tests.conformance.said import (
    CASES,
    SSE,
    WEATHER,
    Said,
    as_claude,
    body_of,
    claude,
    claude_stream,
    data,
    openai_stream,
    plain,
    refusing,
)
from tests.e2e.running import provider, running, wiring
from tests.upstream import Answer, Request, Respond, ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
KEY = "sk-test-key-of-a-client-of-the-gateway"
USER: list[Any] = [{"role": "user", "content": "hi"}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}

ROADS = [*OPENAI_ROADS, *(("odd claude", name) for where, name in OPENAI_ROADS if where == "claude")]
STREAM_RAISES = {"length": openai.LengthFinishReasonError, "content_filter": openai.ContentFilterFinishReasonError}


# ---- the SDK at one or the other


def at(url: str, *, max_retries: int = 0) -> AsyncOpenAI:
    # Without certificates, which take longer to read than all the rest.
    client = openai.DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=max_retries, http_client=client)


def also_at(url: str) -> OpenAI:
    client = openai.DefaultHttpxClient(verify=False)
    return OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=client)


def seen(value: BaseModel) -> Json:
    """All that the SDK made of it, but for times."""
    found = value.model_dump()
    found.pop("created")
    return found


async def created(url: str, said: Said) -> Json:
    async with at(url) as client:
        found: ChatCompletion = await client.chat.completions.create(model="default", messages=USER, **said.ask)
        return seen(found)


async def created_synchronously(url: str, said: Said) -> Json:
    def run() -> Json:
        with also_at(url) as client:
            return seen(client.chat.completions.create(model="default", messages=USER, **said.ask))

    return await anyio.to_thread.run_sync(run)


async def helped(url: str, said: Said) -> Json:
    """`.stream()` and `get_final_completion`; or what it raises for an answer that is none to parse."""
    options: Json = {"stream_options": {"include_usage": True}}
    async with at(url) as client:
        try:
            async with client.chat.completions.stream(model="default", messages=USER, **options, **said.ask) as stream:
                kinds = [event.type async for event in stream]
                found = await stream.get_final_completion()
        except tuple(STREAM_RAISES.values()) as error:
            return {"raised": type(error).__name__}
    assert "chunk" in kinds
    return seen(found)


async def helped_synchronously(url: str, said: Said) -> Json:
    def run() -> Json:
        with also_at(url) as client:
            try:
                with client.chat.completions.stream(model="default", messages=USER, **said.ask) as stream:
                    stream.until_done()
                    return seen(stream.get_final_completion())
            except tuple(STREAM_RAISES.values()) as error:
                return {"raised": type(error).__name__}

    return await anyio.to_thread.run_sync(run)


def folded(chunks: list[ChatCompletionChunk], *, include_usage: bool) -> Json:
    """What a program makes of raw chunks; and what it relies on in them."""
    first = chunks[0]
    assert first.choices[0].delta.role == "assistant"
    message: Json = {"content": "", "reasoning": "", "calls": [], "annotations": []}
    finish, counted = None, None
    for chunk in chunks:
        assert (chunk.object, chunk.id, chunk.model, chunk.created) == ("chat.completion.chunk", first.id, first.model, first.created)
        if chunk.usage is not None:
            assert chunk.choices == []
            counted = chunk.usage.model_dump()
            continue
        assert counted is None
        assert finish is None
        (choice,) = chunk.choices
        finish = choice.finish_reason
        delta = choice.delta
        assert delta.role is None or chunk is first
        if finish is not None:
            assert delta.model_dump(exclude_none=True) == {}
        message["content"] += delta.content or ""
        message["reasoning"] += getattr(delta, "reasoning_content", None) or ""
        message["annotations"] += getattr(delta, "annotations", None) or []
        for call in delta.tool_calls or ():
            function = call.function
            assert function is not None
            if call.index == len(message["calls"]):
                assert call.type == "function"
                message["calls"].append([call.id, function.name, ""])
            else:
                assert call.index == len(message["calls"]) - 1
                assert (call.id, call.type, function.name) == (None, None, None)
            message["calls"][call.index][2] += function.arguments or ""
    assert finish is not None
    assert (counted is not None) is include_usage
    return {**message, "finish": finish, "usage": counted}


async def iterated(url: str, said: Said, *, include_usage: bool = True) -> Json:
    options: Json = {"stream_options": {"include_usage": True}} if include_usage else {}
    async with at(url) as client:
        stream = await client.chat.completions.create(model="default", messages=USER, stream=True, **options, **said.ask)
        chunks = [chunk async for chunk in stream]
    return folded(chunks, include_usage=include_usage)


async def iterated_synchronously(url: str, said: Said) -> Json:
    def run() -> Json:
        with also_at(url) as client:
            stream = client.chat.completions.create(model="default", messages=USER, stream=True, **said.ask)
            return folded(list(stream), include_usage=False)

    return await anyio.to_thread.run_sync(run)


CALLS = [created, created_synchronously, helped, helped_synchronously, iterated, iterated_synchronously]


@pytest.mark.parametrize(("where", "name"), ROADS)
async def test_the_sdk_makes_the_same_of_an_answer_through_the_gateway(where: str, name: str) -> None:
    said = CASES[name]
    async with openai_place("direct", said) as direct, openai_place(where, said) as through:
        for call in CALLS:
            assert await call(through, said) == await call(direct, said), call.__name__


async def test_the_provider_is_asked_what_the_client_asked() -> None:
    said = CASES["text and a call"]
    history = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, PICTURE]},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        {"role": "user", "content": "so?"},
    ]  # fmt: skip
    asked: Json = {
        "model": "default",
        "messages": history,
        "tools": [WEATHER],
        "temperature": 0,
        "stream": True,
        "seed": 3,
        "extra_body": {"top_k": 5},
    }
    async with gateway_over(plain(said)) as (url, upstream, _), at(url) as client:
        async for _chunk in await client.chat.completions.create(**asked):
            pass
        sent = json.loads(upstream.requests[0].body)
    assert sent["messages"] == [{"role": "system", "content": "be brief"}, *history[1:]]
    assert (sent["tools"], sent["temperature"], sent["seed"], sent["top_k"], sent["model"]) == ([WEATHER], 0, 3, 5, "m")


async def test_a_tool_loop_ends_with_the_answer_to_the_results() -> None:
    first, second = CASES["parallel calls"], Said(text=("Both are fine.",))
    turns = {0: first, 2: second}
    for kind, write in (("openai", lambda said: body_of(openai_stream(said, True))), ("anthropic", lambda said: stream(as_claude(said)))):
        requests: list[Json] = []

        def respond(request: Request, write: Any = write, requests: list[Json] = requests) -> Answer:
            requests.append(json.loads(request.body))
            return write(turns[0 if len(requests) == 1 else 2])

        async with gateway_over(respond, kind) as (url, _, _gateway), at(url) as client:
            history = list(USER)
            while True:
                answer = (await client.chat.completions.create(model="default", messages=history, tools=[WEATHER])).choices[0].message
                if not answer.tool_calls:
                    break
                history.append(answer.to_dict())
                history += [{"role": "tool", "tool_call_id": call.id, "content": "fine"} for call in answer.tool_calls]
        assert answer.content == "Both are fine."
        assert len(requests) == 2
        results = json.dumps(requests[1]["messages"])
        assert re.findall(r"call_\d", results) == ["call_1", "call_2", "call_1", "call_2"]


async def test_structured_output_is_parsed() -> None:
    class City(BaseModel):
        name: str

    said = Said(text=('{"name":', ' "Paris"}'))
    for kind, write in (("openai", plain), ("anthropic", claude)):
        async with gateway_over(write(said), kind) as (url, upstream, _), at(url) as client:
            found = await client.chat.completions.parse(model="default", messages=USER, response_format=City)
            assert found.choices[0].message.parsed == City(name="Paris")
            sent = json.loads(upstream.requests[0].body)
        schema = sent["response_format"]["json_schema"]["schema"] if kind == "openai" else sent["output_config"]["format"]["schema"]
        assert schema["properties"]["name"]["type"] == "string"


async def test_the_models_are_listed() -> None:
    async with gateway_over(plain(CASES["text"])) as (url, _, _gateway), at(url) as client:
        assert [model.id async for model in client.models.list()] == ["default"]


# ---- errors

STATUSES: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    404: openai.NotFoundError,
    413: openai.APIStatusError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
    529: openai.InternalServerError,
}


@pytest.mark.parametrize("status", sorted(STATUSES))
@pytest.mark.parametrize("stream", [False, True])
async def test_a_status_raises_the_same_class_as_at_the_provider(status: int, stream: bool) -> None:
    async def raised(url: str) -> openai.APIStatusError:
        async with at(url) as client:
            with pytest.raises(openai.APIStatusError) as error:
                await client.chat.completions.create(model="default", messages=USER, stream=stream)
            return error.value

    async with ScriptedUpstream(refusing(status)) as upstream, gateway_over(refusing(status)) as (url, _, _gateway):
        direct, through = await raised(upstream.url), await raised(url)
    assert type(through) is type(direct) is STATUSES[status]
    assert through.status_code == {500: 502, 529: 503}.get(status, status)
    assert through.body is not None
    assert "The provider says no." in through.message
    assert through.request_id
    assert through.code is not None


async def test_an_unknown_model_a_wrong_body_and_one_too_large_raise_their_classes() -> None:
    async with gateway_over(plain(CASES["text"])) as (url, upstream, _), at(url) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="nothing/like-it", messages=USER)
        assert unknown.value.code == "unknown_model"
        with pytest.raises(openai.BadRequestError) as wrong:
            await client.chat.completions.create(model="default", messages=USER, n=2)
        assert (wrong.value.code, wrong.value.param, wrong.value.type) == ("unsupported", "n", "invalid_request_error")
        with pytest.raises(openai.APIStatusError) as large:
            await client.chat.completions.create(model="default", messages=[{"role": "user", "content": "x" * 11_000_000}])
        assert (large.value.status_code, large.value.code) == (413, "too_large")
        assert not upstream.requests


async def test_a_key_that_is_nobodys_is_an_authentication_error() -> None:
    access = Access(callers=(Caller("ann", hashlib.sha256(KEY.encode()).digest(), None, 10, False),))
    async with gateway_over(plain(CASES["text"]), access=access) as (url, _, _gateway), at(url) as client:
        assert (await client.chat.completions.create(model="default", messages=USER)).choices[0].message.content == "Hello world"
        with pytest.raises(openai.AuthenticationError) as error:
            await client.with_options(api_key="sk-somebody-elses").chat.completions.create(model="default", messages=USER)
    assert error.value.code == "unauthorized"


async def test_how_long_to_wait_is_told_with_a_429() -> None:
    async with gateway_over(refusing(429, retry_after="7")) as (url, _, _gateway), at(url) as client:
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(model="default", messages=USER)
    assert error.value.response.headers["retry-after"] == "7"
    assert error.value.type == "rate_limit_exceeded"


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_the_sdk_tries_again_by_itself(status: int) -> None:
    for respond in (plain, claude):
        answers = one_after_another(refusing(status)(None), respond(CASES["text"])(Request("POST", "/", {}, b'{"stream": true}', 0, None)))  # type: ignore[arg-type]
        kind = "openai" if respond is plain else "anthropic"
        async with gateway_over(answers, kind) as (url, upstream, _), at(url, max_retries=1) as client:
            found = await client.chat.completions.create(model="default", messages=USER)
            assert found.choices[0].message.content == "Hello world"
            assert len(upstream.requests) == 2


async def test_an_error_inside_the_stream_is_raised_after_what_came_before_it() -> None:
    begun = openai_stream(CASES["text"], False)[:3]
    overloaded = data({"error": {"message": "Too busy.", "type": "server_error", "param": None, "code": "overloaded"}})

    async def raised(url: str) -> tuple[str, openai.APIError]:
        text = ""
        async with at(url) as client:
            stream = await client.chat.completions.create(model="default", messages=USER, stream=True)
            try:
                async for part in stream:
                    text += part.choices[0].delta.content or ""
            except openai.APIError as error:
                return text, error
        raise AssertionError("the stream ended as if it were whole")

    answer = body_of([*begun, overloaded])
    async with ScriptedUpstream(lambda _: answer) as upstream, gateway_over(lambda _: answer) as (url, _, _gateway):
        direct, through = await raised(upstream.url), await raised(url)
    assert direct[0] == through[0] == "Hello "
    assert type(direct[1]) is type(through[1]) is openai.APIError
    assert "Too busy." in through[1].message
    assert (through[1].code, through[1].type) == ("upstream_overloaded", "server_error")


async def test_a_stream_that_breaks_off_is_an_error_and_never_a_quiet_end() -> None:
    answer = Script(200, SSE, (*(Send(frame) for frame in openai_stream(CASES["text"], False)[:3]), Cut()))
    async with gateway_over(lambda _: answer) as (url, _, _gateway), at(url) as client:
        stream = await client.chat.completions.create(model="default", messages=USER, stream=True)
        with pytest.raises(openai.APIError) as error:
            [part async for part in stream]
        assert error.value.code == "stream_interrupted"
        with pytest.raises(openai.InternalServerError) as whole:
            await client.chat.completions.create(model="default", messages=USER)
        body = whole.value.response.json()
        assert body["partial_message"]["content"] == "Hello "


@pytest.mark.parametrize("cancelled", [False, True])
async def test_whoever_leaves_a_stream_closes_the_upstream(cancelled: bool) -> None:
    begun = openai_stream(CASES["text"], False)[:3]
    answer = Script(200, SSE, (*(Send(frame) for frame in begun), Hang()))
    async with gateway_over(lambda _: answer) as (url, upstream, gateway), at(url) as client:
        with anyio.CancelScope() as scope:
            async with await client.chat.completions.create(model="default", messages=USER, stream=True) as stream:
                async for _chunk in stream:
                    if not cancelled:
                        break
                    scope.cancel()
        await (await upstream.request()).until_closed()
        assert (await gateway.record())["outcome"] == "client_disconnected"


# ---- silence


async def test_the_sdk_survives_a_long_silence_full_of_heartbeats() -> None:
    """A minute at the default of one in 15 s, a hundred times as fast."""
    frames = openai_stream(CASES["reasoning"], True)
    steps: list[Step] = [Wait(0.3)]
    for number, frame in enumerate(frames):
        steps += [Send(frame)] if number % 2 else [Send(frame), Wait(0.1)]
    streaming = Streaming(heartbeat=0.01, commit_after=0.02)
    async with gateway_over(lambda _: Script(200, SSE, tuple(steps)), streaming=streaming) as (url, _, _gateway), at(url) as client:
        raw = client.chat.completions.with_streaming_response.create(model="default", messages=USER, stream=True)
        async with raw as response:
            text = (await response.read()).decode()
        assert text.count(": ping\n\n") >= 20
        assert text.startswith(": ping\n\n")
        async with client.chat.completions.stream(model="default", messages=USER) as stream:
            async for _event in stream:
                pass
            found = await stream.get_final_completion()
    assert found.choices[0].message.content == "It is 4."


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("call", CALLS)
async def test_no_way_of_the_sdk_minds_a_heartbeat(call: Any, kind: str) -> None:
    """A minute of silence before the first word and one in the middle, four hundred times as fast."""

    def slow(said: Said) -> Respond:
        frames = openai_stream(said, True) if kind == "openai" else claude_stream(said)
        steps: list[Step] = [Send(frame) for frame in frames]
        return lambda _: Script(200, SSE, (Wait(0.15), *steps[:4], Wait(0.15), *steps[4:]))

    streaming = Streaming(heartbeat=15 / 400, commit_after=5 / 400)
    for name in ("text", "reasoning", "parallel calls"):
        said, beats = CASES[name], Heartbeats()
        async with openai_place("direct", said) as direct, ScriptedUpstream(slow(said)) as upstream:
            wired = wiring(provider(upstream.url, kind=kind), streaming=streaming)
            async with running(wired, wrap=beats.around) as gateway:
                assert await call(f"http://127.0.0.1:{gateway.port}", said) == await call(direct, said)
        assert (beats.sent > 0) is (not call.__name__.startswith("created"))
