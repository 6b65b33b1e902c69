"""A Chat Completions request as a `ChatRequest`.

https://platform.openai.com/docs/api-reference/chat/create

What another provider has no words for (seed, penalties, …) goes along as `Particulars`: an OpenAI-compatible one gets it as it came,
another is not asked. Unknown keys are among them, for frontends and providers invent many; a refusal never repeats a value.
"""

from typing import Any, get_args

from msgspec import UNSET

from gateway.chat import ChatRequest, Effort, Particulars
from gateway.errors import RequestRefused
from gateway.formats import Parsed, fields
from gateway.formats.fields import refusal
from gateway.formats.openai.parts import word
from gateway.formats.openai.turns import turns
from gateway.json_text import Json
from gateway.usage import token_count

EFFORTS: dict[str, Effort] = {**{effort: effort for effort in get_args(Effort)}, "minimal": "low"}
THINKING = frozenset({"adaptive", "disabled"})  # forms of `thinking` that need nothing besides

# Read here; everything else is passed on as it is.
READ = frozenset({
    "model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "tools",
    "tool_choice", "parallel_tool_calls", "reasoning_effort", "response_format", "user", "logprobs", "top_logprobs", "modalities", "audio",
})  # fmt: skip
# Keys of the documents, or of well-known look-alikes, that decide neither who pays nor which model answers nor what is asked of whom.
VETTED = frozenset({
    "chat_template_kwargs", "enable_thinking", "frequency_penalty", "include_reasoning", "logit_bias", "metadata", "min_p", "moderation",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning",
    "reasoning_effort", "reasoning_split", "repetition_penalty", "response_format", "safety_identifier", "seed", "store", "thinking",
    "thinking_budget", "top_k", "verbosity", "web_search_options",
})  # fmt: skip
# What would be lost without a word, or what Chat Completions says otherwise.
ELSEWHERE = {
    "functions": "the forerunner of tools is not available here; send tools",
    "function_call": "the forerunner of tool_choice is not available here; send tool_choice",
    "system": "a system prompt is a message with the role system or developer",
    "stop_sequences": "Chat Completions calls it stop",
    "resumable": "streams that survive a disconnect are not available here",
}


def parse(body: bytes) -> Parsed:
    """The request; `RequestRefused` with a sentence that names the field."""
    said = fields.whole(body)
    for key, why in ELSEWHERE.items():
        if said.get(key) is not None:
            raise _unsupported(key, why)
    _refuse_lost(said)
    warnings: list[str] = []
    more = {key: value for key, value in said.items() if key not in READ and value is not None}
    messages = turns(said.get("messages"), warnings)
    tools = _tools(said.get("tools"))
    tools, choice = _tool_choice(said, tools)
    effort, thinking = _effort(said, more)
    user = said.get("user")
    request = ChatRequest(
        messages=messages,
        model=fields.text("model", said.get("model")) or "default",
        max_tokens=_max_tokens(said),
        temperature=fields.number("temperature", said.get("temperature")),
        top_p=fields.number("top_p", said.get("top_p")),
        stop_sequences=_stop(said.get("stop")),
        tools=tools,
        tool_choice=choice,
        thinking=thinking,
        effort=effort,
        response_format=_response_format(said.get("response_format"), more),
        metadata={"user_id": user} if isinstance(user, str) and user else None,
        stream=fields.flag("stream", said.get("stream")) or False,
        particulars=Particulars("openai", body=more, unvetted=tuple(key for key in more if key not in VETTED)) if more else UNSET,
    )
    options = said.get("stream_options")
    if not isinstance(options, dict | None):
        raise refusal("stream_options", "an object is expected")
    usage = fields.flag("stream_options.include_usage", (options or {}).get("include_usage")) or False
    return Parsed(request, usage, tuple(warnings))


def _refuse_lost(said: Json) -> None:
    """What would be answered without what was asked for."""
    if said.get("n") not in (None, 1):
        raise _unsupported("n", "one answer at a time is what this gateway streams")
    if said.get("logprobs") or said.get("top_logprobs"):
        raise _unsupported("logprobs", "they are not passed on")
    modalities = said.get("modalities")
    if said.get("audio") or (modalities and modalities != ["text"]):
        raise _unsupported("modalities", "answers are text only")


def _max_tokens(said: Json) -> int | None:
    for key in ("max_completion_tokens", "max_tokens"):
        if (given := said.get(key)) is not None:
            if not (count := token_count(given)):
                raise refusal(key, "an integer of at least 1 is expected")
            return count
    return None


def _stop(given: Any) -> list[str]:
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list | None) or not all(isinstance(text, str) for text in given or ()):
        raise refusal("stop", "a string or a list of strings is expected")
    return [text for text in given or () if text]


