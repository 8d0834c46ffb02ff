"""The subcommands of `%mcp`: one method for each, which returns what to print. `MCP_COMMANDS` lists them.

A method's parameters are the arguments of the subcommand, and its docstring is the help.
"""

from collections.abc import Callable, Mapping, Sequence
from getpass import getpass
from typing import TYPE_CHECKING, Annotated

from agentmagic.display.printout import Printout, printout
from agentmagic.errors import ServerError, UsageError, with_code
from agentmagic.jupyter.frontend import confirm
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.options import Command, LineMagic, SessionName
from agentmagic.jupyter.magics.parser import Arg
from agentmagic.jupyter.magics.sources import json_files, prompt_arguments, server_prompts, server_tools, servers
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace
from agentmagic.messages import Content, Message, Text
from agentmagic.runtime.engine import engine
from agentmagic.settings import path_of
from agentmagic.text import did_you_mean, sanitize, single_line

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers, ServerConfig
    from agentmagic.tools.mcp.config import Input

NOT_STARTED = "{} is not started: a replay needs no server. The first turn that is not replayed starts it."
LONGEST_INPUT = 500
"""Characters that are shown of the description of a value for which a configuration file asks the user."""

ServerName = Annotated[str, Arg("SERVER", "its name here", complete=servers)]
OptionalServer = Annotated[str | None, Arg("SERVER", "its name here", complete=servers)]
Patterns = Annotated[
    tuple[str, ...], Arg("PATTERN", "names or patterns of its tools (default: all)", complete=server_tools)
]


