"""The standard's own parser cases, each at every cut; then what providers do beyond the standard."""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from gateway.sse import DONE, EventStream, Frame, Framing, encode_frame, is_whole, resynchronise

N = b"\n\n\n"
LONG = b"x" * 2048

# The web platform tests for EventSource (folder eventsource/, files format-*.any.js and event-data.any.js): bytes, then (event, data).
STANDARD: dict[str, tuple[bytes, list[tuple[str, bytes]]]] = {
    "event-data": (
        b"data:msg\ndata: msg\n\n:\nfalsefield:msg\n\nfalsefield:msg\nData:data\n\ndata\n\ndata:end\n\n",
        [("", b"msg\nmsg"), ("", b""), ("", b"end")],
    ),
    "bom": (b"\xef\xbb\xbfdata:1\n\n\xef\xbb\xbfdata:2\n\ndata:3" + N, [("", b"1"), ("", b"3")]),
    "bom-2": (b"\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\ndata:3" + N, [("", b"2"), ("", b"3")]),
    "comments": (
        b"data:1\r:\0\n:\r\ndata:2\n:" + LONG + b"\rdata:3\n:data:fail\r:" + LONG + b"\ndata:4\n\n",
        [("", b"1\n2\n3\n4")],
    ),
    "data-before-final-empty-line": (b"retry:1000\ndata:test1\n\nid:test\ndata:test2\n", [("", b"test1")]),
    "field-data": (b"data:\n\ndata\ndata\n\ndata:test" + N, [("", b""), ("", b"\n"), ("", b"test")]),
    "field-event": (b"event:test\ndata:x\n\ndata:x" + N, [("test", b"x"), ("", b"x")]),
    "field-event-empty": (b"event: \ndata:data" + N, [("", b"data")]),
    "field-parsing": (
        b"data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n",
        [("", b"\0\n 2\n1\n3\n\n4")],
    ),
    "field-retry": (b"retry:3000\ndata:x" + N, [("", b"x")]),
    "field-retry-bogus": (b"retry:3000\nretry:1000x\ndata:x" + N, [("", b"x")]),
    "field-retry-empty": (b"retry\ndata:test" + N, [("", b"test")]),
    "field-unknown": (
        b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test" + N,
        [("", b"test\n\ntest")],
    ),
    "leading-space": (b"data:\ttest\rdata: \ndata:test" + N, [("", b"\ttest\n\ntest")]),
    "newlines": (b"data:test\r\ndata\ndata:test\r\n\r\n", [("", b"test\n\ntest")]),
    "null-character": (b"data:\0\n\n" + N, [("", b"\0")]),
    "utf-8": ("data:ok…".encode() + N, [("", "ok…".encode())]),
    "field-id": (b"id:1\ndata:a\n\ndata:b\n\nid:2\ndata:c" + N, [("", b"a"), ("", b"b"), ("", b"c")]),
    "crlf": (b"event: e\r\ndata: a\r\ndata: b\r\n\r\n\r\ndata: c\r\n\r\n", [("e", b"a\nb"), ("", b"c")]),
    "lone-cr": (b"event: e\rdata: a\r\rdata: b\r\r", [("e", b"a"), ("", b"b")]),
    "no-line-ends-but-these-three": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [("", "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode())],
    ),
    "bom-inside-is-data": (b"data: \xef\xbb\xbfx\n\n", [("", b"\xef\xbb\xbfx")]),
    "event-without-data": (b"event: ping\n\ndata: x\n\n", [("", b"x")]),
    "the-last-event-field-wins": (b"event: a\nevent: b\ndata: {}\n\n", [("b", b"{}")]),
    "event-after-data": (b"data: {}\nevent: b\n\n", [("b", b"{}")]),
    "only-one-space-is-removed": (b"event:  e\ndata:  {}\n\nevent: e\ndata:  {}\n\n", [(" e", b" {}"), ("e", b" {}")]),
    "the-common-shapes": (
        b'data: {"a":1}\n\nevent: x\ndata: {"b":2}\n\nevent:x\ndata:{"c":3}\n\nevent: x\ndata: {\ndata: }\n\ndata: {\ndata: }\n\n',
        [("", b'{"a":1}'), ("x", b'{"b":2}'), ("x", b'{"c":3}'), ("x", b"{\n}"), ("", b"{\n}")],
    ),
    "bad-utf-8-in-a-name": (b"event: \xff\ndata: {}\n\n", [("\ufffd", b"{}")]),
    "blank-lines-first": (b"\n\n\n\r\n\rdata: x\n\n", [("", b"x")]),
}


def pieces_of(body: bytes) -> Iterator[list[bytes]]:
    yield [body]
    yield [body[at : at + 1] for at in range(len(body))]
    for at in range(len(body) + 1):
        yield [body[:at], body[at:]]
    for size in (2, 3, 7):
        yield [body[at : at + size] for at in range(0, len(body), size)]


def read(body: list[bytes], stream: EventStream) -> list[Frame]:
    return [frame for chunk in body for frame in stream.feed(chunk)]


def framed(body: list[bytes], framing: Framing) -> list[Frame]:
    return [frame for chunk in body for frame in framing.feed(chunk)] + framing.close()


@pytest.mark.parametrize("case", STANDARD)
def test_the_standards_cases_hold_at_every_cut(case: str) -> None:
    body, expected = STANDARD[case]
    for pieces in pieces_of(body):
        assert [(frame.event, frame.data) for frame in read(pieces, EventStream())] == expected


@pytest.mark.parametrize(
    ("body", "event_id"),
    [
        (b"id: 1\ndata: a\n\ndata: b\n\n", "1"),
        (b"id: 1\n\n", "1"),
        (b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n", "2"),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", ""),
        (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", "1"),
        (b"id: 1\ndata: a\n\nid: 2\ndata: b\n", "1"),
        ("id: …\xa0\ndata: a\n\n".encode(), "…\xa0"),
    ],
)
def test_the_last_event_id_stays_until_a_finished_block_changes_it(body: bytes, event_id: str) -> None:
    for pieces in pieces_of(body):
        stream = EventStream()
        read(pieces, stream)
        stream.close()
        assert stream.last_event_id == event_id


@pytest.mark.parametrize(
    ("value", "retry"),
    [
        (b"3000", 3000),
        (b"1000x", None),
        (b"", None),
        (b"+30", None),
        (b"1_0", None),
        ("٣".encode(), None),
        (b"-1", None),
        (b"9" * 5000, None),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_retry_takes_ascii_digits_only(value: bytes, retry: int | None) -> None:
    stream = EventStream()
    stream.feed(b"retry: %b\n\n" % value)
    assert stream.retry == retry


def test_an_unfinished_event_is_only_returned_by_close() -> None:
    stream = EventStream()
    assert stream.feed(b"event: e\nid: 9\nretry: 9\ndata: {}\ndata: x") == []
    assert stream.close() == [Frame("e", b"{}\nx")]
    assert (stream.last_event_id, stream.retry) == ("", None)
    assert stream.close() == []


def test_nothing_at_all_gives_nothing() -> None:
    for body in (b"", b"\xef", b"\xef\xbb\xbf", b"\n", b": only a comment"):
        stream = EventStream()
        assert stream.feed(body) + stream.close() == []


def test_a_lone_cr_ends_the_event_without_waiting_for_the_next_read() -> None:
    stream = EventStream()
    assert stream.feed(b"data: x\r\r") == [Frame("", b"x")]
    assert stream.feed(b"\ndata: y\r\n\r") == [Frame("", b"y")]


def test_every_frame_is_returned_by_the_read_that_ended_it() -> None:
    stream = EventStream()
    assert stream.feed(b"data: {}\n") == []
    assert stream.feed(b"\ndata: {}") == [Frame("", b"{}")]
    assert stream.feed(b"\n") == []
    assert stream.feed(b"\n") == [Frame("", b"{}")]


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


def test_a_block_of_countless_tiny_lines_takes_memory_like_its_bytes() -> None:
    body = b"d:\n" * 300_000 + b"\n"
    stream = EventStream()
    tracemalloc.start()
    stream.feed(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(body)


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


def test_encoded_frames_are_those_read() -> None:
    assert encode_frame(b"x", b"{}") == b"event: x\ndata: {}\n\n"
    assert encode_frame(b"", b"{}") == b"data: {}\n\n"


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
