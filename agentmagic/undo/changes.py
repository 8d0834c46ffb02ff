"""The variables that tool calls created, changed or removed, the states of packages, and how to restore them.

Three snapshots (`Picture`) of the variables are compared: `before` and `after` the tool's code ran, and `now`, taken
when the user runs undo. Changes between `before` and `after` were made by that code. If a variable differs between
`after` and `now`, it was changed later, and undo leaves it alone.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import describe
from agentmagic.events import VariableChange, VariablesChanged
from agentmagic.text import sanitize, single_line
from agentmagic.undo import first_imports
from agentmagic.undo.object_states import Many
from agentmagic.undo.own import user_variables
from agentmagic.undo.package_states import CHANGED_SINCE, NOT_RESTORED, PackageLook, loaded_module
from agentmagic.undo.pictures import LIMIT, MOST_BESIDE, PAST_COPIES, Camera, Picture, no_garbage_collection
from agentmagic.undo.states import can_change
from agentmagic.undo.variables import LONGEST_LINE, MOST_VARIABLES, kind_of

if TYPE_CHECKING:
    from agentmagic.undo.array_states import Memory

Variables = MutableMapping[str, Any]
LONGEST_LOOK = 2.0
"""Seconds to wait, after an interrupt, for the comparison of the variables to finish."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of restoring variables and states of packages.

    `restored` are the names that are as they were before; `removed` are those among them that had no value then.
    `refused` are the names that were left alone, each with the reason. `back` are the changes with which redo reverses
    this restore.
    """

    restored: tuple[str, ...]
    removed: frozenset[str]
    refused: Mapping[str, str]
    back: "Changes"


@dataclass(eq=False, repr=False)
class Changes:
    """The changes that tool calls made to the variables of a namespace, and the files that they wrote.

    Calls that run at the same time share one `Changes`; `calls` are their ids. `names` are the variables that
    the calls can change, or None for all. When the last call has ended, `ended` is set, the variables are compared with
    those before, `on_compared` is called, and `settled` is set. `failed` is True if the snapshot before the calls, or
    this comparison, failed. The changes are then unknown.

    `packages` are the states of packages. `modules` are the modules that the calls import and that no variable holds,
    under the names by which their changes are told.
    """

    namespace: Variables
    names: set[str] | None = field(default_factory=set[str])  # named by the call, or used by functions that it can call
    calls: list[str] = field(default_factory=list[str])
    files: dict[str, None] = field(default_factory=dict[str, None])
    limit: int = LIMIT
    on_compared: Callable[[], None] | None = None
    failed: bool = False
    ended: bool = False
    settled: threading.Event = field(default_factory=threading.Event)
    before: Picture = field(init=False)
    after: Picture = field(init=False)
    packages: PackageLook = field(default_factory=PackageLook)
    modules: dict[str, ModuleType] = field(default_factory=dict[str, ModuleType])
    _imports: set[str] = field(default_factory=set[str])
    _kinds: dict[str, str] = field(default_factory=dict[str, str])
    _roots: list[object] = field(default_factory=list[object])

    def __post_init__(self) -> None:
        self.before = self.after = Picture(user_variables(self.namespace))

    @no_garbage_collection()
    def expect(
        self,
        names: Iterable[str] | None,
        roots: Iterable[object] = (),
        words: Iterable[str] = (),
        imports: Iterable[str] = (),
    ) -> None:
        """Take a snapshot of the variables that a call can change, before the call begins.

        `names` are those variables, or None for all; `roots` are other objects that the call can reach. `words` are the
        words of the program that it runs. They show whether the program can write to the array inside a table
        directly, without the copy that the table makes first. `imports` are the modules that the program imports.
        """
        self.packages.begin()
        self._imports |= set(imports)
        self.packages.on_import = self._add_modules
        first_imports.listen(self.packages)
        self._add_modules()
        self._roots += roots
        self.names = None if names is None or self.names is None else self.names | set(names)
        camera = Camera(self.namespace, picture=self.before)
        camera.writes_past_copies = not PAST_COPIES.isdisjoint(words)
        camera.look(self.names, self._roots).develop(self.limit - self.size)
        self.names, bindings = camera.names, self.before.bindings
        for name in bindings if self.names is None else self.names & bindings.keys():
            self._kinds.setdefault(name, kind_of(bindings[name]))

    def _add_modules(self, finished: str = "") -> None:
        """Add to the snapshot before the calls those imported modules that are loaded now, and that no variable holds.

        `finished` is the name of a module whose code has just ended.
        """
        held = set(map(id, self.before.bindings.values()))
        found = ((name, loaded_module(name, finished)) for name in self._imports)
        new = {f"module {name}": module for name, module in found if module is not None and id(module) not in held}
        if new:
            self.modules |= new
            self.before.bindings |= new
            Camera(self.namespace, picture=self.before).look(new).develop(0)
            self.names = None if self.names is None else self.names | new.keys()

    @property
    def size(self) -> int:
        """The approximate number of bytes that the snapshot `before` takes."""
        memories = (cast("Memory | None", state.memory) for state in self.before.states.values())
        copies = (memory.copy.nbytes for memory in memories if memory is not None and memory.copy is not None)
        return sum(copies) + 100 * len(self.before.states)

    @no_garbage_collection()
    def settle(self) -> "Changes":
        """Compare the variables with the snapshot `before`, now that all calls have ended. Return this object."""
        self.ended = True
        first_imports.ignore(self.packages)
        try:
            self.packages.end()
            self.after = self._picture_now([self.before], 0)
            if self.names is not None and (changed_ids := self.before.changed_ids(self.after)):
                self._add_indirect_changes(changed_ids)
            if self.on_compared is not None:
                self.on_compared()
        except BaseException:  # also KeyboardInterrupt
            self.failed = True
            raise
        finally:
            self.settled.set()
        return self

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for interrupted calls to end. If they end, also wait for the comparison."""
        if not self.settled.wait(seconds) and self.ended:
            self.settled.wait(LONGEST_LOOK)

    def _add_indirect_changes(self, changed_ids: set[int]) -> None:
        """Add to both snapshots the objects through which other names than `names` reach the changed objects.

        These objects count as unchanged, but the names that reach a changed object through them count as changed.
        """
        wide = self._with_all_names(self.after)
        ids = wide.reachable_ids(wide.names_reaching(changed_ids))
        states = {object_id: wide.states[object_id] for object_id in ids - self.after.states.keys()}
        for state in states.values():
            if isinstance(state, Many):
                state.hold()
        self.after = self.after.with_states(states)
        self.before = self.before.with_states(states, beside=states)

    def _picture_now(self, earlier: list[Picture], limit: int) -> Picture:
        """Take a snapshot now. It also has the objects in `earlier` snapshots that no name reaches any more."""
        camera = Camera(self.namespace, picture=Picture(user_variables(self.namespace) | self.modules)).again(earlier)
        rebound = earlier[0].rebound_names(camera.picture)
        names = None if self.names is None else self.names | rebound
        camera.look(names, without=earlier[0].unwatched.keys() - rebound)
        return camera.develop(limit)

    def _with_all_names(self, picture: Picture) -> Picture:
        """Return `picture`, a snapshot of now, with the objects of all other names.

        Small containers that share one state (`Many`) are not read.
        """
        if self.names is None:
            return picture
        camera = Camera(self.namespace, MOST_BESIDE, picture.with_states({}))
        return camera.look(picture.bindings, follow=False).develop(0)

    @cached_property
    def touched_names(self) -> set[str]:
        """The names that the code created, changed or removed. Read it only after `settled` is set."""
        return self.before.touched_names(self.after)

    @cached_property
    def unwatched(self) -> dict[str, str]:
        """The variables and states of packages that the code may have changed unnoticed, each with the reason."""
        reasons = self.packages.unwatched | self.before.unwatched
        unknown_ids = {
            object_id for object_id, state in self.before.states.items() if state.problem
        } - self.before.beside
        for name in self.before.names_reaching(unknown_ids):
            ids = self.before.reachable_ids([name]) & unknown_ids
            reasons.setdefault(name, self.before.states[next(iter(ids))].problem)
        return reasons

    @property
    def matters(self) -> bool:
        """Whether the code changed a variable or the state of a package, or may have done so without being noticed."""
        return bool(self.touched_names or self.packages.touched_names or self.unwatched)

    def rows(self) -> list[VariableChange]:
        """Return one change for each variable and state of a package that the code changed, sorted by name."""
        packages = [VariableChange(name, "changed") for name in sorted(self.packages.touched_names)]
        return [*(self._row(name) for name in sorted(self.touched_names)), *packages]

    def _row(self, name: str) -> VariableChange:
        before, after = self.before.bindings, self.after.bindings
        if name in self.modules:
            return VariableChange(name, "changed")
        now = kind_of(after[name]) if name in after else ""
        if name not in before:
            return VariableChange(name, "made", after=now)
        was = self._kinds.get(name) or kind_of(before[name])
        return VariableChange(name, "changed" if name in after else "removed", was, now)

    @no_garbage_collection()
    def restore(self) -> RestoreResult:
        """Restore the variables and states of packages that the code changed, except those changed again later."""
        pictures = [self.after, self.before]
        now = self._picture_now(pictures, self.limit)
        now.copy_arrays(self.before.changed_ids(now) | (now.states.keys() - self.before.states.keys()), self.limit)
        undoing = _Undoing(self, now, self._with_all_names(now))
        undoing.decide()
        undoing.restore_variables(self.namespace)
        back = Changes(
            self.namespace, self.names, self.calls, limit=self.limit, settled=self.settled, modules=self.modules
        )
        back.before, back.after = now, self._picture_now([now, *pictures], 0)
        undoing.verify(back.after)
        restored, refused, back.packages = self.packages.restore()
        restored |= undoing.names_to_restore
        removed = frozenset(undoing.names_to_restore - self.namespace.keys())
        return RestoreResult(tuple(sorted(restored)), removed, dict(sorted((undoing.refused | refused).items())), back)


