"""The conversation as HTML in a panel's output: what the saved notebook shows without a kernel."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from agentmagic.display import html, terminal
from agentmagic.display.transcript import Transcript
from agentmagic.events import Event

BYTES_PER_SECOND = 2_000_000
"""How much HTML is sent at most; a longer conversation is brought up to date less often."""

Publish = Callable[[Mapping[str, str], bool], None]
"""Sends a MIME bundle to the cell, as an update of what was sent before or as the first of it."""


class Written:
    """Keeps the HTML of a session up to date, turn by turn; on the engine.

    `log` returns the events of the finished turns. `aside` wraps the HTML.
    """

    def __init__(self, log: Callable[[], Sequence[Event]], aside: Callable[[Markup], Markup], publish: Publish) -> None:
        self._log = log
        self._aside = aside
        self._publish = publish
        self._waiting = False
        self._pause = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin anew: the log has become another."""
        self._transcript = Transcript()
        self._renderer = html.HtmlRenderer(prompt=True)
        self._read = 0

    async def show(self) -> None:
        """Put the HTML into the output of the cell in whose context this runs."""
        self._publish(self._bundle(), False)

    def update(self) -> None:
        """Bring all outputs up to date, soon."""
        if not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_later(self._pause, self._update)

    def _update(self) -> None:
        self._waiting = False
        bundle = self._bundle()
        self._pause = len(bundle["text/html"]) / BYTES_PER_SECOND
        self._publish(bundle, True)

    def _bundle(self) -> dict[str, str]:
        events = self._log()
        for event in events[self._read :]:
            self._transcript.feed(event)
        self._read = len(events)
        return bundle(self._transcript, self._aside(self._renderer.update(self._transcript)))


def bundle(transcript: Transcript, page: Markup, *, times: bool = True) -> dict[str, str]:
    """Return HTML with the conversation as plain text beside it."""
    return {"text/html": page, "text/plain": terminal.render(transcript, times=times, prompt=True)}
