"""What the UI message stream calls the gateway's things: finish reasons, token counts, sources, and what travels along unseen.

https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message

A page keeps a part's provider metadata and posts it with the next request. Where `@ai-sdk/anthropic` has a name for something
(`anthropic.signature`, `.redactedData`, `.citations`) it is used, so that either may read what the other wrote; what else a block
had stands under `OWN`. Blocks that no part can show travel as data parts of type `BLOCK`.
"""

from typing import Any, TypeGuard

from gateway.events import InvalidInput
from gateway.json_text import Json
from gateway.usage import token_count

ANTHROPIC = "anthropic"
OWN = "chatStreamGateway"  # of provider metadata: further fields of a block, its `type` too where the part does not say it
BLOCK = "data-gateway-block"  # a content block as it came
EVENT = "data-gateway-event"  # an event that nobody here knows, for whoever looks at it as it passes

# What is not here has no word in the AI SDK either.
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "content-filter",
}

# Calls that run at the provider: the page is not to run them, and need not have declared them.
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
AT_PROVIDER: Json = {"providerExecuted": True, "dynamic": True}

BROKEN = {
    "truncated": "The tool's arguments broke off: the answer reached its token limit.",
    "invalid_json": "The tool's arguments are not JSON.",
    "not_an_object": "The tool's arguments are not a JSON object.",
}

URL = ("http://", "https://")


def finish_reason(stop_reason: object) -> str:
    return FINISH_REASONS.get(stop_reason, "other") if isinstance(stop_reason, str) else "other"


def metadata(message: Json) -> Json:
    """Of the message that the client shows: which model answered, why it ended (also in the provider's word), and the token counts."""
    said: Json = {"usage": usage(message["usage"])}
    for ours, theirs in (("model", "model"), ("stop_reason", "stopReason"), ("raw_stop_reason", "rawStopReason")):
        if isinstance(message.get(ours), str) and message[ours]:
            said[theirs] = message[ours]
    return said


def usage(told: Json) -> Json:
    """Token counts in the AI SDK's arithmetic: `inputTokens` with what the cache read and wrote. What nobody told is not there."""
    read, written = token_count(told.get("cache_read_input_tokens")), token_count(told.get("cache_creation_input_tokens"))
    given = (token_count(told.get("input_tokens")) or 0) + (read or 0) + (written or 0)
    answered = token_count(told.get("output_tokens")) or 0
    counted: Json = {"inputTokens": given, "outputTokens": answered, "totalTokens": given + answered}
    details = told.get("output_tokens_details")
    if isinstance(details, dict) and (thought := token_count(details.get("thinking_tokens"))) is not None:
        counted["reasoningTokens"] = thought
    if read is not None:
        counted["cachedInputTokens"] = read
    if told.get("estimated") is True:
        counted["estimated"] = True
    return counted


