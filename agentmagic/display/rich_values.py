"""What a tool sent back, or an answer that is a value, in the forms that are shown: a table, JSON, text, an image."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, cast

from markupsafe import Markup

from agentmagic.display.blocks import is_frame
from agentmagic.display.markdown import rich_html
from agentmagic.display.words import LONGEST_RESULT, ONE_LINE, compact, indented
from agentmagic.messages import Content, Media, Resource, Text, ToolResult, as_text
from agentmagic.providers.base import answer_data
from agentmagic.text import clip, cut_apart, in_json, one_line, shown

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_IMAGE = 4_000_000
"""Bytes of an image that is shown; a larger one is named in words."""

_WIDTH = re.compile(r'<img width="(\d{1,5})">')

LONGEST_SECRET = 1000
"""Characters that are looked at beyond those shown, so that no secret is cut in two before it is blanked."""

LARGEST_JSON = 1_000_000
"""Characters of text that are tried as JSON."""

MOST_ROWS = 50
LONGEST_WHOLE = 2_000_000
"""Characters of a result that a view shows if asked for all of it."""
MOST_ROWS_WHOLE = 2_000
MOST_COLUMNS = 20
LONGEST_CELL = 200

MOST_OPEN_ROWS = 5
"""Rows of a frame that stand open below its call."""
LONGEST_COUNT = 200
"""Characters at the end of a frame's HTML in which pandas writes its number of rows."""
_ROW = re.compile(r"<tr[ >].*?</tr>", re.DOTALL)
_COUNTED = re.compile(r"shape: \(([\d_,]+?), |>([\d,]+) rows")

LONGEST_START = 300
"""Characters that are shown of the text of each page that a search found; ten times as many of a page alone."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text as it is, cut; `note` says what was left out."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Records, cut; a cell is (text, is a number)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, bool], ...], ...]
    note: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column has a number."""
        return tuple(any(row[column][1] for row in self.rows) for column in range(len(self.columns)))


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of a type that browsers show and that cannot hold a script; it is shown `width` wide, or as it is."""

    media_type: str
    data: bytes
    name: str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class JsonTree(PlainText):
    """JSON of more than one level, whole; `text` is the same written out."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class RichHtml(PlainText):
    """HTML that can do no harm; `text` is shown instead if there is no HTML, as in a terminal."""

    html: Markup = Markup()  # noqa: RUF009  (a frozen value)
    is_frame: bool = False


@dataclass(frozen=True, slots=True)
class Pages(PlainText):
    """Pages of the web: title, address and the beginning of the text of each; `text` is the same in lines."""

    pages: tuple[tuple[str, str, str], ...] = ()


Form = PlainText | Table | Image


def forms(result: ToolResult, rich: Sequence[str] = (), *, whole: bool = False, pages: bool = False) -> Iterator[Form]:
    """Yield the content of a result in its order, secrets blanked; with `whole`, more of a long one.

    With `pages` its resources are pages of the web, which are listed.

    `rich` has the HTML of the parts, "" for none; it is sanitised here. That of an image tells no more than its width.
    A result without content is its structured value; one without either yields nothing.
    """
    most = LONGEST_WHOLE if whole else LONGEST_RESULT
    if pages and (found := [part for part in result.content if isinstance(part, Resource)]):
        yield _pages(found, most if whole else LONGEST_START * (10 if len(found) == 1 else 1))
        result, rich = replace(result, content=tuple(one for one in result.content if one not in found)), ()
    if not result.content and result.structured is not None:
        yield _json(result.structured, most)
    for part, html in zip_longest(result.content, rich[: len(result.content)], fillvalue=""):
        match part:
            case Text(audience="assistant"):
                pass  # the card itself says it
            case Text() if html and (cleaned := rich_html(html)):
                yield RichHtml(*cut_apart(shown(part.text), most), cleaned, is_frame(html))
            case Text():
                yield from _text(part.text, most)
            case Media():
                width = _WIDTH.fullmatch(html)
                yield value_form(part, int(width[1]) if width else None)
            case _:
                yield PlainText(*cut_apart(shown(as_text(cast("Content", part))), most))


