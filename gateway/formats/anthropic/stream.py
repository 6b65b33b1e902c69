"""A Claude answer, bytes to steps (https://docs.anthropic.com/en/docs/build-with-claude/streaming).

What one frame says is translated here; the order of events, and what belongs together, is the Sequencer's.
"""

from typing import Any, TypeGuard

import msgspec

from gateway import events, json_text
from gateway.body import DONE, Body
from gateway.errors import UpstreamFailed
from gateway.events import (
    OPEN_BLOCK,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    InputJsonDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    UnknownDelta,
    UnknownEvent,
)
from gateway.formats import Step
from gateway.formats.anthropic import frames, terms
from gateway.formats.anthropic.frames import DeltaFrame, MessageDeltaFrame, MessageStartFrame, MessageStopFrame, StartFrame, StopFrame
from gateway.json_text import Json
from gateway.kept import warn_once
from gateway.refusals import is_refusal, refused_in_band

# The field that makes a delta one of its kind, and what it must be; further fields make it an `UnknownDelta`.
DELTA_FIELDS: dict[str, tuple[str, type]] = {
    "text_delta": ("text", str),
    "thinking_delta": ("thinking", str),
    "signature_delta": ("signature", str),
    "input_json_delta": ("partial_json", str),
    "citations_delta": ("citation", dict),
}

BLOCK_EVENTS = ("content_block_start", "content_block_delta", "content_block_stop")
KINDS = frozenset(("message_start", *BLOCK_EVENTS, "message_delta", "message_stop", "message", "ping"))


