"""Type mapped, without sockets: pointers, the template of a request, and what the chunks of an answer come to."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat import ChatRequest
from gateway.errors import RequestRefused, UpstreamFailed
from gateway.events import MessageStop, encode
from gateway.formats import Provider, Step, Target
from gateway.formats.mapped import Description, MappedFormat
from gateway.formats.mapped.pointers import find, pointer
from gateway.formats.mapped.template import findings
from gateway.formats.native import parse
from gateway.message import Assembler
from gateway.sequence import Sequencer
from tests.cuts import pieces_of
from tests.grammar import check

Json = dict[str, Any]
CANARY = "sk-canary-5f0c1d"
PROVIDER = Provider("house", "http://127.0.0.1:9000/generate", CANARY)
EVERYTHING = {"reasoning": "/thought", "finish": "/finish", "error": "/failure"}


def described(request: Json | None = None, **more: Any) -> MappedFormat:
    """`text` at /text; pointers as they are written in a configuration."""
    places: Json = {"text": "/text", **more}
    for name in ("text", "reasoning", "finish", "error"):
        if places.get(name) is not None:
            places[name] = pointer(places[name])
    places["usage"] = {name: pointer(place) for name, place in more.get("usage", {}).items()}
    return MappedFormat(Description({"messages": "$messages"} if request is None else request, **places))


# Pointers.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {"a": [{"b": "x"}], "": {"": 1}, "c/d": 2, "e~f": 3, "~1": 4, "0": 5}),
        ("/a/0/b", "x"),
        ("/", {"": 1}),
        ("//", 1),
        ("/c~1d", 2),
        ("/e~0f", 3),
        ("/~01", 4),
        ("/0", 5),
        ("/a/1/b", None),
        ("/a/-", None),
        ("/a/00", None),
        ("/a/٠", None),
        ("/a/0/b/c", None),
        ("/A", None),
    ],
)
def test_a_pointer_finds_what_the_rfc_says(text: str, found: Any) -> None:
    assert find(pointer(text), {"a": [{"b": "x"}], "": {"": 1}, "c/d": 2, "e~f": 3, "~1": 4, "0": 5}) == found


@pytest.mark.parametrize("text", ["a", "a/b", "/a~", "/a~2", "#/a", " /a"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a JSON pointer"):
        pointer(text)


# Requests.

CHAT: Json = {
    "model": "m",
    "system": "Be brief.",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Three"}]},
        {"role": "system", "content": "It is late."},
        {"role": "user", "content": "Go on."},
    ],
}
TURNS = [
    {"role": "user", "content": "One\n\ntwo"},
    {"role": "assistant", "content": "Three"},
    {"role": "system", "content": "It is late."},
    {"role": "user", "content": "Go on."},
]


def chat(**more: Any) -> ChatRequest:
    return parse(json.dumps({**CHAT, **more}).encode())


def built(template: Json, request: ChatRequest | None = None, provider: Provider = PROVIDER, **more: Any) -> tuple[Json, tuple[str, ...]]:
    format_ = described(template, **more)
    asked = format_.build(request or chat(), Target(provider, format_, "large"))
    return json.loads(asked.body), asked.warnings


def test_every_placeholder_stands_for_its_part_of_the_chat() -> None:
    template = {
        "a": "$messages",
        "b": ["$prompt", "$model", {"c": "$system"}],
        "d": {"e": "$max_tokens", "f": "$temperature", "g": "$top_p", "h": "$stop"},
        "i": "$$messages",
        "j": "costs $5",
        "k": [1, None, True, 0.5],
    }
    body, warnings = built(template, chat(max_tokens=5, temperature=0, top_p=0.5, stop_sequences=["END"]))
    assert body == {
        "a": TURNS,
        "b": ["Go on.", "large", {"c": "Be brief.\n\nBe kind."}],
        "d": {"e": 5, "f": 0, "g": 0.5, "h": ["END"]},
        "i": "$messages",
        "j": "costs $5",
        "k": [1, None, True, 0.5],
    }
    assert warnings == ("earlier thinking was left out",)


def test_what_the_caller_did_not_say_is_left_out_with_its_key() -> None:
    template = {"m": "$messages", "n": {"o": "$max_tokens", "p": 1}, "q": ["$stop", "$temperature", 2], "s": "$system"}
    body, _ = built(template, parse(b'{"messages": [{"role": "user", "content": "Hi"}]}'))
    assert body == {"m": [{"role": "user", "content": "Hi"}], "n": {"p": 1}, "q": [2]}


def test_the_system_prompt_is_the_first_turn_where_it_has_no_place_of_its_own() -> None:
    assert built({"m": "$messages"})[0] == {"m": [{"role": "system", "content": "Be brief.\n\nBe kind."}, *TURNS]}


def test_turns_may_have_a_shape_and_roles_of_the_providers_own() -> None:
    template = {"log": {"$messages": ["$role", {"says": "$text", "n": 1}]}, "s": "$system"}
    body, _ = built(template, roles={"assistant": "bot", "system": "note"})
    assert body["log"] == [
        ["user", {"says": "One\n\ntwo", "n": 1}],
        ["bot", {"says": "Three", "n": 1}],
        ["note", {"says": "It is late.", "n": 1}],
        ["user", {"says": "Go on.", "n": 1}],
    ]


def test_a_transcript_is_all_turns_as_one_text() -> None:
    body, _ = built({"t": "$transcript"}, roles={"user": "Human", "assistant": "Bot"})
    assert body["t"] == ("system: Be brief.\n\nBe kind.\n\nHuman: One\n\ntwo\n\nBot: Three\n\nsystem: It is late.\n\nHuman: Go on.\n\nBot:")


def test_what_has_no_place_in_the_template_is_warned_of() -> None:
    _, warnings = built({"p": "$prompt"}, chat(max_tokens=5, temperature=1, effort="low", metadata={"user_id": "u"}))
    assert warnings == (
        "effort was left out",
        "metadata was left out",
        "earlier thinking was left out",
        "system was left out",
        "max_tokens was left out",
        "temperature was left out",
        "all but the latest user's text was left out",
    )


def test_a_prompt_cannot_hold_a_placeholder() -> None:
    body, _ = built({"p": "$prompt", "m": "$messages"}, chat(messages=[{"role": "user", "content": "$system"}]))
    assert body["p"] == body["m"][-1]["content"] == "$system"


def test_extra_and_the_providers_body_are_merged_and_the_templates_keys_are_not_the_callers() -> None:
    provider = Provider("house", "http://h", body={"seed": 7, "top": 1})
    assert built({"m": "$messages"}, chat(extra={"top": 2, "knob": 3}), provider)[0].keys() == {"m", "top", "knob", "seed"}
    assert built({"m": "$messages"}, chat(extra={"top": 2}), provider)[0]["top"] == 1
    inner = Provider("house", "http://h", body={"o": {"seed": 7}})
    assert built({"m": "$messages", "o": {"n": "$max_tokens"}}, chat(max_tokens=9), inner)[0]["o"] == {"n": 9, "seed": 7}
    for key in ("m", "stream", "model"):
        with pytest.raises(RequestRefused, match=f"extra.{key}: the gateway writes this key itself"):
            built({"m": "$messages"}, chat(extra={key: 1}))


def test_the_key_goes_into_the_header_of_auth_and_the_operators_headers_come_last() -> None:
    format_ = described()
    for auth, header in (("bearer", ("authorization", f"Bearer {CANARY}")), ("api-key", ("api-key", CANARY))):
        provider = Provider("house", "http://h/x", CANARY, auth, headers={"Accept": "text/plain"})
        asked = format_.build(chat(), Target(provider, format_, "m"))
        assert header in asked.headers
        assert ("accept", "text/plain") in asked.headers
        assert asked.url == "http://h/x"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"tools": [{"name": "f"}]}, "tools: provider house takes text only and cannot be given tools."),
        ({"response_format": {"type": "json_object"}}, "response_format: provider house takes text only and cannot be given a format"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, r"messages\[0\].content\[0\]: provider house .* cannot be given an image."),
        ({"messages": [{"role": "assistant", "content": [USE]}]}, r"messages\[0\].content\[0\]: .* cannot be given a tool's use."),
        ({"messages": [{"role": "tool", "tool_use_id": "t", "content": "x"}]}, r"messages\[0\]: .* cannot be given a tool's result."),
        ({"messages": [{"role": "user", "content": [{"type": "new"}]}]}, r"messages\[0\].content\[0\]: .* cannot be given this block."),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, r"messages\[0\].content\[0\].text: expected a string."),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages: at least one message must not be a system message."),
    ],
)
def test_what_it_cannot_be_told_is_refused_with_the_fields_name(asked: Json, sentence: str) -> None:
    with pytest.raises(RequestRefused, match=sentence):
        built({"m": "$messages"}, chat(**asked))


def test_a_prompt_wants_a_users_text() -> None:
    with pytest.raises(RequestRefused, match="is asked by a user's text, and there is none"):
        built({"p": "$prompt"}, chat(messages=[{"role": "assistant", "content": "x"}]))


def test_the_findings_of_a_template_say_what_is_wrong_and_where() -> None:
    template = {"a": ["$promt"], "b": "Q: $prompt", "c": {"$messages": {"r": "$role", "p": "$prompt"}, "d": 1}, "$e": 1, "f": "$role"}
    wrong = {found.place: (found.name, found.known, found.alone) for found in findings(template)}
    assert {place: row[0] for place, row in wrong.items()} == {
        ("a", 0): "promt",
        ("b",): "prompt",
        ("c",): "messages",
        ("c", "$messages", "r"): "role",
        ("c", "$messages", "p"): "prompt",
        ("$e",): "e",
        ("f",): "role",
    }
    assert [place for place, (name, known, alone) in wrong.items() if name in known and alone] == [("c", "$messages", "r")]


# Answers.


def steps(format_: MappedFormat, pieces: list[bytes], broken: UpstreamFailed | None = None) -> list[Step]:
    made = format_.decoder(chat(), Target(PROVIDER, format_, "large"), "text/event-stream")
    fed = [step for piece in pieces for step in made.feed(piece)]
    return [*fed, *made.close(broken)]


def told(format_: MappedFormat, pieces: list[bytes], broken: UpstreamFailed | None = None) -> list[Any]:
    """The blocks as `(type, text)`, then the stop reason or the error's code; the usage where some was told."""
    sequencer, assembler = Sequencer("large", "msg_1"), Assembler()
    events = sequencer.feed(steps(format_, pieces, broken))
    check(events, terminal=False)
    assembler.feed(events)
    message = assembler.message if sequencer.done else assembler.partial or {"content": []}
    blocks = [(block["type"], block.get("text", block.get("thinking"))) for block in message["content"]]
    return [
        *blocks,
        sequencer.failure.cause.code if sequencer.failure else message["stop_reason"],
        *([sequencer.usage] if sequencer.usage else []),
    ]