class Calls:
    """The calls of one answer. A client knows a call by its id alone: an id that comes again is made another one."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}  # and how often each came

    def named(self, block: Json) -> Json:
        """How every chunk and part names the call."""
        said = name = str(block.get("id", ""))
        while name in self._ids:
            self._ids[said] += 1
            name = f"{said}_{self._ids[said]}"
        self._ids[name] = 1
        return {"toolCallId": name, "toolName": str(block.get("name", ""))}


def broken(invalid: InvalidInput) -> Json:
    """What is said of a call whose arguments must not be executed."""
    return {"input": invalid.partial_json, "errorText": BROKEN.get(invalid.reason, BROKEN["invalid_json"])}


def call_metadata(block: Json) -> Json:
    known = ("id", "name", "input", "invalid_input")
    return _further(block, *known) if block["type"] == "mcp_tool_use" else _further(block, "type", *known)


def text_metadata(block: Json, citations: list[Json]) -> Json:
    return ({ANTHROPIC: {"citations": citations}} if citations else {}) | _further(block, "type", "text", "citations")


def thinking_metadata(block: Json, signature: str) -> Json:
    return ({ANTHROPIC: {"signature": signature}} if signature else {}) | _further(block, "type", "thinking", "signature")


def redacted_metadata(block: Json) -> Json:
    return {ANTHROPIC: {"redactedData": block.get("data")}} | _further(block, "type", "data")


def with_metadata(part: Json, metadata: Json) -> Json:
    return {**part, "providerMetadata": metadata} if metadata else part


class Sources:
    """The sources of one answer, each told once; `news` returns the chunks, which are parts of the message too."""

    def __init__(self, message_id: str) -> None:
        # A message of several steps is several answers: their sources must not share an id.
        self._prefix = f"{message_id}-source-"
        self._known: set[Any] = set()

    def of_citation(self, citation: Json) -> list[Json]:
        match citation:
            case {"type": "web_search_result_location", "url": str(url)} if _is_url(url):
                return self._address(url, citation, {})
            case {"type": "search_result_location", "source": str(url)} if _is_url(url):
                return self._address(url, citation, {})
            case {"type": "search_result_location", "source": str(place)}:
                key, kind = (place, citation.get("search_result_index")), "text/plain"
            case {"type": "page_location"}:
                key, kind = _place(citation, "start_page_number", "end_page_number"), "application/pdf"
            case {"type": "char_location"}:
                key, kind = _place(citation, "start_char_index", "end_char_index"), "text/plain"
            case {"type": "content_block_location"}:
                key, kind = _place(citation, "start_block_index", "end_block_index"), "text/plain"
            case _:
                return []
        if not self._is_new(repr(key)):
            return []
        title = _text(citation, "document_title", "title") or f"Document {(token_count(citation.get('document_index')) or 0) + 1}"
        where = {name: value for theirs, name in PLACES.items() if (value := citation.get(theirs)) is not None}
        source: Json = {"type": "source-document", "sourceId": self._id(), "mediaType": kind, "title": title}
        return [with_metadata(source, {ANTHROPIC: where} if where else {})]

    def of_result(self, block: Json) -> list[Json]:
        """What a search at the provider found."""
        found = block.get("content")
        if block["type"] != "web_search_tool_result" or not isinstance(found, list):
            return []
        chunks = []
        for one in found:
            if isinstance(one, dict) and isinstance(url := one.get("url"), str) and _is_url(url):
                age = one.get("page_age")
                chunks += self._address(url, one, {ANTHROPIC: {"pageAge": age}} if isinstance(age, str) else {})
        return chunks

    def _address(self, url: str, said: Json, metadata: Json) -> list[Json]:
        if not self._is_new(url):
            return []
        source: Json = {"type": "source-url", "sourceId": self._id(), "url": url}
        if title := _text(said, "title"):
            source["title"] = title
        return [with_metadata(source, metadata)]

    def _is_new(self, key: str) -> bool:
        if key in self._known or len(self._known) >= MOST_SOURCES:
            return False
        self._known.add(key)
        return True

    def _id(self) -> str:
        return f"{self._prefix}{len(self._known)}"


MOST_SOURCES = 1000  # of one answer; nobody reads more

PLACES = {
    "cited_text": "citedText",
    "start_page_number": "startPageNumber",
    "end_page_number": "endPageNumber",
    "start_char_index": "startCharIndex",
    "end_char_index": "endCharIndex",
    "start_block_index": "startBlockIndex",
    "end_block_index": "endBlockIndex",
}


def file_of(block: Json) -> Json | None:
    """An image that the model made, as a file; None for any other block."""
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return {"type": "file", "url": f"data:{kind};base64,{data}", "mediaType": kind}
        case {"type": "image", "source": {"type": "url", "url": str(url)}} if _is_url(url):
            return {"type": "file", "url": url, "mediaType": "image/*"}
        case _:
            return None


def is_result(block: object) -> TypeGuard[Json]:
    """Whether it is the result of a call that ran at the provider, and says of which."""
    return (
        isinstance(block, dict)
        and isinstance(kind := block.get("type"), str)
        and kind.endswith("_tool_result")
        and isinstance(block.get("tool_use_id"), str)
    )


def _further(block: Json, *known: str) -> Json:
    """For the fields of a block that its part has no place for; empty where there are none."""
    rest = {key: value for key, value in block.items() if key not in known and value is not None}
    return {OWN: rest} if rest else {}


def _place(citation: Json, *names: str) -> tuple[Any, ...]:
    return (citation["type"], citation.get("document_index"), *(citation.get(name) for name in names))


def _text(said: Json, *names: str) -> str | None:
    return next((said[name] for name in names if isinstance(said.get(name), str) and said[name]), None)


def _is_url(text: str) -> bool:
    return text.lower().startswith(URL)
