"""The checks of the exercises, a module for each lesson. They try inputs that the notebook does not show.

A check looks at what a solution does, not at how it is written. So `raised` calls a function that is asynchronous, too,
and `accepts` of `agentmagic.testing` asks which arguments a tool takes, whatever types it has them from.
"""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

SAME = "Change only what the exercise asks you to change. The text above the cell says what that is."


def results_of(session, tool=""):
    """Return the results of the last turn of a session, in order, of one tool or of all."""
    results = [event.result for event in session.last.events if event.type == "tool_finished"]
    return [result for result in results if tool in ("", result.name)]


def prompt_of(session):
    """Return what the last turn of a session was asked."""
    return session.turns[-1].prompt.text


def raised(function, *arguments, **named):
    """Call a function, which may be asynchronous. Return its value and None, or None and what it raised."""
    try:
        value = function(*arguments, **named)
        return (_awaited(value) if inspect.iscoroutine(value) else value), None
    except Exception as error:
        return None, error


def _awaited(coroutine):
    """Run a coroutine in another thread, since the thread of a notebook has a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
