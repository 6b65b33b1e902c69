"""The request vocabulary: what a caller may ask for, whatever format it was written in.

Content blocks, tools and schemas stay JSON: they are the provider's business and travel unharmed.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.json_text import Json

Role = Literal["user", "assistant", "system", "tool"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Positive = Annotated[int, Meta(ge=1)]
Content = str | list[Json]

MOST_MESSAGES = 10_000

# Keys of a provider's request that the gateway writes itself, whatever the format: what was validated must be what is sent.
WRITTEN = frozenset({
    "model", "messages", "system", "max_tokens", "stream", "stream_options", "temperature", "top_p", "stop_sequences", "n", "tools",
    "tool_choice", "response_format",
})  # fmt: skip


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn. A `tool` message is one tool result, for the call named by `tool_use_id` (or `tool_call_id`)."""

    role: Role
    content: Content
    tool_use_id: str | None = None
    tool_call_id: str | None = None


class Particulars(Struct, frozen=True):
    """What only one wire format has words for: for an upstream of that `format`; another leaves it out with a warning.

    `body`: keys of the request, merged over what the upstream's format writes; `messages`: keys of a message, by its number;
    `betas`: names of features not yet released, in a header where the format has one. `unvetted`: keys of `body` that the format's
    parser does not know, or that decide who pays: a caller with a key needs the alias's leave for them.
    """

    format: str
    body: Json = {}
    messages: dict[int, Json] = {}
    betas: tuple[str, ...] = ()
    unvetted: tuple[str, ...] = ()

    @property
    def left_out(self) -> str:
        """A warning for the log. It names what is vetted; other keys may be anything that a caller likes to say."""
        known = ", ".join(key for key in self.body if key not in self.unvetted)
        return f"what only {self.format} has words for was left out{f': {known}' if known else ''}"


class ChatRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`model`: an alias or `provider/model`; `max_tokens` in tokens; `extra`: provider-specific keys, passed on as they are.

    `particulars` are no key of the vocabulary: only the parsers of other formats set them.
    """

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MOST_MESSAGES)]
    model: str = "default"
    system: Content | None = None
    max_tokens: Positive | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] = []
    tools: list[Json] = []
    tool_choice: Json | None = None
    thinking: Json | None = None
    effort: Effort | None = None
    response_format: Json | None = None
    metadata: Json | None = None
    stream: bool = True
    resumable: bool = False
    extra: Json = {}
    particulars: Particulars | UnsetType = UNSET


class Place(NamedTuple):
    """Where a block stands. Written out only for who is told of it: the paths of a deep history are many times as long as itself."""

    outer: "Place | str"
    step: str

    def __str__(self) -> str:
        place: Place | str = self
        steps: list[str] = []
        while isinstance(place, Place):
            steps.append(place.step)
            place = place.outer
        return "".join([place, *reversed(steps)])


def blocks_within(path: str, content: Content) -> Iterator[tuple[Place, Json]]:
    """The blocks, and those inside them: in a tool's result, and in a document made of blocks."""
    waiting = [] if isinstance(content, str) else _placed(path, "", content)
    while waiting:
        place, block = waiting.pop()
        yield place, block
        source = block.get("source")
        waiting += _placed(place, ".content", block.get("content"))
        waiting += _placed(place, ".source.content", source.get("content") if isinstance(source, dict) else None)


def _placed(outer: Place | str, key: str, blocks: Any) -> list[tuple[Place, Json]]:
    """Backwards, since the last one is looked at first. One block may stand alone, as in results of Claude's own tools."""
    if isinstance(blocks, dict):
        return [(Place(outer, key), blocks)]
    if not isinstance(blocks, list):
        return []
    found = [(Place(outer, f"{key}[{number}]"), block) for number, block in enumerate(blocks) if isinstance(block, dict)]
    return found[::-1]


def fetched(block: Json) -> str | None:
    """The field of a block by which the provider would have to fetch a URL; None where nothing is to be fetched."""
    source, image = block.get("source"), block.get("image_url")
    if isinstance(source, dict) and source.get("type") == "url":
        return "source"
    url = image.get("url") if isinstance(image, dict) else image
    inline = isinstance(url, str) and url[:5].lower() == "data:"
    return "image_url" if block.get("type") == "image_url" and not inline else None
