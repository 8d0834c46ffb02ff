"""Builds the lessons as a JupyterLite site: python docs/lite/build.py FOLDER. It needs agentmagic[site].

`docs/conf.py` calls it, so that the site of the documentation has the lessons in `lite`.
The page loads Pyodide and its compiled packages from Pyodide's own site, and the other packages from PyPI. Only the
wheel of this checkout is part of the site.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent.parent
LESSONS = "agentmagic/course/notebooks/lessons/"
INSTALL = """\
# This page has no agentmagic yet. It is fetched once for each notebook, which takes half a minute the first time.
%pip install -q agentmagic"""


def with_install(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with a first cell that installs agentmagic in the page."""
    cell = {"cell_type": "code", "id": "install", "metadata": {}, "source": INSTALL}
    kernel = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}
    cells = [cell | {"execution_count": None, "outputs": []}, *notebook["cells"]]
    return notebook | {"cells": cells, "metadata": notebook["metadata"] | {"kernelspec": kernel}}


def copy_lessons(wheel: Path, contents: Path) -> None:
    """Copy the lessons of a wheel, with their cassettes and checks."""
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(LESSONS):
                continue
            target = contents / name.removeprefix(LESSONS)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = archive.read(name)
            if target.suffix == ".ipynb":
                data = json.dumps(with_install(json.loads(data)), ensure_ascii=False).encode()
            target.write_bytes(data)


def remove_old(folder: Path) -> None:
    """Remove a site that was built before, whose wheel would stay beside the new one. Other files are not touched."""
    if (folder / "jupyter-lite.json").is_file():
        shutil.rmtree(folder)
    elif folder.is_dir() and any(folder.iterdir()):
        sys.exit(f"{folder} holds other files. Name an empty folder: python docs/lite/build.py FOLDER")


def main(folder: Path) -> None:
    """Build the site into a folder."""
    remove_old(folder)
    with TemporaryDirectory() as name:
        place = Path(name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", str(place / "wheels"), str(ROOT)], check=True)
        (wheel,) = (place / "wheels").glob("agentmagic-*.whl")
        copy_lessons(wheel, place / "contents")
        options = ["--lite-dir", name, "--contents", str(place / "contents"), "--piplite-wheels", str(wheel)]
        apps = ["--apps", "lab", "--no-sourcemaps", "--no-unused-shared-packages", "--no-libarchive"]
        build = [sys.executable, "-m", "jupyterlite_core", "build", *options, *apps, "--output-dir", str(folder)]
        subprocess.run(build, check=True, cwd=place)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
