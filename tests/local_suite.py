"""Measures the real local model: the prompts of a suite file, and ten of our own. Prints Markdown tables.

    python -m tests.local_suite [SUITE.py]
    python -m tests.local_suite --chained

The second form compares the plain loop with planned turns on 24 prompts that need more than one call.

A suite file defines TOOLS (in OpenAI's form), `run_tool(name, arguments)` and CASES: tuples of a prompt, the
expected tool (None for none), a check of its arguments (None for any) and a regular expression that the final
answer must match. None of its prompts may stand in an example here. The file may also be named by
AGENTMAGIC_SUITE; without one only our own prompts are run. It takes five to fifteen minutes.
"""
# ruff: noqa: T201  (what it measures is printed)

import json
import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from types import SimpleNamespace
from typing import Any

from agentmagic import Agent, Session
from agentmagic.messages import Example, ToolCall, ToolDef, ToolResult
from agentmagic.tools.base import Tool, ToolContext, result

MODEL = "local:"
SHOWN = 110
"""Characters of an answer that the table shows."""

Source = Callable[..., Any] | Tool


@dataclass(frozen=True)
class Case:
    prompt: str
    tool: str | None
    arguments_fit: Callable[[dict[str, Any]], bool] | None
    answer: str

    def marks(self, calls: Sequence[ToolCall], answer: str) -> tuple[bool, bool | None, bool]:
        """Whether the tool, its arguments and the answer are right; None if no arguments were to be written."""
        tool = (calls[0].name if calls else None) == self.tool
        arguments = None if self.arguments_fit is None else tool and self.arguments_fit(dict(calls[0].arguments))
        return tool, arguments, _matches(self.answer, answer)


# What the suite's tools are called with, in words of our own.
EXAMPLES = {
    "get_weather": Example("How warm is it in Oslo?", {"city": "Oslo"}),
    "calculate": Example("What do 12 notebooks at 3.50 each cost?", {"expression": "12 * 3.50"}),
    "get_time": Example("How late is it in Sydney?", {"timezone": "Australia/Sydney"}),
    "list_tables": Example("What data is there?", {}),
    "run_sql": Example("How many orders are above 50?", {"sql": "SELECT COUNT(*) FROM orders WHERE amount > 50"}),
}


def suite_tool(suite: Any, function: dict[str, Any]) -> Tool:
    async def invoke(call: ToolCall, _context: ToolContext) -> ToolResult:
        return result(call, json.dumps(suite.run_tool(call.name, dict(call.arguments))))

    name = function["name"]
    examples = (EXAMPLES[name],) if name in EXAMPLES else ()
    return Tool(ToolDef(name, function["description"], function["parameters"], examples=examples), invoke)


METRES = {"m": 1.0, "km": 1000.0, "cm": 0.01, "miles": 1609.344, "feet": 0.3048, "inches": 0.0254}
BOOKS = {"le guin": ["The Dispossessed", "A Wizard of Earthsea"], "lem": ["Solaris"], "austen": ["Emma"]}
STOCK = {"pencil": 140, "stapler": 12, "printer paper": 0, "notebook": 36}
WORDS = {("bread", "spanish"): "pan", ("dog", "german"): "Hund", ("cat", "french"): "chat"}


def convert_length(value: float, unit: str, to: str) -> str:
    """Convert a length into another unit: m, km, cm, miles, feet or inches.

    Example: How many feet are 3 metres? -> {"value": 3, "unit": "m", "to": "feet"}
    """
    return f"{value:g} {unit} are {value * METRES[unit] / METRES[to]:.2f} {to}"


def days_between(start: str, end: str) -> int:
    """Count the days from one date to another, both as YYYY-MM-DD.

    Example: How long is it from 5 May 2021 to 9 June 2021? -> {"start": "2021-05-05", "end": "2021-06-09"}
    """
    return (date.fromisoformat(end) - date.fromisoformat(start)).days


def books_by(author: str) -> list[str]:
    """List the books of an author that the library has.

    Example: What do you have by Jane Austen? -> {"author": "Jane Austen"}
    """
    return next((titles for name, titles in BOOKS.items() if name in author.lower()), [])


def in_stock(item: str) -> str:
    """Look up how many pieces of an item are in stock.

    Example: Are there notebooks in the cupboard? -> {"item": "notebook"}
    """
    return next((f"{item}: {count} in stock" for name, count in STOCK.items() if name in item.lower()), "unknown item")


def translate(word: str, language: str) -> str:
    """Translate an English word into another language.

    Example: How do you say dog in German? -> {"word": "dog", "language": "German"}
    """
    return WORDS.get((word.lower(), language.lower()), "not in the dictionary")


OWN_TOOLS: list[Source] = [convert_length, days_between, books_by, in_stock, translate]


