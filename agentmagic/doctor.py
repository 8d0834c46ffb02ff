"""Checks what is missing on this machine, for `python -m agentmagic doctor`.

The checks send nothing over the network, start no server, and show no key.
"""

import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentmagic import settings
from agentmagic.bill import PaidRequests
from agentmagic.classroom import VARIABLE, ClassSettings, class_settings
from agentmagic.errors import AgentMagicError, MissingExtra, requirement, with_code
from agentmagic.platforms import join_command, quote_word

if TYPE_CHECKING:
    from agentmagic.providers.base import Provider

Health = Literal["ok", "note", "missing"]
"""The result of a check. A "note" is about a thing that only some notebooks need; if it is "missing", no cell works."""

OLDEST_PYTHON = (3, 11)
SERVER_FILES = (".mcp.json", ".vscode/mcp.json")
FETCH = "from agentmagic.providers.local.downloads import fetch; fetch()"
OWN_SOURCE = "FOLDER, with your clone of agentmagic as FOLDER"  # pip needs a folder: agentmagic is not on PyPI
_PIP = f"{quote_word(sys.executable)} -m pip install"  # not `python`, which may be another Python
_NAME = re.compile(r"[^\w.-]")
"""Matches the first character after the name of a package in a requirement."""
_SYSTEM = re.compile(r"""\s*sys_platform\s*([!=]=)\s*['"](\w+)['"]\s*""")
"""Matches the marker of a package that is needed on one system only, or on all others. Extras have other markers."""
_MODULES = {"ipython": "IPython", "markdown-it-py": "markdown_it", "python-dotenv": "dotenv", "pyyaml": "yaml"}
"""The import names of required packages, where they differ from the package names."""
_PACKAGES = {"google": "google-genai", "pydantic_core": "pydantic"}
"""The package to install for a module that belongs to another package, or to several."""
_QUOTES = "\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `doctor`. `command` fixes the problem; it is "" if nothing has to be fixed."""

    health: Health
    about: str
    command: str = ""

    def __str__(self) -> str:
        mend = f" To mend it: {self.command}" if self.command else ""
        return f"{self.health:<8} {self.about}{mend}"


def examine(folder: Path | None = None) -> Iterator[Finding]:
    """Yield a finding for each thing that notebooks in `folder` (by default the working directory) may need.

    If a check itself raises an exception, for example because a package is broken, that becomes a finding too.
    """
    place = folder or Path.cwd()
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("Python", _python),
        ("The packages of agentmagic", _packages),
        ("Jupyter", _jupyter),
        ("What the page needs", _extensions),
        ("Providers and keys", _keys),
        ("MCP servers", _mcp),
        ("Outside agents", _agents),
        ("local:", _local),
        ("The policy and the settings of the class", _bounds),
        ("The servers of this folder", partial(_servers, place)),
        ("The folders that are written", partial(_folders, place)),
    )
    for about, check in checks:
        try:
            yield from check()
        except Exception as error:  # noqa: BLE001  (a broken package may raise anything when it is imported)
            yield Finding("note", f"{about} cannot be looked at: {_reason(error)}.", _install_command(error))


def _reason(error: Exception) -> str:
    words = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}{f': {words}' if words else ''}"


def _install_command(error: Exception) -> str:
    """Return the command that (re)installs the package whose module an import error names, or "" if it names none."""
    module = (getattr(error, "name", None) or "").partition(".")[0]
    if not module:
        return ""
    package_names = {own: name for name, own in _MODULES.items()} | _PACKAGES
    distribution = (packages_distributions().get(module) or [package_names.get(module, module.replace("_", "-"))])[0]
    return f"{_PIP} --force-reinstall {distribution}" if _version_of(distribution) else f"{_PIP} {distribution}"


def _import_problem(module: str) -> str:
    """Return why an installed module cannot be imported, or "" if it can be imported."""
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001  (see `examine`)
        return _reason(error)
    return ""


def _python() -> Iterator[Finding]:
    python_version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        yield Finding("ok", f"Python {python_version}, {sys.executable}.")
    else:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding("missing", f"Python {python_version} is too old.", f"install Python {oldest} or newer")


