"""`simulate`: the simulator as a stand-alone Claude and OpenAI server, for tests, demonstrations and other people's clients."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping

import uvloop

from gateway import __version__
from gateway.commands import Paint, cannot_listen, url
from gateway.settings.mistakes import ConfigurationError, close_match
from gateway.simulate_server import BACKLOG, SimulateServer
from gateway.simulator import FAULTS, MODELS, answer

NUMBERS = ("speed", "tokens", "thinking", "tool", "chunk", "wait", "after")
WISHES = (*NUMBERS, "fault")


def run(arguments: Mapping[str, str | None]) -> int:
    wishes = words(arguments)
    host, port = (arguments["host"] or "127.0.0.1").strip("[]"), _port(arguments["port"])
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG)
    except OSError as error:
        print(cannot_listen(host, port, error, "--port {}", "--host 127.0.0.1"), file=sys.stderr)
        return 2
    print(screen(host, listener.getsockname()[1], wishes, Paint(sys.stdout, os.environ)), flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(listener, wishes))
    return 0


async def _serve(listener: socket.socket, wishes: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with SimulateServer(listener, lambda path, body: answer(path, body, wishes)):
        await stop.wait()


def words(arguments: Mapping[str, str | None]) -> str:
    """The options as the simulator's own `key=value` words; a `ConfigurationError` for what it would not understand."""
    given = {name: value for name in WISHES if (value := arguments.get(name)) is not None}
    wrong = [name for name, value in given.items() if name in NUMBERS and not _number(value)]
    mistakes = [f"--{name}: expected a number such as 0.03 or 500" for name in wrong]
    if (fault := given.get("fault")) is not None and not _fault(fault):
        mistakes.append(f"--fault: expected status:529 (400 to 599) or one of {', '.join(FAULTS)}{close_match(fault, list(FAULTS))}")
    if mistakes:
        raise ConfigurationError(mistakes)
    return " ".join(f"{name}={value}" for name, value in given.items())


def _number(text: str) -> bool:
    whole, point, rest = text.partition(".")
    return text.isascii() and whole.isdigit() and (rest.isdigit() or not point)


def _fault(text: str) -> bool:
    kind, _, status = text.partition(":")
    return text in FAULTS or (kind == "status" and len(status) == 3 and status.isascii() and status.isdigit() and status[0] in "45")


def _port(text: str | None) -> int:
    if text is None:
        return 9000
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ConfigurationError(["--port: expected a whole number from 0 to 65535"])
    return int(text)


def screen(host: str, port: int, wishes: str, paint: Paint) -> str:
    """Where it is, how a gateway is pointed at it, and what a request may wish for."""
    here = url(host, port)
    rows = [
        ("Claude", paint("link", here)),
        ("OpenAI", paint("link", f"{here}/v1")),
        ("Models", f"{', '.join(MODELS)}, and any other name; any key"),
        ("Wishes", f"{wishes or 'none'} for every answer; stronger in a request's model or text: speed=0 tokens=500 fault=cut"),
        ("", ""),
        ("Try", paint("bold", f"ANTHROPIC_BASE_URL={here} make run")),
        ("", paint("bold", f"OPENAI_BASE_URL={here}/v1 make run")),
        ("Stop", "Ctrl-C"),
    ]
    head = f"  {paint('bold', 'Simulated provider')} {paint('dim', __version__)}"
    return "\n".join(["", head, "", *(f"  {paint('dim', label.ljust(6))}  {text}".rstrip() for label, text in rows), ""])
