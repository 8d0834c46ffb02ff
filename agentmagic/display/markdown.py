"""Convert Markdown that a model wrote to safe HTML.

There are two defences: markdown-it escapes the HTML in Markdown, and nh3 removes every tag and attribute that is not on
a short list. Remote images are left out, because fetching one would tell another server what the user reads.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import unescape
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup, escape

from agentmagic.secrets import safe_length, without_growing_secret
from agentmagic.text import cut_with_note, sanitize

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from nh3 import Cleaner

LONGEST = 200_000
"""Characters of Markdown that are rendered; the rest is cut off, with a note."""

LONGEST_RICH = 600_000
"""Characters of a value's HTML that are sanitised; the rest is cut off."""

SPARE_TOKENS = 1_000
"""Tokens that Markdown may have beyond its number of characters.

More tokens mean a table that was blown up on purpose.
"""

CODE = (
    "display:block;margin:0 0 8px;padding:8px 10px;border-radius:4px;white-space:pre;overflow-x:auto;"
    "background-color:var(--jp-cell-editor-background,#88888819)"
)
"""Not `background`: JupyterLab checks that property with a regular expression that takes 50 ms to compile."""

PROSE = "max-width:42em"
"""About 80 characters a line, as in js/src/view.css. Tables and code can be wider."""

COLOURS = {
    "Token.Comment": "#747980",
    "Token.Keyword": "#a855c7",
    "Token.Operator.Word": "#a855c7",
    "Token.Literal.String": "#2f8a4c",
    "Token.Literal.Number": "#a86a22",
    "Token.Name.Builtin": "#1f7db3",
    "Token.Name.Function": "#3877cc",
    "Token.Name.Class": "#3877cc",
    "Token.Name.Decorator": "#a86a22",
    "Token.Name.Tag": "#3877cc",
}
"""Colours of code, by pygments token name. Each can be read on both white and black.

They are not JupyterLab's CSS variables, because a notebook that is not trusted yet loses those variables.
"""

LONGEST_HIGHLIGHT = 20_000
"""Characters of the longest code that is highlighted."""

_WIDE = frozenset({"fence", "code_block", "table_open"})
_BLOCKS = {"blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul"}
_TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
_TAGS = _BLOCKS | _TABLES | {"a", "br", "code", "del", "em", "font", "img", "s", "span", "strong"}
_ATTRIBUTES = {"*": set[str](), "a": {"href"}, "font": {"color"}, "img": {"src", "alt"}, "ol": {"start"}} | {
    **{tag: {"style"} for tag in ("code", "div")},
    **{tag: {"align", "style"} for tag in ("td", "th")},
}
_PROPERTIES = frozenset(re.findall(r"([a-z-]+):", f"text-align:;{PROSE};{CODE}"))
_DETAILS = {"dd", "details", "dl", "dt", "summary"}
_RICH_TAGS = _TAGS | _DETAILS | {"b", "caption", "div", "i", "kbd", "mark", "small", "sub", "sup", "tfoot", "u"}
_RICH_ATTRIBUTES = _ATTRIBUTES | {tag: {"align", "style", "colspan", "rowspan"} for tag in ("td", "th")}
_RICH_PROPERTIES = frozenset({"text-align", "color", "background-color", "font-weight"})
_LINK = re.compile(r"(https?://|mailto:)", re.IGNORECASE)
_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*")
MATHS = re.compile(
    r"\$\$.{1,500}?\$\$|\$(?![\s$])[^$\n]{0,500}?[^\s$\\]\$(?!\d)|\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]", re.DOTALL
)
"""Formulas as Jupyter's front ends recognise them, of limited length. Amounts in dollars do not match."""
_ROW = re.compile(r" {0,3}\|")
_DASHES = re.compile(r" {0,3}\|?[-:| ]*")
_PIPE = re.compile(r"(?<!\\)\|")
_DOLLAR = re.compile(r"\\?\$")


