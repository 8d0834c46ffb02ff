"""Answers the requests that an MCP server sends to agentmagic, within limits.

A server can ask the user a question (elicitation), send a request to the user's model (sampling), or ask for the
folders to work in (roots). Elicitation and sampling need the user's consent, and are refused if no call to the server
is running.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from agentmagic.messages import Media, Message
from agentmagic.secrets import redact
from agentmagic.text import address_problem, single_line
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.content import clean_lines, to_parts
from agentmagic.tools.mcp.elicitation import UnusableForm, ask_fields, ask_visit, fields_of
from agentmagic.tools.mcp.pending import PendingCallers, SamplingRequest

if TYPE_CHECKING:
    from pathlib import Path

    from mcp import types

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log of an MCP server. `level` is a log level of MCP, and `logger` can be ""."""

    level: str
    logger: str
    text: str


@dataclass(slots=True, eq=False)
class RunningCall:
    """A running tool call, during which its MCP server can ask the user questions.

    `notes` says which requests of the server were refused. The notes are added to the result of the call.
    """

    context: ToolContext
    notes: list[str] = field(default_factory=list[str])
    questions: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def note(self, text: str) -> None:
        """Add a note, but only once, because a server can repeat a refused request without end."""
        if text not in self.notes:
            self.notes.append(text)


