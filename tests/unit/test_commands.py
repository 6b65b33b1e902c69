"""The command line: what a person reads, on which stream, with which exit status, and never a key."""

import errno
import io
import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway import __version__, events
from gateway.__main__ import main
from gateway.commands import Paint, cannot_listen, seconds, table
from gateway.commands.check import report
from gateway.commands.schema import config_schema, event_schema
from gateway.commands.serve import screen
from gateway.settings import load
from gateway.wiring import Wiring, wire

ROOT = Path(__file__).parents[2]
CANARY = "sk-canary-5f0c1d"
PLAIN = Paint(io.StringIO(), {})
TRY = """curl -N -d '{"messages":[{"role":"user","content":"hi"}]}' http://127.0.0.1:8000/chat"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to stand in, and an environment without anything of ours."""
    monkeypatch.chdir(tmp_path)
    for name in tuple(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "GATEWAY_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def wired(tmp_path: Path, text: str = "", **environ: str) -> Wiring:
    (tmp_path / "gateway.yaml").write_text(text)
    return wire(load(environ, config=str(tmp_path / "gateway.yaml"), directory=tmp_path, secrets=tmp_path / "secrets"))


# serve


def test_the_screen_of_zero_configuration(tmp_path: Path) -> None:
    assert (
        screen(wired(tmp_path), 8000, PLAIN)
        == f"""
  Chat Stream Gateway {__version__}   http://127.0.0.1:8000

  Models  default           simulator/simulator

  Keys    simulator         none needed
          simulator-openai  none needed

  Only the simulator answers. ANTHROPIC_API_KEY or OPENAI_API_KEY, set here or in .env, brings a real model.

  Try     {TRY}
  Stop    Ctrl-C
"""
    )


def test_the_screen_shows_targets_in_order_and_whence_keys_came_but_no_key(tmp_path: Path) -> None:
    file = f"""
    providers:
      claude: {{type: anthropic, api_key: "${{CLAUDE_KEY}}"}}
      local: {{type: openai, api_key: {CANARY}, headers: {{x: {CANARY}}}}}
    models: {{smart: {{targets: [claude/opus, local/qwen3]}}}}
    """
    text = screen(wired(tmp_path, file, CLAUDE_KEY=CANARY), 9000, PLAIN)
    assert "  Models  smart   claude/opus, then local/qwen3\n" in text
    assert "  Keys    claude  CLAUDE_KEY from the environment\n          local   file providers.local.api_key\n" in text
    assert "simulator" not in text
    assert """curl -N -d '{"model":"smart","messages":[{"role":"user","content":"hi"}]}' http://127.0.0.1:9000/chat""" in text
    assert CANARY not in text


def test_a_model_that_is_asked_for_at_first_use_says_so(tmp_path: Path) -> None:
    text = screen(wired(tmp_path, OPENAI_API_KEY=CANARY), 8000, PLAIN)
    assert "default  openai/(the first it lists)" in text
    assert CANARY not in text


def test_the_screen_stays_one_screen(tmp_path: Path) -> None:
    rows = ", ".join(f"m{number}: {{targets: [simulator/x]}}" for number in range(100))
    text = screen(wired(tmp_path, f"models: {{{rows}}}"), 8000, PLAIN)
    assert "and 89 more: python -m gateway check shows all" in text  # with `default`
    assert text.count("\n") < 30


def test_an_ipv6_address_stands_in_brackets(tmp_path: Path) -> None:
    assert "http://[::1]:8000/chat" in screen(wired(tmp_path, "server: {host: '::1'}"), 8000, PLAIN)


def test_colour_only_where_it_can_be_seen_and_is_wanted(tmp_path: Path) -> None:
    wiring = wired(tmp_path)
    assert "\x1b[1m" in screen(wiring, 8000, Paint(Terminal(), {"TERM": "xterm"}))
    for paint in (Paint(Terminal(), {"NO_COLOR": "1"}), Paint(Terminal(), {"TERM": "dumb"}), PLAIN):
        assert "\x1b" not in screen(wiring, 8000, paint)


def test_a_taken_port_is_one_sentence_with_the_remedy(home: Path, taken: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", str(taken)]) == 2
    shown = capsys.readouterr()
    remedy = f"stop the other program or choose another with PORT={taken + 1} make run."
    assert (shown.out, shown.err) == ("", f"Port {taken} on 127.0.0.1 is taken: {remedy}\n")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "Port 80 on ::1 is reserved for root: choose one above 1023 with PORT=8000 make run."),
        (errno.EADDRNOTAVAIL, "Port 80 on ::1 cannot be opened: this machine has no such address. The usual one is HOST=127.0.0.1."),
        (errno.EMFILE, "Port 80 on ::1 cannot be opened: Too many open files."),
    ],
)
def test_a_port_that_cannot_be_opened_is_one_sentence(number: int, sentence: str) -> None:
    assert cannot_listen("::1", 80, OSError(number, "Too many open files"), "PORT={} make run", "HOST=127.0.0.1") == sentence


