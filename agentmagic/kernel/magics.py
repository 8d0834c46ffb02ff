"""`%%agent`, `%agent` and `%mcp`: each parses, calls and shows."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell

from agentmagic import logs
from agentmagic.engine import engine
from agentmagic.errors import ServerError, UsageError
from agentmagic.kernel import command, reports, subcommands
from agentmagic.kernel.conversations import Conversations
from agentmagic.kernel.failures import one_line
from agentmagic.kernel.frontend import Kind, front_end, say
from agentmagic.kernel.namespace import Namespace
from agentmagic.kernel.parser import Help
from agentmagic.messages import ToolDef
from agentmagic.paths import path_of
from agentmagic.session import Session
from agentmagic.tools.base import Toolset

if TYPE_CHECKING:
    from agentmagic.kernel.runner import Runner

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
        parsed = command.parse_ask(line, self.name)
        if isinstance(parsed, Help):
            say(parsed.text)
        else:
            self._runner.ask(parsed, cell)

    @cached_property
    def _runner(self) -> "Runner":
        """What runs cells, and all that shows them, is loaded with the first cell."""
        from agentmagic.kernel.runner import Runner

        return Runner(self._shell, self.namespace)

    @one_line
    def line(self, line: str) -> None:
        """Run `%agent`."""
        say(self._agent(command.parse_line(line, "agent", self.name)))

    @one_line
    def mcp(self, line: str) -> None:
        """Run `%mcp`."""
        say(self._mcp(command.parse_line(line, "mcp")))

    def _agent(self, parsed: Any) -> str:  # noqa: PLR0911  (one arm for each subcommand)
        match parsed:
            case Help():
                return parsed.text
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
                rows = reports.status(parsed.session, session, self.namespace.place())
                return f"{rows}\n\n{_servers(session.toolsets())}"
            case subcommands.ListHistory():
                return reports.found(session, parsed.search) if parsed.search else reports.history(session)
            case subcommands.ListTools():
                return reports.tools(_listed(self.namespace.toolsets(session, session.agent)))
            case subcommands.Models():
                return reports.models(session)
            case subcommands.Cost():
                return reports.usage(session.usage)
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
        return f"The session's model: {reports.model_name(session)}"

    def _debug(self, detail: subcommands.Switch | None) -> str:
        if detail is None:
            times = front_end(self._shell).kind is not Kind.BATCH
            return reports.log(logs.recent(SHOWN), detailed=logs.is_detailed(), times=times)
        logs.keep(detailed=detail == "on")
        sdks = f"every event of a turn, and what {', '.join(logs.SDKS)} log"
        kept = sdks if detail == "on" else "how turns begin and end, retries and warnings"
        return f"The log now keeps {kept}. %{self.name} debug shows its last {SHOWN} lines."

    def _mcp(self, parsed: Any) -> str:  # noqa: PLR0911  (one arm for each subcommand)
        match parsed:
            case Help():
                return parsed.text
            case subcommands.AddServer():
                return self._add(parsed)
            case subcommands.LoadServers():
                return self._load(parsed.file)
            case subcommands.RemoveServer():
                engine().call(self._known().remove(parsed.name))
                return f"{parsed.name} is disconnected."
            case subcommands.AllowTools():
                self._known().allow(parsed.name, parsed.patterns or ("*",))
                return f"Of {parsed.name}, {', '.join(parsed.patterns) or 'every tool'} runs without asking."
            case subcommands.ServerTools():
                return self._server_tools(parsed.name)
            case _:
                return self._servers()

    def _add(self, parsed: subcommands.AddServer) -> str:
        from agentmagic.tools.mcp import config

        program, *arguments = parsed.command
        is_url = program.lower().startswith(("http://", "https://"))
        entry: Any = program if is_url and not arguments else {"command": program, "args": arguments}
        servers = self.namespace.need_servers()
        engine().call(servers.add(parsed.name, config.parse(entry)))
        return self._servers(parsed.name)

    def _load(self, file: str) -> str:
        from agentmagic.tools.mcp import config

        servers = self.namespace.need_servers()
        failed: list[str] = []
        for name, one in config.read(path_of(file)).items():
            try:
                engine().call(servers.add(name, one))
            except (ServerError, UsageError) as error:
                failed.append(str(error))
        return "\n".join([self._servers(), *failed])

    def _server_tools(self, name: str | None) -> str:
        if name is not None:
            self._known().check(name)
        servers = self.namespace.servers
        listed = _listed((servers,)) if servers else ()
        return reports.tools([one for one in listed if name in (None, one.server)])

    def _servers(self, name: str | None = None) -> str:
        return _servers((self.namespace.servers,) if self.namespace.servers else (), name)

    def _known(self) -> Any:
        return self.namespace.need_servers()


def _servers(toolsets: tuple[Toolset, ...], name: str | None = None) -> str:
    """Say how the servers among sources of tools are doing, or one of them."""
    from agentmagic.tools.mcp import McpServers

    states = [state for source in toolsets if isinstance(source, McpServers) for state in source.servers]
    return reports.servers(
        (one.name, one.state, str(one.tools), one.error) for one in states if name in (None, one.name)
    )


def _listed(toolsets: tuple[Toolset, ...]) -> list[ToolDef]:
    """List the tools of toolsets as a turn would, connecting servers where need be."""
    return [tool.definition for toolset in toolsets for tool in engine().call(_list(toolset))]


async def _list(toolset: Toolset) -> Any:
    return await toolset.tools()


def _undo(session: Session) -> str:
    undone = session.undo()
    return f"Forgotten: {undone.text}" if undone else "There is no turn to undo."
