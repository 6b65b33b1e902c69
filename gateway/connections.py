"""Providers of the configuration as connections: their rows, their addresses, their keys and what carries requests to them.

Without any provider in the file, the names that the vendors' own SDKs read make some, and without those the simulator answers.
"""

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from gateway.descriptions import description, misplaced
from gateway.formats import Auth, Preset, Provider, UpstreamFormat
from gateway.formats.anthropic import ANTHROPIC
from gateway.formats.anthropic.presets import PRESETS as CLAUDES
from gateway.formats.mapped import MappedFormat
from gateway.formats.openai import OPENAI
from gateway.formats.openai.presets import PRESETS as OPENAIS
from gateway.settings import Configuration
from gateway.settings.mistakes import Place, close_match, did_you_mean
from gateway.settings.schema import SIMULATOR, ProviderSettings, ServerSettings, base_url_text, is_key

UPSTREAMS: dict[str, UpstreamFormat] = {"anthropic": ANTHROPIC, "openai": OPENAI}
PRESETS: dict[str, dict[str, Preset]] = {"anthropic": CLAUDES, "openai": OPENAIS}
AUTHS: dict[str, Auth] = {"anthropic": "x-api-key", "openai": "bearer", "mapped": "bearer"}
NO_PRESET = Preset(None)


@dataclass(frozen=True, slots=True)
class Connection:
    """A provider and how it is reached; `key_source` says to people where its key came from."""

    provider: Provider
    format: UpstreamFormat
    transport: Literal["http", "simulator"] = "http"
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    key_source: str = "no key"


def connection(configuration: Configuration, name: str, settings: ProviderSettings, mistakes: list[str]) -> Connection:
    """A provider of the file."""
    place: Place = ("providers", name)
    misplaced(configuration, place, settings, mistakes)
    if settings.type == "mapped":
        format_: UpstreamFormat = MappedFormat(description(configuration, place, settings, mistakes))
    else:
        format_ = UPSTREAMS[settings.type]
    row, base_url, transport = _place(configuration, place, settings, mistakes)
    key, key_source = _key(configuration, place, settings, mistakes)
    proxy = settings.proxy.get_secret_value() if settings.proxy else None
    provider = Provider(
        name=name,
        base_url=base_url,
        key=key,
        auth=settings.auth or row.auth or AUTHS[settings.type],
        version=settings.version,
        headers={header: value.get_secret_value() for header, value in settings.headers.items()},
        query={parameter: value.get_secret_value() for parameter, value in settings.query.items()},
        body=settings.body,
        quirks=replace(row.quirks, **settings.quirks.model_dump(exclude_unset=True)),
        hidden=login(proxy) if proxy else (),
    )
    return Connection(
        provider,
        format_,
        transport,
        proxy,
        _ca_file(configuration, place, settings.ca_file, mistakes),
        "none needed" if transport == "simulator" and not key else key_source,
    )


def _place(
    configuration: Configuration, place: Place, settings: ProviderSettings, mistakes: list[str]
) -> tuple[Preset, str, Literal["http", "simulator"]]:
    """The row, the base URL and what carries requests to it."""
    kind = settings.type
    if kind == "mapped":
        return NO_PRESET, settings.url or "", "http"
    row = _row(kind, settings.base_url) if settings.preset is None else _preset(configuration, place, kind, settings.preset, mistakes)
    if settings.base_url is None and row is not None and row.base_url is None:
        mistakes.append(configuration.mistake((*place, "base_url"), f"is missing: preset {settings.preset} has no address of its own"))
    row = row or NO_PRESET
    if row.wants and row.wants[0] in (settings.base_url or "") and row.wants[1] not in settings.query:
        mistakes.append(configuration.mistake((*place, "query"), f"is missing {row.wants[1]}, which an address with {row.wants[0]} wants"))
    # A row's address is called as it stands: not everybody has a /v1.
    return (row, *(_address(kind, settings.base_url, row) if settings.base_url else (row.base_url or "", "http")))


