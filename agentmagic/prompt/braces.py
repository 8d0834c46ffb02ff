"""Replaces `{expression}` in a prompt with its value, as in an f-string.

Other braces, as in JSON, code, LaTeX, `{}` and `{{...}}`, are kept. Braces are replaced only if they contain an
expression with a variable of the notebook and without unknown names.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from agentmagic.errors import UsageError, describe
from agentmagic.messages import Media, Text
from agentmagic.prompt.attachments import UNKNOWN, Attacher, Attachment
from agentmagic.runtime.exits import CodeExit, contained_exits, describe_exit
from agentmagic.text import did_you_mean, single_line
from agentmagic.undo.own import SHELL_NAMES, is_of_shell

LONGEST_EXPRESSION = 500
"""Maximum number of characters of an expression in braces. Limits the search for the closing brace."""

DEEPEST = 20
"""Deepest nesting of braces in an expression; deeper text is not an expression."""

LONGEST_PROBLEM = 300
"""Maximum number of characters of the error text about a value."""

_BRACE = re.compile(r"[{}]")
WORD = re.compile(r"[^\W\d]\w*")
_LATEX = re.compile(r"(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$")
_LOOK_BACK = 100
"""Characters before a brace that are searched for a LaTeX command."""

_SPLIT = re.compile(r"!(?=[rsa]\s*(?::|$))|:(?![\s=])")
"""Matches where a conversion or a format can begin. In `{x: 1}` and `{x:=1}` none begins: they are other code."""
_NAME_PATTERNS = (
    re.compile(r"\s*(.+?)\s*()()"),
    re.compile(r"\s*(.+?)\s*(?:!([rsa]))?\s*(?::(.*))?"),
)
"""Patterns for a name that is not a Python identifier, such as a column of a data frame.

The first pattern matches the whole text as a name; the second one a name with a conversion and a format after it.
"""
_FORMAT = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?\d*[_,]?(?:\.\d+)?[a-zA-Z%]?|schema|.*%.*")
"""Pattern of a format. It separates formats from CSS and similar code if the name before the format is not bound."""
_CODE = re.compile(
    r"^(?:```|~~~)[\s\S]*?(?:^(?:```|~~~)|\Z)|^[ \t]*@[\w.]+(?:\(.*\))?[ \t]*\n(?=\s*(?:@|def |class |async ))",
    re.MULTILINE,
)
"""Matches fenced code, and decorators above a definition. An `@` or an unknown name in such code is not a mistake."""


@dataclass(frozen=True, slots=True)
class FilledPrompt:
    """A prompt with its values filled in.

    `problems` has a sentence for each expression in braces that was kept as typed, and says why. Braces of other code,
    such as JSON, are kept without a sentence. `attachments` has the values that were filled in, in order.
    """

    text: str
    problems: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def fill(text: str, namespace: Mapping[str, Any], attacher: Attacher = Attacher(lambda: UNKNOWN)) -> FilledPrompt:  # noqa: B008
    """Return a prompt with each `{expression}` replaced by its value in a namespace.

    Text in braces is evaluated only if it parses, all its names are bound, and at least one name is a variable of the
    notebook. A name of IPython, such as `exit`, prevents this, unless a cell assigned that name; an internal name of
    Python, such as `__import__`, always does. An expression that raises or that has an unknown name is kept as typed.
    `FilledPrompt.problems` says why, except for an unknown name inside a larger expression.
    """
    return Template.read(text, namespace).fill(namespace, attacher)


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed prompt: a sequence of texts, expressions in braces, and values that were filled in already.

    `unbound` has a sentence for each name in braces that is not bound, or that belongs to IPython or Python itself.
    """

    pieces: tuple["str | BracedExpression | Attachment", ...]
    unbound: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str, namespace: Mapping[str, Any]) -> "Template":
        """Parse a text and return its template. `namespace` decides which braces contain an expression."""
        code = code_spans(text)
        pieces: list[str | BracedExpression | Attachment] = []
        unbound: list[str] = []
        position = 0
        while (opening := text.find("{", position)) >= 0:
            closing = -1 if _is_other(text, opening) else _closing(text, opening)
            source = text[opening + 1 : closing]
            expression = BracedExpression.read(source, namespace) if closing > 0 else None
            if expression is None:
                if closing > 0 and not within(code, opening):
                    unbound += _unbound_messages(source, namespace, text[opening - 1 : opening])
                end = _after_braces(text, opening)
                pieces.append(text[position:end])
            else:
                end = closing + 1
                pieces += [text[position:opening], expression]
            position = end
        pieces.append(text[position:])
        return cls(tuple(filter(None, pieces)), tuple(unbound))

    @property
    def expressions(self) -> tuple["BracedExpression", ...]:
        """The expressions in braces that were not evaluated yet."""
        return tuple(piece for piece in self.pieces if isinstance(piece, BracedExpression))

    def evaluate_constants(
        self, names: Collection[str], namespace: Mapping[str, Any], attacher: Attacher
    ) -> "Template":
        """Return the template after evaluating all expressions that use none of `names`. The other expressions stay.

        Raises UsageError for an expression that fails.
        """
        pieces: list[str | BracedExpression | Attachment] = []
        for piece in self.pieces:
            if isinstance(piece, BracedExpression) and not free_names(piece.tree).intersection(names):
                try:
                    with contained_exits():
                        pieces.append(piece.attachment(namespace, attacher))
                except Exception as error:
                    raise UsageError(f"{piece.written} has no value: {_reason(error)}") from error
            else:
                pieces.append(piece)
        return Template(tuple(pieces), self.unbound)

    def fill(self, namespace: Mapping[str, Any], attacher: Attacher) -> FilledPrompt:
        """Return the prompt with each expression in braces replaced by its value in a namespace."""
        pieces: list[str | Attachment] = []
        problems = list(self.unbound)
        for piece in self.pieces:
            if not isinstance(piece, BracedExpression):
                pieces.append(piece)
                continue
            try:
                with contained_exits():
                    pieces.append(piece.attachment(namespace, attacher))
            except Exception as error:  # noqa: BLE001  (the text stays, whichever error it is)
                pieces.append(piece.written)
                problems.append(f"{piece.written} stays as it is: {_reason(error)}")
        text = ""
        for number, piece in enumerate(pieces):
            after = self.pieces[number + 1] if number + 1 < len(pieces) else ""
            text += piece if isinstance(piece, str) else _in_place(piece, text[-1:], after)
        attachments = tuple(piece for piece in pieces if isinstance(piece, Attachment))
        return FilledPrompt(text, tuple(dict.fromkeys(problems)), attachments)