def opened(
    result: ToolResult, rich: Sequence[str] = (), *, whole: bool = False, pages: bool = False
) -> tuple[list[Form], list[Form]]:
    """Return the forms of a result that stand open below its call, images and the first rows of frames, and the others.

    A frame with more rows is among both.
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


def _pages(found: Sequence[Resource], most: int) -> Pages:
    """Return pages as a list; `most` are the characters that are shown of each."""
    rows = tuple((one_line(shown(one.name), LONGEST_CELL), shown(one.uri), _beginning(one.text, most)) for one in found)
    lines = (f"{title}\n  {url}" if title else url for title, url, _ in rows)
    note = cut_apart(found[0].text, most)[1] if len(found) == 1 else ""
    return Pages("\n".join(lines), note, rows)


def _beginning(text: str, most: int) -> str:
    return clip(shown(text[: most + LONGEST_SECRET]).strip(), most)


def _first_rows(frame: RichHtml) -> RichHtml:
    """Return the first rows of a frame's table with a note, or the frame itself if it has no more."""
    head, body, tail = frame.html.partition("<tbody>")
    rows, end, _ = tail.partition("</tbody>")
    first = list(_ROW.finditer(rows))
    if len(first) <= MOST_OPEN_ROWS:
        return frame
    counted = _COUNTED.search(f"{head}{tail[-LONGEST_COUNT:]}")
    every = int(re.sub("[_,]", "", counted[1] or counted[2])) if counted else len(first)
    rest = f"all {every:,} rows are" if every <= len(first) else "more are"
    note = f"The first {MOST_OPEN_ROWS} of {every:,} rows; {rest} in the card."
    table = Markup(f"{head}{body}{rows[: first[MOST_OPEN_ROWS - 1].end()]}{end}</table>")  # noqa: S704  (a part of it)
    return RichHtml("", html=table + Markup("<p><small>{}</small></p></div>").format(note), is_frame=True)


def answer_form(text: str, wrapped_in: str) -> Form | None:
    """Return the form of an answer that is a value, in JSON: a table, a tree or text; None if it is no JSON.

    An object of single values is a table of its fields. `wrapped_in` is the property that holds the value, if its type
    is no object.
    """
    try:
        value = answer_data(text)
    except ValueError:
        return None
    if isinstance(value, dict) and value.keys() == {wrapped_in}:
        value = cast("dict[str, Any]", value)[wrapped_in]
    if _is_flat(value):
        fields = cast("dict[str, Scalar]", in_json(value)).items()
        return Table(("field", "value"), tuple(((name, False), (_cell(one)[0], False)) for name, one in fields))
    if isinstance(value, str):
        return PlainText(*cut_apart(shown(value), LONGEST_RESULT))
    return _json(value, LONGEST_RESULT)


def value_form(value: str | Media, width: int | None = None) -> PlainText | Image:
    """Return the form of what a model gets of a value: an image that is not shown is named in words."""
    if isinstance(value, str):
        return PlainText(value)
    if value.media_type in IMAGES and len(value.data) <= LARGEST_IMAGE:
        return Image(value.media_type, value.data, shown(value.name), width)
    return PlainText(*cut_apart(shown(as_text(value)), LONGEST_RESULT))


def _text(text: str, most: int) -> Iterator[Form]:
    if (value := _parsed(text)) is not None:
        yield _json(value, most)
    elif text.strip():
        # Of a long text only the start is made fit to be shown, so that the rest costs no time.
        yield PlainText(shown(text[: most + LONGEST_SECRET])[:most], cut_apart(text, most)[1])


def _parsed(text: str) -> Any:
    """Return the array or object that a text holds, else None."""
    if len(text) > LARGEST_JSON or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: Any, most: int) -> Form:
    value = in_json(value)
    if records := _records(value):
        return _table(records, MOST_ROWS if most == LONGEST_RESULT else MOST_ROWS_WHOLE)
    line = compact(value)
    text = line if len(line) <= ONE_LINE else indented(value)
    if "\n" in text and len(text) <= most:
        return JsonTree(text, value=value)
    return PlainText(*cut_apart(text, most))


def _records(value: Any) -> Sequence[dict[str, Scalar]]:
    """Return the records of a list of flat objects, or of an object that holds nothing but one such list."""
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
    columns = _columns(records)
    rows = tuple(tuple(_cell(record.get(column)) for column in columns) for record in records[:most])
    hidden = len(records) > most
    note = f"The first {most:,} of {len(records):,} rows. The whole result is in session.messages." if hidden else ""
    return Table(columns, rows, note)


def _cell(value: Scalar) -> tuple[str, bool]:
    if value is None:
        return "", False
    number = not isinstance(value, str | bool)
    return one_line(value if isinstance(value, str) else compact(value), LONGEST_CELL), number
