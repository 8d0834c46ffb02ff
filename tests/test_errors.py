"""The codes of errors: which error has which, where people see it, and the page that explains them.

After a change in `agentmagic/error_codes.py`, `python -m tests.test_errors` writes the page anew.
"""

import pickle
import re
from pathlib import Path

import pytest

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.__main__ import main
from agentmagic.display.terminal import render
from agentmagic.display.transcript import Transcript
from agentmagic.error_codes import MEANINGS
from agentmagic.errors import (
    AuthenticationMissing,
    ProviderError,
    RateLimited,
    UsageError,
    usage_code,
    with_code,
)
from agentmagic.jupyter.magics.agent_commands import agent_magic

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/errors.md"
BEGIN, END = "<!-- the codes begin -->\n", "<!-- the codes end -->"
CODED = re.compile(r'^class (\w+)\(.*\n(?:(?!class ).*\n)*?    code = "([a-z-]+)"$', re.MULTILINE)
"""A class of errors that has a code of its own."""


def sources():
    """The text of each module of the package, by the module's name."""
    paths = {path.relative_to(ROOT): path for path in (ROOT / "agentmagic").rglob("*.py")}
    return {".".join(at.with_suffix("").parts): path.read_text(encoding="utf-8") for at, path in paths.items()}


def classes():
    """The class of errors that has each code."""
    return {code: name for text in sources().values() for name, code in CODED.findall(text)}


def section(code, kind):
    """What the page says of a code."""
    return f"## {code}\n\n{MEANINGS[code]}\n\n" + (f"Class: `{kind}`.\n\n" if kind else "")


def codes():
    """The part of the page that is made from the package."""
    kinds = classes()
    return "".join(section(code, kinds.get(code)) for code in MEANINGS)


def test_the_page_explains_every_code():
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == codes(), "python -m tests.test_errors"


def test_every_code_has_a_meaning_and_every_meaning_is_of_a_code():
    makers = {
        module for module, text in sources().items() if re.search(r"(raise|return) (errors\.)?UsageError\(", text)
    }
    found = {*map(usage_code, makers), *classes()}
    assert found == MEANINGS.keys(), "Say in agentmagic/error_codes.py what the code means."


def test_a_code_is_the_anchor_of_its_heading_on_every_site():
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in MEANINGS)


def test_a_usage_error_is_named_for_the_part_that_made_it():
    with pytest.raises(UsageError) as raised:
        Agent("scripted:x", timeout=-1)
    assert raised.value.code == "usage-agent"
    assert UsageError("mine").code == "usage"
    modules = ["agentmagic.jupyter.magics.options", "agentmagic.run_log", "agentmagic.__main__", "agentmagic"]
    assert [usage_code(module) for module in modules] == ["usage-magics", "usage-run-log", "usage-main", "usage"]


def test_an_error_that_crossed_to_another_process_keeps_its_code():
    with pytest.raises(UsageError) as raised:
        Agent("scripted:x", timeout=-1)
    assert pickle.loads(pickle.dumps(raised.value)).code == "usage-agent"  # noqa: S301  (our own)


def test_the_code_stands_behind_the_message_but_is_no_part_of_it():
    error = RateLimited("Too many requests.", status=429)
    assert (str(error), with_code(error)) == ("Too many requests.", "Too many requests. [rate-limited]")
    assert with_code(ValueError("odd")) == "odd"


class Refusing(ScriptedModel):
    """A model whose server wants a key."""

    async def stream(self, request):
        raise AuthenticationMissing("No key was found. Set KEY.", ["KEY"])
        yield


def shown(session):
    """What a terminal shows of the session's turns."""
    transcript = Transcript()
    for turn in session.turns:
        for event in turn.events:
            transcript.feed(event)
    return render(transcript)


def test_a_failed_turn_shows_the_code_also_when_it_is_read_back(tmp_path):
    file = tmp_path / "talk.agent.jsonl"
    session = Session(Agent(Refusing([])), path=file)
    with pytest.raises(AuthenticationMissing):
        session.ask("Hello")
    session.close()
    assert "Error: No key was found. Set KEY. [key-missing]" in shown(session)
    assert shown(Session.load(file)) == shown(session)
    older = file.read_text(encoding="utf-8").replace(',"error_code":"key-missing"', "")
    file.write_text(older, encoding="utf-8")
    assert "Error: No key was found. Set KEY.\n" in shown(Session.load(file))


class NotFound(ProviderError):
    code = 404


def test_a_failed_turn_is_read_back_also_if_its_error_has_a_code_of_another_kind(tmp_path):
    class Lost(ScriptedModel):
        async def stream(self, request):
            raise NotFound("No such page.")
            yield

    session = Session(Agent(Lost([])), path=tmp_path / "talk.agent.jsonl")
    with pytest.raises(NotFound):
        session.ask("Hello")
    session.close()
    assert with_code(NotFound("No such page.")) == "No such page. [turn-failed]"
    assert shown(Session.load(tmp_path / "talk.agent.jsonl")) == shown(session)


def test_a_turn_that_used_up_its_budget_shows_that_code():
    def look() -> str:
        """Look."""
        return "seen"

    steps = [{"calls": [{"name": "look", "arguments": {}}]}, "Done."]
    result = Session(Agent(ScriptedModel(steps), tools=[look], max_tokens=1)).ask("Hello")
    assert (result.stop_reason, result.error_code) == ("budget", "budget")


def test_help_in_the_notebook_and_in_a_terminal_explains_a_code(capsys):
    magic = agent_magic()
    told = magic.read("help [key-missing]").text
    assert told.strip() == f"key-missing: {MEANINGS['key-missing']}"
    assert magic.read("help key-missing").text == magic.read("help AuthenticationMissing").text == told
    assert main(["explain", "[key-missing]"]) == 0
    assert capsys.readouterr().out == told
    assert main(["explain", "key-mising"]) == 2
    assert capsys.readouterr().err == (
        "No error has the code 'key-mising'. Did you mean key-missing? The code stands in brackets behind the message. "
        "[usage-error-codes]\n"
    )
    assert "help CODE tells what the code behind an error means" in magic.overview().text


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + codes() + END + rest.split(END)[1], encoding="utf-8")
