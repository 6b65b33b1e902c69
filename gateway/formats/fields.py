"""The fields of a client's JSON: each is what it has to be, or a refusal names it.

No format, but what the formats of clients that speak JSON read their requests with. A refusal never repeats a value: it may be part of
a prompt.
"""

from typing import Any

from gateway import json_text
from gateway.errors import RequestRefused
from gateway.json_text import Json


def refusal(path: str, why: str) -> RequestRefused:
    return RequestRefused("invalid_request", f"{path}: {why}.")


def whole(body: bytes) -> Json:
    """The body, which is one object."""
    if not body.strip():
        raise RequestRefused("invalid_request", "The body is empty: expected a JSON object.")
    try:
        said = json_text.read(body)
    except json_text.MalformedJson as error:
        raise RequestRefused("invalid_request", "The body is not JSON, or it is too deep or has too many values.") from error
    if not isinstance(said, dict):
        raise RequestRefused("invalid_request", "The body: a JSON object is expected.")
    return said


def text(path: str, given: Any) -> str:
    """A text, empty where there is none."""
    if not isinstance(given, str | None):
        raise refusal(path, "a string is expected")
    return given or ""


def name(path: str, given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise refusal(path, "a name is expected")
    return given


def flag(path: str, given: Any) -> bool | None:
    if not isinstance(given, bool | None):
        raise refusal(path, "true or false is expected")
    return given


def number(path: str, given: Any) -> float | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
        raise refusal(path, "a number is expected")
    return given
