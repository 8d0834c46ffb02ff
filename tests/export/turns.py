"""Turns for the tests of exports, of logs that are made by hand."""

from agentmagic.events import Event, fold
from agentmagic.history.history import Turn, turn_of


def turn(*events: Event) -> Turn:
    return turn_of(events, fold(events))