def sse(*chunks: Any) -> bytes:
    return b"".join(b"data: " + (chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()) + b"\n\n" for chunk in chunks)


def lines(*chunks: Any) -> bytes:
    return b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks)


HELLO, WORLD = {"text": "Hello"}, {"text": " world"}
TEXT = ("text", "Hello world")
BROKEN = UpstreamFailed("interrupted", "The connection broke.")


@pytest.mark.parametrize(
    ("format_", "body", "meaning"),
    [
        (described(), sse(HELLO, WORLD), [TEXT, "end_turn"]),
        (described(), sse(HELLO, WORLD, b"[DONE]"), [TEXT, "end_turn"]),
        (described(), lines(HELLO, WORLD), [TEXT, "end_turn"]),
        (described(), json.dumps({"text": "Hello world"}, indent=1).encode(), [TEXT, "end_turn"]),
        (described(), b'{"text": ""}', ["end_turn"]),
        (described(text=""), sse("Hello", " world"), [TEXT, "end_turn"]),
        (described(text="/a/0/b~1c"), sse({"a": [{"b/c": "Hello world"}]}), [TEXT, "end_turn"]),
        (described(**EVERYTHING), sse({"thought": "hm", **HELLO}, WORLD, {"finish": True}), [("thinking", "hm"), TEXT, "end_turn"]),
        (described(**EVERYTHING), sse(HELLO, {**WORLD, "finish": "length"}), [TEXT, "max_tokens"]),
        (described(**EVERYTHING), sse(HELLO, {"finish": "STOP"}, WORLD, b"[DONE]"), [TEXT, "end_turn"]),
        (described(**EVERYTHING), sse(HELLO, WORLD, b"[DONE]"), [TEXT, "end_turn"]),
        (described(finish="/finish", stop_reasons={"7": "refusal"}), lines(HELLO, WORLD, {"finish": 7}), [TEXT, "refusal"]),
        (described(finish="/finish"), lines({**HELLO, "finish": False}, {**WORLD, "finish": 0}, {"finish": 1}), [TEXT, "end_turn"]),
        (described(cumulative=True), lines(HELLO, HELLO, {"text": "Hello world"}, {"text": "Hello world"}), [TEXT, "end_turn"]),
        (
            described(cumulative=True, reasoning="/thought"),
            lines({"thought": "h"}, {"thought": "hm", "text": "Hello"}, {"thought": "hm", "text": "Hello world"}),
            [("thinking", "hm"), TEXT, "end_turn"],
        ),
        (
            described(usage={"input_tokens": "/n/0", "output_tokens": "/n/1"}),
            sse({**HELLO, "n": [3, 1]}, {**WORLD, "n": [3, 2.0]}, {"n": [None, "x"]}),
            [TEXT, "end_turn", {"input_tokens": 3, "output_tokens": 2}],
        ),
        # failures
        (described(**EVERYTHING), sse(HELLO, WORLD), [TEXT, "stream_interrupted"]),
        (described(**EVERYTHING), sse(HELLO, {"finish": 1}, WORLD), [TEXT, "stream_interrupted"]),
        (described(**EVERYTHING), sse(b"[DONE]"), ["stream_interrupted"]),
        (described(), sse(b"[DONE]"), ["stream_interrupted"]),
        (described(), sse({"other": 1}), ["stream_interrupted"]),
        (described(), b"", ["upstream_unavailable"]),
        (described(), b"<html>", ["upstream_unavailable"]),
        (described(), b"oh no", ["stream_malformed"]),
        (described(), lines(HELLO, WORLD) + b'{"text": "!', [TEXT, "stream_interrupted"]),
        (described(), sse(HELLO, WORLD, b"{torn"), [TEXT, "stream_interrupted"]),
        (described(), sse(HELLO, b"{torn", WORLD), [TEXT, "end_turn"]),
        (described(), b'{"text": "Hello', ["stream_malformed"]),
        (described(), sse(HELLO, WORLD, {"error": {"message": "no", "code": 429}}), [TEXT, "upstream_rate_limited"]),
        (described(**EVERYTHING), sse(HELLO, {**WORLD, "failure": {"message": "no", "code": 429}}), [TEXT, "upstream_rate_limited"]),
        (described(**EVERYTHING), sse({**HELLO, "error": {"code": 0}}, {**WORLD, "finish": 1}), [TEXT, "end_turn"]),
        (described(**EVERYTHING), sse(HELLO, {**WORLD, "finish": 1}, {"failure": "late"}), [TEXT, "end_turn"]),
        (described(**EVERYTHING), sse(HELLO, {**WORLD, "finish": "error"}), [TEXT, "upstream_unavailable"]),
        (described(), sse(HELLO, WORLD) + b'event: error\ndata: {"message": "no"}\n\n', [TEXT, "upstream_unavailable"]),
        # text
        (described(text=None), b"\xef\xbb\xbfHello world", [TEXT, "end_turn"]),
        (described(text=None), "Schöne Grüße 🎉\n".encode(), [("text", "Schöne Grüße 🎉\n"), "end_turn"]),
        (described(text=None), b"a\xff", [("text", "a\ufffd"), "end_turn"]),
        (described(text=None), b"<htm", [("text", "<htm"), "end_turn"]),
        (described(text=None), b"\n" * 70 + b"<b>Hello", [("text", "\n" * 70 + "<b>Hello"), "end_turn"]),
        (described(text=None), b"", ["upstream_unavailable"]),
        (described(text=None), b"\n <!DOCTYPE html><p>", ["upstream_unavailable"]),
    ],
)  # fmt: skip
def test_an_answer_means_the_same_however_it_is_cut(format_: MappedFormat, body: bytes, meaning: list[Any]) -> None:
    for pieces in pieces_of(body):
        assert told(format_, pieces) == meaning, pieces


