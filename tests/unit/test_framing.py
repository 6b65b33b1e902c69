"""What providers do beyond the standard: bodies of every kind, framed by what they are, each at every cut."""

import time
import tracemalloc
from collections.abc import Callable

import pytest

from gateway.framing import DONE, Framing, is_whole, resynchronise
from gateway.sse import EventStream, Frame
from tests.cuts import pieces_of
from tests.unit.test_sse import STANDARD

# Body, kind, frames, dropped.
BODIES: dict[str, tuple[bytes, str, list[tuple[str, bytes]], int]] = {
    "nothing": (b"", "blank", [], 0),
    "only-blanks": (b"\xef\xbb\xbf \r\n\t\n", "blank", [], 0),
    "html": (b"\n <!DOCTYPE html><p>data: {}\n\n", "html", [], 0),
    "sse": (b'data: {"a":1}\n\ndata: [DONE]\n\n', "sse", [("", b'{"a":1}'), ("", DONE)], 0),
    "sse-after-bom-and-blanks": (b'\xef\xbb\xbf\r\n  data: {"a":1}\n\n', "sse", [("", b'{"a":1}')], 0),
    "sse-with-crlf": (b'event: e\r\ndata: {"a":1}\r\n\r\n: c\r\ndata: [DONE]\r\n\r\n', "sse", [("e", b'{"a":1}'), ("", DONE)], 0),
    "heartbeats": (b"data:\n\ndata: \n\n: keep-alive\n\nevent: ping\n\ndata:  \t\ndata\n\ndata: {}\n\n", "sse", [("", b"{}")], 0),
    "null-is-data": (b"data: null\n\n", "sse", [("", b"null")], 0),
    "comments-and-data-in-a-block": (b": x=1\n: y=2\ndata: [DONE]\n\n", "sse", [("", DONE)], 0),
    "end-without-blank-line": (b"data: {}\n\ndata: [DONE]", "sse", [("", b"{}"), ("", DONE)], 0),
    "end-with-one-line-end": (b'data: {}\n\nevent: e\ndata: {"b":2}\n', "sse", [("", b"{}"), ("e", b'{"b":2}')], 0),
    "end-with-glued-done": (b'data: {"a":1}data: [DONE]', "sse", [("", b'{"a":1}data: [DONE]')], 0),
    "cut-in-the-data": (b'data: {}\n\ndata: {"b":', "sse", [("", b"{}")], 1),
    "cut-in-the-name": (b"data: {}\n\ndat", "sse", [("", b"{}")], 0),
    "cut-in-a-bare-object": (b'data: {}\n\n{"error": {"mess', "sse", [("", b"{}")], 1),
    "malformed-data-is-its-readers": (b"data: {oops}\n\ndata: oops\n\n", "sse", [("", b"{oops}"), ("", b"oops")], 0),
    "bare-object": (
        b'data: {}\n\n{"error":{"message":"no"}}\n\ndata: {}\n\n',
        "sse",
        [("", b"{}"), ("", b'{"error":{"message":"no"}}'), ("", b"{}")],
        0,
    ),
    "bare-object-after-its-event": (b'event: error\n{"message":"no"}\n\n', "sse", [("error", b'{"message":"no"}')], 0),
    "bare-object-after-data": (
        b'data: {"a":1}\n{"error":1}\ndata: {"b":2}\n\n',
        "sse",
        [("", b'{"a":1}'), ("", b'{"error":1}'), ("", b'{"b":2}')],
        0,
    ),
    "bare-object-at-the-end": (b': x\n\n{"error":1}', "sse", [("", b'{"error":1}')], 0),
    "bare-broken-object": (b': x\n\n{"error"\n\ndata: {}\n\n', "sse", [("", b"{}")], 1),
    "error-field": (b'data: {}\n\nerror: {"detail":"no"}\n\n', "sse", [("", b"{}"), ("error", b'{"detail":"no"}')], 0),
    "error-field-at-the-end": (b'data: {}\n\nerror:{"detail":"no"}\n', "sse", [("", b"{}"), ("error", b'{"detail":"no"}')], 0),
    "error-field-in-words": (b"error: overloaded\n\nerror:\n\n", "sse", [("error", b"overloaded")], 0),
    "plain-text": (b"upstream connect error", "sse", [], 0),
    "json-document": (b'{"a":1}', "json", [("", b'{"a":1}')], 0),
    "json-document-with-a-line-end": (b' {"a":1}\r\n', "lines", [("", b'{"a":1}')], 0),
    "pretty-document": (b'\xef\xbb\xbf{\n "a": [\n  1\n ]\n}\n', "json", [("", b'{\n "a": [\n  1\n ]\n}')], 0),
    "pretty-document-with-blank-lines": (b'{\r\n\r\n "a": 1\r\n\r\n}', "json", [("", b'{\r\n\r\n "a": 1\r\n\r\n}')], 0),
    "list-document": (b'[{"error":{"code":429}}]\n', "json", [("", b'[{"error":{"code":429}}]')], 0),
    "cut-document": (b'{"a":\n', "json", [("", b'{"a":')], 0),
    "done-alone": (b"[DONE]\n", "json", [("", DONE)], 0),
    "json-lines": (b'{"a":1}\n{"b":2}\r\n\n{"c":3}', "lines", [("", b'{"a":1}'), ("", b'{"b":2}'), ("", b'{"c":3}')], 0),
    "json-lines-that-become-sse": (
        b'{"a":1}\ndata: {"b":2}\n\n: hb\nevent: x\nid: 1\nretry: 2\ndata:{"c":3}\n\ndata:\n\nerror: {"d":4}\n\ndata: [DONE]\n\n',
        "lines",
        [("", b'{"a":1}'), ("", b'{"b":2}'), ("", b'{"c":3}'), ("error", b'{"d":4}'), ("", DONE)],
        0,
    ),
    "json-lines-with-a-broken-one": (
        b'{"a":1}\n{"b":\noops\n[DONE]\n',
        "lines",
        [("", b'{"a":1}'), ("", b'{"b":'), ("", b"oops"), ("", DONE)],
        0,
    ),
}


