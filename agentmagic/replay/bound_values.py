"""The variables that a program of the model has changed in the notebook: kept on the tape, and put back in a replay.

What is kept is data: JSON, values of NumPy, frames and series as CSV with the types of their columns, and the names of
modules. A value is kept if it comes back as it was. What a cassette says is untrusted: nothing of it is evaluated.
"""

import io
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Any, cast

from agentmagic.errors import CassetteError
from agentmagic.replay.exchange import Json, blanked
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.text import listed, one_line
from agentmagic.tools import values
from agentmagic.tools.base import ToolContext
from agentmagic.tools.notebook.base import attached
from agentmagic.tools.notebook.variables import summary, user_variables

LARGEST_KEPT = 1_000_000
"""Characters of a variable on the tape."""
MOST_KEPT = 200
"""Variables of one call."""
MOST_ITEMS = 200_000
"""Values within a variable."""
DEEPEST = 20
LIBRARIES = ("numpy", "pandas", "matplotlib", "polars", "seaborn", "scipy")
"""Packages that a replay imports; of all others, only modules that are loaded are bound."""

_MISSING: Any = object()


@contextmanager
def recorded_changes(
    context: ToolContext, watch: Callable[[], AbstractContextManager[object]], hear: Callable[..., None]
) -> Generator[None]:
    """Put the variables that the block changes on the tape, and tell the user which of them cannot be kept."""
    with watch() as names:
        yield
    if (notebook := attached()) is None or not names:
        return
    changed = sorted(cast("set[str]", names))
    kept: Json = {}
    lost: list[str] = []
    for name in changed[:MOST_KEPT]:
        value = notebook.namespace.get(name, _MISSING)
        if (entry := written(name, value)) is not None:
            kept[name] = entry
        else:
            lost.append(f"{name} ({values.summary(value)})")
    hear("variables", kept)
    if lost := [*lost, *changed[MOST_KEPT:]]:
        context.tell(f"A replay of this cell lacks what a cassette cannot keep: {one_line(listed(lost, 10), 300)}.")


def written(name: str, value: Any) -> Json | None:
    """Return a variable as JSON, secrets blanked, or None if it cannot be kept. `_MISSING` stands for one removed."""
    if value is _MISSING:
        return {"removed": True}
    if isinstance(value, ModuleType):
        return {"module": value.__name__}
    summary(name, value)  # learns the value of a variable that is named like a secret
    with suppress(Exception):  # the library that made a value may fail on it
        entry = _entry(value)
        if entry is None or len(json.dumps(entry)) > LARGEST_KEPT or not _same(read(entry), value):
            return None
        safe = {**entry, "csv": redact(entry["csv"])} if "csv" in entry else blanked(entry)
        read(safe)  # raises if the blanks have taken more than values
        return safe
    return None


def read(entry: Mapping[str, Any]) -> Any:
    """Return the value that was written. Raises any exception for an entry of none."""
    match entry:
        case {"csv": str(), "columns": list(), "index": list()}:
            return _frame(entry)
        case {"value": value, "dtype": str() as dtype}:
            array = _library("numpy").array(value, dtype=dtype)
            return array if isinstance(value, list) else array[()]
        case {"value": value}:
            return value
        case _:
            raise ValueError


async def put_back(kept: Mapping[str, Any], context: ToolContext) -> None:
    """Bind the variables of a tape in the notebook, as a change of the call. Raises CassetteError for a bad entry."""
    notebook = attached()
    if notebook is None:
        return
    namespace, absent = notebook.namespace, list[str]()

    def bind() -> None:
        with context.watch(), engine().main.kept(context.call, put_back):
            absent.extend(bound(kept, namespace))

    await engine().run_user(bind)
    if absent:
        context.tell(f"The replay did not bind {listed(absent, 10)}: the module is not loaded. Import it in a cell.")


def bound(kept: Mapping[str, Any], namespace: MutableMapping[str, Any]) -> Iterator[str]:
    """Bind variables; yield the names of modules that are not loaded."""
    for name, entry in kept.items():
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
                namespace[name] = read(entry)
        except Exception as error:  # a library may raise anything
            words = f"The variable {one_line(name, 60)!r} on the cassette cannot be read. "
            raise CassetteError(f"{words}Undo the edit, or record the cell again: %agent record") from error


