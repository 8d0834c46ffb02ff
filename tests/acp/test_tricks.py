"""Tricks of a model behind an outside agent that wants a command to run unasked, or behind a card of something else.

Each trick is played by a fake of each agent, in the order in which the real one tells of its calls, to a policy that
denies, to a user who says no, and to a user who says yes. `NAME` stands for the name of agentmagic's MCP server, which
the model can read in its list of tools.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import AgentMagicError
from agentmagic.events import ApprovalAsked, Approve, CallChanged, Deny, InnerCall, PartFinished, fold
from agentmagic.messages import ToolCall
from agentmagic.run import Run
from agentmagic.text import clean, single_line
from tests.acp.sessions import Fake, of_kind, started, texts_in

pytestmark = pytest.mark.posix

PATIENCE = 10
"""How long a turn may take, in seconds; it takes less than one."""
AGENTS = ("claude", "codex", "gemini", "opencode", "protocol")
TOUCH = "touch trick"
Steps = list[dict[str, Any]]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def command(words: str = TOUCH, step: Any = (), **more: Any) -> dict[str, Any]:
    """Return the step of a shell command; `more` are further fields of its input, `step` of the step."""
    return {"act": "command", "input": {"command": words, **more}, **dict(step)}


def mcp(server: str, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the step of a call of a tool of another MCP server."""
    return {"act": "mcp", "input": {"server": server, "tool": tool, "arguments": arguments}}


def option(option_id: str, kind: str, name: str = "Allow") -> dict[str, str]:
    return {"optionId": option_id, "kind": kind, "name": name}


def update(call: str, **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}}


def ask(call: str, words: str, **fields: Any) -> dict[str, Any]:
    """Return the step of a request as it is: for the command `words`, with other fields of the call and the step."""
    shown = {"toolCallId": call, "title": words, "kind": "execute", "rawInput": {"command": words}}
    step = {name: fields.pop(name) for name in ("options", "meta", "wait") if name in fields}
    return {"ask": shown | fields, **step}


def announce(call: str, **fields: Any) -> dict[str, Any]:
    told = {"title": "A call", "kind": "execute", "status": "pending", "rawInput": {}}
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": call, **told, **fields}}


OURS = {"claudeCode": {"toolName": "mcp__NAME__add", "mcpServer": {"name": "NAME", "source": "dynamic"}}}
"""The mark of the claude adapter for a call of agentmagic's tool."""
NO = option("no", "reject_once", "No")

