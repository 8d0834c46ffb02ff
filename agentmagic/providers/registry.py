"""Which providers there are, which model a name means, and what its tokens cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from agentmagic import settings
from agentmagic.errors import MissingExtra, UnknownModel
from agentmagic.messages import Usage
from agentmagic.providers.base import Model

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as PriceModel
    from genai_prices.types import Provider as PriceProvider

FREE = ""
"""In place of a price table's id: what the provider makes costs nothing."""

ENTRY_POINTS = "agentmagic.providers"
"""The entry point group of other people's providers: each names a function `make(model) -> Model`."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One row of the registry.

    `make` is "module:function", called with what follows the colon of a model's name. `default` is the
    model taken where none is named. `keys` are the environment variables that hold its key, `package` the
    module it stands on and `extra` the extra that installs that. `prices` is the provider's id in the price
    table; FREE means that its tokens cost nothing, None that nobody knows.
    """

    name: str
    make: str
    about: str
    default: str = ""
    keys: tuple[str, ...] = ()
    package: str = ""
    extra: str = ""
    prices: str | None = None


_OURS = (
    Provider(
        "openai",
        "agentmagic.providers.openai_responses:make",
        "OpenAI (Responses)",
        "gpt-5.4",
        ("OPENAI_API_KEY",),
        "openai",
        "openai",
        "openai",
    ),
    Provider(
        "openai-chat",
        "agentmagic.providers.openai_chat:make",
        "OpenAI Chat Completions, and any server that speaks it (OPENAI_BASE_URL)",
        "gpt-5.4",
        ("OPENAI_API_KEY",),
        "openai",
        "openai",
        "openai",
    ),
    Provider(
        "gemini",
        "agentmagic.providers.gemini:make",
        "Google Gemini",
        "gemini-3.5-flash",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google.genai",
        "gemini",
        "google",
    ),
    Provider(
        "local",
        "agentmagic.providers.local:make",
        "a small model on this machine, no key (1.1 GB, fetched once)",
        "qwen2.5-coder-1.5b",
        package="xllamacpp",
        extra="local",
        prices=FREE,
    ),
    Provider("scripted", "agentmagic.providers.scripted:make", "plays a script, for lessons and tests", prices=FREE),
)


@cache
def providers() -> Mapping[str, Provider]:
    """Return every provider by name, those of other packages after ours; ours cannot be replaced."""
    others = {
        point.name: Provider(point.name, point.value, f"from {point.module}")
        for point in entry_points(group=ENTRY_POINTS)
    }
    return {row.name: row for row in _OURS} | {name: row for name, row in others.items() if name not in _NAMES}


_NAMES = frozenset(row.name for row in _OURS)


def resolve(name: str) -> Model:
    """Make the model that a "provider:model" name means.

    Raises UnknownModel, or MissingExtra where the provider's package is not installed.
    """
    provider, colon, model = name.strip().partition(":")
    row = providers().get(provider)
    if row is None or not colon:
        raise UnknownModel(_no_such(name))
    module, _, function = row.make.partition(":")
    try:
        if row.package and find_spec(row.package) is None:
            raise MissingExtra(f"{provider}: ({row.about})", row.extra)
        make = cast("Callable[[str], Model]", getattr(import_module(module), function))
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{provider}: ({row.about})", row.extra or "all") from error
    return make(model or row.default)


def _no_such(name: str) -> str:
    provider = name.partition(":")[0]
    known = providers()
    if name in known:
        return f"{name!r} names a provider but no model. Write {name}:{known[name].default or 'MODEL'}."
    close = get_close_matches(provider, known, n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]}:?" if close and close[0] != provider else ""
    return f"No provider answers to {name!r}.{hint} Write provider:model with one of {', '.join(known)}."


def default_model() -> str | None:
    """Return the model to use where nobody chose one: that of the first provider whose key is set, or None."""
    for row in providers().values():
        if row.keys and settings.find_key(row.keys):
            return f"{row.name}:{row.default}"
    return None


def priced(name: str, usage: Usage) -> Usage:
    """Fill in what a model's tokens cost; None where neither we nor the price table know the model.

    Prices come from the `genai-prices` package.
    """
    provider, _, model = name.partition(":")
    row = providers().get(provider)
    if row is None or row.prices is None:
        return replace(usage, cost=None)
    return usage if row.prices == FREE else replace(usage, cost=_cost(row.prices, model, usage))


def _cost(prices: str, model: str, usage: Usage) -> float | None:
    from genai_prices import Usage as Tokens

    found = _price_list(prices, model)
    if found is None:
        return None
    provider, row = found
    tokens = Tokens(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        return float(row.calc_price(tokens, provider).total_price)
    except ValueError:
        return None


@cache
def _price_list(prices: str, model: str) -> "tuple[PriceProvider, PriceModel] | None":
    """Find a model in the price table, once: its names are matched one by one, which takes a millisecond."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, prices, None)
    except LookupError:
        return None
