"""Class settings: what a notebook cannot widen, and what is said of it."""

import asyncio
import json
import re
import sys
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mcp.server import MCPServer

from agentmagic import (
    Agent,
    ModelSettings,
    Policy,
    Rule,
    Session,
    ToolContext,
    classroom,
    doctor,
    register_model,
    settings,
    tool,
    web_search,
)
from agentmagic.approval.approvals import Gate
from agentmagic.bill import own_state_folder
from agentmagic.classroom import VARIABLE, class_settings
from agentmagic.errors import AgentMagicError, ServerError, Unavailable, UsageError
from agentmagic.events import ApprovalAsked, Approve
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import ToolCall, ToolDef, Usage, user
from agentmagic.providers import catalog
from agentmagic.providers.base import ModelFinished, Request
from agentmagic.providers.registry import default_model, priced, usable_models
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import run
from agentmagic.tools.base import Effects, Tool
from agentmagic.tools.mcp import config
from agentmagic.tools.mcp.connection import Connection
from agentmagic.tools.mcp.token_store import keyring_usable
from tests.turns import always, approve, calls, deny, scripted, texts


@pytest.fixture
def bounds(tmp_path, monkeypatch):
    """Write the settings of a class into the project of the folder in which the script began, or into another file."""

    def write(*lines: str, file: str = "pyproject.toml") -> None:
        words = "\n".join(["[tool.agentmagic.class]", *lines])
        (tmp_path / file).write_text(words, encoding="utf-8")
        class_settings.cache_clear()

    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(classroom, "_FOLDER", tmp_path / "notebooks")
    yield write
    class_settings.cache_clear()


ran = []
"""What was deleted."""


@tool(ask=True)
def delete(name: str) -> str:
    """Delete a file."""
    ran.append(name)
    return f"deleted {name}"


@tool
async def pause(forever: bool = False) -> str:
    """Wait."""
    if forever:
        await asyncio.Event().wait()
    return "waited"


DELETES = calls(("delete", {"name": "a"}))


def refused(session, **options):
    with pytest.raises(UsageError) as caught:
        run(session, "hello", **options)
    return str(caught.value)


def test_a_model_that_is_not_of_the_class_is_refused_and_the_setting_named(bounds, tmp_path, monkeypatch):
    bounds('models = ["local:*"]')
    said = refused(scripted("hi"))
    assert said.startswith("The model scripted:script is not among those of this class: models = ['local:*'] in ")
    assert str(tmp_path / "pyproject.toml") in said
    bounds('models = ["scripted:*"]')
    assert run(scripted("hi"), "hello").final_text == "hi"
    monkeypatch.setenv("AGENTMAGIC_MODEL", "openai:gpt-5.4")
    assert "The model openai:gpt-5.4, which AGENTMAGIC_MODEL names, is not among" in refused(scripted("hi"))


@pytest.mark.parametrize(
    ("pattern", "model", "fits"),
    [
        ("acp:claude", "acp:/tmp/claude", False),
        ("acp:claude", "acp:claude --yes", False),
        ("acp:/opt/course/*", "acp:/opt/course/agent", True),
        ("acp:/opt/course/*", "acp:/tmp/agent", False),
        ("acp:*", "acp:/tmp/agent", True),
    ],
)
def test_an_outside_agent_is_one_of_the_class_by_the_whole_of_its_command(bounds, pattern, model, fits):
    bounds(f'models = ["{pattern}"]')
    with pytest.raises(Unavailable if fits else UsageError):  # there is no such program
        Session(Agent(model)).ask("hello")


def test_a_wider_cap_is_refused_leaves_no_notice_behind_and_a_narrower_one_holds(bounds):
    bounds("max-tokens = 8", "max-cost = 2")
    session = scripted("hi", max_cost=2.5)
    with pytest.raises(UsageError) as caught:
        session.begin("hello", TurnSettings(notices=["Look at this."]))
    assert str(caught.value) == (
        f"max_cost is 2.5, which is more than this class allows: max-cost = 2 in {class_settings().file}."
    )
    assert session.take_notices() == ()
    assert "max_tokens is 9, which is more than this class allows: max-tokens = 8" in refused(scripted(max_tokens=9))
    assert run(scripted("hi", max_tokens=4), "hello").final_text == "hi"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_iterations": 3}, "max_iterations is 3, which is more than this class allows: max-iterations = 2 in "),
        ({"timeout": None}, "timeout is inf, which is more than this class allows: timeout = 30 in "),
    ],
)
def test_a_wider_limit_of_steps_or_seconds_is_refused(bounds, asked, words):
    bounds("max-iterations = 2", "timeout = 30")
    assert words in refused(scripted("hi", **asked))
    session = scripted("hi")
    assert words in refused(session, agent=replace(session.agent, **asked))
    assert run(scripted("hi", max_iterations=1, timeout=9), "hello").final_text == "hi"


def test_the_usual_limits_of_a_turn_give_way_to_those_of_the_class_and_are_never_widened(bounds):
    bounds("max-iterations = 99")
    assert run(scripted(*[calls("pause")] * 11, "done", tools=[pause]), "go").iterations_used == 10
    bounds("max-iterations = 2", "timeout = 30")
    result = run(scripted(*[calls("pause")] * 3, "done", tools=[pause]), "go")
    assert (result.stop_reason, result.iterations_used) == ("limit", 2)
    bounds("timeout = 0.2")
    result = run(scripted(calls(("pause", {"forever": True})), "done", tools=[pause]), "go")
    assert "The turn took longer than 0.2 s" in result.error


