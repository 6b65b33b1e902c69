"""Bytes → SSE frames, as the standard says: incremental, bounded, without I/O.

https://html.spec.whatwg.org/multipage/server-sent-events.html

Deliberate oddities:
* `EventStream` is the standard and nothing else; what providers really send is read by `framing.py`, made of the same parts.
* CR and CRLF become LF on arrival, so everything behind sees LF only and a lone CR never waits for the next read.
* A block is parsed when it is complete: an `id` or `retry` in an unfinished one is not applied.
* U+2028, U+0085, VT and FF are data: nothing here may use `splitlines`.
"""

from collections.abc import Iterator
from io import BytesIO

import msgspec

BOM = b"\xef\xbb\xbf"
# A tool's result or an image in one event comes to some MiB; beyond this an upstream is broken or hostile.
LIMIT = 16 * 1024 * 1024  # bytes


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event; `event` is "" where none was named, which means "message"."""

    event: str
    data: bytes


class EventStream:
    """The standard's parser. `overflow`: an event grew beyond `limit`; what came before it was returned, the rest is ignored."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self._head: bytes | None = b""
        self._blocks = Pieces(b"\n\n", limit)

    @property
    def overflow(self) -> bool:
        return self._blocks.overflow

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._head is not None:
            head = past_bom(self._head + chunk)
            if head is None:
                self._head += chunk
                return []
            self._head, chunk = None, head
        frames: list[Frame] = []
        for block in self._blocks.feed(chunk):
            frame = plain_frame(block) or self._frame(block)
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
        for name, value in fields(block):
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


class Pieces:
    """Cuts a stream at a separator made of LFs. Each byte is looked at once, and never more than `limit` and a chunk are kept."""

    def __init__(self, separator: bytes, limit: int) -> None:
        self.overflow = False
        self._separator = separator
        self._limit = limit
        self._after_cr = False
        # Holds no separator and begins with no LF, so that its length does not depend on where the reads were cut.
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        waiting, whole = self.stretches(chunk)
        pieces = whole.split(self._separator) if whole else []
        return pieces if waiting is None else [waiting, *pieces]

    def stretches(self, chunk: bytes) -> tuple[bytes | None, bytes]:
        """The piece that had waited for its end, and all that follows in this chunk, not cut yet; without its last separator."""
        if self.overflow:
            return None, b""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf(chunk)
        separator, rest = self._separator, self._rest
        if not rest:
            return None, self._whole(chunk)
        start = len(rest) - len(separator) + 1
        rest += chunk
        end = rest.find(separator, start)
        if end < 0:
            self._check_rest()
            return None, b""
        if end > self._limit:
            self._give_up()
            return None, b""
        with memoryview(rest) as view:  # a slice of a bytearray would be copied twice: 5 ms for the largest event
            piece, chunk = bytes(view[:end]), bytes(view[end + len(separator) :])
        rest.clear()
        return piece, self._whole(chunk)

    def _whole(self, chunk: bytes) -> bytes:
        """With nothing waiting."""
        if chunk.startswith(b"\n"):
            chunk = chunk.lstrip(b"\n")
        end = chunk.rfind(self._separator)
        if end < 0:
            self._rest += chunk
            self._check_rest()
            return b""
        if (after := end + len(self._separator)) < len(chunk):
            self._rest += chunk[after:]
            self._check_rest()
        whole = chunk[:end]
        if end > self._limit:
            pieces = whole.split(self._separator)
            for number, piece in enumerate(pieces):
                if len(piece.strip(b"\n")) > self._limit:
                    self._give_up()
                    return self._separator.join(pieces[:number])
        return whole

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


def past_bom(head: bytes) -> bytes | None:
    """The stream's beginning without its BOM; None while it may still become one."""
    if len(head) < len(BOM) and BOM.startswith(head):
        return None
    return head.removeprefix(BOM)


# Claude's events by their first line: looked up, it need not be looked at.
NAMED = {
    b"event: " + name.encode(): name
    for name in (
        *("content_block_delta", "content_block_start", "content_block_stop", "message_start", "message_delta", "message_stop"),
        *("ping", "message"),
    )
}


def plain_frame(block: bytes) -> Frame | None:
    """The two shapes that nearly every block has, in half the time; None for any other."""
    if block.startswith(b"data: {"):
        return Frame("", block[6:]) if b"\n" not in block else None
    name, _, data = block.partition(b"\ndata: ")
    if data.startswith(b"{") and b"\n" not in data and (event := NAMED.get(name)):
        return Frame(event, data)
    return None


def alike(beginning: bytes, lines: list[bytes]) -> bytes:
    """Events that all begin so, with a line of data each, as they are sent."""
    return b"%b%b\n\n" % (beginning, (b"\n\n" + beginning).join(lines))


def fields(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A block's fields; a comment's name is empty. A line that begins with `{` comes whole under that name, which no field has."""
    for line in BytesIO(block):  # cuts at LF only, and makes one line at a time: a split could take twenty times the block
        line = line.removesuffix(b"\n")
        if line.startswith(b"{"):
            yield b"{", line
            continue
        name, _, value = line.partition(b":")
        yield name, value.removeprefix(b" ")
