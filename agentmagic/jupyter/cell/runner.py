"""Runs one `%%agent` cell: from its options and body to the output or the error that it leaves."""

import asyncio
import contextvars
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial, wraps
from getpass import getpass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import clear_output

from agentmagic import settings
from agentmagic.agent import Agent, Output
from agentmagic.approval.policy import policy_of
from agentmagic.context.rules import commands_here
from agentmagic.errors import AgentMagicError, AuthenticationMissing, SessionBusy, UsageError, with_code
from agentmagic.events import Event, RunResult, ToolFinished, TurnFinished, innermost
from agentmagic.host import RunView
from agentmagic.jupyter.cell.answers import AnswerVariable, read_type
from agentmagic.jupyter.cell.questions import Questions
from agentmagic.jupyter.cell.screens import screen_of
from agentmagic.jupyter.cell.turn_queue import QueuedTurn, TurnQueue, why_not_begun
from agentmagic.jupyter.frontend import FrontEnd, Kind, agreed, front_end, say
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.options import Ask, read_settings
from agentmagic.jupyter.notebook.capture import open_figures
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace
from agentmagic.jupyter.prompt.references import TypedPrompt, prompt_of
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import Message, Prompt, as_prompt
from agentmagic.prompt.project_commands import command_prompt, find_command
from agentmagic.providers.registry import providers
from agentmagic.run import Run
from agentmagic.runtime.engine import engine, in_thread
from agentmagic.secrets import redact
from agentmagic.session import Session
from agentmagic.tools.base import Toolset
from agentmagic.tools.functions import Functions
from agentmagic.tools.web import web_fetch, web_search

if TYPE_CHECKING:
    from agentmagic.jupyter.cell.screens import Retry
    from agentmagic.widgets.view import View

P = ParamSpec("P")
T = TypeVar("T")

OFFER = "No model is chosen and no key is set. Use the small local model (1.1 GB, fetched once)? [y/N] "
INTERRUPTED = "the turn was cancelled; what was finished is kept."
ABANDONED = "the cell no longer waits for the turn, which ends when its tool does."
LATER = "Later turns of this conversation have answers. Run the cell again to ask at its end."
ANSWER_FIRST = "Another turn of this session waits for your answer on its card. This cell goes on after it."
ANSWER_LATER = (
    "Another turn of this session waits for your answer on its card, and clicks reach this kernel only between cells. "
    "Interrupt this cell, answer, and run it again."
)
NO_TOOLS = "The model called a tool, and there are none. Mark a function with @tool, or connect a server."


class TurnFailed(AgentMagicError):
    """A turn ended without an answer; `result` is its result."""

    code = "no-tools"


class TurnInterrupted(KeyboardInterrupt):
    """The user interrupted a turn; `is_shown` says that the output of the cell tells it."""

    is_shown = False

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


def quiet_stop(_shell: object, _kind: object, error: TurnInterrupted, *_: object, **_named: object) -> list[str]:
    """Show no error for a cell that the user interrupted. It ends as one that failed: no later cell runs."""
    if not error.is_shown:
        say(f"Interrupted: {error}")
    return []


