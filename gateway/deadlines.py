"""Which clock strikes next. Pure: the shells write down what happened and when, and ask here how long they may sleep."""

from dataclasses import dataclass
from typing import Literal

from gateway.routing import Streaming, Timeouts

# commit, heartbeat and write belong to the answer; the others end the attempt at the provider.
Meaning = Literal["commit", "heartbeat", "write", "first_token", "idle", "finish", "total"]

# Comments and pings show that a provider lives, not that it answers: they hold it off five times as long.
PATIENCE_WITH_COMMENTS = 5


@dataclass(slots=True)
class Facts:
    """Readings of one monotonic clock, in seconds; None: not now."""

    began: float  # the request's last byte
    commits: bool  # whether headers may go out before content (not for `stream: false`)
    committed: bool = False
    sent: float = 0.0  # the last bytes to the client
    sending: float | None = None  # a send is under way since
    attempt: float | None = None  # the current attempt at a provider
    spoken: bool = False  # it began to answer: content, or a thinking block
    heard: float = 0.0  # its last byte
    meant: float = 0.0  # its last frame that was more than a comment or ping
    finishing: float | None = None  # it gave a stop reason


def next_deadline(facts: Facts, timeouts: Timeouts, streaming: Streaming) -> tuple[float, Meaning] | None:
    """The nearest instant and what it means. While a send is blocked only `write` and `total` run."""
    due: list[tuple[float, Meaning]] = []
    if facts.finishing is None and timeouts.total is not None:
        due.append((facts.began + timeouts.total, "total"))
    if facts.sending is not None:
        due.append((facts.sending + timeouts.write, "write"))
        return min(due)
    if facts.committed:
        due.append((facts.sent + streaming.heartbeat, "heartbeat"))
    elif facts.commits:
        due.append((facts.began + streaming.commit_after, "commit"))
    if facts.finishing is not None:
        due.append((facts.finishing + timeouts.finish, "finish"))
    elif facts.attempt is not None:
        if timeouts.first_token is not None and not facts.spoken:
            due.append((facts.attempt + timeouts.first_token, "first_token"))
        if timeouts.idle is not None:
            silence = min(facts.heard + timeouts.idle, facts.meant + PATIENCE_WITH_COMMENTS * timeouts.idle)
            due.append((silence, "idle"))
    return min(due, default=None)
