"""The connection to an outside agent: it opens a session, sends one prompt at a time, and passes on agent updates.

Updates are passed on in order, and invalid ones are dropped. By the protocol, an agent can also ask agentmagic for
files and terminals, but agentmagic refuses all such requests.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, Field

from agentmagic.acp import bounds
from agentmagic.acp.agents import SERVER, OutsideAgent
from agentmagic.acp.process import START_SECONDS, AgentProcess, start_agent
from agentmagic.errors import AuthenticationFailed, ProviderError
from agentmagic.events import AgentOption, Approve, Deny, option_for
from agentmagic.serialization import is_shallow
from agentmagic.text import clip, encodable

if TYPE_CHECKING:
    from acp.connection import Connection
    from acp.schema import AgentCapabilities, PromptResponse, SessionModeState, ToolCallUpdate

T = TypeVar("T", bound=BaseModel)
Json = dict[str, Any]

PROTOCOL = 1
"""The version of the Agent Client Protocol that agentmagic speaks."""


@dataclass(slots=True)
class PermissionRequest:
    """An agent's request for permission to run a tool call.

    `call` has the fields of the request itself. `meta` is the `_meta` of the request. `answer` is the future for the id
    of the chosen option, or for None to cancel the request.
    """

    call: "ToolCallUpdate"
    options: Sequence[AgentOption]
    answer: "asyncio.Future[str | None]"
    meta: Mapping[str, Any] | None = None

    def choose(self, intent: Approve | Deny) -> None:
        """Answer the request as `ApprovalAsked.option_for` chooses an option, unless it is answered already."""
        option = option_for(self.options, intent)
        self.send("" if option is None else option.id)

    def send(self, option: str) -> None:
        """Answer the request with the id of an option, or cancel it for "", unless it is answered already."""
        if not self.answer.done():
            self.answer.set_result(option or None)


class _OptionFields(BaseModel):
    """An option of a permission request; unlike the acp library, it accepts a kind that the protocol does not list."""

    id: str = Field(alias="optionId", max_length=bounds.ID)
    name: str = ""
    kind: str = ""


class _RequestFields(BaseModel):
    session: str = Field(alias="sessionId")
    call: Json = Field(alias="toolCall")
    options: list[_OptionFields]
    meta: Json | None = Field(None, alias="_meta")


def _read_request(params: Any, answer: "asyncio.Future[str | None]") -> tuple[str, PermissionRequest]:
    """Return the id of a permission request's session, and the request. Raises ValueError for an invalid request.

    A kind of call that the protocol does not list becomes "other".
    """
    from acp.schema import ToolCallUpdate

    request = _RequestFields.model_validate(params)
    call = ToolCallUpdate.model_validate(request.call)
    if call.kind is None and request.call.get("kind") is not None:
        call.kind = "other"
    kinds: dict[str, set[str]] = {}
    for one in request.options[: bounds.OPTIONS]:
        kinds.setdefault(one.id, set()).add(one.kind)
    options = [
        AgentOption(one.id, clip(encodable(one.name), bounds.TITLE), clip(encodable(one.kind), bounds.ID))
        for one in request.options[: bounds.OPTIONS]
        if one.id and len(kinds[one.id]) == 1  # an id of several kinds does not say what it chooses
    ]
    if not options:
        raise ValueError("no option that can be chosen")
    return request.session, PermissionRequest(call, options, answer, request.meta)


class _PacedTransport:
    """A message transport that reads at most 2,000 messages a second (`PER_SECOND`). A faster agent has to wait."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process
        self._second, self._count = 0.0, 0

    async def send(self, message: Json) -> None:
        """Send a message. If the agent has exited, do nothing: `receive` then returns None."""
        with suppress(ConnectionError):
            await self._process.send(message)

    async def receive(self) -> Json | None:
        """Return the agent's next message, or None at the end of its output. Messages nested too deep are skipped."""
        while True:
            await self._keep_pace()
            message = await self._process.receive()
            if message is None or is_shallow(message, bounds.DEPTH):
                return message

    async def _keep_pace(self) -> None:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._count = now, 0
        self._count += 1
        if self._count > bounds.PER_SECOND:
            await asyncio.sleep(self._second + 1.0 - now)
        elif self._count % 50 == 0:
            await asyncio.sleep(0)  # let other tasks of the event loop run while many messages come in

    async def close(self) -> None:
        """End the agent's process."""
        await self._process.aclose()


