"""The screens that show a turn in a cell: live, as text, or as one output at the end.

A screen is fed the turn's events, and leaves its static output when the turn is over.
"""

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from markupsafe import Markup

from agentmagic import events
from agentmagic.display import html, terminal, words
from agentmagic.display.blocks import Block, ChecklistBlock, PromptBlock, RetryBlock, TextBlock, ToolCard
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.events import Event, Intent, MapProgress, Stop
from agentmagic.jupyter.frontend import FrontEnd, Kind, publisher
from agentmagic.log import logger
from agentmagic.runtime.engine import engine
from agentmagic.text import ShownStream, shown
from agentmagic.widgets.commands import INTENTS, SETUP, STOP_MAP
from agentmagic.widgets.static_html import OutputUpdates, Publish, bundle, sized

if TYPE_CHECKING:
    from agentmagic.jupyter.cell.model_setup import ModelSetup
    from agentmagic.widgets.page_messages import Action
    from agentmagic.widgets.view import View

FRAME = 0.1
"""Seconds between two updates of a live output at least."""

SAVED = 5.0
"""Seconds between two updates of a map's HTML at least, if a page shows the view: a kernel may end at any time."""

GRACE = 0.4
"""Seconds until the first update: by then most pages have said hello, and need none."""

WAITS = (events.ApprovalAsked, events.QuestionAsked)
"""Events at which the HTML is updated even if a page shows the view: a notebook may be left while a turn waits."""

OLDER = "Type your answer: buttons in a running cell need ipykernel 7 or newer."
UNREACHED = "Type your answer: this page sends no clicks to a running cell."
"""Why an answer is typed in a front end that shows buttons elsewhere."""
BROKEN = "Type your answer: the output of this cell has failed; %agent debug says why."

ERASE_LINE = "\r\x1b[2K"

Answer = Callable[[Intent], None]
"""Takes what the user does in a screen."""

Retry = Callable[["View"], None]
"""Runs the turn of a view again, in any thread."""


