"""Show a conversation as static HTML in a cell's output, for front ends without the widget and saved notebooks."""

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
"""Latest turns whose calls are shown in full in a panel's HTML. JupyterLab parses all of that HTML after each turn."""

BYTES_PER_SECOND = 2_000_000
"""Characters of HTML that an output sends a second at most, because Jupyter's server limits the rate.

So a longer output is updated less often.
"""

LARGE = 1.75
"""The zoom factor for a projector."""

Publish = Callable[[Mapping[str, str], bool], None]
"""Sends a MIME bundle to the cell; with True, the bundle replaces the one that was sent before."""


def bundle(
    transcript: Transcript | Snapshot, page: Markup | None = None, *, times: bool = True, prompt: bool = False
) -> dict[str, str]:
    """Return a transcript as a MIME bundle of static HTML and plain text. `page` is the HTML, if it exists already."""
    page = html.render(transcript, times=times, prompt=prompt) if page is None else page
    return {"text/html": page, "text/plain": terminal.render(transcript, times=times, prompt=prompt)}


def zoom(page: Markup, *, large: bool) -> Markup:
    """Return HTML unchanged, or, if `large`, in large type whose smallest letters are about 20 pixels high."""
    return Markup('<div style="zoom:{}">{}</div>').format(LARGE, page) if large else page


class OutputUpdates:
    """Updates one cell output again and again, outside the engine's event loop and never twice at the same time.

    The function `show` renders and publishes the HTML, and returns its length, or 0 if there was nothing to publish.
    `pause` is the number of seconds before the first update, and `shortest` the minimum before each later one.
    """

    def __init__(self, show: Callable[[], int], pause: float = 0.0, shortest: float = 0.0) -> None:
        self._show = show
        self._pause = pause
        self._shortest = shortest
        self._lock = threading.Lock()
        self._is_pending = False
        self._working = False

    def update(self) -> None:
        """Request an update of the output, which runs soon, with the caller's context variables. Thread-safe."""
        with self._lock:
            self._is_pending = True
            if self._working:
                return
            self._working = True
        # The thread gets a copy of the context, because IPython finds the cell of an output by context variables.
        in_thread(self._work, "agentmagic-html")

    def _work(self) -> None:
        while self._working:
            if HOME.threads:
                time.sleep(self._pause)
            # This update shows everything up to now. A request that comes from here on needs another update.
            self._is_pending = False
            try:
                if length := self._show():
                    self._pause = max(self._shortest, length / BYTES_PER_SECOND)
            except Exception:  # noqa: BLE001  (a failed output must not end all later updates)
                logger.exception("an output could not be updated")
            # Take the lock, so that no request is lost between this check and the end of the thread.
            with self._lock:
                self._working = self._is_pending


class SessionHtml:
    """Keeps the HTML of a session's finished turns up to date in a cell output. Thread-safe.

    The function `aside` wraps the HTML in an element. If `replacement` returns a line, that is shown instead of the
    turns.
    """

    def __init__(
        self,
        transcript: Transcript,
        aside: Callable[[Markup], Markup],
        publish: Publish = lambda _data, _update: None,
        replacement: Callable[[], str] = str,
    ) -> None:
        self._replacement = replacement
        self._transcript = transcript
        self._aside = aside
        self._publish = publish
        self._lock = threading.Lock()
        self._renderer = html.HtmlRenderer(prompt=True, whole_turns=WHOLE_TURNS)
        self._shown = Snapshot([], None)
        self._is_started = False
        self.update = OutputUpdates(lambda: self.show(update=True)).update

    def move(self, publish: Publish, line: str) -> None:
        """Show `line` instead of the HTML in the current output, and publish the HTML to another output from now on."""
        with self._lock:
            if self._is_started:
                self._show_line(line, update=True)
            self._publish = publish

    def show(self, *, update: bool = False) -> int:
        """Show the HTML in the output of the cell that runs this; with `update`, replace it where it is shown.

        Return the length of the HTML.
        """
        with self._lock:
            self._is_started = True
            if line := self._replacement():
                return self._show_line(line, update=update)
            self._shown = self._transcript.snapshot(self._shown, finished=True)
            page = self._aside(self._renderer.update(self._shown))
            self._publish(bundle(self._shown, page, prompt=True), update)
            return len(page)

    def _show_line(self, line: str, *, update: bool) -> int:
        page = self._aside(Markup("<p><small>{}</small></p>").format(line))
        self._publish({"text/html": page, "text/plain": line}, update)
        return len(page)
