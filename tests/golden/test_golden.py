"""Golden cases: what a service sent, the events that it means, and what each format's clients get of them.

    anthropic/ · openai/   upstream.sse → decoder → Sequencer → events.jsonl; pure, whole, byte by byte and at seeded cuts
    mapped/                the same for services of type mapped, whose provider.json describes them
    clients/               events that no service can send (a stop, heartbeats, another beginning)
    each of these          events.jsonl → every format's encoder → its files (answers.py says which)
    http/                  upstream.http, a whole response → gateway on real sockets → answer.json

`request.json` is the body of the chat, `provider.json` the provider's preset and quirks, `asked.json` what the client asked for
besides, ORIGIN where the behaviour was seen; the contents are invented. A stream's end is written as the terminal event, with the
request id `req_golden`.
"""

import asyncio

import pytest
from msgspec import structs

from gateway import events
from gateway.events import Event
from gateway.wiring import ANSWERS
from tests import grammar
from tests.golden.answers import ASKED, encoded, written
from tests.golden.cases import ASK, CLIENTS, HERE, KEY, STREAMS, WHOLE, as_json, cut, read, told, written_down
from tests.quirks.expectations import check_fields, check_refusal, check_stream
from tests.quirks.running import Answer, running
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", STREAMS)
def test_the_bytes_mean_these_events_however_they_are_cut(case: str) -> None:
    data = (HERE / case / "upstream.sse").read_bytes()
    wanted = written_down(case)
    assert as_json(told(case, [data])[0]) == wanted
    assert as_json(told(case, (data[at : at + 1] for at in range(len(data))))[0]) == wanted
    for seed in range(5):
        assert as_json(told(case, cut(data, seed))[0]) == wanted, f"seed {seed}"


@pytest.mark.parametrize("case", CLIENTS)
def test_events_that_only_the_gateway_makes_obey_the_grammar_too(case: str) -> None:
    grammar.check([events.from_json(body) for body in written_down(case)])


@pytest.mark.parametrize("case", [*STREAMS, *CLIENTS])
def test_clients_of_every_format_get_these_bytes(case: str) -> None:
    found, files = dict(encoded(case)), written(case)
    assert found.keys() == files.keys(), "python -m tests.golden.write makes the files"
    for name, content in found.items():
        assert content.decode() == files[name].decode(), f"{name}: python -m tests.golden.write rewrites it"


@pytest.mark.parametrize("case", [*STREAMS, *CLIENTS])
def test_the_bytes_do_not_depend_on_which_events_come_together(case: str) -> None:
    said: list[Event] = [events.from_json(body) for body in written_down(case)]
    for format_ in ANSWERS.values():
        asked = structs.replace(ASKED, **read(case, "asked.json"))
        singly, whole = format_.encoder(asked), format_.encoder(asked)
        assert b"".join(singly.feed([event]) for event in said) == whole.feed(said), format_.name


@pytest.mark.parametrize("case", [*STREAMS, *CLIENTS, *(f"http/{name}" for name in WHOLE)])
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
