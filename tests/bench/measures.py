"""What is measured: each function puts one load on one process and returns a number, after every stream was found whole."""

import asyncio
import itertools
import socket
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests.bench import answers
from tests.bench.answers import CLAUDE
from tests.bench.client import Client, Connection, Reply, Wrong, check, check_document, check_text, post
from tests.bench.processes import Process

SETTLE = 0.05  # seconds in which a process finishes what it does after an answer
PAUSE = 0.02  # seconds between requests to an idle process
names = (f"s{number}" for number in itertools.count())


@dataclass(slots=True)
class System:
    """A process under test, or the upstream itself, and how it is asked. `answer`: another of the gateway's formats than its own."""

    process: Process
    client: Client
    answer: str = ""

    @classmethod
    def of(cls, process: Process) -> "System":
        return cls(process, Client(process.port))

    def answering(self, answer: str) -> "System":
        """The same process, with its answers in this format."""
        return replace(self, answer=answer)

    @property
    def name(self) -> str:
        return self.answer or self.process.name

    def request(self, model: str, path: str = CLAUDE, query: str = "", *, stream: bool = True) -> bytes:
        messages = [{"role": "user", "content": "Say something."}]
        if self.process.name == "gateway":
            provider = "claude" if path == CLAUDE else "openai"
            query = query or (f"?format={self.answer}" if self.answer else "")
            return post(f"/chat{query}", {"model": f"{provider}/{model}", "messages": messages, "stream": stream})
        return post(path, {"model": model, "max_tokens": 8192, "messages": messages, "stream": stream})


def pace(deltas: int, rate: int) -> tuple[str, str]:
    """A model that speaks at a rate, and the name under which the upstream keeps its times."""
    name = next(names)
    return f"paced.{deltas}.{rate}.{name}", name


async def saturated(system: System, path: str, deltas: int) -> float:
    """Microseconds of CPU a delta, of one stream that comes as fast as it is taken."""
    before = system.process.cpu()
    reply = await system.client.ask(system.request(f"each.{deltas}.0.x", path))
    await asyncio.sleep(SETTLE)
    spent = system.process.cpu() - before
    check(reply, answers.digest(deltas))
    return spent / deltas * 1e6


async def saturated_format(system: System, answer_format: str, deltas: int) -> float:
    """The same with another of the gateway's formats; `document` is `stream: false`."""
    whole = answer_format == "document"
    request = system.request(f"each.{deltas}.0.x", query="" if whole else f"?format={answer_format}", stream=not whole)
    before = system.process.cpu()
    reply = await system.client.ask(request)
    await asyncio.sleep(SETTLE)
    spent = system.process.cpu() - before
    if answer_format == "text":
        check_text(reply, answers.text_digest(deltas))
    elif whole:
        check_document(reply, answers.digest(deltas))
    else:
        check(reply, answers.digest(deltas))
    return spent / deltas * 1e6


async def paced(system: System, path: str, *, streams: int, rate: int, deltas: int) -> float:
    """Microseconds of CPU a delta, of streams that come at the pace of a model."""
    before = system.process.cpu()
    replies = await _together(system, path, streams, rate, deltas)
    await asyncio.sleep(SETTLE)
    spent = system.process.cpu() - before
    for reply, _ in replies:
        check(reply, answers.digest(deltas))
    return spent / (streams * deltas) * 1e6


