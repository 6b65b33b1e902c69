"""A request becomes a script of steps: a Claude and OpenAI provider without a model, a key, a clock or a network.

Its bytes are text templates of the documented wire formats, written independently of `formats/`, so that both sides cannot share
one misunderstanding. The same request always gives the same script.

The answer thinks, says that it is a simulation, and calls a tool; after a tool result it only thinks and speaks. `key=value`
words change that. They are read from the model's name (`simulator,speed=0,fault=cut`) and, stronger, from the last text the user
wrote ("tell me more [tokens=500 tool=0]"):

    speed=0.03          seconds between two events; a model whose name contains `fast` has 0
    tokens=500          length of the text, in words
    thinking=0  tool=0  leave out the thinking, the tool call
    chunk=7             cut the body every 7 bytes, whatever the borders of its events
    wait=3              seconds of silence before the headers
    fault=status:529    answer with this status (400 to 599) and the provider's error body
    fault=html          answer 200 with a proxy's web page
    fault=truncate_tool stop for max_tokens within the tool's arguments
    fault=error         an error inside the stream, after `after` events
    fault=cut|reset|hang   close by FIN | by RST | fall silent, after `after` events; `after=0`: before the headers
    after=5             how many events come before the fault

Whoever runs the simulator as a server may give such words too; they are the weakest, and `fault=none` undoes a fault of theirs.
"""

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Stay connected and silent for ever."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close by FIN in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Close by RST."""


Pause = Wait | Hang | Cut | Reset
Step = Send | Pause


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: what happens before its headers, the headers, what happens to its body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    before: tuple[Pause, ...] = ()


@dataclass(frozen=True, slots=True)
class Wishes:
    """The `key=value` words of a request."""

    speed: float
    tokens: int | None
    thinking: bool
    tool: bool
    chunk: int
    wait: float
    fault: str
    status: int
    after: int


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What the simulated model says, in no format yet."""

    id: str
    model: str
    thinking: tuple[str, ...]
    words: tuple[str, ...]
    call: Call | None
    input_tokens: int

    @property
    def output_tokens(self) -> int:
        return len(self.thinking) + len(self.words) + (len(_fragments(self.call.arguments)) if self.call else 0)


MODELS = ("simulator", "simulator-fast")
CREATED = 1_790_000_000
# A script is built whole: at one byte a piece the longest text is some ten megabytes of steps.
MOST_TOKENS = 10_000
MOST_SECONDS = 600.0

THINKING = (
    "Somebody wrote to a gateway that has no provider yet. ",
    "I am a simulation, so I only pretend to think, ",
    "but my thoughts stream like real ones. ",
    "A friendly answer will do.",
)
FILLER = " The quick brown fox jumps over the lazy dog while tokens stream by, one after another, until the text is long enough."
PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

_BREAKS: dict[str, Pause] = {"cut": Cut(), "reset": Reset(), "hang": Hang()}
FAULTS = ("html", "truncate_tool", "error", *_BREAKS)  # beside status:529
_WORD = re.compile(r"\s*\S+")
_WISH = re.compile(r"\b(speed|tokens|thinking|tool|chunk|wait|fault|after)=(\d+(?:\.\d+)?|[a-z_]+(?::\d+)?)")


def answer(path: str, body: bytes, wishes: str = "") -> Script:
    """The simulated provider's whole behaviour: the path tells the format, as at a real one. `wishes`: for every answer."""
    path = path.partition("?")[0].rstrip("/")
    if path.endswith("/models"):
        return _document(200, _models())
    if path.endswith("/v1/messages"):
        return _script(body, wishes, _CLAUDE)
    if path.endswith("/chat/completions"):
        return _script(body, wishes, _OPENAI)
    return _document(404, (_CLAUDE if "/v1/messages/" in path else _OPENAI).error(404, f"There is nothing at {path}."))


def _script(body: bytes, common: str, wire: "_Claude | _OpenAI") -> Script:
    request = _request(body)
    if isinstance(request, str):
        return _document(400, wire.error(400, request))
    wishes = _wishes(common, str(request.get("model") or MODELS[0]), _prompt(request["messages"]))
    stream = request.get("stream") is True
    before: tuple[Pause, ...] = (Wait(wishes.wait),) if wishes.wait else ()
    status = wishes.status or (529 if wishes.fault == "error" and not stream else 0)
    if status:
        return _document(status, wire.error(status, f"The simulator was asked for {status}."), before)
    if wishes.fault == "html":
        return Script(200, (("content-type", "text/html"),), (Send(PAGE),), before)
    reply = _reply(request, wishes, body)
    pieces = wire.stream(reply, request) if stream else [wire.document(reply)]
    end: tuple[Pause, ...] = ()
    if wishes.fault in _BREAKS:
        pieces, end = pieces[: wishes.after], (_BREAKS[wishes.fault],)
        before = before if wishes.after else before + end
    elif wishes.fault == "error":
        pieces = [*pieces[: wishes.after], wire.error_event("The simulator was asked for an error.")]
    headers = (("content-type", wire.content_type if stream else "application/json"), (wire.id_header, f"req_{reply.id}"))
    return Script(200, headers, (*_paced(pieces, wishes), *end), before)


