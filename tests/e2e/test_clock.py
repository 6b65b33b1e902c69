"""When the status goes out, what fills the silence, and which deadline ends what. Times are scaled down; none is asserted."""

import json

import pytest

from gateway.events import from_json
from gateway.routing import Retry, Streaming, Timeouts
from gateway.simulator import Cut, Hang, Send, Wait
from tests import grammar
from tests.e2e.client import Json, Truncated
from tests.e2e.provider import (
    BEGUN,
    BLOCK,
    BLOCK_STOP,
    COMMENT,
    ENDING,
    GOOD,
    HELLO,
    OPENAI_BEGUN,
    OPENAI_FINISH,
    OVERLOADED,
    PING,
    REASON,
    START,
    STOP,
    WHOLE,
    block,
    delta,
    frame,
    openai_text,
    refusal,
    stream,
)
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
SOON = Streaming(heartbeat=0.05, commit_after=0.1)
NEVER = 60.0


def kinds(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


def well_formed(events: list[Json]) -> list[Json]:
    grammar.check([from_json(event) for event in events])
    return events


def text(events: list[Json]) -> str:
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


# the commit


async def test_failure_before_commit_answers_with_the_providers_status() -> None:
    async with (
        ScriptedUpstream(lambda _: refusal(429, "Slow down.", retry_after="7")) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 429
        assert client.headers["retry-after"] == "7"
        error = (await client.json())["error"]
    assert (error["code"], error["type"], error["partial"]) == ("upstream_rate_limited", "rate_limit_error", False)


async def test_head_waits_for_content_and_not_for_message_start() -> None:
    script = stream(START, Wait(0.05), BLOCK, Wait(0.05), OVERLOADED)
    async with ScriptedUpstream(lambda _: script) as upstream, running(wiring(provider(upstream.url))) as gateway, gateway.chat() as client:
        assert await client.head() == 529


async def test_silence_is_committed_with_a_ping_and_then_one_for_each_heartbeat() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START, Wait(0.4), BLOCK + HELLO + ENDING)) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 200
        assert not (await upstream.request()).answered
        events = well_formed(await client.events())
    assert kinds(events)[:3] == ["ping", "ping", "ping"]
    assert kinds(events).count("message_start") == 1
    assert kinds(events)[-1] == "message_stop"


async def test_commit_happens_whatever_the_provider_sends_that_is_no_content() -> None:
    noise = [step for _ in range(60) for step in (Send(PING), Wait(0.01), Send(COMMENT))]
    async with (
        ScriptedUpstream(lambda _: stream(START, BLOCK, *noise, Hang())) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat() as client,
    ):
        assert await client.event() == {"type": "ping"}
        assert not (await upstream.request()).answered


async def test_failure_after_commit_is_told_in_band() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START, Wait(0.25), OVERLOADED)) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 200
        events = well_formed(await client.events())
    assert events[-1]["error"]["code"] == "upstream_overloaded"
    assert events[-1]["error"]["partial"] is False
    assert "message_start" not in kinds(events)


async def test_refusal_after_commit_is_told_in_band() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(before=(Wait(0.25), Cut()))) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 200
        assert (await client.events())[-1]["error"]["code"] == "upstream_unavailable"


async def test_failover_is_still_allowed_after_commit_and_message_start_comes_once() -> None:
    answers = one_after_another(stream(START, Wait(0.25), OVERLOADED), GOOD)
    async with ScriptedUpstream(answers) as upstream:
        wired = wiring(provider(upstream.url), targets=["claude/one", "claude/two"], streaming=SOON)
        async with running(wired) as gateway, gateway.chat() as client:
            events = well_formed(await client.events())
    assert kinds(events)[0] == "ping"
    assert kinds(events).count("message_start") == 1
    assert text(events) == "Hello world"
    assert events[-1]["stats"]["target"] == "claude/two"


async def test_whole_answer_is_never_committed_early() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Wait(0.3), OVERLOADED)) as upstream:
        wired = wiring(provider(upstream.url), streaming=Streaming(heartbeat=0.05, commit_after=0.05))
        async with running(wired) as gateway, gateway.chat(format="whole") as client:
            assert await client.head() == 529
            document = await client.json()
    assert document["error"]["partial"] is True
    assert document["partial_message"]["content"] == [{"type": "text", "text": "Hello"}]


@pytest.mark.parametrize(("format", "heartbeat"), [("native", b'event: ping\ndata: {"type":"ping"}\n\n'), ("ndjson", b'{"type":"ping"}\n')])
async def test_each_format_has_its_own_heartbeat(format: str, heartbeat: bytes) -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat(format=format) as client,
    ):
        assert b"Hello" in await client.piece()
        assert [await client.piece() for _ in range(3)] == [heartbeat] * 3


async def test_text_is_committed_with_its_headers_alone() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START, Wait(0.4), BLOCK + HELLO + ENDING)) as upstream,
        running(wiring(provider(upstream.url), streaming=SOON)) as gateway,
        gateway.chat(format="text") as client,
    ):
        assert await client.head() == 200
        assert not (await upstream.request()).answered
        assert await client.body() == b"Hello"


