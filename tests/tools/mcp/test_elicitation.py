"""What a server may ask of us, put as typed questions through the call that is running."""

import asyncio
from pathlib import Path

import pytest

from agentmagic.errors import ServerError, ToolError, Unavailable, UsageError
from agentmagic.messages import Media, Message, Text, ToolCall
from agentmagic.tools.mcp import elicitation, limits, session_task
from agentmagic.tools.mcp.config import InProcess, ServerConfig
from agentmagic.tools.mcp.elicitation import Field, fields_of, read_answer
from agentmagic.tools.mcp.pending import SamplingAnswer, SamplingRequest, ServerHost
from agentmagic.tools.mcp.server_requests import RunningCall, ServerRequests
from tests.tools.mcp.calling import answering, call, connected, context, played, raw
from tests.tools.mcp.servers import obliging
from tests.turns import SOON


def over_both(*, host=None, roots=(Path("/data"),), modes=("legacy", session_task.MODE)):
    """Make a test of an async function that gets a server that asks, once in the handshake era and once later."""

    async def main(scene):
        entry = ServerConfig(InProcess(obliging.make()), timeout=20, roots=roots)
        async with connected(host=host, it=entry) as servers:
            await scene(servers)

    def play(scene):
        for mode in modes:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(session_task, "MODE", mode)
                asyncio.run(main(scene))

    return played(play)


by_handshake = over_both(modes=("legacy",))


@over_both()
async def test_a_form_is_filled_in_field_by_field(servers, /):
    ask, asked = answering("Rome", "many", "3", "y")
    answer = await call(servers, "book", ask=ask)
    assert answer.text == "accept city='Rome' nights=3 breakfast=True"
    assert asked[0] == "The server 'it' asks: Book a trip\nCity: Where to? (text; - declines)"
    assert asked[2].startswith("That is no integer. Nights (integer, else 2")
    assert len(asked) == 4
    for answers, said in (
        (("Oslo", "", ""), "accept city='Oslo' nights=2 breakfast=False"),
        (("-",), "decline None"),
        ((ToolError("No one is there."),), "cancel None"),
    ):
        ask, _ = answering(*answers)
        assert (await call(servers, "book", ask=ask)).text.startswith(said)


REQUESTS = []


async def complete(request, _call):
    REQUESTS.append(request)
    if len(REQUESTS) > 1:
        raise Unavailable("the secret place is down")
    return SamplingAnswer("4", "a-model")


@over_both(host=ServerHost(complete))
async def test_a_model_answers_once_a_person_agreed_and_its_failure_is_told_to_the_person_only(servers, /):
    REQUESTS.clear()
    ask, asked = answering("y")
    assert (await call(servers, "think", ask=ask)).text == "a-model: 4"
    assert "in up to 10 tokens:\ninstructions: Be short.\nuser: 2 + 2?\n" in asked[0]
    assert REQUESTS[-1].instructions == "Be short."
    assert REQUESTS[-1].messages == (Message("user", (Text("2 + 2?"),)),)
    ask, _ = answering("n")
    assert "the user did not agree" in (await call(servers, "think", ask=ask)).text
    ask, _ = answering("y")
    answer = await call(servers, "think", ask=ask)
    assert answer.text.count("the secret place is down") == 1
    assert "[agentmagic: What it asked for could not be had" in answer.text or answer.status == "error"


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ((Text("x" * 100_000),), "… (the first 10,000 of 100,000 characters)\nSend it?"),
        ((Text("What is it?"), Media("image/png", b"1234")), "user: What is it?[image/png, 4 bytes]\nSend it?"),
    ],
)
def test_what_a_model_would_be_sent_is_shown_or_named(parts, shown):
    request = SamplingRequest("s", (Message("user", parts),), "Be short.", 10)
    ask, asked = answering("n")
    assert asyncio.run(ServerHost(complete).sample(request, context(ToolCall("1", "think", {}), ask=ask))) is None
    assert shown in asked[0]


def test_a_server_that_asks_without_end_leaves_one_note():
    async def main():
        requests = ServerRequests(None, ())
        call = RunningCall(None)
        requests._calls.append(call)
        requests._questions = limits.QUESTIONS
        for _ in range(100):
            assert (await requests.elicit(None, None)).action == "decline"
        return call.notes

    (note,) = asyncio.run(main())
    assert "the rest was declined" in note


@over_both(host=ServerHost(complete=None), roots=())
async def test_neither_a_model_nor_folders_are_offered_where_none_were_given(servers, /):
    ask, asked = answering()
    assert (await call(servers, "think", ask=ask)).status == "error"
    assert (await call(servers, "places", ask=ask)).status == "error"
    assert asked == []


@by_handshake
async def test_an_address_is_shown_and_never_opened_and_no_clock_runs_while_a_person_thinks(servers, /):
    async def slow(question):
        assert "https://example.org/sign-in\nOpen it yourself" in question
        answer, loop = asyncio.Future(), asyncio.get_running_loop()
        loop.call_later(1.1 * SOON, answer.set_result, "y")
        return await answer

    ask, _ = answering("n")
    assert (await call(servers, "visit", ask=ask)).text == "decline"
    connection = servers._servers["it"].connection
    connection.config = ServerConfig(connection.config.transport, timeout=SOON)
    assert (await call(servers, "visit", ask=slow)).text == "accept"


@by_handshake
async def test_a_question_is_withdrawn_when_its_call_is_cancelled(servers, /):
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def never(question):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    calling = asyncio.create_task(call(servers, "visit", ask=never))
    await asked.wait()
    calling.cancel()
    await asyncio.wait((calling,))
    await withdrawn.wait()