def test_a_cap_holds_that_the_notebook_does_not_name_and_that_of_a_session_counts_all_turns(bounds):
    bounds("max-tokens = 8")
    result = run(scripted(DELETES, "done", tools=[delete], permission="allow"), "a prompt of several words")
    assert result.stop_reason == "budget"
    bounds("session-max-tokens = 4")
    session = scripted("one two three", "two")
    run(session, "hello there")
    assert run(session, "again").stop_reason == "budget"
    assert "max_tokens is 5" in refused(Session(Agent(ScriptedModel(["hi"])), max_tokens=5))


@pytest.mark.parametrize("permission", ["allow", Policy([Rule("allow", "delete")]), lambda _call, _tool: "allow"])
def test_nothing_of_a_notebook_lets_a_tool_run_that_the_class_denies_and_the_others_run_as_ever(bounds, permission):
    bounds('permission = "deny"')
    asked = calls(("delete", {"name": "a"}), "pause")
    result = run(scripted(asked, "done", tools=[delete, pause], permission=permission), "go")
    assert texts(result) == ['delete was not run: the settings of this class have permission = "deny".', "waited"]


def test_what_the_class_has_asked_is_asked_whatever_the_notebook_says(bounds, monkeypatch):
    bounds('permission = "ask"')
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "allow")
    result = run(scripted(DELETES, "done", tools=[delete], permission="allow"), "go")
    assert "deleted" not in texts(result)[0]


@pytest.mark.parametrize(("line", "verdict"), [("max-cost = 1", "ask"), ('code = "deny"', "deny")])
def test_no_rule_of_a_notebook_lets_code_run_unasked_in_a_class(bounds, line, verdict):
    bounds(line)
    gate = Gate(Policy([Rule("allow", "python")]))
    assert gate.decide(ToolDef("python", ""), {}, asks=True, code=True).verdict == verdict


@pytest.mark.parametrize(
    ("line", "asked", "told"),
    [
        ('web = "deny"', 0, 'web_search was not run: the settings of this class have web = "deny".'),
        ('permission = "deny"', 0, 'web_search was not run: the settings of this class have permission = "deny".'),
        ('web = "ask"', 1, ""),
        ('code = "deny"', 0, ""),
    ],
)
def test_a_class_forbids_the_web_or_has_it_asked_once(bounds, line, asked, told):
    bounds(line)
    session = scripted("hi", "again", tools=[web_search()], permission="allow")
    questions = []

    def allow(event):
        if isinstance(event, ApprovalAsked):
            questions.append(event)
            session.running.pass_on(Approve(event.id))

    session.listen(allow)
    events = [*run(session, "news?", attended=True).events, *run(session, "more?", attended=True).events]
    assert [event.reason for event in questions] == ['The settings of this class have web = "ask".'] * asked
    notices = [event.text for event in events if event.type == "notice" and event.text.startswith("web_search")]
    assert notices == ([told] if told else [])


SEARCHES = "openai-chat:gpt-5-search-api"


@pytest.mark.parametrize("setting", ["web", "permission"])
@pytest.mark.parametrize(
    ("model", "extra", "words"),
    [
        (SEARCHES, {}, f"The model {SEARCHES} always searches the web, "),
        ("openai:gpt-5.4", {"tools": [{"type": "web_search"}]}, "The setting extra has 'tools', "),
        ("openai-chat:gpt-5.4", {"web_search_options": {}}, "The setting extra has 'web_search_options', "),
        ("openai-chat:gpt-5.4", {"model": "gpt-5-search-api"}, "The setting extra has 'model', "),
    ],
)
def test_a_class_without_the_web_has_no_model_that_searches_unasked(bounds, monkeypatch, setting, model, extra, words):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    session = Session(Agent(model, settings=ModelSettings(extra=extra)))
    bounds("max-tokens = 99")
    session.preview("news?")
    for verdict in ("ask", "deny"):  # nobody is asked about what a request says
        bounds(f'{setting} = "{verdict}"')
        said = refused(session)
        assert said.startswith(words)
        assert f"and this class has {setting} = '{verdict}' in " in said


@pytest.mark.parametrize(
    "line",
    ['models = ["*"]', 'addresses = ["*"]', "servers = []", 'web = "ask"', 'code = "ask"', 'permission = "ask"'],
)
def test_a_request_has_fields_that_shape_its_answer_and_no_others_where_a_class_bounds_what_they_could_do(bounds, line):
    bounds(line)
    shaping = {"top_p": 0.5, "reasoning": {"summary": "auto"}, "generationConfig": {"topK": 4}, "service_tier": "flex"}
    assert run(scripted("hi", settings=ModelSettings(extra=shaping)), "hello").final_text == "hi"
    for extra in (
        {"tools": [{"type": "web_search"}]},
        {"fallbacks": ["gpt-4o"]},
        {"mcp_servers": []},
        {"unheard_of": None},
        {"generationConfig": {"routingConfig": {"manualMode": {"modelName": "another"}}}},
    ):
        name = [*extra, *(extra.get("generationConfig") or ())][-1]
        said = refused(scripted("hi", settings=ModelSettings(extra=extra)))
        assert said.startswith(f"The setting extra has {name!r}, which may do more than shape the answer, and this ")


