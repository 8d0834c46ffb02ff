"""The table of all providers. Finds the model for a name, the facts about the model, and the cost of its tokens."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import cast

from agentmagic import secrets, settings
from agentmagic.classroom import class_settings
from agentmagic.errors import AuthenticationMissing, MissingExtra, UnknownModel
from agentmagic.messages import Usage
from agentmagic.patterns import lower_host
from agentmagic.providers import anthropic, catalog, gemini, local, ollama, openai, outside, scripted
from agentmagic.providers.base import FREE, KINDS, Family, Hosted, Kind, Metered, Model, Provider
from agentmagic.providers.catalog import Listing, ModelInfo, register_model
from agentmagic.runtime.engine import in_thread
from agentmagic.text import did_you_mean

__all__ = [
    "ENTRY_POINTS",
    "FREE",
    "ModelInfo",
    "Provider",
    "check_address",
    "choose_default",
    "default_model",
    "full_name",
    "info",
    "model_sentence",
    "preload",
    "priced",
    "providers",
    "register_model",
    "resolve",
    "usable_models",
    "usage_with_cost",
]

ENTRY_POINTS = "agentmagic.providers"
"""The entry point group for providers of other packages: each names a function `make(model) -> Model`."""

# The providers of this package, in the order in which a default model is chosen.
_OURS: tuple[Provider, ...] = (
    *openai.PROVIDERS,
    *gemini.PROVIDERS,
    *anthropic.PROVIDERS,
    *ollama.PROVIDERS,
    *local.PROVIDERS,
    *outside.PROVIDERS,
    *scripted.PROVIDERS,
)
_IN_PROCESS = frozenset(row.make.partition(":")[0] for row in (*local.PROVIDERS, *scripted.PROVIDERS))
"""The modules whose models run in this process."""
_NAMES = frozenset(row.name for row in _OURS)
_FAMILIES = (*(family for row in _OURS for family in row.families), *catalog.OPEN_FAMILIES)
secrets.register_names(key for row in _OURS for key in row.keys)


@cache
def providers() -> Mapping[str, Provider]:
    """Return all providers by name. A provider of another package cannot replace a provider of this package."""
    others = {
        point.name: Provider(name=point.name, make=point.value, about=f"from {point.module}")
        for point in entry_points(group=ENTRY_POINTS)
    }
    return {row.name: row for row in _OURS} | {name: row for name, row in others.items() if name not in _NAMES}


def resolve(name: str) -> Model:
    """Return a new model for a "provider:model" name.

    Raises UnknownModel, or MissingExtra if the provider's package is not installed.
    """
    provider, colon, model = name.strip().partition(":")
    row = providers().get(provider)
    if row is None or not colon:
        raise UnknownModel(_no_such(name))
    # Imported only now, because most sessions use one provider only.
    module, _, function = row.make.partition(":")
    try:
        if row.package and find_spec(row.package) is None:  # `find_spec` does not import it: that takes a second
            raise MissingExtra(f"The provider {provider}:", row.extra)
        make = cast("Callable[[str], Model]", getattr(import_module(module), function))
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The provider {provider}:", row.extra or "all") from error
    return make(model or row.default)


def _no_such(name: str) -> str:
    provider = name.partition(":")[0]
    by_name = providers()
    if name in by_name:
        return f"{name!r} names a provider but no model. Write {name}:{by_name[name].default or 'MODEL'}."
    hint = did_you_mean(provider, [one for one in by_name if one != provider], form="{}:")
    if maker := next((row.name for row in by_name.values() for one in row.families if one.names.match(name)), None):
        hint = f" Did you mean {maker}:{name}?"
    elif name in outside.NAMES:
        hint = f" Did you mean {outside.PREFIX}{name}?"
    return f"No provider answers to {name!r}.{hint} Write provider:model with one of {', '.join(by_name)}."


def default_model() -> str | None:
    """Return the name of the model to use if the user chose none, or None if no provider's API key is set.

    This is usually the default model of the first provider whose key is set. But a teacher or administrator can limit
    the models. The models that these limits list by full name come first, in their order, if their provider's key is
    set or it needs no key. A model that is not allowed comes last, and its key is not looked up in the keyring.
    """
    usual = [(f"{row.name}:{row.default}", row) for row in providers().values() if row.keys]
    allowed_models = [(name, row) for name, row in usual if class_settings().allows_model(name)]
    for name, row in (*_class_models(), *allowed_models):
        if not row.keys or settings.find_key(row.keys):
            return name
    return next((name for name, row in usual if settings.find_key(row.keys, keyring=False)), None)


def choose_default() -> str:
    """Return the default model. Raises AuthenticationMissing, with the keys to set, if no provider's key is set."""
    if (name := default_model()) is not None:
        return name
    variables = [row.keys for row in providers().values() if row.keys]
    message = (
        f"No model is chosen and no key is set. Set {' or '.join(dict.fromkeys(keys[0] for keys in variables))} in the "
        "environment or a .env file. Or use the small model of this machine, which needs no key: %agent models local: "
        '(Agent("local:") in code).'
    )
    raise AuthenticationMissing(message, tuple(dict.fromkeys(key for keys in variables for key in keys)))


