"""A gateway on the test's own loop, where its tasks, slots and descriptors can be counted; and one as a process of its own."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from gateway.app import Gateway
from gateway.connections import UPSTREAMS, Connection
from gateway.errors import GatewayError
from gateway.formats import Provider, Target
from gateway.formats.anthropic import ANTHROPIC
from gateway.routing import Model, Retry, Router, Streaming, Timeouts
from gateway.server import server, transports
from gateway.wiring import Access, Server, Wiring
from tests.e2e.client import ASK, Client, Json
from tests.upstream import Bell
from tests.waiting import until

DEADLINE = 5.0
ROOT = Path(__file__).resolve().parents[2]
ONCE = Retry(attempts=1)


def provider(url: str, name: str = "claude", kind: str = "anthropic", **fields: Any) -> Connection:
    format = UPSTREAMS[kind]
    base, auth = (url, "x-api-key") if format is ANTHROPIC else (f"{url}/v1", "bearer")
    return Connection(Provider(name, base, **{"key": "sk-test-key-of-the-gateway", "auth": auth, **fields}), format)


def wiring(
    *providers: Connection,
    targets: Sequence[str] = (),
    timeouts: Timeouts | None = None,
    retry: Retry = ONCE,
    streaming: Streaming | None = None,
    access: Access | None = None,
) -> Wiring:
    """One model, `default`; without `targets` (provider/model) it is the model `m` of each provider, in their order."""
    timeouts = timeouts or Timeouts()
    named = {connection.provider.name: Target(connection.provider, connection.format, "m") for connection in providers}
    chosen = [structs.replace(named[name], model=model) for name, _, model in (target.partition("/") for target in targets)]
    models = {"default": Model("default", tuple(chosen or named.values()), timeouts, retry)}
    return Wiring(
        providers={connection.provider.name: connection for connection in providers},
        models=models,
        router=Router(models, named, timeouts, retry),
        timeouts=timeouts,
        retry=retry,
        streaming=streaming or Streaming(),
        access=access or Access(),
        server=Server(),
    )


class Running:
    """The gateway and what can be seen of it from inside."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway = gateway
        self.port = port
        self.logs: list[logging.LogRecord] = []
        self._bell = Bell()
        self._before: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def chat(
        self, body: Json | bytes | None = None, *, format: str = "native", headers: Mapping[str, str] | None = None, **open: Any
    ) -> AsyncIterator[Client]:
        """A client whose chat has been posted. The format `whole` is the native one with `stream: false`."""
        asked = {**ASK, "stream": False} if body is None and format == "whole" else ASK if body is None else body
        path = "/chat" if format in ("native", "whole") else f"/chat?format={format}"
        async with Client.open(self.port, **open) as client:
            await client.post(asked, path=path, headers=headers)
            yield client

    @property
    def records(self) -> list[Json]:
        """The log lines of finished streams."""
        return [log.line for log in self.logs if hasattr(log, "line")]

    @property
    def complaints(self) -> list[str]:
        """What was logged as a warning or worse, by anybody."""
        return [f"{log.name}: {log.getMessage()}" for log in self.logs if log.levelno >= logging.WARNING]

    async def record(self, number: int = 0, deadline: float = DEADLINE) -> Json:
        """The line of the stream that ended as that one, from 0, once it is written."""
        await self._bell.until(lambda: len(self.records) > number, f"record {number} is written", deadline)
        return self.records[number]

    def ended(self, number: int) -> float:
        """When that record was written."""
        instant: float = [log for log in self.logs if hasattr(log, "line")][number].arrived  # type: ignore[attr-defined]
        return instant

    def tasks(self) -> list[str]:
        """Tasks that the gateway has beyond those it started with."""
        return [task.get_name() for task in asyncio.all_tasks() - self._before if _is_the_gateways(task)]

    def leftovers(self) -> list[str]:
        """What a gateway without work should not have."""
        found = [f"task {name}" for name in self.tasks()]
        if self.gateway.admission.streams:
            found.append(f"{self.gateway.admission.streams} slots taken")
        return found + [f"{answer} is open" for answer in self.gateway.answers]

    async def until_idle(self, deadline: float = DEADLINE) -> None:
        await until(lambda: not self.leftovers(), lambda: f"an end of {self.leftovers()}", deadline)

    async def until_blocked(self, number: int = 1) -> None:
        """Until that many answers wait for clients who do not read."""
        answers = self.gateway.answers
        await until(lambda: sum(answer._facts.sending is not None for answer in answers) >= number, f"{number} blocked answers")

    async def until_waiting(self, number: int = 1) -> None:
        """Until that many answers wait between two attempts."""

        def waiting() -> int:
            return sum(answer._facts.attempt is None and answer._record.attempts > 0 for answer in self.gateway.answers)

        await until(lambda: waiting() >= number, f"{number} answers between attempts")


