"""A Claude for the container tests: a word every 50 ms until whoever asked leaves; says on stdout when that was.

Standard library only, since it runs in the gateway's image as a service of its own.
"""

import asyncio
import json
import time
from typing import Any

PORT = 9000
WORD = 0.05  # seconds


def frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "endless", "content": []}
NOT_YET = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
START = frame({"type": "message_start", "message": {**MESSAGE, **NOT_YET}})
BLOCK = frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
DELTA = frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}})


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()  # the health check
        return
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.partition(b":")[2]))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + START + BLOCK)
    gone = asyncio.ensure_future(reader.read(1))  # noqa: TID251  # its end is what this program waits for
    while not gone.done():
        writer.write(DELTA)
        await asyncio.wait({gone}, timeout=WORD)
    print(f"left {time.time():.4f}", flush=True)
    writer.close()


async def main() -> None:
    async with await asyncio.start_server(answer, "0.0.0.0", PORT) as server:
        print("listening", flush=True)
        await server.serve_forever()


asyncio.run(main())
