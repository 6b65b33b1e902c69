"""How log lines are written: as JSON or for a person, by a thread of their own, and never at the cost of a stream."""

import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, ClassVar

from gateway import json_text
from gateway.json_text import Json

LOG = logging.getLogger("gateway")
Paint = Callable[[str, str], str]  # a style's name and a text → the text, for a terminal
LOG_BACKLOG = 10_000  # lines that wait for standard error, some 5 MB; then they are dropped and counted
LOG_PAUSE = 0.02  # seconds that a line may wait for company
LARGEST_WRITE = 64 * 1024  # bytes of lines written at once
LAST_LINES = 1.0  # seconds in which the lines that wait must be written when the process ends


class _JsonLines(logging.Formatter):
    """One JSON object a line: nothing that is logged can forge a second line."""

    def format(self, record: logging.LogRecord) -> str:
        line: Json = getattr(record, "line", None) or {"event": "log", "logger": record.name, "message": record.getMessage()}
        if trace := _trace(self, record):
            line = {**line, "exception": trace}
        return self.stream_line(line, record.levelname, record.created)

    def stream_line(self, line: Json, level: str, created: float) -> str:
        return _beginning(int(created), level) + json_text.write(line)[1:].decode()


@lru_cache(maxsize=8)
def _beginning(second: int, level: str) -> str:
    """Of a line's object, up to its own fields. A busy second has hundreds of lines."""
    instant = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(second))
    return json_text.write({"time": instant, "level": level.lower()})[:-1].decode() + ","


class _Coloured(logging.Formatter):
    """For a person at a terminal: outcome, model, time to first token, duration, tokens; of what went wrong also the request's id."""

    COLOURS: ClassVar = {
        "finished": "green",
        "client_disconnected": "yellow",
        "stopped": "yellow",
        "refused": "magenta",
        "shutdown": "magenta",
    }

    def __init__(self, paint: Paint) -> None:
        super().__init__()
        self._paint = paint

    def format(self, record: logging.LogRecord) -> str:
        if (line := getattr(record, "line", None)) is not None:
            return self.stream_line(line, record.levelname, record.created)
        trace = _trace(self, record)
        return f"{self._clock(record.created)} {record.getMessage()}" + (f"\n{trace}" if trace else "")

    def stream_line(self, line: Json, level: str, created: float) -> str:
        paint = self._paint
        outcome = paint(self.COLOURS.get(line["outcome"], "red"), format(line["outcome"], "<19"))
        parts = [f"{self._clock(created)} {outcome} {line['model']}"]
        if (target := line.get("target")) and target != line["model"]:
            parts.append(paint("dim", f"→ {target}"))
        parts += [f"{paint('dim', name)} {value}" for name, value in _figures(line)]
        if line.get("error"):
            parts.append(f"{paint('red', line['error_code'])} {line['error']}")
        parts += [paint("yellow", warning) for warning in line.get("warnings", [])]
        if line["outcome"] in ("failed", "refused"):
            parts.append(paint("dim", line["request_id"]))
        return "  ".join(parts)

    def _clock(self, created: float) -> str:
        return self._paint("dim", time.strftime("%H:%M:%S", time.localtime(created)))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else "")


def _figures(line: Json) -> Iterator[tuple[str, Any]]:
    if "caller" in line:
        yield "caller", line["caller"]
    if "ttft_ms" in line:
        yield "first", f"{line['ttft_ms']:.0f} ms"
    if "duration_ms" in line:
        yield "total", f"{line['duration_ms'] / 1000:.2f} s"
    if tokens := line.get("usage", {}).get("output_tokens"):
        yield "tokens", tokens
    if line["attempts"] > 1:
        yield "attempts", line["attempts"]


