"""What holds for the framing of any bytes at all."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.framing import DONE, Framing, is_whole, resynchronise
from gateway.json_text import MalformedJson, read
from gateway.sse import EventStream, Frame

TRICKY = [
    b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b" ", b"\t", b":", b"\0", b"\xff", "…".encode(), "\u2028\x85".encode(),
    b"\xef\xbb\xbf", b"\xef\xbb", b"data: ", b"data:", b"data", b"data: {", b"data: {}\n\n", b'data: {"a":1}\n\n',
    b"event: content_block_delta\ndata: {}\n\n", b"event: content_block_delta\ndata: ",
    b"event: x\ndata: {}\n\n", b"event: ", b"event: x\n", b"event:\n", b"id: 1\n", b"id: \0\n", b"id\n", b"retry: 5\n", b"retry: 5x\n",
    b"error: ", b'error: {"a":1}\n', b": ping\n\n", b"data: [DONE]\n\n", b"[DONE]",
    b"{", b"}", b"[", b"]", b"{}", b'{"a":1}', b'{"a":1}\n', b'{\n"a":1}\n', b"[1]", b"<", b"x", b"null", b'"',
]  # fmt: skip

bodies = st.binary(max_size=60) | st.lists(st.sampled_from(TRICKY) | st.binary(max_size=3), max_size=24).map(b"".join)
limits = st.sampled_from([4, 12, 40, 1 << 20])
texts = st.text(max_size=8) | st.sampled_from(["data: {", 'data: {"a":1}', "data:{}", "[DONE]", "data: [DONE]", "}\n\n", "\\"])
# Nesting adds nothing to framing; what strings hold does.
documents = st.dictionaries(texts, texts | st.integers(-9, 9), max_size=2).map(lambda value: json.dumps(value, ensure_ascii=False).encode())


@st.composite
def cut(draw: st.DrawFn, body: bytes) -> list[bytes]:
    places = draw(st.lists(st.integers(0, len(body)), max_size=8).map(sorted) | st.just(list(range(len(body)))))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


cut_bodies = bodies.flatmap(lambda body: cut(body).map(lambda pieces: (body, pieces)))


def by_the_standard(body: bytes) -> tuple[list[tuple[str, str]], str]:
    """The standard's algorithm as it is written, over the whole decoded text."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, event, data, buffered_id, last_id = [], "", "", "", ""
    for line in text.split("\n")[:-1]:
        if not line:
            last_id = buffered_id
            if data:
                events.append((event, data[:-1]))
            event = data = ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data += value + "\n"
        elif name == "event":
            event = value
        elif name == "id" and "\0" not in value:
            buffered_id = value
    return events, last_id


@given(cut_bodies)
def test_any_bytes_at_any_cut_are_read_as_the_standard_says(cut_body: tuple[bytes, list[bytes]]) -> None:
    body, pieces = cut_body
    stream = EventStream()
    frames = [frame for piece in pieces for frame in stream.feed(piece)]
    events, last_id = by_the_standard(body)
    assert [(frame.event, frame.data.decode("utf-8", "replace")) for frame in frames] == events
    stream.close()
    assert stream.last_event_id == last_id


@given(cut_bodies, limits)
def test_cuts_change_nothing_for_a_stream_of_events(cut_body: tuple[bytes, list[bytes]], limit: int) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[Frame], object]:
        stream = EventStream(limit)
        frames = [frame for piece in pieces for frame in stream.feed(piece)] + stream.close()
        return frames, (stream.overflow, stream.last_event_id, stream.retry)

    body, pieces = cut_body
    assert outcome(pieces) == outcome([body])


@given(cut_bodies, limits)
def test_cuts_change_nothing_for_a_framing(cut_body: tuple[bytes, list[bytes]], limit: int) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[Frame], object]:
        framing = Framing(limit)
        frames = [frame for piece in pieces for frame in framing.feed(piece)] + framing.close()
        return frames, (framing.kind, framing.overflow, framing.dropped, framing.seen, framing.snippet)

    body, pieces = cut_body
    assert outcome(pieces) == outcome([body])


@given(cut_bodies, limits)
def test_a_run_has_the_data_of_its_frames_whose_names_say_nothing_else(cut_body: tuple[bytes, list[bytes]], limit: int) -> None:
    framing = Framing(limit)
    for piece in cut_body[1]:
        _, run = framing.take(piece)
        if run is not None:
            frames = framing.frames(run)
            assert [frame.data for frame in frames] == [data for data in run.data if data.strip()]
            assert {frame.event for frame in frames} <= {"", "content_block_delta"}
            assert not framing.overflow


@given(cut_bodies, limits)
def test_frames_are_bounded_by_the_limit_and_by_the_body(cut_body: tuple[bytes, list[bytes]], limit: int) -> None:
    body, pieces = cut_body
    framing = Framing(limit)
    frames = [frame for piece in pieces for frame in framing.feed(piece)] + framing.close()
    assert all(len(frame.data) <= limit for frame in frames)
    assert sum(len(frame.data) for frame in frames) <= len(body)
    assert len(framing.snippet) <= 512
    assert not any(frame.data.isspace() or not frame.data for frame in frames)


@given(st.lists(st.tuples(st.sampled_from(["", "x", "message_start", "…"]), documents), min_size=1, max_size=4), st.data())
def test_frames_in_the_shapes_that_everybody_writes_come_back_as_they_were(frames: list[tuple[str, bytes]], data: st.DataObject) -> None:
    names = [f"event: {event}\n".encode() if event else b"" for event, _ in frames]
    body = b"".join(b"%bdata: %b\n\n" % (name, document) for name, (_, document) in zip(names, frames, strict=True))
    pieces = data.draw(cut(body))
    stream, framing = EventStream(), Framing()
    expected = [Frame(event, document) for event, document in frames]
    assert [frame for piece in pieces for frame in stream.feed(piece)] == expected
    assert [frame for piece in pieces for frame in framing.feed(piece)] == expected
    assert framing.kind == "sse"


@given(st.lists(documents, min_size=1, max_size=3), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans(), st.data())
def test_json_lines_come_back_as_they_were(values: list[bytes], end: bytes, last_ends: bool, data: st.DataObject) -> None:
    body = end.join(values) + (end if last_ends else b"")
    framing = Framing()
    frames = [frame for piece in data.draw(cut(body)) for frame in framing.feed(piece)] + framing.close()
    assert frames == [Frame("", value) for value in values]


@given(st.lists(texts, max_size=3), st.none() | st.integers(1, 4))
def test_a_json_document_comes_back_as_it_was(value: list[str], indent: int | None) -> None:
    document = json.dumps(value, indent=indent).encode()
    framing = Framing()
    assert framing.feed(document) + framing.close() == [Frame("", document)]
    assert framing.kind == "json"


@given(documents)
def test_whole_json_is_never_cut(document: bytes) -> None:
    assert is_whole(document)
    assert resynchronise(document) == [document]
    assert resynchronise(document + b" data: [DONE]") == [document, DONE]


@given(bodies)
def test_what_is_saved_is_whole(data: bytes) -> None:
    for piece in resynchronise(data):
        assert piece == DONE or is_whole(piece)


@given(documents, st.integers(0, 200), documents)
def test_a_frame_glued_behind_a_broken_one_is_saved(broken: bytes, at: int, following: bytes) -> None:
    data = broken[: at % len(broken)] + b"data: " + following
    saved = resynchronise(data)
    try:
        read(data)
    except MalformedJson:
        assert saved in ([following], resynchronise(following[following.rfind(b"data:") :]))
    else:
        assert saved == [data.strip()]
