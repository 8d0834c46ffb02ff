"""Checks of lesson 1: a tool for a price, and the steps of a model."""

import re

from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of, results_of

DISHES = {
    "Monday": ("Lentil soup", 3.20),
    "Tuesday": ("Pasta with pesto", 4.10),
    "Wednesday": ("Vegetable curry", 4.50),
    "Thursday": ("Potato gratin", 4.30),
    "Friday": ("Fish with rice", 5.40),
}


@exercise(
    "1",
    "Look the price up in MENU[day][1]. Take 1.50 off if student is true, and return the full price if it is not.",
    'def price(day: str, student: bool) -> float: and in it "return MENU[day][1] - 1.50 if student else MENU[day][1]".',
)
def check_1(session, price):
    """Check that the price fits the day and the customer."""
    hint = "The parameters of the function are the parameters on the list. Which one does the model name, and which is missing?"
    check(session).hint(hint).called("price", day="Friday", student=True)
    (definition,) = [one for one in session.tools if one.name == "price"]
    kind = definition.parameters["properties"].get("student", {}).get("type")
    hint = "The model is told the type of each parameter. Is a customer a student: which type has an answer of yes or no?"
    expect(kind == "boolean", f"The list says that student is of the type {kind!r}.", hint)
    for day in ("Friday", "Monday", "Wednesday", "Thursday"):
        for student in (True, False):
            full = DISHES[day][1]
            expected, paid = full - 1.50 * student, price(day, student)
            number = isinstance(paid, int | float) and not isinstance(paid, bool)
            expect(number, f"price returns {paid!r}, which is no number.", "The tool returns a price, with return.")
            hint = "Who pays less, and by how much? Try the function with both values of student, in a new cell."
            if day != "Friday":
                hint = "The price differs from day to day. Does your function look at day?"
            words = f"The call runs, but {'a student' if student else 'who is no student'} pays another price on {'some other day' if day != 'Friday' else 'Friday'}."
            expect(abs(paid - expected) < 0.005, words, hint)
    (result,) = results_of(session, "price")
    read = re.fullmatch(r"3\.9\d*|3\.8999\d*", result.text)
    expect(read, f"The model read {result.text!r} of its call.", "Run the cell of the exercise again, then the check.")


@exercise(
    "2",
    'A step that asks for a call is {"calls": [{"name": "menu", "arguments": {"day": "Monday"}}]}. The answer is the last step.',
    'First a step with two calls, for Monday and for Thursday, then "On Monday there is lentil soup, on Thursday potato gratin."',
)
def check_2(session):
    """Check that the model looked both days up before it answered, and only those."""
    expect(prompt_of(session) == "What is there on Monday, and what on Thursday?", "The question is another one.", SAME)
    hint = "You cannot know the menu, since you are the model. Which tool on the list tells it?"
    checked = check(session).hint(hint).called("menu", day="Monday")
    checked.hint("You looked up one day. The question is about two.").called("menu", day="Thursday")
    for result in results_of(session):
        day = next((one for one, (dish, _) in DISHES.items() if dish in result.text), "")
        hint = "Each call costs a request, or room in one. Ask for what the question is about."
        expect(not day or day in ("Monday", "Thursday"), f"You looked up {day}, too.", hint)
    answer = session.last.final_text
    for day, dish in (("Monday", "lentil soup"), ("Thursday", "potato gratin")):
        hint = f"Read the result of the call for {day} in its card, and name the dish in the answer."
        expect(dish in answer.lower(), f"The answer does not name the dish of {day}. It is {answer!r:.200}", hint)
    others = [dish for dish, _ in DISHES.values() if dish.lower() in answer.lower()]
    expect(len(others) == 2, "The answer names dishes of other days, too.", "Answer the question, and no more.")
    pairs = r"(?is)monday((?!thursday).)*lentil soup|lentil soup((?!gratin).)*monday"
    expect(re.search(pairs, answer), "The answer has the dishes on the wrong days.", "Which dish came back for which day?")
