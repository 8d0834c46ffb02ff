"""Choose how to show a tool's result, or an answer that is JSON: as a table, a JSON tree, text or an image."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, cast

from markupsafe import Markup

from agentmagic.display.blocks import is_frame
from agentmagic.display.call_words import told_size
from agentmagic.display.markdown import rich_html
from agentmagic.display.words import LONGEST_RESULT, ONE_LINE, compact, indented_json
from agentmagic.messages import Content, Media, Resource, Text, ToolResult, as_text
from agentmagic.providers.base import answer_data
from agentmagic.text import clip, cut_with_note, sanitize, sanitize_json, single_line

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_IMAGE = 4_000_000
"""Bytes of the largest image that is shown; a larger image is only named."""

_WIDTH = re.compile(r'<img width="(\d{1,5})">')

LONGEST_SECRET = 1000
"""Characters that are searched for secrets beyond those shown, so that no secret is cut in two before it is blanked."""

LARGEST_JSON = 1_000_000
"""Characters of the longest text that is parsed as JSON."""

MOST_ROWS = 50
LONGEST_WHOLE = 2_000_000
"""Characters of a result that a view shows if the user asks for all of it."""
MOST_ROWS_WHOLE = 2_000
MOST_COLUMNS = 20
LONGEST_CELL = 200

MOST_OPEN_ROWS = 5
"""Rows of a data frame that are shown open below its call."""
_ROW = re.compile(r"<tr[ >].*?</tr>", re.DOTALL)

LONGEST_START = 300
"""Characters that are shown of each page that a search found; ten times as many are shown of a single page."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text to show, which was cut if it was too long; `note` says what was left out."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of records to show, cut to length. `numeric` says of each column whether a cell in it is a number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a type that browsers show and that cannot hold a script.

    The image is scaled to `width` pixels, unless `width` is None.
    """

    media_type: str
    data: bytes
    name: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class JsonTree(PlainText):
    """JSON with more than one level, not cut; `text` is the same JSON, indented."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class RichHtml(PlainText):
    """Sanitised HTML. Where HTML cannot be shown, as in a terminal, `text` is shown instead."""

    html: Markup = Markup()  # noqa: RUF009  (a frozen value)
    is_frame: bool = False


@dataclass(frozen=True, slots=True)
class Pages(PlainText):
    """Web pages, each with its title, address and the beginning of its text; `text` lists titles and addresses."""

    pages: tuple[tuple[str, str, str], ...] = ()


Form = PlainText | Table | Image


def forms(result: ToolResult, rich: Sequence[str] = (), *, whole: bool = False, pages: bool = False) -> Iterator[Form]:
    """Yield the parts of a tool result as forms to show (text, table, image and so on), in order, with secrets blanked.

    With `whole`, more of a long result is included. With `pages`, the result's resources are web pages, and are listed
    together. `rich` has the HTML of each part, "" for a part without HTML; it is sanitised here. For an image, the HTML
    only gives its width. A result without content yields the form of its structured value; a result without both yields
    nothing.
    """
    most = LONGEST_WHOLE if whole else LONGEST_RESULT
    if pages and (resources := [part for part in result.content if isinstance(part, Resource)]):
        yield _pages(resources, most if whole else LONGEST_START * (10 if len(resources) == 1 else 1))
        result, rich = replace(result, content=tuple(item for item in result.content if item not in resources)), ()
    if not result.content and result.structured is not None:
        yield _json(result.structured, most)
    for part, html in zip_longest(result.content, rich[: len(result.content)], fillvalue=""):
        match part:
            case Text(audience="assistant") | Media(audience="assistant"):
                pass  # this is only for the model: the call's card or the cell already shows the user the same
            case Text() if html and (safe_html := rich_html(html)):
                yield RichHtml(*cut_with_note(sanitize(part.text), most), safe_html, is_frame(html))
            case Text():
                yield from _text(part.text, most)
            case Media():
                width = _WIDTH.fullmatch(html)
                yield value_form(part, int(width[1]) if width else None)
            case _:
                yield PlainText(*cut_with_note(sanitize(as_text(cast("Content", part))), most))


def split_forms(
    result: ToolResult, rich: Sequence[str] = (), *, whole: bool = False, pages: bool = False
) -> tuple[list[Form], list[Form]]:
    """Return the forms of a tool result in two lists: those always shown below the call's card, and those inside it.

    Images and the first rows of data frames are always shown. A data frame with more rows is in both lists.
    """
    below, inside = list[Form](), list[Form]()
    for form in forms(result, rich, whole=whole, pages=pages):
        match form:
            case Image():
                below.append(form)
            case RichHtml(is_frame=True):
                below.append(first := _first_rows(form))
                if first is not form:
                    inside.append(form)
            case _:
                inside.append(form)
    return below, inside


def _pages(resources: Sequence[Resource], most: int) -> Pages:
    """Return web pages in the form of a list; of each page's text, at most `most` characters are shown."""
    rows = tuple(
        (single_line(sanitize(resource.name), LONGEST_CELL), sanitize(resource.uri), _beginning(resource.text, most))
        for resource in resources
    )
    lines = (f"{title}\n  {url}" if title else url for title, url, _ in rows)
    note = cut_with_note(resources[0].text, most)[1] if len(resources) == 1 else ""
    return Pages("\n".join(lines), note, rows)


