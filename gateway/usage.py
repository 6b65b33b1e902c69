"""Usage: token counts told piecemeal, in Anthropic's names, and how what is told later is laid over what was told before.

https://docs.anthropic.com/en/api/messages (`usage`): the counts are cumulative.
"""

from dataclasses import dataclass

from gateway.json_text import Json

# Beyond it there are no tokens; and every sum stays within what JSON readers take for an exact integer, every speed within a float.
COUNT_LIMIT = 2**50
COUNTS = ("input_tokens", "output_tokens")  # clients crash where these are no integers


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts in Anthropic's names, cumulative: merged into the message's usage, no event of its own."""

    tokens: Json


def merged(known: Json, told: Json) -> Json:
    """`known` overwritten key by key, nested objects too; a null never overwrites. Neither argument is changed."""
    result = dict(known)
    for key, value in told.items():
        before = known.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            result[key] = overlaid(before, value)
        elif value is not None or before is None:
            result[key] = value
    return result


def overlaid(known: Json, told: Json) -> Json:
    """The same without looking into nested objects."""
    return {**known, **{key: value for key, value in told.items() if value is not None or key not in known}}


def token_count(said: object) -> int | None:
    """What was said as a count, a float without a fraction too; None if it is none."""
    if type(said) is float and said.is_integer():
        said = int(said)
    return said if type(said) is int and 0 <= said < COUNT_LIMIT else None  # a bool is none, though an `int` to Python
