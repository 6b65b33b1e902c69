"""The UI message stream of the AI SDK, written down by hand: what its strictest client takes, and what that client makes of it.

https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol

    stream   = ping* (start start-step part* (finish-step finish | error | abort) | error | abort) [DONE]
    part     = text-start text-delta* text-end | reasoning-… | tool-input-start tool-input-delta* (tool-input-available | -error)
             | tool-output-available | source-url | source-document | file | data-…

Sources may come anywhere inside a text, and before `error` or `abort` a part may be open. The keys are those of version 5.0.92, which
refuses every other one. `fold` is `processUIMessageStream` of version 5 in few words.
It shares nothing with the gateway.
"""

import json
from typing import Any

Json = dict[str, Any]

METADATA = {"providerMetadata": dict}
WHERE = {"providerExecuted": bool, "dynamic": bool}
CALL = {"toolCallId": str, "toolName": str}
REQUIRED: dict[str, Json] = {
    "start": {},
    "start-step": {},
    "finish-step": {},
    "finish": {"finishReason": str, "messageMetadata": dict},
    "abort": {},
    "error": {"errorText": str},
    **{f"{kind}-{step}": {"id": str} for kind in ("text", "reasoning") for step in ("start", "end")},
    **{f"{kind}-delta": {"id": str, "delta": str} for kind in ("text", "reasoning")},
    "tool-input-start": CALL,
    "tool-input-delta": {"toolCallId": str, "inputTextDelta": str},
    "tool-input-available": {**CALL, "input": dict},
    "tool-input-error": {**CALL, "input": str, "errorText": str},
    "tool-output-available": {"toolCallId": str, "output": dict},
    "source-url": {"sourceId": str, "url": str},
    "source-document": {"sourceId": str, "mediaType": str, "title": str},
    "file": {"url": str, "mediaType": str},
}
OPTIONAL: dict[str, Json] = {
    "start": {"messageId": str},
    **{f"{kind}-{step}": METADATA for kind in ("text", "reasoning") for step in ("start", "end")},
    "tool-input-start": WHERE,
    "tool-input-available": {**WHERE, **METADATA},
    "tool-input-error": {**WHERE, **METADATA},
    "tool-output-available": WHERE,
    "source-url": {"title": str, **METADATA},
    "source-document": METADATA,
}
FINISH_REASONS = {"stop", "length", "content-filter", "tool-calls", "other"}
USAGE = {"inputTokens", "outputTokens", "totalTokens"}
MORE_USAGE = {"reasoningTokens", "cachedInputTokens", "estimated"}
DONE = "[DONE]"


class Broken(AssertionError):
    """A client would have failed, or would have shown what is not so."""


def chunks(body: bytes) -> list[Json]:
    """The chunks of a whole stream; `Broken` if it is none."""
    pieces = body.decode().split("\n\n")
    need(pieces.pop() == "", "the last event is not finished")
    said = [piece for piece in pieces if piece != ": ping"]
    for piece in said:
        need(piece.startswith("data: ") and "\n" not in piece, f"one line of data each, not {piece!r}")
    data = [piece.removeprefix("data: ") for piece in said]
    need(data[-1:] == [DONE] and DONE not in data[:-1], "it ends with [DONE]")
    found = [json.loads(one) for one in data[:-1]]
    for text, chunk in zip(data, found, strict=False):
        need(text.startswith(f'{{"type":"{chunk["type"]}"'), "compact JSON, its type first")
    check(found)
    return found


def check(found: list[Json]) -> None:
    reader = _Reader()
    for number, chunk in enumerate(found):
        try:
            reader.read(chunk)
        except Broken as error:
            raise Broken(f"chunk {number}, {chunk!r}: {error}") from None
    need(reader.over, "no end")


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


