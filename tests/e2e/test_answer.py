"""What an answer looks like on the wire: status, headers, formats, documents."""

import asyncio
import gc
import json
import time
import weakref

import pytest

from gateway.answer import Answer
from gateway.events import from_json
from gateway.message import Assembler
from gateway.routing import Timeouts
from gateway.simulator import Cut, Hang, Script, Send, Wait
from gateway.wiring import Access
from tests.e2e.client import ASK, Client, Truncated
from tests.e2e.provider import BEGUN, BLOCK, ENDING, GOOD, START, WHOLE, delta, refusal, stream
from tests.e2e.running import provider, running, until, wiring
from tests.upstream import Request, ScriptedUpstream

pytestmark = pytest.mark.anyio


async def test_stream_has_the_headers_that_keep_layers_from_buffering() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway, gateway.chat() as client:
        assert await client.head() == 200
        headers = client.headers
        request_id = headers.pop("x-request-id")
        headers.pop("date", None)
        assert headers == {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
            "transfer-encoding": "chunked",
        }
        assert len(request_id) >= 16


@pytest.mark.parametrize(
    ("format", "content_type"),
    [("native", "text/event-stream; charset=utf-8"), ("ndjson", "application/x-ndjson"), ("text", "text/plain; charset=utf-8")],
)
async def test_each_format_names_its_content_type(format: str, content_type: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat(format=format) as client:
            await client.head()
            assert client.headers["content-type"] == content_type
            assert b"Hello" in await client.body()
        assert (await gateway.record())["format"] == format


async def test_compression_is_not_used_although_it_is_accepted() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(headers={"accept-encoding": "gzip, br, zstd"}) as client,
    ):
        await client.head()
        assert "content-encoding" not in client.headers


async def test_whole_answer_is_the_assembled_message_and_its_stats() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            assembler = Assembler()
            assembler.feed([from_json(event) for event in await client.events()])
        async with gateway.chat(format="whole") as client:
            assert await client.head() == 200
            assert client.headers["content-type"] == "application/json"
            body = await client.body()
            assert client.headers["content-length"] == str(len(body))
    document = json.loads(body)
    stats = document.pop("stats")
    assert document == {key: value for key, value in assembler.message.items() if key != "stats"}
    assert document["usage"] == {"input_tokens": 11, "output_tokens": 7}
    assert (stats["provider"], stats["target"], stats["attempts"]) == ("claude", "claude/m", 1)


async def test_whole_answer_as_text_is_the_text() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat({**ASK, "stream": False}, format="text") as client,
    ):
        assert await client.body() == b"Hello world"
        assert client.headers["content-type"] == "text/plain; charset=utf-8"
        assert client.headers["content-length"] == "11"


async def test_provider_is_asked_to_stream_although_the_client_wants_a_document() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat(format="whole") as client:
            await client.body()
        assert json.loads(upstream.requests[0].body)["stream"] is True


async def test_stream_and_document_exclude_each_other() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat({**ASK, "stream": False}, format="ndjson") as client,
    ):
        assert await client.head() == 400
        assert (await client.json())["error"]["code"] == "invalid_request"


@pytest.mark.parametrize("name", ["responses", "ag-ui", "xml", ""])
async def test_format_that_is_not_here_is_refused_by_its_name(name: str) -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(path=f"/chat?format={name}")
        assert await client.head() == 400
        error = (await client.json())["error"]
    assert error["code"] == "unsupported"
    assert repr(name) in error["message"]


async def test_document_that_broke_off_tells_what_was_received() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="whole") as client,
    ):
        assert await client.head() == 502
        document = await client.json()
    assert (document["error"]["code"], document["error"]["partial"]) == ("stream_interrupted", True)
    assert document["partial_message"]["content"] == [{"type": "text", "text": "Hello"}]
    assert document["request_id"] == client.headers["x-request-id"]


async def test_text_that_broke_off_lacks_its_last_chunk() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN + delta(" there"), Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        with pytest.raises(Truncated):
            await client.body()


