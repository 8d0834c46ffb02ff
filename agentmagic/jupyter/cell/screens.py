"""The screens that show a turn in a cell: live, as text, or as one output at the end.

A screen receives the turn's events, and writes its static output when the turn is over.
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
from agentmagic.display import call_words, html, terminal, words
from agentmagic.display.blocks import Block, ChecklistBlock, PromptBlock, RetryBlock, TextBlock, ToolCard
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.events import Event, Intent, MapProgress, Stop
from agentmagic.jupyter.frontend import FrontEnd, Kind, publisher
from agentmagic.log import logger
from agentmagic.runtime.engine import engine
from agentmagic.text import ShownStream, sanitize
from agentmagic.widgets.commands import INTENTS, SETUP, STOP_MAP
from agentmagic.widgets.static_html import OutputUpdates, Publish, bundle, zoom

if TYPE_CHECKING:
    from agentmagic.jupyter.cell.model_setup import ModelSetup
    from agentmagic.widgets.page_messages import Action
    from agentmagic.widgets.view import View

FRAME = 0.1
"""The least time between two updates of a live output, in seconds."""

MAP_SECONDS = 5.0
"""The least time between two updates of a map's HTML while a page shows the view, in seconds.

The HTML is what the notebook keeps if the kernel ends.
"""

GRACE = 0.4
"""Seconds until the first update: by then most pages have drawn the view, so that no update is needed."""

WAITS = (events.ApprovalAsked, events.QuestionAsked)
"""Events at which the HTML is updated even if a page shows the view: a user may close the notebook at a question."""

OLDER = "Type your answer: buttons in a running cell need ipykernel 7 or newer."
UNREACHED = "Type your answer: this page sends no clicks to a running cell."
"""`OLDER` and `UNREACHED`: why the user must type an answer in a front end that otherwise shows buttons."""
BROKEN = "Type your answer: the output of this cell has failed; %agent debug says why."

ERASE_LINE = "\r\x1b[2K"

Answer = Callable[[Intent], None]
"""Receives the user's intent (an answer, a stop) from a screen."""

Retry = Callable[["View"], None]
"""Runs the turn of a view again; can be called in any thread."""


