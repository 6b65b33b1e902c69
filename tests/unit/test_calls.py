"""Calls and results of a history: what is well-formed stays as it is, what is not is put right, and ids fit."""

import re
import sys
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import Message
from gateway.formats.calls import NOT_CARRIED_OUT, SHAPES, WITHOUT_CALL, Ids, paired

Json = dict[str, Any]
HI = Message("user", "hi")
GO_ON = Message("user", "go on")


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def call(id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "f", "input": {}}


def result(id: str, said: str = "ok") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": said}


def called(*ids: str) -> Message:
    return Message("assistant", [text("Let me see."), *(call(id) for id in ids)])


def told(*blocks: Json) -> Message:
    return Message("user", list(blocks))


def tool(id: str, said: str = "ok") -> Message:
    return Message("tool", said, tool_call_id=id)


def mended(*messages: Message, ids: Ids = "any") -> tuple[list[Message], list[str]]:
    warnings: list[str] = []
    return [message for _, message in paired(list(messages), ids, warnings)], warnings


@pytest.mark.parametrize(
    "messages",
    [
        (HI, GO_ON),
        (HI, called("a"), told(result("a"))),
        (HI, called("a", "b"), told(result("b"), result("a"), text("and?"))),
        (HI, called("a", "b"), tool("a"), tool("b"), GO_ON),
        (HI, called("a", "b"), told(result("a")), told(result("b"), text("and?"))),
        (HI, called("a"), tool("a"), called("b"), told(result("b")), Message("system", "later"), GO_ON),
        (HI, called("a")),
        (HI, Message("assistant", [{"type": "server_tool_use", "id": "s"}, {"type": "web_search_tool_result", "tool_use_id": "s"}]), GO_ON),
    ],
)
def test_what_is_well_formed_is_the_very_same(messages: tuple[Message, ...]) -> None:
    after, warnings = mended(*messages)
    assert all(new is old for new, old in zip(after, messages, strict=True))
    assert not warnings


def test_messages_keep_their_numbers() -> None:
    messages = [Message("system", "x"), HI, called("a"), GO_ON, told(text("x"))]
    assert [number for number, _ in paired(messages, "any", [], first=1)] == [1, 2, 2, 3, 4]


def test_a_call_that_was_never_answered_is_told_so() -> None:
    after, warnings = mended(HI, called("a", "b"), told(result("b")), GO_ON)
    missing = {"type": "tool_result", "tool_use_id": "a", "content": NOT_CARRIED_OUT, "is_error": True}
    assert after == [HI, called("a", "b"), told(missing, result("b")), GO_ON]
    assert warnings == ["a tool call without a result was told so"]


@pytest.mark.parametrize(
    "rest",
    [
        [told(text("wait"), result("a"), result("b"))],
        [told(text("wait")), told(result("b")), told(result("a"))],
        [told(text("wait")), tool("a"), tool("b")],
        [told(result("b"), text("wait")), told(result("a"))],
        [tool("a"), told(text("wait")), tool("b")],
    ],
)
def test_results_are_moved_right_after_their_calls(rest: list[Message]) -> None:
    after, warnings = mended(HI, called("a", "b"), *rest)
    assert after == [HI, called("a", "b"), told(result("a"), result("b")), told(text("wait"))]
    assert warnings == ["tool results were moved to their calls"]


def test_each_of_two_turns_in_a_row_has_its_own_results() -> None:
    after, _ = mended(HI, called("a"), called("b"), told(result("a"), result("b")), GO_ON)
    assert after == [HI, called("a"), told(result("a")), called("b"), told(result("b")), GO_ON]


@pytest.mark.parametrize("orphan", [tool("gone", "5 °C"), told(result("gone", "5 °C"))])
def test_a_result_whose_call_was_cut_off_becomes_text(orphan: Message) -> None:
    after, warnings = mended(orphan, HI, called("a"), tool("a"))
    assert after[0] == told(text(WITHOUT_CALL), text("5 °C"))
    assert after[1:] == [HI, called("a"), tool("a")]
    assert warnings == ["a tool result without its call was made text"]


def test_a_history_of_nothing_but_such_results_is_text() -> None:
    assert mended(tool("gone"))[0] == [told(text(WITHOUT_CALL), text("ok"))]


