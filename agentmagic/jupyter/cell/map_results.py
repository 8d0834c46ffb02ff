"""Shows the result of a map in a cell: rows, tokens, cost, and the first answers."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentmagic.display import html, terminal
from agentmagic.display.blocks import Block, NoticeBlock, Pieces, ProgressBlock, TextBlock
from agentmagic.display.transcript import Snapshot
from agentmagic.errors import UsageError
from agentmagic.mapping.outcomes import MapResult
from agentmagic.mapping.rows import is_missing
from agentmagic.text import clip, join_names, json_line, plural
from agentmagic.values.reprs import short_repr

MOST_ROWS = 10
"""Rows of the data frame that the table shows."""
MOST_COLUMNS = 19
"""Columns that are shown beside the index: the display shows a wider table as a tree."""
LONGEST_CELL = 80
"""Characters of a value that the table shows."""
MOST_DOUBTFUL = 5

_Cell = str | int | float | bool | None


def bundle(result: MapResult, *, times: bool, table_only: bool = False) -> dict[str, str]:
    """Return a map's result as a MIME bundle with the first rows. `table_only` leaves out progress and summary."""
    blocks: list[Block] = []
    if not table_only:
        blocks.append(ProgressBlock(result.progress))
        blocks += [NoticeBlock("info", line) for line in summary(result, times=times)]
    snapshot = Snapshot([*blocks, *_table(result)], None)
    return {"text/html": html.render(snapshot, times=times), "text/plain": terminal.render(snapshot, times=times)}


def summary(result: MapResult, *, times: bool) -> list[str]:
    """Return lines about a map's result: the estimated cost of all rows, and the rows that may be paid for twice."""
    lines = [] if result.estimate is None else [result.estimate.sentence(times=times)]
    if rows := result.doubtful:
        names = join_names([clip(str(row.index), LONGEST_CELL) for row in rows], MOST_DOUBTFUL)
        one = len(rows) == 1
        fate = "was asked and its answer" if one else "were asked and their answers"
        consequence = f"so {'it' if one else 'they'} may be paid twice"
        lines.append(f"{plural(len(rows), 'row')} {fate} did not arrive, {consequence}: {names}.")
    return lines


def _table(result: MapResult) -> list[Block]:
    """Return the first rows of a map's data frame as a table, and a note if rows or columns are left out."""
    try:
        frame = result.head(MOST_ROWS)
    except UsageError:  # no data frame: the rows come from a list, and pandas is not installed
        return []
    columns, index = _columns(frame)
    names = [*columns]
    surplus = len(names) - MOST_COLUMNS
    if surplus > 0:  # leave out columns in the middle: the last columns are the answers
        del names[MOST_COLUMNS // 3 : MOST_COLUMNS // 3 + surplus]
    key = next(name for name in ("index", "#", "row index") if name not in names)
    records = [{key: label} if index else {} for label in map(_cell, index or range(len(frame)))]
    for name in names:
        for record, value in zip(records, columns[name], strict=True):
            record[name] = _cell(value)
    if not records:
        return []
    whole = result.progress.total if result.estimate is None and result.progress.total is not None else len(result)
    cut = f"The first {len(records)} of {plural(whole, 'row')}. " if whole > len(records) else ""
    left_out = f"{plural(surplus, 'column')} {'is' if surplus == 1 else 'are'} left out. " if surplus > 0 else ""
    note = f"{cut}{left_out}The frame has all." if cut or left_out else ""
    table = TextBlock(Pieces(json_line(records)), is_value=True)
    return [table, *([NoticeBlock("info", note)] if note else [])]


def _columns(frame: Any) -> tuple[Mapping[str, Sequence[Any]], Sequence[Any]]:
    """Return the columns of a data frame by name, and its index. The index of a polars frame, which has none, is ()."""
    if type(frame).__module__.startswith("polars"):
        return cast("Mapping[str, Sequence[Any]]", frame.to_dict(as_series=False)), ()
    return {str(name): list(frame[name]) for name in frame.columns}, list(frame.index)


def _cell(value: Any) -> _Cell:
    """Return a value in the form in which a table shows it: a short text, a number, or None."""
    if is_missing(value):
        return None
    item = value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value
    match item:
        case bool() | int():
            return item
        case float():
            text = f"{item:.4g}"
            return f"{item:.6f}" if "e-" in text else float(text)  # no exponent such as 1e-05, which is hard to read
        case str():
            return clip(item, LONGEST_CELL)
        case _:
            return clip(short_repr(item, LONGEST_CELL), LONGEST_CELL)
