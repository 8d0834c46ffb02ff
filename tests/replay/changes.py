"""Changes of a notebook with agent cells, each with the cause that a replay must name, and changes that mean nothing.

The notebook is played with a scripted model. A change comes with the place at which it is noticed first.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from agentmagic import Agent, ModelSettings, ReplayMismatch, Session
from agentmagic.events import PartFinished, PromptValue
from agentmagic.host import begin_cell
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import ToolCall
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay.player import Verdict
from agentmagic.settings import Replay
from tests.turns import calls


@dataclass(frozen=True)
class Function:
    """A tool, as the notebook defines it; `parameters` are written as in Python, `result` is what it returns."""

    name: str
    doc: str
    parameters: str
    result: Any

    def made(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"result": self.result}
        source = f"def {self.name}({self.parameters}):\n    {self.doc!r}\n    return result"
        exec(source, space)  # noqa: S102  (source of these tests)
        return space[self.name]


class Prompted:
    """An agent cell, by its prompt and the values in it."""

    prompt: str
    values: tuple[PromptValue, ...]

    @property
    def text(self) -> str:
        """The prompt as the model is sent it."""
        text = self.prompt
        for value in self.values:
            text = text.replace(value.written, value.text)
        return text


@dataclass(frozen=True)
class Cell(Prompted):
    """An agent cell: its prompt, the tool that the model calls, the model's answer, and the value in the prompt."""

    prompt: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    values: tuple[PromptValue, ...] = ()


@dataclass(frozen=True)
class Notebook:
    cells: tuple[Cell, ...]
    tools: tuple[Function, ...]
    instructions: str = "Answer in one sentence.\nUse the tools."
    model: str = "one"
    settings: ModelSettings = field(default_factory=lambda: ModelSettings(temperature=0.0, seed=1))
    ids: str = "call_"

    def cell(self, place: int, **changes: Any) -> "Notebook":
        """The notebook with another cell at a place."""
        return replace(self, cells=other(self.cells, place, replace(self.cells[place], **changes)))

    def tool(self, place: int, **changes: Any) -> "Notebook":
        """The notebook with another tool at a place."""
        return replace(self, tools=other(self.tools, place, replace(self.tools[place], **changes)))


