"""Programs and tools that end themselves: the kernel, its variables and the turn go on."""

import sys

import pytest

from tests.jupyter.conftest import SETUP
from tests.jupyter.harness import Kernel
from tests.jupyter.test_notebook_tools import ALLOWED

TOOLS = """
import asyncio, builtins, os, sys, threading
precious = [1, 2]
stop = exit
def leave(*code):
    exit(*code)
def tidy():
    try:
        print("begun")
    finally:
        quit()
@tool
def plain() -> str:
    "Exit in the main thread."
    print("begun")
    exit()
@tool(thread_safe=True)
def pooled() -> str:
    "Exit in a thread."
    sys.exit("enough")
@tool
async def awaited() -> str:
    "Exit on the loop of the session."
    await asyncio.sleep(0)
    quit()
@tool
async def gathered() -> str:
    "Exit in a task on the loop of the session."
    async def part():
        sys.exit(4)
    await asyncio.gather(part(), asyncio.sleep(0))
@tool(loop="caller")
async def bound() -> str:
    "Exit on the loop of the kernel."
    await asyncio.sleep(0)
    sys.exit(5)
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
    ("exit()", ENDED.format(0)),
    ("x = 1\nquit()\nx = 2", ENDED.format(0)),
    ("print('so far')\nexit(0)", "Printed:\nso far\n" + ENDED.format(0)),
    ("exit", ENDED.format(0)),
    ("x = 1\nquit\nx = 2", ENDED.format(0)),
    ("leave()", ENDED.format(0)),
    ("leave(3)", ENDED.format(3)),
    ("stop(7)", ENDED.format(7)),
    ("tidy()", "Printed:\nbegun\n" + ENDED.format(0)),
    ("exit(keep_kernel=True)", ENDED.format(0)),
    ("exit('all is done')", "The program ended itself: all is done"),
    ("raise SystemExit(3)", ENDED.format(3)),
    ("import sys\nprint('a')\nsys.exit('no rows')", "Printed:\na\nThe program ended itself: no rows"),
    ("import builtins\nbuiltins.exit(2)", ENDED.format(2)),
    ("import site, builtins\nsite.setquit()\nbuiltins.quit(2)", ENDED.format(2)),
    ("get_ipython().ask_exit()", ENDED.format(0)),
    ("get_ipython().exiter()", ENDED.format(0)),
    ("get_ipython().kernel.do_shutdown(False)", ENDED.format(0)),
    ("from IPython import get_ipython as g\ng().ask_exit()", ENDED.format(0)),
    ("import asyncio\nawait asyncio.sleep(0)\nexit()", ENDED.format(0)),
    ("import asyncio\nasync def f():\n    leave()\nawait asyncio.gather(f(), asyncio.sleep(0))", ENDED.format(0)),
    (
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(exit, 6).result()",
        ENDED.format(6),
    ),
    (
        "import threading\nt = threading.Thread(target=exit)\nt.start()\nt.join()\nprint('went on')",
        "Printed:\nwent on",
    ),
    ("try:\n    exit()\nexcept SystemExit:\n    print('kept on')", "Printed:\nkept on"),
    ("import argparse\nargparse.ArgumentParser(prog='p').parse_args(['--x'])", ENDED.format(2)),
]


@pytest.mark.parametrize(("code", "told"), PROGRAMS)
def test_a_program_that_exits_ends_itself_and_says_so(notebook, code, told):
    notebook.run(f"program({code!r})")
    cell = notebook.run("%%agent\nGo.")
    assert cell.ok
    assert notebook.run("print(*told())").stream.strip().endswith(told)
    assert "(no output" not in cell.text
    assert told.rpartition("\n")[2] in cell.text
    assert not asks_to_exit(cell)
    assert is_alive(notebook)


@pytest.mark.parametrize("how", ["%%agent\nGo.", "agent.ask('Go.');", "await agent.start('Go.');"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("plain", "Printed:\nbegun\nThe tool ended itself with exit code 0."),
        ("pooled", "The tool ended itself: enough"),
        ("awaited", "The tool ended itself with exit code 0."),
        ("gathered", "The tool ended itself with exit code 4."),
        ("bound", "The tool ended itself with exit code 5."),
    ],
)
def test_a_tool_that_exits_has_failed_and_says_so(notebook, name, told, how):
    notebook.run(f"play(calls({name!r}), 'Done.', tools=[{name}])")
    cell = notebook.run(how)
    assert cell.ok
    assert notebook.run("print(*told())").stream.strip() == told
    assert not asks_to_exit(cell)
    assert is_alive(notebook)


@pytest.mark.parametrize("code", ["exit(2)", "import builtins\nbuiltins.exit(2)", "leave(2)"])
def test_a_program_between_cells_ends_as_one_in_a_cell_does(notebook, code):
    notebook.run(f"program({code!r})\nrun = agent.start('Go.')")
    assert notebook.run("await run;").ok
    assert notebook.run("print(*told())").stream.strip() == ENDED.format(2)
    assert is_alive(notebook)


THREAD = """
import threading
left = threading.Timer(0.05, exit)
left.start()
"""
CALLBACK = """
import asyncio
left = asyncio.get_event_loop().create_future()
def late():
    left.set_result(None)
    exit()
