"""One record a stream, and nothing in it that was said, or that opens a door."""

import base64
import json
import logging
import urllib.parse
from dataclasses import replace

import pytest
from msgspec import structs

from gateway.log import _JsonLines
from gateway.routing import Router
from gateway.simulator import Cut, Hang
from gateway.wiring import Wiring
from tests.e2e.client import ASK, Client, Json
from tests.e2e.provider import BEGUN, BLOCK, BLOCK_STOP, ENDING, GOOD, REASON, START, STOP, block, delta, frame, refusal, stream
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Answer, ScriptedUpstream

pytestmark = pytest.mark.anyio
KEY = "sk-canary-KEY+/=?4711"
PROMPT = "canary prompt: the blue heron?"
REPLY = "canary reply: the red fox?"
CANARIES = (KEY, PROMPT, REPLY, "canary")


def hidden(text: str) -> list[str]:
    """The text as it is, and in the codings in which things slip through."""
    forms = [text, urllib.parse.quote(text), urllib.parse.quote_plus(text), json.dumps(text)[1:-1], text.encode().hex()]
    for lead in range(3):  # base64 depends on what stands before
        coded = base64.b64encode(b"x" * lead + text.encode()).decode()
        forms += [coded[4:-4], base64.urlsafe_b64encode(b"x" * lead + text.encode()).decode()[4:-4]]
    return [form for form in forms if len(form) >= 6]


def everything(gateway: Running) -> str:
    """All that was logged, as it is written."""
    return "\n".join(_JsonLines().format(log) for log in gateway.logs)


async def test_each_stream_has_exactly_one_record() -> None:
    answers: dict[str, Answer] = {"finished": GOOD, "failed": refusal(529), "broken": stream(BEGUN, Cut())}
    async with (
        ScriptedUpstream(lambda request: answers[json.loads(request.body)["messages"][0]["content"]]) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
    ):
        for word in answers:
            async with gateway.chat({"messages": [{"role": "user", "content": word}]}, headers={"x-request-id": word}) as client:
                await client.body()
        async with gateway.chat({}, headers={"x-request-id": "refused"}) as client:
            await client.body()
        await gateway.record(3)
    outcomes = {record["request_id"]: record["outcome"] for record in gateway.records}
    assert outcomes == {"finished": "finished", "failed": "failed", "broken": "failed", "refused": "refused"}
    assert len(gateway.records) == 4
    codes = {record["request_id"]: record.get("error_code") for record in gateway.records}
    assert codes == {"finished": None, "failed": "upstream_overloaded", "broken": "stream_interrupted", "refused": "invalid_request"}


async def test_record_of_a_finished_stream_tells_what_happened() -> None:
    thinking = frame({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}})
    script = stream(
        START,
        block("thinking"),
        thinking,
        BLOCK_STOP,
        block(index=1),
        delta("Hi", 1),
        delta(" you", 1),
        ENDING.replace(b'"index": 0', b'"index": 1'),
    )
    async with ScriptedUpstream(lambda _: script) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            body = await client.body()
        record = await gateway.record()
    assert (record["format"], record["model"], record["target"], record["attempts"]) == ("native", "default", "claude/m", 1)
    assert (record["outcome"], record["status"], record["stop_reason"]) == ("finished", 200, "end_turn")
    assert record["usage"] == {"input_tokens": 11, "output_tokens": 7}
    assert record["bytes"] == len(body)
    assert record["events"] == body.count(b"event: ")
    assert 0 <= record["thinking_ttft_ms"] <= record["ttft_ms"] <= record["duration_ms"]
    assert "error" not in record


async def test_record_counts_attempts_and_says_why() -> None:
    answers = iter([refusal(529, retry_after="0.01"), GOOD])
    from gateway.routing import Retry

    async with (
        ScriptedUpstream(lambda _: next(answers)) as upstream,
        running(wiring(provider(upstream.url), retry=Retry(attempts=2))) as gateway,
    ):
        async with gateway.chat() as client:
            await client.body()
        record = await gateway.record()
    assert record["attempts"] == 2
    assert any("upstream_overloaded" in warning for warning in record["warnings"])


async def test_target_whose_model_is_not_known_yet_reads_as_one() -> None:
    from gateway.routing import Retry

    retry = Retry(attempts=3, max_retry_after=1.0)
    async with ScriptedUpstream(lambda _: refusal(529, retry_after="0.01")) as upstream:
        wired = wiring(provider(upstream.url, "local", kind="openai"), retry=retry)
        async with running(unnamed(wired)) as gateway:
            async with gateway.chat() as client:
                await client.body()
            record = await gateway.record()
    assert record["target"] == "local/(the first it lists)"
    assert record["warnings"] == ["local/(the first it lists) failed: upstream_overloaded (3 times)"]


