"""The cases: a service's bytes and the events they mean, or events that no service can send and what clients get of them."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway import events
from gateway.connections import connection
from gateway.errors import GatewayError
from gateway.events import Event
from gateway.formats import Provider, Quirks, Target, UpstreamFormat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.native import parse
from gateway.formats.openai import OPENAI, PRESETS
from gateway.sequence import Sequencer
from gateway.settings import Configuration, Environment, Settings
from tests import grammar

Json = dict[str, Any]

HERE = Path(__file__).parent
FORMATS: dict[str, UpstreamFormat] = {"anthropic": ANTHROPIC, "openai": OPENAI}
KEY = "sk-canary-0001"
ASK: Json = {"messages": [{"role": "user", "content": "hi"}]}


def names(folder: str) -> list[str]:
    return sorted(f"{folder}/{case.name}" for case in (HERE / folder).iterdir())


STREAMS = [case for name in (*sorted(FORMATS), "mapped") for case in names(name)]
CLIENTS = names("clients")
WHOLE = sorted(case.name for case in (HERE / "http").iterdir())


def read(case: str, name: str) -> Any:
    file = HERE / case / name
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def written_down(case: str) -> list[Json]:
    """The events of the case as its author wrote them."""
    return [json.loads(line) for line in (HERE / case / "events.jsonl").read_text("utf-8").rstrip("\n").split("\n")]


def asked_of(case: str) -> Target:
    row, kind = read(case, "provider.json"), case.split("/")[0]
    if kind == "mapped":
        settings = Settings.model_validate({"providers": {"golden": {"type": kind, "url": "http://127.0.0.1", "api_key": KEY, **row}}})
        mistakes: list[str] = []
        found = connection(Configuration(settings, Environment({}, {})), "golden", settings.providers["golden"], mistakes)
        assert mistakes == []
        return Target(found.provider, found.format, "golden-model")
    quirks = replace(PRESETS[row["preset"]].quirks if "preset" in row else Quirks(), **row.get("quirks", {}))
    return Target(Provider("golden", "http://127.0.0.1", KEY, quirks=quirks), FORMATS[kind], "golden-model")


def told(case: str, pieces: Iterable[bytes]) -> tuple[list[Event], GatewayError | None]:
    """The events of the case's bytes in these pieces, the terminal one included, and what it failed of."""
    request = parse(json.dumps({"model": "golden-model", **ASK, **read(case, "request.json")}).encode())
    target = asked_of(case)
    format_ = target.format
    decoder, sequencer = format_.decoder(request, target, "text/event-stream"), Sequencer("golden-model", "msg_golden", request.max_tokens)
    said: list[Event] = []
    for piece in pieces:
        said += sequencer.feed(decoder.feed(piece))
    said += sequencer.feed(decoder.close())
    if sequencer.failure is not None:
        said.append(sequencer.failure.event("req_golden", partial=sequencer.content))
    grammar.check(said)
    return said, sequencer.failure


def as_json(said: list[Event]) -> list[Json]:
    """As they would go out."""
    return [json.loads(events.encode(event)) for event in said]


def cut(data: bytes, seed: int) -> list[bytes]:
    dice, pieces = random.Random(seed), []
    while data:
        size = dice.choice((1, 2, 5, 17, 64, 300))
        pieces.append(data[:size])
        data = data[size:]
    return pieces
