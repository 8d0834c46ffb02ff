"""Facts about models: the size of their context window, the media that they read, and the price of their tokens.

Context windows and prices come from the price table in the `genai-prices` package, which works offline. The media that
a model reads come from its `Family`, a group of models that the provider's module in agentmagic describes.
`register_model` corrects and adds facts.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from agentmagic.classroom import class_settings
from agentmagic.errors import UsageError
from agentmagic.messages import Media, Usage
from agentmagic.providers.base import LONGEST_OUTPUT, Family, Kind

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as Row
    from genai_prices.types import ModelPrice
    from genai_prices.types import Provider as Seller

# Open models that read images. Any server can run them, so they belong to no provider.
OPEN_FAMILIES = (Family(re.compile(r"gemma-?[3-9]|.*(vl\b|vision|llava|pixtral)"), frozenset(("images",))),)
UNKNOWN = Family(re.compile(""))

CACHE_WRITES = ("1.25", "2")
"""The price of a token that is written to a cache for 5 minutes and for an hour, as a multiple of the input price.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching; the price table agrees, and has 1.25 for OpenAI.
"""

SEARCH_FEES: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("anthropic", re.compile(""), 0.010),
    ("openai", re.compile(r"(?:.*/)?gpt-.*-search-preview"), 0.025),
    ("openai", re.compile(""), 0.010),
    ("google", re.compile(r"(?:.*/)?gemini-[12]\b"), 0.035),
    ("google", re.compile(""), 0.014),
)
"""The price of one web search in US dollars, by seller and model. Fetched pages cost only their tokens.

https://platform.claude.com/docs/en/about-claude/pricing and https://developers.openai.com/api/docs/pricing, which has
another price for the preview of models that do not reason. For https://ai.google.dev/gemini-api/docs/pricing this is
the price after the free searches of a day or month. Answers do not say which searches were free, so the cost is an
upper bound.
"""

# Maps the part of a media type before the slash to the kind of media. `_kind` handles PDF, which is not in this table.
_BY_TYPE: Mapping[str, Kind] = {"image": "images", "audio": "audio", "video": "video", "text": "documents"}

_PATH = re.compile(r"^.*/")
_TUNED = re.compile(r"^ft:")
_TAG = re.compile(r"[:@].*$")
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about one model.

    `window` is the most tokens that a prompt can have, or None for no limit. `takes` are the media that the model reads
    in addition to text. `priced` says whether the price of its tokens is known. `output` is the most tokens that one
    answer can have.
    """

    name: str
    window: int | None
    takes: frozenset[Kind]
    priced: bool
    output: int = LONGEST_OUTPUT

    def accepts(self, media: Media) -> bool:
        """Return whether the model reads media of this type. In requests, a line of text replaces all other media."""
        kind = _kind(media.media_type)
        return kind is not None and kind in self.takes


def _kind(media_type: str) -> Kind | None:
    whole = media_type.lower().partition(";")[0].strip()
    return "documents" if whole == "application/pdf" else _BY_TYPE.get(whole.partition("/")[0])


def plain(model: str) -> str:
    """Return the name that a model has at its maker: "gpt-5.4" for "openai/gpt-5.4:free", for example.

    Folders such as "models/", the mark "ft:" of a fine-tuned model, and everything after a ":" or "@" are removed.
    """
    return _TAG.sub("", _TUNED.sub("", _PATH.sub("", model.lower())))


