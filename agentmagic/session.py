"""A conversation and its turns: `Session` holds the past, `Run` is a turn under way."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.engine import caller_loop, engine
from agentmagic.errors import AuthenticationMissing, SessionBusy, UsageError
from agentmagic.events import (
    ApprovalAsked,
    Approve,
    Deny,
    Event,
    Intent,
    QuestionAsked,
    Reply,
    RunResult,
    Stop,
    ToolFinished,
)
from agentmagic.history import History
from agentmagic.loop import Outcome, run_turn
from agentmagic.messages import Content, Message, ToolDef, Usage, user
from agentmagic.permission import Policy
from agentmagic.providers.base import Model
from agentmagic.providers.registry import default_model, resolve
from agentmagic.tools.base import Tool, Toolset
from agentmagic.tools.functions import Functions, function_tool

logger = logging.getLogger("agentmagic")

ABORT_POLL = 0.05
"""Seconds between two looks at an abort event, which may be a threading or an asyncio one."""

LONGEST_PROMPT = 2_000_000
"""Characters of a prompt; more fits no model's window, and would only be refused after a long upload."""


class AbortEvent(Protocol):
    """What `start(abort=...)` takes: a `threading.Event` or an `asyncio.Event`."""

    def is_set(self) -> bool:
        """Whether the run should end."""
        ...


