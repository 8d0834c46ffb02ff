"""The widget that shows a session in a page, as a turn in a cell or as the chat panel."""

import asyncio
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

from anywidget import AnyWidget
from markupsafe import Markup
from traitlets import Unicode

from agentmagic.errors import UsageError, with_code
from agentmagic.events import Event, MapProgress
from agentmagic.runtime.engine import engine
from agentmagic.widgets import commands
from agentmagic.widgets.busy_kernel import answer_pages_anytime, take_messages_anywhere
from agentmagic.widgets.sync import Feed, pieces
from agentmagic.widgets.view_messages import InspectionPage, Message, Problem, State

if TYPE_CHECKING:
    from agentmagic.widgets.page_messages import Action

STATIC = Path(__file__).parent / "static"

FRAME = 0.085
"""Seconds between two frames; with shorter ones the frames would weigh more than the text in them."""

AGAIN = 1.0
"""Seconds in which a hello that is said again is not answered again: the answer is on its way."""

PATIENCE = 5.0
"""Seconds in which the hello of a page should reach a running cell; the first time, the page fetches the library."""

HASTE = 0.5
"""The same, if the last page did not reach the kernel in time."""

ANSWER = 2.0
"""Seconds in which a page that is open answers the question whether it is there."""

KEPT = 20
"""Views of turns that are over and can still be drawn; pages show the static output of older ones."""

Home = Literal["cell", "panel"]


class Listener(Protocol):
    """Carries out what the user does in a view."""

    def act(self, action: "Action") -> None:
        """Carry out an action, in any thread: that of the front end's message.

        A UsageError is shown to the person in the view.
        """
        ...


class _Widget(AnyWidget):
    """A widget whose messages arrive while a cell runs, and on a page that is slow to load it."""

    # By this the page finds the connection, which anywidget does not hand out: see `hear` in js/src/index.js.
    id = Unicode().tag(sync=True)

    def __init__(self, **given: Any) -> None:
        own = uuid.uuid4().hex
        super().__init__(model_id=own, id=own, **given)
        # ipywidgets gives each widget a second one, its layout.
        for each in (self, cast("Any", self).layout):
            take_messages_anywhere(each.comm)


class Library(_Widget):
    """The code and the style sheet of all views of a kernel; a page loads them once, not once a cell."""

    _esm = (STATIC / "view.js").read_text(encoding="utf-8")
    sheet = Unicode((STATIC / "view.css").read_text(encoding="utf-8")).tag(sync=True)
    name = Unicode().tag(sync=True)

    def __init__(self, **given: Any) -> None:
        self._here = threading.Event()
        self._asking = threading.Lock()
        super().__init__(**given)
        cast("Any", self).on_msg(self._hear)

    def _hear(self, *_: object) -> None:
        self._here.set()

    def has_page(self, seconds: float) -> bool:
        """Ask all pages whether one is open, and wait for the first answer; in any thread but the engine's."""
        with self._asking:
            self._here.clear()
            cast("Any", self).send({"type": "there"})
            return self._here.wait(seconds)


