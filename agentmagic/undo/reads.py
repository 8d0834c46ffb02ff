"""Finds out whether a program certainly changes nothing.

A program only reads if all its operations are in the tables of `operations`, and all its data have the types of
`data_types`, so that no code of the user runs.
"""

import ast
import builtins
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, isnan
from string import Formatter
from typing import Any

from agentmagic.undo.data_types import is_data, known_kinds, member_of
from agentmagic.undo.extents import OTHER, POLARS, Extent, join, measure, repeated, text_of, unknown
from agentmagic.undo.kinds import KINDS, aggregated, queried
from agentmagic.undo.library_members import foreign_names, is_own, places
from agentmagic.undo.operations import (
    CONSTANTS,
    FUNCTIONS,
    GROUPED,
    KEYS,
    KEYWORDS,
    KIND_OF,
    METHODS,
    MODULES,
    NAMESPACES,
    OF_POLARS,
    OF_POLARS_FRAME,
    OF_POLARS_SERIES,
    OF_QUERY,
    OPERATORS,
    PARTS,
    REDUCTIONS,
    TAKE_ANY_KEYWORD,
)
from agentmagic.undo.operators import Bounded, attribute_of, combine, item_of, literal_of, looped, negate, slice_of
from agentmagic.undo.texts import formatted, shown
from agentmagic.undo.workload import (
    MOST_ELEMENTS,
    Given,
    as_array,
    call_work,
    converted,
    hashed_again,
)


class _UnknownOperation(Exception):
    """Raised at the first operation of a program that is not in the tables of operations that change nothing."""


@dataclass(frozen=True, slots=True)
class OnlyReads:
    """A program that certainly changes nothing.

    `unbounded` is the expression from which on its work is not bounded by sizes that are known before, "" if it is.
    """

    unbounded: str = ""