async def test_text_that_is_cut_lets_its_reader_have_all_of_it() -> None:
    many = [Send(delta("x" * 60_000)) for _ in range(20)]
    async with (
        ScriptedUpstream(lambda _: stream(START, BLOCK, *many, Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        found = 0
        while found < 1_200_000:
            found += len(await client.piece())
        with pytest.raises(Truncated):
            await client.piece()


async def test_failure_before_content_of_a_text_is_json() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(START, Cut())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        assert await client.head() == 502
        assert client.headers["content-type"] == "application/json"
        assert (await client.json())["error"]["code"] == "stream_interrupted"


async def test_request_id_is_the_callers_if_it_is_harmless() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat(headers={"x-request-id": "abc_DEF-123"}) as client:
            await client.head()
            assert client.headers["x-request-id"] == "abc_DEF-123"
        assert (await gateway.record())["request_id"] == "abc_DEF-123"
        for bad in ("two words", "a" * 65, "semi;colon", "ümlaut"):
            async with gateway.chat(headers={"x-request-id": bad}) as client:
                await client.head()
                assert client.headers["x-request-id"] != bad


async def test_answers_follow_each_other_on_one_connection() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway, gateway.chat() as client:
        await client.events()
        await client.post({"messages": []})
        assert await client.head() == 400
        await client.body()
        await client.post()
        assert await client.head() == 200
        assert (await client.events())[-1]["type"] == "message_stop"


async def test_message_that_is_whole_is_sent_whole_although_a_deadline_passes_while_its_end_waits_for_the_client() -> None:
    """How much the buffers on the way hold is the kernel's secret: one of these amounts leaves the last event waiting."""
    waited = False
    for amount in range(2, 12):
        paragraphs = [Send(delta("x" * 15_000)) for _ in range(amount)]
        async with (
            ScriptedUpstream(lambda _, paragraphs=paragraphs: stream(START + BLOCK, *paragraphs, ENDING)) as upstream,
            running(wiring(provider(upstream.url), timeouts=Timeouts(total=0.3)), send_buffer=4096) as gateway,
            gateway.chat(receive_buffer=4096) as client,
        ):
            await (await upstream.request()).until_answered()
            answers = list(gateway.gateway.answers)
            while answers and answers[0] in gateway.gateway.answers and time.monotonic() < answers[0]._facts.began + 0.35:
                await asyncio.sleep(0.01)
                waited = waited or (answers[0]._last and answers[0]._facts.sending is not None)
            terminals = [event["type"] for event in await client.events() if event["type"] in ("message_stop", "error")]
            assert terminals == ["message_stop"]
            assert (await gateway.record())["outcome"] == "finished"
        if waited:
            return
    raise AssertionError("the last event never had to wait")


async def test_answer_that_broke_off_ends_although_total_passes_while_its_last_words_wait_for_the_client() -> None:
    """A frame without its end is said when the body has ended: there is something to wait for behind the last read."""
    paragraphs = [Send(delta("x" * 15_000)) for _ in range(10)]
    async with (
        ScriptedUpstream(lambda _: stream(START + BLOCK, *paragraphs, delta("the last").rstrip())) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(total=0.3, write=0.3)), send_buffer=4096) as gateway,
        gateway.chat(receive_buffer=4096),
    ):
        record = await gateway.record()
    assert record["outcome"] == "slow_client"


async def test_provider_is_not_silent_while_the_client_does_not_read() -> None:
    paragraphs = [Send(delta("x" * 15_000)) for _ in range(100)]
    async with (
        ScriptedUpstream(lambda _: stream(START + BLOCK, *paragraphs, Wait(0.1), ENDING)) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(idle=0.4)), send_buffer=4096) as gateway,
        gateway.chat(receive_buffer=4096) as client,
    ):
        await gateway.until_blocked()
        (answer,) = gateway.gateway.answers
        while time.monotonic() < answer._facts.heard + 1:
            await asyncio.sleep(0.01)
        assert (await client.events())[-1]["type"] == "message_stop"


async def test_streams_beyond_the_limit_are_refused_and_then_taken_again() -> None:
    async with ScriptedUpstream(lambda request: GOOD if b"next" in request.body else stream(BEGUN, Hang())) as upstream:
        wired = wiring(provider(upstream.url), access=Access(max_streams=2))
        async with running(wired) as gateway, gateway.chat() as first, gateway.chat() as second:
            await first.until("content_block_delta")
            await second.until("content_block_delta")
            async with gateway.chat() as third:
                assert await third.head() == 429
                assert third.headers["retry-after"] == "5"
                assert (await third.json())["error"]["code"] == "too_many_streams"
            async with gateway.chat(format="whole") as third:
                assert await third.head() == 429
                assert (await third.json())["error"]["code"] == "too_many_streams"
            assert len(upstream.requests) == 2
            first.leave("rst")
            await gateway.record(2)
            async with gateway.chat({"messages": [{"role": "user", "content": "next"}]}) as third:
                assert (await third.events())[-1]["type"] == "message_stop"


async def test_event_over_the_limit_ends_the_answer() -> None:
    endless = [Send(b"data: {" + b"x" * 60_000 if number == 0 else b"x" * 60_000) for number in range(300)]
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, *endless, Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert (await client.events())[-1]["error"]["code"] == "event_too_large"
        await upstream.until_all_closed()


async def test_whole_json_document_of_a_provider_becomes_events() -> None:
    document = {
        "id": "msg_9", "type": "message", "role": "assistant", "model": "claude-test", "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 2},
    }  # fmt: skip
    body = json.dumps(document).encode()
    response = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with (
        ScriptedUpstream(lambda _: response) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        kinds = [event["type"] for event in await client.events()]
    assert kinds == ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize("every", [1, 7])
async def test_answer_in_small_pieces_is_the_same_answer(every: int) -> None:
    from tests.upstream import split

    async with (
        ScriptedUpstream(lambda _: stream(*split(WHOLE, every, 0))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        assert await client.body() == b"Hello world"


@pytest.mark.parametrize("said", [GOOD, refusal(400)], ids=["finished", "refused"])
@pytest.mark.parametrize("format", ["native", "whole"])
async def test_answer_leaves_nothing_to_the_collector(format: str, said: Script | bytes) -> None:
    alive: list[weakref.ref[Answer]] = []

    def seen(_: Request) -> Script | bytes:
        alive.extend(weakref.ref(answer) for answer in gateway.gateway.answers)
        return said

    gc.disable()
    try:
        async with (
            ScriptedUpstream(seen) as upstream,
            running(wiring(provider(upstream.url))) as gateway,
            gateway.chat(format=format) as client,
        ):
            assert await client.body()
            assert alive
            await until(lambda: not any(answer() for answer in alive), "an end of the answer, whose client is still there")
    finally:
        gc.enable()
