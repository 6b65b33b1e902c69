"""JSON text ↔ values, with a second reading for what providers get wrong.

https://www.rfc-editor.org/rfc/rfc8259

Deliberate oddities:
* `read` accepts what msgspec refuses (lone surrogates, raw control characters, NaN, numbers beyond a double, bad UTF-8, a leading BOM):
  one odd byte in a field nobody reads must not cost a whole answer. The stdlib is ten times slower and reads only what was refused.
* A lone surrogate stays in the text that was read: its other half may come in the next event.
* `write` escapes the three characters beyond ASCII at which naive clients cut lines.
"""

import json
import math
from typing import Any

import msgspec

Json = dict[str, Any]

DEEPEST = 500  # levels; the C code that reads and writes takes Python's recursion limit (1000) less the stack it is called from


class MalformedJson(ValueError):
    """No reading makes JSON of it."""


class Verbatim:
    """JSON that travels as it came: what is written is its `body`."""

    __slots__ = ("body",)

    def __init__(self, body: Json) -> None:
        self.body = body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verbatim) and type(other) is type(self) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]  # equality of JSON has no hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.body!r})"


def read(data: bytes | str) -> Any:
    """The value; `MalformedJson` if no reading makes one of it, or if it is nested too deeply to be written again."""
    try:
        value = msgspec.json.decode(data)
    except RecursionError as error:
        raise MalformedJson("the JSON is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = _read_again(data)
    brackets = data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")
    if brackets > DEEPEST and _depth(value) > DEEPEST:
        raise MalformedJson("the JSON is nested too deeply")
    return value


def write(value: Any) -> bytes:
    """Compact JSON, valid UTF-8 whatever the strings hold; floats that are no number become null."""
    try:
        written = _encoder.encode(value)
    except UnicodeEncodeError:
        written = _encoder.encode(_encodable(value))
    if written.isascii():
        return written
    # Beyond ASCII there are only strings, and UTF-8 never holds one character's bytes inside another's: replacing bytes is exact.
    return written.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")


def clean(text: str) -> str:
    """Halves of a surrogate pair that stand together become their character, a lone one becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _finite(number: str) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None


def _null(constant: str) -> None:
    return None


def _depth(value: Any) -> int:
    """Level by level, without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        lists = [list(outer.values()) if isinstance(outer, dict) else outer for outer in level if isinstance(outer, dict | list)]
        level = [inner for outer in lists for inner in outer]
    return depth


_lenient = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_null)


def _read_again(data: bytes | str) -> Any:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return _lenient.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of more than 4300 digits
        raise MalformedJson("the text is not JSON") from error


def _encodable(value: Any) -> Any:
    """The value with its strings cleaned, keys included; by way of text, so that no depth of nesting needs Python frames of ours."""
    return read(clean(json.dumps(msgspec.to_builtins(value, enc_hook=_builtin), ensure_ascii=False)))


def _builtin(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return read(bytes(value))
    if isinstance(value, Verbatim):
        return value.body
    raise TypeError(f"{type(value).__name__} has no JSON")


_encoder = msgspec.json.Encoder(enc_hook=_builtin)
