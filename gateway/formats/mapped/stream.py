"""Answers of a described provider in JSON, as events, lines or one document: bytes to steps.

Deliberate oddities:
* Where configuration names no place for errors, the usual shapes of one count; an SSE event named `error` always is one.
* Without a place for the finish, a clean end finishes the answer: there is no other sign. After a piece that cannot be read it does not.
* An error beside or after the finish is only a warning: the answer is there.
"""

from typing import Any

from gateway import json_text
from gateway.body import DONE, Body
from gateway.errors import UpstreamFailed
from gateway.events import OPEN_BLOCK, ContentBlockDelta, MessageDelta, MessageStop, TextDelta, ThinkingDelta
from gateway.formats import Provider, Step
from gateway.formats.mapped.description import Description
from gateway.formats.mapped.pointers import Pointer, find
from gateway.json_text import Json
from gateway.kept import LIMIT, Text, too_much, warn_once
from gateway.refusals import is_refusal, refused_in_band, tidy
from gateway.usage import Usage, token_count


class _Chunk:
    """Any JSON value: a pointer may point at the whole of it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class MappedDecoder:
    """One provider's answer. After a `MessageStop` or a failure every byte is ignored."""

    def __init__(self, provider: Provider, description: Description, text: Pointer, content_type: str = "") -> None:
        self.finishing = False
        self.dropped = 0
        self.warnings: list[str] = []
        self._provider = provider
        self._description = description
        self._at = {"text": text, "reasoning": description.reasoning}
        self._so_far = {"text": Text(), "reasoning": Text()}
        self._body = Body(provider.name, content_type=content_type, secrets=provider.secrets, read=self._read)
        self._torn = False  # the latest piece could not be read
        self._odd = 0  # what stood where text is expected and was none
        self._usage: Json = {}
        self._spoke = False  # the text was found, though it may have been empty
        self._content = False
        self._ending: Json | None = None
        self._ended = False

    def feed(self, chunk: bytes) -> list[Step]:
        steps: list[Step] = []
        if self._ended:
            return steps
        self._take(self._body.feed(chunk), steps)
        kept = sum(text.size for text in self._so_far.values())
        if failure := self._body.failure or (too_much() if kept > LIMIT else None):
            self._end(failure, steps)
        self.dropped = self._body.dropped + self._odd
        return steps

    def close(self, broken: UpstreamFailed | None = None) -> list[Step]:
        steps: list[Step] = []
        if self._ended:
            return steps
        dropped = self._body.dropped
        self._take(self._body.close(), steps)
        torn = self._torn or self._body.dropped > dropped
        if self._description.finish is None and self._spoke and not (broken or torn or self._body.failure):
            self.finishing = True
        self._end(broken or self._body.diagnosis(), steps)
        self.dropped = self._body.dropped + self._odd
        return steps

    def _read(self, data: bytes) -> _Chunk:
        self._torn = True
        value = json_text.read(data)
        self._torn = False
        return _Chunk(value)

    def _take(self, values: list[tuple[str, Any]], steps: list[Step]) -> None:
        for event, value in values:
            if self._ended:
                return
            if value is DONE:
                self._done(steps)
            else:
                self._chunk(event, value.value, steps)

    def _chunk(self, event: str, chunk: Any, steps: list[Step]) -> None:
        """What was said beside an error was said before it."""
        self._count(chunk, steps)
        if thought := self._said("reasoning", chunk):
            self._say(ContentBlockDelta(OPEN_BLOCK, ThinkingDelta(thought)), steps)
        if text := self._said("text", chunk):
            self._say(ContentBlockDelta(OPEN_BLOCK, TextDelta(text)), steps)
        if (refusal := self._refusal(event, chunk)) is not None:
            if self.finishing:
                warn_once(self.warnings, "an error after the finish")
            else:
                self._fail(refused_in_band(refusal, provider=self._provider.name, secrets=self._provider.secrets), steps)
            return
        finish = None if self._description.finish is None else find(self._description.finish, chunk)
        if finish:
            self._settle(finish, steps)

    def _said(self, kind: str, chunk: Any) -> str:
        """What is new of the text or of the reasoning."""
        pointer = self._at[kind]
        said = None if pointer is None else find(pointer, chunk)
        if not isinstance(said, str):
            self._odd += said is not None
            return ""
        self._spoke = self._spoke or kind == "text"
        return self._so_far[kind].news(said) if self._description.cumulative else said

    def _say(self, step: Step, steps: list[Step]) -> None:
        self._content, self.finishing = True, False
        steps.append(step)

    def _count(self, chunk: Any, steps: list[Step]) -> None:
        told = {name: token_count(find(pointer, chunk)) for name, pointer in self._description.usage.items()}
        news = {name: count for name, count in told.items() if count is not None and count != self._usage.get(name)}
        if news:
            self._usage |= news
            steps.append(Usage(news))

    def _refusal(self, event: str, chunk: Any) -> Any:
        """The chunk as the error that it is, else None."""
        if event == "error":
            return chunk
        if self._description.error is None:
            return chunk if is_refusal(chunk) else None
        error = find(self._description.error, chunk)
        return {"error": error} if error else None

    def _settle(self, finish: Any, steps: list[Step]) -> None:
        word = str(finish) if isinstance(finish, str | int | float) and not isinstance(finish, bool) else ""
        reason = self._description.stop_reason(word)
        raw = tidy(word, self._provider.secrets)[:100]
        if reason == "error":
            if self.finishing:
                warn_once(self.warnings, "an error after the finish")
                return
            sentence = f"Provider {self._provider.name} broke off its answer: it finished with {raw}."
            self._fail(UpstreamFailed("unavailable", sentence, provider=self._provider.name, provider_code=raw), steps)
            return
        unknown = {"raw_stop_reason": raw} if word and reason is None else {}
        self._ending = {"stop_reason": reason or "end_turn", "stop_sequence": None, **unknown}
        self.finishing = True

    def _done(self, steps: list[Step]) -> None:
        if self._ending is None and self._content:
            if self._description.finish is not None:
                warn_once(self.warnings, "[DONE] without a finish")
            self.finishing = True
        self.finishing = self.finishing or self._ending is not None
        sentence = f"Provider {self._provider.name} ended the stream before the answer was finished."
        self._end(UpstreamFailed("interrupted", sentence, provider=self._provider.name), steps)

    def _end(self, failure: UpstreamFailed, steps: list[Step]) -> None:
        if self._ended:
            return
        if not self.finishing:
            self._fail(failure, steps)
            return
        if not self._content:
            why = "" if self._spoke else ": no chunk has a text where `text` points"
            warn_once(self.warnings, f"the answer is empty{why}")
        self._ended = True
        steps.append(MessageDelta(self._ending or {"stop_reason": "end_turn", "stop_sequence": None}, {}))
        steps.append(MessageStop())

    def _fail(self, failure: UpstreamFailed, steps: list[Step]) -> None:
        self._ended = True
        steps.append(failure)