def framed(body: list[bytes], framing: Framing) -> list[Frame]:
    return [frame for chunk in body for frame in framing.feed(chunk)] + framing.close()


@pytest.mark.parametrize("case", BODIES)
def test_a_body_is_framed_by_what_it_is_at_every_cut(case: str) -> None:
    body, kind, expected, dropped = BODIES[case]
    for pieces in pieces_of(body):
        framing = Framing()
        frames = framed(pieces, framing)
        assert [(frame.event, frame.data) for frame in frames] == expected
        assert (framing.kind, framing.dropped, framing.overflow) == (kind, dropped, False)
        assert (framing.seen, framing.empty) == (len(body), body == b"")


def test_json_lines_come_as_they_arrive() -> None:
    framing = Framing()
    assert framing.feed(b'{"a":1}') == []
    assert framing.feed(b'\n{"b":') == [Frame("", b'{"a":1}')]
    assert framing.feed(b"2}\n") == [Frame("", b'{"b":2}')]


def test_the_beginning_of_a_body_is_kept_as_a_bounded_snippet() -> None:
    body = b" \n<html>" + b"x" * 2000
    for pieces in pieces_of(body):
        framing = Framing()
        framed(pieces, framing)
        assert framing.snippet == body.lstrip()[:512]


@pytest.mark.parametrize(
    "body", [b'{"a":1}\n{"b":%b}\n' % (b" " * 20), b'{"a":%b}\n' % (b" " * 20), b'{\n"a":%b\n}' % (b" " * 13), b"[" + b" " * 20]
)
def test_a_json_line_or_document_over_the_limit_overflows_at_every_cut(body: bytes) -> None:
    outcomes = set()
    for pieces in pieces_of(body):
        framing = Framing(limit=20)
        frames = framed(pieces, framing)
        outcomes.add((framing.overflow, tuple(frame.data for frame in frames)))
    assert outcomes == {(True, (b'{"a":1}',) if body.startswith(b'{"a":1}') else ())}


