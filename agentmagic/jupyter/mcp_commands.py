"""`%mcp`: what each of its subcommands does; each returns what to say."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from getpass import getpass
from typing import TYPE_CHECKING, Any

from agentmagic.display.words import one_line, shown
from agentmagic.errors import ServerError, UsageError
from agentmagic.jupyter import formatting, subcommands
from agentmagic.jupyter.frontend import agreed
from agentmagic.jupyter.namespace import Namespace
from agentmagic.messages import Content, Message, Text
from agentmagic.runtime.engine import engine
from agentmagic.settings import path_of
from agentmagic.tools.base import Toolset, list_source

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers, ServerConfig, ServerState
    from agentmagic.tools.mcp.catalogue import Argument
    from agentmagic.tools.mcp.config import Input

MOST_NAMED = 20
"""Tools that a message names."""

LONGEST_INPUT = 500
"""Characters of what a file says about a value that it asks for."""

Put = Callable[[str, Message], None]
"""Asks a session, named, a prompt."""


class Servers:
    """The servers of the notebook: those of `%mcp`, and those of its sessions' agents.

    `attended` says whether somebody can type in the cell under way; `put` asks a session.
    """

    def __init__(self, namespace: Namespace, attended: Callable[[], bool], put: Put) -> None:
        self._namespace = namespace
        self._attended = attended
        self._put = put

    def answer(self, command: Any) -> str:
        """Do what a subcommand says. Raises UsageError and ServerError."""
        arms: Mapping[type[Any], Callable[[Any], str]] = {
            subcommands.ListServers: self._list,
            subcommands.GetServer: self._get,
            subcommands.AddServer: self._add,
            subcommands.LoadServers: self._load,
            subcommands.ApproveServer: self._approve,
            subcommands.RemoveServer: self._remove,
            subcommands.RestartServer: self._restart,
            subcommands.AllowTools: self._allow,
            subcommands.EnableTools: self._enable,
            subcommands.DisableTools: self._disable,
            subcommands.ServerTools: self._tools,
            subcommands.ServerLog: self._log,
            subcommands.ListPrompts: self._prompts,
            subcommands.UsePrompt: self._prompt,
            subcommands.ListResources: self._resources,
        }
        return arms[type(command)](command)

    # -- coming and going ----------------------------------------------------------------------

    def _list(self, _: subcommands.ListServers) -> str:
        return listed(self._namespace.server_groups())

    def _get(self, command: subcommands.GetServer) -> str:
        return formatting.server(self._holding(command.name).get(command.name))

    def _add(self, command: subcommands.AddServer) -> str:
        from agentmagic.tools.mcp import config

        program, *arguments = command.command
        is_url = program.lower().startswith(("http://", "https://"))
        entry: Any = program if is_url and not arguments else {"command": program, "args": arguments}
        servers = self._namespace.need_servers()
        engine().call(servers.add(command.name, config.parse(entry)))
        return listed((servers,), command.name)

    def _load(self, command: subcommands.LoadServers) -> str:
        from agentmagic.tools.mcp import config

        servers = self._namespace.need_servers()
        ask = _typed_input if self._attended() else None
        found = config.read(path_of(command.file), ask=ask)
        problems = [self._connect(servers, name, one) for name, one in found.items()]
        return "\n".join([listed((servers,)), *filter(None, problems)])

    def _connect(self, servers: "McpServers", name: str, config: "ServerConfig") -> str:
        """Connect a server of a file, once a person has let it start; return what went wrong."""
        try:
            engine().call(servers.add(name, config))
        except (ServerError, UsageError) as error:
            waits = any(one.name == name and one.state == "needs approval" for one in servers.servers)
            shown = servers.pending(name) if waits else None
            if shown is None or not self._attended():
                return str(error)
            if not agreed(f"Start the MCP server {name!r}, which the project names?\n{shown}\n[y/N] "):
                return f"{name} was not started. %mcp approve {name} lets it start."
            return self._approved(servers, name)
        return ""

    def _approved(self, servers: "McpServers", name: str) -> str:
        """Approve a server and connect it; return what went wrong."""
        try:
            servers.approve(name)
        except ServerError as error:
            return str(error)
        return self._started(servers, name)

    def _started(self, servers: "McpServers", name: str) -> str:
        """Connect a server; return what went wrong."""
        try:
            engine().call(servers.restart(name))
        except ServerError as error:
            return str(error)
        return ""

    def _approve(self, command: subcommands.ApproveServer) -> str:
        servers, name = self._holding(command.name), command.name
        shown = servers.pending(name)
        if shown is None:
            return f"{name} needs no approval."
        servers.approve(name)
        problem = self._started(servers, name)
        return "\n".join(filter(None, (f"{name} may start: {shown}", problem, listed((servers,), name))))

    def _remove(self, command: subcommands.RemoveServer) -> str:
        engine().call(self._holding(command.name).remove(command.name))
        return f"{command.name} is disconnected."

    def _restart(self, command: subcommands.RestartServer) -> str:
        servers = self._holding(command.name)
        engine().call(servers.restart(command.name))
        return listed((servers,), command.name)

    # -- their tools ---------------------------------------------------------------------------

    def _allow(self, command: subcommands.AllowTools) -> str:
        servers = self._holding(command.name)
        _check_patterns(servers.get(command.name), command.patterns)
        servers.allow(command.name, command.patterns or ("*",))
        tools = ", ".join(command.patterns) or "every tool"
        return f"Of {command.name}, {tools} runs without asking, unless the policy of a session says otherwise."

    def _enable(self, command: subcommands.EnableTools) -> str:
        servers = self._holding(command.name)
        _check_patterns(servers.get(command.name), command.patterns)
        servers.enable(command.name, command.patterns or ("*",))
        return _without(command.name, servers.get(command.name).disabled)

    def _disable(self, command: subcommands.DisableTools) -> str:
        servers = self._holding(command.name)
        _check_patterns(servers.get(command.name), command.patterns)
        servers.disable(command.name, command.patterns)
        return _without(command.name, servers.get(command.name).disabled)

    def _tools(self, command: subcommands.ServerTools) -> str:
        groups = self._namespace.server_groups() if command.name is None else (self._holding(command.name),)
        return tools_of(groups, command.name)

    def _log(self, command: subcommands.ServerLog) -> str:
        servers = self._holding(command.name)
        lines = [(one.level, one.logger, one.text) for one in servers.logs(command.name)]
        return formatting.server_log(lines, servers.get(command.name).stderr)

    # -- prompts and resources -----------------------------------------------------------------

    def _prompts(self, command: subcommands.ListPrompts) -> str:
        found = [one for servers in self._asked(command.name) for one in engine().call(servers.prompts(command.name))]
        return formatting.prompts(
            (one.server, one.name, " ".join(map(_written, one.arguments)), one.description) for one in found
        )

    def _resources(self, command: subcommands.ListResources) -> str:
        found = [one for servers in self._asked(command.name) for one in engine().call(servers.resources(command.name))]
        return formatting.resources((one.server, one.uri, one.description or one.name) for one in found)

    def _prompt(self, command: subcommands.UsePrompt) -> str:
        servers = self._holding(command.name)
        arguments = dict(_pair(written) for written in command.arguments)
        messages = engine().call(servers.prompt(command.name, command.prompt, arguments))
        if not command.ask:
            return "\n\n".join(f"{message.role}: {message.text}" for message in messages) or "The prompt is empty."
        self._put(command.session, as_one(messages))
        return ""

    # -- which there are -----------------------------------------------------------------------

    def _holding(self, name: str) -> "McpServers":
        """Return the servers among which one is, the ones of `%mcp` first. Raises UsageError for an unknown name."""
        if (group := self._namespace.group_of(name)) is None:
            names = [state.name for servers in self._namespace.server_groups() for state in servers.servers]
            message = f"There is no server {name!r}. Servers: {', '.join(names) or 'there are none'}."
            raise UsageError(message)
        return group

    def _asked(self, name: str | None) -> "Sequence[McpServers]":
        return self._namespace.server_groups() if name is None else (self._holding(name),)


def listed(toolsets: Sequence[Toolset], name: str | None = None) -> str:
    """Say how the servers among sources of tools are doing, or one of them."""
    from agentmagic.tools.mcp import McpServers

    states = [state for source in toolsets if isinstance(source, McpServers) for state in source.servers]
    return formatting.servers(
        (one.name, one.state, str(one.tools), one.error) for one in states if name in (None, one.name)
    )


def tools_of(toolsets: Sequence[Toolset], server: str | None = None) -> str:
    """List the tools of toolsets as a turn would, or those of one server, and say which servers failed.

    Servers are connected if need be.
    """
    listings = [engine().call(list_source(toolset)) for toolset in toolsets]
    definitions = [tool.definition for tools, _ in listings for tool in tools]
    shown = [one for one in definitions if server in (None, one.server)]
    problems = [problem for _, missing in listings for problem in missing]
    return "\n".join([*([formatting.tools(shown)] if shown or not problems else []), *problems])


def as_one(messages: Sequence[Message]) -> Message:
    """Make one prompt of a server's messages; who speaks is said where there is more than one."""
    if len(messages) == 1:
        return Message("user", messages[0].parts)
    parts: list[Content] = []
    for message in messages:
        parts.append(Text(f"{message.role}: "))
        parts += [part for part in message.parts if isinstance(part, Content)]
    return Message("user", tuple(parts))


