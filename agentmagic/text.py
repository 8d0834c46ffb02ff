"""Makes text from any source safe to show: cleans it, escapes it, puts it on one line, cuts it.

Hidden characters are characters that cannot be seen, or that reorder or overwrite others; `escapes.HIDDEN` lists them.
`clean` removes them, for text that is only read: HTML, terminals, logs, and texts that MCP servers send to models.
`reveal` replaces them by escapes, for text that the user has to check, such as commands to approve.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from ipaddress import ip_address
from itertools import chain, islice
from operator import is_
from typing import Any, cast
from urllib.parse import quote, urlsplit

from agentmagic.escapes import HIDDEN, SUSPECT, TERMINAL
from agentmagic.secrets import CONTEXT, may_name, redact, safe_length

DEEPEST = 50
"""Levels of a nested JSON value that are shown."""

_JOINER = "[\u200c\u200d]"
# A single joiner (an invisible character) between letters is needed in some scripts and in emoji. Several joiners in a
# row, or a joiner beside ASCII, only serve to hide something.
_JOINERS = rf"{_JOINER}(?:{_JOINER}+|(?=[\x00-\x7f]|$)|(?<=[\x00-\x7f]{_JOINER})|(?<=^{_JOINER}))"
# A lone \r is dropped, because text after it would overwrite the line in a terminal.
_DROPPED = re.compile(rf"\x1b(?:{TERMINAL})|[{HIDDEN}]+|\r(?!\n)|{_JOINERS}")
_REVEALED = re.compile(rf"[{HIDDEN}\r]|{_JOINERS}")

_PIECE = 100_000
"""Characters that are cleaned at once. A regex holds the GIL, and 5 million characters took a second."""
LONGEST_ADDRESS = 2_000
"""Characters of an address that can be a link; browsers accept more."""
_URL_MARKS = "%/:?#[]@!$&'()*+,;=~"
"""Characters of an address other than letters and digits that are not percent-encoded."""
_HOST = re.compile(r"([a-zA-Z]+://)(\[[^\]/]*\]|[^/?#:@]+)(.*)", re.DOTALL)
MOST_MOVED = 250_000
"""The most characters that `map_positions` changes again to find the new positions; it bounds the time."""
_LONGEST_ESCAPE = 1000
"""Characters of a terminal escape that are not cut into two pieces."""


def clean(text: str) -> str:
    """Return the text without terminal escapes and hidden characters."""
    if (text.isascii() and text.replace("\n", " ").isprintable()) or not SUSPECT.search(text):
        return text
    return "".join(_DROPPED.sub("", piece) for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces of at most _PIECE characters, cut before a terminal escape rather than inside it."""
    at = 0
    while at < len(text):
        end = at + _PIECE
        escape = text.rfind("\x1b", end - _LONGEST_ESCAPE, end) if end < len(text) else -1
        end = escape if escape > at else end
        yield text[at:end]
        at = end


def reveal(text: str, *, strictly: bool = False) -> str:
    r"""Return the text with each hidden character replaced by an escape such as `\u200b`.

    With `strictly`, line breaks, tabs and unusual spaces are escaped too, and the result is a single line.
    """
    text = _REVEALED.sub(lambda hidden: hidden[0].encode("unicode_escape").decode(), text)
    if strictly and not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return text


def sanitize(text: str) -> str:
    """Make a text from any source safe to read, and return it: with secrets blanked, without hidden characters."""
    return clean(redact(text))


def map_positions(places: Sequence[int], text: str, new_text: str, change: Callable[[str], str]) -> list[int]:
    """Return the positions in `new_text` that correspond to positions in `text`.

    `new_text` is the result of `change(text)`, which blanks secrets or removes hidden characters. A position inside a
    secret becomes the start of the blank. To bound the time, if a long text has many positions between its first and
    last change, some of these become the end of `new_text`.
    """
    if text.startswith(new_text):
        return [max(0, min(place, len(new_text))) for place in places]
    same = _same_start(text, new_text)
    behind = len(text) - min(_same_start(text[::-1], new_text[::-1]), len(text) - same, len(new_text) - same)
    remaining = MOST_MOVED

    def one(place: int) -> int:
        nonlocal remaining
        place = max(0, min(place, len(text)))
        if place <= same:
            return place
        if place >= behind:
            return place + len(new_text) - len(text)
        remaining -= place
        return _same_start(change(text[:place]), new_text) if remaining >= 0 else len(new_text)

    return list(map(one, places))