def test_a_level_does_not_widen_what_the_class_has_asked(bounds):
    bounds('permission = "ask"')
    python = Tool(
        ToolDef("python", ""),
        None,
        ask=True,
        code=True,
        effects=lambda _arguments: Effects(("It only reads.",), only_reads=True),
    )
    trusted = Tool(ToolDef("fetch", "", server="web"), None, ask=True, trusted=True)
    gate = Gate(Policy(level="trusted"))
    for one in (python, trusted):
        decide = asyncio.run(gate._decider(one, ToolCall("1", one.name, {})))
        assert decide().verdict == "ask"


def test_a_server_that_is_not_of_the_class_is_not_started(bounds):
    bounds('servers = ["https://example.org/*"]')
    session = scripted("hi", mcp={"clock": {"command": sys.executable, "args": ["-c", "1"]}})
    said = " ".join(event.text for event in run(session, "hello").events if event.type == "notice")
    session.close()
    assert f"The MCP server 'clock' was not started: {sys.executable} -c 1 is not among those of this class: " in said


def test_the_one_mode_of_replay_holds(bounds, tmp_path, monkeypatch):
    bounds('replay = "replay"')
    path = tmp_path / "x.cassette.yaml"
    with pytest.raises(UsageError, match="The mode record is not that of this class: replay = 'replay' in "):
        Session(Agent(ScriptedModel(["hi"])), cassette=path, replay="record")
    assert "The mode live is not that of this class" in refused(scripted("hi"), replay="live")
    assert "The mode replay needs a cassette" in refused(scripted("hi"))
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "live")
    with pytest.raises(UsageError, match="The mode live, which AGENTMAGIC_REPLAY names, is not that of"):
        run(scripted("hi"), "hello")


def test_a_file_that_the_variable_names_holds_for_the_whole_process(bounds, tmp_path, monkeypatch):
    file = tmp_path / "class.toml"
    file.write_text('[tool.agentmagic.class]\nmodels = ["local:*"]\n')
    monkeypatch.setenv(VARIABLE, str(file))
    assert "is not among" in refused(scripted("hi"))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.chdir("/")
    assert "is not among" in refused(scripted("hi"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('modles = ["x"]', "'modles' is no setting of a class"),
        ('models = "x"', 'Write a list of patterns, as in ["local:*"].'),
        ("max-cost = 0", "Write a number above 0."),
        ("max-iterations = 2.5", "Write a whole number above 0."),
        ("max-iterations = 0", "Write a whole number above 0."),
        ('code = "allow"', 'Write "ask" or "deny".'),
        ("servers = [3]", "Write a list of commands and addresses, or of tables"),
        ('servers = [{cwd = "/"}]', "Write a list of commands and addresses, or of tables"),
        ('servers = [{command = "a", url = "b"}]', "Write a list of commands and addresses, or of tables"),
        ('servers = [{command = "a", env = {A = 1}}]', "Write a list of commands and addresses, or of tables"),
        ('servers = [{url = "a", cwd = "/"}]', "Write a list of commands and addresses, or of tables"),
        ('permision = "ask"', "'permision' is no setting of a class. Did you mean permission? Write one of models, "),
    ],
)
def test_a_setting_that_cannot_be_is_said_and_not_ignored(bounds, line, words):
    bounds(line)
    with pytest.raises(UsageError, match=re.escape(words)):
        scripted("hi")


# -- every file holds ----------------------------------------------------------------------------------

RUFF = "[tool.ruff]\nline-length = 88\n"


def nearer(tmp_path, text):
    (tmp_path / "notebooks" / "pyproject.toml").write_text(text)
    class_settings.cache_clear()


@pytest.mark.parametrize(
    "text",
    [RUFF, "[tool.agentmagic]\nschema-only = true\n", "this is no TOML [", "[tool.agentmagic.class]\n"],
    ids=["ruff", "agentmagic", "broken", "empty"],
)
def test_a_nearer_file_that_does_not_speak_of_a_setting_does_not_end_the_search(bounds, tmp_path, text):
    bounds('models = ["local:*"]')
    nearer(tmp_path, text)
    assert "is not among those of this class" in refused(scripted("hi"))


def test_a_file_that_cannot_be_read_but_has_settings_of_a_class_is_reported(bounds, tmp_path):
    nearer(tmp_path, "[tool.agentmagic.class]\nmodels = [")
    with pytest.raises(UsageError, match=r"The class settings .* cannot be read: .* Correct it\."):
        class_settings()


def test_they_are_found_from_where_the_script_began_and_not_from_where_it_is_now(bounds, monkeypatch):
    bounds('models = ["local:*"]')
    monkeypatch.chdir("/")
    class_settings.cache_clear()
    assert "is not among those of this class" in refused(scripted("hi"))


def test_the_folder_of_the_notebook_counts_where_the_front_end_names_it(bounds, tmp_path, monkeypatch):
    bounds('models = ["local:*"]')
    monkeypatch.setattr(classroom, "_FOLDER", None)
    class_settings.cache_clear()
    assert class_settings().file is None
    monkeypatch.setenv(classroom.SERVER_VARIABLE, str(tmp_path / "notebooks" / "a.ipynb"))
    class_settings.cache_clear()
    assert class_settings().file == tmp_path / "pyproject.toml"


