"""What the simulated model says to a request, in no wire format yet."""

import json
import re
import zlib
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any

from gateway.simulator.wishes import Wishes

MODELS = ("simulator", "simulator-fast")
CREATED = 1_790_000_000  # seconds since 1970: the same request gives the same script, whenever it is asked
THINKING = (
    "Somebody wrote to a gateway that has no provider yet. ",
    "I am a simulation, so I only pretend to think, ",
    "but my thoughts stream like real ones. ",
    "A friendly answer will do.",
)
FILLER = " The quick brown fox jumps over the lazy dog while tokens stream by, one after another, until the text is long enough."

_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class Call:
    """`whole`: the arguments are valid JSON and nothing is missing."""

    name: str
    arguments: str
    whole: bool = True


WEATHER = Call("get_weather", '{"city": "Paris"}')


@dataclass(frozen=True, slots=True)
class Reply:
    """`words` are parts of the text, each with the blanks before it; the counts of tokens are made up."""

    id: str
    model: str
    thinking: tuple[str, ...]
    words: tuple[str, ...]
    call: Call | None
    input_tokens: int

    @property
    def output_tokens(self) -> int:
        return len(self.thinking) + len(self.words) + (len(fragments(self.call.arguments)) if self.call else 0)


def compose(request: dict[str, Any], wishes: Wishes, body: bytes) -> Reply:
    messages = request["messages"]
    answered = _has_tool_result(messages)
    excerpt = " ".join(prompt(messages).split())[:80]
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
        input_tokens=input_tokens(body),
    )


def input_tokens(body: bytes) -> int:
    return max(1, len(body) // 4)


def prompt(messages: list[dict[str, Any]]) -> str:
    """The last text a user wrote: before a tool's result it is still the question."""
    texts = (_text(message.get("content")) for message in reversed(messages) if message.get("role") == "user")
    return next((text for text in texts if text.strip()), "")


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") for block in content if isinstance(block, dict)]
    return " ".join(text for text in texts if isinstance(text, str))


def _has_tool_result(messages: list[dict[str, Any]]) -> bool:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return False
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if message.get("role") == "tool" or any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks):
            return True
    return False


def _thinks_not(request: dict[str, Any]) -> bool:
    thinking = request.get("thinking")
    return request.get("reasoning_effort") == "none" or (isinstance(thinking, dict) and thinking.get("type") == "disabled")


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
            return Call(function["name"], json_of(_sample(function.get("input_schema") or function.get("parameters"))))
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


def fragments(arguments: str) -> list[str]:
    return [arguments[start : start + 6] for start in range(0, len(arguments), 6)]


def json_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # half a surrogate pair can come in through a prompt's \ud83d
