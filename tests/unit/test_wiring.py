"""Settings put together: zero configuration, base URLs, presets and quirks, keys and their sources, models."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.connections import PRESETS, UPSTREAMS, resolved
from gateway.errors import RequestRefused
from gateway.formats import Quirks
from gateway.routing import Caller, Retry, Streaming, Timeouts
from gateway.rules import Rules
from gateway.settings import ConfigurationError, gather
from gateway.wiring import ANSWERS, REQUESTS, Access, Server, Wiring, wire

CANARY = "sk-canary-5f0c1d"
ROWS = [(kind, name) for kind, rows in PRESETS.items() for name in rows]
Wire = Callable[..., Wiring]


@pytest.fixture
def wired(tmp_path: Path) -> Wire:
    def wired(text: str | None = None, **environ: str) -> Wiring:
        config = None
        if text is not None:
            (tmp_path / "gateway.yaml").write_text(text, "utf-8")
            config = str(tmp_path / "gateway.yaml")
        return wire(gather(environ, config=config, directory=tmp_path, secrets=tmp_path / "secrets"))

    return wired


def mistakes(wired: Wire, text: str | None = None, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        wired(text, **environ)
    assert CANARY not in str(refused.value)
    return refused.value.lines


def names(wiring: Wiring, model: str = "default") -> list[str]:
    return [target.name for target in wiring.models[model].targets]


# Zero configuration.


def test_without_a_key_the_simulator_answers_in_both_of_its_formats(wired: Wire) -> None:
    wiring = wired()
    assert [(name, row.format.name, row.transport, row.provider.base_url, row.key_source) for name, row in wiring.providers.items()] == [
        ("simulator", "anthropic", "simulator", "http://simulator", "none needed"),
        ("simulator-openai", "openai", "simulator", "http://simulator/v1", "none needed"),
    ]
    assert names(wiring) == ["simulator/simulator"]
    assert wiring.router.resolve("simulator-openai/simulator-fast").targets[0].format is UPSTREAMS["openai"]


def test_the_defaults_are_the_documented_ones(wired: Wire) -> None:
    wiring = wired()
    assert wiring.timeouts == Timeouts() == Timeouts(connect=5, first_token=None, idle=300, total=None, finish=2, write=15)
    assert wiring.retry == Retry() == Retry(attempts=2, max_retry_after=10)
    assert wiring.streaming == Streaming() == Streaming(heartbeat=15, commit_after=5)
    assert wiring.access == Access() == Access(origins=(), max_streams=1000)
    assert wiring.server == Server() == Server("127.0.0.1", 8000, 8, 0, 75, 20)
    assert wiring.models["default"].timeouts == Timeouts()


def test_an_anthropic_key_makes_the_default_model(wired: Wire) -> None:
    wiring = wired(ANTHROPIC_API_KEY=CANARY)
    [(name, connection)] = wiring.providers.items()
    assert (name, connection.transport, connection.key_source) == ("anthropic", "http", "ANTHROPIC_API_KEY from the environment")
    assert (connection.provider.base_url, connection.provider.auth) == ("https://api.anthropic.com", "x-api-key")
    assert connection.provider.key == CANARY
    assert names(wiring) == ["anthropic/claude-sonnet-5-5"]


def test_the_environment_names_claudes_address_and_model(wired: Wire) -> None:
    wiring = wired(ANTHROPIC_API_KEY=CANARY, ANTHROPIC_BASE_URL="http://127.0.0.1:9/v1/", ANTHROPIC_MODEL="claude-x")
    assert wiring.providers["anthropic"].provider.base_url == "http://127.0.0.1:9"
    assert names(wiring) == ["anthropic/claude-x"]


def test_an_openai_key_makes_the_default_model_which_may_stay_open(wired: Wire) -> None:
    wiring = wired(OPENAI_API_KEY=CANARY, OPENAI_BASE_URL="http://127.0.0.1:9")
    connection = wiring.providers["openai"]
    assert (connection.provider.base_url, connection.provider.auth) == ("http://127.0.0.1:9/v1", "bearer")
    assert wiring.models["default"].targets[0].model == ""
    assert names(wired(OPENAI_API_KEY=CANARY, OPENAI_MODEL="gpt-x")) == ["openai/gpt-x"]
    assert wired(OPENAI_API_KEY=CANARY).providers["openai"].provider.base_url == "https://api.openai.com/v1"


def test_with_both_keys_the_first_is_the_default_and_both_can_be_named(wired: Wire) -> None:
    wiring = wired(ANTHROPIC_API_KEY=CANARY, OPENAI_API_KEY=CANARY)
    assert list(wiring.providers) == ["anthropic", "openai"]
    assert names(wiring) == ["anthropic/claude-sonnet-5-5"]
    assert wiring.router.resolve("openai/gpt-x").targets[0].model == "gpt-x"


@pytest.mark.parametrize(
    ("kind", "url", "base_url"), [("openai", "http://a.example", "http://a.example/v1"), ("anthropic", *["http://a.example"] * 2)]
)
def test_an_address_alone_makes_a_provider_without_a_key(wired: Wire, kind: str, url: str, base_url: str) -> None:
    name = f"{kind.upper()}_BASE_URL"
    wiring = wired(**{name: url})
    assert list(wiring.providers) == [kind]
    connection = wiring.providers[kind]
    assert (connection.provider.base_url, connection.provider.key, connection.provider.credentials) == (base_url, None, ())
    assert connection.key_source == f"no key, {name} from the environment"
    assert names(wiring) == ["openai/" if kind == "openai" else "anthropic/claude-sonnet-5-5"]


@pytest.mark.parametrize("url", ["https://api.openai.com/v1", "http://127.0.0.1:8000/v1", "http://localhost:8000"])
def test_the_vendors_address_and_the_gateways_own_make_no_provider_without_a_key(wired: Wire, url: str) -> None:
    assert list(wired(OPENAI_BASE_URL=url).providers) == ["simulator", "simulator-openai"]


def test_a_gateway_that_would_ask_itself_does_not_start(wired: Wire) -> None:
    assert mistakes(wired, ANTHROPIC_API_KEY=CANARY, ANTHROPIC_BASE_URL="http://localhost:8000") == [
        "ANTHROPIC_BASE_URL from the environment: is this gateway's own address, which is for its clients"
    ]
    other_port = wired(ANTHROPIC_API_KEY=CANARY, ANTHROPIC_BASE_URL="http://localhost:8000", GATEWAY_SERVER__PORT="8001")
    assert other_port.providers["anthropic"].provider.base_url == "http://localhost:8000"


def test_an_empty_key_is_none(wired: Wire) -> None:
    assert "simulator" in wired(ANTHROPIC_API_KEY="", OPENAI_API_KEY=" ").providers


def test_a_key_from_dotenv_says_so(wired: Wire, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"ANTHROPIC_API_KEY={CANARY}\n")
    assert wired().providers["anthropic"].key_source == "ANTHROPIC_API_KEY from .env"


def test_keys_in_the_environment_make_no_providers_beside_the_files(wired: Wire) -> None:
    wiring = wired("providers: {local: {type: openai, base_url: 'http://127.0.0.1:9'}}", ANTHROPIC_API_KEY=CANARY)
    assert list(wiring.providers) == ["local"]
    assert wiring.models["default"].targets[0].name == "local/"


def test_models_of_a_file_without_providers_use_the_environments(wired: Wire) -> None:
    wiring = wired("models: {fast: {targets: [anthropic/claude-fast]}}", ANTHROPIC_API_KEY=CANARY)
    assert (names(wiring, "fast"), names(wiring)) == (["anthropic/claude-fast"], ["anthropic/claude-sonnet-5-5"])
    assert wiring.router.names() == ("fast", "default")


def test_where_the_file_has_providers_and_models_there_is_no_default_of_our_own(wired: Wire) -> None:
    wiring = wired("providers: {a: {type: anthropic}}\nmodels: {fast: {targets: [a/x]}}")
    assert wiring.router.names() == ("fast",)
    with pytest.raises(RequestRefused, match="Known: fast;"):
        wiring.router.resolve("default")


def test_a_bad_variable_is_named(wired: Wire) -> None:
    assert mistakes(wired, OPENAI_API_KEY=CANARY, OPENAI_BASE_URL=CANARY) == [
        "OPENAI_BASE_URL from the environment: expected an http:// or https:// URL with a host "
        "and without user name, query or fragment"
    ]
    assert mistakes(wired, ANTHROPIC_API_KEY=f"{CANARY}\n{CANARY}") == [
        "ANTHROPIC_API_KEY from the environment: expected a key of printable ASCII characters without spaces"
    ]


# Base URLs.


@pytest.mark.parametrize(
    ("written", "base_url"),
    [
        ("https://a.example", "https://a.example/v1"),
        ("https://a.example/", "https://a.example/v1"),
        ("https://a.example/v1", "https://a.example/v1"),
        ("https://a.example/v1/", "https://a.example/v1"),
        ("https://a.example/v1/chat/completions", "https://a.example/v1"),
        ("https://a.example/v1/chat/completions/", "https://a.example/v1"),
        ("https://a.example/chat/completions", "https://a.example"),
        ("https://a.example/api/paas/v4", "https://a.example/api/paas/v4"),
        ("https://a.example/v1beta/openai/", "https://a.example/v1beta/openai"),
        ("http://[::1]:8080", "http://[::1]:8080/v1"),
    ],
)
def test_an_openai_base_url_is_taken_in_every_form_people_copy_it(written: str, base_url: str) -> None:
    assert resolved("openai", written) == base_url


@pytest.mark.parametrize(
    ("written", "base_url"),
    [
        ("https://a.example", "https://a.example"),
        ("https://a.example/", "https://a.example"),
        ("https://a.example/v1", "https://a.example"),
        ("https://a.example/v1/", "https://a.example"),
        ("https://a.example/v1/messages", "https://a.example"),
        ("https://a.example/anthropic", "https://a.example/anthropic"),
        ("https://a.example/anthropic/v1/messages/", "https://a.example/anthropic"),
        ("https://a.example/messages", "https://a.example/messages"),
        ("https://a.example:8443/v11", "https://a.example:8443/v11"),
    ],
)
def test_an_anthropic_base_url_is_taken_in_every_form_people_copy_it(written: str, base_url: str) -> None:
    assert resolved("anthropic", written) == base_url


@pytest.mark.parametrize(("kind", "base_url"), [("anthropic", "http://simulator"), ("openai", "http://simulator/v1")])
def test_the_simulator_is_a_place_behind_either_format(wired: Wire, kind: str, base_url: str) -> None:
    connection = wired(f"providers: {{s: {{type: {kind}, base_url: 'simulator:'}}}}").providers["s"]
    assert (connection.transport, connection.provider.base_url, connection.key_source) == ("simulator", base_url, "none needed")


# Providers.


def test_a_provider_gets_everything_the_file_says(wired: Wire) -> None:
    file = f"""
    providers:
      azure:
        type: openai
        base_url: https://a.example/openai/v1
        api_key: {CANARY}
        auth: x-api-key
        headers: {{x-team: chat}}
        query: {{api-version: preview}}
        body: {{seed: 7}}
        version: 2024-01-01
        proxy: http://user:secret@proxy.example:3128
    """
    connection = wired(file).providers["azure"]
    provider = connection.provider
    assert (provider.key, provider.auth, provider.version) == (CANARY, "x-api-key", "2024-01-01")
    assert (provider.headers, provider.query, provider.body) == ({"x-team": "chat"}, {"api-version": "preview"}, {"seed": 7})
    assert connection.proxy == "http://user:secret@proxy.example:3128"
    assert CANARY not in repr(connection)
    assert "secret" not in repr(connection)


def test_a_preset_gives_address_and_quirks_and_single_fields_override_it(wired: Wire) -> None:
    preset = PRESETS["openai"]["deepseek"]
    assert preset.base_url
    plain = wired("providers: {d: {type: openai, preset: deepseek}}").providers["d"].provider
    assert (plain.base_url, plain.quirks) == (preset.base_url, preset.quirks)
    file = "providers: {d: {type: openai, preset: deepseek, base_url: 'http://127.0.0.1:9', quirks: {think_tags: split, refuses: [top_p]}}}"
    own = wired(file).providers["d"].provider
    assert (own.base_url, own.quirks.think_tags, own.quirks.refuses) == ("http://127.0.0.1:9/v1", "split", ("top_p",))
    assert own.quirks.echo_reasoning == preset.quirks.echo_reasoning


def test_a_preset_gives_the_header_of_the_key_and_auth_overrides_it(wired: Wire) -> None:
    row = "{type: anthropic, preset: kimi, api_key: k}, x: {type: anthropic, preset: kimi, api_key: k, auth: x-api-key}"
    providers = wired(f"providers: {{k: {row}, d: {{type: anthropic, preset: deepseek, api_key: k}}}}").providers
    assert [connection.provider.credentials for connection in providers.values()] == [
        (("authorization", "Bearer k"),),
        (("x-api-key", "k"),),
        (("x-api-key", "k"),),
    ]


@pytest.mark.parametrize(
    ("written", "base_url"),
    [
        ("https://r.openai.azure.com", "https://r.openai.azure.com/openai/v1"),
        ("https://r.openai.azure.com/", "https://r.openai.azure.com/openai/v1"),
        ("https://r.openai.azure.com/openai/v1/", "https://r.openai.azure.com/openai/v1"),
        ("https://r.openai.azure.com/openai/deployments/d", "https://r.openai.azure.com/openai/deployments/d"),
        ("https://r.openai.azure.com/openai/deployments/d/chat/completions", "https://r.openai.azure.com/openai/deployments/d"),
    ],
)
def test_azure_is_reached_at_its_v1_path_or_at_a_deployment(wired: Wire, written: str, base_url: str) -> None:
    row = f"{{type: openai, preset: azure, base_url: '{written}', api_key: k, query: {{api-version: '2024-10-21'}}}}"
    provider = wired(f"providers: {{a: {row}}}").providers["a"].provider
    assert (provider.base_url, provider.credentials, provider.query) == (base_url, (("api-key", "k"),), {"api-version": "2024-10-21"})


def test_azures_deployments_want_a_version(wired: Wire) -> None:
    """Without one Azure says no more than that there is nothing."""
    address = "https://r.openai.azure.com/openai/deployments/d"
    assert mistakes(wired, f"providers: {{a: {{type: openai, preset: azure, base_url: '{address}', api_key: k}}}}") == [
        "providers.a.query (gateway.yaml line 1): is missing api-version, which an address with /openai/deployments/ wants"
    ]


@pytest.mark.parametrize(("kind", "preset"), ROWS)
def test_a_presets_address_is_called_as_it_stands(wired: Wire, kind: str, preset: str) -> None:
    """Not everybody has a /v1."""
    row = PRESETS[kind][preset]
    if row.base_url:
        provider = wired(f"providers: {{p: {{type: {kind}, preset: {preset}}}}}").providers["p"].provider
        assert (provider.base_url, provider.quirks) == (row.base_url, row.quirks)
        assert resolved(kind, row.base_url, row.path) == row.base_url
    else:
        assert mistakes(wired, f"providers: {{p: {{type: {kind}, preset: {preset}}}}}") == [
            f"providers.p.base_url (gateway.yaml line 1): is missing: preset {preset} has no address of its own"
        ]


def test_the_vendors_own_row_holds_at_the_vendors_own_address(wired: Wire) -> None:
    for file, environ in (
        ("", {"OPENAI_API_KEY": CANARY}),
        ("", {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "https://api.openai.com"}),
        ("providers: {openai: {type: openai}}", {}),
        ("providers: {openai: {type: openai, base_url: 'https://api.openai.com/v1/chat/completions'}}", {}),
    ):
        provider = wired(file, **environ).providers["openai"].provider
        assert (provider.base_url, provider.quirks) == ("https://api.openai.com/v1", PRESETS["openai"]["openai"].quirks)
    assert wired("providers: {a: {type: anthropic}}").providers["a"].provider.quirks == Quirks(url_sources=True)
    elsewhere = wired(
        "providers: {a: {type: anthropic, base_url: 'http://127.0.0.1:9'}, b: {type: openai, base_url: 'http://127.0.0.1:9'}}"
    )
    assert [row.provider.quirks for row in elsewhere.providers.values()] == [Quirks(), Quirks()]


def test_quirks_need_no_preset(wired: Wire) -> None:
    provider = wired("providers: {g: {type: anthropic, base_url: 'http://a.example', quirks: {cumulative: true}}}").providers["g"].provider
    assert provider.quirks == Quirks(cumulative=True)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("type: openai, preset: depseek", "unknown preset; did you mean deepseek?"),
        ("type: anthropic, preset: depseek", "unknown preset; did you mean deepseek?"),
        ("type: anthropic, preset: groq", "preset groq is for type openai"),
        ("type: anthropic, preset: mistrall", "unknown preset; did you mean mistral, which is for type openai?"),
        ("type: openai, preset: antropic", "unknown preset; did you mean anthropic, which is for type anthropic?"),
        (
            f"type: anthropic, preset: {CANARY}",
            "unknown preset; known are anthropic, deepseek, zhipu, glm, moonshot, kimi, minimax, llama_cpp",
        ),
    ],
)
def test_a_wrong_preset_is_one_sentence(wired: Wire, row: str, sentence: str) -> None:
    assert mistakes(wired, f"providers: {{d: {{{row}}}}}") == [f"providers.d.preset (gateway.yaml line 1): {sentence}"]


# Everything at once.


def test_all_mistakes_are_told_at_once_whatever_finds_them(wired: Wire) -> None:
    file = """
