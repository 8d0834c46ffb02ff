"""Return blocks as the plain JSON that a browser page draws. Secrets are blanked here, and texts are cleaned and cut.

The page's TypeScript types are generated from the types in this module: `python -m tests.widgets.page_types`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict, cast

from agentmagic.display import call_words, map_words, words
from agentmagic.display.blocks import (
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
    State,
    TextBlock,
    ToolCard,
    ValuesBlock,
)
from agentmagic.display.form_json import FormFields, SourceFields, form_fields, mark_fields, source_fields
from agentmagic.display.printout import PrintedFields
from agentmagic.display.rich_values import answer_form, split_forms, value_form
from agentmagic.events import Level, PlanState, StopReason, ToolProgress
from agentmagic.plan import TaskProgress
from agentmagic.text import cut, exact, sanitize, sanitize_json, single_line

LONGEST_ARGUMENTS = 100_000
"""Characters of a call's arguments that are sent to a view. Users should see all of the arguments that they approve."""
LONGEST_LINES = 2_000
"""Characters of a running call's latest progress message that are sent to a view."""
LONGEST_ABOUT = 200
"""Characters of an argument's description, or of an option of an outside agent, that are sent to a view."""


class Placed(TypedDict):
    """The fields of every block.

    A block can belong to the turn of an agent that a tool call asked; `within` is then the key of that call's card.
    """

    within: NotRequired[int]


class PromptFields(Placed):
    """The prompt of a turn; `attached` are the names and texts of its attachments.

    `stretches` are parts of the text, each with True if it is laid out in columns; the list is empty if the browser
    page can show `text` as it is. If an MCP client of the served notebook called a tool in this turn, `client` names
    the client, and the page hides the prompt.
    """

    kind: Literal["prompt"]
    text: str
    stretches: Sequence[tuple[str, bool]]
    attached: Sequence[tuple[str, str]]
    turn: int | None
    client: str


class ValuesFields(Placed):
    """The values that a prompt names. Each has its text as typed, its kind, and the form that the model gets."""

    kind: Literal["values"]
    line: str
    values: Sequence[tuple[str, str, FormFields]]


class WordsFields(Placed):
    """A text or the reasoning of the model; `open` says that more text is coming.

    If the text is an answer in JSON, `form` is the table, tree or text to show instead. `marks` are the source numbers
    to insert into the text. Each mark is a position in UTF-16 code units, the Markdown to insert before
    the number, and the number itself, which stands for one of the `sources`.
    """

    kind: Literal["text", "reasoning"]
    text: NotRequired[str]
    open: bool
    form: NotRequired[FormFields]
    marks: NotRequired[Sequence[tuple[int, str, int]]]
    sources: NotRequired[Sequence[SourceFields]]


class CardProgress(TypedDict):
    """The progress of a tool call: a summary, the last lines of output if there are several, and the share done.

    The share is a number from 0 to 1, or None if it is unknown.
    """

    text: str
    lines: str
    share: float | None


class CardResult(TypedDict):
    """The result of a tool call. `forms` are the parts inside the call's card; those in `below` are always visible."""

    error: bool
    forms: Sequence[FormFields]
    below: Sequence[FormFields]


class CardFields(Placed):
    """A tool call and its card.

    `name` is the name of the tool; if `titled`, it says in words what a call of the model's provider does. `addressed`
    says that `server` includes the server's command line or URL, because its name could be mistaken for one of ours.
    `word` is the state in words, with the reason of a call that failed or was denied. `short` are the arguments on one
    line; of a program it is the last statement, and `value` its value. `arguments` are pairs of name and text, and
    `languages` are those of arguments that are code, by name. `edit` are the arguments that the user can change: name,
    text, and whether the text is the value itself rather than JSON. `optional` are arguments that the model left out:
    name, default as text, whether that text is the value itself, and description. `edits` is a diff of what the user
    changed in the arguments. `effects` say line by line what the call does. If `step` is set, the turn only pauses
    before the call, and the card asks for no approval. `since` is when the call began to run, in seconds since 1970.
    `more` is the key with which the browser page requests the whole result. `inner` says that a running tool made the
    call. `client` is the outside program that makes the call, or the agent of an inner turn while its call asks for
    approval, else "". `agent` is the agent that the call asks; the blocks of that agent's turn name this card in their
    `within`. `waits` says that the user is asked something, about the call or by that agent. `approve` is the label of
    the plain approval, `always` that of the answer for later calls too; each is "" if there is none. `choices` are
    further answers of an outside agent: id, name, and whether it refuses.
    """

    kind: Literal["card"]
    name: str
    titled: bool
    server: str
    addressed: bool
    state: State
    word: str
    short: str
    value: str
    arguments: Sequence[tuple[str, str]]
    languages: Mapping[str, str]
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
    agent: str
    waits: bool
    approve: str
    always: str
    choices: Sequence[tuple[str, str, bool]]