def _is_the_gateways(task: asyncio.Task[Any]) -> bool:
    """sse-starlette keeps one task of its own, from the first reader of /live on, which looks whether the server stops."""
    if task is asyncio.current_task() or task.get_name().startswith(("scripted upstream", "client")):
        return False
    return "_shutdown_watcher" not in repr(task.get_coro())


class _Handler(logging.Handler):
    def __init__(self, running: Running) -> None:
        super().__init__(logging.INFO)
        self._running = running

    def emit(self, record: logging.LogRecord) -> None:
        record.arrived = time.monotonic()
        self._running.logs.append(record)
        self._running._bell.ring()


@asynccontextmanager
async def running(
    wired: Wiring,
    *,
    send_buffer: int | None = None,
    wrap: Callable[[Any], Any] | None = None,
    complaints: bool = False,
) -> AsyncIterator[Running]:
    """Serves `wired`. `wrap` goes around the whole application; an error logged fails the test unless `complaints`."""
    listener = socket.socket()
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)  # inherited by what is accepted
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    listener.setblocking(False)
    gateway = Gateway(wired, transports(wired))
    serving = server(gateway)
    if wrap is not None:
        serving.config.app = wrap(serving.config.app)
    serving.config.load()
    serving.lifespan = serving.config.lifespan_class(serving.config)
    found = Running(gateway, listener.getsockname()[1])
    handler = _Handler(found)
    logging.getLogger().addHandler(handler)
    logging.getLogger("gateway").setLevel(logging.INFO)
    await serving.startup(sockets=[listener])
    found._before = asyncio.all_tasks()
    try:
        yield found
        if not complaints:
            assert not [log.getMessage() for log in found.logs if log.levelno >= logging.ERROR]
    finally:
        # What `Server.serve` does after its main loop, without the tenths of a second it sleeps.
        for part in serving.servers:
            part.close()
        listener.close()
        for answer in tuple(gateway.answers):
            answer.stop(GatewayError("shutdown", "The test is over."))
        for connection in tuple(serving.server_state.connections):
            connection.transport.abort()
        await until(lambda: not serving.server_state.tasks, "the end of the requests")
        await serving.lifespan.shutdown()
        logging.getLogger().removeHandler(handler)


class Process:
    """`python -m gateway serve` with a configuration file, its log lines, its descriptors and its end."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.port = port
        self._log = log

    def log(self) -> str:
        return self._log.read_text("utf-8")

    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.log().splitlines()]

    def records(self) -> list[Json]:
        return [line for line in self.lines() if line.get("event") == "stream"]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident(self) -> int:
        """Bytes of memory."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def until_stopping(self) -> None:
        """Until the signal has arrived: then it is not ready any more."""
        async with asyncio.timeout(DEADLINE):
            while (await self.get("/readyz")).status != 503:
                await asyncio.sleep(0.01)

    async def exit_code(self, deadline: float = DEADLINE) -> int:
        async with asyncio.timeout(deadline):
            return await self.process.wait()

    @asynccontextmanager
    async def chat(self, body: Json | bytes = ASK, *, path: str = "/chat", **open: Any) -> AsyncIterator[Client]:
        async with Client.open(self.port, **open) as client:
            await client.post(body, path=path)
            yield client

    async def get(self, path: str) -> Client:
        """The answer, read whole; its connection is closed."""
        async with Client.open(self.port) as client:
            await client.send("GET", path)
            await client.body()
            return client


@asynccontextmanager
async def process(configuration: Json, environment: Mapping[str, str] | None = None) -> AsyncIterator[Process]:
    """YAML is a superset of JSON. The port is one that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gateway.yaml")
        file.write_text(json.dumps(configuration), "utf-8")  # noqa: ASYNC240  # a moment, before anything runs
        log = Path(folder, "log")
        with log.open("wb") as error:  # noqa: ASYNC230
            started = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", str(port)),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=error,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **(environment or {})},
            )
        try:
            found = Process(started, port, log)
            await _until_ready(found)
            yield found
        finally:
            if started.returncode is None:
                started.kill()
            await started.wait()


async def _until_ready(found: Process) -> None:
    async with asyncio.timeout(15):
        while True:
            assert found.process.returncode is None, found.log()
            try:
                if (await found.get("/readyz")).status == 200:
                    return
            except OSError:
                await asyncio.sleep(0.02)
