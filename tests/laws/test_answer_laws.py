"""Laws of a whole answer, from a provider's bytes to the client's: grammar, cuts, and the same message by every road.

The streams and documents here are written by hand from the providers' own documentation, not with the gateway's encoders.
"""

import json
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import ChatRequest, Message
from gateway.deltas import is_content
from gateway.events import Event
from gateway.formats import Provider, Quirks, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI
from gateway.message import Assembler
from gateway.sequence import Sequencer
from tests.grammar import check

Json = dict[str, Any]
REQUEST = ChatRequest([Message("user", "hi")])
TARGETS = {
    "anthropic": Target(Provider("p", "http://p"), ANTHROPIC, "m"),
    "openai": Target(Provider("p", "http://p/v1"), OPENAI, "m"),
    "openai, think tags": Target(Provider("p", "http://p/v1", quirks=Quirks(think_tags="split")), OPENAI, "m"),
    "openai, implicit tags, cumulative": Target(
        Provider("p", "http://p/v1", quirks=Quirks(think_tags="implicit", cumulative=True)), OPENAI, "m"
    ),
}


def answer(target: Target, pieces: list[bytes]) -> list[Event]:
    """What a client gets of a body that came in these pieces; a failure as its terminal event."""
    decoder, sequencer = target.format.decoder(REQUEST, target), Sequencer("m", "msg_0", 7)
    events = [event for piece in pieces for event in sequencer.feed(decoder.feed(piece))]
    if not sequencer.done and sequencer.failure is None:
        events += sequencer.feed(decoder.close())
    assert sequencer.done != (sequencer.failure is not None)
    if sequencer.failure is not None:
        events.append(sequencer.failure.event("req", partial=any(is_content(event) for event in events)))
    return events


def message_of(target: Target, body: bytes) -> Json:
    assembler = Assembler()
    assembler.feed(answer(target, [body]))
    return assembler.message


# ---- any bytes

fragments = st.sampled_from(
    [
        b"data: ", b"data:", b"event: ", b"\n", b"\n\n", b"\r\n", b"\r", b": c\n\n", b"\xef\xbb\xbf", b"[DONE]", b"{", b"}", b"[", b"null",
        b"<html>", b"error: ", b"content_block_delta", b"message_stop", b"\xff\xfe", b"\xe2\x80", b"\xa8",
        b'{"type":"message_start","message":{"id":"a","usage":{"input_tokens":1}}}',
        b'{"type":"message_start","message":{"content":[{"type":"tool_use","input":{"a":1}}],"stop_reason":"tool_use"}}',
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}',
        b'{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f"}}',
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}',
        b'{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\":"}}',
        b'{"type":"content_block_delta","delta":{"type":"newer_delta","x":NaN}}',
        b'{"type":"content_block_stop","index":0}',
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}',
        b'{"type":"message_stop"}', b'{"type":"error","error":{"type":"overloaded_error","message":"o"}}',
        b'{"choices":[{"delta":{"content":"<think>"}}]}', b'{"choices":[{"delta":{"content":" a</think>b"},"finish_reason":"stop"}]}',
        b'{"choices":[{"delta":{"reasoning":"r","tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}},{"function":null}]}}],"usage":{"prompt_tokens":-1}}',
        b'{"choices":[{"message":{"content":"doc","tool_calls":[{"id":"c","function":{"name":"f"}}]},"finish_reason":"length"}]}',
        b'{"choices":[],"error":{"code":429}}', b'{"choices":{"0":1},"id":7,"delta":[]}',
        b'{"choices":[{"delta":{"content":["a",{"type":"text"}]}}]}',
    ]
)  # fmt: skip
bodies = st.lists(fragments | st.binary(max_size=8), max_size=24).map(b"".join)
frames = st.lists(fragments, max_size=10).map(lambda parts: b"".join(b"data: " + part + b"\n\n" for part in parts))


@given(st.sampled_from(sorted(TARGETS)), bodies | frames)
def test_any_bytes_become_events_that_obey_the_grammar(name: str, body: bytes) -> None:
    check(answer(TARGETS[name], [body]))


@given(st.sampled_from(sorted(TARGETS)), bodies | frames, st.lists(st.integers(0, 400), max_size=6))
def test_any_cuts_of_the_bytes_give_the_same_events(name: str, body: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    whole = answer(TARGETS[name], [body])
    cut = answer(TARGETS[name], [body[begin:end] for begin, end in pairwise(edges)])
    assert cut == whole


# ---- one message, written as a stream and as a document

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=24)
objects = st.dictionaries(st.text("ab", max_size=2), st.integers(-9, 9) | texts | st.lists(st.booleans(), max_size=2), max_size=3)
identities = st.text("abc123", min_size=1, max_size=6)
FOUND = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e", "page_age": None}
claude_blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature}, texts, identities),
    identities.map(lambda data: {"type": "redacted_thinking", "data": data}),
    st.builds(lambda id, value: {"type": "tool_use", "id": f"toolu_{id}", "name": "f", "input": value}, identities, objects),
    st.builds(lambda id, value: {"type": "server_tool_use", "id": id, "name": "web_search", "input": value}, identities, objects),
    identities.map(lambda id: {"type": "web_search_tool_result", "tool_use_id": id, "content": [FOUND]}),
)
claude_messages = st.builds(
    lambda content, reason, tokens: {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason,
        "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": tokens},
    },
    st.lists(claude_blocks, max_size=5),
    st.sampled_from(["end_turn", "tool_use", "pause_turn", "refusal", "newer"]),
    st.integers(0, 6),
)  # fmt: skip
seeds = st.integers(0, 1 << 30)


