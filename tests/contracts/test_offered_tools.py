"""The tools that a request offers: their order is always the same, and no more of them than the server takes."""

from itertools import permutations
from typing import Any

from agentmagic import Agent, Session
from tests.contracts.conversing import every_api, tools
from tests.providers.strict.rules import Refused
from tests.providers.strict.script import call, say
from tests.providers.strict.server import Strict
from tests.turns import notices

MOST = 2


def count(value: Any) -> int:
    """Count the functions that a request's body offers."""
    lists = [one.get("functionDeclarations", [one]) for one in value.get("tools", ())]
    return sum(map(len, lists))


def refuse_more_tools(server: Strict) -> None:
    def check(path: str, body: Any) -> None:
        type(server.api).check(server.api, path, body)
        if (offered := count(body)) > MOST:
            message = f"Invalid 'tools': array too long. Expected at most {MOST} tools, but got {offered} instead."
            raise Refused(message)

    server.api.check = check


@every_api
def test_a_server_that_takes_fewer_tools_answers_with_those_and_the_rest_is_named_once(conversation, api):
    with conversation(api, call(("clock", {"zone": "UTC"})), say("Noon."), say("Still noon.")) as talk:
        refuse_more_tools(talk.server)
        session = Session(Agent(talk.server.model(), tools=tools(talk.ran)))
        try:
            first, second = session.ask("What time is it?"), session.ask("And now?")
        finally:
            del talk.server.api.check
            session.close()
        assert (first.final_text, second.final_text) == ("Noon.", "Still noon.")
        assert notices(first) == ["The server takes at most 2 tools. Left out from now on: faulty."]
        assert notices(second) == []
        assert [count(request.json) for request in talk.server.requests] == [3, MOST, MOST, MOST]


@every_api
def test_the_order_in_which_tools_are_given_changes_nothing_of_a_request(conversation, api):
    with conversation(api) as talk:
        bodies = []
        for given in permutations(tools([])):
            talk.server.begin_anew(say("Hello."))
            session = Session(Agent(talk.model, tools=given))
            session.ask("Hi.")
            session.close()
            bodies.append(talk.server.requests[0].body)
        assert len(set(bodies)) == 1
