"""A request becomes a script of steps: a Claude and OpenAI provider without a model, a key, a clock or a network.

Its bytes are text templates of the documented wire formats, written independently of `formats/`, so that both sides cannot share
one misunderstanding. The same request always gives the same script.

The answer thinks, says that it is a simulation, and calls a tool; after a tool result it only thinks and speaks. `key=value`
words (`wishes.py` lists them) change that. They are read from the model's name (`simulator,speed=0,fault=cut`) and, stronger, from
the last text the user wrote ("tell me more [tokens=500 tool=0]"). Whoever runs the simulator as a server may give such words too;
they are the weakest, and `fault=none` undoes a fault of theirs.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.simulator.claude import Claude
from gateway.simulator.openai import OpenAI
from gateway.simulator.reply import CREATED, MODELS, compose, input_tokens, json_of, prompt, utf8
from gateway.simulator.wishes import FAULTS, Wishes, read_wishes

__all__ = ["FAULTS", "MODELS", "Cut", "Hang", "Pause", "Reset", "Script", "Send", "Step", "Wait", "answer"]


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Stay connected and silent for ever."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close by FIN in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Close by RST."""


Pause = Wait | Hang | Cut | Reset
Step = Send | Pause


@dataclass(frozen=True, slots=True)
class Script:
    """One answer: what happens before its headers, the headers, what happens to its body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    before: tuple[Pause, ...] = ()


PAGE = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"

_CLAUDE, _OPENAI = Claude(), OpenAI()
_BREAKS: dict[str, Pause] = {"cut": Cut(), "reset": Reset(), "hang": Hang()}


def answer(path: str, body: bytes, wishes: str = "") -> Script:
    """The simulated provider's whole behaviour: the path tells the format, as at a real one. `wishes`: for every answer."""
    path = path.partition("?")[0].rstrip("/")
    if path.endswith("/models"):
        return _document(200, _models())
    if path.endswith("/v1/messages"):
        return _script(body, wishes, _CLAUDE)
    if path.endswith("/chat/completions"):
        return _script(body, wishes, _OPENAI)
    if path.endswith("/v1/messages/count_tokens"):
        return _count(body, wishes)
    return _document(404, (_CLAUDE if "/v1/messages/" in path else _OPENAI).error(404, f"There is nothing at {path}."))


def _script(body: bytes, common: str, wire: Claude | OpenAI) -> Script:
    request = _request(body)
    if isinstance(request, str):
        return _document(400, wire.error(400, request))
    wishes = read_wishes(common, str(request.get("model") or MODELS[0]), prompt(request["messages"]))
    stream = request.get("stream") is True
    before: tuple[Pause, ...] = (Wait(wishes.wait),) if wishes.wait else ()
    status = wishes.status or (529 if wishes.fault == "error" and not stream else 0)
    if status:
        return _document(status, wire.error(status, f"The simulator was asked for {status}."), before)
    if wishes.fault == "html":
        return Script(200, (("content-type", "text/html"),), (Send(PAGE),), before)
    reply = compose(request, wishes, body)
    pieces = wire.stream(reply, request) if stream else [wire.document(reply)]
    end: tuple[Pause, ...] = ()
    if wishes.fault in _BREAKS:
        pieces, end = pieces[: wishes.after], (_BREAKS[wishes.fault],)
        before = before if wishes.after else before + end
    elif wishes.fault == "error":
        pieces = [*pieces[: wishes.after], wire.error_event("The simulator was asked for an error.")]
    headers = (("content-type", wire.content_type if stream else "application/json"), (wire.id_header, f"req_{reply.id}"))
    return Script(200, headers, (*_paced(pieces, wishes), *end), before)


def _count(body: bytes, common: str) -> Script:
    """The made-up number that an answer's usage would have; the wishes for every answer hold, those of the text do not."""
    request = _request(body)
    if isinstance(request, str):
        return _document(400, _CLAUDE.error(400, request))
    if status := read_wishes(common, "", "").status:
        return _document(status, _CLAUDE.error(status, f"The simulator was asked for {status}."))
    return _document(200, json_of({"input_tokens": input_tokens(body)}))


def _paced(pieces: Sequence[bytes], wishes: Wishes) -> Iterable[Step]:
    if wishes.chunk:
        body = b"".join(pieces)
        pieces = [body[start : start + wishes.chunk] for start in range(0, len(body), wishes.chunk)]
    for number, piece in enumerate(pieces):
        if number and wishes.speed:
            yield Wait(wishes.speed)
        yield Send(piece)


def _document(status: int, document: str, before: tuple[Pause, ...] = ()) -> Script:
    headers = [("content-type", "application/json")]
    if status == 429:
        headers.append(("retry-after", "1"))
    return Script(status, tuple(headers), (Send(utf8(document)),), before)


def _models() -> str:
    """One list that is legal as Claude's and as OpenAI's."""
    rows = [
        f'{{"id":"{name}","object":"model","type":"model","display_name":"{name}","created":{CREATED},'
        f'"created_at":"2026-09-21T14:13:20Z","owned_by":"simulator"}}'
        for name in MODELS
    ]
    return f'{{"object":"list","data":[{",".join(rows)}],"has_more":false,"first_id":"{MODELS[0]}","last_id":"{MODELS[-1]}"}}'


def _request(body: bytes) -> dict[str, Any] | str:
    """The request, or why it is none."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return "The request body is not valid JSON."
    if not isinstance(request, dict):
        return "The request body is not a JSON object."
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        return "messages: a list of at least one message is required."
    return request
