"""What may be set: every key with its default and a sentence. A key whose behaviour does not exist is not here."""

import ipaddress
import re
import typing
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, SecretStr, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway.chat import WRITTEN
from gateway.formats import Auth, Quirks
from gateway.formats.mapped.description import StopReason
from gateway.formats.mapped.pointers import pointer
from gateway.rules import Feature

SIMULATOR = "simulator:"
PREFIX = "GATEWAY_"
LONGEST_DURATION = 7 * 86_400.0  # Linux counts tcp_user_timeout in milliseconds, in 31 bits

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_EXPECTED = "a name of letters, digits, '.', '_' and '-', at most 64"
_ALIAS = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")
_TARGET = re.compile(r"[^/\s]+/[^\x00-\x20\x7f]+")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_KEY = re.compile(r"[\x21-\x7e]+")
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
_NO_TARGET = "expected provider/model"
_NO_HASH = "expected the SHA-256 of a key, 64 hexadecimal digits, as `gateway key NAME` writes it"


def _seconds(least: float, *, none: bool = False) -> PlainValidator:
    """Reads a duration of at least `least` seconds, or with `none` also its absence."""
    or_none = ", or none" if none else ""
    expected = f"expected a duration such as 500ms, 15s or 2m, or a number of seconds, from {least:g}s to 7 days{or_none}"

    def read(value: object) -> float | None:
        if none and (value is None or value == "none"):
            return None
        seconds = -1.0
        if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
            seconds = float(match[1]) * _UNITS[match[2] or "s"]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        if not least <= seconds <= LONGEST_DURATION:  # false for NaN as well
            raise ValueError(expected)
        return seconds

    return PlainValidator(read, json_schema_input_type=str | float | None if none else str | float)