@over_both()
async def test_prompts_and_resources_are_read_or_said_not_to_be_there_and_a_server_is_told_its_folders(servers, /):
    (prompt,) = await servers.prompts()
    assert (prompt.server, prompt.name, prompt.description) == ("it", "greet", "Greet somebody.")
    assert [(one.name, one.required) for one in prompt.arguments] == [("name", True), ("tone", False)]
    messages = await servers.prompt("it", "greet", {"name": "Ada"})
    assert messages == (Message("user", (Text("Say hello to Ada in a warm tone."),)),)
    memo, template = await servers.resources("it")
    assert (memo.uri, memo.name, memo.media_type, memo.template) == ("memo://one", "one", "text/plain", False)
    assert (template.uri, template.template) == ("memo://of/{day}", True)
    (read,) = await servers.read("it", "memo://of/monday")
    assert (read.uri, read.text) == ("memo://of/monday", "nothing on monday")
    state = servers.get("it")
    assert (state.title.partition(" ")[0], state.instructions) == ("obliging", "Be kind to it.")
    assert state.protocol in ("2025-11-25", "2026-07-28")
    assert (await call(servers, "places")).text == "file:///data"
    with pytest.raises(ServerError, match=r"The MCP server 'it' did not give the prompt 'none': "):
        await servers.prompt("it", "none", {})
    with pytest.raises(ServerError, match=r"The MCP server 'it' did not read 'memo:x': "):
        await servers.read("it", "memo:x")
    with pytest.raises(UsageError, match="There is no server 'that'"):
        await servers.read("that", "memo://one")
    await servers.remove("it")
    await servers.add("raw", raw())
    assert await servers.prompts() == []
    assert await servers.resources() == []


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Sign in", {"password": {"type": "string"}}),
        ("Sign in", {"x": {"type": "string", "title": "API key"}}),
        ("Sign in", {"x": {"type": "string", "description": "the one-time code"}}),
        ("Sign in", {"x": {"type": "string", "format": "password"}}),
        ("Sign in", {"pin": {"type": "integer"}}),
        ("Please type your password", {"x": {"type": "string"}}),
    ],
)
def test_a_secret_is_never_asked_for_in_a_form(message, field):
    with pytest.raises(elicitation.UnusableForm, match="secrets are never asked for in a form"):
        fields_of(message, {"type": "object", "properties": field})
    number = {"type": "integer", "description": "any, but not your pin"}
    (field,) = fields_of("Hi", {"properties": {"x": number}, "required": 7})
    assert (field.kind, field.required) == ("integer", False)


@pytest.mark.parametrize(
    "properties",
    [
        {"x": 7},
        {"x": {"type": ["string", "null"]}},
        {"x": {"enum": [f"v{number}" for number in range(101)]}},
        {"x": {"type": "array", "items": {"enum": 7}}},
        {f"x{n}": {"type": "string"} for n in range(50)},
    ],
)
def test_what_is_no_flat_form_that_can_be_asked_is_not_shown(properties):
    with pytest.raises(elicitation.UnusableForm):
        fields_of("Please", {"properties": properties})


def test_choices_are_read_in_the_three_ways_they_are_written():
    properties = {
        "a": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "b": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "c": {"type": "array", "items": {"type": "string", "enum": ["r", "g"]}},
        "d": {"type": "string", "enum": ["r", "s", "Red"], "enumNames": ["Red", "Red", "Blue"]},
    }
    a, b, c, d = fields_of("Colour?", {"type": "object", "properties": properties, "required": ["a"]})
    assert (a.kind, a.choices, a.required) == ("choice", {"Red": "r", "Green": "g"}, True)
    assert (b.choices, b.required) == (a.choices, False)
    assert (c.kind, read_answer(c, "r, g")) == ("choices", ["r", "g"])
    assert (read_answer(a, "Green"), read_answer(a, "g")) == ("g", "g")
    with pytest.raises(ValueError, match="'blue' is none of them"):
        read_answer(a, "blue")
    assert d.choices == {"Red": "r", "Red (s)": "s", "Blue": "Red"}, "of two with one label both can be chosen"
    assert (read_answer(d, "Red"), read_answer(d, "s")) == ("r", "s")


def test_typed_answers_are_read_by_kind():
    assert read_answer(Field("x", "X", "number"), "1.5") == 1.5
    assert read_answer(Field("x", "X", "boolean"), "No") is False
    for kind, wrong in (
        ("integer", "1.5"),
        ("integer", "9" * 400),
        ("number", "nan"),
        ("boolean", "maybe"),
    ):
        with pytest.raises(ValueError, match=r"no integer|no number|y or n"):
            read_answer(Field("x", "X", kind), wrong)


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "string", "default": "Rome"}, "Rome"),
        ({"type": "string", "default": "\x1b[2JRome"}, None),
        ({"type": "integer", "default": 2}, 2),
        ({"type": "integer", "default": 10**400}, None),
        ({"type": "boolean", "default": False}, False),
        ({"type": "boolean", "default": 1}, None),
        ({"enum": ["a", "b"], "default": "b"}, "b"),
        ({"enum": ["a", "b"], "default": "c"}, None),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]}, ["a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "c"]}, None),
    ],
)
def test_a_default_stands_only_where_it_fits_and_can_be_shown(schema, default):
    (field,) = fields_of("Fill in", {"properties": {"x": schema}})
    assert field.default == default
