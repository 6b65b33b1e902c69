"""TLS to providers, against a certificate authority of the tests' own making, on both loops."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http1 import Http1Transport
from gateway.http1_connection import WAITING_LIMIT
from tests.e2e import authority
from tests.e2e.wires import DEADLINE, Peer, Wire, asking, body, descriptors, listening, request, running, until_nothing_left

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LONG = b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nall of it"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def transport(anyio_backend: object) -> AsyncIterator[Http1Transport]:
    """Closed after the test; then no socket and no task may be left."""
    sockets, tasks = descriptors(), running()
    async with Http1Transport(authority.client()) as opened:
        yield opened
    await until_nothing_left(sockets, tasks)


@pytest.fixture
async def peer(transport: Http1Transport) -> AsyncIterator[Peer]:
    async with listening("https") as opened:
        yield opened


class SecureWire(Wire):
    """The provider's side of one TLS connection, by hand, so that each byte and each end comes when the test says."""

    def __init__(self, wire: Wire, context: ssl.SSLContext) -> None:
        super().__init__(wire.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    async def handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                return await self.flush()
            except ssl.SSLWantReadError:
                await self.flush()
                if not await self.fill():
                    raise ConnectionResetError("left in the handshake") from None
            except ssl.SSLError:
                await self.flush()  # the alert
                raise

    async def fill(self) -> bytes:
        read = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        self.incoming.write(read)
        return read

    async def flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.outgoing.read())

    async def more(self) -> bytes:
        while True:
            try:
                plain = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                if not await self.fill():
                    return b""
            else:
                self.received += plain
                return plain

    def sealed(self, plain: bytes) -> bytes:
        self.tls.write(plain)
        return self.outgoing.read()

    async def send(self, *pieces: bytes) -> None:
        await super().send(*(self.sealed(piece) for piece in pieces))

    async def close_notify(self) -> None:
        with suppress(ssl.SSLWantReadError):  # it does not wait for the other's
            self.tls.unwrap()
        await self.flush()


async def secure(peer: Peer, context: ssl.SSLContext | None = None) -> SecureWire:
    wire = SecureWire(await peer.accept(), context or authority.server())
    await wire.handshake()
    return wire


async def refused(transport: Http1Transport, peer: Peer, *, connect: float | None = 5, answer: Any = None) -> httpx.HTTPError:
    async def ask() -> httpx.HTTPError:
        with pytest.raises(httpx.HTTPError) as error:
            await transport.handle_async_request(request(peer.url, connect=connect))
        return error.value

    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        asked = group.create_task(ask())
        wire = await peer.accept()
        with suppress(ConnectionError, ssl.SSLError):  # it may leave, perhaps with an alert
            await answer(wire)
        return await asked


@pytest.mark.parametrize("version", VERSIONS, ids=["TLS 1.2", "TLS 1.3"])
async def test_a_trusted_provider_answers_and_its_connection_is_used_again(
    transport: Http1Transport, peer: Peer, version: ssl.TLSVersion
) -> None:
    wire = None
    for _ in range(3):
        async with asking(transport, peer) as asked:
            wire = wire or await secure(peer, authority.server(highest=version))
            assert wire.tls.version() == version.name.replace("_", ".")
            await wire.request()
            await wire.send(OK)
            assert await body(await asked) == (b"ok", None)
    assert len(peer.wires) == 1


async def test_an_answer_may_come_in_any_pieces(transport: Http1Transport, peer: Peer) -> None:
    """Cut between the records and inside them."""
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        sealed = b"".join(wire.sealed(plain) for plain in (head, b"3\r\nab", b"c\r\n", b"0\r\n\r\n"))
        await Wire.send(wire, *(sealed[at : at + 1] for at in range(len(sealed))))
        assert await body(await asked) == (b"abc", None)


async def test_a_large_request_arrives_whole(transport: Http1Transport, peer: Peer) -> None:
    content = bytes(range(256)) * 10_000
    async with asking(transport, peer, body=content) as asked:
        wire = await secure(peer)
        assert (await wire.request()).endswith(content)
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)


async def test_a_name_is_checked_and_told_to_the_provider(transport: Http1Transport, peer: Peer) -> None:
    names: list[str | None] = []
    context = authority.server("localhost")
    context.sni_callback = lambda _, name, __: names.append(name)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(transport.handle_async_request(request(f"https://localhost:{peer.port}/v1")))
        wire = await secure(peer, context)
        await wire.request()
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)
    assert names == ["localhost"]


async def test_a_ca_file_is_what_makes_a_private_provider_trusted(tmp_path: Path, peer: Peer) -> None:
    context = ssl.create_default_context(cafile=str(authority.trusting(tmp_path)))
    async with Http1Transport(context) as transport, asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)