class MessageDecoder:
    """`events.OPEN_BLOCK` stands for an index that the provider left out."""

    def __init__(self, provider: str, *, content_type: str = "", secrets: tuple[str, ...] = ()) -> None:
        self.finishing = False
        self.dropped = 0
        self.warnings: list[str] = []
        self._provider = provider
        self._secrets = secrets
        self._body = Body(provider, content_type=content_type, secrets=secrets, read=frames.read, read_run=frames.read_run)
        self._nonsense = 0
        self._reason_known = False
        self._over = False

    def feed(self, chunk: bytes) -> list[Step]:
        if self._over:
            return []
        steps = self._steps(self._body.feed(chunk))
        if (failure := self._body.failure) and not self._over:
            steps.append(self._ending(failure))
        return steps

    def close(self, broken: UpstreamFailed | None = None) -> list[Step]:
        if self._over:
            return []
        steps = self._steps(self._body.close())
        if not self._over:
            steps.append(self._ending(broken or self._body.diagnosis()))
        return steps

    def _steps(self, values: list[tuple[str, Any]]) -> list[Step]:
        steps: list[Step] = []
        for event, value in values:
            if type(value) is DeltaFrame:
                delta = value.delta
                if self.finishing:
                    self._continued_by(delta)
                steps.append(ContentBlockDelta(value.index, delta))
            elif type(value) is StopFrame:
                steps.append(ContentBlockStop(value.index))
            elif type(value) is StartFrame:
                steps += self._block_start(value.index, value.content_block)
            else:
                steps += self._of(event, value)
                if self._over:
                    break
        self.dropped = self._nonsense + self._body.dropped
        return steps

    def _of(self, event: str, value: Any) -> list[Step]:
        """The steps of a frame that has nothing to do with a block, or is not as documented."""
        match value:
            case MessageStartFrame(message=message):
                return self._message(message)
            case MessageDeltaFrame(delta=delta, usage=usage):
                return self._message_delta(delta, usage, {})
            case MessageStopFrame():
                return self._finished()
            case _:
                pass
        if value is DONE:
            # Some relays end with OpenAI's mark, and need not close the connection after it.
            return self._finished() if self._reason_known else []
        kind = _kind(event, value)
        if kind is None:
            return self._refused(value)
        match kind:
            case "content_block_delta":
                return self._delta(value)
            case "content_block_start":
                return self._block_start(_index(value.get("index")), value.get("content_block"))
            case "content_block_stop":
                index = _index(value.get("index"))
                return self._nothing() if index is None else [ContentBlockStop(index)]
            case "message_start":
                return self._message_start(value)
            case "message_delta":
                rest = {key: item for key, item in value.items() if key not in ("type", "delta", "usage", "stats")}
                return self._message_delta(value.get("delta"), value.get("usage"), rest)
            case "message_stop":
                return self._finished()
            case "message" if isinstance(value.get("content"), list | str):
                return [*self._message(value), *self._finished()]
            case "ping":
                return []
            case _ if kind not in events.KINDS and events.PASSABLE.fullmatch(kind) and kind != "message":
                return [UnknownEvent({**value, "type": kind})]
            case _:
                return self._nothing()

    def _message_start(self, value: Json) -> list[Step]:
        message = value.get("message")
        if message is None:
            return [MessageStart({})]
        return self._message(message) if isinstance(message, dict) else self._nothing()

    def _message(self, message: Json) -> list[Step]:
        """A message, usually one that only begins; but it may hold its whole content and stop reason already."""
        content, reason, usage = message.get("content"), _reason(message.get("stop_reason")), terms.usage(message.get("usage"))
        start = {**message, "type": "message", "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        ending = {"stop_reason": reason, "stop_sequence": message.get("stop_sequence")}
        if reason and message.get("stop_details") is not None:
            ending["stop_details"] = message["stop_details"]
            start["stop_details"] = None
        steps: list[Step] = [MessageStart(start)]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            steps += self._whole_block(index, block)
        if reason:
            self._stopped()
            steps.append(MessageDelta(ending, dict(usage)))
        return steps

    def _whole_block(self, index: int, block: Any) -> list[Step]:
        if not _is_block(block):
            return self._nothing()
        self.finishing = False
        citations = block.get("citations")
        if block["type"] != "text" or not isinstance(citations, list):
            return [ContentBlockStart(index, block), ContentBlockStop(index)]
        # As Claude streams it: citations come one by one. The Sequencer does the same with the text.
        deltas = [ContentBlockDelta(index, CitationsDelta(citation)) for citation in citations if isinstance(citation, dict)]
        return [ContentBlockStart(index, {**block, "citations": []}), *deltas, ContentBlockStop(index)]

    def _block_start(self, index: int | None, block: Any) -> list[Step]:
        if index is None or not _is_block(block):
            return self._nothing()
        self.finishing = False
        return [ContentBlockStart(index, block)]

    def _delta(self, value: Json) -> list[Step]:
        index, body = _index(value.get("index")), value.get("delta")
        if index is None or not _is_block(body):
            # `delta: null` is somebody's keep-alive.
            return [] if index is not None and body is None else self._nothing()
        delta = _delta_of(body)
        if delta is None:
            return self._nothing()
        if self.finishing:
            self._continued_by(delta)
        return [ContentBlockDelta(index, delta)]

    def _message_delta(self, said: Any, usage: Any, rest: Json) -> list[Step]:
        if not isinstance(said, dict | None) or not isinstance(usage, dict | None):
            self._nonsense += 1
        delta = dict(said) if isinstance(said, dict) else {}
        if "stop_reason" in delta:
            delta["stop_reason"] = _reason(delta["stop_reason"])
            if delta["stop_reason"]:
                self._stopped()
        return [MessageDelta(delta, terms.usage(usage), rest)]

    def _refused(self, value: Any) -> list[Step]:
        if self.finishing:
            warn_once(self.warnings, "an error after the stop reason was ignored")
            return []
        self._over = True
        return [refused_in_band(value, provider=self._provider, secrets=self._secrets)]

    def _continued_by(self, delta: Delta) -> None:
        """Content after the stop reason: the answer goes on, and a broken end would be an interruption again."""
        body = delta.body if isinstance(delta, UnknownDelta) else msgspec.structs.asdict(delta)
        self.finishing = not any(body.get(field) for field, kind in DELTA_FIELDS.values() if kind is str)

    def _stopped(self) -> None:
        self.finishing = self._reason_known = True

    def _finished(self) -> list[Step]:
        self._over = True
        if not self._reason_known:
            warn_once(self.warnings, "finished without a stop reason")
        return [MessageStop()]

    def _ending(self, failure: UpstreamFailed) -> Step:
        self._over = True
        if not self.finishing:
            return failure
        warn_once(self.warnings, "ended without message_stop")
        return MessageStop()

    def _nothing(self) -> list[Step]:
        self._nonsense += 1
        return []


def _kind(event: str, value: Any) -> str | None:
    """What a frame is: its JSON `type`, else the event's name; None for an error in any of its shapes."""
    if is_refusal(value):
        return None
    kind = value.get("type")
    if kind is None and value.get("role") == "assistant" and isinstance(value.get("content"), list):
        return "message"
    if not isinstance(kind, str):
        kind = event
    return None if event == "error" and kind not in KINDS else kind


def _index(said: Any) -> int | None:
    """`OPEN_BLOCK` where there is none; None for nonsense."""
    if said is None:
        return OPEN_BLOCK
    return said if isinstance(said, int) and not isinstance(said, bool) and said >= 0 else None


def _reason(said: Any) -> str | None:
    return said if isinstance(said, str) and said else None


def _is_block(said: Any) -> TypeGuard[Json]:
    return isinstance(said, dict) and isinstance(said.get("type"), str)


def _delta_of(body: Json) -> Delta | None:
    """None for a known delta that lacks what makes it one."""
    if body["type"] in DELTA_FIELDS:
        field, kind = DELTA_FIELDS[body["type"]]
        if field == "partial_json" and isinstance(body.get(field), dict):
            return InputJsonDelta(json_text.write(body[field]).decode())
        if not isinstance(body.get(field), kind):
            return None
    return events.delta_from_json(body)
