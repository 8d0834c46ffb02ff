"""Takes the pictures of the docs: python -m tests.browser.pictures [--script].

The first notebook is run in JupyterLab, by the local model or by its script, and looked at with one card open. Then a
chat panel is, while a call waits, and the panel beside a notebook, in which a cell is proposed and another one waits.
At the end a client in another process calls a notebook that is served, and an answer has sources, one of them open.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import FloatRect, ViewportSize

from tests.browser.lab import ROOT, Lab, Notebook, retype
from tests.serve.outside import Outside

PICTURES = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1060, "height": 1400}
HIDE_FILES = "() => { jupyterapp.commands.execute('application:toggle-left-area') }"
PATIENCE = 300.0
"""Seconds that a turn of the local model may take."""

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

DOCKED = """
from agentmagic import NotebookTools

agent = Session(Agent(ScriptedModel([
    calls("propose_cell", source="sales.plot.bar(x='product', y='revenue')", why="Draws the revenue by product."),
    "The **Lamp** sold best. The cell below draws it.",
    calls("send_report", to="ana@example.org", subject="What sold best in 2025", attach=["sales.csv"]),
]), tools=[NotebookTools(), send_report]))
"""
DOCKED_CELLS = (
    "%%agent\nWhich product of {sales} sold best? Propose a cell that draws it.",
    "%%agent\nMail that to Ana, with the table attached.",
)
SERVED = """
%load_ext agentmagic
import pandas as pd

sales = pd.DataFrame({"shop": ["Oslo", "Bergen", "Bodø"], "price": [12.5, 30.0, 41.2]})
"""
WEB = r"""
%load_ext agentmagic
from agentmagic import Agent, ScriptedModel, Session

NEW, PEP = "https://docs.python.org/3.15/whatsnew/3.15.html", "https://peps.python.org/pep-0810/"
TITLES = {NEW: "What's new in Python 3.15", PEP: "PEP 810: Explicit lazy imports"}
TEXTS = {
    NEW: "This article explains the new features in Python 3.15, compared to 3.14.",
    PEP: "This PEP introduces syntax for lazy imports as an explicit language feature.",
}

def cited(of, url, quote=""):
    return {"of": of, "url": url, "title": TITLES[url], "quote": quote}

