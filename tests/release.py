"""What a release has to be: `python -m tests.release FOLDER [TAG]` lists its files and names what is wrong."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from fnmatch import fnmatch
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
MOST = 5_000_000
"""Bytes of a wheel. A class of thirty installs it over one network."""
EXTENSION = "share/jupyter/labextensions/agentmagic"
MADE = {"INFO/METADATA", "INFO/WHEEL", "INFO/RECORD", "INFO/entry_points.txt"}
"""What the builder writes."""


def tracked(*patterns: str) -> list[str]:
    """Return the files of the clone that git knows; in an unpacked sdist, which has no history, those of the sdist."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", *patterns]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        return [name for name in listed if name and (ROOT / name).is_file()]
    from hatchling.builders.sdist import SdistBuilder

    names = [Path(file.relative_path).as_posix() for file in SdistBuilder(str(ROOT)).recurse_included_files()]
    chosen = [f"{pattern}/*" if (ROOT / pattern).is_dir() else pattern for pattern in patterns or ("*",)]
    return [name for name in names if any(fnmatch(name, pattern) for pattern in chosen)]


def place(name: str) -> str:
    """Return where a wheel has a file of the clone; the folder of its data stands as `DATA`."""
    if name.startswith("agentmagic/labextension/"):
        return f"DATA/{EXTENSION}/{name.removeprefix('agentmagic/labextension/')}"
    return f"agentmagic/course/{name}" if name.startswith(("docs/", "notebooks/")) else name


def wanted() -> Iterator[str]:
    """Yield what a wheel holds: package, page, extension, notebooks, cassettes, docs, licences, and nothing twice."""
    yield from MADE
    held = map(place, tracked("agentmagic", "notebooks", "docs/*.md", "docs/images"))
    yield from (name for name in held if name not in project()["license-files"])
    yield f"DATA/{EXTENSION}/install.json"
    for name in project()["license-files"]:
        yield f"INFO/licenses/{name}"


def project() -> dict:
    """Return the table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def contents(wheel: Path) -> set[str]:
    """Return the names in a wheel, without its version."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    return {re.sub(r"^agentmagic-[^/]*\.data/data/|^agentmagic-[^/]*\.dist-info/", _short, name) for name in names}


def _short(found: re.Match[str]) -> str:
    return "DATA/" if found[0].endswith("/data/") else "INFO/"


def metadata(wheel: Path) -> Message:
    """Return the headers that pip and the index read."""
    with ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def licences() -> set[str]:
    """Return the licences of the JavaScript that is built into the page and the extension."""
    page = (ROOT / "agentmagic/widgets/static/LICENSES.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^## \S+ \S+, (.+)$", page, re.MULTILINE))
    extension = (ROOT / "agentmagic/labextension/static/third-party-licenses.json").read_text(encoding="utf-8")
    return named | {package["licenseId"] for package in json.loads(extension)["packages"]}


def problems(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel."""
    held, right = contents(wheel), set(wanted())
    yield from (f"{wheel.name} lacks {name}" for name in sorted(right - held))
    yield from (f"{wheel.name} holds {name}, which is not of the clone" for name in sorted(held - right))
    if (size := wheel.stat().st_size) > MOST:
        yield f"{wheel.name} has {size:,} bytes, and may have {MOST:,}"
    about = metadata(wheel)
    yield from unnamed(str(about["License-Expression"]))


def unnamed(expression: str) -> Iterator[str]:
    """Yield the licences that are not a term of an expression, such as "MIT AND (MPL-2.0 OR Apache-2.0)"."""
    terms = set(expression.split(" AND "))
    yield from (f"the licence {one} is not in {expression!r}" for one in sorted(licences() - terms))


def wrong_for(tag: str, version: str) -> Iterator[str]:
    """Yield what keeps a version from being the release of a tag."""
    if tag != f"v{version}":
        yield f"the tag is {tag}, and the version {version}: commit everything, and tag that commit"
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", changes(), re.MULTILINE):
        yield f"CHANGELOG.md has no heading '## {version}, YEAR-MONTH-DAY'"
    for name in ("js/package.json", "js/lab/package.json"):
        if (said := json.loads((ROOT / name).read_text(encoding="utf-8"))["version"]) != version:
            yield f"{name} has the version {said}: write {version}, and build it as js/README.md says"


def changes() -> str:
    """Return the text of the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def main(folder: str, tag: str = "") -> int:
    """Print the files with their sizes, and what is wrong with them; return the exit status."""
    files = sorted(Path(folder).iterdir())
    for path in files:
        sys.stdout.write(f"{path.stat().st_size:>10,}  {path.name}\n")
    wheels = [path for path in files if path.suffix == ".whl"]
    found = [] if len(wheels) == 1 and len(files) == 2 else [f"{folder} does not hold one wheel and one sdist"]
    for wheel in wheels:
        sys.stdout.write(f"{len(contents(wheel)):>10,}  files in {wheel.name}\n")
        found += problems(wheel)
        found += wrong_for(tag, str(metadata(wheel)["Version"])) if tag else []
    sys.stderr.writelines(f"error: {one}\n" for one in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
