"""The answers for programs: text alone, and JSON lines."""

import json

from gateway.errors import UpstreamFailed
from gateway.events import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Event,
    InputJsonDelta,
    MessageStart,
    MessageStop,
    Ping,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
    decode,
)
from gateway.formats.plain import NDJSON, TEXT

EVENTS: list[Event] = [
    Ping(),
    MessageStart({"id": "m", "content": []}),
    ContentBlockStart(0, {"type": "text", "text": ""}),
    ContentBlockDelta(0, ThinkingDelta("hidden")),
    ContentBlockDelta(0, TextDelta("a\u2028\n")),
    ContentBlockDelta(0, UnknownDelta({"type": "text_delta", "text": "é", "new": 1})),
    ContentBlockDelta(0, UnknownDelta({"type": "other", "text": "x"})),
    ContentBlockDelta(0, InputJsonDelta("{}")),
    ContentBlockStop(0),
    UnknownEvent({"type": "news", "text": "x"}),
    MessageStop(),
]
FAILED = UpstreamFailed("interrupted", "It broke.")


def test_text_is_the_text_deltas_and_nothing_else() -> None:
    encoder = TEXT.encoder()
    assert encoder.feed(EVENTS) == "a\u2028\né".encode()
    assert encoder.feed([Ping()]) == b""
    assert encoder.heartbeat() == b""


def test_text_has_no_word_for_a_failure() -> None:
    assert TEXT.encoder().failed(FAILED, "req_1", partial=True) is None


def test_half_a_surrogate_pair_costs_no_text() -> None:
    assert TEXT.encoder().feed([ContentBlockDelta(0, TextDelta("a\ud83db"))]) == "a\ufffdb".encode()


def test_lines_are_the_native_events_one_each() -> None:
    lines = NDJSON.encoder().feed(EVENTS).split(b"\n")
    assert lines.pop() == b""
    assert [decode(line) for line in lines] == EVENTS


def test_lines_have_a_ping_and_an_error_of_one_line() -> None:
    encoder = NDJSON.encoder()
    assert encoder.heartbeat() == b'{"type":"ping"}\n'
    failed = encoder.failed(FAILED, "req_1", partial=False)
    assert failed.endswith(b"}\n")
    assert failed.count(b"\n") == 1
    assert json.loads(failed)["error"]["code"] == "stream_interrupted"
