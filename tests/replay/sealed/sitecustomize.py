"""Seals a kernel: it reaches no other machine and starts no process. Put this folder on PYTHONPATH."""  # noqa: INP001  (Python imports it by this name)

import sys

LOOPBACK = ("127.", "::1", "localhost")


def seal(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse, as an audit hook, what a replay must not need."""
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
            raise PermissionError(f"a replay reached for {address[0]}")
    # What runs the notebook may start its kernel; the kernel may start nothing.
    if event == "subprocess.Popen" and "ipykernel.kernelapp" in sys.modules:
        raise PermissionError(f"a replay started {arguments[0]}")


sys.addaudithook(seal)
