"""The `Host` in a kernel: gives the agent loop access to the main thread, the notebook, the user, and cell outputs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import comm
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

ACTIVITY = "agentmagic.activity"
"""The target name of the comm (Jupyter's message channel) whose messages show that a turn runs."""


class KernelHost(Host):
    """Connects agentmagic's core, which does not import IPython, to a shell while the extension is loaded."""

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
        self._activity = comm.create_comm(target_name=ACTIVITY, primary=False) if in_kernel(shell) else None
        # In a terminal there is no event loop to wake: tools run in the main thread only while a cell blocks it.
        self.wake = None if loop is None else loop.add_callback

    @property
    def folder(self) -> Path:
        """The folder of the notebook, or the kernel's working directory if the notebook's file is unknown."""
        return self._namespace.folder

    def show_activity(self) -> None:
        """Send a message that no browser page reads, if no cell runs.

        While no cell runs, Jupyter takes the kernel for idle, and a server that ends idle kernels would end it in the
        middle of a turn. Any message of a comm is activity for such a server. Pages ignore a comm that is not open.
        """
        if self._activity is not None and not self._live_runs.in_cell:
            self._activity.send({})

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture:
        """Return a capture for one tool, whose output then does not go to the running cell."""
        return OutputCapture(self._shell, on_lines)

    def view(self, session: Session) -> CellView | None:
        """Return a view for a run that the code of the running cell begins, or None if other code begins the run."""
        return self._live_runs.view(session)

    def map_view(self, session: Session) -> MapCellView | None:
        """Return a view for a map that the code of the running cell begins, or None if other code begins the map."""
        return self._live_runs.map_view(session)

    def serve_view(self, session: Session) -> ServedCellView:
        """Return a view that shows the calls of MCP clients in the running cell.

        If the user's code made the session, not a magic, the session gets the notebook's tools from now on.
        """
        self._namespace.equip(session)
        notebook = self._namespace.place().notebook
        place = ("" if notebook is None else notebook.name, self.folder)
        return ServedCellView(front_end(self._shell), place)

    def join(self, session: Session) -> None:
        """Connect a session to the notebook's cassette (its recording), under the name of the session's variable."""
        self._namespace.join(session)

    def tell_undone(self, session: Session, *, redo: bool) -> bool:
        """Print the outcome of an undo or redo that the user's code called. Return True: the user has now seen it."""
        self._live_runs.tell_undone(session, redo=redo)
        return True

    def show_panel(self, session: Session) -> None:
        """Show the chat panel of a session in the running cell."""
        panels.show(self._shell, session)
