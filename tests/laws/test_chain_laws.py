"""A gateway behind a gateway: of every recorded answer the second makes what the first made, but for the losses of the format between.

The laws for answers that nobody has recorded stand in test_loss_laws.py.
"""

import random
from pathlib import Path
from typing import Any

import httptools
import pytest

from gateway.events import Event
from gateway.json_text import Json
from tests.golden import cases
from tests.laws.test_answer_laws import TARGETS, answer
from tests.laws.test_loss_laws import CLIENTS, again, between, lost, told

CAPTURES = Path(__file__).parents[1] / "captures"
RECORDED = {file.stem: file for file in sorted(CAPTURES.glob("*.http")) if b"text/event-stream" in file.read_bytes()[:1000]}


class _Body:
    """Collects a response's."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)


def golden(case: str) -> list[Event]:
    events, _ = cases.told(case, [(cases.HERE / case / "upstream.sse").read_bytes()])
    return events


def recorded(name: str) -> list[Event]:
    body = _Body()
    httptools.HttpResponseParser(body).feed_data(RECORDED[name].read_bytes())
    return answer(TARGETS["anthropic" if name.startswith("claude") else "openai"], body.pieces)


SOURCES = {**{case: golden for case in cases.STREAMS if (cases.HERE / case / "upstream.sse").exists()}, **dict.fromkeys(RECORDED, recorded)}


def test_every_recording_is_here() -> None:
    assert len(RECORDED) >= 20
    assert len(SOURCES) >= 120


def broken_arguments(events: list[Event]) -> list[Any]:
    """Of the calls that cannot be run. That a format has no word for them is no loss: whoever reads it finds out again."""
    return [block["invalid_input"] for block in told(events).message.get("content", ()) if "invalid_input" in block]


def read_back(message: Json) -> Json:
    content = [{key: value for key, value in block.items() if key != "invalid_input"} for block in message.get("content", ())]
    return {**message, "content": content}


@pytest.mark.parametrize("format", CLIENTS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_gateway_behind_a_gateway_tells_the_same(source: str, format: str) -> None:
    events = SOURCES[source](source)
    found = again(format, events, random.Random(source))
    assert broken_arguments(found) == broken_arguments(events)
    if format == "anthropic":
        assert told(found) == lost(format, told(events))
        assert between(found) == between(events)
        return
    wanted, seen = lost(format, told(events)), told(found)
    assert seen.error == wanted.error
    if seen.error is not None:
        # Of an answer that broke OpenAI's format tells neither the usage nor, without content, that it began.
        assert read_back(seen.message)["content"] == read_back(wanted.message)["content"]
        return
    if source == "anthropic/another-model-takes-over":
        wanted.message["model"] = seen.message["model"]  # OpenAI's chunks have one
    assert read_back(seen.message) == read_back(wanted.message)


@pytest.mark.parametrize("format", CLIENTS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_third_gateway_loses_nothing_more_but_the_first_ones_code(source: str, format: str) -> None:
    dice = random.Random(source)
    once = told(again(format, SOURCES[source](source), dice))
    twice = told(again(format, again(format, SOURCES[source](source), dice), dice))
    for error in (once.error, twice.error):
        if error is not None:
            del error["provider_code"]
    assert twice == once
