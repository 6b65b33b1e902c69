"""One clear sentence for each mistake: where, from which source, what was expected. Never a value: it may be a misplaced key."""

import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union

from pydantic import BaseModel, SecretStr

from gateway.settings.schema import Settings

Place = tuple[str | int, ...]
"""Where a key stands: `("providers", "claude", "api_key")`."""


class ConfigurationError(Exception):
    """`lines`: one sentence for each mistake."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def dotted(place: Place) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or else what there is."""
    names = list(known)
    return close_match(word, names) or f"; known are {', '.join(names) or 'none'}"


def close_match(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def located(origins: Mapping[Place, str], place: Place, sentence: str) -> str:
    for length in range(len(place), 0, -1):
        if origin := origins.get(place[:length]):
            return f"{dotted(place)} ({origin}): {sentence}"
    return f"{dotted(place)}: {sentence}"


_EXPECTED = {
    "missing": "is missing",
    "string_type": "expected text; a number wants quotes",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "dict_type": "expected a mapping of keys to values",
    "model_type": "expected a mapping of keys to values",
    "model_attributes_type": "expected a mapping of keys to values",
    "path_type": "expected the path of a file",
    "too_short": "expected at least one",
    "string_too_short": "expected at least one character",
}


def sentence(detail: Any) -> tuple[Place, str]:
    """One of pydantic's errors as a place and what was expected there, never with the value that was found."""
    kind, context = detail["type"], detail.get("ctx", {})
    place: Place = tuple(part for part in detail["loc"] if part != "[key]")
    if kind == "extra_forbidden":
        return place, f"unknown key{did_you_mean(str(place[-1]), _keys(place[:-1]))}"
    if kind == "value_error":
        return place, str(context["error"])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        return place, f"expected {' or '.join(choices)}{close_match(str(detail['input']), choices)}"
    if kind == "missing" and (description := _description(place)):
        return place, f"is missing: {description[0].lower()}{description[1:].removesuffix('.')}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = "at least" if "ge" in context else "at most"
        return place, f"expected a whole number of {bound} {context.get('ge', context.get('le'))}"
    return place, _EXPECTED.get(kind) or str(detail["msg"]).replace("Input should be", "expected")


def _plain(kind: Any) -> Any:
    """The type without `Annotated` and without `| None`."""
    if typing.get_origin(kind) is Annotated:
        return _plain(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (Union, UnionType):
        return _plain(next(choice for choice in typing.get_args(kind) if choice is not type(None)))
    return kind


def inside(kind: Any, part: str | int) -> Any:
    """The type of what stands under `part` in a value of that type; KeyError where nothing may."""
    if kind is Any:
        return Any
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _plain(kind.model_fields[str(part)].annotation)
    if part != "" and typing.get_origin(kind) in (dict, list):
        return _plain(typing.get_args(kind)[-1])
    raise KeyError(part)


def _keys(place: Place) -> list[str]:
    kind: Any = Settings
    for part in place:
        kind = inside(kind, part)
    return list(kind.model_fields)


def _description(place: Place) -> str | None:
    kind: Any = Settings
    for part in place[:-1]:
        kind = inside(kind, part)
    description: str | None = kind.model_fields[str(place[-1])].description
    return description


def names_like(kind: Any, parts: Place) -> Iterator[tuple[str, ...]]:
    """The places that could be meant; where names are free, the one that was written."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for key, description in kind.model_fields.items():
            yield from ((key, *rest) for rest in names_like(_plain(description.annotation), parts[1:]))
    elif typing.get_origin(kind) is dict and typing.get_args(kind)[-1] not in (Any, SecretStr):
        if not parts:
            yield ()
        written = str(parts[0]) if parts else "name"
        yield from ((written, *rest) for rest in names_like(_plain(typing.get_args(kind)[-1]), parts[1:]))
    else:
        yield ()