def cut(text: str, dice: random.Random) -> Iterator[str]:
    while text:
        size = dice.randint(1, 5)
        yield text[:size]
        text = text[size:]


def claude_stream(message: Json, dice: random.Random) -> bytes:
    begun = {**message, "content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 0}}
    frames: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(message["content"]):
        start, deltas = dict(block), []
        match block["type"]:
            case "text":
                start["text"] = ""
                deltas = [{"type": "text_delta", "text": part} for part in cut(block["text"], dice)]
            case "thinking":
                start |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": part} for part in cut(block["thinking"], dice)]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use" | "server_tool_use":
                start["input"] = {}
                written = json.dumps(block["input"]) if block["input"] else ""
                deltas = [{"type": "input_json_delta", "partial_json": part} for part in cut(written, dice)]
        frames.append({"type": "content_block_start", "index": index, "content_block": start})
        frames += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        frames.append({"type": "content_block_stop", "index": index})
        if dice.random() < 0.3:
            frames.append({"type": "ping"})
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    frames.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": message["usage"]["output_tokens"]}})
    frames.append({"type": "message_stop"})
    return "".join(f"event: {frame['type']}\ndata: {json.dumps(frame, ensure_ascii=dice.random() < 0.5)}\n\n" for frame in frames).encode()


@given(claude_messages, seeds)
def test_claudes_stream_and_document_are_the_same_message(message: Json, seed: int) -> None:
    target = TARGETS["anthropic"]
    streamed = message_of(target, claude_stream(message, random.Random(seed)))
    assert streamed == message_of(target, json.dumps(message).encode())
    assert streamed["content"] == message["content"]
    assert (streamed["stop_reason"], streamed["usage"]) == (message["stop_reason"], message["usage"])


RESPONSES: list[bytes] = []


def _respond(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=RESPONSES.pop())


SDK = anthropic.Anthropic(api_key="k", http_client=httpx2.Client(transport=httpx2.MockTransport(_respond)))


@given(claude_messages, seeds)
def test_the_official_sdk_reads_the_native_bytes_as_the_assembler_does(message: Json, seed: int) -> None:
    events = answer(TARGETS["anthropic"], [claude_stream(message, random.Random(seed))])
    RESPONSES.append(NATIVE.encoder().feed(events))
    with SDK.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream:
        final = stream.get_final_message().to_dict(exclude_unset=False)
    ours = Assembler()
    ours.feed(events)
    for key in ("id", "role", "model", "stop_reason", "stop_sequence"):
        assert final[key] == ours.message[key]
    assert len(final["content"]) == len(ours.message["content"])
    for theirs, block in zip(final["content"], ours.message["content"], strict=True):
        assert {key: theirs[key] for key in block} == block
    assert {key: final["usage"][key] for key in ours.message["usage"]} == ours.message["usage"]


visible = texts.filter(lambda text: text.strip() != "")
calls = st.builds(
    lambda id, value: {"id": f"call_{id}", "type": "function", "function": {"name": "f", "arguments": json.dumps(value)}},
    identities,
    objects,
)
chat_messages = st.builds(
    lambda reasoning, text, calls: {"role": "assistant", "reasoning_content": reasoning, "content": text, "tool_calls": calls},
    st.none() | visible,
    st.none() | visible,
    st.lists(calls, max_size=3, unique_by=lambda call: call["id"]),
).filter(lambda message: any((message["reasoning_content"], message["content"], message["tool_calls"])))


def chat_stream(message: Json, reason: str, usage: Json, dice: random.Random) -> bytes:
    deltas: list[Json] = [{"role": "assistant", "content": None}]
    deltas += [{"reasoning_content": part} for part in cut(message["reasoning_content"] or "", dice)]
    deltas += [{"content": part} for part in cut(message["content"] or "", dice)]
    for index, call in enumerate(message["tool_calls"]):
        name = {"index": index, "id": call["id"], "type": "function", "function": {"name": "f", "arguments": ""}}
        parts = [{"index": index, "function": {"arguments": part}} for part in cut(call["function"]["arguments"], dice)]
        deltas += [{"tool_calls": [fragment]} for fragment in (name, *parts)]
    chunks = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks.append({"id": "c", "model": "m", "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


@given(chat_messages, seeds)
def test_a_chat_completions_stream_and_document_are_the_same_message(message: Json, seed: int) -> None:
    reason, usage = "tool_calls" if message["tool_calls"] else "stop", {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    document = {"id": "c", "model": "m", "object": "chat.completion", "usage": usage}
    document["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    target = TARGETS["openai"]
    streamed = message_of(target, chat_stream(message, reason, usage, random.Random(seed)))
    assert streamed == message_of(target, json.dumps(document).encode())
    assert [block["input"] for block in streamed["content"] if block["type"] == "tool_use"] == [
        json.loads(call["function"]["arguments"]) for call in message["tool_calls"]
    ]
    assert "".join(block["text"] for block in streamed["content"] if block["type"] == "text").strip() == (message["content"] or "").strip()


