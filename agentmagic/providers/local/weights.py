"""The weights of the local model: which file they are, where it can be on this machine, and how it is checked."""

import hashlib
from functools import lru_cache
from pathlib import Path

from agentmagic.errors import ProviderError
from agentmagic.settings import variable

REPOSITORY = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF"
FILE = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SIZE = 1_117_320_768
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
"""The hash that the maker of the model published for `FILE` in `REPOSITORY`. Weights with another hash are refused."""

GIVEN = "AGENTMAGIC_LOCAL_MODEL"
CACHE = "AGENTMAGIC_CACHE"


def cache() -> Path:
    """Return the folder of fetched models: `$AGENTMAGIC_CACHE/models`, or one in the user's cache folder."""
    if given := variable(CACHE):
        return Path(given).expanduser() / "models"
    from platformdirs import user_cache_path

    return user_cache_path("agentmagic", appauthor=False) / "models"


def find() -> Path | None:
    """Return the path of the weights if they are on this machine.

    Raises ProviderError if `AGENTMAGIC_LOCAL_MODEL` names a file that is not the weights.
    """
    if given := variable(GIVEN):
        return _given(Path(given).expanduser())
    # A size is enough for these two: a file gets its name there only after its hash was checked.
    return next((path for path in (cache() / FILE, _hub_blob()) if size(path) == SIZE), None)


def _given(path: Path) -> Path:
    if not path.is_file():
        raise ProviderError(
            f"{GIVEN} names {path}, and there is no such file. Set it to the path of {FILE}, or unset it."
        )
    if size(path) != SIZE or _digest(path, path.stat().st_mtime_ns) != SHA256:
        raise ProviderError(
            f"{GIVEN} names {path}, which is not {FILE} of {REPOSITORY}. Use other weights as local:{path}."
        )
    return path


@lru_cache(maxsize=4)
def _digest(path: Path, modified: int) -> str:  # noqa: ARG001  (a part of the key: a changed file is read again)
    return sha256(path)


def _hub_blob() -> Path:
    """Return the path at which the tools of Hugging Face keep a file with this hash."""
    home = Path(variable("HF_HOME") or "~/.cache/huggingface")
    folder = Path(variable("HF_HUB_CACHE") or home / "hub").expanduser()
    return folder / f"models--{REPOSITORY.replace('/', '--')}" / "blobs" / SHA256


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if there is no such file."""
    return path.stat().st_size if path.is_file() else 0
