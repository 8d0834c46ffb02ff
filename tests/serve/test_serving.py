"""A served session, from `serve` to its end, and what its history, its exports and its totals say of clients."""

import copy
import gc
import threading
import weakref

import pytest

from agentmagic import Agent, Session, tool, web_search
from agentmagic.display import terminal
from agentmagic.display.transcript import Transcript
from agentmagic.errors import MissingExtra, UsageError
from agentmagic.export.cells import to_notebook
from agentmagic.export.document import to_markdown
from agentmagic.host import current_host
from agentmagic.messages import ToolDef, Usage
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.serve import kernels
from agentmagic.testing import PATIENCE, invalid_history, run
from agentmagic.tools.base import Tool, result
from agentmagic.widgets import commands
from tests.serve.desks import Client, Office, listening_nowhere, served
from tests.turns import approve, hosted, names, notices


def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool(ask=True)
def careful() -> str:
    """Do something that could hurt."""
    return "done"


def session_of(*tools, answers=("The answer.",), **options):
    return Session(Agent(ScriptedModel(answers), tools=[double, *tools]), **options)


@pytest.fixture
def server():
    with hosted(Office(approve)), listening_nowhere() as made:
        yield made


def test_the_web_of_the_session_is_not_served_and_a_call_says_nothing_of_it(server):
    session = session_of(web_search(), names)
    session.serve(tools=True)
    client = Client(server.desk)
    assert "web_search" not in client.tools()
    assert client.call("names").text == "ask_user, double, names"
    assert "There is no tool 'web_search'" in client.call("web_search").text
    assert [notices(turn) for turn in session.turns] == [[], []]


# -- begin and end -----------------------------------------------------------------------------------


def test_tools_of_the_session_are_served_only_while_the_user_says_so(server):
    session = session_of()
    serving = session.serve()
    client = Client(server.desk)
    assert client.tools() == ["ask_user", "read_result"]
    assert "There is no tool 'double'" in client.call("double", number=2).text
    assert session.serve(tools=True) is serving
    assert "double" in client.tools()
    assert client.call("double", number=2).text == "4"
    session.serve()
    assert client.call("double", number=2).is_error
    assert len(server.desks) == 1


def test_the_end_closes_the_desk_and_removes_the_file_and_another_beginning_opens_a_new_one(server):
    session = session_of()
    serving = session.serve()
    assert (session.serving, serving.url, serving.ended) == (serving, server.url, False)
    assert [one.token for one in kernels.find_all()] == [*server.desks]
    serving.stop()
    again = session.serve()  # at once
    serving.stop()
    assert (serving.ended, serving.url, again is serving, again.ended) == (True, "", False, False)
    engine().call(_nothing())
    assert [*server.desks] == ["token-2"] == [one.token for one in kernels.find_all()]
    again.stop()
    assert (session.serving, kernels.find_all()) == (None, [])
    engine().call(_nothing())
    assert server.desks == {}


async def _nothing():
    """Let the engine do what was submitted before."""


def test_two_sessions_are_served_and_the_file_has_the_one_that_is_left(server):
    one, other = session_of(), session_of()
    one.serve(tools=True)
    first = Client(server.desk)
    second = other.serve(tools=True)
    assert [kernel.token for kernel in kernels.find_all()] == ["token-2"]
    second.stop()
    assert [kernel.token for kernel in kernels.find_all()] == ["token-1"]
    assert first.call("double", number=2).text == "4"
    assert [len(session.turns) for session in (one, other)] == [1, 0]
    one.close()
    assert kernels.find_all() == []


@pytest.mark.parametrize("close", ["close", "aclose"])
def test_a_session_that_is_closed_is_served_no_longer_and_its_open_call_ends(close):
    with served(session_of(careful)) as client:
        waiting = client.start("careful")
        client.waits_for("asked")
        queued = Client(client.desk, "other").start("double", number=2)
        session = client.session
        if close == "close":
            session.close()
        else:
            engine().call(session.aclose())
        assert waiting.result(PATIENCE).is_error
        assert "no longer served" in queued.result(PATIENCE).text
        assert len(session.turns) == 1
        assert (session.serving, session.running, kernels.find_all()) == (None, None, [])
        session.close()


