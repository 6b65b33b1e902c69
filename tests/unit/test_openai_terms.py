"""Token counts of many services in one arithmetic."""

from typing import Any

import pytest

from gateway.formats import Quirks
from gateway.formats.openai.terms import tokens
from tests.unit.openai_answers import DONE, chunk, frame, usage

END = chunk({"content": "Hi"}, "stop")


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}, {"input_tokens": 5, "output_tokens": 2}),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10, "audio_tokens": 0},
            },
            {"input_tokens": 50, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 10, "output_tokens": 20},
        ),
        (
            {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6, "completion_tokens": 1},
            {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 1},
        ),
        ({"prompt_tokens": 10, "cached_tokens": 4}, {"input_tokens": 6, "cache_read_input_tokens": 4}),
        ({"prompt_tokens": 10, "num_cached_tokens": 4}, {"input_tokens": 6, "cache_read_input_tokens": 4}),
        (
            {
                "prompt_tokens": 10,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 1,
                "cache_creation": {"ephemeral_24h_input_tokens": 1},
            },
            {
                "input_tokens": 5,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 1,
                "cache_creation": {"ephemeral_24h_input_tokens": 1},
            },
        ),
        ({"prompt_tokens": 3, "cache_read_input_tokens": 4}, {"input_tokens": 3, "cache_read_input_tokens": 4}),
        (
            {
                "completion_tokens": 9,
                "completion_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 2, "audio_tokens": 0},
            },
            {
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 4},
                "completion_tokens_details": {"accepted_prediction_tokens": 2},
            },
        ),
        ({"completion_tokens": 9, "reasoning_tokens": 4}, {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}),
        (
            {"prompt_tokens": 5, "cost": 0.1, "cost_details": {"x": 1}, "is_byok": False, "queue_time": 0.2, "service_tier": None},
            {"input_tokens": 5, "cost": 0.1, "cost_details": {"x": 1}, "is_byok": False, "queue_time": 0.2},
        ),
        ({"prompt_tokens": 5.0, "completion_tokens": True}, {"input_tokens": 5}),
        ({"prompt_tokens": -1, "completion_tokens": "2", "prompt_tokens_details": 7, "completion_tokens_details": None}, {}),
        ({"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}, {"input_tokens": 5, "output_tokens": 2}),
    ],
)
def test_usage_is_counted_as_anthropic_counts(said: dict[str, Any], counted: dict[str, Any]) -> None:
    assert tokens(said, Quirks()) == counted


def test_reasoning_that_a_provider_leaves_out_is_added() -> None:
    said = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 354, "completion_tokens_details": {"reasoning_tokens": 340}}
    assert tokens(said, Quirks(reasoning_excluded=True))["output_tokens"] == 342


def test_audio_that_a_provider_leaves_out_is_added() -> None:
    said = {"prompt_tokens": 11, "completion_tokens": 15, "total_tokens": 401, "prompt_tokens_details": {"audio_tokens": 375}}
    assert tokens(said, Quirks(audio_excluded=True))["input_tokens"] == 386


@pytest.mark.parametrize(
    "frames",
    [
        (END, frame({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})),
        (chunk({"content": "Hi"}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 2}),),
        (END, frame({"choices": [], "x_groq": {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}})),
        (
            frame(
                {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}]}
            ),
        ),
        (
            chunk({"content": "Hi"}, usage={"prompt_tokens": 5, "completion_tokens": 1}),
            chunk({}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 2}),
        ),
        (chunk({"content": "Hi"}, usage={"prompt_tokens": 5}), chunk({}, "stop", usage={"prompt_tokens": None, "completion_tokens": 2})),
    ],
)
def test_usage_is_found_wherever_it_stands_and_never_summed(frames: tuple[bytes, ...]) -> None:
    assert usage(*frames, DONE) == {"input_tokens": 5, "output_tokens": 2}


def test_what_one_chunk_says_of_the_cache_counts_for_the_next() -> None:
    first = chunk({"content": "H"}, usage={"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 40}})
    second = chunk({"content": "i"}, "stop", usage={"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": None})
    assert usage(first, second) == {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 5}
