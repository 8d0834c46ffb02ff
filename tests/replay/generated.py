"""Random changes of a notebook and of its cassette: real ones, cosmetic ones, and damage."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentmagic import Agent, Approve, ModelSettings, Reply, Session, tool
from agentmagic.errors import AgentMagicError
from agentmagic.events import PromptValue
from agentmagic.host import begin_cell
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.replay.cassette import Cassette
from agentmagic.replay.player import Verdict
from agentmagic.settings import Replay
from agentmagic.tools.base import ToolContext
from tests.replay.changes import Function, Prompted, Renamed, other, spaced
from tests.turns import calls

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty")


@dataclass(frozen=True)
class Turn(Prompted):
    """An agent cell: its prompt, what the model says in turn, whether it is planned, and the values in its prompt."""

    prompt: str
    steps: tuple[Any, ...]
    plan: bool = False
    values: tuple[PromptValue, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A notebook: its cells, its tools, and what its agent is made of."""

    cells: tuple[Turn, ...]
    tools: tuple[Function, ...]
    instructions: str = "Answer in one sentence.\nUse the tools of the list."
    model: str = "one"
    settings: ModelSettings = ModelSettings(temperature=0.0, seed=1)  # noqa: RUF009  (a frozen value)
    name: str = ""
    ids: str = "call_"

    def cell(self, place: int, **changes: Any) -> "Scene":
        return replace(self, cells=other(self.cells, place, replace(self.cells[place], **changes)))

    def tool(self, place: int, **changes: Any) -> "Scene":
        return replace(self, tools=other(self.tools, place, replace(self.tools[place], **changes)))


class Played(NamedTuple):
    """What became of a cell: the answer, the words that the user was told of a difference, and the verdicts."""

    answer: str
    told: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    seen: str


async def which(context: ToolContext) -> str:
    """Ask the user which one."""
    return await context.ask("Which colour?")


TASKS = [
    {"id": "t1", "tool": "price", "parameters": {"item": "lamp"}, "description": "the price"},
    {"id": "t2", "tool": "convert", "parameters": {"amount": "$t1"}, "description": "in crowns"},
]
PLAN = ({"route": "tools"}, {"tasks": TASKS}, {"amount": 45.5}, "It costs 500 crowns.")
WEATHER = {"city": "Oslo", "celsius": 21, "wind": {"speed": 4, "from": "west"}, "warm": True}
ROWS = PromptValue("{rows}", "table", "", 0, "amber,3\nbirch,4")
SCENE = Scene(
    (
        Turn("What of the weather in Oslo today?", (calls(("weather", {"city": "Oslo"})), "All is well in Oslo.")),
        Turn(
            "How many people are in Bergen?\nSee {rows}.",
            (calls(("population", {"city": "Bergen"})), "Many."),
            False,
            (ROWS,),
        ),
        Turn(
            "What does a lamp cost in crowns?",
            tuple(json.dumps(one) if isinstance(one, dict) else one for one in PLAN),
            True,
        ),
        Turn("Remove the old notes, please.", (calls(("remove", {"name": "old"})), "They are gone.")),
        Turn("Paint it in the colour that I like.", (calls(("which", {})), "It is painted.")),
        Turn("What is noted, and how many are there?", (calls(("notes", {}), ("tally", {})), "Words.")),
    ),
    (
        Function("weather", "Return the weather of a city.", "city: str, days: int = 1", WEATHER),
        Function("population", "Count people.", "city: str", 290_000),
        Function("price", "Look up a price.", "item: str", 45.5),
        Function("convert", "Convert an amount to crowns.", "amount: float", 500),
        Function("remove", "Remove something.", "name: str", "removed"),
        Function("tally", "Count the notes.", "", 7),
        Function("notes", "Read the notes.", "", [{"word": word, "at": at} for at, word in enumerate(WORDS[:4])]),
    ),
)


