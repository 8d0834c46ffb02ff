"""The chat panel: it follows its session, and carries out what is done in it."""

import asyncio
import json
import logging
import sys
import threading
from pathlib import Path

import pytest

from agentmagic import Agent, Policy, Rule, Session, log, settings, tool
from agentmagic.errors import MissingExtra, UsageError
from agentmagic.events import PageDecision, PromptValue
from agentmagic.jupyter.panel.chat import Chat
from agentmagic.jupyter.panel.page_acts import chooses_wider_level
from agentmagic.jupyter.panel.page_questions import MOST_WAITING
from agentmagic.jupyter.panel.panel_turns import MOST_FORKS
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import Resource, user
from agentmagic.prompt.attachments import Attachment
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.testing import Recorder, Stalled, run
from agentmagic.text import plural
from agentmagic.widgets import commands
from agentmagic.widgets.commands import Notebook, choose_model
from agentmagic.widgets.page_messages import ChooseLevel, SendPrompt
from tests.mapping.models import RowModel
from tests.providers.strict.script import say
from tests.providers.strict.server import strict
from tests.turns import calls
from tests.widgets.page import PATIENCE, Page


@tool(ask=True)
def order(what: str) -> str:
    """Order."""
    return f"ordered {what}"


class Desk(Notebook):
    """A notebook that knows names and a value; turns that it holds begin when `go` is set."""

    forks = True

    def __init__(self, folder=Path()):
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.released = []
        self._folder = folder

    def name_of(self, session):
        return "tutor"

    def prepare(self, session, written):
        self.go.wait(PATIENCE)
        return f"{written} (attached: a note)" if "@notes" in written else written, TurnSettings()

    def fork(self, session, turns):
        return "tutor_2"

    def release(self, name, turns):
        self.released.append((name, turns))

    def folder(self):
        return self._folder

    def new(self, session):
        return session_of("another")

    def file(self, session, name, data):
        if b"\0" in data:
            raise UsageError(f"{name} is not attached: it is no text.")
        told = PromptValue(name, "file", plural(len(data), "byte"), 1, data.decode())
        return Attachment(told, Resource(f"file:{name}", name, "text/plain", data.decode()))


class Outputs:
    """What was published, the last of it and in all."""

    def __init__(self):
        self.written = []
        self._changed = threading.Condition()

    def write(self, data, update):
        with self._changed:
            self.written.append(data["text/plain"])
            self._changed.notify_all()

    def until(self, holds):
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.written[-1]), PATIENCE), self.written[-1]


def opened(session, desk=None):
    """The panel of a session, its outputs and a page before it."""
    outputs = Outputs()
    chat = Chat(session, desk or Desk())
    chat.show(lambda data, update: None, outputs.write)
    return Page(chat.view), outputs, chat


def session_of(*steps, **options):
    return Session(Agent(ScriptedModel(steps), **options))


def settled():
    """Wait for what the engine was asked before."""
    engine().call(asyncio.sleep(0))


