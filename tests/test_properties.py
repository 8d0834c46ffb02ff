"""What holds of every turn, whatever the model, the tools and the person do: random scripts, random cancels.

AGENTMAGIC_EXAMPLES sets how many scripts are played.
"""

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tenacity import wait_none

from agentmagic import Agent, Done, Session, tool
from agentmagic.approval.approvals import Approvals, ask_no_one
from agentmagic.context.request_view import RequestView
from agentmagic.errors import AgentMagicError, BadRequest, ContextTooLong, MalformedCall, RateLimited, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted, ToolFinished, fold
from agentmagic.loop import retry
from agentmagic.loop.turn_options import TurnDriver
from agentmagic.messages import Reasoning, Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.gemini import model as gemini_model
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.serialization import decode_log, encode
from agentmagic.serve.client_model import ClientModel
from agentmagic.testing import invalid_history
from tests.providers.strict.chat import Chat
from tests.providers.strict.gemini import MODEL, Gemini
from tests.providers.strict.responses import Responses

EXAMPLES = int(os.environ.get("AGENTMAGIC_EXAMPLES", "50"))

# -- scripts ---------------------------------------------------------------------------------------

TOOLS = ("quick", "wrong", "endless", "over", "alone", "asks", "unknown")
FAULTS = (StreamBroken, RateLimited, BadRequest, ContextTooLong, MalformedCall, ValueError)
ids = st.sampled_from(["", "same"])
called = st.builds(
    ToolCall,
    ids,
    st.sampled_from(TOOLS),
    st.sampled_from([{"n": 1}, {"n": 2}, {"n": "no number"}, {"_raw": '{"n": '}, {}]),
)
said = st.sampled_from(["The answer.", "", " \n", "Half of \ud800 it", "x" * 300]).map(Text)
thought = st.sampled_from(["", "Let me see."]).map(Reasoning)


@dataclass(frozen=True)
class Response:
    """What the model does at one request: parts, then perhaps a fault, or an end that is cut."""

    parts: tuple
    fault: type | None = None
    cut: bool = False


scripted_responses = st.builds(
    Response,
    st.lists(st.one_of(called, said, thought), max_size=4).map(tuple),
    st.none() | st.sampled_from(FAULTS),
    st.sampled_from([False, False, False, True]),
)
good = st.builds(Response, st.lists(called, min_size=1, max_size=3).map(tuple))
scripts = st.lists(st.one_of(good, scripted_responses), max_size=6)
turns = st.lists(
    st.tuples(
        scripts, st.none() | st.integers(0, 40), st.sampled_from(["ask", "undo", "edit", "fork", "load", "served"])
    ),
    min_size=1,
    max_size=3,
)


class Player:
    """A model that plays responses, and answers once there are none left."""

    name = "testing:player"

    def __init__(self):
        self.responses = []
        self.requests = []
        self._calls = 0

    async def stream(self, request):
        self.requests.append(request)
        response = self.responses.pop(0) if self.responses else Response((Text("That is all."),))
        for index, part in enumerate(response.parts):
            await asyncio.sleep(0)
            whole = self._with_id(part)
            yield PartStarted(index, part.type, getattr(part, "name", ""))
            yield PartDelta(index, getattr(part, "text", "{"))
            yield PartFinished(index, whole)
        if response.fault is not None:
            raise response.fault("a fault of the script")
        yield ModelFinished(Usage(3, 1, 2), "end", cut=response.cut)

    def _with_id(self, part):
        if not isinstance(part, ToolCall) or part.id:
            return part
        self._calls += 1
        return ToolCall(f"call_{id(self)}_{self._calls}", part.name, part.arguments)

    async def aclose(self):
        pass


def quick(n: int) -> str:
    """Return at once."""
    return f"quick {n}"


def wrong(n: int) -> str:
    """Fail."""
    return {}[n]


