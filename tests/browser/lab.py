"""A real JupyterLab, or Notebook 7, in headless Chromium: opens notebooks, runs and interrupts cells, looks at them.

Whatever is waited for is a line of the server, a promise of JupyterLab or a condition of the page; nothing
sleeps. Server, kernels and browser are ended at the end, by their handles.
"""

import json
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Thread
from typing import IO, Any, Literal, Self

import nbformat
import pytest
from jupyter_core.paths import jupyter_path
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect, sync_playwright
from playwright.sync_api import TimeoutError as PageTimeoutError

from tests.conftest import PERSONAL

ROOT = Path(__file__).parent.parent.parent
EXTENSION = ROOT / "agentmagic" / "labextension"
CHROMIUM = "AGENTMAGIC_CHROMIUM"
"""The environment variable that names the browser, where it is not `chromium` on the path."""

TIMEOUT = 30.0
"""Seconds that the slowest thing may take, on a machine that does other work."""
expect.set_options(timeout=TIMEOUT * 1000)

SIZE: ViewportSize = {"width": 1300, "height": 1000}

FLAGS = (
    "--no-sandbox",  # which needs rights that root in a container has not
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # it would look for hosts that a closed network does not have
    "--disable-component-update",
    "--disable-sync",
)

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight stay in the page, to be looked at.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}

HARNESS = """
window.harness = {
  done: {},
  idle: 0,
  // The notebook, beside which another view of an output may be open.
  panel: () => [...window.jupyterapp.shell.widgets('main')].findLast(widget => widget.sessionContext && widget.content),
  cell: index => harness.panel().content.widgets[index],
  kernel: () => harness.panel().sessionContext.session.kernel,
  drawn: () => Boolean(window.jupyterapp && harness.panel()?.content.widgets.length),
  connected: () => harness.drawn() && Boolean(harness.panel().sessionContext.session?.kernel),
  ready: () => harness.connected() && harness.kernel().status === 'idle',
  open: async path => {
    await window.jupyterapp.restored
    harness.done = {}
    window.jupyterapp.shell.activateById((await window.jupyterapp.commands.execute('docmanager:open', {path})).id)
  },
  // What is in an element for somebody to see or to open: nothing hidden, and the inside of our own elements.
  shown: node => {
    if (node.nodeType === Node.TEXT_NODE) return node.data
    if (node.hidden || node.nodeName === 'STYLE') return ''
    return Array.from(node.assignedNodes?.() ?? (node.shadowRoot || node).childNodes, harness.shown).join('')
  },
  text: index => harness.cell(index) ? harness.shown(harness.cell(index).outputArea.node) : '',
  watch: () => harness.panel().sessionContext.iopubMessage.connect((_, message) => {
    const ended = message.header.msg_type === 'status' && message.content.execution_state === 'idle'
    if (ended && message.parent_header.msg_type === 'execute_request') harness.idle = Date.parse(message.header.date)
  }),
  run: index => {
    const notebook = harness.panel().content
    notebook.deselectAll()
    notebook.activeCellIndex = index
    harness.done[index] = false
    window.jupyterapp.commands.execute('notebook:run-cell').finally(() => { harness.done[index] = true })
  },
  runAll: () => {
    harness.done.all = false
    window.jupyterapp.commands.execute('notebook:run-all-cells').finally(() => { harness.done.all = true })
  },
  // A request of the server that goes on while the page is left.
  request: (method, path, body) => {
    const token = /_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? ''
    const headers = { 'Content-Type': 'application/json', 'X-XSRFToken': token }
    const { baseUrl } = window.jupyterapp.serviceManager.serverSettings
    return fetch(`${baseUrl}api/${path}`, { method, headers, body: body && JSON.stringify(body), keepalive: true })
  },
  close: () => {
    const panel = harness.panel()
    const id = panel?.sessionContext.session?.id
    panel?.dispose()
    return id && harness.request('DELETE', `sessions/${id}`)
  },
  interrupt: async () => {
    const sent = Date.now()
    await window.jupyterapp.commands.execute('notebook:interrupt-kernel')
    return sent
  },
}
"""
"""What the page is given to be driven by; `idle` is when the kernel said that the last cell was over, in ms."""


def chromium() -> str | None:
    """Return the path of the browser, or None where there is none."""
    return os.environ.get(CHROMIUM) or shutil.which("chromium")


