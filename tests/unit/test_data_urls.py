"""Files that are large for no good reason: everybody else waits while a request is read.

Counted is the process's own time, and a small part of what it took before is allowed: two shared cores keep no milliseconds.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.errors import RequestRefused
from gateway.wiring import REQUESTS

OPENAI, PAGE = "/v1/chat/completions", "/api/chat"
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
