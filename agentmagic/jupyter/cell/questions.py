"""Puts a turn's questions to a user who cannot click: with `input`, in the main thread."""

import asyncio
import json
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from shutil import get_terminal_size
from typing import Any

from agentmagic import events
from agentmagic.display.call_words import format_arguments
from agentmagic.display.edited_values import restore_unchanged
from agentmagic.events import Approve, Deny, Event, Intent, Reply, Stop
from agentmagic.jupyter.cell.screens import BROKEN
from agentmagic.log import logger
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.text import cut, exact, join_names, json_line, sanitize, single_line
from agentmagic.tools.server_names import shown_server

LONGEST_OPTION = 200
"""Characters of an option of an outside agent that are shown."""
LONGEST_ARGUMENTS = 20_000
"""Characters of a call's arguments, as JSON, that are shown before the user edits them."""

MOST_LINES = 20
"""Lines of a call that a page shows at once in most windows."""

LINES_OF_QUESTION = 3
"""Lines of a terminal that the question itself takes: the name of the tool, the choices, the typed answer."""

Ask = Callable[[str], str]

STEPS = "[g]o on, [e]dit, [s]kip, [r]un to the end, [q]uit: "
TRUST = "\n[y]es, [n]o:"
PAUSED = "[g]o on, [e]dit the prompt, [r]un to the end, [q]uit: "
EDIT = "The arguments to run it with instead, as JSON (nothing goes back): "