def to_html(text: str, *, highlight: bool = True) -> Markup:
    """Return Markdown as sanitised HTML, with secrets blanked; code is highlighted unless `highlight` is false.

    Formulas stay as they are written, for the front end to typeset.
    """
    source, note = cut_with_note(sanitize(text), LONGEST)
    html = Markup(_sanitiser().clean(sanitize(_render(source, highlight=highlight))))  # noqa: S704  (it is sanitised)
    return html + Markup("<p><em>{}</em></p>").format(note) if note else html


def code_html(code: str, language: str) -> Markup:
    """Return code as HTML, highlighted if the language is known and the code is not too long."""
    return Markup(_highlight(code, language, "")) or escape(code)  # noqa: S704  (every word is escaped)


def rich_html(html: str) -> Markup:
    """Return sanitised HTML of a value, such as the table of a data frame.

    Secrets are blanked, and long HTML is cut.
    """
    clean_html = sanitize(_sanitiser(rich=True).clean(sanitize(html[:LONGEST_RICH])))
    return Markup(_sanitiser(rich=True).clean(clean_html))  # noqa: S704  (it is sanitised)


def plain_text(html: str) -> str:
    """Return the text of HTML without its tags."""
    import nh3

    return unescape(nh3.clean(html[:LONGEST], tags=set())).strip()


def parse(source: str) -> list["Token"]:
    """Return the tokens of Markdown as `to_html` parses it."""
    return _parser(highlight=False).parse(source)


class Growing:
    """Converts Markdown that is still being written. Everything above the last paragraph is rendered only once.

    A list or a link reference that continues in the last paragraph can look different until the text is complete.
    """

    def __init__(self) -> None:
        self._done = 0
        self._html = Markup()

    def to_html(self, text: str) -> Markup:
        """Return the text so far as sanitised HTML; `text` must begin with the text of the previous call.

        If the end of the text may be the beginning of a secret, that end is left out.
        """
        text = without_growing_secret(text, self._done)
        paragraphs_end = _last_break(text, self._done)
        # A secret can contain an empty line. If the text were cut there, neither half would be recognized as secret.
        if paragraphs_end > self._done and safe_length(text[:paragraphs_end], self._done) == paragraphs_end:
            self._html += to_html(text[self._done : paragraphs_end])
            self._done = paragraphs_end
        # The unfinished end is rendered again in the next call.
        return self._html + to_html(with_head(text[self._done :]), highlight=False)


def with_head(text: str) -> str:
    """Return an unfinished text. If its last line begins a table, the table's separator row is added.

    So a growing table is shown as a table from its first word on. `withHead` in js/src/markdown.js does the same.
    """
    *before, head = text.split("\n")
    dashes = ""
    if before and "|" in before[-1] and _DASHES.fullmatch(head):
        *before, head, dashes = *before, head
    is_head = _ROW.match(head) or ("|" in head and "-" in dashes)
    fences = sum(line.lstrip().startswith(("```", "~~~")) for line in before)
    if not is_head or fences % 2 or (before and "|" in before[-1]):
        return text
    cells = _PIPE.split(re.sub(r"^\||(?<!\\)\|$", "", head.strip()))
    return "\n".join((*before, "| |" if head.strip() == "|" else head, f"|{'---|' * len(cells)}"))


def _last_break(text: str, start: int) -> int:
    """Return where the last paragraph outside of code fences and lists begins, or `start` if none exists."""
    in_fence = False
    end = position = start
    blank = False
    for line in text[start:].splitlines(keepends=True):
        opens = line.lstrip().startswith(("```", "~~~"))
        if blank and not in_fence and not line[0].isspace():
            end = position
        in_fence ^= opens
        blank = not line.strip()
        position += len(line)
    return end


def _render(source: str, *, highlight: bool) -> str:
    parser = _parser(highlight=highlight)
    tokens = parser.parse(source)
    if len(tokens) > len(source) + SPARE_TOKENS:
        return f"<pre>{escape(source)}</pre>"
    for token in tokens:
        _adorn(token)
        if token.children:
            token.children = list(_without_remote_images(token.children))
    return parser.renderer.render(list(_limit_width(tokens)), parser.options, {})


