"""What is otherwise on Windows and macOS, with `sys.platform` as it is there. The rest of it is not played here."""

import io
import mimetypes
import os
import sys
import sysconfig
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentmagic import platforms
from agentmagic.__main__ import main
from agentmagic.acp.agents import outside_agent
from agentmagic.platforms import join_command, move_over, quote_word, split_command
from agentmagic.prompt.attachments import UNKNOWN, Attacher
from agentmagic.providers.proxies import proxy_for
from agentmagic.replay.cassette import HEAD
from agentmagic.serve.kernels import ServedKernel
from agentmagic.tools.mcp.config import Stdio, parse
from agentmagic.tools.mcp.stdio import environment_of, locate
from agentmagic.tools.mcp.trust import describe
from agentmagic.undo.watcher import _record_files


@pytest.fixture
def on_windows(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")


@pytest.mark.usefixtures("on_windows")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"C:\tools\server.exe --root C:\data", ["C:\\tools\\server.exe", "--root", "C:\\data"]),
        (r'"C:\Program Files\node.exe" a.js', ["C:\\Program Files\\node.exe", "a.js"]),
        ("uvx mcp-server-time # five", ["uvx", "mcp-server-time", "#", "five"]),
        (r"C:\Users\O'Brien\server.exe", ["C:\\Users\\O'Brien\\server.exe"]),
        (r'server --json "{\"a\": 1}"', ["server", "--json", '{"a": 1}']),
        (r'server "C:\my data\\" \\host\share', ["server", "C:\\my data\\", "\\\\host\\share"]),
        ("  a \t b\n", ["a", "b"]),
    ],
)
def test_on_windows_a_backslash_belongs_to_a_path(line, words):
    assert split_command(line) == words
    assert split_command(join_command(words)) == words


@pytest.mark.usefixtures("on_windows")
@pytest.mark.parametrize(
    "word", ["", " ", '"', 'a"b c', '"a b"', "\\", "a b\\", 'a\\"', 'a b\\\\" c\\', "it's", "C:\\x y\\z", "%PATH%"]
)
def test_on_windows_splitting_undoes_joining(word):
    assert split_command(join_command(["server", word, word])) == ["server", word, word]


@pytest.mark.usefixtures("on_windows")
def test_on_windows_an_open_quote_is_told():
    with pytest.raises(ValueError, match="quotation"):
        split_command('server "a b')


@pytest.mark.usefixtures("on_windows")
def test_on_windows_an_entry_is_shown_for_approval_as_it_is_written_there():
    line = r'C:\tools\server.exe "C:\my data" it' + "'s"
    assert describe(parse(line)) == line


def test_elsewhere_a_backslash_escapes_and_quotes_are_those_of_a_shell():
    assert split_command(r"a\ b 'c d' # e") == ["a b", "c d", "#", "e"]
    assert quote_word("c d") == "'c d'"
    with pytest.raises(ValueError, match="quotation"):
        split_command("'a")


@pytest.mark.usefixtures("on_windows")
def test_on_windows_an_outside_agent_is_started_by_its_path():
    assert outside_agent(r"acp:C:\tools\agent.exe --acp").command == "C:\\tools\\agent.exe"
    assert quote_word("c d") == '"c d"'


class WrittenFile:
    """A file whose place another program has open, for so many tries."""

    def __init__(self, refusals):
        self.refusals = refusals

    def replace(self, target):
        if self.refusals:
            self.refusals -= 1
            raise PermissionError(13, "Access is denied")
        target.write_text("new")


def test_on_windows_a_file_that_is_being_read_is_replaced_when_it_is_closed(on_windows, monkeypatch, tmp_path):
    monkeypatch.setattr(platforms, "PAUSE", 0)
    move_over(WrittenFile(refusals=2), tmp_path / "a")
    assert (tmp_path / "a").read_text() == "new"
    monkeypatch.setattr(platforms, "PATIENCE", 0)
    with pytest.raises(PermissionError):
        move_over(WrittenFile(refusals=1000), tmp_path / "a")


def test_elsewhere_a_refusal_stands_at_once(tmp_path):
    written = WrittenFile(refusals=2)
    with pytest.raises(PermissionError):
        move_over(written, tmp_path / "a")
    assert written.refusals == 1


def test_on_windows_a_server_gets_one_path_however_its_entry_writes_it(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    server = Stdio("server", env={"Path": "C:\\tools", "https_proxy": "http://own:3128"})
    assert environment_of(server)["Path"] == "C:\\tools"
    monkeypatch.setattr(sys, "platform", "win32")
    found = environment_of(server)
    assert (found["PATH"], found["HTTPS_PROXY"]) == ("C:\\tools", "http://own:3128")
    assert {*found}.isdisjoint({"Path", "https_proxy"})


@pytest.mark.posix
def test_a_program_of_an_environment_is_found_where_conda_puts_it_on_windows(monkeypatch, tmp_path):
    program = tmp_path / "Scripts" / "mcp-server-of-conda"
    program.parent.mkdir()
    program.touch()
    program.chmod(0o755)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(program.parent))
    assert locate("mcp-server-of-conda", "") == str(program)


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_host_that_the_settings_of_the_system_except_is_reached_without_its_proxy(system, monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"https": "http://proxy:3128"})
    monkeypatch.setattr(urllib.request, "proxy_bypass", lambda host: host.endswith(".corp"))
    monkeypatch.setattr(sys, "platform", system)
    assert proxy_for("https://llm.corp/v1") is None
    assert str(proxy_for("https://api.openai.com/v1")) == "http://proxy:3128"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert str(proxy_for("https://llm.corp/v1")) == "http://proxy:3128"  # variables count in place of the settings


def test_a_terminal_that_has_no_sign_for_a_name_shows_its_code(monkeypatch, tmp_path):
    cassette = tmp_path / "講義.cassette.yaml"
    cassette.write_text(HEAD, encoding="utf-8")
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="cp1252", write_through=True))
    assert main(["cassette", "verify", str(cassette)]) == 0
    assert out.getvalue().startswith(rb"\u8b1b\u7fa9.cassette.yaml is whole")


def test_a_csv_file_is_text_where_the_system_calls_it_one_of_excel(monkeypatch, tmp_path):
    monkeypatch.setattr(mimetypes, "guess_type", lambda *_, **__: ("application/vnd.ms-excel", None))
    (tmp_path / "a.csv").write_text("x\n1\n")
    attached = Attacher(lambda: UNKNOWN).file("@a.csv", tmp_path / "a.csv", "a.csv")
    assert attached.value.shown.startswith("text/csv, ")


def test_a_file_whose_name_begins_as_the_null_device_of_windows_is_told_as_written(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "devnull", "nul")
    monkeypatch.chdir(tmp_path)
    files = {}
    with _record_files(files):
        for name in ("nulls.csv", "NUL"):
            Path(name).write_text("x")
    assert [*files] == ["nulls.csv"]


class DeniedError(Exception):
    """psutil's AccessDenied."""


class EndedError(DeniedError):
    """psutil's NoSuchProcess."""


@pytest.mark.parametrize(("error", "is_alive"), [(DeniedError, True), (EndedError, False)])
def test_a_kernel_that_this_user_may_not_ask_about_is_not_taken_for_ended(error, is_alive, monkeypatch):
    kernel = ServedKernel.here("http://127.0.0.1:1/mcp", "token", "a.ipynb", Path("/work"))

    def process(_pid):
        raise error

    psutil = SimpleNamespace(Process=process, Error=DeniedError, NoSuchProcess=EndedError, STATUS_ZOMBIE="zombie")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "psutil", psutil)
    assert kernel.is_alive == is_alive
