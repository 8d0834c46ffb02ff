"""The tool `run_python`: what its description says of the other tools."""

from types import SimpleNamespace
from typing import Any

from agentmagic.tools.functions import function_tool
from agentmagic.tools.notebook.code import program_tool


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def halve(number: int) -> float:
    """Halve a number."""
    return number / 2


def test_the_order_of_the_other_tools_changes_nothing_that_a_replay_compares():
    definitions = [function_tool(one).definition for one in (double, halve)]
    among: Any = program_tool(SimpleNamespace(namespace={})).among
    one, other = (among(tools).description for tools in (definitions, definitions[::-1]))
    assert "tools.double(number)" in one
    assert one == other
