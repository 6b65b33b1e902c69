"""The law of requests: whatever history a client's format lets through, the provider gets one that it takes.

The grammars are written here from the providers' documents and their 400s, not from our builders:
https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/docs/build-with-claude/tool-use,
https://platform.openai.com/docs/api-reference/chat/create.

Two things stay the caller's, who is told in the provider's own words: a conversation that ends with a call, and a user message in
which nothing is said.
"""

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat import ChatRequest
from gateway.errors import RequestRefused
from gateway.formats import Provider, Quirks, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI, OPENAI_CLIENT

Json = dict[str, Any]

# Few of each, so that they meet: an id given twice, a result without its call, a call without its result.
IDS = st.sampled_from(["a", "b", "call_1", "functions.f:0", "x" * 50, "ü"])
TEXTS = st.sampled_from(["", "hi", "\n\n", "Be brief."])
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

text = TEXTS.map(lambda said: {"type": "text", "text": said})
said = st.one_of(text, st.just(PNG))
thinking = st.sampled_from([
    {"type": "thinking", "thinking": "hm"},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
])  # fmt: skip
use = st.builds(lambda id, given: {"type": "tool_use", "id": id, "name": "f", "input": given}, IDS, st.sampled_from([{}, {"x": 1}]))
told = st.one_of(TEXTS, st.lists(said, max_size=2))
result = st.builds(lambda id, content: {"type": "tool_result", "tool_use_id": id, "content": content}, IDS, told)
user = st.one_of(TEXTS, st.lists(st.one_of(said, result), min_size=1, max_size=4)).map(lambda content: {"role": "user", "content": content})
assistant = st.one_of(TEXTS, st.lists(st.one_of(text, thinking, use, use), min_size=1, max_size=4)).map(
    lambda content: {"role": "assistant", "content": content}
)
system = TEXTS.map(lambda content: {"role": "system", "content": content})
tool = st.builds(lambda id, content: {"role": "tool", "tool_use_id": id, "content": content}, IDS, told)

claude_bodies = st.lists(st.one_of(user, assistant, system), min_size=1, max_size=6)
native_bodies = st.lists(st.one_of(user, assistant, system, tool), min_size=1, max_size=6)

call = IDS.map(lambda id: {"id": id, "type": "function", "function": {"name": "f", "arguments": ""}})
openai_bodies = st.lists(
    st.one_of(
        st.one_of(TEXTS, st.lists(st.one_of(text, st.just(PNG_PART)), min_size=1, max_size=3)).map(
            lambda content: {"role": "user", "content": content}
        ),
        st.builds(
            lambda content, calls, thought: {"role": "assistant", "content": content, "tool_calls": calls, "reasoning_content": thought},
            st.one_of(st.none(), TEXTS),
            st.lists(call, max_size=3),
            TEXTS,
        ),
        st.builds(lambda id, content: {"role": "tool", "tool_call_id": id, "content": content}, IDS, TEXTS),
        TEXTS.map(lambda content: {"role": "system", "content": content}),
    ),
    min_size=1,
    max_size=6,
)
CLIENTS = {"native": (NATIVE, native_bodies), "anthropic": (CLAUDE_CLIENT, claude_bodies), "openai": (OPENAI_CLIENT, openai_bodies)}
asked = st.one_of(*(st.tuples(st.just(name), bodies) for name, (_, bodies) in CLIENTS.items()))

SHAPES = {"any": r"(?s).+", "word": r"[a-zA-Z0-9_-]+", "at_most_40": r"(?s).{1,40}", "alphanumeric_9": r"[a-zA-Z0-9]{9}"}
rows = st.builds(
    Quirks,
    tool_ids=st.sampled_from(list(SHAPES)),
    later_system=st.sampled_from(["keep", "reminder"]),
    echo_reasoning=st.sampled_from(["never", "tool_turns", "always"]),
    alternating=st.booleans(),
)


def sent(format: Any, name: str, messages: list[Json], quirks: Quirks) -> list[Json] | None:
    """What reaches the provider; None if the history is no request, or says nothing."""
    try:
        body = json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode()
        request: ChatRequest = CLIENTS[name][0].parse(body).request
        built = format.build(request, Target(Provider("p", "http://p", quirks=quirks), format, "m"))
        again = format.build(request, Target(Provider("p", "http://p", quirks=quirks), format, "m"))
    except RequestRefused:
        assert all(message["role"] == "system" or says_nothing(message) for message in messages)
        return None
    assert built == again, "the same request says the same"
    written: list[Json] = json.loads(built.body)["messages"]
    return written


def says_nothing(message: Json) -> bool:
    blocks = message["content"] if isinstance(message["content"], list) else []
    spoken = message["content"] if isinstance(message["content"], str) else ""
    kinds = {block["type"] for block in blocks if block.get("text") != ""}
    return message["role"] == "assistant" and not spoken and not message.get("tool_calls") and kinds <= {"thinking", "redacted_thinking"}


# What Claude takes.