def other(items: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    """The items with another one at a place."""
    return (*items[:place], item, *items[place + 1 :])


class Renamed(ScriptedModel):
    """A scripted model whose calls have other ids."""

    prefix = "call_"

    async def stream(self, request):
        async for event in super().stream(request):
            if isinstance(event, PartFinished) and isinstance(event.part, ToolCall):
                part = replace(event.part, id=event.part.id.replace("call_", self.prefix))
                yield replace(event, part=part)
            else:
                yield event


def session_of(notebook: Notebook, **options: Any) -> Session:
    """A session whose scripted model plays the notebook."""
    steps = [step for cell in notebook.cells for step in (calls((cell.tool, cell.arguments)), cell.answer)]
    model = Renamed(steps, notebook.model)
    model.prefix = notebook.ids
    tools = [tool.made() for tool in notebook.tools]
    agent = Agent(model, instructions=notebook.instructions, tools=tools, settings=notebook.settings, max_result=2_000)
    return Session(agent, **options)


def played(notebook: Notebook, path: Path, mode: Replay) -> list[Verdict]:
    """Run every cell of a notebook in one session of its own, and return the verdicts of a replay."""
    begin_cell()
    session = session_of(notebook, cassette=path, replay=mode)
    for cell in notebook.cells:
        with suppress(ReplayMismatch):
            session.begin(cell.text, TurnSettings(values=cell.values)).wait()
    session.close()
    return [] if mode == "record" else session.deck.verdicts


WEATHER = {"city": "Oslo", "celsius": 21, "wind": {"speed": 4, "from": "west"}}
ROWS = PromptValue("{rows}", "table", "", 0, "amber,3\nbirch,4")
NOTES = "\n".join(f"{word} is a word" for word in ("amber", "birch", "cedar", "delta", "ember"))
NOTEBOOK = Notebook(
    (
        Cell("What of Oslo, as of 0 days?\nUse weather.", "weather", {"city": "Oslo"}, "All is well in Oslo."),
        Cell("How many in Bergen?\nSee {rows} for it.", "population", {"city": "Bergen"}, "Many.", (ROWS,)),
        Cell("What is noted, as of 2 days?\nUse notes.", "notes", {}, "Words."),
    ),
    (
        Function("weather", "Return the weather of a city.", "city: str, days: int = 1", WEATHER),
        Function("population", "Count people.\n\nArgs:\n    city: where\n", "city: str", 290_000),
        Function("notes", "Read the notes.", "", NOTES),
    ),
)


class Change(NamedTuple):
    """A changed notebook, and where a replay notices it first: the cell, the step, the cause and the field."""

    notebook: Notebook
    cell: int
    step: int
    cause: str
    field: str


def a_setting(name: str, value: Any) -> Change:
    changed = replace(NOTEBOOK, settings=replace(NOTEBOOK.settings, **{name: value}))
    return Change(changed, 0, 1, "settings", f"settings.{name}")


def a_schema(parameters: str, path: str) -> Change:
    return Change(NOTEBOOK.tool(0, parameters=parameters), 0, 1, "tool schema", f"tools.weather.parameters.{path}")


def the_tools(*tools: Function) -> Change:
    return Change(replace(NOTEBOOK, tools=tools), 0, 1, "tool list", "tools")


def the_cells(*places: int) -> Change:
    return Change(replace(NOTEBOOK, cells=tuple(NOTEBOOK.cells[place] for place in places)), 0, 1, "order", "history")


ONE, TWO, THREE = NOTEBOOK.tools
WIND = {**WEATHER, "wind": {"speed": 5, "from": "west"}}
DOCSTRING = Change(NOTEBOOK.tool(1, doc="Do count people."), 0, 1, "tool schema", "tools.population.description")
CHANGES = {
    "a word of a prompt": Change(NOTEBOOK.cell(2, prompt="What is written?"), 2, 1, "prompt", "prompt"),
    "a value": Change(NOTEBOOK.cell(1, values=(replace(ROWS, text="amber,30"),)), 1, 1, "value", "values.{rows}"),
    "a docstring": DOCSTRING,
    "the type of a parameter": a_schema("city: str, days: float = 1", "properties.days.type"),
    "a parameter more": a_schema("city: str, days: int = 1, night: bool = False", "properties.night"),
    "a parameter less": a_schema("city: str", "properties.days"),
    "a tool more": the_tools(Function("more", "Do more.", "", "more"), ONE, TWO, THREE),
    "a field of a result": Change(NOTEBOOK.tool(0, result=WIND), 0, 2, "tool result", "results.weather.wind.speed"),
    "a long result": Change(NOTEBOOK.tool(2, result=NOTES * 50), 2, 2, "tool result", "results.notes"),
    "another model": Change(replace(NOTEBOOK, model="two"), 0, 1, "model", "model"),
    "the temperature": a_setting("temperature", 0.5),
    "a setting of the provider": a_setting("extra", {"top_k": 1}),
    "the instructions": Change(replace(NOTEBOOK, instructions="Be brief."), 0, 1, "instructions", "instructions"),
    "the order of cells": the_cells(1, 0, 2),
}


# -- changes that mean nothing ---------------------------------------------------------------------


def spaced(text: str) -> str:
    return text.replace("\n", " \t\n") + " \n"


def reordered() -> Notebook:
    return replace(NOTEBOOK.tool(0, result=dict(reversed(WEATHER.items()))), tools=(THREE, ONE, TWO))


def with_spaces() -> Notebook:
    cells = tuple(replace(cell, prompt=spaced(cell.prompt)) for cell in NOTEBOOK.cells)
    tools = tuple(replace(tool, doc=spaced(tool.doc)) for tool in NOTEBOOK.tools)
    changed = Notebook(cells, tools, instructions=spaced(NOTEBOOK.instructions))
    return changed.tool(2, result=spaced(NOTES).replace("\n", "\r\n"))


LONG = NOTEBOOK.tool(2, result=NOTES * 50)
ONE_ORDER, ANOTHER = (NOTEBOOK.tool(2, result=json.dumps(dict.fromkeys(words, 1))) for words in ("abcd", "dbca"))
ARGUMENTS = {"city": "Oslo", "days": 2}
COSMETIC = {
    "the ids of calls, which the note in a long result names": (LONG, replace(LONG, ids="kelp_")),
    "the order of a result and of tools": (NOTEBOOK, reordered()),
    "the order of JSON that is text": (ONE_ORDER, ANOTHER),
    "the order of arguments": tuple(
        NOTEBOOK.cell(0, arguments=dict(items)) for items in (ARGUMENTS.items(), reversed(ARGUMENTS.items()))
    ),
    "spaces and ends of lines": (NOTEBOOK, with_spaces()),
    # Python 3.13 takes the indentation out of docstrings when it compiles them; older versions keep it.
    "indented docstrings": (NOTEBOOK, NOTEBOOK.tool(1, doc=TWO.doc.replace("\n", "\n    "))),
}
