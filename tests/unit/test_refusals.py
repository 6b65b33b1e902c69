"""What providers say when they refuse: every shape becomes one failure with the right cause and one clean sentence."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from gateway.errors import CAUSES, UpstreamFailed
from gateway.refusals import is_refusal, redact, refused_by_status, refused_in_band, snippet, tidy

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEY = "sk-canary/Ä+0001"


def refused(status: int, body: bytes | dict[str, Any] = b"", **headers: str) -> UpstreamFailed:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refused_by_status(status, named, raw, provider="p", secrets=(KEY,), now=NOW)


@pytest.mark.parametrize(
    ("status", "cause", "answered"),
    [
        (400, "rejected", 400), (422, "rejected", 422), (409, "rejected", 409), (404, "not_found", 404), (413, "rejected_size", 413),
        (401, "auth", 502), (402, "auth", 502), (403, "auth", 502), (429, "rate_limited", 429), (503, "busy", 503),
        (529, "overloaded", 529), (408, "upstream_timeout", 504), (504, "upstream_timeout", 504), (524, "upstream_timeout", 504),
        (500, "unavailable", 502), (520, "unavailable", 502), (599, "unavailable", 502), (302, "redirect", 502), (307, "redirect", 502),
    ],
)  # fmt: skip
def test_a_status_has_its_cause_and_the_status_it_is_answered_with(status: int, cause: str, answered: int) -> None:
    failure = refused(status, {"error": {"message": "no"}})
    assert (failure.cause, failure.status) == (CAUSES[cause], answered)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"error": {"type": "exceed_context_size_error", "code": 400, "message": "the request exceeds", "n_ctx": 2048}},
        {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}},
        {"error": {"message": "This model's maximum context length is 8192 tokens."}},
        {"error": {"type": "too_many_prompt_tokens", "message": "no"}},
    ],
)
@pytest.mark.parametrize("status", [400, 429])
def test_a_context_that_is_too_long_is_told_from_other_refusals_at_400_and_429(status: int, error: dict[str, Any]) -> None:
    failure = refused(status, error)
    assert failure.cause == CAUSES["context"]
    assert (failure.status, failure.retry_after) == (400, None)


def test_a_credit_balance_that_is_too_low_is_the_gateways_business() -> None:
    assert refused(400, {"error": {"message": "Your credit balance is too low."}}).cause == CAUSES["auth"]


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, "m", "invalid_request_error"),
        ({"error": {"message": "m", "type": "t", "code": "c"}}, "m", "c"),
        ({"error": {"message": "m", "code": 400}}, "m", "400"),
        ({"error": {"message": "m", "code": "404", "type": "t"}}, "m", "t"),
        ({"error": {"message": "m", "type": "t", "details": {"error_code": "d"}}}, "m", "d"),
        ({"object": "error", "message": "m", "type": "t", "code": 3051, "raw_status_code": 400}, "m", "t"),
        ({"object": "error", "message": {"detail": [{"msg": "m", "loc": ["body"]}]}, "type": "t"}, "m", "t"),
        ({"detail": "m"}, "m", None),
        ({"detail": [{"msg": "m"}]}, "m", None),
        ({"error": "m"}, "m", None),
        ({"base_resp": {"status_code": 1004, "status_msg": "m"}}, "m", None),
    ],
)
def test_the_providers_sentence_and_code_are_found_in_any_shape(body: dict[str, Any], message: str, code: str | None) -> None:
    failure = refused(400, body)
    assert (failure.message, failure.provider_code) == (message, code)
    assert refused(400, json.dumps([body]).encode()).message == message


def test_html_is_replaced_by_a_sentence_and_only_its_beginning_is_logged() -> None:
    failure = refused(502, b"<html>" + b"blocked " * 500, content_type="text/html; charset=utf-8")
    assert failure.message == "Provider p answered 502 with text/html, which is no JSON error."
    assert failure.detail is not None
    assert failure.detail.startswith("<html>blocked")
    assert len(failure.detail) == 200


def test_an_empty_refusal_says_its_status() -> None:
    assert refused(500).message == "Provider p answered 500."
    assert "redirect" in refused(302).message


@pytest.mark.parametrize("status", [401, 402, 403])
def test_what_a_provider_says_about_our_key_is_never_passed_on(status: int) -> None:
    failure = refused(status, {"error": {"message": f"Incorrect API key provided: {KEY} for org-1"}})
    assert KEY not in failure.message
    assert "org-1" not in failure.message
    assert f"answered {status}" in failure.message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "30"}, 30.0), ({"retry_after": "1.5"}, 1.5), ({"retry_after_ms": "250", "retry_after": "30"}, 0.25),
        ({"retry_after": (NOW + timedelta(seconds=20)).strftime("%a, %d %b %Y %H:%M:%S GMT")}, 20.0),
        ({"retry_after": (NOW - timedelta(seconds=20)).strftime("%a, %d %b %Y %H:%M:%S GMT")}, 0.0),
        ({"retry_after": "soon"}, None), ({"retry_after": "-4"}, None), ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None), ({}, None),
    ],
)  # fmt: skip
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert refused(429, **headers).retry_after == seconds
    assert refused(400, **headers).retry_after is None


@pytest.mark.parametrize(
    ("said", "cause", "status"),
    [
        ({"error": {"code": 429, "message": "m"}}, "rate_limited", 429),
        ({"error": {"code": "502", "message": "m"}}, "unavailable", 502),
        ({"error": {"message": "m"}, "status_code": 503}, "busy", 503),
        ({"error": {"code": 7, "type": "overloaded_error"}}, "overloaded", 529),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}}, "rate_limited", 429),
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, "unavailable", 502),
        ({"error": {"type": "invalid_request_error", "code": "tool_use_failed", "message": "m"}}, "rejected", 400),
        ({"error": {"code": "insufficient_quota", "message": "m"}}, "rate_limited", 429),
        ({"error": {"code": 422, "message": "m"}}, "rejected", 422),
        ({"error": {"code": 401, "message": KEY}}, "auth", 502),
        ({"error": "exceeds the available context size"}, "context", 400),
        ({"error": {"message": "m", "code": True}}, "unavailable", 502),
        ({"error": {"code": "²²²", "message": "m"}}, "unavailable", 502),
        ([{"error": {"status": "UNAVAILABLE", "message": "m"}}], "busy", 503),
        ({"error": {}}, "unavailable", 502),
    ],
)
def test_an_error_inside_a_body_finds_its_status(said: Any, cause: str, status: int) -> None:
    failure = refused_in_band(said, provider="p", secrets=(KEY,))
    assert (failure.cause, failure.status) == (CAUSES[cause], status)
    assert failure.message
    assert KEY not in failure.message


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        ({"error": {"message": "m"}}, True), ({"error": "m"}, True), ({"type": "error"}, True), ({"object": "error"}, True),
        ([{"error": "m"}], True), ({"base_resp": {"status_code": 1}}, True), ({"base_resp": {"status_code": 0}}, False),
        ({"error": None, "choices": []}, False), ({"error": {}}, False), ({"choices": []}, False), ([], False), ("m", False), (None, False),
    ],
)  # fmt: skip
def test_an_error_is_told_from_an_answer(said: Any, is_one: bool) -> None:
    assert is_refusal(said) is is_one


def test_a_secret_is_found_as_it_is_and_encoded_and_what_looks_like_a_key_too() -> None:
    encoded = (quote(KEY, safe=""), base64.b64encode(KEY.encode()).decode())
    for form in (KEY, *encoded, "sk-proj-abcdef123456", "Bearer abc.def", "AIzaSyA1234567890"):
        assert redact(f"before {form} after", (KEY,)) == "before [redacted] after"
    assert redact("task-oriented and risk-averse") == "task-oriented and risk-averse"


def test_a_message_is_one_line_of_bounded_length_and_valid_text() -> None:
    assert tidy(" a\n\tb\ud800 ") == "a b\ufffd"
    assert len(tidy("x" * 9000)) == 500
    assert snippet(b" \n ") is None
