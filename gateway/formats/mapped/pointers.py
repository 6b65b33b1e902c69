"""JSON pointers (https://www.rfc-editor.org/rfc/rfc6901): where in a value something stands."""

import re
from typing import Any

Pointer = tuple[str, ...]
"""The steps from the whole value inwards, unescaped; none of them points at the whole value."""

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def pointer(text: str) -> Pointer:
    if not _POINTER.fullmatch(text):
        raise ValueError("expected a JSON pointer such as /choices/0/text; in a name, ~1 stands for / and ~0 for ~")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:])


def find(steps: Pointer, value: Any) -> Any:
    """What stands there; None where nothing does, as for a null."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
