"""Where settings come from, which of them wins, and the exact sentence for every mistake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from gateway.formats import Quirks
from gateway.settings import Configuration, ConfigurationError, Settings, load
from gateway.settings.schema import Closed, QuirkSettings

CANARY = "sk-canary-5f0c1d"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Configuration]:
    """Loads a file's text with an environment, in a directory of its own."""

    def read(text: str | None = None, *, environ: dict[str, str] | None = None, **given: Any) -> Configuration:
        config = None
        if text is not None:
            (tmp_path / "gateway.yaml").write_text(text, "utf-8")
            config = str(tmp_path / "gateway.yaml")
        return load(environ or {}, config=config, directory=tmp_path, secrets=tmp_path / "secrets", **given)

    return read


@pytest.fixture
def mistakes(read: Callable[..., Configuration]) -> Callable[..., list[str]]:
    def mistakes(text: str | None = None, **given: Any) -> list[str]:
        with pytest.raises(ConfigurationError) as refused:
            read(text, **given)
        assert CANARY not in str(refused.value)
        return refused.value.lines

    return mistakes


Read = Callable[..., Configuration]
Mistakes = Callable[..., list[str]]


def test_nothing_at_all_is_a_valid_configuration(read: Read) -> None:
    settings = read().settings
    assert settings.model_dump() == {
        "providers": {},
        "models": {},
        "streaming": {"heartbeat": 15, "commit_after": 5},
        "timeouts": {"connect": 5, "first_token": None, "idle": 300, "total": None, "finish": 2, "write": 15},
        "retry": {"attempts": 2, "max_retry_after": 10},
        "access": {
            "keys_file": None,
            "keys": {},
            "open": False,
            "direct_models": False,
            "origins": [],
            "max_streams": 1000,
            "max_streams_per_caller": 20,
        },
        "server": {"host": "127.0.0.1", "port": 8000, "shutdown_grace": 8, "drain_delay": 0, "keep_alive": 75, "tcp_user_timeout": None},
    }


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "{}", "\ufeff{}"])
def test_an_empty_file_is_a_valid_configuration(read: Read, text: str) -> None:
    assert read(text).settings == Settings()


def test_every_setting_has_a_sentence() -> None:
    def described(model: type[BaseModel]) -> None:
        assert model.__doc__
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                described(inner)
            elif model is not QuirkSettings:
                assert field.description, name

    described(Settings)


def test_the_quirks_are_exactly_the_row_of_a_preset() -> None:
    assert issubclass(QuirkSettings, Closed)
    assert QuirkSettings().model_dump() == {name: getattr(Quirks(), name) for name in Quirks.__slots__}


# Order.


def test_the_command_line_wins_over_names_they_over_dotenv_that_over_secrets_and_all_over_the_file(read: Read, tmp_path: Path) -> None:
    file = "server: {port: 1, drain_delay: 1s, keep_alive: 1s, shutdown_grace: 1s, tcp_user_timeout: 31s}"
    (tmp_path / "secrets").mkdir()
    for name in ("port", "drain_delay", "keep_alive", "shutdown_grace"):
        (tmp_path / "secrets" / f"gateway_server__{name}").write_text("2\n")
    names = ("PORT", "DRAIN_DELAY", "KEEP_ALIVE")
    (tmp_path / ".env").write_text("".join(f"GATEWAY_SERVER__{name}=3\n" for name in names))
    environ = {"GATEWAY_SERVER__PORT": "4", "GATEWAY_SERVER__DRAIN_DELAY": "4"}
    server = read(file, environ=environ, command_line={("server", "port"): "5"}).settings.server
    assert (server.port, server.drain_delay, server.keep_alive, server.shutdown_grace, server.tcp_user_timeout) == (5, 4, 3, 2, 31)


def test_one_key_from_a_name_leaves_the_files_other_keys(read: Read) -> None:
    file = "providers: {claude: {type: anthropic, version: '1'}}"
    environ = {"GATEWAY_PROVIDERS__CLAUDE__API_KEY": CANARY, "GATEWAY_PROVIDERS__CLAUDE__QUIRKS__URL_SOURCES": "true"}
    configuration = read(file, environ=environ)
    claude = configuration.settings.providers["claude"]
    assert claude.api_key is not None
    assert (claude.version, claude.api_key.get_secret_value()) == ("1", CANARY)
    assert claude.quirks.model_dump(exclude_unset=True) == {"url_sources": True}
    assert configuration.source(("providers", "claude", "api_key")) == "GATEWAY_PROVIDERS__CLAUDE__API_KEY from the environment"


