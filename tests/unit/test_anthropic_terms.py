"""Which Claude models take which sampling parameters."""

import pytest

from gateway.formats.anthropic import models, terms

OLD, NEW = "2023-06-01", "2026-10-21"
BOTH = ("temperature", "top_p")


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("claude-sonnet-5-5", BOTH),
        ("claude-sonnet-5", BOTH),
        ("claude-opus-4-7", BOTH),
        ("claude-opus-5", BOTH),
        ("claude-haiku-5-5", BOTH),
        ("claude-fable-5", BOTH),
        ("claude-fable", BOTH),
        ("us.anthropic.claude-opus-4-8-v1:0", BOTH),
        ("anthropic/claude-4.7-opus", BOTH),
        ("claude-opus-4-7-20260416", BOTH),
        ("claude-sonnet-4-6", ("top_p",)),
        ("claude-haiku-4-5-20251001", ("top_p",)),
        ("claude-opus-4-1", ("top_p",)),
        ("claude-opus-4-20250514", ()),
        ("claude-sonnet-4-0", ()),
        ("claude-3-5-sonnet-20241022", ()),
        ("claude-3-opus-20240229", ()),
        ("claude-2.1", ()),
        ("glm-5", ()),
        ("smollm2", ()),
    ],
)
def test_a_known_model_is_not_sent_what_it_refuses(model: str, refused: tuple[str, ...]) -> None:
    assert models.refused_sampling(model, OLD, BOTH) == refused


def test_a_single_parameter_is_sent_to_a_model_that_refuses_only_both() -> None:
    assert models.refused_sampling("claude-sonnet-4-6", OLD, ("top_p",)) == ()


def test_the_version_without_sampling_takes_none_for_any_model() -> None:
    assert models.refused_sampling("anything", NEW, BOTH) == BOTH


def test_a_usage_holds_counts_and_whatever_else_it_held() -> None:
    said = {"input_tokens": "5", "output_tokens": True, "cache_read_input_tokens": 2.0, "cost": 0.5, "estimated": True, "iterations": []}
    assert terms.usage(said) == {"cache_read_input_tokens": 2, "cost": 0.5, "iterations": []}
    assert terms.usage(7) == {}