class TaskFields(TypedDict):
    """A task of a plan; `parts` are pairs of a heading and a text, which are shown on demand."""

    id: str
    title: str
    tool: str
    state: State
    word: str
    parts: Sequence[tuple[str, str]]


class ChecklistFields(Placed):
    """The tasks of a plan."""

    kind: Literal["checklist"]
    heading: str
    tasks: Sequence[TaskFields]


class QuestionFields(Placed):
    """A question to the user, and the `label` before its text.

    `suggested` is an answer that the user can send as it is, or change first.

    `ask` is the id to answer with. If `step` is set, the turn only pauses before a request to the model, and `text`
    shows the request. `choices` are the only possible answers, if there are any. If `suggested` is a plan, `plan` is
    "new". But if the plan that the user sent cannot be run, `plan` is "refused", and `text` says why. `files` is the
    text of files that the user is asked to approve.
    """

    kind: Literal["question"]
    label: str
    text: str
    answer: str | None
    ask: str
    suggested: str
    step: bool
    choices: Sequence[str]
    plan: PlanState
    files: str


class ProposalFields(Placed):
    """A notebook cell that a tool proposes. `state` is the user's decision, or "" before the user decides.

    `copy` is the text that the Copy button copies.
    """

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
    """A short message to the user, such as a warning; `label` is the word before it, or ""."""

    kind: Literal["notice"]
    level: Level
    label: str
    text: str


class PrintoutFields(Placed):
    """What a command of the panel has printed, in a frame if it is a `card`.

    `line` is the command as the user typed it, or "".
    """

    kind: Literal["printout"]
    line: str
    card: bool
    parts: Sequence[PrintedFields]


class ProgressFields(Placed):
    """The progress of a map, which runs one prompt for many rows.

    `shares` are two numbers from 0 to 1, the shares of answered and of failed rows; None if the total is unknown.
    `again` is the label of the button that asks the failed rows again, "" if there are none. A page that cannot
    offer the button shows `advice`.
    """

    kind: Literal["progress"]
    state: map_words.MapState
    heading: str
    figures: Sequence[str]
    shares: tuple[float, float] | None
    errors: Sequence[str]
    notices: Sequence[str]
    again: str
    advice: str


