"""Rows in the provider's batches: sent once, collected by any kernel, at half the price."""

import asyncio
import json
import threading

import pytest
from pydantic import BaseModel

from agentmagic import Agent, MapFailed, ModelSettings, RetrySettings, Session, UsageError, register_model, tool
from agentmagic.errors import BadRequest, Unavailable
from agentmagic.events import PartFinished, PartStarted
from agentmagic.mapping import batching, driver
from agentmagic.mapping.costs import Costs
from agentmagic.messages import Text, Usage
from agentmagic.providers import catalog
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.batch import BatchLimits, BatchState
from agentmagic.testing import PATIENCE
from tests.mapping.models import MODEL, RowModel


class Line(BaseModel):
    length: int


ANSWERS = {"odd": "no JSON", "null": "null"}
"""The answers to rows; to any other row, it is the length of the row."""


class Provider:
    """A provider that keeps batches: each is done at its second look, and some rows expire in their first batch."""

    limits = BatchLimits(requests=3, size=1_000_000)

    def __init__(self):
        self.sent = {}
        self.looks = 0
        self.looked = threading.Event()
        self.done = True
        self.refuses = None
        self.go_on = asyncio.Event()  # before which no late row has its answer
        self._expired = set()

    def line(self, key, request):
        return json.dumps([key, request.messages[-1].text]).encode()

    async def submit(self, requests):
        if self.refuses is not None:
            raise self.refuses
        name = f"batch_{len(self.sent)}"
        self.sent[name] = {key: request.messages[-1].text for key, request in requests}
        return name

    async def state(self, name):
        self.looks += 1
        self.looked.set()
        if self.looks % 2:
            message = "a proxy is down"
            raise Unavailable(message)
        return BatchState("running", done=self.done)

    async def results(self, name, keys):
        for key in sorted(keys, key=lambda key: "late" in self.sent[name][key]):
            text = self.sent[name][key]
            if "late" in text:
                await self.go_on.wait()
            if "expires" in text and text not in self._expired:
                self._expired.add(text)
                yield key, Unavailable("its batch expired first")
                continue
            answer = Text(ANSWERS.get(text, json.dumps({"length": len(text)})))
            usage = Usage(100, 0, 20, requests=1, cost=0.0015)
            end = ModelFinished(usage, "stop", cut="cut" in text, refused="refused" in text)
            yield key, [PartStarted(0, "text"), PartFinished(0, answer), end]

    async def cancel(self, name):
        pass


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setattr(batching, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(batching, "LONGEST_WAIT", 0.0)
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, input_price=10.0, output_price=100.0)  # a request: 100 and 20 tokens, $0.003
    return Provider()


@pytest.fixture
def ask(provider, tmp_path):
    class BatchModel(RowModel):
        def batches(self):
            return provider

    sessions = []

    def start(rows, *, grows=1, **options):
        model = BatchModel(grows=grows)
        agent = Agent(model, retry=RetrySettings(tries=1), settings=ModelSettings(max_output_tokens=20))
        session = Session(agent, namespace={})
        sessions.append(session)
        given = {"to": tmp_path / "labels.jsonl", "as_": Line, "batch": True, **options}
        return session.start_map(rows, "{row}", **given), model

    yield start
    for session in sessions:
        session.close()


def test_rows_are_sent_in_batches_and_their_answers_cost_half(ask, provider):
    run, model = ask(["a", "bb", "ccc", "dddd"])
    result = run.wait()
    assert [row.value.length for row in result] == [1, 2, 3, 4]
    assert [len(keys) for keys in provider.sent.values()] == [3, 1]
    assert result.usage.cost == pytest.approx(4 * 0.0015)
    assert sum(model.asked.values()) == 0
    again, _ = ask(["a", "bb", "ccc", "dddd"])
    assert again.wait().progress.kept == 4
    assert len(provider.sent) == 2


def test_an_answer_that_does_not_fit_is_repaired_live(ask):
    run, model = ask(["odd"])
    (row,) = run.wait()
    assert row.value.length > 0
    assert row.usage.cost == pytest.approx(0.0015 + 0.003)
    assert sum(model.asked.values()) == 1


@pytest.mark.parametrize("as_", [Line, None])
def test_an_answer_that_was_cut_off_or_refused_is_failed_and_sent_again_by_the_next_run(ask, provider, as_):
    for batches in (1, 2):
        run, model = ask(["a", "cut", "refused"], as_=as_)
        good, cut, refused = run.wait()
        assert [good.status, cut.status, refused.status] == ["answered", "failed", "failed"]
        assert cut.error.startswith("The answer was cut off at the limit of output.")
        assert refused.error.startswith("The model refused to answer: ")
        assert (cut.value, refused.value, sum(model.asked.values())) == (None, None, 0)
        assert len(provider.sent) == batches
    assert sorted(provider.sent["batch_1"].values()) == ["cut", "refused"]


