"""Code mode against the plain loop on three tasks: `python -m tests.benchmarks.code_mode`.

In the plain loop the model calls each tool itself, and reads each result. In code mode it writes one program, which
calls the tools as functions. The model is a script, so both ways do what they should; tokens are estimated from the
requests as the loop estimates them, four characters a token, the whole conversation for each request. The tools are
functions, and then those of a server of MCP that has the same functions.
"""

import csv
import io
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

from mcp.server import MCPServer

from agentmagic import Agent, Message, NotebookTools, Policy, Rule, RunResult, Session, Text, ToolResult, tool
from agentmagic.context.request_view import CHARACTERS
from agentmagic.host import NotebookCell, Output, ScriptHost
from agentmagic.messages import Content
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.serialization import encode
from tests.turns import hosted

ROWS = 50_000
CITIES = [f"city {number}" for number in range(20)]


class Bench:
    """A notebook for the benchmark: the variables of a dict."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}

    def run(self, code: str) -> None:
        """Run a program; it prints."""
        exec(compile(code, "program", "exec"), self.namespace)  # noqa: S102

    def cells(self) -> tuple[Sequence[NotebookCell], str]:
        """Return no cells."""
        return (), ""


class Printed:
    """Takes what a program prints; it is a `Capture`."""

    def __init__(self, _on_lines: Callable[[Callable[[], str]], None]) -> None:
        self._text = io.StringIO()
        self._taking = redirect_stdout(self._text)

    def start(self) -> None:
        """Take it from now on."""
        self._taking.__enter__()

    def stop(self) -> None:
        """Leave it again."""
        self._taking.__exit__(None, None, None)

    def draw(self) -> None:
        """Take no figures."""

    def leave_out(self, value: Any, shown: Sequence[Content]) -> None:
        """Drop no figures."""

    def parts(self) -> Sequence[Output]:
        """Return what was printed."""
        return ((Text(self._text.getvalue()), ""),) if self._text.getvalue() else ()


@tool
def orders() -> str:
    """Return the orders as CSV: order, customer, amount."""
    return "order,customer,amount\n" + "".join(f"{one},{one * 7 % ROWS},{one % 97}\n" for one in range(ROWS))


@tool
def customers() -> str:
    """Return the customers as CSV: customer, country."""
    return "customer,country\n" + "".join(f"{one},{'NO' if one % 3 else 'SE'}\n" for one in range(ROWS))


@tool
def weather(city: str) -> dict[str, Any]:
    """Return the weather of a city."""
    number = CITIES.index(city)
    return {"city": city, "temperature": number % 7 * 3, "wind": number, "sky": "clear", "station": f"station {number}"}


@tool
def step(number: int, text: str) -> str:
    """Do one step of a chain, and return the text for the next."""
    return f"{text} {number} " + "and so on " * 200


FUNCTIONS = (orders, customers, weather, step)


def server() -> MCPServer:
    """Return a server in memory that has the functions as its tools."""
    made = MCPServer("shop", log_level="ERROR")
    for function in FUNCTIONS:
        made.tool()(function)
    return made


Calls = Sequence[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """A task: the calls of the plain loop, step by step, and the program that does the same."""

    name: str
    plain: Sequence[Calls]
    program: str
    check: Callable[[str], bool]


def _answer() -> str:
    read = [list(csv.DictReader(io.StringIO(table))) for table in (orders(), customers())]
    country = {row["customer"]: row["country"] for row in read[1]}
    return str(sum(int(row["amount"]) for row in read[0] if country[row["customer"]] == "NO"))


JOIN = """
import csv, io
country = {row["customer"]: row["country"] for row in csv.DictReader(io.StringIO(tools.customers()))}
rows = csv.DictReader(io.StringIO(tools.orders()))
print(sum(int(row["amount"]) for row in rows if country[row["customer"]] == "NO"))
"""
LOOP = f"""
cities = {CITIES!r}
warm = [city for city in cities if tools.weather(city=city)["temperature"] > 15]
print(warm)
"""
CHAIN = """
text = "begin"
for number in range(5):
    text = tools.step(number=number, text=text)
print(len(text))
"""
CASES = (
    Case("join two tables of 50,000 rows", [[("orders", {}), ("customers", {})]], JOIN, lambda text: _answer() in text),
    Case("look at 20 items", [[("weather", {"city": city}) for city in CITIES]], LOOP, lambda text: "city 6" in text),
    Case(
        "chain of five tools",
        [[("step", {"number": number, "text": "begin"})] for number in range(5)],
        CHAIN,
        lambda text: text.strip().isdigit(),
    ),
)


def _step(calls: Calls) -> Any:
    return {"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}


def play(steps: Sequence[Any], *, code: bool, mcp: bool) -> tuple[RunResult, ScriptedModel]:
    """Play a turn; with `code` the model has the tool that runs programs."""
    model = ScriptedModel([*steps, "Done."])
    tools = [*(() if mcp else FUNCTIONS), *([NotebookTools(Bench())] if code else [])]
    servers = [server()] if mcp else []
    policy = Policy([Rule("allow", name) for name in ("run_python", *(one.__name__ for one in FUNCTIONS))])
    session = Session(Agent(model, tools=tools, mcp=servers, permission=policy, compact_at=None, max_result=None))
    return session.ask("Do the task."), model


def tokens(model: ScriptedModel, result: RunResult) -> int:
    """Return about how many tokens the requests of a turn had, and its answers."""
    sent = 0
    for request in model.requests:
        offered = [{"name": one.name, "about": one.description, "schema": one.parameters} for one in request.tools]
        sent += len(json.dumps(offered)) + sum(map(_length, request.messages))
    answered = sum(_length(message) for message in result.history_delta if message.role == "assistant")
    return (sent + answered) // CHARACTERS


def _length(message: Message) -> int:
    """Return the characters of a message as a model gets it: a server's structured content is for programs only."""
    parts = (replace(part, structured=None) if isinstance(part, ToolResult) else part for part in message.parts)
    return len(encode(replace(message, parts=tuple(parts))))


def measure(case: Case, *, mcp: bool) -> dict[str, tuple[int, int]]:
    """Return requests and tokens of a task in the plain loop and in code mode."""
    figures: dict[str, tuple[int, int]] = {}
    for way, steps in (
        ("plain", [_step(one) for one in case.plain]),
        ("code", [_step([("run_python", {"code": case.program})])]),
    ):
        result, model = play(steps, code=way == "code", mcp=mcp)
        results = [part for one in result.history_delta for part in one.parts if isinstance(part, ToolResult)]
        assert all(part.status == "ok" for part in results), [part.text[:200] for part in results]
        assert way == "plain" or case.check(results[-1].text), results[-1].text[:200]
        figures[way] = len(model.requests), tokens(model, result)
    return figures


@contextmanager
def kernel() -> Generator[None]:
    """Have tools run in the main thread and their output taken, as in a kernel."""
    host = ScriptHost()
    host.takes_tools, host.capture = True, Printed
    with hosted(host):
        yield


def main() -> None:
    """Print the table."""
    print("| task | plain loop | code mode |\n|---|---|---|")
    for mcp in (False, True):
        for case in CASES:
            with kernel():
                figures = measure(case, mcp=mcp)
            cells = (f"{requests} requests, {count:,} tokens" for requests, count in figures.values())
            print(f"| {case.name}{', by a server' if mcp else ''} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
