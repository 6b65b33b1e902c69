"""Bytes ↔ SSE frames: incremental, bounded, without I/O.

https://html.spec.whatwg.org/multipage/server-sent-events.html

Deliberate oddities:
* `EventStream` is the standard; `Framing` is what decoders use: it also takes the JSON, HTML and half-SSE that providers send under any
  content type. It skips blank bytes at the beginning, where servers put heartbeats, even before a field's name.
* CR and CRLF become LF on arrival, so everything behind sees LF only and a lone CR never waits for the next read.
* A block is parsed when it is complete: an `id` or `retry` in an unfinished one is not applied.
* U+2028, U+0085, VT and FF are data: nothing here may use `splitlines`.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Literal

import msgspec

from gateway import json_text

BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"
# A tool's result or an image in one event comes to some MiB; beyond this an upstream is broken or hostile.
LIMIT = 16 * 1024 * 1024
# A line takes longer to look at than its bytes do: sixteen MiB of short ones would hold up everybody for a minute.
LINES_LIMIT = 20_000
SNIPPET_LIMIT = 512


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; `event` is "" where none was named, which means "message"."""

    event: str
    data: bytes


def encode_frame(event: bytes, data: bytes) -> bytes:
    """Both must be one line, as compact JSON is."""
    return b"event: %b\ndata: %b\n\n" % (event, data) if event else b"data: %b\n\n" % data


def is_whole(data: bytes) -> bool:
    try:
        json_text.read(data)
    except json_text.MalformedJson:
        return False
    return True


def resynchronise(data: bytes) -> list[bytes]:
    """What can be saved of a value that is not JSON: the last frame glued into it, and a glued `[DONE]`.

    Whole JSON is never cut, for it may be a model's own explanation of SSE. Nothing was dropped if `data` begins with the first piece.
    """
    body, done = data.strip(), []
    if body.endswith(DONE):
        body, done = body.removesuffix(DONE).rstrip().removesuffix(b"data:").rstrip(), [DONE]
    if not body or is_whole(body):
        return [body, *done] if body else done
    cut = max(body.rfind(b"data: {"), body.rfind(b"data:{"))
    tail = body[body.index(b"{", cut) :] if cut >= 0 else b""
    return [tail, *done] if tail and is_whole(tail) else []


