"""The AI SDK in the page, versions 5, 6 and 7: what `useChat` is made of, but for React, reads the gateway's streams.

https://ai-sdk.dev/docs/ai-sdk-ui/transport

`direct` is the other way to the same page: a server of its own, which asks the same provider through the AI SDK (version 7).
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from gateway.routing import Streaming
from gateway.simulator import Hang, Script, Send, Wait
from tests.conformance import claude_wire
from tests.conformance import said as openai_wire
from tests.conformance.claude_wire import JSON, MESSAGES, MUTATIONS, SSE, Json, Mutation, call, events, frame, message, telling, text
from tests.e2e.provider import OVERLOADED
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Request, Respond, ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]
VERSIONS = ("ai5", "ai6", "ai7")
TOOLS = ["weather", "time", "now", "web_search"]
# What only the gateway can pass on, and a server of the page's own fails over.
ONLY_HERE = {"blocks and fields nobody knows"}


def url(gateway: Running) -> str:
    return f"http://127.0.0.1:{gateway.port}"


def by_model(answers: Callable[[str], Respond]) -> Respond:
    """A provider whose models are the cases."""
    return lambda request: answers(json.loads(request.body)["model"])(request)


def reading(gateway: Running, name: str, version: str, provider: str = "claude", **job: Any) -> Json:
    return {"way": "read", "version": version, "url": url(gateway), "body": {"model": f"{provider}/{name}"}, **job}


async def made(node: Node, jobs: list[Json]) -> list[Any]:
    told = await node("ai.mjs", jobs)
    assert not [one for one in told if "raised" in one]
    return [one["made"] for one in told]


def plain(made: Json) -> tuple[list[Json], str]:
    """The parts of a message without ids and without what only one of the ways says; and how the answer ended."""
    return [_bare(part) for part in made["message"]["parts"] if part["type"] not in ("custom", "data-gateway-block")], made["end"][
        "finishReason"
    ]


def _bare(part: Json) -> Json:
    found = {
        key: value
        for key, value in part.items()
        if value is not None and key not in ("id", "sourceId", "citations", "callProviderMetadata")
    }
    if found["type"].startswith("source-"):
        found.pop("providerMetadata", None)
    if found.pop("providerExecuted", False):
        # As it came from the provider, where a server of the page's own rewrites it: no tool that the page declared.
        found = {"type": "at the provider", "toolCallId": found["toolCallId"], "state": found["state"], "input": found["input"]}
    return found


async def test_every_message_is_what_a_server_of_the_pages_own_would_have_made_of_it(node: Node) -> None:
    names = [name for name in MESSAGES if name not in ONLY_HERE]
    async with (
        ScriptedUpstream(by_model(lambda name: telling(MESSAGES[name]))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        direct = await made(node, [{"way": "direct", "url": upstream.url, "model": name, "tools": TOOLS} for name in names])
        for version in VERSIONS:
            passed = await made(node, [reading(gateway, name, version) for name in names])
            for name, one, other in zip(names, direct, passed, strict=True):
                assert plain(other) == plain(one), (version, name)


@pytest.mark.parametrize("write", [openai_wire.plain, openai_wire.odd])
async def test_so_it_is_with_an_openai_compatible_provider(node: Node, write: Callable[[openai_wire.Said], Respond]) -> None:
    cases = openai_wire.CASES
    async with (
        ScriptedUpstream(by_model(lambda name: openai_wire.plain(cases[name]))) as good,
        ScriptedUpstream(by_model(lambda name: write(cases[name]))) as upstream,
        running(wiring(provider(upstream.url, "gpt", "openai"))) as gateway,
    ):
        direct = await made(node, [{"way": "direct", "kind": "openai", "url": good.url, "model": name, "tools": TOOLS} for name in cases])
        for version in VERSIONS:
            passed = await made(node, [reading(gateway, name, version, "gpt") for name in cases])
            for name, one, other in zip(cases, direct, passed, strict=True):
                parts, reason = plain(other)
                if name == "annotations":  # the AI SDK's own provider does not read them
                    *parts, source = parts
                    assert (parts[-1].pop("providerMetadata").keys(), source["url"]) == ({"anthropic"}, "https://a.example")
                assert (parts, reason) == plain(one), (version, name)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda one: one.__name__)
async def test_what_a_relay_mangled_is_mended_on_the_way(node: Node, mutate: Mutation) -> None:
    async with (
        ScriptedUpstream(by_model(lambda name: telling(MESSAGES[name]))) as good,
        ScriptedUpstream(by_model(lambda name: lambda _: mutate(MESSAGES[name]))) as bad,
        running(wiring(provider(good.url, "good"), provider(bad.url, "bad"))) as gateway,
    ):
        read = await made(
            node, [reading(gateway, name, version, which) for which in ("good", "bad") for version in VERSIONS for name in MESSAGES]
        )
        half = len(read) // 2
        assert read[half:] == read[:half]


async def test_blocks_and_events_that_nobody_knows_are_no_reason_to_fail(node: Node) -> None:
    newer = [{"type": "hologram_event", "x": None}, {"type": "ping"}]
    frames = [frame(event) for event in events(MESSAGES["blocks and fields nobody knows"])]
    script = Script(200, SSE, tuple(Send(one) for one in (frames[0], *(frame(event) for event in newer), *frames[1:])))
    async with ScriptedUpstream(lambda _: script) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for one in await made(node, [reading(gateway, "m", version) for version in VERSIONS]):
            kinds = [(part["type"], part.get("text")) for part in one["message"]["parts"]]
            assert kinds == [("step-start", None), ("data-gateway-block", None), ("text", "Look."), ("data-gateway-block", None)]


# ---- a conversation


THOUGHT = {"type": "thinking", "thinking": "I should look.", "signature": "c2ln"}
PARIS, ROME = call("toolu_1", "weather", {"city": "Paris"}), call("toolu_2", "time", {"city": "Rome"})
LOOKING = message(THOUGHT, text("Let me look."), PARIS, ROME, stop_reason="tool_use")
AGAIN = {
    **message({**THOUGHT, "signature": "c2lnMg=="}, call("toolu_3", "weather", {"city": "Rome"}), stop_reason="tool_use"),
    "id": "msg_02",
}
ANSWERED = {**message(text("It rains.")), "id": "msg_03"}
ANSWERS = {"weather": {"celsius": 21}, "time": {"error": "The clock has stopped."}}


def in_turn(*messages: Json) -> Callable[[], Respond]:
    return lambda: one_after_another(*(claude_wire.stream(one) for one in messages))


def asked(request: Request) -> list[Json]:
    """The messages of a request to Claude, consecutive ones of a role as one: Claude does not tell them apart."""
    found: list[Json] = []
    for one in json.loads(request.body)["messages"]:
        content = [{"type": "text", "text": one["content"]}] if isinstance(one["content"], str) else one["content"]
        content = [_flat(block) for block in content]
        if found and found[-1]["role"] == one["role"]:
            found[-1]["content"] += content
        else:
            found.append({"role": one["role"], "content": content})
    return found


def _flat(block: Json) -> Json:
    """JSON in a result may be spaced in either way."""
    if block["type"] == "tool_result" and isinstance(block["content"], str) and block["content"].startswith("{"):
        return {**block, "content": json.loads(block["content"])}
    return block


@pytest.mark.parametrize("path", ["/api/chat", "/chat"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_loop_of_tools_goes_on_by_itself_in_one_message(node: Node, version: str, path: str) -> None:
    job = {"way": "talk", "version": version, "path": path, "questions": ["What is the weather?"], "answers": ANSWERS}
    async with (
        ScriptedUpstream(in_turn(LOOKING, AGAIN, ANSWERED)()) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        (talked,) = await made(node, [{**job, "url": url(gateway)}])
        requests = [asked(request) for request in upstream.requests]
        assert [(await gateway.record(number)).get("warnings", []) for number in range(3)] == [[], [], []]
    assert (talked["status"], talked.get("error")) == ("ready", None)
    question, answer = talked["messages"]
    assert (question["role"], answer["id"]) == ("user", "msg_01")
    assert [(part["type"], part.get("state")) for part in answer["parts"]] == [
        *(
            ("step-start", None),
            ("reasoning", "done"),
            ("text", "done"),
            ("tool-weather", "output-available"),
            ("tool-time", "output-error"),
        ),
        *(("step-start", None), ("reasoning", "done"), ("tool-weather", "output-available")),
        *(("step-start", None), ("text", "done")),
    ]
    assert answer["metadata"]["stopReason"] == "end_turn"
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": {"celsius": 21}},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "The clock has stopped.", "is_error": True},
    ]
    looked = [{"role": "assistant", "content": LOOKING["content"]}, {"role": "user", "content": results}]
    assert requests[1][1:] == looked
    again = {"type": "tool_result", "tool_use_id": "toolu_3", "content": {"celsius": 21}}
    assert requests[2][1:] == [*looked, {"role": "assistant", "content": AGAIN["content"]}, {"role": "user", "content": [again]}]


async def test_the_provider_is_asked_as_a_server_of_the_pages_own_would_ask_it(node: Node) -> None:
    job = {"way": "talk", "version": "ai7", "questions": ["What is the weather?", "And now?"], "answers": ANSWERS}
    async with (
        ScriptedUpstream(in_turn(LOOKING, AGAIN, ANSWERED, ANSWERED)()) as upstream,
        ScriptedUpstream(lambda _: claude_wire.stream(ANSWERED)) as other,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        (talked,) = await made(node, [{**job, "url": url(gateway)}])
        said = talked["messages"][:-1]
        assert [one["role"] for one in said] == ["user", "assistant", "user"]
        await made(node, [{"way": "direct", "url": other.url, "model": "m", "tools": TOOLS, "messages": _without_nulls(said)}])
        assert asked(upstream.requests[-1]) == asked(other.requests[0])


def _without_nulls(value: Any) -> Any:
    """What was undefined in the page."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_is_made_anew_and_files_are_sent(node: Node, version: str) -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    async with ScriptedUpstream(telling(ANSWERED)) as upstream, running(wiring(provider(upstream.url))) as gateway:
        job = {"version": version, "url": url(gateway), "questions": ["What is it?"]}
        regenerated, _ = await made(node, [{**job, "way": "regenerate"}, {**job, "way": "sendFiles", "files": [image]}])
        sent = [asked(request)[0]["content"] for request in upstream.requests]
    assert [one["role"] for one in regenerated["messages"]] == ["user", "assistant"]
    question = {"type": "text", "text": "What is it?"}
    assert sent.count([question]) == 2
    assert [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, question] in sent


