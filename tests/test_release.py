"""A release: the wheel, installed alone, has all that a stranger needs, and its version is that of the tag."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests import release

ROOT = release.ROOT


CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
UNTAGGED = CONFIG["tool"]["hatch"]["version"]["fallback-version"]


def test_the_changelog_and_the_version_without_a_tag_speak_of_the_same_release():
    newest = re.findall(r"^## (\S+), ", release.changes(), re.MULTILINE)[0]
    assert f"{newest}.dev0" == UNTAGGED


def test_a_tag_is_refused_until_the_version_the_changelog_and_the_page_say_the_same(monkeypatch):
    monkeypatch.setattr(release, "changes", lambda: "## 0.1.0, 2026-12-01\n")
    assert list(release.wrong_for("v0.1.0", "0.1.0")) == []
    dirty, changelog, *page = release.wrong_for("v0.2.0", "0.2.0.dev3")
    assert "tag that commit" in dirty
    assert "no heading '## 0.2.0.dev3," in changelog
    assert [one.split()[0] for one in page] == ["js/package.json", "js/lab/package.json"]


PYTHON = """\
#!/bin/sh
echo "$@" >>calls
case "$*" in
    -c*print*) echo "$0" ;;
    "-m venv"*) mkdir -p "$3/bin" && for name in python pip twine; do cp "$0" "$3/bin/$name"; done ;;
    "-m build"*) mkdir "$4" && touch "$4/agentmagic-0.2.0.tar.gz" "$4/agentmagic-0.2.0-py3-none-any.whl" ;;