@dataclass(frozen=True, slots=True)
class Listing:
    """The key of a model in the price table: its name, and the seller's id or the address of the seller's server."""

    model: str
    seller: str | None = None
    url: str | None = None

    @property
    def window(self) -> int | None:
        """The context window in tokens, as the price table lists it. For some models it includes the answer."""
        row = _row(self)
        return row.context_window if row else None

    @property
    def price(self) -> "ModelPrice | None":
        """Today's price of the model's tokens, or None if the model is not in the table or not sold by tokens."""
        row = _row(self)
        price = row.get_prices(datetime.now(UTC)) if row else None
        if price is None or (price.__dict__ and (price.input_mtok is None or price.output_mtok is None)):
            return None
        return price  # a row of the price table without any numbers means that the model is free

    @property
    def search_fee(self) -> float | None:
        """The price of one web search in US dollars, or None if it is unknown."""
        match = _find(self)
        seller = self.seller or (match[0].id if match else "")
        fees = (fee for name, models, fee in SEARCH_FEES if name == seller and models.match(self.model))
        return next(fees, None)


def _row(listing: Listing) -> "Row | None":
    match = _find(listing)
    return match[1] if match else None


@cache
def _find(listing: Listing) -> "tuple[Seller, Row] | None":
    """Return the seller and the model in the price table, or None. Cached, because a look-up takes a millisecond."""
    from genai_prices.data_snapshot import get_snapshot  # imported here, because importing the price table takes long

    try:
        return get_snapshot().find_provider_model(listing.model, None, listing.seller, listing.url)
    except LookupError:
        return None


def window(model: str, family: Family, listing: Listing | None) -> int | None:
    """Return the most tokens that a prompt can have, or None for no limit.

    The context window is looked up in the price table: under the seller of the model, then under its maker. If the
    table has no entry, the context window of the model's family counts.
    """
    name = plain(model)
    listings = [listing] if listing else []
    if family.maker:
        # A model with a date in its name has the same window as the model without the date.
        listings += [Listing(name, family.maker), Listing(_DATE.sub("", name), family.maker)]
    tokens = next((entry.window for entry in listings if entry.window), None) or family.window
    return tokens - family.answer if tokens and tokens > 2 * family.answer else tokens


def cost(price: "ModelPrice", usage: Usage) -> float | None:
    """Return the cost of tokens in US dollars, or None if the server sent no token counts, or impossible counts.

    Price tiers depend on the size of the whole prompt. If the table has no special price for tokens read from or
    written to the cache, they cost as much as other input.
    """
    from genai_prices import Usage as Tokens

    if usage.requests and not usage.input_tokens:  # every request has input, so the server has not counted tokens
        return None
    try:
        tokens = Tokens(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cache_write_1h_tokens=usage.cache_write_1h_tokens,
            output_tokens=usage.output_tokens,
        )
        return float(price.calc_price(tokens)["total_price"])
    except ValueError:  # impossible counts, such as more cached tokens than input tokens
        return None


@dataclass(frozen=True, slots=True)
class RegisteredFacts:
    """The facts about a model from calls of `register_model`. A fact is None if no call gave it.

    `prices` are for input, output and cached tokens, in US dollars per million tokens.
    """

    window: int | None = None
    takes: Mapping[Kind, bool] = field(default_factory=dict[Kind, bool])
    prices: tuple[float, float, float] | None = None

    def under(self, later: "RegisteredFacts") -> "RegisteredFacts":
        """Return the facts of this object and of `later` together. If both have a fact, the one in `later` counts."""
        return RegisteredFacts(later.window or self.window, {**self.takes, **later.takes}, later.prices or self.prices)

    @property
    def price(self) -> "ModelPrice | None":
        """The prices as the `ModelPrice` class of the price table, or None if no prices were registered."""
        return None if self.prices is None else _price_row(*self.prices)


@cache
def _price_row(input_price: float, output_price: float, cached_price: float) -> "ModelPrice":
    """Return prices as the `ModelPrice` class of the price table. Cached, because each request needs them."""
    from decimal import Decimal

    from genai_prices.types import ModelPrice

    input_mtok, output_mtok, cached_mtok = (Decimal(str(price)) for price in (input_price, output_price, cached_price))
    cache_write, cache_write_1h = (input_mtok * Decimal(factor) for factor in CACHE_WRITES)
    return ModelPrice(
        input_mtok=input_mtok,
        output_mtok=output_mtok,
        cache_read_mtok=cached_mtok,
        cache_write_mtok=cache_write,
        cache_write_1h_mtok=cache_write_1h,
    )