class Session:
    """One conversation of an agent: its history, its open tool connections, its totals.

    Turns never interleave: a second one while one is running raises SessionBusy. Use it as an async
    context manager, or close it with `close()`; what is left open is closed when the process ends.
    """

    def __init__(self, agent: Agent | str | Model | None = None) -> None:
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        self.history = History()
        self._models: dict[str, Model] = {}
        self._approved: set[tuple[str, str]] = set()
        self._servers = _connect(self.agent.mcp)
        self._extra: list[Toolset] = []
        self._listed: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        engine().at_close(self.aclose)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history: what every next request begins with."""
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
        own = [function_tool(source) if _is_function(source) else source for source in self.agent.tools]
        return tuple(tool.definition for tool in own if isinstance(tool, Tool))

    @property
    def tool_calls(self) -> int:
        """How many tool calls were settled."""
        return sum(isinstance(event, ToolFinished) for event in self.events)

    @property
    def tool_failures(self) -> int:
        """How many tool calls did not succeed."""
        return sum(isinstance(event, ToolFinished) and event.result.is_error for event in self.events)

    @property
    def running(self) -> "Run | None":
        """The turn under way, if there is one."""
        return self._run if self._run is not None and not self._run.done else None

    def start(
        self,
        prompt: "str | Message | list[str | Content]",
        *,
        abort: AbortEvent | None = None,
        agent: Agent | None = None,
        attended: bool = False,
    ) -> "Run":
        """Begin a turn and return at once.

        `abort` ends the run once it is set. `agent` stands in for the session's for this turn.
        `attended` says that somebody watches the events and answers approvals and questions with
        `run.send`; otherwise a call that needs approval is denied.

        Raises SessionBusy while a turn is running, and UsageError for a prompt or model that cannot be.
        """
        if self.running:
            message = "This session is busy with a turn. Wait for it, or cancel it."
            raise SessionBusy(message)
        recipe = agent or self.agent
        run = Run(self, recipe, self.model(recipe), _as_message(prompt), attended=attended)
        self._run = run
        run.begin(abort)
        return run

    def ask(self, prompt: "str | Message | list[str | Content]", **options: Any) -> RunResult:
        """Run a turn and wait for its result; for synchronous code, in a cell and in a script.

        Takes the options of `start` and raises what `Run.wait` raises.
        """
        return self.start(prompt, **options).wait()

    def model(self, agent: Agent | None = None) -> Model:
        """Return the model a turn would use: `AGENTMAGIC_MODEL` before the recipe's before the default.

        Raises UnknownModel, MissingExtra, and AuthenticationMissing where nothing is chosen and no key is set.
        """
        chosen = settings.model_override() or (agent or self.agent).model or default_model()
        if chosen is None:
            message = (
                "No model is chosen and no key is set. Set OPENAI_API_KEY or GEMINI_API_KEY, or choose the small "
                'model of this machine, which needs no key: "local:".'
            )
            raise AuthenticationMissing(message, ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"))
        if not isinstance(chosen, str):
            return chosen
        if chosen not in self._models:
            self._models[chosen] = resolve(chosen)
        return self._models[chosen]

    def add_toolset(self, toolset: Toolset) -> None:
        """Offer the tools of a source in every turn from now on; whoever made it closes it."""
        self._extra.append(toolset)

    def clear(self) -> None:
        """Forget the conversation; connections, approvals and the recipe stay."""
        self._refuse_while_running()
        self.history.clear()

    def undo(self) -> Message | None:
        """Forget the last turn and return its prompt, or None where there is none."""
        self._refuse_while_running()
        return self.history.undo()

    def _refuse_while_running(self) -> None:
        if self.running:
            message = "A turn is running. Wait for it, or cancel it, and try again."
            raise SessionBusy(message)

    def toolsets(self, agent: Agent) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn: the recipe's own, its servers, and those added."""
        functions = [source for source in agent.tools if _is_function(source)]
        single = [source for source in agent.tools if isinstance(source, Tool)]
        sets: list[Toolset] = [Functions(functions)] if functions else []
        sets += [_Single(tuple(single))] if single else []
        sets += [source for source in agent.tools if not isinstance(source, Tool) and not _is_function(source)]  # type: ignore[misc]
        sets += [self._servers] if self._servers else []
        return (*sets, *self._extra)

    def policy(self, agent: Agent) -> Policy:
        """Return the policy of a turn; it shares the answers a person gave in this session."""
        return Policy(agent.permission, self._approved)

    def finished(self, run: "Run", result: RunResult, listed: tuple[ToolDef, ...]) -> None:
        """Take the finished turn into the history; called on the engine."""
        self.history.add((*result.events, run.events[-1]), result.history_delta)
        self._listed = listed or self._listed

    async def aclose(self) -> None:
        """Cancel what runs and close the session's models and servers; safe to call twice."""
        if (run := self.running) is not None:
            run.cancel()
            await asyncio.wrap_future(run.settled)
        engine().forget(self.aclose)
        for model in self._models.values():
            await model.aclose()
        if self._servers:
            await self._servers.aclose()

    def close(self) -> None:
        """Close the session from synchronous code."""
        engine().call(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.wrap_future(engine().submit(self.aclose()))

    def __repr__(self) -> str:
        model = self.agent.model if isinstance(self.agent.model, str) else getattr(self.agent.model, "name", "default")
        state = ", running" if self.running else ""
        return f"<Session {model or 'default model'}: {self.history.turns} turns, {len(self.messages)} messages{state}>"


class Run:
    """A turn under way: await it, iterate over its events, cancel it, answer its questions.

    Iterating yields every event from the first on, whenever it begins; several may iterate at once.
    """

    def __init__(self, session: Session, agent: Agent, model: Model, prompt: Message, *, attended: bool) -> None:
        self.session = session
        self.settled: Future[None] = Future()
        self._agent = agent
        self._model = model
        self._prompt = prompt
        self._attended = attended
        self._events: list[Event] = []
        self._outcome: Outcome | None = None
        self._listeners: list[Callable[[Event], None]] = []
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._lock = threading.Lock()
        self._waking = False
        self._open: dict[str, asyncio.Future[Intent]] = {}
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def events(self) -> tuple[Event, ...]:
        """What has happened so far."""
        return tuple(self._events)

    @property
    def done(self) -> bool:
        """Whether the turn is over."""
        return self.settled.done()

    def begin(self, abort: AbortEvent | None) -> None:
        """Start the turn on the engine, in a copy of the caller's context."""
        token = caller_loop.set(_running_loop())
        try:
            engine().submit(self._main(abort))
        finally:
            caller_loop.reset(token)

    def cancel(self) -> None:
        """End the turn, from any thread; what was finished stays, and the result says "cancelled"."""
        self._cancelled = True
        engine().loop.call_soon_threadsafe(self._cancel_task)

    def send(self, intent: Intent) -> None:
        """Answer an approval or a question of this run, or stop it, from any thread."""
        if isinstance(intent, Stop):
            self.cancel()
        else:
            engine().loop.call_soon_threadsafe(self._answer, intent)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Have a function called on the engine's thread with every event, from the first on."""
        engine().loop.call_soon_threadsafe(self._listen, listener)

    def wait(self) -> RunResult:
        """Wait for the result in synchronous code; the main thread does its tools' work meanwhile.

        Raises TurnTimeout, or the error the turn failed of, each with the partial result as `.result`, and
        KeyboardInterrupt where the person interrupted.
        """
        interrupted = threading.Event()

        def interrupt() -> None:
            interrupted.set()
            self.cancel()

        engine().wait(self.settled, interrupt)
        if interrupted.is_set():
            raise KeyboardInterrupt
        return self.result()

    def result(self) -> RunResult:
        """Return the result of a turn that is over, or raise what it failed of."""
        if self._outcome is None:
            message = "The turn is not over. Await the run first."
            raise UsageError(message)
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.result

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._join().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self.done:
                return
            await self._more(position)

    # -- on the caller's side ------------------------------------------------------------------

    async def _join(self) -> RunResult:
        try:
            await asyncio.shield(asyncio.wrap_future(self.settled))
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()

    async def _more(self, position: int) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if len(self._events) > position or self.done:
                return
            self._waiters.append((loop, waiter))
        await waiter

    # -- on the engine -------------------------------------------------------------------------

    async def _main(self, abort: AbortEvent | None) -> None:
        self._task = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(abort)) if abort is not None else None
        if self._cancelled:
            self._cancel_task()
        toolsets = self.session.toolsets(self._agent)
        outcome = await run_turn(
            self._agent,
            self._model,
            toolsets,
            self.session.messages,
            self._prompt,
            emit=self._emit,
            ask=self._ask,
            policy=self.session.policy(self._agent),
            notices=settings.overrides(),
        )
        if watcher is not None:
            watcher.cancel()
        self._outcome = outcome
        self.session.finished(self, outcome.result, outcome.tools)
        self.settled.set_result(None)
        self._wake()

    async def _watch(self, abort: AbortEvent) -> None:
        while not abort.is_set():
            await asyncio.sleep(ABORT_POLL)
        self.cancel()

    def _cancel_task(self) -> None:
        if self._task is not None and not self.done:
            self._task.cancel()

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        for listener in self._listeners:
            self._tell(listener, event)
        if self._waiters and not self._waking:
            self._waking = True
            engine().loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake whoever waits for events: once for all that came in one pass of the engine's loop."""
        with self._lock:
            waiters, self._waiters = self._waiters, []
            self._waking = False
        for loop, waiter in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_release, waiter)

    def _listen(self, listener: Callable[[Event], None]) -> None:
        for event in self._events:
            self._tell(listener, event)
        self._listeners.append(listener)

    def _tell(self, listener: Callable[[Event], None], event: Event) -> None:
        try:
            listener(event)
        except Exception:
            logger.exception("a listener failed and is not called again")
            self._listeners = [other for other in self._listeners if other is not listener]

    async def _ask(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        if not self._attended:
            return None
        answer: asyncio.Future[Intent] = asyncio.get_running_loop().create_future()
        self._open[question.id] = answer
        try:
            return await answer
        finally:
            del self._open[question.id]

    def _answer(self, intent: "Approve | Deny | Reply") -> None:
        waiting = self._open.get(intent.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(intent)


class _Single:
    """A toolset of tools made by hand."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._tools = tools

    async def tools(self) -> tuple[Tool, ...]:
        return self._tools

    async def aclose(self) -> None:
        pass


def _is_function(source: object) -> bool:
    return callable(source) and not isinstance(source, (Tool, Toolset))


def _connect(mcp: Any) -> Any:
    if not mcp:
        return None
    from agentmagic.tools.mcp import McpServers

    return McpServers.of(mcp)


def _as_message(prompt: "str | Message | list[str | Content]") -> Message:
    message = prompt if isinstance(prompt, Message) else user(*([prompt] if isinstance(prompt, str) else prompt))
    if len(message.text) > LONGEST_PROMPT:
        words = (
            f"The prompt has {len(message.text):,} characters; no model takes more than {LONGEST_PROMPT:,}. "
            "Put the data into a variable and give the agent a tool that reads it."
        )
        raise UsageError(words)
    if not message.text.strip() and len(message.parts) <= 1:
        words = "The prompt is empty. Write what the agent should do."
        raise UsageError(words)
    return message


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


