"""What a program would do to the notebook, by its syntax tree: names read, written and removed, imports, risks.

The analysis takes sides: what it cannot decide is `unknown`, never harmless. It is for the card that asks the user and
for what is kept before a program runs. It is no sandbox. Of names that shared an object before the program began, it
names only the one that the program uses.
"""

import ast
import builtins
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from agentmagic.runtime.exits import NAMES as EXITS

OFFERED = ("tools", "agent_tools")
"""The names under which a program has the tools of the turn as functions; a variable of the user hides its name."""
UNKNOWN = "cannot be known"
"""What a card says of the effects that the syntax tree does not show."""


SHELL_NAMES = frozenset({
    *("exit", "quit", "open", "get_ipython"),
    *("__builtins__", "__builtin__", "__loader__", "__spec__", "__import__"),
})  # fmt: skip
"""Names of functions and of the interpreter's parts that IPython and Python put into the namespace of a notebook."""
_SHELL_MODULES = frozenset({"IPython", "ipykernel", "_sitebuiltins", "io", "_io"})
"""Packages of the functions; IPython's `open` says that it is one of `io`."""


def is_of_shell(name: str, value: object) -> bool:
    """Return whether a name of SHELL_NAMES holds what IPython or Python put there, and is not rebound by the user."""
    if name not in SHELL_NAMES or name.startswith("__"):
        return name in SHELL_NAMES
    is_function = isinstance(value, (FunctionType, MethodType, BuiltinFunctionType))
    modules = [value.__module__] if is_function else [one.__module__ for one in type(value).__mro__]
    return any(str(module).partition(".")[0] in _SHELL_MODULES for module in modules)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _told(rows: Mapping[str, str]) -> Mapping[str, str]:
    return {word: risk for risk, words in rows.items() for word in words.split()}


_NONE: frozenset[str] = frozenset()
_RUNS, _FILES, _PROCESSES, _NETWORK = "runs code from text", "works with files", "starts processes", "uses the network"
_PICKLES, _SYSTEM = "loads pickles, which can run code", "reaches into the interpreter"
_ENDS = "can end the kernel, with all its variables"
_RISKY_NAMES = _told({
    _RUNS: "eval exec compile __import__",
    _FILES: "open",
    _SYSTEM: "get_ipython breakpoint __builtins__ __builtin__ __loader__",
    _ENDS: "_exit",
})  # fmt: skip
_RISKY_MODULES = _told({
    _FILES: "os shutil pathlib tempfile io glob fileinput zipfile tarfile sqlite3 dbm",
    _PROCESSES: "subprocess multiprocessing pty threading concurrent asyncio",
    _NETWORK: "socket ssl requests urllib urllib3 httpx httpx2 aiohttp http ftplib smtplib poplib imaplib socketserver "
    "xmlrpc websockets webbrowser paramiko boto3",
    _PICKLES: "pickle marshal shelve joblib dill cloudpickle",
    _RUNS: "importlib runpy code codeop",
    _SYSTEM: "ctypes cffi gc inspect sys builtins __main__ IPython atexit",
    _ENDS: "signal faulthandler",
})  # fmt: skip
_RISKY_METHODS = _told({
    _FILES: "write_text write_bytes unlink rmdir mkdir makedirs rmtree rename touch chmod symlink_to savefig tofile "
    "save savez savetxt memmap to_csv to_excel to_parquet to_json to_sql to_feather to_hdf to_pickle to_html write_csv "
    "write_parquet dump",
    _PROCESSES: "system popen Popen check_output check_call spawn fork execv run_cell",
    _NETWORK: "urlopen urlretrieve",
    _PICKLES: "read_pickle",
    _RUNS: "import_module run_line_magic run_cell_magic",
    _SYSTEM: "__globals__ __dict__ __builtins__ __subclasses__ user_ns modules f_globals",
    _ENDS: "_exit raise_signal pthread_kill do_shutdown",
})  # fmt: skip
_RISKY_FUNCTIONS = {
    "os": _told({_ENDS: "abort kill killpg execl execle execlp execlpe execv execve execvp execvpe"}),
}
"""Of modules whose other functions have another risk."""

