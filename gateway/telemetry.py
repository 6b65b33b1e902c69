"""One `StreamRecord` per stream: a log line, and a line on `/live`. Never a prompt, an answer or a key."""

import copy
import logging
import os
import select
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, ClassVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gateway import json_text
from gateway.errors import GatewayError
from gateway.events import ContentBlockDelta, Event, InputJsonDelta, Stats, TextDelta, ThinkingDelta
from gateway.json_text import Json

LOG = logging.getLogger("gateway")
Paint = Callable[[str, str], str]  # a style's name and a text → the text, for a terminal
LONGEST_NAME = 200  # characters of a name in the log
MOST_COUNTS = 50  # entries of a usage in the log
LIVE_BACKLOG = 256  # records that a slow reader of /live may be behind; then it misses some
LOG_BACKLOG = 10_000  # lines that wait for standard error, some 10 MB; then they are dropped and counted
LOG_PAUSE = 0.02  # seconds that a line may wait for company
LARGEST_WRITE = 64 * 1024  # bytes of lines written at once
LAST_LINES = 1.0  # seconds in which the lines that wait must be written when the process ends


@dataclass(slots=True)
class StreamRecord:
    """What became of one request. Instants are readings of one monotonic clock in seconds, `began` its last byte."""

    request_id: str
    format: str
    model: str
    began: float
    caller: str | None = None
    provider: str | None = None
    target: str | None = None
    attempts: int = 0
    outcome: str = "failed"
    status: int | None = None
    error: GatewayError | None = None
    first_text: float | None = None
    first_thinking: float | None = None
    first_delta: float | None = None
    last_delta: float | None = None
    ended: float | None = None
    events: int = 0
    bytes_sent: int = 0
    usage: Json = field(default_factory=dict)
    stop_reason: str | None = None
    dropped_frames: int = 0
    warnings: list[str] = field(default_factory=list)

    def note(self, events: list[Event], now: float) -> None:
        """These events are about to be sent."""
        self.events += len(events)
        if self.first_text is None or self.first_thinking is None or self.first_delta is None:
            self._note_first(events, now)
        if self.first_delta is not None:
            for event in events:
                if type(event) is ContentBlockDelta:
                    self.last_delta = now
                    break

    def _note_first(self, events: list[Event], now: float) -> None:
        for event in events:
            if type(event) is not ContentBlockDelta:
                continue
            self.first_delta = self.first_delta or now
            if isinstance(event.delta, TextDelta | InputJsonDelta):
                self.first_text = self.first_text or now
            elif isinstance(event.delta, ThinkingDelta):
                self.first_thinking = self.first_thinking or now

    def stats(self, now: float) -> Stats:
        """The times of `message_stop`."""
        return Stats(
            ttft_ms=self._since_beginning(self.first_text),
            thinking_ttft_ms=self._since_beginning(self.first_thinking),
            duration_ms=self._since_beginning(now),
            output_tokens_per_s=self._speed(),
            provider=self.provider,
            target=self.target,
            attempts=self.attempts,
            dropped_frames=self.dropped_frames,
        )

    def line(self) -> Json:
        """The record as it is logged; what is unknown is left out."""
        code = self.error.cause.code if self.error else None
        fields: Json = {
            "event": "stream",
            "request_id": self.request_id,
            "caller": self.caller,
            "format": self.format,
            "model": _short(self.model),
            "target": _short(self.target),
            "attempts": self.attempts,
            "outcome": self.outcome,
            "status": self.status,
            "error_code": code,
            "error": self.error.message if self.error else None,
            "detail": self.error.detail if self.error else None,
            "ttft_ms": self._since_beginning(self.first_text),
            "thinking_ttft_ms": self._since_beginning(self.first_thinking),
            "duration_ms": self._since_beginning(self.ended),
            "events": self.events,
            "bytes": self.bytes_sent,
            "usage": _numbers(self.usage),
            "stop_reason": _short(self.stop_reason),
            "dropped_frames": self.dropped_frames,
            "warnings": _counted(self.warnings),
        }
        return {key: value for key, value in fields.items() if value is not None and value != [] and value != {}}

    def _since_beginning(self, instant: float | None) -> float | None:
        return None if instant is None else round((instant - self.began) * 1000, 2)

    def _speed(self) -> float | None:
        tokens = self.usage.get("output_tokens")
        if self.first_delta is None or self.last_delta is None or not isinstance(tokens, int) or tokens < 2:
            return None
        seconds = self.last_delta - self.first_delta
        return round((tokens - 1) / seconds, 1) if seconds > 0 else None