_registrations: dict[str, RegisteredFacts] = {}
_registering = Lock()


def registered_facts(name: str) -> RegisteredFacts:
    """Return the facts that were registered for a model, under its full name and under patterns that match it.

    A price that an administrator sets replaces a registered price. If the administrator limits costs, no registered
    price counts.
    """
    facts, full_name = RegisteredFacts(), name.strip().lower()
    with _registering:  # another thread can register a model at the same time
        entries = tuple(_registrations.items())
    for pattern, entry in entries:
        if full_name.startswith(pattern[:-1]) if pattern.endswith("*") else full_name == pattern:
            facts = facts.under(entry)
    bounds = class_settings()
    own = replace(facts, prices=None) if bounds.fixes_prices else facts
    return own.under(RegisteredFacts(prices=bounds.price(name)))


def register_model(  # noqa: PLR0913  (each parameter is a separate fact; most calls give one or two)
    name: str,
    *,
    window: int | None = None,
    images: bool | None = None,
    documents: bool | None = None,
    audio: bool | None = None,
    video: bool | None = None,
    input_price: float | None = None,
    output_price: float | None = None,
    cached_price: float | None = None,
) -> None:
    """Register facts about a model, until the process ends.

    `name` is a full "provider:model", or the beginning of such names with a `*` at the end. `window` is the context
    window in tokens. Prices are in US dollars per million tokens; `cached_price` defaults to the price of input. A fact
    that is None stays as it was. If two registrations match a model, the later one counts. Raises UsageError for an
    invalid value.
    """
    pattern = _pattern(name)
    kinds: dict[Kind, bool | None] = {"images": images, "documents": documents, "audio": audio, "video": video}
    facts = RegisteredFacts(
        _window(pattern, window),
        {kind: _truth(pattern, kind, takes) for kind, takes in kinds.items() if takes is not None},
        _prices(pattern, input_price, output_price, cached_price),
    )
    if facts == RegisteredFacts():
        raise UsageError(
            f"Nothing is said of {pattern}. Give at least one of window, images, input_price and the like."
        )
    with _registering:
        earlier = _registrations.pop(pattern, RegisteredFacts())  # removed first, so that the new entry is last
        _registrations[pattern] = earlier.under(facts)


def _pattern(name: str) -> str:
    pattern = name.strip().lower()
    provider, _, model = pattern.partition(":")
    if not provider or not model or "*" in pattern[:-1]:
        raise UsageError(
            f"{name!r} cannot be registered. Write provider:model, or the beginning of such names with a * after it."
        )
    return pattern


def _window(pattern: str, tokens: object) -> int | None:
    if tokens is None or (type(tokens) is int and tokens > 0):
        return tokens
    raise UsageError(f"The window of {pattern} cannot be {tokens!r}. Give it in tokens, a whole number above zero.")


def _truth(pattern: str, kind: Kind, takes: object) -> bool:
    if isinstance(takes, bool):
        return takes
    raise UsageError(f"Whether {pattern} takes {kind} cannot be {takes!r}. Write {kind}=True or {kind}=False.")


def _prices(
    pattern: str, input_price: object, output_price: object, cached_price: object
) -> tuple[float, float, float] | None:
    if input_price is None and output_price is None and cached_price is None:
        return None
    if input_price is None or output_price is None:
        raise UsageError(f"The prices of {pattern} are not complete. Give input_price and output_price together.")
    figures = [
        _price(pattern, figure)
        for figure in (input_price, output_price, input_price if cached_price is None else cached_price)
    ]
    return figures[0], figures[1], figures[2]


def _price(pattern: str, price: object) -> float:
    if isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < math.inf:
        return price
    raise UsageError(f"A price of {pattern} cannot be {price!r}. Give US dollars per million tokens, 0 or more.")
