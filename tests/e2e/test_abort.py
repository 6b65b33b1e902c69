"""A client that leaves stops the model: the provider's socket is closed, in every phase, and nothing is left.

The phases and what is checked after each abort stand in abort_matrix.py, which as a program prints their times. Times are
shown here too (`pytest -s`), and asserted nowhere: two shared cores keep no milliseconds.
"""

import asyncio

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.answer import Answer
from gateway.routing import Timeouts
from gateway.simulator import Hang, Wait
from tests.e2e.abort_matrix import FORMATS, PARAGRAPH, PHASES, WAYS, Leak, Phase, abort_while_dialling, stage
from tests.e2e.client import DEADLINE, Client, Way
from tests.e2e.provider import BEGUN, BLOCK, ENDING, GOOD, START, delta, stream
from tests.e2e.running import provider, running, wiring
from tests.upstream import ScriptedUpstream, one_after_another

pytestmark = pytest.mark.anyio
EACH = 100  # by FIN and by RST: 200 that reached the provider in each phase
FEW = 5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
async def test_client_leaving_closes_upstream_in_every_phase(phase: Phase, way: Way) -> None:
    async with stage(phase) as scene:
        print(f"\n{await scene.abort(EACH, way, 'native')}")
        aborted = scene.gateway.records[:EACH]
        assert {record["outcome"] for record in aborted} == {"client_disconnected"}
        assert not {"error", "error_code"} & set().union(*aborted)
        assert not scene.gateway.complaints


@pytest.mark.parametrize(
    ("phase", "format"),
    [(phase, name) for phase in PHASES for name in phase.formats if name != "native"],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
async def test_client_leaving_closes_upstream_in_every_format(phase: Phase, format: str) -> None:
    async with stage(phase) as scene:
        for way in WAYS:
            await scene.abort(FEW, way, format)
        assert not scene.gateway.complaints


def bare(app: ASGIApp) -> ASGIApp:
    """As a server serves it that speaks ASGI and no more."""

    async def without_extensions(scope: Scope, receive: Receive, send: Send) -> None:
        await app({name: value for name, value in scope.items() if name != "extensions"}, receive, send)

    return without_extensions


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
async def test_client_leaving_another_server_closes_upstream_too(phase: Phase) -> None:
    async with stage(phase, wrap=bare) as scene:
        for way in WAYS:
            await scene.abort(FEW, way, "native")
        assert not scene.gateway.complaints


@pytest.mark.parametrize("way", WAYS)
async def test_client_leaving_while_the_gateway_dials_ends_the_dial(way: Way) -> None:
    print(f"\n{await abort_while_dialling(EACH, way, 'native')}")


@pytest.mark.parametrize("format", FORMATS[1:])
async def test_client_leaving_while_the_gateway_dials_ends_the_dial_in_every_format(format: str) -> None:
    for way in WAYS:
        await abort_while_dialling(FEW, way, format)


@pytest.mark.parametrize("phase", [PHASES[0], PHASES[3]], ids=lambda phase: phase.name)
async def test_of_an_answer_that_is_deaf_the_matrix_sees_the_leak(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "_left", lambda answer: None)
    async with stage(phase, deadline=0.3) as scene:
        with pytest.raises(Leak):
            await scene.abort(1, "fin", "native")
        assert scene.gateway.leftovers()
        assert len(scene.upstream.open) == 1


async def test_usage_until_the_abort_is_recorded_as_estimated() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
    ):
        await client.until("content_block_delta")
        client.leave("rst")
        record = await gateway.record()
    assert record["usage"] == {"input_tokens": 11, "output_tokens": 1, "estimated": True}
    assert record["outcome"] == "client_disconnected"
    assert gateway.logs[-1].levelname == "INFO"


async def test_usage_that_the_provider_told_before_the_abort_is_not_estimated() -> None:
    from tests.e2e.provider import BLOCK_STOP, REASON

    async with (
        ScriptedUpstream(lambda _: stream(BEGUN + BLOCK_STOP + REASON, Hang())) as upstream,
        running(wiring(provider(upstream.url), timeouts=Timeouts(finish=60))) as gateway,
        gateway.chat() as client,
    ):
        await client.until("content_block_delta")
        client.leave("rst")
        record = await gateway.record()
    assert record["usage"] == {"input_tokens": 11, "output_tokens": 7}


