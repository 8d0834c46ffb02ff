import anyio
import httpx2
import pytest
from mcp import MCPError

from agentmagic.tools.mcp import server_errors
from agentmagic.tools.mcp.config import Http, InProcess, Stdio

WEB = Http("http://localhost/mcp")


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (MCPError(-32000, "Connection closed"), True),
        (MCPError(-32600, "Session not found"), True),
        (MCPError(-32000, "quota is used up"), False),
        (BrokenPipeError(), True),
        (anyio.ClosedResourceError(), True),
        (httpx2.ConnectError("no"), True),
        (RuntimeError("odd"), False),
    ],
)
def test_only_what_ends_a_connection_counts_as_lost(error, lost):
    assert server_errors.is_lost(error) is lost


@pytest.mark.parametrize(
    ("transport", "error", "status", "reason"),
    [
        (Stdio("x"), FileNotFoundError(), 0, "command not found: x; install it or correct the command"),
        (Stdio("x"), PermissionError(), 0, "x may not be executed; check its permissions"),
        (Stdio("x"), MCPError(-32000, "Connection closed"), 0, "it ended without an answer"),
        (InProcess(None), ValueError("odd."), 0, "ValueError: odd"),
        (Stdio("x"), MCPError(0, "go\x1b[2J \u202eaway\r!"), 0, "MCPError: go away!"),
        (WEB, MCPError(0, "x"), 403, "http://localhost/mcp refused the connection (HTTP 403)"),
        (WEB, MCPError(0, "x"), 500, "http://localhost/mcp answered HTTP 500"),
        (WEB, httpx2.ConnectError("no"), 500, "http://localhost/mcp cannot be reached (ConnectError)"),
        (WEB, ExceptionGroup("a", [ExceptionGroup("b", [MCPError(0, "inner")])]), 200, "MCPError: inner"),
    ],
)
def test_a_fault_is_said_in_words_that_help(transport, error, status, reason):
    assert server_errors.reason(transport, error, status).startswith(reason)


@pytest.mark.parametrize(
    ("error", "misshapen"),
    [
        (MCPError(-32700, "Failed to parse JSON response: 1 validation error for union[...]"), True),
        (MCPError(-32700, "Failed to parse JSON response: the answer is over 7 bytes"), False),
        (MCPError(-32602, "1 validation error for Arguments"), False),
    ],
)
def test_an_answer_that_is_not_mcp_is_told_from_one_that_says_what_is_wrong(error, misshapen):
    assert server_errors.is_misshapen(error) is misshapen