def test_gateway_config_names_the_file_and_the_command_line_another(read: Read, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("server: {port: 7}")
    environ = {"GATEWAY_CONFIG": str(tmp_path / "other.yaml")}
    assert read(environ=environ).settings.server.port == 7
    assert read("server: {port: 8}", environ=environ).settings.server.port == 8


def test_dotenv_may_name_the_file_and_holds_names_of_others_too(read: Read, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("server: {port: 7}")
    lines = ["# ours", f"export GATEWAY_CONFIG='{tmp_path}/other.yaml'", "OTHER=1", f'ANTHROPIC_API_KEY="{CANARY}" # x', "", ""]
    (tmp_path / ".env").write_text("\n".join(lines))
    configuration = read()
    assert configuration.settings.server.port == 7
    assert configuration.environment.values["ANTHROPIC_API_KEY"] == CANARY
    assert configuration.environment.source("ANTHROPIC_API_KEY") == "ANTHROPIC_API_KEY from .env"


def test_an_existing_variable_wins_over_dotenv(read: Read, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=other\n")
    assert read(environ={"ANTHROPIC_API_KEY": CANARY}).environment.values["ANTHROPIC_API_KEY"] == CANARY


def test_a_secrets_directory_gives_names_in_capitals_and_nothing_else(read: Read, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "anthropic_api_key").write_text(f"{CANARY}\n")
    (secrets / "kubernetes.io").mkdir()
    (secrets / "tls.crt").write_bytes(b"\xff\xfe")
    (secrets / "keystore").write_bytes(b"\xff\xfe")
    environment = read().environment
    assert dict(environment.values) == {"ANTHROPIC_API_KEY": CANARY}
    assert environment.source("ANTHROPIC_API_KEY") == f"ANTHROPIC_API_KEY from {secrets}"


def test_lists_from_names_are_json_or_separated_by_commas(read: Read) -> None:
    for text in ('["https://a.example", "http://b.example:81"]', "https://a.example, http://b.example:81"):
        assert read(environ={"GATEWAY_ACCESS__ORIGINS": text}).settings.access.origins == ["https://a.example", "http://b.example:81"]
    environ = {
        "GATEWAY_PROVIDERS__LOCAL": '{"type": "openai", "base_url": "http://127.0.0.1:1/v1"}',
        "GATEWAY_MODELS__FAST__TARGETS": "local/a,local/b",
        "GATEWAY_PROVIDERS__LOCAL__BODY": '{"seed": 1}',
    }
    settings = read(environ=environ).settings
    assert [row.target for row in settings.models["fast"].targets] == ["local/a", "local/b"]
    assert (settings.providers["local"].type, settings.providers["local"].body) == ("openai", {"seed": 1})


def test_names_that_kubernetes_sets_for_a_service_called_gateway_are_no_settings(read: Read, mistakes: Mistakes) -> None:
    names = {
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_PORT_80_TCP": "tcp://10.0.0.1:80",
        "GATEWAY_PORT_80_TCP_ADDR": "10.0.0.1",
        "GATEWAY_SERVICE_PORT_HTTP": "80",
    }
    assert read(environ={"GATEWAY_SERVICE_HOST": "10.0.0.1", **names}).settings == Settings()
    assert len(mistakes(environ=names)) == 4


# Paths.


def test_a_relative_path_counts_from_the_file_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "gateway.yaml").write_text(
        """
        providers:
          a: {type: openai, api_key_file: keys/a, ca_file: /etc/ca.pem}
          b: {type: openai, ca_file: "${CA:-ca.pem}", body: {keys_file: x}}
        access: {keys_file: callers.yaml}
        """
    )
    (folder / "callers.yaml").write_text(f"web: {{sha256: '{HASH}'}}")
    (tmp_path / "others.yaml").write_text(f"phone: {{sha256: '{HASH}'}}")
    monkeypatch.chdir(tmp_path)
    settings = load({}, config="etc/gateway.yaml", secrets=tmp_path / "none").settings
    a, b = settings.providers["a"], settings.providers["b"]
    assert (a.api_key_file, a.ca_file, b.ca_file) == (Path("etc/keys/a"), Path("/etc/ca.pem"), Path("etc/ca.pem"))
    assert b.body == {"keys_file": "x"}
    assert list(settings.access.keys) == ["web"]
    # A name in the environment counts from where the gateway is started.
    environ = {"GATEWAY_ACCESS__KEYS_FILE": "others.yaml"}
    assert list(load(environ, config="etc/gateway.yaml", secrets=tmp_path / "none").settings.access.keys) == ["phone"]


# ${NAME}.


def test_references_are_replaced_after_parsing_in_string_values_only(read: Read) -> None:
    file = """
    providers:
      a: { type: openai, api_key: "${KEY}", base_url: "http://${HOST_NAME:-127.0.0.1}:${PORT_NUMBER}/v1" }
      b: { type: openai, api_key: "${EMPTY:-none}", body: {"${KEY}": ["${KEY}x", 1, true, null]} }
    server: { port: "${PORT_NUMBER}" }
    """
    environ = {"KEY": 'a"b: {c', "PORT_NUMBER": "8080", "EMPTY": ""}
    with pytest.raises(ConfigurationError):  # the key has a space
        read(file, environ=environ)
    configuration = read(file, environ=environ | {"KEY": 'a"b:{c}$'})
    providers = configuration.settings.providers
    keys = [provider.api_key.get_secret_value() for provider in providers.values() if provider.api_key]
    assert keys == ['a"b:{c}$', "none"]
    assert providers["a"].base_url == "http://127.0.0.1:8080/v1"
    assert providers["b"].body == {"${KEY}": ['a"b:{c}$x', 1, True, None]}
    assert configuration.settings.server.port == 8080
    assert configuration.source(("providers", "a", "api_key")) == "KEY from the environment"
    assert configuration.source(("providers", "b", "api_key")) == "file providers.b.api_key"


def test_a_replaced_value_is_not_replaced_again(read: Read) -> None:
    file = 'providers: {a: {type: openai, body: {x: "${ONE}"}}}'
    assert read(file, environ={"ONE": "${TWO}", "TWO": "2"}).settings.providers["a"].body == {"x": "${TWO}"}


@pytest.mark.parametrize("environ", [{}, {"CLAUDE_KEY": ""}])
def test_an_unset_name_stops_the_start_with_the_keys_path(mistakes: Mistakes, environ: dict[str, str]) -> None:
    file = 'providers:\n  claude:\n    type: anthropic\n    api_key: "${CLAUDE_KEY}"\n'
    assert mistakes(file, environ=environ) == [
        "providers.claude.api_key (gateway.yaml line 4): ${CLAUDE_KEY} is not set: set CLAUDE_KEY, or write ${CLAUDE_KEY:-default}"
    ]


def test_a_broken_reference_is_told(mistakes: Mistakes) -> None:
    sentence = "models.default.targets[0] (gateway.yaml line 1): expected ${NAME} or ${NAME:-default}"
    assert mistakes('models: {default: {targets: ["${1}/x"]}}') == [sentence]


# Values.


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("15s", 15),
        ("2m", 120),
        ("1h", 3600),
        ("1.5s", 1.5),
        ("7", 7),
        ("15 s", 15),
        (3, 3),
        (0.25, 0.25),
        ("none", None),
        (None, None),
    ],
)
def test_durations(read: Read, written: object, seconds: float | None) -> None:
    text = yaml.safe_dump({"timeouts": {"first_token": written}})
    assert read(text).settings.timeouts.first_token == seconds


