"""One `%%agent` cell: from its command and body to the output it leaves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from getpass import getpass

from IPython.core.interactiveshell import InteractiveShell

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.approval.policy import policy_of
from agentmagic.errors import AgentMagicError, AuthenticationMissing, SessionBusy
from agentmagic.jupyter.cell_errors import TurnInterrupted, check
from agentmagic.jupyter.figures import FigureOutput
from agentmagic.jupyter.frontend import FrontEnd, Kind, agreed, front_end
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.options import Ask
from agentmagic.jupyter.prompt import prompt_of
from agentmagic.jupyter.questions import Questions
from agentmagic.messages import Message, Prompt
from agentmagic.providers.registry import providers
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.tools.base import Toolset

OFFER = "No model is chosen and no key is set. Use the small local model (1.1 GB, fetched once)? [y/N] "
INTERRUPTED = "the turn was cancelled; what was finished is kept, and the next prompt goes on from there."
ABANDONED = "the cell no longer waits for the turn, which ends when its tool does."


class Runner:
    """Runs the turns of a notebook's cells."""

    def __init__(self, shell: InteractiveShell, namespace: Namespace) -> None:
        self._shell = shell
        self._namespace = namespace

    def ask(self, command: Ask, body: str) -> None:
        """Run a turn and show it; returns when it is over, or at once with `--bg`.

        Raises what the turn failed of, unless `--keep-going`; and TurnInterrupted.
        """
        self.put(command, lambda session, recipe: self._prompt(body, session, recipe))

    def put(self, command: Ask, prompt: Message | Callable[[Session, Agent], Prompt]) -> None:
        """Run a turn of a prompt, or of one that is made when its session and recipe are known."""
        front = front_end(self._shell)
        session = self._namespace.session(command.name)
        wait_for_turn(session)
        if command.new:
            session.clear()
        recipe = self._with_model(session, _recipe(session, command), front)
        words = prompt(session, recipe) if callable(prompt) else prompt
        toolsets = () if command.no_tools else self._namespace.toolsets(session, recipe, command.tools)
        turn = _CellTurn(session, recipe, words, toolsets, front)
        if command.bg and front.in_background:
            turn.run_in_background()
            return
        try:
            turn.run()
        except AgentMagicError as error:
            if not command.keep_going or error.result is None:
                raise

    def _prompt(self, body: str, session: Session, recipe: Agent) -> Prompt:
        """Make the prompt of a cell's body, in which expressions are evaluated."""
        return prompt_of(body, session.toolsets(recipe), evaluate=self._namespace.variables)

    def _with_model(self, session: Session, recipe: Agent, front: FrontEnd) -> Agent:
        """Offer the local model where no model is chosen and no key is set."""
        try:
            session.model(recipe)
        except AuthenticationMissing:
            if not (front.attended and agreed(OFFER)):
                raise
            local = f"local:{providers()['local'].default}"
            session.agent = replace(session.agent, model=local)
            return replace(recipe, model=local)
        return recipe


class _CellTurn:
    """A turn, its screen and the person before it."""

    def __init__(
        self, session: Session, recipe: Agent, words: Prompt, toolsets: Sequence[Toolset], front: FrontEnd
    ) -> None:
        self._session = session
        self._recipe = recipe
        self._words = words
        self._toolsets = toolsets
        self._attended = front.attended
        self._brief = front.kind is Kind.LIVE
        self._screen = front.screen()
        self._run: Run | None = None

    def run(self) -> None:
        """Run the turn to its end, asking for a key where one is missing."""
        try:
            while not self._attempt():
                self._session.undo()
                self._screen.restart()
        except KeyboardInterrupt:
            raise TurnInterrupted(self._give_up()) from None
        finally:
            engine().call(_nothing())
            self._screen.finish()

    def run_in_background(self) -> None:
        """Start the turn and leave it to itself; nobody is asked anything."""
        self._finish_with(self._start(attended=False))

    def _attempt(self) -> bool:
        """Run the turn; return False where a key was missing that has been typed now."""
        try:
            with engine().main.held():
                check(self._start(attended=self._attended).wait())
        except AuthenticationMissing as error:
            if not (self._attended and _typed_key(error)):
                raise
            return False
        return True

    def _give_up(self) -> str:
        run = self._run
        if run is None or run.done:
            return INTERRUPTED
        run.cancel()
        self._finish_with(run)
        return ABANDONED

    def _finish_with(self, run: Run) -> None:
        """Leave the static output once the run is over: asked for on the engine, so that all was heard by then."""
        engine().loop.call_soon_threadsafe(run.settled.add_done_callback, self._finish)

    def _finish(self, _settled: object) -> None:
        self._screen.finish()

    def _start(self, *, attended: bool) -> Run:
        run = self._run = self._begin(attended=attended)
        self._screen.begin(run.send)
        run.listen(self._screen.feed)
        run.listen(FigureOutput().feed)
        if attended:
            run.listen(Questions(run, self._screen.typed, brief=self._brief).feed)
        return run

    def _begin(self, *, attended: bool) -> Run:
        """Begin the turn; a panel may have begun another while the prompt was made."""
        while True:
            try:
                return self._session.start(self._words, agent=self._recipe, toolsets=self._toolsets, attended=attended)
            except SessionBusy:
                wait_for_turn(self._session)


def wait_for_turn(session: Session) -> None:
    """Wait until a turn in the background is over; an interrupt ends the waiting, not the turn."""
    running = session.running
    if running is None:
        return

    def stop() -> None:
        message = "the session is still busy with a turn in the background."
        raise TurnInterrupted(message)

    engine().wait(running.settled, stop)


async def _nothing() -> None:
    """Run on the engine behind everything that was asked of it before, so that the screen has heard it all."""


def _recipe(session: Session, command: Ask) -> Agent:
    """Return the session's recipe with what the cell's options say in its place."""
    names = ("model", "instructions", "max_iterations", "timeout", "max_cost", "permission")
    options = {name: getattr(command, name) for name in names}
    chosen = {name: value for name, value in options.items() if value is not None}
    if word := chosen.get("permission"):  # the default of calls that no rule speaks about: the rules stay
        chosen["permission"] = replace(policy_of(session.agent.permission), default=word)
    return replace(session.agent, **chosen) if chosen else session.agent  # a new one would read its servers again


def _typed_key(error: AuthenticationMissing) -> bool:
    """Ask for a key, hidden; an empty one gives up."""
    if not error.variables:
        return False
    name = error.variables[0]
    try:
        key = getpass(f"{name} is not set. Type the key, which is kept in memory only, or nothing to give up: ").strip()
    except EOFError:
        key = ""
    if key:
        settings.type_key(name, key)
    return bool(key)
