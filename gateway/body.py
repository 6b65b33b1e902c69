"""A provider's answer body: bytes to JSON values, whatever framing it turns out to have.

What is no JSON is looked at twice (`framing.resynchronise`), then dropped and counted; at the end `diagnosis` says what a body
was that finished nothing. Knows no format's fields.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

from gateway import json_text
from gateway.errors import UpstreamFailed
from gateway.framing import DONE as DONE_BYTES
from gateway.framing import LINES_LIMIT, Framing, resynchronise
from gateway.refusals import content_kind, is_refusal, snippet
from gateway.sse import LIMIT, Frame

DONE: Final = object()
"""What `data: [DONE]` becomes."""

# Malformed pieces in a row, after which no provider was seen to recover. A short one takes as long as an event, and there are six
# thousand in what is handled before the others have their turn.
MALFORMED_LIMIT = 1000

NO_OBJECTS = frozenset((type(None), bool, int, float, str, list))


class Body:
    """`feed` and `close` return `(event name, value)` pairs: a JSON object, a list that is an error, or `DONE`.

    `read` turns a frame's data into a value and raises `MalformedJson`; a format may give its own typed one. `read_run` does it for many
    at once, if all become such typed values, for which the event's name does not matter; else None.
    """

    def __init__(
        self,
        provider: str,
        *,
        content_type: str = "",
        secrets: tuple[str, ...] = (),
        read: Callable[[bytes], Any] = json_text.read,
        read_run: Callable[[list[bytes]], list[Any] | None] = lambda _: None,
    ) -> None:
        self.good = 0
        self._provider = provider
        self._content_type = content_type
        self._secrets = secrets
        self._read = read
        self._read_run = read_run
        self._framing = Framing()
        self._malformed = 0
        self._flooded = False
        self._good_before = 0  # as of the latest look,
        self._dropped_before = 0  # and what had been dropped when the latest good one had come

    @property
    def dropped(self) -> int:
        """Malformed frames so far."""
        return self._malformed + self._framing.dropped

    @property
    def failure(self) -> UpstreamFailed | None:
        """That of an event over the limit, or of a flood of malformed ones, as soon as it came."""
        if self._framing.overflow:
            sentence = f"Provider {self._provider} sent an event of more than {LIMIT >> 20} MiB or {LINES_LIMIT} lines."
            return UpstreamFailed("event_too_large", sentence, provider=self._provider)
        if self._flooded:
            sentence = f"Provider {self._provider} sent more than {MALFORMED_LIMIT} pieces in a row that cannot be read."
            return UpstreamFailed("malformed", sentence, provider=self._provider)
        return None

    def feed(self, chunk: bytes) -> list[tuple[str, Any]]:
        frames, run = self._framing.take(chunk)
        values = self._values(frames)
        if run is not None and not self._flooded:
            typed = self._read_run(run.data)
            if typed is None:
                return values + self._values(self._framing.frames(run))
            values += zip(repeat(""), typed)
            self.good += len(typed)
            self._look_for_flood()
        return values

    def close(self) -> list[tuple[str, Any]]:
        return self._values(self._framing.close())

    def diagnosis(self) -> UpstreamFailed:
        """Why a body that ended without finishing an answer is none."""
        name, framing = self._provider, self._framing
        if failure := self.failure:
            return failure
        if framing.empty:
            return UpstreamFailed("unavailable", f"Provider {name} answered 200 with an empty body.", provider=name)
        if framing.kind == "html":
            kind = content_kind(self._content_type, self._secrets)
            sentence = f"Provider {name} answered 200 with an HTML page ({kind}) instead of a stream."
            return UpstreamFailed("unavailable", sentence, provider=name, detail=snippet(framing.snippet, self._secrets))
        if not self.good:
            sentence = f"Provider {name} answered 200 with nothing that can be read as an answer."
            # What is no JSON may hold an answer all the same: its text goes into no log, unlike a web page's.
            return UpstreamFailed("malformed", sentence, provider=name)
        return UpstreamFailed("interrupted", f"Provider {name} ended the stream before the answer was finished.", provider=name)

    def _values(self, frames: list[Frame]) -> list[tuple[str, Any]]:
        values: list[tuple[str, Any]] = []
        read = self._read
        for frame in frames:
            try:
                value = read(frame.data)
            except json_text.MalformedJson:
                for piece in self._second_look(frame.data):
                    self._keep(values, frame.event, piece)
                self._look_for_flood()
                if self._flooded:
                    break
                continue
            if type(value) not in NO_OBJECTS or self._acceptable(value):
                values.append((frame.event, value))
                self.good += 1
        self._look_for_flood()
        return values

    def _look_for_flood(self) -> None:
        dropped = self.dropped
        if self.good > self._good_before:
            self._good_before, self._dropped_before = self.good, dropped
        self._flooded = self._flooded or dropped - self._dropped_before > MALFORMED_LIMIT

    def _second_look(self, data: bytes) -> list[Any]:
        if data.strip() == DONE_BYTES:
            return [DONE]
        pieces = resynchronise(data, broken=True)
        if len(pieces) < 2:  # a head was cut off, or nothing was whole; two pieces are a frame and its glued end
            self._malformed += 1
        return [DONE if piece == DONE_BYTES else self._read(piece) for piece in pieces]

    def _keep(self, values: list[tuple[str, Any]], event: str, value: Any) -> None:
        if value is DONE or self._acceptable(value):
            values.append((event, value))
            self.good += 1

    def _acceptable(self, value: Any) -> bool:
        """Objects and a format's own typed values; `null` is somebody's keep-alive; all else is malformed."""
        if type(value) not in NO_OBJECTS or is_refusal(value):
            return True
        if value is not None:
            self._malformed += 1
        return False
