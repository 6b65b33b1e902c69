"""How each known Claude model is asked for thinking and effort."""

from typing import Any

import pytest

from gateway.formats.anthropic import models

Json = dict[str, Any]
BUDGET: Json = {"type": "enabled", "budget_tokens": 2000}
ADAPTIVE: Json = {"type": "adaptive"}
OFF: Json = {"type": "disabled"}
HALF: Json = {"type": "enabled", "budget_tokens": 4000}


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-opus-5-5", BUDGET, ADAPTIVE),
        ("claude-opus-4-7", BUDGET, ADAPTIVE),
        ("claude-sonnet-5", BUDGET | {"display": "omitted"}, ADAPTIVE | {"display": "omitted"}),
        ("claude-fable-5-1", BUDGET, ADAPTIVE),
        ("claude-opus-4-6", BUDGET, BUDGET),
        ("claude-sonnet-4-5-20250929", BUDGET, BUDGET),
        ("claude-opus-4-6", ADAPTIVE, ADAPTIVE),
        ("claude-haiku-5-5", ADAPTIVE, ADAPTIVE),
        ("claude-haiku-4-5", ADAPTIVE, HALF),
        ("claude-opus-4-20250514", ADAPTIVE, HALF),
        ("claude-3-7-sonnet-20250219", ADAPTIVE, HALF),
        ("claude-3-5-sonnet-20241022", ADAPTIVE, None),
        ("claude-opus-5-5", OFF, None),
        ("claude-fable-5-1", OFF, None),
        ("claude-opus-5", OFF, OFF),
        ("claude-haiku-5-5", OFF, OFF),
        ("claude-sonnet-5-5", OFF, {"type": "between_tools"}),
        ("claude-sonnet-5-5", {"type": "between_tools"}, {"type": "between_tools"}),
        ("claude-sonnet-5-5", None, None),
        ("glm-4.6", BUDGET, BUDGET),
        ("kimi-k2", ADAPTIVE, ADAPTIVE),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(model: str, asked: Json | None, sent: Json | None) -> None:
    assert models.thinking(model, asked, 8000)[0] == sent
    assert (models.thinking(model, asked, 8000)[1] is None) == (asked == sent)


def test_where_there_is_no_room_for_a_budget_nothing_is_thought() -> None:
    assert models.thinking("claude-haiku-4-5", ADAPTIVE, 1024)[0] is None
    assert models.thinking("claude-haiku-4-5", ADAPTIVE, 1025)[0] == {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-opus-4-5", "high", "high"),
        ("claude-opus-4-5", "max", "high"),
        ("claude-opus-4-6", "max", "max"),
        ("claude-opus-4-6", "xhigh", "high"),
        ("claude-opus-4-7", "xhigh", "xhigh"),
        ("claude-sonnet-4-5", "low", None),
        ("claude-haiku-4-5", "low", None),
        ("claude-sonnet-5-5", "max", "max"),
        ("claude-sonnet-5-5", None, None),
        ("glm-4.6", "max", "max"),
    ],
)
def test_effort_is_the_nearest_that_the_model_knows(model: str, asked: str | None, sent: str | None) -> None:
    assert models.effort(model, asked)[0] == sent
    assert (models.effort(model, asked)[1] is None) == (asked == sent)