class _Writer(threading.Thread):
    """Writes what was logged: a reader of standard error that is slow, or is none, holds up nobody else.

    Past Python's own buffers, whose locks a blocked write would hold when the process ends.
    """

    def __init__(self, waiting: SimpleQueue[bytes | None], descriptor: int) -> None:
        super().__init__(name="log", daemon=True)
        self._waiting, self._descriptor = waiting, descriptor
        self._hurry = threading.Event()

    def run(self) -> None:
        """A line, and all that came while the last ones were written: to be woken costs more than a line."""
        while (line := self._waiting.get()) is not None:
            lines, size = [line], len(line)
            while size < LARGEST_WRITE and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:  # the end: for the loop around this one
                    self._waiting.put(None)
                    break
                lines.append(following)
                size += len(following)
            self._write(memoryview(b"".join(lines)))
            self._hurry.wait(LOG_PAUSE)

    def stop_soon(self) -> None:
        """Does not outlast a reader who does not read."""
        self._hurry.set()
        self._waiting.put(None)
        self.join(LAST_LINES)

    def _write(self, left: memoryview) -> None:
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody else made the pipe or terminal a non-blocking one
                select.select((), (self._descriptor,), ())
            except OSError:  # nobody reads any more
                return


class LogQueue(logging.Handler):
    """Where log lines wait, as they will be written. Closed by `logging.shutdown`, which Python calls at its end."""

    def __init__(self, formatter: _JsonLines | _Coloured, descriptor: int, encoding: str = "utf-8", backlog: int = LOG_BACKLOG) -> None:
        super().__init__()
        self._formatter = formatter
        self._encoding, self._backlog, self._dropped = encoding, backlog, 0
        # Not queue.Queue: a signal's handler logs too, and may have interrupted this very thread in the middle of `put`.
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = _Writer(self._waiting, descriptor)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._has_room():
            try:
                self._put(self._formatter.format(record))
            except Exception as error:  # whatever a library's arguments raise
                self._say(f"a line of {record.name} that cannot be written: {error!r}")

    def stream_line(self, line: Json, level: int) -> None:
        """A stream's line, as `emit` would write its record."""
        if self._has_room():
            try:
                self._put(self._formatter.stream_line(line, logging.getLevelName(level), time.time()))
            except Exception as error:  # a value without JSON, should there be one: it costs a line, no answer
                self._say(f"a stream's line that cannot be written: {error!r}")

    def _has_room(self) -> bool:
        if self._waiting.qsize() >= self._backlog:
            self._dropped += 1
            return False
        self._tell_dropped()
        return True

    def _tell_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._say(f"{dropped} log lines were dropped here: standard error was not read")

    def _say(self, sentence: str) -> None:
        self._put(self._formatter.format(logging.LogRecord(LOG.name, logging.WARNING, __file__, 0, sentence, None, None)))

    def _put(self, text: str) -> None:
        """Text already: what is logged may change, and to write it out costs less while the processor has it at hand."""
        self._waiting.put(f"{text}\n".encode(self._encoding, "replace"))

    def close(self) -> None:
        """What waits is written, unless that takes too long."""
        self._tell_dropped()
        self._writer.stop_soon()
        super().close()


def stream_line(line: Json, level: int) -> None:
    """Where nobody but our own queue listens a stream's line goes straight to it. What `logging` does for each record (its place in the
    code, its thread, its process, who might want it) costs more than all else that is logged."""
    listening = logging.root.handlers
    if len(listening) == 1 and isinstance(queue := listening[0], LogQueue) and not LOG.handlers:
        queue.stream_line(line, level)
    else:
        LOG.handle(LOG.makeRecord(LOG.name, level, __file__, 0, "stream", (), None, extra={"line": line}))


def configure_logging(paint: Paint) -> None:
    """Everything to standard error: for people on a terminal, else JSON lines. Libraries speak from WARNING up, the HTTP ones
    never below it: at DEBUG they print URLs, headers and whole chunks."""
    formatter = _Coloured(paint) if sys.stderr.isatty() else _JsonLines()
    handler = LogQueue(formatter, sys.stderr.fileno(), sys.stderr.encoding)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOG.setLevel(logging.INFO)
    for name in ("httpx", "httpcore", "sse_starlette", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
