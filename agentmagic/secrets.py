"""Secrets: text that is never shown, logged or saved. One registry for the whole process.

A secret is known by its value or by its shape, and `redact` puts `[redacted]` in its place, also where escapes, colours
or invisible characters stand within it or beside it, and where it is written in base64 or in hexadecimal digits.

- Certain values: those given to `register_secret`, those of variables with an exact name (`register_names`), and those
  of variables that are named like a secret and look random.
- Likely values: the others of variables that are named like a secret. Such a name can be a coincidence (`SORT_KEY`).
- Shapes: keys of known services, tokens in headers, passwords beside their names; see `secret_shapes`.

Likely values are blanked where people read: screens, logs, errors, exports. A journal keeps them, because a model reads
the journal again after a reload, and a wrong guess must not damage what it reads.
"""

import binascii
import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice, takewhile
from operator import eq
from urllib.parse import quote, quote_plus

from agentmagic.errors import UsageError
from agentmagic.escapes import Places, decoded, readings, unfinished
from agentmagic.secret_shapes import ADDRESS, KEY, LONGEST_VALUE, PLAIN, SHAPES, Shape, is_random

BLANK = "[redacted]"
SHORTEST = 8
"""Characters of the shortest value that is blanked: blanking "abc" would ruin every text."""
LONGEST_HELD = 4_000
"""Characters at the end of a growing text in which the beginning of a shape is looked for."""
TELLING_NOTHING = 3
"""Characters of a secret that may be seen."""
LEAST_OF_A_PART = 12
"""Characters of the beginning of a value that are blanked at the end of a text, and of a word that is held back."""
CONTEXT = 60
"""Characters before a text that decide what a secret is in it: the name of a value, an escape."""

_SHORTEST_WORD = 12
"""Characters of the shortest word that is looked into: a value of `SHORTEST` characters in base64."""
_BEFORE_WORD = 8
"""Characters before a long word in which a key may begin, such as "hvs."."""
_SHORTEST_ENCODED = 24
"""Characters of the shortest word of base64 or hexadecimal digits in which shapes are looked for."""

_WORDS = bytes(
    65 if chr(number).isascii() and (chr(number).isalnum() or chr(number) in "+/_=-") else 32 for number in range(256)
)
"""Makes an A of each character of a long word, and a blank of each other one."""
_LONG = b"A" * _SHORTEST_WORD

_KEYS = {start: shape for shape in SHAPES if shape.key for start in shape.starts}
_NAMED = [(start, shape) for shape in SHAPES if not shape.key for start in shape.starts]
_HEADS: dict[bytes, list[str]] = {}
"""The literals of keys, by their first two characters."""
for _start in _KEYS:
    _HEADS.setdefault(_start[:2].encode(), []).append(_start)
_KEY_WORDS = bytes(number if re.match(KEY, chr(number)) else 32 for number in range(256))
"""Makes a blank of each character that is not of a key."""
_BEGINNINGS = {start[:end] for start in _KEYS for end in range(1, len(start))}
_NAMED_BEGINNINGS = {start[:end] for start, _ in _NAMED for end in range(1, len(start))}
_LONGEST_START = max(map(len, _BEGINNINGS | _NAMED_BEGINNINGS))

_MOST_PARTS = 1000
"""Beginnings of one value in one text that may be a value cut off."""
_CUT = re.compile(r"\Z|…|\.\.\.|\s*[\[(]")
"""What stands where a text was cut off: nothing, dots, or a note."""

Span = tuple[int, int]

