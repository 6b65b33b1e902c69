"""Cases about what stands around an answer: headers, keys, the server, and how this is tested (H01 … H04, K04, K05, V03, V05, V06)."""

import asyncio
import hashlib
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.chat import ChatRequest
from gateway.formats import Decoder, Target, UpstreamRequest
from gateway.routing import Caller
from gateway.server import server
from gateway.wiring import REQUESTS, Access, Server, Wiring
from tests.e2e.client import ASK, Client
from tests.e2e.provider import GOOD, SILENCE, refusal, stream
from tests.e2e.running import Running, provider, running, wiring
from tests.quirks.running import post
from tests.quirks.running import running as configured
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
ORIGIN = "http://localhost:3000"
PAGE = {"origin": ORIGIN, "content-type": "application/json"}
ASKED: Json = {"model": "default", "max_tokens": 5, **ASK}
USE_CHAT: Json = {**ASKED, "id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
TESTS = Path(__file__).resolve().parents[1]


def asked(path: str, **more: Any) -> Json:
    """A chat as the path's clients write it."""
    return {**(USE_CHAT if path == "/api/chat" else ASKED), **more}


class Failing:
    """An upstream format with a fault in it."""

    name = "failing"

    def build(self, request: ChatRequest, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        raise RuntimeError("a fault of the gateway's own")

    def decoder(self, request: ChatRequest, target: Target, content_type: str = "") -> Decoder:
        raise NotImplementedError


def failing(wired: Wiring) -> Wiring:
    """The same, but every answer fails inside."""
    target = Target(next(iter(wired.providers.values())).provider, Failing(), "m")
    models = {name: structs.replace(model, targets=(target,)) for name, model in wired.models.items()}
    wired.router._models.update(models)
    return replace(wired, models=models)


async def got(gateway: Running, method: str, path: str, body: Json | bytes = b"", **headers: str) -> Client:
    async with Client.open(gateway.port) as client:
        await client.send(method, path, body, {**PAGE, **headers})
        client_body = await client.body()
        assert client_body or method == "OPTIONS"
        return client


def readable(client: Client) -> None:
    """By a page, with the headers that help to find out what happened."""
    assert client.headers["access-control-allow-origin"] == ORIGIN
    exposed = client.headers["access-control-expose-headers"].lower()
    assert {"x-request-id", "request-id", "retry-after"} <= set(re.split(r",\s*", exposed))
    assert client.headers["x-request-id"]


# H01, in the other formats


@pytest.mark.parametrize("path", REQUESTS)
async def test_h01_a_stream_in_any_format_forbids_buffering(path: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        answer = await post(gateway.port, asked(path, stream=True), path=path)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert answer.headers["x-accel-buffering"] == "no"
        assert not {"content-length", "content-encoding"} & answer.headers.keys()


# H04


@pytest.mark.parametrize("path", REQUESTS)
async def test_h04_every_error_can_be_read_by_a_page(path: str) -> None:
    """Its own 400, 404, 405, 401, 429 and 500, and the provider's."""
    caller = Caller("web", hashlib.sha256(b"k").digest())
    hanging = stream(*SILENCE)
    async with ScriptedUpstream(lambda _: hanging) as upstream:
        wired = wiring(provider(upstream.url), access=Access(max_streams=1))
        async with running(wired) as gateway:
            for method, body, status in (
                ("POST", b"{", 400),
                ("POST", asked(path, model="nobody"), 404),
                ("GET", b"", 405),
            ):
                client = await got(gateway, method, path, body)
                assert client.status == status
                readable(client)
            async with gateway.chat():
                await upstream.request()
                client = await got(gateway, "POST", path, asked(path))
                assert client.status == 429
                assert "retry-after" in client.headers
                readable(client)
        async with running(wiring(provider(upstream.url), access=Access(callers=(caller,)))) as gateway:
            client = await got(gateway, "POST", path, asked(path))
            assert client.status == 401
            readable(client)
        async with running(failing(wired), complaints=True) as gateway:
            client = await got(gateway, "POST", path, asked(path))
            assert client.status == 500
            readable(client)
    async with ScriptedUpstream(lambda _: refusal(529)) as upstream, running(wiring(provider(upstream.url))) as gateway:
        client = await got(gateway, "POST", path, asked(path))
        assert client.status in (503, 529)
        readable(client)


@pytest.mark.parametrize("path", [*REQUESTS, "/v1/messages/count_tokens", "/v1/models"])
async def test_h04_a_page_may_ask_without_a_key_whether_it_may_send_one(path: str) -> None:
    caller = Caller("web", hashlib.sha256(b"k").digest())
    asked = "authorization,x-api-key,anthropic-version,anthropic-beta,content-type,x-stainless-lang"
    async with ScriptedUpstream(lambda _: GOOD) as upstream:
        async with running(wiring(provider(upstream.url), access=Access(callers=(caller,)))) as gateway:
            method = {"access-control-request-method": "POST", "access-control-request-headers": asked}
            client = await got(gateway, "OPTIONS", path, **method)
            assert client.status == 200
            assert client.headers["access-control-allow-origin"] == ORIGIN
            allowed = re.split(r",\s*", client.headers["access-control-allow-headers"].lower())
            assert set(asked.split(",")) <= set(allowed)
        assert not upstream.requests


# K04


async def test_k04_a_key_in_the_providers_query_is_in_no_answer_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    canary = "sk-canary-QUERY-0001"
    async with ScriptedUpstream(lambda _: refusal(401, f"bad key {canary}")) as upstream:
        base = {"type": "openai", "query": {"key": canary}}
        providers = {
            "refused": {**base, "base_url": "http://127.0.0.1:9/v1beta/openai"},  # nobody listens there
            "unknown": {**base, "base_url": f"{upstream.url}/v1beta/openai"},
        }
        models = {name: {"targets": [f"{name}/m"], "retry": {"attempts": 1}} for name in providers}
        async with configured({"providers": providers, "models": models}) as here:
            with caplog.at_level(logging.DEBUG):
                for name in models:
                    for path in REQUESTS:
                        answer = await post(here.port, asked(path, model=name), path=path)
                        assert answer.status == 502
                        assert canary.encode() not in answer.body
            assert canary in upstream.requests[0].path, "the provider gets it"
            assert canary not in caplog.text
            assert canary not in "\n".join(here.log.texts)


# K05


@pytest.mark.parametrize("path", REQUESTS)
async def test_k05_a_wrong_key_is_told_nothing(path: str) -> None:
    caller = Caller("web", hashlib.sha256(b"right").digest())
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url), access=Access(callers=(caller,)))) as gateway,
    ):
        bodies = set()
        for key in ("wrong", "righ", "rightt", ""):
            for headers in ({"x-api-key": key}, {"authorization": f"Bearer {key}"}):
                answer = await post(gateway.port, asked(path), path=path, headers={**headers, "x-request-id": "same"})
                assert answer.status == 401
                bodies.add(answer.body)
        assert len(bodies) == 1, "a fixed text"
        assert not re.search(rb"[0-9a-f]{16}|wrong|sha256|python|uvicorn|starlette|gateway/", bodies.pop())
        assert (await post(gateway.port, asked(path), path=path, headers={"x-api-key": "right"})).status == 200


