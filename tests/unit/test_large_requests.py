"""Requests that are large for no good reason: whatever a caller sends, everybody else waits while it is read and written again.

Counted is the process's own time, and a small part of what it took before is allowed: two shared cores keep no milliseconds.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.chat import Message
from gateway.errors import RequestRefused
from gateway.formats.calls import paired
from gateway.wiring import REQUESTS

HI = {"role": "user", "content": "hi"}
NATIVE, CLAUDE, OPENAI, PAGE = "/chat", "/v1/messages", "/v1/chat/completions", "/api/chat"
MUCH = 9 * 1024 * 1024  # bytes, within what a request may have


@contextmanager
def soon() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < 1


def refused(path: str, body: bytes) -> str:
    with pytest.raises(RequestRefused) as caught:
        REQUESTS[path].parse(body)
    assert len(caught.value.message) < 500
    return caught.value.message


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("own_messages", [True, False])
def test_thousands_of_calls_find_their_results_soon(same: bool, own_messages: bool) -> None:
    ids = ["a" if same else f"call_{number}" for number in range(9000)]
    calls = Message("assistant", [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ids])
    results = [{"type": "tool_result", "tool_use_id": id, "content": "ok"} for id in ids]
    answers = [Message("tool", "ok", tool_call_id=id) for id in ids] if own_messages else [Message("user", results)]
    warnings: list[str] = []
    with soon():
        written = paired([Message("user", "hi"), calls, *answers], "word", warnings)
    assert (len(written), warnings) == (2 + len(answers), [])


@pytest.mark.parametrize("path", [NATIVE, CLAUDE, OPENAI, PAGE])
def test_a_body_of_more_values_than_any_history_has_is_refused_unread(path: str) -> None:
    body = b'{"max_tokens":9,"messages":[{"role":"user","content":"hi","parts":[]}],"metadata":{"a":[' + b"[]," * (MUCH // 3) + b"[]]}}"
    with soon():
        assert "too many values" in refused(path, body)


@pytest.mark.parametrize("path", [NATIVE, CLAUDE])
@pytest.mark.parametrize("inside", [True, False])
def test_a_key_of_megabytes_is_told_in_a_sentence_soon(path: str, inside: bool) -> None:
    key = {"abcdefghijklmnopqrstuvwxyz" * (MUCH // 26): 1}
    body = {"max_tokens": 9, "messages": [{**HI, **(key if inside else {})}], **({} if inside else key)}
    with soon():
        assert "unknown key" in refused(path, json.dumps(body).encode())


@pytest.mark.parametrize("head", [";" * MUCH, ";a" * (MUCH // 2), ";base64" * (MUCH // 7), "a" * MUCH])
def test_a_data_url_without_data_is_refused_soon(head: str) -> None:
    url = f"data:image/png{head}"
    page: Any = {"messages": [{"role": "user", "parts": [{"type": "file", "mediaType": "image/png", "url": url}]}]}
    chat: Any = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    with soon():
        assert "URL" in refused(PAGE, json.dumps(page).encode())
        assert "URL" in refused(OPENAI, json.dumps(chat).encode())


def test_a_data_url_of_nothing_but_percent_signs_is_read_soon() -> None:
    part = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain," + "%41" * (MUCH // 3)}
    with soon():
        parsed = REQUESTS[PAGE].parse(json.dumps({"messages": [{"role": "user", "parts": [part]}]}).encode())
    [block] = parsed.request.messages[0].content
    assert isinstance(block, dict)
    assert block["source"]["data"] == "A" * (MUCH // 3)
