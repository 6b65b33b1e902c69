"""A body in all the ways in which reads may cut it."""

from collections.abc import Iterator


def pieces_of(body: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, in two at every place, and in pieces of a few bytes."""
    yield [body]
    yield [body[at : at + 1] for at in range(len(body))]
    for at in range(len(body) + 1):
        yield [body[:at], body[at:]]
    for size in (2, 3, 7):
        yield [body[at : at + size] for at in range(0, len(body), size)]
