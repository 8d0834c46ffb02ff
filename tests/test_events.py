"""The values of a turn, and the table of them in the documentation, which is generated from their docstrings.

After a change, `python -m tests.test_events` writes the table anew.
"""

import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args

import pytest

from agentmagic import events
from agentmagic.events import Event, Intent

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
BEGIN, END = "<!-- the event table begins -->\n", "<!-- the event table ends -->"


def table():
    """The events of `agentmagic.events` as a Markdown table."""
    rows = [f"| `{kind.__name__}` | {_fields(kind)} | {_about(kind)} |" for kind in get_args(Event)]
    return "\n".join(["| event | fields | what happened |", "|---|---|---|", *rows]) + "\n"


def _fields(kind):
    return ", ".join(f"`{field.name}`" for field in fields(kind))


def _about(kind):
    return " ".join(inspect.getdoc(kind).split())


def test_the_table_in_the_documentation_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == table()


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_a_frozen_value_with_a_type_of_its_own(kind):
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert [other for other in get_args(Event) if other.type == kind.type] == [kind]


def test_every_value_of_the_module_is_an_event_an_intent_or_a_result():
    values = {value for value in vars(events).values() if is_dataclass(value) and value.__module__ == events.__name__}
    assert values == {*get_args(Event), *get_args(Intent), events.RunResult, events.HistoryCut}


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
