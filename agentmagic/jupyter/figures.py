"""Plots that tools make, shown when the tool has ended rather than when the cell has."""

import asyncio
import contextvars
import sys

from agentmagic.events import Event, ToolFinished
from agentmagic.runtime.engine import engine


class FigureOutput:
    """Shows the open figures of a run's tools, in the output that the run prints to."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()

    def feed(self, event: Event) -> None:
        """Take an event of the run; on the engine."""
        inline = sys.modules.get("matplotlib_inline.backend_inline")
        if not isinstance(event, ToolFinished) or inline is None or not engine().main.reachable:
            return
        context = contextvars.copy_context()
        flushing = engine().main.run(lambda: context.run(inline.flush_figures))
        task = asyncio.get_running_loop().create_task(flushing)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