class Questions:
    """Asks the user at the keyboard for approvals and answers that a run needs, and passes the answers to the run.

    One question is asked at a time. `feed` is called in the engine thread with every event of the run, and `ask` in
    the main thread with a prompt. `typing_reason` returns why the user must type. It returns None if the user can
    click, and then nothing is asked here. `brief` leaves the call's arguments out of the prompt, because the screen
    shows them.
    """

    def __init__(
        self, run: Run, typing_reason: Callable[[], Awaitable[str | None]], *, brief: bool = False, ask: Ask = input
    ) -> None:
        self._run = run
        self._typing_reason = typing_reason
        self._is_reason_shown = False
        self._askers: dict[tuple[str, ...], str] = {}
        """The name of the client or inner agent that asks, by the path of its turn; "" for the turn's own agent."""
        self._brief = brief
        self._ask = ask
        self._turn = asyncio.Lock()
        self._settled_events: dict[str, asyncio.Event] = {}
        self._open: set[asyncio.Task[None]] = set()

    def feed(self, event: Event) -> None:
        """Process an event of the run: ask the user if the event is an approval or a question."""
        inner, path = events.innermost(event), event.path if isinstance(event, events.InnerEvent) else ()
        match inner:
            case events.TurnStarted():
                self._askers[path] = sanitize(inner.client or inner.agent if path else inner.client)
            case events.ApprovalGiven():
                self._settled_events.setdefault(inner.id, asyncio.Event()).set()
            case events.ApprovalAsked() | events.QuestionAsked():
                task = asyncio.get_running_loop().create_task(self._ask_or_deny(inner, self._askers.get(path, "")))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            case events.TurnFinished() if path:
                pass  # a turn inside the run has finished, not the run itself
            case events.TurnFinished():
                for task in self._open:
                    task.cancel()
            case _:
                pass

    async def _ask_or_deny(self, event: events.ApprovalAsked | events.QuestionAsked, asker: str) -> None:
        """Ask a question after the earlier questions are settled; answer with a denial if asking fails."""
        try:
            await self._ask_in_order(event, asker)
        except Exception as error:  # noqa: BLE001  (otherwise the turn would wait forever)
            logger.exception("a question could not be put")
            self._run.pass_on(Deny(event.id, f"it could not be asked: {type(error).__name__}"))

    async def _ask_in_order(self, event: events.ApprovalAsked | events.QuestionAsked, asker: str) -> None:
        settled_event = self._settled_events.setdefault(event.id, asyncio.Event())
        async with self._turn:
            why = await self._typing_reason()
            # The question may be settled already, by a click or by an "always" to an earlier question.
            if settled_event.is_set() or why is None:
                return
            self._run.pass_on(await engine().main.run(lambda: self._answer(event, why, asker)))
            if isinstance(event, events.ApprovalAsked):
                await settled_event.wait()  # this answer may settle later questions too: wait before asking them

    def _answer(self, event: events.ApprovalAsked | events.QuestionAsked, why: str, asker: str) -> Intent:
        before = (f"({why})\n" if why and not self._is_reason_shown else "") + (f"{asker}: " if asker else "")
        self._is_reason_shown = True
        if isinstance(event, events.QuestionAsked) and event.step:
            return self._ask_how_to_continue(event, before)
        if isinstance(event, events.QuestionAsked):
            suggestion = f"\n{sanitize(event.suggested)}\n(Press Enter for this.)" if event.suggested else ""
            if event.files:  # `event.files` are printed only if the screen does not show them
                brief = self._brief and why != BROKEN
                suggestion = TRUST if brief else f"\n\n{sanitize(event.files)}\n{TRUST}"
            answer = self._read_line(f"{before}{sanitize(event.text)}{suggestion} ").strip()
            return Reply(event.id, answer or event.suggested)
        asking = before + describe(event, brief=self._brief and why != BROKEN, screen=_terminal())
        while True:
            answer = self._read_line(asking).strip()
            word, _, rest = answer.partition(" ")
            edits = word.lower() in ("e", "edit") and not event.fixed
            if not edits or (rest and not rest.lstrip().startswith("{")):
                return step_intent(event.id, answer) if event.step else approval_intent(event, answer)
            if (arguments := self._ask_arguments(event, rest.strip())) is not None:
                return Approve(event.id, arguments=arguments)

    def _ask_how_to_continue(self, event: events.QuestionAsked, before: str) -> Intent:
        """Ask the user how to continue a turn that is paused before a model request; return the user's choice."""
        choices = PAUSED if event.suggested else PAUSED.replace("[e]dit the prompt, ", "")
        answer = self._read_line(f"{before}{sanitize(event.text)}\n{choices}").strip()
        word, _, rest = answer.partition(" ")
        if event.suggested and word.lower() in ("e", "edit"):
            prompt = rest or self._read_line(
                f"It is now: {sanitize(event.suggested)}\nThe prompt instead (nothing goes on): "
            )
            return Reply(event.id, prompt)
        return step_intent(event.id, answer)

    def _ask_arguments(self, event: events.ApprovalAsked, text: str) -> dict[str, Any] | None:
        """Return the arguments as the user edited them, in JSON in `text` or typed now; None if nothing is typed."""
        more = f" May be added: {sanitize(join_names(list(event.optional)))}." if event.optional else ""
        text = text or self._read_line(f"They are now: {_now(event.call.arguments)}{more}\n{EDIT}").strip()
        while text:
            try:
                arguments = json.loads(text, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                problem = f"That is no JSON ({error})."
            else:
                if isinstance(arguments, dict):
                    # The user saw escaped text and blanked secrets: put the originals back where nothing was edited.
                    return restore_unchanged(arguments, event.call.arguments, redact)
                problem = 'That is no JSON object, {"name": value}.'
            text = self._read_line(f"{problem}\n{EDIT}").strip()
        return None

    def _read_line(self, prompt: str) -> str:
        """Return the typed line. If the input ends or fails, return "": it denies an approval or continues a step."""
        try:
            return self._ask(prompt)
        except EOFError:
            return ""
        except Exception:  # noqa: BLE001  (front ends raise their own errors, and the turn must not wait for ever)
            logger.exception("a question could not be put")
            return ""


def describe(event: events.ApprovalAsked, *, brief: bool = False, screen: tuple[int, int] | None = None) -> str:
    """Return the text that asks for an approval: reason, tool, arguments, choices. `brief` leaves out the arguments.

    If the arguments may go on out of view, the number of their lines stands before the choices. `screen` has the
    columns and rows of the terminal, and is None for a page, which has no fixed size.
    """
    shown_lines = (*format_arguments(event.call.arguments).splitlines(), *map(exact, event.effects))
    lines = [] if brief else [f"  {line}\n" for line in shown_lines]
    # `event.reason` has several lines if it lists changes in the definition of a tool.
    end = "\n" if "\n" in event.reason else " "
    reason = f"{exact(event.reason)}{end}" if event.reason else ""
    choices = STEPS if event.step else _choices(event)
    choices = lines_in_view([*reason.splitlines(), *shown_lines], screen) + choices
    if event.hosted:
        return f"{reason}{exact(event.call.name)}:\n{''.join(lines)}{choices}"
    subject = (
        f"{reason}{'Paused before' if event.step else 'Run'} {exact(event.call.name)} ({shown_server(event.server)})"
    )
    return f"{subject} with\n{''.join(lines)}{choices}" if lines else f"{subject}{':' if event.step else '?'} {choices}"


def lines_in_view(lines: Sequence[str], screen: tuple[int, int] | None) -> str:
    """Return how many of the lines above a typed question are in view, or "" if all of them are.

    Without a `screen`, return only the number of lines, if there are many.
    """
    if screen is None:
        return f"{len(lines):,} lines. " if len(lines) > MOST_LINES else ""
    columns, rows = screen
    total = sum(max(1, math.ceil((len(line) + len("  ")) / columns)) for line in lines)
    seen = max(rows - LINES_OF_QUESTION, 0)
    return f"{seen:,} of {total:,} lines in view. " if total > seen else ""


def _terminal() -> tuple[int, int] | None:
    """Return the columns and rows of the terminal in which the user types, or None if there is no terminal."""
    size = get_terminal_size()
    return (size.columns, size.lines) if sys.stdout.isatty() else None


def _choices(event: events.ApprovalAsked) -> str:
    """Return the answers that a user can type, with numbers for those that an outside agent offers in its own words."""
    numbered = enumerate(event.own_options, 1)
    words = [
        "" if not event.can_approve else "[y]es, in this session" if event.hosted else "[y]es",
        "" if event.hosted or event.once or not event.can_approve else _always(event),
        "" if event.fixed else "[e]dit",
        *(f"[{number}] {single_line(exact(option.name), LONGEST_OPTION)}" for number, option in numbered),
        "[n]o and why: ",
    ]
    return ", ".join(filter(None, words))


def _always(event: events.ApprovalAsked) -> str:
    if event.options:
        return "[a]lways exactly this"
    return "[a]lways this program" if event.effects else "[a]lways"


def approval_intent(event: events.ApprovalAsked, answer: str) -> Approve | Deny:
    """Return whether the user approves or denies, as a typed answer to an approval question says.

    "yes" or "always" without further words approves, and a number alone chooses an option of an outside agent. Any
    other text denies. The model gets this text as the reason, without a "no" at its beginning.
    """
    word, _, rest = answer.strip().partition(" ")
    numbered = {str(number): option for number, option in enumerate(event.own_options, 1)}
    match word.lower(), rest.strip():
        case (("y" | "yes"), ""):
            return Approve(event.id)
        case (("a" | "always"), ""):
            return Approve(event.id, always=True)
        case number, "" if (option := numbered.get(number)) is not None:
            return Deny(event.id, option=option.id) if option.refuses else Approve(event.id, option=option.id)
        case no, reason if no.rstrip(",.:;") in ("n", "no"):
            return Deny(event.id, reason)
        case _:
            return Deny(event.id, answer.strip())


def step_intent(question: str, answer: str) -> Intent:
    """Return what the user wants, as an answer typed in step mode says.

    Step mode pauses a turn before each request to the model and each tool call.

    An empty answer or an unknown word lets the turn continue.
    """
    word, _, rest = answer.strip().partition(" ")
    match word.lower():
        case "s" | "skip":
            return Deny(question, rest.strip())
        case "r" | "run":
            return Approve(question, always=True)
        case "q" | "quit" | "stop":
            return Stop()
        case _:
            return Approve(question)


def _now(arguments: Mapping[str, Any]) -> str:
    return cut(exact(json_line(arguments)), LONGEST_ARGUMENTS)


def _no_number(word: str) -> Any:
    raise ValueError(f"JSON has no {word}")