@pytest.mark.parametrize("written", ["soon", "5 minutes", "-1s", "", "0", "8d", "1e3", ".inf", ".nan", "true", "[1]", "{a: 1}", "200h"])
def test_what_is_no_duration_is_told_what_one_is(mistakes: Mistakes, written: str) -> None:
    assert mistakes(f"timeouts: {{total: {written or repr('')}}}") == [
        "timeouts.total (gateway.yaml line 1): expected a duration such as 500ms, 15s or 2m, "
        "or a number of seconds, from 0.001s to 7 days, or none"
    ]


@pytest.mark.parametrize("key", ["timeouts.connect", "timeouts.write", "timeouts.finish", "streaming.heartbeat", "server.shutdown_grace"])
def test_none_is_refused_where_something_must_end(mistakes: Mistakes, key: str) -> None:
    section, name = key.split(".")
    assert "expected a duration such as" in mistakes(f"{section}: {{{name}: none}}")[0]


def test_origins_are_written_as_browsers_write_them(read: Read) -> None:
    origins = "[HTTPS://App.Example.com:443, 'http://b.example:80', 'http://b.example:8080', 'http://[::1]:3000']"
    assert read(f"access: {{origins: {origins}}}").settings.access.origins == [
        "https://app.example.com",
        "http://b.example",
        "http://b.example:8080",
        "http://[::1]:3000",
    ]


