"""Which fragments make which tool call, and in which order calls go out."""

from typing import Any

import pytest

from gateway.events import ContentBlockDelta, ContentBlockStart, InputJsonDelta
from tests.unit.openai_answers import DONE, answer, call, chunk, decoder, frame

END = chunk({}, "tool_calls")


def calls(*fragments: dict[str, Any], finish: Any = None) -> bytes:
    return chunk({"tool_calls": list(fragments)}, finish)


def fragment(index: Any, arguments: Any, call_id: Any = None, name: Any = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def test_a_new_id_begins_another_call_at_the_same_index() -> None:
    frames = call('{"p":"a"}', id="call_1", name="f"), call('{"p":"b"}', id="call_2", name="f"), END
    assert answer(*frames) == [["tool", "call_1", "f", {"p": "a"}], ["tool", "call_2", "f", {"p": "b"}], "tool_use"]


def test_without_an_index_the_id_tells_the_call() -> None:
    frames = (
        call('{"p":', index=None, id="call_1", name="f"),
        call('"a"}', index=None, id="call_1"),
        call("{}", index=None, id="call_2", name="g"),
        END,
    )
    assert answer(*frames) == [["tool", "call_1", "f", {"p": "a"}], ["tool", "call_2", "g", {}], "tool_use"]


def test_without_index_and_id_the_last_call_goes_on() -> None:
    frames = call('{"p":', index=None, id="call_1", name="f"), call('"a"}', index=None), END
    assert answer(*frames) == [["tool", "call_1", "f", {"p": "a"}], "tool_use"]


def test_an_empty_id_is_none() -> None:
    frames = call("", id="call_1", name="f"), calls(fragment(0, '{"p":', "", None)), calls(fragment(0, '"a"}', "", "")), END
    assert answer(*frames) == [["tool", "call_1", "f", {"p": "a"}], "tool_use"]


def test_an_empty_fragment_after_the_last_one_says_nothing() -> None:
    frames = call("{}", id="call_1", name="f"), call("", id=""), calls(fragment(0, None)), END
    assert answer(*frames) == [["tool", "call_1", "f", {}], "tool_use"]


def test_id_and_name_repeated_on_every_fragment_count_once() -> None:
    frames = [call(arguments, id="call_1", name="read_file") for arguments in ("", '{"p":', '"a"}')]
    assert answer(*frames, END) == [["tool", "call_1", "read_file", {"p": "a"}], "tool_use"]


def test_a_name_in_pieces_is_put_together_before_the_first_argument() -> None:
    frames = call(id="call_1", name="read_"), call(name="file"), call("{}"), END
    assert answer(*frames) == [["tool", "call_1", "read_file", {}], "tool_use"]


def test_an_id_that_comes_after_the_name_is_the_calls() -> None:
    assert answer(call(name="f"), call("{}", id="call_1"), END) == [["tool", "call_1", "f", {}], "tool_use"]


def test_a_missing_id_is_made() -> None:
    tool, ending = answer(call("{}", name="f"), END)
    assert tool[1].startswith("toolu_")
    assert (tool[2:], ending) == (["f", {}], "tool_use")


@pytest.mark.parametrize(
    ("said", "read"),
    [({"p": "a"}, {"p": "a"}), ({}, {}), (None, {}), ("", {}), ("null", {}), ('{"p":"a"}', {"p": "a"}), ([], "not_an_object")],
)
def test_arguments_may_come_whole_in_many_forms(said: Any, read: Any) -> None:
    assert answer(calls(fragment(0, said, "call_1", "f")), END) == [["tool", "call_1", "f", read], "tool_use"]


def test_arguments_that_begin_as_null_are_those_that_follow() -> None:
    assert answer(call("null", id="call_1", name="f"), call('{"p":"a"}'), END) == [["tool", "call_1", "f", {"p": "a"}], "tool_use"]


def test_two_calls_whose_arguments_are_null_do_not_wait_for_each_other() -> None:
    made = decoder()
    made.feed(calls(fragment(0, "null", "call_1", "f"), fragment(1, "null", "call_2", "g")))
    starts = [step for step in made.feed(call("null", index=2, id="call_3", name="h")) if isinstance(step, ContentBlockStart)]
    assert [start.content_block["id"] for start in starts] == ["call_2"]


def test_name_and_first_argument_may_come_together_and_nothing_is_lost() -> None:
    assert answer(call('{"co', id="call_1", name="f"), call('de":1}'), END) == [["tool", "call_1", "f", {"code": 1}], "tool_use"]


def test_whole_calls_in_the_chunk_with_the_finish_reason_count() -> None:
    frames = calls(fragment(0, '{"p":"a"}', "call_1", "f"), fragment(1, "{}", "call_2", "g"), finish="tool_calls"), DONE
    assert answer(*frames) == [["tool", "call_1", "f", {"p": "a"}], ["tool", "call_2", "g", {}], "tool_use"]


def test_interleaved_calls_go_out_one_after_the_other() -> None:
    frames = (
        calls(fragment(0, "", "call_1", "f"), fragment(1, "", "call_2", "g")),
        calls(fragment(0, '{"p":'), fragment(1, '{"q":')),
        call("2}", index=1),
        call("1}", index=0),
        END,
    )
    assert answer(*frames) == [["tool", "call_1", "f", {"p": 1}], ["tool", "call_2", "g", {"q": 2}], "tool_use"]


def test_a_second_call_after_the_finish_reason_belongs_to_the_answer() -> None:
    frames = call("{}", id="call_1", name="f", finish="tool_calls"), call("{}", index=1, id="call_2", name="g"), DONE
    assert answer(*frames) == [["tool", "call_1", "f", {}], ["tool", "call_2", "g", {}], "tool_use"]


def test_stop_after_calls_means_tool_use() -> None:
    assert answer(call("{}", id="call_1", name="f"), chunk({}, "stop")) == [["tool", "call_1", "f", {}], "tool_use"]
    assert answer(chunk({"content": "Hi"}, "stop"), call("{}", id="call_1", name="f"), DONE)[-1] == "tool_use"


def test_truncated_arguments_are_marked() -> None:
    assert answer(call('{"a":"lin', id="call_1", name="f"), chunk({}, "length")) == [["tool", "call_1", "f", "truncated"], "max_tokens"]


def test_arguments_cut_at_the_limit_are_truncated_whatever_the_finish_reason_says() -> None:
    frames = call('{"a":"lin', id="call_1", name="f"), chunk({}, "tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 400})
    assert answer(*frames, max_tokens=400) == [["tool", "call_1", "f", "truncated"], "max_tokens"]
    assert answer(*frames, max_tokens=500) == [["tool", "call_1", "f", "invalid_json"], "tool_use"]


def test_arguments_repeated_whole_are_dropped_once() -> None:
    repeated = call('{"p":"a"}', id="call_1", name="f")
    frames = call('{"p":', id="call_1", name="f"), call('"a"}'), repeated
    assert answer(*frames, END) == [["tool", "call_1", "f", {"p": "a"}], "tool_use"]
    assert [block[3] for block in answer(*frames, repeated, END)[:-1]] == [{"p": "a"}, {"p": "a"}]


def test_a_second_whole_object_under_the_same_id_is_another_call_with_an_id_of_its_own() -> None:
    first, second, ending = answer(call('{"p":1}', id="call_1", name="f"), call('{"p":2}', id="call_1", name="f"), END)
    assert (first[1:], second[2:], ending) == (["call_1", "f", {"p": 1}], ["f", {"p": 2}], "tool_use")
    assert second[1] not in ("", "call_1")


def test_fragments_of_such_a_second_call_find_it_by_index_and_by_id() -> None:
    frames = call('{"p":1}', id="call_1", name="f"), call('{"p":', id="call_1", name="f"), call("2", id="call_1"), call("}"), END
    assert [block[3] for block in answer(*frames)[:-1]] == [{"p": 1}, {"p": 2}]


def test_a_nested_object_in_a_fragment_of_its_own_is_no_second_call() -> None:
    frames = call('{"a":', id="call_1", name="f"), call('{"a":'), call("1}"), call("}"), END
    assert answer(*frames) == [["tool", "call_1", "f", {"a": {"a": 1}}], "tool_use"]


def test_another_function_without_an_id_is_another_call() -> None:
    first, second, _ = answer(call('{"p":1}', name="f"), call(name="g"), call('{"q":2}'), END)
    assert (first[2:], second[2:]) == (["f", {"p": 1}], ["g", {"q": 2}])


def test_text_beside_an_unfinished_call_waits_for_it() -> None:
    frames = (
        call('{"p":', id="call_1", name="f"),
        chunk({"content": "Hi", "reasoning": "hm"}),
        call("1}"),
        chunk({"content": " there"}),
        END,
    )
    assert answer(*frames) == [["tool", "call_1", "f", {"p": 1}], ["thinking", "hm"], ["text", "Hi there"], "tool_use"]


def test_text_before_a_call_in_one_chunk_comes_before_it() -> None:
    frames = (chunk({"content": "Hi", "tool_calls": [fragment(0, "{}", "call_1", "f")]}, "tool_calls"),)
    assert answer(*frames) == [["text", "Hi"], ["tool", "call_1", "f", {}], "tool_use"]


def test_what_was_kept_back_goes_out_in_the_order_of_first_appearance() -> None:
    frames = (
        call('{"a":', id="a", name="f"),
        chunk({"content": "x"}),
        call('{"b":', index=1, id="b", name="g"),
        chunk({"content": "y"}),
        call("1}", index=1),
        call("1}", index=0),
        END,
    )
    assert answer(*frames) == [["tool", "a", "f", {"a": 1}], ["text", "xy"], ["tool", "b", "g", {"b": 1}], "tool_use"]


def test_fragments_of_a_closed_call_are_dropped_and_counted() -> None:
    made = decoder()
    made.feed(call("{}", id="call_1", name="f") + chunk({"content": "Hi"}))
    assert made.feed(call(" ", index=0)) == []
    assert made.dropped == 1


def test_an_unfinished_call_is_sent_before_the_failure_and_what_waited_for_it_too() -> None:
    frames = call('{"a":', id="a", name="f"), chunk({"content": "x"}), call('{"b":', index=1, id="b", name="g")
    assert answer(*frames) == [["tool", "a", "f", "invalid_json"], ["text", "x"], ["tool", "b", "g"], "stream_interrupted"]


def test_a_call_without_arguments_begins_at_the_ending() -> None:
    made = decoder()
    assert not any(isinstance(step, ContentBlockStart) for step in made.feed(call(id="call_1", name="f")))
    assert any(isinstance(step, ContentBlockStart) for step in made.close())


def test_only_so_much_is_kept_back_and_then_the_call_closes_unfinished() -> None:
    big = "x" * 100_000
    frames = call('{"a":"', id="a", name="f"), *[chunk({"content": big})] * 12, call('"}'), chunk({"content": "!"}), END
    made = answer(*frames)
    assert made[0] == ["tool", "a", "f", "invalid_json"]
    assert made[1] == ["text", big * 12 + "!"]


def test_blocks_are_numbered_by_the_gateway() -> None:
    made = decoder()
    steps = made.feed(call("{}", index=3, id="a", name="f") + call("{}", index=7, id="b", name="g"))
    assert [(step.index, type(step)) for step in steps if isinstance(step, ContentBlockStart | ContentBlockDelta)] == [
        (0, ContentBlockStart),
        (0, ContentBlockDelta),
        (1, ContentBlockStart),
        (1, ContentBlockDelta),
    ]


def test_arguments_are_passed_on_as_they_come() -> None:
    made = decoder()
    made.feed(call('{"a":', id="a", name="f"))
    (step,) = made.feed(call('"b'))
    assert isinstance(step, ContentBlockDelta)
    assert step.delta == InputJsonDelta('"b')


def test_the_older_function_call_is_a_call() -> None:
    frames = (
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": "{}"}}),
        chunk({}, "function_call"),
    )
    tool, ending = answer(*frames)
    assert (tool[2:], ending) == (["f", {}], "tool_use")


def test_tools_that_the_provider_ran_itself_are_no_calls() -> None:
    ran = chunk({"executed_tools": [{"index": 0, "type": "search", "arguments": "{}", "output": "x"}]})
    assert answer(ran, chunk({"content": "Hi"}, "stop")) == [["text", "Hi"], "end_turn"]


def test_a_signature_of_the_thought_behind_a_call_is_kept() -> None:
    google = {"google": {"thought_signature": "s"}}
    (step,) = [step for step in decoder().feed(call("{}", id="a", name="f", extra_content=google)) if isinstance(step, ContentBlockStart)]
    assert step.content_block == {"type": "tool_use", "id": "a", "name": "f", "input": {}, "extra_content": google}


def test_no_answer_has_a_thousand_calls() -> None:
    made = decoder()
    made.feed(calls(*[fragment(number, "{}", f"c{number}", "f") for number in range(1100)]))
    assert made.dropped == 100


def test_call_markup_in_the_text_is_text() -> None:
    leaked = '<|DSML|invoke name="x">'
    assert answer(frame({"choices": [{"delta": {"content": leaked}, "finish_reason": "stop"}]})) == [["text", leaked], "end_turn"]