class McpCommands:
    """The methods that carry out the subcommands of `%mcp`.

    They work on the servers that `%mcp` has added, and on those of the agents in the notebook's sessions. `attended`
    returns whether a user can type in the running cell; `run_prompt` runs a turn in the session that it names.
    """

    def __init__(
        self, namespace: Namespace, attended: Callable[[], bool], run_prompt: Callable[[str, Message], None]
    ) -> None:
        self._namespace = namespace
        self._attended = attended
        self._run_prompt = run_prompt

    # -- connecting ----------------------------------------------------------------------------

    def list_servers(self) -> Printout:
        """Show the servers and their states."""
        return formatting.servers(self._namespace.server_groups())

    def get(self, *, name: ServerName) -> Printout:
        """Show the details of a server: address, state, tools, last error, last output."""
        return formatting.server(self._group_with(name).get(name))

    def add(  # noqa: PLR0913  (the options of a line)
        self,
        *,
        env: Annotated[tuple[str, ...], Arg("-e, --env NAME=VALUE", "a variable that it sees", repeated=True)] = (),
        header: Annotated[tuple[str, ...], Arg("--header NAME:VALUE", "a header that it is sent", repeated=True)] = (),
        timeout: Annotated[float | None, Arg("--timeout SECONDS", "that a call may take (default: 60)")] = None,
        connect_timeout: Annotated[
            float | None, Arg("--connect-timeout SECONDS", "that its start may take (default: 20, for npx and uvx 60)")
        ] = None,
        sse: Annotated[bool, Arg("--sse", "it speaks the HTTP of 2024, with server-sent events")] = False,
        name: Annotated[str, Arg("SERVER", "what it is to be called here", complete=servers)],
        command: Annotated[tuple[str, ...], Arg("COMMAND... | URL", "its command line, or its web address", rest=True)],
    ) -> str | Printout:
        """Connect an MCP server for all sessions. A value may hold ${VAR}, a variable of the environment."""
        config = config_of_line(
            name=name,
            command=command,
            env=env,
            header=header,
            timeout=timeout,
            connect_timeout=connect_timeout,
            sse=sse,
        )
        group, replays = self._namespace.need_servers(), self._namespace.replays
        engine().call(group.add(name, config, connect=not replays))
        if replays:
            return NOT_STARTED.format(name)
        return formatting.servers((group,), name)

    def load(
        self,
        *,
        file: Annotated[str, Arg("FILE", "a .mcp.json, or another file of the mcpServers form", complete=json_files)],
    ) -> Printout:
        """Connect the servers of a configuration file."""
        from agentmagic.tools.mcp import config

        group = self._namespace.need_servers()
        configs = config.read(path_of(file), ask=_typed_input if self._attended() else None)
        problems = [self._connect(group, name, one) for name, one in configs.items()]
        return printout([*formatting.servers((group,), errors=False).parts, *problems])

    def approve(self, *, name: ServerName) -> str | Printout:
        """Allow a server of a configuration file to start, with its present entry."""
        group = self._group_with(name)
        pending = group.pending(name)  # the server's command line; read now, because it is gone after the approval
        if pending is None:
            return f"{name} needs no approval."
        group.approve(name)
        problem = NOT_STARTED.format(name) if self._namespace.replays else _start(group, name)
        states = formatting.servers((group,), name, errors=False)
        return printout([f"{name} may start: {pending}", problem, *states.parts])

    def restart(self, *, name: ServerName) -> str | Printout:
        """Disconnect a server and connect it again."""
        group = self._group_with(name)
        if self._namespace.replays:
            return NOT_STARTED.format(name)
        engine().call(group.restart(name))
        return formatting.servers((group,), name)

    def remove(self, *, name: ServerName) -> str:
        """Disconnect a server and forget it."""
        engine().call(self._group_with(name).remove(name))
        return f"{name} is disconnected."

    # -- tools ---------------------------------------------------------------------------------

    def tools(self, *, name: OptionalServer = None) -> Printout:
        """Show the tools of the servers, or of one."""
        definitions, problems = self._namespace.definitions(self._groups(name))
        return formatting.tools([one for one in definitions if name in (None, one.server)], problems)

    def allow(self, *, name: ServerName, patterns: Patterns = ()) -> str:
        """Let tools of a server run without asking."""
        self._with_tools(name, patterns).allow(name, patterns or ("*",))
        tools = ", ".join(patterns) or "every tool"
        return f"Of {name}, {tools} runs without asking, unless the policy of a session says otherwise."

    def trust(self, *, name: ServerName) -> str:
        """Trust a server: its read-only tools, or all of them, run without asking, as %agent permission sets."""
        self._with_tools(name, ()).trust(name)
        return f"{name} is trusted. %agent permission says what that lets run without asking."

    def disable(
        self,
        *,
        name: ServerName,
        patterns: Annotated[
            tuple[str, ...], Arg("PATTERN", "names or patterns of its tools; * for all", complete=server_tools)
        ],
    ) -> str:
        """Hide tools of a server from the model."""
        group = self._with_tools(name, patterns)
        group.disable(name, patterns)
        return _without(name, group.get(name).disabled)

    def enable(self, *, name: ServerName, patterns: Patterns = ()) -> str:
        """Offer disabled tools to the model again."""
        group = self._with_tools(name, patterns)
        group.enable(name, patterns or ("*",))
        return _without(name, group.get(name).disabled)

    def logs(self, *, name: ServerName) -> Printout:
        """Show the log messages of a server, and its last output on stderr."""
        group = self._group_with(name)
        lines = [(one.level, one.logger, one.text) for one in group.logs(name)]
        return formatting.server_log(lines, group.get(name).stderr)

    # -- prompts and resources -----------------------------------------------------------------

    def prompts(self, *, name: OptionalServer = None) -> Printout:
        """Show the prompts that the servers offer, or one of them."""
        return formatting.prompts(one for group in self._groups(name) for one in engine().call(group.prompts(name)))

    def prompt(
        self,
        *,
        session: SessionName = DEFAULT_SESSION,
        name: ServerName,
        prompt: Annotated[str, Arg("PROMPT", "the name of the prompt", complete=server_prompts)],
        arguments: Annotated[
            tuple[str, ...], Arg("NAME=VALUE", "what the prompt is to be filled in with", complete=prompt_arguments)
        ] = (),
        ask: Annotated[bool, Arg("--ask", "ask the session, instead of showing the prompt")] = False,
    ) -> str:
        """Show a prompt of a server with its arguments filled in, or run a turn with it."""
        group = self._group_with(name)
        values = dict(_pair(word, "=", "an argument of a prompt. Write NAME=VALUE") for word in arguments)
        messages = engine().call(group.prompt(name, prompt, values))
        # Only the text is printed, because images and files in the messages are for the model.
        if not ask:
            return "\n\n".join(f"{message.role}: {message.text}" for message in messages) or "The prompt is empty."
        self._run_prompt(session, _merge(messages))
        return ""

    def resources(self, *, name: OptionalServer = None) -> Printout:
        """Show the resources that you can attach to a cell as @SERVER:URI."""
        return formatting.resources(one for group in self._groups(name) for one in engine().call(group.resources(name)))

    # -- the servers meant ---------------------------------------------------------------------

    def _group_with(self, name: str) -> "McpServers":
        """Return the group of servers that has the server `name`; the group of `%mcp` is searched first.

        Raises UsageError if no group has it.
        """
        if (group := self._namespace.group_of(name)) is None:
            names = [state.name for group in self._namespace.server_groups() for state in group.servers]
            hint = did_you_mean(name, names)
            raise UsageError(f"There is no server {name!r}.{hint} Servers: {', '.join(names) or 'there are none'}.")
        return group

    def _groups(self, name: str | None) -> "Sequence[McpServers]":
        return self._namespace.server_groups() if name is None else (self._group_with(name),)

    def _with_tools(self, name: str, patterns: Sequence[str]) -> "McpServers":
        """Return the group that has a server, after a check of `patterns`, which select tools of the server.

        Raises UsageError if a pattern matches no tool. The patterns are not checked while the tools are unknown.
        """
        group = self._group_with(name)
        group.check(name, patterns)
        return group

    def _connect(self, group: "McpServers", name: str, config: "ServerConfig") -> str:
        """Connect a server from a configuration file, and ask the user to approve its start if this is necessary.

        Return a message if the server is not connected, else "".
        """
        replays = self._namespace.replays
        try:
            engine().call(group.add(name, config, connect=not replays))
        except (ServerError, UsageError) as error:
            waits = any(one.name == name and one.state == "needs approval" for one in group.servers)
            pending = group.pending(name) if waits else None
            if pending is None or not self._attended():
                return with_code(error)
            if not confirm(f"Start the MCP server {name!r}, which the project names?\n{pending}\n[y/N] "):
                return f"{name} was not started. %mcp approve {name} lets it start."
            return _start(group, name, approve=True)
        return NOT_STARTED.format(name) if replays else ""


