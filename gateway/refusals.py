"""What a provider says when it refuses, in any of the shapes they use, as one `UpstreamFailed`.

An HTTP error answer, an error object inside a stream, or a body that is no answer at all. Providers put the same fact into
`error.message`, `error` as text, `message` or `detail`, and a status into `code`, `status` or `status_code`.
"""

import base64
import functools
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from gateway import json_text
from gateway.errors import LATER, UpstreamFailed
from gateway.json_text import Json

MESSAGE_LIMIT = 500  # characters of a provider's message that are passed on
SNIPPET_LIMIT = 200  # characters of an unreadable body that reach the log
LONGEST_WAIT = 366 * 86400.0  # seconds in a Retry-After; beyond it stands nonsense

# Words in `type`, `code` or `status` that stand for a status: Anthropic's types, OpenAI's and Google's codes.
WORDS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "service_unavailable": 503,
    "timeout_error": 504,
    "timeout": 504,
    "overloaded_error": 529,
    "overloaded": 529,
    "engine_overloaded": 529,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size_error|too_many_prompt_tokens|prompt is too long|maximum context length"
    r"|exceeds? the (?:available |maximum )?context|context (?:size|length|window) (?:is )?exceeded",
    re.IGNORECASE,
)
CREDIT = re.compile(r"credit balance|insufficient balance", re.IGNORECASE)
KEYLIKE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|pplx|key)-[\w*.-]{6,}|\bAIza[\w-]{10,}|\b[Bb]earer\s+\S+")


def refused_by_status(
    status: int, headers: Mapping[str, str], body: bytes, *, provider: str, secrets: tuple[str, ...] = (), now: datetime
) -> UpstreamFailed:
    """The failure of an HTTP answer that is no 2xx. `headers` has lower-case names; `now` is aware, for dates in Retry-After."""
    said = _parse(body)
    message = _message(said)
    kind = content_kind(headers.get("content-type", ""), secrets)
    if status in (401, 402, 403):
        sentence = f"The gateway's key for provider {provider} was refused (the provider answered {status})."
    elif message:
        sentence = tidy(message, secrets)
    elif said is None and body.strip():
        sentence = f"Provider {provider} answered {status} with {kind}, which is no JSON error."
    else:
        sentence = f"Provider {provider} answered {status}{' (a redirect, which is not followed)' if 300 <= status < 400 else ''}."
    return UpstreamFailed(
        _cause(status, _text(said)),
        sentence,
        status=status if 400 <= status < 500 and _cause(status, _text(said)) == "rejected" else None,
        retry_after=_retry_after(headers, now) if status in LATER else None,
        provider=provider,
        provider_code=_provider_code(said, secrets),
        detail=None if message else snippet(body, secrets),
    )


def refused_in_band(said: Any, *, provider: str, secrets: tuple[str, ...] = ()) -> UpstreamFailed:
    """The failure that an error object in a body or a frame stands for: `said` is that whole JSON value."""
    status = _status(said)
    cause = _cause(status, _text(said))
    message = _message(said)
    if cause == "auth":
        sentence = f"The gateway's key for provider {provider} was refused."
    else:
        sentence = tidy(message, secrets) if message else f"Provider {provider} sent an error without a message."
    return UpstreamFailed(
        cause,
        sentence,
        status=status if cause == "rejected" else None,
        provider=provider,
        provider_code=_provider_code(said, secrets),
    )


def is_refusal(said: Any) -> bool:
    """Whether a JSON value is an error in one of its shapes (a null or empty `error` is none)."""
    if not isinstance(said, dict):
        return isinstance(said, list) and bool(said) and is_refusal(said[0])
    if said.get("error") or "error" in (said.get("type"), said.get("object"), said.get("event")):
        return True
    base = said.get("base_resp")
    return isinstance(base, dict) and bool(base.get("status_code"))


def tidy(message: str, secrets: tuple[str, ...] = ()) -> str:
    """A provider's sentence on one line, without keys, of bounded length."""
    text = " ".join(redact(json_text.clean(message), secrets).split())
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def snippet(body: bytes, secrets: tuple[str, ...] = ()) -> str | None:
    """The beginning of an unreadable body, for the log."""
    text = " ".join(redact(body[:4096].decode("utf-8", "replace"), secrets).split())
    return text[:SNIPPET_LIMIT] or None


def content_kind(content_type: str, secrets: tuple[str, ...] = ()) -> str:
    """A provider's content type, for a sentence: it is the provider's text like any other."""
    return tidy(content_type.partition(";")[0], secrets)[:100] or "no content type"


