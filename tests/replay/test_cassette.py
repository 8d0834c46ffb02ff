"""The file of a recording: what is left of it after a crash, and what is said of one that cannot be played."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from agentmagic import Agent, Approve, Session, tool
from agentmagic.errors import CassetteError, ReplayMismatch
from agentmagic.events import PartDelta, without_deltas
from agentmagic.export import save
from agentmagic.host import begin_cell
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay import recorded_answers, report
from agentmagic.replay.cassette import Cassette
from agentmagic.replay.recording import write_lock
from agentmagic.testing import Stalled
from tests.replay.test_replay import ANSWER, PROMPT, Counting, NoModel, record, replayed
from tests.turns import calls

KILLED = """
import os, signal, sys
from agentmagic import Agent, Session
from agentmagic.providers.scripted import ScriptedModel

def get_weather(city: str) -> str:
    "Return the weather of a city."
    os.kill(os.getpid(), signal.SIGKILL)

calls = {"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
session = Session(Agent(ScriptedModel(["Hello.", calls]), tools=[get_weather]), cassette=sys.argv[1], replay="record")
session.ask("Hi.")
session.ask("What is the weather in Oslo?")
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.cassette.yaml"


@pytest.mark.posix
def test_a_recording_that_was_killed_is_readable_up_to_the_last_event_and_can_be_gone_on_with(path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=os.environ, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    first, second = Cassette.at(path).takes
    assert (first.ended, second.ended) == (True, False)
    assert [next(iter(one)) for one in second.documents] == ["request", "answer"]
    assert replayed(path, "Hi.")[0].final_text == "Hello."
    record(path, "Hi.", PROMPT, model=ScriptedModel(["Hello.", "It is sunny."]))
    assert [result.final_text for result in replayed(path, "Hi.", PROMPT)] == ["Hello.", "It is sunny."]
    assert len(Cassette.at(path).takes) == 2


@pytest.mark.parametrize("more", [0, 1, 3, 6], ids=lambda more: f"{more} characters of it")
def test_a_file_that_was_cut_off_where_a_document_begins_is_gone_on_with(path, more):
    record(path, "Hi.", PROMPT, model=ScriptedModel(["Hello.", "It is sunny."]))
    text = path.read_text(encoding="utf-8")
    for begins in [match.end() for match in re.finditer(r"^---\n", text, re.MULTILINE)][1:]:
        path.write_text(text[: begins + more], encoding="utf-8")
        record(path, "Hi.", PROMPT, model=ScriptedModel(["Hello.", "It is sunny."]))
        assert [result.final_text for result in replayed(path, "Hi.", PROMPT)] == ["Hello.", "It is sunny."]


def test_a_turn_that_cannot_be_recorded_ends_and_leaves_its_file_to_be_read_again(tmp_path):
    folder = tmp_path / "cassettes"
    path = folder / "x.cassette.yaml"

    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        shutil.rmtree(folder)
        return city

    model = ScriptedModel([calls(("get_weather", {"city": "Oslo"})), "It is sunny."])
    session = Session(Agent(model, tools=[get_weather]), cassette=path, replay="record")
    with pytest.raises(CassetteError, match="cannot be written") as caught:
        session.ask(PROMPT)
    assert caught.value.result.stop_reason == "error"
    assert [turn.result.stop_reason for turn in session.turns] == ["error"]
    path.write_text("agentmagic cassette: 3\n", encoding="utf-8")
    assert Cassette.at(path).takes == []


def error_of(path):
    """The sentence with which the replay of a turn fails."""
    try:
        error = replayed(path, PROMPT)[0].error
    except CassetteError as refused:
        error = str(refused)
    assert "\n" not in error
    return error


def in_result(field):
    return lambda text: text.replace("\nresult: get_weather\n", f"\nresult: get_weather\n{field}\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _text: "hello", "is no cassette of agentmagic"),
        (lambda text: text.replace("cassette: 3", "cassette: 4"), "newer agentmagic.*pip install -U"),
        (lambda text: text.replace("cassette: 3", "cassette: 0"), "older agentmagic. Record it again"),
        (lambda text: text.replace("request:", "reqest:", 1), "no part of a recording"),
        (lambda text: text.replace("usage:", "open: [all]\nusage:"), "'open' is missing or has another form"),
        (lambda text: text.replace("usage:", "to: 2\nusage:", 1), "answer 2 has no request before it"),
        (lambda text: text.replace("usage:", "error: {kind: ProviderError}\nusage:"), "'error' is missing or has"),
        (in_result("status: broken"), "missing or has another form"),
        (in_result("rich: 5"), "missing or has another form"),
        (lambda text: text.replace("\ncall: 0\n", "\n"), "missing or has another form"),
        (lambda text: text.replace("- type: ", "- typ: "), "'answer' is missing or has another form"),
        (lambda text: text[: text.rindex("---\nrequest: ")], "breaks off after request 1.*Record the cell again"),
        (lambda text: re.sub(r"---\nanswer: [\s\S]*?(?=---)", "", text, count=1), "request 2 has no answer"),
        (lambda text: re.sub(r"answer: \|-?\n( .*\n|\n)+", "answer: 135\n", text), "a number.*needs quotes"),
        (lambda text: re.sub(r"answer: \|-?\n( .*\n|\n)+", "answer: null\n", text), "null, needs quotes"),
        (
            lambda text: text.replace("sunny, 21", "rain, 3"),
            r"results.get_weather.*edited.*now: 'rain, 3 degrees'",
        ),
        (lambda text: text.replace("city: Oslo", "city: Rome"), r"step 1: answer.*cause: edited.*now: .*Rome"),
        (lambda text: re.sub("turn: .*", "turn: How is it?", text), r"turn.*cause: edited.*now: .*How is it"),
        (lambda text: text + "---\nwait: 1\n", "a document stands behind the end"),
        (lambda text: text.replace("---\nend", "---\nstop: true\n---\nend"), "lacks a document, or has one more"),
        (lambda text: text.replace("---\nend", "---\n<<<<<<< HEAD\nend"), "git could not finish"),
    ],
)
def test_a_file_that_cannot_be_played_is_refused_in_one_sentence(path, change, words):
    record(path, PROMPT)
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    assert re.search(words, error_of(path))


def test_a_changed_prompt_is_compared_with_the_cell_in_its_place_not_with_one_more_like_it(path):
    record(path, "Count the cats.", "Count the birds here.", model=ScriptedModel(["One.", "Two."]))
    assert "Count the birds here." in replayed(path, "Count the cats.", "Count the cats!")[1].error


def test_an_answer_that_was_edited_by_hand_is_played_as_it_was_edited(path):
    record(path, PROMPT)
    text = path.read_text(encoding="utf-8")
    kinds = [next(iter(one)) for one in yaml.safe_load_all(text)]  # plain YAML, that other readers take
    assert kinds[:4] == ["agentmagic cassette", "turn", "sources", "request"]
    assert text.count("Return the weather of a city.") == 1  # what a tool is stands once
    path.write_text(text.replace("21 °C", "30 °C"), encoding="utf-8")
    assert replayed(path, PROMPT)[0].final_text == ANSWER.replace("21", "30")


def test_an_answer_that_is_marked_as_a_refusal_or_ends_in_an_unknown_word_is_played_as_one(path):
    class Refusing(ScriptedModel):
        async def stream(self, request):
            async for event in super().stream(request):
                yield replace(event, refused=True, unknown=True) if isinstance(event, ModelFinished) else event

    record(path, PROMPT, model=Refusing(["I will not."]))
    assert replayed(path, PROMPT)[0].final_text == "I will not."
    (answer,) = [one for one in Cassette.at(path).takes[0].documents if "answer" in one]
    end = [*recorded_answers.model_events(answer, lambda part: part)][-1]
    assert (end.refused, end.unknown) == (True, True)


def test_a_request_that_the_recording_has_and_the_turn_does_not_is_missed(path):
    record(path, PROMPT)
    text = path.read_text(encoding="utf-8")
    more = '---\nrequest: "0"\n---\nanswer: []\nstopped: false\n---\nend: answer\nseconds: 0\n'
    path.write_text(re.sub(r"(?s)---\nend:.*", more, text), encoding="utf-8")
    session = Session(Agent(NoModel(), tools=[Counting().tool]), cassette=path, replay="replay")
    with pytest.raises(ReplayMismatch, match=r"3 requests.*2 requests"):
        session.ask(PROMPT)


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_other_ends_of_lines_change_nothing(path, ends):
    record(path, PROMPT)
    path.write_bytes(path.read_bytes().replace(b"\n", ends.encode()))
    assert replayed(path, PROMPT)[0].final_text == ANSWER
    assert not list(report.problems(Cassette.at(path)))
    record(path, "Bye.", model=ScriptedModel(["Bye."]))
    assert [replayed(path, prompt)[0].final_text for prompt in ("Bye.", PROMPT)] == ["Bye.", ANSWER]


def test_an_edited_approval_is_named_and_auto_records_an_edited_turn_anew(path):
    @tool(ask=True)
    def remove(name: str) -> str:
        """Remove something."""
        return f"removed {name}"

    steps = [calls(("remove", {"name": "old"})), "Done."]
    session = Session(Agent(ScriptedModel(steps), tools=[remove]), cassette=path, replay="record")
    run = session.start(PROMPT, attended=True)
    run.listen(lambda event: event.type == "approval_asked" and run.send(Approve(event.id)))
    run.wait()
    session.close()
    path.write_text(path.read_text(encoding="utf-8").replace("\nanswer: 'yes'", "\nanswer: 'no'"), encoding="utf-8")
    with pytest.raises(ReplayMismatch, match=r"approvals.remove .*cause: edited.*Recorded: 'yes'; now: 'no'"):
        Session(Agent(NoModel(), tools=[remove]), cassette=path, replay="replay").ask(PROMPT)
    again = replayed(path, PROMPT, model=ScriptedModel(["Not now."]), tools=[remove], replay="auto")[0]
    assert again.final_text == "Not now."
    assert replayed(path, PROMPT, tools=[remove])[0].final_text == "Not now."


# -- several writers -------------------------------------------------------------------------------


def test_a_file_is_appended_to_while_it_is_recorded_and_put_in_order_at_the_end(path):
    prompts = ["One.", "Two.", "Three."]
    record(path, *prompts, model=ScriptedModel(["1", "2", "3"]), tools=[])
    file, written = path.stat().st_ino, path.read_text(encoding="utf-8")
    begin_cell()
    session = Session(Agent(ScriptedModel(["uno", "dos"])), cassette=path, replay="record")
    for prompt in prompts[:2]:
        session.ask(prompt)
        text = path.read_text(encoding="utf-8")
        assert text.startswith(written)
        assert [take.prompt for take in Cassette.at(path).takes] == prompts
        written = text
    assert path.stat().st_ino == file
    session.close()
    assert re.findall("(?m)^turn: (.*)$", path.read_text(encoding="utf-8")) == prompts
    assert not [word for word in ("recording:", "goes on:") if word in path.read_text(encoding="utf-8")]
    assert [result.final_text for result in replayed(path, *prompts[:2], tools=[])] == ["uno", "dos"]
    assert {one.name for one in path.parent.iterdir()} == {path.name, ".agentmagic"}


WRITER = """
import sys
from agentmagic import Agent, ScriptedModel, Session
from agentmagic.host import begin_cell

who, path = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for part in "1234":
    begin_cell()
    model = ScriptedModel([f"{who}{part}{turn}. " * 9 for turn in "123"])
    session = Session(Agent(model), cassette=path, replay="record")
    for turn in "123":
        assert not [event for event in session.ask(f"{who}{part}{turn}?").events if event.type == "notice"]
    session.close()
"""


def writer(who, path):
    """A process that records four conversations of three turns when it is told to."""
    command = [sys.executable, "-c", WRITER, who, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False], ids=["at once", "one after the other"])
