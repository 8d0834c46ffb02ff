"""A conversation as the cells of a notebook: what is called, how, and that no words become code."""

import ast
import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from agentmagic import Agent, Session, ToolContext, secrets, tool
from agentmagic.events import ApprovalAsked, ApprovalGiven, ToolFinished, ToolStarted
from agentmagic.export import to_notebook
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.providers.scripted import ScriptedModel
from tests.display.logs import asked_for, carried_out, logs, one_call, one_text, over, started, step_over, text
from tests.display.test_html_attacks import PAYLOADS
from tests.export.test_document import said
from tests.export.turns import turn

CALL = ToolCall("c1", "area", {"width": 3, "height": 7})
HOSTILE = ["\r!ls", "\x0cexit()", "a\u2028b", '"""', "'''\nexit()\n'''", "%%bash\nls", "\\"]


def area(width: float, height: float) -> float:
    """Compute an area."""
    return width * height


async def fetch(url: str) -> str:
    """Fetch a page."""
    return url


def ask(question: str, ctx: ToolContext) -> str:
    """Ask back."""
    return question


@tool(name="sum-up")
def total(numbers: set[int]) -> int:
    """Add numbers."""
    return sum(numbers)


@tool(name="renamed")
def own_name(x: int) -> int:
    """Return it."""
    return x


SESSION = """\
from agentmagic import Agent, Session

# As the agent had it: Agent(mcp=...), with these servers: {servers}
mcp = {{}}
session = Session(Agent(tools=[{tools}], mcp=mcp))"""


def sources(notebook, kind="code"):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def called(call, server="notebook", tools=()):
    """The cell of one call, the cells that set it up, in order."""
    *before, cell = sources(to_notebook([turn(*one_call(call, Text("ok"), server=server))], tools))
    return cell, before


def by_alias(width: int = Field(alias="w")) -> int:
    return width


def by_default(width: int = Field(3)) -> int:
    return width


class Frame:
    """A class that JSON cannot carry."""


@tool(variables={"sales": Frame()})
def look(df: Frame) -> str:
    return type(df).__name__


def arguments_of(source, callee):
    """The positional arguments of a cell that is one call and nothing else, and the named ones as they are written."""
    (statement,) = ast.parse(source).body
    call = statement.value
    assert ast.unparse(call.func) == callee
    named = {}
    for keyword in call.keywords:
        value = eval(ast.unparse(keyword.value), {"__builtins__": {"float": float}})  # noqa: S307  (what the test is about)
        named |= value if keyword.arg is None else {keyword.arg: value}
    return [ast.literal_eval(argument) for argument in call.args], written(named)


def written(arguments):
    return {name: repr(value) for name, value in arguments.items()}  # NaN is like itself


_words = st.text(max_size=10) | st.sampled_from(
    ["class", "__debug__", "ﬁ", "x y", "", "%%bash", "!ls", '"""', "'", "\ud800", "\n#"]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _words | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=8,
)
_arguments = st.dictionaries(_words | st.sampled_from(["width", "name", "self"]), _values, max_size=4)


# -- cells -----------------------------------------------------------------------------------------


def test_a_run_becomes_prompt_call_and_answer():
    events = [
        *started("How large?"),
        *asked_for(CALL),
        *step_over(),
        *carried_out(CALL, ToolResult("c1", "area", ()), "notebook"),
    ]
    notebook = to_notebook([turn(*events, *started()[1:], *text("It is 21."), *step_over(2), *over("It is 21."))])
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]] == [
        ("code", "# Define or import here the functions that are called below:\n# area"),
        ("markdown", "How large?"),
        ("code", "area(width=3, height=7)"),
        ("markdown", "It is 21."),
    ]
    assert sources(to_notebook([turn(*one_text("Yes."))])) == []  # no calls need no setting up


def test_a_server_s_tool_is_called_through_the_session():
    setting_up = SESSION.format(servers="clock", tools="")
    assert called(CALL, server="clock") == ("session.call('area', width=3, height=7)", [setting_up])


def test_the_notebook_is_valid():
    nbformat = pytest.importorskip("nbformat")
    for one in (turn(*one_call(CALL)), turn(*one_text("Yes.")), *map(said, PAYLOADS)):
        nbformat.validate(nbformat.reads(json.dumps(to_notebook([one, one])), as_version=4))


@settings(deadline=None)
@given(_arguments)
def test_a_cell_is_the_very_call_and_nothing_else_and_ipython_reads_it_as_it_is_written(arguments):
    transformer = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    cell, _ = called(ToolCall("c1", "area", arguments))
    assert arguments_of(cell, "area") == ([], written(arguments))
    assert transformer.transform_cell(cell) == f"{cell}\n"


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


LONG = f"area(\n    width='{'x' * 60}',\n    height='{'y' * 60}',\n)"
FUNCTIONS = "# Define or import here the functions that are called below:\n# {}"


