"""The story of one answer as the providers tell it: attempts until there is content, then batches of events.

Knows no client. Owns the deadlines first_token, idle, total and finish (connect is the transport's); the clock that watches
them belongs to whoever runs it, and calls `expire`.
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio
import httpx
from msgspec import structs

from gateway import events as ev
from gateway import upstream
from gateway.chat import ChatRequest
from gateway.deadlines import Facts, Meaning
from gateway.deltas import is_content
from gateway.errors import GatewayError, RequestRefused, UpstreamFailed
from gateway.events import Event
from gateway.failover import Again, GiveUp, Next, after_refusal, decide, refuses_thoughts, without_thoughts
from gateway.formats import Decoder, Target
from gateway.routing import Model
from gateway.sequence import Sequencer
from gateway.telemetry import StreamRecord

# Bytes of a body whose events are kept back while no content is among them, the read that brings it and its 64 KiB included.
PREAMBLE_LIMIT = 128 * 1024


class Listener(Protocol):
    """To whom a generation is told."""

    def deliver(self, events: list[Event]) -> bool:
        """Takes the events of one network read, without waiting; the last batch ends with `message_stop`. What it was given counts as
        said. True if nothing of it waits to be sent; else `flush` is awaited."""

    async def flush(self) -> None:
        """Sends what waits."""

    def wake(self) -> None:
        """A deadline came nearer."""


@dataclass(slots=True)
class Upstreams:
    """What attempts run on: a transport per provider, and what was learned of providers while the process runs."""

    transports: Mapping[str, httpx.AsyncBaseTransport]
    without_stream_usage: set[str] = field(default_factory=set)  # targets that refused stream_options
    first_models: dict[str, str] = field(default_factory=dict)  # provider → the model to use where none is configured


class Generation:
    """One request's attempts. `run` returns when an attempt finished, and raises `GatewayError` when none did."""

    def __init__(self, request: ChatRequest, model: Model, upstreams: Upstreams, facts: Facts, record: StreamRecord) -> None:
        self.facts = facts
        self.said = False  # something was delivered: from here on a failure is told in-band
        self._request = request
        self._model = model
        self._upstreams = upstreams
        self._record = record
        self._scope: anyio.CancelScope | None = None  # the attempt's, or the one of the wait before it
        self._cut: Meaning | Literal["unwanted"] | None = None  # why it was cancelled last

    def expire(self, meaning: Meaning) -> None:
        """A deadline has passed: the attempt, or the wait before it, ends for that reason."""
        if not self.unwanted:
            self._cut = meaning
            self._cancel()

    def leave(self) -> None:
        """Nobody wants the answer any more: `run` returns as soon as the attempt is closed."""
        self._cut = "unwanted"
        self._cancel()

    @property
    def unwanted(self) -> bool:
        return self._cut == "unwanted"

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, listener: Listener) -> None:
        """Attempts at the model's targets, in their order, until one has said something; then that one to its end, or until `leave`."""
        targets, at, tries = self._model.targets, 0, 0
        failed: GatewayError | None = None
        decided: Again | Next | GiveUp
        while not self.unwanted:
            tries += 1
            asked = self._record.provider, self._record.target
            try:
                return await self._attempt(targets[at], listener)
            except RequestRefused as error:  # this target cannot be asked such a thing: another may, else the first reason counts
                self._record.attempts -= 1
                code, failed, decided = error.cause.code, failed or error, after_refusal(targets, at)
                tried = self._record.target
                if self._record.attempts:
                    self._record.provider, self._record.target = asked  # the one whose failure is told
            except UpstreamFailed as error:
                if self.said:
                    raise
                decided = decide(error, targets, at, tries, self._model.retry, random.random())
                code, failed, tried = error.cause.code, error, self._record.target
            self._record.warnings.append(f"{tried} failed: {code}")
            match decided:
                case GiveUp():
                    raise failed
                case Next(index):
                    at, tries = index, 0
                case Again(wait):
                    await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        """Only `total` and the client's leaving can cut it short."""
        self.facts.attempt = None
        with anyio.CancelScope() as self._scope:
            await anyio.sleep(seconds)
        if self._scope.cancelled_caught and not self.unwanted:
            raise self._timed_out("total", None)

    async def _attempt(self, target: Target, listener: Listener) -> None:
        record = self._record
        record.provider = target.provider.name
        record.target = target.name if target.model else f"{record.provider}/(the first it lists)"
        record.attempts += 1
        facts = self.facts
        facts.attempt = facts.heard = facts.meant = time.monotonic()
        facts.spoken, facts.finishing = False, None
        reading = _Reading(self, target, listener)
        failure: UpstreamFailed | None = None
        try:
            with anyio.CancelScope() as self._scope:
                listener.wake()
                try:
                    await self._exchange(target, reading)
                except UpstreamFailed as error:
                    failure = error
            if self._cut == "unwanted" or reading.done:
                return
            if self._scope.cancelled_caught and self._cut is not None and self._cut != "finish":
                failure = self._timed_out(self._cut, target)
            with anyio.CancelScope() as self._scope:
                await reading.end(failure)
            reading.fail()  # also if `total` passed while the last words waited for the client
        finally:
            reading.record()

    async def _exchange(self, target: Target, reading: "_Reading") -> None:
        """The request and its answer; once more without `stream_options`, or without thoughts, if the provider stumbles over those."""
        transport = self._upstreams.transports[target.provider.name]
        connect = self._model.timeouts.connect
        if not target.model:
            models = self._upstreams.first_models
            if target.provider.name not in models:
                models[target.provider.name] = await upstream.first_model(transport, target, connect=connect)
            target = upstream.named(target, models[target.provider.name])
            self._record.target = target.name
        usage, request = target.name not in self._upstreams.without_stream_usage, self._request
        while True:
            outgoing = target.format.build(request, target, stream_usage=usage)
            self._record.warnings.extend(outgoing.warnings)
            try:
                async with upstream.Exchange(transport, target.provider, outgoing, connect=connect) as exchange:
                    await reading.read(exchange, target)
                    return
            except UpstreamFailed as error:
                if error.status not in (400, 422) or reading.begun:
                    raise
                if usage and "stream_options" in error.message:
                    usage = False
                    self._upstreams.without_stream_usage.add(target.name)
                elif refuses_thoughts(error) and (unthought := without_thoughts(request)) is not None:
                    request = unthought
                    self._record.warnings.append("thinking that the provider does not know as its own was left out")
                else:
                    raise

    def _timed_out(self, meaning: Meaning, target: Target | None) -> UpstreamFailed:
        seconds = getattr(self._model.timeouts, meaning)
        name = target.provider.name if target else None
        sentence = {
            "first_token": f"Provider {name} did not begin its answer within {seconds:g} s.",
            "idle": f"Provider {name} fell silent for {seconds:g} s.",
            "total": f"The answer took longer than {seconds:g} s.",
        }[meaning]
        return UpstreamFailed(meaning, sentence, provider=name)


