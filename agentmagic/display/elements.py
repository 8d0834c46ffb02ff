"""Build HTML elements with escaped content, and define the CSS styles that they share."""

from typing import LiteralString

from markupsafe import Markup, escape

BORDER = "#88888866"
"""A fixed colour: JupyterLab removes its CSS variables from the styles of a notebook that is not trusted yet."""

MUTED = "color:var(--jp-content-font-color2,#808080)"
CARD = f"border:1px solid {BORDER};border-radius:6px;margin:8px 0"
SUMMARY = f"padding:6px 10px;cursor:pointer;{MUTED}"
MONO = "font-family:var(--jp-code-font-family,monospace)"
"""Set on every `pre`, because nbconvert's pages show the `pre` of an output in the font of running text."""

LINE = f"{MONO};user-select:all;-webkit-user-select:all;white-space:pre-wrap;overflow-wrap:anywhere"
"""The style of a line to paste; a click selects the whole line."""

PRE = f"margin:0;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;background-color:transparent;{MONO}"


def element(tag: LiteralString, *content: str, style: str = "", more: LiteralString = "") -> Markup:
    """Return an HTML element. Content is escaped unless it is Markup already. `more` holds further attributes."""
    style_attribute = f' style="{escape(style)}"' if style else ""
    inner = "".join(map(escape, content))
    return Markup(f"<{tag}{style_attribute}{more}>{inner}</{tag}>")  # noqa: S704  (all that is not ours is escaped)


def pasted(line: str) -> Markup:
    """Return a line to paste, in an element to which js/src/line.js adds a Copy button where a page runs it."""
    return element("agentmagic-line", element("code", line, style=LINE))


def fold(summary: str, *content: str, style: str = "", look: str = "cursor:pointer", is_open: bool = False) -> Markup:
    """Return an element that the user can open to see `content` below `summary`. `look` is the summary's CSS."""
    head = element("summary", summary, style=look)
    return element("details", head, *content, style=style, more=" open" if is_open else "")