def _paced(pieces: Sequence[bytes], wishes: Wishes) -> Iterable[Step]:
    if wishes.chunk:
        body = b"".join(pieces)
        pieces = [body[start : start + wishes.chunk] for start in range(0, len(body), wishes.chunk)]
    for number, piece in enumerate(pieces):
        if number and wishes.speed:
            yield Wait(wishes.speed)
        yield Send(piece)


def _document(status: int, document: str, before: tuple[Pause, ...] = ()) -> Script:
    headers = [("content-type", "application/json")]
    if status == 429:
        headers.append(("retry-after", "1"))
    return Script(status, tuple(headers), (Send(_utf8(document)),), before)


def _models() -> str:
    """One list that is legal as Claude's and as OpenAI's."""
    rows = [
        f'{{"id":"{name}","object":"model","type":"model","display_name":"{name}","created":{CREATED},'
        f'"created_at":"2026-09-21T14:13:20Z","owned_by":"simulator"}}'
        for name in MODELS
    ]
    return f'{{"object":"list","data":[{",".join(rows)}],"has_more":false,"first_id":"{MODELS[0]}","last_id":"{MODELS[-1]}"}}'


def _request(body: bytes) -> dict[str, Any] | str:
    """The request, or why it is none."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return "The request body is not valid JSON."
    if not isinstance(request, dict):
        return "The request body is not a JSON object."
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        return "messages: a list of at least one message is required."
    return request


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") for block in content if isinstance(block, dict)]
    return " ".join(text for text in texts if isinstance(text, str))


def _prompt(messages: list[dict[str, Any]]) -> str:
    """The last text a user wrote: before a tool's result it is still the question."""
    texts = (_text(message.get("content")) for message in reversed(messages) if message.get("role") == "user")
    return next((text for text in texts if text.strip()), "")


def _has_tool_result(messages: list[dict[str, Any]]) -> bool:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return False
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if message.get("role") == "tool" or any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks):
            return True
    return False


def _wishes(common: str, model: str, prompt: str) -> Wishes:
    """The last word on each wins."""
    fast = "speed=0" if "fast" in model else ""
    found: dict[str, str] = dict(_WISH.findall(f"{common} {fast} {model} {prompt}"))

    def number(key: str, default: float, most: float) -> float:
        value = found.get(key, "")
        return min(float(value), most) if value[:1].isdigit() else default

    fault, _, status = found.get("fault", "").partition(":")
    return Wishes(
        speed=number("speed", 0.03, MOST_SECONDS),
        tokens=int(number("tokens", 0, MOST_TOKENS)) if "tokens" in found else None,
        thinking=number("thinking", 1, 1) > 0,
        tool=number("tool", 1, 1) > 0,
        chunk=int(number("chunk", 0, 1 << 20)),
        wait=number("wait", 0.0, MOST_SECONDS),
        fault=fault if fault in FAULTS else "",
        status=int(status) if fault == "status" and len(status) == 3 and status[0] in "45" else 0,
        after=int(number("after", 5, MOST_TOKENS)),
    )


