"""What a command prints: one value that becomes plain text, HTML in the style of the cards, and a page's JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from markupsafe import Markup

from agentmagic.display.elements import CARD, MONO, MUTED, PRE, SUMMARY, element, fold
from agentmagic.text import sanitize

LineLook = Literal["line", "quiet", "heading", "code"]
RowsLook = Literal["facts", "names", "table"]

_LOOKS: dict[LineLook, str] = {
    "line": "margin:6px 0;white-space:pre-wrap;overflow-wrap:anywhere",
    "quiet": f"margin:6px 0;white-space:pre-wrap;{MUTED}",
    "heading": "margin:8px 0 2px",
    "code": f"{PRE};margin:4px 0",
}
_FIRST_CELLS: dict[RowsLook, str] = {"facts": MUTED, "names": f"{MONO};white-space:nowrap", "table": ""}


class PrintedFields(TypedDict):
    """A part of a printout, as a browser page draws it; `part` is its look.

    Only rows have `rows`, the names of their columns in `head`, and the number of columns that are aligned `left`. A
    part with the look "fold" has its title in `text`, and opens to show `inside`.
    """

    part: LineLook | RowsLook | Literal["fold"]
    text: str
    inside: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """A paragraph: running text, a "quiet" note in small grey letters, a "heading" of what follows, or "code"."""

    text: str
    look: LineLook = "line"

    def html(self) -> Markup:
        """Return the paragraph as HTML."""
        words = sanitize(self.text)
        if self.look == "code":
            return element("pre", words, style=_LOOKS[self.look])
        content = {"quiet": element("small", words), "heading": element("b", words)}.get(self.look, words)
        return element("p", content, style=_LOOKS[self.look])

    def fields(self) -> PrintedFields:
        """Return the paragraph as a page draws it."""
        return {"part": self.look, "text": sanitize(self.text), "inside": "", "head": (), "rows": (), "left": 0}


@dataclass(frozen=True, slots=True)
class PrintedRows:
    """Rows of aligned cells; all rows have the same number of cells.

    The first cell of each row is a label in "facts", and the name of a command, tool or server in "names". A "table"
    has a `head`. Columns from the index `left` on are aligned right. In the text, `indent` and `gap` are the spaces
    before and between the columns, and `least` the least width of all columns but the last.
    """

    rows: Sequence[Sequence[str]]
    look: RowsLook = "facts"
    head: Sequence[str] = ()
    left: int = 100
    indent: int = 0
    gap: int = 2
    least: int = 0

    @property
    def text(self) -> str:
        """The rows, with aligned columns."""
        table = [*([self.head] if self.head else []), *self.rows]
        widths = [max(self.least, *map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(self._line(row, widths) for row in table)

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = (
            cell.ljust(width) if place < self.left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return (" " * self.indent + (" " * self.gap).join(cells)).rstrip()

    def html(self) -> Markup:
        """Return the rows as a table."""
        head = [element("thead", self._row_html("th", self.head))] if self.head else []
        body = element("tbody", *(self._row_html("td", row) for row in self.rows))
        return element("table", *head, body, style="margin:4px 0;border:0")

    def _row_html(self, tag: Literal["td", "th"], row: Sequence[str]) -> Markup:
        cells: list[Markup] = []
        for place, cell in enumerate(row):
            side = "left" if place < self.left else "right"
            look = _FIRST_CELLS[self.look] if place == 0 else "white-space:pre-wrap"
            cells.append(element(tag, sanitize(cell), style=f"text-align:{side};vertical-align:top;{look}"))
        return element("tr", *cells, style="background:none")  # JupyterLab gives every second row another colour

    def fields(self) -> PrintedFields:
        """Return the rows as a page draws them."""
        head, *rows = (list(map(sanitize, row)) for row in (self.head, *self.rows))
        return {"part": self.look, "text": "", "inside": "", "head": head, "rows": rows, "left": self.left}


@dataclass(frozen=True, slots=True)
class PrintedFold:
    """A part that is closed at first where it can be opened, because it may be long."""

    title: str
    inside: str

    @property
    def text(self) -> str:
        """The title, and the part below it."""
        return f"-- {self.title} --\n{self.inside}"

    def html(self) -> Markup:
        """Return an element that opens."""
        inside = element("pre", sanitize(self.inside), style=f"{PRE};padding:0 12px 8px")
        return fold(element("b", sanitize(self.title)), inside, look=SUMMARY)

    def fields(self) -> PrintedFields:
        """Return the part as a page draws it."""
        inside = sanitize(self.inside)
        return {"part": "fold", "text": sanitize(self.title), "inside": inside, "head": (), "rows": (), "left": 0}


Printed = PrintedLine | PrintedRows | PrintedFold


@dataclass(frozen=True, slots=True)
class Printout:
    """What a command prints: groups of parts. In the text, an empty line separates two groups.

    Secrets are blanked, and texts cleaned, where the printout is shown. `plain` is the whole text, if another library
    has laid it out.
    """

    groups: Sequence[Sequence[Printed]]
    plain: str = ""

    @property
    def text(self) -> str:
        """The plain text, for terminals, batch runs and replays."""
        return sanitize(self.plain or "\n\n".join("\n".join(part.text for part in group) for group in self.groups))

    @property
    def is_card(self) -> bool:
        """Whether it is shown in a frame; paragraphs alone need none."""
        return any(not isinstance(part, PrintedLine) or part.look == "code" for part in self.parts)

    @property
    def parts(self) -> list[Printed]:
        """The parts of all groups."""
        return [part for group in self.groups for part in group]

    def html(self) -> Markup:
        """Return the HTML that a notebook stores."""
        style = f"{CARD};padding:4px 12px;overflow-x:auto" if self.is_card else ""
        card = element("div", *(part.html() for part in self.parts), style=style)
        return Markup('<div class="agentmagic agentmagic-printout mathjax_ignore">{}</div>').format(card)

    def bundle(self) -> dict[str, str]:
        """Return the MIME bundle of a cell's output."""
        return {"text/html": self.html(), "text/plain": self.text}

    def fields(self) -> list[PrintedFields]:
        """Return the parts as a page draws them."""
        return [part.fields() for part in self.parts]


def printout(*groups: Iterable[Printed | str] | str) -> Printout:
    """Return a printout of groups of parts. A string is a paragraph; what is empty is left out."""
    listed = ([group] if isinstance(group, str) else group for group in groups)
    parts = ([PrintedLine(part) if isinstance(part, str) else part for part in group if part] for group in listed)
    return Printout(list(filter(None, parts)))


def note(text: str) -> Printout:
    """Return a message to the user, in small grey letters."""
    return Printout([[PrintedLine(text, "quiet")]] if text else [])
