"""What the text, the reasoning and the ending of a Chat Completions answer become."""

from typing import Any

import pytest

from gateway.errors import UpstreamFailed
from gateway.events import CitationsDelta, ContentBlockDelta, MessageDelta, MessageStart, MessageStop, SignatureDelta
from gateway.usage import Usage
from tests.unit.openai_answers import DONE, answer, call, chunk, decoder, failure, frame, steps, usage

STOP = chunk({}, "stop")


def citations(*frames: bytes) -> list[Any]:
    return [
        (step.delta.citation["source"], step.delta.citation["title"])
        for step in steps(b"".join(frames))
        if isinstance(step, ContentBlockDelta) and isinstance(step.delta, CitationsDelta)
    ]


def test_the_first_id_and_model_that_are_any_begin_the_message() -> None:
    first = frame({"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []})
    made = steps(first + chunk({"role": "assistant", "content": ""}) + chunk({"content": "Hi"}, id="stub") + STOP)
    starts = [step for step in made if isinstance(step, MessageStart)]
    assert [(start.message["id"], start.message["model"]) for start in starts] == [("c1", "m")]


def test_an_answer_without_id_and_model_still_begins_before_its_text() -> None:
    made = steps(frame({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}))
    assert [type(step) for step in made] == [MessageStart, ContentBlockDelta, MessageDelta, MessageStop]


@pytest.mark.parametrize("reason", ["", None])
def test_an_empty_finish_reason_is_none(reason: Any) -> None:
    assert answer(chunk({"content": "H"}, reason), chunk({"content": "i"}, reason), STOP) == [["text", "Hi"], "end_turn"]


def test_a_finish_reason_in_camel_case_is_one() -> None:
    end = frame({"choices": [{"index": 0, "delta": {}, "finish_reason": None, "finishReason": "stop"}]})
    assert answer(chunk({"content": "Hi"}), end) == [["text", "Hi"], "end_turn"]


@pytest.mark.parametrize(
    ("raw", "stop_reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("eos", "end_turn"),
        ("STOP", "end_turn"),
        ("model_length", "model_context_window_exceeded"),
        ("SAFETY", "refusal"),
        ("something_new", "end_turn"),
    ],
)
def test_finish_reasons_become_stop_reasons(raw: str, stop_reason: str) -> None:
    assert answer(chunk({"content": "Hi"}, raw), DONE) == [["text", "Hi"], stop_reason]


def test_an_unknown_finish_reason_is_kept_beside() -> None:
    (ending,) = [step for step in steps(chunk({"content": "Hi"}, "something_new")) if isinstance(step, MessageDelta)]
    assert ending.delta == {"stop_reason": "end_turn", "stop_sequence": None, "raw_stop_reason": "something_new"}


def test_the_string_that_ended_the_answer_is_its_stop_sequence() -> None:
    end = frame({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop", "stop_reason": "lighthouse"}]})
    (ending,) = [step for step in steps(chunk({"content": "Hi"}) + end) if isinstance(step, MessageDelta)]
    assert ending.delta == {"stop_reason": "stop_sequence", "stop_sequence": "lighthouse"}


def test_a_token_that_ended_the_answer_is_no_stop_sequence() -> None:
    end = frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": 128009}]})
    assert answer(chunk({"content": "Hi"}), end) == [["text", "Hi"], "end_turn"]


def test_a_repeated_finish_reason_does_not_weaken_the_first() -> None:
    assert answer(chunk({"content": "Hi"}, "length"), chunk({"content": ""}, "stop"), DONE) == [["text", "Hi"], "max_tokens"]


@pytest.mark.parametrize("raw", ["error", "network_error", "insufficient_system_resource", "abort", "function_call_filter: MALFORMED_CALL"])
def test_a_finish_reason_that_means_failure_fails_and_says_so(raw: str) -> None:
    failed = failure(chunk({"content": "Hi"}), chunk({}, raw), DONE)
    assert failed.cause.code == "upstream_unavailable"
    assert raw in failed.message


def test_a_refusal_is_text_and_the_stop_reason_refusal() -> None:
    frames = chunk({"content": "", "refusal": "I can"}), chunk({"refusal": "not."}), STOP, DONE
    assert answer(*frames) == [["text", "I cannot."], "refusal"]


# --- whether an answer has finished


def test_finishing_is_taken_back_by_content_in_a_later_chunk() -> None:
    made = decoder()
    made.feed(chunk({"content": "Hi"}, "stop"))
    assert made.finishing
    made.feed(chunk({"content": " there"}))
    assert not made.finishing
    assert isinstance(made.close()[-1], UpstreamFailed)


def test_finishing_survives_usage_comments_empty_deltas_and_citations() -> None:
    made = decoder()
    made.feed(chunk({"content": "Hi"}, "stop"))
    made.feed(b": ping\n\n" + chunk({"content": ""}) + frame({"choices": [], "usage": {"prompt_tokens": 1}, "citations": ["http://a"]}))
    assert made.finishing
    assert isinstance(made.close()[-1], MessageStop)


def test_done_ends_a_reopened_answer_with_the_reason_already_known() -> None:
    assert answer(chunk({"content": "Hi"}, "length"), chunk({"content": " there"}), DONE) == [["text", "Hi there"], "max_tokens"]


def test_a_finished_answer_wins_over_a_connection_that_broke() -> None:
    broken = UpstreamFailed("interrupted", "reset")
    assert isinstance(steps(chunk({"content": "Hi"}, "stop"), broken=broken)[-1], MessageStop)
    assert steps(chunk({"content": "Hi"}), broken=broken)[-1] is broken


def test_the_end_without_a_finish_reason_is_an_interruption() -> None:
    assert answer(chunk({"content": "Half an ans"})) == [["text", "Half an ans"], "stream_interrupted"]


def test_done_after_content_without_a_finish_reason_ends_the_answer_with_a_warning() -> None:
    made = decoder()
    assert isinstance(made.feed(chunk({"content": "Hi"}) + DONE)[-1], MessageStop)
    assert made.warnings == ["[DONE] without a finish reason"]


def test_done_is_no_finish_where_the_row_says_so() -> None:
    assert answer(chunk({"content": "Hi"}), DONE, done_is_finish=False) == [["text", "Hi"], "stream_interrupted"]


@pytest.mark.parametrize("before", [b"", chunk({"role": "assistant", "content": ""}), chunk({"content": "\n"})])
def test_done_with_neither_content_nor_finish_reason_is_an_interruption(before: bytes) -> None:
    assert failure(before, DONE).cause.code == "stream_interrupted"


def test_frames_after_done_are_ignored() -> None:
    assert answer(chunk({"content": "Hi"}, "stop"), DONE, chunk({"content": " more"})) == [["text", "Hi"], "end_turn"]


def test_an_answer_of_nothing_finishes_and_is_remarked() -> None:
    made = decoder()
    made.feed(chunk({"role": "assistant", "content": ""}) + STOP)
    assert [type(step) for step in made.close()] == [MessageDelta, MessageStop]
    assert made.warnings == ["the answer is empty"]


# --- errors


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [
        ({"choices": [], "error": {"code": 502, "message": "worker limit"}}, "upstream_unavailable", 502),
        ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "upstream_rate_limited", 429),
        ({"error": "a string"}, "upstream_unavailable", 502),
        ({"code": 400, "message": "bad", "type": "Bad Request"}, "upstream_rejected", 400),
        ({"detail": "no"}, "upstream_unavailable", 502),
        ({"x_groq": {"id": "r", "error": {"message": "over capacity", "code": 503}}, "choices": []}, "upstream_overloaded", 503),
        ([{"error": {"code": 400, "message": "Invalid", "status": "INVALID_ARGUMENT"}}], "upstream_rejected", 400),
    ],
)
def test_an_error_of_any_shape_fails_the_answer(said: Any, code: str, status: int) -> None:
    failed = failure(chunk({"role": "assistant", "content": ""}), frame(said), DONE)
    assert (failed.cause.code, failed.status) == (code, status)


def test_an_error_event_needs_no_error_key() -> None:
    assert failure(b"event: error\n" + frame({"message": "no", "code": 429})).cause.code == "upstream_rate_limited"


def test_an_error_field_is_an_error() -> None:
    assert failure(chunk({"content": "Hi"}), b'error: {"detail": "x", "error": {"message": "gone"}}\n\n').message == "gone"


def test_what_stands_beside_an_error_was_said_before_it() -> None:
    beside = chunk({"content": "lo"}, "error", error={"code": 429, "message": "rate limited"})
    assert answer(chunk({"content": "Hel"}), beside, DONE) == [["text", "Hello"], "upstream_rate_limited"]


def test_an_error_after_the_finish_reason_is_a_warning_and_its_usage_counts() -> None:
    late = frame({"choices": [], "error": {"code": 400}, "usage": {"prompt_tokens": 7, "completion_tokens": 1}})
    made = decoder()
    made.feed(chunk({"content": "Hi"}, "length"))
    assert [type(step) for step in made.feed(late + DONE)] == [Usage, MessageDelta, MessageStop]
    assert made.warnings == ["an error after the finish reason"]


def test_an_error_after_an_answer_was_reopened_fails_it() -> None:
    frames = chunk({"content": "Hi"}, "stop"), chunk({"content": "!"}), frame({"error": {"code": 500, "message": "no"}})
    assert answer(*frames) == [["text", "Hi!"], "upstream_unavailable"]


# --- where the text is


def test_only_the_first_candidate_is_read() -> None:
    other = frame({"id": "c1", "choices": [{"index": 1, "delta": {"content": "ZZ"}, "finish_reason": "stop"}]})
    assert answer(other, chunk({"content": "Hi"}), other, STOP) == [["text", "Hi"], "end_turn"]


def test_null_anywhere_says_nothing() -> None:
    nulls = chunk({"role": None, "content": None, "tool_calls": None, "function_call": None, "reasoning_content": None})
    assert answer(nulls, chunk({"content": "Hi"}), nulls, frame({"id": None, "choices": None, "usage": None}), STOP) == [
        ["text", "Hi"],
        "end_turn",
    ]


def test_a_choice_without_delta_says_nothing() -> None:
    trailing = frame({"id": "", "choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]})
    assert answer(chunk({"content": "Hi"}), trailing, frame({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]})) == [
        ["text", "Hi"],
        "end_turn",
    ]


def test_delta_wins_over_its_copies() -> None:
    def copied(text: str, so_far: str, finish: Any = None) -> bytes:
        choice = {"index": 0, "delta": {"content": text}, "message": {"content": so_far}, "text": text, "finish_reason": finish}
        return frame({"id": "c1", "model": "m", "choices": [choice]})

    last = frame(
        {"id": "c1", "object": "chat.completion.done", "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    )
    assert answer(copied("H", "H"), copied("i", "Hi"), last) == [["text", "Hi"], "end_turn"]


def test_text_of_the_older_completions_is_text() -> None:
    frames = [
        frame({"choices": [{"index": 0, "text": text, "finish_reason": end}]}) for text, end in (("H", None), ("i", "stop"), ("", "stop"))
    ]
    assert answer(*frames, DONE) == [["text", "Hi"], "end_turn"]


def test_text_beside_an_empty_delta_is_text() -> None:
    frames = [frame({"choices": [{"index": 0, "delta": {}, "text": text, "finish_reason": ""}]}) for text in ("H", "i")]
    assert answer(*frames, STOP) == [["text", "Hi"], "end_turn"]


def test_content_may_be_parts_and_strings_mixed() -> None:
    frames = (
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "h"}], "closed": True}]}),
        chunk({"content": [{"type": "thinking", "thinking": []}]}),
        chunk({"content": [{"type": "thinking", "thinking": "m"}, "H"]}),
        chunk({"content": "i"}),
        chunk({"content": [{"type": "text", "text": "!"}]}),
        STOP,
    )
    assert answer(*frames) == [["thinking", "hm"], ["text", "Hi!"], "end_turn"]


