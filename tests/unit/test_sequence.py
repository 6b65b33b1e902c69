"""Each rule of the Sequencer, one sentence each. Steps go in as a decoder would say them; `said` tells the events in short."""

from typing import Any

import pytest
from msgspec import UNSET

from gateway import sequence
from gateway.deltas import is_content
from gateway.errors import GatewayError, UpstreamFailed
from gateway.events import (
    OPEN_BLOCK,
    Abort,
    CitationsDelta,
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    Error,
    ErrorBody,
    Event,
    InputJsonDelta,
    InvalidInput,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    Reset,
    SignatureDelta,
    Stats,
    TextDelta,
    ThinkingDelta,
    UnknownDelta,
    UnknownEvent,
)
from gateway.sequence import Sequencer
from gateway.usage import Usage
from tests.grammar import Broken, check

Json = dict[str, Any]
Step = Event | Usage | GatewayError

BEGIN = MessageStart({"id": "msg_up", "model": "up-1", "usage": {"input_tokens": 5, "output_tokens": 1}})
STOP = MessageStop()
FAILURE = UpstreamFailed("interrupted", "The answer ended early.")


def start(index: int, kind: str, **more: Any) -> ContentBlockStart:
    return ContentBlockStart(index, {"type": kind, **more})


def tool(index: int, name: str = "f", **more: Any) -> ContentBlockStart:
    return start(index, "tool_use", **{"id": f"toolu_{index}", "name": name, "input": {}, **more})


def text(index: int, said: str) -> ContentBlockDelta:
    return ContentBlockDelta(index, TextDelta(said))


def thinking(index: int, said: str) -> ContentBlockDelta:
    return ContentBlockDelta(index, ThinkingDelta(said))


def signature(index: int, said: str) -> ContentBlockDelta:
    return ContentBlockDelta(index, SignatureDelta(said))


def arguments(index: int, said: str) -> ContentBlockDelta:
    return ContentBlockDelta(index, InputJsonDelta(said))


def cites(index: int, citation: Json) -> ContentBlockDelta:
    return ContentBlockDelta(index, CitationsDelta(citation))


def unknown(index: int, **body: Any) -> ContentBlockDelta:
    return ContentBlockDelta(index, UnknownDelta(body))


def end(index: int) -> ContentBlockStop:
    return ContentBlockStop(index)


def ends(reason: str | None = "end_turn", sequence: str | None = None, usage: Json | None = None, **rest: Any) -> MessageDelta:
    return MessageDelta({"stop_reason": reason, "stop_sequence": sequence}, usage or {}, rest)


def fresh(max_tokens: int | None = None) -> Sequencer:
    return Sequencer("given-model", "msg_given1", max_tokens)


def events_of(*steps: Step, max_tokens: int | None = None) -> list[Event]:
    events = fresh(max_tokens).feed(steps)
    check(events, terminal=False)
    return events


def said(events: list[Event]) -> list[Any]:
    """In short: kinds, indices and values."""
    short: list[Any] = []
    for event in events:
        match event:
            case MessageStart():
                short.append("message_start")
            case ContentBlockStart():
                short.append(("start", event.index, event.content_block["type"]))
            case ContentBlockDelta(delta=UnknownDelta(body=body)):
                short.append((event.index, body))
            case ContentBlockDelta():
                short.append((event.index, getattr(event.delta, event.delta.__struct_fields__[0])))
            case ContentBlockStop():
                value = event.input if event.input is not UNSET else event.invalid_input
                short.append(("stop", event.index) if value is UNSET else ("stop", event.index, value))
            case MessageDelta():
                short.append(("message_delta", event.delta["stop_reason"]))
            case MessageStop():
                short.append("message_stop")
            case _:
                short.append(event)
    return short


def body_of(*steps: Step, max_tokens: int | None = None) -> list[Any]:
    """What lies between message_start and the final message_delta, in short."""
    short = said(events_of(BEGIN, *steps, STOP, max_tokens=max_tokens))
    assert short[0] == "message_start"
    assert short[-1] == "message_stop"
    return short[1:-2]


def ending_of(*steps: Step, max_tokens: int | None = None) -> MessageDelta:
    final = events_of(*steps, STOP, max_tokens=max_tokens)[-2]
    assert isinstance(final, MessageDelta)
    return final


def begun_with(*steps: Step) -> Json:
    first = events_of(*steps)[0]
    assert isinstance(first, MessageStart)
    return first.message


def first_start(*steps: Step) -> Json:
    return next(event.content_block for event in events_of(*steps) if isinstance(event, ContentBlockStart))


def test_a_well_formed_answer_passes_as_it_is() -> None:
    steps = [BEGIN, start(0, "text", text=""), text(0, "Hi"), end(0), ends(usage={"output_tokens": 2}), STOP]
    assert said(fresh().feed(steps)) == [
        "message_start",
        ("start", 0, "text"),
        (0, "Hi"),
        ("stop", 0),
        ("message_delta", "end_turn"),
        "message_stop",
    ]