def play(scene: Scene, path: Path, mode: Replay) -> list[Played]:
    """Run every cell of a notebook in one session, as a runner does: in a replay, nothing after a cell that fails."""
    begin_cell()
    model = Renamed([step for cell in scene.cells for step in cell.steps] if mode == "record" else [], scene.model)
    model.prefix = scene.ids
    tools = [tool(ask=True)(one.made()) if one.name == "remove" else one.made() for one in scene.tools]
    agent = Agent(model, instructions=scene.instructions, tools=[*tools, which], settings=scene.settings)
    session = Session(agent, cassette=path, replay=mode)
    session.deck.name = scene.name
    found: list[Played] = []
    for cell in scene.cells:
        known, told, answer, seen = len(session.deck.verdicts), list[str](), "", ""
        try:
            run = session.begin(cell.text, TurnSettings(values=cell.values, plan=cell.plan, attended=True))
            run.listen(lambda event, run=run: run.send(_answer(event)) if event.type.endswith("_asked") else None)
            result = run.wait()
            answer = result.final_text
            told = [event.text for event in result.events if event.type == "notice"]
            events = [event for event in result.events if event.type != "notice"]
            seen = re.sub(r"[0-9a-f]{32}", "", repr(events))  # ids of questions and of the calls of a plan are new
        except AgentMagicError as error:
            told.append(f"{type(error).__name__}: {error}")
        found.append(Played(answer, tuple(told), tuple(session.deck.verdicts[known:]), seen))
        if told and told[-1].startswith(("ReplayMismatch", "CassetteError", "AgentMagicError")):
            break
    session.close()
    return found


def recorded(path: Path) -> str:
    """Record the notebook. Return the text of its cassette, without times, so that it is the same in each run."""
    play(SCENE, path, "record")
    cassette = Cassette.at(path)
    for take in cassette.takes:
        *others, end = take.documents
        others = [{name: value for name, value in one.items() if name not in ("ms", "seconds")} for one in others]
        take.replace([*others, {**end, "steps": [0.0] * len(end["steps"]), "seconds": 0.0}])
    cassette.save()
    return path.read_text(encoding="utf-8")


def _answer(event: Any) -> Any:
    return Approve(event.id) if event.type == "approval_asked" else Reply(event.id, "blue")


# -- real changes ----------------------------------------------------------------------------------


class Change(NamedTuple):
    """A change: what it is, the notebook, the edit of the tape, the mode, and how it is to be named."""

    about: str
    scene: Scene
    edit: Callable[[str], str]
    mode: Replay
    cell: int
    cause: str
    field: str


def _same(text: str) -> str:
    return text


def _code(about: str, scene: Scene, cell: int, cause: str, field: str) -> Change:
    return Change(about, scene, _same, "replay", cell, cause, field)


def _another(random: Random, value: Any, *, inner: bool = False) -> Any:
    """Another value of a result, or of one of its parts; a part may be a text that looks the same."""
    match value:
        case bool():
            return random.choice([not value, str(value).lower()])
        case int() | float():
            return random.choice([value + random.randrange(1, 99), str(value)][: 1 + inner])
        case str():
            return f"{value} {random.choice(WORDS)}"
        case dict():
            name = random.choice(list(value))
            return {**value, name: _another(random, value[name], inner=True)}
        case _:
            at = random.randrange(len(value))
            return [*value[:at], _another(random, value[at], inner=True), *value[at + 1 :]]


def _prompt(random: Random) -> Change:
    at = random.randrange(len(SCENE.cells))
    words = SCENE.cells[at].prompt.split(" ")
    place, how = random.randrange(len(words)), random.choice(["put", "add", "drop"])
    new = {"put": [random.choice(WORDS)], "add": [words[place], random.choice(WORDS)], "drop": []}[how]
    if "{rows}" in words[place]:
        new = [random.choice(WORDS), *words[place : place + 1]]
    prompt = " ".join([*words[:place], *new, *words[place + 1 :]])
    return _code(f"prompt {prompt!r}", SCENE.cell(at, prompt=prompt), at, "prompt", "prompt")


def _text(random: Random) -> Change:
    if random.random() < 0.3:
        model = random.choice(WORDS)
        return _code(f"model {model}", replace(SCENE, model=model), 0, "model", "model")
    words = SCENE.instructions.split(" ")
    place = random.randrange(len(words))
    said = " ".join([*words[:place], random.choice(WORDS), *words[place + 1 :]])
    return _code(f"instructions {said!r}", replace(SCENE, instructions=said), 0, "instructions", "instructions")


