"""What a model says, once in words and written by hand as both providers say it; the gateway's encoders have no part in it."""

import json
from dataclasses import dataclass, field
from typing import Any

from gateway.simulator import Script, Send
from tests.conformance import claude_wire
from tests.upstream import Answer, Request, Respond, split

Json = dict[str, Any]
SSE = (("content-type", "text/event-stream"),)
WEATHER: Json = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@dataclass(frozen=True)
class Said:
    """What a model says: thinking, text, calls (id, name, arguments), in that order."""

    thinking: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    finish: str = "stop"
    cached: int = 0
    reasoning: int = 0
    notes: tuple[Json, ...] = ()
    ask: Json = field(default_factory=dict)


NOTE = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}}
PARIS, ROME = ("call_1", "weather", ('{"city":', ' "Paris"}')), ("call_2", "weather", ('{"city": "Rome"}',))
TOOLS = {"tools": [WEATHER]}
CASES = {
    "text": Said(text=("Hello", " ", "world")),
    "unicode": Said(text=("Grüße 😀", "\u2028line", "\u0085\u2029", '"\\\n\t</think>data: [DONE]')),
    "one word": Said(text=("Hi",), ask={"temperature": 0.2, "top_p": 0.9, "stop": ["END"], "max_tokens": 20, "seed": 1, "user": "u"}),
    "reasoning": Said(thinking=("Let me", " see."), text=("It is", " 4."), reasoning=7),
    "a call": Said(calls=(PARIS,), finish="tool_calls", ask=TOOLS),
    "text and a call": Said(text=("I look.",), calls=(PARIS,), finish="tool_calls", ask={**TOOLS, "tool_choice": "required"}),
    "parallel calls": Said(calls=(PARIS, ROME), finish="tool_calls", ask=TOOLS),
    "reasoning and calls": Said(thinking=("hm",), calls=(PARIS, ROME), finish="tool_calls", ask=TOOLS),
    "a call without arguments": Said(calls=(("call_1", "now", ("{}",)),), finish="tool_calls", ask={**TOOLS, "parallel_tool_calls": False}),
    "cut by length": Said(text=("Once upon",), finish="length", ask={"max_completion_tokens": 3}),
    "filtered": Said(text=("I",), finish="content_filter"),
    "cached": Said(text=("Hi",), cached=100),
    "effort": Said(thinking=("hm",), text=("Hi",), ask={"reasoning_effort": "high"}),
    "annotations": Said(text=("So it", " is."), notes=(NOTE,)),
}


def usage(said: Said) -> Json:
    counts: Json = {"prompt_tokens": 120, "completion_tokens": 9, "total_tokens": 129}
    if said.cached:
        counts["prompt_tokens_details"] = {"cached_tokens": said.cached}
    if said.reasoning:
        counts["completion_tokens_details"] = {"reasoning_tokens": said.reasoning}
    return counts


def chunk(delta: Json | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return data({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test", "choices": choices, **more})


def data(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def openai_stream(said: Said, include_usage: bool) -> list[bytes]:
    frames = [chunk({"role": "assistant", "content": "" if said.text and not said.thinking else None})]
    frames += [chunk({"reasoning_content": text}) for text in said.thinking]
    frames += [chunk({"content": text}) for text in said.text]
    for index, (call_id, name, arguments) in enumerate(said.calls):
        function = {"name": name, "arguments": ""}
        frames.append(chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}))
        frames += [chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]}) for text in arguments]
    if said.notes:
        frames.append(chunk({"annotations": list(said.notes)}))
    frames.append(chunk({}, said.finish))
    if include_usage:
        frames.append(chunk(None, usage=usage(said)))
    return [*frames, b"data: [DONE]\n\n"]


def openai_document(said: Said) -> bytes:
    message: Json = {"role": "assistant", "content": "".join(said.text) if said.text else None, "refusal": None}
    if said.thinking:
        message["reasoning_content"] = "".join(said.thinking)
    if said.notes:
        message["annotations"] = list(said.notes)
    if said.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "".join(arguments)}}
            for call_id, name, arguments in said.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-test", "choices": [choice], "usage": usage(said)}
    return json.dumps(body).encode()


def as_claude(said: Said) -> Json:
    """The message of a Claude that says it."""
    reasons = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
    counts: Json = {"input_tokens": 120 - said.cached, "output_tokens": 9}
    if said.cached:
        counts["cache_read_input_tokens"] = said.cached
    if said.reasoning:
        counts["output_tokens_details"] = {"thinking_tokens": said.reasoning}
    content: list[Json] = []
    if said.thinking:
        content.append({"type": "thinking", "thinking": "".join(said.thinking), "signature": "sig"})
    if said.text:
        content.append(claude_wire.text("".join(said.text)))
    content += [claude_wire.call(call_id, name, json.loads("".join(arguments))) for call_id, name, arguments in said.calls]
    return claude_wire.message(*content, id="c1", model="gpt-test", stop_reason=reasons[said.finish], usage=counts)


def claude_stream(said: Said) -> list[bytes]:
    return [claude_wire.frame(event) for event in claude_wire.events(as_claude(said))]


def body_of(frames: list[bytes]) -> Script:
    return Script(200, SSE, tuple(Send(frame) for frame in frames))


def document(body: bytes, status: int = 200, **headers: str) -> Script:
    fields = {"content-type": "application/json", "content-length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Script(status, tuple(fields.items()), (Send(body),))


def plain(said: Said) -> Respond:
    """OpenAI as documented."""

    def respond(request: Request) -> Answer:
        asked = json.loads(request.body)
        if not asked.get("stream"):
            return document(openai_document(said))
        return body_of(openai_stream(said, bool((asked.get("stream_options") or {}).get("include_usage"))))

    return respond


def odd(said: Said) -> Respond:
    """The same from a lookalike: other line ends, comments, no space, pieces of 97 bytes, ids and names on each fragment, no index."""

    def respond(_: Request) -> Answer:
        frames = openai_stream(said, True)
        mutated: list[bytes] = [b"\xef\xbb\xbf: PROCESSING\r\n\r\n"]
        for frame in frames:
            if b"[DONE]" not in frame:
                body = json.loads(frame[6:])
                body |= {"system_fingerprint": None, "provider": "p", "obfuscation": "xyz"}
                for choice in body["choices"]:
                    choice["delta"].setdefault("role", "assistant")
                    choice["delta"].setdefault("content", None)
                    for call in choice["delta"].get("tool_calls", ()):
                        call_id, name, _arguments = said.calls[call["index"]]
                        call["id"] = call_id
                        call["function"]["name"] = name
                        call["type"] = "function"
                        del call["index"]
                frame = data(body)
            mutated.append(frame.replace(b"data: ", b"data:", 1).replace(b"\n", b"\r\n") + b": keep-alive\r\n\r\n")
        return Script(200, SSE, split(b"".join(mutated), 97, 0))

    return respond


def claude(said: Said) -> Respond:
    return claude_wire.telling(as_claude(said))


def odd_claude(said: Said) -> Respond:
    """The same from a lookalike: other line ends, comments, no space, no event names, pieces of 97 bytes, no index, no stops."""
    return lambda _: claude_wire.mangled(as_claude(said))


def refusing(status: int, **headers: str) -> Respond:
    error = {"message": "The provider says no.", "type": "invalid_request_error", "param": None, "code": None}
    return lambda _: document(json.dumps({"error": error}).encode(), status, **headers)
