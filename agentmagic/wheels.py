"""Fetches wheels (built Python packages) for Python versions and platforms other than this machine's.

pip can fetch wheels for another machine, but it evaluates the markers of requirements ("; sys_platform == 'win32'") for
the machine on which it runs. So uv chooses the packages and versions for the other machine, and pip fetches these.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from agentmagic.errors import MissingExtra, UsageError


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of machine: its `sys.platform` and processor names, uv's name for it, and the tags of its wheels.

    pip adds the tags of older versions of macOS to a tag.
    """

    sys_platform: str
    machines: tuple[str, ...]
    uv: str
    tags: tuple[str, ...]


def _linux(processor: str) -> tuple[str, ...]:
    newer = [f"manylinux_2_{minor}_{processor}" for minor in range(34, 4, -1)]
    return (*newer, *(f"manylinux{year}_{processor}" for year in ("2014", "2010", "1")), f"linux_{processor}")


PLATFORMS = {
    "linux": Platform("linux", ("x86_64", "amd64"), "x86_64-manylinux_2_34", _linux("x86_64")),
    "linux-arm": Platform("linux", ("aarch64", "arm64"), "aarch64-manylinux_2_34", _linux("aarch64")),
    "macos": Platform("darwin", ("arm64",), "aarch64-apple-darwin", ("macosx_14_0_arm64",)),
    "macos-intel": Platform("darwin", ("x86_64",), "x86_64-apple-darwin", ("macosx_14_0_x86_64",)),
    "windows": Platform("win32", ("amd64", "x86_64"), "x86_64-pc-windows-msvc", ("win_amd64",)),
}
"""The kinds of machines for which a kit can be made, by the value of `--platform`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A Python version, such as "3.12", on a platform of `PLATFORMS`."""

    python: str
    platform: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"3\.\d{1,2}", self.python):
            raise UsageError(f"{self.python!r} is no version of Python. Give one such as 3.12.")

    @property
    def serves(self) -> tuple[str, str, tuple[str, ...]]:
        """The Python version, `sys.platform` and processor names that `install.py` compares with its own machine."""
        kind = PLATFORMS[self.platform]
        return self.python, kind.sys_platform, kind.machines

    @property
    def options(self) -> list[str]:
        """The command-line options with which pip fetches wheels for this target."""
        tags = (word for tag in PLATFORMS[self.platform].tags for word in ("--platform", tag))
        return ["--only-binary=:all:", "--python-version", self.python, "--implementation", "cp", *tags]

    def __str__(self) -> str:
        return f"Python {self.python} on {self.platform}"


def targets_of(pythons: Sequence[str], platforms: Sequence[str]) -> list[Target]:
    """Return a target for each Python version on each platform.

    If only one of the two lists is empty, it stands for this machine's Python or platform. If both are empty, there
    are no targets. Raises UsageError for an invalid name, or if this machine's platform is needed and is not in
    `PLATFORMS`.
    """
    if not pythons and not platforms:
        return []
    for name in platforms:
        if name not in PLATFORMS:
            raise UsageError(f"There is no platform {name!r}. Choose from {', '.join(PLATFORMS)}.")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return [Target(python, name) for python in dict.fromkeys(pythons or [here]) for name in _platform_names(platforms)]


def _platform_names(platforms: Sequence[str]) -> list[str]:
    from platform import machine

    if platforms:
        return list(dict.fromkeys(platforms))
    kinds = PLATFORMS.items()
    here = [name for name, kind in kinds if kind.sys_platform == sys.platform and machine().lower() in kind.machines]
    if not here:
        raise UsageError(f"Wheels for {sys.platform} {machine()} are fetched for this Python only. Name a --platform.")
    return here


def describe_targets(targets: Iterable[Target]) -> str:
    """Return the targets as text: "Python 3.12 and 3.13 on linux, Python 3.12 and 3.13 on windows"."""
    by_platform: dict[str, list[str]] = {}
    for target in targets:
        by_platform.setdefault(target.platform, []).append(target.python)
    return ", ".join(f"Python {' and '.join(pythons)} on {name}" for name, pythons in by_platform.items())


def pip(command: str, *arguments: str) -> None:
    """Run a command of pip. Raises UsageError if it fails; pip prints the reason."""
    if subprocess.run([sys.executable, "-m", "pip", command, "--quiet", *arguments], check=False).returncode:  # noqa: S603
        raise UsageError("pip could not fetch the wheels; its words are above. Check the network, and run this again.")


def fetch(folder: Path, source_requirement: str, requirement: str, targets: Sequence[Target]) -> None:
    """Fetch into a folder the wheels with which a requirement can be installed on each target.

    `source_requirement` is a source folder, from which pip builds the first wheel, or a requirement, which pip fetches.
    Raises UsageError if a wheel cannot be fetched, and MissingExtra if uv is not installed.
    """
    if find_spec("uv") is None:
        raise MissingExtra("A kit for other machines", "kit")
    with TemporaryDirectory() as temporary:
        pip("wheel", "--no-deps", "--wheel-dir", temporary, source_requirement)
        (wheel,) = Path(temporary).glob("*.whl")
        for target in targets:
            versions = Path(temporary) / "requirements.txt"
            versions.write_bytes(_resolve(f"{requirement} @ {wheel.as_uri()}", target))
            pip("download", "--no-deps", *target.options, "--dest", str(folder), "--requirement", str(versions))


def _resolve(requirement: str, target: Target) -> bytes:
    """Return the packages that a requirement needs on the target, as a file of pinned requirements."""
    where = ["--python-version", target.python, "--python-platform", PLATFORMS[target.platform].uv]
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--only-binary=:all:",
        *where,
        "-",
    ]
    done = subprocess.run(command, input=requirement.encode(), stdout=subprocess.PIPE, check=False)  # noqa: S603
    if done.returncode:
        raise UsageError(
            f"uv could not choose the packages for {target}; its words are above. Check the network, and the index "
            "that uv uses (UV_DEFAULT_INDEX), or leave this target out."
        )
    return done.stdout
