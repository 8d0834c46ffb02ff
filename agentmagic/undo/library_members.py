"""Finds the functions and types of libraries by object, and what the user has put into the libraries."""

import operator
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from agentmagic.undo.data_types import known_kinds, member_of, root_package
from agentmagic.undo.operations import MODULES, PATHS, REPORTED_MODULES

_CAN_BE_CHANGED = 1 << 9
"""The flag of classes whose attributes can be set, Py_TPFLAGS_HEAPTYPE."""


def places() -> dict[int, str]:
    """Return the dotted paths of all loaded modules, functions and types that the tables have, by object id."""
    members = ((member_of(*path.rpartition(".")[::2]), path) for path in PATHS)
    modules = ((sys.modules[module], module) for module in MODULES if module in sys.modules)
    return {id(value): path for value, path in (*members, *modules) if value is not None}


def is_own(path: str) -> bool:
    """Return whether a module's member is still the library's own, and was not replaced by the user."""
    module, _, name = path.rpartition(".")
    if module not in sys.modules:  # `module` is the path of a class, such as `datetime.date`
        return module in MODULES
    member: Any = member_of(module, name)
    if type(member) is ModuleType:
        owner = member.__name__
    elif root_package(type(member).__module__) in (root_package(module), "builtins"):
        owner = getattr(member, "__module__", None) or module
    else:
        return False
    return root_package(owner).lstrip("_") in {root_package(module), *REPORTED_MODULES.get(module, ())}


_own_parts: dict[type, tuple[object, ...]] = {}
"""The attributes of data types that were all the libraries' own when checked.

Comparing a type with this record takes a tenth of the time of a full check.
"""


def foreign_names() -> frozenset[str]:
    """Return the names of functions that were put into data types, such as DataFrame, by code outside the libraries.

    `__repr__` is included if pandas or NumPy call a function of the user for each number that they show.
    """
    foreign_names = set[str]()
    parts = {part for kind in known_kinds() for part in kind.__mro__ if part.__flags__ & _CAN_BE_CHANGED}
    own = {root_package(part.__module__) for part in parts} | {"functools"}
    for part in parts:
        now, before = tuple(vars(part).values()), _own_parts.get(part, ())
        if len(now) != len(before) or not all(map(operator.is_, now, before)):
            names = {name for name, member in vars(part).items() if not _is_of(own, member)}
            _own_parts.update({} if names else {part: now})
            foreign_names |= names
    pandas: Any = sys.modules.get("pandas")
    numpy: Any = sys.modules.get("numpy")
    has_formatter = pandas and isinstance(pandas.get_option("display.float_format"), FunctionType)
    has_formatter = has_formatter or (numpy and numpy.get_printoptions()["formatter"])
    return frozenset(foreign_names | {"__repr__"} if has_formatter else foreign_names)


def _is_of(own: set[str], member: Any) -> bool:
    """Return whether a member of a class is a plain value, or a function of one of the packages in `own`."""
    member = member.fget if type(member) is property else member
    match member:
        case FunctionType():
            return root_package(member.__module__) in own
        case BuiltinFunctionType():  # `__new__` of a type, or a bound method that the user put into a class
            return isinstance(member.__self__, type)
        case _:
            return type(member) is not MethodType and root_package(type(member).__module__) != "__main__"
