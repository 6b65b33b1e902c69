"""Anthropic's Messages API, as a provider speaks it (https://docs.anthropic.com/en/api/messages)."""

from gateway.chat import ChatRequest
from gateway.formats import Target, UpstreamRequest
from gateway.formats.anthropic.request import build
from gateway.formats.anthropic.stream import MessageDecoder


class AnthropicFormat:
    """Builds a request, decodes an answer. `stream_usage` changes nothing: Claude always tells its usage."""

    name = "anthropic"

    def build(self, request: ChatRequest, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        return build(request, target)

    def decoder(self, request: ChatRequest, target: Target, content_type: str = "") -> MessageDecoder:
        provider = target.provider
        return MessageDecoder(provider.name, content_type=content_type, secrets=provider.secrets)


ANTHROPIC = AnthropicFormat()
