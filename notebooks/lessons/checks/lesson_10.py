"""Checks of lesson 10: the tool that has to be called, and the choice for each question."""

from agentmagic import Session
from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of, raised

DAYS = {"Monday": "3.20 euros", "Wednesday": "4.50 euros", "Friday": "5.40 euros"}
LOOKED_UP = ("How much does Friday cost?", "What is the PRICE of the soup?", "What do I have to pay on Monday?", "Tell me the costs.")
BOTH = ("Thank you. And what does Monday cost?", "What do I pay? Thanks!")
QUIET = ("Thank you very much.", "That was all, many thanks", "I THANK you.", "Thanks! May I go now?")
FREE = ("Is the soup hot?", "When do you open?", "Hello!", "What is there on Friday?")


@exercise(
    "1",
    'Four words are possible: "auto", "required", "none", and the name of a tool.',
    'Session(Agent(model, tools=[menu, price], tool_choice="price"))',
)
def check_1(session, menu, price):
    """Check which tool is called, for this day and for others."""
    expect(prompt_of(session) == "What does the dish on Tuesday cost?", "The question is another one.", SAME)
    names = sorted(definition.name for definition in session.tools)
    expect(names == ["menu", "price"], f"The model is offered the tools {names}.", "Leave both tools on the list, as they were.")
    are = [raised(tool, day=day)[0] for tool in (menu, price) for day in ("Friday", "Monday")]
    expect(are == ["Fish with rice", "Lentil soup", "5.40 euros", "3.20 euros"], "A tool returns something else now.", SAME)
    choice = session.agent.tool_choice
    hint = "The model answers from memory as long as it may. Which words force it to call?"
    expect(choice not in ("auto", "none"), f"With {choice!r}, the model did not look anything up.", hint)
    hint = "Some call is forced, and the model chose the first tool on the list. Which word forces a certain one?"
    if choice != "required":
        hint = "A tool is named, so it has to be called, and no other. Which one knows what a dish costs?"
    expect(choice == "price", f"With {choice!r}, it is not the price that has to be looked up.", hint)
    check(session).hint("Run the cell of the exercise again.").called("price", day="Tuesday").answered("4.10")
    for day, right in DAYS.items():
        other = Session(session.agent)
        said = other.ask(f"And what is it on {day}?", replay="live", attended=False).final_text
        hint = "The tool looks the price of its parameter up."
        expect(said == right, f"For another day, the answer was {said!r:.100}", hint)


@exercise(
    "2",
    "question.lower() has no capitals. Test the words that need the price first, then the thanks; return a word for each.",
    'Return "price" if any(word in question.lower() for word in ("cost", "price", "pay")), "none" if "thank" is in it, else "auto".',
)
def check_2(choice):
    """Check the choice for other questions, and that it does what it should."""
    known = ("auto", "none", "required", "menu", "price")
    for questions, right, hint in (
        (LOOKED_UP, "price", "Three words say that the price is asked for. Capitals do not matter, nor the place in the question."),
        (QUIET, "none", "A message with thank in it needs no call at all."),
        (FREE, "auto", "On all other questions the model decides. Which word says so?"),
        (BOTH, "price", "If a message has words of both kinds, the price is looked up. Which test comes first?"),
    ):
        for question in questions:
            said, error = raised(choice, question)
            expect(error is None, f"For another question, choice raised {error!r:.100}", hint)
            expect(said in known, f"For another question, choice returned {said!r:.60}, which is no tool_choice.", hint)
            expect(said == right, f"For another question, choice returned {said!r}.", hint)