_SCALARS = _words(
    "len str repr ascii print abs int float bool complex bytes round isinstance issubclass callable hash id any all "
    "format chr ord bin hex oct pow divmod range"
)
"""Built-in functions that change nothing, and whose value shares nothing with their arguments."""
_SHARING = _words("list dict set frozenset tuple sorted sum min max enumerate zip reversed map filter slice")
"""Built-in functions that change nothing, and whose value may hold parts of their arguments."""
_QUIET = _words("sep end flush key default start reverse strict ndigits base encoding")
"""Keywords of those functions; `file=` of print, for example, is none of them."""
_COPIES = _words(
    "copy count index sum mean median std var min max describe nunique value_counts quantile corr cov round abs all "
    "any argmax argmin idxmax idxmin cumsum isna notna tolist to_dict to_list to_string upper lower strip split join "
    "startswith endswith replace title format sqrt log exp floor ceil dot unique"
)
"""Methods of Python's and the data libraries' values that change nothing and return something new."""
_SHALLOW = _words("copy tolist to_list to_dict unique sum min max cumsum replace")
"""Those of them whose new value may hold the very objects that the old one holds."""
_VIEWS = _words(
    "head tail shape size ndim dtype dtypes columns index values T iloc loc at iat name names real imag pi e str dt "
    "keys items get groupby sort_values nlargest nsmallest agg reset_index set_index dropna merge reshape ravel "
    "transpose astype"
)
"""Attributes and methods of them that change nothing; their values may share data with the object."""
_MUTATORS = _words(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard difference_update "
    "intersection_update symmetric_difference_update fill resize put itemset setflags partition appendleft popleft "
    "extendleft rotate move_to_end subtract write writelines shuffle __setitem__ __delitem__ __setattr__ __iadd__ "
    "__ior__ send throw close"
)
_LIBRARIES = _words("pandas numpy polars math statistics datetime decimal")
_DATA = (int, float, complex, bool, str, bytes, type(None), range, slice)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_MOST_ITEMS = 2000
"""Values that are looked at to see that one holds data only."""
_MOST_PASSES = 8

_ESCAPED = re.compile(r"^(?P<margin>[ \t]*)(?:(?P<bound>[\w ,.\[\]'\"]+?)\s*=\s*)?(?P<mark>%%|%|!!|!)(?P<rest>.*)$")
_HELP = re.compile(r"^[ \t]*(?:\?{1,2}\s*[\w.%*]+|[\w.%*]+\?{1,2})\s*;?$")

