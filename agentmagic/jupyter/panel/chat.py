"""The chat panel: a session's conversation in a browser page, with a box for prompts and a tab for MCP servers."""

import asyncio
import contextvars
from base64 import b64decode
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from glob import escape
from itertools import count
from pathlib import Path
from typing import TypeVar

from agentmagic import settings
from agentmagic.acp.agents import list_installed
from agentmagic.approval.policy import LEVELS, Level
from agentmagic.classroom import class_settings
from agentmagic.display import words
from agentmagic.display.printout import Printout, note
from agentmagic.errors import AgentMagicError, JournalError, SessionBusy, UsageError, describe, with_code
from agentmagic.events import (
    Event,
    HistoryCut,
    Intent,
    MapProgress,
    PageDecision,
    StepFinished,
    TurnFinished,
    TurnStarted,
)
from agentmagic.jupyter.panel.page_acts import HARMLESS, OF_FILES, Surroundings, act_to_ask, rule_of
from agentmagic.jupyter.panel.page_questions import PageQuestions
from agentmagic.jupyter.panel.panel_turns import PanelTurns
from agentmagic.jupyter.panel.server_rows import server_rows
from agentmagic.log import logger
from agentmagic.providers.base import Model
from agentmagic.providers.openai import BASE_URL
from agentmagic.providers.registry import default_model, info, model_sentence, usable_models
from agentmagic.runtime.engine import engine, void
from agentmagic.session import Session
from agentmagic.text import plural, sanitize
from agentmagic.tools.mcp import McpServers
from agentmagic.tools.notebook import NotebookTools
from agentmagic.widgets import commands
from agentmagic.widgets import page_messages as page
from agentmagic.widgets.inspector import page_of
from agentmagic.widgets.static_html import Publish, SessionHtml
from agentmagic.widgets.view import View
from agentmagic.widgets.view_messages import ConversationRow, State

T = TypeVar("T")

SUFFIXES = {"markdown": ".md", "html": ".html", "json": ".json", "notebook": ".ipynb"}

ServerAction = page.ConnectServer | page.DisconnectServer | page.EnableTool | page.AllowTools
TALK = (
    page.SendPrompt
    | page.ResumePlan
    | page.DropPlan
    | page.RetryTurn
    | page.RewriteTurn
    | page.ForkSession
    | page.RunCommand
    | page.ClearSession
    | page.CompactSession
    | page.InspectTurn
    | page.UndoChange
    | page.RedoChange
    | page.ExportSession
)
"""The actions that use what was said before: an earlier kernel's conversation is loaded before them."""
NamespaceAction = page.AttachFile | page.ForkSession | page.RunCommand | page.NewChat | page.ListChats | page.OpenChat


