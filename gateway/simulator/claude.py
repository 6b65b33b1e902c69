"""Claude's wire: the Messages API as text templates.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from typing import Any

from gateway.simulator.reply import Reply, fragments, json_of, utf8


class Claude:
    """`stream` makes one piece an event."""

    content_type = "text/event-stream; charset=utf-8"
    id_header = "request-id"

    def stream(self, reply: Reply, request: dict[str, Any]) -> list[bytes]:
        frames = [
            (
                "message_start",
                f'"message":{{"id":"msg_{reply.id}","type":"message","role":"assistant","model":{json_of(reply.model)},"content":[],'
                f'"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":1}}}}',
            )
        ]
        if reply.thinking:
            deltas = [f'"type":"thinking_delta","thinking":{json_of(thought)}' for thought in reply.thinking]
            deltas.append(f'"type":"signature_delta","signature":"{self._signature(reply)}"')
            frames += self._block(0, '"type":"thinking","thinking":"","signature":""', deltas)
        if reply.words:
            deltas = [f'"type":"text_delta","text":{json_of(word)}' for word in reply.words]
            frames += self._block(bool(reply.thinking), '"type":"text","text":""', deltas)
        if reply.call:
            start = f'"type":"tool_use","id":"toolu_{reply.id}","name":{json_of(reply.call.name)},"input":{{}}'
            deltas = [f'"type":"input_json_delta","partial_json":{json_of(part)}' for part in ["", *fragments(reply.call.arguments)]]
            frames += self._block(bool(reply.thinking) + bool(reply.words), start, deltas)
        frames.append(
            (
                "message_delta",
                f'"delta":{{"stop_reason":"{self._stop_reason(reply)}","stop_sequence":null}},'
                f'"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":{reply.output_tokens}}}',
            )
        )
        events = [self._event(name, rest) for name, rest in frames]
        return [*events[:1], utf8('event: ping\ndata: {"type": "ping"}\n\n'), *events[1:], self._event("message_stop", "")]

    def document(self, reply: Reply) -> bytes:
        blocks = []
        if reply.thinking:
            blocks.append(f'{{"type":"thinking","thinking":{json_of("".join(reply.thinking))},"signature":"{self._signature(reply)}"}}')
        if reply.words:
            blocks.append(f'{{"type":"text","text":{json_of("".join(reply.words))}}}')
        if reply.call:
            value = reply.call.arguments if reply.call.whole else "{}"
            blocks.append(f'{{"type":"tool_use","id":"toolu_{reply.id}","name":{json_of(reply.call.name)},"input":{value}}}')
        return utf8(
            f'{{"id":"msg_{reply.id}","type":"message","role":"assistant","model":{json_of(reply.model)},"content":[{",".join(blocks)}],'
            f'"stop_reason":"{self._stop_reason(reply)}","stop_sequence":null,'
            f'"usage":{{"input_tokens":{reply.input_tokens},"output_tokens":{reply.output_tokens}}}}}'
        )

    def error(self, status: int, message: str) -> str:
        names = {
            401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
            429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
        }  # fmt: skip
        name = names.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return f'{{"type":"error","error":{{"type":"{name}","message":{json_of(message)}}}}}'

    def error_event(self, message: str) -> bytes:
        return utf8(f"event: error\ndata: {self.error(529, message)}\n\n")

    def _block(self, index: int, start: str, deltas: list[str]) -> list[tuple[str, str]]:
        head = f'"index":{int(index)}'
        return [
            ("content_block_start", f'{head},"content_block":{{{start}}}'),
            *(("content_block_delta", f'{head},"delta":{{{delta}}}') for delta in deltas),
            ("content_block_stop", head),
        ]

    def _event(self, name: str, rest: str) -> bytes:
        return utf8(f'event: {name}\ndata: {{"type":"{name}"{"," if rest else ""}{rest}}}\n\n')

    def _signature(self, reply: Reply) -> str:
        return f"c2ltdWxhdGVk{reply.id[4:]}"

    def _stop_reason(self, reply: Reply) -> str:
        if reply.call is None:
            return "end_turn"
        return "tool_use" if reply.call.whole else "max_tokens"