def _short(name: str | None) -> str | None:
    """A caller and a provider choose names: what is longer than any real one is no name but text."""
    return name if name is None or len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _counted(warnings: list[str]) -> list[str]:
    """Each once: three tries at one target say the same three times."""
    if len(warnings) < 2:
        return warnings
    return [f"{warning} ({number} times)" if number > 1 else warning for warning, number in Counter(warnings).items()]


def _numbers(usage: Json, depth: int = 2) -> Json:
    """What was counted. A provider may put anything beside it, and so much of it that no log would hold it."""
    found: Json = {}
    for key, value in usage.items():
        inner = _numbers(value, depth - 1) if isinstance(value, dict) and depth > 1 else None
        counted = inner or (value if isinstance(value, int | float) else None)
        if counted is not None and len(key) <= LONGEST_NAME and len(found) < MOST_COUNTS:
            found[key] = counted
    return found


class Live:
    """The feed of finished streams: every subscriber gets each record's line, and misses some rather than slowing anyone down."""

    def __init__(self) -> None:
        self._subscribers: set[MemoryObjectSendStream[Json]] = set()

    def publish(self, line: Json) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber.send_nowait(line)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                continue

    def subscribe(self) -> "Feed":
        sender, receiver = anyio.create_memory_object_stream[Json](LIVE_BACKLOG)
        self._subscribers.add(sender)

        def leave() -> None:
            self._subscribers.discard(sender)
            sender.close()

        return Feed(receiver, leave)

    def close(self) -> None:
        """Ends every feed: the gateway stops."""
        for subscriber in tuple(self._subscribers):
            subscriber.close()


class Feed:
    """One subscriber's lines. An iterator, not a generator: it is over with the first wait that is cancelled."""

    def __init__(self, receiver: MemoryObjectReceiveStream[Json], leave: Callable[[], None]) -> None:
        self._receiver, self._leave = receiver, leave

    def __aiter__(self) -> "Feed":
        return self

    async def __anext__(self) -> Json:
        try:
            return await self._receiver.receive()
        except anyio.EndOfStream:
            await self.aclose()
            raise StopAsyncIteration from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        self._leave()
        self._receiver.close()


def emit(record: StreamRecord, live: Live) -> None:
    """The record's one log line, and the same on `/live`."""
    line = record.line()
    level = logging.WARNING if record.outcome == "failed" else logging.INFO
    if LOG.isEnabledFor(level):
        # What `LOG.log` does, without a walk up the stack for the caller's name.
        LOG.handle(LOG.makeRecord(LOG.name, level, __file__, 0, "stream", (), None, extra={"line": line}))
    live.publish(line)


class _JsonLines(logging.Formatter):
    """One JSON object a line: nothing that is logged can forge a second line."""

    def format(self, record: logging.LogRecord) -> str:
        line: Json = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": record.levelname.lower()}
        line |= getattr(record, "line", None) or {"event": "log", "logger": record.name, "message": record.getMessage()}
        if trace := _trace(self, record):
            line["exception"] = trace
        return json_text.write(line).decode()


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
        paint, line = self._paint, getattr(record, "line", None)
        clock = paint("dim", self.formatTime(record, "%H:%M:%S"))
        if line is None:
            trace = _trace(self, record)
            return f"{clock} {record.getMessage()}" + (f"\n{trace}" if trace else "")
        parts = [f"{clock} {paint(self.COLOURS.get(line['outcome'], 'red'), format(line['outcome'], '<19'))} {line['model']}"]
        if (target := line.get("target")) and target != line["model"]:
            parts.append(paint("dim", f"→ {target}"))
        parts += [f"{paint('dim', name)} {value}" for name, value in _figures(line)]
        if line.get("error"):
            parts.append(f"{paint('red', line['error_code'])} {line['error']}")
        parts += [paint("yellow", warning) for warning in line.get("warnings", [])]
        if line["outcome"] in ("failed", "refused"):
            parts.append(paint("dim", line["request_id"]))
        return "  ".join(parts)


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


