"""An answer held against what a case expects: the strict reading of the native format, and the short form of `expected.events`."""

import json
import re
from collections.abc import Iterator
from typing import Any

from gateway import events
from tests import grammar
from tests.quirks.running import Answer, Json

VALUES = {"text": "text", "thinking": "thinking", "input_json": "partial_json", "signature": "signature"}
STREAM_HEADERS: Json = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
    "content-length": None,
    "content-encoding": None,
}
STATS = set(events.Stats.__struct_fields__)


def fits(want: Any, got: Any) -> bool:
    """Objects are subsets, lists whole; `*` is anything, `^…$` a pattern, null any integer."""
    match want:
        case None:
            return type(got) is int
        case dict():
            return isinstance(got, dict) and all(key in got and fits(value, got[key]) for key, value in want.items())
        case list():
            return isinstance(got, list) and len(want) == len(got) and all(map(fits, want, got))
        case "*":
            return True
        case str() if want.startswith("^") and want.endswith("$"):
            return re.search(want, got if isinstance(got, str) else json.dumps(got)) is not None
        case _:
            return type(want) is type(got) and bool(want == got)


def check_fields(want: Json, got: Json, where: str) -> None:
    """Header fields or keys of a body; null is absent."""
    for name, value in want.items():
        holds = name not in got if value is None else name in got and fits(value, got[name])
        assert holds, f"{where} {name}: expected {value!r}, got {got.get(name)!r}"


def native_events(body: bytes) -> list[Json]:
    """The events of a native stream, each exactly an `event:` line, a `data:` line of JSON and a blank one."""
    text = body.decode()
    assert "\r" not in text
    assert not text or text.endswith("\n\n"), f"the answer ends inside a frame: {text[-100:]!r}"
    said = []
    for frame in text.split("\n\n")[:-1]:
        match = re.fullmatch(r"event: ([a-z0-9_.]+)\ndata: ([^\n]+)", frame)
        assert match, f"no native frame: {frame[:200]!r}"
        event = json.loads(match[2])
        assert event["type"] == match[1]
        said.append(event)
    return said


def check_stream(answer: Answer) -> list[Json]:
    """The events of a 200 that is well-formed in every respect."""
    assert answer.status == 200, answer.body[:300]
    assert answer.whole, f"the answer was cut after {answer.body[-100:]!r}"
    check_fields(STREAM_HEADERS, answer.headers, "header")
    said = native_events(answer.body)
    grammar.check(map(events.from_json, said))
    for event in said:
        if event["type"] == "message_stop":
            assert event["stats"].keys() >= STATS
        if event["type"] == "error":
            check_error(event)
    return said


def check_error(body: Json) -> None:
    error = body["error"]
    assert body["type"] == "error"
    assert isinstance(body["request_id"], str)
    assert body["request_id"]
    for key, kind in {"type": str, "message": str, "code": str, "retryable": bool}.items():
        assert type(error[key]) is kind, f"error.{key} is {error[key]!r}"
    assert error["message"]


def check_refusal(answer: Answer, status: int) -> Json:
    """The body of an error answer."""
    assert answer.status == status, answer.body[:300]
    assert answer.whole
    assert answer.headers["content-type"].startswith("application/json")
    body: Json = json.loads(answer.body)
    check_error(body)
    return body


def short_form(said: list[Json]) -> Iterator[list[Any]]:
    """Without pings, unknown events and usage updates."""
    for event in said:
        match event["type"]:
            case "message_start":
                yield ["message_start", event["message"]]
            case "message_stop" as kind:
                yield [kind]
            case "content_block_start":
                yield ["start", event["index"], event["content_block"]["type"], event["content_block"]]
            case "content_block_delta":
                delta = event["delta"]
                kind = delta["type"].removesuffix("_delta")
                yield ["delta", event["index"], kind, delta[VALUES[kind]] if kind in VALUES else delta]
            case "content_block_stop":
                yield ["stop", event["index"], event]
            case "message_delta" if event["delta"]["stop_reason"] is not None:
                yield ["message_delta", event["delta"]["stop_reason"], event["usage"]]
            case "error":
                yield ["error", event["error"]["type"], event["error"]]
            case _:
                pass


def joined(rows: Iterator[list[Any]]) -> list[list[Any]]:
    """Adjacent deltas of one kind are one; empty ones, and a tool's `{}`, are none."""
    out: list[list[Any]] = []
    for row in rows:
        if row[0] == "delta":
            row = ["delta", row[1], row[2].removesuffix("_delta"), row[3]]
            if out and out[-1][:3] == row[:3] and row[2] in VALUES:
                out[-1][3] += row[3]
                continue
        out.append(row)
    return [row for row in out if row[0] != "delta" or (row[3] != "" and row[2:] != ["input_json", "{}"])]


def check_events(want: list[list[Any]], said: list[Json]) -> None:
    wanted, got = joined(iter(want)), joined(short_form(said))
    for number, (row, found) in enumerate(zip(wanted, got, strict=False)):
        assert fits(row, found[: len(row)]), f"event {number}: expected {row}, got {found}"
    assert len(wanted) == len(got), f"expected {[row[:3] for row in wanted]}, got {[row[:3] for row in got]}"