class TurnScreen(Protocol):
    """Shows a turn; `begin` is called in the cell, `feed` and `typed` on the engine, the others in any thread."""

    transcript: Transcript

    @property
    def seen(self) -> bool:
        """Whether a page has drawn a view of it, which takes clicks."""
        return False

    def begin(self, answer: Answer) -> None:
        """Take a place in the cell's output, if the screen needs one before the first event."""

    async def typed(self) -> str | None:
        """Return why answers are typed, "" if that needs no reason, or None if they are clicked."""
        return ""

    def feed(self, event: Event | MapProgress) -> None:
        """Take the next event of the turn."""
        ...

    def finish(self) -> None:
        """Leave the static output, if the turn had any; may be called again after more events."""
        ...

    def rest(self) -> None:
        """Leave the static output of a turn that others may follow in this screen."""
        self.finish()

    def go_on(self) -> None:
        """Show a further turn below those that were left as static output."""

    def restart(self) -> None:
        """Forget what was shown: the turn begins again, and a live output has been cleared."""
        ...

    def offer_retry(self, retry: "Retry | None") -> None:
        """Have the static output offer to run the turn again, or not, if the screen takes clicks then."""

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Show the card on which a model is chosen; called only if answers are clicked."""


class FallbackScreen(TurnScreen):
    """Shows a turn on a screen. If that fails, questions are typed, and the answer is printed at the end."""

    def __init__(self, screen: TurnScreen) -> None:
        self._screen = screen
        self.transcript = screen.transcript
        self._failed = False
        self._answer = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)

    @property
    def seen(self) -> bool:
        """Whether a page has drawn a view of the screen."""
        return self._screen.seen

    def begin(self, answer: Answer) -> None:
        """Take a place in the cell's output."""
        self._try(self._screen.begin, answer)

    async def typed(self) -> str | None:
        """Return what the screen says, unless it has failed."""
        return BROKEN if self._failed else await self._screen.typed()

    def feed(self, event: Event | MapProgress) -> None:
        """Take the next event of the turn."""
        if isinstance(event, events.TurnFinished):
            self._answer = event.result.final_text
        try:  # as in `_try`, but without one more call for each piece of an answer
            self._screen.feed(event)
        except Exception:  # noqa: BLE001
            self._fail()

    def finish(self) -> None:
        """Leave the static output; print the answer too if the screen has failed."""
        self._try(self._screen.finish)
        if self._failed and self._answer:
            print(shown(self._answer))  # noqa: T201  (printing has not failed)
            self._answer = ""

    def rest(self) -> None:
        """Have the screen leave the static output of a turn that others may follow."""
        self._try(self._screen.rest)

    def go_on(self) -> None:
        """Have the screen show a further turn."""
        self._try(self._screen.go_on)

    def restart(self) -> None:
        """Forget what was shown."""
        self._try(self._screen.restart)
        self.transcript = self._screen.transcript

    def offer_retry(self, retry: Retry | None) -> None:
        """Have the screen offer it, unless it has failed."""
        if not self._failed:
            self._screen.offer_retry(retry)

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Have the screen show the card."""
        self._screen.offer_setup(offer)

    def _try(self, method: Callable[..., None], *given: object) -> None:
        try:
            method(*given)
        except Exception:  # noqa: BLE001  (the turn goes on, and so does the cell)
            self._fail()

    def _fail(self) -> None:
        if not self._failed:
            logger.exception("the screen of a cell failed")
        self._failed = True


class BatchScreen(TurnScreen):
    """One output at the end, without times or updates, so that every run of a notebook gives the same."""

    def __init__(self, publish: Publish, *, large: bool = False) -> None:
        self._publish = publish
        self._large = large
        self.restart()

    def restart(self) -> None:
        """Begin with an empty transcript."""
        self.transcript = Transcript()
        self._over = False

    def feed(self, event: Event | MapProgress) -> None:
        """Take an event in."""
        self.transcript.feed(event)

    def finish(self) -> None:
        """Show the turn."""
        if self.transcript.blocks and not self._over:
            self._over = True
            page = sized(html.render(self.transcript, times=False), large=self._large)
            self._publish(bundle(self.transcript, page, times=False), False)


_JSON = ("{", "[")
"""How an answer in JSON begins."""


class TerminalScreen(TurnScreen):
    """Printed text: one line for each call, other blocks when they are done, words as they come.

    In a terminal that can erase a line, a last line says what the turn does, and Markdown is rendered paragraph by
    paragraph if rich is installed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._erases = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._draw = terminal.markdown_printer(stream) if self._erases else None
        self._in_line = False
        self._last: Block | None = None
        self._status = ""
        self._doing = ("", 0.0)
        self.restart()

    def restart(self) -> None:
        """Begin with an empty transcript; what was printed stays."""
        self.transcript = Transcript()
        self._begun: set[int] = set()
        self._printed: set[int] = set()
        self._tasks: dict[str, str] = {}
        self._text_part = -1
        self._start = ""
        self._words = ShownStream()
        self._held = ""

    def feed(self, event: Event | MapProgress) -> None:
        """Take an event in, and print what is new."""
        self.transcript.feed(event)
        match event:
            case events.PartDelta():
                self._start = self._start or event.text.lstrip()[:1]
                if event.index == self._text_part and self._start not in _JSON:
                    self._print_words(self.transcript.blocks[-1], self._words.feed(event.text))
            case events.PartStarted():
                self._text_part = event.index if event.kind == "text" else -1
                self._start = ""
                self._words = ShownStream() if event.kind == "text" else self._words
            case _:
                self._print_new()
        if isinstance(event, events.TurnStarted) and self._erases:
            self._tick()
        elif self._erases:
            self._tell()

    def finish(self) -> None:
        """Print what is left."""
        self._print_new()
        self._end_line()
        self._show("")

    def _print_words(self, block: Block, piece: str) -> None:
        """Print a piece of text, whose end is not the beginning of a secret: `ShownStream` keeps such an end back."""
        text = self._held + piece
        whole, self._held = terminal.split_paragraphs(text) if self._draw else (text, "")
        if whole:
            self._print(block, whole)

    def _print(self, block: Block, text: str) -> None:
        """Print a block, or a part of one."""
        if self._draw is None or not isinstance(block, TextBlock):
            self._begin(block)
            self._write(text)
        elif text.strip():
            if block.key in self._begun:
                self._write("\n")
            self._begin(block)
            self._show("")
            self._draw(text)

    def _print_new(self) -> None:
        """Print the blocks that are done, or what is left of them."""
        for block in self.transcript.blocks:
            if isinstance(block, ChecklistBlock) and block.key not in self._printed:
                self._print_tasks(block)
            if block.open and block.key in self._printed:  # a call is asked about again: its end is printed too
                self._printed.discard(block.key)
                self._begun.discard(block.key)
            if block.open or block.key in self._printed or isinstance(block, PromptBlock) or self._may_be_value(block):
                continue
            self._printed.add(block.key)
            if isinstance(block, RetryBlock) and self._erases:
                continue  # the last line tells of it
            if isinstance(block, ChecklistBlock):
                text = words.plan_heading(block)
            elif block.key in self._begun:
                text, self._held = self._held + self._words.finish(), ""
                if isinstance(block, TextBlock) and block.sources:  # the text itself was printed as it came
                    text = f"{text.rstrip()}\n\n{terminal.source_lines(block)}"
            else:
                text, self._held = block.render(terminal.TextRenderer(brief=True)), ""
            if text:
                self._print(block, text)
            self._end_line()

    def _may_be_value(self, block: Block) -> bool:
        """Whether a block is a text in JSON: the end of the turn tells whether it is a value, to be shown as one."""
        if not isinstance(block, TextBlock) or self.transcript.running is None:
            return False
        is_last = block is self.transcript.blocks[-1]
        return is_last and block.key not in self._begun and block.text.lstrip()[:1] in _JSON

    def _print_tasks(self, block: ChecklistBlock) -> None:
        """Print a plan once, then a line for each task that ended or is tried again."""
        lines = {row.task.id: terminal.task_line(row) for row in block.rows}
        running = {row.task.id for row in block.rows if row.state == "running"}
        if self._tasks.keys() != lines.keys():
            self._print(block, block.render(terminal.TextRenderer(brief=True)) + "\n")
        elif changed := [line for one, line in lines.items() if one not in running and line != self._tasks[one]]:
            self._begun.discard(block.key)
            self._print(block, "\n".join(changed) + "\n")
        self._tasks = lines

    def _begin(self, block: Block) -> None:
        """Begin a block, unless it was begun: below an empty line, but a card directly below a card."""
        if block.key in self._begun:
            return
        self._begun.add(block.key)
        self._end_line()
        self._write(terminal.gap(self._last, block))
        self._last = block

    def _write(self, piece: str) -> None:
        if not piece:
            return
        self._show("")
        self._stream.write(piece)
        self._stream.flush()
        self._in_line = not piece.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            self._write("\n")

    # -- the last line -------------------------------------------------------------------------

    def _tick(self) -> None:
        """Count the seconds, but not in a line in which a tool may be printing."""
        if self.transcript.running is None:
            return
        if not any(isinstance(block, ToolCard) and block.open for block in self.transcript.blocks):
            self._tell()
        engine().loop.call_later(1.0, self._tick)

    def _tell(self) -> None:
        running = self.transcript.running
        # A turn in the background must not write into the line of the prompt.
        doing = words.doing(running, self.transcript.blocks) if running and engine().main.serving else ""
        if doing and isinstance(last := self.transcript.blocks[-1], RetryBlock):
            doing = words.retry(last, times=False)
        if doing != self._doing[0]:
            self._doing = doing, time.monotonic()
        seconds = int(time.monotonic() - self._doing[1])
        self._show(f"◐ {doing} ({seconds} s) " if seconds else f"◐ {doing} " if doing else "")

    def _show(self, status: str) -> None:
        """Show a text in the last line, in the place of the one that is shown there."""
        if not self._erases or self._in_line or status == self._status:
            return
        self._status = status
        columns = get_terminal_size().columns - 1
        self._stream.write(f"{ERASE_LINE}{status[:columns]}")
        self._stream.flush()


