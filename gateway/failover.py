"""What to try when an attempt failed before it said anything: the same target again, the next one, or nothing.

Pure: the jitter is handed in. Which failure allows what stands in errors.CAUSES.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from gateway.chat import ChatRequest, Message
from gateway.errors import UpstreamFailed
from gateway.formats import Target
from gateway.routing import Retry

FIRST_WAIT = 0.5  # seconds; doubles with every try, as the official SDKs do
LONGEST_WAIT = 8.0

# "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
REFUSED_THOUGHT = re.compile(r"signature.{0,40}thinking|thinking.{0,80}(signature|bound to)", re.IGNORECASE | re.DOTALL)
THOUGHTS = frozenset({"thinking", "redacted_thinking"})


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


def after_refusal(targets: Sequence[Target], at: int) -> Next | GiveUp:
    """After the format of `targets[at]` had no words for the request: nothing was sent."""
    return Next(at + 1) if at + 1 < len(targets) else GiveUp()


def refuses_thoughts(error: UpstreamFailed) -> bool:
    """Whether it is the signature of a thought that the provider refuses: another model, or another conversation, made it. Nobody but
    the provider can tell, and the chat would be refused for good."""
    return error.status == 400 and REFUSED_THOUGHT.search(error.message) is not None


def without_thoughts(request: ChatRequest) -> ChatRequest | None:
    """The request without any thoughts of earlier answers; None if it has none."""
    messages = [_without_thoughts(message) for message in request.messages]
    return structs.replace(request, messages=messages) if messages != request.messages else None


def _without_thoughts(message: Message) -> Message:
    if message.role != "assistant" or isinstance(message.content, str):
        return message
    kept = [block for block in message.content if block.get("type") not in THOUGHTS]
    return message if len(kept) == len(message.content) else structs.replace(message, content=kept)
