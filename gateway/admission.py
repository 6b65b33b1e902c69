"""How much: the number of streams at once. A slot is given back exactly once, whatever happens to its stream."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import RequestRefused


class Admission:
    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self.streams = 0
        self.stopping = False  # the gateway takes no new streams

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A slot for one stream; `RequestRefused` if there is none."""
        if self.stopping:
            raise RequestRefused("shutdown", "The gateway is stopping: try again in a few seconds.", retry_after=5)
        if self.streams >= self._max_streams:
            sentence = f"The gateway is at its limit of {self._max_streams} streams: try again in a few seconds."
            raise RequestRefused("too_many_streams", sentence, retry_after=5)
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
