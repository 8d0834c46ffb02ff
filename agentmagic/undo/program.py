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
from types import CodeType
from typing import TYPE_CHECKING, Any

from agentmagic.text import single_line, word_set
from agentmagic.undo import data_types, risks
from agentmagic.undo.ipython_lines import IPythonLines, try_parse
from agentmagic.undo.own import SHELL_NAMES, is_of_shell
from agentmagic.undo.scopes import TOOL_NAMESPACES, Scopes

if TYPE_CHECKING:
    from agentmagic.undo.reads import OnlyReads

READS = "It only reads."
UNBOUNDED = "It only reads, but how long it takes is not known before: `{}`."
LONGEST_EXPRESSION = 100
"""Characters shown of the expression that UNBOUNDED names."""
AFTERWARDS = "When it has run, you see what it changed."

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
    walk, reading = _Walk(namespace or {}), None
    lines = IPythonLines(walk.record_risk)
    try:
        tree = lines.parse(code)
        walk.is_open |= lines.inserts
        walk.visit(tree)
        is_quiet = not (walk.writes or walk.removes or walk.risks or lines.found)
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


@dataclass(slots=True)
class _Walk(Scopes):
    """Visits the nodes of a program's syntax tree, as far as possible in the order in which they run."""

    reads: set[str] = field(default_factory=set[str])
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

    def record_risk(self, line: int, act: str, argument: str | None, source: str) -> None:
        """Record what a line does that the user should know, or which file it reads."""
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

    def _part(self, node: ast.Attribute | ast.Subscript, *, called: bool = False) -> None:
        """Record that an attribute or an item is read, written or removed."""
        base, is_load = node.value, isinstance(node.ctx, ast.Load)
        key = self.text(node.slice) if isinstance(node, ast.Subscript) else node.attr
        name = base.id if isinstance(base, ast.Name) else ""
        if name in TOOL_NAMESPACES and self._is_free(name) and not self._is_local(name):
            self.calls.add(key or "?")
        elif self.path(base) in risks.ENVIRONMENT:
            self._callee(base)
            if isinstance(node, ast.Subscript) and is_load and (act := risks.of_environment(key)):
                self.record_risk(node.lineno, *act, ast.unparse(node))
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

    def _mention(self, node: ast.Name | ast.Attribute | ast.Subscript) -> None:
        if act := risks.of_mention(self.path(node)):
            self.record_risk(node.lineno, *act, ast.unparse(node))

    def _write(self, base: ast.expr) -> None:
        """Record a change to an object, under the name of the variable through which the program reaches it."""
        base = _root(base)
        if not isinstance(base, ast.Name) or (self._is_free(base.id) and hasattr(builtins, base.id)):
            return
        if not self._is_local(base.id):
            (self.possible_names if self._is_of_class(base.id) else self.writes).add(base.id)

    def _call(self, node: ast.Call) -> None:
        func, path = node.func, self.path(node.func)
        for act, argument in risks.ProgramCall(path, node, self.path, self.text).acts():
            self.record_risk(node.lineno, act, argument, ast.unparse(node))
        self._callee(func)
        self._all([*node.args, *node.keywords])
        first_text = self.text(node.args[0]) if node.args else None
        match func:
            case ast.Name(id="getattr") if len(node.args) > 1:
                attribute = self.text(node.args[1])
                self.is_open |= attribute is None or attribute in _DOORS
            case ast.Name(id="eval" | "exec") if path == func.id and (tree := try_parse(first_text or "")):
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
        base = _root(base)
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
                self.record_risk(node.lineno, *act, f"from {module} import {alias.name}")

    @contextmanager
    def _function(self, parameters: ast.arguments, body_names: Iterable[str]) -> Generator[None]:
        """Enter the scope of a function. Defaults and annotations of parameters are visited outside."""
        self._all(ast.iter_child_nodes(parameters))
        own_names = [node.arg for node in ast.iter_child_nodes(parameters) if isinstance(node, ast.arg)]
        with self._scope([*body_names, *own_names]):
            yield


def _root(node: ast.expr) -> ast.expr:
    """Return the expression of whose parts or items a part is."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def _hands_on(node: ast.Call) -> bool:
    """Return whether a call passes arguments to a method named in a text, as in `apply("eval", expr=text)`."""
    return len(node.args) > 2 or any(keyword.arg in ("args", "expr", None) for keyword in node.keywords)  # noqa: PLR2004


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
