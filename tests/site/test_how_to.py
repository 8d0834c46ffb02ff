"""The how-to pages: every command in them is one that exists, and their cells run and show what the page says."""

import argparse
import asyncio
import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Self, TypeVar, cast

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from agentmagic import __main__ as terminal
from agentmagic.classroom import VARIABLE, class_settings
from agentmagic.jupyter.magics.agent_commands import AGENT_COMMANDS, agent_magic
from agentmagic.jupyter.magics.mcp_commands import mcp_magic
from agentmagic.jupyter.magics.options import parse_ask
from agentmagic.tools.mcp import config
from tests.jupyter.harness import ROOT, Kernel
from tests.providers.strict.script import Answer, say
from tests.providers.strict.server import KEY, strict

FOLDER = ROOT / "docs" / "how-to"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "index.md")
PARTS = ["Steps", "Check that it worked", "If it does not work", "More"]
"""The headings of each page."""
INFOS = {"agentmagic", "text", "bash", "toml", "json", "yaml", "py"}
"""The kinds of blocks: a cell, what it shows, lines for a terminal, and files."""
RUN = {"cassette", "handed-in"}
"""The commands for a terminal that the test carries out; the others are only read."""
AGENT, MCP, TERMINAL = agent_magic(), mcp_magic(), terminal._parser()
LOAD = "%load_ext agentmagic\n"
GATEWAY = "https://gateway.example.org"
"""The address for which that of the strict server stands in."""
POLICY = "agentmagic.toml"
"""The administrator's file, in the folder of the page."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Scene:
    """What stands in for the world of a page.

    `steps` is the script of the model, or of a strict server with the `api` of a provider. `typed` are the answers that
    the reader types, and `interrupted` the text at which a cell is interrupted, by a word of the cell. `files` are the
    names of the page's files by their kinds. If it `restarts`, so does the kernel, before the last `%load_ext`. `ends`
    takes away what the page has connected. `hidden` must not be shown.
    """

    steps: tuple[object, ...] = ()
    api: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    typed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    interrupted: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    restarts: bool = False
    ends: str = ""
    hidden: str = ""


def calls(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


SCENES: dict[str, Scene] = {
    "stop-a-turn": Scene(
        steps=({"text": "A lighthouse shines. " * 50, "pace": 0.2}, "It shines.", "In Spain."),
        interrupted={"long report": "A light"},
    ),
    "set-a-key": Scene(
        api="openai", steps=(say("Hello."),), variables={"OPENAI_BASE_URL": "{}/v1", "OPENAI_API_KEY": KEY}
    ),
    "use-ollama": Scene(api="ollama", steps=(say("It warns ships."),), variables={"OLLAMA_HOST": "{}"}),
    "company-gateway": Scene(
        api="openai-chat",
        steps=(say("A door between networks."),),
        variables={"OPENAI_BASE_URL": "{}/v1", "OPENAI_API_KEY": KEY},
    ),
    "approve-once": Scene(
        steps=(calls("save", path="results/summary.md", text="Good."), "It is saved."), files={"json": ".mcp.json"}
    ),
    "undo-changes": Scene(
        steps=(calls("run_python", code="del orders['price']"), "The column is gone."), typed={"Drop": ("y",)}
    ),
    "replay-in-ci": Scene(steps=("La Coruña.",)),
    "limit-the-cost": Scene(steps=("La Coruña.",)),
    "grade-a-class": Scene(files={"toml": "class.toml"}),
    "jupyterhub": Scene(api="openai-chat", steps=(say("Hello."),), files={"toml": POLICY}),
    "vs-code": Scene(steps=("Hello.",)),
    "label-a-frame": Scene(steps=(json.dumps({"mood": "good", "product": "lamp"}),) * 3),
    "add-an-mcp-server": Scene(
        steps=(calls("get_current_time", timezone="Europe/Rome"), "It is late."),
        typed={"What time": ("y",)},
        ends="%mcp remove clock",
    ),
    "use-my-function": Scene(steps=(calls("stock", item="lamp"), "Twelve.")),
    "get-a-value": Scene(
        steps=(
            json.dumps([{"name": name, "lighthouse_built": 1611} for name in ("Genoa", "Cordouan", "Hook")]),
            "1863",
        ),
    ),
    "export-a-chat": Scene(steps=("La Coruña.",)),
    "reopen-a-chat": Scene(steps=("La Coruña.",), restarts=True),
    "schema-only": Scene(steps=("def by_decade(): ...",), files={"toml": "pyproject.toml"}, hidden="Byron"),
    "use-claude-code": Scene(steps=("The first one.",), ends="%agent serve stop"),
    "work-offline": Scene(steps=("Hello.",)),
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page: kind and content."""
    return [(token.info, token.content) for token in tokens(page) if token.type == "fence"]


