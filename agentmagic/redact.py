"""What must never be written: keys, tokens and the secrets the user named."""

import re

BLANK = "[redacted]"
SHORTEST = 8
"""Remembered secrets shorter than this are left alone: blanking "abc" would ruin every text."""

_PATTERNS = re.compile(
    r"\bsk-[A-Za-z0-9_-]{16,}"  # OpenAI and compatible servers
    r"|\bAIza[A-Za-z0-9_-]{30,}"  # Google API keys
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
    r"|\bhf_[A-Za-z0-9]{30,}"
    r"|\bxox[abpr]-[A-Za-z0-9-]{10,}"
    r"|\bAKIA[A-Z0-9]{16}\b"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{16,}"
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
