"""A toolset with the tools of several MCP servers, and the state of each server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentmagic.errors import ServerError, UsageError
from agentmagic.json_schema import check_schema
from agentmagic.messages import Content, Message, ToolCall, ToolDef, ToolResult
from agentmagic.platforms import quote_word
from agentmagic.runtime.engine import Listeners, void
from agentmagic.runtime.timeouts import Deadline
from agentmagic.text import did_you_mean, join_names, single_line
from agentmagic.tools.base import ServersUnreachable, Tool, ToolContext
from agentmagic.tools.mcp import content, limits, mends, names
from agentmagic.tools.mcp.config import ServerConfig, Unreadable
from agentmagic.tools.mcp.connection import Connection, State
from agentmagic.tools.mcp.content import Prompt, ResourceEntry
from agentmagic.tools.mcp.filters import MORE
from agentmagic.tools.mcp.pending import ServerHost
from agentmagic.tools.mcp.server_requests import LogLine
from agentmagic.tools.mcp.trust import TrustStore, describe, question
from agentmagic.tools.server_names import register_server

if TYPE_CHECKING:
    from mcp import Client, types

T = TypeVar("T")

MOST_NAMED_TOOLS = 5
"""Maximum number of tools that one notice names."""
LONGEST_NOTICE = 800
"""Maximum number of characters for the tools in one notice, with the reasons or keywords."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of one MCP server, as shown to the user.

    `tools` is the number of tools that the model gets, and `offered` has their names. `left_out` maps unusable tools to
    the reasons, and `dropped` maps tools to the invalid keywords that were removed from their schemas. `disabled` has
    the names of the tools that the user disabled. `address` is the full command or URL, with secrets blanked. `title`,
    `protocol` and `instructions` come from the server, and are "" while it is not connected. `allow` has patterns of
    tools that run without asking the user. `names` has the server's own names of all usable tools.
    """

    name: str
    state: State
    tools: int
    left_out: Mapping[str, str]
    error: str
    stderr: str
    disabled: tuple[str, ...] = ()
    address: str = ""
    title: str = ""
    protocol: str = ""
    instructions: str = ""
    offered: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    dropped: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


@dataclass(slots=True)
class _ListedServer:
    """An MCP server and its tools. `listing` is its list. `is_disconnected` says that the user disconnected it."""

    connection: Connection
    listing: "Sequence[types.Tool]" = ()
    tools: "list[types.Tool]" = field(default_factory=list["types.Tool"])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    dropped_keywords: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    disabled: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    is_disconnected: bool = False

    async def list_for_turn(self) -> "list[types.Tool]":
        """Return the server's usable tools. Raises ServerError if it fails, or is not ready within a few seconds.

        A server that is not ready in time continues to connect. If the user declined the authorization, ServerError is
        raised at once, so that the user is not asked again in every turn.
        """
        connection = self.connection
        if connection.failed_before and connection.declined:
            raise ServerError(connection.error)
        is_retry = connection.failed_before and not connection.unauthorized
        seconds = limits.RETRY if is_retry else limits.START_WAIT
        deadline = Deadline(seconds)
        try:
            async with deadline:
                with connection.pending.caller(deadline):
                    return await self.list()
        except TimeoutError:
            how = f"is still starting after {seconds:g} s; its tools come with a later turn."
            if is_retry:
                how = f"failed before and has not answered within {seconds:g} s now."
            raise ServerError(f"The MCP server {connection.name!r} {how}") from None

    async def list(self) -> "list[types.Tool]":
        """Return the usable tools. If necessary, connect to the server first. Raises ServerError on any failure."""
        listing = await self.connection.list_tools()
        if listing is not self.listing:
            # The tools are checked in a thread: compiling hundreds of schemas would block the event loop too long.
            self.tools, left_out, dropped_keywords = await asyncio.to_thread(_usable_tools, listing)
            self.left_out = {**self.connection.left_out, **left_out}
            before = self.connection.dropped_keywords
            self.dropped_keywords = {
                name: (*before.get(name, ()), *dropped_keywords.get(name, ())) for name in (*before, *dropped_keywords)
            }
            self.listing = listing
        self.connection.on_change()
        return [tool for tool in self.tools if not self.is_disabled(tool.name)]

    @property
    def names(self) -> "Sequence[str]":
        """The names of all usable tools, as the server itself calls them."""
        return [tool.name for tool in self.tools]

    @property
    def notices(self) -> Iterator[str]:
        """Notices for the user about the tools in the last list: unusable tools, and keywords that were removed."""
        name = self.connection.name
        more = f"%mcp get {quote_word(name)} lists all."
        if unusable := [f"{tool} ({reason.rstrip('.')})" for tool, reason in self.left_out.items() if tool != MORE]:
            yield f"The MCP server {name!r} has tools that cannot be used: {_some(unusable)}. {more}"
        if MORE in self.left_out:
            yield f"The MCP server {name!r}: {self.left_out[MORE]}"
        if entries := [
            f"{tool} ({', '.join(keywords)})" for tool, keywords in self.dropped_keywords.items() if keywords
        ]:
            yield (
                f"Schemas of the MCP server {name!r} have keywords that mean nothing here, so these tools are offered "
                f"without them: {_some(entries)}. {more}"
            )

    def is_disabled(self, tool: str) -> bool:
        return _matches(tool, self.disabled) or (bool(self.only) and not _matches(tool, self.only))


class McpServers:
    """A `Toolset` of MCP servers. Each has a name given by the user.

    A server is connected when first needed, and stays connected until it is closed. All coroutines must run on the
    engine's event loop; the other methods are thread-safe. `host` asks the user questions on behalf of the servers.
    `store` has the user's approvals of servers that come from files.
    """

    def __init__(
        self,
        configs: Mapping[str, ServerConfig] | None = None,
        *,
        host: ServerHost | None = None,
        store: TrustStore | None = None,
    ) -> None:
        self._host = host
        self._store = store or TrustStore()
        self._listeners = Listeners[None]()
        self._servers = {name: self._make(name, config) for name, config in (configs or {}).items()}

    @property
    def servers(self) -> list[ServerState]:
        """The servers in the order they were added."""
        return [_state(server) for server in list(self._servers.values())]

    def get(self, name: str) -> ServerState:
        """Return the state of one server. Raises UsageError for an unknown name."""
        return _state(self._server(name))

    async def add(self, name: str, config: ServerConfig, *, connect: bool = True) -> None:
        """Add a server and, with `connect`, connect to it now. If connecting fails, the next turn tries again.

        If the same server is added again, for example by a cell that runs twice, it stays connected and its `allow` is
        extended. A server that has failed, or whose entry in a file has changed, is replaced. Raises UsageError if
        another server has the name, and ServerError, with advice, if the connection fails.
        """
        if (existing := self._servers.get(name)) is not None:
            before = existing.connection.config
            if (before.transport, before.origin) == (config.transport, config.origin):
                self.allow(name, config.allow)
                if config.trust:
                    self.trust(name)
                if connect:
                    existing.is_disconnected = False
                    await self._connect(existing)
                return
            # If both entries come from the same file, the new one replaces the old one.
            same_file = before.origin and config.origin and before.origin.file == config.origin.file
            if not (same_file or existing.connection.state == "failed"):
                raise UsageError(f"There is a server {name!r} already. Remove it first, or choose another name.")
            await self._drop(name)
        server = self._servers[name] = self._make(name, config)
        try:
            if connect:
                await self._connect(server)
        except ServerError:
            raise
        except BaseException:  # The caller was cancelled or interrupted.
            await self._drop(name)
            raise

    async def remove(self, name: str) -> None:
        """Disconnect and remove a server, and delete its stored token. Raises UsageError for an unknown name."""
        connection = await self._drop(name)
        await connection.forget()

    async def restart(self, name: str) -> None:
        """Disconnect a server and connect it again. Raises UsageError for an unknown name, ServerError if it fails."""
        server = self._server(name)
        server.is_disconnected = False
        await server.connection.aclose()
        await server.list()

    async def disconnect(self, name: str) -> None:
        """Disconnect a server. Turns run without it until `restart`. Raises UsageError for an unknown name."""
        server = self._server(name)
        server.is_disconnected = True
        await server.connection.aclose()

    def listen(self, listener: Callable[[None], None]) -> Callable[[], None]:
        """Call `listener` when a server's state or tools change. Return a function that removes the listener.

        Any thread can call the listener. `servers` may show the new state only after the engine's loop has continued.
        """
        return self._listeners.add(listener)

    def check(self, name: str, patterns: Sequence[str] = ()) -> None:
        """Raise UsageError for an unknown name, and for a pattern that matches none of the server's known tools."""
        tools = self._server(name).names  # Empty before the first connection: any pattern is valid.
        for pattern in patterns:
            if tools and not any(fnmatchcase(tool, pattern) for tool in tools):
                hint = did_you_mean(pattern, tools)
                raise UsageError(f"The server {name!r} has no tool {pattern!r}.{hint} Its tools: {join_names(tools)}.")

    def allow(self, name: str, patterns: Sequence[str]) -> None:
        """Let tools of a server run without asking, by name or `fnmatch` pattern, from the next turn on.

        Raises UsageError for an unknown name.
        """
        connection = self._server(name).connection
        connection.config = replace(connection.config, allow=(*connection.config.allow, *patterns))

    def trust(self, name: str) -> None:
        """Trust a server, from the next turn on. `Policy.level` decides which trusted tools run without asking.

        Raises UsageError for an unknown name.
        """
        connection = self._server(name).connection
        connection.config = replace(connection.config, trust=True)

    def disable(self, name: str, patterns: Sequence[str]) -> None:
        """Stop offering tools of a server to the model, by name or pattern, from the next turn on.

        Raises UsageError for an unknown server, and for a pattern that matches none of its tools.
        """
        self.check(name, patterns)
        server = self._server(name)
        server.disabled = tuple(dict.fromkeys((*server.disabled, *patterns)))
        self._listeners.tell(None)

    def enable(self, name: str, patterns: Sequence[str] = ("*",)) -> None:
        """Offer disabled tools again, from the next turn on. Raises UsageError for an unknown server.

        Only tools whose names match one of `patterns` are enabled. All other disabled tools stay disabled, even if one
        pattern disabled them together.
        """
        server = self._server(name)
        away = [name for name in server.names if _matches(name, server.disabled)]
        remaining = [tool for tool in away if not _matches(tool, patterns)]
        server.disabled = tuple(map(escape, remaining))  # Names can contain *, ? and [.
        if server.only:
            server.only = (*server.only, *patterns)
        self._listeners.tell(None)

    def pending(self, name: str) -> str | None:
        """Return the text that the user must approve before a server can start, or None if no approval is needed.

        Reads the file in which approvals are stored. Raises UsageError for an unknown name.
        """
        config = self._server(name).connection.config
        if isinstance(config.transport, Unreadable) or config.origin is None or self._store.is_approved(config.origin):
            return None
        return question(name, config, self._store)

    def approve(self, name: str) -> None:
        """Store the user's approval of a server with its present entry. Raises UsageError for an unknown name."""
        self._server(name).connection.approve()

    def describe_tools(self, name: str) -> Mapping[str, tuple[str, str]]:
        """Return the description and the arguments of each tool of a server. Raises UsageError for an unknown name."""
        return {one.name: (one.description or "", _arguments(one.input_schema)) for one in self._server(name).tools}

    def logs(self, name: str) -> tuple[LogLine, ...]:
        """Return the last lines of a server's log, oldest first. Raises UsageError for an unknown name."""
        return tuple(self._server(name).connection.requests.log)

    async def prompts(self, name: str | None = None) -> list[Prompt]:
        """Return the prompts of a server, or of all servers.

        Raises UsageError for an unknown name, and ServerError if a server fails.
        """
        return await self._listing("prompts", content.list_prompts, name)

    async def prompt(self, name: str, prompt: str, arguments: Mapping[str, str]) -> tuple[Message, ...]:
        """Return a prompt of a server with its arguments filled in.

        Raises UsageError for an unknown server, and ServerError if the server fails.
        """
        connection = self._present(name).connection
        answer = await connection.ask_for(
            f"give the prompt {prompt!r}", lambda client: client.get_prompt(prompt, dict(arguments))
        )
        return content.to_messages(answer)

    async def resources(self, name: str | None = None) -> list[ResourceEntry]:
        """Return the resources and resource templates of a server, or of all servers.

        Raises UsageError for an unknown name, and ServerError if a server fails.
        """
        return await self._listing("resources", content.list_resources, name)

    async def read(self, name: str, uri: str) -> tuple[Content, ...]:
        """Read a server's resource by its URI. Raises UsageError for an unknown server, ServerError if this fails."""
        connection = self._present(name).connection
        answer = await connection.ask_for(f"read {uri!r}", lambda client: client.read_resource(uri))
        return content.to_contents(answer.contents)

    async def tools(self) -> Sequence[Tool]:
        """Return the tools of all servers, in the order of the servers. Servers are connected if necessary.

        All servers are tried. If some cannot be reached, raises ServersUnreachable, which has the tools of the others.
        """
        return await self._tools([server for server in self._servers.values() if not server.is_disconnected])

    async def connected_tools(self) -> tuple[Sequence[Tool], Sequence[str]]:
        """Return the tools of the connected servers, and the names of those that `tools` would have to connect."""
        servers = [server for server in self._servers.values() if not server.is_disconnected]
        ready = [server for server in servers if server.connection.state == "ready"]
        return await self._tools(ready), [one.connection.name for one in servers if one not in ready]

    async def _tools(self, servers: Sequence[_ListedServer]) -> Sequence[Tool]:
        outcomes = await asyncio.gather(*(server.list_for_turn() for server in servers), return_exceptions=True)
        usable: dict[Connection, list[types.Tool]] = {}
        errors: dict[Connection, ServerError] = {}
        for server, outcome in zip(servers, outcomes, strict=True):
            match outcome:
                case ServerError():
                    errors[server.connection] = outcome
                case BaseException():
                    raise outcome
                case _:
                    usable[server.connection] = outcome
        visible_names = names.visible_names({one.name: [tool.name for tool in tools] for one, tools in usable.items()})
        tools = [
            _tool(one, visible_names[one.name, tool.name], tool) for one, tools in usable.items() for tool in tools
        ]
        if errors:
            message = "\n".join(map(str, errors.values()))
            raise ServersUnreachable(message, tools, [one.with_remedy(error) for one, error in errors.items()])
        return tools

    @property
    def notices(self) -> Sequence[str]:
        """Notices for the user about the tools in the last lists: unusable tools, and keywords that were removed."""
        return [
            words for server in list(self._servers.values()) if not server.is_disconnected for words in server.notices
        ]

    async def aclose(self) -> None:
        """Disconnect all servers, concurrently. Calling `tools` connects them again."""
        await asyncio.gather(*(server.connection.aclose() for server in list(self._servers.values())))

    async def _listing(
        self, what: str, ask: "Callable[[Client, str], Awaitable[list[T]]]", name: str | None
    ) -> list[T]:
        entries: list[T] = []
        present = [one for one in self._servers.values() if not one.is_disconnected]
        for one in present if name is None else [self._present(name)]:
            alias = one.connection.name
            entries += await one.connection.ask_for(f"list its {what}", lambda client, alias=alias: ask(client, alias))
        return entries

    async def _connect(self, server: _ListedServer) -> None:
        """Connect to a server that was just added. The message of a ServerError has the commands that can fix it."""
        try:
            await server.list()
        except ServerError as error:
            raise ServerError(server.connection.with_remedy(error)) from error

    async def _drop(self, name: str) -> Connection:
        connection = self._server(name).connection
        del self._servers[name]
        await connection.aclose()
        return connection

    def _make(self, name: str, config: ServerConfig) -> _ListedServer:
        names.check(name)
        register_server(name, describe(config))
        connection = Connection(name, config, self._host, self._store)
        connection.on_change = lambda: void(self._listeners.tell(None))
        return _ListedServer(connection, disabled=config.disable, only=config.only)

    def _server(self, name: str) -> _ListedServer:
        if name not in self._servers:
            names = ", ".join(self._servers) or "there are none"
            raise UsageError(f"There is no server {name!r}.{did_you_mean(name, self._servers)} Servers: {names}.")
        return self._servers[name]

    def _present(self, name: str) -> _ListedServer:
        """Return a server that may be connected now: the user has not disconnected it. Raises UsageError."""
        server = self._server(name)
        if server.is_disconnected:
            raise UsageError(f"The server {name!r} is disconnected. %mcp restart {quote_word(name)} connects it again.")
        return server


