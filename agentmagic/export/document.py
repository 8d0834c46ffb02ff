"""A conversation as a document: Markdown for GitHub, JupyterLab and whoever reads it as it is."""

import json
from collections.abc import Iterable, Iterator
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
    TextBlock,
    ToolCard,
)
from agentmagic.display.transcript import Transcript
from agentmagic.events import Level
from agentmagic.export.markup import fence, plain, prose, quote
from agentmagic.history.history import Turn
from agentmagic.messages import Message, Reasoning, ToolCall, ToolResult, as_text

_LABELS: dict[Level, str] = {"info": "Note", "warning": "Warning", "error": "Error"}
_INTERRUPTED = "*[interrupted]*"


def to_markdown(turns: Iterable[Turn]) -> str:
    """Write turns as a document: prompts quoted, answers as they were written, reasoning and calls folded.

    Of a result or an argument list 20,000 characters are written, pictures are named in words. HTML in
    what was written reads as text.
    """
    pieces = (piece for number, turn in enumerate(turns, 1) for piece in _turn(number, turn))
    return "\n\n".join(pieces) + "\n"


def prompt_of(message: Message) -> str:
    """Return a prompt as Markdown, what is no text in it named in words."""
    parts = (part for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult))
    # A tab would count for less inside of a block quote, and code that it indents would be none.
    return prose("\n\n".join(as_text(part) for part in parts).expandtabs(4))


def _turn(number: int, turn: Turn) -> Iterator[str]:
    yield f"## Turn {number}"
    for block in Transcript(turn.events).blocks:
        yield from filter(None, _block(block))


def _block(block: Block) -> Iterator[str]:
    match block:
        case PromptBlock():
            yield quote(prompt_of(block.prompt))
        case TextBlock():
            yield from (prose(block.text), _INTERRUPTED if block.interrupted else "")
        case ReasoningBlock():
            yield _reasoning(block)
        case ToolCard():
            yield _folded(_heading(block), *_card(block))
        case QuestionBlock():
            yield from _question(block)
        case NoticeBlock():
            yield quote(f"**{_LABELS[block.level]}:** {plain(block.text)}")
        case RetryBlock():
            yield quote(f"**Retry:** {plain(words.retry(block, times=True))}")
        case FooterBlock():
            yield f"*{plain(' · '.join(words.footer(block, times=True)))}*"
        case _:
            pass


def _reasoning(block: ReasoningBlock) -> str:
    text = prose(block.text)
    return _folded("Thought", text, _INTERRUPTED if block.interrupted else "") if text.strip() else ""


def _folded(heading: str, *content: str) -> str:
    """Fold Markdown away under a heading of HTML, which has no empty line in it."""
    return "\n\n".join(filter(None, (f"<details>\n<summary>{heading}</summary>", *content, "</details>")))


def _question(block: QuestionBlock) -> Iterator[str]:
    yield quote(f"**Question:** {plain(block.text)}")
    if block.answer is not None:
        yield quote(f"**Reply:** {plain(block.answer)}")


def _heading(card: ToolCard) -> str:
    name = escape(words.one_line(words.shown(card.name), words.SHORT_ARGUMENTS))
    server = f"({words.shown(card.server)})" if card.server else ""
    tail = " · ".join(filter(None, (words.STATES[card.state], words.duration(card.seconds) if card.seconds else "")))
    told = " ".join(filter(None, (server, words.short_arguments(card), f"[{tail}]" if tail else "")))
    return f"{words.GLYPHS[card.state]} <code>{name}</code> {escape(' '.join(told.split()))}".rstrip()


def _card(card: ToolCard) -> Iterator[str]:
    if card.call and card.call.arguments:
        yield "Arguments:"
        yield from _fenced(_json(card.call.arguments), "json")
    if card.result:
        yield from _result(card.result)
    elif card.reason:
        yield plain(card.reason)


def _result(result: ToolResult) -> Iterator[str]:
    if result.content:
        text, language = words.shown(result.text).strip("\n"), ""
    elif result.structured is not None:
        text, language = _json(result.structured), "json"
    else:
        return
    yield "Error:" if result.is_error else "Result:"
    yield from _fenced(text, language)


def _fenced(text: str, language: str = "") -> Iterator[str]:
    start, note = words.cut(text)
    yield fence(start, language)
    yield note


def _json(value: object) -> str:
    return json.dumps(words.blanked(value), ensure_ascii=False, indent=2, default=str)
