"""Fetches wheels (built Python packages) for Python versions and platforms other than this machine's.

pip can fetch wheels for another machine, but it evaluates the markers of requirements ("; sys_platform == 'win32'") for
the machine on which it runs. So this module evaluates the requirements again for the other machine, and fetches the
missing wheels by name.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from agentmagic.errors import MissingExtra, UsageError

ROUNDS = 20
"""The maximum number of rounds. Each round fetches the wheels that the last round's wheels require."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of machine: its `sys.platform`, `platform.system()` and `os.name`, processor names, and wheel tags."""

    sys_platform: str
    system: str
    os_name: str
    machines: tuple[str, ...]
    tags: tuple[str, ...]


def _linux(processor: str) -> tuple[str, ...]:
    newer = [f"manylinux_2_{minor}_{processor}" for minor in range(34, 4, -1)]
    return (*newer, *(f"manylinux{year}_{processor}" for year in ("2014", "2010", "1")), f"linux_{processor}")


def _macos(processor: str, *oldest: str) -> tuple[str, ...]:
    versions = [*(f"{major}_0" for major in range(14, 10, -1)), *oldest]
    return tuple(f"macosx_{version}_{kind}" for version in versions for kind in (processor, "universal2"))


PLATFORMS = {
    "linux": Platform("linux", "Linux", "posix", ("x86_64", "amd64"), _linux("x86_64")),
    "linux-arm": Platform("linux", "Linux", "posix", ("aarch64", "arm64"), _linux("aarch64")),
    "macos": Platform("darwin", "Darwin", "posix", ("arm64",), _macos("arm64")),
    "macos-intel": Platform(
        "darwin", "Darwin", "posix", ("x86_64",), _macos("x86_64", *(f"10_{minor}" for minor in range(16, 8, -1)))
    ),
    "windows": Platform("win32", "Windows", "nt", ("amd64", "x86_64"), ("win_amd64",)),
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
    def environment(self) -> dict[str, str]:
        """The values with which markers of requirements, such as "; os_name == 'nt'", are evaluated for this target."""
        kind = PLATFORMS[self.platform]
        names = {"sys_platform": kind.sys_platform, "platform_system": kind.system, "os_name": kind.os_name}
        python = {"python_version": self.python, "python_full_version": f"{self.python}.99"}
        implementation = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
        machine = "AMD64" if self.platform == "windows" else kind.machines[0]
        return {**names, **python, **implementation, "platform_machine": machine, "extra": ""}

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
    Raises UsageError if a wheel cannot be fetched.
    """
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), source_requirement)
    for target in targets:
        for _ in range(ROUNDS):
            if not (still_missing := list(missing_requirements(folder, requirement, target))):
                break
            where = ["--dest", str(folder), "--find-links", str(folder)]
            pip("download", "--no-deps", *target.options, *where, *still_missing)
        if still_missing := list(missing_requirements(folder, requirement, target)):
            raise UsageError(f"For {target}, there is no wheel of {', '.join(still_missing)}. Leave this target out.")


def missing_requirements(folder: Path, requirement: str, target: Target) -> Iterator[str]:
    """Yield the requirements that must still be fetched before `requirement` can be installed on the target.

    Wheels in the folder need not be fetched. The requirements of those that are found are checked too.
    """
    modules = _Packaging()
    wheels = [wheel for wheel in map(modules.wheel, folder.glob("*.whl")) if wheel.fits(target)]
    queue, seen = [modules.requirement(requirement)], set[str]()
    while queue:
        one = queue.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        name = modules.name(one.name)
        matches = [
            wheel for wheel in wheels if wheel.name == name and one.specifier.contains(wheel.version, prereleases=True)
        ]
        if not matches:
            yield f"{one.name}{one.specifier}"
            continue
        newest = max(matches, key=lambda wheel: wheel.version)
        for dependency in map(modules.requirement, newest.requires):
            extras = one.extras or {""}
            if dependency.marker is None or any(
                dependency.marker.evaluate(target.environment | {"extra": extra}) for extra in extras
            ):
                queue.append(dependency)


class _Wheel:
    """A wheel file: its name, version, tags and requirements."""

    def __init__(self, path: Path, utils: Any) -> None:
        self.name, self.version, _, self.tags = utils.parse_wheel_filename(path.name)
        with ZipFile(path) as archive:
            (name,) = [one for one in archive.namelist() if one.count("/") == 1 and one.endswith(".dist-info/METADATA")]
            self.requires: list[str] = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])

    def fits(self, target: Target) -> bool:
        """Return whether this wheel can be installed on the target."""
        return any(_fits(str(tag), target) for tag in self.tags)


def _fits(tag: str, target: Target) -> bool:
    """Return whether the target can use a wheel with this tag, such as cp39-abi3-win_amd64."""
    interpreter, abi, platform = tag.split("-", 2)
    if platform != "any" and platform not in PLATFORMS[target.platform].tags:
        return False
    minor = int(target.python.partition(".")[2])
    match = re.fullmatch(r"(cp|py)(\d)(\d*)", interpreter)
    if match is None or match[2] != "3":
        return False
    of = int(match[3] or 0)
    if match[1] == "cp" and abi != "abi3":
        return of == minor and abi in (f"cp3{minor}", "none")
    return of <= minor and abi in ("abi3", "none")


class _Packaging:
    """The functions of the library `packaging` that this module uses. The library is installed with Jupyter."""

    def __init__(self) -> None:
        try:
            self._utils = import_module("packaging.utils")
            self.requirement: Any = import_module("packaging.requirements").Requirement
        except ModuleNotFoundError as error:
            raise MissingExtra("A kit for other machines", "demo") from error
        self.name: Any = self._utils.canonicalize_name

    def wheel(self, path: Path) -> _Wheel:
        """Return the wheel file at `path` with its name, version, tags and requirements."""
        return _Wheel(path, self._utils)
