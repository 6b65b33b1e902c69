"""What each known Claude model answers with 400; of a model that is not known here nothing is known.

https://docs.anthropic.com/en/build-with-claude/thinking-troubleshooting, …/effort, …/models/opus-5-5/migration-guide
"""

import re
from functools import lru_cache

from gateway.json_text import Json

# https://docs.anthropic.com/en/api/versioning: this version has no temperature, top_p or top_k.
VERSION_WITHOUT_SAMPLING = "2026-10-21"

# `claude-opus-4-7`, `anthropic.claude-opus-4-7-v1:0`, `claude-opus-4-20250514`; `claude-4.7-opus` as OpenRouter has it.
MODEL = re.compile(
    r"claude-(?:(?P<line>opus|sonnet|haiku|fable)(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))?"
    r"|(?P<major2>\d{1,2})(?:[-.](?P<minor2>\d{1,2}))?-(?P<line2>opus|sonnet|haiku|fable))"
)

Release = tuple[int, int]
Since = dict[str, Release]
"""By line of models, the release from which on something holds; a line that is not in it never has it."""

# "`temperature` is deprecated for this model", and any other sampling parameter.
NO_SAMPLING: Since = {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 0), "fable": (0, 0)}
# "`temperature` and `top_p` cannot both be specified for this model."
ONE_SAMPLING: Since = {"opus": (4, 1), "sonnet": (4, 5), "haiku": (4, 5), "fable": (0, 0)}

EXTENDED: Since = {"opus": (4, 0), "sonnet": (3, 7), "haiku": (4, 5), "fable": (0, 0)}  # thinks at all
ADAPTIVE: Since = {"opus": (4, 6), "sonnet": (4, 6), "haiku": (5, 0), "fable": (0, 0)}
# "`thinking.type.enabled` is not supported for this model."
NO_BUDGET: Since = {"opus": (4, 7), "sonnet": (4, 7), "haiku": (5, 0), "fable": (0, 0)}
# "`thinking.type.disabled` is not supported for this model": one line has a setting that comes close.
ALWAYS: Since = {"opus": (5, 5), "fable": (5, 1)}
BETWEEN_TOOLS: Since = {"sonnet": (5, 5)}

EFFORT: Since = {"opus": (4, 5), "sonnet": (4, 6), "haiku": (5, 0), "fable": (0, 0)}
MAX_EFFORT: Since = {"opus": (4, 6), "sonnet": (4, 6), "haiku": (5, 0), "fable": (0, 0)}
XHIGH_EFFORT: Since = {"opus": (4, 7), "sonnet": (5, 0), "haiku": (5, 0), "fable": (0, 0)}

LEAST_BUDGET = 1024  # tokens of thinking; less is refused


class Claude:
    """A model that is known by its name."""

    def __init__(self, line: str, release: Release) -> None:
        self._line, self._release = line, release

    def since(self, table: Since) -> bool:
        return self._line in table and self._release >= table[self._line]


@lru_cache(maxsize=256)
def known(model: str) -> Claude | None:
    found = MODEL.search(model)
    if found is None:
        return None
    release = (int(found["major"] or found["major2"] or 0), int(found["minor"] or found["minor2"] or 0))
    return Claude(found["line"] or found["line2"], release)


def refused_sampling(model: str, version: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the `given` sampling parameters that the model is known to refuse."""
    if version == VERSION_WITHOUT_SAMPLING:
        return given
    claude = known(model)
    if claude is None:
        return ()
    if claude.since(NO_SAMPLING):
        return given
    if claude.since(ONE_SAMPLING) and len(given) > 1:
        return tuple(key for key in given if key != "temperature")
    return ()


def thinking(model: str, asked: Json | None, max_tokens: int) -> tuple[Json | None, str | None]:
    """How the model is asked for the thinking that was `asked` for, and a warning if that is not the same."""
    claude = known(model)
    kind = (asked or {}).get("type")
    if claude is None or asked is None:
        return asked, None
    rest = {key: value for key, value in asked.items() if key not in ("type", "budget_tokens")}
    if kind == "enabled" and claude.since(NO_BUDGET):
        return {"type": "adaptive", **rest}, "thinking made adaptive: this model takes no budget"
    if kind == "adaptive" and not claude.since(ADAPTIVE):
        if not claude.since(EXTENDED) or max_tokens <= LEAST_BUDGET:
            return None, "thinking left out"
        budget = max(max_tokens // 2, LEAST_BUDGET)
        return {"type": "enabled", "budget_tokens": budget, **rest}, "thinking given a budget: this model does not choose one"
    if kind == "disabled" and claude.since(ALWAYS):
        return None, "thinking cannot be turned off for this model"
    if kind == "disabled" and claude.since(BETWEEN_TOOLS):
        return {"type": "between_tools"}, "thinking turned off but for what stands between tool calls"
    return asked, None


def effort(model: str, asked: str | None) -> tuple[str | None, str | None]:
    """The nearest effort that the model knows, and a warning if it is not the one that was `asked` for."""
    claude = known(model)
    if claude is None or asked is None:
        return asked, None
    if not claude.since(EFFORT):
        return None, "effort left out"
    if (asked == "max" and not claude.since(MAX_EFFORT)) or (asked == "xhigh" and not claude.since(XHIGH_EFFORT)):
        return "high", "effort lowered to high"
    return asked, None