@pytest.mark.parametrize(
    ("function", "arguments", "cell"),
    [
        (area, {"width": 3, "height": 7}, "area(width=3, height=7)"),  # a whole number is a float to Python too
        (None, {"width": "x" * 60, "height": "y" * 60}, LONG),
        (None, {"x": {1, 2}}, "# area is not called here: "),
        (None, {"x": 10**5000}, "# area is not called here: "),
        (None, {"x": deep(300)}, "# area is not called here: its arguments are nested too deep to be written out."),
        (own_name, {"x": 1}, "own_name(x=1)"),
        (fetch, {"url": "here"}, "await fetch(url='here')"),
        (ask, {"question": "Why?"}, "session.call('ask', question='Why?')"),
        (total, {"numbers": [1, 2]}, "session.call('sum-up', numbers=[1, 2])"),
        (by_alias, {"w": 3}, "session.call('by_alias', w=3)"),
        (by_default, {}, "session.call('by_default')"),
        (look, {"df": "sales"}, "session.call('look', df='sales')"),
        (partial(area, 3), {"height": 7}, "session.call('area', height=7)"),  # area(height=7) is another call
    ],
)
def test_a_call_is_plain_if_python_takes_it_and_made_through_the_session_otherwise(function, arguments, cell):
    tools = (function, object()) if function else ()  # without the tools, the name is all that is known of one
    name = {own_name: "renamed", total: "sum-up"}.get(function) or getattr(function, "__name__", "area")
    source, before = called(ToolCall("c1", name, arguments), tools=tools)
    assert source.startswith(cell) if cell.endswith(": ") else source == cell
    defined = getattr(function, "__name__", "area")
    session = [SESSION.format(servers="none", tools=defined)] if "session." in source else []
    assert before == ([] if source.startswith("#") else [FUNCTIONS.format(defined), *session])


@pytest.mark.parametrize(
    ("status", "server", "why"),
    [
        ("error", "notebook", "it failed: Two lines."),
        ("denied", "shop", "it was denied: Two lines."),
        ("interrupted", "shop", "it was interrupted: Two lines."),
        (None, "notebook", "it was interrupted"),
    ],
)
def test_a_call_that_did_not_succeed_is_commented_out_with_why(status, server, why):
    events = [*started(), *asked_for(CALL), *step_over()]
    if status == "denied":
        events += [ApprovalAsked("a", CALL, server), ApprovalGiven("a", approved=False, reason="no")]
    elif status:
        events += [ToolStarted(CALL, server)]
    if status:
        events += [ToolFinished(ToolResult("c1", "area", (Text("Two\nlines."),), status))]
    call = "session.call('area', width=3, height=7)" if server == "shop" else "area(width=3, height=7)"
    assert sources(to_notebook([turn(*events, *over())]))[-1] == f"# Not called here, since {why}\n# {call}"


@pytest.mark.parametrize("words", [*PAYLOADS, *HOSTILE])
def test_no_words_become_code(words):
    call = ToolCall("c1", words, {words: words})
    for status, server in (("ok", "notebook"), ("ok", "%%bash\nexit()"), ("error", "")):
        result = ToolResult("c1", words, (Text(words),), status)
        events = [*started(words), *asked_for(call), *step_over(), *carried_out(call, result, server), *over(words)]
        *before, cell = sources(to_notebook([turn(*events)]))
        if status == "ok":
            assert arguments_of(cell, "session.call") == ([words], written({words: words}))
        else:
            assert ast.parse(cell).body == []
        for source in before:
            assert {type(node) for node in ast.parse(source).body} <= {ast.ImportFrom, ast.Assign}


@settings(max_examples=30, deadline=None)
@given(logs())
def test_every_log_gives_cells_that_are_comments_or_calls(log):
    for source in sources(to_notebook([turn(*log)])):
        assert {type(node) for node in ast.parse(source).body} <= {ast.ImportFrom, ast.Assign, ast.Expr}


def test_secrets_are_blanked():
    secrets.register_secret("my-own-password")
    assert "my-own-password" not in json.dumps(to_notebook([said("my-own-password")]))
    assert "my-own-password" not in called(ToolCall("c1", "area", {"my-own-password": {"my-own-password": 1}}))[0]


def test_the_cells_of_a_session_run():
    calls = [{"name": "ask", "arguments": {"question": "Why?"}}, {"name": "area", "arguments": {"width": "wide"}}]
    session = Session(Agent(ScriptedModel([{"calls": calls}, "Done."]), tools=[ask, area]))
    session.ask("a prompt")
    *before, cell, failed = sources(to_notebook(session.turns, session.agent.tools))
    namespace = {"ask": ask, "area": area}
    for source in before:
        exec(source, namespace)  # noqa: S102  (what the test is about)
    assert eval(cell, namespace).text == "Why?"  # noqa: S307
    assert failed.startswith("# Not called here, since it failed: ")
    namespace["session"].close()
