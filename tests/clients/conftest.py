"""Node for the tests that want it; and no test asks anybody outside."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.clients import node_run

# LiteLLM would fetch a table of prices while it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.fixture(scope="session")
def node() -> Callable[..., Awaitable[Any]]:
    """`node_run.run`, with the packages installed."""
    node_run.install()
    return node_run.run