def _in_place(attachment: Attachment, before: str, following: "str | BracedExpression | Attachment") -> str:
    """Return the text that replaces `{expression}`: its value as text, or a label for an image or a document.

    A value of several lines that is not plain text, such as a table, code or an error, is put on lines of its own. For
    any other value that is sent as a separate part of the message, the returned text is "".
    """
    if isinstance(part := attachment.part, Media):
        return f"[{'image' if part.media_type.startswith('image/') else 'document'}: {part.name}]"
    if not isinstance(attachment.part, Text):
        return ""
    text = attachment.part.text
    if attachment.value.kind == "text" or "\n" not in text:
        return text
    after = following[:1] if isinstance(following, str) else "{"
    start, end = ("" if beside in ("", "\n") else "\n\n" for beside in (before, after))
    return start + text + end


def _reason(error: Exception) -> str:
    if isinstance(error, UsageError):
        return f"{error}."
    if isinstance(error, TimeoutError):
        return "to format it takes too long."
    if isinstance(error, CodeExit):
        return single_line(f"it {describe_exit(error.code)}", LONGEST_PROBLEM)
    return single_line(f"{type(error).__name__}: {describe(error)}", LONGEST_PROBLEM)


def _is_other(text: str, opening: int) -> bool:
    """Return whether the brace at `opening` starts no expression, but `{{` or the argument of a LaTeX command."""
    if text.startswith("{{", opening):
        return True
    return _LATEX.search(text[max(0, opening - _LOOK_BACK) : opening]) is not None


def _after_braces(text: str, opening: int) -> int:
    """Return the position after the brace at `opening`, which is kept. For `{{`, it is the position after `}}`."""
    if not text.startswith("{{", opening):
        return opening + 1
    # The limit keeps the search linear in time for a text with many open braces.
    closing = text.find("}}", opening, opening + LONGEST_EXPRESSION)
    return closing + 2 if closing > 0 else opening + 2


