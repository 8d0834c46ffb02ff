"""Recording and replaying in a script."""

import importlib
import json
import re
import threading
import time
from dataclasses import replace

import pytest

from agentmagic import Agent, Policy, RetrySettings, Rule, Session, ToolContext, json_schema, tool
from agentmagic.errors import BadRequest, CassetteError, ReplayMismatch, ServerError, Unavailable, UsageError
from agentmagic.events import without_deltas
from agentmagic.host import begin_cell
from agentmagic.messages import Media, Text, ToolDef, ToolResult, user
from agentmagic.portable_schemas import validator_for
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay import unasked
from agentmagic.replay.cassette import Cassette
from agentmagic.replay.player import Player
from agentmagic.run import Run
from agentmagic.testing import Recorder, Stalled, run
from agentmagic.tools.base import Tool
from tests.replay.changes import NOTEBOOK, played
from tests.turns import calls, texts

AT_ONCE = RetrySettings(first_wait=0.01, longest_wait=0.01)
ANSWER = "It is **sunny**.\n\n- 21 °C\n- wind: 3 m/s\n"


class Counting:
    """Tools that count their calls."""

    def __init__(self, reply="sunny, 21 degrees"):
        self.calls = 0
        self.reply = reply

    @property
    def tool(self):
        def get_weather(city: str) -> str:
            """Return the weather of a city."""
            self.calls += 1
            return self.reply.format(city=city)

        return get_weather


class Listed:
    """A source of tools that counts how often it is listed."""

    def __init__(self, tools):
        self.listed = 0
        self._tools = tools

    async def tools(self):
        self.listed += 1
        return self._tools

    async def aclose(self):
        pass


def weather_script(*more):
    return ScriptedModel([calls(("get_weather", {"city": "Oslo"})), ANSWER, *more])


class NoModel(ScriptedModel):
    """A model that must not be asked."""

    def __init__(self, name="scripted:script"):
        super().__init__([])
        self.name = name


def record(path, *prompts, model=None, tools=None, **options):
    """Record prompts, as a script that runs for this alone."""
    begin_cell()
    with_tools = [Counting().tool] if tools is None else tools
    session = Session(
        Agent(model or weather_script("Bye."), tools=with_tools, **options), cassette=path, replay="record"
    )
    results = [run(session, prompt) for prompt in prompts]
    session.close()
    return results


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.cassette.yaml"


def replayed(path, *prompts, model=None, tools=None, replay="replay", timed=False, **options):
    with_tools = [Counting().tool] if tools is None else tools
    agent = Agent(model or NoModel(), tools=with_tools, **options)
    session = Session(agent, cassette=path, replay=replay, timed=timed)
    results = [run(session, prompt) for prompt in prompts]
    session.close()
    return results


def test_a_recorded_run_is_replayed_with_the_same_events_without_model_or_tool_and_answers_as_a_model(path):
    counting = Counting()
    prompts = (PROMPT, "Thanks.")
    recorded = record(path, *prompts, tools=[counting.tool])
    assert counting.calls == 1
    again = replayed(path, *prompts, tools=[counting.tool])
    assert counting.calls == 1
    for before, after in zip(recorded, again, strict=True):
        assert after.events == before.events
        for name in ("final_text", "usage", "seconds", "history_delta"):
            assert getattr(after, name) == getattr(before, name)
    after = Session(Agent(f"cassette:{path}", tools=[counting.tool])).ask(prompts[0])
    assert (after.final_text, counting.calls) == (ANSWER, 2)
    with pytest.raises(BadRequest, match=r"no answer to this request.*Oslo"):
        Session(Agent(f"cassette:{path}")).ask("Something else.")
    with pytest.raises(CassetteError, match="There is no recording"):
        Session(Agent(f"cassette:{path}.none")).ask(PROMPT)