class TurnScreen(Protocol):
    """Shows a turn in a cell.

    `begin` is called in the cell, `feed` and `typing_reason` in the engine thread, the other methods in any thread.
    """

    transcript: Transcript

    @property
    def is_drawn(self) -> bool:
        """Whether a browser page has drawn a view of the turn, in which the user can click."""
        return False

    def begin(self, answer: Answer) -> None:
        """Add the screen to the cell's output, if the screen must be there before the first event."""

    async def typing_reason(self) -> str | None:
        """Return why the user must type answers ("" tells the user no reason), or None if the user can click."""
        return ""

    def feed(self, event: Event | MapProgress) -> None:
        """Show the next event of the turn."""
        ...

    def finish(self) -> None:
        """Write the static output, which a saved notebook shows; can be called again after more events."""
        ...

    def rest(self) -> None:
        """Write the static output of a turn; more turns can follow on this screen."""
        self.finish()

    def go_on(self) -> None:
        """Show another turn below the earlier turns, whose static output is written."""

    def restart(self) -> None:
        """Start with an empty transcript, because the turn begins again. The caller has cleared the cell's output."""
        ...

    def offer_retry(self, retry: "Retry | None", action: str = "retry") -> None:
        """Let the user run the turn again by a click after its end. If `retry` is None, no such click is offered.

        `action` is the type of the click's message. The call has no effect on a screen without clicks.
        """

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Show the card on which the user chooses a model; called only if the user can click."""


class FallbackScreen(TurnScreen):
    """Wraps another screen. If that screen fails, the user types replies, and the answer is printed at the end."""

    def __init__(self, screen: TurnScreen) -> None:
        self._screen = screen
        self.transcript = screen.transcript
        self._failed = False
        self._answer = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._screen, name)

    @property
    def is_drawn(self) -> bool:
        """Whether a browser page has drawn the view of the wrapped screen."""
        return self._screen.is_drawn

    def begin(self, answer: Answer) -> None:
        """Add the wrapped screen to the cell's output."""
        self._try(self._screen.begin, answer)

    async def typing_reason(self) -> str | None:
        """Return the wrapped screen's reason for typing, or None. If that screen has failed, return `BROKEN`."""
        return BROKEN if self._failed else await self._screen.typing_reason()

    def feed(self, event: Event | MapProgress) -> None:
        """Show the next event of the turn."""
        if isinstance(event, events.TurnFinished):
            self._answer = event.result.final_text
        try:  # not with `_try`, which would cost one more call for each piece of an answer
            self._screen.feed(event)
        except Exception:  # noqa: BLE001
            self._fail()

    def finish(self) -> None:
        """Write the static output; if the wrapped screen has failed, print the answer too."""
        self._try(self._screen.finish)
        if self._failed and self._answer:
            print(sanitize(self._answer))  # noqa: T201  (printing still works)
            self._answer = ""

    def rest(self) -> None:
        """Make the wrapped screen write the static output of a turn; more turns can follow."""
        self._try(self._screen.rest)

    def go_on(self) -> None:
        """Make the wrapped screen show another turn."""
        self._try(self._screen.go_on)

    def restart(self) -> None:
        """Make the wrapped screen start with an empty transcript."""
        self._try(self._screen.restart)
        self.transcript = self._screen.transcript

    def offer_retry(self, retry: Retry | None, action: str = "retry") -> None:
        """Make the wrapped screen offer to run the turn again, unless that screen has failed."""
        if not self._failed:
            self._screen.offer_retry(retry, action)

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Make the wrapped screen show the card on which the user chooses a model."""
        self._screen.offer_setup(offer)

    def _try(self, method: Callable[..., None], *args: object) -> None:
        try:
            method(*args)
        except Exception:  # noqa: BLE001  (the turn and the cell must continue)
            self._fail()

    def _fail(self) -> None:
        if not self._failed:
            logger.exception("the screen of a cell failed")
        self._failed = True


class BatchScreen(TurnScreen):
    """Shows one output at the end, without times or updates, so that every run of a notebook gives the same output."""

    def __init__(self, publish: Publish, *, large: bool = False) -> None:
        self._publish = publish
        self._large = large
        self.restart()

    def restart(self) -> None:
        """Begin with an empty transcript."""
        self.transcript = Transcript()
        self._over = False

    def feed(self, event: Event | MapProgress) -> None:
        """Add an event to the transcript."""
        self.transcript.feed(event)

    def finish(self) -> None:
        """Show the turn, once."""
        if self.transcript.blocks and not self._over:
            self._over = True
            page = zoom(html.render(self.transcript, times=False), large=self._large)
            self._publish(bundle(self.transcript, page, times=False), False)


_JSON = ("{", "[")
"""The first characters of an answer in JSON."""


class TerminalScreen(TurnScreen):
    """Prints a turn as text: a line for each tool call, other blocks when they are complete, the answer as it arrives.

    In a terminal that can erase a line, a status line at the end says what the turn is doing, and Markdown is rendered
    paragraph by paragraph if rich is installed.
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
        """Begin with an empty transcript; the printed text stays."""
        self.transcript = Transcript()
        self._begun_keys: set[int] = set()
        self._printed_keys: set[int] = set()
        self._tasks: dict[str, str] = {}
        self._text_part = -1
        self._start = ""
        self._shown_stream = ShownStream()
        self._rest = ""

    def feed(self, event: Event | MapProgress) -> None:
        """Add an event to the transcript, and print the new text."""
        self.transcript.feed(event)
        match event:
            case events.PartDelta():
                self._start = self._start or event.text.lstrip()[:1]
                if event.index == self._text_part and self._start not in _JSON:
                    self._print_piece(self.transcript.blocks[-1], self._shown_stream.feed(event.text))
            case events.PartStarted():
                self._text_part = event.index if event.kind == "text" else -1
                self._start = ""
                self._shown_stream = ShownStream() if event.kind == "text" else self._shown_stream
            case _:
                self._print_new()
        if isinstance(event, events.TurnStarted) and self._erases:
            self._tick()
        elif self._erases:
            self._tell()

    def finish(self) -> None:
        """Print the text that is not printed yet, and erase the status line."""
        self._print_new()
        self._end_line()
        self._show("")

    def _print_piece(self, block: Block, piece: str) -> None:
        """Print a piece of the answer; if Markdown is rendered, print whole paragraphs and keep the rest for later.

        The piece comes from `ShownStream`, which never cuts a secret in two.
        """
        text = self._rest + piece
        whole, self._rest = terminal.split_paragraphs(text) if self._draw else (text, "")
        if whole:
            self._print(block, whole)

    def _print(self, block: Block, text: str) -> None:
        """Print the text of a block, or of a part of the block."""
        if self._draw is None or not isinstance(block, TextBlock):
            self._begin(block)
            self._write(text)
        elif text.strip():
            if block.key in self._begun_keys:
                self._write("\n")
            self._begin(block)
            self._show("")
            self._draw(text)

    def _print_new(self) -> None:
        """Print the blocks that are complete, or the rest of blocks that are printed in part."""
        for block in self.transcript.blocks:
            if isinstance(block, ChecklistBlock) and block.key not in self._printed_keys:
                self._print_tasks(block)
            is_open = block.open and not isinstance(block, RetryBlock)  # a retry is printed while it waits
            if is_open and block.key in self._printed_keys:  # a tool call was reopened for an approval: print again
                self._printed_keys.discard(block.key)
                self._begun_keys.discard(block.key)
            if (
                is_open
                or block.key in self._printed_keys
                or isinstance(block, PromptBlock)
                or self._may_be_value(block)
            ):
                continue
            self._printed_keys.add(block.key)
            if isinstance(block, RetryBlock) and self._erases:
                continue  # print no text for a retry: the status line shows it
            if isinstance(block, ChecklistBlock):
                text = call_words.plan_heading(block)
            elif block.key in self._begun_keys:
                text, self._rest = self._rest + self._shown_stream.finish(), ""
                if isinstance(block, TextBlock) and block.sources:  # the text is printed, its sources are not
                    text = f"{text.rstrip()}\n\n{terminal.source_lines(block)}"
            else:
                text, self._rest = block.render(terminal.TextRenderer(brief=True)), ""
            if text:
                self._print(block, text)
            self._end_line()

    def _may_be_value(self, block: Block) -> bool:
        """Return whether a block may be the turn's typed answer: the turn runs, and this is its last text, in JSON."""
        if not isinstance(block, TextBlock) or self.transcript.running is None:
            return False
        is_last = block is self.transcript.blocks[-1]
        return is_last and block.key not in self._begun_keys and block.text.lstrip()[:1] in _JSON

    def _print_tasks(self, block: ChecklistBlock) -> None:
        """Print a checklist of tasks once, then a line for each task that has ended or is tried again."""
        lines = {row.task.id: terminal.task_line(row) for row in block.rows}
        running = {row.task.id for row in block.rows if row.state == "running"}
        if self._tasks.keys() != lines.keys():
            self._print(block, block.render(terminal.TextRenderer(brief=True)) + "\n")
        elif changed_lines := [line for one, line in lines.items() if one not in running and line != self._tasks[one]]:
            self._begun_keys.discard(block.key)
            self._print(block, "\n".join(changed_lines) + "\n")
        self._tasks = lines

    def _begin(self, block: Block) -> None:
        """Print the gap before the first text of a block: an empty line, or nothing between two tool cards."""
        if block.key in self._begun_keys:
            return
        self._begun_keys.add(block.key)
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
        """Update the seconds in the status line each second, except while a tool runs, which may print in that line."""
        if self.transcript.running is None:
            return
        if not any(isinstance(block, ToolCard) and block.open for block in self.transcript.blocks):
            self._tell()
        engine().loop.call_later(1.0, self._tick)

    def _tell(self) -> None:
        running = self.transcript.running
        # A turn in the background has no status line, because the line would overwrite the terminal's prompt.
        doing = call_words.activity(running, self.transcript.blocks) if running and engine().main.serving else ""
        if doing and isinstance(last := self.transcript.blocks[-1], RetryBlock):
            doing = words.retry(last, times=False)
        if doing != self._doing[0]:
            self._doing = doing, time.monotonic()
        seconds = int(time.monotonic() - self._doing[1])
        self._show(f"◐ {doing} ({seconds} s) " if seconds else f"◐ {doing} " if doing else "")

    def _show(self, status: str) -> None:
        """Replace the text of the status line, which is the last line of the terminal."""
        if not self._erases or self._in_line or status == self._status:
            return
        self._status = status
        columns = get_terminal_size().columns - 1
        self._stream.write(f"{ERASE_LINE}{status[:columns]}")
        self._stream.flush()


