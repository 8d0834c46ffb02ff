"""The OpenMP library that xllamacpp needs, for a machine that has none.

The wheels of xllamacpp expect `libgomp.so.1` on the machine. A minimal Debian or Ubuntu, as in most containers, does
not have it. The extra `local` installs pykdtree on Linux, because its small wheel contains a copy of GCC's libgomp.
Nothing else of pykdtree is used.
"""

import ctypes
import os
import sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

NAME = "libgomp.so.1"
CARRIER = "pykdtree"


def load() -> bool:
    """Load the copy of libgomp that pykdtree contains, and return whether that worked.

    From then on the dynamic linker uses it for every library of this process that needs `libgomp.so.1`.
    """
    path = _carried()
    if path is None or sys.platform != "linux":
        return False
    try:
        with os.fdopen(os.memfd_create(NAME), "wb") as file:
            file.write(_with_common_name(path))
            file.flush()
            ctypes.CDLL(f"/proc/self/fd/{file.fileno()}")
    except OSError:  # no /proc, or a library for another machine
        return False
    return True


def _carried() -> Path | None:
    try:
        found = files(CARRIER) or []
    except PackageNotFoundError:
        return None
    return next((Path(file.locate()) for file in found if file.name.startswith("libgomp")), None)


def _with_common_name(path: Path) -> bytes:
    """Return the content of a library that a wheel's tools renamed to `path.name`, with its first name again.

    The dynamic linker compares the name inside a loaded library with the name that xllamacpp needs.
    """
    renamed = path.name.encode() + b"\0"
    return path.read_bytes().replace(renamed, NAME.encode().ljust(len(renamed), b"\0"))