def summarize(changes: Sequence[Changes]) -> VariablesChanged | None:
    """Return the combined changes of a turn's calls, which are given in order, or None if nothing changed.

    The result also lists the files written, and the variables that may have changed without being noticed.
    """
    first: dict[str, VariableChange] = {}
    last: dict[str, VariableChange] = {}
    files: dict[str, None] = {}
    unwatched_names: dict[str, None] = {}
    for change in changes:
        files |= change.files
        if change.failed or not change.settled.is_set():  # an interrupted tool may still be running
            unwatched_names["all variables"] = None
            continue
        unwatched_names |= dict.fromkeys(change.unwatched)
        for row in change.rows():
            first.setdefault(row.name, row)
            last[row.name] = row
    rows = [row for name in sorted(first) if (row := _merge(first[name], last[name])) is not None]
    names = [_name(name) for name in sorted(unwatched_names) if name not in last]
    if not (rows or files or names):
        return None
    return VariablesChanged(tuple(rows[:MOST_VARIABLES]), tuple(files), tuple(names[:MOST_VARIABLES]))


def _merge(first: VariableChange, last: VariableChange) -> VariableChange | None:
    """Merge two changes of a variable into one. Return None if the variable was created and then removed."""
    was, stays = first.change != "made", last.change != "removed"
    if not (was or stays):
        return None
    before, after = (single_line(sanitize(kind), LONGEST_LINE) for kind in (first.before, last.after))
    change = "changed" if was and stays else "removed" if was else "made"
    return VariableChange(_name(first.name), change, before, after)