def reading_of(tree: ast.Module, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> OnlyReads | None:
    """Return what is known of a program that binds no names, or None if it may change something.

    `is_exit` returns whether a call of a name ends the program.
    """
    check = _ReadCheck(namespace, is_exit)
    try:
        check.block(tree.body)
    except _UnknownOperation:
        return None
    if any(name.startswith("_") or name in METHODS or name in PARTS for name in foreign_names()):
        return None
    return OnlyReads(check.unbounded)


def _require(condition: object) -> None:
    if not condition:
        raise _UnknownOperation


class _ReadCheck:
    """Checks that all operations of a program are in the tables, and adds up their work.

    Methods raise _UnknownOperation if an operation is not in the tables. They return the extents of values.
    """

    def __init__(self, namespace: Mapping[str, Any], is_exit: Callable[[str], bool]) -> None:
        self.unbounded = ""
        """The first expression with which the work is more than MOST_ELEMENTS."""
        self._namespace = namespace
        self._is_exit = is_exit
        self._local: Mapping[str, Extent] = {}
        self._places = places()
        self._variables: dict[str, Extent] = {}
        self._work, self._rounds = 0.0, 1.0

    def block(self, body: Iterable[ast.stmt]) -> None:
        """Check that statements change nothing. Raises _UnknownOperation if a part of one is not in the tables."""
        for node in body:
            match node:
                case ast.Pass():
                    pass
                case ast.Import(names=names) | ast.ImportFrom(names=names):  # the caller checks the bound names
                    _require(names[0].name != "*")
                case ast.Expr(value=value):
                    self._spend(shown(self.data(value)), value)
                case ast.If():
                    self.data(node.test)
                    self.block([*node.body, *node.orelse])
                case ast.Assert():
                    for part in filter(None, (node.test, node.msg)):
                        self.data(part)
                case ast.Try() if not any(handler.name for handler in node.handlers):
                    for handler in node.handlers:
                        self._caught(handler.type)
                    self.block([*node.body, *node.orelse, *node.finalbody])
                    self.block(inner for handler in node.handlers for inner in handler.body)
                case _:
                    raise _UnknownOperation

    def _caught(self, node: ast.expr | None) -> None:
        """Check the types of exceptions that a handler names, which are evaluated only when one is raised."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        for part in filter(None, parts):
            name = part.id if isinstance(part, ast.Name) and part.id not in self._namespace else ""
            kind = vars(builtins).get(name)
            _require(isinstance(kind, type) and issubclass(kind, BaseException))

    def _spend(self, work: float, node: ast.AST) -> None:
        """Add the work of an expression, once for each round of the loops around it."""
        self._work += (work + 1) * self._rounds
        if not (self.unbounded or self._work <= MOST_ELEMENTS):
            self.unbounded = ast.unparse(node)

    def _bounded(self, bounded: Bounded, node: ast.AST) -> Extent:
        work, extent = bounded
        self._spend(work, node)
        return replace(extent, size=inf) if isnan(extent.size) else extent

    def data(self, node: ast.AST) -> Extent:  # noqa: PLR0911  (one arm for each kind)
        """Check that an expression changes nothing and its value is data. Return what is certain of the value."""
        match node:
            case ast.Constant(value=value):
                return measure(value)
            case ast.Name(id=name) if name in self._local:
                return self._local[name]
            case ast.Name() | ast.Attribute() if path := self._path(node):
                return _constant(path)
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(attr=name):
                if name in NAMESPACES:  # itself a value, over which a loop can go
                    self._spend(inf, node)
                return self._object(node)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Subscript(value=of, slice=key):
                extent = self._object(of)
                self._spend(call_work(extent) * 0.2, node)
                return self._bounded(item_of(extent, self._place(of, key)), node)
            case _:
                _require(isinstance(node, OPERATORS))
                return self._operation(node)

    def _object(self, node: ast.expr) -> Extent:
        """Check an expression whose part or method is used."""
        if not isinstance(node, ast.Attribute) or self._path(node):
            return self.data(node)
        _require(node.attr in PARTS or _is_column(node.attr))
        return self._bounded(attribute_of(self._object(node.value), node.attr), node)

    def _place(self, of: ast.expr, key: ast.expr) -> Extent:
        """Check the key of an item. The places of `loc[rows, columns]` are a tuple of their extents."""
        places = key.elts if isinstance(key, ast.Tuple) else [key]
        is_tuple = isinstance(of, ast.Attribute) and of.attr in ("loc", "iloc", "at", "iat")
        keys = [self.data(one.value if isinstance(one, ast.Starred) else one) for one in places]
        if any(isinstance(one, ast.Starred) for one in places):
            return Extent("tuple", None, exact=(unknown(inf),))
        return Extent("tuple", exact=tuple(keys)) if is_tuple or len(places) != 1 else keys[0]

    def _variable(self, name: str) -> Extent:
        if name not in self._variables:
            value = self._namespace.get(name, self)
            _require(is_data(value))
            try:
                self._variables[name] = measure(value, name)
            except Exception:  # noqa: BLE001  (a library of another version may raise anything, and data can be deep)
                raise _UnknownOperation from None
        return self._variables[name]

    def _operation(self, node: ast.AST) -> Extent:  # noqa: PLR0911  (one arm for each kind)
        """Check an operator or a literal."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                pair = self.data(left), self.data(right)
                self._spend(call_work(*pair) * 0.5, node)
                return self._bounded(combine(type(op).__name__, *pair), node)
            case ast.UnaryOp(op=op, operand=operand):
                return self._bounded(negate(type(op).__name__, self.data(operand)), node)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self.data(part) for part in (left, *others)]
                self._spend(call_work(*values) * 0.5, node)
                pairs = zip(ops, values, values[1:], strict=False)
                return join([self._bounded(combine(type(op).__name__, one, other), node) for op, one, other in pairs])
            case ast.BoolOp(values=parts) | ast.JoinedStr(values=parts):
                values = [self.data(part) for part in parts]
                return join(values) if isinstance(node, ast.BoolOp) else text_of(sum(one.size for one in values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.data(test)
                return join([self.data(body), self.data(orelse)])
            case ast.FormattedValue(value=value, format_spec=spec):
                known = _constant_text(spec)
                form = None if spec is None else self.data(spec) if known is None else measure(known)
                return self._bounded(formatted(self.data(value), form), node)
            case ast.Dict(keys=keys, values=parts):
                items = [self.data(part) for part in parts]
                names = [self.data(key) for key in keys if key is not None]
                several = repeated(join(items), float(len(items)), join(names))
                return several if None not in keys else unknown(sum(2 * one.size for one in (*items, *names)))
            case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
                items = [self.data(one.value if isinstance(one, ast.Starred) else one) for one in elts]
                stars = [isinstance(one, ast.Starred) for one in elts]
                return self._bounded(literal_of(items, stars), node)
            case ast.Slice():
                return slice_of(
                    [None if part is None else self.data(part) for part in (node.lower, node.upper, node.step)]
                )
            case _:
                raise _UnknownOperation

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Extent:
        outer, rounds, length = self._local, self._rounds, 1.0
        for loop in node.generators:
            values = self.data(loop.iter)
            _require(not loop.is_async and not any(map(_is_part, ast.walk(loop.target))))
            self._spend(looped(values), loop.iter)
            length *= max(1.0, values.length)
            self._rounds = rounds * length
            self._local = {**self._local, **_bound_names(loop.target, values.item())}
            for condition in loop.ifs:
                self.data(condition)
        keys = self.data(node.key) if isinstance(node, ast.DictComp) else None
        result = repeated(self.data(node.value if isinstance(node, ast.DictComp) else node.elt), length, keys)
        self._local, self._rounds = outer, rounds
        if not isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            self._spend(hashed_again(length, (keys or result).bits), node)
        return result

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Extent:
        path, func, args = self._path(node.func), node.func, node.args
        has_stars = any(isinstance(argument, ast.Starred) for argument in args)
        if (isinstance(func, ast.Name) and self._is_exit(func.id)) or path == "sys.exit":
            self._given(node, args, "", path)
            return OTHER
        if path:
            most, name = FUNCTIONS.get(path), path.rpartition(".")[2]
            _require(path.startswith("builtins.") or not has_stars)
            _require(most is not None and len(args) <= most)
            return self._function(node, path, name)
        _require(isinstance(func, ast.Attribute) and not has_stars)
        of, name = (func.value, func.attr) if isinstance(func, ast.Attribute) else (func, "")
        extent = self._object(of)
        self._spend(call_work(extent), node)
        if name == "format":
            _require(_is_plain_format(of))
            return self._format(extent, self._given(node, args, name, path), node)
        if extent.kind not in POLARS and name in ("query", "eval"):
            return self._bounded(queried(extent, self._query(node)), node)
        if extent.kind not in POLARS and name in ("agg", "aggregate", "transform"):
            parts = [*args, *(argument.value for argument in node.keywords)]
            by_column = bool(node.keywords) or any(isinstance(part, ast.Dict) for part in parts)
            return self._bounded(aggregated(extent, self._aggregate(node), by_column=by_column), node)
        most = 99 if extent.kind in POLARS and name in OF_POLARS else METHODS.get(name)
        _require(most is not None and len(args) <= most)
        return self._kind(name if name in METHODS else "sort_values", extent, self._given(node, args, name, path), node)

    def _format(self, text: Extent, given: Given, node: ast.Call) -> Extent:
        """Bound `text.format(values)`: each value can be shown in each field."""
        several = [self._bounded(formatted(one, text), node).size for one in given.all]
        return text_of(text.size + sum(several) * str(text.exact).count("{"))

    def _kind(self, path: str, of: Extent, given: Given, node: ast.AST) -> Extent:
        """Bound a method or function in the table."""
        if of.kind in POLARS:
            self._spend(converted(given), node)
        if of.kind == "groups" and path not in GROUPED:
            self._spend(3 * looped(of), node)
        result = self._bounded(KINDS[KIND_OF[path]](of, given), node)
        if result.kind not in POLARS or path.startswith("polars.") or _returns_polars(of.kind, path, given):
            return result
        return replace(result, kind="")

    def _function(self, node: ast.Call, path: str, name: str) -> Extent:
        args, key = node.args, None
        if path in ("builtins.map", "builtins.filter") and args:
            args, key = args[1:], args[0]
        given = self._given(node, args, name, path)
        if any(isinstance(argument, ast.Starred) for argument in args):
            _require(path.startswith("builtins."))
            several = unknown(sum(one.size + one.length for one in given.args), max(one.bits for one in given.args))
            given = Given((several,) * 2, given.names)
        if path.startswith("polars."):
            self._spend(converted(given), node)
        if path.startswith("numpy."):
            given = Given(tuple(map(as_array, given.args)), given.names)
        self._spend({"pandas": 2000, "polars": 500, "numpy": 100}.get(path.partition(".")[0], 0), node)
        result = self._kind(path, *given.without_first(), node)
        if key is None:
            return result
        rounds = max([1.0, *(one.length for one in given.args)])
        made = self._key(key, [one.item() for one in given.args], rounds)
        return repeated(made, rounds) if name == "map" and made is not None else result

    def _given(self, node: ast.Call, args: list[ast.expr], name: str, path: str) -> Given:
        """Check the arguments of a call."""
        values = tuple(self.data(one.value if isinstance(one, ast.Starred) else one) for one in args)
        names = dict[str, Extent]()
        for argument in node.keywords:
            if argument.arg == "key" and path in ("builtins.sorted", "builtins.min", "builtins.max"):
                items = [values[0].item()] if len(values) == 1 else [join(values)]
                self._key(argument.value, items, max([1.0, *(one.length for one in values)]))
            elif argument.arg == "aggfunc":
                self._reductions(argument.value)
            else:
                is_exit = not name
                _require(is_exit or (argument.arg and (argument.arg in KEYWORDS or name in TAKE_ANY_KEYWORD)))
                names[argument.arg or "**"] = self.data(argument.value)
        return Given(values, names)

    def _aggregate(self, node: ast.Call) -> float:
        """Check the arguments of a pandas method, such as `agg`, that calls the methods named in its arguments.

        Return how often the methods go over the data.
        """
        _require(len(node.args) + bool(node.keywords) == 1)
        rounds = sum(map(self._reductions, node.args))
        for argument in node.keywords:
            match argument.value:
                case ast.Tuple(elts=[ast.Constant(), method]) if argument.arg:
                    rounds += self._reductions(method)
                case _:
                    raise _UnknownOperation
        return rounds

    def _reductions(self, node: ast.expr) -> float:
        """Check the names of methods. Return how many there are; one that works group by group counts as 3,000."""
        match node:
            case ast.List(elts=inner) | ast.Tuple(elts=inner):
                return sum(map(self._reductions, inner))
            case ast.Dict():
                for key in node.keys:
                    _require(key)
                    self.data(key or node)
                return sum(map(self._reductions, node.values))
            case _:
                _require(isinstance(node, ast.Constant) and node.value in REDUCTIONS)
                return 3000 if isinstance(node, ast.Constant) and node.value == "describe" else 1

    def _query(self, node: ast.Call) -> float:
        """Check the text that pandas evaluates in `query` or `eval`. Return how often it goes over the data."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]):
                try:
                    parts = [*ast.walk(ast.parse(text.strip(), mode="eval").body)]
                except (SyntaxError, ValueError):
                    raise _UnknownOperation from None
                _require(all(isinstance(part, OF_QUERY) for part in parts))
                grow = (ast.Pow, ast.LShift, ast.Mult, ast.Mod)
                return inf if any(isinstance(part, grow) for part in parts) else len(parts)
            case _:
                raise _UnknownOperation

    def _key(self, node: ast.expr, values: list[Extent], rounds: float) -> Extent | None:
        """Check a function that a built-in function calls with data, such as the key of `sorted`. Return its result."""
        before, self._rounds = self._rounds, self._rounds * max(1.0, rounds)
        outer, result = self._local, None
        match node:
            case ast.Constant(value=None):
                pass
            case ast.Attribute(value=ast.Name(id="str") as of, attr=name) if self._path(of) == "builtins.str":
                _require(name in METHODS and name != "format")
                one, *others = values or [OTHER]
                result = self._kind(name, one, Given(tuple(others)), node)
            case ast.Lambda(args=ast.arguments([], parameters, None, [], [], None, [])):
                named = zip((parameter.arg for parameter in parameters), [*values, *[OTHER] * 99], strict=False)
                self._local = {**self._local, **dict(named)}
                result = self.data(node.body)
            case _:
                _require(isinstance(node, ast.Name) and node.id in KEYS and self._path(node) == f"builtins.{node.id}")
                one, *others = values or [OTHER]
                result = self._kind(self._path(node), one, Given(tuple(others)), node)
        self._local, self._rounds = outer, before
        return result

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


def _constant(path: str) -> Extent:
    """Return the extent of a module's constant or of a type of data. Raises _UnknownOperation for other members."""
    member = member_of(*path.rpartition(".")[::2])
    is_type = isinstance(member, type) and member in known_kinds()
    _require(path in CONSTANTS or is_type)
    if is_type or path.startswith("re."):
        return Extent("type", exact=path) if is_type else Extent("flag")
    return measure(member) if type(member) in known_kinds() else unknown(100)


def _constant_text(node: ast.AST | None) -> str | None:
    """Return the text of an f-string without expressions, None for another."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def _bound_names(target: ast.expr, item: Extent) -> dict[str, Extent]:
    """Return the extents of the names to which a loop binds an item."""
    match target:
        case ast.Name(id=name):
            return {name: item}
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            names = dict[str, Extent]()
            for part in elts:
                names |= _bound_names(part, item.item())
            return names
        case ast.Starred(value=value):
            return _bound_names(value, unknown(item.size, item.bits))
        case _:
            raise _UnknownOperation


def _returns_polars(kind: str, name: str, given: Given) -> bool:
    """Return whether a method of this kind certainly returns a value of polars, and not one that it was given."""
    if kind in ("polars expression", "polars groups"):
        return True
    names = OF_POLARS_FRAME if kind == "polars frame" else OF_POLARS_SERIES if kind == "polars series" else ()
    return name in names and "default" not in given.names


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
