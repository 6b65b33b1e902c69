"""Standard error may be read slowly, or by nobody: no stream and no signal waits for it."""

import asyncio
import io
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from gateway.commands import Paint
from gateway.json_text import Json
from gateway.log import LogQueue, _Coloured, _JsonLines, stream_line
from gateway.telemetry import StreamRecord
from tests.e2e.client import Client
from tests.e2e.running import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
CHATS = 600  # refused ones; their lines are more than a pipe holds
PIPE = 64 * 1024


@pytest.mark.parametrize("reader", ["does not read", "has gone", "was never there"])
async def test_unread_standard_error_holds_nothing_up(reader: str) -> None:
    reading, writing = os.pipe()
    command = f"{sys.executable} -m gateway serve --port 0" + (" 2>&-" if reader == "was never there" else "")
    started = await asyncio.create_subprocess_shell(
        f"exec {command}", stdout=asyncio.subprocess.PIPE, stderr=writing, cwd=ROOT, env={"PATH": os.environ["PATH"]}
    )
    os.close(writing)
    if reader == "has gone":
        os.close(reading)
    try:
        assert started.stdout is not None
        async with asyncio.timeout(15):
            while b"http://127.0.0.1:" not in (line := await started.stdout.readline()):
                pass
        port = int(line.strip().rsplit(b":", 1)[1])
        async with Client.open(port) as client:
            for _ in range(CHATS):
                await client.post(b"{}")
                assert await client.head() == 400
                await client.body()
            await client.send("GET", "/healthz")
            assert await client.head() == 200
        started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await started.wait() == 0
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()
        if reader != "has gone":
            os.close(reading)


@contextmanager
def queue(backlog: int) -> Iterator[tuple[LogQueue, int]]:
    """A queue that writes into a pipe, and where it is read."""
    reading, writing = os.pipe()
    handler = LogQueue(_JsonLines(), writing, backlog=backlog)
    try:
        yield handler, reading
    finally:
        handler.close()
        os.close(reading)
        os.close(writing)


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("gateway", logging.INFO, __file__, 0, text, None, None)


def read(descriptor: int, until: str) -> list[str]:
    """The messages up to that one."""
    found = b""
    while not found.endswith(b"\n") or until not in found.decode():
        found += os.read(descriptor, PIPE)
    return [json.loads(text)["message"] for text in found.splitlines()]


def test_lines_beyond_the_backlog_are_dropped_and_counted_where_they_are_missing() -> None:
    with queue(backlog=3) as (handler, reading):
        handler.handle(line("x" * 2 * PIPE))  # more than the pipe holds: the thread that writes it waits
        while not handler._waiting.empty():
            threading.Event().wait(0.001)
        for number in range(10):
            handler.handle(line(f"line {number}"))
        first = os.read(reading, PIPE)
        assert b"xxx" in first
        while b"line 2" not in first:
            first += os.read(reading, PIPE)
        handler.handle(line("the last"))
        assert [json.loads(text)["message"] for text in first.splitlines()[1:]] == ["line 0", "line 1", "line 2"]
        assert read(reading, "the last") == ["7 log lines were dropped here: standard error was not read", "the last"]


def test_what_waits_is_written_at_the_end() -> None:
    with queue(backlog=10_000) as (handler, reading):
        for number in range(200):
            handler.handle(line(f"line {number}"))
        handler.close()
        assert read(reading, "line 199") == [f"line {number}" for number in range(200)]


def test_line_that_cannot_be_written_does_not_end_the_others() -> None:
    with queue(backlog=10) as (handler, reading):
        odd = line("odd")
        odd.line = {"event": object()}
        handler.handle(odd)
        handler.handle(line("after"))
        assert read(reading, "after")[-1] == "after"


def test_exception_is_in_its_line() -> None:
    with queue(backlog=10) as (handler, reading):
        try:
            raise ValueError("boom")
        except ValueError:
            handler.handle(logging.LogRecord("gateway", logging.ERROR, __file__, 0, "a request %s", ("failed",), sys.exc_info()))
        found = json.loads(os.read(reading, PIPE))
    assert (found["message"], found["level"]) == ("a request failed", "error")
    assert "ValueError: boom" in found["exception"]