def test_a_second_result_of_one_call_becomes_text() -> None:
    after, _ = mended(called("a"), told(result("a")), told(result("a", "again")))
    assert after == [called("a"), told(result("a")), told(text(WITHOUT_CALL), text("again"))]


def test_an_id_given_twice_is_made_unique_in_call_and_result() -> None:
    after, _ = mended(called("a"), tool("a", "one"), called("a"), tool("a", "two"))
    assert after[:2] == [called("a"), tool("a", "one")]
    again = after[2].content[1]["id"]  # type: ignore[index]
    assert again != "a"
    assert (after[3].tool_use_id, after[3].content) == (again, "two")


def test_parallel_calls_with_one_id_are_answered_in_their_order() -> None:
    after, _ = mended(called("", ""), told(result("", "one"), result("", "two")))
    first, second = (block["id"] for block in after[0].content[1:])  # type: ignore[index]
    assert first != second
    assert after[1] == told(result(first, "one"), result(second, "two"))


@pytest.mark.parametrize(
    ("ids", "fitting", "others"),
    [
        ("any", ["a", "x" * 500, "functions.f:0"], []),
        ("word", ["toolu_01A-b", "x" * 500], ["functions.f:0", "ü", "a b", "a\n"]),
        ("at_most_40", ["functions.f:0", "x" * 40], ["x" * 41]),
        ("alphanumeric_9", ["abcDEF123"], ["toolu_01A", "abcDEF1234", "abcDEF12", "abcDEF12é"]),
    ],
)
def test_ids_that_fit_stay_and_others_are_replaced(ids: Ids, fitting: list[str], others: list[str]) -> None:
    for id in fitting + others:
        after, _ = mended(called(id), told(result(id)), ids=ids)
        sent = after[0].content[1]["id"]  # type: ignore[index]
        assert (sent == id) == (id in fitting)
        assert SHAPES[ids][0].fullmatch(sent)
        assert after[1] == told(result(sent))


def test_the_shapes_are_what_each_provider_says() -> None:
    made = {ids: mended(called("ä" * 50), ids=ids)[0][0].content[1]["id"] for ids in get_args(Ids) if ids != "any"}  # type: ignore[index]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", id) for id in made.values())
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", made["alphanumeric_9"])


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=30), st.sampled_from(get_args(Ids)))
def test_no_two_calls_share_an_id_and_the_next_request_says_the_same(given_ids: list[str], ids: Ids) -> None:
    turns = [message for id in given_ids for message in (called(id), tool(id))]
    after, _ = mended(*turns, ids=ids)
    sent = [message.content[1]["id"] for message in after[::2]]  # type: ignore[index]
    assert len(set(sent)) == len(given_ids)
    assert all(SHAPES[ids][0].fullmatch(id) for id in sent)
    assert [message.tool_use_id or message.tool_call_id for message in after[1::2]] == sent
    again, _ = mended(*turns, HI, called("new"), tool("new"), ids=ids)
    assert [message.content[1]["id"] for message in again[: len(after) : 2]] == sent  # type: ignore[index]


def test_an_id_that_would_be_made_twice_is_made_otherwise() -> None:
    twice, same = "é", "é\x002"  # the second call of the one, and the first of the other, are hashed alike
    after, _ = mended(*(message for id in (twice, twice, same) for message in (called(id), tool(id))), ids="word")
    assert len({message.content[1]["id"] for message in after[::2]}) == 3  # type: ignore[index]
    made = mended(called("é"), ids="alphanumeric_9")[0][0].content[1]["id"]  # type: ignore[index]
    after, _ = mended(called("é"), tool("é"), called(made), tool(made), ids="alphanumeric_9")
    assert after[2] == called(made)
    assert after[0] != called(made)


def test_made_ids_use_all_letters() -> None:
    made = {mended(called(f"é{number}"), ids="alphanumeric_9")[0][0].content[1]["id"] for number in range(200)}  # type: ignore[index]
    assert len(made) == 200
    assert len(set("".join(made))) == 36


def test_the_work_grows_with_the_history_and_not_with_its_square() -> None:
    def steps(many: int) -> int:
        """Python's own function calls, which no slow machine makes more of."""
        ids = [str(number) for number in range(many)]
        made = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        sys.setprofile(count)
        try:
            mended(HI, called(*ids), told(*map(result, ids)), called(*ids), *map(tool, ids))
        finally:
            sys.setprofile(None)
        return made

    assert steps(400) < 5 * steps(100)
