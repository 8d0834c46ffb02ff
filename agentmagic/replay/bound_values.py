"""The notebook variables that a tool call changed: they are recorded in the cassette file, and set in a replay.

Values are recorded as data: built-in types and NumPy values as JSON, frames and series as CSV with the types of their
columns, and modules by name. A value is recorded only if reading it back gives an equal value. Any other value is
recorded as lost, and a replay stops at that call. A cassette is untrusted: nothing in it is evaluated.
"""

import io
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from datetime import date, datetime, timezone
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Any, cast

from agentmagic.errors import CassetteError
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.text import join_names, single_line
from agentmagic.tools.base import ToolContext, Watch
from agentmagic.undo.changes import Changes
from agentmagic.undo.own import user_variables
from agentmagic.undo.states import copy_into
from agentmagic.undo.variables import summary
from agentmagic.values import describe

LARGEST_VARIABLE = 1_000_000
"""Maximum number of characters recorded for one variable."""
MOST_VARIABLES = 200
"""Maximum number of variables recorded for one call."""
MOST_ITEMS = 200_000
"""Maximum number of values inside one variable."""
DEEPEST = 20
NUMBERS = "biuf"
"""The kinds of NumPy dtypes that are recorded: booleans, integers and floats."""
LIBRARIES = ("numpy", "pandas", "matplotlib", "polars", "seaborn", "scipy")
"""Packages that a replay may import. A module of any other package is bound only if it is already loaded."""

MOST_NAMED = 10
LONGEST_KIND = 80
"""Maximum number of characters in the description of a lost value."""
REPLAY_MODEL = "To have its tools run again, replay it with %agent replay model (AGENTMAGIC_REPLAY=replay-model)."

_MISSING: Any = object()


@contextmanager
def recorded_changes(
    context: ToolContext, watch: Watch, hear: Callable[..., None], function: object
) -> Generator[Changes | None]:
    """Record the variables that a `with` block changes, even if it raises. Warn if one cannot be recorded."""
    with watch(function) as changes:
        try:
            yield changes
        finally:
            if changes is not None:  # calls inside a call share `changes`; the call that ends last sets the callback
                changes.on_compared = lambda: _record(changes, context, hear)


def _record(changes: Changes, context: ToolContext, hear: Callable[..., None]) -> None:
    entries: Json = {}
    for name in sorted(changes.touched_names - changes.modules.keys()):
        value = changes.namespace.get(name, _MISSING)
        entry = to_entry(name, value) if len(entries) < MOST_VARIABLES else None
        if entry is not None:
            in_place = value is not _MISSING and changes.before.bindings.get(name) is value
            entries[name] = entry | ({"in_place": True} if in_place else {})
        elif not _is_stored_elsewhere(value):
            entries[name] = {"lost": single_line(describe.summary(value), LONGEST_KIND)}
    if not entries:
        return
    hear("variables", entries)
    if left_out := lost_variables(entries):
        context.tell(f"A cassette cannot keep {describe_lost(left_out)}. A replay of this cell fails. {REPLAY_MODEL}")


def to_entry(name: str, value: Any) -> Json | None:
    """Return a variable as JSON with secrets blanked, or None if it cannot be recorded.

    The value `_MISSING` means that the variable was removed.
    """
    if value is _MISSING:
        return {"removed": True}
    if isinstance(value, ModuleType):
        return {"module": value.__name__}
    summary(name, value)  # as a side effect, registers a secret if the name looks like one (API_KEY)
    with suppress(Exception):  # methods of a library's objects can raise any exception
        entry = _entry(value)
        if entry is None or len(json.dumps(entry)) > LARGEST_VARIABLE or not _same(from_entry(entry), value):
            return None
        safe = {**entry, "csv": redact(entry["csv"])} if "csv" in entry else blank_secrets(entry)
        from_entry(safe)  # raises if blanking the secrets has made the entry unreadable
        return safe
    return None


def from_entry(entry: Mapping[str, Any]) -> Any:
    """Return the value from the JSON that `to_entry` returned. Can raise any exception, for example for a module."""
    match entry:
        case {"csv": str(), "columns": list(), "index": list()}:
            return _frame(entry)
        case {"value": value, "dtype": str() as dtype}:
            numpy = _library("numpy")
            if numpy.dtype(dtype).kind not in NUMBERS:
                raise ValueError
            array = numpy.array(value, dtype=dtype)
            return array if isinstance(value, list) else array[()]
        case {"value": value}:
            return _from_json(value)
        case _:
            raise ValueError


