"""The site of the documentation as its readers get it: `.ci/run` builds it, or the first test here does."""

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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
SEARCHES = {
    # The questions of newcomers in questions.md.
    "stop the agent": "how-to/stop-a-turn.html",
    "api key": "how-to/set-a-key.html",
    "ollama": "how-to/use-ollama.html",
    "gateway proxy": "how-to/company-gateway.html",
    "approve tool": "how-to/approve-once.html",
    "undo": "how-to/undo-changes.html",
    "run in CI": "how-to/replay-in-ci.html",
    "cost limit": "how-to/limit-the-cost.html",
    "grade class": "how-to/grade-a-class.html",
    "jupyterhub": "how-to/jupyterhub.html",
    "vs code": "how-to/vs-code.html",
    "label rows": "how-to/label-a-frame.html",
    "mcp server": "how-to/add-an-mcp-server.html",
    "own function": "how-to/use-my-function.html",
    "data frame answer": "how-to/get-a-value.html",
    "export markdown": "how-to/export-a-chat.html",
    "kernel died": "how-to/reopen-a-chat.html",
    "confidential": "how-to/schema-only.html",
    "claude code": "how-to/use-claude-code.html",
    "without internet": "how-to/work-offline.html",
    # Of teachers.
    "lessons in a browser": "tutorials/browser.html",
    "students": "tutorials/lessons.html",
    "hand in": "guide/teaching.html",
    # Of administrators.
    "administrator policy": "reference/policy.html",
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
    # Of packagers.
    "oldest versions": "reference/packaging.html",
    "third-party licences": "reference/packaging.html",
    "conda-forge": "reference/packaging.html",
    "sdist": "reference/packaging.html",
    "build wheel": "reference/packaging.html",
    "cite": "reference/packaging.html",
}
"""What people type into the search, and the page that answers them."""
SHOWN = 5
"""So many pages that a search finds are seen without scrolling."""


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
        for link in set(re.findall(r'(?<!<base )\b(?:href|src)="([^"]+)"', html)):
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
    loads = re.compile(r'<(?:script|img|iframe|link(?! rel="canonical"))\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]+)"')
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


def test_each_lesson_has_links_that_run_it_in_the_browser(site, pages):
    for page, path in NOTEBOOKS.items():
        link = f'lite/lab/index.html?path={path.name}"'
        there = f'href="../../{link}' in pages[page], f'href="../{link}' in pages["tutorials/lessons.html"]
        assert set(there) == {path.parent.name == "lessons"}
    assert 'href="../lite/lab/index.html"' in pages["tutorials/browser.html"]
    assert 'href="tutorials/browser.html"' in pages["index.html"]
    assert (site / "lite" / "lab" / "index.html").is_file()


def test_the_sitemap_has_the_address_of_each_page():
    sitemap = runpy.run_path(str(ROOT / "docs" / "conf.py"))["sitemap"]
    addresses = ["https://docs.example.org/index.html", "https://docs.example.org/guide/a&b.html"]
    text = sitemap(addresses)
    assert [unescape(found) for found in re.findall(r"<url><loc>(\S+)</loc></url>", text)] == addresses


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright.sync_api")
    from tests.browser.lab import chromium, launched

    if chromium() is None:
        pytest.skip("there is no chromium")
    with launched() as started:
        yield started


@pytest.fixture(scope="module")
def address(site, pages):
    """The address of a server of the site, as a code host has it: what is not there is answered with the page 404."""
    (root,) = re.findall('<base href="(/[^"]*)" />', pages["404.html"])

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return super().translate_path(path.removeprefix(root))

        def send_error(self, *_said):
            self.send_response(404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(pages["404.html"].encode())

        def log_message(self, *_said):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Handler(*given, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{root}"
        server.shutdown()


def test_an_address_that_is_not_there_leads_back_to_the_site_from_any_depth(browser, address):
    page = browser.new_page()
    refused = []
    page.on("response", lambda response: refused.append(response.url) if response.status == 404 else None)
    asked = f"{address}guide/moved/long-ago.html"
    page.goto(asked)
    assert refused == [asked]
    page.get_by_role("link", name="how-to pages").click()
    page.wait_for_url(f"{address}how-to/index.html")


def test_searches_show_the_page_that_answers_them(browser, address):
    page = browser.new_page()
    missed = {}
    for typed, wanted in SEARCHES.items():
        page.goto(f"{address}search.html?q={quote(typed)}")
        page.wait_for_function("() => /found|not match/.test(document.querySelector('p.search-summary')?.textContent)")
        links = page.locator("#search-results ul.search a").evaluate_all("all => all.map(one => one.pathname)")
        found = list(dict.fromkeys(f"http://{address.split('/')[2]}{link}".removeprefix(address) for link in links))
        if wanted not in found[:SHOWN]:
            missed[typed] = found[:SHOWN]
    assert missed == {}


@pytest.mark.parametrize("look", [{"width": 1280, "scheme": "light"}, {"width": 400, "scheme": "dark"}], ids=str)
def test_everyone_can_use_the_pages(browser, site, look):
    size = {"width": look["width"], "height": 900}
    page = browser.new_page(viewport=size, color_scheme=look["scheme"], reduced_motion="reduce")
    assert {path: found for path in READ if (found := faults_of(page, site / path))} == {}


def faults_of(page, path):
    """The rules of axe that a page breaks, with its cards open, and whether it is wider than the window."""
    from tests.browser.axe import findings, violations

    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('.agentmagic details').forEach(card => { card.open = true; })")
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return findings(violations(page)) + ["wider than the window"] * wide