def redact(text: str, secrets: tuple[str, ...] = ()) -> str:
    """`text` without the secrets, as they are, base64- or URL-encoded, and without what looks like a key."""
    for secret in secrets:
        for form in _forms(secret):
            text = text.replace(form, "[redacted]")
    return KEYLIKE.sub("[redacted]", text)


@functools.lru_cache(maxsize=256)
def _forms(secret: str) -> tuple[str, ...]:
    """How a secret may be written, the longest first where one holds another. In Base64 it looks otherwise behind other text
    (`Bearer …`, `user:…`): of each of the three ways, what does not depend on its neighbours."""
    plain = secret.encode()
    quoted = [urllib.parse.quote(secret, safe=safe) for safe in ("", "/")]
    lower = [re.sub("%..", lambda found: found[0].lower(), form) for form in quoted]
    encoded = [base64.b64encode(plain).decode()]
    for before, depends in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(b"\0" * before + plain).decode().rstrip("=")
        encoded.append(text[depends : len(text) - ((before + len(plain)) % 3 > 0)])
    url_safe = [form.replace("+", "-").replace("/", "_") for form in encoded]
    return (secret, *quoted, *lower, json.dumps(secret)[1:-1], *encoded, *url_safe)


def _parse(body: bytes) -> Any:
    try:
        return json_text.read(body)
    except json_text.MalformedJson:
        return None


def _objects(said: Any) -> Iterator[Json]:
    """The error object, then what surrounds it."""
    if isinstance(said, list) and said:
        said = said[0]
    if isinstance(said, dict):
        for key in ("error", "message", "base_resp"):  # base_resp: MiniMax
            if isinstance(said.get(key), dict):
                yield said[key]
        yield said


def _message(said: Any) -> str | None:
    for obj in _objects(said):
        for key in ("message", "error", "detail", "msg", "status_msg"):
            text = obj.get(key)
            if key == "detail" and isinstance(text, list) and text and isinstance(text[0], dict):
                text = text[0].get("msg")  # FastAPI's validation errors, Mistral's too
            if isinstance(text, str) and text.strip():
                return text
    return said if isinstance(said, str) and said.strip() else None


def _words(said: Any) -> Iterator[Any]:
    for obj in _objects(said):
        for key in ("code", "status", "status_code", "raw_status_code", "type"):
            yield obj.get(key)


def _status(said: Any) -> int:
    words = list(_words(said))
    for word in words:
        if isinstance(word, int | str) and not isinstance(word, bool) and str(word).isascii() and str(word).isdigit():
            if len(str(word)) == 3 and 400 <= int(word) <= 599:
                return int(word)
    for word in words:
        if isinstance(word, str) and word in WORDS:
            return WORDS[word]
    return 400 if CONTEXT.search(_text(said)) else 502


def _text(said: Any) -> str:
    return " ".join(str(word) for word in (*_words(said), _message(said)) if word)


def _cause(status: int, text: str) -> str:
    if status in (400, 413, 429) and CONTEXT.search(text):
        return "context"
    if status == 400 and CREDIT.search(text):
        return "auth"
    match status:
        case 401 | 402 | 403:
            return "auth"
        case 404:
            return "not_found"
        case 408 | 504 | 524:
            return "upstream_timeout"
        case 413:
            return "rejected_size"
        case 429:
            return "rate_limited"
        case 503:
            return "busy"
        case 529:
            return "overloaded"
        case _:
            pass
    if 300 <= status < 400:
        return "redirect"
    return "rejected" if 400 <= status < 500 else "unavailable"


def _provider_code(said: Any, secrets: tuple[str, ...]) -> str | None:
    """The most telling of the provider's own words; a bare number only where there is nothing else."""
    found: list[str] = []
    for obj in _objects(said):
        details = obj.get("details")
        for word in (details.get("error_code") if isinstance(details, dict) else None, obj.get("code"), obj.get("type"), obj.get("status")):
            if isinstance(word, str | int) and not isinstance(word, bool) and str(word) not in ("", "error"):
                found.append(str(word))
    best = next((word for word in found if not word.isdigit()), found[0] if found else None)
    return redact(json_text.clean(best), secrets)[:100] if best else None


def _retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds; `retry-after-ms` is exacter (https://github.com/openai/openai-python, both official SDKs read it first)."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds <= LONGEST_WAIT:  # no NaN either
            return seconds
    try:
        seconds = (parsedate_to_datetime(headers["retry-after"]) - now).total_seconds()
    except (KeyError, ValueError, TypeError, OverflowError):  # OverflowError: a year that no clock has
        return None
    return max(0.0, seconds) if seconds <= LONGEST_WAIT else None
