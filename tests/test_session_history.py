"""A session's past: saved, taken up again, forked, edited, searched; and one tool called by hand."""

import inspect
import logging
import threading
from copy import copy, deepcopy
from dataclasses import fields

import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.lib.pretty import pretty

from agentmagic import Agent, Policy, Rule, Session, ToolContext, register_secret, tool
from agentmagic.errors import JournalError, SessionBusy, UsageError
from agentmagic.events import TurnFinished, is_delta
from agentmagic.history.history import History
from agentmagic.history.journal import Journal
from agentmagic.history.journal_reader import Saved
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.mapping.options import MapSettings
from agentmagic.messages import Message, Text, ToolCall
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import invalid_history
from tests.turns import calls, notices, scripted

DEAD = 10


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def recipe(*steps, **options):
    return Agent(ScriptedModel(steps), tools=[add], **options)


def spoken(*words):
    """A session that has said words, one a turn."""
    session = Session(recipe(*words))
    for number, _ in enumerate(words):
        session.ask(f"prompt {number}")
    return session


@pytest.mark.parametrize(
    "change",
    [Session.clear, Session.undo, lambda session: session.save("other.jsonl"), lambda session: session.restore()],
    ids=["clear", "undo", "save", "restore"],
)
def test_no_turn_begins_while_the_history_is_changed(change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session(recipe("one", "two", "three"), path="talk.jsonl")
    session.ask("first")
    begun, end = threading.Event(), threading.Event()

    def wait(*_):
        begun.set()
        assert end.wait(DEAD)
        return Saved(())

    for owner, name in ((History, "clear"), (History, "undo"), (History, "save"), (Journal, "resume")):
        monkeypatch.setattr(owner, name, wait)
    changing = threading.Thread(target=change, args=(session,))
    changing.start()
    assert begun.wait(DEAD)
    with pytest.raises(SessionBusy, match=r"The history is being changed\. Wait for it"):
        session.start("second")
    with pytest.raises(SessionBusy, match="The history is being changed"):
        session.undo()
    end.set()
    changing.join(DEAD)
    assert session.ask("second").final_text == "two"


# -- saving and loading ----------------------------------------------------------------------------


def test_a_conversation_is_taken_up_where_it_stood_with_the_same_log(tmp_path):
    @tool
    async def count(ctx: ToolContext) -> str:
        """Count."""
        ctx.progress(1, total=3)
        return "counted"

    path = tmp_path / "talk.jsonl"
    script = ScriptedModel([{"text": "Let me see.", **calls("count")}, "It counted.", '{"value": [1, 2]}'])
    first = Session(Agent(script, tools=[count]), path=path)
    first.ask("Count.")
    assert first.ask("Which?", output=list[int]).value == [1, 2]
    first.close()
    assert not any(is_delta(event) for event in first.events)
    agent = recipe("As I said.")
    second = Session.load(path, agent)
    assert (second.messages, second.events, second.usage) == (first.messages, first.events, first.usage)
    assert second.turns[0].result.events == first.turns[0].result.events
    assert second.turns[0].result.final_text == "It counted."
    second.ask("Again?")
    assert agent.model.requests[0].messages[:-1] == first.messages
    second.close()
    assert len(Session.load(path).turns) == 3


def test_undo_clear_and_edit_are_saved_too(tmp_path):
    path = tmp_path / "talk.jsonl"
    session = Session(recipe("a", "b", "c", "d"), path=path)
    for prompt in ("one", "two", "three"):
        session.ask(prompt)
    session.undo()
    session.edit(0, "one, better").wait()
    session.close()
    loaded = Session.load(path)
    assert [turn.prompt.text for turn in loaded.turns] == ["one, better"]
    loaded.clear()
    loaded.close()
    assert Session.load(path).turns == ()


def test_the_second_session_on_a_file_is_told_and_goes_on_in_memory(tmp_path):
    path = tmp_path / "talk.jsonl"
    first = Session(recipe("first"), path=path)
    first.ask("a prompt")
    before = path.read_bytes()
    (words,) = notices(Session(recipe("second"), path=path).ask("a prompt"))
    assert "memory" in words
    assert path.read_bytes() == before
    first.close()


def test_a_conversation_in_memory_can_be_saved_over_nothing_and_is_saved_from_then_on(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    session = spoken("a")
    with pytest.raises(UsageError, match="is there already"):
        session.save(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    session.agent = recipe("b")
    session.save(tmp_path / "talk.jsonl")
    assert session.path == tmp_path / "talk.jsonl"
    session.ask("again")
    session.close()
    assert [turn.answer for turn in Session.load(tmp_path / "talk.jsonl").turns] == ["a", "b"]


def test_loading_what_is_no_conversation_or_over_one_that_is_saved_nowhere_says_so_and_changes_nothing(tmp_path):
    session = Session(recipe("a"), path=tmp_path / "talk.jsonl")
    session.ask("a prompt")
    (tmp_path / "thesis.jsonl").write_text("years of work\n")
    for name in ("none.jsonl", "thesis.jsonl"):
        with pytest.raises(JournalError):
            session.restore(tmp_path / name)
        assert len(session.turns) == 1
    session.close()
    with pytest.raises(UsageError, match="would be lost"):
        spoken("precious").restore(tmp_path / "talk.jsonl")
    with pytest.raises(UsageError, match="saved nowhere"):
        Session(recipe()).restore()


def test_a_turn_that_was_cut_off_is_ended_and_its_tool_is_in_doubt(tmp_path):
    path = tmp_path / "talk.jsonl"
    steps = (calls(("add", {"a": 1, "b": 2})), "It is 3.")
    session = Session(recipe(*steps), path=path)
    session.ask("What is 1 plus 2?")
    session.close()
    before, begun, rest = path.read_text().partition('{"type":"tool_started"')
    path.write_text(before + begun + rest.partition("\n")[0] + "\n")
    loaded = Session.load(path, recipe(*steps))
    assert loaded.in_doubt == {("notebook", "add")}
    assert invalid_history(loaded.messages) is None
    assert isinstance(loaded.events[-1], TurnFinished)
    result = loaded.ask("Go on.")
    assert any("add" in words for words in notices(result))
    assert "may have done its work already" in result.history_delta[2].parts[0].text
    loaded.close()


# -- messages from elsewhere -----------------------------------------------------------------------


def test_messages_from_elsewhere_are_mended_and_gone_on_from_those_of_a_strange_role_excepted():
    agent = recipe("Go on.")
    past = [Message("assistant", (Text("Hi."), ToolCall("c1", "add", {}))), Message("tool", ())]
    session = Session(agent, messages=past)
    assert invalid_history(session.messages) is None
    session.ask("And now?")
    assert invalid_history(agent.model.requests[0].messages) is None
    with pytest.raises(UsageError, match="instructions"):
        Session(agent, messages=[Message("system", (Text("Be brief."),))])


# -- forks and edits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [copy, lambda session: deepcopy([session])[0], Session.fork, lambda session: session.fork(1)],
    ids=["copy", "deepcopy", "fork", "fork of one"],
)
def test_a_fork_and_a_copy_go_their_own_way(copied, tmp_path):
    session = Session(recipe("one", "two", "three"), path=tmp_path / "talk.jsonl")
    session.ask("first")
    other = copied(session)
    other.agent = recipe("another")
    assert other.ask("second").final_text == "another"
    assert session.ask("second").final_text == "two"
    assert [turn.answer for turn in other.turns] == ["one", "another"]
    assert other.path is None


def test_a_turn_is_run_again_with_another_prompt_or_as_it_was_and_what_came_after_is_forgotten():
    session = spoken("a", "b", "c")
    session.agent = recipe("B", "better")
    assert session.edit(1, "prompt 1, better").wait().final_text == "B"
    (request,) = session.agent.model.requests
    assert [message.text for message in request.messages] == ["prompt 0", "a", "prompt 1, better"]
    session.edit(-1).wait()
    for turn in (2, -3):
        with pytest.raises(UsageError, match="There is no turn"):
            session.edit(turn, "x")
    told = [("prompt 0", "a"), ("prompt 1, better", "better")]
    assert [(turn.prompt.text, turn.answer) for turn in session.turns] == told


def test_an_edit_that_cannot_begin_forgets_nothing():
    session = spoken("a", "b")
    with pytest.raises(UsageError, match="empty"):
        session.edit(0, "   ")
    assert len(session.turns) == 2


# -- one tool by hand ------------------------------------------------------------------------------


PAID = []


@tool(ask=True)
def pay(amount: int, ctx: ToolContext) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}, {ctx.deps}"


def test_a_tool_can_be_called_by_hand_without_being_asked_about_and_leaves_a_line_in_the_audit(caplog):
    caplog.set_level(logging.INFO, "agentmagic.audit")
    policy = Policy([Rule("ask", "pay", reason="It is money")])
    session = Session(Agent("scripted:x", tools=[pay], deps="cash", permission=policy))
    session.in_doubt.add(("notebook", "pay"))
    result = session.call("pay", amount=3)
    assert (result.text, result.status) == ("paid 3, cash", "ok")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "agentmagic.audit"]
    assert 'tool="pay"' in line
    assert 'decision="by hand" outcome="ok"' in line
    assert (session.messages, session.in_doubt) == ((), {("notebook", "pay")})  # nothing of it is remembered
    assert session.call("pay", amount="much").is_error
    with pytest.raises(UsageError, match=r"There is no tool .subtract.\. Tools: pay\."):
        session.call("subtract", a=1)