@contextmanager
def launched() -> Iterator[Browser]:
    """Run the browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


def retype(box: Locator, text: str) -> None:
    """Replace what a box holds, by its keys."""
    box.press("ControlOrMeta+a")
    box.press_sequentially(text)


@dataclass(frozen=True)
class Notebook:
    """A notebook that is open in JupyterLab."""

    page: Page
    path: Path

    def start(self, index: int) -> None:
        """Run a cell and return at once."""
        self.page.evaluate("index => harness.run(index)", index)

    def finish(self, index: int, *signs: str) -> None:
        """Wait for the end of a cell that was started, and until what is drawn a moment later says all of this."""
        self.page.wait_for_function("index => harness.done[index]", arg=index)
        for sign in signs:
            self.wait_for_text(index, sign)

    def run(self, index: int, *signs: str) -> None:
        """Run a cell to its end, and wait until it says all of this."""
        self.start(index)
        self.finish(index, *signs)

    def printed(self, index: int) -> str:
        """Run a cell of Python to its end; return what it has printed, and its value."""
        self.run(index)
        return "".join(one.get("text") or one["data"]["text/plain"] for one in self.outputs(index)).strip()

    def start_all(self) -> None:
        """Run all cells and return at once."""
        self.page.evaluate("() => harness.runAll()")

    def finish_all(self) -> None:
        """Wait for the end of all cells."""
        self.page.wait_for_function("() => harness.done.all")

    def run_all(self) -> None:
        """Run all cells to the end of the last."""
        self.start_all()
        self.finish_all()

    def is_done(self, index: int) -> bool:
        return self.page.evaluate("index => harness.done[index]", index)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """Return the outputs of a cell as they would be saved."""
        return self.page.evaluate("index => harness.cell(index).model.outputs.toJSON()", index)

    def text(self, index: int) -> str:
        """Return the text that a cell shows, closed cards included, but nothing that stands aside."""
        return self.page.evaluate("index => harness.text(index)", index)

    def wait_for_text(self, index: int, text: str) -> None:
        """Wait until a cell shows a text."""
        try:
            self.page.wait_for_function("([index, text]) => harness.text(index).includes(text)", arg=[index, text])
        except PageTimeoutError:
            pytest.fail(f"cell {index} shows {self.text(index)!r} and not {text!r}")

    def type(self, text: str) -> None:
        """Answer the input box of the cell under way."""
        box = self.page.locator(".jp-Stdin-input")
        retype(box, text)
        box.press("Enter")

    def interrupt(self, index: int) -> float:
        """Interrupt the kernel as the menu does; return the seconds from the request to the end of the cell."""
        sent = self.page.evaluate("() => harness.interrupt()")
        self.finish(index)
        return (self.page.evaluate("() => harness.idle") - sent) / 1000

    def restart_kernel(self) -> None:
        """Restart the kernel as the menu does."""
        self.page.evaluate("async () => { await harness.kernel().restart() }")

    def shut_down_kernel(self) -> None:
        """End the kernel as the menu does."""
        self.page.evaluate("async () => { await harness.panel().sessionContext.shutdown() }")

    def save(self) -> None:
        self.page.evaluate("async () => { await harness.panel().context.save() }")

    def close(self) -> None:
        """Close the notebook and have its kernel ended, without waiting for that."""
        self.page.evaluate("() => { harness.close() }")

    def end(self) -> None:
        """Close the notebook, and wait until its kernel has ended: who opens it again before that is given this one."""
        self.page.evaluate("async () => { await harness.close() }")

    def close_tab(self) -> None:
        """Close the notebook; its kernel goes on."""
        self.page.evaluate("() => { harness.panel().dispose() }")

    def use_theme(self, name: str) -> None:
        """Change to a theme of JupyterLab, "JupyterLab Dark" for example."""
        self.page.evaluate(
            "async theme => { await jupyterapp.commands.execute('apputils:change-theme', {theme}) }", name
        )
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def use_windowing(self, mode: str) -> None:
        """Have cells that are out of sight taken out of the page ("full"), or not ("none")."""
        self.page.evaluate(
            "mode => { const book = harness.panel().content;"
            " book.notebookConfig = { ...book.notebookConfig, windowingMode: mode } }",
            mode,
        )

    def scroll_to(self, index: int) -> None:
        """Bring a cell into sight."""
        self.page.evaluate("async index => { await harness.panel().content.scrollToItem(index) }", index)

    def output(self, index: int) -> Locator:
        """Return the output area of a cell."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputWrapper")


