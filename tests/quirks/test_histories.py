"""Histories that broke gateways (M01 … M11): a client's bytes in each format, and the bytes that reach the provider."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.simulator import Script
from tests.e2e.provider import BEGUN, ENDING, OPENAI_BEGUN, OPENAI_DONE, OPENAI_FINISH, openai_chunk, refusal, stream
from tests.quirks.running import Answer, post, running
from tests.upstream import Request, ScriptedUpstream

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

PATHS = {"native": "/chat", "anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
GOOD = {"anthropic": stream(BEGUN + ENDING), "openai": stream(OPENAI_BEGUN + OPENAI_FINISH + OPENAI_DONE)}
PNG = "iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
IMAGE_URL = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def use(id: str, **given: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "f", "input": given}


def result(id: str, content: Any = "ok") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def call(id: str, arguments: str = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def calling(*calls: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def tool(id: str, content: Any = "ok") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


HI, AGAIN = user("hi"), user("again")


@dataclass
class Seen:
    answer: Answer
    bodies: list[Json]  # that reached the provider, one a request
    raw: list[bytes]
    warnings: list[str]

    @property
    def messages(self) -> list[Json]:
        assert self.answer.status == 200, self.answer.body
        found: list[Json] = self.bodies[-1]["messages"]
        return found

    @property
    def error(self) -> str:
        message: str = json.loads(self.answer.body)["error"]["message"]
        return message


async def sent(
    format: str, messages: list[Json], kind: str, respond: Callable[[Request], Script] | None = None, more: Json | None = None, **row: Any
) -> Seen:
    """Through a gateway whose only provider speaks `kind`, with the settings in `row`."""
    answering = respond or (lambda _: GOOD[kind])
    async with ScriptedUpstream(answering) as upstream:
        base = upstream.url + ("/v1" if kind == "openai" else "")
        provider = {"type": kind, "base_url": base, "api_key": "sk-of-the-gateway", **row}
        models = {"m": {"targets": ["p/some-model"], "retry": {"attempts": 1}}}
        async with running({"providers": {"p": provider}, "models": models}) as here:
            body = {"model": "m", "max_tokens": 100, "stream": True, "messages": messages, **(more or {})}
            answer = await post(here.port, body, path=PATHS[format])
            warnings = [warning for line in here.log.lines for warning in line.get("warnings", ())]
            raw = [request.body for request in upstream.requests]
            return Seen(answer, [json.loads(one) for one in raw], raw, warnings)


# M01

THOUGHT = {"type": "thinking", "thinking": "café 🌍 \\u00e9  ", "signature": "c2lnLTE="}
ODD = {"text": "Hi  ", "type": "text", "x_unknown": {"b": 1, "a": []}}


@pytest.mark.parametrize("format", ["native", "anthropic"])
async def test_m01_what_claude_signed_goes_back_as_it_was_with_the_order_of_its_keys(format: str) -> None:
    history = [HI, assistant(THOUGHT, {"type": "redacted_thinking", "data": "xx"}, ODD), user([text("again")])]
    seen = await sent(format, history, "anthropic")
    assert json.dumps(seen.messages) == json.dumps(history)
    assert not seen.warnings


# M02

THINKING = openai_chunk(choices=[{"index": 0, "delta": {"role": "assistant", "reasoning_content": "Hm."}, "finish_reason": None}])
REFUSED = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."


@pytest.mark.parametrize("format", PATHS)
async def test_m02_thoughts_of_another_provider_do_not_reach_claude_and_its_words_do(format: str) -> None:
    def respond(request: Request) -> Script:
        claude = request.path == "/v1/messages"
        return GOOD["anthropic"] if claude else stream(THINKING + OPENAI_BEGUN + OPENAI_FINISH + OPENAI_DONE)

    async with ScriptedUpstream(respond) as upstream:
        providers = {
            "other": {"type": "openai", "base_url": f"{upstream.url}/v1", "api_key": "sk-of-the-gateway"},
            "claude": {"type": "anthropic", "base_url": upstream.url, "api_key": "sk-of-the-gateway"},
        }
        models = {"first": {"targets": ["other/m"]}, "second": {"targets": ["claude/m"]}}
        async with running({"providers": providers, "models": models}) as here:
            body = {"model": "first", "max_tokens": 100, "stream": False, "messages": [HI]}
            document = json.loads((await post(here.port, body, path=PATHS[format])).body)
            said = document["choices"][0]["message"] if format == "openai" else {"role": "assistant", "content": document["content"]}
            assert "Hm." in json.dumps(said)
            await post(here.port, {**body, "model": "second", "messages": [HI, said, AGAIN]}, path=PATHS[format])
            sent = json.loads(upstream.requests[1].body)["messages"]
            assert [message["role"] for message in sent] == ["user", "assistant", "user"]
            assert "Hm." not in json.dumps(sent)
            assert "Hello" in json.dumps(sent[1])
            assert here.log.lines[1]["warnings"] == ["thinking without a signature left out"]


@pytest.mark.parametrize("format", ["native", "anthropic"])
async def test_m02_thoughts_that_claude_does_not_know_are_left_out_once_it_said_so(format: str) -> None:
    def respond(request: Request) -> Script:
        return refusal(400, REFUSED) if b"c2lnLTE=" in request.body else GOOD["anthropic"]

    history = [HI, assistant(THOUGHT, text("Let me see."), use("toolu_1")), user([result("toolu_1")])]
    seen = await sent(format, history, "anthropic", respond)
    assert len(seen.bodies) == 2
    assert seen.messages == [HI, assistant(text("Let me see."), use("toolu_1")), user([result("toolu_1")])]
    assert seen.warnings == ["thinking that the provider does not know as its own was left out"]


async def test_m02_a_refusal_that_has_nothing_to_do_with_thoughts_is_told_at_once() -> None:
    for messages, why in (([HI], REFUSED), ([HI, assistant(THOUGHT, text("x")), AGAIN], "thinking: too much")):
        seen = await sent("native", messages, "anthropic", lambda _, why=why: refusal(400, why))  # type: ignore[misc]
        assert (seen.answer.status, len(seen.bodies)) == (400, 1)
        assert why in seen.error


# M03

ROUNDS: dict[str, list[Json]] = {
    "native": [HI, assistant(THOUGHT, text("Hm.")), AGAIN, assistant(use("a")), user([result("a")])],
    "anthropic": [HI, assistant(THOUGHT, text("Hm.")), AGAIN, assistant(use("a")), user([result("a")])],
    "openai": [
        HI, {"role": "assistant", "content": "Hm.", "reasoning_content": THOUGHT["thinking"]}, AGAIN, calling(call("a")), tool("a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize(
    ("preset", "echoed"), [("moonshot", [THOUGHT["thinking"], " "]), ("deepseek", [None, " "]), ("groq", [None, None])]
)
async def test_m03_reasoning_goes_back_on_the_turns_on_which_the_provider_demands_it(
    format: str, preset: str, echoed: list[str | None]
) -> None:
    seen = await sent(format, ROUNDS[format], "openai", preset=preset)
    turns = [message for message in seen.messages if message["role"] == "assistant"]
    assert [turn.get("reasoning_content") for turn in turns] == echoed
    assert ("thinking was left out" in seen.warnings) == (preset != "moonshot")


# M05

BEGUN_ANSWER = [HI, {"role": "assistant", "content": "Once upon"}]


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize(
    ("kind", "row", "last", "body"),
    [
        ("anthropic", {}, {}, {}),
        ("openai", {}, {}, {}),
        ("openai", {"preset": "mistral"}, {"prefix": True}, {}),
        ("openai", {"preset": "moonshot"}, {"partial": True}, {}),
        (
            "openai",
            {"quirks": {"prefill": "continue_final_message"}},
            {},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
    ],
)
async def test_m05_an_answer_that_was_begun_is_continued_in_the_providers_way(
    format: str, kind: str, row: Json, last: Json, body: Json
) -> None:
    seen = await sent(format, BEGUN_ANSWER, kind, **row)
    assert seen.messages == [HI, {"role": "assistant", "content": "Once upon", **last}]
    assert body.items() <= seen.bodies[0].items()


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_m05_who_continues_nothing_says_so(format: str, kind: str) -> None:
    seen = await sent(format, BEGUN_ANSWER, kind, quirks={"prefill": "refuse"})
    assert (seen.answer.status, seen.bodies) == (400, [])
    assert seen.error == "messages: the last one is the assistant's, which this provider does not continue; end with a user message."
    why = "This model does not support assistant message prefill. The conversation must end with a user message."
    seen = await sent(format, BEGUN_ANSWER, kind, lambda _: refusal(400, why))
    assert seen.answer.status == 400
    assert why in seen.error


# M06

SHOTS: dict[str, list[Json]] = {
    "native": [HI, assistant(use("a")), user([result("a", [text("taken"), IMAGE])])],
    "anthropic": [HI, assistant(use("a")), user([result("a", [text("taken"), IMAGE])])],
    "openai": [HI, calling(call("a")), tool("a", [text("taken"), IMAGE_URL])],
}


@pytest.mark.parametrize("format", PATHS)
async def test_m06_an_image_in_a_tools_result_is_an_image(format: str) -> None:
    seen = await sent(format, SHOTS[format], "openai")
    assert seen.messages[1:] == [calling(call("a")), tool("a", "taken"), user([IMAGE_URL])]
    seen = await sent(format, SHOTS[format], "anthropic")
    assert seen.messages[1:] == [assistant(use("a")), user([result("a", [text("taken"), IMAGE])])]


# M07


@pytest.mark.parametrize("format", PATHS)
async def test_m07_empty_text_does_not_reach_claude_and_white_space_does(format: str) -> None:
    for said, kept in (("", []), ("\n\n", [text("\n\n")])):
        mine = calling(call("toolu_1")) | {"content": [text(said)]} if format == "openai" else assistant(text(said), use("toolu_1"))
        back = tool("toolu_1") if format == "openai" else user([result("toolu_1")])
        seen = await sent(format, [HI, mine, back], "anthropic")
        assert seen.messages == [HI, assistant(*kept, use("toolu_1")), user([result("toolu_1")])]


@pytest.mark.parametrize("format", PATHS)
async def test_m07_an_answer_of_which_nothing_remains_is_left_out_before_another(format: str) -> None:
    seen = await sent(format, [HI, {"role": "assistant", "content": [text("")]}, AGAIN], "anthropic")
    assert seen.messages == [HI, AGAIN]


# M08


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_m08_no_arguments_are_an_empty_object_and_corrupt_ones_are_refused_by_their_place(kind: str) -> None:
    for format, made in (("openai", lambda said: calling(call("a", said))), ("native", lambda said: assistant(use("a") | {"input": said}))):
        back = tool("a") if format == "openai" else user([result("a")])
        for said in ("", " "):
            seen = await sent(format, [HI, made(said), back], kind)
            assert seen.messages[1] == (assistant(use("a")) if kind == "anthropic" else calling(call("a")))
        for said in ('{"a":1}{"b":2}', '{"a":', "[17]"):
            seen = await sent(format, [HI, made(said), back], kind)
            assert (seen.answer.status, seen.bodies) == (400, [])
            assert seen.error.startswith("messages[1]")
            assert said not in seen.error


# M09

LONG = "functions.get_weather:0/" + "x" * 40


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize(
    ("kind", "row", "shape"),
    [
        ("anthropic", {}, r"[a-zA-Z0-9_-]+"),
        ("openai", {"preset": "openai"}, r".{1,40}"),
        ("openai", {"preset": "mistral"}, r"[a-zA-Z0-9]{9}"),
        ("openai", {}, r".+"),
    ],
)
async def test_m09_ids_fit_the_target_alike_in_call_and_result(format: str, kind: str, row: Json, shape: str) -> None:
    fitting = "abcDEF123"
    if format == "openai":
        history = [HI, calling(call(LONG), call(fitting)), tool(LONG), tool(fitting), AGAIN, calling(call(LONG)), tool(LONG)]
    else:
        parallel = user([result(LONG), result(fitting)])
        history = [HI, assistant(use(LONG), use(fitting)), parallel, AGAIN, assistant(use(LONG)), user([result(LONG)])]
    first, again = await sent(format, history, kind, **row), await sent(format, history, kind, **row)
    assert first.raw == again.raw
    calls, results = ids(first.messages)
    assert calls == results
    assert len(set(calls)) == 3
    assert all(re.fullmatch(shape, id) for id in calls)
    assert fitting in calls
    assert (LONG in calls) == (shape == r".+")


def ids(messages: list[Json]) -> tuple[list[str], list[str]]:
    """Of the calls and of the results, in either format."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    calls = [one["id"] for message in messages for one in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    return (
        calls + [block["id"] for block in blocks if block["type"] == "tool_use"],
        results + [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


# M11

LATER = {"role": "system", "content": "Be brief now."}
REMINDER = "<system-reminder>\nBe brief now.\n</system-reminder>"


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize(
    ("kind", "row", "later"),
    [
        ("anthropic", {}, LATER),
        ("openai", {}, LATER),
        ("anthropic", {"quirks": {"later_system": "reminder"}}, user(REMINDER)),
        ("openai", {"preset": "mistral"}, user(REMINDER)),
    ],
)
async def test_m11_a_system_message_in_mid_conversation_keeps_its_place_or_becomes_a_reminder(
    format: str, kind: str, row: Json, later: Json
) -> None:
    leading: list[Json] = [] if format == "anthropic" else [{"role": "system", "content": "You are kind."}]
    more: Json = {"system": "You are kind."} if format == "anthropic" else {}
    seen = await sent(format, [*leading, HI, LATER, AGAIN], kind, more=more, **row)
    if kind == "anthropic":
        assert seen.bodies[0]["system"] == "You are kind."
        assert seen.messages == [HI, later, AGAIN]
    else:
        assert seen.messages == [{"role": "system", "content": "You are kind."}, HI, later, AGAIN]


# What a person who pressed stop, or a frontend that cut the oldest messages, leaves behind.


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_call_that_nobody_answered_does_not_end_the_conversation(format: str, kind: str) -> None:
    mine = calling(call("a")) if format == "openai" else assistant(use("a"))
    seen = await sent(format, [HI, mine, AGAIN], kind)
    assert ids(seen.messages) == (["a"], ["a"])
    assert seen.messages[-1] == AGAIN
    assert seen.warnings == ["a tool call without a result was told so"]


@pytest.mark.parametrize("format", PATHS)
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_result_whose_call_was_cut_off_is_text(format: str, kind: str) -> None:
    back = tool("a", "5 °C") if format == "openai" else user([result("a", "5 °C")])
    seen = await sent(format, [back, {"role": "assistant", "content": "Cold."}, AGAIN], kind)
    assert ids(seen.messages) == ([], [])
    assert "5 °C" in json.dumps(seen.messages[0], ensure_ascii=False)
