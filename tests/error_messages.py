"""Reads the messages of errors from the source of agentmagic, for the page `docs/reference/errors.md`.

What is filled into a message when it is made stands there in capitals: `There is no session NAME.` Names, properties
and calls are followed to the texts that they may be, within the package.
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
from typing import Any

from agentmagic.errors import usage_code

ROOT = Path(__file__).parent.parent
MOST = 40
"""How many texts an expression may be; one that may be more is a word in capitals."""
DEEPEST = 6
"""How many names, properties and calls are followed in a row to find a whole message; one to find a piece of it."""
ADDED = {"MissingExtra": " needs a package that is not installed. Run: pip install 'agentmagic[EXTRA]'"}
"""What a class adds to the text that it is made with."""
ROOTS = {"AgentMagicError", "BudgetExhausted"}
"""The classes whose messages people see, with those below them."""
FOR_MODELS = {"ToolError"}
"""The classes whose messages models see."""
TELLING = {"why_refused", "why_stopped", "open_plan_message"}
"""Methods and properties that return a message; they are followed on other objects than `self` too."""
SAME = {"redact", "clip", "cut", "sanitize", "str"}
"""Functions that return about the text that they are given."""
KEPT = {"rstrip", "strip", "lower", "upper", "replace", "absolute", "expanduser", "splitlines", "partition"}
"""Methods that return much the same as they are called on."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Made:
    """A place in the source where an error is made: its class, and the messages that it may have there."""

    kind: str
    code: str
    module: str
    line: int
    messages: tuple[str, ...]