def _matching(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def _secret(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: SecretStr) -> SecretStr:
        if not pattern.fullmatch(value.get_secret_value()):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


def is_name(text: str) -> bool:
    """Whether a caller may be called so."""
    return _NAME.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Whether it can stand in a header as it is."""
    return _KEY.fullmatch(text) is not None


def http_url(value: str) -> str:
    """`value` if it is an http(s) URL with nothing besides scheme, host, port and path."""
    expected = "expected an http:// or https:// URL with a host and without user name, query or fragment"
    try:
        parts = urlsplit(value)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(expected) from None
    if well_formed and "?" in value:
        raise ValueError("expected a URL without a query: what follows the ? goes under query, as {name: value}")
    if not well_formed or "@" in parts.netloc or "#" in value or not _KEY.fullmatch(value):
        raise ValueError(expected)
    return value


def base_url_text(value: str) -> str:
    """`value` if it may stand as a base URL: an http(s) one, or `simulator:`."""
    return value if value == SIMULATOR else http_url(value)


def _proxy(value: SecretStr) -> SecretStr:
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected the http:// or https:// URL of a proxy")
    return value


def _origin(value: str) -> str:
    """As browsers write it: lower case, without the scheme's own port."""
    try:
        parts = urlsplit(http_url(value))
        port = parts.port
    except ValueError:
        port, parts = None, urlsplit("")
    if not parts.hostname or parts.path:
        raise ValueError("expected an origin such as https://app.example.com: scheme, host and port, no path and no *")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" if port in (None, default) else f"{parts.scheme}://{host}:{port}"


def _host(value: str) -> str:
    host = value.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host != "localhost":
            raise ValueError("expected localhost or an IP address such as 127.0.0.1, ::1 or 0.0.0.0") from None
    return host


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _target(value: object) -> object:
    # Checked here as well, where the place is still what the file has: without a `.target` that nobody wrote.
    if isinstance(value, str) and not _TARGET.fullmatch(value):
        raise ValueError(_NO_TARGET)
    return {"target": value} if isinstance(value, str) else value


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


if TYPE_CHECKING:
    QuirkSettings = Closed
else:
    _hints = typing.get_type_hints(Quirks)
    QuirkSettings = create_model(
        "QuirkSettings",
        __base__=Closed,
        __doc__=Quirks.__doc__,
        **{quirk.name: (_hints[quirk.name], quirk.default) for quirk in fields(Quirks) if quirk.default is not MISSING},
    )


def _pointer(value: str) -> str:
    pointer(value)
    return value


JsonPointer = Annotated[str, AfterValidator(_pointer)]
Key = Annotated[SecretStr, _secret(re.compile(r"|[\x21-\x7e]+"), "expected a key of printable ASCII characters without spaces")]
HeaderName = Annotated[str, _matching(_HEADER, "expected a header's name")]
HeaderValue = Annotated[SecretStr, _secret(_HEADER_VALUE, "expected printable ASCII characters on one line")]
ProviderName = Annotated[str, _matching(_NAME, "expected a name of letters, digits, '.', '_' and '-', at most 64, without '/'")]
CallerName = Annotated[str, _matching(_NAME, f"expected {NAME_EXPECTED}")]
Alias = Annotated[str, _matching(_ALIAS, "expected a name without spaces, at most 128 characters")]


class UsageSettings(Closed):
    """Where the counts of tokens stand; what is told later replaces what was told before."""

    input_tokens: JsonPointer | None = Field(default=None, description="A JSON pointer to the tokens of the request.")
    output_tokens: JsonPointer | None = Field(default=None, description="A JSON pointer to the tokens of the answer so far.")


class ProviderSettings(Closed):
    """A service that is asked for answers. From `url` on: keys of type mapped, for a format that is described here."""

    type: Literal["anthropic", "openai", "mapped"] = Field(description="The format it speaks.")
    api_key: Key | None = Field(default=None, description="Its key; none for a server that wants none.")
    api_key_file: Path | None = Field(default=None, description="A file that holds the key, instead of api_key.")
    base_url: Annotated[str, AfterValidator(base_url_text)] | None = Field(
        default=None, description="Where it is; by default the preset's address, or the vendor's. `simulator:` is the built-in one."
    )
    preset: str | None = Field(default=None, description="A known look-alike: its address and its quirks.")
    quirks: QuirkSettings = Field(default_factory=QuirkSettings, description="Single fields of the preset's row, set differently.")
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, description="Further headers of each request.")
    query: dict[str, SecretStr] = Field(default_factory=dict, description="Query parameters of each request.")
    body: dict[str, Any] = Field(default_factory=dict, description="Keys merged into the body of each request.")
    auth: Auth | None = Field(
        default=None, description="The header the key goes into; by default the preset's, else x-api-key for anthropic, bearer for others."
    )
    version: Annotated[str, _matching(_KEY, "expected a version such as 2023-06-01")] = Field(
        default="2023-06-01", description="The anthropic-version header."
    )
    proxy: Annotated[SecretStr, AfterValidator(_proxy)] | None = Field(default=None, description="An HTTP proxy to go through.")
    ca_file: Path | None = Field(default=None, description="A PEM file of the authorities that its certificate is checked against.")
    url: Annotated[str, AfterValidator(http_url)] | None = Field(default=None, description="Where a chat is posted, as it stands.")
    request: dict[str, Any] | None = Field(
        default=None, description="The body of a request, with placeholders such as $messages, $prompt, $model and $max_tokens."
    )
    framing: Literal["json", "text"] = Field(
        default="json",
        description="json: Server-Sent Events, JSON lines or one document, whichever comes; text: the body is the answer's text.",
    )
    text: JsonPointer | None = Field(default=None, description="A JSON pointer to the answer's text in each chunk.")
    reasoning: JsonPointer | None = Field(default=None, description="A JSON pointer to the thinking.")
    cumulative: bool = Field(default=False, description="Whether each chunk repeats all text so far.")
    finish: JsonPointer | None = Field(
        default=None, description="A JSON pointer to what says that the answer is finished; without it, the end of the body does."
    )
    stop_reasons: dict[str, StopReason] = Field(default_factory=dict, max_length=100, description="What the values at finish mean.")
    usage: UsageSettings = Field(default_factory=UsageSettings, description="Where the counts of tokens stand.")
    error: JsonPointer | None = Field(default=None, description="A JSON pointer to what is only there if something went wrong.")
    roles: dict[Literal["system", "user", "assistant"], str] = Field(
        default_factory=dict, description="What the provider calls system, user and assistant."
    )


class TargetSettings(Closed):
    target: Annotated[str, _matching(_TARGET, _NO_TARGET)] = Field(description="provider/model.")


class ModelTimeouts(Closed):
    """How long a provider may take; a model may have its own."""

    connect: Annotated[float, _seconds(0.001)] = Field(default=5.0, description="Until the connection stands.")
    first_token: Annotated[float | None, _seconds(0.001, none=True)] = Field(default=None, description="Until the answer begins.")
    idle: Annotated[float | None, _seconds(0.001, none=True)] = Field(default=300.0, description="Without a byte.")
    total: Annotated[float | None, _seconds(0.001, none=True)] = Field(default=None, description="For the whole answer.")
    finish: Annotated[float, _seconds(0)] = Field(default=2.0, description="Between a stop reason and the end of the stream.")


class TimeoutSettings(ModelTimeouts):
    """How long things may take."""

    write: Annotated[float, _seconds(0.001)] = Field(default=15.0, description="For one write to a client that does not read.")


class RetrySettings(Closed):
    """What is tried again before an answer has begun."""

    attempts: int = Field(default=2, ge=1, le=20, description="Tries in total on one target.")
    max_retry_after: Annotated[float, _seconds(0)] = Field(default=10.0, description="The longest Retry-After that is waited for.")


