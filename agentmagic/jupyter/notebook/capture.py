"""What a tool prints, displays and plots while it runs in the main thread: taken out of the cell, for the tool's card.

Other threads go on writing into the cell: their output cannot be told apart from that of the notebook's own code. What
coroutines print that the tool has started on a loop in another thread is taken: `%%bash` has such a loop.
"""

import base64
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.display.markdown import plain_text
from agentmagic.host import Output
from agentmagic.jupyter.frontend import Kind, front_end
from agentmagic.messages import Content, Media, Text, as_text
from agentmagic.values.describe import to_content
from agentmagic.values.frames import unstyled
from agentmagic.values.pictures import as_shown, display_width, figure_of

LONGEST_PRINTED = 20_000
"""Characters that are kept of what a tool prints between two displays: the beginning and the end."""

HALF = LONGEST_PRINTED // 2

MOST_DISPLAYS = 30
"""Displays and figures of one call that are kept."""

LONGEST_RECENT = 2_000
"""Characters of the last lines that a running card shows."""
MOST_RECENT = 10
"""Lines of them."""

IMAGES = ("image/png", "image/jpeg")
_FOREIGN = ("application/", "image/svg")
"""How the MIME types begin that only a front end can show: widgets, charts with scripts."""
_SCRIPT = re.compile(r"<(script|iframe)\b", re.IGNORECASE)


_capturing: ContextVar["OutputCapture | None"] = ContextVar("agentmagic_capturing", default=None)
"""The capture of the tool that runs; coroutines that it starts inherit it, and threads do not."""