@pytest.mark.parametrize("end", ["stop", None])
def test_one_message_instead_of_a_stream_is_a_whole_answer(end: Any) -> None:
    message = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "f", "arguments": ""}},
        ],
    }
    document = {"id": "c1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": end}]}
    body = frame({**document, "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).removeprefix(b"data: ")
    assert answer(body) == [["thinking", "hm"], ["text", "Hi"], ["tool", "a", "f", {}], ["tool", "b", "f", {}], "tool_use"]
    assert answer(frame(document))[:-1] == answer(body)[:-1]
    assert usage(body) == {"input_tokens": 5, "output_tokens": 2}


def test_nonsense_is_dropped_and_counted() -> None:
    made = decoder()
    nonsense = [
        {"choices": 7},
        {"choices": [7, {"index": 0, "delta": "x"}]},
        {"choices": [{"delta": {"content": 7, "tool_calls": [7, {"function": 7}], "reasoning_details": 7, "annotations": 7}}]},
        {"choices": [], "usage": 7},
    ]
    made.feed(chunk({"content": "Hi"}) + b"".join(frame(value) for value in nonsense) + STOP)
    assert isinstance(made.close()[-1], MessageStop)
    assert made.dropped == 7


def test_images_are_dropped_with_a_warning() -> None:
    made = decoder()
    made.feed(chunk({"content": "Hi", "images": [{"image_url": {"url": "data:…"}}]}, "stop"))
    assert made.warnings == ["images and audio are not passed on"]


# --- whitespace


def test_whitespace_before_the_first_visible_character_is_held_and_comes_with_it() -> None:
    made = decoder()
    assert not any(isinstance(step, ContentBlockDelta) for step in made.feed(chunk({"content": "\n"}) + chunk({"content": " "})))
    assert answer(chunk({"content": "\n"}), chunk({"content": " "}), chunk({"content": "Hi"}), STOP) == [["text", "\n Hi"], "end_turn"]


def test_whitespace_before_a_call_or_thinking_is_dropped() -> None:
    frames = chunk({"content": "\n\n"}), chunk({"reasoning": "hm"}), chunk({"content": "\n"}), call("{}", id="a", name="f"), STOP
    assert answer(*frames) == [["thinking", "hm"], ["tool", "a", "f", {}], "tool_use"]


def test_whitespace_that_is_the_whole_answer_is_sent_at_its_end() -> None:
    assert answer(chunk({"content": "\n"}), STOP, DONE) == [["text", "\n"], "end_turn"]


def test_whitespace_that_is_all_of_a_broken_answer_is_not_sent() -> None:
    assert answer(chunk({"content": "\n"})) == ["stream_interrupted"]


def test_whitespace_inside_a_text_passes() -> None:
    assert answer(chunk({"content": "a"}), chunk({"content": "\n\n"}), chunk({"content": "b"}), STOP) == [["text", "a\n\nb"], "end_turn"]


# --- reasoning


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"thinking": "hm"},
        {"content": [{"type": "thinking", "thinking": "hm"}]},
        {"reasoning": "hm", "content": ""},
    ],
)
def test_reasoning_is_found_in_any_of_its_fields_once(delta: Any) -> None:
    assert answer(chunk(delta), chunk({"content": "Hi"}), STOP) == [["thinking", "hm"], ["text", "Hi"], "end_turn"]


