"""Who proposes an act, and what is decided about it: one table on the real gate.

Each row is a proposer, each column what the user, a class or an administrator has set, or how a user answers. Each cell
is played to the end in a real session, and what was asked, what ran and what the audit log says are compared.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, Policy, Rule, Session, ToolContext, ToolError, classroom, tool
from agentmagic.classroom import class_settings
from agentmagic.events import ApprovalAsked, Approve, Deny, Event
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.testing import PATIENCE
from agentmagic.tools.base import Effects, Tool, result
from tests.acp.sessions import Fake
from tests.serve.desks import Office, served
from tests.turns import always, approve, calls, scripted

LOOK = "look"
"""The act that only reads. All other acts are numbers, and change something."""
Acts = Sequence[Sequence[str]]
"""What a proposer does, one group after the other; it does what is in one group at once, if it can."""
Answer = Callable[[ApprovalAsked], Approve | Deny]


# -- the columns ---------------------------------------------------------------------------------------


def edit(question: ApprovalAsked) -> Approve:
    """Return an approval with other arguments, whether the question offers that or not."""
    (name,) = question.call.arguments if len(question.call.arguments) == 1 else ("title",)
    return Approve(question.id, arguments={name: "10"})


def second_only(question: ApprovalAsked) -> Approve | Deny:
    return Deny(question.id) if act_of(question.call.arguments) == "1" else Approve(question.id)


@dataclass(frozen=True)
class Column:
    """What is set, what a proposer does, and how the user answers; without an answer nobody is there."""

    permission: Any = "ask"
    acts: Acts = (("1",),)
    answer: Answer | None = approve
    variable: str = ""
    bound: tuple[str, ...] = ()
    administrator: bool = False


SHOP = Rule("allow", "shop")
"""The tool that calls other tools may run, where a column is about the calls inside it."""
WIDEST = Policy([Rule("allow", name) for name in ("pay", "look", "shop", "run_program", "execute", "edit", "read")])
"""All that a notebook can do to let an act run."""
DENYING = [Rule("deny", name) for name in ("pay", "run_program", "edit")]
DENYING += [Rule("deny", "execute", when={"command": "touch *"})]  # not all code, so an outside agent is started
DENIES, ASKS = ('permission = "deny"',), ('permission = "ask"', 'code = "ask"')
READS = Policy(level="reads")

COLUMNS = {
    "policy deny": Column(Policy([SHOP], "deny")),
    "variable deny": Column("allow", variable="deny"),
    "a deny rule": Column(Policy(DENYING, "allow")),
    "policy allow": Column("allow"),
    "an allow rule": Column(WIDEST, answer=None),
    "level, a read": Column(READS, acts=((LOOK,),)),
    "level, a write": Column(READS),
    "class denies": Column(WIDEST, bound=DENIES),
    "class asks": Column(WIDEST, (("1",), ("1",)), always, bound=ASKS),
    "administrator denies": Column(WIDEST, bound=DENIES, administrator=True),
    "administrator asks": Column(WIDEST, (("1",), ("1",)), always, bound=ASKS, administrator=True),
    "headless": Column(answer=None),
    "Always": Column(acts=(("1",), ("1",)), answer=always),
    "Edit": Column(answer=edit),
    "second question": Column(acts=(("1", "2"),), answer=second_only),
}


# -- the table -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What happens: how often the user is asked, which acts are done, and the decisions in the audit log.

    `error` is a part of the error that ends the turn. In `done` and `decisions`, None stands for all acts.
    """

    asked: int = 0
    done: tuple[str, ...] | None = ()
    decisions: tuple[str, ...] = ()
    each: str = ""
    error: str = ""


WORDS = {
    "denied": Cell(each="policy"),
    "nobody": Cell(each="no one to ask"),  # it had to be asked about, and nobody is there who could answer
    "asked": Cell(1, None, each="approved"),
    "runs": Cell(0, None, each="allowed"),
    "every time": Cell(2, None, each="approved"),  # the user answers with Always, and is asked again
    "kept": Cell(1, None, ("approved always", "allowed")),  # the user answers with Always, and is not asked again
    "edited": Cell(1, ("10",), ("approved edited",)),
    "not offered": Cell(3, (), ("edit failed",)),  # an edit is not taken, and what was asked about does not run
    "apart": Cell(2, ("2",), ("denied", "approved")),  # the No ends only the act that it answers
    "told": Cell(0, None, each="by the agent"),  # the gate does not see it before it is done
    "turn ends": Cell(0, None, each="by the agent", error="did this without asking"),
    "not started": Cell(error="can run commands without asking, so it is not started"),
    "not reached": Cell(),  # the call around it is denied
}

