"""One line on a program that a tool ran: its last statement, and the value of that."""

import ast
import re
from collections.abc import Sequence

from agentmagic.display.blocks import is_frame
from agentmagic.messages import Text, ToolResult
from agentmagic.text import plural, sanitize, single_line
from agentmagic.tools.base import NO_OUTPUT, PRINTED

LONGEST_PARSED = 20_000
"""Characters of the longest program that is parsed; of a longer one, the last line stands for the last statement."""
LONGEST_VALUE = 60

_ESCAPE = re.compile(r"\\[^\n\x80-\U0010ffff]")
_SIZE = re.compile(r"shape: \(([\d_,]+), ([\d_,]+)\)|>([\d,]+) rows \xd7 ([\d,]+) columns")
_SERIES_END = re.compile(r"(?:Name|Length|dtype): ")
"""How the last line of a pandas Series begins, which tells its name, length and type."""


def last_statement(code: str) -> tuple[str, bool]:
    """Return the last statement of a program, and whether it is an expression, which has a value.

    If the program is not plain Python, or is too long, its last line is returned, and False.
    """
    # The parser would print a warning for an escape that Python does not know, so no escape is left for it.
    source = _ESCAPE.sub("__", code)
    try:
        last = ast.parse(source).body[-1] if len(code) <= LONGEST_PARSED else None
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        last = None
    if last is None:
        return next((line.strip() for line in reversed(code.splitlines()) if line.strip()), ""), False
    lines = [line.encode() for line in code.splitlines(keepends=True)[last.lineno - 1 : last.end_lineno]]
    lines[-1] = lines[-1][: last.end_col_offset]
    lines[0] = lines[0][last.col_offset :]
    return b"".join(lines).decode(errors="replace"), isinstance(last, ast.Expr)


def value_line(code: str, result: ToolResult, rich: Sequence[str]) -> str:
    """Return the value of a program's last expression on one short line, or "" if it has none.

    A data frame is shown as its size. `rich` has the HTML of each part of the result. If the last expression prints,
    its last printed line is returned.
    """
    statement, is_expression = last_statement(code)
    texts = [(number, part.text) for number, part in enumerate(result.content) if isinstance(part, Text)]
    values = [(number, text) for number, text in texts if not text.startswith((PRINTED, NO_OUTPUT))]
    if not is_expression or result.is_error:
        return ""
    if statement.startswith("print("):
        last_text = texts[-1][1] if texts else ""
        return _short(last_text.rpartition("\n")[2]) if last_text.startswith(PRINTED) else ""
    if not values:
        return ""
    number, text = values[-1]
    html = rich[number] if number < len(rich) else ""
    if is_frame(html):
        return frame_size(html)
    last_line = text.rpartition("\n")[2]
    return _short(last_line if _SERIES_END.match(last_line) else text)


def told_size(html: str) -> tuple[int, int] | None:
    """Return the numbers of rows and columns that the HTML of a data frame tells, or None if it tells none.

    polars tells them above the table, pandas below it and only if it left out rows or columns.
    """
    match = _SIZE.search(html.partition("<table")[0] + html.rpartition("</table>")[2])
    if match is None:
        return None
    rows, columns = (int(re.sub("[_,]", "", number)) for number in match.groups() if number)
    return rows, columns


def frame_size(html: str) -> str:
    """Return the size of a data frame from its HTML: "120 rows x 4 columns"."""
    if size := told_size(html):
        rows, columns = size
    else:  # a frame that is shown as a whole does not tell its size
        body = html.partition("<tbody>")[2]
        rows, columns = body.count("<tr"), body.partition("</tr>")[0].count("<td")
    return f"{plural(rows, 'row')} x {plural(columns, 'column')}"


def _short(text: str) -> str:
    return single_line(sanitize(text), LONGEST_VALUE)