class EventStream:
    """The standard's parser. `overflow`: an event grew beyond `limit`; what came before it was returned, the rest is ignored."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self._head: bytes | None = b""
        self._blocks = _Pieces(b"\n\n", limit)

    @property
    def overflow(self) -> bool:
        return self._blocks.overflow

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._head is not None:
            head = _past_bom(self._head + chunk)
            if head is None:
                self._head += chunk
                return []
            self._head, chunk = None, head
        frames: list[Frame] = []
        for block in self._blocks.feed(chunk):
            frame = _plain_frame(block) or self._frame(block)
            if frame is not None:
                frames.append(frame)
        return frames

    def close(self) -> list[Frame]:
        """The frame that the end left without its blank line, if it has data. The standard drops it: so may the caller."""
        event_id, retry = self.last_event_id, self.retry
        frame = self._frame(self._blocks.close())
        self.last_event_id, self.retry = event_id, retry
        return [] if frame is None else [frame]

    def _frame(self, block: bytes) -> Frame | None:
        event, data = "", bytearray()
        for name, value in _fields(block):
            match name:
                case b"data":
                    data += value
                    data += b"\n"
                case b"event":
                    event = value.decode("utf-8", "replace")
                case b"id" if b"\0" not in value:
                    self.last_event_id = value.decode("utf-8", "replace")
                case b"retry" if value.isdigit() and len(value) < 19:  # beyond any time; int() refuses 4301 digits
                    self.retry = int(value)
                case _:
                    pass
        return Frame(event, bytes(data[:-1])) if data else None


Kind = Literal["blank", "html", "json", "lines", "sse"]


class Framing:
    """A provider's body as frames, whatever its content type says: the first byte that is not blank decides.

    `kind`: "blank" until then; "json" is one document, returned by `close`; "lines" is a JSON value a line. Frames are raw: whether the
    data is JSON, its reader finds out, and may call `resynchronise`. `dropped` counts the malformed pieces that became no frame.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.kind: Kind = "blank"
        self.overflow = False
        self.dropped = 0
        self.seen = 0
        self.snippet = b""
        self._limit = limit
        self._head: bytes | None = b""
        self._pieces = _Pieces(b"\n\n", limit)
        self._document = bytearray()
        self._first_line_known = False

    @property
    def empty(self) -> bool:
        return self.seen == 0

    def feed(self, chunk: bytes) -> list[Frame]:
        self.seen += len(chunk)
        if self.kind == "blank":
            chunk = self._begin(chunk)
        if len(self.snippet) < SNIPPET_LIMIT:
            self.snippet += chunk[: SNIPPET_LIMIT - len(self.snippet)]
        if self.overflow:
            return []
        match self.kind:
            case "sse":
                return self._sse(chunk)
            case "lines":
                return self._lines(chunk)
            case "json":
                return self._json(chunk)
            case "blank" | "html":
                return []

    def close(self) -> list[Frame]:
        match self.kind:
            case "sse":
                return self._unfinished(self._pieces.close())
            case "lines":
                return _line_frames(self._pieces.close())
            case "json":
                document = bytes(self._document).strip()
                self._document.clear()
                return [Frame("", document)] if document else []
            case "blank" | "html":
                return []

    def _begin(self, chunk: bytes) -> bytes:
        if self._head is not None:
            head = _past_bom(self._head + chunk)
            if head is None:
                self._head += chunk
                return b""
            self._head, chunk = None, head
        body = chunk.lstrip()
        if body:
            self.kind = "html" if body.startswith(b"<") else "json" if body.startswith((b"{", b"[")) else "sse"
        return body

    def _sse(self, chunk: bytes) -> list[Frame]:
        frames: list[Frame] = []
        for block in self._pieces.feed(chunk):
            frame = _plain_frame(block)
            if frame is None:
                frames += self._block_frames(block)
            else:
                frames.append(frame)
            if self.overflow:
                return frames
        self.overflow = self._pieces.overflow
        return frames

    def _block_frames(self, block: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if block.count(b"\n") >= LINES_LIMIT:
            self.overflow = True
            return frames
        event, data = "", bytearray()
        for name, value in _fields(block):
            match name:
                case b"data":
                    data += value
                    data += b"\n"
                case b"event":
                    event = value.decode("utf-8", "replace")
                case b"{" | b"error":
                    # A frame of its own; what stood before it in the block was said before it.
                    frames += _frame_with(event, data[:-1])
                    data.clear()
                    if name == b"error":
                        frames += _frame_with("error", value)
                    elif is_whole(value):
                        frames.append(Frame(event, value))
                    else:
                        self.dropped += 1
                case _:
                    pass
        frames += _frame_with(event, data[:-1])
        return frames

    def _unfinished(self, block: bytes) -> list[Frame]:
        """Some providers leave out the last blank line, others were cut off: only what reads as whole is believed."""
        frames = []
        for frame in self._block_frames(block):
            if is_whole(frame.data) or resynchronise(frame.data):
                frames.append(frame)
            else:
                self.dropped += 1
        return frames

    def _json(self, chunk: bytes) -> list[Frame]:
        document = self._document
        start = len(document)
        document += chunk
        if not self._first_line_known:
            end = document.find(b"\n", start)
            self._first_line_known = end >= 0
            if 0 <= end <= self._limit and _is_object(bytes(document[:end])):
                self.kind, self._pieces = "lines", _Pieces(b"\n", self._limit)
                lines = bytes(document)
                document.clear()
                return self._lines(lines)
        if len(document) > self._limit:
            self.overflow = True
            document.clear()
        return []

    def _lines(self, chunk: bytes) -> list[Frame]:
        frames = [frame for line in self._pieces.feed(chunk) for frame in _line_frames(line)]
        self.overflow = self._pieces.overflow
        return frames


class _Pieces:
    """Cuts a stream at a separator made of LFs. Each byte is looked at once, and never more than `limit` and a chunk are kept."""

    def __init__(self, separator: bytes, limit: int) -> None:
        self.overflow = False
        self._separator = separator
        self._limit = limit
        self._after_cr = False
        # Holds no separator and begins with no LF, so that its length does not depend on where the reads were cut.
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        if self.overflow:
            return []
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf(chunk)
        separator, rest = self._separator, self._rest
        if rest:
            start = len(rest) - len(separator) + 1
            rest += chunk
            end = rest.rfind(separator, start)
            if end < 0:
                self._check_rest()
                return []
            complete = bytes(rest[:end])
            del rest[: end + len(separator)]
        else:
            chunk = chunk.lstrip(b"\n")
            end = chunk.rfind(separator)
            if end < 0:
                rest += chunk
                self._check_rest()
                return []
            complete = chunk[:end]
            rest += chunk[end + len(separator) :]
        pieces = complete.split(separator)
        if len(complete) > self._limit:
            for number, piece in enumerate(pieces):
                if len(piece.strip(b"\n")) > self._limit:
                    self._give_up()
                    return pieces[:number]
        self._check_rest()
        return pieces

    def close(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def _with_lf(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        begins_inside_crlf = self._after_cr and chunk.startswith(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        return chunk[begins_inside_crlf:].replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_rest(self) -> None:
        if len(self._rest) > self._limit and len(self._rest) - self._rest.endswith(b"\n") > self._limit:
            self._give_up()

    def _give_up(self) -> None:
        self.overflow = True
        self._rest.clear()


def _past_bom(head: bytes) -> bytes | None:
    """The stream's beginning without its BOM; None while it may still become one."""
    if len(head) < len(BOM) and BOM.startswith(head):
        return None
    return head.removeprefix(BOM)


def _plain_frame(block: bytes) -> Frame | None:
    """The two shapes that nearly every block has, in a third of the time; None for any other."""
    if block.startswith(b"data: {"):
        if block.find(b"\n", 7) < 0:
            return Frame("", block[6:])
    elif block.startswith(b"event: "):
        end = block.find(b"\n", 7)
        if block.startswith(b"data: {", end + 1) and block.find(b"\n", end + 8) < 0:
            return Frame(block[7:end].decode("utf-8", "replace"), block[end + 7 :])
    return None


def _fields(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A block's fields; a comment's name is empty. A line that begins with `{` comes whole under that name, which no field has."""
    for line in BytesIO(block):  # cuts at LF only, and makes one line at a time: a split could take twenty times the block
        line = line.removesuffix(b"\n")
        if line.startswith(b"{"):
            yield b"{", line
            continue
        name, _, value = line.partition(b":")
        yield name, value.removeprefix(b" ")


def _frame_with(event: str, data: bytes | bytearray) -> list[Frame]:
    """Blank data is a heartbeat."""
    return [Frame(event, bytes(data))] if data and not data.isspace() else []


def _line_frames(line: bytes) -> list[Frame]:
    """A JSON line, with or without the field name that some servers begin to write after the first ones."""
    line = line.strip()
    if line.startswith(b"data:"):
        return _frame_with("", line.removeprefix(b"data:").lstrip())
    if line.startswith(b"error:"):
        return _frame_with("error", line.removeprefix(b"error:").lstrip())
    if line.startswith((b":", b"event:", b"id:", b"retry:")):
        return []
    return _frame_with("", line)


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json_text.read(data), dict)
    except json_text.MalformedJson:
        return False
