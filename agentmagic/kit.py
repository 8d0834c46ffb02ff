"""An offline kit: the packages, the notebooks and the local model in one folder, for a room without a network."""

import shutil
import subprocess
import sys
from pathlib import Path

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
subprocess.run([sys.executable, "-m", "venv", here / ".venv"], check=True)
pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", here / "wheels"]
subprocess.run([*pip, "{requirement}"], check=True)
if (here / "models").is_dir():
    placing = "import sys; from agentmagic import kit; kit.place(sys.argv[1])"
    subprocess.run([python, "-c", placing, here / "models"], check=True)
print("Installed. Open the notebooks:", python, "-m jupyterlab", here / "notebooks")
'''


def pack(folder: Path, source: Path, *, model: bool = False) -> None:
    """Gather wheels and notebooks of a clone, and with `model` the weights of the local model (1.1 GB), in a folder.

    The wheels are for machines of this kind: the same system, processor and Python. `install.py` in the folder installs
    them. Raises UsageError if `source` is no clone, or if pip cannot fetch the wheels.
    """
    if not (source / "pyproject.toml").is_file() or not (source / "notebooks").is_dir():
        raise UsageError(f"{source.absolute()} is no clone of agentmagic. Run this in one, or name it with --source.")
    folder.mkdir(parents=True, exist_ok=True)
    gather(folder, f"{source.absolute()}[{EXTRA}]", f"agentmagic[{EXTRA}]")
    left_out = shutil.ignore_patterns(".*", "*.out.ipynb", "__pycache__")
    shutil.copytree(source / "notebooks", folder / "notebooks", ignore=left_out, dirs_exist_ok=True)
    if model:
        (folder / "models").mkdir(exist_ok=True)
        shutil.copyfile(downloads.fetch(), folder / "models" / downloads.FILE)


def gather(folder: Path, fetched: str, requirement: str) -> None:
    """Fetch the wheels of what pip is to fetch, and write the script that installs a requirement of them."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder / "wheels"), fetched]
    if subprocess.run(pip, check=False).returncode:  # noqa: S603  (pip of this Python, which says what is wrong)
        raise UsageError("pip could not fetch the wheels; its words are above. Check the network, and run this again.")
    (folder / "install.py").write_text(_INSTALL.format(requirement=requirement), encoding="utf-8")


def place(models: str) -> None:
    """Copy the weights of a kit to where the local model is looked for, unless they are there."""
    if downloads.find() is None:
        downloads.cache().mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(models) / downloads.FILE, downloads.cache() / downloads.FILE)
