"""What the file says of a provider of type mapped, as its format's description; every mistake of it as a sentence."""

from gateway.formats.mapped import Description
from gateway.formats.mapped.pointers import pointer
from gateway.formats.mapped.template import CHAT, EACH, Finding, findings
from gateway.settings import Configuration
from gateway.settings.mistakes import Place, did_you_mean
from gateway.settings.schema import ProviderSettings

# Keys of a description, and those of other types that say the same or nothing here.
OF_CHUNKS = ("text", "reasoning", "cumulative", "finish", "stop_reasons", "usage", "error")  # a body that is text has no place for them
OWN = ("url", "request", "framing", "roles", *OF_CHUNKS)
OTHERS = {"base_url": "; its address is url", "preset": "", "quirks": "", "version": ""}


def misplaced(configuration: Configuration, place: Place, settings: ProviderSettings, mistakes: list[str]) -> None:
    """The keys that belong to another type than the provider's."""
    for key in sorted(settings.model_fields_set):
        if settings.type == "mapped" and key in OTHERS:
            mistakes.append(configuration.mistake((*place, key), f"is no key of type mapped{OTHERS[key]}"))
        elif settings.type != "mapped" and key in OWN:
            mistakes.append(configuration.mistake((*place, key), "is a key of type mapped only"))


def description(configuration: Configuration, place: Place, settings: ProviderSettings, mistakes: list[str]) -> Description:
    def wrong(key: Place, sentence: str) -> None:
        mistakes.append(configuration.mistake((*place, *key), sentence))

    if settings.url is None:
        wrong(("url",), "is missing: where a chat is posted")
    if settings.request is None:
        wrong(("request",), "is missing: the body of a request, with $messages or $prompt in it")
    else:
        for found in (known := list(findings(settings.request))):
            if sentence := _mistake(found):
                wrong(("request", *found.place), sentence)
        if EACH in settings.request:
            wrong(("request",), f"expected the keys of a body: a {EACH} with a template of its own stands inside of one")
        if all(found.name in found.known and found.name not in CHAT for found in known):
            wrong(("request",), "says nothing of the chat: expected one of $messages, $prompt and $transcript somewhere in it")
    if settings.framing == "text":
        for key in OF_CHUNKS:
            if key in settings.model_fields_set:
                wrong((key,), "has no place in a body that is text (framing: text)")
    elif settings.text is None:
        wrong(("text",), "is missing: a JSON pointer to the answer's text in each chunk; or framing: text, if the body is nothing but text")
    if settings.stop_reasons and settings.finish is None:
        wrong(("stop_reasons",), "wants finish, a JSON pointer to the values that it explains")
    plain = settings.framing == "text"
    return Description(
        request=settings.request or {},
        text=None if plain else pointer(settings.text or ""),
        reasoning=_optional(settings.reasoning),
        finish=_optional(settings.finish),
        stop_reasons=settings.stop_reasons,
        usage={name: pointer(text) for name, text in settings.usage if text is not None},
        error=_optional(settings.error),
        cumulative=settings.cumulative,
        roles={str(role): name for role, name in settings.roles.items()},
    )


def _optional(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else pointer(text)


def _mistake(found: Finding) -> str:
    if found.name not in found.known:
        return f"unknown placeholder{did_you_mean(f'${found.name}', [f'${name}' for name in found.known])}; a plain $ is written $$"
    if not found.alone:
        return f"expected ${found.name} to stand alone, nothing beside it"
    if found.speechless:
        return "says nothing of the chat: expected $text in the template of a turn"
    return ""
