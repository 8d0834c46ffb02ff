"""Predicts what a program would do to the notebook: names read, written and removed, imports, risks.

The prediction is made from the syntax tree. It is shown when the user is asked whether the program may run, and decides
which variables are watched during the run. Only what is certain is shown; the real changes are found after the run. The
analysis is not a sandbox.
"""

import ast
import builtins
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast

from agentmagic.runtime.exits import NAMES as EXITS
from agentmagic.text import single_line, word_set
from agentmagic.undo import data_types, risks

if TYPE_CHECKING:
    from agentmagic.undo.reads import OnlyReads

TOOL_NAMESPACES = ("tools", "agent_tools")
"""Names through which a program calls the tools of the turn as functions. A variable of the user hides its name."""
READS = "It only reads."
UNBOUNDED = "It only reads, but how long it takes is not known before: `{}`."
LONGEST_EXPRESSION = 100
"""Characters shown of the expression that UNBOUNDED names."""
AFTERWARDS = "When it has run, you see what it changed."

SHELL_NAMES = frozenset({
    *("exit", "quit", "open", "get_ipython"),
    *("__builtins__", "__builtin__", "__loader__", "__spec__", "__import__"),
})  # fmt: skip
"""Names of functions and interpreter objects that IPython and Python put into the namespace of a notebook."""
_SHELL_MODULES = frozenset({"IPython", "ipykernel", "_sitebuiltins", "io", "_io"})
"""Packages of the functions in SHELL_NAMES. IPython's `open` reports `io` as its module."""


def is_of_shell(name: str, value: object) -> bool:
    """Return whether a name of SHELL_NAMES still has the value that IPython or Python gave it."""
    if name not in SHELL_NAMES or name.startswith("__"):
        return name in SHELL_NAMES
    is_function = isinstance(value, (FunctionType, MethodType, BuiltinFunctionType))
    modules = [value.__module__] if is_function else [base.__module__ for base in type(value).__mro__]
    return any(str(module).partition(".")[0] in _SHELL_MODULES for module in modules)


_DOORS = word_set(
    "exec eval query globals locals vars __import__ import_module reload run_path run_module getattr attrgetter "
    "methodcaller FunctionType CodeType __main__ __globals__ __dict__ __builtins__ __builtin__ __loader__ __spec__ "
    "__subclasses__ __getattribute__ f_globals f_locals f_back tb_frame gi_frame cr_frame ag_frame _getframe settrace "
    "_current_frames setprofile breakpoint get_ipython user_ns user_global_ns run_cell run_line_magic run_cell_magic "
    "inspect gc ctypes cffi IPython runpy codeop pdb threading _thread concurrent asyncio "
    "pickle _pickle dill cloudpickle joblib shelve marshal"
)
"""Names, attributes and modules through which code can reach variables that it does not name."""
_HISTORY = re.compile(r"_+|Out|_oh|_\d+")
"""Names under which IPython stores the results of cells. A result can be the same object as the value of a variable."""
_MUTATORS = word_set(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard difference_update "
    "intersection_update symmetric_difference_update appendleft popleft extendleft rotate fill put"
)
"""Methods of Python's and NumPy's containers that change the object."""