class LiveHtml:
    """HTML for front ends without the widget, updated while the turn runs and replaced by the static output.

    `aside` wraps it so that a page hides it while the widget is drawn. While `seen` returns True, it is updated only
    when the turn begins to wait for the user: JupyterLab's work on an updated output is felt while others stream.
    """

    def __init__(
        self, transcript: Transcript, publish: Publish, aside: Callable[[Markup], Markup], seen: Callable[[], bool]
    ) -> None:
        self._transcript = transcript
        self._publish = publish
        self._aside = aside
        self._seen = seen
        self._lock = threading.Lock()  # held while rendering, so never taken on the engine
        self._renderer = html.HtmlRenderer(live=True)
        self._shown = Snapshot([], None)
        self._request = OutputUpdates(self._update, GRACE, FRAME).update
        self._due = False
        self._shown_at = 0.0
        self._begun = False
        self._over = False

    def begin(self) -> None:
        """Show the output that is updated later, anew if the turn begins again."""
        with self._lock:
            self._begun = self._over = False
            self._show()

    def go_on(self) -> None:
        """Update the output again, which was replaced by the static one."""
        with self._lock:
            self._over = False

    def look(self, event: Event | MapProgress) -> None:
        """Show at the next frame what an event has changed in the transcript."""
        is_map = isinstance(event, MapProgress)
        waits = isinstance(events.innermost(event), WAITS)
        self._due |= waits or (is_map and time.monotonic() - self._shown_at > SAVED)
        if self._is_wanted():
            self._request()

    def finish(self) -> None:
        """Replace the live output by the static one."""
        with self._lock:
            self._over = True  # an update that is already due must not follow the static output
            if self._begun:
                shown = self._transcript.snapshot()
                self._send(bundle(shown, self._aside(html.render(shown))))

    def _update(self) -> int:
        with self._lock:
            return self._show() if self._is_wanted() else 0

    def _is_wanted(self) -> bool:
        return not self._over and (self._due or not self._seen())

    def _show(self) -> int:
        self._shown_at = time.monotonic()
        self._due = False  # before the snapshot: a question that comes after it needs another update
        self._shown = self._transcript.snapshot(self._shown)
        page = self._renderer.update(self._shown)
        self._send({"text/html": self._aside(page), "text/plain": "This is under way."})
        return len(page)

    def _send(self, data: Mapping[str, str]) -> None:
        self._publish(data, self._begun)
        self._begun = True


