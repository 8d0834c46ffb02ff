"""Blocks as the plain JSON that a view draws; all text in it is blanked, cleaned and cut here."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from agentmagic.display import words
from agentmagic.display.blocks import (
    ChecklistBlock,
    FooterBlock,
    NoticeBlock,
    PromptBlock,
    ProposalBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.rich_values import Form, Image, PlainText, RichHtml, Table, answer_form, forms, value_form
from agentmagic.plan import TaskProgress
from agentmagic.text import exact, in_json, shown

LONGEST_ARGUMENTS = 100_000
"""Characters of a call's arguments that are sent to a view; what a person approves should be seen whole."""

Fields = dict[str, Any]
"""A block's fields, as JSON; `kind` says which block it is."""


@dataclass(frozen=True, slots=True)
class JsonRenderer:
    """Returns a block's fields. The text of text and reasoning is left to the caller, since it grows.

    `since` is when a call began to run, in seconds since 1970. `whole` shows more of a long result.
    """

    since: float | None = None
    whole: bool = False

    def prompt(self, block: PromptBlock) -> Fields:
        """Return the text, what is attached to it, and the number of the turn."""
        stretches = words.stretches(shown(block.prompt.text))
        return {
            "kind": "prompt",
            "text": "".join(text for text, _ in stretches),
            "stretches": stretches if len(stretches) > 1 else [],
            "attached": words.attached(block),
            "turn": block.turn,
        }

    def values(self, block: ValuesBlock) -> Fields:
        """Return the line, and each value with what the model gets of it."""
        contents = list(words.values(block))
        values = [(shown(value.written), value.kind, _form(value_form(content))) for value, content in contents]
        return {"kind": "values", "line": words.values_line(block), "values": values}

    def text(self, block: TextBlock) -> Fields:
        """Return whether more comes, and the form of a value."""
        fields: Fields = {"kind": "text", "open": block.open}
        if block.is_value and (form := answer_form(block.text, block.wrapped_in)):
            fields["form"] = _form(form)
        return fields

    def reasoning(self, block: ReasoningBlock) -> Fields:
        """Return whether more comes."""
        return {"kind": "reasoning", "open": block.open}

    def card(self, card: ToolCard) -> Fields:
        """Return the call, how far it has come, and what can be edited; `more` is the key to ask for a whole result."""
        rows, note = _arguments(card)
        progress = card.progress
        result = _result(card, whole=self.whole)
        cut = result is not None and not self.whole and any(form.get("note") for form in result["forms"])
        return {
            "kind": "card",
            "name": shown(card.name),
            "server": shown(card.server),
            "state": card.state,
            "short": words.short_arguments(card),
            "arguments": rows,
            "note": note,
            "ask": card.ask,
            "step": card.step,
            "edit": _editable(card) if card.state == "waiting" else [],
            "since": self.since if card.state == "running" else None,
            "time": words.duration(card.seconds) if card.seconds else "",
            "progress": progress and {"text": words.progress(progress), "share": words.share(progress)},
            "reason": shown(card.reason),
            "result": result,
            "more": card.key if cut else None,
            "traceback": shown(card.traceback),
            "effects": list(map(exact, card.effects)),
            "inner": card.inner,
        }

    def checklist(self, block: ChecklistBlock) -> Fields:
        """Return the heading, and each task with its state."""
        return {"kind": "checklist", "heading": words.plan_heading(block), "tasks": list(map(_task, block.rows))}

    def question(self, block: QuestionBlock) -> Fields:
        """Return the question with its answer, and how to answer."""
        answer = None if block.answer is None else shown(block.answer)
        ask = block.ask if block.open else ""
        suggested = shown(block.suggested) if block.open else ""
        return {
            "kind": "question",
            "text": shown(block.text),
            "answer": answer,
            "ask": ask,
            "suggested": suggested,
            "step": block.step,
        }

    def proposal(self, block: ProposalBlock) -> Fields:
        """Return the title, why, what can be done with it or became of it, its code, and the text to be copied."""
        code, language = words.proposal_code(block)
        return {
            "kind": "proposal",
            "title": words.proposal_title(block),
            "why": words.proposal_why(block),
            "state": words.proposal_state(block),
            "folded": block.folded,
            "hint": words.proposal_hint(block),
            "code": code,
            "language": language,
            "copy": "" if block.proposed.action == "remove" else exact(block.proposed.source),
        }

    def notice(self, block: NoticeBlock) -> Fields:
        """Return the text and its level."""
        return {"kind": "notice", "level": block.level, "text": shown(block.text)}

    def retry(self, block: RetryBlock) -> Fields:
        """Return one sentence."""
        return {"kind": "retry", "text": words.retry(block, times=True)}

    def footer(self, block: FooterBlock) -> Fields:
        """Return the figures, each a text, how the turn ended, and its number if it can be tried again."""
        figures = list(words.footer(block, times=True))
        return {"kind": "footer", "figures": figures, "stop": block.stop_reason, "unsent": block.unsent}


def _task(row: TaskProgress) -> Fields:
    return {
        "id": shown(row.task.id),
        "title": words.task_title(row),
        "tool": shown(row.task.tool),
        "state": words.TASK_STATES[row.state],
        "word": words.task_state(row),
        "parameters": words.written_out(row.parameters),
        "attempts": list(words.attempts(row)),
        "summary": shown(row.summary),
    }


def _editable(card: ToolCard) -> list[tuple[str, str, bool]]:
    """Return the arguments to be edited: name, text, and whether the text is the value or JSON of it."""
    arguments: Fields = in_json(card.call.arguments, exact) if card.call else {}
    plain = {name: isinstance(value, str) for name, value in arguments.items()}
    return [(name, value if plain[name] else words.indented(value), plain[name]) for name, value in arguments.items()]


def _arguments(card: ToolCard) -> tuple[list[list[str]], str]:
    """Return the arguments as pairs of name and text, and a note if they were cut, else ""."""
    if card.call is None:
        return [], ""
    pairs = [[str(key), _spread(value)] for key, value in in_json(card.call.arguments, exact).items()]
    is_cut = sum(len(text) for _, text in pairs) > LONGEST_ARGUMENTS
    left = LONGEST_ARGUMENTS
    for pair in pairs:
        pair[1] = pair[1][:left]
        left -= len(pair[1])
    return pairs, f"Only the first {LONGEST_ARGUMENTS:,} characters of the arguments are shown." if is_cut else ""


def _spread(value: Any) -> str:
    line = words.compact(value)
    return line if isinstance(value, str) or len(line) <= words.ONE_LINE else words.indented(value)


def _result(card: ToolCard, *, whole: bool) -> Fields | None:
    if card.result is None:
        return None
    return {"error": card.result.is_error, "forms": list(map(_form, forms(card.result, card.rich, whole=whole)))}


def _form(form: Form) -> Fields:
    match form:
        case RichHtml():
            return {"form": "html", "html": str(form.html)}
        case PlainText():
            return {"form": "text", "text": form.text, "note": form.note}
        case Table():
            rows = [[text for text, _ in row] for row in form.rows]
            numeric = list(form.numeric)
            return {"form": "table", "columns": list(form.columns), "rows": rows, "numeric": numeric, "note": form.note}
        case Image():
            data = b64encode(form.data).decode("ascii")
            width = {"width": form.width} if form.width else {}
            return {"form": "image", "type": form.media_type, "data": data, "name": form.name} | width
