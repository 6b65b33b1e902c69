"""Waiting for what gives no sign: tasks that are gone, descriptors that are closed, tables of the kernel."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], what: str | Callable[[], str], deadline: float = 5.0) -> None:
    """Polls. `TimeoutError` says `what` has not come in `deadline` seconds; a function is asked for it then."""
    try:
        async with asyncio.timeout(deadline):
            while not holds():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise TimeoutError(f"{what if isinstance(what, str) else what()}: not within {deadline:g} s") from None
