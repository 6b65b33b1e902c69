"""Claude's words that are not the gateway's own: token counts, sampling parameters by model."""

import re
from typing import Any

from gateway.json_text import Json
from gateway.usage import token_count

# https://docs.anthropic.com/en/api/versioning: this version has no temperature, top_p or top_k.
VERSION_WITHOUT_SAMPLING = "2026-10-21"

# Counts that clients calculate with; everything else in a usage is carried as it came.
COUNTS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

# `claude-opus-4-7`, `anthropic.claude-opus-4-7-v1:0`, `claude-opus-4-20250514`; `claude-4.7-opus` as OpenRouter has it.
MODEL = re.compile(
    r"claude-(?:(?P<line>opus|sonnet|haiku|fable)(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))?"
    r"|(?P<major2>\d{1,2})(?:[-.](?P<minor2>\d{1,2}))?-(?P<line2>opus|sonnet|haiku|fable))"
)

# From this version on a line of models answers 400 to any sampling parameter: "`temperature` is deprecated for this model."
NO_SAMPLING = {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 0), "fable": (0, 0)}
# And from this one to both at once: "`temperature` and `top_p` cannot both be specified for this model."
ONE_SAMPLING = {"opus": (4, 1), "sonnet": (4, 5), "haiku": (4, 5), "fable": (0, 0)}


def refused_sampling(model: str, version: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the `given` sampling parameters that the model is known to refuse. Of an unknown model nothing is known."""
    if version == VERSION_WITHOUT_SAMPLING:
        return given
    found = MODEL.search(model)
    if found is None:
        return ()
    line = found["line"] or found["line2"]
    release = (int(found["major"] or found["major2"] or 0), int(found["minor"] or found["minor2"] or 0))
    if release >= NO_SAMPLING[line]:
        return given
    if release >= ONE_SAMPLING[line] and len(given) > 1:
        return tuple(key for key in given if key != "temperature")
    return ()


def usage(said: Any) -> Json:
    """A usage whose counts are integers; what is none is left out, and so is `estimated`, which only the gateway says."""
    if not isinstance(said, dict):
        return {}
    counted = {key: token_count(value) if key in COUNTS else value for key, value in said.items() if key != "estimated"}
    return {key: value for key, value in counted.items() if key not in COUNTS or value is not None}
