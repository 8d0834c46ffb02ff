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


@with_sessions
async def test_a_restarted_server_is_joined_anew_in_whichever_words_it_refuses_the_old_session(servers, server, /):
    assert (await call(servers, "visit")).text == "session-1"
    for number, server.forgetting in enumerate(
        (
            (404, -32600, "Session not found"),
            (400, -32000, "Bad Request: No valid session ID provided"),
            (400, -32000, "Bad Request: Server not initialized"),
        ),
        start=2,
    ):
        server.sessions.clear()
        assert "went away during visit" in (await call(servers, "visit")).text
        assert (await call(servers, "visit")).text == f"session-{number}"
        assert server.opened == server.called == number, "no call is sent twice"
    server.sessions.clear()
    servers._servers["web"].connection.tools = None
    assert len(await servers.tools()) == 2, "a listing is asked for once more"
    assert server.opened == number + 1


def error(status, **fields):
    return Exchange(json.dumps({"jsonrpc": "2.0", "id": 1, "error": fields}), status, "application/json")


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (Exchange("<h1>Welcome</h1>", 200, "text/html"), "answered with a web page, not with MCP"),
        (Exchange('{"detail": "slow down"}', 429, "application/json"), "answered HTTP 429, too many requests"),
        (Exchange('{"jsonrpc": 7}', 200, "application/json"), "answered in a form that is not MCP"),
        (error(400, code=-32602, message="1 validation error for Row"), "failed: 1 validation error for Row"),
        (error(500, code=1, message="Error", data={"row": 7}), 'Error ({"row": 7})'),
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