def tokens(page: Path) -> list[Token]:
    return MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))


def code_words(page: Path) -> list[str]:
    """What stands in backticks in the text."""
    inner = [child for token in tokens(page) for child in token.children or []]
    return [token.content for token in inner if token.type == "code_inline"]


def magic_lines(page: Path) -> Iterator[str]:
    """The lines with magics of ours, in the text and in the cells."""
    cells = [line for kind, code in blocks(page) if kind == "agentmagic" for line in code.splitlines()]
    assigned = re.compile(r"\w+ = (?=%)")
    lines = (assigned.sub("", line) for line in (*code_words(page), *cells))
    return (line for line in lines if re.match(r"%%?(agent|mcp)\b", line))


def read_magic(line: str) -> object:
    """Read a line as its magic does."""
    name, _, rest = line.partition(" ")
    rest = rest.partition("  #")[0].strip()
    if name == "%%agent":
        return parse_ask(rest)
    return (AGENT if name == "%agent" else MCP).read(rest)


def words(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the words of a line for a terminal, without the file to which its output goes."""
    parts = shlex.split(line, comments=True)
    parts = parts[: parts.index(">")] if ">" in parts else parts
    variables = {}
    while parts and re.fullmatch(r"[A-Z_]+=.*", parts[0]):
        name, _, value = parts.pop(0).partition("=")
        variables[name] = value
    return variables, parts


def terminal_commands(page: Path) -> list[list[str]]:
    """The arguments of each `python -m agentmagic` on a page."""
    lines = [line for kind, code in blocks(page) if kind == "bash" for line in code.splitlines()]
    lines += [word for word in code_words(page) if word.startswith("python -m agentmagic")]
    found = [words(line)[1] for line in lines]
    return [parts[3:] for parts in found if parts[:3] == ["python", "-m", "agentmagic"]]


@cache
def all_options() -> set[str]:
    """The options of the magics, and of the commands for a terminal."""
    helps = [parse_ask("--help").text, *(AGENT.read(f"help {word}").text for word in AGENT_COMMANDS)]
    found = set(re.findall(r"--[a-z-]+", "\n".join(helps)))
    parsers = [TERMINAL]
    for one in parsers:  # which grows
        for action in one._actions:
            found.update(action.option_strings)
            parsers += action.choices.values() if isinstance(action, argparse._SubParsersAction) else ()
    return found


def fits(shown: str, output: str) -> bool:
    """Whether an output has each line that a page shows of it, where `...` stands for anything."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    patterns = [".*".join(map(re.escape, " ".join(line.split()).split("..."))) for line in shown.splitlines()]
    return all(any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns if pattern)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_magic_option_and_command_of_a_page_exists(page):
    for line in magic_lines(page):
        read_magic(line)
    for arguments in terminal_commands(page):
        TERMINAL.parse_args(arguments)
    options = {word.split()[0] for word in code_words(page) if word.startswith("--")}
    assert options - all_options() - FOREIGN == set()


def test_every_variable_and_extra_of_the_pages_exists():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    code = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("agentmagic/**/*.py"))
    assert {name for name in re.findall(r"\b[A-Z]+_[A-Z_]+\b", text) if f'"{name}"' not in code} <= FOREIGN
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {name for found in re.findall(r"'\.\[([\w,]+)\]'", text) for name in found.split(",")}
    assert named - set(extras) == set()


