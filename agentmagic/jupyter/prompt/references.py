"""Makes prompts from typed text: values of `{expression}` in cells, `@name` and resources of `@server:uri` everywhere.

Braces that hold no expression over the notebook's names (JSON, code, LaTeX, `{}`, `{{...}}`) stay as they are.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentmagic.errors import AgentMagicError, UsageError, said
from agentmagic.events import PromptValue
from agentmagic.jupyter.prompt.attachments import UNKNOWN, Attachables, Attacher, Attachment
from agentmagic.messages import LONGEST_PROMPT, Content, Media, Prompt, Text
from agentmagic.runtime.engine import engine
from agentmagic.runtime.exits import CodeExit, contained_exits, exit_words
from agentmagic.text import did_you_mean, listed, one_line
from agentmagic.tools.base import Toolset
from agentmagic.undo.program import SHELL_NAMES, is_of_shell
from agentmagic.widgets.commands import MOST_ATTACHED

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

LONGEST_EXPRESSION = 500
"""Characters between two braces; longer text is no expression. It bounds the search for the closing brace."""

DEEPEST = 20
"""Braces within braces of an expression; deeper text is no expression."""

LONGEST_PROBLEM = 300
"""Characters of an error that is told of a value."""

_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[^\W\d]\w*")
_LATEX = re.compile(r"(?:[\^_]|\\[A-Za-z]+(?:\{[^{}]*\})*)$")
_LOOK_BACK = 100
"""Characters before a brace in which a LaTeX command may stand."""

_SPLIT = re.compile(r"!(?=[rsa]\s*(?::|$))|:(?![\s=])")
"""Where a conversion or a format may begin; `{x: 1}` and `{x:=1}` are other code."""
_FORMAT = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?\d*[_,]?(?:\.\d+)?[a-zA-Z%]?|schema|.*%.*")
"""What a format looks like, to tell it from CSS and the like when the name before it is not bound."""
_CODE = re.compile(
    r"^(?:```|~~~)[\s\S]*?(?:^(?:```|~~~)|\Z)|^[ \t]*@[\w.]+(?:\(.*\))?[ \t]*\n(?=\s*(?:@|def |class |async ))",
    re.MULTILINE,
)
"""Fenced code, and decorators above a definition: `@` and names that are not bound are code there."""

_REFERENCE = re.compile(r"(?<![\w@])@([A-Za-z0-9_.-]+):([^\s\"'<>`]+)")
_AFTER = ".,;:!?)]}"
"""Punctuation that ends a sentence rather than a URI."""
_MENTION = re.compile(
    r"(?<![\w@.+-])@([^\W\d][\w./-]*(?:\[\d{1,9}\])?)(?::(schema|\d{1,9})\b(?![/:.\w])|(?=[^:\w]|$|:(?:\s|$)))"
)
_LEAST_MISSPELT = 3
"""Letters that a word must have at least, for a variable of nearly the same spelling to be suggested."""
MOST_NAMED = 5
"""Words that attach nothing and are named in one line."""
_INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")


@dataclass(frozen=True, slots=True)
class Filled:
    """A prompt with its values put in; `left` tells what stays and why; `attachments` are the values, in order."""

    text: str
    left: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class TypedPrompt:
    """The prompt of typed text; `told` says what each value became, `problems` what is odd about them."""

    prompt: Prompt
    told: tuple[PromptValue, ...] = ()
    problems: tuple[str, ...] = ()


def prompt_of(
    written: str, sources: Sequence[Toolset], attachables: Attachables, *, evaluate: bool, images: Sequence[str] = ()
) -> TypedPrompt:
    """Return the prompt that typed text stands for, with what `@name` and `@server:uri` name behind it.

    In a cell, which is the user's code, the values of `{expression}` are put in. In the chat box nothing is evaluated:
    pasted text is not the user's code, and its braces are literal (SECURITY-5). `images` are attached too.

    Raises UsageError and ServerError if a resource or an image cannot be attached.
    """
    if len(written) > LONGEST_PROMPT:
        return TypedPrompt(written)  # the session refuses it; no time is spent on its braces
    text = written.strip("\n")
    filled = fill(text, attachables.variables, attachables.attacher) if evaluate else Filled(text)
    # Looked for in what was typed, not in the values that were put in.
    resources = _resources(written, sources)
    named, problems = _mentioned(written, attachables, {server for server, *_ in resources})
    given = [*named, *(_image(name, attachables) for name in images)]
    if len(given) + len(resources) > MOST_ATTACHED:
        raise UsageError(
            f"The cell attaches {len(given) + len(resources)} resources and values; {MOST_ATTACHED} are the most. "
            "Ask in several cells."
        )
    shown = [one.part for one in filled.attachments if isinstance(one.part, Media)]
    parts: list[Content] = [*shown, *(one.part for one in given), *_read(resources)]
    told = tuple(one.told for one in (*filled.attachments, *given))
    return TypedPrompt([filled.text, *parts] if parts else filled.text, told, (*filled.left, *problems))


# -- braces --------------------------------------------------------------------------------------


def fill(text: str, namespace: Mapping[str, Any], attacher: Attacher = Attacher(lambda: UNKNOWN)) -> Filled:  # noqa: B008
    """Put the values of a namespace into a prompt.

    Text in braces is evaluated only if it parses, all its names are bound, at least one of them by the notebook, and
    none of them leads into the process, as IPython's `exit` and `open` do unless the notebook has bound them anew. An
    expression that raises stays as it is, and so does a name that is not bound, which is told.
    """
    code = _code_spans(text)
    pieces: list[str] = []
    left: list[str] = []
    attachments: list[Attachment] = []
    position = 0
    while (opening := text.find("{", position)) >= 0:
        closing = -1 if _is_other(text, opening) else _closing(text, opening)
        found = _BracedExpression.read(text[opening + 1 : closing], namespace) if closing > 0 else None
        if found is None:
            if closing > 0 and not _within(code, opening):
                left += _unbound(text[opening + 1 : closing], namespace, text[opening - 1 : opening])
            end = _after_braces(text, opening)
            pieces.append(text[position:end])
        else:
            end = closing + 1
            pieces.append(text[position:opening])
            try:
                with contained_exits():
                    one = found.attachment(text[opening:end], namespace, attacher)
            except Exception as error:  # noqa: BLE001  (the text stays, whichever error it is)
                pieces.append(text[opening:end])
                left.append(f"{text[opening:end]} stays as it is: {_told(error)}")
            else:
                attachments.append(one)
                before = next((piece[-1] for piece in reversed(pieces) if piece), "")
                pieces.append(_in_place(one, before, text[end : end + 1]))
        position = end
    pieces.append(text[position:])
    return Filled("".join(pieces), tuple(dict.fromkeys(left)), tuple(attachments))


def _in_place(attachment: Attachment, before: str, after: str) -> str:
    """Return what stands in the place of the braces: a text, on lines of its own if it is laid out, or a label."""
    if not isinstance(attachment.part, Text):
        return f"[image: {attachment.part.name}]" if isinstance(attachment.part, Media) else ""
    text = attachment.part.text
    if attachment.told.kind == "text" or "\n" not in text:
        return text
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
class _BracedExpression:
    """What stands between braces, as in an f-string: an expression, its conversion and its format."""

    tree: ast.Expression
    source: str
    conversion: str
    spec: str

    @classmethod
    def read(cls, source: str, namespace: Mapping[str, Any]) -> "_BracedExpression | None":
        """Return the expression over names of the notebook that a text is, or None."""
        # Most braces hold no name of the notebook: this look-up is far cheaper than parsing each of them.
        if not any(word in namespace for word in _WORD.findall(source)):
            return None
        found = cls.parsed(source)
        return found if found is not None and _is_meant(found.tree, namespace) else None

    @classmethod
    def parsed(cls, source: str) -> "_BracedExpression | None":
        """Return the parts of a text: as expression the whole, else the shortest before a conversion or a format."""
        for end in (len(source), *(place.start() for place in _SPLIT.finditer(source))):
            try:
                tree = ast.parse(source[:end].strip(), mode="eval")
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                continue
            converted = source[end : end + 1] == "!"
            rest = source[end:].partition(":")[2]
            return cls(tree, source[:end].strip(), source[end + 1] if converted else "", rest)
        return None

    def attachment(self, written: str, namespace: Mapping[str, Any], attacher: Attacher) -> Attachment:
        """Return the attachment for the value. Raises what the expression and its format raise."""
        code = compile(self.tree, "<prompt>", "eval")
        value = eval(code, dict(namespace))  # noqa: S307  (the user typed it into a cell)
        return attacher.formatted(written, self.source, value, self.conversion, fill(self.spec, namespace).text)


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
        or not (_WORD.match(source.strip()) or SHELL_NAMES.intersection(_WORD.findall(source)))
        or (found := _BracedExpression.parsed(source)) is None
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


def _code_spans(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in _CODE.finditer(text)]


def _within(spans: Sequence[tuple[int, int]], place: int) -> bool:
    return any(start <= place < end for start, end in spans)


# -- @ -------------------------------------------------------------------------------------------


def _mentioned(text: str, attachables: Attachables, servers: set[str]) -> tuple[list[Attachment], list[str]]:
    """Return what `@name` attaches, each once, and what to tell of names that attach nothing."""
    code = _code_spans(text)
    found: dict[tuple[str, str], Attachment] = {}
    problems: list[str] = []
    unbound: list[str] = []
    for mention in _MENTION.finditer(text):
        word, spec = mention[1].rstrip("./-"), mention[2] or ""
        if word in servers or (word, spec) in found or _within(code, mention.start()):
            continue
        try:
            one = attachables.find(word, spec)
            if one is None and not spec and (head := _WORD.match(word)) and attachables.has(head[0]):
                word, one = head[0], attachables.find(head[0], "")  # "@sales.head()" names sales
        except AgentMagicError as error:
            problems.append(f"@{word} is not attached: {error}.")
            continue
        if one is not None:
            found.setdefault((word, spec), one)
        elif word.isidentifier() and len(word) >= _LEAST_MISSPELT and (close := attachables.close(word)):
            problems.append(f"@{word} attaches nothing: no variable is named {word}. Did you mean @{close}?")
        elif attachables.is_free(word) and not _is_code(text, mention):
            unbound.append(word)
    return list(found.values()), list(dict.fromkeys([*problems, *_nothing(list(dict.fromkeys(unbound)))]))


def _is_code(text: str, mention: re.Match[str]) -> bool:
    """Return whether an unbound `@name` is code: within backticks, or a decorator with a bracket behind it."""
    spans = [found.span() for found in _INLINE_CODE.finditer(text)]
    return text.startswith("(", mention.end()) or _within(spans, mention.start())


def _nothing(words: Sequence[str]) -> Iterator[str]:
    """Yield the one line about words that attach nothing: they may be handles, or pasted from anywhere."""
    if len(words) == 1:
        yield f"@{words[0]} attaches nothing: no variable is named {words[0]}."
    elif words:
        yield f"{listed([f'@{word}' for word in words], MOST_NAMED)} attach nothing: no variables are named so."


def _image(name: str, attachables: Attachables) -> Attachment:
    """Return the figure or image of a variable or a file. Raises UsageError if there is none."""
    try:
        found = attachables.find(name, "")
    except UsageError as error:
        raise UsageError(f"--image {name} is not attached: {error}.") from error
    if found is None:
        raise UsageError(f"--image {name} is no variable, and no file in the notebook's folder.")
    if found.told.kind != "image":
        raise UsageError(f"--image {name} is no image: {found.told.shown}.")
    return found


_Resource = tuple[str, "McpServers", str]
"""A server's name, its group, and a URI."""


def _resources(body: str, sources: Sequence[Toolset]) -> list[_Resource]:
    """Return the resources that a text names; a name that is no server's is plain text."""
    written = dict.fromkeys((server, uri.rstrip(_AFTER)) for server, uri in _REFERENCE.findall(body))
    known = _servers_by_name(sources) if written else {}
    return [(server, known[server], uri) for server, uri in written if server in known]


def _read(resources: Sequence[_Resource]) -> Iterator[Content]:
    """Yield the content of resources. Raises ServerError if a server cannot read one."""
    for server, group, uri in resources:
        yield from engine().call(group.read(server, uri))


def _servers_by_name(sources: Sequence[Toolset]) -> "dict[str, McpServers]":
    from agentmagic.tools.mcp import McpServers  # takes a while to load, and most prompts name no server

    # Reversed, so that of two servers of one name the first source's is meant, as it is for tools.
    groups = [source for source in reversed(sources) if isinstance(source, McpServers)]
    return {state.name: group for group in groups for state in group.servers}
