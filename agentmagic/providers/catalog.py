"""What is known of a model: how much it reads, what it takes, and what its tokens cost.

Windows and prices come from the `genai-prices` package, which is kept up to date and asks no server. It does
not say which models take pictures; the families below do. `register_model` sets right what is wrong or missing.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Literal

from agentmagic.errors import UsageError
from agentmagic.messages import Media, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as Row
    from genai_prices.types import ModelPrice

Kind = Literal["images", "documents", "audio", "video"]
"""What may come beside text; documents are PDF and text files."""

KINDS: frozenset[Kind] = frozenset(("images", "documents", "audio", "video"))
_READS: frozenset[Kind] = frozenset(("images", "documents"))
_SEES: frozenset[Kind] = frozenset(("images",))
_NOTHING: frozenset[Kind] = frozenset()
_BY_TYPE: Mapping[str, Kind] = {"image": "images", "audio": "audio", "video": "video", "text": "documents"}

UNKNOWN_WINDOW = 32_000
"""Tokens that a model is trusted to read of which nothing is known.

A server that runs an open model often gives it less than the model could take, and some cut a longer prompt
without a word, so a large guess is the costlier mistake; one much smaller would have no room for tools and results.
"""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of one model.

    `window` is how many tokens a prompt may have, None where there is no limit. `takes` is what it reads
    beside text. `priced` says whether the cost of its tokens is known.
    """

    name: str
    window: int | None
    takes: frozenset[Kind]
    priced: bool

    def accepts(self, media: Media) -> bool:
        """Whether the model reads a blob of this type; where not, it has to be named in text."""
        kind = _kind(media.media_type)
        return kind is not None and kind in self.takes


def _kind(media_type: str) -> Kind | None:
    whole = media_type.lower().partition(";")[0].strip()
    return "documents" if whole == "application/pdf" else _BY_TYPE.get(whole.partition("/")[0])


@dataclass(frozen=True, slots=True)
class Family:
    """Models whose names begin alike, and what holds for all of them.

    `window` stands in where the price table has none, and `maker` is whose list of it is looked in. `answer` is
    the part of the listed window that a prompt may not use.
    """

    names: re.Pattern[str]
    takes: frozenset[Kind]
    window: int = UNKNOWN_WINDOW
    maker: str = ""
    answer: int = 0


# Sources: https://developers.openai.com/api/docs/models (from GPT-5 on, 128,000 tokens of the window are the
# answer's: a prompt of more than the rest is refused) and its guides to images and files (a model that sees also
# reads PDF; sound is not sent to OpenAI); https://ai.google.dev/gemini-api/docs/models. The first match counts.
_FAMILIES = (
    Family(re.compile(r"gpt-oss"), _NOTHING),
    Family(
        re.compile(r"gpt-3|gpt-4(-\d{4}|-32k|-turbo-preview|$)|o1-(mini|preview)|o3-mini|gpt-(4o-)?(mini-)?audio"),
        _NOTHING,
        128_000,
        "openai",
    ),
    Family(re.compile(r"gpt-([5-9]|\d\d)"), _READS, 128_000, "openai", answer=128_000),
    Family(re.compile(r"gpt-(\d|chat)|chatgpt-|o\d(-|$)|codex-|computer-use"), _READS, 128_000, "openai"),
    Family(re.compile(r"gemini-"), KINDS, 1_000_000, "google"),
    Family(re.compile(r"claude-|gemma-?[3-9]|.*(vl\b|vision|llava|pixtral)"), _SEES),
)
_UNKNOWN = Family(re.compile(""), _NOTHING)

_PATH = re.compile(r"^.*/")
_TUNED = re.compile(r"^ft:")
_TAG = re.compile(r"[:@].*$")
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


def plain(model: str) -> str:
    """Return the name that a model's maker gives it, of "openai/gpt-5.4:free", "models/..." and "ft:...:acme::1"."""
    return _TAG.sub("", _TUNED.sub("", _PATH.sub("", model.lower())))


