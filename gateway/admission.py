"""How much: the number of streams at once. A slot is given back exactly once, whatever happens to its stream."""

from types import TracebackType

from gateway.errors import RequestRefused


def stopping() -> RequestRefused:
    return RequestRefused("shutdown", "The gateway is stopping: try again in a few seconds.", retry_after=5)


class Slot:
    """One stream's place, until it is closed or left."""

    __slots__ = ("_admission", "_whole")

    def __init__(self, admission: "Admission", whole: "Slot | None") -> None:
        self._admission: Admission | None = admission
        self._whole = whole

    def close(self) -> None:
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.streams -= 1
            if self._whole is not None:
                self._whole.close()

    def __enter__(self) -> "Slot":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


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

    def stream(self) -> "Slot":
        """A slot for one stream; `RequestRefused` if there is none."""
        whole = self._whole.stream() if self._whole is not None else None
        try:
            if self.stopping:
                raise stopping()
            if self.streams >= self._max_streams:
                raise self._full()
        except RequestRefused:
            if whole is not None:
                whole.close()
            raise
        self.streams += 1
        return Slot(self, whole)

    def _full(self) -> RequestRefused:
        if self._whole is not None:
            sentence = f"This key is at its limit of open streams ({self._max_streams}): try again when one has ended."
            return RequestRefused("caller_limited", sentence, retry_after=5)
        sentence = f"The gateway is at its limit of {self._max_streams} streams: try again in a few seconds."
        return RequestRefused("too_many_streams", sentence, retry_after=5)