class MaxTokensSettings(Closed):
    """How long an answer may be, in tokens."""

    default: int | None = Field(default=None, ge=1, description="For who asks for none; else the cap, else 8192 for Claude.")
    cap: int | None = Field(default=None, ge=1, description="What more is lowered to.")


def _passable(key: str) -> str:
    if key in WRITTEN:
        raise ValueError("the gateway writes this key itself: no caller can send another one past it")
    return key


class ModelSettings(Closed):
    """A name that callers use, and what stands behind it."""

    targets: list[Annotated[TargetSettings, BeforeValidator(_target, json_schema_input_type=str | TargetSettings)]] = Field(
        min_length=1, max_length=100, description="provider/model, in the order in which they are tried."
    )
    timeouts: ModelTimeouts = Field(default_factory=ModelTimeouts, description="Where they differ from the global ones.")
    retry: RetrySettings = Field(default_factory=RetrySettings, description="Where it differs from the global one.")
    system: str | None = Field(default=None, min_length=1, description="A text that is put before the caller's own system prompt.")
    max_tokens: MaxTokensSettings = Field(default_factory=MaxTokensSettings, description="How long an answer may be.")
    allow: list[Feature] | None = Field(default=None, max_length=100, description="What callers may use; by default everything.")
    extra_allowed: list[Annotated[str, AfterValidator(_passable)]] | None = Field(
        default=None,
        max_length=1000,
        description="The request keys beyond the vocabulary that callers may send, in extra and in other formats; "
        "by default all, or, where callers have keys, those that the format documents and that cost nothing extra.",
    )


class StreamingSettings(Closed):
    """How answers are streamed."""

    heartbeat: Annotated[float, _seconds(0.1)] = Field(default=15.0, description="The longest silence towards a client.")
    commit_after: Annotated[float, _seconds(0)] = Field(default=5.0, description="When headers go out although nothing was said yet.")


class CallerSettings(Closed):
    """Somebody who may call, known by a key of which only the hash is written down: `gateway key NAME` makes both."""

    sha256: Annotated[str, _matching(_SHA256, _NO_HASH)] = Field(description="The SHA-256 of the key, in hexadecimal digits.")
    models: list[str] | None = Field(default=None, min_length=1, max_length=1000, description="The only models it may use; by default all.")
    max_streams: int | None = Field(default=None, ge=1, le=1_000_000, description="Its streams at once; else max_streams_per_caller.")
    live: bool = Field(default=False, description="Whether it may read /live, where everybody's streams are seen.")


class AccessSettings(Closed):
    """Who may call, and how much."""

    keys_file: Path | None = Field(default=None, description="A YAML file of callers, in the form of keys.")
    keys: dict[CallerName, CallerSettings] = Field(default_factory=dict, max_length=1000, description="Callers, by a name of your choice.")
    open: bool = Field(default=False, description="While there are no keys: lets anybody call who reaches an address beyond this machine.")
    direct_models: bool = Field(default=False, description="Whether callers with keys may name provider/model, not only the models here.")
    origins: list[Annotated[str, AfterValidator(_origin)]] = Field(
        default_factory=list, max_length=1000, description="Web pages that may call, besides the gateway's own: https://app.example.com."
    )
    max_streams: int = Field(default=1000, ge=1, le=1_000_000, description="Streams at once.")
    max_streams_per_caller: int = Field(default=20, ge=1, le=1_000_000, description="Streams at once of each caller with a key.")


class ServerSettings(Closed):
    """The listening socket and its end."""

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="127.0.0.1", description="The address to listen on; one that other machines reach only with access.keys or access.open."
    )
    port: int = Field(default=8000, ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")
    shutdown_grace: Annotated[float, _seconds(0)] = Field(default=8.0, description="How long running streams may go on after a stop.")
    drain_delay: Annotated[float, _seconds(0)] = Field(default=0.0, description="How long to go on listening after a stop.")
    keep_alive: Annotated[float, _seconds(0.001)] = Field(default=75.0, description="How long an idle connection is kept.")
    tcp_user_timeout: Annotated[float | None, _seconds(0.001, none=True)] = Field(
        default=None, description="When a client that vanished is given up; by default, and at least, timeouts.write + 5 s."
    )


class Settings(BaseSettings):
    """Everything that may be set."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, env_prefix=PREFIX, env_nested_delimiter="__", title="Chat Stream Gateway"
    )

    providers: dict[ProviderName, ProviderSettings] = Field(default_factory=dict, description="Services, by a name of your choice.")
    models: dict[Alias, ModelSettings] = Field(default_factory=dict, description="What callers may name, besides provider/model.")
    streaming: StreamingSettings = Field(default_factory=StreamingSettings)
    timeouts: TimeoutSettings = Field(default_factory=TimeoutSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    access: AccessSettings = Field(default_factory=AccessSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
