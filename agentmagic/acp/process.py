"""The process of an outside agent: JSON-RPC messages are lines of JSON on its standard input and output.

The process is started, watched and ended like that of an MCP server, and its output is read with the same limits. The
acp library alone would read lines of any length, and would close the connection on a line that is not a JSON object or
has an invalid id. So `AgentProcess` is a message transport for that library, and passes on only valid messages.
"""

import asyncio
import json
import os
import re
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pydantic
from pydantic import BaseModel, ConfigDict

from agentmagic import secrets, settings
from agentmagic.acp import agents
from agentmagic.acp.agents import SERVER, OutsideAgent
from agentmagic.errors import AuthenticationFailed, ProviderError, Unavailable
from agentmagic.text import single_line
from agentmagic.tools.mcp import limits, stdio, warm
from agentmagic.tools.mcp.config import Stdio

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

T = TypeVar("T")

AUTH_REQUIRED = -32000
"""The protocol's error code if the user is not logged in; codex returns it for session/new, claude for the first
prompt."""
INTERNAL_ERROR = -32603
"""The error code of JSON-RPC for a failure of the agent itself."""
_MEANINGLESS = frozenset({"", "error", "internal error", "authentication required"})
"""Messages of errors that only repeat the code, in lower case."""
_MOST_REASONS = 3
"""How many texts in an error's `data` are shown."""
_REASON_KEYS = ("details", "detail", "message", "description", "error", "errors", "reason", "cause")
"""The keys of an error's `data` whose values say what went wrong, the most precise first."""
_QUOTA = re.compile("quota|limit|credit|billing|balance|usage|exceeded|too many", re.IGNORECASE)
"""Words of errors that a login does not mend. Some agents send them with the code `AUTH_REQUIRED`."""
_LOGIN = re.compile(r"auth|log(?:ged)?[ -]?in|sign(?:ed)?[ -]?in|api[ _-]?key|credential|token", re.IGNORECASE)
"""Words of errors that a login mends."""
START_SECONDS = 60.0
"""Timeout of `initialize`: npx may have to download the agent first. Claude takes 1 s on a fast machine."""


class _EnvelopeError(BaseModel):
    model_config = ConfigDict(extra="allow")
    code: int = -32603
    message: str = ""


class _RpcMessage(BaseModel):
    """The fields of a JSON-RPC message that must be valid for the acp library, which checks the parameters itself."""

    model_config = ConfigDict(extra="allow", strict=True)
    id: int | str | None = None
    method: str | None = None
    error: _EnvelopeError | None = None


def environment_for(agent: OutsideAgent, variables: Mapping[str, str]) -> dict[str, str]:
    """Return those `variables` that an agent may see: no secrets, except the ones in `OutsideAgent.own`.

    Proxy addresses stay, although they can contain a password: without them the agent may have no network.
    """
    settings.learn_secrets()
    extra = {name: variables[name] for name in (*stdio.NETWORK, *agent.own) if name in variables}
    return secrets.without_secrets(variables) | extra


async def start_agent(agent: OutsideAgent, folder: Path) -> "AgentProcess":
    """Start an agent in a folder. A watchdog process ends it and its children when the present Python process ends.

    Raises MissingExtra if the acp library is not installed, and Unavailable if the program cannot be started.
    """
    await asyncio.to_thread(_warm)
    if problem := agents.problem_of(agent):
        raise Unavailable(problem)
    environment = environment_for(agent, os.environ)
    if agent.variables is not None:
        environment.update(agent.variables(SERVER))
    program = Stdio(agent.command, agent.args, environment, folder)
    try:
        process, mark = await stdio.start(program)
    except (OSError, ValueError) as error:
        reason = secrets.redact(single_line(str(error), agents.LONGEST_SHOWN)).rstrip(".")
        raise Unavailable(f"{agent.model} cannot be started: {reason}. {agents.trial(agent)}") from error
    return AgentProcess(agent, process, mark)