def test_calls_with_a_null_that_is_left_out_and_with_arguments_that_do_not_fit_are_replayed(path):
    def forecast(city: str, days: int = 1) -> str:
        """Return the weather."""
        return f"{days} in {city}"

    asked = [calls(("forecast", {"city": "Oslo", "days": days})) for days in (None, "two", 2)]
    recorded = record(path, PROMPT, model=ScriptedModel([*asked, "Fine."]), tools=[forecast])
    again = replayed(path, PROMPT, tools=[forecast])
    assert again[0].history_delta == recorded[0].history_delta
    assert [result.partition(":")[0] for result in texts(again[0])] == [
        "1 in Oslo",
        "The arguments of forecast do not fit its schema",
        "2 in Oslo",
    ]


def test_a_call_that_does_not_fit_has_its_recorded_reason_also_if_another_library_checks_it(path, monkeypatch):
    pytest.importorskip("jsonschema")
    counting = Counting()
    answers = [calls(("get_weather", {"city": 5})), "Fine."]
    (recorded,) = record(path, PROMPT, model=ScriptedModel(answers), tools=[counting.tool])
    monkeypatch.setattr(json_schema, "_validator", lambda schema: validator_for(json.loads(schema), Stalled))
    assert json_schema.misfit({"type": "string"}, 5) == "5 is not of type 'string'"
    (again,) = replayed(path, PROMPT, tools=[counting.tool])
    assert again.history_delta == recorded.history_delta
    assert counting.calls == 0


PROMPT = "What is the weather in Oslo?"


def failing(path, prompt=PROMPT, **options):
    """The error of one replayed turn."""
    session = Session(Agent(NoModel(), **{"tools": [Counting().tool], **options}), cassette=path, replay="replay")
    with pytest.raises(ReplayMismatch) as caught:
        session.ask(prompt)
    return caught.value


@pytest.mark.parametrize("mode", ["replay", "replay-model"])
def test_a_notebook_is_replayed_again_and_again_and_from_a_renamed_file(mode, tmp_path):
    path = tmp_path / "a.cassette.yaml"
    played(NOTEBOOK, path, "record")
    whole = path.read_bytes()
    for _ in range(3):
        verdicts = played(NOTEBOOK, path, mode)
        assert {one.cause for one in verdicts} == {"same"}
        assert len(verdicts) == 2 * len(NOTEBOOK.cells)
    assert path.read_bytes() == whole
    path.rename(renamed := tmp_path / "renamed.cassette.yaml")
    assert {one.cause for one in played(NOTEBOOK, renamed, mode)} == {"same"}


def test_a_change_fails_with_cell_step_field_and_both_values(path):
    record(path, PROMPT)
    error = failing(path, tools=[])
    assert {one.cause for one in error.differences} == {"tool list"}
    for words in (f"Cell {PROMPT!r}, step 1", "%agent record", "%agent auto", "get_weather", "(absent)"):
        assert words in str(error)
    assert "Oslo" in (told := str(failing(path, "How is Bergen?")))
    assert "Bergen" in told


def test_the_cassette_must_be_there_and_a_mode_needs_one(path, monkeypatch):
    session = Session(Agent(NoModel()), cassette=path, replay="replay")
    with pytest.raises(CassetteError, match="There is no cassette"):
        session.ask(PROMPT)
    with pytest.raises(UsageError, match="Choose one of live, record"):
        Session(Agent(NoModel()), cassette=path, replay="rewind")
    assert Session(Agent(ScriptedModel(["Hello."])), cassette=path).ask(PROMPT).final_text == "Hello."
    assert not path.exists()  # it is not used without being asked for
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "replay")
    with pytest.raises(UsageError, match="needs a cassette"):
        Session(Agent(NoModel())).ask(PROMPT)