@pytest.mark.parametrize(
    ("permission", "variable", "words"),
    [
        (Policy([Rule("deny", "pay", reason="No money")]), "allow", "pay was not run: no money."),
        ("deny", "", "pay was not run: the user's permission setting denies every tool call."),
        ("allow", "deny", "pay was not run: the variable AGENTMAGIC_PERMISSION denies every tool call."),
    ],
)
def test_a_call_by_hand_that_the_policy_denies_is_not_run(monkeypatch, permission, variable, words):
    PAID.clear()
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", variable)
    result = Session(Agent("scripted:x", tools=[pay], permission=permission)).call("pay", amount=3)
    assert (result.text.startswith(words), result.status, PAID) == (True, "denied", [])


@pytest.mark.parametrize(
    ("settings", "methods", "others"),
    [
        (
            TurnSettings,
            (Session.start, Session.ask, Session.preview, Session.edit),
            {"toolsets", "values", "notices", "driver", "skills"},
        ),
        (MapSettings, (Session.map, Session.start_map), set()),
    ],
)
def test_the_options_that_type_checkers_see_are_those_of_the_settings_and_are_spelled_out(settings, methods, others):
    kinds = {field.name: field.type for field in fields(settings) if field.name not in others}
    assert (settings.keywords.__annotations__, settings.keywords.__required_keys__) == (kinds, frozenset())
    defaults = {field.name: field.default for field in fields(settings)}
    for method in methods:
        parameters = inspect.signature(method).parameters
        assert {name: parameters[name].default for name in kinds} == {name: defaults[name] for name in kinds}
        assert "options" not in parameters


