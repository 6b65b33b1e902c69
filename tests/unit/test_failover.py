"""What is tried after a failure before content."""

import pytest

from gateway.chat import ChatRequest, Message
from gateway.errors import UpstreamFailed
from gateway.failover import Again, GiveUp, Next, decide, refuses_thoughts, without_thoughts
from gateway.formats import Provider, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.routing import Retry

A = Target(Provider("a", "http://a"), ANTHROPIC, "m")
B = Target(Provider("b", "http://b"), ANTHROPIC, "m")
C = Target(Provider("c", "http://c"), ANTHROPIC, "other")
RETRY = Retry(attempts=2, max_retry_after=10)


def failed(cause: str, retry_after: float | None = None) -> UpstreamFailed:
    return UpstreamFailed(cause, "It failed.", retry_after=retry_after)


@pytest.mark.parametrize("cause", ["rate_limited", "busy", "overloaded", "upstream_timeout", "unavailable", "interrupted", "malformed"])
def test_what_may_pass_is_tried_again_and_then_elsewhere(cause: str) -> None:
    assert decide(failed(cause), (A, B), 0, 1, RETRY, jitter=0.5) == Again(0.25)
    assert decide(failed(cause), (A, B), 0, 2, RETRY, jitter=0.5) == Next(1)
    assert decide(failed(cause), (A, B), 1, 2, RETRY, jitter=0.5) == GiveUp()


@pytest.mark.parametrize("cause", ["not_found", "auth", "redirect", "first_token", "idle"])
def test_what_will_not_pass_is_tried_elsewhere_at_once(cause: str) -> None:
    assert decide(failed(cause), (A, B), 0, 1, RETRY, jitter=1) == Next(1)
    assert decide(failed(cause), (A,), 0, 1, RETRY, jitter=1) == GiveUp()


@pytest.mark.parametrize("cause", ["rejected", "rejected_size", "event_too_large", "total"])
def test_what_every_target_would_say_is_the_answer(cause: str) -> None:
    assert decide(failed(cause), (A, B), 0, 1, RETRY, jitter=1) == GiveUp()


def test_a_context_too_long_for_one_model_is_tried_with_the_next_other_one() -> None:
    assert decide(failed("context"), (A, B, C), 0, 1, RETRY, jitter=1) == Next(2)
    assert decide(failed("context"), (A, B), 0, 1, RETRY, jitter=1) == GiveUp()


def test_the_wait_doubles_up_to_its_limit() -> None:
    patient = Retry(attempts=99)
    waits = [decide(failed("busy"), (A,), 0, tries, patient, jitter=1) for tries in (1, 2, 3, 4, 5, 6, 60)]
    assert waits == [Again(0.5), Again(1), Again(2), Again(4), Again(8), Again(8), Again(8)]


def test_a_retry_after_replaces_the_wait_if_it_is_short_enough() -> None:
    assert decide(failed("busy", 10), (A, B), 0, 1, RETRY, jitter=0) == Again(10)
    assert decide(failed("busy", 10.1), (A, B), 0, 1, RETRY, jitter=0) == Next(1)
    assert decide(failed("busy", 10.1), (A,), 0, 1, RETRY, jitter=0) == GiveUp()


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "x"}
SAID = {"type": "text", "text": "so"}


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block", True),
        (400, "messages.5.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.", True),
        (400, "the thinking block's signature cannot be read", True),
        (400, "thinking.budget_tokens: must be less than max_tokens", False),
        (400, "Invalid signature", False),
        (429, "messages.1.content.0: Invalid `signature` in `thinking` block", False),
    ],
)
def test_a_refused_thought_is_known_by_its_words(status: int, message: str, refused: bool) -> None:
    assert refuses_thoughts(UpstreamFailed("rejected", message, status=status)) is refused


def test_only_the_thoughts_are_left_out() -> None:
    other = [Message("user", [THOUGHT]), Message("assistant", "plain"), Message("tool", [THOUGHT], tool_use_id="a")]
    request = ChatRequest([*other, Message("assistant", [THOUGHT, HIDDEN, SAID])], model="m")
    assert without_thoughts(request) == ChatRequest([*other, Message("assistant", [SAID])], model="m")
    assert without_thoughts(ChatRequest(other)) is None