@pytest.mark.parametrize("text", ["/text", None])
def test_a_broken_connection_is_no_end(text: str | None) -> None:
    body = sse(HELLO) if text else b"Hello"
    assert told(described(text=text), [body], BROKEN) == [("text", "Hello"), "stream_interrupted"]
    assert told(described(finish="/finish"), [sse(HELLO, {"finish": True})], BROKEN) == [("text", "Hello"), "end_turn"]


def test_an_unknown_finish_is_an_end_and_is_told_besides() -> None:
    delta = next(step for step in steps(described(finish="/finish"), [sse(HELLO, {"finish": f"odd {CANARY}"})]) if hasattr(step, "rest"))
    assert delta.delta == {"stop_reason": "end_turn", "stop_sequence": None, "raw_stop_reason": "odd [redacted]"}


def test_a_finish_that_is_an_error_says_its_word() -> None:
    last = steps(described(finish="/finish", stop_reasons={"oom": "error"}), [sse(HELLO, {"finish": "oom"})])[-1]
    assert isinstance(last, UpstreamFailed)
    assert (last.message, last.provider_code) == ("Provider house broke off its answer: it finished with oom.", "oom")


@pytest.mark.parametrize(
    ("chunk", "warning"),
    [
        ({"text": "", "finish": True}, "the answer is empty"),
        ({"answer": "Hello", "finish": True}, "the answer is empty: no chunk has a text where `text` points"),
        ({"text": {"is": "Hello"}, "finish": True}, "the answer is empty: no chunk has a text where `text` points"),
    ],
)
def test_a_pointer_that_finds_nothing_is_told_from_a_model_that_says_nothing(chunk: Json, warning: str) -> None:
    format_ = described(finish="/finish")
    made = format_.decoder(chat(), Target(PROVIDER, format_, "large"), "text/event-stream")
    made.feed(sse(chunk))
    made.close()
    assert made.warnings == [warning]


