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
