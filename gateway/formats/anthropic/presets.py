"""Claude itself and its lookalikes as rows: where they are, and how they differ from the documents.

Each row names where the difference was seen. A system message in mid-conversation is Claude's own of 2026: none of the others is known
to take one.
"""

from gateway.formats import Preset, Quirks

PLAIN = Quirks(later_system="reminder")
ECHOED = Quirks(later_system="reminder", echo_reasoning="always")

# Bearer, for the vendor's own setup (docs.z.ai/scenario-example) writes the key to ANTHROPIC_AUTH_TOKEN.
ZHIPU = Preset("https://api.z.ai/api/anthropic", PLAIN, auth="bearer")
# ANTHROPIC_AUTH_TOKEN too: platform.kimi.ai/docs/api/overview. Its thinking models want their reasoning back, as under type openai.
MOONSHOT = Preset("https://api.moonshot.ai/anthropic", ECHOED, auth="bearer")

PRESETS: dict[str, Preset] = {
    # Fetches an image's URL from its own network, not from inside ours: docs.anthropic.com/en/api/messages
    "anthropic": Preset("https://api.anthropic.com", Quirks(url_sources=True)),
    # "The `content[].thinking` in the thinking mode must be passed back", as 400: api-docs.deepseek.com/guides/anthropic_api,
    # github.com/decolua/9router/issues/2397; the blocks come without a signature: github.com/QuantumNous/new-api/issues/4763
    "deepseek": Preset("https://api.deepseek.com/anthropic", ECHOED),
    "zhipu": ZHIPU,
    "glm": ZHIPU,
    "moonshot": MOONSHOT,
    "kimi": MOONSHOT,
    # All blocks of an answer, thinking too, belong into the history: platform.minimax.io/docs/api-reference/text-anthropic-api
    "minimax": Preset("https://api.minimax.io/anthropic", ECHOED, auth="bearer"),
    # The key is the one of --api-key: github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    "llama_cpp": Preset("http://127.0.0.1:8080", PLAIN),
}