def _reply(request: dict[str, Any], wishes: Wishes, body: bytes) -> Reply:
    messages = request["messages"]
    answered = _has_tool_result(messages)
    excerpt = " ".join(_prompt(messages).split())[:80]
    text = (
        f'Thank you, the tool has answered. You had asked: "{excerpt}". This is still a simulation, so that is all I make of it.'
        if answered
        else f'Hello! You wrote: "{excerpt}". This is a simulation: no model was asked and no key was needed, '
        "but every byte takes the path that a real provider's bytes would take."
    )
    call = _call(request)
    if wishes.fault == "truncate_tool":
        call = call or WEATHER
        call = Call(call.name, call.arguments[: max(1, len(call.arguments) // 2)], whole=False)
    elif answered or not wishes.tool:
        call = None
    words = _WORD.findall(text)
    if wishes.tokens is not None:
        words = list(islice(chain(words, cycle(_WORD.findall(FILLER))), wishes.tokens))
    return Reply(
        id=f"sim_{zlib.crc32(body):08x}",
        model=str(request.get("model") or MODELS[0]),
        thinking=THINKING if wishes.thinking and not _thinks_not(request) else (),
        words=tuple(words),
        call=call,
        input_tokens=max(1, len(body) // 4),
    )


def _thinks_not(request: dict[str, Any]) -> bool:
    thinking = request.get("thinking")
    return request.get("reasoning_effort") == "none" or (isinstance(thinking, dict) and thinking.get("type") == "disabled")


WEATHER = Call("get_weather", '{"city": "Paris"}')


def _call(request: dict[str, Any]) -> Call | None:
    """A call of the first tool that the caller runs itself; without any, one that it never offered, to be seen streaming."""
    choice = request.get("tool_choice")
    if choice == "none" or (isinstance(choice, dict) and choice.get("type") == "none"):
        return None
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, dict):
            continue
        function = tool["function"] if isinstance(tool.get("function"), dict) else tool
        if isinstance(function.get("name"), str) and tool.get("type", "custom") in ("custom", "function"):
            return Call(function["name"], _json(_sample(function.get("input_schema") or function.get("parameters"))))
    return WEATHER


def _sample(schema: object) -> dict[str, object]:
    """The smallest input that a plain JSON Schema accepts: its required properties."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    samples: dict[str, object] = {"string": "Paris", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    found: dict[str, object] = {}
    for name in required:
        row = properties.get(name) if isinstance(name, str) else None
        if not isinstance(row, dict):
            continue
        choices, kind = row.get("enum"), row.get("type")
        found[name] = choices[0] if isinstance(choices, list) and choices else samples.get(kind if isinstance(kind, str) else "string")
    return found


def _fragments(arguments: str) -> list[str]:
    return [arguments[start : start + 6] for start in range(0, len(arguments), 6)]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # half a surrogate pair can come in through a prompt's \ud83d


class _Claude:
    """https://docs.anthropic.com/en/docs/build-with-claude/streaming"""

    content_type = "text/event-stream; charset=utf-8"
    id_header = "request-id"

    def stream(self, reply: Reply, request: dict[str, Any]) -> list[bytes]:
        frames = [
            (
                "message_start",
                f'"message":{{"id":"msg_{reply.id}","type":"message","role":"assistant","model":{_json(reply.model)},"content":[],'
                f'"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":1}}}}',
            )
        ]
        if reply.thinking:
            deltas = [f'"type":"thinking_delta","thinking":{_json(thought)}' for thought in reply.thinking]
            deltas.append(f'"type":"signature_delta","signature":"{self._signature(reply)}"')
            frames += self._block(0, '"type":"thinking","thinking":"","signature":""', deltas)
        if reply.words:
            deltas = [f'"type":"text_delta","text":{_json(word)}' for word in reply.words]
            frames += self._block(bool(reply.thinking), '"type":"text","text":""', deltas)
        if reply.call:
            start = f'"type":"tool_use","id":"toolu_{reply.id}","name":{_json(reply.call.name)},"input":{{}}'
            deltas = [f'"type":"input_json_delta","partial_json":{_json(part)}' for part in ["", *_fragments(reply.call.arguments)]]
            frames += self._block(bool(reply.thinking) + bool(reply.words), start, deltas)
        frames.append(
            (
                "message_delta",
                f'"delta":{{"stop_reason":"{self._stop_reason(reply)}","stop_sequence":null}},'
                f'"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":{reply.output_tokens}}}',
            )
        )
        events = [self._event(name, rest) for name, rest in frames]
        return [*events[:1], _utf8('event: ping\ndata: {"type": "ping"}\n\n'), *events[1:], self._event("message_stop", "")]

    def document(self, reply: Reply) -> bytes:
        blocks = []
        if reply.thinking:
            blocks.append(f'{{"type":"thinking","thinking":{_json("".join(reply.thinking))},"signature":"{self._signature(reply)}"}}')
        if reply.words:
            blocks.append(f'{{"type":"text","text":{_json("".join(reply.words))}}}')
        if reply.call:
            value = reply.call.arguments if reply.call.whole else "{}"
            blocks.append(f'{{"type":"tool_use","id":"toolu_{reply.id}","name":{_json(reply.call.name)},"input":{value}}}')
        return _utf8(
            f'{{"id":"msg_{reply.id}","type":"message","role":"assistant","model":{_json(reply.model)},"content":[{",".join(blocks)}],'
            f'"stop_reason":"{self._stop_reason(reply)}","stop_sequence":null,'
            f'"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":{reply.output_tokens}}}}}'
        )

    def error(self, status: int, message: str) -> str:
        names = {
            401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
            429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
        }  # fmt: skip
        name = names.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return f'{{"type":"error","error":{{"type":"{name}","message":{_json(message)}}}}}'

    def error_event(self, message: str) -> bytes:
        return _utf8(f"event: error\ndata: {self.error(529, message)}\n\n")

    def _block(self, index: int, start: str, deltas: list[str]) -> list[tuple[str, str]]:
        head = f'"index":{int(index)}'
        return [
            ("content_block_start", f'{head},"content_block":{{{start}}}'),
            *(("content_block_delta", f'{head},"delta":{{{delta}}}') for delta in deltas),
            ("content_block_stop", head),
        ]

    def _event(self, name: str, rest: str) -> bytes:
        return _utf8(f'event: {name}\ndata: {{"type":"{name}"{"," if rest else ""}{rest}}}\n\n')

    def _signature(self, reply: Reply) -> str:
        return f"c2ltdWxhdGVk{reply.id[4:]}"

    def _stop_reason(self, reply: Reply) -> str:
        if reply.call is None:
            return "end_turn"
        return "tool_use" if reply.call.whole else "max_tokens"


class _OpenAI:
    """https://platform.openai.com/docs/api-reference/chat-streaming; the reasoning field is DeepSeek's."""

    content_type = "text/event-stream"
    id_header = "x-request-id"

    def stream(self, reply: Reply, request: dict[str, Any]) -> list[bytes]:
        options = request.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        deltas = ['"role":"assistant","content":""']
        deltas += [f'"reasoning_content":{_json(thought)}' for thought in reply.thinking]
        deltas += [f'"content":{_json(word)}' for word in reply.words]
        if reply.call:
            function = f'{{"name":{_json(reply.call.name)},"arguments":""}}'
            deltas.append(f'"tool_calls":[{{"index":0,"id":"call_{reply.id}","type":"function","function":{function}}}]')
            parts = _fragments(reply.call.arguments)
            deltas += [f'"tool_calls":[{{"index":0,"function":{{"arguments":{_json(part)}}}}}]' for part in parts]
        no_usage = ',"usage":null' if usage else ""
        choices = [f'{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":null}}' for delta in deltas]
        choices.append(f'{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"{self._finish_reason(reply)}"}}')
        chunks = [self._chunk(reply, choice, no_usage) for choice in choices]
        if usage:
            chunks.append(self._chunk(reply, "", f',"usage":{self._usage(reply)}'))
        return [*chunks, b"data: [DONE]\n\n"]

    def document(self, reply: Reply) -> bytes:
        message = f'"role":"assistant","content":{_json("".join(reply.words) or None)}'
        if reply.thinking:
            message += f',"reasoning_content":{_json("".join(reply.thinking))}'
        if reply.call:
            function = f'{{"name":{_json(reply.call.name)},"arguments":{_json(reply.call.arguments)}}}'
            message += f',"tool_calls":[{{"id":"call_{reply.id}","type":"function","function":{function}}}]'
        choice = f'{{"index":0,"message":{{{message}}},"logprobs":null,"finish_reason":"{self._finish_reason(reply)}"}}'
        return _utf8(
            f'{{"id":"chatcmpl-{reply.id}","object":"chat.completion","created":{CREATED},"model":{_json(reply.model)},'
            f'"choices":[{choice}],"usage":{self._usage(reply)}}}'
        )

    def error(self, status: int, message: str) -> str:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = '"rate_limit_exceeded"' if status == 429 else "null"
        return f'{{"error":{{"message":{_json(message)},"type":"{kind}","param":null,"code":{code}}}}}'

    def error_event(self, message: str) -> bytes:
        return _utf8(f"data: {self.error(500, message)}\n\n")

    def _chunk(self, reply: Reply, choices: str, rest: str) -> bytes:
        return _utf8(
            f'data: {{"id":"chatcmpl-{reply.id}","object":"chat.completion.chunk","created":{CREATED},"model":{_json(reply.model)},'
            f'"choices":[{choices}]{rest}}}\n\n'
        )

    def _usage(self, reply: Reply) -> str:
        given, made = reply.input_tokens, reply.output_tokens
        return (
            f'{{"prompt_tokens":{given},"completion_tokens":{made},"total_tokens":{given + made},'
            f'"completion_tokens_details":{{"reasoning_tokens":{len(reply.thinking)}}}}}'
        )

    def _finish_reason(self, reply: Reply) -> str:
        if reply.call is None:
            return "stop"
        return "tool_calls" if reply.call.whole else "length"


_CLAUDE, _OPENAI = _Claude(), _OpenAI()
