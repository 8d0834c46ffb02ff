"""Leave for the calls of a turn: decided by the gate, asked of the person where it says so."""

import asyncio
import inspect
import json
import uuid
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial

from agentmagic.approval.gate import Decision, Gate, denial, doubtful_denial, refusal
from agentmagic.approval.policy import checked
from agentmagic.events import ApprovalAsked, ApprovalGiven, Approve, Deny, Event, Intent, QuestionAsked
from agentmagic.messages import ResultStatus, Text, ToolCall, ToolResult
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import Deadline, being_cancelled
from agentmagic.secrets import redact
from agentmagic.serialization import same_json
from agentmagic.settings import Permission
from agentmagic.tools.base import Tool, check_arguments

EDITS = 3
"""How often a person is asked again about arguments of theirs that do not fit."""

Ask = Callable[[ApprovalAsked | QuestionAsked], Awaitable[Intent | None]]
"""Puts a question to the person; None says that nobody is there."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A call may run: `call` is what runs, `how` who let it in a word, `edited` whether the person changed it."""

    call: ToolCall
    how: str
    edited: bool = False

    def told(self, result: ToolResult) -> ToolResult:
        """Return the result of the call with what the model has to know of what ran."""
        if not self.edited:
            return result
        arguments = json.dumps(dict(self.call.arguments), ensure_ascii=False, default=str)
        words = f"The user changed the arguments of this call to {arguments} and it ran with those."
        return replace(result, content=(Text(words), *result.content))


@dataclass(frozen=True, slots=True)
class Refused:
    """A call may not run: `words` tell model and person why, `how` says who refused it."""

    words: str
    how: str
    status: ResultStatus = "denied"


Permit = Granted | Refused


@dataclass(slots=True)
class _OpenApproval:
    """A question that waits for the person; `again` decides its call anew."""

    task: "asyncio.Future[Intent | None]"
    again: Callable[[], Decision]
    released: bool = False