def test_reasoning_beside_text_comes_before_it() -> None:
    assert answer(chunk({"reasoning": "hm"}), chunk({"reasoning": " ok", "content": "Hi"}), STOP) == [
        ["thinking", "hm ok"],
        ["text", "Hi"],
        "end_turn",
    ]


def test_reasoning_and_text_may_take_turns() -> None:
    frames = [
        chunk({key: text}) for key, text in (("reasoning_content", "a"), ("content", "X"), ("reasoning_content", "b"), ("content", "Y"))
    ]
    assert answer(*frames, STOP) == [["thinking", "a"], ["text", "X"], ["thinking", "b"], ["text", "Y"], "end_turn"]


def test_a_signature_goes_to_the_open_thinking_block() -> None:
    frames = (
        chunk({"reasoning": "hm"}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "sig"}]}),
        chunk({"content": "Hi"}, "stop"),
    )
    assert answer(*frames) == [["thinking", "hm", SignatureDelta("sig")], ["text", "Hi"], "end_turn"]


def test_encrypted_reasoning_is_a_redacted_block() -> None:
    frames = chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}), chunk({"content": "Hi"}, "stop")
    assert answer(*frames) == [["redacted_thinking", {"type": "redacted_thinking", "data": "x"}], ["text", "Hi"], "end_turn"]


