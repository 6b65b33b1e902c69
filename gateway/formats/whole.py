"""`stream: false`: the assembled message, written as one document at its end. Built from the same events as every stream.

No format, but what the documents of all of them are made of.
"""

from collections.abc import Callable

from gateway.errors import GatewayError
from gateway.events import Event, MessageStop
from gateway.json_text import Json
from gateway.message import Assembler

Write = Callable[[Json, MessageStop], bytes]
"""The complete message and its last event, to the document. The message is the Assembler's own: not to be changed."""


class Document:
    """An `Encoder` that gathers events; nothing is written before the message is complete.

    `tell` makes of the message's parts so far, for the error of an answer that broke off, what the format shows of them.
    """

    def __init__(self, write: Write, tell: Callable[[Json], Json] = dict) -> None:
        self._assembler = Assembler()
        self._write = write
        self._tell = tell

    @property
    def partial(self) -> Json | None:
        message = self._assembler.partial
        return None if message is None else self._tell(message)

    def feed(self, events: list[Event]) -> bytes:
        self._assembler.feed(events)
        if not isinstance(last := events[-1], MessageStop):
            return b""
        return self._write(self._assembler.message, last)

    def heartbeat(self) -> bytes:
        return b""

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> None:
        return None
