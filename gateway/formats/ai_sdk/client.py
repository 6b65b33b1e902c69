"""The AI SDK's own clients: `POST /api/chat`, and `POST /chat` for a body whose messages are made of parts.

https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol#ui-message-stream-protocol

Deliberate oddity: an error before the answer is one plain sentence, for `useChat` shows the body as it is.
"""

from gateway import json_text
from gateway.errors import GatewayError
from gateway.events import encode
from gateway.formats import UNASKED, AnswerFormat, Asked, Headers, Parsed, Refusal
from gateway.formats.ai_sdk.document import document
from gateway.formats.ai_sdk.encode import ChunkEncoder
from gateway.formats.ai_sdk.parse import parse
from gateway.formats.whole import Document
from gateway.json_text import Json

VERSION = ("x-vercel-ai-ui-message-stream", "v1")


class AISDKClient:
    """A `RequestFormat` and the `AnswerFormat` of its answers."""

    name = "ai-sdk"
    content_type = "text/event-stream; charset=utf-8"
    document_type = "application/json"

    @property
    def answer(self) -> AnswerFormat:
        return self

    def parse(self, body: bytes, headers: Headers = ()) -> Parsed:
        return parse(body)

    def refusal(self, error: GatewayError, request_id: str, *, partial: bool = False, message: Json | None = None) -> Refusal:
        if message is None:
            return Refusal(error.status, json_text.clean(error.message).encode(), content_type="text/plain; charset=utf-8")
        # Who asked for a document reads JSON.
        body = json_text.read(encode(error.event(request_id, partial=partial)))
        return Refusal(error.status, json_text.write({**body, "partial_message": message}))

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return (VERSION,)

    def encoder(self, asked: Asked = UNASKED) -> ChunkEncoder:
        return ChunkEncoder(asked.continues)

    def document(self, asked: Asked = UNASKED) -> Document:
        return document(asked.continues)


AI_SDK = AISDKClient()
