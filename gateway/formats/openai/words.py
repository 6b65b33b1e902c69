"""The gateway's words as Chat Completions says them to a client: finish reasons, token counts, annotations, errors.

https://platform.openai.com/docs/api-reference/chat/streaming
"""

import re

from gateway.errors import GatewayError
from gateway.events import ErrorBody
from gateway.json_text import Json
from gateway.usage import token_count

# What is not here is an ordinary end: a newer stop reason must not leave a client without any.
FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
# Those that the finish reason tells whole; any other is told beside it.
TOLD = frozenset({"end_turn", "max_tokens", "tool_use", "refusal", "stop_sequence"})

ERROR_TYPES = {
    "rate_limit_error": "rate_limit_exceeded",
    "billing_error": "insufficient_quota",
    "api_error": "server_error",
    "overloaded_error": "server_error",
    "timeout_error": "timeout",
}
# A refusal begins with the field that it is about.
PARAM = re.compile(r"(?P<path>[a-z_]+(?:\[\d+\]|\.[A-Za-z_]+)*): ")

READ = frozenset({
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens_details",
    "prompt_tokens_details", "completion_tokens_details",
})  # fmt: skip
URL = ("http://", "https://")


def finish_reason(stop_reason: object) -> str:
    return FINISH_REASONS.get(stop_reason, "stop") if isinstance(stop_reason, str) else "stop"


def ending(said: Json) -> tuple[Json, Json]:
    """What the last `message_delta` says, for the choice and for the root of its chunk.

    The stop sequence stands where vLLM puts it; a reason that OpenAI has no word for, and a provider's own word, go beside.
    """
    reason, sequence = said.get("stop_reason"), said.get("stop_sequence")
    choice: Json = {"finish_reason": finish_reason(reason)}
    if reason == "stop_sequence" and isinstance(sequence, str) and sequence:
        choice["stop_reason"] = sequence
    raw = said.get("raw_stop_reason") or (None if reason in TOLD else reason)
    return choice, {"stop_reason": raw} if raw else {}


def usage(told: Json) -> Json:
    """Token counts in OpenAI's arithmetic: `prompt_tokens` with what the cache read and wrote. What nobody told is not there."""
    read, written = token_count(told.get("cache_read_input_tokens")), token_count(told.get("cache_creation_input_tokens"))
    prompt = (token_count(told.get("input_tokens")) or 0) + (read or 0) + (written or 0)
    completion = token_count(told.get("output_tokens")) or 0
    counted: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    thought = token_count(_object(told.get("output_tokens_details")).get("thinking_tokens"))
    prompt_details = _object(told.get("prompt_tokens_details")) | _given(cached_tokens=read, cache_write_tokens=written)
    completion_details = _object(told.get("completion_tokens_details")) | _given(reasoning_tokens=thought)
    if prompt_details:
        counted["prompt_tokens_details"] = prompt_details
    if completion_details:
        counted["completion_tokens_details"] = completion_details
    return counted | {key: value for key, value in told.items() if key not in READ and key not in counted and value is not None}


def annotation(citation: Json, start: int, end: int) -> Json | None:
    """A `url_citation`, if it has a URL; of the text from `start` to `end` unless it says better."""
    match citation:
        case {"type": "web_search_result_location", "url": str(url)} | {"type": "search_result_location", "source": str(url)}:
            pass
        case _:
            return None
    if not url.lower().startswith(URL):
        return None
    said_start, said_end = token_count(citation.get("start_index")), token_count(citation.get("end_index"))
    if said_start is not None and said_end is not None:
        start, end = said_start, said_end
    noted: Json = {"url": url, "title": citation.get("title") or "", "start_index": start, "end_index": end}
    if isinstance(text := citation.get("cited_text"), str) and text:
        noted["content"] = text
    return {"type": "url_citation", "url_citation": noted}


def status(error: GatewayError) -> int:
    """OpenAI has no 529."""
    return 503 if error.status == 529 else error.status


def error_body(error: ErrorBody) -> Json:
    """`{"error": …}`: what OpenAI's SDKs look for, in an HTTP error's body as in a stream."""
    found = PARAM.match(error.message) if error.type == "invalid_request_error" else None
    kind = ERROR_TYPES.get(error.type, "invalid_request_error")
    if error.provider_code == "insufficient_quota" and error.type == "rate_limit_error":
        kind = "insufficient_quota"
    return {"error": {"message": error.message, "type": kind, "param": found["path"] if found else None, "code": error.code}}


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _given(**counts: int | None) -> Json:
    return {key: value for key, value in counts.items() if value is not None}
