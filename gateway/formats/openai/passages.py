"""What a model says, as passages of text and of thinking: without repetitions, tags and blank beginnings.

The blocks are the gateway's own here, so one is worth opening only for something visible.
"""

from typing import Literal

from gateway.formats.openai.think_tags import Kind, Passage, ThinkTags
from gateway.kept import Text

# Nobody's answer begins with more blanks; beyond this they are sent like anything else.
BLANK_LIMIT = 64 * 1024


class Passages:
    """`kind`: of the passage that is being continued; "" at the beginning and after something that is neither."""

    def __init__(self, *, cumulative: bool, think_tags: Literal["none", "split", "implicit"]) -> None:
        self.kind: Kind | Literal[""] = ""
        self._tags = ThinkTags(think_tags)
        self._cumulative = cumulative
        self._so_far: dict[Kind, Text] = {"text": Text(), "thinking": Text()}
        self._blank = Text()
        self._blank_kind: Kind = "text"

    @property
    def plain(self) -> bool:
        """More of the same kind may pass as it is."""
        return not self._cumulative and self._tags.through

    @property
    def size(self) -> int:
        """Characters that are kept."""
        return self._so_far["text"].size + self._so_far["thinking"].size

    def text(self, text: str) -> list[Passage]:
        if self._cumulative:
            text = self._so_far["text"].news(text)
        return self._visible(self._tags.feed(text)) if text else []

    def thinking(self, text: str) -> list[Passage]:
        if self._cumulative:
            text = self._so_far["thinking"].news(text)
        if not text:
            return []
        self._tags.give_up()
        return self._visible([("thinking", text)])

    def pause(self) -> list[Passage]:
        """Something else follows: what looked like the beginning of a tag is none."""
        return self._visible(self._tags.flush())

    def break_off(self) -> None:
        """Something else began: blanks before it are dropped, and what follows is another passage."""
        self.kind = ""
        self._blank = Text()

    def blank(self) -> list[Passage]:
        """The blanks that are all there is of an answer."""
        text, self._blank = str(self._blank), Text()
        return [(self._blank_kind, text)] if text else []

    def _visible(self, passages: list[Passage]) -> list[Passage]:
        seen: list[Passage] = []
        for kind, text in passages:
            if kind != self.kind:
                if kind != self._blank_kind:
                    self._blank, self._blank_kind = Text(), kind
                if text.isspace() and self._blank.size < BLANK_LIMIT:
                    self._blank.add(text)
                    continue
                text = str(self._blank) + text
                self.break_off()
                self.kind = kind
            seen.append((kind, text))
        return seen
