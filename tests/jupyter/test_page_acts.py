"""What a browser page may do at once and what opens a question: every message and command is in one table."""

import ast
import inspect
from typing import get_args

import pytest

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.errors import ConfigError, UsageError
from agentmagic.jupyter.magics.agent_commands import AGENT_COMMANDS, IN_A_CELL, agent_magic
from agentmagic.jupyter.magics.mcp_commands import MCP_COMMANDS, mcp_magic
from agentmagic.jupyter.panel import lab
from agentmagic.jupyter.panel.page_acts import (
    COMMAND_RULES,
    HARMLESS,
    MESSAGE_RULES,
    UNKNOWN,
    Surroundings,
    act_to_ask,
    is_new_in_folder,
)
from agentmagic.text import exact
from agentmagic.widgets import page_messages as page
from agentmagic.widgets import view
from agentmagic.widgets.commands import Conversation, Notebook
from tests.jupyter.harness import RAW

MAGICS = {"agent": agent_magic(), "mcp": mcp_magic()}


class Book(Notebook):
    """A notebook in a folder, whose panel's session is the variable `agent`."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def name_of(self, session):
        return "agent"

    def folder(self):
        return self._folder

    def conversations(self):
        return [Conversation("kept", "1 turn", saved=True)]

    def read_line(self, session, magic, line):
        return MAGICS[magic].read(line)


@pytest.fixture
def around(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Surroundings(Session(Agent(ScriptedModel(["x"]))), Book(tmp_path), {})


def test_every_message_of_a_page_is_in_the_table():
    messages = {*get_args(page.PageAction), *(kind for kind, _ in lab.MESSAGES.values())}
    assert messages == set(MESSAGE_RULES)
    assert all(MESSAGE_RULES[kind] is HARMLESS for kind, _ in lab.MESSAGES.values())  # `LabLink` asks nothing
    answers = get_args(page.PageAction)[:5]
    assert all(MESSAGE_RULES[kind] is HARMLESS for kind in (*answers, *get_args(page.SetupAction)))


def test_a_view_itself_takes_no_other_message_than_how_far_it_is_drawn():
    tree = ast.parse(inspect.getsource(view.View._receive).strip())
    patterns = [node for node in ast.walk(tree) if isinstance(node, ast.MatchMapping)]
    kinds = [ast.unparse(one.patterns[[ast.unparse(key) for key in one.keys].index("'type'")]) for one in patterns]
    assert kinds == ["'hello'", "'whole'"]


def test_every_command_is_in_the_table():
    words = {*(("agent", word) for word in AGENT_COMMANDS), *(("mcp", word) for word in MCP_COMMANDS)}
    assert words == set(COMMAND_RULES)
    in_a_cell = {word for word, command in AGENT_COMMANDS.items() if command in IN_A_CELL}
    assert {word for (_, word), rule in COMMAND_RULES.items() if rule is UNKNOWN} == in_a_cell


def test_a_message_that_is_not_in_the_table_opens_a_question(around):
    class NewMessage(page.PageMessage):
        type: str = "new-message"

    act = act_to_ask(around, NewMessage())
    assert act is not None
    assert (act.name, act.about) == ("new-message", UNKNOWN.about)


OPENING = [
    "mcp add evil python -c 'import os'",
    "mcp add evil https://evil.example/mcp",
    "mcp load .mcp.json",
    "mcp approve files",
    "mcp restart files",
    "mcp allow files",
    "mcp allow files read_*",
    "mcp trust files",
    "mcp enable files delete",
    "agent rules approve",
    "agent permission reads",
    "agent permission trusted",
    "agent -s agent permission trusted",
    "agent -s other permission ask",  # the level of another session is not looked up
    "agent tools notebook",
    "agent models acp:claude",
    "agent models local:/tmp/other.gguf",
    "agent models scripted:/etc/passwd",
    "agent load other",
    "agent save ../talk.jsonl",
    "agent save /tmp/talk.jsonl",
    "agent save ~/talk.jsonl",
    "agent export .mcp.json",
    "agent export .git/talk.md",
    "agent export there.md --overwrite",
    "agent export out/../../talk.md",
    "agent export link/talk.md",
    "agent hand-in ../run.yaml",
    "agent cassette talk.cassette.yaml",
    "agent record",
    "agent replay",
    "agent auto",
    "agent live",
]
QUIET = [
    "mcp",
    "mcp help add",
    "mcp add --help",
    "mcp remove files",
    "mcp disable files read",
    "mcp tools",
    "agent",
    "agent rules",
    "agent permission",
    "agent permission ask",
    "agent tools",
    "agent tools notebook off",
    "agent models",
    "agent models openai:gpt-5.4",
    "agent load",
    "agent save talk.jsonl",
    "agent export out/talk.md",
    "agent hand-in run.yaml",
    "agent cassette",
    "agent replay --report",
    "agent help load",
]


@pytest.mark.parametrize("line", OPENING)
def test_a_command_that_starts_trusts_widens_or_writes_elsewhere_opens_a_question(around, tmp_path, line):
    (tmp_path / "there.md").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path.parent)
    magic, _, rest = line.partition(" ")
    act = act_to_ask(around, page.RunCommand(magic=magic, line=rest))
    assert act is not None
    assert act.line == f"%{line}"  # exactly what would run
    assert act.about.endswith(".")


@pytest.mark.parametrize("line", QUIET)
def test_a_command_that_shows_or_narrows_opens_none(around, line):
    magic, _, rest = line.partition(" ")
    assert act_to_ask(around, page.RunCommand(magic=magic, line=rest)) is None


def test_every_command_opens_a_question_in_one_case_or_is_harmless():
    lines = [line.partition(" ") for line in OPENING]
    opened = {(magic, MAGICS[magic].read(rest).word) for magic, _, rest in lines}
    assert {key for key, rule in COMMAND_RULES.items() if rule not in (HARMLESS, UNKNOWN)} == opened


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (page.ConnectServer(server="raw"), "%mcp restart raw"),
        (page.AllowTools(server="raw"), "%mcp allow raw"),
        (page.AllowTools(server="raw", name="read[1]"), "%mcp allow raw 'read[[]1]'"),
        (page.EnableTool(server="raw", name="wait", enabled=True), "%mcp enable raw wait"),
        (page.ChooseLevel(level="trusted"), "%agent permission trusted"),
        (page.ChooseModel(name="acp:claude"), "%agent models acp:claude"),
        (page.OpenChat(name="/etc/talk.jsonl", saved=True), "%agent load /etc/talk.jsonl"),
    ],
    ids=repr,
)
def test_a_button_opens_a_question_that_says_the_command_which_does_the_same(around, message, line):
    act = act_to_ask(around, message)
    assert act is not None
    assert act.line == line


@pytest.mark.parametrize(
    "message",
    [
        page.DisconnectServer(server="raw"),
        page.EnableTool(server="raw", name="wait", enabled=False),
        page.ChooseLevel(level="ask"),
        page.ChooseModel(name="openai:gpt-5.4"),
        page.ChooseModel(name="scripted:/etc/passwd"),  # refused
        page.OpenChat(name="kept", saved=True),
        page.OpenChat(name="agent", saved=False),
        page.ExportSession(form="notebook"),
        page.SendPrompt(text="hello"),
    ],
    ids=repr,
)
def test_a_button_that_narrows_or_chooses_what_is_offered_opens_none(around, message):
    assert act_to_ask(around, message) is None


def test_the_card_shows_the_address_of_the_server(tmp_path):
    command = " ".join(map(str, RAW))
    session = Session(Agent(ScriptedModel(["x"]), mcp={"raw": command}))
    act = act_to_ask(Surroundings(session, Book(tmp_path), {}), page.ConnectServer(server="raw"))
    assert act is not None
    assert act.target == command
    session.close()


def test_a_line_that_cannot_be_read_is_refused_before_any_question(around):
    for line in ("nothing", "permission 'open", "permission everything"):
        with pytest.raises(UsageError):
            act_to_ask(around, page.RunCommand(line=line))


def test_a_new_file_in_the_folder_is_told_from_all_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.md").touch()
    (tmp_path / "away").symlink_to(tmp_path.parent)
    for target, is_new in [
        ("new.md", True),
        (str(tmp_path / "deep" / "new.md"), True),
        ("old.md", False),
        ("away/new.md", False),
        (".hidden.md", False),
        ("deep/.hidden/new.md", False),
        (str(tmp_path.parent / "new.md"), False),
    ]:
        assert is_new_in_folder(tmp_path, target) is is_new, target


def test_a_key_in_a_command_is_known_as_a_secret_before_the_card_shows_it(around):
    key = "pQ7wZ2kL9xV4mT1s"
    act = act_to_ask(
        around, page.RunCommand(magic="mcp", line=f"add shop --header X-API-Key:{key} https://shop.example")
    )
    assert act is not None
    assert key not in exact(act.line)
    assert "https://shop.example" in exact(act.line)


def test_a_server_that_cannot_be_added_is_refused_without_a_question(around):
    for line in ("add shop", "add shop -e A=1 https://shop.example", "add shop https://"):
        with pytest.raises((UsageError, ConfigError)):
            act_to_ask(around, page.RunCommand(magic="mcp", line=line))
