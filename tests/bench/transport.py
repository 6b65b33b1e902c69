"""What the transport costs beside httpx's own, in CPU time of this process: `python -m tests.bench.transport`.

The provider is another process. A read is 10 events, a chunk each, that arrive together; a short request is answered by one read.
"""

import asyncio
import multiprocessing
import socket
import statistics
import time
from multiprocessing.connection import Connection

import httpx
import uvloop

from gateway.http1 import Http1Transport

READS = 1_000
REQUESTS = 500
ROUNDS = 5
EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word"}}\n\n'
READ = b"%x\r\n%b\r\n" % (len(EVENT), EVENT) * 10
ASKED = b'{"messages":[]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def provide(told: Connection) -> None:
    """One connection at a time. `/stream` sends a read each half millisecond, anything else is answered at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told.send(listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := connection.recv(65536):
                while not request.endswith(ASKED):  # httpx sends head and body apart
                    request += connection.recv(65536)
                if not request.startswith(b"POST /stream"):
                    connection.sendall(HEAD + READ + END)
                    continue
                connection.sendall(HEAD)
                for _ in range(READS):
                    time.sleep(0.0005)
                    connection.sendall(READ)
                connection.sendall(END)
            connection.close()


async def exchange(transport: httpx.AsyncBaseTransport, url: str) -> int:
    """Bytes of the body, read as `gateway/upstream.py` reads it."""
    request = httpx.Request("POST", url, headers={"authorization": "Bearer key"}, content=ASKED)
    response = await transport.handle_async_request(request)
    assert isinstance(response.stream, httpx.AsyncByteStream)
    size = 0
    async for piece in response.stream:
        size += len(piece)
    await response.stream.aclose()
    return size


async def measured(make: type[httpx.AsyncBaseTransport], base: str) -> tuple[float, float]:
    """Microseconds per read and per short request."""
    async with make() as transport:
        await exchange(transport, f"{base}/short")
        began = time.process_time()
        assert await exchange(transport, f"{base}/stream") == READS * 10 * len(EVENT)
        streamed = time.process_time() - began
        began = time.process_time()
        for _ in range(REQUESTS):
            assert await exchange(transport, f"{base}/short") == 10 * len(EVENT)
        return streamed / READS * 1e6, (time.process_time() - began) / REQUESTS * 1e6


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    provider = multiprocessing.Process(target=provide, args=(theirs,), daemon=True)
    provider.start()
    base = f"http://127.0.0.1:{ours.recv()}"
    kinds: list[type[httpx.AsyncBaseTransport]] = [Http1Transport, httpx.AsyncHTTPTransport]
    try:
        for loop, factory in (("uvloop", uvloop.new_event_loop), ("asyncio", asyncio.new_event_loop)):
            results: dict[str, list[tuple[float, float]]] = {kind.__name__: [] for kind in kinds}
            with asyncio.Runner(loop_factory=factory) as runner:
                for _ in range(ROUNDS):  # interleaved, so that a busy machine slows all alike
                    for kind in kinds:
                        results[kind.__name__].append(runner.run(measured(kind, base)))
            for name, rounds in results.items():
                read, request = (statistics.median(column) for column in zip(*rounds, strict=True))
                print(f"{loop:8} {name:20} {read:7.1f} µs per read of 10 events {request:8.1f} µs per short request")
    finally:
        provider.terminate()


if __name__ == "__main__":
    main()
