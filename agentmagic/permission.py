"""Which calls run, which ask a person first, which never run.

A `Policy` is what the user wrote down: rules, a default, a hook. `Approvals` is what a person has said in a
session. A `Gate` puts the two together and decides each call; asking is not its business.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from fnmatch import fnmatchcase
from typing import Any, cast

from agentmagic import settings
from agentmagic.errors import UsageError
from agentmagic.messages import ToolCall, ToolDef
from agentmagic.settings import PERMISSIONS, Permission

LONGEST_DIFF = 40
"""Lines that are shown of what changed in a definition."""

LONGEST_LINE = 300
"""Characters of one of them."""

Test = Mapping[str, str] | Callable[[Mapping[str, Any]], bool]
"""What a rule looks for in the arguments: patterns by name, all of which must fit, or a function of them."""

Hook = Callable[[ToolCall, ToolDef], Permission | Awaitable[Permission | None] | None]
"""Decides in code; None says nothing, and leaves the call to the rules."""

ToolKey = tuple[str, str]
"""Server and name of a tool."""

_SENTENCE_END = re.compile(r"(?<=[.!?;]) +")
_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of the calls that it fits.

    `tool` and `server` are names or `fnmatch` patterns; a function's server is "notebook", and a server's tool
    is known by the name the model sees and by its own. `when` narrows the rule to arguments: {"path": "/etc/*"}
    fits calls whose argument `path` fits the pattern, any item of a list where the rule denies or asks, every
    item where it allows. A test in code that fails counts against the call. `reason` is told to the person who
    is asked, and to the model where the rule denies.

    Raises UsageError for a verdict or a test that cannot be.
    """

    verdict: Permission
    tool: str = "*"
    server: str = "*"
    when: Test | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        _check_word("verdict", self.verdict)
        when = cast("object", self.when)
        if not (when is None or callable(when) or isinstance(when, Mapping)):
            message = f'when is {when!r:.80}. Give patterns by argument, {{"path": "/etc/*"}}, or a function of them.'
            raise UsageError(message)

    def fits(self, tool: ToolDef, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule speaks about a call."""
        names = {tool.name, tool.own_name or tool.name}
        if not fnmatchcase(tool.server, self.server) or not any(fnmatchcase(name, self.tool) for name in names):
            return False
        if self.when is None:
            return True
        if callable(self.when):
            try:
                return bool(self.when(arguments))
            except Exception:  # noqa: BLE001  (whatever a test raises, it must not let a call through)
                return self.verdict != "allow"
        return all(self._holds(pattern, arguments.get(name)) for name, pattern in self.when.items())

    def _holds(self, pattern: str, value: Any) -> bool:
        """Whether an argument fits a pattern; one that is not given, and an empty list, fits none."""
        values = cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
        fitting = [fnmatchcase(_text(one), pattern) for one in values]
        return bool(fitting) and (all(fitting) if self.verdict == "allow" else any(fitting))


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user wrote down: rules, what becomes of calls that none of them speaks about, and a hook.

    Of all rules that fit a call, and the hook's answer, the strictest holds: deny over ask over allow. Where
    none speaks, a tool that does not ask runs, and `default` decides for one that does; a default of "deny"
    lets nothing run that no rule allows.

    Raises UsageError for a value that cannot be.
    """

    rules: Sequence[Rule] = ()
    default: Permission = "ask"
    hook: Hook | None = None

    def __post_init__(self) -> None:
        _check_word("default", self.default)
        given = cast("object", self.rules)
        rules = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
        if not all(isinstance(rule, Rule) for rule in rules):
            message = f'rules is {given!r:.80}. Give a list of rules: [Rule("deny", "delete_*")].'
            raise UsageError(message)
        object.__setattr__(self, "rules", rules)

    def strictest(
        self, tool: ToolDef, arguments: Mapping[str, Any], said: Permission | None = None
    ) -> tuple[Permission | None, Rule | None]:
        """Return the verdict of the rules and of what the hook `said`, and the rule it is of, if it is one's."""
        fitting = [rule for rule in self.rules if rule.fits(tool, arguments)]
        rule = max(fitting, key=lambda one: _STRICTNESS[one.verdict], default=None)
        if said is not None and (rule is None or _STRICTNESS[said] > _STRICTNESS[rule.verdict]):
            return said, None
        return (rule.verdict, rule) if rule is not None else (None, None)


Permit = Permission | Policy | Hook
"""What a recipe may be given as its permission."""


def policy_of(permission: Permit) -> Policy:
    """Return the policy that a word, a hook or a policy means. Raises UsageError for anything else."""
    if isinstance(permission, Policy):
        return permission
    if callable(permission):
        return Policy(hook=permission)
    _check_word("permission", permission)
    return Policy(default=permission)


@dataclass(slots=True)
class Approvals:
    """What a person has said in a session.

    An "always" holds for one tool and for what it was asked about: the default, one rule, or the hook. It is
    bound to the tool's definition, the whole of it as the person approved it. `in_doubt` are tools that were
    under way when the kernel stopped, and may have done their work.
    """

    in_doubt: set[ToolKey] = field(default_factory=set[ToolKey])
    _always: set[tuple[ToolKey, str]] = field(default_factory=set[tuple[ToolKey, str]])
    _approved: dict[ToolKey, str] = field(default_factory=dict[ToolKey, str])

    def holds(self, tool: ToolDef, question: str) -> bool:
        """Whether a person said "always" to this question about the tool as it is now."""
        return (_key(tool), question) in self._always and not self.change(tool)

    def change(self, tool: ToolDef) -> str:
        """Return what has changed in a definition since a person approved a call of it, "" if nothing has."""
        before, now = self._approved.get(_key(tool)), _written(tool)
        return "" if before is None or before == now else _difference(before, now)

    def approve(self, tool: ToolDef, question: str, *, always: bool) -> None:
        """Take a person's yes: to this call, or to every later one too that the same question would be put about."""
        key = _key(tool)
        if self.change(tool):
            self._always = {one for one in self._always if one[0] != key}
        self._approved[key] = _written(tool)
        self.in_doubt.discard(key)
        if always:
            self._always.add((key, question))


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a call.

    `why` says, in sentences, why a person is asked, or why the call is denied. `question` is what an "always"
    is bound to. `default` says that no rule and no hook spoke.
    """

    verdict: Permission
    why: str = ""
    question: str = ""
    default: bool = True


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides each call of a turn by a policy and by what a person has said.

    Over the policy stands `AGENTMAGIC_PERMISSION`: deny lets nothing run, allow stands in for the default ask.
    A tool in doubt is asked about whatever else holds, unless it is denied. Code runs by a rule, a hook or a
    person's yes only, never by a default.
    """

    policy: Policy = field(default_factory=Policy)
    approvals: Approvals = field(default_factory=Approvals)

    def decide(
        self,
        tool: ToolDef,
        arguments: Mapping[str, Any],
        *,
        asks: bool,
        code: bool = False,
        said: Permission | None = None,
    ) -> Decision:
        """Return what becomes of a call of a tool that itself asks or not, and runs code or not.

        `said` is what the policy's hook answered. Raises UsageError where `AGENTMAGIC_PERMISSION` says nothing
        known.
        """
        override = settings.permission_override()
        if override == "deny":
            return Decision("deny", EVERYTHING)
        verdict, rule = self.policy.strictest(tool, arguments, said)
        if verdict is None:
            decision = self._by_default(asks=asks or code, word=_default(override, self.policy.default, code=code))
        else:
            why = _by_rule(rule, verdict) if rule else f"The user's permission hook says {verdict}."
            decision = Decision(verdict, why, repr(rule) if rule else "hook", default=False)
        return decision if decision.verdict == "deny" else self._heard(tool, decision)

    def _by_default(self, *, asks: bool, word: Permission) -> Decision:
        if word == "deny":
            return Decision("deny", EVERYTHING if not self.policy.rules else UNSPOKEN)
        return Decision(word if asks else "allow")

    def _heard(self, tool: ToolDef, decision: Decision) -> Decision:
        """Take in what a person has said about the tool before."""
        doubt = DOUBT if _key(tool) in self.approvals.in_doubt else ""
        if not doubt and (decision.verdict == "allow" or self.approvals.holds(tool, decision.question)):
            return Decision("allow", question=decision.question, default=decision.default)
        change = self.approvals.change(tool)
        changed = f"{CHANGED}\n{change}" if change else ""
        spoken = decision.why if decision.verdict == "ask" else ""
        why = " ".join(filter(None, (doubt, spoken, changed)))
        return Decision("ask", why, decision.question, default=decision.default)


EVERYTHING = "The user's permission setting denies every tool call."
UNSPOKEN = "The user's permission setting denies every call that no rule allows."
CHANGED = "Its definition has changed since you approved it:"
DOUBT = "It was under way when the kernel stopped, and may have done its work already."
"""Why a tool in doubt is asked about."""


def doubtful_denial(tool: ToolDef) -> str:
    """Say why a tool in doubt was not run where nobody can be asked."""
    return (
        f"{tool.name} was not run: {_lower(DOUBT)} Nobody is there to say whether it may run again. "
        "Look whether it did; session.in_doubt.clear() (agent.in_doubt.clear() in a notebook) lets it run."
    )


def denial(tool: ToolDef, *, code: bool = False, default: bool = True) -> str:
    """Say to model and person why a call that would ask was not asked about, and what would allow it.

    `code` says that the tool runs code, `default` that no rule asked.
    """
    head = f"{tool.name} was not run: it needs a person's approval, and nobody is there to give it."
    if not default:
        return f"{head} A rule or hook of the user's policy asks for it."
    if code:
        return f'{head} The user can allow it with a rule: permission=Policy([Rule("allow", "{tool.name}")]).'
    rule = "" if tool.server == "notebook" else f'with %mcp allow {tool.server} or an "allow" entry for that server, '
    return (
        f'{head} The user can allow it {rule}with permission="allow" (--permission allow in a cell), '
        f"or with {settings.PERMISSION}=allow."
    )


def refusal(tool: ToolDef, decision: Decision) -> str:
    """Say to model and person why a call was denied by what the user wrote down."""
    return f"{tool.name} was not run: {_lower(decision.why)}"


def checked(answer: object) -> Permission | None:
    """Return a hook's answer. Raises UsageError where it is none."""
    if answer is None or answer in PERMISSIONS:
        return answer
    raise UsageError(f"The permission hook returned {answer!r:.80}. Return one of {', '.join(PERMISSIONS)}, or None.")


def _check_word(name: str, word: object) -> None:
    if word not in PERMISSIONS:
        message = f"{name} is {word!r:.80}. Choose one of {', '.join(PERMISSIONS)}."
        raise UsageError(message)


def _default(override: Permission | None, default: Permission, *, code: bool) -> Permission:
    """Return what holds where no rule speaks: the variable stands in for all but deny; code is never just allowed."""
    word = default if default == "deny" else override or default
    return "ask" if code and word == "allow" else word


def _by_rule(rule: Rule, verdict: Permission) -> str:
    if rule.reason:
        return rule.reason if rule.reason.endswith((".", "!", "?")) else f"{rule.reason}."
    return "A rule of the user denies it." if verdict == "deny" else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _written(tool: ToolDef) -> str:
    """Write a definition out, all of it that a model reads, so that any change shows."""
    parameters = json.dumps(dict(tool.parameters), indent=1, sort_keys=True, ensure_ascii=False, default=str)
    return f"{tool.server}: {tool.name}\n{tool.description}\n{parameters}"


def _difference(before: str, now: str) -> str:
    """Return a short unified diff, without its head and its places."""
    diff = [*unified_diff(_sentences(before), _sentences(now), lineterm="", n=1)][2:]
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in diff if line[:2] != "@@"]
    more = [f"({len(lines) - LONGEST_DIFF} more lines)"] if len(lines) > LONGEST_DIFF else []
    return "\n".join([*lines[:LONGEST_DIFF], *more])


def _sentences(text: str) -> list[str]:
    """Part a text in lines and sentences, so that what was added to a long line is not lost behind its beginning."""
    return [piece for line in text.splitlines() for piece in _SENTENCE_END.split(line)]


def _key(tool: ToolDef) -> ToolKey:
    return tool.server, tool.name