def test_the_environment_names_cassette_and_mode(path, monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_CASSETTE", str(path))
    for mode, model in (("record", ScriptedModel(["Hello."])), ("replay", NoModel())):
        monkeypatch.setenv("AGENTMAGIC_REPLAY", mode)
        result = Session(Agent(model)).ask(PROMPT)
        assert result.final_text == "Hello."
    assert not [event for event in result.events if event.type == "notice" and "=replay" in event.text]


def test_a_turn_that_says_live_is_never_on_the_cassette(path, monkeypatch):
    for mode in ("record", "replay"):
        monkeypatch.setenv("AGENTMAGIC_REPLAY", mode)
        session = Session(Agent(ScriptedModel(["Hello.", "And you?"])), cassette=path)
        result = session.ask(PROMPT, replay="live")
        assert result.final_text == "Hello."
        assert not [event for event in result.events if event.type == "notice"]
        session.clear()
        assert session.ask("Bye.").final_text == "And you?"
        assert takes(path) == ["Bye."]
    assert not unasked.summary(path)


def begun(path, mode, *steps):
    """A session of a script that runs for this alone."""
    begin_cell()
    return Session(Agent(ScriptedModel(steps)), cassette=path, replay=mode)


def answers(session, *prompts):
    return [session.ask(prompt).final_text for prompt in prompts]


def takes(path):
    return [take.prompt for take in Cassette.at(path).takes]


def test_a_prompt_that_comes_twice_also_after_a_reset_is_recorded_twice(path):
    def asked(session):
        first = answers(session, "Count.", "Go on.", "Go on.")
        session.clear()
        return first + answers(session, "Count.")

    recorded = asked(begun(path, "record", "One.", "Two.", "Three.", "Uno."))
    assert takes(path) == ["Count.", "Go on.", "Go on.", "Count."]
    assert asked(begun(path, "replay")) == recorded == ["One.", "Two.", "Three.", "Uno."]


def test_a_turn_that_was_undone_or_edited_is_recorded_in_its_old_place(path):
    session = begun(path, "record", "One.", "Two.", "Deux.", "Zwei.", "Three.")
    answers(session, "Count.", "Go on.")
    session.undo()
    answers(session, "Go on.")
    session.edit(1).wait()
    answers(session, "Go on.")
    assert takes(path) == ["Count.", "Go on.", "Go on."]
    assert answers(begun(path, "replay"), "Count.", "Go on.", "Go on.") == ["One.", "Zwei.", "Three."]


def test_cells_that_run_again_after_a_reset_are_recorded_anew(path):
    session = begun(path, "record", "One.", "Two.", "Un.", "Deux.")
    for _ in range(2):
        session.clear()
        for cell, prompt in (("first", "Count."), ("second", "Go on.")):
            begin_cell(cell)
            session.ask(prompt)
    assert takes(path) == ["Count.", "Go on."]
    assert answers(begun(path, "replay"), "Count.", "Go on.") == ["Un.", "Deux."]


def test_cells_that_run_twice_are_told_how_to_begin_again(path):
    answers(begun(path, "record", "One.", "Two."), "Count.", "Go on.")
    session = begun(path, "replay")
    answers(session, "Count.", "Go on.")
    with pytest.raises(ReplayMismatch, match=r"cause: order.*run %agent reset and then the cells from the top"):
        session.ask("Count.")
    session.clear()
    assert answers(session, "Count.", "Go on.") == ["One.", "Two."]


@pytest.mark.parametrize("mended", [True, False], ids=["undone", "recorded anew"])
def test_a_cell_that_was_not_as_recorded_runs_again_in_the_same_kernel(path, mended):
    prompts = ("Count.", "Go on.", "Go on.")
    expected = answers(begun(path, "record", "One.", "Two.", "Three."), *prompts)
    again = begun(path, "replay", "Deux.", "Trois.")
    before = again.agent
    assert answers(again, "Count.") == ["One."]
    again.agent = replace(before, instructions="In French.")
    with pytest.raises(ReplayMismatch, match="instructions"):
        again.ask("Go on.")
    if mended:
        again.agent = before
    else:
        again.deck.choose("record")
        expected = ["One.", "Deux.", "Trois."]
    assert answers(again, *prompts[1:]) == expected[1:]
    assert [turn.prompt.text for turn in again.turns] == list(prompts)
    later = begun(path, "replay")
    assert answers(later, "Count.") == ["One."]
    later.agent = again.agent
    assert answers(later, *prompts[1:]) == expected[1:]


def test_a_changed_cell_takes_the_place_of_the_old_one_in_a_new_recording_and_the_others_are_kept(path):
    script = ["One.", "Two.", "Three."]
    for cells, kept in (("abc", "abc"), ("aBc", "aBc"), ("ac", "ac"), ("nac", "nac"), ("n", "nac")):
        answers(begun(path, "record", *script), *cells)
        assert takes(path) == [*kept]
    assert answers(begun(path, "replay"), *"nac") == script


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("cells", ["Abc", "aBc", "abC", "ABC", "ABCd", "nabc", "anbc", "abcn", "ac"])
@pytest.mark.parametrize("ids", [True, False], ids=["with cell ids", "without"])
def test_a_changed_notebook_that_is_recorded_from_the_top_leaves_no_old_turn(path, cells, mode, ids):
    def ran(mode, cells):
        session = begun(path, mode, *[f"{cell} again." for cell in cells])
        session.deck.begins_at_top = True  # as in a kernel
        for place, cell in enumerate(cells):
            begin_cell(f"cell-{place}" if ids else "")
            session.ask(cell)

    ran("record", "abc")
    ran(mode, cells)
    assert takes(path) == [*cells]
    ran("replay", cells)
    assert not unasked.summary(path)


def test_a_script_that_changed_its_first_prompt_replaces_it_once_it_comes_to_a_turn_that_is_recorded(path):
    for cells, kept in (("abc", "abc"), ("Abc", "Abc"), ("xyc", "xyc"), ("n", "nxyc")):
        answers(begun(path, "record", *cells), *cells)
        assert takes(path) == [*kept]


@pytest.mark.parametrize("cells", ["acb", "bac", "cba", "bcad", "dcba"])
def test_cells_that_are_recorded_anew_in_another_order_are_all_kept(path, cells):
    answers(begun(path, "record", "One.", "Two.", "Three."), *"abc")
    script = [f"{cell} again." for cell in cells]
    answers(begun(path, "record", *script), *cells)
    assert sorted(takes(path)) == sorted(cells)
    assert answers(begun(path, "replay"), *cells) == script


def test_sessions_that_a_function_makes_one_after_the_other_have_a_recording_each(path):
    def asked(mode, *steps):
        session = Session(Agent(ScriptedModel(steps)), cassette=path, replay=mode)
        return answers(session, "Name a colour.", "Another one.")

    begin_cell()
    recorded = [asked("record", *steps) for steps in (("Red.", "Blue."), ("Green.", "Black."), ("Grey.", "Pink."))]
    assert [take.session for take in Cassette.at(path).takes] == ["", "", *["session 2"] * 2, *["session 3"] * 2]
    assert [asked("replay") for _ in range(3)] == recorded
    begin_cell()
    assert asked("record", "White.", "Snow.") == ["White.", "Snow."]
    begin_cell()
    assert [asked("replay")[0] for _ in range(3)] == ["White.", "Green.", "Grey."]
    other = path.with_name("other.cassette.yaml")
    prompts = ("Name a colour.", "Name a town.", "Name a tree.")
    for prompt in prompts:
        answers(Session(Agent(ScriptedModel([prompt])), cassette=other, replay="record"), prompt)
    for prompt in reversed(prompts):  # sessions that begin in another order find theirs too
        assert answers(Session(Agent(NoModel()), cassette=other, replay="replay"), prompt) == [prompt]


def test_the_paths_of_a_traceback_are_not_those_of_the_machine(path, tmp_path, monkeypatch):
    bodies = {
        "lib/site-packages/far": "raise ValueError('no luck')",
        "own": "from far_module import run; run()",
        "elsewhere": "from own_module import run; run()",
    }
    for folder, body in bodies.items():
        (place := tmp_path / folder).mkdir(parents=True)
        (place / f"{place.name}_module.py").write_text(f"def run():\n    {body}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(place)
    monkeypatch.chdir(tmp_path / "own")

    def look() -> str:
        """Look."""
        return importlib.import_module("elsewhere_module").run()

    before = record(path, PROMPT, model=ScriptedModel([calls("look"), "Done."]), tools=[look])[0]
    after = replayed(path, PROMPT, tools=[look])[0]
    (trace,) = [event.traceback for event in before.events if event.type == "tool_finished"]
    files = re.findall('File "(.*)"', trace)[1:]
    assert files == [".../elsewhere_module.py", "own_module.py", ".../far/far_module.py"]
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    assert after.events == before.events


def test_auto_plays_the_unchanged_prefix_and_goes_on_live_at_the_first_change(path):
    record(path, PROMPT, "Thanks.", model=weather_script("Bye."))
    counting = Counting()
    model = ScriptedModel(["A new answer.", "And another one.", calls(("get_weather", {"city": "Rome"})), "Warm."])
    session = Session(Agent(model, tools=[counting.tool]), cassette=path, replay="auto")
    assert session.ask(PROMPT).final_text == ANSWER
    assert (len(model.requests), counting.calls) == (0, 0)
    assert session.ask("Thank you.").final_text == "A new answer."
    assert session.ask("Bye.").final_text == "And another one."
    assert [take.prompt for take in Cassette.at(path).takes] == [PROMPT, "Thank you.", "Bye."]
    assert [result.final_text for result in replayed(path, PROMPT, "Thank you.")] == [ANSWER, "A new answer."]
    agent = Agent(model, tools=[counting.tool], instructions="Be brief.")
    begin_cell()
    assert Session(agent, cassette=path, replay="auto").ask(PROMPT).final_text == "Warm."
    assert counting.calls == 1
    assert replayed(path, PROMPT, instructions="Be brief.")[0].final_text == "Warm."


def test_replay_model_runs_the_tools_names_results_that_are_not_as_recorded_and_asks_todays_policy(path):
    record(path, PROMPT, permission="allow")
    counting = Counting("rain, 3 degrees")
    session = Session(Agent(NoModel(), tools=[counting.tool]), cassette=path, replay="replay-model")
    result = session.ask(PROMPT)
    assert result.final_text == ANSWER
    assert counting.calls == 1
    assert [verdict.cause for verdict in session.deck.verdicts] == ["same", "tool result"]
    (words,) = [event.text for event in result.events if event.type == "notice"]
    assert "sunny" in words
    assert "rain" in words
    result = replayed(path, PROMPT, tools=[counting.tool], permission="deny", replay="replay-model")[0]
    assert counting.calls == 1
    assert "was not run" in texts(result)[0]


def test_a_prompt_that_changed_as_a_result_did_is_named(path):
    steps = [calls(("get_weather", {"city": "Oslo"})), "Cold.", "Bought."]
    record(path, PROMPT, "Buy 7 coats.", model=ScriptedModel(steps), tools=[Counting("7").tool])
    changed, other = replayed(path, PROMPT, "Buy 8 coats.", tools=[Counting("8").tool], replay="replay-model")
    assert [event.text.partition(" (")[0] for event in changed.events if event.type == "notice"] == [
        f"Cell {PROMPT!r}, step 2: results.get_weather is not as recorded"
    ]
    assert "prompt is not as recorded" in other.error
    assert "get_weather" not in other.error


def test_replay_tools_asks_the_model_freezes_the_results_and_fails_at_a_call_that_is_not_recorded(path):
    record(path, PROMPT)
    counting = Counting("never")
    steps = [call for city in ("Oslo", "Rome") for call in (calls(("get_weather", {"city": city})), "Another answer.")]
    session = Session(Agent(ScriptedModel(steps), tools=[counting.tool]), cassette=path, replay="replay-tools")
    result = session.ask("Is Oslo warm?")
    assert result.final_text == "Another answer."
    assert texts(result) == ["sunny, 21 degrees"]
    with pytest.raises(ReplayMismatch, match=r"Oslo.*Rome"):
        session.ask(PROMPT)
    assert counting.calls == 0


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (ScriptedModel([Unavailable("down"), {"text": "Half", "cut": False}]), {"retry": AT_ONCE}, "answer"),
        (ScriptedModel([]), {}, "error"),
        (Stalled("Half an ans"), {"timeout": 0.3}, "timeout"),
    ],
    ids=["tried again", "failed", "timed out"],
)
def test_a_turn_ends_as_recorded_with_the_same_events_and_without_waiting(path, model, options, reason):
    before = record(path, PROMPT, model=model, tools=[], **options)[0]
    retry = RetrySettings(first_wait=60, longest_wait=60)
    after = replayed(path, PROMPT, model=NoModel(model.name), tools=[], retry=retry)[0]
    assert (after.stop_reason, after.error) == (reason, before.error)
    assert without_deltas(after.events) == without_deltas(before.events)


