"""Which clock strikes next."""

import pytest

from gateway.deadlines import Facts, next_deadline
from gateway.routing import Streaming, Timeouts

TIMES = Timeouts(connect=5, first_token=7, idle=30, total=100, finish=2, write=15)
STREAMING = Streaming(heartbeat=15, commit_after=5)


def facts(**changes: float | bool | None) -> Facts:
    known: dict[str, float | bool | None] = {"began": 1000.0, "commits": True, "attempt": 1001.0, "heard": 1001.0, "meant": 1001.0}
    return Facts(**(known | changes))  # type: ignore[arg-type]  # a table of its fields


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({}, (1005.0, "commit")),
        ({"commits": False}, (1008.0, "first_token")),
        ({"commits": False, "spoken": True}, (1031.0, "idle")),
        ({"committed": True, "sent": 1005.0}, (1008.0, "first_token")),
        ({"committed": True, "sent": 1005.0, "spoken": True}, (1020.0, "heartbeat")),
        ({"committed": True, "sent": 1095.0, "spoken": True, "heard": 1095.0, "meant": 1094.0}, (1100.0, "total")),
        ({"committed": True, "sent": 1040.0, "spoken": True, "heard": 1020.0, "meant": 1020.0}, (1050.0, "idle")),
        ({"committed": True, "sent": 1010.0, "spoken": True, "finishing": 1010.0}, (1012.0, "finish")),
        ({"committed": True, "sent": 1040.0, "spoken": True, "sending": 1041.0}, (1056.0, "write")),
        ({"committed": True, "sent": 1040.0, "sending": 1090.0}, (1100.0, "total")),
        ({"attempt": None, "commits": False}, (1100.0, "total")),
    ],
)
def test_the_nearest_deadline_and_what_it_means(changes: dict[str, float | bool | None], due: tuple[float, str]) -> None:
    assert next_deadline(facts(**changes), TIMES, STREAMING) == due


def test_comments_hold_off_idle_five_times_as_long_and_no_longer() -> None:
    quiet = Timeouts(idle=10)
    talking = facts(commits=False, attempt=0.0, heard=49.0, meant=1.0)
    assert next_deadline(talking, quiet, STREAMING) == (51.0, "idle")


def test_without_limits_nothing_is_due() -> None:
    assert next_deadline(facts(commits=False, attempt=None), Timeouts(total=None), STREAMING) is None
    assert next_deadline(facts(commits=False), Timeouts(idle=None), STREAMING) is None