@tool(timeout=0.01)
async def endless(n: int) -> str:
    """Never return."""
    await asyncio.Event().wait()
    return "never"


def over(n: int) -> Done:
    """End the turn."""
    return Done(f"over {n}")


@tool(parallel=False)
async def alone(n: int) -> str:
    """Run with nothing beside it."""
    await asyncio.sleep(0)
    return f"alone {n}"


@tool(ask=True)
def asks(n: int) -> str:
    """Wait for a person, who is not there."""
    return f"asked {n}"


# -- what holds ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(retry, "_backoff", lambda _settings: wait_none())


PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(plan=turns)
def test_no_history_is_refused_and_no_result_is_lost_whatever_happens(plan):
    with tempfile.TemporaryDirectory() as folder:
        model = Player()
        agent = Agent(model, tools=[quick, wrong, endless, over, alone, asks], max_iterations=4)
        session = Session(agent, path=Path(folder, "session.jsonl"))
        for script, cancel_at, operation in plan:
            session = _prepared(session, operation, script, folder)
            run = _begin(session, model, script, cancel_at, operation)
            _check_run(run)
            _check_session(session)
        for request in model.requests:
            assert invalid_history(request.messages) is None
            _check_accepted(request)
        session.close()


def _serve(session, script):
    """Have a client make the calls of a script, each in a turn of its own."""
    for call in (part for response in script for part in response.parts if isinstance(part, ToolCall)):
        model = ClientModel("a client", replace(call, id=call.id or "its own"))
        driver = TurnDriver(model, Approvals(), RequestView(), ask_no_one)
        title = f"a client calls {call.name}"
        _check_run(session._start_client_turn(title, driver, session.toolsets(), attended=False))
        _check_session(session)


def _prepared(session, operation, script, folder):
    match operation:
        case "undo":
            session.undo()
        case "fork":
            forked = session.fork()
            forked.save(Path(folder, f"fork{len(list(Path(folder).iterdir()))}.jsonl"))
            session.close()
            return forked
        case "served":
            _serve(session, script)
        case "load" if session.turns:
            session.close()
            return Session.load(session.path, session.agent)
    return session


def _begin(session, model, script, cancel_at, operation):
    model.responses = list(script)
    run = session.edit(-1, "again") if operation == "edit" and session.turns else session.start("go")
    heard = []

    def cancel(event):
        heard.append(event)
        if len(heard) - 1 == cancel_at:
            run.cancel()

    run.listen(cancel)
    return run


def _check_run(run):
    try:
        result = run.wait()
    except AgentMagicError as error:
        result = error.result
    kinds = [event.type for event in run.events]
    assert kinds.count("turn_started") == kinds.count("turn_finished") == 1
    assert (kinds[0], kinds[-1]) == ("turn_started", "turn_finished")
    finished = [event.result for event in run.events if isinstance(event, ToolFinished)]
    kept = [part for message in result.history_delta if message.role == "tool" for part in message.parts]
    assert sorted(map(repr, finished)) == sorted(map(repr, kept)), "a finished result was lost or made up"
    assert fold(run.events) == result.history_delta
    assert decode_log([encode(event) for event in run.events])[-1].result.history_delta == result.history_delta


def _check_session(session):
    assert invalid_history(session.messages) is None
    again = Session.load(_copy(session.path))
    assert again.messages == session.messages, "the journal tells another story"
    assert again.usage == session.usage
    again.close()


def _check_accepted(request):
    """Ask the three strict servers whether they would take a request."""
    for api, encode_for, model in (
        (Chat(), chat_completions.encode, "gpt-5.4"),
        (Responses(), responses.encode, "gpt-5.4"),
        (Gemini(), gemini_model.encode, MODEL),
    ):
        body = json.loads(json.dumps(encode_for(request, model)))
        api.check(api.path, body)


def _copy(path):
    copy = path.with_name("copy.jsonl")
    copy.write_bytes(path.read_bytes())
    return copy
