"""Reads the addresses of servers as people write them, and puts the addresses of requests together."""

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from agentmagic.text import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2

_AROUND = " \t\r\n\"'`<>"
"""Characters that come along when an address is copied from a text or a file."""


def bare(url: str) -> str:
    """Return an address without blanks, quotes or brackets around it, and without a fragment."""
    return url.strip(_AROUND).partition("#")[0]


def tidy(url: str) -> str:
    """Return an address as `bare` does. An address of this machine may lack the scheme, which is `http` then."""
    url = bare(url)
    return f"http://{url}" if url and "://" not in url and is_loopback(f"http://{url}") else url


def without_ending(url: str, ending: re.Pattern[str]) -> str:
    """Return an address whose path lacks what `ending` finds at its end, and the slash before it; the query stays.

    Use it for the parts of a path that a client adds by itself, but people copy along.
    """
    base, query = split_query(url)
    at = base.find("/", base.find("://") + 3)
    path = base[at:].rstrip("/") if at >= 0 else ""
    if match := ending.search(path):
        base = f"{base[:at]}{path[: match.start()].rstrip('/')}"
    return f"{base}?{query}" if query else base


def split_query(url: str) -> tuple[str, str]:
    """Return an address without its query, and the query. Gateways want one with each request: `?api-version=...`."""
    base, _, query = url.partition("?")
    return base, query


def join(url: str, path: str) -> str:
    """Return an address whose path is longer by `path`; a query stays at the end."""
    base, query = split_query(url)
    return f"{base.rstrip('/')}{path}{f'?{query}' if query else ''}"


def shown(url: str) -> str:
    """Return an address for a message: without its query, user name and password, which can be secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an incomplete IPv6 address
        return split_query(url)[0]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def adding_query(query: str, host: str) -> "Callable[[httpx2.Request], Awaitable[None]]":
    """Return an event hook that adds a query to each request to a host, and so not after a redirect elsewhere.

    What the client asks for itself, such as `alt=sse`, stays.
    """

    async def add(request: "httpx2.Request") -> None:
        if request.url.host == host:
            own = request.url.query.decode()
            names = {one.partition("=")[0] for one in own.split("&")}
            more = (one for one in query.split("&") if one.partition("=")[0] not in names)
            # As it was written: httpx2's own way to add parameters would write "%20" as "+".
            request.url = request.url.copy_with(query="&".join(filter(None, (own, *more))).encode())

    return add
