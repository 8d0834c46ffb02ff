"""Stores on disk which MCP servers from configuration files the user has approved.

A project's file can name any program to run on this machine, and the file may be downloaded. So each of its entries is
shown to the user in full once, and again after each change.
"""

from collections.abc import Iterator

from agentmagic.approval_file import ApprovalFile
from agentmagic.errors import ServerError
from agentmagic.platforms import join_command
from agentmagic.secret_shapes import is_random
from agentmagic.secrets import BLANK, is_secret_name, redact
from agentmagic.text import reveal
from agentmagic.tools.mcp.config import (
    CONNECT_TIMEOUT,
    DOWNLOAD_TIMEOUT,
    TIMEOUT,
    Http,
    InProcess,
    Origin,
    ServerConfig,
    Stdio,
    Unreadable,
)


class TrustStore(ApprovalFile):
    """The file in which the user's approvals of MCP servers are stored, by the hash of a server's whole entry."""

    def is_approved(self, origin: Origin) -> bool:
        """Return whether the user has approved a server's entry exactly as it was read from the file."""
        return origin.digest in self.read()

    def approve(self, server: str, config: ServerConfig) -> None:
        """Store the user's approval of a server's entry. It replaces the approval of an earlier version of the entry.

        Raises ServerError if the approval cannot be written.
        """
        if (origin := config.origin) is None:
            return
        entry = {"server": server, "file": str(origin.file), "command": entry_of(config)}
        try:
            self.keep({origin.digest: entry})
        except OSError as error:
            why = error.strerror or str(error)
            raise ServerError(
                f"The approval cannot be kept in {self.path} ({why}), so {server} stays unapproved. Make it writable."
            ) from None

    def before(self, server: str, origin: Origin) -> str:
        """Return, as text, the version of a server's entry that the user approved earlier, or "" without one."""
        return str(self.entry_before({"server": server, "file": str(origin.file)}).get("command", ""))


def describe(config: ServerConfig) -> str:
    """Return the command or URL of a server on one line, with secrets blanked."""
    match config.transport:
        case Stdio(command=command, args=args, env=env, cwd=cwd):
            settings = [f"{name}={_safe(name, value)}" for name, value in env.items()]
            text = join_command([*settings, command, *args]) + (f"  (in {cwd})" if cwd else "")
        case InProcess(server=server):
            text = f"a {type(server).__name__} of this process"
        case Unreadable():
            text = "an entry that cannot be read"
        case address:
            headers = ", ".join(f"{name}: {_safe(name, value)}" for name, value in address.headers.items())
            text = address.url + (f"  (with {headers})" if headers else "")
    return _line(text)


def _safe(name: str, value: str) -> str:
    """Return the value of an environment variable or HTTP header, with secrets blanked."""
    return BLANK if is_secret_name(name) or is_random(value) else redact(value, name=name)


def _line(text: str) -> str:
    """Return a text as a single line, with secrets blanked and invisible characters made visible."""
    return reveal(redact(text), strictly=True)


def question(server: str, config: ServerConfig, store: TrustStore) -> str:
    """Return the text that the user must approve before a server starts.

    It has the server's whole entry, the name of its file, and the version that was approved before, if any.
    """
    if (origin := config.origin) is None:
        return describe(config)
    before = store.before(server, origin)
    change = f"\nIt has changed. Before it was: {before}" if before else ""
    return f"{entry_of(config)}\nThe file {reveal(str(origin.file), strictly=True)} names it.{change}"


def entry_of(config: ServerConfig) -> str:
    """Return everything that a server's entry asks for, one item per line: the command or URL, then its settings."""
    return "\n".join((describe(config), *map(_line, _terms(config))))


def _terms(config: ServerConfig) -> Iterator[str]:
    if isinstance(config.transport, Http):
        yield from _terms_of_address(config.transport)
    lists = {
        "It is given the values of": config.variables,
        "It is told to work in": tuple(map(str, config.roots)),
        "Of its tools, only these are offered": config.only,
        "Of its tools, these are not offered": config.disable,
    }
    yield from (f"{words}: {', '.join(names)}" for words, names in lists.items() if names)
    if config.timeout != TIMEOUT:
        yield f"A call may take: {config.timeout:g} s"
    if config.connect_timeout not in (CONNECT_TIMEOUT, DOWNLOAD_TIMEOUT):
        yield f"Its first answer may take: {config.connect_timeout:g} s"
    if config.unread:
        yield f"Not read of its entry: {config.unread}"
    if config.trust:
        yield "It is trusted: its tools may run without asking you, at a level of permission that says so."
    if config.allow:
        yield f"Without asking you, it may run: {', '.join(config.allow)}"


def _terms_of_address(address: Http) -> Iterator[str]:
    if address.sse:
        yield "It is reached by server-sent events."
    if address.client_id or address.client_secret:
        secret = f", with the secret {BLANK}" if address.client_secret else ""
        yield f"It is authorized as the client {address.client_id}{secret}"
    if address.client_metadata_url:
        yield f"The client is described at: {address.client_metadata_url}"
    if address.callback_port:
        yield f"Its authorization comes back to the port: {address.callback_port}"
