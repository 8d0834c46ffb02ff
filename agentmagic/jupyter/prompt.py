"""Makes prompts from typed text: values of `{expression}` in cells, resources of `@server:uri` everywhere.

Braces that hold no expression over the notebook's names (JSON, code, LaTeX, `{}`, `{{...}}`) stay as they are.
"""

import ast
import builtins
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from agentmagic.errors import UsageError
from agentmagic.jupyter.frontend import say
from agentmagic.messages import LONGEST_PROMPT, Content, Prompt
from agentmagic.runtime.engine import engine
from agentmagic.tools.base import Toolset
from agentmagic.tools.values import describe

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

LONGEST_EXPRESSION = 500
"""Characters between two braces; longer text is no expression. It bounds the search for the closing brace."""

DEEPEST = 20
"""Braces within braces of an expression; deeper text is no expression."""

MOST_ATTACHED = 20
"""Resources that one prompt may attach."""

_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[^\W\d]\w*")
_LATEX = re.compile(r"(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$")
_LOOK_BACK = 100
"""Characters before a brace in which a LaTeX command may stand."""

_REFERENCE = re.compile(r"(?<![\w@])@([A-Za-z0-9_.-]+):([^\s\"'<>`]+)")
_AFTER = ".,;:!?)]}"
"""Punctuation that ends a sentence rather than a URI."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A prompt with its values put in; `left` holds the error of each expression that failed."""

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

    Text in braces is evaluated only if it parses, all its names are bound, and at least one of them by the
    notebook. An expression that raises stays as it is.
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
    """Return whether a brace is doubled, or begins the argument of a LaTeX command."""
    if text.startswith("{{", opening):
        return True
    return _LATEX.search(text[max(0, opening - _LOOK_BACK) : opening]) is not None


def _after_braces(text: str, opening: int) -> int:
    """Return the place behind a brace that stays, or behind the whole of a doubled pair."""
    if not text.startswith("{{", opening):
        return opening + 1
    # Within the limit only, so that many open braces take time in proportion.
    closing = text.find("}}", opening, opening + LONGEST_EXPRESSION)
    return closing + 2 if closing > 0 else opening + 2


def _expression(text: str, opening: int, namespace: Mapping[str, Any]) -> tuple[CodeType, int] | None:
    """Return the expression that begins at a brace, compiled, and the place behind its closing brace."""
    closing = _closing(text, opening)
    if closing < 0:
        return None
    source = text[opening + 1 : closing].strip()
    # Most braces hold no name of the notebook: this look-up is far cheaper than parsing each of them.
    if not any(word in namespace for word in _WORD.findall(source)):
        return None
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return (compile(tree, "<prompt>", "eval"), closing + 1) if _is_meant(tree, namespace) else None


def _closing(text: str, opening: int) -> int:
    """Return the place of the brace that closes the one at `opening`, or -1 if none near does."""
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
    # Names that the expression binds itself, in comprehensions and lambdas, need not be the notebook's.
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    free = {node.id for node in names} - own
    return bool(free & namespace.keys()) and all(name in namespace or hasattr(builtins, name) for name in free)


def _evaluate(code: CodeType, written: str, namespace: Mapping[str, Any]) -> tuple[str, str]:
    """Return the value's text for the model and "", or the text as it was and the error."""
    try:
        return describe(eval(code, dict(namespace))), ""  # noqa: S307  (the user typed it into a cell)
    except Exception as error:  # noqa: BLE001  (the text stays, whichever error it is)
        return written, f"{written} stays as it is: {type(error).__name__}: {error}"


def attached(body: str, sources: Sequence[Toolset]) -> list[Content]:
    """Read the resources that a cell's body names, as it was typed; a name that is no server's is plain text.

    Raises UsageError if there are too many, and ServerError if a server cannot read one.
    """
    written = list(dict.fromkeys(_REFERENCE.findall(body)))
    if not written:
        return []
    known = _servers_by_name(sources)
    found = [(known[server], server, uri) for server, uri in written if server in known]
    if len(found) > MOST_ATTACHED:
        message = f"The cell attaches {len(found)} resources; {MOST_ATTACHED} are the most. Ask in several cells."
        raise UsageError(message)
    return [part for group, server, uri in found for part in engine().call(group.read(server, uri.rstrip(_AFTER)))]


def _servers_by_name(sources: Sequence[Toolset]) -> "dict[str, McpServers]":
    from agentmagic.tools.mcp import McpServers  # takes a while to load, and most prompts name no server

    # Reversed, so that of two servers of one name the first source's is meant, as it is for tools.
    groups = [source for source in reversed(sources) if isinstance(source, McpServers)]
    return {state.name: group for group in groups for state in group.servers}
