"""An offline kit: the packages, the notebooks and the local model in one folder, for a room without a network."""

import shutil
import subprocess
import sys
from pathlib import Path
from platform import machine

from agentmagic.errors import UsageError
from agentmagic.providers.local import downloads

EXTRA = "demo"
_INSTALL = '''\
"""Installs agentmagic from this folder, without a network: python3 install.py"""

import subprocess
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
python = here / ".venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
subprocess.run([sys.executable, "-m", "venv", "--clear", here / ".venv"], check=True)
pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", here / "wheels"]
if subprocess.run([*pip, "{requirement}"]).returncode:
    this = "Python %d.%d.%d on %s" % (*sys.version_info[:3], sys.platform)
    sys.exit("Not installed; the words of pip are above. The packages are for {made}, and this is " + this + ". "
             "Run install.py with such a Python, or make a kit on a machine like this one.")
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

Open the notebooks. The lessons are in the folder `lessons`, and `docs/lessons.md` lists them.

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


def pack(folder: Path, source: Path, *, model: bool = False) -> None:
    """Gather the wheels, notebooks and docs of a clone in a folder, and with `model` the weights of the local model.

    The wheels are for machines of this kind: the same system, processor and Python. `install.py` in the folder installs
    them. Raises UsageError if `source` is no clone, or if pip cannot fetch the wheels.
    """
    if not (source / "pyproject.toml").is_file() or not (source / "notebooks").is_dir():
        raise UsageError(f"{source.absolute()} is no clone of agentmagic. Run this in one, or name it with --source.")
    folder.mkdir(parents=True, exist_ok=True)
    gather(folder, f"{source.absolute()}[{EXTRA}]", f"agentmagic[{EXTRA}]")
    left_out = shutil.ignore_patterns(".*", "*.out.ipynb", "__pycache__")
    shutil.copytree(source / "notebooks", folder / "notebooks", ignore=left_out, dirs_exist_ok=True)
    shutil.copytree(source / "docs", folder / "docs", dirs_exist_ok=True)  # to which the notebooks link
    if model:
        (folder / "models").mkdir(exist_ok=True)
        shutil.copyfile(downloads.fetch(), folder / "models" / downloads.FILE)
    words = {"weights": ", the local model", "room": " and 1.1 GB for the local model"} if model else {}
    readme = _README.format_map({"weights": "", "room": "", "made": _made(), "asking": _ASKING * model} | words)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def gather(folder: Path, fetched: str, requirement: str) -> None:
    """Fetch the wheels of what pip is to fetch, and write the script that installs a requirement of them."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder / "wheels"), fetched]
    if subprocess.run(pip, check=False).returncode:  # noqa: S603  (pip of this Python, which says what is wrong)
        raise UsageError("pip could not fetch the wheels; its words are above. Check the network, and run this again.")
    (folder / "install.py").write_text(_INSTALL.format(requirement=requirement, made=_made()), encoding="utf-8")


def _made() -> str:
    """Return the kind of machine that the packages are for: this one."""
    newest = ".".join(map(str, sys.version_info[:3]))
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} ({newest} or newer) on {sys.platform} {machine()}"


def place(models: str) -> None:
    """Copy the weights of a kit to where the local model is looked for, unless they are there."""
    if downloads.find() is None:
        downloads.cache().mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(models) / downloads.FILE, downloads.cache() / downloads.FILE)