class _Reading:
    """One attempt's body on its way to the events that are delivered."""

    def __init__(self, generation: Generation, target: Target, listener: Listener) -> None:
        self._generation = generation
        self._facts = generation.facts
        self._record = generation._record
        self._listener = listener
        self._request = generation._request
        self._decoder: Decoder | None = None
        self._sequencer = Sequencer(target.model, f"msg_{self._record.request_id}", self._request.max_tokens)
        self._kept: list[Event] = []  # what precedes content
        self._preamble = 0  # bytes of the body until there is content
        self._content = False

    @property
    def begun(self) -> bool:
        return self._decoder is not None

    async def read(self, exchange: upstream.Exchange, target: Target) -> None:
        self._decoder = target.format.decoder(self._request, target, exchange.content_type)
        sequencer, facts = self._sequencer, self._facts
        while (piece := await exchange.read(self._take)) is not None:
            if piece and self._take(piece):
                continue
            await self._listener.flush()
            facts.heard = facts.meant = time.monotonic()  # while the client was not reading, `idle` did not run
            if sequencer.failure is not None or sequencer.done:
                break
        if sequencer.done:
            await exchange.drain()

    def _take(self, piece: bytes) -> bool:
        """All that becomes of a piece of the body without waiting; false if there is something to wait for, or no more to read."""
        facts, sequencer, decoder = self._facts, self._sequencer, self._decoder
        assert decoder is not None
        facts.heard = time.monotonic()
        if not self._content:
            self._preamble += len(piece)
        steps = decoder.feed(piece)
        if not steps:
            return True
        facts.meant = facts.heard
        events = sequencer.feed(steps)
        sent = self._pass_on(events, facts.heard)
        if sequencer.failure is not None or sequencer.done:
            return False
        self._mark_finishing(decoder.finishing, events)
        return sent

    def _mark_finishing(self, finishing: bool, events: list[Event]) -> None:
        """`finish` runs from the stop reason, and again from content after it (some send a reason with every chunk)."""
        facts = self._facts
        if not finishing:
            facts.finishing = None
        elif facts.finishing is None or any(type(event) is ev.ContentBlockDelta for event in events):
            facts.finishing = facts.heard
            self._listener.wake()

    @property
    def done(self) -> bool:
        return self._sequencer.done

    async def end(self, failure: UpstreamFailed | None) -> None:
        """The body ended too early, or the attempt failed: what is held is said, and the ending is known, which `fail` tells."""
        sequencer = self._sequencer
        if sequencer.failure is None:
            if self._decoder is None:
                assert failure is not None
                raise failure
            self._facts.finishing = None
            if not self._pass_on(sequencer.feed(self._decoder.close(failure)), time.monotonic()):
                await self._listener.flush()

    def fail(self) -> None:
        if self._sequencer.failure is not None:
            raise self._sequencer.failure

    def record(self) -> None:
        """What the attempt showed, whatever became of it."""
        record, sequencer = self._record, self._sequencer
        if self._decoder is not None:
            record.usage = {"input_tokens": 0, "output_tokens": 0, **sequencer.usage}
            if not sequencer.usage or (sequencer.stop_reason is None and not sequencer.done):
                record.usage["estimated"] = True  # a provider tells its final counts with the stop reason, or after it
        record.stop_reason = sequencer.stop_reason
        record.dropped_frames = sequencer.dropped + (self._decoder.dropped if self._decoder else 0)
        record.warnings.extend(sequencer.warnings + (self._decoder.warnings if self._decoder else []))

    def _pass_on(self, events: list[Event], now: float) -> bool:
        """True if nothing of them waits to be sent."""
        if not events:
            return True
        if not self._content:
            events = self._keep_back(events)
            if not events:
                return True
            self._content = self._facts.spoken = self._generation.said = True
        self._record.note(events, now)
        if type(events[-1]) is ev.MessageStop:
            self._record.usage = dict(self._sequencer.usage)
            self._record.dropped_frames = self._sequencer.dropped + (self._decoder.dropped if self._decoder else 0)
            events[-1] = structs.replace(events[-1], stats=self._record.stats(now))
        return self._listener.deliver(events)

    def _keep_back(self, events: list[Event]) -> list[Event]:
        """All that was kept and these, as soon as there is content or the end; else nothing."""
        for place, event in enumerate(events):
            if is_content(event) or type(event) is ev.MessageStop:
                return [*self._kept, *events[place:]]
            if type(event) is ev.ContentBlockStart and event.content_block.get("type") == "thinking":
                self._facts.spoken = True  # it thinks: that satisfies first_token
            if self._preamble > PREAMBLE_LIMIT:
                if isinstance(event, ev.UnknownEvent):
                    self._sequencer.dropped += 1
                    continue
                return [*self._kept, *events[place:]]  # so much structure is an answer
            self._kept.append(event)
        return []
