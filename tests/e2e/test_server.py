"""The listening socket, and what is overridden of uvicorn."""

import inspect
import re
import socket
from dataclasses import replace

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.cycle import Cycle
from gateway.protocol import Protocol, _Writing
from gateway.server import Server, bind
from gateway.wiring import Wiring
from tests.e2e.running import provider, wiring


def on_a_free_port() -> Wiring:
    wired = wiring(provider("http://127.0.0.1:9"))
    return replace(wired, server=replace(wired.server, port=0))


def test_listening_socket_lets_a_vanished_client_go() -> None:
    wired = on_a_free_port()
    with bind(wired) as listener:
        patience = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert patience == wired.server.tcp_user_timeout * 1000
    assert patience > wired.timeouts.write * 1000


def test_taken_port_is_an_error_of_the_system() -> None:
    wired = on_a_free_port()
    with bind(wired) as first, pytest.raises(OSError, match="in use"):
        bind(replace(wired, server=replace(wired.server, port=first.getsockname()[1])))


OVERRIDDEN = [
    *("connection_made", "connection_lost", "eof_received", "data_received", "shutdown", "timeout_keep_alive_handler"),
    *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete", "on_response_complete"),
    *("_start_asgi_task", "_unset_keepalive_if_required", "send_400_response"),
]


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_protocol_overrides_what_uvicorn_calls(name: str) -> None:
    """Not public: a release without one of them would silently undo what the class is for."""
    assert name in vars(HttpToolsProtocol)
    assert list(inspect.signature(getattr(Protocol, name)).parameters) == list(
        inspect.signature(getattr(HttpToolsProtocol, name)).parameters
    )


def test_cycle_overrides_what_uvicorn_calls() -> None:
    assert list(inspect.signature(Cycle.send).parameters) == list(inspect.signature(vars(RequestResponseCycle)["send"]).parameters)


def test_uvicorn_still_has_what_is_used_of_it() -> None:
    made = inspect.getsource(HttpToolsProtocol.__init__) + inspect.getsource(HttpToolsProtocol.connection_made)
    assert all(f"self.{name}" in made for name in ("pipeline", "flow", "scope", "transport", "timeout_keep_alive_task"))
    assert all(f"self.{name}" in inspect.getsource(HttpToolsProtocol.on_message_begin) for name in ("url", "headers"))
    made = inspect.getsource(RequestResponseCycle.__init__)
    used = {
        *("scope", "transport", "flow", "default_headers", "message_event", "on_response", "disconnected", "keep_alive", "more_body"),
        *("waiting_for_100_continue", "response_started", "response_complete", "chunked_encoding", "expected_content_length"),
    }
    assert used <= set(re.findall(r"self\.(\w+)(?:: [^=]+)? = ", made))
    of_transport = set(re.findall(r"self\.transport\.(\w+)", inspect.getsource(RequestResponseCycle)))
    assert of_transport == set(_Writing.__slots__)


@pytest.mark.parametrize("name", ["handle_exit", "on_tick"])
def test_server_overrides_what_uvicorn_calls(name: str) -> None:
    assert name in vars(Server)
    assert name in vars(uvicorn.Server)


def test_patch_of_sse_starlette_leaves_our_signals_alone() -> None:
    import sse_starlette  # noqa: F401  # patches uvicorn.Server.handle_exit

    assert Server.handle_exit.__module__ == "gateway.server"
