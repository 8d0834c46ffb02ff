"""Batches through the real SDKs: what is sent, collected by another process, paid, and what may go wrong."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings

from agentmagic import Agent, Session
from agentmagic.errors import AuthenticationFailed, BadRequest, ProviderError, RateLimited, StreamBroken, Unavailable
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Text, Usage, user
from agentmagic.providers import batch, catalog
from agentmagic.providers.anthropic.encoder import BINDING
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, OutputSchema, Request
from agentmagic.providers.batch import BatchAnswer, BatchedModel, BatchLimits, batches_of, split
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.registry import register_model
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.providers.traffic import TurnTraffic
from tests.providers.batch_server import APIS, KEY, BatchServer
from tests.providers.loopback import ask
from tests.providers.test_decoders import check_order, spoiled

LABEL = OutputSchema(
    "label",
    {
        "type": "object",
        "properties": {"mood": {"type": "string"}},
        "required": ["mood"],
        "additionalProperties": False,
    },
)
REQUEST = Request((user("Good soup."),), "Which mood?", output=LABEL)
KEYS = ("a", "b", "c")
ROWS = [(key, REQUEST) for key in KEYS]
GLAD = '{"mood": "glad"}'
IDS = {"openai": "batch_1", "anthropic": "msgbatch_1", "gemini": "batches/1"}
BATCH = {
    "openai": "/batches/batch_1",
    "anthropic": "/v1/messages/batches/msgbatch_1",
    "gemini": "/v1beta/batches/1",
}
RESULTS = {
    "openai": "/files/file-out/content",
    "anthropic": f"{BATCH['anthropic']}/results",
    "gemini": "/v1beta/files/out:download",
}

apis = pytest.mark.parametrize("name", APIS)


@pytest.fixture(autouse=True)
def prices():
    for name in APIS:  # a loopback server is in no table of prices
        register_model(f"{name}:*", input_price=1000, output_price=5000, cached_price=100)
    yield
    catalog._registrations.clear()


def use(server: BatchServer, act: Any) -> Any:
    """Do something with the batches of a new model, on an event loop of its own, as another process would."""

    async def done() -> Any:
        model = server.model()
        batches = batches_of(model)
        assert batches is not None
        try:
            return await act(batches)
        finally:
            await model.aclose()

    return asyncio.run(done())


def submitted(server: BatchServer) -> str:
    return use(server, lambda batches: batches.submit(ROWS))


def collected(server: BatchServer, keys: Iterable[str] = KEYS) -> list[tuple[str, BatchAnswer]]:
    async def collect(batches: batch.Batches) -> list[tuple[str, BatchAnswer]]:
        return [one async for one in batches.results(IDS[server_name(server)], list(keys))]

    return use(server, collect)


def server_name(server: BatchServer) -> str:
    return next(name for name, api in APIS.items() if api is server.api)


def whole(events: BatchAnswer) -> list[ModelEvent]:
    """The events that say what was answered, without those for the eye."""
    assert isinstance(events, list), events
    return [event for event in events if isinstance(event, PartFinished | ModelFinished)]


def failure_of(answer: BatchAnswer) -> ProviderError:
    assert isinstance(answer, ProviderError), answer
    assert KEY not in str(answer)
    return answer


# ---- the main road


@apis
def test_a_batch_is_sent_waited_for_and_collected_by_another_process(name):
    answered = APIS[name].answered
    with BatchServer(name, [answered(key, GLAD) for key in reversed(KEYS)], polls=1) as server:
        assert submitted(server) == IDS[name]
        states = [use(server, lambda batches: batches.state(IDS[name])) for _ in range(2)]
        answers = collected(server)
        server.stream = GLAD
        streamed = ask(server.model(), REQUEST)
        body = server.model().body(REQUEST)
    assert ("stream" in body) == (name != "gemini")
    body.pop("stream", None)
    if name == "anthropic":
        assert server.requests[0].headers["anthropic-beta"] == BINDING
    assert [server.api.bare(line) for line in server.sent] == [body] * 3
    assert [line.get("custom_id") or line["key"] for line in server.sent] == list(KEYS)
    assert [(state.done, state.total, state.finished) for state in states] == [(False, 3, 1), (True, 0, 0)]
    assert [key for key, _ in answers] == ["c", "b", "a"]
    for _, answer in answers:
        *parts, finished = whole(answer)
        *said, end = whole(streamed)
        assert parts == said == [PartFinished(0, Text(parts[0].part.text, parts[0].part.provider_data))]
        assert LABEL.read(parts[0].part.text) == {"mood": "glad"}
        assert finished == replace(end, usage=replace(end.usage, cost=finished.usage.cost))


@pytest.mark.parametrize(
    ("name", "cost"),
    # 600 new tokens at 1000 dollars a million, 400 of the cache at 100, 20 written at 5000
    [("openai", (0.6 + 0.04 + 0.1) / 2), ("anthropic", (0.6 + 0.04 + 0.1) / 2), ("gemini", (0.6 + 0.1) / 2 + 0.04)],
)
def test_an_answer_costs_half_but_what_gemini_reads_from_its_cache_is_not_cheaper(name, cost):
    with BatchServer(name, [APIS[name].answered("a", GLAD)]) as server:
        ((_, answer),) = collected(server, ["a"])
    finished = whole(answer)[-1]
    assert isinstance(finished, ModelFinished)
    assert finished.usage == Usage(1000, 400, 20, 0, 1, pytest.approx(cost))


@apis
def test_an_unknown_price_stays_unknown(name):
    catalog._registrations.clear()
    with BatchServer(name, [APIS[name].answered("a", GLAD)]) as server:
        ((_, answer),) = collected(server, ["a"])
    assert whole(answer)[-1].usage.cost is None


@apis
def test_a_batch_may_be_sent_by_what_runs_within_a_turn(name):
    with BatchServer(name) as server, TurnTraffic().exchange(REQUEST, 1):
        assert submitted(server) == IDS[name]


@apis
def test_a_row_that_was_refused_and_one_that_expired_have_their_errors(name):
    api = APIS[name]
    with BatchServer(name, [api.answered("a", GLAD), api.refused("b"), api.expired("c")]) as server:
        (_, good), (_, refused), (_, expired) = collected(server)
    assert isinstance(good, list)
    assert type(failure_of(refused)) is BadRequest
    assert "It says: Too hot for" in str(refused)
    assert isinstance(failure_of(expired), Unavailable)


@apis
def test_a_batch_is_canceled_and_then_gives_what_it_has(name):
    ending = {"openai": "cancelled", "anthropic": "ended", "gemini": "CANCELLED"}[name]
    with BatchServer(name, [APIS[name].answered("a", GLAD)], ending=ending) as server:
        use(server, lambda batches: batches.cancel(IDS[name]))
        assert use(server, lambda batches: batches.state(IDS[name])).done
        answers = dict(collected(server))
    assert server.asked[0].startswith("POST ")
    assert server.asked[0].endswith("cancel")
    assert isinstance(answers["a"], list)
    assert isinstance(failure_of(answers["b"]), Unavailable)


# ---- splitting


@pytest.mark.parametrize(
    ("most", "bytes_of", "sizes"),
    [
        (2, 100.0, [2, 2, 1]),
        (100, 3.5, [3, 2]),
        (100, 0.5, [1] * 5),  # larger than a batch: the provider is to say so
        (5, 5.0, [5]),
    ],
)
@apis
def test_requests_are_cut_into_batches_by_number_and_by_size(name, most, bytes_of, sizes, monkeypatch):
    batches = batches_of(APIS[name].make(APIS[name].model, api_key=KEY))
    assert batches is not None
    line = len(batches.line("k0", REQUEST)) + 1
    monkeypatch.setattr(type(batches), "limits", BatchLimits(most, int(bytes_of * line)))

    async def cut() -> list[list[str]]:
        return [[key for key, _ in piece] async for piece in split(batches, ((f"k{i}", REQUEST) for i in range(5)))]

    pieces = asyncio.run(cut())
    assert list(map(len, pieces)) == sizes
    assert list(chain(*pieces)) == [f"k{i}" for i in range(5)]


@pytest.mark.parametrize("keys", [["a", "a"], ["a b"], [""], ["é"], ["x" * 65]])
def test_keys_that_a_provider_would_refuse_are_the_callers_mistake(keys):
    with BatchServer("anthropic") as server, pytest.raises(ValueError, match="up to 64 letters"):
        use(server, lambda batches: batches.submit([(key, REQUEST) for key in keys]))
    assert server.asked == []


@pytest.mark.parametrize(
    "model", [ScriptedModel(["Hi."]), OpenAIChat("gpt-5.4", api_key=KEY), BatchedModel(ScriptedModel([]), [])]
)
def test_other_models_have_no_batches(model):
    assert batches_of(model) is None


def test_vertex_ai_has_no_batches_that_we_know(monkeypatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert batches_of(Gemini("gemini-3.5-flash")) is None
    assert batches_of(Gemini("gemini-3.5-flash", api_key=KEY)) is not None


# ---- what a server may do


def hostile(name: str) -> list[Any]:
    """Lines of results, of which only that of "a" is right, and comes once more with other words."""
    good = APIS[name].answered("a", GLAD)
    line = APIS[name].answered("b", GLAD)
    wrong = [{**line, name: junk} for name in line for junk in (None, 7, [], "x", {}, [[]])]
    broken = [one for one in wrong if "b" not in (one.get("custom_id"), one.get("key"))]
    deep = "[" * 100_000
    return [
        *("", "no JSON", "\udcff\udcfe", deep, "[1]", "null", '"a"', "1e999", json.dumps(good)[:-1]),
        *broken,
        APIS[name].answered("unknown", "?"),
        good,
        APIS[name].answered("a", "again"),
    ]


@apis
def test_lines_that_nobody_asked_for_or_nobody_can_read_spoil_only_themselves(name):
    with BatchServer(name, hostile(name)) as server:
        answers = dict(collected(server))
    assert whole(answers["a"])[0].part.text == GLAD
    for key in ("b", "c"):
        assert str(failure_of(answers[key])).endswith("the results of its batch do not name it. Ask it again.")


@pytest.mark.slow
@apis
def test_a_line_of_the_wrong_shape_is_an_error_of_its_row(name):
    line = APIS[name].answered("b", GLAD)
    keyed = {key for key in line if key in ("custom_id", "key")}
    for field in line.keys() - keyed - {"id"}:
        for junk in (None, 7, [], "x", {}, {"type": "x", "body": 7, "message": [], "status_code": "x"}):
            with BatchServer(name, [{**line, field: junk}]) as server:
                ((_, answer),) = collected(server, ["b"])
            no_error = field == "error" and (not junk or not isinstance(junk, dict))
            assert isinstance(answer, list if no_error else ProviderError)


@pytest.mark.slow
@apis
def test_of_spoiled_lines_each_row_has_a_whole_answer_or_an_error(name):
    lines = [APIS[name].answered("a", GLAD), APIS[name].refused("b"), APIS[name].expired("c")]
    with BatchServer(name) as server:

        @settings(max_examples=20)
        @given(spoiled(lines))
        def check(spoiled_lines: list[Any]) -> None:
            server.lines = list(map(json.dumps, spoiled_lines))
            answers = collected(server)
            assert sorted(key for key, _ in answers) == list(KEYS)
            for _, answer in answers:
                if isinstance(answer, list):
                    check_order(answer, whole=True)

        check()


def test_a_line_without_end_is_lost_and_those_after_it_are_not(monkeypatch):
    monkeypatch.setattr(batch, "LONGEST_EVENT", 20_000)
    huge = APIS["openai"].answered("a", "x" * 300_000)
    with BatchServer("openai", [huge, APIS["openai"].answered("b", GLAD)]) as server:
        answers = dict(collected(server))
    assert "do not name it" in str(failure_of(answers["a"]))
    assert isinstance(answers["b"], list)


def test_results_without_end_are_broken_off(monkeypatch):
    monkeypatch.setattr(batch, "LONGEST_RESPONSE", 50_000)
    monkeypatch.setattr(batch, "_BYTES_OF_RESULT", 10)
    lines = [APIS["openai"].answered("?", "x")] * 1000
    with BatchServer("openai", lines) as server, pytest.raises(StreamBroken, match="results of over") as failure:
        collected(server)
    assert not failure.value.retryable


def test_results_may_be_longer_than_any_other_response(monkeypatch):
    monkeypatch.setattr("agentmagic.providers.clients.LONGEST_RESPONSE", 50_000)
    lines = [APIS["openai"].answered("?", "x")] * 1000 + [APIS["openai"].answered("a", GLAD)]
    with BatchServer("openai", lines) as server:
        ((_, answer),) = collected(server, ["a"])
    assert isinstance(answer, list)


@pytest.mark.slow
@apis
def test_ids_that_lead_elsewhere_are_not_used(name):
    strange = ["../models", "", 7, None, ["x"], "a b", "x" * 500, "?a=1", "a/b/c", "http://x"]
    fields = {"openai": "output_file_id", "anthropic": "id", "gemini": "responsesFile"}
    for one in strange:
        told = {fields[name]: one} if name != "gemini" else {"response": {fields[name]: one}}
        with BatchServer(name) as server:
            server.batch = told
            assert "do not name it" in str(dict(collected(server))["a"])
        assert server.asked == [f"GET {BATCH[name]}"]
    for one in strange[:1] + strange[5:]:
        with BatchServer(name) as server, pytest.raises(BadRequest, match="is not the id of a batch"):
            use(server, lambda batches, one=one: batches.state(one))
        assert server.asked == []


@pytest.mark.parametrize("path", ["POST /files", "POST /batches"])
@pytest.mark.parametrize("said", ["{}", "[]", '{"id": "../x"}', '{"id": 7}'])
def test_a_server_that_gives_no_id_is_named(path, said):
    with BatchServer("openai") as server:
        server.faults[path] = (200, said)
        with pytest.raises(BadRequest, match="no id that can be used"):
            submitted(server)


@apis
@pytest.mark.parametrize("said", ["{}", "[]", '{"status": [], "processing_status": 7, "metadata": "x", "done": 1}'])
def test_a_state_that_nobody_knows_is_not_the_end(name, said):
    with BatchServer(name) as server:
        server.faults[f"GET {BATCH[name]}"] = (200, said)
        assert not use(server, lambda batches: batches.state(IDS[name])).done
        with pytest.raises(Unavailable, match="is not done"):
            collected(server)


# ---- what may fail


@apis
def test_a_running_batch_is_not_collected(name):
    with BatchServer(name, polls=1) as server, pytest.raises(Unavailable, match=r"not done \((in_progress|running)\)"):
        collected(server)


@pytest.mark.parametrize(
    ("name", "ending", "fields", "error", "words"),
    [
        (
            "openai",
            "failed",
            {"errors": {"data": [{"code": "invalid_json_line", "message": "Line 3.", "line": 3}]}},
            BadRequest,
            "It says: Line 3.",
        ),
        (
            "openai",
            "failed",
            {"errors": {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit."}]}},
            RateLimited,
            "It says: Enqueued token limit.",
        ),
        ("openai", "failed", {"errors": "?"}, BadRequest, "refused the request"),
        ("openai", "expired", {}, Unavailable, "its batch expired first. Ask it again."),
        ("openai", "cancelled", {}, Unavailable, "its batch was canceled first. Ask it again."),
        ("gemini", "EXPIRED", {"error": {"code": 4}}, Unavailable, "its batch expired first. Ask it again."),
        ("gemini", "FAILED", {"error": {"code": 8, "message": "Quota."}}, RateLimited, "It says: Quota."),
        ("gemini", "FAILED", {"error": {"code": 3, "message": "Bad."}}, BadRequest, "It says: Bad."),
    ],
)
def test_a_batch_that_failed_says_so_for_each_row(name, ending, fields, error, words):
    with BatchServer(name, ending=ending) as server:
        server.batch = {"output_file_id": None, **fields}
        assert use(server, lambda batches: batches.state(IDS[name])).done
        answers = collected(server)
    assert [key for key, _ in answers] == list(KEYS)
    for _, answer in answers:
        assert type(failure_of(answer)) is error
        assert words in str(answer)


@apis
@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_batches_and_a_forgotten_batch_are_named(name, status):
    first = {"openai": "/files", "anthropic": "/v1/messages/batches", "gemini": "/upload/v1beta/files"}[name]
    with BatchServer(name) as server:
        server.faults[f"POST {first}"] = (status, '{"error": {"message": "Not found"}}')
        with pytest.raises(BadRequest, match="it may have no batch API"):
            submitted(server)
        server.faults[f"GET {BATCH[name]}"] = (status, '{"error": {"message": "Not found"}}')
        for act in (lambda: use(server, lambda batches: batches.state(IDS[name])), lambda: collected(server)):
            with pytest.raises(BadRequest, match=f"does not know the batch {IDS[name]}"):
                act()
        del server.faults[f"GET {BATCH[name]}"]
        server.faults[f"GET {RESULTS[name]}"] = (status, "")
        with pytest.raises(BadRequest, match="does not know the batch"):
            collected(server)


@apis
@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthenticationFailed), (429, RateLimited), (503, Unavailable), (400, BadRequest)]
)
def test_refusals_are_those_of_the_provider_and_tell_no_key(name, status, error):
    said = json.dumps({"error": {"message": f"No: {KEY}", "type": "x"}})
    with BatchServer(name) as server:
        server.faults[f"GET {BATCH[name]}"] = (status, said)
        with pytest.raises(error) as failure:
            use(server, lambda batches: batches.state(IDS[name]))
    assert KEY not in str(failure.value)


@apis
def test_a_poll_that_is_no_json_or_reaches_no_server_may_be_tried_again(name):
    with BatchServer(name) as server:
        server.faults[f"GET {BATCH[name]}"] = (200, "<html>")
        with pytest.raises(Unavailable, match="cannot be read"):
            use(server, lambda batches: batches.state(IDS[name]))
    with pytest.raises(Unavailable):
        use(server, lambda batches: batches.state(IDS[name]))


def test_an_answer_that_pauses_cannot_go_on_in_a_batch():
    line = APIS["anthropic"].answered("a", GLAD)
    line["result"]["message"]["stop_reason"] = "pause_turn"
    with BatchServer("anthropic", [line]) as server:
        ((_, answer),) = collected(server, ["a"])
    assert "cannot go on" in str(failure_of(answer))


# ---- a turn with an answer of a batch

ANSWER: list[ModelEvent] = [
    PartStarted(0, "text"),
    PartFinished(0, Text("glad")),
    ModelFinished(Usage(1000, 0, 20, 0, 1, 0.35), "completed"),
]


def test_a_turn_plays_an_answer_of_a_batch_and_is_repaired_live_each_at_its_price(tmp_path):
    with BatchServer("openai") as server:
        server.stream = GLAD
        model = server.model()
        for options in ({}, {"cassette": tmp_path / "t.cassette.yaml"}):
            collected = BatchedModel(model, ANSWER)
            assert (collected.name, collected.base_url) == (model.name, server.url)
            session = Session(Agent(collected, output=LABEL.schema), **options)
            result = session.ask("Which mood?")
            session.close()
            assert result.value == {"mood": "glad"}
            assert result.usage.requests == 2
            assert result.usage.cost == pytest.approx(0.35 + 0.74)
        assert server.asked == ["POST /responses"] * 2


def test_a_model_of_a_batch_takes_the_settings_of_the_model():
    model, asked = Anthropic("claude-sonnet-5-5", api_key=KEY), ModelSettings(reasoning="low", seed=1)
    assert set(BatchedModel(model, ANSWER).honours(asked)) == set(model.honours(asked)) == {"reasoning"}
