"""A conversation: its history, its connections, its totals."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast
from uuid import uuid4

from agentmagic.agent import MAX_RESULT, Agent, Connections, check_limit
from agentmagic.approval.approvals import Approvals
from agentmagic.bill import Account, ledger
from agentmagic.classroom import PLAYED, class_settings
from agentmagic.context.request_view import RequestView, tokens_of_message
from agentmagic.context.rules import Project, project_here
from agentmagic.context.skills import with_skills
from agentmagic.errors import ReplayMismatch, SessionBusy, UsageError
from agentmagic.events import (
    CellProposed,
    Compacted,
    Event,
    HistoryCut,
    MapProgress,
    Notice,
    PromptValue,
    ProposalFate,
    ProposalSettled,
    RunResult,
    StepFinished,
    TurnStarted,
)
from agentmagic.export.document import to_markdown
from agentmagic.history.history import History, Match, Turn
from agentmagic.history.journal import Journal
from agentmagic.history.repair import repair
from agentmagic.host import MapView, installed
from agentmagic.log import logger
from agentmagic.loop.agent_calls import AgentPath, inner_toolsets
from agentmagic.loop.budgets import Budget, BudgetExhausted, period_budgets
from agentmagic.loop.step import Preview, TurnContext, compact, preview
from agentmagic.loop.tool_calls import call_by_hand
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.loop.turn_options import PlayTurn, TurnDriver, TurnOptions, TurnSettings, spelled_out
from agentmagic.mapping.options import MapOptions, MapSettings
from agentmagic.mapping.outcomes import MapResult
from agentmagic.mapping.prompts import RowPrompts
from agentmagic.mapping.rows import ROW, Rows, rows_of
from agentmagic.mapping.run import MapRun
from agentmagic.mapping.work import MapWork
from agentmagic.messages import (
    LONGEST_PROMPT,
    Message,
    Prompt,
    ToolCall,
    ToolDef,
    ToolKey,
    ToolResult,
    Usage,
    as_prompt,
    user,
)
from agentmagic.plan import Checklist, open_plan
from agentmagic.prompt.attachments import Attacher
from agentmagic.providers.base import KINDS, Model, is_played
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.outside import is_outside, shown_name
from agentmagic.providers.registry import address_of, info
from agentmagic.providers.traffic import Traffic
from agentmagic.replay.deck import Deck
from agentmagic.replay.map_tape import MapTape
from agentmagic.run import Run
from agentmagic.runtime.engine import Listeners, caller, engine, void
from agentmagic.serve.serving import ServedSession, Serving
from agentmagic.settings import Replay, learn_secrets, model_override, overrides, schema_only
from agentmagic.text import clip, counted
from agentmagic.tools.base import Toolset, list_sources, not_told
from agentmagic.tools.notebook.cells import LOOKS
from agentmagic.tools.notebook.proposals import looked_up, open_proposals, told
from agentmagic.tools.output_cache import READER
from agentmagic.undo.stack import Undone, put_back
from agentmagic.undo.watcher import Watcher
from agentmagic.values.describe import CHARACTERS

if TYPE_CHECKING:
    from agentmagic.acp.turn import OutsideTurn


COMPACT = "(compact)"
"""Stands for the prompt of the turn that a compaction between two turns is made for; no model is sent it."""
UNATTENDED = "Step mode needs a person who goes on, and no one is there: the turn runs without a pause."
CLIENT_FACTS = ModelInfo("", None, KINDS, priced=True)
"""What is known of a client: it takes all, and costs nothing. One value: for another one, a view is made anew."""


class Session:
    """One conversation of an agent: its history, its open connections, its totals.

    `messages` are an earlier conversation to go on from, of any provider; invalid ones are repaired. With a `path`,
    every event is saved to that file as it happens; if the file exists, it is kept under another name
    (`Session.load` goes on from it). `max_cost` (US dollars) and `max_tokens` are caps on the whole session, beside
    those of its agent on each turn. `in_doubt` names, by server and tool, the tools that were running when an
    earlier process was killed: the user is asked before such a tool runs again. `undone` says what the last undo or
    redo came to. `traffic` has what the models of the last turns were sent, for the inspector. `cassette` is the file
    of a recording, and `replay` says how it is used: "record", "replay", "auto", "replay-model", "replay-tools", or
    "live", which does not use it. `name` is what traces and the bill call the session; a notebook gives it that of its
    variable. A `timed` replay takes as long as the recording did. `namespace` has the variables
    that the tools of the session change: in a notebook its own, in a script those of `__main__`, if it is left out.
    `name` is the notebook's variable that holds the session, "" in a script.

    Turns never interleave: starting one while another is running raises SessionBusy. Use the session as an async
    context manager, or call `close()`. A session that is left open is closed when the process ends.
    """

    def __init__(  # noqa: PLR0913  (what a session is made of)
        self,
        agent: Agent | str | Model | None = None,
        *,
        messages: Sequence[Message] = (),
        path: str | Path | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        cassette: str | Path | None = None,
        replay: Replay | None = None,
        timed: bool = False,
        namespace: MutableMapping[str, Any] | None = None,
    ) -> None:
        check_limit("max_cost", max_cost, "US dollars")
        check_limit("max_tokens", max_tokens, "a number of tokens")
        class_settings()  # read now: a file that is wrong is reported where the session is made
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        self.max_cost = max_cost
        self.max_tokens = max_tokens
        self.name = ""
        self.in_doubt: set[ToolKey] = set()
        self.deck = Deck(cassette, replay, timed=timed)
        self.undone: Undone | None = None
        self._conversation = uuid4().hex
        self._notices: deque[Notice] = deque()
        self._noted: set[str] = set()
        self._unreachable: set[str] = set()
        journal = None if path is None else self._journal(path)
        self.history = History.of_messages(self._repaired(messages), journal=journal)
        self._spent = self.history.usage  # also of turns that are undone later: caps count what was paid
        self._view = RequestView()
        self.traffic = Traffic()
        self._facts: ModelInfo | None = None
        self._approvals = Approvals(self.in_doubt)
        self._client_approvals: dict[str, Approvals] = {}
        self._agent_approvals: dict[AgentPath, Approvals] = {}
        self._connections = Connections()
        self._watcher = Watcher(namespace)
        self._extra: list[Toolset] = []
        self._listed: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        self._map: MapRun | None = None
        self._serving: Serving | None = None
        self._strayed: Turn | None = None
        """The turn that a replay broke off before its answer; the next turn takes its place."""
        self._dropped: Turn | None = None
        """The turn that left a plan which the user gave up."""
        self._listeners = Listeners[Event | HistoryCut]()
        self._map_listeners = Listeners[MapProgress]()
        self._starting = threading.RLock()
        self._changing = False
        self._connections.close_after(self)

    def _repaired(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a history that every provider accepts, and queue a warning for each repair."""
        mended, notes = repair(messages)
        self._warn(notes)
        return mended

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
    def last(self) -> RunResult | None:
        """The result of the last turn, or None without one; the calls of clients are not counted."""
        return next((turn.result for turn in reversed(self.turns) if not _is_served(turn)), None)

    @property
    def answer(self) -> str:
        """The text of the last answer, "" without one."""
        return self.last.final_text if self.last else ""

    @property
    def value(self) -> Any:
        """The value of the last answer, if its turn was asked for one, else None."""
        return self.last.value if self.last else None

    @property
    def agent(self) -> Agent:
        """The recipe; another one can be assigned, for the turns that begin from then on."""
        return self._agent

    @agent.setter
    def agent(self, agent: Agent) -> None:
        if not isinstance(cast("object", agent), Agent):
            raise UsageError(f"agent is {agent!r:.80}. Assign an Agent: session.agent = Agent(...).")
        self._agent = agent

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history that the next request begins with, unless it has to be compacted.

        The prompt of a turn that ended without any answer is left out; `turns` has it.
        """
        return self.history.sent

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
        own = (*self.agent.own_tools(), *self.agent.agent_tools)
        return self._listed or tuple(tool.definition for tool in own)

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

    @property
    def running_map(self) -> MapRun | None:
        """The map that runs, or None; of several the last."""
        return None if self._map is None or self._map.done else self._map

    # -- proposed cells ------------------------------------------------------------------------

    @property
    def proposals(self) -> tuple[CellProposed, ...]:
        """The proposed cells that the user has neither kept nor discarded, oldest first."""
        running = self.running
        return open_proposals((*self.history.proposals, *(running.events if running else ())))

    def settle(self, proposal: str, fate: ProposalFate, source: str = "", *, ran: bool = False) -> bool:
        """Note what became of a proposed cell, by its id; the model is told when the next turn begins. Thread-safe.

        `source` is the text of a cell that was changed. Returns False if there is no such open proposal.
        """
        with self._starting:
            is_open = any(one.id == proposal for one in self.proposals)
            if is_open:
                self._settle(ProposalSettled(proposal, fate, source, ran))
            return is_open

    def _settle(self, settled: ProposalSettled) -> None:
        """Add what the user decided to the running turn, or else to the last one."""
        with self._starting:
            run, loop = self.running, engine().loop
            if run is not None:
                loop.call_soon_threadsafe(self._settle_in, run, settled)
                return
            self.history.record(settled)
            self.history.amend(settled)
        loop.call_soon_threadsafe(self._listeners.tell, settled)

    def _settle_in(self, run: Run, settled: ProposalSettled) -> None:
        if run.over:  # its log has its end, and the history takes the turn in next
            run.settled.add_done_callback(lambda _: self._settle(settled))
            return
        self.history.record(settled)
        run.add(settled)

    def _told(self, prompt: Message, keep: int | None) -> Message:
        """Return a prompt that also tells the model what became of proposed cells since the last sent turn began."""
        if keep is None:
            for settled in looked_up(self.proposals):
                self._settle(settled)
        turns = self.turns[:keep]
        sent = next((place for place in reversed(range(len(turns))) if not turns[place].unsent), 0)
        # All events are read only if there is something to tell: a turn must not take longer the more came before it.
        since = [event for turn in turns[sent:] for event in turn.events]
        return told(prompt, (event for turn in turns for event in turn.events), since)

    # -- turns ---------------------------------------------------------------------------------

    @spelled_out(TurnOptions, TurnSettings)
    def start(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> Run:
        """Begin a turn and return its run at once; `TurnOptions` has the options.

        Raises SessionBusy while a turn is running, and UsageError for an invalid prompt or model.
        """
        return self.begin(prompt, TurnSettings.of(options))

    @spelled_out(TurnOptions, TurnSettings)
    def ask(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> RunResult:
        """Run a turn and wait for its result; for synchronous code, in a cell and in a script.

        Takes the options of `start` and raises what `Run.wait` raises.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            return self.begin(prompt, TurnSettings.of(options)).wait()

    @spelled_out(TurnOptions, TurnSettings)
    def preview(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> Preview:
        """Return what a turn would send first, with estimated tokens by part; nothing is called, and nothing is kept.

        No server is connected for it. Takes the options of `start`, and raises UsageError for an invalid prompt.
        """
        return self.preview_of(prompt, TurnSettings.of(options))

    @spelled_out(TurnOptions, TurnSettings)
    def edit(self, turn: int, prompt: Prompt | None = None, **options: Unpack[TurnOptions]) -> Run:
        """Begin a turn again, with another prompt or the same one; that turn and later ones are forgotten.

        `turn` is an index of `turns`, -1 for the last. Takes the options of `start` and raises what it raises.
        """
        return self.begin(prompt, TurnSettings.of(options), turn)

    # -- maps ----------------------------------------------------------------------------------

    @spelled_out(MapOptions, MapSettings)
    def map(self, rows: object, prompt: Prompt, **options: Unpack[MapOptions]) -> MapResult:
        """Ask each of many rows the same, and wait for the result; for synchronous code, in a cell and in a script.

        Takes the options of `start_map` and raises what `MapRun.wait` raises. After an interrupt, `last_map` has the
        rows until there.
        """
        engine().refuse_own_thread()
        with engine().main.held():
            return self.begin_map(rows, prompt, MapSettings.of(options)).wait()

    @spelled_out(MapOptions, MapSettings)
    def start_map(self, rows: object, prompt: Prompt, **options: Unpack[MapOptions]) -> MapRun:
        """Begin to ask each of many rows the same, and return the run at once; `MapOptions` has the options.

        `rows` are a frame of pandas or polars, a list of dicts or of values, or an iterable of them. `{column}` in the
        prompt is the row's value, `{row}` the whole row; other names in braces are the notebook's, evaluated once. Each
        row is a turn that begins from the session as it is now, and leaves it alone. No one is asked in a row: calls
        that would be asked about are denied.

        Raises UsageError for rows, a prompt or options that cannot be used, and SessionBusy while a turn is running.
        """
        return self.begin_map(rows, prompt, MapSettings.of(options))

    @property
    def last_map(self) -> MapResult | None:
        """What the last map has come to, also if it was interrupted or runs on; None without one."""
        return None if self._map is None else self._map.so_far()

    def begin_map(
        self,
        rows: object,
        prompt: Prompt,
        chosen: MapSettings,
        *,
        toolsets: Sequence[Toolset] | None = None,
        view: MapView | None = None,
    ) -> MapRun:
        """Begin a map as `start_map` does, for a front end.

        `toolsets` are the sources of tools in place of the recipe's. `view` shows the map; without one, that of the
        host does.
        """
        given = rows_of(rows)
        self._play_served()
        with self._starting:
            self._refuse_while_busy()
            installed().join(self)
            learn_secrets()
            recipe = chosen.recipe(self.agent)
            if is_outside(asked := model_override() or recipe.model):
                name = shown_name(str(asked))
                raise UsageError(f"{name} is an agent with a loop of its own, which runs no map. Choose a model: -m.")
            tape = self.deck.map(
                as_prompt(prompt),
                recipe,
                partial(self.model, recipe),
                turns=len(self.turns),
                cleared=self.cleared > 0,
                mode=chosen.replay,
            )
            turn, prompts = self._draft_of_map(given, prompt, recipe, toolsets, tape)
            turn = replace(
                turn,
                history=self.history.fork(),
                approvals=self._approvals,
                noted=self._noted,
                unreachable=self._unreachable,
                budgets=(_budget("turn", recipe.max_cost, recipe.max_tokens),),
                watcher=Watcher({}),
                account=self._account(),
            )
            notices = tuple(overrides(turn.model.name))
            within = self._connections.with_loop
            caps = self._caps(turn.model.name, paid=tape is None or tape.mode not in PLAYED)
            notices += tuple(filter(None, (cap.warning() for cap in caps)))
            work = MapWork(turn, given, prompts, chosen, caps, within, self._count, notices, tape, self._count)
            view = view or installed().map_view(self)
            run = self._map = MapRun(work)
        run.listen(lambda progress: void(self._map_listeners.tell(progress)))
        if view is not None:
            run.view = view
            view.begin(run)
        return run

    def _draft_of_map(
        self,
        rows: Rows,
        prompt: Prompt,
        recipe: Agent,
        toolsets: Sequence[Toolset] | None,
        tape: MapTape | None = None,
    ) -> tuple[TurnContext, RowPrompts]:
        """Return what each row's turn is made of, and the prompts of the rows."""
        sources = self.toolsets(recipe) if toolsets is None else toolsets
        if tape is not None:
            sources = tape.toolsets(sources)
        turn = self._draft(recipe, sources, ROW, None if tape is None else tape.model)
        # A row may be a long document: its values are sent whole, as far as the model's window goes.
        room = min(turn.facts.window or LONGEST_PROMPT, LONGEST_PROMPT // CHARACTERS)
        attacher = Attacher(lambda: turn.facts, schema_only(), room)
        return turn, RowPrompts(prompt, rows, self._watcher.namespace, attacher)

    def preview_of_map(
        self, rows: object, prompt: Prompt, chosen: MapSettings, toolsets: Sequence[Toolset] | None = None
    ) -> tuple[Preview, Sequence[PromptValue]]:
        """Return what the first row would send first, and what its values became, for a front end.

        Raises UsageError if there is no row, or if the first one cannot be asked.
        """
        turn, prompts = self._draft_of_map(rows_of(rows), prompt, chosen.recipe(self.agent), toolsets)
        first = next(prompts.read(), None)
        if first is None or first.prompt is None:
            raise UsageError(first.problem if first is not None else "There are no rows, so nothing would be sent.")
        return engine().call(preview(replace(turn, prompt=first.prompt))), first.values

    def _caps(self, model: str, *, paid: bool = True) -> tuple[Budget, ...]:
        """Return the caps on all that the session, and that the kernel of a class, spends; on days and months too.

        The latter bound neither a model that costs nothing nor a turn that is not `paid`, since it is replayed.
        """
        session = _budget("session", self.max_cost, self.max_tokens, self._spent)
        kernel = replace(_budget("kernel", None, None), live=lambda: ledger().here)
        return session, kernel, *(period_budgets(model) if paid else ())

    def _account(self) -> Account:
        """Return what pays for the requests of the session."""
        return Account(self.name, self._conversation)

    def _count(self, usage: Usage) -> None:
        """Count what was spent, or was spent when it was recorded, towards the caps of the session."""
        self._spent += usage

    # -- serving -------------------------------------------------------------------------------

    def serve(self, *, tools: bool = False) -> Serving:
        """Serve the notebook and this conversation over MCP to programs of this user; return what ends that.

        A client looks at variables, cells and outputs, runs code and proposes cells. With `tools` it may call those of
        the session too; a second call of `serve` says anew whether they may. Each call is a turn of this session,
        decided by its policy; the user is asked on a card, and a call for which no one is there is denied. In a replay,
        the recorded calls are played, each at its place among the turns, and nothing is served.

        Raises MissingExtra without the package `mcp`, UsageError in the mode replay-tools and if a machine or a class
        does not allow it, and what a replay raises.
        """
        class_settings().check_switch("serve", "The notebook is not served")
        installed().join(self)
        if self.deck.mode == "replay-tools":
            raise UsageError(
                "The mode replay-tools plays no calls of clients: it asks the model again, and a client is not there. "
                "Choose replay, auto or live: %agent live."
            )
        serving = self.serving or self._served()
        serving.tools = tools
        serving.begin()
        self._serving = serving
        return serving

    def _served(self) -> Serving:
        session = ServedSession(
            running=lambda: self.running,
            is_on_tape=self._is_on_tape,
            next_recorded=self._next_served,
            toolsets=self.toolsets,
            view=lambda: installed().serve_view(self),
            begin=self._begin_served,
        )
        return Serving(session, lambda: to_markdown(self.turns))

    @property
    def serving(self) -> Serving | None:
        """What `serve` has returned, None if it was not called or is over."""
        return None if self._serving is None or self._serving.ended else self._serving

    def _begin_served(self, prompt: str, driver: TurnDriver, toolsets: Sequence[Toolset], *, attended: bool) -> Run:
        """Begin a turn whose calls a client makes. Raises SessionBusy, and UsageError."""
        approvals = driver.approvals
        if not driver.recorded:  # an "always" outlives the serving in which it was said
            approvals = self._client_approvals.setdefault(driver.model.name, approvals)
        approvals.in_doubt = self.in_doubt
        driver = replace(driver, approvals=approvals)
        recipe = replace(
            self.agent,
            model=driver.model,
            instructions="",
            tool_choice="auto",
            max_iterations=1,
            max_result=MAX_RESULT,
            timeout=class_settings().timeout,
            before_finish=None,
            output=None,
            on_limit="stop",
        )
        chosen = TurnSettings(agent=recipe, driver=driver, toolsets=toolsets, attended=attended)
        return self._start(user(prompt), chosen, None)

    def _next_served(self) -> tuple[str, ToolCall | None] | None:
        """Return the prompt and the call of the client's turn that a replay plays next, None if that is another one."""
        installed().join(self)
        with self._starting:
            if self.running or self._changing:
                return None
            return self.deck.next_served(len(self.turns), cleared=self.cleared > 0)

    def _is_on_tape(self) -> bool:
        """Return whether the turns come from a tape alone, and none is recorded anew."""
        installed().join(self)
        return self.deck.mode in PLAYED

    # -- tools, model and listeners ------------------------------------------------------------

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
        self._warn(not_told(problems, self._unreachable))
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
        """Call a function with the events of the session from now on. Returns a function that removes the listener.

        Events of turns, with deltas, come on the engine's thread. A `HistoryCut` comes on any thread, after turns
        were forgotten or a saved conversation was loaded: `events` is then another log.
        """
        return self._listeners.add(listener)

    def listen_to_maps(self, listener: Callable[[MapProgress], None]) -> Callable[[], None]:
        """Call a function on the engine's thread with the progress of the session's maps from now on.

        Returns a function that removes the listener.
        """
        return self._map_listeners.add(listener)

    def add_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of a source in every later turn. The caller closes the source."""
        self._extra.append(toolset)

    def remove_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of a source no more, if it was added."""
        self._extra = [one for one in self._extra if one is not toolset]

    def toolsets(self, agent: Agent | None = None) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn: the recipe's, its servers, and added ones.

        Raises ConfigError for a file of servers that cannot be read.
        """
        recipe = agent or self.agent
        own = inner_toolsets(recipe, self._connections, self._agent_approvals, self.in_doubt)
        return (*own, *self._extra)

    # -- the history ---------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the conversation, until `undo` brings it back; connections, approvals and the recipe stay."""
        with self._between_turns():
            self.history.clear()
        self._tell_cut()

    def compact(self) -> Compacted | None:
        """Have the model summarise older turns now, not only when its window is nearly full; the history stays whole.

        Return what it came to, None if nothing can be gained. Raises SessionBusy while a turn runs, and UsageError if a
        budget is used up, or if a cassette is in use.
        """
        if self.deck.mode != "live":
            raise UsageError(
                "A cassette holds turns only, and a summary now would belong to none. Type %agent live first."
            )
        with self._between_turns():
            draft = self._draft(self.agent, self.toolsets(), COMPACT)
            project = _project(self.agent, TurnSettings())
            turn = replace(draft, view=self._view, account=self._account(), project=project)
            turn = replace(turn, budgets=self._caps(turn.model.name))
            try:
                compacted = engine().call(self._connections.with_loop(compact(turn)))
            except BudgetExhausted as spent:
                raise UsageError(str(spent)) from None
            if compacted is None:
                return None
            self.history.record(compacted)
            self.history.amend(compacted)
            self._spent += compacted.usage
        self._tell_cut()
        return compacted

    @property
    def context_tokens(self) -> int:
        """About how many tokens the next request takes beside its prompt: as the provider counted them last."""
        run = self.running
        logs = chain([run.events] if run is not None else [], (turn.events for turn in reversed(self.turns)))
        sizes = (_size_of(event) for log in logs for event in reversed(log))
        return next(filter(None, sizes), 0) or sum(map(tokens_of_message, self.messages))

    def undo(self) -> Message | None:
        """Undo the last turn, edit or clear, and what its tools did to the variables of the notebook.

        Return the prompt of the turn that is forgotten; None if cleared turns come back, or nothing can be undone.
        `undone` has what became of the variables, which a notebook prints. Call it where the notebook's code runs, in
        its main thread.
        """
        return self._told_step(redo=False)

    def redo(self) -> Message | None:
        """Redo what was undone last; return the prompt of the turn that comes back, or None."""
        return self._told_step(redo=True)

    def _told_step(self, *, redo: bool) -> Message | None:
        """Undo or redo, and say what it came to: nothing else shows it to the code that calls this."""
        outcome = self.step_back(redo=redo)
        told = installed().tell_undone(self, redo=redo)
        if outcome is None:
            return None
        for words in () if told else outcome.problems:
            logger.warning(words)
        return outcome.prompt

    def step_back(self, *, redo: bool = False) -> Undone | None:
        """Undo or redo a change of the history, with the variables that go with it, for a caller that shows it.

        Return what it came to, None if there is nothing to undo or redo.
        """
        with self._between_turns(calls=False):
            prompt = self.history.redo() if redo else self.history.undo()
            looks = 0
            while not redo and self._has_call_before_look():
                prompt, looks = self.history.undo(), looks + 1
            change = self.history.changes.moved
            self.undone = None
            if change is not None:
                last = change.after[-1] if change.kind != "clear" and change.after else None
                tools = tuple(dict.fromkeys(last.tools)) if last is not None else ()
                outcome = Undone(change.kind, redo, len(self.turns), prompt, tools=tools, looks=looks)
                self.undone, change.variables = put_back(change.variables, outcome)
        self._tell_cut()
        return self.undone

    def _has_call_before_look(self) -> bool:
        """Return whether a client has only looked in the turn that was undone, and the turn before is a call too.

        Clients look at what their program has done, and the user wants that undone. A denied call has run no tool.
        """
        changes = self.history.changes
        moved, before = changes.moved, changes.done[-1:]
        if moved is None or moved.kind != "turn" or moved.variables or any(one.kind != "turn" for one in before):
            return False
        looked = _is_served(moved.after[-1]) and {*LOOKS, READER}.issuperset(moved.after[-1].tools)
        return looked and bool(self.turns) and _is_served(self.turns[-1])

    @property
    def open_plan(self) -> Checklist | None:
        """The plan that the last turn left open, if the user has not dropped it."""
        return open_plan(self._plans())

    def drop_plan(self) -> None:
        """Give up the plan that the last turn left open: the next turn does not ask whether to resume it."""
        self._dropped = self.turns[-1] if self.turns else None

    def _plans(self, keep: int | None = None) -> list[tuple[Event, ...]]:
        """Return the events of the first `keep` turns, or of all, without the turns whose plan was dropped.

        The calls of clients are left out: they have no plan, and give none up.
        """
        turns = self.turns[:keep]
        dropped = next((place for place, turn in enumerate(turns, 1) if turn is self._dropped), 0)
        return [turn.events for turn in turns[dropped:] if not _is_served(turn)]

    @property
    def cleared(self) -> int:
        """How many turns were forgotten by a clear that is the last change."""
        last = self.history.changes.done[-1:]
        return len(last[0].before) if last and last[0].kind == "clear" else 0

    def fork(self, turns: int | None = None) -> "Session":
        """Return a new session that begins with the first `turns` turns of this one, by default all.

        It has the same agent and caps, which those turns count towards. It makes its own connections, and is kept
        in memory only.
        """
        forked = Session(self.agent, max_cost=self.max_cost, max_tokens=self.max_tokens)
        forked._watcher = Watcher(self._watcher.given)
        forked.history = self.history.fork(turns)
        forked._dropped = self._dropped
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
        installed().show_panel(self)

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
            raise UsageError(f"{path} is there already, and was left as it is. Name another file.")
        with self._between_turns():
            self.history.save(self._journal(path), self.in_doubt)

    def save_from_now(self, path: str | Path) -> None:
        """Go on as if the session had been made with this `path`, if it was kept in memory only."""
        with self._between_turns(calls=False):
            self.history.keep_in(self._journal(path))

    def restore(self, path: str | Path | None = None) -> None:
        """Load the conversation saved at `path`, by default the session's own, and go on saving there.

        Raises JournalError if there is no file that can be read, and UsageError if an unsaved conversation would be
        lost.
        """
        place = self.path if path is None else Path(path)
        if place is None:
            raise UsageError("This session is saved nowhere. Name the file to take up.")
        with self._between_turns():
            if self.turns and not self.history.is_saved:
                raise UsageError(
                    "This session has a conversation that is saved nowhere, and would be lost. Save it with save(FILE) "
                    "(%agent save FILE), or clear it with clear() (%agent reset)."
                )
            self.history.close()
            journal = self._journal(place)
            saved = journal.resume()
            self.history = History.of_saved(saved, journal)
            self._approvals = Approvals(self.in_doubt)  # earlier approvals belong to the other conversation
            self._client_approvals.clear()
            self._agent_approvals.clear()
            self.in_doubt.update(saved.in_doubt)
            self._spent = saved.spent
            self._warn(saved.problems)
        self._tell_cut()

    # -- closing -----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the serving and the running turn, close models and servers, from any event loop; safe to call twice."""
        if self._serving is not None:
            await asyncio.wrap_future(engine().submit(self._serving.aclose()))
        if (run := self.running) is not None:
            run.cancel()
            await asyncio.shield(asyncio.wrap_future(run.settled))
        if self._map is not None:
            self._map.stop()
            await asyncio.shield(asyncio.wrap_future(self._map.settled))
        try:
            await asyncio.wrap_future(engine().submit(self._connections.aclose()))
        finally:
            self.history.close()
            self.history.changes.let_go()
            await asyncio.to_thread(self.deck.finish)

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
        held = f"{counted(len(self.turns), 'turn')}, {counted(len(self.messages), 'message')}"
        return f"<Session {clip(str(model or 'default model'), 100)}: {held}{state}>"

    # -- what front ends begin and play --------------------------------------------------------

    def preview_of(self, prompt: Prompt, chosen: TurnSettings) -> Preview:
        """Return what `preview` returns, for a front end."""
        recipe = chosen.recipe(self.agent)
        project = _project(recipe, chosen)
        sources = with_skills(self._sources(recipe, chosen), project)
        return engine().call(preview(replace(self._draft(recipe, sources, prompt), project=project)))

    def _draft(
        self, recipe: Agent, sources: Sequence[Toolset], prompt: Prompt, model: Model | None = None
    ) -> TurnContext:
        """Return what a turn would need that does not begin."""
        model = self.model(recipe) if model is None else model
        learn_secrets()
        facts = self._facts_of(model)
        return TurnContext(recipe, model, sources, as_prompt(prompt), history=self.history, facts=facts)

    def _facts_of(self, model: Model) -> "ModelInfo":
        """Return what is known of a model: the same object as before, since the view is made anew for another one."""
        facts = info(model.name, address_of(model))
        if self._facts is None or self._facts != facts:
            self._facts = facts
        return self._facts

    def begin(self, prompt: Prompt | None, chosen: TurnSettings, turn: int | None = None) -> Run:
        """Begin a turn as `start` does, or with `turn` as `edit` does, for a front end.

        Nothing is changed if the settings are invalid.
        """
        keep = None if turn is None else self._place(turn)
        if keep is not None and not prompt:
            if _is_served(self.turns[keep]):
                raise UsageError("That turn is a call of a client, which makes it again itself. Give another prompt.")
            prompt, values = _asked(self.turns[keep])
            chosen = replace(chosen, values=chosen.values or values)
        view = installed().view(self) if chosen.attended is None else None
        if view is not None:
            chosen = replace(chosen, attended=view.attended)
        self._play_served()
        run = self._start(as_prompt(cast("Prompt", prompt)), chosen, keep)
        if view is not None:
            run.view = view
            view.begin(run)
        return run

    def _start(self, message: Message, chosen: TurnSettings, keep: int | None) -> Run:
        """Begin a turn after the first `keep` turns, or after all."""
        recipe, driver = chosen.recipe(self.agent), chosen.driver
        sources = self._sources(recipe, chosen)
        outside = self._outside_turn(recipe) if driver is None else None
        run: PlayTurn = run_turn if outside is None else outside.run
        real: Callable[[], Model] = partial(self.model, recipe) if outside is None else outside.model
        real = real if driver is None else lambda: driver.model
        learn_secrets()
        with self._starting:
            self._refuse_while_busy()
            if keep is None and self.turns and self.turns[-1] is self._strayed:
                keep = len(self.turns) - 1
            message = self._told(message, keep)
            plan = chosen.planning(self._plans(keep)) if driver is None else None
            installed().join(self)
            tape = self.deck.turn(
                message,
                recipe,
                real,
                turns=len(self.turns[:keep]),
                cleared=self.cleared > 0,
                mode=chosen.replay,
                values=tuple(chosen.values),
                notices=self._notices,
                served=driver is not None,
                recorded=driver is None or driver.recorded,
            )
            project = _project(recipe, chosen, recorded=None if tape is None else tape.project)
            sources = with_skills(sources, project)
            if tape is not None:
                message, sources = tape.told(message), tape.toolsets(sources)
                run = partial(tape.play, run=run)
            if outside is not None:
                outside.on_tape(tape)
            is_paid = tape is None or tape.mode not in PLAYED
            model = real() if tape is None else tape.model
            turn = self._context(recipe, model, sources, message, chosen, is_paid=is_paid)
            turn = replace(turn, plan=plan, project=project)
            play = partial(self._play, turn, keep, run if driver is None else driver.asks_in(run), is_paid)
            self._run = Run(
                play,
                self._listeners,
                attended=bool(chosen.attended),
                abort=chosen.abort,
                started_by=None if driver is None else caller.get(),  # the cell that serves, and no thread of the pool
            )
        return self._run

    def _outside_turn(self, recipe: Agent) -> "OutsideTurn | None":
        """Return the turn of an outside agent, None if a model is asked."""
        if not is_outside(asked := model_override() or recipe.model):
            return None
        from agentmagic.acp.turn import OutsideTurn

        return OutsideTurn(str(asked), partial(self.model, recipe))

    def _place(self, turn: int) -> int:
        """Return the place of a turn from its index, which may count from the end. Raises UsageError."""
        if not -len(self.turns) <= turn < len(self.turns):
            raise UsageError(f"There is no turn {turn}: the session has {len(self.turns)}, which count from 0.")
        return turn % len(self.turns)

    def _context(  # noqa: PLR0913  (all that a turn begins with)
        self,
        recipe: Agent,
        model: Model,
        sources: Sequence[Toolset],
        prompt: Message,
        chosen: TurnSettings,
        *,
        is_paid: bool,
    ) -> TurnContext:
        """Return what a turn needs, and queue the notices that it begins with."""
        driver = chosen.driver
        facts = self._facts_of(model) if driver is None else CLIENT_FACTS
        budgets = (  # before the notices are queued: a turn that is refused for its budget leaves none behind
            (_budget("turn", recipe.max_cost, recipe.max_tokens), *self._caps(model.name, paid=is_paid))
            if driver is None
            else ()  # a call of a client costs nothing
        )
        infos = (*overrides(None if driver else model.name), *self._connections.notes(recipe, model))
        self._notices.extend(Notice("info", words) for words in infos)
        self._warn((*chosen.notices, *((UNATTENDED,) if chosen.step and not chosen.attended else ())))
        return TurnContext(
            recipe,
            model,
            sources,
            prompt,
            history=self.history,
            approvals=self._approvals if driver is None else driver.approvals,
            facts=facts,
            view=self._view if driver is None else driver.view,
            budgets=budgets,
            notices=self._notices,
            step=chosen.step and bool(chosen.attended),
            values=tuple(chosen.values),
            noted=self._noted,
            unreachable=self._unreachable,
            watcher=self._watcher,
            caller="" if driver is None else driver.model.name,
            account=self._account(),
            name=self.name if recipe.agent_tools else "",
            inner_budgets=() if driver is None else self._caps(model.name, paid=is_paid),
        )

    def _sources(self, recipe: Agent, chosen: TurnSettings) -> Sequence[Toolset]:
        """Return the sources of tools of a turn."""
        return self.toolsets(recipe) if chosen.toolsets is None else tuple(chosen.toolsets)

    async def _play(
        self, turn: TurnContext, keep: int | None, run: PlayTurn, is_paid: bool, channel: Channel
    ) -> Outcome:
        """Run a turn and add it to the history."""
        if keep is not None:
            self.history.cut(keep)
            self._tell_cut()
        if (journal := self.history.journal) is not None:
            journal.replays, journal.was_replayed = not is_paid, partial(is_played, turn.model)
        outcome = await self._connections.with_loop(run(turn, channel))
        self.history.add(channel.events, outcome.result.history_delta)
        strayed = isinstance(outcome.error, ReplayMismatch) and not outcome.result.final_text
        self._strayed = self.turns[-1] if strayed else None
        self.traffic.keep(self.turns[-1], turn.traffic)
        self.history.changes.keep(outcome.changes)
        self._count(outcome.result.usage)
        self._listed = outcome.tools or self._listed
        return outcome

    @contextmanager
    def _between_turns(self, *, calls: bool = True) -> Generator[None]:
        """Keep turns from beginning in the block, which changes or reads the history. Raises SessionBusy.

        In a replay, `calls` of clients that come next are played first; what was undone is not on the tape.
        """
        if calls:
            self._play_served()
        with self._starting:
            self._refuse_while_busy()
            self._changing = True
        try:
            yield
        finally:
            self._changing = False

    def _play_served(self) -> None:
        """In a replay, play the calls of clients that came before what begins now."""
        if self._serving is not None:
            self._serving.play_recorded()

    def _refuse_while_busy(self) -> None:
        run = self.running
        if run is not None and _is_served(run):
            raise SessionBusy("A call of a client is under way. Decide about its card, or wait for it, and try again.")
        if run is not None or self._changing:
            what = "The history is being changed" if self._changing else "A turn is running"
            raise SessionBusy(f"{what}. Wait for it, or cancel it, and try again.")

    def _warn(self, warnings: Iterable[str]) -> None:
        """Queue warnings for the next turn."""
        self._notices.extend(Notice("warning", words) for words in warnings)

    def _tell_cut(self) -> None:
        self._listeners.tell(HistoryCut(len(self.turns)))

    def _journal(self, path: str | Path) -> Journal:
        class_settings().check_switch("save", "The conversation is not saved")
        notices = self._notices  # not the session itself, which the journal would keep alive
        return Journal(Path(path), tell=lambda words: notices.append(Notice("warning", words)))


def _project(recipe: Agent, chosen: TurnSettings, *, recorded: Collection[str] | None = None) -> Project:
    """Return the project of a turn. A client brings its own rules, and so does an outside agent."""
    is_ours = chosen.driver is None and not is_outside(model_override() or recipe.model)
    asks = bool(chosen.attended)
    project = project_here(rules=recipe.rules and is_ours, asks=asks, recorded=recorded)
    return project if chosen.skills else project.without_skills()


def _asked(turn: Turn) -> tuple[Message, Sequence[PromptValue]]:
    """Return the prompt of a turn, and what described the values that it names."""
    begun = turn.events[0]
    return turn.prompt, begun.values if isinstance(begun, TurnStarted) else ()


def _is_served(turn: Turn | Run) -> bool:
    """Return whether a turn is a call of a client of the served notebook."""
    begun = next(iter(turn.events), None)
    return isinstance(begun, TurnStarted) and begun.client != ""


def _size_of(event: Event) -> int:
    """Return how many tokens an event says that the conversation takes, 0 if it says nothing of that."""
    match event:
        case Compacted():
            return event.after
        case StepFinished():
            return event.usage.input_tokens + event.usage.output_tokens
        case _:
            return 0


def _budget(of: str, max_cost: float | None, max_tokens: int | None, before: Usage = Usage()) -> Budget:  # noqa: B008
    """Return a budget within that of the class. Raises UsageError if it is wider."""
    bounds, prefix = class_settings(), "" if of == "turn" else "session_"
    cost = bounds.capped("max_cost", max_cost, session=bool(prefix))
    tokens = bounds.capped("max_tokens", max_tokens, session=bool(prefix))
    asked = {"max_cost": max_cost, "max_tokens": max_tokens}
    caps = [f"{prefix}{name}" for name, own in asked.items() if own is None]
    bound = " and ".join(bounds.words(name) for name in caps if getattr(bounds, name) is not None)
    return Budget(of, cost, None if tokens is None else int(tokens), before, bound)