class ServerRequests:
    """Answers the requests of one MCP server, stores its log, and counts its requests in this turn."""

    def __init__(self, pending: PendingCallers, roots: "Sequence[Path]") -> None:
        self.pending = pending
        self.log: deque[LogLine] = deque(maxlen=limits.LOG_LINES)
        self._roots = roots
        self._calls: list[RunningCall] = []
        self._samples = self._tokens = self._questions = 0

    def new_turn(self) -> None:
        """Set the counts of the server's requests to 0. Their limits hold for one turn."""
        self._samples = self._tokens = self._questions = 0

    @contextmanager
    def during_call(self, context: ToolContext) -> Generator[RunningCall]:
        """While the `with` block runs, let the server ask the user questions, through the methods of `context`.

        At the end of the block, the questions that are still open are cancelled.
        """
        call = RunningCall(context)
        self._calls.append(call)
        try:
            with self.pending.caller(context.deadline):
                yield call
        finally:
            self._calls.remove(call)
            for task in call.questions:
                task.cancel()

    def callbacks(self) -> dict[str, Any]:
        """Return the methods that answer requests from the server, as arguments for the mcp library's `Client`.

        The client tells the server which kinds of requests it answers.
        """
        arguments: dict[str, Any] = {"elicitation_callback": self.elicit, "logging_callback": self._keep_log}
        if self.pending.host.complete is not None:
            arguments["sampling_callback"] = self._sample
        # An empty list of roots is not offered: some servers replace the folders of their command line with the roots.
        if self._roots:
            arguments["list_roots_callback"] = self._list_roots
        return arguments

    async def _keep_log(self, params: "types.LoggingMessageNotificationParams") -> None:
        text = params.data if isinstance(params.data, str) else repr(params.data)
        self.log.append(
            LogLine(params.level, single_line(params.logger or "", 100), single_line(text, limits.LOG_TEXT))
        )

    async def _list_roots(self, _context: Any) -> "types.ListRootsResult":
        from mcp import types

        roots = [{"uri": one.as_uri(), "name": one.name} for one in self._roots]
        return types.ListRootsResult.model_validate({"roots": roots})

    async def elicit(self, _context: Any, params: "types.ElicitRequestParams") -> "types.ElicitResult":
        """Ask the user to fill in a server's form, or to visit a web address, and return the answer for the server."""
        from mcp import types

        call = self._caller()
        if call is None:
            return types.ElicitResult(action="cancel")
        self._questions += 1
        if self._questions > limits.QUESTIONS:
            call.note(f"It asked more than {limits.QUESTIONS} questions in this turn; the rest was declined.")
            return types.ElicitResult(action="decline")
        message = clean_lines(params.message[: limits.QUESTION_TEXT])
        if params.mode == "url":
            return await self._elicit_visit(call, message, params.url)
        return await self._elicit_form(call, message, params.requested_schema)

    async def _elicit_form(self, call: RunningCall, message: str, schema: Any) -> "types.ElicitResult":
        from mcp import types

        try:
            fields = fields_of(message, schema)
        except UnusableForm as error:
            call.note(f"It asked for values in a form, which was refused: {error}.")
            return types.ElicitResult(action="decline")
        values = await self._ask(call, ask_fields(self.pending.server, message, fields, call.context))
        if values is None or isinstance(values, str):
            return types.ElicitResult(action=values or "cancel")
        return types.ElicitResult(action="accept", content=values)

    async def _elicit_visit(self, call: RunningCall, message: str, url: str) -> "types.ElicitResult":
        from mcp import types

        if (problem := address_problem(url, limits.ADDRESS)) is not None:
            call.note(f"It asked for a visit to an address, which was refused: {problem}.")
            return types.ElicitResult(action="decline")
        consent = await self._ask(call, ask_visit(self.pending.server, message, url, call.context))
        return types.ElicitResult(action="accept" if consent else "decline")

    async def visit_first(self, error: BaseException) -> str:
        """If a call failed because the user must visit web addresses first, ask the user to visit them.

        Return a sentence on the outcome, or "" for any other error. The model reads the sentence and decides whether to
        call the tool again.
        """
        from mcp import MCPError, types
        from pydantic import ValidationError

        if not isinstance(error, MCPError) or error.code != types.URL_ELICITATION_REQUIRED:
            return ""
        try:
            visits = types.ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
        except ValidationError:
            return ""
        if not visits:
            return ""
        answers = [await self.elicit(None, one) for one in visits[: limits.QUESTIONS]]
        consent = all(one.action == "accept" for one in answers)
        return "The user agreed to visit it; call again." if consent else "The user did not agree to visit it."

    async def _sample(
        self, _context: Any, params: "types.CreateMessageRequestParams"
    ) -> "types.CreateMessageResult | types.ErrorData":
        """Send a server's request to the user's model, within the limits of a turn, and return the answer."""
        from mcp import types

        call = self._caller()
        tokens = max(1, min(params.max_tokens, limits.SAMPLE_TOKENS))
        if call is None:
            return _refusal("a server may ask for a model only while a call to it is running")
        if self._samples >= limits.SAMPLES or self._tokens + tokens > limits.SAMPLE_TOKENS:
            note = (
                f"It asked the model for more than {limits.SAMPLES} answers or {limits.SAMPLE_TOKENS} tokens "
                "in this turn; the rest was refused."
            )
            call.note(note)
            return _refusal(note)
        raw_messages = params.messages[: limits.SAMPLE_MESSAGES]
        messages = tuple(Message(one.role, to_parts(one.content_as_list)) for one in raw_messages)
        instructions = clean_lines((params.system_prompt or "")[: limits.SAMPLE_INSTRUCTIONS])
        if _is_too_long(messages):
            call.note("It asked the model with more than can be sent, which was refused.")
            sizes = f"{limits.SAMPLE_TEXT} characters or {limits.SAMPLE_MEDIA} bytes of media"
            return _refusal(f"it holds over {sizes}")
        self._samples += 1
        self._tokens += tokens
        request = SamplingRequest(self.pending.server, messages, instructions, tokens)
        answer = await self._ask(call, self.pending.host.sample(request, call.context))
        if answer is None:
            return _refusal("the user did not agree")
        content = types.TextContent(type="text", text=answer.text)
        return types.CreateMessageResult(
            role="assistant", content=content, model=answer.model, stop_reason=answer.stop_reason
        )

    def _caller(self) -> RunningCall | None:
        return self._calls[-1] if self._calls else None

    async def _ask(self, call: RunningCall, question: Coroutine[Any, Any, T]) -> T | None:
        """Wait for the user's answer to a question. The timeouts of all code that waits for the server are paused.

        Return None if the tool call ends first, or if the question fails.
        """
        task = asyncio.ensure_future(question)
        call.questions.add(task)
        try:
            with self.pending.prompt():
                await asyncio.wait((task,))
        finally:
            call.questions.discard(task)
            task.cancel()
        if task.cancelled():
            return None
        if error := task.exception():
            call.note(redact(f"What it asked for could not be had: {type(error).__name__}: {error}")[:500])
            return None
        return task.result()


def _is_too_long(messages: Sequence[Message]) -> bool:
    media = sum(len(part.data) for message in messages for part in message.parts if isinstance(part, Media))
    return sum(len(message.text) for message in messages) > limits.SAMPLE_TEXT or media > limits.SAMPLE_MEDIA


def _refusal(why: str) -> "types.ErrorData":
    from mcp import types

    return types.ErrorData(code=types.INVALID_REQUEST, message=f"Sampling was refused: {why}.")
