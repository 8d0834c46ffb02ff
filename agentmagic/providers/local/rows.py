"""Rewrites tables and records for the small local model: with fewer tokens, and with each value next to its name."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_TABLE_ROW = re.compile(r"^\|(.*)\|[ \t]*$\n?", re.MULTILINE)
_CELLS = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:-]+")
_RECORDS = re.compile(r"\[\s*\{")


def in_rows(text: str) -> tuple[str, tuple[str, ...]]:
    """Return `text` with its first list of JSON records rewritten as numbered rows, and a label for each row.

    The label is the first text in the row, or else the first value. If a label has unprintable characters, which a
    grammar cannot contain, no labels are returned.
    """
    start = _RECORDS.search(text)
    if start is None:
        return text, ()
    try:
        data, end = json.JSONDecoder().raw_decode(text, start.start())
    except (ValueError, RecursionError):
        return text, ()
    records = cast("list[Any]", data)
    if len(records) < 2 or not all(map(_is_flat, records)):  # noqa: PLR2004  (one record has no order)
        return text, ()
    rows = "\n".join(f"{number}. {_row(record)}" for number, record in enumerate(records, 1))
    labels = tuple(map(_label, records))
    return f"{text[: start.start()]}\n{rows}\n{text[end:]}".strip(), labels if "".join(labels).isprintable() else ()


def _label(record: Mapping[str, Any]) -> str:
    values = list(record.values())
    value = next((value for value in values if isinstance(value, str)), values[0])
    return value if isinstance(value, str) else json.dumps(value)


def row_grammar(labels: Sequence[str]) -> str:
    """Return the grammar (GBNF) for an answer that lists the first rows, or all rows, in their original order."""
    rest = ""
    for number, label in reversed(list(enumerate(labels, 1))):
        line = json.dumps(f"{number}. {label}", ensure_ascii=False)
        rest = f' ("\\n" {line} more{rest})?' if number > 1 else f"{line} more{rest}"
    return f"root ::= {rest}\nmore ::= [^\\n]*"


def _is_flat(record: Any) -> bool:
    if not isinstance(record, Mapping):
        return False
    values = cast("Mapping[str, Any]", record).values()
    return bool(values) and not any(isinstance(value, list | dict) for value in values)


def _row(record: Mapping[str, Any]) -> str:
    values = (value if isinstance(value, str) else json.dumps(value) for value in record.values())
    return ", ".join(f"{name}: {value}" for name, value in zip(record, values, strict=True))


def compact(text: str) -> str:
    """Rewrite the Markdown tables in `text` as rows of comma-separated values, which need half as many tokens."""
    return _TABLE_ROW.sub(_compact_row, text)


def _compact_row(match: re.Match[str]) -> str:
    if _RULE.fullmatch(match[1]):
        return ""
    return f"{', '.join(cell.strip() for cell in _CELLS.split(match[1]))}\n"
