"""The `Session` class: one conversation, with its history, connections, totals, undo, maps of rows and MCP serving."""

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
from agentmagic.classroom import OFFLINE_MODES, class_settings
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
    PageDecision,
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
from agentmagic.host import MapView, current_host
from agentmagic.log import logger
from agentmagic.loop.agent_calls import inner_toolsets
from agentmagic.loop.budgets import NOTHING, BudgetExhausted, Meter, period_meters
from agentmagic.loop.inner_turn import turn_of_row
from agentmagic.loop.step import Preview, compact, preview
from agentmagic.loop.tool_calls import call_by_hand
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.loop.turn_context import AgentPath, SeenNotices, TurnContext
from agentmagic.loop.turn_options import PlayTurn, TurnDriver, TurnOptions, TurnSettings
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
from agentmagic.providers.outside import display_name, is_outside
from agentmagic.providers.registry import address_of, full_name, info, is_free
from agentmagic.providers.traffic import Traffic
from agentmagic.replay.deck import Deck
from agentmagic.replay.map_tape import MapTape
from agentmagic.run import Run
from agentmagic.runtime.engine import Listeners, caller, engine, void
from agentmagic.serve.serving import ServedSession, Serving
from agentmagic.settings import Replay, learn_secrets, model_override, override_notes, schema_only
from agentmagic.text import clip, plural
from agentmagic.tools.base import Toolset, list_sources, new_problems
from agentmagic.tools.notebook.cells import LOOKS
from agentmagic.tools.notebook.proposals import find_decisions, open_proposals, with_report
from agentmagic.tools.output_cache import READER
from agentmagic.undo.stack import Undone, restore_turn
from agentmagic.undo.watcher import Watcher
from agentmagic.values.describe import CHARACTERS

if TYPE_CHECKING:
    from agentmagic.acp.turn import OutsideTurn


COMPACT = "(compact)"
"""Placeholder prompt for a compaction between two turns. It is never sent to a model."""
UNATTENDED = "Step mode needs a person who goes on, and no one is there: the turn runs without a pause."
CLIENT_FACTS = ModelInfo("", None, KINDS, priced=True)
"""Model facts for a client of the served notebook: it accepts every kind of input, and costs nothing.

It must stay one object: a `RequestView` is rebuilt when its model facts are a different object.
"""


