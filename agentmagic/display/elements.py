"""Elements of static HTML, their content escaped, and the looks that they share."""

from typing import LiteralString

from markupsafe import Markup, escape

BORDER = "#88888866"
"""A fixed colour: JupyterLab removes its variables from the styles of a notebook that is not trusted yet."""

MUTED = "color:var(--jp-content-font-color2,#808080)"


def element(tag: LiteralString, *content: str, style: str = "", more: LiteralString = "") -> Markup:
    """Return an HTML element; its content is escaped, except what is HTML already. `more` are other attributes."""
    styled = f' style="{escape(style)}"' if style else ""
    inner = "".join(map(escape, content))
    return Markup(f"<{tag}{styled}{more}>{inner}</{tag}>")  # noqa: S704  (all that is not ours is escaped)


def fold(summary: str, *content: str, style: str = "", look: str = "cursor:pointer", is_open: bool = False) -> Markup:
    """Return content that opens below its summary, whose style is `look`."""
    head = element("summary", summary, style=look)
    return element("details", head, *content, style=style, more=" open" if is_open else "")