TABLE: dict[str, dict[str, str]] = {
    # A model in a turn, a tool's call: the gate decides, and an edit is what runs.
    "a model's call": {
        "policy deny": "denied", "variable deny": "denied", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "runs", "level, a write": "asked",
        "class denies": "denied", "class asks": "every time",
        "administrator denies": "denied", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "edited", "second question": "apart",
    },
    # A model in a turn, code: only the user, or a rule with the tool's exact name, lets it run; so policy "allow" asks.
    "a model's code": {
        "policy deny": "denied", "variable deny": "denied", "a deny rule": "denied",
        "policy allow": "asked", "an allow rule": "runs", "level, a read": "runs", "level, a write": "asked",
        "class denies": "denied", "class asks": "every time",
        "administrator denies": "denied", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "edited", "second question": "apart",
    },
    # A program that runs, an inner call: the same policy, and the audit says in which call it was made. The variable
    # denies the call around it too.
    "a call inside a call": {
        "policy deny": "denied", "variable deny": "not reached", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "runs", "level, a write": "asked",
        "class denies": "denied", "class asks": "every time",
        "administrator denies": "denied", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "edited", "second question": "apart",
    },
    # A row of a map: nobody is there, so what had to be asked about is denied, whoever watches the map.
    "a row of a map": {
        "policy deny": "denied", "variable deny": "denied", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "runs", "level, a write": "nobody",
        "class denies": "denied", "class asks": "nobody",
        "administrator denies": "denied", "administrator asks": "nobody",
        "headless": "nobody", "Always": "nobody", "Edit": "nobody", "second question": "nobody",
    },
    # A served client: the same as a model's calls, and the audit names the client.
    "a client's call": {
        "policy deny": "denied", "variable deny": "denied", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "runs", "level, a write": "asked",
        "class denies": "denied", "class asks": "every time",
        "administrator denies": "denied", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "edited", "second question": "apart",
    },
    # An outside agent, an act of its own that it asks about: a command is code. No known agent is known to ask before
    # every command, so it is not started where code is forbidden. A level does not know what a command reads.
    "an agent's command": {
        "policy deny": "not started", "variable deny": "not started", "a deny rule": "denied",
        "policy allow": "asked", "an allow rule": "runs", "level, a read": "asked", "level, a write": "asked",
        "class denies": "not started", "class asks": "every time",
        "administrator denies": "not started", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "not offered", "second question": "apart",
    },
    # The same, of a kind that the agent's program sets without reading a command: decided by rules for that kind.
    "an agent's edit": {
        "policy deny": "not started", "variable deny": "not started", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "asked", "level, a write": "asked",
        "class denies": "not started", "class asks": "every time",
        "administrator denies": "not started", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "not offered", "second question": "apart",
    },
    # An outside agent, what it does without asking: the gate cannot stop it. It is shown and audited, and the turn ends
    # if a deny forbids that kind. Where a bound says ask, nobody is asked after the fact.
    "an agent's act without asking": {
        "policy deny": "not started", "variable deny": "not started", "a deny rule": "turn ends",
        "policy allow": "told", "an allow rule": "told", "level, a read": "told", "level, a write": "told",
        "class denies": "not started", "class asks": "told",
        "administrator denies": "not started", "administrator asks": "told",
        "headless": "told", "Always": "told", "Edit": "told", "second question": "told",
    },
    # An outside agent, a call of our tools: decided once, when it comes in through our server, with our card.
    "an agent's call of our tool": {
        "policy deny": "not started", "variable deny": "not started", "a deny rule": "denied",
        "policy allow": "runs", "an allow rule": "runs", "level, a read": "runs", "level, a write": "asked",
        "class denies": "not started", "class asks": "every time",
        "administrator denies": "not started", "administrator asks": "every time",
        "headless": "nobody", "Always": "kept", "Edit": "edited", "second question": "apart",
    },
}  # fmt: skip


# -- the proposers -------------------------------------------------------------------------------------


class Shop:
    """A toolset with a tool that changes something, one that only reads, and one that runs programs."""

    is_local = True

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def tools(self) -> Sequence[Tool]:
        async def note(call: ToolCall, _context: ToolContext) -> ToolResult:
            (act,) = call.arguments.values()
            self.ran.append(act)
            return result(call, f"did {act}")

        def effects(arguments: Mapping[str, Any]) -> Effects:
            return Effects(only_reads=arguments["code"] == LOOK)

        look = ToolDef("look", "Look.", parameters("what"), server="files")
        code = ToolDef("run_program", "Run a program.", parameters("code"))
        return [
            Tool(ToolDef("pay", "Pay.", parameters("sum")), note, ask=True),
            Tool(look, note, ask=True, trusted=True, reads=True),
            Tool(code, note, ask=True, code=True, effects=effects),
        ]

    async def aclose(self) -> None:
        pass


