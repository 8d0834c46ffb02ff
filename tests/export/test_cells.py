import ast
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from agentmagic import Agent, Session, ToolContext, secrets, tool
from agentmagic.events import ApprovalAsked, ApprovalGiven, ToolFinished
from agentmagic.export import to_notebook
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.providers.scripted import ScriptedModel
from tests.display.logs import asked_for, carried_out, logs, one_call, one_text, over, started, step_over, text
from tests.display.test_html_attacks import PAYLOADS
from tests.export.test_document import said
from tests.export.turns import turn

CALL = ToolCall("c1", "area", {"width": 3, "height": 7})


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


def asked(name, arguments, *tools):
    """A session whose model made one call."""
    session = Session(Agent(ScriptedModel([{"calls": [{"name": name, "arguments": arguments}]}, "Done."]), tools=tools))
    session.ask("a prompt")
    return session


def settled(call, result, *before):
    """The cell of a call that was settled without being carried out."""
    events = [*started(), *asked_for(call), *step_over(), *before, ToolFinished(result), *over()]
    return sources(to_notebook([turn(*events)]))[-1]


def arguments_of(source, callee):
    """The positional and the named arguments of a cell that is one call and nothing else."""
    (statement,) = ast.parse(source).body
    call = statement.value
    assert ast.unparse(call.func) == callee
    named = {}
    for keyword in call.keywords:
        value = eval(ast.unparse(keyword.value), {"__builtins__": {"float": float}})  # noqa: S307  (what the test is about)
        named |= value if keyword.arg is None else {keyword.arg: value}
    return [ast.literal_eval(argument) for argument in call.args], named


def same(one, other):
    """Whether two values are the same, also where they hold a NaN."""
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


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


def test_the_notebook_is_valid():
    nbformat = pytest.importorskip("nbformat")
    for one in (turn(*one_call(CALL)), turn(*one_text("Yes.")), *map(said, PAYLOADS)):
        notebook = to_notebook([one, one])
        nbformat.validate(nbformat.from_dict(notebook))
        nbformat.validate(nbformat.reads(json.dumps(notebook), as_version=4))


def test_the_cells_run():
    namespace = {"area": area}
    for source in sources(to_notebook([turn(*one_call(CALL, server="notebook"))])):
        exec(source, namespace)  # noqa: S102  (what the test is about)
    cell, _ = called(CALL)
    assert eval(cell, namespace) == 21  # noqa: S307


def test_no_calls_need_no_setting_up():
    assert sources(to_notebook([turn(*one_text("Yes."))])) == []


def test_a_long_call_is_written_over_lines():
    cell, _ = called(ToolCall("c1", "area", {"width": "x" * 60, "height": "y" * 60}))
    assert cell == f"area(\n    width='{'x' * 60}',\n    height='{'y' * 60}',\n)"


@settings(deadline=None)
@given(_arguments)
def test_a_cell_is_the_very_call_and_nothing_else(arguments):
    cell, _ = called(ToolCall("c1", "area", arguments))
    positional, named = arguments_of(cell, "area")
    assert positional == []
    assert same(named, arguments)
    compile(cell, "cell", "exec")


@settings(deadline=None)
@given(st.text(min_size=1, max_size=10), _arguments)
def test_a_server_s_tool_is_called_through_the_session(name, arguments):
    cell, before = called(ToolCall("c1", name, arguments), server="clock")
    positional, named = arguments_of(cell, "session.call")
    assert positional == [name]
    assert same(named, arguments)
    compile(cell, "cell", "exec")
    assert before == [SESSION.format(servers="clock", tools="")]


@pytest.mark.parametrize("arguments", [{"x": object()}, {"x": {1, 2}}, {"x": 10**5000}])
def test_what_python_cannot_write_out_is_said_in_a_comment(arguments):
    cell, before = called(ToolCall("c1", "area", arguments))
    assert cell.startswith("# area is not called here: ")
    assert before == []


def test_arguments_nested_deeper_than_python_reads_are_said_in_a_comment():
    deep = []
    for _ in range(300):
        deep = [deep]
    cell, _ = called(ToolCall("c1", "area", {"x": deep}))
    assert cell == "# area is not called here: its arguments are nested too deep to be written out."


def test_subclasses_that_print_otherwise_are_written_as_what_they_are():
    class Sly(str):
        __slots__ = ()

        def __repr__(self):
            return "exit()"

    assert called(ToolCall("c1", "area", {"width": Sly("3")}))[0] == "area(width='3')"


# -- calls that are not made again -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("error", "# Not called here, since it failed: Two lines."),
        ("timeout", "# Not called here, since it failed: Two lines."),
        ("denied", "# Not called here, since it was denied: Two lines."),
        ("interrupted", "# Not called here, since it was interrupted: Two lines."),
    ],
)
def test_a_call_that_did_not_succeed_is_commented_out_with_why(status, why):
    cell = settled(CALL, ToolResult("c1", "area", (Text("Two\nlines."),), status))
    assert cell == f"{why}\n# area(width=3, height=7)"


def test_a_call_without_a_result_is_commented_out():
    events = [*started(), *asked_for(CALL), *step_over(), *over(stop="cancelled")]
    cell = sources(to_notebook([turn(*events)]))[-1]
    assert cell == "# Not called here, since it was interrupted\n# area(width=3, height=7)"


