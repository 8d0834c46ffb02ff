"""The user's rules about tool calls: which calls run, which need the user's approval, and which never run."""

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
from agentmagic.text import clip, json_line

Test = Mapping[str, str] | Callable[[Mapping[str, Any]], bool]
"""The condition of a rule on the arguments: patterns by argument, which must all match, or a function."""

Hook = Callable[[ToolCall, ToolDef], Permission | Awaitable[Permission | None] | None]
"""A function that decides about a call. If it returns None, the rules decide."""

Level = Literal["ask", "reads", "trusted"]
"""Which calls run without asking although the default is "ask": none, calls that only read, or trusted servers too."""
LEVELS: Mapping[Level, str] = {
    "ask": "Ask always",
    "reads": "What only reads runs",
    "trusted": "Trusted servers run",
}

_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class Rule:
    """A verdict on all calls that match the rule.

    `tool` and `server` are names or case-sensitive `fnmatch` patterns. The server of a Python function is "notebook". A
    tool of an MCP server matches by the name that the model sees, or by its own name on the server.
    `when` limits the rule to certain arguments: {"path": "/etc/*"} matches calls whose argument `path` matches the
    pattern. If the argument is a list, its items are compared, also those of nested lists: one item must match if the
    rule denies or asks, and every item must match if the rule allows. `when` can also be a function, which is called in
    a thread with a copy of the arguments. If the function fails, or takes more than 5 s, the call is denied.
    `reason` is shown to the user who is asked, and sent to the model if the rule denies.

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
        """Return whether the rule matches a call. Raises any error of its `when` function."""
        names = {tool.name, tool.own_name or tool.name}
        if not _matches(tool.server, self.server) or not any(_matches(name, self.tool) for name in names):
            return False
        if self.when is None:
            return True
        if callable(self.when):
            return bool(self.when(deepcopy(dict(arguments))))  # a copy: the function must not change the call
        return all(self._is_like(arguments.get(name), pattern) for name, pattern in self.when.items())

    def voice(self, tool: ToolDef, arguments: Mapping[str, Any]) -> "Voice | None":
        """Return the rule's verdict on a call, None if the rule does not match, or "deny" if its `when` fails."""
        try:
            return Voice(self.verdict, repr(self), _by_rule(self)) if self.fits(tool, arguments) else None
        except BaseException as error:  # noqa: BLE001  (no exception of a test, an exit either, may let a call through)
            why = redact(f"The test of a rule failed: {type(error).__name__}: {error}")
            return Voice("deny", repr(self), f"{clip(why, 300)}.")

    def _is_like(self, value: Any, pattern: str) -> bool:
        """Return whether an argument matches a pattern. A missing argument and an empty list never match."""
        fitting = [_matches(text, pattern) for text in _texts(value)]
        return bool(fitting) and (all(fitting) if self.verdict == "allow" else any(fitting))


@dataclass(frozen=True, slots=True)
class Voice:
    """The verdict of one rule of a policy, of its hook or of its default, with the reason.

    `question` identifies what the user is asked: the answer "always" applies to later calls with the same question.
    """

    verdict: Permission
    question: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, a default for calls that no rule matches, a level for that default, and a hook.

    The strictest verdict of all matching rules and the hook decides: deny over ask over allow. If no rule matches and
    the hook returns None, `default` decides about a tool that needs approval, and other tools run. The default "deny"
    denies every call that no rule matches and about which the hook returns None.
    The `level` names calls that run without asking although the default is "ask". At the level "reads", these are
    programs that are known to only read, and those tools of a trusted server about which the server says that they only
    read. The level "trusted" adds all other tools of a trusted server.

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
        value = cast("object", self.rules)
        rules = tuple(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(rule, Rule) for rule in rules):
            raise UsageError(f'rules is {value!r:.80}. Give a list of rules: [Rule("deny", "delete_*")].')
        object.__setattr__(self, "rules", rules)

    def strictest(
        self, tool: ToolDef, arguments: Mapping[str, Any], said: Permission | None = None, *, code: bool = False
    ) -> tuple[Voice, ...]:
        """Return the strictest verdicts of the rules and the hook on a call, or () if none exist.

        `said` is the hook's answer. If the tool runs `code`, only a rule with the tool's exact name can allow the call.
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
        """Return whether a call runs at this `level`, although the default "ask" would ask the user about it."""
        return self.default == "ask" and ((reads and self.level != "ask") or (trusted and self.level == "trusted"))


def strictest(voices: Sequence[Voice]) -> tuple[Voice, ...]:
    """Return the strictest of the verdicts, or several verdicts if they are equally strict."""
    most = max((_STRICTNESS[one.verdict] for one in voices), default=None)
    return tuple(one for one in voices if _STRICTNESS[one.verdict] == most)


PolicyLike = Permission | Policy | Hook
"""The values that `permission` of an Agent accepts."""


def policy_of(permission: PolicyLike) -> Policy:
    """Return `permission` as a policy. A word such as "ask" becomes the policy's default, and a function its hook.

    Raises UsageError for any other value.
    """
    if isinstance(permission, Policy):
        return permission
    if callable(permission):
        return Policy(hook=permission)
    _check_word("permission", permission)
    return Policy(default=permission)


def at_level(permission: PolicyLike, level: Level) -> Policy:
    """Return the policy of `permission`, with the same rules and hook, but with the default "ask" and this level."""
    return replace(policy_of(permission), default="ask", level=level)


def check_answer(answer: object) -> Permission | None:
    """Return a hook's answer unchanged. Raises UsageError if the answer is not valid."""
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
    """Return whether a text matches a pattern or equals it."""
    # Compare for equality, too: a name can contain characters that mean something in patterns, such as "[".
    return text == pattern or fnmatchcase(text, pattern)


def _texts(value: Any) -> list[str]:
    """Return an argument as a list of texts: the argument itself, or the items of a list and of lists in it.

    None is left out.
    """
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) for text in _texts(item)]
    if value is None:
        return []
    return [value if isinstance(value, str) else json_line(value)]
