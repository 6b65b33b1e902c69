"""A provider's body: what is JSON comes through, what is not is looked at twice and counted, and an end without an answer is diagnosed."""

import msgspec
import pytest

from gateway.body import DONE, Body
from gateway.chat import ChatRequest
from gateway.formats import Provider, Target, UpstreamFormat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.openai import OPENAI


def read(*pieces: bytes, content_type: str = "text/event-stream") -> tuple[Body, list[tuple[str, object]]]:
    body = Body("p", content_type=content_type, secrets=("sk-secret-0001",))
    values = [value for piece in pieces for value in body.feed(piece)]
    return body, values + body.close()


def test_frames_come_with_the_names_of_their_events() -> None:
    _, values = read(b'event: x\ndata: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n')
    assert values == [("x", {"a": 1}), ("", {"b": 2}), ("", DONE)]


def test_null_is_a_keepalive_and_other_scalars_are_malformed() -> None:
    body, values = read(b"data: null\n\ndata: 7\n\ndata: \"x\"\n\ndata: [1]\n\ndata: true\n\ndata: {}\n\n")
    assert values == [("", {})]
    assert body.dropped == 4


def test_a_list_that_is_an_error_comes_through() -> None:
    body, values = read(b'[{"error":{"message":"m"}}]')
    assert values == [("", [{"error": {"message": "m"}}])]
    assert body.dropped == 0


def test_a_frame_cut_by_the_next_one_is_resynchronised_and_counted() -> None:
    body, values = read(b'data: {"a": data: {"b":2}\n\n')
    assert values == [("", {"b": 2})]
    assert body.dropped == 1


def test_a_glued_end_is_no_malformed_frame() -> None:
    body, values = read(b'data: {"a":1}data: [DONE]\n\n')
    assert values == [("", {"a": 1}), ("", DONE)]
    assert body.dropped == 0


@pytest.mark.parametrize(
    ("pieces", "content_type", "cause", "words"),
    [
        ((), "text/event-stream", "upstream_unavailable", "empty body"),
        ((b"<html>sk-secret-0001</html>",), "text/html;charset=UTF-8", "upstream_unavailable", "(text/html)"),
        ((b"data: {broken\n\n",), "text/event-stream", "stream_malformed", "nothing that can be read"),
        ((b"upstream error\n",), "text/plain", "stream_malformed", "nothing that can be read"),
        ((b'data: {"a":1}\n\n',), "text/event-stream", "stream_interrupted", "before the answer was finished"),
    ],
)
def test_a_body_that_finished_nothing_is_diagnosed(pieces: tuple[bytes, ...], content_type: str, cause: str, words: str) -> None:
    failure = read(*pieces, content_type=content_type)[0].diagnosis()
    assert failure.cause.code == cause
    assert words in failure.message
    assert "sk-secret" not in f"{failure.message} {failure.detail}"


HOT: dict[str, tuple[UpstreamFormat, bytes]] = {
    "anthropic": (
        ANTHROPIC,
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}\n\n',
    ),
    "openai": (
        OPENAI,
        b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n',
    ),
}
ODD = (
    b"%bdata:  \t\n\n",
    b"%bdata: null\n\n",
    b"%bdata: 7\n\n",
    b"%bdata: [DONE]\n\n",
    b'%bdata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\xff"}}\n\n',
    b'%bdata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}\n\n',
    b'%bdata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"cut o\n\n',
    b'%bdata: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n',
    b'%bdata: {"choices":[{"delta":{"content":"cut o\n\n',
    b'%bdata: {"choices":[{"delta":{"content":"a"}}],"usage":{"a":' + b"[" * 600 + b"]" * 600 + b"}}\n\n",
    b'%bdata: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
    b'%bdata: {"error":{"message":"overloaded"}}\n\n',
    b'%bdata: {"type":"content_block_delta"}\n: a comment\n\n',
    b"\n%bdata: {}\n\n",
    b": a comment\n\n%bdata: {}\n\n",
)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 7, 20])
@pytest.mark.parametrize("name", HOT)
def test_a_flood_means_what_its_frames_mean_one_by_one(name: str, place: int, odd: bytes) -> None:
    upstream_format, hot = HOT[name]
    request = msgspec.json.decode(b'{"messages":[{"role":"user","content":"Hi"}]}', type=ChatRequest)
    frames = [hot] * 20
    frames.insert(place, odd % hot[: hot.find(b"data: ")])

    def said(reads: list[bytes]) -> tuple[list[object], int, list[str]]:
        decoder = upstream_format.decoder(request, Target(Provider("p", "http://p"), upstream_format, "m"))
        steps = [step for read in reads for step in decoder.feed(read)]
        return list(map(repr, steps + decoder.close())), decoder.dropped, decoder.warnings

    assert said([b"".join(frames)]) == said(frames)
