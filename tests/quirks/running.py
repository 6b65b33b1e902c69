"""A gateway made from a YAML file as `gateway serve` would be, in the test's own loop; and a client that only reads, strictly."""

import asyncio
import contextlib
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.settings import load
from gateway.wiring import Wiring, wire
from tests.e2e import running as e2e

Json = dict[str, Any]
PATIENCE = 30.0


class Running:
    """The gateway that a configuration makes, and its log."""

    def __init__(self, running: e2e.Running) -> None:
        self.gateway = running.gateway
        self.port = running.port
        self.log = Log(running)

    async def post(self, payload: Json, **options: Any) -> "Answer":
        return await post(self.port, payload, **options)


class Log:
    """Every record of every logger, from INFO up."""

    def __init__(self, running: e2e.Running) -> None:
        self._running = running

    @property
    def lines(self) -> list[Json]:
        return self._running.records

    @property
    def texts(self) -> list[str]:
        logs = self._running.logs
        return [f"{log.levelname} {log.getMessage()} {getattr(log, 'line', None)} {log.exc_info}" for log in logs]

    def of(self, model: str) -> Json:
        """The last stream's line of that model."""
        return next(line for line in reversed(self.lines) if line["model"] == model)


@contextmanager
def talkative() -> Iterator[None]:
    """Libraries log what they would only say to a curious person: a key may be in it."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)


def _wiring(configuration: Json) -> Wiring:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / "gateway.yaml"
        file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        return wire(load({}, config=str(file), directory=directory, secrets=directory))


@asynccontextmanager
async def running(configuration: Json, around: Callable[[Any], Any] | None = None) -> AsyncIterator[Running]:
    """`around` wraps the application, as somebody's own middleware would."""
    with talkative():
        async with e2e.running(_wiring(configuration), wrap=around, complaints=True) as found:
            yield Running(found)


@dataclass
class Answer:
    """What a client got. `whole`: the body came to its proper end."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False
    seconds: float = 0.0


async def post(
    port: int, payload: Json, *, path: str = "/chat", headers: Json | None = None, leaves: Json | None = None, patience: float = PATIENCE
) -> Answer:
    """One POST; with `leaves` the client closes after so many events or seconds, and the answer is what had come."""
    leaves = leaves or {}
    clock = asyncio.get_running_loop().time
    begun, answer = clock(), Answer()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(payload).encode()
    fields = {"host": f"127.0.0.1:{port}", "content-type": "application/json", "connection": "close"}
    fields |= {"content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    try:
        writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        async with asyncio.timeout(leaves.get("after_s", patience)):
            await _read(reader, answer, leaves.get("after_events", 0))
    except TimeoutError:
        assert "after_s" in leaves, f"no end of the answer within {patience} s; so far {answer.body[-200:]!r}"
    finally:
        answer.seconds = clock() - begun
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return answer


async def _read(reader: asyncio.StreamReader, answer: Answer, enough: int) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    answer.status = int(head[0].split(" ")[1])
    for line in filter(None, head[1:]):
        name, _, value = line.partition(":")
        answer.headers[name.lower()] = value.strip()
    if "transfer-encoding" not in answer.headers:
        answer.body = await reader.readexactly(int(answer.headers["content-length"]))
        answer.whole = True
        return
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            answer.body += (await reader.readexactly(size + 2))[:-2]
            if enough and answer.body.count(b"\n\n") >= enough:
                return
        answer.whole = await reader.read() == b"\r\n"
    except asyncio.IncompleteReadError:
        pass  # cut: `whole` stays false
