"""An offline kit: the packages, the notebooks and the local model in one folder, for a room without a network."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from platform import machine

from agentmagic import lessons, wheels
from agentmagic.errors import UsageError
from agentmagic.providers.local import downloads
from agentmagic.serialization import own_version
from agentmagic.wheels import Target

EXTRA = "demo"
_INSTALL = '''\
"""Installs agentmagic from this folder, without a network: python3 install.py"""

import platform
import subprocess
import sys
from pathlib import Path

SERVES = {serves!r}
here = Path(__file__).resolve().parent
this = ("%d.%d" % sys.version_info[:2], sys.platform, platform.machine().lower())
if not any(this[:2] == one[:2] and this[2] in one[2] for one in SERVES):
    sys.exit("Not installed. The packages are for {made}, and this is Python %s on %s %s. "
             "Run install.py with such a Python, or make a kit for this one: "
             "python -m agentmagic kit FOLDER --python-version %s --platform NAME" % (*this, this[0]))
python = here / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
subprocess.run([sys.executable, "-m", "venv", "--clear", here / ".venv"], check=True)
pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", here / "wheels"]
if subprocess.run([*pip, "{requirement}"]).returncode:
    sys.exit("Not installed; the words of pip are above. The packages are for {made}, and this is Python %d.%d.%d. "
             "Run install.py with such a Python, or make a kit on a machine like this one." % sys.version_info[:3])
if (here / "models").is_dir():
    placing = "import sys; from agentmagic import kit; kit.place(sys.argv[1])"
    subprocess.run([python, "-c", placing, here / "models"], check=True)
print("Installed. Look for what is missing:", python, "-m agentmagic doctor")
print("Open the notebooks:", python, "-m jupyterlab", here / "notebooks")
'''
_README = """\
# agentmagic without a network

This folder has all that the lessons and walkthroughs need: packages, notebooks with their recorded answers{weights}.
The packages are for {made}. Keep 1 GB free for them{room}.

Install, once, in this folder:

    python3 install.py

Look for what is missing. Notes on keys are no fault: the lessons play recorded answers.

    .venv/bin/python -m agentmagic doctor

Open the notebooks. The lessons are in the folder `lessons`, and `docs/tutorials/lessons.md` lists them.

    .venv/bin/python -m jupyterlab notebooks

Run one notebook without a page, and compare it with what is saved in it:

    cd notebooks/lessons
    ../../.venv/bin/python -m nbconvert --to notebook --execute --output-dir /tmp 1_tools.ipynb
    export AGENTMAGIC_REPLAY=replay
    ../../.venv/bin/python -m pytest --nbval --nbval-current-env --nbval-sanitize-with ../nbval.cfg 1_tools.ipynb

On Windows, write `.venv\\Scripts\\python` in place of `.venv/bin/python`, and `set` in place of `export`.
{asking}"""
_ASKING = """
Ask the local model, which needs neither a key nor a network. In a notebook:

    %load_ext agentmagic
    %agent models local:

and in the next cell:

    %%agent
    What is the capital of France?
"""


def pack(
    folder: Path,
    clone: Path | None = None,
    *,
    model: bool = False,
    student: bool = False,
    targets: Sequence[Target] = (),
) -> str:
    """Collect wheels, notebooks and docs in a folder, and with `model` also the weights of the local model.

    The notebooks and docs are those of `clone`, by default those that came with this agentmagic. The wheels are for
    each of the `targets`, by default for machines like this one; the returned text names these machines. The script
    `install.py` in the folder installs the wheels. With `student`, the lessons have no solutions. Raises
    UsageError as `lessons.course` does, or if wheels cannot be fetched.
    """
    source = lessons.course(clone)
    notebooks = source / "notebooks"
    without = {path.name: lessons.strip_solutions(path) for path in (notebooks / "lessons").glob("*.ipynb") if student}
    source_requirement = _source_requirement(source)
    folder.mkdir(parents=True, exist_ok=True)
    machines = gather(folder, source_requirement, f"agentmagic[{EXTRA}]", targets)
    shutil.copytree(notebooks, folder / "notebooks", ignore=lessons.LEFT_OUT, dirs_exist_ok=True)
    lessons.copy_docs(source, folder)  # the notebooks link to the docs
    for name, text in without.items():
        (folder / "notebooks" / "lessons" / name).write_text(text, encoding="utf-8")
    if model:
        (folder / "models").mkdir(exist_ok=True)
        shutil.copyfile(downloads.fetch(), folder / "models" / downloads.FILE)
    model_texts = {"weights": ", the local model", "room": " and 1.1 GB for the local model"} if model else {}
    readme = _README.format_map({"weights": "", "room": "", "made": machines, "asking": _ASKING * model} | model_texts)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return machines


def _source_requirement(source: Path) -> str:
    """Return what pip should fetch: the folder `source` if it is a git clone, else agentmagic's installed release."""
    if lessons.is_clone(source):
        return f"{source.absolute()}[{EXTRA}]"
    version = own_version()
    if "dev" in version:
        raise UsageError(f"agentmagic {version} is not a release, so pip cannot fetch it. Name a clone with --source.")
    return f"agentmagic[{EXTRA}]=={version}"


def gather(folder: Path, source_requirement: str, requirement: str, targets: Sequence[Target] = ()) -> str:
    """Fetch wheels into the folder, and write the script `install.py` that installs from them.

    pip fetches `source_requirement`, a source folder or a requirement. The script installs `requirement`.
    Returns a text that names the machines for which the wheels are. Raises UsageError if they cannot be fetched.
    """
    if targets:
        wheels.fetch(folder / "wheels", source_requirement, requirement, targets)
        machines = wheels.describe_targets(targets)
    else:
        wheels.pip("wheel", "--wheel-dir", str(folder / "wheels"), source_requirement)
        newest = ".".join(map(str, sys.version_info[:3]))
        machines = (
            f"Python {sys.version_info[0]}.{sys.version_info[1]} ({newest} or newer) on {sys.platform} {machine()}"
        )
    here = (f"{sys.version_info[0]}.{sys.version_info[1]}", sys.platform, (machine().lower(),))
    serves = [one.serves for one in targets] or [here]
    (folder / "install.py").write_text(
        _INSTALL.format(requirement=requirement, made=machines, serves=serves), encoding="utf-8"
    )
    return machines


def place(models: str) -> None:
    """Copy the local model's weights from a kit's folder `models` to the cache folder, if they are not there yet."""
    if downloads.find() is None:
        downloads.cache().mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(models) / downloads.FILE, downloads.cache() / downloads.FILE)
