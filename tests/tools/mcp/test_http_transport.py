import asyncio
import json
from contextlib import contextmanager

import pytest

from agentmagic.errors import ServerError
from agentmagic.messages import ToolCall
from agentmagic.tools.calling import call_tool
from agentmagic.tools.mcp import config
from tests.providers.loopback import Exchange, Loopback
from tests.tools.mcp.calling import call, connected, context, played
from tests.tools.mcp.servers import workshop
from tests.tools.mcp.servers.sessions import KEY, SessionServer
from tests.tools.mcp.test_servers import use_all_of


@contextmanager
def serving_workshop(kind="streamable_http_app"):
    with workshop.serving(lambda _: getattr(workshop.make(), kind)()) as origin:
        yield f"{origin}/mcp"


def with_sessions(scene):
    """Make a test of an async function that gets a server that knows its clients by session, connected as "web"."""

    async def main(server, scene):
        entry = {"url": server.address, "headers": {"Authorization": KEY}}
        async with connected(web=config.parse(entry)) as servers:
            await scene(servers, server)

    def play(scene):
        with SessionServer() as server:
            asyncio.run(main(server, scene))

    return played(play)(scene)


@pytest.mark.parametrize(("kind", "more"), [("streamable_http_app", {}), ("sse_app", {"type": "sse"})])
def test_a_server_over_http_works_in_every_way(kind, more):
    async def main(url):
        async with connected(workshop=config.parse({"url": url, **more})) as servers:
            await use_all_of(servers)

    with serving_workshop(kind) as url:
        asyncio.run(main(url.replace("/mcp", "/sse") if more else url))


@with_sessions
async def test_headers_reach_the_server_and_their_lack_is_said(servers, server, /):
    assert (await call(servers, "visit")).text == "session-1"
    async with connected(web=config.parse(server.address)) as lacking:
        with pytest.raises(ServerError, match=r"it asks to be authorized.* give its entry an Authorization header"):
            await lacking.tools()


EXPIRED = [
    (404, -32600, "Session not found"),
    (404, -32001, "gone"),
    (404, -32602, "Invalid session"),
    Exchange("", 404),
    Exchange("<h1>Not Found</h1>", 404, "text/html"),
    Exchange('{"detail": "Not Found"}', 404, "application/json"),
]


@with_sessions
async def test_a_call_that_a_404_refuses_in_an_expired_session_is_sent_once_more_in_a_new_one(servers, server, /):
    assert (await call(servers, "visit")).text == "session-1"
    for number, server.forgetting in enumerate(EXPIRED, start=2):
        await servers.tools()  # no listing finds out first
        server.sessions.clear()
        assert (await call(servers, "visit")).text == f"session-{number}"
        assert (server.opened, server.called, server.sent) == (number, number, 2 * number - 1)
    server.sessions.clear()
    servers._servers["web"].connection.tools = None
    assert len(await servers.tools()) == 2, "a listing is asked for once more"
    assert server.opened == number + 1


@with_sessions
async def test_all_calls_at_once_in_an_expired_session_are_sent_once_more_in_one_new_one(servers, server, /):
    await servers.tools()
    server.sessions.clear()
    answers = await asyncio.gather(*(call(servers, "visit") for _ in range(4)))
    assert [answer.text for answer in answers] == ["session-2"] * 4
    assert (server.opened, server.called, server.sent) == (2, 4, 8)


@with_sessions
async def test_a_server_that_knows_no_session_is_asked_twice_and_not_again(servers, server, /):
    await servers.tools()
    server.sessions.clear()
    server.keeps = False
    assert (await call(servers, "visit")).text.endswith("(HTTP 404), so visit was not carried out.")
    assert (server.opened, server.called, server.sent) == (2, 0, 2)


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (
            (400, -32000, "Bad Request: No valid session ID provided"),
            "went away during visit (Session not found (HTTP 400))",
        ),
        ((400, -32000, "Bad Request: Server not initialized"), "went away during visit (Session not found (HTTP 400))"),
        ((200, -32600, "Session not found"), "went away during visit; whether"),
        ((200, -32600, "Unknown session id '1'; client should reinitialize"), "went away during visit; whether"),
        ((503, -32000, "Invalid session"), "went away during visit (Session not found (HTTP 503))"),
        ((404, -32601, "Method not found"), "visit failed: Method not found (HTTP 404)"),
        ((404, -32602, "No such tool"), "visit failed: No such tool (HTTP 404)"),
        ((410, -32001, "Session expired"), "went away during visit (Session not found (HTTP 410))"),
        (Exchange("gone", 500, "text/plain"), "overloaded; try again later. Whether the call took effect is unknown."),
        (Exchange("<h1>Bad</h1>", 502, "text/html"), "HTTP 502: the server has failed"),
        (Exchange('{"error": "x"}', 504, "application/json"), ". Whether the call took effect is unknown."),
        (Exchange("<h1>Hi</h1>", 200, "text/html"), ". Whether the call took effect is unknown."),
        (Exchange("", dropped=True), "went away during visit; whether the call took effect is unknown"),
        (Exchange('data: {"json', cut_at=8), "SSE stream ended without a response. Whether"),
        (Exchange(": nothing\n\n"), "SSE stream ended without a response. Whether the call took effect is unknown."),
    ],
)
def test_after_any_other_failure_a_call_is_not_sent_again(failing, words):
    async def main(server):
        async with connected(web=config.parse(server.address)) as servers:
            await servers.tools()
            server.sessions.clear()
            server.forgetting = failing
            answer = await call(servers, "visit")
            assert (answer.status, words in answer.text) == ("error", True), answer.text
            assert server.sent == 1
            server.forgetting = EXPIRED[0]
            assert (await call(servers, "visit")).text == f"session-{server.opened}", "the next call works"

    with SessionServer() as server:
        server.key = None
        asyncio.run(main(server))


