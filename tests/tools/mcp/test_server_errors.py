import httpx2
import pytest
from mcp import MCPError, types
from pydantic import ValidationError

from agentmagic.tools.mcp import server_errors
from agentmagic.tools.mcp.config import Http, InProcess, Stdio

WEB = Http("http://localhost/mcp")


def out_of_shape():
    try:
        types.Tool.model_validate({"name": 7, "inputSchema": {}})
    except ValidationError as error:
        return error


@pytest.mark.parametrize(
    ("transport", "error", "reason"),
    [
        (Stdio("x"), FileNotFoundError(), "command not found: x; install it or correct the command"),
        (Stdio("x"), PermissionError(), "x may not be executed; check its permissions"),
        (InProcess(None), ValueError("odd."), "ValueError: odd"),
        (Stdio("x"), MCPError(0, "go\x1b[2J \u202eaway\r!", {"row": 7}), 'MCPError: go away ! ({"row": 7})'),
        (Stdio("x"), out_of_shape(), "what it sent is not MCP (name: Input should be a valid string); report this"),
        (WEB, httpx2.ConnectError("no"), "http://localhost/mcp cannot be reached (ConnectError)"),
        (WEB, ExceptionGroup("a", [ExceptionGroup("b", [MCPError(0, "inner")])]), "MCPError: inner"),
    ],
)
def test_a_fault_is_said_in_words_that_help(transport, error, reason):
    assert server_errors.reason(transport, error).startswith(reason)


@pytest.mark.parametrize(
    ("status", "headers", "problem"),
    [
        (200, {"Content-Type": "application/json; charset=utf-8"}, None),
        (
            200,
            {"Content-Type": "text/html"},
            "answered HTTP 200 with a web page, not with MCP; check the URL, which often",
        ),
        (204, {}, "answered HTTP 204 with no content type, not with MCP; check the URL"),
        (202, {}, None),
        (
            302,
            {"Location": "http://a.example/in?key=1"},
            "answered HTTP 302, a redirect to http://a.example/in, which is",
        ),
        (405, {}, "answered HTTP 405; check the URL"),
        (401, {}, "refused the connection (HTTP 401); check the headers of its entry: it wants a valid token"),
        (403, {}, "refused the connection (HTTP 403); check the headers of its entry: it does not permit this"),
        (429, {"Retry-After": "30"}, "answered HTTP 429, too many requests; try again after 30 s"),
        (429, {"Retry-After": "\x1b[2J"}, "answered HTTP 429, too many requests; try again later"),
        (500, {}, "answered HTTP 500: the server has failed or is overloaded; try again later"),
    ],
)
def test_each_status_of_http_says_what_it_is(status, headers, problem):
    found = server_errors.http_problem(WEB.url, status, headers)
    assert found is None if problem is None else found.startswith(f"{WEB.url} {problem}")


OVER = {
    "Session not found": "mcp for TypeScript and Python",
    "Session terminated": "mcp for Python, its client",
    "Not Found: Session has been terminated": "mcp for Python",
    "Bad Request: No valid session ID provided": "mcp for TypeScript",
    "Bad Request: No valid session ID or not an initialize request": "affine-mcp-server 301",
    "Bad Request: Server not initialized": "mcp for TypeScript",
    "Invalid or unknown session.": "fastmcp",
    "Invalid session ID": "mcp-go 689",
    "Invalid session": "mcp-go",
    "Not Found: Unknown Mcp-Session-Id header": "1mcp-app 550",
    "Bad Request: Unknown Mcp-Session-Id header": "OmniRoute 5191",
    "Unknown session id '0fbc7f3f46a1' for 'tools/call'; client should reinitialize": "kimi-code 2380",
    "Could not find session ID": "1mcp-app 550",
    "Session 0fbc-7f3f not found": "gateways",
    "Session ID 0fbc7f3f has expired": "gateways",
    "session expired": "gateways",
    "Session does not exist": "gateways",
    "The session": None,
    "Session expired: log in to the shop again": None,
    "The browser session was not found": None,
    "Unknown tool: session_list": None,
    "session_id must be a number": None,
    "No valid session ID provided for the row": None,
    "Mcp-Session-Id header is required": None,
    "Session": None,
    "The camera is not initialized": None,
    "Session not found " + "x" * 1000: None,
}
"""Messages of errors, each with the server that sends it. None: the message is about something else."""


@pytest.mark.parametrize("message", OVER)
def test_a_session_that_is_over_is_known_by_its_words(message):
    is_over = OVER[message] is not None
    assert server_errors.is_lost(MCPError(-32600, message)) is is_over
    for status, code in ((400, -32602), (410, -32602), (500, -32000), (503, -32000)):
        answer = {"code": code, "message": message}
        error = server_errors.http_error(status, "a problem", answer, in_session=True)
        assert server_errors.is_lost(MCPError(**error)) is is_over
        assert not server_errors.has_expired(MCPError(**error)), "the call may have run"
        outside = server_errors.http_error(status, "a problem", answer, in_session=False)
        assert outside["message"] == f"{message} (HTTP {status})"


@pytest.mark.parametrize("message", OVER)
def test_a_404_about_the_parameters_is_about_the_session_only_by_its_words(message):
    error = server_errors.http_error(404, "a problem", {"code": -32602, "message": message}, in_session=True)
    assert server_errors.has_expired(MCPError(**error)) is (OVER[message] is not None)


def test_a_hostile_message_is_read_soon():
    assert not server_errors.session_is_over("session " + "a" * 580)
    assert not server_errors.session_is_over("a" * 10_000_000)
