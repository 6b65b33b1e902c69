"""Model names: aliases, provider/model, and the refusal of all else."""

import pytest

from gateway.errors import RequestRefused
from gateway.formats import Decoder, Provider, Target, UpstreamRequest
from gateway.routing import Model, Retry, Router, Timeouts


class Format:
    """Stands where an upstream format goes; routing never calls it."""

    name = "openai"

    def build(self, request: object, target: Target, *, stream_usage: bool = True) -> UpstreamRequest:
        raise NotImplementedError

    def decoder(self, request: object, target: Target, content_type: str = "") -> Decoder:
        raise NotImplementedError


def target(provider: str, model: str = "") -> Target:
    return Target(Provider(provider, f"https://{provider}.example/v1"), Format(), model)


DEFAULT = Model("default", (target("claude", "sonnet"), target("local", "qwen3")), retry=Retry(attempts=5))
SLASHED = Model("claude/special", (target("local", "qwen3"),))
PROVIDERS = {"claude": target("claude"), "local": target("local")}


def router(*models: Model) -> Router:
    return Router({model.name: model for model in models}, PROVIDERS, Timeouts(idle=7.0), Retry(attempts=1))


def refusal(routes: Router, name: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        routes.resolve(name)
    return refused.value


def test_an_alias_gives_its_targets_in_their_order_and_its_own_retry() -> None:
    assert router(DEFAULT, SLASHED).resolve("default") is DEFAULT


def test_an_alias_wins_over_a_provider_of_that_name() -> None:
    assert router(DEFAULT, SLASHED).resolve("claude/special") is SLASHED


def test_a_known_provider_takes_any_model_with_the_global_times_and_tries() -> None:
    model = router(DEFAULT).resolve("claude/opus")
    assert model == Model("claude/opus", (target_of("claude", "opus"),), Timeouts(idle=7.0), Retry(attempts=1))


def target_of(provider: str, model: str) -> Target:
    known = PROVIDERS[provider]
    return Target(known.provider, known.format, model)


def test_only_the_first_slash_divides() -> None:
    assert router(DEFAULT).resolve("local/org/model:7b").targets[0].model == "org/model:7b"


@pytest.mark.parametrize("name", ["gpt", "nobody/gpt", "claude/", "/claude", "claude", "", "/"])
def test_every_other_name_is_unknown_and_the_known_ones_are_listed(name: str) -> None:
    error = refusal(router(DEFAULT, SLASHED), name)
    assert (error.cause.code, error.status) == ("unknown_model", 404)
    assert error.message == (
        f"Model '{name}' is unknown. Known: default, claude/special; and provider/model with the provider claude, local."
    )


def test_the_refusal_stays_short_whatever_was_asked_for_and_configured() -> None:
    many = [Model(f"m{number}", DEFAULT.targets) for number in range(500)]
    message = refusal(router(*many), "x" * 100_000).message
    assert len(message) < 500
    assert "m19 and 480 more" in message


def test_a_providers_model_has_a_name_and_no_text() -> None:
    assert router().resolve("local/" + "m" * 250).targets[0].model == "m" * 250
    assert refusal(router(), "local/" + "m" * 251).cause.code == "unknown_model"


def test_a_gateway_without_aliases_says_so() -> None:
    assert "Known: none;" in refusal(router(), "default").message


def test_names_are_the_aliases_in_their_order() -> None:
    assert router(SLASHED, DEFAULT).names() == ("claude/special", "default")


def test_a_caller_with_models_of_its_own_sees_nothing_else() -> None:
    only = router(DEFAULT, Model("fast", DEFAULT.targets), SLASHED).only({"fast", "gone"})
    assert only.names() == ("fast",)
    assert only.resolve("fast").name == "fast"
    for name in ("default", "claude/special", "claude/anything"):
        assert refusal(only, name).message == f"Model '{name}' is unknown. Known: fast."
