"""Settings become one frozen value that the rest of the gateway is handed; nothing else reads settings.

Without any provider in the file, ANTHROPIC_API_KEY and OPENAI_API_KEY make providers, and without those the simulator answers.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from gateway.formats import AnswerFormat, BuildCount, Provider, Quirks, RequestFormat, Target, UpstreamFormat
from gateway.formats.ai_sdk import AI_SDK, is_use_chat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.anthropic.request import build_count
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI, OPENAI_CLIENT
from gateway.formats.openai.presets import PRESETS, Preset
from gateway.formats.plain import NDJSON, TEXT
from gateway.routing import Caller, Model, Retry, Router, Streaming, Timeouts
from gateway.settings import Configuration, ConfigurationError
from gateway.settings.mistakes import Place, did_you_mean
from gateway.settings.schema import SIMULATOR, ModelSettings, ProviderSettings, base_url_text, is_key, is_loopback

UPSTREAMS: dict[str, UpstreamFormat] = {"anthropic": ANTHROPIC, "openai": OPENAI}
# By the path that a chat is posted to, and by what `?format=` calls them.
REQUESTS: dict[str, RequestFormat] = {
    "/chat": NATIVE,
    "/v1/messages": CLAUDE_CLIENT,
    "/v1/chat/completions": OPENAI_CLIENT,
    "/api/chat": AI_SDK,
}
# What else may be posted to a path, and how its body is known.
ALSO: dict[str, tuple[Callable[[bytes], bool], RequestFormat]] = {"/chat": (is_use_chat, AI_SDK)}
ANSWERS: dict[str, AnswerFormat] = {
    "native": NATIVE,
    "anthropic": CLAUDE_CLIENT,
    "openai": OPENAI_CLIENT,
    "ai-sdk": AI_SDK,
    "text": TEXT,
    "ndjson": NDJSON,
}
COUNTS: dict[str, BuildCount] = {"anthropic": build_count}  # the upstream formats that count the tokens of a request

# The vendors themselves. They fetch an image's URL from their own network, not from inside ours.
VENDORS = {"anthropic": Preset("https://api.anthropic.com", Quirks(url_sources=True)), "openai": PRESETS["openai"]}
CLAUDE = "claude-sonnet-5-5"  # ANTHROPIC_MODEL's default
TCP_USER_TIMEOUT_AFTER_WRITE = 5.0  # Linux applies it to closed windows too: `write` has to speak first


@dataclass(frozen=True, slots=True)
class Connection:
    """A provider and how it is reached; `key_source` says to people where its key came from."""

    provider: Provider
    format: UpstreamFormat
    transport: Literal["http", "simulator"] = "http"
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    key_source: str = "no key"


@dataclass(frozen=True, slots=True)
class Access:
    """`origins` as browsers write them, besides the gateway's own; `open` counts while there are no callers."""

    origins: tuple[str, ...] = ()
    max_streams: int = 1000
    callers: tuple[Caller, ...] = ()
    open: bool = False
    direct_models: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """Times in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    shutdown_grace: float = 8.0
    drain_delay: float = 0.0
    keep_alive: float = 75.0
    tcp_user_timeout: float = 20.0

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True)
class Wiring:
    providers: Mapping[str, Connection]
    models: Mapping[str, Model]
    router: Router
    timeouts: Timeouts
    retry: Retry
    streaming: Streaming
    access: Access
    server: Server


def wire(configuration: Configuration) -> Wiring:
    """The one value, or a `ConfigurationError` with what only shows when the parts are put together."""
    settings = configuration.settings
    mistakes: list[str] = []

    providers = {name: _connection(configuration, name, provider, mistakes) for name, provider in settings.providers.items()}
    zero = not providers
    if zero:
        providers = _from_environment(configuration, mistakes) or _simulators()
    timeouts = Timeouts(**settings.timeouts.model_dump())
    retry = Retry(**settings.retry.model_dump())
    models = {
        alias: Model(
            alias,
            _targets(configuration, alias, model, providers, mistakes),
            replace(timeouts, **model.timeouts.model_dump(exclude_unset=True)),
            replace(retry, **model.retry.model_dump(exclude_unset=True)),
        )
        for alias, model in settings.models.items()
    }
    if "default" not in models and (zero or not models):
        models["default"] = Model("default", (_default_target(configuration, next(iter(providers.values()))),), timeouts, retry)
    access = _access(configuration, models, mistakes)
    server = _server(configuration, timeouts, access, mistakes)
    if mistakes:
        raise ConfigurationError(mistakes)
    # Who has a key gets what was put together for callers, not whatever the gateway's own keys would buy.
    direct = {name: _target(connection) for name, connection in providers.items()} if access.direct_models or not access.callers else {}
    return Wiring(
        providers=providers,
        models=models,
        router=Router(models, direct, timeouts, retry),
        timeouts=timeouts,
        retry=retry,
        streaming=Streaming(**settings.streaming.model_dump()),
        access=access,
        server=server,
    )


def resolved(kind: str, url: str) -> str:
    """The base URL to which the format appends its own paths, from any of the forms in which people copy it."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if kind == "anthropic":
        path = path.removesuffix("/messages") if path.endswith("/v1/messages") else path
        path = path.removesuffix("/v1")
    else:
        path = path.removesuffix("/chat/completions") if path else "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def _connection(configuration: Configuration, name: str, settings: ProviderSettings, mistakes: list[str]) -> Connection:
    place: Place = ("providers", name)
    row = _row(settings.type, settings.base_url)
    if settings.preset is not None:
        if settings.type != "openai":
            mistakes.append(configuration.mistake((*place, "preset"), "there are presets for type openai only"))
        elif settings.preset not in PRESETS:
            mistakes.append(configuration.mistake((*place, "preset"), f"unknown preset{did_you_mean(settings.preset, PRESETS)}"))
        else:
            row = PRESETS[settings.preset]
    if settings.base_url is None and row.base_url is None:
        mistakes.append(configuration.mistake((*place, "base_url"), f"is missing: preset {settings.preset} has no address of its own"))
    # A row's address is called as it stands: not everybody has a /v1.
    base_url, transport = _address(settings.type, settings.base_url) if settings.base_url else (row.base_url or "", "http")
    key, key_source = _key(configuration, place, settings, mistakes)
    proxy = settings.proxy.get_secret_value() if settings.proxy else None
    provider = Provider(
        name=name,
        base_url=base_url,
        key=key,
        auth=settings.auth or _auth(settings.type),
        version=settings.version,
        headers={header: value.get_secret_value() for header, value in settings.headers.items()},
        query={parameter: value.get_secret_value() for parameter, value in settings.query.items()},
        body=settings.body,
        quirks=replace(row.quirks, **settings.quirks.model_dump(exclude_unset=True)),
        hidden=login(proxy) if proxy else (),
    )
    return Connection(
        provider,
        UPSTREAMS[settings.type],
        transport,
        proxy,
        _ca_file(configuration, place, settings.ca_file, mistakes),
        "none needed" if transport == "simulator" and not key else key_source,
    )


