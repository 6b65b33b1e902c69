"""What goes out to each preset is written down; a change of a row, or of a format, shows as a diff of what providers get."""

import pytest

from tests.golden.preset_requests import HERE, ROWS, file, written


@pytest.mark.parametrize(("kind", "name"), ROWS)
def test_a_preset_is_asked_so(kind: str, name: str) -> None:
    assert written(kind, name) == file(kind, name).read_text("utf-8")


def test_no_file_is_left_of_a_preset_that_is_gone() -> None:
    assert {path.name for path in HERE.iterdir()} == {file(*row).name for row in ROWS}
