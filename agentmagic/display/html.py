"""Blocks to one static HTML fragment, as a Jupyter output keeps it.

It has no script, no style sheet and no image from elsewhere. Colours are JupyterLab's variables with fallbacks
that read on light and on dark; where a page strips every style, as GitHub does, the elements alone carry it.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape

from agentmagic.display import words
from agentmagic.display.blocks import (
    Block,
    FooterBlock,
    NoticeBlock,
    PromptBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    State,
    TextBlock,
    ToolCard,
)
from agentmagic.display.markdown import Growing, to_html
from agentmagic.display.rich_values import Form, Image, PlainText, Table, forms
from agentmagic.display.transcript import Transcript
from agentmagic.messages import ToolResult

BORDER = "#88888866"
"""No variable of JupyterLab's, which takes those out of the styles of a notebook that is not trusted yet."""

MUTED = "color:var(--jp-content-font-color2,#808080)"
COLOURS: dict[State, str] = {
    "pending": "var(--jp-content-font-color3,#808080)",
    "waiting": "var(--jp-warn-color1,#f57c00)",
    "running": "var(--jp-brand-color1,#1976d2)",
    "done": "var(--jp-success-color1,#388e3c)",
    "failed": "var(--jp-error-color1,#d32f2f)",
    "denied": "var(--jp-error-color1,#d32f2f)",
    "interrupted": "var(--jp-warn-color1,#f57c00)",
}
LOUD: frozenset[State] = frozenset({"waiting", "failed", "denied", "interrupted"})
"""States that a card shows on its left edge too."""

CARD = f"border:1px solid {BORDER};border-radius:6px;margin:8px 0"
SUMMARY = f"padding:6px 10px;cursor:pointer;{MUTED}"
ROW = "display:inline-flex;gap:8px;align-items:baseline;width:calc(100% - 20px);vertical-align:top"
NAME = "color:var(--jp-content-font-color1,inherit)"
BADGE = f"border:1px solid {BORDER};border-radius:9px;padding:0 7px"
ARGUMENTS = "flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
BODY = f"border-top:1px solid {BORDER};padding:4px 12px 10px 34px;overflow-x:auto"
HEADING = "margin:6px 0 2px"
MONO = "font-family:var(--jp-code-font-family,monospace)"
"""Said of every `pre`, since nbconvert's page sets those of an output in its running font."""

PRE = f"margin:0;white-space:pre-wrap;overflow-wrap:anywhere;background:none;{MONO}"
CARET = f'<span style="{MUTED}">▌</span>'

_LAST_TAGS = re.compile(r"(?:</(?:p|li|ul|ol|h[1-6]|blockquote|em|strong|code|pre)>\s*)+$")


def render(transcript: Transcript, *, times: bool = True, live: bool = False, prompt: bool = False) -> str:
    """Return the transcript as one HTML fragment, safe whatever models, tools and servers wrote.

    With `times` false nothing in it depends on the clock. `live` shows a caret at the end of open text and a
    running footer. The prompt is left out unless asked for, since a cell shows it above its output.
    """
    return HtmlRenderer(times=times, live=live, prompt=prompt).update(transcript)


@dataclass(slots=True)
class _Kept:
    """What was made of a block, for as long as its version stands."""

    block: Block
    version: int = -1
    html: str = ""
    growing: Growing = field(default_factory=Growing)


