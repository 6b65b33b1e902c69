"""A `ChatRequest` for a provider that is described in configuration, and knows text only.

What would change the answer's meaning (tools, images, structured output) is refused with the field's name; what only shades it (sampling,
effort) is left out with a warning where the template has no place for it.
"""

from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from gateway import json_text
from gateway.chat import WRITTEN, ChatRequest
from gateway.errors import RequestRefused
from gateway.formats import Provider, Target, UpstreamRequest
from gateway.formats.mapped import template
from gateway.formats.mapped.description import Description
from gateway.json_text import Json
from gateway.kept import warn_once

ACCEPTED = "text/event-stream, application/x-ndjson, application/json, text/plain"


def build(request: ChatRequest, target: Target, description: Description) -> UpstreamRequest:
    provider = target.provider
    chat = _Chat(provider)
    chat.read(request)
    used = frozenset(finding.name for finding in template.findings(description.request))
    body: Json = template.filled(description.request, _values(request, target, chat, description, used))
    for key in request.extra:
        if key in description.request or key in WRITTEN:
            raise RequestRefused("invalid_request", f"extra.{key}: the gateway writes this key itself.")
    body = json_text.merged(body | request.extra, provider.body)
    headers = {"content-type": "application/json", "accept": ACCEPTED, "accept-encoding": "identity", **dict(provider.header_fields)}
    return UpstreamRequest(provider.base_url, tuple(headers.items()), json_text.write(body), tuple(chat.warnings))


def _values(request: ChatRequest, target: Target, chat: "_Chat", description: Description, used: frozenset[str]) -> Json:
    """What the placeholders stand for; a warning for what has no place in the template."""
    turns, system = chat.turns, chat.system
    if system and "system" not in used and not used.isdisjoint(("messages", "transcript")):
        turns, system = [("system", system), *turns], ""
    named = [{"role": description.roles.get(role, role), "content": text} for role, text in turns]
    values: Json = {
        "messages": named,
        "prompt": next((text for role, text in reversed(turns) if role == "user"), None),
        "transcript": "\n\n".join([*(f"{turn['role']}: {turn['content']}" for turn in named), f"{_assistant(description)}:"]),
        "system": system or None,
        "model": target.model,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": request.stop_sequences or None,
    }
    if values["prompt"] is None and "prompt" in used:
        raise RequestRefused("invalid_request", f"messages: provider {target.provider.name} is asked by a user's text, and there is none.")
    for name in ("system", "max_tokens", "temperature", "top_p", "stop"):
        if values[name] is not None and name not in used:
            chat.warnings.append(f"{name} was left out")
    if used.isdisjoint(("messages", "transcript")) and len(turns) > 1:
        chat.warnings.append("all but the latest user's text was left out")
    return {name: value for name, value in values.items() if value is not None}


def _assistant(description: Description) -> str:
    return description.roles.get("assistant", "assistant")


@dataclass(slots=True)
class _Chat:
    """What of a chat is text: the leading system prompt, and who said what."""

    provider: Provider
    system: str = ""
    turns: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def read(self, request: ChatRequest) -> None:
        self._refuse(request)
        leading = [] if request.system is None else [self._text("system", request.system)]
        for number, message in enumerate(request.messages):
            path = f"messages[{number}]"
            if message.role == "tool":
                raise self._text_only(path, "a tool's result")
            text = self._text(f"{path}.content", message.content)
            if message.role == "system" and not self.turns:
                leading.append(text)
            else:
                self.turns.append((message.role, text))
        if not self.turns:
            raise RequestRefused("invalid_request", "messages: at least one message must not be a system message.")
        self.system = "\n\n".join(text for text in leading if text)

    def _refuse(self, request: ChatRequest) -> None:
        if request.tools:
            raise self._text_only("tools", "tools")
        if request.response_format is not None and request.response_format.get("type") != "text":
            raise self._text_only("response_format", "a format of its answer")
        if request.thinking is not None:
            self.warnings.append("thinking was left out")
        if request.effort is not None:
            self.warnings.append("effort was left out")
        if request.metadata is not None:
            self.warnings.append("metadata was left out")
        if request.particulars is not UNSET:
            self.warnings.append(request.particulars.left_out)

    def _text(self, path: str, content: str | list[Json]) -> str:
        if isinstance(content, str):
            return content
        texts: list[str] = []
        for number, block in enumerate(content):
            match block.get("type"):
                case "text":
                    texts.append(_string(f"{path}[{number}].text", block.get("text")))
                case "thinking" | "redacted_thinking":
                    warn_once(self.warnings, "earlier thinking was left out")
                case "tool_use":
                    raise self._text_only(f"{path}[{number}]", "a tool's use")
                case "tool_result":
                    raise self._text_only(f"{path}[{number}]", "a tool's result")
                case "image":
                    raise self._text_only(f"{path}[{number}]", "an image")
                case _:
                    raise self._text_only(f"{path}[{number}]", "this block")
        return "\n\n".join(text for text in texts if text)

    def _text_only(self, path: str, what: str) -> RequestRefused:
        return RequestRefused("unsupported", f"{path}: provider {self.provider.name} takes text only and cannot be given {what}.")


def _string(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise RequestRefused("invalid_request", f"{path}: expected a string.")
    return value
