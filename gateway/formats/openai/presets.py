"""Lookalikes as rows: where a provider is, and how it differs from the documents.

Each row names where the difference was seen. A row is a starting point: configuration overrides its single fields.
"""

from dataclasses import dataclass

from gateway.formats import Quirks

AS_DOCUMENTED = Quirks()


@dataclass(frozen=True, slots=True)
class Preset:
    """`base_url`: None where the service has no address of its own (local servers)."""

    base_url: str | None
    quirks: Quirks = AS_DOCUMENTED


PRESETS: dict[str, Preset] = {
    # max_tokens is deprecated and refused by reasoning models: platform.openai.com/docs/api-reference/chat/create
    # An id longer than 40 characters is refused: community.openai.com/t/1117388
    "openai": Preset(
        "https://api.openai.com/v1", Quirks(max_tokens_field="max_completion_tokens", url_sources=True, tool_ids="at_most_40")
    ),
    # Thinking mode answers 400 where a turn with tool calls comes back without its reasoning: api-docs.deepseek.com/guides/thinking_mode
    "deepseek": Preset("https://api.deepseek.com/v1", Quirks(echo_reasoning="tool_turns")),
    # A self-hosted server would fetch URLs from inside: no url_sources. `delta.reasoning` since 0.11: docs.vllm.ai
    "vllm": Preset(None),
    # Parallel calls all with index 0, `stop` after calls: github.com/ollama/ollama/blob/main/docs/openai.md
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    # Image URLs, usage also in x_groq: console.groq.com/docs/openai
    "groq": Preset("https://api.groq.com/openai/v1", Quirks(max_tokens_field="max_completion_tokens", url_sources=True)),
    # Reasoning in `reasoning` and `reasoning_details`, errors inside the stream: openrouter.ai/docs/api-reference/overview
    "openrouter": Preset("https://openrouter.ai/api/v1", Quirks(url_sources=True)),
    # stream_options are refused with 422, and usage comes without asking: github.com/avante-corp/avante.nvim/issues/2347
    # prompt_tokens leave the audio out; a system message after the first turn was refused: docs.mistral.ai/api
    # Ids of calls are exactly nine letters and digits: github.com/mistralai/mistral-common
    "mistral": Preset(
        "https://api.mistral.ai/v1",
        Quirks(stream_usage=False, url_sources=True, audio_excluded=True, later_system="reminder", tool_ids="alphanumeric_9"),
    ),
    # Empty ids on later fragments: help.aliyun.com/zh/model-studio/compatibility-of-openai-with-dashscope
    "dashscope": Preset("https://dashscope.aliyuncs.com/compatible-mode/v1", Quirks(url_sources=True)),
    # The same service, outside China.
    "qwen": Preset("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Quirks(url_sources=True)),
    # Thinking models want their reasoning back in every turn: platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model
    "moonshot": Preset("https://api.moonshot.ai/v1", Quirks(echo_reasoning="always")),
    # Relays of it were seen to cut frames in the middle; its own path has no /v1: docs.z.ai/api-reference/llm/chat-completion
    "zhipu": Preset("https://api.z.ai/api/paas/v4", Quirks(url_sources=True)),
    # completion_tokens leave reasoning out: docs.x.ai/docs/api-reference
    "xai": Preset("https://api.x.ai/v1", Quirks(reasoning_excluded=True, url_sources=True)),
    # Thoughts as <think>…</think> in the text unless reasoning_split is asked for: platform.minimax.io/docs/api-reference/text-openai-api
    "minimax": Preset("https://api.minimax.io/v1", Quirks(think_tags="split", max_tokens_field="max_completion_tokens")),
    # `timings` beside the usage, arguments sometimes as objects: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    "llama_cpp": Preset("http://127.0.0.1:8080/v1"),
    # The reasoning field was renamed by others, not here: docs.sglang.ai/advanced_features/separate_reasoning.html
    "sglang": Preset("http://127.0.0.1:30000/v1"),
    # The text so far in `message` beside each delta, citations in every chunk: docs.perplexity.ai/api-reference/chat-completions-post
    "perplexity": Preset("https://api.perplexity.ai", Quirks(url_sources=True)),
    # Finish reason `eos` in older models: docs.together.ai/docs/openai-api-compatibility
    "together": Preset("https://api.together.xyz/v1", Quirks(url_sources=True)),
    # Thought signatures in extra_content, calls without index: ai.google.dev/gemini-api/docs/openai
    "gemini": Preset("https://generativelanguage.googleapis.com/v1beta/openai", Quirks(later_system="reminder")),
}
