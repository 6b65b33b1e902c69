"""Clients that send what nobody can want: the memory that one connection takes has a bound."""

import asyncio
import contextlib

import pytest

from gateway.http1_connection import HEAD_LIMIT
from tests.e2e.client import ASK, DEADLINE, Client, Truncated
from tests.e2e.provider import GOOD
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("piece", [b"x" * 1000, b"x-more: y\r\n" * 100], ids=["a path", "fields"])
async def test_head_without_an_end_is_refused(piece: bytes) -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"GET /" if piece.startswith(b"xx") else b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):  # the gateway's end may come while we still send
            while sent < 16 * HEAD_LIMIT:
                await client.send_raw(piece)
                sent += len(piece)
                await asyncio.sleep(0)
        assert sent < 16 * HEAD_LIMIT
        with contextlib.suppress(Truncated):
            assert await client.head() == 400


async def test_head_that_is_long_but_ends_is_taken() -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        for _ in range(5):
            await client.send("GET", "/healthz", headers={"x-more": "y" * (HEAD_LIMIT - 1000)})
            assert await client.head() == 200
            await client.body()


async def test_body_is_no_head_however_large() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.post({**ASK, "system": "A" * (20 * HEAD_LIMIT)})
        assert await client.head() == 200
        await client.until("message_stop")


@pytest.mark.parametrize(("method", "path"), [("GET", "/healthz"), ("POST", "/chat")])
async def test_client_that_pipelines_without_end_is_let_go(method: str, path: str) -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        request = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".encode()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE):
                while True:
                    await client.send_raw(request * 3000)
        await gateway.until_idle()
