"""Errors between us and a server, in words that say what to do."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import cast

from agentmagic.providers.proxies import route_fault
from agentmagic.text import clean, one_line, written_json
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.config import Http, Stdio, Transport

CLOSED = "Connection closed"
FORGOTTEN = "Session not found"
HTTP_FAILED = -32011  # our JSON-RPC code, from the range left to implementations, for an answer that is not MCP
_LOST = frozenset({CLOSED, FORGOTTEN, "Session terminated"})
_TRANSPORTS = frozenset({"anyio", "httpx2", "httpcore2"})
_REFUSED = {401: "it wants a valid token", 403: "it does not permit this to who asks"}
_TOO_MANY = 429
_FIRST_FAILURE, _FIRST_FAULT = 400, 500
_SPOKEN = frozenset({"application/json", "text/event-stream"})


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


def said(error: BaseException) -> str:
    """Return what an error says, with the `data` of a server's error behind its message."""
    from mcp import MCPError, types

    words = clean(str(error)[: limits.FAILURE])
    if not isinstance(error, MCPError) or error.data is None or error.code == types.URL_ELICITATION_REQUIRED:
        return words
    return f"{words} ({one_line(written_json(error.data), limits.ERROR)})"


def http_problem(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Return what is wrong with an answer over HTTP, judged by its status and type; None if it can be MCP."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if status in _REFUSED:
        return f"{url} refused the connection (HTTP {status}); check the headers of its entry: {_REFUSED[status]}"
    if status == _TOO_MANY:
        wait = one_line(headers.get("Retry-After", ""), 40)
        return (
            f"{url} answered HTTP 429, too many requests; try again {f'after {wait} s' if wait.isdigit() else 'later'}"
        )
    if status >= _FIRST_FAULT:
        return f"{url} answered HTTP {status}: the server has failed or is overloaded; try again later"
    if status >= _FIRST_FAILURE:
        return f"{url} answered HTTP {status}; check the URL"
    if status == HTTPStatus.OK and kind not in _SPOKEN:
        page = "a web page" if kind == "text/html" else one_line(kind, 100) or "no content type"
        return f"{url} answered with {page}, not with MCP; check the URL, which often ends in /mcp"
    return None


def reason(transport: Transport, error: BaseException) -> str:
    """Return why a server cannot be used."""
    from mcp import MCPError
    from pydantic import ValidationError

    while isinstance(error, BaseExceptionGroup):  # task groups wrap the error of a transport
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = one_line(".".join(str(step) for step in first["loc"]), 200)
        return f"what it sent is not MCP ({where}: {one_line(first['msg'], 200)}); report this to its makers"
    match transport, error:
        case Stdio(), FileNotFoundError():
            why = f"command not found: {transport.command}; install it or correct the command"
        case Stdio(), PermissionError():
            why = f"{transport.command} may not be executed; check its permissions"
        case Stdio(), NotADirectoryError():
            why = str(error)
        case Http(), _ if type(error).__module__.startswith("httpx2"):
            response = getattr(error, "response", None)
            answered = response and http_problem(transport.url, response.status_code, response.headers)
            unreachable = f"{transport.url} cannot be reached ({type(error).__name__})"
            why = answered or f"{unreachable}; check the URL and that the server runs"
            if fault := route_fault(error):
                why = f"{transport.url} cannot be reached: {fault.what}; {fault.advice}"
        case _, MCPError() if error.code == HTTP_FAILED:
            why = error.message
        case _ if str(error) == CLOSED:
            why = "it ended without an answer"
        case _:
            why = f"{type(error).__name__}: {one_line(said(error), limits.ERROR)}".rstrip(".: ")
    return why