class LiveHtml:
    """HTML for front ends without the widget, updated while the turn runs and replaced by the static output.

    `aside` wraps HTML so that a browser hides it while the widget is drawn. While `is_drawn` returns True, the HTML is
    updated only when the turn begins to wait for the user, and for a map every few seconds (`MAP_SECONDS`). This is
    because in JupyterLab each update of an output slows down the streaming of other outputs.
    """

    def __init__(
        self, transcript: Transcript, publish: Publish, aside: Callable[[Markup], Markup], is_drawn: Callable[[], bool]
    ) -> None:
        self._transcript = transcript
        self._publish = publish
        self._aside = aside
        self._is_drawn = is_drawn
        self._lock = threading.Lock()  # held while rendering, which is slow: the engine thread must not wait for it
        self._renderer = html.HtmlRenderer(live=True)
        self._snapshot = Snapshot([], None)
        self._request = OutputUpdates(self._update, GRACE, FRAME).update
        self._due = False
        self._shown_at = 0.0
        self._begun = False
        self._over = False

    def begin(self) -> None:
        """Show the HTML as a new output: at the start of the turn, and when the turn begins again."""
        with self._lock:
            self._begun = self._over = False
            self._show()

    def go_on(self) -> None:
        """Resume the updates after the static output was written, for another turn."""
        with self._lock:
            self._over = False

    def look(self, event: Event | MapProgress) -> None:
        """Update the HTML a moment later, if necessary, because an event has changed the transcript."""
        is_map = isinstance(event, MapProgress)
        waits = isinstance(events.innermost(event), WAITS)
        self._due |= waits or (is_map and time.monotonic() - self._shown_at > MAP_SECONDS)
        if self._needs_update():
            self._request()

    def finish(self) -> None:
        """Replace the live output by the static output."""
        with self._lock:
            self._over = True  # prevents an update that is already due from replacing the static output
            if self._begun:
                snapshot = self._transcript.snapshot()
                self._send(bundle(snapshot, self._aside(html.render(snapshot))))

    def _update(self) -> int:
        with self._lock:
            return self._show() if self._needs_update() else 0

    def _needs_update(self) -> bool:
        return not self._over and (self._due or not self._is_drawn())

    def _show(self) -> int:
        self._shown_at = time.monotonic()
        self._due = False  # reset before the snapshot: a question that comes after the snapshot needs another update
        self._snapshot = self._transcript.snapshot(self._snapshot)
        page = self._renderer.update(self._snapshot)
        self._send({"text/html": self._aside(page), "text/plain": "The turn was under way when this was shown."})
        return len(page)

    def _send(self, data: Mapping[str, str]) -> None:
        self._publish(data, self._begun)
        self._begun = True


