"""Blocks as the plain JSON that a view draws; all text in it is blanked, cleaned and cut here.

The page's own types are made from those of this module: `python -m tests.widgets.page_types`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict, cast

from agentmagic.display import map_words, words
from agentmagic.display.blocks import (
    ChecklistBlock,
    FooterBlock,
    NoticeBlock,
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
from agentmagic.display.form_json import FormFields, SourceFields, form_fields, mark_fields, source_fields
from agentmagic.display.rich_values import answer_form, opened, value_form
from agentmagic.events import Level, PlanState, StopReason, ToolProgress
from agentmagic.plan import TaskProgress
from agentmagic.text import cut, exact, in_json, one_line, shown

LONGEST_ARGUMENTS = 100_000
"""Characters of a call's arguments that are sent to a view; what a person approves should be seen whole."""
LONGEST_LINES = 2_000
"""Characters of what a running call has said last."""
LONGEST_ABOUT = 200
"""Characters of what an argument is for."""


class Placed(TypedDict):
    """A block; `within` is the key of the card of an agent's call, if the block stands inside that."""

    within: NotRequired[int]


class PromptFields(Placed):
    """The prompt of a turn, and what is attached to it; its stretches, if it is not shown as it was sent.

    It is not shown if a `client` of the served notebook makes the call of the turn.
    """

    kind: Literal["prompt"]
    text: str
    stretches: Sequence[tuple[str, bool]]
    attached: Sequence[tuple[str, str]]
    turn: int | None
    client: str


class ValuesFields(Placed):
    """What the values that a prompt names became: as written, of which kind, and what the model gets."""

    kind: Literal["values"]
    line: str
    values: Sequence[tuple[str, str, FormFields]]


class WordsFields(Placed):
    """Text or reasoning, and whether more comes; `form` is of an answer that is a value.

    `marks` are the numbers of its `sources`: a place in UTF-16 code units, what Markdown stands before it, the number.
    """

    kind: Literal["text", "reasoning"]
    text: NotRequired[str]
    open: bool
    form: NotRequired[FormFields]
    marks: NotRequired[Sequence[tuple[int, str, int]]]
    sources: NotRequired[Sequence[SourceFields]]


class CardProgress(TypedDict):
    """How far a call has come, its share of the whole if that is known, and its last lines if they are several."""

    text: str
    lines: str
    share: float | None


class CardResult(TypedDict):
    """The parts of a result, and what of them stands open below the call."""

    error: bool
    forms: Sequence[FormFields]
    below: Sequence[FormFields]


class CardFields(Placed):
    """A call: its arguments as name and text, what may be edited (name, text, whether the text is the value itself).

    With `step` the call may run, and the turn is paused before it. `since` is in seconds since 1970. `more` is the key
    to ask for a whole result. `effects` say line by line what the call does. A running tool made an `inner` call.
    `optional` are arguments that the model left out: name, default as text, whether the text is the value itself, and
    what it is for. `edits` are the lines that the user changed in the arguments. `client` makes the call, "" for the
    model. The provider carries out a `hosted` call, or is to be allowed to: `title` says what it does, in the place of
    the name, and `told` what came of it.
    `agent` is the agent that the call asks; the blocks of its turn are `within` the card. Such a card `waits`
    also while the agent asks the user something.
    """

    kind: Literal["card"]
    name: str
    server: str
    state: State
    short: str
    arguments: Sequence[tuple[str, str]]
    note: str
    ask: str
    step: bool
    edit: Sequence[tuple[str, str, bool]]
    optional: Sequence[tuple[str, str, bool, str]]
    edits: str
    since: float | None
    time: str
    progress: CardProgress | None
    reason: str
    result: CardResult | None
    more: int | None
    traceback: str
    effects: Sequence[str]
    inner: bool
    client: str
    title: str
    told: str
    hosted: bool
    agent: str
    waits: bool


class TaskFields(TypedDict):
    """A task of a plan."""

    id: str
    title: str
    tool: str
    state: State
    word: str
    parameters: str
    attempts: Sequence[str]
    summary: str


class ChecklistFields(Placed):
    """The tasks of a plan."""

    kind: Literal["checklist"]
    heading: str
    tasks: Sequence[TaskFields]


