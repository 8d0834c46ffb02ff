"""Answers what a server asks of us: elicitation, sampling, roots; by a person's leave and within bounds.

A server is heard only while a call to it is running. That call's clock and those of its neighbours stand
still while a person is asked, for the protocol does not say on behalf of which call a server asks.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from agentmagic.messages import Media, Message
from agentmagic.secrets import redact
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import forms
from agentmagic.tools.mcp.content import to_parts
from agentmagic.tools.mcp.host import Form, Host, Link, Sampling
from agentmagic.tools.mcp.words import clean, deceives, line

if TYPE_CHECKING:
    from pathlib import Path

    from mcp import types

T = TypeVar("T")

MOST_SAMPLES = 5
"""Answers of a model that one server may have in one turn."""

MOST_SAMPLE_TOKENS = 8000
"""Tokens of all of them together."""

MOST_QUESTIONS = 10
"""Forms and addresses that one server may put to a person in one turn."""

MOST_MESSAGES = 50
"""Messages taken of one request for a model's answer."""

LONGEST_SAMPLING = 100_000
"""Characters of all text in one such request: they are the user's to pay."""

MOST_SAMPLING_MEDIA = 5_000_000
"""Bytes of all its images and sounds."""

LONGEST_MESSAGE = 2000
LONGEST_ADDRESS = 2000
LOG_LINES = 1000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a server's log; `level` is one of the protocol's, `logger` may be empty."""

    level: str
    logger: str
    text: str


@dataclass(slots=True, eq=False)
class InFlight:
    """A call that is running: whom to ask, and what was refused meanwhile, for the model and person to read."""

    context: ToolContext
    notes: list[str] = field(default_factory=list[str])
    asking: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def end(self) -> None:
        """Withdraw what is still being asked for this call."""
        for task in self.asking:
            task.cancel()


class Asking:
    """The callbacks of one server's client, and what they have used up."""

    def __init__(self, server: str, host: Host, roots: "Sequence[Path]") -> None:
        self.in_flight: list[InFlight] = []
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self._server = server
        self._host = host
        self._roots = roots
        self._samples = self._tokens = self._questions = 0

    def new_turn(self) -> None:
        """Begin to count anew."""
        self._samples = self._tokens = self._questions = 0

    def callbacks(self) -> dict[str, Any]:
        """Return the arguments of the library's `Client`; what is not among them the server is told we lack."""
        given: dict[str, Any] = {"elicitation_callback": self.elicit, "logging_callback": self.note}
        if self._host.samples:
            given["sampling_callback"] = self.sample
        if self._roots:
            given["list_roots_callback"] = self.list_roots
        return given

    async def note(self, params: "types.LoggingMessageNotificationParams") -> None:
        """Keep a line of the server's log."""
        words = params.data if isinstance(params.data, str) else repr(params.data)
        self.log.append(LogLine(params.level, line(params.logger or "", 100), line(words, 2000)))

    async def list_roots(self, _context: Any) -> "types.ListRootsResult":
        """Tell the folders that the user gave this server."""
        from mcp import types

        roots = [{"uri": one.as_uri(), "name": one.name} for one in self._roots]
        return types.ListRootsResult.model_validate({"roots": roots})

    async def elicit(self, _context: Any, params: "types.ElicitRequestParams") -> "types.ElicitResult":
        """Put a form or an address to the person."""
        from mcp import types

        call = self._caller()
        if call is None:
            return types.ElicitResult(action="cancel")
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            call.notes.append(f"It asked more than {MOST_QUESTIONS} questions in this turn; the rest was declined.")
            return types.ElicitResult(action="decline")
        message = clean(params.message[:LONGEST_MESSAGE])
        if params.mode == "url":
            return await self._link(call, message, params.url)
        return await self._form(call, message, params.requested_schema)

    async def _form(self, call: InFlight, message: str, schema: Any) -> "types.ElicitResult":
        from mcp import types

        try:
            form = Form(self._server, message, forms.fields(message, schema))
        except forms.UnusableForm as error:
            call.notes.append(f"It asked for values in a form, which was refused: {error}.")
            return types.ElicitResult(action="decline")
        values = await self._ask(call, self._host.fill(form, call.context))
        if values is None or isinstance(values, str):
            return types.ElicitResult(action=values or "cancel")
        return types.ElicitResult(action="accept", content=dict(values))

    async def _link(self, call: InFlight, message: str, url: str) -> "types.ElicitResult":
        from mcp import types

        if (problem := _unfit(url)) is not None:
            call.notes.append(f"It asked for a visit to an address, which was refused: {problem}.")
            return types.ElicitResult(action="decline")
        agreed = await self._ask(call, self._host.visit(Link(self._server, message, url), call.context))
        return types.ElicitResult(action="accept" if agreed else "decline")

    async def visit_first(self, error: BaseException | None) -> str:
        """Put the addresses to the person that a server demands to be visited before a call; say what came of it.

        Returns "" for any other error. The call is not sent again: that is up to the model.
        """
        from mcp import MCPError, types
        from pydantic import ValidationError

        if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED:
            return ""
        try:
            demanded = types.ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
        except ValidationError:
            return ""
        answers = [await self.elicit(None, one) for one in demanded[:MOST_QUESTIONS]]
        agreed = all(one.action == "accept" for one in answers)
        return "The user agreed to visit it; call again." if agreed else "The user did not agree to visit it."

    async def sample(
        self, _context: Any, params: "types.CreateMessageRequestParams"
    ) -> "types.CreateMessageResult | types.ErrorData":
        """Have the model answer, within the bounds of a turn."""
        from mcp import types

        call = self._caller()
        tokens = max(1, min(params.max_tokens, MOST_SAMPLE_TOKENS))
        if call is None:
            return _refused("a server may ask for a model only while a call to it is running")
        if self._samples >= MOST_SAMPLES or self._tokens + tokens > MOST_SAMPLE_TOKENS:
            note = (
                f"It asked the model for more than {MOST_SAMPLES} answers or {MOST_SAMPLE_TOKENS} tokens in this turn; "
                "the rest was refused."
            )
            if note not in call.notes:
                call.notes.append(note)
            return _refused(note)
        request = Sampling(self._server, _messages(params), clean((params.system_prompt or "")[:10_000]), tokens)
        if _is_too_long(request):
            call.notes.append("It asked the model with more than can be sent, which was refused.")
            return _refused(f"it holds over {LONGEST_SAMPLING} characters or {MOST_SAMPLING_MEDIA} bytes of media")
        self._samples += 1
        self._tokens += tokens
        answer = await self._ask(call, self._host.sample(request, call.context))
        if answer is None:
            return _refused("the user did not agree")
        content = types.TextContent(type="text", text=answer.text)
        return types.CreateMessageResult(
            role="assistant", content=content, model=answer.model, stop_reason=answer.stop_reason
        )

    def _caller(self) -> InFlight | None:
        return self.in_flight[-1] if self.in_flight else None

    async def _ask(self, call: InFlight, question: Coroutine[Any, Any, T]) -> T | None:
        """Wait for the host while all clocks of this server's calls stand still; None if its call ended first."""
        task = asyncio.ensure_future(question)
        call.asking.add(task)
        try:
            with ExitStack() as clocks:
                for running in self.in_flight:
                    clocks.enter_context(running.context.deadline.paused())
                await asyncio.wait((task,))
        finally:
            call.asking.discard(task)
            task.cancel()
        if task.cancelled():
            return None
        if error := task.exception():
            call.notes.append(redact(f"What it asked for could not be had: {type(error).__name__}: {error}"[:500]))
            return None
        return task.result()


def _messages(params: "types.CreateMessageRequestParams") -> tuple[Message, ...]:
    return tuple(Message(one.role, to_parts(one.content_as_list)) for one in params.messages[:MOST_MESSAGES])


def _is_too_long(request: Sampling) -> bool:
    parts = [part for message in request.messages for part in message.parts]
    media = sum(len(part.data) for part in parts if isinstance(part, Media))
    return sum(len(message.text) for message in request.messages) > LONGEST_SAMPLING or media > MOST_SAMPLING_MEDIA


def _unfit(url: str) -> str | None:
    """Say why an address is not shown to a person, or return None."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "it cannot be read"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it is no web address"
    if deceives(url, LONGEST_ADDRESS):
        return "it is written so that it could deceive"
    return None


def _refused(why: str) -> "types.ErrorData":
    from mcp import types

    return types.ErrorData(code=types.INVALID_REQUEST, message=f"Sampling was refused: {why}.")