# --- cumulative


def test_a_cumulative_text_is_cut_to_what_is_new() -> None:
    frames = [chunk({"content": text}) for text in ("The", "The cat", "The cat sat", "The cat sat")]
    assert answer(*frames, STOP, cumulative=True) == [["text", "The cat sat"], "end_turn"]


def test_a_text_that_is_repeated_whole_at_the_end_is_cut_too() -> None:
    frames = [chunk({"content": text}) for text in ("The cat ", "sat", "The cat sat")]
    assert answer(*frames, STOP, cumulative=True) == [["text", "The cat sat"], "end_turn"]
    assert answer(*frames, STOP) == [["text", "The cat satThe cat sat"], "end_turn"]


def test_cumulative_reasoning_is_cut_as_well() -> None:
    frames = chunk({"reasoning": "h"}), chunk({"reasoning": "hm"}), chunk({"reasoning": "hm", "content": "Hi"}), STOP
    assert answer(*frames, cumulative=True) == [["thinking", "hm"], ["text", "Hi"], "end_turn"]


# --- citations


def test_annotations_become_citations_of_the_text_once_each() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "http://a", "title": "A", "start_index": 0, "end_index": 2, "content": "aa"}}
    frames = chunk({"content": "Hi"}), chunk({"annotations": [note, {"type": "file_citation"}]}), chunk({"annotations": [note]}), STOP
    text, ending = answer(*frames)
    assert ending == "end_turn"
    assert text[2].citation == {
        "type": "search_result_location",
        "source": "http://a",
        "title": "A",
        "cited_text": "aa",
        "search_result_index": 0,
        "start_block_index": 0,
        "end_block_index": 0,
        "start_index": 0,
        "end_index": 2,
    }
    assert len(text) == 3