class TestMessageStart:
    def test_content_that_comes_first_makes_the_message_start(self) -> None:
        assert said(events_of(text(0, "Hi"))) == ["message_start", ("start", 0, "text"), (0, "Hi")]
        assert begun_with(text(0, "Hi")) == {
            "id": "msg_given1",
            "type": "message",
            "role": "assistant",
            "model": "given-model",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def test_the_upstreams_id_and_model_stay_and_empty_ones_do_not(self) -> None:
        assert begun_with(BEGIN)["id"] == "msg_up"
        assert begun_with(BEGIN)["model"] == "up-1"
        for nothing in ("", None, 5):
            message = begun_with(MessageStart({"id": nothing, "model": nothing}))
            assert (message["id"], message["model"]) == ("msg_given1", "given-model")

    def test_a_message_is_normalised_and_its_other_fields_stay(self) -> None:
        odd = {
            "type": "x",
            "role": "user",
            "content": [{"type": "text"}],
            "stop_reason": "end_turn",
            "stop_sequence": "x",
            "container": {"id": 1},
        }
        message = begun_with(MessageStart(odd))
        assert (message["type"], message["role"], message["content"]) == ("message", "assistant", [])
        assert (message["stop_reason"], message["stop_sequence"]) == (None, None)
        assert message["container"] == {"id": 1}

    @pytest.mark.parametrize("odd", [None, "5", -1, True, 2.5, [], {}])
    def test_usage_integers_are_always_there(self, odd: Any) -> None:
        usage = begun_with(MessageStart({"usage": {"input_tokens": odd, "output_tokens": 3.0, "service_tier": None}}))["usage"]
        assert usage == {"input_tokens": 0, "output_tokens": 3, "service_tier": None}

    def test_a_later_message_start_is_swallowed_and_its_usage_merged(self) -> None:
        late = MessageStart({"id": "other", "usage": {"input_tokens": 9}})
        steps = [text(0, "Hi"), late, end(0), ends(usage={"output_tokens": 2})]
        assert [event for event in said(events_of(*steps)) if event == "message_start"] == ["message_start"]
        assert ending_of(*steps).usage == {"input_tokens": 9, "output_tokens": 2}

    def test_a_repeated_message_start_leaves_the_open_block_open(self) -> None:
        assert body_of(start(0, "text"), text(0, "a"), BEGIN, text(0, "b"), BEGIN, end(0)) == [
            ("start", 0, "text"),
            (0, "a"),
            (0, "b"),
            ("stop", 0),
        ]

    def test_indices_of_a_spliced_message_begin_again(self) -> None:
        assert body_of(
            start(0, "text"), text(0, "a"), end(0), start(1, "text"), text(1, "b"), BEGIN, start(0, "text"), text(0, "c"), end(0)
        ) == [
            *(("start", 0, "text"), (0, "a"), ("stop", 0), ("start", 1, "text"), (1, "b"), ("stop", 1)),
            *(("start", 2, "text"), (2, "c"), ("stop", 2)),
        ]

    def test_unknown_events_before_it_follow_it(self) -> None:
        newer = UnknownEvent({"type": "newer", "x": 1})
        assert said(events_of(newer, BEGIN)) == ["message_start", newer]
        assert said(events_of(newer)) == []

    def test_unknown_events_before_it_are_bounded(self) -> None:
        sequencer = fresh()
        large = UnknownEvent({"type": "newer", "x": "y" * 60_000})
        assert len(sequencer.feed([large, large, UnknownEvent({"type": "newer"}), BEGIN])) == 3
        assert sequencer.dropped == 1


class TestBlocks:
    def test_indices_are_our_own_and_contiguous(self) -> None:
        assert body_of(start(3, "text"), text(3, "a"), end(3), start(7, "thinking"), thinking(7, "b"), end(7)) == [
            *(("start", 0, "text"), (0, "a"), ("stop", 0)),
            *(("start", 1, "thinking"), (1, "b"), ("stop", 1)),
        ]

    def test_an_index_that_is_used_again_begins_another_block(self) -> None:
        assert body_of(start(0, "text"), text(0, "a"), end(0), start(0, "text"), text(0, "b"), end(0)) == [
            *(("start", 0, "text"), (0, "a"), ("stop", 0)),
            *(("start", 1, "text"), (1, "b"), ("stop", 1)),
        ]

    def test_a_delta_whose_index_fits_is_the_same_object(self) -> None:
        delta = text(0, "b")
        assert events_of(BEGIN, start(0, "text"), text(0, "a"), delta)[-1] is delta

    def test_a_block_that_starts_closes_the_open_one(self) -> None:
        assert body_of(start(0, "text"), text(0, "a"), start(1, "thinking")) == [
            *(("start", 0, "text"), (0, "a"), ("stop", 0)),
            *(("start", 1, "thinking"), ("stop", 1)),
        ]

    def test_a_delta_for_a_closed_block_is_dropped_and_counted(self) -> None:
        sequencer = fresh()
        events = sequencer.feed([start(0, "text"), text(0, "a"), end(0), text(0, "late"), unknown(0, type="newer"), STOP])
        assert (0, "late") not in said(events)
        assert sequencer.dropped == 2

    def test_a_stop_of_anything_but_the_open_block_is_ignored(self) -> None:
        sequencer = fresh()
        assert said(sequencer.feed([BEGIN, end(0), start(0, "text"), text(0, "a"), end(5), text(0, "b")]))[1:] == [
            ("start", 0, "text"),
            (0, "a"),
            (0, "b"),
        ]
        assert said(sequencer.feed([end(0), end(0)])) == [("stop", 0)]
        assert sequencer.dropped == 0

    def test_a_missing_index_means_the_open_block(self) -> None:
        assert body_of(tool(0), arguments(OPEN_BLOCK, "{}"), end(OPEN_BLOCK)) == [("start", 0, "tool_use"), (0, "{}"), ("stop", 0, {})]
        assert body_of(start(0, "text"), text(OPEN_BLOCK, "a"), text(0, "b"), end(0)) == [
            ("start", 0, "text"),
            (0, "a"),
            (0, "b"),
            ("stop", 0),
        ]

    def test_a_block_without_an_index_takes_the_first_new_one(self) -> None:
        assert body_of(start(OPEN_BLOCK, "text"), text(4, "a"), text(4, "b"), end(4)) == [
            ("start", 0, "text"),
            (0, "a"),
            (0, "b"),
            ("stop", 0),
        ]

    def test_a_missing_index_without_an_open_block_makes_one(self) -> None:
        assert body_of(thinking(OPEN_BLOCK, "a"), text(OPEN_BLOCK, "b")) == [
            *(("start", 0, "thinking"), (0, "a"), ("stop", 0)),
            *(("start", 1, "text"), (1, "b"), ("stop", 1)),
        ]

    def test_a_delta_for_a_block_that_never_started_makes_one(self) -> None:
        assert body_of(text(0, "a"), end(0), text(1, "b")) == [
            ("start", 0, "text"),
            (0, "a"),
            ("stop", 0),
            ("start", 1, "text"),
            (1, "b"),
            ("stop", 1),
        ]

    def test_a_block_without_a_type_is_dropped_and_counted(self) -> None:
        sequencer = fresh()
        assert said(
            sequencer.feed([BEGIN, ContentBlockStart(0, {}), ContentBlockStart(0, {"type": 5}), ContentBlockStart(0, {"type": ""})])
        ) == ["message_start"]
        assert sequencer.dropped == 3

    def test_blocks_that_are_complete_at_the_start_pass_verbatim(self) -> None:
        for block in (
            {"type": "redacted_thinking", "data": "x"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}, "caller": {"type": "direct"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]},
            {"type": "newer", "text": "not ours to move"},
        ):
            assert events_of(BEGIN, ContentBlockStart(0, block))[-1] == ContentBlockStart(0, block)

    def test_an_unknown_block_takes_any_delta(self) -> None:
        assert body_of(start(0, "newer"), text(0, "a"), arguments(0, "{"), signature(0, "s"), unknown(0, type="newer_delta", x=1)) == [
            ("start", 0, "newer"),
            *((0, "a"), (0, "{"), (0, "s"), (0, {"type": "newer_delta", "x": 1})),
            ("stop", 0),
        ]


