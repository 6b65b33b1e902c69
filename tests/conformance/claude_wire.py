"""Messages as a Claude provider tells them: as a stream and as a document, written independently of the gateway's own code."""

import json
from collections.abc import Callable
from typing import Any

from gateway.simulator import Script, Send
from tests.upstream import Request, Respond, split

Json = dict[str, Any]
SSE = (("content-type", "text/event-stream"), ("request-id", "req_provider"))
JSON = (("content-type", "application/json"), ("request-id", "req_provider"))

USAGE = {"input_tokens": 11, "output_tokens": 42}
CACHE = {
    "input_tokens": 3,
    "output_tokens": 42,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 2000,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 0},
    "output_tokens_details": {"thinking_tokens": 17},
    "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
    "service_tier": "standard",
    "inference_geo": "eu",
}

# What Claude says of its usage in message_start alone.
AT_START_ONLY = frozenset({"cache_creation", "service_tier", "inference_geo"})


def message(*content: Json, stop_reason: str = "end_turn", usage: Json = USAGE, **fields: Any) -> Json:
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
        **fields,
    }


def text(said: str, **fields: Any) -> Json:
    return {"type": "text", "text": said, **fields}


def call(id: str, name: str, input: Json, **fields: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input, **fields}


THINKING = {"type": "thinking", "thinking": "Paris, of course. Or is it?", "signature": "EqQBCkYIBRgCKkBsig=="}
SEARCHED = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "enc", "page_age": None}],
}
CITED = {
    "type": "web_search_result_location",
    "cited_text": "It is.",
    "encrypted_index": "idx",
    "title": "A",
    "url": "https://a.example",
}

MESSAGES = {
    "text": message(text("Hello, wörld 🙂\n\u2028 <b>&amp;")),
    "nothing": message(),
    "thinking": message(THINKING, text("Paris."), usage=CACHE),
    "thinking with its text omitted": message({"type": "thinking", "thinking": "", "signature": "c2ln"}, text("Paris.")),
    "redacted thinking": message({"type": "redacted_thinking", "data": "EroBCkYIBRgC"}, text("Yes.")),
    "parallel tools": message(
        text("Let me look."),
        call("toolu_1", "weather", {"city": "Zürich", "days": [1, 2], "deep": {"a": None, "b": 1.5}}),
        call("toolu_2", "time", {}),
        stop_reason="tool_use",
    ),
    "a tool called by code": message(
        call("toolu_1", "weather", {"city": "Bern"}, caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_9"}),
        stop_reason="tool_use",
        container={"id": "container_1", "expires_at": "2026-11-30T12:00:00Z"},
    ),
    "server tools and citations": message(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "capital"}},
        SEARCHED,
        text("It is. So they say.", citations=[CITED, {**CITED, "cited_text": "So they say."}]),
        usage=CACHE,
    ),
    "blocks and fields nobody knows": message(
        {"type": "hologram", "points": [1, 2], "of": {"x": "y"}},
        text("Look.", mood="fine"),
        {"type": "container_upload", "file_id": "file_1"},
        weather="sunny",
    ),
    "a pause": message(
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}, stop_reason="pause_turn"
    ),
    "a refusal": message(text("I"), stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "No."}),
    "a stop sequence": message(text("one two"), stop_reason="stop_sequence", stop_sequence="three"),
    "the token limit": message(text("and so"), stop_reason="max_tokens"),
    "a stop reason nobody knows": message(text("hm"), stop_reason="bored"),
}


def document(said: Json) -> Script:
    return Script(200, JSON, (Send(json.dumps(said).encode()),))


def events(said: Json) -> list[Json]:
    late = {key: said[key] for key in ("stop_reason", "stop_sequence", "stop_details", "container") if key in said}
    unknown: Json = dict.fromkeys(late)
    begun = {**said, "content": [], **unknown, "usage": {**said["usage"], "output_tokens": 1}}
    found: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(said["content"]):
        start, deltas = _split(block)
        found.append({"type": "content_block_start", "index": index, "content_block": start})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    counts = {key: value for key, value in said["usage"].items() if key not in AT_START_ONLY}
    return [*found, {"type": "message_delta", "delta": late, "usage": counts}, {"type": "message_stop"}]


def _split(block: Json) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "text":
            cited = block.get("citations", [])
            start = {**block, "text": "", **({"citations": []} if cited else {})}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            return start, deltas + [{"type": "citations_delta", "citation": one} for one in cited]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
        case "tool_use" | "server_tool_use":
            written = _pieces(json.dumps(block["input"], ensure_ascii=False)) if block["input"] else []
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in written]
        case _:
            return block, []


def _pieces(whole: str) -> list[str]:
    return [whole[start : start + 5] for start in range(0, len(whole), 5)]


def frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def stream(said: Json) -> Script:
    return Script(200, SSE, tuple(Send(frame(event)) for event in events(said)))


def telling(said: Json) -> Respond:
    """A provider that answers as it is asked."""

    def respond(request: Request) -> Script:
        return stream(said) if json.loads(request.body).get("stream") else document(said)

    return respond


def refusing(status: int, kind: str, **headers: str) -> Script:
    body = {"type": "error", "error": {"type": kind, "message": f"The provider says {status}."}, "request_id": "req_provider"}
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Script(status, (*JSON, *fields), (Send(json.dumps(body).encode()),))


# What relays do to frames on their way, none of which changes what they say.


def crlf(said: Json) -> Script:
    return Script(200, SSE, (Send(b"".join(frame(event) for event in events(said)).replace(b"\n", b"\r\n")),))


def bytewise(said: Json) -> Script:
    body = b"".join(frame(event) for event in events(said))
    return Script(200, SSE, split(body, max(1, len(body) // 60), 0.0005))


def without_indices(said: Json) -> Script:
    plain = [{key: value for key, value in event.items() if key != "index"} for event in events(said)]
    return Script(200, SSE, tuple(Send(frame(event)) for event in plain))


def nameless(said: Json) -> Script:
    return Script(200, SSE, tuple(Send(b"data: %b\n\n" % json.dumps(event).encode()) for event in events(said)))


def with_noise(said: Json) -> Script:
    noise = b'\xef\xbb\xbf: hello\n\nid: 7\nretry: 1000\n\nevent: ping\ndata: {"type": "ping"}\n\n'
    return Script(200, SSE, (Send(noise), *(Send(b": x\n\n" + frame(event)) for event in events(said))))


def without_its_end(said: Json) -> Script:
    return Script(200, SSE, tuple(Send(frame(event)) for event in events(said)[:-1]))


def without_stops(said: Json) -> Script:
    return Script(200, SSE, tuple(Send(frame(event)) for event in events(said) if event["type"] != "content_block_stop"))


def mangled(said: Json) -> Script:
    """All at once, but for what is missing at the end."""
    noisy = [b"\xef\xbb\xbf: hello\n\n"]
    for event in events(said):
        if event["type"] == "content_block_stop":
            continue
        noisy.append(b"data:%b\n\n: x\n\n" % json.dumps({key: value for key, value in event.items() if key != "index"}).encode())
    return Script(200, SSE, split(b"".join(noisy).replace(b"\n", b"\r\n"), 97, 0))


Mutation = Callable[[Json], Script]
MUTATIONS: list[Mutation] = [crlf, bytewise, without_indices, nameless, with_noise, without_its_end, without_stops, document]