def test_of_two_scripts_that_record_to_one_file_no_turn_is_lost(path, together):
    if together:
        both = [writer(who, path) for who in "AB"]
        for one in both:
            assert one.stdout.readline() == "ready\n"
        for one in both:
            one.stdin.write("go\n")
            one.stdin.flush()
        assert [one.wait(60) for one in both] == [0, 0]
        for one in both:
            one.communicate()
    else:
        for who in "AB":
            one = writer(who, path)
            one.communicate("go\n", 60)
            assert one.returncode == 0
    assert "goes on" not in path.read_text(encoding="utf-8")
    assert not list(report.problems(Cassette.at(path)))
    for name in (f"{who}{part}" for who in "AB" for part in "1234"):
        begin_cell()
        turns = replayed(path, *(f"{name}{turn}?" for turn in "123"), tools=[])
        assert [turn.final_text for turn in turns] == [f"{name}{turn}. " * 9 for turn in "123"]


def test_two_sessions_record_to_one_file_at_the_same_time(path):
    slow = Stalled("Half")
    one = Session(Agent(slow), cassette=path, replay="record")
    one.deck.name = "slow"
    running = one.start("Wait.")
    assert slow.stalled.wait(10)
    record(path, PROMPT)
    assert "\nsession: slow" in path.read_text(encoding="utf-8")
    running.cancel()
    running.settled.result(10)
    one.close()
    assert sorted((take.session, take.ended) for take in Cassette.at(path).takes) == [("", True), ("slow", True)]
    assert replayed(path, PROMPT)[0].final_text == ANSWER


