"""Programs in Node that leave while they are answered: the provider is left too, in every way that the official SDKs offer."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from gateway.simulator import Hang, Script, Send
from tests.conformance import claude_wire
from tests.conformance.said import SSE, Said, claude_stream, openai_stream
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]
ASKED = {"model": "default", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello?"}]}
# How, and what is raised then: the same as at the provider itself, which the SDKs' own tests say.
MIDSTREAM = {"abortsTheHelper": "APIUserAbortError", "leavesTheLoop": None, "abortsTheStream": None}
IN_SILENCE = dict.fromkeys(("abortsInSilence", "abortsAStreamInSilence", "abortsTheHelperInSilence"), "APIUserAbortError")
CASES = [(how, sdk, sdk) for how in (*MIDSTREAM, *IN_SILENCE) for sdk in ("anthropic", "openai")]
CASES += [("abortsTheHelper", "anthropic", "openai"), ("abortsTheHelper", "openai", "anthropic")]


@pytest.mark.parametrize(("how", "sdk", "kind"), CASES)
async def test_whoever_leaves_leaves_the_provider(node: Node, how: str, sdk: str, kind: str) -> None:
    said = Said(text=("Hello", " ", "world"))
    frames = claude_stream(said) if kind == "anthropic" else openai_stream(said, True)
    begun = tuple(Send(frame) for frame in frames[:4]) if how in MIDSTREAM else ()
    unanswered = Script(200, SSE, (*begun, Hang()))
    ear = Script(200, claude_wire.JSON, (Hang(),))
    async with (
        ScriptedUpstream(lambda _: unanswered) as upstream,
        ScriptedUpstream(lambda _: ear) as report,
        ScriptedUpstream(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n") as meanwhile,
        running(wiring(provider(upstream.url, kind=kind))) as gateway,
    ):
        meanwhile.reading.clear()
        places = {"url": f"http://127.0.0.1:{gateway.port}", "meanwhile": meanwhile.url, "report": report.url}
        async with anyio.create_task_group() as group:
            group.start_soon(node, "leaves.mjs", {"how": how, "sdk": sdk, "asked": ASKED, **places})
            asked = await upstream.request(deadline=20)
            meanwhile.reading.set()
            raised = json.loads((await report.request(deadline=20)).body)
            await asked.until_closed()
            assert raised == (MIDSTREAM | IN_SILENCE)[how]
            assert (await gateway.record())["outcome"] == "client_disconnected"
            group.cancel_scope.cancel()
        await gateway.until_idle()