def test_a_stop_is_replayed_also_if_it_comes_before_the_session_knows_its_run(path, monkeypatch):
    class Late(Run):
        """A run that is made only when the tape is at the stop."""

        def __init__(self, *values, **options):
            super().__init__(*values, **options)
            assert at_stop.wait(10)

    class Noting(Player):
        """A player that tells when it is at the stop."""

        async def stop(self):
            at_stop.set()
            await super().stop()

    at_stop = threading.Event()
    model = Stalled("Half an ans")
    run = Session(Agent(model), cassette=path, replay="record").start(PROMPT)
    assert model.stalled.wait(10)
    run.cancel()
    run.settled.result(10)
    monkeypatch.setattr("agentmagic.session.Run", Late)
    monkeypatch.setattr("agentmagic.replay.deck.Player", Noting)
    after = replayed(path, PROMPT, model=NoModel("testing:stalled"), tools=[])[0]
    assert (after.stop_reason, after.final_text) == ("cancelled", "Half an ans")


def slowed(path, pause, seconds):
    """Edit a cassette: the seconds of its first step and of its first call."""
    text = re.sub("^seconds: .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub("^steps: .*$", f"steps: [{pause}, 0]", text, flags=re.MULTILINE)
    text = text.replace("\nresult: get_weather\n", f"\nresult: get_weather\nseconds: {seconds}\n", 1)
    path.write_text(text + "seconds: 1\n", encoding="utf-8")


@pytest.mark.parametrize("times", [(10_000, 0), (0, 10_000)])
def test_a_timed_replay_takes_as_long_as_the_recording_can_be_stopped_and_another_one_does_not_wait(path, times):
    record(path, PROMPT)
    slowed(path, 0.2, 0.2)
    began = time.monotonic()
    assert replayed(path, PROMPT, timed=True)[0].final_text == ANSWER
    assert time.monotonic() - began >= 0.4
    slowed(path, *times)
    assert replayed(path, PROMPT)[0].final_text == ANSWER
    session = Session(Agent(NoModel(), tools=[Counting().tool]), cassette=path, replay="replay", timed=True)
    run, heard = session.start(PROMPT), Recorder()
    run.listen(heard)
    heard.wait_for("step_started" if times[0] else "tool_started")
    run.cancel()
    run.settled.result(10)
    assert run.result().stop_reason == "cancelled"


def test_no_secret_gets_into_a_cassette(path, monkeypatch):
    key, bearer = "sk-proj-4kd8Jq2mZx7VbN1cR6tYw9", "Bearer eyJhbGciOiJIUzI1NiJ9abcdef1234567890"
    monkeypatch.setenv("MY_API_KEY", "q8Zr2LmX4vB7nC1sKd9e")
    secrets = (key, bearer.split()[1], "q8Zr2LmX4vB7nC1sKd9e")
    model = ScriptedModel([calls(("get_weather", {"city": secrets[2]})), f"The key is {key} and {bearer} ."])
    reply = f"header {bearer}, key {key}"
    prompt = f"My key is {key}, mine is {secrets[2]}."
    record(path, prompt, model=model, tools=[Counting(reply).tool], instructions=f"Use {secrets[2]}.")
    text = path.read_text(encoding="utf-8")
    assert not [one for one in secrets if one in text]
    assert "[redacted]" in text
    after = replayed(path, prompt, tools=[Counting(reply).tool], instructions=f"Use {secrets[2]}.")[0]
    assert after.final_text == "The key is [redacted] and Bearer [redacted] ."


def test_an_image_of_a_prompt_and_of_a_result_stands_once_at_the_end_of_the_file(path):
    image = Media("image/png", bytes(range(256)) * 64)

    def picture():
        """Return a picture."""
        return image

    prompt = user("What is it?", image)
    before = record(
        path, prompt, "Sure?", model=ScriptedModel([calls("picture"), "A gradient.", "Yes."]), tools=[picture]
    )
    text = path.read_text(encoding="utf-8")
    assert text.count("\nblob: ") == 1
    assert text.rindex("\nturn: ") < text.index("\nblob: ")
    after = replayed(path, prompt, "Sure?", tools=[picture])
    assert [one.history_delta for one in after] == [one.history_delta for one in before]


def test_a_server_that_was_lost_is_lost_in_the_replay_too(path):
    async def lost(call, context):
        raise ServerError("The server far is gone.")

    async def unused(call, context):
        pytest.fail("a replay runs no tool")

    def server(invoke):
        return Listed([Tool(ToolDef("look", "Look.", server="far"), invoke)])

    (before,) = record(path, PROMPT, model=ScriptedModel([calls("look")]), tools=[server(lost)])
    (after,) = replayed(path, PROMPT, tools=[server(unused)])
    assert after.events == before.events
    assert (after.stop_reason, after.error) == ("error", "The server far is gone.")


def test_the_tools_of_a_server_are_listed_from_the_tape(path):
    async def look(call, context):
        return ToolResult(call.id, call.name, (Text("seen"),))

    server = Listed([Tool(ToolDef("look", "Look.", {"type": "object", "properties": {}}, server="far"), look)])
    before = record(path, PROMPT, model=ScriptedModel([calls("look"), "Done."]), tools=[server])[0]
    after = replayed(path, PROMPT, tools=[server])[0]
    assert server.listed == 1
    assert after.events == before.events
    live = {"model": ScriptedModel([calls("look"), "New."]), "instructions": "Be brief.", "replay": "auto"}
    forked = replayed(path, PROMPT, tools=[server], **live)[0]
    assert forked.final_text == "New."
    assert texts(forked)[0].endswith("seen")


def test_the_calls_that_a_tool_makes_are_not_made_if_the_tools_are_frozen_and_checked_by_todays_policy(path):
    log: list[int] = []

    @tool
    def double(number: int) -> int:
        """Double a number."""
        log.append(number)
        return number * 2

    @tool
    def twice(context: ToolContext) -> str:
        """Double some numbers."""
        return str([context.call_tool("double", {"number": one}) for one in (3, 4)])

    script, tools = [calls("twice"), "Done."], [double, twice]
    before = record(path, PROMPT, model=ScriptedModel(script), tools=tools)[0]
    after = replayed(path, PROMPT, model=ScriptedModel(script), tools=tools, replay="replay-tools")[0]
    made = [[one.call.arguments for one in turn.events if one.type == "inner_call"] for turn in (before, after)]
    assert made == [[{"number": 3}, {"number": 4}]] * 2
    assert after.history_delta == before.history_delta
    denied = replayed(path, PROMPT, tools=tools, permission=Policy([Rule("deny", "double")]))[0]
    assert "results.double is not as recorded" in denied.error
    assert sorted(log) == [3, 4]
    replayed(path, PROMPT, tools=tools, replay="replay-model")
    assert sorted(log) == [3, 3, 4, 4]