def _warm() -> None:
    """Import the acp library, which takes a second. Raises MissingExtra if it is not installed."""
    try:
        import acp  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise agents.library_problem() from error
    warm()


class AgentProcess:
    """The process of an agent; a `Transport` for the connections of the acp library.

    `acp.connect_to_agent(client, process)` connects to the agent. Closing that connection ends the process.
    """

    def __init__(self, agent: OutsideAgent, process: "Process", mark: str) -> None:
        self.agent = agent
        self._process = process
        self._mark = mark
        self._tail = stdio.Tail()
        self._lines = stdio.Lines()
        self._brake = limits.Brake()
        self._ready: deque[bytes | stdio.TooLong] = deque()
        self._draining = asyncio.create_task(stdio.drain(process, self._tail))
        self._watching = asyncio.create_task(self._watch())
        self._closing: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def stderr_tail(self) -> str:
        """Return the end of what the agent wrote besides messages, with secrets redacted."""
        return self._tail.text()[-limits.STDERR_SHOWN :]

    async def receive(self) -> dict[str, Any] | None:
        """Return the agent's next message, None at the end of its output."""
        while True:
            while self._ready:
                if (message := self._message(self._ready.popleft())) is not None:
                    return message
                await self._brake.count_dropped_message()
            if not await self._fill():
                return None

    async def _fill(self) -> bool:
        """Read the next chunk of the agent's output. Return False at the end of the output."""
        import anyio

        try:
            chunk = await cast("ByteReceiveStream", self._process.stdout).receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return False
        self._ready.extend(line for line in self._lines.feed(chunk) if line)
        return True

    def _message(self, line: bytes | stdio.TooLong) -> dict[str, Any] | None:
        """Return the message in a line, None if it is invalid. A response that is too long becomes an error."""
        if isinstance(line, stdio.TooLong):
            self._tail.write(b"[agentmagic: a message over the limits was dropped]\n")
            if line.request is None:
                return None
            fault = {"code": stdio.TOO_LONG, "message": "the answer is over the limits and was dropped"}
            return {"jsonrpc": "2.0", "id": line.request, "error": fault}
        try:
            text = stdio.repair(line).decode("utf-8", "replace")
            return _RpcMessage.model_validate_json(text).model_dump(exclude_unset=True)
        except pydantic.ValidationError:
            self._tail.write(line[:1000] + b"\n")
            return None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message; wait while the agent's input is full. Raises ConnectionError if the agent has exited."""
        import anyio

        try:
            await cast("ByteSendStream", self._process.stdin).send(json.dumps(message).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise ConnectionError("The agent has gone.") from error

    async def await_answer(self, action: str, request: Awaitable[T], seconds: float | None = None) -> T:
        """Wait for the answer to a request, and return it. `action` is the verb in the errors: "did not {action}".

        `seconds` is the longest time to wait, None for no limit.

        Raises AuthenticationFailed if the user has to log in first, Unavailable if the agent exited or did not answer
        in time, and ProviderError if it answered with another error.
        """
        from acp import RequestError

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await request
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise
            raise Unavailable(agents.silence_problem(self.agent, action, seconds)) from None
        except RequestError as error:
            raise await self._refusal(action, error) from error
        except (ConnectionError, pydantic.ValidationError) as error:
            raise await self._end(action, error) from error

    async def _refusal(self, action: str, error: Any) -> ProviderError:
        words, methods = _refusal_words(error), _login_methods(error.data)
        reason = words or _shown(str(error)) or "it gave no reason"
        message = f"{self.agent.model} did not {action}: {reason}."
        if _QUOTA.search(words):
            return ProviderError(message)
        if error.code == AUTH_REQUIRED:
            if not words or methods or _LOGIN.search(words):
                return AuthenticationFailed(agents.login_problem(self.agent, methods, words))
            advice = agents.login_advice(self.agent)
            return ProviderError(f"{message} {advice}")
        if error.code == INTERNAL_ERROR and (advice := await asyncio.to_thread(agents.node_problem, self.agent)):
            return ProviderError(f"{message} {advice}" if words else advice)
        return ProviderError(message)

    async def _end(self, action: str, error: Exception) -> ProviderError:
        if isinstance(error, pydantic.ValidationError):
            return ProviderError(f"{self.agent.model} did not {action} in a form that is of the Agent Client Protocol.")
        with suppress(TimeoutError):  # wait for the agent's exit status and last output
            async with asyncio.timeout(limits.EXIT_SECONDS):
                await self._process.wait()
                await asyncio.wait((self._draining,), timeout=limits.LAST_OUTPUT_SECONDS)
        message = await asyncio.to_thread(agents.end_problem, self.agent, self._process.returncode, self._tail)
        return Unavailable(message)

    async def close(self) -> None:
        """End the process, as `aclose` does. The acp library calls a method of this name."""
        await self.aclose()

    async def aclose(self) -> None:
        """End the process and all its children, even if cancelled. `EXIT_SECONDS` and `TERM_SECONDS` limit waits."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._stop())
        await asyncio.shield(self._closing)

    async def _stop(self) -> None:
        try:
            await stdio.stop(self._process, self._mark)
            await asyncio.wait((self._draining,), timeout=limits.TERM_SECONDS)
        finally:
            self._draining.cancel()
            self._watching.cancel()
            await self._process.aclose()

    async def _watch(self) -> None:
        """Close the agent's output soon after the agent has exited, even if a child process still holds it open."""
        await self._process.wait()
        await asyncio.sleep(limits.LAST_OUTPUT_SECONDS)
        await cast("ByteReceiveStream", self._process.stdout).aclose()


def quota_refusal(agent: OutsideAgent, error: Exception, text: str) -> Exception:
    """Return the error to raise for a prompt that ended with `error`, after the agent had sent `text` as its last word.

    Claude sends the reason as text, and then reports that a login is missing, although its quota may be used up.
    """
    is_short = 0 < len(text) <= limits.ERROR
    if is_short and isinstance(error, AuthenticationFailed) and _QUOTA.search(text):
        return ProviderError(f"{agent.model} did not answer the prompt: {_shown(text)}.")
    return error


def _refusal_words(error: Any) -> str:
    """Return what an agent's error response says beyond its code, "" for nothing. `error` is an `acp.RequestError`."""
    message = str(error).removeprefix("Internal error: ")  # Claude sends it before the reason
    texts = [_shown(text) for text in (message, *islice(_reasons_in(error.data), _MOST_REASONS))]
    texts = [text for text in dict.fromkeys(texts) if text.lower() not in _MEANINGLESS]
    # Many agents repeat the message in `data`, often inside a longer sentence.
    words = [text for text in texts if not any(text != other and text in other for other in texts)]
    return _shown(": ".join(words))


def _reasons_in(data: Any, depth: int = 4) -> Iterator[str]:
    """Yield the texts in the `data` of an error response that say what went wrong."""
    match data:
        case str():
            yield data
        case dict() if depth:
            for key in _REASON_KEYS:
                yield from _reasons_in(cast("dict[str, Any]", data).get(key), depth - 1)
        case list() if depth:
            for one in cast("list[Any]", data):
                yield from _reasons_in(one, depth - 1)
        case _:
            pass


def _shown(text: str) -> str:
    """Return a text of an agent's error as it is shown: on one short line, without secrets and without a full stop."""
    # A secret that is cut is not recognised as one, so blank the secrets before the text is cut.
    line = secrets.redact(single_line(text, 4 * limits.ERROR))
    return single_line(line, limits.ERROR).rstrip(". ")


def _login_methods(data: Any) -> list[str]:
    """Return the names of the login methods in the `data` field of an agent's error response."""
    match data:
        case {"authMethods": [*methods]}:
            names = (cast("dict[str, Any]", one).get("name") for one in methods if isinstance(one, dict))
            return [name for name in names if isinstance(name, str)]
        case _:
            return []
