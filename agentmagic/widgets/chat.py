"""The chat panel: a session's conversation in a page, with a box to go on writing in."""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentmagic import export, settings
from agentmagic.display import words
from agentmagic.errors import AgentMagicError, UsageError, said
from agentmagic.events import Event, HistoryCut, Intent, TurnFinished, TurnStarted
from agentmagic.log import logger
from agentmagic.providers.base import Model
from agentmagic.providers.registry import default_model, usable_models
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.widgets import commands, servers_tab
from agentmagic.widgets.static_html import Publish, Written
from agentmagic.widgets.surroundings import Notebook
from agentmagic.widgets.sync import State
from agentmagic.widgets.turn_queue import QueuedTurn, TurnQueue
from agentmagic.widgets.view import View

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

T = TypeVar("T")

SUFFIXES = {"markdown": ".md", "json": ".json", "notebook": ".ipynb"}

OF_SERVERS = (commands.Connect, commands.Disconnect, commands.EnableTool)
"""The actions that are there where the session has servers."""


class Chat:
    """The panel of a session, drawn in any number of outputs and pages.

    It follows every turn of the session, whoever begins it, and carries out what a person does in it: turns
    wait for their place in line, prompts are made and turns begun where synchronous tools run, everything else
    happens on the engine. What cannot be done is said in the panel.
    """

    def __init__(self, session: Session, notebook: Notebook, publish: Publish) -> None:
        self.view = View(self, home="panel")
        self._session = session
        self._notebook = notebook
        self._line = TurnQueue(session, self.refresh, lambda turn, why: self.view.complain(why, turn.unsent))
        self._written = Written(lambda: session.events, self.view.aside, publish)
        self._context = contextvars.copy_context()
        self._models: dict[str, str | Model] = {}
        self._default: str | None = None
        self._known: set[McpServers] = set()
        engine().call(self._begin())

    def show(self, publish: Publish) -> None:
        """Draw the panel in the output of the cell under way; what its turns print goes there from now on."""
        self._context = contextvars.copy_context()
        publish(self.view.place, False)
        engine().call(self._written.show())
        self.look()

    def look(self) -> None:
        """Look anew at what nobody tells of: variables, keys, the session's recipe and servers; from any thread."""
        engine().submit(self._look())

    def refresh(self) -> None:
        """Tell the pages how things stand; on the engine."""
        for group in servers_tab.groups_of(self._session):
            if group not in self._known:
                self._known.add(group)
                group.listen(self._stir)
        self.view.tell(self._state())

    def act(self, action: commands.Action) -> None:
        """Take what a person did in a page, from any thread."""
        if not isinstance(action, Intent):
            self._context.copy().run(engine().submit, self._carry_out(action))
        elif (run := self._session.running) is not None:
            run.send(action)

    # -- following the session -------------------------------------------------------------------

    async def _begin(self) -> None:
        """Take what has happened and listen, in one go: on the engine no event comes in between."""
        self.view.replace(self._log())
        self._session.listen(self._hear)

    def _log(self) -> tuple[Event, ...]:
        running = self._session.running
        return (*self._session.events, *(running.events if running else ()))

    def _hear(self, event: Event | HistoryCut) -> None:
        if isinstance(event, HistoryCut):
            self.view.replace(self._log())
            engine().loop.call_soon_threadsafe(self._rewrite)
            return
        self.view.feed(event)
        if isinstance(event, TurnFinished):  # the session takes the turn into its history in this same step
            asyncio.get_running_loop().call_soon(self._turn_over)
        elif isinstance(event, TurnStarted):
            self.refresh()

    def _rewrite(self) -> None:
        self._written.restart()
        self._turn_over()

    def _turn_over(self) -> None:
        self.refresh()
        self._written.update()

    def _stir(self, _: None) -> None:
        engine().loop.call_soon_threadsafe(self.refresh)

    # -- what stands around the conversation -----------------------------------------------------

    async def _look(self) -> None:
        usable, self._default = await engine().in_pool(lambda: (usable_models(), default_model()))
        chosen = self._session.agent.model
        self._models = {name: name for name in usable} | self._models
        if chosen is not None:
            self._models[_name(chosen)] = chosen
        self.refresh()

    def _state(self) -> State:
        override = settings.model_override()
        model = override or _name(self._session.agent.model) or self._default or ""
        rows = servers_tab.rows(servers_tab.groups_of(self._session))
        return {
            "title": self._notebook.name_of(self._session) or "Chat",
            "actions": self._offered(has_servers=bool(rows), fixed=override is not None),
            "model": model,
            "models": [model] if override else sorted({*self._models, *filter(None, [model])}),
            "cost": self._cost(),
            "servers": rows,
            "note": self._line.note,
        }

    def _offered(self, *, has_servers: bool, fixed: bool) -> list[str]:
        """Return the types of the actions that work here."""
        absent: set[type] = set() if has_servers else set(OF_SERVERS)
        if fixed:
            absent.add(commands.ChooseModel)
        if not self._notebook.forks:
            absent.add(commands.Fork)
        return [*commands.INTENTS, *(kind.type for kind in commands.SessionAction.__args__ if kind not in absent)]

    def _cost(self) -> str:
        spent = self._session.usage
        if not spent.requests:
            return ""
        return f"{spent.input_tokens + spent.output_tokens:,} tokens, {words.cost(spent.cost)}"

    # -- what a person does ----------------------------------------------------------------------

    async def _carry_out(self, action: commands.SessionAction) -> None:
        try:
            done = await self._do(action)
        except AgentMagicError as error:
            self.view.complain(words.shown(said(error)))
        except Exception as error:  # noqa: BLE001  (whatever it was, the person is told)
            logger.exception("an action of a panel failed")
            self.view.complain(f"That failed: {words.shown(said(error))}")
        else:
            if done:
                self.view.say(words.shown(done))
        self.refresh()

    async def _do(self, action: commands.SessionAction) -> str | None:  # noqa: PLR0911  (one arm for each action)
        """Carry out an action; return what to say of it."""
        match action:
            case commands.Send(text):
                return self._line.add(QueuedTurn(self._in_cell(partial(self._send, text)), text, text))
            case commands.Withdraw():
                return self.view.give_back(self._line.withdraw())
            case commands.Retry(turn):
                return self._line.add(QueuedTurn(self._in_cell(partial(self._run_again, turn)), self._prompt(turn)))
            case commands.Rewrite(turn, text):
                return self._line.add(QueuedTurn(self._in_cell(partial(self._run_again, turn, text)), text, text))
            case commands.Fork(turn):
                return await self._fork(turn + 1)
            case commands.Clear():
                return self._session.clear()
            case commands.Export(form):
                return await engine().in_pool(partial(self._export, form))
            case commands.ChooseModel(name):
                return self._choose(name)
            case commands.Connect() | commands.Disconnect() | commands.EnableTool():
                return await servers_tab.carry_out(action, servers_tab.groups_of(self._session))

    def _in_cell(self, function: Callable[[], T]) -> Callable[[], T]:
        """Have a function print, and its turn save, as the cell would that shows the panel."""
        return partial(self._context.copy().run, function)

    def _send(self, written: str) -> Run:
        return self._attend(partial(self._session.start, self._notebook.prepare(self._session, written)))

    def _run_again(self, turn: int, written: str | None = None) -> Run:
        prompt = None if written is None else self._notebook.prepare(self._session, written)
        return self._attend(partial(self._session.edit, turn, prompt))

    def _attend(self, begin: Callable[..., Run]) -> Run:
        """Begin a turn that a page answers; where none ever was there, nobody is waited for."""
        toolsets = self._notebook.toolsets(self._session)
        run = begin(toolsets=toolsets, attended=self.view.mounted.is_set())
        self._notebook.begun(run)
        return run

    def _prompt(self, turn: int) -> str:
        turns = self._session.turns
        return turns[turn].prompt.text if turn < len(turns) else ""

    async def _fork(self, turns: int) -> str:
        fork = self._in_cell(partial(self._notebook.fork, self._session, turns))
        name = await engine().run_user(fork)
        return f"{name} begins with the turns up to this one: {name}.chat() opens its panel, %%agent {name} asks it."

    def _export(self, form: str) -> str:
        turns = self._session.turns
        target = _free(self._notebook.folder(), self._notebook.name_of(self._session) or "chat", SUFFIXES[form])
        tools = (*self._session.agent.tools, *self._notebook.functions())
        export.save(turns, target, tools=tools)
        missing = " The turn under way is not in it." if self._session.running else ""
        return f"Wrote {len(turns)} turn{'' if len(turns) == 1 else 's'} to {_written(target)}.{missing}"

    def _choose(self, name: str) -> None:
        if name not in self._models:
            message = f"{name} is none of the models offered here. Choose one of {', '.join(self._models)}."
            raise UsageError(message)
        recipe = replace(self._session.agent, model=self._models[name])
        self._session.model(recipe)
        self._session.agent = recipe


def _name(model: str | Model | None) -> str:
    return "" if model is None else model if isinstance(model, str) else model.name


def _free(folder: Path, stem: str, suffix: str) -> Path:
    """Return a file that is not there yet."""
    place, number = folder / f"{stem}{suffix}", 1
    while place.exists():
        number += 1
        place = folder / f"{stem}-{number}{suffix}"
    return place


def _written(place: Path) -> str:
    """Write a path as a person would, from the folder where the kernel is."""
    whole, here = place.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