class HtmlRenderer:
    """Renders a transcript again and again, each time only what changed since the last."""

    def __init__(self, *, times: bool = True, live: bool = False, prompt: bool = False) -> None:
        self._times = times
        self._live = live
        self._prompt = prompt
        self._kept: list[_Kept] = []

    def update(self, transcript: Transcript) -> str:
        """Return the fragment for the transcript as it is now."""
        del self._kept[len(transcript.blocks) :]
        rendered = [self._cached(place, block) for place, block in enumerate(transcript.blocks)]
        if self._live and transcript.running:
            if not any(block.open for block in transcript.blocks):
                rendered.append(_paragraph("Waiting for the model…", MUTED))
            rendered.append(self._footer(transcript.running))
        return f'<div class="agentmagic mathjax_ignore">{"".join(rendered)}</div>'

    def _cached(self, place: int, block: Block) -> str:
        if place == len(self._kept):
            self._kept.append(_Kept(block))
        elif self._kept[place].block is not block:
            self._kept[place] = _Kept(block)
        kept = self._kept[place]
        if kept.version != block.version:
            kept.html = self._block(block, kept.growing)
            kept.version = block.version
        return kept.html

    def _block(self, block: Block, growing: Growing) -> str:  # noqa: PLR0911  (one arm for each block)
        match block:
            case TextBlock():
                return self._text(block, growing)
            case ToolCard():
                return self._card(block)
            case ReasoningBlock():
                return self._reasoning(block, growing)
            case NoticeBlock():
                return _notice(block)
            case RetryBlock():
                return _paragraph(_safe(words.retry(block, times=self._times)), MUTED)
            case QuestionBlock():
                return _question(block)
            case FooterBlock():
                return self._footer(block)
            case PromptBlock() if self._prompt:
                return f"<blockquote>{to_html(block.prompt.text)}</blockquote>"
            case _:
                return ""

    # -- what the model wrote ------------------------------------------------------------------

    def _text(self, block: TextBlock, growing: Growing) -> str:
        html = self._markdown(block, growing)
        mark = _interrupted(block)
        return f'<div class="mathjax_process">{html}</div>{mark}' if html else mark

    def _reasoning(self, block: ReasoningBlock, growing: Growing) -> str:
        thinking = self._live and block.open
        html = self._markdown(block, growing)
        if not block.text.strip():
            return _paragraph("Thinking…", MUTED) if thinking else _interrupted(block)
        summary = f'<summary style="cursor:pointer;{MUTED}">{"Thinking…" if thinking else "Thought"}</summary>'
        edge = f"border-left:2px solid {BORDER};padding-left:10px;{MUTED}"
        return f'<details style="margin:8px 0">{summary}<div style="{edge}">{html}</div></details>{_interrupted(block)}'

    def _markdown(self, block: TextBlock | ReasoningBlock, growing: Growing) -> str:
        if not block.open:
            return to_html(block.text) if block.text.strip() else ""
        html = growing.to_html(block.text)
        return _with_caret(html) if self._live else html

    # -- cards ---------------------------------------------------------------------------------

    def _card(self, card: ToolCard) -> str:
        edge = f";border-left:3px solid {COLOURS[card.state]}" if card.state in LOUD else ""
        opened = " open" if card.state == "waiting" else ""
        body = "".join(_body(card))
        details = f"<details{opened}>{self._summary(card)}{body}</details>"
        return f'<div style="{CARD}{edge}">{details}{_bar(card)}</div>'

    def _summary(self, card: ToolCard) -> str:
        row = " ".join(self._heading(card))
        return f'<summary style="{SUMMARY}"><span style="{ROW}">{row}</span></summary>'

    def _heading(self, card: ToolCard) -> Iterator[str]:
        yield f'<span style="color:{COLOURS[card.state]};font-weight:700">{words.GLYPHS[card.state]}</span>'
        yield f'<b style="{NAME}"><samp>{_safe(card.name)}</samp></b>'
        if card.server:
            yield f'<small style="{BADGE}">{_safe(card.server)}</small>'
        yield f'<samp style="{ARGUMENTS}">{escape(words.short_arguments(card))}</samp>'
        if state := words.STATES[card.state]:
            yield f'<small style="color:{COLOURS[card.state]}">{state}</small>'
        if card.progress:
            yield f"<small>{escape(words.progress(card.progress))}</small>"
        if self._times and card.seconds:
            yield f'<small style="white-space:nowrap">{words.duration(card.seconds)}</small>'

    def _footer(self, block: FooterBlock) -> str:
        figures = " · ".join(f"<span>{escape(figure)}</span>" for figure in words.footer(block, times=self._times))
        return _paragraph(f"<small>{figures}</small>", MUTED) if figures else ""