def _module(name: str) -> ModuleType | None:
    if name.partition(".")[0] in LIBRARIES:  # no other is imported: importing runs code
        with suppress(ImportError):
            return import_module(name)
    return sys.modules.get(name)


# -- values ------------------------------------------------------------------------------------------


def _entry(value: Any) -> Json | None:
    if _is_json(value):
        return {"value": value}
    numpy, pandas = (cast("Any", sys.modules.get(name)) for name in ("numpy", "pandas"))
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        fits = value.dtype.kind in "biuf" and value.size <= MOST_ITEMS and type(value).__module__ == "numpy"
        return {"value": value.tolist(), "dtype": str(value.dtype)} if fits else None
    if pandas is not None and type(value) in (pandas.DataFrame, pandas.Series) and value.size <= MOST_ITEMS:
        return _csv(value)
    return None


def _library(name: str) -> Any:
    return import_module(name)


def _is_json(value: Any) -> bool:
    """Return whether a value is made of the types of JSON alone, and not too large or deep."""
    left: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(MOST_ITEMS):
        if not left:
            return True
        one, depth = left.pop()
        kind = cast("Any", type(one))
        if kind in (dict, list) and depth < DEEPEST and len(one) + len(left) <= MOST_ITEMS:
            if kind is dict and not all(type(key) is str for key in one):
                return False
            left.extend((item, depth + 1) for item in (one.values() if kind is dict else one))
        elif kind not in (str, int, float, bool, type(None)):
            return False
    return False


def _csv(value: Any) -> Json:
    """Return a frame or series of pandas as CSV, its index first unless it only counts the rows."""
    pd = _library("pandas")
    frame = value.to_frame() if isinstance(value, pd.Series) else value
    names = [value.name] if isinstance(value, pd.Series) else list(frame.columns)
    index = frame.index
    counts = type(index) is pd.RangeIndex and (index.start, index.step, index.name) == (0, 1, None)
    levels = [] if counts else [index.get_level_values(level) for level in range(index.nlevels)]
    entry: Json = {"columns": [[name, str(frame.iloc[:, at].dtype)] for at, name in enumerate(names)]}
    entry["index"] = [[level.name, str(level.dtype)] for level in levels]
    if isinstance(value, pd.Series):
        entry["series"] = True
    elif frame.columns.name is not None:
        entry["across"] = frame.columns.name
    entry["csv"] = frame.to_csv(index=bool(levels), lineterminator="\n")
    return entry


def _frame(entry: Mapping[str, Any]) -> Any:
    pd = _library("pandas")
    columns, index = entry["columns"], entry["index"]
    types: list[str] = [str(dtype) for _, dtype in (*index, *columns)]
    later: dict[str, Callable[[Any], Any]] = {
        "datetime": pd.to_datetime,
        "timedelta": pd.to_timedelta,
        "float": lambda column: column,
    }
    found = [next((convert for name, convert in later.items() if dtype.startswith(name)), None) for dtype in types]
    frame = pd.read_csv(
        io.StringIO(entry["csv"]),
        header=None,
        skiprows=1,
        names=range(len(types)),
        dtype={at: dtype if found[at] is None else "object" for at, dtype in enumerate(types)},
        keep_default_na=False,
        skip_blank_lines=False,
        na_values=[""],
    )
    for at, convert in enumerate(found):  # the reader has no times, and older ones round floats
        if convert is not None:
            frame[at] = convert(frame[at]).astype(types[at])
    levels = [pd.Index(frame.pop(at)).rename(name) for at, (name, _) in enumerate(index)]
    frame.columns = pd.Index([name for name, _ in columns], name=entry.get("across"))
    if levels:
        frame.index = levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)
    return frame.iloc[:, 0] if "series" in entry else frame


def _same(one: Any, other: Any) -> bool:
    """Return whether a value that was read is the one that was written."""
    if hasattr(other, "equals"):
        index = one.index.equals(other.index) and list(one.index.names) == list(other.index.names)
        return bool(one.equals(other) and index and _labels(one) == _labels(other))
    if hasattr(other, "dtype"):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes() and one.shape == other.shape)
    return one is other


def _labels(value: Any) -> object:
    return (list(value.columns), value.columns.name) if hasattr(value, "columns") else value.name
