"""What to try when an attempt failed before it said anything: the same target again, the next one, or nothing.

Pure: the jitter is handed in. Which failure allows what stands in errors.CAUSES.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.errors import UpstreamFailed
from gateway.formats import Target
from gateway.routing import Retry

FIRST_WAIT = 0.5  # seconds; doubles with every try, as the official SDKs do
LONGEST_WAIT = 8.0


@dataclass(frozen=True, slots=True)
class Again:
    """The same target, after `wait` seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class Next:
    """The target at `index`, at once."""

    index: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The error is the answer."""


def decide(error: UpstreamFailed, targets: Sequence[Target], at: int, tries: int, retry: Retry, jitter: float) -> Again | Next | GiveUp:
    """After `tries` attempts at `targets[at]`, the last of which ended in `error`; `jitter` in 0…1."""
    allowed = error.cause.before_content
    if allowed == "answer":
        return GiveUp()
    if allowed == "same" and tries < retry.attempts:
        if error.retry_after is None:
            return Again(jitter * min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)))
        if error.retry_after <= retry.max_retry_after:
            return Again(error.retry_after)
    for index in range(at + 1, len(targets)):
        if allowed != "other_model" or targets[index].model != targets[at].model:
            return Next(index)
    return GiveUp()
