"""The stop: a process of its own, real signals, and what clients see of it."""

import signal
from contextlib import AsyncExitStack

import pytest

from gateway.simulator import Hang, Wait
from tests.e2e.client import ASK, Client, Json
from tests.e2e.provider import BEGUN, BLOCK, ENDING, GOOD, HELLO, START, stream
from tests.e2e.running import process
from tests.upstream import ScriptedUpstream, full_listener
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
SIGNALS = [signal.SIGTERM, signal.SIGINT]


def configuration(url: str, *, grace: str = "0.6s", **more: Json) -> Json:
    return {
        "providers": {"claude": {"type": "anthropic", "base_url": url, "api_key": "sk-test"}},
        "models": {"default": {"targets": ["claude/m"]}},
        "server": {"shutdown_grace": grace},
        **more,
    }


@pytest.mark.parametrize("number", SIGNALS)
async def test_gateway_without_streams_exits_at_once(number: int) -> None:
    async with process(configuration("http://127.0.0.1:9", grace="30s")) as gateway:
        gateway.signal(number)
        assert await gateway.exit_code() == 0


async def test_stop_goes_on_listening_until_its_streams_have_ended() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Wait(1.5), ENDING)) as upstream,
        process(configuration(upstream.url, grace="30s")) as gateway,
    ):
        async with gateway.chat() as client:
            await client.until("content_block_delta")
            gateway.signal()
            await gateway.until_stopping()
            assert (await gateway.get("/healthz")).status == 200
            async with gateway.chat() as late:
                assert await late.head() == 503
                assert late.headers["retry-after"] == "5"
                assert late.headers["connection"] == "close"
                assert (await late.json())["error"]["code"] == "shutdown"
            events = await client.events()
        assert events[-1]["type"] == "message_stop"
        assert await gateway.exit_code() == 0
        assert [record["outcome"] for record in gateway.records()] == ["refused", "finished"]


async def test_drain_delay_keeps_the_port_open_although_nothing_runs() -> None:
    wanted = configuration("http://127.0.0.1:9")
    wanted["server"] = {"drain_delay": "1s"}
    async with process(wanted) as gateway:
        gateway.signal()
        await gateway.until_stopping()
        async with gateway.chat() as client:
            assert await client.head() == 503
        assert await gateway.exit_code() == 0


async def test_streams_that_outlast_the_grace_end_with_an_error() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, process(configuration(upstream.url)) as gateway:
        async with AsyncExitStack() as stack:
            native = await stack.enter_async_context(gateway.chat())
            await native.until("content_block_delta")
            lines = await stack.enter_async_context(gateway.chat(path="/chat?format=ndjson"))
            await lines.until("content_block_delta")
            whole = await stack.enter_async_context(gateway.chat({**ASK, "stream": False}))
            await upstream.request(2)
            gateway.signal()
            for client in (native, lines):
                error = (await client.events())[-1]
                assert (error["type"], error["error"]["code"], error["error"]["retryable"]) == ("error", "shutdown", True)
                assert error["error"]["partial"] is True
            assert await whole.head() == 503
            assert whole.headers["retry-after"] == "5"
            assert (await whole.json())["error"]["code"] == "shutdown"
        assert await gateway.exit_code() == 0
        await upstream.until_all_closed()
        assert {record["outcome"] for record in gateway.records()} == {"shutdown"}
        assert len(gateway.records()) == 3


async def test_held_streams_are_answered_with_a_503() -> None:
    async with ScriptedUpstream(lambda _: stream(START, Hang())) as upstream, process(configuration(upstream.url)) as gateway:
        async with gateway.chat() as client:
            await upstream.request()
            gateway.signal()
            assert await client.head() == 503
            assert client.headers["retry-after"] == "5"
            assert (await client.json())["error"]["partial"] is False
        assert await gateway.exit_code() == 0


async def test_retries_go_on_during_the_grace() -> None:
    from tests.e2e.provider import refusal
    from tests.upstream import one_after_another

    answers = one_after_another(refusal(529, retry_after="1"), GOOD)
    async with ScriptedUpstream(answers) as upstream, process(configuration(upstream.url, grace="30s")) as gateway:
        async with gateway.chat() as client:
            await (await upstream.request()).until_answered()
            gateway.signal()
            assert (await client.events())[-1]["type"] == "message_stop"
        assert await gateway.exit_code() == 0


