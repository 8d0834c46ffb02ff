"""The site of the documentation as its readers get it: `.ci/run` builds it, or the first test here does."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from posixpath import dirname, normpath
from urllib.parse import unquote

import pytest

import agentmagic

pytest.importorskip("sphinx")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = {
    **{f"tutorials/walkthroughs/{path.stem}.html": path for path in ROOT.glob("notebooks/*.ipynb")},
    **{f"tutorials/lessons/{path.stem}.html": path for path in ROOT.glob("notebooks/lessons/*.ipynb")},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, which AGENTMAGIC_SITE names if it has been built."""
    if built := os.environ.get("AGENTMAGIC_SITE"):
        return Path(built)
    folder = tmp_path_factory.mktemp("site") / "site"
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", folder]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """The HTML of each page, by its path."""
    files = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] not in ("_static", "lite")]
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_every_link_leads_to_a_page_and_a_place_of_the_site(site, pages):
    places = {page: set(re.findall(r'\bid="([^"]+)"', html)) for page, html in pages.items()}
    lost = []
    for page, html in pages.items():
        for link in set(re.findall(r'\b(?:href|src)="([^"]+)"', html)):
            path, _, place = link.replace("&amp;", "&").partition("#")
            if re.match(r"[a-z]+:", link) or page == "search.html":
                continue
            target = normpath(f"{dirname(page)}/{unquote(path.split('?')[0])}").lstrip("/") if path else page
            found = target in pages or (site / target).is_file()
            if not found or (place and target in places and unquote(place) not in places[target]):
                lost.append((page, link))
    assert lost == []


def test_a_link_to_elsewhere_is_the_whole_address_of_a_page_that_is_sent_encrypted(pages):
    addresses = {link for html in pages.values() for link in re.findall(r'\bhref="([a-z]+:[^"]*)"', html)}
    assert {link for link in addresses if not re.match(r"https://[\w-]+(\.[\w-]+)+(/|$)", link)} == set()


def test_a_page_names_no_folder_or_object_of_the_machine_that_built_it(pages):
    marks = re.compile(rf"{re.escape(str(ROOT))}|object at 0x")
    assert {page for page, html in pages.items() if marks.search(html)} == set()


def test_a_page_loads_nothing_from_elsewhere(pages):
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]+)"')
    assert {page: found for page, html in pages.items() if (found := loads.findall(html))} == {}


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_tutorial_has_the_outputs_that_are_saved_in_its_notebook(pages, page):
    cells = json.loads(NOTEBOOKS[page].read_text(encoding="utf-8"))["cells"]
    data = [output["data"] for cell in cells for output in cell.get("outputs", []) if "data" in output]
    shown = "".join("".join(entry.get("text/html", "")) for entry in data)
    assert pages[page].count('<div class="agentmagic') == shown.count('<div class="agentmagic') > 0
    assert pages[page].count("<details") >= shown.count("<details")
    pictures = shown.count('src="data:image') + sum("image/png" in entry for entry in data)
    assert pages[page].count('src="data:image') + pages[page].count("_images/") >= pictures


def test_every_public_name_is_described(pages):
    names = {f"agentmagic.{name}" for name in agentmagic.__all__}
    names |= {f"agentmagic.export.{name}" for name in import_module("agentmagic.export").__all__}
    names |= {"agentmagic.host.ScriptHost", "agentmagic.testing.check"}
    reference = "".join(html for page, html in pages.items() if page.startswith("reference/python/"))
    assert {name for name in names if f'id="{name}"' not in reference} == set()


def test_the_search_knows_words_of_each_kind_of_page(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert [
        word for word in ("ollama", "canteen", "agentmagic_schema_on", "agentmagic.Session") if word not in index
    ] == []
