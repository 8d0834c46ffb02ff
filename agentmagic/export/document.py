"""Exports a conversation as a Markdown document for GitHub, JupyterLab, and for reading as plain text.

GitHub and JupyterLab remove scripts when they show the document. This module keeps each text in its own block: no tag,
comment or fence inside a text can hide or end the blocks around it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from agentmagic.display import call_words, map_words, terminal, words
from agentmagic.display.blocks import (
    Block,
    ChecklistBlock,
    FooterBlock,
    NoticeBlock,
    PrintoutBlock,
    ProgressBlock,
    PromptBlock,
    ProposalBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.citations import Mark, insert_numbers, link, place_numbers
from agentmagic.display.rich_values import Image, Pages, Table, forms
from agentmagic.display.source_list import quotes_of, source_title
from agentmagic.display.transcript import Transcript
from agentmagic.escapes import decode
from agentmagic.events import Level
from agentmagic.history.history import Turn
from agentmagic.messages import Media, Message, Reasoning, Source, Text, ToolCall, ToolResult, as_text
from agentmagic.text import cut_with_note, sanitize, sanitize_json, single_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LABELS: dict[Level, str] = {"info": "Note", "warning": "Warning", "error": "Error"}

LONGEST = 200_000
"""Maximum number of characters of one text; the rest is cut, with a note."""

_PASSES = 10
_END = "end"
_TAG = re.compile(r"<[A-Za-z/!?]")
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~$&]")
_BACKTICKS = re.compile(r"`+")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,10})(?!`)(.{1,1000}?)(?<!`)\1(?!`)")
_TARGET = re.compile(r"(\]\([\s>]*<?|\]:[\s>]*<?)([^\s)>]{1,2000})")
"""The targets of links, images, and definitions of links."""
_RUN = re.compile(r"(?:javascript|vbscript|data|attachment):", re.IGNORECASE)
"""Addresses that run code, and `attachment:` addresses of files that the exported notebook does not have."""


def to_markdown(turns: Iterable[Turn]) -> str:
    """Return turns as Markdown: prompts are block quotes, answers stay as written, reasoning and calls are folded.

    Results and arguments are cut at 20,000 characters, and media are replaced by a short description. HTML in a text
    is shown as text.
    """
    # Use one transcript for all turns: a turn can report whether the user kept a cell that an earlier turn proposed.
    blocks = Transcript(event for turn in turns for event in turn.events).blocks
    return "\n\n".join(piece for block in blocks for piece in _pieces(block)) + "\n"


def prompt_of(message: Message) -> str:
    """Return a prompt as Markdown. Each medium becomes a short description, each resource its address and text."""
    parts = (part for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult))
    # Replace tabs: a tab is narrower in a block quote, so a line indented by a tab would not be shown as code.
    return prose("\n\n".join(as_text(part) for part in parts).expandtabs(4))


def _pieces(block: Block) -> Iterator[str]:
    if isinstance(block, PromptBlock) and block.turn is not None:
        yield f"## Turn {block.turn + 1}"
    yield from filter(None, block.render(_MarkdownRenderer()))


class _MarkdownRenderer:
    """Yields the Markdown paragraphs for one part of a conversation. The caller removes empty paragraphs."""

    def prompt(self, block: PromptBlock) -> Iterator[str]:
        yield quote(prompt_of(Message("user", tuple(words.own_parts(block)))))

    def values(self, block: ValuesBlock) -> Iterator[str]:
        prompt_text = sanitize(block.prompt.text)
        contents = (
            (value, as_text(content) if isinstance(content, Media) else content)
            for value, content in words.values(block)
        )
        # Leave out a table for a value such as `{sales}` if the prompt, which is quoted above, contains the table.
        further = ((value, text) for value, text in contents if not ("\n" in value.text and value.text in prompt_text))
        parts = [f"{plain(value.written)}:\n\n{fence(text)}" for value, text in further]
        line = words.values_line(block)
        yield _fold(escape(line), *parts) if parts else f"*{plain(line)}*"

    def text(self, block: TextBlock) -> Iterator[str]:
        yield from answer(block)

    def reasoning(self, block: ReasoningBlock) -> Iterator[str]:
        text = prose(block.text)
        if text.strip():
            yield _fold(Markup("Thought"), text)

    def card(self, card: ToolCard) -> Iterator[str]:
        blocks = card.inside.blocks if card.inside else ()
        turn = (quote(piece) for block in blocks for piece in block.render(self) if piece)
        yield _fold(_heading(card), *_card(card, turn))

    def checklist(self, block: ChecklistBlock) -> Iterator[str]:
        yield f"**{plain(call_words.plan_heading(block))}**"
        for row in block.rows:
            fragments = filter(
                None, (call_words.task_title(row), call_words.task_state(row), single_line(sanitize(row.summary), 200))
            )
            yield f"- {call_words.GLYPHS[call_words.TASK_STATES[row.state]]} {plain(': '.join(fragments))}"

    def question(self, block: QuestionBlock) -> Iterator[str]:
        yield quote(f"**Question:** {plain(block.text)}")
        if (answer := words.answer(block)) is not None:
            yield quote(f"**Reply:** {plain(answer)}")

    def proposal(self, block: ProposalBlock) -> Iterator[str]:
        state = words.proposal_state(block)
        title = f"**{plain(words.proposal_title(block))}**{f' ({state})' if state else ''}"
        yield f"{title}: {plain(words.proposal_why(block))}"
        yield from filter(None, _code_block(*words.proposal_code(block)))

    def notice(self, block: NoticeBlock) -> Iterator[str]:
        lines = "\\\n".join(map(plain, sanitize(block.text).splitlines()))
        yield quote(f"**{_LABELS[block.level]}:** {lines}")

    def printout(self, block: PrintoutBlock) -> Iterator[str]:
        yield fence(terminal.TextRenderer().printout(block))

    def retry(self, block: RetryBlock) -> Iterator[str]:
        yield quote(f"**Retry:** {plain(words.retry(block, times=True))}")

    def progress(self, block: ProgressBlock) -> Iterator[str]:
        progress = block.progress
        figures = map_words.figures(progress, times=True)
        lines = (
            " · ".join((map_words.heading(progress), *figures)),
            *map_words.errors(progress),
            *map_words.notices(progress),
        )
        yield quote("\\\n".join(map(plain, lines)))

    def footer(self, block: FooterBlock) -> Iterator[str]:
        # The chat panel shows some figures, such as steps and tokens, only in a tooltip. In Markdown, write them too.
        figures = (*words.footer(block, times=True), words.footer_details(block, times=True))
        yield f"*{plain(' · '.join(filter(None, figures)))}*"


def answer(block: TextBlock) -> Iterator[str]:
    """Yield an answer, with citation numbers as links to the cited pages, and the list of its sources."""
    leads_to = {source.number: link(source.url) for source in block.sources}

    def cite(number: int) -> str:
        return f"[[{number}]]({leads_to[number]})" if leads_to[number] else rf"\[{number}\]"

    yield prose(block.text, place_numbers(block.text, block.citations, block.sources), cite)
    if block.sources:
        yield "**Sources**"
        yield "\n".join(map(_source, block.sources))


def _source(source: Source) -> str:
    quotes = "".join(f"\n\n  > {plain(passage)}" for passage in quotes_of(source))
    return _page(rf"\[{source.number}\] ", source_title(source), source.url) + quotes


def _page(number: str, title: str, url: str) -> str:
    """Return a list item for a cited or found web page: a link, or title and address if the address cannot be one."""
    leads_to = link(url)
    return f"- {number}[{plain(title)}]({leads_to})" if leads_to else f"- {number}{plain(title)} {plain(url)}"


def _fold(heading: Markup, *content: str) -> str:
    """Return Markdown folded under an HTML heading. The heading must not contain an empty line."""
    return "\n\n".join(filter(None, (f"<details>\n<summary>{heading}</summary>", *content, "</details>")))


def _heading(card: ToolCard) -> Markup:
    name = single_line(sanitize(card.name), words.SHORT_ARGUMENTS)
    server = f"({call_words.server(card)})" if card.server else ""
    tail = " · ".join(filter(None, (call_words.card_state(card), words.duration(card.seconds) if card.seconds else "")))
    name = f"↳ {name}" if card.inner else call_words.hosted_title(card) or name
    parts = (server, call_words.short_arguments(card), call_words.program_value(card), f"[{tail}]" if tail else "")
    details = " ".join(filter(None, parts))
    heading = Markup("{} <code>{}</code> {}").format(call_words.GLYPHS[card.state], name, " ".join(details.split()))
    return heading.rstrip()


def _card(card: ToolCard, turn: Iterable[str] = ()) -> Iterator[str]:
    if card.call and card.call.arguments:
        yield "Arguments:"
        yield from _code_block(_json(card.call.arguments), "json")
    if edits := call_words.edits(card):
        yield "Edited by the user:"
        yield from _code_block(edits, "diff")
    if card.effects:
        yield "What it does:"
        yield from _code_block(call_words.effects(card))
    yield from turn
    if card.result and card.hosted and not card.result.is_error:
        for form in forms(card.result, pages=True):
            rows = form.pages if isinstance(form, Pages) else ()
            yield "\n".join(_page("", title or url, url) for title, url, _ in rows)
            yield from () if rows or isinstance(form, Table | Image) else _code_block(form.text)
    elif card.result and card.shows_result:
        yield from _result(card.result)
    elif not card.inside and (reason := call_words.long_reason(card)):
        yield plain(reason)


def _result(result: ToolResult) -> Iterator[str]:
    own = tuple(part for part in result.content if not (isinstance(part, Text) and part.audience == "assistant"))
    if own:
        text, language = sanitize(replace(result, content=own).text).strip("\n"), ""
    elif result.structured is not None:
        text, language = _json(result.structured), "json"
    else:
        return
    yield "Error:" if result.is_error else "Result:"
    yield from _code_block(text, language)


def _code_block(text: str, language: str = "") -> Iterator[str]:
    start, note = cut_with_note(text, words.LONGEST_RESULT)
    yield fence(start, language)
    yield note


def _json(value: object) -> str:
    return words.indented_json(sanitize_json(value))


# -- Markdown from texts of any origin ----------------------------------------------------------------


def prose(text: str, marks: Iterable[Mark] = (), render: Callable[[int], str] = str) -> str:
    """Return Markdown from any source made safe: HTML in it is shown as text, and an open code fence is closed.

    `marks` are the positions of citation numbers in the text. `render` returns the Markdown for a number.
    """
    source, note = cut_with_note(insert_numbers(sanitize(text), marks, render, " ").strip("\n"), LONGEST)
    whole = _close_fence(_without_html(source))
    return f"{whole}\n\n*{note}*" if note else whole


def without_html(markdown: str) -> str:
    """Return the Markdown without HTML tags, even in code, and without link targets that run code.

    Renderers do not agree where code begins and ends: nbconvert finds mathematics first, and copies the text of a
    `mermaid` fence into its page unchanged. So tags in code are removed too: such code becomes escaped HTML.
    """
    if _TAG.search(markdown):
        markdown = "\n".join(_lines_without_tags(markdown))
    return _TARGET.sub(_safe_target, markdown)


def _lines_without_tags(markdown: str) -> Iterator[str]:
    """Yield lines of Markdown without tags. A code block that has a tag becomes escaped HTML."""
    lines, position = markdown.split("\n"), 0
    for token in _parser().parse(markdown):
        if token.type in ("fence", "code_block") and token.map and token.level == 0 and _TAG.search(token.content):
            start, end = token.map
            yield from map(_without_tags, lines[position:start])
            # A blank line ends HTML for some renderers, so write a space into each blank line.
            code = (line or "&#32;" for line in str(escape(token.content.rstrip("\n"))).split("\n"))
            yield "<pre><code>" + "\n".join(code) + "</code></pre>"
            position = end
    yield from map(_without_tags, lines[position:])


def _without_tags(line: str) -> str:
    if not _TAG.search(line):
        return line
    text, marks, code = (_CODE_SPAN.split(line)[part::3] for part in range(3))
    spans = [
        _code(inner) if _TAG.search(inner) else f"{mark}{inner}{mark}" for mark, inner in zip(marks, code, strict=True)
    ]
    return "".join(
        chain.from_iterable(zip_longest((piece.replace("<", "&lt;") for piece in text), spans, fillvalue=""))
    )


def _code(text: str) -> str:
    entities = "".join(
        character if character.isalnum() or character.isspace() else f"&#{ord(character)};"
        for character in text.strip()
    )
    return f"<code>{entities}</code>"


def _safe_target(target: re.Match[str]) -> str:
    """Return the target of a link. If it matches `_RUN` and is not a PNG image, it gets a `#` before it."""
    reads = "".join(decode(target[2]).split())
    return f"{target[1]}#{target[2]}" if _RUN.match(reads) and not reads.startswith("data:image/png") else target[0]


def quote(markdown: str) -> str:
    """Return Markdown as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in markdown.split("\n"))