def lost_variables(variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of recorded variables whose value is lost, each with a description of the value."""
    entries = ((str(name), cast("Json", entry)) for name, entry in variables.items() if isinstance(entry, dict))
    return {name: str(entry["lost"]) for name, entry in entries if "lost" in entry}


def describe_lost(variables: Mapping[str, str]) -> str:
    """Return one line with the names and descriptions of variables that could not be recorded."""
    return single_line(join_names([f"{name} ({kind})" for name, kind in variables.items()], MOST_NAMED), 300)


async def restore_variables(entries: Mapping[str, Any], context: ToolContext) -> None:
    """Set notebook variables to their recorded values, so that the replayed tool call counts as changing them.

    Raises CassetteError if a recorded value is invalid.
    """
    absent = list[str]()

    def bind() -> None:
        with context.watch(restore_variables) as changes:
            if changes is not None:
                changes.expect(entries.keys())
                absent.extend(bind_variables(entries, changes.namespace))

    await engine().run_user(bind)
    if absent:
        context.tell(
            f"The replay did not bind {join_names(absent, 10)}: the module is not loaded. Import it in a cell."
        )


def bind_variables(entries: Mapping[str, Any], namespace: MutableMapping[str, Any]) -> Iterator[str]:
    """Set the recorded variables in a namespace, or change their values in place.

    Yield the names of variables whose module is not loaded. Raises CassetteError if a recorded value is invalid.
    """
    for name, entry in entries.items():
        try:
            if not name.isidentifier() or iskeyword(name) or not user_variables({name: None}):
                raise ValueError  # noqa: TRY301  (the error below tells it)
            if "removed" in entry:
                namespace.pop(name, None)
            elif "module" in entry:
                module = _module(str(entry["module"]))
                if module is None:
                    yield name
                    continue
                namespace[name] = module
            else:
                value = from_entry(entry)
                if not (entry.get("in_place") is True and copy_into(namespace.get(name), value)):
                    namespace[name] = value
        except Exception as error:  # code of a library, such as pandas, can raise anything
            message = f"The variable {single_line(name, 60)!r} on the cassette cannot be read. "
            raise CassetteError(f"{message}Undo the edit, or record the cell again: %agent record") from error


def _is_stored_elsewhere(value: Any) -> bool:
    """Return whether a value need not be recorded: a plot is in the cell's output anyway, and a file is on disk."""
    return isinstance(value, io.IOBase) or type(value).__module__.partition(".")[0] == "matplotlib"


def _module(name: str) -> ModuleType | None:
    if name.partition(".")[0] in LIBRARIES:  # import no other package: that would run its code
        with suppress(ImportError):
            return import_module(name)
    return sys.modules.get(name)


# -- values ------------------------------------------------------------------------------------------


def _entry(value: Any) -> Json | None:
    if _is_plain(value):
        return {"value": _to_json(value)}
    numpy, pandas = (cast("Any", sys.modules.get(name)) for name in ("numpy", "pandas"))
    if numpy is not None and type(value) is numpy.ndarray:
        fits = value.dtype.kind in NUMBERS and value.size <= MOST_ITEMS
        return {"value": value.tolist(), "dtype": str(value.dtype)} if fits else None
    if pandas is not None and type(value) in (pandas.DataFrame, pandas.Series) and value.size <= MOST_ITEMS:
        return _csv(value)
    return None


def _library(name: str) -> Any:
    return import_module(name)


def _is_plain(value: Any) -> bool:
    """Return whether a value contains only types that `_to_json` accepts, and is not too large or too deep."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(MOST_ITEMS):
        if not stack:
            return True
        current, depth = stack.pop()
        kind = cast("Any", type(current))
        if kind in (dict, list, tuple, set, frozenset) and depth < DEEPEST and len(current) + len(stack) <= MOST_ITEMS:
            stack.extend((item, depth + 1) for item in current)
            stack.extend((item, depth + 1) for item in (current.values() if kind is dict else ()))
        elif kind is datetime:
            if current.fold or type(current.tzinfo) not in (type(None), timezone):
                return False
        elif kind not in (str, int, float, bool, type(None), date) and not _is_number(current):
            return False
    return False


def _is_number(value: Any) -> bool:
    numpy = cast("Any", sys.modules.get("numpy"))
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in NUMBERS


def _to_json(value: Any) -> Any:
    """Return a plain value as JSON. If JSON lacks its type, return a dict whose key names the type, such as `$set`."""
    kind = cast("type[Any]", type(value))
    if kind is dict:
        return _dict_to_json(value)
    if kind is list:
        return list(map(_to_json, value))
    if kind in (tuple, set, frozenset):
        items = value if kind is tuple else sorted(value, key=repr)
        return {f"${kind.__name__}": list(map(_to_json, items))}
    if kind in (date, datetime):
        return {f"${kind.__name__}": value.isoformat()}
    return {"$number": [value.item(), str(value.dtype)]} if _is_number(value) else value


def _dict_to_json(value: Mapping[Any, Any]) -> Json:
    pairs = [(key, _to_json(inner)) for key, inner in value.items()]
    if all(type(key) is str for key, _ in pairs) and (len(pairs) != 1 or pairs[0][0] not in _READERS):
        return dict(pairs)
    return {"$dict": [[_to_json(key), inner] for key, inner in pairs]}


def _from_json(data: Any) -> Any:
    match data:
        case list():
            return list(map(_from_json, cast("list[Any]", data)))
        case dict():
            whole = cast("Json", data)
            name = next(iter(whole)) if len(whole) == 1 else ""
            if name in _READERS:
                return _READERS[name](whole[name])
            return {key: _from_json(inner) for key, inner in whole.items()}
        case _:
            return data


_READERS: dict[str, Callable[[Any], Any]] = {
    "$tuple": lambda items: tuple(map(_from_json, items)),
    "$set": lambda items: set(map(_from_json, items)),
    "$frozenset": lambda items: frozenset(map(_from_json, items)),
    "$dict": lambda pairs: {_from_json(key): _from_json(inner) for key, inner in pairs},
    "$date": date.fromisoformat,
    "$datetime": datetime.fromisoformat,
    "$number": lambda pair: from_entry({"value": pair[0], "dtype": pair[1]}),
}


def _csv(value: Any) -> Json:
    """Return a pandas frame or series as an entry with CSV. An index that is not a range comes first in the CSV."""
    pd = _library("pandas")
    frame = value.to_frame() if isinstance(value, pd.Series) else value
    names = [value.name] if isinstance(value, pd.Series) else list(frame.columns)
    index = frame.index
    entry: Json = {"columns": [_column(name, frame.iloc[:, at]) for at, name in enumerate(names)], "index": []}
    if type(index) is not pd.RangeIndex:
        entry["index"] = [_column(level.name, level) for level in map(index.get_level_values, range(index.nlevels))]
    elif (index.start, index.step, index.name) != (0, 1, None):
        entry["range"] = [index.start, index.stop, index.step, index.name]
    if index.dtype.kind in "mM" and index.freq is not None:
        entry["freq"] = index.freqstr
    if isinstance(value, pd.Series):
        entry["series"] = True
    elif frame.columns.nlevels > 1:
        entry["across"] = list(frame.columns.names)
        frame = frame.set_axis(list(map(str, names)), axis=1)
    elif frame.columns.name is not None:
        entry["across"] = frame.columns.name
    entry["csv"] = frame.to_csv(index=bool(entry["index"]), lineterminator="\n")
    return entry


def _column(name: Any, values: Any) -> list[Any]:
    """Return the name and dtype of a column or index level, and the categories if it is categorical."""
    dtype = values.dtype
    kinds = [dtype.categories.tolist(), dtype.ordered] if str(dtype) == "category" else []
    return [_to_json(name), str(dtype), *kinds]


def _frame(entry: Mapping[str, Any]) -> Any:
    pd = _library("pandas")
    columns, index = entry["columns"], entry["index"]
    types = [pd.CategoricalDtype(*kinds) if kinds else str(dtype) for _, dtype, *kinds in (*index, *columns)]
    later: dict[str, Callable[[Any], Any]] = {
        "datetime": pd.to_datetime,
        "timedelta": pd.to_timedelta,
        "float": lambda column: column,
    }
    converters = [
        next((convert for name, convert in later.items() if str(dtype).startswith(name)), None) for dtype in types
    ]
    frame = pd.read_csv(
        io.StringIO(entry["csv"]),
        header=None,
        skiprows=1,
        names=range(len(types)),
        dtype={at: dtype if converters[at] is None else "object" for at, dtype in enumerate(types)},
        keep_default_na=False,
        skip_blank_lines=False,
        na_values=[""],
    )
    for at, convert in enumerate(converters):  # times and floats were read as text: old pandas would round floats
        if convert is not None:
            frame[at] = convert(frame[at]).astype(types[at])
    levels = [pd.Index(frame.pop(at)).rename(_from_json(name)) for at, (name, *_) in enumerate(index)]
    names, across = [_from_json(name) for name, *_ in columns], entry.get("across")
    several = isinstance(across, list)
    frame.columns = pd.MultiIndex.from_tuples(names, names=across) if several else pd.Index(names, name=across)
    if levels:
        frame.index = levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)
    if "range" in entry:
        start, stop, step, name = entry["range"]
        frame.index = pd.RangeIndex(start, stop, step, name=name)
    if "freq" in entry:
        frame.index.freq = entry["freq"]
    return frame.iloc[:, 0] if "series" in entry else frame


def _same(copy: Any, original: Any) -> bool:
    """Return whether `copy`, read back from the recorded form of `original`, equals `original`."""
    if hasattr(original, "equals"):
        return bool(
            copy.equals(original)
            and copy.index.equals(original.index)
            and _table_labels(copy) == _table_labels(original)
        )
    if hasattr(original, "dtype"):
        return bool(
            copy.dtype == original.dtype and copy.tobytes() == original.tobytes() and copy.shape == original.shape
        )
    return type(copy) is type(original)


def _table_labels(table: Any) -> tuple[Any, ...]:
    """Return the labels of a pandas frame or series, the type, names and frequency of its index, and its `attrs`."""
    labels = (list(table.columns), list(table.columns.names)) if hasattr(table, "columns") else table.name
    index: Any = table.index
    return labels, type(index).__name__, list(index.names), getattr(index, "freq", None), table.attrs
