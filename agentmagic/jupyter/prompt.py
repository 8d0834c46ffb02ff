"""Makes prompts from typed text: values of `{expression}` in cells, resources of `@server:uri` everywhere.

Braces that hold no expression over the notebook's names (JSON, code, LaTeX, `{}`, `{{...}}`) stay as they are.
"""

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from agentmagic.jupyter.attachments import attached
from agentmagic.jupyter.frontend import say
from agentmagic.messages import LONGEST_PROMPT, Prompt
from agentmagic.tools.base import Toolset

LONGEST_VALUE = 20_000
"""Characters of one value that a prompt takes in."""

LONGEST_EXPRESSION = 500
"""Characters between two braces; what is longer is taken for text."""

DEEPEST = 20
"""Braces within braces of an expression; what goes deeper is taken for text."""

HEAD = 5
"""Rows of a table that are written out."""

_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[^\W\d]\w*")
_LATEX = re.compile(r"(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$")
_LOOK_BACK = 100


@dataclass(frozen=True, slots=True)
class Filled:
    """A prompt with its values put in; `left` says, for each expression that failed, what it failed of."""

    text: str
    left: tuple[str, ...] = ()


def prompt_of(written: str, sources: Sequence[Toolset], *, evaluate: Mapping[str, Any] | None) -> Prompt:
    """Return the prompt that typed text stands for, with the resources that `@server:uri` names behind it.

    A cell passes its namespace as `evaluate`: the values of `{expression}` are put in, and each expression that
    failed is printed. The chat box passes None: pasted text is not the user's code, so nothing of it is evaluated
    and its braces are literal (SECURITY-5).

    Raises UsageError and ServerError if a resource cannot be attached.
    """
    if len(written) > LONGEST_PROMPT:
        return written  # the session refuses it; no time is spent on its braces
    text = written.strip("\n")
    if evaluate is not None:
        filled = fill(text, evaluate)
        for problem in filled.left:
            say(problem)
        text = filled.text
    resources = attached(written, sources)  # of what was typed, not of what a value holds
    return [text, *resources] if resources else text


def fill(text: str, namespace: Mapping[str, Any]) -> Filled:
    """Put the values of a namespace into a prompt.

    An expression counts as one when it parses, its names are all bound, and one of them by the notebook;
    only then is it evaluated. One that raises stays as it is.
    """
    pieces: list[str] = []
    left: list[str] = []
    position = 0
    while (opening := text.find("{", position)) >= 0:
        found = None if _is_other(text, opening) else _expression(text, opening, namespace)
        if found is None:
            end = _after_braces(text, opening)
            pieces.append(text[position:end])
        else:
            code, end = found
            value, problem = _evaluate(code, text[opening:end], namespace)
            pieces += (text[position:opening], value)
            left += [problem] if problem else []
        position = end
    pieces.append(text[position:])
    return Filled("".join(pieces), tuple(left))


def _is_other(text: str, opening: int) -> bool:
    """Whether a brace is doubled, or the argument of a LaTeX command."""
    if text.startswith("{{", opening):
        return True
    return _LATEX.search(text[max(0, opening - _LOOK_BACK) : opening]) is not None


def _after_braces(text: str, opening: int) -> int:
    """Return the place behind a brace that stays, and behind the whole of a doubled pair."""
    if not text.startswith("{{", opening):
        return opening + 1
    closing = text.find("}}", opening, opening + LONGEST_EXPRESSION)
    return closing + 2 if closing > 0 else opening + 2


def _expression(text: str, opening: int, namespace: Mapping[str, Any]) -> tuple[CodeType, int] | None:
    """Return the expression that begins at a brace, compiled, and the place behind its closing brace."""
    closing = _closing(text, opening)
    if closing < 0:
        return None
    source = text[opening + 1 : closing].strip()
    if not any(word in namespace for word in _WORD.findall(source)):
        return None
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return (compile(tree, "<prompt>", "eval"), closing + 1) if _is_meant(tree, namespace) else None


def _closing(text: str, opening: int) -> int:
    """Return the place of the brace that closes one, those between them paired; -1 where there is none near."""
    depth = 0
    for brace in _BRACE.finditer(text, opening, opening + LONGEST_EXPRESSION):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
        if depth > DEEPEST:
            break
    return -1


def _is_meant(tree: ast.Expression, namespace: Mapping[str, Any]) -> bool:
    if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in ast.walk(tree)):
        return False
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    free = {node.id for node in names} - own
    return bool(free & namespace.keys()) and all(name in namespace or hasattr(builtins, name) for name in free)


def _evaluate(code: CodeType, written: str, namespace: Mapping[str, Any]) -> tuple[str, str]:
    """Return the value in a form for models, or the text as it was and why."""
    try:
        return describe(eval(code, dict(namespace))), ""  # noqa: S307  (the person wrote it into a cell of their own)
    except Exception as error:  # noqa: BLE001  (whatever it raises, the text stays)
        return written, f"{written} stays as it is: {type(error).__name__}: {error}"


def describe(value: Any) -> str:
    """Put a value into words for a model: text as it is, a table as its columns and first rows, else its repr."""
    text = value if isinstance(value, str) else _table(value) or _series(value) or repr(value)
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[:LONGEST_VALUE]}\n(cut: {len(text):,} characters in all, the first {LONGEST_VALUE:,} shown)"


def _table(value: Any) -> str | None:
    """Describe a data frame, of pandas or of its kin, without importing any to know one."""
    columns, dtypes, head = (getattr(value, name, None) for name in ("columns", "dtypes", "head"))
    if columns is None or dtypes is None or not callable(head) or isinstance(value, type):
        return None
    schema = ", ".join(f"{name} ({dtype})" for name, dtype in zip(columns, dtypes, strict=False))
    rows = len(value)
    return f"A table of {_count(rows, 'row')} and {_count(len(columns), 'column')}: {schema}\n{_first_rows(head, rows)}"


def _series(value: Any) -> str | None:
    dtype, head, name = (getattr(value, attribute, None) for attribute in ("dtype", "head", "name"))
    if dtype is None or not callable(head) or isinstance(value, type):
        return None
    rows = len(value)
    return f"A column{f' {name}' if name else ''} of {_count(rows, 'value')} ({dtype}):\n{_first_rows(head, rows)}"


def _first_rows(head: Callable[[int], Any], rows: int) -> str:
    shown = head(HEAD)
    write = getattr(shown, "to_string", None)
    text = str(write() if callable(write) else shown)
    return text if rows <= HEAD else f"{text}\n(the first {HEAD})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
