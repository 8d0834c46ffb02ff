"""The ledger of paid requests, the budgets of days and months, and the bill of a folder."""

import json
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from agentmagic import (
    Agent,
    ModelSettings,
    ProviderError,
    RetrySettings,
    ScriptedModel,
    Session,
    UsageError,
    classroom,
    register_model,
    usage,
)
from agentmagic.bill import DAILY, MONTHLY, PaidRequests, folder_bill, ledger, own_state_folder, today
from agentmagic.events import Notice
from agentmagic.loop.budgets import period_meters
from agentmagic.messages import Usage
from agentmagic.providers import catalog
from agentmagic.testing import Faulty, run
from tests.mapping.models import MODEL as ROWS_MODEL
from tests.mapping.models import RowModel
from tests.turns import StallsAfter, calls, texts

MODEL = "paid:model"
DOLLAR = Usage(input_tokens=1_000, cached_tokens=400, output_tokens=100, requests=1, cost=1.0)


class Paid(ScriptedModel):
    """A script that costs a dollar for each thousand words it says."""

    def __init__(self, steps):
        super().__init__(steps)
        self.name = MODEL


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of one user, with nothing spent."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, input_price=0.0, output_price=1_000.0)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(classroom, "_FOLDER", work)
    return work


def session(*words, **options):
    """A session whose answers cost so many tenths of a cent: a script counts a word more than it says."""
    return Session(Agent(Paid([" ".join(["word"] * (number - 1)) for number in words])), **options)


def warnings(result):
    return [event.text for event in result.events if isinstance(event, Notice) and event.level == "warning"]


# -- budgets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "when", "next_time"), [(DAILY, "today", "tomorrow"), (MONTHLY, "this month", "next month")]
)
def test_a_budget_warns_once_at_80_percent_and_stops_the_next_request_at_100(variable, when, next_time, monkeypatch):
    monkeypatch.setenv(variable, "1")
    talk = session(850, 100, 100, 100)
    results = [run(talk, "Say it") for _ in range(4)]
    warned = f"$0.85 of the $1.00 of {variable} are spent {when}. At 100 % no further request is sent."
    assert [warnings(one) for one in results] == [[], [warned], [], []]
    assert [one.stop_reason for one in results] == ["answer", "answer", "answer", "budget"]
    assert results[3].error == (
        f"$1.0500 were spent {when}; {variable} is $1.0000. No further request was sent; go on {next_time}, or raise "
        f"{variable}."
    )
    assert run(session(1), "Another session").stop_reason == "budget"
    free = Session(Agent(ScriptedModel(["Free."])))
    assert run(free, "A model that costs nothing goes on").final_text == "Free."


def test_the_smallest_budget_holds_and_one_of_a_class_is_for_all_folders(folder, tmp_path, monkeypatch):
    (folder / "pyproject.toml").write_text("[tool.agentmagic.class]\nmonthly-budget = 0.5\n", encoding="utf-8")
    classroom.class_settings.cache_clear()
    monkeypatch.setenv(MONTHLY, "0.2")
    ledger().pay(str(tmp_path / "elsewhere"), "agent", MODEL, replace_cost(0.3))
    talk = session(150, 100, 10)
    assert run(talk, "Below both").stop_reason == "answer"
    assert run(talk, "Below both, with a warning of the class").stop_reason == "answer"
    stopped = run(talk, "Over both")
    assert stopped.stop_reason == "budget"
    assert MONTHLY in stopped.error
    monkeypatch.setenv(MONTHLY, "9")
    assert "the limit is monthly-budget = 0.5 in " in run(talk, "Over the class").error


def replace_cost(cost):
    return Usage(output_tokens=1, requests=1, cost=cost)


def test_requests_are_paid_one_by_one_whatever_becomes_of_their_turn(monkeypatch):
    begun = threading.Event()
    stalled = StallsAfter(tell=begun.set)
    stalled.name = MODEL
    register_model(MODEL, input_price=1_000_000.0, output_price=0.0)
    turn = Session(Agent(stalled)).start("Wait for the answer")
    begun.wait(10)
    turn.cancel()
    turn.settled.result(10)
    assert ledger().costs("day").cost > 1  # the prompt was sent, and is paid as far as we know


