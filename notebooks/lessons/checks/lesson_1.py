"""Checks of lesson 1: a tool for a price, and the steps of a model."""

import re
from numbers import Number

from agentmagic.testing import accepts, check, exercise, expect

from . import SAME, prompt_of, raised, results_of

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
def check_1(session, price, menu):
    """Check that the price fits the day and the customer, also on a day that is new on the menu."""
    expect(menu == DISHES, "The menu was changed.", SAME)
    hint = "The parameters of the function are the parameters on the list. Which one does the model name, and which is missing?"
    check(session).hint(hint).called("price", day="Friday", student=True)
    (definition,) = [one for one in session.tools if one.name == "price"]
    names = list(definition.parameters["properties"])
    expect(sorted(names) == ["day", "student"], f"The parameters are {names}.", "Two parameters are enough: day and student.")
    hint = "The model is told the type of each parameter. Is a customer a student: which type has an answer of yes or no?"
    for value in ("yes", 1, 2.5):
        expect(not accepts(session, "price", day="Friday", student=value), f"The list lets student be {value!r}.", hint)
    menu["Saturday"] = ("Pizza", 6.25)
    try:
        for day in ("Friday", "Monday", "Wednesday", "Thursday", "Saturday"):
            for student in (True, False):
                _check_price(price, menu, day, student)
    finally:
        menu.clear()
        menu.update(DISHES)
    if accepts(session, "price", day="Friday"):
        hint = "A parameter with a default may be missing in a call. Who pays less then?"
        paid = raised(price, day="Friday")[0]
        expect(paid and abs(float(paid) - 5.40) < 0.005, "A customer of whom nothing is said pays another price.", hint)
    (result,) = results_of(session, "price")
    read = re.fullmatch(r"3\.9\d*|3\.8999\d*", result.text)
    expect(read, f"The model read {result.text!r} of its call.", "Run the cell of the exercise again, then the check.")


def _check_price(price, menu, day, student):
    full = menu[day][1]
    paid, error = raised(price, day=day, student=student)
    hint = "The price differs from day to day. Does your function look it up in MENU?"
    expect(error is None, f"On some day, price raises {type(error).__name__}.", hint)
    number = isinstance(paid, Number) and not isinstance(paid, bool)
    expect(number, f"price returns {paid!r}, which is no number.", "The tool returns a price, with return.")
    if day == "Friday":
        hint = "Who pays less, and by how much? Try the function with both values of student, in a new cell."
    words = f"The call runs, but {'a student' if student else 'who is no student'} pays another price on {'some other day' if day != 'Friday' else 'Friday'}."
    expect(abs(float(paid) - (full - 1.50 * student)) < 0.005, words, hint)
    hint = "The function looks a price up. It changes nothing."
    expect(menu[day][1] == full, "After the call, the menu has another price.", hint)


@exercise(
    "2",
    'A step that asks for a call is {"calls": [{"name": "menu", "arguments": {"day": "Monday"}}]}. The answer is the last step.',
    'First a step with two calls, for Monday and for Thursday, then "On Monday there is lentil soup, on Thursday potato gratin."',
)
def check_2(session):
    """Check that the model looked both days up before it answered, and only those."""
    expect(prompt_of(session) == "What is there on Monday, and what on Thursday?", "The question is another one.", SAME)
    hint = "You cannot know the menu, since you are the model. Which tool on the list tells it?"
    if results_of(session, "menu"):
        hint = "Its description has an example of a call: the argument is a day, with a capital letter. One call is for one day."
    checked = check(session).hint(hint).called("menu", day="Monday")
    checked.hint("You looked up one day. The question is about two.").called("menu", day="Thursday")
    expect(session.call("menu", day="Friday").text == "Fish with rice, 5.40 euros", "menu tells something else now.", SAME)
    for result in results_of(session):
        day = next((one for one, (dish, _) in DISHES.items() if dish in result.text), "")
        hint = "Each call costs a request, or room in one. Ask for what the question is about."
        expect(not day or day in ("Monday", "Thursday"), f"You looked up {day}, too.", hint)
    answer = session.last.final_text
    for day, dish in (("Monday", "lentil soup"), ("Thursday", "potato gratin")):
        hint = f"Read the result of the call for {day} in its card, and name the dish in the answer."
        expect(dish in answer.lower(), f"The answer does not name the dish of {day}. It is {answer!r:.200}", hint)
        expect(day.lower() in answer.lower(), f"The answer does not say what there is on {day}.", "The question is about two days. Name both.")
    others = [dish for dish, _ in DISHES.values() if dish.lower() in answer.lower()]
    expect(len(others) == 2, "The answer names dishes of other days, too.", "Answer the question, and no more.")
    place = answer.lower().rindex
    same_order = (place("monday") < place("thursday")) == (place("lentil soup") < place("potato gratin"))
    expect(same_order, "The answer has the dishes on the wrong days.", "Which dish came back for which day?")
    prices = [float(price.replace(",", ".")) for price in re.findall(r"\d+[.,]\d+", answer)]
    right = [DISHES[day.title()][1] for day in sorted(("monday", "thursday"), key=place)]
    expect(prices in ([], right), f"The answer has the prices {prices}.", "What costs how much? The price is in the result.")
