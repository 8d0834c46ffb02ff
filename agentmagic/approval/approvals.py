"""Decides which tool calls may run: applies the policy, asks the user, and stores the answers for the session."""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import partial
from typing import Any, cast

from agentmagic import settings
from agentmagic.approval.policy import Policy, Voice, check_answer, strictest
from agentmagic.classroom import class_settings
from agentmagic.errors import ToolError
from agentmagic.events import (
    ALLOW_ONCE,
    AgentOption,
    ApprovalAsked,
    ApprovalGiven,
    Approve,
    Deny,
    Event,
    Intent,
    Notice,
    QuestionAsked,
    option_for,
)
from agentmagic.messages import NOTEBOOK, ResultStatus, Text, ToolCall, ToolDef, ToolKey, ToolResult
from agentmagic.providers.outside import is_outside
from agentmagic.runtime.engine import engine, void
from agentmagic.runtime.timeouts import Deadline, is_cancelling
from agentmagic.secrets import redact
from agentmagic.serialization import copy_call, same_json
from agentmagic.settings import Permission
from agentmagic.text import json_line, sanitize, single_line
from agentmagic.tools.base import Effects, Tool, failure
from agentmagic.tools.calling import check_arguments

TEST_SECONDS = 5.0
"""Timeout of the functions in a policy's rules, in seconds for each call."""
EDITS = 3
"""How often the user is asked about one call whose edited arguments are not valid."""
LONGEST_DIFF = 40
"""Lines shown of the diff of a changed tool definition."""
LONGEST_LINE = 300
"""Longest line of that diff, in characters. A longer sentence is split, so that a change at its end is visible."""

MOST_OPTIONAL = 20
"""How many arguments that the model left out are shown to the user."""

DEFAULT = ""
"""The name of the question about a call that no rule and no hook decides."""
OVERRIDDEN = f"The variable {settings.PERMISSION} denies every tool call. %env {settings.PERMISSION}=ask ends that."
EVERYTHING = "The user's permission setting denies every tool call."
UNSPOKEN = "The user's permission setting denies every call that no rule allows."
ALLOWING = 'The user can be asked instead with permission="ask" (--permission ask in a cell).'
CHANGED = "Its definition has changed since you approved it:"
UNASKED = "{0} of {1} runs without asking, and its definition has changed since its last call:\n{2}"
MODEL = ""
"""The proposer of the calls of the session's model, and of what these calls call themselves."""
NO_ONCE = "{} offers no option that only allows this once."
UNCLEAR = "{} does not say what will run."
NO_ONE = "no one to ask"
"""The decision in the audit log if a call was denied because no user could be asked."""
DOUBT = "It was under way when the kernel stopped, and may have done its work already."
"""The reason for asking about a tool that was running when the kernel stopped."""

_SENTENCE_END = re.compile(r"(?<=[.!?;]) +")
_PIECE = re.compile(rf".{{1,{LONGEST_LINE}}}", re.DOTALL)

RELEASED = Approve("")
"""Used in place of the user's answer if the user's "always" for another call also covers this call."""

Ask = Callable[[ApprovalAsked | QuestionAsked], Awaitable[Intent | None]]
"""Asks the user, and returns the answer, or None if there is no user to ask."""


async def ask_no_one(_question: ApprovalAsked | QuestionAsked) -> None:
    """Return None, the answer that means that no user could be asked."""


