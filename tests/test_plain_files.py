"""Files that anyone may have put into a folder: pipes, devices, sockets, folders and huge files are refused at once."""

import os
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentmagic import settings
from agentmagic.approval_file import ApprovalFile
from agentmagic.context.project_files import Unusable, read_bytes
from agentmagic.errors import AgentMagicError, JournalError
from agentmagic.history.journal_reader import holds_journal, list_conversations, read
from agentmagic.mapping.file import MapFile
from agentmagic.plain_files import UnfitFile, open_number, open_plain, read_plain, read_plain_text
from agentmagic.prompt.attachments import Attacher
from agentmagic.providers import scripted
from agentmagic.providers.catalog import ModelInfo
from agentmagic.replay.cassette import Cassette
from agentmagic.run_log import RunLog
from agentmagic.testing import PATIENCE
from agentmagic.tools.mcp import config

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
HUGE = 2**43
"""Bytes of a file without content, which takes no room."""


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


def listener(path):
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def huge(path):
    with path.open("wb") as file:
        try:
            file.truncate(HUGE)
        except OSError:
            pytest.skip("the file system has no sparse files of this size")


KINDS = [pipe, device, folder, listener, huge]


def in_time(work):
    """The value or the error of a function, which must not block."""
    ended = []

    def call():
        try:
            ended.append(work())
        except Exception as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert ended, "it blocks"
    return ended[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reader",
    [read_plain, read_plain_text, lambda path: open_plain(path, 100), lambda path: open_plain(path, 100, follow=False)],
)
def test_only_a_regular_file_of_bounded_size_is_opened(tmp_path, kind, reader):
    path = tmp_path / "x"
    kind(path)
    assert isinstance(in_time(lambda: reader(path)), OSError)


@pytest.mark.parametrize("kind", [pipe, device, folder, listener])
def test_nothing_is_appended_to_what_is_no_regular_file(tmp_path, kind):
    path = tmp_path / "x"
    kind(path)
    assert isinstance(in_time(lambda: open_number(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)), OSError)


def test_a_regular_file_is_read_whole_up_to_the_limit_and_a_text_without_the_marks_of_editors(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_plain(path, 10) == path.read_bytes()
    assert read_plain_text(path) == "a\nb\nc\n"
    with pytest.raises(UnfitFile, match="more than 9 bytes"):
        read_plain(path, 9)


@contextmanager
def working_in(path):
    here = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(here)


READERS = {
    "a conversation": ("x.jsonl", read),
    "a rule": ("AGENTS.md", lambda path: read_bytes(path, path.parent, 1000)),
    "a cassette": ("x.cassette.yaml", Cassette.at),
    "a file that was handed in": (
        "x.yaml",
        lambda path: RunLog.read(path).problem and OSError(),
    ),
    "servers": (".mcp.json", config.read),
    "a script": ("x.json", lambda path: scripted.make(str(path))),
    "a map": ("x.jsonl", lambda path: MapFile(path, None)),
    "an attachment": ("x.png", lambda path: Attacher(ModelInfo).file("x", path, "x.png")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "reader"), READERS.values(), ids=READERS)
def test_a_reader_says_that_it_cannot_read_the_file(tmp_path, kind, name, reader):
    path = tmp_path / name
    kind(path)
    assert isinstance(in_time(lambda: reader(path)), (AgentMagicError, Unusable, OSError))


@pytest.mark.parametrize("kind", [pipe, device, folder, listener])
def test_the_header_of_a_conversation_is_read_of_a_regular_file_only(tmp_path, kind):
    kind(tmp_path / "x")
    assert isinstance(in_time(lambda: holds_journal(tmp_path / "x")), JournalError)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_only_looked_for_is_passed_over(tmp_path, kind):
    for name in ("a.jsonl", "approvals.json", ".env", "1.txt"):
        kind(tmp_path / name)
    assert in_time(lambda: list_conversations(tmp_path, 1_000)) == []
    assert in_time(lambda: ApprovalFile(tmp_path / "approvals.json").read()) == {}
    with working_in(tmp_path):
        assert in_time(lambda: settings.find_key(["NO_SUCH_KEY"], keyring=False)) is None
