"""The commands, one module each, and how they write: short lines for people, colour only where it can be seen.

Each module is imported when its command runs: nobody waits for a server's imports to read a schema.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from gateway.settings import Configuration, gather
from gateway.settings.mistakes import Place

MOST_ROWS = 12  # of each kind on the start screen
STYLES = {"bold": "1", "dim": "2", "link": "1;36", "red": "31", "green": "32", "yellow": "33", "magenta": "35"}


def configuration(arguments: Mapping[str, str | None]) -> Configuration:
    """What the environment, `.env`, the file and the command line say together, mistakes included."""
    given: dict[Place, object] = {("server", key): value for key in ("host", "port") if (value := arguments.get(key)) is not None}
    return gather(os.environ, config=arguments.get("config"), command_line=given)


class Paint:
    """Emphasis for a terminal; plain text everywhere else, and where NO_COLOR (https://no-color.org) asks for it."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._on = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self._on else text


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines, each column as wide as its longest cell, the last one open."""
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(max(map(len, rows), default=0) - 1)]
    return [indent + "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[-1]]).rstrip() for row in rows]


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def cannot_listen(host: str, port: int, error: OSError, port_remedy: str, host_remedy: str) -> str:
    """One sentence with the remedy: how to say another port (its number in place of `{}`), how to say the usual host."""
    where = f"Port {port} on {host}"
    if error.errno == errno.EADDRINUSE:
        other = port_remedy.format(port + 1 if port < 65_535 else 8000)
        return f"{where} is taken: stop the other program or choose another with {other}."
    if error.errno == errno.EACCES:
        return f"{where} is reserved for root: choose one above 1023 with {port_remedy.format(8000)}."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where} cannot be opened: this machine has no such address. The usual one is {host_remedy}."
    return f"{where} cannot be opened: {error.strerror or 'the address is not usable'}."


def seconds(value: float | None) -> str:
    return "none" if value is None else f"{value * 1000:g}ms" if 0 < value < 1 else f"{value:g}s"