esac
"""


@pytest.fixture
def ci_release(tmp_path):
    """Runs .ci/release in a repository whose commit has a tag without a message, with a double of Python."""
    folder = tmp_path / "clone"
    (folder / ".ci").mkdir(parents=True)
    for name in ("release", "environment"):
        shutil.copyfile(ROOT / ".ci" / name, folder / ".ci" / name)
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "one")
    git(folder, "tag", "v0.2.0")

    def start(*arguments):
        environment = os.environ | {"AGENTMAGIC_PYTHON": str(folder / "python")}
        command = ["bash", folder / ".ci" / "release", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)

    return start


@pytest.mark.posix
def test_a_tag_without_a_message_makes_a_release_too(ci_release, tmp_path):
    done = ci_release()
    assert "Push the tag to upload it: git push origin v0.2.0" in done.stdout
    assert re.search(r"^-m tests.release \S+ v0.2.0$", (tmp_path / "clone" / "calls").read_text(), re.MULTILINE)


@pytest.mark.posix
def test_a_release_replaces_an_earlier_one_and_refuses_a_folder_that_holds_anything_else(ci_release, tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "agentmagic-0.1.0.tar.gz").touch()
    assert ci_release(folder).returncode == 0
    made = {"agentmagic-0.2.0.tar.gz", "agentmagic-0.2.0-py3-none-any.whl"}
    assert {path.name for path in folder.iterdir()} == made
    (folder / "thesis.md").touch()
    done = ci_release(folder)
    assert done.returncode == 1
    assert "holds other files, such as thesis.md." in done.stderr
    assert {path.name for path in folder.iterdir()} == made | {"thesis.md"}


def test_an_sdist_has_all_that_its_tests_look_at():
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked sdist has no list of the files that it left out")
    always = {".gitignore", "LICENSE", "README.md", "pyproject.toml"}
    included = {name.removeprefix("/") for name in CONFIG["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert {name.partition("/")[0] for name in release.tracked()} - included - always == {
        ".editorconfig",
        ".gitattributes",
    }


def test_a_licence_that_is_part_of_the_name_of_another_is_missing(monkeypatch):
    assert list(release.unnamed(CONFIG["project"]["license"])) == []
    monkeypatch.setattr(release, "licences", lambda: {"MIT", "0BSD", "(MPL-2.0 OR Apache-2.0)"})
    wrong = "MIT-0 AND 0BSD AND (MPL-2.0 OR Apache-2.0)"
    assert list(release.unnamed(wrong)) == [f"the licence MIT is not in {wrong!r}"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the clone without its history, in which someone has worked."""
    folder = tmp_path_factory.mktemp("clone")
    for name in release.tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("notebooks/lessons/.agentmagic/a.jsonl", "notebooks/1.out.ipynb", "agentmagic/.env", "docs/.env"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("SECRET=1")
    return folder


@pytest.fixture(scope="module")
def wheel(clone):
    pytest.importorskip("hatch_vcs", reason="the wheel is built with hatch-vcs, which the extra `test` has")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, "dist"], cwd=clone, check=True, timeout=60, env=apart())
    (built,) = (clone / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", folder, wheel], check=True, timeout=60, env=apart())
    return folder


def apart(*folders):
    """The environment of a process that finds packages in folders, and does not look into this clone."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (
        {"PYTHONPATH": os.pathsep.join(map(str, folders))} if folders else {}
    )


@pytest.mark.slow
def test_the_wheel_has_the_page_the_extension_the_notebooks_and_the_licences_and_nothing_else(wheel):
    assert list(release.problems(wheel)) == []
    assert release.metadata(wheel)["Version"] == UNTAGGED
    assert set(release.metadata(wheel).get_all("License-File")) == set(CONFIG["project"]["license-files"])
    with ZipFile(wheel) as archive:
        texts = [archive.read(name) for name in archive.namelist() if "licen" in name.rpartition("/")[2].lower()]
    assert len(texts) == len(set(texts)) == 3


@pytest.mark.slow
def test_the_wheel_alone_unpacks_lessons_that_run_and_whose_links_lead_somewhere(installed, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    command = [sys.executable, "-m", "agentmagic", "lessons", "course"]
    said = subprocess.run(
        command, cwd=tmp_path, env=apart(installed), check=True, capture_output=True, text=True, timeout=60
    )
    assert re.match(r"11 lessons with solutions in course: 1_tools.ipynb, ", said.stdout)
    folder = tmp_path / "course"
    assert [link for page in folder.rglob("*.ipynb") for link in broken(page, "md|ipynb|png")] == []
    assert [link for page in folder.glob("docs/**/*.md") for link in broken(page, "ipynb|png")] == []
    assert sorted(path.name for path in folder.glob("walkthroughs/*.cassette.yaml")) == sorted(
        path.name for path in ROOT.glob("notebooks/*.cassette.yaml")
    )
    notebook = nbformat.read(folder / "1_tools.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import agentmagic; print(agentmagic.__file__)"))
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, timeout=60)
    client.execute(env=apart(installed))
    assert Path(notebook.cells[-1].outputs[0].text.strip()).is_relative_to(installed)


def broken(page, kinds):
    """The links of a notebook or page to files of these kinds that are not there."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] != "code")
    links = re.findall(rf"\]\((?!https?:)([^)#\s]+\.(?:{kinds}))[)#]", text)
    return [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]


@pytest.mark.slow
def test_the_version_is_that_of_the_tag_and_grows_with_each_commit(tmp_path):
    pytest.importorskip("hatch_vcs", reason="versions come from hatch-vcs, which the extra `test` has")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    assert version(tmp_path) == UNTAGGED  # as in an archive without the history
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    assert version(tmp_path).startswith(f"{UNTAGGED.removesuffix('0')}1+g")
    git(tmp_path, "tag", "v1.4.0")
    git(tmp_path, "tag", "turn-9")
    assert version(tmp_path) == "1.4.0"
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "two")
    assert re.fullmatch(r"1\.4\.1\.dev1\+g[0-9a-f]+", version(tmp_path))


def git(folder, *arguments):
    if shutil.which("git") is None:
        pytest.skip("git is missing, which makes the tags of this test")
    who = ["-c", "user.name=A Maintainer", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, timeout=20)


def version(folder):
    said = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=apart(),
    )
    return said.stdout.strip()
