"""What must never be written: keys, tokens and the secrets the user named."""

import re

BLANK = "[redacted]"
SHORTEST = 8
"""Remembered secrets shorter than this are left alone: blanking "abc" would ruin every text."""

_SHAPES = (
    ("sk-", r"[A-Za-z0-9_-]{16,}"),  # OpenAI and compatible servers
    ("AIza", r"[A-Za-z0-9_-]{30,}"),  # Google API keys
    *((f"gh{kind}_", r"[A-Za-z0-9]{30,}") for kind in "pousr"),
    ("github_pat_", r"[A-Za-z0-9_]{30,}"),
    ("hf_", r"[A-Za-z0-9]{30,}"),
    *((f"xox{kind}-", r"[A-Za-z0-9-]{10,}") for kind in "abpr"),
    ("AKIA", r"[A-Z0-9]{16}\b"),
)
"""How keys begin, and what follows."""


def _key(start: str, rest: str) -> re.Pattern[str]:
    """Compile the shape of a key.

    No key begins in the middle of a base64url word: the opaque data of a provider may hold "-sk-" by chance,
    and must go back to it as it came. This is checked after the start, so that the start is searched for at once.
    """
    return re.compile(rf"{start}(?<![A-Za-z0-9_-]{start}){rest}")


_PATTERNS = (
    # A token may hold whatever the shapes of keys hold, so it is blanked whole before they are looked for.
    *(
        (f"{word} ", re.compile(rf"{word} [A-Za-z0-9._~+/=-]{{16,}}"), f"{word} {BLANK}")
        for word in ("Bearer", "bearer")
    ),
    *((start, _key(start, rest), BLANK) for start, rest in _SHAPES),
)
"""What is in every match and found fastest, the pattern, and what stands in for a match."""

_secrets: set[str] = set()


def remember(secret: str) -> None:
    """Blank this text wherever agentmagic writes from now on."""
    if len(secret) >= SHORTEST:
        _secrets.add(secret)


def redact(text: str) -> str:
    """Return the text with every known secret, and everything shaped like a key, blanked."""
    for secret in sorted(_secrets.copy(), key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, BLANK)
    for start, pattern, blank in _PATTERNS:
        if start in text:
            text = pattern.sub(blank, text)
    return text
