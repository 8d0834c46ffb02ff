"""What axe-core finds wrong with a page, for those who hear it, or see little of it."""

from typing import Any

import pytest
from playwright.sync_api import Page

from agentmagic.text import word_set
from tests.browser.lab import ROOT

AXE = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Page, selector: str = ":root") -> list[dict[str, Any]]:
    """Return the rules that are broken within an element, our shadow trees included, if axe-core is there."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed; npm ci in js/ does it")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate("async selector => (await axe.run(selector)).violations", selector)


def findings(rules: list[dict[str, Any]]) -> list[str]:
    """Return a line for each place where a rule is broken."""
    return [f"{rule['id']}: {node['html'][:200]}" for rule in rules for node in rule["nodes"]]


def serious(page: Page, selector: str) -> list[str]:
    """Return the findings within an element that are serious or worse."""
    return findings([rule for rule in violations(page, selector) if rule["impact"] in ("serious", "critical")])


NAMED = word_set(
    "alertdialog button checkbox combobox dialog Details DisclosureTriangle form group image img link list listbox log "
    "menu menuitem navigation option progressbar radio radiogroup region search searchbox slider spinbutton switch tab "
    "tablist tabpanel textbox toolbar"
)
"""The roles whose elements a screen reader announces by a name."""

OURS = """function() {
  for (let node = this; node; node = node.parentNode ?? node.host) {
    if (!(node instanceof Element)) continue
    // The lists of an answer have no names, nor have JupyterLab's own cells.
    if (node.matches('.am-text, .am-rich, .jp-Cell')) return ''
    if (node.matches('[class*="agentmagic"], agentmagic-view, agentmagic-line')) return this.outerHTML.slice(0, 160)
  }
  return ''
}"""
"""Returns the beginning of an element's HTML if the element is ours, else ""."""


def unnamed(page: Page) -> list[str]:
    """Return a line for each of our elements that has no name in the page's accessibility tree, but needs one."""
    client = page.context.new_cdp_session(page)

    def html_of(node: dict[str, Any]) -> str:
        element = client.send("DOM.resolveNode", {"backendNodeId": node["backendDOMNodeId"]})["object"]["objectId"]
        call = {"objectId": element, "functionDeclaration": OURS, "returnByValue": True}
        return client.send("Runtime.callFunctionOn", call)["result"]["value"]

    nodes = [node for node in client.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    nameless = [node for node in nodes if node["role"]["value"] in NAMED and not node["name"]["value"].strip()]
    found = [f"{node['role']['value']}: {html}" for node in nameless if (html := html_of(node))]
    client.detach()
    return found