FOREIGN = {"--nbval", "--nbval-lax", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"}
"""Options and variables of others on the pages."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_the_reader_can_do_then_how_then_how_to_tell_and_what_to_do_if_it_fails(page):
    title, opening, *_ = [token for token in tokens(page) if token.type == "inline"]
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert opening.content.startswith("After this page ")
    assert 30 <= len(text.splitlines()) <= 90
    assert {kind for kind, _ in blocks(page)} <= INFOS
    assert f"[{title.content}]({page.name})" in (FOLDER / "index.md").read_text(encoding="utf-8")


def test_there_is_a_page_for_each_question_of_a_newcomer():
    questions = re.findall(
        r"^\d+\. ", (Path(__file__).parent / "questions.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(PAGES) == len(questions) == 20


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    place = tmp_path_factory.mktemp("kernel")
    (place / "notebook.ipynb").write_text("{}", encoding="utf-8")
    variables = {
        "JPY_SESSION_NAME": str(place / "notebook.ipynb"),
        "IPYTHONDIR": str(place),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "XDG_DATA_HOME": str(place / "data"),
        "OLLAMA_HOST": "127.0.0.1:9",  # where nothing listens
    }
    with Kernel(sys.executable, variables, place) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_cells_of_a_page_run_and_show_what_it_says(page, kernel, tmp_path):
    with Stage(kernel, tmp_path, SCENES[page.stem]) as stage:
        output = ""
        for kind, code in blocks(page):
            match kind:
                case "agentmagic":
                    output = stage.run_cell(code)
                case "bash":
                    output = stage.run_terminal(code)
                case "text":
                    assert fits(code, output), f"{code}\nis not in\n{output}"
                case "py":
                    stage.start_server(code)
                case _:
                    stage.write(kind, code)


class Stage:
    """A page that is played in a folder of its own; agentmagic is loaded by its cells."""

    def __init__(self, kernel: Kernel, folder: Path, scene: Scene) -> None:
        self._kernel = kernel
        self._folder = folder
        self._scene = scene
        self._variables = scene.variables
        self._gateway = GATEWAY
        self._is_loaded = False
        self._struck = ExitStack()

    def __enter__(self) -> Self:
        if self._scene.api:
            server = self._struck.enter_context(strict(self._scene.api, *cast("tuple[Answer, ...]", self._scene.steps)))
            self._variables = {name: value.format(server.url) for name, value in self._variables.items()}
            self._gateway = server.url
        elif self._scene.steps:
            script = self._folder / "script.json"
            script.write_text(json.dumps(self._scene.steps), encoding="utf-8")
            self._variables = {"AGENTMAGIC_MODEL": f"scripted:{script}"}
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        with self._struck:
            # If the page has failed early, these commands fail too.
            self._kernel.run(f"{self._scene.ends}\n%agent live\n%unload_ext agentmagic")
            unset = f"import os\nfor name in {list(self._variables)}: os.environ.pop(name)"
            assert (left := self._kernel.run(f"{unset}\n%reset -f")).ok, left.error

    def _enter(self) -> None:
        """Have the kernel stand in the folder, with the variables in its environment and this folder's policy."""
        ready = self._kernel.run(
            f"import os\nfrom pathlib import Path\nfrom agentmagic import classroom\n"
            f"os.chdir({str(self._folder)!r})\nos.environ |= {self._variables}\n"
            f"classroom.POLICY_FILE = Path({str(self._folder / POLICY)!r})\nclassroom.class_settings.cache_clear()\n"
            "from agentmagic.widgets.view import View\nView.patience = 0.0"  # no page will say hello
        )
        assert ready.ok, ready.error

    def run_cell(self, code: str) -> str:
        """Run a cell as the reader does, and return what it shows."""
        if code == LOAD and self._is_loaded and self._scene.restarts:
            self._kernel.restart()
            self._enter()
        self._is_loaded |= code.startswith(LOAD)
        if (until := _by_word(self._scene.interrupted, code)) is not None:
            cell = self._kernel.wait_for_text(self._kernel.send(code.rstrip()), until)
            self._kernel.interrupted(cell)
            return cell.stream + cell.text
        cell, _ = self._kernel.answer(code.rstrip(), *_by_word(self._scene.typed, code) or ())
        shown = cell.stream + cell.text
        assert cell.ok, f"{code}\n{cell.error}\n{shown}"
        assert not self._scene.hidden or self._scene.hidden not in shown
        return shown

    def run_terminal(self, code: str) -> str:
        """Carry out the commands of agentmagic among lines for a terminal, and return what they print."""
        printed = io.StringIO()
        for line in code.splitlines():
            _, parts = words(line)
            if parts[:3] == ["python", "-m", "agentmagic"] and parts[3] in RUN:
                files = [sorted(one.name for one in self._folder.glob(part)) or [part] for part in parts[3:]]
                with chdir(self._folder), redirect_stdout(printed), redirect_stderr(printed):
                    terminal.main([name for group in files for name in group])
        return printed.getvalue()

    def write(self, kind: str, code: str) -> None:
        """Write a file of the page, and check what the kernel does not read of it."""
        file = self._folder / self._scene.files.get(kind, f"page.{kind}")
        file.write_text(code.replace(GATEWAY, self._gateway), encoding="utf-8")
        match kind:
            case "toml" if "agentmagic.class" in code:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv(VARIABLE, str(file))
                    class_settings.cache_clear()
                    assert class_settings().models
            case "json":
                assert config.read(file)
            case "yaml":
                assert yaml.safe_load(code)["jobs"]

    def start_server(self, code: str) -> None:
        """Have the kernel get the variables that a hub with this configuration gives to a user's server."""
        spawner = SimpleNamespace(environment={}, user=SimpleNamespace(name="ada"))

        async def key_of(_user: str) -> str:
            return KEY

        exec(code.replace(GATEWAY, self._gateway), {"c": SimpleNamespace(Spawner=spawner), "key_of": key_of})  # noqa: S102
        asyncio.run(spawner.pre_spawn_hook(spawner))
        self._variables = spawner.environment
        self._enter()


def _by_word(table: Mapping[str, Value], code: str) -> Value | None:
    return next((value for word, value in table.items() if word in code), None)
