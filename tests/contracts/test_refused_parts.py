"""A strict server refuses any one part of a history: the conversation goes on, in at most two requests."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from agentmagic import Agent, Session
from agentmagic.testing import PATIENCE
from tests.contracts.conversing import GOES_ON, PIXEL, Conversation, api_case, tools
from tests.contracts.test_histories import PAIRS
from tests.providers.strict.rules import Refused
from tests.providers.strict.script import call, say, silence
from tests.providers.strict.server import APIS, Strict
from tests.turns import notices

HISTORY_FIELDS = ("messages", "input", "contents")
LISTS = ("content", "parts", "tool_calls")
PLAIN = ("text", "input_text", "output_text")


def follows(maker: str, heir: str) -> bool:
    """Whether an API is the next one after another in their list, so that each of them is an heir once."""
    names = [*APIS]
    return names[(names.index(maker) + 1) % len(names)] == heir


def blocks(body: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path and the JSON of each part of a request's history, up to its last message."""
    name = next(one for one in HISTORY_FIELDS if one in body)
    for place, message in enumerate(body[name][:-1]):
        inner = [(field, message[field]) for field in LISTS if isinstance(message.get(field), list)]
        if message.get("role") == "system":
            continue
        if not inner or isinstance(message.get("content"), str):
            yield f"{name}[{place}]", {**message, "tool_calls": None}
        for field, parts in inner:
            for index, part in enumerate(parts):
                yield f"{name}[{place}].{field}[{index}]", {**part, "cache_control": None}


def is_special(part: Any) -> bool:
    """Whether a part is more than words: a picture, a thought, a call, a result."""
    words = {"text", "content", "type", "role"}
    filled = {key for key, value in part.items() if value}
    return not filled <= words or (part.get("type") or "text") not in (*PLAIN, "message") or part.get("role") == "tool"


def refuse(server: Strict, unwanted: Any, *, named: bool) -> None:
    """Let a server refuse each request whose history has a part, which the refusal names by its path or not at all."""

    def check(path: str, body: Any) -> None:
        type(server.api).check(server.api, path, body)
        for where, part in blocks(body):
            if part == unwanted:
                message = f"{where}: this is not allowed" if named else "Invalid request."
                raise Refused(message)

    server.api.check = check


def hard_history(talk: Conversation) -> None:
    """Give a conversation a picture, thoughts, calls and results."""
    talk.server.script(
        call(("clock", {"zone": "UTC"}), ("camera", {}), think="Hm.", says="Let me look."),
        say("It is noon.", think="That is all."),
    )
    _, error = talk.ask(["What time is it?", PIXEL])
    assert error is None, error


def goes_on_without(talk: Conversation, heir: Conversation, unwanted: Any, *, named: bool) -> None:
    """Let the heir's model, which knows nothing of refusals yet, go on with a copy of the history, for two turns."""
    server = heir.server
    server.begin_anew(say(GOES_ON), say(GOES_ON))
    refuse(server, unwanted, named=named)
    session = Session(Agent(server.model(), tools=tools([])), messages=talk.session.messages)
    try:
        first, second = session.ask("And now?"), session.ask("And then?")
    finally:
        del server.api.check
        session.close()
    assert (first.final_text, second.final_text) == (GOES_ON, GOES_ON), unwanted
    assert len(server.refusals) == 1, (unwanted, server.refusals)
    assert len(server.requests) == 3
    assert (len(notices(first)), len(notices(second))) == (1, 0)
    assert session.messages[: len(talk.session.messages)] == talk.session.messages


def sent_parts(talk: Conversation, heir: Conversation) -> list[Any]:
    """Return the parts that the heir's model is sent for the history."""
    heir.server.begin_anew(say(GOES_ON))
    session = Session(Agent(heir.server.model(), tools=tools([])), messages=talk.session.messages)
    session.ask("And now?")
    session.close()
    return [part for _, part in blocks(heir.server.requests[0].json)]


CASES = [
    pytest.param(*pair.values, id=pair.id, marks=[*pair.marks, *([] if follows(*pair.values) else [pytest.mark.slow])])
    for pair in PAIRS
]


@pytest.mark.parametrize(("maker", "heir"), CASES)
def test_any_part_of_a_history_that_a_server_refuses_costs_one_more_request_and_one_notice(conversation, maker, heir):
    with conversation(maker) as talk, conversation(heir) as other:
        hard_history(talk)
        parts = sent_parts(talk, other)
        assert any(map(is_special, parts))
        for part in parts:
            goes_on_without(talk, other, part, named=True)
            if is_special(part):
                goes_on_without(talk, other, part, named=False)


def refuse_user_after_tool(path: str, body: Any) -> None:
    """Refuse what Mistral's servers refuse."""
    roles = [message["role"] for message in body["messages"]]
    if ("tool", "user") in pairwise(roles):
        message = "Unexpected role 'user' after role 'tool'"
        raise Refused(message)


@pytest.mark.parametrize("api", [api_case("openai-chat")])
def test_a_server_that_takes_no_user_after_a_tool_answers_each_kind_of_turn(conversation, api):
    with conversation(api, max_iterations=2) as talk:
        model = talk.server.model()
        talk.session.agent = Agent(model, tools=tools(talk.ran), max_iterations=2)
        talk.server.api.check = refuse_user_after_tool
        try:
            looks = call(("camera", {})), say("A picture.")
            limited = call(("clock", {"zone": "UTC"})), call(("clock", {"zone": "CET"})), say("Noon.")
            silent = call(("clock", {"zone": "UTC"})), silence(), say("At last.")
            for steps, answer in ((looks, "A picture."), (limited, "Noon."), (silent, "At last.")):
                talk.server.script(*steps)
                result, error = talk.ask()
                assert (error, result.final_text) == (None, answer)
        finally:
            del talk.server.api.check
        assert len(talk.server.refusals) == 1


@pytest.mark.parametrize("api", [api_case("openai-chat")])
def test_a_turn_that_was_stopped_in_a_tool_is_followed_by_answers(conversation, api):
    hold = threading.Event()

    def slow() -> str:
        """Take long."""
        hold.wait(PATIENCE)
        return "late"

    with conversation(api, call(("slow", {}))) as talk:
        talk.session.agent = Agent(talk.server.model(), tools=[slow])
        talk.server.api.check = refuse_user_after_tool
        try:
            run = talk.session.start("Go.")
            begun = threading.Event()
            run.listen(lambda event: event.type == "tool_started" and begun.set())
            assert begun.wait(PATIENCE)
            run.cancel()
            assert run.wait().stop_reason == "cancelled"
            hold.set()
            talk.server.script(say("One."), say("Two."))
            results = talk.ask("Again?")[0], talk.ask("And again?")[0]
        finally:
            del talk.server.api.check
        assert [result.final_text for result in results] == ["One.", "Two."]
        assert [len(notices(result)) for result in results] == [1, 0]
        assert len(talk.server.refusals) == 1
