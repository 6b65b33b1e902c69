"""Configuration: read from all its sources, checked, and handed over as one value or as one sentence for each mistake.

Command line, then GATEWAY_* names (`__` between the levels) from the environment, `.env` and the secrets directory, then the
YAML file, then the defaults: https://docs.pydantic.dev/latest/concepts/pydantic_settings/
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import InitSettingsSource

from gateway.settings.mistakes import ConfigurationError, Place, dotted, located, sentence
from gateway.settings.schema import PREFIX, Settings
from gateway.settings.sources import Environment, anchored, from_names, put, read_environment, read_file, read_keys, replaced

__all__ = ["Configuration", "ConfigurationError", "Environment", "Settings", "gather", "load"]

SECRETS = Path("/run/secrets")  # where Docker and Kubernetes put them


@dataclass(frozen=True, slots=True)
class Configuration:
    """Valid settings and their origins; `references`: keys whose value in the file is one `${NAME}`.

    `mistakes`: what is wrong so far; `dropped`: the places that are left out of the settings because of them.
    """

    settings: Settings
    environment: Environment
    file: str | None = None
    origins: Mapping[Place, str] = field(default_factory=dict)
    references: Mapping[Place, str] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    dropped: frozenset[Place] = frozenset()

    def is_dropped(self, *place: str) -> bool:
        """Whether it may well be there, but for a mistake in it."""
        return any(place[:length] in self.dropped for length in range(1, len(place) + 1))

    def mistake(self, place: Place, sentence: str) -> str:
        return located(self.origins, place, sentence)

    def label(self, place: Place) -> str:
        """The key, or the name that set it."""
        origin = self.origins.get(place, "")
        return origin if origin.startswith(PREFIX) else dotted(place)

    def source(self, place: Place) -> str:
        """Where the value at `place` came from, for people."""
        if name := self.references.get(place):
            return self.environment.source(name)
        origin = self.origins.get(place, "")
        return self.environment.source(origin) if origin.startswith(PREFIX) else f"file {dotted(place)}"


def load(environ: Mapping[str, str], **given: Any) -> Configuration:
    """All of it, read and valid, or a `ConfigurationError`; `given` as `gather` takes it."""
    configuration = gather(environ, **given)
    if configuration.mistakes:
        raise ConfigurationError(list(configuration.mistakes))
    return configuration


def gather(
    environ: Mapping[str, str],
    *,
    config: str | None = None,
    command_line: Mapping[Place, object] | None = None,
    directory: Path = Path(),
    secrets: Path = SECRETS,
) -> Configuration:
    """All of it that is valid, and what is not; a `ConfigurationError` if a file cannot even be read.

    `directory` holds the `.env`; `config` names the file.
    """
    environment = read_environment(environ, directory / ".env", secrets)
    origins: dict[Place, str] = {}
    mistakes: dict[Place, str] = {}
    references: dict[Place, str] = {}

    def mistaken(place: Place, text: str) -> None:
        mistakes.setdefault(place, located(origins, place, text))

    from_file: dict[str, Any] = {}
    named = config or environment.values.get("GATEWAY_CONFIG")
    if named:
        from_file, lines = read_file(Path(named), "--config" if config else "GATEWAY_CONFIG")
        origins.update({place: f"{Path(named).name} line {line}" for place, line in lines.items()})
        from_file = anchored(replaced(from_file, (), environment, references, mistaken), Path(named).parent)

    unknown: list[str] = []
    from_environment, names = from_names(environment, unknown)
    from_command_line: dict[str, Any] = {}
    for place, value in (command_line or {}).items():
        put(from_command_line, place, value)
        names[place] = f"--{place[-1]}"
    origins.update(names)
    layers = [from_command_line, from_environment, from_file]
    dropped: set[Place] = set()
    try:
        layers.append(_from_keys_file(layers, origins))
    except ConfigurationError as error:
        unknown += error.lines
        dropped.add(("access",))
    for place in names:
        references.pop(place, None)

    settings = None
    while settings is None:
        sources: dict[str, Any] = {"_build_sources": (tuple(InitSettingsSource(Settings, layer) for layer in layers), {})}
        try:
            settings = Settings(**sources)
        except ValidationError as error:
            before = len(dropped)
            for detail in error.errors(include_url=False):
                place, text = sentence(detail)
                if not any(place[:length] in mistakes for length in range(1, len(place) + 1)):  # a name that is not set is mistake enough
                    mistaken(place, text)
                dropped.add(_drop(layers, place))
            if len(dropped) == before:
                layers.clear()  # never seen, but a start must not hang
    return Configuration(settings, environment, named, origins, references, (*unknown, *mistakes.values()), frozenset(dropped))


def _drop(layers: list[dict[str, Any]], place: Place) -> Place:
    """Takes out what the mistake spoils: one provider or model, else a whole section."""
    spoilt = place[:2] if place[0] in ("providers", "models") else place[:1]
    for layer in layers:
        inner: Any = layer
        for part in spoilt[:-1]:
            inner = inner.get(part)
        if isinstance(inner, dict):
            inner.pop(spoilt[-1], None)
        elif inner is not None:
            layer.pop(str(spoilt[0]))
    return spoilt


def _from_keys_file(layers: list[dict[str, Any]], origins: dict[Place, str]) -> dict[str, Any]:
    """The callers of `access.keys_file` as settings under `access.keys`, so that mistakes in them read like all others."""
    sections = [section for layer in layers if isinstance(section := layer.get("access"), dict)]
    path = next((section["keys_file"] for section in sections if "keys_file" in section), None)
    if not isinstance(path, str):
        return {}
    keys, lines = read_keys(Path(path), located(origins, ("access", "keys_file"), "the file"))
    for place, line in lines.items():
        origins["access", "keys", *place] = f"{Path(path).name} line {line}"
    inline = {str(name) for section in sections if isinstance(section.get("keys"), dict) for name in section["keys"]}
    if twice := [name for name in keys if name in inline]:
        raise ConfigurationError([located(origins, ("access", "keys", name), "is in access.keys too: keep one of them") for name in twice])
    return {"access": {"keys": keys}}
