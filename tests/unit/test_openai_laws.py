"""Whatever bytes come, a Chat Completions decoder ends once, raises nothing, and does not care how they were cut."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import UpstreamFailed
from gateway.events import MessageStop, encode
from gateway.formats import Quirks
from gateway.sequence import Sequencer
from tests.grammar import check
from tests.unit.openai_answers import DONE, decoder, steps

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", " ", "a", "{", "}", "{}", '{"a":1}', "<think>", "</think>", "\ud83d"]),
)
nonsense = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["type", "text", "url"]), inner, max_size=2)),
    max_leaves=4,
)


def maybe(*sensible: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(sensible), st.sampled_from(sensible), nonsense)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=fields)


functions = some(name=maybe("f", "g", ""), arguments=maybe("", '{"a":', "1}", "{}", "null", {"a": 1}))
fragments = some(index=maybe(0, 1, None), id=maybe("call_1", "call_2", "", None), function=st.one_of(functions, nonsense))
details = some(type=maybe("reasoning.text", "reasoning.encrypted"), text=maybe("hm"), signature=maybe("sig"), data=maybe("x"))
deltas = some(
    content=maybe("Hi", " ", "", None, [{"type": "thinking", "thinking": "hm"}, "Hi"]),
    reasoning_content=maybe("hm", ""),
    reasoning=maybe("hm"),
    reasoning_details=st.one_of(st.lists(details, max_size=2), nonsense),
    tool_calls=st.one_of(st.lists(fragments, max_size=2), nonsense),
    function_call=st.one_of(functions, nonsense),
    refusal=maybe("no"),
    annotations=maybe([{"type": "url_citation", "url_citation": {"url": "http://a", "title": "A"}}]),
)
choices = some(
    index=maybe(0, 0, 1),
    delta=st.one_of(deltas, deltas, nonsense),
    message=deltas,
    text=maybe("Hi"),
    finish_reason=maybe("stop", "length", "tool_calls", "error", ""),
    finishReason=maybe("stop"),
    usage=maybe({"prompt_tokens": 1}),
)
counts = some(
    prompt_tokens=maybe(5),
    completion_tokens=maybe(2),
    prompt_tokens_details=maybe({"cached_tokens": 1}),
    cost=maybe(0.1),
    estimated=maybe(True),
)
chunks = some(
    id=maybe("c1", ""),
    model=maybe("m"),
    object=maybe("chat.completion.chunk", "chat.completion", "error"),
    choices=st.one_of(st.lists(choices, min_size=1, max_size=2), st.lists(choices, min_size=1, max_size=1), nonsense),
    usage=st.one_of(counts, nonsense),
    error=st.one_of(st.none(), st.none(), st.none(), nonsense),
    citations=maybe(["http://a"]),
    x_groq=maybe({"usage": {"prompt_tokens": 3}}),
)


def written(chunk: Any, event: str) -> bytes:
    return event.encode() + b"data: " + json.dumps(chunk).encode() + b"\n\n"


# Mostly what a provider would send: nonsense alone breaks everything at once, and tells nothing about the rest.
words = st.sampled_from(["Hi", " ", "\n", "<think>", "</think>", "\ud83d", "\ude00", "{"])
pieces = st.builds(
    lambda index, name, arguments: {"index": index, "id": name and f"call_{index}", "function": {"name": name, "arguments": arguments}},
    st.integers(0, 2),
    st.sampled_from([None, None, "f", "g"]),
    st.sampled_from(["", '{"a":', "1}", "{}", '{"a":1}', "null", "\ud83d"]),
)
sensible_deltas = st.one_of(
    words.map(lambda text: {"content": text}),
    words.map(lambda text: {"reasoning_content": text}),
    pieces.map(lambda piece: {"tool_calls": [piece]}),
    pieces.map(lambda piece: {"tool_calls": [piece]}),
    st.just({"content": "Hi", "reasoning": "hm"}),
    st.just({"reasoning_details": [{"signature": "s"}, {"type": "reasoning.encrypted", "data": "x"}]}),
    st.just({"annotations": [{"type": "url_citation", "url_citation": {"url": "http://a"}}]}),
)
sensible = st.builds(
    lambda delta, finish: {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]},
    sensible_deltas,
    st.sampled_from([None] * 6 + ["stop", "tool_calls", "length"]),
)
odd_frames = st.one_of(
    st.builds(written, st.one_of(chunks, chunks, nonsense), st.sampled_from(["", "", "", "event: error\n", "event: x\n"])),
    st.sampled_from([DONE, b": ping\n\n", b"data: {not json\n\n", b'{"error": "x"}\n\n']),
)
frames = st.one_of(*[st.builds(written, sensible, st.just(""))] * 6, odd_frames)
bodies = st.one_of(
    *[st.lists(frames, max_size=12).map(b"".join)] * 4, st.builds(json.dumps, chunks).map(str.encode), st.binary(max_size=60)
)
rows = st.builds(
    Quirks,
    cumulative=st.booleans(),
    think_tags=st.sampled_from(["none", "split", "implicit"]),
    done_is_finish=st.booleans(),
    audio_excluded=st.booleans(),
)


def as_arguments(quirks: Quirks) -> dict[str, Any]:
    return {name: getattr(quirks, name) for name in Quirks.__dataclass_fields__}


@given(bodies, rows)
def test_any_bytes_end_once_and_the_events_obey_the_grammar(body: bytes, quirks: Quirks) -> None:
    made = steps(body, **as_arguments(quirks))
    assert isinstance(made[-1], MessageStop | UpstreamFailed)
    assert not any(isinstance(step, MessageStop | UpstreamFailed) for step in made[:-1])
    sequencer = Sequencer("m", "msg_1")
    events = sequencer.feed(made)
    for event in events:
        encode(event)
    if sequencer.failure is not None:
        events.append(sequencer.failure.event("r", partial=sequencer.content))
    check(events)


@given(bodies, rows, st.integers(1, 9))
def test_any_split_gives_the_same_steps(body: bytes, quirks: Quirks, read: int) -> None:
    def plain(made: list[Any]) -> list[Any]:
        return [(step.cause, step.message) if isinstance(step, UpstreamFailed) else step for step in made]

    arguments = as_arguments(quirks)
    assert plain(steps(body, read=read, **arguments)) == plain(steps(body, **arguments))


@given(st.lists(frames, max_size=6).map(b"".join))
@settings(max_examples=300)
def test_nothing_counts_after_the_ending(body: bytes) -> None:
    made = decoder()
    made.feed(body)
    made.close()
    assert made.feed(body) == made.close() == []


@given(st.lists(sensible, max_size=12), rows)
def test_the_quick_reading_and_the_patient_one_give_the_same_steps(said: list[Any], quirks: Quirks) -> None:
    def made(**more: Any) -> list[str]:
        return [repr(step) for step in steps(b"".join(written({**one, **more}, "") for one in said), **as_arguments(quirks))[:-1]]

    assert made() == made(object="something that the quick one refuses")
