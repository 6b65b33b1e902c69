"""The second table: LiteLLM's proxy, where it is installed, in turns with the gateway, both in front of an OpenAI upstream.

`litellm` is looked for on PATH; LITELLM=/path/to/litellm names another one.
"""

import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.bench import measures
from tests.bench.answers import OPENAI
from tests.bench.measures import System
from tests.bench.processes import TESTED, Process, free_port, running
from tests.bench.report import Report, Row, Section, number

CONFIGURATION = """\
model_list:
  - model_name: "*"
    litellm_params: {{ model: "openai/*", api_base: "http://127.0.0.1:{port}/v1", api_key: bench }}
litellm_settings: {{ telemetry: false }}
"""

PERMIT = "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"

Rounds = Callable[..., Awaitable[dict[str, list[float]]]]


async def compare(upstream: Process, gateway: System, rounds: Rounds) -> Report | str:
    program = shutil.which(os.environ.get("LITELLM", "litellm"))
    if program is None:
        return "  LiteLLM is not installed: pip install 'litellm[proxy]', or LITELLM=/path/to/litellm.\n"
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder, port = Path(name), free_port()
        (folder / "litellm.yaml").write_text(CONFIGURATION.format(port=upstream.port))
        command = [program, "--config", str(folder / "litellm.yaml"), "--port", str(port), "--host", "127.0.0.1"]
        # The second keeps it from asking the network; without the third it starts with a key only.
        quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", PERMIT: "true"}
        with running("litellm", command, port, TESTED, folder, quiet) as process:
            return await _compare(System.of(upstream), [gateway, System.of(process)], rounds, _version(program))


async def _compare(direct: System, systems: list[System], rounds: Rounds, version: str) -> Report:
    for system in systems:
        await measures.saturated(system, OPENAI, 500)
        await measures.short(system, OPENAI, requests=20, at_once=5, deltas=10)
    saturated = await rounds(3, "saturated", systems, measures.saturated, OPENAI, 2000)
    paced = await rounds(3, "paced", systems, measures.paced, OPENAI, streams=20, rate=20, deltas=40)
    short = await rounds(3, "short streams", systems, measures.short, OPENAI, requests=60, at_once=5, deltas=10)
    rows = [
        _row("saturated", "saturated stream, OpenAI upstream", "µs a delta", saturated),
        _row("paced", "paced, 20 streams × 20 a second", "µs a delta", paced),
        _row("short", "short streams of 10 deltas", "ms a request", short),
    ]
    times = await rounds(10, "first token", [direct, *systems], measures.first_delta, OPENAI)
    base = statistics.median(times.pop(direct.name))
    rows.append(_row("first_delta", "added to the first token, idle", "ms", {n: [v - base for v in values] for n, values in times.items()}))
    return Report(time.strftime("%-d %B %Y"), "the same machine", f"LiteLLM {version}", [Section("Beside LiteLLM", rows)], [])


def _row(key: str, title: str, unit: str, results: dict[str, list[float]]) -> Row:
    values = {name: statistics.median(found) for name, found in results.items()}
    return Row(key, title, unit, values, outcome=f"LiteLLM ÷ {number(values['litellm'] / values['gateway'])}")


def _version(program: str) -> str:
    said: Any = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return found[0] if found else "of unknown version"
