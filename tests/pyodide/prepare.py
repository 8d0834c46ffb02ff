"""Puts what the tests need into a folder: python -m tests.pyodide.prepare FOLDER. Then AGENTMAGIC_PYODIDE names it.

Pyodide and a Node.js that can set a stack aside (JSPI) come from npm, the packages from PyPI. The distribution of
Pyodide, which has compiled packages, is in neither. Of those that we need, PyPI has the wheel of pydantic-core.
PyYAML and MarkupSafe work without their compiled part, and jsonschema with pyrsistent in place of rpds-py. nh3 has no
wheel; `sanitiser` stands in for it.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

NODE = ("pyodide@314.0.7", "node@26.10.0")
PYTHON = "3.14"
PLATFORM = "pyemscripten_2026_0_wasm32"
PLATFORM_OPTIONS = (
    *("--platform", PLATFORM, "--python-version", PYTHON, "--implementation", "cp"),
    *("--abi", "cp314", "--abi", "abi3", "--abi", "none", "--only-binary=:all:", "--ignore-requires-python"),
)
ELSEWHERE = {"jsonschema", "markupsafe", "nh3", "pyyaml"}
"""Requirements whose wheels for Pyodide, or those of what they need, are in its distribution only."""
EXACT = {"ipython": "==9.12.0"}
"""The version in the distribution, which JupyterLite loads before any cell runs."""
UNMET = (
    *("jsonschema==4.26.0", "referencing", "jsonschema-specifications", "attrs"),
    *("pyrsistent-as-rpds-py", "pyrsistent==0.20.0", "httpx2-jsfetch"),
)
"""Packages that pip would not choose by itself: it reads the markers of requirements for its own platform."""
SOURCES = {"pyyaml": "lib/yaml", "markupsafe": "src/markupsafe"}
KERNEL = "jupyterlite-pyodide-kernel==0.8.6"
ROOT = Path(__file__).parent.parent.parent


def requirements() -> list[str]:
    """Return the requirements of agentmagic in Pyodide that PyPI has wheels for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    read = [Requirement(line) for line in project["dependencies"]]
    there = {"sys_platform": "emscripten", "python_version": PYTHON}
    used = [one for one in read if one.name not in ELSEWHERE and (one.marker is None or one.marker.evaluate(there))]
    return [f"{one.name}{EXACT.get(one.name, one.specifier)}" for one in used]


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", *arguments, "--quiet"], check=True)


def install(site: Path) -> None:
    """Install the packages that the kernel in the page would have."""
    target = ("install", "--target", str(site), "--no-compile", *PLATFORM_OPTIONS)
    pip(*target, *requirements())
    pip(*target, "--no-deps", *UNMET)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", name, *SOURCES)
        for project, inside in SOURCES.items():
            (archive,) = folder.glob(f"{project}-*.tar.gz")
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
            shutil.copytree(folder / archive.name.removesuffix(".tar.gz") / inside, site / Path(inside).name)
        pip("download", "--no-deps", "--dest", name, KERNEL)
        with ZipFile(next(folder.glob("jupyterlite*.whl"))) as wheel:
            inner = [one for one in wheel.namelist() if "/pypi/pyodide_kernel" in one or "/pypi/ipykernel" in one]
            for one in inner:
                with wheel.open(one) as opened, ZipFile(opened) as kernel:
                    kernel.extractall(site)  # noqa: S202  (a wheel, which is unpacked to be used)


def main(folder: Path) -> None:
    """Fill the folder, unless it holds what this file asks for."""
    wanted = f"{Path(__file__).read_text(encoding='utf-8')}{requirements()}"
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = ("--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(["npm", "install", "--prefix", str(folder), *options, *NODE], check=True)
    install(folder / "site")
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
