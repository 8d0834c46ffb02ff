"""Changes of a notebook with agent cells, each with the cause that a replay must name, and changes that mean nothing.

A `Notebook` is played with a scripted model, and its requests are recorded. `CHANGES` and `COSMETIC` are generators:
each takes a notebook and a seeded random source. A change comes with the place at which it is noticed first.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple, cast

from agentmagic import Agent, ModelSettings, Session
from agentmagic.events import PartFinished
from agentmagic.messages import ToolCall
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay.comparison import RequestRecord, RequestRecords
from tests.turns import calls

WORDS = [
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbour"),
    *("inlet", "juniper", "kelp", "lagoon", "meadow", "north", "orchard", "pine"),
]


class Filled(NamedTuple):
    """A value in a prompt."""

    written: str
    kind: str
    text: str


@dataclass(frozen=True)
class Function:
    """A tool, as the notebook defines it; `parameters` are written as in Python, `result` is what it returns."""

    name: str
    doc: str
    parameters: tuple[str, ...]
    result: Any

    def made(self) -> Callable[..., Any]:
        space: dict[str, Any] = {"result": self.result}
        source = f"def {self.name}({', '.join(self.parameters)}):\n    {self.doc!r}\n    return result"
        exec(source, space)  # noqa: S102  (source of these tests)
        return space[self.name]


@dataclass(frozen=True)
class Cell:
    """An agent cell: its prompt, the value in it, the tool that the model calls, and the model's answer."""

    prompt: str
    values: tuple[Filled, ...]
    tool: str
    arguments: dict[str, Any]
    answer: str

    @property
    def text(self) -> str:
        text = self.prompt
        for value in self.values:
            text = text.replace(value.written, value.text)
        return text


@dataclass(frozen=True)
class Notebook:
    cells: tuple[Cell, ...]
    tools: tuple[Function, ...]
    instructions: str = "Answer in one sentence.\nUse the tools."
    model: str = "one"
    settings: ModelSettings = field(default_factory=lambda: ModelSettings(temperature=0.0, seed=1))
    ids: str = "call_"


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


class Asked(NamedTuple):
    """A request of a notebook: its cell as it is written, the cell's position, the step, and the record."""

    source: str
    cell: int
    step: int
    record: RequestRecord


def session_of(notebook: Notebook, **options: Any) -> Session:
    """A session whose scripted model plays the notebook."""
    steps = [step for cell in notebook.cells for step in (calls((cell.tool, cell.arguments)), cell.answer)]
    model = Renamed(steps, notebook.model)
    model.prefix = notebook.ids
    tools = [tool.made() for tool in notebook.tools]
    agent = Agent(model, instructions=notebook.instructions, tools=tools, settings=notebook.settings, max_result=2_000)
    return Session(agent, **options)


def play(notebook: Notebook) -> list[Asked]:
    """Run every cell of a notebook in real turns of one session, and return the requests."""
    session, records, asked = session_of(notebook), RequestRecords(), list[Asked]()
    model = cast("Renamed", session.agent.model)
    for number, cell in enumerate(notebook.cells):
        before = len(model.requests)
        session.ask(cell.text)
        for step, request in enumerate(model.requests[before:], 1):
            asked.append(Asked(cell.prompt, number, step, records(request, model.name, cell.values)))
    return asked


def recorded(notebook: Notebook, asked: Asked, tape: Sequence[Asked]) -> RequestRecord:
    """Return what a tape has for a request: by the words of its cell, or by its position if the words are new."""
    known = [one for one in tape if one.source == asked.source]
    places = known or [one for one in tape if one.cell == asked.cell]
    return places[asked.step - 1].record