_ESCAPED = re.compile(r"^(?P<margin>[ \t]*)(?:(?P<bound>[\w ,.\[\]'\"]+?)\s*=\s*)?(?P<mark>%%|%|!!|!)(?P<rest>.*)$")
_CONTINUED = re.compile(r"^[ \t]*(?:[\w ,]+=\s*)?[%!](?:.*\\\n)+.*", re.MULTILINE)
_HELP = re.compile(r"^[ \t]*(?:\?{1,2}\s*[\w.%*]+|[\w.%*]+\?{1,2})\s*;?$")
_OPTIONS = re.compile(r"^(?:\s*-(?:[lsTD]\s+\S+|[-\w]+(?:\s+\d+)?)(?=\s|$))+")
_INSERTED = re.compile(r"\$\w|\{")
"""Marks a place in a shell line or magic where IPython inserts the value of an expression."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and a prediction of what it would do.

    `risks` are lines for the user who must approve it. `names` are the variables of the notebook that the program
    mentions, or None if it could reach variables that it does not name. `calls` are the tools that it calls as
    functions. `files` are the local files that it reads by name. `reading` is None if it may change something.
    """

    code: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    risks: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    calls: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    reading: "OnlyReads | None" = None

    @property
    def only_reads(self) -> bool:
        """Whether the program certainly changes nothing, and ends after a work that is bounded."""
        return self.reading is not None and not self.reading.unbounded

    def lines(self) -> tuple[str, ...]:
        """Return what a user should know before the program runs, one line each."""
        sections = (
            ("Reads", self.reads),
            ("Writes", self.writes),
            ("Removes", self.removes),
            ("Imports", self.imports),
            ("Reads files", self.files),
            ("Calls tools", self.calls),
        )
        lines = [f"{word}: {', '.join(sorted(names))}" for word, names in sections if names]
        if self.reading is not None:
            excess = single_line(self.reading.unbounded, LONGEST_EXPRESSION)
            closing = [UNBOUNDED.format(excess) if excess else READS]
        else:
            closing = [] if self.risks else [AFTERWARDS]
        return (*lines, *(f"Risk: {risk}" for risk in self.risks), *closing)


def analyse(code: str, namespace: Mapping[str, Any] | None = None) -> Program:
    """Return what a program would do. The code may contain IPython lines, such as `%time` and `!ls`.

    `namespace` is the one in which the program would run. `reading` is known only if the variables used are in
    `namespace`, and their types are those of Python or the data libraries. Without a namespace, no value is known.
    """
    walk = _Walk(namespace or {})
    reading = None
    try:
        tree = walk.parse(code)
        walk.visit(tree)
        is_quiet = not (walk.writes or walk.removes or walk.risks or walk.has_ipython_lines)
        if is_quiet:
            from agentmagic.undo.reads import reading_of  # late, because most turns run no program

            reading = reading_of(tree, namespace or {}, walk.is_exit)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        walk.is_open = True
        walk.risks["cannot be read as Python"] = None
    return Program(
        code,
        reads=frozenset(walk.reads),
        writes=frozenset(walk.writes),
        removes=frozenset(walk.removes),
        imports=frozenset(walk.imports),
        risks=tuple(walk.risks),
        names=None if walk.is_open else frozenset(walk.reads | walk.writes | walk.removes | walk.possible_names),
        calls=frozenset(walk.calls),
        files=frozenset(walk.files),
        reading=reading,
    )


def names_of(code: CodeType) -> frozenset[str] | None:
    """Return the global names that a compiled function can use, or None if it could reach names not in its code.

    Names of attributes are included, because compiled code does not separate them from global names.
    """
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if (inner_names := names_of(inner)) is None:
                return None
            names |= inner_names
    is_open = any(_is_door(part) for name in names for part in name.split(".")) or names >= {"sys", "modules"}
    return None if is_open else frozenset(names)


def _is_door(name: str) -> bool:
    return name in _DOORS or bool(_HISTORY.fullmatch(name))


Scope = Literal["function", "class", "comprehension"]


