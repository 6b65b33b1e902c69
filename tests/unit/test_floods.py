"""A provider that floods: no few bytes of it become many, or much work, before the others have had their turn.

What takes work is counted by what is read or written, not by a clock: two shared cores keep no milliseconds.
"""

import itertools
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from gateway import body, json_text
from gateway.body import Body
from gateway.errors import UpstreamFailed
from gateway.events import (
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Stats,
    TextDelta,
    UnknownDelta,
    decode,
    encode,
)
from gateway.formats import Provider, Quirks, Step
from gateway.formats.anthropic.frames import read_run
from gateway.formats.anthropic.stream import MessageDecoder
from gateway.formats.openai.stream import OpenAIDecoder
from gateway.formats.plain import TEXT
from gateway.framing import LINES_LIMIT, Framing
from gateway.kept import Text, cost
from gateway.message import Assembler
from gateway.sequence import Sequencer

BLOCK = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}},
    {"type": "content_block_stop", "index": 0},
]


def frames(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


def usage_update(tokens: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {}, "usage": {"output_tokens": tokens}}


def claude(*values: Any) -> list[Step]:
    return MessageDecoder("p").feed(frames(*values))


def test_many_usage_updates_of_one_read_stay_small() -> None:
    sequencer = Sequencer("m", "msg_1")
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 1, "note": "A" * 50_000}}}
    between = [value for tokens in range(500) for value in (usage_update(tokens), {"type": "something", "number": tokens})]
    events = sequencer.feed(claude(start, *BLOCK, *between))
    updates = [event for event in events if isinstance(event, MessageDelta)]
    assert [update.usage["output_tokens"] for update in updates] == list(range(500))
    assert len(b"".join(map(encode, events))) < 300_000


def test_usage_updates_of_one_read_lose_no_field() -> None:
    sequencer = Sequencer("m", "msg_1")
    first = {"type": "message_delta", "delta": {"container": "c"}, "usage": {"output_tokens": 1}, "context_management": 2}
    updates = [event for event in sequencer.feed(claude(*BLOCK, first, usage_update(7))) if isinstance(event, MessageDelta)]
    assert (updates[0].delta["container"], updates[0].rest) == ("c", {"context_management": 2})
    assert [update.usage["output_tokens"] for update in updates] == [1, 7]


def test_usage_of_more_than_any_provider_has_ends_the_answer() -> None:
    sequencer = Sequencer("m", "msg_1")
    for number in range(200):
        sequencer.feed(claude({"type": "message_start", "message": {"usage": {f"key{number}": "A" * 1000}}}))
    assert sequencer.failure is not None
    assert sequencer.failure.cause.code == "event_too_large"
    assert len(json_text.write(sequencer.usage)) < 140_000


def test_usage_that_is_told_again_and_again_is_not_added_up() -> None:
    sequencer = Sequencer("m", "msg_1")
    for number in range(5000):
        sequencer.feed(claude({"type": "message_start", "message": {"usage": {"output_tokens": number, "note": "A" * 50}}}))
    assert sequencer.failure is None


@pytest.mark.parametrize("between", [[], [{"choices": [{"index": 0, "delta": {"content": "x"}}]}]])
def test_arguments_that_never_become_whole_are_not_read_again_with_each_fragment(
    between: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    real = json_text.read

    def counting(data: bytes | str) -> Any:
        nonlocal read
        read += len(data)
        return real(data)

    def call(arguments: str) -> dict[str, Any]:
        fragment = {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [fragment]}}]}

    decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1"))
    decoder.feed(frames(call('{"a": "' + "B" * 1_000_000)))
    monkeypatch.setattr(json_text, "read", counting)
    decoder.feed(frames(*[value for _ in range(300) for value in (call("{}"), *between)]))
    assert read < 6_000_000


