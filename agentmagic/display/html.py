"""Render the blocks of a conversation as one static HTML fragment, as the output of a Jupyter cell stores it.

The fragment has no script, no style sheet and no remote image. Colours are JupyterLab's CSS variables, with fallbacks
that are readable on light and on dark pages. On a page that removes styles, such as GitHub's, the plain elements are
still readable.
"""

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, starmap
from typing import Any, LiteralString, cast

from markupsafe import Markup, escape

from agentmagic.display import call_words, map_words, terminal, words
from agentmagic.display.blocks import (
    Block,
    ChecklistBlock,
    FooterBlock,
    GrowingBlock,
    NoticeBlock,
    PrintoutBlock,
    ProgressBlock,
    PromptBlock,
    ProposalBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    State,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.elements import BORDER, CARD, MONO, MUTED, PRE, SUMMARY, element, fold
from agentmagic.display.markdown import Growing, code_html, to_html
from agentmagic.display.rich_values import (
    Form,
    Image,
    JsonTree,
    Pages,
    PlainText,
    RichHtml,
    Table,
    answer_form,
    split_forms,
    value_form,
)
from agentmagic.display.source_list import SourceList, pages_html
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.events import MapProgress, PromptValue
from agentmagic.messages import Media, ToolResult
from agentmagic.plan import TaskProgress
from agentmagic.text import sanitize

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
"""States that also colour the left edge of a card."""

BRIEF = "Each call of the first {} turns is one line here. An export of the conversation has them whole."

MOST_CALLS = 4
"""Consecutive calls that are shown one by one; more calls are grouped. js/src/log.js has the same number."""

MOST_BRANCHES = 1_000
"""JSON with more members than this is shown as text, not as a tree."""
MOST_OPEN = 8
"""A branch with more members than this is closed at first."""

ROW = "display:inline-flex;gap:8px;align-items:baseline;width:calc(100% - 20px);vertical-align:top"
NAME = "color:var(--jp-content-font-color1,inherit)"
BADGE = f"border:1px solid {BORDER};border-radius:9px;padding:0 7px"
LONG_BADGE = f"{BADGE};overflow-wrap:anywhere"
"""The style of a badge that has the address of a server behind its name."""
_CUT = "min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
ARGUMENTS = f"flex:1;{_CUT}"
STATEMENT = f"flex:0 1 auto;{_CUT}"
"""The style of a program's last statement, which its value stands beside."""
VALUE = f"flex:1 0 auto;max-width:60%;{_CUT};{NAME}"
STATE = f"flex:0 1 auto;max-width:60%;{_CUT}"
BODY = f"border-top:1px solid {BORDER};padding:4px 12px 10px 34px;overflow-x:auto"
INSIDE = f"border-left:2px solid {BORDER};padding-left:10px;margin:8px 0 2px"
PICTURES = "padding:0 12px 10px"
BRANCH = "margin-left:16px"
HEADING = "margin:6px 0 2px"


CARET = element("span", "▌", style=MUTED)

_LAST_TAGS = re.compile(r"(?:</(?:p|div|li|ul|ol|h[1-6]|blockquote|em|strong|code|pre)>\s*)+$")


def render(
    transcript: Transcript | Snapshot, *, times: bool = True, live: bool = False, prompt: bool = False
) -> Markup:
    """Return the transcript as one HTML fragment, with every text of models, tools and servers escaped or sanitised.

    If `times` is false, the fragment does not depend on the clock. `live` adds a caret at the end of growing text, and
    the footer of the running turn. The user's prompt is included only with `prompt`: a cell already shows its prompt.
    """
    return HtmlRenderer(times=times, live=live, prompt=prompt).update(transcript)


class HtmlRenderer:
    """Renders a transcript repeatedly; each update renders only the blocks that changed since the last update.

    In turns before the last `whole_turns` ones, each tool call is a single line; None shows all calls in full.
    """

    def __init__(
        self, *, times: bool = True, live: bool = False, prompt: bool = False, whole_turns: int | None = None
    ) -> None:
        self._whole_turns = whole_turns
        self._times = times
        self._live = live
        self._prompt = prompt
        self._cache: list[_BlockHtml] = []

    def update(self, transcript: Transcript | Snapshot) -> Markup:
        """Return the HTML fragment for the current state of the transcript."""
        return Markup('<div class="agentmagic mathjax_ignore">{}</div>').format(self.inside(transcript))

    def inside(self, transcript: Transcript | Snapshot) -> Markup:
        """Return the content of the HTML fragment, without the element around it."""
        blocks = transcript.blocks
        del self._cache[len(blocks) :]
        starts = [place for place, block in enumerate(blocks) if isinstance(block, PromptBlock)]
        brief = starts[: -self._whole_turns] if self._whole_turns else []
        end = starts[len(brief)] if brief else 0
        html = list(
            _group_calls(blocks, [self._block_html(place, one, place < end) for place, one in enumerate(blocks)])
        )
        if brief:
            html.insert(0, _paragraph(element("small", BRIEF.format(len(brief))), style=MUTED))
        if self._live and transcript.running:
            if not any(block.open for block in transcript.blocks):
                html.append(_paragraph(f"{transcript.running.phase.capitalize()}…", style=MUTED))
            html.append(self._renderer(transcript.running).update(transcript.running))
        return Markup().join(html)

    def _block_html(self, place: int, block: Block, brief: bool) -> Markup:
        if place == len(self._cache):
            self._cache.append(self._renderer(block, brief=brief))
        # Compare keys, not objects: a snapshot has copies of blocks, and a growing text must keep its renderer.
        elif (self._cache[place].key, self._cache[place].brief) != (block.key, brief):
            self._cache[place] = self._renderer(block, brief=brief)
        return self._cache[place].update(block)

    def _renderer(self, block: Block, *, brief: bool = False) -> "_BlockHtml":
        return _BlockHtml(block.key, self._times, self._live, self._prompt, brief)


@dataclass(slots=True)
class _BlockHtml:
    """Renders one block, and caches the HTML until the block's version changes."""

    key: int
    times: bool
    live: bool
    shows_prompt: bool
    brief: bool
    version: int = -1
    html: Markup = field(default_factory=Markup)
    growing: Growing = field(default_factory=Growing)
    turn: HtmlRenderer | None = None
    """The renderer for the turn of an agent inside a call."""

    def update(self, block: Block) -> Markup:
        """Return the block's HTML, rendered again if the block changed."""
        if self.version != block.version:
            self.html = block.render(self)
            self.version = block.version
        return self.html

    def prompt(self, block: PromptBlock) -> Markup:
        if not self.shows_prompt or block.client:
            return Markup()
        parts = words.stretches(words.typed_text(block))
        text_parts = (element("pre", text, style=PRE) if columns else to_html(text) for text, columns in parts)
        attachments = words.attachments(block)
        more = (fold(name, element("pre", text, style=PRE), look=SUMMARY) for name, text in attachments)
        return element("blockquote", *text_parts, *more)

    def values(self, block: ValuesBlock) -> Markup:
        line = element("small", words.values_line(block))
        parts = [_heading(sanitize(value.written)) + _value(value, content) for value, content in words.values(block)]
        inside = element("div", *parts, style=f"border-left:2px solid {BORDER};padding-left:10px;overflow-x:auto")
        return fold(line, inside, look=f"cursor:pointer;{MUTED}", style="margin:4px 0")

    def checklist(self, block: ChecklistBlock) -> Markup:
        heading = element("p", element("b", call_words.plan_heading(block)), style=HEADING)
        return element("div", heading, *map(_task, block.rows), style=f"{CARD};padding:4px 12px")

    def question(self, block: QuestionBlock) -> Markup:
        state: State = "waiting" if block.open else "done"
        edge = f"border-left:3px solid {COLOURS[state]};padding:2px 10px;white-space:pre-wrap"
        answer = words.answer(block)
        reply = () if answer is None else (Markup("<br><b>Answer:</b> "), answer)
        label = Markup("<b>{}</b> ").format(words.question_label(block))
        files = fold(words.FILES, element("pre", sanitize(block.files), style=PRE), look=SUMMARY, is_open=block.open)
        return _paragraph(label + sanitize(block.text), *reply, style=edge) + (files if block.files else "")

    def proposal(self, block: ProposalBlock) -> Markup:
        state = words.proposal_state(block)
        head = [element("b", words.proposal_title(block), style=NAME), *([element("small", state)] if state else [])]
        parts = [_paragraph(line, style="") for line in (words.proposal_why(block), words.proposal_hint(block)) if line]
        code = element("pre", code_html(*words.proposal_code(block)), style=PRE)
        inside = element("div", *parts, code, style=BODY)
        return fold(Markup(" ").join(head), inside, look=SUMMARY, style=CARD, is_open=not block.folded)

    def notice(self, block: NoticeBlock) -> Markup:
        text = sanitize(block.text)
        if block.level == "info":
            return _paragraph(element("small", text), style=f"{MUTED};white-space:pre-wrap" if "\n" in text else MUTED)
        state: State = "failed" if block.level == "error" else "waiting"
        edge = f"border-left:3px solid {COLOURS[state]};padding:2px 10px;white-space:pre-wrap"
        return _paragraph(
            element("b", words.LEVELS[block.level], style=f"color:{COLOURS[state]}"), " ", text, style=edge
        )

    def printout(self, block: PrintoutBlock) -> Markup:
        line = element("samp", sanitize(block.line), style=MUTED) if block.line else ""
        return element("div", line, block.printout.html(), style="margin:8px 0")

    def retry(self, block: RetryBlock) -> Markup:
        return _paragraph(words.retry(block, times=self.times), style=MUTED)

    def progress(self, block: ProgressBlock) -> Markup:
        progress = block.progress
        state = map_words.state(progress)
        colour = COLOURS["waiting" if state == "partly" else state]
        glyph = element("span", map_words.GLYPHS[state], style=f"color:{colour};font-weight:700")
        figures = Markup(" · ").join(map_words.figures(progress, times=self.times))
        head = Markup(" ").join(
            (glyph, element("b", map_words.heading(progress)), element("small", figures, style=MUTED))
        )
        errors = [element("small", line, style=f"color:{COLOURS['failed']}") for line in map_words.errors(progress)]
        notice_lines = [*map_words.notices(progress), *map_words.advice(progress)]
        notice_lines += [map_words.UNDER_WAY] if block.open else []
        notices = [element("small", line, style=MUTED) for line in notice_lines]
        lines = [element("div", line, style="overflow-wrap:anywhere") for line in (*errors, *notices)]
        return element("div", element("div", head), _shares(progress), *lines, style=f"{CARD};padding:6px 12px")

    def footer(self, block: FooterBlock) -> Markup:
        figures = Markup(" · ").join(element("span", figure) for figure in words.footer(block, times=self.times))
        content = Markup('<small title="{}">{}</small>').format(words.footer_details(block, times=self.times), figures)
        return _paragraph(content, style=MUTED) if figures else Markup()

    # -- what the model wrote ------------------------------------------------------------------

    def text(self, block: TextBlock) -> Markup:
        sources = SourceList(block)
        if block.is_value and (form := answer_form(block.text, block.wrapped_in)):
            return element("div", _form(form), style="margin:8px 0;overflow-x:auto") + sources.below()
        html = sources.text() if block.sources else self._markdown(block)
        return Markup('<div class="mathjax_process">{}</div>').format(html) + sources.below() if html else html

    def reasoning(self, block: ReasoningBlock) -> Markup:
        thinking = self.live and block.open
        html = self._markdown(block)
        if not block.text.strip():
            return _paragraph("Thinking…", style=MUTED) if thinking else Markup()
        body = element("div", html, style=f"border-left:2px solid {BORDER};padding-left:10px;{MUTED}")
        summary = "Thinking…" if thinking else "Thought"
        return fold(summary, body, look=f"cursor:pointer;{MUTED}", style="margin:8px 0")

    def _markdown(self, block: GrowingBlock) -> Markup:
        if not block.open:
            return to_html(block.text) if block.text.strip() else Markup()
        html = self.growing.to_html(block.text)
        return _with_caret(html) if self.live else html

    # -- cards ---------------------------------------------------------------------------------

    def card(self, card: ToolCard) -> Markup:
        if self.brief:
            line = terminal.TextRenderer(times=self.times, brief=True).card(card).partition("\n")[0]
            return element("div", element("small", element("samp", line)))
        edge = f";border-left:3px solid {COLOURS[card.state]}" if card.state in LOUD else ""
        inner = ";margin-left:24px" if card.inner else ""
        below, inside = split_forms(card.result, card.rich, pages=card.hosted) if card.result else ([], [])
        pictures = list(map(_form, below))
        body = _body(card, inside, len(pictures), self._turn_inside(card))
        row = element("span", Markup(" ").join(self._heading(card)), style=ROW)
        details = fold(row, body, look=SUMMARY, is_open=card.waits)
        # Images and tables are shown below the card: a closed card would hide them, and its body would clip them.
        shown_below = [element("div", *pictures, style=PICTURES)] if pictures else []
        return element("div", details, *shown_below, _bar(card), style=CARD + edge + inner)

    def _turn_inside(self, card: ToolCard) -> Markup:
        """Return the HTML of an agent's turn, for a tool call that asks an agent; nothing for other calls."""
        if card.inside is None:
            return Markup()
        self.turn = self.turn or HtmlRenderer(times=self.times, live=self.live)
        return element("div", self.turn.inside(card.inside), style=INSIDE)

    def _heading(self, card: ToolCard) -> Iterator[Markup]:
        colour = f"color:{COLOURS[card.state]}"
        yield element("span", call_words.GLYPHS[card.state], style=f"{colour};font-weight:700")
        if card.client:
            yield element("small", sanitize(card.client))
        name = call_words.card_name(card)
        yield element("b", name if call_words.hosted_title(card) else element("samp", name), style=NAME)
        if server := call_words.server(card):
            yield element("small", server, style=LONG_BADGE if call_words.has_address(card) else BADGE)
        value = call_words.program_value(card)
        yield element("samp", call_words.short_arguments(card), style=STATEMENT if value else ARGUMENTS)
        if value:
            yield element("samp", value, style=VALUE)
        if state := call_words.card_state(card):
            yield element("small", state, style=f"{STATE};{MUTED if card.state == 'done' else colour}")
        if card.progress:
            yield element("small", call_words.progress(card.progress))
        if self.times and card.seconds:
            yield element("small", words.duration(card.seconds), style="white-space:nowrap")


def _group_calls(blocks: Sequence[Block], html: Sequence[Markup]) -> Iterator[Markup]:
    """Yield the HTML of each block or group of blocks, in order.

    More than MOST_CALLS consecutive tool calls, with the reasoning between them, form one group that can be opened.
    """
    place = 0
    while place < len(blocks):
        end, cards = place, list[ToolCard]()
        for number in range(place, len(blocks)):
            block = blocks[number]
            if isinstance(block, ToolCard) and block.stands_alone:
                end = number if not cards else end
                break
            if isinstance(block, ToolCard):
                if cards and block.inner != cards[0].inner:
                    break
                cards.append(block)
                end = number
            elif not cards or not (isinstance(block, ReasoningBlock) or not html[number]):
                break
        if len(cards) > MOST_CALLS:
            yield _group(cards, html[place : end + 1])
        else:
            yield from html[place : end + 1]
        place = end + 1


def _group(cards: Sequence[ToolCard], html: Sequence[Markup]) -> Markup:
    states: Counter[State] = Counter(card.state for card in cards)
    counts = (
        element(
            "span", call_words.GLYPHS[one], f" {count} ", call_words.STATES[one] or one, style=f"color:{COLOURS[one]}"
        )
        for one, count in states.items()
    )
    title = element("b", f"{len(cards)} calls", style=f"{NAME};white-space:nowrap")
    names = element("small", call_words.group_names(cards), style=ARGUMENTS)
    row = element("span", Markup(" ").join((title, names, *counts)), style=ROW)
    return fold(row, *html, look=SUMMARY, style=CARD, is_open="waiting" in states)


def _paragraph(*content: str, style: str) -> Markup:
    return element("p", *content, style=f"margin:8px 0;{style}")


def _with_caret(html: Markup) -> Markup:
    """Insert a typing caret behind the last letter of HTML, inside the elements that end there."""
    end = _LAST_TAGS.search(html)
    place = end.start() if end else len(html)
    return html[:place] + CARET + html[place:]


def _bar(card: ToolCard) -> Markup:
    """Return a progress bar for a tool call, or nothing if the tool does not report which share is done."""
    if not card.progress or (share := call_words.share(card.progress)) is None:
        return Markup()
    return element("div", style=f"height:2px;width:{share:.0%};background-color:{COLOURS['running']}")


def _shares(progress: MapProgress) -> Markup:
    """Return a bar of a map's answered and failed rows; nothing if all are answered or their total is unknown."""
    if (shares := map_words.shares(progress)) is None or shares == (1.0, 0.0):
        return Markup()
    colours = (COLOURS["running" if not progress.ended else "done"], COLOURS["failed"])
    parts = (
        element("div", style=f"height:4px;width:{share:.1%};background-color:{colour}")
        for share, colour in zip(shares, colours, strict=True)
    )
    return element("div", *parts, style=f"display:flex;margin:6px 0 2px;background-color:{BORDER}")


def _body(card: ToolCard, forms: Sequence[Form], pictures: int, turn: Markup) -> Markup:
    edits = _section("Edited by you", call_words.edits(card))
    sections = [*_arguments(card), *edits, *_section("What it does", call_words.effects(card))]
    sections += [turn] if turn else []
    if card.result and card.shows_result:
        sections += [*_result(card.result, forms, pictures), *_traceback(card)]
    elif not card.inside:
        sections += _section("Reason", sanitize(card.reason))
    return element("div", *sections, style=BODY) if sections else Markup()


def _arguments(card: ToolCard) -> Iterator[Markup]:
    """Yield the arguments of a tool call as HTML; arguments that are code keep their lines and are highlighted."""
    languages = call_words.languages(card)
    if card.call is None or not languages:
        yield from _section("Arguments", call_words.all_arguments(card))
        return
    yield _heading("Arguments")
    for is_code, items in groupby(card.call.arguments.items(), lambda item: item[0] in languages):
        if not is_code:
            yield _form(PlainText(call_words.format_arguments(dict(items))))
            continue
        for name, code in items:
            yield element("p", element("samp", name, style=MUTED), style=HEADING)
            yield element("pre", code_html(call_words.shown_code(code), languages[name]), style=PRE)


def _task(row: TaskProgress) -> Markup:
    """Return a task of a plan as a line that can be opened to show its parameters, attempts and summary."""
    state = call_words.TASK_STATES[row.state]
    colour = f"color:{COLOURS[state]}"
    line = [
        element("span", call_words.GLYPHS[state], style=f"{colour};font-weight:700"),
        element("span", call_words.task_title(row), style=NAME),
        element("small", call_words.task_state(row), style=colour),
    ]
    inside = chain.from_iterable(starmap(_section, call_words.task_parts(row)))
    tool = element("p", element("samp", sanitize(row.task.tool)), style=HEADING)
    return fold(Markup(" ").join(line), element("div", tool, *inside, style=BODY), look=SUMMARY)


def _section(heading: str, text: str) -> Iterator[Markup]:
    if text:
        yield _heading(heading)
        yield _form(PlainText(text))


def _result(result: ToolResult, forms: Sequence[Form], pictures: int) -> Iterator[Markup]:
    if forms or not pictures:
        yield _heading("Error" if result.is_error else "Result")
        yield from map(_form, forms)
    if not (forms or pictures):
        yield _paragraph(element("em", "nothing"), style=MUTED)


def _traceback(card: ToolCard) -> Iterator[Markup]:
    if card.traceback:
        trace = element("pre", sanitize(card.traceback), style=PRE)
        yield fold(element("small", element("b", "Traceback")), trace, style=HEADING)


def _heading(text: str) -> Markup:
    return element("p", element("small", element("b", text)), style=HEADING)


def _form(form: Form) -> Markup:
    match form:
        case Table():
            return _table(form) + _note(form.note)
        case Image():
            picture = Markup('<img src="data:{};base64,{}" alt="{}"{} style="max-width:100%">')
            width = Markup(' width="{}"').format(form.width) if form.width else ""
            return picture.format(form.media_type, b64encode(form.data).decode("ascii"), form.name or "image", width)
        case RichHtml():
            return element("div", form.html, style="overflow:auto;max-height:480px")
        case JsonTree():
            return tree(form)
        case Pages():
            return pages_html(form)
        case PlainText():
            return element("pre", form.text, style=PRE) + _note(form.note)


def _value(value: PromptValue, content: str | Media) -> Markup:
    """Return the HTML of what the model gets for a value in a prompt; the content for a table is Markdown."""
    if value.kind == "table" and isinstance(content, str):
        return to_html(content)
    return _form(value_form(content))


def tree(form: JsonTree) -> Markup:
    """Return JSON as a tree whose branches open and close, or as text if it has too many members."""
    budget = [MOST_BRANCHES]
    branches = list(_branches(form.value, budget))
    return element("div", *branches, style=MONO) if budget[0] >= 0 else element("pre", form.text, style=PRE)


def _branches(value: Any, budget: list[int]) -> Iterator[Markup]:
    """Yield the members of a JSON object or array as HTML; `budget[0]` is how many more members can be shown."""
    pairs = cast("dict[str, Any]", value).items() if isinstance(value, dict) else enumerate(cast("list[Any]", value))
    for key, inner in pairs:
        budget[0] -= 1
        if budget[0] < 0:
            return
        name = element("b", str(key))
        if isinstance(inner, dict | list) and inner:
            size = len(cast("dict[str, Any] | list[Any]", inner))
            count = f"{{{size}}}" if isinstance(inner, dict) else f"[{size}]"
            summary = Markup(" ").join((name, element("small", count)))
            yield fold(summary, *_branches(inner, budget), style=BRANCH, is_open=size <= MOST_OPEN)
        else:
            yield element("div", name, ": ", words.compact(inner), style=f"{BRANCH};overflow-wrap:anywhere")


def _note(note: str) -> Markup:
    return element("p", element("small", note), style=f"margin:4px 0;{MUTED}") if note else Markup()


def _table(form: Table) -> Markup:
    head = _row("th", form.columns, form.numeric)
    rows = (_row("td", row, form.numeric) for row in form.rows)
    return element("table", element("thead", head), element("tbody", *rows))


def _row(tag: LiteralString, cells: Iterable[str], numeric: Iterable[bool]) -> Markup:
    """Return a table row. It is built by joining strings, because `element` is too slow for a thousand cells."""
    sides = ('align="right"' if number else 'style="text-align:left"' for number in numeric)
    html = (f"<{tag} {side}>{escape(cell)}</{tag}>" for cell, side in zip(cells, sides, strict=True))
    return Markup(f"<tr>{''.join(html)}</tr>")  # noqa: S704  (every cell is escaped)