class Heard(logging.Handler):
    """Keeps the lines of the audit log, and tells that one came."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.came = threading.Event()
        log.auditor.addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.came.set()


@pytest.fixture
def audit():
    before = log.auditor.level
    log.auditor.setLevel("INFO")
    heard = Heard()
    yield heard
    log.auditor.removeHandler(heard)
    log.auditor.setLevel(before)


def test_a_turn_whose_prompt_holds_a_table_is_run_again_with_one_copy_of_it_and_its_line():
    table = "| city |\n| --- |\n| Oslo |"
    values = (PromptValue("{sales}", "table", "DataFrame", 9, table),)
    session = session_of("one", "two")
    session.begin(f"What is in \n\n{table}\n\n?", TurnSettings(values=values)).settled.result()
    page, _, _ = opened(session)
    page.act("rewrite", turn=0, text=f"Sum \n\n{table}\n\n!")
    page.until(lambda: page.texts("text") == ["two"])
    assert session.turns[0].prompt.parts == user(f"Sum \n\n{table}\n\n!").parts
    assert [one["stretches"] for one in page.blocks("prompt")] == [[["Sum {sales}!", False]]]


# -- plans ----------------------------------------------------------------------------------------

PLANNED = [
    {"route": "tools"},
    {"tasks": [{"id": "t1", "tool": "order", "parameters": {"what": "tea"}, "description": "order the tea"}]},
]


def test_a_message_is_planned_and_a_plan_that_was_cut_off_is_offered_and_resumed():
    page, _, chat = opened(session_of(*map(json.dumps, PLANNED), "There is tea.", tools=[order]))
    page.act("send", text="tea", plan=True)
    page.card("waiting")
    assert page.state["left"] == ""
    page.act("stop")
    page.turns(1)
    page.until(lambda: page.state["left"] == "1 open task")
    page.act("resume")
    page.act("approve", id=page.card("waiting")["ask"])
    page.turns(2)
    assert page.texts("prompt") == ["tea", "Go on with the plan."]
    assert page.texts("text")[-1] == "There is tea."
    assert page.state["left"] == ""
    assert chat.session.tool_calls == 1 + 1  # one was interrupted


def test_a_plan_that_was_dropped_is_offered_no_more_and_no_message_is_asked_about_it():
    steps = [*map(json.dumps, PLANNED), "Hello.", "And again."]
    page, _, chat = opened(session_of(*steps, tools=[order]))
    page.act("send", text="tea", plan=True)
    page.card("waiting")
    page.act("stop")
    page.until(lambda: page.state["left"] == "1 open task")
    page.act("drop")
    page.until(lambda: page.state["left"] == "")
    page.act("send", text="Hello?")
    page.turns(2)
    assert page.texts("text")[-1] == "Hello."
    assert chat.session.fork(1).open_plan is None
    assert chat.session.ask("Again?").final_text == "And again."  # nobody could be asked
    with pytest.raises(UsageError, match="no plan that could be resumed"):
        chat.session.ask("Go on", resume=True)


def test_a_planned_turn_is_planned_when_it_is_run_again():
    page, _, _ = opened(session_of(*(json.dumps({"route": "answer"}), "one") * 2))
    page.act("send", text="tea", plan=True)
    page.turns(1)
    page.act("retry", turn=0)
    page.until(lambda: page.said)
    page.turns(1)
    assert page.texts("text") == ["one"]


# -- following ------------------------------------------------------------------------------------


def test_a_panel_that_opens_in_the_middle_of_a_turn_shows_all_of_it_once():
    model = Stalled("half an ans")
    session = Session(Agent(model))
    turn = session.start("a question")
    assert model.stalled.wait(PATIENCE)
    page, _, _ = opened(session)
    assert page.texts("prompt") == ["a question"]
    page.act("stop")
    page.turns(1)
    assert page.texts("text") == ["half an ans"]
    assert turn.wait().stop_reason == "cancelled"


def test_what_code_forgets_leaves_the_panel():
    session = session_of("one")
    page, outputs, _ = opened(session)
    run(session, "first")
    page.turns(1)
    session.undo()
    page.until(lambda: not page.blocks("prompt"))
    outputs.until(lambda last: "first" not in last)


# -- turns ----------------------------------------------------------------------------------------


def test_messages_wait_for_the_turn_under_way_and_are_taken_back_or_sent_in_order():
    model = Stalled()
    session = Session(Agent(model))
    turn = session.start("from a cell")
    assert model.stalled.wait(PATIENCE)
    page, _, _ = opened(session)
    page.act("send", text="second")
    page.until(lambda: page.state.get("note") == "“second” waits for the turn under way.")
    page.act("send", text="third")
    page.until(lambda: page.state.get("note") == "2 messages wait for the turn under way.")
    page.act("withdraw")
    page.until(lambda: page.given_back == ["second\n\nthird"] and page.state["note"] == "")
    page.act("send", text="fourth")
    page.act("send", text="fifth")
    page.until(lambda: page.state.get("note") == "2 messages wait for the turn under way.")
    session.agent = Agent(ScriptedModel(["two", "three"]))
    turn.cancel()
    page.turns(3)
    assert page.texts("prompt") == ["from a cell", "fourth", "fifth"]
    assert page.texts("text") == ["two", "three"]
    page.until(lambda: page.state["note"] == "")


def attachment(name):
    return Attachment(PromptValue(name, "text", "3 lines", 3, "a note"), Resource(f"cell:{name}", name, "", "a note"))


def test_what_is_attached_waits_in_the_box_and_goes_with_the_next_message_unless_it_is_removed():
    page, _, chat = opened(session_of("one", "two"))
    chat.attach(lambda: [attachment("@out[1]"), attachment("figure [1]")])
    page.until(lambda: page.state.get("attached") == [["@out[1]", "3 lines"], ["figure [1]", "3 lines"]])
    page.act("detach", name="figure [1]")
    page.until(lambda: page.state["attached"] == [["@out[1]", "3 lines"]])
    page.act("send", text="What is a note?", attached=["@out[1]", "figure [1]"])
    page.turns(1)
    assert page.state["attached"] == []
    (turn,) = chat.session.turns
    assert [part.text for part in turn.prompt.parts] == ["What is a note?", "a note"]
    assert page.blocks("values")[0]["values"][0][0] == "@out[1]"
    page.act("rewrite", turn=0, text="What was it?")
    page.until(lambda: page.texts("prompt") == ["What was it?"] and page.texts("text") == ["two"])
    assert [part.text for part in chat.session.turns[0].prompt.parts] == ["What was it?", "a note"]


def test_a_prompt_with_attachments_begins_a_turn_and_they_come_back_if_it_is_taken_back():
    model = Stalled()
    session = Session(Agent(model))
    turn = session.start("from a cell")
    assert model.stalled.wait(PATIENCE)
    page, _, chat = opened(session)
    chat.attach(lambda: [attachment("@out[1]")], "Explain it.")
    page.until(lambda: "Explain it." in page.state.get("note", ""))
    page.act("withdraw")
    page.until(lambda: page.given_back == ["Explain it."] and page.state["attached"] == [["@out[1]", "3 lines"]])
    turn.cancel()


def test_a_file_of_the_page_waits_in_the_box_once_for_each_name_and_one_that_is_refused_is_told():
    page, _, chat = opened(session_of("I see."))
    page.act("file", name="a.txt", data="YQ==")
    page.until(lambda: page.state.get("attached") == [["a.txt", "1 byte"]])
    page.act("file", name="a.txt", data="YWI=")
    page.until(lambda: page.state["attached"] == [["a.txt", "2 bytes"]])
    page.act("file", name="b.bin", data="AAA=")
    page.act("file", name="c.txt", data="no base64")
    page.until(lambda: len(page.problems) == 2)
    assert sorted(words.partition(":")[0] for words, _ in page.problems) == ["That failed", "b.bin is not attached"]
    page.act("send", text="Read it.", attached=["a.txt"])
    page.turns(1)
    (turn,) = chat.session.turns
    assert [part.text for part in turn.prompt.parts] == ["Read it.", "ab"]


def test_the_page_is_told_how_full_the_window_is_during_a_turn_too_and_compacts_between_turns():
    long = "word " * 400
    session = session_of(
        *[f"{number} {long}" for number in range(5)], calls(("order", {"what": "tea"})), "Sum.", tools=[order]
    )
    page, _, _ = opened(session)
    page.until(lambda: page.state.get("context") == 0)
    for number in range(5):
        page.act("send", text=f"{number} {long}")
        page.turns(number + 1)
    full = page.until(lambda: page.state["context"] == session.context_tokens and page.state["context"])
    page.act("send", text="tea")
    page.card("waiting")
    page.until(lambda: page.state["context"] > full)
    page.act("compact")
    page.until(lambda: page.problems)
    assert "A turn is running" in page.problems[0][0]
    page.act("stop")
    page.turns(6)
    page.act("compact")
    page.until(lambda: page.printed and page.printed[-1].startswith("Compacted: about "))
    page.until(lambda: page.state["context"] < full)
    page.turns(6)


def test_it_is_said_that_an_output_waits_for_the_kernel_until_it_is_attached():
    page, _, chat = opened(session_of("one"))
    go = threading.Event()

    def make():
        assert go.wait(PATIENCE)
        return [attachment("@out[1]")]

    chat.attach(make)
    page.until(lambda: page.said == ["The output is attached when the kernel is free."])
    go.set()
    page.until(lambda: page.state.get("attached"))
    assert page.said[-1] == ""


def test_a_message_that_is_sent_before_the_output_is_attached_takes_it_along_and_is_not_overtaken():
    page, _, chat = opened(session_of("one", "two"))
    go = threading.Event()

    def make():
        assert go.wait(PATIENCE)
        return [attachment("@out[1]")]

    chat.attach(make)
    page.act("send", text="What is it?")
    page.act("send", text="And what else?")
    page.until(lambda: page.said)
    go.set()
    page.turns(2)
    sent = [[part.text for part in turn.prompt.parts] for turn in chat.session.turns]
    assert sent == [["What is it?", "a note"], ["And what else?"]]
    assert page.state["attached"] == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UsageError("the figure is gone"), "the figure is gone [usage]"),
        (asyncio.CancelledError(), "the kernel was interrupted."),
    ],
)
def test_an_output_that_cannot_be_attached_is_told(error, why):
    page, _, chat = opened(session_of("one"))

    def fail():
        raise error

    chat.attach(fail, "Explain it.")
    page.until(lambda: page.problems == [(f"The output is not attached: {why}", "")])
    assert page.texts("prompt") == []


def test_a_message_takes_twenty_attachments_and_the_panel_refuses_one_more():
    page, _, chat = opened(session_of("one"))
    chat.attach(lambda: [attachment(f"@out[{number}]") for number in range(20)])
    page.until(lambda: len(page.state.get("attached", ())) == 20)
    chat.attach(lambda: [attachment("@out[20]")])
    page.until(lambda: page.problems == [("A message takes 20 attachments at most. Remove some of them.", "")])
    assert len(page.state["attached"]) == 20


def test_a_prompt_that_waits_for_a_cell_says_so_is_not_taken_back_and_its_conversation_not_left():
    desk = Desk()
    desk.go.clear()
    session = session_of("fine")
    page, _, chat = opened(session, desk)
    page.act("send", text="hello")
    page.until(lambda: page.state.get("note") == "“hello” waits for the cell that runs.")
    page.act("new")
    page.until(lambda: page.problems)
    page.act("withdraw")
    page.until(lambda: page.given_back == [""])
    desk.go.set()
    page.turns(1)
    assert page.problems[0][0].startswith("A turn of this conversation is under way.")
    assert chat.session is session
    assert page.texts("prompt") == ["hello"]
    assert page.state["note"] == ""


def test_a_prompt_that_cannot_be_sent_is_given_back_with_the_reason_and_the_next_one_is_taken():
    class Broken(Desk):
        def prepare(self, session, written):
            if written == "first":
                raise ZeroDivisionError("division by zero")
            return super().prepare(session, written)

    page, _, _ = opened(session_of("fine"), Broken())
    page.act("send", text="first")
    page.until(lambda: page.problems == [("division by zero", "first")])
    assert page.blocks("prompt") == []
    page.act("send", text="hello")
    page.turns(1)


# -- a model for a user without a key ---------------------------------------------------------------


def card(page):
    """Wait for the card on which a model is chosen, until servers were looked for."""
    page.until(lambda: (page.state.get("setup") or {"servers": None})["servers"] is not None)
    return page.state["setup"]


def test_a_message_without_a_key_waits_for_the_choice_of_a_model_and_is_sent_after_it(monkeypatch):
    monkeypatch.setattr("agentmagic.jupyter.cell.model_setup.commands.choose_model", choose_scripted)
    page, _, chat = opened(Session(Agent()))
    page.act("send", text="first")
    card(page)
    page.act("new")
    page.until(lambda: page.problems)
    assert page.problems[0][0].startswith("A turn of this conversation is under way.")
    page.act("local")
    page.turns(1)
    assert page.texts("prompt") == ["first"]
    page.until(lambda: page.state["setup"] is None)
    assert chat.session.agent.model.name == "scripted:script"


def choose_scripted(session, name):
    assert name == "local:qwen2.5-coder-1.5b"
    session.agent = Agent(ScriptedModel(["one"]))


def test_a_card_that_is_left_gives_the_messages_back():
    page, _, _ = opened(Session(Agent()))
    page.act("send", text="first")
    card(page)
    page.act("leave")
    page.until(lambda: page.given_back == ["first"] and page.state["setup"] is None)
    assert page.blocks("prompt") == []


def test_a_turn_whose_key_is_missing_runs_again_with_the_key_that_is_typed_for_this_kernel(monkeypatch, audit):
    pytest.importorskip("openai")
    monkeypatch.setattr(settings, "_typed_keys", {})
    with strict("openai", say("Your key is q8Zr2LmX4vB7nC1sKd9e.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        page, _, _ = opened(Session(Agent("openai:gpt-5.4")))
        page.act("send", text="hello")
        assert card(page)["why"].startswith("OpenAI needs a key")
        assert page.state["setup"]["keyring"] == "This machine has no system keyring."
        page.act("key", provider="openai", key=" q8Zr2LmX4vB7nC1sKd9e\n", keep=False)
        page.until(lambda: page.texts("text") == ["Your key is [redacted]."])
        page.turns(1)
    assert page.texts("prompt") == ["hello"]
    assert audit.lines[0].startswith('server="page" tool="setup key" ')


def test_only_a_key_is_asked_for_if_the_environment_chose_the_model(monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_MODEL", "openai:gpt-5.4")
    page, _, _ = opened(Session(Agent()))
    page.act("send", text="hello")
    found = card(page)
    assert found["fixed"]
    assert [row[2] for row in found["providers"]] == ["OPENAI_API_KEY"]
    page.act("leave")


def test_a_call_is_denied_where_no_page_ever_was():
    session = session_of(calls(("order", {"what": "tea"})), "Done.", tools=[order])
    heard = Recorder()
    session.listen(heard)
    Chat(session, Desk()).act(SendPrompt(text="tea please"))
    assert heard.wait_for("tool_finished").result.status == "denied"
    heard.wait_for("turn_finished")


def test_of_the_forks_that_are_kept_the_oldest_are_released():
    session, desk = session_of(*map(str, range(8))), Desk()
    page, _, _ = opened(session, desk)
    run(session, "first")
    for number in range(1, 8):
        page.act("retry", turn=0)
        page.until(lambda number=number: page.texts("text") == [str(number)])
    assert desk.released == [("tutor_2", 1)] * (7 - MOST_FORKS)


def test_a_turn_runs_again_with_another_prompt():
    session = session_of("one", "two")
    page, _, _ = opened(session)
    run(session, "first")
    page.act("rewrite", turn=0, text="in @notes")
    page.until(lambda: page.texts("text") == ["two"])
    assert page.texts("prompt") == ["in @notes (attached: a note)"]
    page.act("retry", turn=7)
    page.until(lambda: page.problems)
    assert page.problems[0][0] == "There is no turn 7: the session has 1, which count from 0. [usage-session]"


# -- the session ------------------------------------------------------------------------------------


def test_clearing_empties_the_panel_and_is_refused_while_a_turn_runs():
    model = Stalled("half")
    session = Session(Agent(model))
    page, _, _ = opened(session)
    page.act("send", text="hello")
    assert model.stalled.wait(PATIENCE)
    page.act("clear")
    page.until(lambda: page.problems)
    assert "A turn is running" in page.problems[0][0]
    page.act("stop")
    page.turns(1)
    page.act("clear")
    page.until(lambda: not page.blocks("prompt"))
    assert session.turns == ()
    page.until(lambda: page.state["cleared"] == 1)
    page.act("undo")
    page.until(lambda: page.texts("prompt") == ["hello"])
    assert page.state["cleared"] == 0
    page.act("undo")
    settled()
    assert len(session.turns) == 1


@pytest.mark.parametrize(("form", "suffix"), [("markdown", "md"), ("json", "json"), ("notebook", "ipynb")])
def test_an_export_is_written_beside_the_notebook_under_a_free_name(tmp_path, form, suffix):
    session = session_of("one")
    page, _, _ = opened(session, Desk(tmp_path))
    run(session, "first")
    (tmp_path / f"tutor.{suffix}").write_text("mine")
    page.act("export", form=form)
    page.until(lambda: page.printed)
    assert page.printed == [f"Wrote 1 turn to {tmp_path / f'tutor-2.{suffix}'}."]
    assert "first" in (tmp_path / f"tutor-2.{suffix}").read_text()
    assert (tmp_path / f"tutor.{suffix}").read_text() == "mine"


def test_a_model_that_is_offered_can_be_chosen_and_the_one_before_too(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    session = session_of("one")
    before = session.agent.model
    page, _, _ = opened(session)
    page.until(lambda: "openai:gpt-5.4" in page.state.get("models", ()))
    page.act("model", name="openai:gpt-5.4")
    page.until(lambda: page.state.get("model") == "openai:gpt-5.4")
    page.act("model", name="scripted:script")
    page.until(lambda: page.state["model"] == "scripted:script")
    assert session.agent.model is before
    page.act("model", name="scripted:/etc/passwd")
    page.until(lambda: page.problems)
    assert "none of the models offered" in page.problems[0][0]


def test_what_is_chosen_in_one_panel_is_seen_in_another_of_its_session():
    session, desk = session_of("one"), Desk()
    page, other = opened(session, desk)[0], opened(session, desk)[0]
    page.act("model", name="openai-chat:my-model")
    other.until(lambda: other.state.get("model") == "openai-chat:my-model")
    page.allow("level", level="reads")
    other.until(lambda: other.state["level"] == "reads")


def test_a_level_is_chosen_and_its_rules_stay(monkeypatch):
    rules = (Rule("deny", "drop"),)
    page, _, chat = opened(session_of("hi", permission=Policy(rules, "allow")))
    page.until(lambda: "levels" in page.state)
    assert page.state["level"] == ""
    page.act("level", level="reads")
    page.until(lambda: page.state["level"] == "reads")
    assert chat.session.agent.permission == Policy(rules, level="reads")
    assert page.until(lambda: page.printed)[-1] == "From the next turn on: what only reads runs."
    page.act("level", level="everything")
    page.until(lambda: page.problems)


# -- questions about acts of the page --------------------------------------------------------------


def test_a_wider_level_opens_a_question_and_a_narrower_one_none():
    session = session_of("hi", permission=Policy((Rule("deny", "drop"),)))
    page, _, _ = opened(session)
    page.act("level", level="trusted")
    asked = page.asked()
    assert (asked["line"], asked["target"]) == ("%agent permission trusted", "")
    assert asked["about"] == "Lets more calls run without asking you."
    page.act("deny", id=asked["ask"])
    page.until(lambda: not page.state["asked"])
    assert session.agent.permission == Policy((Rule("deny", "drop"),))
    page.allow("level", level="trusted")
    page.until(lambda: page.state["level"] == "trusted")
    page.act("level", level="ask")
    page.until(lambda: page.state["level"] == "ask")
    assert not page.state["asked"]


@pytest.mark.parametrize("permission", ["deny", "ask", Policy(level="reads")])
def test_a_level_is_wider_than_a_policy_that_denies_and_narrower_than_one_that_allows(permission):
    assert chooses_wider_level(session_of(permission=permission), "trusted")
    assert not chooses_wider_level(session_of(permission="allow"), "trusted")


def test_one_question_is_open_at_a_time_and_only_its_own_answer_settles_it():
    session = session_of("hi")
    page, _, _ = opened(session)
    page.act("level", level="reads")
    first = page.asked()
    page.act("level", level="trusted")
    page.act("approve", id="another")
    page.act("reply", id=first["ask"], text="yes")
    page.act("edit", id=first["ask"], arguments="{}")  # the arguments of a card outside a turn cannot be edited
    page.act("stop")
    settled()
    assert page.state["asked"] == first
    assert commands.level_of(session) == "ask"
    page.act("deny", id=first["ask"])
    second = page.until(
        lambda: page.state["asked"] and page.state["asked"]["ask"] != first["ask"] and page.state["asked"]
    )
    assert second["line"] == "%agent permission trusted"
    page.act("approve", id=first["ask"])  # an answer to one question is no answer to another
    settled()
    assert page.state["asked"] == second
    page.act("approve", id=second["ask"], always=True)
    page.until(lambda: page.state["level"] == "trusted")
    page.act("level", level="ask")
    page.act("level", level="trusted")
    page.asked()  # "always" holds for no act of a page


def test_an_act_that_waits_for_its_answer_is_not_asked_about_twice(audit):
    page, _, chat = opened(session_of("hi"))
    for _ in range(3):
        page.act("level", level="trusted")
    page.act("approve", id=page.asked()["ask"])
    page.until(lambda: page.state["level"] == "trusted")
    page.act("level", level="ask")
    page.until(lambda: commands.level_of(chat.session) == "ask")
    assert page.state["asked"] is None
    assert [line for line in audit.lines if "level" in line] == audit.lines[-1:]


def test_a_page_that_asks_without_end_is_refused():
    page, _, _ = opened(session_of("hi"))
    for number in range(MOST_WAITING + 1):
        page.act("connect", server=f"shop{number}")
    page.until(lambda: page.problems)
    assert f"{MOST_WAITING} actions wait for your answer already." in page.problems[0][0]


def test_without_a_page_that_shows_the_panel_the_answer_is_no(audit):
    session = session_of("hi")
    Chat(session, Desk()).act(ChooseLevel(level="trusted"))
    assert audit.came.wait(PATIENCE)
    assert commands.level_of(session) == "ask"
    assert audit.lines[0].startswith('server="page" tool="level" ')
    assert 'decision="no one to ask" outcome="denied"' in audit.lines[0]


def test_a_page_that_is_opened_later_shows_the_question_and_answers_it():
    page, _, chat = opened(session_of("hi"))
    page.act("level", level="reads")
    asked = page.asked()
    other = Page(chat.view, "reload")
    assert other.asked() == asked
    other.act("approve", id=asked["ask"])
    page.until(lambda: page.state["level"] == "reads" and not page.state["asked"])


def test_an_act_of_the_page_is_audited_and_written_to_the_journal_and_told_in_the_conversation(tmp_path, audit):
    path = tmp_path / "talk.jsonl"
    session = Session(Agent(ScriptedModel(["one", "two"])), path=path)
    page, _, _ = opened(session)
    page.allow("level", level="reads")
    assert not path.exists()  # else an earlier conversation of this file could no longer be continued
    page.act("send", text="hello")
    page.turns(1)
    page.until(lambda: "You allowed in the panel: %agent permission reads" in page.texts("notice"))
    page.act("level", level="trusted")
    page.act("deny", id=page.asked()["ask"])
    page.until(lambda: "You denied in the panel: %agent permission trusted" in page.texts("notice"))
    assert [line.partition("decision=")[2].split()[0] for line in audit.lines] == ['"approved"', '"denied"']
    assert all('server="page" tool="level"' in line for line in audit.lines)
    session.close()
    events = [event for event in Session.load(path).events if isinstance(event, PageDecision)]
    assert [(one.line, one.approved) for one in events] == [
        ("%agent permission reads", True),
        ("%agent permission trusted", False),
    ]


def test_an_answer_is_for_the_conversation_that_the_panel_showed_when_it_asked(audit):
    session = session_of("hi")
    page, _, chat = opened(session)
    page.act("level", level="trusted")
    asked = page.asked()
    page.act("new")
    page.until(lambda: chat.session is not session)
    page.act("approve", id=asked["ask"])
    page.until(lambda: page.problems)
    assert 'decision="approved" outcome="error"' in audit.lines[-1]
    assert page.problems[0][0].startswith("The panel shows another conversation now, so nothing was done.")
    assert commands.level_of(chat.session) == commands.level_of(session) == "ask"


def test_a_decision_during_a_turn_is_put_into_the_log_of_that_turn(tmp_path):
    path = tmp_path / "talk.jsonl"
    session = Session(Agent(ScriptedModel([calls(("order", {"what": "tea"})), "done"]), tools=[order]), path=path)
    page, _, _ = opened(session)
    page.act("send", text="tea")
    waiting = page.card("waiting")
    page.allow("level", level="reads")
    page.act("approve", id=waiting["ask"])
    page.turns(1)
    session.close()
    assert [event.type for event in Session.load(path).turns[0].events].count("page_decision") == 1


def test_a_model_that_starts_a_program_or_loads_a_file_opens_a_question(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTMAGIC_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    page, _, _ = opened(session_of("hi"))
    for name in ("acp:claude", f"acp:{sys.executable} agent.py", "local:", f"local:{tmp_path}/other.gguf"):
        page.act("model", name=name)
        asked = page.asked()
        assert asked["line"] == f"%agent models {name}"
        page.act("deny", id=asked["ask"])
        page.until(lambda: not page.state["asked"])
    assert page.state["model"] == "scripted:script"


def test_a_model_that_the_environment_chose_is_fixed(monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_MODEL", "scripted:other.json")
    page, _, _ = opened(session_of("one"))
    page.until(lambda: page.state.get("models") == ["scripted:other.json"])
    assert "model" not in page.state["actions"]


def test_without_the_extension_a_prompt_is_sent_as_it_is_and_nothing_is_forked():
    page, _, _ = opened(session_of("fine"), Notebook())
    page.act("send", text="hello {year}")
    page.turns(1)
    assert page.texts("prompt") == ["hello {year}"]
    assert page.state["title"] == "Chat"
    assert "fork" not in page.state["actions"]


# -- outputs ----------------------------------------------------------------------------------------


def test_a_replay_needs_no_package_of_the_model_that_is_chosen(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    session = Session(Agent(), cassette=tmp_path / "tape.yaml")
    with pytest.raises(MissingExtra):
        choose_model(session, "anthropic:claude-sonnet-5-5")
    session.deck.choose("replay")
    choose_model(session, "anthropic:claude-sonnet-5-5")
    assert session.agent.model == "anthropic:claude-sonnet-5-5"


def test_the_html_is_brought_up_to_date_once_a_turn_and_not_while_it_streams():
    page, outputs, _ = opened(session_of({"text": " ".join(["word"] * 200), "pace": 0.0005}))
    page.act("send", text="hello")
    outputs.until(lambda last: "word" in last)
    settled()
    assert len(outputs.written) == 2


def test_a_panel_shows_the_map_of_its_session_stops_it_and_keeps_its_end():
    session = Session(Agent(RowModel()))
    chat = Chat(session, Desk())
    page = Page(chat.view)
    run = session.start_map(["a", "b", "c waits"], "Say {row}")
    page.until(lambda: [block["heading"] for block in page.blocks("progress")] == ["2 of 3 rows"])
    later = Page(Chat(session, Desk()).view)  # opened while the map runs
    later.until(lambda: later.blocks("progress"))
    for _ in range(2):
        page.act("stop-map")
    run.wait()
    for one in (page, later):
        one.until(lambda one=one: one.blocks("progress")[0]["state"] == "interrupted")
    page.act("stop-map")
    session.agent = Agent(ScriptedModel(["An answer."]))
    session.ask("hello")
    page.turns(1)
    assert [block["heading"] for block in page.blocks("progress")] == ["Stopped: 2 of 3 rows"]
    assert page.problems == []
    assert session.running_map is None
