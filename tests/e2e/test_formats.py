"""Any request in any answer's format; and what goes wrong before the answer is told in the request's."""

import json
from typing import Any

import pytest

from gateway.routing import Caller
from gateway.simulator import Script
from gateway.wiring import ANSWERS, REQUESTS, Access
from tests.e2e.client import Client
from tests.e2e.provider import BEGUN, GOOD, OVERLOADED, refusal, stream
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
ASKED: Json = {"model": "default", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello?"}]}
PARTS: Json = {
    "id": "chat",
    "trigger": "submit-message",
    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}],
}
COUNT = "/v1/messages/count_tokens"


class Seen:
    def __init__(self, client: Client, body: bytes) -> None:
        self.status = client.status
        self.headers = client.headers
        self.body = body


async def posted(
    path: str,
    body: Json | bytes,
    respond: Script = GOOD,
    *,
    method: str = "POST",
    headers: Json | None = None,
    access: Access | None = None,
) -> Seen:
    async with (
        ScriptedUpstream(lambda _: respond) as upstream,
        running(wiring(provider(upstream.url), access=access)) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send(method, path, body, headers)
        return Seen(client, await client.body())


def asked(path: str, **more: Any) -> Json:
    return {**(PARTS if path == "/api/chat" else ASKED), **more}


def told(format: str, body: bytes) -> str:
    """The text that a reader of the format would see."""
    if format == "text":
        return body.decode()
    lines = body.decode().splitlines()
    said = [line.removeprefix("data: ") for line in lines if line.startswith(("data: {", "{"))]
    texts = []
    for event in map(json.loads, said):
        delta = event.get("delta", {})
        texts.append(delta if isinstance(delta, str) else delta.get("text") or "")
        texts += [choice["delta"].get("content") or "" for choice in event.get("choices", ())]
    return "".join(texts)


@pytest.mark.parametrize("format", ANSWERS)
@pytest.mark.parametrize("path", REQUESTS)
async def test_every_request_can_be_answered_in_every_format(path: str, format: str) -> None:
    seen = await posted(f"{path}?format={format}", asked(path, stream=True))
    assert seen.status == 200
    assert seen.headers["content-type"] == ANSWERS[format].content_type
    assert told(format, seen.body) == "Hello world"


@pytest.mark.parametrize("path", REQUESTS)
async def test_without_a_wish_the_answer_is_in_the_requests_format(path: str) -> None:
    seen = await posted(path, asked(path, stream=True))
    wished = await posted(f"{path}?format={REQUESTS[path].answer.name}", asked(path, stream=True))
    assert told(REQUESTS[path].answer.name, seen.body) == told(REQUESTS[path].answer.name, wished.body) == "Hello world"
    assert seen.headers["content-type"] == wished.headers["content-type"]


@pytest.mark.parametrize("format", [name for name in ANSWERS if name != "ndjson"])
@pytest.mark.parametrize("path", REQUESTS)
async def test_every_format_but_lines_has_a_document(path: str, format: str) -> None:
    seen = await posted(f"{path}?format={format}", asked(path, stream=False))
    assert seen.status == 200
    assert seen.headers["content-type"] == ANSWERS[format].document_type
    assert b"Hello world" in seen.body


def shape(path: str, seen: Seen) -> Json:
    """The error, once it is sure that it is in the words of the format that is asked in."""
    if path == "/api/chat":  # useChat shows the body as it is
        assert seen.headers["content-type"] == "text/plain; charset=utf-8"
        return {"type": None, "message": seen.body.decode()}
    body: Json = json.loads(seen.body)
    error: Json = body["error"]
    if path.startswith("/v1/messages"):
        assert set(error) == {"type", "message", "details"}
        assert body["request_id"] == seen.headers["request-id"] == seen.headers["x-request-id"]
    elif path == "/chat":
        assert {"type", "message", "code", "retryable"} <= set(error)
    else:
        assert set(error) == {"type", "message", "code", "param"}
    return error


EVERYWHERE = [*REQUESTS, COUNT]


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_a_wrong_method_is_told_in_the_requests_format(path: str) -> None:
    seen = await posted(path, b"", method="GET")
    assert (seen.status, seen.headers["allow"]) == (405, "POST")
    shape(path, seen)


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_a_foreign_page_is_refused_in_the_requests_format(path: str) -> None:
    seen = await posted(path, asked(path), headers={"origin": "https://evil.example"})
    assert seen.status == 403
    shape(path, seen)


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_who_has_no_key_is_refused_in_the_requests_format(path: str) -> None:
    seen = await posted(path, asked(path), access=Access(callers=(Caller("web", b"\0" * 32),)))
    assert (seen.status, seen.headers["www-authenticate"]) == (401, "Bearer")
    shape(path, seen)


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_a_wrong_request_is_refused_in_its_own_format(path: str) -> None:
    seen = await posted(path, asked(path, messages=[]))
    assert seen.status == 400
    assert shape(path, seen)["type"] in ("invalid_request_error", None)


RESPONSES = [("POST", "/v1/responses"), ("GET", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel")]


@pytest.mark.parametrize(("method", "path"), RESPONSES)
async def test_the_responses_api_is_not_here_and_its_clients_are_told_what_is(method: str, path: str) -> None:
    body: Json | bytes = {"model": "default", "input": "Hello?"} if method == "POST" else b""
    seen = await posted(path, body, method=method)
    assert seen.status == 404
    error = shape(path, seen)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "unsupported", None)
    assert "/v1/chat/completions" in error["message"]


@pytest.mark.parametrize("path", REQUESTS)
async def test_an_unknown_format_is_refused_in_the_requests_own(path: str) -> None:
    seen = await posted(f"{path}?format=morse", asked(path))
    assert seen.status == 400
    assert "morse" in shape(path, seen)["message"]


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_providers_refusal_is_told_in_the_requests_format_whatever_the_answers(path: str) -> None:
    overloaded = stream(OVERLOADED)
    for format in ANSWERS:
        seen = await posted(f"{path}?format={format}", asked(path, stream=True), overloaded)
        assert seen.status == (503 if path == "/v1/chat/completions" else 529)
        shape(path, seen)


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_document_that_broke_off_tells_what_there_was(path: str) -> None:
    seen = await posted(path, asked(path, stream=False), stream(BEGUN, OVERLOADED))
    assert seen.status == (503 if path == "/v1/chat/completions" else 529)
    assert "Hello" in json.dumps(json.loads(seen.body)["partial_message"])


async def test_a_body_of_parts_is_known_by_them_where_the_native_one_is_posted() -> None:
    seen = await posted("/chat", PARTS)
    assert seen.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert told("ai-sdk", seen.body) == "Hello world"
    wished = await posted("/chat?format=native", PARTS)
    assert told("native", wished.body) == "Hello world"


async def test_before_the_answer_a_body_of_parts_is_told_what_is_wrong_in_one_sentence() -> None:
    for body, respond, status in ((PARTS, refusal(429, "Slow down."), 429), ({**PARTS, "model": "nobody"}, GOOD, 404)):
        seen = await posted("/chat", body, respond)
        assert seen.status == status
        assert "{" not in shape("/api/chat", seen)["message"]