def fits(**expected: object) -> Callable[[dict[str, Any]], bool]:
    """Check arguments: numbers are equal, a text holds the expected words."""

    def check(arguments: dict[str, Any]) -> bool:
        return all(
            value.lower() in str(arguments.get(name)).lower()
            if isinstance(value, str)
            else arguments.get(name) == value
            for name, value in expected.items()
        )

    return check


OWN_CASES = [
    Case("How many kilometres are 26 miles?", "convert_length", fits(value=26, unit="miles", to="km"), r"41\.8"),
    Case("I am 180 cm tall. What is that in feet?", "convert_length", fits(value=180, unit="cm", to="feet"), r"5\.9"),
    Case(
        "How many days are there between 1 March 2024 and 15 April 2024?",
        "days_between",
        fits(start="2024-03-01", end="2024-04-15"),
        r"\b45\b",
    ),
    Case("Which books by Ursula Le Guin are there?", "books_by", fits(author="Le Guin"), r"Dispossessed.*Earthsea"),
    Case("Is there anything by Stanislaw Lem to read?", "books_by", fits(author="Lem"), r"Solaris"),
    Case("How many staplers are left?", "in_stock", fits(item="stapler"), r"\b12\b|twelve"),
    Case("Have we run out of printer paper?", "in_stock", fits(item="printer paper"), r"\b0\b|\byes\b|run out|\bno\b"),
    Case("What is the Spanish word for bread?", "translate", fits(word="bread", language="Spanish"), r"\bpan\b"),
    Case(
        "How do you say cat in French? And also: how many pencils are in stock?",
        "translate",
        fits(word="cat", language="French"),
        r"(?=.*\bchat\b)(?=.*\b140\b)",
    ),
    Case("Why is the sky blue?", None, None, r"scatter|light|wavelength"),
]


CAPITALS = {"france": "Paris", "italy": "Rome", "norway": "Oslo", "egypt": "Cairo", "japan": "Tokyo"}
WARMTH = {"paris": 18, "rome": 25, "oslo": 5, "cairo": 33, "tokyo": 15}
PRICES = {"umbrella": 12.5, "kettle": 30, "lamp": 45}


def capital(country: str) -> str:
    """Look up the capital of a country.

    Example: What is the capital of Peru? -> {"country": "Peru"}
    """
    return CAPITALS[country.lower()]


def temperature(city: str) -> str:
    """Look up the temperature in a city, in degrees Celsius.

    Example: How warm is it in Lima? -> {"city": "Lima"}
    """
    return f"{WARMTH[city.lower()]} degrees Celsius"


def to_fahrenheit(celsius: float) -> str:
    """Convert degrees Celsius into Fahrenheit.

    Example: What is 30 degrees in Fahrenheit? -> {"celsius": 30}
    """
    return f"{celsius * 1.8 + 32:g} degrees Fahrenheit"


def price(item: str) -> str:
    """Look up the price of one item, in euros.

    Example: What does a chair cost? -> {"item": "chair"}
    """
    return f"{next(cost for name, cost in PRICES.items() if name in item.lower()):g} euros"


