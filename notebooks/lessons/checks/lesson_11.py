"""Checks of lesson 11: forms that refuse nonsense, and that can say that something is not known."""

import json
from datetime import date

from agentmagic import Agent, InvalidOutput, ScriptedModel, Session
from agentmagic.testing import exercise, expect
from pydantic import TypeAdapter

from . import SAME, prompt_of


def read(form, **answer):
    """Return the fields that a form makes of an answer, or None if the answer is refused."""
    session = Session(Agent(ScriptedModel([json.dumps(answer)] * 3), output=form))
    try:
        return fields(form, session.ask("An answer, please.", replay="live", attended=False).value)
    except InvalidOutput:
        return None


def fields(form, value):
    """Return the fields of a value as a dictionary, whether the form is a model, a data class or a dictionary."""
    return value and TypeAdapter(form).dump_python(value)


def word(value):
    """Return a value, or that of a member of an Enum."""
    return getattr(value, "value", value)


@exercise(
    "1",
    'room is one of two words: Literal[...]. hours is a whole number with a smallest and a largest one: Annotated[int, Field(...)].',
    'room: Literal["blue", "green"] and hours: Annotated[int, Field(ge=1, le=8)]',
)
def check_1(session, form):
    """Check the value, and what the form makes of other answers."""
    expect(prompt_of(session) == "The blue room, please, from 2 to 5.", "The question is another one.", SAME)
    value, asked = fields(form, session.last.value), session.last.usage.requests
    hint = "Which rooms are there? A type can list them. And of which type is a number of hours?"
    expect(value is None or value.get("room") != "the big one", "The first answer, which is nonsense, was taken.", hint)
    hint = "12 hours are too many. Which types have a largest value?"
    expect(value is None or value.get("hours") != 12, "The second answer, 12 hours, was taken.", hint)
    expect(value is not None, "No answer fits the form.", "The blue room for 3 hours is an answer that has to fit.")
    expect(asked == 3, f"The model was asked {asked} times.", "Leave the script as it is: the third answer is the right one.")
    for room, hours in (("green", 1), ("blue", 8), ("green", 5)):
        got = read(form, room=room, hours=hours)
        hint = "Both rooms can be had, for 1, for 8, and for all hours between."
        expect(got is not None, "The form refuses another answer, which was right.", hint)
        expect(got.keys() == {"room", "hours"}, "The form has other fields now.", SAME)
        same = (word(got["room"]), word(got["hours"])) == (room, hours)
        expect(same, "The form makes something else of another answer.", "The value has to be what was answered.")
    for room in ("red", "", "the blue room", "Blue", "blue room", "evergreen", "yellow", "the big one", None):
        hint = "Only the two words are rooms. A text of any kind is not."
        expect(read(form, room=room, hours=3) is None, "The form takes a room that there is not.", hint)
    for hours in (0, 9, -3, 2.5, True, None, "a while"):
        hint = "Not less than 1 hour, not more than 8, and whole hours only: ge is at least, le is at most."
        expect(read(form, room="blue", hours=hours) is None, "The form takes a number of hours that is not allowed.", hint)
    hint = "A field without a value of its own has to be in the answer."
    expect(read(form, room="blue") is None, "The form takes an answer without hours.", hint)
    expect(read(form, hours=3) is None, "The form takes an answer without a room.", hint)


@exercise(
    "2",
    "date | None takes both. A field without a value of its own has to be in the answer.",
    "due: date | None",
)
def check_2(session, form):
    """Check the value, and what the form makes of other answers."""
    told = "Ada writes: I will bring the book back when I can."
    expect(prompt_of(session) == told, "The question is another one.", SAME)
    value = fields(form, session.last.value)
    expect(value is not None, "There is no value.", "null, for a day that is not known, has to fit. It is None in Python.")
    hint = "The letter names no day. The first answer says so, with null. Does the form take it?"
    expect(value.keys() == {"member", "due"}, "The form has other fields now.", SAME)
    expect(value["due"] is None and session.last.usage.requests == 1, f"The model made up a day: {value['due']!s:.40}", hint)
    for day in (date(2026, 2, 28), date(1999, 12, 31), date(2126, 1, 1)):
        got = read(form, member="Ben", due=str(day))
        hint = "A letter may name a day. null is only for those that do not."
        expect(got is not None, "The form refuses another answer, with a day.", hint)
        hint = "A program wants to compare days. The type date makes one of the text."
        expect(got["due"] == day, f"The day is a {type(got['due']).__name__}.", hint)
    expect(got["member"] == "Ben", "The form makes something else of another answer.", "The value has to be what was answered.")
    for due in ("soon", "unknown", "2026-02-30", "2026-02-28T10:00:00", "", True, 5):
        hint = "Not every text is a day of the calendar. Which type knows the calendar?"
        expect(read(form, member="Ben", due=due) is None, "The form takes a day that is none.", hint)
    got = read(form, member="Ben")
    hint = "What does a letter say that names no day? A default may be None, and no day."
    expect(got is None or got["due"] is None, "The form makes up a day for an answer without one.", hint)
    hint = "The member has to be named. Leave its type as it was."
    expect(read(form, member=None, due=None) is None, "The form takes a letter without a member.", hint)
    expect(read(form, due=None) is None, "The form takes a letter without a member.", hint)