@contextmanager
def listening(*handlers: logging.Handler) -> Iterator[None]:
    """`logging` with these listeners and no others."""
    before, logging.root.handlers = logging.root.handlers, list(handlers)
    try:
        yield
    finally:
        logging.root.handlers = before


def test_line_of_a_stream_is_the_same_with_a_record_and_without() -> None:
    said: Json = {"event": "stream", "model": "é", "usage": {"output_tokens": 5}}
    for level, name in ((logging.INFO, "info"), (logging.WARNING, "warning")):
        found = []
        for others in ((), (logging.NullHandler(),)):
            with queue(backlog=10) as (handler, reading):
                with listening(handler, *others):
                    before = int(time.time())
                    stream_line(said, level)
                found.append(json.loads(os.read(reading, PIPE)))
                assert before <= datetime.strptime(found[-1].pop("time"), "%Y-%m-%dT%H:%M:%S%z").timestamp() <= time.time()
        assert found == [{"level": name, **said}] * 2
        assert list(found[0]) == list(found[1]) == ["level", *said]


def test_whoever_listens_through_logging_gets_the_lines_of_streams(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway")
    with queue(backlog=10) as (handler, reading):
        logging.root.addHandler(handler)
        try:
            stream_line({"event": "stream"}, logging.INFO)
        finally:
            logging.root.removeHandler(handler)
        assert json.loads(os.read(reading, PIPE))["event"] == "stream"
    assert [record.line for record in caplog.records] == [{"event": "stream"}]


def test_lines_of_streams_are_dropped_and_counted_like_others() -> None:
    with queue(backlog=2) as (handler, reading), listening(handler):
        handler.handle(line("x" * 2 * PIPE))  # more than the pipe holds: the thread that writes it waits
        while not handler._waiting.empty():
            threading.Event().wait(0.001)
        for number in range(5):
            stream_line({"message": f"line {number}"}, logging.INFO)
        first = os.read(reading, PIPE)
        while b"line 1" not in first:
            first += os.read(reading, PIPE)
        stream_line({"message": "the last"}, logging.INFO)
        assert [json.loads(text)["message"] for text in first.splitlines()[1:]] == ["line 0", "line 1"]
        assert read(reading, "the last") == ["3 log lines were dropped here: standard error was not read", "the last"]


def test_line_of_a_stream_that_cannot_be_written_costs_no_answer() -> None:
    with queue(backlog=10) as (handler, reading), listening(handler):
        stream_line({"event": "stream", "usage": object()}, logging.INFO)
        stream_line({"message": "after"}, logging.INFO)
        odd, after = read(reading, "after")
    assert odd.startswith("a stream's line that cannot be written: ")
    assert after == "after"


# what a person sees


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(record: StreamRecord, **environ: str) -> str:
    log = line("stream")
    log.line = record.line()
    return _Coloured(Paint(Terminal(), environ)).format(log)


def record(outcome: str, **fields: object) -> StreamRecord:
    found = StreamRecord("req-1", "native", "default", 0.0, outcome=outcome)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def test_colour_is_as_on_the_start_screen() -> None:
    finished = record("finished", ended=1.0)
    assert "\x1b[32mfinished" in shown(finished)
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text = shown(finished, **environ)
        assert "finished" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(("outcome", "there"), [("failed", True), ("refused", True), ("finished", False), ("client_disconnected", False)])
def test_what_went_wrong_can_be_found_by_its_id(outcome: str, there: bool) -> None:
    assert ("req-1" in shown(record(outcome), TERM="dumb")) is there


def test_person_sees_who_called_and_each_warning_once() -> None:
    text = shown(record("finished", caller="alice", warnings=["a failed: x", "b failed: y", "a failed: x"]), TERM="dumb")
    assert "caller alice" in text
    assert text.endswith("a failed: x (2 times)  b failed: y")
