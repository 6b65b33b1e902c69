"""OpenAI itself and its lookalikes as rows: where they are, and how they differ from the documents.

Each row names where the difference was seen. What the decoder bears from everybody (oddities of calls, usage, errors and endings) is in
no row.
"""

from gateway.formats import Preset, Quirks

# Thinking models want their reasoning back in every turn: platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model
# An answer that was begun is continued only where it says partial: platform.moonshot.ai/docs/api/partial
MOONSHOT = Preset("https://api.moonshot.ai/v1", Quirks(echo_reasoning="always", prefill="partial", thinking="type"))
# Relays of it were seen to cut frames in the middle; its own path has no /v1: docs.z.ai/api-reference/llm/chat-completion
ZHIPU = Preset("https://api.z.ai/api/paas/v4", Quirks(url_sources=True, thinking="type"))

# An id of a call longer than 40 characters is refused: community.openai.com/t/1117388
OPENAI = Quirks(max_tokens_field="max_completion_tokens", url_sources=True, files=True, tool_ids="at_most_40")

PRESETS: dict[str, Preset] = {
    # max_tokens is deprecated and refused by reasoning models: platform.openai.com/docs/api-reference/chat/create
    "openai": Preset("https://api.openai.com/v1", OPENAI),
    # Either the v1 path, or …/openai/deployments/NAME with `query: {api-version: …}`; a header of its own holds the key of both:
    # learn.microsoft.com/azure/foundry/openai/api-version-lifecycle. Reasoning models refuse max_tokens: …/openai/how-to/reasoning
    "azure": Preset(None, OPENAI, auth="api-key", path="/openai/v1", wants=("/openai/deployments/", "api-version")),
    # Thinking mode answers 400 where a turn with tool calls comes back without its reasoning: api-docs.deepseek.com/guides/thinking_mode
    "deepseek": Preset("https://api.deepseek.com/v1", Quirks(echo_reasoning="tool_turns", thinking="type")),
    # Empty ids on later fragments: help.aliyun.com/zh/model-studio/compatibility-of-openai-with-dashscope
    "dashscope": Preset("https://dashscope.aliyuncs.com/compatible-mode/v1", Quirks(url_sources=True, thinking="enable_thinking")),
    # The same service, outside China.
    "qwen": Preset("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", Quirks(url_sources=True, thinking="enable_thinking")),
    "zhipu": ZHIPU,
    "glm": ZHIPU,
    "moonshot": MOONSHOT,
    "kimi": MOONSHOT,
    # Thoughts as <think>…</think> in the text unless reasoning_split is asked for: platform.minimax.io/docs/api-reference/text-openai-api
    "minimax": Preset("https://api.minimax.io/v1", Quirks(think_tags="split", max_tokens_field="max_completion_tokens")),
    # Claude's cache marks and PDFs as files: openrouter.ai/docs/features/prompt-caching, …/images-and-pdfs
    # Reasoning in `reasoning` and `reasoning_details`, errors inside the stream: openrouter.ai/docs/api-reference/overview
    "openrouter": Preset("https://openrouter.ai/api/v1", Quirks(url_sources=True, files=True, cache_control=True, thinking="reasoning")),
    # Image URLs, usage also in x_groq: console.groq.com/docs/openai
    "groq": Preset("https://api.groq.com/openai/v1", Quirks(max_tokens_field="max_completion_tokens", url_sources=True)),
    # stream_options are refused with 422, and usage comes without asking: github.com/avante-corp/avante.nvim/issues/2347
    # prompt_tokens leave the audio out; a system message after the first turn was refused: docs.mistral.ai/api
    # A last message of the assistant's is refused unless it says prefix: docs.mistral.ai/capabilities/completion/usage
    # Ids of calls are exactly nine letters and digits: github.com/mistralai/mistral-common
    "mistral": Preset(
        "https://api.mistral.ai/v1",
        Quirks(
            stream_usage=False,
            url_sources=True,
            audio_excluded=True,
            later_system="reminder",
            tool_ids="alphanumeric_9",
            prefill="prefix",
        ),
    ),
    # completion_tokens leave reasoning out: docs.x.ai/docs/api-reference
    "xai": Preset("https://api.x.ai/v1", Quirks(reasoning_excluded=True, url_sources=True)),
    # Thought signatures in extra_content, calls without index: ai.google.dev/gemini-api/docs/openai
    "gemini": Preset("https://generativelanguage.googleapis.com/v1beta/openai", Quirks(later_system="reminder")),
    # Finish reason `eos` in older models: docs.together.ai/docs/openai-api-compatibility
    "together": Preset("https://api.together.xyz/v1", Quirks(url_sources=True)),
    # Usage in the last chunk of every stream: docs.fireworks.ai/tools-sdks/openai-compatibility
    "fireworks": Preset("https://api.fireworks.ai/inference/v1", Quirks(url_sources=True)),
    # User and assistant must take turns: docs.perplexity.ai/guides/chat-completions-guide
    # The text so far in `message` beside each delta, citations in every chunk: docs.perplexity.ai/api-reference/chat-completions-post
    "perplexity": Preset("https://api.perplexity.ai", Quirks(url_sources=True, alternating=True), path=""),
    # Local servers would fetch URLs from inside our network: no url_sources.
    # Its usual port is this gateway's own. `delta.reasoning` since 0.11: docs.vllm.ai
    "vllm": Preset(None),
    # The reasoning field was renamed by others, not here: docs.sglang.ai/advanced_features/separate_reasoning.html
    "sglang": Preset("http://127.0.0.1:30000/v1"),
    # `timings` beside the usage, arguments sometimes as objects: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    "llama_cpp": Preset("http://127.0.0.1:8080/v1"),
    # Parallel calls all with index 0, `stop` after calls: github.com/ollama/ollama/blob/main/docs/openai.md
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    # Reasoning in `reasoning_content`: lmstudio.ai/docs/developer/openai-compat, github.com/tidyverse/ellmer/issues/1004
    "lm_studio": Preset("http://127.0.0.1:1234/v1"),
}