def one_line(function: Callable[P, T]) -> Callable[P, T]:
    """Have IPython show the errors of a magic as one line without a traceback; their classes stay."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except AgentMagicError as error:
            error.args = (redact(str(error)),)  # a notebook saves the arguments beside the line
            message = "the turn failed; the output says why." if error.is_shown else with_code(error)
            line = f"{type(error).__name__}: {message}"
            cast("Any", error)._render_traceback_ = lambda: [line]
            raise
        except TurnInterrupted:
            raise
        except (KeyboardInterrupt, CancelledError):  # the engine cancels the work that an interrupted cell waited for
            raise TurnInterrupted("what was under way is given up.") from None

    return call


@dataclass(frozen=True)
class CellSetup:
    """What a cell asks with: its session and agent, the form of the answer and its variable; `view` makes its view."""

    front: FrontEnd
    session: Session
    recipe: Agent
    output: Output | None
    answer: AnswerVariable | None
    view: "Callable[[], CellView]"


class Runner:
    """Runs the turns of a notebook's cells."""

    def __init__(self, shell: InteractiveShell, namespace: Namespace) -> None:
        self._shell = shell
        self._namespace = namespace

    def ask(self, command: Ask, body: str) -> RunResult | None:
        """Run a turn, show it and return its result; with `--bg` return at once, and None.

        Raises the error of the turn, unless `--keep-going` is given; and TurnInterrupted.
        """

        def prompt(session: Session, recipe: Agent) -> TypedPrompt:
            known = self._namespace.attachables(session, recipe)
            typed = prompt_of(body, session.toolsets(recipe), known, evaluate=True, images=command.image)
            if not command.command:
                return typed
            chosen = find_command(command.command, commands_here(rules=recipe.rules))
            filled, told = command_prompt(chosen, typed.prompt, command.arguments)
            return replace(typed, prompt=filled, told=(told, *typed.told))

        return self.put(command, prompt)

    def put(
        self, command: Ask, prompt: Message | Callable[[Session, Agent], TypedPrompt], *, resume: bool = False
    ) -> RunResult | None:
        """Run a turn of a prompt, or of one that is made when its session and agent are known.

        With `resume` the turn goes on with the plan that the last one left open.
        """
        made = self.prepare(command)
        front, session, recipe, output, view = made.front, made.session, made.recipe, made.output, made.view
        typed = prompt(session, recipe) if callable(prompt) else TypedPrompt(prompt)
        for problem in typed.problems:
            say(problem)
        skills = not command.no_tools and command.tools is None
        given = command.given(TurnSettings)
        chosen = TurnSettings(**given, values=typed.told, output=output, resume=resume, skills=skills)
        settings_for = partial(self._settings_for, session, command, chosen)
        if command.show:
            shown = session.fork(0) if command.new else session
            say(formatting.preview(shown.preview_of(typed.prompt, settings_for(recipe)), typed.told))
            return None

        def renewed() -> TurnSettings:  # of the session's present agent, which the user may have mended
            return settings_for(_recipe(session, command))

        turn = _CellTurn(session, typed.prompt, settings_for(recipe), renewed, front, view(), made.answer)
        if command.bg and front.kind is not Kind.BATCH:  # a batch run would end before the turn
            turn.run_in_background()
            return None
        try:
            return turn.run()
        except AgentMagicError as error:
            if not command.keep_going or error.result is None:  # without a result no turn has run
                raise
            return error.result

    def prepare(self, command: Ask) -> "CellSetup":
        """Return what a cell asks with, once its session is free and has a model."""
        front = front_end(self._shell)
        variables = self._namespace.variables
        output = None if command.as_type is None else read_type(command.as_type, variables)
        is_new = not isinstance(variables.get(command.name), Session)
        session = self._namespace.session(command.name)
        answer = None if command.out is None else AnswerVariable(command.out, output, variables)
        wait_for_turn(session, front)
        if command.new and not command.show:
            session.clear()
        recipe = _recipe(session, command)
        # Not made for `--show`, if a model is there.
        view = cache(partial(CellView, front, session, replay=command.replay, step=command.step, large=command.large))
        if not session.deck.answers(command.replay):
            recipe = self._with_model(session, recipe, view)
        if is_new and command.name != DEFAULT_SESSION:
            say(formatting.new_session(command.name))
        return CellSetup(front, session, recipe, output, answer, view)

    def toolsets(self, session: Session, command: Ask, recipe: Agent) -> Sequence[Toolset]:
        """Return the tools that a cell offers."""
        if command.no_tools:
            return ()
        sources = self._namespace.toolsets(session, recipe, command.tools, notebook=command.notebook)
        return (*sources, Functions([web_search(), web_fetch()])) if command.web else sources

    def _settings_for(self, session: Session, command: Ask, chosen: TurnSettings, recipe: Agent) -> TurnSettings:
        """Return settings with the agent of a turn and its tools."""
        return replace(chosen, agent=recipe, toolsets=self.toolsets(session, command, recipe))

    def _with_model(self, session: Session, recipe: Agent, view: "Callable[[], CellView]") -> Agent:
        """Have the user choose a model if none is chosen and no key is set; return the recipe with it."""
        try:
            session.model(recipe)
        except AuthenticationMissing as missing:
            if not view().choose_model(session, missing, lambda: _uses_local(session)):
                raise
            return replace(recipe, model=session.agent.model)
        return recipe


