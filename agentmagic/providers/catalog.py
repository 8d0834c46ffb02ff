"""Facts about models: how much a model reads, which media it takes, and what its tokens cost.

Windows and prices come from the `genai-prices` package, a table that is kept up to date and asks no server. The media
that a model takes come from its family, which its provider's package describes. `register_model` corrects and adds.
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

# Open models, which any server may run.
OPEN_FAMILIES = (Family(re.compile(r"gemma-?[3-9]|.*(vl\b|vision|llava|pixtral)"), frozenset(("images",))),)
UNKNOWN = Family(re.compile(""))

CACHE_WRITES = ("1.25", "2")
"""What a token costs that is written to a cache for 5 minutes and for an hour, in prices of input.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching; the price table has the same, and OpenAI's 1.25.
"""

SEARCH_FEES: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("anthropic", re.compile(""), 0.010),
    ("openai", re.compile(r"(?:.*/)?gpt-.*-search-preview"), 0.025),
    ("openai", re.compile(""), 0.010),
    ("google", re.compile(r"(?:.*/)?gemini-[12]\b"), 0.035),
    ("google", re.compile(""), 0.014),
)
"""What a search of the web costs in US dollars, by seller and model; pages that are fetched cost tokens alone.

https://platform.claude.com/docs/en/about-claude/pricing and https://developers.openai.com/api/docs/pricing, which has
another price for the preview of models that do not reason. Of
https://ai.google.dev/gemini-api/docs/pricing it is the price behind a free number of searches a day or month, which no
answer tells: the cost is then what it is at most.
"""

# By the part of a media type before the slash; PDF is an exception.
_BY_TYPE: Mapping[str, Kind] = {"image": "images", "audio": "audio", "video": "video", "text": "documents"}

_PATH = re.compile(r"^.*/")
_TUNED = re.compile(r"^ft:")
_TAG = re.compile(r"[:@].*$")
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about one model.

    `window` is how many tokens a prompt may have, None for no limit. `takes` are the media that it reads beside text.
    `priced` says whether the cost of its tokens is known. `output` is the most tokens of one answer.
    """

    name: str
    window: int | None
    takes: frozenset[Kind]
    priced: bool
    output: int = LONGEST_OUTPUT

    def accepts(self, media: Media) -> bool:
        """Return whether the model reads a blob of this type; other blobs are only named in text."""
        kind = _kind(media.media_type)
        return kind is not None and kind in self.takes


def _kind(media_type: str) -> Kind | None:
    whole = media_type.lower().partition(";")[0].strip()
    return "documents" if whole == "application/pdf" else _BY_TYPE.get(whole.partition("/")[0])


def plain(model: str) -> str:
    """Return the maker's name of a model such as "openai/gpt-5.4:free", "models/..." or "ft:...:acme::1"."""
    return _TAG.sub("", _TUNED.sub("", _PATH.sub("", model.lower())))


@dataclass(frozen=True, slots=True)
class Listing:
    """A model with its seller in the price table: the seller's id, or the address of the seller's server."""

    model: str
    seller: str | None = None
    url: str | None = None

    @property
    def window(self) -> int | None:
        """The listed window in tokens, for some families of prompt and answer together."""
        row = _row(self)
        return row.context_window if row else None

    @property
    def price(self) -> "ModelPrice | None":
        """The price of its tokens today; None if it is not listed, or not sold by tokens."""
        row = _row(self)
        price = row.get_prices(datetime.now(UTC)) if row else None
        if price is None or (price.__dict__ and (price.input_mtok is None or price.output_mtok is None)):
            return None
        return price  # a price without any figure is that of a free model

    @property
    def search_fee(self) -> float | None:
        """What a search of the web costs in US dollars, None if that is unknown."""
        found = _found(self)
        seller = self.seller or (found[0].id if found else "")
        fees = (fee for name, models, fee in SEARCH_FEES if name == seller and models.match(self.model))
        return next(fees, None)


def _row(listing: Listing) -> "Row | None":
    found = _found(listing)
    return found[1] if found else None


@cache
def _found(listing: Listing) -> "tuple[Seller, Row] | None":
    """Return the rows of a seller and a model in the price table. Cached, because a search takes a millisecond."""
    from genai_prices.data_snapshot import get_snapshot  # late: the table takes long to import

    try:
        return get_snapshot().find_provider_model(listing.model, None, listing.seller, listing.url)
    except LookupError:
        return None