@dataclass(slots=True)
class Permits:
    """Decides the calls of a turn, asking the person where the gate says so.

    Calls of one step are asked about side by side; an "always" for one lets the others go that it covers. The
    turn's `deadline` stands still while a person is asked.
    """

    gate: Gate
    deadline: Deadline
    emit: Callable[[Event], None]
    ask: Ask
    _open: dict[str, _OpenApproval] = field(default_factory=dict[str, _OpenApproval])

    async def of(self, tool: Tool, call: ToolCall) -> Permit:
        """Decide one call. Raises UsageError where `AGENTMAGIC_PERMISSION` says nothing known."""
        try:
            decide = await self._decider(tool, call)
        except _HookFailed as failed:
            return Refused(f"{call.name} was not run: {failed}", "hook failed")
        decision = decide()
        match decision.verdict:
            case "allow":
                return Granted(call, "allowed")
            case "deny":
                return Refused(refusal(tool.definition, decision), "policy")
            case "ask":
                pass
        if problem := check_arguments(tool.definition, call.arguments):
            return Refused(problem, "nobody asked", "error")  # a person would approve what cannot run
        return await self._asked(tool, call, decide, decision)

    async def put(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        """Put a question to the person and wait for the answer."""
        self.emit(question)
        return await self._wait(question)

    async def _wait(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        with self.deadline.paused():
            return await self.ask(question)

    # -- asking --------------------------------------------------------------------------------

    async def _asked(self, tool: Tool, call: ToolCall, again: Callable[[], Decision], decision: Decision) -> Permit:
        """Ask the person, again where the arguments they gave do not fit."""
        why = decision.why
        for _ in range(EDITS):
            asked = ApprovalAsked(uuid.uuid4().hex, call, tool.definition.server, why)
            intent = await self._answer(asked, again)
            if isinstance(intent, Granted):
                return intent
            if not isinstance(intent, Approve):
                return self._refused(tool, asked, intent, decision)
            if intent.arguments is not None and same_json(intent.arguments, call.arguments):
                intent = replace(intent, arguments=None)  # an edit that changes nothing
            granted = call if intent.arguments is None else replace(call, arguments=dict(intent.arguments))
            problem = await self._unfit(tool, granted) if intent.arguments is not None else ""
            if not problem:
                return self._granted(tool, asked, intent, granted, decision)
            self.emit(ApprovalGiven(asked.id, approved=False, reason=problem))
            why = f"The arguments you gave cannot be used: {problem}"
        return Refused(f"{call.name} was not run: the arguments that the user gave could not be used.", "edit failed")

    async def _answer(self, asked: ApprovalAsked, again: Callable[[], Decision]) -> Granted | Intent | None:
        """Wait for the person, or until an "always" for another call covers this one, which may then run."""
        task = asyncio.ensure_future(self._wait(asked))
        self.emit(asked)  # only now: whoever answers at once finds the question open
        opened = self._open[asked.id] = _OpenApproval(task, again)
        try:
            await asyncio.wait((task,))
        finally:
            del self._open[asked.id]
            task.cancel()
        return Granted(asked.call, "approved always") if opened.released else task.result()

    def _granted(
        self, tool: Tool, asked: ApprovalAsked, approve: Approve, call: ToolCall, decision: Decision
    ) -> Granted:
        self.gate.approvals.approve(tool.definition, decision.questions, always=approve.always)
        if approve.always:
            self._release()
        edited = approve.arguments is not None
        self.emit(
            ApprovalGiven(
                asked.id, approved=True, always=approve.always, arguments=dict(call.arguments) if edited else None
            )
        )
        return Granted(call, f"approved{' always' * approve.always}{' edited' * edited}", edited)

    def _release(self) -> None:
        """Answer the questions that an "always" has made needless.

        That is told here, before the answer that did it, so that nobody puts the next of them meanwhile.
        """
        for question, opened in self._open.items():
            if not opened.task.done() and opened.again().verdict == "allow":
                opened.released = True
                opened.task.cancel()
                self.emit(ApprovalGiven(question, approved=True, always=True))

    def _refused(self, tool: Tool, asked: ApprovalAsked, intent: Intent | None, decision: Decision) -> Refused:
        name = asked.call.name
        if isinstance(intent, Deny):
            self.emit(ApprovalGiven(asked.id, approved=False, reason=intent.reason))
            said = f" and said: {intent.reason}" if intent.reason else ""
            return Refused(f"{name} was not run: the user denied it{said}.", "denied")
        self.emit(ApprovalGiven(asked.id, approved=False, reason="nobody to ask"))
        if (tool.definition.server, tool.name) in self.gate.approvals.in_doubt:
            return Refused(doubtful_denial(tool.definition), "nobody to ask")
        words = denial(tool.definition, code=tool.code, default=decision.default)
        return Refused(words, "nobody to ask")

    async def _unfit(self, tool: Tool, call: ToolCall) -> str:
        """Say why a call cannot run with the arguments that a person gave it, "" if it can."""
        if problem := check_arguments(tool.definition, call.arguments):
            return problem
        try:
            decision = (await self._decider(tool, call))()
        except _HookFailed as failed:
            return str(failed)
        return decision.why if decision.verdict == "deny" else ""

    # -- deciding ------------------------------------------------------------------------------

    async def _decider(self, tool: Tool, call: ToolCall) -> Callable[[], Decision]:
        """Return what decides a call, now and again once more was approved; the hook is asked once."""
        said = await self._hook(tool, call)
        return partial(self.gate.decide, tool.definition, call.arguments, asks=tool.ask, code=tool.code, said=said)

    async def _hook(self, tool: Tool, call: ToolCall) -> Permission | None:
        """Return what the policy's hook says; one that fails lets nothing run."""
        hook = self.gate.policy.hook
        if hook is None:
            return None
        try:
            given = deepcopy((call, tool.definition))  # what it does to them changes nothing that runs
            if inspect.iscoroutinefunction(hook):
                return checked(await hook(*given))
            answer = await engine().run_user(partial(hook, *given))
            return checked(await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            if being_cancelled():
                raise
            words = redact(f"the permission hook failed: {type(error).__name__}: {error}")
            raise _HookFailed(words) from error


class _HookFailed(Exception):
    """The policy's hook raised something, or answered with what is no verdict."""