def _packages() -> Iterator[Finding]:
    try:
        lines, is_installed = requires("agentmagic") or [], True
    except PackageNotFoundError:
        lines, is_installed = _required_by_source(), False
    if not is_installed:
        yield Finding(
            "note",
            "agentmagic runs from a folder, and is not installed in this Python.",
            f"{_PIP} -e {quote_word(requirement('all'))}",
        )
    requirements = [_NAME.split(line, 1)[0] for line in lines if _is_needed(line)]
    absent = [name for name in requirements if not _version_of(name)]
    modules = {name: _MODULES.get(name, name.replace("-", "_")) for name in requirements if name not in absent}
    problems = {name: why for name, module in modules.items() if (why := _import_problem(module))}
    if absent:
        yield Finding("missing", f"Packages that agentmagic needs: {', '.join(absent)}.", f"{_PIP} {' '.join(absent)}")
    for name, why in problems.items():
        about = f"The package {name}, which agentmagic needs, cannot be imported: {why}."
        yield Finding("missing", about, f"{_PIP} --force-reinstall {name}")
    if is_installed and not absent and not problems:
        yield Finding("ok", f"agentmagic {version('agentmagic')}, and the {len(requirements)} packages that it needs.")


def _required_by_source() -> list[str]:
    """Return the requirements in pyproject.toml if agentmagic runs from a git clone, or [] if it does not."""
    with suppress(OSError, ValueError, KeyError):
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        return tomllib.loads(text)["project"]["dependencies"]
    return []


def _is_needed(line: str) -> bool:
    """Return whether a requirement of agentmagic applies on this system if no extra of agentmagic is requested."""
    marker = line.partition(";")[2]
    system = _SYSTEM.fullmatch(marker)
    return not marker or (system is not None and (system[1] == "==") == (system[2] == sys.platform))


def _version_of(name: str) -> str:
    """Return the version of a package, or "" if it is not installed."""
    with suppress(PackageNotFoundError):
        return version(name)
    return ""


def _jupyter() -> Iterator[Finding]:
    if not (installed_version := _version_of("ipykernel")):
        yield Finding("missing", "ipykernel, which runs the cells of a notebook.", f"{_PIP} ipykernel")
    elif why := _import_problem("ipykernel"):
        about = f"ipykernel, which runs the cells of a notebook, cannot be imported: {why}."
        yield Finding("missing", about, f"{_PIP} --force-reinstall ipykernel")
    else:
        yield Finding("ok", f"ipykernel {installed_version}.")
    labs = [
        f"{name} {installed_version}" for name in ("jupyterlab", "notebook") if (installed_version := _version_of(name))
    ]
    if labs:
        yield Finding("ok", f"{' and '.join(labs)}.")
    else:
        about = (
            "Neither JupyterLab nor Notebook is in this Python. An editor, or a Jupyter elsewhere, can open notebooks."
        )
        yield Finding("note", about, f"{_PIP} jupyterlab")


def _extensions() -> Iterator[Finding]:
    """Check the JupyterLab extensions: one for widgets (without it, turns are plain HTML), one for the panel."""
    if not _version_of("jupyterlab") and not _version_of("notebook"):
        return  # the extensions of a Jupyter in another Python cannot be checked
    paths = [Path(path) for path in import_module("jupyter_core.paths").jupyter_path("labextensions")]
    disabled_names = _disabled_extensions()
    for name, source, about in (
        (
            "@jupyter-widgets/jupyterlab-manager",
            "jupyterlab_widgets",
            "Widgets in JupyterLab: buttons and the chat panel",
        ),
        ("anywidget", "anywidget", "The front end of anywidget: buttons and the chat panel"),
        ("agentmagic", OWN_SOURCE, "The JupyterLab extension: the panel beside the notebook"),
    ):
        if not any((path / name / "package.json").is_file() for path in paths):
            yield Finding("note", f"{about}: not installed.", f"{_PIP} --force-reinstall --no-deps {source}")
        elif off := [one for one in disabled_names if one.partition(":")[0] == name]:
            yield Finding("note", f"{about}: disabled, {', '.join(off)}.", _enable_command(off[0]))
        else:
            yield Finding("ok", f"{about}.")


def _disabled_extensions() -> list[str]:
    """Return the names of the extensions and plugins that a configuration file of JupyterLab or Notebook disables."""
    core, lab, config = map(import_module, ("jupyter_core.paths", "jupyterlab.commands", "jupyterlab_server.config"))
    settings_folder = str(Path(lab.get_app_dir()) / "settings")
    return list(config.get_page_config(core.jupyter_path("labextensions"), settings_folder)["disabledExtensions"])


