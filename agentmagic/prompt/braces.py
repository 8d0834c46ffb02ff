"""Puts values into a prompt in the place of `{expression}`, as in an f-string.

Braces that hold no expression over the names at hand (JSON, code, LaTeX, `{}`, `{{...}}`) stay as they are.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from agentmagic.errors import UsageError, said
from agentmagic.messages import Media, Text
from agentmagic.prompt.attachments import UNKNOWN, Attacher, Attachment
from agentmagic.runtime.exits import CodeExit, contained_exits, exit_words
from agentmagic.text import did_you_mean, one_line
from agentmagic.undo.program import SHELL_NAMES, is_of_shell

LONGEST_EXPRESSION = 500
"""Characters between two braces; longer text is no expression. It bounds the search for the closing brace."""

DEEPEST = 20
"""Braces within braces of an expression; deeper text is no expression."""

LONGEST_PROBLEM = 300
"""Characters of an error that is told of a value."""

_BRACE = re.compile(r"[{}]")
WORD = re.compile(r"[^\W\d]\w*")
_LATEX = re.compile(r"(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$")
_LOOK_BACK = 100
"""Characters before a brace in which a LaTeX command may stand."""

_SPLIT = re.compile(r"!(?=[rsa]\s*(?::|$))|:(?![\s=])")
"""Where a conversion or a format may begin; `{x: 1}` and `{x:=1}` are other code."""
_NAMED = (
    re.compile(r"\s*(.+?)\s*()()"),
    re.compile(r"\s*(.+?)\s*(?:!([rsa]))?\s*(?::(.*))?"),
)
"""A name that is no identifier of Python, as columns of a frame have: the whole, else what a format may follow."""
_FORMAT = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?\d*[_,]?(?:\.\d+)?[a-zA-Z%]?|schema|.*%.*")
"""What a format looks like, to tell it from CSS and the like when the name before it is not bound."""
_CODE = re.compile(
    r"^(?:```|~~~)[\s\S]*?(?:^(?:```|~~~)|\Z)|^[ \t]*@[\w.]+(?:\(.*\))?[ \t]*\n(?=\s*(?:@|def |class |async ))",
    re.MULTILINE,
)
"""Fenced code, and decorators above a definition: `@` and names that are not bound are code there."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A prompt with its values put in; `left` tells what stays and why; `attachments` are the values, in order."""

    text: str
    left: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def fill(text: str, namespace: Mapping[str, Any], attacher: Attacher = Attacher(lambda: UNKNOWN)) -> Filled:  # noqa: B008
    """Put the values of a namespace into a prompt.

    Text in braces is evaluated only if it parses, all its names are bound, at least one of them by the notebook, and
    none of them leads into the process, as IPython's `exit` and `open` do unless the notebook has bound them anew. An
    expression that raises stays as it is, and so does a name that is not bound, which is told.
    """
    return Template.read(text, namespace).fill(namespace, attacher)


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt whose braces were read: its texts, its expressions, and values that were put in already, in order.

    `unbound` tells which names in braces are not bound.
    """

    pieces: tuple["str | BracedExpression | Attachment", ...]
    unbound: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str, namespace: Mapping[str, Any]) -> "Template":
        """Return the template of a text whose expressions are over the names of a namespace."""
        code = code_spans(text)
        pieces: list[str | BracedExpression | Attachment] = []
        unbound: list[str] = []
        position = 0
        while (opening := text.find("{", position)) >= 0:
            closing = -1 if _is_other(text, opening) else _closing(text, opening)
            source = text[opening + 1 : closing]
            found = BracedExpression.read(source, namespace) if closing > 0 else None
            if found is None:
                if closing > 0 and not within(code, opening):
                    unbound += _unbound(source, namespace, text[opening - 1 : opening])
                end = _after_braces(text, opening)
                pieces.append(text[position:end])
            else:
                end = closing + 1
                pieces += [text[position:opening], found]
            position = end
        pieces.append(text[position:])
        return cls(tuple(filter(None, pieces)), tuple(unbound))

    @property
    def expressions(self) -> tuple["BracedExpression", ...]:
        """The expressions that are still to be evaluated."""
        return tuple(piece for piece in self.pieces if isinstance(piece, BracedExpression))

    def settled(self, names: Collection[str], namespace: Mapping[str, Any], attacher: Attacher) -> "Template":
        """Return the template with the values of all expressions that have none of some names.

        Raises UsageError for an expression that fails.
        """
        pieces: list[str | BracedExpression | Attachment] = []
        for piece in self.pieces:
            if isinstance(piece, BracedExpression) and not free_names(piece.tree).intersection(names):
                try:
                    with contained_exits():
                        pieces.append(piece.attachment(namespace, attacher))
                except Exception as error:
                    raise UsageError(f"{piece.written} has no value: {_told(error)}") from error
            else:
                pieces.append(piece)
        return Template(tuple(pieces), self.unbound)

    def fill(self, namespace: Mapping[str, Any], attacher: Attacher) -> Filled:
        """Return the prompt with the values of a namespace in the place of the expressions."""
        done: list[str | Attachment] = []
        left = list(self.unbound)
        for piece in self.pieces:
            if not isinstance(piece, BracedExpression):
                done.append(piece)
                continue
            try:
                with contained_exits():
                    done.append(piece.attachment(namespace, attacher))
            except Exception as error:  # noqa: BLE001  (the text stays, whichever error it is)
                done.append(piece.written)
                left.append(f"{piece.written} stays as it is: {_told(error)}")
        text = ""
        for place, piece in enumerate(done):
            after = self.pieces[place + 1] if place + 1 < len(done) else ""
            text += piece if isinstance(piece, str) else _in_place(piece, text[-1:], after)
        attachments = tuple(piece for piece in done if isinstance(piece, Attachment))
        return Filled(text, tuple(dict.fromkeys(left)), attachments)


def _in_place(attachment: Attachment, before: str, following: "str | BracedExpression | Attachment") -> str:
    """Return what stands in the place of the braces: a text, on lines of its own if it is laid out, or a label."""
    if isinstance(part := attachment.part, Media):
        return f"[{'image' if part.media_type.startswith('image/') else 'document'}: {part.name}]"
    if not isinstance(attachment.part, Text):
        return ""
    text = attachment.part.text
    if attachment.told.kind == "text" or "\n" not in text:
        return text
    after = following[:1] if isinstance(following, str) else "{"
    start, end = ("" if beside in ("", "\n") else "\n\n" for beside in (before, after))
    return start + text + end


def _told(error: Exception) -> str:
    if isinstance(error, UsageError):
        return f"{error}."
    if isinstance(error, TimeoutError):
        return "to format it takes too long."
    if isinstance(error, CodeExit):
        return one_line(f"it {exit_words(error.code)}", LONGEST_PROBLEM)
    return one_line(f"{type(error).__name__}: {said(error)}", LONGEST_PROBLEM)


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


@dataclass(frozen=True, slots=True)
class BracedExpression:
    """What stands between braces, as in an f-string: an expression, its conversion and its format.

    `written` is all of it, with the braces.
    """

    written: str
    tree: ast.Expression
    source: str
    conversion: str
    spec: str

    @classmethod
    def read(cls, source: str, namespace: Mapping[str, Any]) -> "BracedExpression | None":
        """Return the expression over names of a namespace that a text is, or None."""
        for pattern in _NAMED:  # the column "Review text" of a frame, or "class"
            name, conversion, spec = found.groups("") if (found := pattern.fullmatch(source)) else ("", "", "")
            if name in namespace and (not name.isidentifier() or iskeyword(name)):
                tree = ast.Expression(ast.Name(name, ast.Load(), lineno=1, col_offset=0))
                return cls(f"{{{source}}}", tree, name, conversion, spec)
        # Most braces hold no name of the notebook: this look-up is far cheaper than parsing each of them.
        if not any(word in namespace for word in WORD.findall(source)):
            return None
        found = cls.parsed(source)
        return found if found is not None and _is_meant(found.tree, namespace) else None

    @classmethod
    def parsed(cls, source: str) -> "BracedExpression | None":
        """Return the parts of a text: as expression the whole, else the shortest before a conversion or a format."""
        for end in (len(source), *(place.start() for place in _SPLIT.finditer(source))):
            try:
                tree = ast.parse(source[:end].strip(), mode="eval")
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                continue
            converted = source[end : end + 1] == "!"
            rest = source[end:].partition(":")[2]
            return cls(f"{{{source}}}", tree, source[:end].strip(), source[end + 1] if converted else "", rest)
        return None

    def attachment(self, namespace: Mapping[str, Any], attacher: Attacher) -> Attachment:
        """Return the attachment for the value. Raises what the expression and its format raise."""
        value = eval(compile(self.tree, "<prompt>", "eval"), dict(namespace))  # noqa: S307  (the user's own code)
        spec = fill(self.spec, namespace).text if self.spec else ""
        return attacher.formatted(self.written, self.source, value, self.conversion, spec)


def free_names(tree: ast.AST) -> set[str]:
    """Return the names that an expression takes from the notebook or from Python: it does not bind them itself."""
    found: set[str] = set()
    left: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]  # not by recursion: an expression may be deep
    while left:
        node, bound = left.pop()
        match node:
            case ast.Name():
                found |= {node.id} - bound
            case ast.Lambda():
                given = [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
                left += [(node.args, bound), (node.body, bound.union(given))]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for loop in node.generators:  # each one sees the names of those before it
                    left.append((loop.iter, bound))
                    bound = bound.union(one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name))
                    left += [(one, bound) for one in (loop.target, *loop.ifs)]
                values = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                left += [(one, bound) for one in values]
            case _:
                left += [(one, bound) for one in ast.iter_child_nodes(node)]
    return found


def shell_names(expression: ast.AST, namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of IPython and Python in an expression that lead into the process and that no cell has bound."""
    found = free_names(expression) & SHELL_NAMES
    return sorted(name for name in found if name not in namespace or is_of_shell(name, namespace[name]))