async def test_heartbeat_counts_silence_towards_the_client() -> None:
    words = [step for number in range(40) for step in (Send(delta(f"{number} ")), Wait(0.02))]
    async with ScriptedUpstream(lambda _: stream(START, BLOCK, *words, ENDING)) as upstream:
        wired = wiring(provider(upstream.url), streaming=Streaming(heartbeat=0.5, commit_after=NEVER))
        async with running(wired) as gateway, gateway.chat() as client:
            assert "ping" not in kinds(await client.events())


# the order of events decides


async def test_content_and_error_of_one_read_are_content_and_then_an_error() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN + OVERLOADED)) as upstream:
        wired = wiring(provider(upstream.url), targets=["claude/one", "claude/two"])
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 200
            events = well_formed(await client.events())
        assert len(upstream.requests) == 1
    assert text(events) == "Hello"
    assert (events[-1]["type"], events[-1]["error"]["partial"]) == ("error", True)


async def test_error_before_content_of_one_read_is_a_status() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START + OVERLOADED + BLOCK + HELLO + ENDING)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 529


# the provider's deadlines


async def test_provider_that_does_not_begin_is_given_up_at_first_token() -> None:
    async with ScriptedUpstream(lambda _: stream(START, COMMENT, Hang())) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(first_token=0.1))
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 504
            assert (await client.json())["error"]["code"] == "first_token_timeout"
            await upstream.until_all_closed()


async def test_comments_do_not_satisfy_first_token() -> None:
    comments = [step for _ in range(100) for step in (Send(COMMENT), Wait(0.02))]
    async with ScriptedUpstream(lambda _: stream(*comments, BEGUN + ENDING)) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(first_token=0.15))
        async with running(wired) as gateway, gateway.chat() as client:
            assert (await client.json())["error"]["code"] == "first_token_timeout"


async def test_start_of_thinking_satisfies_first_token() -> None:
    async with ScriptedUpstream(
        lambda _: stream(START, block("thinking"), Wait(0.7), BLOCK_STOP, block(index=1), delta("Hi", 1), ENDING)
    ) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(first_token=0.4))
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 200
            assert well_formed(await client.events())[-1]["type"] == "message_stop"


async def test_silence_in_mid_stream_ends_at_idle() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(idle=0.15), retry=Retry(attempts=3))
        async with running(wired) as gateway, gateway.chat() as client:
            events = well_formed(await client.events())
            await upstream.until_all_closed()
        assert len(upstream.requests) == 1
    assert events[-1]["error"]["code"] == "idle_timeout"
    assert events[-1]["error"]["partial"] is True


async def test_bytes_hold_idle_off() -> None:
    words = [step for number in range(10) for step in (Wait(0.05), Send(delta(f"{number}")))]
    async with (
        ScriptedUpstream(lambda _: stream(START + BLOCK, *words, ENDING)) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(idle=0.4))) as gateway,
        gateway.chat() as client,
    ):
        assert text(well_formed(await client.events())) == "0123456789"


@pytest.mark.parametrize("noise", [COMMENT, PING], ids=["comments", "pings"])
async def test_comments_and_pings_hold_idle_off_five_times_as_long(noise: bytes) -> None:
    steps = [step for _ in range(200) for step in (Wait(0.02), Send(noise))]
    async with ScriptedUpstream(lambda _: stream(BEGUN, *steps)) as upstream:
        async with running(wiring(provider(upstream.url), timeouts=Timeouts(idle=0.3))) as gateway, gateway.chat() as client:
            events = well_formed(await client.events())
        # 5 × 0.3 s of noise, one every 0.02 s at the fastest: more of it than one idle time would have let pass.
        assert upstream.requests[0].sent > len(BEGUN) + 10 * len(noise)
        assert not upstream.requests[0].answered
    assert events[-1]["error"]["code"] == "idle_timeout"


async def test_total_spans_all_attempts() -> None:
    async with ScriptedUpstream(lambda _: refusal(503, retry_after="0.05")) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(total=0.4), retry=Retry(attempts=1000))
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 504
            assert (await client.json())["error"]["code"] == "total_timeout"
        assert len(upstream.requests) > 1


async def test_total_ends_a_flowing_answer() -> None:
    words = [step for _ in range(500) for step in (Send(delta("word ")), Wait(0.01))]
    async with (
        ScriptedUpstream(lambda _: stream(START + BLOCK, *words, ENDING)) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(total=0.3))) as gateway,
        gateway.chat() as client,
    ):
        events = well_formed(await client.events())
        await upstream.until_all_closed()
    assert events[-1]["error"]["code"] == "total_timeout"


async def test_total_during_a_wait_is_the_answer() -> None:
    async with ScriptedUpstream(lambda _: refusal(503, retry_after="9")) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(total=0.2), retry=Retry(attempts=2))
        async with running(wired) as gateway, gateway.chat() as client:
            assert (await client.json())["error"]["code"] == "total_timeout"


