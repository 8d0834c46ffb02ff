"""A conversation: its history, its connections, its totals."""

import asyncio
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import Parameter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, get_args
from uuid import uuid4

from agentmagic.agent import Agent, Connections, Output, check_limit
from agentmagic.approval.approvals import Approvals
from agentmagic.context.request_view import RequestView
from agentmagic.errors import SessionBusy, UsageError
from agentmagic.events import Event, HistoryCut, Notice, RunResult
from agentmagic.history.history import History, Match, Turn
from agentmagic.history.journal import Journal
from agentmagic.history.repair import repair
from agentmagic.loop.step import Budget, TurnContext
from agentmagic.loop.tool_calls import call_by_hand
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.messages import Message, Prompt, Role, ToolCall, ToolDef, ToolResult, Usage, as_prompt
from agentmagic.plan import Judging, PlanOptions, open_plan
from agentmagic.providers.base import Model, ModelSettings
from agentmagic.providers.registry import address_of, info
from agentmagic.run import AbortEvent, Run
from agentmagic.runtime.engine import Listeners, engine, void
from agentmagic.settings import learn_secrets, overrides
from agentmagic.text import clip
from agentmagic.tools.base import Toolset, list_sources

if TYPE_CHECKING:
    from agentmagic.providers.catalog import ModelInfo


class TurnOptions(TypedDict, total=False):
    """How one turn may differ from the session's other turns.

    `abort` ends the run when it is set. `agent` replaces the session's agent, and `toolsets` all of its sources of
    tools. `settings` are added to the agent's. `output` is the form of the answer, a type or a JSON Schema; the
    result's `value` is then the answer as a value of it. `attended` says that the caller watches the events and
    answers approvals and questions with `run.send`; otherwise a call that needs approval is denied.

    With `plan` the model routes the request, plans its tasks, and repairs them; `judge` says which results it judges
    ("all", "odd" ones, or "off"), and `confirm` shows the plan before it runs. `resume` goes on with the plan that the
    last turn left open, `drop` gives it up. With a plan, a timeout of 120 s, the usual one, is that of each task.
    """

    abort: AbortEvent | None
    agent: Agent | None
    toolsets: Sequence[Toolset] | None
    output: Output | None
    settings: ModelSettings | None
    attended: bool
    plan: bool
    judge: Judging
    confirm: bool
    resume: bool
    drop: bool


