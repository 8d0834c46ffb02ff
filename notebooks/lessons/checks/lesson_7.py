"""Checks of lesson 7: trying again inside a tool, and a limit that still gives an answer."""

import inspect

from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of, results_of


@exercise(
    "1",
    "A loop over range(3) with try and except around service(city). Raise the error again after the last try.",
    "for left in (2, 1, 0): try: return service(city) except ConnectionError: if left == 0: raise",
)
def check_1(session, weather):
    """Check the tool with fewer failures, with more, and with another city."""
    expect(prompt_of(session) == "How is the weather in Oslo?", "The question is another one.", SAME)
    hint = "The service fails twice, and then it answers. Who has to ask it again?"
    check(session).hint(hint).called("weather", city="Oslo")
    results = results_of(session)
    expect(len(results) == 1, "The model asked more than once.", "The tool tries again, not the model.")
    hint = "The model should read what the service answers."
    expect(results[0].text == "Rain in Oslo.", f"The model read: {results[0].text!r:.200}", hint)
    for many in (0, 1, 2):
        result, asked = _tried(session, weather, many)
        hint = "Up to three tries, whatever was before. Does your loop return at the first success?"
        expect(not result.is_error, f"With {many} failures, the tool failed: {result.text!r:.100}", hint)
        hint = "The answer is that of the service, for the city that was asked for. Do not write it yourself."
        expect(result.text == "Snow in Bergen.", f"For another city, the tool returned {result.text!r:.100}", hint)
        hint = "Once the service has answered, it is not asked again."
        expect(asked == many + 1, f"With {many} failures, the tool asked the service {asked} times.", hint)
    for many in (3, 6):
        result, asked = _tried(session, weather, many)
        hint = "Three tries in all. Who waits for a service that is down, waits for each of them."
        expect(asked == 3, f"With {many} failures, the tool asked the service {asked} times.", hint)
        hint = "After the last try, the error is raised. Otherwise the model takes what it reads for the weather."
        expect(result.is_error, f"The service failed three times, and the tool returned {result.text!r:.100}", hint)


def _tried(session, weather, failures):
    """Run the tool with a service that first fails so often. Return the result, and how often the service was asked."""
    asked = []

    def service(city):
        asked.append(city)
        if len(asked) <= failures:
            raise ConnectionError("timed out")
        return f"Snow in {city}."

    names = inspect.unwrap(weather).__globals__  # the variables of the notebook, in which the tool finds its service
    kept, names["service"] = names["service"], service
    try:
        return session.call("weather", city="Bergen"), len(asked)
    finally:
        names["service"] = kept


@exercise(
    "2",
    "Of the limits above, one asks the model a last time. It counts requests, and the closing one is not among them.",
    "Session(Agent(ScriptedModel(reader), tools=[page], max_iterations=3))",
)
def check_2(session, page):
    """Check which limit ended the turn, and that the pages were read."""
    expect(prompt_of(session) == "What does the log say?", "The question is another one.", SAME)
    reason = session.last.stop_reason
    hint = "Which limit is looked at before each request, and sends none once it is used up? It gives no answer."
    expect(reason != "budget", "The turn ended at the budget, and without an answer.", hint)
    hint = "You pay for three requests. Count the pages that were read."
    read = [result.text for result in results_of(session, "page") if not result.is_error]
    expect(len(read) == 3, f"{len(read)} pages were read.", hint)
    texts = [f"Page {number}: nothing unusual." for number in (1, 2, 3)]
    expect(read == texts, f"The pages were {read}.", SAME)
    hint = "The answer has to come because of the limit, not because the model was done by itself."
    expect(reason == "limit", f"The answer came, but no limit was reached: the turn ended with {reason!r}.", hint)
    check(session).hint('At the limit the model is asked a last time, unless on_limit="stop" forbids it.').answered(
        "first three pages"
    )
    hint = "Three requests and the closing one. Which number does max_iterations have then?"
    expect(session.last.iterations_used == 3, f"The turn took {session.last.iterations_used} steps.", hint)
    expect(session.last.usage.requests == 4, f"The turn took {session.last.usage.requests} requests.", hint)
    result = session.call("page", number=8)
    expect(result.text == "Page 8: nothing unusual.", f"Another page reads {result.text!r:.100}", SAME)
