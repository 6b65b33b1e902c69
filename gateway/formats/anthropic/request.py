"""A chat request as Claude's (https://docs.anthropic.com/en/api/messages).

Content blocks go out as they came in: a signature is valid only with its own text, a cache only with the same prefix. Left out
is what Claude is known to answer with 400: empty text, thinking that nobody signed, sampling that a model no longer takes.
"""

from functools import lru_cache
from typing import Any

from msgspec import UNSET

from gateway import json_text
from gateway.chat import WRITTEN, ChatRequest, Content, Message, Particulars, blocks_within, fetched
from gateway.formats import HeaderFields, Provider, Target, UpstreamRequest
from gateway.formats.anthropic import models
from gateway.formats.anthropic.options import Warnings, invalid, max_tokens, options
from gateway.formats.calls import paired
from gateway.json_text import Json

# What a request to count tokens may hold: nothing that is only about the answer.
COUNTED = frozenset(("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")) | {
    "compaction", "context_management", "mcp_servers", "speed",
}  # fmt: skip
NONE = Particulars("anthropic")

# Keys that `extra` may not write.
OWN_KEYS = WRITTEN | {"thinking", "output_config", "effort", "metadata"}


def build(request: ChatRequest, target: Target) -> UpstreamRequest:
    return _posted(request, target, "/v1/messages", None)


def build_count(request: ChatRequest, target: Target) -> UpstreamRequest:
    """How many tokens the request would be (https://docs.anthropic.com/en/api/messages-count-tokens)."""
    return _posted(request, target, "/v1/messages/count_tokens", COUNTED)


def _posted(request: ChatRequest, target: Target, path: str, keys: frozenset[str] | None) -> UpstreamRequest:
    """With those `keys` of the body, or all."""
    provider, warnings = target.provider, Warnings()
    particulars = _particulars(request, warnings)
    body = _body(request, target, particulars, warnings)
    if provider.body:
        body = json_text.merged(body, provider.body)
    if keys is not None:
        body = {key: value for key, value in body.items() if key in keys}
    headers = _with_betas(_headers(provider.version, provider.header_fields), particulars.betas)
    return UpstreamRequest(f"{provider.base_url}{path}", headers, json_text.write(body), tuple(warnings))


def _body(request: ChatRequest, target: Target, particulars: Particulars, warnings: Warnings) -> Json:
    provider = target.provider
    leading = _leading_system(request.messages)
    messages = _messages(request.messages, leading, provider, particulars, warnings)
    if not messages:
        raise invalid("messages: at least one message must not be a system message")
    body: Json = {"model": target.model, "max_tokens": max_tokens(request), "messages": messages, "stream": True}
    if system := _system(request, leading):
        body["system"] = system
    body |= options(request, target, body["max_tokens"], warnings)
    if provider.quirks.prefill == "refuse" and messages[-1]["role"] == "assistant":
        raise invalid("messages: the last one is the assistant's, which this provider does not continue; end with a user message")
    if request.extra:
        body |= _extra(request.extra)
    if particulars.body:
        body = json_text.merged(body, _sent(particulars, target, warnings))
    for key in provider.quirks.refuses:
        if body.pop(key, None) is not None:
            warnings.add(f"{key} left out")
    return body


def _extra(extra: Json) -> Json:
    for key in extra:
        if key in OWN_KEYS:
            raise invalid(f"extra.{key}: the gateway writes this key itself")
    if extra.get("fallbacks", "default") != "default":
        # Further models would get around the aliases.
        raise invalid('extra.fallbacks: only "default" is passed on; further models are the gateway\'s to configure')
    return extra


def _particulars(request: ChatRequest, warnings: Warnings) -> Particulars:
    """Claude's own; what another format's client said in its own words is left out."""
    said = request.particulars
    if said is UNSET:
        return NONE
    if said.format == NONE.format:
        return said
    warnings.add(said.left_out)
    return NONE


def _sent(particulars: Particulars, target: Target, warnings: Warnings) -> Json:
    if "top_k" in particulars.body and models.refused_sampling(target.model, target.provider.version, ("top_k",)):
        warnings.add("top_k left out")
        return {key: value for key, value in particulars.body.items() if key != "top_k"}
    return particulars.body


@lru_cache(maxsize=256)
def _headers(version: str, fields: HeaderFields) -> HeaderFields:
    """The same for every request to a provider."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "accept-encoding": "identity",
        "anthropic-version": version,
    }
    return tuple((headers | dict(fields)).items())


def _with_betas(headers: HeaderFields, betas: tuple[str, ...]) -> HeaderFields:
    if not betas:
        return headers
    whole = dict(headers)
    configured = [beta.strip() for beta in whole.get("anthropic-beta", "").split(",") if beta.strip()]
    whole["anthropic-beta"] = ",".join(dict.fromkeys([*configured, *betas]))
    return tuple(whole.items())


def _leading_system(messages: list[Message]) -> int:
    """How many system messages stand before the conversation."""
    for number, message in enumerate(messages):
        if message.role != "system":
            return number
    return len(messages)


def _system(request: ChatRequest, leading: int) -> Content:
    """The request's own first. One text stays one text; blocks stay blocks, for their `cache_control`."""
    parts = [request.system] if request.system else []
    parts += [message.content for message in request.messages[:leading] if message.content]
    if not parts:
        return ""
    if all(isinstance(part, str) for part in parts):
        return "\n\n".join(part for part in parts if isinstance(part, str))
    blocks: list[Json] = []
    for part in parts:
        blocks += [{"type": "text", "text": part}] if isinstance(part, str) else [block for block in part if not _is_empty_text(block)]
    return blocks