def error(status, **fields):
    return Exchange(json.dumps({"jsonrpc": "2.0", "id": 1, "error": fields}), status, "application/json")


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (Exchange("<h1>Welcome</h1>", 200, "text/html"), "answered HTTP 200 with a web page, not with MCP"),
        (Exchange('{"detail": "slow down"}', 429, "application/json"), "answered HTTP 429, too many requests"),
        (Exchange('{"jsonrpc": 7}', 200, "application/json"), "answered in a form that is not MCP"),
        (
            error(400, code=-32602, message="1 validation error for Row"),
            "failed: 1 validation error for Row (HTTP 400)",
        ),
        (error(500, code=1, message="Error", data={"row": 7}), 'Error (HTTP 500) ({"row": 7})'),
        (error(503, code="1", message="Error"), "answered HTTP 503: the server has failed"),
        (error(500, code=1, message=7), "answered HTTP 500: the server has failed"),
    ],
)
def test_a_call_that_fails_over_http_says_why_each_time_and_the_session_stays(failing, words):
    async def main(server):
        async with connected(web=config.parse(server.address)) as servers:
            await servers.tools()
            for server.failing, said in ((Exchange("", 401), "asks to be authorized"), (failing, words)):
                answer = await call(servers, "visit")
                assert (answer.status, said in answer.text) == ("error", True), answer.text
            assert "authorized" not in answer.text, "a lack of a token hides no later error"
            server.failing = None
            assert (await call(servers, "visit")).text == "session-1"

    with SessionServer() as server:
        server.key = None
        asyncio.run(main(server))


@pytest.mark.parametrize("kind", ["streamable_http_app", "sse_app"])
def test_each_status_of_failure_is_named_at_a_call_and_at_the_start(kind):
    entry = {"type": "sse"} if kind == "sse_app" else {}
    gates = []

    def app(_):
        gates.append(workshop.Gate(getattr(workshop.make(), kind)()))
        return gates[0]

    async def main(url):
        async with connected(web=config.parse({"url": url, **entry})) as servers:
            echo = next(tool for tool in await servers.tools() if tool.name == "echo")
            request = ToolCall("call-1", "echo", {"text": "hello"})
            # Under streamable HTTP, 404 says that the session has expired.
            for status in (302, 303, 400, 401, 403, *((404,) if entry else ()), 405, 407, 410, 429, 500, 503):
                gates[0].status = status
                answer = await call_tool(echo, request, context(request))
                assert (answer.status, f"HTTP {status}" in answer.text) == ("error", True), answer.text
                gates[0].status = None
                assert (await call_tool(echo, request, context(request))).text == "hello"
                gates[0].status = status
                with pytest.raises(ServerError, match=rf"HTTP {status}\b"):
                    await servers.add("new", config.parse({"url": url, **entry}))
                await servers.remove("new")
                gates[0].status = None

    with workshop.serving(app) as origin:
        asyncio.run(main(f"{origin}/{'sse' if entry else 'mcp'}"))


@with_sessions
async def test_a_server_that_left_ends_first_a_call_then_the_turn(servers, server, /):
    tool = (await servers.tools())[0]
    server.gone = True
    request = ToolCall("call-1", "visit", {})
    assert "went away" in (await call_tool(tool, request, context(request))).text
    with pytest.raises(ServerError, match="cannot be reached"):
        await call_tool(tool, request, context(request))


@pytest.mark.parametrize("more", [{}, {"type": "sse"}])
def test_no_proxy_takes_a_server_of_this_machine_and_the_error_of_one_that_is_elsewhere_names_it(more, monkeypatch):
    async def main(address, proxy):
        async with connected(web=config.parse({"url": address, **more})) as servers:
            assert await servers.tools()
        assert proxy.connections == 0
        named = f"the proxy {proxy.url} asks for a user name and a password that it knows \\(407\\); write them into"
        async with connected(web=config.parse({"url": "http://nobody.invalid/mcp", **more})) as servers:
            with pytest.raises(ServerError, match=named):
                await servers.tools()

    monkeypatch.delenv("NO_PROXY", raising=False)
    exchanges = [Exchange("", 407, "text/plain")] * 9
    with serving_workshop("sse_app" if more else "streamable_http_app") as url, Loopback(exchanges) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        asyncio.run(main(url.replace("/mcp", "/sse") if more else url, proxy))


@pytest.mark.parametrize("more", [{}, {"type": "sse"}])
def test_an_address_of_an_old_server_needs_no_type_and_one_that_is_no_mcp_server_is_said(more):
    async def main(origin):
        async with connected(web=config.parse({"url": f"{origin}/elsewhere", **more})) as servers:
            with pytest.raises(ServerError, match="HTTP 404; check the URL"):
                await servers.tools()
            await servers.add("old", config.parse(f"{origin}/sse"))
            await servers.remove("web")
            assert (await call(servers, "echo", text="hello")).text == "hello"

    with serving_workshop("sse_app") as url:
        asyncio.run(main(url.removesuffix("/mcp")))


@with_sessions
async def test_a_body_without_end_or_compressed_costs_its_call_only(servers, server, /):
    assert "the answer is over 33554432 bytes or 200000 values" in (await call(servers, "flood")).text
    refused = await call(servers, "flood", compressed=True)
    assert refused.text.endswith("the answer is compressed, which was not asked for")
    assert (await call(servers, "visit")).text == f"session-{server.opened}"