def _enable_command(name: str) -> str:
    """Return how to enable an extension: a command for the level (user, environment or system) that disables it.

    If no level disables the extension, the result says in words which file to change.
    """
    config = import_module("jupyterlab_server.config")
    for level in ("user", "sys_prefix", "system"):
        disabled_names: Any = config.get_static_page_config(level=level).get("disabledExtensions", {})
        if name in disabled_names and (not isinstance(disabled_names, dict) or disabled_names[name]):
            return f"{quote_word(sys.executable)} -m jupyter labextension enable --level={level} {name}"
    folder = Path(import_module("jupyterlab.commands").get_app_dir()) / "settings"
    return f"take {name} out of disabledExtensions in {folder / 'page_config.json'}, or of the extension that names it"


def _keys() -> Iterator[Finding]:
    from agentmagic.providers.registry import providers

    rows = [row for row in providers().values() if row.keys]
    yield from map(_provider, rows)
    default = next((row for row in rows if _key(row)), None)
    model = settings.model_override() or (f"{default.name}:{default.default}" if default is not None else "")
    if not model:
        about = "No key is set: cells need local:, a scripted: model or a cassette."
        yield Finding("note", about, "put OPENAI_API_KEY=... into a file .env beside the notebook")
    elif not settings.model_override() and default is not None and _key_problem(_key(default)):
        yield Finding("note", f"The model of a cell that names none: {model}, with the key that is named above.")
    else:
        yield Finding("ok", f"The model of a cell that names none: {model}.")


def _provider(row: "Provider") -> Finding:
    """Return the finding about one provider of models: whether its API key is set and its SDK can be imported."""
    key, names = _key(row), " or ".join(row.keys)
    if row.package and not _can_import(row.package):
        return _extra(f"{row.name}: has a key, but its SDK" if key else f"{row.name}: its SDK", row.extra)
    if not key:
        return Finding("note", f"{row.name}: has no key here.", f"set {names}, if you mean to use it")
    if row.package and (why := _import_problem(row.package)):  # only if it has a key: an import takes up to a second
        name = _PACKAGES.get(row.package.partition(".")[0], row.package)
        about = f"{row.name}: has a key, but its SDK cannot be imported: {why}."
        return Finding("note", about, f"{_PIP} --force-reinstall {name}")
    if problem := _key_problem(key):
        return Finding("note", f"{row.name}: the key in {names} {problem}.", f"set {names} to the key alone")
    return Finding("ok", f"{row.name}: has a key.")


def _key(row: "Provider") -> str:
    """Return the provider's API key, or "" if none is set. Does not read the keyring, since it may ask the user."""
    return settings.find_key(row.keys, keyring=False) or ""


_ODD_KEYS = (
    (r"\s*", "is blank"),
    (r".*[\r\n]", "ends in a line break"),
    (r".*[\r\n].*", "has a line break in it"),
    (rf"\s*[{_QUOTES}].*|.*[{_QUOTES}]\s*", "has quotes around it, which are sent as part of it"),
    (r"\s.*|.*\s", "has a blank before or behind it"),
    (r"Bearer\s.*", "begins with the word Bearer, which is no part of it"),
    (r".*\s.*", "has a blank in it"),
    (r"[A-Z_]+=.*", "begins with the name of a variable"),
    (r"[<*.].*|.*(?:\.\.\.|\N{HORIZONTAL ELLIPSIS}|>)", "stands for a key, and is not one"),
    (r".*[^!-~].*", "has characters in it that no key has"),
)
"""Patterns of keys that are probably wrong, each with the end of the sentence about it. The first match counts."""


def _key_problem(key: str) -> str:
    """Return why an API key is probably wrong, or "" if it looks right. The reason never contains a part of the key."""
    return next((problem for odd, problem in _ODD_KEYS if re.fullmatch(odd, key, re.DOTALL)), "")


def _mcp() -> Iterator[Finding]:
    if not (installed_version := _version_of("mcp")):
        yield _extra("MCP servers: the package mcp", "mcp")
    elif why := _import_problem("mcp"):
        yield Finding(
            "note", f"MCP servers: the package mcp cannot be imported: {why}.", f"{_PIP} --force-reinstall mcp"
        )
    else:
        yield Finding("ok", f"MCP servers: mcp {installed_version}.")


def _agents() -> Iterator[Finding]:
    """Check those outside agents (other agent programs on this machine) that are installed or lack only an adapter."""
    from agentmagic.acp import agents
    from agentmagic.tools.mcp.stdio import locate

    for agent in agents.KNOWN.values():
        if (place := locate(agent.command)) is None:
            if agent.wraps and locate(agent.wraps):
                about = f"{agent.model}: {agent.wraps} is here, and its adapter {agent.command} is not installed."
                yield Finding("note", about, agent.install)
        elif not _version_of("agent-client-protocol"):
            yield _extra(f"{agent.model}: {place} is here, but the package agent-client-protocol", "acp")
        elif problem := agents.node_problem(agent):
            about, _, command = problem.rpartition(", and then the agent: ")
            yield Finding("note", f"{about}.", command)
        else:
            yield Finding("ok", f"{agent.model}: {place}. If it is not logged in, in a terminal: {agent.login}.")


