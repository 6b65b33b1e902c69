"""`make bench`: the gateway as shipped, nginx as byte proxy and a naive gateway, in turns under the same loads, in one table.

Numbers are medians over rounds; in a round each process has its turn, so that whatever else the machine does meets all of them.
WRITE=1 keeps the results in docs/bench.json and draws docs/bench.svg; PEERS=1 adds a table against LiteLLM where it is installed.
"""

import gc
import importlib.metadata
import os
import platform
import random
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvloop

from gateway.wiring import ANSWERS
from tests.bench import measures, peers, plot
from tests.bench.answers import CLAUDE, OPENAI
from tests.bench.client import Client, Wrong
from tests.bench.measures import System
from tests.bench.processes import ROOT, TESTED, Process, Unusable, busy, everything, nginx_version
from tests.bench.report import Paint, Report, Row, Section, number, per, table

Result = TypeVar("Result")

SATURATED = 10_000  # deltas
SHORT = 10
LARGE = 16 * 1024 * 1024 - 64 * 1024  # bytes of one delta's text: with all around it just what the gateway takes
BURST = 100_000  # deltas
HEAVY = {
    f"large.{LARGE}.0.x": ("an event of 16 MiB in pieces of 4 KiB", "large_event"),
    f"burst.{BURST}.0.x": ("10⁵ events in one burst", "burst"),
}
FORMATS = {"ndjson": "ndjson", "text": "text", "document": "stream: false"}
# The other vendors' formats: each with either upstream.
CLIENTS = {
    name: {"anthropic": "Claude", "openai": "OpenAI", "ai-sdk": "AI SDK"}.get(name, name)
    for name in ANSWERS
    if name not in ("native", *FORMATS)
}


async def rounds(
    count: int, label: str, systems: Iterable[System], measure: Callable[..., Awaitable[Result]], *load: Any, **more: Any
) -> dict[str, list[Result]]:
    """What `measure` finds for each system under the load; the systems take turns, in another order each time.

    Who comes after a process of the same Python finds some of its caches warm.
    """
    results: dict[str, list[Result]] = {}
    order = list(systems)
    for turn in range(count):
        random.Random(turn).shuffle(order)  # the same in every run
        for system in order:
            say(f"{label} · round {turn + 1} of {count} · {system.name}")
            gc.collect()
            results.setdefault(system.name, []).append(await measure(system, *load, **more))
    return results


def medians(results: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in results.items()}


async def run(upstream_process: Process, processes: dict[str, Process]) -> list[Section]:
    upstream, direct = Client(upstream_process.port), System.of(upstream_process)
    systems = [System.of(process) for process in processes.values()]
    gateway, nginx, naive = systems
    memory = await measure_memory(systems, upstream)
    await warm(systems)
    return [
        Section("CPU", [*await measure_cpu(systems), *await measure_formats(gateway)]),
        Section("Delay", [await measure_first_delta(direct, systems), *await measure_crowd([gateway, nginx], upstream)]),
        Section("Latest delta of twenty streams beside a heavy one", await measure_heavy([gateway, nginx], upstream)),
        Section("From a client’s leaving to the upstream’s seeing it", await measure_aborts([gateway, nginx, naive], upstream)),
        Section("Memory", memory),
    ]


async def warm(systems: list[System]) -> None:
    """Bytes are computed and code paths compiled before anything counts."""
    for system in systems:
        say(f"warming up · {system.name}")
        for path in (CLAUDE, OPENAI):
            for one in (system, *(clients(system) if system.name == "gateway" else ())):
                await measures.saturated(one, path, SATURATED)
            await measures.short(system, path, requests=50, at_once=10, deltas=SHORT)
        if system.name != "naive":
            for heavy in HEAVY:
                await system.client.ask(system.request(heavy))


