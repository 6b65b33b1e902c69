"""The way to run Node itself: a script that fails must not look like one that passed."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.node_run import NodeFailed
from tests.waiting import until

pytestmark = pytest.mark.anyio
Node = Callable[..., Awaitable[Any]]


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "script.mjs"
        path.write_text(text, "utf-8")
        return path

    return write


async def test_every_client_is_there_and_a_script_is_given_what_it_answers(node: Node) -> None:
    versions = await node("versions.mjs", {"wör": ["ld", None]})
    assert versions["given"] == {"wör": ["ld", None]}
    assert {name: version.split(".")[0] for name, version in versions["versions"].items() if name.startswith("ai")} == {
        "ai5": "5",
        "ai6": "6",
        "ai7": "7",
    }


async def test_a_script_that_fails_shows_what_it_complained_of(node: Node, script: Callable[[str], Path]) -> None:
    with pytest.raises(NodeFailed, match=r"exited with 1\.\n(?s:.*)Error: no such luck"):
        await node(script('throw new Error("no such luck");'))
    with pytest.raises(NodeFailed, match=r"printed no JSON but b'hm'\.\nwell"):
        await node(script('process.stdout.write("hm"); process.stderr.write("well");'))


async def test_a_script_that_does_not_end_is_ended(node: Node, script: Callable[[str], Path]) -> None:
    endless = script('process.stderr.write("still here"); setInterval(() => {}, 1000);')
    with pytest.raises(NodeFailed, match=r"did not end within 1 s\.\nstill here"):
        await node(endless, deadline=1)


async def test_no_key_of_the_machine_reaches_a_script(node: Node, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebodys-own")
    shown = script("process.stdout.write(JSON.stringify(Object.keys(process.env)));")
    assert await node(shown, environment={"MINE": "1"}) == ["MINE"]


async def test_whoever_gives_up_on_a_script_ends_it(node: Node, script: Callable[[str], Path], tmp_path: Path) -> None:
    announced = tmp_path / "pid"
    code = f'import fs from "node:fs"; fs.writeFileSync("{announced}", String(process.pid)); setInterval(() => {{}}, 1000);'
    async with anyio.create_task_group() as group:
        group.start_soon(node, script(code))
        await until(lambda: announced.exists() and announced.read_text() != "", "the script runs", 20)
        group.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(announced.read_text()), 0)
