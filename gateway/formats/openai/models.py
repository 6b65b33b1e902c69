"""What OpenAI's reasoning models answer with 400; of a model that is not known here nothing is known.

https://platform.openai.com/docs/guides/reasoning, …/latest-model (parameter compatibility)
"""

import re
from functools import lru_cache

# `o3-mini`, `gpt-5`, `gpt-5.1-codex-max`, `openai/gpt-5.2-2025-12-11`; not `gpt-4o`, `gpt-oss-120b`, `gpt-5-chat-latest`.
MODEL = re.compile(r"(?:.*/)?(?:o(?P<o>\d)|gpt-(?P<major>\d+)(?:\.(?P<minor>\d+))?)(?P<rest>-[a-z0-9.-]+)?")

SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias")
LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@lru_cache(maxsize=256)
def _release(model: str) -> tuple[int, int] | None:
    """(0, n) for the o series; None for a model that does not reason, or is not known."""
    found = MODEL.fullmatch(model)
    if found is None or "-chat" in (found["rest"] or ""):
        return None
    if found["o"]:
        return 0, int(found["o"])
    release = int(found["major"]), int(found["minor"] or 0)
    return release if release >= (5, 0) else None


def refused(model: str, effort: str | None) -> tuple[str, ...]:
    """The sampling parameters that the model refuses at this effort; None stands for its own default."""
    release = _release(model)
    if release is None:
        return ()
    # From 5.1 on they are taken by a model that is told not to reason, which up to 5.4 was the default.
    if release >= (5, 1) and (effort == "none" or (effort is None and release < (5, 5))):
        return ()
    return SAMPLING


def effort(model: str, asked: str) -> str:
    """The nearest level that the model knows."""
    release = _release(model)
    if release is None or asked not in LEVELS:
        return asked
    lowest, most = "none", "max"
    if release < (5, 1):
        lowest, most = "low" if release < (5, 0) else "minimal", "high"
    elif release < (5, 6):
        most = "high" if release == (5, 1) and "codex-max" not in model else "xhigh"
    if asked == "minimal" and release >= (5, 1):
        return "low"
    return LEVELS[min(max(LEVELS.index(asked), LEVELS.index(lowest)), LEVELS.index(most))]
