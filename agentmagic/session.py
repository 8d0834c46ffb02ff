"""A conversation: its history, its connections, its totals."""

import asyncio
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.calls import Ask, Emit
from agentmagic.engine import engine
from agentmagic.errors import AuthenticationMissing, SessionBusy, UsageError
from agentmagic.events import Event, RunResult, ToolFinished, TurnFinished
from agentmagic.history import History
from agentmagic.loop import Outcome, run_turn
from agentmagic.messages import Content, Message, Text, ToolDef, Usage, user
from agentmagic.permission import Policy
from agentmagic.providers.base import Model
from agentmagic.providers.registry import default_model, providers, resolve
from agentmagic.run import AbortEvent, Run
from agentmagic.tools.base import Tool, Toolset
from agentmagic.tools.functions import Functions, function_tool

LONGEST_PROMPT = 2_000_000
"""Characters of a prompt; more fits no model's window, and would only be refused after a long upload."""


class Session:
    """One conversation of an agent: its history, its open tool connections, its totals.

    Turns never interleave: a second one while one is running raises SessionBusy. Use it as an async
    context manager, or close it with `close()`; what is left open is closed when the process ends.
    """

    def __init__(self, agent: Agent | str | Model | None = None) -> None:
        self.agent = agent if isinstance(agent, Agent) else Agent(agent)
        self.history = History()
        self._approved: set[tuple[str, str]] = set()
        self._open = _Open()
        self._open.servers(self.agent.mcp)
        self._extra: list[Toolset] = []
        self._listed: tuple[ToolDef, ...] = ()
        self._run: Run | None = None
        self._starting = threading.Lock()
        engine().at_close(self._open.aclose)
        weakref.finalize(self, _close_later, self._open).atexit = False

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
        return tuple(tool.definition for tool in _own_tools(self.agent))

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
        toolsets: Sequence[Toolset] | None = None,
        attended: bool = False,
    ) -> "Run":
        """Begin a turn and return at once.

        `abort` ends the run once it is set. `agent` stands in for the session's for this turn, and `toolsets`
        for all of its sources of tools. `attended` says that somebody watches the events and answers
        approvals and questions with `run.send`; otherwise a call that needs approval is denied.

        Raises SessionBusy while a turn is running, and UsageError for a prompt or model that cannot be.
        """
        recipe = agent or self.agent
        sources = self.toolsets(recipe) if toolsets is None else tuple(toolsets)
        model = self.model(recipe)
        notices = settings.overrides(model.name)
        settings.hide_keys(key for row in providers().values() for key in row.keys)
        play = partial(self._play, recipe, model, sources, notices, _as_message(prompt))
        with self._starting:
            self._refuse_while_running()
            self._run = Run(play, attended=attended, abort=abort)
            return self._run

    def ask(self, prompt: "str | Message | list[str | Content]", **options: Any) -> RunResult:
        """Run a turn and wait for its result; for synchronous code, in a cell and in a script.

        Takes the options of `start` and raises what `Run.wait` raises.
        """
        engine().refuse_own_thread()
        with engine().main.held():
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
        return self._open.model(chosen)

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

    def toolsets(self, agent: Agent | None = None) -> tuple[Toolset, ...]:
        """Return the sources of tools of a turn: the recipe's own, its servers, and those added."""
        agent = agent or self.agent
        own = _own_tools(agent)
        sets: list[Toolset] = []
        if own:
            sets.append(Functions(own))
        sets += [source for source in agent.tools if isinstance(source, Toolset)]
        if (servers := self._open.servers(agent.mcp)) is not None:
            sets.append(servers)
        return (*sets, *self._extra)

    async def _play(  # noqa: PLR0913  (what a turn needs)
        self,
        agent: Agent,
        model: Model,
        toolsets: tuple[Toolset, ...],
        notices: list[str],
        prompt: Message,
        emit: Emit,
        ask: Ask,
    ) -> Outcome:
        """Run a turn and take it into the history; on the engine."""
        outcome = await run_turn(
            agent,
            model,
            toolsets,
            self.messages,
            prompt,
            emit=emit,
            ask=ask,
            policy=Policy(agent.permission, self._approved),
            notices=notices,
        )
        self.history.add((*outcome.result.events, TurnFinished(outcome.result)), outcome.result.history_delta)
        self._listed = outcome.tools or self._listed
        return outcome

    async def aclose(self) -> None:
        """Cancel what runs and close the session's models and servers, from any event loop; safe to call twice."""
        if (run := self.running) is not None:
            run.cancel()
            await asyncio.shield(asyncio.wrap_future(run.settled))
        await asyncio.wrap_future(engine().submit(self._open.aclose()))

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
        return f"<Session {model or 'default model'}: {self.history.turns} turns, {len(self.messages)} messages{state}>"


def _own_tools(agent: Agent) -> list[Tool]:
    """Return the tools that a recipe holds itself, functions and `Tool`s, in its order."""
    single = [source for source in agent.tools if not isinstance(source, Toolset)]
    return [source if isinstance(source, Tool) else function_tool(source) for source in single]


class _Open:
    """What a session holds open, apart from it, so that it can be closed when the session is gone."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._servers: list[tuple[Any, Toolset]] = []

    def model(self, name: str) -> Model:
        """Return the model of a name, the same one each time."""
        if name not in self._models:
            self._models[name] = resolve(name)
        return self._models[name]

    def servers(self, mcp: Any) -> Toolset | None:
        """Return the servers of a recipe, the same ones each time, or None where it has none."""
        if not mcp:
            return None
        for known, servers in self._servers:
            if known is mcp or known == mcp:
                return servers
        from agentmagic.tools.mcp import McpServers, config

        servers = McpServers(config.read(mcp))
        self._servers.append((mcp, servers))
        return servers

    async def aclose(self) -> None:
        """Close it all; on the engine."""
        engine().forget(self.aclose)
        for model in self._models.values():
            await model.aclose()
        await asyncio.gather(*(servers.aclose() for _, servers in self._servers))


def _close_later(opened: _Open) -> None:
    """Close what a session held open that nobody holds any more."""
    engine().submit(opened.aclose())


def _as_message(prompt: "str | Message | list[str | Content]") -> Message:
    match prompt:
        case Message():
            message = prompt
        case str():
            message = user(prompt)
        case list():
            message = user(*prompt)
        case _:
            words = f"A prompt cannot be {prompt!r:.80}. Give a string, a user message, or a list of strings and parts."
            raise UsageError(words)
    if message.role != "user":
        words = f"The prompt is a message of the {message.role}. Give one of the user."
        raise UsageError(words)
    if len(message.text) > LONGEST_PROMPT:
        words = (
            f"The prompt has {len(message.text):,} characters; no model takes more than {LONGEST_PROMPT:,}. "
            "Put the data into a variable and give the agent a tool that reads it."
        )
        raise UsageError(words)
    if not message.text.strip() and all(isinstance(part, Text) for part in message.parts):
        words = "The prompt is empty. Write what the agent should do."
        raise UsageError(words)
    return message
