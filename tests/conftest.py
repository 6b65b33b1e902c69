"""How many examples hypothesis tries, which event loop the tests run on, and when the slow ones run."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No example database: a run must not depend on what an earlier one found.
settings.register_profile("default", max_examples=2_000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=50)
settings.register_profile("slow", parent=settings.get_profile("default"), max_examples=100_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The loop that the server runs on, so that the tests meet its sockets' behaviour."""
    return "asyncio", {"use_uvloop": True}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("RUN_SLOW") == "1" or config.option.markexpr:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