def unnamed(wired: Wiring) -> Wiring:
    """With targets that ask for their provider's first model."""
    model = wired.models["default"]
    targets = tuple(structs.replace(target, model="") for target in model.targets)
    models = {"default": structs.replace(model, targets=targets)}
    return replace(wired, models=models, router=Router(models, {}))


async def test_stats_of_the_stream_are_those_of_the_record() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            stats = (await client.events())[-1]["stats"]
        record = await gateway.record()
    assert stats["ttft_ms"] == record["ttft_ms"]
    assert stats["dropped_frames"] == record["dropped_frames"] == 0


async def test_record_is_one_line_of_json_that_nothing_can_forge() -> None:
    forged = refusal(400, 'no\n{"event":"stream","outcome":"finished"}\u2028\r\n')
    async with ScriptedUpstream(lambda _: forged) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            await client.body()
        await gateway.record()
    (line,) = [_JsonLines().format(log) for log in gateway.logs]
    assert "\n" not in line
    assert json.loads(line)["outcome"] == "failed"


@pytest.mark.parametrize(
    "answer",
    [
        stream(START, BLOCK, delta(REPLY), ENDING),
        stream(START, BLOCK, delta(REPLY), Cut()),
        stream(START, BLOCK, delta(REPLY), f"data: {{{REPLY} {KEY}\n\n".encode(), BLOCK_STOP, REASON, STOP),
        stream(f"data: {{{REPLY}\n\n".encode()),
        refusal(401, f"the key {KEY} is wrong"),
        refusal(400, f"the header x-api-key: {KEY} is odd"),
        refusal(500, f"x-api-key {KEY} {urllib.parse.quote(KEY)} {base64.b64encode(KEY.encode()).decode()}"),
        b"HTTP/1.1 502 Bad\r\ncontent-type: text/html\r\ncontent-length: 60\r\n\r\n" + f"<html>{KEY}</html>".encode().ljust(60),
    ],
    ids=["whole", "cut", "malformed", "nonsense", "401", "400", "500", "html"],
)
@pytest.mark.parametrize("format", ["native", "whole"])
async def test_nothing_said_and_no_key_is_logged(answer: Answer, format: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    body: Json = {"messages": [{"role": "user", "content": PROMPT}], "system": PROMPT, "stream": format != "whole"}
    async with ScriptedUpstream(lambda _: answer) as upstream:
        async with running(wiring(provider(upstream.url, key=KEY))) as gateway, gateway.chat(body) as client:
            said = await client.body()
            await gateway.record()
        assert KEY in upstream.requests[0].headers.values()
    logged = everything(gateway)
    for canary in (KEY, PROMPT, REPLY):
        assert not [form for form in hidden(canary) if form in logged]
    assert not [form for form in hidden(KEY) if form in said.decode()]


async def test_refused_request_is_not_logged_either() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for body in (
            {"messages": [{"role": "user", "content": PROMPT}], "tmperature": 1},
            {"messages": PROMPT},
            f'{{"messages": {PROMPT}'.encode(),
        ):
            async with gateway.chat(body) as client:
                assert PROMPT not in (await client.body()).decode()
        await gateway.record(2)
    assert PROMPT not in everything(gateway)


# the feed


async def test_live_feed_shows_each_record_as_it_is_written() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as watcher,
    ):
        await watcher.send("GET", "/live")
        assert await watcher.head() == 200
        assert watcher.headers["content-type"].startswith("text/event-stream")
        assert watcher.headers["x-accel-buffering"] == "no"
        async with gateway.chat(headers={"x-request-id": "seen"}) as client:
            await client.body()
        piece = await watcher.piece()
        while b"data:" not in piece:
            piece += await watcher.piece()
        data = next(line for line in piece.decode().splitlines() if line.startswith("data: "))
        assert json.loads(data[6:]) == await gateway.record()
        watcher.leave("fin")
        await gateway.until_idle()


async def test_reader_of_the_feed_who_leaves_is_forgotten() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for way in ("fin", "rst"):
            async with Client.open(gateway.port) as watcher:
                await watcher.send("GET", "/live")
                await watcher.head()
                watcher.leave(way)
                await gateway.until_idle()
        assert not gateway.gateway.live._subscribers


async def test_feed_does_not_slow_anyone_down() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url)), send_buffer=4096) as gateway,
        Client.open(gateway.port, receive_buffer=4096) as watcher,
    ):
        await watcher.send("GET", "/live")
        await watcher.head()
        for _ in range(300):
            async with gateway.chat(ASK, format="whole") as client:
                await client.body()