@pytest.mark.parametrize("place", ["nearer", "variable"])
@pytest.mark.parametrize(
    ("outer", "inner", "holds"),
    [
        ("max-cost = 0.5", "max-cost = 2", "max-cost = 0.5"),
        ("max-iterations = 3", "max-iterations = 4", "max-iterations = 3"),
        ('permission = "deny"', 'permission = "ask"', "permission = 'deny'"),
        ('replay = "replay"', 'replay = "live"', "replay = 'replay'"),
        ('models = ["local:*"]', 'models = ["local:*", "openai:*"]', "models = ['local:*']"),
        ('servers = ["clock"]', 'servers = ["clock*"]', "servers = ['clock']"),
    ],
)
def test_a_setting_that_asks_for_more_does_not_hold_and_is_named_with_both_files(
    bounds, tmp_path, monkeypatch, outer, inner, holds, place
):
    bounds(outer)
    file = tmp_path / "notebooks" / "pyproject.toml"
    if place == "variable":
        file = tmp_path / "mine.toml"
        monkeypatch.setenv(VARIABLE, str(file))
    file.write_text(f"[tool.agentmagic.class]\n{inner}\n")
    class_settings.cache_clear()
    held = class_settings()
    inner_words = inner.replace('"', "'")
    outer_file = tmp_path / "pyproject.toml"
    both = f"both lists hold: what is not in {holds} in {outer_file} is refused."
    held_words = both if "[" in outer else f"{holds} in {outer_file} holds."
    said = f"{inner_words} in {file} asks for more than this class allows, and {held_words}"
    assert held.wider == (said,)
    assert held.setting_with_file(held.names[0].replace("-", "_")) == f"{holds} in {outer_file}"


def test_a_nearer_file_may_ask_for_less_and_of_two_lists_both_hold(bounds, tmp_path):
    bounds("max-cost = 2", 'models = ["local:*", "openai:*"]', "timeout = 9")
    nearer(tmp_path, '[tool.agentmagic.class]\nmax-cost = 1\nmodels = ["local:*", "gemini:*"]\ncode = "deny"\n')
    held = class_settings()
    assert (held.max_cost, held.timeout, held.code) == (1, 9, "deny")
    held.check_model("local:small")
    for name in ("openai:x", "gemini:x"):
        with pytest.raises(UsageError, match="is not among"):
            held.check_model(name)
    assert [words.partition(" asks ")[0] for words in held.wider] == [
        f"models = ['local:*', 'gemini:*'] in {tmp_path / 'notebooks' / 'pyproject.toml'}"
    ]


def test_of_two_lists_with_nothing_in_common_nothing_is_allowed_and_both_are_named(policy, bounds, tmp_path):
    policy('models = ["local:*", "gemini:*"]')
    bounds('models = ["openai:*"]')
    held = class_settings()
    assert not any(map(held.allows_model, ("local:small", "gemini:x", "openai:x")))
    nearer, outer = tmp_path / "pyproject.toml", tmp_path / "agentmagic.toml"
    (said,) = held.wider
    assert said == (
        f"models = ['openai:*'] in {nearer} asks for more than this machine allows, and both lists hold: what is "
        f"not in models = ['local:*', 'gemini:*'] in {outer} is refused."
    )


# -- ways around them ----------------------------------------------------------------------------------


class Pretender:
    """A model of the notebook that says it is one of the class."""

    name = "local:small"

    async def stream(self, _request):
        yield ModelFinished(Usage(), "stop")

    async def aclose(self):
        pass


def renamed():
    model = ScriptedModel(["hi"])
    model.name = "local:small"
    return model


MODELS = {
    "an agent": lambda: scripted("hi"),
    "another agent": lambda: assigned(Session("local:"), agent=Agent(ScriptedModel(["hi"]))),
    "replace": lambda: assigned(s := Session("local:"), agent=replace(s.agent, model="scripted:a.json")),
    "a fork": lambda: scripted("hi").fork(),
    "a copy": lambda: copy(scripted("hi")),
    "an object with a name of the class": lambda: Session(Agent(Pretender())),
    "an object that was given such a name": lambda: Session(Agent(renamed())),
    "a setting of the request": lambda: Session(Agent("local:", settings=ModelSettings(extra={"model": "x"}))),
    "other models of the request": lambda: Session(Agent("local:", settings=ModelSettings(extra={"models": ["x"]}))),
}


def assigned(made, **values):
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("way", MODELS)
def test_no_way_leads_to_a_model_that_is_not_of_the_class(bounds, tmp_path, way):
    (tmp_path / "notebooks" / "a.json").write_text('["hi"]')
    bounds('models = ["local:*"]')
    made = MODELS[way]()
    assert "models = ['local:*'] in " in refused(made)
    assert made.turns == ()


def test_an_agent_of_one_turn_and_a_loaded_conversation_have_the_models_of_the_class(bounds, tmp_path):
    bounds('models = ["local:*"]')
    assert "is not among" in refused(Session("local:"), agent=Agent(ScriptedModel(["hi"])))
    bounds("max-tokens = 99")
    made = Session(Agent(ScriptedModel(["hi"])), path=tmp_path / "a.jsonl")
    run(made, "hello")
    made.close()
    bounds('models = ["local:*"]')
    assert "is not among" in refused(Session.load(tmp_path / "a.jsonl", Agent(ScriptedModel(["hi"]))))


@tool
def through(context: ToolContext) -> str:
    """Have another tool delete a file."""
    return context.call_tool("delete", {"name": "a"})  # type: ignore[return-value]


PERMISSIONS = {
    "a word": {"permission": "allow"},
    "a rule": {"permission": Policy([Rule("allow", "delete")])},
    "a default": {"permission": Policy(default="allow")},
    "a hook": {"permission": lambda _call, _tool: "allow"},
}
ASKED = "delete was not run: it needs a person's approval"