class View(_Widget):
    """Shows a session's blocks as they come, and hands on what a person does there.

    `home` is "cell" for one turn without an input, or "panel". It is drawn wherever `place` is shown, by any
    number of pages; `name` is that of an earlier view whose places it takes over. `transcript` has what it shows,
    and is read for the static HTML beside it. Events are fed on the engine, in the context of the cell that shows
    the view. Nothing is sent before a page has said hello: `mounted` is set by then, and tells that clicks reach
    this kernel even while a cell runs.
    """

    # The library may come before or after; both ends are in js/src/index.js.
    _esm = """
    export default {
      initialize({ model }) {
        const view = { model, gone: false, close() {} }
        const queues = (globalThis.agentmagic ??= {});
        (queues[model.get("library")] ??= []).push(view)
        return () => {
          view.gone = true
          view.close()
        }
      }
    }
    """
    home = Unicode().tag(sync=True)
    name = Unicode().tag(sync=True)
    library = Unicode().tag(sync=True)
    patience: ClassVar = PATIENCE

    def __init__(
        self, listener: Listener, *, home: Home = "cell", events: Iterable[Event] = (), name: str = ""
    ) -> None:
        self.mounted = threading.Event()
        self._made = time.monotonic()
        self._listener = listener
        self._feed = Feed(events)
        self.transcript = self._feed.transcript
        self._sending = threading.Lock()
        self._waiting = False
        self._messages = 0
        self._answered = ("", 0, 0.0)
        super().__init__(home=home, name=name or uuid.uuid4().hex, library=_library().name)
        cast("Any", self).on_msg(self._receive)

    @property
    def place(self) -> dict[str, str]:
        """The output in which pages draw the view; without a kernel it shows nothing."""
        return {"text/html": f'<agentmagic-view view="{self.name}"></agentmagic-view>', "text/plain": ""}

    def aside(self, page: Markup) -> Markup:
        """Return HTML that a page hides if it draws the view."""
        return Markup('<agentmagic-static of="{}">{}</agentmagic-static>').format(self.name, page)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, str]]:
        return self.place, {}

    async def takes_clicks(self) -> bool:
        """Whether a page takes clicks while a cell runs; waits for its hello, for `patience` seconds at most."""
        left = max(0.0, self._made + View.patience - time.monotonic())
        if await engine().in_pool(lambda: self.mounted.wait(left)):
            return True
        View.patience = HASTE
        return False

    def feed(self, event: Event | MapProgress) -> None:
        """Take the next event; pages see it with the next frame."""
        self._feed.feed(event)
        self._soon()

    def tell(self, state: State) -> None:
        """Change what is shown around the blocks; from any thread."""
        self._feed.tell(state)
        engine().loop.call_soon_threadsafe(self._soon)

    def replace(self, events: Iterable[Event], running: Iterable[tuple[Event, float]] = ()) -> None:
        """Show another history, and the turn under way, each event with its time; from any thread."""
        self._feed.replace(events, running)
        engine().loop.call_soon_threadsafe(self._soon)

    def complain(self, problem: str, unsent: str = "") -> None:
        """Say what could not be done, and give back the prompt that was not sent because of it; from any thread."""
        found: Problem = {"problem": problem}
        if unsent:
            found["unsent"] = unsent
        self._deliver(lambda: [found])

    def give_back(self, unsent: str) -> None:
        """Give back what was typed and is not sent; from any thread."""
        self._deliver(lambda: [{"unsent": unsent}])

    def say(self, words: str) -> None:
        """Say what was done, if nothing else shows it; from any thread."""
        self._deliver(lambda: [{"said": words}])

    def show_inspection(self, found: InspectionPage) -> None:
        """Send what a turn sent and received, once, to the pages that asked for it; from any thread."""
        self._deliver(lambda: [{"inspection": found}])

    def flush(self) -> None:
        """Send what has changed now, rather than with the next frame; from any thread."""
        self._waiting = False
        if self.mounted.is_set():
            self._deliver(lambda: filter(None, [self._feed.frame()]))

    def _soon(self) -> None:
        if self.mounted.is_set() and not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_later(FRAME, self.flush)

    def _deliver(self, take: Callable[[], Iterable[Message]]) -> None:
        """Send messages in the order in which they were numbered."""
        with self._sending:
            for message in take():
                self._messages += 1
                for piece in pieces(message, self._messages):
                    cast("Any", self).send(piece)

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        match content:
            case {"type": "hello", "view": str(name), "seen": int(seen)} if len(name) <= commands.LONGEST_NAME:
                if threading.current_thread() is not threading.main_thread():
                    View.patience = PATIENCE
                self.mounted.set()
                if not self._is_on_its_way(name, seen):
                    self._deliver(lambda: self._feed.hello(name, seen))
            case {"type": "whole", "key": int(key)}:
                self._feed.show_whole(key)
                self.flush()
            case _:
                self._act(content)

    def _is_on_its_way(self, name: str, seen: int) -> bool:
        """Whether this hello was answered just now; a page repeats it, and all of them may have waited for a cell."""
        before, now = self._answered, time.monotonic()
        if before[:2] == (name, seen) and now - before[2] < AGAIN:
            return True
        self._answered = (name, seen, now)
        return False

    def _act(self, content: object) -> None:
        from agentmagic.widgets import page_messages  # loads pydantic, which no page needs before the first click

        try:
            self._listener.act(page_messages.read(content, self.transcript.asked.get))
        except UsageError as error:
            self.complain(with_code(error))


_kept: deque[View] = deque()


def keep(view: View) -> None:
    """Let a view that is over be drawn on, until `KEPT` others are over too."""
    if view in _kept:  # its turn was tried again
        _kept.remove(view)
    _kept.append(view)
    while len(_kept) > KEPT:
        _kept.popleft().close()


def has_page(seconds: float = ANSWER) -> bool:
    """Return whether a page that draws views of this kernel is open now; in any thread but the engine's.

    A page answers also while a cell runs, from ipykernel 7.0 on.
    """
    return _library().has_page(seconds)


@cache
def _library() -> Library:
    """Return the library of this kernel."""
    library = Library(name=uuid.uuid4().hex)
    answer_pages_anytime(getattr(library.comm, "kernel", None))
    return library