asyncio.get_event_loop().call_later(0.05, late);
"""
TASK = """
import asyncio
async def late():
    await asyncio.sleep(0.05)
    exit()
left = asyncio.create_task(late())
await asyncio.sleep(0)
"""


@pytest.mark.parametrize(
    ("code", "wait"), [(THREAD, "left.join()"), (CALLBACK, "await left"), (TASK, "await asyncio.wait([left]);")]
)
def test_what_a_program_has_left_behind_does_not_end_the_kernel_either(notebook, code, wait):
    notebook.run(f"program({code!r})")
    assert notebook.run("%%agent\nGo.").ok
    cell = notebook.run(wait)
    assert cell.ok, cell.error
    assert not asks_to_exit(cell)
    assert is_alive(notebook)


def test_a_hook_that_exits_denies_the_call(notebook):
    notebook.run("def hook(call, tool):\n    exit()\nplay(calls('plain'), 'Done.', tools=[plain], permission=hook)")
    assert notebook.run("%%agent\nGo.").ok
    words = notebook.run("print(*told())").stream
    assert "the permission hook failed: " in words
    assert words.endswith("The code ended itself with exit code 0.\n")
    assert is_alive(notebook)


@pytest.mark.parametrize("line", ["%%agent", "%%agent --show", "%agent ask"])
@pytest.mark.parametrize("braces", ["{exit()}", "{get_ipython().ask_exit()}", "{leave()}", "{open('made', 'w')}"])
def test_braces_of_a_prompt_end_no_kernel_and_open_no_file(notebook, braces, line):
    notebook.run("play('Done.')")
    cell = notebook.run(f'{line} "Go {braces}."' if line == "%agent ask" else f"{line}\nGo {braces}.")
    assert cell.ok, cell.error
    assert f"{braces} stays as it is: " in cell.stream + cell.text
    assert not asks_to_exit(cell)
    assert notebook.run("print(os.path.exists('made'))").stream == "False\n"
    assert is_alive(notebook)


def test_a_kernel_without_the_extension_goes_on_and_ends_by_an_exit_of_its_user(tmp_path):
    with Kernel(sys.executable, {"IPYTHONDIR": str(tmp_path)}, tmp_path) as kernel:
        assert kernel.run(SETUP.replace("%load_ext agentmagic", "")).ok
        assert kernel.run(TOOLS).ok
        assert kernel.run(
            "play(calls('plain'), calls('awaited'), 'Done.', tools=[plain, awaited])\nagent.ask('Go.');"
        ).ok
        assert is_alive(kernel)
        assert kernel.value("agent.messages[-1].text") == "'Done.'"
        cell = kernel.run("stop()")
        assert asks_to_exit(cell)
        assert kernel.has_ended()
