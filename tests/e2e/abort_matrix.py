"""Clients that leave, in every phase of a stream and in every way: what each abort needs, does and leaves behind.

As a program it prints the table phase × way × format with the time from the client's leaving to the provider's socket closed:

    python tests/e2e/abort_matrix.py [--aborts 100]
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from starlette.types import ASGIApp

from gateway.routing import Retry, Timeouts
from gateway.simulator import Hang, Send, Wait
from tests.e2e.client import Client, Way
from tests.e2e.provider import BEGUN, GOOD, START, delta, refusal, stream
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Answer, Request, ScriptedUpstream, full_listener

FLOOD = 400
PARAGRAPH = delta("x" * 60_000)
LONG_WAIT = refusal(429, retry_after="9")
FEW = 2  # floods at once: more would wait for each other's, not for the abort
WAYS: tuple[Way, ...] = ("fin", "rst")
FORMATS = ("native", "text", "ndjson", "whole")

Reached = Callable[["Batch"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Phase:
    """`answer` is what the provider plays; `reached` returns when every client of the batch is in the phase."""

    name: str
    answer: Answer
    reached: Reached
    small_buffers: bool = False
    at_once: int = 10
    formats: tuple[str, ...] = FORMATS


@dataclass(slots=True)
class Batch:
    gateway: Running
    clients: list[Client]
    requests: list[Request]
    format: str


async def at_the_provider(batch: Batch) -> None:
    """The requests have arrived; nothing has come back."""


def sent(amount: int) -> Reached:
    async def reached(batch: Batch) -> None:
        for request in batch.requests:
            await request.until_sent(amount)

    return reached


async def reading(batch: Batch) -> None:
    """Each client has seen something of the answer, unless its answer is one document."""
    await sent(len(BEGUN))(batch)
    if batch.format != "whole":
        for client in batch.clients:
            assert await client.head() == 200
            assert await client.piece()


async def gulping(batch: Batch) -> None:
    """Each client has read more than all the buffers on the way can hold."""
    if batch.format == "whole":
        return await sent(len(PARAGRAPH) * 4)(batch)
    async with asyncio.TaskGroup() as group:
        for client in batch.clients:
            group.create_task(_gulp(client, len(PARAGRAPH) * 3), name="client that reads")


async def _gulp(client: Client, amount: int) -> None:
    while amount > 0:
        amount -= len(await client.piece())


async def blocked(batch: Batch) -> None:
    await batch.gateway.until_blocked(len(batch.clients))


async def waiting(batch: Batch) -> None:
    await batch.gateway.until_waiting(len(batch.clients))


PHASES = (
    Phase("before headers", stream(before=(Hang(),)), at_the_provider),
    Phase("after headers", stream(Hang()), sent(50)),
    Phase("after message_start", stream(START, Hang()), sent(len(START) + 50)),
    Phase("silence in mid-stream", stream(BEGUN, Hang()), reading),
    Phase("flowing", stream(BEGUN, *(Wait(0.002), Send(delta("word "))) * 2000, Hang()), reading),
    Phase("flooding", stream(BEGUN, *(PARAGRAPH,) * FLOOD, Hang()), gulping, at_once=FEW),
    Phase("client does not read", stream(BEGUN, *(PARAGRAPH,) * FLOOD, Hang()), blocked, True, FEW, ("native", "text", "ndjson")),
    Phase("retry's wait", LONG_WAIT, waiting),
)


@dataclass(slots=True)
class Row:
    """What was measured of one phase, way and format; seconds."""

    phase: str
    way: str
    format: str
    times: list[float]

    def __str__(self) -> str:
        times = sorted(self.times)
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, int(len(times) * 0.99))]
        figures = "".join(f"{value * 1000:9.2f}" for value in (p50, p99, times[-1]))
        return f"{self.phase:<24}{self.way:<5}{self.format:<8}{len(times):>5}{figures}"


TITLE = f"{'phase':<24}{'way':<5}{'format':<8}{'n':>5}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}"


class Leak(AssertionError):
    """Something was left behind by clients who had gone."""


@asynccontextmanager
async def stage(phase: Phase, *, deadline: float = 5.0, wrap: Callable[[ASGIApp], ASGIApp] | None = None) -> AsyncIterator["Stage"]:
    """The gateway and its provider, playing this phase."""
    async with ScriptedUpstream(lambda request: GOOD if b'"next"' in request.body else phase.answer) as upstream:
        retry = Retry(attempts=2, max_retry_after=10)
        wired = wiring(provider(upstream.url), retry=retry, timeouts=Timeouts(write=60))
        buffers = {"receive_buffer": 4096} if phase.small_buffers else {}
        async with running(wired, send_buffer=16_384 if phase.small_buffers else None, wrap=wrap) as gateway:
            yield Stage(phase, gateway, upstream, buffers, deadline)


@dataclass(slots=True)
class Stage:
    phase: Phase
    gateway: Running
    upstream: ScriptedUpstream
    buffers: dict[str, int]
    deadline: float

    async def abort(self, amount: int, way: Way, format: str) -> Row:
        """So many aborts, each of which had reached the provider; `Leak` if one is not seen there or leaves something."""
        row = Row(self.phase.name, way, format, [])
        descriptors = _descriptors()
        while len(row.times) < amount:
            row.times += await self._batch(min(self.phase.at_once, amount - len(row.times)), way, format)
        await self.check(descriptors)
        return row

    async def check(self, descriptors: int) -> None:
        """Nothing is left, and the next request works."""
        try:
            if self.phase.name != "retry's wait":  # a complete answer's connection is rightly kept
                await self.upstream.until_all_closed(self.deadline)
            await self.gateway.until_idle(self.deadline)
        except (TimeoutError, AssertionError) as error:
            raise Leak(f"{self.phase.name}: {error}; {len(self.upstream.open)} connections open") from error
        if self.phase.name != "retry's wait":
            await _until_descriptors(descriptors)
        async with self.gateway.chat({"messages": [{"role": "user", "content": "next"}]}) as client:
            assert (await client.events())[-1]["type"] == "message_stop"
        await self.gateway.until_idle()

    async def _batch(self, amount: int, way: Way, format: str) -> list[float]:
        first, begun = len(self.upstream.requests), len(self.gateway.records)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self.gateway.chat(format=format, **self.buffers)) for _ in range(amount)]
            requests = [await self.upstream.request(first + number) for number in range(amount)]
            batch = Batch(self.gateway, clients, requests, format)
            await self.phase.reached(batch)
            assert all(request.closed is None for request in requests), "closed too early"
            try:
                # One after the other: each time is that of one abort, while the rest of the batch goes on.
                return [await self._one(client, way, requests, begun + number) for number, client in enumerate(clients)]
            except TimeoutError as error:
                raise Leak(f"{self.phase.name}: {error}") from error

    async def _one(self, client: Client, way: Way, requests: list[Request], number: int) -> float:
        """From the client's leaving until its request is closed at the provider: the one that was still open before."""
        still = [request for request in requests if request.closed is None]
        left = client.leave(way)
        await self.gateway.record(number, self.deadline)
        if self.phase.name == "retry's wait":  # nothing is open then: until the stream's end is recorded
            return self.gateway.ended(number) - left
        await requests[0].connection.bell.until(
            lambda: any(request.closed for request in still), "the gateway closes its connection", self.deadline
        )
        (closed,) = [request.closed for request in still if request.closed is not None]
        return closed - left