class FooterFields(Placed):
    """The figures of a turn (time, cost and others) and why it ended; `details` are figures shown on demand.

    If the turn got no answer, and later requests therefore leave it out, `unsent` is its number.
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
    | PrintoutFields
    | ProgressFields
    | FooterFields
)


@dataclass(frozen=True, slots=True)
class JsonRenderer:
    """Returns the JSON fields of a block. The caller adds the text of TextBlock and ReasoningBlock, which can grow.

    `since` is when a tool call began to run, in seconds since 1970. With `whole`, more of a long result is included.
    """

    since: float | None = None
    whole: bool = False

    def prompt(self, block: PromptBlock) -> PromptFields:
        """Return the text of the prompt, its attachments, and the number of the turn."""
        text = sanitize(block.prompt.text)
        stretches = words.stretches(words.typed_text(block))
        return {
            "kind": "prompt",
            "text": text,
            "stretches": [] if stretches == [(text, False)] else stretches,
            "attached": words.attachments(block),
            "turn": block.turn,
            "client": sanitize(block.client),
        }

    def values(self, block: ValuesBlock) -> ValuesFields:
        """Return a summary line of a prompt's values, and each value in the form that the model gets."""
        contents = list(words.values(block))
        values = [
            (sanitize(value.written), value.kind, form_fields(value_form(content))) for value, content in contents
        ]
        return {"kind": "values", "line": words.values_line(block), "values": values}

    def text(self, block: TextBlock) -> WordsFields:
        """Return a text block's fields, except its text: whether more is coming, how to show JSON, and the sources."""
        fields: WordsFields = {"kind": "text", "open": block.open}
        if block.is_value and (form := answer_form(block.text, block.wrapped_in)):
            fields["form"] = form_fields(form)
        if block.sources:
            fields["marks"] = mark_fields(block)
            fields["sources"] = list(map(source_fields, block.sources))
        return fields

    def reasoning(self, block: ReasoningBlock) -> WordsFields:
        """Return the fields of a reasoning block, except its text; they say whether more is coming."""
        return {"kind": "reasoning", "open": block.open}

    def card(self, card: ToolCard) -> CardFields:
        """Return a tool call, its progress and result, and the arguments that the user can edit.

        In the returned fields, `more` is the key with which the browser page requests the whole result.
        """
        rows, note = _arguments(card)
        progress = card.progress
        result = _result(card, whole=self.whole)
        cut = result is not None and not self.whole and any(form.get("note") for form in result["forms"])
        return {
            "kind": "card",
            "name": call_words.card_name(card),
            "titled": call_words.hosted_title(card) != "",
            "server": call_words.server(card),
            "addressed": call_words.has_address(card),
            "state": card.state,
            "word": call_words.card_state(card),
            "short": call_words.short_arguments(card),
            "value": call_words.program_value(card),
            "arguments": rows,
            "languages": call_words.languages(card),
            "note": note,
            "ask": card.ask,
            "step": card.step,
            "edit": _editable(card) if card.state == "waiting" and not card.fixed else [],
            "optional": _optional(card) if card.state == "waiting" else [],
            "edits": call_words.edits(card),
            "since": self.since if card.state == "running" else None,
            "time": words.duration(card.seconds) if card.seconds else "",
            "progress": progress and _progress(progress),
            "reason": sanitize(card.reason),
            "result": result,
            "more": card.key if cut else None,
            "traceback": sanitize(card.traceback),
            "effects": list(map(exact, card.effects)),
            "inner": card.inner,
            "client": sanitize(card.client),
            "agent": sanitize(card.agent),
            "waits": card.waits,
            "approve": call_words.approve(card),
            "always": call_words.always(card),
            "choices": [(one.id, single_line(exact(one.name), LONGEST_ABOUT), one.refuses) for one in card.options],
        }

    def checklist(self, block: ChecklistBlock) -> ChecklistFields:
        """Return the heading of a plan, and each task with its state."""
        return {"kind": "checklist", "heading": call_words.plan_heading(block), "tasks": list(map(_task, block.rows))}

    def question(self, block: QuestionBlock) -> QuestionFields:
        """Return the question with its answer, and the ways to answer."""
        ask = block.ask if block.open else ""
        suggestion = sanitize(block.suggested) if block.open else ""
        return {
            "kind": "question",
            "label": words.question_label(block),
            "text": sanitize(block.text),
            "answer": words.answer(block),
            "ask": ask,
            "suggested": suggestion,
            "step": block.step,
            "choices": list(map(sanitize, block.choices)) if block.open else [],
            "plan": block.plan,
            "files": sanitize(block.files),
        }

    def proposal(self, block: ProposalBlock) -> ProposalFields:
        """Return a proposed cell: title, reason, hint or decision, code, and the text for the Copy button."""
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
        """Return the text of a notice and its level."""
        return _notice(block.level, sanitize(block.text))

    def printout(self, block: PrintoutBlock) -> PrintoutFields:
        """Return the parts of what a command has printed."""
        shown = block.printout
        return {"kind": "printout", "line": sanitize(block.line), "card": shown.is_card, "parts": shown.fields()}

    def retry(self, block: RetryBlock) -> NoticeFields:
        """Return a sentence about the request that is sent again, as a notice."""
        return _notice("info", words.retry(block, times=True))

    def progress(self, block: ProgressBlock) -> ProgressFields:
        """Return how far a map has come: the counts as texts, and the errors and notices."""
        progress = block.progress
        return {
            "kind": "progress",
            "state": map_words.state(progress),
            "heading": map_words.heading(progress),
            "figures": list(map_words.figures(progress, times=True)),
            "shares": map_words.shares(progress),
            "errors": map_words.errors(progress),
            "notices": map_words.notices(progress),
            "again": map_words.again(progress),
            "advice": "".join(map_words.advice(progress)),
        }

    def footer(self, block: FooterBlock) -> FooterFields:
        """Return a turn's figures as texts, how the turn ended, and its number if later requests leave it out."""
        figures = list(words.footer(block, times=True))
        details = words.footer_details(block, times=True)
        stop, unsent = block.stop_reason, block.unsent
        return {"kind": "footer", "figures": figures, "details": details, "stop": stop, "unsent": unsent}