agent = Session(Agent(ScriptedModel([{
    "searches": [{
        "query": "what's new in python 3.15",
        "found": [{"url": url, "title": TITLES[url], "text": TEXTS[url]} for url in TITLES],
    }],
    "text": "Python 3.15 makes **UTF-8 the default encoding** on every platform. Modules can be imported lazily:\n\n"
    "```python\nlazy import json\n```\n\nA module is then loaded at its first use.",
    "citations": [
        cited("UTF-8 the default encoding** on every platform", NEW, "Python now uses UTF-8 as the default encoding."),
        cited("Modules can be imported lazily", NEW),
        cited("Modules can be imported lazily", PEP),
        cited("loaded at its first use", PEP, "defers the loading of a module until its first use"),
    ],
}])))
"""
PROGRAM = """# Adds the price with tax, and draws it.
sales["gross"] = sales.price * 1.25
sales.plot.bar(x="shop", y="gross")"""
"""What the client of a served notebook runs."""
WIDE: ViewportSize = {"width": 1300, "height": 900}
"""Of the page with the panel beside the notebook."""
WIDER = 100
"""Pixels by which the panel is drawn wider than it is at first."""


def main() -> None:
    """Take the pictures, each in a JupyterLab that has shown nothing else."""
    PICTURES.mkdir(exist_ok=True)
    env = {"AGENTMAGIC_MODEL": "scripted:scripts/01_first_agent.json"} if "--script" in sys.argv else {}
    _open(_take_first, env)
    _open(_take_panel, {})
    _open(_take_docked, {})
    _open(_take_served, {})
    _open(_take_sources, {})


def _open(take: Callable[[Lab], None], env: Mapping[str, str]) -> None:
    with TemporaryDirectory() as folder, Lab(Path(folder), env) as lab:
        lab.page.set_viewport_size(SIZE)
        lab.page.set_default_timeout(PATIENCE * 1000)
        lab.page.evaluate("() => { jupyterapp.commands.execute('application:toggle-left-area') }")
        take(lab)


def _take_first(lab: Lab) -> None:
    shutil.copytree(ROOT / "notebooks", lab.folder, dirs_exist_ok=True)
    if "--script" not in sys.argv:
        _warm_up(lab.folder / "01_first_agent.ipynb")
    notebook = lab.open(lab.folder / "01_first_agent.ipynb")
    lab.page.evaluate(HIDE_FILES)
    cells = json.loads(notebook.path.read_text(encoding="utf-8"))["cells"]
    places = {cell["id"]: place for place, cell in enumerate(cells)}
    for cell in ("load", "choose", "function", "add-server", "warm-up", "ask-server", "ask-function", "ask-nothing"):
        if cell in places:
            notebook.run(places[cell])
    notebook.output(places["ask-function"]).locator(".am-card summary").click()
    _photograph(notebook, places["ask-server"], places["ask-nothing"], "first_agent.png")


def _take_panel(lab: Lab) -> None:
    notebook = lab.open(lab.write("panel.ipynb", [PANEL, "agent.chat()"]))
    lab.page.evaluate(HIDE_FILES)
    notebook.run(0)
    notebook.run(1)
    panel = notebook.output(1)
    box = panel.get_by_label("Message", exact=True)
    box.click()
    for words, shown in [
        ("Which product sold best in 2025, and which is returned most?", "scripted:script"),
        ("Mail that to Ana, with the table attached.", "waits for you"),
    ]:
        retype(box, words)
        box.press("Enter")
        panel.get_by_text(shown).last.wait_for()
    _photograph(notebook, 1, 1, "panel.png")
    notebook.close()


def _take_docked(lab: Lab) -> None:
    """Take the panel beside a notebook, without the parts of JupyterLab around them."""
    notebook = lab.open(lab.write("sales.ipynb", [PANEL + DOCKED, "sales", *DOCKED_CELLS]))
    page = notebook.page
    page.set_viewport_size(WIDE)
    for index in range(3):
        notebook.run(index)
    page.evaluate(HIDE_FILES)
    page.keyboard.press("Alt+Shift+P")
    page.locator(".agentmagic-dock").get_by_label("Message", exact=True).wait_for()
    edge = page.locator("#jp-right-stack").bounding_box()
    assert edge is not None
    page.mouse.move(edge["x"] - 2, 300)
    page.mouse.down()
    page.mouse.move(edge["x"] - WIDER, 300)
    page.mouse.up()
    notebook.start(3)
    page.locator(".agentmagic-dock").get_by_role("button", name="Approve", exact=True).wait_for()
    page.evaluate("() => { harness.cell(1).node.scrollIntoView() }")
    notebook.output(3).get_by_role("button", name="Always allow", exact=True).wait_for()
    page.screenshot(path=PICTURES / "docked_panel.png")
    notebook.interrupt(3)
    notebook.close()


def _take_served(lab: Lab) -> None:
    """Take a served notebook, whose client has looked at the variables and waits for a yes."""
    notebook = lab.open(lab.write("sales.ipynb", [SERVED, "%agent serve"]))
    lab.page.evaluate(HIDE_FILES)
    notebook.run(0)
    notebook.run(1, "No client has called yet.")
    env = {**os.environ, "XDG_STATE_HOME": str(lab.folder.parent / "state")}
    with Outside("claude-code", lab.folder, env) as client:
        client.call("list_variables")
        client.start("run_python", code=PROGRAM)
        notebook.output(1).locator(".am-approval:focus:not(.am-fresh)").wait_for()
        _photograph(notebook, 0, 1, "served.png")
    notebook.close()


def _take_sources(lab: Lab) -> None:
    """Take an answer with its sources, one of them open, below the search that found them."""
    notebook = lab.open(lab.write("python.ipynb", [WEB, "%%agent --web\nWhat is new in Python 3.15?"]))
    lab.page.evaluate(HIDE_FILES)
    notebook.run(0)
    notebook.start(1)
    answer = notebook.output(1)
    answer.get_by_role("button", name="Allow in this session").click()
    number = answer.get_by_role("button", name="source 2: PEP 810: Explicit lazy imports").last
    number.wait_for()
    answer.locator(".am-card summary").last.click()
    number.click()
    _photograph(notebook, 1, 1, "sources.png")
    notebook.close()


def _photograph(notebook: Notebook, first: int, last: int, name: str) -> None:
    """Take a picture of some cells, none of which is the active one."""
    clip: FloatRect = notebook.page.evaluate(
        """([first, last]) => {
          harness.panel().content.deselectAll()
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


if __name__ == "__main__":
    main()
