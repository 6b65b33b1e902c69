"""`requirements/install.sh`, with a Python whose venv and pip only write down what they were asked."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
# Its pip waits for a file, so that two of them would meet.
PYTHON = """#!/bin/sh
case "$1 $2 $3" in
    "-m venv --clear")
        mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo "$(pwd -P)/.venv" >.venv/bin/activate ;;
    "-m pip install")
        echo begins >>"$LOG"
        while [ ! -e "$GO" ]; do sleep 0.01; done
        echo ends >>"$LOG" ;;
    "-V "*) echo Python 3.11.0 ;;
esac
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log, self.go = folder / "log", folder / "go"
        self.log.touch()
        (folder / "requirements").mkdir()
        shutil.copy(ROOT / "requirements/install.sh", folder / "requirements")
        for name in ("run", "dev"):
            (folder / f"requirements/{name}.txt").write_text("one==1\n")
        python = folder / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self._environ = {"PATH": os.environ["PATH"], "PYTHON": str(python), "LOG": str(self.log), "GO": str(self.go)}

    def install(self, wanted: str) -> subprocess.Popen[str]:
        command = ("sh", str(self.folder / "requirements/install.sh"), wanted)
        return subprocess.Popen(command, env=self._environ, stderr=subprocess.PIPE, text=True)

    def stamps(self) -> set[str]:
        return {path.name for path in (self.folder / ".venv").glob("*.stamp")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def said(stream: IO[str] | None, holds: Callable[[str], bool]) -> str:
    assert stream is not None
    for line in stream:
        if holds(line):
            return line
    raise AssertionError("it ended without saying so")


@pytest.mark.skipif(shutil.which("flock") is None, reason="without flock there is no lock")
def test_second_make_waits_for_the_first_and_finds_its_work_done(project: Project) -> None:
    with project.install("run") as first:
        said(first.stderr, lambda line: line.startswith("Installing"))
        with project.install("run") as second:
            said(second.stderr, lambda line: "waiting for it" in line)
            project.go.touch()
            assert (first.wait(10), second.wait(10)) == (0, 0)
    assert project.log.read_text().split() == ["begins", "ends"]
    with project.install("run") as third:
        assert third.wait(10) == 0
    assert project.log.read_text().split() == ["begins", "ends"]


def test_what_else_is_installed_stays_so(project: Project) -> None:
    project.go.touch()
    with project.install("dev") as made:
        assert made.wait(10) == 0
    assert project.stamps() == {"dev.stamp", "run.stamp"}
    (project.folder / "requirements/run.txt").write_text("one==1\n\n")
    project.go.unlink()
    with project.install("run") as again:
        said(again.stderr, lambda line: line.startswith("Installing"))
        assert "dev.stamp" in project.stamps()
        project.go.touch()
        assert again.wait(10) == 0
    assert project.stamps() == {"dev.stamp", "run.stamp"}
