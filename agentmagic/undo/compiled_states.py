"""Makes the states (`ObjectState`) of scikit-learn objects written in C, such as the trees of a forest.

Their attributes cannot be read, but `__getstate__` returns their arrays for pickling. If these are the arrays that the
object works on, and not copies, undo keeps their memory like that of any other array.
"""

import pickle
import sys
from collections.abc import Callable
from typing import Any

from agentmagic.undo.array_states import form_of
from agentmagic.undo.object_states import HEAP_TYPE, ObjectState, with_attributes


class _Compiled(ObjectState):
    """The state of an object written in C. `data` has the forms of its arrays, and a pickle of everything else.

    `refs` are the arrays. They are not compared, because `__getstate__` returns new array objects each time.
    """

    pickle_state: Any = None

    def same(self, other: ObjectState) -> bool:
        return type(self) is type(other) and self.data == other.data

    def obstacle(self, now: ObjectState) -> str:
        return "" if self.pickle_state is not None and now.data[0] == self.data[0] else _problem(self.thing)

    def restore(self) -> None:
        """Restore the arrays and numbers of the object, such as the number of queries that a search tree counts."""
        self.thing.__setstate__(self.pickle_state)


def compiled_maker(kind: type[Any]) -> Callable[[Any], ObjectState] | None:
    """Return the function that makes states of a scikit-learn type written in C, or None for another type."""
    c_class = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
    if c_class.__module__.partition(".")[0] != "sklearn":
        return None
    if kind is c_class:
        return lambda thing: _content(thing, c_class)
    return lambda thing: with_attributes(thing, _content(thing, c_class))


def _content(thing: Any, c_class: type[Any]) -> ObjectState:
    if getattr(c_class, "__getstate__", None) is getattr(object, "__getstate__", None):
        return _Compiled(thing, data=((), pickle.dumps(thing)))
    pickle_state = thing.__getstate__()
    arrays, rest = _parts(pickle_state)
    forms = list(map(form_of, arrays))
    if forms != list(map(form_of, _parts(thing.__getstate__())[0])):
        return ObjectState(thing, problem=_problem(thing))  # `__getstate__` returns copies, which undo cannot use
    state = _Compiled(thing, tuple(arrays), (forms, pickle.dumps(rest)))
    state.pickle_state = pickle_state
    return state


def _parts(pickle_state: Any) -> tuple[list[Any], list[Any]]:
    """Split the pickle state of an object into its arrays and all other values."""
    parts: list[Any] = list(pickle_state.values() if hasattr(pickle_state, "values") else pickle_state)
    ndarray = sys.modules["numpy"].ndarray
    return [part for part in parts if isinstance(part, ndarray)], [
        part for part in parts if not isinstance(part, ndarray)
    ]


def _problem(thing: Any) -> str:
    return f"it holds a {type(thing).__name__}, whose state cannot be kept"
