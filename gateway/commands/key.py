"""`key NAME`: makes a caller's key. It is shown once; the line for the keys file holds only its hash."""

import hashlib
import os
import secrets
import sys
from collections.abc import Mapping

from gateway.commands import Paint
from gateway.settings.schema import NAME_EXPECTED, is_name

PREFIX = "gw-"
RANDOM_BYTES = 32  # 43 characters; so many that an unsalted hash gives nothing away


def run(arguments: Mapping[str, str | None]) -> int:
    name = arguments["name"] or ""
    if not is_name(name):
        print(f"A caller's name: expected {NAME_EXPECTED}.", file=sys.stderr)
        return 2
    print(screen(name, PREFIX + secrets.token_urlsafe(RANDOM_BYTES), Paint(sys.stdout, os.environ)))
    return 0


def line(name: str, key: str) -> str:
    """The caller as the keys file has it."""
    return f'{name}: {{sha256: "{hashlib.sha256(key.encode()).hexdigest()}"}}'


def screen(name: str, key: str, paint: Paint) -> str:
    return f"""
{paint("dim", f"The key of {name}, shown this once:")}

{paint("bold", key)}

{paint("dim", "Its line for the keys file:")}

{line(name, key)}

{paint("dim", "Put the line into the file that access.keys_file names, or as it is into GATEWAY_ACCESS__KEYS, and restart.")}
{paint("dim", "Give the key to its caller, who sends it as the header `Authorization: Bearer KEY` or `x-api-key: KEY`.")}
"""
