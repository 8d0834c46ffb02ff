"""Classifies the errors of a connection to an MCP server, and describes them with advice on what to do."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from secrets import token_hex
from typing import Any, cast

from agentmagic.providers.proxies import route_fault
from agentmagic.text import json_line, single_line
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.config import Http, Stdio, Transport
from agentmagic.tools.mcp.content import clean_lines

CLOSED = "Connection closed"
# agentmagic's own JSON-RPC error codes for HTTP responses that are not MCP. The range is reserved for implementations.
HTTP_FAILED = -32011  # The server may have executed the request.
HTTP_REFUSED = -32012  # The server did not execute the request.
_EXPIRED = token_hex(16)  # Marks an error after which a call is repeated. It is random, so that no server can send it.
_UNKNOWN_SESSION = "Session not found (HTTP {})"
_SESSION_OVER = re.compile(
    # The words of the mcp libraries for Python and TypeScript, of fastmcp, and of servers in reports of 2025 and 2026.
    # The whole message must match, because tools have sessions too: "the session of the browser has expired".
    r"""((bad\ request|not\ found|invalid\ request|error):\ )?
    (
        (mcp\ )?session(\ id)?(\ '?[\w.-]{1,200}'?)?\ (is\ |was\ |has\ |has\ been\ |does\ )?
        (not\ found|not\ exist|no\ longer\ valid|unknown|invalid|expired|terminated|closed)
      | (no\ valid|invalid|unknown|expired|could\ not\ find|invalid\ or\ (unknown|expired))
        \ (mcp[ -])?session([ -]?id)?(\ header)?(\ provided)?(\ or\ not\ an\ initialize\ request)?
        (:?\ '?[\w.-]{1,200}'?)?(\ for\ '[\w/-]{1,200}')?
      | server\ not\ initialized
    )
    [.!]?([.;,]\ (the\ )?(client|please)\ (should\ |must\ )?(re-?initialize|reconnect)[.!]?)?""",
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST_WORDS = 600
"""Characters of a message up to which it can say that a session is over."""
_LOST = frozenset({CLOSED, *map(_UNKNOWN_SESSION.format, range(400, 600))})
_BROKEN = "SSE stream "  # The mcp library's error begins with this if an answer is incomplete.
_TRANSPORTS = frozenset({"anyio", "httpx2", "httpcore2"})
_REFUSED = {401: "it wants a valid token", 403: "it does not permit this to who asks"}
_TOO_MANY = 429
_FIRST_REDIRECT, _FIRST_FAILURE, _FIRST_FAULT = 300, 400, 500
_REQUEST_ERRORS = frozenset(
    {-32601, -32602}
)  # JSON-RPC codes for an unknown method and invalid parameters. Some servers send them with HTTP status 404.
_ABOUT_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)
_MEDIA_TYPES = frozenset({"application/json", "text/event-stream"})


def is_lost(error: BaseException) -> bool:
    """Return whether the error of a request means that the connection is lost."""
    from mcp import MCPError

    if isinstance(error, MCPError):
        # The code is not enough: servers use the code of a closed connection, -32000, for other errors too. A restarted
        # server answers every request with words about the session.
        return error.message in _LOST or session_is_over(error.message)
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORTS


def session_is_over(message: str) -> bool:
    """Return whether the whole message of a server's error says that it does not know the session."""
    return len(message) <= _LONGEST_WORDS and _SESSION_OVER.fullmatch(message.strip()) is not None


def has_expired(error: BaseException) -> bool:
    """Return whether the server refused a request, without executing it, because the session has expired."""
    from mcp import MCPError

    return isinstance(error, MCPError) and error.data == _EXPIRED


def may_have_run(error: BaseException) -> bool:
    """Return whether the server may have executed a request, although its answer did not arrive."""
    from mcp import MCPError

    return isinstance(error, MCPError) and (error.code == HTTP_FAILED or error.message.startswith(_BROKEN))


