"""A provider's body as frames: SSE, JSON lines or one JSON document, whatever its content type says.

https://html.spec.whatwg.org/multipage/server-sent-events.html, and what providers make of it.

Deliberate oddities:
* Blank bytes at the beginning are skipped, where servers put heartbeats, even before a field's name.
* A bare JSON object and an `error:` field inside an event are frames of their own: errors come like that.
* What the end left unfinished is a frame if it reads as whole.
"""

import re
from typing import Literal

import msgspec

from gateway import json_text
from gateway.sse import LIMIT, NAMED, Frame, Pieces, fields, past_bom, plain_frame

DONE = b"[DONE]"
# A line takes longer to look at than its bytes do: sixteen MiB of short ones would hold up everybody for a minute.
LINES_LIMIT = 20_000
JSON_BLANKS = b" \t\n\r"
SNIPPET_LIMIT = 512  # bytes of a body's beginning, for whoever has to say what it was

Kind = Literal["blank", "html", "json", "lines", "sse"]


class Run(msgspec.Struct, frozen=True, gc=False):
    """What one read brought, if it is nothing but plain events: `data` of each, cut in one go, so that it can be read in one go.

    Their names are left out, for they are none or of `sse.NAMED`, which say no more than the `type` in the data. `stretch`: all as it came.
    """

    stretch: bytes
    data: list[bytes]


# What stands between two plain events.
BETWEEN = re.compile(rb"\n\n(?:(?:%b)\n)?data: " % b"|".join(NAMED))


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
        self._pieces = Pieces(b"\n\n", limit)
        self._document = bytearray()
        self._first_line_known = False

    @property
    def empty(self) -> bool:
        return self.seen == 0

    def feed(self, chunk: bytes) -> list[Frame]:
        frames, run = self.take(chunk)
        return frames if run is None else frames + self.frames(run)

    def take(self, chunk: bytes) -> tuple[list[Frame], Run | None]:
        """The same, with a run at its end left as one."""
        self.seen += len(chunk)
        if self.kind == "blank":
            chunk = self._begin(chunk)
        if len(self.snippet) < SNIPPET_LIMIT:
            self.snippet += chunk[: SNIPPET_LIMIT - len(self.snippet)]
        if self.overflow:
            return [], None
        match self.kind:
            case "sse":
                return self._sse(chunk)
            case "lines":
                return self._lines(chunk), None
            case "json":
                return self._json(chunk), None
            case "blank" | "html":
                return [], None

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
            head = past_bom(self._head + chunk)
            if head is None:
                self._head += chunk
                return b""
            self._head, chunk = None, head
        body = chunk.lstrip()
        if body:
            self.kind = "html" if body.startswith(b"<") else "json" if body.startswith((b"{", b"[")) else "sse"
        return body

    def frames(self, run: Run) -> list[Frame]:
        """Those of a run that cannot be read in one go."""
        return self._frames(run.stretch.split(b"\n\n"))

    def _sse(self, chunk: bytes) -> tuple[list[Frame], Run | None]:
        waiting, whole = self._pieces.stretches(chunk)
        run = run_of(whole) if b"\n\n" in whole else None
        blocks = whole.split(b"\n\n") if whole and run is None else []
        if waiting is not None:
            blocks.insert(0, waiting)
        frames = self._frames(blocks) if blocks else []
        if self.overflow:
            return frames, None
        self.overflow = self._pieces.overflow
        return frames, run

    def _frames(self, blocks: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        for block in blocks:
            frame = plain_frame(block)
            if frame is not None:
                frames.append(frame)
                continue
            frames += self._block_frames(block)
            if self.overflow:
                break
        return frames

    def _block_frames(self, block: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if block.count(b"\n") >= LINES_LIMIT:
            self.overflow = True
            return frames
        event, data = "", bytearray()
        for name, value in fields(block):
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
            if is_whole(frame.data) or resynchronise(frame.data, broken=True):
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
                self.kind, self._pieces = "lines", Pieces(b"\n", self._limit)
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


def run_of(stretch: bytes) -> Run | None:
    """Complete events as a run, if they are one."""
    before, *data = BETWEEN.split(b"\n\n" + stretch)
    return None if before or b"\n" in b"".join(data) else Run(stretch, data)


def resynchronise(data: bytes, *, broken: bool = False) -> list[bytes]:
    """What can be saved of a value that is not JSON: the last frame glued into it, and a glued `[DONE]`.

    `broken`: it was read already and is none, so only a part of it is read again. Whole JSON is never cut, for it may be a model's own
    explanation of SSE. Nothing was dropped if `data` begins with the first piece.
    """
    body, done = data.strip(), []
    broken = broken and body == data.strip(JSON_BLANKS)
    if body.endswith(DONE):
        body, done = body.removesuffix(DONE).rstrip().removesuffix(b"data:").rstrip(), [DONE]
        broken = False
    if not body or (not broken and is_whole(body)):
        return [body, *done] if body else done
    cut = max(body.rfind(b"data: {"), body.rfind(b"data:{"))
    tail = body[body.index(b"{", cut) :] if cut >= 0 else b""
    return [tail, *done] if tail and is_whole(tail) else []


def is_whole(data: bytes) -> bool:
    try:
        json_text.read(data)
    except json_text.MalformedJson:
        return False
    return True


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json_text.read(data), dict)
    except json_text.MalformedJson:
        return False


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