class Session:
    """One conversation of an agent: its history, its open connections, its totals.

    `messages` are an earlier conversation to go on from, of any provider; invalid ones are repaired. With a `path`,
    every event is saved to that file as it happens; if the file exists, it is kept under another name
    (`Session.load` goes on from it). `max_cost` (US dollars) and `max_tokens` are caps on the whole session, beside
    those of its agent on each turn. `in_doubt` names, by server and tool, the tools that were running when an
    earlier process was killed: the user is asked before such a tool runs again.

    Turns never interleave: starting one while another is running raises SessionBusy. Use the session as an async
    context manager, or call `close()`. A session that is left open is closed when the process ends.
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
        self.history = History.of_messages(mended, journal=None if path is None else self._journal(path))
        self._spent = self.history.usage  # also of turns that are undone later: caps count what was paid
        self._view = RequestView()
        self._facts: ModelInfo | None = None
        self._approvals = Approvals(self.in_doubt)
        self._connections = Connections()
        self._extra: list[Toolset] = []
        self._listed: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        self._listeners = Listeners[Event | HistoryCut]()
        self._starting = threading.RLock()
        self._changing = False
        engine().at_close(self._connections.aclose)
        weakref.finalize(self, self._connections.close_later).atexit = False

    @classmethod
    def load(cls, path: str | Path, agent: Agent | str | Model | None = None, **options: Any) -> Self:
        """Go on with the conversation saved at `path`, with this agent; takes the options of `Session`.

        Raises JournalError if there is no file that can be read.
        """
        session = cls(agent, **options)
        session.restore(path)
        return session

    @property
    def path(self) -> Path | None:
        """The file the conversation is saved to, or None if it is kept in memory only."""
        journal = self.history.journal
        return journal.path if journal is not None else None

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The finished turns, oldest first."""
        return self.history.turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole history, which the next request begins with, unless it had to be compacted."""
        return self.history.messages

    @property
    def events(self) -> tuple[Event, ...]:
        """The log of every finished turn, without deltas."""
        return self.history.events

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost of every turn of the session, without undone ones."""
        return self.history.usage

    @property
    def tools(self) -> tuple[ToolDef, ...]:
        """The tools as the last turn or `connect` saw them; before, those that need no server."""
        return self._listed or tuple(tool.definition for tool in self.agent.own_tools())

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
        """The running turn, or None."""
        with self._starting:  # another thread may hear a new turn's first event before `_run` is set
            return self._run if self._run is not None and not self._run.done else None

    # -- turns ---------------------------------------------------------------------------------

    def start(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> Run:
        """Begin a turn and return its run at once; `TurnOptions` has the options.

        Raises SessionBusy while a turn is running, and UsageError for an invalid prompt or model.
        """
        return self._start(prompt, None, options)

    def ask(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> RunResult:
        """Run a turn and wait for its result; for synchronous code, in a cell and in a script.

        Takes the options of `start` and raises what `Run.wait` raises.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            return self._start(prompt, None, options).wait()

    def edit(self, turn: int, prompt: Prompt | None = None, **options: Unpack[TurnOptions]) -> Run:
        """Begin a turn again, with another prompt or the same one; that turn and later ones are forgotten.

        `turn` is an index of `turns`, -1 for the last. Takes the options of `start` and raises what it raises.
        """
        if not -len(self.turns) <= turn < len(self.turns):
            message = f"There is no turn {turn}: the session has {len(self.turns)}, which count from 0."
            raise UsageError(message)
        place = turn % len(self.turns)
        return self._start(prompt or self.turns[place].prompt, place, options)

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Carry out one tool of the session, without a model and without a turn; nothing is kept.

        A policy and `AGENTMAGIC_PERMISSION` hold as for every call, and its line is in the audit. A call that would
        be asked about runs: the user has written it. A denied one has a result that says why.

        Raises UsageError if there is no such tool, and ServerError if its server is gone.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            call = ToolCall(f"call_{uuid4().hex}", name, arguments)
            calling = call_by_hand(call, self.toolsets(), self.agent, self._approvals)
            result = engine().submit_from_here(self._connections.with_loop(calling))
            engine().wait(result, lambda: void(result.cancel()))
            return result.result()

    async def aconnect(self) -> tuple[ToolDef, ...]:
        """Connect the servers and return the tools that the next turn would have, from any event loop.

        A server that cannot be reached leaves a notice.
        """
        listing = engine().submit(list_sources(self.toolsets()))
        tools, problems = await asyncio.wrap_future(listing)
        self._notices.extend(Notice("warning", problem) for problem in problems)
        self._listed = tuple(tool.definition for tool in tools.values())
        return self._listed

    def connect(self) -> tuple[ToolDef, ...]:
        """Connect the servers from synchronous code, and return the tools that the next turn would have."""
        return engine().call(self.aconnect())

    def model(self, agent: Agent | None = None) -> Model:
        """Return the model a turn would use: `AGENTMAGIC_MODEL` before the recipe's before the default.

        Raises UnknownModel, MissingExtra, and AuthenticationMissing if none is chosen and no key is set.
        """
        return self._connections.model(agent or self.agent)

    def listen(self, listener: Callable[[Event | HistoryCut], None]) -> Callable[[], None]:
        """Call a function with what happens in the session from now on. Returns a function that ends that.

        Events of turns, with deltas, come on the engine's thread. A `HistoryCut` comes on any thread, after turns
        were forgotten or a saved conversation was loaded: `events` is then another log.
        """
        return self._listeners.add(listener)

    def add_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of a source in every later turn. The caller closes the source."""
        self._extra.append(toolset)

    def toolsets(self, agent: Agent | None = None) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn: the recipe's, its servers, and added ones.

        Raises ConfigError for a file of servers that cannot be read.
        """
        return (*self._connections.toolsets(agent or self.agent), *self._extra)

    # -- the history ---------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the conversation, until `undo` brings it back; connections, approvals and the recipe stay."""
        with self._between_turns():
            self.history.clear()
        self._tell_cut()

    def undo(self) -> Message | None:
        """Forget the last turn and return its prompt; without turns, bring back the cleared ones and return None."""
        with self._between_turns():
            prompt = self.history.undo()
        self._tell_cut()
        return prompt

    def fork(self, turns: int | None = None) -> "Session":
        """Return a new session that begins with the first `turns` turns of this one, by default all.

        It has the same agent and caps, which those turns count towards. It makes its own connections, and is kept
        in memory only.
        """
        forked = Session(self.agent, max_cost=self.max_cost, max_tokens=self.max_tokens)
        forked.history = self.history.fork(turns)
        forked._spent = forked.history.usage
        forked.in_doubt.update(self.in_doubt)
        forked._extra = list(self._extra)
        return forked

    def __deepcopy__(self, _memo: object) -> "Session":
        return self.fork()  # connections and locks cannot be copied

    __copy__ = fork

    def chat(self) -> None:
        """Show the chat panel in this cell: the conversation, live, with a box for the next prompt.

        A second call moves the same panel. In nbconvert and papermill it leaves the conversation so far, in a
        terminal it says where panels work. Raises UsageError in a script.
        """
        from agentmagic.jupyter import panel

        panel.show(self)

    def search(self, words: str) -> list[Match]:
        """Return where words occur in prompts, answers, calls and results, ignoring case."""
        return self.history.search(words)

    def take_notices(self) -> tuple[Notice, ...]:
        """Remove and return the notices that the next turn would begin with, for a caller that shows them earlier."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def save(self, path: str | Path) -> None:
        """Save the conversation to a new file, and go on saving there if it was kept in memory only.

        Raises UsageError if the file exists or cannot be written.
        """
        if Path(path).exists():
            message = f"{path} is there already, and was left as it is. Name another file."
            raise UsageError(message)
        with self._between_turns():
            self.history.save(self._journal(path), self.in_doubt)

    def restore(self, path: str | Path | None = None) -> None:
        """Take up the conversation saved at `path`, by default the session's own, and go on saving there.

        Raises JournalError if there is no file that can be read, and UsageError if an unsaved conversation would be
        lost.
        """
        place = self.path if path is None else Path(path)
        if place is None:
            message = "This session is saved nowhere. Name the file to take up."
            raise UsageError(message)
        with self._between_turns():
            self._restore(place)
        self._tell_cut()

    def _restore(self, path: Path) -> None:
        if self.turns and not self.history.is_saved:
            message = (
                "This session has a conversation that is saved nowhere, and would be lost. Save it with save(FILE) "
                "(%agent save FILE), or clear it with clear() (%agent reset)."
            )
            raise UsageError(message)
        self.history.close()
        journal = self._journal(path)
        saved = journal.resume()
        self.history = History.of(saved.turns, journal)
        self._approvals = Approvals(self.in_doubt)  # earlier approvals belong to the other conversation
        self.in_doubt.update(saved.in_doubt)
        self._spent = saved.spent
        self._notices.extend(Notice("warning", problem) for problem in saved.problems)

    # -- on the engine -------------------------------------------------------------------------

    def _start(self, prompt: Prompt, keep: int | None, options: TurnOptions) -> Run:
        """Begin a turn after the first `keep` turns, or after all. Nothing is changed if the options are invalid."""
        if unknown := options.keys() - _DEFAULTS.keys():
            message = f"A turn has no option {min(unknown)!r}. Its options: {', '.join(_DEFAULTS)}."
            raise TypeError(message)
        recipe, toolsets = self._recipe(options), options.get("toolsets")
        sources = self.toolsets(recipe) if toolsets is None else tuple(toolsets)
        model = self.model(recipe)
        facts = info(model.name, address_of(model))
        if (known := self._facts) is not None and known == facts:
            facts = known  # the view is made anew for another object, an equal one too
        message = as_prompt(prompt)
        learn_secrets()
        with self._starting:
            self._refuse_while_busy()
            plan = self._plan(options, keep)
            self._facts = facts
            self._notices.extend(Notice("info", words) for words in overrides(model.name))
            self._notices.extend(Notice("info", words) for words in self._connections.notes(recipe, model))
            budgets = (
                Budget("turn", recipe.max_cost, recipe.max_tokens),
                Budget("session", self.max_cost, self.max_tokens, self._spent),
            )
            turn = TurnContext(
                recipe,
                model,
                sources,
                message,
                history=self.history,
                approvals=self._approvals,
                facts=facts,
                view=self._view,
                budgets=budgets,
                notices=self._notices,
                plan=plan,
            )
            attended, abort = options.get("attended", False), options.get("abort")
            self._run = Run(partial(self._play, turn, keep), self._listeners, attended=attended, abort=abort)
            return self._run

    def _recipe(self, options: TurnOptions) -> Agent:
        """Return the agent of a turn."""
        recipe = options.get("agent") or self.agent
        if (output := options.get("output")) is not None:
            recipe = replace(recipe, output=output)
        if (settings := options.get("settings")) is not None:
            recipe = replace(recipe, settings=recipe.settings | settings)
        return recipe

    def _plan(self, options: TurnOptions, keep: int | None) -> PlanOptions | None:
        """Return how a turn is planned, or None. Raises UsageError if it resumes a plan and there is none."""
        new, resume = options.get("plan", False), options.get("resume", False)
        left = None if options.get("drop") else open_plan([turn.events for turn in self.turns[:keep]])
        if resume and left is None:
            message = "The last turn left no plan that could be resumed."
            raise UsageError(message)
        if left is not None and not resume and not options.get("attended"):
            raise UsageError(left.in_the_way)
        plan = PlanOptions(options.get("judge", "odd"), options.get("confirm", False), left, resume, new)
        return plan if new or left is not None else None

    async def _play(self, turn: TurnContext, keep: int | None, channel: Channel) -> Outcome:
        """Run a turn and add it to the history."""
        if keep is not None:
            self.history.cut(keep)
            self._tell_cut()
        outcome = await self._connections.with_loop(run_turn(turn, channel))
        self.history.add(channel.events, outcome.result.history_delta)
        self._spent += outcome.result.usage
        self._listed = outcome.tools or self._listed
        return outcome

    @contextmanager
    def _between_turns(self) -> Generator[None]:
        """Let no turn begin while the history is changed or read, possibly for seconds. Raises SessionBusy."""
        with self._starting:
            self._refuse_while_busy()
            self._changing = True
        try:
            yield
        finally:
            self._changing = False

    def _refuse_while_busy(self) -> None:
        if self.running or self._changing:
            what = "The history is being changed" if self._changing else "A turn is running"
            message = f"{what}. Wait for it, or cancel it, and try again."
            raise SessionBusy(message)

    def _tell_cut(self) -> None:
        self._listeners.tell(HistoryCut(len(self.turns)))

    def _journal(self, path: str | Path) -> Journal:
        notices = self._notices  # not the session itself, which the journal would keep alive
        return Journal(Path(path), tell=lambda words: notices.append(Notice("warning", words)))

    async def aclose(self) -> None:
        """Cancel the running turn and close models and servers, from any event loop; safe to call twice."""
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
        return f"<Session {clip(str(model or 'default model'), 100)}: {turns}, {len(self.messages)} messages{state}>"


_DEFAULTS: TurnOptions = {
    "abort": None,
    "agent": None,
    "toolsets": None,
    "output": None,
    "settings": None,
    "attended": False,
    "plan": False,
    "judge": "odd",
    "confirm": False,
    "resume": False,
    "drop": False,
}


def _spell_out_options() -> None:
    """Give the methods that take TurnOptions a signature with each option, for help and completion in a notebook."""
    hints = TurnOptions.__annotations__
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in _DEFAULTS.items()
    ]
    for method in (Session.start, Session.ask, Session.edit):
        signature = inspect.signature(method)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        method.__signature__ = signature.replace(parameters=[*own, *options])  # pyright: ignore[reportFunctionMemberAccess]


_spell_out_options()
