"""Sequencer: whatever steps a decoder makes of an upstream, in order and whole: one message, one block at a time.

Decoders own framing and *finishing* (when an answer is over they say `MessageStop`); the Sequencer owns order, blocks, tools
and usage. The grammar is written down, independently of this module, in tests/grammar.py.

Deliberate oddities:
* The start of an empty text block waits for its first delta: some relays open one and then send thinking in it.
* A tool's stop waits for the next block or the ending: only then is it known whether its input is whole, broken or cut off.
* A tool call without any argument that `max_tokens` ended is `truncated`, not `{}`: its arguments may never have come.
"""

from collections.abc import Iterable

from gateway import json_text
from gateway.deltas import FIELDS, HOMES, TEXTS, arguments_text, read_delta, read_input, same_value, takes
from gateway.errors import GatewayError, UpstreamFailed
from gateway.events import (
    KINDS,
    OPEN_BLOCK,
    PASSABLE,
    Abort,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Delta,
    Error,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.json_text import Json
from gateway.kept import Text
from gateway.usage import COUNTS, Usage, merged, overlaid, token_count

EARLY_LIMIT = 64 * 1024  # encoded bytes of unknown events that wait for `message_start`
# Characters of one call's arguments, which its stop says whole: no more than an event may have, for it is read and written in one go.
ARGUMENTS_LIMIT = 16 * 1024 * 1024
METADATA_LIMIT = 64 * 1024  # encoded bytes of merged usage, or of what is merged into the final `message_delta`; twice that for a moment

# Deltas that need no look at anything but their text; that of a tool's is kept besides.
PASSES: dict[str, type] = {"text": TextDelta, "thinking": ThinkingDelta, "tool_use": InputJsonDelta}


class _Block:
    """The block that is open. `upstream`: its index over there, None while unknown."""

    __slots__ = ("arguments", "half", "half_kind", "index", "kind", "passes", "repeats", "stopped", "upstream", "waiting")

    def __init__(self, index: int, kind: str, upstream: int | None) -> None:
        self.index = index
        self.kind = kind
        self.passes = PASSES.get(kind)
        self.upstream = upstream
        self.waiting: ContentBlockStart | None = None  # the start, not yet sent
        self.stopped = False  # the upstream has stopped it; ours is held
        if kind == "tool_use":
            self.arguments = Text()
        self.repeats: dict[str, str] = {}  # by kind: what was in the start, which a first delta may repeat
        self.half = ""  # the first half of a surrogate pair
        self.half_kind = ""


class Sequencer:
    """One attempt. After a failure or the end further steps are ignored."""

    def __init__(self, model: str, message_id: str, max_tokens: int | None = None) -> None:
        self._model = model
        self._message_id = message_id
        self._max_tokens = max_tokens

        self.usage: Json = {}  # as told so far
        self.stop_reason: str | None = None
        self.dropped = 0
        self.warnings: list[str] = []
        self.content = False
        self.failure: GatewayError | None = None
        self.done = False

        self._over = False
        self._begun = False
        self._early: list[UnknownEvent] = []
        self._early_size = 0
        self._blocks = 0  # sent so far: the next one's index
        self._open: _Block | None = None
        self._plain: _Block | None = None  # the open block, if nothing of it is held or expected; None once it is over
        self._last = -1  # the highest index the upstream has used in this message: those up to it are closed, but for the open one
        self._called = False
        self._told = False
        self._stop_sequence: str | None = None
        self._delta: Json = {}
        self._rest: Json = {}
        self._usage_size = 0  # encoded bytes at most, of `usage`
        self._metadata_size = 0  # and of `_delta` and `_rest`

    def feed(self, steps: Iterable[Event | Usage | GatewayError]) -> list[Event]:
        events: list[Event] = []
        plain = self._plain
        for step in steps:
            if plain is not None and type(step) is ContentBlockDelta:
                # The hot path, written out: ten times as fast as `_take_delta` for text that passes as it is.
                delta, index = step.delta, step.index
                if type(delta) is plain.passes and (index == plain.upstream or index == OPEN_BLOCK):
                    if type(delta) is TextDelta:
                        text = delta.text
                    elif type(delta) is ThinkingDelta:
                        text = delta.thinking
                    else:
                        text = self._argument(plain, delta)
                    if text and (text.isascii() or _encodable(text)):
                        events.append(step if index == plain.index else ContentBlockDelta(plain.index, delta))
                        continue
            if self._over:
                break
            self._take(step, events)
            plain = self._plain
        return events

    def _argument(self, plain: _Block, delta: Delta) -> str:
        """The text of a tool's argument that may pass as it is, and is kept now; "" if it may not."""
        text = delta.partial_json if type(delta) is InputJsonDelta else ""
        return text if text and _encodable(text) and self._keep(plain, text) else ""

    def _take(self, step: Event | Usage | GatewayError, events: list[Event]) -> None:
        # First those that every answer has several of: a `match` asks for one kind after the other.
        if type(step) is ContentBlockDelta:
            return self._take_delta(step.index, step.delta, events)
        if type(step) is ContentBlockStart:
            return self._take_start(step, events)
        if type(step) is ContentBlockStop:
            return self._take_stop(step.index, events)
        match step:
            case Usage():
                self._tell(step.tokens)
            case MessageDelta():
                self._take_message_delta(step, events)
            case MessageStart():
                self._tell(step.message.get("usage"))
                self._begin(events, step.message)
                self._last = -1  # spliced messages: the upstream counts anew
            case MessageStop():
                self._finish(events)
            case UnknownEvent():
                self._take_unknown(step, events)
            case GatewayError():
                self._fail(step)
            case Ping() | Error() | Abort() | Reset():
                pass  # the gateway's own; an upstream cannot say them

    def _fail(self, failure: GatewayError) -> None:
        self.failure = failure
        self._over, self._plain = True, None

    def _measure(self, bound: int, kept: Json) -> int:
        """The size of `kept`, which is at most `bound`. Written out only after as much again has come: small updates of much are many."""
        if bound <= 2 * METADATA_LIMIT:
            return bound
        size = len(json_text.write(kept))
        if size > METADATA_LIMIT:
            self._fail(UpstreamFailed("event_too_large", "The provider's usage or metadata is larger than 64 KiB."))
        return size

    def _begin(self, events: list[Event], said: Json) -> None:
        if self._begun:
            return
        self._begun = True
        message: Json = {
            "id": _text_of(said.get("id")) or self._message_id,
            "type": "message",
            "role": "assistant",
            "model": _text_of(said.get("model")) or self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._counted(),
        }
        events.append(MessageStart({**message, **said, **message}))  # in our order, and with our values
        events += self._early
        self._early = []

    def _counted(self) -> Json:
        return {"input_tokens": 0, "output_tokens": 0, **self.usage}

    def _tell(self, tokens: object) -> Json:
        """What of it counts as usage, now merged into all of it."""
        told: Json = {}
        if not isinstance(tokens, dict):
            return told
        for key, value in tokens.items():
            count = token_count(value)
            if count is not None and not self._told:
                self._told = key.endswith("_tokens")
            if key in COUNTS:
                value = count
            if key != "estimated" and not (value is None and key in COUNTS):
                told[key] = value
        if told:
            self.usage = merged(self.usage, told)
            self._usage_size = self._measure(self._usage_size + len(json_text.write(told)), self.usage)
        return told

    def _take_message_delta(self, step: MessageDelta, events: list[Event]) -> None:
        told = self._tell(step.usage)
        reason, sequence = _text_of(step.delta.get("stop_reason")), _text_of(step.delta.get("stop_sequence"))
        if reason:
            self.stop_reason, self._stop_sequence = reason, sequence
        elif sequence:
            self._stop_sequence = sequence
        delta = {key: value for key, value in step.delta.items() if key not in ("stop_reason", "stop_sequence")}
        rest = {key: value for key, value in step.rest.items() if key not in ("type", "delta", "usage")}
        if self.stop_reason or self._open or not self._begun:
            self._delta, self._rest = overlaid(self._delta, delta), overlaid(self._rest, rest)
            if delta or rest:
                added = len(json_text.write([delta, rest]))
                self._metadata_size = self._measure(self._metadata_size + added, {**self._delta, **self._rest})
        elif not self._over:
            # The counts, and else only what was told now: a flood of small updates that each repeat all usage would become gigabytes.
            counts = {key: self.usage.get(key, 0) for key in COUNTS}
            events.append(MessageDelta({"stop_reason": None, "stop_sequence": None, **delta}, {**counts, **told}, rest))

    def _take_unknown(self, event: UnknownEvent, events: list[Event]) -> None:
        kind = event.body.get("type")
        if not isinstance(kind, str) or kind in KINDS or not PASSABLE.fullmatch(kind):
            self.dropped += 1
        elif self._begun:
            if self._open:
                self._send_start(self._open, events)
            events.append(event)
        elif (size := self._early_size + len(json_text.write(event.body))) > EARLY_LIMIT:
            self.dropped += 1
        else:
            self._early_size = size
            self._early.append(event)

    def _finish(self, events: list[Event]) -> None:
        self._begin(events, {})
        reason = self.stop_reason
        if reason is None:
            reason = "tool_use" if self._called else "end_turn"
            self.warnings.append("no stop reason")
        if self._stop_sequence is not None and reason == "end_turn":
            reason = "stop_sequence"
        self.stop_reason = self._close(events, reason) or reason
        usage = self._counted()
        if not self._told:
            usage["estimated"] = True
        events.append(
            MessageDelta({"stop_reason": self.stop_reason, "stop_sequence": self._stop_sequence, **self._delta}, usage, self._rest)
        )
        events.append(MessageStop())
        self.done = self._over = True

    def _take_start(self, step: ContentBlockStart, events: list[Event]) -> None:
        kind = step.content_block.get("type")
        if not isinstance(kind, str) or not kind:
            self.dropped += 1
            return
        upstream = None if step.index == OPEN_BLOCK else step.index
        if upstream is not None:
            self._last = max(self._last, upstream)
        said = dict(step.content_block)
        values: list[tuple[str, str]] = []
        if kind == "text":
            if text := _text_of(said.get("text")):
                values = [("text_delta", text)]
            said["text"] = ""
        elif kind == "thinking":
            values = [("thinking_delta", _text_of(said.get("thinking")) or ""), ("signature_delta", _text_of(said.get("signature")) or "")]
            said |= {"thinking": "", "signature": ""}
        elif kind == "tool_use":
            values = [("input_json_delta", arguments_text(said.get("input")))]
            said["input"] = {}
        block = self._open_block(events, said, upstream)
        for kind, value in values:
            if value:
                self._send(block, TEXTS[kind](value), kind, value, False, events)
                block.repeats[kind] = value
        if block.kind == "tool_use" and not block.repeats and not self._over:
            self._plain = block

    def _open_block(self, events: list[Event], said: Json, upstream: int | None) -> _Block:
        if not self._begun:
            self._begin(events, {})
        if self._open is not None:
            self._close(events)
        kind = str(said["type"])
        block = self._open = _Block(self._blocks, kind, upstream)
        if kind == "tool_use":
            self._called = True
            said["id"] = _text_of(said.get("id")) or self._tool_id()
            said["name"] = _text_of(said.get("name")) or ""
        block.waiting = ContentBlockStart(block.index, said)
        if kind != "text" or any(value for key, value in said.items() if key != "type"):
            self._send_start(block, events)
        return block

    def _send_start(self, block: _Block, events: list[Event]) -> None:
        if block.waiting is not None:
            events.append(block.waiting)
            block.waiting = None
            self._blocks += 1
            self.content = self.content or block.kind not in ("text", "thinking")

    def _tool_id(self) -> str:
        return "toolu_" + "".join(char for char in self._message_id if char.isascii() and char.isalnum()) + f"{self._blocks:03d}"

    def _take_stop(self, index: int, events: list[Event]) -> None:
        block = self._open
        if block is None or block.stopped or not self._is_open(block, index):
            return
        if block.kind == "tool_use":
            block.stopped, self._plain = True, None
        else:
            self._close(events)

    def _is_open(self, block: _Block, index: int) -> bool:
        """Whether the upstream means this block. One whose index nobody said takes the first new index as its own."""
        if index in (OPEN_BLOCK, block.upstream):
            return True
        if block.upstream is None and index > self._last:
            block.upstream = self._last = index
            return True
        return False

    def _close(self, events: list[Event], ending: str | None = None) -> str | None:
        """`ending`: the stop reason, at the end. The answer is the better one, where the tool's input shows it."""
        block, self._open, self._plain = self._open, None, None
        if block is None:
            return None
        if block.waiting is not None:
            self._send_start(block, events)
        if block.half:
            self._send_half(block, events)
        if block.kind != "tool_use":
            events.append(ContentBlockStop(block.index))
            return None
        text = str(block.arguments)
        read = read_input(text)
        better = None
        if ending is not None:
            broken = isinstance(read, InvalidInput) and read.reason == "invalid_json"
            if broken and ending in ("tool_use", "end_turn") and self._reached_max_tokens():
                better = ending = "max_tokens"
            if ending == "max_tokens" and (broken or not text.strip()):
                read = InvalidInput(text, "truncated")
        if isinstance(read, InvalidInput):
            events.append(ContentBlockStop(block.index, invalid_input=read))
        else:
            events.append(ContentBlockStop(block.index, input=read))
        return better

    def _reached_max_tokens(self) -> bool:
        return self._max_tokens is not None and int(self.usage.get("output_tokens", 0)) >= self._max_tokens

    def _take_delta(self, index: int, delta: Delta, events: list[Event]) -> None:
        said = read_delta(delta)
        if said is None:
            self.dropped += 1
            return
        kind, value, more = said
        if not value and not more:
            return
        block = self._block_for(index, kind, events)
        if block is None:
            self.dropped += 1
            return
        if kind in block.repeats and same_value(kind, block.repeats.pop(kind), value):
            value = ""
        self._send(block, delta, kind, value, more, events)
        self._plain = block if block.passes and not (block.half or block.repeats or block.waiting or self._over) else None

    def _block_for(self, index: int, kind: str, events: list[Event]) -> _Block | None:
        """The block that the delta belongs to, made if need be; None if there can be none."""
        block = self._open if self._open and not self._open.stopped else None
        here = block is not None and self._is_open(block, index)
        if block and here and takes(block.kind, kind):
            return block
        if not here and OPEN_BLOCK < index <= self._last:
            return None
        if kind not in FIELDS:
            return block
        match HOMES.get(kind):
            case "text":
                made: Json = {"type": "text", "text": ""}
            case "thinking":
                made = {"type": "thinking", "thinking": "", "signature": ""}
            case _:
                return None
        upstream = block.upstream if block and here else None
        if index != OPEN_BLOCK:
            upstream = index
            self._last = max(self._last, index)
        if block and block.waiting and not block.half:
            self._open = None  # an empty text block that nobody has seen was no block
        return self._open_block(events, made, upstream)

    def _send(self, block: _Block, delta: Delta, kind: str, value: object, more: bool, events: list[Event]) -> None:
        """`more`: the delta says something besides its value, so it is sent even without one."""
        if block.half and kind != block.half_kind:
            self._send_half(block, events)
        if isinstance(value, str):
            text = _join_halves(block, kind, value)
            if not text and not more:
                return
            if kind == "input_json_delta" and not self._keep(block, text):
                return
            if isinstance(delta, UnknownDelta):
                delta = UnknownDelta({**delta.body, FIELDS[kind]: text})
            elif text != value:
                delta = TEXTS[kind](text)
        if block.waiting is not None:
            self._send_start(block, events)
        events.append(ContentBlockDelta(block.index, delta))
        self.content = True

    def _send_half(self, block: _Block, events: list[Event]) -> None:
        if block.half and (block.half_kind != "input_json_delta" or self._keep(block, "\ufffd")):
            self._send_start(block, events)
            events.append(ContentBlockDelta(block.index, TEXTS[block.half_kind]("\ufffd")))
            self.content = True
        block.half = ""

    def _keep(self, block: _Block, text: str) -> bool:
        """Only of a `tool_use` block: nobody else's arguments are read here."""
        if block.kind == "tool_use":
            if block.arguments.size + len(text) > ARGUMENTS_LIMIT:
                self._fail(UpstreamFailed("event_too_large", "The arguments of one tool call are larger than 16 MiB."))
                return False
            block.arguments.add(text)
        return True


def _join_halves(block: _Block, kind: str, text: str) -> str:
    """The text without lone surrogates; a last character of which only the first half has come waits in the block."""
    if block.half:
        text, block.half = block.half + text, ""
    if text.isascii():
        return text
    if "\ud800" <= text[-1] <= "\udbff":
        block.half, block.half_kind, text = text[-1], kind, text[:-1]
    return json_text.clean(text)


def _text_of(said: object) -> str | None:
    return said if isinstance(said, str) and said else None


def _encodable(text: str) -> bool:
    """Whether no surrogate is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
