"""A model's name becomes its ordered targets, with the times and tries that hold for them.

The small values that other decisions take as arguments live here too. All times are in seconds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from gateway.errors import RequestRefused
from gateway.formats import Target
from gateway.rules import NO_RULES, Rules

# A refusal is one sentence: it names so many names, and so much of what was asked for.
MOST_NAMES_LISTED = 20
LONGEST_NAME_REPEATED = 80
LONGEST_NAME = 256  # characters of a model's: it is remembered, and written into the log


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`connect`, `first_token` and `idle` hold for one attempt, `total` for all of them; None: no such limit."""

    connect: float = 5.0
    first_token: float | None = None
    idle: float | None = 300.0
    total: float | None = None
    finish: float = 2.0
    write: float = 15.0


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts`: tries in total on one target; a longer `Retry-After` than `max_retry_after` is not waited for."""

    attempts: int = 2
    max_retry_after: float = 10.0


@dataclass(frozen=True, slots=True)
class Streaming:
    """`heartbeat`: of silence towards the client; `commit_after`: when headers go out although nothing was said yet."""

    heartbeat: float = 15.0
    commit_after: float = 5.0


class Model(Struct, frozen=True):
    """What a caller's model name stands for; the targets are tried in this order.

    A target whose model is empty means the first one its provider lists, asked at first use.
    """

    name: str
    targets: tuple[Target, ...]
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    rules: Rules = NO_RULES


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a key, of which only the SHA-256 is known. `models`: the aliases it may use, None for all."""

    name: str
    digest: bytes = field(repr=False)
    models: frozenset[str] | None = None
    max_streams: int = 20
    live: bool = False


class Router:
    """`providers`: each provider as a target whose model is still open, for callers who may write `provider/model`; the times,
    tries and rules are what holds for those."""

    def __init__(
        self,
        models: Mapping[str, Model],
        providers: Mapping[str, Target],
        timeouts: Timeouts = Timeouts(),
        retry: Retry = Retry(),
        rules: Rules = NO_RULES,
    ) -> None:
        self._models = dict(models)
        self._providers = dict(providers)
        self._timeouts = timeouts
        self._retry = retry
        self._rules = rules

    def names(self) -> tuple[str, ...]:
        """The aliases, in the order of the configuration."""
        return tuple(self._models)

    def only(self, names: Collection[str]) -> "Router":
        """What is left for a caller who may use these aliases and nothing else."""
        models = {name: model for name, model in self._models.items() if name in names}
        return Router(models, {}, self._timeouts, self._retry, self._rules)

    def resolve(self, name: str) -> Model:
        """An alias, else `known-provider/anything`; `RequestRefused` for every other name."""
        if model := self._models.get(name):
            return model
        provider, _, rest = name.partition("/")  # at the first one only: model names hold slashes
        if rest and len(name) <= LONGEST_NAME and (target := self._providers.get(provider)):
            return Model(name, (Target(target.provider, target.format, rest),), self._timeouts, self._retry, self._rules)
        raise RequestRefused("unknown_model", self._refusal(name))

    def _refusal(self, name: str) -> str:
        shown = name if len(name) <= LONGEST_NAME_REPEATED else name[:LONGEST_NAME_REPEATED] + "…"
        direct = f"; and provider/model with the provider {_listed(self._providers)}" if self._providers else ""
        return f"Model '{shown}' is unknown. Known: {_listed(self._models)}{direct}."


def _listed(names: Mapping[str, object]) -> str:
    shown = ", ".join(list(names)[:MOST_NAMES_LISTED]) or "none"
    more = len(names) - MOST_NAMES_LISTED
    return f"{shown} and {more} more" if more > 0 else shown