def plain(text: str) -> str:
    """Return a text on one line, escaped so that Markdown shows it unchanged."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(sanitize(text).split()))


def fence(text: str, language: str = "") -> str:
    """Return a text inside a code fence that the text cannot close."""
    marks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{marks}{language}\n{text}\n{marks}"


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _without_html(text: str) -> str:
    """Return Markdown text. In each of its blocks that contains HTML, every `<` is escaped."""
    if not _TAG.search(text):
        return text
    lines = text.split("\n")
    # Escaped HTML can change how Markdown reads the text below it, so parse again until no HTML is left.
    for _ in range(_PASSES):
        spans = [token.map for token in _parser().parse("\n".join(lines)) if token.map and _holds_html(token)]
        if not spans:
            return "\n".join(lines)
        for start, end in spans:
            lines[start:end] = [line.replace("<", "&lt;") for line in lines[start:end]]
    return fence(text, "markdown")


def _holds_html(token: "Token") -> bool:
    if token.type == "html_block":
        return True
    # Our parser knows no tables. GitHub splits a table row at each "|", also inside a code span, and then finds HTML
    # in the code.
    if "|" in token.content and token.type == "inline" and _TAG.search(token.content):
        return True
    return any(child.type == "html_inline" for child in token.children or ())


def _close_fence(text: str) -> str:
    """Return Markdown text. If its last code fence is open, close the fence."""
    if "```" not in text and "~~~" not in text:
        return text
    last = _parser().parse(f"{text}\n\n{_END}")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else text
