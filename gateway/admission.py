"""How much: the number of streams at once. A slot is given back exactly once, whatever happens to its stream."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import RequestRefused


def stopping() -> RequestRefused:
    return RequestRefused("shutdown", "The gateway is stopping: try again in a few seconds.", retry_after=5)


class Admission:
    """`whole`: this one is a caller's share of it, and its streams need a slot in both."""

    def __init__(self, max_streams: int, whole: "Admission | None" = None) -> None:
        self._max_streams = max_streams
        self._whole = whole
        self.streams = 0
        self.stopping = False  # the gateway takes no new streams

    def share(self, max_streams: int) -> "Admission":
        """One caller's part of these slots."""
        return Admission(max_streams, self)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A slot for one stream; `RequestRefused` if there is none."""
        if self._whole is None:
            with self._slot():
                yield
        else:
            with self._whole.stream(), self._slot():
                yield

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if self.stopping:
            raise stopping()
        if self.streams >= self._max_streams:
            raise self._full()
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def _full(self) -> RequestRefused:
        if self._whole is not None:
            sentence = f"This key is at its limit of open streams ({self._max_streams}): try again when one has ended."
            return RequestRefused("caller_limited", sentence, retry_after=5)
        sentence = f"The gateway is at its limit of {self._max_streams} streams: try again in a few seconds."
        return RequestRefused("too_many_streams", sentence, retry_after=5)