class TestStartsThatHoldContent:
    def test_text_in_a_start_becomes_a_delta(self) -> None:
        assert body_of(start(0, "text", text="Hel"), text(0, "lo")) == [("start", 0, "text"), (0, "Hel"), (0, "lo"), ("stop", 0)]
        assert body_of(start(0, "text", text="Hel"), end(0)) == [("start", 0, "text"), (0, "Hel"), ("stop", 0)]
        assert first_start(start(0, "text", text="Hel", citations=[])) == {"type": "text", "text": "", "citations": []}

    def test_a_first_delta_that_repeats_the_start_is_dropped_once(self) -> None:
        assert body_of(start(0, "text", text="Hel"), text(0, ""), text(0, "Hel"), text(0, "Hel")) == [
            ("start", 0, "text"),
            (0, "Hel"),
            (0, "Hel"),
            ("stop", 0),
        ]
        assert body_of(start(0, "text", text="a"), text(0, "b"), text(0, "a")) == [
            ("start", 0, "text"),
            (0, "a"),
            (0, "b"),
            (0, "a"),
            ("stop", 0),
        ]

    def test_a_repetition_that_says_more_is_kept_without_its_value(self) -> None:
        repeated = unknown(0, type="thinking_delta", thinking="hm", estimated_tokens=3)
        assert body_of(start(0, "thinking", thinking="hm"), repeated)[2] == (
            0,
            {"type": "thinking_delta", "thinking": "", "estimated_tokens": 3},
        )

    def test_thinking_and_signature_in_a_start_become_deltas(self) -> None:
        steps = [start(0, "thinking", thinking="hm", signature="s"), thinking(0, "hm"), signature(0, "s"), end(0)]
        assert body_of(*steps) == [("start", 0, "thinking"), (0, "hm"), (0, "s"), ("stop", 0)]
        assert first_start(*steps) == {"type": "thinking", "thinking": "", "signature": ""}

    def test_a_thinking_start_without_keys_gets_them(self) -> None:
        assert first_start(start(0, "thinking")) == {"type": "thinking", "thinking": "", "signature": ""}

    def test_a_complete_input_becomes_a_delta_and_the_stops_input(self) -> None:
        steps = [tool(0, input={"cmd": "ls"}), end(0)]
        assert body_of(*steps) == [("start", 0, "tool_use"), (0, '{"cmd":"ls"}'), ("stop", 0, {"cmd": "ls"})]
        assert first_start(*steps)["input"] == {}

    def test_a_delta_that_repeats_the_input_is_dropped_however_it_is_spaced(self) -> None:
        assert body_of(tool(0, input={"cmd": "ls"}), arguments(0, '{ "cmd": "ls" }'))[1:] == [
            (0, '{"cmd":"ls"}'),
            ("stop", 0, {"cmd": "ls"}),
        ]

    def test_an_input_that_is_text_is_taken_as_arguments(self) -> None:
        assert body_of(tool(0, input='{"a":1}'))[-1] == ("stop", 0, {"a": 1})

    @pytest.mark.parametrize("nothing", [{}, [], None, ""])
    def test_an_empty_input_is_no_delta(self, nothing: Any) -> None:
        assert body_of(tool(0, input=nothing)) == [("start", 0, "tool_use"), ("stop", 0, {})]

    def test_a_tool_without_input_id_or_name_gets_them(self) -> None:
        block = first_start(start(0, "tool_use"))
        assert block == {"type": "tool_use", "id": "toolu_msggiven1000", "name": "", "input": {}}
        assert first_start(tool(0, id="call_1"))["id"] == "call_1"

    def test_made_ids_differ_within_a_message_and_repeat_between_runs(self) -> None:
        steps = [start(0, "tool_use", id=None), start(1, "tool_use", id="")]
        ids = [event.content_block["id"] for event in events_of(*steps) if isinstance(event, ContentBlockStart)]
        assert len({*ids}) == 2
        assert [event.content_block["id"] for event in events_of(*steps) if isinstance(event, ContentBlockStart)] == ids

    def test_the_start_that_was_handed_in_is_not_changed(self) -> None:
        step = tool(0, input={"a": 1})
        events_of(step)
        assert step.content_block["input"] == {"a": 1}


