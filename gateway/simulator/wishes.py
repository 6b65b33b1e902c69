"""What a request wishes of the simulator, in `key=value` words.

    speed=0.03          seconds between two events; a model whose name contains `fast` has 0
    tokens=500          length of the text, in words
    thinking=0  tool=0  leave out the thinking, the tool call
    chunk=7             cut the body every 7 bytes, whatever the borders of its events
    wait=3              seconds of silence before the headers
    fault=status:529    answer with this status (400 to 599) and the provider's error body
    fault=html          answer 200 with a proxy's web page
    fault=truncate_tool stop for max_tokens within the tool's arguments
    fault=error         an error inside the stream, after `after` events
    fault=cut|reset|hang   close by FIN | by RST | fall silent, after `after` events; `after=0`: before the headers
    after=5             how many events come before the fault
"""

import re
from dataclasses import dataclass

FAULTS = ("html", "truncate_tool", "error", "cut", "reset", "hang")  # beside status:529
# A script is built whole: at one byte a piece the longest text is some ten megabytes of steps.
MOST_TOKENS = 10_000
MOST_SECONDS = 600.0

_WISH = re.compile(r"\b(speed|tokens|thinking|tool|chunk|wait|fault|after)=(\d+(?:\.\d+)?|[a-z_]+(?::\d+)?)")


@dataclass(frozen=True, slots=True)
class Wishes:
    """Those of one request. `status`: 0 for none; `fault`: "" for none, or one of `FAULTS`."""

    speed: float
    tokens: int | None
    thinking: bool
    tool: bool
    chunk: int
    wait: float
    fault: str
    status: int
    after: int


def read_wishes(common: str, model: str, prompt: str) -> Wishes:
    """Those of everybody, of the model's name and of the text: the last word on each wins."""
    fast = "speed=0" if "fast" in model else ""
    found: dict[str, str] = dict(_WISH.findall(f"{common} {fast} {model} {prompt}"))

    def number(key: str, default: float, most: float) -> float:
        value = found.get(key, "")
        return min(float(value), most) if value[:1].isdigit() else default

    fault, _, status = found.get("fault", "").partition(":")
    return Wishes(
        speed=number("speed", 0.03, MOST_SECONDS),
        tokens=int(number("tokens", 0, MOST_TOKENS)) if "tokens" in found else None,
        thinking=number("thinking", 1, 1) > 0,
        tool=number("tool", 1, 1) > 0,
        chunk=int(number("chunk", 0, 1 << 20)),
        wait=number("wait", 0.0, MOST_SECONDS),
        fault=fault if fault in FAULTS else "",
        status=int(status) if fault == "status" and len(status) == 3 and status[0] in "45" else 0,
        after=int(number("after", 5, MOST_TOKENS)),
    )
