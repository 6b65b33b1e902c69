"""Reasoning that a model writes into its text between `<think>` and `</think>`.

The tags count at the beginning of the text only, once: further on they are the model's own words about them.
"""

from typing import Literal

Kind = Literal["text", "thinking"]
Passage = tuple[Kind, str]

OPENING = "<think>"
CLOSING = "</think>"
EMPTY = ("<think/>", "<think />")
# Blank text before a tag is waited through only so far; it is dropped or sent, never kept for ever.
BLANK_LIMIT = 4096


class ThinkTags:
    """Takes text, returns passages. `through`: no tag is looked for any more. `implicit`: the text begins inside, often without its tag."""

    def __init__(self, mode: Literal["none", "split", "implicit"]) -> None:
        self._implicit = mode == "implicit"
        self._state: Literal["before", "inside", "after"] = "after" if mode == "none" else "before"
        self._pending = ""

    @property
    def through(self) -> bool:
        return self._state == "after"

    def give_up(self) -> None:
        """The reasoning comes in a field of its own, so no tag at the text's beginning is one."""
        if self._state == "before" and not self._pending:
            self._state = "after"

    def feed(self, text: str) -> list[Passage]:
        text, self._pending = self._pending + text, ""
        match self._state:
            case "before":
                return self._before(text)
            case "inside":
                return self._inside(text)
            case "after":
                return _passage("text", text)

    def flush(self) -> list[Passage]:
        """What was held because it might have become a tag: something else comes now, or the end."""
        text, self._pending = self._pending, ""
        kind: Kind = "thinking" if self._state == "inside" else "text"
        if self._state == "before" and text.strip():
            self._state = "inside" if self._implicit else "after"
            kind = "thinking" if self._implicit else "text"
        return _passage(kind, text)

    def _before(self, text: str) -> list[Passage]:
        begun = text.lstrip()
        if begun.startswith(OPENING):
            self._state = "inside"
            return self._inside(begun.removeprefix(OPENING))
        for tag in EMPTY:
            if begun.startswith(tag):
                self._state = "after"
                return _passage("text", begun.removeprefix(tag))
        if len(text) < BLANK_LIMIT and any(tag.startswith(begun) for tag in (OPENING, *EMPTY)):
            self._pending = text
            return []
        if self._implicit:
            self._state = "inside"
            return self._inside(text)
        self._state = "after"
        return _passage("text", text)

    def _inside(self, text: str) -> list[Passage]:
        thought, closing, rest = text.partition(CLOSING)
        if closing:
            self._state = "after"
            return _passage("thinking", thought) + _passage("text", rest)
        held = next((size for size in range(len(CLOSING) - 1, 0, -1) if text.endswith(CLOSING[:size])), 0)
        cut = len(text) - held
        self._pending = text[cut:]
        return _passage("thinking", text[:cut])


def _passage(kind: Kind, text: str) -> list[Passage]:
    return [(kind, text)] if text else []