def _setting(random: Random) -> Change:
    values = {
        "temperature": round(random.uniform(0.1, 1), 2),
        "seed": random.randrange(2, 99),
        "max_output_tokens": random.randrange(10, 999),
        "reasoning": random.choice(["low", "high"]),
        "extra": {random.choice(WORDS): random.randrange(9)},
    }
    name = random.choice(list(values))
    scene = replace(SCENE, settings=replace(SCENE.settings, **{name: values[name]}))
    return _code(f"{name} {values[name]}", scene, 0, "settings", f"settings.{name}")


def _schema(random: Random) -> Change:
    at = random.randrange(len(SCENE.tools))
    one = SCENE.tools[at]
    if random.random() < 0.5 or not one.parameters:
        changed = replace(one, doc=f"{one.doc} {random.choice(WORDS)}.")
    else:
        more = f"{one.parameters}, {random.choice(WORDS)}: int = {random.randrange(9)}"
        typed = re.sub(r": (str|float)", ": bool", one.parameters, count=1)
        changed = replace(one, parameters=random.choice([more, typed]))
    about = f"{changed.name}({changed.parameters}): {changed.doc}"
    scene = replace(SCENE, tools=other(SCENE.tools, at, changed))
    return _code(about, scene, 0, "tool schema", f"tools.{one.name}")


def _tools(random: Random) -> Change:
    at = random.randrange(len(SCENE.tools))
    more = Function(random.choice(WORDS), "Do more.", "", "more")
    kept = SCENE.tools[:at] + SCENE.tools[at + 1 :]
    tools = random.choice([(*SCENE.tools, more), kept, (*kept, replace(SCENE.tools[at], name=more.name))])
    about = f"tools {[one.name for one in tools]}"
    return _code(about, replace(SCENE, tools=tools), 0, "tool list", "tools")


def _result(random: Random) -> Change:
    at = random.randrange(len(SCENE.tools))
    one = SCENE.tools[at]
    result = _another(random, one.result)
    cell = {"weather": 0, "population": 1, "price": 2, "convert": 2, "remove": 3, "notes": 5, "tally": 5}[one.name]
    scene = SCENE.tool(at, result=result)
    return Change(
        f"{one.name} returns {result!r}", scene, _same, "replay-model", cell, "tool result", f"results.{one.name}"
    )


def _value(random: Random) -> Change:
    text = f"amber,{random.randrange(5, 99)}\nbirch,{random.randrange(5, 99)}"
    scene = SCENE.cell(1, values=(replace(ROWS, text=text),))
    return _code(f"value {text!r}", scene, 1, "value", "values.{rows}")


def _order(random: Random) -> Change:
    at, with_ = sorted(random.sample(range(len(SCENE.cells)), 2))
    cells = list(SCENE.cells)
    cells[at], cells[with_] = cells[with_], cells[at]
    return _code(f"cells {at} and {with_}", replace(SCENE, cells=tuple(cells)), at, "order", "history")


def _tape(random: Random) -> Change:
    word, number = random.choice(WORDS), random.randrange(2, 99)
    edits = [
        (0, "answer", "answer: All is well in Oslo.", f"answer: All is {word} in Oslo."),
        (0, "answer", "    city: Oslo\n", f"    city: {word}\n"),
        (1, "results.population", 'text: "290000"', f'text: "{number}"'),
        (3, "approvals.remove", "\nanswer: 'yes'", f"\nanswer: {random.choice(['no', 'always', 'nobody'])}"),
        (3, "results.remove", "text: removed\n", f"text: {word}\n"),
        (4, "question", "answer: blue\n", f"answer: {word}\n"),
        (4, "results.which", "text: blue\n", f"text: {word}\n"),
        (5, "results.notes", "word: birch", f"word: {word * 2}"),
        (2, "answer", "answer: It costs 500 crowns.", f"answer: It costs {number} crowns."),
    ]
    cell, field, old, new = random.choice(edits)

    def edit(text: str) -> str:
        assert old in text, (old, text)
        return text.replace(old, new, 1)

    return Change(f"tape {old!r} {new!r}", SCENE, edit, "replay", cell, "edited", field)


def real_change(random: Random, number: int) -> Change:
    """One real change at a random place: each number has the next one of the kinds."""
    kinds = (_prompt, _text, _setting, _schema, _tools, _result, _value, _order, _tape, _result, _tape)
    return kinds[number % len(kinds)](random)


# -- cosmetic changes ------------------------------------------------------------------------------


