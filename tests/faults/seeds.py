"""Finds where a fault can be seeded in a source text, and writes the text with a switch at each place."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOOSE = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Return, ast.Continue, ast.Break, ast.Delete)
NOT_AT_RUN_TIME = {"cast", "TypeVar", "NewType", "isinstance", "issubclass"}
"""Calls whose arguments are not swapped: a fault there says nothing, or stops every test."""


@dataclass(frozen=True)
class Seed:
    """A place in a file where `_seeded(number)` can switch a fault on."""

    path: str  # below the package's parent
    line: int
    kind: str
    start: int  # of the bytes that are replaced
    end: int
    pattern: str  # the new text, with {n} for the number

    def overlaps(self, other: "Seed") -> bool:
        return self.path == other.path and self.start < other.end and other.start < self.end


class _Finder(ast.NodeVisitor):
    """Collects the seeds of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.seeds: list[Seed] = []

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last, end = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[last - 1] + end

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def add(self, kind: str, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt, pattern: str) -> None:
        start, end = self.span(first)[0], self.span(last)[1]
        self.seeds.append(Seed(self.path, first.lineno, kind, start, end, pattern))

    def condition(self, test: ast.expr) -> None:
        if not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(test)):
            self.add("negated", test, test, f"(bool({_plain(self.text(test))}) ^ _seeded({{n}}))")

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr):  # Python 3.11 does not know the positions in it
            return
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.stmt):
            self.statement(node)
        self.expressions(node)
        for child in self.children(node):
            self.visit(child)

    def expressions(self, node: ast.AST) -> None:
        match node:
            case ast.If() | ast.While() | ast.IfExp():
                if not isinstance(node.test, ast.Constant):
                    self.condition(node.test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    self.condition(test)
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                self.add("off by one", node, node, f"({self.text(node)} + _seeded({{n}}))")
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in LOOSE:
                other = _plain(f"{self.text(left)} {LOOSE[type(op)]} {self.text(right)}")
                self.add("off by one", node, node, f"({other} if _seeded({{n}}) else {_plain(self.text(node))})")
            case ast.Call(func=func, args=[a, b, *_]) if not any(isinstance(arg, ast.Starred) for arg in (a, b)):
                if ast.unparse(func).rpartition(".")[2] not in NOT_AT_RUN_TIME:
                    one, two = _plain(self.text(a)), _plain(self.text(b))
                    self.add("swapped", a, b, f"*(({two}, {one}) if _seeded({{n}}) else ({one}, {two}))")

    def statement(self, node: ast.stmt) -> None:
        start, _ = self.span(node)
        line = self.source[self.starts[node.lineno - 1] : start]
        if not isinstance(node, DROPPED) or line.strip():
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets):
            return  # the next line that reads the name would stop
        self.add("dropped", node, node, f"if not _seeded({{n}}): {_plain(self.text(node))}")

    @staticmethod
    def children(node: ast.AST) -> Iterator[ast.AST]:
        """The children that run: no annotations, no patterns of `match`, no decorators, no bases."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default)
                yield from node.body
            case ast.AnnAssign(value=value):
                yield from [value] if value else []
            case ast.ClassDef(body=body):
                yield from body
            case ast.match_case(guard=guard, body=body):
                yield from ([guard] if guard else [])
                yield from body
            case _:
                yield from ast.iter_child_nodes(node)


def _plain(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def chosen(root: Path, files: list[Path], seed: int, count: int) -> list[Seed]:
    """Return seeds of the files, drawn at random and without overlaps; the same for the same seed and files."""
    found: list[Seed] = []
    for file in sorted(files):
        source = file.read_bytes()
        finder = _Finder(file.relative_to(root).as_posix(), source)
        finder.visit(ast.parse(source))
        found += finder.seeds
    random.Random(seed).shuffle(found)  # noqa: S311 - a choice that can be repeated, no secret
    drawn: list[Seed] = []
    for one in found:
        if len(drawn) == count:
            break
        if not any(one.overlaps(other) for other in drawn):
            drawn.append(one)
    return drawn


def sow(root: Path, seeds: list[Seed]) -> None:
    """Write the files below `root` with the switches of the seeds, numbered from 0."""
    numbered = sorted(enumerate(seeds), key=lambda pair: pair[1].start, reverse=True)
    for number, seed in numbered:
        file = root / seed.path
        source = file.read_bytes()
        new = seed.pattern.format(n=number).encode()
        file.write_bytes(source[: seed.start] + new + source[seed.end :])