def test_a_turn_goes_on_behind_the_half_line_of_a_writer_that_was_killed(path):
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        with path.open("a", encoding="utf-8") as file:
            file.write("---\nturn: Half a li")
        return "sunny"

    record(path, PROMPT, tools=[get_weather])
    assert replayed(path, PROMPT)[0].final_text == ANSWER
    assert [take.prompt for take in Cassette.at(path).takes] == [PROMPT]


def test_a_writer_that_does_not_let_go_is_told(path, monkeypatch):
    monkeypatch.setattr("agentmagic.replay.recording.LONGEST_WAIT", 0.01)
    with (
        write_lock(Cassette.at(path)),
        pytest.raises(CassetteError, match=r"written by another process.*End that one, or name another file"),
    ):
        record(path, PROMPT)
    assert not path.exists()


TURNS = 50


class Tokens(ScriptedModel):
    """A script whose answers come token by token, as from a real model, a call in three pieces."""

    async def stream(self, request):
        async for event in super().stream(request):
            if event.type == "part_finished":
                part = event.part
                whole = part.text if part.type == "text" else json.dumps(part.arguments)
                for piece in re.findall(r"\s?[^\W\d_]{1,9}|\s?\d+|\s?[^\w\s]+|\s+", whole):
                    yield PartDelta(event.index, piece)
            if event.type != "part_delta":
                yield event


@pytest.mark.slow
def test_a_recording_of_short_turns_takes_little_more_room_than_its_export(path):
    steps = []
    for number in range(TURNS):
        answer = f"It is sunny in City {number}, with 21 degrees in the afternoon."
        steps += [calls(("look", {"city": f"City {number}"})), answer]

    def look(city: str) -> str:
        """Return the weather of a city."""
        return f"sunny in {city}, 21 degrees"

    session = Session(Agent(Tokens(steps), tools=[look]), cassette=path, replay="record")
    before = [session.ask(f"What is the weather in City {number}?") for number in range(TURNS)]
    page = path.with_name("x.md")
    save(session.turns, page)
    session.close()
    assert path.stat().st_size <= 1.2 * page.stat().st_size
    again = Session(Agent(NoModel(), tools=[look]), cassette=path, replay="replay")
    after = [again.ask(one.prompt.text) for one in session.turns]
    assert [without_deltas(one.events) for one in after] == [without_deltas(one.events) for one in before]
