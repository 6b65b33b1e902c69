"""What an alias says about its requests: a text of its own, how long an answer may be, and what callers may use.

A request for what is not allowed is refused with the field's name and what is allowed; it is never answered without it. Only the
longest answer is lowered silently (the log says so): clients write a number there that nobody chose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from msgspec import UNSET, structs

from gateway.chat import ChatRequest, Content, Place, blocks_within, fetched
from gateway.errors import RequestRefused
from gateway.formats.anthropic.models import LEAST_BUDGET
from gateway.json_text import Json

Feature = Literal["tools", "server_tools", "thinking", "url_sources"]
FEATURES: tuple[Feature, ...] = get_args(Feature)

# Keys of `extra`, and of the requests of other formats, that are a way to one of the features.
WAYS: dict[str, Feature] = {
    "mcp_servers": "server_tools", "container": "server_tools",  # Claude
    "web_search_options": "server_tools",  # OpenAI
    "plugins": "server_tools",  # OpenRouter
    "search_parameters": "server_tools",  # xAI
    "compound_custom": "server_tools", "search_settings": "server_tools",  # Groq
    "enable_search": "server_tools", "search_options": "server_tools", "enable_code_interpreter": "server_tools",  # DashScope
    "web_search": "server_tools",  # Zhipu, MiniMax
    "thinking": "thinking", "reasoning_effort": "thinking", "reasoning": "thinking", "include_reasoning": "thinking",
    "enable_thinking": "thinking", "thinking_budget": "thinking", "chat_template_kwargs": "thinking",
    "prompt_mode": "thinking",  # Mistral
    "extra_body": "thinking",  # Gemini, on the wire too
}  # fmt: skip
# What says of such a key that it is not to be used. An empty object is none of it: OpenAI's search is asked for by one.
OFF: tuple[Any, ...] = (
    None, False, "none", [], {"type": "disabled"}, {"enable_thinking": False}, {"enabled": False}, {"effort": "none"},
)  # fmt: skip

# Where formats other than the vocabulary say how many tokens thinking, or an answer, may take: a number, or an object with one.
# llama.cpp's `n_predict` counts more than `max_tokens` beside it; less than zero is no end.
BUDGETS = (
    ("thinking_budget", ""), ("reasoning", "max_tokens"), ("thinking", "budget_tokens"),
    ("n_predict", ""), ("max_completion_tokens", ""), ("max_output_tokens", ""), ("max_new_tokens", ""),
)  # fmt: skip

# Claude's own tools that the *client* runs, by how their types begin; any other type runs at the provider.
CLIENT_TOOLS = ("bash_", "text_editor_", "memory_", "computer_", "browser_")
# What other formats say in words of their own, but the vocabulary too: it passes whatever `extra_allowed` lists.
SAME = frozenset({"max_tokens", "output_config", "reasoning_effort", "response_format", "thinking"})


@dataclass(frozen=True, slots=True)
class Rules:
    """`default` and `cap` are tokens of an answer; `extra`: the keys beyond the vocabulary that pass, None for all.

    `keyed`: callers have keys, so that without a list of its own an alias lets pass only what is ordinary.
    """

    system: str | None = None
    default: int | None = None
    cap: int | None = None
    allow: frozenset[Feature] = frozenset(FEATURES)
    extra: frozenset[str] | None = None
    keyed: bool = False


NO_RULES = Rules()


def ruled(request: ChatRequest, rules: Rules, alias: str) -> tuple[ChatRequest, list[str]]:
    """The request as the alias lets it through, with warnings for the log; `RequestRefused` if it does not."""
    if len(rules.allow) < len(FEATURES):
        for path, feature in _used(request):
            if feature not in rules.allow:
                raise _refused(str(path), f"model '{alias}' allows no {feature}; it allows {_listed(rules.allow)}")
    for path in _beyond(request, rules):
        raise _refused(path[:70], f"model '{alias}' does not pass this key on; it passes {_passed(rules)}")
    changes: dict[str, Any] = {}
    warnings: list[str] = []
    if rules.system:
        changes["system"] = _before(rules.system, request.system)
    most = _most(request, rules)
    if most is not None and most != request.max_tokens:
        changes["max_tokens"] = most
        if request.max_tokens is not None:
            warnings.append("max_tokens lowered to the alias's cap")
    if rules.cap is not None:
        changes |= _capped(request, rules.cap)
    return structs.replace(request, **changes) if changes else request, warnings


def _most(request: ChatRequest, rules: Rules) -> int | None:
    """How many tokens the answer may have; the alias's default is without the thinking that was asked for."""
    asked = request.max_tokens
    if asked is None and rules.default is not None:
        asked = rules.default + max(0, _budget(request.thinking))
    return rules.cap if asked is None else min(asked, rules.cap or asked)


