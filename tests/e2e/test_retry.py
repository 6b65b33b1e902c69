"""What is tried again, where, and when: the table of errors, before content."""

import json
from collections.abc import Callable

import pytest

from gateway.events import from_json
from gateway.routing import Retry, Timeouts
from gateway.simulator import Cut, Hang, Reset, Script, Send, Wait
from tests import grammar
from tests.e2e.client import Json
from tests.e2e.provider import (
    BEGUN,
    BLOCK,
    COMMENT,
    GOOD,
    OPENAI_BEGUN,
    OPENAI_DONE,
    OPENAI_FINISH,
    OVERLOADED,
    START,
    WHOLE,
    refusal,
    stream,
)
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Answer, Request, ScriptedUpstream, full_listener, refusing_port

pytestmark = pytest.mark.anyio
TWICE = Retry(attempts=2, max_retry_after=10)
HTML = Script(200, (("content-type", "text/html"),), (Send(b"<html><h1>Welcome</h1></html>"),))
EMPTY = Script(200, (("content-type", "text/event-stream"), ("content-length", "0")), ())
NOW = {"retry_after": "0.01"}


def models_of(upstream: ScriptedUpstream) -> list[str]:
    return [json.loads(request.body)["model"] for request in upstream.requests]


def by_model(**answers: Answer) -> Callable[[Request], Answer]:
    """Each model its own answer; `two` is good unless said otherwise."""
    return lambda request: {"two": GOOD, **answers}[json.loads(request.body)["model"]]


async def asked(
    one: Answer, *, retry: Retry = TWICE, timeouts: Timeouts | None = None, targets: tuple[str, ...] = ("one", "two")
) -> tuple[list[str], int, Json]:
    """The models asked, the status, and the last event or the error's document; the first target always gives `one`."""
    async with ScriptedUpstream(by_model(one=one)) as upstream:
        wired = wiring(provider(upstream.url), targets=[f"claude/{name}" for name in targets], retry=retry, timeouts=timeouts)
        async with running(wired) as gateway, gateway.chat() as client:
            status = await client.head()
            if status != 200:
                return models_of(upstream), status, await client.json()
            events = await client.events()
            grammar.check([from_json(event) for event in events])
            assert sum(event["type"] == "message_start" for event in events) == 1
            return models_of(upstream), status, events[-1]


@pytest.mark.parametrize("status", [429, 503, 529, 500, 502, 504, 524, 408])
async def test_what_may_pass_is_tried_again_and_then_at_the_next(status: int) -> None:
    models, answered, last = await asked(refusal(status, **NOW))
    assert (models, answered, last["type"]) == (["one", "one", "two"], 200, "message_stop")
    assert last["stats"]["attempts"] == 3


@pytest.mark.parametrize("status", [404, 401, 402, 403, 307])
async def test_what_the_target_cannot_do_is_tried_at_the_next(status: int) -> None:
    models, answered, last = await asked(refusal(status))
    assert (models, answered, last["type"]) == (["one", "two"], 200, "message_stop")


@pytest.mark.parametrize(
    ("status", "code", "type"),
    [
        (400, "upstream_rejected", "invalid_request_error"),
        (422, "upstream_rejected", "invalid_request_error"),
        (413, "upstream_rejected", "request_too_large"),
    ],
)
async def test_what_the_caller_did_wrong_is_the_answer(status: int, code: str, type: str) -> None:
    models, answered, last = await asked(refusal(status, "messages: too odd"))
    assert (models, answered) == (["one"], status)
    assert (last["error"]["code"], last["error"]["type"], last["error"]["message"]) == (code, type, "messages: too odd")


async def test_context_that_is_too_long_is_tried_at_another_model_only() -> None:
    too_long = refusal(400, "prompt is too long: 300000 tokens > 200000 maximum")
    models, answered, _ = await asked(too_long, targets=("one", "one"))
    assert (models, answered) == (["one"], 400)
    models, answered, _ = await asked(too_long)
    assert (models, answered) == (["one", "two"], 200)


async def test_last_refusal_is_the_answer_and_keeps_its_retry_after() -> None:
    async with ScriptedUpstream(lambda _: refusal(529, retry_after="0.01")) as upstream:
        wired = wiring(provider(upstream.url), targets=["claude/one", "claude/two"], retry=TWICE)
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 529
            assert client.headers["retry-after"] == "1"
        assert models_of(upstream) == ["one", "one", "two", "two"]


