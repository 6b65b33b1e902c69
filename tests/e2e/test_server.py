"""The listening socket, and what is overridden of uvicorn."""

import inspect
import re
import socket
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

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


def said(*functions: Any, of: str = "self") -> set[str]:
    """The attributes that they name of it."""
    return set(re.findall(rf"\b{of}\.(\w+)", "".join(inspect.getsource(function) for function in functions)))


def test_uvicorn_still_has_what_is_used_of_it() -> None:
    ours = set(vars(Protocol)) | said(Protocol.__init__, Protocol.connection_made, Protocol.on_message_begin)
    made = said(HttpToolsProtocol.__init__, HttpToolsProtocol.connection_made)
    assert said(Protocol, of="super()") | (said(Protocol) - ours) | {"transport"} <= made | set(vars(HttpToolsProtocol))
    assert said(HttpToolsProtocol.on_url) | said(HttpToolsProtocol.on_header) <= said(Protocol.on_message_begin)
    assert {"total_requests", "default_headers", "tasks", "connections"} <= said(ServerState)
    assert {"write_paused", "drain", "pause_reading", "resume_reading"} <= said(FlowControl) | set(vars(FlowControl))


def test_cycle_is_all_that_uvicorn_makes_of_one() -> None:
    uvicorns = vars(RequestResponseCycle)
    assert list(inspect.signature(Cycle.send).parameters) == list(inspect.signature(uvicorns["send"]).parameters)
    inherited = [function for name, function in uvicorns.items() if inspect.isfunction(function) and name not in vars(Cycle)]
    assert {function.__name__ for function in inherited} == {"run_asgi", "send_500_response", "receive"}
    assert said(*inherited) <= said(Cycle.__init__) | set(vars(Cycle)) | set(uvicorns)
    assert said(HttpToolsProtocol, of="cycle") - {"run_asgi"} <= said(Cycle.__init__)
    assert said(Cycle.__init__) - {"_head", "_on_leaving"} <= said(uvicorns["__init__"])
    assert said(RequestResponseCycle, of="transport") == set(_Writing.__slots__)


@pytest.mark.parametrize("name", ["handle_exit", "on_tick"])
def test_server_overrides_what_uvicorn_calls(name: str) -> None:
    assert name in vars(Server)
    assert name in vars(uvicorn.Server)


def test_patch_of_sse_starlette_leaves_our_signals_alone() -> None:
    import sse_starlette  # noqa: F401  # patches uvicorn.Server.handle_exit

    assert Server.handle_exit.__module__ == "gateway.server"