def _notice(level: Level, text: str) -> NoticeFields:
    return {"kind": "notice", "level": level, "label": words.LEVELS[level], "text": text}


def _task(row: TaskProgress) -> TaskFields:
    return {
        "id": sanitize(row.task.id),
        "title": call_words.task_title(row),
        "tool": sanitize(row.task.tool),
        "state": call_words.TASK_STATES[row.state],
        "word": call_words.task_state(row),
        "parts": call_words.task_parts(row),
    }


def _editable(card: ToolCard) -> list[tuple[str, str, bool]]:
    """Return the arguments of a call that the user can edit.

    Each has its name, its text, and whether the text is the value itself rather than JSON.
    """
    arguments: dict[str, Any] = sanitize_json(card.call.arguments, exact) if card.call else {}
    plain = {name: isinstance(value, str) for name, value in arguments.items()}
    return [
        (name, value if plain[name] else words.indented_json(value), plain[name]) for name, value in arguments.items()
    ]


def _optional(card: ToolCard) -> list[tuple[str, str, bool, str]]:
    """Return the arguments that the user can add to a call, because the model left them out.

    Each has its name, its default as text, whether that text is the value itself rather than JSON, and a description.
    """
    rows: list[tuple[str, str, bool, str]] = []
    for name, value in (card.optional or {}).items():
        schema = cast("Mapping[str, Any]", value if isinstance(value, Mapping) else {})
        plain = schema.get("type") == "string"
        default = sanitize_json(schema.get("default"), exact)
        text = (
            "" if default is None else default if plain and isinstance(default, str) else words.indented_json(default)
        )
        rows.append(
            (exact(name), text, plain, single_line(sanitize(str(schema.get("description", ""))), LONGEST_ABOUT))
        )
    return rows


def _arguments(card: ToolCard) -> tuple[list[tuple[str, str]], str]:
    """Return a call's arguments as pairs of name and text, and a note on what was cut, "" if nothing was."""
    if card.call is None:
        return [], ""
    rows, remaining = list[tuple[str, str]](), LONGEST_ARGUMENTS
    for key, value in sanitize_json(card.call.arguments, exact).items():
        text = _spread(value)
        rows.append((str(key), text[: max(remaining, 0)]))
        remaining -= len(text)
    is_cut = remaining < 0
    return rows, f"Only the first {LONGEST_ARGUMENTS:,} characters of the arguments are shown." if is_cut else ""


def _spread(value: Any) -> str:
    line = words.compact(value)
    return line if isinstance(value, str) or len(line) <= words.ONE_LINE else words.indented_json(value)


def _progress(event: ToolProgress) -> CardProgress:
    lines = cut(sanitize(event.message).strip("\n"), LONGEST_LINES, "…")
    return {
        "text": call_words.progress(event),
        "lines": lines if "\n" in lines else "",
        "share": call_words.share(event),
    }


def _result(card: ToolCard, *, whole: bool) -> CardResult | None:
    if card.result is None or not card.shows_result:
        return None
    below, inside = split_forms(card.result, card.rich, whole=whole, pages=card.hosted)
    return {
        "error": card.result.is_error,
        "forms": list(map(form_fields, inside)),
        "below": list(map(form_fields, below)),
    }