def _is_meant(tree: ast.Expression, namespace: Mapping[str, Any]) -> bool:
    if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in ast.walk(tree)):
        return False
    if shell_names(tree, namespace):
        return False
    free = free_names(tree)
    return bool(free & namespace.keys()) and all(name in namespace or hasattr(builtins, name) for name in free)


def _unbound(source: str, namespace: Mapping[str, Any], before: str) -> Iterator[str]:
    """Yield what to tell of a name that is not bound, alone or with attributes, items and calls behind it.

    Of a name that leads into the process it is told too if it stands beside a variable of the notebook.
    """
    if (
        before == "$"
        or not (WORD.match(source.strip()) or SHELL_NAMES.intersection(WORD.findall(source)))
        or (found := BracedExpression.parsed(source)) is None
        or not _FORMAT.fullmatch(found.spec)
    ):
        return
    node = found.tree.body
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    free = free_names(found.tree)
    if own := shell_names(found.tree, namespace):
        if isinstance(node, ast.Name) or free.difference(own) & namespace.keys():
            owner = "Python itself" if own[0].startswith("__") else "IPython"
            yield f"{{{source}}} stays as it is: {own[0]} belongs to {owner}, not to your variables."
        return
    missing = sorted(name for name in free if name not in namespace and not hasattr(builtins, name))
    if isinstance(node, ast.Name) and missing:
        hint = did_you_mean(missing[0], [name for name in namespace if not name.startswith("_")])
        yield f"{{{source}}} stays as it is: no variable is named {missing[0]}.{hint}"


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return where code stands in a text: in fences, and decorators above a definition."""
    return [found.span() for found in _CODE.finditer(text)]


def within(spans: Sequence[tuple[int, int]], place: int) -> bool:
    """Return whether a place is in one of some spans."""
    return any(start <= place < end for start, end in spans)
