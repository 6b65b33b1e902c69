"""`stream: false`: the whole answer as the UI message that a client would have made of the stream.

https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message
"""

from msgspec import convert

from gateway import json_text
from gateway.events import InvalidInput
from gateway.formats.ai_sdk import terms
from gateway.formats.whole import Document
from gateway.json_text import Json


def document(continues: str | None) -> Document:
    return Document(lambda message, _: json_text.write(ui_message(message, continues)), lambda message: ui_message(message, continues))


def ui_message(message: Json, continues: str | None = None) -> Json:
    """`continues` as for the stream's encoder."""
    name = message["id"] if continues is None else continues
    written: Json = {"id": name, "role": "assistant"}
    if message.get("stop_reason") is not None:
        written["metadata"] = terms.metadata(message)
    return {**written, "parts": [{"type": "step-start"}, *_parts(message)]}


def _parts(message: Json) -> list[Json]:
    sources = terms.Sources(message["id"])
    parts: list[Json] = []
    calls, at_provider = terms.Calls(), dict[object, Json]()
    last_call: object = None
    for block in message["content"]:
        before, last_call = last_call, None
        match block["type"]:
            case "text":
                citations = block.get("citations") or []
                said = {"type": "text", "text": block["text"], "state": "done"}
                parts.append(terms.with_metadata(said, terms.text_metadata(block, citations)))
                for citation in citations:
                    parts += sources.of_citation(citation)
            case "thinking":
                said = {"type": "reasoning", "text": block["thinking"], "state": "done"}
                parts.append(terms.with_metadata(said, terms.thinking_metadata(block, block.get("signature") or "")))
            case "redacted_thinking":
                parts.append(terms.with_metadata({"type": "reasoning", "text": "", "state": "done"}, terms.redacted_metadata(block)))
            case "tool_use":
                parts.append(_call(block, calls.named(block)))
            case kind if kind in terms.SERVER_CALLS:
                parts.append(_call(block, calls.named(block)))
                last_call = str(block.get("id", ""))
                at_provider[last_call] = parts[-1]
            case _:
                told = False
                if terms.is_result(block) and (part := at_provider.get(block["tool_use_id"])) is not None:
                    part.pop("errorText", None)
                    part |= {"state": "output-available", "output": block}
                    told = block["tool_use_id"] == before
                elif (file := terms.file_of(block)) is not None:
                    parts.append(file)
                    told = True
                if not told:
                    parts.append({"type": terms.BLOCK, "data": block})
                parts += sources.of_result(block)
    return parts


def _call(block: Json, call: Json) -> Json:
    part: Json = {"type": f"tool-{call['toolName']}", "toolCallId": call["toolCallId"]}
    if block["type"] in terms.SERVER_CALLS:
        part = {"type": "dynamic-tool", **call, "providerExecuted": True}
    if "invalid_input" in block:
        broken = terms.broken(convert(block["invalid_input"], InvalidInput))
        raw = "input" if part["type"] == "dynamic-tool" else "rawInput"
        return {**part, "state": "output-error", raw: broken["input"], "errorText": broken["errorText"]}
    part |= {"state": "input-available", "input": block.get("input") or {}}
    metadata = terms.call_metadata(block)
    return {**part, "callProviderMetadata": metadata} if metadata else part
