"""Whole responses of a real server, replayed byte for byte through the gateway: what comes out is what table.toml says."""

import asyncio
import hashlib
import random
import socket
import struct
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.quirks.expectations import check_refusal, check_stream
from tests.quirks.running import Answer, Json, running

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
TABLE: dict[str, Json] = tomllib.loads((HERE / "table.toml").read_text("utf-8"))
RESPONSES = {file.stem: file.read_bytes() for file in HERE.glob("*.http")}
MANNERS = ("whole", "cut", "reset")


@asynccontextmanager
async def replaying() -> AsyncIterator[int]:
    """A server that answers `/NAME/MANNER/…` with that capture: in one write, in seeded pieces, or whole and then a reset."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        _, name, manner, _ = head.split(" ")[1].split("/", 3)
        rest, dice = RESPONSES[name], random.Random(name)
        while rest:
            size = dice.choice((1, 2, 3, 20, 100, 700)) if manner == "cut" else len(rest)
            writer.write(rest[:size])
            await writer.drain()
            rest = rest[size:]
            if rest:
                await asyncio.sleep(0.001)  # a read of its own
        if manner == "reset":
            await asyncio.sleep(0.05)  # what was sent has been read
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def configuration(port: int) -> Json:
    providers: Json = {}
    models: Json = {}
    for name in RESPONSES:
        kind, version = ("anthropic", "") if name.startswith("claude") else ("openai", "/v1")
        for manner in MANNERS:
            providers[f"{name}.{manner}"] = {"type": kind, "base_url": f"http://127.0.0.1:{port}/{name}/{manner}{version}", "api_key": "k"}
            models[f"{name}.{manner}"] = {"targets": [f"{name}.{manner}/smollm2"], "retry": {"attempts": 1}}
    return {"providers": providers, "models": models}


@pytest.fixture(scope="module")
async def answers() -> dict[str, Answer]:
    async with replaying() as port, running(configuration(port)) as here:

        async def ask(model: str) -> tuple[str, Answer]:
            return model, await here.post({"model": model, "messages": [{"role": "user", "content": "hi"}]})

        return dict(await asyncio.gather(*(ask(f"{name}.{manner}") for name in RESPONSES for manner in MANNERS)))


def test_the_table_knows_every_capture() -> None:
    assert len(RESPONSES) == 30
    assert TABLE.keys() == RESPONSES.keys()


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("name", TABLE)
async def test_a_real_answer_comes_out_as_the_table_says(name: str, manner: str, answers: dict[str, Answer]) -> None:
    row, answer = TABLE[name], answers[f"{name}.{manner}"]
    if "status" in row:
        error = check_refusal(answer, row["status"])["error"]
        assert {key: error[key] for key in row["error"]} == row["error"]
        return
    said = check_stream(answer)
    start = said[0]["message"]
    assert (start["id"], start["model"]) == (row["id"], row["model"])
    blocks = folded(said)
    assert [shown(block, row) for block, row in zip(blocks, row["blocks"], strict=True)] == row["blocks"]
    ending = said[-1]
    if "error" in row:
        assert {key: ending["error"][key] for key in row["error"]} == row["error"]
        assert (ending["error"]["retryable"], ending["error"]["partial"]) == (True, True)
        return
    assert ending["stats"]["dropped_frames"] == 0
    last = said[-2]
    assert last["delta"] == {"stop_reason": row["stop_reason"], "stop_sequence": row.get("stop_sequence")}
    assert last["usage"] == row["usage"]


def folded(said: list[Json]) -> list[Json]:
    """The blocks with the text of their deltas, and with what a tool's stop says."""
    blocks: list[Json] = []
    for event in said:
        match event["type"]:
            case "content_block_start":
                blocks.append({**event["content_block"], "said": ""})
            case "content_block_delta":
                blocks[-1]["said"] += "".join(value for key, value in event["delta"].items() if key != "type")
            case "content_block_stop":
                blocks[-1] |= {key: event[key] for key in ("input", "invalid_input") if key in event}
            case _:
                pass
    return blocks


def shown(block: Json, row: Json) -> dict[str, Any]:
    """The block as its row would say it."""
    said: str = block["said"]
    if block["type"] == "tool_use":
        named = {"type": "tool_use", "id": block["id"], "name": block["name"], "arguments": said}
        if "invalid_input" not in block:
            return named
        assert block["invalid_input"]["partial_json"] == said
        return {**named, "invalid": block["invalid_input"]["reason"]}
    if "text" in row:
        return {"type": block["type"], "text": said}
    return {"type": block["type"], "length": len(said), "sha256": hashlib.sha256(said.encode()).hexdigest()}
