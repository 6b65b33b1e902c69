"""A Messages API request, as Claude's own clients send it, becomes a `ChatRequest`.

https://docs.anthropic.com/en/api/messages

Blocks, tools and messages stay what they were. What only Claude has words for goes along as `Particulars`, if it stands in one of
the lists below: a key that nobody here knows may decide who pays, or speak for somebody else, with the gateway's own key.
A refusal names the field and never repeats a value: it may be part of a prompt.
"""

import re
from difflib import get_close_matches
from typing import Any, get_args

import msgspec

from gateway import json_text
from gateway.chat import MOST_MESSAGES, ChatRequest, Content, Effort, Message, Particulars, Role
from gateway.errors import RequestRefused
from gateway.formats import Headers, Parsed
from gateway.json_text import Json
from gateway.kept import warn_once

NAME = "anthropic"
MOST_BETAS = 50
DATED = re.compile(r"([a-z0-9-]+?)-(?:\d{4}-\d{2}-\d{2}|\d{8})")

# Keys that the request vocabulary has.
OWN = frozenset({
    "model", "messages", "system", "max_tokens", "temperature", "top_p", "stop_sequences", "tools", "tool_choice", "thinking",
    "metadata", "stream",
})  # fmt: skip

# Keys that travel to a Claude upstream as they are. Not among them: `user_profile_id` and `billing_policy`, who pays.
PASSED = frozenset({
    "cache_control", "compaction", "container", "context_management", "diagnostics", "fallbacks", "inference_geo", "mcp_servers",
    "output_config", "service_tier", "speed", "top_k",
})  # fmt: skip
COSTLY = frozenset({"inference_geo", "speed"})  # of these, what makes the same answer dearer
PASSED_IN_MESSAGES = frozenset({"clear_at", "output_config"})  # of a system message in mid-conversation

# Beta features of the Messages API, without their dates: https://docs.anthropic.com/en/api/beta-headers
BETAS = frozenset({
    "advanced-tool-use", "advisor-tool", "cache-diagnosis", "claude-code", "code-execution", "compact", "computer-use", "context-1m",
    "context-management", "dev-full-thinking", "effort", "extended-cache-ttl", "fast-mode", "files-api",
    "fine-grained-tool-streaming", "inline-tools", "interleaved-thinking", "mcp-client", "mid-conversation-output-config",
    "mid-conversation-system-clear-at", "mid-conversation-tool-changes", "model-context-window-exceeded", "output-128k",
    "output-300k", "pdfs", "prompt-caching", "prompt-caching-scope", "search-results", "server-side-fallback", "skills",
    "structured-outputs", "task-budgets", "thinking-binding-controls", "thinking-display-updates", "thinking-token-count",
    "token-counting", "token-efficient-tools", "tool-examples", "tool-search-tool", "web-fetch", "web-search",
})  # fmt: skip

ROLES = tuple(role for role in get_args(Role) if role != "tool")
EFFORTS = get_args(Effort)


def parse(body: bytes, headers: Headers = ()) -> Parsed:
    """`RequestRefused` with a sentence that names the field."""
    said = _read(body)
    for key in said:
        if key == "thread" and said[key] is not None:
            raise _no_threads()
        if key not in OWN and key not in PASSED and key != "thread":
            raise _unknown(key, key, OWN | PASSED)
    warnings: list[str] = []
    passed = {key: said[key] for key in said if key in PASSED and said[key] is not None}
    if passed.get("fallbacks", "default") != "default":
        # Which models the gateway's key may be spent on is the configuration's business.
        raise RequestRefused("unsupported", 'fallbacks: only "default" is passed on; further models are the gateway\'s to configure.')
    max_tokens = _whole_number(said, "max_tokens", 0)
    if max_tokens == 0:  # Claude only fills its cache then
        passed["max_tokens"], max_tokens = 0, None
    messages, rest = _messages(said.get("messages"))
    effort, response_format = _output(passed.get("output_config"))
    if isinstance(config := passed.pop("output_config", None), dict):
        known = {"effort": effort, "format": response_format}  # every upstream knows them
        if further := {key: value for key, value in config.items() if value is None or value != known.get(key)}:
            passed["output_config"] = further
    particulars = Particulars(NAME, passed, rest, _betas(headers, warnings), tuple(key for key in passed if key in COSTLY))
    request = ChatRequest(
        messages=messages,
        model=_take(said, "model", str, "a string", "default"),
        system=_system(said.get("system")),
        max_tokens=max_tokens,
        temperature=_number(said, "temperature"),
        top_p=_number(said, "top_p"),
        stop_sequences=_texts(said, "stop_sequences"),
        tools=_tools(said),
        tool_choice=_typed(said, "tool_choice"),
        thinking=_typed(said, "thinking"),
        effort=effort,
        response_format=response_format,
        metadata=_take(said, "metadata", dict, "an object", None),
        stream=_take(said, "stream", bool, "true or false", False),
        particulars=particulars if passed or rest or particulars.betas else msgspec.UNSET,
    )
    return Parsed(request, warnings=tuple(warnings))


