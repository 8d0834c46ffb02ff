"""Every Python block of the documentation runs, in the order of its page, without a network."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

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


def blocks(page: Path) -> list[str]:
    """The Python code of a page, block by block."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    return [token.content for token in tokens if token.type == "fence" and token.info == "python"]


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


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.name not in ("README.md", "index.md")]
    assert [page for page in pages if f"({page})" not in index] == []


def test_the_links_of_every_page_lead_somewhere():
    lost = []
    for page in PAGES:
        tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
        inner = [child for token in tokens for child in token.children or []]
        targets = [str(token.attrs.get("href") or token.attrs.get("src") or "") for token in inner]
        local = [target.split("#")[0] for target in targets if target and not target.startswith(("http", "#"))]
        lost += [(name(page), target) for target in local if not (page.parent / target).exists()]
    assert lost == []
