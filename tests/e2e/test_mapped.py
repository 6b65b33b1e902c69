"""Providers of type mapped over sockets: the examples of docs/mapped.md as they stand there, every client's format, and the abort."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import load
from gateway.simulator import Cut, Hang, Script, Send, Step
from gateway.wiring import ANSWERS, REQUESTS, Wiring, wire
from tests.e2e.client import Client
from tests.e2e.provider import GOOD, refusal
from tests.e2e.running import running
from tests.e2e.test_formats import Seen, asked, told
from tests.quirks.expectations import fits
from tests.upstream import Answer, ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "mapped.md"
EXAMPLES = DOCUMENT.read_text("utf-8").split("\n## Example: ")[1:]


def configured(text: str, url: str, folder: Path) -> Wiring:
    """The configuration as it is written, but for the address."""
    file = folder / "gateway.yaml"
    file.write_text(re.sub(r"http://127\.0\.0\.1:9000", url, text), "utf-8")
    return wire(load({}, config=str(file), directory=folder, secrets=folder / "none"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.partition("\n")[0] for example in EXAMPLES])
async def test_an_example_of_the_document_does_what_is_written_there(example: str, tmp_path: Path) -> None:
    configuration, chat, request, answer, said = re.findall(r"```\w*\n(.*?)```", example, re.DOTALL)
    script = Script(200, (("content-type", "text/plain"),), (Send(answer.encode()),))
    async with (
        ScriptedUpstream(lambda _: script) as upstream,
        running(configured(configuration, upstream.url, tmp_path)) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send("POST", "/chat?format=ndjson", json.loads(chat))
        events = [json.loads(line) for line in (await client.body()).splitlines()]
    seen = upstream.requests[0]
    assert json.loads(seen.body) == json.loads(request)
    assert re.search(rf"{re.escape(seen.path)}\"", configuration)
    wanted = [json.loads(line) for line in said.splitlines()]
    assert [event["type"] for event in events] == [event["type"] for event in wanted]
    assert all(map(fits, wanted, events)), events


HOUSE = """
providers:
  house:
    type: mapped
    url: "http://127.0.0.1:9000/generate"
    request: { messages: $messages }
    text: /text
    finish: /done
    error: /failure
models: { default: { targets: [house/m], retry: { attempts: 1 } } }
"""
HELLO, WORLD, DONE = (Send(json.dumps(chunk).encode() + b"\n") for chunk in ({"text": "Hello"}, {"text": " world"}, {"done": True}))


def lines(*steps: Step) -> Script:
    return Script(200, (("content-type", "application/x-ndjson"),), steps)


async def answered(path: str, body: Json, folder: Path, *steps: Step) -> Seen:
    async with (
        ScriptedUpstream(lambda _: lines(*steps)) as upstream,
        running(configured(HOUSE, upstream.url, folder)) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send("POST", path, body)
        return Seen(client, await client.body())


@pytest.mark.parametrize("format", ANSWERS)
@pytest.mark.parametrize("path", REQUESTS)
async def test_every_clients_format_gets_it(path: str, format: str, tmp_path: Path) -> None:
    seen = await answered(f"{path}?format={format}", asked(path, stream=True), tmp_path, HELLO, WORLD, DONE)
    assert seen.status == 200
    assert told(format, seen.body) == "Hello world"


@pytest.mark.parametrize("path", [path for path in REQUESTS if path != "/api/chat"])
async def test_an_error_before_the_text_is_a_status_in_every_requests_format(path: str, tmp_path: Path) -> None:
    failure = Send(b'{"failure": {"message": "No cards left.", "code": 429}}\n')
    seen = await answered(path, asked(path), tmp_path, failure)
    assert seen.status == 429
    assert json.loads(seen.body)["error"]["message"] == "No cards left."


async def test_an_answer_that_breaks_off_is_no_answer(tmp_path: Path) -> None:
    whole = await answered("/chat", asked("/chat", stream=False), tmp_path, HELLO, DONE)
    assert (whole.status, json.loads(whole.body)["content"]) == (200, [{"type": "text", "text": "Hello"}])
    for ending in ((), (Cut(),)):
        seen = await answered("/chat", asked("/chat", stream=False), tmp_path, HELLO, *ending)
        assert (seen.status, json.loads(seen.body)["error"]["code"]) == (502, "stream_interrupted")


async def test_what_it_cannot_be_asked_is_refused_with_the_fields_name(tmp_path: Path) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    seen = await answered("/chat", asked("/chat", tools=tools), tmp_path, HELLO, DONE)
    assert (seen.status, json.loads(seen.body)["error"]["code"]) == (400, "unsupported")
    assert json.loads(seen.body)["error"]["message"] == "tools: provider house takes text only and cannot be given tools."


async def test_client_leaving_in_mid_answer_closes_the_provider(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(lambda _: lines(HELLO, Hang())) as upstream,
        running(configured(HOUSE, upstream.url, tmp_path)) as gateway,
        gateway.chat() as client,
    ):
        await client.until("content_block_delta")
        request = await upstream.request()
        client.leave("rst")
        await request.until_closed(1.0)
        assert (await gateway.record())["outcome"] == "client_disconnected"


CHAIN = """
  claude: { type: anthropic, base_url: "http://127.0.0.1:9000" }
models: { default: { targets: [TARGETS], retry: { attempts: 1 } } }
"""


@pytest.mark.parametrize(
    ("targets", "claude", "status", "said"),
    [
        ("claude/m, house/m", refusal(529), 529, "upstream_overloaded"),
        ("house/m, claude/m", refusal(529), 529, "upstream_overloaded"),
        ("claude/m, house/m, house/n", refusal(529), 529, "upstream_overloaded"),
        ("house/m, claude/m", GOOD, 200, 1),
        ("house/m, house/n", GOOD, 400, "unsupported"),
    ],
)
async def test_a_target_that_cannot_be_asked_is_passed_over(
    targets: str, claude: Answer, status: int, said: str | int, tmp_path: Path
) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    configuration = HOUSE.partition("models:")[0] + CHAIN.lstrip("\n").replace("TARGETS", targets)
    async with (
        ScriptedUpstream(lambda _: claude) as upstream,
        running(configured(configuration, upstream.url, tmp_path)) as gateway,
        Client.open(gateway.port) as client,
    ):
        await client.send("POST", "/chat", asked("/chat", tools=tools, stream=False))
        answer = json.loads(await client.body())
        record = await gateway.record()
    assert client.status == status
    assert said == (answer["stats"]["attempts"] if status == 200 else answer["error"]["code"])
    assert [seen.path for seen in upstream.requests] == ([] if status == 400 else ["/v1/messages"])
    assert record["target"] == ("house/n" if status == 400 else "claude/m")  # whose answer, or failure, was told
