"""The widget that shows a session in a browser page: one turn below a cell, or the conversation in the chat panel."""

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

from agentmagic.display.printout import Printout
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
"""Seconds between two frames. With more frequent frames, their overhead would exceed the text in them."""

AGAIN = 1.0
"""Seconds in which a repeated hello is not answered, because the first answer is still on its way."""

PATIENCE = 5.0
"""Seconds to wait for the hello of a page while a cell runs. The first time, the page also fetches the library."""

HASTE = 0.5
"""Seconds to wait for the hello of a page if the last page did not say it in time."""

ANSWER = 2.0
"""Seconds in which an open page answers the question whether a page is open."""

MOST_FINISHED = 20
"""Finished views that can still be drawn; of older views, pages show the static output."""

Home = Literal["cell", "panel"]


class Listener(Protocol):
    """Carries out the actions that the user takes in a view, such as approving a tool call."""

    def act(self, action: "Action") -> None:
        """Carry out an action. Called in the thread that received the front end's message, which can be any thread.

        If this raises UsageError, the view shows the error to the user.
        """
        ...


class _Widget(AnyWidget):
    """A widget that receives messages even while a cell runs, also from a page that loads the widget slowly."""

    # By `id` the page finds the widget's connection, which anywidget does not expose: see `hear` in js/src/index.js.
    id = Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        own = uuid.uuid4().hex
        super().__init__(model_id=own, id=own, **traits)
        # ipywidgets gives each widget a layout, which is a second widget with a comm of its own.
        for each in (self, cast("Any", self).layout):
            take_messages_anywhere(each.comm)


class Library(_Widget):
    """A widget with the JavaScript and CSS of all views of a kernel. A browser page loads it once, not per cell."""

    _esm = (STATIC / "view.js").read_text(encoding="utf-8")
    sheet = Unicode((STATIC / "view.css").read_text(encoding="utf-8")).tag(sync=True)
    name = Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        self._here = threading.Event()
        self._asking = threading.Lock()
        super().__init__(**traits)
        cast("Any", self).on_msg(self._hear)

    def _hear(self, *_: object) -> None:
        self._here.set()

    def has_page(self, seconds: float) -> bool:
        """Return whether a browser page with this kernel's views answers within `seconds`.

        Must not be called in the engine's thread, which it would block.
        """
        with self._asking:
            self._here.clear()
            cast("Any", self).send({"type": "there"})
            return self._here.wait(seconds)


