"""The undo and redo stack: the changes of a conversation, each with the variables of the notebook that it changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from agentmagic.events import HistoryCut
from agentmagic.messages import Message
from agentmagic.text import sanitize
from agentmagic.undo.changes import Changes
from agentmagic.undo.pictures import LIMIT

T = TypeVar("T")
S = TypeVar("S")

ChangeKind = Literal["turn", "clear", "edit"]

MOST = 100
"""Largest number of changes on the stack. After them, undo still removes earlier turns one by one."""
MOST_STORED = 20
"""Largest number of changes whose variables are stored."""


@dataclass(eq=False, slots=True)
class Change(Generic[T]):
    """A change of a conversation: the turns before and after it, and the variables that the tools changed.

    `variables` are in the order in which the tools ran, or None if they are no longer stored.
    """

    kind: ChangeKind
    before: tuple[T, ...]
    after: tuple[T, ...]
    variables: list[Changes] | None = None


class UndoStack(Generic[T]):
    """The changes that can be undone, in `done`, and those that can be redone, in `undone`.

    `last_change` is the change that the last call of `undo` or `redo` returned, or None. `add`, `clear`, `cut` and
    `follow` accept the current turns, and return the turns after the change.
    """

    def __init__(self) -> None:
        self.done: list[Change[T]] = []
        self.undone: list[Change[T]] = []
        self.last_change: Change[T] | None = None
        self._cut: tuple[T, ...] | None = None

    def add(self, before: tuple[T, ...], turn: T) -> tuple[T, ...]:
        """Add a new turn. If `cut` has just removed turns, the new turn replaces them."""
        after = (*before, turn)
        self._push(Change("turn" if self._cut is None else "edit", before if self._cut is None else self._cut, after))
        return after

    def clear(self, turns: tuple[T, ...]) -> tuple[T, ...]:
        """Remove all turns, as a change that can be undone."""
        self._push(Change("clear", turns, ()))
        return ()

    def cut(self, turns: tuple[T, ...], number: int) -> tuple[T, ...]:
        """Keep only the first `number` turns. The next new turn replaces the others."""
        self._cut = turns if self._cut is None else self._cut
        return turns[:number]

    def undo(self, turns: tuple[T, ...]) -> Change[T] | None:
        """Undo the last change and return it, or return None if there is no change."""
        if self._cut is not None:
            self._push(Change("edit", self._cut, turns))
        if not self.done and turns:  # the last turn was never added to the stack, or has left it
            self.done.append(Change("turn", turns[:-1], turns))
        self.last_change = self.done.pop() if self.done else None
        self.undone += [self.last_change] if self.last_change is not None else []
        return self.last_change

    def redo(self) -> Change[T] | None:
        """Redo the change that was undone last and return it, or return None if there is no such change."""
        self.last_change = self.undone.pop() if self.undone else None
        self.done += [self.last_change] if self.last_change is not None else []
        return self.last_change

    def follow(self, turns: tuple[T, ...], cut: HistoryCut) -> tuple[T, ...]:
        """Apply a history record, which says that turns were cleared, cut, undone or redone. Return the new turns."""
        if cut.cleared:
            return self.clear(turns)
        if not cut.step:
            return self.cut(turns, cut.turns)
        change = self.undo(turns) if cut.step == "undo" else self.redo()
        new_turns = turns if change is None else change.before if cut.step == "undo" else change.after
        return new_turns[: cut.turns]

    def store_variables(self, variables: Iterable[Changes]) -> None:
        """Store the changed variables with the last change.

        Drop the variables of older changes if too many changes have variables, or they take too much memory.
        """
        changes = [record for record in variables if record.failed or not record.settled.is_set() or record.matters]
        self.done[-1].variables = None if any(record.failed for record in changes) else changes
        budget = 2 * LIMIT
        for index, change in enumerate(reversed(self.done)):
            budget -= sum(record.size for record in change.variables or ())
            if index >= MOST_STORED or budget < 0:
                change.variables = None

    def drop_variables(self) -> None:
        """Drop the stored variables of all changes."""
        for change in (*self.done, *self.undone):
            change.variables = None

    def drop_unsaved(self) -> None:
        """Drop the changes that a new journal file (a file that stores the conversation) does not have.

        Such a file has only the current turns.
        """
        last = max((index for index, change in enumerate(self.done) if change.kind != "turn"), default=-1)
        self.done, self.undone, self._cut = self.done[last + 1 :], [], None

    def map_turns(self, function: Callable[[T], S | None]) -> "UndoStack[S]":
        """Return this stack with each turn replaced by `function(turn)`. A turn that gives None is left out."""

        def turns(old: tuple[T, ...]) -> tuple[S, ...]:
            return tuple(new for turn in old if (new := function(turn)) is not None)

        def changes(old: list[Change[T]]) -> list[Change[S]]:
            return [Change(change.kind, turns(change.before), turns(change.after), change.variables) for change in old]

        stack = UndoStack[S]()
        stack.done, stack.undone = changes(self.done), changes(self.undone)
        stack._cut = None if self._cut is None else turns(self._cut)
        return stack

    def _push(self, change: Change[T]) -> None:
        self.done = [*self.done[1 - MOST :], change]
        self.undone, self._cut = [], None


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of an undo or redo.

    `prompt` is the prompt of the turn that was removed or restored. `restored` are the variables that are as
    they were before; `removed` are those among them that had no value then. `refused` are the variables that were left
    alone, each with the reason. `problem` is the reason why no variables could be restored. `looks` is the number of
    later calls by MCP clients, which only read and were removed too.
    """

    kind: ChangeKind
    redone: bool = False
    turns: int = 0
    prompt: Message | None = None
    restored: tuple[str, ...] = ()
    removed: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""
    tools: tuple[str, ...] = ()
    looks: int = 0

    @property
    def problems(self) -> list[str]:
        """Sentences that say what was not restored, and why."""
        refusals = [f"{sanitize(name)} was left alone: {sanitize(reason)}." for name, reason in self.refused.items()]
        return [self.problem, *refusals] if self.problem else refusals


NOT_STORED = (
    "The variables are as they were: what they held before is not kept any more, only the conversation changed."
)
STILL_RUNNING = "The variables are as they are: a tool of this turn still runs. Only the conversation changed."


def restore_turn(changes: list[Changes] | None, outcome: Undone) -> tuple[Undone, list[Changes] | None]:
    """Restore variables, the latest change first. Return the completed `outcome`, and the changes that reverse it."""
    if not outcome.tools:
        return outcome, []
    if changes is not None and not all(record.settled.is_set() for record in changes):
        return replace(outcome, problem=STILL_RUNNING), changes
    if changes is None or any(record.failed for record in changes):
        return replace(outcome, problem=NOT_STORED), []
    names: set[str] = set()
    removed: frozenset[str] = frozenset()
    reasons: dict[str, str] = {}
    back: list[Changes] = []
    for record in reversed(changes):
        step = record.restore()
        names.update(step.restored)
        removed = removed.difference(step.restored) | step.removed
        reasons |= {name: why for name, why in step.refused.items() if name not in reasons}
        back.append(step.back)
    restored = tuple(sorted(names - reasons.keys()))
    gone, refused = removed - reasons.keys(), dict(sorted(reasons.items()))
    return replace(outcome, restored=restored, removed=gone, refused=refused), back
