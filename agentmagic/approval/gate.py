"""What becomes of each call: what the user wrote down, and what a person has said in the session.

A `Gate` puts a `Policy` and the session's `Approvals` together; asking is not its business.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from agentmagic import settings
from agentmagic.approval.policy import Policy, Voice
from agentmagic.messages import NOTEBOOK, ToolDef, ToolKey
from agentmagic.settings import Permission

LONGEST_DIFF = 40
"""Lines that are shown of what changed in a definition."""

LONGEST_LINE = 300
"""Characters of one of them; a longer sentence is shown in pieces, so that no change hides behind its beginning."""

DEFAULT = ""
"""The question of a call that nothing speaks about."""
EVERYTHING = "The user's permission setting denies every tool call."
UNSPOKEN = "The user's permission setting denies every call that no rule allows."
CHANGED = "Its definition has changed since you approved it:"
DOUBT = "It was under way when the kernel stopped, and may have done its work already."
"""Why a tool in doubt is asked about."""

_SENTENCE_END = re.compile(r"(?<=[.!?;]) +")
_PIECE = re.compile(rf".{{1,{LONGEST_LINE}}}", re.DOTALL)


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
        key = _key(tool)
        return (key, question) in self._always and self._approved[key] == _written(tool)

    def change(self, tool: ToolDef) -> str:
        """Return what has changed in a definition since a person approved a call of it, "" if nothing has."""
        before, now = self._approved.get(_key(tool)), _written(tool)
        return "" if before is None or before == now else _difference(before, now)

    def approve(self, tool: ToolDef, questions: Sequence[str], *, always: bool) -> None:
        """Take a person's yes: to this call, or to every later one too that the same questions would be put about."""
        key, now = _key(tool), _written(tool)
        if self._approved.get(key) != now:
            self._always = {one for one in self._always if one[0] != key}
        self._approved[key] = now
        self.in_doubt.discard(key)
        if always:
            self._always.update((key, question) for question in questions)


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a call.

    `why` says, in sentences, why a person is asked, or why the call is denied. `questions` are what an "always"
    is bound to, one of each rule that asks. `default` says that no rule and no hook spoke.
    """

    verdict: Permission
    why: str = ""
    questions: tuple[str, ...] = ()
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
        voices = self.policy.strictest(tool, arguments, said)
        if not voices:
            word = _default(override, self.policy.default, code=code)
            return self._by_default(tool, asks=asks or code, word=word)
        if voices[0].verdict == "deny":
            return Decision("deny", voices[0].why, default=False)
        return self._heard(tool, voices, default=False)

    def _by_default(self, tool: ToolDef, *, asks: bool, word: Permission) -> Decision:
        if word == "deny":
            return Decision("deny", EVERYTHING if not self.policy.rules else UNSPOKEN)
        return self._heard(tool, (Voice(word if asks else "allow", DEFAULT),), default=True)

    def _heard(self, tool: ToolDef, voices: Sequence[Voice], *, default: bool) -> Decision:
        """Take in what a person has said about the tool before: what asks still asks until each was answered."""
        approvals = self.approvals
        asking = [one for one in voices if one.verdict == "ask" and not approvals.holds(tool, one.question)]
        doubt = DOUBT if _key(tool) in approvals.in_doubt else ""
        questions = tuple(one.question for one in asking or voices)
        if not (asking or doubt):
            return Decision("allow", questions=questions, default=default)
        change = approvals.change(tool)
        changed = f"{CHANGED}\n{change}" if change else ""
        why = " ".join(filter(None, (doubt, *(one.why for one in asking), changed)))
        return Decision("ask", why, questions, default=default)


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
        rule = f'Rule("allow", "{tool.name}", server="{tool.server}")'
        return f"{head} The user can allow it with a rule: permission=Policy([{rule}])."
    rule = "" if tool.server == NOTEBOOK else f'with %mcp allow {tool.server} or an "allow" entry for that server, '
    return (
        f'{head} The user can allow it {rule}with permission="allow" (--permission allow in a cell), '
        f"or with {settings.PERMISSION}=allow."
    )


def refusal(tool: ToolDef, decision: Decision) -> str:
    """Say to model and person why a call was denied by what the user wrote down."""
    return f"{tool.name} was not run: {_lower(decision.why)}"


def _default(override: Permission | None, default: Permission, *, code: bool) -> Permission:
    """Return what holds where no rule speaks: the variable stands in for all but deny; code is never just allowed."""
    word = default if default == "deny" else override or default
    return "ask" if code and word == "allow" else word


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _written(tool: ToolDef) -> str:
    """Write a definition out, all of it that a model reads, so that any change shows."""
    parameters = json.dumps(dict(tool.parameters), indent=1, sort_keys=True, ensure_ascii=False, default=str)
    return f"{tool.server}: {tool.own_name or tool.name}\n{tool.description}\n{parameters}"


def _difference(before: str, now: str) -> str:
    """Return a short unified diff, without its head and its places."""
    diff = [*unified_diff(_sentences(before), _sentences(now), lineterm="", n=1)][2:]
    lines = [line for line in diff if line[:2] != "@@"]
    more = [f"({len(lines) - LONGEST_DIFF} more lines)"] if len(lines) > LONGEST_DIFF else []
    return "\n".join([*lines[:LONGEST_DIFF], *more])


def _sentences(text: str) -> list[str]:
    """Part a text in lines, sentences and pieces of these, so that what was added to a long line can be seen."""
    sentences = [one for line in text.splitlines() for one in _SENTENCE_END.split(line)]
    return [piece for one in sentences for piece in _PIECE.findall(one) or [one]]


def _key(tool: ToolDef) -> ToolKey:
    return tool.server, tool.name
