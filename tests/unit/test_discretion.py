"""What a hostile provider or caller says does not reach a log or a refusal: keys in any writing, values, texts without end."""

import base64
import json
import urllib.parse
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.chat import ChatRequest
from gateway.errors import RequestRefused
from gateway.formats import Provider, Target
from gateway.formats.native import parse
from gateway.formats.openai import OPENAI
from gateway.formats.openai.stream import OpenAIDecoder
from gateway.refusals import redact, refused_by_status
from gateway.telemetry import StreamRecord

KEY = 'CANARY/key+with=odd"chars\\12345678'
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "written",
    [
        *(KEY, base64_of(KEY), base64_of(KEY).rstrip("="), base64_of(KEY).replace("+", "-").replace("/", "_")),
        *(base64_of(f"{before}{KEY}") for before in ("Bearer ", "x:", "ab:", "abc:")),
        *(base64_of(f"{before}{KEY} and more") for before in ("Bearer ", "x:", "ab:", "abc:")),
        *(urllib.parse.quote(KEY, safe=safe) for safe in ("", "/")),
        urllib.parse.quote(KEY, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d").replace("%5C", "%5c"),
        json.dumps(KEY),
    ],
)
def test_key_is_hidden_however_it_is_written(written: str) -> None:
    hidden = redact(f"the key {written} is bad", (KEY,))
    assert "[redacted]" in hidden
    assert not any(written[start : start + 16] in hidden for start in range(len(written) - 16))


def test_content_type_is_redacted_and_short() -> None:
    headers = {"content-type": f"text/{KEY} {'t' * 60_000}"}
    failure = refused_by_status(500, headers, b"x", provider="p", secrets=(KEY,), now=NOW)
    assert "CANARY" not in failure.message
    assert len(failure.message) < 300


def test_finish_reason_is_redacted() -> None:
    for reason, place in ((f"MALFORMED {KEY}", "failure"), (f"odd {KEY}", "raw_stop_reason")):
        chunk = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": reason}]}
        decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1", KEY))
        said = repr([*decoder.feed(b"data: %b\n\n" % json.dumps(chunk).encode()), *decoder.close()])
        assert "CANARY" not in said, place


@pytest.mark.parametrize(
    "value",
    [
        "Fri, 31 Dec 99999999999999 23:59:59 GMT",
        "1 Jan 0000000 99:99:99 +9999999999999999",
        *("1e308", "nan", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ],
)
def test_retry_after_that_is_nonsense_is_none(value: str) -> None:
    assert refused_by_status(429, {"retry-after": value}, b"", provider="p", now=NOW).retry_after is None


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"name": "f", "type": "My secret prompt"}]},
        {"tools": [{"name": "f", "type": {"My secret prompt": 1}}]},
        {"tools": [{"name": "f"}], "tool_choice": {"type": "My secret prompt"}},
        {"messages": [{"role": "user", "content": [{"type": "My secret prompt"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "My secret prompt"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "My secret prompt"}}]}]},
    ],
)
def test_refusal_repeats_no_value(more: dict[str, Any]) -> None:
    request: ChatRequest = parse(json.dumps({"messages": [{"role": "user", "content": "hi"}], **more}).encode())
    with pytest.raises(RequestRefused) as refused:
        OPENAI.build(request, Target(Provider("p", "http://127.0.0.1"), OPENAI, "m"))
    assert "secret" not in refused.value.message


def test_record_holds_names_and_numbers_only() -> None:
    record = StreamRecord("id", "native", "M" * 1_000_000, 0.0, target="T" * 1_000_000, stop_reason="S" * 1_000_000)
    record.usage = {"output_tokens": 3, "cost": 0.1, "estimated": True, "note": "an answer", "details": {"cached": 1, "note": "x"}}
    record.usage["k" * 999] = 1
    record.usage |= {f"more{number}": number for number in range(1000)}
    line = record.line()
    assert len(json.dumps(line)) < 3000
    assert line["usage"]["output_tokens"] == 3
    assert (line["usage"]["cost"], line["usage"]["estimated"], line["usage"]["details"]) == (0.1, True, {"cached": 1})
    assert "note" not in line["usage"]