class QuestionFields(Placed):
    """A question, its answer, and how to answer; `suggested` is an answer that may be sent as it is, or changed.

    With `step` the turn is paused before a request, which the text shows. `choices` are the answers that can be given,
    if there are no others. `plan` says that `suggested` is the lines of a plan, "refused" that those sent before cannot
    be run, as the text says. `files` is the text of files that are to be approved.
    """

    kind: Literal["question"]
    text: str
    answer: str | None
    ask: str
    suggested: str
    step: bool
    choices: Sequence[str]
    plan: PlanState
    files: str


class ProposalFields(Placed):
    """A proposed cell: what became of it, "" while the person has not decided, its code, and what Copy copies."""

    kind: Literal["proposal"]
    title: str
    why: str
    state: str
    folded: bool
    hint: str
    code: str
    language: str
    copy: str


class NoticeFields(Placed):
    """A notice."""

    kind: Literal["notice"]
    level: Level
    text: str


class RetryFields(Placed):
    """A request that is sent again."""

    kind: Literal["retry"]
    text: str


class ProgressFields(Placed):
    """How far a map has come; `shares` are those of the rows that were answered and that failed, if that is known."""

    kind: Literal["progress"]
    state: State
    heading: str
    figures: Sequence[str]
    shares: tuple[float, float] | None
    errors: Sequence[str]
    notices: Sequence[str]


class FooterFields(Placed):
    """The figures of a turn and why it ended; `unsent` is its number if it got no answer and later requests omit it.

    `details` are the figures that are shown if asked for.
    """

    kind: Literal["footer"]
    figures: Sequence[str]
    details: str
    stop: StopReason | None
    unsent: int | None


BlockFields = (
    PromptFields
    | ValuesFields
    | WordsFields
    | CardFields
    | ChecklistFields
    | QuestionFields
    | ProposalFields
    | NoticeFields
    | RetryFields
    | ProgressFields
    | FooterFields
)


@dataclass(frozen=True, slots=True)
class JsonRenderer:
    """Returns a block's fields. The text of text and reasoning is left to the caller, since it grows.

    `since` is when a call began to run, in seconds since 1970. `whole` shows more of a long result.
    """

    since: float | None = None
    whole: bool = False

    def prompt(self, block: PromptBlock) -> PromptFields:
        """Return the text, what is attached to it, and the number of the turn."""
        text = shown(block.prompt.text)
        stretches = words.stretches(words.asked(block))
        return {
            "kind": "prompt",
            "text": text,
            "stretches": [] if stretches == [(text, False)] else stretches,
            "attached": words.attached(block),
            "turn": block.turn,
            "client": shown(block.client),
        }

    def values(self, block: ValuesBlock) -> ValuesFields:
        """Return the line, and each value with what the model gets of it."""
        contents = list(words.values(block))
        values = [(shown(value.written), value.kind, form_fields(value_form(content))) for value, content in contents]
        return {"kind": "values", "line": words.values_line(block), "values": values}

    def text(self, block: TextBlock) -> WordsFields:
        """Return whether more comes, and the form of a value."""
        fields: WordsFields = {"kind": "text", "open": block.open}
        if block.is_value and (form := answer_form(block.text, block.wrapped_in)):
            fields["form"] = form_fields(form)
        if block.sources:
            fields["marks"] = mark_fields(block)
            fields["sources"] = list(map(source_fields, block.sources))
        return fields

    def reasoning(self, block: ReasoningBlock) -> WordsFields:
        """Return whether more comes."""
        return {"kind": "reasoning", "open": block.open}

    def card(self, card: ToolCard) -> CardFields:
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
            "edit": _editable(card) if card.state == "waiting" and not card.fixed else [],
            "optional": _optional(card) if card.state == "waiting" else [],
            "edits": words.edits(card),
            "since": self.since if card.state == "running" else None,
            "time": words.duration(card.seconds) if card.seconds else "",
            "progress": progress and _progress(progress),
            "reason": shown(card.reason),
            "result": result,
            "more": card.key if cut else None,
            "traceback": shown(card.traceback),
            "effects": list(map(exact, card.effects)),
            "inner": card.inner,
            "client": shown(card.client),
            "title": words.hosted_title(card),
            "told": words.hosted_state(card),
            "hosted": card.hosted,
            "agent": shown(card.agent),
            "waits": card.waits,
        }

    def checklist(self, block: ChecklistBlock) -> ChecklistFields:
        """Return the heading, and each task with its state."""
        return {"kind": "checklist", "heading": words.plan_heading(block), "tasks": list(map(_task, block.rows))}

    def question(self, block: QuestionBlock) -> QuestionFields:
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
            "choices": list(map(shown, block.choices)) if block.open else [],
            "plan": block.plan,
            "files": shown(block.files),
        }

    def proposal(self, block: ProposalBlock) -> ProposalFields:
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

    def notice(self, block: NoticeBlock) -> NoticeFields:
        """Return the text and its level."""
        return {"kind": "notice", "level": block.level, "text": shown(block.text)}

    def retry(self, block: RetryBlock) -> RetryFields:
        """Return one sentence."""
        return {"kind": "retry", "text": words.retry(block, times=True)}

    def progress(self, block: ProgressBlock) -> ProgressFields:
        """Return the counts, each a text, and what went wrong."""
        seen = block.progress
        return {
            "kind": "progress",
            "state": map_words.STATES[seen.ended],
            "heading": map_words.heading(seen),
            "figures": list(map_words.figures(seen, times=True)),
            "shares": map_words.shares(seen),
            "errors": map_words.errors(seen),
            "notices": map_words.notices(seen),
        }

    def footer(self, block: FooterBlock) -> FooterFields:
        """Return the figures, each a text, how the turn ended, and its number if it can be tried again."""
        figures = list(words.footer(block, times=True))
        details = words.footer_details(block, times=True)
        stop, unsent = block.stop_reason, block.unsent
        return {"kind": "footer", "figures": figures, "details": details, "stop": stop, "unsent": unsent}


