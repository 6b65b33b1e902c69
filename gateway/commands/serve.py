"""`serve`: binds the port, shows one screen, and runs until it is told to stop."""

import errno
import json
import os
import shlex
import sys
from collections.abc import Mapping

from gateway import __version__
from gateway.commands import MOST_ROWS, Paint, configuration
from gateway.routing import Model
from gateway.wiring import Server, Wiring, wire


def run(arguments: Mapping[str, str | None]) -> int:
    wiring = wire(configuration(arguments))
    from gateway import server  # the web framework comes in only once the configuration is known to be good

    try:
        listener = server.bind(wiring)  # before the screen, which must not promise a port that is taken
    except OSError as error:
        print(cannot_listen(wiring.server, error), file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    print(screen(wiring, port, Paint(sys.stdout, os.environ)), flush=True)
    return server.run(wiring, listener)


def cannot_listen(server: Server, error: OSError) -> str:
    """One sentence with the remedy."""
    where = f"Port {server.port} on {server.host}"
    if error.errno == errno.EADDRINUSE:
        other = server.port + 1 if server.port < 65_535 else 8000
        return f"{where} is taken: stop the other program or choose another with PORT={other} make run."
    if error.errno == errno.EACCES:
        return f"{where} is reserved for root: choose one above 1023 with PORT=8000 make run."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} cannot be opened: this machine has no such address. The usual one is HOST=127.0.0.1."
    return f"{where} cannot be opened: {error.strerror or 'the address is not usable'}."


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def targets(model: Model) -> str:
    """The targets in the order in which they are tried."""
    return ", then ".join(f"{target.provider.name}/{target.model or '(the first it lists)'}" for target in model.targets)


def screen(wiring: Wiring, port: int, paint: Paint) -> str:
    """What a person sees first: where, what, whence the keys, and a line to try."""
    here = url(wiring.server.host, port)
    models = [(name, targets(model)) for name, model in wiring.models.items()]
    keys = [(name, connection.key_source) for name, connection in wiring.providers.items()]
    width = max(len(name) for name, _ in [*models[:MOST_ROWS], *keys[:MOST_ROWS], ("", "")])
    lines = ["", f"  {paint('bold', 'Chat Stream Gateway')} {paint('dim', __version__)}   {paint('link', here)}", ""]
    lines += _section("Models", models or [("–", "none configured: callers name provider/model")], width, paint)
    lines += _section("Keys", keys, width, paint)
    if all(connection.transport == "simulator" for connection in wiring.providers.values()):
        lines += ["  Only the simulator answers. ANTHROPIC_API_KEY or OPENAI_API_KEY, set here or in .env, brings a real model.", ""]
    lines += [f"  {paint('dim', 'Try')}     {paint('bold', _curl(wiring, here))}", f"  {paint('dim', 'Stop')}    Ctrl-C", ""]
    return "\n".join(lines)


def _curl(wiring: Wiring, here: str) -> str:
    """A chat to paste into a shell; it names a model only where there is no `default`."""
    chat: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]}
    if wiring.models and "default" not in wiring.models:
        chat = {"model": next(iter(wiring.models)), **chat}
    return f"curl -N -d {shlex.quote(json.dumps(chat, separators=(',', ':')))} {here}/chat"


def _section(title: str, rows: list[tuple[str, str]], width: int, paint: Paint) -> list[str]:
    label = title
    lines = []
    for name, text in rows[:MOST_ROWS]:
        lines.append(f"  {paint('dim', label.ljust(6))}  {name.ljust(width)}  {text}")
        label = ""
    if len(rows) > MOST_ROWS:
        lines.append(f"  {'':6}  and {len(rows) - MOST_ROWS} more: gateway check shows all")
    return [*lines, ""]
