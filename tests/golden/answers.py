"""What each format's clients get of a case, as files: every format of the registry, as it goes over the wire.

    <format>.sse · .txt · .ndjson   the stream; of a failed one with its in-band ending
    <format>.document.json · .txt   `stream: false`, where the format has it and the answer finished
    <format>.refusal.http           what a failed answer is told instead, with its status, before anything of it was sent

JSON that is a whole body is indented, for diffs; the test compacts it again to the bytes of the wire.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from gateway import events, json_text
from gateway.errors import GatewayError
from gateway.events import Event, MessageStop, Stats
from gateway.formats import AnswerFormat, Asked
from gateway.wiring import ANSWERS, REQUESTS
from tests.golden.cases import HERE, STREAMS, read, told, written_down

ASKED = Asked("req_golden", 1_764_500_000, include_usage=True)
STATS = Stats(120.5, 80.25, 950.0, 41.5, "golden", "golden/golden-model", 1)
ENDINGS = {"text/event-stream": "sse", "text/plain": "txt", "application/x-ndjson": "ndjson", "application/json": "json"}
SUFFIXES = (".sse", ".txt", ".ndjson", ".document.json", ".document.txt", ".refusal.http")


def encoded(case: str) -> Iterator[tuple[str, bytes]]:
    """The names of the case's files, and what stands in them."""
    said = [_with_stats(events.from_json(body)) for body in written_down(case)]
    failure = told(case, [(HERE / case / "upstream.sse").read_bytes()])[1] if case in STREAMS else None
    asked = structs.replace(ASKED, **read(case, "asked.json"))
    for name, format_ in ANSWERS.items():
        yield f"{name}.{_ending(format_.content_type)}", format_.encoder(asked).feed(said)
        yield from _in_one_piece(name, format_, asked, said)
    if failure is not None:
        yield from _refusals(failure, asked, said)


def _with_stats(event: Event) -> Event:
    """As the gateway adds them to what a provider finished."""
    return MessageStop(STATS) if isinstance(event, MessageStop) else event


def _in_one_piece(name: str, format_: AnswerFormat, asked: Asked, said: list[Event]) -> Iterator[tuple[str, bytes]]:
    document = format_.document(asked)
    if document is not None and isinstance(said[-1], MessageStop):
        yield f"{name}.document.{_ending(format_.document_type)}", _readable(document.feed(said), format_.document_type)


def _refusals(failure: GatewayError, asked: Asked, said: list[Event]) -> Iterator[tuple[str, bytes]]:
    for format_ in REQUESTS.values():
        document = format_.answer.document(asked)
        partial = said[-1].error.partial is True if isinstance(said[-1], events.Error) else False
        message = None
        if partial and document is not None:
            document.feed(said)
            message = document.partial
        refusal = format_.refusal(failure, asked.request_id, partial=partial, message=message)
        head = [
            f"HTTP/1.1 {refusal.status}",
            *(f"{name}: {value}" for name, value in (("content-type", refusal.content_type), *refusal.headers)),
        ]
        yield f"{format_.name}.refusal.http", "\n".join([*head, "", ""]).encode() + _readable(refusal.body, refusal.content_type)


def _ending(content_type: str) -> str:
    return ENDINGS[content_type.partition(";")[0]]


def _readable(body: bytes, content_type: str) -> bytes:
    """Indented, if it is the JSON that the compact form of it gives back to the byte."""
    if _ending(content_type) != "json":
        return body
    value = json.loads(body)
    assert json_text.write(value) == body
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def written(case: str) -> dict[str, bytes]:
    """The files that are there."""
    return {file.name: file.read_bytes() for file in _files(case)}


def write(case: str) -> int:
    """Rewrites the case's files; how many of them changed, came or went."""
    before, now = written(case), dict(encoded(case))
    for file in _files(case):
        if file.name not in now:
            file.unlink()
    for name, content in now.items():
        if before.get(name) != content:
            (HERE / case / name).write_bytes(content)
    return sum(before.get(name) != now.get(name) for name in before.keys() | now.keys())


def _files(case: str) -> list[Path]:
    return [file for file in sorted((HERE / case).iterdir()) if file.name != "upstream.sse" and file.name.endswith(SUFFIXES)]