async def measure_cpu(systems: list[System]) -> list[Row]:
    rows = []
    for path, name in ((CLAUDE, "Claude"), (OPENAI, "OpenAI")):
        turns = [*systems, *clients(systems[0])]
        all_found = medians(await rounds(7, f"saturated, {name}", turns, measures.saturated, path, SATURATED))
        found = {system.name: all_found[system.name] for system in systems}
        ours, proxy, other = found.values()
        outcome = f"{per(ours, proxy)} nginx, naive ÷ {number(other / ours)}"
        met = (ours <= 8 or ours <= 7 * proxy) and other / ours >= 12
        title = f"saturated stream, {name} upstream"
        rows.append(Row(f"saturated_{name.lower()}", title, "µs a delta", found, "≤ 8 or 7× nginx; naive ÷ 12", outcome, met))
        for client, shown in CLIENTS.items():
            pair = all_found[client]
            key, title = f"pair_{name.lower()}_{client}", f"… answered as {shown}’s clients read it"
            values = {"gateway": pair}
            rows.append(Row(key, title, "µs a delta", values, "≤ 1.5× native", f"{per(pair, ours)} native", pair <= 1.5 * ours))
    found = medians(await rounds(3, "paced", systems, measures.paced, CLAUDE, streams=20, rate=20, deltas=50))
    rows.append(times_nginx("paced", "paced, 20 streams × 20 a second", "µs a delta", found, 4))
    found = medians(await rounds(7, "short streams", systems, measures.short, CLAUDE, requests=400, at_once=10, deltas=SHORT))
    rows.append(times_nginx("short", "short streams of 10 deltas, all at once", "ms a request", found, 11, " (stretch 7×)"))
    found = medians(await rounds(3, "spoken streams", systems, measures.spoken, CLAUDE, requests=200, at_once=10, deltas=SHORT, rate=200))
    rows.append(times_nginx("spoken", "… a delta each 5 ms, as models speak", "ms a request", found, 11, " (stretch 7×)"))
    return rows


def clients(gateway: System) -> list[System]:
    return [gateway.answering(name) for name in CLIENTS]


def times_nginx(key: str, title: str, unit: str, found: dict[str, float], most: float, stretch: str = "") -> Row:
    ours, proxy = found["gateway"], found["nginx"]
    return Row(key, title, unit, found, f"≤ {most:g}× nginx{stretch}", f"{per(ours, proxy)} nginx", ours <= most * proxy)


async def measure_formats(gateway: System) -> list[Row]:
    rows = []
    for name, title in FORMATS.items():
        await measures.saturated_format(gateway, name, SATURATED)
        found = medians(await rounds(5, f"saturated, {title}", [gateway], measures.saturated_format, name, SATURATED))
        rows.append(Row(f"format_{name}", f"saturated, answered as {title}", "µs a delta", found))
    return rows


async def measure_first_delta(direct: System, systems: list[System]) -> Row:
    found = medians(await rounds(25, "first token", [direct, *systems], measures.first_delta, CLAUDE))
    base = found.pop(direct.name)
    added = {name: value - base for name, value in found.items()}
    share = added["gateway"] / added["naive"]
    title, target = "added to the first token, idle", "≤ ½ naive (stretch ⅓)"
    return Row("first_delta", title, "ms", added, target, f"{share:.2f} × naive", share <= 1 / 2)


async def measure_crowd(systems: list[System], upstream: Client) -> list[Row]:
    results = await rounds(3, "500 streams", systems, measures.crowd, upstream, streams=500, rate=10, deltas=45)
    cpu, middle, late = (
        medians({name: [getattr(one, field) for one in found] for name, found in results.items()}) for field in ("cpu", "p50", "p99")
    )
    title = "500 streams × 10 a second"
    return [
        Row("crowd_cpu", f"{title}, CPU", "% of a core", cpu, "< 100 %", "", cpu["gateway"] < 100),
        Row("crowd_p50", f"{title}, delay p50", "ms", middle),
        times_nginx("crowd_p99", f"{title}, delay p99", "ms", late, 5),
    ]


async def measure_heavy(systems: list[System], upstream: Client) -> list[Row]:
    rows = []
    for heavy, (title, key) in HEAVY.items():
        found = medians(await rounds(3, title, systems, measures.beside, upstream, heavy, streams=20, rate=50, deltas=150))
        rows.append(Row(f"beside_{key}", title, "ms", found, "≤ 100 ms", "", found["gateway"] <= 100))
    return rows


