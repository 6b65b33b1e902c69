"""What recordings of real services show beyond the documents, one answer for each: only what is odd in it is kept."""

from typing import Any

import pytest

from tests.unit.openai_answers import DONE, answer, call, chunk, frame, steps, usage

HI = [["text", "Hi"], "end_turn"]
COUNTED = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}

ANSWERS: dict[str, tuple[tuple[bytes, ...], list[Any]]] = {
    "an error beside usage after the finish reason": (
        (chunk({"content": "Hi"}, "length"), frame({"choices": [], "error": {"code": 400, "message": "x"}, "usage": COUNTED}), DONE),
        [["text", "Hi"], "max_tokens"],
    ),
    "a failed generation after reasoning": (
        (
            chunk({"reasoning": "hm", "channel": "analysis"}),
            b"event: error\n"
            + frame({"error": {"message": "x", "type": "invalid_request_error", "code": "tool_use_failed", "status_code": 400}}),
        ),
        [["thinking", "hm"], "upstream_rejected"],
    ),
    "no finish reason anywhere and everything empty": (
        (
            frame(
                {
                    "id": "",
                    "created": 0,
                    "model": "m",
                    "service_tier": "",
                    "choices": [{"index": 0, "delta": {"content": "Hi", "refusal": ""}}],
                }
            ),
            frame({"id": "", "choices": [], "usage": COUNTED}),
            DONE,
        ),
        HI,
    ),
    "an id that is another in every chunk": (
        (chunk({"content": "H"}, id="a"), chunk({"content": "i"}, id="b"), chunk({}, "stop", id="stub"), DONE),
        HI,
    ),
    "chunks that name no object and no role": (
        (
            frame({"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}),
            frame({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        ),
        HI,
    ),
    "a finish reason sent twice, the second with usage": (
        (
            chunk({"content": "Hi"}),
            chunk({"content": ""}, "stop"),
            chunk({"role": "assistant", "content": ""}, "stop", usage=COUNTED),
            DONE,
        ),
        HI,
    ),
    "arguments that are null twice in parallel": (
        (
            chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "null"}} for n in (0, 1)]}),
            chunk({}, "tool_calls"),
        ),
        [["tool", "c0", "f", {}], ["tool", "c1", "f", {}], "tool_use"],
    ),
    "fragments whose id, name and type are null": (
        (
            chunk({"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": None}}]}),
            chunk({"tool_calls": [{"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": '{"a":1}'}}]}),
            chunk({}, "tool_calls"),
        ),
        [["tool", "c0", "f", {"a": 1}], "tool_use"],
    ),
    "an index that begins at 1 after a text": (
        (chunk({"content": "Hi"}), call("{}", index=1, id="c", name="f"), chunk({}, "tool_calls")),
        [["text", "Hi"], ["tool", "c", "f", {}], "tool_use"],
    ),
    "two candidates with an end each": (
        (
            chunk({"content": "Hi"}),
            frame({"choices": [{"index": 1, "delta": {"content": "Yo"}}]}),
            frame({"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}),
            chunk({}, "stop", usage=COUNTED),
        ),
        HI,
    ),
    "delta fields that nobody documents": (
        (
            chunk({"content": "Hi", "token_id": 7, "name": "x", "reasoning_encrypted": False, "graph_data": {}, "index": 0, "role": None}),
            chunk(
                {}, "stop", p="abcd", copilot_usage={}, time_info={}, timings={}, cost={"usd": 1}, prompt_token_ids=[1], stream_options={}
            ),
        ),
        HI,
    ),
    "moderation in an extra chunk after the finish reason": (
        (chunk({"content": "Hi"}, "stop"), frame({"id": "c1", "choices": [], "moderation": {"input": {}, "output": {}}}), DONE),
        HI,
    ),
    "choice fields that nobody documents": (
        (
            frame(
                {
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"content": "Hi"},
                            "content_filter_results": {},
                            "seed": 1,
                            "token_ids": [1],
                            "trace_details": {},
                        }
                    ]
                }
            ),
            frame({"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}]}),
            chunk({}, "stop"),
        ),
        HI,
    ),
    "text in the chunk of the finish reason": ((chunk({"content": "H"}), chunk({"content": "i"}, "stop", usage=COUNTED), DONE), HI),
    "lines that end in CRLF, comments before the first chunk, a blank after the end mark": (
        (
            b": OPENROUTER PROCESSING\r\n\r\n" * 3 + b": ping - 2026-01-01\r\n\r\n",
            (chunk({"content": "Hi"}) + chunk({}, "stop")).replace(b"\n", b"\r\n"),
            b"data: [DONE] \r\n\r\n",
        ),
        HI,
    ),
    "one message that is an error": ((b'{"error": "Invalid model"}',), ["upstream_unavailable"]),
    "an error without an error object": (
        (b'{"object":"error","message":"bad","type":"invalid_request_error","code":"400","raw_status_code":400}',),
        ["upstream_rejected"],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_of_a_real_service_is_understood(name: str) -> None:
    frames, expected = ANSWERS[name]
    assert answer(*frames) == expected


@pytest.mark.parametrize("name", ANSWERS)
def test_it_does_not_matter_where_the_bytes_are_cut(name: str) -> None:
    body = b"".join(ANSWERS[name][0])
    whole = steps(body)
    for read in (1, 3, 7, 64):
        assert [repr(step) for step in steps(body, read=read)] == [repr(step) for step in whole]


def test_what_else_a_provider_counts_is_kept() -> None:
    said = {
        **COUNTED,
        "cost": {"total_cost": 0.1},
        "num_sources_used": 0,
        "time_to_first_token_ms": 4,
        "avg_tok_per_sec": 9.5,
        "draft_tokens": None,
    }
    assert usage(chunk({"content": "Hi"}, "stop", usage=said)) == {
        "input_tokens": 5,
        "output_tokens": 2,
        "cost": {"total_cost": 0.1},
        "num_sources_used": 0,
        "time_to_first_token_ms": 4,
        "avg_tok_per_sec": 9.5,
    }
