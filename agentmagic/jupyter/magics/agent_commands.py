"""The subcommands of `%agent`: one method for each, which returns what to print. `AGENT_COMMANDS` lists them.

A method's parameters are the arguments of the subcommand, and its docstring is the help.
"""

import time
from pathlib import Path
from typing import Annotated, Literal, Protocol

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

from agentmagic import log
from agentmagic.approval.policy import Level
from agentmagic.bill import folder_bill
from agentmagic.context.rules import project_here, report
from agentmagic.context.skills import SkillReader
from agentmagic.display.printout import PrintedLine, Printout, printout
from agentmagic.errors import UsageError
from agentmagic.history.journal_reader import list_conversations
from agentmagic.jupyter.frontend import Kind, front_end, say
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.options import Ask, Command, LineMagic, SessionName
from agentmagic.jupyter.magics.parser import Arg
from agentmagic.jupyter.magics.sources import conversations, folders, models, sessions, types
from agentmagic.jupyter.notebook.file import SUFFIX
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace, can_name_session, check_name
from agentmagic.loop.budgets import period_meters
from agentmagic.plain_files import write_failure
from agentmagic.platforms import quote_word
from agentmagic.replay.cassette import SUFFIX as CASSETTE
from agentmagic.run_log import hand_in
from agentmagic.serve.serving import STOPPED
from agentmagic.session import Session
from agentmagic.settings import REPLAY, Replay, file_of, path_of
from agentmagic.text import did_you_mean, plural
from agentmagic.widgets import commands
from agentmagic.widgets.commands import relative_path
from agentmagic.widgets.inspector import inspect_turn

RECORDS = 100
"""The number of log records that `%agent debug` shows."""
NO_DOCK = "The panel is here: this page has no place for it beside the notebook."
GLANCE = 2**20
"""Bytes of the largest saved conversation whose turns are counted for an offer to load it, at start or in a panel."""


Overwrite = Annotated[bool, Arg("--overwrite", "replace the file if it is there")]


def _check_turns(turns: int | None) -> None:
    if turns is not None and turns < 0:
        raise UsageError(f"--turns is {turns}. Give how many of the first turns to take.")


class CellTurns(Protocol):
    """Begins turns in the running cell, and shows the chat panel beside the notebook."""

    def answer(self, command: Ask, prompt: str) -> object:
        """Run a turn with a prompt; return the answer: its text, or a value of the type that `command` names."""
        ...

    def dock(self, session: str) -> bool:
        """Show a session's chat panel beside the notebook; return False if the browser page cannot show one."""
        ...

    def fix(self, session: str) -> None:
        """Run a turn that asks about the last error of a cell."""
        ...

    def resume(self, session: str) -> None:
        """Run a turn that continues the unfinished plan of the last turn."""
        ...


