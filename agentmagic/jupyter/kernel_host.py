"""The host of a kernel: its main thread, its notebook, the person at it, and the cells that show runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.host import Capture, Host
from agentmagic.jupyter.cell.live_runs import LiveRuns
from agentmagic.jupyter.cell.map_cells import MapCellView
from agentmagic.jupyter.cell.runner import CellView
from agentmagic.jupyter.cell.served_cells import ServedCellView
from agentmagic.jupyter.frontend import Keyboard, front_end, in_kernel
from agentmagic.jupyter.notebook.capture import OutputCapture
from agentmagic.jupyter.notebook.kernel import KernelNotebook
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.jupyter.panel import panels
from agentmagic.session import Session


class KernelHost(Host):
    """What the kernel of a shell gives the core, while the extension is loaded."""

    takes_tools = True

    def __init__(
        self, shell: InteractiveShell, namespace: Namespace, live_runs: LiveRuns, notebook: KernelNotebook
    ) -> None:
        self._shell = shell
        self._namespace = namespace
        self._live_runs = live_runs
        self.notebook = notebook
        self.person = Keyboard(shell)
        loop = getattr(cast("Any", shell).kernel, "io_loop", None) if in_kernel(shell) else None
        # A terminal has no loop: there tools run in the main thread only while a cell blocks it.
        self.wake = None if loop is None else loop.add_callback

    @property
    def folder(self) -> Path:
        """The notebook's folder, or the kernel's if the notebook is unknown."""
        return self._namespace.folder

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture:
        """Return what takes the output of one tool out of the cell."""
        return OutputCapture(self._shell, on_lines)

    def view(self, session: Session) -> CellView | None:
        """Return a view in the running cell, if code of the user begins the run there."""
        return self._live_runs.view(session)

    def map_view(self, session: Session) -> MapCellView | None:
        """Return a view in the running cell, if code of the user begins the map there."""
        return self._live_runs.map_view(session)

    def serve_view(self, session: Session) -> ServedCellView:
        """Return a view in the running cell. A session that was made in code has the notebook's tools from now on."""
        self._namespace.equip(session)
        notebook = self._namespace.place().notebook
        place = ("" if notebook is None else notebook.name, self.folder)
        return ServedCellView(front_end(self._shell), place)

    def join(self, session: Session) -> None:
        """Have a session use the notebook's cassette, under the name of its variable."""
        self._namespace.join(session)

    def tell_undone(self, session: Session, *, redo: bool) -> bool:
        """Print what an undo or redo by code came to."""
        self._live_runs.tell_undone(session, redo=redo)
        return True

    def show_panel(self, session: Session) -> None:
        """Show the panel of a session in the running cell."""
        panels.show(self._shell, session)