class Scope:
    """A function, or what stands in a module outside its functions."""

    def __init__(self, node: Function | ast.Module, module: str) -> None:
        self.node = node
        self.module = module
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.calls: list[ast.Call] = []
        self.returned: list[ast.expr] = []
        self.assigned: dict[str, list[ast.expr]] = {}
        self.added: dict[str, list[ast.expr]] = {}
        self._look(node.body)

    def _look(self, waiting: list[ast.AST]) -> None:
        waiting = [*reversed(waiting)]
        while waiting:
            match node := waiting.pop():
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.functions.append(node)
                    continue
                case ast.ClassDef():
                    self.classes.append(node)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                    self.added.setdefault(name, []).append(value)
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

    def values(self, name: str, line: int) -> list[ast.expr]:
        """Return the expressions whose value a name may have at a line, and those of the items of a list."""
        given = sorted(self.assigned.get(name, ()), key=lambda value: value.lineno)
        before = [value for value in given if value.lineno < line] or given
        here = self._block(line)
        certain = [at for at, value in enumerate(before) if here[: len(block := self._block(value.lineno))] == block]
        return [*before[max(certain, default=0) :], *self.added.get(name, ())]

    def _block(self, line: int) -> tuple[int, ...]:
        """Return the lists of statements that a line is in, by id, from the outside in."""
        return self._blocks.get(max((one for one in self._blocks if one <= line), default=0), ())

    @cached_property
    def _blocks(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        waiting: list[tuple[list[Any], tuple[int, ...]]] = [(self.node.body, ())]
        for statements, outside in waiting:  # which grows
            block = (*outside, id(statements))
            for one in statements:
                found[one.lineno] = block
                parts = (one, *getattr(one, "handlers", ()), *getattr(one, "cases", ()))
                inside = (getattr(part, name, None) for part in parts for name in ("body", "orelse", "finalbody"))
                waiting += [(body, block) for body in inside if isinstance(body, list)]
        return found

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

    @cached_property
    def codes(self) -> dict[str, str]:
        """The code of each class of errors by its name; a class without its own has that of the class above it."""
        classes = {one.name: one for scopes in self.modules.values() for scope in scopes for one in scope.classes}

        def line(name: str) -> list[ast.ClassDef]:
            if name not in classes:
                return []
            bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
            return [classes[name], *chain.from_iterable(map(line, bases))]

        lines = {name: line(name) for name in classes}
        errors = {name: found for name, found in lines.items() if ROOTS & {one.name for one in found}}
        return {name: next(filter(None, map(_code, found))) for name, found in errors.items()}

    def made(self) -> Iterator[Made]:
        """Yield the places where errors are made."""
        for scope in chain.from_iterable(self.modules.values()):
            for call in scope.calls:
                if _last(call.func) in self.codes and call.args:
                    yield self._made(call.func, scope, Texts(self, scope).of(call.args[0]))
            for value in scope.returned:  # a class, and what an error of it says: what happened, and what to do
                match value:
                    case ast.Tuple(elts=[ast.Name(id=kind) as named, happened, advice]) if kind in self.codes:
                        pieces = [happened, ". It says: WORDS ", advice]
                        yield self._made(named, scope, list(Texts(self, scope).joined(pieces)))

    def _made(self, named: ast.expr, scope: Scope, texts: list[str]) -> Made:
        kind = _last(named)
        code = usage_code(scope.module) if kind == "UsageError" else self.codes[kind]
        messages = tuple(one_line(f"{text}{ADDED.get(kind, '')}") for text in texts)
        return Made(kind, code, scope.module, named.lineno, messages)


def _code(node: ast.ClassDef) -> str:
    """Return the code that a class has of its own, "" if it has none."""
    for line in node.body:
        match line:
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str() as code)):
                return code
    return ""


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
                yield from self.joined([one.value for one in node.values])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from self.joined([left, right])
            case ast.IfExp(body=first, orelse=other) | ast.BoolOp(op=ast.Or(), values=[first, other]):
                yield from (*self.of(first), *self.of(other))
            case ast.BoolOp(op=ast.And(), values=[*_, last]):
                yield from (*self.of(last), "")
            case ast.Tuple(elts=[ast.Constant(), *_] as words):  # the rest are joined
                yield ", ".join(str(one.value) if isinstance(one, ast.Constant) else placeholder(one) for one in words)
            case ast.GeneratorExp(elt=first) | ast.ListComp(elt=first) | ast.Tuple(elts=[first, *_]):
                yield from self.of(first)
            case ast.Call():
                yield from self._of_call(node)
            case _:
                yield from self._followed(node)

    def _of_call(self, node: ast.Call) -> Iterator[str]:
        match node:
            case ast.Call(func=ast.Name(id="did_you_mean")):
                yield ""
            case ast.Call(func=ast.Name(id="plural"), args=[_, ast.Constant(value=noun)]):
                yield f"NUMBER {noun}s"
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in SAME:
                yield from self.of(first)
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[joined]):
                yield from self.of(joined)
            case _:
                yield from self._followed(node)

    def joined(self, pieces: list[ast.expr | str]) -> Iterator[str]:
        """Yield the texts that pieces may be together."""
        within = replace(self, depth=min(self.depth, 1), inside=True)
        texts = [[piece] if isinstance(piece, str) else within.of(piece) for piece in pieces]
        while prod(map(len, texts)) > MOST:
            most = max(range(len(texts)), key=lambda at: len(texts[at]))
            texts[most] = [placeholder(pieces[most])]
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
                here = (self.scope, self.source.modules[self.scope.module][0])
                found = [(value, scope) for scope in dict.fromkeys(here) for value in scope.values(name, node.lineno)]
                yield from found or self.source.constants.get(name, ())
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == "self" or name in TELLING:
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
        for scope in here or (named if (len(named) == 1 and not properties) or name in TELLING else []):
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
    """Return the name that says best what a value is, "" if there is none."""
    match node:
        case ast.Name(id=name) if name != "self":
            return name
        case ast.Attribute(value=value, attr="name" | "__name__" | "strerror" | "args" as name):
            return _word(value) or name
        case ast.Attribute(attr=name):
            return name
        case ast.Call():
            return _word_of_call(node)
        case _:
            inside = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
            return next(filter(None, map(_word, inside)), "")


def _word_of_call(node: ast.Call) -> str:
    match node:
        case ast.Call(func=ast.Name(id="len" | "getattr" | "type" as name)):
            return {"len": "number", "getattr": "value", "type": "type"}[name]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in KEPT and _word(value):
            return _word(value)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str() as name), *_]):
            return name
        case _:
            return next(filter(None, map(_word, node.args)), "") or _word(node.func)


def one_line(message: str) -> str:
    """Return a message on one line, values that follow each other at once as one."""
    return re.sub(r"\b([A-Z]{3,})\1\b", r"\1", re.sub(r"\s+", " ", message)).strip()
