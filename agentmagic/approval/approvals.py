"""Which tool calls may run: decided by the policy, asked of the user, remembered for the session."""

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
from agentmagic.approval.policy import Policy, Voice, checked, strictest
from agentmagic.classroom import class_settings
from agentmagic.errors import ToolError
from agentmagic.events import ApprovalAsked, ApprovalGiven, Approve, Deny, Event, Intent, Notice, QuestionAsked
from agentmagic.messages import NOTEBOOK, ResultStatus, Text, ToolCall, ToolDef, ToolKey, ToolResult
from agentmagic.providers.outside import is_outside
from agentmagic.runtime.engine import engine, void
from agentmagic.runtime.timeouts import Deadline, being_cancelled
from agentmagic.secrets import redact
from agentmagic.serialization import own, same_json
from agentmagic.settings import Permission
from agentmagic.text import written_json
from agentmagic.tools.base import Tool, failure
from agentmagic.tools.calling import check_arguments
from agentmagic.undo.program import READS

TEST_SECONDS = 5.0
"""How long the functions of a policy's rules may take for one call."""
EDITS = 3
"""How often the user is asked again after giving arguments that do not fit."""
LONGEST_DIFF = 40
"""Lines that are shown of what changed in a definition."""
LONGEST_LINE = 300
"""Characters of one such line. A longer sentence is shown in pieces, so that no change hides behind its beginning."""

MOST_OPTIONAL = 20
"""Arguments that the model left out of which the user is told."""

DEFAULT = ""
"""The question about a call that no rule and no hook speaks about."""
OVERRIDDEN = f"The variable {settings.PERMISSION} denies every tool call. %env {settings.PERMISSION}=ask ends that."
EVERYTHING = "The user's permission setting denies every tool call."
UNSPOKEN = "The user's permission setting denies every call that no rule allows."
ALLOWING = 'The user can be asked instead with permission="ask" (--permission ask in a cell).'
CHANGED = "Its definition has changed since you approved it:"
UNASKED = "{0} of {1} runs without asking, and its definition has changed since its last call:\n{2}"
NO_ONE = "no one to ask"
"""Why a call is denied that no user could be asked about, as a word for the audit."""
DOUBT = "It was under way when the kernel stopped, and may have done its work already."
"""Why a tool in doubt is asked about."""

_SENTENCE_END = re.compile(r"(?<=[.!?;]) +")
_PIECE = re.compile(rf".{{1,{LONGEST_LINE}}}", re.DOTALL)

RELEASED = Approve("")
"""The answer in place of the user's, if an "always" for another call covers this one."""

Ask = Callable[[ApprovalAsked | QuestionAsked], Awaitable[Intent | None]]
"""Puts a question to the user, and returns None if no user is there."""


async def ask_no_one(_question: ApprovalAsked | QuestionAsked) -> None:
    """Return None, the answer of a run that no user watches."""


