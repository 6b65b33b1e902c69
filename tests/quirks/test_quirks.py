"""What real providers, clients and networks did to streaming gateways, as bytes, and what comes out of this one.

All cases of a run go through one gateway at the same time, as most of them wait; each is a test of its own. See README.md.
"""

import asyncio
import json

import pytest

from tests.quirks.cases import CANARY, CASES, configuration, payload, provider, requests_of
from tests.quirks.expectations import check_events, check_fields, check_refusal, check_stream, fits
from tests.quirks.running import Answer, Json, Log, Running, running
from tests.upstream import Request, ScriptedUpstream

pytestmark = pytest.mark.anyio

AT_ONCE = 24
CLOSED = 1.0  # seconds within which a hanging provider is left after the answer's end

CHECKABLE = {name: case for name, case in CASES.items() if not case.get("by_hand")}


@pytest.fixture(scope="module")
async def outcomes(request: pytest.FixtureRequest) -> dict[str, BaseException | None]:
    """Per case that is to be tested: what went wrong."""
    chosen = {item.callspec.params["case"] for item in request.session.items if item.path == request.path and hasattr(item, "callspec")}
    cases = [CHECKABLE[name] for name in chosen]
    turns = asyncio.Semaphore(AT_ONCE)
    results: dict[str, BaseException | None] = {}
    async with ScriptedUpstream(provider(cases)) as upstream, running(configuration(cases, upstream.port)) as here:

        async def one(case: Json) -> None:
            async with turns:
                try:
                    await run(case, here, upstream)
                    results[case["id"]] = None
                except (AssertionError, TimeoutError, OSError, ValueError, KeyError, EOFError) as wrong:
                    results[case["id"]] = wrong

        async with asyncio.TaskGroup() as group:
            for case in sorted(cases, key=lambda case: -json.dumps(case.get("serve", {})).count("_s")):  # what waits goes first
                group.create_task(one(case), name=case["id"])
        check_log(here.log, results)
    return results


@pytest.mark.parametrize("case", CHECKABLE)
async def test_the_gateway_does_what_the_case_says(case: str, outcomes: dict[str, BaseException | None]) -> None:
    if (wrong := outcomes[case]) is not None:
        raise AssertionError(f"{case}, {CASES[case]['behaviour']}: {wrong!r}") from wrong


async def run(case: Json, here: Running, upstream: ScriptedUpstream) -> None:
    expected, leaves = case["expected"], case.get("client_leaves")
    answer = await here.post(payload(case), leaves=leaves)
    assert answer.seconds < expected.get("within_s", 35.0)
    assert CANARY.encode() not in answer.body
    if leaves:
        assert answer.status in (None, 200)
        assert answer.body.count(b"\n\n") >= leaves.get("after_events", 0)
    else:
        compare(expected, answer)
    seen = requests_of(case, upstream.requests)
    if "upstream" in expected:
        compare_requests(expected["upstream"], seen)
    hangs = case.get("serve", {}).get("end") == "hang"
    if limit := expected.get("upstream_closed_within_s", CLOSED if hangs else 0):
        await seen[-1].until_closed(limit)


def compare(expected: Json, answer: Answer) -> None:
    check_fields(expected.get("headers", {}), answer.headers, "header")
    if expected["http"] != 200:
        body = check_refusal(answer, expected["http"])
        assert fits(expected.get("body", {}), body), f"expected {expected['body']}, got {body}"
        return
    said = check_stream(answer)
    check_events(expected["events"], said)
    assert [event["type"] for event in said].count("ping") >= expected.get("pings", 0)


def compare_requests(want: list[Json], seen: list[Request]) -> None:
    assert len(want) == len(seen)
    for wanted, request in zip(want, seen, strict=True):
        check_fields(wanted.get("headers", {}), request.headers, "the provider's header")
        check_fields(wanted.get("body", {}), json.loads(request.body), "the provider's body")


def check_log(log: Log, results: dict[str, BaseException | None]) -> None:
    """What concerns more than the answer: one line per stream, never a key, and no fault of the gateway's own."""
    texts = "\n".join(log.texts)
    if "K02" in results and CANARY in texts:
        results["K02"] = AssertionError("the key is in the log")
    for name in results:
        lines = [line for line in log.lines if line["model"] == name]
        if results[name] is None and len(lines) != 1:
            results[name] = AssertionError(f"{len(lines)} lines in the log")
        elif results[name] is None and lines[0].get("error_code") == "internal":
            results[name] = AssertionError(f"a fault of the gateway's own: {lines[0]}")