@pytest.mark.parametrize("steps", [DELETES, calls("through")], ids=["a call", "a call of a tool"])
@pytest.mark.parametrize("way", PERMISSIONS)
def test_no_permission_of_an_agent_lets_a_tool_run_unasked_that_the_class_has_asked(bounds, way, steps):
    bounds('permission = "ask"')
    result = run(scripted(steps, "done", tools=[delete, through], **PERMISSIONS[way]), "go")
    assert ASKED in texts(result)[0]


@pytest.mark.parametrize("way", PERMISSIONS)
def test_no_plan_lets_a_tool_run_unasked_that_the_class_has_asked(bounds, way):
    bounds('permission = "ask"', "max-iterations = 3")
    task = {"id": "t1", "tool": "delete", "parameters": {"name": "a"}, "depends_on": [], "description": ""}
    steps = [json.dumps(one) for one in ({"route": "tools"}, {"tasks": [task]})]
    result = run(scripted(*steps, *["done"] * 5, tools=[delete], **PERMISSIONS[way]), "go", plan=True)
    assert all(ASKED in text for text in texts(result))
    assert texts(result) != []


@pytest.mark.parametrize("mode", ["record", "auto", "replay-model"])
def test_no_mode_of_a_cassette_lets_a_tool_run_unasked_that_the_class_has_asked(bounds, tmp_path, mode):
    path = tmp_path / "a.cassette.yaml"
    bounds("max-tokens = 999")
    recorded = Session(Agent(ScriptedModel([DELETES, "done"]), tools=[delete], permission="allow"), cassette=path)
    recorded.deck.choose("record")
    assert texts(run(recorded, "go")) == ["deleted a"]
    recorded.close()
    bounds('permission = "ask"')
    ran.clear()
    model = ScriptedModel([DELETES, "done"])
    again = Session(Agent(model, tools=[delete], permission="allow"), cassette=path, replay=mode)
    with suppress(AgentMagicError):  # the replay of a call that was allowed differs now
        run(again, "go")
    again.close()
    assert ran == []


@pytest.mark.parametrize("way", ["a word", "a rule", "a default"])
def test_a_permission_that_asks_for_more_is_named_once_with_the_setting_and_the_file(bounds, tmp_path, way):
    bounds('permission = "ask"')
    session = scripted("one", "two", tools=[delete], **PERMISSIONS[way])
    told = [event.text for _ in range(2) for event in run(session, "go").events if event.type == "notice"]
    held = f"permission = 'ask' in {tmp_path / 'pyproject.toml'}"
    assert told == [f"The agent's permission lets tools run unasked, and this class does not: {held}."]


def test_the_variable_that_asks_for_more_is_named_with_the_setting_and_the_file(bounds, tmp_path, monkeypatch):
    bounds('permission = "ask"')
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "allow")
    (told,) = (event.text for event in run(scripted("one"), "go").events if event.type == "notice")
    held = f"permission = 'ask' in {tmp_path / 'pyproject.toml'}"
    assert told == f"AGENTMAGIC_PERMISSION=allow is set, and this class does not allow it: {held}."


def answered(session, answer, send="send"):
    """Run a turn whose questions code answers; return its result, what was asked, and what `send` raised."""
    begun, asked, errors = session.start("go", attended=True), [], []

    def hear(event):
        if event.type == "approval_asked":
            asked.append(event)
            try:
                getattr(begun, send)(answer(event))
            except UsageError as error:
                errors.append(str(error))
                begun.send(deny(event))

    begun.listen(hear)
    return begun.wait(), asked, errors


def test_code_approves_nothing_in_a_class_that_asks(bounds, tmp_path):
    bounds('permission = "ask"')
    result, _, errors = answered(scripted(DELETES, "done", tools=[delete]), approve)
    held = f"permission = 'ask' in {tmp_path / 'pyproject.toml'}"
    assert errors == [f"In this class a person approves, and no code: {held}. Click Approve in the notebook."]
    assert "delete was not run: the user denied it" in texts(result)[0]


def test_code_goes_on_from_a_pause_in_a_class_that_asks(bounds):
    bounds('permission = "ask"')
    begun = scripted(calls("pause"), "done", tools=[pause]).start("go", attended=True, step=True)
    begun.listen(lambda event: begun.send(approve(event)) if event.type.endswith("_asked") else None)
    assert texts(begun.wait()) == ["waited"]


def test_an_always_of_a_person_holds_for_one_call_in_a_class_that_asks(bounds):
    bounds('permission = "ask"')
    session = scripted(DELETES, DELETES, "done", tools=[delete])
    result, asked, _ = answered(session, always, send="pass_on")
    assert texts(result) == ["deleted a", "deleted a"]
    assert len(asked) == 2
    told = {event.text for event in result.events if event.type == "notice"}
    assert told == {'delete is asked about every time: the settings of this class have permission = "ask".'}


SPENDERS = {
    "another session": lambda _spent: Session(Agent(ScriptedModel(["two"]))),
    "a fork": lambda spent: spent.fork(0),
    "a session that was cleared": lambda spent: (spent.clear(), spent)[1],
    "another agent": lambda spent: assigned(spent, agent=Agent(ScriptedModel(["two"]))),
}


@pytest.mark.parametrize("way", SPENDERS)
def test_a_session_that_is_made_anew_has_no_budget_of_its_own(bounds, tmp_path, way):
    bounds("session-max-tokens = 4")
    spent = scripted("one two three", "two")
    run(spent, "hello there")
    result = run(SPENDERS[way](spent), "again")
    assert (result.stop_reason, result.final_text) == ("budget", "")
    held = f"session-max-tokens = 4 in {tmp_path / 'pyproject.toml'}"
    assert result.error.endswith(f"No further request was sent; the limit is {held}.")