def _budget(thinking: Json | None) -> int:
    budget = (thinking or {}).get("budget_tokens")
    return budget if isinstance(budget, int) else 0


def _capped(request: ChatRequest, cap: int) -> Json:
    """Thinking and answer, wherever they are asked for: not every provider counts the one among the tokens of the other."""
    changes: Json = {"thinking": _within(request.thinking, cap), "extra": _lowered(request.extra, cap)}
    if request.particulars is not UNSET:
        changes["particulars"] = structs.replace(request.particulars, body=_lowered(request.particulars.body, cap))
    return changes


def _lowered(body: Json, cap: int) -> Json:
    for key, inner in BUDGETS:
        value = body.get(key)
        asked = value.get(inner) if isinstance(value, dict) else value
        if isinstance(asked, int | float) and not 0 <= asked <= cap:
            body = {**body, key: {**value, inner: cap} if isinstance(value, dict) else cap}
    return body


def _within(thinking: Json | None, most: int) -> Json | None:
    """Thinking has to leave room for an answer: its budget is less than `max_tokens`."""
    if thinking is None or _budget(thinking) < most:
        return thinking
    return {**thinking, "budget_tokens": max(most // 2, LEAST_BUDGET)} if most > LEAST_BUDGET else None


def _before(text: str, system: Content | None) -> Content:
    """The alias's text, then the caller's own; blocks stay blocks, for their `cache_control`."""
    if not system:
        return text
    if isinstance(system, str):
        return f"{text}\n\n{system}"
    return [{"type": "text", "text": text}, *system]


def _used(request: ChatRequest) -> Iterator[tuple[Place | str, Feature]]:
    """Each feature that the request uses, and where."""
    for number, tool in enumerate(request.tools):
        yield f"tools[{number}]", "server_tools" if _at_provider(tool) else "tools"
    if request.thinking is not None and request.thinking not in OFF:
        yield "thinking", "thinking"
    if request.effort is not None:
        yield "effort", "thinking"
    for path, body in _bodies(request):
        for key, value in body.items():
            if key in WAYS and value not in OFF:
                yield f"{path}{key}", WAYS[key]
        if isinstance(config := body.get("output_config"), dict) and config.get("effort") is not None:
            yield f"{path}output_config.effort", "thinking"
    contents: list[tuple[str, Content]] = [("system", request.system or "")]
    contents += [(f"messages[{number}].content", message.content) for number, message in enumerate(request.messages)]
    for path, content in contents:
        for place, block in blocks_within(path, content):
            if (field := fetched(block)) is not None:
                yield Place(place, f".{field}"), "url_sources"
            if block.get("type") == "tool_addition":  # Claude's way to bring a tool in mid-conversation
                added = block.get("tool")
                yield place, "server_tools" if not isinstance(added, dict) or _at_provider(added) else "tools"


def _at_provider(tool: Json) -> bool:
    kind = tool.get("type")
    return isinstance(kind, str) and kind not in ("custom", "function") and not kind.startswith(CLIENT_TOOLS)


def _bodies(request: ChatRequest) -> Iterator[tuple[str, Json]]:
    """Everything that goes out as it came in, and how its keys are called."""
    yield "extra.", request.extra
    if request.particulars is not UNSET:
        yield "", request.particulars.body
        for number, keys in request.particulars.messages.items():
            yield f"messages[{number}].", keys


def _beyond(request: ChatRequest, rules: Rules) -> Iterator[str]:
    """The keys that do not pass."""
    if rules.extra is None and not rules.keyed:
        return
    passing = rules.extra or frozenset()
    yield from (f"extra.{key}" for key in request.extra if key not in passing)
    if request.particulars is not UNSET:
        body, unvetted = request.particulars.body, request.particulars.unvetted
        stopped = unvetted if rules.extra is None else [key for key in body if key not in SAME]
        yield from (key for key in stopped if key not in passing)


def _passed(rules: Rules) -> str:
    if rules.extra is None:
        return "what the format documents and costs nothing extra; extra_allowed in the configuration names more"
    return ", ".join(sorted(rules.extra)) or "none"


def _listed(allow: frozenset[Feature]) -> str:
    return ", ".join(feature for feature in FEATURES if feature in allow) or "none of " + ", ".join(FEATURES)


def _refused(path: str, why: str) -> RequestRefused:
    return RequestRefused("unsupported", f"{path}: {why}.")
