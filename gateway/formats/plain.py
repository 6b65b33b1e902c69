"""Answers for programs: the text alone, and newline-delimited JSON (https://github.com/ndjson/ndjson-spec)."""

from gateway import json_text
from gateway.errors import GatewayError
from gateway.events import ContentBlockDelta, Event, Ping, TextDelta, UnknownDelta, encode


class TextEncoder:
    """Text deltas and nothing else, so an answer that breaks off can only be cut: there is no word for it."""

    def feed(self, events: list[Event]) -> bytes:
        text = "".join([_text(event) for event in events])
        try:
            return text.encode()
        except UnicodeEncodeError:
            return json_text.clean(text).encode()

    def heartbeat(self) -> bytes:
        return b""

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes | None:
        return None


class LinesEncoder:
    """The native events, one a line."""

    def feed(self, events: list[Event]) -> bytes:
        return b"".join([encode(event) + b"\n" for event in events])

    def heartbeat(self) -> bytes:
        return _HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return encode(error.event(request_id, partial=partial)) + b"\n"


class TextFormat:
    name = "text"
    content_type = "text/plain; charset=utf-8"

    def encoder(self) -> TextEncoder:
        return TextEncoder()


class LinesFormat:
    name = "ndjson"
    content_type = "application/x-ndjson"

    def encoder(self) -> LinesEncoder:
        return LinesEncoder()


def _text(event: Event) -> str:
    if type(event) is not ContentBlockDelta:
        return ""
    delta = event.delta
    if type(delta) is TextDelta:
        return delta.text
    if isinstance(delta, UnknownDelta) and delta.body.get("type") == "text_delta" and isinstance(said := delta.body.get("text"), str):
        return said
    return ""


_HEARTBEAT = encode(Ping()) + b"\n"

TEXT = TextFormat()
NDJSON = LinesFormat()
