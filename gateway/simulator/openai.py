"""OpenAI's wire: Chat Completions as text templates; the reasoning field is DeepSeek's.

https://platform.openai.com/docs/api-reference/chat-streaming
"""

from typing import Any

from gateway.simulator.reply import CREATED, Reply, fragments, json_of, utf8


class OpenAI:
    """`stream` makes one piece an event; the usage only for a request that asks for it."""

    content_type = "text/event-stream"
    id_header = "x-request-id"

    def stream(self, reply: Reply, request: dict[str, Any]) -> list[bytes]:
        options = request.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        deltas = ['"role":"assistant","content":""']
        deltas += [f'"reasoning_content":{json_of(thought)}' for thought in reply.thinking]
        deltas += [f'"content":{json_of(word)}' for word in reply.words]
        if reply.call:
            function = f'{{"name":{json_of(reply.call.name)},"arguments":""}}'
            deltas.append(f'"tool_calls":[{{"index":0,"id":"call_{reply.id}","type":"function","function":{function}}}]')
            parts = fragments(reply.call.arguments)
            deltas += [f'"tool_calls":[{{"index":0,"function":{{"arguments":{json_of(part)}}}}}]' for part in parts]
        no_usage = ',"usage":null' if usage else ""
        choices = [f'{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":null}}' for delta in deltas]
        choices.append(f'{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"{self._finish_reason(reply)}"}}')
        chunks = [self._chunk(reply, choice, no_usage) for choice in choices]
        if usage:
            chunks.append(self._chunk(reply, "", f',"usage":{self._usage(reply)}'))
        return [*chunks, b"data: [DONE]\n\n"]

    def document(self, reply: Reply) -> bytes:
        message = f'"role":"assistant","content":{json_of("".join(reply.words) or None)}'
        if reply.thinking:
            message += f',"reasoning_content":{json_of("".join(reply.thinking))}'
        if reply.call:
            function = f'{{"name":{json_of(reply.call.name)},"arguments":{json_of(reply.call.arguments)}}}'
            message += f',"tool_calls":[{{"id":"call_{reply.id}","type":"function","function":{function}}}]'
        choice = f'{{"index":0,"message":{{{message}}},"logprobs":null,"finish_reason":"{self._finish_reason(reply)}"}}'
        return utf8(
            f'{{"id":"chatcmpl-{reply.id}","object":"chat.completion","created":{CREATED},"model":{json_of(reply.model)},'
            f'"choices":[{choice}],"usage":{self._usage(reply)}}}'
        )

    def error(self, status: int, message: str) -> str:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        code = '"rate_limit_exceeded"' if status == 429 else "null"
        return f'{{"error":{{"message":{json_of(message)},"type":"{kind}","param":null,"code":{code}}}}}'

    def error_event(self, message: str) -> bytes:
        return utf8(f"data: {self.error(500, message)}\n\n")

    def _chunk(self, reply: Reply, choices: str, rest: str) -> bytes:
        return utf8(
            f'data: {{"id":"chatcmpl-{reply.id}","object":"chat.completion.chunk","created":{CREATED},"model":{json_of(reply.model)},'
            f'"choices":[{choices}]{rest}}}\n\n'
        )

    def _usage(self, reply: Reply) -> str:
        given, made = reply.input_tokens, reply.output_tokens
        return (
            f'{{"prompt_tokens":{given},"completion_tokens":{made},"total_tokens":{given + made},'
            f'"completion_tokens_details":{{"reasoning_tokens":{len(reply.thinking)}}}}}'
        )

    def _finish_reason(self, reply: Reply) -> str:
        if reply.call is None:
            return "stop"
        return "tool_calls" if reply.call.whole else "length"
