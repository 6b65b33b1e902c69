"""Tool calls from fragments: which call one belongs to, and one call at a time although providers interleave them.

While a call's arguments are no whole JSON object, everything else is kept back and follows in the order of first appearance.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from gateway import json_text
from gateway.events import ContentBlockDelta, ContentBlockStart, InputJsonDelta
from gateway.formats.openai.think_tags import Kind
from gateway.json_text import Json
from gateway.kept import EACH, Text, cost

# What may be kept back while one call is written. A call that is still not whole then will not become so.
KEPT_LIMIT = 1024 * 1024
# Beside its text: an event, what is in it, and two places in lists.
KEPT_EACH = 2 * EACH
CALL_COST = 16 * EACH  # bytes that a call takes without a word in it
# Providers allow some 128 parallel calls; a thousand is no answer any more.
CALL_LIMIT = 1000
NAME_LIMIT = 4096
# Characters of one call's arguments that are read to see whether they are whole; beyond it only when they have doubled, for each look
# reads them from the beginning.
TESTED_LIMIT = 4 * 1024 * 1024

Block = ContentBlockStart | ContentBlockDelta


class Fragment(Struct, frozen=True):
    """A piece of a call; "" where a field says nothing. `extra` goes into the block's start."""

    index: int | None
    call_id: str
    name: str
    arguments: str
    extra: Json = {}


@dataclass(slots=True, eq=False)
class Call:
    """`key`: the id as the provider said it, `id`: as it goes out; `nothing`: the arguments were said to be null;
    `repeated`: they were repeated whole, which is forgiven once; `unsent`: the pieces of them that have not gone out; `may_be_whole`:
    they end as an object does, and nobody has looked; `extra_size`: what `extra` takes.
    """

    key: str
    id: str
    name: str
    index: int = -1
    extra: Json = field(default_factory=dict)
    extra_size: int = 0
    arguments: Text = field(default_factory=Text)
    unsent: list[str] = field(default_factory=list)
    may_be_whole: bool = False
    started: bool = False
    closed: bool = False
    nothing: bool = False
    repeated: bool = False
    read: int = 0
    read_last: int = 0

    @property
    def whole(self) -> bool:
        """Whether the arguments are one JSON object. Tested again only after more of them came."""
        if self.nothing:
            return True
        if not self.may_be_whole:
            return False
        size = self.arguments.size
        if self.read + size > TESTED_LIMIT and size < 2 * self.read_last:
            return False
        self.read, self.read_last = self.read + size, size
        try:
            self.may_be_whole = isinstance(json_text.read(str(self.arguments)), dict)
        except json_text.MalformedJson:
            self.may_be_whole = False
        return self.may_be_whole

    def add(self, arguments: str) -> None:
        self.nothing = False
        self.arguments.add(arguments)
        self.unsent.append(arguments)
        self.may_be_whole = (arguments.strip() or "}").endswith("}")


@dataclass(slots=True)
class Kept:
    blocks: list[Block] = field(default_factory=list)
    size: int = 0


