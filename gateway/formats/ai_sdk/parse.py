"""What `useChat` posts, as a `ChatRequest`.

https://ai-sdk.dev/docs/ai-sdk-ui/transport

The page adds what it likes to the body (`DefaultChatTransport({body})`): what the gateway has a word for is read, in its own spelling
or the AI SDK's, and the rest is the page's own business. assistant-ui sends `callSettings`, `config` and its tools by name;
`useCompletion` sends a `prompt` and no messages.
"""

from typing import Any, get_args

import msgspec

from gateway.chat import ChatRequest, Content, Effort, Message
from gateway.errors import RequestRefused
from gateway.formats import Parsed, fields
from gateway.formats.ai_sdk.history import turns
from gateway.formats.fields import refusal
from gateway.json_text import Json
from gateway.usage import token_count

EFFORTS: tuple[Effort, ...] = get_args(Effort)
FORMATS = ("text", "json_object", "json_schema")
CHOICES = {"auto": "auto", "none": "none", "required": "any"}

# Said by the client itself, or read below; any other key is left out with a warning.
READ = frozenset({
    "id", "messages", "prompt", "trigger", "messageId", "model", "system", "tools", "tool_choice", "toolChoice", "max_tokens", "maxTokens",
    "maxOutputTokens", "temperature", "top_p", "topP", "stop_sequences", "stopSequences", "thinking", "effort", "response_format",
    "metadata", "stream", "extra", "callSettings", "config", "resumable",
})  # fmt: skip


class _Message(msgspec.Struct):
    parts: msgspec.Raw


class _Body(msgspec.Struct):
    messages: list[_Message]


_shape = msgspec.json.Decoder(_Body)


def is_use_chat(body: bytes) -> bool:
    """Whether every message of the body is made of parts, which no other format's are."""
    if b'"parts"' not in body:
        return False
    try:
        return bool(_shape.decode(body).messages)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def parse(body: bytes) -> Parsed:
    """The request; `RequestRefused` with a sentence that names the field."""
    said = fields.whole(body)
    if fields.flag("resumable", said.get("resumable")):
        raise RequestRefused("unsupported", "resumable: streams that survive a disconnect are not available here.")
    warnings: list[str] = []
    settings = said | {key: value for key, value in _inner(said, "callSettings").items() if key not in said}
    prompt = said.get("prompt") if "messages" not in said else None
    messages = [Message("user", prompt)] if isinstance(prompt, str) and prompt else turns(said.get("messages"), warnings)
    tools = _tools(said.get("tools"))
    request = ChatRequest(
        messages=messages,
        model=fields.text("model", said.get("model") or _inner(said, "config").get("modelName")) or "default",
        system=_system(said.get("system")),
        max_tokens=_max_tokens(settings),
        temperature=_number(settings, "temperature"),
        top_p=_number(settings, "top_p", "topP"),
        stop_sequences=_stop(*_first(settings, "stop_sequences", "stopSequences")),
        tools=tools,
        tool_choice=_tool_choice(*_first(said, "tool_choice", "toolChoice"), tools),
        thinking=_typed("thinking", said.get("thinking")),
        effort=_effort(said.get("effort")),
        response_format=_response_format(said.get("response_format")),
        metadata=_metadata(said.get("metadata")),
        stream=fields.flag("stream", said.get("stream")) is not False,
        extra=_extra(said.get("extra")),
    )
    if ignored := said.keys() - READ:
        warnings.append(f"{len(ignored)} keys of the body that mean nothing here were left out")
    return Parsed(request, warnings=tuple(warnings), continues=_continues(said))


def _continues(said: Json) -> str | None:
    """A page that posts the output of a tool, or an approval, wants the rest of the same message."""
    match said.get("messages"):
        case [*_, {"role": "assistant", "id": str(name)}]:
            return name
        case [*_, {"role": "assistant"}]:
            return ""
        case _:
            return None


def _system(given: Any) -> Content | None:
    if isinstance(given, str | None):
        return given or None
    if not isinstance(given, list):
        raise refusal("system", "a string or a list of blocks is expected")
    for number, block in enumerate(given):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str) or not block["type"]:
            raise refusal(f"system[{number}].type", "a string is expected")
    return given


