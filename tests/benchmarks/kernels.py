"""What a kernel takes, bare and with agentmagic: `python -m tests.benchmarks.kernels`.

Memory is what only this process has (USS), which is what another kernel adds to a machine.
"""

import json
import sys
from pathlib import Path
from statistics import median
from tempfile import mkdtemp

import psutil

from tests.jupyter.harness import Kernel

TRIES = 3
LOAD = "%load_ext agentmagic\nimport threading"
JOIN = "[one.join() for one in threading.enumerate() if one.name.startswith('agentmagic-preload')]"
TURN = "%%agent\nHello."
STATES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "bare": ({}, ()),
    "%load_ext agentmagic": ({"AGENTMAGIC_MODEL": "scripted:script.json"}, (LOAD, JOIN)),
    "after a first turn": ({"AGENTMAGIC_MODEL": "scripted:script.json"}, (LOAD, JOIN, TURN)),
    "with the chat panel": ({"AGENTMAGIC_MODEL": "scripted:script.json"}, (LOAD, JOIN, TURN, "%agent chat")),
    "with the SDK of OpenAI": ({"OPENAI_API_KEY": "key"}, (LOAD, JOIN, "import openai")),
    "with MCP": ({"AGENTMAGIC_MODEL": "scripted:script.json"}, (LOAD, JOIN, TURN, "import mcp")),
    "with pandas alone": ({}, ("import pandas",)),
}
"""What is measured: the variables of a kernel, and its cells."""


def measure(variables: dict[str, str], cells: tuple[str, ...]) -> tuple[float, float]:
    """Return the memory of a kernel in MB, and its CPU seconds since its start."""
    folder = Path(mkdtemp())
    (folder / "script.json").write_text(json.dumps(["Hello."]), encoding="utf-8")
    quiet = {"IPYTHONDIR": str(folder), "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}
    with Kernel(sys.executable, {**quiet, **variables}, folder) as kernel:
        for cell in cells:
            assert (ended := kernel.run(cell)).ok, ended.error
        process = psutil.Process(kernel.pid)
        cpu = process.cpu_times()
        return process.memory_full_info().uss / 1e6, cpu.user + cpu.system


def main() -> None:
    """Print the median of a few kernels for each state."""
    for name, (variables, cells) in STATES.items():
        memory, cpu = zip(*(measure(variables, cells) for _ in range(TRIES)), strict=True)
        print(f"{name:24} {median(memory):6.0f} MB {median(cpu):6.2f} s CPU", flush=True)


if __name__ == "__main__":
    main()
