"""Errors between us and a server, in words that say what to do."""

from typing import cast

from agentmagic.text import one_line
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.config import Http, Sse, Stdio, Transport

CLOSED = "Connection closed"
_LOST = frozenset({CLOSED, "Session not found", "Session terminated"})
_TRANSPORTS = frozenset({"anyio", "httpx2", "httpcore2"})
_REFUSED = frozenset({401, 403})
_FIRST_FAILURE = 400


def is_lost(error: BaseException) -> bool:
    """Return whether an error of a request means that the connection cannot be used any more."""
    from mcp import MCPError

    if isinstance(error, MCPError):
        # The words decide, not the code: servers use the code of a closed connection, -32000, for other errors too,
        # and a server that was restarted answers every request with "Session not found".
        return error.message in _LOST
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORTS


def is_refusal(error: BaseException) -> bool:
    """Return whether the server answered with an error."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_lost(error)


def is_misshapen(error: BaseException) -> bool:
    """Return whether the server's answer does not have the form of MCP; the library's own words for it are long."""
    from mcp import MCPError, types
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        return error.code == types.PARSE_ERROR and "validation error" in error.message
    return isinstance(error, ValidationError)


def reason(transport: Transport, error: BaseException, status: int = 0) -> str:
    """Return why a server cannot be used; `status` is that of its last answer over HTTP, 0 if there was none."""
    from pydantic import ValidationError

    while isinstance(error, BaseExceptionGroup):  # task groups wrap the error of a transport
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = one_line(".".join(str(step) for step in first["loc"]), 200)
        return f"what it sent is not MCP ({where}: {one_line(first['msg'], 200)}); report this to its makers"
    said: str | None = None
    match transport, error:
        case Stdio(), FileNotFoundError():
            said = f"command not found: {transport.command}; install it or correct the command"
        case Stdio(), PermissionError():
            said = f"{transport.command} may not be executed; check its permissions"
        case Stdio(), NotADirectoryError():
            said = str(error)
        case Http() | Sse(), _:
            said = _http_reason(transport, error, status)
        case _:
            pass
    if said is None and str(error) == CLOSED:
        said = "it ended without an answer"
    return said or f"{type(error).__name__}: {one_line(str(error), limits.ERROR)}".rstrip(".: ")


def _http_reason(server: Http | Sse, error: BaseException, status: int) -> str | None:
    answered = getattr(error, "response", None) is not None
    if type(error).__module__.startswith("httpx2") and not answered:
        return f"{server.url} cannot be reached ({type(error).__name__}); check the URL and that the server runs"
    if status in _REFUSED:
        return f"{server.url} refused the connection (HTTP {status}); check the headers of its entry"
    if status >= _FIRST_FAILURE:
        return f"{server.url} answered HTTP {status}; check the URL"
    return None