def from_environment(configuration: Configuration, mistakes: list[str]) -> dict[str, Connection]:
    """Providers of the names that the vendors' own SDKs read: a key, or the address of a server that needs none."""
    environment, found = configuration.environment, {}
    for kind in UPSTREAMS:
        key_name, url_name = f"{kind.upper()}_API_KEY", f"{kind.upper()}_BASE_URL"
        key, url = (environment.values.get(name, "").strip() or None for name in (key_name, url_name))
        if key and not is_key(key):
            mistakes.append(f"{environment.source(key_name)}: expected a key of printable ASCII characters without spaces")
        try:
            row = _row(kind, url and base_url_text(url))
        except ValueError as error:
            mistakes.append(f"{environment.source(url_name)}: {error}")
            continue
        ours = url is not None and _is_here(url, configuration.settings.server)
        if key and ours:
            mistakes.append(f"{environment.source(url_name)}: is this gateway's own address, which is for its clients")
        # Without a key nobody answers at the vendor's address; and the gateway's own is there for other programs to find it.
        if not key and (row.base_url or ours):
            continue
        base_url, transport = _address(kind, url, row) if url else (row.base_url or "", "http")
        source = environment.source(key_name) if key else f"no key, {environment.source(url_name)}"
        found[kind] = Connection(
            Provider(kind, base_url, key, AUTHS[kind], quirks=row.quirks), UPSTREAMS[kind], transport, key_source=source
        )
    return found


def simulators() -> dict[str, Connection]:
    """The simulator twice, so that both of its formats can be tried."""
    found = {}
    for name, kind in {"simulator": "anthropic", "simulator-openai": "openai"}.items():
        base_url, transport = _address(kind, SIMULATOR, NO_PRESET)
        found[name] = Connection(Provider(name, base_url, auth=AUTHS[kind]), UPSTREAMS[kind], transport, key_source="none needed")
    return found


def resolved(kind: str, url: str, default_path: str = "/v1") -> str:
    """The base URL to which the format appends its own paths, from any of the forms in which people copy it."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if kind == "anthropic":
        path = path.removesuffix("/messages") if path.endswith("/v1/messages") else path
        path = path.removesuffix("/v1")
    else:
        path = path.removesuffix("/chat/completions") if path else default_path
    return urlunsplit((parts.scheme, parts.netloc, path.rstrip("/"), "", ""))


def login(proxy: str) -> tuple[str, ...]:
    """What of a proxy's URL must be hidden; with its user too, since a short password alone may be any word."""
    parts = urlsplit(proxy)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return (password, f"{user}:{password}") if password else ()


def _row(kind: str, base_url: str | None) -> Preset:
    """Without a preset: the vendor's own row at the vendor's own address, else the format as documented."""
    vendor = PRESETS[kind][kind]
    return vendor if base_url is None or resolved(kind, base_url) == vendor.base_url else NO_PRESET


def _preset(configuration: Configuration, place: Place, kind: str, name: str, mistakes: list[str]) -> Preset | None:
    if row := PRESETS[kind].get(name):
        return row
    other = next(other for other in PRESETS if other != kind)
    if name in PRESETS[other]:
        sentence = f"preset {name} is for type {other}"
    elif not close_match(name, list(PRESETS[kind])) and (close := close_match(name, list(PRESETS[other]))):
        sentence = f"unknown preset{close.removesuffix('?')}, which is for type {other}?"
    else:
        sentence = f"unknown preset{did_you_mean(name, PRESETS[kind])}"
    mistakes.append(configuration.mistake((*place, "preset"), sentence))
    return None


def _address(kind: str, url: str, row: Preset) -> tuple[str, Literal["http", "simulator"]]:
    """The base URL and what carries requests to it."""
    return (resolved(kind, "http://simulator"), "simulator") if url == SIMULATOR else (resolved(kind, url, row.path), "http")


def _is_here(url: str, server: ServerSettings) -> bool:
    """Whether that is where this gateway is about to listen."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return port == server.port and parts.hostname in ("localhost", "127.0.0.1", "::1", server.host)


def _key(configuration: Configuration, place: Place, settings: ProviderSettings, mistakes: list[str]) -> tuple[str | None, str]:
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
