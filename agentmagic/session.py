"""A conversation: its history, its connections, its totals."""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from agentmagic import log, settings
from agentmagic.agent import Agent, Output, check_limit
from agentmagic.approval.approvals import Ask
from agentmagic.approval.gate import Approvals, Gate
from agentmagic.approval.policy import policy_of
from agentmagic.context.compaction import Limits, RequestView
from agentmagic.errors import SessionBusy, UsageError
from agentmagic.events import Event, HistoryCut, Notice, RunResult, TurnFinished
from agentmagic.history.history import History, Match, Turn
from agentmagic.history.journal import Journal
from agentmagic.history.repair import repair
from agentmagic.loop.budget import Budget
from agentmagic.loop.connections import Connections
from agentmagic.loop.step import TurnContext
from agentmagic.loop.tool_calls import Emit
from agentmagic.loop.turn import Outcome, run_turn
from agentmagic.messages import Message, Prompt, Role, ToolDef, ToolResult, Usage, as_prompt
from agentmagic.providers.base import Model
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.registry import address_of, default_model, info, missing_model
from agentmagic.run import AbortEvent, Run
from agentmagic.runtime.engine import engine, void
from agentmagic.runtime.listeners import Listeners
from agentmagic.tools.base import Tool, Toolset, call_by_hand
from agentmagic.tools.functions import Functions, function_tool


