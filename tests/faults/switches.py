"""Copied beside the seeded package: which faults are on, and which tests reach them.

It stands alone, since it runs in every process that imports the package: kernels and servers too.
"""

import builtins
import os
import time

ON = {int(number) for number in os.environ.get("FAULTS_ON", "").split(",") if number}
REACHED = os.environ.get("FAULTS_REACHED", "")  # where each process notes what it reached
CURRENT = f"{os.environ.get('FAULTS_CURRENT', '')}-{os.environ.get('PYTEST_XDIST_WORKER', '')}"
"""The file in which this worker of pytest has the test that runs: a kernel lives longer than the test that began it."""
LAG = 0.05
"""Seconds for which a process other than pytest takes the test that it has read for the one that runs."""
seen: set[tuple[int, str]] = set()
read = ("", 0.0)


def current_test() -> str:
    global read  # noqa: PLW0603
    if os.environ.get("FAULTS_PYTEST") == str(os.getpid()):
        return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if time.monotonic() - read[1] > LAG:
        with open(CURRENT, encoding="utf-8") as file:  # noqa: PTH123 - nothing is imported here that a test may replace
            read = (file.read(), time.monotonic())
    return read[0]


def fault(number: int) -> bool:
    """Note that the test that runs has reached the place, and say whether its fault is on."""
    if REACHED and (key := (number, current_test())) not in seen:
        seen.add(key)
        file = os.open(f"{REACHED}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{number}\t{key[1]}\n".encode())
        os.close(file)
    return number in ON


builtins._seeded = fault  # type: ignore[attr-defined]
