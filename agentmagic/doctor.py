"""What is missing on this machine: `python -m agentmagic doctor`.

Nothing is sent over a network, no server is started, and no key is shown.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from agentmagic import settings
from agentmagic.classroom import VARIABLE, class_settings
from agentmagic.errors import AgentMagicError, MissingExtra, requirement
from agentmagic.providers.local import downloads
from agentmagic.providers.registry import Provider, providers

Health = Literal["ok", "note", "missing"]
"""A "note" is about something that only some notebooks need. If something is "missing", no cell works."""

OLDEST_PYTHON = (3, 11)
SERVER_FILES = (".mcp.json", ".vscode/mcp.json")
FETCH = "from agentmagic.providers.local.downloads import fetch; fetch()"
OWN_SOURCE = "FOLDER, with your clone of agentmagic as FOLDER"  # agentmagic is on no index
_PIP = f"{shlex.quote(sys.executable)} -m pip install"  # `python` may be another one
_NAME = re.compile(r"[^\w.-]")
"""What ends the name of a package in a requirement."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one thing. `command` mends it, "" if nothing has to be mended."""

    health: Health
    about: str
    command: str = ""

    def __str__(self) -> str:
        mend = f" To mend it: {self.command}" if self.command else ""
        return f"{self.health:<8} {self.about}{mend}"


def examine(folder: Path | None = None) -> Iterator[Finding]:
    """Yield a finding for each thing that notebooks in a folder, by default the current one, may need."""
    place = folder or Path.cwd()
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (_python, _packages, _jupyter, _extensions, _keys, _local)
    for check in checks:
        yield from check()
    yield from _class()
    yield from _servers(place)
    yield from _folders(place)


def _python() -> Iterator[Finding]:
    written = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        yield Finding("ok", f"Python {written}, {sys.executable}.")
    else:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding("missing", f"Python {written} is too old.", f"install Python {oldest} or newer")


def _packages() -> Iterator[Finding]:
    try:
        needed = [_NAME.split(line, 1)[0] for line in requires("agentmagic") or () if ";" not in line]
    except PackageNotFoundError:
        yield Finding(
            "note",
            "agentmagic runs from a folder, and is not installed in this Python.",
            f"{_PIP} -e {shlex.quote(requirement('all'))}",
        )
        return
    absent = [name for name in needed if not _installed(name)]
    if absent:
        yield Finding("missing", f"Packages that agentmagic needs: {', '.join(absent)}.", f"{_PIP} {' '.join(absent)}")
    else:
        yield Finding("ok", f"agentmagic {version('agentmagic')}, and the {len(needed)} packages that it needs.")


