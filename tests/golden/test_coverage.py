"""COVERAGE.md says which case shows what, and where it is seen: all of it must be true, and no case unnamed."""

import re

import pytest

from tests.golden.cases import CLIENTS, HERE, STREAMS, WHOLE

ROW = re.compile(r"\| (?P<what>.+?) \| (?P<case>[\w./-]+) \| `(?P<file>[\w.-]+)` (?P<tick>`+)(?P<text>.*?)(?P=tick) \|")
TEXT = (HERE / "COVERAGE.md").read_text("utf-8")
LINES = [line for line in TEXT.split("\n") if line.startswith("| ") and not line.startswith("| what |")]
ROWS = [found.groups() for line in LINES if (found := ROW.fullmatch(line))]


@pytest.mark.parametrize(("what", "case", "file", "text"), [(what, case, file, text) for what, case, file, _, text in ROWS])
def test_a_row_is_seen_where_it_says(what: str, case: str, file: str, text: str) -> None:
    assert text in (HERE / case / file).read_text("utf-8"), what


def test_every_line_of_the_tables_is_read_and_every_case_named() -> None:
    assert len(ROWS) == len(LINES)
    assert {case for _, case, *_ in ROWS} == {*STREAMS, *CLIENTS, *(f"http/{name}" for name in WHOLE)}
