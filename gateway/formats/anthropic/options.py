"""What of a chat request is not its messages, as Claude takes it (https://docs.anthropic.com/en/api/messages)."""

from gateway.chat import ChatRequest
from gateway.errors import RequestRefused
from gateway.formats import Target
from gateway.formats.anthropic import models
from gateway.json_text import Json

# Claude requires the field; long enough for an answer, short enough for every model.
MAX_TOKENS = 8192
MOST_TEMPERATURE = 1
LEAST_TOP_P = 0.95  # while it thinks
THINKS = frozenset({"enabled", "adaptive"})


class Warnings(dict[str, None]):
    """Each once, in order: a long history would say the same thing many times."""

    def add(self, warning: str) -> None:
        self[warning] = None


def options(request: ChatRequest, target: Target, max_tokens: int, warnings: Warnings) -> Json:
    body: Json = {}
    thinks = False
    if request.thinking is not None and (thinking := _thinking(request.thinking, target, max_tokens, warnings)):
        body["thinking"] = thinking
        thinks = thinking.get("type") in THINKS
    if request.temperature is not None or request.top_p is not None:
        body |= _sampling(request, target, thinks, warnings)
    if request.stop_sequences and (stop_sequences := _stop_sequences(request.stop_sequences, warnings)):
        body["stop_sequences"] = stop_sequences
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.tool_choice is not None and not request.tools:
        warnings.add("tool_choice left out: there are no tools")
    elif request.tool_choice:
        body["tool_choice"] = request.tool_choice
    if request.metadata:
        body["metadata"] = request.metadata
    if request.effort is not None or request.response_format is not None:
        if config := _output_config(request, target, warnings):
            body["output_config"] = config
    return body


def max_tokens(request: ChatRequest) -> int:
    """Thinking has to leave room for an answer."""
    budget = (request.thinking or {}).get("budget_tokens")
    return request.max_tokens or MAX_TOKENS + (budget if isinstance(budget, int) else 0)


def _thinking(asked: Json, target: Target, max_tokens: int, warnings: Warnings) -> Json | None:
    thinking, warning = models.thinking(target.model, asked, max_tokens)
    if warning is not None:
        warnings.add(warning)
    return thinking


def _sampling(request: ChatRequest, target: Target, thinks: bool, warnings: Warnings) -> Json:
    given: Json = {key: value for key in ("temperature", "top_p") if (value := getattr(request, key)) is not None}
    refused = set(models.refused_sampling(target.model, target.provider.version, tuple(given)))
    if models.known(target.model) is not None:
        if given.get("temperature", 0) > MOST_TEMPERATURE:
            given["temperature"] = MOST_TEMPERATURE  # others count to 2
            warnings.add("temperature lowered to 1")
        if thinks:
            refused |= {"temperature"} if given.get("temperature", 1) != 1 else set()
            refused |= {"top_p"} if given.get("top_p", 1) < LEAST_TOP_P else set()
    for key in [key for key in given if key in refused]:
        del given[key]
        warnings.add(f"{key} left out")
    return given


def _stop_sequences(given: list[str], warnings: Warnings) -> list[str]:
    """Claude answers 400 to one of nothing but white space, which others take."""
    kept = [sequence for sequence in given if sequence.strip()]
    if len(kept) < len(given):
        warnings.add("stop sequences of white space left out")
    return kept


def _tool(tool: Json) -> Json:
    """A schema without its type is an object's to everybody but Claude, who answers 400."""
    schema = tool.get("input_schema")
    if tool.get("type") not in (None, "custom") or (isinstance(schema, dict) and "type" in schema):
        return tool
    return {**tool, "input_schema": {"type": "object", **(schema if isinstance(schema, dict) else {})}}


def _output_config(request: ChatRequest, target: Target, warnings: Warnings) -> Json:
    effort, warning = models.effort(target.model, request.effort)
    if warning is not None:
        warnings.add(warning)
    config: Json = {"effort": effort} if effort else {}
    wanted = request.response_format or {"type": "text"}
    match wanted.get("type"):
        case "text":
            pass
        case "json_schema":
            if not isinstance(wanted.get("schema"), dict):
                raise invalid("response_format.schema: expected an object")
            config["format"] = {"type": "json_schema", "schema": wanted["schema"]}
        case "json_object":
            sentence = f"response_format.type: provider {target.provider.name} has no json_object; use json_schema with a schema."
            raise RequestRefused("unsupported", sentence)
        case _:
            raise invalid("response_format.type: expected one of text, json_object, json_schema")
    return config


def invalid(sentence: str) -> RequestRefused:
    return RequestRefused("invalid_request", f"{sentence}.")