@dataclass(slots=True)
class _Walk:
    """Visits the nodes of a program's syntax tree, as far as possible in the order in which they run."""

    namespace: Mapping[str, Any]
    reads: set[str] = field(default_factory=set[str])
    writes: set[str] = field(default_factory=set[str])
    removes: set[str] = field(default_factory=set[str])
    possible_names: set[str] = field(default_factory=set[str])
    """Names that the program may use, although this is not certain enough to be shown.

    An import binds them to the value that they already have, or a class body both binds them and uses them.
    """
    imports: set[str] = field(default_factory=set[str])
    calls: set[str] = field(default_factory=set[str])
    files: set[str] = field(default_factory=set[str])
    risks: dict[str, None] = field(default_factory=dict[str, None])
    is_open: bool = False
    """Whether the program could reach variables that it does not name."""
    has_ipython_lines: bool = False
    """Whether the program has IPython lines."""
    _paths: dict[str, str] = field(default_factory=dict[str, str])
    """The dotted paths of the objects that the program binds to names."""
    _texts: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """The constant texts that the program binds to names; None for a name with several texts."""
    _path_cache: dict[ast.AST | None, str] = field(default_factory=dict[ast.AST | None, str])
    """Cache of `path`, by node."""
    _star_modules: list[str] = field(default_factory=list[str])
    _scopes: list[tuple[set[str], Scope]] = field(default_factory=list[tuple[set[str], Scope]])
    """The local names of each enclosing function, class or comprehension, and which of these it is."""
    _globals: set[str] = field(default_factory=set[str])

    # -- lines of IPython ----------------------------------------------------------------------

    def parse(self, code: str) -> ast.Module:
        """Return the syntax tree of a program. IPython lines are replaced by Python, and their effects are recorded."""
        try:
            return ast.parse(code)
        except SyntaxError:
            head, _, body = code.lstrip().partition("\n")
            if head.startswith("%%"):
                line = self._to_python(1, head.removeprefix("%"), body)
                is_python = head[2:].split(" ")[0] in (*risks.TIMERS, "capture")
                return self.parse(f"{line}\n{body}" if is_python else "")
            code = _CONTINUED.sub(lambda match: match[0].replace("\\\n", " ") + "\n" * match[0].count("\\\n"), code)
            return ast.parse(
                "\n".join(self._to_python(number, line) for number, line in enumerate(code.split("\n"), 1))
            )

    def _to_python(self, number: int, line: str, body: str = "") -> str:
        """Return a Python line in place of an IPython line, and record what the IPython line does."""
        if _HELP.match(line):
            self.has_ipython_lines = True
            return line[: len(line) - len(line.lstrip())] + "pass"
        if (match := _ESCAPED.match(line)) is None:
            return line
        margin, target, mark, rest = match["margin"], match["bound"], match["mark"], match["rest"]
        name, statement = rest.partition(" ")[0], _OPTIONS.sub("", rest.partition(" ")[2]).strip()
        if mark == "%" and name == "capture" and statement.isidentifier():
            return f"{margin}{statement} = None"
        if mark == "%" and name in risks.TIMERS:
            self.has_ipython_lines = True
            if _try_parse(statement) is not None:
                return f"{margin}{f'{target} = ' if target else ''}{statement or 'pass'}"
            self._record_risk(number, "code", statement, "")
        self._escape(number, mark, f"{rest}\n{body}" if body else rest)
        return margin + (f"{target} = None" if target else "pass")

    def _escape(self, number: int, mark: str, command: str) -> None:
        self.has_ipython_lines = True
        acts = [risks.of_shell(command)] if mark.startswith("!") else list(risks.of_magic(command))
        self.is_open |= bool(_INSERTED.search(command))
        for act, argument in acts:
            self._record_risk(number, act, argument, command)

    def _record_risk(self, line: int, act: str, argument: str | None, source: str) -> None:
        phrase = risks.phrase(act, argument, source)
        self.is_open |= act in risks.RUNS_CODE
        if act == risks.OPENS:
            self.files.add(phrase)
        else:
            self.risks[f"{phrase} (line {line})"] = None

    # -- the tree ------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:  # noqa: C901, PLR0912  (one arm for each kind)
        """Record what a node of the syntax tree does."""
        match node:
            case ast.Constant() | ast.expr_context() | ast.operator() | ast.cmpop() | ast.unaryop() | ast.boolop():
                pass
            case ast.Name():
                self._name(node)
            case ast.Attribute() | ast.Subscript():
                self._part(node)
            case ast.Call():
                self._call(node)
            case ast.Lambda():
                with self._function(node.args, ()):
                    self.visit(node.body)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                with self._scope(_assigned_names(node.generators), "comprehension"):
                    self._all(node.generators)
                    self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                self._all([node.value] if node.value else ())
                self._all([node.annotation] if isinstance(node, ast.AnnAssign) else ())
                self._all(node.targets if isinstance(node, ast.Assign) else [node.target])
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._follow(target, node.value)
            case ast.AugAssign():
                self.visit(_as_load(node.target))
                self._all([node.value, node.target])
                self._follow(node.target, None)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._all([node.iter, node.target])
                self._all(node.ifs if isinstance(node, ast.comprehension) else [*node.body, *node.orelse])
            case ast.withitem(optional_vars=target) if target is not None:
                self._all([node.context_expr, target])
                self._follow(target, node.context_expr)
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Global():
                self._globals.update(node.names)
            case _:
                self._block(node)

    def _block(self, node: ast.AST) -> None:
        """Record what a node does that opens a scope (`def`, `class`) or binds a name (`except E as name`)."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._all([*node.decorator_list, *([node.returns] if node.returns else ()), *_type_parameters(node)])
                self._bind(node.name)
                with self._function(node.args, _assigned_names(node.body)):
                    self._all(node.body)
            case ast.ClassDef():
                self._all([*node.bases, *node.keywords, *node.decorator_list, *_type_parameters(node)])
                self._bind(node.name)
                with self._scope(_assigned_names(node.body), "class"):
                    self._all(node.body)
            case ast.ExceptHandler(name=str(name)) if not self._scopes:  # Python removes `name` after the handler
                self._bind(name)
                self.removes.add(name)
                self._all(ast.iter_child_nodes(node))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                self._bind(name)
                self._all(ast.iter_child_nodes(node))
            case _:
                self._all(ast.iter_child_nodes(node))

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _name(self, node: ast.Name, *, called: bool = False) -> None:
        name = node.id
        match node.ctx:
            case ast.Store():
                self._bind(name)
            case ast.Del():
                if not self._is_local(name) and not self._is_of_class(name):
                    self.removes.add(name)
            case _ if self._is_local(name):
                pass
            case _ if self._is_of_class(name):  # a class body uses the global variable until it binds the name
                self.is_open |= _is_door(name)
                self.possible_names.add(name)
            case _:
                self.is_open |= _is_door(name) and not (called and name == "getattr")
                if not called:
                    self._mention(node)
                is_own = name in self.namespace and not is_of_shell(name, self.namespace[name])
                is_known = name in self.writes or self.is_exit(name) or hasattr(builtins, name) or name in SHELL_NAMES
                if is_own or not (is_known or name in TOOL_NAMESPACES):
                    self.reads.update({name} - self.writes)

    def is_exit(self, name: str) -> bool:
        """Return whether a call of this name ends the program."""
        is_own = is_of_shell(name, self.namespace[name]) if name in self.namespace else True
        return name in EXITS and is_own and name not in self.writes and not self._is_local(name)

    def _is_local(self, name: str) -> bool:
        """Return whether a name is certainly a local name of an enclosing function or comprehension."""
        return name not in self._globals and any(name in names for names, scope in self._scopes if scope != "class")

    def _is_of_class(self, name: str) -> bool:
        """Return whether an enclosing class body binds a name, which may be its own name or a global variable."""
        return name not in self._globals and any(name in names for names, scope in self._scopes if scope == "class")

    def _part(self, node: ast.Attribute | ast.Subscript, *, called: bool = False) -> None:
        """Record that an attribute or an item is read, written or removed."""
        base, is_load = node.value, isinstance(node.ctx, ast.Load)
        key = self.text(node.slice) if isinstance(node, ast.Subscript) else node.attr
        if isinstance(base, ast.Name) and base.id in TOOL_NAMESPACES and self._is_tool_namespace(base.id):
            self.calls.add(key or "?")
        elif self.path(base) in risks.ENVIRONMENT:
            self._callee(base)
            if isinstance(node, ast.Subscript) and is_load and (act := risks.of_environment(key)):
                self._record_risk(node.lineno, *act, ast.unparse(node))
        else:
            self.visit(base)
        if isinstance(node, ast.Subscript):
            self.visit(node.slice)
        elif not (called and node.attr in ("eval", "query")):  # `_call` checks the text given to `eval` or `query`
            self.is_open |= node.attr in _DOORS
        if not is_load:
            self._write(base)
        elif not called:
            self._mention(node)
        self.is_open |= self.path(node) == "sys.modules"

    def _callee(self, node: ast.expr) -> None:
        """Visit an expression that is called, or `os.environ`. The method that calls this one records the risks."""
        match node:
            case ast.Name():
                self._name(node, called=True)
            case ast.Attribute() | ast.Subscript():
                self._part(node, called=True)
            case _:
                self.visit(node)

    def _is_tool_namespace(self, name: str) -> bool:
        return name not in self.namespace and name not in self.writes and not self._is_local(name)

    def _mention(self, node: ast.Name | ast.Attribute | ast.Subscript) -> None:
        if act := risks.of_mention(self.path(node)):
            self._record_risk(node.lineno, *act, ast.unparse(node))

    def _write(self, base: ast.expr) -> None:
        """Record a change to an object, under the name of the variable through which the program reaches it."""
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        if isinstance(base, ast.Name) and not self._is_local(base.id) and not self._is_builtin(base.id):
            (self.possible_names if self._is_of_class(base.id) else self.writes).add(base.id)

    def _is_builtin(self, name: str) -> bool:
        return hasattr(builtins, name) and name not in self.namespace and name not in self.writes

    def _call(self, node: ast.Call) -> None:
        func, path = node.func, self.path(node.func)
        for act, argument in risks.ProgramCall(path, node, self.path, self.text).acts():
            self._record_risk(node.lineno, act, argument, ast.unparse(node))
        self._callee(func)
        self._all([*node.args, *node.keywords])
        first_text = self.text(node.args[0]) if node.args else None
        match func:
            case ast.Name(id="getattr") if len(node.args) > 1:
                attribute = self.text(node.args[1])
                self.is_open |= attribute is None or attribute in _DOORS
            case ast.Name(id="eval" | "exec") if path == func.id and (tree := _try_parse(first_text or "")):
                self.visit(tree)
            case ast.Attribute(attr="eval" | "query"):
                self.is_open |= first_text is None or "@" in first_text or path == "pandas.eval"
            case ast.Attribute(attr="agg" | "aggregate" | "apply" | "transform") if _hands_on(node):
                self.is_open = True
            case ast.Attribute(attr=method) if self._mutates(func.value, method, node):
                self._write(func.value)
            case _:
                pass
        for keyword in node.keywords:
            if keyword.arg == "out":
                self._write(keyword.value)

    def _mutates(self, base: ast.expr, method: str, node: ast.Call) -> bool:
        """Return whether a method certainly changes its object: a changing method of a container, or `inplace=True`."""
        if any(keyword.arg == "inplace" and ast.unparse(keyword.value) == "True" for keyword in node.keywords):
            return True
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        value = self.namespace.get(base.id) if isinstance(base, ast.Name) else None
        return method in _MUTATORS and data_types.is_container(value)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            path = module or alias.name
            self.imports.add(path)
            self.is_open |= any(map(_is_door, (*path.split("."), alias.name))) or alias.name == "*"
            if alias.name == "*":
                self._star_modules.append(module)
                continue
            name = alias.asname or (alias.name if module else alias.name.partition(".")[0])
            self._paths[name] = f"{module}.{alias.name}" if module else alias.name if alias.asname else name
            self.is_open |= self._paths[name] == "sys.modules"
            if data_types.keeps_binding(self.namespace.get(name), self._paths[name], path):
                self.possible_names.add(name)
            else:
                self._bind(name)
            if (act := risks.of_mention(self._paths[name])) and act[0] == "ends":
                self._record_risk(node.lineno, *act, f"from {module} import {alias.name}")

    # -- what expressions stand for ------------------------------------------------------------

    def path(self, node: ast.AST | None) -> str:
        """Return the dotted path of the object that an expression stands for, such as `os.remove`.

        The path is "" if unknown.
        """
        if (path := self._path_cache.get(node)) is None:
            path = self._path_cache[node] = self._resolve_path(node)
        return path

    def _resolve_path(self, node: ast.AST | None) -> str:  # noqa: C901, PLR0911  (one arm for each kind)
        match node:
            case ast.Name(id=name):
                return self._path_of_name(name)
            case ast.Attribute(attr="parent" | "absolute" | "resolve"):
                return self.path(node.value)
            case ast.Attribute():
                return f"{self.path(node.value)}.{node.attr}"
            case ast.NamedExpr() | ast.Await():
                return self.path(node.value)
            case ast.BinOp(op=ast.Div()):
                return base if (base := self.path(node.left)).endswith("Path()") else ""
            case ast.Subscript(value=ast.Attribute(attr="modules", value=ast.Name(id="sys"))):
                return self.text(node.slice) or ""
            case ast.Subscript(value=ast.Attribute(attr="__dict__", value=of) | ast.Call(ast.Name(id="vars"), [of])):
                return f"{self.path(of)}.{self.text(node.slice) or ''}"
            case ast.Call(ast.Name(id="getattr"), [of, name, *_]):
                return f"{self.path(of)}.{self.text(name) or ''}"
            case ast.Call(ast.Name(id="__import__") | ast.Attribute(attr="import_module"), [name, *_]):
                return self.text(name) or ""
            case ast.Call():
                path = self.path(node.func)
                path = f"{path.removesuffix('.home').removesuffix('.cwd')}" if "Path." in path else path
                last = path.rpartition(".")[2]
                return f"{path}()" if last[:1].isupper() or last in ("get_ipython", "open") else ""
            case _:
                return ""

    def _path_of_name(self, name: str) -> str:
        if name in self._paths:
            return self._paths[name]
        if self._is_local(name):
            return ""
        if name in self.namespace and not is_of_shell(name, self.namespace[name]):
            return _path_of_value(self.namespace[name])
        name = {"np": "numpy", "pd": "pandas"}.get(name, name)
        candidates = (f"{module}.{name}" for module in self._star_modules)
        return next((path for path in candidates if risks.entry(path)), name if name not in self.writes else "")

    def text(self, node: ast.AST | None) -> str | None:  # noqa: PLR0911  (one arm for each kind)
        """Return the constant text that an expression stands for, or None.

        In an f-string, expressions without a constant text stay in braces.
        """
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name) if name in self._texts or self._is_local(name):
                return self._texts.get(name)
            case ast.Name(id=name):
                value = self.namespace.get(name)
                return value if type(value) is str else str(value) if isinstance(value, PurePath) else None
            case ast.BinOp(op=ast.Add() | ast.Div() as op):
                left, right = self.text(node.left), self.text(node.right)
                mark = "/" if isinstance(op, ast.Div) else ""
                return None if left is None or right is None else f"{left}{mark}{right}"
            case ast.JoinedStr():
                return "".join(self.text(part) or "" for part in node.values)
            case ast.FormattedValue():
                return (
                    value_text
                    if (value_text := self.text(node.value)) is not None
                    else f"{{{ast.unparse(node.value)}}}"
                )
            case ast.List() | ast.Tuple() if node.elts:
                parts = [self.text(part) for part in node.elts]
                return " ".join(part or "…" for part in parts) if any(parts) else None
            case ast.Call() if self.path(node.func).endswith(("Path", "path.join", ".text")) and node.args:
                parts = [self.text(part) for part in node.args]
                return None if None in parts else "/".join(cast("list[str]", parts))
            case _:
                return None

    # -- names ---------------------------------------------------------------------------------

    def _follow(self, target: ast.expr, value: ast.expr | None) -> None:
        """Record the dotted path and the constant text of the value that is assigned to a name, if known."""
        if isinstance(target, ast.Name):
            path, text = self.path(value), self.text(value)
            if path and not path.startswith("."):
                self._paths[target.id] = path
            self._texts[target.id] = text if self._texts.get(target.id, text) == text else None

    def _bind(self, name: str) -> None:
        is_inner = any(scope != "comprehension" or name in names for names, scope in self._scopes)
        if name in self._globals or not is_inner:
            self.writes.add(name)

    @contextmanager
    def _scope(self, names: Iterable[str], scope: Scope = "function") -> Generator[None]:
        outer = set(self._globals)
        self._scopes.append((set(names), scope))
        try:
            yield
        finally:
            self._scopes.pop()
            self._globals = outer

    @contextmanager
    def _function(self, parameters: ast.arguments, body_names: Iterable[str]) -> Generator[None]:
        """Enter the scope of a function. Parameter defaults are visited first, because they are evaluated outside."""
        all_parameters = [
            *parameters.posonlyargs,
            *parameters.args,
            *parameters.kwonlyargs,
            *filter(None, (parameters.vararg, parameters.kwarg)),
        ]
        self._all(
            [
                *parameters.defaults,
                *filter(None, parameters.kw_defaults),
                *filter(None, (parameter.annotation for parameter in all_parameters)),
            ]
        )
        with self._scope([*body_names, *(parameter.arg for parameter in all_parameters)]):
            yield


def _hands_on(node: ast.Call) -> bool:
    """Return whether a call passes arguments to a method named in a text, as in `apply("eval", expr=text)`."""
    return len(node.args) > 2 or any(keyword.arg in ("args", "expr", None) for keyword in node.keywords)  # noqa: PLR2004


def _try_parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code.strip())
    except (SyntaxError, ValueError):
        return None


def _path_of_value(value: object) -> str:
    """Return the dotted path of a module, function or class. For another object, add "()" to that of its class.

    The path is "" for a class or function of the notebook, and for an object of such a class or of a built-in one.
    """
    if isinstance(value, ModuleType):
        return str(value.__name__)
    is_named = isinstance(value, (type, FunctionType, BuiltinFunctionType))
    kind: Any = value if is_named else type(value)
    module = str(kind.__module__).partition(".")[0]
    module, name = {"posix": "os", "nt": "os"}.get(module, module), str(kind.__name__)
    if module in ("__main__", "builtins"):
        return name if module == "builtins" and is_named else ""
    name = "Path" if module == "pathlib" else name
    return f"{module}.{name}{'' if is_named else '()'}"


def _type_parameters(node: ast.AST) -> list[ast.AST]:
    """Return the type parameters of a function or class, with their bounds and defaults. They exist from 3.12 on."""
    return getattr(node, "type_params", [])


def _as_load(target: ast.expr) -> ast.expr:
    """Return the target of an augmented assignment, such as `x += 1`, as an expression that reads the name."""
    is_name = isinstance(target, ast.Name)
    return ast.copy_location(ast.Name(target.id, ast.Load()), target) if is_name else target


def _assigned_names(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that a function or class body assigns: its own, unless declared `global` or `nonlocal`."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            # The variables of a comprehension are its own, except those that `:=` binds.
            yield from (inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr))
        elif not isinstance(node, ast.Lambda):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            yield from _assigned_names(ast.iter_child_nodes(node))
