"""Reads the messages of agentmagic's errors from its source, for the page `docs/reference/errors.md`.

What is filled into a message when it is made stands there in capitals: `There is no session NAME.` A name, a property or a
call is followed to the texts that it may be, within the package.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product
from math import prod
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 12
"""How many texts an expression may be; one that may be more is a word in capitals."""
DEEPEST = 5
"""How many names, properties and calls are followed in a row to find a whole message; one to find a piece of it."""
BUILT_IN = "needs a package that is not installed. Run: pip install 'agentmagic[EXTRA]'"
"""What `MissingExtra` adds to the feature that it is made with."""
TELLING = {"exhausted", "refusal"}
"""Methods of budgets that return a message; they are followed from other objects too."""
SAME = {"redact", "clip", "cut", "shown", "str"}
"""Functions that return about the text that they are given."""
KEPT = {"rstrip", "strip", "lower", "upper", "replace", "absolute", "expanduser", "splitlines", "removeprefix", "partition"}
"""Methods that return much the same as they are called on."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Made:
    """A place in the source where an error is made: its class, and the messages that it may have there."""

    kind: str
    module: str
    line: int
    messages: tuple[str, ...]


class Scope:
    """A function, or what stands in a module outside its functions."""

    def __init__(self, node: Function | ast.Module, module: str) -> None:
        self.node = node
        self.module = module
        self.functions: list[Function] = []
        self.calls: list[ast.Call] = []
        self.returned: list[ast.expr] = []
        self.assigned: dict[str, list[ast.expr]] = {}
        self._look(node.body)

    def _look(self, waiting: list[ast.AST]) -> None:
        waiting = [*reversed(waiting)]
        while waiting:
            match node := waiting.pop():
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.functions.append(node)
                    continue
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                    self.assigned.setdefault(name, []).append(value)  # an item of a list that is joined
                case ast.Call():
                    self.calls.append(node)
                case ast.Return(value=ast.expr() as value):
                    self.returned.append(value)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                ):
                    self.assigned.setdefault(name, []).append(value)
            waiting += [*ast.iter_child_nodes(node)][::-1]

    @cached_property
    def parameters(self) -> list[str]:
        """The names of the parameters, without `self`."""
        if isinstance(self.node, ast.Module):
            return []
        names = [one.arg for one in (*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs)]
        return names[1:] if names[:1] in (["self"], ["cls"]) else names


