"""The card of a user without a key, in a cell: a choice goes on with the turn, and the key is found nowhere."""

import json
import os
import subprocess
import sys

import pytest

from tests.jupyter.conftest import later_outputs
from tests.jupyter.harness import BATCH, ROOT, Kernel
from tests.providers.strict.script import say
from tests.providers.strict.server import strict

pytest.importorskip("openai", reason="the openai extra is not installed")

KEY = "q8Zr2LmX4vB7nC1sKd9e"  # of no shape: it is blanked because it was registered
KEYRING = """
import os
from pathlib import Path
from keyring.backend import KeyringBackend

class Kept(KeyringBackend):
    priority = 1
    file = Path(__file__).with_name("kept")

    def get_password(self, service, username):
        return self.file.read_text() if username == "OPENAI_API_KEY" and self.file.exists() else None

    def set_password(self, service, username, password):
        self.file.write_text(password)

    def delete_password(self, service, username):
        self.file.unlink()
"""
SETUP = """
import logging, os, sys
sys.path.append(os.environ["PLANTED"])
import keyring  # so that it answers at once
%load_ext agentmagic
from agentmagic import Agent, Session
for name in (None, "agentmagic"):
    logging.getLogger(name).addHandler(logging.FileHandler("run.log"))
    logging.getLogger(name).setLevel(logging.DEBUG)
agent = Session(Agent(), path="talk.jsonl")
%agent cassette x.cassette.yaml
%agent record
%agent debug
"""
STATES = """
import json
from ipywidgets import Widget
states = [one["state"] for one in Widget.get_manager_state()["state"].values()]
print(json.dumps([{name: value for name, value in one.items() if name[0] != "_"} for one in states if "home" in one]))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    planted, folder = tmp_path_factory.mktemp("planted"), tmp_path_factory.mktemp("run")
    (planted / "kept_keyring.py").write_text(KEYRING)
    return planted, folder


@pytest.fixture(scope="module")
def server():
    with strict("openai", say(f"Your key is {KEY}."), say("More.")) as running:
        yield running


@pytest.fixture(scope="module")
def kernel(places, server):
    planted, folder = places
    environment = {
        "IPYTHONDIR": str(planted),
        "PLANTED": str(planted),
        "PYTHON_KEYRING_BACKEND": "kept_keyring.Kept",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OLLAMA_HOST": "127.0.0.1:9",  # where nothing listens
    }
    with Kernel(sys.executable, environment, folder) as running:
        running.pages = running.subshell()  # made before the cells: a message can overtake the making of a subshell
        running.first = running.run(SETUP)
        assert running.first.ok, running.first.error
        yield running


class PageOfCell:
    """A page that draws the view of a cell under way, and sends what a person does there."""

    def __init__(self, kernel, code):
        self.kernel = kernel
        if kernel.pages is None:
            pytest.skip("this kernel has no subshells: messages wait for the cell")
        self.cell = kernel.send(code)
        kernel.wait(self.cell, lambda: self.comm)
        self.hellos = 0
        kernel.wait(self.cell, self.is_answered)

    def is_answered(self):
        """Say hello again, as a page does: the first one can come before the kernel takes messages of the view."""
        if self.hellos % 20 == 0:
            hello = {"type": "hello", "view": "a", "seen": -1}
            self.kernel.post(self.comm, {"method": "custom", "content": hello}, subshell=self.kernel.pages)
        self.hellos += 1
        return any(one.get("view") == "a" for one in self.heard)

    @property
    def comm(self):
        opened = [one["content"] for one in self.cell.messages if one["msg_type"] == "comm_open"]
        return next((one["comm_id"] for one in opened if one["data"]["state"].get("home") == "cell"), "")

    @property
    def heard(self):
        """What the kernel sent to the view, whichever message of the page it was about."""
        sent = [one["content"] for cell in self.kernel._cells.values() for one in cell.messages]
        ours = [one["data"] for one in sent if one.get("comm_id") == self.comm]
        return [one["content"] for one in ours if one.get("method") == "custom"]

    @property
    def frames(self):
        """What the kernel sent to the view, in the order in which it was sent."""
        return sorted(self.heard, key=lambda one: one.get("n", 0))

    def state(self, name):
        """Return the last value of a field of the view's state, None before the first."""
        return next((one["state"][name] for one in reversed(self.frames) if name in one.get("state", {})), None)

    def blocks(self, kind):
        """Return the blocks of a kind, as the page has them now."""
        known, nothing = {}, {}
        for one in self.frames:
            known = dict(one["blocks"]) if "blocks" in one else known
            for key, change in one.get("ops", ()):
                known = {**known, key: {**known.get(key, nothing), **(change or nothing)}}
        return [block for block in known.values() if block.get("kind") == kind]

    def act(self, **content):
        self.kernel.tell(self.comm, {"method": "custom", "content": content}, subshell=self.kernel.pages)

    def card(self):
        """Wait for the card, until servers were looked for."""
        found = []

        def came():
            found[:] = [one["state"]["setup"] for one in self.heard if one.get("state", {}).get("setup")]
            return found and found[-1]["servers"] is not None

        self.kernel.wait(self.cell, came)
        return found[-1]


