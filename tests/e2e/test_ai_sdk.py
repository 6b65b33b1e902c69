"""The AI SDK's format over sockets: how an answer begins, goes on after a tool, falls silent, breaks off, and is left."""

import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.routing import Streaming, Timeouts
from gateway.simulator import Cut, Hang
from tests.e2e.client import Client
from tests.e2e.provider import BEGUN, ENDING, GOOD, OVERLOADED, REASON, START, STOP, WHOLE, delta, frame, refusal, stream
from tests.e2e.running import provider, running, wiring
from tests.ui_stream import chunks, fold
from tests.upstream import ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
HI: Json = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
BODY: Json = {"id": "chat", "messages": [HI], "trigger": "submit-message"}


def calls(*blocks: Json, reason: str = "tool_use") -> bytes:
    written = START
    for index, block in enumerate(blocks):
        written += frame({"type": "content_block_start", "index": index, "content_block": block})
        written += frame({"type": "content_block_stop", "index": index})
    return written + REASON.replace(b"end_turn", reason.encode()) + STOP


async def test_a_page_gets_the_stream_and_the_header_that_names_it() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat", headers={"origin": "http://localhost:3000", "content-type": "application/json"})
        found = chunks(await client.body())
        assert (client.status, client.headers["x-vercel-ai-ui-message-stream"]) == (200, "v1")
        assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "x-vercel-ai-ui-message-stream" in client.headers["access-control-expose-headers"]
        assert fold(found)["parts"][1]["text"] == "Hello world"
        assert (await gateway.record())["format"] == "ai-sdk"


async def test_a_tool_loop_goes_on_in_the_same_message() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    asking = stream(calls(thought, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}))
    async with (
        ScriptedUpstream(one_after_another(asking, stream(WHOLE.replace(b"msg_1", b"msg_2")))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        message = fold(chunks(await client.body()))
        message["parts"][-1] |= {"state": "output-available", "output": {"t": 21}}
        async with Client.open(gateway.port) as again:
            await again.post({**BODY, "messages": [HI, message], "messageId": message["id"]}, path="/chat")
            answered = fold(chunks(await again.body()), message)
        assert answered["id"] == message["id"] == "msg_1"
        assert [part["type"] for part in answered["parts"]] == ["step-start", "reasoning", "tool-f", "step-start", "text"]
        asked = json.loads(upstream.requests[1].body)["messages"]
        assert asked[1]["content"] == [thought, {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}]
        assert asked[2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"t":21}'}]


@pytest.mark.parametrize("broken", [OVERLOADED, Cut()], ids=["an error in the stream", "a torn connection"])
async def test_an_answer_that_breaks_off_ends_with_an_error(broken: Any) -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, broken)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        found = chunks(await client.body())
        assert client.status == 200
        assert found[-1]["type"] == "error"
        assert fold(found)["parts"][-1] == {"type": "text", "text": "Hello", "state": "streaming"}


async def test_before_the_answer_an_error_is_a_status_and_a_sentence_for_the_screen() -> None:
    async with (
        ScriptedUpstream(lambda _: refusal(429, "Too many.", retry_after="7")) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        assert (await client.body()).decode() == "Too many."
        assert (client.status, client.headers["retry-after"]) == (429, "7")


async def test_a_body_of_parts_that_is_refused_counts_as_one_wherever_it_was_posted() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post({**BODY, "temperature": "hot"}, path="/chat")
        assert (await client.body()).decode() == "temperature: a number is expected."
        assert (client.status, (await gateway.record())["format"]) == (400, "ai-sdk")


async def test_silence_is_filled_with_comments_before_the_first_word_and_after() -> None:
    streaming = Streaming(heartbeat=0.05, commit_after=0.05)
    async with (
        ScriptedUpstream(lambda _: stream(Hang())) as upstream,
        running(wiring(provider(upstream.url), streaming=streaming, timeouts=Timeouts(idle=0.4))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        body = await client.body()
        assert body.startswith(b": ping\n\n: ping\n\n")
        assert [chunk["type"] for chunk in chunks(body)] == ["error"]


async def test_a_page_that_stops_the_answer_stops_the_model() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        while b"Hello" not in await client.piece():
            pass
        client.leave("rst")
        request = await upstream.request()
        await request.connection.until_closed()
        assert (await gateway.record())["outcome"] == "client_disconnected"


async def test_a_gateway_that_stops_says_so_in_the_stream() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, delta("x"), Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post(BODY, path="/api/chat")
        body = await client.piece()
        for answer in tuple(gateway.gateway.answers):
            answer.stop(GatewayError("shutdown", "The gateway stops."))
        found = chunks(body + await client.body())
        assert found[-1] == {"type": "error", "errorText": "The gateway stops."}


async def test_a_document_is_the_message() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, ENDING)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post({**BODY, "stream": False}, path="/api/chat")
        message = await client.json()
        assert (message["role"], message["parts"][1]["text"]) == ("assistant", "Hello")
