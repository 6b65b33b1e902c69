"""Streams through a gateway process while clients leave at random; at the end nothing may have grown.

    python tests/e2e/soak.py --seconds 20

Fails (exit status 1) if the gateway's memory at the end is more than 5 MB above that of its first minute (of its first third in
a short run), if descriptors or connections to the provider are left, if a stream that was read to its end was not exactly
what the provider had said, or if anything was logged as a warning. Traffic goes to 127.0.0.1 only.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import uvloop

from gateway.simulator import Script, Wait
from tests.e2e.client import Client, Json
from tests.e2e.provider import BLOCK, ENDING, OPENAI_DONE, OPENAI_FINISH, START, delta, openai_text, stream
from tests.e2e.running import Process, process
from tests.upstream import Request, ScriptedUpstream

CLIENTS = 20  # at once
WORDS = [f"word{number} " for number in range(40)]
TEXT = "".join(WORDS)
MAY_GROW = 5 * 1024 * 1024  # bytes
FORMATS = ("native", "ndjson", "text", "whole")
SLOW = 0.25  # the share of answers that come word by word


def answer(request: Request) -> Script:
    """The same words in both formats; the prompt says how slowly."""
    pause = Wait(0.01 if b"slowly" in request.body else 0)
    if request.path.endswith("/messages"):
        steps = [step for word in WORDS for step in (delta(word), pause)]
        return stream(START + BLOCK, *steps, ENDING)
    return stream(*[step for word in WORDS for step in (openai_text(word), pause)], OPENAI_FINISH + OPENAI_DONE)


def configuration(url: str) -> Json:
    return {
        "providers": {
            "claude": {"type": "anthropic", "base_url": url, "api_key": "sk-soak"},
            "gpt": {"type": "openai", "base_url": f"{url}/v1", "api_key": "sk-soak"},
        },
        "models": {"claude": {"targets": ["claude/m"]}, "gpt": {"targets": ["gpt/m"]}},
        "server": {"shutdown_grace": "1s"},
    }


@dataclass(slots=True)
class Tally:
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


async def one_client(gateway: Process, chance: random.Random, tally: Tally) -> None:
    """One chat: read to its end and compared, or left at some moment in some way."""
    format = chance.choice(FORMATS)
    pace = "slowly" if chance.random() < SLOW else "at once"
    body: Json = {"model": chance.choice(("claude", "gpt")), "messages": [{"role": "user", "content": pace}], "stream": format != "whole"}
    leaves = chance.random() < 0.5
    path = "/chat" if format in ("native", "whole") else f"/chat?format={format}"
    async with gateway.chat(body, path=path, receive_buffer=4096 if chance.random() < 0.1 else None) as client:
        if not leaves:
            found = await _text(client, format)
            tally.outcomes["read to the end"] += 1
            if found != TEXT:
                tally.wrong.append(f"{format}: {found[:200]!r}")
            return
        way = chance.choice(("fin", "rst"))
        moment = chance.choice(("at once", "after a while", "in mid-stream"))
        if moment == "after a while":
            await asyncio.sleep(chance.random() * 0.05)
        elif moment == "in mid-stream" and format != "whole":
            for _ in range(chance.randrange(1, 10)):
                await client.piece()
        client.leave(way)
        tally.outcomes[f"left {moment} by {way}"] += 1


async def _text(client: Client, format: str) -> str:
    if await client.head() != 200:
        return f"status {client.status}: {await client.body()!r}"
    if format == "text":
        return (await client.body()).decode()
    if format == "whole":
        return "".join(block["text"] for block in (await client.json())["content"])
    events = await client.events()
    if events[-1]["type"] != "message_stop":
        return repr(events[-1])
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


async def clients(gateway: Process, chance: random.Random, tally: Tally, end: float) -> None:
    while time.monotonic() < end:
        await one_client(gateway, chance, tally)


async def soak(seconds: float, seed: int) -> list[str]:
    """What was wrong; prints how it goes."""
    chance, tally = random.Random(seed), Tally()
    async with ScriptedUpstream(answer) as upstream, process(configuration(upstream.url)) as gateway:
        await one_client(gateway, random.Random(1), Tally())
        idle, begun = gateway.descriptors(), time.monotonic()
        reference, reference_at = 0, min(60.0, seconds / 3)
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(clients(gateway, random.Random(chance.random()), tally, begun + seconds), name=f"client {number}")
            while (elapsed := time.monotonic() - begun) < seconds:
                await asyncio.sleep(min(reference_at, seconds - elapsed) if not reference else min(10.0, seconds - elapsed))
                resident = gateway.resident()
                reference = reference or resident
                print(f"{time.monotonic() - begun:6.1f} s  {sum(tally.outcomes.values()):7} streams  {_mb(resident)}", flush=True)
                upstream.requests.clear()
                upstream.connections[:] = upstream.open
                gc.collect()
        resident = gateway.resident()
        problems = [f"a stream was not what the provider said: {text}" for text in tally.wrong[:5]]
        if resident > reference + MAY_GROW:
            problems.append(f"memory grew from {_mb(reference)} to {_mb(resident)}")
        problems += await _until_quiet(gateway, upstream, idle)
        complaints = [line for line in gateway.lines() if line["level"] not in ("info", "debug")]
        problems += [f"logged: {json.dumps(line)}" for line in complaints[:5]]
        outcomes = Counter(record["outcome"] for record in gateway.records())
        gateway.signal()
        if code := await gateway.exit_code(10):
            problems.append(f"exit status {code}")
        await upstream.until_all_closed()
    _print_table(tally, outcomes, reference, resident)
    return problems


async def _until_quiet(gateway: Process, upstream: ScriptedUpstream, idle: int) -> list[str]:
    """With every client gone only whole answers' connections may be left, which are rightly kept for the next request."""
    end = time.monotonic() + 5
    while True:
        leaked = [connection for connection in upstream.open if not all(request.answered for request in connection.requests)]
        left = gateway.descriptors() - idle - len(upstream.open)
        if not leaked and left <= 0:
            return []
        if time.monotonic() > end:
            return [f"{len(leaked)} answers of the provider nobody reads are still open, and {max(left, 0)} descriptors more"]
        await asyncio.sleep(0.05)


def _mb(amount: int) -> str:
    return f"{amount / 1024 / 1024:.1f} MB"


def _print_table(tally: Tally, outcomes: Counter[str], reference: int, resident: int) -> None:
    print()
    for name, amount in sorted(tally.outcomes.items()):
        print(f"{name:<32}{amount:>8}")
    for name, amount in sorted(outcomes.items()):
        print(f"{'recorded as ' + name:<32}{amount:>8}")
    print(f"{'memory then and at the end':<32}{_mb(reference):>12}{_mb(resident):>12}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Streams while clients leave at random; fails if anything leaks or is wrong.")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    problems = uvloop.run(soak(arguments.seconds, arguments.seed))
    for problem in problems:
        print(f"FAILED: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