def _messages(messages: list[Message], leading: int, provider: Provider, particulars: Particulars, warnings: Warnings) -> list[Json]:
    written: list[Json] = []
    results: list[Json] | None = None
    if not provider.quirks.url_sources:
        _refuse_urls(messages)
    mended: list[str] = []
    # Claude answers 400 to any other character in an id; a look-alike whose row says more has a narrower rule.
    ids = provider.quirks.tool_ids
    for number, message in paired(messages, "word" if ids == "any" else ids, mended, leading):
        content = message.content
        if not isinstance(content, str):
            content = _kept(content, f"messages[{number}].content", provider, warnings)
        if message.role != "tool":
            results = None
        match message.role:
            case "tool":
                # Claude wants the results of parallel calls in one message.
                if results is None:
                    results = []
                    written.append({"role": "user", "content": results})
                results.append(_tool_result(message, content, number))
            case "system" if provider.quirks.later_system == "reminder":
                written.append({"role": "user", "content": _reminder(content)})
            case "assistant" if not content and number < len(messages) - 1:
                warnings.add("an answer without content left out")  # one that was broken off before its first word
            case "system" | "user" | "assistant":
                written.append({"role": message.role, "content": content})
                # What stands beside the content is that of the message itself, not of results that were moved behind it.
                if particulars.messages and messages[number].role == message.role:
                    written[-1] |= particulars.messages.get(number, {})
    for warning in mended:
        warnings.add(warning)
    return written


def _tool_result(message: Message, content: Content, number: int) -> Json:
    call = message.tool_use_id or message.tool_call_id
    if not call:
        raise invalid(f"messages[{number}].tool_use_id: a tool message names the call that it answers")
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def _reminder(content: Content) -> Content:
    def marked(text: str) -> str:
        return f"<system-reminder>\n{text}\n</system-reminder>"

    if isinstance(content, str):
        return marked(content)
    return [{**block, "text": marked(block["text"])} if isinstance(block.get("text"), str) else block for block in content]


def _kept(content: list[Json], path: str, provider: Provider, warnings: Warnings) -> Content:
    """The blocks as they came, without those that Claude refuses; `""` if none is left."""
    kept: list[Json] = []
    echo = provider.quirks.echo_reasoning
    echoed = echo == "always" or (echo == "tool_turns" and any(block.get("type") == "tool_use" for block in content))
    for number, block in enumerate(content):
        match block.get("type"):
            case "text" if _is_empty_text(block):
                continue
            case "thinking" if not (block.get("signature") or echoed):
                warnings.add("thinking without a signature left out")
                continue
            case "tool_use":
                kept.append(_tool_use(block, f"{path}[{number}]"))
            case "tool_result":
                kept.append(_result_block(block))
            case "text" if isinstance(block.get("citations"), list):
                kept.append({**block, "citations": [_citation(citation) for citation in block["citations"]]})
            case "image" if "detail" in block:  # OpenAI's word
                kept.append({key: value for key, value in block.items() if key != "detail"})
            case _:
                kept.append(block)
    return kept or ""


def _citation(citation: Any) -> Any:
    """Without the place in the text, which answers of OpenAI's providers have and Claude has no words for."""
    if not isinstance(citation, dict) or citation.get("type") != "search_result_location":
        return citation
    return {key: value for key, value in citation.items() if key not in ("start_index", "end_index")}


def _tool_use(block: Json, path: str) -> Json:
    given = block.get("input")
    return {**block, "input": _arguments(given, f"{path}.input")} if isinstance(given, str) else block


def _arguments(text: str, path: str) -> Json:
    """Arguments that come as text, as other formats have them; none are `{}`."""
    try:
        value = json_text.read(text) if text.strip() else {}
    except json_text.MalformedJson as error:
        raise invalid(f"{path}: the tool's arguments are not JSON") from error
    if not isinstance(value, dict):
        raise invalid(f"{path}: the tool's arguments are not a JSON object")
    return value


def _result_block(block: Json) -> Json:
    content = block.get("content")
    if isinstance(content, list) and any(_is_empty_text(part) for part in content):
        block = {**block, "content": [part for part in content if not _is_empty_text(part)] or ""}
    return block


def _is_empty_text(block: Any) -> bool:
    """White space is not empty: Claude takes it."""
    return isinstance(block, dict) and block.get("type") == "text" and block.get("text") == ""


def _refuse_urls(messages: list[Message]) -> None:
    """A self-hosted provider would fetch the address from inside our network."""
    for number, message in enumerate(messages):
        if isinstance(message.content, str):
            continue
        for place, block in blocks_within(f"messages[{number}].content", message.content):
            if (field := fetched(block)) is not None:
                raise invalid(f"{place}.{field}: this model takes no URL sources; send the content as base64")