def test_citations_at_the_top_of_every_chunk_are_one_each_with_what_the_search_found() -> None:
    more: dict[str, Any] = {
        "citations": ["http://a", {"url": "http://b", "title": "B"}],
        "search_results": [{"url": "http://a", "title": "A"}],
    }
    assert citations(chunk({"content": "H"}, **more), chunk({"content": "i"}, **more), chunk({}, "stop", **more)) == [
        ("http://a", "A"),
        ("http://b", "B"),
    ]


def test_citations_wait_for_a_text_and_make_one_at_the_end() -> None:
    early = chunk({"reasoning": "h"}, citations=["http://a"])
    assert [block[0] for block in answer(early, chunk({"reasoning": "m"}), chunk({"content": "Hi"}), STOP)[:-1]] == ["thinking", "text"]
    assert [block[0] for block in answer(early, chunk({"reasoning": "m"}), STOP)[:-1]] == ["thinking", "text"]


def test_more_citations_than_anybody_reads_are_dropped_and_counted() -> None:
    made = decoder()
    made.feed(chunk({"content": "Hi"}, citations=[f"http://{number}" for number in range(1200)]))
    assert made.dropped == 200


def test_an_event_over_the_limit_is_a_failure_of_its_own() -> None:
    made = decoder()
    made.feed(chunk({"content": "Hi"}))
    last = made.feed(b"data: " + b"x" * (17 * 1024 * 1024))[-1]
    assert isinstance(last, UpstreamFailed)
    assert last.cause.code == "event_too_large"
    assert made.close() == []