class Session:
    """One conversation of an agent: its history, its open tool connections, its totals.

    `messages` are an earlier conversation to go on from, of any provider; what is not valid in them is mended.
    With a `path`, every event is saved to that file as it happens; a file that is there already is kept under
    another name (`Session.load` goes on from it). `max_cost` (US dollars) and `max_tokens` are caps on the
    whole session, beside those of its agent on each turn. `in_doubt` names, by server and tool, what was under
    way when an earlier process was killed: a person is asked before it runs again.

    Turns never interleave: a second one while one is running raises SessionBusy. Use it as an async
    context manager, or close it with `close()`; what is left open is closed when the process ends.
    """

    def __init__(
        self,
        agent: Agent | str | Model | None = None,
        *,
        messages: Sequence[Message] = (),
        path: str | Path | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        check_limit("max_cost", max_cost, "US dollars")
        check_limit("max_tokens", max_tokens, "a number of tokens")
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        self.max_cost = max_cost
        self.max_tokens = max_tokens
        self.in_doubt: set[tuple[str, str]] = set()
        self._notices: deque[Notice] = deque()
        if strange := next((message.role for message in messages if message.role not in get_args(Role)), None):
            words = f"The messages hold one of role {strange!r}. Give the instructions as Agent(instructions=...)."
            raise UsageError(words)
        mended, notes = repair(messages)
        self._notices.extend(Notice("warning", words) for words in notes)
        self.history = History.of_messages(mended, journal=self._journal(path))
        self._spent = self.history.usage
        self._view = RequestView()
        self._facts: ModelInfo | None = None
        self._approvals = Approvals(self.in_doubt)
        self._connections = Connections()
        self._connections.servers(self.agent.mcp)
        self._extra: list[Toolset] = []
        self._listed: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        self._listeners = Listeners[Event | HistoryCut]()
        self._starting = threading.RLock()
        engine().at_close(self._connections.aclose)
        weakref.finalize(self, self._connections.close_later).atexit = False

    @classmethod
    def load(cls, path: str | Path, agent: Agent | str | Model | None = None, **options: Any) -> Self:
        """Go on with the conversation saved at `path`, with this agent; takes the options of `Session`.

        Raises JournalError where there is none that can be read.
        """
        session = cls(agent, **options)
        session.restore(path)
        return session

    @property
    def path(self) -> Path | None:
        """The file the conversation is saved to, or None where it is kept in memory only."""
        journal = self.history.journal
        return journal.path if journal is not None else None

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The finished turns, oldest first."""
        return self.history.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history: what every next request begins with, unless it had to be compacted."""
        return self.history.messages

    @property
    def events(self) -> tuple[Event, ...]:
        """The log of every finished turn, without deltas."""
        return self.history.events

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost of every turn of the session, undone ones excepted."""
        return self.history.usage

    @property
    def tools(self) -> tuple[ToolDef, ...]:
        """The tools as the last turn saw them; before the first turn, those that need no server."""
        if self._listed:
            return self._listed
        return tuple(tool.definition for tool in _own_tools(self.agent))

    @property
    def tool_calls(self) -> int:
        """How many tool calls were settled."""
        return self.history.tool_calls

    @property
    def tool_failures(self) -> int:
        """How many tool calls did not succeed."""
        return self.history.tool_failures

    @property
    def running(self) -> Run | None:
        """The turn under way, if there is one."""
        with self._starting:  # one that begins in another thread may be heard before it is known here
            return self._run if self._run is not None and not self._run.done else None

    # -- turns ---------------------------------------------------------------------------------

    def start(  # noqa: PLR0913  (how a turn may differ from the others)
        self,
        prompt: Prompt,
        *,
        abort: AbortEvent | None = None,
        agent: Agent | None = None,
        toolsets: Sequence[Toolset] | None = None,
        output: Output | None = None,
        attended: bool = False,
    ) -> Run:
        """Begin a turn and return at once.

        `abort` ends the run once it is set. `agent` stands in for the session's for this turn, and `toolsets`
        for all of its sources of tools. `output` is the form of the answer, a type or a JSON Schema, and the
        result's `value` then the answer as a value of it. `attended` says that somebody watches the events and
        answers approvals and questions with `run.send`; otherwise a call that needs approval is denied.

        Raises SessionBusy while a turn is running, and UsageError for a prompt or model that cannot be.
        """
        return self._begin(self._prepared(prompt, agent, toolsets, output), abort, attended=attended)

    def ask(self, prompt: Prompt, **options: Any) -> RunResult:
        """Run a turn and wait for its result; for synchronous code, in a cell and in a script.

        Takes the options of `start` and raises what `Run.wait` raises.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            return self.start(prompt, **options).wait()

    def edit(  # noqa: PLR0913  (the options of `start`)
        self,
        turn: int,
        prompt: Prompt | None = None,
        *,
        abort: AbortEvent | None = None,
        agent: Agent | None = None,
        toolsets: Sequence[Toolset] | None = None,
        output: Output | None = None,
        attended: bool = False,
    ) -> Run:
        """Begin a turn again, with another prompt or the same one; it and those after it are forgotten.

        `turn` is an index of `turns`, -1 for the last. Takes the options of `start` and raises what it raises.
        """
        place = range(len(self.turns))[turn] if -len(self.turns) <= turn < len(self.turns) else None
        if place is None:
            message = f"There is no turn {turn}: the session has {len(self.turns)}, which count from 0."
            raise UsageError(message)
        play = self._prepared(prompt or self.turns[place].prompt, agent, toolsets, output, keep=place)
        return self._begin(play, abort, attended=attended)

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Carry out one tool of the session by hand, without a model; nobody is asked, nothing is kept.

        Raises UsageError where there is no such tool, and ServerError where its server is gone.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            calling = call_by_hand(self.toolsets(), name, arguments, self.agent.deps)
            result = engine().submit_from_here(calling)
            engine().wait(result, lambda: void(result.cancel()))
            return result.result()

    def model(self, agent: Agent | None = None) -> Model:
        """Return the model a turn would use: `AGENTMAGIC_MODEL` before the recipe's before the default.

        Raises UnknownModel, MissingExtra, and AuthenticationMissing where nothing is chosen and no key is set.
        """
        chosen = settings.model_override() or (agent or self.agent).model or default_model()
        if chosen is None:
            raise missing_model()
        return self._connections.model(chosen) if isinstance(chosen, str) else chosen

    def listen(self, listener: Callable[[Event | HistoryCut], None]) -> Callable[[], None]:
        """Have a function called with what happens in the session from now on; returns what ends that.

        Events of turns, deltas too, come on the engine's thread; in any thread a `HistoryCut` comes when turns
        were forgotten or a saved conversation was taken up: `events` has become another log by then.
        """
        return self._listeners.add(listener)

    def add_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of a source in every turn from now on; whoever made it closes it."""
        self._extra.append(toolset)

    def toolsets(self, agent: Agent | None = None) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn: the recipe's own, its servers, and those added."""
        agent = agent or self.agent
        own = _own_tools(agent)
        sets: list[Toolset] = []
        if own:
            sets.append(Functions(own))
        sets += [source for source in agent.tools if isinstance(source, Toolset)]
        if (servers := self._connections.servers(agent.mcp)) is not None:
            sets.append(servers)
        return (*sets, *self._extra)

    # -- the history ---------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the conversation; connections, approvals and the recipe stay."""
        self._refuse_while_running()
        self.history.clear()
        self._tell_cut()

    def undo(self) -> Message | None:
        """Forget the last turn and return its prompt, or None where there is none."""
        self._refuse_while_running()
        prompt = self.history.undo()
        self._tell_cut()
        return prompt

    def fork(self, turns: int | None = None) -> "Session":
        """Return a session of its own that begins with the first `turns` turns of this one, by default all.

        It has the same agent and caps, of which those turns have used their part, makes its own connections,
        and is kept in memory only.
        """
        forked = Session(self.agent, max_cost=self.max_cost, max_tokens=self.max_tokens)
        forked.history = self.history.fork(turns)
        forked._spent = forked.history.usage
        forked.in_doubt.update(self.in_doubt)
        forked._extra = list(self._extra)
        return forked

    def chat(self) -> None:
        """Show the chat panel in this cell: the conversation, live, with a box to go on in.

        Called again, it shows the same panel in another place. Where nobody looks (nbconvert, papermill) it leaves
        the conversation so far, in a terminal it says where there are panels. Raises UsageError in a script.
        """
        from agentmagic.jupyter import panel

        panel.show(self)

    def search(self, words: str) -> list[Match]:
        """Return where words occur in prompts, answers, calls and results, whatever their case."""
        return self.history.search(words)

    def take_notices(self) -> tuple[Notice, ...]:
        """Take what is to be told at the start of the next turn, for who tells it before."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def save(self, path: str | Path) -> None:
        """Save the conversation to a new file, and go on saving there if it was kept in memory only.

        Raises UsageError where there is a file already or none can be written.
        """
        self._refuse_while_running()
        place = Path(path)
        if place.exists():
            message = f"{path} is there already, and was left as it is. Name another file."
            raise UsageError(message)
        self.history.save(Journal(place, tell=self._tell), self.in_doubt)

    def restore(self, path: str | Path | None = None) -> None:
        """Take up the conversation saved at `path`, by default the session's own, and go on saving there.

        Raises JournalError where there is none that can be read, and UsageError where a conversation that is
        nowhere saved would be lost.
        """
        self._refuse_while_running()
        place = self.path if path is None else Path(path)
        if place is None:
            message = "This session is saved nowhere. Name the file to take up."
            raise UsageError(message)
        if self.turns and not self.history.is_saved:
            message = (
                "This session has a conversation that is saved nowhere, and would be lost. Save it with save(FILE) "
                "(%agent save FILE), or clear it with clear() (%agent reset)."
            )
            raise UsageError(message)
        self.history.close()
        journal = Journal(place, tell=self._tell)
        saved = journal.resume()
        self.history = History.of(saved.turns, journal)
        self._approvals = Approvals(self.in_doubt)  # what was approved was approved in another conversation
        self.in_doubt.update(saved.in_doubt)
        self._spent = saved.spent
        for problem in saved.problems:
            self._tell(problem)
        self._tell_cut()

    # -- on the engine -------------------------------------------------------------------------

    def _prepared(
        self,
        prompt: Prompt,
        agent: Agent | None,
        toolsets: Sequence[Toolset] | None,
        output: Output | None,
        keep: int | None = None,
    ) -> "partial[Any]":
        """Check what a turn is to be made of, before anything is begun or forgotten."""
        recipe = agent or self.agent
        if output is not None:
            recipe = replace(recipe, output=output)
        sources = self.toolsets(recipe) if toolsets is None else tuple(toolsets)
        model = self.model(recipe)
        facts = self._facts = _same(info(model.name, address_of(model)), self._facts)
        overrides = settings.overrides(model.name)
        settings.learn_secrets()
        return partial(self._play, recipe, model, facts, sources, overrides, as_prompt(prompt), keep)

    def _begin(self, play: "partial[Any]", abort: AbortEvent | None, *, attended: bool) -> Run:
        with self._starting:
            self._refuse_while_running()
            self._run = Run(play, attended=attended, abort=abort)
            return self._run

    def _refuse_while_running(self) -> None:
        if self.running:
            message = "A turn is running. Wait for it, or cancel it, and try again."
            raise SessionBusy(message)

    async def _play(  # noqa: PLR0913  (what a turn needs)
        self,
        agent: Agent,
        model: Model,
        facts: ModelInfo,
        toolsets: tuple[Toolset, ...],
        overrides: Sequence[str],
        prompt: Message,
        keep: int | None,
        emit: Emit,
        ask: Ask,
    ) -> Outcome:
        """Run a turn and take it into the history; on the engine."""
        if keep is not None:
            self.history.cut(keep)
            self._tell_cut()
        self._notices.extend(Notice("info", words) for words in overrides)
        setup = TurnContext(
            agent,
            model,
            toolsets,
            self.messages,
            prompt,
            Gate(policy_of(agent.permission), self._approvals),
            Limits(facts.window, agent.compact_at, agent.max_result),
            self._view,
            self.history.compacted,
            facts.accepts,
            facts.priced,
            (
                Budget("turn", agent.max_cost, agent.max_tokens),
                Budget("session", self.max_cost, self.max_tokens, self._spent),
            ),
            self._notices,
            self.history.call_ids,
        )

        def heard(event: Event) -> None:
            self.history.record(event)  # on disk before anybody acts on it
            log.event(event)
            emit(event)
            self._listeners.tell(event)

        outcome = await run_turn(setup, emit=heard, ask=ask)
        self.history.add((*outcome.result.events, TurnFinished(outcome.result)), outcome.result.history_delta)
        self._spent += outcome.result.usage
        self._listed = outcome.tools or self._listed
        return outcome

    def _tell_cut(self) -> None:
        self._listeners.tell(HistoryCut(len(self.turns)))

    def _journal(self, path: str | Path | None) -> Journal | None:
        return None if path is None else Journal(Path(path), tell=self._tell)

    @property
    def _tell(self) -> Callable[[str], None]:
        """Have something said in the turn under way, or at the start of the next; holds no reference to the session."""
        notices = self._notices
        return lambda words: notices.append(Notice("warning", words))

    async def aclose(self) -> None:
        """Cancel what runs and close the session's models and servers, from any event loop; safe to call twice."""
        if (run := self.running) is not None:
            run.cancel()
            await asyncio.shield(asyncio.wrap_future(run.settled))
        await asyncio.wrap_future(engine().submit(self._connections.aclose()))
        self.history.close()

    def close(self) -> None:
        """Close the session from synchronous code."""
        engine().call(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        model = self.agent.model if isinstance(self.agent.model, str) else getattr(self.agent.model, "name", "default")
        state = ", running" if self.running else ""
        turns = f"{len(self.turns)} turn{'' if len(self.turns) == 1 else 's'}"
        return f"<Session {model or 'default model'}: {turns}, {len(self.messages)} messages{state}>"


def _own_tools(agent: Agent) -> list[Tool]:
    """Return the tools that a recipe holds itself, functions and `Tool`s, in its order."""
    single = [source for source in agent.tools if not isinstance(source, Toolset)]
    return [source if isinstance(source, Tool) else function_tool(source) for source in single]


def _same(new: ModelInfo, known: ModelInfo | None) -> ModelInfo:
    """Return what was known already where nothing has changed: the view is made anew for another object."""
    return known if known is not None and known == new else new
