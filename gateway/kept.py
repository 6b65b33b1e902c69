"""What is kept of one answer: how much it may be, what it takes, texts that grow by pieces, warnings said once.

Characters alone are no measure: a list of two-character pieces takes thirty times their memory, and so do small JSON values.
"""

from typing import Any

from gateway import json_text
from gateway.errors import UpstreamFailed

LIMIT = 64 * 1024 * 1024  # bytes, by the measures below, that a decoder, the Sequencer or the Assembler may keep of one answer
# Bytes that one more thing takes beside its text: an object's header and its place in a list or dict.
EACH = 64
PIECES = 256  # of a growing text that are not joined yet


class Text:
    """A text that grows by pieces, joined a few hundred at a time: it takes its characters, and next to nothing for each piece.

    `io.StringIO` would do, but up to Python 3.11 it is itself a list of up to a hundred thousand pieces.
    """

    __slots__ = ("_joined", "_recent", "size")

    def __init__(self) -> None:
        self.size = 0  # characters
        self._joined: list[str] = []
        self._recent: list[str] = []

    def add(self, piece: str) -> None:
        if piece:
            self.size += len(piece)
            self._recent.append(piece)
            if len(self._recent) >= PIECES:
                self._joined.append("".join(self._recent))
                self._recent.clear()

    def news(self, text: str) -> str:
        """What is new in a text that may repeat all of this one; it is added."""
        if len(text) >= self.size and text.startswith(str(self)):
            text = text[self.size :]
        self.add(text)
        return text

    def __str__(self) -> str:
        return "".join([*self._joined, *self._recent])


def cost(value: Any) -> int:
    """About the bytes of memory that a text, or any JSON, takes."""
    if isinstance(value, str):
        return len(value) + EACH
    written = json_text.write(value)
    return len(written) + EACH * json_text.values(written)


def too_much() -> UpstreamFailed:
    return UpstreamFailed("event_too_large", "The provider's answer is larger than 64 MiB.")


def warn_once(warnings: list[str], warning: str) -> None:
    """A long history or answer would say the same thing many times. There are few different ones."""
    if warning not in warnings:
        warnings.append(warning)
