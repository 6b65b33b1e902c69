"""A gateway that has more models than a page of Claude's SDK has by default, some with names that a URL must quote."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gateway.routing import Model, Router
from gateway.wiring import Access, Wiring
from tests.e2e.running import provider, wiring

NAMES = ("default", "team/fast", "größe & 100 %?", *(f"model-{number:02}" for number in range(40)))


def with_models(names: Sequence[str], access: Access | None = None) -> Wiring:
    """Those aliases, and `somewhere/anything`. Nobody is there to answer a chat."""
    wired = wiring(provider("http://127.0.0.1:9", name="somewhere"), access=access)
    target = wired.models["default"].targets[0]
    models = {name: Model(name, (target,)) for name in names}
    return replace(wired, models=models, router=Router(models, {"somewhere": structs.replace(target, model="")}))
