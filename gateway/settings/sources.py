"""Where settings come from: the environment, `.env`, the secrets directory, GATEWAY_* names and the YAML file.

Deliberate oddities:
* pydantic-settings' own readers are not used: the one of `.env` refuses every foreign name once unknown keys are forbidden, and
  the one of the environment ignores a mistyped name.
* YAML dates stay text, and keys are text whatever they look like.
"""

import io
import json
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from gateway.settings.mistakes import ConfigurationError, Place, close_match, dotted, inside, names_like
from gateway.settings.schema import PREFIX, Settings

LONGEST_TEXT = 1 << 20  # bytes of a file read here
MOST_KEYS = 100_000  # aliases can make a small file endless


@dataclass(frozen=True, slots=True)
class Environment:
    """Names and values, and where each was found."""

    values: Mapping[str, str] = field(repr=False)
    places: Mapping[str, str]

    def source(self, name: str) -> str:
        return f"{name} from {self.places[name]}"


def read_environment(environ: Mapping[str, str], dotenv: Path, secrets: Path) -> Environment:
    """The process's environment, completed from `.env`, then from the files of the secrets directory, named in capitals or not."""
    values, places = dict(environ), dict.fromkeys(environ, "the environment")
    found = [(name, text, ".env") for name, text in _dotenv(dotenv)]
    if secrets.is_dir():
        files = (path for path in sorted(secrets.iterdir()) if path.is_file() and re.fullmatch(r"[A-Za-z_]\w*", path.name))
        found += [(path.name.upper(), text.strip(), str(secrets)) for path in files if (text := _secret_text(path)) is not None]
    for name, text, place in found:
        if name not in values:
            values[name], places[name] = text, place
    return Environment(values, places)


def _secret_text(path: Path) -> str | None:
    """A secret that is not ours to read, or no text (a keystore), is no setting."""
    try:
        return path.read_text("utf-8") if path.stat().st_size <= LONGEST_TEXT else None
    except (OSError, UnicodeDecodeError):
        return None


def _dotenv(path: Path) -> Iterator[tuple[str, str]]:
    if not path.exists():
        return
    from dotenv.parser import parse_stream  # what pydantic-settings reads .env with; only where there is one

    text = _text(path, f"{path} (.env)")
    latest: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error or (binding.key is not None and binding.value is None):
            raise ConfigurationError([f".env line {binding.original.line}: expected NAME=value"])
        if binding.key is not None:
            latest[binding.key] = binding.value or ""
    yield from latest.items()


def _text(path: Path, called: str) -> str:
    """A file's text, or the sentence why there is none."""
    try:
        data = path.read_bytes()
        if len(data) <= LONGEST_TEXT:
            return data.decode("utf-8-sig")
        reason = "is larger than 1 MiB"
    except FileNotFoundError:
        reason = "does not exist"
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    raise ConfigurationError([f"{called} {reason}"])


class _Loader(yaml.SafeLoader):
    """`version: 2023-06-01` is text, not a date."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # the base class declares it
        first: [(tag, pattern) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_file(path: Path, named_by: str) -> tuple[dict[str, Any], dict[Place, int]]:
    """The YAML file's mapping, and the line of every key in it."""
    return _read_mapping(_text(path, f"{path} ({named_by})"), path.name, "`providers:`")


def read_keys(path: Path, called: str) -> tuple[dict[str, Any], dict[Place, int]]:
    """The same of a file of callers' keys; one without any would let everybody in."""
    mapping, lines = _read_mapping(_text(path, called), path.name, '`web: {sha256: "…"}`')
    if not mapping:
        raise ConfigurationError([f"{called} holds no keys: make one with `gateway key NAME`"])
    return mapping, lines


def _read_mapping(text: str, name: str, example: str) -> tuple[dict[str, Any], dict[Place, int]]:
    lines: dict[Place, int] = {}
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return {}, {}
        if not isinstance(node, yaml.MappingNode):
            raise ConfigurationError([f"{name} line {node.start_mark.line + 1}: expected a mapping such as {example}"])
        _walk(node, (), lines, (), name)
        mapping: dict[str, Any] = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError([_yaml_sentence(name, text, error)]) from None
    except yaml.YAMLError:
        raise ConfigurationError([f"{name}: contains a character that YAML does not allow"]) from None
    except RecursionError:
        raise ConfigurationError([f"{name}: is nested too deeply"]) from None
    return mapping, lines


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], above: tuple[yaml.Node, ...], name: str) -> None:
    line = node.start_mark.line + 1
    if node in above:
        raise ConfigurationError([f"{name} line {line}: a value contains itself"])
    if len(lines) > MOST_KEYS:
        raise ConfigurationError([f"{name}: has more than {MOST_KEYS} keys"])
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*place, index] = item.start_mark.line + 1
            _walk(item, (*place, index), lines, (*above, node), name)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigurationError([f"{name} line {line}: expected text as a key"])
            if key.tag == "tag:yaml.org,2002:merge":
                _walk(value, place, lines, (*above, node), name)
                continue
            if key.value in seen:
                where = dotted((*place, key.value))
                raise ConfigurationError([f"{name} line {line}: {where} is there twice, first in line {seen[key.value]}"])
            key.tag = "tag:yaml.org,2002:str"  # a model may be called 4 or on
            seen[key.value] = lines[*place, key.value] = line
            _walk(value, (*place, key.value), lines, (*above, node), name)