# V03


async def test_v03_an_idle_connection_outlives_a_clients_pool() -> None:
    assert Server().keep_alive >= 75
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        assert server(gateway.gateway).config.timeout_keep_alive == 75
    assert "75s" in (TESTS.parent / "README.md").read_text("utf-8")


# V05


def test_v05_no_test_talks_to_the_application_without_a_socket() -> None:
    """Such clients never show a disconnect in mid-stream."""
    forbidden = re.compile(r"^\s*(from|import) .*\b(ASGITransport|TestClient)\b|ASGITransport\(", re.MULTILINE)
    offenders = [path.name for path in TESTS.rglob("*.py") if path != Path(__file__) and forbidden.search(path.read_text("utf-8"))]
    assert offenders == []


# V06


@pytest.mark.parametrize("path", REQUESTS)
async def test_v06_nothing_is_asked_or_answered_before_the_whole_body_is_there(path: str) -> None:
    body = json.dumps(asked(path, stream=True)).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(head.encode() + body[:20])
        await writer.drain()
        assert (await post(gateway.port, asked(path, stream=True), path=path)).status == 200  # another one is served meanwhile
        assert len(upstream.requests) == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        writer.write(body[20:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert len(upstream.requests) == 2
        writer.close()
        await writer.wait_closed()