class View(_Widget):
    """Shows a session's blocks as they come, and passes the user's actions to a listener.

    `home` is "cell" for one turn without an input box, or "panel" for the chat panel. The view is drawn wherever the
    output `place` is shown, by any number of pages. If `name` is the name of an earlier view, this view replaces it
    there. `transcript` holds the blocks, and is also read for the static HTML beside the view. Events are fed in the
    engine thread, with the context variables of the cell that shows the view. Nothing is sent before a browser page has
    sent `hello`, its first message. Then `mounted` is set, which means that clicks reach this kernel even while a cell
    runs.
    """

    # The JavaScript of `Library` may load before or after a view; js/src/index.js reads this queue in both cases.
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
        self._created_at = time.monotonic()
        self._listener = listener
        self._feed = Feed(events)
        self.transcript = self._feed.transcript
        self._sending = threading.Lock()
        self._waiting = False
        self._messages = 0
        self._last_hello = ("", 0, 0.0)
        super().__init__(home=home, name=name or uuid.uuid4().hex, library=_library().name)
        cast("Any", self).on_msg(self._receive)

    @property
    def place(self) -> dict[str, str]:
        """The cell output that marks where browser pages draw the view; without a kernel it shows nothing."""
        return {"text/html": f'<agentmagic-view view="{self.name}"></agentmagic-view>', "text/plain": ""}

    def aside(self, page: Markup) -> Markup:
        """Return static HTML wrapped in an element that a browser page hides while the page draws this view."""
        return Markup('<agentmagic-static of="{}">{}</agentmagic-static>').format(self.name, page)

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, str]]:
        return self.place, {}

    async def takes_clicks(self) -> bool:
        """Wait until a browser page shows the view, but at most `patience` seconds.

        Return whether clicks on that page reach the kernel while a cell runs.
        """
        remaining = max(0.0, self._created_at + View.patience - time.monotonic())
        if await engine().in_pool(lambda: self.mounted.wait(remaining)):
            return True
        View.patience = HASTE
        return False

    def feed(self, event: Event | MapProgress) -> None:
        """Add the session's next event; pages see it with the next frame (a message with all recent changes)."""
        self._feed.feed(event)
        self._soon()

    def tell(self, state: State) -> None:
        """Change what is shown around the blocks, such as the choice of models. Thread-safe."""
        self._feed.tell(state)
        engine().loop.call_soon_threadsafe(self._soon)

    def replace(self, events: Iterable[Event], running: Iterable[tuple[Event, float]] = ()) -> None:
        """Show another history, and the turn under way from its `running` events and their times. Thread-safe."""
        self._feed.replace(events, running)
        engine().loop.call_soon_threadsafe(self._soon)

    def complain(self, problem: str, unsent: str = "") -> None:
        """Show a problem, and put the prompt that could not be sent back into the input box. Thread-safe."""
        message: Problem = {"problem": problem}
        if unsent:
            message["unsent"] = unsent
        self._deliver(lambda: [message])

    def give_back(self, unsent: str) -> None:
        """Put a typed text that was not sent back into the input box. Thread-safe."""
        self._deliver(lambda: [{"unsent": unsent}])

    def say(self, message: str) -> None:
        """Show a message below the input box until the user's next action; "" removes it. Thread-safe."""
        self._deliver(lambda: [{"said": message}])

    def show(self, printout: Printout, line: str = "") -> None:
        """Show what a command has printed at the end of the conversation; `line` is the typed command. Thread-safe."""
        self._feed.show(printout, line)
        engine().loop.call_soon_threadsafe(self._soon)

    def show_inspection(self, inspection: InspectionPage) -> None:
        """Send the inspection of a turn, once, to the pages that asked for it. Thread-safe."""
        self._deliver(lambda: [{"inspection": inspection}])

    def flush(self) -> None:
        """Send all changes now instead of waiting until the next frame is due. Thread-safe."""
        self._waiting = False
        if self.mounted.is_set():
            self._deliver(lambda: filter(None, [self._feed.frame()]))

    def _soon(self) -> None:
        if self.mounted.is_set() and not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().call_later(FRAME, self.flush)

    def _deliver(self, take: Callable[[], Iterable[Message]]) -> None:
        """Send the messages that `take` returns, in the order in which they are numbered."""
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
        """Return whether the same `hello` message of a page was answered just now.

        A page repeats its hello until it is answered. If a cell blocked the kernel, all repeats arrive together.
        """
        before, now = self._last_hello, time.monotonic()
        if before[:2] == (name, seen) and now - before[2] < AGAIN:
            return True
        self._last_hello = (name, seen, now)
        return False

    def _act(self, content: object) -> None:
        from agentmagic.widgets import page_messages  # loads pydantic, needed only at the first click

        try:
            self._listener.act(page_messages.read(content, self.transcript.approval_requests.get))
        except UsageError as error:
            self.complain(with_code(error))


_finished_views: deque[View] = deque()


def keep(view: View) -> None:
    """Keep a finished view open, so that pages can draw it, until `MOST_FINISHED` later views are finished."""
    if view in _finished_views:  # the view was finished before, and then its turn was run again
        _finished_views.remove(view)
    _finished_views.append(view)
    while len(_finished_views) > MOST_FINISHED:
        _finished_views.popleft().close()


def has_page(seconds: float = ANSWER) -> bool:
    """Return whether a browser page that draws this kernel's views is open now.

    Must not be called in the engine's thread. While a cell runs, pages can answer only with ipykernel 7.0 or newer.
    """
    return _library().has_page(seconds)


@cache
def _library() -> Library:
    """Return the `Library` widget of this kernel, creating it at the first call."""
    library = Library(name=uuid.uuid4().hex)
    answer_pages_anytime(getattr(library.comm, "kernel", None))
    return library