async def measure_aborts(systems: list[System], upstream: Client) -> list[Row]:
    rows, leaks = [], {system.name: 0.0 for system in systems}
    for mode in ("silent", "flowing"):
        seen: dict[str, list[float]] = {system.name: [] for system in systems}
        for share in range(10):
            for system in systems:
                say(f"aborts, upstream {mode} · {share + 1} of 10 · {system.name}")
                found = await measures.aborts(system, upstream, mode, count=40 if system.name == "gateway" else 20)
                seen[system.name] += found.times
                leaks[system.name] += found.leaks
        middle, most = medians(seen), {name: max(times) for name, times in seen.items()}
        ours = middle["gateway"], most["gateway"]
        rows += [
            Row(f"abort_{mode}_p50", f"upstream {mode}, p50", "ms", middle, "≤ 5 ms", "", ours[0] <= 5),
            Row(f"abort_{mode}_max", f"upstream {mode}, max", "ms", most, "≤ 50 ms", "", ours[1] <= 50),
        ]
    ours_leaked = leaks["gateway"]
    rows.append(Row("abort_leaks", "upstreams left open, of 800 (others: of 400)", "", leaks, "0", "", ours_leaked == 0))
    return rows


async def measure_memory(systems: list[System], upstream: Client) -> list[Row]:
    """First of all, while the processes are as fresh as after a start."""
    found = await rounds(1, "memory", systems, measures.memory, upstream, streams=500)
    stream = {name: one[0].stream for name, one in found.items()}
    rest = {name: one[0].at_rest for name, one in found.items()}
    ours = stream["gateway"], rest["gateway"]
    return [
        Row("memory_stream", "each open stream (500 of them)", "KB", stream, "≤ 45 KB", "", ours[0] <= 45),
        Row("memory_rest", "at rest", "MB", rest, "≤ 80 MB", "", ours[1] <= 80),
    ]


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> str:
    names = ("uvicorn", "uvloop", "httptools", "msgspec", "httpx", "fastapi")
    packages = " · ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return f"Python {platform.python_version()} · {packages} · nginx {nginx_version()}"


def say(text: str) -> None:
    """Where the run is, on one line, if somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {text}", end="" if text else "\r", file=sys.stderr, flush=True)


def wanted(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


async def main() -> int:
    paint = Paint(sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    gc.disable()  # the client's pauses would look like the gateway's delays
    with everything() as (upstream, processes):
        report = await compare(upstream, processes)
        say("")
        print(table(report, paint))
        if wanted("WRITE"):
            write(report)
        if wanted("PEERS"):
            beside = await peers.compare(upstream, System.of(processes["gateway"]), rounds)
            say("")
            print(beside if isinstance(beside, str) else table(beside, paint, ("gateway", "litellm")))
    return 0


async def compare(upstream: Process, processes: dict[str, Process]) -> Report:
    def others() -> float:
        return busy() - sum(process.cpu() for process in processes.values())

    began, before = time.monotonic(), others()
    sections = await run(upstream, processes)
    took = time.monotonic() - began
    share = (others() - before) / took * 100
    notes = ["CPU is user and system time of the process under test. Medians of rounds in turns. Every stream was counted and hashed."]
    if TESTED is None:
        notes.append("There is one core only: the load ran beside the process under test, and delays are worth little.")
    notes.append(
        f"Other programs used {share:.0f} % of the core of the process under test"
        + (": the machine was not quiet, and delays and paced costs are too high." if share > 5 else ".")
    )
    notes.append(f"Took {took:.0f} s.")
    return Report(time.strftime("%-d %B %Y"), machine(), versions(), sections, notes)


def write(report: Report) -> None:
    docs = ROOT / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "bench.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    (docs / "bench.svg").write_text(plot.svg(report), "utf-8")
    print("  Written: docs/bench.json, docs/bench.svg\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the processes that were started must not outlive this one
    try:
        sys.exit(uvloop.run(main()))
    except Unusable as error:
        sys.exit(str(error))
    except Wrong as error:
        sys.exit(f"The run is worth nothing, for a stream was not what was sent: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