class CellView(RunView):
    """Shows a run in the running cell: its screen, the figures of its tools, and its questions."""

    def __init__(
        self,
        front: FrontEnd,
        session: Session,
        *,
        replay: settings.Replay | None = None,
        step: bool = False,
        large: bool = False,
    ) -> None:
        # In a replay the tape answers what was asked, but step mode pauses for today's user.
        self.attended = front.attended and (step or not session.deck.is_frozen(replay))
        self.run: Run | None = None
        self._brief = front.kind is Kind.LIVE
        self._screen = screen_of(front, large=large)
        self._price_told = session.usage.cost is None

    def begin(self, run: Run) -> None:
        """Show a run, and ask the user what it asks, if there is one."""
        self.run = run
        self._screen.transcript.price_told = self._price_told
        self._screen.begin(run.pass_on)
        run.listen(self._screen.feed)
        run.listen(FigureOutput().feed)
        if self.attended:
            run.listen(Questions(run, self._screen.typed, brief=self._brief).feed)

    def choose_model(self, session: Session, missing: AuthenticationMissing, typed: Callable[[], bool]) -> bool:
        """Have the user choose what answers, and return whether it is done; then the output is cleared for the turn.

        The user chooses on a card, or by `typed` if clicks do not arrive.
        """
        if not self.attended:
            return False
        if self.run is None:
            self._screen.begin(lambda _intent: None)
        done = False
        try:
            is_clicked = engine().call(self._screen.typed()) is None
            done = self._chosen_on_card(session, missing) if is_clicked else typed()
        finally:
            if done or self.run is None:
                self.restart()
        return done

    def _chosen_on_card(self, session: Session, missing: AuthenticationMissing) -> bool:
        from agentmagic.jupyter.cell.model_setup import ModelSetup  # only a user without a key needs it

        chosen: Future[bool] = Future()
        self._screen.offer_setup(lambda view: ModelSetup(view, session, missing, chosen.set_result))

        def stop() -> None:
            raise TurnInterrupted("no model was chosen.")

        engine().wait(chosen, stop)
        return chosen.result()

    def restart(self) -> None:
        """Forget the run: the turn begins again, and the output of the cell is cleared."""
        self._hear_all()
        if self._brief:
            clear_output(wait=True)  # also of what was typed, and of an error of the cell
        self._screen.restart()

    def finish(self, retry: "Retry | None" = None) -> None:
        """Leave the static output, which offers to run a turn without any answer again; may be called again."""
        self._hear_all()
        self._leave(retry)

    def finish_later(self, then: Callable[[], None] = lambda: None, retry: "Retry | None" = None) -> None:
        """Leave the static output when the run is over, and then call a function."""

        def finish() -> None:
            self._leave(retry)
            then()

        def over(_settled: object) -> None:
            # Not on the engine's loop, where rendering would delay the events of all sessions.
            in_thread(finish, "agentmagic-html")

        if (run := self.run) is not None:
            # Added on the engine's loop: by then the engine has told the screen every event.
            engine().loop.call_soon_threadsafe(run.settled.add_done_callback, over)

    def _leave(self, retry: "Retry | None") -> None:
        last = self.run.events[-1] if self.run is not None and self.run.over else None
        unsent = isinstance(last, TurnFinished) and last.result.unsent
        self._screen.offer_retry(retry if unsent else None)
        self._screen.finish()

    def _hear_all(self) -> None:
        """Wait until the screen has heard every event of a run that is over."""
        engine().call(asyncio.sleep(0))  # does nothing, but behind all that the engine was given before


@dataclass
class _CellTurn:
    """A turn, and the view that shows it; `renewed` returns the settings of a turn that runs again later."""

    session: Session
    words: Prompt
    chosen: TurnSettings
    renewed: Callable[[], TurnSettings]
    front: FrontEnd
    view: CellView
    answer: AnswerVariable | None
    context: contextvars.Context = field(default_factory=contextvars.copy_context)  # it names the cell
    queue: TurnQueue | None = None

    def run(self) -> RunResult:
        """Run the turn to its end, asking for a key if one is missing."""
        try:
            while (result := self._attempt()) is None:
                pass
        except KeyboardInterrupt:
            stopped = TurnInterrupted(self._give_up())
            stopped.is_shown = self.view.run is not None and self.view.run.done
            raise stopped from None
        except AgentMagicError as error:
            # In batch, logs show the exception alone.
            error.is_shown = self.front.kind is not Kind.BATCH and bool(error.result and error.result.error)
            raise
        finally:
            self.view.finish(self._retry)
        if self.answer is not None:
            self.answer.bind(result)
        return result

    def run_in_background(self) -> None:
        """Start the turn and return; the policy answers what would be asked."""
        self.view.attended = False
        self._finish_later(self._start())

    def _finish_later(self, run: Run) -> None:
        def bind() -> None:
            if self.answer is not None:
                with suppress(AgentMagicError):  # which the output tells
                    self.answer.bind(run.result())

        self.view.finish_later(bind, self._retry)

    def _retry(self, view: "View") -> None:
        """Run a turn without any answer again, in its place, when the session and the main thread are free."""
        queue = self.queue = self.queue or TurnQueue(
            self.session,
            changed=lambda: view.tell({"note": cast("TurnQueue", self.queue).note}),
            failed=lambda _turn, error: view.complain(why_not_begun(error)),
        )
        if not queue.waits:  # a second click
            turn = QueuedTurn(partial(self.context.copy().run, self._run_again), as_prompt(self.words).text)
            engine().loop.call_soon_threadsafe(queue.add, turn)

    def _run_again(self) -> Run:
        """Begin the turn again in the place of the failed one, and show it in the cell, whose output is cleared."""
        turns, failed = self.session.turns, cast("Run", self.view.run).events[0]
        place = next((place for place, turn in enumerate(turns) if turn.events[0] is failed), len(turns))
        if any(not turn.unsent for turn in turns[place + 1 :]):
            raise UsageError(LATER)
        chosen = replace(self.renewed(), attended=self.view.attended)
        run = self.session.begin(self.words, chosen, place if place < len(turns) else None)
        self.view.restart()
        self.view.begin(run)
        self._finish_later(run)
        return run

    def _attempt(self) -> RunResult | None:
        """Run the turn; return None if a key was missing and another one, or another model, has been chosen now."""
        try:
            with engine().main.held():
                return _checked(self._start().wait())
        except AuthenticationMissing as missing:
            if not self._choose_model(missing):
                raise
            return None

    def _choose_model(self, missing: AuthenticationMissing) -> bool:
        before = self.session.agent.model
        if not self.view.choose_model(self.session, missing, lambda: _types_key(missing)):
            return False
        if (model := self.session.agent.model) is not before and self.chosen.agent is not None:
            self.chosen = replace(self.chosen, agent=replace(self.chosen.agent, model=model))
        self.session.step_back()
        return True

    def _give_up(self) -> str:
        run = self.view.run
        if run is None or run.done:
            return INTERRUPTED
        run.cancel()
        self.view.finish_later()
        return ABANDONED

    def _start(self) -> Run:
        while True:
            try:
                run = self.session.begin(self.words, replace(self.chosen, attended=self.view.attended))
            except SessionBusy:  # a panel has begun a turn while the prompt was made
                wait_for_turn(self.session, self.front)
            else:
                self.view.begin(run)
                return run


