"""The checks of the exercises, a module for each lesson. They try inputs that the notebook does not show."""

SAME = "Change only what the exercise asks you to change. The text above the cell says what that is."


def results_of(session, tool=""):
    """Return the results of the last turn of a session, in order, of one tool or of all."""
    results = [event.result for event in session.last.events if event.type == "tool_finished"]
    return [result for result in results if tool in ("", result.name)]


def prompt_of(session):
    """Return what the last turn of a session was asked."""
    return session.turns[-1].prompt.text


def raised(function, *arguments):
    """Call a function. Return its value and None, or None and what it raised."""
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error
