"""One `StreamRecord` per stream: a log line, and a line on `/live`. Never a prompt, an answer or a key."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from gateway.errors import GatewayError
from gateway.events import ContentBlockDelta, Event, InputJsonDelta, Stats, TextDelta, ThinkingDelta
from gateway.json_text import Json
from gateway.log import stream_line

LOG = logging.getLogger("gateway")
LONGEST_NAME = 200  # characters of a name in the log
MOST_COUNTS = 50  # entries of a usage in the log
LIVE_BACKLOG = 256  # records that a slow reader of /live may be behind; then it misses some


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
        for event in events:
            if type(event) is not ContentBlockDelta:
                continue
            self.last_delta = now
            if self.first_text is not None and self.first_thinking is not None:
                break
            if self.first_delta is None:
                self.first_delta = now
            kind = type(event.delta)
            if kind is TextDelta or kind is InputJsonDelta:
                if self.first_text is None:
                    self.first_text = now
            elif kind is ThinkingDelta and self.first_thinking is None:
                self.first_thinking = now

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
        line: Json = {"event": "stream", "request_id": self.request_id}
        if self.caller is not None:
            line["caller"] = self.caller
        line["format"] = self.format
        line["model"] = _short(self.model)
        if self.target is not None:
            line["target"] = _short(self.target)
        line["attempts"] = self.attempts
        line["outcome"] = self.outcome
        if self.status is not None:
            line["status"] = self.status
        if self.error is not None:
            line["error_code"], line["error"] = self.error.cause.code, self.error.message
            if self.error.detail is not None:
                line["detail"] = self.error.detail
        for name, instant in (("ttft_ms", self.first_text), ("thinking_ttft_ms", self.first_thinking), ("duration_ms", self.ended)):
            if instant is not None:
                line[name] = self._since_beginning(instant)
        line["events"] = self.events
        line["bytes"] = self.bytes_sent
        if usage := _numbers(self.usage):
            line["usage"] = usage
        if self.stop_reason is not None:
            line["stop_reason"] = _short(self.stop_reason)
        line["dropped_frames"] = self.dropped_frames
        if self.warnings:
            line["warnings"] = _counted(self.warnings)
        return line

    def _since_beginning(self, instant: float | None) -> float | None:
        """Milliseconds and their hundredths. `round(…, 2)` says the same by way of a decimal text, which takes three times as long."""
        return None if instant is None else round((instant - self.began) * 100_000) / 100

    def _speed(self) -> float | None:
        tokens = self.usage.get("output_tokens")
        if self.first_delta is None or self.last_delta is None or not isinstance(tokens, int) or tokens < 2:
            return None
        seconds = self.last_delta - self.first_delta
        return round((tokens - 1) / seconds, 1) if seconds > 0 else None


def _short(name: str) -> str:
    """A caller and a provider choose names: what is longer than any real one is no name but text."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _counted(warnings: list[str]) -> list[str]:
    """Each once: three tries at one target say the same three times."""
    if len(warnings) < 2:
        return warnings
    return [f"{warning} ({number} times)" if number > 1 else warning for warning, number in Counter(warnings).items()]


def _numbers(usage: Json, depth: int = 2) -> Json:
    """What was counted. A provider may put anything beside it, and so much of it that no log would hold it."""
    found: Json = {}
    for key, value in usage.items():
        if isinstance(value, dict):
            value = _numbers(value, depth - 1) if depth > 1 else None
            counted = bool(value)
        else:
            counted = isinstance(value, (int, float))
        if counted and len(key) <= LONGEST_NAME and len(found) < MOST_COUNTS:
            found[key] = value
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
        except BaseException:  # cancelled: the reader left, and its feed with it
            await self.aclose()
            raise

    async def aclose(self) -> None:
        self._leave()
        self._receiver.close()


def emit(record: StreamRecord, live: Live) -> None:
    """The record's one log line, and the same on `/live`."""
    line = record.line()
    if (error := record.error) is not None:
        # It is told, and its frames hold the whole request, the record, itself: all that would be left to the collector.
        error.__traceback__ = error.__cause__ = error.__context__ = None
    level = logging.WARNING if record.outcome == "failed" else logging.INFO
    if LOG.isEnabledFor(level):
        stream_line(line, level)
    live.publish(line)
