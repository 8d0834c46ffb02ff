"""Runs lessons in the kernel of JupyterLite, inside Pyodide, and reports what they put out; run.mjs calls `main`."""

import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

host = __import__("host")  # of run.mjs


class Cleaner:
    """The cleaner of nh3, whose work is done outside by the same library; see `sanitiser`."""

    def __init__(self, **options: Any) -> None:
        self._options = {name: _as_json(value) for name, value in options.items()}

    def clean(self, html: str) -> str:
        return json.loads(host.sanitise(json.dumps([self._options, html])))


def _as_json(value: Any) -> Any:
    if callable(value):
        return {"module": value.__module__, "name": value.__name__}
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return sorted(value) if isinstance(value, (set, frozenset)) else value


def offer_nh3() -> None:
    """Put the stand-in for nh3 among the modules."""
    nh3: Any = types.ModuleType("nh3")
    nh3.Cleaner, nh3.clean = Cleaner, lambda html, **options: Cleaner(**options).clean(html)
    sys.modules["nh3"] = nh3


class Page:
    """What the page gets of a kernel: the outputs of the running cell."""

    def __init__(self, shell: Any) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._clearing = False
        shell.display_pub.display_data_callback = self._display
        shell.display_pub.update_display_data_callback = self._update
        shell.display_pub.clear_output_callback = self._clear
        shell.displayhook.publish_execution_result = self._result
        shell.send_comm = lambda *_message: None  # widgets send, and no page draws
        for stream in (sys.stdout, sys.stderr):
            stream.publish_stream_callback = self._print

    def _add(self, output: dict[str, Any]) -> None:
        if self._clearing:
            self.outputs.clear()
            self._clearing = False
        self.outputs.append(output)

    def _print(self, name: str, text: str) -> None:
        if self.outputs and not self._clearing and self.outputs[-1].get("name") == name:
            self.outputs[-1]["text"] += text
        else:
            self._add({"output_type": "stream", "name": name, "text": text})

    def _display(self, data: Any, _metadata: Any, transient: Any) -> None:
        display_id = (transient or {}).get("display_id")
        self._add({"output_type": "display_data", "data": dict(data), "display_id": display_id})

    def _update(self, data: Any, _metadata: Any, transient: Any) -> None:
        for output in self.outputs:
            if output.get("display_id") == transient["display_id"]:
                output["data"] = dict(data)

    def _result(self, _count: int, data: Any, _metadata: Any) -> None:
        if data:  # an object that displayed itself leaves nothing
            self._add({"output_type": "execute_result", "data": dict(data)})

    def _clear(self, wait: bool) -> None:
        if wait:
            self._clearing = True
        else:
            self.outputs.clear()


async def replay(path: Path, page: Page, kernel: Any) -> list[dict[str, Any]]:
    """Run the cells of a notebook from top to bottom; return the outputs, the error and the seconds of each."""
    notebook = json.loads(path.read_text(encoding="utf-8"))  # noqa: ASYNC240  (nothing else runs)
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))  # as a kernel has the folder of its notebook
    run: list[dict[str, Any]] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        page.outputs.clear()
        # A notebook that is replayed is run as nbclient runs it, another as a page does.
        page_asks = os.environ["AGENTMAGIC_REPLAY"] == "live"
        kernel._parent_header = {
            "header": {"msg_type": "execute_request"},
            "metadata": {"cellId": cell["id"]} if page_asks else {},
            "content": {"allow_stdin": page_asks},
        }
        begun = time.monotonic()
        ended = await kernel.run("".join(cell["source"]))
        error = f"{ended['ename']}: {ended['evalue']}" if ended["status"] == "error" else ""
        seconds = round(time.monotonic() - begun, 2)
        run.append({"id": cell["id"], "outputs": list(page.outputs), "error": error, "seconds": seconds})
    sys.path.remove(str(path.parent))
    return run


async def main() -> str:
    """Run the notebooks of the host, each in a fresh namespace; return what each put out, as JSON."""
    offer_nh3()
    # jsonschema needs rpds-py, a compiled package; this one has its names, on top of pyrsistent.
    sys.modules["rpds"] = __import__("pyrsistent_as_rpds.pure").pure
    begun = time.monotonic()
    kernel_package: Any = __import__("pyodide_kernel")
    shell, kernel = kernel_package.ipython_shell, kernel_package.kernel_instance
    page = Page(shell)
    seconds = {"start": round(host.started / 1000, 2), "kernel": round(time.monotonic() - begun, 2)}
    notebooks: dict[str, Any] = {}
    for name in host.notebooks:
        path = Path(f"/host{name}")
        os.environ["AGENTMAGIC_REPLAY"] = "replay" if path.with_suffix(".cassette.yaml").exists() else "live"
        shell.reset(new_session=True)
        notebooks[path.stem] = await replay(path, page, kernel)
        await kernel.run("%unload_ext agentmagic")
        # The next notebook is to find a new kernel, in which sessions without a name are counted from one again.
        sys.modules["agentmagic.jupyter.extension"]._namespaces.clear()
    return json.dumps({"seconds": seconds, "notebooks": notebooks})
