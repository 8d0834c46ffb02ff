"""Keys that are planted wherever a run can meet one: no file that the run leaves has one, and no output of a cell."""

import json
import subprocess
import sys

import pytest

from tests.jupyter.harness import BATCH, Kernel
from tests.providers.strict.script import call, say
from tests.providers.strict.server import strict
from tests.tools.mcp.test_http_transport import serving_workshop

SETUP = """
import logging, os, sys
sys.path.append(os.environ["PLANTED"])
%load_ext agentmagic
from pathlib import Path
from agentmagic import Agent, Session
ours = logging.getLogger("agentmagic")
ours.addHandler(logging.FileHandler("run.log"))
ours.setLevel(logging.DEBUG)
password = Path(os.environ["PLANTED"], "value").read_text()
shaped = Path(os.environ["PLANTED"], "shape").read_text()
def look(token: str) -> dict:
    "Look something up."
    print("It is", os.environ["SHOP_TOKEN"])
    if token == "fail":
        raise ValueError(shaped)
    return {"token": token, "env": os.environ["SHOP_TOKEN"], "shaped": shaped}
%mcp add --header X-Key:${WEB_TOKEN} web @URL@
%mcp allow web
agent = Session(Agent("openai:gpt-5.4", tools=[look]), path="talk.jsonl")
%agent cassette x.cassette.yaml
%agent debug
"""
CELLS = (
    "%agent record",
    "%%agent\nMy password is {password}.",
    'agent = Session(agent.agent, path="again.jsonl")\n%agent replay',
    "%%agent\nMy password is {password}.",
    "%%agent\nMy password is not {password}, it is {shaped}.",
    "%agent replay --report",
    "agent",
)


KEYRING = """
from pathlib import Path
from keyring.backend import KeyringBackend

class Planted(KeyringBackend):
    priority = 1

    def get_password(self, service, username):
        return Path(__file__).with_name("model").read_text() if username == "OPENAI_API_KEY" else None

    def set_password(self, service, username, password):
        raise AssertionError

    delete_password = set_password
"""


@pytest.mark.slow
def test_no_planted_key_is_in_an_output_or_in_a_file(tmp_path):
    planted, folder = tmp_path / "planted", tmp_path / "run"
    planted.mkdir()
    folder.mkdir()
    keys = {
        "environment": "q8Zr2LmX4vB7nC1sKd9e",
        "header": "Hd7xPw3nTq9vLk2mZs5c",
        "model": "kR4wYt8uBn1jXe6qVo3p",
        "value": "vA9lUe5sMc2hGf7dRb4i",
        "shape": "sk-proj-4kd8Jq2mZx7VbN1cR6tYw9",
    }
    for name in ("value", "shape", "model"):
        (planted / name).write_text(keys[name])
    (planted / "planted_keyring.py").write_text(KEYRING)
    told = ", ".join(keys.values())
    steps = (
        call(("look", {"token": told}), ("look", {"token": "fail"}), ("echo", {"text": told}), think=told, says=told),
        say(f"The keys are {told}. Authorization: Bearer {keys['header']}"),
    )
    with serving_workshop() as url, strict("openai", *steps) as server:
        environment = {
            "IPYTHONDIR": str(planted),
            "PLANTED": str(planted),
            "PYTHON_KEYRING_BACKEND": "planted_keyring.Planted",
            "OPENAI_BASE_URL": f"{server.url}/v1",
            "SHOP_TOKEN": keys["environment"],
            "WEB_TOKEN": keys["header"],
        }
        with Kernel(sys.executable, environment, folder) as kernel:
            cells = [kernel.run(code, **BATCH) for code in (SETUP.replace("@URL@", url), *CELLS)]
        assert [cell.ok for cell in cells] == [True] * 5 + [False] + [True] * 2, [cell.error for cell in cells]
        assert keys["model"] in str(server.requests[0].headers)
        assert len(server.requests) == 2
    shown = subprocess.run(
        [sys.executable, "-m", "agentmagic", "cassette", "show", "x.cassette.yaml"],
        cwd=folder, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    outputs = {number: json.dumps([message["content"] for message in cell.messages if "code" not in message["content"]])
               for number, cell in enumerate(cells)}  # fmt: skip
    files = {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert {"x.cassette.yaml", "talk.jsonl", "run.log"} <= files.keys()
    for name, text in {**outputs, **files, "show": shown}.items():
        assert not [where for where, key in keys.items() if key in text], name
    for name in ("x.cassette.yaml", "talk.jsonl", "show"):
        assert "[redacted]" in {**files, "show": shown}[name]