def _effort(said: Json, more: Json) -> tuple[Effort | None, Json | None]:
    """The word itself goes to who knows it: not every provider has the same ones. `thinking` is how several of them call theirs."""
    thinking: Json | None = None
    match more.get("thinking"):
        case {"type": str(kind), **rest} if kind in THINKING or (kind == "enabled" and token_count(rest.get("budget_tokens"))):
            thinking = more["thinking"]
    given = said.get("reasoning_effort")
    if given is None:
        return None, thinking
    if given == "none":
        more["reasoning_effort"] = given
        return None, {"type": "disabled"}
    if not isinstance(given, str) or given not in EFFORTS:
        raise refusal("reasoning_effort", f"one of none, {', '.join(EFFORTS)} is expected")
    if EFFORTS[given] != given:
        more["reasoning_effort"] = given
    return EFFORTS[given], thinking


def _response_format(given: Any, more: Json) -> Json | None:
    match given:
        case None:
            return None
        case {"type": "text" | "json_object" as kind}:
            return {"type": kind}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **described}}:
            if described.get("description"):
                more["response_format"] = given
            return {
                "type": "json_schema",
                "schema": schema,
                **{key: described[key] for key in ("name", "strict") if described.get(key) is not None},
            }
        case {"type": "json_schema"}:
            raise refusal("response_format.json_schema.schema", "an object is expected")
        case _:
            raise refusal("response_format.type", "one of text, json_object, json_schema is expected")


def _tools(given: Any) -> list[Json]:
    if not isinstance(given, list | None):
        raise refusal("tools", "a list is expected")
    return [_tool(f"tools[{number}]", tool) for number, tool in enumerate(given or ())]


def _tool(path: str, given: Any) -> Json:
    if not isinstance(given, dict):
        raise refusal(path, "a tool is an object")
    if given.get("type") == "custom":
        raise _unsupported(f"{path}.type", "tools that take free text are not available here; use a function with one string parameter")
    if given.get("type") != "function":
        raise _unsupported(f"{path}.type", f"only functions are available here, not {word(given.get('type'))}")
    function = given.get("function")
    if not isinstance(function, dict):
        raise refusal(f"{path}.function", "an object is expected")
    schema = function.get("parameters")
    if not isinstance(schema, dict | None):
        raise refusal(f"{path}.function.parameters", "an object is expected")
    tool: Json = {"name": fields.name(f"{path}.function.name", function.get("name"))}
    if isinstance(function.get("description"), str):
        tool["description"] = function["description"]
    tool["input_schema"] = schema or {"type": "object", "properties": {}}
    if function.get("strict") is True:
        tool["strict"] = True
    if isinstance(given.get("cache_control"), dict):
        tool["cache_control"] = given["cache_control"]
    return tool


def _tool_choice(said: Json, tools: list[Json]) -> tuple[list[Json], Json | None]:
    """The tools that may be called, and whether one must be."""
    given = said.get("tool_choice")
    if isinstance(given, dict) and given.get("type") == "allowed_tools":
        tools, given = _allowed(given.get("allowed_tools"), tools)
    choice: Json | None = None
    match given:
        case None:
            pass
        case "none" | "auto":
            choice = {"type": given}
        case "required":
            choice = {"type": "any"}
        case {"type": "function", "function": {"name": str(name)}} if any(tool["name"] == name for tool in tools):
            choice = {"type": "tool", "name": name}
        case {"type": "function"}:
            raise refusal("tool_choice.function.name", "the name of one of the tools is expected")
        case {"type": "custom"}:
            raise _unsupported("tool_choice.type", "tools that take free text are not available here")
        case _:
            raise refusal("tool_choice", "none, auto, required, a function or allowed_tools is expected")
    if not tools:
        if choice is not None and choice["type"] == "any":
            raise refusal("tool_choice", "there are no tools to choose from")
        return tools, None
    if fields.flag("parallel_tool_calls", said.get("parallel_tool_calls")) is False and (choice is None or choice["type"] != "none"):
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return tools, choice


def _allowed(given: Any, tools: list[Json]) -> tuple[list[Json], Any]:
    """Only the tools that are named; whoever is not told of the others cannot call them."""
    listed = given.get("tools") if isinstance(given, dict) else None
    if not isinstance(listed, list):
        raise refusal("tool_choice.allowed_tools.tools", "a list is expected")
    functions = [one.get("function") for one in listed if isinstance(one, dict)]
    names = {function.get("name") for function in functions if isinstance(function, dict)}
    return [tool for tool in tools if tool["name"] in names], given.get("mode")


def _unsupported(path: str, why: str) -> RequestRefused:
    return RequestRefused("unsupported", f"{path}: {why}.")
