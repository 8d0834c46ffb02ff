"""Runs one `%%agent` cell, from its options and body to its output or error."""

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
from agentmagic.agent import Agent
from agentmagic.approval.policy import policy_of
from agentmagic.context.rules import commands_here
from agentmagic.errors import AgentMagicError, AuthenticationMissing, SessionBusy, UsageError, with_code
from agentmagic.events import Event, RunResult, ToolFinished, TurnFinished, innermost
from agentmagic.host import RunView
from agentmagic.jupyter.cell.answers import AnswerVariable, read_type
from agentmagic.jupyter.cell.questions import Questions
from agentmagic.jupyter.cell.screens import screen_of
from agentmagic.jupyter.cell.turn_queue import QueuedTurn, TurnQueue, queue_of
from agentmagic.jupyter.frontend import FrontEnd, Kind, confirm, front_end, say
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.options import Ask, read_settings
from agentmagic.jupyter.notebook.capture import open_figures
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace
from agentmagic.jupyter.prompt.references import TypedPrompt, prompt_of
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.mapping.work import MapFailed
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
    """Raised when the model called a tool in a turn without tools; `result` is the turn's result."""

    code = "no-tools"


class TurnInterrupted(KeyboardInterrupt):
    """Raised when the user interrupts a cell; `is_shown` is True if the cell's output already shows the interrupt."""

    is_shown = False

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]


def quiet_stop(_shell: object, _kind: object, error: TurnInterrupted, *_: object, **_options: object) -> list[str]:
    """Show no traceback for a cell that the user interrupted. The cell still counts as failed: no later cell runs."""
    if not error.is_shown:
        say(f"Interrupted: {error}")
    return []