def test_a_denied_call_of_a_server_is_commented_out_as_it_would_be_called():
    asked = [ApprovalAsked("a", CALL, "shop"), ApprovalGiven("a", approved=False, reason="no")]
    cell = settled(CALL, ToolResult("c1", "area", (Text("Denied."),), "denied"), *asked)
    assert cell.endswith("# session.call('area', width=3, height=7)")


@pytest.mark.parametrize(
    "words", [*PAYLOADS, "\r!ls", "\x0cexit()", "a\u2028b", '"""', "'''\nexit()\n'''", "%%bash\nls", "\\"]
)
@pytest.mark.parametrize("status", ["ok", "error"])
@pytest.mark.parametrize("server", ["", "notebook", "%%bash\nexit()"])
def test_no_words_become_code(words, status, server):
    call = ToolCall("c1", words, {words: words})
    result = ToolResult("c1", words, (Text(words),), status)
    events = [*started(words), *asked_for(call), *step_over(), *carried_out(call, result, server), *over(words)]
    *before, cell = sources(to_notebook([turn(*events)]))
    if status == "ok":
        positional, named = arguments_of(cell, "session.call")
        assert (positional, named) == ([words], {words: words})
    else:
        assert ast.parse(cell).body == []
    for source in before:
        assert {type(node) for node in ast.parse(source).body} <= {ast.ImportFrom, ast.Assign}


@settings(max_examples=30, deadline=None)
@given(logs())
def test_every_log_gives_cells_that_are_comments_or_calls(log):
    for source in sources(to_notebook([turn(*log)])):
        assert {type(node) for node in ast.parse(source).body} <= {ast.ImportFrom, ast.Assign, ast.Expr}


@settings(deadline=None)
@given(_arguments)
def test_ipython_reads_a_cell_as_it_is_written(arguments):
    transformer = pytest.importorskip("IPython.core.inputtransformer2").TransformerManager()
    cell, _ = called(ToolCall("c1", "area", arguments))
    assert transformer.transform_cell(cell) == f"{cell}\n"


def test_secrets_are_blanked():
    secrets.register_secret("my-own-password")
    notebook = to_notebook([said("my-own-password")])
    assert "my-own-password" not in json.dumps(notebook)
    assert "my-own-password" not in called(ToolCall("c1", "area", {"my-own-password": {"my-own-password": 1}}))[0]


# -- with the agent's tools at hand ------------------------------------------------------------------


def test_a_function_is_called_by_its_own_name():
    cell, before = called(ToolCall("c1", "renamed", {"x": 1}), tools=[own_name])
    assert cell == "own_name(x=1)"
    assert before == ["# Define or import here the functions that are called below:\n# own_name"]


def test_an_async_function_is_awaited():
    assert called(ToolCall("c1", "fetch", {"url": "here"}), tools=[area, fetch])[0] == "await fetch(url='here')"


@pytest.mark.parametrize(
    ("function", "call", "source"),
    [
        (ask, ToolCall("c1", "ask", {"question": "Why?"}), "session.call('ask', question='Why?')"),
        (total, ToolCall("c1", "sum-up", {"numbers": [1, 2]}), "session.call('sum-up', numbers=[1, 2])"),
    ],
)
def test_a_function_that_takes_more_than_its_arguments_is_called_through_the_session(function, call, source):
    cell, before = called(call, tools=[function])
    assert cell == source
    assert before == [
        f"# Define or import here the functions that are called below:\n# {function.__name__}",
        SESSION.format(servers="none", tools=function.__name__),
    ]


def by_alias(width: int = Field(alias="w")) -> int:
    return width


def by_default(width: int = Field(3)) -> int:
    return width


@pytest.mark.parametrize(("function", "arguments"), [(by_alias, {"w": 3}), (by_default, {})])
def test_a_call_that_needs_the_field_of_a_parameter_is_made_through_the_session(function, arguments):
    name = function.__name__
    written = f"session.call('{name}'{''.join(f', {key}={value}' for key, value in arguments.items())})"
    assert called(ToolCall("c1", name, arguments), tools=[function])[0] == written


def test_a_call_that_names_a_variable_is_made_through_the_session():
    class Frame: ...

    @tool(variables={"sales": Frame()})
    def look(df: Frame) -> str:
        return type(df).__name__

    cell, *_ = called(ToolCall("c1", "look", {"df": "sales"}), tools=[look])
    assert cell == "session.call('look', df='sales')"


def test_the_cells_of_a_session_run():
    *before, cell = sources(to_notebook(asked("ask", {"question": "Why?"}, ask).turns, [ask]))
    namespace = {"ask": ask}
    for source in before:
        exec(source, namespace)  # noqa: S102  (what the test is about)
    assert eval(cell, namespace).text == "Why?"  # noqa: S307
    namespace["session"].close()


def test_a_tool_that_fails_in_a_session_is_a_comment():
    session = asked("area", {"width": "wide"}, area)
    cell = sources(to_notebook(session.turns, session.agent.tools))[-1]
    assert cell.startswith("# Not called here, since it failed: ")
    assert cell.endswith("\n# session.call('area', width='wide')")


def test_a_whole_number_is_a_float_to_python_too():
    assert called(CALL, tools=[area, object()])[0] == "area(width=3, height=7)"
