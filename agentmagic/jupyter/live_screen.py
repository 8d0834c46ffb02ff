"""A turn in a cell that a page shows: a view that takes clicks, and HTML for whoever draws none."""

import asyncio
import threading
from collections.abc import Callable, Mapping

from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.events import ApprovalAsked, Event, Intent, QuestionAsked, ToolFinished, ToolStarted
from agentmagic.jupyter.screens import Answer, Publish, bundle
from agentmagic.widgets.commands import INTENTS, Action
from agentmagic.widgets.view import View, keep

FRAME = 0.1
"""Seconds between two updates of a live output at least."""

GRACE = 0.4
"""Seconds until the first update: by then most pages have said hello, and need none."""

BYTES_PER_SECOND = 2_000_000
"""How much HTML a live output sends at most; a longer one is updated less often."""

MILESTONES = (ApprovalAsked, QuestionAsked, ToolStarted, ToolFinished)
"""Events at which the HTML is updated even where nobody sees it: it is in the notebook when that is saved."""

OLDER = "It is typed: buttons reach a running cell from ipykernel 7 on."
UNREACHED = "It is typed: this page sends no clicks to a running cell."
"""Why an answer is typed where there could be buttons."""


class Html:
    """One output that is updated while the turn runs, and ends as its static form.

    It stands `aside` for what shows the same in another way: while that is `seen`, it is updated at milestones
    only, so that something is there when the page is loaded anew, or the kernel ends, in the middle of the turn.
    """

    def __init__(self, publish: Publish, aside: Callable[[str], str], seen: Callable[[], bool]) -> None:
        self._publish = publish
        self._aside = aside
        self._seen = seen
        self._lock = threading.Lock()
        self._pause = GRACE
        self._waiting = False
        self._due = False
        self._begun = False
        self.restart()

    def begin(self) -> None:
        """Show an output to be updated."""
        with self._lock:
            self._show()

    def restart(self) -> None:
        """Begin with an empty transcript, in the same place."""
        with self._lock:
            self._transcript = Transcript()
            self._renderer = html.HtmlRenderer(live=True)
            self._over = False

    def feed(self, event: Event) -> None:
        """Take an event in; what it changes is seen at the next frame."""
        with self._lock:
            self._transcript.feed(event)
            self._due |= isinstance(event, MILESTONES)
            if self._waiting or not self._is_wanted():
                return
            self._waiting = True
        asyncio.get_running_loop().call_later(self._pause, self._update)

    def finish(self) -> None:
        """Put the static output in the place of the live one."""
        with self._lock:
            self._over = True
            if self._begun:
                self._send(bundle(self._transcript, times=True))

    def _update(self) -> None:
        with self._lock:
            self._waiting = False
            if self._is_wanted():
                self._due = False
                self._pause = max(FRAME, self._show() / BYTES_PER_SECOND)

    def _is_wanted(self) -> bool:
        return not self._over and (self._due or not self._seen())

    def _show(self) -> int:
        page = self._renderer.update(self._transcript)
        self._send({"text/html": page, "text/plain": "The turn is under way."})
        return len(page)

    def _send(self, data: Mapping[str, str]) -> None:
        self._publish({**data, "text/html": self._aside(data["text/html"])}, self._begun)
        self._begun = True


class LiveScreen:
    """A view that a page draws and takes clicks in, and the same as HTML for whoever draws none.

    The HTML is updated until a page has said hello, and is what stays in the saved notebook. It and the place of
    the view are outputs of their own: an output that is updated is drawn anew, with all that was opened in it.
    """

    def __init__(self, place: Publish, html: Publish, *, reachable: bool) -> None:
        self._answers = _Answers()
        self._view = View(self._answers)
        self._place = place
        self._html = Html(html, self._view.aside, self._view.mounted.is_set)
        self._reachable = reachable
        self._begun = False

    def begin(self, answer: Answer) -> None:
        """Show the place of the view, and below it the HTML."""
        self._answers.to = answer
        self._view.tell({"actions": list(INTENTS)})
        if not self._begun:
            self._begun = True
            self._place(self._view.place, False)
        self._html.begin()

    async def typed(self) -> str | None:
        """Wait for the page's hello, no longer than it should take."""
        if self._reachable and await self._view.takes_clicks():
            return None
        return UNREACHED if self._reachable else OLDER

    def restart(self) -> None:
        """Begin with an empty transcript, in the same place."""
        self._view.replace(())
        self._html.restart()

    def feed(self, event: Event) -> None:
        """Take an event in; what it changes is seen at the next frame."""
        self._view.feed(event)
        self._html.feed(event)

    def finish(self) -> None:
        """Leave the static output, and the view as long as few others came after it."""
        self._view.tell({"actions": []})
        self._view.flush()  # the page draws the last words while the HTML is made
        self._html.finish()
        keep(self._view)


class _Answers:
    """Hands on what is clicked in the view of a turn."""

    to: Answer

    def act(self, action: Action) -> None:
        """Take an action: an answer to the turn, the only ones that its view offers."""
        if isinstance(action, Intent):
            self.to(action)
