"""What configuration says of a provider with a format of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gateway.formats.mapped.pointers import Pointer
from gateway.json_text import Json

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "refusal", "model_context_window_exceeded", "error"]
"""What a finish value may mean; `error`: the provider gave up, and what came so far is no answer."""

# Words that need no line in the configuration, in any case.
USUAL: dict[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "end_turn": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "content_filter": "refusal",
    "refusal": "refusal",
    "error": "error",
}


@dataclass(frozen=True, slots=True)
class Description:
    """`request`: the template of the body. Each pointer goes into a chunk: an event's data, a JSON line, or the one document.

    `text`: None where the body is nothing but the answer's text. `finish`: what says that the answer is finished (null, false, zero and
    empty do not); without it the body's end does. `cumulative`: every chunk repeats all text so far. `roles`: the provider's names.
    """

    request: Json
    text: Pointer | None
    reasoning: Pointer | None = None
    finish: Pointer | None = None
    stop_reasons: Mapping[str, StopReason] = field(default_factory=dict)
    usage: Mapping[str, Pointer] = field(default_factory=dict)
    error: Pointer | None = None
    cumulative: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)

    def stop_reason(self, word: str) -> StopReason | None:
        """What a finish value means; None if nobody said."""
        return self.stop_reasons.get(word) or USUAL.get(word.lower())