async def test_client_that_does_not_read_does_not_hold_up_the_stop() -> None:
    from tests.e2e.abort_matrix import PARAGRAPH

    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, *(PARAGRAPH,) * 400, Hang())) as upstream,
        process(configuration(upstream.url, grace="0.3s")) as gateway,
        gateway.chat(receive_buffer=4096) as client,
    ):
        assert await client.head() == 200
        gateway.signal()
        assert await gateway.exit_code(10) == 0
        await upstream.until_all_closed()


async def test_dialling_ends_with_the_grace() -> None:
    async with full_listener() as listener:
        wanted = configuration(f"http://127.0.0.1:{listener.port}", timeouts={"connect": "30s"})
        async with process(wanted) as gateway, gateway.chat() as client:
            await listener.until_dialling(1)
            gateway.signal()
            assert await client.head() == 503
            assert await gateway.exit_code() == 0


@pytest.mark.parametrize("number", SIGNALS)
async def test_second_signal_ends_everything_at_once(number: int) -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        process(configuration(upstream.url, grace="30s")) as gateway,
        gateway.chat() as client,
    ):
        await client.until("content_block_delta")
        gateway.signal(number)
        await gateway.until_stopping()
        gateway.signal(number)
        assert await gateway.exit_code() == 1
        await upstream.until_all_closed()


async def test_feed_ends_with_the_gateway() -> None:
    async with process(configuration("http://127.0.0.1:9", grace="30s")) as gateway, Client.open(gateway.port) as watcher:
        await watcher.send("GET", "/live")
        assert await watcher.head() == 200
        gateway.signal()
        assert await gateway.exit_code() == 0
        await watcher.until_lost()
        assert [line for line in gateway.lines() if line["level"] in ("error", "warning")] == []


async def test_idle_connection_does_not_hold_up_the_stop() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START + BLOCK + HELLO + ENDING)) as upstream,
        process(configuration(upstream.url)) as gateway,
        gateway.chat() as client,
    ):
        await client.events()
        gateway.signal()
        assert await gateway.exit_code() == 0


async def test_process_gives_back_its_descriptors() -> None:
    async with (
        ScriptedUpstream(lambda request: GOOD if b"next" in request.body else stream(BEGUN, Hang())) as upstream,
        process(configuration(upstream.url)) as gateway,
    ):
        async with gateway.chat() as client:  # what is opened lazily is open now
            await client.until("content_block_delta")
            client.leave("fin")
            await (await upstream.request()).until_closed()
        before = gateway.descriptors()
        for number in range(50):
            async with gateway.chat() as client:
                await client.until("content_block_delta")
                client.leave("rst" if number % 2 else "fin")
                await (await upstream.request(number + 1)).until_closed()
        await until(lambda: gateway.descriptors() <= before, "as few descriptors as before")
        async with gateway.chat({"messages": [{"role": "user", "content": "next"}]}) as client:
            assert (await client.events())[-1]["type"] == "message_stop"
        assert not [line for line in gateway.lines() if line["level"] in ("error", "warning")]


@pytest.mark.parametrize("body", [b"", b'{"messages": ['])
async def test_chat_that_is_still_being_sent_is_told_of_the_stop(body: bytes) -> None:
    async with process(configuration("http://127.0.0.1:9", grace="30s")) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n")
        while b"100 Continue" not in client._received:  # it is being read
            await client._more()
        await client.send_raw(body)
        gateway.signal()
        assert await client.head() == 503
        assert (client.headers["retry-after"], client.headers["connection"]) == ("5", "close")
        assert (await client.json())["error"]["code"] == "shutdown"
        assert await gateway.exit_code() == 0
        assert not [line for line in gateway.lines() if line["level"] in ("error", "warning")]


async def test_first_signal_says_what_happens_and_the_second_keeps_the_records() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        process(configuration(upstream.url, grace="30s")) as gateway,
        gateway.chat() as one,
        gateway.chat() as another,
    ):
        for client in (one, another):
            await client.until("content_block_delta")
        gateway.signal()
        await gateway.until_stopping()
        gateway.signal()
        assert await gateway.exit_code() == 1
        said = [line["message"] for line in gateway.lines() if line["event"] == "log"]
        assert said == ["stopping: 2 streams are open and have 30 s to end; a second signal cuts them"]
        assert [(record["outcome"], record["events"] > 0) for record in gateway.records()] == [("shutdown", True)] * 2