def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Example: What is 14 times 3? -> {"a": 14, "b": 3}
    """
    return a * b


CHAIN_TOOLS: list[Source] = [capital, temperature, to_fahrenheit, price, multiply]
CHAINED = [
    # a result is a parameter of the next call
    (("How warm is it in the capital of France?",), r"\b18\b"),
    (("What is the temperature in the capital of Norway, in Fahrenheit?",), r"\b41\b"),
    (("What do 7 umbrellas cost?",), r"87\.5"),
    (("How warm is it in Rome, in Fahrenheit?",), r"\b77\b"),
    (("What do 4 kettles cost altogether? Look up the price first.",), r"\b120\b"),
    (("How hot is it in the capital of Egypt?",), r"\b33\b"),
    # two calls that have nothing to do with each other
    (("What is the capital of Japan? And what does a lamp cost?",), r"(?=.*Tokyo)(?=.*\b45\b)"),
    (("How warm is it in Oslo, and what is 6 times 7?",), r"(?=.*\b5\b)(?=.*\b42\b)"),
    (("What does a kettle cost? Also tell me the capital of Egypt.",), r"(?=.*\b30\b)(?=.*Cairo)"),
    (("How warm is it in Paris? And how much is an umbrella?",), r"(?=.*\b18\b)(?=.*12\.5)"),
    (("Multiply 12 by 8, and tell me the temperature in Cairo.",), r"(?=.*\b96\b)(?=.*\b33\b)"),
    (("What is 20 degrees Celsius in Fahrenheit, and what is the capital of Norway?",), r"(?=.*\b68\b)(?=.*Oslo)"),
    # the same tool for two things
    (("How warm is it in Paris and in Rome?",), r"(?=.*\b18\b)(?=.*\b25\b)"),
    (("What do a lamp and a kettle cost?",), r"(?=.*\b45\b)(?=.*\b30\b)|\b75\b"),
    (("What are the capitals of France and Italy?",), r"(?=.*Paris)(?=.*Rome)"),
    (("Which is warmer, Oslo or Cairo?",), r"^\W*Cairo|Cairo is (warmer|hotter)|Cairo.*(warmer|hotter) than Oslo"),
    (("What is 6 times 7, and 9 times 9?",), r"(?=.*\b42\b)(?=.*\b81\b)"),
    (("Compare the prices of an umbrella and a lamp.",), r"(?=.*12\.5)(?=.*\b45\b)"),
    # a follow-up
    (("What is the capital of Italy?", "And how warm is it there?"), r"\b25\b"),
    (("What does a lamp cost?", "And what do 3 of them cost?"), r"\b135\b"),
    (("How warm is it in Oslo?", "And in Cairo?"), r"\b33\b"),
    (("How warm is it in Paris?", "What is that in Fahrenheit?"), r"64\.4"),
    (("What does an umbrella cost?", "And a kettle?"), r"\b30\b"),
    (("What is the capital of Japan?", "How warm is it there, in Fahrenheit?"), r"\b59\b"),
]


def compare_plans() -> None:
    """Print what the plain loop and planned turns made of the chained prompts."""
    print("| prompts | plain loop | planned |", "|---|---|---|", sep="\n")
    right = {False: 0, True: 0}
    for prompts, expected in CHAINED:
        cells = [" / ".join(prompts)]
        for plan in (False, True):
            _, said, seconds = _ask(CHAIN_TOOLS, prompts, plan=plan)
            right[plan] += _matches(expected, said)
            cells.append(f"{_mark(_matches(expected, said))} ({seconds:.0f} s) {_short(said)}")
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nRight final answers: plain loop {right[False]}, planned {right[True]} of {len(CHAINED)}.")


def _ask(tools: Sequence[Source], prompts: Sequence[str], *, plan: bool = False) -> tuple[list[ToolCall], str, float]:
    """Return the calls and the answer of the last prompt, and its seconds."""
    session = Session(Agent(MODEL, tools=tools, timeout=None))
    *before, last = prompts
    for prompt in before:
        session.ask(prompt)
    started = time.monotonic()
    outcome = session.ask(last, plan=plan)
    seconds = time.monotonic() - started
    session.close()
    return [call for message in outcome.history_delta for call in message.calls], outcome.final_text, seconds


def measure(title: str, tools: Sequence[Source], cases: Iterable[Case]) -> None:
    """Ask each prompt, and print a table of what came."""
    columns = ("prompt", "calls", "tool", "arguments", "answer", "seconds", "what it said")
    print("\n".join([f"### {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]))
    measured: list[tuple[bool, bool | None, bool]] = []
    times: list[float] = []
    for case in cases:
        calls, answer, seconds = _ask(tools, (case.prompt,))
        measured.append(case.marks(calls, answer))
        times.append(seconds)
        written = "; ".join(f"`{call.name}({json.dumps(dict(call.arguments))})`" for call in calls) or "none"
        marks = " | ".join(map(_mark, measured[-1]))
        row = f"| {case.prompt} | {written} | {marks} | {seconds:.1f} | {_short(answer)} |"
        print(row.replace("\n", " "), flush=True)
    tool, arguments, answers = zip(*measured, strict=True)
    fitting = [right for right in arguments if right is not None]
    median = sorted(times)[len(times) // 2]
    print(
        f"\nRight tool {sum(tool)} of {len(tool)}, right arguments {sum(fitting)} of {len(fitting)}, "
        f"right final answer {sum(answers)} of {len(answers)}; median {median:.1f} s a prompt.\n"
    )


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def _short(answer: str) -> str:
    said = " ".join(answer.replace("|", "\\|").split())
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}..."


def _mark(right: bool | None) -> str:
    return {True: "yes", False: "**no**", None: "-"}[right]


def main(arguments: Sequence[str]) -> None:
    if arguments == ["--chained"]:
        compare_plans()
        return
    given = arguments[0] if arguments else os.environ.get("AGENTMAGIC_SUITE")
    _, _, seconds = _ask((), ("Hello",))
    print(f"Loading, warming up and a first answer took {seconds:.1f} s.\n")
    if given:
        suite = SimpleNamespace(**runpy.run_path(given))
        tools = [suite_tool(suite, entry["function"]) for entry in suite.TOOLS]
        measure("The prompts of the suite", tools, [Case(*case) for case in suite.CASES])
    measure("Ten prompts of our own", OWN_TOOLS, OWN_CASES)


if __name__ == "__main__":
    main(sys.argv[1:])