def test_the_first_line_says_that_no_key_was_found_once_and_not_in_batch(kernel):
    line = "No key was found: the first %%agent cell offers what there is.\n"
    assert line in kernel.first.stream
    assert kernel.run("%reload_ext agentmagic").stream == ""
    assert kernel.run("%reload_ext agentmagic", **BATCH).stream == ""


def test_a_card_that_is_left_or_interrupted_leaves_the_error_and_nothing_else(kernel):
    page = PageOfCell(kernel, "%%agent\nhello")
    assert page.card()["why"] == "No model is chosen and no key is set."
    page.act(type="leave")
    assert kernel.finish(page.cell).error.startswith("AuthenticationMissing: No model is chosen and no key is set.")
    page = PageOfCell(kernel, "%%agent\nhello")
    page.card()
    assert kernel.interrupted(page.cell) < 5
    assert (page.cell.error, page.cell.stream) == ("", "Interrupted: no model was chosen.\n")
    assert kernel.value("len(agent.turns)") == "0"


def test_what_cannot_be_used_is_said_and_the_card_stays(kernel):
    page = PageOfCell(kernel, "%%agent\nhello")
    page.card()
    for content, problem in (
        ({"type": "key", "provider": "openai", "key": "short", "keep": True}, "8 characters at least"),
        ({"type": "key", "provider": "openai", "key": "with-än-umlaut", "keep": True}, "characters that no key has"),
        ({"type": "key", "provider": "nobody", "key": KEY, "keep": True}, "no provider that takes a key"),
        ({"type": "server", "server": "vLLM", "model": "x"}, "does not list the model"),
        ({"type": "key", "provider": "openai", "key": 5, "keep": True}, "no action: key.key string_type"),
    ):
        page.act(**content)
        kernel.wait(page.cell, lambda: any(problem in one.get("problem", "") for one in page.heard))  # noqa: B023
    page.act(type="leave")
    assert "AuthenticationMissing" in kernel.finish(page.cell).error


def test_a_key_goes_on_with_the_turn_in_its_cell_and_is_found_nowhere(kernel, server, places):
    planted, folder = places
    page = PageOfCell(kernel, "%%agent\nWhat is my key?")
    assert page.card()["keyring"] == ""
    page.act(type="key", provider="openai", key=KEY, keep=True)
    assert kernel.finish(page.cell).ok, page.cell.error
    assert (planted / "kept").read_text() == KEY
    assert KEY in str(server.requests[-1].headers)
    assert "Your key is [redacted]." in page.cell.text
    kernel.run("%agent stop-recording")
    later = [kernel.run(code) for code in ("%agent inspect", "agent", STATES, "%agent status", "%agent models")]
    for sent in kernel._cells.values():
        assert KEY not in json.dumps([one["content"] for one in sent.messages], default=str)
    shown = subprocess.run(
        [sys.executable, "-m", "agentmagic", "cassette", "show", "x.cassette.yaml"],
        cwd=folder, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
    files = {path.name: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}
    assert {"x.cassette.yaml", "talk.jsonl", "run.log"} <= files.keys()
    assert "Your key is" in files["talk.jsonl"]
    assert [name for name, text in {**files, "show": shown}.items() if KEY in text] == []
    assert '"home": "cell"' in later[2].stream  # the states of widgets were looked at


@later_outputs
def test_the_line_says_where_the_key_is_from_after_that(kernel):
    cell = kernel.run("%reload_ext agentmagic")
    assert cell.stream == "openai:gpt-5.4 answers; its key is from the system keyring.\n"
