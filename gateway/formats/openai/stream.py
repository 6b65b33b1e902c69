"""Chat Completions' answers: bytes to steps.

https://platform.openai.com/docs/api-reference/chat/streaming

Deliberate oddities:
* Nothing in a chunk is trusted to be of the type that the documents say: what makes no sense is dropped and counted.
* A finish reason ends nothing. It is held until `[DONE]`, the end or `close`, for a second call or the usage may follow it; content
  in a later chunk takes `finishing` back.
* An error beside or after a finish reason is only a warning: the answer is there.
"""

from typing import Any

from gateway.body import DONE, Body
from gateway.errors import UpstreamFailed
from gateway.events import (
    OPEN_BLOCK,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    MessageDelta,
    MessageStart,
    MessageStop,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from gateway.formats import Provider, Step
from gateway.formats.openai import chunks, terms
from gateway.formats.openai.chunks import Chunk, Reading
from gateway.formats.openai.citations import Citations
from gateway.formats.openai.passages import Passages
from gateway.formats.openai.think_tags import Kind, Passage
from gateway.formats.openai.tool_calls import Block, Fragment, ToolCalls
from gateway.json_text import Json
from gateway.kept import LIMIT, cost, too_much, warn_once
from gateway.refusals import is_refusal, refused_in_band, tidy
from gateway.usage import Usage

USAGE_LIMIT = 256 * 1024  # bytes of merged usage, as `kept.cost` counts them; twice that for a moment


class OpenAIDecoder:
    """One provider's answer. After a `MessageStop` or a failure every byte is ignored."""

    def __init__(self, provider: Provider, content_type: str = "") -> None:
        self.finishing = False
        self.dropped = 0
        self.warnings: list[str] = []
        self._provider = provider
        self._body = Body(provider.name, content_type=content_type, secrets=provider.secrets, read=chunks.read, read_run=chunks.read_run)
        self._reading = Reading()
        self._passages = Passages(cumulative=provider.quirks.cumulative, think_tags=provider.quirks.think_tags)
        self._calls = ToolCalls()
        self._citations = Citations()
        self._uncited: list[Json] = []  # citations that wait for the text they belong to
        self._uncited_size = 0
        self._usage: Json = {}
        self._usage_said: Json = {}
        self._usage_size = 0  # what it takes at most
        self._excess: UpstreamFailed | None = None
        self._id = ""
        self._model = ""
        self._started = False
        self._content = False
        self._by_delta = False  # the answer comes in `delta`, so what stands in other places repeats it
        self._whole = False
        self._refused = False
        self._finish_reason = ""
        self._stop_sequence: str | None = None
        self._ended = False
        # The kind of which a chunk's text may pass as it is: such a block is open, and nothing is held or looked for.
        self._straight: Kind | None = None
        self._writing = False  # so it is with the arguments of the call that is open

    def feed(self, chunk: bytes) -> list[Step]:
        steps: list[Step] = []
        if self._ended:
            return steps
        self._take(self._body.feed(chunk), steps)
        if failure := self._body.failure or self._excess or (too_much() if self._kept() > LIMIT else None):
            self._end(failure, steps)
        self._count()
        return steps

    def close(self, broken: UpstreamFailed | None = None) -> list[Step]:
        steps: list[Step] = []
        if self._ended:
            return steps
        self._take(self._body.close(), steps)
        self._end(broken or self._body.diagnosis(), steps)
        self._count()
        return steps

    def _take(self, values: list[tuple[str, Any]], steps: list[Step]) -> None:
        for event, value in values:
            if type(value) is Chunk and event != "error":
                delta = value.choices[0].delta
                text, thought = delta.content, delta.reasoning_content or delta.reasoning
                if value.usage is not None:
                    self._note_usage(value.usage, steps)  # first, so that message_start can say it
                    self._meet(value.id, value.model, steps)
                # The hot path.
                if text and self._straight == "text" and not thought and not delta.tool_calls:
                    self.finishing = False
                    steps.append(ContentBlockDelta(OPEN_BLOCK, TextDelta(text)))
                    continue
                if thought and self._straight == "thinking" and not text and not delta.tool_calls:
                    self.finishing = False
                    steps.append(ContentBlockDelta(OPEN_BLOCK, ThinkingDelta(thought)))
                    continue
                if self._writing and delta.tool_calls and not text and not thought and not value.choices[0].text:
                    piece, *others = delta.tool_calls
                    if not others and (step := self._calls.continued(piece.index, piece.function.arguments)) is not None:
                        self.finishing = False
                        steps.append(step)
                        continue
                self._plain_chunk(value, steps)
            elif value is DONE:
                self._done(steps)
            elif isinstance(value, dict):
                self._chunk(event, value, steps)
            else:
                self._refuse({} if isinstance(value, Chunk) else value, steps)
            if self._ended:
                return
            self._straighten()

    def _plain_chunk(self, chunk: Chunk, steps: list[Step]) -> None:
        self._meet(chunk.id, chunk.model, steps)
        choice = chunk.choices[0]
        delta = choice.delta
        text = delta.content
        if text:
            self._by_delta = True
        elif text is None and not self._by_delta:
            text = choice.text
        if self._say(delta.reasoning_content or delta.reasoning or "", [("text", text)] if text else [], steps):
            self.finishing = False
        self._cite([], steps)
        for piece in delta.tool_calls or ():
            if self._call(Fragment(piece.index, "", "", piece.function.arguments), steps):
                self.finishing = False

    def _kept(self) -> int:
        words = len(self._id) + len(self._model) + len(self._finish_reason) + len(self._stop_sequence or "")
        return words + self._calls.size + self._passages.size + self._citations.size + self._uncited_size

    def _straighten(self) -> None:
        passages = self._passages
        free = passages.plain and passages.kind and self._calls.idle and not self._uncited
        self._straight = passages.kind or None if free else None
        self._writing = passages.plain and not self._calls.idle and not self._uncited

    def _count(self) -> None:
        self.dropped = self._body.dropped + self._reading.odd + self._calls.dropped + self._citations.dropped

    def _chunk(self, event: str, chunk: Json, steps: list[Step]) -> None:
        """Any JSON object. What was said beside an error was said before it."""
        refused = event == "error" or _is_refusal(chunk)
        groq = chunk.get("x_groq")
        self._note_usage(chunk.get("usage"), steps)
        self._note_usage(groq.get("usage") if isinstance(groq, dict) else None, steps)
        if not refused:
            self._meet(chunk.get("id"), chunk.get("model"), steps)
        choices = list(self._reading.first_choices(chunk))
        for choice in choices:
            self._note_usage(choice.get("usage"), steps)
            if self._choice(chunk, choice, steps):
                self.finishing = False
        self._cite(self._citations.news(chunk, {}), steps)
        if refused:
            self._refuse(chunk, steps)
            return
        for choice in choices:
            if not self._ended and (reason := chunks.finish_reason(choice)):
                self._settle(reason, choice, steps)
        if self._whole and not self._ended:
            # One message instead of a stream is all there, whether or not it says so.
            self.finishing = True
            warn_once(self.warnings, "the answer came as one message")

    def _choice(self, chunk: Json, choice: Json, steps: list[Step]) -> bool:
        """Whether content came that was not dropped."""
        delta, whole = choice.get("delta"), False
        if not isinstance(delta, dict):
            message = choice.get("message")
            whole = isinstance(message, dict) and not self._by_delta and chunk.get("object") != "chat.completion.chunk"
            self._reading.odd += delta is not None
            delta = message if isinstance(message, dict) and not self._by_delta else {}
        content = delta.get("content")
        if content is None and not self._by_delta:
            content = choice.get("text")
        elif content:
            self._by_delta = True
        thought = chunks.reasoning(delta)
        passages = [passage for passage in self._reading.passages(content) if passage[0] == "text" or not thought]
        came = self._say(thought, [], steps)
        for kind, seal in chunks.seals(delta):
            self._seal(kind, seal, steps)
            came = True
        came = self._say("", passages, steps) or came
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self._refused = True
            came = self._say("", [("text", delta["refusal"])], steps) or came
        self._cite(self._citations.news({}, delta), steps)
        for fragment in self._reading.call_fragments(delta, whole=whole):
            came = self._call(fragment, steps) or came
        if delta.get("images") or delta.get("audio"):
            self._reading.odd += 1
            warn_once(self.warnings, "images and audio are not passed on")
        self._by_delta = self._by_delta or whole
        self._whole = self._whole or whole
        return came

    def _say(self, thought: str, passages: list[Passage], steps: list[Step]) -> bool:
        came = self._speak(self._passages.thinking(thought), steps) if thought else False
        for kind, text in passages:
            came = self._speak(self._passages.thinking(text) if kind == "thinking" else self._passages.text(text), steps) or came
        return came

    def _speak(self, passages: list[Passage], steps: list[Step]) -> bool:
        for kind, text in passages:
            delta = TextDelta(text) if kind == "text" else ThinkingDelta(text)
            self._put(kind, ContentBlockDelta(OPEN_BLOCK, delta), len(text), steps)
        return bool(passages)

    def _seal(self, kind: str, seal: str, steps: list[Step]) -> None:
        if kind == "signature":
            if self._passages.kind != "thinking":
                self._passages.break_off()
            self._put("thinking", ContentBlockDelta(OPEN_BLOCK, SignatureDelta(seal)), len(seal), steps)
        else:
            self._passages.break_off()
            self._put("thinking", ContentBlockStart(0, {"type": "redacted_thinking", "data": seal}), len(seal), steps)

    def _call(self, fragment: Fragment, steps: list[Step]) -> bool:
        if not self._passages.plain:
            self._speak(self._passages.pause(), steps)
        begun = self._calls.begun
        blocks = self._calls.fragment(fragment)
        if self._calls.begun > begun:
            self._passages.break_off()
        if blocks is None:
            return False
        self._content = True
        self._send(blocks, steps)
        return True

    def _cite(self, citations: list[Json], steps: list[Step]) -> None:
        """A citation belongs to a text: one that comes before any waits for it."""
        self._uncited += citations
        self._uncited_size += sum(map(cost, citations))
        if self._uncited and self._passages.kind == "text":
            for citation in self._uncited:
                self._put("text", ContentBlockDelta(OPEN_BLOCK, CitationsDelta(citation)), cost(citation), steps)
            self._uncited, self._uncited_size = [], 0

    def _put(self, kind: Kind, block: Block, size: int, steps: list[Step]) -> None:
        self._content = True
        self._send(self._calls.admit(kind, block, size), steps)

    def _send(self, blocks: list[Block], steps: list[Step]) -> None:
        if blocks:
            self._start(steps)
            steps += blocks

    def _meet(self, message_id: Any, model: Any, steps: list[Step]) -> None:
        """The first id and model that are any; Azure's first chunk has neither, and groq's compound changes its id all the time."""
        if self._started:
            return
        if isinstance(message_id, str):
            self._id = self._id or message_id
        if isinstance(model, str):
            self._model = self._model or model
        if self._id and self._model:
            self._start(steps)

    def _start(self, steps: list[Step]) -> None:
        if self._started:
            return
        self._started = True
        message: Json = {"id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": []}
        steps.append(MessageStart({**message, "stop_reason": None, "stop_sequence": None, "usage": {}}))

    def _note_usage(self, said: Any, steps: list[Step]) -> None:
        if not isinstance(said, dict):
            self._reading.odd += said is not None
        elif said != self._usage_said:  # some repeat it in every chunk
            self._usage_said = said
            terms.merge_usage(self._usage, said)
            self._usage_size += cost(said)
            if self._usage_size > 2 * USAGE_LIMIT and self._excess is None:  # told again and again, or really that much
                self._usage_size = cost(self._usage)
                if self._usage_size > USAGE_LIMIT:
                    self._excess = UpstreamFailed("event_too_large", "The provider's usage is larger than 256 KiB.")
            if tokens := terms.tokens(self._usage, self._provider.quirks):
                steps.append(Usage(tokens))

    def _settle(self, reason: str, choice: Json, steps: list[Step]) -> None:
        """A finish reason. A repeated one may be a poorer word for the same ending."""
        if terms.is_failure(reason):
            if self.finishing:
                warn_once(self.warnings, "an error after the finish reason")
                return
            word = tidy(reason, self._provider.secrets)[:100]
            sentence = f"Provider {self._provider.name} broke off its answer: the finish reason is {word}."
            self._fail(UpstreamFailed("unavailable", sentence, provider=self._provider.name, provider_code=word), steps)
            return
        if not (self.finishing and self._finish_reason) or terms.stop_reason(reason)[0] != "end_turn":
            self._finish_reason = reason
        self._stop_sequence = chunks.stop_sequence(choice) or self._stop_sequence
        self.finishing = True

    def _refuse(self, said: Any, steps: list[Step]) -> None:
        if self.finishing:
            warn_once(self.warnings, "an error after the finish reason")
            return
        groq = said.get("x_groq") if isinstance(said, dict) else None
        if isinstance(groq, dict) and groq.get("error"):
            said = {"error": groq["error"], **{key: value for key, value in said.items() if key == "error" and value}}
        self._fail(refused_in_band(said, provider=self._provider.name, secrets=self._provider.secrets), steps)

    def _done(self, steps: list[Step]) -> None:
        if self._finish_reason or self.finishing:
            self._finish(steps)
        elif self._content and self._provider.quirks.done_is_finish:
            warn_once(self.warnings, "[DONE] without a finish reason")
            self._finish(steps)
        else:
            sentence = f"Provider {self._provider.name} ended the stream before the answer was finished."
            self._fail(UpstreamFailed("interrupted", sentence, provider=self._provider.name), steps)

    def _end(self, failure: UpstreamFailed, steps: list[Step]) -> None:
        if self._ended:
            return
        if self.finishing:
            self._finish(steps)
        else:
            self._fail(failure, steps)

    def _finish(self, steps: list[Step]) -> None:
        self._let_go(steps)
        if not self._content:
            self._speak(self._passages.blank(), steps)
        self._send([ContentBlockDelta(OPEN_BLOCK, CitationsDelta(citation)) for citation in self._uncited], steps)
        if not self._content:
            warn_once(self.warnings, "the answer is empty")
        self._start(steps)
        if self._finish_reason or self._refused:
            steps.append(MessageDelta(self._ending(), {}))
        self._ended = True
        steps.append(MessageStop())

    def _fail(self, failure: UpstreamFailed, steps: list[Step]) -> None:
        self._let_go(steps)
        self._ended = True
        steps.append(failure)

    def _let_go(self, steps: list[Step]) -> None:
        """What was held because more might have come."""
        self._speak(self._passages.pause(), steps)
        self._send(self._calls.close(), steps)

    def _ending(self) -> Json:
        reason, raw = terms.stop_reason(self._finish_reason or "stop")
        raw = raw and tidy(raw, self._provider.secrets)[:200]
        sequence = None
        if reason == "end_turn":
            if self._refused:
                reason = "refusal"
            elif self._calls.begun:
                reason = "tool_use"
            elif self._stop_sequence is not None:
                reason = "stop_sequence"
        if reason == "stop_sequence":
            sequence = self._stop_sequence
        return {"stop_reason": reason, "stop_sequence": sequence, **({"raw_stop_reason": raw} if raw else {})}


def _is_refusal(chunk: Json) -> bool:
    """An error in any of its shapes; some have nothing but a sentence and a code."""
    if is_refusal(chunk):
        return True
    groq = chunk.get("x_groq")
    if isinstance(groq, dict) and groq.get("error"):
        return True
    if "choices" in chunk:
        return False
    coded = any(chunk.get(name) for name in ("code", "status", "status_code", "type"))
    return bool(chunk.get("detail")) or (isinstance(chunk.get("message"), str) and coded)
