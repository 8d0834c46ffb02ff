"""What a model wrote, from Markdown to HTML that can do no harm.

Two walls: markdown-it makes no HTML of HTML, and nh3 lets nothing pass that is not on a short list. There are
no remote images, since fetching one tells a stranger what was read.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from agentmagic.secrets import settled
from agentmagic.text import cut_apart, shown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from nh3 import Cleaner

LONGEST = 200_000
"""Characters of Markdown that are rendered; the rest is cut, with a note."""

SPARE_TOKENS = 1_000
"""Tokens that Markdown may have beyond its characters; with more it is a table blown up on purpose."""

CODE = (
    "display:block;margin:0 0 8px;padding:8px 10px;border-radius:4px;white-space:pre;overflow-x:auto;"
    "background:var(--jp-cell-editor-background,#88888819)"
)

_BLOCKS = {"blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
_TAGS = _BLOCKS | _TABLES | {"a", "br", "code", "del", "em", "img", "s", "span", "strong"}
_ATTRIBUTES = {"*": set[str](), "a": {"href"}, "img": {"src", "alt"}, "ol": {"start"}} | {
    tag: {"style"} for tag in ("code", "td", "th")
}
_PROPERTIES = frozenset(re.findall(r"([a-z-]+):", f"text-align:;{CODE}"))
_LINK = re.compile(r"(https?://|mailto:)", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
_MATHS = re.compile(
    r"\$\$.{1,500}?\$\$|\$(?![\s$])[^$\n]{0,500}?[^\s$\\]\$(?!\d)|\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]", re.DOTALL
)
"""Maths as Jupyter's front ends know it, of a bounded length; a dollar amount is none."""
_DOLLAR = re.compile(r"\\?\$")


def to_html(text: str) -> Markup:
    """Return Markdown as sanitised HTML, secrets blanked.

    Maths is left as it is written, for the front end to typeset.
    """
    source, note = cut_apart(shown(text), LONGEST)
    html = Markup(_sanitiser().clean(shown(_rendered(source))))  # noqa: S704  (it is sanitised)
    return html + Markup("<p><em>{}</em></p>").format(note) if note else html


class Growing:
    """Markdown that is still being written: what is above the last paragraph is rendered once.

    A list or a reference that spans the cut can look a little different until the text is whole.
    """

    def __init__(self) -> None:
        self._done = 0
        self._html = Markup()

    def to_html(self, text: str) -> Markup:
        """Return the text so far as sanitised HTML; `text` must continue that of the call before.

        An end that may be the beginning of a secret is left out.
        """
        text = settled(text, self._done)
        paragraphs_end = _last_break(text, self._done)
        if paragraphs_end > self._done:
            self._html += to_html(text[self._done : paragraphs_end])
            self._done = paragraphs_end
        return self._html + to_html(text[self._done :])


def _last_break(text: str, start: int) -> int:
    """Return where the last paragraph begins that no fence or list encloses, or `start`."""
    fenced = False
    end = position = start
    blank = False
    for line in text[start:].splitlines(keepends=True):
        opens = line.lstrip().startswith(("```", "~~~"))
        if blank and not fenced and not line[0].isspace():
            end = position
        fenced ^= opens
        blank = not line.strip()
        position += len(line)
    return end


def _rendered(source: str) -> str:
    parser = _parser()
    tokens = parser.parse(source)
    if len(tokens) > len(source) + SPARE_TOKENS:
        return f"<pre>{escape(source)}</pre>"
    for token in tokens:
        _adorn(token)
        if token.children:
            token.children = list(_without_remote_images(token.children))
    return parser.renderer.render(tokens, parser.options, {})


def _adorn(token: "Token") -> None:
    """Style what Jupyter's own style sheets get wrong in an output: code without a ground, tables ranged right."""
    match token.type:
        case "fence" | "code_block":
            token.attrSet("style", CODE)
        case "td_open" | "th_open" if "style" not in token.attrs:
            token.attrSet("style", "text-align:left")
        case _:
            pass


def _without_remote_images(tokens: Sequence["Token"]) -> Iterable["Token"]:
    from markdown_it.token import Token

    for token in tokens:
        if token.type == "image" and not _IMAGE.fullmatch(str(token.attrGet("src"))):
            yield Token("text", "", 0, content=f"[image: {token.content}]")
        else:
            yield token


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "maths", _maths)
    parser.inline.add_terminator_char("$")
    return parser


def _maths(state: "StateInline", silent: bool) -> bool:
    r"""Take maths as plain text, so that `_` and `*` in it stay; set a dollar that starts none apart.

    JupyterLab's MathJax reads no maths across elements, so "$5 and $6" stays two amounts.
    """
    if state.src[state.pos] not in "$\\":
        return False
    maths = _MATHS.match(state.src, state.pos, state.posMax)
    found = maths or _DOLLAR.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        _push(state, maths[0] if maths else "")
    state.pos = found.end()
    return True


def _push(state: "StateInline", maths: str) -> None:
    if maths:
        state.push("text", "", 0).content = maths
        return
    state.push("span_open", "span", 1)
    state.push("text", "", 0).content = "$"
    state.push("span_close", "span", -1)


@cache
def _sanitiser() -> "Cleaner":
    from nh3 import Cleaner

    return Cleaner(
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=_allowed,
        url_schemes={"http", "https", "mailto", "data"},
        url_relative="deny",
        filter_style_properties=_PROPERTIES,
        link_rel="noopener noreferrer",
    )


def _allowed(tag: str, attribute: str, value: str) -> str | None:
    match tag, attribute:
        case "a", "href":
            return value if _LINK.match(value) else None
        case "img", "src":
            return value if _IMAGE.fullmatch(value) else None
        case _:
            return value
