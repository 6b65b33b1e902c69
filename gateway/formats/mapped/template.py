"""The body of a request as a template: JSON in which a text that begins with `$` stands for something of the chat.

    $messages    the turns, as {role, content}; or, as the only key of an object, a template of its own for each turn
    $role $text  in that template: who speaks, and what is said
    $prompt      the latest user's text              $system       the system prompt
    $transcript  all turns as one text               $model        the target's model
    $max_tokens  $temperature  $top_p  $stop         what the caller asked for

A placeholder is the whole text, never a part of it; `$$` at the beginning is a plain `$`. What the caller did not say is left out,
with its key. What is filled in is never looked at again: a prompt cannot hold a placeholder.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gateway.json_text import Json

CHAT = ("messages", "prompt", "transcript")  # one of them says what the chat is about
PLACEHOLDERS = (*CHAT, "system", "model", "max_tokens", "temperature", "top_p", "stop")
TURN = ("role", "text")
EACH = "$messages"
ABSENT: Final = object()

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A placeholder at `place`, or what is wrong there: `name` is then none that is `known`, or stands among other text, or is a
    template for turns that leaves out what they say."""

    place: Place
    name: str
    known: tuple[str, ...]
    alone: bool = True
    speechless: bool = False


def findings(template: Any, place: Place = (), known: tuple[str, ...] = PLACEHOLDERS) -> Iterator[Finding]:
    """Every placeholder of a template, right or wrong."""
    if isinstance(template, str):
        if template.startswith("$"):
            if not template.startswith("$$"):
                yield Finding(place, template[1:], known)
        else:
            yield from (Finding(place, name, known, alone=False) for name in known if f"${name}" in template)
    elif isinstance(template, list):
        for number, item in enumerate(template):
            yield from findings(item, (*place, number), known)
    elif isinstance(template, dict):
        for key, item in template.items():
            each = key == EACH and known is PLACEHOLDERS
            if each:
                speechless = all(found.name == "role" for found in findings(item, place, TURN))
                yield Finding(place, "messages", known, len(template) == 1, speechless)
            elif key.startswith("$"):
                yield Finding((*place, key), key[1:], ("messages",) if known is PLACEHOLDERS else ())
            yield from findings(item, (*place, key), TURN if each else known)


def filled(template: Any, values: Json) -> Any:
    """The template with its values; `ABSENT` for a placeholder without one. `$messages` has its turns as {role, content}."""
    if isinstance(template, str):
        if not template.startswith("$"):
            return template
        return template[1:] if template.startswith("$$") else values.get(template[1:], ABSENT)
    if isinstance(template, list):
        return [item for part in template if (item := filled(part, values)) is not ABSENT]
    if isinstance(template, dict):
        if EACH in template:
            turns = values.get("messages", [])
            return [filled(template[EACH], {"role": turn["role"], "text": turn["content"]}) for turn in turns]
        return {key: item for key, part in template.items() if (item := filled(part, values)) is not ABSENT}
    return template
