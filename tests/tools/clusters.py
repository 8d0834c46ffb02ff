"""What the tests of clusters share: a tool as a cell defines it, whose runs are counted, and the end of its worker."""

import os
import signal
from pathlib import Path

from agentmagic import Agent, ScriptedModel, Session, tool
from tests.turns import calls, results

CELL = """
def work(folder: str, stay: bool = False) -> int:
    import os, pathlib, time, uuid
    new = pathlib.Path(folder) / uuid.uuid4().hex
    new.write_text(str(os.getpid()))
    new.rename(new.with_suffix(".run"))  # one whole file for each run
    count = len(list(new.parent.glob("*.run")))
    if stay and count == 1:
        time.sleep(60)  # until its process is killed
    return count
"""


def session_with(executor, *steps, **options) -> Session:
    """A session whose tool runs on an executor."""
    namespace = {"__name__": "__main__"}
    exec(CELL, namespace)  # noqa: S102  (a cell)
    work = tool(executor=executor, **options)(namespace["work"])
    return Session(Agent(ScriptedModel([*steps, "Done."]), tools=[work]))


def runs(folder: Path) -> list[int]:
    """The processes in which a call has begun, one for each run."""
    return [int(path.read_text()) for path in folder.glob("*.run")]


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def call_and_end(executor, folder: Path, end, **options):
    """The result of a call whose worker is ended, by a function that is given its process, when the call has begun."""
    run = session_with(executor, calls(("work", {"folder": str(folder), "stay": True})), **options).start("Go.")
    while not (begun := runs(folder)):
        assert not run.done
    end(begun[0])
    (result,) = results(run.wait())
    return result