def merged(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """As Claude reads them: messages of one role in a row are one."""
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks)
        else:
            turns.append((message["role"], list(blocks)))
    return turns


def claude_takes(messages: list[Json], quirks: Quirks) -> None:
    assert messages
    shape = SHAPES["word" if quirks.tool_ids == "any" else quirks.tool_ids]
    for place, message in enumerate(messages):
        assert message.keys() == {"role", "content"}
        assert message["role"] in ("user", "assistant") + (("system",) if quirks.later_system == "keep" else ())
        assert message["content"] or message["role"] != "assistant" or place == len(messages) - 1, "an answer says something"
    turns = merged(messages)
    seen: set[str] = set()
    for place, (role, blocks) in enumerate(turns):
        for block in blocks:
            claude_block(role, block, quirks)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert all(re.fullmatch(shape, id) for id in calls)
        assert len(set(calls)) == len(calls)
        assert not seen & set(calls)
        seen |= set(calls)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = [block["id"] for block in turns[place - 1][1] if block["type"] == "tool_use"] if place else []
        assert sorted(results) == sorted(before), "each call is answered in the next turn, and nothing else"
        assert [block["type"] for block in blocks[: len(results)]] == ["tool_result"] * len(results), "before anything else is said"


def claude_block(role: str, block: Json, quirks: Quirks) -> None:
    match block["type"]:
        case "text":
            assert block["text"] != ""
        case "image":
            assert role == "user"
        case "tool_use":
            assert role == "assistant"
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert role == "user"
            assert isinstance(block["content"], str) or {"type": "text", "text": ""} not in block["content"]
        case "thinking":
            assert role == "assistant"
            assert block.get("signature") or quirks.echo_reasoning != "never"
        case "redacted_thinking":
            assert role == "assistant"
        case other:
            raise AssertionError(other)


@given(asked, rows)
def test_claude_gets_what_it_takes(one: tuple[str, list[Json]], quirks: Quirks) -> None:
    messages = sent(ANTHROPIC, *one, quirks)
    if messages is not None:
        claude_takes(messages, quirks)


# What OpenAI and its lookalikes take.


def openai_takes(messages: list[Json], quirks: Quirks) -> None:
    assert messages
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if waiting:
            assert role == "tool", "all results stand right after their calls"
        match role:
            case "system":
                assert isinstance(content, str)
                assert content
                assert place == 0 or quirks.later_system == "keep"
            case "user":
                if isinstance(content, list):
                    assert content
                    assert all(part["type"] == "image_url" or (part["type"] == "text" and part["text"]) for part in content)
            case "assistant":
                calls = message.get("tool_calls", [])
                assert content or (content is None and calls)
                for one in calls:
                    assert re.fullmatch(SHAPES[quirks.tool_ids], one["id"])
                    assert isinstance(json.loads(one["function"]["arguments"]), dict)
                waiting = [one["id"] for one in calls]
                assert len(set(waiting)) == len(waiting)
                assert not seen & set(waiting)
                seen |= set(waiting)
            case "tool":
                assert isinstance(content, str)
                waiting.remove(message["tool_call_id"])
            case other:
                raise AssertionError(other)
        if quirks.alternating and place and role in ("user", "assistant"):
            assert role != messages[place - 1]["role"] or "tool_calls" in messages[place - 1]
    assert not waiting or messages[-1]["role"] == "assistant"


@given(asked, rows)
def test_openai_gets_what_it_takes(one: tuple[str, list[Json]], quirks: Quirks) -> None:
    messages = sent(OPENAI, *one, quirks)
    if messages is not None:
        openai_takes(messages, quirks)


def in_a_block(message: Json) -> Json:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message


@given(native_bodies, rows)
def test_a_text_reaches_openai_as_a_block_of_it_does(messages: list[Json], quirks: Quirks) -> None:
    assert sent(OPENAI, "native", messages, quirks) == sent(OPENAI, "native", list(map(in_a_block, messages)), quirks)


# What is well-formed loses nothing on the way.


@settings(max_examples=50)
@given(st.lists(st.tuples(st.lists(IDS, unique=True, max_size=3), st.sampled_from(["hi", "again"])), min_size=1, max_size=5))
def test_a_well_formed_history_reaches_claude_block_by_block(rounds: list[tuple[list[str], str]]) -> None:
    messages: list[Json] = [{"role": "user", "content": "hi"}]
    used: set[str] = set()
    for given_ids, words in rounds:
        fresh = [id for id in given_ids if re.fullmatch(r"[a-zA-Z0-9_-]+", id) and id not in used]
        used |= set(fresh)
        messages.append({"role": "assistant", "content": [
            {"type": "text", "text": words},
            *({"type": "tool_use", "id": id, "name": "f", "input": {}} for id in fresh),
        ]})  # fmt: skip
        messages.append({"role": "user", "content": [
            *({"type": "tool_result", "tool_use_id": id, "content": "ok"} for id in reversed(fresh)),
            {"type": "text", "text": words},
        ]})  # fmt: skip
    assert sent(ANTHROPIC, "anthropic", messages, Quirks()) == messages
