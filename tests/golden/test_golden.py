"""Golden cases: what a service sent, and the events that it means.

    anthropic/ · openai/   upstream.sse → decoder → Sequencer → events.jsonl; pure, whole, byte by byte and at seeded cuts
    http/                  upstream.http, a whole response → gateway on real sockets → answer.json

`request.json` is the body of the chat, `provider.json` the provider's preset and quirks, ORIGIN where the behaviour was seen; the
contents are invented. A stream's end is written as the terminal event, with the request id `req_golden`.
"""

import asyncio
import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import events
from gateway.formats import Provider, Quirks, Target, UpstreamFormat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.native import parse
from gateway.formats.openai import OPENAI, PRESETS
from gateway.sequence import Sequencer
from tests import grammar
from tests.quirks.expectations import check_fields, check_refusal, check_stream
from tests.quirks.running import Answer, Json, running
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
FORMATS: dict[str, UpstreamFormat] = {"anthropic": ANTHROPIC, "openai": OPENAI}
KEY = "sk-canary-0001"
ASK: Json = {"messages": [{"role": "user", "content": "hi"}]}

STREAMS = sorted(f"{name}/{case.name}" for name in FORMATS for case in (HERE / name).iterdir())
WHOLE = sorted(case.name for case in (HERE / "http").iterdir())


def read(case: str, name: str) -> Any:
    file = HERE / case / name
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def told(case: str, pieces: Iterable[bytes]) -> list[Json]:
    """The events of the case's bytes in these pieces, as they would go out."""
    request = parse(json.dumps({"model": "golden-model", **ASK, **read(case, "request.json")}).encode())
    row = read(case, "provider.json")
    quirks = replace(PRESETS[row["preset"]].quirks if "preset" in row else Quirks(), **row.get("quirks", {}))
    format_ = FORMATS[case.split("/")[0]]
    target = Target(Provider("golden", "http://127.0.0.1", KEY, quirks=quirks), format_, "golden-model")
    decoder, sequencer = format_.decoder(request, target, "text/event-stream"), Sequencer("golden-model", "msg_golden", request.max_tokens)
    said = []
    for piece in pieces:
        said += sequencer.feed(decoder.feed(piece))
    said += sequencer.feed(decoder.close())
    if sequencer.failure is not None:
        said.append(sequencer.failure.event("req_golden", partial=sequencer.content))
    grammar.check(said)
    return [json.loads(events.encode(event)) for event in said]


def cut(data: bytes, seed: int) -> list[bytes]:
    dice, pieces = random.Random(seed), []
    while data:
        size = dice.choice((1, 2, 5, 17, 64, 300))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("case", STREAMS)
def test_the_bytes_mean_these_events_however_they_are_cut(case: str) -> None:
    data = (HERE / case / "upstream.sse").read_bytes()
    wanted = [json.loads(line) for line in (HERE / case / "events.jsonl").read_text("utf-8").rstrip("\n").split("\n")]
    assert told(case, [data]) == wanted
    assert told(case, (data[at : at + 1] for at in range(len(data)))) == wanted
    for seed in range(5):
        assert told(case, cut(data, seed)) == wanted, f"seed {seed}"


@pytest.mark.parametrize("case", [*STREAMS, *(f"http/{name}" for name in WHOLE)])
def test_a_case_says_where_its_behaviour_was_seen(case: str) -> None:
    origin = (HERE / case / "ORIGIN").read_text("utf-8")
    assert origin.strip()
    assert origin.count("\n") == 1


@pytest.fixture(scope="module")
async def answers() -> dict[str, tuple[Answer, int]]:
    """Per whole response the gateway's answer, and how many targets it asked."""
    responses = {name: (HERE / "http" / name / "upstream.http").read_bytes() for name in WHOLE}
    async with ScriptedUpstream(lambda request: responses[request.path.split("/")[1]]) as upstream:
        providers, models = {}, {}
        for name in WHOLE:
            kind = read(f"http/{name}", "answer.json")["format"]
            base = f"{upstream.url}/{name}" + ("/v1" if kind == "openai" else "")
            providers[name] = {"type": kind, "base_url": base, "api_key": KEY}
            models[name] = {"targets": [f"{name}/one", f"{name}/two"], "retry": {"attempts": 1}}
        async with running({"providers": providers, "models": models}) as here:
            got = await asyncio.gather(*(here.post({"model": name, **ASK}) for name in WHOLE))
        asked = [request.path.split("/")[1] for request in upstream.requests]
        return {name: (answer, asked.count(name)) for name, answer in zip(WHOLE, got, strict=True)}


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_response_is_answered_so(name: str, answers: dict[str, tuple[Answer, int]]) -> None:
    want, (answer, asked) = read(f"http/{name}", "answer.json"), answers[name]
    check_fields(want.get("headers", {}), answer.headers, "header")
    assert want.get("absent", KEY) not in answer.body.decode()
    if want["status"] == 200:
        said = check_stream(answer)
        assert "".join(event["delta"]["text"] for event in said if event["type"] == "content_block_delta") == want["text"]
        assert asked == 1
        return
    error = check_refusal(answer, want["status"])["error"]
    assert error == {"partial": False, "provider": name, **want["error"]}
    assert asked == (2 if want.get("next", error["retryable"] or error["code"] == "upstream_auth") else 1)
