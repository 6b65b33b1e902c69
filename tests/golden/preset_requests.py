"""What each preset is asked: one rich request as it goes over the wire, a file for every row of every type.

`python -m tests.golden.preset_requests` rewrites them; the diff is then read, and committed or not.
"""

import json
from pathlib import Path

from gateway.chat import ChatRequest
from gateway.connections import PRESETS, Connection, connection
from gateway.errors import RequestRefused
from gateway.formats import Target
from gateway.formats.native import parse
from gateway.settings import Configuration, Environment, Settings

HERE = Path(__file__).parent / "presets"
KEY = "sk-canary-0001"
ADDRESSES = {"azure": "https://house.openai.azure.com", "vllm": "http://127.0.0.1:8001"}  # of those that have none of their own
ROWS = [(kind, name) for kind, rows in PRESETS.items() for name in rows]

TOOL = {"name": "weather", "description": "The weather.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAQABAAAAACw="}}
ELSEWHERE = {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1.png"}}
RICH = {
    "model": "m",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Is it warmer here than in Paris?"}, PIXEL]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Paris first."},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "20 °C"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Here?"}, {"type": "text", "text": "And where are you?"}]},
        {"role": "system", "content": "The user moved."},
        {"role": "user", "content": "In Rome."},
    ],
    "max_tokens": 500,
    "temperature": 0.5,
    "top_p": 0.9,
    "stop_sequences": ["END"],
    "tools": [TOOL],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "effort": "low",
    "response_format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}},
    "metadata": {"user_id": "u1"},
}


def connected(kind: str, name: str) -> Connection:
    """As the configuration makes it, with nothing but a key."""
    row = {"type": kind, "preset": name, "api_key": KEY, **({"base_url": ADDRESSES[name]} if name in ADDRESSES else {})}
    settings = Settings.model_validate({"providers": {"p": row}})
    mistakes: list[str] = []
    found = connection(Configuration(settings, Environment({}, {})), "p", settings.providers["p"], mistakes)
    assert mistakes == []
    return found


def written(kind: str, name: str) -> str:
    found = connected(kind, name)
    target = Target(found.provider, found.format, "m")
    asked = found.format.build(parse(json.dumps(RICH).encode()), target)
    head = "".join(f"{header}: {value}\n" for header, value in asked.headers)
    body = json.dumps(json.loads(asked.body), indent=1, ensure_ascii=False)
    left_out = "".join(f"# {warning}\n" for warning in asked.warnings)
    return f"POST {asked.url}\n{head}\n{body}\n\n{left_out}# an image by its URL: {_by_url(target)}\n"


def _by_url(target: Target) -> str:
    request: ChatRequest = parse(json.dumps({"model": "m", "messages": [{"role": "user", "content": [ELSEWHERE]}]}).encode())
    try:
        target.format.build(request, target)
    except RequestRefused as refused:
        return refused.message
    return "passed on"


def file(kind: str, name: str) -> Path:
    return HERE / f"{kind}.{name}.http"


if __name__ == "__main__":
    for stale in HERE.glob("*.http"):
        stale.unlink()
    for row in ROWS:
        file(*row).write_text(written(*row), "utf-8")
