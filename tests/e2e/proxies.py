"""A real forward proxy, tinyproxy, with its log and its connections; and a provider that speaks TLS behind one.

https://tinyproxy.github.io/
"""

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.e2e import authority
from tests.upstream import ScriptedUpstream
from tests.waiting import until

DEADLINE = 5.0
ESTABLISHED = "01"


def tinyproxy_program() -> str | None:
    return shutil.which("tinyproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


def require_tinyproxy() -> None:
    if tinyproxy_program() is None:
        absent = "These tests run the real tinyproxy and there is none: apt-get install tinyproxy"
        assert os.environ.get("REQUIRE_PROXY") != "1", absent
        pytest.skip(absent)


class Tinyproxy:
    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def asked(self) -> list[str]:
        """The request lines so far."""
        return [line.partition("): ")[2] for line in self.log().splitlines() if " Request (file descriptor" in line]

    def held(self) -> int:
        """Connections to it that their client has not closed, the kernel says: of a closed one the client's row is gone, or no more
        established."""
        with open("/proc/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table][1:]
        return sum(row[3] == ESTABLISHED and row[2].endswith(f":{self.port:04X}") for row in rows)

    async def until_asked(self, number: int = 1) -> None:
        await until(lambda: len(self.asked()) >= number, f"{number} requests at the proxy", DEADLINE)

    async def until_released(self) -> None:
        await until(lambda: self.held() == 0, lambda: f"an end of {self.held()} connections to the proxy", DEADLINE)


@asynccontextmanager
async def tinyproxy(*settings: str) -> AsyncIterator[Tinyproxy]:
    """With these lines besides what it needs, on a port that was free a moment ago."""
    program = tinyproxy_program()
    assert program is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f"Port {port}", "Listen 127.0.0.1", "Allow 127.0.0.1", "Timeout 600", "MaxClients 100", 'ViaProxyName "tests"']
        lines += [f'LogFile "{folder}/log"', "LogLevel Connect", *settings]
        (folder / "tinyproxy.conf").write_text("\n".join(lines) + "\n", "utf-8")
        process = await asyncio.create_subprocess_exec(
            program, "-d", "-c", str(folder / "tinyproxy.conf"), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        found = Tinyproxy(port, folder / "log")
        try:
            await _until_listening(found, process)
            yield found
        finally:
            if process.returncode is None:
                process.kill()  # a thread that waits for a provider would hold up its polite end
            await process.wait()


async def _until_listening(proxy: Tinyproxy, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            assert process.returncode is None, proxy.log()
            with socket.socket() as probe:
                probe.setblocking(False)
                try:
                    return await asyncio.get_running_loop().sock_connect(probe, ("127.0.0.1", proxy.port))
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)


class SecureUpstream(ScriptedUpstream):
    """With TLS in front of it, by a certificate of the tests' own authority.

    A relay, because uvloop's TLS knows no half-close, and after a write that it was told not to buffer it never says it has room.
    """

    @property
    def url(self) -> str:
        port: int = self._front.sockets[0].getsockname()[1]
        return f"https://127.0.0.1:{port}"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._front = await asyncio.start_server(self._arrived, "127.0.0.1", 0, ssl=authority.server(), backlog=1024)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._front.close()
        await super().__aexit__(*error)
        await self._front.wait_closed()

    def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._group.create_task(self._relay(reader, writer), name="scripted upstream's relay")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.port)
        answering = self._group.create_task(_answer(back, writer), name="scripted upstream's relay, back")
        try:
            while read := await reader.read(1 << 16):
                forth.write(read)
        except ConnectionError:
            pass  # the client left by RST
        finally:
            answering.cancel()
            forth.transport.abort()


async def _answer(back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """FIN and RST of the upstream are passed on as what they are."""
    front = writer.get_extra_info("socket")
    while True:
        try:
            read = await back.read(1 << 16)
        except ConnectionError:
            if not writer.is_closing():
                front.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return writer.transport.abort()
        if not read:
            return writer.close()
        writer.write(read)
        try:
            await writer.drain()
        except ConnectionError:
            return  # the client is gone, which the other direction tells
