"""Connections that are no ordinary request after another: heads that do not come, bodies nobody waits for, upgrades, garbage."""

import asyncio
import contextlib
import json
import time

import pytest

from gateway import protocol
from gateway.access import Trace
from gateway.app import BODY_LIMIT
from tests.e2e.client import ASK, Client, Json, Truncated
from tests.e2e.provider import BEGUN, GOOD, Hang, stream
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
BODY = json.dumps(ASK).encode()
UPGRADES = {
    "java": {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"},
    "websocket": {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "eA==", "sec-websocket-version": "13"},
}


async def refused(client: Client) -> Json:
    await client.head()
    error: Json = (await client.json())["error"]
    return error


async def send_until_ended(client: Client, piece: bytes) -> None:
    """Goes on for as long as somebody takes it."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            while True:
                await client.send_raw(piece)
                await asyncio.sleep(0.001)


# upgrades


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
async def test_upgrade_is_ignored_and_the_chat_answered(headers: dict[str, str]) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat(headers=headers) as client:
            assert (await client.events())[-1]["type"] == "message_stop"
            await client.post(headers=headers)  # and the connection goes on
            await client.head()
            assert (await client.events())[-1]["type"] == "message_stop"
        assert not gateway.complaints


async def test_upgrade_is_ignored_wherever_the_reads_end() -> None:
    fields = "".join(f"{name}: {value}\r\n" for name, value in UPGRADES["java"].items())
    request = f"POST /chat HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        for place in range(len(request)):
            await client.send_raw(request[place : place + 1])
            await asyncio.sleep(0)
        assert (await client.events())[-1]["type"] == "message_stop"
        await client.send_raw(request * 20)
        for _ in range(20):
            await client.head()
            assert (await client.events())[-1]["type"] == "message_stop"


async def test_upgrade_with_a_chunked_body_is_ignored() -> None:
    fields = "".join(f"{name}: {value}\r\n" for name, value in UPGRADES["java"].items())
    head = f"POST /chat HTTP/1.1\r\nhost: localhost\r\n{fields}transfer-encoding: chunked\r\n\r\n".encode()
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send_raw(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))
        assert (await client.events())[-1]["type"] == "message_stop"


# what is no request


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT a:443 HTTP/1.1\r\n\r\n"],
    ids=["words", "TLS", "HTTP/2", "CONNECT"],
)
async def test_garbage_is_refused_in_our_format(garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "trace", Trace())  # which has counted nothing yet
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(garbage)
        assert await client.head() == 400
        document = await client.json()
        assert (document["type"], document["error"]["code"]) == ("error", "invalid_request")
        assert document["request_id"] == client.headers["x-request-id"]
        assert (client.headers["content-type"], client.headers["connection"]) == ("application/json", "close")
        await client.until_lost()
    assert not gateway.complaints
    assert [log.getMessage() for log in gateway.logs] == ["refused with 400: This is not HTTP/1.1, or it is broken."]


async def test_garbage_behind_a_chat_does_not_stand_in_its_answer() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            await client.until("content_block_delta")
            await client.send_raw(b"\x00\x01\x02\r\n\r\n")
            with pytest.raises(Truncated):
                await client.events()
        await gateway.until_idle()
        await upstream.until_all_closed()


# an answer before the request's end


@pytest.mark.parametrize(
    "head", [b"content-length: %d\r\n\r\n{" % (BODY_LIMIT + 1), b"origin: http://evil.example\r\ncontent-length: 9\r\n\r\n"]
)
async def test_refusal_before_the_body_ends_the_connection_after_a_while(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER", 0.3)
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\n" + head)
        assert await client.head() in (413, 403)
        assert client.headers["connection"] == "close"
        assert (await client.json())["type"] == "error"
        await send_until_ended(client, b" " * 65536)


async def test_client_that_sends_all_before_it_reads_sees_its_413() -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (3 * BODY_LIMIT))
        for _ in range(48):
            await client.send_raw(b" " * (BODY_LIMIT // 16))
        assert (await refused(client))["code"] == "too_large"


async def test_body_that_arrived_in_time_keeps_the_connection() -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        for _ in range(3):
            await client.send("POST", "/nowhere", BODY)
            assert await client.head() == 404
            assert "connection" not in client.headers
            await client.body()


# heads in time


async def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.2)
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.until_lost()


@pytest.mark.parametrize("before", [0, 1])
async def test_head_that_drips_is_ended(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.3)
    monkeypatch.setattr(protocol, "LINGER", 0.1)
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        for _ in range(before):
            await client.send("GET", "/healthz")
            assert await client.head() == 200
            await client.body()
        began = time.monotonic()
        await client.send_raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-more: ")
        await send_until_ended(client, b"x")
        assert time.monotonic() - began >= 0.25


async def test_head_that_comes_too_late_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.2)
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"GET /healthz HTTP/1.1\r\n")
        assert await client.head() == 408
        assert "0.2 s" in (await client.json())["error"]["message"]
        await client.until_lost()


async def test_idle_connection_and_a_long_answer_outlive_the_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIME", 0.1)
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as idle,
        gateway.chat() as client,
    ):
        await idle.send("GET", "/healthz")
        await idle.head()
        await idle.body()
        await client.until("content_block_delta")
        await client.send_raw(b"GET ")  # the next one's head, while the answer runs
        for _ in range(3):
            async with Client.open(gateway.port) as silent:
                await silent.until_lost()
        assert len(gateway.gateway.answers) == 1
        await idle.send("GET", "/healthz")
        assert await idle.head() == 200