class _Lines(QueueListener):
    """Writes what was logged, in a thread of its own: a reader of standard error that is slow, or is none, holds up nobody else.

    Past Python's own buffers, whose locks a blocked write would hold when the process ends.
    """

    def __init__(self, queue: SimpleQueue[logging.LogRecord | None], formatter: logging.Formatter, descriptor: int, encoding: str) -> None:
        super().__init__(queue)
        self._waiting = queue
        self._formatter, self._descriptor, self._encoding = formatter, descriptor, encoding
        self._hurry = threading.Event()

    def handle(self, record: logging.LogRecord) -> None:
        """This one, and all that came while the last ones were written: to be woken costs more than a line."""
        lines, size = [self._text(record)], 0
        while size < LARGEST_WRITE and not self._waiting.empty():
            following = self._waiting.get_nowait()
            if following is None:  # the end: for whoever called
                self.enqueue_sentinel()
                break
            lines.append(self._text(following))
            size += len(lines[-1])
        self._write(memoryview(b"".join(lines)))
        self._hurry.wait(LOG_PAUSE)

    def stop_soon(self) -> None:
        """Does not outlast a reader who does not read."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hurry.set()
            self.enqueue_sentinel()
            thread.join(LAST_LINES)

    def _text(self, record: logging.LogRecord) -> bytes:
        try:
            text = self._formatter.format(record)
        except Exception as error:  # whatever a library's arguments raise: the lines after it must still be written
            odd = {"name": record.name, "levelname": record.levelname, "msg": f"a line that cannot be written: {error!r}"}
            text = self._formatter.format(logging.makeLogRecord(odd))
        return f"{text}\n".encode(self._encoding, "replace")

    def _write(self, left: memoryview) -> None:
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody else made the pipe or terminal a non-blocking one
                select.select((), (self._descriptor,), ())
            except OSError:  # nobody reads any more
                return


class LogQueue(QueueHandler):
    """Where log lines wait. Closed by `logging.shutdown`, which Python calls at its end."""

    def __init__(self, formatter: logging.Formatter, descriptor: int, encoding: str = "utf-8", backlog: int = LOG_BACKLOG) -> None:
        # Not queue.Queue: a signal's handler logs too, and may have interrupted this very thread in the middle of `put`.
        self._waiting: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        super().__init__(self._waiting)
        self._backlog = backlog
        self._dropped = 0
        self._lines = _Lines(self._waiting, formatter, descriptor, encoding)
        self._lines.start()

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """What may change until it is written becomes text; a stream's line is not touched any more."""
        if hasattr(record, "line"):
            return record
        record = copy.copy(record)
        record.msg, record.args = record.getMessage(), None
        if record.exc_info:
            record.exc_text, record.exc_info = logging.Formatter().formatException(record.exc_info), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= self._backlog:
            self._dropped += 1
            return
        self._tell_dropped()
        self._waiting.put(record)

    def _tell_dropped(self) -> None:
        if self._dropped:
            sentence = f"{self._dropped} log lines were dropped here: standard error was not read"
            self._dropped = 0
            self._waiting.put(logging.LogRecord(LOG.name, logging.WARNING, __file__, 0, sentence, None, None))

    def close(self) -> None:
        """What waits is written, unless that takes too long."""
        self._tell_dropped()
        self._lines.stop_soon()
        super().close()


def configure_logging(paint: Paint) -> None:
    """Everything to standard error: for people on a terminal, else JSON lines. Libraries speak from WARNING up, the HTTP ones
    never below it: at DEBUG they print URLs, headers and whole chunks."""
    formatter = _Coloured(paint) if sys.stderr.isatty() else _JsonLines()
    handler = LogQueue(formatter, sys.stderr.fileno(), sys.stderr.encoding)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    LOG.setLevel(logging.INFO)
    for name in ("httpx", "httpcore", "sse_starlette", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