class Lab:
    """A JupyterLab server with its own settings and a browser before it, from `__enter__` to `__exit__`.

    Notebooks are in `folder`. `front_end` is what they are opened in: the server has both. `browser` is one that runs
    already, of which there can be one a thread. Without the `extension`, pages are as those of a JupyterLab that does
    not have ours.
    """

    front_end: Literal["lab", "notebook"] = "lab"

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str] | None = None,
        browser: Browser | None = None,
        *,
        extension: bool = True,
    ) -> None:
        self._browser = browser
        self._names = 0
        self._open = ExitStack()
        self.folder = folder / "notebooks"
        self.folder.mkdir()
        self._own = folder
        _write_settings(folder)
        extensions = _link_extensions(folder, ours=extension)
        self._server = _Server(self.folder, extensions, self._variables() | dict(env or {}))

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook of code cells."""
        metadata = {"kernelspec": {"name": "python3", "display_name": "python3", "language": "python"}}
        notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata=metadata)
        path = self.folder / name
        nbformat.write(notebook, path)
        return path

    def next_path(self) -> str:
        """Return a name for another notebook."""
        self._names += 1
        return f"{self._names}.ipynb"

    def start_next_kernel(self) -> None:
        """Start the kernel of the notebook that is written next, which is ready sooner when that is opened."""
        name = f"{self._names + 1}.ipynb"
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        self.page.evaluate("session => { harness.request('POST', 'sessions', session) }", session)

    def open(self, path: Path, until: Literal["drawn", "connected", "ready"] = "ready") -> Notebook:
        """Open a notebook, and wait until it is drawn, or connected to its kernel, or that is ready for a cell."""
        name = str(path.relative_to(self.folder))
        if self.front_end == "notebook":
            self.page.goto(f"{self._server.url}/notebooks/{name}")
        else:
            if not self.page.url.startswith(f"{self._server.url}/lab"):
                self.reload()
            self.page.evaluate("path => harness.open(path)", name)
        self.page.wait_for_function("until => harness[until]()", arg=until)
        self.page.evaluate("() => { harness.watch() }")
        return Notebook(self.page, path)

    def reload(self) -> None:
        """Load the page anew, as a person does who comes back."""
        self.page.goto(f"{self._server.url}/{'lab?reset' if self.front_end == 'lab' else 'tree'}")
        self.page.wait_for_function("() => window.jupyterapp")

    def interrupt(self, kernel: str) -> None:
        """Interrupt a kernel of which no notebook is open, by its id."""
        script = (
            "async id => { const kernel = jupyterapp.serviceManager.kernels.connectTo({ model: { id } });"
            " await kernel.interrupt(); kernel.dispose() }"
        )
        self.page.evaluate(script, kernel)

    def __enter__(self) -> Self:
        browser = self._browser or self._open.enter_context(launched())
        self.page = browser.new_page(viewport=SIZE)
        self.page.set_default_timeout(TIMEOUT * 1000)
        self.page.add_init_script(HARNESS)
        self.reload()
        return self

    def __exit__(self, *_: object) -> None:
        self.page.close()
        self._open.close()
        self._server.stop()

    def _variables(self) -> dict[str, str]:
        places = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "XDG_STATE_HOME": "state",
            "AGENTMAGIC_CACHE": "cache",  # without the local model, which may have been downloaded on this machine
            "HF_HOME": "huggingface",
        }
        own = {name: str(self._own / place) for name, place in places.items()}
        others = {name: value for name, value in os.environ.items() if not name.startswith(PERSONAL)}
        return {**others, **own, "PYTHONPATH": str(ROOT), "JUPYTER_PLATFORM_DIRS": "1"}


class _Server:
    """The server's process; `url` is known once it listens."""

    def __init__(self, folder: Path, extensions: Path, env: Mapping[str, str]) -> None:
        options = {
            "ServerApp.port": 0,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": True,
            "ServerApp.root_dir": folder,
            "IdentityProvider.token": "",
            "LabApp.expose_app_in_browser": True,
            "LabApp.labextensions_path": extensions,
            "JupyterNotebookApp.expose_app_in_browser": True,
            "JupyterNotebookApp.labextensions_path": extensions,
        }
        argv = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
        self._process = Popen(argv, cwd=folder, env=env, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True)
        assert self._process.stderr is not None
        self._log: IO[str] = self._process.stderr
        self.url = self._address()
        self._drain = Thread(target=deque, args=(self._log, 0), daemon=True)
        self._drain.start()

    def stop(self) -> None:
        """End the server, which ends its kernels."""
        self._process.terminate()
        try:
            self._process.wait(TIMEOUT)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain.join()
        self._log.close()

    def _address(self) -> str:
        said: list[str] = []
        for line in self._log:
            said.append(line)
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/lab", line):
                return found[1]
        raise RuntimeError(f"JupyterLab did not start:\n{''.join(said)}")


def _write_settings(folder: Path) -> None:
    for name, values in SETTINGS.items():
        path = folder / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def _link_extensions(folder: Path, *, ours: bool) -> Path:
    """Return a folder of the extensions that are installed, with ours as it is in this tree, or without it."""
    links = folder / "labextensions"
    for path in map(Path, reversed(jupyter_path("labextensions"))):
        for found in (*path.glob("[!@]*/package.json"), *path.glob("@*/*/package.json")):
            link = links / found.parent.relative_to(path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(found.parent.resolve(), target_is_directory=True)
    (links / "agentmagic").unlink(missing_ok=True)
    if ours:
        (links / "agentmagic").symlink_to(EXTENSION, target_is_directory=True)
    return links
