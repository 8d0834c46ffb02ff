"""Every Python block of the documentation runs, in the order of its page, without a network."""

import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from agentmagic import ScriptedModel, Session

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
NEEDS = {
    "docs/guide/bill.md": "pandas",
    "docs/guide/serve.md": "mcp",
    "docs/guide/clusters.md": "distributed",
    "docs/guide/maps.md": "pandas",
    "docs/guide/traces.md": "opentelemetry.sdk",
}
"""What the code of a page needs beyond the core; it is left out where that is missing."""

RUN = """
import json, os, sys, tempfile, warnings
warnings.simplefilter("error")
for page, blocks in json.load(sys.stdin).items():
    os.chdir(tempfile.mkdtemp(dir=os.environ["HOME"]))
    namespace = {"__name__": "__main__"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), namespace)
"""


@cache
def tokens_of(page: Path) -> list[Token]:
    return MarkdownIt().parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> list[str]:
    """The Python code of a page, block by block."""
    return [token.content for token in tokens_of(page) if token.type == "fence" and token.info == "python"]


def is_runnable(page: str) -> bool:
    try:
        return page not in NEEDS or find_spec(NEEDS[page]) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.slow
def test_the_code_of_every_page_runs(tmp_path):
    pages = {name(page): code for page in PAGES if (code := blocks(page))}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps({page: code for page, code in pages.items() if is_runnable(page)}),
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_the_documentation_imports_comes_from_the_package_itself():
    code = "\n".join("\n".join(blocks(page)) for page in PAGES if page.name != "servers.md")
    homes = set(re.findall(r"^from (agentmagic\S*) import", code, re.MULTILINE))
    assert homes == {"agentmagic", "agentmagic.export", "agentmagic.host", "agentmagic.testing"}


def test_every_public_member_of_a_session_is_documented():
    members = {name for name in (*dir(Session), *vars(Session(ScriptedModel([])))) if not name.startswith("_")}
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {name for name in members if not re.search(rf"[.`]{name}\b", pages)} == set()


def contents(page: Path) -> list[Path]:
    """The pages that the tables of contents of a page lead to, as the site has them."""
    lines = [line for token in tokens_of(page) if token.info == "{toctree}" for line in token.content.split("\n")]
    return [found for line in lines if line and line[0] != ":" for found in page.parent.glob(f"{line}.md")]


def test_the_contents_lead_to_every_page():
    found, ahead = set(), [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        ahead += [] if page in found else contents(page)
        found.add(page)
    assert {name(page) for page in PAGES} - {name(page) for page in found} == {"README.md"}


def test_every_page_opens_with_its_title_and_a_paragraph():
    kinds = {name(page): (tokens_of(page)[0].tag, tokens_of(page)[3].type) for page in PAGES}
    assert {page for page, kind in kinds.items() if kind != ("h1", "paragraph_open")} == set()


def test_the_page_of_settings_has_every_variable():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("agentmagic/**/*.py"))
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert {name for name in re.findall(r"AGENTMAGIC_[A-Z_]+", sources) if f"`{name}`" not in page} == set()


def test_the_links_of_every_page_lead_somewhere():
    lost = []
    for page in PAGES:
        inner = [child for token in tokens_of(page) for child in token.children or []]
        targets = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in inner]
        local = [target.split("#")[0] for target in targets if target and not target.startswith(("http", "#"))]
        lost += [(name(page), target) for target in local if not (page.parent / target).exists()]
    assert lost == []