@pytest.mark.posix
def test_what_cannot_begin_leaves_nothing_served(server, monkeypatch):
    async def missing(_desk):
        raise MissingExtra("Serving the notebook", "mcp")

    session = session_of()
    with monkeypatch.context() as patch:
        patch.setattr(server, "open", missing)
        with pytest.raises(MissingExtra):
            session.serve()
    assert session.serving is None
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "folder", lambda: kernels.Path("/dev/null/no"))
        with pytest.raises(UsageError, match="its file in /dev/null/no cannot be written"):
            session.serve()
    assert (session.serving, server.desks) == (None, {})
    session.serve(tools=True)
    assert Client(server.desk).call("double", number=2).text == "4"


def test_a_copy_of_a_served_session_is_not_served_and_one_that_was_ended_can_go(server):
    session = session_of()
    session.serve(tools=True)
    Client(server.desk).call("double", number=2)
    for made in (session.fork(), copy.deepcopy(session)):
        assert (made.serving, len(made.turns)) == (None, 1)
    session.serving.stop()
    session.close()
    current_host().view_of_calls.runs.clear()
    gone = weakref.ref(session)
    del session, made
    engine().call(_nothing())
    for thread in threading.enumerate():  # that of the call may still be on its way out
        if thread.name == "agentmagic-tool":
            thread.join(PATIENCE)
    gc.collect()
    assert gone() is None


def test_wait_ends_when_the_serving_does(server):
    session = session_of()
    serving = session.serve()
    serving.stop()
    serving.wait()
    assert serving.ended


# -- the history -------------------------------------------------------------------------------------


def test_calls_change_no_answer_no_caps_and_no_totals_of_the_session(server):
    session = session_of(answers=('{"n": 1}', "More."), max_tokens=1)
    session.serve(tools=True)
    session.ask("A number?")
    session._paid_usage = Usage(input_tokens=100)
    assert run(session, "More?").stop_reason == "budget"
    client = Client(server.desk)
    answer, usage, last = session.answer, session.usage, session.last
    assert client.call("double", number=2).text == "4"
    assert (session.answer, session.usage, session.last) == (answer, usage, last)
    assert session.usage.cost == 0.0
    assert session.turns[-1].result.stop_reason == "done"