class _Reader:
    def __init__(self) -> None:
        self.begun = 0
        self.finished_step = self.over = False
        self.open: tuple[str, str] | None = None
        self.ids: set[str] = set()
        self.called: set[str] = set()
        self.calls: set[str] = set()  # at the provider
        self.sources: set[str] = set()

    def read(self, chunk: Json) -> None:
        need(not self.over, "nothing may follow the end")
        kind = chunk["type"]
        check_keys(kind, chunk)
        match kind:
            case "error" | "abort":
                self.over = True
                return
            case "start" | "start-step":
                need(self.begun == ("start", "start-step").index(kind), "start, then start-step, each once")
                self.begun += 1
                return
        need(self.begun == 2, "before the first step")
        need(not self.finished_step or kind == "finish", "only finish may follow the step")
        match kind:
            case "text-start" | "reasoning-start":
                need(self.open is None, "a part starts in another")
                need(chunk["id"] not in self.ids, "a part's id comes twice")
                self.ids.add(chunk["id"])
                self.open = (kind.removesuffix("-start"), chunk["id"])
            case "text-delta" | "reasoning-delta":
                need(self.open == (kind.removesuffix("-delta"), chunk["id"]), "a delta for no open part")
                need(chunk["delta"] != "", "an empty delta")
            case "text-end" | "reasoning-end":
                need(self.open == (kind.removesuffix("-end"), chunk["id"]), "the end of no open part")
                self.open = None
            case "tool-input-start":
                need(self.open is None, "a part starts in another")
                need(chunk.get("providerExecuted", True) and chunk.get("dynamic", True), "what is not so is not said")
                need(chunk["toolCallId"] not in self.called, "a call's id comes twice: the client would take it for one call")
                self.called.add(chunk["toolCallId"])
                self.open = ("call", chunk["toolCallId"])
            case "tool-input-delta":
                need(self.open == ("call", chunk["toolCallId"]), "arguments for no open call")
            case "tool-input-available" | "tool-input-error":
                need(self.open == ("call", chunk["toolCallId"]), "the input of no open call")
                self.open = None
                if chunk.get("providerExecuted"):
                    self.calls.add(chunk["toolCallId"])
            case "tool-output-available":
                need(self.open is None, "an output in the middle of a part")
                need(chunk["toolCallId"] in self.calls, "an output without its call is fatal")
            case "source-url" | "source-document":
                need(self.open is None or self.open[0] == "text", "a source in the middle of another part")
                need(chunk["sourceId"] not in self.sources, "a source's id comes twice")
                self.sources.add(chunk["sourceId"])
            case "finish-step":
                need(self.open is None, "a part that did not end")
                self.finished_step = True
            case "finish":
                need(self.finished_step, "the step did not finish")
                need(chunk["finishReason"] in FINISH_REASONS, "a finish reason that not every version knows")
                usage = chunk["messageMetadata"]["usage"]
                need(usage.keys() >= USAGE and usage.keys() <= USAGE | MORE_USAGE, "usage as the AI SDK counts it")
                need(all(type(count) is int and count >= 0 for key, count in usage.items() if key != "estimated"), "tokens are counted")
                self.over = True


def check_keys(kind: str, chunk: Json) -> None:
    if kind.startswith("data-"):
        need(chunk.keys() <= {"type", "data", "transient"} and isinstance(chunk.get("data"), dict), "a data part has data")
        need(chunk.get("transient", True) is True, "what is not so is not said")
        return
    need(kind in REQUIRED, "a type that version 5 does not know is fatal")
    required, optional = REQUIRED[kind], OPTIONAL.get(kind, {})
    need(chunk.keys() - {"type"} >= required.keys(), f"without {required.keys() - chunk.keys()}")
    need(chunk.keys() - {"type"} <= required.keys() | optional.keys(), f"unknown keys: {chunk.keys() - required.keys() - optional.keys()}")
    for key, value in chunk.items():
        wanted = {**required, **optional}.get(key, str)
        need(isinstance(value, wanted), f"{key} is no {wanted.__name__}")
    need(all(isinstance(inner, dict) for inner in chunk.get("providerMetadata", {}).values()), "metadata of a provider is an object")


def fold(found: list[Json], message: Json | None = None) -> Json:
    """The UI message that the client has in the end; `message` is the one that goes on."""
    message = {"id": "made-by-the-client", "role": "assistant", "parts": []} if message is None else json.loads(json.dumps(message))
    parts: list[Json] = message["parts"]
    active: dict[str, Json] = {}

    def call(chunk: Json) -> Json:
        first = max((number for number, part in enumerate(parts) if part["type"] == "step-start"), default=0)
        return next(part for part in (*parts[first:], *reversed(parts)) if part.get("toolCallId") == chunk["toolCallId"])

    for chunk in found:
        kind = chunk["type"]
        match kind:
            case "start":
                message["id"] = chunk.get("messageId", message["id"])
            case "start-step":
                parts.append({"type": "step-start"})
            case "text-start" | "reasoning-start":
                active[chunk["id"]] = {**chunk, "type": kind.removesuffix("-start"), "text": "", "state": "streaming"}
                del active[chunk["id"]]["id"]
                parts.append(active[chunk["id"]])
            case "text-delta" | "reasoning-delta":
                active[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                part = active.pop(chunk["id"])
                part["state"] = "done"
                part |= {key: chunk[key] for key in METADATA if key in chunk}
            case "tool-input-start":
                name = (
                    {"type": "dynamic-tool", "toolName": chunk["toolName"]} if "dynamic" in chunk else {"type": f"tool-{chunk['toolName']}"}
                )
                executed = {key: chunk[key] for key in ("providerExecuted",) if key in chunk}
                parts.append({**name, "toolCallId": chunk["toolCallId"], "state": "input-streaming", **executed})
            case "tool-input-available":
                part = call(chunk)
                part |= {"state": "input-available", "input": chunk["input"]}
                if "providerMetadata" in chunk:
                    part["callProviderMetadata"] = chunk["providerMetadata"]
            case "tool-input-error":
                raw = "input" if "dynamic" in chunk else "rawInput"
                part = call(chunk)
                part |= {"state": "output-error", raw: chunk["input"], "errorText": chunk["errorText"]}
            case "tool-output-available":
                part = call(chunk)
                part |= {"state": "output-available", "output": chunk["output"]}
                part.pop("errorText", None)
            case "source-url" | "source-document" | "file":
                parts.append(chunk)
            case "finish":
                message["metadata"] = {**message.get("metadata", {}), **chunk["messageMetadata"]}
            case _ if kind.startswith("data-") and "transient" not in chunk:
                parts.append(chunk)
    return message
