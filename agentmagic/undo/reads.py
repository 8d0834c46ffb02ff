"""Finds out whether a program certainly changes nothing.

A program only reads if all its operations are in the tables of `operations`, and all its data have the types of
`data_types`, so that no code of the user runs.
"""

import ast
import builtins
import sys
from collections.abc import Callable, Iterable, Mapping
from string import Formatter
from typing import Any

from agentmagic.undo.data_types import is_data, known_kinds, member_of
from agentmagic.undo.library_members import foreign_names, is_own, places
from agentmagic.undo.operations import (
    CONSTANTS,
    FUNCTIONS,
    KEYS,
    KEYWORDS,
    METHODS,
    MODULES,
    OF_POLARS,
    OF_QUERY,
    OPERATORS,
    PARTS,
    REDUCTIONS,
    SIGNS,
    TAKE_ANY_KEYWORD,
    TO_PYTHON,
)


class _UnknownOperation(Exception):
    """Raised at the first operation of a program that is not in the tables of operations that change nothing."""


def only_reads(tree: ast.Module, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> bool:
    """Return whether a program that binds no names certainly changes nothing.

    `is_exit` returns whether a call of a name ends the program.
    """
    try:
        _ReadCheck(namespace, is_exit).block(tree.body)
    except _UnknownOperation:
        return False
    return not any(name.startswith("_") or name in METHODS or name in PARTS for name in foreign_names())


def keeps_binding(value: object, path: str, module_name: str) -> bool:
    """Return whether an import from a loaded module would leave a name bound to `value`, its present value.

    `path` is the dotted path of what is imported.
    """
    module, _, name = path.rpartition(".")
    return (
        module_name in sys.modules and value is not None and value is (sys.modules.get(path) or member_of(module, name))
    )


def _require(condition: object) -> None:
    if not condition:
        raise _UnknownOperation


class _ReadCheck:
    """Checks that all operations of a program are in the tables. Methods raise _UnknownOperation if one is not."""

    def __init__(self, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> None:
        self._namespace = namespace
        self._is_exit = is_exit
        self._local = frozenset[str]()
        self._places = places()
        self._of_polars: dict[str, bool] = {}
        """The variables that hold data. True if their data belong to polars."""

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Check that statements change nothing. Raises _UnknownOperation if a part of one is not in the tables."""
        for node in body:
            match node:
                case ast.Pass():
                    pass
                case ast.Import(names=names) | ast.ImportFrom(names=names):  # the caller checks the bound names
                    _require(names[0].name != "*")
                case ast.Expr(value=value):
                    self.data(value)
                case ast.If():
                    self.data(node.test)
                    self.block([*node.body, *node.orelse])
                case ast.Assert():
                    self._all(node.test, node.msg)
                case ast.Try() if not any(handler.name for handler in node.handlers):
                    self.block([*node.body, *node.orelse, *node.finalbody])
                    self.block(inner for handler in node.handlers for inner in handler.body)
                case _:
                    raise _UnknownOperation

    def data(self, node: ast.AST) -> bool:  # noqa: PLR0911  (one arm for each kind)
        """Check that an expression changes nothing and its value is data. Return whether the value is of polars."""
        match node:
            case ast.Constant():
                return False
            case ast.Name(id=name) if name in self._local:
                return False
            case ast.Name() | ast.Attribute() if path := self._path(node):
                member = member_of(*path.rpartition(".")[::2])
                _require(path in CONSTANTS or (isinstance(member, type) and member in known_kinds()))
                return False
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=of, attr=name):
                _require(name in PARTS or _is_column(name))
                return self.data(of) and name not in TO_PYTHON
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Subscript():
                self.data(node.slice)
                return self.data(node.value)
            case _:
                _require(isinstance(node, OPERATORS))
                flags = [self.data(child) for child in ast.iter_child_nodes(node) if not isinstance(child, SIGNS)]
                return isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and any(flags)

    def _all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.data(node)

    def _variable(self, name: str) -> bool:
        if name not in self._of_polars:
            value = self._namespace.get(name, self)
            _require(is_data(value))
            self._of_polars[name] = known_kinds()[type(value)] == "polars"
        return self._of_polars[name]

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
        outer = self._local
        for loop in node.generators:
            self.data(loop.iter)
            _require(not loop.is_async and not any(map(_is_part, ast.walk(loop.target))))
            self._local |= {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
            self._all(*loop.ifs)
        self._all(*((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)))
        self._local = outer
        return False

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> bool:
        path, func, args = self._path(node.func), node.func, node.args
        name = path.rpartition(".")[2]
        if (isinstance(func, ast.Name) and self._is_exit(func.id)) or path == "sys.exit":
            self._all(*args, *(argument.value for argument in node.keywords))
            return False
        if path:
            most, of_polars = FUNCTIONS.get(path), path.startswith("polars.")
            _require(path.startswith("builtins.") or not any(isinstance(argument, ast.Starred) for argument in args))
            if path in ("builtins.map", "builtins.filter") and args:
                self._key(args[0])
                args = args[1:]
        else:
            _require(
                isinstance(func, ast.Attribute) and not any(isinstance(argument, ast.Starred) for argument in args)
            )
            of, name = (func.value, func.attr) if isinstance(func, ast.Attribute) else (func, "")
            of_polars = self.data(of)
            _require(name != "format" or _is_plain_format(of))
            if not of_polars and name in ("agg", "aggregate", "transform", "query", "eval"):
                self._query(node) if name in ("query", "eval") else self._aggregate(node)
                return False
            most = 99 if of_polars and name in OF_POLARS else METHODS.get(name)
            of_polars &= name not in TO_PYTHON
        _require(most is not None and len(args) <= most)
        self._all(*args)
        for argument in node.keywords:
            if argument.arg == "key" and path in ("builtins.sorted", "builtins.min", "builtins.max"):
                self._key(argument.value)
            elif argument.arg == "aggfunc":
                self._reductions(argument.value)
            else:
                _require(argument.arg and (argument.arg in KEYWORDS or name in TAKE_ANY_KEYWORD))
                self.data(argument.value)
        return of_polars

    def _aggregate(self, node: ast.Call) -> None:
        """Check the arguments of a pandas method, such as `agg`, that calls the methods named in its arguments."""
        _require(len(node.args) + bool(node.keywords) == 1)
        for argument in node.args:
            self._reductions(argument)
        for argument in node.keywords:
            match argument.value:
                case ast.Tuple(elts=[ast.Constant(), method]) if argument.arg:
                    self._reductions(method)
                case _:
                    raise _UnknownOperation

    def _reductions(self, node: ast.expr) -> None:
        match node:
            case ast.List(elts=inner) | ast.Tuple(elts=inner):
                for item in inner:
                    self._reductions(item)
            case ast.Dict():
                self._all(*node.keys)
                for item in node.values:
                    self._reductions(item)
            case _:
                _require(isinstance(node, ast.Constant) and node.value in REDUCTIONS)

    def _query(self, node: ast.Call) -> None:
        """Check the text that pandas evaluates in `query` or `eval`."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]):
                try:
                    inner = ast.walk(ast.parse(text.strip(), mode="eval").body)
                except (SyntaxError, ValueError):
                    raise _UnknownOperation from None
                _require(all(isinstance(part, OF_QUERY) for part in inner))
            case _:
                raise _UnknownOperation

    def _key(self, node: ast.expr) -> None:
        """Check a function that a built-in function calls with data, such as the key of `sorted`."""
        match node:
            case ast.Constant(value=None):
                pass
            case ast.Attribute(value=ast.Name(id="str") as of, attr=name) if self._path(of) == "builtins.str":
                _require(name in METHODS)
            case ast.Lambda(args=ast.arguments([], parameters, None, [], [], None, [])):
                outer = self._local
                self._local |= {parameter.arg for parameter in parameters}
                self.data(node.body)
                self._local = outer
            case _:
                _require(isinstance(node, ast.Name) and node.id in KEYS and self._path(node) == f"builtins.{node.id}")

    # -- names ---------------------------------------------------------------------------------

    def _path(self, node: ast.AST) -> str:
        """Return the dotted path of the known module or member that an expression names, or "" if it names none."""
        match node:
            case ast.Name(id=name) if name not in self._local:
                value = self._namespace.get(name, vars(builtins).get(name, self))
                path = self._places.get(id(value), "")
                return path if path in MODULES or is_own(path) else ""
            case ast.Attribute(value=of, attr=name) if (base := self._path(of)) in MODULES:
                return path if is_own(path := f"{base}.{name}") else ""
            case _:
                return ""


def _is_part(node: ast.AST) -> bool:
    return isinstance(node, (ast.Attribute, ast.Subscript))


def _is_column(name: str) -> bool:
    """Return whether an attribute of this name can only be a column, because no data type has such an attribute."""
    return not (name.startswith("_") or any(hasattr(kind, name) for kind in known_kinds()))


def _is_plain_format(node: ast.expr) -> bool:
    """Return whether an expression is a constant format text that reads no attributes or items of its arguments."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return False
    try:
        parts = list(Formatter().parse(node.value))
    except ValueError:
        return False
    return all((field or "a").isalnum() and "{" not in (spec or "") for _, field, spec, _ in parts)
