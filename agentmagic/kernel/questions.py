"""Approvals and questions typed: what is asked of the person is put to the main thread's `input`."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from agentmagic.engine import engine
from agentmagic.events import ApprovalAsked, Approve, Deny, Event, Intent, QuestionAsked, Reply, TurnFinished
from agentmagic.render.words import shown
from agentmagic.run import Run

LONGEST_ARGUMENTS = 20_000
"""Characters of a call's arguments that are shown before it is approved."""

CHOICES = "[y]es, [a]lways, [n]o and why: "


class Questions:
    """Answers a run's questions by asking the person at the keyboard, one at a time.

    `feed` is called on the engine with every event of the run; `ask` in the main thread, with a prompt.
    `brief` leaves the arguments out of the prompt, where the screen shows them.
    """

    def __init__(self, run: Run, *, brief: bool = False, ask: Callable[[str], str] = input) -> None:
        self._run = run
        self._brief = brief
        self._ask = ask
        self._always: set[tuple[str, str]] = set()
        self._open: set[asyncio.Task[None]] = set()

    def feed(self, event: Event) -> None:
        """Take an event of the run; put a question where it is one."""
        match event:
            case ApprovalAsked() | QuestionAsked():
                task = asyncio.get_running_loop().create_task(self._put(event))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            case TurnFinished():
                for task in self._open:
                    task.cancel()
            case _:
                pass

    async def _put(self, event: ApprovalAsked | QuestionAsked) -> None:
        intent = await engine().main.run(lambda: self._answer(event))
        self._run.send(intent)

    def _answer(self, event: ApprovalAsked | QuestionAsked) -> Intent:
        if isinstance(event, QuestionAsked):
            return Reply(event.id, self._typed(f"{shown(event.text)} ").strip())
        key = event.server, event.call.name
        if key in self._always:
            return Approve(event.id, always=True)
        intent = approval(event.id, self._typed(describe(event, brief=self._brief)))
        if isinstance(intent, Approve) and intent.always:
            self._always.add(key)
        return intent

    def _typed(self, prompt: str) -> str:
        try:
            return self._ask(prompt)
        except EOFError:
            return ""


def describe(event: ApprovalAsked, *, brief: bool = False) -> str:
    """Return the prompt for an approval: why it is asked, the tool, its arguments unless brief, what may be typed."""
    lines = [] if brief else [f"  {line}\n" for line in _lines(event.call.arguments)]
    reason = f"{shown(event.reason)} " if event.reason else ""
    what = f"{reason}Run {shown(event.call.name)} ({shown(event.server)})"
    return f"{what} with\n{''.join(lines)}{CHOICES}" if lines else f"{what}? {CHOICES}"


def approval(question: str, typed: str) -> Approve | Deny:
    """Return what was meant by what was typed; all that is no yes is a no, its words the reason."""
    word, _, rest = typed.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return Approve(question)
        case "a" | "always":
            return Approve(question, always=True)
        case "n" | "no":
            return Deny(question, rest.strip())
        case _:
            return Deny(question, typed.strip())


def _lines(arguments: Mapping[str, Any]) -> list[str]:
    text = "\n".join(f"{key}: {_value(value)}" for key, value in arguments.items())
    if len(text) > LONGEST_ARGUMENTS:
        text = f"{text[:LONGEST_ARGUMENTS]}\n(the first {LONGEST_ARGUMENTS:,} of {len(text):,} characters)"
    return shown(text).splitlines()


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