def test_what_is_no_text_is_dropped_and_counted() -> None:
    format_ = described(reasoning="/thought")
    made = format_.decoder(chat(), Target(PROVIDER, format_, "m"))
    made.feed(sse({"text": 1}, {"text": None, "thought": ["x"]}, HELLO, b"{torn"))
    assert made.dropped == 3


def test_an_answer_that_would_be_kept_whole_is_bounded() -> None:
    format_ = described(cumulative=True)
    made = format_.decoder(chat(), Target(PROVIDER, format_, "m"))
    piece = "x" * (4 << 20)
    for _ in range(17):  # each is something new
        fed = made.feed(sse({"text": piece}))
        piece = "y" + piece[:-1]
        if isinstance(fed[-1], UpstreamFailed):
            break
    assert isinstance(fed[-1], UpstreamFailed)
    assert fed[-1].cause.code == "event_too_large"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (sse(*[b"{torn"] * 1200), "stream_malformed"),
        (b"data: " + b"x" * (17 << 20), "event_too_large"),
        (sse(b'{"text": ' + b"[" * 600 + b"]" * 600 + b"}"), "stream_malformed"),
    ],
    ids=["malformed pieces", "one endless event", "nested too deeply"],
)
def test_a_flood_ends_the_answer(body: bytes, code: str) -> None:
    format_ = described()
    pieces = [body[start : start + 65536] for start in range(0, len(body), 65536)]
    assert told(format_, pieces) == [code]


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "a", "stop", "error", "\ud83d", "{"]))
nonsense = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab0"), inner, max_size=2)), max_leaves=4
)
chunks = st.one_of(
    nonsense,
    st.fixed_dictionaries({}, optional=dict.fromkeys(("text", "thought", "finish", "failure", "error", "n"), st.one_of(scalars, nonsense))),
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.lists(chunks, max_size=5).map(lambda many: sse(*(json.dumps(one).encode() for one in many))),
    st.lists(st.one_of(chunks, st.just(b"[DONE]"), st.just(b"{torn")), max_size=5).map(lambda many: sse(*many)),
    st.lists(chunks, max_size=5).map(lambda many: lines(*many)),
)
formats = st.sampled_from([
    described(), described(**EVERYTHING), described(cumulative=True, **EVERYTHING), described(text=""), described(text=None),
    described(usage={"input_tokens": "/n", "output_tokens": "/n/0"}, finish="/finish"),
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(formats, bodies, st.lists(st.integers(0, 80), max_size=4), st.booleans())
def test_any_bytes_become_one_ending_and_do_not_care_how_they_were_cut(
    format_: MappedFormat, body: bytes, cuts: list[int], broke: bool
) -> None:
    broken = BROKEN if broke else None
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[start:end] for start, end in itertools.pairwise(places)]
    whole = steps(format_, [body], broken)
    endings = [step for step in whole if isinstance(step, MessageStop | UpstreamFailed)]
    assert endings == whole[-1:]
    assert told(format_, pieces, broken) == told(format_, [body], broken)
    sequencer = Sequencer("large", "msg_1")
    events = sequencer.feed(whole)
    if sequencer.failure is not None:
        events.append(sequencer.failure.event("req_1", partial=sequencer.content))
    check(events)
    for event in events:
        encode(event)
