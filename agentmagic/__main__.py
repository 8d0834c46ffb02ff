"""Run a notebook from the terminal and read its transcript: `python -m agentmagic run NOTEBOOK`."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from agentmagic import settings
from agentmagic.errors import AgentMagicError, MissingExtra, UsageError


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, carry out its command, and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return run(options.notebook, options.output, options.model)
    except AgentMagicError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agentmagic", description="Agents in a notebook, from a terminal.")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", help="run a notebook in a kernel of its own and print what its cells show")
    command.add_argument("notebook", type=Path)
    command.add_argument("-m", "--model", help=f"stand in for the notebook's models, as {settings.MODEL} does")
    output = "where to write the notebook that was run (NAME.out.ipynb in the current folder)"
    command.add_argument("-o", "--output", type=Path, help=output)
    return parser


def run(notebook: Path, output: Path | None = None, model: str | None = None) -> int:
    """Run a notebook in a real kernel, print each cell and what it shows, and write it with its outputs.

    Returns 0, or 1 if a cell failed. Raises UsageError for a file that is no notebook or cannot be written, and what
    the local model raises if this machine cannot run it.
    """
    try:
        nbformat, nbclient = import_module("nbformat"), import_module("nbclient")
    except ModuleNotFoundError as error:
        raise MissingExtra("Running a notebook", "demo") from error
    try:
        document: Any = nbformat.read(notebook, as_version=4)
    except (OSError, ValueError) as error:
        raise UsageError(f"{notebook} cannot be read as a notebook: {error}") from error
    if model:
        os.environ[settings.MODEL] = model
    _fetch_ahead(document)
    place = {"metadata": {"path": str(notebook.parent)}}
    quiet = ["--IPKernelApp.log_level=ERROR"]
    client = nbclient.NotebookClient(document, timeout=None, resources=place, extra_arguments=quiet)
    client.on_cell_executed = _print_cell
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError:
        status, failure = 1, "\nA cell failed. The cells after it were not run.\n"
    except nbclient.exceptions.DeadKernelError:
        status, failure = 1, "\nThe kernel died. The cells after the last one above did not finish.\n"
    else:
        status, failure = 0, ""
    _write(document, notebook, output or Path(notebook.with_suffix(".out.ipynb").name))
    sys.stdout.flush()
    sys.stderr.write(failure)
    return status


def _fetch_ahead(document: Any) -> None:
    """Fetch the local model, if the notebook uses it, here where the user sees the progress.

    Raises MissingExtra or ProviderError before the download if this machine cannot run it.
    """
    sources = [cell.source for cell in document.cells if cell.cell_type == "code"]
    override = settings.model_override()
    if not (override or "").startswith("local:") and (override or not any("local:" in source for source in sources)):
        return
    from agentmagic.providers.local import downloads, llama

    llama.require()
    downloads.fetch()


def _write(document: Any, notebook: Path, written: Path) -> None:
    """Write the notebook that was run, and print how to open it."""
    try:
        import_module("nbformat").write(document, written)
    except OSError as error:
        message = f"The outputs cannot be written to {written.absolute()}: {error.strerror}. Name another file with -o."
        raise UsageError(message) from error
    jupyter = Path(sys.executable).with_name("jupyter")
    sys.stdout.write(f"\nWritten with its outputs to {written}\nOpen it yourself: {jupyter} lab {notebook}\n")


def _print_cell(cell: Any, cell_index: int, **_rest: Any) -> None:
    if cell.cell_type != "code":
        return
    shown = ""
    for output in cell.outputs:
        is_told = output.output_type == "error" and output.evalue and output.evalue in shown
        shown += f"{output.ename}\n" if is_told else _plain(output)
    shown = shown.strip("\n")
    source = "\n".join(f"    {line}" for line in cell.source.splitlines())
    sys.stdout.write(f"\n[{cell_index}]\n{source}\n\n{shown}\n")
    sys.stdout.flush()


def _plain(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback) + "\n"
    return str(output.data.get("text/plain", "")) + "\n"


if __name__ == "__main__":
    sys.exit(main())