def _limit_width(tokens: Sequence["Token"]) -> Iterable["Token"]:
    """Yield the Markdown tokens, with each run of prose wrapped in an element of limited width."""
    from markdown_it.token import Token

    inside = False
    for token in tokens:
        if token.level == 0 and token.nesting >= 0 and inside == (token.type in _WIDE):
            inside = not inside
            yield Token("html_block", "", 0, content=f'<div style="{PROSE}">' if inside else "</div>")
        yield token
    if inside:
        yield Token("html_block", "", 0, content="</div>")


def _adorn(token: "Token") -> None:
    """Add styles to a token, because in outputs Jupyter gives code no background and aligns table cells right."""
    match token.type:
        case "fence" | "code_block":
            token.attrSet("style", CODE)
        case "td_open" | "th_open":
            side = str(token.attrs.pop("style", "text-align:left"))
            token.attrSet(*(("align", "right") if side.endswith("right") else ("style", side)))
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
def _parser(*, highlight: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt

    options = {"html": False, "highlight": _highlight if highlight else None}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "maths", _maths)
    return parser


def _highlight(code: str, language: str, _attributes: str) -> str:
    """Return highlighted code as HTML; "" if the language is unknown, the code is too long or pygments is missing."""
    if len(code) > LONGEST_HIGHLIGHT or find_spec("pygments") is None:
        return ""
    from pygments import lexers
    from pygments.util import ClassNotFound

    try:
        lexer = cast("Any", lexers).get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return ""
    words = ((_colour(kind), word) for kind, word in lexer.get_tokens(code))
    stretches = ((colour, "".join(word for _, word in group)) for colour, group in groupby(words, key=itemgetter(0)))
    return "".join(_span(colour, text) for colour, text in stretches)


def _colour(kind: Any) -> str:
    """Return the colour of a pygments token type. A type without its own colour has the colour of its parent type."""
    while kind is not None:
        if colour := COLOURS.get(str(kind)):
            return colour
        kind = kind.parent
    return ""


def _span(colour: str, text: str) -> str:
    # A `font` element rather than a style: JupyterLab parses each style of an output several times, which is slow.
    return f'<font color="{colour}">{escape(text)}</font>' if colour and text.strip() else str(escape(text))


def _maths(state: "StateInline", silent: bool) -> bool:
    r"""Parse a formula as plain text, so that `_` and `*` in it stay. Wrap every other dollar sign in a `span`.

    JupyterLab's MathJax does not read formulas across elements, so "$5 and $6" does not become a formula.
    """
    if state.src[state.pos] not in "$\\":
        return False
    maths = MATHS.match(state.src, state.pos, state.posMax)
    match = maths or _DOLLAR.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        _push(state, maths[0] if maths else "")
    state.pos = match.end()
    return True


def _push(state: "StateInline", maths: str) -> None:
    if maths:
        state.push("text", "", 0).content = maths
        return
    state.push("span_open", "span", 1)
    state.push("text", "", 0).content = "$"
    state.push("span_close", "span", -1)


@cache
def _sanitiser(*, rich: bool = False) -> "Cleaner":
    from nh3 import Cleaner

    return Cleaner(
        tags=_RICH_TAGS if rich else _TAGS,
        attributes=_RICH_ATTRIBUTES if rich else _ATTRIBUTES,
        attribute_filter=_filter_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        filter_style_properties=_RICH_PROPERTIES if rich else _PROPERTIES,
        link_rel="noopener noreferrer",
    )


def _filter_attribute(tag: str, attribute: str, value: str) -> str | None:
    match tag, attribute:
        case "a", "href":
            return value if _LINK.match(value) else None
        case "img", "src":
            return value if _IMAGE.fullmatch(value) else None
        case _:
            return value