class TestDeltas:
    def test_empty_deltas_and_signatures_are_dropped_without_a_count(self) -> None:
        sequencer = fresh()
        steps = [
            text(0, ""),
            thinking(0, ""),
            signature(0, ""),
            arguments(0, ""),
            cites(0, {}),
            unknown(0, type="text_delta", text="", x=None),
        ]
        assert sequencer.feed([*steps, unknown(0, type="text_delta"), unknown(0, type="citations_delta", citation=None)]) == []
        assert sequencer.dropped == 0
        assert not sequencer.content

    def test_an_empty_delta_that_says_more_is_kept(self) -> None:
        step = unknown(0, type="thinking_delta", thinking="", estimated_tokens=50)
        assert body_of(start(0, "thinking"), step)[1] == (0, step.delta.body)  # type: ignore[union-attr]

    def test_a_known_delta_with_more_fields_goes_where_its_kind_goes(self) -> None:
        more = unknown(0, type="thinking_delta", thinking="hm", estimated_tokens=50)
        assert body_of(start(0, "text"), text(0, "a"), more) == [
            *(("start", 0, "text"), (0, "a"), ("stop", 0), ("start", 1, "thinking")),
            (1, {"type": "thinking_delta", "thinking": "hm", "estimated_tokens": 50}),
            ("stop", 1),
        ]

    def test_arguments_that_come_as_an_object_are_written_as_json(self) -> None:
        assert body_of(tool(0), unknown(0, type="input_json_delta", partial_json={"a": 1}))[-1] == ("stop", 0, {"a": 1})

    @pytest.mark.parametrize(
        "body", [{"type": "text_delta", "text": 5}, {"type": "citations_delta", "citation": "x"}, {"type": ""}, {"x": 1}]
    )
    def test_what_is_no_delta_is_dropped_and_counted(self, body: Json) -> None:
        sequencer = fresh()
        sequencer.feed([BEGIN, start(0, "text"), ContentBlockDelta(0, UnknownDelta(body))])
        assert sequencer.dropped == 1

    def test_thinking_in_an_empty_text_block_replaces_it(self) -> None:
        assert body_of(start(0, "text", text=""), thinking(0, "hm"), text(0, "Hi"), end(0)) == [
            *(("start", 0, "thinking"), (0, "hm"), ("stop", 0)),
            *(("start", 1, "text"), (1, "Hi"), ("stop", 1)),
        ]

    def test_text_in_a_thinking_block_opens_its_own(self) -> None:
        assert body_of(start(0, "thinking"), thinking(0, "hm"), text(0, "Hi"), end(0)) == [
            *(("start", 0, "thinking"), (0, "hm"), ("stop", 0)),
            *(("start", 1, "text"), (1, "Hi"), ("stop", 1)),
        ]

    def test_an_empty_text_block_that_the_upstream_closes_is_passed(self) -> None:
        assert body_of(start(0, "text", text=""), end(0)) == [("start", 0, "text"), ("stop", 0)]
        assert body_of(start(0, "text", text="")) == [("start", 0, "text"), ("stop", 0)]
        assert body_of(start(0, "text"), tool(1)) == [("start", 0, "text"), ("stop", 0), ("start", 1, "tool_use"), ("stop", 1, {})]

    def test_a_thinking_start_is_sent_at_once(self) -> None:
        assert said(events_of(BEGIN, start(0, "thinking")))[1:] == [("start", 0, "thinking")]

    def test_arguments_without_a_tool_block_are_dropped_and_counted(self) -> None:
        sequencer = fresh()
        assert sequencer.feed([arguments(0, "{}")]) == []
        sequencer.feed([start(0, "text"), text(0, "a"), arguments(0, "{}"), arguments(1, "{}"), arguments(OPEN_BLOCK, "{}")])
        assert sequencer.dropped == 4

    @pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use", "newer"])
    def test_arguments_go_to_any_tool_block(self, kind: str) -> None:
        assert body_of(start(0, kind), arguments(0, "{}"))[1] == (0, "{}")

    @pytest.mark.parametrize("kind", ["redacted_thinking", "bash_code_execution_tool_result", "tool_use", "server_tool_use"])
    def test_text_in_a_block_that_takes_none_opens_its_own(self, kind: str) -> None:
        assert body_of(start(0, kind), text(0, "a"))[-3:] == [("start", 1, "text"), (1, "a"), ("stop", 1)]

    def test_a_signature_goes_to_the_open_thinking_block(self) -> None:
        assert body_of(thinking(OPEN_BLOCK, "a"), signature(OPEN_BLOCK, "s")) == [("start", 0, "thinking"), (0, "a"), (0, "s"), ("stop", 0)]

    def test_a_signature_without_a_thinking_block_makes_one(self) -> None:
        assert body_of(text(OPEN_BLOCK, "a"), signature(OPEN_BLOCK, "s"))[-3:] == [("start", 1, "thinking"), (1, "s"), ("stop", 1)]

    def test_a_citation_goes_to_the_open_text_block_or_a_new_one(self) -> None:
        citation = {"type": "search_result_location"}
        assert body_of(text(OPEN_BLOCK, "a"), cites(OPEN_BLOCK, citation)) == [("start", 0, "text"), (0, "a"), (0, citation), ("stop", 0)]
        assert body_of(cites(OPEN_BLOCK, citation)) == [("start", 0, "text"), (0, citation), ("stop", 0)]

    def test_an_unknown_delta_goes_to_the_open_block_and_nowhere_else(self) -> None:
        sequencer = fresh()
        assert sequencer.feed([unknown(OPEN_BLOCK, type="newer_delta")]) == []
        assert sequencer.dropped == 1
        assert body_of(start(0, "compaction", content=None), unknown(0, type="compaction_delta", content="c"))[1] == (
            0,
            {"type": "compaction_delta", "content": "c"},
        )
        assert body_of(text(0, "a"), unknown(9, type="newer_delta"))[2] == (0, {"type": "newer_delta"})