COSMETIC = ("order", "spaces", "ids", "name", "keys", "indent", "file")


def cosmetic_change(random: Random, number: int) -> tuple[str, Scene, Callable[[str], str]]:
    """One or more changes that mean nothing: of the notebook, or of how the file is written."""
    scene, edit, about = SCENE, _same, list[str]()
    kinds = [COSMETIC[number % len(COSMETIC)], *random.sample(COSMETIC, random.choice([0, 0, 1, 2]))]
    for kind in dict.fromkeys(kinds):
        about.append(kind)
        match kind:
            case "order":
                scene = replace(scene, tools=tuple(random.sample(scene.tools, len(scene.tools))))
            case "spaces":
                at = random.randrange(len(scene.cells))
                scene = scene.cell(at, prompt=spaced(scene.cells[at].prompt))
                scene = replace(scene, instructions=spaced(scene.instructions))
            case "ids":
                scene = replace(scene, ids=f"{random.choice(WORDS)}_")
            case "name":
                scene = replace(scene, name=random.choice(WORDS))
            case "keys":
                at = next(at for at, one in enumerate(scene.tools) if one.name == "weather")
                items = list(WEATHER.items())
                scene = scene.tool(at, result=dict(random.sample(items, len(items))))
            case "indent":
                at = random.randrange(len(scene.tools))
                scene = scene.tool(at, doc=f"{scene.tools[at].doc}  \n\n    ")
            case _:
                edit = random.choice([_crlf, _cr, _bom, _commented, _spaced_marks])
                about.append(edit.__name__)
    return " ".join(about), scene, edit


def _crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def _cr(text: str) -> str:
    return text.replace("\n", "\r")


def _bom(text: str) -> str:
    return "\ufeff" + text


def _commented(text: str) -> str:
    return text.replace("---\nrequest", "---\n# a remark\nrequest", 2)


def _spaced_marks(text: str) -> str:
    return text.replace("---\nturn", "--- \nturn")


# -- damage ----------------------------------------------------------------------------------------


def damaged(random: Random, number: int, text: str) -> tuple[str, bytes]:
    """A damaged cassette, and how it was damaged: each number has the next one of the ways."""
    pieces = text.split("---\n")
    at, with_ = sorted(random.sample(range(1, len(pieces)), 2))
    lines = text.split("\n")
    line = random.randrange(1, len(lines) - 1)
    swapped = list(pieces)
    swapped[at], swapped[with_] = swapped[with_], swapped[at]
    key = re.compile(r"^([a-z]+): .*$", re.MULTILINE)
    typed = random.choice(["5", "[1]", "{a: b}", "null", "true", "-1", "1e999", '"x"'])
    place = random.choice(list(key.finditer(text)))
    kinds: dict[str, str | bytes] = {
        "lost": "---\n".join(pieces[:at] + pieces[at + 1 :]),
        "doubled": "---\n".join(pieces[: at + 1] + pieces[at:]),
        "swapped": "---\n".join(swapped),
        "cut": text[: random.randrange(len(text))],
        "cut at a line": "\n".join(lines[:line]) + "\n",
        "line lost": "\n".join(lines[:line] + lines[line + 1 :]),
        "line doubled": "\n".join(lines[: line + 1] + lines[line:]),
        "type": f"{text[: place.start()]}{place[1]}: {typed}{text[place.end() :]}",
        "tab": "\n".join([*lines[:line], f"\t{lines[line]}", *lines[line + 1 :]]),
        "conflict": "\n".join(
            [*lines[:line], "<<<<<<< HEAD", lines[line], "=======", lines[line], ">>>>>>> x", *lines[line + 1 :]]
        ),
        "empty": b"",
        "binary": random.randbytes(500),
        "UTF-16": text.encode("utf-16"),
        "CR": _cr(text),
        "CRLF": _crlf(text),
        "BOM": _bom(text),
        "mixed ends": "\n".join(one + random.choice(["", "\r"]) for one in lines),
        "bytes": text.encode()[:line] + bytes([255]) + text.encode()[line:],
        "key": text[: place.start()] + "x" + text[place.start() :],
        "second mark": text.replace("---\n", "--- x\n", 1),
    }
    name, found = list(kinds.items())[number % len(kinds)]
    return name, found if isinstance(found, bytes) else found.encode()