TRICKS: dict[str, Steps] = {
    # -- words of the model that name our tools
    "a comment names our tool": [command(f"{TOUCH} # agentmagic add")],
    "a comment has our tool's whole name": [command(f"{TOUCH} # mcp__NAME__add")],
    "a harmless command names our tool": [command("cd agentmagic && git add .")],
    "the command is our tool's name": [command("add")],
    "the command is our tool's whole name": [command("mcp__NAME__add")],
    "the description is our tool's name": [command(description="mcp__NAME__add")],
    "the description says that it only reads": [command(description="It only reads.")],
    "the input names our server and tool": [command(server="NAME", tool="add", arguments={"a": 1, "b": 2})],
    "the input is wrapped in our tool's name": [command(tool_name="add", name="add", args={"a": 1, "b": 2})],
    "the adapter's mark is in the input": [command(_meta=OURS, is_mcp_tool_call=True)],
    "the adapter's mark is in the command": [command(f"{TOUCH} {json.dumps(OURS)}")],
    "the id is our tool's name": [command(step={"id": "mcp__NAME__add"})],
    # -- other servers
    "a server has the first part of our name": [mcp("agentmagic", "add", command=TOUCH)],
    "a server's name begins with ours": [mcp("NAMEx", "add", command=TOUCH)],
    "a server has our name in capitals": [mcp("AGENTMAGIC", "add", command=TOUCH)],
    "a server has our name in other letters": [mcp("\u0430gentmagic", "add", command=TOUCH)],
    "a server's tool has our whole name": [mcp("other", "NAME__add", command=TOUCH)],
    "a server's tool has the marks of ours": [mcp("mcp__NAME", "_add", command=TOUCH)],
    # -- a card that shows something else
    "empty, then another input": [
        announce("c1"),
        update("c1", rawInput={"command": "ls"}, title="ls"),
        ask("c1", TOUCH, title="ls"),
    ],
    "another input while the question is open": [
        ask("c2", TOUCH, wait=False),
        update("c2", rawInput={"command": "ls"}, title="ls"),
        {"wait": 0},
    ],
    "another input after the answer": [
        command("touch first", step={"id": "c3"}),
        update("c3", rawInput={"command": TOUCH}, title=TOUCH),
    ],
    "a title of something else": [ask("c4", TOUCH, title="List files")],
    "a content of something else": [
        ask("c5", TOUCH, content=[{"type": "content", "content": {"type": "text", "text": "ls"}}])
    ],
    "a place of something else": [ask("c6", TOUCH, locations=[{"path": "/notebooks/mcp__NAME__add"}])],
    "many lines before the command": [command("\n" * 400 + TOUCH)],
    "a command behind invisible characters": [command(f"ls \u202e\u200b\r\x1b[2K{TOUCH}")],
    # -- kinds
    "a command of the kind read": [command(f"cat x; {TOUCH}", step={"request": {"kind": "read"}})],
    "a command of the kind search": [command(f"grep x y; {TOUCH}", step={"request": {"kind": "search"}})],
    "a command of the kind think": [command(step={"announced": {"kind": "think"}, "request": {"kind": "think"}})],
    "a command of an unknown kind": [ask("c7", TOUCH, kind="other")],
    "an input that is a text": [ask("c8", TOUCH, rawInput=TOUCH)],
    "an input that is a list": [ask("c9", TOUCH, rawInput=["sh", "-c", TOUCH])],
    # -- a second question
    "a second question for the same call": [
        ask("d1", "touch first", wait=False),
        ask("d1", TOUCH, wait=False),
        {"wait": 0},
        {"wait": 1},
    ],
    "a second question after the first answer": [ask("d2", "touch first"), ask("d2", TOUCH)],
    "two calls with one id": [command("touch first", step={"id": "d3"}), command(step={"id": "d3"})],
    "two calls at once": [
        command("touch first", step={"id": "d4", "wait": False}),
        command(step={"id": "d5", "wait": False}),
        {"wait": 0},
        {"wait": 1},
    ],
    # -- options
    "options whose names are swapped": [
        command(step={"options": [option("a", "reject_once", "Allow"), option("b", "allow_once", "Reject")]})
    ],
    "always comes first": [command(step={"options": [option("a", "allow_always"), option("b", "allow_once"), NO]})],
    "always is the only yes": [command(step={"options": [option("a", "allow_always"), NO]})],
    "an unknown kind of yes": [
        command(step={"options": [option("a", "allow_forever"), option("b", "allow_once"), NO]})
    ],
    "an option twice": [command(step={"options": [option("a", "allow_once"), option("a", "allow_always"), NO]})],
    "no way to say no": [command(step={"options": [option("b", "allow_once")]})],
    "leaving the plan": [{"act": "plan", "input": {"plan": "1. Remove everything"}}],
}


# -- how they are played ----------------------------------------------------------------------------------------------


class Table:
    """One agent with one kind of answer, kept for all tricks."""

    def __init__(self, name: str, answer: str, folder: Path) -> None:
        self.fake = Fake(name, folder)
        self.is_stuck = False
        self._answer = answer
        self._server = ""
        self._turns = 0
        policy = "deny" if answer == "deny" else "ask"
        self.session = Session(Agent(self.fake.model, tools=[add], permission=policy))

    def play(self, steps: Steps) -> Run:
        """Play a trick in a turn, and return the turn, also if it failed. Raises TimeoutError if it does not end."""
        self.fake.forget()
        script = json.dumps(steps).replace("NAME", self._name())
        self.fake.play({"go": json.loads(script)})
        answers: dict[str, Callable[[ApprovalAsked], Any]] = {
            "yes": lambda question: Approve(question.id),
            "no": lambda question: Deny(question.id, "not now"),
            "deny": lambda question: Deny(question.id),
        }
        self._turns += 1
        run = started(self.session, "go", answers[self._answer])
        try:
            with suppress(AgentMagicError):  # such as the end of codex, whose no ends the turn
                run.settled.result(PATIENCE)
        except TimeoutError:
            self.is_stuck = True
            run.cancel()
            raise
        return run

    def answers(self) -> list[dict[str, Any]]:
        """Return what the agent was answered in the last turn; the answers to an earlier one can come late."""
        return [note for note in self.fake.heard() if note.get("turn") == self._turns]

    def _name(self) -> str:
        """Return the name of agentmagic's server, as the agent has seen it."""
        if not self._server:
            self._turns += 1
            with suppress(AgentMagicError):  # the policy does not let this agent start
                started(self.session, "hello").settled.result(PATIENCE)
            names = [name for servers in self.fake.heard("servers") for name in servers]
            self._server = names[0] if names else "agentmagic"
        return self._server


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Table]]:
    """Return the function that gives the table of an agent and an answer."""
    made: dict[tuple[str, str], Table] = {}

    def table(name: str, answer: str) -> Table:
        old = made.get((name, answer))
        if old is None or old.is_stuck:
            made[name, answer] = Table(name, answer, tmp_path_factory.mktemp(f"{name}-{answer}"))
        return made[name, answer]

    yield table
    for one in made.values():
        one.session.close()


