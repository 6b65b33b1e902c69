"""The cases of cases.jsonl: the bytes of each as a script for the tests' provider, and the configuration that all of them run under."""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gateway.simulator import Hang, Reset, Script, Send, Step, Wait
from tests.quirks.running import Json
from tests.upstream import Answer as Response
from tests.upstream import Request, Respond

CANARY = "sk-canary-UPSTREAM-0001"
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
READ = 0.05  # seconds after which what was sent has been read


def read_cases() -> dict[str, Json]:
    text = Path(__file__).with_name("cases.jsonl").read_text("utf-8")
    return {case["id"]: case for case in map(json.loads, text.rstrip("\n").split("\n"))}


CASES = read_cases()


def configuration(cases: Iterable[Json], port: int, **settings: Json) -> Json:
    """One provider and one model per case, both under the case's id."""
    providers, models = {}, {}
    for case in cases:
        name, extra = case["id"], case.get("gateway", {})
        base = f"http://127.0.0.1:{port}/{name}" + ("/v1" if case["format"] == "openai" else "")
        providers[f"{name}-up"] = {"type": case["format"], "base_url": base, "api_key": CANARY} | extra.get("provider", {})
        models[name] = {"targets": [f"{name}-up/m"], "retry": {"attempts": 1}} | extra.get("model", {})
    return {
        "providers": providers,
        "models": models,
        "streaming": {"heartbeat": "1s", "commit_after": "2s"},
        "timeouts": {"connect": "5s", "first_token": "4s", "idle": "4s"},
        "server": {"host": "127.0.0.1", "shutdown_grace": "1s"},
        **settings,
    }


def provider(cases: Iterable[Json]) -> Respond:
    """Answers each request with its case's next answer; the last one repeats."""
    known = {case["id"]: case for case in cases}
    asked = dict.fromkeys(known, 0)

    def respond(request: Request) -> Response:
        _, name, rest = request.path.split("/", 2)
        case = known[name]
        assert (request.method, f"/{rest}") == ("POST", PATHS[case["format"]])
        asked[name] += 1
        if asked[name] == 1 and case.get("serve", {}).get("close_first_connection_before_response"):
            return b""
        return response([case, *case.get("then", [])][min(asked[name], 1 + len(case.get("then", []))) - 1])

    return respond


def response(answer: Json) -> Response:
    serve = answer.get("serve", {})
    status, end = serve.get("status", 200), serve.get("end", "close")
    headers = {"content-type": "text/event-stream", **serve.get("headers", {}), "connection": "close"}
    steps = list(pieces(answer))
    if end == "truncated_chunk":
        return _broken(status, headers, b"".join(step.data for step in steps if isinstance(step, Send)))
    if end == "rst":
        steps += [Wait(READ), Reset()]
    elif end == "hang":
        steps.append(Hang())
    before = (Wait(serve["pause_before_headers_s"]),) if "pause_before_headers_s" in serve else ()
    return Script(status, tuple(headers.items()), tuple(steps), before)


def _broken(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """A chunk that promises more than it holds."""
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers.items()), "transfer-encoding: chunked"]
    return "\r\n".join([*lines, "", f"{len(body) + 64:x}", ""]).encode() + body


def body_of(answer: Json) -> bytes:
    text = answer.get("upstream") or ""
    return base64.b64decode(text) if answer.get("upstream_encoding") == "base64" else text.encode()


def pieces(answer: Json) -> Iterator[Step]:
    """The body, cut and delayed as `serve` says, with its tokens written out."""
    serve, body = answer.get("serve", {}), body_of(answer)
    pause = serve.get("delay_ms", 2) / 1000
    cuts: dict[int, float] = dict.fromkeys(serve.get("split_at", []), pause)
    if every := serve.get("split_every"):
        cuts |= dict.fromkeys(range(every, len(body), every), pause)
    if "delay_per_event_ms" in serve:
        cuts |= {blank.end(): serve["delay_per_event_ms"] / 1000 for blank in re.finditer(rb"(?:\r\n|\n|\r){2}", body)}
    cuts |= {body.index(text.encode()): seconds for text, seconds in serve.get("pause_before", {}).items()}
    start = 0
    for at in [*sorted(cuts), len(body)]:
        if at > start:
            yield from written_out(body[start:at], serve.get("replace", {}))
        if at in cuts:
            yield Wait(cuts[at])
        start = at


def written_out(piece: bytes, tokens: Json) -> Iterator[Send]:
    for token, meaning in tokens.items():
        unit = meaning["repeat"].encode()
        in_one = max(1, (1 << 18) // len(unit))
        head, *tails = piece.split(token.encode())
        if not tails:
            continue
        yield from written_out(head, tokens)
        for tail in tails:
            whole, rest = divmod(meaning["times"], in_one)
            yield from [Send(unit * in_one)] * whole
            yield Send(unit * rest)
            yield from written_out(tail, tokens)
        return
    if piece:
        yield Send(piece)


def requests_of(case: Json, seen: list[Request]) -> list[Request]:
    return [request for request in seen if request.path.startswith(f"/{case['id']}/")]


def payload(case: Json) -> dict[str, Any]:
    return {"model": case["id"], "max_tokens": 1024, "messages": [{"role": "user", "content": "hi"}], **case.get("request", {})}