@tool
async def shop(acts: list[list[str]], ctx: ToolContext) -> str:
    """Call other tools, as a program does."""
    for group in acts:
        inner = [ctx.call_tool(name, arguments) for name, arguments in map(call_of, group)]
        ends = await asyncio.gather(*inner, return_exceptions=True)
        assert all(isinstance(end, str | ToolError) for end in ends), ends
    return "done"


def parameters(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def call_of(act: str) -> tuple[str, dict[str, Any]]:
    """Return the tool of an act and its arguments."""
    return ("look", {"what": act}) if act == LOOK else ("pay", {"sum": act})


def act_of(arguments: Mapping[str, Any]) -> str:
    """Return the act that a call's arguments, or what an outside agent has run, stand for."""
    texts = [text.removeprefix("touch ").removesuffix(".txt") for text in arguments.values() if isinstance(text, str)]
    return next(text for text in texts if text == LOOK or text.isdecimal())


@dataclass
class Seen:
    """What has happened in a cell of the table; `around` has the ids of the calls of `shop`."""

    asked: list[ApprovalAsked] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    error: str = ""
    around: frozenset[str] = frozenset()


def answered(session: Session, answer: Answer | None, seen: Seen) -> None:
    """Run a turn to its end, in which the user, if there is one, answers the questions."""

    def hear(event: Event) -> None:
        if isinstance(event, ApprovalAsked) and answer is not None:
            seen.asked.append(event)
            assert session.running is not None
            session.running.pass_on(answer(event))

    session.listen(hear)
    outcome = session.start("go", attended=answer is not None).settled.result(PATIENCE)
    seen.error = str(outcome.error or "")
    calls_made = [call for message in outcome.result.history_delta for call in message.calls]
    seen.around = frozenset(call.id for call in calls_made if call.name == "shop")


def model_session(column: Column, source: Shop, groups: Sequence[Any]) -> Session:
    return scripted(*(calls(*group) for group in groups), "Done.", tools=[source, shop], permission=column.permission)


def model(column: Column, _folder: Path) -> Seen:
    source = Shop()
    seen = Seen(ran=source.ran)
    answered(model_session(column, source, [map(call_of, group) for group in column.acts]), column.answer, seen)
    return seen


def code(column: Column, _folder: Path) -> Seen:
    source = Shop()
    seen = Seen(ran=source.ran)
    groups = [[("run_program", {"code": act}) for act in group] for group in column.acts]
    answered(model_session(column, source, groups), column.answer, seen)
    return seen


def inner(column: Column, _folder: Path) -> Seen:
    source = Shop()
    seen = Seen(ran=source.ran)
    acts = [list(group) for group in column.acts]
    answered(model_session(column, source, [[("shop", {"acts": acts})]]), column.answer, seen)
    return seen


def row(column: Column, _folder: Path) -> Seen:
    source = Shop()
    session = model_session(column, source, [map(call_of, group) for group in column.acts])
    (outcome,) = session.map(["a row"], "{row}")
    return Seen(ran=source.ran, error=outcome.error)


def client(column: Column, _folder: Path) -> Seen:
    source = Shop()
    seen = Seen(ran=source.ran)

    def hear(event: Event) -> object:
        if not isinstance(event, ApprovalAsked) or column.answer is None:
            return None
        seen.asked.append(event)
        return column.answer(event)

    session = scripted("Never.", tools=[source], permission=column.permission)
    with served(session, Office(hear, attended=column.answer is not None)) as program:
        for group in column.acts:
            made = [program.start(name, **arguments) for name, arguments in map(call_of, group)]
            for one in made:
                one.result(PATIENCE)
    return seen


def agent(steps_of: Callable[[Sequence[str], str], list[Any]], column: Column, folder: Path) -> Seen:
    """Have an outside agent act. `steps_of` returns the steps of its script for a group of acts and a prefix of ids."""
    source, fake = Shop(), Fake("claude", folder)
    groups = [steps_of(group, f"group{number}") for number, group in enumerate(column.acts)]
    fake.play({"go": [*(step for group in groups for step in group), {"say": "Done."}]})
    session, seen = Session(Agent(fake.model, tools=[source], permission=column.permission)), Seen()
    try:
        answered(session, column.answer, seen)
    finally:
        session.close()
    seen.ran = [*source.ran, *map(act_of, fake.heard("ran"))]
    return seen


def command_steps(group: Sequence[str], call: str) -> list[Any]:
    acts = [(f"{call}-{act}", {"command": f"touch {act}"}) for act in group]
    asking = [{"act": "command", "input": given, "id": name, "wait": False} for name, given in acts]
    return [*asking, *({"wait": position - len(group)} for position in range(len(group)))]


def edit_steps(group: Sequence[str], call: str) -> list[Any]:
    acts = [(f"{call}-{act}", {"path": f"{act}.txt", "new": "a text"}) for act in group]
    asking = [{"act": "edit", "input": given, "id": name, "wait": False} for name, given in acts]
    return [*asking, *({"wait": position - len(group)} for position in range(len(group)))]


def unasked_steps(group: Sequence[str], call: str) -> list[Any]:
    given = [(f"{call}-{act}", {"path": f"{act}.txt", "new": "a text"}) for act in group]
    return [{"act": "edit", "input": one, "id": name, "unasked": True} for name, one in given]


def our_tool_steps(group: Sequence[str], call: str) -> list[Any]:
    made = [(act, *call_of(act)) for act in group]
    given = [(act, {"server": "OURS", "tool": name, "arguments": arguments}) for act, name, arguments in made]
    return [{"act": "mcp", "input": one, "id": f"{call}-{act}"} for act, one in given]


AGENT = "acp:claude-agent-acp"
PROPOSERS: dict[str, tuple[Callable[[Column, Path], Seen], str]] = {
    "a model's call": (model, ""),
    "a model's code": (code, ""),
    "a call inside a call": (inner, ""),
    "a row of a map": (row, ""),
    "a client's call": (client, "mcp:fastmcp"),
    "an agent's command": (partial(agent, command_steps), AGENT),
    "an agent's edit": (partial(agent, edit_steps), AGENT),
    "an agent's act without asking": (partial(agent, unasked_steps), AGENT),
    "an agent's call of our tool": (partial(agent, our_tool_steps), AGENT),
}
"""How each proposer is played, and the name that the audit log has for it."""


# -- each cell -----------------------------------------------------------------------------------------


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """Return the function that returns the lines of the audit log, without those of `shop`."""
    caplog.set_level(logging.INFO, "agentmagic.audit")

    def lines() -> list[dict[str, Any]]:
        records = [one.getMessage() for one in caplog.records if one.name == "agentmagic.audit"]
        found = [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*")', record)) for record in records]
        read = [{name: json.loads(value) for name, value in one.items()} for one in found]
        return [one for one in read if one["tool"] != "shop"]

    return lines


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the settings of a class and of an administrator."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(classroom, "_FOLDER", tmp_path)
    monkeypatch.setattr(classroom, "POLICY_FILE", tmp_path / "agentmagic.toml")
    class_settings.cache_clear()
    yield tmp_path
    class_settings.cache_clear()


def set_up(column: Column, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variable of a column, and write its bound."""
    if column.variable:
        monkeypatch.setenv("AGENTMAGIC_PERMISSION", column.variable)
    if column.bound and column.administrator:
        (place / "agentmagic.toml").write_text("\n".join(column.bound), encoding="utf-8")
    elif column.bound:
        lines = ["[tool.agentmagic.class]", *column.bound]
        (place / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")


def test_each_row_has_each_column():
    assert list(TABLE) == list(PROPOSERS)
    assert [list(cells) for cells in TABLE.values()] == [list(COLUMNS)] * len(TABLE)


FAST = ("a deny rule", "headless", "Always", "second question")
"""Columns of an outside agent that are tried each time. Each costs a process."""


def marks_of(proposer, column):
    return [pytest.mark.posix, *[pytest.mark.slow] * (column not in FAST)] if proposer.startswith("an agent") else []


CELLS = [
    pytest.param(proposer, column, id=f"{proposer}: {column}", marks=marks_of(proposer, column))
    for proposer in TABLE
    for column in COLUMNS
]


@pytest.mark.parametrize(("proposer", "name"), CELLS)
def test_what_is_decided(proposer, name, audit, place, monkeypatch):
    column, cell = COLUMNS[name], WORDS[TABLE[proposer][name]]
    play, caller = PROPOSERS[proposer]
    set_up(column, place, monkeypatch)
    seen = play(column, place)
    acts = [act for group in column.acts for act in group]
    lines = audit()
    assert len(seen.asked) == cell.asked
    assert sorted(seen.ran) == (acts if cell.done is None else [*cell.done])
    assert [line["decision"] for line in lines] == [*(cell.decisions or [cell.each] * len(acts) * (cell.each != ""))]
    assert cell.error in seen.error
    assert bool(cell.error) is bool(seen.error)
    assert {line.get("caller", "") for line in lines} <= {caller}
    assert all((line.get("within", "") in seen.around) is (proposer == "a call inside a call") for line in lines)