providers:
  a: { type: openai, preset: grok, api_key: "${NOT_SET}" }
  b: { type: opnai }
  c: { type: mapped, url: "http://h/x", request: { p: $promt }, text: /text }
  d: { type: openai, base_url: "${NOT_SET_EITHER}" }
models:
  x: { targets: [a/m, b/m, d/m, e/m] }
  y: { target: [a/m] }
access: { keys: { web: { sha256: short, models: [y, z] } } }
server: { host: 0.0.0.0, port: many }
timeouts: { write: 20s }
"""
    lines = mistakes(wired, file, GATEWAY_SERVR__PORT="1")
    assert [line.partition(" (")[0].partition(" from")[0] for line in lines] == [
        "GATEWAY_SERVR__PORT",
        "providers.a.api_key",
        "providers.d.base_url",
        "providers.b.type",
        "models.y.targets",
        "models.y.target",
        "access.keys.web.sha256",
        "server.port",
        "providers.a.preset",
        "providers.c.request.p",
        "models.x.targets[3]",
    ]


def test_what_is_left_out_for_a_mistake_causes_no_further_ones(wired: Wire) -> None:
    for file in (
        "providers: {a: {type: opnai}}\nmodels: {x: {targets: [a/m]}}",
        "providers: 5\nmodels: {x: {targets: [a/m]}}",
        "providers: {a: {type: openai}}\nmodels: {x: {target: a/m, targets: [a/m]}}\naccess: {keys: {web: {sha256: '%s', models: [x]}}}"
        % ("0f" * 32),
        "providers: {a: {type: openai}}\nmodels: {x: {targets: [a/m]}}\naccess: {keys_file: nowhere.yaml}\nserver: {host: 0.0.0.0}",
        "providers: {a: {type: openai}}\nserver: {host: 0.0.0.0}\naccess: {opn: true}",
        "servr: {}",
    ):
        assert len(mistakes(wired, file)) == 1, file


# Type mapped.

HOUSE = "type: mapped, url: 'http://127.0.0.1:9000/generate', request: {p: $prompt}, text: /text"


def test_a_mapped_provider_is_its_own_format_at_its_url_as_it_stands(wired: Wire) -> None:
    file = f"providers: {{house: {{{HOUSE}, api_key: k, auth: api-key, query: {{a: '1'}}, headers: {{X-A: b}}}}, other: {{type: openai}}}}"
    wiring = wired(file)
    house = wiring.providers["house"]
    assert (house.format.name, house.provider.base_url, house.transport) == ("mapped", "http://127.0.0.1:9000/generate", "http")
    assert (house.provider.credentials, house.provider.query, house.provider.headers) == ((("api-key", "k"),), {"a": "1"}, {"X-A": "b"})
    assert names(wiring) == ["house/default"]
    assert wiring.router.resolve("house/a/b").targets[0].name == "house/a/b"


def test_a_mapped_provider_that_is_told_a_model_wants_one_in_models(wired: Wire) -> None:
    row = HOUSE.replace("$prompt", "$prompt, m: $model")
    assert mistakes(wired, f"providers: {{house: {{{row}}}}}") == [
        "models: is missing: provider house lists none; expected a line such as default: {targets: [house/MODEL]}"
    ]
    assert names(wired(f"providers: {{house: {{{row}}}}}\nmodels: {{default: {{targets: [house/m]}}}}")) == ["house/m"]


@pytest.mark.parametrize(
    ("row", "lines"),
    [
        (
            "type: mapped",
            [
                "url@: is missing: where a chat is posted",
                "request@: is missing: the body of a request, with $messages or $prompt in it",
                "text@: is missing: a JSON pointer to the answer's text in each chunk; or framing: text, if the body is nothing but text",
            ],
        ),
        (
            f"{HOUSE}, preset: groq, base_url: 'http://a', version: x, quirks: {{cumulative: true}}",
            [
                "base_url@: is no key of type mapped; its address is url",
                "preset@: is no key of type mapped",
                "quirks@: is no key of type mapped",
                "version@: is no key of type mapped",
            ],
        ),
        ("type: openai, text: /text, request: {}", ["request@: is a key of type mapped only", "text@: is a key of type mapped only"]),
        (
            HOUSE.replace("$prompt", "$promt, q: 'Q: $prompt', r: [{$messages: {a: $name}, b: 1}], $s: 1"),
            [
                "request.p@: unknown placeholder; did you mean $prompt?; a plain $ is written $$",
                "request.q@: expected $prompt to stand alone, nothing beside it",
                "request.r[0]@: expected $messages to stand alone, nothing beside it",
                "request.r[0].$messages.a@: unknown placeholder; known are $role, $text; a plain $ is written $$",
                "request.$s@: unknown placeholder; known are $messages; a plain $ is written $$",
            ],
        ),
        (
            HOUSE.replace("$prompt", "{$messages: {a: $role}}"),
            ["request.p@: says nothing of the chat: expected $text in the template of a turn"],
        ),
        (
            HOUSE.replace("$prompt", "{$messages: hi}"),
            ["request.p@: says nothing of the chat: expected $text in the template of a turn"],
        ),
        (
            HOUSE.replace("$prompt", "hi"),
            ["request@: says nothing of the chat: expected one of $messages, $prompt and $transcript somewhere in it"],
        ),
        (
            HOUSE.replace("p: $prompt", "$messages: {a: $text}"),
            ["request@: expected the keys of a body: a $messages with a template of its own stands inside of one"],
        ),
        (f"{HOUSE}, framing: text", ["text@: has no place in a body that is text (framing: text)"]),
        (f"{HOUSE}, stop_reasons: {{cut: max_tokens}}", ["stop_reasons@: wants finish, a JSON pointer to the values that it explains"]),
    ],
)
def test_every_mistake_of_a_description_is_a_sentence_with_its_place(wired: Wire, row: str, lines: list[str]) -> None:
    place = " (gateway.yaml line 1)"
    assert mistakes(wired, f"providers: {{house: {{{row}}}}}\nmodels: {{default: {{targets: [house/m]}}}}") == [
        f"providers.house.{line.replace('@', place, 1)}" for line in lines
    ]


# Keys.


def test_where_each_key_came_from_is_kept(wired: Wire, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{CANARY}\n")
    file = f"""
    providers:
      a: {{type: anthropic, api_key: "${{CLAUDE_KEY}}"}}
      b: {{type: openai, api_key: {CANARY}}}
      c: {{type: openai, api_key_file: {tmp_path}/key}}
      d: {{type: openai, api_key: "${{NOBODY:-}}"}}
      e: {{type: openai}}
    """
    wiring = wired(file, CLAUDE_KEY=CANARY, GATEWAY_PROVIDERS__E__API_KEY=CANARY)
    assert {name: (row.key_source, row.provider.key) for name, row in wiring.providers.items()} == {
        "a": ("CLAUDE_KEY from the environment", CANARY),
        "b": ("file providers.b.api_key", CANARY),
        "c": ("the file of providers.c.api_key_file", CANARY),
        "d": ("no key", None),
        "e": ("GATEWAY_PROVIDERS__E__API_KEY from the environment", CANARY),
    }


def test_a_key_file_that_holds_no_key_is_one_sentence(wired: Wire, tmp_path: Path) -> None:
    file = f"providers: {{a: {{type: openai, api_key_file: {tmp_path}/key}}}}"
    place = "providers.a.api_key_file (gateway.yaml line 1)"
    assert mistakes(wired, file) == [f"{place}: the file cannot be read (No such file or directory)"]
    for content in (b"", b"\n", f"{CANARY}\n{CANARY}".encode()):
        (tmp_path / "key").write_bytes(content)
        assert mistakes(wired, file) == [f"{place}: the file does not hold one key of printable ASCII characters without spaces"]
    (tmp_path / "key").write_bytes(b"\xff")
    assert mistakes(wired, file) == [f"{place}: the file does not hold a key of printable ASCII characters"]
    both = f"providers: {{a: {{type: openai, api_key: {CANARY}, api_key_file: {tmp_path}/key}}}}"
    assert mistakes(wired, both) == [f"{place}: stands beside api_key: use one of them"]


def test_a_ca_file_is_read_at_once(wired: Wire, tmp_path: Path) -> None:
    file = f"providers: {{a: {{type: openai, ca_file: {tmp_path}/ca.pem}}}}"
    place = "providers.a.ca_file (gateway.yaml line 1)"
    assert mistakes(wired, file) == [f"{place}: the file cannot be read (No such file or directory)"]
    (tmp_path / "ca.pem").write_text("no certificate")
    assert mistakes(wired, file) == [f"{place}: the file holds no PEM certificates"]
    known = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not known:
        pytest.skip("this machine has no authorities to take one from")
    (tmp_path / "ca.pem").write_text(ssl.DER_cert_to_PEM_cert(known[0]))
    assert wired(file).providers["a"].ca_file == f"{tmp_path}/ca.pem"


# Models.


def test_targets_keep_their_order_and_split_at_the_first_slash(wired: Wire) -> None:
    file = """
    providers: {a: {type: anthropic}, b: {type: openai, base_url: "http://127.0.0.1:9"}}
    models: {default: {targets: [a/x, {target: b/org/y:7b}]}}
    """
    wiring = wired(file)
    assert [(target.provider.name, target.model, target.format.name) for target in wiring.models["default"].targets] == [
        ("a", "x", "anthropic"),
        ("b", "org/y:7b", "openai"),
    ]


def test_a_models_own_times_and_tries_replace_the_global_ones_key_by_key(wired: Wire) -> None:
    file = """
    timeouts: {connect: 3s, total: 60s, write: 9s}
    retry: {attempts: 4}
    models:
      default: {targets: [simulator/x]}
      fast: {targets: [simulator/x], timeouts: {first_token: 500ms, total: none}, retry: {max_retry_after: 1s}}
    """
    models = wired(file).models
    assert models["default"].timeouts == Timeouts(connect=3, total=60, write=9)
    assert models["fast"].timeouts == Timeouts(connect=3, first_token=0.5, total=None, write=9)
    assert (models["default"].retry, models["fast"].retry) == (Retry(4, 10), Retry(4, 1))


def test_provider_slash_model_has_the_global_times(wired: Wire) -> None:
    model = wired("timeouts: {idle: none}\nretry: {attempts: 1}").router.resolve("simulator/x")
    assert (model.timeouts.idle, model.retry.attempts) == (None, 1)


def test_an_aliass_rules_come_through(wired: Wire) -> None:
    rows = "system: Hello, max_tokens: {default: 5, cap: 9}, allow: [tools], extra_allowed: [seed]"
    wiring = wired(f"models: {{a: {{targets: [simulator/x], {rows}}}, b: {{targets: [simulator/x]}}}}")
    assert wiring.models["a"].rules == Rules("Hello", 5, 9, frozenset({"tools"}), frozenset({"seed"}))
    assert wiring.models["b"].rules == wiring.router.resolve("simulator/x").rules == Rules()


def test_where_callers_have_keys_only_what_is_listed_passes(wired: Wire) -> None:
    keys = f"access: {{direct_models: true, keys: {{web: {{sha256: {'0' * 64!r}}}}}}}"
    wiring = wired(f"models: {{b: {{targets: [simulator/x]}}}}\n{keys}")
    assert wiring.models["b"].rules == wiring.router.resolve("simulator/x").rules == Rules(keyed=True)


def test_a_default_above_the_cap_is_one_sentence(wired: Wire) -> None:
    assert mistakes(wired, "models: {a: {targets: [simulator/x], max_tokens: {default: 10, cap: 9}}}") == [
        "models.a.max_tokens.default (gateway.yaml line 1): expected at most the cap, which is 9"
    ]


def test_a_target_of_an_unknown_provider_is_one_sentence(wired: Wire) -> None:
    file = "providers:\n  claude: {type: anthropic}\nmodels:\n  default:\n    targets:\n      - claude/x\n      - cluade/x\n      - zzz/x\n"
    assert mistakes(wired, file) == [
        "models.default.targets[1] (gateway.yaml line 7): names an unknown provider; did you mean claude?",
        "models.default.targets[2] (gateway.yaml line 8): names an unknown provider; known are claude",
    ]


# The rest.


def test_tcp_user_timeout_follows_write_and_less_is_refused(wired: Wire) -> None:
    assert wired("timeouts: {write: 30s}").server.tcp_user_timeout == 35
    assert wired("server: {tcp_user_timeout: 60s}").server.tcp_user_timeout == 60
    assert mistakes(wired, "server: {tcp_user_timeout: 19s}") == [
        "server.tcp_user_timeout (gateway.yaml line 1): expected at least timeouts.write + 5s, which is 20s"
    ]


def test_access_and_streaming_come_through(wired: Wire) -> None:
    wiring = wired("access: {origins: ['https://a.example'], max_streams: 3}\nstreaming: {heartbeat: 1s, commit_after: 0}")
    assert wiring.access == Access(("https://a.example",), 3)
    assert wiring.streaming == Streaming(1, 0)


def test_the_registries_name_what_they_hold() -> None:
    assert {name: row.name for name, row in UPSTREAMS.items()} == {"anthropic": "anthropic", "openai": "openai"}
    assert [name for name, row in ANSWERS.items() if row.name != name] == []
    assert {"native", "anthropic", "text", "ndjson"} <= set(ANSWERS)
    assert {row.answer.name for row in REQUESTS.values()} <= set(ANSWERS)


# Callers.

WEB, PHONE = "0f" * 32, "F0" * 32


def test_callers_come_through_with_their_own_limits(wired: Wire) -> None:
    keys = f"{{web: {{sha256: {WEB!r}}}, phone: {{sha256: {PHONE!r}, models: [default], max_streams: 2, live: true}}}}"
    access = wired(f"access: {{keys: {keys}, max_streams_per_caller: 5}}").access
    assert access.callers == (
        Caller("web", bytes.fromhex(WEB), None, 5, False),
        Caller("phone", bytes.fromhex(PHONE), frozenset({"default"}), 2, True),
    )
    assert wired(f"access: {{keys: {keys}}}").access.callers[0].max_streams == 20


def test_a_callers_models_are_aliases_that_exist(wired: Wire) -> None:
    file = f"access: {{keys: {{web: {{sha256: {WEB!r}, models: [defalt, simulator/x]}}}}}}"
    assert mistakes(wired, file) == [
        "access.keys.web.models[0] (gateway.yaml line 1): names an unknown model; did you mean default?",
        "access.keys.web.models[1] (gateway.yaml line 1): names an unknown model; known are default",
    ]


def test_two_callers_cannot_share_a_key(wired: Wire) -> None:
    file = f"access: {{keys: {{web: {{sha256: {WEB!r}}}, phone: {{sha256: {WEB.upper()!r}}}}}}}"
    assert mistakes(wired, file) == ["access.keys.phone.sha256 (gateway.yaml line 1): is the key of web too: each caller wants its own"]


def test_callers_call_aliases_only_unless_direct_models_says_otherwise(wired: Wire) -> None:
    keys = f"keys: {{web: {{sha256: {WEB!r}}}}}"
    for file in (f"access: {{{keys}}}", f"access: {{{keys}, open: true}}"):
        with pytest.raises(RequestRefused):
            wired(file).router.resolve("simulator/simulator")
    for file in (f"access: {{{keys}, direct_models: true}}", "access: {}", "access: {open: true}"):
        assert wired(file).router.resolve("simulator/simulator").name == "simulator/simulator"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "192.168.1.5", "10.0.0.1", "fe80::1"])
def test_another_address_than_this_machines_wants_keys_or_open(wired: Wire, host: str) -> None:
    assert mistakes(wired, GATEWAY_SERVER__HOST=host) == [
        "server.host (GATEWAY_SERVER__HOST): expected 127.0.0.1, localhost or ::1: from other machines nobody may call yet; "
        "make a key with `gateway key NAME`, or let everybody in with access.open: true"
    ]
    for way in ({"GATEWAY_ACCESS__OPEN": "true"}, {"GATEWAY_ACCESS__KEYS": f"web: {{sha256: {WEB!r}}}"}):
        server = wired(GATEWAY_SERVER__HOST=host, **way).server
        assert (server.host, server.loopback) == (host.strip("[]"), False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.8.8"])
def test_this_machines_addresses_want_nothing(wired: Wire, host: str) -> None:
    assert wired(GATEWAY_SERVER__HOST=host).server.loopback
