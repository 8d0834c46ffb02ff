"""Render the blocks of a conversation as plain text, for terminals and for the `text/plain` part of an output."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TextIO
from unicodedata import east_asian_width

from agentmagic.display import call_words, map_words, words
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
from agentmagic.display.citations import insert_numbers, place_numbers
from agentmagic.display.rich_values import Form, Image, Table, answer_form, forms
from agentmagic.display.source_list import shown_address, source_title
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.plan import TaskProgress
from agentmagic.text import sanitize, single_line

LONGEST = 1_200
"""Characters of a result or of reasoning that are printed."""

RESULT_ON_A_LINE = 120
MOST_LINES = 12
WIDEST_COLUMN = 40
WIDEST_LINE = 120


def render(transcript: Transcript | Snapshot, *, times: bool = True, prompt: bool = False) -> str:
    """Return the transcript as readable text.

    If `times` is false, the text does not depend on the clock. The user's prompt is included only with `prompt`,
    because a notebook cell already shows it above the output.
    """
    renderer = TextRenderer(times=times)
    pieces: list[str] = []
    before: Block | None = None
    for block in transcript.blocks:
        is_hidden = isinstance(block, PromptBlock) and (not prompt or block.client != "")
        text = "" if is_hidden else block.render(renderer)
        if text:
            pieces.append(gap(before, block) + text)
            before = block
    return "\n".join(pieces)


@dataclass(frozen=True, slots=True)
class TextRenderer:
    """Returns a block as text without a final line break, or "" if there is nothing to print.

    With `brief`, a tool call is one line with the start of its result. If the call asks an agent, the agent's turn
    follows.
    """

    times: bool = True
    brief: bool = False

    def prompt(self, block: PromptBlock) -> str:
        """Return the prompt, marked as a quotation."""
        return _indent(words.typed_text(block).strip(), "> ")

    def values(self, block: ValuesBlock) -> str:
        """Return one line for each value that a prompt names."""
        return words.values_line(block).replace(" · ", "\n")

    def text(self, block: TextBlock) -> str:
        """Return a text of the model, then its sources. An answer in JSON becomes a table or indented JSON."""
        if block.is_value and (form := answer_form(block.text, block.wrapped_in)):
            text = "\n".join(filter(None, _form(form)))
        else:
            marks = place_numbers(block.text, block.citations, block.sources)
            text = insert_numbers(sanitize(block.text), marks, "[{}]".format, " ").strip()
        return "\n\n".join(filter(None, (text, source_lines(block))))

    def reasoning(self, block: ReasoningBlock) -> str:
        """Return the start of the reasoning, indented."""
        text = sanitize(block.text).strip()
        return "Thought\n" + _indent(_start(text)) if text else ""

    def card(self, card: ToolCard) -> str:
        """Return a tool call on one line, and below it the start of its result."""
        if not self.brief:
            return "\n".join(_card(card, times=self.times))
        result = (
            " ".join(text or note for text, note in map(_form, forms(card.result, card.rich, pages=card.hosted)))
            if card.result and card.shows_result
            else call_words.long_reason(card)
        )
        summary = single_line(sanitize(result), RESULT_ON_A_LINE)
        line = f"{_heading(card, times=self.times)}{' → ' if summary else ''}{summary}"
        return "\n".join((line, *(_turn_inside(card.inside, self) if card.inside else ())))

    def checklist(self, block: ChecklistBlock) -> str:
        """Return the tasks of a plan, one on each line."""
        return "\n".join((call_words.plan_heading(block), *map(task_line, block.rows)))

    def question(self, block: QuestionBlock) -> str:
        """Return a question to the user, and below it the files in question and the answer, if there are any."""
        files = _indent(sanitize(block.files))
        return "\n".join(filter(None, (f"? {sanitize(block.text)}", files, _indent(words.answer(block) or ""))))

    def proposal(self, block: ProposalBlock) -> str:
        """Return the title, state and reason of a proposed cell, and its whole code below."""
        state = words.proposal_state(block)
        head = f"{words.proposal_title(block)}{f' [{state}]' if state else ''}: {words.proposal_why(block)}"
        return f"{head}\n{_indent(words.proposal_code(block)[0])}"

    def notice(self, block: NoticeBlock) -> str:
        """Return the notice with its level in front."""
        return " ".join(filter(None, (words.LEVELS[block.level], sanitize(block.text))))

    def printout(self, block: PrintoutBlock) -> str:
        """Return what a command printed, below the command."""
        return "\n".join(filter(None, (sanitize(block.line), block.printout.text)))

    def retry(self, block: RetryBlock) -> str:
        """Return a sentence about the request that is sent again."""
        return words.retry(block, times=self.times)

    def progress(self, block: ProgressBlock) -> str:
        """Return the counts of a map's rows on one line, and the errors and notices below."""
        progress = block.progress
        head = " · ".join((map_words.heading(progress), *map_words.figures(progress, times=self.times)))
        below = [*map_words.errors(progress), *map_words.notices(progress), *map_words.advice(progress)]
        return "\n".join((f"{map_words.GLYPHS[map_words.state(progress)]} {head}", *map(_indent, below)))

    def footer(self, block: FooterBlock) -> str:
        """Return the figures of a turn (time, cost and others) on one line."""
        trace = (words.trace(block),) if self.times and block.trace else ()
        return " · ".join((*words.footer(block, times=self.times), *trace))


