"""The site of the documentation: `python -m sphinx -W --keep-going -b html docs build/site` builds it.

The site has pages that are not in this folder: the notebooks, with their saved outputs, and the changes. Therefore
Sphinx reads a copy of `docs` with these pages. In the copy, links between them lead to pages of the site. The copy
stands beside the site, in `build/site-source`.
"""

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from posixpath import basename, dirname, normpath, relpath
from typing import Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from ipython_pygments_lexers import IPython3Lexer
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

project = "agentmagic"
author = "agentmagic contributors"
copyright = author  # noqa: A001  (Sphinx looks for this name)
release = version_of("agentmagic")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

nb_execution_mode = "off"
myst_enable_extensions = ["attrs_block"]
myst_heading_anchors = 4

default_role = "code"  # docstrings have Markdown's backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
highlight_language = "text"
add_module_names = False
toc_object_entries_show_parents = "hide"
smartquotes = False
python_use_unqualified_type_names = True

# The address of the site, which ends with a slash. Without it there is no sitemap, and no link to a page's own address.
html_baseurl = os.environ.get("AGENTMAGIC_SITE_ADDRESS", "")
html_additional_pages = {"404": "404.html"}
html_context = {"site_root": urlsplit(html_baseurl).path or "/"}  # of the page 404, which is shown at any path

html_theme = "pydata_sphinx_theme"
html_title = "agentmagic"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static" / "scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "article_header_end": ["run-lesson"],
}

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
LAB = "lite/lab/index.html"
"""The page of the site that runs lessons."""
LINK = re.compile(r"(?<!!)\[(?P<words>[^\[\]]*)\]\((?P<target>[^()\s:#]+)(?P<anchor>#[^()\s]*)?\)")


def page_of(path: str) -> str | None:
    """Return the file of the site that a file of the repository becomes; None if it is not in the site."""
    folder, _, name = path.rpartition("/")
    match folder:
        case "notebooks" if name.endswith(".ipynb"):
            return f"tutorials/walkthroughs/{name}"
        case "notebooks/lessons" if name.endswith(".ipynb"):
            return f"tutorials/lessons/{name}"
        case "" if name == "CHANGELOG.md":
            return "changelog.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def with_links_of_the_site(text: str, path: str) -> str:
    """Return the text of a file with its links to files of the repository as those of the site.

    A link to a file that is not in the site becomes its words. The name of the page that runs lessons becomes a link,
    and each lesson in the list of lessons has one beside it.
    """
    place = page_of(path) or ""
    lab = relpath(LAB, dirname(place) or ".")

    def changed(link: re.Match[str]) -> str:
        target = normpath(f"{dirname(path)}/{link['target']}").lstrip("/")
        if not (ROOT / target).is_file():
            return link[0]  # Sphinx warns of it
        page = page_of(target)
        if not page:
            return link["words"]
        runs = ""
        if path == "docs/tutorials/lessons.md" and target.startswith("notebooks/lessons/"):
            runs = f' (<a href="{lab}?path={basename(target)}">run it here</a>)'
        return f"[{link['words']}]({relpath(page, dirname(place) or '.')}{link['anchor'] or ''}){runs}"

    return LINK.sub(changed, text).replace(f"`{LAB}`", f'<a href="{lab}">{LAB}</a>')


def copy_sources(folder: Path) -> None:
    """Make a folder the source of the site. Files that have not changed are not written, so that Sphinx knows them."""
    files = [file for file in DOCS.rglob("*") if file.is_file() and file.suffix in (".md", ".png", ".svg")]
    files += [*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("notebooks/lessons/*.ipynb"), ROOT / "CHANGELOG.md"]
    wanted = {folder / (page_of(path) or ""): path for path in (file.relative_to(ROOT).as_posix() for file in files)}
    for old in folder.rglob("*"):
        if old.is_file() and old not in wanted:
            old.unlink()
    for copy, path in wanted.items():
        data = (ROOT / path).read_bytes()
        if copy.suffix in (".md", ".ipynb"):
            text = with_links_of_the_site(data.decode(), path)
            data = text.replace("<th></th>", "<td></td>").encode()  # the corner of a pandas table heads nothing
        if not copy.is_file() or copy.read_bytes() != data:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)


class PublicNames(SphinxDirective):
    """`{public-names} MODULE ...`: what the docstrings say of the public names that live in these modules."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Any]:
        """Return the descriptions, in the order of the modules."""
        found = [line for module in self.arguments[0].split() for line in described(module)]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *found, "```"]))


def described(module: str) -> list[str]:
    """Return lines of reStructuredText that have autodoc describe the public names of a module."""
    package = importlib.import_module("agentmagic")
    homes: dict[str, str] = package._HOMES  # noqa: SLF001
    home = importlib.import_module(module)
    own = [name for name, value in vars(home).items() if getattr(value, "__module__", "") == module and name[0] != "_"]
    names = [name for name in homes if homes[name] == module] or getattr(home, "__all__", own)
    lines: list[str] = []
    for name in names:
        public = f"agentmagic.{name}" if name in homes else f"{module}.{name}"
        if isinstance(getattr(home, name), type):
            lines += [f".. autoclass:: {public}", "   :members:", ""]
        else:
            lines += [f".. autofunction:: {public}" if callable(getattr(home, name)) else f".. autodata:: {public}", ""]
    return lines


def escape_docstring(_app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Make text of a docstring that is plain Markdown mean the same in reStructuredText."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [re.sub(r"[*|]|_(?=\W|$)", r"\\\g<0>", piece) for piece in pieces[::2]]
        pieces[2::2] = [re.sub(r"^(?=\w)", r"\\ ", piece) for piece in pieces[2::2]]  # `Text`s
        lines[number] = "".join(pieces)


def add_lessons(app: Sphinx, failure: Exception | None) -> None:
    """Put the lessons that run in a page into the site."""
    if failure is None and app.builder.name == "html":
        subprocess.run([sys.executable, DOCS / "lite" / "build.py", Path(app.outdir) / "lite"], check=True)


def sitemap(addresses: list[str]) -> str:
    """Return the list of all pages that a search engine reads."""
    places = "".join(f"<url><loc>{escape(address)}</loc></url>\n" for address in addresses)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{SITEMAP}">\n{places}</urlset>\n'


def add_sitemap(app: Sphinx, failure: Exception | None) -> None:
    """Put the sitemap into the site, if its address is known: a sitemap holds whole addresses."""
    if failure is None and app.builder.name == "html" and app.config.html_baseurl:
        pages = map(app.builder.get_target_uri, sorted(app.env.found_docs))
        text = sitemap([app.config.html_baseurl + page for page in pages])
        (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Have Sphinx read the copy of `docs`, and add the lessons and the sitemap."""
    app.srcdir = type(app.srcdir)(f"{app.outdir}-source")
    copy_sources(Path(app.srcdir))
    app.add_directive("public-names", PublicNames)
    app.connect("build-finished", add_lessons)
    app.connect("build-finished", add_sitemap)
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)  # before napoleon
    app.add_lexer("python", IPython3Lexer)  # cells have magics
    app.add_lexer("agentmagic", IPython3Lexer)
    app.add_lexer("mermaid", TextLexer)  # a code host draws it; here the same stands below it as text