def _extra(about: str, extra: str) -> Finding:
    return Finding("note", f"{about} is not installed.", f"{_PIP} {quote_word(requirement(extra))}")


def _can_import(package: str) -> bool:
    with suppress(ModuleNotFoundError):  # raised by `find_spec` if the parent package is missing
        return find_spec(package) is not None
    return False


def _local() -> Iterator[Finding]:
    from agentmagic.providers.local import downloads, llama

    try:
        llama.require()
        weights = downloads.find()
    except MissingExtra:
        yield _extra("local: the package xllamacpp", "local")
        return
    except AgentMagicError as error:
        yield Finding("note", f"local: {with_code(error)}")
        return
    if weights is None:
        about = f"local: its weights ({downloads.SIZE / 1e9:.1f} GB) are not on this machine."
        yield Finding("note", about, f"{quote_word(sys.executable)} -c {quote_word(FETCH)}")
    else:
        yield Finding("ok", f"local: its weights are in {weights}.")


def _bounds() -> Iterator[Finding]:
    try:
        bounds = class_settings()
    except AgentMagicError as error:
        unset = f", or unset {VARIABLE}" if os.environ.get(VARIABLE) else ""
        yield Finding("missing", with_code(error), f"correct the file{unset}")
        return
    if bounds.policy is not None:
        yield _policy(bounds.policy)
    if bounds.classes:
        yield Finding("ok", f"The settings of the class: {', '.join(str(one.file) for one in bounds.classes)}.")
    for words in bounds.wider:
        yield Finding("note", words, "take the setting that asks for more out of its file")


def _policy(policy: ClassSettings) -> Finding:
    about = f"The administrator's policy {policy.file}: {', '.join(map(policy.setting_text, policy.settings))}."
    places = [] if policy.file is None or os.name == "nt" else [policy.file, policy.file.parent]
    if not any(os.access(place, os.W_OK) for place in places):  # `os.access` ignores permissions on Windows
        return Finding("ok", about)
    names = join_command([*map(str, places)])
    mend = f"sudo chown root {names} && sudo chmod go-w {names}" if os.geteuid() else "run kernels as another user"
    return Finding("note", f"{about} This user can change the file, so the policy does not bind them.", mend)


def _servers(place: Path) -> Iterator[Finding]:
    files = [path for name in SERVER_FILES if (path := place / name).is_file()]
    if files and not _version_of("mcp"):
        return  # another check, `_mcp`, already reports that the package mcp is missing
    for file in files:
        from agentmagic.tools.mcp import config

        try:
            entries = config.read(file)
        except AgentMagicError as error:
            yield Finding("note", with_code(error))
            continue
        for name, entry in entries.items():
            yield _server(file.relative_to(place), name, entry.transport)


def _server(file: Path, name: str, transport: object) -> Finding:
    from agentmagic.tools.mcp.config import Stdio, Unreadable
    from agentmagic.tools.mcp.stdio import locate

    about = f"The server {name} of {file}"
    match transport:
        case Unreadable(problem=problem):
            return Finding("note", problem, f"correct {file}")
        case Stdio(command=command) if locate(command) is None:
            return Finding(
                "note", f"{about}: there is no program {command!r}.", f"install {command}, or correct {file}"
            )
        case _:
            return Finding("ok", f"{about} can be started with %mcp load {file} and %mcp approve {name}.")


def _folders(place: Path) -> Iterator[Finding]:
    yield _folder(place, "saved conversations and cassettes")
    from agentmagic.providers.local import downloads

    yield _folder(downloads.cache(), "the weights of local:")
    from platformdirs import user_data_path

    yield _folder(user_data_path("agentmagic", appauthor=False), "approved servers")
    yield _folder(PaidRequests.path().parent, "the ledger of paid requests")


def _folder(folder: Path, about: str) -> Finding:
    nearest = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if os.access(nearest, os.W_OK):
        return Finding("ok", f"{folder} can be written, for {about}.")
    return Finding("note", f"{folder} cannot be written, for {about}.", f"chmod u+w {quote_word(str(nearest))}")