async def test_a_completion_is_the_text_alone(node: Node) -> None:
    async with (
        ScriptedUpstream(
            by_model(lambda name: telling(LOOKING) if name == "good" else lambda _: Script(200, SSE, (Send(OVERLOADED),)))
        ) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        job = {"way": "complete", "url": url(gateway), "prompt": "Hello?"}
        jobs = [{**job, "version": version, "body": {"model": f"claude/{name}"}} for name in ("good", "bad") for version in VERSIONS]
        told = await made(node, jobs)
        assert asked(upstream.requests[0]) == [{"role": "user", "content": [{"type": "text", "text": "Hello?"}]}]
    assert told[:3] == [{"completion": "Let me look."}] * 3
    assert [one.get("error") for one in told[3:]] == ["Overloaded"] * 3


# ---- what goes wrong


def talking(gateway: Running, version: str, **job: Any) -> Json:
    return {"way": "talk", "version": version, "url": url(gateway), "questions": ["Hello?"], **job}


@pytest.mark.parametrize(("status", "kind"), [(400, "invalid_request_error"), (429, "rate_limit_error"), (529, "overloaded_error")])
async def test_before_the_answer_the_page_shows_the_sentence(node: Node, status: int, kind: str) -> None:
    async with (
        ScriptedUpstream(lambda _: claude_wire.refusing(status, kind)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        for path in ("/api/chat", "/chat"):
            for one in await made(node, [talking(gateway, version, path=path) for version in VERSIONS]):
                assert (one["status"], one["error"]) == ("error", f"The provider says {status}.")
                assert [said["role"] for said in one["messages"]] == ["user"]


async def test_who_asks_for_a_model_that_is_not_there_is_told_the_ones_that_are(node: Node) -> None:
    async with ScriptedUpstream(telling(ANSWERED)) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for one in await made(node, [talking(gateway, version, body={"model": "nobody"}) for version in VERSIONS]):
            assert one["status"] == "error"
            assert "default" in one["error"]


@pytest.mark.parametrize("broken", ["an error event", "the connection ends"])
async def test_what_came_before_an_error_is_kept_and_the_error_is_shown(node: Node, broken: str) -> None:
    begun = Send(b"".join(frame(event) for event in events(message(text("Hello, world")))[:4]))
    script = Script(200, SSE, (begun, *((Send(OVERLOADED),) if broken == "an error event" else ())))
    async with ScriptedUpstream(lambda _: script) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for one in await made(node, [talking(gateway, version) for version in VERSIONS]):
            assert one["status"] == "error"
            assert one["error"]
            assert one["messages"][-1]["parts"][-1]["text"] == "Hello, wor"
            assert one["ends"][-1]["isError"] is True


@pytest.mark.parametrize("version", VERSIONS)
async def test_whoever_presses_stop_stops_the_model_and_keeps_what_there_was(node: Node, version: str) -> None:
    begun = Send(b"".join(frame(event) for event in events(message(text("Hello, world")))[:4]))
    ear = Script(200, JSON, (Hang(),))
    async with (
        ScriptedUpstream(lambda _: Script(200, SSE, (begun, Hang()))) as upstream,
        ScriptedUpstream(lambda _: ear) as report,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        job = {"way": "stop", "version": version, "url": url(gateway), "questions": ["Hello?"]}
        async with anyio.create_task_group() as group:
            group.start_soon(node, "ai.mjs", {"job": job, "report": report.url})
            request = await upstream.request(deadline=20)
            stopped = json.loads((await report.request(deadline=20)).body)
            await request.until_closed()
            assert (await gateway.record())["outcome"] == "client_disconnected"
            group.cancel_scope.cancel()
        await gateway.until_idle()
    assert stopped["status"] == "ready"
    assert stopped["messages"][-1]["parts"][-1]["text"] == "Hello, wor"
    assert stopped["ends"] == [{"isAbort": True, "isDisconnect": False, "isError": False, "finishReason": None}]


async def test_silence_is_bridged_by_comments_that_no_version_minds(node: Node) -> None:
    """A minute of silence before the first word and one in the middle, at the default of a heartbeat in 15 s, two hundred times as fast."""
    frames = [frame(event) for event in events(LOOKING)]
    steps = (Wait(0.3), *(Send(one) for one in frames[:4]), Wait(0.3), *(Send(one) for one in frames[4:]))
    async with (
        ScriptedUpstream(lambda _: Script(200, SSE, steps)) as upstream,
        running(wiring(provider(upstream.url), streaming=Streaming(heartbeat=0.075, commit_after=0.025))) as gateway,
    ):
        slow = await made(node, [reading(gateway, "m", version) for version in VERSIONS])
        for _ in VERSIONS:
            assert (await gateway.record())["outcome"] == "finished"
    async with ScriptedUpstream(telling(LOOKING)) as upstream, running(wiring(provider(upstream.url))) as gateway:
        assert slow == await made(node, [reading(gateway, "m", version) for version in VERSIONS])


@pytest.mark.parametrize("cut", ["max_tokens", "tool_use"])
async def test_a_call_that_was_cut_is_an_error_of_the_tool_and_never_runs(node: Node, cut: str) -> None:
    said = message(call("toolu_1", "weather", {"city": "Paris"}), stop_reason=cut)
    broken = tuple(_cut(events(said)))
    async with (
        ScriptedUpstream(lambda _: Script(200, SSE, tuple(Send(frame(event)) for event in broken))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        for one in await made(node, [reading(gateway, "m", version) for version in VERSIONS]):
            part = one["message"]["parts"][-1]
            assert (part["type"], part["state"]) == ("tool-weather", "output-error")
            assert part["errorText"]


def _cut(said: list[Json]) -> Iterator[Json]:
    """Without the last fragment of the arguments."""
    fragments = [event for event in said if event["type"] == "content_block_delta"]
    return (event for event in said if event is not fragments[-1])
