"""The request vocabulary: what a caller may ask for, whatever format it was written in.

Content blocks, tools and schemas stay JSON: they are the provider's business and travel unharmed.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.json_text import Json

Role = Literal["user", "assistant", "system", "tool"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
Positive = Annotated[int, Meta(ge=1)]
Content = str | list[Json]


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """One turn. A `tool` message is one tool result, for the call named by `tool_use_id` (or `tool_call_id`)."""

    role: Role
    content: Content
    tool_use_id: str | None = None
    tool_call_id: str | None = None


class ChatRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`model`: an alias or `provider/model`; `max_tokens` in tokens; `extra`: provider-specific keys, passed on as they are."""

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