def _safe(text: str) -> str:
    return escape(words.shown(text))


def _paragraph(html: str, style: str) -> str:
    return f'<p style="margin:8px 0;{style}">{html}</p>'


def _with_caret(html: str) -> str:
    """Put the caret behind the last letter, inside whatever elements end there."""
    end = _LAST_TAGS.search(html)
    place = end.start() if end else len(html)
    return html[:place] + CARET + html[place:]


def _interrupted(block: TextBlock | ReasoningBlock) -> str:
    return _paragraph("<em>Interrupted</em>", f"color:{COLOURS['interrupted']}") if block.interrupted else ""


def _notice(block: NoticeBlock) -> str:
    text = _safe(block.text)
    if block.level == "info":
        return _paragraph(f"<small>{text}</small>", MUTED)
    label, state = ("Error:", "failed") if block.level == "error" else ("Warning:", "waiting")
    colour = COLOURS[state]
    html = f'<b style="color:{colour}">{label}</b> {text}'
    return _paragraph(html, f"border-left:3px solid {colour};padding:2px 10px;white-space:pre-wrap")


def _question(block: QuestionBlock) -> str:
    edge = f"border-left:3px solid {COLOURS['waiting' if block.open else 'done']};padding:2px 10px;white-space:pre-wrap"
    answer = f"<br><b>Answer:</b> {_safe(block.answer)}" if block.answer is not None else ""
    return _paragraph(f"<b>Question:</b> {_safe(block.text)}{answer}", edge)


def _bar(card: ToolCard) -> str:
    """Draw how far a call has come, where it says so."""
    if not card.progress or not card.progress.total:
        return ""
    share = min(max(card.progress.progress / card.progress.total, 0), 1)
    return f'<div style="height:2px;width:{share:.0%};background:{COLOURS["running"]}"></div>'


def _body(card: ToolCard) -> Iterator[str]:
    sections = [*_arguments(card), *(_result(card.result) if card.result else _reason(card))]
    if sections:
        yield f'<div style="{BODY}">'
        yield from sections
        yield "</div>"


def _arguments(card: ToolCard) -> Iterator[str]:
    if text := words.all_arguments(card):
        yield _heading("Arguments")
        yield _words(PlainText(text))


def _reason(card: ToolCard) -> Iterator[str]:
    if card.reason:
        yield _heading("Reason")
        yield _words(PlainText(words.shown(card.reason)))


def _result(result: ToolResult) -> Iterator[str]:
    yield _heading("Error" if result.is_error else "Result")
    shown = [_form(form) for form in forms(result)]
    yield from shown or (_paragraph("<em>nothing</em>", MUTED),)


def _heading(text: str) -> str:
    return f'<p style="{HEADING}"><small><b>{text}</b></small></p>'


def _form(form: Form) -> str:
    match form:
        case Table():
            return _table(form)
        case Image():
            return _image(form)
        case PlainText():
            return _words(form)


def _words(form: PlainText) -> str:
    return f'<pre style="{PRE}">{escape(form.text)}</pre>{_note(form.note)}'


def _note(note: str) -> str:
    return f'<p style="margin:4px 0;{MUTED}"><small>{note}</small></p>' if note else ""


def _image(form: Image) -> str:
    data = b64encode(form.data).decode("ascii")
    name = escape(form.name or "image")
    return f'<img src="data:{form.media_type};base64,{data}" alt="{name}" style="max-width:100%">'


def _table(form: Table) -> str:
    numeric = [any(row[column][1] for row in form.rows) for column in range(len(form.columns))]
    head = _row("th", form.columns, numeric)
    rows = "".join(_row("td", (text for text, _ in row), numeric) for row in form.rows)
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>{_note(form.note)}"


def _row(tag: str, cells: Iterable[str], numeric: Iterable[bool]) -> str:
    sides = ("right" if number else "left" for number in numeric)
    html = (f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True))
    return f"<tr>{''.join(html)}</tr>"
