"""Rewrites what the clients of every format get in the golden cases; the diff is then read, and committed or not.

`python -m tests.golden.write [case …]`: without arguments all of them, else those whose name contains one of the words.
Events (`events.jsonl`) are never written: they are the author's.
"""

import sys

from tests.golden.answers import write
from tests.golden.cases import CLIENTS, STREAMS


def main(words: list[str]) -> None:
    cases = [case for case in (*STREAMS, *CLIENTS) if not words or any(word in case for word in words)]
    changed = {case: count for case in cases if (count := write(case))}
    for case, count in changed.items():
        print(f"{case}: {count} file{'s' if count > 1 else ''}")
    print(f"{len(changed)} of {len(cases)} cases changed; now read `git diff tests/golden`.")


if __name__ == "__main__":
    main(sys.argv[1:])