class LiveScreen(TurnScreen):
    """A view that takes clicks, and the same as HTML for front ends without the widget.

    View and HTML are outputs of their own: a page draws an updated output anew, and closes the cards opened in it.
    """

    def __init__(self, place: Publish, html: Publish, *, reachable: bool, large: bool = False) -> None:
        from agentmagic.widgets.view import View  # loads anywidget, which the other screens do not need

        self._view = View(self)
        self.transcript = self._view.transcript
        self._place = place
        aside = self._view.aside
        self._html = LiveHtml(
            self.transcript, html, lambda page: aside(sized(page, large=large)), self._view.mounted.is_set
        )
        self._reachable = reachable
        self._large = large
        self._retry: Retry | None = None
        self._setup: ModelSetup | None = None

    def begin(self, answer: Answer) -> None:
        """Show the place of the view, and below it the HTML."""
        self._answer = answer
        self._view.tell({"actions": [*INTENTS, *SETUP, STOP_MAP], "large": self._large})
        self._place(self._view.place, False)
        self._html.begin()

    def act(self, action: "Action") -> None:
        """Take an action of the page: an answer to the turn, or the wish to run it again if it had no answer."""
        from agentmagic.widgets.page_messages import RetryTurn, SetupAction, StopMap

        if isinstance(action, Intent | StopMap):
            self._answer(Stop() if isinstance(action, StopMap) else action)
        elif isinstance(action, SetupAction):
            if self._setup is not None:
                self._setup.act(action)
        elif isinstance(action, RetryTurn) and self._retry is not None:
            self._retry(self._view)

    async def typed(self) -> str | None:
        """Wait for the page's hello, which tells that clicks arrive; at most as long as a page needs."""
        if self._reachable and await self._view.takes_clicks():
            return None
        return UNREACHED if self._reachable else OLDER

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Show the card in the view."""
        self._setup = offer(self._view)

    def go_on(self) -> None:
        """Show a further turn in the same view, which takes clicks again."""
        self._view.tell({"actions": [*INTENTS]})
        self._html.go_on()

    def restart(self) -> None:
        """Begin with an empty transcript, in the same view."""
        self._view.replace(())
        self._view.tell({"setup": None})

    def offer_retry(self, retry: Retry | None) -> None:
        """Offer it in the view, if clicks there can show a turn in this cell."""
        self._retry = retry if self._reachable else None

    def feed(self, event: Event | MapProgress) -> None:
        """Take an event; the next frame shows it."""
        self._view.feed(event)
        self._html.look(event)

    def rest(self) -> None:
        """Leave the static output; the view stays drawn, however many turns are over in other cells."""
        self._view.tell({"actions": ["retry"] if self._retry is not None else [], "setup": None})
        self._view.flush()  # the page draws the last words while the HTML is made
        self._html.finish()

    def finish(self) -> None:
        """Leave the static output, and keep the view drawn until several later turns are over."""
        from agentmagic.widgets.view import keep

        self.rest()
        keep(self._view)

    @property
    def seen(self) -> bool:
        """Whether a page has said hello for the view."""
        return self._view.mounted.is_set()


def screen_of(front: FrontEnd, *, large: bool = False) -> TurnScreen:
    """Return a new screen for the running cell, with `large` in type for a projector."""
    match front.kind:
        case Kind.LIVE:
            place, saved = (publisher(front.shell, uuid.uuid4().hex) for _ in range(2))
            screen = LiveScreen(place, saved, reachable=front.reachable, large=large)
        case Kind.BATCH:
            screen = BatchScreen(publisher(front.shell, None), large=large)
        case Kind.TEXT:
            screen = TerminalScreen(sys.stdout)
    return FallbackScreen(screen)