def test_the_variable_of_the_model_replaces_no_client(server, monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_MODEL", "openai:gpt-5.4")
    session = session_of()
    session.serve(tools=True)
    assert Client(server.desk).call("double", number=2).text == "4"
    assert "AGENTMAGIC_MODEL" not in str(session.turns[-1].events)


def test_a_saved_conversation_with_calls_goes_on_in_another_session(server, tmp_path):
    session = session_of(path=tmp_path / "a.jsonl")
    session.serve(tools=True)
    session.ask("One?")
    client = Client(server.desk)
    client.call("double", number=2)
    client.call("doubel")
    session.close()
    again = Session.load(tmp_path / "a.jsonl", Agent(ScriptedModel(["More."])))
    assert again.messages == session.messages
    assert invalid_history(again.messages) is None
    assert (again.answer, again.ask("Two?").final_text, again.answer) == ("The answer.", "More.", "More.")
    assert [match.turn for match in again.search("fastmcp calls")] == [1, 2]
    assert (again.tool_calls, again.tool_failures) == (2, 1)


def test_a_call_is_undone_and_done_again_like_a_turn_and_begun_again_by_its_client_only(server):
    session = session_of()
    session.serve(tools=True)
    session.ask("One?")
    Client(server.desk).call("double", number=2)
    with pytest.raises(UsageError, match="a call of a client"):
        session.edit(-1)
    assert session.undo().text == "fastmcp calls double"
    assert len(session.turns) == 1
    assert session.redo().text == "fastmcp calls double"
    assert len(session.turns) == 2
    session.clear()
    assert session.turns == ()
    assert Client(server.desk).call("double", number=2).text == "4"


def test_exports_tell_who_called(server):
    session = session_of(careful)
    session.serve(tools=True)
    client = Client(server.desk, "claude-code")
    client.call("double", number=21)
    client.call("careful")
    document = to_markdown(session.turns)
    assert "> claude-code calls double" in document
    assert "42" in document
    cells = to_notebook(session.turns, [double])
    assert "double(number=21)" in str(cells)
    assert "claude-code: double" in terminal.render(Transcript(session.events))
    assert "unknown" not in document + terminal.render(Transcript(session.events))


# -- code --------------------------------------------------------------------------------------------


class Sheet:
    """A notebook without cells that runs programs."""

    def __init__(self):
        self.namespace = {"rows": [1, 2]}

    def run(self, code):
        exec(compile(code, "program", "exec"), self.namespace)  # noqa: S102

    def cells(self):
        return (), "No cells."

    def stage(self, proposed):
        return proposed

    def fate(self, _proposed):
        return None


class Kernel(Office):
    """A kernel whose main thread carries out calls while a test waits for them."""

    takes_tools = True


@pytest.fixture
def kernel():
    sheet = Sheet()
    with hosted(Kernel(approve, notebook=sheet)), listening_nowhere() as made:
        session = session_of(careful, namespace=sheet.namespace, answers=("Fine.", "Told."))
        session.serve(tools=True)
        yield Client(made.desk, session=session)
        session.close()


def carried_out(call):
    """The result of a call, for which the main thread works until it is over."""
    engine().wait(call, call.cancel)
    return call.result()


def test_a_program_of_a_client_calls_the_tools_as_functions_and_is_undone_with_a_receipt(kernel):
    assert {"run_python", "read_cells", "propose_cell", "view_figure", "double"} <= {*kernel.tools()}
    code = "rows.append(tools.double(number=21)); tools.careful()"
    assert not carried_out(kernel.start("run_python", code=code)).is_error
    space, (turn,) = kernel.session._watcher.namespace, kernel.session.turns
    assert space["rows"] == [1, 2, 42]
    assert [event.call.name for event in turn.events if event.type == "inner_call"] == ["double", "careful"]
    assert [event.call.name for event in turn.events if event.type == "approval_asked"] == ["run_python", "careful"]
    (changed,) = [event for event in turn.events if event.type == "variables_changed"]
    assert "rows" in str(changed)
    kernel.session.undo()
    assert space["rows"] == [1, 2]
    kernel.session.redo()
    assert space["rows"] == [1, 2, 42]


def test_an_undo_takes_back_the_program_of_a_client_that_has_looked_at_its_work_since(kernel):
    space, session = kernel.session._watcher.namespace, kernel.session
    carried_out(kernel.start("run_python", code="rows.append(3)"))
    for name in ("list_variables", "read_cells"):
        carried_out(kernel.start(name))
    assert session.undo().text == "fastmcp calls run_python"
    assert (space["rows"], session.turns, session.undone.looks) == ([1, 2], (), 2)
    assert "Forgotten too: 2 later calls that changed nothing." in commands.undo_report(session)
    session.redo()
    assert (space["rows"], len(session.turns)) == ([1, 2, 3], 1)
    carried_out(kernel.start("run_python", code="rows.append(4)"))
    assert session.undo().text == "fastmcp calls run_python"
    assert space["rows"] == [1, 2, 3]  # one program at a time


def test_a_cell_that_a_client_proposes_is_settled_and_its_fate_is_told_to_the_model(kernel):
    assert not carried_out(kernel.start("propose_cell", source="a = 1", why="Sets a.")).is_error
    (proposed,) = kernel.session.proposals
    assert kernel.session.settle(proposed.id, "discarded")
    engine().call(_nothing())
    assert kernel.session.ask("What became of it?").final_text == "Fine."
    assert "discarded" in str(kernel.session.turns[-1].prompt.parts)


def test_the_servers_of_a_session_are_served_with_its_tools(server):
    class Files:
        """The tool of a server."""

        async def tools(self):
            async def read(call, _context):
                return result(call, "the text")

            return [Tool(ToolDef("read", "Read.", {"type": "object", "properties": {}}, server="files"), read)]

        async def aclose(self):
            pass

    session = session_of()
    session.add_toolset(Files())
    session.serve(tools=True)
    client = Client(server.desk)
    assert "read" in client.tools()
    assert client.call("read").text == "the text"


def test_a_call_that_cannot_be_shown_is_ended(server):
    def broken(_run):
        raise ValueError("no screen")

    session = session_of(careful)
    session.serve(tools=True)
    view = current_host().view_of_calls
    view.begin = broken
    with pytest.raises(ValueError, match="no screen"):
        Client(server.desk).call("careful")
    del view.begin
    assert Client(server.desk).call("double", number=2).text == "4"
    assert session.turns[0].result.stop_reason == "cancelled"


def test_a_conversation_with_calls_is_compacted_and_both_sides_go_on(server):
    @tool
    def long() -> str:
        """Write much."""
        return "begin " + "x" * 15_000 + " end"

    session = session_of(long, answers=("Fine.", "Fine."))
    session.serve(tools=True)
    client = Client(server.desk)
    for _ in range(8):
        assert not client.call("long").is_error
    assert session.compact() is not None
    assert client.call("double", number=2).text == "4"
    assert session.ask("Go on?").final_text == "Fine."
    assert invalid_history(session.messages) is None
    assert session.undo().text == "Go on?"
