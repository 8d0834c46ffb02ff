"""The site of the documentation as its readers get it: `.ci/run` builds it, or the first test here does."""

import json
import os
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from posixpath import dirname, normpath
from urllib.parse import quote, unquote

import pytest

import agentmagic

pytest.importorskip("sphinx")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = {
    **{f"tutorials/walkthroughs/{path.stem}.html": path for path in ROOT.glob("notebooks/*.ipynb")},
    **{f"tutorials/lessons/{path.stem}.html": path for path in ROOT.glob("notebooks/lessons/*.ipynb")},
}
READ = (
    "index.html",
    "tutorials/walkthroughs/04_code.html",
    "how-to/use-ollama.html",
    "reference/python/session.html",
    "reference/agent-commands.html",
    "explanation/comparison.html",
)
"""Pages of each kind, which are looked at with the rules of axe."""


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


ASKED: dict[str, str] = {
    "kernel culled while a turn runs": "guide/operations.html",
    "memory of a kernel": "guide/operations.html",
    "where are the logs": "guide/operations.html",
    "network folder NFS": "guide/operations.html",
    "delete lock files": "guide/operations.html",
    "what has each user spent": "guide/operations.html",
    "usage of all users": "guide/operations.html",
    "nbgrader": "guide/operations.html",
    "otter grader": "guide/operations.html",
    "licences of the JavaScript": "guide/operations.html",
    "one key for many users": "how-to/jupyterhub.html",
    "policy of the administrator": "reference/policy.html",
}
"""What an administrator types into the search, and the page that answers it."""
FIRST_HITS = 3


def test_an_administrator_finds_the_page_among_the_first_hits_of_the_search(site):
    pytest.importorskip("playwright.sync_api")
    from tests.browser.lab import chromium, launched

    if chromium() is None:
        pytest.skip("there is no chromium")
    with launched() as browser:
        page = browser.new_page()
        found = {words: hits(page, site, words) for words in ASKED}
    assert {words: found[words] for words, answer in ASKED.items() if answer not in found[words]} == {}


def hits(page, site, words):
    """The pages of the first hits for words that are typed into the search."""
    page.goto((site / "search.html").as_uri() + f"?q={quote(words)}")
    page.locator("#search-results h2", has_text="Search Results").wait_for()  # the title once the search is over
    links = page.locator("#search-results li > a").evaluate_all("links => links.map(link => link.href)")
    ours = [link.removeprefix(f"{site.as_uri()}/").partition("#")[0].partition("?")[0] for link in links]
    return list(dict.fromkeys(ours))[:FIRST_HITS]


def test_the_pages_that_run_have_each_lesson_and_exactly_one_wheel_of_this_package(site):
    lessons = {path.name for path in NOTEBOOKS.values() if path.parent.name == "lessons"}
    files = site / "lite" / "files"
    assert {path.name for path in files.glob("*.ipynb")} == lessons
    for name in lessons:
        first = json.loads((files / name).read_text(encoding="utf-8"))["cells"][0]
        assert "%pip install -q agentmagic" in first["source"]
    listed = json.loads((site / "lite" / "api" / "contents" / "all.json").read_text(encoding="utf-8"))["content"]
    assert {entry["name"] for entry in listed} >= lessons
    (wheel,) = (site / "lite").rglob("agentmagic-*.whl")
    index = json.loads((wheel.parent / "all.json").read_text(encoding="utf-8"))
    assert [one["filename"] for release in index["agentmagic"]["releases"].values() for one in release] == [wheel.name]


def test_an_older_site_of_the_lessons_is_removed_and_no_other_folder(tmp_path):
    remove_old = runpy.run_path(str(ROOT / "docs" / "lite" / "build.py"))["remove_old"]
    (tmp_path / "thesis.md").touch()
    with pytest.raises(SystemExit, match="holds other files"):
        remove_old(tmp_path)
    assert (tmp_path / "thesis.md").is_file()
    (tmp_path / "jupyter-lite.json").touch()
    remove_old(tmp_path)
    assert not tmp_path.exists()
    remove_old(tmp_path)


@pytest.mark.parametrize("look", [{"width": 1280, "scheme": "light"}, {"width": 400, "scheme": "dark"}], ids=str)
def test_everyone_can_use_the_pages(site, look):
    pytest.importorskip("playwright.sync_api")
    from tests.browser.lab import chromium, launched

    if chromium() is None:
        pytest.skip("there is no chromium")
    with launched() as browser:
        size = {"width": look["width"], "height": 900}
        page = browser.new_page(viewport=size, color_scheme=look["scheme"], reduced_motion="reduce")
        faults = {path: found for path in READ if (found := faults_of(page, site / path))}
    assert faults == {}


def faults_of(page, path):
    """The rules of axe that a page breaks, with its cards open, and whether it is wider than the window."""
    from tests.browser.axe import findings, violations

    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('.agentmagic details').forEach(card => { card.open = true; })")
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return findings(violations(page)) + ["wider than the window"] * wide