class AgentCommands:
    """The methods that carry out the subcommands of `%agent`; `magic` is the name under which `%agent` is loaded."""

    def __init__(self, shell: InteractiveShell, namespace: Namespace, magic: str, turns: CellTurns) -> None:
        self._shell = shell
        self._namespace = namespace
        self._magic = magic
        self._turns = turns

    def status(self, *, session: SessionName = DEFAULT_SESSION) -> Printout:
        """Show the session: model, turns, tokens, cost, where it is saved, servers."""
        current = self._namespace.existing_session(session)
        rows = formatting.status(session, current, self._namespace.place())
        ask = f"%%{self._magic} and a prompt below it asks the agent; %{self._magic} help tells the other commands."
        return printout([rows], *formatting.servers(current.toolsets()).groups, [PrintedLine(ask, "quiet")])

    def ask(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        as_type: Annotated[
            str | None,
            Arg("--as TYPE", "what the answer is, as of %%%%agent; its value is returned", complete=types),
        ] = None,
        prompt: Annotated[tuple[str, ...], Arg("PROMPT", "the prompt, in quotes", rest=True)],
    ) -> object:
        """Ask, and return the answer: x = %agent ask "How many rows?"."""
        if not prompt:
            raise UsageError(f'The prompt is empty. Write it in quotes: x = %{self._magic} ask "How many rows?"')
        return self._turns.answer(Ask(session, as_type=as_type), " ".join(prompt))

    def history(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        search: Annotated[tuple[str, ...], Arg("--search WORDS", "show only where these words stand together")] = (),
    ) -> Printout:
        """Show the turns of the session, or where words occur in them."""
        current = self._namespace.existing_session(session)
        return formatting.occurrences(current, search) if search else formatting.history(current)

    def chat(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        name: Annotated[
            str | None,
            Arg("NAME", "the session, as of %%%%agent (default: agent)", complete=sessions, check=check_name),
        ] = None,
        dock: Annotated[bool, Arg("--dock", "beside the notebook, in JupyterLab and Notebook 7")] = False,
    ) -> str:
        """Show the chat panel of a session; a missing session is created."""
        current = self._namespace.session(name or session)
        if dock and self._turns.dock(name or session):
            return ""
        current.chat()
        return NO_DOCK if dock else ""

    def tools(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        source: Annotated[
            Literal["notebook"] | None, Arg("notebook", "offer the tools of this notebook in every turn of the session")
        ] = None,
        switch: Annotated[Literal["off"] | None, Arg("off", "offer them no more")] = None,
    ) -> str | Printout:
        """Show the tools of the next turn, connecting servers if needed; or offer the notebook's tools."""
        current = self._namespace.existing_session(session)
        if source is not None:
            self._namespace.offer_notebook(current, offered=switch is None)
            if switch is not None:
                return "The tools of the notebook are no longer offered."
        skills = SkillReader(project_here(rules=current.agent.rules))
        sources = (*self._namespace.toolsets(current, current.agent), skills)
        listed = formatting.tools(*self._namespace.definitions(sources))
        web = commands.web_tools(current)
        return printout([*listed.parts, f"The web: {web}."]) if web else listed

    def models(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        model: Annotated[str | None, Arg("PROVIDER:MODEL", "the session's model from now on", complete=models)] = None,
    ) -> str | Printout:
        """Show the providers, or choose the model of the session."""
        if model is None:
            return formatting.models(self._namespace.existing_session(session))
        draft = self._namespace.draft(session)
        commands.choose_model(draft, model)
        self._namespace.bind(session, draft)
        return f"The session's model: {formatting.model_name(draft)}"

    def permission(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        level: Annotated[
            Level | None,
            Arg("ask | reads | trusted", "ask always, run what only reads, or run trusted servers (%%mcp trust) too"),
        ] = None,
    ) -> str:
        """Show which calls run without asking, or set the level; rules, hooks and class settings stay."""
        if level is not None:
            draft = self._namespace.draft(session)
            commands.choose_level(draft, level)
            self._namespace.bind(session, draft)
        return f"Permission: {formatting.permission(self._namespace.existing_session(session).agent.permission)}"

    def rules(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        approve: Annotated[Literal["approve"] | None, Arg("approve", "let all of them be used as they are now")] = None,
    ) -> str:
        """Show what the project tells the model: rules, skills, commands, and whether you have approved them."""
        current = self._namespace.existing_session(session)
        text = report(project_here(rules=current.agent.rules), approve=approve is not None)
        self._namespace.looks.tell(None)
        return text

    def cost(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Show requests, tokens and cost of the session."""
        return formatting.usage(self._namespace.existing_session(session).usage)

    def stats(self, *, session: SessionName = DEFAULT_SESSION) -> Printout:
        """Show requests, tasks, calls, failures, tokens and cost of each turn."""
        return formatting.stats(self._namespace.existing_session(session))

    def usage(
        self,
        *,
        by: Annotated[
            Literal["day", "notebook", "session", "model"] | None,
            Arg("--by day | notebook | session | model", "a line for each of these (default: each day and model)"),
        ] = None,
        all_users: Annotated[
            bool, Arg("--all", "what each user of this machine has paid, for an administrator")
        ] = False,
    ) -> Printout:
        """Show what the sessions of this folder have paid for, and what is left of the budgets."""
        if all_users:
            from agentmagic import user_costs  # loaded only for an administrator

            return user_costs.report()
        columns = (by,) if by else ("day", "model")
        return formatting.bill(folder_bill(self._namespace.folder), columns, period_meters())

    def inspect(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        turn: Annotated[
            int | None, Arg("TURN", "the number of a turn, as %%agent history has it (default: last)")
        ] = None,
        search: Annotated[tuple[str, ...], Arg("--search WORDS", "show only the lines with these words in them")] = (),
    ) -> str:
        """Show what a turn sent and received: each request as the provider had it, times, tokens by part."""
        times = front_end(self._shell).kind is not Kind.BATCH
        inspection = inspect_turn(self._namespace.existing_session(session), turn, times=times)
        display(inspection.search(" ".join(search)) if search else inspection)
        return ""

    def resume(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Continue the unfinished plan of the last turn; finished tasks are not run again."""
        self._turns.resume(session)
        return ""

    def fix(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Ask the agent about the last error of a cell: the cell and its traceback are the prompt."""
        self._turns.fix(session)
        return ""

    def reset(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Forget the conversation; model, servers and approvals stay."""
        self._namespace.existing_session(session).clear()
        return f"The conversation is forgotten. %{self._magic} undo brings it back."

    def compact(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Summarise older turns now: later requests send the summary instead; the history keeps the turns."""
        return commands.compact(self._namespace.existing_session(session))

    def undo(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Undo the last turn, edit or reset, and the changes its tools made to variables; name what stays changed."""
        current = self._namespace.existing_session(session)
        current.step_back()
        return commands.undo_report(current)

    def redo(self, *, session: SessionName = DEFAULT_SESSION) -> str:
        """Redo the last change that was undone."""
        current = self._namespace.existing_session(session)
        current.step_back(redo=True)
        return commands.undo_report(current, redo=True)

    def serve(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        switch: Annotated[Literal["stop"] | None, Arg("stop", "serve no longer")] = None,
        tools: Annotated[bool, Arg("--tools", "offer the tools of the session too")] = False,
        wait: Annotated[
            bool, Arg("--wait", "keep the cell running, and carry out the calls in it, until it is stopped")
        ] = False,
    ) -> str | None:
        """Serve the notebook over MCP to agents on this machine: Claude Code, Codex, Gemini CLI and others."""
        if switch is not None:
            return formatting.stop_serving(self._namespace.existing_session(session))
        serving = self._namespace.session(session).serve(tools=tools)
        in_terminal = bool(serving.url) and front_end(self._shell).kind is Kind.TEXT
        if not wait:
            return formatting.WAIT_FOR_CALLS if in_terminal else None
        if serving.url:
            say(formatting.WAITING_FOR_CALLS)
        serving.wait()
        return STOPPED if in_terminal else None

    def sessions(self) -> Printout:
        """Show the sessions of the notebook, and the conversations saved for it."""
        place = self._namespace.place()
        records = list_conversations(place.folder) if place.folder is not None else []
        return formatting.sessions(self._namespace.sessions(), records, place, time.time())

    def load(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        saved: Annotated[
            str | None,
            Arg(
                "NAME | FILE",
                "its name in %%agent sessions, or its file (default: the session's own)",
                complete=conversations,
            ),
        ] = None,
    ) -> Printout:
        """Continue a saved conversation: the session's own, or another one."""
        draft = self._namespace.draft(session)
        draft.restore(self._own_file(draft) if saved is None else self._saved_file(saved))
        self._namespace.bind(session, draft)  # after `restore`: if the file cannot be read, the variable stays unbound
        # `take_notices` also removes the notices from the session, so that the next turn does not show them again.
        return formatting.load_report(session, draft, draft.take_notices())

    def save(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        target: Annotated[str, Arg("FILE", "a file that is not there yet; .jsonl by custom", complete=folders)],
    ) -> str:
        """Save the conversation to a file of its own."""
        from agentmagic.export import FORMS

        current = self._namespace.existing_session(session)
        file = file_of(target)
        if file.name.lower().endswith(FORMS):
            raise UsageError(
                f"save writes a conversation to be loaded again: name a {SUFFIX} file. "
                f"%{self._magic} export writes {', '.join(FORMS)}."
            )
        current.save(file)
        return f"Saved {plural(len(current.turns), 'turn')} in {relative_path(file)}."

    def fork(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        name: Annotated[str, Arg("NEW", "the variable of the new session, which must be free", check=check_name)],
        turns: Annotated[int | None, Arg("--turns N", "take the first N turns only", check=_check_turns)] = None,
    ) -> str:
        """Begin another session with the turns of this one."""
        current = self._namespace.existing_session(session)
        missing = commands.missing_turn(current)  # before the copy, because a running turn may end during the copy
        branch = self._namespace.fork(current, name, turns)
        return f"{name} begins with {plural(len(branch.turns), 'turn')} of {session}.{missing}"

    def export(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        target: Annotated[
            str,
            Arg(
                "FILE",
                "ends in .md, .html, .ipynb, .json, .openai.json, .responses.json or .gemini.json",
                complete=folders,
            ),
        ],
        overwrite: Overwrite = False,
    ) -> str:
        """Write the conversation to a file; the ending of its name decides the format."""
        from agentmagic.export import form_of

        current, file = self._namespace.existing_session(session), file_of(target)
        form_of(file)  # first, so that the user gets the error about an unknown suffix before one about the file
        self._check_target(file, target, overwrite=overwrite)
        return commands.export(current, file, self._namespace.functions(), overwrite=overwrite)

    def hand_in(
        self,
        *,
        target: Annotated[str, Arg("FILE", "the file to hand in; .yaml by custom", complete=folders)],
        student: Annotated[
            tuple[str, ...], Arg("--student NAME", "your name (default: the one under which you are logged in)")
        ] = (),
        overwrite: Overwrite = False,
    ) -> str:
        """Write the run of this notebook to a file to hand in: turns, calls, exercises, checks, secrets blanked."""
        file = file_of(target)
        self._check_target(file, target, overwrite=overwrite)
        notebook = self._namespace.place().notebook
        try:
            name = notebook.name if notebook is not None else ""
            summary = hand_in(file, self._namespace.sessions(), name, " ".join(student))
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {write_failure(error, 'Choose another place.')}") from error
        return f"Written to {relative_path(file)}: {summary}"

    def cassette(
        self,
        *,
        target: Annotated[
            str | None,
            Arg("FILE", "the file, relative to the working directory; .cassette.yaml by custom", complete=folders),
        ] = None,
    ) -> str:
        """Show the cassette of the notebook, or name it; its mode stays. Sessions are recorded to it and replayed."""
        if target is not None:
            self._namespace.insert(file_of(target))
        deck = self._namespace.session(DEFAULT_SESSION).deck
        if deck.path is None:
            usual = f"%{self._magic} record records to NOTEBOOK{CASSETTE}, beside the notebook"
            return f"No cassette is named. {usual}; %{self._magic} cassette FILE names another file."
        modes = f"%{self._magic} record records to it, %{self._magic} replay plays it."
        return f"Cassette: {relative_path(deck.path)}. {modes}"

    def record(self) -> str:
        """Record the cells that run from now on to the cassette; if none is named, to NOTEBOOK.cassette.yaml."""
        return self._in_mode("record")

    def replay(
        self,
        *,
        frozen: Annotated[
            Literal["all", "model", "tools"],
            Arg("all | model | tools", "what comes from the tape: all, the model's answers, or the results of tools"),
        ] = "all",
        timed: Annotated[bool, Arg("--timed", "take as long as the recording did")] = False,
        report: Annotated[bool, Arg("--report", "show what was found of each request, in a table")] = False,
    ) -> str | Printout:
        """Replay the cells that run from now on from the cassette; each request is compared with the recording."""
        if report:
            return formatting.verdicts(self._namespace.sessions())
        modes: dict[str, Replay] = {"all": "replay", "model": "replay-model", "tools": "replay-tools"}
        return self._in_mode(modes[frozen], timed=timed)

    def live(self) -> str:
        """Stop using the cassette: neither record nor replay from now on."""
        return self._in_mode("live")

    def auto(self) -> str:
        """Replay unchanged cells from the cassette; from the first change on, run live and record again."""
        return self._in_mode("auto")

    def _in_mode(self, mode: Replay, *, timed: bool = False) -> str:
        self._namespace.choose(mode, timed=timed)
        deck = self._namespace.session(DEFAULT_SESSION).deck
        usual = self._usual_cassette() if mode != "live" and deck.path is None else None
        if usual is not None:
            self._namespace.insert(usual)
        elif mode != "live" and deck.path is None:
            why = "the kernel does not know which notebook it runs"
            return f"Mode: {mode}. It needs a cassette, and {why}. Name the file: %{self._magic} cassette FILE"
        override = "" if deck.mode == mode else f" {REPLAY}={deck.mode} is set, and holds."
        return f"Mode: {mode}.{f' Cassette: {relative_path(usual)}.' if usual else ''}{override}"

    def _usual_cassette(self) -> Path | None:
        """Return the file beside the notebook in which it is recorded if no file is named; None without a notebook."""
        notebook = self._namespace.place().notebook
        return notebook.with_name(f"{notebook.stem}{CASSETTE}") if notebook is not None else None

    def debug(
        self,
        *,
        detail: Annotated[
            Literal["on", "off"] | None, Arg("on | off", "keep every event of a turn, and the SDKs' records")
        ] = None,
    ) -> str | Printout:
        """Show the last log records, or choose how detailed they are."""
        if detail is None:
            times = front_end(self._shell).kind is not Kind.BATCH  # no times in batch: its outputs are compared
            return formatting.log(log.recent(RECORDS), detailed=log.is_detailed(), times=times)
        log.keep(detailed=detail == "on")
        sdks = f"every event of a turn, and what {', '.join(log.SDKS)} log"
        content = sdks if detail == "on" else "how turns begin and end, retries and warnings"
        return f"The log now keeps {content}. %{self._magic} debug shows its last {RECORDS} lines."

    # -- files -----------------------------------------------------------------------------------

    def hint(self) -> str | None:
        """Return a line about the last saved conversation; None without one, or if `agent` has turns, or no file."""
        default = self._namespace.sessions().get(DEFAULT_SESSION)
        if default is None or default.path is None or default.turns:
            return None
        # Leave out files without turns, which stay when a conversation is cleared.
        records = [one for one in list_conversations(default.path.parent, GLANCE) if one.turns != 0]
        if not records:
            return None
        one = records[0]
        others = f" %{self._magic} sessions lists all {len(records)}." if len(records) > 1 else ""
        age = formatting.ago(time.time() - one.modified)
        return (
            f"Saved conversation of this notebook: {one.name}, {formatting.length(one)}, {age}. "
            f"%{self._magic} {_how_to_load(one.name)} picks it up.{others}"
        )

    def _check_target(self, target: Path, label: str, *, overwrite: bool) -> None:
        """Raise UsageError if a file is the notebook itself, or exists and must not be overwritten."""
        if not target.exists():
            return
        notebook = self._namespace.place().notebook
        if notebook is not None and target.samefile(notebook):
            raise UsageError(f"{label} is this notebook itself, which is not written over. Choose another name.")
        if not overwrite:
            raise UsageError(f"{label} is there already. Choose another name, or replace it with --overwrite.")

    def _own_file(self, session: Session) -> Path:
        if session.path is None:
            why = self._namespace.place().why_not
            raise UsageError(
                f"This session is saved nowhere{why and ': '}{why}. Name the conversation or file to load."
            )
        return path_of(session.path)

    def _saved_file(self, text: str) -> Path:
        """Return the file of a saved conversation, from its name or path. Raises UsageError if the file is missing."""
        place = self._namespace.place()
        named_file, path = place.file(text), path_of(text)
        # `text` is first taken as the name of a conversation, then as a path relative to the working directory.
        for file in (path if named_file is None else path_of(named_file), path):
            if file.is_file():
                return file
        names = [one.name for one in (list_conversations(place.folder) if place.folder is not None else ())]
        raise UsageError(
            f"There is no saved conversation {text!r}, nor a file.{did_you_mean(text, names)} "
            f"Saved: {', '.join(names) or 'none'}."
        )


def _how_to_load(name: str) -> str:
    if name == DEFAULT_SESSION:
        return "load"
    return f"-s {name} load" if can_name_session(name) else f"load {quote_word(name)}"


AGENT_COMMANDS: dict[str, Command] = {
    "status": AgentCommands.status,
    "ask": AgentCommands.ask,
    "history": AgentCommands.history,
    "chat": AgentCommands.chat,
    "tools": AgentCommands.tools,
    "models": AgentCommands.models,
    "permission": AgentCommands.permission,
    "rules": AgentCommands.rules,
    "cost": AgentCommands.cost,
    "stats": AgentCommands.stats,
    "usage": AgentCommands.usage,
    "inspect": AgentCommands.inspect,
    "resume": AgentCommands.resume,
    "fix": AgentCommands.fix,
    "reset": AgentCommands.reset,
    "compact": AgentCommands.compact,
    "undo": AgentCommands.undo,
    "redo": AgentCommands.redo,
    "serve": AgentCommands.serve,
    "sessions": AgentCommands.sessions,
    "load": AgentCommands.load,
    "save": AgentCommands.save,
    "fork": AgentCommands.fork,
    "export": AgentCommands.export,
    "hand-in": AgentCommands.hand_in,
    "cassette": AgentCommands.cassette,
    "record": AgentCommands.record,
    "replay": AgentCommands.replay,
    "live": AgentCommands.live,
    "auto": AgentCommands.auto,
    "debug": AgentCommands.debug,
}

IN_A_CELL: frozenset[Command] = frozenset(
    {AgentCommands.ask, AgentCommands.chat, AgentCommands.fix, AgentCommands.resume, AgentCommands.serve}
)
"""Subcommands that need a running cell: all that use `CellTurns`, and `serve`. They do not work in a panel."""


def agent_magic(name: str = "agent") -> LineMagic:
    """Return the `%agent` magic, under the given name."""
    about = (
        "Show and change sessions. To ask the agent, write %%agent with the prompt below it.\n"
        f"%{name} help CODE tells what the code behind an error means, such as [key-missing]."
    )
    redirect = f" To ask the agent, write %%{name} and the prompt below it."
    return LineMagic(name, about, AGENT_COMMANDS, redirect=redirect, note=formatting.class_bounds)