async def test_a_401_is_the_gateways_fault_and_its_words_are_not_the_providers() -> None:
    models, answered, last = await asked(refusal(401, "invalid key sk-secret"), targets=("one",))
    assert (models, answered) == (["one"], 502)
    assert last["error"]["code"] == "upstream_auth"
    assert "sk-secret" not in last["error"]["message"]
    assert "claude" in last["error"]["message"]


async def test_retry_after_is_waited_for() -> None:
    async with ScriptedUpstream(by_model(one=refusal(429, retry_after_ms="150"))) as upstream:
        wired = wiring(provider(upstream.url), targets=["claude/one", "claude/two"], retry=TWICE)
        async with running(wired) as gateway, gateway.chat() as client:
            assert await client.head() == 200
        first, second = upstream.requests[:2]
        assert second.arrived - first.arrived >= 0.15


async def test_retry_after_that_is_too_long_moves_on_at_once() -> None:
    models, answered, _ = await asked(refusal(429, retry_after="60"))
    assert (models, answered) == (["one", "two"], 200)


async def test_retry_after_that_is_too_long_is_told_by_the_last() -> None:
    async with ScriptedUpstream(lambda _: refusal(503, retry_after="60")) as upstream:
        async with running(wiring(provider(upstream.url), retry=TWICE)) as gateway, gateway.chat() as client:
            assert (await client.head(), client.headers["retry-after"]) == (503, "60")
        assert len(upstream.requests) == 1


async def test_first_token_moves_on() -> None:
    models, answered, _ = await asked(stream(START, BLOCK, COMMENT, Hang()), timeouts=Timeouts(first_token=0.4))
    assert (models, answered) == (["one", "two"], 200)


async def test_idle_before_content_moves_on() -> None:
    models, answered, _ = await asked(stream(START, Hang()), timeouts=Timeouts(idle=0.4))
    assert (models, answered) == (["one", "two"], 200)


@pytest.mark.parametrize(
    "broken",
    [
        stream(OVERLOADED),
        stream(START, Wait(0.01), OVERLOADED),
        stream(before=(Cut(),)),
        stream(before=(Reset(),)),
        stream(Reset()),
        stream(START, Reset()),
        stream(START, Cut()),
        stream(START, BLOCK),
        HTML,
        EMPTY,
        stream(b"data: {nonsense\n\n"),
        b"HTTP/1.1 200 OK\r\nthis is no header\r\n\r\n",
    ],
    ids=[
        "error first",
        "error second",
        "FIN",
        "RST",
        "RST after headers",
        "RST in stream",
        "cut",
        "end",
        "html",
        "empty",
        "malformed",
        "no HTTP",
    ],
)
async def test_failures_inside_a_200_before_content_are_tried_again_and_at_the_next(broken: Answer) -> None:
    models, answered, last = await asked(broken)
    assert (models, answered, last["type"]) == (["one", "one", "two"], 200, "message_stop")


@pytest.mark.parametrize(
    ("broken", "status", "code"),
    [
        (stream(before=(Cut(),)), 502, "upstream_unavailable"),
        (stream(START, Cut()), 502, "stream_interrupted"),
        (HTML, 502, "upstream_unavailable"),
        (EMPTY, 502, "upstream_unavailable"),
        (stream(b"data: {nonsense\n\n"), 502, "stream_malformed"),
        (refusal(504), 504, "upstream_unavailable"),
        (refusal(501), 502, "upstream_unavailable"),
        (refusal(301), 502, "upstream_rejected"),
    ],
    ids=["FIN", "cut", "html", "empty", "malformed", "504", "501", "301"],
)
async def test_last_failure_is_the_answer(broken: Answer, status: int, code: str) -> None:
    _, answered, last = await asked(broken, targets=("one",), retry=Retry(attempts=1))
    assert (answered, last["error"]["code"]) == (status, code)


async def test_refused_connection_is_tried_at_the_next() -> None:
    with refusing_port() as port:
        async with ScriptedUpstream(lambda _: GOOD) as upstream:
            wired = wiring(provider(f"http://127.0.0.1:{port}", "dead"), provider(upstream.url))
            async with running(wired) as gateway, gateway.chat() as client:
                assert (await client.events())[-1]["stats"]["target"] == "claude/m"


