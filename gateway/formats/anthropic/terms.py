"""Claude's words that are not the gateway's own: token counts."""

from typing import Any

from gateway.json_text import Json
from gateway.usage import token_count

# Counts that clients calculate with; everything else in a usage is carried as it came.
COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def usage(said: Any) -> Json:
    """A usage whose counts are integers; what is none is left out, and so is `estimated`, which only the gateway says."""
    if not isinstance(said, dict):
        return {}
    told: Json = {}
    for key, value in said.items():
        if key in COUNTS:
            value = token_count(value)
            if value is None:
                continue
        if key != "estimated":
            told[key] = value
    return told
