"""Callers with keys, over sockets: who gets in, what each may use, whose stream it was, and that no key is seen anywhere."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import load
from gateway.wiring import Wiring, wire
from tests.e2e.client import ASK, Client
from tests.e2e.provider import BEGUN, GOOD, Hang, stream
from tests.e2e.running import ROOT, process, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
WEB, PHONE, OPERATOR = "gw-canary-of+the/web-0123456789abcdef", "gw-canary-of-the-phone", "gw-canary-of-the-operator"
APP = "https://app.example"


def line(key: str, **fields: Any) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(key.encode()).hexdigest(), **fields}


KEYS = {"web": line(WEB, max_streams=1), "phone": line(PHONE, models=["fast"]), "operator": line(OPERATOR, live=True)}


def configured(url: str = "simulator:", **access: Any) -> dict[str, Any]:
    return {
        "providers": {"claude": {"type": "anthropic", "base_url": url, "api_key": "sk-of-the-gateway"}},
        "models": {"default": {"targets": ["claude/simulator-fast"]}, "fast": {"targets": ["claude/simulator-fast"]}},
        "access": {"keys": KEYS, "origins": [APP], **access},
    }


@pytest.fixture
def wired(tmp_path: Path) -> Any:
    def wired(url: str = "simulator:", **access: Any) -> Wiring:
        (tmp_path / "gateway.yaml").write_text(json.dumps(configured(url, **access)))
        return wire(load({}, config=str(tmp_path / "gateway.yaml"), directory=tmp_path, secrets=tmp_path / "secrets"))

    return wired


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def forms(key: str) -> list[str]:
    """As it is, and as it may hide."""
    return [key, urllib.parse.quote(key, safe=""), base64.b64encode(key.encode()).decode(), base64.urlsafe_b64encode(key.encode()).decode()]


async def test_401_comes_before_the_body_and_ends_the_connection(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n")
        assert await client.head() == 401
        assert client.headers["www-authenticate"] == "Bearer"
        refused = await client.json()
        assert (refused["type"], refused["error"]["code"]) == ("error", "unauthorized")
        assert client.headers["connection"] == "close"
        await client.send_raw(b"not: JSON")  # the body, at last: nobody wants it any more
        await client.until_lost()


async def test_401_after_the_whole_request_keeps_the_connection(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        await client.post()
        assert await client.head() == 401
        await client.body()
        await client.post(headers=bearer(WEB))
        assert await client.head() == 200
        assert (await client.events())[-1]["type"] == "message_stop"


async def test_front_page_shows_where_the_key_goes(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        await client.send("GET", "/")
        assert b"curl -N -H 'Authorization: Bearer KEY' -d '{" in await client.body()
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send("GET", "/")
        page = await client.body()
        assert b"curl -N -d '{" in page
        for path in ("", "/chat?format=text", "/chat?format=ndjson", "/v1", "/api/chat"):
            assert f"<code>http://127.0.0.1{path}</code>".encode() in page


async def test_a_page_can_read_its_401_and_ask_before_without_a_key(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        asking = {"origin": APP, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        await client.send("OPTIONS", "/chat", headers=asking)
        assert await client.head() == 200
        await client.body()
        await client.post(headers={"origin": APP, "content-type": "application/json"})
        assert await client.head() == 401
        assert client.headers["access-control-allow-origin"] == APP
        await client.body()
        await client.post(headers={"origin": APP, "content-type": "application/json", **bearer(WEB)})
        assert await client.head() == 200
        assert client.headers["access-control-allow-origin"] == APP


async def test_health_and_the_page_want_no_key_and_the_page_names_no_model(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        for path in ("/healthz", "/readyz", "/"):
            await client.send("GET", path)
            assert await client.head() == 200
            assert b"fast" not in await client.body()


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_the_record_names_the_caller_and_its_key_is_seen_nowhere(wired: Any, header: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wired(upstream.url)) as gateway:
        key = {"authorization": f"Bearer {WEB}", "x-api-key": WEB}[header]
        async with gateway.chat(headers={header: key}) as client:
            answer = await client.body()
        async with gateway.chat({"messages": []}, headers={header: key}) as client:
            answer += await client.body()
        records = [await gateway.record(0), await gateway.record(1)]
        asked = await upstream.request()
    assert [(record["caller"], record["outcome"]) for record in records] == [("web", "finished"), ("web", "refused")]
    seen = [answer.decode(), json.dumps(asked.headers), asked.body.decode(), *(repr(vars(log)) for log in gateway.logs)]
    assert not [form for form in forms(WEB) for text in seen if form in text]


async def test_without_callers_a_record_names_none(wired: Any) -> None:
    async with running(wired(keys={})) as gateway:
        async with gateway.chat() as client:
            await client.events()
        assert "caller" not in await gateway.record()


async def models(client: Client, key: str) -> list[str]:
    await client.send("GET", "/v1/models", headers=bearer(key))
    assert await client.head() == 200
    return [row["id"] for row in (await client.json())["data"]]


async def test_the_list_of_models_is_the_callers(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        assert await models(client, WEB) == ["default", "fast"]
        assert await models(client, PHONE) == ["fast"]
        await client.send("GET", "/v1/models")
        assert await client.head() == 401


async def refusal(client: Client, key: str, model: str) -> str:
    await client.post({**ASK, "model": model}, headers=bearer(key))
    assert await client.head() == 404
    error = (await client.json())["error"]
    assert (error["code"], error["type"]) == ("unknown_model", "not_found_error")
    return str(error["message"])


async def test_with_callers_only_aliases_are_callable(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        assert await refusal(client, WEB, "claude/simulator-fast") == "Model 'claude/simulator-fast' is unknown. Known: default, fast."


async def test_direct_models_opens_them_to_callers_without_a_list_of_their_own(wired: Any) -> None:
    async with running(wired(direct_models=True)) as gateway, Client.open(gateway.port) as client:
        await client.post({**ASK, "model": "claude/simulator-fast"}, headers=bearer(WEB))
        assert await client.head() == 200
        await client.events()
        assert await refusal(client, PHONE, "claude/simulator-fast") == "Model 'claude/simulator-fast' is unknown. Known: fast."


async def test_a_callers_models_are_all_it_may_use(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as client:
        assert await refusal(client, PHONE, "default") == "Model 'default' is unknown. Known: fast."
        await client.post({**ASK, "model": "fast"}, headers=bearer(PHONE))
        assert await client.head() == 200


async def test_a_callers_streams_are_counted_apart_and_given_back(wired: Any) -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, running(wired(upstream.url)) as gateway:
        async with gateway.chat(headers=bearer(WEB)) as first:
            await first.until("content_block_delta")
            async with gateway.chat(headers=bearer(WEB)) as second:
                assert await second.head() == 429
                assert second.headers["retry-after"] == "5"
                error = (await second.json())["error"]
                assert (error["code"], error["type"], error["retryable"]) == ("rate_limited", "rate_limit_error", True)
                assert error["message"] == "This key is at its limit of open streams (1): try again when one has ended."
            async with gateway.chat(headers=bearer(OPERATOR)) as other:
                await other.until("content_block_delta")
            first.leave("rst")
            await gateway.record(2)
        await gateway.until_idle()
        assert [admission.streams for admission in gateway.gateway.shares.values()] == [0, 0, 0]
        async with gateway.chat(headers=bearer(WEB)) as again:
            await again.until("content_block_delta")


async def test_the_limit_of_everybody_is_one(wired: Any) -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, running(wired(upstream.url, max_streams=1)) as gateway:
        port = gateway.port
        async with gateway.chat(headers=bearer(WEB)) as first, Client.open(port) as second:
            await first.until("content_block_delta")
            await second.post(headers=bearer(OPERATOR))
            assert await second.head() == 429
            assert (await second.json())["error"]["code"] == "too_many_streams"


async def test_live_is_an_operators(wired: Any) -> None:
    async with running(wired()) as gateway, Client.open(gateway.port) as watching:
        await watching.send("GET", "/live", headers=bearer(OPERATOR))
        assert await watching.head() == 200
        async with gateway.chat(headers=bearer(WEB)) as client:
            await client.events()
        data = await watching.piece()
        assert json.loads(data.split(b"data: ")[1])["caller"] == "web"
        for headers, status in (({}, 401), (bearer(WEB), 403)):
            async with Client.open(gateway.port) as client:
                await client.send("GET", "/live", headers=headers)
                assert await client.head() == status


# Another address than this machine's own, in a process of its own.

EVERYWHERE = {"host": "0.0.0.0"}
ELSEWHERE = {"host": "gateway.example:8000", "content-type": "application/json"}


def test_nobody_is_served_on_another_address_without_keys(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "server.host (--host): expected 127.0.0.1, localhost or ::1: from other machines nobody may call yet; "
        "make a key with `gateway key NAME`, or let everybody in with access.open: true\n"
    )


async def test_with_keys_any_address_and_any_host_but_only_own_pages() -> None:
    async with process({**configured(), "server": EVERYWHERE}) as gateway:
        for headers, status in (
            ({}, 401),
            (bearer(WEB), 200),
            ({**bearer(WEB), "origin": "http://gateway.example:8000"}, 200),
            ({**bearer(WEB), "origin": APP}, 200),
            ({**bearer(WEB), "origin": "http://localhost:3000"}, 403),
            ({**bearer(WEB), "origin": "http://gateway.example:8001"}, 403),
        ):
            async with Client.open(gateway.port) as client:
                await client.post(headers={**ELSEWHERE, **headers})
                assert await client.head() == status, headers
                await client.body()
        assert not [form for form in forms(WEB) if form in gateway.log()]


async def test_open_lets_everybody_call_but_nobody_watch() -> None:
    configuration = {**configured(), "access": {"open": True}, "server": EVERYWHERE}
    async with process(configuration) as gateway, Client.open(gateway.port) as client:
        await client.post(headers=ELSEWHERE)
        assert await client.head() == 200
        await client.events()
        await client.send("GET", "/live", headers=ELSEWHERE)
        assert await client.head() == 403


async def test_open_counts_only_while_there_are_no_keys() -> None:
    configuration = {**configured(open=True), "server": EVERYWHERE}
    async with process(configuration) as gateway, Client.open(gateway.port) as client:
        await client.post(headers=ELSEWHERE)
        assert await client.head() == 401


async def test_a_container_takes_its_keys_from_the_environment() -> None:
    environment = {"GATEWAY_ACCESS__KEYS": f'web: {{sha256: "{KEYS["web"]["sha256"]}"}}', "GATEWAY_SERVER__HOST": "0.0.0.0"}
    async with process({}, environment) as gateway, Client.open(gateway.port) as client:
        await client.post(headers={"x-api-key": WEB})
        assert await client.head() == 200
