"""The weights from the Hugging Face hub: a plain HTTPS download that continues where it broke off."""

import http.client
import os
import threading
import urllib.error
import urllib.request
from pathlib import Path

from agentmagic.providers.local.weights import BLOCK, FILE, REPOSITORY, Progress, SourceFailed, check, size

NAME = "huggingface.co"
TIMEOUT = 10.0
"""Seconds to wait for a connection, and for more bytes on it."""


def url() -> str:
    """Return where the weights are; `HF_ENDPOINT` names a mirror."""
    endpoint = os.environ.get("HF_ENDPOINT") or f"https://{NAME}"
    return f"{endpoint.rstrip('/')}/{REPOSITORY}/resolve/main/{FILE}"


def download(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    """Download into `target`, behind the bytes it has, until it has `total`.

    A connection that breaks is opened again as long as each brings bytes. Raises SourceFailed and Stopped.
    """
    while (before := size(target)) < total:
        reason = "the connection closed early"
        try:
            _continue(target, total, progress, stop)
        except (OSError, http.client.HTTPException) as error:
            reason = _reason(error)
        if size(target) <= before:
            raise SourceFailed(reason)


def _continue(target: Path, total: int, progress: Progress, stop: threading.Event) -> None:
    have = size(target)
    request = urllib.request.Request(url(), headers={"Range": f"bytes={have}-"})  # noqa: S310  (a fixed https URL, or the user's)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
        if response.status != http.client.PARTIAL_CONTENT:
            have = 0  # this server sends the whole file again
        with target.open("r+b" if have else "wb") as file:
            file.seek(have)
            while have < total and (block := response.read(min(BLOCK, total - have))):
                check(stop)
                file.write(block)
                have += len(block)
                progress(have, total, NAME)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    return str(getattr(error, "reason", error)) or type(error).__name__