@pytest.mark.parametrize(
    "origin", ["'*'", "'null'", "app.example.com", "https://a.example/", "https://a.example/x", "https://u@a.example", "ftp://a"]
)
def test_what_is_no_origin_is_told_what_one_is(mistakes: Mistakes, origin: str) -> None:
    assert mistakes(f"access: {{origins: [{origin}]}}") == [
        "access.origins[0] (gateway.yaml line 1): expected an origin such as https://app.example.com: "
        "scheme, host and port, no path and no *"
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.9", "0.0.0.0", "::", "192.168.1.5"])
def test_a_hosts_address_is_taken(read: Read, host: str) -> None:
    assert read(command_line={("server", "host"): host}).settings.server.host == host.strip("[]")


@pytest.mark.parametrize("host", ["example.com", "0.0.0", "0.0.0.0:80", ""])
def test_every_other_host_is_one_clear_sentence(mistakes: Mistakes, host: str) -> None:
    assert mistakes(command_line={("server", "host"): host}) == [
        "server.host (--host): expected localhost or an IP address such as 127.0.0.1, ::1 or 0.0.0.0"
    ]


@pytest.mark.parametrize(
    "url",
    [
        "example.com",
        "ftp://example.com",
        "http://",
        "http://u:p@example.com",
        "http://a.example#x",
        "http://a b",
        "http://a:x",
    ],
)
def test_what_is_no_base_url_is_told_what_one_is(mistakes: Mistakes, url: str) -> None:
    assert mistakes(f"providers: {{a: {{type: openai, base_url: '{url}'}}}}") == [
        "providers.a.base_url (gateway.yaml line 1): expected an http:// or https:// URL with a host "
        "and without user name, query or fragment"
    ]


def test_a_query_in_an_address_is_told_where_it_goes(mistakes: Mistakes) -> None:
    """Azure's portal shows its addresses so."""
    sentence = "expected a URL without a query: what follows the ? goes under query, as {name: value}"
    for row in ("type: openai, base_url: 'https://a.example/v1?k=v'", "type: mapped, url: 'https://a.example/x?k=v'"):
        key = "url" if "mapped" in row else "base_url"
        assert mistakes(f"providers: {{a: {{{row}}}}}") == [f"providers.a.{key} (gateway.yaml line 1): {sentence}"]


def test_dates_and_numbers_as_names_stay_text(read: Read) -> None:
    settings = read("providers: {4: {type: anthropic, version: 2023-06-01}, on: {type: openai}}").settings
    assert list(settings.providers) == ["4", "on"]
    assert settings.providers["4"].version == "2023-06-01"


def test_anchors_and_merge_keys_work(read: Read) -> None:
    file = "models:\n  a: &base\n    targets: [p/x]\n    retry: {attempts: 3}\n  b:\n    <<: *base\n    targets: [p/y]\n"
    models = read(file).settings.models
    assert [(model.targets[0].target, model.retry.attempts) for model in models.values()] == [("p/x", 3), ("p/y", 3)]


# Mistakes, word for word.


@pytest.mark.parametrize(
    ("file", "place", "line", "sentence"),
    [
        ("sevrer: {port: 1}", "sevrer", 1, "unknown key; did you mean server?"),
        ("server:\n  prot: 1", "server.prot", 2, "unknown key; did you mean port?"),
        ("retry: {xyz: 1}", "retry.xyz", 1, "unknown key; known are attempts, max_retry_after"),
        (
            "models: {d: {targets: [a/b], timeouts: {write: 3s}}}",
            "models.d.timeouts.write",
            1,
            "unknown key; known are connect, first_token, idle, total, finish",
        ),
        ("models: {d: {targets: [{target: a/b, weight: 3}]}}", "models.d.targets[0].weight", 1, "unknown key; known are target"),
        ("circuit: {failures: 5}", "circuit", 1, "unknown key; known are providers, models, streaming, timeouts, retry, access, server"),
        ("access: {opne: true}", "access.opne", 1, "unknown key; did you mean open?"),
        (
            "providers: {a: {type: openai, quirks: {think_tag: split}}}",
            "providers.a.quirks.think_tag",
            1,
            "unknown key; did you mean think_tags?",
        ),
        (
            "providers: {a: {type: openai, quirks: {think_tags: splitt}}}",
            "providers.a.quirks.think_tags",
            1,
            "expected none or split or implicit; did you mean split?",
        ),
        ("providers: {a: {type: antropic}}", "providers.a.type", 1, "expected anthropic or openai or mapped; did you mean anthropic?"),
        ("providers: {a: {api_key: x}}", "providers.a.type", 1, "is missing: the format it speaks"),
        ("providers: {a: }", "providers.a", 1, "expected a mapping of keys to values"),
        ("providers: [a]", "providers", 1, "expected a mapping of keys to values"),
        (
            "providers: {a/b: {type: openai}}",
            "providers.a/b",
            1,
            "expected a name of letters, digits, '.', '_' and '-', at most 64, without '/'",
        ),
        ("providers: {a: {type: openai, api_key: 12345}}", "providers.a.api_key", 1, "expected text; a number wants quotes"),
        ("providers: {a: {type: openai, headers: {x: 1}}}", "providers.a.headers.x", 1, "expected text; a number wants quotes"),
        ("providers: {a: {type: openai, headers: {'x y': z}}}", "providers.a.headers.x y", 1, "expected a header's name"),
        (
            'providers: {a: {type: openai, headers: {x: "a\\nb"}}}',
            "providers.a.headers.x",
            1,
            "expected printable ASCII characters on one line",
        ),
        ("providers: {a: {type: openai, proxy: 'socks5://x'}}", "providers.a.proxy", 1, "expected the http:// or https:// URL of a proxy"),
        ("providers: {a: {type: openai, auth: basic}}", "providers.a.auth", 1, "expected bearer or x-api-key or api-key"),
        (
            "providers: {a: {type: mapped, text: text}}",
            "providers.a.text",
            1,
            "expected a JSON pointer such as /choices/0/text; in a name, ~1 stands for / and ~0 for ~",
        ),
        ("providers: {a: {type: mapped, finsh: /x}}", "providers.a.finsh", 1, "unknown key; did you mean finish?"),
        (
            "providers: {a: {type: mapped, usage: {input_token: /x}}}",
            "providers.a.usage.input_token",
            1,
            "unknown key; did you mean input_tokens?",
        ),
        (
            "providers: {a: {type: mapped, stop_reasons: {cut: max_token}}}",
            "providers.a.stop_reasons.cut",
            1,
            "expected end_turn or max_tokens or stop_sequence or refusal or model_context_window_exceeded or error; "
            "did you mean max_tokens?",
        ),
        (
            "providers: {a: {type: mapped, url: 'http://u@a/'}}",
            "providers.a.url",
            1,
            "expected an http:// or https:// URL with a host and without user name, query or fragment",
        ),
        ("models: {d: {targets: []}}", "models.d.targets", 1, "expected at least one"),
        ("models: {d: {targets: a/b}}", "models.d.targets", 1, "expected a list"),
        ("models: {d: {}}", "models.d.targets", 1, "is missing: provider/model, in the order in which they are tried"),
        ("models: {d: {targets: [a/b], sytem: x}}", "models.d.sytem", 1, "unknown key; did you mean system?"),
        ("models: {d: {targets: [a/b], system: ''}}", "models.d.system", 1, "expected at least one character"),
        ("models: {d: {targets: [a/b], max_tokens: 5}}", "models.d.max_tokens", 1, "expected a mapping of keys to values"),
        ("models: {d: {targets: [a/b], max_tokens: {cap: 0}}}", "models.d.max_tokens.cap", 1, "expected a whole number of at least 1"),
        ("models: {d: {targets: [a/b], max_tokens: {max: 1}}}", "models.d.max_tokens.max", 1, "unknown key; known are default, cap"),
        (
            "models: {d: {targets: [a/b], allow: [tool]}}",
            "models.d.allow[0]",
            1,
            "expected tools or server_tools or thinking or url_sources; did you mean tools?",
        ),
        (
            "models: {d: {targets: [a/b], extra_allowed: [seed, stream]}}",
            "models.d.extra_allowed[1]",
            1,
            "the gateway writes this key itself: no caller can send another one past it",
        ),
        ("models:\n  d:\n    targets:\n      - a/b\n      - claude", "models.d.targets[1]", 5, "expected provider/model"),
        ("models: {'a b': {targets: [a/b]}}", "models.a b", 1, "expected a name without spaces, at most 128 characters"),
        ("server: {port: http}", "server.port", 1, "expected a whole number"),
        ("server: {port: 1.5}", "server.port", 1, "expected a whole number"),
        ("server: {port: 70000}", "server.port", 1, "expected a whole number of at most 65535"),
        ("retry: {attempts: 0}", "retry.attempts", 1, "expected a whole number of at least 1"),
        ("access: {max_streams: many}", "access.max_streams", 1, "expected a whole number"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_with_its_place(mistakes: Mistakes, file: str, place: str, line: int, sentence: str) -> None:
    assert mistakes(file) == [f"{place} (gateway.yaml line {line}): {sentence}"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("GATEWAY_SERVER__PROT", "; did you mean GATEWAY_SERVER__PORT?"),
        ("GATEWAY_PORT", "; did you mean GATEWAY_SERVER__PORT?"),
        ("GATEWAY_CONFIGS", "; did you mean GATEWAY_CONFIG?"),
        ("GATEWAY_PROVIDERS__X__APIKEY", "; did you mean GATEWAY_PROVIDERS__X__API_KEY?"),
        ("GATEWAY_SERVER__PORT__X", "; did you mean GATEWAY_SERVER__PORT?"),
        ("GATEWAY_ACCESS__KEY", "; did you mean GATEWAY_ACCESS__KEYS?"),
        ("GATEWAY_ACCESS__KEYS__WEB__SHA", "; did you mean GATEWAY_ACCESS__KEYS__WEB__SHA256?"),
        ("GATEWAY_", ""),
        ("GATEWAY_PROVIDERS__", ""),
    ],
)
def test_an_unknown_name_is_an_error(mistakes: Mistakes, name: str, hint: str) -> None:
    assert mistakes(environ={name: CANARY})[0].startswith(f"{name} from the environment: unknown name{hint}")


def test_a_wrong_value_says_which_source_it_came_from(mistakes: Mistakes, tmp_path: Path) -> None:
    file = "server: {port: 1}"
    assert mistakes(file, environ={"GATEWAY_SERVER__PORT": "x"}) == ["server.port (GATEWAY_SERVER__PORT): expected a whole number"]
    assert mistakes(file, command_line={("server", "port"): "x"}) == ["server.port (--port): expected a whole number"]
    assert mistakes(file, environ={"GATEWAY_SERVER": '{"prot": 1}'}) == ["server.prot (GATEWAY_SERVER): unknown key; did you mean port?"]
    assert mistakes(file, environ={"GATEWAY_SERVER": "[1"})[0].startswith("GATEWAY_SERVER line 1: is not YAML: ")
    assert mistakes(file, environ={"GATEWAY_SERVER": CANARY}) == ["GATEWAY_SERVER line 1: expected a mapping such as `name: value`"]
    (tmp_path / ".env").write_text("GATEWAY_SERVER__PRT=1\n")
    assert mistakes(file) == ["GATEWAY_SERVER__PRT from .env: unknown name; did you mean GATEWAY_SERVER__PORT?"]


def test_all_mistakes_are_told_at_once(mistakes: Mistakes) -> None:
    assert len(mistakes("server: {port: x, host: 0.0.0}\nretry: {attempts: 0}\nfoo: 1")) == 4
    assert len(mistakes('server: {port: "${A}", host: "${B}"}', environ={"GATEWAY_FOO": "1"})) == 3


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("a: 1\nserver: {}\nretry: {}\nserver: {}", "gateway.yaml line 4: server is there twice, first in line 2"),
        ("server:\n  port: 1\n  port: 2", "gateway.yaml line 3: server.port is there twice, first in line 2"),
        ("- a", "gateway.yaml line 1: expected a mapping such as `providers:`"),
        ("\n\njust text", "gateway.yaml line 3: expected a mapping such as `providers:`"),
        ("server: {port: 1", "gateway.yaml line 1: is not YAML: expected ',' or '}', but got '<stream end>'"),
        ("server:\n\tport: 1", "gateway.yaml line 2: is not YAML: found character '\\t' that cannot start any token"),
        ("a: !!python/object:os.system x", "gateway.yaml line 1: is not YAML: could not determine a constructor for the tag something"),
        ("a: 1\n---\nb: 2", "gateway.yaml line 2: is not YAML: but found another document"),
        ("? [a, b]\n: 1", "gateway.yaml line 1: expected text as a key"),
        ("a: \x07", "gateway.yaml: contains a character that YAML does not allow"),
        ("a: &x\n  b: *x", "gateway.yaml line 1: a value contains itself"),
        ("a: " + "[" * 5000, "gateway.yaml: is nested too deeply"),
    ],
)
def test_a_broken_file_is_one_sentence_with_its_line(mistakes: Mistakes, file: str, sentence: str) -> None:
    assert mistakes(file) == [sentence]


def test_a_reference_without_quotes_inside_braces_is_told_about_them(mistakes: Mistakes) -> None:
    [line] = mistakes("providers:\n  claude: {type: anthropic, api_key: ${KEY}}")
    assert line.startswith("gateway.yaml line 2: is not YAML: ")
    assert line.endswith('; ${NAME} inside { } wants quotes: "${NAME}"')


def test_aliases_that_multiply_are_refused(mistakes: Mistakes) -> None:
    rows = ["a0: &a0 {x: 1, y: 2}"] + [f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(9))}}}" for n in range(1, 9)]
    assert mistakes("\n".join(rows)) == ["gateway.yaml: has more than 100000 keys"]


