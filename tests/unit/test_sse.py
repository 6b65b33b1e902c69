"""The standard's own parser cases, each at every cut."""

import tracemalloc

import pytest

from gateway.sse import EventStream, Frame
from tests.cuts import pieces_of

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


def read(body: list[bytes], stream: EventStream) -> list[Frame]:
    return [frame for chunk in body for frame in stream.feed(chunk)]


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


def test_a_block_of_countless_tiny_lines_takes_memory_like_its_bytes() -> None:
    body = b"d:\n" * 300_000 + b"\n"
    stream = EventStream()
    tracemalloc.start()
    stream.feed(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(body)