def _installed(name: str) -> str:
    """Return the version of a distribution, "" if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(name)
    return ""


def _jupyter() -> Iterator[Finding]:
    if found := _installed("ipykernel"):
        yield Finding("ok", f"ipykernel {found}.")
    else:
        yield Finding("missing", "ipykernel, which runs the cells of a notebook.", f"{_PIP} ipykernel")
    labs = [f"{name} {found}" for name in ("jupyterlab", "notebook") if (found := _installed(name))]
    if labs:
        yield Finding("ok", f"{' and '.join(labs)}.")
    else:
        about = (
            "Neither JupyterLab nor Notebook is in this Python. An editor, or a Jupyter elsewhere, can open notebooks."
        )
        yield Finding("note", about, f"{_PIP} jupyterlab")


def _extensions() -> Iterator[Finding]:
    """Look for what the page needs: the widgets, without which a turn is shown as HTML, and the docked panel."""
    if not _installed("jupyterlab") and not _installed("notebook"):
        return  # what another program has installed cannot be seen from here
    paths = [Path(path) for path in import_module("jupyter_core.paths").jupyter_path("labextensions")]
    for folder, source, about in (
        (
            "@jupyter-widgets/jupyterlab-manager",
            "jupyterlab_widgets",
            "Widgets in JupyterLab: buttons and the chat panel",
        ),
        ("anywidget", "anywidget", "The front end of anywidget: buttons and the chat panel"),
        ("agentmagic", OWN_SOURCE, "The JupyterLab extension: the panel beside the notebook"),
    ):
        if any((path / folder / "package.json").is_file() for path in paths):
            yield Finding("ok", f"{about}.")
        else:
            yield Finding("note", f"{about}: not installed.", f"{_PIP} --force-reinstall --no-deps {source}")


def _keys() -> Iterator[Finding]:
    keyed = [row for row in providers().values() if row.keys]
    yield from map(_provider, keyed)
    found = _installed("mcp")
    yield Finding("ok", f"MCP servers: mcp {found}.") if found else _extra("MCP servers: the package mcp", "mcp")
    default = next((f"{row.name}:{row.default}" for row in keyed if _has_key(row)), None)
    if (model := settings.model_override() or default) is None:
        about = "No key is set: cells need local:, a scripted: model or a cassette."
        yield Finding("note", about, "put OPENAI_API_KEY=... into a file .env beside the notebook")
    else:
        yield Finding("ok", f"The model of a cell that names none: {model}.")


def _provider(row: Provider) -> Finding:
    """Return whether a provider with a key can be used."""
    key = _has_key(row)
    if row.package and not _can_import(row.package):
        return _extra(f"{row.name}: has a key, but its SDK" if key else f"{row.name}: its SDK", row.extra)
    if not key:
        return Finding("note", f"{row.name}: has no key here.", f"set {' or '.join(row.keys)}, if you mean to use it")
    return Finding("ok", f"{row.name}: has a key.")


def _has_key(row: Provider) -> bool:
    """Return whether a key is set; the keyring, which may ask the user, is left alone."""
    return settings.find_key(row.keys, keyring=False) is not None


def _extra(about: str, extra: str) -> Finding:
    return Finding("note", f"{about} is not installed.", f"{_PIP} {shlex.quote(requirement(extra))}")


def _can_import(package: str) -> bool:
    with suppress(ModuleNotFoundError):  # of the package above it
        return find_spec(package) is not None
    return False


def _local() -> Iterator[Finding]:
    from agentmagic.providers.local import llama

    try:
        llama.require()
        weights = downloads.find()
    except MissingExtra:
        yield _extra("local: the package xllamacpp", "local")
        return
    except AgentMagicError as error:
        yield Finding("note", f"local: {error}")
        return
    if weights is None:
        about = f"local: its weights ({downloads.SIZE / 1e9:.1f} GB) are not on this machine."
        yield Finding("note", about, f"{shlex.quote(sys.executable)} -c {shlex.quote(FETCH)}")
    else:
        yield Finding("ok", f"local: its weights are in {weights}.")


def _class() -> Iterator[Finding]:
    try:
        bounds = class_settings()
    except AgentMagicError as error:
        unset = f", or unset {VARIABLE}" if os.environ.get(VARIABLE) else ""
        yield Finding("missing", str(error), f"correct the file{unset}")
        return
    if bounds.file is not None:
        yield Finding("ok", f"The settings of the class: {bounds.file}.")


def _servers(place: Path) -> Iterator[Finding]:
    files = [path for name in SERVER_FILES if (path := place / name).is_file()]
    if files and not _installed("mcp"):
        return  # which was said above
    for file in files:
        from agentmagic.tools.mcp import config

        try:
            entries = config.read(file)
        except AgentMagicError as error:
            yield Finding("note", str(error))
            continue
        for name, entry in entries.items():
            yield _server(file.relative_to(place), name, entry.transport)


def _server(file: Path, name: str, transport: object) -> Finding:
    from agentmagic.tools.mcp.config import Stdio, Unreadable

    about = f"The server {name} of {file}"
    match transport:
        case Unreadable(problem=problem):
            return Finding("note", problem, f"correct {file}")
        case Stdio(command=command) if shutil.which(command) is None:
            return Finding(
                "note", f"{about}: there is no program {command!r}.", f"install {command}, or correct {file}"
            )
        case _:
            return Finding("ok", f"{about} can be started with %mcp load {file} and %mcp approve {name}.")


def _folders(place: Path) -> Iterator[Finding]:
    from platformdirs import user_data_path

    data = user_data_path("agentmagic", appauthor=False)
    for folder, about in (
        (place, "saved conversations and cassettes"),
        (downloads.cache(), "the weights of local:"),
        (data, "approved servers"),
    ):
        nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        if os.access(nearest, os.W_OK):
            yield Finding("ok", f"{folder} can be written, for {about}.")
        else:
            yield Finding("note", f"{folder} cannot be written, for {about}.", f"chmod u+w {shlex.quote(str(nearest))}")
