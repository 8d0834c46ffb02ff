"""The rules of the user about tool calls: which run, which ask first, which never run."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from agentmagic.errors import UsageError
from agentmagic.messages import ToolCall, ToolDef
from agentmagic.secrets import redact
from agentmagic.settings import PERMISSIONS, Permission
from agentmagic.text import clip, written_json

Test = Mapping[str, str] | Callable[[Mapping[str, Any]], bool]
"""What a rule looks for in the arguments: patterns by name, all of which must fit, or a function of the arguments."""

Hook = Callable[[ToolCall, ToolDef], Permission | Awaitable[Permission | None] | None]
"""Decides in code. None leaves the call to the rules."""

Level = Literal["ask", "reads", "trusted"]
"""What runs without asking of the calls that would ask by default: nothing, what only reads, or trusted servers too."""
LEVELS: Mapping[Level, str] = {
    "ask": "Ask always",
    "reads": "What only reads runs",
    "trusted": "Trusted servers run",
}

_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict on the calls that the rule fits.

    `tool` and `server` are names or `fnmatch` patterns, upper and lower case told apart; a function's server is
    "notebook", and a server's tool is known by the name the model sees and by its own. `when` narrows the rule to
    arguments: {"path": "/etc/*"} fits calls whose argument `path` fits the pattern. Of a list, however deep, one
    item has to fit if the rule denies or asks, and every item if it allows. A function is called in a thread with a
    copy of the arguments; if it fails, or takes more than 5 s, the call is denied. `reason` is shown to the user who
    is asked, and told to the model if the rule denies.

    Raises UsageError for an invalid verdict, pattern or test.
    """

    verdict: Permission
    tool: str = "*"
    server: str = "*"
    when: Test | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        _check_word("verdict", self.verdict)
        for name, pattern in (("tool", self.tool), ("server", self.server)):
            if not isinstance(cast("object", pattern), str):
                raise UsageError(f'{name} is {pattern!r:.80}. Give a name or a pattern of names: "delete_*".')
        if not _is_test(self.when):
            raise UsageError(
                f'when is {self.when!r:.80}. Give patterns by argument, all of them text, {{"path": "/etc/*"}}, '
                "or a function of the arguments, which is not async."
            )

    def fits(self, tool: ToolDef, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule fits a call. Raises what its test raises."""
        names = {tool.name, tool.own_name or tool.name}
        if not _matches(tool.server, self.server) or not any(_matches(name, self.tool) for name in names):
            return False
        if self.when is None:
            return True
        if callable(self.when):
            return bool(self.when(deepcopy(dict(arguments))))  # a copy: a test must not change what runs
        return all(self._is_like(arguments.get(name), pattern) for name, pattern in self.when.items())

    def voice(self, tool: ToolDef, arguments: Mapping[str, Any]) -> "Voice | None":
        """Return the rule's voice on a call, or None if the rule does not fit. A test that fails denies the call."""
        try:
            return Voice(self.verdict, repr(self), _by_rule(self)) if self.fits(tool, arguments) else None
        except BaseException as error:  # noqa: BLE001  (no exception of a test, an exit either, may let a call through)
            why = redact(f"The test of a rule failed: {type(error).__name__}: {error}")
            return Voice("deny", repr(self), f"{clip(why, 300)}.")

    def _is_like(self, value: Any, pattern: str) -> bool:
        """Return whether an argument fits a pattern. A missing argument and an empty list fit none."""
        fitting = [_matches(text, pattern) for text in _texts(value)]
        return bool(fitting) and (all(fitting) if self.verdict == "allow" else any(fitting))


@dataclass(frozen=True, slots=True)
class Voice:
    """The voice of one rule, or of the hook: a verdict, the question that an "always" answers, and the reason."""

    verdict: Permission
    question: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, a default for calls that no rule fits, its level, and a hook.

    Of all rules that fit a call, and the hook's answer, the strictest holds: deny over ask over allow. If none
    speaks, a tool that does not ask runs, and `default` decides for one that asks; a default of "deny" lets
    nothing run that no rule allows. The `level` says which calls the default "ask" lets run all the same: with "reads"
    programs that certainly only read, and tools of a trusted server which it says only read; with "trusted" also every
    other tool of a trusted server.

    Raises UsageError for an invalid value.
    """

    rules: Sequence[Rule] = ()
    default: Permission = "ask"
    hook: Hook | None = None
    level: Level = "ask"

    def __post_init__(self) -> None:
        _check_word("default", self.default)
        if self.level not in LEVELS:
            raise UsageError(f"level is {self.level!r:.80}. Choose one of {', '.join(LEVELS)}.")
        given = cast("object", self.rules)
        rules = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
        if not all(isinstance(rule, Rule) for rule in rules):
            raise UsageError(f'rules is {given!r:.80}. Give a list of rules: [Rule("deny", "delete_*")].')
        object.__setattr__(self, "rules", rules)

    def strictest(
        self, tool: ToolDef, arguments: Mapping[str, Any], said: Permission | None = None, *, code: bool = False
    ) -> tuple[Voice, ...]:
        """Return the strictest of what the rules and the hook, which answered `said`, say of a call, () for nothing.

        Of a tool that runs `code`, only a rule that has its very name may say "allow".
        """
        voices = [
            voice
            for rule in self.rules
            if (voice := rule.voice(tool, arguments)) is not None
            and not (code and voice.verdict == "allow" and rule.tool != tool.name)
        ]
        if said is not None and not (code and said == "allow"):
            voices.append(Voice(said, "hook", f"The user's permission hook says {said}."))
        return strictest(voices)

    def runs_unasked(self, *, reads: bool, trusted: bool) -> bool:
        """Return whether the level lets a call run that the default would ask about."""
        return self.default == "ask" and ((reads and self.level != "ask") or (trusted and self.level == "trusted"))


def strictest(voices: Sequence[Voice]) -> tuple[Voice, ...]:
    """Return the voices with the strictest verdict among these."""
    most = max((_STRICTNESS[one.verdict] for one in voices), default=None)
    return tuple(one for one in voices if _STRICTNESS[one.verdict] == most)


PolicyLike = Permission | Policy | Hook
"""What an Agent takes as its permission."""


def policy_of(permission: PolicyLike) -> Policy:
    """Return the policy that a word, a hook or a policy means. Raises UsageError for anything else."""
    if isinstance(permission, Policy):
        return permission
    if callable(permission):
        return Policy(hook=permission)
    _check_word("permission", permission)
    return Policy(default=permission)


def at_level(permission: PolicyLike, level: Level) -> Policy:
    """Return the policy that a permission means, with this level in place of its default. Its rules and hook stay."""
    return replace(policy_of(permission), default="ask", level=level)


def checked(answer: object) -> Permission | None:
    """Return a hook's answer. Raises UsageError for anything that is no answer."""
    if answer is None or answer in PERMISSIONS:
        return answer
    raise UsageError(f"The permission hook returned {answer!r:.80}. Return one of {', '.join(PERMISSIONS)}, or None.")


def _check_word(name: str, word: object) -> None:
    if word not in PERMISSIONS:
        raise UsageError(f"{name} is {word!r:.80}. Choose one of {', '.join(PERMISSIONS)}.")


def _is_test(when: object) -> bool:
    if isinstance(when, Mapping):
        return all(isinstance(one, str) for pair in cast("Mapping[object, object]", when).items() for one in pair)
    return when is None or (callable(when) and not inspect.iscoroutinefunction(when))


def _by_rule(rule: Rule) -> str:
    if rule.reason:
        return rule.reason if rule.reason.endswith((".", "!", "?")) else f"{rule.reason}."
    return "A rule of the user denies it." if rule.verdict == "deny" else ""


def _matches(text: str, pattern: str) -> bool:
    """Return whether a text fits a pattern or equals it."""
    # A name may hold characters that mean something in a pattern, such as "[".
    return text == pattern or fnmatchcase(text, pattern)


def _texts(value: Any) -> list[str]:
    """Return the values of an argument as text, of lists within lists too, without None."""
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in _texts(item)]
    if value is None:
        return []
    return [value if isinstance(value, str) else written_json(value)]
