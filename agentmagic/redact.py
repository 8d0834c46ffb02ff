"""What must never be written: keys, tokens and the secrets the user named."""

import re

BLANK = "[redacted]"
SHORTEST = 8
"""Remembered secrets shorter than this are left alone: blanking "abc" would ruin every text."""

# No key begins in the middle of a base64url word: the opaque data of a provider may hold "-sk-" by chance,
# and must go back to it as it came.
_PATTERNS = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-[A-Za-z0-9_-]{16,}"  # OpenAI and compatible servers
    r"|AIza[A-Za-z0-9_-]{30,}"  # Google API keys
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|hf_[A-Za-z0-9]{30,}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|AKIA[A-Z0-9]{16}\b"
    r")|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{16,}"
)
_HINTS = ("sk-", "AIza", "gh", "hf_", "xox", "AKIA", "earer ")
"""One of these is in all that the patterns match, and is found much faster."""

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
    return _PATTERNS.sub(BLANK, text) if any(hint in text for hint in _HINTS) else text