@pytest.mark.parametrize(
    ("data", "saved"),
    [
        (b'{"id":"c1","chdata: {"id":"c2"}', [b'{"id":"c2"}']),
        (b'{"id":"c1","chdata:{"id":"c2"}', [b'{"id":"c2"}']),
        (b'{"a":data: {"b":data: {"c":1}', [b'{"c":1}']),
        (b'{"a":data: {"b":1}data: [DONE]', [b'{"b":1}', DONE]),
        (b'{"a":1}[DONE]', [b'{"a":1}', DONE]),
        (b'{"a":1}\ndata: [DONE]', [b'{"a":1}', DONE]),
        (b'{"a":1}data:[DONE] ', [b'{"a":1}', DONE]),
        (b'{"a":1}data: {"b":2}', [b'{"b":2}']),
        (b" [DONE]\t", [DONE]),
        (b'{"a":data: {"b":', []),
        (b'{"a":[DONE]', []),
        (b'{"text":"data: {\\"a\\":1}', []),
        (b"oops", []),
        (b"", []),
        (b'{"text":"so write data: {\\"a\\":1} or data:{}"}', [b'{"text":"so write data: {\\"a\\":1} or data:{}"}']),
    ],
)
def test_glued_frames_are_resynchronised_and_whole_json_never_cut(data: bytes, saved: list[bytes]) -> None:
    assert resynchronise(data) == saved


def test_whole_json_is_told_from_a_part() -> None:
    assert is_whole(b' {"a": NaN} ')
    assert not is_whole(b'{"a":')
    assert not is_whole(b"[DONE]")


@pytest.mark.parametrize("make", [lambda: EventStream(limit=20), lambda: Framing(limit=20)], ids=["EventStream", "Framing"])
def test_an_event_over_the_limit_ends_the_reading_and_what_came_before_it_counts(make: Callable[[], EventStream | Framing]) -> None:
    fits, over = b"data: {%b}\n\n" % (b" " * 12), b"data: {%b}\n\n" % (b" " * 13)
    for pieces in pieces_of(fits + b"\n\n" + fits + over + fits):
        stream = make()
        frames = [frame for chunk in pieces for frame in stream.feed(chunk)] + stream.close()
        assert stream.overflow
        assert [len(frame.data) for frame in frames] == [14, 14]


@pytest.mark.parametrize("first", [b"data: {", b"{", b"[", b"x", b"{}\n", b"\n"])
def test_an_endless_line_overflows_and_is_let_go(first: bytes) -> None:
    framing = Framing(limit=100_000)
    framing.feed(first)
    tracemalloc.start()
    for _ in range(200):
        assert framing.feed(b"x" * 4096) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert framing.overflow
    assert peak < 500_000
    assert framing.close() == []
    assert framing.feed(b"\n\ndata: {}\n\n") == []


@pytest.mark.parametrize("first", [b"data: {", b'{"a":"', b'{\n"a":"'])
def test_a_large_event_in_small_reads_takes_linear_time(first: bytes) -> None:
    def seconds(size: int) -> float:
        framing, chunk = Framing(), b"x" * 4096
        began = time.process_time()
        framing.feed(first)
        for _ in range(size // 4096):
            framing.feed(chunk)
        assert len(framing.feed(b'"}\n\n') + framing.close()) == 1
        return time.process_time() - began

    # Quadratic would be 256 times 1 MiB's cost; linear is 16. Noise gets the rest.
    small = min(seconds(1 << 20) for _ in range(3))
    assert seconds((16 << 20) - 8192) < 80 * small + 0.2


@pytest.mark.parametrize("case", STANDARD)
def test_what_decoders_read_is_what_the_standard_says_but_for_blank_data(case: str) -> None:
    body, expected = STANDARD[case]
    wanted = [Frame(event, data) for event, data in expected if data.strip()]
    for pieces in pieces_of(body):
        framing = Framing()
        frames = [frame for piece in pieces for frame in framing.feed(piece)]
        assert frames + framing.close() == wanted