def window(model: str, family: Family, listing: Listing | None) -> int | None:
    """Return how many tokens a prompt may have, None for no limit.

    The window is the listed one, or else the one that its maker lists, or else the one of its family.
    """
    name = plain(model)
    listings = [listing] if listing else []
    if family.maker:
        # A dated model reads as much as the one without a date.
        listings += [Listing(name, family.maker), Listing(_DATE.sub("", name), family.maker)]
    tokens = next((found.window for found in listings if found.window), None) or family.window
    return tokens - family.answer if tokens and tokens > 2 * family.answer else tokens


def cost(price: "ModelPrice", usage: Usage) -> float | None:
    """Return the cost of tokens in US dollars; None if a server sent no figures, or impossible ones.

    Tiers go by the whole prompt. Tokens of a cache, read or written, without a price of their own cost as much as other
    input.
    """
    from genai_prices import Usage as Tokens

    if usage.requests and not usage.input_tokens:  # a request always has input: the server counted nothing
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
    except ValueError:  # more cached tokens than input, for example
        return None


@dataclass(frozen=True, slots=True)
class Registered:
    """The facts of one or more calls of `register_model`; prices are for input, output and cached tokens."""

    window: int | None = None
    takes: Mapping[Kind, bool] = field(default_factory=dict[Kind, bool])
    prices: tuple[float, float, float] | None = None

    def under(self, later: "Registered") -> "Registered":
        """Return both as one; a fact of the later one replaces that of this one."""
        return Registered(later.window or self.window, {**self.takes, **later.takes}, later.prices or self.prices)

    @property
    def price(self) -> "ModelPrice | None":
        """The prices as a row of the price table."""
        return None if self.prices is None else _price_row(*self.prices)


@cache
def _price_row(sent: float, written: float, cached: float) -> "ModelPrice":
    """Return prices as a row of the price table; each request asks for it."""
    from decimal import Decimal

    from genai_prices.types import ModelPrice

    sent_mtok, written_mtok, cached_mtok = (Decimal(str(price)) for price in (sent, written, cached))
    kept, kept_1h = (sent_mtok * Decimal(factor) for factor in CACHE_WRITES)
    return ModelPrice(
        input_mtok=sent_mtok,
        output_mtok=written_mtok,
        cache_read_mtok=cached_mtok,
        cache_write_mtok=kept,
        cache_write_1h_mtok=kept_1h,
    )


_registered: dict[str, Registered] = {}
_registering = Lock()


def registered(name: str) -> Registered:
    """Return the facts that were registered for a model, by its full name and by patterns that match it.

    A price counts only if it is the administrator's, where the policy bounds costs.
    """
    found, wanted = Registered(), name.strip().lower()
    with _registering:  # another thread may register a model meanwhile
        entries = tuple(_registered.items())
    for pattern, facts in entries:
        if wanted.startswith(pattern[:-1]) if pattern.endswith("*") else wanted == pattern:
            found = found.under(facts)
    bounds = class_settings()
    own = replace(found, prices=None) if bounds.fixes_prices else found
    return own.under(Registered(prices=bounds.price(name)))


def register_model(  # noqa: PLR0913  (each is a fact of its own, and most registrations give one or two)
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

    `name` is a full "provider:model", or the beginning of such names with a `*` at the end. `window` is in tokens,
    prices are in US dollars per million tokens; `cached_price` defaults to the price of input. Facts that are not given
    stay as they were. If two registrations match a model, the later one counts. Raises UsageError.
    """
    pattern = _pattern(name)
    kinds: dict[Kind, bool | None] = {"images": images, "documents": documents, "audio": audio, "video": video}
    facts = Registered(
        _window(pattern, window),
        {kind: _truth(pattern, kind, takes) for kind, takes in kinds.items() if takes is not None},
        _prices(pattern, input_price, output_price, cached_price),
    )
    if facts == Registered():
        raise UsageError(
            f"Nothing is said of {pattern}. Give at least one of window, images, input_price and the like."
        )
    with _registering:
        earlier = _registered.pop(pattern, Registered())  # removed, so that it moves to the end
        _registered[pattern] = earlier.under(facts)


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


def _prices(pattern: str, sent: object, written: object, cached: object) -> tuple[float, float, float] | None:
    if sent is None and written is None and cached is None:
        return None
    if sent is None or written is None:
        raise UsageError(f"The prices of {pattern} are not complete. Give input_price and output_price together.")
    figures = [_price(pattern, figure) for figure in (sent, written, sent if cached is None else cached)]
    return figures[0], figures[1], figures[2]


def _price(pattern: str, price: object) -> float:
    if isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < math.inf:
        return price
    raise UsageError(f"A price of {pattern} cannot be {price!r}. Give US dollars per million tokens, 0 or more.")
