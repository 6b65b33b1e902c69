"""Where a client finds a model that says something: at the provider itself, or at the gateway before one."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.conformance import claude_wire
from tests.conformance.said import CASES, Json, Said, as_claude, claude, odd, odd_claude, plain
from tests.e2e.running import Running, provider, running, wiring
from tests.upstream import Respond, ScriptedUpstream
from tests.waiting import until

# Claude's citations have no place in a text, and OpenAI's no kind of Claude's own.
OPENAI_ROADS = [(where, name) for where in ("openai", "odd", "claude") for name in CASES if (where, name) != ("claude", "annotations")]
CLAUDE_ROADS = [(where, name) for where in ("claude", "mangled", "openai", "odd") for name in CASES if name != "annotations"]


@asynccontextmanager
async def gateway_over(respond: Respond, kind: str = "openai", **wired: Any) -> AsyncIterator[tuple[str, ScriptedUpstream, Running]]:
    async with ScriptedUpstream(respond) as upstream, running(wiring(provider(upstream.url, kind=kind), **wired)) as gateway:
        yield f"http://127.0.0.1:{gateway.port}", upstream, gateway
        # Not `until_idle`: some clients have tasks of their own on this loop.
        await until(lambda: not (gateway.gateway.answers or gateway.gateway.admission.streams), "the end of all answers")


@asynccontextmanager
async def openai_place(where: str, said: Said) -> AsyncIterator[str]:
    """For a client of OpenAI: the URL, without /v1, of a provider that says it, `direct` or behind the gateway."""
    if where == "direct":
        async with ScriptedUpstream(plain(said)) as upstream:
            yield upstream.url
        return
    respond, kind = _PROVIDERS[where]
    async with gateway_over(respond(said), kind) as (url, _, _gateway):
        yield url


@asynccontextmanager
async def claude_place(where: str, said: Said | Json) -> AsyncIterator[str]:
    """For a client of Claude. A message in Claude's own words can only be said by a Claude."""
    if isinstance(said, Said) and where in ("openai", "odd"):
        respond, kind = _PROVIDERS[where][0](said), "openai"
    else:
        message = as_claude(said) if isinstance(said, Said) else said
        mangled = claude_wire.mangled(message)
        respond, kind = (lambda _: mangled) if where == "mangled" else claude_wire.telling(message), "anthropic"
    if where == "direct":
        async with ScriptedUpstream(respond) as upstream:
            yield upstream.url
        return
    async with gateway_over(respond, kind) as (url, _, _gateway):
        yield url


_PROVIDERS: dict[str, tuple[Callable[[Said], Respond], str]] = {
    "openai": (plain, "openai"),
    "odd": (odd, "openai"),
    "claude": (claude, "anthropic"),
    "odd claude": (odd_claude, "anthropic"),
}