class FigureOutput:
    """Shows the figures of a run's tools in the output of the run, when each tool ends and not when the cell does.

    The figures that were open before are the cell's own: its code may go on drawing them when the run is over.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()
        self._before = open_figures()

    def feed(self, event: Event) -> None:
        """Take an event of the run; on the engine."""
        inline = sys.modules.get("matplotlib_inline.backend_inline")
        if not isinstance(innermost(event), ToolFinished) or inline is None or not engine().main.reachable:
            return
        context = contextvars.copy_context()  # it tells IPython which cell's output is meant
        showing = engine().main.run(lambda: context.run(self._show, inline))
        task = asyncio.get_running_loop().create_task(showing)
        self._open.add(task)  # the loop holds tasks weakly
        task.add_done_callback(self._open.discard)

    def _show(self, inline: Any) -> None:
        """Display the figures and close them, as the inline backend does it at the end of a cell."""
        pyplot = sys.modules["matplotlib.pyplot"]
        display: Any = cast("Any", import_module("IPython.display")).display
        for number in sorted(open_figures() - self._before):
            figure = pyplot.figure(number)
            display(figure, metadata=inline._fetch_figure_metadata(figure))  # noqa: SLF001
            pyplot.close(figure)


def wait_for_turn(session: Session, front: FrontEnd) -> None:
    """Wait until a turn in the background is over; an interrupt ends the waiting, not the turn."""
    running = session.running
    if running is None:
        return
    if running.waits:
        say(ANSWER_FIRST if front.reachable else ANSWER_LATER)

    def stop() -> None:
        raise TurnInterrupted("the session is still busy with a turn in the background.")

    engine().wait(running.settled, stop)


def _checked(result: RunResult) -> RunResult:
    """Return a result. Raises an error for a turn without an answer, for which the run itself raises none (API-6)."""
    if result.stop_reason == "cancelled":  # by a click on Stop
        raise KeyboardInterrupt
    if result.stop_reason == "no_tools":
        error = TurnFailed(NO_TOOLS)
        error.result = result
        raise error
    return result


def _recipe(session: Session, command: Ask) -> Agent:
    """Return the session's agent with what the cell's options replace."""
    chosen = command.given(Agent)
    if word := chosen.get("permission"):  # the option replaces the policy's default: its rules stay
        chosen["permission"] = replace(policy_of(session.agent.permission), default=word)
    if command.settings:
        chosen["settings"] = session.agent.settings | read_settings(command.settings)
    return replace(session.agent, **chosen) if chosen else session.agent  # a new one would read its servers again


def _uses_local(session: Session) -> bool:
    """Offer the local model in a typed question, and choose it after a yes."""
    if not agreed(OFFER):
        return False
    session.agent = replace(session.agent, model=f"local:{providers()['local'].default}")
    return True


def _types_key(missing: AuthenticationMissing) -> bool:
    """Ask for a key, hidden; return False if none is typed."""
    if not missing.variables:
        return False
    name = missing.variables[0]
    try:
        key = getpass(f"{name} is not set. Type the key, which is kept in memory only, or nothing to give up: ").strip()
    except EOFError:
        key = ""
    if key:
        settings.type_key(name, key)
    return bool(key)