class Chat:
    """The chat panel of a session, which can be drawn in any number of cell outputs and browser pages.

    The panel shows every turn of the session, and carries out the user's actions. If an action fails, the panel shows
    the error. Turns wait in a queue. Their prompts are made, and the turns begun, in the thread in which synchronous
    tools run. Most other work runs in the engine thread.

    After a restart of the kernel, the panel shows the conversation of the earlier kernel, and goes on with it. It is
    loaded into the session only when the user adds to it here: a cell of the notebook begins anew, as in a batch run.
    `kin` is passed on to `Notebook.find_earlier`.
    """

    def __init__(self, session: Session, notebook: commands.Notebook, view: str = "", *, kin: bool = False) -> None:
        self.view = View(self, home="panel", name=view)
        self.session = session
        self._notebook = notebook
        self._html = SessionHtml(self.view.transcript, self.view.aside, replacement=self._saved_line)
        self._context = contextvars.copy_context()
        self._models: dict[str, str | Model] = {}
        self._default: str | None = None
        self._server_address: str | None = None
        self._notebook_state: State = {}
        self._followed_groups: set[McpServers] = set()
        self._turns = PanelTurns(self.view, notebook, self._in_cell, self.refresh)
        self._deciding = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._kin = kin
        self._earlier: commands.EarlierConversation | None = None
        self._loaded: tuple[str, int] | None = None
        """What is said about the earlier conversation that was loaded here, and its number of turns."""
        self._questions = PageQuestions(self.view, self._record)
        notebook.looks.add(lambda _: self.look())
        engine().call(self._follow(session))

    def show(self, publish: Publish, html: Publish) -> None:
        """Draw the panel in the output of the running cell. From now on, its turns print there.

        `html` sends and updates HTML for browser pages without the widget. From now on, only this cell shows this HTML.
        """
        # Turns run in this context: its variables tell IPython to which cell `print` and `display` belong.
        self._context = contextvars.copy_context()
        publish(self.view.place, False)
        self._html.move(html, "The chat panel is shown again in another cell of this notebook.")
        self._html.show()
        self.look()

    def look(self) -> None:
        """Refresh the state whose changes cause no events: variables, API keys, agent, servers. Thread-safe."""
        engine().submit(self._look())

    def turn_to(self, session: Session) -> Future[None] | None:
        """Start to show another session in the panel; return a future that is done after the change. Thread-safe.

        Do nothing and return None if a turn of the panel's present session is running.
        """
        return None if self.session.running else engine().submit(self._turn_to(lambda: session))

    def refresh(self) -> None:
        """Send the panel's state to the browser pages; called in the engine thread."""
        for group in self._groups():
            if group not in self._followed_groups:
                self._followed_groups.add(group)
                group.listen(lambda _: void(engine().loop.call_soon_threadsafe(self.refresh)))
        self.view.tell(self._state())

    def act(self, action: page.Action) -> None:
        """Carry out what the user did in the chat panel of a browser page. Thread-safe."""
        if isinstance(action, page.SetupAction):
            self._turns.set_up(action)
        elif isinstance(action, page.CellAction):
            pass  # a panel offers no such button
        elif not isinstance(action, Intent):
            self._context.copy().run(engine().submit, self._carry_out(action))
        elif not self._questions.answer(action) and (run := self.session.running) is not None:
            run.pass_on(action)

    def attach(self, make: Callable[[], Sequence[commands.Attachment]], prompt: str = "") -> None:
        """Begin a turn with the prompt and the attachments. If the prompt is "", keep them for the next message.

        `make` returns the attachments, and is called in the thread in which synchronous tools run. Thread-safe.
        """
        self._context.copy().run(engine().submit, self._attach(make, prompt))

    # -- following the session -------------------------------------------------------------------

    async def _follow(self, session: Session) -> None:
        # No `await` here: an event between `_show_log`, which reads the session's log, and `listen` would be lost.
        self.session = session
        self._sought: Path | None = None
        self._loaded = None
        self._turns.turn_to(session)
        self._show_log()
        leave, leave_maps = session.listen(self._hear), session.listen_to_maps(self._hear_map)
        self._leave = lambda: (leave(), leave_maps())

    def _show_log(self) -> None:
        running = self.session.running
        self._earlier = None
        self.view.replace(self.session.events, running.timed_events if running else ())
        if (map_run := self.session.running_map) is not None:
            self.view.feed(map_run.progress)

    def _hear(self, event: Event | HistoryCut) -> None:
        if isinstance(event, HistoryCut):  # arrives in any thread; events of turns arrive in the engine thread
            engine().loop.call_soon_threadsafe(self._begin_anew)
            return
        self._forget_earlier()
        self.view.feed(event)
        if isinstance(event, TurnFinished):
            # Not called at once: after this event, the session adds the turn to its history, and `_turn_over` reads it.
            asyncio.get_running_loop().call_soon(self._turn_over)
        elif isinstance(event, TurnStarted | StepFinished):
            self.refresh()

    def _hear_map(self, progress: MapProgress) -> None:
        self._forget_earlier()
        self.view.feed(progress)
        if progress.ended:
            self._turn_over()

    def _saved_line(self) -> str:
        """Return the line that stands for a saved session's turns in the static output, or "" if it is not saved."""
        if (path := self.session.path) is None:
            return ""
        turns = plural(len(self._earlier.turns if self._earlier else self.session.turns), "turn")
        name = self._notebook.name_of(self.session)
        return f"The chat panel of {name}: {turns}, saved in {path.parent.name}/{path.name}. Run this cell to go on."

    def _begin_anew(self) -> None:
        self._show_log()  # no `await` before this, so that no event is lost
        self._turn_over()

    def _turn_over(self) -> None:
        self.refresh()
        self._html.update()

    # -- the conversation of an earlier kernel -----------------------------------------------------

    async def _find_earlier(self) -> None:
        """Show the earlier conversation with which the panel goes on, if there is one. Called with `_loading` held."""
        if self._earlier is not None and self.session.deck.mode != "live":  # a cell has begun a recording or a replay
            self._begin_anew()
        session, path = self.session, self.session.path
        if path is None or path == self._sought:
            return
        self._sought = path
        earlier = await self._in_pool(partial(self._notebook.find_earlier, session, kin=self._kin))
        # A cell may have begun a turn meanwhile.
        if earlier is not None and self.session is session and not session.turns and not session.running:
            self._earlier = earlier
            self.view.replace(event for turn in earlier.turns for event in turn)
            self._html.update()

    async def _go_on(self) -> None:
        """Load the earlier conversation that the panel shows, if there is one, because the user adds to it."""
        async with self._loading:
            await self._find_earlier()
            if (earlier := self._earlier) is None:
                return
            try:
                session = await self._in_pool(partial(self._notebook.take_up, earlier.name))
            except SessionBusy:
                return  # a cell has just begun a turn, and the message joins its conversation
            except JournalError:
                self._begin_anew()
                raise
            if session is not self.session:
                self._leave()
                await self._follow(session)
            self._show_log()
            self._loaded = earlier.about, len(session.turns)

    def _forget_earlier(self) -> None:
        """Stop showing the earlier conversation, because a cell has begun another one. Called with its first event."""
        if self._earlier is not None:
            self._earlier = None
            self.view.replace(())

    def _about_earlier(self) -> str:
        """Return what is said above the conversation until the second turn after the restart; "" if that is nothing."""
        if self._earlier is not None:
            return self._earlier.about
        about, before = self._loaded or ("", 0)
        return about if before <= len(self.session.turns) <= before + 1 else ""

    # -- the state around the conversation -------------------------------------------------------

    async def _look(self) -> None:
        async with self._loading:
            await self._find_earlier()
        # In a pool thread, because the search for API keys may use the system's keyring, which can block for seconds.
        usable, self._default = await engine().in_pool(
            lambda: ([*usable_models(), *_outside_agents()], default_model())
        )
        self._models = {name: name for name in usable} | self._models
        if (model := self.session.agent.model) is not None:
            self._models[_name(model)] = model
        self._notebook_state |= await self._in_pool(partial(self._look_around, self._model))
        self.refresh()
        address = settings.variable(BASE_URL)
        if address != self._server_address and (names := await engine().in_pool(_served_models)):
            self._server_address = address
            self._models |= {name: name for name in names}
            self.refresh()

    @property
    def _model(self) -> str:
        return settings.model_override() or _name(self.session.agent.model) or self._default or ""

    def _look_around(self, model: str) -> State:
        """Return the part of the panel's state that comes from the notebook and `model`; called in a pool thread."""
        names = [(name, sanitize(about)) for name, about in self._notebook.names()]
        conversation = None if self._earlier else self._notebook.suggest_conversation(self.session)
        window = info(model).window if model else None
        return {
            "window": window or 0,
            "web": sanitize(commands.web_tools(self.session)),
            "offered": None if conversation is None else _chat_row(conversation),
            "welcome": sanitize(model_sentence(model, "message")),
            "examples": _examples(names),
            "reads_notebook": any(isinstance(source, NotebookTools) for source in self.session.toolsets()),
            "names": names,
            "commands": list(self._notebook.commands()),
            "prompts": [(name, sanitize(about)) for name, about in self._notebook.prompts(self.session)],
        }

    def _state(self) -> State:
        override, model = settings.model_override(), self._model
        servers = server_rows(self._groups())
        usage = self.session.usage
        plan = self.session.open_plan
        cost = f"{usage.input_tokens + usage.output_tokens:,} tokens, {words.cost(usage.cost)}"
        return {
            "title": (self._earlier.name if self._earlier else self._notebook.name_of(self.session)) or "Chat",
            "earlier": sanitize(self._about_earlier()),
            "actions": self._actions(has_servers=bool(servers), fixed=override is not None),
            "model": model,
            "models": [model] if override else sorted({*self._models, *filter(None, [model])}),
            "level": commands.level_of(self.session) or "",
            "levels": list(LEVELS.items()),
            "cost": cost if usage.requests else "",
            "context": self.session.context_tokens,
            "servers": servers,
            "note": self._turns.note,
            "left": "" if self.session.running or plan is None else plan.open_tasks,
            "attached": self._turns.attachment_lines,
            "cleared": 0 if self.session.turns or self.session.running else self.session.cleared,
            **self._notebook_state,
        }

    def _actions(self, *, has_servers: bool, fixed: bool) -> list[str]:
        """Return the types of the actions that work in this panel now. The browser page offers only these."""
        absent: set[type] = set() if has_servers else set(ServerAction.__args__)
        if fixed:
            absent.add(page.ChooseModel)
        if not self._notebook.forks:
            absent |= set(NamespaceAction.__args__)
        return [
            *commands.INTENTS,
            *commands.SETUP,
            *(name for name, kind in page.SESSION_ACTIONS.items() if kind not in absent),
        ]

    def _groups(self) -> list[McpServers]:
        """Return the groups of MCP servers whose tools the session's next turn can use."""
        return [source for source in self.session.toolsets() if isinstance(source, McpServers)]

    # -- what the user does ----------------------------------------------------------------------

    async def _carry_out(self, action: page.SessionAction) -> None:
        try:
            output = await self._do_or_ask(action)
        except AgentMagicError as error:
            self.view.complain(sanitize(with_code(error)), action.text if isinstance(action, page.SendPrompt) else "")
        except Exception as error:  # noqa: BLE001  (the user must see that a click failed)
            logger.exception("an action of a panel failed")
            self.view.complain(f"That failed: {sanitize(describe(error))}")
        else:
            if output:
                self._tell(action, output)
        self.refresh()

    def _tell(self, action: page.SessionAction, output: str | Printout) -> None:
        """Show what an action has printed, in the conversation."""
        command = action if isinstance(action, page.RunCommand) else None
        if command is None or command.magic == "agent":
            line = "" if command is None else f"/{command.line.strip()}"
            self.view.show(note(output) if isinstance(output, str) else output, line)
        elif isinstance(output, str):  # a printout of `%mcp` has only what the tab of servers shows
            self.view.say(sanitize(output))

    async def _do_or_ask(self, action: page.SessionAction) -> str | Printout | None:
        """Carry out an action, after the user's yes if its rule says so; return what to tell the user, or None."""
        if isinstance(action, TALK):
            await self._go_on()
        if isinstance(action, page.SendPrompt):
            action = await self._turns.with_coming(action)
        around = Surroundings(self.session, self._notebook, self._models)
        if rule_of(around, action)[0] is HARMLESS:
            return await self._do(action)
        # Of two actions that come together, the second is decided when the first is done. Otherwise a wider level could
        # be taken for the present one while a message that narrows it is on its way.
        async with self._deciding:
            act = await self._in_pool(partial(act_to_ask, around, action))
            if act is None:
                return await self._do(action)
        return await self._questions.do(act, partial(self._do_in, around.session, action))

    async def _do_in(self, session: Session, action: page.SessionAction) -> str | Printout | None:
        """Carry out an action that the user has approved, if the panel still shows the same session."""
        if self.session is not session:
            raise UsageError("The panel shows another conversation now, so nothing was done. Try again.")
        return await self._do(action)

    def _record(self, decision: PageDecision) -> None:
        self.session.record_page_decision(decision)  # of the session that the panel shows now

    async def _do(self, action: page.SessionAction) -> str | Printout | None:  # noqa: C901, PLR0911, PLR0912  (one arm for each action)
        """Carry out the user's action in the chat panel; return what to tell the user, or None."""
        match action:
            case page.StopMap():
                if (map_run := self.session.running_map) is not None:
                    map_run.stop()
                return None
            case page.SendPrompt() | page.ResumePlan() | page.RetryTurn() | page.RewriteTurn():
                return self._turns.enqueue(action)
            case page.AttachFile():
                data = b64decode(action.data, validate=True)
                file = await self._in_pool(partial(self._notebook.file, self.session, action.name, data))
                return self._turns.hold([file])
            case page.DropAttachment():
                return self._turns.detach(action.name)
            case page.DropPlan():
                return self.session.drop_plan()
            case page.WithdrawPrompts():
                return self._turns.withdraw()
            case page.ForkSession():
                return await self._fork(action.turn + 1)
            case page.RunCommand():
                return await self._run_line(action.magic, action.line)
            case page.NewChat():
                self._kin = False  # else it would go on with the conversation that the user leaves
                if self._earlier is not None:
                    self._begin_anew()
                    return self.look()
                return await self._turn_to(partial(self._notebook.new, self.session))
            case page.OpenChat():
                return await self._turn_to(partial(self._notebook.open, action.name, saved=action.saved))
            case page.ListChats():
                chats = await self._in_pool(self._notebook.conversations)
                self._notebook_state["chats"] = list(map(_chat_row, chats))
                return None
            case page.ClearSession():
                return self.session.clear()
            case page.CompactSession():
                return await self._in_pool(partial(commands.compact, self.session))
            case page.InspectTurn():
                return self.view.show_inspection(await engine().in_pool(partial(page_of, self.session, action.turn)))
            case page.UndoClear():
                return None if self.session.turns else void(self.session.step_back())
            case page.UndoChange() | page.RedoChange():
                return await self._undo(redo=isinstance(action, page.RedoChange))
            case page.ExportSession():
                return await engine().in_pool(partial(self._export, SUFFIXES[action.form]))
            case page.ChooseModel():
                return self._choose(action.name)
            case page.ChooseLevel():
                return self._choose_level(action.level)
            case page.ConnectServer() | page.DisconnectServer() | page.EnableTool() | page.AllowTools():
                return await self._do_with_server(action)

    async def _attach(self, make: Callable[[], Sequence[commands.Attachment]], prompt: str) -> None:
        if prompt:
            await self._go_on()
        await self._turns.attach(make, prompt)

    async def _in_pool(self, function: Callable[[], T]) -> T:
        """Call a function in a pool thread. There it may wait for work of the engine thread."""
        return await engine().in_pool(self._in_cell(function))

    async def _undo(self, *, redo: bool) -> str:
        """Undo or redo a change, in the main thread, so that no other code changes variables; return a report."""
        await engine().run_user(self._in_cell(partial(self.session.step_back, redo=redo)))
        return commands.undo_report(self.session, redo=redo)

    async def _run_line(self, magic: str, line: str) -> str | Printout:
        if magic == "agent" and line.strip() in ("undo", "redo"):
            return await self._undo(redo=line.strip() == "redo")
        output = await self._in_pool(partial(self._notebook.run_line, self.session, magic, line))
        self._notebook.looks.tell(None)
        return output

    async def _turn_to(self, find: Callable[[], Session]) -> None:
        """Show the session that `find` returns. Raises UsageError if a turn of the present session runs or waits."""
        if self.session.running or self._turns.waits:
            raise UsageError(
                "A turn of this conversation is under way. Wait for it, or stop it, then open another one."
            )
        session = await self._in_pool(find)
        if session is not self.session:
            self._leave()
            await self._follow(session)
            self._html.update()
        self.look()

    def _in_cell(self, function: Callable[[], T]) -> Callable[[], T]:
        """Wrap a function so that it prints, and saves its turn, as if the cell that shows the panel called it."""
        return partial(self._context.copy().run, function)

    async def _fork(self, turns: int) -> str:
        name = await engine().run_user(self._in_cell(partial(self._notebook.fork, self.session, turns)))
        if self.session.running or self._turns.waits:
            return f"{name} begins with the turns up to this one. The list of conversations opens it."
        before = self._notebook.name_of(self.session)
        await self._turn_to(partial(self._notebook.open, name, saved=False))
        return f"This is {name}, with the turns up to there. {before} is in the list of conversations."

    def _export(self, suffix: str) -> str:
        stem = self._notebook.folder() / (self._notebook.name_of(self.session) or "chat")
        names = (f"{stem}{f'-{number}' if number > 1 else ''}{suffix}" for number in count(1))
        target = next(place for name in names if not (place := Path(name)).exists())
        return commands.export(self.session, target, self._notebook.functions())

    def _choose(self, name: str) -> None:
        if name not in self._models and name.partition(":")[0] in OF_FILES:
            raise UsageError(
                f"{name} is none of the models offered here. Choose it in a cell, with %agent models {name}."
            )
        commands.choose_model(self.session, self._models.get(name, name))
        self._notebook.looks.tell(None)

    def _choose_level(self, level: Level) -> str:
        commands.choose_level(self.session, level)
        self._notebook.looks.tell(None)
        notice = f"{settings.PERMISSION} is set, and holds over it. " if settings.permission_override() else ""
        return f"{notice}From the next turn on: {LEVELS[level].lower()}."

    async def _do_with_server(self, action: ServerAction) -> None:
        holding = (group for group in self._groups() if any(one.name == action.server for one in group.servers))
        if (group := next(holding, None)) is None:
            raise UsageError(f"There is no server {action.server!r} any more.")
        match action:
            case page.ConnectServer():
                await group.restart(action.server)
            case page.DisconnectServer():
                await group.disconnect(action.server)
            case page.EnableTool():
                change = group.enable if action.enabled else group.disable
                # Escaped, because `change` takes patterns, and a tool's name can contain a character such as "[".
                change(action.server, (escape(action.name),))
            case page.AllowTools():
                group.allow(action.server, (escape(action.name) if action.name else "*",))


def _chat_row(conversation: commands.Conversation) -> ConversationRow:
    return {"name": sanitize(conversation.name), "about": conversation.about, "saved": conversation.saved}


def _name(model: str | Model | None) -> str:
    return "" if model is None else model if isinstance(model, str) else model.name


def _outside_agents() -> list[str]:
    return list(filter(class_settings().allows_model, (agent.model for agent in list_installed())))


def _served_models() -> list[str]:
    from agentmagic.providers.openai.client import served_models  # imported late: only a chat panel lists these models

    return served_models()


def _examples(names: Sequence[tuple[str, str]]) -> list[str]:
    """Return example prompts for an empty conversation. If the notebook has a data frame, they name it."""
    table = next((name for name, kind in names if kind.startswith("DataFrame")), None)
    if table is None:
        return ["Which tools can you call?", "Write a function that reads a CSV file, with a test."]
    return [f"What is in @{table}, and what stands out?", f"Write code that plots the columns of @{table}."]