def _without(name: str, disabled: Sequence[str]) -> str:
    if not disabled:
        return f"Of {name}, the model gets every tool from the next turn on."
    return f"Of {name}, the model does not get: {', '.join(disabled)}."


def _check_patterns(server: "ServerState", patterns: Sequence[str]) -> None:
    """Raise UsageError for a pattern that none of a server's tools fits, where they are known."""
    for pattern in patterns:
        if server.names and not any(fnmatchcase(name, pattern) for name in server.names):
            known = ", ".join(server.names[:MOST_NAMED])
            message = f"The server {server.name!r} has no tool {pattern!r}. Its tools: {known}."
            raise UsageError(message)


def _pair(written: str) -> tuple[str, str]:
    key, equals, value = written.partition("=")
    if not equals:
        message = f"{written!r} is no argument of a prompt. Write NAME=VALUE."
        raise UsageError(message)
    return key, value


def _written(argument: "Argument") -> str:
    return f"{argument.name}=" if argument.required else f"[{argument.name}=]"


def _typed_input(asked: "Input") -> str:
    """Have a value typed that a file of VS Code asks for, hidden where it is a secret; "" for its default.

    What the file says is shown on one line, so that it cannot pass for another question.
    """
    choices = f" ({', '.join(asked.options)})" if asked.options else ""
    default = f", else {asked.default}" if asked.default else ""
    about = one_line(shown(f"{asked.description or asked.id}{choices}{default}"), LONGEST_INPUT)
    prompt = f"The file asks for {asked.id!r}: {about}: "
    while True:
        try:
            typed = getpass(prompt) if asked.password else input(prompt)
        except EOFError:
            return ""
        if not (typed and asked.options) or typed in asked.options:
            return typed