def test_a_preview_tells_what_would_be_sent_and_sends_nothing():
    model = ScriptedModel(["an answer"])
    session = Session(Agent(model, instructions="Be brief.", tools=[pay]))
    seen = session.preview("How much is it?")
    assert [message.text for message in seen.request.messages] == ["How much is it?"]
    assert (seen.request.instructions, [tool.name for tool in seen.request.tools]) == ("Be brief.", ["pay"])
    assert list(seen.tokens) == ["instructions", "tools", "history", "results", "prompt"]
    assert (seen.tokens["history"], seen.tokens["prompt"]) == (0, 8)
    assert (model.requests, session.messages, seen.unlisted) == ([], (), ())
    session.ask("How much is it?")
    (sent,) = model.requests
    assert sent == seen.request
    assert session.preview("And now?").tokens["history"] > 0


@pytest.mark.parametrize("method", [Session.ask, Session.preview])
def test_an_option_that_there_is_not_is_refused(method):
    with pytest.raises(TypeError, match="'urgent'"):
        method(spoken(), "Hello", urgent=True)


def test_no_value_that_a_cell_shows_says_a_secret():
    key = "sk-" + "a1B2" * 9
    register_secret("pa'ss\nword")
    session = Session(ScriptedModel([f"It is {key} and pa'ss\nword.", "Yes."]))
    result = session.ask(f"Is {key} the key, or pa'ss\nword?")
    shown = (result, session.messages, session.events, session.turns, session.search("key, or"))
    for value in shown:
        for text in (repr(value), str(value), pretty(value)):
            assert key[:20] not in text
            assert "ss\\nword" not in text


def test_a_match_is_not_cut_in_the_middle_of_a_secret():
    session = Session(ScriptedModel(["FOUND it."]))
    session.ask(f"{'x ' * 10}sk-{'a1B2' * 20} found")
    match, other = session.search("found")
    assert match.excerpt.endswith("[redacted] found")
    assert [(match.turn, match.role), (other.turn, other.role)] == [(0, "user"), (0, "assistant")]
    assert session.search("a1B2") == []


def test_what_a_cell_shows_of_a_huge_result_is_short():
    def dump(rows: int) -> str:
        """Return a table."""
        return "a cell, " * rows

    session = scripted(calls(("dump", {"rows": 500_000})), "Done.", tools=[dump], max_result=None)
    run = session.start("Dump it all.")
    result = run.wait()
    assert len(session.messages[2].parts[0].text) == 4_000_000
    ring = {}
    ring["again"] = ring
    values = (result, run, session, session.turns[0], *result.history_delta, *session.events, ToolCall("1", "a", ring))
    for value in (*values, *session.messages[2].parts):
        data, _ = DisplayFormatter().format(value)
        assert sum(len(str(text)) for text in data.values()) < 5_000
    assert repr(result) == "<RunResult answer: 'Done.', 2 steps, 1 calls>"