@dataclass(slots=True)
class AgentConnection:
    """The connection to one agent process. Its methods run in the thread of agentmagic's event loop.

    `listener` is called with the updates and the permission requests of the session, in the order in which they arrive.
    While it is None, they go to `late_listener` or, if that is None too, updates are dropped and permission requests
    refused. `capabilities`: what the agent supports.
    `is_over`: whether the connection has ended.
    """

    agent: OutsideAgent
    listener: Callable[[Any], None] | None = None
    late_listener: Callable[[Any], None] | None = None
    capabilities: "AgentCapabilities | None" = None
    session: str = ""
    is_over: bool = False
    _process: AgentProcess = field(init=False)
    _connection: "Connection" = field(init=False)
    _loading: bool = False
    _open_requests: int = 0

    async def start(self, folder: Path) -> None:
        """Start the agent in a folder, and exchange protocol versions and capabilities.

        Raises MissingExtra if the acp library is not installed, and ProviderError if the program does not answer as
        an agent.
        """
        self._process = await start_agent(self.agent, folder)
        from acp.connection import Connection
        from acp.schema import (
            ClientCapabilities,
            FileSystemCapabilities,
            Implementation,
            InitializeRequest,
            InitializeResponse,
        )

        self._connection = Connection(self._handle, _PacedTransport(self._process))
        files = FileSystemCapabilities(read_text_file=False, write_text_file=False)
        request = InitializeRequest(
            protocol_version=PROTOCOL,
            client_capabilities=ClientCapabilities(fs=files, terminal=False),
            client_info=Implementation(name="agentmagic", version=version("agentmagic")),
        )
        answer = await self._request("initialize", "introduce itself", request, InitializeResponse, START_SECONDS)
        if answer.protocol_version != PROTOCOL:
            message = f"{self.agent.model} speaks version {answer.protocol_version} of the Agent Client Protocol, and "
            raise ProviderError(f"{message}agentmagic speaks {PROTOCOL}. Update the older of the two.")
        self.capabilities = answer.agent_capabilities

    async def open(self, folder: Path, servers: Sequence[Any], resume: str = "") -> bool:
        """Open a session of the agent in a folder, with MCP servers that the agent can use.

        `resume` is the id of an earlier session. Return whether that session was resumed. If the agent cannot resume
        sessions, or no longer has that one, a new session is opened.
        """
        from acp.schema import NewSessionRequest, NewSessionResponse

        if resume and await self._resume(folder, servers, resume):
            return True
        request = NewSessionRequest(cwd=str(folder), mcp_servers=list(servers), field_meta=self._session_meta())
        answer = await self._request("session/new", "open a session", request, NewSessionResponse, bounds.OPENING)
        self.session = answer.session_id
        await self._set_asking_mode(answer.modes)
        return False

    def _session_meta(self) -> Json | None:
        meta = self.agent.session_meta
        return None if meta is None else dict(meta(SERVER))

    async def _set_asking_mode(self, modes: "SessionModeState | None") -> None:
        """Switch the session to the mode in which the agent asks before it acts. Raises ProviderError if it refuses."""
        from acp.schema import SetSessionModeRequest, SetSessionModeResponse

        asking_mode = self.agent.asks_in
        if modes is None or asking_mode not in {mode.id for mode in modes.available_modes} - {modes.current_mode_id}:
            return
        request = SetSessionModeRequest(mode_id=asking_mode, session_id=self.session)
        action = f"take the mode {asking_mode}, in which it asks before it acts"
        await self._request("session/set_mode", action, request, SetSessionModeResponse, bounds.OPENING)

    async def _resume(self, folder: Path, servers: Sequence[Any], session: str) -> bool:
        from acp.schema import LoadSessionRequest, LoadSessionResponse, ResumeSessionRequest, ResumeSessionResponse

        can = self.capabilities
        sessions = can.session_capabilities if can is not None else None
        fields: Json = {"cwd": str(folder), "mcp_servers": list(servers), "session_id": session}
        fields["field_meta"] = self._session_meta()
        action = "go on with its session"
        self._loading = True  # while it loads a session, the agent sends all old updates again: drop them
        try:
            if sessions is not None and sessions.resume is not None:
                request = ResumeSessionRequest(**fields)
                answer = await self._request("session/resume", action, request, ResumeSessionResponse, bounds.OPENING)
            elif can is not None and can.load_session:
                request = LoadSessionRequest(**fields)
                answer = await self._request("session/load", action, request, LoadSessionResponse, bounds.OPENING)
            else:
                return False
        except AuthenticationFailed:
            raise
        except ProviderError:
            return False  # the agent no longer has this session
        finally:
            self._loading = False
        self.session = session
        await self._set_asking_mode(answer.modes)
        return True

    async def prompt(self, blocks: Sequence[Any]) -> "PromptResponse":
        """Send a prompt, wait until the agent's turn is over, and return its response. Raises ProviderError."""
        from acp.schema import PromptRequest, PromptResponse

        request = PromptRequest(prompt=list(blocks), session_id=self.session)
        return await self._request("session/prompt", "answer the prompt", request, PromptResponse)

    async def cancel(self) -> None:
        """Ask the agent to end its turn."""
        with suppress(OSError, RuntimeError):  # the agent has exited
            await self._connection.send_notification("session/cancel", {"sessionId": self.session})

    async def aclose(self) -> None:
        """End the agent's process; can be called twice."""
        self.listener, self.late_listener, self.is_over = None, None, True
        if hasattr(self, "_process"):
            await self._process.aclose()
        if hasattr(self, "_connection"):
            await self._connection.close()

    # -- what is sent, and what comes ----------------------------------------------------------

    async def _request(
        self, method: str, action: str, params: "BaseModel", kind: type[T], seconds: float | None = None
    ) -> T:
        parameters = params.model_dump(mode="json", by_alias=True, exclude_none=True)

        async def answer() -> T:
            result = await self._connection.send_request(method, parameters)
            return kind.model_validate({} if result is None else result)

        try:
            return await self._process.await_answer(action, answer(), seconds)
        except ProviderError as error:
            self.is_over = self.is_over or isinstance(error, ConnectionError)
            raise

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        from acp.exceptions import RequestError

        if is_notification:
            if method == "session/update":
                self._update(params)
            return None
        if method == "session/request_permission":
            return await self._on_permission_request(params)
        raise RequestError(-32601, f"agentmagic does not lend {method}.")

    def _update(self, params: Any) -> None:
        from acp.schema import SessionNotification

        listener = self.listener or self.late_listener
        if listener is None or self._loading:
            return
        try:
            update = SessionNotification.model_validate(params)
        except (ValueError, RecursionError):
            return
        if update.session_id == self.session:
            listener(update)

    async def _on_permission_request(self, params: Any) -> Mapping[str, Any]:
        from acp.exceptions import RequestError

        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        try:
            session, request = _read_request(params, answer)
        except (ValueError, RecursionError):
            raise RequestError(-32602, "The request is not valid in the protocol.") from None
        self._open_requests += 1
        try:
            listener = self.listener or self.late_listener
            if listener is None or session != self.session or self._open_requests > bounds.OPEN_REQUESTS:
                request.choose(Deny(""))
            else:
                listener(request)
            option = await answer
        finally:
            self._open_requests -= 1
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        return {"outcome": outcome}