@dataclass(slots=True)
class Approvals:
    """What the user has approved in a session.

    An "always" holds for one tool and for the question that was asked: about the default, one rule, or the hook.
    It is bound to the whole definition of the tool as the user approved it, and so is a no to a tool that the provider
    carries out, which holds until the user's rules or settings allow the tool. `in_doubt` are tools that were
    running when the kernel stopped, and may have done their work.
    """

    in_doubt: set[ToolKey] = field(default_factory=set[ToolKey])
    _always: set[tuple[ToolKey, str]] = field(default_factory=set[tuple[ToolKey, str]])
    _approved: dict[ToolKey, str] = field(default_factory=dict[ToolKey, str])
    _allowed: dict[ToolKey, str] = field(default_factory=dict[ToolKey, str])
    _denied: dict[ToolKey, tuple[str, str]] = field(default_factory=dict[ToolKey, tuple[str, str]])

    def holds(self, tool: ToolDef, question: str) -> bool:
        """Return whether the user said "always" to this question about the tool as it is now."""
        key = _key(tool)
        return (key, question) in self._always and self._approved[key] == _written(tool)

    def change(self, tool: ToolDef) -> str:
        """Return what has changed in a definition since the user approved a call of it, "" if nothing has."""
        before, now = self._approved.get(_key(tool)), _written(tool)
        return "" if before is None or before == now else _difference(before, now)

    def allow(self, tool: ToolDef) -> str:
        """Remember the definition of a server's tool that runs without asking. Return what has changed in it, or ""."""
        if tool.server == NOTEBOOK:  # a function that the user has defined anew is no surprise
            return ""
        now = _written(tool)
        before = self._allowed.get(_key(tool), now)
        self._allowed[_key(tool)] = now
        return "" if before == now else _difference(before, now)

    def deny(self, tool: ToolDef, why: str) -> None:
        """Remember that the user said no to a tool as it is defined now; `why` is a sentence."""
        self._denied[_key(tool)] = _written(tool), why

    def denial(self, tool: ToolDef) -> str:
        """Return the sentence about the no of the user to a tool as it is now, "" if there was none."""
        definition, why = self._denied.get(_key(tool), ("", ""))
        return why if definition == _written(tool) else ""

    def approve(self, tool: ToolDef, questions: Sequence[str], *, always: bool) -> None:
        """Remember that the user approved a call, or with `always` every later call with the same questions."""
        key, now = _key(tool), _written(tool)
        if self._approved.get(key) != now:  # an "always" for another definition does not hold for this one
            self._always = {one for one in self._always if one[0] != key}
        self._approved[key] = now
        self.in_doubt.discard(key)
        if always:
            self._always.update((key, question) for question in questions)


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict of the policy and of earlier answers on a call.

    `why` says, in sentences, why the user is asked, or why the call is denied. An "always" is bound to
    `questions`, one of each rule that asks. `default` says that no rule and no hook spoke. `each` is why an
    "always" does not hold, "" if it does.
    """

    verdict: Permission
    why: str = ""
    questions: tuple[str, ...] = ()
    default: bool = True
    each: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """A call may run. `call` is what runs, `how` a word for the audit, `edited` that the user changed it."""

    call: ToolCall
    how: str
    edited: bool = False

    def told(self, result: ToolResult) -> ToolResult:
        """Return the result of the call, with a line for the model if other arguments ran than it wrote."""
        if not self.edited:
            return result
        arguments = written_json(self.call.arguments)
        words = f"The user changed the arguments of this call to {arguments} and it ran with those."
        return replace(result, content=(Text(words, audience="assistant"), *result.content))


@dataclass(frozen=True, slots=True)
class Refused:
    """A call may not run. `words` tell model and user why, `how` is a word for the audit.

    If the call was refused `by_user`, the words are for the model alone.
    """

    words: str
    how: str
    status: ResultStatus = "denied"
    by_user: bool = False

    def result(self, call: ToolCall) -> ToolResult:
        """Return the result of the call in place of the tool's own."""
        refused = failure(call, self.words, self.status)
        if not self.by_user:
            return refused
        return replace(refused, content=(Text(refused.text, audience="assistant"),))


@dataclass(slots=True)
class _OpenApproval:
    """A question that the user has not answered yet; `again` decides its call anew."""

    task: "asyncio.Future[Intent | None]"
    again: Callable[[], Decision]
    released: bool = False