async def test_client_that_never_reads_is_aborted_after_write() -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, *(PARAGRAPH,) * 400, Hang())) as upstream:
        wired = wiring(provider(upstream.url), timeouts=Timeouts(write=0.2))
        async with running(wired, send_buffer=16_384) as gateway, gateway.chat(receive_buffer=4096) as client:
            record = await gateway.record()
            assert record["outcome"] == "slow_client"
            await upstream.until_all_closed()
            await gateway.until_idle()
            assert not gateway.complaints
            await client.until_lost()


async def test_client_that_shuts_its_writing_half_counts_as_gone_although_its_window_is_closed() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, *(PARAGRAPH,) * 400, Hang())) as upstream,
        running(wiring(provider(upstream.url)), send_buffer=16_384) as gateway,
        gateway.chat(receive_buffer=4096) as client,
    ):
        await gateway.until_blocked()
        client.leave("fin")
        assert (await gateway.record())["outcome"] == "client_disconnected"
        await upstream.until_all_closed()
        await gateway.until_idle()
        await client.until_lost()  # the gateway has not kept its end


@pytest.mark.parametrize("way", WAYS)
async def test_client_leaving_after_a_pipelined_second_request_aborts_the_first(way: Way) -> None:
    async with ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            await client.until("content_block_delta")
            await client.post()
            client.leave(way)
            await (await upstream.request()).until_closed()
            await gateway.until_idle()
        assert len(upstream.requests) == 1
        assert [record["outcome"] for record in gateway.records] == ["client_disconnected"]


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway, gateway.chat() as client:
        await client.post()
        for _ in range(2):
            await client.head()
            assert (await client.events())[-1]["type"] == "message_stop"


async def test_client_leaving_in_the_middle_of_its_request_is_no_error() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with Client.open(gateway.port) as client:
            await client.send_raw(b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{")
            client.leave("rst")
            record = await gateway.record()
        assert record["outcome"] == "client_disconnected"
        assert not gateway.complaints
        assert not upstream.connections


async def test_client_leaving_after_the_last_byte_changes_nothing() -> None:
    async with ScriptedUpstream(lambda _: GOOD) as upstream, running(wiring(provider(upstream.url))) as gateway:
        async with gateway.chat() as client:
            await client.events()
            client.leave("rst")
        assert (await gateway.record())["outcome"] == "finished"


async def test_events_arrive_although_the_provider_falls_silent_after_them() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat() as client,
        asyncio.timeout(DEADLINE),
    ):
        await client.until("content_block_delta")


async def test_a_layer_that_buffers_is_seen() -> None:
    async with (
        ScriptedUpstream(lambda _: stream(BEGUN, Hang())) as upstream,
        running(wiring(provider(upstream.url)), wrap=Gathering) as gateway,
        gateway.chat() as client,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.until("content_block_delta")


class Gathering:
    """A control: sends the body when it is complete, as a compressing or caching layer would."""

    def __init__(self, app) -> None:  # type: ignore[no-untyped-def]
        self._app = app

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        body = b""

        async def gather(message) -> None:  # type: ignore[no-untyped-def]
            nonlocal body
            if message["type"] != "http.response.body":
                return await send(message)
            body += message.get("body", b"")
            if not message.get("more_body"):
                await send({**message, "body": body})

        await self._app({**scope, "extensions": {}}, receive, gather)  # there are ways past `send`, which it takes away


async def test_every_chunk_is_sent_on_at_once_and_whole() -> None:
    """One read at the provider's is one write to the client: nothing waits for what comes later."""
    words = [f"word{number} " for number in range(20)]
    steps = [step for word in words for step in (delta(word), Wait(0.005))]
    async with (
        ScriptedUpstream(one_after_another(stream(START + BLOCK, *steps, ENDING))) as upstream,
        running(wiring(provider(upstream.url))) as gateway,
        gateway.chat(format="text") as client,
    ):
        pieces = []
        while piece := await client.piece():
            pieces.append(piece.decode())
    assert pieces == words
