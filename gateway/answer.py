"""One client's answer: status, heartbeats, encoding, sending, and leaving.

The pump (the generation's batches) runs in the server's task, beside it the watcher (a client that leaves ends the attempt), and one
timer is set for the nearest deadline. Owns commit_after, heartbeat and write. Nothing is opened before `__call__`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from gateway.admission import Admission, Slot
from gateway.deadlines import Facts, next_deadline
from gateway.errors import LATER, GatewayError, RequestRefused, internal
from gateway.events import Event, MessageStop
from gateway.formats import Encoder, Refusal, RequestFormat
from gateway.generation import Generation
from gateway.routing import Streaming, Timeouts
from gateway.telemetry import Live, StreamRecord, emit

LOG = logging.getLogger("gateway")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LINGER = 2.0  # seconds for a cut connection to be seen as closed


@dataclass(frozen=True, slots=True)
class Written:
    """How the answer is written: its own encoder, and what its 200 says."""

    encoder: Encoder
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()


class Answer:
    """The ASGI application of one chat. Where `facts.commits` is false the answer is one document, sent at its end."""

    def __init__(
        self,
        generation: Generation,
        record: StreamRecord,
        *,
        request_format: RequestFormat,
        written: Written,
        timeouts: Timeouts,
        streaming: Streaming,
        admission: Admission,
        live: Live,
        open_answers: set["Answer"],
    ) -> None:
        self._generation = generation
        self._facts: Facts = generation.facts
        self._record = record
        self._format = request_format
        self._encoder = written.encoder
        self._written = written
        self._timeouts = timeouts
        self._streaming = streaming
        self._admission = admission
        self._live = live
        self._open_answers = open_answers
        self._slot: Slot | None = None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._strikes: float | None = None  # when the timer does; None: nobody sets it, since the clock stands or somebody is at work
        self._beat: asyncio.Task[None] | None = None  # the last heartbeat
        self._unsent = b""
        self._last = False  # the message's last event was encoded
        self._complete = False  # the last byte was handed to the server
        self._gone: str | None = None  # why nobody reads any more: client_disconnected, slow_client
        self._failure: GatewayError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send, self._receive = send, receive
        self._connection = scope.get("extensions", {}).get("gateway", {})
        self._begin: Callable[..., bool] | None = self._connection.get("begin")
        self._push: Callable[[bytes, bool], bool] | None = self._connection.get("push")
        try:
            self._slot = self._admission.stream()
            await self._run()
        except RequestRefused as error:
            self._record.outcome = "refused"
            self._failure = error
            await self._end()
        finally:
            if self._slot is not None:
                self._slot.close()
            self._close_record()

    def stop(self, error: GatewayError) -> None:
        """The gateway stops: what is committed ends with this error in-band, what is not with its status."""
        self._failure = error
        self._generation.leave()

    def abort(self) -> None:
        """At once, without a word; not if the last one was said already."""
        if self._complete:
            return
        self._gone = self._gone or "shutdown"
        if cut := self._connection.get("abort"):
            cut()

    def cut_off(self) -> None:
        """The process ends now: the record is written, and nothing else happens any more."""
        if not self._complete:
            self._gone = self._gone or "shutdown"
        self._close_record()

    async def _run(self) -> None:
        self._open_answers.add(self)
        try:
            # asyncio's group costs 1 µs, anyio's 12; only what runs on httpx's own transport needs anyio's way of cancelling.
            async with asyncio.TaskGroup() as self._group:
                deaf = self._hear_of_leaving()
                try:
                    self._strikes = math.inf
                    await self._generation.run(self)
                except OSError:  # a server that speaks ASGI 2.4 raises it from `send` when nobody reads any more
                    self._gone = self._gone or "client_disconnected"
                except GatewayError as error:
                    self._failure = self._failure or error
                except Exception:  # whatever our own code raises must become an honest ending
                    LOG.exception("a stream failed")
                    self._failure = self._failure or internal()
                finally:
                    deaf()
                    self._stop_clock()
            if not self._complete and self._gone is None:
                await self._end()
        finally:
            self._open_answers.discard(self)

    def _hear_of_leaving(self) -> Callable[[], object]:
        """Until what is returned is called. ASGI has a task wait for it, which a server that calls spares every answer."""
        if (tell := self._connection.get("tell")) is None:
            return self._group.create_task(self._watch(), name="watcher").cancel
        tell(self._left)
        return lambda: tell(None)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left()

    def _left(self) -> None:
        if not self._complete:
            self._leave("client_disconnected")

    def _leave(self, why: str) -> None:
        self._gone = self._gone or why
        self._generation.leave()

    def deliver(self, events: list[Event]) -> bool:
        """True if nothing of them waits to be sent: a server that can is given them here and now, for to wake a task costs more."""
        self._unsent += self._encoder.feed(events)
        self._last = type(events[-1]) is MessageStop
        if not self._facts.commits and not self._last:
            return True  # a document is sent at its end
        if self._lock.locked() or self._generation.unwanted:
            return False
        data, last, begins = self._unsent, self._last, not self._facts.committed
        if begins:
            written = self._begin is not None and self._begin(200, self._head(len(data)), data, not last)
        else:
            written = self._push is not None and ((not data and not last) or self._push(data, not last))
        if written:
            self._note_sent(len(data), begins=begins, last=last)
        return written

    async def flush(self) -> None:
        if self._generation.unwanted:
            # anyio cancels no task whose wait has just ended, and under a flood every wait has.
            await anyio.lowlevel.checkpoint()
        begins = self._generation.said and not self._facts.committed
        if not self._complete and (self._last or (self._facts.commits and (self._unsent or begins))):
            await self._flush(last=self._last)

    def _strike(self) -> None:
        """Does what is due, and sets the timer for what will be next."""
        self._strikes, now = None, time.monotonic()
        if self._complete:
            return  # what is left of the upstream's connection has bounds of its own
        due = next_deadline(self._facts, self._timeouts, self._streaming)
        if due is None or due[0] > now:
            # A send that blocks from now on is noticed within `write`: it sets no timer, that would cost every read.
            return self._set_timer(min(due[0] if due else math.inf, now + self._timeouts.write))
        match due[1]:
            case "commit" | "heartbeat":
                self._beat = self._group.create_task(self._heartbeat(), name="heartbeat")
            case "write":
                self._leave("slow_client")
            case meaning:
                self._generation.expire(meaning)
                self._set_timer(now + self._timeouts.write)

    def _set_timer(self, instant: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._strikes = instant
        self._timer = asyncio.get_running_loop().call_later(instant - time.monotonic(), self._strike)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._strikes = None
        if self._beat is not None:
            self._beat.cancel()

    def wake(self) -> None:
        """The facts have changed: the timer is set anew only if something is due before the instant it is set for."""
        if self._strikes is None:
            return
        if self._strikes == math.inf:  # for the first time
            return self._strike()
        due = next_deadline(self._facts, self._timeouts, self._streaming)
        if due is not None and due[0] < self._strikes:
            self._set_timer(due[0])

    async def _heartbeat(self) -> None:
        """In its own bounds: while this send blocks nobody else keeps the time."""
        if not self._last:
            self._unsent += self._encoder.heartbeat()
        with anyio.move_on_after(self._timeouts.write) as limit:
            await self._flush(last=False)
        if limit.cancelled_caught:
            self._leave("slow_client")
        else:
            self._strike()

    async def _flush(self, *, last: bool) -> None:
        """All that waits to be sent, in one send; cancelled while it blocks, the bytes wait for the next one."""
        async with self._lock:
            if self._complete:
                return  # a heartbeat that was due in the very moment of the last event
            facts, data = self._facts, self._unsent
            facts.sending = time.monotonic()
            begins = not facts.committed
            try:
                if begins:
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._head(len(data))})
                    facts.committed = True
                if data or last or begins:  # the server keeps a head back until a piece of the body comes, be it empty
                    await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            finally:
                facts.sending = None
            self._note_sent(len(data), begins=begins, last=last)

    def _note_sent(self, length: int, *, begins: bool, last: bool) -> None:
        facts = self._facts
        self._unsent = self._unsent[length:]
        self._record.bytes_sent += length
        facts.committed, facts.sent = True, time.monotonic()
        if last:
            self._complete = True
            if self._slot is not None:
                self._slot.close()  # the client may ask again at once, while the upstream's connection is still drained
        elif begins and self._strikes is not None and facts.sent + self._streaming.heartbeat < self._strikes:
            self._set_timer(facts.sent + self._streaming.heartbeat)

    def _head(self, length: int) -> list[tuple[bytes, bytes]]:
        """The fields of the answer; `length` in bytes, of a document."""
        extra = [(name.encode(), value.encode()) for name, value in self._written.headers]
        if not self._facts.commits:
            extra.append((b"content-length", b"%d" % length))
        return self._fields(200, self._written.content_type, extra)

    def _fields(self, status: int, content_type: str, extra: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        self._record.status = status
        return [
            (b"content-type", content_type.encode()),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
            (b"x-request-id", self._record.request_id.encode()),
            *extra,
        ]

    async def _end(self) -> None:
        """The failure is told: as a status if nothing was sent, else in-band, else by cutting the connection.

        A message that is whole, and was only not sent yet, is sent: a failure that came later is nobody's business.
        """
        with anyio.move_on_after(self._timeouts.write) as limit:
            if self._last:
                await self._flush(last=True)
            else:
                await self._fail()
        if limit.cancelled_caught:
            self._gone = "slow_client"

    async def _fail(self) -> None:
        assert self._failure is not None
        error, request_id, partial = self._failure, self._record.request_id, self._generation.said
        if not self._facts.committed:
            # Of a stream nothing was seen yet, even if its first bytes had been on their way.
            partial = partial and not self._facts.commits
            message = self._encoder.partial if partial else None
            await self._refuse(error, self._format.refusal(error, request_id, partial=partial, message=message))
        elif (ending := self._encoder.failed(error, request_id, partial=partial)) is None:
            await self._cut()
        else:
            self._unsent += ending
            await self._flush(last=True)

    async def _refuse(self, error: GatewayError, refusal: Refusal) -> None:
        extra = [(b"content-length", str(len(refusal.body)).encode())]
        extra += [(name.encode(), value.encode()) for name, value in refusal.headers]
        if error.retry_after is not None and error.status in LATER:
            extra.append((b"retry-after", str(math.ceil(error.retry_after)).encode()))
        if error.cause.code == "shutdown":
            extra.append((b"connection", b"close"))
        fields = self._fields(refusal.status, refusal.content_type, extra)
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": fields})
        await self._send({"type": "http.response.body", "body": refusal.body, "more_body": False})
        self._complete = True

    async def _cut(self) -> None:
        """A format without an error event: what was received is sent, and the body ends without its last chunk."""
        await self._flush(last=False)
        if cut := self._connection.get("cut"):
            cut()
            with anyio.move_on_after(LINGER):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
            self._connection["abort"]()

    def _close_record(self) -> None:
        record = self._record
        record.ended = time.monotonic()
        if self._gone is not None:
            record.outcome = self._gone
            # What is still unsent would keep the connection: of a client that never reads, or that only shut its writing half.
            if abort := self._connection.get("abort"):
                abort()
        elif self._last and self._complete:
            record.outcome = "finished"
        elif self._failure is not None:
            record.error = self._failure
            if record.outcome != "refused":
                record.outcome = "shutdown" if self._failure.cause.code == "shutdown" else "failed"
        else:
            record.outcome = "shutdown"  # cancelled from outside
        emit(record, self._live)