def example(random: Random) -> Notebook:
    """A notebook with three to five cells and three tools."""
    cities = random.sample(WORDS, 5)
    weather = {"city": cities[0], "celsius": random.randrange(30), "wind": {"speed": 4, "from": "west"}}
    tools = (
        Function("weather", "Return the weather of a city.", ("city: str", "days: int = 1"), weather),
        Function("population", "Count people.\n\nArgs:\n    city: where\n", ("city: str",), random.randrange(10**6)),
        Function("notes", "Read the notes.", (), "\n".join(f"{word} is a word" for word in WORDS)),
    )
    cells: list[Cell] = []
    for number, city in enumerate(cities[: random.randrange(3, 6)]):
        tool = (tools * 2)[number].name
        arguments = {} if tool == "notes" else {"city": city}
        rows = "\n".join(f"{word},{random.randrange(100)}" for word in random.sample(WORDS, 4))
        values = (Filled("{rows}", "table", rows),) * (number % 2)
        prompt = f"What of {city}, as of {number} days?\nUse {tool}." + " See {rows} for it." * len(values)
        cells.append(Cell(prompt, values, tool, arguments, f"All is well in {city}."))
    return Notebook(tuple(cells), tools)


def other(items: Sequence[Any], place: int, item: Any) -> tuple[Any, ...]:
    """The items with another one at a place."""
    return (*items[:place], item, *items[place + 1 :])


class Change(NamedTuple):
    """A changed notebook, and where a replay notices it first: the cell, the step, the cause and the field."""

    notebook: Notebook
    cell: int
    step: int
    cause: str
    field: str


# -- changes that matter ---------------------------------------------------------------------------


def a_word_of_the_prompt(old: Notebook, random: Random) -> Change:
    place = random.randrange(len(old.cells))
    words = old.cells[place].prompt.split(" ")
    words[random.randrange(2)] = "whatever"
    cell = replace(old.cells[place], prompt=" ".join(words))
    return Change(replace(old, cells=other(old.cells, place, cell)), place, 1, "prompt", "prompt")


def a_docstring(old: Notebook, random: Random) -> Change:
    tool = old.tools[place := random.randrange(3)]
    changed = replace(tool, doc=f"{random.choice(WORDS).title()}. {tool.doc}")
    new = replace(old, tools=other(old.tools, place, changed))
    return Change(new, 0, 1, "tool schema", f"tools.{tool.name}.description")


def the_tools(old: Notebook, random: Random) -> Change:
    place, name = random.randrange(3), random.choice(WORDS)
    less = old.tools[:place] + old.tools[place + 1 :]
    more = (Function(name, "Do more.", (), "more"), *old.tools)
    renamed = other(old.tools, place, replace(old.tools[place], name=name))
    return Change(replace(old, tools=random.choice((less, more, renamed))), 0, 1, "tool list", "tools")


def a_schema(old: Notebook, random: Random) -> Change:
    tool = old.tools[0]
    parameters, path = random.choice(
        [
            (("city: str", "days: float = 1"), "parameters.properties.days.type"),
            (("city: str", "days: int = 2"), "parameters.properties.days.default"),
            (("city: str", "days: int = 1", "night: bool = False"), "parameters.properties.night"),
            (("city: str",), "parameters.properties.days"),
        ]
    )
    new = replace(old, tools=other(old.tools, 0, replace(tool, parameters=parameters)))
    return Change(new, 0, 1, "tool schema", f"tools.weather.{path}")


def a_result(old: Notebook, random: Random) -> Change:
    place = random.randrange(3)
    tool = old.tools[place]
    changed, path = {
        "weather": ({**old.tools[0].result, "wind": {"speed": 5, "from": "west"}}, "results.weather.wind.speed"),
        "population": (10**7 + random.randrange(10**6), "results.population"),
        "notes": (f"{old.tools[2].result} indeed" * random.choice((1, 50)), "results.notes"),
    }[tool.name]
    new = replace(old, tools=other(old.tools, place, replace(tool, result=changed)))
    return Change(new, place, 2, "tool result", path)


def a_value(old: Notebook, random: Random) -> Change:
    cell = old.cells[1]
    rows = cell.values[0]
    changed = replace(cell, values=(rows._replace(text=rows.text + random.choice(["0", "\noak,1"])),))
    return Change(replace(old, cells=other(old.cells, 1, changed)), 1, 1, "value", "values.{rows}")


