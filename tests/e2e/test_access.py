"""Who may call, and what is refused before anything is asked of a provider."""

import json

import pytest

from gateway.app import BODY_LIMIT
from gateway.wiring import REQUESTS, Access
from tests.e2e.client import ASK, Client, Json
from tests.e2e.provider import GOOD
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
PAGE = {"origin": "http://localhost:3000", "content-type": "application/json"}


class Seen:
    """One answer, read whole."""

    def __init__(self, client: Client, body: bytes) -> None:
        self.status = client.status
        self.headers = client.headers
        self.body = body

    @property
    def error(self) -> Json:
        document = json.loads(self.body)
        assert document["type"] == "error"
        assert document["request_id"] == self.headers["x-request-id"]
        found = document["error"]
        assert isinstance(found, dict)
        return found


async def sent(method: str, path: str, body: Json | bytes = b"", *, access: Access | None = None, **headers: str) -> Seen:
    """Through a gateway whose provider must not be asked unless all is well."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url), access=access)) as gateway:
        seen = await _through(gateway, method, path, body, fields)
        assert bool(upstream.requests) == (method == "POST" and seen.status == 200)
        assert not gateway.leftovers()
    return seen


async def _through(gateway: Running, method: str, path: str, body: Json | bytes, headers: dict[str, str]) -> Seen:
    async with Client.open(gateway.port) as client:
        await client.send(method, path, body, headers)
        found = Seen(client, await client.body())
    await gateway.until_idle()
    return found


async def chat(**headers: str) -> Seen:
    return await sent("POST", "/chat", ASK, **headers)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:80", "LOCALHOST:9"])
async def test_loopback_hosts_are_served(host: str) -> None:
    assert (await chat(host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "evil.example:8000", "[::2]", "[", "a@localhost.x"],
)
async def test_other_hosts_are_refused(host: str) -> None:
    seen = await chat(host=host)
    assert (seen.status, seen.error["code"], seen.error["type"]) == (403, "forbidden_origin", "permission_error")


@pytest.mark.parametrize("path", ["/", "/healthz", "/live", "/v1/models"])
async def test_other_hosts_are_refused_everywhere(path: str) -> None:
    assert (await sent("GET", path, host="evil.example")).status == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443", "http://localhost"])
async def test_loopback_pages_may_call(origin: str) -> None:
    seen = await chat(origin=origin, content_type="application/json")
    assert seen.status == 200
    assert seen.headers["access-control-allow-origin"] == origin
    assert "origin" in seen.headers["vary"].lower()


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "http://evil.example#localhost",
        "file://",
        "http://[",
        "",
    ],
)
async def test_other_pages_are_refused(origin: str) -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with Client.open(gateway.port) as client:
            body = json.dumps(ASK).encode()
            fields = ("host: 127.0.0.1", f"origin: {origin}", "content-type: application/json", f"content-length: {len(body)}")
            await client.send_raw("\r\n".join(("POST /chat HTTP/1.1", *fields, "", "")).encode() + body)
            assert await client.head() == 403
            assert (await client.json())["error"]["code"] == "forbidden_origin"
            assert "access-control-allow-origin" not in client.headers
        assert not upstream.requests


async def test_configured_pages_may_call_and_only_they() -> None:
    access = Access(origins=("https://app.example.com",))
    good = await sent("POST", "/chat", ASK, access=access, origin="https://app.example.com", content_type="application/json")
    assert (good.status, good.headers["access-control-allow-origin"]) == (200, "https://app.example.com")
    for origin in (
        "https://app.example.com.evil.example",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://xapp.example.com",
    ):
        assert (await sent("POST", "/chat", ASK, access=access, origin=origin, content_type="application/json")).status == 403


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", ""])
async def test_programs_may_send_any_content_type(kind: str) -> None:
    assert (await chat(content_type=kind)).status == 200


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
async def test_pages_send_json(kind: str) -> None:
    assert (await chat(origin="http://localhost", content_type=kind)).status == 200
    assert (await chat(sec_fetch_site="same-origin", content_type=kind)).status == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", ""]
)
async def test_pages_may_send_nothing_that_needs_no_preflight(kind: str) -> None:
    for browser in ({"origin": "http://localhost"}, {"sec_fetch_site": "cross-site"}):
        seen = await chat(content_type=kind, **browser)
        assert (seen.status, seen.error["code"]) == (403, "forbidden_origin")


async def test_preflight_is_answered() -> None:
    seen = await sent(
        "OPTIONS",
        "/chat",
        origin="http://localhost:3000",
        access_control_request_method="POST",
        access_control_request_headers="content-type",
    )
    assert seen.status == 200
    assert seen.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert "POST" in seen.headers["access-control-allow-methods"]
    assert "content-type" in seen.headers["access-control-allow-headers"].lower()


async def test_preflight_of_another_page_is_refused() -> None:
    seen = await sent("OPTIONS", "/chat", origin="https://evil.example", access_control_request_method="POST")
    assert seen.status == 403
    assert "access-control-allow-origin" not in seen.headers


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/chat", b"{", 400),
        ("POST", "/chat", b'{"model":"x","messages":[{"role":"user","content":"a"}]}', 404),
        ("GET", "/nowhere", b"", 404),
        ("GET", "/chat", b"", 405),
    ],
)
async def test_errors_can_be_read_by_a_page(method: str, path: str, body: bytes, status: int) -> None:
    seen = await sent(method, path, body, **{name.replace("-", "_"): value for name, value in PAGE.items()})
    assert seen.status == status
    assert seen.headers["access-control-allow-origin"] == PAGE["origin"]
    exposed = seen.headers["access-control-expose-headers"].lower().split(", ")
    # By which the SDKs, in a page too, know whom to name, whether to ask again and when.
    assert {"x-request-id", "request-id", "retry-after", "x-should-retry"} <= set(exposed)


async def test_failures_of_a_provider_can_be_read_by_a_page() -> None:
    from tests.e2e.provider import refusal

    async with (
        ScriptedUpstream(lambda _: refusal(529)) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(headers=PAGE) as client,
    ):
        assert await client.head() == 529
        assert client.headers["access-control-allow-origin"] == PAGE["origin"]


async def test_stream_of_a_page_has_each_header_once() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(headers=PAGE) as client,
    ):
        assert await client.head() == 200
        assert client.headers["access-control-allow-origin"] == PAGE["origin"]
        assert "x-request-id" in client.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/chat"), ("DELETE", "/chat"), ("PUT", "/chat"), ("POST", "/v1/models"), ("POST", "/")]
)
async def test_wrong_method_is_told_the_right_one(method: str, path: str) -> None:
    seen = await sent(method, path)
    assert (seen.status, seen.error["code"], seen.error["type"]) == (405, "invalid_request", "invalid_request_error")
    assert seen.headers["allow"] in ("POST", "GET")
    assert method not in seen.headers["allow"].split(", ")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/chat/", "/chat//", "//chat", "/healthz/", "/v1/models/", "/v1", "/%00", "/chat%2f", "/CHAT"])
async def test_unknown_place_is_a_404_in_our_format(method: str, path: str) -> None:
    seen = await sent(method, path)
    assert (seen.status, seen.error["type"]) == (404, "not_found_error")
    assert seen.error["message"].endswith(f": chats are posted to {', '.join(REQUESTS)}.")


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/v1/v1/messages", "take /v1 off your client's base URL, which already asks for /v1/messages"),
        ("/v1/v1/messages/count_tokens", "take /v1 off your client's base URL, which already asks for /v1/messages/count_tokens"),
        ("/api/chat/v1/chat/completions", "take /api/chat off your client's base URL, which already asks for /v1/chat/completions"),
        ("/chat/completions", "your client's base URL wants /v1 at its end"),
        ("/messages", "your client's base URL wants /v1 at its end"),
        ("/models", "your client's base URL wants /v1 at its end"),
        ("/v1/chat/completions/chat/completions", "the base URL of a client of OpenAI's is this gateway's address and /v1, no more"),
    ],
)
async def test_who_has_a_wrong_base_url_is_told_the_right_one(path: str, remedy: str) -> None:
    seen = await sent("POST", path)
    assert (seen.status, seen.error["message"]) == (404, f"There is nothing at {path}: {remedy}.")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PUT"])
@pytest.mark.parametrize("path", ["/chat", "/", "/healthz", "/readyz", "/v1/models", "/live"])
async def test_wrong_method_is_a_405_in_our_format(method: str, path: str) -> None:
    async with running(wiring()) as gateway, Client.open(gateway.port) as client:
        await client.send(method, path)
        assert await client.head() == 405
        assert client.headers["allow"] == ("POST" if path == "/chat" else "GET")
        assert client.headers["content-type"] == "application/json"
        if method != "HEAD":
            assert (await client.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/" + "x" * 60_000, "/healthz?" + "x" * 60_000])
async def test_refusal_does_not_repeat_a_long_path(path: str) -> None:
    for method in ("GET", "DELETE"):
        seen = await sent(method, path)
        assert len(seen.body) < 600


@pytest.mark.parametrize("path", ["/nowhere", "/chat/abc", "/docs", "/openapi.json", "/redoc"])
async def test_unknown_place_is_a_404(path: str) -> None:
    seen = await sent("GET", path)
    assert seen.status in (404, 405)
    assert seen.error["message"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({**ASK, "temprature": 1}, "temprature"),
        ({**ASK, "max_tokens": 0}, "max_tokens"),
        ({**ASK, "max_tokens": "many"}, "max_tokens"),
        ({**ASK, "tools": [{"description": "x"}]}, "tools[0].name"),
        ({**ASK, "stream": "yes"}, "stream"),
    ],
)
async def test_invalid_request_names_the_field(body: Json, path: str) -> None:
    seen = await sent("POST", "/chat", body)
    assert (seen.status, seen.error["code"]) == (400, "invalid_request")
    assert path in seen.error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}"])
async def test_body_that_is_no_request_is_a_400(body: bytes) -> None:
    assert (await sent("POST", "/chat", body)).status == 400


async def test_what_is_not_built_is_unsupported() -> None:
    seen = await sent("POST", "/chat", {**ASK, "resumable": True})
    assert (seen.status, seen.error["code"]) == (400, "unsupported")


async def test_unknown_model_lists_the_known_ones() -> None:
    seen = await sent("POST", "/chat", {**ASK, "model": "gpt-9"})
    assert (seen.status, seen.error["code"]) == (404, "unknown_model")
    assert "default" in seen.error["message"]


async def test_body_over_the_limit_is_a_413_by_its_length() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n{" % (BODY_LIMIT + 1))
        assert await client.head() == 413
        assert (await client.json())["error"]["code"] == "too_large"


async def test_body_over_the_limit_is_a_413_when_it_is_chunked() -> None:
    async with (
        ScriptedUpstream(lambda _: GOOD) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%b\r\n" % (1 << 20, b" " * (1 << 20))
        for _ in range(11):
            await client.send_raw(chunk)
        assert await client.head() == 413


async def test_body_of_the_limit_is_read() -> None:
    body = json.dumps(ASK).encode()
    assert (await sent("POST", "/chat", body + b" " * (BODY_LIMIT - len(body)))).status == 200


async def test_models_are_listed_for_both_official_sdks() -> None:
    document = json.loads((await sent("GET", "/v1/models")).body)
    assert document["object"] == "list"
    assert [(row["id"], row["object"], row["type"]) for row in document["data"]] == [("default", "model", "model")]
    assert document["first_id"] == "default"


async def test_health_and_the_page_are_there() -> None:
    assert (await sent("GET", "/healthz")).status == 200
    assert (await sent("GET", "/readyz")).status == 200
    page = await sent("GET", "/")
    assert page.status == 200
    assert b"curl" in page.body
