"""`check`: whether the configuration can be used, and what it comes to. Asks no provider; never shows a key."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields

from gateway.commands import Paint, configuration, seconds, table, url
from gateway.commands.serve import targets
from gateway.connections import AUTHS, Connection
from gateway.formats import Quirks
from gateway.formats.mapped import MappedFormat
from gateway.routing import Caller, Model
from gateway.rules import FEATURES, Rules
from gateway.settings.schema import SIMULATOR
from gateway.wiring import Access, Server, Wiring, wire


def run(arguments: Mapping[str, str | None]) -> int:
    read = configuration(arguments)
    print(report(wire(read), read.file, Paint(sys.stdout, os.environ)))
    return 0


def report(wiring: Wiring, file: str | None, paint: Paint) -> str:
    lines = [f"The configuration is valid ({file or 'no file'}).", "", paint("bold", "Providers")]
    lines += table([_provider(name, connection) for name, connection in wiring.providers.items()])
    lines += ["", paint("bold", "Models")]
    lines += table([(name, targets(model) + _own(model, wiring)) for name, model in wiring.models.items()])
    server, access = wiring.server, wiring.access
    if access.callers:
        lines += ["", paint("bold", "Callers"), *table([_caller(caller) for caller in access.callers])]
    rows = [
        ("timeouts", _times(asdict(wiring.timeouts))),
        ("retry", f"{wiring.retry.attempts} attempts, max_retry_after {seconds(wiring.retry.max_retry_after)}"),
        ("streaming", _times(asdict(wiring.streaming))),
        ("access", _access(access, server)),
        ("server", f"{url(server.host, server.port)}, " + _times({k: v for k, v in asdict(server).items() if k not in ("host", "port")})),
    ]
    return "\n".join([*lines, "", paint("bold", "Everything else"), *table(rows)])


def _access(access: Access, server: Server) -> str:
    who = "everybody who reaches the address (open)" if access.open or not server.loopback else "this machine only"
    if access.callers:
        who = "callers with a key, " + ("provider/model too" if access.direct_models else "the models above only")
    return f"{who}, {access.max_streams} streams, origins: {', '.join(access.origins) or 'its own'}"


def _caller(caller: Caller) -> tuple[str, ...]:
    models = "all models" if caller.models is None else ", ".join(sorted(caller.models))
    return caller.name, models, f"{caller.max_streams} streams" + (", /live" if caller.live else "")


def _provider(name: str, connection: Connection) -> tuple[str, ...]:
    provider = connection.provider
    address = SIMULATOR if connection.transport == "simulator" else provider.base_url
    remarks = [f"key: {connection.key_source}"]
    remarks += [f"{what}: {', '.join(named)}" for what, named in (("headers", provider.headers), ("query", provider.query)) if named]
    if provider.key and provider.auth != AUTHS[connection.format.name]:
        remarks.append(f"auth: {provider.auth}")
    if connection.proxy:
        remarks.append("through a proxy")
    if connection.ca_file:
        remarks.append(f"ca_file: {connection.ca_file}")
    if isinstance(connection.format, MappedFormat):
        remarks += connection.format.remarks
    plain = Quirks()
    odd = [quirk.name for quirk in fields(Quirks) if getattr(provider.quirks, quirk.name) != getattr(plain, quirk.name)]
    if odd:
        remarks.append("quirks: " + ", ".join(f"{name}={_shown(getattr(provider.quirks, name))}" for name in odd))
    return name, connection.format.name, address, "; ".join(remarks)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else ",".join(value) if isinstance(value, tuple) else str(value)


def _own(model: Model, wiring: Wiring) -> str:
    """Where the model's times and tries differ from everybody's, and its rules."""
    common = asdict(wiring.timeouts)
    parts = [f"{key} {seconds(value)}" for key, value in asdict(model.timeouts).items() if value != common[key]]
    if model.retry.attempts != wiring.retry.attempts:
        parts.append(f"{model.retry.attempts} attempts")
    if model.retry.max_retry_after != wiring.retry.max_retry_after:
        parts.append(f"max_retry_after {seconds(model.retry.max_retry_after)}")
    parts += _ruled(model.rules)
    return f" ({', '.join(parts)})" if parts else ""


def _ruled(rules: Rules) -> Iterator[str]:
    """What the alias says about its requests; its text may be long, so only its length."""
    if rules.system is not None:
        yield f"system {len(rules.system)} characters"
    if rules.default is not None:
        yield f"max_tokens {rules.default}"
    if rules.cap is not None:
        yield f"max_tokens at most {rules.cap}"
    if len(rules.allow) < len(FEATURES):
        yield f"allows {' and '.join(feature for feature in FEATURES if feature in rules.allow) or 'plain chats only'}"
    if rules.extra is not None:
        yield f"extra_allowed {' and '.join(sorted(rules.extra)) or 'none'}"


def _times(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"{key} {seconds(value)}" for key, value in values.items())