def login(proxy: str) -> tuple[str, ...]:
    """What of a proxy's URL must be hidden; with its user too, since a short password alone may be any word."""
    parts = urlsplit(proxy)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return (password, f"{user}:{password}") if password else ()


def _row(kind: str, base_url: str | None) -> Preset:
    """Without a preset: the vendor's own row at the vendor's own address, else the format as documented."""
    vendor = VENDORS[kind]
    return vendor if base_url is None or resolved(kind, base_url) == vendor.base_url else Preset(None)


def _address(kind: str, url: str) -> tuple[str, Literal["http", "simulator"]]:
    """The base URL and what carries requests to it."""
    return (resolved(kind, "http://simulator"), "simulator") if url == SIMULATOR else (resolved(kind, url), "http")


def _auth(kind: str) -> Literal["x-api-key", "bearer"]:
    return "x-api-key" if kind == "anthropic" else "bearer"


def _key(
    configuration: Configuration, place: Place, settings: ProviderSettings, mistakes: list[str]
) -> tuple[str | None, str]:
    """The key, and where it came from. An empty one, as `${NAME:-}` may give, is none."""
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    if settings.api_key_file is None:
        return (key, configuration.source((*place, "api_key"))) if key else (None, "no key")
    file: Place = (*place, "api_key_file")
    if settings.api_key is not None:
        mistakes.append(configuration.mistake(file, "stands beside api_key: use one of them"))
        return None, "no key"
    try:
        key = settings.api_key_file.read_text("ascii").strip()
    except OSError as error:
        mistakes.append(configuration.mistake(file, f"the file cannot be read ({error.strerror})"))
    except UnicodeDecodeError:
        mistakes.append(configuration.mistake(file, "the file does not hold a key of printable ASCII characters"))
    else:
        if not is_key(key):
            mistakes.append(configuration.mistake(file, "the file does not hold one key of printable ASCII characters without spaces"))
    return key, f"the file of {configuration.label(file)}"


def _ca_file(configuration: Configuration, place: Place, path: Path | None, mistakes: list[str]) -> str | None:
    if path is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        mistakes.append(configuration.mistake((*place, "ca_file"), "the file holds no PEM certificates"))
    except OSError as error:
        mistakes.append(configuration.mistake((*place, "ca_file"), f"the file cannot be read ({error.strerror})"))
    return str(path)


