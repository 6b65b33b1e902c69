"""The list of models: whole for who knows of no pages, in pages for who asks for them."""

import pytest

from gateway.errors import RequestRefused
from gateway.model_list import entry, page

NAMES = ("default", "fast", "a/b", "slow")


def ids(document: dict) -> list[str]:
    return [row["id"] for row in document["data"]]


def ends(document: dict) -> tuple:
    return document["first_id"], document["last_id"], document["has_more"]


def test_the_list_is_whole_where_nobody_asks_for_less() -> None:
    document = page(NAMES, {}, 0)
    assert ids(document) == list(NAMES)
    assert ends(document) == ("default", "slow", False)
    assert document["object"] == "list"


def test_an_empty_list_has_no_ends() -> None:
    assert page((), {}, 0) == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}
    assert page((), {"limit": "5"}, 0)["has_more"] is False


@pytest.mark.parametrize(
    ("asked", "shown", "more"),
    [
        ({"limit": "2"}, NAMES[:2], True),
        ({"limit": "4"}, NAMES, False),
        ({"limit": "1000"}, NAMES, False),
        ({"limit": "2", "after_id": "fast"}, NAMES[2:], False),
        ({"limit": "1", "after_id": "fast"}, ("a/b",), True),
        ({"after_id": "default"}, NAMES[1:], False),
        ({"after_id": "slow"}, (), False),
        ({"limit": "2", "before_id": "slow"}, ("fast", "a/b"), True),
        ({"limit": "3", "before_id": "slow"}, NAMES[:3], False),
        ({"before_id": "a/b"}, NAMES[:2], False),
        ({"before_id": "default"}, (), False),
        ({"unknown": "parameter"}, NAMES, False),
    ],
)
def test_a_page_is_what_was_asked_for(asked: dict[str, str], shown: tuple[str, ...], more: bool) -> None:
    document = page(NAMES, asked, 0)
    assert ids(document) == list(shown)
    assert ends(document) == (shown[0] if shown else None, shown[-1] if shown else None, more)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "", "many", "1.5", "٣", "00000000011", "9" * 5000])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    with pytest.raises(RequestRefused, match=r"^limit: it must be a whole number from 1 to 1000\.$"):
        page(NAMES, {"limit": limit}, 0)


@pytest.mark.parametrize("field", ["after_id", "before_id"])
def test_a_place_that_is_not_in_the_list_is_refused(field: str) -> None:
    with pytest.raises(RequestRefused, match=f"^{field}: ") as refused:
        page(NAMES, {field: "nobody"}, 0)
    assert refused.value.status == 400


def test_an_entry_is_a_model_of_both_vendors() -> None:
    said = entry("a/b", 1_764_504_000)
    assert (said["object"], said["created"], said["owned_by"]) == ("model", 1_764_504_000, "gateway")
    assert (said["type"], said["created_at"], said["display_name"]) == ("model", "2025-11-30T12:00:00Z", "a/b")
    assert said["max_tokens"] is None
