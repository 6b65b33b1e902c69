"""The AI SDK's UI messages: what `useChat` posts, and the UI message stream that it reads.

https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol

    client    the format as the routes know it
    parse     the body → a ChatRequest                history   its messages
    encode    events → chunks                         document  the whole answer → one UI message
    terms     what several of them say

Clients only: no provider speaks it.
"""

from gateway.formats.ai_sdk.client import AI_SDK, AISDKClient
from gateway.formats.ai_sdk.parse import is_use_chat

__all__ = ["AI_SDK", "AISDKClient", "is_use_chat"]
