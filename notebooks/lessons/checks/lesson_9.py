"""Checks of lesson 9: a test of an agent, and a recording that plays again."""

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.testing import check, exercise, expect

from . import raised

ASKS_OSLO = {"calls": [{"name": "temperature", "arguments": {"city": "Oslo"}}]}
OTHERS = {
    "did well in other words": (True, [ASKS_OSLO, "In Oslo there are 12 degrees."]),
    "did well and said little": (True, [ASKS_OSLO, "12 degrees."]),
    "looked it up and answered 20 degrees": (False, [ASKS_OSLO, "It is 20 degrees in Oslo."]),
    "looked it up and answered nothing": (False, [ASKS_OSLO, "I cannot say that."]),
    "looked up another capital": (False, [{"calls": [{"name": "temperature", "arguments": {"city": "Rome"}}]}, "It is 12 degrees in Oslo."]),
    "called another tool": (False, [{"calls": [{"name": "humidity", "arguments": {"city": "Oslo"}}]}, "It is 12 degrees in Oslo."]),
}
HINT = "Look at the call and its argument, and at the answer. Checks can be chained with a dot."


def temperature(city: str) -> str:
    """Read the thermometer of a city."""
    return f"It is 12 degrees in {city}."


def humidity(city: str) -> str:
    """Read the hygrometer of a city."""
    return f"It is 60 percent in {city}."


@exercise(
    "1",
    'check(session).called("...", city="...") looks at the call and its arguments. Checks can be chained with a dot.',
    'check(session).called("temperature", city="Oslo").answered("12 degrees")',
)
def check_1(test_temperature, good, liar, astray):
    """Check the test with the three models of the notebook, and with others."""
    hint = "A test passes if it raises nothing, and fails with an AssertionError. Which one does your test raise?"
    expect(_passes(test_temperature, good, hint), "The test fails although the agent did well.", hint)
    hint = "The answer of this model is right by chance. What has it not done?"
    expect(not _passes(test_temperature, liar, hint), "The test is content with the model that made its answer up.", hint)
    hint = "This model has called the tool. With which argument?"
    expect(not _passes(test_temperature, astray, hint), "The test is content with the model that asked about Paris.", hint)
    for what, (right, steps) in OTHERS.items():
        session = Session(Agent(ScriptedModel(steps), tools=[temperature, humidity]))
        session.ask("How warm is it in Oslo?", replay="live", attended=False)
        passed = _passes(test_temperature, session, HINT)
        expect(passed == right, f"The test {'fails for' if right else 'is content with'} a model that {what}.", HINT)


def _passes(test, session, hint):
    """Return whether a test is content with a session. Raises CheckFailed if it raises no AssertionError."""
    _, error = raised(test, session)
    expect(error is None or isinstance(error, AssertionError), f"The test has an error of its own: {error!r:.150}", hint)
    return error is None


@exercise(
    "2",
    "The error shows the recorded description and today's. The docstring is what the model reads of a tool.",
    '"""Read the thermometer of a city.""" is the first line of the recorded docstring; the example stays.',
)
def check_2(session, tool):
    """Check that the recording plays, and that the tool is the recorded one."""
    hint = "The replay stops at the first difference. Read the error: what is recorded, and what is there now?"
    check(session).hint(hint).called("temperature", city="Oslo").answered("12")
    (definition,) = [one for one in session.tools if one.name == "temperature"]
    same = definition.description == "Read the thermometer of a city."
    expect(same, f"The description is {definition.description!r:.100}", "Put back what was recorded, word for word.")
    hint = "A replay does not run the function, but your readers will. Leave what it returns as it was."
    value, error = raised(tool, city="Bergen")
    expect(value == "It is 12 degrees in Bergen.", f"For another city, the tool returns {value if error is None else error!r:.100}", hint)
