"""Records the notebooks anew: `python -m tests.record [NOTEBOOK ...]`, by default all of them; `--help` has the option.

A notebook is run twice. The first run asks its models and makes its cassette, without the cells that have
`replay="replay"`: they show what a replay refuses, and would record it. The second run plays the cassette, and its
outputs are kept. The local model answers most of the lessons, so its weights have to be on the machine. Record while
the machine does nothing else, since a replay shows the recorded times.
"""

import os
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.test_notebooks import NOTEBOOKS, ROOT

REFUSED = 'replay="replay"'
SKIPPED = "pass  # not run while the notebook is recorded"
OURS = ("AGENTMAGIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "ANTHROPIC_")
"""How the variables begin that would change what a notebook does."""


def run(path: Path, mode: str) -> Any:
    """Run a notebook in a kernel of its own, with one mode for every cassette, and return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    if mode == "record":
        for cell in notebook.cells:
            cell.source = SKIPPED if cell.cell_type == "code" and REFUSED in cell.source else cell.source
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment |= {"AGENTMAGIC_REPLAY": mode, "PYTHONPATH": str(ROOT)}
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, record_timing=False, resources=resources).execute(env=environment)
    for cell, source in zip(notebook.cells, sources, strict=True):
        cell.source = source
    notebook.metadata.language_info = {"name": "python"}  # the kernel's own has the version of Python
    return notebook


def record(path: Path) -> None:
    """Record a notebook. Whatever fails, the old cassette and the old outputs stay."""
    cassette = path.with_suffix(".cassette.yaml")
    before = cassette.read_bytes() if cassette.exists() else None
    cassette.unlink(missing_ok=True)
    try:
        run(path, "record")
        play(path)
    except BaseException:
        if before is not None:
            cassette.write_bytes(before)
        raise


def play(path: Path) -> None:
    """Keep the outputs of a replay in a notebook."""
    played = nbformat.writes(run(path, "replay")) + "\n"
    if any(place in played for place in (str(ROOT), str(Path.home()), sys.prefix)):
        sys.exit(f"The outputs of {path.name} name a path of this machine.")
    path.write_text(played, encoding="utf-8")


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m tests.record", description="Records the notebooks anew.")
    parser.add_argument("notebook", type=Path, nargs="*", help="by default all")
    parser.add_argument("--outputs", action="store_true", help="keep the cassettes, and make the outputs anew of them")
    options = parser.parse_args()
    for chosen in [path.resolve() for path in options.notebook] or NOTEBOOKS:
        begun = time.monotonic()
        (play if options.outputs else record)(chosen)
        sys.stdout.write(f"{chosen.relative_to(ROOT)} ({time.monotonic() - begun:.0f} s)\n")