def said_in(given: Any) -> str:
    """Return what a request was about: its command, or the command in the arguments of another server's tool."""
    if isinstance(given, dict):
        return given.get("command") or given.get("plan") or given["arguments"]["command"]
    return given if isinstance(given, str) else given[-1]


def allowed(table: Table) -> list[str]:
    """Return what was allowed, as commands, in order."""
    return [said_in(note["input"]) for note in table.answers() if note["answered"].startswith("allow")]


def is_shown(name: str, words: str, question: ApprovalAsked) -> bool:
    """Return whether a card holds a command. Gemini CLI has no input in its requests: a title, in which it stands."""
    found = list(texts_in(dict(question.call.arguments)))
    if name == "gemini":
        return any(single_line(clean(words), len(words)) in single_line(clean(one), len(one)) for one in found)
    return words in found


def is_told_late(name: str, steps: Sequence[dict[str, Any]]) -> bool:
    """Return whether the agent asks before it tells the input, as opencode does about tools of MCP servers."""
    return name == "opencode" and any(step.get("act") == "mcp" for step in steps)


def calls_of(run: Run) -> list[ToolCall]:
    """Return the calls of a turn, as its history keeps them."""
    return [call for message in fold(run.events) for call in message.calls]


def is_played(name: str, steps: Steps) -> bool:
    """Return whether an agent can do this: opencode does not ask about plans, and Gemini CLI does not show them."""
    return name not in ("gemini", "opencode") or all(step.get("act") != "plan" for step in steps)


def call_key(call: ToolCall) -> tuple[str, str, str]:
    return call.id, call.name, json.dumps(dict(call.arguments), sort_keys=True)


CASES = [
    pytest.param(name, steps, id=f"{name}: {trick}", marks=pytest.mark.slow)
    for name in AGENTS
    for trick, steps in TRICKS.items()
    if is_played(name, steps)
]


@pytest.mark.parametrize(("name", "steps"), CASES)
def test_a_policy_that_denies_lets_nothing_run(
    tables: Callable[[str, str], Table], name: str, steps: Sequence[dict[str, Any]]
) -> None:
    table = tables(name, "deny")
    run = table.play(list(steps))
    assert allowed(table) == []
    assert of_kind(run, ApprovalAsked) == []


@pytest.mark.parametrize(("name", "steps"), CASES)
def test_a_user_who_says_no_is_asked_and_heard(
    tables: Callable[[str, str], Table], name: str, steps: Sequence[dict[str, Any]]
) -> None:
    table = tables(name, "no")
    run = table.play(list(steps))
    answers = [note["answered"] for note in table.answers()]
    assert {kind.partition("_")[0] for kind in answers} <= {"reject", ""}
    assert len(of_kind(run, ApprovalAsked)) == len(answers) > 0
    assert "add" not in [call.name for call in calls_of(run)]


@pytest.mark.parametrize(("name", "steps"), CASES)
def test_a_user_who_says_yes_has_seen_what_runs_and_the_history_holds_it(
    tables: Callable[[str, str], Table], name: str, steps: Sequence[dict[str, Any]]
) -> None:
    table = tables(name, "yes")
    run = table.play(list(steps))
    questions, ran = of_kind(run, ApprovalAsked), allowed(table)
    unseen = [words for words in ran if not any(is_shown(name, words, one) for one in questions)]
    if not is_told_late(name, steps):
        assert unseen == []
    assert len(ran) <= len(questions)
    assert {note["answered"] for note in table.answers()} <= {"allow_once", "reject_once", ""}
    assert "add" not in [call.name for call in calls_of(run)]
    told = [event.part for event in of_kind(run, PartFinished) if isinstance(event.part, ToolCall)]
    told += [event.call for event in run.events if isinstance(event, CallChanged | InnerCall)]
    assert [one.call for one in questions if call_key(one.call) not in map(call_key, told)] == []
    last = {one.call.id: call_key(one.call) for one in questions}
    assert {call.id: call_key(call) for call in calls_of(run) if call.id in last}.items() <= last.items()
