"""`schema config|events`: JSON Schemas (https://json-schema.org/draft/2020-12), for editors and for generated clients."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway import events

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def run(arguments: Mapping[str, str | None]) -> int:
    text = json.dumps(config_schema() if arguments["of"] == "config" else event_schema(), indent=2)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `… | head` has seen enough; what is still buffered must not be tried again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def config_schema() -> dict[str, Any]:
    from gateway.settings import Settings  # only here: the events' schema needs no pydantic

    return {"$schema": DIALECT, **Settings.model_json_schema()}


def event_schema() -> dict[str, Any]:
    """One event. The two carriers of unknown JSON are no structs, and `rest` stands for keys beside it: written by hand."""
    kinds = [kind for kind in events.KINDS.values() if kind is not events.ContentBlockDelta]
    _, parts = msgspec.json.schema_components([*kinds, *events.DELTAS.values()], ref_template="#/$defs/{name}")
    parts["MessageDelta"]["properties"].pop("rest")
    parts["UnknownEvent"] = _unknown("An event that this gateway does not know, as the provider sent it.", list(events.KINDS))
    parts["UnknownDelta"] = _unknown("A delta of a newer kind, or a known one with more fields, as the provider sent it.", [])
    parts["ContentBlockDelta"] = {
        "title": "ContentBlockDelta",
        "type": "object",
        "properties": {
            "type": {"enum": ["content_block_delta"]},
            "index": {"type": "integer"},
            "delta": {"anyOf": [_ref(delta.__name__) for delta in (*events.DELTAS.values(), events.UnknownDelta)]},
        },
        "required": ["type", "index", "delta"],
    }
    names = [kind.__name__ for kind in (*events.KINDS.values(), events.UnknownEvent)]
    return {"$schema": DIALECT, "title": "Event", "anyOf": [_ref(name) for name in names], "$defs": parts}


def _unknown(description: str, known: list[str]) -> dict[str, Any]:
    name: dict[str, Any] = {"type": "string", "pattern": f"^{events.PASSABLE.pattern}$"} if known else {"type": "string"}
    if known:
        name["not"] = {"enum": known}
    return {"description": description, "type": "object", "properties": {"type": name}, "required": ["type"]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}
