"""What clients without a token, with one, and pages of a browser may send: refused in words, of no harm to others."""

import asyncio
import json
import socket
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from agentmagic.runtime.engine import engine
from agentmagic.serve import limits
from tests.serve.served import MODERN, Workshop, serving

LONGEST_STALL = 2.0
"""Seconds that the engine's loop may stand still on the busiest machine; it is 0.1 on a quiet one."""
BIDI = "\u202eecho\u2066\x1b[31m\x00"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def nested(depth):
    return json.loads("[" * depth + "]" * depth)


def chunked(s, *chunks, **more):
    """Return a request without a length."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    return s.head(b"", without=("Content-Length",), Transfer_Encoding="chunked", **more) + body


def plain(s, *lines, body=b""):
    """Return a request of these lines, with the token."""
    return "\r\n".join((*lines, f"Authorization: Bearer {s.token}", "", "")).encode() + body


def host(s):
    return "Host: {}:{}".format(*s.address)


def other_token(s):
    """Return the token of a desk that is closed."""
    token = engine().call(s.server.open(Workshop()))
    engine().call(s.server.close(token))
    return token


def other_session(s):
    """Return the id of a session that was opened with another token."""
    token = engine().call(s.server.open(Workshop()))
    _, text = s.send(s.request(HELLO, token=token))
    return next(line for line in text.splitlines() if line.startswith("mcp-session-id:")).split()[1]


REFUSED = [
    # Who asks.
    ("no token", lambda s: s.modern(Authorization=None), 401, "The token is not the one of this kernel"),
    ("a wrong token", lambda s: s.modern(token="x" * 43), 401, "The token is not"),
    ("an empty token", lambda s: s.modern(token=""), 401, ""),
    ("a beginning of the token", lambda s: s.modern(token=s.token[:-1]), 401, ""),
    ("the token in another scheme", lambda s: s.modern(Authorization=f"Basic {s.token}"), 401, ""),
    ("the token in the address", lambda s: s.modern(path=f"/mcp?token={s.token}", Authorization=None), 401, ""),
    ("the token in a cookie", lambda s: s.modern(Authorization=None, Cookie=f"token={s.token}"), 401, ""),
    ("the token of a closed desk", lambda s: s.modern(token=other_token(s)), 401, ""),
    ("a token that is no ASCII", lambda s: s.modern(token="\xe9\xff"), 401, ""),
    ("another host", lambda s: s.modern(Host="evil.example.com"), 421, "Invalid Host"),
    ("a host that resolves to us", lambda s: s.modern(Host=f"evil.example.com:{s.address[1]}"), 421, ""),
    ("our host, another port", lambda s: s.modern(Host="127.0.0.1:1"), 421, ""),
    ("another origin", lambda s: s.modern(Origin="http://evil.example.com"), 403, "Invalid Origin"),
    ("the origin of a sandboxed page", lambda s: s.modern(Origin="null"), 403, ""),
    ("the origin of another port", lambda s: s.modern(Origin="http://localhost:8888"), 403, ""),
    (
        "a page's question whether it may",
        lambda s: s.head(method="OPTIONS", Authorization=None, Origin="http://a"),
        401,
        "",
    ),
    # How much it sends.
    ("50 MB declared", lambda s: s.head(Content_Length=str(50_000_000)), 413, "A request has up to 4 MiB"),
    ("50 MB in chunks", lambda s: chunked(s, *[b"x" * 1_000_000] * 50), 413, "A request has up to 4 MiB"),
    ("a million values", lambda s: s.request(b"[" + b"[]," * 1_000_000 + b"1]"), 413, "50,000 values"),
    ("a head of 200 kB", lambda s: s.modern(X_Long="x" * 200_000), 400, ""),
    ("50,000 levels of JSON", lambda s: s.request(b"[" * 50_000, MCP_Protocol_Version=MODERN), 400, "Parse error"),
    ("50,000 levels, with a session", lambda s: s.request(b"[" * 50_000), 400, ""),
    ("500 levels of arguments", lambda s: s.modern(arguments={"a": nested(500)}), 400, "64 levels"),
    ("a tool's name of 1 MB", lambda s: s.modern(name="x" * 1_000_000, Mcp_Name="x"), 400, ""),
    ("a number of 5,000 digits", lambda s: s.request(b"9" * 5_000, MCP_Protocol_Version=MODERN), 400, ""),
    # What it says.
    ("no JSON", lambda s: s.request(b"hello", MCP_Protocol_Version=MODERN), 400, "Parse error"),
    ("nothing", lambda s: s.request(b"", MCP_Protocol_Version=MODERN), 400, "Parse error"),
    ("bytes that are no text", lambda s: s.request(b'{"a":"\xff\xfe"}', MCP_Protocol_Version=MODERN), 400, ""),
    ("bytes that are no text, with a session", lambda s: s.request(b'{"a":"\xff\xfe"}'), 400, ""),
    ("a batch", lambda s: s.request([LIST, LIST], MCP_Protocol_Version=MODERN), 400, "single JSON-RPC"),
    ("a batch, with a session", lambda s: s.request([HELLO, LIST]), 400, ""),
    ("an answer to no question", lambda s: s.request({"jsonrpc": "2.0", "id": 9, "result": {}}), 400, ""),
    ("an unknown method", lambda s: s.modern("os/system"), 404, "Method not found"),
    ("a tool whose name is a number", lambda s: s.modern(params={"name": 5}), 400, ""),
    ("arguments that are a list", lambda s: s.modern(params={"arguments": [1]}), 400, ""),
    ("a tool's name that hides itself", lambda s: s.modern(name=BIDI, Mcp_Name="echo"), 400, ""),
    ("another tool in the head", lambda s: s.modern(Mcp_Name="draw"), 400, ""),
    ("another version in the head", lambda s: s.modern(MCP_Protocol_Version="2099-01-01"), 400, "version"),
    ("an invented state", lambda s: s.modern(params={"requestState": "x" * 43}), 400, "continues no call"),
    ("another type of content", lambda s: s.modern(Content_Type="text/plain"), 400, "Content-Type"),
    ("no stream wanted", lambda s: s.modern(Accept="text/html"), 406, ""),
    # Sessions.
    ("no session", lambda s: s.request(LIST), 400, "session"),
    ("an unknown session", lambda s: s.request(LIST, Mcp_Session_Id="x"), 404, "Session not found"),
    ("the session of another token", lambda s: s.request(LIST, Mcp_Session_Id=other_session(s)), 404, "not found"),
    ("the end of another's session", lambda s: s.head(method="DELETE", Mcp_Session_Id=other_session(s)), 404, ""),
    ("a stream of no session", lambda s: s.head(method="GET", Accept="text/event-stream"), 400, ""),
    # Paths and methods.
    ("another path", lambda s: s.modern(path="/"), 404, "The endpoint is /mcp"),
    ("a path that goes up", lambda s: s.modern(path="/mcp/../../etc/passwd"), 404, ""),
    ("a path that goes up, encoded", lambda s: s.modern(path="/%2e%2e/mcp"), 404, ""),
    ("two slashes", lambda s: s.modern(path="//mcp"), 404, ""),
    ("the address of another server", lambda s: s.modern(path="http://evil.example.com/mcp"), 404, ""),
    ("another method", lambda s: s.head(method="PUT"), 405, ""),
    ("a method that no one knows", lambda s: s.head(method="BREW", MCP_Protocol_Version=MODERN), 405, ""),
    # HTTP itself.
    ("no host", lambda s: plain(s, "GET /mcp HTTP/1.1"), 400, "Invalid HTTP"),
    ("two hosts", lambda s: plain(s, "GET /mcp HTTP/1.1", host(s), "Host: evil.example.com"), 400, "Invalid HTTP"),
    (
        "two lengths",
        lambda s: plain(s, "POST /mcp HTTP/1.1", host(s), "Content-Length: 1", "Content-Length: 2"),
        400,
        "",
    ),
    ("a negative length", lambda s: plain(s, "POST /mcp HTTP/1.1", host(s), "Content-Length: -1"), 400, ""),
    ("a space before the colon", lambda s: plain(s, "POST /mcp HTTP/1.1", host(s), "Content-Length : 1"), 400, ""),
    ("another coding", lambda s: plain(s, "POST /mcp HTTP/1.1", host(s), "Transfer-Encoding: gzip"), 400, ""),
    (
        "a chunk of no size",
        lambda s: s.head(without=("Content-Length",), Transfer_Encoding="chunked") + b"zz\r\n",
        400,
        "",
    ),
    ("HTTP/2", lambda s: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401, ""),
    ("TLS", lambda s: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "Invalid HTTP"),
    (
        "a web socket",
        lambda s: s.head(method="GET", Connection="close, Upgrade", Upgrade="websocket", MCP_Protocol_Version=MODERN),
        405,
        "",
    ),
]


@pytest.fixture(scope="module")
def served():
    with serving() as made:
        yield made
        assert max(made.stalls) < LONGEST_STALL


@pytest.mark.parametrize(("made", "status", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_bad_request_is_refused_in_words_and_a_good_one_beside_it_is_answered(served, made, status, words):
    served.desk.called.clear()
    found, text = served.send(made(served))
    assert (found, served.desk.called) == (status, [])
    assert words in text
    assert served.token not in text
    assert "Traceback" not in text
    assert served.send(served.modern(arguments={"still": "there"}))[0] == 200


SAID = [
    ("a", "a"),
    ("", "a client without a name"),
    (BIDI, "echo 31m"),
    ("claude-code <img src=x onerror=alert(1)>", "claude-code img src x onerror alert 1"),
    ("n" * 1_000_000, "n" * (limits.NAME - 1) + "…"),
    (7, None),
]


@pytest.mark.parametrize(("name", "shown"), SAID, ids=["plain", "none", "hidden", "HTML", "long", "number"])
def test_the_name_of_a_client_is_a_short_line_of_plain_characters(served, name, shown):
    served.desk.called.clear()
    status, _ = served.send(served.modern(client=name))
    assert [client for client, *_ in served.desk.called] == ([shown] if shown else [])
    assert (status == 200) == bool(shown)


def test_the_token_as_a_clients_name_is_blanked(served):
    served.desk.called.clear()
    served.send(served.modern(client=served.token))
    assert served.token not in str(served.desk.called)


@pytest.mark.parametrize(
    "value", [BIDI, "x" * 2_000_000, nested(40), {"a" * 1000: None}], ids=lambda one: type(one).__name__
)
def test_odd_arguments_reach_the_desk_as_they_are(served, value):
    served.desk.called.clear()
    assert served.send(served.modern(arguments={"value": value}))[0] == 200
    assert served.desk.called == [("raw", "echo", {"value": value})]


def test_a_request_in_the_body_of_another_one_is_no_request(served):
    inner = served.modern(arguments={"inner": True})
    body = b"0\r\n\r\n" + inner
    both = served.head(body, Transfer_Encoding="chunked", MCP_Protocol_Version=MODERN) + body
    served.desk.called.clear()
    served.send(both)  # the chunks count, and the connection is closed after the answer
    assert served.desk.called == []


@pytest.mark.slow
def test_a_thousand_calls_at_once_take_little_and_do_not_shut_others_out(served):
    body = served.modern(arguments={"text": "x" * 100_000})
    before = psutil.Process().memory_info().rss

    async def call():
        try:
            reader, writer = await asyncio.open_connection(*served.address)
        except ConnectionError:
            return 0, ""
        try:
            writer.write(body)
            answer = await reader.read()
        except ConnectionError:
            return 0, ""
        finally:
            writer.close()
        return int(answer[9:12] or 0), answer.decode()

    async def main():
        return await asyncio.gather(*(call() for _ in range(1000)))

    found = asyncio.run(main())
    statuses = Counter(status for status, _ in found)
    assert set(statuses) <= {200, 503, 0}
    assert statuses[200] > 50
    assert statuses[0] < 100  # closed before they had read why
    assert all(
        "too many" in text or "too large" in text or "being answered" in text for status, text in found if status == 503
    )
    assert psutil.Process().memory_info().rss - before < 500e6
    assert served.send(served.modern())[0] == 200


def read_answer(line):
    """Read one answer, and leave the connection open."""
    with line.makefile("rb") as file:
        length = 0
        while (header := file.readline()) != b"\r\n":
            if header.lower().startswith(b"content-length:"):
                length = int(header.split(b":")[1])
        return file.read(length)


PARTS = {"nothing": 0, "a word": 8, "half a head": 100, "half a body": -5}


@pytest.mark.parametrize(
    ("part", "earlier"), [(part, 0) for part in PARTS] + [(part, 2) for part in PARTS if PARTS[part]]
)
def test_a_request_that_does_not_come_is_given_up(served, part, earlier, monkeypatch):
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.2)
    whole = served.modern(arguments={"a": "b"}).replace(b"Connection: close\r\n", b"")
    with socket.create_connection(served.address, timeout=10) as line:
        for _ in range(earlier):
            line.sendall(whole)
            assert read_answer(line)
        line.sendall(whole[: PARTS[part]])
        with suppress(ConnectionResetError):
            assert line.recv(65536) == b""


def test_more_connections_than_are_allowed_are_told_so_and_closed(served, monkeypatch):
    monkeypatch.setattr(limits, "CONNECTIONS", 3)
    lines = [socket.create_connection(served.address, timeout=10) for _ in range(8)]
    assert b"too many connections" in read_answer(lines[-1])
    for line in lines:
        line.close()