def source_lines(block: TextBlock) -> str:
    """Return the sources of a text, each with its number, title and address; "" if it has no sources."""
    lines = (
        f"[{source.number}] {source_title(source)}" + (f"\n    {shown_address(source.url)}" if source.title else "")
        for source in block.sources
    )
    return "\n".join(["Sources:", *lines]) if block.sources else ""


def markdown_printer(stream: TextIO) -> Callable[[str], None] | None:
    """Return a function that prints Markdown in colours to a terminal, or None if the package rich is missing."""
    if find_spec("rich") is None:
        return None
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=stream, highlight=False)
    # hyperlinks=False writes the addresses of links out, because a terminal may hide the target of a link.
    return lambda text: console.print(Markdown(text, hyperlinks=False))


def split_paragraphs(text: str) -> tuple[str, str]:
    """Split growing Markdown after its last empty line that is outside a block of code, and return both parts."""
    end, is_code, position = 0, False, 0
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code and line == "\n":
            end = position
    return text[:end], text[end:]


def gap(before: Block | None, block: Block) -> str:
    """Return the separator before a block: an empty line, or "" for the first block and between two tool calls."""
    return "" if before is None or (isinstance(before, ToolCard) and isinstance(block, ToolCard)) else "\n"


def _card(card: ToolCard, *, times: bool) -> Iterator[str]:
    yield _heading(card, times=times)
    if card.state == "waiting":
        yield _indent(call_words.all_arguments(card))
        yield _indent(call_words.effects(card))
    if edits := call_words.edits(card):
        yield _indent(f"Edited by you:\n{edits}")
    if card.inside:
        yield from _turn_inside(card.inside, TextRenderer(times=times))
    if card.result and card.shows_result:
        for text, note in map(_form, forms(card.result, pages=card.hosted)):
            if text:
                yield _indent(_start(text))
            if note:
                yield _indent(note)
        if card.traceback:
            yield _indent("%tb shows where it was raised.")
    elif not card.inside and (reason := call_words.long_reason(card)):
        yield _indent(reason)


def _turn_inside(turn: Snapshot, renderer: TextRenderer) -> Iterator[str]:
    yield from (_indent(text, "  │ ") for block in turn.blocks if (text := block.render(renderer)))


def task_line(row: TaskProgress) -> str:
    """Return a task of a plan on one line, with its summary, or with the reason why the task is tried again."""
    state = call_words.task_state(row)
    again = [*call_words.attempts(row)][-1:] if row.state == "pending" else []
    summary = single_line("".join(again) or sanitize(row.summary), WIDEST_LINE)
    description = ": ".join(filter(None, (f"{call_words.task_title(row)}{f' [{state}]' if state else ''}", summary)))
    return f"  {call_words.GLYPHS[call_words.TASK_STATES[row.state]]} {row.task.id} {description}"


def _heading(card: ToolCard, *, times: bool) -> str:
    client = f"{sanitize(card.client)}:" if card.client else ""
    name = call_words.card_name(card)
    server = f"({call_words.server(card)})" if card.server else ""
    arguments = call_words.short_arguments(card)
    took = words.duration(card.seconds) if times and card.seconds else ""
    progress = call_words.progress(card.progress) if card.progress else ""
    tail = " · ".join(filter(None, (call_words.card_state(card, error=False), progress, took)))
    inner = "  ↳" if card.inner else ""
    parts = (inner, call_words.GLYPHS[card.state], client, name, server, arguments, f"[{tail}]" if tail else "")
    return " ".join(filter(None, parts))


def _form(form: Form) -> tuple[str, str]:
    match form:
        case Table():
            return _columns(form), form.note
        case Image():
            return f"[{form.media_type} {form.name}, {len(form.data):,} bytes]".replace(" ,", ","), ""
        case _:
            return form.text.strip("\n"), form.note


def _start(text: str) -> str:
    """Return the first lines of a text, with a note if the text is longer."""
    start = "\n".join(text.split("\n")[:MOST_LINES])[:LONGEST]
    return text if len(start) == len(text) else f"{start}\n… ({len(text):,} characters)"


def _columns(table: Table) -> str:
    rows = [[single_line(text, WIDEST_COLUMN) for text in row] for row in table.rows]
    head = [single_line(column, WIDEST_COLUMN) for column in table.columns]
    widths = [max(map(_width, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(_row(row, widths, table.numeric) for row in (head, *rows))


def _row(cells: list[str], widths: list[int], numeric: Sequence[bool]) -> str:
    padded_cells: list[str] = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        space = " " * (width - _width(cell))
        padded_cells.append(space + cell if right else cell + space)
    return "  ".join(padded_cells).rstrip()


def _width(text: str) -> int:
    """Return how many columns a terminal needs for a text: two for a wide character."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _indent(text: str, indent: str = "  ") -> str:
    return "\n".join((indent + line).rstrip() for line in text.splitlines())
