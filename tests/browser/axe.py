"""What axe-core finds wrong with a page, for those who hear it, or see little of it."""

from typing import Any

import pytest
from playwright.sync_api import Page

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