_SIMPLE = (
    ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.FormattedValue, ast.Starred,
    ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.If, ast.While, ast.Try, ast.TryStar, ast.Assert, ast.Raise,
    ast.Return, ast.Module, ast.Expr,
)  # fmt: skip
"""Nodes that bind nothing themselves. Their parts are looked at in order."""
_LITERALS = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred)
"""Those that run no code of the values in them."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program and what it would do.

    `risks` are lines for the user who is asked. With `unknown` the program may do more than is named here. `calls` are
    the tools that it calls as functions.
    """

    code: str
    reads: frozenset[str] = _NONE
    writes: frozenset[str] = _NONE
    removes: frozenset[str] = _NONE
    imports: frozenset[str] = _NONE
    risks: tuple[str, ...] = ()
    unknown: bool = False
    calls: frozenset[str] = _NONE

    @property
    def names(self) -> frozenset[str] | None:
        """The names of the notebook that the program mentions, or None if it may reach others."""
        try:
            return names_of(compile(self.code, "<program>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @property
    def only_reads(self) -> bool:
        """Whether the program certainly changes nothing of the notebook, and has no risky call."""
        return not (self.writes or self.removes or self.risks or self.unknown)

    def lines(self) -> tuple[str, ...]:
        """Return what a user should know before the program runs, one line each."""
        named = (
            ("Reads", self.reads),
            ("Writes", self.writes),
            ("Removes", self.removes),
            ("Imports", self.imports),
            ("Calls tools", self.calls),
        )
        told = [f"{word}: {', '.join(sorted(names))}" for word, names in named if names]
        risks = [f"Risk: {risk}" for risk in self.risks]
        end = f"What else it changes {UNKNOWN}." if self.unknown else "It only reads." if self.only_reads else ""
        return (*told, *risks, *filter(None, [end]))


def analyse(code: str, namespace: Mapping[str, Any] | None = None) -> Program:
    """Return what a program would do; the program may hold lines of IPython, such as `%time` and `!ls`.

    With the `namespace` that it would run in, values of Python's and the data libraries' own types are known to run no
    code of the user when they are read. Without it no value is known, and more is `unknown`.
    """
    walk = _Walk(namespace)
    try:
        tree = walk.parse(code)
        for _ in range(_MOST_PASSES):  # until no alias is new: a loop may use a name before it is bound again
            before = {**walk.bound}, {**walk.shared}
            walk.value(tree)
            if before == (walk.bound, walk.shared):
                break
        else:
            walk.unknown = True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        walk.unknown = True
        walk.risk(0, "cannot be read as Python")
    named = frozenset(walk.reads), frozenset(walk.writes), frozenset(walk.removes), frozenset(walk.imports)
    return Program(code, *named, tuple(walk.risks), walk.unknown, frozenset(walk.calls))


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of an expression: the notebook's names whose objects it may share, and whether reading it is safe.

    It is `safe` if operators and built-in functions run no code of the user on it. It is `nested` if it may hold
    objects of the notebook that can be changed: a shallow copy shares them.
    """

    roots: frozenset[str] = _NONE
    safe: bool = True
    nested: bool = False

    def __or__(self, other: "_Value") -> "_Value":
        return _Value(self.roots | other.roots, self.safe and other.safe, self.nested or other.nested)

    @property
    def inside(self) -> "_Value":
        """What is known of a container that holds the value."""
        return replace(self, nested=bool(self.roots))


_NEW = _Value()
_ANY = _Value(safe=False)


@dataclass(slots=True)
class _Walk:
    """Walks a program in the order in which it runs, as far as a tree has one."""

    namespace: Mapping[str, Any] | None
    reads: set[str] = field(default_factory=set[str])
    writes: set[str] = field(default_factory=set[str])
    removes: set[str] = field(default_factory=set[str])
    imports: set[str] = field(default_factory=set[str])
    risks: dict[str, None] = field(default_factory=dict[str, None])
    bound: dict[str, _Value] = field(default_factory=dict[str, _Value])
    shared: dict[str, _Value] = field(default_factory=dict[str, _Value])
    """What was put into the object of a name."""
    unknown: bool = False
    calls: set[str] = field(default_factory=set[str])
    _scopes: list[tuple[dict[str, _Value], bool]] = field(default_factory=list[tuple[dict[str, _Value], bool]])
    """The local names of each function around, and whether it is a comprehension."""
    _globals: set[str] = field(default_factory=set[str])
    _modules: dict[str, str] = field(default_factory=dict[str, str])
    """What the program imports, by the names that it gives it."""

    def risk(self, line: int, words: str) -> None:
        """Note a risk."""
        self.risks[f"{words} (line {line})" if line else words] = None

    def parse(self, code: str) -> ast.Module:
        """Return the tree of a program; lines for IPython become `pass`, and are risks."""
        try:
            return ast.parse(code)
        except SyntaxError:
            if code.lstrip().startswith("%%"):
                self._escape(1, code.lstrip().splitlines()[0])
                return ast.parse("")
            return ast.parse("\n".join(self._plain(number, line) for number, line in enumerate(code.split("\n"), 1)))

    def _plain(self, number: int, line: str) -> str:
        if _HELP.match(line):
            self.unknown = True
            return line[: len(line) - len(line.lstrip())] + "pass"
        if (found := _ESCAPED.match(line)) is None:
            return line
        self._escape(number, found["mark"] + found["rest"])
        return found["margin"] + (f"{found['bound']} = None" if found["bound"] else "pass")

    def _escape(self, number: int, command: str) -> None:
        self.unknown = True
        what = "runs a shell command" if command.startswith("!") else "runs a magic of IPython"
        self.risk(number, f"{what}: {command[:100]}")

    # -- values --------------------------------------------------------------------------------

    def value(self, node: ast.AST | None) -> _Value:  # noqa: C901, PLR0911  (one arm for each kind)
        """Look at a node, and return what is known of its value."""
        match node:
            case None | ast.Constant() | ast.Pass() | ast.Break() | ast.Continue() | ast.Nonlocal():
                return _NEW
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                base = self.value(node.value) | replace(self.value(node.slice), roots=_NONE)
                return self._used(base)
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr():
                return self._bind(node.target, self.value(node.value), walrus=True)
            case ast.Lambda():
                with self._function(node.args, ()):
                    return self.value(node.body)  # `map` returns what the function returns
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Expr():
                self._used(self.value(node.value))  # the last one is displayed, by code of its class
                return _NEW
            case _ if isinstance(node, _SIMPLE):
                values = self._all(ast.iter_child_nodes(node))
                return values.inside if isinstance(node, (*_LITERALS, ast.Module)) else self._used(values)
            case _:
                self._statement(node)
                return _NEW

    def _all(self, nodes: Iterable[ast.AST | None]) -> _Value:
        known = _NEW
        for node in nodes:
            known |= _NEW if isinstance(node, _PLAIN_NODES) else self.value(node)
        return known

    def _used(self, value: _Value) -> _Value:
        """Note that code of a value's class runs."""
        self.unknown |= not value.safe
        return value

    def _name(self, node: ast.Name) -> _Value:
        name = node.id
        for names, _ in reversed(self._scopes):
            if name in names and name not in self._globals:
                return names[name]
        if name in _RISKY_NAMES:
            self.risk(node.lineno, f"{_RISKY_NAMES[name]}: {name}")
            self.unknown = True
        shared = self.shared.get(name, _NEW)
        if self._is_exit(name):
            return _ANY
        if name in self.bound:
            return self.bound[name] | shared | _Value(frozenset({name}))
        if self._is_builtin(name):
            return _Value(safe=name in _SCALARS | _SHARING or isinstance(getattr(builtins, name), type))
        if name in OFFERED and self.namespace is not None and name not in self.namespace:
            return _ANY
        if name not in _RISKY_NAMES:  # which the risk tells; IPython has an `open` of its own
            self.reads.add(name)
        held = self if self.namespace is None else self.namespace.get(name, self)
        if isinstance(held, (FunctionType, BuiltinFunctionType)) and (risk := _risk_of_function(held)):
            self.risk(node.lineno, f"{risk}: {name}")
        return _Value(frozenset({name}), is_data(held), not _is_flat(held)) | shared

    def _is_exit(self, name: str) -> bool:
        """Whether a name ends the program when it is called."""
        given = self.namespace or {}
        is_own = is_of_shell(name, given[name]) if name in given else True
        return name in EXITS and name not in self.bound and is_own

    def _is_builtin(self, name: str) -> bool:
        return hasattr(builtins, name) and name not in self.bound and name not in (self.namespace or ())

    def _attribute(self, node: ast.Attribute) -> _Value:
        base = self.value(node.value)
        self._note_risk(node)
        if isinstance(node.value, ast.Name) and node.value.id in OFFERED and base is _ANY:
            self.calls.add(node.attr)
        if node.attr in _VIEWS or node.attr in _COPIES:
            return self._used(base)
        self.unknown = True
        return replace(base, safe=False)

    def _note_risk(self, node: ast.Attribute) -> None:
        module = self._module(node.value)
        if risk := _risk_of(module, node.attr):
            self.risk(node.lineno, f"{risk}: {ast.unparse(node)[:100]}")
            self.unknown = True

    def _module(self, node: ast.expr) -> str:
        """Return the name of the module that an expression is if it is a name, else ""."""
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self._modules:
            return self._modules[node.id]
        held: Any = (self.namespace or {}).get(node.id)
        return str(held.__name__) if isinstance(held, ModuleType) else node.id

    def _call(self, node: ast.Call) -> _Value:
        given = self._all([*node.args, *(one.value for one in node.keywords)])
        for one in node.keywords:
            if one.arg == "out":
                self._write(self.value(one.value))
        match node.func:
            case ast.Name(id=name) if self._is_free(name) and name in _SCALARS | _SHARING:
                self.unknown |= not given.safe or any(one.arg not in _QUIET for one in node.keywords)
                return _NEW if name in _SCALARS else given.inside
            case ast.Name(id=name) if self._is_exit(name) and self._is_outside(name):
                self._used(given)  # a message may be of a class that has its own `__str__`
                return _NEW
            case ast.Attribute(attr="exit", value=ast.Name() as of) if self._module(of) == "sys":
                self._used(given)
                return _NEW
            case ast.Attribute(attr=method, value=of):
                return self._method(node, method, self.value(of), given)
            case ast.Name(id="getattr") if self._is_free("getattr"):
                self._note_attribute(node)
            case _:
                self.value(node.func)
        self.unknown = True
        return replace(given, safe=False)

    def _note_attribute(self, node: ast.Call) -> None:
        """Note the risk of an attribute that `getattr` reads."""
        match node.args:
            case [of, ast.Constant(value=str(attribute)), *_]:
                self._note_risk(ast.copy_location(ast.Attribute(of, attribute, ast.Load()), node))
            case _:
                pass

    def _is_free(self, name: str) -> bool:
        """Whether a name is that of the built-in function, and of nothing else."""
        return self._is_builtin(name) and self._is_outside(name)

    def _is_outside(self, name: str) -> bool:
        """Whether no function around has a local variable of the name."""
        return not any(name in names for names, _ in self._scopes)

    def _method(self, node: ast.Call, method: str, base: _Value, given: _Value) -> _Value:
        owner = cast("ast.Attribute", node.func).value
        if method in _MUTATORS or any(one.arg == "inplace" for one in node.keywords):
            # `list.append(rows, 1)` and `numpy.put(array, ...)` change an argument.
            is_of_type = isinstance(owner, ast.Name) and (self._is_builtin(owner.id) or self._is_module(owner.id))
            # An object that the notebook does not name may be such a type too: `[list][0].append(rows, 1)`.
            self._write(base | given if is_of_type or not base.roots else base, given)
            self._note_risk(cast("ast.Attribute", node.func))
            # The text may call methods: `frame.eval("a = @rows.pop()", inplace=True)`.
            runs_text = method in {"eval", "query"}
            self.unknown |= is_of_type or runs_text or not (base.safe and given.safe)
            return base | given  # what is added to an object is shared by it
        self.value(node.func)  # its risks, and what an attribute may hide
        is_known = method in _COPIES | _VIEWS and base.safe and given.safe and not self._may_hide_a_write(node)
        self.unknown |= not is_known
        is_apart = method in _COPIES and not (method in _SHALLOW and (base | given).nested)
        return replace(_NEW if is_apart else base | given, safe=is_known)

    def _may_hide_a_write(self, node: ast.Call) -> bool:
        """Whether an argument may be a function, or the object into which NumPy puts the result."""
        given = [*node.args, *(one.value for one in node.keywords)]
        calls_back = any(isinstance(one, (ast.Lambda, ast.Starred)) for one in given)
        spread = any(one.arg is None for one in node.keywords)
        return calls_back or spread or any(self.value(one).roots for one in node.args[1:])

    def _is_module(self, name: str) -> bool:
        return isinstance((self.namespace or {}).get(name), ModuleType) or name in self._modules

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> _Value:
        with self._scope({}, comprehension=True):
            for loop in node.generators:
                self._bind(loop.target, self._used(self.value(loop.iter)))
                self.unknown |= bool(loop.is_async)
                self._all(loop.ifs)
            return self._all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)).inside

    # -- statements ----------------------------------------------------------------------------

    def _statement(self, node: ast.AST) -> None:
        """Look at a statement that binds names; one with a body is left to `_compound`."""
        match node:
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._bind(target, value)
            case ast.AnnAssign():
                self._used(self.value(node.annotation))
                self._bind(node.target, self.value(node.value))
            case ast.AugAssign():
                before = self.value(_loaded(node.target))
                self._write(before)  # a list or an array is changed in place, under all of its names
                self._bind(node.target, self._used(before | self.value(node.value)))
            case ast.Delete():
                for target in node.targets:
                    self._remove(target)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Global():
                self._globals.update(node.names)
            case _:
                self._compound(node)

    def _compound(self, node: ast.AST) -> None:  # noqa: C901  (one arm for each kind)
        """Look at a statement that holds others, or at a pattern."""
        match node:
            case ast.For() | ast.AsyncFor():
                self._bind(node.target, self._used(self.value(node.iter)))
                self._all([*node.body, *node.orelse])
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self.value(item.context_expr)
                    self.unknown = True  # a context manager may do anything
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, replace(value, safe=False))
                self._all(node.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._define(node)
            case ast.ClassDef():
                self.unknown = True  # a class is built by code of its bases and of what its body holds
                self._all([*node.bases, *(one.value for one in node.keywords), *node.decorator_list])
                with self._scope({}):
                    self._all(node.body)
                self._store(node.name, _ANY)
            case ast.ExceptHandler():
                self.value(node.type)
                if node.name:  # the name is removed at the handler's end
                    self._store(node.name, _ANY)
                    self._remove(ast.Name(node.name))
                self._all(node.body)
            case ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
                self._all(ast.iter_child_nodes(node))
                name = node.rest if isinstance(node, ast.MatchMapping) else node.name
                if name:
                    self._store(name, _ANY)
            case _:  # a match, an await, a yield, and what a later Python adds
                self.unknown = True
                self._all(ast.iter_child_nodes(node))

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._all([*node.decorator_list, node.returns])
        self.unknown |= bool(node.decorator_list)
        with self._function(node.args, _assigned(node.body)):
            self._all(node.body)
        self._store(node.name, _ANY)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for one in node.names:
            path = module or one.name
            self.imports.add(path)
            if risk := _risk_of(path, one.name if module else ""):
                named = f"import {path}" if risk == _risk_of(path, "") else f"from {path} import {one.name}"
                self.risk(node.lineno, f"{risk}: {named}")
            if one.name == "*":
                self.unknown = True
                continue
            name = one.asname or (one.name if module else one.name.partition(".")[0])
            self._modules[name] = name if module else one.name
            self._store(name, _Value(safe=not risk and path.partition(".")[0] in _LIBRARIES))

    # -- names ---------------------------------------------------------------------------------

    def _bind(self, target: ast.expr, value: _Value, *, walrus: bool = False) -> _Value:
        match target:
            case ast.Name():
                self._store(target.id, value, walrus=walrus)
            case ast.Tuple() | ast.List():
                for one in target.elts:
                    self._bind(one, value)
            case ast.Starred():
                self._bind(target.value, value)
            case ast.Attribute() | ast.Subscript():
                base = self.value(target.value)
                if isinstance(target, ast.Subscript):
                    self.value(target.slice)
                self._write(base, value)
            case _:
                self.unknown = True
        return value

    def _store(self, name: str, value: _Value, *, walrus: bool = False) -> None:
        local = next((names for names, inner in reversed(self._scopes) if not (inner and walrus)), None)
        if local is not None and name not in self._globals:
            local[name] = local.get(name, _NEW) | value
            return
        self.writes.add(name)
        self.bound[name] = self.bound.get(name, _NEW) | value

    def _write(self, base: _Value, value: _Value = _NEW) -> None:
        """Note that an object is changed, and that it shares a value from now on."""
        self.writes |= base.roots
        self.unknown |= not (base.safe or base.roots)
        for root in base.roots:
            self.shared[root] = self.shared.get(root, _NEW) | value.inside

    def _remove(self, target: ast.expr) -> None:
        match target:
            case ast.Name() if not self._scopes or target.id in self._globals:
                self.removes.add(target.id)
            case ast.Name():
                pass
            case ast.Tuple() | ast.List():
                for one in target.elts:
                    self._remove(one)
            case _:
                self._bind(target, _NEW)

    @contextmanager
    def _scope(self, names: dict[str, _Value], *, comprehension: bool = False) -> Generator[None]:
        outer = set(self._globals)
        self._scopes.append((names, comprehension))
        try:
            yield
        finally:
            self._scopes.pop()
            self._globals = outer

    @contextmanager
    def _function(self, given: ast.arguments, assigned: Iterable[str]) -> Generator[None]:
        """Enter a function: its defaults are evaluated outside, and nothing is known of its arguments."""
        own = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        self._used(self._all([*given.defaults, *given.kw_defaults, *(one.annotation for one in own)]))
        with self._scope({**dict.fromkeys(assigned, _NEW), **{one.arg: _ANY for one in own}}):
            yield


_PLAIN_NODES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


def _risk_of(module: str, name: str) -> str | None:
    """Return the risk of a name of a module, or of an attribute of something that is no module."""
    root = module.partition(".")[0]
    return _RISKY_FUNCTIONS.get(root, {}).get(name) or _RISKY_METHODS.get(name) or _RISKY_MODULES.get(root)


def _risk_of_function(function: FunctionType | BuiltinFunctionType) -> str | None:
    """Return the risk of a function of a module that the notebook has under a name of its own."""
    module = str(function.__module__).partition(".")[0]
    module = "os" if module in ("posix", "nt") else module
    return _risk_of(module, function.__name__) if module in _RISKY_MODULES and module != "__main__" else None


def is_data(value: object) -> bool:
    """Whether reading a value runs no code of the user: it is of Python's or a data library's own types throughout."""
    left = deque([value])
    for _ in range(_MOST_ITEMS):
        if not left:
            return True
        kind, one = type(left[0]), cast("Any", left.popleft())
        if kind in _CONTAINERS and len(one) + len(left) <= _MOST_ITEMS:
            left.extend((*one, *one.values()) if kind is dict else one)
        elif kind is ModuleType and str(one.__name__) in _LIBRARIES:
            continue
        elif kind.__name__ == "ndarray" and _holds_objects(one):  # operators and `repr` of the array call theirs
            if one.size + len(left) > _MOST_ITEMS:
                return False
            left.extend(one.ravel().tolist())
        elif kind not in _DATA and (kind.__module__.partition(".")[0] not in _LIBRARIES or hasattr(kind, "__next__")):
            return False
    return False


def _is_flat(value: object) -> bool:
    """Whether a value holds no objects that can be changed."""
    if type(value) in _CONTAINERS:
        held = cast("Any", value)
        if len(held) > _MOST_ITEMS:
            return False
        inner = (*held, *held.values()) if type(value) is dict else held
        return all(type(one) in _DATA for one in inner)
    return not _holds_objects(value)


def _holds_objects(value: object) -> bool:
    """Whether a value is an array or a series of Python objects."""
    kind = type(value)
    return kind.__module__.partition(".")[0] in _LIBRARIES and str(getattr(value, "dtype", "")) == "object"


def _loaded(target: ast.expr) -> ast.expr:
    """Return the target of an augmented assignment as an expression that is read."""
    match target:
        case ast.Name():
            return ast.copy_location(ast.Name(target.id, ast.Load()), target)
        case ast.Attribute() | ast.Subscript():
            return target.value
        case _:
            return target


def _assigned(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that a function assigns itself, which are its own unless it declares them otherwise."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif not isinstance(node, ast.Lambda):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            yield from _assigned(ast.iter_child_nodes(node))


_DOORS = frozenset(
    [
        "exec",
        "eval",
        "globals",
        "locals",
        "vars",
        "__import__",
        "_getframe",
        "currentframe",
        "get_ipython",
        "__globals__",
        "__dict__",
        "modules",
        "get_objects",
        "get_referrers",
        "__main__",
    ]
)


def names_of(code: CodeType) -> frozenset[str] | None:
    """Return the names that a function may use, or None if it may reach variables that it does not name."""
    names = set(code.co_names)
    for inner in (one for one in code.co_consts if isinstance(one, CodeType)):
        if (found := names_of(inner)) is None:
            return None
        names |= found
    return None if names & _DOORS else frozenset(names)