class OutputCapture:
    """Takes the output of one tool in one shell; it is a `Capture` of the main thread's queue.

    In a terminal the output is printed as well: a terminal shows a card only when the call is over.
    """

    def __init__(self, shell: InteractiveShell, on_lines: Callable[[Callable[[], str]], None]) -> None:
        self._shell = cast("Any", shell)
        self._on_lines = on_lines
        self._echoes = front_end(shell).kind is Kind.TEXT
        self._active = False
        self._items: list[_Printed | _Display] = []
        self._figures = open_figures()
        self._streams: tuple[_Stream, _Stream] | None = None
        self._publisher: _Publisher | None = None
        self._format: Callable[..., tuple[Mapping[str, Any], Mapping[str, Any]]] | None = None
        self._formatted: Any = None
        """The figure that is about to be displayed, or None."""

    def start(self) -> None:
        """Take the place of the streams and of the publisher of displays."""
        self._streams = sys.stdout, sys.stderr = _Stream(self, sys.stdout), _Stream(self, sys.stderr)  # type: ignore[assignment]
        self._publisher = self._shell.display_pub = _Publisher(self, self._shell.display_pub)
        self._format = self._shell.display_formatter.format
        self._shell.display_formatter.format = self.format
        self._active = True
        _capturing.set(self)

    def stop(self) -> None:
        """Put the streams and the publisher back, except one that the tool itself has replaced."""
        self._active = False  # first, for a tool that has kept a stream
        _capturing.set(None)
        if self._streams is not None:
            for name, stream in zip(("stdout", "stderr"), self._streams, strict=True):
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream.original)
        if self._publisher is not None and self._shell.display_pub is self._publisher:
            self._shell.display_pub = self._publisher.original
        if self._shell.display_formatter.format == self.format:
            self._shell.display_formatter.format = self._format

    def takes(self) -> bool:
        """Return whether what is displayed now is the tool's."""
        return self._active and threading.current_thread() is threading.main_thread()

    def hears(self) -> bool:
        """Return whether what is printed now is the tool's."""
        return self.takes() or (self._active and _capturing.get() is self)

    def write(self, stream: Any, text: str) -> None:
        """Take a piece of printed text."""
        if not (self._items and isinstance(self._items[-1], _Printed)):
            self._items.append(_Printed())
        printed = cast("_Printed", self._items[-1])
        printed.add(text)
        self._on_lines(printed.recent)
        if self._echoes:
            stream.write(text)

    def format(self, value: Any, *given: Any, **options: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Format a value that is displayed, and note which figure it is: the publisher gets no more than its image."""
        assert self._format is not None  # noqa: S101  (set by `start`)
        data, metadata = self._format(value, *given, **options)
        if data and self.takes():
            self._formatted = figure_of(value)
            if unstyled(value) is not value:  # its repr names only its type
                data = {**data, "text/plain": as_text(to_content(value)[0])}
        return data, metadata

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, *, update: bool
    ) -> bool:
        """Take a display, or put an update in its place. Return whether the front end gets it too."""
        figure, self._formatted = self._formatted, None
        part, html, whole = _part_of(data, metadata)
        if not whole and figure is not None and (image := as_shown(figure)):
            (part, html), whole = image, True
        known = [item for item in self._items if isinstance(item, _Display) and item.display_id == display_id]
        if update and display_id:
            for item in known:
                item.output, item.figure = (part, html), figure
            return self._echoes or not known
        self._add(part, html, display_id, figure)
        return self._echoes or not whole

    def clear(self) -> None:
        """Forget what was taken so far, as `clear_output` asks for."""
        self._items.clear()

    def draw(self) -> None:
        """Take the figures that the tool has left open in pyplot, and close them: else the cell would show them too."""
        for number in sorted(open_figures() - self._figures):
            figure = sys.modules["matplotlib.pyplot"].figure(number)
            try:
                part, html = as_shown(figure) or (Text(repr(figure)), "")  # an empty one is text in a plain cell too
            except Exception as error:  # noqa: BLE001  (a figure of the user may raise anything)
                words = f"(a figure that was left open cannot be drawn: {type(error).__name__}: {error})"
                part, html = Text(words), ""
            sys.modules["matplotlib.pyplot"].close(figure)
            self._add(part, html, None, figure)

    def leave_out(self, value: Any, shown: Sequence[Content]) -> None:
        """Drop the displays of figures that the tool returns as well, unless a figure has changed in between."""
        returned = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else (value,)
        figures = [figure for figure in map(figure_of, returned) if figure is not None]
        self._items = [
            item
            for item in self._items
            if not (any(item.figure is figure for figure in figures) and item.output[0] in shown)
        ]

    def parts(self) -> Sequence[Output]:
        """Return what was taken: printed text, and each display with the HTML that a user sees in its place."""
        outputs = [item.output for item in tuple(self._items)]
        return [output for output in outputs if output[0] != Text("")]

    def _add(self, part: Content, html: str, display_id: str | None, figure: Any) -> None:
        displays = [item for item in self._items if isinstance(item, _Display)]
        shown_before = any(item.figure is figure and item.output[0] == part for item in displays)
        if figure is not None and display_id is None and shown_before:
            return  # a figure that has not changed is sent once
        if len(displays) < MOST_DISPLAYS:
            self._items.append(_Display((part, html), display_id, figure))
        elif len(displays) == MOST_DISPLAYS:
            note = f"(cut: only the first {MOST_DISPLAYS} displays were kept)"
            self._items.append(_Display((Text(note), ""), None, None))


class _Printed:
    """Printed text, of which the beginning and the end are kept."""

    figure = None

    def __init__(self) -> None:
        self._head = ""
        self._tail: list[str] = []
        self._length = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        """Add a piece; in constant time on average."""
        self._tail.append(text)
        self._length += len(text)
        if self._length > LONGEST_PRINTED:
            whole = "".join(self._tail)
            self._head = self._head or whole[:HALF]
            self._left_out += len(whole) - HALF - (0 if self._left_out else HALF)
            self._tail, self._length = [whole[-HALF:]], HALF

    def recent(self) -> str:
        """Return the last lines that are not empty; in any thread."""
        pieces, length = list[str](), 0
        for piece in reversed(tuple(self._tail)):
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST_RECENT:
                break
        text = "".join(reversed(pieces))[-LONGEST_RECENT:]
        lines = [line for line in _overwritten(text).split("\n") if line.strip()]
        return "\n".join(lines[-MOST_RECENT:])

    @property
    def output(self) -> Output:
        """The text; a line that ends in a carriage return is written over by the next, as progress bars do it."""
        tail = "".join(tuple(self._tail))
        if self._left_out:
            left_out = self._left_out + max(len(tail) - HALF, 0)
            tail = f"{self._head}\n({left_out:,} characters left out)\n{tail[-HALF:]}"
        text = _overwritten(tail).rstrip("\n")
        return Text(f"Printed:\n{text}" if text.strip() else ""), ""


def _overwritten(text: str) -> str:
    """Return printed text without what was written over: from a carriage return on, a line is written anew."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


@dataclass
class _Display:
    """One display, which `update_display` may replace; `figure` is what it shows, if that is one of Matplotlib."""

    output: Output
    display_id: str | None
    figure: Any


class _StandIn:
    """Takes the place of an object, and passes on what a subclass does not take."""

    def __init__(self, capture: OutputCapture, original: Any) -> None:
        self._capture = capture
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _Stream(_StandIn):
    """Stands for a stream; what the tool writes goes to the capture, all else to the stream."""

    def write(self, text: str) -> int:
        """Write a text. Raises TypeError for anything else."""
        if not self._capture.hears() or not isinstance(cast("object", text), str):
            return self.original.write(text)
        self._capture.write(self.original, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)


class _Publisher(_StandIn):
    """Stands for a shell's publisher of displays; those of the tool go to the capture."""

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None, *given: Any, **options: Any
    ) -> None:
        """Publish a display, or an update of one."""
        transient: Mapping[str, Any] = options.get("transient") or {}
        display_id = transient.get("display_id")
        update = bool(options.get("update"))
        if not self._capture.takes() or self._capture.publish(data, metadata or {}, display_id, update=update):
            self.original.publish(data, metadata, *given, **options)

    def clear_output(self, wait: bool = False) -> None:
        """Clear what the tool has shown so far, or the cell if another thread asks."""
        if self._capture.takes():
            self._capture.clear()
        else:
            self.original.clear_output(wait)


def _part_of(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[Content, str, bool]:
    """Return what a model gets of a display, the HTML that a user sees, and whether a card can show all of it."""
    for kind in IMAGES:
        if kind in data:
            image = data[kind]
            media = Media(kind, image if isinstance(image, bytes) else base64.b64decode(image))
            return media, display_width(metadata.get(kind)), True
    html = str(data.get("text/html", ""))
    text = str(data.get("text/plain", ""))
    if not text or text.startswith("<IPython.core.display."):  # the repr of such an object says nothing
        text = str(data.get("text/markdown") or data.get("text/latex") or plain_text(html) or text or ", ".join(data))
    whole = not any(kind.startswith(_FOREIGN) for kind in data) and _SCRIPT.search(html) is None
    return (Text(text), html, True) if whole else (Text(f"{text}\n(displayed below the cell)"), "", False)


def open_figures() -> set[int]:
    """Return the numbers of pyplot's open figures, unless they are windows of their own or widgets."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not (numbers := pyplot.get_fignums()):
        return set()
    backend = str(pyplot.get_backend()).lower()
    return set(numbers) if backend == "agg" or "inline" in backend else set()
