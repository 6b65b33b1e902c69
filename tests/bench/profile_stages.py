"""Where the time of a delta goes: each stage alone on prepared bytes, in this process, once as a flood and once as single reads.

`.venv/bin/python -m tests.bench.profile_stages`. What `make bench` measures beyond the sum is the event loop, the tasks and the kernel.
"""

import functools
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import httptools
import msgspec

from gateway.body import Body
from gateway.chat import ChatRequest
from gateway.formats import Provider, Target, UpstreamFormat
from gateway.formats.anthropic import ANTHROPIC, frames
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI as OPENAI_FORMAT
from gateway.formats.openai import chunks
from gateway.framing import Framing
from gateway.sequence import Sequencer
from gateway.telemetry import StreamRecord
from gateway.wiring import ANSWERS
from tests.bench import answers
from tests.bench.answers import CLAUDE, OPENAI

DELTAS = 10_000
READ = 64 * 1024  # bytes, as much as the transport hands over at once
ROUNDS = 9
PATHS: dict[str, tuple[UpstreamFormat, Callable[[], Body]]] = {
    CLAUDE: (ANTHROPIC, lambda: Body("bench", read=frames.read, read_run=frames.read_run)),
    OPENAI: (OPENAI_FORMAT, lambda: Body("bench", read=chunks.read, read_run=chunks.read_run)),
}
REQUEST = msgspec.json.decode(b'{"messages":[{"role":"user","content":"Say something."}]}', type=ChatRequest)

Stage = tuple[str, Callable[[], Callable[[Any], Any]], list[Any]]
"""Its name, what makes a fresh one, and what it is fed."""


class Taken:
    """httptools' callbacks."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)


def parser() -> Callable[[bytes], bytes]:
    taken = Taken()
    http = httptools.HttpResponseParser(taken)
    http.feed_data(answers.HEAD)

    def feed(data: bytes) -> bytes:
        http.feed_data(data)
        piece = b"".join(taken.pieces)
        taken.pieces.clear()
        return piece

    return feed


def sender() -> Callable[[bytes], None]:
    """A chunk as uvicorn writes it, into a socket that somebody empties."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.setblocking(False)
    theirs.setblocking(False)

    def send(data: bytes) -> None:
        ours.send(b"".join((b"%x\r\n" % len(data), data, b"\r\n")))

    def drain() -> None:
        while True:
            try:
                theirs.recv(1 << 20)
            except BlockingIOError:
                return

    send.drain = drain  # type: ignore[attr-defined]  # not part of what is timed
    return send


def stages(path: str, pieces: list[bytes]) -> list[Stage]:
    upstream_format, body = PATHS[path]
    target = Target(Provider("bench", "http://bench"), upstream_format, "bench")

    def decoder() -> Callable[[bytes], Any]:
        return upstream_format.decoder(REQUEST, target, "text/event-stream").feed

    def sequencer() -> Callable[[Any], Any]:
        return Sequencer("bench", "msg_bench", None).feed

    def note() -> Callable[[Any], Any]:
        record = StreamRecord("bench", "native", "bench", 0.0)
        return lambda events: record.note(events, 1.0)

    bodies = results(parser, pieces)
    steps = results(decoder, bodies)
    events = results(sequencer, steps)
    encoded = results(lambda: NATIVE.encoder().feed, events)
    return [
        ("http chunks", parser, pieces),
        ("framing", lambda: Framing().take, bodies),
        ("json", lambda: body().feed, bodies),
        ("steps", decoder, bodies),
        ("sequence", sequencer, steps),
        ("record", note, events),
        ("encode", lambda: NATIVE.encoder().feed, events),
        ("send", sender, [data for data in encoded if data]),
    ]


def encoders(path: str, pieces: list[bytes]) -> list[Stage]:
    """Every format's, on the same events."""
    bodies = results(parser, pieces)
    target = Target(Provider("bench", "http://bench"), PATHS[path][0], "bench")
    steps = results(lambda: PATHS[path][0].decoder(REQUEST, target, "text/event-stream").feed, bodies)
    events = [batch for batch in results(lambda: Sequencer("bench", "msg_bench", None).feed, steps) if batch]
    return [(name, lambda format_=format_: format_.encoder().feed, events) for name, format_ in ANSWERS.items()]


def results(make: Callable[[], Callable[[Any], Any]], inputs: Iterable[Any]) -> list[Any]:
    feed = make()
    return [feed(one) for one in inputs]


def once(make: Callable[[], Callable[[Any], Any]], inputs: list[Any]) -> float:
    """Microseconds a delta."""
    feed, spent = make(), 0
    drain = getattr(feed, "drain", None)
    if drain is None:
        began = time.process_time_ns()
        for one in inputs:
            feed(one)
        spent = time.process_time_ns() - began
    else:
        for one in inputs:
            began = time.process_time_ns()
            feed(one)
            spent += time.process_time_ns() - began
            drain()
    return spent / DELTAS / 1e3


def in_turns(stages: list[Stage]) -> dict[str, float]:
    """The medians of rounds in which each has its turn, so that they can be compared."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, make, inputs in stages:
            found.setdefault(name, []).append(once(make, inputs))
    return {name: statistics.median(values) for name, values in found.items()}


def measure(path: str, pieces: list[bytes]) -> dict[str, float]:
    found = in_turns(stages(path, pieces))
    # A decoder has a body, and that its framing: what each adds is its own.
    found["steps"] -= found["json"]
    found["json"] -= found["framing"]
    return found


@functools.cache
def wire(path: str) -> bytes:
    return answers.answer(path, DELTAS).whole[len(answers.HEAD) :]


def main() -> None:
    columns, formats = {}, {}
    for path, name in ((CLAUDE, "Claude"), (OPENAI, "OpenAI")):
        whole, single = wire(path), answers.answer(path, DELTAS)
        for kind, pieces in (
            ("flood", [whole[start : start + READ] for start in range(0, len(whole), READ)]),
            ("single", [*single.steps, single.ending]),
        ):
            columns[f"{name}, {kind}"] = measure(path, pieces)
            formats[f"{name}, {kind}"] = in_turns(encoders(path, pieces))
    show("µs a delta", columns)
    print(f"  {'sum'.ljust(14)}" + "".join(f"{sum(found.values()):18.2f}" for found in columns.values()))
    show("encoded as", formats)
    for name in ANSWERS:
        print(
            f"  {f'{name} ÷ native'.ljust(18)[:18]}" + "".join(f"{found[name] / found['native']:18.2f}" for found in formats.values())[4:]
        )
    print(f"\n  flood: reads of {READ // 1024} KiB, as from a provider faster than the gateway; single: a read for each delta.\n")


def show(title: str, columns: dict[str, dict[str, float]]) -> None:
    print(f"\n  {title.ljust(14)}" + "".join(name.rjust(18) for name in columns))
    print(f"  {'─' * (14 + 18 * len(columns))}")
    for row in next(iter(columns.values())):
        print(f"  {row.ljust(14)}" + "".join(f"{found[row]:18.2f}" for found in columns.values()))


if __name__ == "__main__":
    main()
