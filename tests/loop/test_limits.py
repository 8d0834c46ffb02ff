"""What bounds a turn, and what sends it on: budgets, hooks, forms, repeats, messages that were cut."""

import pytest
from pydantic import BaseModel

from agentmagic import Agent, Session
from agentmagic.errors import EmptyAnswer, InvalidOutput, MalformedCall, UsageError
from agentmagic.events import PartFinished, PartStarted, PromptAdded
from agentmagic.loop.budgets import Meter
from agentmagic.messages import HostedCall, HostedResult, Media, Resource, Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.testing import invalid_history
from tests.turns import calls, kinds, play, scripted, texts


class City(BaseModel):
    name: str
    people: int


class Said:
    """A model that says the parts it is given, a list a request, and ends each response as told."""

    name = "testing:said"

    def __init__(self, *responses):
        self.requests = []
        self._responses = list(responses)

    async def stream(self, request):
        self.requests.append(request)
        *parts, finished = self._responses.pop(0)
        for index, part in enumerate(parts):
            yield PartStarted(index, part.type)
            yield PartFinished(index, part)
        if isinstance(finished, Exception):
            raise finished
        yield finished

    async def aclose(self):
        pass


DONE = ModelFinished(Usage(10, 0, 5), "stop")
CUT = ModelFinished(Usage(10, 0, 5), "length", cut=True)
UNKNOWN = ModelFinished(Usage(10, 0, 5), "weird", unknown=True)


def notices(result):
    return [event.text for event in result.events if event.type == "notice"]


# -- silence, and what cannot be read --------------------------------------------------------------


def test_an_empty_answer_is_asked_for_again_and_leaves_no_trace_but_its_cost():
    model = Said([DONE], [Text(" \n"), DONE], [Text("Here."), DONE])
    result = Session(Agent(model)).ask("a prompt")
    assert result.final_text == "Here."
    assert len(result.history_delta) == 2
    assert model.requests[1].messages[-1].text == "Your last message was empty. Answer in words, or call a tool."
    assert "step_retried" in kinds(result.events)
    assert (result.usage.requests, result.usage.input_tokens) == (3, 30)


@pytest.mark.parametrize(
    ("silence", "requests", "words"), [(DONE, 3, "answered nothing"), (CUT, 1, "used up its limit of output")]
)
def test_a_model_that_stays_silent_is_asked_three_times_in_all_unless_it_used_up_its_output(silence, requests, words):
    model = Said(*[[silence]] * 3)
    session = Session(Agent(model))
    with pytest.raises(EmptyAnswer, match=words) as raised:
        session.ask("a prompt")
    assert len(model.requests) == requests
    assert raised.value.result.usage.input_tokens == 10 * requests
    assert invalid_history(session.messages) is None


SEARCH = HostedCall("h1", "web_search", {}, "Gemini")
FOUND = HostedResult("h1", "web_search", (Resource("https://x.org/", "A page"),))
DRAWN = HostedResult("h1", "code_execution", (Media("image/png", b"\x89PNG"),))


@pytest.mark.parametrize(("parts", "requests"), [([SEARCH, FOUND], 2), ([SEARCH, DRAWN], 1), ([DRAWN], 1)])
def test_a_picture_that_the_provider_drew_is_an_answer_and_what_it_only_searched_is_none(parts, requests):
    model = Said([*parts, DONE], [Text("Here."), DONE])
    Session(Agent(model)).ask("a prompt")
    assert len(model.requests) == requests


def test_a_call_that_cannot_be_read_is_asked_for_again_with_a_word_on_it():
    model = Said([MalformedCall("garbled")], [MalformedCall("garbled")], [Text("Here."), DONE])
    result = Session(Agent(model)).ask("a prompt")
    assert result.final_text == "Here."
    assert "could not be read" in model.requests[2].messages[-1].text
    assert [message.role for message in result.history_delta] == ["user", "assistant"]


# -- repeats ---------------------------------------------------------------------------------------


def look(page: int) -> str:
    """Read a page."""
    return f"page {page} is blank"


ONE, TWO = ("look", {"page": 1}), ("look", {"page": 2})


