"""Checks of lesson 3: words and types that guide a model."""

import re

from agentmagic import Agent, Session
from agentmagic.testing import accepts, check, exercise, expect

from word_model import WordModel, choices_in, words_of

from . import SAME, prompt_of, raised

ABOUT = {"account_a": "How many books does Ben have?", "account_b": "Does Ben have to pay?"}
BORROWED, OWED = "Which books did Ada borrow?", "What does our member Ada have to pay?"
TASK = "Please reserve the blue room for 3 hours."


def asked(tools, prompt):
    """Ask a WordModel with these tools, where no one sees it."""
    session = Session(Agent(WordModel(), tools=tools))
    session.ask(prompt, replay="live", attended=False)
    return session


@exercise(
    "1",
    "Which words does a person use who wants to know this? Borrow, books, loans; pay, owe, fees. Write them down.",
    'account_a: """List the books that a member has borrowed.""" account_b: """Look up what a member owes: the fees to pay."""',
)
def check_1(borrowed, owed, account_a, account_b):
    """Check that these questions, and others, find their tools."""
    same = (prompt_of(borrowed), prompt_of(owed)) == (BORROWED, OWED)
    expect(same, "The questions were changed.", "Write the docstrings. The questions are those of the users, as they ask.")
    code = (raised(account_a, member="Ben")[0], raised(account_b, member="Ben")[0])
    expect(code == ("Ben has 3 books.", "Ben owes 2.40 euros."), "The functions do something else now.", SAME)
    for function in (account_a, account_b):
        words = re.sub(r"(?s)Example:.*", "", function.__doc__ or "")
        hint = "A description says what the tool does, in a sentence. The model sees many questions, and not only this one."
        copied = any(words_of(words) >= words_of(question) for question in (BORROWED, OWED)) or "Ada" in words
        expect(not copied, f"The description of {function.__name__} repeats the question.", hint)
        expect("?" not in words, f"The description of {function.__name__} is a question.", hint)
        expect(len(words.split()) >= 4, f"The description of {function.__name__} is no sentence.", hint)
    hint = "What does account_a return? Say that in words that are in the question."
    check(borrowed).hint(hint).called("account_a", member="Ada")
    hint = "What does account_b return? Say that in words that are in the question, and that are not in the other docstring."
    check(owed).hint(hint).called("account_b", member="Ada")
    for name, question in ABOUT.items():
        session = asked([account_b, account_a], question)
        hint = "Each description should have the words of its own questions, and none of the other's."
        done = [event.call.name for event in session.last.events if event.type == "tool_started"]
        expect(done == [name], f"Another question about the same, in other words, called {done or 'no tool'}.", hint)
    session = asked([account_a, account_b], "How is the weather in Oslo?")
    hint = "A description with many words finds questions that it should not find."
    expect(not session.tool_calls, "A question about the weather called one of the tools.", hint)


@exercise(
    "2",
    'Literal["blue", "green"] lists the rooms; a count is an int.',
    'def reserve(room: Literal["blue", "green"], hours: int) -> str:',
)
def check_2(session, reserve):
    """Check the types, and the call for another room and another time."""
    expect(prompt_of(session) == TASK, "The question is another one.", SAME)
    hint = "Which values may room have? There is a type that lists them. And of which type is a count?"
    check(session).hint(hint).called("reserve", room="blue", hours=3)
    hint = "There are two rooms, the blue and the green one. The type names them both, and no other."
    (definition,) = session.tools
    rooms = choices_in(definition.parameters["properties"]["room"], definition.parameters)
    expect(sorted(map(str, rooms)) == ["blue", "green"], f"The list says that room is one of {rooms}.", hint)
    for room in ("red", "", None):
        expect(not accepts(session, "reserve", room=room, hours=3), f"{room!r} is taken for a room.", hint)
    for hours in (1, 2, 10, 24):
        hint = "A list of some numbers forbids all others. A count has a type of its own."
        expect(accepts(session, "reserve", room="blue", hours=hours), "hours cannot be every count.", hint)
    for hours in ("three", "3", None):
        hint = "Which type has whole numbers, and no texts?"
        expect(not accepts(session, "reserve", room="blue", hours=hours), f"{hours!r} is taken for a count.", hint)
    other = asked([reserve], "Please reserve the green room for 2 hours.")
    hint = "The function gets what the model asked for. It should use its parameters, as it did."
    check(other).hint(hint).called("reserve", room="green", hours=2)
    said = other.last.final_text
    expect("green" in said and "2" in said and "blue" not in said, f"Green for 2 hours was asked for: {said!r:.100}", hint)