def _same_start(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def exact(text: str) -> str:
    """Return a text for the user to check before approving: secrets are blanked, hidden characters become escapes.

    Each line ends with a line feed only, because a text box in a browser keeps no other line end.
    """
    return reveal(redact(text).replace("\r\n", "\n"))


class ShownStream:
    """A filter that makes a text safe to show while it arrives in pieces.

    The end of the text is held back until the next piece if it may be the beginning of a secret or of an escape, or if
    the next piece may change what `clean` makes of it.
    """

    def __init__(self) -> None:
        self._text = ""
        self._before = 0
        """The number of characters in `_text` that were shown already.

        They are kept as context, which decides whether the next characters are a secret or hidden.
        """

    def feed(self, piece: str) -> str:
        """Add the next piece of the text, and return what can be shown now."""
        self._text += piece
        return self._take(safe_length(self._text, self._before))

    def finish(self) -> str:
        """Return the rest of the text, after its last piece."""
        return self._take(len(self._text))

    def _take(self, end: int) -> str:
        before = self._before
        if end <= before:
            return ""
        last = self._text[max(before - 1, 0) : before]
        ready = clean(last + redact(self._text[:end], start=before)).removeprefix(clean(last))
        self._text = self._text[max(0, end - CONTEXT) :]
        self._before = min(end, CONTEXT)
        return ready


def sanitize_json(value: Any, change: Callable[[str], str] = sanitize, depth: int = DEEPEST, name: str = "") -> Any:
    """Return a JSON value with `change` applied to its strings and keys, by default to make them safe to show.

    Values whose key is the name of a secret, such as "password", are blanked first. `name` is the key of `value`.
    Values nested deeper than `depth` levels become an ellipsis.
    """
    if depth == 0:
        return "…"
    match value:
        case str():
            return change(redact(value, name=name) if may_name(name) else value)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {change(str(key)): sanitize_json(item, change, depth - 1, str(key)) for key, item in items}
        case list() | tuple():
            return [sanitize_json(item, change, depth - 1, name) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def json_line(value: Any) -> str:
    """Return a value as JSON on one line, for users and models. Objects that JSON cannot represent become strings."""
    whole = dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else value
    return json.dumps(whole, ensure_ascii=False, default=str)


def encodable(text: str) -> str:
    """Return the text with each lone surrogate, which UTF-8 cannot encode, replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encodable_value(value: Any) -> Any:
    """Return a value with `encodable` applied to the texts inside it: those of dataclasses, mappings, lists and tuples.

    Values without lone surrogates are returned themselves, not as copies.
    """
    match value:
        case str():
            return encodable(value)
        case Mapping():
            mapping = cast("Mapping[Any, Any]", value)
            new = {encodable_value(key): encodable_value(item) for key, item in mapping.items()}
            same = len(new) == len(mapping) and all(
                map(is_, chain(new, new.values()), chain(mapping, mapping.values()))
            )
            return mapping if same else new
        case list() | tuple():
            sequence = cast("Sequence[Any]", value)
            new = list(map(encodable_value, sequence))
            same = all(map(is_, new, sequence))
            return sequence if same else new if isinstance(sequence, list) else tuple(new)
        case _ if is_dataclass(value) and not isinstance(value, type):
            changes: dict[str, Any] = {}
            for name in value.__dataclass_fields__:
                content = getattr(value, name)
                if content.__class__ in _WITHOUT_TEXT or (content.__class__ is str and content.isascii()):
                    continue  # most fields, without another call
                if (new_content := encodable_value(content)) is not content:
                    changes[name] = new_content
            return replace(value, **changes) if changes else value
        case _:
            return value


_WITHOUT_TEXT = frozenset({type(None), bool, int, float, bytes})


def a_type(value: object) -> str:
    """Return the name of a value's type with its article: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def plural(number: int, noun: str) -> str:
    """Return a number with a noun: "1 row", "2,000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def about_seconds(seconds: float) -> str:
    """Return an approximate duration as text: "5 s", "12 min" or "1.5 h"."""
    if seconds < 90:  # noqa: PLR2004  (a minute and a half is told in seconds, an hour and a half in minutes)
        return f"{max(1, round(seconds))} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"  # noqa: PLR2004


def single_line(text: str, most: int) -> str:
    """Return the text on one line of at most `most` characters, without hidden characters; "…" marks a cut."""
    line = " ".join(clean(text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1].rstrip()}…"


def join_names(names: Collection[str], most: int = 20) -> str:
    """Return names separated by commas, "none" if none exist. A list that is cut looks like "a, b (2 of 36)"."""
    text = ", ".join(islice(names, most)) or "none"
    return f"{text} ({most} of {len(names)})" if len(names) > most else text


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, such as a row of a table of names, as a set."""
    return frozenset(text.split())


def clip(text: str, most: int, mark: str = "…") -> str:
    """Return the text, cut to at most `most` characters, with the mark at the end if it was cut."""
    return text if len(text) <= most else text[: max(most - len(mark), 0)] + mark[:most]


def cut(text: str, most: int, note: str = "… (the first {most:,} of {whole:,} characters)") -> str:
    """Return the text, or its first `most` characters with a note.

    The note can contain `{most}`, `{whole}` and `{over}`: the numbers of characters kept, in the whole text, and left
    out.
    """
    whole = len(text)
    return text if whole <= most else text[:most] + note.format(most=most, whole=whole, over=whole - most)


def cut_with_note(text: str, most: int) -> tuple[str, str]:
    """Return the first `most` characters of a text, and a sentence about the cut, or "" if the text was not cut."""
    note = f"The first {most:,} of {len(text):,} characters. The whole result is in session.messages."
    return text[:most], note if len(text) > most else ""


def cut_middle(text: str, most: int, note: Callable[[int, int], str]) -> str:
    """Return the text with its middle left out, so that it has at most `most` characters.

    `note` is called with the two positions between which text is left out, and returns the text to show instead.
    """
    if len(text) <= most:
        return text
    # The note may contain the positions or their difference, so it is longest for one of these two pairs.
    longest = max(len(note(0, len(text))), len(note(len(text), len(text))))
    room = most - longest
    if room < 0:
        return clip(text, most)
    end = len(text) - room // 3
    start = room - room // 3
    return text[:start] + note(start, end) + text[end:]


def address_problem(url: str, most: int, *, https: bool = False) -> str | None:
    """Return why a web address must not be shown to the user, or None if it may be. `most` limits its length."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return "it cannot be read"
    if not host or parts.scheme not in (("https",) if https else ("https", "http")):
        return f"it is no {'https' if https else 'web'} address"
    if parts.username is not None or not url.isascii() or not url.isprintable() or len(url) > most:
        return "it is written so that it could deceive"
    return None


def web_address(url: object) -> str:
    """Return a web address in ASCII, with an IDNA host, or "" if it must not become a link.

    The result has no hidden characters, and no letters of other scripts that only look like ASCII.
    """
    if not isinstance(url, str) or len(url) > LONGEST_ADDRESS or SUSPECT.search(url) or not url.isprintable():
        return ""
    match = _HOST.match(url.strip())
    host = _idna(match[2]) if match else ""
    address = f"{match[1]}{host}{quote(match[3], safe=_URL_MARKS, errors='replace')}" if match and host else ""
    return "" if address_problem(address, LONGEST_ADDRESS) else address


def _idna(host: str) -> str:
    """Return the ASCII (IDNA) form of a host name, or "" if it is invalid."""
    if host.isascii():
        return "" if "%" in host else host
    labels = unicodedata.normalize("NFKC", host).lower().replace("\u3002", ".").split(".")
    if any(not (one == "-" or unicodedata.category(one)[0] in "LMN") for label in labels for one in label):
        return ""
    return ".".join(one if one.isascii() else f"xn--{one.encode('punycode').decode()}" for one in labels)


def is_loopback(url: str) -> bool:
    """Return whether an address is on this machine."""
    with suppress(ValueError):
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or host.endswith(".localhost"):
            return True
        address = ip_address(host)
        return address.is_loopback or address.is_unspecified  # a connection to 0.0.0.0 reaches this machine too
    return False


# -- misspelt names --------------------------------------------------------------------------------

_WEIGHED = 8
"""The number of similar names for which `close_names` computes the edit distance, which is slow."""


def close_names(word: str, candidates: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return up to `n` known names that a misspelt word may mean, the most likely first, ignoring case.

    `cutoff` is the least similarity, as in `difflib`. The names are sorted by the number of typing errors that turn a
    name into the word. An error is a letter too many, too few or wrong, or two letters swapped.
    """
    names_by_key: dict[str, str] = {}
    for name in candidates:
        names_by_key.setdefault(name.casefold(), name)
    key = word.casefold()
    close = get_close_matches(key, names_by_key, n=max(n, _WEIGHED), cutoff=cutoff)

    def unlike(name: str) -> tuple[int, int, int]:
        return _edit_distance(key, name), _edit_distance(word, names_by_key[name]), abs(len(key) - len(name))

    return [names_by_key[name] for name in sorted(close, key=unlike)[:n]]


def did_you_mean(word: str, candidates: Iterable[str], cutoff: float = 0.6, form: str = "{}") -> str:
    """Return " Did you mean NAME?" for an unknown name, or "" if no known name is similar. `form` formats NAME."""
    close = close_names(word, candidates, cutoff=cutoff)
    return f" Did you mean {form.format(close[0])}?" if close else ""


def _edit_distance(one: str, other: str) -> int:
    """Return the number of typing errors between two texts (the optimal string alignment distance)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other_letter)))
            if i > 1 and j > 1 and (letter, other_letter) == (other[j - 2], one[i - 2]):
                row[j] = min(row[j], before[j - 2] + 1)
        before, last = last, row
    return last[-1]