def test_a_host_beyond_this_machine_is_one_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("server.host (--host): expected 127.0.0.1, localhost or ::1: ")


# check


def test_check_shows_what_the_configuration_comes_to_and_no_key(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".env").write_text(f"ANTHROPIC_API_KEY={CANARY}\n")
    (home / "gateway.yaml").write_text(
        f"""
        providers:
          claude: {{type: anthropic, api_key: "${{ANTHROPIC_API_KEY}}", base_url: https://a.example/v1/messages}}
          local:
            type: openai
            base_url: http://127.0.0.1:8080
            api_key: {CANARY}
            headers: {{x-team: {CANARY}}}
            query: {{v: {CANARY}}}
            proxy: http://u:{CANARY}@p
            quirks: {{cumulative: true, think_tags: split, refuses: [top_p, seed]}}
          sim: {{type: openai, base_url: "simulator:"}}
        models:
          default: {{targets: [claude/x, local/y], timeouts: {{first_token: 500ms}}, retry: {{attempts: 3, max_retry_after: 1s}}}}
        access: {{origins: [https://app.example]}}
        """
    )
    assert main(["check", "--config", "gateway.yaml"]) == 0
    assert (
        capsys.readouterr().out
        == """\
The configuration is valid (gateway.yaml).

Providers
  claude  anthropic  https://a.example         key: ANTHROPIC_API_KEY from .env
  local   openai     http://127.0.0.1:8080/v1  key: file providers.local.api_key; headers: x-team; query: v; through a proxy; \
quirks: cumulative=true, think_tags=split, refuses=top_p,seed
  sim     openai     simulator:                key: none needed

Models
  default  claude/x, then local/y (first_token 500ms, 3 attempts, max_retry_after 1s)

Everything else
  timeouts   connect 5s, first_token none, idle 300s, total none, finish 2s, write 15s
  retry      2 attempts, max_retry_after 10s
  streaming  heartbeat 15s, commit_after 5s
  access     this machine only, 1000 streams, origins: https://app.example
  server     http://127.0.0.1:8000, shutdown_grace 8s, drain_delay 0s, keep_alive 75s, tcp_user_timeout 20s
"""
    )


def test_check_shows_an_aliass_rules_but_not_its_text(tmp_path: Path) -> None:
    rows = "system: Be kind., max_tokens: {default: 5, cap: 9}, allow: [tools, thinking], extra_allowed: [seed, min_p]"
    shown = report(wired(tmp_path, f"models: {{a: {{targets: [simulator/x], {rows}}}}}"), None, PLAIN)
    rules = "system 8 characters, max_tokens 5, max_tokens at most 9, allows tools and thinking, extra_allowed min_p and seed"
    assert f"  a        simulator/x ({rules})\n" in shown
    closed = report(wired(tmp_path, "models: {a: {targets: [simulator/x], allow: [], extra_allowed: []}}"), None, PLAIN)
    assert "(allows plain chats only, extra_allowed none)" in closed


