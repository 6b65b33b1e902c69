"""JSON text ↔ values, with a second reading for what providers get wrong.

https://www.rfc-editor.org/rfc/rfc8259

Deliberate oddities:
* `read` accepts what msgspec refuses (lone surrogates, raw control characters, NaN, numbers beyond a double, bad UTF-8, a leading BOM):
  one odd byte in a field nobody reads must not cost a whole answer. The stdlib is ten times slower and reads only what was refused.
* The second reading is for texts up to `LENIENT_LIMIT`, and none is read that has more than `VALUES_LIMIT` values: reading is one call
  that nothing can interrupt, and whoever else is being served waits for it.
* A lone surrogate stays in the text that was read: its other half may come in the next event.
* `write` escapes the three characters beyond ASCII at which naive clients cut lines.
"""

import json
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

Json = dict[str, Any]

DEEPEST = 500  # levels; the C code that reads and writes takes Python's recursion limit (1000) less the stack it is called from
# Commas and opening brackets. A value of two bytes takes a hundred of memory and as long to read, look through and write as a long
# text: so many take some 50 ms, the eight million that fit into an event took seconds. Ten thousand messages have fewer.
VALUES_LIMIT = 100_000
LENIENT_LIMIT = 1024 * 1024  # bytes or characters; some 100 ms, with writing what it has read, which is ten times as slow too
UNREADABLE = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)  # what msgspec raises for a text that it does not take

T = TypeVar("T")


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
    """The value; `MalformedJson` if no reading makes one of it, if it has too many values, or is too deep to be written again."""
    if len(data) > DEEPEST:
        refuse_excess(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise MalformedJson("the JSON is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _read_again(data)


def read_typed(decode: Callable[[bytes], T], texts: list[bytes]) -> list[T] | None:
    """Each of them as `decode` reads it; None if it does not take one, or one is so long that it has to be looked through before."""
    if max(map(len, texts)) > DEEPEST:
        return None
    try:
        return list(map(decode, texts))
    except UNREADABLE:
        return None


def values(data: bytes) -> int:
    """How many values a JSON text has, by its commas and opening brackets; those of a huge one together with those in its strings."""
    outside = _outside_strings(data)
    return _count(data if outside is None else outside)


def write(value: Any) -> bytes:
    """Compact JSON, valid UTF-8 whatever the strings hold; floats that are no number become null."""
    try:
        written = _encoder.encode(value)
    except UnicodeEncodeError:
        written = _encoder.encode(_encodable(value))
    return written if written.isascii() else _unbroken(written)


def write_each(values: Sequence[Any]) -> list[bytes]:
    """What `write` makes of each, without a Python step for it."""
    try:
        written = list(map(_encoder.encode, values))
    except UnicodeEncodeError:
        return [write(value) for value in values]
    return [text if text.isascii() else _unbroken(text) for text in written]


def _unbroken(written: bytes) -> bytes:
    # Beyond ASCII there are only strings, and UTF-8 never holds one character's bytes inside another's: replacing bytes is exact.
    return written.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029").replace(b"\xc2\x85", b"\\u0085")


def merged(value: Json, over: Json) -> Json:
    """`over` wins; objects in both are merged."""
    whole = dict(value)
    for key, item in over.items():
        old = whole.get(key)
        whole[key] = merged(old, item) if isinstance(old, dict) and isinstance(item, dict) else item
    return whole


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


def refuse_excess(data: bytes) -> None:
    """`MalformedJson` for what `read` does not read, whoever reads it: too many values, or too deep.

    Looks at the text, for its values are what takes long. What stands in strings is left out only where it matters.
    """
    few = len(data) <= VALUES_LIMIT or _count(data) <= VALUES_LIMIT
    if few and data.count(b"[") + data.count(b"{") <= DEEPEST:
        return
    outside = _outside_strings(data)
    if not few and (outside is None or _count(outside) > VALUES_LIMIT):
        raise MalformedJson("the JSON has too many values")
    if outside is not None and _depth(outside) > DEEPEST:
        raise MalformedJson("the JSON is nested too deeply")


def _outside_strings(data: bytes) -> bytes | None:
    """None for more strings than may be values, each with a key that is one too."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # in this order: a backslash may itself be escaped
    if data.count(b'"') > 4 * (VALUES_LIMIT + 1):
        return None
    return b"".join(data.split(b'"')[::2])


def _count(text: bytes) -> int:
    return len(text.translate(None, _NO_VALUES))  # in one pass, and no slower where there are many


def _depth(outside: bytes) -> int:
    return max(accumulate(memoryview(outside.translate(_STEPS, _NO_BRACKETS)).cast("b")), default=0)


_NO_VALUES = bytes(byte for byte in range(256) if byte not in b",[{")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_lenient = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_null)


def _read_again(data: bytes | str) -> Any:
    if len(data) > LENIENT_LIMIT or not _is_closed(data):
        raise MalformedJson("the text is not JSON")
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        return _lenient.decode(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of more than 4300 digits
        raise MalformedJson("the text is not JSON") from error


def _is_closed(data: bytes | str) -> bool:
    """Nearly all that is no JSON was cut off, which is seen at its end, many times faster than by reading it once more."""
    ends = data[:1], data.rstrip()[-1:]
    return ends[1] in (b"}", "}") if ends[0] in (b"{", "{") else bool(ends[1])


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