@pytest.mark.parametrize("line", [b"{\n", b"{}\n", b"error:x\n", b"data:x\n", b":\n"])
def test_event_of_more_lines_than_any_has_is_too_large(line: bytes) -> None:
    framing = Framing()
    assert len(framing.feed(b'data: {"a":1}\n\ndata: x\n' + line * LINES_LIMIT + b"\n")) == 1
    assert framing.overflow
    assert framing.feed(b'data: {"a":2}\n\n') == []


def test_event_of_many_lines_is_read() -> None:
    framing = Framing()
    [frame] = framing.feed(b"data: [1,\n" * (LINES_LIMIT - 2) + b"data: 1" + b"\n\n")
    assert frame.data.count(b"\n") == LINES_LIMIT - 2
    assert not framing.overflow


@pytest.mark.parametrize("tokens", ["1" + "0" * 400, "1e300", "1125899906842624"])
def test_count_beyond_any_is_no_count(tokens: str) -> None:
    sequencer = Sequencer("m", "msg_1")
    said = b'data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":%b}}}\n\n' % tokens.encode()
    sequencer.feed(MessageDecoder("p").feed(said))
    events = sequencer.feed(claude(*BLOCK, {"type": "message_stop"}))
    [ending] = [event for event in events if isinstance(event, MessageDelta)]
    assert ending.usage == {"input_tokens": 5, "output_tokens": 0}


def test_text_of_a_document_leaves_out_what_is_no_text() -> None:
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "odd_delta", "text": {"a": 1}}}
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "text2": "x"}}
    more = {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "said"}}
    events = Sequencer("m", "msg_1").feed(claude(start, odd, more, {"type": "message_stop"}))
    events[-1] = MessageStop(Stats())
    assert TEXT.document().feed(events) == b"said"