def test_check_shows_another_header_for_the_key_and_where_a_description_is_weak(tmp_path: Path) -> None:
    house = "type: mapped, url: 'http://h/x', text: /text"
    rows = [
        "a: {type: openai, preset: azure, base_url: 'https://r.example', api_key: k}",
        f"b: {{{house}, request: {{p: $prompt}}}}",
        f"c: {{{house}, request: {{p: $transcript}}, finish: /done}}",
    ]
    shown = report(wired(tmp_path, f"providers: {{{', '.join(rows)}}}\nmodels: {{default: {{targets: [b/x]}}}}"), None, PLAIN)
    assert "https://r.example/openai/v1  key: file providers.a.api_key; auth: api-key; quirks: " in shown
    assert "key: no key; sends the latest user's text only; no finish: an answer that breaks off looks whole\n" in shown
    assert "  c  mapped  http://h/x                   key: no key\n" in shown


def test_check_without_a_file_says_so(tmp_path: Path) -> None:
    assert report(wired(tmp_path), None, PLAIN).startswith("The configuration is valid (no file).\n")


def test_mistakes_go_to_stderr_one_a_line_with_status_2(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "gateway.yaml").write_text("server: {prot: 1}\nretry: {attempts: 0}\n")
    for command in ("check", "serve"):
        assert main([command, "--config", "gateway.yaml"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.splitlines() == [
            "retry.attempts (gateway.yaml line 2): expected a whole number of at least 1",
            "server.prot (gateway.yaml line 1): unknown key; did you mean port?",
        ]


# schema


def test_the_configurations_schema_knows_every_section(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "config"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == config_schema()
    assert set(schema["properties"]) == {"providers", "models", "streaming", "timeouts", "retry", "access", "server"}
    assert schema["additionalProperties"] is False
    assert "think_tags" in schema["$defs"]["QuirkSettings"]["properties"]


def test_the_events_schema_knows_every_event_and_delta(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "events"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == event_schema()
    parts = schema["$defs"]
    wanted = [kind.__name__ for kind in (*events.KINDS.values(), events.UnknownEvent)]
    assert [choice["$ref"] for choice in schema["anyOf"]] == [f"#/$defs/{name}" for name in wanted]
    for name in events.KINDS:
        assert any(part.get("properties", {}).get("type", {}).get("enum") == [name] for part in parts.values()), name
    deltas = parts["ContentBlockDelta"]["properties"]["delta"]["anyOf"]
    assert len(deltas) == len(events.DELTAS) + 1
    references = {found for part in [schema, *parts.values()] for found in _references(part)}
    assert references <= {f"#/$defs/{name}" for name in parts}


def _references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield str(value)
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_the_events_schema_describes_what_encode_writes() -> None:
    """The keys of one event of each kind are those of its schema."""
    error = events.ErrorBody("api_error", "It broke.", "internal", False)
    samples: list[events.Event] = [
        events.MessageStart({"id": "msg_1"}),
        events.ContentBlockStart(0, {"type": "text", "text": ""}),
        events.ContentBlockDelta(0, events.TextDelta("x")),
        events.ContentBlockStop(0, input={}),
        events.MessageDelta({"stop_reason": "end_turn"}, {"output_tokens": 1}),
        events.MessageStop(events.Stats()),
        events.Ping(),
        events.Error(error, "r"),
        events.Abort("stopped"),
        events.Reset("idle_timeout", 2),
    ]
    parts = event_schema()["$defs"]
    assert {type(sample) for sample in samples} == set(events.KINDS.values())
    for sample in samples:
        written = msgspec.json.decode(events.encode(sample))
        described = parts[type(sample).__name__]
        assert set(described["required"]) <= set(written) <= set(described["properties"])


# The rest.


def test_help_names_the_commands_and_where_settings_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for word in ("serve", "check", "schema", "GATEWAY_SERVER__PORT", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "examples:"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 90


@pytest.mark.parametrize("arguments", [["sreve"], ["schema"], ["schema", "all"], ["serve", "--prot", "1"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: gateway" in capsys.readouterr().err


def test_the_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"Chat Stream Gateway {__version__}\n"


def test_what_serves_nothing_loads_no_web_framework() -> None:
    code = """
import sys
from gateway.__main__ import main
main(["schema", "events"])
main(["check"])
main(["key", "web"])
print([name for name in ("fastapi", "starlette", "uvicorn", "httpx") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.endswith("\n[]\n")


def test_a_terminal_without_unicode_still_gets_its_screen(home: Path) -> None:
    environ = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT), "GATEWAY_MODELS": '{"modèle": {"targets": ["simulator/x"]}}'}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "check"], cwd=home, env=environ, capture_output=True, text=True, check=True, timeout=30
    )
    assert "mod?le" in done.stdout


@pytest.mark.parametrize("arguments", [["check"], ["schema", "config"], ["key", "web"]])
def test_a_reader_who_has_enough_is_no_error(arguments: list[str], home: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does
    command, environ = [sys.executable, "-m", "gateway", *arguments], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=home, env=environ, stdout=writing, stderr=subprocess.PIPE, timeout=30)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert table([("a", "bb", "c"), ("aaa", "b", "")]) == ["  a    bb  c", "  aaa  b"]
    assert table([]) == []


@pytest.mark.parametrize(("value", "text"), [(None, "none"), (0, "0s"), (0.5, "500ms"), (15.0, "15s"), (1.5, "1.5s")])
def test_seconds_are_written_as_they_may_be_configured(value: float | None, text: str) -> None:
    assert seconds(value) == text


# Callers.

CALLERS = f"{{web: {{sha256: '{'0f' * 32}'}}, phone: {{sha256: '{'f0' * 32}', models: [fast, default], max_streams: 2, live: true}}}}"
MODELS = "models: {default: {targets: [simulator/x]}, fast: {targets: [simulator/simulator-fast]}}"


def test_the_screen_names_the_callers_and_its_line_to_try_carries_a_key(tmp_path: Path) -> None:
    text = screen(wired(tmp_path, f"{MODELS}\naccess: {{keys: {CALLERS}}}\nserver: {{host: 0.0.0.0}}"), 8000, PLAIN)
    assert "  Access  with a key: web, phone, on 0.0.0.0\n" in text
    assert f"""curl -N -H 'Authorization: Bearer KEY' {TRY.removeprefix("curl -N ")}""" in text
    assert "0f0f" not in text


def test_the_screen_says_that_everybody_may_call(tmp_path: Path) -> None:
    text = screen(wired(tmp_path, "access: {open: true}\nserver: {host: '::'}"), 8000, PLAIN)
    assert "  Access  everybody, on :: (access.open)\n" in text
    assert "http://[::1]:8000" in text
    assert "Access" not in screen(wired(tmp_path, "access: {open: true}"), 8000, PLAIN)


@pytest.mark.parametrize(
    ("access", "row"),
    [
        ("{}", "this machine only, 1000 streams, origins: its own"),
        ("{open: true}", "everybody who reaches the address (open), 1000 streams, origins: its own"),
        (f"{{keys: {CALLERS}}}", "callers with a key, the models above only, 1000 streams, origins: its own"),
        (f"{{keys: {CALLERS}, open: true, direct_models: true}}", "callers with a key, provider/model too, 1000 streams, origins: its own"),
    ],
)
def test_check_says_who_may_call(tmp_path: Path, access: str, row: str) -> None:
    text = report(wired(tmp_path, f"{MODELS}\naccess: {access}"), None, PLAIN)
    assert f"  access     {row}\n" in text
    assert ("\nCallers\n  web    all models     20 streams\n  phone  default, fast  2 streams, /live\n" in text) is ("keys" in access)
    assert "0f0f" not in text


@pytest.mark.parametrize("command", ["serve", "check", "key", "simulate", "schema"])
def test_every_command_has_one_line_in_the_list_and_a_help_of_its_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"    {command} ")]
    assert len(line.split()) > 2
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"usage: gateway {command}" in capsys.readouterr().out