@pytest.mark.parametrize(
    ("steps", "options", "noted"),
    [
        ([calls(ONE)] * 3 + [calls(TWO), calls(ONE)], {}, [0, 0, 3, 0, 0]),
        ([calls(ONE, TWO)] * 2, {"max_repeats": 2}, [0, 0, 2, 2]),
    ],
    ids=["one call", "a pair of calls"],
)
def test_the_same_calls_in_a_row_are_told_to_the_model(steps, options, noted):
    result = play(*steps, "Nothing.", tools=[look], **options)
    for text, times in zip(texts(result), noted, strict=True):
        assert text.partition(" times in a row")[0].endswith(f"was made {times}") == bool(times)


# -- the hook --------------------------------------------------------------------------------------


def test_the_hook_sends_the_model_on_up_to_three_times_and_its_prompt_is_kept():
    answers = []

    def before_finish(answer):
        answers.append(answer.text)
        return "One task is open." if len(answers) == 1 else None

    result = play("Done?", "Done.", before_finish=before_finish)
    assert answers == ["Done?", "Done."]
    assert [message.text for message in result.history_delta] == ["a prompt", "Done?", "One task is open.", "Done."]
    assert result.final_text == "Done."
    assert sum(isinstance(event, PromptAdded) for event in result.events) == 1

    async def for_ever(_answer):
        return "Go on."

    result = play(*"abcdef", before_finish=for_ever)
    assert (result.final_text, result.stop_reason) == ("d", "answer")


@pytest.mark.parametrize(
    ("hook", "words"), [(lambda _answer: 7, "returned 7"), (lambda _answer: {}["x"], "failed: KeyError")]
)
def test_a_hook_that_is_wrong_fails_the_turn_and_keeps_the_answer(hook, words):
    session = scripted("The answer.", before_finish=hook)
    with pytest.raises(UsageError, match=words) as raised:
        session.ask("a prompt")
    assert raised.value.result.final_text == "The answer."
    assert session.messages[-1].text == "The answer."


# -- forms -----------------------------------------------------------------------------------------

DELFT = '{"name": "Delft", "people": 106000}'


def test_an_answer_of_another_form_is_sent_back_to_be_mended_and_comes_as_its_value():
    session = scripted("It is Delft.", '{"name": "Delft"}', DELFT)
    result = session.ask("Which city?", output=City)
    assert result.value == City(name="Delft", people=106000)
    assert "it is not JSON" in result.history_delta[2].text
    assert "required property" in result.history_delta[4].text
    request = session.agent.model.requests[0]
    assert request.output.name == "City"
    assert "JSON Schema" in request.instructions


@pytest.mark.parametrize(
    ("text", "end", "words"),
    [
        ('{"name": "De', CUT, r"The value was cut off at the model's limit of output. Raise max_output_tokens"),
        ("It is De", CUT, "The value was cut off"),
        ('{"name": "De', UNKNOWN, "does not know, 'weird'"),
        (DELFT, UNKNOWN, "does not know, 'weird'"),
    ],
)
def test_a_value_that_is_not_whole_is_not_asked_for_again_and_is_called_cut(text, end, words):
    model = Said(*[[Text(text), end]] * 3)
    with pytest.raises(InvalidOutput, match=words) as raised:
        Session(Agent(model)).ask("Which city?", output=City)
    assert len(model.requests) == 1
    assert raised.value.result.final_text == text
    assert notices(raised.value.result) == []


def test_a_value_is_whole_that_reads_although_it_ends_at_the_limit():
    result = Session(Agent(Said([Text(DELFT), CUT]))).ask("Which city?", output=City)
    assert result.value == City(name="Delft", people=106000)
    assert [words.partition(".")[0] for words in notices(result)] == [
        "The answer was cut off at the model's limit of output"
    ]


def test_the_closing_answer_is_called_cut_too():
    model = Said([ToolCall("a", "look", {"page": 1}), DONE], [Text('{"name": "De'), CUT])
    with pytest.raises(InvalidOutput, match="The value was cut off"):
        Session(Agent(model, tools=[look], max_iterations=1)).ask("Which city?", output=City)


