"""Answers that are nothing but text: bytes to steps. The clean end of the body is the answer's end; there is no other sign.

The content type is not believed: simple servers call their text HTML. A body that begins as a page does is one.
"""

import codecs

from gateway.errors import UpstreamFailed
from gateway.events import OPEN_BLOCK, ContentBlockDelta, MessageDelta, MessageStop, TextDelta
from gateway.formats import Provider, Step

PAGES = ("<!doctype html", "<html")
LONGEST_HEAD = 1024  # characters, nearly all of them blank, that are kept until it is clear whether they begin a page


class PlainDecoder:
    """One provider's answer. After a `MessageStop` or a failure every byte is ignored."""

    def __init__(self, provider: Provider) -> None:
        self.finishing = False
        self.dropped = 0
        self.warnings: list[str] = []
        self._provider = provider
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._head: str | None = ""  # what may still become the beginning of a page
        self._page = False
        self._content = False
        self._ended = False

    def feed(self, chunk: bytes) -> list[Step]:
        return [] if self._ended else self._said(self._decode(chunk))

    def close(self, broken: UpstreamFailed | None = None) -> list[Step]:
        if self._ended:
            return []
        steps = self._said(self._decode(b"", True))
        if self._head and not self._page:
            head, self._head = self._head, None
            steps += self._said(head)
        self._ended = True
        if broken is None and self._content:
            return [*steps, MessageDelta({"stop_reason": "end_turn", "stop_sequence": None}, {}), MessageStop()]
        return [*steps, broken or self._diagnosis()]

    def _said(self, text: str) -> list[Step]:
        if self._head is not None:
            text = self._head + text
            begun = text.lstrip().lower()
            self._page = self._page or begun.startswith(PAGES)
            if self._page or (len(text) <= LONGEST_HEAD and any(page.startswith(begun) for page in PAGES)):
                self._head = "" if self._page else text
                return []
            self._head = None
        if not text:
            return []
        self._content = True
        return [ContentBlockDelta(OPEN_BLOCK, TextDelta(text))]

    def _diagnosis(self) -> UpstreamFailed:
        what = "an HTML page instead of its answer" if self._page else "an empty body"
        return UpstreamFailed("unavailable", f"Provider {self._provider.name} answered 200 with {what}.", provider=self._provider.name)