def another_model(old: Notebook, random: Random) -> Change:
    return Change(replace(old, model=random.choice(WORDS)), 0, 1, "model", "model")


def a_setting(old: Notebook, random: Random) -> Change:
    name, value = random.choice(
        [("temperature", 0.5), ("seed", 2), ("max_output_tokens", 999), ("reasoning", "low"), ("extra", {"top_k": 1})]
    )
    return Change(replace(old, settings=replace(old.settings, **{name: value})), 0, 1, "settings", f"settings.{name}")


def the_instructions(old: Notebook, random: Random) -> Change:
    new = replace(old, instructions=f"{old.instructions} Say {random.choice(WORDS)}.")
    return Change(new, 0, 1, "instructions", "instructions")


def the_order_of_cells(old: Notebook, random: Random) -> Change:
    place = random.randrange(len(old.cells) - 1)
    one, two = old.cells[place : place + 2]
    less, swapped = ((*old.cells[:place], *cells, *old.cells[place + 2 :]) for cells in ((two,), (two, one)))
    return Change(replace(old, cells=random.choice((less, swapped))), place, 1, "order", "history")


CHANGES = [
    *(a_word_of_the_prompt, a_docstring, a_schema, the_tools, a_result, a_value),
    *(another_model, a_setting, the_instructions, the_order_of_cells),
]


# -- changes that mean nothing ---------------------------------------------------------------------


def other_ids_of_long_results(old: Notebook, random: Random) -> tuple[Notebook, Notebook]:
    """The model reads the id of a call in the note that stands for the middle of a long result."""
    long = replace(old, tools=other(old.tools, 2, replace(old.tools[2], result=old.tools[2].result * 50)))
    return long, replace(long, ids=f"{random.choice(WORDS)[:4]}_")


def order_of_a_result_and_of_tools(old: Notebook, random: Random) -> Notebook:
    items = [*old.tools[0].result.items()]
    random.shuffle(items)
    tools = other(old.tools, 0, replace(old.tools[0], result=dict(items)))
    return replace(old, tools=tuple(random.sample(tools, 3)))


def order_of_json_that_is_text(old: Notebook, random: Random) -> tuple[Notebook, Notebook]:
    one, two = (json.dumps(dict.fromkeys(random.sample(WORDS, len(WORDS)), 1)) for _ in range(2))
    before, after = (replace(old, tools=other(old.tools, 2, replace(old.tools[2], result=text))) for text in (one, two))
    return before, after


def order_of_arguments(old: Notebook, random: Random) -> tuple[Notebook, Notebook]:
    pairs = [("city", "here"), ("days", random.randrange(9))]
    before, after = (
        replace(old, cells=other(old.cells, 0, replace(old.cells[0], arguments=dict(items))))
        for items in (pairs, pairs[::-1])
    )
    return before, after


def spaces(text: str, random: Random) -> str:
    return "\n".join(line + random.choice(["", " ", "\t", "   "]) for line in text.split("\n")) + random.choice(
        ["", "\n"]
    )


def spaces_at_the_ends_of_lines(old: Notebook, random: Random) -> Notebook:
    cells = tuple(replace(cell, prompt=spaces(cell.prompt, random)) for cell in old.cells)
    tools = tuple(replace(tool, doc=spaces(tool.doc, random)) for tool in old.tools)
    tools = other(tools, 2, replace(tools[2], result=spaces(tools[2].result, random).replace("\n", "\r\n")))
    return replace(old, cells=cells, tools=tools, instructions=spaces(old.instructions, random))


def indented_docstrings(old: Notebook, random: Random) -> Notebook:
    """Python 3.13 takes the indentation out of docstrings when it compiles them; older versions keep it."""
    indent = "\n" + " " * random.choice([4, 8])
    return replace(old, tools=tuple(replace(tool, doc=tool.doc.replace("\n", indent)) for tool in old.tools))


COSMETIC = [
    *(other_ids_of_long_results, order_of_a_result_and_of_tools, order_of_json_that_is_text, order_of_arguments),
    *(spaces_at_the_ends_of_lines, indented_docstrings),
]