def _targets(
    configuration: Configuration, alias: str, model: ModelSettings, providers: Mapping[str, Connection], mistakes: list[str]
) -> tuple[Target, ...]:
    targets = []
    for index, row in enumerate(model.targets):
        provider, _, name = row.target.partition("/")
        if connection := providers.get(provider):
            targets.append(_target(connection, name))
        else:
            sentence = f"names an unknown provider{did_you_mean(provider, providers)}"
            mistakes.append(configuration.mistake(("models", alias, "targets", index), sentence))
    return tuple(targets)


def _target(connection: Connection, model: str = "") -> Target:
    return Target(connection.provider, connection.format, model)


def _default_target(configuration: Configuration, connection: Connection) -> Target:
    """The model that the environment names; Claude has a default, an OpenAI-compatible provider lists its own at first use."""
    if connection.transport == "simulator":
        return _target(connection, "simulator")
    values = configuration.environment.values
    if connection.format is ANTHROPIC:
        return _target(connection, values.get("ANTHROPIC_MODEL", "").strip() or CLAUDE)
    return _target(connection, values.get("OPENAI_MODEL", "").strip())


def _from_environment(configuration: Configuration, mistakes: list[str]) -> dict[str, Connection]:
    """Providers for the keys that are there under the names the vendors' own SDKs read."""
    environment = configuration.environment
    found = {}
    for kind in UPSTREAMS:
        key_name, url_name = f"{kind.upper()}_API_KEY", f"{kind.upper()}_BASE_URL"
        key = environment.values.get(key_name, "").strip()
        if not key:
            continue
        if not is_key(key):
            mistakes.append(f"{environment.source(key_name)}: expected a key of printable ASCII characters without spaces")
        url = environment.values.get(url_name, "").strip() or None
        try:
            row = _row(kind, url and base_url_text(url))
        except ValueError as error:
            mistakes.append(f"{environment.source(url_name)}: {error}")
            continue
        base_url, transport = _address(kind, url) if url else (row.base_url or "", "http")
        provider = Provider(kind, base_url, key, _auth(kind), quirks=row.quirks)
        found[kind] = Connection(provider, UPSTREAMS[kind], transport, key_source=environment.source(key_name))
    return found


def _simulators() -> dict[str, Connection]:
    """The simulator twice, so that both of its formats can be tried."""
    found = {}
    for name, kind in {"simulator": "anthropic", "simulator-openai": "openai"}.items():
        base_url, transport = _address(kind, SIMULATOR)
        found[name] = Connection(Provider(name, base_url, auth=_auth(kind)), UPSTREAMS[kind], transport, key_source="none needed")
    return found


def _access(configuration: Configuration, models: Mapping[str, Model], mistakes: list[str]) -> Access:
    settings = configuration.settings.access
    callers: list[Caller] = []
    owners: dict[bytes, str] = {}
    for name, row in settings.keys.items():
        place: Place = ("access", "keys", name)
        digest = bytes.fromhex(row.sha256)
        if (owner := owners.setdefault(digest, name)) != name:
            mistakes.append(configuration.mistake((*place, "sha256"), f"is the key of {owner} too: each caller wants its own"))
        for index, model in enumerate(row.models or ()):
            if model not in models:
                sentence = f"names an unknown model{did_you_mean(model, models)}"
                mistakes.append(configuration.mistake((*place, "models", index), sentence))
        allowed = None if row.models is None else frozenset(row.models)
        callers.append(Caller(name, digest, allowed, row.max_streams or settings.max_streams_per_caller, row.live))
    return Access(tuple(settings.origins), settings.max_streams, tuple(callers), settings.open, settings.direct_models)


def _server(configuration: Configuration, timeouts: Timeouts, access: Access, mistakes: list[str]) -> Server:
    settings = configuration.settings.server
    if not (is_loopback(settings.host) or access.callers or access.open):
        sentence = (
            "expected 127.0.0.1, localhost or ::1: from other machines nobody may call yet; "
            "make a key with `gateway key NAME`, or let everybody in with access.open: true"
        )
        mistakes.append(configuration.mistake(("server", "host"), sentence))
    least = timeouts.write + TCP_USER_TIMEOUT_AFTER_WRITE
    patience = least if settings.tcp_user_timeout is None else settings.tcp_user_timeout
    if patience < least:
        sentence = f"expected at least timeouts.write + {TCP_USER_TIMEOUT_AFTER_WRITE:g}s, which is {least:g}s"
        mistakes.append(configuration.mistake(("server", "tcp_user_timeout"), sentence))
    return Server(**settings.model_dump(exclude={"tcp_user_timeout"}), tcp_user_timeout=patience)
