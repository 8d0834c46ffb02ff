"""Captures the text, displays and plots of a tool in the main thread: they go to the tool's card, not to the cell.

Output of other threads still goes to the cell, because it may come from the notebook's own code. One exception: text
of coroutines that the tool has started in another thread's event loop, as `%%bash` does, is captured.
"""

import base64
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.display.markdown import plain_text
from agentmagic.host import Output
from agentmagic.jupyter.frontend import Kind, front_end
from agentmagic.messages import Content, Media, Text, as_text
from agentmagic.runtime.engine import engine
from agentmagic.tools.base import PRINTED
from agentmagic.values.describe import to_content
from agentmagic.values.frames import without_style
from agentmagic.values.pictures import DRAWING, chart_of, chart_part, display_width, figure_of, shown_image

LONGEST_PRINTED = 200_000
"""Characters of a tool's printed text between two displays that are kept: half of them its beginning, half its end.

A model gets a preview of a long text, and reads on in what is kept.
"""

HALF = LONGEST_PRINTED // 2

MOST_DISPLAYS = 30
"""The most displays and figures of one call that are kept."""

LONGEST_RECENT = 2_000
"""Characters of a tool's last printed lines that its card shows while the tool runs."""
MOST_RECENT = 10
"""Number of a tool's last printed lines that its card shows while the tool runs."""

IMAGES = ("image/png", "image/jpeg")
_FOREIGN = ("application/", "image/svg")
"""Prefixes of the MIME types that only a front end can show: widgets, charts with scripts."""
_SCRIPT = re.compile(r"<(script|iframe)\b", re.IGNORECASE)


_capturing: ContextVar["OutputCapture | None"] = ContextVar("agentmagic_capturing", default=None)
"""The capture of the running tool. Coroutines that the tool starts inherit this variable, threads do not."""