def _max_tokens(settings: Json) -> int | None:
    path, given = _first(settings, "max_tokens", "maxOutputTokens", "maxTokens")
    if given is None:
        return None
    if not (count := token_count(given)):
        raise refusal(path, "an integer of at least 1 is expected")
    return count


def _stop(path: str, given: Any) -> list[str]:
    if not isinstance(given, list | None) or not all(isinstance(text, str) for text in given or ()):
        raise refusal(path, "a list of strings is expected")
    return [text for text in given or () if text]


def _tools(given: Any) -> list[Json]:
    """A list in the gateway's words, or an object by name."""
    if isinstance(given, dict):
        return [_tool(f"tools.{_shown(name)}", name, tool) for name, tool in given.items()]
    if not isinstance(given, list | None):
        raise refusal("tools", "a list, or an object by name, is expected")
    return [_tool(f"tools[{number}]", None, tool) for number, tool in enumerate(given or ())]


def _tool(path: str, name: str | None, given: Any) -> Json:
    if not isinstance(given, dict):
        raise refusal(path, "an object is expected")
    name = name or given.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.name", "a name is expected")
    if "input_schema" in given or given.get("type") not in (None, "function", "dynamic"):
        return {**given, "name": name}  # as it is: Claude's own tools have no schema
    key, schema = _first(given, "inputSchema", "parameters")
    if isinstance(schema, dict) and isinstance(schema.get("jsonSchema"), dict):
        schema = schema["jsonSchema"]
    if not isinstance(schema, dict | None):
        raise refusal(f"{path}.{key}", "a JSON schema is expected")
    tool: Json = {"name": name}
    if isinstance(given.get("description"), str):
        tool["description"] = given["description"]
    tool["input_schema"] = schema or {"type": "object", "properties": {}}
    return tool | ({"strict": True} if given.get("strict") is True else {})


def _tool_choice(path: str, given: Any, tools: list[Json]) -> Json | None:
    match given:
        case None:
            return None
        case str() if given in CHOICES:
            return {"type": CHOICES[given]} if tools else None
        case {"type": "tool", "toolName": str(name)}:
            return {"type": "tool", "name": name}
        case {"type": str(kind)} if kind:
            return dict(given)
        case _:
            raise refusal(path, f"one of {', '.join(CHOICES)}, or an object with a type, is expected")


def _typed(path: str, given: Any) -> Json | None:
    if given is not None and not (isinstance(given, dict) and isinstance(given.get("type"), str) and given["type"]):
        raise refusal(path, "an object with a type is expected")
    return given


def _effort(given: Any) -> Effort | None:
    for effort in EFFORTS:
        if given == effort:
            return effort
    if given is not None:
        raise refusal("effort", f"one of {', '.join(EFFORTS)} is expected")
    return None


def _response_format(given: Any) -> Json | None:
    if given is not None and (not isinstance(given, dict) or given.get("type") not in FORMATS):
        raise refusal("response_format.type", f"one of {', '.join(FORMATS)} is expected")
    if given is not None and given["type"] == "json_schema" and not isinstance(given.get("schema"), dict):
        raise refusal("response_format.schema", "an object is expected")
    return given


def _metadata(given: Any) -> Json | None:
    """Pages keep many things there; to a provider goes who the user is."""
    user = given.get("user_id") if isinstance(given, dict) else None
    return {"user_id": user} if isinstance(user, str) and user else None


def _extra(given: Any) -> Json:
    if not isinstance(given, dict | None):
        raise refusal("extra", "an object is expected")
    return given or {}


def _inner(said: Json, key: str) -> Json:
    value = said.get(key)
    return value if isinstance(value, dict) else {}


def _first(said: Json, *names: str) -> tuple[str, Any]:
    """The first of the spellings that is there, and its value."""
    return next(((name, said[name]) for name in names if said.get(name) is not None), (names[0], None))


def _number(settings: Json, *names: str) -> float | None:
    return fields.number(*_first(settings, *names))


def _shown(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}…"
