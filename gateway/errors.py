"""Everything that can go wrong, and the one table that says what it means.

    GatewayError            a row of CAUSES, one sentence, and what is known besides
    ├── RequestRefused      the caller's request, or the gateway's own limits: nothing was asked upstream
    └── UpstreamFailed      an attempt failed; `cause.before_content` says what may be tried next

`error.type` is Anthropic's list (https://docs.anthropic.com/en/api/errors); `code` is this gateway's closed list of causes.
"""

from dataclasses import dataclass
from typing import Literal

from gateway.events import Error, ErrorBody

# What may be tried while nothing has been said: the same target again and then the next one; the next one at once;
# the next one if it is another model; nothing, the error is the answer.
Try = Literal["same", "next", "other_model", "answer"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One row: the HTTP status before content, and the fields of the error in any case."""

    status: int
    type: str
    code: str
    retryable: bool
    before_content: Try = "answer"


CAUSES = {
    # the provider refused
    "not_found": Cause(404, "not_found_error", "upstream_rejected", False, "next"),
    "rejected": Cause(400, "invalid_request_error", "upstream_rejected", False),  # any other 4xx, with its own status
    "rejected_size": Cause(413, "request_too_large", "upstream_rejected", False),
    "context": Cause(400, "invalid_request_error", "upstream_rejected", False, "other_model"),
    "auth": Cause(502, "api_error", "upstream_auth", False, "next"),
    "redirect": Cause(502, "api_error", "upstream_rejected", False, "next"),
    # the provider cannot just now
    "rate_limited": Cause(429, "rate_limit_error", "upstream_rate_limited", True, "same"),
    "busy": Cause(503, "overloaded_error", "upstream_overloaded", True, "same"),
    "overloaded": Cause(529, "overloaded_error", "upstream_overloaded", True, "same"),
    "upstream_timeout": Cause(504, "timeout_error", "upstream_unavailable", True, "same"),
    "unavailable": Cause(502, "api_error", "upstream_unavailable", True, "same"),
    # its answer broke
    "interrupted": Cause(502, "api_error", "stream_interrupted", True, "same"),
    "malformed": Cause(502, "api_error", "stream_malformed", True, "same"),
    "event_too_large": Cause(502, "api_error", "event_too_large", False),
    # it took too long
    "first_token": Cause(504, "timeout_error", "first_token_timeout", True, "next"),
    "idle": Cause(504, "timeout_error", "idle_timeout", True, "next"),
    "total": Cause(504, "timeout_error", "total_timeout", True),
    # the gateway's own limits
    "shutdown": Cause(503, "overloaded_error", "shutdown", True),
    "too_many_streams": Cause(429, "rate_limit_error", "too_many_streams", True),
    "caller_limited": Cause(429, "rate_limit_error", "rate_limited", True),
    "slow_client": Cause(504, "timeout_error", "slow_client", True),  # in logs only: nobody is left to read it
    # the caller's request
    "invalid_request": Cause(400, "invalid_request_error", "invalid_request", False),
    "unsupported": Cause(400, "invalid_request_error", "unsupported", False),
    "unknown_model": Cause(404, "not_found_error", "unknown_model", False),
    "no_count": Cause(404, "not_found_error", "unsupported", False),
    "not_built": Cause(404, "not_found_error", "unsupported", False),
    "not_here": Cause(404, "not_found_error", "invalid_request", False),
    "method": Cause(405, "invalid_request_error", "invalid_request", False),
    "too_large": Cause(413, "request_too_large", "too_large", False),
    "unauthorized": Cause(401, "authentication_error", "unauthorized", False),
    "forbidden_origin": Cause(403, "permission_error", "forbidden_origin", False),
    # nobody's fault but ours
    "internal": Cause(500, "api_error", "internal", False),
}

# Statuses whose Retry-After is worth keeping: they say "later", not "never".
LATER = frozenset({429, 503, 529})


class GatewayError(Exception):
    """`message`: one sentence for the caller; `detail`: a redacted remark for the log; `retry_after` in seconds."""

    def __init__(
        self,
        cause: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        provider: str | None = None,
        provider_code: str | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = CAUSES[cause]
        self.message = message
        self.status = status or self.cause.status
        self.retry_after = retry_after
        self.provider = provider
        self.provider_code = provider_code
        self.detail = detail

    def event(self, request_id: str, *, partial: bool) -> Error:
        """The terminal event, which is also the body of the HTTP error."""
        cause = self.cause
        body = ErrorBody(cause.type, self.message, cause.code, cause.retryable, partial, self.provider, self.provider_code)
        return Error(body, request_id)


class RequestRefused(GatewayError):
    """Nothing was asked of a provider: the request is wrong, or the gateway takes no more."""


class UpstreamFailed(GatewayError):
    """An attempt at a provider failed, before content or in the middle of it."""


def internal() -> GatewayError:
    """A fault of the gateway's own, as the caller may see it."""
    return GatewayError("internal", "The gateway failed; the log says how.")