@pytest.mark.parametrize("piece", [b"data: {x", b"data: {x}", b"data:[", b"data: 7", b"data: {}\n{x", b"{x}"])
def test_malformed_pieces_without_end_are_no_answer(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MALFORMED_LIMIT", 10)
    reading = Body("p")
    good = b'data: {"a":1}\n\n'
    reading.feed(b"data: {y\n\n" + good)
    for _ in range(20):
        reading.feed((piece + b"\n\n") * 5 + good)
        assert reading.failure is None
    reading.feed((piece + b"\n\n") * 30)
    if piece.startswith(b"data: {}"):  # it has something good in between
        assert reading.failure is None
    else:
        assert reading.failure is not None
        assert reading.failure.cause.code == "stream_malformed"


@pytest.mark.parametrize("reads", [1, 2], ids=["read in one go", "read one by one"])
def test_as_many_malformed_pieces_are_borne_behind_a_flood_as_behind_a_frame(reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MALFORMED_LIMIT", 10)
    reading = Body("p", read_run=read_run)
    reading.feed(b"data: {x\n\n" * 5)
    for _ in range(reads):
        reading.feed(b'data: {"type":"message_stop"}\n\n' * (2 // reads))
    reading.feed(b"data: {x\n\n" * 10)
    assert reading.failure is None
    reading.feed(b"data: {x\n\n")
    assert reading.failure is not None


@pytest.mark.parametrize("piece", [b"{x}", b'{"a":"data: {"b"', b"nonsense", b'{"a":data: {x}'])
def test_a_malformed_frame_is_read_once(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes | str] = []
    real = json_text.read

    def counting(data: bytes | str) -> Any:
        read.append(data)
        return real(data)

    monkeypatch.setattr(json_text, "read", counting)
    reading = Body("p", read=counting)
    assert reading.feed(b"data: " + piece + b"\n\n") == []
    assert read.count(piece) == 1


def test_a_decoder_ends_a_flood_of_malformed_frames() -> None:
    flood = b"data: {x\n\n" * 6000
    for decoder in (MessageDecoder("p"), OpenAIDecoder(Provider("p", "http://127.0.0.1"))):
        [failure] = decoder.feed(flood)
        assert failure.cause.code == "stream_malformed"  # type: ignore[union-attr]  # the only step is a failure
        assert decoder.dropped == body.MALFORMED_LIMIT + 1
        assert decoder.feed(flood) == []


def test_no_reading_of_a_chunk_takes_more_values_than_any_answer_has() -> None:
    many = b"[" + b"[]," * 60_000 + b"1]"
    deep = b"[" * 600 + b"]" * 600
    for value in (many, deep):
        decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1"))
        assert decoder.feed(b'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"a":%b}}\n\n' % value) == []
        assert decoder.dropped == 1


def test_arguments_of_more_values_than_any_answer_has_are_invalid() -> None:
    sequencer = Sequencer("m", "msg_1")
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}
    text = '{"a":["\\ud800",' + "[]," * 60_000 + "1]}"
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}
    events = sequencer.feed(claude(start, delta, {"type": "message_stop"}))
    [stop] = [event for event in events if isinstance(event, ContentBlockStop)]
    assert isinstance(stop.invalid_input, InvalidInput)
    assert (stop.invalid_input.reason, len(stop.invalid_input.partial_json)) == ("invalid_json", len(text))


def memory(make: Callable[[], Any]) -> int:
    """The bytes that what it makes takes."""
    tracemalloc.start()
    try:
        made = make()
        size = tracemalloc.get_traced_memory()[0]
        del made
        return size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "each", ["[]", "{}", "1", "1000", "1.5", '"a"', '"ab"', '{"a":1}', '{"a":"bc","d":"ef"}', "[[[1]]]", f'"{"a" * 500}"']
)
def test_what_a_value_costs_is_about_what_it_takes(each: str) -> None:
    text = "[" + ",".join([each] * 5000) + "]"
    assert memory(lambda: json_text.read(text)) < 2 * cost(json_text.read(text))


def test_a_text_of_small_pieces_takes_its_characters_and_no_more() -> None:
    def made() -> Text:
        text = Text()
        for number in range(50_000):
            text.add(f"{number % 10} ")
        return text

    assert memory(made) < 1.5 * 100_000
    assert (str(made()), made().size) == ("0 1 2 3 4 5 6 7 8 9 " * 5000, 100_000)


def block_of(kind: str, *deltas: Any) -> list[Event]:
    return [ContentBlockStart(0, {"type": kind, "text": ""}), *[ContentBlockDelta(0, delta) for delta in deltas], ContentBlockStop(0)]


@pytest.mark.parametrize(
    "events",
    [
        lambda number: [ContentBlockDelta(0, TextDelta(f"{number % 10} "))],
        lambda number: block_of("text", TextDelta(f"{number % 10} ")),
        lambda number: block_of("odd", UnknownDelta({"type": "odd", f"k{number}": "v "})),
        lambda number: [ContentBlockDelta(0, UnknownDelta({"type": "odd", f"k{number}": "v "}))],
        lambda number: [ContentBlockDelta(0, UnknownDelta({"type": "odd", "k": [[], {}, number]}))],
        lambda number: [ContentBlockDelta(0, CitationsDelta({"n": number, "m": {}}))],
        lambda number: [ContentBlockStart(0, {"type": "tool_use"}), ContentBlockStop(0, input={"a": [[], [number], {"b": number}]})],
    ],
    ids=["pieces", "blocks", "blocks of unknown deltas", "keys", "lists", "citations", "inputs"],
)
def test_an_assembled_answer_takes_about_what_was_counted(events: Callable[[int], list[Event]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas of two characters each, tiny blocks, tiny objects: all are counted with what they take beside their text."""
    limit = 500_000
    monkeypatch.setattr("gateway.message.LIMIT", limit)
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}

    def filled() -> Assembler:
        assembler = Assembler()
        assembler.feed([MessageStart(start), ContentBlockStart(0, {"type": "text", "text": ""})])
        numbers = itertools.count()
        try:
            while True:
                assembler.feed(decoded(events(next(numbers))))
        except UpstreamFailed:
            return assembler

    def decoded(events: list[Event]) -> list[Event]:
        return [event if isinstance(event, ContentBlockStop) else decode(encode(event)) for event in events]

    assert memory(filled) < 3 * limit


def fill(decoder: OpenAIDecoder, chunk: Callable[[int], dict[str, Any]], count: int) -> UpstreamFailed | None:
    for number in range(count):
        for step in decoder.feed(frames({"choices": [{"index": 0, "delta": {}, **chunk(number)}]})):
            if isinstance(step, UpstreamFailed):
                return step
    return None


def fragment(**said: Any) -> dict[str, Any]:
    return {"delta": {"tool_calls": [said]}}


@pytest.mark.parametrize(
    "chunk",
    [
        lambda number: fragment(index=number, id=f"{number}" + "i" * 1000, function={"name": "f", "arguments": "{}"}),
        lambda number: fragment(index=number, id=f"{number}", function={"arguments": "{"}, extra_content={"e": "e" * 1000}),
        lambda number: fragment(index=number, function={"name": "n" * 1000}),
        lambda number: fragment(index=0, id="a", function={"name": "f", "arguments": "a" * 1000}),
        lambda number: {"delta": {"annotations": [{"type": "url_citation", "url_citation": {"url": f"{number}" + "u" * 1000}}]}},
        lambda number: {"delta": {"annotations": [{"url_citation": {"url": f"{number}", "title": "t" * 1000}}]}},
        lambda number: {"delta": {}, "finish_reason": None, "stop_reason": "x", "usage": {f"k{number % 90}": {f"k{number}": "u" * 1000}}},
    ],
    ids=["ids", "extra content", "names", "arguments", "urls", "uncited titles", "usage"],
)
def test_all_that_the_decoder_keeps_of_an_answer_is_one_sum(
    chunk: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.formats.openai.stream.LIMIT", 200_000)
    monkeypatch.setattr("gateway.formats.openai.stream.USAGE_LIMIT", 80_000)
    failure = fill(OpenAIDecoder(Provider("p", "http://127.0.0.1")), chunk, 300)
    assert failure is not None
    assert failure.cause.code == "event_too_large"


def test_what_a_cumulative_provider_said_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.formats.openai.stream.LIMIT", 200_000)
    decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1", quirks=Quirks(cumulative=True)))
    assert fill(decoder, lambda number: {"delta": {"content": f"{number}" + "t" * 1000}}, 150) is None
    assert fill(decoder, lambda number: {"delta": {"content": f"{number}" + "t" * 1000}}, 150) is not None


def test_what_was_let_go_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.formats.openai.stream.LIMIT", 200_000)
    decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1"))
    arguments = json.dumps({"a": "b" * 10_000})

    def call(number: int) -> dict[str, Any]:
        return fragment(index=number, id=f"c{number}", function={"name": "f", "arguments": arguments}, extra_content={"e": arguments})

    def usage(number: int) -> dict[str, Any]:
        return {"usage": {"completion_tokens": number, "note": "u" * 1000}}

    assert fill(decoder, call, 100) is None
    assert fill(OpenAIDecoder(Provider("p", "http://127.0.0.1")), lambda number: {"delta": {"content": "t" * 10_000}}, 100) is None
    assert fill(OpenAIDecoder(Provider("p", "http://127.0.0.1")), usage, 300) is None


def test_arguments_of_two_characters_at_a_time_take_their_characters() -> None:
    def sequenced() -> Sequencer:
        sequencer = Sequencer("m", "msg_1")
        sequencer.feed([ContentBlockStart(0, {"type": "tool_use", "id": "t", "name": "f", "input": {}})])
        for number in range(20_000):
            sequencer.feed([ContentBlockDelta(0, InputJsonDelta(f"{number % 10} "))])
        return sequencer

    def decoded() -> OpenAIDecoder:
        decoder = OpenAIDecoder(Provider("p", "http://127.0.0.1"))
        fill(decoder, lambda number: fragment(index=0, id="t", function={"name": "f", "arguments": f"{number % 10} "}), 20_000)
        return decoder

    assert memory(sequenced) < 3 * 40_000
    assert memory(decoded) < 3 * 40_000