async def test_dead_address_ends_at_connect() -> None:
    from tests.upstream import full_listener

    async with full_listener() as listener:
        wired = wiring(provider(f"http://127.0.0.1:{listener.port}"), timeouts=Timeouts(connect=0.1))
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 504
            error = (await client.json())["error"]
            await listener.until_dialling(0)
    assert (error["code"], error["retryable"]) == ("upstream_unavailable", True)


# finishing


@pytest.mark.parametrize("noise", [b"", COMMENT, b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'])
async def test_finish_reason_without_the_end_finishes_soon(noise: bytes) -> None:
    after = [step for _ in range(300) for step in (Wait(0.02), Send(noise))] if noise else [Hang()]
    async with ScriptedUpstream(lambda _: stream(OPENAI_BEGUN + OPENAI_FINISH, *after)) as upstream:
        wired = wiring(provider(upstream.url, "gpt", "openai"), timeouts=Timeouts(finish=0.15))
        async with running(wired) as gateway, gateway.chat() as client:
            events = well_formed(await client.events())
            await upstream.until_all_closed()
        assert not upstream.requests[0].answered
    assert (text(events), events[-1]["type"]) == ("Hello", "message_stop")


async def test_content_after_a_finish_reason_reopens_the_answer() -> None:
    script = stream(OPENAI_BEGUN + OPENAI_FINISH, Wait(0.05), openai_text(" again"), Wait(0.7), openai_text("!"), OPENAI_FINISH, Hang())
    async with ScriptedUpstream(lambda _: script) as upstream:
        wired = wiring(provider(upstream.url, "gpt", "openai"), timeouts=Timeouts(finish=0.4))
        async with running(wired) as gateway, gateway.chat() as client:
            events = well_formed(await client.events())
    assert (text(events), events[-1]["type"]) == ("Hello again!", "message_stop")


async def test_stop_reason_of_claude_without_message_stop_finishes_soon() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN + BLOCK_STOP + REASON, Hang())) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(finish=0.1))) as gateway,
        gateway.chat() as client,
    ):
        assert well_formed(await client.events())[-1]["type"] == "message_stop"


async def test_finish_holds_although_total_has_passed() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN + BLOCK_STOP + REASON, Hang())) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(finish=0.9, total=0.5))
        async with running(wired) as gateway, gateway.chat() as client:
            assert well_formed(await client.events())[-1]["type"] == "message_stop"


async def test_last_event_is_sent_although_the_provider_keeps_its_connection_open() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN + BLOCK_STOP + REASON + STOP, Hang())) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(finish=NEVER))) as gateway,
        gateway.chat() as client,
    ):
        assert (await client.events())[-1]["type"] == "message_stop"
        await upstream.until_all_closed()


async def test_no_heartbeat_follows_the_last_event() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(WHOLE, Hang())) as upstream,
        running(wiring(provider(upstream.url), streaming=Streaming(heartbeat=0.005))) as gateway,
    ):
        async with gateway.chat() as client:  # one connection for both: a heartbeat too much would cost it
            assert well_formed(await client.events())[-1]["type"] == "message_stop"
            await client.post()
            await client.head()
            assert well_formed(await client.events())[-1]["type"] == "message_stop"
        await gateway.until_idle()


async def test_frames_after_the_end_are_ignored() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN + ENDING + OVERLOADED + BEGUN)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert text(well_formed(await client.events())) == "Hello"


async def test_ending_without_finishing_is_an_interruption() -> None:
    for end in (Cut(), Wait(0)):
        async with (
            ScriptedUpstream(lambda _, end=end: stream(BEGUN, end)) as upstream,
            running(wiring(provider(upstream.url))) as gateway,
            gateway.chat() as client,
        ):
            error = well_formed(await client.events())[-1]["error"]
        assert (error["code"], error["retryable"], error["partial"]) == ("stream_interrupted", True, True)


async def test_text_that_is_interrupted_is_cut() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        assert await client.piece() == b"Hello"
        with pytest.raises(Truncated):
            await client.piece()
        assert (await gateway.record())["outcome"] == "failed"
        await gateway.until_idle()


async def test_failures_of_ndjson_are_lines() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="ndjson") as client,
    ):
        events = [json.loads(line) for line in (await client.body()).splitlines()]
    assert well_formed(events)[-1]["error"]["code"] == "stream_interrupted"


async def test_unknown_events_before_content_are_kept_in_their_order() -> None:
    odd = frame({"type": "model_context", "tokens": 3})
    async with (
        ScriptedUpstream(lambda _: stream(START, odd, Wait(0.02), BLOCK + HELLO + ENDING)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert kinds(well_formed(await client.events()))[:3] == ["message_start", "model_context", "content_block_start"]


async def test_unknown_event_at_the_head_of_a_flood_is_no_too_long_preamble() -> None:
    """What one read holds may be all content but for its first event."""
    odd = frame({"type": "model_context", "tokens": 3})
    flood = odd + BLOCK + delta("x" * 1000) * 300
    async with (
        ScriptedUpstream(lambda _: stream(START, Wait(0.02), flood, ENDING)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert kinds(well_formed(await client.events()))[:3] == ["message_start", "model_context", "content_block_start"]
        assert (await gateway.record())["dropped_frames"] == 0
