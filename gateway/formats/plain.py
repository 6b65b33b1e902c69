"""Answers for programs: the text alone, and newline-delimited JSON (https://github.com/ndjson/ndjson-spec)."""

from gateway import json_text
from gateway.errors import GatewayError
from gateway.events import ContentBlockDelta, Event, MessageStop, Ping, TextDelta, UnknownDelta, encode
from gateway.formats import UNASKED, Asked
from gateway.formats.whole import Document
from gateway.json_text import Json


class TextEncoder:
    """Text deltas and nothing else, so an answer that breaks off can only be cut: there is no word for it."""

    partial: Json | None = None

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

    partial: Json | None = None

    def feed(self, events: list[Event]) -> bytes:
        return b"".join([encode(event) + b"\n" for event in events])

    def heartbeat(self) -> bytes:
        return _HEARTBEAT

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes:
        return encode(error.event(request_id, partial=partial)) + b"\n"


class TextFormat:
    name = "text"
    content_type = "text/plain; charset=utf-8"
    document_type = content_type

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return ()

    def encoder(self, asked: Asked = UNASKED) -> TextEncoder:
        return TextEncoder()

    def document(self, asked: Asked = UNASKED) -> Document:
        return Document(_texts)


class LinesFormat:
    name = "ndjson"
    content_type = "application/x-ndjson"
    document_type = content_type

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return ()

    def encoder(self, asked: Asked = UNASKED) -> LinesEncoder:
        return LinesEncoder()

    def document(self, asked: Asked = UNASKED) -> None:
        return None


def _texts(message: Json, last: MessageStop) -> bytes:
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    return json_text.clean("".join(text for text in texts if isinstance(text, str))).encode()


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