def _beginning(text: str, most: int) -> str:
    return clip(sanitize(text[: most + LONGEST_SECRET]).strip(), most)


def _first_rows(frame: RichHtml) -> RichHtml:
    """Return the first rows of a data frame's table with a note, or the whole table if it has no more rows."""
    head, body, tail = frame.html.partition("<tbody>")
    rows, end, _ = tail.partition("</tbody>")
    first = list(_ROW.finditer(rows))
    if len(first) <= MOST_OPEN_ROWS:
        return frame
    size = told_size(frame.html)
    total = size[0] if size else len(first)
    rest = f"all {total:,} rows are" if total <= len(first) else "more are"
    note = f"The first {MOST_OPEN_ROWS} of {total:,} rows; {rest} in the card."
    table = Markup(f"{head}{body}{rows[: first[MOST_OPEN_ROWS - 1].end()]}{end}</table>")  # noqa: S704  (a part of it)
    return RichHtml("", html=table + Markup("<p><small>{}</small></p></div>").format(note), is_frame=True)


def answer_form(text: str, wrapped_in: str) -> Form | None:
    """Return the form in which to show an answer in JSON: a table, a tree or text; None for invalid JSON.

    An object of single values becomes a table of its fields. If the requested type is not a JSON object, the text wraps
    the value in an object; `wrapped_in` is the name of the property that holds the value.
    """
    try:
        value = answer_data(text)
    except ValueError:
        return None
    if isinstance(value, dict) and value.keys() == {wrapped_in}:
        value = cast("dict[str, Any]", value)[wrapped_in]
    if _is_flat(value):
        fields = cast("dict[str, Scalar]", sanitize_json(value)).items()
        return Table(("field", "value"), tuple((name, _cell(one)) for name, one in fields), (False, False))
    if isinstance(value, str):
        return PlainText(*cut_with_note(sanitize(value), LONGEST_RESULT))
    return _json(value, LONGEST_RESULT)


def value_form(value: str | Media, width: int | None = None) -> PlainText | Image:
    """Return what the model gets for a value, as a text or image to show. A text names each image not shown."""
    if isinstance(value, str):
        return PlainText(value)
    if value.media_type in IMAGES and len(value.data) <= LARGEST_IMAGE:
        return Image(value.media_type, value.data, sanitize(value.name), width)
    return PlainText(*cut_with_note(sanitize(as_text(value)), LONGEST_RESULT))


def _text(text: str, most: int) -> Iterator[Form]:
    if (value := _parse(text)) is not None:
        yield _json(value, most)
    elif text.strip():
        # Only the start of a long text is redacted and cleaned: the rest is not shown.
        yield PlainText(sanitize(text[: most + LONGEST_SECRET])[:most], cut_with_note(text, most)[1])


def _parse(text: str) -> Any:
    """Return the array or object in a JSON text, or None if the text holds neither."""
    if len(text) > LARGEST_JSON or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: Any, most: int) -> Form:
    value = sanitize_json(value)
    if records := _records(value):
        return _table(records, MOST_ROWS if most == LONGEST_RESULT else MOST_ROWS_WHOLE)
    line = compact(value)
    text = line if len(line) <= ONE_LINE else indented_json(value)
    if "\n" in text and len(text) <= most:
        return JsonTree(text, value=value)
    return PlainText(*cut_with_note(text, most))


def _records(value: Any) -> Sequence[dict[str, Scalar]]:
    """Return the records of a list of flat objects, or of an object whose only member is such a list; else []."""
    if isinstance(value, dict):
        inner = list(cast("dict[str, Any]", value).values())
        value = inner[0] if len(inner) == 1 else None
    if not isinstance(value, list) or not all(map(_is_flat, cast("list[Any]", value))):
        return []
    records = cast("list[dict[str, Scalar]]", value)
    return records if 0 < len(_columns(records)) <= MOST_COLUMNS else []


def _is_flat(item: Any) -> bool:
    values = cast("dict[str, Any]", item).values() if isinstance(item, dict) else ()
    return bool(values) and all(value is None or isinstance(value, str | int | float) for value in values)


def _columns(records: Iterable[dict[str, Scalar]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for record in records for key in record))


def _table(records: Sequence[dict[str, Scalar]], most: int) -> Table:
    columns, shown = _columns(records), records[:most]
    rows = tuple(tuple(_cell(record.get(column)) for column in columns) for record in shown)
    numeric = tuple(any(_is_number(record.get(column)) for record in shown) for column in columns)
    is_cut = len(records) > most
    note = f"The first {most:,} of {len(records):,} rows. The whole result is in session.messages." if is_cut else ""
    return Table(columns, rows, numeric, note)


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Scalar) -> str:
    return "" if value is None else single_line(value if isinstance(value, str) else compact(value), LONGEST_CELL)
