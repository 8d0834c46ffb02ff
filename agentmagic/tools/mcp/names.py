"""The names of MCP servers, and the names by which the model calls their tools.

A tool keeps its own name if every provider accepts the name and no other server has a tool of that name. Otherwise the
name becomes `alias__name`. The alias is the user's name for the server, never the server's name for itself. A tool
whose own name begins with the alias of another server is renamed too, so that it cannot pass for a tool of that server.
"""

import hashlib
import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast
from urllib.parse import urlsplit

from agentmagic.errors import ConfigError
from agentmagic.messages import NOTEBOOK
from agentmagic.platforms import split_command
from agentmagic.text import single_line

LONGEST_ALIAS = 100  # Maximum number of characters in the name of a server.
LONGEST = 64  # Maximum number of characters in the name of a tool, as the strictest provider requires.

_LEGAL = re.compile(rf"[a-zA-Z_][a-zA-Z0-9_-]{{0,{LONGEST - 1}}}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
# Words of a command that are skipped when a server's name is made from the command that starts it.
_RUNNERS = frozenset(
    {"npx", "uvx", "bunx", "pnpx", "pipx", "uv", "bun", "pnpm", "npm", "deno", "docker", "podman", "node", "env"}
    | {"sh", "bash", "cmd", "python", "python3", "py", "run", "exec", "dlx", "tool", "x"}
)
_FILLERS = frozenset({"mcp", "server", "servers", "modelcontextprotocol", "stdio"})
_ANYWHERE = _FILLERS | {"index", "main", "cli", "app", "dist", "build", "src", "bin", "lib"}
_WEB_FILLERS = _FILLERS | {"www", "api", "http", "https"}
_VERSION = re.compile(r"(?<=.)(?:@|==|:)[^/]*$")
_PROGRAM = re.compile(r"\.(?:py|js|mjs|cjs|ts|exe|cmd|sh)$")


def visible_names(listings: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """Return the unique name that the model sees for each tool, by pairs (alias, tool).

    An alias is the user's name for a server. `listings` has the names of each server's tools, by alias. The result does
    not depend on the order of the servers and tools.
    """
    pairs = list(dict.fromkeys((alias, tool) for alias, tools in listings.items() for tool in tools))
    owners = Counter(tool for _, tool in pairs)
    plain = {pair: pair[1] for pair in pairs if owners[pair[1]] == 1 and _may_stay(*pair, listings)}
    long_names = {pair: _with_alias(*pair) for pair in pairs if pair not in plain}
    claims = Counter((*plain.values(), *long_names.values()))
    unique = {pair: name for pair, name in long_names.items() if claims[name] == 1 and len(name) <= LONGEST}
    names = plain | unique
    in_use = set(names.values())
    for pair in pairs:
        if pair not in names:
            name = _with_hash(long_names[pair], *pair)
            while name in in_use:  # The name can be in use by chance, or because a server chose it.
                name = _with_hash(name, name, *pair)
            names[pair] = name
            in_use.add(name)
    return {pair: names[pair] for pair in pairs}


def _may_stay(alias: str, tool: str, aliases: Iterable[str]) -> bool:
    """Return whether a tool may keep its own name: the name is valid, and begins with no other server's alias."""
    passes = any(tool.startswith(_with_alias(other, "")) for other in aliases if other != alias)
    return _LEGAL.fullmatch(tool) is not None and not passes


def _with_alias(alias: str, tool: str) -> str:
    name = _ILLEGAL.sub("_", f"{alias}__{tool}")
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"


def _with_hash(name: str, *of: str) -> str:
    digest = hashlib.sha256("\0".join(of).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]}_{digest}"


def alias(entry: object) -> str:
    """Return a short name for a server that has no name in its entry: "npx -y server-files" becomes "files"."""
    match entry:
        case str() if "://" in entry:
            return _from_url(entry)
        case str():
            return _from_command(_split(entry))
        case {"url": str() as url}:
            return _from_url(url)
        case {"command": str() as command}:
            args: Iterable[object] = cast("Mapping[str, Any]", entry).get("args") or ()
            return _from_command([command, *map(str, args)])
        case _:
            name = getattr(entry, "name", None) or getattr(entry, "command", None)
            return _ILLEGAL.sub("-", name).strip("-") or "server" if isinstance(name, str) else "server"


def check(name: str) -> None:
    """Raise ConfigError for an invalid server name. A name is shown on one line in questions, rules and lists."""
    if name.casefold() == NOTEBOOK:
        raise ConfigError(f"A server cannot be called {name!r}: so is where functions live. Give it another name.")
    if not name.strip() or name != single_line(name, LONGEST_ALIAS):
        raise ConfigError(
            f"A server cannot be called {name!r:.120}. Give it a name of up to {LONGEST_ALIAS} characters on one line."
        )


def unused_name(name: str, existing: Collection[str]) -> str:
    """Return the name, with a number appended if the name is already in use."""
    number = 1
    candidate = name
    while candidate in existing:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _split(line: str) -> list[str]:
    try:
        return split_command(line)
    except ValueError:
        return line.split()


def _from_command(words: Sequence[str]) -> str:
    candidates = [_base(word) for word in words if not word.startswith("-")]
    telling = [word for word in candidates if _FILLERS & set(_parts(word))]
    others = [word for word in candidates if word and word not in _RUNNERS]
    for word in (*telling, *others):
        if short := "-".join(part for part in _parts(word) if part not in _FILLERS):
            return short
    return "server"


def _base(word: str) -> str:
    """Return the part of a path that names a server. For a general name such as "server.py", it is a folder above."""
    *folders, last = PurePosixPath(word.replace("\\", "/")).parts or ("",)
    parts = [*folders, _PROGRAM.sub("", _VERSION.sub("", last))]
    while len(parts) > 1 and _ANYWHERE.issuperset(_parts(parts[-1].lower())):
        parts.pop()
    return parts[-1].lower()


def _parts(word: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", word) if part]


def _from_url(url: str) -> str:
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:  # The URL is invalid: the module `config` raises the error when it parses the entry.
        return "server"
    labels = host.split(".")[:-1] if "." in host and not _is_address(host) else [host]
    words = [label for label in labels if label and label not in _WEB_FILLERS]
    return "-".join(_parts("-".join(words))) or "server"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