@dataclass(slots=True)
class Approvals:
    """The user's answers to approval questions about tools in a session.

    The answer "always" applies to one tool, and to one cause of the question: one rule of the policy, the policy's
    hook, or its default. It ends when the definition of the tool changes. A "no" to a tool that runs at the model
    provider ends at such a change too, or when the user's rules or settings allow the tool. `in_doubt`: the tools
    that were running when the kernel stopped, and may have done their work.
    """

    in_doubt: set[ToolKey] = field(default_factory=set[ToolKey])
    _always: set[tuple[ToolKey, str]] = field(default_factory=set[tuple[ToolKey, str]])
    _approved: dict[ToolKey, str] = field(default_factory=dict[ToolKey, str])
    _allowed: dict[ToolKey, str] = field(default_factory=dict[ToolKey, str])
    _denied: dict[ToolKey, tuple[str, str]] = field(default_factory=dict[ToolKey, tuple[str, str]])

    def is_always(self, tool: ToolDef, question: str) -> bool:
        """Return whether the user answered "always" to this question, and the tool's definition is still the same."""
        key = _tool_key(tool)
        return (key, question) in self._always and self._approved[key] == _definition_text(tool)

    def definition_change(self, tool: ToolDef) -> str:
        """Return how a tool's definition differs from the one that the user approved before, or "" if it is equal."""
        before, now = self._approved.get(_tool_key(tool)), _definition_text(tool)
        return "" if before is None or before == now else _difference(before, now)

    def allow(self, tool: ToolDef) -> str:
        """Record that a server's tool, with its present definition, runs without asking.

        Return how this definition differs from the one recorded before, or "" if it does not differ.
        """
        if tool.server == NOTEBOOK:  # a change to the user's own functions is not reported: the user knows it
            return ""
        now = _definition_text(tool)
        before = self._allowed.get(_tool_key(tool), now)
        self._allowed[_tool_key(tool)] = now
        return "" if before == now else _difference(before, now)

    def deny(self, tool: ToolDef, why: str) -> None:
        """Record that the user denied a tool with its present definition; `why` is the reason, as a sentence."""
        self._denied[_tool_key(tool)] = _definition_text(tool), why

    def denial(self, tool: ToolDef) -> str:
        """Return why the user denied a tool. Return "" without a denial, or if the tool's definition changed since."""
        definition, why = self._denied.get(_tool_key(tool), ("", ""))
        return why if definition == _definition_text(tool) else ""

    def approve(self, tool: ToolDef, questions: Sequence[str], *, always: bool) -> None:
        """Record that the user approved a call; `always` also approves later calls that raise the same `questions`."""
        key, now = _tool_key(tool), _definition_text(tool)
        if self._approved.get(key) != now:  # an "always" ends when the definition changes
            self._always = {one for one in self._always if one[0] != key}
        self._approved[key] = now
        self.in_doubt.discard(key)
        if always:
            self._always.update((key, question) for question in questions)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy and the user's earlier answers decide about a call.

    `why`: sentences that say why the user is asked, or why the call is denied.
    `questions`: the id of a question for each rule that asks; the user's answer "always" applies to these questions.
    `default`: whether the policy's default decided, because no rule and no hook did.
    `always_problem`: why the user cannot answer "always" and is asked every time; "" if the user can.
    """

    verdict: Permission
    why: str = ""
    questions: tuple[str, ...] = ()
    default: bool = True
    always_problem: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """Permission to run `call`. `decision` is for the audit log. If `edited`, the user changed the arguments.

    `option` is the id of the option that the user chose for an outside agent, "" if the user was not asked.
    """

    call: ToolCall
    decision: str
    edited: bool = False
    option: str = ""

    def with_notice(self, result: ToolResult) -> ToolResult:
        """Return the call's result. If the user changed the arguments, add a line that tells the model so."""
        if not self.edited:
            return result
        arguments = json_line(self.call.arguments)
        notice = f"The user changed the arguments of this call to {arguments} and it ran with those."
        return replace(result, content=(Text(notice, audience="assistant"), *result.content))


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusal of a call. The model and the user are told the `reason`. `decision` is for the audit log.

    If `by_user` is True, the user refused the call, and only the model is told the reason. `option`: as in `Granted`.
    """

    reason: str
    decision: str
    status: ResultStatus = "denied"
    by_user: bool = False
    option: str = ""

    def result(self, call: ToolCall) -> ToolResult:
        """Return the refusal as the result of the call."""
        refusal = failure(call, self.reason, self.status)
        if not self.by_user:
            return refusal
        return replace(refusal, content=(Text(refusal.text, audience="assistant"),))


@dataclass(slots=True)
class _OpenApproval:
    """An approval question that the user has not answered. `decide` decides again after answers to others."""

    task: "asyncio.Future[Intent | None]"
    decide: Callable[[], Decision]
    released: bool = False


@dataclass(frozen=True, slots=True)
class _Asking:
    """An act that the user is asked about: the arguments of `Gate.admit`, and the decision that requires the user."""

    tool: Tool
    call: ToolCall
    options: tuple[AgentOption, ...]
    proposer: str
    decide: Callable[[], Decision]
    decision: Decision

    def question(self, why: str) -> ApprovalAsked:
        """Return a new question about the act; `why` is the reason. It has a copy of the call: listeners may change it.

        If a bound asks every time, the options that an outside agent would remember are left out.
        """
        tool, call = self.tool, self.call
        bounded = self.decision.always_problem != ""
        once = _scope(tool, call, self.proposer) is None
        return ApprovalAsked(
            uuid.uuid4().hex,
            copy_call(call),
            tool.definition.server,
            " ".join(filter(None, (why, UNCLEAR.format(self.proposer) if once else ""))),
            effects=_effects(tool, call).lines,
            optional=missing_arguments(tool.definition, call.arguments),
            fixed=tool.fixed,
            hosted=tool.hosted is not None,
            options=tuple(one for one in self.options if not bounded or one.refuses or one.kind == ALLOW_ONCE),
            once=once,
        )


@dataclass(slots=True)
class Gate:
    """Decides whether each call of a turn may run, by the policy, the user's earlier answers, and asking the user.

    `AGENTMAGIC_PERMISSION` overrides the policy: "deny" denies every call, "allow" replaces the default "ask". A tool
    that was running when the kernel stopped needs the user's approval, even if a rule allows it. Code runs only if the
    user approves it, if a rule with the tool's exact name allows it, or if it only reads and the policy's `level` lets
    it; "always" is for the same code. A step's calls are asked about together. An "always" approves all it covers.

    `deadline` is paused while the user is asked. `by_hand`: the user makes the calls, so the user is not asked.
    `outer`: the gate of the outer turn, if an agent tool started this turn. Its policy can deny calls here, too, and
    questions of its rules and hook are asked here.
    """

    policy: Policy = field(default_factory=Policy)
    approvals: Approvals = field(default_factory=Approvals)
    deadline: Deadline = field(default_factory=partial(Deadline, None))
    emit: Callable[[Event], None] = void
    person: Ask = ask_no_one
    by_hand: bool = False
    outer: "Gate | None" = None
    _open: dict[str, _OpenApproval] = field(default_factory=dict[str, _OpenApproval])

    async def admit(
        self, tool: Tool, call: ToolCall, proposer: str = MODEL, options: Sequence[AgentOption] = ()
    ) -> Granted | Refused:
        """Decide whether an act may be done. Ask the user if necessary, but refuse invalid arguments without asking.

        This is the only way to a permission, whoever proposes the act. `call` is exactly what will run, and `tool` is
        what it calls, or stands for an act that an outside agent does itself. `proposer`: the user's answer "always" to
        one proposer does not hold for another. `options` are the answers that an outside agent offers. If none of them
        only allows the act once, the user is asked, because every other option does more.

        Raises UsageError for an invalid `AGENTMAGIC_PERMISSION`.
        """
        try:
            decide = await self._decider(tool, call, proposer)
        except _HookFailed as failed:
            return Refused(f"{call.name} was not run: {failed}", "hook failed")
        decision = decide()
        if decision.verdict == "deny":
            return Refused(f"{call.name} was not run: {_lower(decision.why)}", "policy")
        if decision.verdict == "allow" and options and option_for(options, Approve("")) is None:
            decision = replace(decision, verdict="ask", why=NO_ONCE.format(proposer))
            decide = partial(_same, decision)
        if decision.verdict == "allow":
            if change := self.approvals.allow(tool.definition):
                self.emit(Notice("warning", UNASKED.format(call.name, tool.definition.server, change)))
            return Granted(call, "allowed")
        if problem := check_arguments(tool.definition, call.arguments):
            return Refused(problem, "not asked", "error")  # do not ask the user about a call that cannot run
        if self.by_hand:
            return Granted(call, "by hand")
        return await self._ask_user(_Asking(tool, call, tuple(options), proposer, decide, decision))

    async def forbids(self, tool: Tool, call: ToolCall) -> str:
        """Return why the policy or a bound denies an act, or its hook fails; "" if none of them denies it."""
        try:
            decision = (await self._decider(tool, call))()
        except _HookFailed as failed:
            return str(failed)
        return decision.why if decision.verdict == "deny" else ""

    def forbids_all(self, tool: Tool) -> str:
        """Return why every call of a tool is denied, whatever its arguments are; "" if some call may run."""
        rules = tuple(rule for rule in self.policy.rules if rule.when is None)
        gate = replace(self, policy=replace(self.policy, rules=rules))
        decision = gate.decide(tool.definition, {}, asks=tool.ask, code=tool.code, web=tool.hosted is not None)
        if decision.verdict == "deny":
            return decision.why
        return "" if self.outer is None else self.outer.forbids_all(tool)

    async def ask_question(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        """Return the user's answer to a question, or None if there is no user to ask."""
        self.emit(question)
        return await self._wait(question)

    async def _wait(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        with self.deadline.pause_in_block():
            return await self.person(question)

    # -- deciding ------------------------------------------------------------------------------

    def decide(  # noqa: PLR0913  (one for each kind of tool)
        self,
        tool: ToolDef,
        arguments: Mapping[str, Any],
        *,
        asks: bool,
        code: bool = False,
        web: bool = False,
        voices: tuple[Voice, ...] | None = None,
        scope: str = "",
    ) -> Decision:
        """Return the decision about a call, without asking the user.

        `asks` and `code` are the fields `ask` and `code` of the `Tool`; `web`: the tool is hosted by the model
        provider. `voices`: the policy's verdicts, computed here if None. `scope`: what the answer "always" is bound to,
        besides the tool and the question. Raises UsageError for an invalid `AGENTMAGIC_PERMISSION`.
        """
        override = settings.permission_override()
        if override == "deny":
            return Decision("deny", OVERRIDDEN)
        bounds = class_settings()
        class_verdict, name = bounds.verdict(asks=asks or tool.server != NOTEBOOK, code=code, web=web)
        # Names no file, because models read the reason.
        why = f'The settings of {bounds.scope(name)} have {name} = "{class_verdict}".' if class_verdict else ""
        if class_verdict == "deny":
            return Decision("deny", why, default=False)
        if voices is None:
            voices = self.policy.strictest(tool, arguments, code=code)
        default = not voices
        voices = voices or self._default_voices(asks=asks, code=code)
        if voices[0].verdict == "deny":
            return Decision("deny", voices[0].why, default=default)
        if class_verdict == "ask":
            voices = tuple(one if one.verdict == "ask" else replace(one, verdict="ask", why=why) for one in voices)
        each = "" if web else why  # web access is approved once a session, even if a teacher or administrator set "ask"
        if scope:
            voices = tuple(replace(one, question=f"{one.question} {scope}") for one in voices)
        return replace(self._apply_answers(tool, voices, code=code, each=each), default=default)

    def _apply_answers(self, tool: ToolDef, voices: Sequence[Voice], *, code: bool, each: str) -> Decision:
        """Return the decision that follows from `voices`, which have no "deny", and from the user's earlier answers."""
        asking = [
            one for one in voices if one.verdict == "ask" and (each or not self.approvals.is_always(tool, one.question))
        ]
        doubt = DOUBT if _tool_key(tool) in self.approvals.in_doubt else ""
        questions = tuple(one.question for one in asking or voices)
        if not (asking or doubt):
            return Decision("allow", questions=questions)
        if no := self.approvals.denial(tool):
            return Decision("deny", no)
        change = (
            "" if code else self.approvals.definition_change(tool)
        )  # a tool that runs code names the other tools in its definition, which therefore changes often
        notice = f"{CHANGED}\n{change}" if change else ""
        why = " ".join(filter(None, (doubt, *dict.fromkeys(one.why for one in asking), notice)))
        return Decision("ask", why, questions, always_problem=each)

    async def _decider(self, tool: Tool, call: ToolCall, proposer: str = MODEL) -> Callable[[], Decision]:
        """Return a function that decides about a call; it is called again after the user has approved other calls.

        The rules and the hook of the policy run only once, before this method returns the function.
        """
        hook_verdict = await self._hook_verdict(tool, call)
        voices = await self._voices(tool, call.arguments, hook_verdict) or self._level_voice(tool, call)
        if self.outer is not None and (limits := await self.outer.restrictions(tool, call)):
            voices = strictest((*(voices or self._default_voices(asks=tool.ask, code=tool.code)), *limits))
        definition = tool.lasting or tool.definition
        return partial(
            self.decide,
            definition,
            call.arguments,
            asks=tool.ask,
            code=tool.code,
            web=tool.hosted is not None,
            voices=voices,
            scope=_scope(tool, call, proposer) or "",
        )

    async def restrictions(self, tool: Tool, call: ToolCall) -> tuple[Voice, ...]:
        """Return the "deny" and "ask" verdicts of this policy on a call in the inner turn of an agent tool.

        The default "ask" is not included: the inner agent has its own default.
        """
        voices = await self._voices(tool, call.arguments, await self._hook_verdict(tool, call))
        if not voices and self.policy.default == "deny":
            voices = self._default_voices(asks=tool.ask, code=tool.code)
        own = tuple(one for one in voices if one.verdict != "allow")
        return own if self.outer is None else (*own, *await self.outer.restrictions(tool, call))

    def _default_voices(self, *, asks: bool, code: bool) -> tuple[Voice, ...]:
        """Return the verdict of the policy's default, for a call that no rule and no hook decides."""
        # AGENTMAGIC_PERMISSION replaces every default except "deny". With every default, code asks the user.
        default = self.policy.default
        verdict = default if default == "deny" else settings.permission_override() or default
        if verdict == "deny":
            return (Voice("deny", DEFAULT, f"{UNSPOKEN if self.policy.rules else EVERYTHING} {ALLOWING}"),)
        return (Voice("ask" if code or (asks and verdict == "ask") else "allow", DEFAULT),)

    async def _voices(
        self, tool: Tool, arguments: Mapping[str, Any], hook_verdict: Permission | None
    ) -> tuple[Voice, ...]:
        """Return the policy's verdicts on a call. Raises _HookFailed if the rules' `when` functions take too long."""
        listen = partial(self.policy.strictest, tool.definition, arguments, hook_verdict, code=tool.code)
        if not any(callable(rule.when) for rule in self.policy.rules):
            return listen()
        try:
            async with asyncio.timeout(TEST_SECONDS):
                return await engine().in_pool(listen)  # in a pool thread: the user's `when` functions may block
        except TimeoutError:
            raise _HookFailed(f"the test of a rule took longer than {TEST_SECONDS:g} s.") from None

    def _level_voice(self, tool: Tool, call: ToolCall) -> tuple[Voice, ...]:
        """Return an "allow" if the policy's `level` lets a call run without asking, or () if it does not."""
        if self.policy.level == "ask" or settings.permission_override() is not None:
            return ()
        reads = tool.reads or (tool.code and _effects(tool, call).only_reads)
        return (Voice("allow", "level"),) if self.policy.runs_unasked(reads=reads, trusted=tool.trusted) else ()

    async def _hook_verdict(self, tool: Tool, call: ToolCall) -> Permission | None:
        """Return the answer of the policy's hook. Raises _HookFailed for any failure, so that the call does not run."""
        hook = self.policy.hook
        if hook is None:
            return None
        try:
            arguments = copy_call(call), deepcopy(tool.definition)  # copies, so that the hook cannot change the call
            return check_answer(await engine().call_user(hook, *arguments))
        except BaseException as error:
            if is_cancelling():
                raise
            message = redact(f"the permission hook failed: {type(error).__name__}: {error}")
            raise _HookFailed(message) from error

    # -- asking --------------------------------------------------------------------------------

    async def _ask_user(self, asking: "_Asking") -> Granted | Refused:
        """Ask the user about a call, and ask again if the user's answer cannot be used."""
        tool, call, decision = asking.tool, asking.call, asking.decision
        why = decision.why
        for _ in range(EDITS):
            question = asking.question(why)
            intent = await self._answer(question, asking.decide)
            if intent is RELEASED:
                return Granted(call, "approved always", option=_option_id(question, Approve(question.id)))
            option = question.option_for(intent)
            if not isinstance(intent, Approve) or (option is not None and option.refuses):
                return self._refuse(tool, question, intent, decision)
            if intent.arguments is not None and same_json(intent.arguments, call.arguments):
                intent = replace(intent, arguments=None)  # the user's edit changed nothing
            approved_call, problem = call, _option_problem(question, option) if asking.options else ""
            if not problem and intent.arguments is not None:
                approved_call, problem = await self.with_arguments(tool, call, intent.arguments)
            if not problem:
                return self._grant(asking, question, intent, approved_call)
            self.emit(ApprovalGiven(question.id, approved=False, reason=problem))
            why = problem if intent.arguments is None else f"The arguments you gave cannot be used: {problem}"
        return Refused(f"{call.name} was not run: the answer that the user gave could not be used.", "edit failed")

    async def _answer(self, question: ApprovalAsked, again: Callable[[], Decision]) -> Intent | None:
        """Wait for the user's answer. Return RELEASED if "always" to another question allows this call meanwhile."""
        task = asyncio.ensure_future(self._wait(question))
        self.emit(question)  # after creating the task, so that a listener can answer at once
        approval = self._open[question.id] = _OpenApproval(task, again)
        try:
            await asyncio.wait((task,))
        finally:
            del self._open[question.id]
            task.cancel()
        return RELEASED if approval.released else task.result()

    def _grant(self, asking: "_Asking", question: ApprovalAsked, approve: Approve, call: ToolCall) -> Granted:
        tool, decision = asking.tool, asking.decision
        is_edited = approve.arguments is not None
        if tool.code and is_edited:  # no "always", because it would apply to the program before the edit
            approve = replace(approve, always=False)
        if approve.always and decision.always_problem:
            approve = replace(approve, always=False)
            self.emit(
                Notice("info", f"{question.call.name} is asked about every time: {_lower(decision.always_problem)}")
            )
        if question.once or approve.option:  # what the agent remembers for an option of its own is not remembered here
            approve = replace(approve, always=False)
        is_lasting = approve.always or (tool.hosted is not None and not decision.always_problem)
        self.approvals.approve(tool.lasting or tool.definition, decision.questions, always=is_lasting)
        if approve.always:
            self._release()
        arguments = copy_call(call).arguments if is_edited else None
        option = _option_id(question, approve)
        self.emit(ApprovalGiven(question.id, approved=True, always=approve.always, arguments=arguments, option=option))
        return Granted(call, f"approved{' always' * approve.always}{' edited' * is_edited}", is_edited, option)

    def _release(self) -> None:
        """Approve the calls of open questions that a new "always" covers.

        These approvals are reported before the "always" itself. Otherwise a front end would show the next question.
        """
        for question, approval in self._open.items():
            if not approval.task.done() and approval.decide().verdict == "allow":
                approval.released = True
                approval.task.cancel()
                self.emit(ApprovalGiven(question, approved=True, always=True))

    def _refuse(self, tool: Tool, question: ApprovalAsked, intent: Intent | None, decision: Decision) -> Refused:
        option = _option_id(question, intent)
        if isinstance(intent, Deny | Approve):
            said = intent.reason if isinstance(intent, Deny) else ""
            self.emit(ApprovalGiven(question.id, approved=False, reason=said, option=option))
            remark = f" and said: {said}" if said else ""
            why = f"The user denied it{remark}."
            if tool.hosted is not None:
                self.approvals.deny(tool.definition, why)
            message = f"{question.call.name} was not run: {_lower(why)}"
            return Refused(message, "denied", by_user=True, option=option)
        self.emit(ApprovalGiven(question.id, approved=False, reason=NO_ONE, option=option))
        if _tool_key(tool.definition) in self.approvals.in_doubt:
            return Refused(doubtful_denial(tool.definition), NO_ONE)
        return Refused(denial(tool.definition, code=tool.code, default=decision.default), NO_ONE)

    async def with_arguments(self, tool: Tool, call: ToolCall, arguments: Mapping[str, Any]) -> tuple[ToolCall, str]:
        """Return the call with a copy of the user's arguments, and why it cannot run with them, or "" if it can."""
        if tool.fixed:
            return call, f"{call.name} takes no other arguments. Approve it as it is, or deny it."
        try:
            call = copy_call(replace(call, arguments=arguments))
        except ToolError as error:
            return call, str(error)
        return call, check_arguments(tool.definition, call.arguments) or await self.forbids(tool, call)


class _HookFailed(Exception):
    """Raised when the policy's hook fails or returns an invalid answer, or when a rule takes too long."""


# -- messages ----------------------------------------------------------------------------------


def doubtful_denial(tool: ToolDef) -> str:
    """Return the message for a tool that was running when the kernel stopped, if no user can be asked about it."""
    return (
        f"{tool.name} was not run: {_lower(DOUBT)} No one is there to say whether it may run again. "
        "Look whether it did; session.in_doubt.clear() (agent.in_doubt.clear() in a notebook) lets it run."
    )


def denial(tool: ToolDef, *, code: bool = False, default: bool = True) -> str:
    """Return why a call was not run, if no user could be asked, and how the user can allow it.

    `code` is True if the tool runs code. `default` is True if the policy's default, not a rule or hook, asks.
    """
    head = f"{tool.name} was not run: it needs a person's approval, and no one is there to give it."
    if not default:
        return f"{head} A rule or hook of the user's policy asks for it."
    if code:
        where = "" if tool.server == NOTEBOOK else f', server="{tool.server}"'
        rule = f'Rule("allow", "{tool.name}"{where})'
        return f"{head} The user can allow it with a rule: permission=Policy([{rule}])."
    command = f"%mcp allow {tool.server} {tool.own_name or tool.name}"
    is_server = tool.server != NOTEBOOK and not is_outside(tool.server)
    rule = f'with {command} or an "allow" entry for that server, ' if is_server else ""
    return (
        f'{head} The user can allow it {rule}with permission="allow" (--permission allow in a cell), '
        f"or with {settings.PERMISSION}=allow."
    )


def missing_arguments(tool: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return, by name, the schemas of arguments that a call leaves out and the user can add, or None without any."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    absent = [name for name in properties if name not in arguments][:MOST_OPTIONAL]
    keys = ("type", "default", "description")
    schemas = {
        name: {key: value for key in keys if (value := _short_value(properties[name], key)) is not None}
        for name in absent
    }
    return schemas or None


def _short_value(schema: object, key: str) -> Any:
    """Return the value of a key in a JSON Schema; None if the value is missing or too long."""
    value = cast("Mapping[str, Any]", schema).get(key) if isinstance(schema, Mapping) else None
    return value if len(json_line(value)) <= LONGEST_LINE else None


def _effects(tool: Tool, call: ToolCall) -> Effects:
    """Return what the call would do, without lines if the tool has none, or with one line if making them fails."""
    if tool.effects is None:
        return Effects()
    try:
        effects = tool.effects(copy_call(call).arguments)
        return replace(effects, lines=tuple(map(redact, effects.lines)))
    except Exception:  # noqa: BLE001  (the user is asked all the same)
        return Effects(("What it does cannot be known.",))


def _scope(tool: Tool, call: ToolCall, proposer: str) -> str | None:
    """Return what the answer "always" is bound to, besides the tool and the question; None if it cannot be given."""
    if tool.scope is not None:
        scope = tool.scope(call.arguments)
    else:
        scope = json.dumps(dict(call.arguments), sort_keys=True, default=str) if tool.code else ""
    return None if scope is None else " ".join(filter(None, (proposer, scope)))


def _same(decision: Decision) -> Decision:
    return decision


def _option_id(question: ApprovalAsked, intent: Intent | None) -> str:
    """Return the id of the outside agent's option that an answer chooses, "" without one."""
    option = question.option_for(intent)
    return "" if option is None else option.id


def _option_problem(question: ApprovalAsked, option: AgentOption | None) -> str:
    """Return why an approval cannot be passed on to an outside agent: it offers no such option. Return "" if it can."""
    if option is not None:
        return ""
    names = ", ".join(single_line(sanitize(one.name), LONGEST_LINE) for one in question.options) or "none"
    return f"Choose one of the options that {question.server} offers: {names}."


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _tool_key(tool: ToolDef) -> ToolKey:
    return tool.server, tool.name


def _definition_text(tool: ToolDef) -> str:
    """Return the parts of a tool's definition that a model reads, as one text that shows any change."""
    parameters = json.dumps(dict(tool.parameters), indent=1, sort_keys=True, ensure_ascii=False, default=str)
    return f"{tool.server}: {tool.own_name or tool.name}\n{tool.description}\n{parameters}"


def _difference(before: str, now: str) -> str:
    """Return the unified diff of two texts without header and positions. A long diff is cut (LONGEST_DIFF)."""
    diff = [*unified_diff(_sentences(before), _sentences(now), lineterm="", n=1)][2:]
    lines = [line for line in diff if line[:2] != "@@"]
    more = [f"({len(lines) - LONGEST_DIFF} more lines)"] if len(lines) > LONGEST_DIFF else []
    return "\n".join([*lines[:LONGEST_DIFF], *more])


def _sentences(text: str) -> list[str]:
    """Split a text into lines, sentences and pieces of sentences, so that a diff shows an addition to a long line."""
    sentences = [one for line in text.splitlines() for one in _SENTENCE_END.split(line)]
    return [piece for one in sentences for piece in _PIECE.findall(one) or [one]]
