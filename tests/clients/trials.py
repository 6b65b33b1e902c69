"""What every client is put to besides answers: refusals, an error inside the answer, and leaving in its middle.

`speaks` is the client's own format. Each trial is held at a provider of that format and at the gateway before one, and where an error
stands inside the answer also before a provider of the other format.
"""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anthropic
import openai
import pytest

from gateway.routing import Caller
from gateway.simulator import Hang, Script, Send
from gateway.wiring import Access
from tests.conformance import claude_wire, said
from tests.conformance.places import gateway_over
from tests.upstream import Respond, ScriptedUpstream

KEY = "sk-the-key-of-the-client"
ACCESS = Access(callers=(Caller("ann", hashlib.sha256(b"another key").digest()),))
TEXT = said.CASES["text"]
KINDS = {401: "authentication_error", 429: "rate_limit_error", 500: "api_error"}
REFUSALS = tuple(KINDS)

Ask = Callable[[str], Awaitable[Any]]
"""Asks at that URL, streaming or not, until the answer is whole."""
Leaving = Callable[[str], AbstractAsyncContextManager[None]]
"""Asks, reads the first text and goes, before its body begins; at its end the client itself is closed."""


def twice(first: Respond, then: Respond) -> Respond:
    """A provider that wants a tool called, and says `then` once it has been told that it rains somewhere."""
    return lambda request: (then if "It rains in" in request.body.decode() else first)(request)


def _refusing(speaks: str, status: int) -> Script:
    if speaks == "anthropic":
        return claude_wire.refusing(status, KINDS[status])
    return said.refusing(status)(None)  # type: ignore[arg-type,return-value]  # it looks at no request


def _begun(speaks: str) -> list[bytes]:
    """An answer's beginning, with its first text."""
    if speaks == "anthropic":
        return [claude_wire.frame(event) for event in claude_wire.events(said.as_claude(TEXT))[:3]]
    return said.openai_stream(TEXT, False)[:2]


def _failing(speaks: str) -> Script:
    if speaks == "anthropic":
        failure = claude_wire.frame({"type": "error", "error": {"type": "overloaded_error", "message": "Too busy."}})
    else:
        failure = said.data({"error": {"message": "Too busy.", "type": "server_error", "param": None, "code": "overloaded"}})
    return said.body_of([*_begun(speaks), failure])


async def _raised(ask: Ask, url: str) -> Exception:
    try:
        answer = await ask(url)
    except Exception as error:  # whatever class the client has for it: that is what is asked
        return error
    raise AssertionError(f"it answered {answer!r}")


async def refused(ask: Ask, speaks: str, status: int) -> tuple[Exception, Exception]:
    """What the client raises at the provider, and at the gateway: for 401, whose own refusal it then is."""
    answer = _refusing(speaks, status)
    access = ACCESS if status == 401 else None
    async with ScriptedUpstream(lambda _: answer) as upstream:
        direct = await _raised(ask, upstream.url)
    async with gateway_over(lambda _: answer, speaks, access=access) as (url, upstream, _):
        passed = await _raised(ask, url)
        assert bool(upstream.requests) is (status != 401)
    return direct, passed


async def broken(ask: Ask, speaks: str) -> list[Exception]:
    """What the client raises for an error inside the stream: at the provider, through the gateway, and before another's provider."""
    async with ScriptedUpstream(lambda _: _failing(speaks)) as upstream:
        seen = [await _raised(ask, upstream.url)]
    for kind in sorted(("anthropic", "openai"), key=lambda kind: kind != speaks):
        async with gateway_over(lambda _, kind=kind: _failing(kind), kind) as (url, _, _gateway):
            seen.append(await _raised(ask, url))
    return seen


async def left(leaving: Leaving, speaks: str) -> None:
    """The provider, silent after its first text, is told that the client has left."""
    answer = Script(200, said.SSE, (*(Send(frame) for frame in _begun(speaks)), Hang()))
    async with gateway_over(lambda _: answer, speaks) as (url, upstream, gateway), leaving(url):
        await (await upstream.request()).until_closed()
        assert (await gateway.record())["outcome"] == "client_disconnected"


async def stayed(leaving: Leaving, speaks: str) -> None:
    """The opposite: that client keeps its connection, and with it the provider, until it is itself closed."""
    answer = Script(200, said.SSE, (*(Send(frame) for frame in _begun(speaks)), Hang()))
    async with gateway_over(lambda _: answer, speaks) as (url, upstream, gateway):
        async with leaving(url):
            with pytest.raises(TimeoutError):
                await (await upstream.request()).until_closed(0.3)
        assert (await gateway.record())["outcome"] == "client_disconnected"


def gpt(url: str) -> openai.AsyncOpenAI:
    """The vendor's own SDK, which others build upon; without certificates, which take longer to read than all the rest."""
    client = openai.DefaultAsyncHttpxClient(verify=False)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=client)


def claude(url: str) -> anthropic.AsyncAnthropic:
    client = anthropic.DefaultAsyncHttpxClient(verify=False)
    return anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0, http_client=client)
