"""What the names and expressions of a program stand for: scopes, dotted paths such as `os.remove`, constant texts."""

import ast
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Literal, cast

from agentmagic.runtime.exits import NAMES as EXITS
from agentmagic.undo import risks
from agentmagic.undo.own import is_of_shell

TOOL_NAMESPACES = ("tools", "agent_tools")
"""Names through which a program calls the tools of the turn as functions. A variable of the user hides its name."""

Scope = Literal["function", "class", "comprehension"]


@dataclass(slots=True)
class Scopes:
    """The names of a program at one place: those that it has bound so far, and the scopes around the place.

    `namespace` is the one in which the program would run. `writes` are the names that the program binds in it.
    """

    namespace: Mapping[str, Any]
    writes: set[str] = field(default_factory=set[str])
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

    def _is_free(self, name: str) -> bool:
        """Return whether no variable has this name, so that it has the value that Python or a tool call gives it."""
        return name not in self.namespace and name not in self.writes

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
                path = path.removesuffix(".home").removesuffix(".cwd") if "Path." in path else path
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
                known = self.text(node.value)
                return f"{{{ast.unparse(node.value)}}}" if known is None else known
            case ast.List() | ast.Tuple() if node.elts:
                parts = [self.text(part) for part in node.elts]
                return " ".join(part or "…" for part in parts) if any(parts) else None
            case ast.Call() if self.path(node.func).endswith(("Path", "path.join", ".text")) and node.args:
                parts = [self.text(part) for part in node.args]
                return None if None in parts else "/".join(cast("list[str]", parts))
            case _:
                return None

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
