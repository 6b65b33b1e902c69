"""How long a request is, in tokens: asked of the first Claude target of its model that answers.

https://docs.anthropic.com/en/api/messages-count-tokens
"""

import asyncio
from collections.abc import Mapping, MutableSet
from dataclasses import dataclass

import anyio
import httpx
from starlette.types import Receive, Scope, Send

from gateway import json_text
from gateway.access import document
from gateway.admission import Admission, stopping
from gateway.chat import ChatRequest
from gateway.errors import GatewayError, RequestRefused, UpstreamFailed
from gateway.formats import BuildCount, RequestFormat, Target
from gateway.json_text import Json
from gateway.routing import Model
from gateway.upstream import Exchange

PATIENCE = 30.0  # seconds for all targets together: nobody waits long for a number
LONGEST = 64 * 1024  # bytes of an answer that is one


@dataclass(eq=False, slots=True)
class Count:
    """The ASGI application of one question. Whoever cancels its scope in `waiting` ends it as the gateway's stop does."""

    request: ChatRequest
    model: Model
    builders: Mapping[str, BuildCount]  # by the upstream's format
    transports: Mapping[str, httpx.AsyncBaseTransport]
    format: RequestFormat
    request_id: str
    admission: Admission
    waiting: MutableSet[anyio.CancelScope]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self.admission.stream():
                counted = await self._unless_gone(receive)
        except GatewayError as error:
            status, headers, body = document(error, self.request_id, format=self.format)
        else:
            if counted is None:
                return
            status, body = 200, json_text.write(counted)
            fields = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store"}
            fields |= {"x-request-id": self.request_id, "request-id": self.request_id}
            headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _unless_gone(self, receive: Receive) -> Json | None:
        """None if the client left: then nothing is asked any more."""
        counted: Json | None = None
        failure: GatewayError | None = None
        async with asyncio.TaskGroup() as group:
            with anyio.CancelScope() as scope:
                watcher = group.create_task(_watch(receive, scope), name="watcher")
                self.waiting.add(scope)
                try:
                    counted = await self._first()
                except GatewayError as error:
                    failure = error
                finally:
                    self.waiting.discard(scope)
            left = watcher.done()
            watcher.cancel()
        if scope.cancelled_caught and not left:
            raise stopping()
        if failure is not None:
            raise failure
        return counted

    async def _first(self) -> Json:
        targets = [target for target in self.model.targets if target.format.name in self.builders]
        if not targets:
            sentence = f"Nothing can count the tokens for model '{self.model.name}': it has no Claude target."
            raise RequestRefused("no_count", sentence)
        failed: GatewayError | None = None
        with anyio.move_on_after(PATIENCE):
            for target in targets:
                try:
                    return await self._ask(target)
                except RequestRefused as error:  # this target cannot be asked such a thing: another may, else the first reason counts
                    failed = failed or error
                except UpstreamFailed as error:
                    failed = error
                    if error.cause.before_content == "answer":
                        break
            assert failed is not None
            raise failed
        raise UpstreamFailed("upstream_timeout", f"The tokens were not counted within {PATIENCE:g} s.")

    async def _ask(self, target: Target) -> Json:
        provider = target.provider
        outgoing = self.builders[target.format.name](self.request, target)
        body = b""
        async with Exchange(self.transports[provider.name], provider, outgoing, connect=self.model.timeouts.connect) as exchange:
            while len(body) <= LONGEST and (piece := await exchange.read()) is not None:
                body += piece
        try:
            counted = json_text.read(body)
        except json_text.MalformedJson:
            counted = None
        if not isinstance(counted, dict) or not isinstance(counted.get("input_tokens"), int):
            raise UpstreamFailed("malformed", f"Provider {provider.name} gave no number of tokens.", provider=provider.name)
        return counted


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