class ToolCalls:
    """`fragment` and `admit` return what can go out now, `close` the rest.

    `dropped`: fragments that came too late or too many. `size`: what is kept of the calls, ids and names of closed ones included, for
    they tell to which call a late fragment belongs; all else that is kept is at most `KEPT_LIMIT`.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.dropped = 0
        self.size = 0
        self._open: Call | None = None
        self._last: Call | None = None
        self._by_index: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}
        self._kept: dict[Call | Kind, Kept] = {}
        self._kept_size = 0
        self._blocks = 0

    @property
    def idle(self) -> bool:
        """Nothing has to wait for a call."""
        return self._open is None

    def continued(self, index: int, arguments: str) -> Block | None:
        """The short way of a fragment that can only continue the call which is being written; None for any other."""
        call = self._open
        if call is None or call is not self._by_index.get(index) or not call.started or arguments.startswith("{"):
            return None
        if not arguments or not call.arguments.size:
            return None
        self._last = call
        call.add(arguments)
        call.unsent.clear()
        self.size += len(arguments)
        return ContentBlockDelta(call.index, InputJsonDelta(arguments))

    def fragment(self, fragment: Fragment) -> list[Block] | None:
        """None: it said nothing, or nothing that still counts."""
        index, call_id, name, arguments = fragment.index, fragment.call_id, fragment.name, fragment.arguments
        if not (call_id or name or arguments):
            return None
        call = self._which(index, call_id, name)
        if call is not None and arguments.startswith("{") and call.arguments.size and call.whole:
            if not call.repeated and arguments == str(call.arguments):
                call.repeated = True
                return None
            call = self._begin(index, call.key, name or call.name)
        if call is None or call.closed:
            self.dropped += 1
            return None
        if name and name != call.name and not call.arguments.size and len(call.name) < NAME_LIMIT:
            call.name += name
            self.size += len(name)
        if fragment.extra and not call.started:
            self._set_extra(call, {**call.extra, **fragment.extra})
        return self._take(call, arguments)

    def admit(self, kind: Kind, block: Block, size: int) -> list[Block]:
        """Text or thinking that comes beside calls."""
        out: list[Block] = []
        if self._open is not None and self._open.whole:
            self._advance(out)
        if self._open is None:
            self._send([block], out)
        else:
            self._keep(kind, [block], size, out)
        return out

    def close(self) -> list[Block]:
        """The ending: everything goes out, whole or not."""
        out: list[Block] = []
        while self._open is not None:
            self._start(self._open, out)
            self._advance(out)
        return out

    def _which(self, index: int | None, call_id: str, name: str) -> Call | None:
        if index is not None:
            call = self._by_index.get(index)
        elif call_id:
            call = self._by_id.get(call_id)
        else:
            call = self._last
        if call is not None and call_id and call_id != call.key:
            if not call.key and not call.arguments.size and name in ("", call.name):
                self._name(call, call_id)  # its id comes only now
            else:
                call = self._by_id.get(call_id)
        elif call is not None and not call_id and name and name != call.name and (call.closed or call.whole):
            call = None  # another function, without an id of its own
        self._last = call or self._begin(index, call_id, name)
        return self._last

    def _begin(self, index: int | None, call_id: str, name: str) -> Call | None:
        if self.begun >= CALL_LIMIT:
            return None
        self.begun += 1
        self.size += CALL_COST + len(name)
        call = self._last = Call("", "", name)
        if call_id:
            self._name(call, call_id)
        if index is not None:
            self._by_index[index] = call
        return call

    def _name(self, call: Call, call_id: str) -> None:
        # One id cannot stand for two calls, for a result could belong to either: the second gets one of ours.
        self.size += len(call_id)
        call.key = call_id
        if call_id not in self._by_id and not call.started:
            call.id = call_id
        self._by_id[call_id] = call

    def _take(self, call: Call, arguments: str) -> list[Block]:
        out: list[Block] = []
        if self._open is not None and self._open is not call:
            self._start(self._open, out)
            if self._open.whole:
                self._advance(out)
        if call.closed:
            self.dropped += 1
            return out
        if not call.arguments.size and arguments.strip() == "null":
            call.nothing, arguments = True, ""
        if arguments:
            call.add(arguments)
            self.size += len(arguments)
        if self._open is None:
            self._open = call
        if self._open is call:
            self._write(call, out)
        else:
            self._keep(call, [], len(arguments), out)
        return out

    def _keep(self, key: Call | Kind, blocks: list[Block], size: int, out: list[Block]) -> None:
        kept = self._kept.setdefault(key, Kept())
        kept.blocks += blocks
        kept.size += size + KEPT_EACH
        self._kept_size += size + KEPT_EACH
        while self._kept_size > KEPT_LIMIT and self._open is not None:
            self._start(self._open, out)
            self._advance(out)

    def _advance(self, out: list[Block]) -> None:
        """Closes the open call and lets out what waited for it, up to the next call that is not whole."""
        while self._open is not None:
            self._close(self._open)
            self._open = None
            while self._kept and self._open is None:
                key = next(iter(self._kept))
                kept = self._kept.pop(key)
                self._kept_size -= kept.size
                if isinstance(key, Call):
                    self._open = key
                    if self._kept:
                        self._start(key, out)
                    self._write(key, out)
                else:
                    self._send(kept.blocks, out)
            if self._open is None or not self._kept or not self._open.whole:
                return

    def _write(self, call: Call, out: list[Block]) -> None:
        if call.unsent:
            self._start(call, out)
            out.append(ContentBlockDelta(call.index, InputJsonDelta("".join(call.unsent))))
            call.unsent.clear()

    def _close(self, call: Call) -> None:
        call.closed, call.may_be_whole = True, False
        self.size -= call.arguments.size
        call.arguments = Text()

    def _set_extra(self, call: Call, extra: Json) -> None:
        size = cost(extra) if extra else 0
        self.size += size - call.extra_size
        call.extra, call.extra_size = extra, size

    def _start(self, call: Call, out: list[Block]) -> None:
        if not call.started:
            call.started = True
            call.index = self._blocks  # the number that `_send` is about to give
            self._send([ContentBlockStart(0, {"type": "tool_use", "id": call.id, "name": call.name, "input": {}, **call.extra})], out)
            self._set_extra(call, {})

    def _send(self, blocks: list[Block], out: list[Block]) -> None:
        """Block starts are numbered here, as they go out."""
        for block in blocks:
            if isinstance(block, ContentBlockStart):
                block = ContentBlockStart(self._blocks, block.content_block)
                self._blocks += 1
            out.append(block)
