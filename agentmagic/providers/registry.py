"""Which providers there are, which model a name means, what it can do, and what its tokens cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import cast

from agentmagic import secrets, settings
from agentmagic.errors import AuthenticationMissing, MissingExtra, UnknownModel
from agentmagic.messages import Usage
from agentmagic.providers import catalog
from agentmagic.providers.base import Hosted, Model
from agentmagic.providers.catalog import Kind, Listing, ModelInfo, register_model

__all__ = [
    "ENTRY_POINTS",
    "FREE",
    "ModelInfo",
    "Provider",
    "choose_default",
    "default_model",
    "info",
    "priced",
    "providers",
    "register_model",
    "resolve",
    "usable_models",
]

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
    table; FREE means that its tokens cost nothing, None that nobody knows. `base_url` is the environment
    variable that puts another server in its place.
    """

    name: str
    make: str
    about: str
    default: str = ""
    keys: tuple[str, ...] = ()
    package: str = ""
    extra: str = ""
    prices: str | None = None
    base_url: str = ""


_OURS = (
    Provider(
        "openai",
        "agentmagic.providers.openai.responses:make",
        "OpenAI (Responses)",
        "gpt-5.4",
        ("OPENAI_API_KEY",),
        "openai",
        "openai",
        "openai",
        "OPENAI_BASE_URL",
    ),
    Provider(
        "openai-chat",
        "agentmagic.providers.openai.chat_completions:make",
        "OpenAI Chat Completions, and any server that speaks it (OPENAI_BASE_URL)",
        "gpt-5.4",
        ("OPENAI_API_KEY",),
        "openai",
        "openai",
        "openai",
        "OPENAI_BASE_URL",
    ),
    Provider(
        "gemini",
        "agentmagic.providers.gemini.gemini_model:make",
        "Google Gemini",
        "gemini-3.5-flash",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "google.genai",
        "gemini",
        "google",
        "GOOGLE_GEMINI_BASE_URL",
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
secrets.register_names(key for row in _OURS for key in row.keys)


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


def choose_default() -> str:
    """Return the default model. Raises AuthenticationMissing, with the keys to set, if no provider's key is set."""
    if (name := default_model()) is not None:
        return name
    keyed = [row.keys for row in providers().values() if row.keys]
    message = (
        f"No model is chosen and no key is set. Set {' or '.join(dict.fromkeys(keys[0] for keys in keyed))}, or choose "
        'the small model of this machine, which needs no key: "local:".'
    )
    raise AuthenticationMissing(message, tuple(dict.fromkeys(key for keys in keyed for key in keys)))


def usable_models() -> list[str]:
    """Return the default model of every provider that is installed and whose key, if it needs one, is set."""
    return [f"{row.name}:{row.default}" for row in providers().values() if row.default and _is_usable(row)]


def _is_usable(row: Provider) -> bool:
    try:
        installed = not row.package or find_spec(row.package) is not None
    except ModuleNotFoundError:  # of the package above it
        return False
    return installed and (not row.keys or settings.find_key(row.keys) is not None)


def address_of(model: Model) -> str | None:
    """Return the address a model was made for, where it has one."""
    return model.base_url if isinstance(model, Hosted) else None


def info(name: str, base_url: str | None = None) -> ModelInfo:
    """Return what is known of a model, with safe guesses for what is not; cheap from the second call on.

    `base_url` is the server the model was made for, where that is not the one the environment names.
    A script has no window and takes everything, a local model takes text.
    """
    provider, _, model = name.partition(":")
    told, listing = catalog.registered(name), _listing(name, base_url)
    takes: frozenset[Kind] = frozenset(
        kind for kind in catalog.KINDS if told.takes.get(kind, kind in _takes(provider, model))
    )
    known = bool(told.prices or _is_free(provider) or (listing and listing.price))
    return ModelInfo(name, told.window or _window(provider, model, listing), takes, known)


def priced(name: str, usage: Usage, base_url: str | None = None) -> Usage:
    """Fill in what a model's tokens cost; None where that is unknown.

    A registered price counts first. The price table comes second, and knows a seller by its address: on a
    server that it does not know nothing has a price, whatever its models are called. `base_url` is as in `info`.
    """
    told = catalog.registered(name).price
    if told is None and _is_free(name.partition(":")[0]):
        return usage
    listing = _listing(name, base_url)
    price = told or (listing.price if listing else None)
    return replace(usage, cost=catalog.cost(price, usage) if price else None)


def _listing(name: str, base_url: str | None) -> Listing | None:
    """Say where the price table would have a model; None where its provider is not in it."""
    provider, _, model = name.partition(":")
    row = providers().get(provider)
    if row is None or not row.prices:
        return None
    if row.prices == "google":
        model = model.rpartition("models/")[2]  # Vertex AI names a model by its whole path
    url = (base_url or settings.variable(row.base_url) or "").strip()
    return Listing(model, url=url) if url else Listing(model, seller=row.prices)


def _is_free(provider: str) -> bool:
    row = providers().get(provider)
    return row is not None and row.prices == FREE


def _takes(provider: str, model: str) -> frozenset[Kind]:
    match provider:
        case "scripted":
            return catalog.KINDS
        case "local":
            return frozenset()
        case _:
            return catalog.family(model).takes


def _window(provider: str, model: str, listing: Listing | None) -> int | None:
    match provider:
        case "scripted":
            return None
        case "local":
            from agentmagic.providers.local.runtime import CONTEXT

            return CONTEXT
        case _:
            return catalog.window(model, listing)
