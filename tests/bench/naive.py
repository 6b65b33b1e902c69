"""What people write first, for comparison: FastAPI's StreamingResponse, one shared httpx client, `aiter_lines`, one yield per event.

Runs under uvicorn with its defaults, which are uvloop and httptools.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

client = httpx.AsyncClient(base_url=os.environ.get("UPSTREAM", ""), timeout=None, limits=httpx.Limits(max_connections=None))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with client:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/{path:path}")
async def chat(path: str, request: Request) -> StreamingResponse:
    body = await request.json()

    async def events() -> AsyncIterator[str]:
        async with client.stream("POST", f"/{path}", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    yield f"data: {json.dumps(event)}\n\n"  # noqa: ASYNC119  # that it closes late is part of being naive

    return StreamingResponse(events(), media_type="text/event-stream")
