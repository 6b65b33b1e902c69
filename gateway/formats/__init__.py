"""Wire formats: one module or folder each, with both of its sides. They know nothing of each other.

An `UpstreamFormat` asks a provider and decodes its answer; a `RequestFormat` reads what a client asks and tells it what
went wrong before the answer; an `AnswerFormat` writes events for a client. Most clients' formats are both of the latter, in
one object. All of them are pure: bytes and values in, bytes and values out. The registries are dict literals: what clients speak in
wiring.py, what providers speak in connections.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct

from gateway.chat import ChatRequest
from gateway.errors import GatewayError, UpstreamFailed
from gateway.events import Event
from gateway.formats.calls import Ids
from gateway.json_text import Json
from gateway.usage import Usage


@dataclass(frozen=True, slots=True)
class Quirks:
    """How one provider differs from the format it claims to speak. The defaults are the format's own documents.

    cumulative: every chunk repeats the whole text so far
    think_tags: reasoning stands in the text as `<think>…</think>` (split), or only its end tag comes (implicit)
    done_is_finish: `[DONE]` without a finish reason ends the answer properly (some relays invent it)
    stream_usage: the provider is asked for `stream_options.include_usage`
    max_tokens_field: the request key for `max_tokens`
    echo_reasoning: whether earlier thinking is sent back: as `reasoning_content`, or to Claude's lookalikes without a signature
    url_sources: images and documents may be given by URL: the provider fetches them, not something inside our network
    files: documents may be given as files, in base64 or by the provider's own id
    cache_control: marks of what the provider shall cache are passed on (Claude's format always does)
    alternating: user and assistant must take turns, so two messages in a row of one of them become one
    prefill: a last message of the assistant's is passed on as it is, or refused, or marked to be continued: with `prefix: true`
        (Mistral), `partial: true` (Kimi), or for the whole request (continue_final_message: vLLM, SGLang)
    thinking: where the request says whether to think: nowhere but in `reasoning_effort`, in `thinking.type`, in `enable_thinking`
        and `thinking_budget`, in `chat_template_kwargs` (template), or in OpenRouter's `reasoning`
    tool_ids: what ids of tool calls may look like (at_most_40 characters, nine letters and digits, …); others are replaced
    later_system: a system message in mid-conversation keeps its place, or becomes user text marked as a reminder
    reasoning_excluded: `completion_tokens` leaves the reasoning tokens out, so they are added (xAI)
    audio_excluded: `prompt_tokens` leaves the audio tokens out, so they are added (Mistral)
    refuses: request keys that the provider answers with 400; they are left out
    """

    cumulative: bool = False
    think_tags: Literal["none", "split", "implicit"] = "none"
    done_is_finish: bool = True
    stream_usage: bool = True
    max_tokens_field: str = "max_tokens"
    echo_reasoning: Literal["never", "tool_turns", "always"] = "never"
    url_sources: bool = False
    files: bool = False
    cache_control: bool = False
    alternating: bool = False
    prefill: Literal["pass", "refuse", "prefix", "partial", "continue_final_message"] = "pass"
    thinking: Literal["effort", "type", "enable_thinking", "template", "reasoning"] = "effort"
    tool_ids: Ids = "any"
    later_system: Literal["keep", "reminder"] = "keep"
    reasoning_excluded: bool = False
    audio_excluded: bool = False
    refuses: tuple[str, ...] = ()


Auth = Literal["bearer", "x-api-key", "api-key"]
"""The header that the key goes into: `Authorization: Bearer`, or the one of that name."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A lookalike as a row: where it is, and how it differs from its format's documents. Configuration overrides single fields.

    `base_url`: None where everybody has an address of their own (local servers, Azure), to which `path` is added if it has none.
    """

    base_url: str | None
    quirks: Quirks = Quirks()
    auth: Auth | None = None  # None: the format's usual one
    path: str = "/v1"
    wants: tuple[str, str] | None = None  # a part of an address, and the query parameter without which nobody answers there


HeaderFields = tuple[tuple[str, str], ...]
"""Header fields, with lower-cased names."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A configured service. `base_url` is resolved (the format appends its own path); `key` goes out in `auth`'s header."""

    name: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    auth: Auth = "bearer"
    version: str = "2023-06-01"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Json = field(default_factory=dict)
    quirks: Quirks = Quirks()
    hidden: tuple[str, ...] = field(default=(), repr=False)  # what else is secret on the way to it

    # What follows from the rest, told once: every request asks for it.
    credentials: HeaderFields = field(init=False, repr=False, compare=False)  # the header that holds the key, if there is one
    header_fields: HeaderFields = field(init=False, repr=False, compare=False)  # that, and the operator's, which replace others of a name
    secrets: tuple[str, ...] = field(init=False, repr=False, compare=False)  # what must never be seen in a message or a log

    def __post_init__(self) -> None:
        credentials: HeaderFields = ()
        if self.key:
            credentials = (("authorization", f"Bearer {self.key}") if self.auth == "bearer" else (self.auth, self.key),)
        fields = dict(credentials) | {name.lower(): value for name, value in self.headers.items()}
        texts = (self.key, *self.headers.values(), *self.query.values(), *self.hidden)
        object.__setattr__(self, "credentials", credentials)
        object.__setattr__(self, "header_fields", tuple(fields.items()))
        object.__setattr__(self, "secrets", tuple(text for text in texts if text and len(text) >= 8))


class Target(Struct, frozen=True):
    """A provider and one of its models: what an attempt is made at."""

    provider: Provider
    format: "UpstreamFormat"
    model: str

    @property
    def name(self) -> str:
        return f"{self.provider.name}/{self.model}"


class UpstreamRequest(Struct, frozen=True):
    """One POST. `url` without the provider's query, which is added when it is sent; `warnings` for the log."""

    url: str
    headers: HeaderFields
    body: bytes
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"UpstreamRequest(url={self.url!r}, warnings={self.warnings!r})"  # no key, and no prompt


Step = Event | Usage | UpstreamFailed
"""What a decoder makes of bytes: events, usage that is no event of its own, or the failure that ends the answer."""


class Decoder(Protocol):
    """One provider's answer, bytes to steps; made fresh for each attempt. After a `MessageStop` or a failure nothing counts."""

    finishing: bool  # a stop reason is known and no content came after it: whatever ends the answer now, it finished
    dropped: int  # malformed frames so far
    warnings: list[str]  # short, for the log; never the provider's text

    def feed(self, chunk: bytes) -> list[Step]: ...

    def close(self, broken: UpstreamFailed | None = None) -> list[Step]:
        """The body ended, or broke as `broken` says. The last step is a `MessageStop` or the failure."""
        ...


class UpstreamFormat(Protocol):
    name: str

    def build(self, request: ChatRequest, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        """The provider's request; `RequestRefused` for what it cannot be asked."""
        ...

    def decoder(self, request: ChatRequest, target: Target, content_type: str = "") -> Decoder: ...


BuildCount = Callable[[ChatRequest, Target], UpstreamRequest]
"""Asks how many tokens a request is, of a provider whose format has words for it."""


class Asked(Struct, frozen=True):
    """What an answer repeats of its request. `created` in Unix seconds."""

    request_id: str = ""
    created: int = 0
    include_usage: bool = False  # the caller wants the usage in an event of its own, where the format has one
    continues: str | None = None  # the id of the message that the answer is a further part of; "" for one without an id


UNASKED = Asked()  # for what repeats nothing of its request


class Parsed(Struct, frozen=True):
    """A request read; `warnings` for the log: what of it was left out, never a value."""

    request: ChatRequest
    include_usage: bool = False
    warnings: tuple[str, ...] = ()
    continues: str | None = None  # as `Asked` has it


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that is the whole answer. `status` may differ from the error's own, where the format's clients know no such one.

    `headers` without `content-type`, `content-length`, `x-request-id` and `retry-after`, which every refusal has.
    """

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


def hopeless(error: GatewayError) -> bool:
    """Whether the status says `retry` to every SDK of Claude's and OpenAI's although nothing would come of it: they have to be told so."""
    return error.status >= 500 and not error.cause.retryable


Headers = Iterable[tuple[bytes, bytes]]
"""A request's header fields as ASGI has them: lower-cased names."""


class RequestFormat(Protocol):
    """How one kind of client asks. `answer`: the answer's format where the query does not name another."""

    @property
    def name(self) -> str: ...

    @property
    def answer(self) -> "AnswerFormat": ...

    def parse(self, body: bytes, headers: Headers = ()) -> Parsed:
        """The request; `RequestRefused` with a sentence that names the field."""
        ...

    def refusal(self, error: GatewayError, request_id: str, *, partial: bool = False, message: Json | None = None) -> Refusal:
        """An error before the 200. `partial`: content had come, of which `message`, in the answer's format, is told beside it."""
        ...


class Encoder(Protocol):
    """One answer, events to bytes; made fresh for each one. A document's bytes come with the `MessageStop`."""

    @property
    def partial(self) -> Json | None:
        """Of a document that was not finished, what there is of its message; None in a stream."""
        ...

    def feed(self, events: list[Event]) -> bytes: ...

    def heartbeat(self) -> bytes: ...

    def failed(self, error: GatewayError, request_id: str, *, partial: bool) -> bytes | None:
        """The in-band ending; None where the format has none and the connection must be cut. No document has one."""
        ...


class AnswerFormat(Protocol):
    """How an answer is written. `content_type` is the stream's, `document_type` that of an answer in one piece."""

    @property
    def name(self) -> str: ...

    @property
    def content_type(self) -> str: ...

    @property
    def document_type(self) -> str: ...

    def headers(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        """What the 200 says besides the fields that every answer has."""
        ...

    def encoder(self, asked: Asked = ...) -> Encoder:
        """A stream."""
        ...

    def document(self, asked: Asked = ...) -> Encoder | None:
        """`stream: false`: everything at the end; None where the format is nothing but a stream."""
        ...
