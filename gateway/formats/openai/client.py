"""Chat Completions as clients speak it: `POST /v1/chat/completions`.

https://platform.openai.com/docs/api-reference/chat
"""

from gateway import json_text
from gateway.errors import GatewayError
from gateway.formats import UNASKED, AnswerFormat, Asked, Headers, Parsed, Refusal, hopeless
from gateway.formats.openai import words
from gateway.formats.openai.completion import Completion
from gateway.formats.openai.encode import ChunkEncoder
from gateway.formats.openai.parse import parse
from gateway.json_text import Json


class OpenAIClient:
    """A `RequestFormat` and the `AnswerFormat` of its answers."""

    name = "openai"
    content_type = "text/event-stream; charset=utf-8"
    document_type = "application/json"

    @property
    def answer(self) -> AnswerFormat:
        return self

    def parse(self, body: bytes, headers: Headers = ()) -> Parsed:
        return parse(body)

    def refusal(self, error: GatewayError, request_id: str, *, partial: bool = False, message: Json | None = None) -> Refusal:
        body = words.error_body(error.event(request_id, partial=partial).error)
        if message is not None:
            body |= {"partial": True, "partial_message": message}
        return Refusal(words.status(error), json_text.write(body), (("x-should-retry", "false"),) if hopeless(error) else ())

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        return ()

    def encoder(self, asked: Asked = UNASKED) -> ChunkEncoder:
        return ChunkEncoder(asked.created, usage=asked.include_usage)

    def document(self, asked: Asked = UNASKED) -> Completion:
        return Completion(asked.created)


OPENAI_CLIENT = OpenAIClient()
