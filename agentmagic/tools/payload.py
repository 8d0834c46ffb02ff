"""Checks the objects that are pickled with a function when it is sent to a worker process.

Secrets and values that cannot be pickled are refused. The user is warned about large values.
"""

import dis
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from agentmagic.errors import ToolError, describe
from agentmagic.secret_shapes import is_random
from agentmagic.secrets import holds_secret, is_secret_name, redact
from agentmagic.text import a_type, clip, single_line

LARGE = 1_000_000
"""The user is warned of a value with more pickled bytes than this, because it is sent with every call."""
MOST_TEXT = 20_000
"""Characters at the beginning of a text that are searched for patterns of secrets. Known secrets are found anywhere."""
MOST_ITEMS = 1_000
"""Maximum number of values that are searched for secrets, in one container and in all."""
_PLAIN = (type(None), bool, int, float, complex, ModuleType)
_GLOBAL = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"})

Part = tuple[str, str, Any]
"""An object that is pickled with a function: a phrase for the user that says where it is; its name; its value."""


def pickled_parts(function: Callable[..., Any], *, by_value: bool, with_globals: bool = True) -> Iterator[Part]:
    """Yield the objects that are pickled with a function in addition to its code, as cloudpickle finds them.

    Functions and classes that a worker can import are pickled by name. With `by_value`, all other functions are pickled
    with their defaults, their closures and, if `with_globals`, the globals that their code uses. The same holds for the
    functions and classes among these objects. Without `by_value`, as in `pickle`, all functions are pickled by name.
    Then only the `self` of methods and the arguments of partials are yielded.
    """
    waiting: list[Any] = [function]
    seen_ids: set[int] = set()
    while waiting:
        obj = waiting.pop()
        if id(obj) in seen_ids:
            continue
        seen_ids.add(id(obj))
        for part in _parts(obj, by_value=by_value, with_globals=with_globals):
            value = part[2]
            if isinstance(value, FunctionType | MethodType | partial | type):
                waiting.append(value)
                continue
            if not isinstance(value, type(None) | bool):
                waiting.append(type(value))  # A class that a cell defined is pickled with its methods.
            yield part


def _parts(one: Any, *, by_value: bool, with_globals: bool) -> Iterator[Part]:
    match one:
        case partial():
            call = cast("partial[Any]", one)
            yield "its function", "", call.func
            yield from ((f"the argument {name}", name, value) for name, value in call.keywords.items())
            yield from (("an argument", "", value) for value in call.args)
        case MethodType():
            yield "its object", "", one.__self__
            yield "its function", "", one.__func__
        case FunctionType() if by_value and not _is_importable(one):
            yield from _parts_of_function(one, with_globals=with_globals)
        case type() if by_value and not _is_importable(one):
            for name, value in vars(one).items():
                inner = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(inner, FunctionType) or not name.startswith("__"):
                    yield f"the attribute {name} of {one.__name__}", name, inner
        case _:
            return


def _parts_of_function(function: FunctionType, *, with_globals: bool) -> Iterator[Part]:
    code = function.__code__
    if with_globals:
        for name in _global_names(code):
            if name in function.__globals__:
                yield f"the global {name}", name, function.__globals__[name]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the variable {name}", name, cell.cell_contents
        except ValueError:  # The variable of the closure has no value yet.
            continue
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, value in (*zip(names, defaults, strict=True), *(function.__kwdefaults__ or {}).items()):
        yield f"the default of {name}", name, value
    yield from ((f"the attribute {name}", name, value) for name, value in vars(function).items())


@lru_cache(maxsize=256)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of the globals that code uses, including the code of its inner functions."""
    names = {str(step.argval): None for step in dis.get_instructions(code) if step.opname in _GLOBAL}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= dict.fromkeys(_global_names(inner))
    return tuple(names)


def _is_importable(obj: Any) -> bool:
    """Return whether a worker can import a function or class by its module and name. It cannot if a cell defined it."""
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or module == "__main__" or _goes_by_value(module):
        return False
    target: Any = sys.modules.get(module)
    for name in obj.__qualname__.split("."):
        target = getattr(target, name, None)
    return target is obj


def _goes_by_value(module: str) -> bool:
    """Return whether the user registered a module with cloudpickle, so that its functions are pickled by value."""
    listing: Callable[[], set[str]] = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set[str])
    return any(module == one or module.startswith(f"{one}.") for one in listing())


# -- what is looked for ------------------------------------------------------------------------------------


def check(name: str, parts: Iterator[Part], dumps: Callable[[Any], bytes] | None) -> list[tuple[str, int]]:
    """Return, for each large value in `parts`, a phrase that says where it is, and its size in bytes.

    `dumps` pickles as the executor does, or is None if the executor's way of pickling is not known. Raises ToolError
    for a secret, and for a value that cannot be pickled.
    """
    large: list[tuple[str, int]] = []
    for location, own_name, value in parts:
        if isinstance(value, _PLAIN):
            continue
        data = b""
        try:
            data = (dumps or pickle.dumps)(value)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            if dumps is not None and not _is_secret(own_name, value):
                raise ToolError(_unpicklable(name, location, value, error)) from None
        if _is_secret(own_name, value) or holds_secret(data):
            raise ToolError(IN_PICKLE.format(name, location))
        if len(data) > LARGE:
            large.append((location, len(data)))
    return large


IN_PICKLE = (
    "{} was not run: {} holds a secret, which would be in the pickle that goes to the worker. Read it on the worker, "
    "inside the function: os.environ[...] or a file there."
)


def _unpicklable(name: str, location: str, value: object, error: Exception) -> str:
    reason = clip(single_line(redact(describe(error)), 200).rstrip("."), 200)
    return (
        f"{name} was not run: {location}, {a_type(value)}, cannot be sent to a worker ({reason}). "
        "Make it inside the function, on the worker."
    )


def large_notice(name: str, large: Sequence[tuple[str, int]], *, dask: bool) -> str:
    """Return the warning for the user about large values that are sent to a worker with each call of a tool."""
    values = ", ".join(f"{location} ({size / 1e6:,.0f} MB)" for location, size in large)
    advice = "Send it once, with x = client.scatter(x), or let" if dask else "Let"
    return f"Each call of {name} sends to a worker: {values}. {advice} the function read it there from a file."


def _is_secret(name: str, value: Any) -> bool:
    """Return whether a value is or contains a secret that is known, or is recognized by its pattern or its name."""
    waiting, count = [(name, value)], 0
    while waiting and count < MOST_ITEMS:
        key, item_value = waiting.pop()
        count += 1
        match item_value:
            case bytes() | bytearray():
                waiting.append((key, bytes(item_value[:MOST_TEXT]).decode("utf-8", "replace")))
            case str():
                text = item_value[:MOST_TEXT]
                # A name alone proves no secret, as in SORT_KEY = "customer". The text must look random too.
                if (is_secret_name(key) and is_random(text)) or redact(text, keep_likely=True, name=key) != text:
                    return True
            case Mapping():
                pairs = islice(cast("Mapping[Any, Any]", item_value).items(), MOST_ITEMS)
                waiting += [(str(inner), item) for inner, item in pairs]
            case list() | tuple() | set() | frozenset():
                waiting += [(key, item) for item in islice(cast("list[Any]", item_value), MOST_ITEMS)]
            case type() | ModuleType() | FunctionType():
                pass
            case _:
                # The names of attributes count only for classes of the notebook: a library's "pad_token" is harmless.
                own = type(item_value).__module__ == "__main__"
                waiting += [(inner if own else "", item) for inner, item in getattr(item_value, "__dict__", {}).items()]
    return False
