"""What may be asked, as `GET /v1/models` lists it: one shape for the official SDKs of Claude and of OpenAI.

https://docs.anthropic.com/en/api/models-list · https://platform.openai.com/docs/api-reference/models/list

Claude's SDKs ask for page after page until `has_more` is false; OpenAI's know of no pages and take the first answer for all.
So everything is on one page, unless the caller says how much of it to send.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from gateway.errors import RequestRefused
from gateway.json_text import Json

MOST_ON_A_PAGE = 1000


def page(names: Sequence[str], asked: Mapping[str, str], created: int) -> Json:
    """The list, or what a query with `limit`, `after_id` or `before_id` asks for of it; `RequestRefused` for a query that is none."""
    limit = _limit(asked["limit"]) if "limit" in asked else len(names)
    if "before_id" in asked:
        end = _place(names, "before_id", asked["before_id"])
        start = max(0, end - limit)
        has_more = start > 0
    else:
        start = _place(names, "after_id", asked["after_id"]) + 1 if "after_id" in asked else 0
        end = min(len(names), start + limit)
        has_more = end < len(names)
    shown = names[start:end]
    ends = {"first_id": shown[0] if shown else None, "last_id": shown[-1] if shown else None}
    return {"object": "list", "data": [entry(name, created) for name in shown], "has_more": has_more, **ends}


def entry(name: str, created: int) -> Json:
    """One model. `created` in Unix seconds; what nobody knows of an alias is null where Claude's SDKs allow that."""
    unknown: Json = dict.fromkeys(("capabilities", "max_input_tokens", "max_tokens", "line", "deprecated_at", "retires_at"))
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": created,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "owned_by": "gateway",
        "display_name": name,
        "lifecycle": "active",
        **unknown,
    }


def _limit(said: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) <= 4 and 1 <= int(said) <= MOST_ON_A_PAGE):
        raise RequestRefused("invalid_request", f"limit: it must be a whole number from 1 to {MOST_ON_A_PAGE}.")
    return int(said)


def _place(names: Sequence[str], field: str, name: str) -> int:
    if name not in names:
        raise RequestRefused("invalid_request", f"{field}: no model in the list has this id.")
    return names.index(name)
