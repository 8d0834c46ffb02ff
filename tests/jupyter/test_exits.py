"""Programs and tools that end themselves: the kernel, its variables and the turn go on."""

import ast

import pytest

from tests.jupyter.harness import Kernel
from tests.jupyter.test_notebook_tools import ALLOWED

TOOLS = """
import asyncio, builtins, os, sys, threading
precious = [1, 2]
def leave(*code):
    exit(*code)
def tidy():
    try:
        print("begun")
    finally:
        quit()
@tool
def plain():
    print("begun")
    exit()
@tool(thread_safe=True)
def pooled():
    sys.exit("enough")
@tool
async def awaited():
    await asyncio.sleep(0)
    quit()
@tool
async def gathered():
    async def part():
        sys.exit(4)
    await asyncio.gather(part(), asyncio.sleep(0))
@tool(loop="caller")
async def bound():
    await asyncio.sleep(0)
    sys.exit(5)
@tool(loop="caller")
async def parts():
    async def part():
        sys.exit(6)
    await asyncio.gather(part(), asyncio.sleep(0))
@tool(loop="caller")
async def interrupts():
    raise KeyboardInterrupt
"""
ENDED = "The program ended itself with exit code {}."


@pytest.fixture
def notebook(kernel):
    assert kernel.run(ALLOWED).ok
    assert kernel.run(TOOLS).ok
    return kernel


def is_alive(kernel: Kernel) -> bool:
    """Return whether the kernel has its variables, and will not end in a moment."""
    return kernel.run("print(precious, get_ipython().exit_now)").stream == "[1, 2] False\n"


def asks_to_exit(cell) -> bool:
    return any(one["source"] == "ask_exit" for one in cell.reply["content"]["payload"])


PROGRAMS = [
    ("x = 1\nquit\nx = 2", ENDED.format(0)),
    ("print('so far')\nleave(3)", "Printed:\nso far\n" + ENDED.format(3)),
    ("tidy()", "Printed:\nbegun\n" + ENDED.format(0)),
    ("raise SystemExit('all is done')", "The program ended itself: all is done"),
    ("import site, builtins\nsite.setquit()\nbuiltins.quit(2)", ENDED.format(2)),
    ("from IPython import get_ipython as g\ng().ask_exit()", ENDED.format(0)),
    ("get_ipython().kernel.do_shutdown(False)", ENDED.format(0)),
    ("import asyncio\nasync def f():\n    leave()\nawait asyncio.gather(f(), asyncio.sleep(0))", ENDED.format(0)),
    ("from concurrent.futures import ThreadPoolExecutor as P\nP().submit(exit, 6).result()", ENDED.format(6)),
    ("t = threading.Thread(target=exit)\nt.start()\nt.join()\nprint('went on')", "Printed:\nwent on"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("await asyncio.sleep(0)\nraise KeyboardInterrupt('mine')", "KeyboardInterrupt: mine"),
    ("async def f():\n    raise KeyboardInterrupt\nawait asyncio.gather(f(), asyncio.sleep(0))", "KeyboardInterrupt"),
    ("raise asyncio.CancelledError", "CancelledError"),
    ("asyncio.get_running_loop().stop()", ENDED.format(0)),
    ("try:\n    exit()\nexcept SystemExit:\n    print('kept on')", "Printed:\nkept on"),
]


def test_a_program_that_exits_ends_itself_and_says_so(notebook):
    notebook.run(f"program(*{[code for code, _ in PROGRAMS]!r}, max_iterations=20)")
    cell = notebook.run("%%agent\nGo.")
    assert cell.ok
    for (_, words), said in zip(PROGRAMS, ast.literal_eval(notebook.run("print(told())").stream), strict=True):
        assert said.strip().endswith(words)
        assert words.rpartition("\n")[2] in cell.text
    assert "(no output" not in cell.text
    assert not asks_to_exit(cell)
    assert is_alive(notebook)


@pytest.mark.parametrize("how", ["%%agent\nGo.", "agent.ask('Go.');", "await agent.start('Go.');"])
def test_a_tool_that_exits_has_failed_and_says_so(notebook, how):
    names = "plain", "pooled", "awaited", "gathered", "bound", "parts", "interrupts"
    notebook.run(f"play(*[calls(name) for name in {names}], 'Done.', tools=[{', '.join(names)}])")
    cell = notebook.run(how)
    assert cell.ok
    assert ast.literal_eval(notebook.run("print(told())").stream) == [
        "Printed:\nbegun\nThe tool ended itself with exit code 0.",
        "The tool ended itself: enough",
        "The tool ended itself with exit code 0.",
        "The tool ended itself with exit code 4.",
        "The tool ended itself with exit code 5.",
        "The tool ended itself with exit code 6.",
        "KeyboardInterrupt",
    ]
    assert not asks_to_exit(cell)
    assert is_alive(notebook)


LEFT = """
async def left():
    await asyncio.sleep(0.01)
    {0}
def end():
    {0}
kept = [asyncio.get_running_loop().create_task(left())]
asyncio.get_running_loop().call_later(0.02, end)
"""


@pytest.mark.parametrize("end", ["sys.exit(1)", "raise SystemExit", "raise KeyboardInterrupt", "exit()"])
def test_what_a_program_leaves_on_the_loop_of_the_kernel_does_not_end_it(notebook, end):
    notebook.run(f"program({LEFT.format(end)!r})")
    assert notebook.run("%%agent\nGo.").ok
    assert notebook.run("await asyncio.sleep(0.1)").ok  # longer than what is left behind
    assert is_alive(notebook)