class LiveScreen(TurnScreen):
    """Shows a turn as a view in which the user can click, and as HTML for front ends without the widget.

    View and HTML are separate outputs: a browser page redraws an updated output, which closes the open cards in it.
    """

    def __init__(self, place: Publish, html: Publish, *, reachable: bool, large: bool = False) -> None:
        from agentmagic.widgets.view import View  # imported late: it loads anywidget, which only this screen needs

        self._view = View(self)
        self.transcript = self._view.transcript
        self._publish_view = place
        aside = self._view.aside
        self._html = LiveHtml(
            self.transcript, html, lambda page: aside(zoom(page, large=large)), self._view.mounted.is_set
        )
        self._reachable = reachable
        self._large = large
        self._retry: Retry | None = None
        self._offered = ""
        self._setup: ModelSetup | None = None

    def begin(self, answer: Answer) -> None:
        """Add the view to the cell's output, and below it the HTML for front ends without the widget."""
        self._answer = answer
        self._view.tell({"actions": [*INTENTS, *SETUP, STOP_MAP], "large": self._large})
        self._publish_view(self._view.place, False)
        self._html.begin()

    def act(self, action: "Action") -> None:
        """Carry out the user's click in the view: answer the turn, stop it, choose a model, or run the turn again."""
        from agentmagic.widgets.page_messages import AskRows, RetryTurn, SetupAction, StopMap

        if isinstance(action, Intent | StopMap):
            self._answer(Stop() if isinstance(action, StopMap) else action)
        elif isinstance(action, SetupAction):
            if self._setup is not None:
                self._setup.act(action)
        elif isinstance(action, RetryTurn | AskRows) and self._retry is not None:
            self._retry(self._view)

    async def typing_reason(self) -> str | None:
        """Wait a moment for a browser page's first message. Return why clicks do not reach the kernel, or None."""
        if self._reachable and await self._view.takes_clicks():
            return None
        return UNREACHED if self._reachable else OLDER

    def offer_setup(self, offer: "Callable[[View], ModelSetup]") -> None:
        """Show, in the view, the card on which the user chooses a model."""
        self._setup = offer(self._view)

    def go_on(self) -> None:
        """Show another turn in the same view, and accept clicks again."""
        self._view.tell({"actions": [*INTENTS]})
        self._html.go_on()

    def restart(self) -> None:
        """Begin with an empty transcript, in the same view."""
        self._view.replace(())
        self._view.tell({"setup": None})

    def offer_retry(self, retry: Retry | None, action: str = "retry") -> None:
        """Offer in the view to run the turn again, if clicks reach the kernel while a cell runs."""
        self._retry, self._offered = retry if self._reachable else None, action

    def feed(self, event: Event | MapProgress) -> None:
        """Pass an event of the turn to the view and the HTML, which draw it a moment later."""
        self._view.feed(event)
        self._html.look(event)

    def rest(self) -> None:
        """Write the static output. The view stays connected, even if many turns of other cells end later."""
        self._view.tell({"actions": [self._offered] if self._retry is not None else [], "setup": None})
        self._view.flush()  # first, so that the page draws the end while the HTML is rendered
        self._html.finish()

    def finish(self) -> None:
        """Write the static output. The view stays connected to the kernel until several later turns are over."""
        from agentmagic.widgets.view import keep

        self.rest()
        keep(self._view)

    @property
    def is_drawn(self) -> bool:
        """Whether a browser page has drawn the view."""
        return self._view.mounted.is_set()


def screen_of(front: FrontEnd, *, large: bool = False) -> TurnScreen:
    """Return a new screen for the running cell; `large` makes its type large, as for a projector."""
    match front.kind:
        case Kind.LIVE:
            view_publisher, html_publisher = (publisher(front.shell, uuid.uuid4().hex) for _ in range(2))
            screen = LiveScreen(view_publisher, html_publisher, reachable=front.reachable, large=large)
        case Kind.BATCH:
            screen = BatchScreen(publisher(front.shell, None), large=large)
        case Kind.TEXT:
            screen = TerminalScreen(sys.stdout)
    return FallbackScreen(screen)
