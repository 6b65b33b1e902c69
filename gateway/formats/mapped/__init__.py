"""A provider whose format is nobody else's: configuration describes it, by JSON pointers and a template of its request.

description  what is said of such a provider         pointers   where in its chunks something stands
template     the request's body, to be filled        request    a ChatRequest → what it is filled with
stream       the answer's bytes → steps, for JSON    plain      the same for a body that is nothing but text
"""

from gateway.chat import ChatRequest
from gateway.formats import Decoder, Target, UpstreamRequest
from gateway.formats.mapped.description import Description
from gateway.formats.mapped.plain import PlainDecoder
from gateway.formats.mapped.request import build
from gateway.formats.mapped.stream import MappedDecoder
from gateway.formats.mapped.template import findings

__all__ = ["Description", "MappedFormat"]


class MappedFormat:
    """One provider's own format. It knows text only, and is asked for its usage by nothing but its template."""

    name = "mapped"

    def __init__(self, description: Description) -> None:
        self._description = description

    @property
    def asks_model(self) -> bool:
        """Whether a request names its model, so that one has to be known."""
        return any(found.name == "model" for found in findings(self._description.request))

    @property
    def remarks(self) -> list[str]:
        """Where the description is weak, for whoever checks it."""
        used = {found.name for found in findings(self._description.request)}
        only = ["sends the latest user's text only"] if used.isdisjoint(("messages", "transcript")) else []
        return only if self._description.finish else [*only, "no finish: an answer that breaks off looks whole"]

    def build(self, request: ChatRequest, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        return build(request, target, self._description)

    def decoder(self, request: ChatRequest, target: Target, content_type: str = "") -> Decoder:
        if self._description.text is None:
            return PlainDecoder(target.provider)
        return MappedDecoder(target.provider, self._description, self._description.text, content_type)