@pytest.mark.parametrize(("end", "expected"), [(DONE, []), (UNKNOWN, ["weird"]), (CUT, ["was cut off"])])
def test_the_notice_of_an_answer_that_may_be_half_names_the_reason_and_a_step_with_calls_has_none(end, expected):
    model = Said([ToolCall("a", "look", {"page": 1}), UNKNOWN], [Text("Half of it"), end])
    result = Session(Agent(model, tools=[look])).ask("a prompt")
    assert result.final_text == "Half of it"
    assert [part.text for part in result.history_delta[2].parts] == ["page 1 is blank"]
    found = notices(result)
    assert len(found) == len(expected)
    assert all(word in said for word, said in zip(expected, found, strict=True))


def test_a_form_that_is_missed_three_times_is_an_error_and_the_closing_answer_has_the_form_too():
    session = scripted("a", "b", "c", output=City)
    with pytest.raises(InvalidOutput, match="it is not JSON"):
        session.ask("Which city?")
    assert invalid_history(session.messages) is None
    result = play(calls(("look", {"page": 1})), DELFT, tools=[look], output=City, max_iterations=1)
    assert (result.stop_reason, result.value.name) == ("limit", "Delft")


# -- budgets ---------------------------------------------------------------------------------------


def test_a_cap_says_what_was_spent_also_before_or_that_the_cost_is_unknown():
    def why(of, *usages, **limits):
        meter = Meter(of, **limits)
        for usage in usages:
            meter.spend(usage)
        return str(meter.why_refused())

    assert why("turn", Usage(10**9, 0, 10**9, cost=None)) == "None"
    earlier = {"max_tokens": 100, "spent": Usage(40, 0, 20)}
    assert why("session", Usage(20, 0, 19), **earlier) == "None"
    assert why("session", Usage(20, 0, 20), **earlier).endswith(
        "No further request was sent; raise the limit to go on."
    )
    assert why("turn", Usage(cost=0.49), max_cost=0.5) == "None"
    assert "The turn has cost $0.5000; max_cost is $0.5000." in why("turn", Usage(cost=0.5), max_cost=0.5)
    assert "unknown, so max_cost cannot be kept" in why("turn", Usage(cost=None), max_cost=5)
    assert "unknown" in why("session", Usage(cost=0.0), max_cost=5, spent=Usage(cost=None))


def looking(times):
    steps = [[ToolCall(f"c{number}", "look", {"page": number}), DONE] for number in range(times)]
    return Said(*steps, [Text("Nothing."), DONE])


@pytest.mark.parametrize(
    ("options", "requests"), [({"max_tokens": 30}, 2), ({"max_tokens": 15, "max_iterations": 1}, 1)]
)
def test_a_turn_ends_before_the_request_also_the_closing_one_that_its_tokens_do_not_allow(options, requests):
    model = looking(9)
    result = Session(Agent(model, tools=[look], **options)).ask("a prompt")
    assert result.stop_reason == "budget"
    assert len(model.requests) == requests
    assert f"The turn has taken {15 * requests} tokens; max_tokens is {options['max_tokens']}." in result.error
    assert invalid_history(result.history_delta) is None


def test_the_caps_of_a_session_count_all_its_turns_the_undone_ones_and_in_a_fork_those_before_it_too():
    model = looking(0)
    model._responses *= 3
    session = Session(Agent(model), max_tokens=30)
    assert session.ask("one").stop_reason == "answer"
    session.undo()
    assert session.ask("two").stop_reason == "answer"
    assert session.fork().ask("three").stop_reason == "answer"
    result = session.ask("three")
    assert result.stop_reason == "budget"
    assert "The session has taken 30 tokens" in result.error
    tighter = Session(Agent(looking(0)), max_tokens=15)
    tighter.ask("one")
    assert tighter.fork().ask("two").stop_reason == "budget"


@pytest.mark.parametrize("caps", [{"max_cost": 0}, {"max_tokens": True}])
def test_a_cap_that_cannot_be_is_refused_at_once(caps):
    for make in (Agent, lambda _model, **caps: Session(Agent("scripted:x"), **caps)):
        with pytest.raises(UsageError, match="above 0, or None for no limit"):
            make("scripted:x", **caps)


def test_tokens_that_a_server_does_not_count_are_guessed_for_the_cap():
    silent = ModelFinished(Usage(), "stop")
    steps = [[ToolCall(f"c{number}", "look", {"page": number}), silent] for number in range(9)]
    result = Session(Agent(Said(*steps), tools=[look], max_tokens=20)).ask("a prompt")
    assert result.stop_reason == "budget"
    assert result.usage.input_tokens == 0
