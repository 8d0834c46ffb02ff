"""What goes wrong between us and a server, in words that say what to do."""

from typing import cast

from agentmagic.tools.mcp.config import Http, Sse, Stdio, Transport
from agentmagic.tools.mcp.words import line

CLOSED = "Connection closed"
_LOST = frozenset({CLOSED, "Session not found", "Session terminated"})
_TRANSPORTS = frozenset({"anyio", "httpx2", "httpcore2"})
_REFUSED = frozenset({401, 403})
_FIRST_FAILURE = 400


def leaf(error: BaseException) -> BaseException:
    """Return the first error inside nested groups; task groups wrap whatever a transport raises."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_lost(error: BaseException) -> bool:
    """Whether this error of a call says that the connection is of no more use.

    The code of a closed connection, -32000, is also what many servers give to errors of their own, and a
    server that was restarted answers "Session not found" for ever: the mcp library's words decide.
    """
    from mcp import MCPError

    if isinstance(error, MCPError):
        return error.message in _LOST
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORTS


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered, with an error."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_lost(error)


def is_misshapen(error: BaseException) -> bool:
    """Whether what the server answered has not the form it should: the mcp library says so at length."""
    from mcp import MCPError, types
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        return error.code == types.PARSE_ERROR and "validation error" in error.message
    return isinstance(error, ValidationError)


def reason(transport: Transport, error: BaseException, status: int = 0) -> str:
    """Say why a server cannot be used; `status` is that of its last answer over HTTP, 0 for none."""
    from pydantic import ValidationError

    error = leaf(error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = line(".".join(str(step) for step in first["loc"]), 200)
        return f"what it sent is not MCP ({where}: {line(first['msg'], 200)}); report this to its makers"
    match transport:
        case Stdio() if said := _of_program(transport, error):
            return said
        case Http() | Sse() if said := _of_address(transport, error, status):
            return said
        case _ if str(error) == CLOSED:
            return "it ended without an answer"
        case _:
            return f"{type(error).__name__}: {line(str(error), 500)}".rstrip(".: ")


def _of_program(program: Stdio, error: BaseException) -> str | None:
    match error:
        case FileNotFoundError():
            return f"command not found: {program.command}; install it or correct the command"
        case PermissionError():
            return f"{program.command} may not be executed; check its permissions"
        case NotADirectoryError():
            return str(error)
        case _:
            return None


def _of_address(server: Http | Sse, error: BaseException, status: int) -> str | None:
    answered = getattr(error, "response", None) is not None
    if type(error).__module__.startswith("httpx2") and not answered:
        return f"{server.url} cannot be reached ({type(error).__name__}); check the URL and that the server runs"
    if status in _REFUSED:
        return f"{server.url} refused the connection (HTTP {status}); check the headers of its entry"
    if status >= _FIRST_FAILURE:
        return f"{server.url} answered HTTP {status}; check the URL"
    return None
