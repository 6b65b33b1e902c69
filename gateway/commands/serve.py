"""`serve`: binds the port, shows one screen, and runs until it is told to stop."""

import json
import os
import shlex
import sys
from collections.abc import Mapping

from gateway import __version__
from gateway.commands import MOST_ROWS, Paint, cannot_listen, configuration, url
from gateway.routing import Model
from gateway.wiring import Access, Server, Wiring, wire


def run(arguments: Mapping[str, str | None]) -> int:
    _open_standard_streams()
    wiring = wire(configuration(arguments))
    from gateway import server  # the web framework comes in only once the configuration is known to be good

    try:
        listener = server.bind(wiring)  # before the screen, which must not promise a port that is taken
    except OSError as error:
        print(cannot_listen(wiring.server.host, wiring.server.port, error, "PORT={} make run", "HOST=127.0.0.1"), file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    print(screen(wiring, port, Paint(sys.stdout, os.environ)), flush=True)
    return server.run(wiring, listener, Paint(sys.stderr, os.environ))


def _open_standard_streams() -> None:
    """Where the process was started without one, a socket would get its number, and libuv ends a process that closes such a socket."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115  # for as long as the process runs


def targets(model: Model) -> str:
    """The targets in the order in which they are tried."""
    return ", then ".join(f"{target.provider.name}/{target.model or '(the first it lists)'}" for target in model.targets)


def screen(wiring: Wiring, port: int, paint: Paint) -> str:
    """What a person sees first: where, what, whence the keys, and a line to try."""
    here = url(_reached(wiring.server), port)
    models = [(name, targets(model)) for name, model in wiring.models.items()]
    keys = [(name, connection.key_source) for name, connection in wiring.providers.items()]
    width = max(len(name) for name, _ in [*models[:MOST_ROWS], *keys[:MOST_ROWS], ("", "")])
    lines = ["", f"  {paint('bold', 'Chat Stream Gateway')} {paint('dim', __version__)}   {paint('link', here)}", ""]
    lines += _section("Models", models or [("–", "none configured: callers name provider/model")], width, paint)
    lines += _section("Keys", keys, width, paint)
    if who := _who(wiring.access, wiring.server):
        lines += [f"  {paint('dim', 'Access')}  {who}", ""]
    if all(connection.transport == "simulator" for connection in wiring.providers.values()):
        lines += ["  Only the simulator answers. ANTHROPIC_API_KEY or OPENAI_API_KEY, set here or in .env, brings a real model.", ""]
    lines += [f"  {paint('dim', 'Try')}     {paint('bold', _curl(wiring, here))}", f"  {paint('dim', 'Stop')}    Ctrl-C", ""]
    return "\n".join(lines)


def _reached(server: Server) -> str:
    """An address to write into a browser: the wildcards are none."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)


def _who(access: Access, server: Server) -> str:
    """Who may call; nothing to say of a gateway that answers its own machine only."""
    names = [caller.name for caller in access.callers]
    where = "" if server.loopback else f", on {server.host}"
    if names:
        more = f" and {len(names) - MOST_ROWS} more" if len(names) > MOST_ROWS else ""
        return f"with a key: {', '.join(names[:MOST_ROWS])}{more}{where}"
    return f"everybody{where} (access.open)" if where else ""


def _curl(wiring: Wiring, here: str) -> str:
    """A chat to paste into a shell; it names a model only where there is no `default`."""
    chat: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}]}
    if wiring.models and "default" not in wiring.models:
        chat = {"model": next(iter(wiring.models)), **chat}
    key = "-H 'Authorization: Bearer KEY' " if wiring.access.callers else ""
    return f"curl -N {key}-d {shlex.quote(json.dumps(chat, separators=(',', ':')))} {here}/chat"


def _section(title: str, rows: list[tuple[str, str]], width: int, paint: Paint) -> list[str]:
    label = title
    lines = []
    for name, text in rows[:MOST_ROWS]:
        lines.append(f"  {paint('dim', label.ljust(6))}  {name.ljust(width)}  {text}")
        label = ""
    if len(rows) > MOST_ROWS:
        lines.append(f"  {'':6}  and {len(rows) - MOST_ROWS} more: python -m gateway check shows all")
    return [*lines, ""]