def config_of_line(  # noqa: PLR0913  (the options of a line)
    *,
    name: str,
    command: Sequence[str],
    env: Sequence[str],
    header: Sequence[str],
    timeout: float | None,
    connect_timeout: float | None,
    sse: bool,
) -> "ServerConfig":
    """Return the server that the arguments of `%mcp add` describe, and register the secrets in them.

    Raises UsageError and ConfigError for invalid arguments.
    """
    from agentmagic.tools.mcp import config

    if not command:
        raise UsageError(
            f"%mcp add {name} lacks the server: write its command line or its web address behind the name."
        )
    program, *arguments = command
    entry: dict[str, object] = {"timeout": timeout, "connect_timeout": connect_timeout}
    if program.lower().startswith(("http://", "https://")):
        _refuse(program, "is a web address", {"words behind it": arguments, "-e": env})
        headers = dict(_pair(one, ":", "a header. Write NAME:VALUE") for one in header)
        entry |= {"url": program, "headers": headers, "type": "sse" if sse else ""}
    else:
        _refuse(program, "is a program", {"--header": header, "--sse": sse})
        variables = dict(_pair(one, "=", "a variable. Write NAME=VALUE") for one in env)
        entry |= {"command": program, "args": arguments, "env": variables}
    return config.parse(entry)


def _start(group: "McpServers", name: str, *, approve: bool = False) -> str:
    """Connect a server again; with `approve`, record first that it may start. Return the error message, or ""."""
    try:
        if approve:
            group.approve(name)  # raises ServerError if the file of approvals cannot be written
        engine().call(group.restart(name))
    except ServerError as error:
        return with_code(error)
    return ""


def _merge(messages: Sequence[Message]) -> Message:
    """Return the messages of an MCP prompt as one user message.

    If there are several messages, the role of each one stands before its text.
    """
    if len(messages) == 1:
        return Message("user", messages[0].parts)
    parts: list[Content] = []
    for message in messages:
        parts.append(Text(f"{message.role}: "))
        parts += [part for part in message.parts if isinstance(part, Content)]
    return Message("user", tuple(parts))


def _without(name: str, names: Sequence[str]) -> str:
    if not names:
        return f"Of {name}, the model gets every tool from the next turn on."
    return f"Of {name}, the model does not get: {', '.join(names)}."


def _refuse(program: str, kind: str, options: Mapping[str, object]) -> None:
    """Raise UsageError if one of `options` has a value: servers of this kind do not accept these options."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{program} {kind}, which takes no {option}. See %mcp add --help.")


def _pair(word: str, sign: str, kind: str) -> tuple[str, str]:
    key, separator, value = word.partition(sign)
    if not separator or not key.strip():
        raise UsageError(f"{word!r} is not {kind}.")
    return key.strip(), value.strip() if sign == ":" else value


def _typed_input(field: "Input") -> str:
    """Return the value that the user types for an input in VS Code's mcp.json; "" stands for the default.

    A password is typed without echo.
    """
    choices = f" ({', '.join(field.options)})" if field.options else ""
    default = f", else {field.default}" if field.default else ""
    # The description comes from an untrusted file. On one line it cannot look like a second question.
    about = single_line(sanitize(f"{field.description or field.id}{choices}{default}"), LONGEST_INPUT)
    prompt = f"The file asks for {field.id!r}: {about}: "
    while True:
        try:
            text = getpass(prompt) if field.password else input(prompt)
        except EOFError:
            return ""
        if not (text and field.options) or text in field.options:
            return text


MCP_COMMANDS: dict[str, Command] = {
    "list": McpCommands.list_servers,
    "get": McpCommands.get,
    "add": McpCommands.add,
    "load": McpCommands.load,
    "approve": McpCommands.approve,
    "restart": McpCommands.restart,
    "remove": McpCommands.remove,
    "tools": McpCommands.tools,
    "allow": McpCommands.allow,
    "trust": McpCommands.trust,
    "disable": McpCommands.disable,
    "enable": McpCommands.enable,
    "logs": McpCommands.logs,
    "prompts": McpCommands.prompts,
    "prompt": McpCommands.prompt,
    "resources": McpCommands.resources,
}


def mcp_magic() -> LineMagic:
    """Return the `%mcp` magic."""
    return LineMagic("mcp", "Connect MCP servers, whose tools every session of the notebook may use.", MCP_COMMANDS)