def test_a_cap_of_the_session_that_is_set_later_is_refused(bounds):
    bounds("session-max-tokens = 4")
    assert "max_tokens is 9, which is more" in refused(assigned(scripted("hi"), max_tokens=9))


def test_a_price_of_the_notebook_does_not_replace_that_of_the_table_where_costs_are_bounded(bounds, monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model("openai:gpt-4o", input_price=0, output_price=0)
    spent = Usage(input_tokens=1_000_000, output_tokens=1_000_000, requests=1)
    bounds("max-tokens = 9")
    assert priced("openai:gpt-4o", spent).cost == 0
    bounds("max-cost = 1")
    assert priced("openai:gpt-4o", spent).cost > 1
    assert priced("openai:gpt-4o", spent, "HTTPS://API.OPENAI.COM/v1").cost > 1


@pytest.mark.parametrize("line", ["max-cost = 5", "monthly-budget = 5"])
def test_a_price_of_the_notebook_is_no_price_where_the_administrator_bounds_costs(policy, tmp_path, monkeypatch, line):
    monkeypatch.setattr("agentmagic.bill.own_state_folder", lambda: tmp_path)
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model("nobody:knows", input_price=0, output_price=0)
    model = ScriptedModel(["hi"])
    model.name = "nobody:knows"
    policy(line)
    result = run(Session(Agent(model)), "hello")
    assert "Ask the administrator for `prices`, or choose a model that has one: %agent models." in result.error
    assert model.requests == []
    policy(line, 'prices = {"nobody:*" = {input = 1, output = 1}}')
    assert run(Session(Agent(model)), "hello").final_text == "hi"


# -- the administrator's file ----------------------------------------------------------------------------


@pytest.fixture
def policy(bounds, tmp_path, monkeypatch):
    """Write the administrator's file, which is another one than that of this machine."""
    monkeypatch.setattr(classroom, "POLICY_FILE", tmp_path / "agentmagic.toml")

    def write(*lines: str) -> None:
        (tmp_path / "agentmagic.toml").write_text("\n".join(lines), encoding="utf-8")
        class_settings.cache_clear()

    return write


def test_the_administrators_file_holds_for_a_script_in_any_folder_and_is_named(policy, tmp_path, monkeypatch):
    policy('models = ["local:*"]')
    monkeypatch.setattr(classroom, "_FOLDER", None)
    said = refused(scripted("hi"))
    held = f"models = ['local:*'] in {tmp_path / 'agentmagic.toml'}"
    assert said == f"The model scripted:script is not among those of this machine: {held}."


def test_a_class_narrows_what_the_administrator_allows_and_cannot_widen_it(policy, bounds, tmp_path):
    bounds("max-cost = 2", "timeout = 30", "schema-only = false", 'addresses = ["https://a.example.org/v1", "*"]')
    policy("max-cost = 0.5", "timeout = 60", "schema-only = true", 'addresses = ["https://*.example.org/*"]')
    held = class_settings()
    assert (held.max_cost, held.timeout, held.schema_only) == (0.5, 30, True)
    assert held.addresses == ("https://*.example.org/*",)
    assert [words.partition(" in ")[0] for words in held.wider] == [
        "addresses = ['https://a.example.org/v1', '*']",
        "max-cost = 2",
        "schema-only = False",
    ]
    assert (
        f"asks for more than this machine allows, and max-cost = 0.5 in {tmp_path / 'agentmagic.toml'}"
        in (held.wider[1])
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models = [", "cannot be read: "),
        (b"models = ['\xff']", "cannot be read: "),
        (None, "cannot be read: "),  # a folder
        ('[tool.agentmagic.class]\nmodels = ["local:*"]', "'tool' is no setting of a policy. Write one of models, "),
        ('addresses = ["gateway.example.org"]', 'Write a list of addresses, as in ["https://gateway.example.org/*"].'),
        ("serve = 0", "Write true or false."),
        ('prices = {"a:b" = {input = 1}}', "Write for each model {input = 0.25, output = 2.0, cached = 0.03}, in US"),
        ('prices = {"a:b" = {input = 1, output = -1}}', "Write for each model "),
    ],
)
def test_nothing_runs_under_a_policy_that_is_wrong(policy, tmp_path, text, why):
    file = tmp_path / "agentmagic.toml"
    file.mkdir() if text is None else file.write_bytes(text if isinstance(text, bytes) else text.encode())
    class_settings.cache_clear()
    for _ in range(2):
        with pytest.raises(UsageError, match=re.escape(str(file))) as caught:
            Session("local:")
        assert why in str(caught.value)


def test_an_empty_policy_bounds_nothing_and_leaves_code_to_the_rules_of_the_notebook(policy):
    policy("max-cost = 1")
    gate = Gate(Policy([Rule("allow", "python")]))
    assert gate.decide(ToolDef("python", ""), {}, asks=True, code=True).verdict == "allow"


def test_only_the_administrator_sets_a_price_which_holds_where_the_table_has_none_and_before_all_others(
    policy, bounds, monkeypatch
):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model("openai:gpt-4o", input_price=0, output_price=0)
    spent = Usage(input_tokens=1_000_000, output_tokens=1_000_000, requests=1)
    policy("monthly-budget = 5", 'prices = {"openai:gpt-*" = {input = 3, output = 4}}')
    assert priced("openai:gpt-4o", spent, "https://gateway.example.org/v1").cost == 7
    bounds('prices = {"openai:gpt-*" = {input = 0, output = 0}}')
    with pytest.raises(UsageError, match="'prices' is no setting of a class"):
        class_settings()


def test_the_default_model_is_one_that_the_administrator_allows(policy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    policy('models = ["openai-chat:small", "openai-chat:large"]')
    assert default_model() == "openai-chat:small"
    policy('models = ["local:*"]')
    assert default_model() == "openai:gpt-5.4"  # which is refused, with the setting


def test_the_default_model_is_the_first_of_the_list_that_needs_no_key_or_has_one(policy, monkeypatch):
    policy('models = ["gemini:*", "local:qwen2.5-coder-1.5b", "openai-chat:small"]')
    assert default_model() == "local:qwen2.5-coder-1.5b"
    policy('models = ["openai-chat:small", "local:qwen2.5-coder-1.5b"]')
    assert default_model() == "local:qwen2.5-coder-1.5b"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    assert default_model() == "openai-chat:small"
    policy('models = ["local:qwen2.5-coder-1.5b", "openai-chat:small"]')
    assert default_model() == "local:qwen2.5-coder-1.5b"
    assert {"openai-chat:small"} <= set(usable_models()) <= {"openai-chat:small", "local:qwen2.5-coder-1.5b"}


def test_the_keyring_is_asked_for_no_key_of_a_provider_that_the_administrator_does_not_allow(policy, monkeypatch):
    asked = []
    monkeypatch.setattr(settings, "_from_keyring", asked.append)
    policy('models = ["gemini:*"]')
    assert default_model() is None
    assert set(asked) == {"GEMINI_API_KEY", "GOOGLE_API_KEY"}


@pytest.mark.parametrize(
    ("environment", "reached"),
    [
        ({"OPENAI_BASE_URL": "https://gateway.example.org/v1/"}, ""),
        (
            {"OPENAI_BASE_URL": "https://gateway.example.org.evil.example/v1"},
            "https://gateway.example.org.evil.example/v1",
        ),
        ({}, "https://api.openai.com/v1"),
    ],
)
def test_a_model_is_asked_at_the_addresses_of_the_administrator_only(policy, monkeypatch, environment, reached):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    policy('addresses = ["https://gateway.example.org/v1"]')
    session = Session(Agent("openai:gpt-5.4"))
    if not reached:
        session.preview("hello")
        return
    assert f"The model openai:gpt-5.4 is asked at {reached}, which is not among those of" in refused(session)


def test_an_address_that_changes_while_a_turn_runs_is_not_asked(policy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example.org/v1")
    policy('addresses = ["https://gateway.example.org/v1"]')
    model = Session(Agent("openai:gpt-5.4")).model()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match=r"is asked at http://127\.0\.0\.1:9/v1, which is not among"):
        asyncio.run(anext(model.stream(Request([user("hello")]))))


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, "https://generativelanguage.googleapis.com"),
        ({"GOOGLE_GEMINI_BASE_URL": "https://gateway.example.org"}, "https://gateway.example.org"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "https://aiplatform.googleapis.com"),
        (
            {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_LOCATION": "europe-west4"},
            "https://europe-west4-aiplatform.googleapis.com",
        ),
        *(
            (
                {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_LOCATION": region},
                f"https://aiplatform.{region}.rep.googleapis.com",
            )
            for region in ("us", "eu")
        ),
    ],
)
def test_the_address_of_gemini_counts_also_where_google_s_library_chooses_it(policy, monkeypatch, environment, address):
    pytest.importorskip("google.genai")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    policy(f'addresses = ["{address}"]')
    Session(Agent("gemini:gemini-3.5-flash")).model()
    policy('addresses = ["https://other.example.org/*"]')
    with pytest.raises(UsageError, match=f"is asked at {re.escape(address)}, which is not among"):
        Session(Agent("gemini:gemini-3.5-flash")).model()


def test_no_token_of_a_server_reaches_the_keyring_if_the_administrator_forbids_it(policy):
    policy("keyring = false")
    assert asyncio.run(keyring_usable()) is False
    assert settings.keyring_problem().startswith("The system keyring is not used: this machine has keyring = False in ")


def test_code_approves_nothing_on_a_machine_whose_administrator_has_calls_asked(policy):
    policy('permission = "ask"')
    _, _, errors = answered(scripted(DELETES, "done", tools=[delete]), approve)
    assert errors[0].startswith("On this machine a person approves, and no code: permission = 'ask' in ")


@pytest.mark.skipif(sys.platform == "win32", reason="access is not looked at on Windows")
def test_doctor_tells_the_policy_with_its_values_and_who_can_change_it(policy, tmp_path, monkeypatch):
    policy("serve = false", "max-cost = 2")
    (found,) = doctor._bounds()
    assert found.health == "note"
    held = f"The administrator's policy {tmp_path / 'agentmagic.toml'}: max-cost = 2, serve = False."
    assert found.about.startswith(f"{held} This user can change the file, so the policy does not bind them.")
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    (found,) = doctor._bounds()
    assert (found.health, found.about) == ("ok", held)


def test_windows_keeps_the_administrators_file_where_no_variable_moves_it(monkeypatch):
    folders = {
        ("machine", "Common AppData"): "C:/ProgramData",
        ("user", "Local AppData"): "C:/Users/anna/AppData/Local",
    }
    registry = SimpleNamespace(
        HKEY_LOCAL_MACHINE="machine",
        HKEY_CURRENT_USER="user",
        OpenKey=lambda hive, _name: nullcontext(hive),
        QueryValueEx=lambda hive, name: (folders[hive, name], 1),
    )
    monkeypatch.setitem(sys.modules, "winreg", registry)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("PROGRAMDATA", "C:/Users/me")
    assert classroom._policy_file().as_posix() == "C:/ProgramData/agentmagic/agentmagic.toml"
    monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", "C:/elsewhere")
    assert own_state_folder.__wrapped__().as_posix() == "C:/Users/anna/AppData/Local/agentmagic"


# -- servers -------------------------------------------------------------------------------------------

CLOCK = 'servers = ["clock"]'
COURSE = 'servers = [{command = "python -m course", cwd = "/srv/course", env = {MODE = "class", USER = "*"}}]'
SITE = 'servers = ["https://tools.example.org/mcp/*", {url = "https://data.example.org/mcp", headers = {Accept = "*"}}]'


@pytest.mark.parametrize(
    ("line", "entry", "allowed"),
    [
        (CLOCK, {"command": "clock"}, True),
        (CLOCK, "clock", True),
        (CLOCK, {"command": "clock2"}, False),
        (CLOCK, {"command": "xclock"}, False),
        (CLOCK, {"command": "Clock"}, False),
        (CLOCK, {"command": "./clock"}, False),
        (CLOCK, {"command": "clock", "args": ["--root", "/"]}, False),
        (CLOCK, {"command": "clock", "cwd": "/home/student"}, False),
        (CLOCK, {"command": "clock", "env": {"PATH": "/home/student"}}, False),
        ('servers = ["clock *"]', {"command": "clock", "args": ["-v"]}, True),
        ('servers = ["python -m course"]', {"command": "python -m course"}, False),  # a program of that name
        ('servers = ["python -m course"]', {"command": "python", "args": ["-m course"]}, False),
        ('servers = ["c?ock", "[c]lock"]', {"command": "clock"}, False),  # only * is a pattern
        (COURSE, {"command": "python", "args": ["-m", "course"], "cwd": "/srv/course"}, True),
        (COURSE, {"command": "python", "args": ["-m", "course"], "cwd": "/srv/course", "env": {"USER": "me"}}, True),
        (COURSE, {"command": "python", "args": ["-m", "course"]}, False),
        (COURSE, {"command": "python", "args": ["-m", "course"], "cwd": "/srv/course/.."}, False),
        (COURSE, {"command": "python", "args": ["-m", "course"], "cwd": "/srv/course", "env": {"MODE": "x"}}, False),
        (COURSE, {"command": "python", "args": ["-m", "course"], "cwd": "/srv/course", "env": {"X": ""}}, False),
        (SITE, "https://tools.example.org/mcp/a", True),
        (SITE, "HTTPS://TOOLS.example.org/mcp/a", True),
        (SITE, "http://tools.example.org/mcp/a", False),
        (SITE, "https://tools.example.org/mcp/../admin", False),
        (SITE, "https://tools.example.org/mcp/%2e%2e/admin", False),
        (SITE, "https://tools.example.org.evil.example/mcp/a", False),
        (SITE, "https://tools.example.org:8443/mcp/a", False),
        (SITE, "https://me@tools.example.org/mcp/a", False),
        (SITE, "https://evil.example/?https://tools.example.org/mcp/a", False),
        (SITE, {"url": "https://tools.example.org/mcp/a", "headers": {"X": "y"}}, False),
        (SITE, {"url": "https://data.example.org/mcp", "headers": {"Accept": "y"}}, True),
        (SITE, "https://data.example.org/mcp2", False),
        ('servers = ["https://*.example.org/*"]', "https://a.example.org/x", True),
        ('servers = ["https://*.example.org/*"]', "https://evil.example/x.example.org/y", False),
        ('servers = ["*"]', {"command": "anything", "args": ["at", "all"]}, True),
        ('servers = ["*"]', "https://anything.example/at/all", True),
        ('servers = ["*a*"]', "https://anything.example/at/all", False),  # a pattern of commands
        ("servers = []", {"command": "clock"}, False),
    ],
)
def test_a_server_is_allowed_by_the_whole_of_its_entry(bounds, monkeypatch, line, entry, allowed):
    bounds(line)
    monkeypatch.setattr("agentmagic.tools.mcp.config.learn", lambda *_args, **_options: None)
    connection = Connection("clock", config.parse(entry))
    if allowed:
        connection._check_class()
        return
    with pytest.raises(ServerError, match=r"The MCP server 'clock' was not started: .* not among those of this class"):
        connection._check_class()
    assert connection.state == "failed"


def test_a_server_object_of_this_process_counts_too_and_the_values_of_variables_are_not_shown(bounds):
    bounds(CLOCK)
    server = Connection("clock", config.parse(MCPServer("clock")))
    with pytest.raises(ServerError, match="in-process is not among those of this class"):
        server._check_class()
    bounds('servers = ["in-process"]')
    server._check_class()
    with pytest.raises(ServerError) as caught:
        Connection("clock", config.parse({"command": "clock", "env": {"TOKEN": "of-nobody-42"}}))._check_class()
    assert "clock, TOKEN is not among" in str(caught.value)
    assert "of-nobody-42" not in str(caught.value)


def test_an_entry_of_a_project_file_is_bounded_too(bounds, tmp_path):
    bounds(CLOCK)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"clock": {"command": "clock", "env": {"A": "b"}}}}')
    (entry,) = config.read(tmp_path / ".mcp.json").values()
    with pytest.raises(ServerError, match="is not among those of this class"):
        Connection("clock", entry)._check_class()