class TestTools:
    def test_a_tools_stop_waits_until_another_block_begins(self) -> None:
        sequencer = fresh()
        assert said(sequencer.feed([BEGIN, tool(0), arguments(0, '{"a":1}'), end(0)]))[1:] == [("start", 0, "tool_use"), (0, '{"a":1}')]
        assert said(sequencer.feed([tool(1)])) == [("stop", 0, {"a": 1}), ("start", 1, "tool_use")]

    def test_a_tools_stop_waits_until_the_ending(self) -> None:
        sequencer = fresh()
        sequencer.feed([BEGIN, tool(0), end(0)])
        assert sequencer.feed([ends("tool_use")]) == []
        assert said(sequencer.feed([STOP])) == [("stop", 0, {}), ("message_delta", "tool_use"), "message_stop"]

    def test_other_stops_do_not_wait(self) -> None:
        assert said(events_of(BEGIN, start(0, "server_tool_use"), arguments(0, "{}"), end(0)))[-1] == ("stop", 0)
        assert said(events_of(BEGIN, start(0, "thinking"), thinking(0, "a"), end(0)))[-1] == ("stop", 0)

    def test_a_held_stop_is_dropped_before_a_failure(self) -> None:
        assert said(events_of(BEGIN, tool(0), arguments(0, "{}"), end(0), FAILURE))[-1] == (0, "{}")

    def test_after_a_held_stop_its_deltas_are_late(self) -> None:
        sequencer = fresh()
        sequencer.feed(
            [tool(0), arguments(0, "{}"), end(0), arguments(0, "x"), arguments(OPEN_BLOCK, "x"), unknown(OPEN_BLOCK, type="newer"), end(0)]
        )
        assert sequencer.dropped == 3
        assert said(sequencer.feed([text(OPEN_BLOCK, "a")])) == [("stop", 0, {}), ("start", 1, "text"), (1, "a")]

    @pytest.mark.parametrize("nothing", [[], [""], ["null"], [" "], ["nu", "ll"]])
    def test_no_argument_is_an_empty_object(self, nothing: list[str]) -> None:
        assert body_of(tool(0), *(arguments(0, piece) for piece in nothing), end(0), ends("tool_use"))[-1] == ("stop", 0, {})

    def test_arguments_are_appended_and_read_once(self) -> None:
        assert body_of(tool(0), arguments(0, '{"a"'), arguments(0, ':"b"}'), ends("tool_use"))[-1] == ("stop", 0, {"a": "b"})

    def test_broken_arguments_are_told(self) -> None:
        assert body_of(tool(0), arguments(0, '{"a"'), ends("tool_use"))[-1] == ("stop", 0, InvalidInput('{"a"', "invalid_json"))
        assert body_of(tool(0), arguments(0, "[1]"), ends("tool_use"))[-1] == ("stop", 0, InvalidInput("[1]", "not_an_object"))
        assert body_of(tool(0), arguments(0, "{}{}"), text(1, "a"))[2] == ("stop", 0, InvalidInput("{}{}", "invalid_json"))

    def test_arguments_that_max_tokens_cut_off_are_truncated(self) -> None:
        assert body_of(tool(0), arguments(0, '{"a"'), end(0), ends("max_tokens"))[-1] == ("stop", 0, InvalidInput('{"a"', "truncated"))
        assert body_of(tool(0), arguments(0, '{"a":1}'), end(0), ends("max_tokens"))[-1] == ("stop", 0, {"a": 1})
        assert body_of(tool(0), arguments(0, '{"a"'), tool(1), arguments(1, "{}"), ends("max_tokens"))[2] == (
            "stop",
            0,
            InvalidInput('{"a"', "invalid_json"),
        )

    def test_a_call_of_which_max_tokens_left_no_argument_is_truncated(self) -> None:
        assert body_of(tool(0), end(0), ends("max_tokens"))[-1] == ("stop", 0, InvalidInput("", "truncated"))
        assert body_of(tool(0), arguments(0, "null"), ends("max_tokens"))[-1] == ("stop", 0, {})

    @pytest.mark.parametrize("reason", ["tool_use", "end_turn", None])
    def test_a_broken_last_call_that_reached_max_tokens_ends_as_max_tokens(self, reason: str | None) -> None:
        steps = [tool(0), arguments(0, '{"a"'), ends(reason, usage={"output_tokens": 400})]
        assert body_of(*steps, max_tokens=400)[-1] == ("stop", 0, InvalidInput('{"a"', "truncated"))
        assert ending_of(*steps, max_tokens=400).delta["stop_reason"] == "max_tokens"

    def test_a_broken_last_call_below_max_tokens_keeps_its_reason(self) -> None:
        steps = [tool(0), arguments(0, '{"a"'), ends("tool_use", usage={"output_tokens": 399})]
        assert ending_of(*steps, max_tokens=400).delta["stop_reason"] == "tool_use"
        assert ending_of(*steps).delta["stop_reason"] == "tool_use"

    def test_a_whole_last_call_that_reached_max_tokens_keeps_its_reason(self) -> None:
        steps = [tool(0), arguments(0, "{}"), ends("tool_use", usage={"output_tokens": 400})]
        assert ending_of(*steps, max_tokens=400).delta["stop_reason"] == "tool_use"

    def test_escaped_halves_of_a_pair_in_an_input_are_replaced(self) -> None:
        assert body_of(tool(0), arguments(0, r'{"a":"\ud83d","b":"\uD83D\uDE00"}'))[-1] == ("stop", 0, {"a": "\ufffd", "b": "😀"})

    def test_arguments_beyond_the_limit_fail_the_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sequence, "ARGUMENTS_LIMIT", 10)
        sequencer = fresh()
        assert said(sequencer.feed([BEGIN, tool(0), arguments(0, "123456"), arguments(0, "789012"), text(0, "a")]))[1:] == [
            ("start", 0, "tool_use"),
            (0, "123456"),
        ]
        assert sequencer.failure is not None
        assert sequencer.failure.cause.code == "event_too_large"

    def test_after_arguments_beyond_the_limit_the_next_call_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The half of a pair that waits is what goes beyond it, and is told only when the next call begins."""
        monkeypatch.setattr(sequence, "ARGUMENTS_LIMIT", 10)
        sequencer = fresh()
        sequencer.feed([BEGIN, tool(0), arguments(0, "1234567890\ud83d"), tool(1)])
        assert sequencer.failure is not None
        assert sequencer.feed([arguments(1, "{}")]) == []


class TestEnding:
    def test_a_stop_reason_waits_for_message_stop(self) -> None:
        sequencer = fresh()
        assert sequencer.feed([BEGIN, ends("end_turn")])[1:] == []
        assert sequencer.stop_reason == "end_turn"
        assert said(sequencer.feed([STOP])) == [("message_delta", "end_turn"), "message_stop"]
        assert sequencer.done

    def test_an_open_block_is_closed_before_it(self) -> None:
        assert said(events_of(BEGIN, text(0, "a"), STOP))[-3:] == [("stop", 0), ("message_delta", "end_turn"), "message_stop"]

    def test_content_after_a_stop_reason_still_counts(self) -> None:
        assert said(events_of(BEGIN, text(0, "a"), ends("end_turn"), text(0, "b"), STOP))[2:4] == [(0, "a"), (0, "b")]

    def test_without_content_the_message_has_no_blocks(self) -> None:
        assert said(events_of(STOP)) == ["message_start", ("message_delta", "end_turn"), "message_stop"]

    def test_a_later_stop_reason_wins_and_none_does_not(self) -> None:
        assert ending_of(BEGIN, ends("max_tokens"), ends("refusal"), ends(None)).delta["stop_reason"] == "refusal"
        assert ending_of(BEGIN, ends("max_tokens"), ends("")).delta["stop_reason"] == "max_tokens"

    def test_an_unknown_stop_reason_passes(self) -> None:
        assert ending_of(BEGIN, ends("newer_reason")).delta["stop_reason"] == "newer_reason"

    def test_without_a_stop_reason_it_is_tool_use_or_end_turn_with_a_warning(self) -> None:
        for step, reason in ((tool(0), "tool_use"), (text(0, "a"), "end_turn"), (start(0, "server_tool_use"), "end_turn")):
            sequencer = fresh()
            assert said(sequencer.feed([BEGIN, step, STOP]))[-2] == ("message_delta", reason)
            assert (sequencer.stop_reason, sequencer.warnings) == (reason, ["no stop reason"])

    def test_a_stop_sequence_makes_end_turn_a_stop_sequence(self) -> None:
        assert ending_of(BEGIN, ends("end_turn", "###")).delta == {"stop_reason": "stop_sequence", "stop_sequence": "###"}
        assert ending_of(BEGIN, ends("tool_use", "###")).delta == {"stop_reason": "tool_use", "stop_sequence": "###"}
        assert ending_of(BEGIN, ends("stop_sequence", "###"), ends("end_turn")).delta == {"stop_reason": "end_turn", "stop_sequence": None}
        assert ending_of(BEGIN, ends(None, "###"), text(0, "a")).delta == {"stop_reason": "stop_sequence", "stop_sequence": "###"}

    def test_other_keys_are_merged_and_kept(self) -> None:
        first = MessageDelta({"stop_reason": "refusal", "stop_details": {"a": 1}, "container": None}, {}, {"context_management": {"x": 1}})
        second = MessageDelta({"stop_details": None, "container": {"id": "c"}}, {}, {"type": "forged", "usage": 1, "delta": 2, "more": 3})
        final = ending_of(BEGIN, first, second)
        assert final.delta == {"stop_reason": "refusal", "stop_sequence": None, "stop_details": {"a": 1}, "container": {"id": "c"}}
        assert final.rest == {"context_management": {"x": 1}, "more": 3}

    def test_a_message_delta_without_reason_passes_between_blocks(self) -> None:
        update = MessageDelta({"container": 1}, {"output_tokens": 4}, {"more": 2})
        events = events_of(BEGIN, update, text(0, "a"))
        expected = MessageDelta(
            {"stop_reason": None, "stop_sequence": None, "container": 1}, {"input_tokens": 5, "output_tokens": 4}, {"more": 2}
        )
        assert events[1] == expected

    @pytest.mark.parametrize("before", [(text(0, "a"),), (tool(0), end(0)), (start(0, "text"),)])
    def test_inside_a_block_it_is_merged_into_the_final_one(self, before: tuple[Step, ...]) -> None:
        update = MessageDelta({"container": 1}, {"output_tokens": 4}, {"more": 2})
        assert not any(isinstance(event, MessageDelta) for event in events_of(BEGIN, *before, update))
        final = ending_of(BEGIN, *before, update)
        assert (final.delta["container"], final.usage["output_tokens"], final.rest) == (1, 4, {"more": 2})

    def test_one_before_the_message_start_does_not_begin_the_message(self) -> None:
        assert events_of(ends(None, usage={"output_tokens": 4})) == []
        assert begun_with(ends(None, usage={"output_tokens": 4}), BEGIN)["id"] == "msg_up"

    def test_after_the_end_nothing_counts(self) -> None:
        sequencer = fresh()
        sequencer.feed([BEGIN, STOP])
        assert sequencer.feed([text(0, "a"), FAILURE, STOP]) == []
        assert sequencer.failure is None

    def test_after_a_failure_nothing_counts(self) -> None:
        sequencer = fresh()
        assert said(sequencer.feed([BEGIN, text(0, "a"), FAILURE, text(0, "b"), STOP])) == ["message_start", ("start", 0, "text"), (0, "a")]
        assert sequencer.failure is FAILURE
        assert sequencer.feed([STOP]) == []
        assert not sequencer.done


class TestUsage:
    def test_usage_is_merged_key_by_key_and_never_summed(self) -> None:
        steps = [
            BEGIN,
            Usage({"output_tokens": 3, "cache_read_input_tokens": 2}),
            text(0, "a"),
            Usage({"output_tokens": 4, "input_tokens": None}),
        ]
        assert ending_of(*steps, ends(usage={"output_tokens": 7})).usage == {
            "input_tokens": 5,
            "output_tokens": 7,
            "cache_read_input_tokens": 2,
        }

    def test_nested_usage_is_merged_too_and_null_never_overwrites(self) -> None:
        steps = [
            Usage({"cache_creation": {"a": 1, "b": 2}, "tier": "x", "n": None}),
            Usage({"cache_creation": {"b": 3, "a": None}, "tier": None}),
        ]
        assert ending_of(*steps).usage["cache_creation"] == {"a": 1, "b": 3}
        assert ending_of(*steps).usage["tier"] == "x"
        assert ending_of(*steps).usage["n"] is None

    def test_events_already_sent_do_not_change(self) -> None:
        sequencer = fresh()
        first = sequencer.feed([MessageStart({"usage": {"cache_creation": {"a": 1}}})])[0]
        sequencer.feed([Usage({"cache_creation": {"a": 2}})])
        assert isinstance(first, MessageStart)
        assert first.message["usage"]["cache_creation"] == {"a": 1}

    def test_usage_is_no_event_and_closes_no_block(self) -> None:
        assert said(events_of(BEGIN, text(0, "a"), Usage({"output_tokens": 1}), text(0, "b")))[-2:] == [(0, "a"), (0, "b")]
        assert events_of(Usage({"output_tokens": 1})) == []

    def test_usage_that_was_never_told_is_estimated(self) -> None:
        for steps in (
            [],
            [MessageStart({})],
            [MessageStart({"usage": {"input_tokens": None}})],
            [ends(usage={"service_tier": "x"})],
            [Usage({})],
        ):
            assert ending_of(*steps).usage["estimated"] is True
        for steps in ([BEGIN], [Usage({"output_tokens": 0})], [ends(usage={"input_tokens": 1})]):
            assert "estimated" not in ending_of(*steps).usage

    def test_an_upstream_cannot_say_estimated(self) -> None:
        steps = [MessageStart({"usage": {"input_tokens": 1, "estimated": True}}), ends(usage={"estimated": True})]
        assert "estimated" not in begun_with(*steps)["usage"]
        assert "estimated" not in ending_of(*steps).usage

    def test_the_record_sees_the_usage_so_far(self) -> None:
        sequencer = fresh()
        sequencer.feed([BEGIN, Usage({"output_tokens": 9})])
        assert sequencer.usage == {"input_tokens": 5, "output_tokens": 9}

    def test_usage_without_end_fails_the_answer(self) -> None:
        sequencer = fresh()
        sequencer.feed([Usage({f"k{number}": "x" * 300_000}) for number in range(5)])
        assert sequencer.failure is not None
        assert sequencer.failure.cause.code == "event_too_large"

    def test_metadata_without_end_fails_the_answer(self) -> None:
        sequencer = fresh()
        assert sequencer.feed([MessageDelta({f"k{number}": "x" * 300_000}, {}) for number in range(5)]) == []
        assert sequencer.failure is not None


class TestSurrogates:
    @pytest.mark.parametrize(("opening", "make"), [("text", text), ("thinking", thinking), ("tool_use", arguments)])
    def test_half_of_a_pair_waits_for_the_other(self, opening: str, make: Any) -> None:
        assert body_of(start(0, opening), make(0, "a\ud83d"), make(0, "\ude00b"))[1:3] == [(0, "a"), (0, "😀b")]

    def test_a_half_that_stands_alone_in_a_delta_waits_too(self) -> None:
        assert body_of(start(0, "text"), text(0, "\ud83d"), text(0, ""), text(0, "\ude00")) == [
            ("start", 0, "text"),
            (0, "😀"),
            ("stop", 0),
        ]

    def test_a_half_whose_other_never_comes_is_replaced(self) -> None:
        assert body_of(text(0, "a\ud83d"), text(0, "b"))[1:3] == [(0, "a"), (0, "\ufffdb")]
        assert body_of(text(0, "a\ud83d"), end(0))[1:] == [(0, "a"), (0, "\ufffd"), ("stop", 0)]
        assert body_of(text(0, "\ud83d")) == [("start", 0, "text"), (0, "\ufffd"), ("stop", 0)]
        assert body_of(text(0, "a\ud83d"), cites(0, {"x": 1}))[1:4] == [(0, "a"), (0, "\ufffd"), (0, {"x": 1})]
        assert body_of(text(0, "\ud83d"), thinking(0, "x"))[:3] == [("start", 0, "text"), (0, "\ufffd"), ("stop", 0)]

    def test_other_lone_halves_are_replaced(self) -> None:
        assert body_of(text(0, "a\ude00b\ud83dc"))[1] == (0, "a\ufffdb\ufffdc")
        assert body_of(text(0, "ok"), text(0, "a\ude00"))[2] == (0, "a\ufffd")

    def test_a_whole_pair_of_halves_becomes_its_character(self) -> None:
        assert body_of(text(0, "\ud83d\ude00"))[1] == (0, "😀")

    def test_they_are_mended_in_a_delta_that_says_more(self) -> None:
        more = unknown(0, type="text_delta", text="a\ud83d", x=1)
        assert body_of(start(0, "text"), more, text(0, "\ude00"))[1:3] == [(0, {"type": "text_delta", "text": "a", "x": 1}), (0, "😀")]

    def test_broken_arguments_hold_what_was_sent(self) -> None:
        assert body_of(tool(0), arguments(0, "{\ud83d"))[-3:] == [
            (0, "{"),
            (0, "\ufffd"),
            ("stop", 0, InvalidInput("{\ufffd", "invalid_json")),
        ]

    def test_whole_text_beyond_ascii_passes_as_the_same_object(self) -> None:
        delta = text(0, "你好😀")
        assert events_of(BEGIN, start(0, "text"), text(0, "a"), delta)[-1] is delta


class TestForgery:
    def test_an_upstreams_pings_and_gateway_events_are_removed(self) -> None:
        error = Error(ErrorBody("api_error", "x", "x", False), "r")
        assert said(events_of(BEGIN, Ping(), error, Abort("stopped"), Reset("x", 1), text(0, "a")))[1:] == [("start", 0, "text"), (0, "a")]

    def test_an_upstreams_input_on_a_stop_is_removed(self) -> None:
        assert body_of(tool(0), ContentBlockStop(0, input={"forged": 1}))[-1] == ("stop", 0, {})
        assert body_of(text(0, "a"), ContentBlockStop(0, invalid_input=InvalidInput("", "x")))[-1] == ("stop", 0)

    def test_an_upstreams_stats_are_removed(self) -> None:
        assert events_of(BEGIN, MessageStop(Stats()))[-1] == MessageStop()

    @pytest.mark.parametrize("name", ["reset", "error", "ping", "Bad", "a b", "a\nb", "", None, 5, "x" * 65])
    def test_an_unknown_event_whose_name_cannot_pass_is_dropped_and_counted(self, name: Any) -> None:
        sequencer = fresh()
        assert len(sequencer.feed([BEGIN, UnknownEvent({"type": name})])) == 1
        assert sequencer.dropped == 1

    def test_other_unknown_events_pass_in_their_place(self) -> None:
        newer = UnknownEvent({"type": "vendor.newer_event", "x": 1})
        assert body_of(start(0, "text"), newer, text(0, "a"), newer, end(0), newer) == [
            ("start", 0, "text"),
            newer,
            (0, "a"),
            newer,
            ("stop", 0),
            newer,
        ]


class TestContent:
    @pytest.mark.parametrize(
        "event",
        [
            *(text(0, "a"), thinking(0, "a"), signature(0, "a"), arguments(0, "{"), cites(0, {"x": 1})),
            *(unknown(0, type="newer"), unknown(0, type="text_delta", text="a", x=1)),
            *(tool(0), start(0, "redacted_thinking"), start(0, "newer"), start(0, "text", text="a"), start(0, "thinking", signature="s")),
        ],
    )
    def test_it_is_a_delta_or_the_start_of_more_than_an_empty_block(self, event: Event) -> None:
        assert is_content(event)

    @pytest.mark.parametrize(
        "event",
        [
            *(BEGIN, start(0, "text"), start(0, "thinking", thinking="", signature=""), text(0, ""), end(0), ends(), STOP),
            *(Ping(), UnknownEvent({"type": "newer"}), unknown(0, type="text_delta", text="", x=None), unknown(0, x=1)),
        ],
    )
    def test_everything_else_is_none(self, event: Event) -> None:
        assert not is_content(event)

    def test_the_sequencer_remembers_that_there_was_some(self) -> None:
        for steps, expected in (
            ([BEGIN, start(0, "text"), end(0)], False),
            ([start(0, "thinking")], False),
            ([text(0, "a")], True),
            ([tool(0)], True),
        ):
            sequencer = fresh()
            sequencer.feed(steps)
            assert sequencer.content is expected


class TestGrammarChecker:
    """The checker itself must be able to say no."""

    GOOD = (
        Ping(),
        *events_of(BEGIN, text(0, "a"), tool(1), STOP),
    )

    def test_it_accepts_a_good_stream_and_each_beginning_of_it(self) -> None:
        check(self.GOOD)
        for length in range(len(self.GOOD)):
            check(self.GOOD[:length], terminal=False)
            with pytest.raises(Broken):
                check(self.GOOD[:length])

    def test_it_refuses_a_stream_that_lacks_any_event_it_needs(self) -> None:
        for left_out, event in enumerate(self.GOOD):
            if not isinstance(event, Ping | ContentBlockDelta):
                with pytest.raises(Broken):
                    check([*self.GOOD[:left_out], *self.GOOD[left_out + 1 :]])

    def test_it_refuses_any_event_but_a_ping_twice(self) -> None:
        for twice, event in enumerate(self.GOOD):
            if not isinstance(event, Ping | ContentBlockDelta):
                with pytest.raises(Broken):
                    check([*self.GOOD[:twice], event, *self.GOOD[twice:]])

    def test_a_reset_begins_anew(self) -> None:
        started = list(self.GOOD[:3])
        check([*started, Reset("interrupted", 1), Ping(), *self.GOOD[1:]])
        for broken in ([*started, Reset("x", 1), Reset("x", 2)], [Reset("x", 1)], [*started, Reset("x", 1), *self.GOOD[2:]]):
            with pytest.raises(Broken):
                check(broken, terminal=False)

    @pytest.mark.parametrize(
        "event",
        [
            *(text(0, ""), thinking(0, "a"), text(0, "\ud83d"), text(1, "a"), start(1, "text"), ends(), STOP, BEGIN),
            *(ContentBlockStop(0, input={}), UnknownEvent({"type": "reset"}), ContentBlockDelta(0, UnknownDelta({"type": "text_delta"}))),
        ],
    )
    def test_in_a_text_block_it_refuses(self, event: Event) -> None:
        opened = self.GOOD[:3]
        check([*opened, text(0, "a")], terminal=False)
        with pytest.raises(Broken):
            check([*opened, event], terminal=False)
