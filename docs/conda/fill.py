"""Writes recipe.yaml, beside this file: python docs/conda/fill.py [SDIST].

The requirements, the licence and the summary are those of pyproject.toml. The version and the hash are those of the
sdist, if one is named. It needs the package packaging.
"""

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPE = Path(__file__).parent / "recipe.yaml"
NAMES = {"docstring-parser": "docstring_parser"}
"""The packages that have another name on conda-forge than on PyPI."""
EXTRAS = ("local", "openai", "gemini", "anthropic", "ollama", "mcp", "acp", "keyring", "dask")
"""What a user may add. The other extras are for notebooks of this repository, tests and the site."""
SYSTEMS = ("linux", "darwin", "win32")
"""A package that is the same for all systems can only require what each of them needs."""


def in_conda(requirements: Iterable[str]) -> Iterator[str]:
    """Yield requirements in the form of conda, in alphabetical order and each once."""
    read = (Requirement(line) for line in requirements)
    everywhere = [
        one
        for one in read
        if one.name != "agentmagic"
        and (one.marker is None or all(one.marker.evaluate({"sys_platform": system}) for system in SYSTEMS))
    ]
    yield from sorted({f"{NAMES.get(one.name, one.name)} {one.specifier}" for one in everywhere})


def with_list(recipe: str, key: str, kept: int, lines: Iterable[str]) -> str:
    """Return the recipe with a list under a key. The first entries, of which `kept` is the number, stay."""
    entries = "".join(f"    - {line}\n" for line in lines)
    old = rf"(?m)(^  {key}:\n(?:    - .*\n){{{kept}}})(?:    - .*\n)*"
    return re.sub(old, lambda found: found[1] + entries, recipe)


def with_value(recipe: str, key: str, value: str) -> str:
    """Return the recipe with a value of a key, on its line."""
    return re.sub(rf"(?m)(?<=^  {key}: ).*", lambda _: value, recipe, count=1)


def filled(recipe: str) -> str:
    """Return the recipe with what pyproject.toml says."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = config["project"], config["project"]["optional-dependencies"]
    recipe = with_list(recipe, "host", 2, in_conda(config["build-system"]["requires"]))
    recipe = with_list(recipe, "run", 1, in_conda(project["dependencies"]))
    recipe = with_list(recipe, "run_constraints", 0, in_conda(line for name in EXTRAS for line in extras[name]))
    recipe = with_value(recipe, "python_min", f'"{project["requires-python"].removeprefix(">=")}"')
    recipe = with_value(recipe, "summary", f'"{project["description"]}"')
    return with_value(recipe, "license", project["license"])


def of_sdist(recipe: str, sdist: Path) -> str:
    """Return the recipe for a release, with the version in the name of its sdist and the hash of the file."""
    named = re.fullmatch(r"agentmagic-(\d[\w.]*)\.tar\.gz", sdist.name)
    if not named:
        sys.exit(f"{sdist.name} is not the sdist of a release. `bash .ci/release` makes agentmagic-VERSION.tar.gz.")
    recipe = with_value(recipe, "version", f'"{named[1]}"')
    return with_value(recipe, "sha256", f'"{hashlib.sha256(sdist.read_bytes()).hexdigest()}"')


def main(*sdist: str) -> None:
    """Fill in the recipe."""
    recipe = filled(RECIPE.read_text(encoding="utf-8"))
    RECIPE.write_text(of_sdist(recipe, Path(*sdist)) if sdist else recipe, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
