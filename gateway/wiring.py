"""Settings become one frozen value that the rest of the gateway is handed.

Nothing else reads settings, but for connections and descriptions, whose results are parts of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gateway import connections
from gateway.connections import Connection
from gateway.formats import AnswerFormat, BuildCount, RequestFormat, Target
from gateway.formats.ai_sdk import AI_SDK, is_use_chat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.anthropic.client import CLAUDE_CLIENT
from gateway.formats.anthropic.request import build_count
from gateway.formats.mapped import MappedFormat
from gateway.formats.native import NATIVE
from gateway.formats.openai import OPENAI_CLIENT
from gateway.formats.plain import NDJSON, TEXT
from gateway.routing import Caller, Model, Retry, Router, Streaming, Timeouts
from gateway.rules import FEATURES, Rules
from gateway.settings import Configuration, ConfigurationError
from gateway.settings.mistakes import Place, did_you_mean
from gateway.settings.schema import ModelSettings, is_loopback

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

CLAUDE = "claude-sonnet-5-5"  # ANTHROPIC_MODEL's default
TCP_USER_TIMEOUT_AFTER_WRITE = 5.0  # Linux applies it to closed windows too: `write` has to speak first


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
    """The one value, or a `ConfigurationError` with all that is wrong, also what only shows when the parts are put together."""
    settings = configuration.settings
    mistakes = list(configuration.mistakes)

    providers = {name: connections.connection(configuration, name, provider, mistakes) for name, provider in settings.providers.items()}
    zero = not providers
    if zero:
        providers = connections.from_environment(configuration, mistakes) or connections.simulators()
    timeouts = Timeouts(**settings.timeouts.model_dump())
    retry = Retry(**settings.retry.model_dump())
    everybody = Rules(keyed=bool(settings.access.keys))
    models = {
        alias: Model(
            alias,
            _targets(configuration, alias, model, providers, mistakes),
            replace(timeouts, **model.timeouts.model_dump(exclude_unset=True)),
            replace(retry, **model.retry.model_dump(exclude_unset=True)),
            _rules(configuration, alias, model, mistakes),
        )
        for alias, model in settings.models.items()
    }
    if "default" not in models and (zero or not models):
        target = _default_target(configuration, next(iter(providers.values())), mistakes)
        models["default"] = Model("default", (target,), timeouts, retry, everybody)
    access = _access(configuration, models, mistakes)
    server = _server(configuration, timeouts, access, mistakes)
    if mistakes:
        raise ConfigurationError(mistakes)
    # Who has a key gets what was put together for callers, not whatever the gateway's own keys would buy.
    direct = {name: _target(connection) for name, connection in providers.items()} if access.direct_models or not access.callers else {}
    return Wiring(
        providers=providers,
        models=models,
        router=Router(models, direct, timeouts, retry, everybody),
        timeouts=timeouts,
        retry=retry,
        streaming=Streaming(**settings.streaming.model_dump()),
        access=access,
        server=server,
    )


def _targets(
    configuration: Configuration, alias: str, model: ModelSettings, providers: Mapping[str, Connection], mistakes: list[str]
) -> tuple[Target, ...]:
    targets = []
    for index, row in enumerate(model.targets):
        provider, _, name = row.target.partition("/")
        if (found := providers.get(provider)) is not None:
            targets.append(_target(found, name))
        elif not configuration.is_dropped("providers", provider):
            sentence = f"names an unknown provider{did_you_mean(provider, providers)}"
            mistakes.append(configuration.mistake(("models", alias, "targets", index), sentence))
    return tuple(targets)


def _rules(configuration: Configuration, alias: str, model: ModelSettings, mistakes: list[str]) -> Rules:
    default, cap = model.max_tokens.default, model.max_tokens.cap
    if default is not None and cap is not None and default > cap:
        mistakes.append(configuration.mistake(("models", alias, "max_tokens", "default"), f"expected at most the cap, which is {cap}"))
    return Rules(
        system=model.system,
        default=default,
        cap=cap,
        allow=frozenset(FEATURES if model.allow is None else model.allow),
        extra=None if model.extra_allowed is None else frozenset(model.extra_allowed),
        keyed=bool(configuration.settings.access.keys),
    )


def _target(connection: Connection, model: str = "") -> Target:
    return Target(connection.provider, connection.format, model)


def _default_target(configuration: Configuration, connection: Connection, mistakes: list[str]) -> Target:
    """The model that the environment names; Claude has a default, an OpenAI-compatible provider lists its own at first use."""
    if connection.transport == "simulator":
        return _target(connection, "simulator")
    if isinstance(connection.format, MappedFormat):
        name = connection.provider.name
        if connection.format.asks_model and not any(place[0] == "models" for place in configuration.dropped):
            mistakes.append(f"models: is missing: provider {name} lists none; expected a line such as default: {{targets: [{name}/MODEL]}}")
        return _target(connection, "default")
    values = configuration.environment.values
    if connection.format is ANTHROPIC:
        return _target(connection, values.get("ANTHROPIC_MODEL", "").strip() or CLAUDE)
    return _target(connection, values.get("OPENAI_MODEL", "").strip())


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
            if model not in models and not configuration.is_dropped("models", model):
                sentence = f"names an unknown model{did_you_mean(model, models)}"
                mistakes.append(configuration.mistake((*place, "models", index), sentence))
        allowed = None if row.models is None else frozenset(row.models)
        callers.append(Caller(name, digest, allowed, row.max_streams or settings.max_streams_per_caller, row.live))
    return Access(tuple(settings.origins), settings.max_streams, tuple(callers), settings.open, settings.direct_models)


def _server(configuration: Configuration, timeouts: Timeouts, access: Access, mistakes: list[str]) -> Server:
    settings = configuration.settings.server
    if not (is_loopback(settings.host) or access.callers or access.open or configuration.is_dropped("access")):
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
