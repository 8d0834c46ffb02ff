"""`%%agent`, `%agent` and `%mcp`: each parses, calls and shows."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell

from agentmagic import log
from agentmagic.jupyter import formatting, options, subcommands
from agentmagic.jupyter.cell_errors import one_line
from agentmagic.jupyter.conversations import Conversations
from agentmagic.jupyter.frontend import Kind, front_end, say
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.option_parser import Help
from agentmagic.messages import Message
from agentmagic.session import Session

if TYPE_CHECKING:
    from agentmagic.jupyter.mcp_commands import Servers
    from agentmagic.jupyter.runner import Runner

SHOWN = 100
"""How many log records `%agent debug` shows."""


class AgentMagics:
    """The magics of one shell, `%%agent` and `%agent` under the name they were loaded by."""

    def __init__(self, shell: InteractiveShell, name: str, namespace: Namespace) -> None:
        self.name = name
        self.namespace = namespace
        self.conversations = Conversations(namespace, name)
        self._shell = shell

    @one_line
    def cell(self, line: str, cell: str) -> None:
        """Run `%%agent`."""
        parsed = options.parse_ask(line, self.name)
        if isinstance(parsed, Help):
            say(parsed.text)
        else:
            self._runner.ask(parsed, cell)

    @cached_property
    def _runner(self) -> "Runner":
        """What runs cells, and all that shows them, is loaded with the first cell."""
        from agentmagic.jupyter.runner import Runner

        return Runner(self._shell, self.namespace)

    @cached_property
    def _servers(self) -> "Servers":
        from agentmagic.jupyter.mcp_commands import Servers

        return Servers(self.namespace, lambda: front_end(self._shell).attended, self._ask)

    @one_line
    def line(self, line: str) -> None:
        """Run `%agent`."""
        if words := self._agent(options.parse_line(line, "agent", self.name)):
            say(words)

    @one_line
    def mcp(self, line: str) -> None:
        """Run `%mcp`."""
        parsed = options.parse_line(line, "mcp")
        if words := parsed.text if isinstance(parsed, Help) else self._servers.answer(parsed):
            say(words)

    def _agent(self, parsed: Any) -> str:  # noqa: PLR0911  (one arm for each subcommand)
        match parsed:
            case Help():
                return parsed.text
            case subcommands.OpenChat():
                self.namespace.session(parsed.name or parsed.session).chat()
                return ""
            case subcommands.ListSessions():
                return self.conversations.listed()
            case subcommands.Load():
                return self.conversations.load(parsed)
            case subcommands.Save():
                return self.conversations.save(parsed)
            case subcommands.Fork():
                return self.conversations.fork(parsed)
            case subcommands.Export():
                return self.conversations.export(parsed)
            case subcommands.Debug():
                return self._debug(parsed.detail)
            case subcommands.Models(model=str(model)):
                return self._choose_model(parsed.session, model)
            case _:
                return self._show(parsed, self.namespace.known(parsed.session))

    def _show(self, parsed: Any, session: Session) -> str:  # noqa: PLR0911  (one arm for each subcommand)
        match parsed:
            case subcommands.Status():
                rows = formatting.status(parsed.session, session, self.namespace.place())
                from agentmagic.jupyter.mcp_commands import listed

                return f"{rows}\n\n{listed(session.toolsets())}"
            case subcommands.ListHistory():
                return formatting.found(session, parsed.search) if parsed.search else formatting.history(session)
            case subcommands.ListTools():
                from agentmagic.jupyter.mcp_commands import tools_of

                return tools_of(self.namespace.toolsets(session, session.agent))
            case subcommands.Models():
                return formatting.models(session)
            case subcommands.Cost():
                return formatting.usage(session.usage)
            case subcommands.Reset():
                session.clear()
                return "The conversation is forgotten."
            case _:
                return _undo(session)

    def _choose_model(self, name: str, model: str) -> str:
        session = self.namespace.draft(name)
        recipe = replace(session.agent, model=model)
        session.model(recipe)
        session.agent = recipe
        self.namespace.bind(name, session)
        return f"The session's model: {formatting.model_name(session)}"

    def _debug(self, detail: subcommands.Switch | None) -> str:
        if detail is None:
            times = front_end(self._shell).kind is not Kind.BATCH
            return formatting.log(log.recent(SHOWN), detailed=log.is_detailed(), times=times)
        log.keep(detailed=detail == "on")
        sdks = f"every event of a turn, and what {', '.join(log.SDKS)} log"
        kept = sdks if detail == "on" else "how turns begin and end, retries and warnings"
        return f"The log now keeps {kept}. %{self.name} debug shows its last {SHOWN} lines."

    def _ask(self, session: str, prompt: Message) -> None:
        self._runner.put(options.Ask(session), prompt)


def _undo(session: Session) -> str:
    undone = session.undo()
    return f"Forgotten: {undone.text}" if undone else "There is no turn to undo."