def _name(name: str) -> str:
    return single_line(sanitize(name), 100)


class _Undoing:
    """Decides which variables undo can restore, and restores them. `refused` has the others, with the reasons.

    `now` is a snapshot of the variables that the code could change, `wide` is a snapshot of all variables.
    """

    def __init__(self, changes: Changes, now: Picture, wide: Picture) -> None:
        self._before, self._after, self._now, self._wide = changes.before, changes.after, now, wide
        self._modules = changes.modules
        self.touched_names = frozenset(changes.touched_names)
        self.names_to_restore = set(self.touched_names)
        self.refused: dict[str, str] = {}
        self._unwatched = changes.unwatched
        self._stale = self._before.changed_ids(now)
        """The ids of the objects that differ from their state before the code ran."""

    def decide(self) -> None:
        """Refuse variables that were changed later or cannot be restored exactly.

        Also refuse variables that share objects with a variable that is left alone.
        """
        before, after, now = self._before, self._after, self._now
        for object_id in self._stale:
            if reason := before.states[object_id].obstacle(now.states[object_id]):
                self._refuse(before.names_reaching({object_id}), reason)
        # Objects that are now as they were before the code ran need not be restored.
        same = before.states.keys() - before.beside - self._stale
        changed_ids = after.changed_ids(now) - same
        since = (
            after.rebound_names(now) & before.rebound_names(now)
            | now.names_reaching(changed_ids)
            | after.names_reaching(changed_ids)
        )
        self._refuse(since & self.names_to_restore, CHANGED_SINCE)
        # Names that the code did not touch, but that now reach an object to restore, were changed later.
        since |= self._wide.names_reaching(self._ids_to_restore()) - self.touched_names
        while conflict := self._ids_to_restore() & self._wide.reachable_ids(since | self.refused.keys()):
            shared = before.names_reaching(conflict) & self.names_to_restore
            self._refuse(shared, "it shares objects with a variable that is left alone")
        for name, reason in sorted(self._unwatched.items()):
            self._refuse([name], reason)

    def restore_variables(self, namespace: Variables) -> None:
        """Restore the objects in place, then bind the names to their earlier values."""
        states = [self._before.states[object_id] for object_id in self._ids_to_restore()]
        # Restore objects that serve as keys before the containers that hash these keys.
        for state in sorted(states, key=lambda state: can_change(state.hashed_objects)):
            try:
                state.restore()
            except Exception as error:  # noqa: BLE001  (a class of the user may raise anything)
                self._refuse(
                    self._before.names_reaching({id(state.thing)}), f"it could not be put back: {describe(error)}"
                )
        for object_id in self._before.ids_reaching([id(state.thing) for state in states]):
            self._before.states[object_id].refresh()
        for name in self.names_to_restore - self._modules.keys():
            if name in self._before.bindings:
                namespace[name] = self._before.bindings[name]
            else:
                namespace.pop(name, None)

    def verify(self, later: Picture) -> None:
        """Record as refused the variables that still differ in `later`, a snapshot taken after the restore."""
        wrong_ids = {
            object_id
            for object_id in self._before.changed_ids(later)
            if object_id in self._before.reachable_ids(self.names_to_restore)
        }
        self._refuse(self._before.names_reaching(wrong_ids), NOT_RESTORED)

    def _ids_to_restore(self) -> set[int]:
        return self._stale & self._before.reachable_ids(self.names_to_restore)

    def _refuse(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            self.refused.setdefault(name, reason)
            self.names_to_restore.discard(name)
