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
from gateway.settings.sources import Environment, from_names, put, read_environment, read_file, read_keys, replaced

__all__ = ["Configuration", "ConfigurationError", "Environment", "Settings", "load"]

SECRETS = Path("/run/secrets")  # where Docker and Kubernetes put them


@dataclass(frozen=True, slots=True)
class Configuration:
    """Valid settings and their origins; `references`: keys whose value in the file is one `${NAME}`."""

    settings: Settings
    environment: Environment
    file: str | None = None
    origins: Mapping[Place, str] = field(default_factory=dict)
    references: Mapping[Place, str] = field(default_factory=dict)

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


def load(
    environ: Mapping[str, str],
    *,
    config: str | None = None,
    command_line: Mapping[Place, object] | None = None,
    directory: Path = Path(),
    secrets: Path = SECRETS,
) -> Configuration:
    """All of it, read and valid, or a `ConfigurationError`. `directory` holds the `.env`; `config` names the file."""
    environment = read_environment(environ, directory / ".env", secrets)
    origins: dict[Place, str] = {}
    mistakes: list[str] = []
    references: dict[Place, str] = {}

    from_file: dict[str, Any] = {}
    named = config or environment.values.get("GATEWAY_CONFIG")
    if named:
        from_file, lines = read_file(Path(named), "--config" if config else "GATEWAY_CONFIG")
        origins.update({place: f"{Path(named).name} line {line}" for place, line in lines.items()})
        from_file = replaced(from_file, (), environment, references, lambda place, text: mistakes.append(located(origins, place, text)))

    from_environment, names = from_names(environment, mistakes)
    from_command_line: dict[str, Any] = {}
    for place, value in (command_line or {}).items():
        put(from_command_line, place, value)
        names[place] = f"--{place[-1]}"
    origins.update(names)
    from_keys_file = _from_keys_file((from_command_line, from_environment, from_file), origins, mistakes)
    for place in names:
        references.pop(place, None)

    if not mistakes:
        layers = tuple(InitSettingsSource(Settings, layer) for layer in (from_command_line, from_environment, from_file, from_keys_file))
        sources: dict[str, Any] = {"_build_sources": (layers, {})}
        try:
            settings = Settings(**sources)
        except ValidationError as error:
            mistakes += [located(origins, *sentence(detail)) for detail in error.errors(include_url=False)]
        else:
            return Configuration(settings, environment, named, origins, references)
    raise ConfigurationError(mistakes) from None


def _from_keys_file(
    layers: tuple[dict[str, Any], ...], origins: dict[Place, str], mistakes: list[str]
) -> dict[str, Any]:
    """The callers of `access.keys_file` as settings under `access.keys`, so that mistakes in them read like all others."""
    sections = [section for layer in layers if isinstance(section := layer.get("access"), dict)]
    path = next((section["keys_file"] for section in sections if "keys_file" in section), None)
    if not isinstance(path, str):
        return {}
    try:
        keys, lines = read_keys(Path(path), located(origins, ("access", "keys_file"), "the file"))
    except ConfigurationError as error:
        mistakes += error.lines
        return {}
    for place, line in lines.items():
        origins["access", "keys", *place] = f"{Path(path).name} line {line}"
    inline = {str(name) for section in sections if isinstance(section.get("keys"), dict) for name in section["keys"]}
    mistakes += [located(origins, ("access", "keys", name), "is in access.keys too: keep one of them") for name in keys if name in inline]
    return {"access": {"keys": keys}}
