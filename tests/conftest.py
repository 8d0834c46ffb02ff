"""The ground every test stands on: no key, no way off this machine, nothing that is not installed."""

import gc
import ipaddress
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agentmagic import secrets
from agentmagic.bill import ledger
from agentmagic.classroom import class_settings
from agentmagic.providers.registry import providers

HERE = Path(__file__).parent

# What a folder or file of tests needs beyond the core; it is left out where that is missing.
NEEDS = {
    "approval/test_proposers.py": "acp",
    "browser": "playwright",
    "display/test_programs.py": "pandas",
    "export/test_notebook_html.py": "nbconvert",
    "jupyter": "ipykernel",
    "loop/test_inner_turn.py": "mcp",
    "mapping": "polars",
    "test_classroom.py": "openai",
    "test_doctor.py": "ipykernel",
    "test_keyring.py": "keyring",
    "test_main.py": "nbclient",
    "test_properties.py": "openai",
    "acp": "acp",
    "providers/anthropic": "anthropic",
    "providers/gemini": "google.genai",
    "providers/test_addresses.py": "openai",
    "providers/test_batch.py": "openai",
    "providers/test_compatible.py": "openai",
    "providers/test_compatible_servers.py": "openai",
    "providers/test_error_bodies.py": "openai",
    "providers/test_hosted.py": "openai",
    "providers/test_local.py": "xllamacpp",
    "providers/test_refusals.py": "openai",
    "providers/test_strict.py": "openai",
    "providers/test_too_long.py": "openai",
    "providers/openai": "openai",
    "test_traces.py": "opentelemetry.sdk",
    "tools/mcp": "mcp",
    "tools/test_dask.py": "distributed",
    "tools/test_executors.py": "cloudpickle",
    "tools/test_ipyparallel.py": "ipyparallel",
    "replay/test_models_and_servers.py": "mcp",
    "site/test_how_to.py": "ipykernel",
    "serve/test_bridge.py": "mcp",
    "serve/test_clients.py": "fastmcp",
    "serve/test_conformance.py": "mcp",
    "serve/test_hostile_programs.py": "ipykernel",
    "serve/test_endings.py": "mcp",
    "serve/test_hostile_clients.py": "mcp",
    "replay/test_maps.py": "pandas",
    "undo": "numpy",
    "values/test_columns.py": "polars",
    "values/test_describe.py": "pandas",
    "values/test_descriptions.py": "polars",
    "values/test_frames.py": "polars",
    "values/test_pictures.py": "altair",
    "widgets/test_chat.py": "openai",
    "widgets/test_view.py": "anywidget",
}

# A developer's own keys, servers and choices must not reach a test.
PERSONAL = (
    *("AGENTMAGIC_MODEL", "AGENTMAGIC_PERMISSION", "AGENTMAGIC_SECRETS", "AGENTMAGIC_SCHEMA_ONLY"),
    *("AGENTMAGIC_DAILY_BUDGET", "AGENTMAGIC_MONTHLY_BUDGET", "OTEL_"),
    *{f"{name.partition('_')[0]}_" for row in providers().values() for name in (*row.keys, row.base_url) if name},
)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


STALE = [path for path in NEEDS if not (HERE / path).exists()]
assert not STALE, f"NEEDS names what is not in tests/: {STALE}"
LEFT_OUT = {HERE / path: module for path, module in NEEDS.items() if not _installed(module)}


SYSTEMS = {"posix": sys.platform != "win32", "linux": sys.platform == "linux"}
"""The markers of tests that need a system, and whether this is one."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, is_here in SYSTEMS.items():
        if not is_here and item.get_closest_marker(name):
            pytest.skip(f"needs a system of the kind {name}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path in LEFT_OUT else None


def pytest_collection_finish() -> None:
    """Keep Python's collector from the tests themselves: looking through all of them takes half a second each time.

    And have it come seldom: a finalizer fails where a test has nested something up to the limit of recursion.
    """
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file, and all that need a browser, in one process of a parallel run: they share fixtures.

    With `--dist loadfile` those that need a browser are shared out too: many of them are worth a second server.
    """
    from xdist.scheduler import LoadScopeScheduling

    if config.getoption("dist") == "loadfile":
        return None

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "tests/browser" if file.startswith("tests/browser/") else file

    return Scheduler(config, log)


def pytest_report_header() -> list[str]:
    return [f"left out: {path.relative_to(HERE)} needs {module}" for path, module in LEFT_OUT.items()]


# The same examples in every run, however slow the machine; others in the long run that AGENTMAGIC_EXAMPLES asks for.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize="AGENTMAGIC_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory):
    """Have the ledger of the tests, and of the kernels that they start, stand elsewhere than the developer's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):  # the second is that of Windows
            patch.setenv(name, str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in os.environ if name.startswith(PERSONAL)]:
        monkeypatch.delenv(name)
    class_settings.cache_clear()
    ledger.cache_clear()
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.setattr(secrets, "_registry", secrets._Registry())
    monkeypatch.setattr(secrets, "_names", secrets._names.copy())
    monkeypatch.setattr("agentmagic.replay.unasked._played_keys", {})  # nothing is told of it when the run ends


def _is_loopback(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(name)).is_loopback
    except ValueError:
        return False


def _stay_on_this_machine(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse, as a network without a way out would, what would leave the machine."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):  # a Unix socket's address is a string
        host = arguments[1][0]
    else:
        return
    if not _is_loopback(host):
        message = f"tests talk to this machine only, not to {host}"
        raise ConnectionRefusedError(message)


sys.addaudithook(_stay_on_this_machine)