@dataclass(slots=True)
class Gate:
    """Decides each call of a turn: by the policy, by what the user approved before, and by asking.

    `AGENTMAGIC_PERMISSION` stands over the policy: deny lets nothing run, allow replaces the default ask. A tool
    in doubt is asked about, even if a rule allows it, unless it is denied. Code runs by the user's yes or by a rule
    that has the tool's very name only, and an "always" holds for the same code. Calls of one step are asked about at
    the same time, and an "always" for one of them lets the others run that it covers. `deadline` is paused while the
    user is asked. `by_hand` says that the user makes the calls, so that asking is needless. `around` is the gate of the
    turn in which an agent tool has begun this one: what its policy denies, and what a rule or the hook of it asks
    about, is denied or asked here too.
    """

    policy: Policy = field(default_factory=Policy)
    approvals: Approvals = field(default_factory=Approvals)
    deadline: Deadline = field(default_factory=partial(Deadline, None))
    emit: Callable[[Event], None] = void
    ask: Ask = ask_no_one
    by_hand: bool = False
    around: "Gate | None" = None
    _open: dict[str, _OpenApproval] = field(default_factory=dict[str, _OpenApproval])

    async def admit(self, tool: Tool, call: ToolCall) -> Granted | Refused:
        """Decide one call, and ask the user if need be; the arguments of a call that is asked about are checked.

        Raises UsageError for a bad `AGENTMAGIC_PERMISSION`.
        """
        try:
            decide = await self._decider(tool, call)
        except _HookFailed as failed:
            return Refused(f"{call.name} was not run: {failed}", "hook failed")
        decision = decide()
        if decision.verdict == "deny":
            return Refused(f"{call.name} was not run: {_lower(decision.why)}", "policy")
        if decision.verdict == "allow":
            if change := self.approvals.allow(tool.definition):
                self.emit(Notice("warning", UNASKED.format(call.name, tool.definition.server, change)))
            return Granted(call, "allowed")
        if problem := check_arguments(tool.definition, call.arguments):
            return Refused(problem, "not asked", "error")  # else the user would approve what cannot run
        return Granted(call, "by hand") if self.by_hand else await self._asked(tool, call, decide, decision)

    async def put(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        """Put a question to the user and wait for the answer."""
        self.emit(question)
        return await self._wait(question)

    async def _wait(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        with self.deadline.paused():
            return await self.ask(question)

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
    ) -> Decision:
        """Return what becomes of a call, without asking. `voices` are what the policy says, if that is known.

        `asks` and `code` are those of the `Tool`, `web` says that it is hosted. Raises UsageError for a bad
        `AGENTMAGIC_PERMISSION`.
        """
        override = settings.permission_override()
        if override == "deny":
            return Decision("deny", OVERRIDDEN)
        bounds = class_settings()
        bound = bounds.bound(asks=asks or tool.server != NOTEBOOK, code=code, web=web)
        why = "" if bound is None else bounds.why_bound(bound, code=code, web=web)
        if bound == "deny":
            return Decision("deny", why, default=False)
        if voices is None:
            voices = self.policy.strictest(tool, arguments, code=code)
        default = not voices
        voices = voices or self._usual(asks=asks, code=code)
        if voices[0].verdict == "deny":
            return Decision("deny", voices[0].why, default=default)
        if bound == "ask":
            voices = tuple(one if one.verdict == "ask" else replace(one, verdict="ask", why=why) for one in voices)
        each = "" if web else why  # a yes to the web holds for the session in a class, too
        if code:
            program = json.dumps(dict(arguments), sort_keys=True, default=str)
            voices = tuple(replace(one, question=f"{one.question} {program}") for one in voices)
        return replace(self._remembered(tool, voices, code=code, each=each), default=default)

    def _remembered(self, tool: ToolDef, voices: Sequence[Voice], *, code: bool, each: str) -> Decision:
        """Return what is left to ask of these voices, none of which denies, after what the user has approved."""
        asking = [
            one for one in voices if one.verdict == "ask" and (each or not self.approvals.holds(tool, one.question))
        ]
        doubt = DOUBT if _key(tool) in self.approvals.in_doubt else ""
        questions = tuple(one.question for one in asking or voices)
        if not (asking or doubt):
            return Decision("allow", questions=questions)
        if no := self.approvals.denial(tool):
            return Decision("deny", no)
        change = "" if code else self.approvals.change(tool)  # it lists the other tools, which come and go
        changed = f"{CHANGED}\n{change}" if change else ""
        why = " ".join(filter(None, (doubt, *dict.fromkeys(one.why for one in asking), changed)))
        return Decision("ask", why, questions, each=each)

    async def _decider(self, tool: Tool, call: ToolCall) -> Callable[[], Decision]:
        """Return a function that decides a call, now and again after more was approved; the policy is asked once."""
        said = await self._hook(tool, call)
        voices = await self._voices(tool, call.arguments, said) or self._level_voice(tool, call)
        if self.around is not None and (limits := await self.around.limits(tool, call)):
            voices = strictest((*(voices or self._usual(asks=tool.ask, code=tool.code)), *limits))
        bound = tool.lasting or tool.definition
        return partial(
            self.decide,
            bound,
            call.arguments,
            asks=tool.ask,
            code=tool.code,
            web=tool.hosted is not None,
            voices=voices,
        )

    async def limits(self, tool: Tool, call: ToolCall) -> tuple[Voice, ...]:
        """Return what stands in the way of a call that is made in the turn of an agent tool: denials and questions.

        The default to ask is not among them: whether to ask is the inner agent's own default.
        """
        voices = await self._voices(tool, call.arguments, await self._hook(tool, call))
        if not voices and self.policy.default == "deny":
            voices = self._usual(asks=tool.ask, code=tool.code)
        own = tuple(one for one in voices if one.verdict != "allow")
        return own if self.around is None else (*own, *await self.around.limits(tool, call))

    def _usual(self, *, asks: bool, code: bool) -> tuple[Voice, ...]:
        """Return what the default says of a call about which no rule and no hook speaks."""
        # The variable replaces every default but deny, and no default lets code run.
        default = self.policy.default
        word = default if default == "deny" else settings.permission_override() or default
        if word == "deny":
            return (Voice("deny", DEFAULT, f"{UNSPOKEN if self.policy.rules else EVERYTHING} {ALLOWING}"),)
        return (Voice("ask" if code or (asks and word == "ask") else "allow", DEFAULT),)

    async def _voices(self, tool: Tool, arguments: Mapping[str, Any], said: Permission | None) -> tuple[Voice, ...]:
        """Return what the policy says of a call. Raises _HookFailed if the tests of its rules take too long."""
        listen = partial(self.policy.strictest, tool.definition, arguments, said, code=tool.code)
        if not any(callable(rule.when) for rule in self.policy.rules):
            return listen()
        try:
            async with asyncio.timeout(TEST_SECONDS):
                return await engine().in_pool(listen)  # the user's functions may block
        except TimeoutError:
            raise _HookFailed(f"the test of a rule took longer than {TEST_SECONDS:g} s.") from None

    def _level_voice(self, tool: Tool, call: ToolCall) -> tuple[Voice, ...]:
        """Return the voice of the policy's level on a call about which no rule and no hook speaks, () for none."""
        if self.policy.level == "ask" or settings.permission_override() is not None:
            return ()
        reads = tool.reads or (tool.code and READS in _effects(tool, call))
        return (Voice("allow", "level"),) if self.policy.runs_unasked(reads=reads, trusted=tool.trusted) else ()

    async def _hook(self, tool: Tool, call: ToolCall) -> Permission | None:
        """Return what the policy's hook says. Raises _HookFailed for any failure, so that nothing runs by it."""
        hook = self.policy.hook
        if hook is None:
            return None
        try:
            given = own(call), deepcopy(tool.definition)  # so that the hook cannot change what runs
            return checked(await engine().call_user(hook, *given))
        except BaseException as error:
            if being_cancelled():
                raise
            words = redact(f"the permission hook failed: {type(error).__name__}: {error}")
            raise _HookFailed(words) from error

    # -- asking --------------------------------------------------------------------------------

    async def _asked(
        self, tool: Tool, call: ToolCall, again: Callable[[], Decision], decision: Decision
    ) -> Granted | Refused:
        """Ask the user, and ask again if the user gives arguments that do not fit."""
        why = decision.why
        for _ in range(EDITS):
            shown = own(call)  # a copy: who is asked, and who listens, cannot change what runs
            asked = ApprovalAsked(
                uuid.uuid4().hex,
                shown,
                tool.definition.server,
                why,
                effects=_effects(tool, call),
                optional=left_out(tool.definition, call.arguments),
                fixed=tool.fixed,
                hosted=tool.hosted is not None,
            )
            intent = await self._answer(asked, again)
            if intent is RELEASED:
                return Granted(call, "approved always")
            if not isinstance(intent, Approve):
                return self._refused(tool, asked, intent, decision)
            if intent.arguments is not None and same_json(intent.arguments, call.arguments):
                intent = replace(intent, arguments=None)  # an edit that changes nothing
            granted, problem = (
                (call, "") if intent.arguments is None else await self.edited(tool, call, intent.arguments)
            )
            if not problem:
                return self._granted(tool, asked, intent, granted, decision)
            self.emit(ApprovalGiven(asked.id, approved=False, reason=problem))
            why = f"The arguments you gave cannot be used: {problem}"
        return Refused(f"{call.name} was not run: the arguments that the user gave could not be used.", "edit failed")

    async def _answer(self, asked: ApprovalAsked, again: Callable[[], Decision]) -> Intent | None:
        """Wait for the user's answer, or until an "always" for another call covers this one."""
        task = asyncio.ensure_future(self._wait(asked))
        self.emit(asked)  # after the task is made: a listener that answers at once finds the question open
        opened = self._open[asked.id] = _OpenApproval(task, again)
        try:
            await asyncio.wait((task,))
        finally:
            del self._open[asked.id]
            task.cancel()
        return RELEASED if opened.released else task.result()

    def _granted(
        self, tool: Tool, asked: ApprovalAsked, approve: Approve, call: ToolCall, decision: Decision
    ) -> Granted:
        edited = approve.arguments is not None
        if tool.code and edited:  # the "always" would hold for the program that was changed
            approve = replace(approve, always=False)
        if approve.always and decision.each:
            approve = replace(approve, always=False)
            self.emit(Notice("info", f"{asked.call.name} is asked about every time: {_lower(decision.each)}"))
        lasts = approve.always or (tool.hosted is not None and not decision.each)
        self.approvals.approve(tool.lasting or tool.definition, decision.questions, always=lasts)
        if approve.always:
            self._release()
        arguments = own(call).arguments if edited else None
        self.emit(ApprovalGiven(asked.id, approved=True, always=approve.always, arguments=arguments))
        return Granted(call, f"approved{' always' * approve.always}{' edited' * edited}", edited)

    def _release(self) -> None:
        """Answer the open questions that an "always" has made needless.

        Their events come before that of the "always" itself, so that no screen shows the next question meanwhile.
        """
        for question, opened in self._open.items():
            if not opened.task.done() and opened.again().verdict == "allow":
                opened.released = True
                opened.task.cancel()
                self.emit(ApprovalGiven(question, approved=True, always=True))

    def _refused(self, tool: Tool, asked: ApprovalAsked, intent: Intent | None, decision: Decision) -> Refused:
        if isinstance(intent, Deny):
            self.emit(ApprovalGiven(asked.id, approved=False, reason=intent.reason))
            said = f" and said: {intent.reason}" if intent.reason else ""
            why = f"The user denied it{said}."
            if tool.hosted is not None:
                self.approvals.deny(tool.definition, why)
            return Refused(f"{asked.call.name} was not run: {_lower(why)}", "denied", by_user=True)
        self.emit(ApprovalGiven(asked.id, approved=False, reason=NO_ONE))
        if _key(tool.definition) in self.approvals.in_doubt:
            return Refused(doubtful_denial(tool.definition), NO_ONE)
        return Refused(denial(tool.definition, code=tool.code, default=decision.default), NO_ONE)

    async def edited(self, tool: Tool, call: ToolCall, arguments: Mapping[str, Any]) -> tuple[ToolCall, str]:
        """Return a call with a copy of the arguments that the user gave it, and why it cannot run, "" if it can."""
        if tool.fixed:
            return call, f"{call.name} takes no other arguments. Approve it as it is, or deny it."
        try:
            call = own(replace(call, arguments=arguments))
        except ToolError as error:
            return call, str(error)
        return call, await self._unfit(tool, call)

    async def _unfit(self, tool: Tool, call: ToolCall) -> str:
        if problem := check_arguments(tool.definition, call.arguments):
            return problem
        try:
            decision = (await self._decider(tool, call))()
        except _HookFailed as failed:
            return str(failed)
        return decision.why if decision.verdict == "deny" else ""


class _HookFailed(Exception):
    """The policy's hook raised an error or returned something that is no verdict, or a rule took too long."""


# -- messages ----------------------------------------------------------------------------------


def doubtful_denial(tool: ToolDef) -> str:
    """Return why a tool in doubt was not run when no user could be asked."""
    return (
        f"{tool.name} was not run: {_lower(DOUBT)} No one is there to say whether it may run again. "
        "Look whether it did; session.in_doubt.clear() (agent.in_doubt.clear() in a notebook) lets it run."
    )


def denial(tool: ToolDef, *, code: bool = False, default: bool = True) -> str:
    """Return why a call that asks was not run when no user could be asked, and what would allow it.

    `code` says that the tool runs code, `default` that no rule asked.
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


def left_out(tool: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schemas of the arguments that a call leaves out, by name, or None; the user can add some."""
    known: Mapping[str, Any] = tool.parameters.get("properties", {})
    absent = [name for name in known if name not in arguments][:MOST_OPTIONAL]
    kept = ("type", "default", "description")
    found = {name: {key: value for key in kept if (value := _brief(known[name], key)) is not None} for name in absent}
    return found or None


def _brief(schema: object, key: str) -> Any:
    """Return a short value of a schema, None for one that is absent or long."""
    value = cast("Mapping[str, Any]", schema).get(key) if isinstance(schema, Mapping) else None
    return value if len(written_json(value)) <= LONGEST_LINE else None


def _effects(tool: Tool, call: ToolCall) -> tuple[str, ...]:
    """Return what the tool says the call would do; nothing if it says nothing, or fails."""
    if tool.effects is None:
        return ()
    try:
        return tuple(redact(line) for line in tool.effects(own(call).arguments))
    except Exception:  # noqa: BLE001  (the user is asked all the same)
        return ("What it does cannot be known.",)


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _key(tool: ToolDef) -> ToolKey:
    return tool.server, tool.name


def _written(tool: ToolDef) -> str:
    """Return everything of a definition that a model reads, as text, so that any change shows."""
    parameters = json.dumps(dict(tool.parameters), indent=1, sort_keys=True, ensure_ascii=False, default=str)
    return f"{tool.server}: {tool.own_name or tool.name}\n{tool.description}\n{parameters}"


def _difference(before: str, now: str) -> str:
    """Return a short unified diff, without its header and positions."""
    diff = [*unified_diff(_sentences(before), _sentences(now), lineterm="", n=1)][2:]
    lines = [line for line in diff if line[:2] != "@@"]
    more = [f"({len(lines) - LONGEST_DIFF} more lines)"] if len(lines) > LONGEST_DIFF else []
    return "\n".join([*lines[:LONGEST_DIFF], *more])


def _sentences(text: str) -> list[str]:
    """Split a text into lines, sentences and pieces of these, so that an addition to a long line can be seen."""
    sentences = [one for line in text.splitlines() for one in _SENTENCE_END.split(line)]
    return [piece for one in sentences for piece in _PIECE.findall(one) or [one]]
