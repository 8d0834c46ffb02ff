"""Turns the IPython lines of a program, such as `%time f()` and `!ls`, into Python, and tells what they do."""

import ast
import re
from collections.abc import Callable

from agentmagic.undo import risks

_ESCAPED = re.compile(r"^(?P<margin>[ \t]*)(?:(?P<bound>[\w ,.\[\]'\"]+?)\s*=\s*)?(?P<mark>%%|%|!!|!)(?P<rest>.*)$")
_CONTINUED = re.compile(r"^[ \t]*(?:[\w ,]+=\s*)?[%!](?:.*\\\n)+.*", re.MULTILINE)
_HELP = re.compile(r"^[ \t]*(?:\?{1,2}\s*[\w.%*]+|[\w.%*]+\?{1,2})\s*;?$")
_OPTIONS = re.compile(r"^(?:\s*-(?:[lsTD]\s+\S+|[-\w]+(?:\s+\d+)?)(?=\s|$))+")
_INSERTED = re.compile(r"\$\w|\{")
"""Marks a place in a shell line or magic where IPython inserts the value of an expression."""


class IPythonLines:
    """Parses programs with IPython lines.

    `record` is called for each act of such a line, with the number of the line, the act, its argument and its source.
    `found` is True if a program has IPython lines, and `inserts` if IPython inserts the value of an expression in one.
    """

    def __init__(self, record: Callable[[int, str, str | None, str], None]) -> None:
        self.found = self.inserts = False
        self._record = record

    def parse(self, code: str) -> ast.Module:
        """Return the syntax tree of a program. IPython lines are replaced by Python, and their effects are recorded."""
        try:
            return ast.parse(code)
        except SyntaxError:
            head, _, body = code.lstrip().partition("\n")
            if head.startswith("%%"):
                line = self._to_python(1, head.removeprefix("%"), body)
                is_python = head[2:].split(" ")[0] in (*risks.TIMERS, "capture")
                return self.parse(f"{line}\n{body}" if is_python else "")
            code = _CONTINUED.sub(lambda match: match[0].replace("\\\n", " ") + "\n" * match[0].count("\\\n"), code)
            return ast.parse(
                "\n".join(self._to_python(number, line) for number, line in enumerate(code.split("\n"), 1))
            )

    def _to_python(self, number: int, line: str, body: str = "") -> str:
        """Return a Python line in place of an IPython line, and record what the IPython line does."""
        if _HELP.match(line):
            self.found = True
            return line[: len(line) - len(line.lstrip())] + "pass"
        if (match := _ESCAPED.match(line)) is None:
            return line
        margin, target, mark, rest = match["margin"], match["bound"], match["mark"], match["rest"]
        name, statement = rest.partition(" ")[0], _OPTIONS.sub("", rest.partition(" ")[2]).strip()
        if mark == "%" and name == "capture" and statement.isidentifier():
            return f"{margin}{statement} = None"
        if mark == "%" and name in risks.TIMERS:
            self.found = True
            if try_parse(statement) is not None:
                return f"{margin}{f'{target} = ' if target else ''}{statement or 'pass'}"
            self._record(number, "code", statement, "")
        self._escape(number, mark, f"{rest}\n{body}" if body else rest)
        return margin + (f"{target} = None" if target else "pass")

    def _escape(self, number: int, mark: str, command: str) -> None:
        self.found = True
        acts = [risks.of_shell(command)] if mark.startswith("!") else list(risks.of_magic(command))
        self.inserts |= bool(_INSERTED.search(command))
        for act, argument in acts:
            self._record(number, act, argument, command)


def try_parse(code: str) -> ast.Module | None:
    """Return the syntax tree of a program, or None if it is not Python."""
    try:
        return ast.parse(code.strip())
    except (SyntaxError, ValueError):
        return None
