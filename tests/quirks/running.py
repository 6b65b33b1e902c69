"""A gateway on a real socket, in the test's own loop, made from a YAML file as `gateway serve` would be; and a strict client of it."""

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

from gateway.app import Gateway
from gateway.server import bind, server, transports
from gateway.settings import load
from gateway.wiring import Wiring, wire

Json = dict[str, Any]
PATIENCE = 30.0


@dataclass(frozen=True)
class Running:
    gateway: Gateway
    port: int
    log: "Log"

    async def post(self, payload: Json, **options: Any) -> "Answer":
        return await post(self.port, payload, **options)


async def until(holds: Callable[[], bool], what: str, deadline: float = 5.0) -> None:
    """Polls what rings no bell."""
    try:
        async with asyncio.timeout(deadline):
            while not holds():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {deadline} s") from None


class Log(logging.Handler):
    """Every record of every logger, as the gateway's own formatter would be given it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[Json] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line: Json | None = getattr(record, "line", None)
        if line is not None:
            self.lines.append(line)
        self.texts.append(f"{record.levelname} {record.getMessage()} {line} {record.exc_info}")

    def of(self, model: str) -> Json:
        """The last stream's line of that model."""
        return next(line for line in reversed(self.lines) if line["model"] == model)


@contextmanager
def listening() -> Iterator[Log]:
    log, root = Log(), logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "gateway")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.INFO)
    root.addHandler(log)
    try:
        yield log
    finally:
        root.removeHandler(log)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _wiring(configuration: Json, directory: Path) -> Wiring:
    file = directory / "gateway.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    return wire(load({}, config=str(file), command_line={("server", "port"): 0}, directory=directory, secrets=directory))


@asynccontextmanager
async def running(configuration: Json, around: Callable[[Any], Any] = lambda app: app) -> AsyncIterator[Running]:
    """`around` wraps the application, as somebody's own middleware would."""
    with tempfile.TemporaryDirectory() as directory, listening() as log:
        wiring = _wiring(configuration, Path(directory))
        listener = bind(wiring)
        gateway = Gateway(wiring, transports(wiring))
        uvicorn = server(gateway)
        uvicorn.config.app = around(uvicorn.config.app)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(uvicorn.serve(sockets=[listener]), name="gateway")
            try:
                async with asyncio.timeout(PATIENCE):
                    while not uvicorn.started:
                        assert not serving.done(), "the gateway did not come up"
                        await asyncio.sleep(0.001)
                yield Running(gateway, listener.getsockname()[1], log)
            finally:
                for answer in tuple(gateway.answers):
                    answer.abort()
                uvicorn.should_exit = True
                await serving  # not by the group, which cancels where a test fails: an unclosed listener keeps the loop from closing


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