def _closing(text: str, opening: int) -> int:
    """Return the position of the brace that closes the brace at `opening`. It is -1 if missing, too far or too deep."""
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
    """A parsed `{expression!conversion:format}` of a prompt, as in an f-string.

    `written` is the text as typed, with the braces.
    """

    written: str
    tree: ast.Expression
    source: str
    conversion: str
    spec: str

    @classmethod
    def read(cls, source: str, namespace: Mapping[str, Any]) -> "BracedExpression | None":
        """Parse the text between two braces. Return None if it is not an expression with names of the namespace."""
        for pattern in _NAME_PATTERNS:  # Column names such as "Review text" or "class" are not Python names.
            name, conversion, spec = match.groups("") if (match := pattern.fullmatch(source)) else ("", "", "")
            if name in namespace and (not name.isidentifier() or iskeyword(name)):
                tree = ast.Expression(ast.Name(name, ast.Load(), lineno=1, col_offset=0))
                return cls(f"{{{source}}}", tree, name, conversion, spec)
        # Most texts in braces contain no name of the notebook. This check is much faster than parsing each of them.
        if not any(word in namespace for word in WORD.findall(source)):
            return None
        expression = cls.parse(source)
        return expression if expression is not None and _is_over_variables(expression.tree, namespace) else None

    @classmethod
    def parse(cls, source: str) -> "BracedExpression | None":
        """Split a text into expression, conversion and format, or return None if it does not parse.

        The expression is the whole text if it parses. Otherwise, it is the shortest beginning of the text that parses
        and is followed by a conversion or a format.
        """
        for end in (len(source), *(place.start() for place in _SPLIT.finditer(source))):
            try:
                tree = ast.parse(source[:end].strip(), mode="eval")
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                continue
            has_conversion = source[end : end + 1] == "!"
            rest = source[end:].partition(":")[2]
            return cls(f"{{{source}}}", tree, source[:end].strip(), source[end + 1] if has_conversion else "", rest)
        return None

    def attachment(self, namespace: Mapping[str, Any], attacher: Attacher) -> Attachment:
        """Evaluate the expression and return the attachment for its value.

        Raises every exception that the expression or its formatting raises.
        """
        value = eval(compile(self.tree, "<prompt>", "eval"), dict(namespace))  # noqa: S307  (the user's own code)
        spec = fill(self.spec, namespace).text if self.spec else ""
        return attacher.attach_formatted(self.written, self.source, value, self.conversion, spec)


def free_names(tree: ast.AST) -> set[str]:
    """Return the names that an expression uses but does not define itself, as a lambda or comprehension does."""
    names: set[str] = set()
    stack: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]  # No recursion, because the tree can be deep.
    while stack:
        node, own_names = stack.pop()
        match node:
            case ast.Name():
                names |= {node.id} - own_names
            case ast.Lambda():
                parameters = [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
                stack += [(node.args, own_names), (node.body, own_names.union(parameters))]
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for loop in node.generators:  # A comprehension's `for` clause sees the names of the earlier clauses.
                    stack.append((loop.iter, own_names))
                    own_names = own_names.union(one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name))
                    stack += [(one, own_names) for one in (loop.target, *loop.ifs)]
                values = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                stack += [(one, own_names) for one in values]
            case _:
                stack += [(one, own_names) for one in ast.iter_child_nodes(node)]
    return names


def shell_names(expression: ast.AST, namespace: Mapping[str, Any]) -> list[str]:
    """Return the internal names of IPython or Python in an expression, such as `exit` and `__import__`.

    A name of IPython is left out if a cell has assigned it. Names with two underscores are always returned.
    """
    names = free_names(expression) & SHELL_NAMES
    return sorted(name for name in names if name not in namespace or is_of_shell(name, namespace[name]))


def _is_over_variables(tree: ast.Expression, namespace: Mapping[str, Any]) -> bool:
    if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for node in ast.walk(tree)):
        return False
    if shell_names(tree, namespace):
        return False
    free = free_names(tree)
    return bool(free & namespace.keys()) and all(name in namespace or hasattr(builtins, name) for name in free)


def _unbound_messages(source: str, namespace: Mapping[str, Any], before: str) -> Iterator[str]:
    """Yield a message for the user if braces contain a name that is not bound.

    Attributes, items and calls can follow the name. A name inside a larger expression gives no message, except for an
    internal name of IPython or Python, such as `exit`: it gives one also beside a variable of the notebook.
    """
    if (
        before == "$"
        or not (WORD.match(source.strip()) or SHELL_NAMES.intersection(WORD.findall(source)))
        or (expression := BracedExpression.parse(source)) is None
        or not _FORMAT.fullmatch(expression.spec)
    ):
        return
    node = expression.tree.body
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    free = free_names(expression.tree)
    if own := shell_names(expression.tree, namespace):
        if isinstance(node, ast.Name) or free.difference(own) & namespace.keys():
            owner = "Python itself" if own[0].startswith("__") else "IPython"
            yield f"{{{source}}} stays as it is: {own[0]} belongs to {owner}, not to your variables."
        return
    missing = sorted(name for name in free if name not in namespace and not hasattr(builtins, name))
    if isinstance(node, ast.Name) and missing:
        hint = did_you_mean(missing[0], [name for name in namespace if not name.startswith("_")])
        yield f"{{{source}}} stays as it is: no variable is named {missing[0]}.{hint}"


def code_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end positions of code in a text: fenced code, and decorators above a definition."""
    return [match.span() for match in _CODE.finditer(text)]


def within(spans: Sequence[tuple[int, int]], position: int) -> bool:
    """Return whether a position is inside one of the spans, which are pairs of a start and an end position."""
    return any(start <= position < end for start, end in spans)