def _yaml_sentence(name: str, text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else 1
    # The problem's own quotations may be long or secret; what it says stands outside of them.
    problem = re.sub(r"'(?!<)[^']{12,}'", "something", error.problem or "cannot be understood")
    hint = ""
    written = text.splitlines()
    if any("${" in line for line in written[max(0, number - 2) : number]):
        hint = '; ${NAME} inside { } wants quotes: "${NAME}"'
    return f"{name} line {number}: is not YAML: {problem}{hint}"


_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?:(:-)([^}]*))?\}|\$\{")


def replaced(
    value: Any, place: Place, environment: Environment, references: dict[Place, str], mistake: Callable[[Place, str], None]
) -> Any:
    """The value with `${NAME}` and `${NAME:-default}` replaced in its strings; as in a shell's `:-`, empty is unset."""
    if isinstance(value, dict):
        return {key: replaced(item, (*place, key), environment, references, mistake) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, (*place, index), environment, references, mistake) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def text_of(match: re.Match[str]) -> str:
        name, has_default, default = match.groups()
        if name is None:
            mistake(place, "expected ${NAME} or ${NAME:-default}")
            return ""
        if text := environment.values.get(name):
            if match[0] == value:
                references[place] = name
            return text
        if has_default is None:
            mistake(place, f"${{{name}}} is not set: set {name}, or write ${{{name}:-default}}")
        return default or ""

    return _REFERENCE.sub(text_of, value)


def anchored(value: Any, folder: Path, kind: Any = Settings) -> Any:
    """The value with its relative paths taken from the folder of the file that names them, wherever the gateway was started."""
    if kind is Path and isinstance(value, str) and value:
        return str(folder / value)
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        try:
            found[key] = anchored(item, folder, inside(kind, key))
        except KeyError:
            found[key] = item  # unknown, which validation says
    return found


# A service called `gateway` makes Kubernetes set these in every container.
_KUBERNETES = re.compile(r"GATEWAY_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def from_names(environment: Environment, mistakes: list[str]) -> tuple[dict[str, Any], dict[Place, str]]:
    """The GATEWAY_* names as settings, and which name set which key."""
    settings: dict[str, Any] = {}
    origins: dict[Place, str] = {}
    for name, text in sorted(environment.values.items()):
        if not name.startswith(PREFIX) or name == "GATEWAY_CONFIG":
            continue
        if "GATEWAY_SERVICE_HOST" in environment.values and _KUBERNETES.fullmatch(name):
            continue
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        try:
            kind: Any = Settings
            for part in place:
                kind = inside(kind, part)
        except KeyError:
            known = ["GATEWAY_CONFIG", *(PREFIX + "__".join(parts).upper() for parts in names_like(Settings, place))]
            mistakes.append(f"{environment.source(name)}: unknown name{close_match(name, known)}")
            continue
        try:
            value = _read_value(kind, text, name)
        except ConfigurationError as error:
            mistakes += error.lines
            continue
        put(settings, place, value)
        origins.update(dict.fromkeys(_places(value, place), name))
    return settings, origins


def _read_value(kind: Any, text: str, name: str) -> Any:
    """Lists and mappings are JSON, a mapping also YAML, a list also `a,b`; everything else is text, which validation reads on."""
    mapping = typing.get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))
    listed = typing.get_origin(kind) in (list, tuple)
    if mapping or listed or kind is Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            if mapping:
                return _read_mapping(text, name, "`name: value`")[0]
            if listed:
                return [item.strip() for item in text.split(",") if item.strip()]
    return text


def put(settings: dict[str, Any], place: Place, value: object) -> None:
    for part in place[:-1]:
        inner = settings.get(str(part))
        settings[str(part)] = settings = inner if isinstance(inner, dict) else {}
    settings[str(place[-1])] = value


def _places(value: object, place: Place) -> Iterator[Place]:
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*place, index))