def _arguments(schema: Mapping[str, Any]) -> str:
    """Return the arguments that a tool's schema describes as text, one per line: name, type and description."""
    properties, required_names = schema.get("properties"), schema.get("required") or ()
    lines: list[str] = []
    for name, about in cast("dict[str, Any]", properties).items() if isinstance(properties, dict) else ():
        facts = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        optional = "" if name in required_names else ", optional"
        description = facts.get("description")
        lines.append(f"{name}: {facts.get('type', 'any')}{optional}{f'. {description}' if description else ''}")
    return "\n".join(lines)


def _state(server: _ListedServer) -> ServerState:
    connection = server.connection
    offered_names = tuple(tool.name for tool in server.tools if not server.is_disabled(tool.name))
    disabled_names = tuple(tool.name for tool in server.tools if server.is_disabled(tool.name))
    client = connection.client
    info = client.server_info if client else None
    return ServerState(
        connection.name,
        connection.state,
        len(offered_names),
        server.left_out,
        connection.error,
        connection.stderr,
        disabled_names,
        describe(connection.config),
        single_line(f"{info.title or info.name} {info.version or ''}", 200) if info else "",
        client.protocol_version if client else "",
        content.clean_lines((client.instructions or "")[: limits.INSTRUCTIONS]) if client else "",
        offered_names,
        connection.config.allow,
        tuple(server.names),
        server.dropped_keywords,
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _some(items: Sequence[str]) -> str:
    """Return the first items of a list as text, with the number of the other items."""
    more = f" and {len(items) - MOST_NAMED_TOOLS} more" if len(items) > MOST_NAMED_TOOLS else ""
    return single_line("; ".join(items[:MOST_NAMED_TOOLS]), LONGEST_NOTICE) + more


def _usable_tools(listing: "Sequence[types.Tool]") -> "tuple[list[types.Tool], dict[str, str], dict[str, list[str]]]":
    """Return the usable tools, each once, and two dicts by tool name: why others are unusable, and removed keywords."""
    left_out: dict[str, str] = {}
    dropped_keywords: dict[str, list[str]] = {}
    usable: dict[str, types.Tool] = {}
    check = mends.PatternCheck()
    for tool in listing:
        if tool.name in usable:
            continue
        try:
            schema, keywords = mends.mend(tool.input_schema, check)
        except RecursionError:
            left_out[single_line(tool.name, 80)] = f"The schema of {tool.name} is nested too deeply."
            continue
        if reason := _unusable(tool.name, schema):
            left_out[single_line(tool.name, 80)] = reason
            continue
        usable[tool.name] = tool.model_copy(update={"input_schema": schema})
        if keywords:
            dropped_keywords[tool.name] = keywords
    # By name: a server may list its tools in another order each time, and then prompt caches and replays would miss.
    return sorted(usable.values(), key=lambda tool: tool.name), left_out, dropped_keywords


def _unusable(name: str, schema: Mapping[str, Any]) -> str | None:
    if schema.get("type") != "object":
        return f"The schema of {name} does not describe an object."
    if reason := limits.schema_problem(schema):
        return f"The schema of {name} cannot be used: {reason}."
    return check_schema(name, schema)


def _tool(connection: Connection, visible_name: str, tool: "types.Tool") -> Tool:
    description = content.clean_lines((tool.description or tool.title or "")[: limits.TOOL_DESCRIPTION])
    definition = ToolDef(
        visible_name,
        description,
        tool.input_schema,
        server=connection.name,
        own_name="" if visible_name == tool.name else tool.name,
    )
    ask = not _matches(tool.name, connection.config.allow)

    async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
        answer: Any = await connection.call(tool.name, call.arguments, context)
        # It is converted in a thread: cleaning millions of characters would block the engine's event loop too long.
        return await asyncio.to_thread(content.to_result, call, answer)

    trusted = connection.config.trust
    hints = tool.annotations
    reads = trusted and hints is not None and hints.read_only_hint is True
    return Tool(definition, invoke, timeout=connection.config.timeout, ask=ask, trusted=trusted, reads=reads)
