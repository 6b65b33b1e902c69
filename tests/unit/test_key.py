"""`gateway key`: a key nobody can guess, shown once, and a line that the configuration takes as it is."""

import hashlib
import os
import re
from pathlib import Path

import pytest
import yaml

from gateway.__main__ import main
from gateway.settings import load
from gateway.wiring import wire


def made(capsys: pytest.CaptureFixture[str], name: str = "web") -> tuple[str, str]:
    """A key and its line, from what a person sees."""
    assert main(["key", name]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    (key,) = [line for line in lines if line.startswith("gw-")]
    (line,) = [line for line in lines if "sha256" in line]
    assert shown.out.count(key) == 1
    return key, line


def test_a_key_has_a_prefix_and_many_random_characters(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {made(capsys)[0] for _ in range(20)}
    assert len(keys) == 20
    assert all(re.fullmatch(r"gw-[A-Za-z0-9_-]{43}", key) for key in keys)


def test_the_line_holds_the_hash_and_not_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    key, line = made(capsys)
    assert key not in line
    assert yaml.safe_load(line) == {"web": {"sha256": hashlib.sha256(key.encode()).hexdigest()}}


@pytest.mark.parametrize("name", ["web", "1", "on", "null", "team-a.phone_2"])
def test_the_line_is_taken_by_the_keys_file_and_by_the_environment(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, line = made(capsys, name)
    (tmp_path / "keys.yaml").write_text(f"{line}\n")
    for environ in ({"GATEWAY_ACCESS__KEYS_FILE": str(tmp_path / "keys.yaml")}, {"GATEWAY_ACCESS__KEYS": line}):
        (caller,) = wire(load(environ, directory=tmp_path, secrets=tmp_path)).access.callers
        assert (caller.name, caller.digest) == (name, hashlib.sha256(key.encode()).digest())


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-x-", "x" * 65, "a: b", "ключ"])
def test_a_name_that_the_file_would_not_take_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "--", name]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "A caller's name: expected a name of letters, digits, '.', '_' and '-', at most 64.\n")


def test_the_screen_says_in_two_short_lines_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    main(["key", "web"])
    *_, first, second = capsys.readouterr().out.rstrip().splitlines()
    assert "access.keys_file" in first
    assert "GATEWAY_ACCESS__KEYS" in first
    assert "`Authorization: Bearer KEY` or `x-api-key: KEY`" in second
    assert max(len(first), len(second)) <= 120


def test_nothing_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    made(capsys)
    assert os.listdir(tmp_path) == []