async def short(system: System, path: str, *, requests: int, at_once: int, deltas: int) -> float:
    """ms of CPU a request, of short answers that come all at once."""
    request = system.request(f"each.{deltas}.0.x", path)
    replies: list[Reply] = []

    async def ask() -> None:
        for _ in range(requests // at_once):
            replies.append(await system.client.ask(request))

    before = system.process.cpu()
    await _all(ask() for _ in range(at_once))
    await asyncio.sleep(SETTLE)
    spent = system.process.cpu() - before
    for reply in replies:
        check(reply, answers.digest(deltas))
    return spent / len(replies) * 1e3


async def spoken(system: System, path: str, *, requests: int, at_once: int, deltas: int, rate: int) -> float:
    """ms of CPU a request, of short answers whose deltas come one by one, as a model speaks."""
    before = system.process.cpu()
    replies = []
    for _ in range(requests // at_once):
        replies += await _together(system, path, at_once, rate, deltas)
    await asyncio.sleep(SETTLE)
    spent = system.process.cpu() - before
    for reply, _ in replies:
        check(reply, answers.digest(deltas))
    return spent / len(replies) * 1e3


async def first_delta(system: System, path: str) -> float:
    """ms from the request to the first delta, on a process that does nothing else: of four requests with pauses, behind one that does
    not count. For that one the core's caches are full of the process whose turn was before, which no idle gateway has beside it."""
    times = []
    for _ in range(5):
        model, _ = pace(3, 200)
        reply = await system.client.ask(system.request(model, path))
        check(reply, answers.digest(3))
        times.append((reply.arrivals()[0] - reply.asked) * 1e3)
        await asyncio.sleep(PAUSE)
    return statistics.median(times[1:])


@dataclass(frozen=True, slots=True)
class Crowd:
    cpu: float  # % of one core
    p50: float  # ms
    p99: float


async def crowd(system: System, upstream: Client, *, streams: int, rate: int, deltas: int) -> Crowd:
    """Many streams at once: the CPU, and how late the deltas arrive, while all of them speak."""
    seconds = deltas / rate
    spread = 1.5  # seconds in which the streams begin
    window: list[tuple[float, float]] = []

    async def watch() -> None:
        for wait in (spread + 0.2, seconds - spread - 0.4):
            await asyncio.sleep(wait)
            window.append((time.monotonic(), system.process.cpu()))

    _, replies = await asyncio.gather(watch(), _together(system, CLAUDE, streams, rate, deltas, spread))
    times = await _times(upstream, replies)
    for reply, _ in replies:
        check(reply, answers.digest(deltas))
    (start, before), (end, after) = window
    cuts = statistics.quantiles([(arrived - written) * 1e3 for written, arrived in times if start <= written <= end], n=100)
    return Crowd((after - before) / (end - start) * 100, cuts[49], cuts[98])


async def beside(system: System, upstream: Client, heavy: str, *, streams: int, rate: int, deltas: int) -> float:
    """ms: the latest delta of streams beside one that gets what `heavy` says."""
    mode, count = heavy.split(".")[0], int(heavy.split(".")[1])

    async def overwhelm() -> Reply:
        await asyncio.sleep(0.3)
        return await system.client.ask(system.request(heavy))

    flood, replies = await asyncio.gather(overwhelm(), _together(system, CLAUDE, streams, rate, deltas))
    check(flood, answers.large_digest(count) if mode == "large" else answers.digest(count))
    last = max(reply.times[-1] for reply, _ in replies)
    if flood.times[-1] > last:
        raise Wrong(f"{system.name} took {flood.times[-1] - flood.asked:.1f} s for the heavy stream, longer than the others lasted")
    for reply, _ in replies:
        check(reply, answers.digest(deltas))
    return max((arrived - written) * 1e3 for written, arrived in await _times(upstream, replies))


@dataclass(frozen=True, slots=True)
class Aborts:
    times: tuple[float, ...]  # ms
    leaks: int


async def aborts(system: System, upstream: Client, mode: str, *, count: int, at_once: int = 20) -> Aborts:
    """Clients that leave, by FIN and by RST in turn, once the upstream has their request: how long until it sees them gone."""
    times: list[float] = []
    leaks = 0
    for _ in range(count // at_once):
        left: dict[str, float] = {}
        leaving: list[tuple[Connection, str]] = []
        for _ in range(at_once):
            model, name = pace(2000, 50)
            connection = await Client(system.process.port).connection()
            connection.ask(system.request(model if mode == "flowing" else f"silent.0.0.{name}"))
            leaving.append((connection, name))
        await _until(partial(upstream.get, "/streams"), {name for _, name in leaving}.issubset)
        if mode == "flowing":
            for connection, _ in leaving:
                await connection.begun()
        for number, (connection, name) in enumerate(leaving):
            if number % 2:
                connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            left[name] = time.monotonic()
            connection.transport.abort()
            await asyncio.sleep(0.002)
        for name, since in left.items():
            seen = await _until(partial(upstream.get, f"/closed/{name}"), bool, 2.0)
            if seen:
                times.append((seen - since) * 1e3)
            else:
                leaks += 1
    return Aborts(tuple(times), leaks)


@dataclass(frozen=True, slots=True)
class Memory:
    at_rest: float  # MB
    stream: float  # KB


async def memory(system: System, upstream: Client, *, streams: int) -> Memory:
    """Of a process that has answered a few requests, and what each open stream adds."""
    await short(system, CLAUDE, requests=40, at_once=10, deltas=10)
    before = system.process.resident()
    async with _open(system, upstream, streams):
        after = system.process.resident()
    return Memory(before / 1e6, (after - before) / streams / 1e3)


@asynccontextmanager
async def _open(system: System, upstream: Client, streams: int) -> AsyncIterator[None]:
    """Streams that all have said something, a delta a second."""
    connections = []
    for _ in range(streams):
        model, _ = pace(2000, 1)
        connection = await Client(system.process.port).connection()
        connection.ask(system.request(model))
        connections.append(connection)
    for connection in connections:
        await connection.begun()
    await asyncio.sleep(1.2)
    try:
        yield
    finally:
        for connection in connections:
            connection.transport.abort()
        await _until(partial(upstream.get, "/streams"), lambda found: not found, 5.0)


async def _together(
    system: System, path: str, streams: int, rate: int, deltas: int, spread: float | None = None
) -> list[tuple[Reply, str]]:
    """Paced streams, begun one after the other within `spread` (one delta's time, unless told) so that they do not speak in step."""

    async def one(number: int) -> tuple[Reply, str]:
        await asyncio.sleep(number * (spread or 1 / rate) / streams)
        model, name = pace(deltas, rate)
        return await system.client.ask(system.request(model, path)), name

    return await _all(one(number) for number in range(streams))


async def _times(upstream: Client, replies: list[tuple[Reply, str]]) -> list[tuple[float, float]]:
    """When each delta was written and when it arrived."""
    times: list[tuple[float, float]] = []
    for reply, name in replies:
        times += zip(await upstream.get(f"/sent/{name}"), reply.arrivals(), strict=True)
    return times


async def _all(awaitables: Any) -> list[Any]:
    return list(await asyncio.gather(*awaitables))


async def _until(ask: Callable[[], Awaitable[Any]], good: Callable[[Any], bool], seconds: float = 20.0) -> Any:
    """The first good answer, or the last one."""
    deadline = time.monotonic() + seconds
    while True:
        found = await ask()
        if good(found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.002)