def test_a_price_that_is_unknown_is_said_and_not_counted_as_nothing(folder, monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    talk = session(10, 10, path=folder / "talk.jsonl")
    run(talk, "Unknown")
    monkeypatch.setenv(DAILY, "1")
    refused = run(talk, "Unknown")
    assert refused.error.startswith(
        f"The price of this model is unknown, so {DAILY} cannot be kept. Register the price"
    )
    (meter,) = period_meters()
    assert str(meter) == f"$1.00 of $1.00 are left today ({DAILY}); not in it: 1 request of unknown price"
    assert [row["cost"] for row in folder_bill().rows] == [None]


def test_a_replay_is_neither_paid_nor_stopped(folder, monkeypatch):
    def played(mode):
        talk = session(850, cassette=folder / "c.yaml", replay=mode, path=folder / f"{mode}.jsonl")
        result = run(talk, "Say it")
        talk.close()
        return result

    played("record")
    monkeypatch.setenv(DAILY, "0.5")
    result = played("replay")
    assert (result.stop_reason, warnings(result)) == ("answer", [])
    assert round(ledger().costs("day").cost, 6) == 0.85
    assert [(row["session"], row["cost"]) for row in folder_bill().rows] == [("record", pytest.approx(0.85))]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_budget_holds_for_the_agent_that_a_free_model_asks(mapped, monkeypatch):
    monkeypatch.setenv(MONTHLY, "1")
    scout = session(900, 900, 900).agent.as_tool("scout", "Finds things.")
    asks = {"calls": [{"name": "scout", "arguments": {"prompt": "Look."}}]}
    talk = Session(Agent(ScriptedModel([asks, "Done."] * 3), tools=[scout]), namespace={})
    if mapped:
        talk.map(["a", "b", "c"], "{row}", concurrency=1)
    else:
        for _ in range(3):
            assert talk.ask("Look.").stop_reason == "answer"
    assert round(ledger().costs("month").cost, 6) == 1.8
    assert run(session(1), "Hello").stop_reason == "budget"


@pytest.mark.parametrize("free", [False, True])
def test_an_agent_of_unknown_price_is_not_asked_under_a_budget(free, monkeypatch):
    monkeypatch.setenv(MONTHLY, "1")
    unknown = ScriptedModel(["Found."])
    unknown.name = "nobody:knows"
    asks = {"calls": [{"name": "scout", "arguments": {"prompt": "Look."}}]}
    model = ScriptedModel([asks, "Done."]) if free else Paid([asks, "Done."])
    result = Session(Agent(model, tools=[Agent(unknown).as_tool("scout", "Finds things.")])).ask("Look.")
    assert unknown.requests == []
    assert "The price of this model is unknown" in texts(result)[0]


@pytest.mark.parametrize("text", ["ten", "0", "-1", "nan", "inf"])
def test_a_budget_that_is_not_a_number_is_refused_with_what_to_write(text, monkeypatch):
    monkeypatch.setenv(DAILY, text)
    with pytest.raises(UsageError) as caught:
        run(session(1), "Hello")
    assert str(caught.value) == f"{DAILY} is {text!r}. Set it to a number of US dollars above 0, or unset it."


def test_a_map_keeps_a_budget_and_says_so(monkeypatch):
    monkeypatch.setenv(DAILY, "0.1")
    register_model(ROWS_MODEL, input_price=10.0, output_price=100.0)  # a request: $0.003
    talk = Session(Agent(RowModel(), settings=ModelSettings(max_output_tokens=20)), namespace={})
    result = talk.map([f"row {number}" for number in range(200)], "{row}", concurrency=16)
    talk.close()
    assert 0.1 - 2 * 0.003 < (result.usage.cost or 0) < 0.1 + 1e-9
    assert result.progress.ended == "budget"
    assert DAILY in result.progress.notices[-1]


# -- the ledger ------------------------------------------------------------------------------------


def test_lines_that_a_crash_has_cut_off_or_that_are_none_of_ours_are_passed_over():
    one = PaidRequests()
    one.pay("here", "agent", MODEL, DOLLAR)
    damaged = ['"time": 1e400, "cost": 1', '"time": 1, "cost": -5', '"cost": NaN', f'"time": {10**30}, "cost": 1']
    hostile = [b"[" * 5_000, *(f'{{"folder": "here", {one}}}'.encode() for one in damaged), b"\xff", b'{"time": 17']
    with one.path().open("ab") as file:
        file.write(b"\n".join(hostile))
    other = PaidRequests()
    other.pay("here", "agent", MODEL, DOLLAR)
    assert one.costs("month", "here").cost == other.costs("day").cost == PaidRequests().costs("day", "here").cost == 2.0
    assert one.costs("day", "there").cost == 0.0


def test_a_ledger_that_cannot_be_written_stops_requests_under_a_budget_and_no_others(tmp_path, monkeypatch):
    (tmp_path / "state").write_text("in the way", encoding="utf-8")
    talk = session(10, 10, 10)
    assert run(talk, "No budget").stop_reason == "answer"
    monkeypatch.setenv(DAILY, "1")
    refused = run(talk, "A budget")
    assert f"so {DAILY} cannot be kept and no request was sent. Make the file writable" in refused.error
    (tmp_path / "state").unlink()
    assert run(talk, "Mended").stop_reason == "answer"
    assert round(ledger().costs("day").cost, 6) == 0.02  # what could not be written before, too


KERNEL = """
import sys
from agentmagic import Agent, ModelSettings, ScriptedModel, Session, register_model

class Paid(ScriptedModel):
    def __init__(self, steps):
        super().__init__(steps)
        self.name = "paid:model"

register_model("paid:model", input_price=0.0, output_price=1_000.0)
print("ready", flush=True)
sys.stdin.readline()
talk = Session(Agent(Paid([" ".join(["word"] * 9)] * 100)))
while talk.ask("Say it").stop_reason == "answer":
    pass
print(len(talk.turns) - 1)
"""


def test_parallel_kernels_spend_no_more_than_the_budget_and_the_requests_under_way(folder, monkeypatch):
    monkeypatch.setenv(DAILY, "0.5")
    kernels = [
        subprocess.Popen(
            [sys.executable, "-c", KERNEL], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for kernel in kernels:
        assert kernel.stdout.readline() == "ready\n"
    for kernel in kernels:
        kernel.stdin.write("go\n")
        kernel.stdin.flush()
    answered = [int(kernel.communicate(timeout=60)[0]) for kernel in kernels]
    assert 50 <= sum(answered) <= 52
    assert ledger().costs("day", str(folder)).cost == pytest.approx(sum(answered) * 0.01)


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """The file of an administrator who has a budget."""
    file = tmp_path / "agentmagic.toml"
    file.write_text("daily-budget = 1\n", encoding="utf-8")
    monkeypatch.setattr(classroom, "POLICY_FILE", file)
    classroom.class_settings.cache_clear()
    yield
    classroom.class_settings.cache_clear()
    own_state_folder.cache_clear()


@pytest.fixture
def go_to(monkeypatch):
    """Put this process into a time zone."""

    def move(zone):
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(sys.platform == "win32", reason="no time zone of a process, no numbers of users")
@pytest.mark.parametrize("number_is_known", [True, False])
def test_neither_a_time_zone_nor_a_variable_moves_the_ledger_of_an_administrator(
    policy, go_to, tmp_path, monkeypatch, number_is_known
):
    import pwd

    homes = {os.getuid(): SimpleNamespace(pw_dir=str(tmp_path / "anna"))} if number_is_known else {}
    asked = []
    monkeypatch.setattr(pwd, "getpwuid", lambda number: asked.append(number) or homes[number])
    own_state_folder.cache_clear()
    places = set()
    for zone, home in (("UTC+12", "here"), ("UTC-14", "there")):
        go_to(zone)
        monkeypatch.setenv("XDG_STATE_HOME", home)
        places.add((PaidRequests.path(), today(), PaidRequests().costs("day")))
    ((path, day, _),) = places
    assert day in {time.strftime("%Y-%m-%d", time.gmtime(time.time() - late)) for late in (0, 60)}
    assert asked == [os.getuid()]
    assert path.parent.name == ("agentmagic" if number_is_known else f"agentmagic-{os.getuid()}")


@pytest.mark.skipif(sys.platform == "win32", reason="no time zone of a process")
def test_what_was_spent_today_counts_in_another_time_zone_too(policy, go_to, tmp_path, monkeypatch):
    monkeypatch.setattr("agentmagic.bill.own_state_folder", lambda: tmp_path)
    PaidRequests().pay("here", "agent", MODEL, DOLLAR)
    spent = []
    for zone in ("UTC+12", "UTC-14"):
        go_to(zone)
        spent.append(PaidRequests().costs("day").cost)
    assert spent == [1.0, 1.0]


# -- the bill of a folder --------------------------------------------------------------------------


def test_the_bill_has_what_this_folder_paid_for_saved_or_not_in_every_month(folder, tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas")
    long_ago = time.mktime((2020, 2, 3, 12, 0, 0, 0, 0, -1))
    with monkeypatch.context() as then:
        then.setattr(time, "time", lambda: long_ago)
        PaidRequests().pay(str(folder), "agent", MODEL, DOLLAR, "analysis.ipynb")
    saved, unsaved = session(100, 200, path=folder / "script.jsonl"), session(50)
    run(saved, "One")
    run(saved, "Two")
    run(unsaved, "Three")
    saved.save(folder / "copy.jsonl")
    saved.close()
    PaidRequests().pay(str(tmp_path), "agent", MODEL, DOLLAR)
    with PaidRequests.path().open("ab") as file:
        file.write(b'{"time": 17}\n{"time":')
    frame = usage()
    assert isinstance(frame, pd.DataFrame)
    figures = frame.drop(columns=["tokens", "cost"]).to_dict("records")
    now = {"day": today(), "notebook": "", "model": MODEL, "cached": 0, "failures": 0}
    earlier = {"day": "2020-02-03", "notebook": "analysis.ipynb", "session": "agent", "cached": 400, "requests": 1}
    assert figures == [now | earlier, now | {"session": "", "requests": 1}, now | {"session": "script", "requests": 2}]
    assert frame["cost"].sum() == pytest.approx(1.35)
    assert frame.attrs == {"damaged": 1, "left_out": 0}


def test_lines_of_an_older_version_are_read(folder):
    line = {"time": int(time.time()), "folder": str(folder), "session": "agent", "model": MODEL, "cost": 0.5}
    PaidRequests.path().parent.mkdir(parents=True)
    old = [json.dumps(one) for one in (line | {"tokens_in": 90, "cached": 40, "tokens_out": 10}, line)]
    PaidRequests.path().write_text("".join(f"{one}\n" for one in old), encoding="utf-8")
    (row,) = folder_bill().rows
    assert row == {"day": today(), "notebook": "", "session": "agent", "model": MODEL, "requests": 2} | {
        "tokens": 100,
        "cached": 40,
        "cost": 1.0,
        "failures": 0,
    }
    assert ledger().costs("day", str(folder)).cost == 1.0


@pytest.mark.parametrize("letter", ["a", "\u00e4", "\U0001f600", "\udcff"])
def test_a_request_in_a_folder_with_a_long_path_is_counted_for_this_folder_alone(letter):
    here, there = (f"/{letter * 3_000}/{name}" for name in ("here", "there"))
    for folder in (here, there):
        PaidRequests().pay(folder, letter * 3_000, letter * 3_000, DOLLAR, letter * 3_000)
    assert PaidRequests().costs("day", here).cost == PaidRequests().costs("day", there).cost == 1.0
    assert PaidRequests().costs("month").cost == 2.0


def test_the_requests_of_an_agent_that_is_asked_are_those_of_the_session(folder):
    scout = Agent(Paid(["word " * 99])).as_tool("scout", "Finds.")
    talk = Session(Agent(Paid([calls(("scout", {"prompt": "Find it."})), "Done."]), tools=[scout]), path="talk.jsonl")
    run(talk, "One")
    talk.close()
    assert [(row["session"], row["requests"]) for row in folder_bill().rows] == [("talk", 3)]


def test_an_auto_turn_that_nothing_was_asked_for_is_not_billed(folder):
    for mode in ("record", "auto"):
        talk = session(100, cassette=folder / "c.yaml", replay=mode, path=folder / f"{mode}.jsonl")
        run(talk, "Say it")
        talk.close()
    assert [row["session"] for row in folder_bill().rows] == ["record"]


def test_without_pandas_the_bill_is_a_list_of_rows(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert usage() == []
    talk = session(100, path=folder / "talk.jsonl")
    run(talk, "One")
    (row,) = usage(str(folder))
    assert (row["session"], row["requests"], row["cost"]) == ("talk", 1, pytest.approx(0.1))
    with pytest.raises(UsageError, match="There is no folder "):
        usage(folder / "nowhere")


def test_a_request_has_the_name_of_its_notebook(folder, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "analysis.ipynb"))
    run(session(10), "One")
    assert [row["notebook"] for row in folder_bill(folder).rows] == ["analysis.ipynb"]


def test_turns_that_fail_are_counted_and_those_of_free_models_are_not(folder):
    for name, failures in ((MODEL, 1), ("scripted:script", 0)):
        model = Faulty(ProviderError("No."))
        model.name = name
        run(Session(Agent(model, retry=RetrySettings(tries=1))), "One")
        assert sum(row["failures"] for row in folder_bill().rows) == failures
        PaidRequests.path().unlink(missing_ok=True)
    run(session(10), "One")
    assert [(row["requests"], row["failures"]) for row in folder_bill().rows] == [(1, 0)]
