"""Return values in their shown forms, and the sources of answers, as the plain JSON that a browser page draws."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from agentmagic.display.blocks import TextBlock
from agentmagic.display.citations import link, place_numbers
from agentmagic.display.rich_values import Form, Image, Pages, PlainText, RichHtml, Table
from agentmagic.display.source_list import quotes_of, shown_address, source_title
from agentmagic.messages import Source
from agentmagic.text import sanitize


class TextForm(TypedDict):
    """A text; `note` says what was cut off."""

    form: Literal["text"]
    text: str
    note: str


class TableForm(TypedDict):
    """A table; `numeric` says which columns hold numbers."""

    form: Literal["table"]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    note: str


class HtmlForm(TypedDict):
    """HTML from a tool; the browser page sanitises it again."""

    form: Literal["html"]
    html: str


class ImageForm(TypedDict):
    """An image in base64, its media type, and the width in pixels to which it must be scaled, if it must."""

    form: Literal["image"]
    type: str
    data: str
    name: str
    width: NotRequired[int]


class PagesForm(TypedDict):
    """Web pages. Each has a title, an address to show, a URL to link to ("" for no link), and the start of its text."""

    form: Literal["pages"]
    pages: Sequence[tuple[str, str, str, str]]
    note: str


FormFields = TextForm | TableForm | HtmlForm | ImageForm | PagesForm


class SourceFields(TypedDict):
    """A web page that an answer cites: its number, title, shown address, URL to link to (or ""), and quotations."""

    number: int
    title: str
    address: str
    link: str
    quotes: Sequence[str]


def mark_fields(block: TextBlock) -> list[tuple[int, str, int]]:
    """Return the source numbers of a text: position in UTF-16 code units, Markdown to insert before it, and number."""
    text, rows, units, end = sanitize(block.text), list[tuple[int, str, int]](), 0, 0
    for place, number, before in place_numbers(block.text, block.citations, block.sources):
        units += len(text[end:place].encode("utf-16-le", "surrogatepass")) // 2
        end = place
        rows.append((units, before, number))
    return rows


def source_fields(source: Source) -> SourceFields:
    """Return a cited source in the form that the browser page shows."""
    return {
        "number": source.number,
        "title": source_title(source),
        "address": shown_address(source.url),
        "link": link(source.url),
        "quotes": quotes_of(source),
    }


def form_fields(form: Form) -> FormFields:
    """Return a shown form of a value (text, table, image and so on) as plain JSON."""
    match form:
        case RichHtml():
            return {"form": "html", "html": str(form.html)}
        case Pages():
            pages = ((title, shown_address(url), link(url), text) for title, url, text in form.pages)
            page_rows = [(title or address, address, leads_to, text) for title, address, leads_to, text in pages]
            return {"form": "pages", "pages": page_rows, "note": form.note}
        case PlainText():
            return {"form": "text", "text": form.text, "note": form.note}
        case Table():
            rows, numeric = list(map(list, form.rows)), list(form.numeric)
            return {"form": "table", "columns": list(form.columns), "rows": rows, "numeric": numeric, "note": form.note}
        case Image():
            data = b64encode(form.data).decode("ascii")
            image: ImageForm = {"form": "image", "type": form.media_type, "data": data, "name": form.name}
            if form.width:
                image["width"] = form.width
            return image