class Source:
    """The functions of the package, parsed."""

    def __init__(self) -> None:
        self.modules: dict[str, list[Scope]] = {}
        self.named: dict[str, list[Scope]] = {}
        self.called: dict[tuple[str, str], list[tuple[ast.Call, Scope]]] = {}
        for path in sorted((ROOT / "agentmagic").rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            scopes = self.modules[name] = [Scope(ast.parse(path.read_text(encoding="utf-8")), name)]
            for scope in scopes:  # which grows
                scopes += (Scope(node, name) for node in scope.functions)
            for scope in scopes[1:]:
                self.named.setdefault(scope.node.name, []).append(scope)
            for scope in scopes:
                for call in scope.calls:
                    self.called.setdefault((name, _last(call.func)), []).append((call, scope))
        whole = [scopes[0] for scopes in self.modules.values()]
        found = [(name, value, scope) for scope in whole for name, values in scope.assigned.items() for value in values]
        often = Counter(name for name, _, _ in found)
        self.constants = {name: [(value, at)] for name, value, at in found if name.isupper() and often[name] == 1}

    def made(self, kinds: frozenset[str]) -> Iterator[Made]:
        """Yield the places where errors of these classes are made."""
        for scope in chain.from_iterable(self.modules.values()):
            for call in scope.calls:
                if (kind := _last(call.func)) in kinds and call.args:
                    texts = Texts(self, scope).of(call.args[0])
                    end = f" {BUILT_IN}" if kind == "MissingExtra" else ""
                    yield Made(kind, scope.module, call.lineno, tuple(one_line(f"{text}{end}") for text in texts))


@dataclass(frozen=True)
class Texts:
    """Finds the texts that an expression of a scope may be."""

    source: Source
    scope: Scope
    depth: int = DEEPEST
    inside: bool = False  # another text

    def of(self, node: ast.expr) -> list[str]:
        """Return the texts, what is filled in as words in capitals."""
        found = list(dict.fromkeys(self._of(node)))
        unknown = self.inside and any(re.fullmatch("[A-Z ]+", text) for text in found)
        return found if 0 < len(found) <= MOST and not unknown else [placeholder(node)]

    def _of(self, node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Constant(value=None | True | False):
                pass
            case ast.Constant():
                yield str(node.value)
            case ast.JoinedStr():
                yield from self._joined([one.value for one in node.values])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from self._joined([left, right])
            case ast.IfExp(body=body, orelse=orelse):
                yield from (*self.of(body), *self.of(orelse))
            case ast.BoolOp(op=ast.And(), values=[*_, last]):
                yield from (*self.of(last), "")
            case ast.BoolOp(op=ast.Or(), values=values):
                yield from chain.from_iterable(map(self.of, values))
            case ast.Call(func=ast.Name(id="did_you_mean")):
                yield ""
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in SAME:
                yield from self.of(first)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[joined]):
                yield from self.of(joined)
            case ast.GeneratorExp(elt=elt) | ast.ListComp(elt=elt):
                yield from self.of(elt)
            case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=noun)]):
                yield f"NUMBER {noun}s"
            case _:
                yield from self._followed(node)

    def _joined(self, pieces: list[ast.expr | str]) -> Iterator[str]:
        within = replace(self, depth=min(self.depth, 1), inside=True)
        texts = [[piece] if isinstance(piece, str) else within.of(piece) for piece in pieces]
        while prod(map(len, texts)) > MOST:
            most = max(range(len(texts)), key=lambda at: len(texts[at]))
            texts[most] = [placeholder(pieces[most])]
        several = [text for text in texts if len(text) > 1]
        if len(several) > 1 and len({*map(len, several)}) == 1:  # names that each branch sets
            most = len(several[0])
            yield from map("".join, zip(*(text if len(text) > 1 else text * most for text in texts), strict=True))
        else:
            yield from map("".join, product(*texts))

    def _followed(self, node: ast.expr) -> Iterator[str]:
        values = list(self._values(node)) if self.depth else []
        if not values:
            yield placeholder(node)
        for value, scope in values:
            yield from replace(self, scope=scope, depth=self.depth - 1).of(value)

    def _values(self, node: ast.expr) -> Iterator[tuple[ast.expr, Scope]]:
        """Yield the expressions whose value a name, a property or a call has, each with its scope."""
        match node:
            case ast.Name(id=name) if name in self.scope.parameters:
                yield from () if self.inside else self._given(name)
            case ast.Name(id=name):
                here = dict.fromkeys((self.scope, self.source.modules[self.scope.module][0]))
                found = [(value, scope) for scope in here for value in scope.assigned.get(name, ())]
                just = [one for one in found if 0 <= node.lineno - (one[0].end_lineno or 0) <= 2]  # noqa: PLR2004  (lines)
                yield from just or found or self.source.constants.get(name, ())
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield from self._returned(name, properties=True)
            case ast.Attribute(value=ast.Name(), attr=name) if name in self.source.constants:
                yield from self.source.constants[name]
            case ast.Call(func=ast.Attribute(attr=name)) if name in TELLING:
                yield from self._returned(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name)):
                yield from self._returned(name)

    def _returned(self, name: str, *, properties: bool = False) -> Iterator[tuple[ast.expr, Scope]]:
        named = self.source.named.get(name, [])
        here = [scope for scope in named if scope.module == self.scope.module]
        for scope in here or (named if len(named) == 1 and not properties or name in TELLING else []):
            if properties == any(_last(one) in {"property", "cached_property"} for one in scope.node.decorator_list):
                yield from ((value, scope) for value in scope.returned)

    def _given(self, name: str) -> Iterator[tuple[ast.expr, Scope]]:
        """Yield what the callers in this module give for a parameter."""
        place = self.scope.parameters.index(name)
        for call, scope in self.source.called.get((self.scope.module, self.scope.node.name), ()):
            named = (word.value for word in call.keywords if word.arg == name)
            yield from ((value, scope) for value in (*call.args[place : place + 1], *named))


def _last(node: ast.expr) -> str:
    """Return the last name of a dotted one."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def has_words(text: str) -> bool:
    """Return whether a text says something itself, beside what is filled in."""
    return re.search("[a-z0-9]", text) is not None


def placeholder(node: ast.expr) -> str:
    """Return words in capitals for a value that is filled in."""
    return _word(node).strip("_").replace("_", " ").upper() or "VALUE"


def _word(node: ast.expr) -> str:
    match node:
        case ast.FormattedValue(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
            return _word(value)
        case ast.Name(id=name):
            return "" if name == "self" else name
        case ast.Attribute(value=value, attr=name):
            return _word(value) or name if name in {"name", "__name__", "strerror", "args"} else name
        case ast.Call(func=ast.Name(id="len" | "getattr" | "type" as name)):
            return {"len": "number", "getattr": "value", "type": "type"}[name]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in KEPT and _word(value):
            return _word(value)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str() as name), *_]):
            return name
        case ast.Call(func=func, args=arguments):
            return next(filter(None, map(_word, arguments)), "") or _word(func)
        case ast.BoolOp(values=values):
            return next(filter(None, map(_word, values)), "")
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return _word(left) or _word(right)
        case ast.GeneratorExp(elt=elt) | ast.ListComp(elt=elt) | ast.UnaryOp(operand=elt) | ast.Await(value=elt):
            return _word(elt)
        case _:
            return ""


def one_line(message: str) -> str:
    """Return a message on one line, values that follow each other at once as one."""
    return re.sub(r"\b([A-Z]{3,})\1\b", r"\1", re.sub(r"\s+", " ", message)).strip()
