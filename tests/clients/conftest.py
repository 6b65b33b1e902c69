"""Node for the tests that want it."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.clients import node_run


@pytest.fixture(scope="session")
def node() -> Callable[..., Awaitable[Any]]:
    """`node_run.run`, with the packages installed."""
    node_run.install()
    return node_run.run