async def abort_while_dialling(amount: int, way: Way, format: str) -> Row:
    """Those that were dialling; the kernel's table says so. It is slow to read, so the batches are larger."""
    row = Row("dialling", way, format, [])
    async with full_listener() as listener:
        wired = wiring(provider(f"http://127.0.0.1:{listener.port}"), timeouts=Timeouts(connect=60))
        async with running(wired) as gateway:
            descriptors = _descriptors()
            while len(row.times) < amount:
                number, begun = min(50, amount - len(row.times)), len(row.times)
                async with AsyncExitStack() as stack:
                    clients = [await stack.enter_async_context(gateway.chat(format=format)) for _ in range(number)]
                    await listener.until_dialling(number)
                    for later, client in enumerate(clients, begun):
                        left = client.leave(way)
                        await gateway.record(later)
                        # Not by the table: a stream's record is written right after its socket is closed.
                        row.times.append(gateway.ended(later) - left)
                    await listener.until_dialling(0)
            await gateway.until_idle()
            await _until_descriptors(descriptors)
            assert {record["outcome"] for record in gateway.records} == {"client_disconnected"}
            assert not gateway.complaints
    return row


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _until_descriptors(amount: int) -> None:
    """Polls: a transport closes its descriptor one turn of the loop later."""
    end = time.monotonic() + 5
    while (now := _descriptors()) > amount:
        if time.monotonic() > end:
            raise Leak(f"{now} descriptors, {amount} before")
        await asyncio.sleep(0.001)


async def main(aborts: int) -> None:
    print(TITLE)
    for format in FORMATS:
        for way in WAYS:
            print(await abort_while_dialling(aborts, way, format), flush=True)
    for phase in PHASES:
        for format in phase.formats:
            async with stage(phase) as scene:
                for way in WAYS:
                    print(await scene.abort(aborts, way, format), flush=True)


if __name__ == "__main__":
    import argparse

    import uvloop

    parser = argparse.ArgumentParser(description="Prints how long the provider's socket outlives the client, phase by phase.")
    parser.add_argument("--aborts", type=int, default=100, help="for each phase, way and format")
    uvloop.run(main(parser.parse_args().aborts))
