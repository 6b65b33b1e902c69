"""Cases of cases.jsonl that are about more than one answer, and what other cases demand beside their events."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from starlette.middleware.base import BaseHTTPMiddleware  # noqa: TID251  # a user's own, which the gateway must survive

from gateway.simulator import Hang, Script, Send, Wait
from tests.quirks.cases import CASES, body_of, configuration, payload, provider, response
from tests.quirks.expectations import check_events, check_stream, native_events
from tests.quirks.running import Json, Running, post, running
from tests.upstream import Answer as Response
from tests.upstream import Request, Respond, ScriptedUpstream
from tests.waiting import until

pytestmark = pytest.mark.anyio

STREAM = (("content-type", "text/event-stream"),)
HEALTHY = CASES["D07"]
GONE = 1.0  # seconds within which the provider's connection is closed after the client has left


def again(number: int, **settings: Any) -> Json:
    """A healthy case under another id."""
    return HEALTHY | {"id": f"healthy{number}"} | settings


@asynccontextmanager
async def gateway_for(
    *cases: Json, respond: Respond | None = None, around: Any = lambda app: app, **settings: Json
) -> AsyncIterator[tuple[Running, ScriptedUpstream]]:
    async with (
        ScriptedUpstream(respond or provider(cases)) as upstream,
        running(configuration(cases, upstream.port, **settings), around) as here,
    ):
        yield here, upstream


async def test_500_refused_requests_leave_no_connection_behind() -> None:
    case = CASES["X10"]
    healthy = Script(200, (*STREAM, ("connection", "close")), (Send(body_of(HEALTHY)),))
    answered = 0

    def respond(_: Request) -> Response:
        nonlocal answered
        answered += 1
        return response(case) if answered <= 500 else healthy

    async with gateway_for(case, respond=respond) as (here, upstream):
        for _ in range(25):
            answers = await asyncio.gather(*(here.post(payload(case)) for _ in range(20)))
            assert [answer.status for answer in answers] == [429] * 20
        check_stream(await here.post(payload(case)))
        await upstream.until_all_closed()


async def test_a_client_that_does_not_read_stops_the_provider_instead_of_filling_memory() -> None:
    case = CASES["X13"]
    total = case["serve"]["replace"]["@@BIG@@"]["times"] * 50
    process = psutil.Process()
    async with gateway_for(case) as (here, upstream):
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1 << 12)
        body = json.dumps(payload(case)).encode()
        writer.write(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-length: %d\r\n\r\n" % (here.port, len(body)) + body)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        request = await upstream.request()
        before, steady = process.memory_info().rss, 0
        sent = -1
        while steady < 10:  # nothing moves any more
            await asyncio.sleep(0.05)
            steady, sent = (steady + 1 if request.sent == sent else 0), request.sent
        # One event of 4 MiB is being put together, one is being sent, and each kernel's buffer holds a few.
        assert sent < 40 << 20 < total
        assert process.memory_info().rss - before < 100 << 20
        writer.transport.abort()
        await request.until_closed()


async def test_a_users_own_base_http_middleware_does_not_hide_a_disconnect() -> None:
    case = CASES["D04"]

    async def log(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async with gateway_for(case, around=lambda app: BaseHTTPMiddleware(app, dispatch=log)) as (here, upstream):
        answer = await here.post(payload(case), leaves={"after_events": 3})
        assert [event["type"] for event in native_events(answer.body)][-1] == "content_block_delta"
        await upstream.requests[0].until_closed(GONE)


async def test_the_usage_so_far_is_in_the_log_when_a_client_has_left() -> None:
    case = CASES["D06"]
    async with gateway_for(case) as (here, upstream):
        answer = await here.post(payload(case), leaves={"after_events": 10})
        await upstream.requests[0].until_closed(GONE)
        await until(lambda: bool(here.log.lines), "the stream's line")
        line = here.log.of("D06")
        deltas = [event["type"] for event in native_events(answer.body)].count("content_block_delta")
        assert line["outcome"] == "client_disconnected"
        assert line["usage"]["input_tokens"] == 5
        assert line["usage"]["output_tokens"] >= deltas >= 8


async def test_usage_that_nobody_told_is_marked_as_estimated_when_a_client_has_left() -> None:
    case = CASES["D08"]
    async with gateway_for(case) as (here, upstream):
        await here.post(payload(case), leaves={"after_events": 3})
        await upstream.requests[0].until_closed(GONE)
        await until(lambda: bool(here.log.lines), "the stream's line")
        assert here.log.of("D08")["usage"]["estimated"] is True


@pytest.mark.parametrize("way", [{}, {"stream": False}, {"format": "text"}, {"format": "ndjson"}], ids=str)
async def test_slots_come_back_from_100_answers_and_100_clients_that_leave(way: Json) -> None:
    hanging = CASES["D08"]
    path = f"/chat?format={way['format']}" if "format" in way else "/chat"
    body = {"stream": False} if "stream" in way else {}
    async with gateway_for(HEALTHY, hanging, access={"max_streams": 2}) as (here, _):
        admission = here.gateway.admission
        for _ in range(100):
            assert (await here.post(payload(HEALTHY) | body, path=path)).status == 200
        for _ in range(100):
            leaves = {"after_s": 0.01}
            assert (await here.post(payload(hanging) | body, path=path, leaves=leaves)).status in (None, 200)
            await until(lambda: admission.streams == 0, "the slot comes back")
        assert (await here.post(payload(HEALTHY) | body, path=path)).status == 200
        await until(lambda: admission.streams == 0, "the last slot comes back")  # an answer's end is read before its slot is free


async def test_200_clients_that_leave_while_pings_are_due_leave_no_task_and_no_complaint() -> None:
    case = CASES["D08"]
    streaming = {"heartbeat": "100ms", "commit_after": "2s"}
    async with gateway_for(case, streaming=streaming) as (here, upstream):
        before = len(asyncio.all_tasks())
        for _ in range(8):
            answers = await asyncio.gather(*(here.post(payload(case), leaves={"after_events": 5}) for _ in range(25)))
            assert all(answer.body.count(b"event: ping\n") >= 2 for answer in answers)
            assert all(answer.seconds < 1.5 for answer in answers), "a heartbeat shorter than commit_after is kept from the start"
        await upstream.until_all_closed()
        await until(lambda: len(asyncio.all_tasks()) == before, "the tasks end")
        await until(lambda: len(here.log.lines) == 200, "200 lines")
        assert {line["outcome"] for line in here.log.lines} == {"client_disconnected"}
        assert not [text for text in here.log.texts if not text.startswith("INFO")]


async def test_a_stop_ends_five_open_streams_with_an_error_and_the_process_with_0(tmp_path: Path) -> None:
    case = CASES["V01"]
    async with ScriptedUpstream(provider([case])) as upstream:
        file = tmp_path / "gateway.yaml"
        file.write_text(yaml.safe_dump(configuration([case], upstream.port)))
        command = (sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0")
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet)
        try:
            assert process.stdout is not None
            port = int((await asyncio.wait_for(_url_line(process.stdout), 20)).rsplit(b":", 1)[1])
            async with asyncio.TaskGroup() as group:
                posts = [group.create_task(post(port, payload(case))) for _ in range(5)]
                last = await upstream.request(4, deadline=15)
                await last.until_sent(len(body_of(case)))
                await until(lambda: all(request.sent > len(body_of(case)) for request in upstream.requests), "all have begun")
                process.send_signal(signal.SIGTERM)
            for answer in (done.result() for done in posts):
                error = check_stream(answer)[-1]["error"]
                assert (error["code"], error["retryable"]) == ("shutdown", True)
            await upstream.until_all_closed()
            assert await asyncio.wait_for(process.wait(), 4) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


async def _url_line(screen: asyncio.StreamReader) -> bytes:
    while line := await screen.readline():
        if match := re.search(rb"http://127\.0\.0\.1:\d+", line):
            return match[0]
    raise AssertionError("the gateway did not come up")


async def test_a_flood_from_one_provider_does_not_starve_another_stream() -> None:
    flood = json.loads(json.dumps(CASES["V04"]))
    flood["serve"]["replace"]["@@F@@"]["times"] *= 10  # 7 MB: other streams must get in between
    async with gateway_for(flood, HEALTHY) as (here, _):
        first = asyncio.get_running_loop().create_task(here.post(payload(flood)))
        waits = []
        while not first.done():
            said = check_stream(await here.post(payload(HEALTHY)))
            waits.append(said[-1]["stats"]["ttft_ms"])
        check_stream(await first)
        assert len(waits) >= 3
        assert sorted(waits)[len(waits) // 2] < 100


async def test_a_client_that_leaves_after_the_providers_headers_closes_its_connection() -> None:
    case = CASES["D02"]
    silent = Script(200, STREAM, (Hang(),))
    async with gateway_for(case, respond=lambda _: silent) as (here, upstream):
        answer = await here.post(payload(case), leaves={"after_s": 0.3})
        assert answer.status is None
        await upstream.requests[0].until_closed(GONE)
        await until(lambda: bool(here.log.lines), "the stream's line")
        assert here.log.of("D02")["outcome"] == "client_disconnected"
        assert not [text for text in here.log.texts if not text.startswith("INFO")]


async def test_the_log_says_what_became_of_odd_answers() -> None:
    cases = [CASES[name] for name in ("D01", "E01", "E13", "E14", "F11")]
    async with gateway_for(*cases) as (here, _):
        for case in cases:
            await here.post(payload(case), leaves=case.get("client_leaves"))
        await until(lambda: len(here.log.lines) == len(cases), "a line for each")
        assert here.log.of("D01")["outcome"] == "client_disconnected"
        assert here.log.of("E01")["outcome"] == here.log.of("E13")["outcome"] == "failed"
        assert "text/html" in here.log.of("E01")["error"]
        assert here.log.of("E14")["warnings"]
        assert here.log.of("F11")["dropped_frames"] == 1


async def test_three_streams_in_a_row_with_bytes_after_their_end() -> None:
    case = CASES["X11"]
    answer = Script(200, STREAM, (Send(body_of(case)),))
    async with gateway_for(case, respond=lambda _: answer) as (here, _):
        for _ in range(3):
            check_events(case["expected"]["events"], check_stream(await here.post(payload(case))))


async def test_a_text_that_really_repeats_itself_is_not_shortened() -> None:
    case = CASES["S15"]
    plain = {key: value for key, value in case.items() if key != "gateway"}
    async with gateway_for(plain) as (here, _):
        said = check_stream(await here.post(payload(plain)))
        text = "".join(event["delta"]["text"] for event in said if event["type"] == "content_block_delta")
        chunks = [json.loads(line[6:]) for line in case["upstream"].split("\n") if line.startswith("data: {")]
        sent = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
        assert text == "".join(sent)


async def test_a_provider_that_refuses_stream_options_is_not_asked_for_them_again() -> None:
    case = CASES["E18"]
    async with gateway_for(case) as (here, upstream):
        for _ in range(2):
            check_stream(await here.post(payload(case)))
        assert ["stream_options" in json.loads(request.body) for request in upstream.requests] == [True, False, False]


async def test_a_pooled_connection_that_died_meanwhile_is_replaced_without_counting_as_a_try() -> None:
    keeps = Script(200, STREAM, (Send(body_of(HEALTHY)),))
    answers: Iterator[Any] = iter([keeps, b"", keeps])
    case = again(1)
    async with gateway_for(case, respond=lambda _: next(answers)) as (here, upstream):
        for _ in range(2):
            said = check_stream(await here.post(payload(case)))
            assert said[-1]["stats"]["attempts"] == 1
        assert [len(connection.requests) for connection in upstream.connections] == [2, 1]


async def test_one_retry_only_while_no_response_byte_was_read() -> None:
    broken = Script(200, STREAM, (Wait(0.01),))
    case = again(1)
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body_of(CASES["S11"])
    answers: list[Any] = [raw, broken]
    async with gateway_for(case, respond=lambda _: answers.pop(0)) as (here, upstream):
        said = check_stream(await here.post(payload(case)))
        assert said[-1]["error"]["code"] == "stream_interrupted"
        assert len(upstream.requests) == 1
