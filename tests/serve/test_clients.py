"""Clients of others' making: what they list, call, read and are asked, and how they go away."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import fastmcp
import httpx2
import mcp
import pytest
from mcp import types
from mcp.client.streamable_http import streamable_http_client

from agentmagic.runtime.engine import engine
from agentmagic.serve import limits
from tests.serve.served import PATIENCE, serving


async def say_yes(_context, params):
    assert params.message == "Which one?"
    assert list(params.requested_schema["properties"]) == ["answer"]
    return types.ElicitResult(action="accept", content={"answer": "the left"})


async def say_no(_context, _params):
    return types.ElicitResult(action="decline")


async def say_nonsense(_context, _params):
    return types.ElicitResult(action="accept", content={"other": "x"})


@asynccontextmanager
async def joined(served, mode="auto", name="tester", ask=say_yes, **more):
    headers = {"Authorization": f"Bearer {served.token}"}
    info = types.Implementation(name=name, version="1")
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http:
        transport = streamable_http_client(served.url, http_client=http)
        client = mcp.Client(transport, mode=mode, elicitation_callback=ask, client_info=info, **more)
        async with client:
            yield client


@asynccontextmanager
async def joined_by_fastmcp(served, **_):
    transport = fastmcp.client.transports.StreamableHttpTransport(
        served.url, headers={"Authorization": f"Bearer {served.token}"}
    )
    info = types.Implementation(name="tester", version="1")
    async with fastmcp.Client(transport, client_info=info, timeout=PATIENCE) as client:
        yield client


def play(main):
    async def bounded():
        async with asyncio.timeout(PATIENCE):
            await main()

    asyncio.run(bounded())


@pytest.fixture
def served():
    with serving() as made:
        yield made


MODES = ["auto", "legacy"]


@pytest.mark.parametrize("join", [joined, lambda s: joined(s, "legacy"), joined_by_fastmcp], ids=[*MODES, "fastmcp"])
def test_a_client_lists_calls_and_reads(served, join):
    steps = []

    async def progress(done, total, words):
        steps.append((done, total, words))

    async def main():
        async with join(served) as client:
            listed = await client.list_tools()
            assert {one.name for one in getattr(listed, "tools", listed)} >= {"echo", "draw"}
            assert (await client.call_tool("echo", {"a": 1})).content[0].text == '{"a": 1}'
            image = (await client.call_tool("draw", {})).content[0]
            assert (image.type, image.mime_type) == ("image", "image/png")
            page = await client.read_resource("test://notes")
            assert getattr(page, "contents", page)[0].text == "# Notes"
            if join is joined_by_fastmcp:
                await client.call_tool("count", {}, progress_handler=progress)
            else:
                await client.call_tool("count", {}, progress_callback=progress)

    play(main)
    assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert served.desk.called[0] == ("tester", "echo", {"a": 1})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("ask", "answer"), [(say_yes, "the left"), (say_no, None), (say_nonsense, None), (None, None)])
def test_a_tool_asks_the_clients_user(served, mode, ask, answer):
    async def main():
        async with joined(served, mode, ask=ask) as client:
            result = await client.call_tool("ask", {})
            assert result.content[0].text == f"answer: {answer}"

    play(main)


def test_two_clients_at_once_do_not_wait_for_each_other(served):
    async def main():
        async with joined(served, name="one") as one, joined(served, "legacy", name="two") as two:
            waiting = asyncio.create_task(one.call_tool("wait", {}))
            assert (await two.call_tool("echo", {})).content[0].text == "{}"
            assert not waiting.done()
            engine().submit(go_on(served)).result()
            assert (await waiting).content[0].text == "waited"

    play(main)
    assert {client for client, *_ in served.desk.called} == {"one", "two"}


async def go_on(served):
    served.desk.go_on.set()


@pytest.mark.parametrize("mode", MODES)
def test_a_cancelled_call_ends(served, mode):
    async def main():
        async with joined(served, mode) as client:
            call = asyncio.create_task(client.call_tool("wait", {}))
            await asyncio.to_thread(served.desk.waiting.wait, PATIENCE)
            call.cancel()
            assert await asyncio.to_thread(served.desk.ended.get, timeout=PATIENCE) == "wait"
            assert (await client.call_tool("echo", {})).content[0].text == "{}"

    play(main)


def test_a_stateless_client_that_closes_its_connection_ends_its_call(served):
    with socket.create_connection(served.address, timeout=PATIENCE) as line:
        line.sendall(served.modern(name="wait"))
        assert served.desk.waiting.wait(PATIENCE)
    assert served.desk.ended.get(timeout=PATIENCE) == "wait"


@pytest.fixture
def asked(served):
    """The answer to a call of a stateless client that asks its user."""
    _, text = served.send(served.modern(name="ask"))
    return json.loads(text.partition("\r\n\r\n")[2])["result"]


def answered(served, asked, client="raw", name="ask", arguments=None, answers=None, state=None):
    given = {key: {"action": "accept", "content": {"answer": "the left"}} for key in asked["inputRequests"]}
    params = {"inputResponses": given if answers is None else answers, "requestState": state or asked["requestState"]}
    _, text = served.send(served.modern(name=name, client=client, arguments=arguments, params=params))
    return json.loads(text.partition("\r\n\r\n")[2])


STRANGERS = [{"client": "another"}, {"name": "echo"}, {"arguments": {"a": 1}}, {"state": "x" * 43}]


@pytest.mark.parametrize("other", STRANGERS, ids=str)
def test_a_question_is_answered_by_the_same_call_of_the_same_client_only(served, asked, other):
    assert "continues no call" in answered(served, asked, **other)["error"]["message"]
    assert answered(served, asked)["result"]["content"][0]["text"] == "answer: the left"
    assert "continues no call" in answered(served, asked)["error"]["message"]


def test_a_question_without_an_answer_is_asked_again_under_another_state(served, asked):
    again = answered(served, asked, answers={"else": {"action": "accept", "content": {"answer": "x"}}})["result"]
    assert (again["resultType"], again["inputRequests"]) == ("input_required", asked["inputRequests"])
    assert again["requestState"] != asked["requestState"]
    assert answered(served, again)["result"]["content"][0]["text"] == "answer: the left"


def test_a_call_whose_answer_does_not_come_ends(monkeypatch):
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.05)
    with serving() as served:
        served.send(served.modern(name="ask"))
        assert served.desk.ended.get(timeout=PATIENCE) == "ask"


def test_only_so_many_questions_are_held(served, asked, monkeypatch):
    monkeypatch.setattr(limits, "HELD", 1)
    _, text = served.send(served.modern(name="ask"))
    assert "answer: None" in text
    assert answered(served, asked)["result"]["content"][0]["text"] == "answer: the left"