def test_null_is_an_answer_that_is_paid_for_once(ask, provider):
    for _ in range(2):
        run, _ = ask(["a", "null"], as_=Line | None)
        assert [(row.status, row.value) for row in run.wait()] == [("answered", Line(length=1)), ("answered", None)]
    assert len(provider.sent) == 1


def test_a_map_that_ends_before_it_collects_its_batches_knows_which_rows_are_in_one(ask, provider):
    provider.done = False
    run, _ = ask(["a", "bb"])
    provider.looked.wait(PATIENCE)
    run.stop()
    run.wait()
    again, _ = ask(["a", "bb", "new"], batch=False, max_cost=0.0001)
    with pytest.raises(MapFailed, match=r"^No row was asked\.") as failed:
        again.wait()
    assert list(failed.value.result.frame["_status"]) == ["in a batch", "in a batch", "not asked"]


def test_another_kernel_collects_what_one_has_sent(ask, provider):
    provider.done = False
    run, _ = ask(["a", "bb"])
    provider.looked.wait(PATIENCE)
    run.stop()
    stopped = run.wait()
    assert list(stopped.frame["_status"]) == ["in a batch"] * 2
    assert "running the map again collects it" in stopped.progress.notices[-1]
    provider.done = True
    again, _ = ask(["a", "bb", "new"])
    result = again.wait()
    assert [row.value.length for row in result] == [1, 2, 3]
    assert [len(keys) for keys in provider.sent.values()] == [2, 1]
    assert not result.doubtful
    assert result.notices == ()  # that the batch may take a day is over, too


def test_a_row_that_expired_is_sent_again_by_the_next_run(ask, provider):
    first, _ = ask(["a", "expires"])
    assert [(row.status, row.error) for row in first.wait()][1] == ("failed", "its batch expired first")
    second, _ = ask(["a", "expires"])
    assert [row.status for row in second.wait()] == ["answered", "answered"]
    assert [list(keys.values()) for keys in provider.sent.values()] == [["a", "expires"], ["expires"]]


@pytest.mark.parametrize(("refusal", "doubtful"), [(BadRequest("no batches"), []), (Unavailable("down"), [0, 1])])
def test_rows_of_a_batch_that_was_not_taken_are_in_doubt_only_if_it_may_be_there(ask, provider, refusal, doubtful):
    provider.refuses = refusal
    run, _ = ask(["a", "bb"])
    with pytest.raises(type(refusal)):
        run.wait()
    provider.refuses = None
    again, _ = ask(["a", "bb"])
    assert [row.index for row in again.wait().doubtful] == doubtful


def test_a_cap_is_kept_in_rounds(ask, provider):
    run, _ = ask([f"row {number}" for number in range(40)], max_cost=0.03)
    result = run.wait()
    assert result.progress.ended == "budget"
    assert result.usage.cost <= 0.03
    assert result.usage.cost > 0.03 - 2 * 0.0015


def test_what_is_given_back_is_what_was_set_aside_whatever_is_learned_meanwhile(ask, provider, monkeypatch):
    left = []

    class Watched(Costs):
        def give_back(self, worst, used):
            super().give_back(worst, used)
            left.append(self._reserved_tokens)
            if len(left) == 4:  # the first row, two of the batch, and the repair
                provider.go_on.set()

    monkeypatch.setattr(driver, "Costs", Watched)
    run, model = ask(["first", "odd", "a", "late"], grows=20, max_cost=5.0)
    assert [row.status for row in run.wait()] == ["answered"] * 4
    assert sum(model.asked.values()) == 2  # the first row, and the repair that tells of more tokens
    assert (min(left), left[-1]) == (0, 0)


@tool
def look_up(line: str) -> str:
    """Look a line up."""
    return line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": None}, "Name one: to=FILE"),
        ({"tools": [look_up]}, r"calls of tools \(look_up\) need more. Leave them out with tools=\[\]"),
        ({"agent": Agent(RowModel())}, "testing:rows takes no batches"),
    ],
)
def test_what_a_batch_cannot_do_is_refused_before_anything_is_sent(ask, provider, options, words):
    run, _ = ask(["a"], **options)
    with pytest.raises(UsageError, match=words):
        run.wait()
    assert not provider.sent