def short_error(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a magic so that IPython shows its errors in one line, without a traceback. The errors keep their classes."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except AgentMagicError as error:
            error.args = (redact(str(error)),)  # redacted, because a notebook file contains the arguments
            what = "map" if isinstance(error, MapFailed) else "turn"
            message = f"the {what} failed; the output says why." if error.is_shown else with_code(error)
            line = f"{type(error).__name__}: {message}"
            cast("Any", error)._render_traceback_ = lambda: [line]
            raise
        except TurnInterrupted:
            raise
        except (KeyboardInterrupt, CancelledError):  # after an interrupt the engine cancels the work of the cell
            raise TurnInterrupted("what was under way is given up.") from None

    return call


@dataclass(frozen=True)
class CellSetup:
    """The objects with which a cell runs a turn or a map.

    `recipe` is the session's agent with the cell's options, and `settings` are the cell's options of the turn. `answer`
    is the variable to which the answer is bound. The first call of `view` creates the cell's view.
    """

    front: FrontEnd
    session: Session
    recipe: Agent
    settings: TurnSettings
    answer: AnswerVariable | None
    view: "Callable[[], CellView]"


class Runner:
    """Runs the turns of `%%agent` cells in a notebook."""

    def __init__(self, shell: InteractiveShell, namespace: Namespace) -> None:
        self._shell = shell
        self._namespace = namespace

    def ask(self, command: Ask, body: str) -> RunResult | None:
        """Run the turn of a cell, show it and return its result; with `--bg` return None at once.

        Raises TurnInterrupted. Also raises the error of the turn, unless `--keep-going` is given.
        """

        def prompt(session: Session, recipe: Agent) -> TypedPrompt:
            attachables = self._namespace.attachables(session, recipe)
            typed_prompt = prompt_of(body, session.toolsets(recipe), attachables, evaluate=True, images=command.image)
            if not command.command:
                return typed_prompt
            project_command = find_command(command.command, commands_here(rules=recipe.rules))
            message, value = command_prompt(project_command, typed_prompt.prompt, command.arguments)
            return replace(typed_prompt, prompt=message, prompt_values=(value, *typed_prompt.prompt_values))

        return self.run_turn(command, prompt)

    def run_turn(
        self, command: Ask, prompt: Message | Callable[[Session, Agent], TypedPrompt], *, resume: bool = False
    ) -> RunResult | None:
        """Run a turn with a prompt, or with a function that makes the prompt from the session and the agent.

        With `resume` the turn continues the plan that the last turn did not finish.
        """
        setup = self.prepare(command)
        front, session, recipe, view = setup.front, setup.session, setup.recipe, setup.view
        typed_prompt = prompt(session, recipe) if callable(prompt) else TypedPrompt(prompt)
        for problem in typed_prompt.problems:
            say(problem)
        skills = not command.no_tools and command.tools is None
        turn_settings = replace(setup.settings, values=typed_prompt.prompt_values, resume=resume, skills=skills)
        settings_for = partial(self._settings_for, session, command, turn_settings)
        if command.show:
            target = session.fork(0) if command.new else session
            say(
                formatting.preview(
                    target.preview_of(typed_prompt.prompt, settings_for(recipe)), typed_prompt.prompt_values
                )
            )
            return None

        def renew() -> TurnSettings:  # reads the session's agent again: the user may have changed it meanwhile
            return settings_for(_recipe(session, command))

        turn = _CellTurn(session, typed_prompt.prompt, settings_for(recipe), renew, front, view(), setup.answer)
        if command.bg and front.kind is not Kind.BATCH:  # a program that runs notebooks would end before the turn
            turn.run_in_background()
            return None
        try:
            return turn.run()
        except AgentMagicError as error:
            if not command.keep_going or error.result is None:  # without a result no turn has run
                raise
            return error.result

    def prepare(self, command: Ask) -> "CellSetup":
        """Wait until the cell's session is free and has a model; return what the cell needs to run."""
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
        # The first call of `view` creates the view: `--show` needs no view, unless the user must choose a model.
        turn = TurnSettings(**command.options_for(TurnSettings), output=output)
        view = cache(partial(CellView, front, session, replay=turn.replay, step=turn.step, large=command.large))
        if not session.deck.answers(turn.replay):
            recipe = self._with_model(session, recipe, view)
        if is_new and command.name != DEFAULT_SESSION:
            say(formatting.new_session(command.name))
        return CellSetup(front, session, recipe, turn, answer, view)

    def toolsets(self, session: Session, command: Ask, recipe: Agent) -> Sequence[Toolset]:
        """Return the toolsets that a cell offers the model."""
        if command.no_tools:
            return ()
        sources = self._namespace.toolsets(session, recipe, command.tools, notebook=command.notebook)
        return (*sources, Functions([web_search(), web_fetch()])) if command.web else sources

    def _settings_for(self, session: Session, command: Ask, turn_settings: TurnSettings, recipe: Agent) -> TurnSettings:
        """Return `turn_settings` with the agent `recipe` and the toolsets that the cell offers."""
        return replace(turn_settings, agent=recipe, toolsets=self.toolsets(session, command, recipe))

    def _with_model(self, session: Session, recipe: Agent, view: "Callable[[], CellView]") -> Agent:
        """Return the agent `recipe` with a model. The user is asked if no model is chosen and no key is set.

        Raises AuthenticationMissing if the user chooses no model.
        """
        try:
            session.model(recipe)
        except AuthenticationMissing as missing:
            if not view().choose_model(session, missing, lambda: _uses_local(session)):
                raise
            return replace(recipe, model=session.agent.model)
        return recipe


class CellView(RunView):
    """Shows a run in the running cell: its events, the plots that its tools draw, and its questions to the user."""

    def __init__(
        self,
        front: FrontEnd,
        session: Session,
        *,
        replay: settings.Replay | None = None,
        step: bool = False,
        large: bool = False,
    ) -> None:
        # In a replay, recorded answers settle the questions; only step mode still pauses for the user.
        self.attended = front.attended and (step or not session.deck.is_frozen(replay))
        self.run: Run | None = None
        self._brief = front.kind is Kind.LIVE
        self._screen = screen_of(front, large=large)
        self._price_note_shown = session.usage.cost is None

    def begin(self, run: Run) -> None:
        """Show a run from now on. If this view is `attended`, put the run's questions to the user."""
        self.run = run
        self._screen.transcript.price_told = self._price_note_shown
        self._screen.begin(run.pass_on)
        run.listen(self._screen.feed)
        run.listen(FigureOutput().feed)
        if self.attended:
            run.listen(Questions(run, self._screen.typing_reason, brief=self._brief).feed)

    def choose_model(self, session: Session, missing: AuthenticationMissing, ask_in_text: Callable[[], bool]) -> bool:
        """Let the user choose a model or a key, clear the output for the turn, and return whether a choice was made.

        The user chooses on a card. If clicks do not reach the kernel, `ask_in_text` is called instead to ask the user.
        """
        if not self.attended:
            return False
        if self.run is None:
            self._screen.begin(lambda _intent: None)
        done = False
        try:
            is_clicked = engine().call(self._screen.typing_reason()) is None
            done = self._choose_on_card(session, missing) if is_clicked else ask_in_text()
        finally:
            if done or self.run is None:
                self.restart()
        return done

    def _choose_on_card(self, session: Session, missing: AuthenticationMissing) -> bool:
        from agentmagic.jupyter.cell.model_setup import ModelSetup  # imported late: only a user without a key needs it

        choice: Future[bool] = Future()
        cards: list[ModelSetup] = []

        def offer(view: "View") -> ModelSetup:
            cards.append(ModelSetup(view, session, missing, choice.set_result))
            return cards[0]

        self._screen.offer_setup(offer)

        def stop() -> None:
            raise TurnInterrupted("no model was chosen.")

        try:
            engine().wait(choice, stop)
        finally:
            for card in cards:
                card.close()
        return choice.result()

    def restart(self) -> None:
        """Discard what the cell shows, because the turn is about to begin again."""
        self._wait_for_events()
        if self._brief:
            clear_output(wait=True)  # also clears typed answers and an error in the cell's output
        self._screen.restart()

    def finish(self, retry: "Retry | None" = None) -> None:
        """Write the static output. If the turn has no answer, the output offers to `retry`. Can be called again."""
        self._wait_for_events()
        self._leave(retry)

    def finish_later(self, then: Callable[[], None] = lambda: None, retry: "Retry | None" = None) -> None:
        """Return at once. When the run is over, write the static output and call `then`."""

        def finish() -> None:
            self._leave(retry)
            then()

        def over(_future: object) -> None:
            # In a thread: rendering on the engine's event loop would delay the events of all sessions.
            in_thread(finish, "agentmagic-html")

        if (run := self.run) is not None:
            # Add `over` in the engine's event loop, so that the screen has received every event when it runs.
            engine().loop.call_soon_threadsafe(run.settled.add_done_callback, over)

    def _leave(self, retry: "Retry | None") -> None:
        last = self.run.events[-1] if self.run is not None and self.run.over else None
        unsent = isinstance(last, TurnFinished) and last.result.unsent
        self._screen.offer_retry(retry if unsent else None)
        self._screen.finish()

    def _wait_for_events(self) -> None:
        """Wait until the screen has received every event of a run that is over."""
        engine().call(asyncio.sleep(0))  # returns after the engine has done all work that was queued before


@dataclass
class _CellTurn:
    """A turn of a cell, and the view that shows it; `renew` returns new settings for a later retry of the turn."""

    session: Session
    prompt: Prompt
    settings: TurnSettings
    renew: Callable[[], TurnSettings]
    front: FrontEnd
    view: CellView
    answer: AnswerVariable | None
    # The context in which IPython sends printed text to this cell.
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    queue: TurnQueue | None = None

    def run(self) -> RunResult:
        """Run the turn to its end and return its result. If the API key is missing, the user is asked for it."""
        try:
            while (result := self._attempt()) is None:
                pass
        except KeyboardInterrupt:
            interrupt = TurnInterrupted(self._give_up())
            interrupt.is_shown = self.view.run is not None and self.view.run.done
            raise interrupt from None
        except AgentMagicError as error:
            # A program that runs notebooks (kind BATCH) logs only the exception, so this must have the whole message.
            error.is_shown = self.front.kind is not Kind.BATCH and bool(error.result and error.result.error)
            raise
        finally:
            self.view.finish(self._retry)
        if self.answer is not None:
            self.answer.bind(result)
        return result

    def run_in_background(self) -> None:
        """Start the turn and return at once. The user is not asked for approvals: the policy decides about calls."""
        self.view.attended = False
        self._finish_later(self._start())

    def _finish_later(self, run: Run) -> None:
        def bind() -> None:
            if self.answer is not None:
                with suppress(AgentMagicError):  # the cell's output already shows the error
                    self.answer.bind(run.result())

        self.view.finish_later(bind, self._retry)

    def _retry(self, view: "View") -> None:
        """Queue this turn, which has no answer, to run again as soon as the session and the main thread are free."""
        self.queue = self.queue or queue_of(self.session, view)
        begin = partial(self.context.copy().run, self._run_again)
        self.queue.add_once(QueuedTurn(begin, as_prompt(self.prompt).text))

    def _run_again(self) -> Run:
        """Begin the failed turn again in its place in the session. Clear the cell's output, and show the new run there.

        Raises UsageError if later turns have answers.
        """
        turns, first_event = self.session.turns, cast("Run", self.view.run).events[0]
        place = next((place for place, turn in enumerate(turns) if turn.events[0] is first_event), len(turns))
        if any(not turn.unsent for turn in turns[place + 1 :]):
            raise UsageError(LATER)
        turn_settings = replace(self.renew(), attended=self.view.attended)
        run = self.session.begin(self.prompt, turn_settings, place if place < len(turns) else None)
        self.view.restart()
        self.view.begin(run)
        self._finish_later(run)
        return run

    def _attempt(self) -> RunResult | None:
        """Run the turn and return its result.

        Return None if a key was missing and the user has now given a key or chosen another model.
        """
        try:
            with engine().main.mark_busy():
                return _check_result(self._start().wait())
        except AuthenticationMissing as missing:
            if not self._choose_model(missing):
                raise
            return None

    def _choose_model(self, missing: AuthenticationMissing) -> bool:
        before = self.session.agent.model
        if not self.view.choose_model(self.session, missing, lambda: _types_key(missing)):
            return False
        if (model := self.session.agent.model) is not before and self.settings.agent is not None:
            self.settings = replace(self.settings, agent=replace(self.settings.agent, model=model))
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
                run = self.session.begin(self.prompt, replace(self.settings, attended=self.view.attended))
            except SessionBusy:  # a chat panel began a turn while this cell made its prompt
                wait_for_turn(self.session, self.front)
            else:
                self.view.begin(run)
                return run


class FigureOutput:
    """Shows, in the output of a run, the Matplotlib figures that a tool has drawn, as soon as the tool ends.

    Figures that were open before the run are left alone: the cell's code may continue to draw them after the run.
    """

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()
        self._before = open_figures()

    def feed(self, event: Event) -> None:
        """Show the open figures if the event is the end of a tool; called in the engine thread."""
        inline = sys.modules.get("matplotlib_inline.backend_inline")
        if not isinstance(innermost(event), ToolFinished) or inline is None or not engine().main.reachable:
            return
        context = contextvars.copy_context()  # from the context, IPython knows to which cell the output belongs
        showing = engine().main.run(lambda: context.run(self._show, inline))
        task = asyncio.get_running_loop().create_task(showing)
        self._open.add(task)  # a reference: the event loop itself has only weak references to tasks
        task.add_done_callback(self._open.discard)

    def _show(self, inline: Any) -> None:
        """Display and close the figures that were opened during the run, as Matplotlib's inline backend does."""
        pyplot = sys.modules["matplotlib.pyplot"]
        display: Any = cast("Any", import_module("IPython.display")).display
        for number in sorted(open_figures() - self._before):
            figure = pyplot.figure(number)
            display(figure, metadata=inline._fetch_figure_metadata(figure))  # noqa: SLF001
            pyplot.close(figure)


def wait_for_turn(session: Session, front: FrontEnd) -> None:
    """Wait until the session's turn in the background is over. An interrupt ends the wait, not the turn."""
    running = session.running
    if running is None:
        return
    if running.waits:
        say(ANSWER_FIRST if front.reachable else ANSWER_LATER)

    def stop() -> None:
        raise TurnInterrupted("the session is still busy with a turn in the background.")

    engine().wait(running.settled, stop)


def _check_result(result: RunResult) -> RunResult:
    """Return a result. Unlike `run.wait()`, raise an error for a stopped turn, or a call in a turn without tools."""
    if result.stop_reason == "cancelled":  # the user clicked Stop
        raise KeyboardInterrupt
    if result.stop_reason == "no_tools":
        error = TurnFailed(NO_TOOLS)
        error.result = result
        raise error
    return result


def _recipe(session: Session, command: Ask) -> Agent:
    """Return the session's agent, changed by the cell's options."""
    options = command.options_for(Agent)
    if word := options.get("permission"):  # `--permission` replaces only the policy's default, not its rules
        options["permission"] = replace(policy_of(session.agent.permission), default=word)
    if command.settings:
        options["settings"] = session.agent.settings | read_settings(command.settings)
    # Without options, keep the same Agent object: a new Agent would read the files about its MCP servers again.
    return replace(session.agent, **options) if options else session.agent


def _uses_local(session: Session) -> bool:
    """Ask the user to type whether to use the local model. If the answer is yes, choose it and return True."""
    if not confirm(OFFER):
        return False
    session.agent = replace(session.agent, model=f"local:{providers()['local'].default}")
    return True


def _types_key(missing: AuthenticationMissing) -> bool:
    """Ask the user to type the missing key, without echo; return False if no key is typed."""
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