def test_a_file_that_cannot_be_read_is_one_sentence(mistakes: Mistakes, tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert mistakes(environ={"GATEWAY_CONFIG": str(missing)}) == [f"{missing} (GATEWAY_CONFIG) does not exist"]
    assert mistakes(environ={"GATEWAY_CONFIG": str(tmp_path)}) == [f"{tmp_path} (GATEWAY_CONFIG) cannot be read (Is a directory)"]
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    assert mistakes(environ={"GATEWAY_CONFIG": str(tmp_path / "latin.yaml")})[0].endswith("(GATEWAY_CONFIG) is not UTF-8 text")
    (tmp_path / "large.yaml").write_bytes(b" " * (1 << 20) + b"#")
    assert mistakes(environ={"GATEWAY_CONFIG": str(tmp_path / "large.yaml")})[0].endswith("(GATEWAY_CONFIG) is larger than 1 MiB")
    with pytest.raises(ConfigurationError, match=r"none.yaml \(--config\) does not exist"):
        load({}, config=str(missing), directory=tmp_path)


@pytest.mark.parametrize("text", [f"A=1\n{CANARY}\nB=2\n", f"A=1\n{CANARY} {CANARY}\n"])
def test_a_broken_dotenv_is_one_sentence_with_its_line(mistakes: Mistakes, tmp_path: Path, text: str) -> None:
    (tmp_path / ".env").write_text(text)
    assert mistakes() == [".env line 2: expected NAME=value"]


# Keys stay unseen.


def misplaced(value: str) -> list[str]:
    """A key in every place where a person could put it by mistake."""
    return [
        f"providers: {{a: {{type: {value}}}}}",
        f"providers: {{a: {{type: openai, auth: {value}}}}}",
        f"providers: {{a: {{type: openai, api_key: ['{value}']}}}}",
        f"providers: {{a: {{type: openai, api_key: '{value} x'}}}}",
        f"providers: {{a: {{type: openai, base_url: {value}}}}}",
        f"providers: {{a: {{type: openai, proxy: {value}}}}}",
        f"providers: {{a: {{type: openai, quirks: {value}}}}}",
        f"providers: {{a: {{type: openai, quirks: {{think_tags: {value}}}}}}}",
        f"providers: {{a: {{type: openai, headers: {value}}}}}",
        f'providers: {{a: {{type: openai, headers: {{x: "{value}\\n"}}}}}}',
        f"providers: {{a: {value}}}",
        f"models: {{a: {{targets: [{value}]}}}}",
        f"models: {{a: {{targets: {value}}}}}",
        f"server: {{port: {value}, host: {value}, keep_alive: {value}}}",
        f"access: {{origins: [{value}], max_streams: {value}}}",
        f"access: {{keys: {value}}}",
        f"access: {{keys_file: {value}}}",
        f"access: {{keys: {{web: {{sha256: {value}, models: {value}, live: {value}}}}}}}",
        f"access: {{keys: {{web: {value}}}}}",
        f"retry: {value}",
        f"api_key: *{value}",
        f"api_key: !{value} x",
        f"api_key: '{value}",
        f"{value}",
    ]


@pytest.mark.parametrize("file", misplaced(CANARY))
def test_no_sentence_repeats_a_value(mistakes: Mistakes, file: str) -> None:
    assert mistakes(file)  # which looks for the canary


def test_a_valid_configuration_shows_no_key_when_printed(read: Read) -> None:
    file = f"providers: {{a: {{type: openai, api_key: {CANARY}, headers: {{x: {CANARY}}}, query: {{k: {CANARY}}}, proxy: 'http://u:{CANARY}@p'}}}}"
    configuration = read(file, environ={"OTHER": CANARY})
    assert CANARY not in repr(configuration) + str(configuration.settings) + configuration.settings.model_dump_json()


# callers

HASH = "0f" * 32


def test_callers_come_from_a_file_of_their_own(read: Read, tmp_path: Path) -> None:
    one = f"1: {{sha256: {HASH.upper()}, models: [a], max_streams: 2, live: true}}"
    (tmp_path / "keys.yaml").write_text(f"web: {{sha256: '{HASH}'}}\n{one}\n")
    access = read(f"access: {{keys_file: {tmp_path}/keys.yaml}}").settings.access
    assert access.keys["web"].model_dump() == {"sha256": HASH, "models": None, "max_streams": None, "live": False}
    assert access.keys["1"].model_dump() == {"sha256": HASH.upper(), "models": ["a"], "max_streams": 2, "live": True}
    named = read(environ={"GATEWAY_ACCESS__KEYS_FILE": f"{tmp_path}/keys.yaml"}).settings.access
    assert named.keys == access.keys


@pytest.mark.parametrize(
    "text",
    [
        f'{{"web": {{"sha256": "{HASH}"}}}}',
        f"{{web: {{sha256: '{HASH}'}}}}",
        f'web: {{sha256: "{HASH}"}}',
        f"web:\n  sha256: {HASH}\n",
    ],
)
def test_callers_in_the_environment_are_json_or_yaml(read: Read, text: str) -> None:
    keys = read(environ={"GATEWAY_ACCESS__KEYS": text}).settings.access.keys
    assert {name: key.sha256 for name, key in keys.items()} == {"web": HASH}


def test_an_empty_name_for_callers_is_none(read: Read) -> None:
    assert read(environ={"GATEWAY_ACCESS__KEYS": ""}).settings.access.keys == {}


def test_callers_of_the_file_and_of_the_environment_stand_together(read: Read, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text(f"web: {{sha256: '{HASH}'}}\n")
    environ = {"GATEWAY_ACCESS__KEYS": f'phone: {{sha256: "{HASH}"}}'}
    keys = read(f"access: {{keys_file: {tmp_path}/keys.yaml}}", environ=environ).settings.access.keys
    assert sorted(keys) == ["phone", "web"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("web: {}", "access.keys.web.sha256 (keys.yaml line 1): is missing: the SHA-256 of the key, in hexadecimal digits"),
        (
            f"# ours\nweb: {{sha256: {CANARY}}}",
            "access.keys.web.sha256 (keys.yaml line 2): "
            "expected the SHA-256 of a key, 64 hexadecimal digits, as `gateway key NAME` writes it",
        ),
        (
            f"web: {{sha256: '{HASH[1:]}'}}",
            "access.keys.web.sha256 (keys.yaml line 1): "
            "expected the SHA-256 of a key, 64 hexadecimal digits, as `gateway key NAME` writes it",
        ),
        (f"web: {{sha265: '{HASH}', sha256: '{HASH}'}}", "access.keys.web.sha265 (keys.yaml line 1): unknown key; did you mean sha256?"),
        (f"web: {{sha256: '{HASH}', models: []}}", "access.keys.web.models (keys.yaml line 1): expected at least one"),
        (
            f"web: {{sha256: '{HASH}', max_streams: 0}}",
            "access.keys.web.max_streams (keys.yaml line 1): expected a whole number of at least 1",
        ),
        (f"web: {{sha256: '{HASH}', live: perhaps}}", "access.keys.web.live (keys.yaml line 1): expected true or false"),
        (
            f"a b: {{sha256: '{HASH}'}}",
            "access.keys.a b (keys.yaml line 1): expected a name of letters, digits, '.', '_' and '-', at most 64",
        ),
        (f"web: {{sha256: {HASH}}}\nweb: {{sha256: {HASH}}}", "keys.yaml line 2: web is there twice, first in line 1"),
        ("[web]", 'keys.yaml line 1: expected a mapping such as `web: {sha256: "…"}`'),
        ("", "access.keys_file (gateway.yaml line 1): the file holds no keys: make one with `gateway key NAME`"),
        (f"desk: {{sha256: '{HASH}'}}", "access.keys.desk (keys.yaml line 1): is in access.keys too: keep one of them"),
    ],
)
def test_a_mistake_about_a_caller_is_one_sentence_with_its_place(mistakes: Mistakes, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    file = f"access: {{keys_file: {tmp_path}/keys.yaml, keys: {{desk: {{sha256: '{HASH}'}}}}}}"
    assert mistakes(file) == [sentence]


def test_a_keys_file_that_is_not_there_is_one_sentence(mistakes: Mistakes, tmp_path: Path) -> None:
    assert mistakes("access: {keys_file: nowhere.yaml}") == ["access.keys_file (gateway.yaml line 1): the file does not exist"]
    sentence = "access.keys_file (GATEWAY_ACCESS__KEYS_FILE): the file cannot be read (Is a directory)"
    assert mistakes(environ={"GATEWAY_ACCESS__KEYS_FILE": str(tmp_path)}) == [sentence]


def test_a_wrong_hash_in_the_environment_names_the_variable(mistakes: Mistakes) -> None:
    environ = {"GATEWAY_ACCESS__KEYS": f"web: {{sha256: {CANARY}}}"}
    assert mistakes(environ=environ)[0].startswith("access.keys.web.sha256 (GATEWAY_ACCESS__KEYS): expected the SHA-256 of a key, ")