class Session:
    """One conversation of an agent: its history, its open connections, its totals.

    `messages` is an earlier conversation to continue, with any provider; an invalid history is repaired. With a `path`,
    every event is saved to that file as it happens; an existing file at that path is kept under another name (use
    `Session.load` to continue it). `max_cost` (US dollars) and `max_tokens` are caps on the whole session, in addition
    to the agent's caps on each turn. `in_doubt` names, by server and tool, the tools that ran when an earlier process
    was killed. The user is asked before any of them runs again. `undone` is the outcome of the last undo or redo.
    `traffic` has the requests that were sent to models in the last turns, for the inspector. `cassette` is the file of
    a recording, and `replay` says how the file is used: "record", "replay", "auto", "replay-model", "replay-tools", or
    "live", which does not use it. A `timed` replay takes as long as the recording did. `namespace` holds the variables
    that the session's tools change. By default, it has the notebook's variables, in a script those of `__main__`.
    `name` is the notebook variable that holds the session ("" in a script). Traces and the ledger of costs show this
    name.

    Turns never overlap: SessionBusy is raised if a turn is started while another runs. Use the session as an async
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
        class_settings()  # read now, so that an error in a settings file is reported here
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        self.max_cost = max_cost
        self.max_tokens = max_tokens
        self.name = ""
        self.in_doubt: set[ToolKey] = set()
        self.deck = Deck(cassette, replay, timed=timed)
        self.undone: Undone | None = None
        self._conversation = uuid4().hex
        self._notices: deque[Notice] = deque()
        self._early_decisions: deque[PageDecision] = deque()
        self._noted = SeenNotices()
        self._unreachable: dict[AgentPath, set[str]] = {}
        journal = None if path is None else self._journal(path)
        self.history = History.of_messages(self._repair(messages), journal=journal)
        self._paid_usage = self.history.usage  # undo does not reduce it: all paid requests count towards the caps
        self._view = RequestView()
        self.traffic = Traffic()
        self._facts: ModelInfo | None = None
        self._approvals = Approvals(self.in_doubt)
        self._client_approvals: dict[str, Approvals] = {}
        self._agent_approvals: dict[AgentPath, Approvals] = {}
        self._connections = Connections()
        self._watcher = Watcher(namespace)
        self._added_toolsets: list[Toolset] = []
        self._last_tools: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        self._map: MapRun | None = None
        self._serving: Serving | None = None
        self._mismatched_turn: Turn | None = None
        """The last turn, if a replay mismatch ended it before its answer; the next turn replaces it."""
        self._turn_of_dropped_plan: Turn | None = None
        """The turn that left an open plan which the user then dropped."""
        self._listeners = Listeners[Event | HistoryCut]()
        self._map_listeners = Listeners[MapProgress]()
        self._starting = threading.RLock()
        self._changing = False
        self._connections.close_after(self)

    def _repair(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return these messages, repaired so that every provider accepts them. Queue a warning for each repair."""
        repaired_messages, notes = repair(messages)
        self._warn(notes)
        return repaired_messages

    @classmethod
    def load(cls, path: str | Path, agent: Agent | str | Model | None = None, **options: Any) -> Self:
        """Return a session that continues the conversation saved at `path`, with this agent.

        Accepts the options of `Session`. Raises JournalError if the file is missing or cannot be read.
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
        """The result of the last turn, or None if there is no turn. Turns made by calls of MCP clients do not count."""
        return next((turn.result for turn in reversed(self.turns) if not _is_served(turn)), None)

    @property
    def answer(self) -> str:
        """The text of the model's answer in the last turn, or "" if there is no answer."""
        return self.last.final_text if self.last else ""

    @property
    def value(self) -> Any:
        """The validated value of the model's last answer if the turn had an `output` type, else None."""
        return self.last.value if self.last else None

    @property
    def agent(self) -> Agent:
        """The agent that answers prompts. To use another agent for all later turns, assign it to this property."""
        return self._agent

    @agent.setter
    def agent(self, agent: Agent) -> None:
        if not isinstance(cast("object", agent), Agent):
            raise UsageError(f"agent is {agent!r:.80}. Assign an Agent: session.agent = Agent(...).")
        self._agent = agent

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history that the next request begins with, unless the history must be compacted.

        The prompt of a turn that ended without any answer is left out; `turns` has it.
        """
        return self.history.sent_messages

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all finished turns in order, without deltas (events that only report progress)."""
        return self.history.events

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost of all turns of the session, except undone turns."""
        return self.history.usage

    @property
    def tools(self) -> tuple[ToolDef, ...]:
        """The tools that the last turn or `connect` found, or only those without an MCP server if there was neither."""
        own = (*self.agent.own_tools(), *self.agent.agent_tools)
        return self._last_tools or tuple(tool.definition for tool in own)

    @property
    def tool_calls(self) -> int:
        """The number of tool calls in the session's turns that have a result."""
        return self.history.tool_calls

    @property
    def tool_failures(self) -> int:
        """The number of tool calls in the session's turns that did not succeed."""
        return self.history.tool_failures

    @property
    def running(self) -> Run | None:
        """The running turn, or None."""
        with self._starting:  # waits for `_start`, as listeners may get a first event before `_run` is set
            return self._run if self._run is not None and not self._run.done else None

    @property
    def running_map(self) -> MapRun | None:
        """The map that was started last, if it is still running, else None."""
        return None if self._map is None or self._map.done else self._map

    # -- proposed cells ------------------------------------------------------------------------

    @property
    def proposals(self) -> tuple[CellProposed, ...]:
        """The proposed cells that the user has neither kept nor discarded, oldest first."""
        running = self.running
        return open_proposals((*self.history.proposals, *(running.events if running else ())))

    def settle(self, proposal: str, fate: ProposalFate, source: str = "", *, ran: bool = False) -> bool:
        """Record what the user did with the proposed cell of this id; the next prompt reports it to the model.

        `source` is the cell's text if the user changed it; `ran` says that the cell was run. Returns False if no open
        proposal has this id. Thread-safe.
        """
        with self._starting:
            is_open = any(one.id == proposal for one in self.proposals)
            if is_open:
                self._record_decision(ProposalSettled(proposal, fate, source, ran))
            return is_open

    def record_page_decision(self, decision: PageDecision) -> None:
        """Record what the user decided about an act of the chat panel's page. Thread-safe.

        If nothing of the conversation is saved yet, the decision is recorded after the first turn. A record before it
        would begin a new file, and the conversation that an earlier kernel saved could no longer be continued.
        """
        with self._starting:
            journal = self.history.journal
            if self.running is None and not self.turns and not (journal is not None and journal.begun):
                self._early_decisions.append(decision)
            else:
                self._record_decision(decision)

    def _record_decision(self, decision: ProposalSettled | PageDecision) -> None:
        """Add a decision of the user to the running turn, or to the last turn if none runs."""
        with self._starting:
            run, loop = self.running, engine().loop
            if run is not None:
                loop.call_soon_threadsafe(self._record_in_run, run, decision)
                return
            self.history.record(decision)
            self.history.amend(decision)
        loop.call_soon_threadsafe(self._listeners.tell, decision)

    def _record_in_run(self, run: Run, decision: ProposalSettled | PageDecision) -> None:
        if run.over:  # the run takes no more events: wait for its turn in the history
            run.settled.add_done_callback(lambda _: self._record_decision(decision))
            return
        self.history.record(decision)
        run.add(decision)

    def _with_fates(self, prompt: Message, keep: int | None) -> Message:
        """Return the prompt with a report for the model: which proposed cells the user has kept or discarded.

        The report covers decisions since the start of the last turn that was sent to the model. `keep` is the number of
        turns that stay if an earlier turn is edited, else None.
        """
        if keep is None:
            for decision in find_decisions(self.proposals):
                self._record_decision(decision)
        turns = self.turns[:keep]
        last_sent = next((place for place in reversed(range(len(turns))) if not turns[place].unsent), 0)
        # The second argument is a generator, because `with_report` rarely needs the events of all turns. With a list,
        # starting a turn would take longer with each turn of the history.
        since = [event for turn in turns[last_sent:] for event in turn.events]
        return with_report(prompt, (event for turn in turns for event in turn.events), since)

    # -- turns ---------------------------------------------------------------------------------

    @TurnSettings.spell_out
    def start(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> Run:
        """Start a turn and return its run at once; `TurnOptions` describes the options.

        Raises SessionBusy while a turn is running, and UsageError for an invalid prompt or model.
        """
        return self.begin(prompt, TurnSettings.of(options))

    @TurnSettings.spell_out
    def ask(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> RunResult:
        """Run a turn and return its result; for synchronous code, in a cell or a script.

        Accepts the options of `start`, and raises the errors of `start` and `Run.wait`.
        """
        engine().refuse_own_thread()
        with engine().main.mark_busy():
            return self.begin(prompt, TurnSettings.of(options)).wait()

    @TurnSettings.spell_out
    def preview(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> Preview:
        """Return the first request that a turn would send, with the estimated tokens of each part.

        Nothing is sent or saved, and no server is connected. Accepts the options of `start`. Raises UsageError for an
        invalid prompt.
        """
        return self.preview_of(prompt, TurnSettings.of(options))

    @TurnSettings.spell_out
    def edit(self, turn: int, prompt: Prompt | None = None, **options: Unpack[TurnOptions]) -> Run:
        """Run an earlier turn again, with its own or a new prompt. The old turn and all later turns are forgotten.

        `turn` is an index into `turns`, -1 for the last turn. Accepts the options of `start`, and raises its errors.
        """
        return self.begin(prompt, TurnSettings.of(options), turn)

    # -- maps ----------------------------------------------------------------------------------

    @MapSettings.spell_out
    def map(self, rows: object, prompt: Prompt, **options: Unpack[MapOptions]) -> MapResult:
        """Send one prompt for each of many rows, and return the results; for synchronous code, in a cell or a script.

        Accepts the options of `start_map`, and raises the errors of `start_map` and `MapRun.wait`. If the user
        interrupts it, `last_map` has the results of the finished rows.
        """
        engine().refuse_own_thread()
        with engine().main.mark_busy():
            return self.begin_map(rows, prompt, MapSettings.of(options)).wait()

    @MapSettings.spell_out
    def start_map(self, rows: object, prompt: Prompt, **options: Unpack[MapOptions]) -> MapRun:
        """Start to send one prompt for each of many rows, and return the run at once.

        `MapOptions` describes the options. `rows` is a pandas or polars data frame, or an iterable of dicts or of
        values. In the prompt, `{column}` is the row's value and `{row}` the whole row; other names in braces are
        variables of the notebook, evaluated once. Each row is a turn that begins from the session's present history
        and does not change it. The user is never asked during a map: a call that needs approval is denied.

        Raises UsageError for rows, a prompt or options that cannot be used, and SessionBusy while a turn is running.
        """
        return self.begin_map(rows, prompt, MapSettings.of(options))

    @property
    def last_map(self) -> MapResult | None:
        """The results so far of the last map, which may still run, or None without a map."""
        return None if self._map is None else self._map.so_far()

    def begin_map(
        self,
        rows: object,
        prompt: Prompt,
        settings: MapSettings,
        *,
        toolsets: Sequence[Toolset] | None = None,
        view: MapView | None = None,
    ) -> MapRun:
        """Start a map as `start_map` does, for a front end.

        `toolsets` replaces the agent's sources of tools. `view` shows the map; by default, the host's view shows it.
        """
        row_source = rows_of(rows)
        self._play_client_turns()
        with self._starting:
            self._refuse_while_busy()
            current_host().join(self)
            learn_secrets()
            recipe = settings.recipe(self.agent)
            if is_outside(model := model_override() or recipe.model):
                name = display_name(str(model))
                raise UsageError(f"{name} is an agent with a loop of its own, which runs no map. Choose a model: -m.")
            tape = self.deck.map(
                as_prompt(prompt),
                recipe,
                partial(self.model, recipe),
                turns=len(self.turns),
                cleared=self.cleared > 0,
                mode=settings.replay,
            )
            turn, prompts = self._draft_of_map(row_source, prompt, recipe, toolsets, tape)
            turn = replace(
                turn,
                history=self.history.fork(),
                meters=(_meter("turn", recipe.max_cost, recipe.max_tokens),),
                watcher=Watcher({}),
            )
            notices = tuple(self._noted.new(override_notes(turn.model.name, _chosen_model(recipe), settings.replay)))
            within = self._connections.with_loop
            meters = self._shared_meters(turn.model.name, is_paid=tape is None or tape.mode not in OFFLINE_MODES)
            notices += tuple(filter(None, (meter.warning() for meter in meters)))
            work = MapWork(turn, row_source, prompts, settings, meters, within, self._count, notices, tape, self._count)
            run = self._begin_map(work, view or current_host().map_view(self))
        if run.view is not None:
            run.view.begin(run)
        return run

    def begin_map_again(self, run: MapRun) -> MapRun:
        """Start a map that has ended again: only its rows without an answer are asked. The caller shows the new map.

        What the map has cost counts towards its `max_cost` and `max_tokens`. Raises UsageError if the map still runs,
        if its rows come from an iterator, or if it is on a cassette.
        """
        with self._starting:
            self._refuse_while_busy()
            if (work := run.work_again()) is None:
                raise UsageError("These rows cannot be asked again from here. Run the cell of the map again.")
            learn_secrets()
            meters = self._shared_meters(work.turn.model.name)
            return self._begin_map(replace(work, meters=meters, notices=()), run.view)

    def _begin_map(self, work: MapWork, view: MapView | None) -> MapRun:
        run = self._map = MapRun(work, view)
        run.listen(lambda progress: void(self._map_listeners.tell(progress)))
        return run

    def _draft_of_map(
        self,
        rows: Rows,
        prompt: Prompt,
        recipe: Agent,
        toolsets: Sequence[Toolset] | None,
        tape: MapTape | None = None,
    ) -> tuple[TurnContext, RowPrompts]:
        """Return the context that the turns of all rows of a map share, and the prompts of the rows."""
        sources = self.toolsets(recipe) if toolsets is None else toolsets
        if tape is not None:
            sources = tape.toolsets(sources)
        turn = self._context(recipe, sources, ROW, None if tape is None else tape.model)
        # A row may be a long document, so its values are sent whole if they fit into the model's context window.
        room = min(turn.facts.window or LONGEST_PROMPT, LONGEST_PROMPT // CHARACTERS)
        attacher = Attacher(lambda: turn.facts, schema_only(), room)
        return turn, RowPrompts(prompt, rows, self._watcher.namespace, attacher)

    def preview_of_map(
        self, rows: object, prompt: Prompt, settings: MapSettings, toolsets: Sequence[Toolset] | None = None
    ) -> tuple[Preview, Sequence[PromptValue]]:
        """Return the request that a map would send for its first row, and the values filled into the row's prompt.

        Raises UsageError if there are no rows, or if no prompt can be made for the first row.
        """
        learn_secrets()
        turn, prompts = self._draft_of_map(rows_of(rows), prompt, settings.recipe(self.agent), toolsets)
        first = next(prompts.read(), None)
        if first is None or first.prompt is None:
            raise UsageError(first.problem if first is not None else "There are no rows, so nothing would be sent.")
        row = turn_of_row(turn, model=turn.model, prompt=first.prompt, values=first.values, row=None)
        return engine().call(preview(row)), first.values

    def _shared_meters(self, model: str, *, is_paid: bool = True) -> tuple[Meter, ...]:
        """Return the meters that many turns share: those of the session, a classroom's kernel, the day, and the month.

        The budgets of day and month do not limit a model that costs nothing. They are left out if the turn is replayed
        (`is_paid` is false).
        """
        session = _meter("session", self.max_cost, self.max_tokens, self._paid_usage)
        kernel = replace(_meter("kernel", None, None), live=lambda: ledger().here)
        return session, kernel, *(period_meters(model) if is_paid else ())

    def _account(self) -> Account:
        """Return the account of this session, under which the ledger (the record of all costs) lists its requests."""
        journal = self.history.journal
        name = self.name or ("" if journal is None else journal.path.stem)
        return Account(self.name, self._conversation, name)

    def _count(self, usage: Usage) -> None:
        """Count this usage towards the session's caps. A replayed turn counts with its recorded usage."""
        self._paid_usage += usage

    # -- serving -------------------------------------------------------------------------------

    def serve(self, *, tools: bool = False) -> Serving:
        """Serve the notebook and this conversation over MCP to other programs of this user.

        Serving ends when `stop()` of the returned object is called, the session is closed, or the kernel ends.

        An MCP client can read variables, cells and outputs, run code and propose cells. With `tools` it can also call
        the session's tools; call `serve` again to change that. Each call is a turn of this session, and the session's
        policy decides whether it may run. The user is asked on a card in the notebook; if the user is not there, the
        call is denied. In a replay, nothing is served: recorded calls are played at their places among the turns.

        Raises MissingExtra without the package `mcp`, UsageError in the mode replay-tools or if the settings of the
        administrator or the classroom forbid serving, and the errors of a replay.
        """
        class_settings().check_switch("serve", "The notebook is not served")
        current_host().join(self)
        if self.deck.mode == "replay-tools":
            raise UsageError(
                "The mode replay-tools plays no calls of clients: it asks the model again, and a client is not there. "
                "Choose replay, auto or live: %agent live."
            )
        serving = self.serving or self._make_serving()
        serving.tools = tools
        serving.begin()
        self._serving = serving
        return serving

    def _make_serving(self) -> Serving:
        session = ServedSession(
            running=lambda: self.running,
            is_on_tape=self._is_on_tape,
            next_recorded=self._next_client_turn,
            toolsets=self.toolsets,
            view=lambda: current_host().serve_view(self),
            begin=self._start_client_turn,
        )
        return Serving(session, lambda: to_markdown(self.turns))

    @property
    def serving(self) -> Serving | None:
        """The object that `serve` returned, or None if the notebook is not being served."""
        return None if self._serving is None or self._serving.ended else self._serving

    def _start_client_turn(
        self, prompt: str, driver: TurnDriver, toolsets: Sequence[Toolset], *, attended: bool
    ) -> Run:
        """Start a turn whose tool calls come from an MCP client. Raises SessionBusy and UsageError."""
        approvals = driver.approvals
        if not driver.recorded:  # an "always" of the user is kept when serving is stopped and started again
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
        settings = TurnSettings(agent=recipe, driver=driver, toolsets=toolsets, attended=attended)
        return self._start(user(prompt), settings, None)

    def _next_client_turn(self) -> tuple[str, ToolCall | None] | None:
        """Return the prompt and the call of the next recorded turn, or None if it is not a turn of an MCP client."""
        current_host().join(self)
        with self._starting:
            if self.running or self._changing:
                return None
            return self.deck.next_client_call(len(self.turns), cleared=self.cleared > 0)

    def _is_on_tape(self) -> bool:
        """Return whether the session only replays recorded turns, without live or newly recorded turns."""
        current_host().join(self)
        return self.deck.mode in OFFLINE_MODES

    # -- tools, model and listeners ------------------------------------------------------------

    def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Run one tool of the session without a model; the call is not part of a turn and is not saved.

        The policy and `AGENTMAGIC_PERMISSION` apply as to a model's calls, and the audit log gets a line. A call that
        needs approval runs without asking, since the user wrote it. The result of a denied call gives the reason.

        Raises UsageError if there is no tool of that name, and ServerError if its server is gone.
        """
        engine().refuse_own_thread()
        with engine().main.mark_busy():
            call = ToolCall(f"call_{uuid4().hex}", name, arguments)
            calling = call_by_hand(call, self.toolsets(), self.agent, self._approvals)
            result = engine().submit_from_here(self._connections.with_loop(calling))
            engine().wait(result, lambda: void(result.cancel()))
            return result.result()

    async def aconnect(self) -> tuple[ToolDef, ...]:
        """Connect the agent's MCP servers and return the next turn's tools; callable from any event loop.

        For each server that cannot be reached, a warning is shown when the next turn begins.
        """
        listing = engine().submit(list_sources(self.toolsets()))
        tools, problems = await asyncio.wrap_future(listing)
        self._warn(new_problems(problems, self._unreachable))
        self._last_tools = tuple(tool.definition for tool in tools.values())
        return self._last_tools

    def connect(self) -> tuple[ToolDef, ...]:
        """Connect the agent's MCP servers from synchronous code, and return the next turn's tools."""
        return engine().call(self.aconnect())

    def model(self, agent: Agent | None = None) -> Model:
        """Return the model that a turn would use: that of `AGENTMAGIC_MODEL`, else the agent's, else the default.

        Raises UnknownModel, MissingExtra, and AuthenticationMissing if no model is chosen and no key is set.
        """
        return self._connections.model(agent or self.agent)

    def listen(self, listener: Callable[[Event | HistoryCut], None]) -> Callable[[], None]:
        """Add a function that is called with each later event of the session. Returns a function that removes it.

        The listener gets the events of turns, deltas included, on agentmagic's own thread (the engine's). On any
        thread, it gets a `HistoryCut` when `events` changes: turns were forgotten or a saved conversation was loaded.
        """
        return self._listeners.add(listener)

    def listen_to_maps(self, listener: Callable[[MapProgress], None]) -> Callable[[], None]:
        """Add a function that agentmagic's own thread calls with each later progress report of the session's maps.

        Returns a function that removes the listener.
        """
        return self._map_listeners.add(listener)

    def add_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of this toolset in every later turn. The caller must close the toolset."""
        self._added_toolsets.append(toolset)

    def remove_toolset(self, toolset: Toolset) -> None:
        """Stop offering the tools of this toolset. Do nothing if it was not added."""
        self._added_toolsets = [one for one in self._added_toolsets if one is not toolset]

    def toolsets(self, agent: Agent | None = None) -> tuple[Toolset, ...]:
        """Return the toolsets of a turn: the agent's tools and MCP servers, and those of `add_toolset`.

        Raises ConfigError for a server configuration file that cannot be read.
        """
        recipe = agent or self.agent
        own = inner_toolsets(recipe, self._connections, self._agent_approvals, self.in_doubt)
        return (*own, *self._added_toolsets)

    # -- the history ---------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the conversation, which `undo` can restore. Connections, approvals and the agent stay."""
        with self._between_turns():
            self.history.clear()
        self._tell_cut()

    def compact(self) -> Compacted | None:
        """Let the model summarise older turns now, instead of when its context window is nearly full.

        The history stays whole; only later requests become shorter. Returns the compaction, or None if it would not
        make requests shorter. Raises SessionBusy while a turn runs, and UsageError if a budget is used up or a
        cassette is in use.
        """
        if self.deck.mode != "live":
            raise UsageError(
                "A cassette holds turns only, and a summary now would belong to none. Type %agent live first."
            )
        with self._between_turns():
            learn_secrets()
            turn = self._context(self.agent, self.toolsets(), COMPACT)
            project = _project(self.agent, TurnSettings())
            turn = replace(turn, view=self._view, meters=self._shared_meters(turn.model.name), project=project)
            try:
                compaction = engine().call(self._connections.with_loop(compact(turn)))
            except BudgetExhausted as spent:
                raise UsageError(str(spent)) from None
            if compaction is None:
                return None
            self.history.record(compaction)
            self.history.amend(compaction)
            self._paid_usage += compaction.usage
        self._tell_cut()
        return compaction

    @property
    def context_tokens(self) -> int:
        """The approximate number of tokens of the history in the next request, from the provider's last count."""
        run = self.running
        logs = chain([run.events] if run is not None else [], (turn.events for turn in reversed(self.turns)))
        sizes = (_size_of(event) for log in logs for event in reversed(log))
        return next(filter(None, sizes), 0) or sum(map(tokens_of_message, self.messages))

    def undo(self) -> Message | None:
        """Undo the last turn, edit or clear, and restore the notebook variables that its tools changed.

        Returns the prompt of the turn that is forgotten, or None if a clear was undone or there is nothing to undo.
        `undone` says which variables were restored; a notebook prints it. Call this in the kernel's main thread, where
        the notebook's code runs.
        """
        return self._step_and_report(redo=False)

    def redo(self) -> Message | None:
        """Redo the change that was undone last. Return the prompt of the turn that is restored, or None."""
        return self._step_and_report(redo=True)

    def _step_and_report(self, *, redo: bool) -> Message | None:
        """Undo or redo. The front end shows the user the outcome. If it cannot, the problems are logged."""
        outcome = self.step_back(redo=redo)
        is_shown = current_host().tell_undone(self, redo=redo)
        if outcome is None:
            return None
        for problem in () if is_shown else outcome.problems:
            logger.warning(problem)
        return outcome.prompt

    def step_back(self, *, redo: bool = False) -> Undone | None:
        """Undo or redo a change of the history and of its variables, for a caller that shows the outcome itself.

        Returns the outcome, or None if there is nothing to undo or redo.
        """
        with self._between_turns(calls=False):
            prompt = self.history.redo() if redo else self.history.undo()
            looks = 0
            while not redo and self._undoes_further():
                prompt, looks = self.history.undo(), looks + 1
            change = self.history.changes.last_change
            self.undone = None
            if change is not None:
                last = change.after[-1] if change.kind != "clear" and change.after else None
                tools = tuple(dict.fromkeys(last.tools)) if last is not None else ()
                outcome = Undone(change.kind, redo, len(self.turns), prompt, tools=tools, looks=looks)
                self.undone, change.variables = restore_turn(change.variables, outcome)
        self._tell_cut()
        return self.undone

    def _undoes_further(self) -> bool:
        """Return whether undo should go one turn further back.

        This is so if the turn that was just undone only read the notebook for an MCP client, and the turn before is
        also a call of an MCP client. Clients often read the result of a change that they made; the user wants to undo
        the change, not the reading. A denied call counts as reading, since it ran no tool.
        """
        changes = self.history.changes
        change, before = changes.last_change, changes.done[-1:]
        if change is None or change.kind != "turn" or change.variables or any(one.kind != "turn" for one in before):
            return False
        only_read = _is_served(change.after[-1]) and {*LOOKS, READER}.issuperset(change.after[-1].tools)
        return only_read and bool(self.turns) and _is_served(self.turns[-1])

    @property
    def open_plan(self) -> Checklist | None:
        """The plan that the last turn left unfinished, or None if none exists or the user has dropped it."""
        return open_plan(self._plans())

    def drop_plan(self) -> None:
        """Drop the plan that the last turn left unfinished, so that the next turn does not ask whether to resume it."""
        self._turn_of_dropped_plan = self.turns[-1] if self.turns else None

    def _plans(self, keep: int | None = None) -> list[tuple[Event, ...]]:
        """Return the events of each turn in which an unfinished plan may have begun or continued.

        These are the turns since the user last dropped a plan, among the first `keep` turns (by default all). Turns of
        MCP clients are left out: they neither have nor end plans.
        """
        turns = self.turns[:keep]
        start = next((place for place, turn in enumerate(turns, 1) if turn is self._turn_of_dropped_plan), 0)
        return [turn.events for turn in turns[start:] if not _is_served(turn)]

    @property
    def cleared(self) -> int:
        """The number of turns that `clear` has forgotten if it was the last change of the history, else 0."""
        last = self.history.changes.done[-1:]
        return len(last[0].before) if last and last[0].kind == "clear" else 0

    def fork(self, turns: int | None = None) -> "Session":
        """Return a new session that begins with the first `turns` turns of this session, by default all.

        The new session has the same agent and caps, and the copied turns count towards its caps. It opens its own
        connections, and is not saved to a file.
        """
        copy = Session(self.agent, max_cost=self.max_cost, max_tokens=self.max_tokens)
        copy._watcher = Watcher(self._watcher.own_namespace)
        copy.history = self.history.fork(turns)
        copy._turn_of_dropped_plan = self._turn_of_dropped_plan
        copy._paid_usage = copy.history.usage
        copy.in_doubt.update(self.in_doubt)
        copy._added_toolsets = list(self._added_toolsets)
        return copy

    def __deepcopy__(self, _memo: object) -> "Session":
        return self.fork()  # since connections and locks cannot be copied

    __copy__ = fork

    def chat(self) -> None:
        """Show the chat panel in this cell: the conversation, updated live, with a box for the next prompt.

        A second call moves the same panel to its cell. In nbconvert and papermill, the output is the conversation so
        far. In a terminal, it says where panels work. Raises UsageError in a script.
        """
        current_host().show_panel(self)

    def search(self, words: str) -> list[Match]:
        """Return the places where a text occurs in prompts, answers, tool calls and results, ignoring case."""
        return self.history.search(words)

    def take_notices(self) -> tuple[Notice, ...]:
        """Remove and return the notices to the user that wait for the next turn, for a caller that shows them now."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices

    def save(self, path: str | Path) -> None:
        """Save the conversation to a new file. If the session had no file before, later turns are saved there too.

        Raises UsageError if the file exists or cannot be written.
        """
        if Path(path).exists():
            raise UsageError(f"{path} is there already, and was left as it is. Name another file.")
        with self._between_turns():
            self.history.save(self._journal(path), self.in_doubt)

    def save_from_now(self, path: str | Path) -> None:
        """Save the turns so far and all later events to this file, unless the session has a file already."""
        with self._between_turns(calls=False):
            self.history.write_to(self._journal(path))

    def restore(self, path: str | Path | None = None) -> None:
        """Load the conversation saved at `path`, by default the session's own file, and save later turns there.

        Raises JournalError if the file is missing or cannot be read, and UsageError if an unsaved conversation would
        be lost.
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
            journal_content = journal.resume()
            self.history = History.from_journal(journal_content, journal)
            self._approvals = Approvals(self.in_doubt)  # earlier approvals were for the previous conversation
            self._client_approvals.clear()
            self._agent_approvals.clear()
            self.in_doubt.update(journal_content.in_doubt)
            self._paid_usage = journal_content.spent
            self._warn(journal_content.problems)
        self._tell_cut()

    # -- closing -----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop serving, cancel the running turn or map, and close models and servers.

        Callable from any event loop, and more than once.
        """
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
            self.history.changes.drop_variables()
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
        counts = f"{plural(len(self.turns), 'turn')}, {plural(len(self.messages), 'message')}"
        return f"<Session {clip(str(model or 'default model'), 100)}: {counts}{state}>"

    # -- turns for front ends ------------------------------------------------------------------

    def preview_of(self, prompt: Prompt, settings: TurnSettings) -> Preview:
        """Return the preview of a turn as `preview` does, for a front end."""
        learn_secrets()
        recipe = settings.recipe(self.agent)
        project = _project(recipe, settings)
        sources = with_skills(self._sources(recipe, settings), project)
        return engine().call(preview(replace(self._context(recipe, sources, prompt), project=project)))

    def _context(
        self,
        recipe: Agent,
        sources: Sequence[Toolset],
        prompt: Prompt,
        model: Model | None = None,
        driver: TurnDriver | None = None,
    ) -> TurnContext:
        """Return the context that all turns of the session begin with; the caller adds what belongs to one turn."""
        model = self.model(recipe) if model is None else model
        return TurnContext(
            recipe,
            model,
            sources,
            as_prompt(prompt),
            history=self.history,
            approvals=self._approvals if driver is None else driver.approvals,
            facts=self._facts_of(model) if driver is None else CLIENT_FACTS,
            seen_notices=self._noted,
            unreachable=self._unreachable,
            watcher=self._watcher,
            caller="" if driver is None else driver.model.name,
            account=self._account(),
            name=self.name if recipe.agent_tools else "",
        )

    def _facts_of(self, model: Model) -> "ModelInfo":
        """Return the facts about a model, such as the size of its context window.

        If the facts equal those of the last call, that object is returned: for a new object, `RequestView` is rebuilt.
        """
        facts = info(model.name, address_of(model))
        if self._facts is None or self._facts != facts:
            self._facts = facts
        return self._facts

    def begin(self, prompt: Prompt | None, settings: TurnSettings, turn: int | None = None) -> Run:
        """Start a turn as `start` does, or as `edit` does if `turn` is given, for a front end.

        If the settings are invalid, an error is raised before anything changes.
        """
        keep = None if turn is None else self._index_of(turn)
        if keep is not None and not prompt:
            if _is_served(self.turns[keep]):
                raise UsageError("That turn is a call of a client, which makes it again itself. Give another prompt.")
            prompt, values = _prompt_of(self.turns[keep])
            settings = replace(settings, values=settings.values or values)
        view = current_host().view(self) if settings.attended is None else None
        if view is not None:
            settings = replace(settings, attended=view.attended)
        self._play_client_turns()
        run = self._start(as_prompt(cast("Prompt", prompt)), settings, keep)
        if view is not None:
            run.view = view
            view.begin(run)
        return run

    def _start(self, message: Message, settings: TurnSettings, keep: int | None) -> Run:
        """Start a turn after the first `keep` turns, by default after all turns."""
        recipe, driver = settings.recipe(self.agent), settings.driver
        sources = self._sources(recipe, settings)
        outside = self._outside_turn(recipe) if driver is None else None
        run: PlayTurn = run_turn if outside is None else outside.run
        real: Callable[[], Model] = partial(self.model, recipe) if outside is None else outside.model
        real = real if driver is None else lambda: driver.model
        learn_secrets()
        with self._starting:
            self._refuse_while_busy()
            if keep is None and self.turns and self.turns[-1] is self._mismatched_turn:
                keep = len(self.turns) - 1
            message = self._with_fates(message, keep)
            plan = settings.planning(self._plans(keep)) if driver is None else None
            current_host().join(self)
            tape = self.deck.turn(
                message,
                recipe,
                real,
                turns=len(self.turns[:keep]),
                cleared=self.cleared > 0,
                mode=settings.replay,
                values=tuple(settings.values),
                notices=self._notices,
                served=driver is not None,
                recorded=driver is None or driver.recorded,
            )
            project = _project(recipe, settings, recorded=None if tape is None else tape.project)
            sources = with_skills(sources, project)
            if tape is not None:
                message, sources = tape.with_recorded_fates(message), tape.toolsets(sources)
                run = partial(tape.play, run=run)
            if outside is not None:
                outside.on_tape(tape)
            is_paid = tape is None or tape.mode not in OFFLINE_MODES
            model = real() if tape is None else tape.model
            # The calls of an outside program cost nothing, so there is no limit for its turn alone.
            own = () if driver is not None else (_meter("turn", recipe.max_cost, recipe.max_tokens),)
            turn = replace(
                self._context(recipe, sources, message, model, driver),
                view=self._view if driver is None else driver.view,
                meters=(*own, *self._shared_meters(model.name, is_paid=is_paid)),
                notices=self._notices,
                plan=plan,
                step=settings.step and bool(settings.attended),
                values=tuple(settings.values),
                project=project,
            )
            self._queue_notices(recipe, model, settings)  # last: a turn that a budget refuses queues none
            play = partial(self._play, turn, keep, run if driver is None else driver.asks_in(run), is_paid)
            self._run = Run(
                play,
                self._listeners,
                attended=bool(settings.attended),
                abort=settings.abort,
                # In an MCP client's turn, tools run where `serve` was called, not in the pool thread of this call.
                started_by=None if driver is None else caller.get(),
            )
        return self._run

    def _outside_turn(self, recipe: Agent) -> "OutsideTurn | None":
        """Return what runs the turn with an outside agent (another program), or None if the turn uses a model."""
        if not is_outside(model := model_override() or recipe.model):
            return None
        from agentmagic.acp.turn import OutsideTurn

        return OutsideTurn(str(model), partial(self.model, recipe))

    def _index_of(self, turn: int) -> int:
        """Return a turn's index, counted from 0. `turn` may be negative. Raises UsageError if no turn has it."""
        if not -len(self.turns) <= turn < len(self.turns):
            raise UsageError(f"There is no turn {turn}: the session has {len(self.turns)}, which count from 0.")
        return turn % len(self.turns)

    def _queue_notices(self, recipe: Agent, model: Model, settings: TurnSettings) -> None:
        """Queue the notices that a turn begins with."""
        overrides = override_notes(None if settings.driver else model.name, _chosen_model(recipe), settings.replay)
        infos = (*overrides, *self._connections.notes(recipe, model))
        self._notices.extend(Notice("info", words) for words in self._noted.new(infos))
        unattended = (UNATTENDED,) if settings.step and not settings.attended else ()
        self._warn((*settings.notices, *self._noted.new(unattended)))

    def _sources(self, recipe: Agent, settings: TurnSettings) -> Sequence[Toolset]:
        """Return the toolsets of a turn: those in its settings if given, else those of the agent and the session."""
        return self.toolsets(recipe) if settings.toolsets is None else tuple(settings.toolsets)

    async def _play(
        self, turn: TurnContext, keep: int | None, run: PlayTurn, is_paid: bool, channel: Channel
    ) -> Outcome:
        """Run a turn and add it to the history."""
        if keep is not None:
            self.history.cut(keep)
            self._tell_cut()
        outcome = await self._connections.with_loop(run(turn, channel))
        self.history.add(channel.events, outcome.result.history_delta)
        is_mismatch = isinstance(outcome.error, ReplayMismatch) and not outcome.result.final_text
        self._mismatched_turn = self.turns[-1] if is_mismatch else None
        self.traffic.keep(self.turns[-1], turn.traffic)
        self.history.changes.store_variables(outcome.changes)
        self._count(outcome.result.usage)
        if is_paid and outcome.result.stop_reason in ("error", "timeout") and _may_cost(turn, outcome.result.usage):
            turn.account.fail(turn.model.name)
        self._last_tools = outcome.tools or self._last_tools
        while self._early_decisions:
            self._record_decision(self._early_decisions.popleft())
        return outcome

    @contextmanager
    def _between_turns(self, *, calls: bool = True) -> Generator[None]:
        """Keep turns from starting while a `with` block changes or reads the history. Raises SessionBusy if one runs.

        With `calls`, a replay first plays the recorded calls of MCP clients that come next. Undo and redo set `calls`
        to False, because they are not part of a recording.
        """
        if calls:
            self._play_client_turns()
        with self._starting:
            self._refuse_while_busy()
            self._changing = True
        try:
            yield
        finally:
            self._changing = False

    def _play_client_turns(self) -> None:
        """In a replay, play the recorded calls of MCP clients that come before the operation that starts now."""
        if self._serving is not None:
            self._serving.play_recorded()

    def _refuse_while_busy(self) -> None:
        run = self.running
        if run is not None and _is_served(run):
            raise SessionBusy("A call of a client is under way. Decide about its card, or wait for it, and try again.")
        if run is not None or self._changing:
            state = "The history is being changed" if self._changing else "A turn is running"
            raise SessionBusy(f"{state}. Wait for it, or cancel it, and try again.")

    def _warn(self, warnings: Iterable[str]) -> None:
        """Queue warnings, which the user sees when the next turn begins."""
        self._notices.extend(Notice("warning", words) for words in warnings)

    def _tell_cut(self) -> None:
        self._listeners.tell(HistoryCut(len(self.turns)))

    def _journal(self, path: str | Path) -> Journal:
        class_settings().check_switch("save", "The conversation is not saved")
        notices = self._notices  # a local variable, since `self` in the lambda would keep the session alive
        return Journal(Path(path), tell=lambda words: notices.append(Notice("warning", words)))


def _project(recipe: Agent, settings: TurnSettings, *, recorded: Collection[str] | None = None) -> Project:
    """Return the project files that a turn uses. MCP clients and outside agents get none: they have their own rules."""
    is_ours = settings.driver is None and not is_outside(model_override() or recipe.model)
    asks = bool(settings.attended)
    project = project_here(rules=recipe.rules and is_ours, asks=asks, recorded_names=recorded)
    return project if settings.skills else project.without_skills()


def _chosen_model(recipe: Agent) -> str:
    """Return the full name of the model that an agent names, or "" if it names none."""
    model = recipe.model
    return display_name(full_name(model)) if isinstance(model, str) else "" if model is None else model.name


def _prompt_of(turn: Turn) -> tuple[Message, Sequence[PromptValue]]:
    """Return the prompt of a turn, and the values that the prompt names with `{...}` or `@...`."""
    start = turn.events[0]
    return turn.prompt, start.values if isinstance(start, TurnStarted) else ()


def _is_served(turn: Turn | Run) -> bool:
    """Return whether an MCP client made the turn, by a call to the served notebook."""
    start = next(iter(turn.events), None)
    return isinstance(start, TurnStarted) and start.client != ""


def _size_of(event: Event) -> int:
    """Return the size of the conversation in tokens that an event reports, 0 if it reports none."""
    match event:
        case Compacted():
            return event.after
        case StepFinished():
            return event.usage.input_tokens + event.usage.output_tokens
        case _:
            return 0


def _may_cost(turn: TurnContext, usage: Usage) -> bool:
    """Return whether a turn could cost something: no call of an MCP client, no replay, no model that costs nothing."""
    is_free_turn = is_free(turn.model.name) and usage.cost == 0  # an agent with a loop of its own reports its cost
    return not (turn.caller or is_played(turn.model) or is_free_turn)


def _meter(of: str, max_cost: float | None, max_tokens: int | None, spent: Usage = NOTHING) -> Meter:
    """Return a meter. Classroom limits replace limits that are None. Raises UsageError for a limit above theirs.

    `of` names what is limited: "turn", "session" or "kernel". `spent` is the usage that already counts towards it.
    """
    bounds, prefix = class_settings(), "" if of == "turn" else "session_"
    cost = bounds.cap("max_cost", max_cost, session=bool(prefix))
    tokens = bounds.cap("max_tokens", max_tokens, session=bool(prefix))
    limits = {"max_cost": max_cost, "max_tokens": max_tokens}
    caps = [f"{prefix}{name}" for name, own in limits.items() if own is None]
    class_limits = " and ".join(bounds.setting_with_file(name) for name in caps if getattr(bounds, name) is not None)
    return Meter(of, cost, None if tokens is None else int(tokens), spent, class_limits)
