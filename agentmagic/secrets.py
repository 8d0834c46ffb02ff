"""Secrets: text that is never shown, logged or saved. One registry for the whole process.

A secret is known by its value or by its shape, and `redact` puts `[redacted]` in its place.

- Certain values: those given to `register_secret`, those of variables with an exact name (`register_names`), and those
  of variables that are named like a secret and look random.
- Likely values: the others of variables that are named like a secret. Such a name can be a coincidence (`SORT_KEY`).
- Shapes: keys of known services, tokens in headers, passwords in addresses.

Likely values are blanked where people read: screens, logs, errors, exports. A journal keeps them, because a model reads
the journal again after a reload, and a wrong guess must not damage what it reads.
"""

import json
import re
import threading
from base64 import b64decode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote

from agentmagic.errors import UsageError

BLANK = "[redacted]"
SHORTEST = 8
"""Characters of the shortest value that is blanked: blanking "abc" would ruin every text."""
LONGEST_HELD = 10_000
"""Characters at the end of a growing text in which the beginning of a shape is looked for."""
TELLING_NOTHING = 3
"""Characters of a secret that may be seen."""
LEAST_OF_A_PART = 12
"""Characters of the beginning of a value that are blanked at the end of a text."""
LONGEST_WORD = 15
"""Letters of a plain word, about; what is longer and has no other character can be a password made of letters."""

_KEY = "[A-Za-z0-9_-]"
_LETTERS = "[A-Za-z0-9]"
_MIXED = rf"(?={_KEY}*(?:[A-Za-z]\d|\d[A-Za-z]|{_LETTERS}{{20}}))"
"""What must be true of a key that may hold hyphens: otherwise "sk-learn-compatible-estimators" would be a key."""
_SHAPES = (
    ("sk-", _KEY, 16, _MIXED),  # OpenAI and compatible servers
    ("sk_live_", _LETTERS, 16, ""),  # Stripe
    ("rk_live_", _LETTERS, 16, ""),
    ("AIza", _KEY, 30, ""),  # Google: API keys, then access tokens
    ("AQ.", _KEY, 20, _MIXED),
    ("ya29.", "[A-Za-z0-9._-]", 20, ""),
    *((f"gh{kind}_", _LETTERS, 30, "") for kind in "pousr"),
    ("github_pat_", "[A-Za-z0-9_]", 30, ""),
    ("glpat-", "[A-Za-z0-9._-]", 16, _MIXED),
    ("hf_", _LETTERS, 30, ""),
    ("gsk_", _LETTERS, 30, ""),  # Groq
    ("npm_", _LETTERS, 30, ""),
    ("pypi-", _KEY, 30, _MIXED),
    *((f"xox{kind}-", "[A-Za-z0-9-]", 10, "") for kind in "abpr"),
    ("AKIA", "[A-Z0-9]", 16, ""),
)
"""How keys begin, which characters follow, how many at least, and what must be true of them."""
_JWT = (rf"{_KEY}{{8,}}\.eyJ{_KEY}{{8,}}\.{_KEY}{{8,}}", rf"{_KEY}*(?:\.{_KEY}*){{0,2}}")
_TOKEN = "[A-Za-z0-9._~+/=-]"  # noqa: S105  (characters of a token)
_ADDRESS = re.compile(r"(://[^\s/:@]*:)(?![\[{<$*%]|(?:pass(?:word|wd)?|pwd|secret)@)[^\s/@]+(?=@)")
"""The password in an address, of a database for example; placeholders are none."""


def _key(start: str, rest: str) -> re.Pattern[str]:
    """Compile the shape of a key. The start is a literal, so that it is searched for at once.

    No key begins in the middle of a base64url word: the opaque data of a provider may hold "-sk-" by chance,
    and must go back to the provider as it came.
    """
    start = re.escape(start)
    return re.compile(rf"{start}(?<!{_KEY}{start}){rest}")


def _begun(start: str, rest: str) -> str:
    """Return a pattern of the beginnings of `start`, and of all of it with `rest` behind it."""
    for character in reversed(start):
        rest = f"{re.escape(character)}(?:{rest})?"
    return rest


_PATTERNS = (
    # A token may hold what the shapes of keys hold, so it is blanked whole before they are looked for.
    *(
        (f"{word} ", re.compile(rf"({word} )(?={_TOKEN}*(?:\d|[A-Za-z]{{20}})){_TOKEN}{{16,}}"))
        for word in ("Bearer", "bearer")
    ),
    *((f"{word} ", re.compile(rf"({word} )([A-Za-z0-9+/]{{4,}}={{0,2}})")) for word in ("Basic", "basic")),
    ("://", _ADDRESS),
    ("eyJ", _key("eyJ", _JWT[0])),
    *((start, _key(start, f"{mixed}{kind}{{{least},}}")) for start, kind, least, mixed in _SHAPES),
)
"""A text that is in every match and is found fast, and the pattern; its first group stays."""

