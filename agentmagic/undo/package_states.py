"""The state that loaded packages share with all callers, such as settings and random numbers: one table, read and set.

Undo watches each row of the table whose module is loaded, whichever names are bound in the notebook.
"""

import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import eq, is_
from types import ModuleType
from typing import Any, cast

from agentmagic.errors import describe
from agentmagic.log import logger

CHANGED_SINCE = "it has been changed since"
NOT_RESTORED = "it could not be put back wholly"
FIRST_LOADED = "its package was first loaded while the program ran"


def loaded_module(name: str, finished: str = "") -> ModuleType | None:
    """Return a module, or None if it has not been loaded wholly. `finished` is a module whose code has just ended."""
    module = sys.modules.get(name)
    is_loading = name != finished and getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_loading else module


def same_data(one: Any, other: Any) -> bool:
    """Return whether two states are equal, and of the same types: 1, 1.0 and True are different."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        entries, others = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return entries.keys() == others.keys() and all(
            value is others[key] or same_data(value, others[key]) for key, value in entries.items()
        )
    if isinstance(one, (list, tuple)):
        items, rest = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(rest) and (all(map(is_, items, rest)) or all(map(same_data, items, rest)))
    return bool(one == other)


@dataclass(frozen=True, slots=True)
class PackageState:
    """A row of the table: the state of one package, under a `name` for the user.

    The state exists if `module` is loaded. `read` returns it as data that does not change later, and `put` sets it.
    `set_by_imports` is True if packages set this state when they are first imported, and rely on it as long as they
    are loaded. Such a change belongs to the import, which undo does not take back either. `same` compares two states.
    """

    name: str
    module: str
    read: Callable[[Any], Any]
    put: Callable[[Any, Any], None]
    set_by_imports: bool = False
    same: Callable[[Any, Any], bool] = eq


# -- rows: each function gets the loaded module of its row -----------------------------------------------------


def _numpy_random(mtrand: Any) -> Any:
    generator = mtrand._rand  # noqa: SLF001  (the generator behind the functions of numpy.random)
    return generator._bit_generator, pickle.dumps(generator.get_state(legacy=False))  # noqa: SLF001


def _put_numpy_random(mtrand: Any, state: Any) -> None:
    generator = mtrand._rand  # noqa: SLF001
    if generator._bit_generator is not state[0]:  # noqa: SLF001  (`set_bit_generator` replaced it)
        mtrand.set_bit_generator(state[0])
    generator.set_state(pickle.loads(state[1]))  # noqa: S301  (made in this process, and never leaves it)


def _numpy_errors(numpy: Any) -> Any:
    return numpy.geterr(), numpy.geterrcall(), numpy.getbufsize()


def _put_numpy_errors(numpy: Any, state: Any) -> None:
    numpy.seterr(**state[0])
    numpy.seterrcall(state[1])
    numpy.setbufsize(state[2])


def settings_of(parameters: Any) -> dict[str, Any]:
    """Return the settings in an `RcParams` of matplotlib.

    Before the first figure, the backend and interactive mode are left out, because IPython sets them with that figure.
    """
    settings = dict(dict[str, Any].items(parameters))  # reading an entry in the usual way could choose the backend
    return {name: value for name, value in settings.items() if name not in _OF_FIRST_FIGURE or _has_figure()}


_OF_FIRST_FIGURE = frozenset({"backend", "interactive"})


def _matplotlib_settings(matplotlib: Any) -> Any:
    settings = settings_of(matplotlib.rcParams)
    # A list keeps its identity, because a variable may hold it.
    lists = {name: cast("list[Any]", value) for name, value in settings.items() if type(value) is list}
    return settings | {name: (value, value.copy()) for name, value in lists.items()}


def _has_figure() -> bool:
    return getattr(sys.modules.get("matplotlib.pyplot"), "_backend_mod", None) is not None


def _same_settings(one: Any, other: Any) -> bool:
    return same_data(one, {name: value for name, value in other.items() if name in one})


def _put_matplotlib_settings(matplotlib: Any, settings: Any) -> None:
    now = _matplotlib_settings(matplotlib)
    if _has_figure() and settings.get("backend", now["backend"]) != now["backend"]:
        sys.modules["matplotlib.pyplot"].switch_backend(settings["backend"])
    for name, value in settings.items():
        if not same_data(value, now.get(name)):
            is_list = isinstance(value, tuple) and type(cast("Any", value[0])) is list
            if is_list:
                value[0][:] = value[1]
            dict[str, Any].__setitem__(matplotlib.rcParams, name, value[0] if is_list else value)


def _pandas_options(_: Any) -> Any:
    options: dict[str, Any] = {}
    tree = cast("Any", sys.modules["pandas._config.config"])._global_config  # noqa: SLF001
    waiting: list[tuple[str, Any]] = [("", tree)]
    while waiting:
        prefix, tree = waiting.pop()
        for name, value in tree.items():
            if isinstance(value, dict):
                waiting.append((f"{prefix}{name}.", cast("dict[str, Any]", value)))
            else:
                options[prefix + name] = value
    return options


def _put_pandas_options(pandas: Any, options: Any) -> None:
    now = _pandas_options(pandas)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old option warns when it is set
        for name, value in options.items():
            if not same_data(value, now.get(name)):
                pandas.set_option(name, value)


def _polars_options(polars: Any) -> Any:
    snapshot = getattr(sys.modules["polars.config"], "_snapshot_runtime_vars", dict)
    environment = {name: value for name, value in os.environ.items() if not _is_of_environment(name)}
    return polars.Config.save(), environment, snapshot()


def _put_polars_options(polars: Any, state: Any) -> None:
    options, environment, runtime = state
    _put_variables(environment, lambda name: not _is_of_environment(name))
    polars.Config.load(options)
    if runtime:
        sys.modules["polars.config"]._restore_runtime_vars(runtime)  # noqa: SLF001  (`load` leaves these out)


_OF_POLARS = "POLARS_"


def _is_of_environment(name: str) -> bool:
    """Return whether a variable belongs to "environment variables", and not to the options of polars."""
    return not (name.startswith(_OF_POLARS) and "polars" in sys.modules)


def _environment(_: Any) -> Any:
    variables = dict(os.environ)
    if "polars" in sys.modules:
        variables = {name: value for name, value in variables.items() if _is_of_environment(name)}
    return variables, time.tzname


def _put_environment(_: Any, state: Any) -> None:
    _put_variables(state[0], _is_of_environment)
    if time.tzname != state[1]:
        time.tzset()  # reads the variable TZ


def _put_variables(variables: Mapping[str, Any], is_of_row: Callable[[str], bool]) -> None:
    """Set the environment variables of a row."""
    for name in os.environ.keys() - variables.keys():
        if is_of_row(name):
            del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


def _list_state(items: list[Any]) -> tuple[int, list[Any], tuple[Any, ...]]:
    """Return which list it is, and what it holds."""
    return id(items), items, tuple(items)


def _put_path(module: Any, state: Any) -> None:
    _, module.path, module.path[:] = state


def _filters(module: Any) -> Any:
    return _list_state(module.filters), module.showwarning


def _put_filters(module: Any, state: Any) -> None:
    (_, module.filters, module.filters[:]), function = state
    if (logs := cast("Any", sys.modules.get("logging"))) is not None:
        logs.captureWarnings(function is logs._showwarning)  # noqa: SLF001  (logging notes whether it is on)
    module.showwarning = function
    with module.catch_warnings():  # makes Python forget which warnings were shown with the other filters
        pass


_NEW_LOGGER = (0, False, True, (), ())
"""The state of a new logger: its level, whether it is disabled, whether it propagates, its handlers and filters."""


def _logging(module: Any) -> Any:
    root = module.root
    states = {"": _logger(root)}
    for name, one in dict(root.manager.loggerDict).items():
        is_new = not isinstance(one, module.Logger) or (
            not (one.level or one.disabled or one.handlers or one.filters) and one.propagate
        )
        if not is_new and name.partition(".")[0] != "agentmagic":
            states[name] = _logger(one)
    return root.manager.disable, states, {one: one.level for state in states.values() for one in state[3]}


def _logger(one: Any) -> Any:
    return one.level, one.disabled, one.propagate, tuple(one.handlers), tuple(one.filters)


def _put_logging(module: Any, state: Any) -> None:
    module.disable(state[0])
    loggers = state[1]
    for name in _logging(module)[1].keys() | loggers.keys():
        one = module.getLogger(name)
        level, one.disabled, one.propagate, handlers, filters = loggers.get(name, _NEW_LOGGER)
        one.handlers[:], one.filters[:] = handlers, filters
        one.setLevel(level)  # also clears the cache of levels
    for handler, level in state[2].items():
        handler.setLevel(level)


_OF_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _decimal(decimal: Any) -> Any:
    context = decimal.getcontext()  # its flags are left out, because a division sets them
    return tuple(getattr(context, name) for name in _OF_CONTEXT), dict(context.traps)


def _put_decimal(decimal: Any, state: Any) -> None:
    context = decimal.getcontext()
    for name, value in zip(_OF_CONTEXT, state[0], strict=True):
        setattr(context, name, value)
    context.traps.update(state[1])


TABLE = (
    PackageState(
        "random numbers of Python",
        "random",
        lambda random: random.getstate(),
        lambda random, state: random.setstate(state),
    ),
    PackageState("random numbers of numpy", "numpy.random.mtrand", _numpy_random, _put_numpy_random),
    PackageState(
        "print options of numpy",
        "numpy",
        lambda numpy: numpy.get_printoptions(),
        lambda numpy, options: numpy.set_printoptions(**options),
        same=same_data,
    ),
    PackageState("error settings of numpy", "numpy", _numpy_errors, _put_numpy_errors),
    PackageState(
        "settings of matplotlib", "matplotlib", _matplotlib_settings, _put_matplotlib_settings, same=_same_settings
    ),
    PackageState("options of pandas", "pandas", _pandas_options, _put_pandas_options, same=same_data),
    PackageState("options of polars", "polars", _polars_options, _put_polars_options, same=same_data),
    PackageState(
        "settings of scikit-learn",
        "sklearn",
        lambda sklearn: sklearn.get_config(),
        lambda sklearn, settings: sklearn.set_config(**settings),
        same=same_data,
    ),
    PackageState("environment variables", "os", _environment, _put_environment, set_by_imports=True),
    PackageState("sys.path", "sys", lambda sys: _list_state(sys.path), _put_path, set_by_imports=True, same=same_data),
    PackageState("warning filters", "warnings", _filters, _put_filters, set_by_imports=True, same=same_data),
    PackageState("logging levels and handlers", "logging", _logging, _put_logging, set_by_imports=True),
    PackageState("decimal context", "decimal", _decimal, _put_decimal),
    PackageState(
        "locale",
        "locale",
        lambda locale: locale.setlocale(locale.LC_ALL),
        lambda locale, name: locale.setlocale(locale.LC_ALL, name),
    ),
    PackageState("working folder", "os", lambda os: os.getcwd(), lambda os, path: os.chdir(path)),
    PackageState(
        "recursion limit", "sys", lambda sys: sys.getrecursionlimit(), lambda sys, limit: sys.setrecursionlimit(limit)
    ),
)
"""All states of packages that undo watches. The page docs/explanation/undo.md lists their names."""
_ROWS = {row.name: row for row in TABLE}


def read_states(only: Iterable[str] = _ROWS, finished: str = "") -> dict[str, Any]:
    """Return the states of the loaded packages, by the name of the row. A state that cannot be read is left out.

    `finished` is the name of a module whose code has just ended.
    """
    states: dict[str, Any] = {}
    for row in map(_ROWS.__getitem__, only):
        if row.module in sys.modules and (module := loaded_module(row.module, finished)) is not None:
            try:
                states[row.name] = row.read(module)
            except Exception:  # noqa: BLE001  (the package may be of a version that has no such state)
                logger.debug("the %s cannot be read", row.name, exc_info=True)
    return states


def _same(name: str, states: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    if name not in states or name not in others:
        return name not in states and name not in others
    try:
        return _ROWS[name].same(states[name], others[name])
    except Exception:  # noqa: BLE001  (objects of other code are compared)
        return False


@dataclass(eq=False, repr=False)
class PackageLook:
    """The states of packages before and after code ran, by the name of the row.

    The states of a package that the code loads first are those that the package had when it was loaded. `on_import` is
    called when such a package, or another module, has been loaded.
    """

    before: dict[str, Any] = field(default_factory=dict[str, Any])
    after: dict[str, Any] = field(default_factory=dict[str, Any])
    on_import: Callable[[str], None] | None = None

    def begin(self) -> None:
        """Read the states before code runs. If this is called again for the same code, the first states count."""
        self.before = read_states() | self.before

    def end(self) -> None:
        """Read the states after the code ran."""
        self.after = read_states()

    @cached_property
    def touched_names(self) -> set[str]:
        """The names of the states that the code changed. Read it only after `end`."""
        return {name for name in self.before if not _same(name, self.before, self.after)}

    @property
    def unwatched(self) -> dict[str, str]:
        """The names of the states that the code may have changed, each with the reason."""
        return dict.fromkeys(self.after.keys() - self.before.keys(), FIRST_LOADED)

    def unchanged_names(self) -> list[str]:
        """Return the states that imports may set, and that are still as they were before the code ran."""
        names = [row.name for row in TABLE if row.set_by_imports and row.name in self.before]
        now = read_states(names)
        return [name for name in names if _same(name, self.before, now)]

    def accept_import(self, module: str, names: Iterable[str]) -> None:
        """Count the present states of `names`, and of packages loaded since, as the states before the code ran."""
        new = [row.name for row in TABLE if row.name not in self.before]
        self.before |= read_states([*names, *new], module)
        if self.on_import is not None:
            self.on_import(module)

    def restore(self) -> tuple[set[str], dict[str, str], "PackageLook"]:
        """Restore the states that the code changed, except those that were changed again later.

        Return the names that were restored, the names that were left alone with the reasons, and the reverse changes.
        """
        refused, now = self.unwatched, read_states()
        for name in sorted(self.touched_names):
            if _same(name, self.before, now):
                continue
            if not _same(name, self.after, now):
                refused[name] = CHANGED_SINCE
                continue
            try:
                _ROWS[name].put(sys.modules[_ROWS[name].module], self.before[name])
            except Exception as error:  # noqa: BLE001  (code of a package may raise anything)
                refused[name] = f"it could not be put back: {describe(error)}"
        later = read_states()
        for name in self.touched_names - refused.keys():
            if not _same(name, self.before, later):
                refused[name] = NOT_RESTORED
        return self.touched_names - refused.keys(), refused, PackageLook(now, later)
