"""`stream: false`: the assembled message as one document, or its text alone. Built from the same events as every stream."""

from gateway import json_text
from gateway.errors import GatewayError
from gateway.events import Event, MessageStop, encode
from gateway.message import Assembler


class _Whole:
    """Gathers events; nothing is written before the message is complete."""

    def __init__(self, *, text_only: bool) -> None:
        self._assembler = Assembler()
        self._text_only = text_only

    def feed(self, events: list[Event]) -> bytes:
        self._assembler.feed(events)
        if not isinstance(last := events[-1], MessageStop):
            return b""
        message = self._assembler.message
        if self._text_only:
            texts = [block["text"] for block in message["content"] if block["type"] == "text"]
            return json_text.clean("".join(text for text in texts if isinstance(text, str))).encode()
        return json_text.write({**message, "stats": last.stats})

    def heartbeat(self) -> bytes:
        return b""

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        """The HTTP error's body; what was received until then stands beside the error."""
        body = json_text.read(encode(error.event(request_id, partial=partial)))
        return json_text.write(body | ({"partial_message": self._assembler.partial} if partial else {}))


class Whole:
    """`text_only`: the answer of `?format=text`."""

    def __init__(self, name: str, content_type: str, *, text_only: bool) -> None:
        self.name = name
        self.content_type = content_type
        self._text_only = text_only

    def encoder(self) -> _Whole:
        return _Whole(text_only=self._text_only)


WHOLE_MESSAGE = Whole("native", "application/json", text_only=False)
WHOLE_TEXT = Whole("text", "text/plain; charset=utf-8", text_only=True)
