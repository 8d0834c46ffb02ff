"""The connection to one MCP server: its state, its tools and its calls.

Reconnects automatically: if the session with the server has ended, the next request opens a new one.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentmagic.classroom import class_settings
from agentmagic.errors import ServerError, ToolError
from agentmagic.patterns import IN_PROCESS, EntryPattern
from agentmagic.platforms import join_command, quote_word
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.text import single_line
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import content, limits, server_errors, trust
from agentmagic.tools.mcp.config import Http, ServerConfig, Stdio, Unreadable
from agentmagic.tools.mcp.pending import PendingCallers, ServerHost
from agentmagic.tools.mcp.server_requests import ServerRequests
from agentmagic.tools.mcp.session_task import SessionTask, warm
from agentmagic.tools.mcp.token_store import forget, grant_for

if TYPE_CHECKING:
    from mcp import Client, types

T = TypeVar("T")
State = Literal["stopped", "starting", "ready", "died", "failed", "needs approval"]


class _SessionExpired(Exception):
    """Raised when the MCP server refuses a call because its session with agentmagic has expired."""


class Connection:
    """The connection to one MCP server. All methods must be called on one event loop.

    `name` is the user's name for the server. `state` is "failed" if the server could not be reached, and "died" if a
    ready connection was lost. In both cases the next request connects once more. It is "needs approval" if the server
    comes from a file and the user has not approved it yet. `error` is the last error, or "". `failed_before` is true
    from a failed start until the server is ready or closed. `host` asks the user questions on the server's behalf.
    """

    def __init__(
        self, name: str, config: ServerConfig, host: ServerHost | None = None, store: trust.TrustStore | None = None
    ) -> None:
        self.name = name
        self.on_change: Callable[[], None] = lambda: None
        self._state: State = "stopped"
        self.error = ""
        self.failed_before = False
        self.tools: Sequence[types.Tool] | None = None
        self.pending = PendingCallers(name, host or ServerHost())
        self._configure(config)
        self._store = store or trust.TrustStore()
        self._approval = asyncio.Lock()
        self._session: SessionTask | None = None
        self._is_wanted = False
        self._changes = 0

    def _configure(self, config: ServerConfig) -> None:
        self.config = config
        self.requests = ServerRequests(self.pending, config.roots)
        self._grant = grant_for(config.transport)

    @property
    def state(self) -> State:
        """The state of the connection; setting it calls `on_change`."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self.on_change()

    @property
    def stderr(self) -> str:
        """The last part of the server's stderr, and of the lines on its stdout that were not messages."""
        return self._session.tail.text()[-limits.STDERR_SHOWN :] if self._session else ""

    @property
    def declined(self) -> bool:
        """Whether the user was asked to authorize agentmagic with the server (OAuth), but did not authorize it."""
        return self._session is not None and self._session.declined

    @property
    def unauthorized(self) -> bool:
        """Whether there is no valid token for the server. Then the next start may ask the user to authorize."""
        return self._session is not None and self._session.unauthorized != ""

    @property
    def left_out(self) -> Mapping[str, str]:
        """The unusable tools in the server's last list of tools, each with the reason."""
        return self._session.filter.left_out if self._session else {}

    @property
    def dropped_keywords(self) -> Mapping[str, Sequence[str]]:
        """The invalid JSON Schema keywords that were removed from the server's last list of tools, by tool name."""
        return self._session.filter.dropped_keywords if self._session else {}

    @property
    def client(self) -> "Client | None":
        """The mcp library's client for this server, or None if the server is not ready."""
        session = self._session
        return session.client if session is not None and self.state == "ready" and not session.over else None

    async def list_tools(self) -> "Sequence[types.Tool]":
        """Return the server's tools. If necessary, connect to the server first.

        The list is cached until the server reports a change or is connected again. Raises ServerError if the server
        cannot be started, or does not answer in time.
        """
        self._is_wanted = True
        self.requests.new_turn()
        session = await self._usable()
        if self.tools is not None and not session.unwatched:
            return self.tools
        changes = self._changes
        tools = await self.ask_for("list its tools", content.list_tools)
        # If the server reported a change, or reconnected, while it sent the list, the list is not cached.
        self.tools = tools if changes == self._changes and session is self._session else None
        return tools

    async def ask_for(self, what: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        """Send a read-only request and return the answer. If necessary, connect to the server first.

        The time limit is that of a tool call. If the connection turns out to be lost, the server is connected again and
        the request is repeated once. `what` completes the words "it did not" in an error message, for example "list its
        tools". Raises ServerError if the request fails.
        """
        self._is_wanted = True
        session = await self._usable()
        try:
            return await self._ask(session, what, send)
        except ServerError:
            if not session.over:
                raise
        return await self._ask(await self._usable(), what, send)

    async def _ask(self, session: SessionTask, what: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        deadline = Deadline(self.config.timeout)
        try:
            async with deadline:
                with self.pending.caller(deadline):
                    return await send(session.client)
        except TimeoutError:
            raise session.unusable(f"it did not {what} within {self.config.timeout:g} s") from None
        except Exception as error:
            if server_errors.has_expired(error):
                session.expire()
            elif server_errors.is_lost(error):
                session.end()
            elif server_errors.is_refusal(error):
                reason = single_line(server_errors.describe_error(error), limits.ERROR)
                message = f"The MCP server {self.name!r} did not {what}: {reason}."
                raise ServerError(redact(message)) from None
            raise session.unusable(session.reason(error)) from error

    async def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> "types.CallToolResult":
        """Call a tool once. A call that the server may have executed is never sent again.

        If the server refuses a call because the session has expired, the call is sent once more in a new session. This
        method has no time limit. If its task is cancelled, the server is notified. Raises ToolError if the call failed,
        and ServerError if the connection was lost and the server cannot be connected again.
        """
        _check_text(arguments)
        for _ in range(2):
            session = await self._usable_for(tool)
            with suppress(_SessionExpired):
                return await self._call(session, tool, arguments, context)
        raise ToolError(
            f"The server {self.name!r} does not know the session that it has just begun (HTTP 404), so {tool} was not "
            "carried out."
        )

    async def _usable_for(self, tool: str) -> SessionTask:
        try:
            return await self._usable()
        except ServerError as error:
            if self._is_wanted:
                raise ServerError(self.with_remedy(error)) from error
            raise ToolError(f"{tool} cannot be called: the server {self.name!r} was disconnected.") from None

    async def _call(
        self, session: SessionTask, tool: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> "types.CallToolResult":
        """Send a tool call. Raises _SessionExpired if it was not run and can be sent again, ToolError if it fails."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(progress, total, single_line(message or "", limits.PROGRESS))

        send = session.client.call_tool(tool, dict(arguments), progress_callback=on_progress)
        with self.requests.during_call(context) as running:
            try:
                answer = await session.wait_for(send)
            except Exception as error:
                if server_errors.has_expired(error):
                    session.expire()
                    raise _SessionExpired from error
                problem = self._failure(session, tool, error)
                visit_outcome = await self.requests.visit_first(error)
                raise ToolError(" ".join(filter(None, (problem, visit_outcome, *running.notes)))) from error
        return _with_notes(answer, running.notes)

    async def aclose(self) -> None:
        """Close the connection within a few seconds, and end the server's processes."""
        self._is_wanted = self.failed_before = False
        self.state, self.tools = "stopped", None
        if self._session is not None:
            await self._session.leave()

    async def forget(self) -> None:
        """Delete the server's access token from the token store, if this connection has got or loaded a token."""
        if self._grant is not None and self._grant.token is not None:
            await forget(self._grant.url)

    def with_remedy(self, error: ServerError) -> str:
        """Return the message of an error of this server, followed by the commands that can fix it."""
        message, name = str(error), quote_word(self.name)
        retry = "" if self.state in ("needs approval", "starting") else f"%mcp restart {name} tries again, "
        return f"{message}{'' if message.endswith('.') else '.'} {retry}%mcp remove {name} forgets the server."

    async def _usable(self) -> SessionTask:
        """Return the current session once it is ready. Open a new one if none exists or it has ended.

        Raises ServerError if the server cannot be connected.
        """
        session = self._session
        if session is not None:
            await session.check()
        if session is None or session.over:
            session = await self._renew(session)
        with self.pending.caller():
            await session.until_ready()
        return session

    async def _renew(self, last: SessionTask | None) -> SessionTask:
        if last is not None:
            await last.settle()
            await last.leave()
        await asyncio.to_thread(warm)
        async with self._approval:  # If several callers connect at once, the user is asked only once.
            await self._check_approval()
        if not self._is_wanted:
            raise ServerError(f"The server {self.name!r} was disconnected.")
        if self._session is None or self._session.over:  # Another caller may have opened a session already.
            self.error, self.tools, self.state = "", None, "starting"
            self._session = SessionTask(
                self.config,
                self.requests,
                self._grant,
                on_change=self._follow,
                on_tools_changed=self._forget_tools,
            )
        return self._session

    async def _check_approval(self) -> None:
        """Ask the user to approve the server if its entry comes from a file, unless it was approved before.

        Raises ServerError if the server must not start: its entry is invalid, a limit that a teacher or administrator
        set forbids it, or the user does not approve it.
        """
        if isinstance(entry := self.config.transport, Unreadable):  # The entry may be valid by now.
            config = entry.again()
            previous = self.config
            self._configure(
                replace(config, allow=(*config.allow, *previous.allow), trust=config.trust or previous.trust)
            )
        self._check_readable()
        self._check_class()
        origin = self.config.origin
        if origin is None or await asyncio.to_thread(self._store.is_approved, origin):
            return
        description = await asyncio.to_thread(trust.question, self.name, self.config, self._store)
        with self.pending.prompt():
            consent = await self.pending.host.may_start(self.name, description)
        if consent:
            await asyncio.to_thread(self.approve)
            return
        self.state = "needs approval"
        self.error = (
            f"The MCP server {self.name!r} was not started, since no one has approved it yet: {description}\n"
            f"%mcp approve {quote_word(self.name)} lets it start; McpServers.approve does so in code."
        )
        raise ServerError(self.error)

    def _check_readable(self) -> None:
        if isinstance(entry := self.config.transport, Unreadable):
            self.error = redact(f"The MCP server {self.name!r} cannot be used: {entry.problem}")
            self.state = "failed"
            raise ServerError(self.error)

    def _check_class(self) -> None:
        """Raise ServerError if a limit that a teacher or administrator set forbids the server's program or URL."""
        match self.config.transport:
            case Stdio(command=command, args=args, env=env, cwd=cwd):
                entry = EntryPattern(address=join_command((command, *args)), cwd=str(cwd or ""), pairs=env)
            case Http(url=url, headers=headers):
                entry = EntryPattern(address=url, pairs=headers)
            case _:
                entry = EntryPattern(address=IN_PROCESS)
        if problem := class_settings().server_problem(entry):
            self.error = redact(f"The MCP server {self.name!r} was not started: {problem}")
            self.state = "failed"
            raise ServerError(self.error)

    def approve(self) -> None:
        """Store the user's approval of this server with its current configuration.

        Raises ServerError if the server's entry is invalid, or the approval cannot be stored.
        """
        self._check_readable()
        self._store.approve(self.name, self.config)
        if self.state == "needs approval":
            self.state, self.error = "stopped", ""

    def _follow(self, session: SessionTask) -> None:
        if session is self._session and self._is_wanted:
            self.failed_before = session.state == "failed" or (self.failed_before and session.state != "ready")
            # Set the error before the state: setting the state calls `on_change`, and the listeners read both.
            self.error, self.state = session.error, session.state

    def _forget_tools(self) -> None:
        self._changes += 1
        self.tools = None

    def _failure(self, session: SessionTask, tool: str, error: Exception) -> str:
        message = server_errors.describe_error(error)
        if server_errors.is_lost(error):
            session.end()
            status = f" ({message})" if "HTTP" in message else ""
            return (
                f"The server {self.name!r} went away during {tool}{status}; whether the call took effect is unknown. "
                "The server is connected again for the next call."
            )
        if server_errors.is_misshapen(error):
            return f"{tool} answered in a form that is not MCP, so its result cannot be read."
        fate = " Whether the call took effect is unknown." if server_errors.may_have_run(error) else ""
        return f"{tool} failed: {message or type(error).__name__}{fate and '.'}{fate}"


def _with_notes(answer: "types.CallToolResult", notes: Sequence[str]) -> "types.CallToolResult":
    """Return a server's answer to a call with notes appended. They say which requests of the server were refused."""
    from mcp import types

    answer.content += [types.TextContent(type="text", text=f"[agentmagic: {note}]") for note in notes]
    return answer


def _check_text(arguments: Mapping[str, Any]) -> None:
    """Raise ToolError if arguments cannot be encoded in UTF-8, because sending them would end the connection."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolError("The arguments hold half a character (a lone surrogate); send them again without it.") from None