def model_sentence(name: str, first: str) -> str:
    """Return a sentence about a model: whether it can answer, and where its key comes from.

    `name` is "" if the user chose no model. If no key is set, the sentence says that the user's first input will show
    the ways to get a model; `first` is the word for that input, such as "message". The keyring is read only if the key
    is in no other place.
    """
    name = name or default_model() or ""
    if not name:
        return f"No key was found: the first {first} offers what there is."
    row, name = providers().get(name.partition(":")[0]), full_name(name)
    if row is None or not row.keys:
        return f"{name} answers."
    if source := settings.find_key_with_place(row.keys):
        return f"{name} answers; its key is from {source[1]}."
    return f"{name} has no key yet: the first {first} asks for {row.keys[0]}."


def full_name(name: str) -> str:
    """Return the full name of a model: "local:" alone stands for the default model of that provider."""
    row = providers().get(name.partition(":")[0])
    return name + (row.default if row and name.endswith(":") else "")


def usable_models() -> list[str]:
    """Return the names of the models that the user can choose now.

    These are the models that the limits of a teacher or administrator list by full name, the default models, and the
    models on a local server such as Ollama. The provider's package must be installed, and its key set if it needs one.
    Models that these limits do not allow are left out.
    """
    rows, allows = providers().values(), class_settings().allows_model
    usual = [(f"{row.name}:{row.default}", row) for row in rows if row.default and allows(f"{row.name}:{row.default}")]
    names = [name for name, row in (*_class_models(), *usual) if _is_usable(row)]
    installed_names = [
        f"{row.name}:{name}" for row in rows if row.installed and _is_usable(row) for name in row.installed()
    ]
    return list(dict.fromkeys(names + list(filter(allows, installed_names))))


def _class_models() -> list[tuple[str, Provider]]:
    """Return the models that a teacher or administrator lists by full name (without "*"), each with its provider."""
    bounds, rows = class_settings(), providers()
    names = (name for name in bounds.models or () if "*" not in name and bounds.allows_model(name))
    return [(name, row) for name in names if (row := rows.get(name.partition(":")[0])) is not None]


def preload() -> None:
    """Import the SDK of each provider whose key is set, in the background, so that the first turn does not wait."""
    in_thread(_import_sdks, "agentmagic-preload")


def _import_sdks() -> None:
    for row in _OURS:
        if row.package and row.keys and settings.find_key(row.keys, keyring=False):
            with suppress(ImportError):  # the SDK is not installed: the first turn reports that
                import_module(row.package)


def _is_usable(row: Provider) -> bool:
    try:
        is_installed = not row.package or find_spec(row.package) is not None
    except ModuleNotFoundError:  # `find_spec("google.genai")` raises it if "google" is missing
        return False
    return is_installed and (not row.keys or settings.find_key(row.keys) is not None)


def is_made_by_provider(model: Model) -> bool:
    """Return whether a model object comes from the provider that its name claims, and not from another package."""
    row, module = providers().get(model.name.partition(":")[0]), type(model).__module__
    home = row.make.partition(":")[0] if row is not None else ""
    if home.startswith("agentmagic."):
        return module == home
    return home != "" and module.partition(".")[0] == home.partition(".")[0]


