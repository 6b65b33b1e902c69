"""A `ChatRequest` as a Chat Completions request.

https://platform.openai.com/docs/api-reference/chat/create
"""

from functools import lru_cache
from typing import Any

from msgspec import UNSET

from gateway import json_text
from gateway.chat import WRITTEN, ChatRequest
from gateway.formats import HeaderFields, Quirks, Target, UpstreamRequest
from gateway.formats.fields import refusal
from gateway.formats.openai import models
from gateway.formats.openai.history import History
from gateway.formats.openai.parts import word
from gateway.formats.openai.stream import OpenAIDecoder
from gateway.json_text import Json
from gateway.kept import warn_once

# What the gateway writes, or what would change the answer into something that it does not read.
OWN_KEYS = WRITTEN | {
    "max_completion_tokens", "stop", "parallel_tool_calls", "functions", "function_call", "reasoning_effort", "user", "audio", "best_of",
    "echo", "modalities",
}  # fmt: skip


class OpenAIFormat:
    """Chat Completions of any OpenAI-compatible provider."""

    name = "openai"

    def build(self, request: ChatRequest, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        provider = target.provider
        quirks = provider.quirks
        for key in request.extra:
            if key in OWN_KEYS or key == quirks.max_tokens_field:
                raise refusal(f"extra.{key}", "the gateway writes this key itself")
        history = History(request, quirks)
        warnings = history.warnings
        if not history.messages:
            raise refusal("messages", "at least one must say something")
        body: Json = {"model": target.model, "messages": history.messages, "stream": True}
        if stream_usage and quirks.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            body[quirks.max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.top_p is not None:
            body["top_p"] = request.top_p
        if request.stop_sequences:
            body["stop"] = request.stop_sequences
        if request.tools:
            body |= _tools(request, quirks, warnings)
        body |= _prefill(body["messages"], quirks)
        if request.thinking is not None or request.effort is not None:
            body |= _thinking(request, quirks, warnings)
        if (response_format := _response_format(request.response_format)) is not None:
            body["response_format"] = response_format
        if request.metadata is not None:
            user = request.metadata.get("user_id")
            if isinstance(user, str) and user:
                body["user"] = user
            if set(request.metadata) - {"user_id"}:
                warnings.append("metadata was left out, but for user_id")
        body |= request.extra
        if request.particulars is not UNSET:
            if request.particulars.format == self.name:
                body |= {key: value for key, value in request.particulars.body.items() if key != quirks.max_tokens_field}
            else:
                warnings.append(request.particulars.left_out)
        _fit(body, target.model, warnings)
        for key in quirks.refuses:
            if body.pop(key, None) is not None:
                warnings.append(f"{key} was left out: the provider refuses it")
        if provider.body:
            body = json_text.merged(body, provider.body)
        headers = _headers(provider.header_fields)
        return UpstreamRequest(f"{provider.base_url}/chat/completions", headers, json_text.write(body), tuple(warnings))

    def decoder(self, request: ChatRequest, target: Target, content_type: str = "") -> OpenAIDecoder:
        return OpenAIDecoder(target.provider, content_type)


OPENAI = OpenAIFormat()


@lru_cache(maxsize=256)
def _headers(fields: HeaderFields) -> HeaderFields:
    """The same for every request to a provider; the operator's come last and replace ours."""
    headers = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
    return tuple((headers | dict(fields)).items())


def _said_itself(request: ChatRequest) -> bool:
    """Whether the caller spoke of thinking in this format's own words."""
    particulars = request.particulars
    if particulars is UNSET or particulars.format != OpenAIFormat.name:
        return False
    return bool({"thinking", "reasoning_effort"} & particulars.body.keys())


def _prefill(messages: list[Json], quirks: Quirks) -> Json:
    """A last message of the assistant's is to be continued: each provider has its own way to say so, if any."""
    if messages[-1]["role"] != "assistant" or "tool_calls" in messages[-1]:
        return {}
    match quirks.prefill:
        case "pass":
            return {}
        case "refuse":
            raise refusal("messages", "the last one is the assistant's, which this provider does not continue; end with a user message")
        case "prefix" | "partial" as mark:
            messages[-1][mark] = True
            return {}
        case "continue_final_message":
            return {"continue_final_message": True, "add_generation_prompt": False}


def _thinking(request: ChatRequest, quirks: Quirks, warnings: list[str]) -> Json:
    """Whether to think, and how much, where the provider looks for it."""
    body: Json = {} if request.effort is None else {"reasoning_effort": request.effort}
    asked = request.thinking
    if asked is None or _said_itself(request):
        return body
    thinks, budget = asked.get("type") != "disabled", asked.get("budget_tokens")
    match quirks.thinking:
        case "effort":
            if request.effort is None:
                warnings.append("thinking was left out: this format only knows effort")
        case "type":
            body["thinking"] = {"type": "enabled" if thinks else "disabled"}
        case "enable_thinking":
            body["enable_thinking"] = thinks
            if thinks and isinstance(budget, int):
                body["thinking_budget"] = budget
        case "template":
            body["chat_template_kwargs"] = {"enable_thinking": thinks}
        case "reasoning":
            effort = body.pop("reasoning_effort", None)  # it takes one of the two
            body["reasoning"] = {"effort": effort} if thinks and effort else {"enabled": thinks}
            if thinks and not effort and isinstance(budget, int):
                body["reasoning"] = {"max_tokens": budget}
    return body


def _fit(body: Json, model: str, warnings: list[str]) -> None:
    """What the model is known to refuse is left out, or said as it takes it."""
    asked = body.get("reasoning_effort")
    if isinstance(asked, str) and (level := models.effort(model, asked)) != asked:
        body["reasoning_effort"] = level
        warnings.append(f"reasoning_effort became {level}: the model does not know another so near")
    for key in models.refused(model, body.get("reasoning_effort")):
        if body.pop(key, None) is not None:
            warnings.append(f"{key} was left out: the model refuses it")


def _tools(request: ChatRequest, quirks: Quirks, warnings: list[str]) -> Json:
    body: Json = {"tools": [_tool(f"tools[{number}]", tool) for number, tool in enumerate(request.tools)]}
    for written, tool in zip(body["tools"], request.tools, strict=True):
        if tool.get("cache_control") is None:
            continue
        if quirks.cache_control:
            written["cache_control"] = tool["cache_control"]
        else:
            warn_once(warnings, "cache_control was left out")
    choice = request.tool_choice
    if choice is None:
        return body
    match choice.get("type"):
        case "auto" | "none" as same:
            body["tool_choice"] = same
        case "any":
            body["tool_choice"] = "required"
        case "tool":
            if not isinstance(choice.get("name"), str) or not choice["name"]:
                raise refusal("tool_choice.name", "the tool that is chosen has a name")
            body["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
        case _:
            raise refusal("tool_choice.type", "expected one of auto, any, tool, none")
    if choice.get("disable_parallel_tool_use") is True:
        body["parallel_tool_calls"] = False
    return body


def _tool(path: str, tool: Json) -> Json:
    kind = tool.get("type")
    if kind not in (None, "custom", "function"):
        raise refusal(f"{path}.type", f"{word(kind)} is a tool that runs at the provider, which no OpenAI-compatible one has")
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise refusal(f"{path}.name", "a tool has a name")
    schema: Any = tool.get("input_schema")
    function: Json = {"name": name, "parameters": schema if isinstance(schema, dict) else {"type": "object", "properties": {}}}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _response_format(wanted: Json | None) -> Json | None:
    if wanted is None:
        return None
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            if not isinstance(wanted.get("schema"), dict):
                raise refusal("response_format.schema", "a JSON schema is expected")
            described: Json = {"name": wanted.get("name") or "answer", "schema": wanted["schema"]}
            if isinstance(wanted.get("strict"), bool):
                described["strict"] = wanted["strict"]
            return {"type": "json_schema", "json_schema": described}
        case _:
            raise refusal("response_format.type", "expected one of text, json_object, json_schema")