async def test_connect_timeout_is_tried_at_the_next() -> None:
    async with full_listener() as listener, ScriptedUpstream(lambda _: GOOD) as upstream:
        wired = wiring(provider(f"http://127.0.0.1:{listener.port}", "dead"), provider(upstream.url), timeouts=Timeouts(connect=0.4))
        async with running(wired) as gateway, gateway.chat() as client:
            assert (await client.events())[-1]["stats"]["target"] == "claude/m"


async def test_nothing_is_tried_again_after_content() -> None:
    models, answered, last = await asked(stream(BEGUN, Cut()))
    assert (models, answered) == (["one"], 200)
    assert (last["error"]["code"], last["error"]["partial"]) == ("stream_interrupted", True)


async def test_answers_may_come_from_another_format_at_the_next() -> None:
    answers = {"/v1/messages": refusal(529, **NOW), "/v1/chat/completions": stream(OPENAI_BEGUN + OPENAI_FINISH + OPENAI_DONE)}
    async with ScriptedUpstream(lambda request: answers[request.path]) as upstream:
        wired = wiring(provider(upstream.url), provider(upstream.url, "gpt", "openai"))
        async with running(wired) as gateway, gateway.chat() as client:
            events = await client.events()
    assert events[0]["message"]["model"] == "gpt-test"
    assert events[-1]["stats"]["provider"] == "gpt"


async def test_refused_stream_options_are_left_out_once_and_for_all() -> None:
    refused = refusal(400, "Unknown parameter: 'stream_options'.")

    def respond(request: Request) -> Answer:
        return refused if "stream_options" in json.loads(request.body) else stream(OPENAI_BEGUN + OPENAI_FINISH + OPENAI_DONE)

    async with ScriptedUpstream(respond) as upstream:
        async with running(wiring(provider(upstream.url, "gpt", "openai"))) as gateway:
            for _ in range(2):
                async with gateway.chat() as client:
                    last = (await client.events())[-1]
                assert (last["type"], last["stats"]["attempts"]) == ("message_stop", 1)
        assert ["stream_options" in json.loads(request.body) for request in upstream.requests] == [True, False, False]


class Once:
    """A provider that forgets its connections: it closes them as soon as they are asked again."""

    def __init__(self) -> None:
        self.closing = False

    def __call__(self, request: Request) -> Answer:
        again = self.closing and len(request.connection.requests) > 1
        return stream(before=(Reset(),)) if again else GOOD


async def chat_to_the_end(gateway: Running) -> Json:
    async with gateway.chat() as client:
        return (await client.events())[-1]


async def test_dead_reused_connection_gets_one_fresh_try_that_does_not_count() -> None:
    respond = Once()
    async with ScriptedUpstream(respond) as upstream, running(wiring(provider(upstream.url))) as gateway:
        await chat_to_the_end(gateway)
        respond.closing = True
        last = await chat_to_the_end(gateway)
        assert (last["type"], last["stats"]["attempts"]) == ("message_stop", 1)
        assert len(upstream.requests) == 3
        assert len(upstream.connections) == 2


async def test_connection_of_a_finished_answer_is_used_again() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        for _ in range(3):
            await chat_to_the_end(gateway)
            await gateway.until_idle()
        assert len(upstream.connections) == 1


async def test_thousand_bytes_of_error_are_enough() -> None:
    endless = Script(500, (("content-type", "text/plain"),), (*(Send(b"x" * 60_000),) * 100, Hang()))
    async with (
        ScriptedUpstream(lambda _: endless) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        assert await client.head() == 502
        await upstream.until_all_closed()


async def test_first_answer_counts_for_a_client_of_a_whole_document_too() -> None:
    async with ScriptedUpstream(by_model(one=stream(OVERLOADED), two=stream(WHOLE))) as upstream:
        wired = wiring(provider(upstream.url), targets=["claude/one", "claude/two"])
        async with running(wired) as gateway, gateway.chat(format="whole") as client:
            document = await client.json()
    assert document["content"] == [{"type": "text", "text": "Hello world"}]
    assert document["stats"]["target"] == "claude/two"