def _task(row: TaskProgress) -> TaskFields:
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
    arguments: dict[str, Any] = in_json(card.call.arguments, exact) if card.call else {}
    plain = {name: isinstance(value, str) for name, value in arguments.items()}
    return [(name, value if plain[name] else words.indented(value), plain[name]) for name, value in arguments.items()]


def _optional(card: ToolCard) -> list[tuple[str, str, bool, str]]:
    """Return the arguments that may be added: name, default, whether the text is the value, what it is for."""
    rows: list[tuple[str, str, bool, str]] = []
    for name, given in (card.optional or {}).items():
        schema = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
        plain = schema.get("type") == "string"
        default = in_json(schema.get("default"), exact)
        text = "" if default is None else default if plain and isinstance(default, str) else words.indented(default)
        rows.append((exact(name), text, plain, one_line(shown(str(schema.get("description", ""))), LONGEST_ABOUT)))
    return rows


def _arguments(card: ToolCard) -> tuple[list[tuple[str, str]], str]:
    """Return the arguments as pairs of name and text, and a note if they were cut, else ""."""
    if card.call is None:
        return [], ""
    rows, left = list[tuple[str, str]](), LONGEST_ARGUMENTS
    for key, value in in_json(card.call.arguments, exact).items():
        text = _spread(value)
        rows.append((str(key), text[: max(left, 0)]))
        left -= len(text)
    is_cut = left < 0
    return rows, f"Only the first {LONGEST_ARGUMENTS:,} characters of the arguments are shown." if is_cut else ""


def _spread(value: Any) -> str:
    line = words.compact(value)
    return line if isinstance(value, str) or len(line) <= words.ONE_LINE else words.indented(value)


def _progress(event: ToolProgress) -> CardProgress:
    lines = cut(shown(event.message).strip("\n"), LONGEST_LINES, "…")
    return {
        "text": words.progress(event),
        "lines": lines if "\n" in lines else "",
        "share": words.share(event),
    }


def _result(card: ToolCard, *, whole: bool) -> CardResult | None:
    if card.result is None or not card.shows_result:
        return None
    below, inside = opened(card.result, card.rich, whole=whole, pages=card.hosted)
    return {
        "error": card.result.is_error,
        "forms": list(map(form_fields, inside)),
        "below": list(map(form_fields, below)),
    }
