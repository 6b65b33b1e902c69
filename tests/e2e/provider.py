"""What the tests' providers say: Claude's and OpenAI's streams, whole or in parts, and their refusals."""

import json
from typing import Any

from gateway.simulator import Cut, Hang, Pause, Reset, Script, Send, Step, Wait

SSE = (("content-type", "text/event-stream"),)
SILENCE: tuple[Step, ...] = (Hang(),)


def frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def delta(text: str, index: int = 0) -> bytes:
    return frame({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})


def block(kind: str = "text", index: int = 0) -> bytes:
    body = {"text": {"type": "text", "text": ""}, "thinking": {"type": "thinking", "thinking": "", "signature": ""}}[kind]
    return frame({"type": "content_block_start", "index": index, "content_block": body})


START = frame(
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 1},
        },
    }
)
BLOCK = block()
HELLO = delta("Hello")
BLOCK_STOP = frame({"type": "content_block_stop", "index": 0})
REASON = frame({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 7}})
STOP = frame({"type": "message_stop"})
PING = frame({"type": "ping"})
COMMENT = b": still here\n\n"
OVERLOADED = frame({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
BEGUN = START + BLOCK + HELLO
ENDING = BLOCK_STOP + REASON + STOP
WHOLE = BEGUN + delta(" world") + ENDING


def stream(*steps: Step | bytes, before: tuple[Pause, ...] = ()) -> Script:
    """A 200 with these; bytes are one network write."""
    return Script(200, SSE, tuple(Send(step) if isinstance(step, bytes) else step for step in steps), before)


GOOD = stream(WHOLE)


def refusal(status: int, message: str = "No.", **headers: str) -> Script:
    """A JSON error in Claude's words."""
    kinds = {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    body = json.dumps({"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Script(status, tuple(fields.items()), (Send(body),))


def openai_chunk(**fields: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c1", "object": "chat.completion.chunk", "model": "gpt-test", **fields}).encode() + b"\n\n"


def openai_text(text: str, finish: str | None = None) -> bytes:
    return openai_chunk(choices=[{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}])


OPENAI_BEGUN = openai_chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]) + openai_text(
    "Hello"
)
OPENAI_FINISH = openai_text("", "stop")
OPENAI_DONE = b"data: [DONE]\n\n"

__all__ = ["Cut", "Hang", "Reset", "Script", "Send", "Step", "Wait"]
