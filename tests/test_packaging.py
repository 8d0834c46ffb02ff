"""What a packager and a resolver of versions read: bounds, the recipe for conda-forge, the citation."""

import hashlib
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

packaging = pytest.importorskip("packaging.requirements")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
RECIPE = ROOT / "docs" / "conda" / "recipe.yaml"
FILL = runpy.run_path(str(ROOT / "docs" / "conda" / "fill.py"))
PAGE = (ROOT / "docs" / "reference" / "packaging.md").read_text(encoding="utf-8")


def bounds():
    read = [packaging.Requirement(line) for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]
    others = [one for one in read if one.name != "agentmagic"]
    return {one.name: {spec.operator: spec.version for spec in one.specifier} for one in others}


def test_each_requirement_says_its_oldest_version_which_ci_installs():
    assert [name for name, said in bounds().items() if ">=" not in said] == []


def test_the_page_for_packagers_names_the_oldest_versions_of_pyproject():
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert rows
    assert {name: version for name, version in rows if bounds()[name][">="] != version} == {}


def test_the_recipe_for_conda_forge_has_the_requirements_of_pyproject():
    text = RECIPE.read_text(encoding="utf-8")
    assert FILL["filled"](text) == text
    recipe = yaml.safe_load(text)
    needed = {line.partition(" ")[0].replace("_", "-") for line in recipe["requirements"]["run"]}
    only_in_a_browser = {"jsonschema"}
    core = {packaging.Requirement(line).name for line in PROJECT["dependencies"]}
    assert needed == core - only_in_a_browser | {"python"}
    assert "openai <4,>=3.54" in recipe["requirements"]["run_constraints"]
    assert [name for name in recipe["about"]["license_file"] if not (ROOT / name).is_file()] == []


def test_the_recipe_is_filled_in_from_an_sdist_of_a_release_and_of_nothing_else(tmp_path):
    sdist = tmp_path / "agentmagic-0.2.0.tar.gz"
    sdist.write_bytes(b"an sdist")
    recipe = yaml.safe_load(FILL["of_sdist"](RECIPE.read_text(encoding="utf-8"), sdist))
    assert recipe["context"]["version"] == "0.2.0"
    assert recipe["source"]["sha256"] == hashlib.sha256(b"an sdist").hexdigest()
    with pytest.raises(SystemExit, match="is not the sdist of a release"):
        FILL["of_sdist"]("", tmp_path / "agentmagic-0.1.0.dev3+g1.tar.gz")


def test_the_citation_names_the_package_and_its_licence():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["title"].startswith("agentmagic: ")
    assert {"cff-version", "message", "authors"} <= set(citation)
    assert citation["license"] == PROJECT["license"].split(" AND ")[:1]
