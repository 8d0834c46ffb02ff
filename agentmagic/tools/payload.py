"""What a pickled function takes along to a worker, and what of it must not or cannot go there: secrets, locks, bulk."""

import dis
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from agentmagic.errors import ToolError, said
from agentmagic.secret_shapes import is_random
from agentmagic.secrets import holds_secret, is_secret_name, redact
from agentmagic.text import a_type, clip, one_line

LARGE = 1_000_000
"""Bytes of a pickled value from which on the user is told of it: it is sent with every call."""
MOST_TEXT = 20_000
"""Characters at the beginning of a text in which shapes of secrets are looked for; known values are found anywhere."""
MOST_ITEMS = 1_000
"""Values in a container that are looked into."""
_PLAIN = (type(None), bool, int, float, complex, ModuleType)
_GLOBAL = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"})

Part = tuple[str, str, Any]
"""Something that a function takes along: where it stands, in words; its name; its value."""


def taken_along(function: Callable[..., Any], *, by_value: bool, with_globals: bool = True) -> Iterator[Part]:
    """Yield what goes to a worker with a function beside its code, as cloudpickle finds it.

    Functions and classes that a worker can import go by name. With `by_value` others take along their defaults, what
    they close over and, `with_globals`, the globals that their code uses; functions and classes among those do so too.
    Without it, as for `pickle`, all functions go by name, and only the objects of methods and partials are taken along.
    """
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for part in _parts(one, by_value=by_value, with_globals=with_globals):
            value = part[2]
            if isinstance(value, FunctionType | MethodType | partial | type):
                waiting.append(value)
                continue
            if not isinstance(value, type(None) | bool):
                waiting.append(type(value))  # the class of an object, if a cell has made it, with its methods
            yield part


def _parts(one: Any, *, by_value: bool, with_globals: bool) -> Iterator[Part]:
    match one:
        case partial():
            held = cast("partial[Any]", one)
            yield "its function", "", held.func
            yield from ((f"the argument {name}", name, value) for name, value in held.keywords.items())
            yield from (("an argument", "", value) for value in held.args)
        case MethodType():
            yield "its object", "", one.__self__
            yield "its function", "", one.__func__
        case FunctionType() if by_value and not _is_importable(one):
            yield from _of_function(one, with_globals=with_globals)
        case type() if by_value and not _is_importable(one):
            for name, value in vars(one).items():
                inner = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(inner, FunctionType) or not name.startswith("__"):
                    yield f"the attribute {name} of {one.__name__}", name, inner
        case _:
            return


def _of_function(function: FunctionType, *, with_globals: bool) -> Iterator[Part]:
    code = function.__code__
    if with_globals:
        for name in _global_names(code):
            if name in function.__globals__:
                yield f"the global {name}", name, function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the variable {name}", name, cell.cell_contents
        except ValueError:  # it is not bound yet
            continue
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, value in (*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield f"the default of {name}", name, value
    yield from ((f"the attribute {name}", name, value) for name, value in vars(function).items())


@lru_cache(maxsize=256)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Return the globals that code uses, with that of the functions inside it."""
    names = {str(step.argval): None for step in dis.get_instructions(code) if step.opname in _GLOBAL}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= dict.fromkeys(_global_names(inner))
    return tuple(names)


def _is_importable(one: Any) -> bool:
    """Return whether a worker finds a function or class by its module and name; those of a notebook it does not."""
    module = getattr(one, "__module__", None)
    if not isinstance(module, str) or module == "__main__" or _goes_by_value(module):
        return False
    found: Any = sys.modules.get(module)
    for name in one.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is one


def _goes_by_value(module: str) -> bool:
    """Return whether the user has told cloudpickle to send the functions of a module themselves."""
    listing: Callable[[], set[str]] = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set[str])
    return any(module == one or module.startswith(f"{one}.") for one in listing())


# -- what is looked for ------------------------------------------------------------------------------------


def check(name: str, parts: Iterator[Part], dumps: Callable[[Any], bytes] | None) -> list[tuple[str, int]]:
    """Return where large values stand that a tool takes along, with their sizes in bytes.

    `dumps` pickles as the executor does; None if that is not known. Raises ToolError for a secret, and for a value that
    cannot be pickled.
    """
    large: list[tuple[str, int]] = []
    for place, own_name, value in parts:
        if isinstance(value, _PLAIN):
            continue
        data = b""
        try:
            data = (dumps or pickle.dumps)(value)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            if dumps is not None and not _is_secret(own_name, value):
                raise ToolError(_unpicklable(name, place, value, error)) from None
        if _is_secret(own_name, value) or holds_secret(data):
            raise ToolError(IN_PICKLE.format(name, place))
        if len(data) > LARGE:
            large.append((place, len(data)))
    return large


IN_PICKLE = (
    "{} was not run: {} holds a secret, which would be in the pickle that goes to the worker. Read it on the worker, "
    "inside the function: os.environ[...] or a file there."
)


def _unpicklable(name: str, place: str, value: object, error: Exception) -> str:
    reason = clip(one_line(redact(said(error)), 200).rstrip("."), 200)
    return (
        f"{name} was not run: {place}, {a_type(value)}, cannot be sent to a worker ({reason}). "
        "Make it inside the function, on the worker."
    )


def large_notice(name: str, large: Sequence[tuple[str, int]], *, dask: bool) -> str:
    """Return what the user is told of large values that go to a worker with each call of a tool."""
    values = ", ".join(f"{place} ({size / 1e6:,.0f} MB)" for place, size in large)
    mend = "Send it once, with x = client.scatter(x), or let" if dask else "Let"
    return f"Each call of {name} sends to a worker: {values}. {mend} the function read it there from a file."


def _is_secret(name: str, value: Any) -> bool:
    """Return whether a value, or a text in it, is a secret by its shape, its name or a value that is known."""
    waiting, count = [(name, value)], 0
    while waiting and count < MOST_ITEMS:
        key, one = waiting.pop()
        count += 1
        match one:
            case bytes() | bytearray():
                waiting.append((key, bytes(one[:MOST_TEXT]).decode("utf-8", "replace")))
            case str():
                text = one[:MOST_TEXT]
                # A name alone is no proof: SORT_KEY = "customer".
                if (is_secret_name(key) and is_random(text)) or redact(text, stored=True, name=key) != text:
                    return True
            case Mapping():
                pairs = islice(cast("Mapping[Any, Any]", one).items(), MOST_ITEMS)
                waiting += [(str(inner), item) for inner, item in pairs]
            case list() | tuple() | set() | frozenset():
                waiting += [(key, item) for item in islice(cast("list[Any]", one), MOST_ITEMS)]
            case type() | ModuleType() | FunctionType():
                pass
            case _:
                # The attributes of a library's object may be named like secrets and be none: "pad_token".
                own = type(one).__module__ == "__main__"
                waiting += [(inner if own else "", item) for inner, item in getattr(one, "__dict__", {}).items()]
    return False