def address_of(model: Model) -> str | None:
    """Return the address that a model sends its requests to, or None if it has no address."""
    return model.base_url if isinstance(model, Hosted) else None


def check_address(model: Model) -> None:
    """Raise UsageError if the limits of a teacher or administrator do not allow the address of a model.

    A model that runs in this process has no address, so it is always allowed.
    """
    if type(model).__module__ not in _IN_PROCESS:
        where: str | None = getattr(model, "reached_at", None) or address_of(model)
        class_settings().check_address(model.name, where)


def info(name: str, base_url: str | None = None) -> ModelInfo:
    """Return the facts about a model, such as its context window, with safe guesses for unknown facts.

    Only the first call is slow. `base_url` is the address of the model's server, if it is not the one in the provider's
    environment variable.
    """
    provider, _, model = name.partition(":")
    row, listing, facts = providers().get(provider), _listing(name, base_url), catalog.registered_facts(name)
    family = (row and row.all_models) or _family(model)
    takes: frozenset[Kind] = frozenset(kind for kind in KINDS if facts.takes.get(kind, kind in family.takes))
    free = row is not None and row.prices == FREE
    has_price = free or bool(facts.prices or (listing and listing.price))
    window = facts.window or catalog.window(model, family, listing)
    return ModelInfo(name, window, takes, has_price, min(family.output, window or family.output))


def _family(model: str) -> Family:
    """Return the `Family` (models with common facts) to which a model belongs.

    The provider does not matter, because the server of any provider can run a model.
    """
    name = catalog.plain(model)
    return next((family for family in _FAMILIES if family.names.match(name)), catalog.UNKNOWN)


def priced(name: str, usage: Usage, base_url: str | None = None) -> Usage:
    """Return the usage with the cost of its tokens and searches; the cost is None if a price is unknown.

    `base_url` is as in `info`. A price set by an administrator counts first, then a price from `register_model`, then
    the price table. But if a teacher limits costs, the price table counts before `register_model`; if an administrator
    limits costs, prices from `register_model` do not count. The table identifies a seller by its address, so a model on
    any other server has no price there.
    """
    row, price, bounds = providers().get(name.partition(":")[0]), catalog.registered_facts(name).price, class_settings()
    if price is None and row is not None and row.prices == FREE:
        return usage
    is_open = price is None or (bounds.bounds_costs and bounds.price(name) is None)
    if is_open and (listing := _listing(name, base_url)):
        price = listing.price or price
    tokens, fees = catalog.cost(price, usage) if price else None, search_fees(name, usage, base_url)
    return replace(usage, cost=None if tokens is None or fees is None else tokens + fees)


def search_fees(name: str, usage: Usage, base_url: str | None = None) -> float | None:
    """Return the cost of a request's searches in US dollars, or None if their price is unknown; 0 without searches."""
    if not usage.searches:
        return 0.0
    fee = listing.search_fee if (listing := _listing(name, base_url)) else None
    return None if fee is None else fee * usage.searches


def is_free(name: str) -> bool:
    """Return whether the tokens of a model cost nothing, as for a model that runs on this machine."""
    row = providers().get(name.partition(":")[0])
    return row is not None and row.prices == FREE


def usage_with_cost(model: Model, usage: Usage) -> Usage:
    """Return the usage of one request with its cost, which the model itself computes if it is `Metered`."""
    usage = replace(usage, requests=1)
    return model.price_usage(usage) if isinstance(model, Metered) else priced(model.name, usage, address_of(model))


def _listing(name: str, base_url: str | None) -> Listing | None:
    """Return the key of a model in the price table, or None if its provider is not in the table."""
    provider, _, model = name.partition(":")
    row = providers().get(provider)
    if row is None or not row.prices:
        return None
    if row.prices == "google":
        model = model.rpartition("models/")[2]  # a name on Vertex AI is "publishers/google/models/NAME"
    url = lower_host((base_url or settings.variable(row.base_url) or "").strip())
    return Listing(model, url=url) if url else Listing(model, seller=row.prices)