def _read(body: bytes) -> Json:
    """Strict JSON: what is passed on is what was read."""
    body = body.removeprefix(b"\xef\xbb\xbf")
    if not body.strip():
        raise _invalid("The body is empty: expected a JSON object")
    try:
        json_text.refuse_excess(body)
        said = msgspec.json.decode(body)
    except json_text.MalformedJson as error:
        raise _invalid(f"The body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        place = re.search(r"\(byte \d+\)", str(error))
        raise _invalid(f"The body is not JSON{f' {place[0]}' if place else ''}") from error
    if not isinstance(said, dict):
        raise _invalid("The body: expected an object")
    return said


def _messages(said: Any) -> tuple[list[Message], dict[int, Json]]:
    if said is None:
        raise _invalid("messages: required")
    if not isinstance(said, list) or not 0 < len(said) <= MOST_MESSAGES:
        raise _invalid(f"messages: expected 1 to {MOST_MESSAGES} messages")
    messages: list[Message] = []
    rest: dict[int, Json] = {}
    for number, one in enumerate(said):
        path = f"messages[{number}]"
        if not isinstance(one, dict):
            raise _invalid(f"{path}: expected an object")
        if one.get("role") not in ROLES:
            raise _invalid(f"{path}.role: expected one of {', '.join(ROLES)}")
        messages.append(Message(one["role"], _content(path, one.get("content"))))
        if len(one) > 2:
            rest[number] = {key: value for key, value in one.items() if key not in ("role", "content")}
            for key in rest[number]:
                if key not in PASSED_IN_MESSAGES:
                    raise _unknown(f"{path}.{_shown(key)}", key, PASSED_IN_MESSAGES | {"role", "content"})
    return messages, rest


def _content(path: str, content: Any) -> Content:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(f"{path}.content: {'required' if content is None else 'expected a string or a list of blocks'}")
    for number, block in enumerate(content):
        place = f"{path}.content[{number}]"
        match block:
            case {"type": "text"} if not isinstance(block.get("text"), str):
                raise _invalid(f"{place}.text: expected a string")
            case {"type": "tool_use"}:
                for key in ("id", "name"):
                    if not _is_text(block.get(key)):
                        raise _invalid(f"{place}.{key}: expected a string")
                if not isinstance(block.get("input"), dict):
                    raise _invalid(f"{place}.input: expected an object")
            case {"type": "tool_result"} if not _is_text(block.get("tool_use_id")):
                raise _invalid(f"{place}.tool_use_id: expected a string")
            case {"type": str(kind)} if kind:
                pass
            case {}:
                raise _invalid(f"{place}.type: expected a string")
            case _:
                raise _invalid(f"{place}: expected an object")
    return content


def _system(said: Any) -> Content | None:
    if said is None:
        return None
    if isinstance(said, str):
        return said
    if not isinstance(said, list):
        raise _invalid("system: expected a string or a list of blocks")
    for number, block in enumerate(said):
        if not isinstance(block, dict) or not _is_text(block.get("type")):
            raise _invalid(f"system[{number}].type: expected a string")
    return said


def _tools(said: Json) -> list[Json]:
    tools: list[Any] = _take(said, "tools", list, "a list", [])
    for number, tool in enumerate(tools):
        # A toolset of an MCP server has a type and no name.
        if not isinstance(tool, dict) or not (_is_text(tool.get("name")) or _is_text(tool.get("type"))):
            raise _invalid(f"tools[{number}].name: expected a string")
    return tools


def _typed(said: Json, key: str) -> Json | None:
    value: Json | None = _take(said, key, dict, "an object", None)
    if value is not None and not _is_text(value.get("type")):
        raise _invalid(f"{key}.type: expected a string")
    return value


def _output(config: Any) -> tuple[Effort | None, Json | None]:
    """What the request vocabulary has of it, for every upstream."""
    if config is None:
        return None, None
    if not isinstance(config, dict):
        raise _invalid("output_config: expected an object")
    effort, wanted = config.get("effort"), config.get("format")
    if wanted is not None and (not isinstance(wanted, dict) or not _is_text(wanted.get("type"))):
        raise _invalid("output_config.format.type: expected a string")
    if wanted is not None and wanted["type"] == "json_schema" and not isinstance(wanted.get("schema"), dict):
        raise _invalid("output_config.format.schema: expected an object")
    response_format = {"type": "json_schema", "schema": wanted["schema"]} if wanted and wanted["type"] == "json_schema" else None
    return effort if effort in EFFORTS else None, response_format


def _betas(headers: Headers, warnings: list[str]) -> tuple[str, ...]:
    said = ",".join(value.decode("latin-1") for name, value in headers if name == b"anthropic-beta")
    kept: dict[str, None] = {}
    for beta in (part.strip() for part in said.split(",")):
        found = DATED.fullmatch(beta)
        if found and found[1] in BETAS and len(kept) < MOST_BETAS:
            kept[beta] = None
        elif beta:
            warn_once(warnings, "a beta left out")
    return tuple(kept)


def _take(said: Json, key: str, kind: type, words: str, default: Any) -> Any:
    value = said.get(key)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise _invalid(f"{key}: expected {words}")
    return value


def _no_threads() -> RequestRefused:
    """A history that one provider holds is nowhere when another one answers. By this code the SDKs go on with the whole history."""
    sentence = "thread: no history is held at a provider, for the next answer may come from another one; send all messages."
    return RequestRefused("unsupported", sentence, provider_code="thread_unsupported_request")


def _whole_number(said: Json, key: str, least: int) -> int | None:
    value = said.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise _invalid(f"{key}: expected an integer of at least {least}")
    return value


def _number(said: Json, key: str) -> float | None:
    value = said.get(key)
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise _invalid(f"{key}: expected a number")
    return value


def _texts(said: Json, key: str) -> list[str]:
    value: list[str] = _take(said, key, list, "a list of strings", [])
    if not all(isinstance(text, str) for text in value):
        raise _invalid(f"{key}: expected a list of strings")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _unknown(path: str, key: str, known: frozenset[str]) -> RequestRefused:
    close = get_close_matches(_shown(key), known, n=1)
    return RequestRefused("invalid_request", f"{_shown(path)}: unknown key{f'; did you mean {close[0]}?' if close else '.'}")


def _shown(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}…"


def _invalid(sentence: str) -> RequestRefused:
    return RequestRefused("invalid_request", f"{sentence}.")
