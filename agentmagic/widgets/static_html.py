"""The conversation as HTML in an output: what front ends without the widget and saved notebooks show."""

import threading
import time
from collections.abc import Callable, Mapping

from markupsafe import Markup

from agentmagic.display import html, terminal
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.log import logger
from agentmagic.runtime.engine import in_thread
from agentmagic.runtime.home import HOME

WHOLE_TURNS = 20
"""Turns of a panel whose calls are kept whole in its HTML: JupyterLab reads all of it again after each turn."""

BYTES_PER_SECOND = 2_000_000
"""HTML that an output sends at most: Jupyter's server limits the rate, so a long output is updated less often."""

LARGE = 1.75
"""How many times larger the type for a projector is."""

Publish = Callable[[Mapping[str, str], bool], None]
"""Sends a MIME bundle to the cell: with True, as an update of the one sent before."""


def bundle(
    transcript: Transcript | Snapshot, page: Markup | None = None, *, times: bool = True, prompt: bool = False
) -> dict[str, str]:
    """Return HTML without scripts, and plain text beside it; `page` is the HTML if it was made before."""
    page = html.render(transcript, times=times, prompt=prompt) if page is None else page
    return {"text/html": page, "text/plain": terminal.render(transcript, times=times, prompt=prompt)}


def sized(page: Markup, *, large: bool) -> Markup:
    """Return HTML as it is, or in large type: its smallest letters are then about 20 pixels high."""
    return Markup('<div style="zoom:{}">{}</div>').format(LARGE, page) if large else page


class OutputUpdates:
    """Updates one output again and again, off the engine's loop and never twice at a time.

    `show` renders, publishes and returns the length of the HTML, or 0 if there was nothing to publish. `pause` is
    the number of seconds before the first update, `shortest` before each later one.
    """

    def __init__(self, show: Callable[[], int], pause: float = 0.0, shortest: float = 0.0) -> None:
        self._show = show
        self._pause = pause
        self._shortest = shortest
        self._lock = threading.Lock()
        self._asked = False
        self._working = False

    def update(self) -> None:
        """Update the output soon, in the context of the caller. Thread-safe, and returns at once."""
        with self._lock:
            self._asked = True
            if self._working:
                return
            self._working = True
        # The thread gets a copy of the context: IPython routes an output to its cell by context variables.
        in_thread(self._work, "agentmagic-html")

    def _work(self) -> None:
        while self._working:
            if HOME.threads:
                time.sleep(self._pause)
            # An update shows all that has happened by now: requests from here on need another one.
            self._asked = False
            try:
                if length := self._show():
                    self._pause = max(self._shortest, length / BYTES_PER_SECOND)
            except Exception:  # noqa: BLE001  (a failed output must not end all later updates)
                logger.exception("an output could not be updated")
            # Under the lock, so that no request is lost between the look at it and the end of the thread.
            with self._lock:
                self._working = self._asked


class SessionHtml:
    """Keeps the HTML of a session's finished turns up to date. `aside` wraps the HTML. Thread-safe.

    `saved` returns a line that stands in place of the turns, or "".
    """

    def __init__(
        self,
        transcript: Transcript,
        aside: Callable[[Markup], Markup],
        publish: Publish = lambda _data, _update: None,
        saved: Callable[[], str] = str,
    ) -> None:
        self._saved = saved
        self._transcript = transcript
        self._aside = aside
        self._publish = publish
        self._lock = threading.Lock()
        self._renderer = html.HtmlRenderer(prompt=True, whole_turns=WHOLE_TURNS)
        self._shown = Snapshot([], None)
        self._begun = False
        self.update = OutputUpdates(lambda: self.show(update=True)).update

    def move(self, publish: Publish, line: str) -> None:
        """Leave a line in the output where the HTML stands, and publish to another one from now on."""
        with self._lock:
            if self._begun:
                self._show_line(line, update=True)
            self._publish = publish

    def show(self, *, update: bool = False) -> int:
        """Put the HTML into the output of the cell in whose context this runs, or update all outputs."""
        with self._lock:
            self._begun = True
            if line := self._saved():
                return self._show_line(line, update=update)
            self._shown = self._transcript.snapshot(self._shown, finished=True)
            page = self._aside(self._renderer.update(self._shown))
            self._publish(bundle(self._shown, page, prompt=True), update)
            return len(page)

    def _show_line(self, line: str, *, update: bool) -> int:
        page = self._aside(Markup("<p><small>{}</small></p>").format(line))
        self._publish({"text/html": page, "text/plain": line}, update)
        return len(page)
