"""The tool that runs Python code in the notebook; the code can call the turn's other tools as functions."""

import builtins
import inspect
import keyword
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from agentmagic.errors import ToolError
from agentmagic.host import RunningNotebook
from agentmagic.messages import ToolDef, ToolResult
from agentmagic.text import clip, single_line
from agentmagic.tools.base import NO_OUTPUT, Effects, Tool, ToolContext, result
from agentmagic.tools.functions import function_tool
from agentmagic.undo.program import analyse
from agentmagic.undo.scopes import TOOL_NAMESPACES

MOST_FUNCTIONS = 60
"""Maximum number of functions that the description of the tool lists."""
LONGEST_ABOUT = 100
NOT_IN_MAIN = "The notebook's main thread is busy, and code runs nowhere else. Try again in a cell or in the panel."

_MISSING: Any = object()


def program_tool(notebook: RunningNotebook) -> Tool:
    """Return the tool that runs Python code in a notebook."""

    def run_python(code: str, context: ToolContext) -> ToolResult:
        """Run Python code in the user's notebook, as if the user typed it into a cell.

        The code sees and changes the notebook's variables. Only what it prints or displays, and the value of its last
        expression, comes back: print little, and keep large data in variables. The user is asked before it runs.

        Args:
            code: The program. IPython's syntax and top-level await work.
            context: The call.

        Example: How many rows has df? -> {"code": "len(df)"}
        """
        if threading.current_thread() is not threading.main_thread():
            raise ToolError(NOT_IN_MAIN)
        with offer(ToolFunctions(context)):
            notebook.run(code)
        context.close_figures()
        return result(context.call, *(() if context.output else (NO_OUTPUT,)))

    tool = function_tool(run_python)

    def effects(arguments: Mapping[str, Any]) -> Effects:
        program = analyse(str(arguments.get("code", "")), notebook.namespace)
        return Effects(program.lines(), program.only_reads)

    def among(others: Sequence[ToolDef]) -> ToolDef:
        about = _function_list([one for one in others if one.name != tool.name], notebook.namespace)
        return replace(tool.definition, description=f"{tool.definition.description}{about}")

    return replace(tool, timeout=None, parallel=False, ask=True, code=True, effects=effects, among=among)


def _function_list(tools: Sequence[ToolDef], namespace: Mapping[str, Any]) -> str:
    """Return a list of the tools that code can call as functions, as text for the description of `run_python`."""
    if not tools:
        return ""
    name = next((one for one in TOOL_NAMESPACES if one not in namespace), TOOL_NAMESPACES[-1])
    rows = [f"{name}.{one}" for one in map(_heading, by_python_name(tools).items())]
    more = f"\n({len(rows) - MOST_FUNCTIONS} more: dir({name}))" if len(rows) > MOST_FUNCTIONS else ""
    return (
        "\n\nInside the code, your other tools are functions. They return data (lists, dicts, text) to the code, which "
        "no one reads unless you print it: use them to loop, to join and to filter. A failure raises an exception.\n"
        + "\n".join(sorted(rows[:MOST_FUNCTIONS]))  # in any order of the tools the same, for a replay
        + more
    )


def _heading(item: tuple[str, ToolDef]) -> str:
    name, tool = item
    about = single_line(tool.description, LONGEST_ABOUT)
    return f"{name}({', '.join(_parameters(tool))}){f': {about}' if about else ''}"


def _parameters(tool: ToolDef) -> list[str]:
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required_names = tool.parameters.get("required", ())
    return [clip(name if name in required_names else f"{name}=…", 40) for name in properties]


def by_python_name(tools: Sequence[ToolDef]) -> dict[str, ToolDef]:
    """Return the tools by valid Python names. If two tools would have the same name, a number is appended to one."""
    by_name: dict[str, ToolDef] = {}
    for tool in tools:
        base = re.sub(r"\W", "_", tool.name)
        base = f"{base}_" if keyword.iskeyword(base) or base.startswith("__") else base
        base = base if base.isidentifier() else f"_{base}"
        name, number = base, 2
        while name in by_name:
            name, number = f"{base}_{number}", number + 1
        by_name[name] = tool
    return by_name


class ToolFunctions:
    """An object whose attributes are the tools of a turn as functions: `tools.search_flights(city="Oslo")`.

    In the name of an attribute, _ replaces characters that Python does not allow. `tools["search-flights"]` accepts
    the tool's original name.
    """

    def __init__(self, context: ToolContext) -> None:
        by_name = by_python_name(context.tools)
        self.__functions = {name: _function(name, tool, context) for name, tool in by_name.items()}
        self.__names = {tool.name: name for name, tool in by_name.items()}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self.__functions:
            return self.__functions[name]
        raise AttributeError(f"There is no tool {name!r}. Tools: {', '.join(self.__functions) or 'none'}.")

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return getattr(self, self.__names.get(name, name))

    def __dir__(self) -> list[str]:
        return sorted(self.__functions)

    def __repr__(self) -> str:
        return f"<tools: {', '.join(self.__functions) or 'none'}>"


def _function(name: str, tool: ToolDef, context: ToolContext) -> Callable[..., Any]:
    """Return a function that calls a tool. It accepts arguments by name, or by position in the order of the schema."""
    names = [parameter for parameter in tool.parameters.get("properties", {}) if isinstance(parameter, str)]
    required_names = tool.parameters.get("required", ())

    def call(*values: Any, **arguments: Any) -> Any:
        if len(values) > len(names):
            raise TypeError(f"{name} takes {len(names)} arguments: {', '.join(names) or 'none'}.")
        positional = dict(zip(names, values, strict=False))
        if twice := positional.keys() & arguments.keys():
            raise TypeError(f"{name} got {min(twice)} twice.")
        return context.call_tool(tool.name, {**positional, **arguments})

    call.__name__ = call.__qualname__ = name
    call.__doc__ = tool.description
    if all(parameter.isidentifier() and not keyword.iskeyword(parameter) for parameter in names):
        # In a Python signature, parameters with defaults come last. If this changes the order, all are keyword-only.
        order = sorted(names, key=lambda parameter: parameter not in required_names)
        kind = inspect.Parameter.KEYWORD_ONLY if order != names else inspect.Parameter.POSITIONAL_OR_KEYWORD
        defaults = {parameter: inspect.Parameter.empty if parameter in required_names else None for parameter in names}
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  (a function may have one of its own)
            [inspect.Parameter(parameter, kind, default=defaults[parameter]) for parameter in order]
        )
    return call


@contextmanager
def offer(functions: ToolFunctions) -> Generator[None]:
    """While the `with` block runs, let code use the tools as functions, under the names in `TOOL_NAMESPACES`.

    The names are added to `builtins`, so a variable of the user with the same name hides the functions.
    """
    before = {name: vars(builtins).get(name, _MISSING) for name in TOOL_NAMESPACES}
    for name in TOOL_NAMESPACES:
        setattr(builtins, name, functions)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _MISSING:
                delattr(builtins, name)
            else:
                setattr(builtins, name, value)
