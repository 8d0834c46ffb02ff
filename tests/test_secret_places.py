"""No secret of the table gets into any place that a run writes, in whatever form a tool or model says it."""

import io
import json
import logging

import pytest

from agentmagic import Agent, Session, log
from agentmagic.display.transcript import Transcript
from agentmagic.export import FORMS as ENDINGS
from agentmagic.export import save
from agentmagic.host import begin_cell
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.run_log import hand_in
from agentmagic.secrets import BLANK, register_secret
from agentmagic.testing import run
from agentmagic.tools.mcp.stdio import Tail
from agentmagic.widgets.static_html import bundle
from agentmagic.widgets.sync import Feed
from tests.test_secret_shapes import EXAMPLES, FORMS, KNOWN, SECRETS, seen
from tests.turns import calls

WHAT = {**EXAMPLES, "a known value": KNOWN}
SAID = {**SECRETS, "a known value": KNOWN}


FEW = ["plain", "JSON", "repr", "colours", "zero widths", "base64", "base64 of a user and a key", "hexadecimal"]
FEW += ["an address", "HTML", "twice JSON"]


@pytest.fixture(scope="module", params=FEW)
def written(request, tmp_path_factory):
    """Everything that a run writes, by place, in which the secrets stand in one form."""
    register_secret(KNOWN)
    folder = tmp_path_factory.mktemp("run")
    text = "\n\n".join(map(FORMS[request.param], WHAT.values()))

    def look(what: dict[str, list[str]]) -> str:
        """Look something up."""
        print(text)  # noqa: T201
        return str(what["deep"][0])

    def fail() -> None:
        """Fail."""
        raise ValueError(text)

    log.keep(detailed=True)
    handed = io.StringIO()
    handler = logging.StreamHandler(handed)
    logging.getLogger("agentmagic").addHandler(handler)
    begin_cell()
    steps = [calls(("look", {"what": {"deep": [text]}}), "fail"), f"It is {text}"]
    cassette, journal = folder / "x.cassette.yaml", folder / "talk.jsonl"
    agent = Agent(ScriptedModel(steps), tools=[look, fail])
    session = Session(agent, path=journal, cassette=cassette, replay="record")
    result = run(session, f"Look at {text}")
    session.close()
    logging.getLogger("agentmagic").removeHandler(handler)
    places = {"debug": "\n".join(entry.text for entry in log.recent(100)), "log handler": handed.getvalue()}
    log.stop()
    assert result.stop_reason == "answer"
    hand_in(folder / "run.yaml", {"agent": session}, "lesson.ipynb")
    for ending in ENDINGS:
        save(session.turns, folder / f"export{ending}", tools=[look])
    output = bundle(Transcript(result.events), prompt=True)
    places |= {"output": output["text/plain"], "saved notebook": output["text/html"]}
    places["page"] = json.dumps(Feed(result.events).hello("view", -1))
    places["repr"] = repr(result) + repr(session.messages)
    tail = Tail(size=1_000_000)
    tail.write(text.encode("utf-8", "replace"))
    places["stderr of a server"] = tail.text()
    return places | {
        path.name: path.read_text(encoding="utf-8")
        for path in folder.iterdir()
        if path.is_file() and path.suffix != ".lock"
    }


def test_no_secret_is_in_any_place(written):
    assert len(written) >= 8 + len(ENDINGS)
    leaks = [(place, name) for place, text in written.items() for name, secret in SAID.items() if seen(secret, text)]
    assert leaks == []
    assert [place for place, text in written.items() if BLANK not in text] == []
