"""Copied beside the seeded package: which faults are on, and which tests reach them.

It stands alone, since it runs in every process that imports the package: kernels and servers too.
"""

import builtins
import os

ON = {int(number) for number in os.environ.get("FAULTS_ON", "").split(",") if number}
REACHED = os.environ.get("FAULTS_REACHED", "")  # where each process notes what it reached
CURRENT = os.environ.get("FAULTS_CURRENT", "")  # a file with the test that runs, for kernels that several tests share
seen: set[tuple[int, str]] = set()


def current_test() -> str:
    if CURRENT:
        with open(CURRENT, encoding="utf-8") as file:  # noqa: PTH123 - nothing is imported here that a test may replace
            return file.read()
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]


def fault(number: int) -> bool:
    """Note that the test that runs has reached the place, and say whether its fault is on."""
    if REACHED and (key := (number, current_test())) not in seen:
        seen.add(key)
        file = os.open(f"{REACHED}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{number}\t{key[1]}\n".encode())
        os.close(file)
    return number in ON


builtins._seeded = fault  # type: ignore[attr-defined]
