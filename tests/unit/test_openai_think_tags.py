"""Where reasoning in the text begins and ends."""

import pytest

from tests.unit.openai_answers import answer, call, chunk

STOP = chunk({}, "stop")


def said(*texts: str, mode: str = "split", finish: bytes = STOP) -> object:
    return answer(*[chunk({"content": text}) for text in texts], finish, think_tags=mode)[:-1]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("<think>hm</think>Hi a<b", [["thinking", "hm"], ["text", "Hi a<b"]]),
        ("\n <think>hm</think>\n\nHi", [["thinking", "hm"], ["text", "\n\nHi"]]),
        ("<think/>Hi", [["text", "Hi"]]),
        ("<think></think>Hi", [["text", "Hi"]]),
        ("<think>\n\n</think>\n\nHi", [["text", "\n\nHi"]]),
        ("Hi <think>hm</think>", [["text", "Hi <think>hm</think>"]]),
        ("<thinking>Hi", [["text", "<thinking>Hi"]]),
        ("<think>a</think>b<think>c</think>d", [["thinking", "a"], ["text", "b<think>c</think>d"]]),
        ("<think>hm", [["thinking", "hm"]]),
        ("<think>hm</th", [["thinking", "hm</th"]]),
        ("<th", [["text", "<th"]]),
        ("<", [["text", "<"]]),
        ("<think>a</ think></think>b", [["thinking", "a</ think>"], ["text", "b"]]),
    ],
)
def test_tags_count_at_the_beginning_once_however_they_are_cut(text: str, blocks: object) -> None:
    assert said(text) == blocks
    assert said(*text) == blocks
    assert said(*[text[start : start + 3] for start in range(0, len(text), 3)]) == blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("hm</think>Hi", [["thinking", "hm"], ["text", "Hi"]]),
        ("<think>hm</think>Hi", [["thinking", "hm"], ["text", "Hi"]]),
        ("hm", [["thinking", "hm"]]),
        ("<thi", [["thinking", "<thi"]]),
    ],
)
def test_an_implicit_beginning_is_inside(text: str, blocks: object) -> None:
    assert said(text, mode="implicit") == blocks
    assert said(*text, mode="implicit") == blocks


def test_tags_are_text_where_no_row_says_otherwise() -> None:
    assert said("<think>hm</think>Hi", mode="none") == [["text", "<think>hm</think>Hi"]]


def test_a_bare_bracket_in_the_answer_is_not_held_back() -> None:
    assert said("<think>hm</think>Hi a<", "b") == [["thinking", "hm"], ["text", "Hi a<b"]]


def test_thinking_that_is_never_closed_is_thinking() -> None:
    assert said("<think>hm", finish=chunk({}, "length")) == [["thinking", "hm"]]


def test_what_might_have_become_a_tag_is_sent_before_a_failure() -> None:
    assert answer(chunk({"content": "<thi"}), think_tags="split") == [["text", "<thi"], "stream_interrupted"]


def test_what_might_have_become_a_tag_is_sent_before_a_call() -> None:
    frames = chunk({"content": "<"}), call("{}", id="a", name="f"), STOP
    assert answer(*frames, think_tags="split") == [["text", "<"], ["tool", "a", "f", {}], "tool_use"]


def test_reasoning_in_a_field_of_its_own_means_there_are_no_tags() -> None:
    frames = chunk({"reasoning_content": "hm"}), chunk({"content": "Hi"}), STOP
    assert answer(*frames, think_tags="implicit") == [["thinking", "hm"], ["text", "Hi"], "end_turn"]


def test_blanks_are_not_waited_through_for_ever() -> None:
    assert said(" " * 5000, "Hi") == [["text", " " * 5000 + "Hi"]]