_NAME = re.compile(
    r"key|(?:access|api|auth|refresh)?token|secrets?|(?:access|private|secret)key|.*(?:apikey|passw(?:or)?d)"
    r"|pass(?:phrase|code)|pwd|credentials?|authorization|cookie"
)
"""Words of the names of secrets."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class _Registry:
    """The values that were registered; any thread may add one.

    The keys of `values` and of `encoded` say whether only the certain values are meant. `encoded` are the values in
    base64 and in hexadecimal digits. `beginnings` are those of all values, of fewer than `LEAST_OF_A_PART` characters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: dict[bool, tuple[str, ...]] = {True: (), False: ()}
        self.encoded: dict[bool, tuple[str, ...]] = {True: (), False: ()}
        self.beginnings: set[str] = set()

    def add(self, value: str, *, certain: bool) -> None:
        with self._lock:  # else a thread could put older values in the place of newer ones
            if value in self.values[certain]:
                return
            for only in (True, False) if certain else (False,):
                self.values[only] = tuple(dict.fromkeys((*self.values[only], *_spellings(value))))
                self.encoded[only] = tuple(dict.fromkeys((*self.encoded[only], *_encodings(value))))
            self.beginnings |= {one[:end] for one in _spellings(value) for end in range(1, LEAST_OF_A_PART)}


_registry = _Registry()
_names: set[str] = set()


def register_secret(value: str) -> None:
    """Blank this text wherever agentmagic shows, logs or saves something, from now on and until the process ends.

    Raises UsageError for a value of fewer than 8 characters.
    """
    if len(value) < SHORTEST:
        raise UsageError(
            f"A secret of fewer than {SHORTEST} characters would blank too much other text. Register a longer one."
        )
    _registry.add(value, certain=True)


def register_names(names: Iterable[str]) -> None:
    """Take variables of exactly these names for secrets, even if no word of a name says so."""
    _names.update(names)


def learn(name: str, value: str, *, certain: bool = False) -> None:
    """Register the value of a variable, header or option, if the name says that it is a secret or it is `certain`.

    Short values, plain words, numbers, paths and addresses are left alone. The password in an address is learnt
    under any name. The last word of "Bearer ..." is learnt too.
    """
    for address in ADDRESS.finditer(value) if "://" in value else ():
        learn("password", address["secret"])
    certain = certain or name in _names
    if not certain and not is_secret_name(name):
        return
    for secret in (value, value.rpartition(" ")[2]):
        if len(secret) >= SHORTEST and not _is_plain(secret):
            _registry.add(secret, certain=certain or is_random(secret))