class OutputCapture:
    """Captures the output of one tool in one shell; implements the `Capture` protocol of `agentmagic.host`.

    In a terminal the output is also printed at once, because the terminal shows a call's captured output at the end.
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
        self._figure: Any = None
        """The figure that is about to be displayed, or None."""
        self._value: Any = None
        """The value that is about to be displayed, or None."""
        self._drawing = 0.0
        """The seconds that it took to draw charts. plotly starts a browser for each chart, which takes seconds."""

    def start(self) -> None:
        """Replace stdout, stderr and the shell's display publisher, so that output is captured from now on."""
        self._streams = sys.stdout, sys.stderr = _Stream(self, sys.stdout), _Stream(self, sys.stderr)  # type: ignore[assignment]
        self._publisher = self._shell.display_pub = _Publisher(self, self._shell.display_pub)
        self._format = self._shell.display_formatter.format
        self._shell.display_formatter.format = self.format
        self._active = True
        _capturing.set(self)

    def stop(self) -> None:
        """Restore stdout, stderr and the display publisher, except those that the tool has replaced meanwhile."""
        self._active = False  # in case the tool keeps a capturing stream and writes to it later
        _capturing.set(None)
        if self._streams is not None:
            for name, stream in zip(("stdout", "stderr"), self._streams, strict=True):
                if getattr(sys, name, None) in (stream, None):  # without a stream, the kernel could not answer cells
                    setattr(sys, name, stream.original)
        if self._publisher is not None and self._shell.display_pub is self._publisher:
            self._shell.display_pub = self._publisher.original
        if self._shell.display_formatter.format == self.format:
            self._shell.display_formatter.format = self._format

    def captures_displays(self) -> bool:
        """Return whether a display that is published now belongs to the tool."""
        if not self._active or threading.current_thread() is not threading.main_thread():
            return False
        owner = _capturing.get()
        # While the tool awaits, cells and other tools run in the main thread too.
        return owner is self or (owner is None and not engine().main.nested)

    def captures_text(self) -> bool:
        """Return whether text that is printed now belongs to the tool."""
        return self.captures_displays() or (self._active and _capturing.get() is self)

    def write(self, stream: Any, text: str) -> None:
        """Add a piece of printed text to the captured output."""
        if not (self._items and isinstance(self._items[-1], _Printed)):
            self._items.append(_Printed())
        item = cast("_Printed", self._items[-1])
        item.add(text)
        self._on_lines(item.recent)
        if self._echoes:
            stream.write(text)

    def format(self, value: Any, *args: Any, **options: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Format a displayed value. Store it, and its Matplotlib figure, for `publish`, which gets only the data."""
        assert self._format is not None  # noqa: S101  (set by `start`)
        data, metadata = self._format(value, *args, **options)
        if data and self.captures_displays():
            self._value, self._figure = value, figure_of(value)
            if without_style(value) is not value:  # a styled table, whose repr shows only its type
                data = {**data, "text/plain": as_text(to_content(value)[0])}
        return data, metadata

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str | None, *, update: bool
    ) -> bool:
        """Capture a display, or update a captured one. Return whether the front end must get the display too."""
        figure, self._figure = self._figure, None
        value, self._value = self._value, None
        part, html, whole = _part_of(data, metadata)
        if not whole and figure is not None and (image := shown_image(figure)):
            (part, html), whole = image, True
        if not whole and (chart := chart_of(value, data)) is not None:
            began = time.monotonic()
            part = chart_part(chart, draw=self._drawing < DRAWING)
            self._drawing += time.monotonic() - began
        displays = [item for item in self._items if isinstance(item, _Display) and item.display_id == display_id]
        if update and display_id:
            for item in displays:
                item.output, item.figure = (part, html), figure
            return self._echoes or not displays
        self._add(part, html, display_id, figure)
        return self._echoes or not whole

    def clear(self) -> None:
        """Discard the output captured so far, for `clear_output`."""
        self._items.clear()

    def draw(self) -> None:
        """Capture and close the pyplot figures that the tool left open. Otherwise the cell would show them too."""
        for number in sorted(open_figures() - self._figures):
            figure = sys.modules["matplotlib.pyplot"].figure(number)
            try:
                # An empty figure becomes text, as in a cell without agentmagic.
                part, html = shown_image(figure) or (Text(repr(figure)), "")
            except Exception as error:  # noqa: BLE001  (drawing a user's figure can raise any error)
                message = f"(a figure that was left open cannot be drawn: {type(error).__name__}: {error})"
                part, html = Text(message), ""
            sys.modules["matplotlib.pyplot"].close(figure)
            self._add(part, html, None, figure)

    def leave_out(self, value: Any, parts: Sequence[Content]) -> None:
        """Remove the displays of figures that the tool also returns as `value`, if they have not changed since."""
        values = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else (value,)
        figures = [figure for figure in map(figure_of, values) if figure is not None]
        self._items = [
            item
            for item in self._items
            if not (any(item.figure is figure for figure in figures) and item.output[0] in parts)
        ]

    def parts(self) -> Sequence[Output]:
        """Return the captured output in order: printed texts, and displays, each with the HTML that a user sees."""
        outputs = [item.output for item in tuple(self._items)]
        return [output for output in outputs if output[0] != Text("")]

    def _add(self, part: Content, html: str, display_id: str | None, figure: Any) -> None:
        displays = [item for item in self._items if isinstance(item, _Display)]
        shown_before = any(item.figure is figure and item.output[0] == part for item in displays)
        if figure is not None and display_id is None and shown_before:
            return  # an unchanged figure is captured only once
        if len(displays) < MOST_DISPLAYS:
            self._items.append(_Display((part, html), display_id, figure))
        elif len(displays) == MOST_DISPLAYS:
            note = f"(cut: only the first {MOST_DISPLAYS} displays were kept)"
            self._items.append(_Display((Text(note), ""), None, None))


class _Printed:
    """Text that a tool has printed; if it is too long, only its beginning and end are kept."""

    figure = None

    def __init__(self) -> None:
        self._head = ""
        self._tail: list[str] = []
        self._length = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        """Add a piece of text, in amortized constant time."""
        self._tail.append(text)
        self._length += len(text)
        if self._length > LONGEST_PRINTED:
            whole = "".join(self._tail)
            self._head = self._head or whole[:HALF]
            self._left_out += len(whole) - HALF - (0 if self._left_out else HALF)
            self._tail, self._length = [whole[-HALF:]], HALF

    def recent(self) -> str:
        """Return the last lines that are not empty; can be called in any thread."""
        pieces, length = list[str](), 0
        for piece in reversed(tuple(self._tail)):
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST_RECENT:
                break
        text = "".join(reversed(pieces))[-LONGEST_RECENT:]
        lines = [line for line in _without_overwritten(text).split("\n") if line.strip()]
        return "\n".join(lines[-MOST_RECENT:])

    @property
    def output(self) -> Output:
        """The text as a part of the tool's result, without text that a line overwrites after a carriage return."""
        tail = "".join(tuple(self._tail))
        if self._left_out:
            left_out = self._left_out + max(len(tail) - HALF, 0)
            tail = f"{self._head}\n({left_out:,} characters left out)\n{tail[-HALF:]}"
        text = _without_overwritten(tail).rstrip("\n")
        return Text(f"{PRINTED}{text}" if text.strip() else ""), ""


def _without_overwritten(text: str) -> str:
    """Return printed text as a terminal shows it: in a line, text after a carriage return replaces the text before."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


@dataclass
class _Display:
    """One captured display, which `update_display` can replace; `figure` is its Matplotlib figure, or None."""

    output: Output
    display_id: str | None
    figure: Any


class _StandIn:
    """Stands in for a stream or a publisher; attributes that a subclass does not define come from the original."""

    def __init__(self, capture: OutputCapture, original: Any) -> None:
        self._capture = capture
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _Stream(_StandIn):
    """Stands in for stdout or stderr: the tool's text goes to the capture, other text to the original stream."""

    def write(self, text: str) -> int:
        """Write a text, and return its length. Raises TypeError for an object that is not a `str`."""
        if not self._capture.captures_text() or not isinstance(cast("object", text), str):
            return self.original.write(text)
        self._capture.write(self.original, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Do nothing: the kernel needs the original stream."""


class _Publisher(_StandIn):
    """Stands in for a display publisher: displays of the tool go to the capture, all others to the original."""

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None, *args: Any, **options: Any
    ) -> None:
        """Publish a display or the update of a display."""
        transient: Mapping[str, Any] = options.get("transient") or {}
        display_id = transient.get("display_id")
        update = bool(options.get("update"))
        if not self._capture.captures_displays() or self._capture.publish(
            data, metadata or {}, display_id, update=update
        ):
            self.original.publish(data, metadata, *args, **options)

    def clear_output(self, wait: bool = False) -> None:
        """Discard the tool's output so far; clear the cell's output if the call does not come from the tool."""
        if self._capture.captures_displays():
            self._capture.clear()
        else:
            self.original.clear_output(wait)


def _part_of(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[Content, str, bool]:
    """Return what a model gets for a display, the HTML for the user, and whether the tool's card can show all of it."""
    for kind in IMAGES:
        if kind in data:
            image = data[kind]
            media = Media(kind, image if isinstance(image, bytes) else base64.b64decode(image))
            return media, display_width(metadata.get(kind)), True
    html = str(data.get("text/html", ""))
    text = str(data.get("text/plain", ""))
    if not text or text.startswith("<IPython.core.display."):  # the repr of a display object tells a model nothing
        text = str(data.get("text/markdown") or data.get("text/latex") or plain_text(html) or text or ", ".join(data))
    whole = not any(kind.startswith(_FOREIGN) for kind in data) and _SCRIPT.search(html) is None
    return (Text(text), html, True) if whole else (Text(f"{text}\n(displayed below the cell)"), "", False)


def open_figures() -> set[int]:
    """Return the numbers of pyplot's open figures; an empty set if they are shown in windows or as widgets."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not (numbers := pyplot.get_fignums()):
        return set()
    backend = str(pyplot.get_backend()).lower()
    return set(numbers) if backend == "agg" or "inline" in backend else set()
