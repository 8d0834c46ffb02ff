"""Takes the pictures of the docs: python -m tests.browser.pictures [--script].

The first notebook is run in JupyterLab, by the local model or by its script, and looked at twice: while an
answer streams in, and at the end with one card open. Then a chat panel is, light and dark, while a call waits.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import FloatRect, ViewportSize

from tests.browser.lab import ROOT, Lab, Notebook, retype

PICTURES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1060, "height": 1400}
PACE = 0.1
"""Seconds between the words of the script, so that there is something to see while they come."""

PATIENCE = 300.0
"""Seconds that a turn of the local model may take."""

WORDS = re.compile(r"\w+ \w+ \w+")
"""An answer of which some words are there."""

PANEL = """
%load_ext agentmagic
import pandas as pd
from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel

products = ["Lamp", "Chair", "Desk"]
sales = pd.DataFrame({"product": products, "revenue": [48_200, 31_950, 27_400], "returns": [12, 31, 4]})

@tool
def best_products(year: int) -> pd.DataFrame:
    "List the products of a year by revenue."
    return sales

@tool(ask=True)
def send_report(to: str, subject: str, attach: list[str]) -> str:
    "Send a report by mail."
    return "sent"

ANSWER = '''The **Lamp** sold best in 2025, a third above the Chair:

| product | revenue | returns per 1,000 |
|---|--:|--:|
| Lamp | 48,200 | 0.25 |
| Chair | 31,950 | 0.97 |
| Desk | 27,400 | 0.15 |

The Chair comes back four times as often, at a rate of $r = 31 / 31950$. To see it in the notebook:

```python
sales.assign(rate=sales.returns / sales.revenue).sort_values("rate")
```
'''

def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}

agent = Session(Agent(ScriptedModel([
    calls("best_products", year=2025),
    ANSWER,
    calls("send_report", to="ana@example.org", subject="What sold best in 2025", attach=["sales.csv"]),
])))
"""


def main() -> None:
    """Take the pictures."""
    env = {"AGENTMAGIC_MODEL": "scripted:scripts/01_first_agent.json"} if "--script" in sys.argv else {}
    PICTURES.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, Lab(Path(folder), env) as lab:
        shutil.copytree(ROOT / "notebooks", lab.folder, dirs_exist_ok=True)
        _slow_down(lab.folder / "scripts" / "01_first_agent.json")
        if not env:
            _warm_up(lab.folder / "01_first_agent.ipynb")
        lab.page.set_viewport_size(SIZE)
        lab.page.set_default_timeout(PATIENCE * 1000)
        notebook = lab.open(lab.folder / "01_first_agent.ipynb")
        notebook.page.evaluate("() => { jupyterapp.commands.execute('application:toggle-left-area') }")
        _take(notebook)
        notebook.close()
        _take_panel(lab)


def _take(notebook: Notebook) -> None:
    cells = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"]
    places = {cell["id"]: place for place, cell in enumerate(cells)}
    for cell in ("load", "choose", "function", "add-server", "warm-up", "ask-server"):
        if cell in places:
            notebook.run(places[cell])
    notebook.start(places["ask-function"])
    notebook.output(places["ask-function"]).locator(".am-busy p", has_text=WORDS).wait_for()
    _photograph(notebook, places["ask-server"], places["ask-function"], "streaming.png")
    notebook.finish(places["ask-function"])
    notebook.run(places["ask-nothing"])
    notebook.output(places["ask-function"]).locator(".am-card summary").click()
    _photograph(notebook, places["ask-server"], places["ask-nothing"], "first_agent.png")


def _take_panel(lab: Lab) -> None:
    notebook = lab.open(lab.write("panel.ipynb", [PANEL, "agent.chat()"]))
    notebook.run(0)
    notebook.run(1)
    panel = notebook.output(1)
    box = panel.get_by_label("Message", exact=True)
    for words, shown in [
        ("Which product sold best in 2025, and which is returned most?", "scripted:script"),
        ("Mail that to Ana, with the table attached.", "waits for you"),
    ]:
        retype(box, words)
        box.press("Enter")
        panel.get_by_text(shown).last.wait_for()
    _photograph(notebook, 1, 1, "panel.png")
    notebook.use_theme("JupyterLab Dark")
    _photograph(notebook, 1, 1, "panel_dark.png")
    notebook.use_theme("JupyterLab Light")
    notebook.close()


def _photograph(notebook: Notebook, first: int, last: int, name: str) -> None:
    """Take a picture of some cells, none of which is the active one."""
    clip: FloatRect = notebook.page.evaluate(
        """([first, last]) => {
          harness.panel().content.activeCellIndex = 0
          harness.cell(first).node.scrollIntoView()
          const top = harness.cell(first).node.getBoundingClientRect()
          const bottom = harness.cell(last).node.getBoundingClientRect()
          return {x: top.x, y: top.y, width: top.width, height: bottom.bottom - top.top}
        }""",
        [first, last],
    )
    notebook.page.screenshot(path=PICTURES / name, clip=clip)


def _warm_up(notebook: Path) -> None:
    """Have the local model loaded before the cells that are looked at, as it is after the first question."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    cell = {"cell_type": "code", "id": "warm-up", "metadata": {}, "outputs": [], "execution_count": None}
    cell["source"] = 'agent.ask("It is 10:00 in Rome. What is the time in Lima?")\nagent.clear()'
    place = next(number for number, other in enumerate(document["cells"]) if other["id"] == "ask")
    document["cells"].insert(place, cell)
    notebook.write_text(json.dumps(document), encoding="utf-8")


def _slow_down(script: Path) -> None:
    steps: list[Any] = json.loads(script.read_text(encoding="utf-8"))
    paced = [{"text": step, "pace": PACE} if isinstance(step, str) else step for step in steps]
    script.write_text(json.dumps(paced), encoding="utf-8")


if __name__ == "__main__":
    main()