def family(model: str) -> Family:
    """Return the family of a model, by its name without the provider; any server may serve it."""
    name = plain(model)
    return next((known for known in _FAMILIES if known.names.match(name)), _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Listing:
    """A model as the price table finds it: by the id of who sells it, or by the address that answers for it."""

    model: str
    seller: str | None = None
    url: str | None = None

    @property
    def window(self) -> int | None:
        """The tokens that a prompt may have, and the answer with it where the family says so."""
        row = _row(self)
        return row.context_window if row else None

    @property
    def price(self) -> "ModelPrice | None":
        """What its tokens cost today; None where it is not listed, or not sold by tokens."""
        row = _row(self)
        price = row.get_prices(datetime.now(UTC)) if row else None
        if price is None or (price.__dict__ and (price.input_mtok is None or price.output_mtok is None)):
            return None
        return price  # one without any figure is a free model's


@cache
def _row(listing: Listing) -> "Row | None":
    """Find a model in the price table, once: its names are matched one by one, which takes a millisecond."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(listing.model, None, listing.seller, listing.url)[1]
    except LookupError:
        return None


def window(model: str, listing: Listing | None) -> int:
    """Return how many tokens a prompt may have: as listed, else as its maker lists it, else as its family has it.

    A dated or fine-tuned model reads as much as the one it was made of.
    """
    kin, name = family(model), plain(model)
    listings = [listing] if listing else []
    if kin.maker:
        listings += [Listing(name, kin.maker), Listing(_DATE.sub("", name), kin.maker)]
    tokens = next((found.window for found in listings if found.window), None) or kin.window
    return tokens - kin.answer if tokens > 2 * kin.answer else tokens


def cost(price: "ModelPrice", usage: Usage) -> float | None:
    """Return what tokens cost in US dollars; None where a server's figures cannot be, or it sent none.

    Tiers go by the whole prompt. Cached tokens without a price of their own cost what the others do.
    """
    from genai_prices import Usage as Tokens

    if usage.requests and not usage.input_tokens:
        return None
    try:
        tokens = Tokens(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
        )
        return float(price.calc_price(tokens)["total_price"])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Registered:
    """What somebody said of models by `register_model`; prices are for input, output and cached tokens."""

    window: int | None = None
    takes: Mapping[Kind, bool] = field(default_factory=dict[Kind, bool])
    prices: tuple[float, float, float] | None = None

    def under(self, later: "Registered") -> "Registered":
        """Return both as one, the later one's word counting where both say something."""
        return Registered(later.window or self.window, {**self.takes, **later.takes}, later.prices or self.prices)

    @property
    def price(self) -> "ModelPrice | None":
        """The prices in the form of the price table."""
        from decimal import Decimal

        from genai_prices.types import ModelPrice

        if self.prices is None:
            return None
        sent, written, cached = (Decimal(str(price)) for price in self.prices)
        return ModelPrice(input_mtok=sent, output_mtok=written, cache_read_mtok=cached)


_registered: dict[str, Registered] = {}
_registering = Lock()


def registered(name: str) -> Registered:
    """Return what was registered for a model, by its full name and by every pattern that fits it."""
    told, wanted = Registered(), name.strip().lower()
    with _registering:
        said = tuple(_registered.items())
    for pattern, facts in said:
        if wanted.startswith(pattern[:-1]) if pattern.endswith("*") else wanted == pattern:
            told = told.under(facts)
    return told


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
    """Say what a model reads and costs, for as long as the process lives.

    `name` is "provider:model" in full, or the beginning of such names with a `*` at the end. `window` is in
    tokens, prices in US dollars per million tokens; `cached_price` is the price of input where it is not given.
    What is left out stays as it was; of two registrations that fit a model the later counts. Raises UsageError.
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
        earlier = _registered.pop(pattern, Registered())  # taken out, so that it goes to the end
        _registered[pattern] = earlier.under(facts)


def _pattern(name: str) -> str:
    pattern = name.strip().lower()
    provider, _, model = pattern.partition(":")
    if not provider or not model or "*" in pattern[:-1]:
        message = (
            f"{name!r} cannot be registered. Write provider:model, or the beginning of such names with a * after it."
        )
        raise UsageError(message)
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