_ENDS = (
    *(_begun(f"{word} ", f"{_TOKEN}*") for word in ("Bearer", "bearer", "Basic", "basic")),
    _begun("://", r"[^\s/:@]*(?::[^\s/@]*)?"),
    *(rf"(?<!{_KEY}){_begun(start, f'{kind}*')}" for start, kind, _, _ in _SHAPES),
    rf"(?<!{_KEY}){_begun('eyJ', _JWT[1])}",
)
_GROWING = re.compile(rf"(?:{'|'.join(_ENDS)})\Z")
"""The end of a text that may be the beginning of a shape."""

_NAME = re.compile(
    r"key|(?:access|api|auth|refresh)?token|secrets?|(?:access|private|secret)key|.*(?:apikey|passw(?:or)?d)"
    r"|pass(?:phrase|code)|pwd|credentials?|authorization|cookie"
)
"""Words of the names of secrets."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PLAIN = re.compile(
    rf"[a-z]{{1,{LONGEST_WORD}}}|[A-Z][a-z]{{1,{LONGEST_WORD}}}|[A-Z]{{1,{LONGEST_WORD}}}"  # a word
    r"|[-+\d.,:_/ TZ]+"  # a number, a date, a version
    r"|(?:\.{1,2}|~|[A-Za-z]:)?[/\\].*|\w+://.*|\$\{.*\}|<.*>",  # a path, an address, a placeholder
    re.DOTALL,
)
_SWITCH = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|\d(?=[A-Za-z])")
_LEAST_RANDOM = 16


class _Registry:
    """The values that were registered; any thread may add one.

    `values` are sorted, the longest first, because one value may be the beginning of another. Its keys say whether
    only the certain values are meant.
    """

    def __init__(self) -> None:
        self._certain: set[str] = set()
        self._likely: set[str] = set()
        self._lock = threading.Lock()
        self.values: dict[bool, list[str]] = {True: [], False: []}

    def add(self, value: str, *, certain: bool) -> None:
        kind = self._certain if certain else self._likely
        with self._lock:  # else a thread could put older lists in the place of newer ones
            if value in kind:
                return
            kind.update(_spellings(value))
            self.values = {
                only: sorted(values, key=len, reverse=True)
                for only, values in ((True, self._certain), (False, self._certain | self._likely))
            }


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
    for address in _ADDRESS.finditer(value) if "://" in value else ():
        learn("password", address[0].removeprefix(address[1]))
    certain = certain or name in _names
    if not certain and not is_secret_name(name):
        return
    for secret in (value, value.rpartition(" ")[2]):
        if len(secret) >= SHORTEST and not _is_plain(secret):
            _registry.add(secret, certain=certain or _is_random(secret))


@lru_cache(maxsize=1000)
def is_secret_name(name: str) -> bool:
    """Return whether a word of the name of a variable, header or option names a secret."""
    return any(_NAME.fullmatch(word.lower()) for word in _WORD.findall(name))


def redact(text: str, *, stored: bool = False) -> str:
    """Return the text with every secret blanked; with `stored`, likely values stay.

    A value that is cut off at the end of the text is blanked too, if at least half of it is there.
    """
    for value in _registry.values[stored]:
        if value in text:
            text = text.replace(value, BLANK)
        place = text.find(value[:LEAST_OF_A_PART], max(0, len(text) - len(value) + 1))
        if place >= 0 and value.startswith(text[place:]) and (len(text) - place) * 2 >= len(value):
            text = text[:place] + BLANK
    for start, pattern in _PATTERNS:
        if start in text:
            text = pattern.sub(_blanked, text)
    return text


def held(text: str, start: int = 0) -> int:
    """Return where the end of a growing text begins that may yet become a secret; the length of the text if none may.

    Nothing before `start` is looked at. A shape has no space in it, except behind "Bearer" and "Basic".
    """
    word = max(text.rfind(" "), text.rfind("\n")) - len("Bearer")
    found = _GROWING.search(text, max(start, word, len(text) - LONGEST_HELD))
    end = found.start() if found else len(text)
    for value in _registry.values[False]:
        place = text.find(value[0], max(start, len(text) - len(value) + 1), end)
        while place >= 0 and not value.startswith(text[place:]):
            place = text.find(value[0], place + 1, end)
        end = place if place >= 0 else end
    return end


def settled(text: str, start: int = 0) -> str:
    """Return a growing text without an end that may yet become a secret; an end of a few characters tells nothing."""
    end = held(text, start)
    return text[:end] if len(text) - end > TELLING_NOTHING else text


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, and as it stands in JSON, in Python source and in an address."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield quote(value, safe="", errors="replace")


def _blanked(match: re.Match[str]) -> str:
    before = match[1] if match.re.groups else ""
    if before.lower() == "basic " and not _is_credentials(match[2]):
        return match[0]
    return f"{before}{BLANK}"


def _is_credentials(word: str) -> bool:
    """Return whether a word is "user:password" in base64."""
    try:
        return ":" in b64decode(word, validate=True).decode()
    except ValueError:
        return False


def _is_plain(value: str) -> bool:
    return bool(_PLAIN.fullmatch(value)) or (bool(re.search(r"[/\\]", value)) and not _is_random(value))


def _is_random(value: str) -> bool:
    """Return whether a value looks random: its kinds of characters change all the time."""
    return len(value) >= _LEAST_RANDOM and len(_SWITCH.findall(value)) * 3 >= len(value)
