"""Finish reasons and token counts of Chat Completions, in the gateway's words.

https://platform.openai.com/docs/api-reference/chat/streaming
"""

from typing import Any

from gateway.formats import Quirks
from gateway.json_text import Json
from gateway.usage import token_count

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # lookalikes; what one of them invented, another copies
    "end_turn": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "end": "end_turn",
    "complete": "end_turn",
    "completed": "end_turn",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_length": "model_context_window_exceeded",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "tool_use": "tool_use",
    "tool_call": "tool_use",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "sensitive": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
}
# The documented ones say no more than the stop reason they become.
PLAIN = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter"})
# The provider gave up: what came so far is no answer.
FAILURES = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})

# What continuous usage statistics consist of, chunk by chunk.
SIMPLE = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})

# What `tokens` reads; every other key of a usage object is passed on as it is.
CONSUMED = frozenset({
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
    "input_tokens", "output_tokens", "cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens",
    "cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_tokens",
})  # fmt: skip


def is_failure(finish_reason: str) -> bool:
    return finish_reason.lower() in FAILURES or "MALFORMED" in finish_reason.upper()


def stop_reason(finish_reason: str) -> tuple[str, str | None]:
    """The stop reason, and the raw word where it says more; an unknown one is an ordinary end."""
    return STOP_REASONS.get(finish_reason.lower(), "end_turn"), None if finish_reason in PLAIN else finish_reason


def merge_usage(known: Json, said: Json) -> None:
    """Providers report in pieces: key by key, details within, and a null says nothing."""
    for key, value in said.items():
        if value is None:
            continue
        if isinstance(value, dict) and isinstance(known.get(key), dict):
            merge_usage(known[key], value)
        elif key in known or len(known) < 100:
            known[key] = dict(value) if isinstance(value, dict) else value


def tokens(usage: Json, quirks: Quirks) -> Json:
    """A usage object in Anthropic's names and arithmetic: `input_tokens` leaves out what the cache read or wrote.

    Only what was told is there. Cost and whatever else a provider adds is kept under its own name.
    """
    if usage.keys() <= SIMPLE:
        counted: Json = {}
        for name, ours in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
            if (count := _first(usage, name)) is not None:
                counted[ours] = count
        return counted
    prompt_details = _object(usage.get("prompt_tokens_details"))
    completion_details = _object(usage.get("completion_tokens_details"))
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    output = _first(usage, "completion_tokens", "output_tokens")
    cached = _first(prompt_details, "cached_tokens")
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens", "cache_read_input_tokens")
    written = _first(prompt_details, "cache_write_tokens", "cache_creation_tokens")
    if written is None:
        written = _first(usage, "cache_creation_input_tokens")
    reasoning = _first(completion_details, "reasoning_tokens")
    if reasoning is None:
        reasoning = _first(usage, "reasoning_tokens")

    counted = {key: value for key, value in usage.items() if key not in CONSUMED and value is not None}
    for key, details, read in (
        ("prompt_tokens_details", prompt_details, ("cached_tokens", "cache_write_tokens", "cache_creation_tokens")),
        ("completion_tokens_details", completion_details, ("reasoning_tokens",)),
    ):
        if rest := {name: value for name, value in details.items() if value and name not in read}:
            counted[key] = rest
    if prompt is not None:
        if quirks.audio_excluded:
            prompt += _first(prompt_details, "audio_tokens") or 0
        beside = (cached or 0) + (written or 0)
        # More from the cache than the whole prompt: that provider already counts as Anthropic does.
        counted["input_tokens"] = prompt - beside if beside <= prompt else prompt
    if cached is not None:
        counted["cache_read_input_tokens"] = cached
    if written is not None:
        counted["cache_creation_input_tokens"] = written
    if output is not None:
        counted["output_tokens"] = output + (reasoning or 0) if quirks.reasoning_excluded else output
    if reasoning is not None:
        counted["output_tokens_details"] = {"thinking_tokens": reasoning}
    return counted


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _first(said: Json, *names: str) -> int | None:
    """The first of the counters that is one."""
    return next((count for name in names if (count := token_count(said.get(name))) is not None), None)
