"""Step mode: a turn pauses before each request and each tool call, and the user continues, edits, skips or stops."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import eq

from agentmagic.approval.approvals import Gate, Granted, Refused, missing_arguments
from agentmagic.context.request_view import tokens_of_message, tokens_of_tools
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Approve,
    Deny,
    Intent,
    PromptEdited,
    QuestionAnswered,
    QuestionAsked,
    Reply,
)
from agentmagic.messages import Message, Part, Reasoning, Text, ToolCall, ToolDef, ToolResult, as_text
from agentmagic.providers.base import Request
from agentmagic.serialization import copy_call
from agentmagic.text import clip, join_names, plural, sanitize
from agentmagic.tools.base import Tool

LONGEST = 600
"""Characters that are shown of one message, and of the instructions."""
MOST = 12
"""Messages of a request that are shown: the last ones."""


@dataclass(slots=True)
class Stepper:
    """Pauses a turn before each request and each call while `on` is true; `gate` is the turn's permission gate.

    `on` becomes false when the user lets the turn run to its end.
    """

    gate: Gate
    on: bool
    _last_messages: tuple[Message, ...] = ()

    async def before_step(self, step: int, request: Request, model: str, prompt: Message | None) -> bool:
        """Show the request of a step, and wait for the user. Return whether the user changed its prompt.

        `prompt` is None if the user cannot change the prompt.
        """
        # Compare the messages themselves: a summary may have replaced old ones, and extra ones are sent only once.
        old_count = sum(takewhile(bool, map(eq, self._last_messages, request.messages)))
        self._last_messages = tuple(request.messages)
        return await self._before(f"Step {step}, to {model}", _describe(request, old_count), prompt)

    async def before_request(self, purpose: str, request: Request, model: str) -> None:
        """Show a request that is not part of the conversation, and wait for the user. Only its last message is new."""
        if self.on:
            await self._before(f"{purpose}, to {model}", _describe(request, len(request.messages) - 1))

    async def _before(self, heading: str, lines: Iterable[str], prompt: Message | None = None) -> bool:
        text = ", ".join((heading, "\n".join(lines)))
        question = QuestionAsked(uuid.uuid4().hex, text, "" if prompt is None else prompt.text, step=True)
        intent = await self._ask_question(question)
        reply = intent.text if isinstance(intent, Reply) else ""
        self.gate.emit(QuestionAnswered(question.id, reply))
        # A front end shows the prompt without hidden characters. If the reply equals that, nothing was changed.
        if prompt is None or reply.strip() in ("", prompt.text.strip(), sanitize(prompt.text).strip()):
            return False
        others = (part for part in prompt.parts if not isinstance(part, Text))
        self.gate.emit(PromptEdited(replace(prompt, parts=(Text(reply), *others))))
        return True

    async def before_call(self, tool: Tool, permit: Granted) -> Granted | Refused:
        """Show a tool call that may run, and wait for the user. Return the call, perhaps edited, or a refusal."""
        why = ""
        while self.on:
            optional = missing_arguments(tool.definition, permit.call.arguments)
            question = ApprovalAsked(
                uuid.uuid4().hex, copy_call(permit.call), tool.definition.server, why, step=True, optional=optional
            )
            intent = await self._ask_question(question)
            if isinstance(intent, Deny):
                reason = f"the user skipped it{f' and said: {intent.reason}' if intent.reason else ''}."
                self.gate.emit(ApprovalGiven(question.id, approved=False, reason=reason))
                return Refused(f"{permit.call.name} was not run: {reason}", "skipped", "error", by_user=True)
            arguments = intent.arguments if isinstance(intent, Approve) else None
            if arguments is None:
                self.gate.emit(ApprovalGiven(question.id, approved=True))
                return permit
            call, problem = await self.gate.with_arguments(tool, permit.call, arguments)
            new_arguments = copy_call(call).arguments
            self.gate.emit(ApprovalGiven(question.id, approved=not problem, reason=problem, arguments=new_arguments))
            if not problem:
                return Granted(call, "stepped edited", edited=True)
            why = f"The arguments you gave cannot be used: {problem}"
        return permit

    async def _ask_question(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        intent = await self.gate.ask_question(question)
        if intent is None or (isinstance(intent, Approve) and intent.always):
            self.on = False
        return intent


def _describe(request: Request, old_count: int) -> Iterator[str]:
    """Yield a description of a model request, line by line.

    The first `old_count` messages were sent before, so the description gives only their number.
    """
    tokens = tokens_of_tools(request.instructions, request.tools) + sum(map(tokens_of_message, request.messages))
    yield f"about {tokens:,} tokens"
    if request.instructions:
        yield f"Instructions: {clip(request.instructions, LONGEST)}"
    if request.tools:
        choice = "" if request.tool_choice == "auto" else f" (tool choice: {request.tool_choice})"
        yield f"Tools: {join_names([_signature(tool) for tool in request.tools])}{choice}"
    settings = [f"{name}={getattr(request.settings, name)}" for name in request.settings.given]
    if settings:
        yield f"Settings: {', '.join(settings)}"
    first = max(old_count, len(request.messages) - MOST)
    if first:
        yield f"{plural(first, 'message')} as before, and:"
    for message in request.messages[first:]:
        yield from (f"{message.role}: {clip(_part_text(part), LONGEST)}" for part in message.parts)


def _signature(tool: ToolDef) -> str:
    return f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})"


def _part_text(part: Part) -> str:
    match part:
        case ToolCall():
            return f"calls {part.name}({', '.join(f'{name}={value!r}' for name, value in part.arguments.items())})"
        case ToolResult():
            return f"{part.name} returned {part.text}"
        case Reasoning():
            return f"(reasoning) {part.text}"
        case _:
            return as_text(part)
