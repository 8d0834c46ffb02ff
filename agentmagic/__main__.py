"""The command line `python -m agentmagic`: runs notebooks, checks cassettes (recordings), and has further commands."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from glob import glob
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from agentmagic import settings, wheels
from agentmagic.errors import AgentMagicError, CassetteError, MissingExtra, UsageError, with_code
from agentmagic.plain_files import write_failure
from agentmagic.platforms import join_command
from agentmagic.text import plural

if TYPE_CHECKING:
    from agentmagic.replay.cassette import Cassette

# The functions below import modules only when they run, so that the command `doctor` works without other packages.


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run its command, and return the exit status."""
    _write_stdout_as(None)  # a pipe on Windows cannot encode all characters: escape the others
    options = _parser().parse_args(arguments)
    try:
        return options.carry_out(options)
    except AgentMagicError as error:
        sys.stderr.write(f"{with_code(error)}\n")
        return 2


def _write_stdout_as(encoding: str | None) -> None:
    """Set the encoding of the standard output, if it is not None. What cannot be encoded is written as escapes."""
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(encoding=encoding, errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agentmagic", description="Agents in a notebook, from a terminal.")
    commands = parser.add_subparsers(required=True)
    _add_cassette(commands)
    command = commands.add_parser("doctor", help="name what is missing here, with the command that mends it")
    command.set_defaults(carry_out=_doctor)
    command = commands.add_parser("explain", help="tell what the code behind an error means, such as [key-missing]")
    command.add_argument("code")
    command.set_defaults(carry_out=_explain)
    command = commands.add_parser("kit", help="gather packages and notebooks in a folder, for a room without a network")
    command.add_argument("folder", type=Path)
    clone = "a clone of agentmagic (the notebooks that came with this agentmagic)"
    command.add_argument("--source", type=Path, help=clone)
    command.add_argument("--model", action="store_true", help="with the weights of the local model (1.1 GB)")
    command.add_argument("--student", action="store_true", help="the lessons without solutions")
    pythons = "a Python that the kit is for, such as 3.12; may be given more than once (this one)"
    command.add_argument("--python-version", action="append", default=[], metavar="X.Y", help=pythons)
    platforms = f"a kind of machine that the kit is for: {', '.join(wheels.PLATFORMS)}; more than once (this one)"
    command.add_argument("--platform", action="append", default=[], metavar="NAME", help=platforms)
    command.set_defaults(carry_out=_kit)
    command = commands.add_parser("lessons", help="copy the lessons and walkthroughs to a folder")
    command.add_argument("folder", type=Path)
    command.add_argument("--student", action="store_true", help="without solutions and outputs")
    command.add_argument("--source", type=Path, help=clone)
    command.set_defaults(carry_out=_lessons)
    command = commands.add_parser(
        "handed-in",
        help="check that runs, which %%agent hand-in wrote, are whole; list students, exercises and bad files",
    )
    command.add_argument("file", nargs="+")
    command.add_argument("--csv", action="store_true", help="print only the table, as CSV for a spreadsheet")
    command.set_defaults(carry_out=_handed_in)
    command = commands.add_parser("bridge", help="join a served kernel, for MCP clients that speak only stdio")
    notebook_help = "its path or name, or a process id (the only one, or the one nearest to the current folder)"
    command.add_argument("notebook", nargs="?", default="", help=notebook_help)
    command.add_argument("--list", action="store_true", help="print the served kernels with their notebooks")
    command.set_defaults(carry_out=_bridge)
    command = commands.add_parser("rules", help="show what this folder's project tells models: rules, skills, commands")
    command.add_argument("--approve", action="store_true", help="let them be used as they are now")
    command.set_defaults(carry_out=_rules)
    command = commands.add_parser("usage", help="show what users have paid for models, for an administrator")
    command.add_argument("--all", action="store_true", required=True, help="each user whose home may be read")
    homes = "a folder whose subfolders are the homes (those of the system's user database)"
    command.add_argument("homes", type=Path, nargs="?", help=homes)
    command.set_defaults(carry_out=_usage)
    command = commands.add_parser("run", help="run a notebook in a kernel of its own and print what its cells show")
    command.add_argument("notebook", type=Path)
    command.add_argument("-m", "--model", help=f"stand in for the notebook's models, as {settings.MODEL} does")
    output = "where to write the notebook that was run (NAME.out.ipynb in the current folder)"
    command.add_argument("-o", "--output", type=Path, help=output)
    command.set_defaults(carry_out=_run)
    return parser


def _add_cassette(commands: Any) -> None:
    command = commands.add_parser("cassette", help="look at, compare, check and clean recordings of turns")
    actions = command.add_subparsers(required=True)
    for name, about, files, carry_out in (
        ("show", "print the turns of a cassette", 1, _show),
        ("diff", "print how a cassette differs from an older one", 2, _diff),
        ("verify", "check that a cassette is whole, unedited and without secrets", 1, _verify),
        ("scrub", "blank the secrets that the environment knows in a cassette", 1, _scrub),
        ("upgrade", "write cassettes of an older format in the present one", "+", _upgrade),
    ):
        action = actions.add_parser(name, help=about)
        action.add_argument("file", type=Path, nargs=files)
        action.set_defaults(carry_out=carry_out)
    action = actions.add_parser("report", help="run a notebook twice and name what is not the same in every run")
    action.add_argument("notebook", type=Path)
    action.add_argument("-y", "--yes", action="store_true", help="do not ask before the notebook's tools run")
    action.set_defaults(carry_out=_report)


def _cassettes(files: Iterable[Path]) -> list["Cassette"]:
    """Return the cassettes (recordings) in the files. Raises CassetteError for a missing or unreadable file."""
    from agentmagic.replay.cassette import Cassette

    settings.learn_secrets()
    for file in files:
        if not file.is_file():
            raise CassetteError(f"There is no cassette {file}. Record one with AGENTMAGIC_REPLAY=record.")
    return [Cassette.at(file) for file in files]


def _print(lines: Iterable[str]) -> bool:
    """Print lines, and return whether there were any."""
    any_line = False
    for line in lines:
        any_line = True
        sys.stdout.write(f"{line}\n")
    return any_line


def _doctor(_options: Any) -> int:
    """Print what `doctor` found on this machine. Return 1 if something is missing that every cell needs, else 0."""
    from agentmagic import doctor

    findings = list(doctor.examine())
    _print(map(str, findings))
    return int(any(one.health == "missing" for one in findings))


def _explain(options: Any) -> int:
    from agentmagic.error_codes import explain

    _print([explain(options.code)])
    return 0


def _kit(options: Any) -> int:
    from agentmagic import kit

    targets = wheels.targets_of(options.python_version, options.platform)
    machines = kit.pack(options.folder, options.source, model=options.model, student=options.student, targets=targets)
    name = options.folder.resolve().name  # made absolute by `resolve`, since the name of Path(".") is empty
    _print(
        [
            f"The kit in {options.folder} is for {machines}.",
            f"On a machine without a network: python3 {name}/install.py",
        ]
    )
    return 0


def _lessons(options: Any) -> int:
    from agentmagic import lessons

    names = lessons.copy(options.folder, options.source, student=options.student)
    which = "without solutions" if options.student else "with solutions"
    _print(
        [
            f"{plural(len(names), 'lesson')} {which} in {options.folder}: {', '.join(names)}.",
            "JupyterLab, and all that the lessons import: pip install 'agentmagic[demo]'",
            f"Open them: python -m jupyterlab {options.folder}",
        ]
    )
    return 0


def _handed_in(options: Any) -> int:
    """Print a student's name and a summary for each file handed in, and a table. Return 1 if a file is bad, else 0."""
    from agentmagic import run_log

    rows: list[run_log.TableRow] = []
    for lines, row in run_log.list_runs([file for name in options.file for file in _matches(name)]):
        rows.append(row)
        if not options.csv:
            _print(lines)
    if options.csv:
        _write_stdout_as("utf-8")
        sys.stdout.write(run_log.table_csv(rows))
    elif len(rows) > 1:
        _print(["", run_log.table_text(rows)])
    return int(any(row["problem"] for row in rows))


def _matches(name: str) -> list[Path]:
    """Return the files that match a pattern such as `*.yaml`, which the shells of Windows leave to the program."""
    found = [] if os.path.lexists(name) else sorted(glob(name))  # noqa: PTH207  (Path.glob takes no absolute pattern)
    return list(map(Path, found or [name]))


def _bridge(options: Any) -> int:
    from agentmagic.serve.bridge import relay

    if options.list:
        relay.show()
    else:
        relay.serve(options.notebook)
    return 0


def _rules(options: Any) -> int:
    from agentmagic.context.rules import project_here, report
    from agentmagic.text import sanitize

    _print([sanitize(report(project_here(rules=True), approve=options.approve))])
    return 0


def _usage(options: Any) -> int:
    from agentmagic.user_costs import report

    _print([report(options.homes).text])
    return 0


def _run(options: Any) -> int:
    return run(options.notebook, options.output, options.model)


def _report(options: Any) -> int:
    return report_on(options.notebook, is_agreed=options.yes)


def _show(options: Any) -> int:
    from agentmagic.replay import report

    _print(report.describe(*_cassettes(options.file)))
    return 0


def _diff(options: Any) -> int:
    from agentmagic.replay import report

    return int(_print(report.differences(*_cassettes(options.file))))


def _verify(options: Any) -> int:
    """Print the problems of a cassette and return 1. If none exist, print advice for git and return 0."""
    from agentmagic.replay import report

    (cassette,) = _cassettes(options.file)
    if _print(report.problems(cassette)):
        return 1
    _print([f"{cassette.path.name} is whole: {plural(len(cassette.takes), 'turn')}.", report.GIT_ADVICE])
    return 0


def _scrub(options: Any) -> int:
    from agentmagic.replay import report

    (cassette,) = _cassettes(options.file)
    count = plural(report.scrub(cassette), "document")
    _print([f"Secrets were blanked in {count} of {cassette.path.name}."])
    return 0


def _upgrade(options: Any) -> int:
    from agentmagic.replay import recording

    for cassette in _cassettes(options.file):
        words = "was written in the present format" if recording.upgrade(cassette) else "has the present format"
        _print([f"{cassette.path.name} {words}."])
    return 0


def report_on(notebook: Path, *, is_agreed: bool = False) -> int:
    """Run a notebook twice with the model answers of its cassette, and print how the runs differ.

    The differences are those between a run and the cassette, and those between the two runs. Returns 0 if there are
    none, and 1 if there are some or the user refuses. Asks the user first, since the notebook's tools really run; with
    `is_agreed`, does not ask. Raises UsageError if there is no user to ask.
    """
    if not is_agreed and not _agrees(f"{notebook} is run twice, and its tools really run, with all they do."):
        return 1
    (first, unasked_turns), (second, _) = _run_for_report(notebook), _run_for_report(notebook)
    if _print([*_differences(first, second), *unasked_turns]):
        return 1
    _print([f"{notebook.name} is the same in every run."])
    return 0


def _agrees(about: str) -> bool:
    try:
        return input(f"{about} Go on? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        raise UsageError(f"{about} No one is there to agree to it. Give --yes to run it.") from None


def _run_for_report(notebook: Path) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Run a notebook in the mode `replay-model`: recorded model answers, real tools.

    Returns a (source, output, mismatch) tuple for each code cell, where `mismatch` says how the cell differs from its
    recording. Returns also a sentence for each cassette with recorded turns that no cell has replayed.
    """
    try:
        nbformat, nbclient = import_module("nbformat"), import_module("nbclient")
    except ModuleNotFoundError as error:
        raise MissingExtra("Running a notebook", "demo") from error
    document = _read(nbformat, notebook)
    place = {"metadata": {"path": str(notebook.parent)}}
    quiet = ["--IPKernelApp.log_level=ERROR"]
    client = nbclient.NotebookClient(document, timeout=None, resources=place, extra_arguments=quiet, allow_errors=True)
    unasked_turns = _execute(client, {settings.REPLAY: "replay-model"})
    cells = [cell for cell in document.cells if cell.cell_type == "code"]
    return [(cell.source, "".join(map(_plain, cell.outputs)), _mismatch(cell.outputs)) for cell in cells], unasked_turns


def _execute(client: Any, variables: dict[str, str]) -> list[str]:
    """Run a notebook, and return a sentence for each cassette with recorded turns that no cell has replayed."""
    from agentmagic.replay.unasked import UNASKED, collect

    with TemporaryDirectory() as folder:
        client.execute(env={**os.environ, **variables, UNASKED: folder})
        return list(collect(Path(folder)))


def _mismatch(outputs: Iterable[Any]) -> str:
    """Return the error in a cell's outputs that says how the cell differs from its recording, or "" if none does."""
    errors = [one for one in outputs if one.output_type == "error" and one.ename in ("ReplayMismatch", "CassetteError")]
    return str(errors[0].evalue) if errors else ""


def _differences(first: list[tuple[str, str, str]], second: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a sentence for each cell that differs from its recording, or whose output differs between two runs."""
    from agentmagic.replay import report

    cells = [source for source, _, _ in first]
    for number, ((_, before, mismatch), (_, after, _)) in enumerate(zip(first, second, strict=True), 1):
        if mismatch:
            yield f"Cell {number}: {mismatch}"
            continue
        for line, one, other in report.changes(before, after):
            kind = report.why_different(one, other)
            origin = report.source_of_change(kind, cells[:number])
            where = f" Cell {origin[0]}, line {origin[1]} may make it: {origin[2]}" if origin else ""
            yield f"Cell {number}, line {line} of its output: {kind}. First {one!r:.200}, then {other!r:.200}.{where}"


def run(notebook: Path, output: Path | None = None, model: str | None = None) -> int:
    """Run a notebook in a real kernel, print each cell with its output, and write the notebook with its outputs.

    Returns 1 if a cell failed, the kernel died, or a recorded turn was not replayed, else 0. Raises UsageError if
    `notebook` is not a notebook or the output cannot be written, MissingExtra if a package for notebooks is missing,
    and MissingExtra or ProviderError if the notebook uses the local model and this machine cannot run it.
    """
    try:
        nbformat, nbclient = import_module("nbformat"), import_module("nbclient")
    except ModuleNotFoundError as error:
        raise MissingExtra("Running a notebook", "demo") from error
    document = _read(nbformat, notebook)
    if model:
        os.environ[settings.MODEL] = model
    _fetch_ahead(document)
    place = {"metadata": {"path": str(notebook.parent)}}
    quiet = ["--IPKernelApp.log_level=ERROR"]
    client = nbclient.NotebookClient(document, timeout=None, resources=place, extra_arguments=quiet)
    client.on_cell_executed = _print_cell
    unasked_turns: list[str] = []
    try:
        unasked_turns = _execute(client, {})
    except nbclient.exceptions.CellExecutionError:
        status, failure = 1, "\nA cell failed. The cells after it were not run.\n"
    except nbclient.exceptions.DeadKernelError:
        status, failure = 1, "\nThe kernel died. The cells after the last one above did not finish.\n"
    else:
        status, failure = int(bool(unasked_turns)), "".join(f"\n{one}\n" for one in unasked_turns)
    _write(document, notebook, output or Path(notebook.with_suffix(".out.ipynb").name))
    sys.stdout.flush()
    sys.stderr.write(failure)
    return status


def _read(nbformat: Any, notebook: Path) -> Any:
    try:
        return nbformat.read(notebook, as_version=4)
    except (OSError, ValueError) as error:
        raise UsageError(f"{notebook} cannot be read as a notebook: {error}") from error


def _fetch_ahead(document: Any) -> None:
    """Download the local model if the notebook uses it, before the kernel starts, so that the user sees the progress.

    Raises MissingExtra or ProviderError before the download if this machine cannot run the model.
    """
    sources = [cell.source for cell in document.cells if cell.cell_type == "code"]
    override = settings.model_override()
    if not (override or "").startswith("local:") and (override or not any("local:" in source for source in sources)):
        return
    from agentmagic.providers.local import downloads, llama

    llama.require()
    downloads.fetch()


def _write(document: Any, notebook: Path, target: Path) -> None:
    """Write the executed notebook to the file `target`, and print how to open that file."""
    try:
        import_module("nbformat").write(document, target)
    except OSError as error:
        why = write_failure(error, "Name another file with -o.")
        raise UsageError(f"The outputs cannot be written to {target.absolute()}: {why}") from error
    opening = join_command([sys.executable, "-m", "jupyter", "lab", str(notebook)])
    sys.stdout.write(f"\nWritten with its outputs to {target}\nOpen it yourself: {opening}\n")


def _print_cell(cell: Any, cell_index: int, **_rest: Any) -> None:
    if cell.cell_type != "code":
        return
    text = ""
    for output in cell.outputs:
        is_repeat = output.output_type == "error" and output.evalue and output.evalue in text
        text += f"{output.ename}\n" if is_repeat else _plain(output)
    text = text.strip("\n")
    source = "\n".join(f"    {line}" for line in cell.source.splitlines())
    sys.stdout.write(f"\n[{cell_index}]\n{source}\n\n{text}\n")
    sys.stdout.flush()


def _plain(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback) + "\n"
    return str(output.data.get("text/plain", "")) + "\n"


if __name__ == "__main__":
    sys.exit(main())