async def test_without_a_context_a_private_authority_is_not_trusted(peer: Peer) -> None:
    async with Http1Transport() as transport:
        error = await refused(transport, peer, answer=lambda wire: SecureWire(wire, authority.server()).handshake())
        assert isinstance(error, httpx.ConnectError)
        assert str(error) == "the certificate was refused: unable to get local issuer certificate"


@pytest.mark.parametrize(
    ("names", "how", "sentence"),
    [
        ((), {"by": "stranger"}, "unable to get local issuer certificate"),
        (("provider.test",), {}, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ((), {"expired": True}, "certificate has expired"),
        ((), {"by": "itself"}, "self-signed certificate"),
    ],
    ids=["a stranger's", "another host's", "expired", "self-signed"],
)
async def test_a_wrong_certificate_is_refused_in_a_clear_sentence(
    transport: Http1Transport, peer: Peer, names: tuple[str, ...], how: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    match how.get("by"):
        case "itself":
            context = authority.self_signed(tmp_path)
        case "stranger":
            context = authority.server(by=authority.stranger())
        case _:
            context = authority.server(*names, **how)
    error = await refused(transport, peer, answer=lambda wire: SecureWire(wire, context).handshake())
    assert isinstance(error, httpx.ConnectError)
    assert sentence in str(error)
    assert str(error).startswith("the certificate was refused: ")
    assert not str(error).endswith(".")


async def test_a_provider_that_speaks_no_tls_is_a_clear_error(transport: Http1Transport, peer: Peer) -> None:
    async def plain(wire: Wire) -> None:
        await wire.more()
        await wire.send(b"HTTP/1.1 400 Plain\r\n\r\n")

    error = await refused(transport, peer, answer=plain)
    assert isinstance(error, httpx.ConnectError)
    assert str(error) in ("TLS failed: wrong version number", "TLS failed: record layer failure")


async def test_a_provider_that_speaks_before_the_handshake_is_a_clear_error(transport: Http1Transport, peer: Peer) -> None:
    error = await refused(transport, peer, answer=lambda wire: wire.send(b"220 mail.test ESMTP\r\n"))
    assert isinstance(error, httpx.ConnectError)
    assert str(error).startswith("TLS failed: ")


async def test_versions_without_a_common_one_are_a_clear_error(peer: Peer) -> None:
    context = authority.client()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    async with Http1Transport(context) as transport:
        old = authority.server(highest=ssl.TLSVersion.TLSv1_2)
        error = await refused(transport, peer, answer=lambda wire: SecureWire(wire, old).handshake())
        assert isinstance(error, httpx.ConnectError)
        assert str(error) == "TLS failed: tlsv1 alert protocol version"


@pytest.mark.parametrize("moment", ["at once", "in the middle"])
@pytest.mark.parametrize("end", ["FIN", "RST"])
async def test_a_handshake_that_ends_is_a_clear_error(transport: Http1Transport, peer: Peer, end: str, moment: str) -> None:
    async def leave(wire: Wire) -> None:
        await wire.more()
        if moment == "in the middle":
            await wire.send(b"\x16\x03\x03\x02\x00\x02")
        wire.end(end)

    error = await refused(transport, peer, answer=leave)
    assert isinstance(error, httpx.ConnectError)
    assert str(error) == ("the connection closed in the TLS handshake" if end == "FIN" else "Connection reset by peer")


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
async def test_a_handshake_has_the_deadline_of_the_dial(transport: Http1Transport, peer: Peer, drip: bool) -> None:
    async def stall(wire: Wire) -> None:
        if not drip:
            return await wire.until_closed()
        half = SecureWire(wire, authority.server())
        await half.fill()
        with pytest.raises(ssl.SSLWantReadError):
            half.tls.do_handshake()
        hello = half.outgoing.read()
        for at in range(len(hello) - 1):  # never the last byte
            await wire.send(hello[at : at + 1])
            await asyncio.sleep(0)
        await wire.until_closed()

    error = await refused(transport, peer, connect=0.1, answer=stall)
    assert isinstance(error, httpx.ConnectTimeout)


@pytest.mark.parametrize("end", ["close_notify", "FIN", "RST"])
async def test_an_end_inside_the_body_is_an_error_behind_what_came(transport: Http1Transport, peer: Peer, end: str) -> None:
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        await wire.send(LONG + b"abc")
        response = await asked
        if end == "close_notify":
            await wire.close_notify()
        else:
            wire.end(end)
        text, error = await body(response)
    assert text == b"abc"
    assert isinstance(error, httpx.ReadError if end == "RST" else httpx.RemoteProtocolError)
    assert str(error) == ("Connection reset by peer" if end == "RST" else "the connection closed inside the body")


async def test_a_forged_record_is_an_error_behind_what_came(transport: Http1Transport, peer: Peer) -> None:
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        forged = bytearray(wire.sealed(LONG + b"abc") + wire.sealed(b"evil"))
        forged[-1] ^= 1
        await Wire.send(wire, bytes(forged))
        text, error = await body(await asked)
    assert text == b"abc"
    assert isinstance(error, httpx.ReadError)
    assert str(error).startswith("TLS failed: ")
    await wire.until_closed()


@pytest.mark.parametrize("end", ["close_notify", "FIN"])
async def test_a_close_delimited_body_is_read_to_its_end(transport: Http1Transport, peer: Peer, end: str) -> None:
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        await wire.send(UNTIL_CLOSE)
        if end == "FIN":
            wire.fin()
        else:
            await wire.close_notify()
        assert await body(await asked) == (b"all of it", None)


async def sent_for_a_paused_reader(wire: Wire, sealed: bytes) -> int:
    if len(sealed) > WAITING_LIMIT:
        return await wire.send_what_fits(sealed)
    await Wire.send(wire, sealed)
    return len(sealed)


@pytest.mark.parametrize("end", ["FIN", "RST"])
@pytest.mark.parametrize("size", [200_000, 500_000, 3_000_000], ids=["little", "more than may wait", "much more"])
async def test_what_came_while_the_reader_paused_is_read_before_the_error(
    transport: Http1Transport, peer: Peer, size: int, end: str
) -> None:
    """The loops' own TLS drops what it holds when a RST comes while the reader is paused: of 500 KB it lost 90 or 170."""
    text = bytes(range(250)) * (size // 250)
    for _ in range(10 if size == 200_000 else 3):
        async with asking(transport, peer) as asked:
            wire = await secure(peer)
            await wire.request()
            await wire.send(LONG)
            response = await asked
        sealed = wire.sealed(text)
        sent = await sent_for_a_paused_reader(wire, sealed)
        arrived = sent - await wire.until_still()
        assert arrived == len(sealed) or size > WAITING_LIMIT
        wire.end(end)
        for _ in range(20):
            await asyncio.sleep(0)
        received, error = await body(response)
        # Only whole records can be read: of 16 KiB, and 22 bytes of TLS's own.
        records = (arrived if end == "RST" else sent) // (16384 + 22)
        assert min(records * 16384, size) <= len(received)
        assert received == text[: len(received)]
        assert isinstance(error, httpx.RemoteProtocolError if end == "FIN" else httpx.ReadError)
        wire.socket.close()


async def test_a_flooding_provider_is_paused_and_nothing_is_lost(transport: Http1Transport, peer: Peer) -> None:
    text = bytes(range(250)) * 36_000
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        await wire.send(LONG)
        response = await asked
        sealed = wire.sealed(text)
        sent = await wire.send_what_fits(sealed)
        assert sent < len(sealed)
        async with asyncio.TaskGroup() as group:
            group.create_task(Wire.send(wire, sealed[sent:]))
            received, error = await body(response)
    assert received == text
    assert error is None


@pytest.mark.parametrize("news", ["bytes", "close_notify", "FIN", "RST"])
async def test_a_resting_connection_is_closed_at_any_news(transport: Http1Transport, peer: Peer, news: str) -> None:
    async with asking(transport, peer) as asked:
        wire = await secure(peer)
        await wire.request()
        await wire.send(OK)
        await body(await asked)
    if news == "bytes":
        await wire.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    elif news == "close_notify":
        await wire.close_notify()
    else:
        wire.end(news)
    if news != "RST":
        await Wire.until_closed(wire)
    for _ in range(5):
        await asyncio.sleep(0)
    async with asking(transport, peer) as asked:
        fresh = await secure(peer)
        await fresh.request()
        await fresh.send(OK)
        assert await body(await asked) == (b"ok", None)


async def test_session_tickets_are_no_part_of_an_answer(transport: Http1Transport, peer: Peer) -> None:
    """TLS speaks for itself after the handshake too."""
    context = authority.server()
    context.num_tickets = 4
    async with asking(transport, peer) as asked:
        wire = SecureWire(await peer.accept(), context)
        # The tickets are in the server's last flight: they are kept back until the answer has been read.
        kept = b""
        while True:
            try:
                wire.tls.do_handshake()
                kept = wire.outgoing.read()
                break
            except ssl.SSLWantReadError:
                await wire.flush()
                await wire.fill()
        await wire.request()
        assert kept
        # Records are numbered: what was sealed first goes first.
        await Wire.send(wire, kept[:50])
        await Wire.send(wire, kept[50:] + wire.sealed(OK))
        assert await body(await asked) == (b"ok", None)
    async with asking(transport, peer) as asked:
        await wire.request()
        await wire.send(OK)
        assert await body(await asked) == (b"ok", None)
    assert len(peer.wires) == 1
