"""`stream: false`: the whole answer as one `chat.completion`.

https://platform.openai.com/docs/api-reference/chat/object
"""

from gateway import json_text
from gateway.deltas import read_delta
from gateway.errors import GatewayError
from gateway.events import ContentBlockDelta, Event, InputJsonDelta, MessageStop, UnknownDelta
from gateway.formats.openai import words
from gateway.json_text import Json
from gateway.kept import Text
from gateway.message import Assembler


class Completion:
    """Gathers events; nothing is written before the message is complete. `created` in seconds since 1970."""

    def __init__(self, created: int) -> None:
        self._created = created
        self._assembler = Assembler()
        # By block: the Assembler keeps what the arguments mean, a client gets them as the model wrote them.
        self._arguments: dict[int, Text] = {}

    @property
    def partial(self) -> Json | None:
        """A broken answer's message so far, with the last call's arguments as far as they came."""
        message = self._assembler.partial
        return None if message is None else self._message(message)

    def feed(self, events: list[Event]) -> bytes:
        self._assembler.feed(events)
        for event in events:
            if isinstance(event, ContentBlockDelta) and isinstance(event.delta, InputJsonDelta | UnknownDelta):
                match read_delta(event.delta):
                    case ("input_json_delta", str(text), _):
                        self._arguments.setdefault(event.index, Text()).add(text)
                    case _:
                        pass
        if not isinstance(events[-1], MessageStop):
            return b""
        message = self._assembler.message
        choice, beside = words.ending(message)
        answer: Json = {
            "id": message["id"],
            "object": "chat.completion",
            "created": self._created,
            "model": message["model"],
            "choices": [{"index": 0, "message": self._message(message), "logprobs": None, **choice}],
            "usage": words.usage(message["usage"]),
        }
        return json_text.write(answer | ({"gateway": beside} if beside else {}))

    def heartbeat(self) -> bytes:
        return b""

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> None:
        return None

    def _message(self, message: Json) -> Json:
        text, thought, length = [], [], 0
        calls: list[Json] = []
        annotations: list[Json] = []
        for index, block in enumerate(message["content"]):
            match block:
                case {"type": "text", "text": str(said)}:
                    text.append(said)
                    for citation in block.get("citations") or ():
                        if (note := words.annotation(citation, length, length + len(said))) is not None:
                            annotations.append(note)
                    length += len(said)
                case {"type": "thinking", "thinking": str(said)}:
                    thought.append(said)
                case {"type": "tool_use"}:
                    calls.append(self._call(index, block))
                case _:
                    pass  # signed or redacted thinking's seal, what runs at the provider, and blocks nobody here knows
        found: Json = {"role": "assistant", "content": "".join(text) if text or not (calls or thought) else None, "refusal": None}
        found |= {"reasoning_content": "".join(thought)} if thought else {}
        found |= {"annotations": annotations} if annotations else {}
        return found | ({"tool_calls": calls} if calls else {})

    def _call(self, index: int, block: Json) -> Json:
        said = str(self._arguments.get(index, ""))
        if not said.strip() and "invalid_input" not in block:
            said = "{}"
        call: Json = {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": said}}
        return call | ({"extra_content": block["extra_content"]} if isinstance(block.get("extra_content"), dict) else {})
