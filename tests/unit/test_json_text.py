"""What providers get wrong in JSON, read all the same; and what we write, safe for the naive."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_text import DEEPEST, LENIENT_LIMIT, VALUES_LIMIT, MalformedJson, Verbatim, clean, read, values, write


class Note(msgspec.Struct):
    text: str
    more: Any = None


any_text = st.text(st.characters(codec=None) | st.sampled_from('\ud83d\ude00\u2028\u2029\x85\ufeff\0"\\'))
any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[1,2.5,"x",null,true]}', {"a": [1, 2.5, "x", None, True]}),
        (b'"\\ud83d"', "\ud83d"),
        (b'{"a":"A\\udcafB"}', {"a": "A\udcafB"}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b"[NaN,Infinity,-Infinity]", [None, None, None]),
        (b"[1e999,-1e999,NaN,1.5]", [None, None, None, 1.5]),
        (b'{"a":{"b":NaN},"c":"x"}', {"a": {"b": None}, "c": "x"}),
        (b'"a\tb\nc\x00d"', "a\tb\nc\0d"),
        (b'"caf\xe9"', "caf\ufffd"),
        (b'"\xed\xa0\xbd"', "\ufffd\ufffd\ufffd"),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b"18446744073709551616", 2**64),
        ('{"a":"\u2028"}', {"a": "\u2028"}),
        ('"\ud800"', "\ud800"),
    ],
)
def test_what_providers_send_is_read(text: bytes | str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b'{"a":1',
        b"{} x",
        b"[DONE]",
        b"<html>",
        b"{'a':1}",
        b"\xff",
        b"nan",
        b"9" * 5000,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        "",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_json_is_malformed(text: bytes | str) -> None:
    with pytest.raises(MalformedJson):
        read(text)


def test_a_malformed_text_is_not_quoted_in_the_message() -> None:
    with pytest.raises(MalformedJson) as caught:
        read(b'{"secret": ')
    assert "secret" not in str(caught.value)


def test_writing_is_compact() -> None:
    assert write({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'.encode()


def test_the_line_separators_of_naive_clients_are_written_as_escapes() -> None:
    written = write({"a\u2028": "x\u2028y\u2029z\x85…"})
    assert written == b'{"a\\u2028":"x\\u2028y\\u2029z\\u0085\xe2\x80\xa6"}'
    assert json.loads(written) == {"a\u2028": "x\u2028y\u2029z\x85…"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_no_number_is_written_as_null(value: float) -> None:
    assert write([value]) == b"[null]"
    assert write([value, "\ud800"]) == '[null,"\ufffd"]'.encode()


def test_a_lone_surrogate_is_replaced_wherever_it_stands() -> None:
    value = {"\udc00": [Note("a\ud83db", more={"k": ("\udfff", msgspec.Raw(b'{"raw":1}'))})]}
    assert read(write(value)) == {"\ufffd": [{"text": "a\ufffdb", "more": {"k": ["\ufffd", {"raw": 1}]}}]}


def test_a_deep_value_with_a_lone_surrogate_is_written() -> None:
    value: Any = "\ud800"
    for _ in range(400):
        value = [value]
    assert write(value) == b"[" * 400 + '"\ufffd"'.encode() + b"]" * 400


def test_what_has_no_json_is_a_type_error_even_beside_a_lone_surrogate() -> None:
    with pytest.raises(TypeError):
        write([object()])
    with pytest.raises(TypeError):
        write(["\ud800", object()])


def test_what_travels_verbatim_is_written_as_its_body() -> None:
    assert write([Verbatim({"type": "x", "n": [1]})]) == b'[{"type":"x","n":[1]}]'
    assert write([Verbatim({"t": "\ud800"})]) == '[{"t":"\ufffd"}]'.encode()


def test_what_travels_verbatim_is_equal_by_kind_and_body() -> None:
    class Other(Verbatim):
        pass

    assert Verbatim({"a": 1}) == Verbatim({"a": 1})
    assert Verbatim({"a": 1}) != Verbatim({"a": 2})
    assert Verbatim({"a": 1}) != Other({"a": 1})
    assert repr(Other({"a": 1})) == "Other({'a': 1})"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("\U0001f600", "\U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\ud83db", "\ufffdb"),
        ("\ude00", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
def test_lone_surrogates_are_cleaned_and_halves_that_meet_are_joined(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(any_text)
def test_cleaned_text_is_always_valid_and_as_it_was_where_it_was_valid(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


@given(any_value)
def test_any_value_is_written_and_read_back(value: Any) -> None:
    written = write(value)
    assert all(mark not in written.decode() for mark in "\n\r\u2028\u2029\x85")
    assert write(read(written)) == written


@given(st.binary() | any_text)
def test_any_bytes_are_read_or_malformed(data: bytes | str) -> None:
    try:
        value = read(data)
    except MalformedJson:
        return
    write(value)


def test_what_can_be_read_can_be_written_again_from_a_deeper_stack() -> None:
    deepest = b"[" * 500 + b"]" * 500
    assert read(deepest[1:-1]) is not None

    def from_below(levels: int) -> bytes:
        return from_below(levels - 1) if levels else write(read(deepest[1:-1]))

    assert from_below(200) == deepest[1:-1]
    with pytest.raises(MalformedJson):
        read(b"[" + deepest + b"]")


@pytest.mark.parametrize("value", ["[]", "{}", "1", "1.5", '"a"', '{"a":"b"}', '"\\\\"', '"\\""', "\n[]"])
def test_more_values_than_any_answer_has_are_malformed_however_short_and_no_reader_sees_them(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = value.count("[") + value.count("{") + 1
    fits = "[" + ",".join([value] * (VALUES_LIMIT // each)) + "]"
    assert len(read(fits)) == VALUES_LIMIT // each
    monkeypatch.setattr(msgspec.json, "decode", None)
    for text in (fits[:-1] + "," + fits[1:], '["\ud800",' + fits[1:-1] + "," + fits[1:]):
        with pytest.raises(MalformedJson):
            read(text)
        with pytest.raises(MalformedJson):
            read(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("text", ["a, b, [c], {d} ", '\\"[', "\\\\[,", '[\\\\\\",'])
def test_what_stands_in_a_string_is_no_value(text: str) -> None:
    said = '{"a":"' + text * VALUES_LIMIT + '","b":[' + "1," * 1000 + "1]}"
    assert len(read(said)["b"]) == 1001
    assert len(read(said.encode())["b"]) == 1001


@given(any_value)
def test_values_are_counted_by_their_commas_and_brackets(value: Any) -> None:
    def count(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return isinstance(value, dict | list) + max(0, len(inner) - 1) + sum(map(count, inner))

    assert values(write(value)) == count(json.loads(write(value)))


@pytest.mark.parametrize("inner", ["1", '"\\ud800"'])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"[[[":"\\"[[[","a":', "}]")])
def test_depth_is_that_of_brackets_outside_strings_for_either_reading(opening: str, closing: str, inner: str) -> None:
    levels = DEEPEST // len(closing)
    assert read(opening * levels + inner + closing * levels)
    with pytest.raises(MalformedJson):
        read(opening * (levels + 1) + inner + closing * (levels + 1))


def test_the_second_reading_is_for_texts_of_bounded_length() -> None:
    assert read('"\\ud800' + "a" * (LENIENT_LIMIT - 8) + '"')
    with pytest.raises(MalformedJson):
        read('"\\ud800' + "a" * LENIENT_LIMIT + '"')


def test_what_was_cut_off_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.json_text._lenient", None)
    for text in (b'{"a":1', b"{x", '{"a":{"b":"c" '):
        with pytest.raises(MalformedJson):
            read(text)
