"""Whether there were any: the SDKs do not show them, which is the point."""

from collections.abc import Callable
from typing import Any


class Heartbeats:
    """Goes around the application and counts what is sent and says nothing but `ping`."""

    def __init__(self) -> None:
        self.sent = 0

    def around(self, app: Any) -> Callable[..., Any]:
        async def counted(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                self.sent += message.get("body", b"") in (b": ping\n\n", b'event: ping\ndata: {"type":"ping"}\n\n')
                await send(message)

            await app(scope, receive, sending)

        return counted
