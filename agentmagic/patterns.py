"""The patterns with which a teacher's or an administrator's settings name models, addresses and MCP servers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

IN_PROCESS = "in-process"
"""The entry in the setting `servers` for a server object of this process, which has no command and no address."""

_URL = re.compile(r"(https?://[^/?#@\\\s]+)([/?#][^\\\s]*)?", re.IGNORECASE)
"""A URL without user and backslash, so that all HTTP clients agree on what its host is."""
_ORIGIN = re.compile(r"\A[^:/?#]+://[^/?#]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPattern:
    """The configuration entry of an MCP server, or a pattern for the entries that a teacher or administrator allows.

    `address` is the command line or the URL; `cwd` is the folder in which the program starts, "" for the kernel's.
    `pairs` are the environment variables of the program, or the headers of the HTTP requests, by name.
    """

    address: str
    cwd: str = ""
    pairs: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def allows(self, entry: "EntryPattern") -> bool:
        """Return whether all fields of an entry match this pattern."""
        return (
            is_address(entry.address, self.address)
            and fits_pattern(entry.cwd, self.cwd)
            and all(name in self.pairs and fits_pattern(text, self.pairs[name]) for name, text in entry.pairs.items())
        )

    def __str__(self) -> str:
        # `pairs` gives only names here: the values of variables and headers may be secrets
        return ", ".join([self.address, *([f"cwd {self.cwd}"] if self.cwd else []), *self.pairs])


def fits_pattern(text: str, pattern: str) -> bool:
    """Return whether the whole text matches a pattern, in which `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def lower_host(url: str) -> str:
    """Return a URL with its scheme and host in lower case, because case does not matter there in a comparison."""
    return _ORIGIN.sub(lambda match: match[0].lower(), url)


def is_at(address: str | None, pattern: str) -> bool:
    """Return whether a pattern matches an address as `is_address` does, or with another slash at the end.

    An unknown address (None) is not matched by any pattern.
    """
    return address is not None and is_address(address.rstrip("/"), pattern.rstrip("/"))


def is_address(address: str, pattern: str) -> bool:
    """Return whether a command line or a URL matches a pattern.

    A `*` in the host of a URL pattern matches only characters of the host. The pattern `*` alone matches everything.
    """
    if pattern == "*":
        return True
    if "://" not in pattern:
        return fits_pattern(address, pattern) and "://" not in address.partition(" ")[0]
    url = _URL.fullmatch(address)
    if url is None or ".." in unquote(url[2] or ""):
        return False
    host, slash, path = pattern.partition("://")[2].partition("/")
    scheme = pattern.partition("://")[0]
    return fits_pattern(url[1].lower(), f"{scheme}://{host}".lower()) and fits_pattern(
        (url[2] or "/").removeprefix("/"), path if slash else ""
    )
