"""The request vocabulary: what a caller may ask for, whatever format it was written in.

Content blocks, tools and schemas stay JSON: they are the provider's business and travel unharmed.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.json_text import Json

Role = Literal["user", "assistant", "system", "tool"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Positive = Annotated[int, Meta(ge=1)]
Content = str | list[Json]

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


class ChatRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`model`: an alias or `provider/model`; `max_tokens` in tokens; `extra`: provider-specific keys, passed on as they are.

    `particulars` are no key of the vocabulary: only the parsers of other formats set them.
    """

    messages: Annotated[list[Message], Meta(min_length=1, max_length=10_000)]
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
