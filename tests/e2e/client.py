"""A client on a raw socket: it reads only when it is told to, knows when each event came, and can leave in every way there is.

async with Client.open(port) as client:
    await client.post({"messages": [{"role": "user", "content": "hi"}]})
    event = await client.event()
    client.leave("rst")
"""

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

Json = dict[str, Any]
Way = Literal["fin", "rst"]
DEADLINE = 10.0
ASK: Json = {"messages": [{"role": "user", "content": "hi"}]}


class Truncated(Exception):
    """The connection ended before the answer did: what curl calls 18 and fetch a rejection."""


class Client:
    """One connection. Requests can follow each other on it; answers are read in their order."""

    def __init__(self, connection: socket.socket) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.left: float | None = None
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._text = b""  # of the body, not yet made into events
        self._length: int | None = None  # of the body still to come; None: chunked
        self._ended = False

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, *, receive_buffer: int | None = None) -> AsyncIterator["Client"]:
        connection = socket.socket()
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)  # before connecting: it sets the window
        client = cls(connection)
        try:
            await client._loop.sock_connect(connection, ("127.0.0.1", port))
            yield client
        finally:
            connection.close()

    async def post(self, body: Json | bytes = ASK, *, path: str = "/chat", headers: Mapping[str, str] | None = None) -> None:
        await self.send("POST", path, body, headers)

    async def send(self, method: str, path: str, body: Json | bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"host": "127.0.0.1", **(headers or {})}
        if method == "POST":
            fields.setdefault("content-length", str(len(data)))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
        await self.send_raw("\r\n".join([*lines, "", ""]).encode("latin-1") + data)

    async def send_raw(self, data: bytes) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._loop.sock_sendall(self._socket, data)

    # what comes back

    async def head(self) -> int:
        """The status; the headers are in `headers`."""
        while b"\r\n\r\n" not in self._received:
            await self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        if self.status == 100:
            return await self.head()
        self.headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name.lower() not in self.headers, f"the header {name} is there twice"
            self.headers[name.lower()] = value.strip()
        chunked = self.headers.get("transfer-encoding") == "chunked"
        self._length = None if chunked else int(self.headers.get("content-length", "0"))
        self._ended = self._length == 0
        return self.status

    async def piece(self) -> bytes:
        """The next bytes of the body, one chunk where it is chunked; b"" at its end, `Truncated` where it broke off."""
        if not self.status:
            await self.head()
        if self._ended:
            return b""
        if self._length is not None:
            if not self._received:
                await self._more()
            piece, self._received = self._received[: self._length], self._received[self._length :]
            self._length -= len(piece)
            self._ended = self._length == 0
            return piece
        while b"\r\n" not in self._received:
            await self._more()
        size, _, rest = self._received.partition(b"\r\n")
        length = int(size, 16)
        while len(rest) < length + 2:
            self._received = size + b"\r\n" + rest
            await self._more()
            rest = self._received[len(size) + 2 :]
        self._received = rest[length + 2 :]
        self._ended = length == 0
        return rest[:length]

    async def body(self) -> bytes:
        found = b""
        while piece := await self.piece():
            found += piece
        return found

    async def json(self) -> Json:
        found = json.loads(await self.body())
        assert isinstance(found, dict)
        return found

    async def event(self) -> Json | None:
        """The next event of a stream, native or ndjson; None at its end."""
        while True:
            lines = self.headers.get("content-type") == "application/x-ndjson"
            border = b"\n" if lines else b"\n\n"
            if border in self._text:
                text, _, self._text = self._text.partition(border)
                return json.loads(text) if lines else _event(text)
            piece = await self.piece()
            if not piece:
                assert not self._text, f"an unfinished event: {self._text!r}"
                return None
            self._text += piece

    async def events(self) -> list[Json]:
        """All that is left."""
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    async def until(self, kind: str) -> Json:
        while (event := await self.event()) is not None:
            if event["type"] == kind:
                return event
        raise AssertionError(f"the stream ended without {kind}")

    async def until_lost(self) -> None:
        """Reads and throws away until the gateway ends the connection, by FIN or RST."""
        self._received = b""
        try:
            while True:
                await self._more()
                self._received = b""
        except Truncated:
            pass

    # leaving

    def leave(self, way: Way) -> float:
        """Without a word: by FIN although bytes may still come, or by RST. The instant before it."""
        self.left = time.monotonic()
        if way == "rst":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.close()
        else:
            # Closing with bytes unread would be a RST.
            self._socket.shutdown(socket.SHUT_WR)
        return self.left

    async def _more(self) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                data = await self._loop.sock_recv(self._socket, 65536)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Truncated(f"status {self.status}, then {self._received!r}")
        self._received += data


def _event(text: bytes) -> Json:
    """One Server-Sent Event, exactly as the gateway writes them."""
    name, data = text.split(b"\n")
    assert name.startswith(b"event: "), text
    assert data.startswith(b"data: "), text
    event = json.loads(data[6:])
    assert isinstance(event, dict)
    assert event["type"] == name[7:].decode()
    return event