def without_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that neither are named like a secret nor hold one."""
    return {
        name: value
        for name, value in variables.items()
        if name not in _names and not is_secret_name(name) and redact(value, name=name) == value
    }


@lru_cache(maxsize=1000)
def is_secret_name(name: str) -> bool:
    """Return whether a word of the name of a variable, header or option names a secret."""
    return any(_NAME.fullmatch(word.lower()) for word in _WORD.findall(name))


@lru_cache(maxsize=1000)
def may_name(name: str) -> bool:
    """Return whether a value beside this name may be a secret, by one of the names in the table of shapes."""
    return any(literal in name.lower() for literal, _ in _NAMED)


def redact(text: str, *, stored: bool = False, name: str = "", start: int = 0) -> str:
    """Return the text with every secret blanked; with `stored`, likely values stay.

    A value that is cut off is blanked too, if at least half of it is there. `name` is the key of JSON beside which the
    text stands, if any. What stands before `start` is looked at, and left out.
    """
    spans = _spans(text, stored=stored)
    if may_name(name) and len(text) <= LONGEST_VALUE:
        spans += _spans_beside(name, text)
    if not spans:
        return text[start:] if start else text
    pieces: list[str] = []
    done = start
    for begin, end in _merged(spans):
        if end > done:
            pieces += (text[done:begin], BLANK)
            done = end
    return "".join((*pieces, text[done:]))


def holds_secret(data: bytes) -> bool:
    """Return whether a value that certainly is a secret stands in some bytes, as UTF-8; shapes are not looked for."""
    return any(value.encode("utf-8", "replace") in data for value in _registry.values[True])


def held(text: str, start: int = 0) -> int:
    """Return where the end of a growing text begins that may yet become a secret; the length of the text if none may.

    Nothing before `start` is held, but what stands there may be the name of a value.
    """
    first = max(start, len(text) - LONGEST_HELD)
    before = max(0, first - CONTEXT)
    tail = text[before : unfinished(text)]
    end = len(tail)
    for number, view in enumerate(readings(tail)):
        if (at := _growing(view)) < len(view):
            end = min(end, at if view == tail else Places(tail, number).span(at, at + 1)[0])
    end = unfinished(tail[:end]) if end < len(tail) else end  # no escape is cut apart
    return max(first, before + end)


def settled(text: str, start: int = 0) -> str:
    """Return a growing text without an end that may yet become a secret; an end of a few characters tells nothing."""
    end = held(text, start)
    return text[:end] if len(text) - end > TELLING_NOTHING else text


# -- where secrets stand in a text ---------------------------------------------------------------------------


def _spans(text: str, *, stored: bool) -> list[Span]:
    """Return where secrets stand in the text, as a reader decodes it."""
    views = readings(text)
    spans = [] if views[0] == text else _known(text, stored=stored)
    for number, view in enumerate(views):
        if (found := _found(view, stored=stored)) and view != text:
            place = Places(text, number).span
            found = [place(*span) for span in found]
        spans += found
    return spans


def _merged(spans: list[Span]) -> Iterator[Span]:
    """Yield spans in their order, with those that overlap made one."""
    spans.sort()
    start, end = spans[0]
    for other, last in spans:
        if other >= end:
            yield start, end
            start = other
        end = max(end, last)
    yield start, end


def _found(text: str, *, stored: bool, inner: bool = False) -> list[Span]:
    """Return where secrets stand in the text as it is; with `inner`, no encoded words are looked into."""
    spans = _known(text, stored=stored)
    plain = text.encode("ascii", "replace")  # character by character, so places in it are places in the text
    lower = plain.lower().decode()
    for literal, shape in _NAMED:
        if literal in lower:
            spans += _shaped(text, shape, partial(lower.find, literal))
    words = _long_words(plain)
    if not words:
        return spans
    joined = b"\n".join([plain[start - _BEFORE_WORD if start > _BEFORE_WORD else 0 : end] for start, end in words])
    for literal in _key_starts(joined):
        spans += _shaped(text, _KEYS[literal], partial(text.find, literal))
    if not inner:
        seen = joined.decode()
        spans += [span for value in _registry.encoded[stored] if value in seen for span in _all(text, value)]
        spans += [span for span in words if span[1] - span[0] >= _SHORTEST_ENCODED and _hides(text[slice(*span)])]
    return spans


def _key_starts(words: bytes) -> set[str]:
    """Return the literals of the table that keys in these words begin with, and perhaps others."""
    firsts = {word[:2] for word in words.translate(_KEY_WORDS).split()} & _HEADS.keys()
    return {literal for first in firsts for literal in _HEADS[first] if literal.encode() in words}


def _known(text: str, *, stored: bool) -> list[Span]:
    """Return where known values stand, and where a text is cut off behind at least half of one."""
    spans: list[Span] = []
    for value in _registry.values[stored]:
        head = value[:LEAST_OF_A_PART]
        if head not in text:
            continue
        spans += _all(text, value)
        for start, _ in islice(_all(text, head), _MOST_PARTS):
            same = start + sum(1 for _ in takewhile(bool, map(eq, value, text[start : start + len(value)])))
            if (same - start) * 2 >= len(value) and _CUT.match(text, same):
                spans.append((start, same))
    return spans


def _all(text: str, value: str) -> Iterator[Span]:
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)


def _shaped(text: str, shape: Shape, find: Callable[[int], int]) -> Iterator[Span]:
    """Yield where secrets of a row stand; `find` returns where its literal stands next."""
    at, match, refused = find(0), shape.pattern.match, 0
    while at >= 0:
        found = match(text, at)
        end = at + 1
        if found and (span := shape.span(found)):
            yield span
            end = span[1]
        elif found:
            refused += found.end() - at
            # A value that is none may hold another name; but a text full of them is read only so often.
            end = at + 1 if refused < len(text) else found.end()
        at = find(end)


def _long_words(plain: bytes) -> list[Span]:
    """Return the spans of words that are long enough for a key."""
    find = (plain.translate(_WORDS) + b" ").find
    words: list[Span] = []
    start = find(_LONG)
    while start >= 0:
        end = find(b" ", start)
        words.append((start, end))
        start = find(_LONG, end)
    return words


def _hides(word: str) -> bool:
    """Return whether a word is a text with a secret in it, in base64 or in hexadecimal digits, or such a value."""
    word = word.strip("=").rpartition("=")[2].replace("-", "+").replace("_", "/")
    for decode, filled in (
        (binascii.a2b_base64, f"{word[: len(word) - (len(word) % 4 == 1)]}=="),
        (binascii.a2b_hex, word),
    ):
        try:
            if not decode(word[:_SHORTEST_ENCODED]).isascii():  # most words, and all data that is no text
                continue
            text = decode(filled).decode()
        except ValueError:
            continue
        if _found(text, stored=True, inner=True):
            return True
    return False


def _spans_beside(name: str, text: str) -> Iterator[Span]:
    """Yield where secrets stand in a text that is the value of a name."""
    mark = "'" if '"' in text else '"'
    before = f"{mark}{name}{mark}: {mark}"
    for start, end in _found(f"{before}{text}{mark}", stored=True, inner=True):
        if end > len(before):
            yield max(0, start - len(before)), min(end - len(before), len(text))


# -- the end of a growing text -------------------------------------------------------------------------------


def _growing(text: str) -> int:
    """Return where the end of a text begins that may yet become a secret; the length of the text if none may."""
    plain = text.encode("ascii", "replace")
    lower = plain.lower().decode()
    word = max(text.rfind(" "), text.rfind("\n")) + 1
    ends = [len(text), _begun(text)]
    ends += [_grows(text, shape, partial(lower.find, literal), 0) for literal, shape in _NAMED if literal in lower]
    ends += [_grows(text, _KEYS[literal], partial(text.find, literal), word) for literal in _key_starts(plain[word:])]
    encoded = len(plain.translate(_WORDS).rstrip(b"A"))
    if len(text) - encoded >= LEAST_OF_A_PART:
        ends.append(encoded)
    for value in _registry.values[False]:
        if (head := value[:LEAST_OF_A_PART]) in text:
            ends += [at for at, _ in _all(text, head) if value.startswith(text[at:])]
    return min(ends)


def _grows(text: str, shape: Shape, find: Callable[[int], int], start: int) -> int:
    """Return where the text may become a secret of this row, or its length; `find` is that of `_shaped`."""
    at = find(start)
    while at >= 0 and not shape.growing.match(text, at):
        at = find(at + 1)
    return at if at >= 0 else len(text)


def _begun(text: str) -> int:
    """Return where the end of the text is the beginning of a literal of the table or of a value, or its length."""
    for at in range(max(0, len(text) - _LONGEST_START), len(text)):
        end = text[at:]
        if end in _registry.beginnings or end.lower() in _NAMED_BEGINNINGS:
            return at
        if end in _BEGINNINGS and not re.match(KEY, text[at - 1 : at]):
            return at
    return len(text)


# -- values ----------------------------------------------------------------------------------------------------


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as it is decoded, and as it is written where escapes beyond ASCII stay."""
    yield value
    yield decoded(value)
    for written in (json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="", errors="replace")):
        yield written
        yield decoded(written)
    yield quote_plus(value, errors="replace")
    yield repr(value.encode("utf-8", "replace"))[2:-1]


def _encodings(value: str) -> Iterator[str]:
    """Yield a value in hexadecimal digits and in base64, as it stands there behind any other text.

    Base64 writes three bytes as four characters, so there are three spellings. Characters that depend on what
    stands beside the value are left out.
    """
    data = value.encode("utf-8", "replace")
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        written = b64encode(bytes(before) + data).decode()[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield written
        yield written.translate(str.maketrans("+/", "-_"))


def _is_plain(value: str) -> bool:
    return bool(PLAIN.fullmatch(value)) or (bool(re.search(r"[/\\]", value)) and not is_random(value))
