"""Laws of the AI SDK's format: any answer is a stream that its strictest client takes, and what a page keeps of it comes back whole."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import ChatRequest, Message
from gateway.errors import RequestRefused
from gateway.events import Event, MessageStop
from gateway.formats import Asked
from gateway.formats.ai_sdk import AI_SDK, is_use_chat
from gateway.message import Assembler
from tests import ui_stream
from tests.laws.test_answer_laws import TARGETS, answer, bodies, claude_stream, frames, identities, objects, seeds, texts

Json = dict[str, Any]


def written(events: list[Event], dice: random.Random | None = None, asked: Asked = Asked()) -> bytes:  # noqa: B008  # frozen
    """The stream, however the events come together."""
    encoder = AI_SDK.encoder(asked)
    if dice is None:
        return encoder.feed(events)
    body, left = b"", events
    while left:
        size = dice.randint(1, 7)
        body += encoder.feed(left[:size]) + (encoder.heartbeat() if dice.random() < 0.1 else b"")
        left = left[size:]
    return body


def document(events: list[Event], asked: Asked = Asked()) -> Json:  # noqa: B008  # frozen
    whole: Json = json.loads(AI_SDK.document(asked).feed(events))
    return whole


def assembled(events: list[Event]) -> Json:
    assembler = Assembler()
    assembler.feed(events)
    return assembler.message


@given(st.sampled_from(sorted(TARGETS)), bodies | frames, seeds)
def test_any_answer_is_a_stream_that_the_strictest_client_takes(name: str, body: bytes, seed: int) -> None:
    events = answer(TARGETS[name], [body])
    whole = written(events)
    found = ui_stream.chunks(whole)
    assert written(events, random.Random(seed)).replace(b": ping\n\n", b"") == whole.replace(b": ping\n\n", b"")
    folded = ui_stream.fold(found)
    if isinstance(events[-1], MessageStop):
        assert folded == document(events)


# ---- and back

words = st.text("abc", min_size=1, max_size=5)
calls = st.builds(
    lambda kind, id, name, value, more: {"type": kind, "id": id, "name": name, "input": value, **more},
    st.sampled_from(["tool_use", "server_tool_use"]),
    identities,
    words,
    objects,
    st.sampled_from([{}, {}, {"caller": {"type": "direct"}}, {"extra_content": {"google": {"thought_signature": "s"}}}]),
)
citations = st.sampled_from(
    [
        {"type": "web_search_result_location", "url": "https://a", "title": "T", "encrypted_index": "e", "cited_text": "x"},
        {"type": "search_result_location", "source": "https://b", "title": None, "cited_text": ""},
        {"type": "search_result_location", "source": "shelf 3", "title": "Book", "cited_text": "x", "search_result_index": 2},
        {
            "type": "char_location",
            "document_index": 0,
            "document_title": None,
            "cited_text": "x",
            "start_char_index": 3,
            "end_char_index": 4,
        },
        {"type": "page_location", "document_index": 1, "document_title": "D", "start_page_number": 1, "end_page_number": 2},
        {"type": "newer_location", "where": 1},
    ]
)
blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.builds(lambda text, cited: {"type": "text", "text": text, "citations": cited}, texts, st.lists(citations, min_size=1, max_size=4)),
    st.builds(lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature}, texts | st.just(""), identities),
    texts.map(lambda text: {"type": "thinking", "thinking": text, "signature": ""}),
    identities.map(lambda data: {"type": "redacted_thinking", "data": data}),
    calls,
    st.builds(lambda id, value: {"type": "mcp_tool_use", "id": id, "name": "f", "server_name": "s", "input": value}, identities, objects),
    identities.map(lambda id: {"type": "mcp_tool_result", "tool_use_id": id, "is_error": True, "content": "no"}),
    identities.map(
        lambda id: {
            "type": "web_search_tool_result",
            "tool_use_id": id,
            "content": [{"type": "web_search_result", "url": f"https://{id}", "title": "t", "encrypted_content": "e", "page_age": "1 day"}],
        }
    ),
    st.sampled_from([{"type": "compaction", "content": "so far"}, {"type": "newer_block", "x": [None, 1]}]),
    st.just({"type": "fallback", "from": {"model": "m"}, "to": {"model": "n"}, "trigger": {"type": "refusal"}}),
    st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
)


@st.composite
def messages(draw: st.DrawFn) -> Json:
    """Calls have ids of their own; results answer some of them, the one before or another, or none."""
    content = draw(st.lists(blocks, max_size=7))
    numbered = [{**block, "id": f"{block['id']}_{number}"} if "id" in block else block for number, block in enumerate(content)]
    at_provider = [block["id"] for block in numbered if block["type"] in ("server_tool_use", "mcp_tool_use")]
    unanswered = list(at_provider)
    for number, block in enumerate(numbered):
        if "tool_use_id" in block and unanswered and draw(st.booleans()):
            numbered[number] = {**block, "tool_use_id": unanswered.pop(draw(st.integers(0, len(unanswered) - 1)))}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": numbered,
        "stop_sequence": None,
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", "pause_turn", "refusal", "max_tokens", "newer"])),
        "usage": {"input_tokens": 3, "output_tokens": draw(st.integers(0, 9)), "cache_read_input_tokens": 5},
    }


def posted(message: Json, *after: Json) -> ChatRequest:
    """What `useChat` sends with the next question, as a request."""
    asked = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    body = json.dumps({"id": "chat", "messages": [asked, message, *after], "trigger": "submit-message"}).encode()
    assert is_use_chat(body)
    return AI_SDK.parse(body).request


def without_empty_texts(content: list[Json]) -> list[Json]:
    return [block for block in content if block["type"] != "text" or block["text"]]


def without_images(content: list[Json]) -> list[Json]:
    return [block for block in content if block["type"] != "image"]


def without_the_wrong(content: list[Json]) -> list[Json]:
    return [{key: value for key, value in block.items() if key != "invalid_input"} for block in content]


# Each with what the content is without it.
LOSSES: dict[str, Callable[[list[Json]], list[Json]]] = {
    "texts without a character, which no provider takes": without_empty_texts,
    "images that the model made": without_images,
    "arguments that are no object, which the result tells in words": without_the_wrong,
}


def lost(content: list[Json]) -> list[Json]:
    for loss in LOSSES.values():
        content = loss(content)
    return content


@given(messages(), seeds)
def test_what_a_page_keeps_of_an_answer_is_sent_back_as_the_same_blocks(message: Json, seed: int) -> None:
    dice = random.Random(seed)
    events = answer(TARGETS["anthropic"], [claude_stream(message, dice)])
    whole = assembled(events)
    folded = ui_stream.fold(ui_stream.chunks(written(events, dice)))
    assert folded == document(events)
    found = posted(folded).messages[1:]
    want = lost(whole["content"])
    called = [block["id"] for block in want if block["type"] == "tool_use"]
    if want:
        said = found.pop(0)
        assert said.role == "assistant"
        assert ([{"type": "text", "text": said.content}] if isinstance(said.content, str) else said.content) == want
    if called:
        results = found.pop(0).content
        assert [(block["type"], block["tool_use_id"]) for block in results if isinstance(block, dict)] == [
            ("tool_result", id) for id in called
        ]
    assert not found


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_is_named_that_is_none(name: str) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://a"}}
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, image, {"type": "tool_use", "invalid_input": {}}]
    assert LOSSES[name](content) != content


# ---- any body

values = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, "", "a", "xyz", "data:image/png;base64,AA", "data:,a", "data:text/plain;base64,?", "https://a", "blob:x"),
        *([], {}, [None], [[]], [{"type": "text"}], {"type": "text", "text": "a"}, {"type": 1}, {"f": {}}, {"f": {"parameters": 1}}),
        {"anthropic": {"signature": "s", "citations": [1], "cacheControl": {"type": "ephemeral"}}},
        {"anthropic": {"redactedData": "r", "signature": 1}, "chatStreamGateway": {"type": "mcp_tool_use", "id": 1, "newer": 1}},
        {"anthropic": [], "chatStreamGateway": {"type": 7}},
        {"type": "web_search_tool_result", "tool_use_id": "xyz"},
        {"type": "web_search_tool_result", "tool_use_id": []},
        {"approved": True, "reason": "r"},
        {"approved": False, "reason": 1},
        {"type": "file", "mediaType": "text/plain", "url": "data:,a%20b"},
    ]
)
kinds = st.sampled_from(
    [
        *("text", "reasoning", "file", "step-start", "tool-f", "tool-", "dynamic-tool", "data-x", "data-gateway-block", "source-url"),
        *("steering-message", "custom", "newer"),
    ]
)
states = st.sampled_from(
    [
        *("input-streaming", "input-available", "output-available", "output-error", "output-denied"),
        *("approval-requested", "approval-responded", "newer"),
    ]
)
keys = ["text", "url", "mediaType", "filename", "toolCallId", "toolName", "input", "rawInput", "output", "errorText", "approval", "data"]
keys += ["providerMetadata", "callProviderMetadata", "providerExecuted", "parts"]
parts = st.builds(
    lambda kind, state, rest: {**({"type": kind} if kind else {}), **({"state": state} if state else {}), **rest},
    st.none() | kinds,
    st.none() | states,
    st.dictionaries(st.sampled_from(keys), values, max_size=6),
)
any_messages = st.builds(
    lambda role, id, parts: {"role": role, "id": id, "parts": parts},
    st.sampled_from(["user", "assistant", "system", "tool"]),
    st.just("1") | values,
    st.lists(parts, max_size=4) | values,
)
any_bodies = st.builds(
    lambda messages, rest: {"messages": messages, **rest},
    st.lists(any_messages | values, max_size=3) | values,
    st.dictionaries(
        st.sampled_from(
            ["model", "system", "tools", "tool_choice", "max_tokens", "topP", "stop_sequences", "effort", "extra", "callSettings"]
        ),
        values,
        max_size=3,
    ),
)


@given(any_bodies)
def test_any_body_is_a_request_or_is_refused_by_a_sentence_that_names_the_field(said: Json) -> None:
    refused = ""
    messages: list[Message] = []
    try:
        messages = AI_SDK.parse(json.dumps(said).encode()).request.messages
    except RequestRefused as error:
        refused = error.message
    assert messages or re.split(r"\W", refused)[0] in said
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            assert isinstance(block["type"], str)
