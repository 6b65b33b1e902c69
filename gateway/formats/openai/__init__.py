"""OpenAI Chat Completions and the many providers that look like it.

https://platform.openai.com/docs/api-reference/chat

    request   ChatRequest → the provider's request          history   its messages
    stream    the answer's bytes → steps                     chunks    what stands in a chunk, wherever a provider put it
    passages · think_tags · tool_calls · citations           one idea each, put together by `stream`
    terms     finish reasons and token counts                presets   lookalikes as data
    parts     content blocks as parts                        models    what OpenAI's own are known to refuse

And what clients speak that were made for it, the same the other way round:

    client    the format as the routes know it               parse     the request → a ChatRequest        turns   its messages
    encode    events → chunks                                completion   events → one document           words   what both say
"""

from gateway.formats.openai.client import OPENAI_CLIENT, OpenAIClient
from gateway.formats.openai.presets import PRESETS
from gateway.formats.openai.request import OPENAI, OpenAIFormat

__all__ = ["OPENAI", "OPENAI_CLIENT", "PRESETS", "OpenAIClient", "OpenAIFormat"]