def is_refusal(error: BaseException) -> bool:
    """Return whether the server answered a request with an error, and the connection still works."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_lost(error)


def is_misshapen(error: BaseException) -> bool:
    """Return whether an error means that the server's answer is not valid MCP.

    The user then gets a short message of agentmagic, because the mcp library's own message is too long.
    """
    from mcp import MCPError, types
    from pydantic import ValidationError

    if isinstance(error, MCPError):
        return error.code == types.PARSE_ERROR and "validation error" in error.message
    return isinstance(error, ValidationError)


def describe_error(error: BaseException) -> str:
    """Return the message of an error. For a JSON-RPC error from a server, its field `data` is appended."""
    from mcp import MCPError, types

    message = clean_lines(str(error)[: limits.FAILURE])
    if not isinstance(error, MCPError) or error.data is None or error.code == types.URL_ELICITATION_REQUIRED:
        return message
    return f"{message} ({single_line(json_line(error.data), limits.ERROR)})"


def http_error(status: int, problem: str, answer: Mapping[str, Any] | None, *, in_session: bool) -> dict[str, Any]:
    """Return a JSON-RPC error for an HTTP response that failed. Its message contains the HTTP status.

    `problem` is the text from `http_problem`. `answer` is the JSON-RPC error in the body of the response, if any.
    `in_session` says whether the request had a session id.
    """
    is_over = answer is not None and session_is_over(answer["message"])
    is_about_request = answer is not None and answer["code"] in _REQUEST_ERRORS and not is_over
    # An error of the transport, not of the request, that mentions the session in other words.
    mentions_it = answer is None or (not is_about_request and _ABOUT_SESSION.search(answer["message"]) is not None)
    session_error = {"code": HTTP_FAILED, "message": _UNKNOWN_SESSION.format(status)}
    # In the protocol, 404 means that the session has expired and the request was not executed. Some servers answer with
    # another status, for which the protocol does not promise that.
    if in_session and status == HTTPStatus.NOT_FOUND and not is_about_request:
        return session_error | {"data": _EXPIRED}
    if in_session and (is_over or (status in (HTTPStatus.BAD_REQUEST, HTTPStatus.GONE) and mentions_it)):
        return session_error
    return failure(status, problem) if answer is None else {**answer, "message": f"{answer['message']} (HTTP {status})"}


def failure(status: int, problem: str) -> dict[str, Any]:
    """Return a JSON-RPC error for an HTTP response that is not MCP, with the text of the problem."""
    is_refusal = _FIRST_REDIRECT <= status < _FIRST_FAULT
    return {"code": HTTP_REFUSED if is_refusal else HTTP_FAILED, "message": problem}


def http_problem(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Return what the status and content type show to be wrong with an HTTP response, or None if it can be MCP."""
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if status in _REFUSED:
        why = f"refused the connection (HTTP {status}); check the headers of its entry: {_REFUSED[status]}"
    elif status == _TOO_MANY:
        wait = single_line(headers.get("Retry-After", ""), 40)
        when = f"after {wait} s" if wait.isdigit() else "later"
        why = f"answered HTTP 429, too many requests; try again {when}"
    elif status >= _FIRST_FAULT:
        why = f"answered HTTP {status}: the server has failed or is overloaded; try again later"
    elif status >= _FIRST_FAILURE:
        why = f"answered HTTP {status}; check the URL"
    elif status >= _FIRST_REDIRECT:
        there = single_line(headers.get("Location", "").partition("?")[0], limits.ADDRESS) or "nowhere"
        why = f"answered HTTP {status}, a redirect to {there}, which is not followed; check the URL"
    elif status != HTTPStatus.ACCEPTED and kind not in _MEDIA_TYPES:
        page = "a web page" if kind == "text/html" else single_line(kind, 100) or "no content type"
        why = f"answered HTTP {status} with {page}, not with MCP; check the URL, which often ends in /mcp"
    else:
        return None
    return f"{url} {why}"


def reason(transport: Transport, error: BaseException) -> str:
    """Return a phrase that says why a server cannot be used, with advice if there is any."""
    from mcp import MCPError
    from pydantic import ValidationError

    while isinstance(error, BaseExceptionGroup):  # A task group has wrapped the error.
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = single_line(".".join(str(step) for step in first["loc"]), 200)
        return f"what it sent is not MCP ({where}: {single_line(first['msg'], 200)}); report this to its makers"
    match transport, error:
        case Stdio(), FileNotFoundError():
            why = f"command not found: {transport.command}; install it or correct the command"
        case Stdio(), PermissionError():
            why = f"{transport.command} may not be executed; check its permissions"
        case Stdio(), NotADirectoryError():
            why = str(error)
        case Http(), _ if type(error).__module__.startswith("httpx2"):
            response = getattr(error, "response", None)
            problem = response and http_problem(transport.url, response.status_code, response.headers)
            unreachable = f"{transport.url} cannot be reached ({type(error).__name__})"
            why = problem or f"{unreachable}; check the URL and that the server runs"
            if fault := route_fault(error):
                why = f"{transport.url} cannot be reached: {fault.problem}; {fault.advice}"
        case _ if str(error) == CLOSED:
            why = "it ended without an answer"
        case _, MCPError() if error.code in (HTTP_FAILED, HTTP_REFUSED):
            why = error.message
        case _:
            why = f"{type(error).__name__}: {single_line(describe_error(error), limits.ERROR)}".rstrip(".: ")
    return why
