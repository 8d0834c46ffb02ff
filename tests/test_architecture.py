"""What importing agentmagic costs, which names it promises, and how its files are named."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import distributions
from pathlib import Path

import pytest

import agentmagic
from agentmagic.providers.registry import providers

ROOT = Path(__file__).parent.parent
# Where each SDK may be imported: in the package of its provider, and mcp in that of its tools and of its server.
HOMES = {row.package: (row.make.rpartition(".")[0],) for row in providers().values() if row.package}
HOMES["mcp"] = ("agentmagic.tools.mcp", "agentmagic.serve")
SDKS = set(HOMES)
HEAVY = {"httpx2", "jsonschema_rs", "nh3", "pydantic", "tenacity", "genai_prices", "keyring"}
JUPYTERS_OWN = ("agentmagic.jupyter", "agentmagic.widgets.view")
PAGE = ROOT / "docs" / "contributing.md"
MAY_REPEAT = {"Decoder", "Encoder", "Model", "Turn"}  # roles, which each provider or package has one of
JUPYTER = {"IPython", "anywidget", "ipykernel", "ipywidgets", "traitlets"}


def loaded_by(code: str) -> set[str]:
    """The modules a fresh interpreter holds after running the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_agentmagic_loads_nothing_heavy():
    assert loaded_by("import agentmagic") & (SDKS | HEAVY | JUPYTER) == set()


def test_no_module_outside_the_kernel_imports_an_sdk_or_jupyter_before_it_is_used():
    names = [module.replace("/", ".").removesuffix(".__init__") for module in modules()]
    outside = [name for name in names if not name.startswith(JUPYTERS_OWN) and not name.endswith("__main__")]
    assert loaded_by(f"import {', '.join(outside)}\nfrom agentmagic import *") & (SDKS | JUPYTER) == set()


def test_the_kernel_imports_no_sdk_before_it_is_used():
    assert loaded_by("import agentmagic.jupyter.extension") & SDKS == set()


@cache
def trees() -> dict[str, ast.Module]:
    """The code of each module of the package."""
    return {module: ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8")) for module in modules()}


def imported(tree: ast.Module) -> set[str]:
    """The packages that a module imports from, anywhere in it, also for the type checker only."""
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_an_sdk_is_imported_in_one_package_only():
    packages = {module: imported(tree) for module, tree in trees().items()}
    for sdk, homes in HOMES.items():
        users = [module for module, found in packages.items() if sdk.partition(".")[0] in found]
        folders = tuple(f"{home.replace('.', '/')}/" for home in homes)
        assert [module for module in users if not module.startswith(folders)] == []


def test_only_the_kernel_and_its_widgets_know_jupyter():
    users = [module.replace("/", ".") for module, tree in trees().items() if imported(tree) & JUPYTER]
    assert [module for module in users if not module.startswith(JUPYTERS_OWN)] == []


def test_the_public_names_are_these():
    names = """
        Agent AgentMagicError AgentOption AgentTool ApprovalAsked ApprovalGiven Approve AuthenticationFailed
        AuthenticationMissing BadRequest CallChanged CassetteError CellProposed Citation Clarified Compacted
        ConfigError Context ContextTooLong Deny Done Effects EmptyAnswer Event Example HistoryCut HostedCall
        HostedResult InnerCall InnerEvent Intent InvalidOutput JournalError Limits MalformedCall MapFailed
        MapOptions MapProgress MapResult MapRow MapRun Media Message MissingExtra Model ModelFinished
        ModelSettings NotebookTools Notice OutputSchema PageDecision Part PartDelta PartFinished PartStarted
        PlanRejected Planned Policy Prompt PromptAdded PromptEdited ProposalSettled ProviderData ProviderError
        QuestionAnswered QuestionAsked RateLimited Reasoning ReplayMismatch Reply Request Resource RetrySettings
        Routed Rule Run RunResult Sampled ScriptedModel ServerError Session SessionBusy Source StepFinished
        StepRetried StepStarted Stop StreamBroken TaskComplete TaskFinished TaskJudged TaskStarted Text Tool
        ToolCall ToolContext ToolDef ToolError ToolFinished ToolProgress ToolResult ToolStarted Toolset
        TurnFinished TurnOptions TurnStarted TurnTimeout Unavailable UnknownModel Usage UsageError
        VariablesChanged Working call_tool decode_log info preview priced reader register_model register_secret
        result tool usage user web_fetch web_search
    """
    assert agentmagic.__all__ == names.split()
    assert [name for name in agentmagic.__all__ if not hasattr(agentmagic, name)] == []
    assert set(agentmagic.__all__) <= set(dir(agentmagic))


@pytest.mark.skipif(not list(distributions(name="agentmagic")), reason="agentmagic is not installed")
def test_the_version_is_the_one_of_the_package():
    (installed,) = {one.version for one in distributions(name="agentmagic")}
    assert agentmagic.__version__ == installed


def test_the_picture_of_the_layers_is_the_contract():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(c["layers"] for c in config["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    picture = "\n".join(["```", *layers, "```"])
    assert picture in PAGE.read_text(encoding="utf-8")


def modules() -> list[str]:
    """The package's modules, as paths without their ending, in the order of the tree."""
    files = (path.relative_to(ROOT) for path in (ROOT / "agentmagic").rglob("*.py"))
    return sorted(path.with_suffix("").as_posix() for path in files)


def drawn_modules() -> list[str]:
    """The modules that the tree of docs/contributing.md names."""
    tree = re.search(r"^```\nagentmagic/\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert tree
    found: list[str] = []
    for row in re.sub(r"\n {4,}", " ", tree[1]).splitlines():
        place, names = re.split(r" {2,}", re.sub(r" \([^)]*\)", "", row.strip()))
        if place.endswith(".py"):
            found.append(f"agentmagic/{place.removesuffix('.py')}")
        else:
            found += [f"agentmagic/{place}{name}" for name in ("__init__", *names.split(", "))]
    return sorted(found)


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_modules_import_each_other_in_a_circle():
    graph = pytest.importorskip("grimp").build_graph("agentmagic", cache_dir=None)
    TopologicalSorter({one: graph.find_modules_directly_imported_by(one) for one in graph.modules}).prepare()


def test_the_tree_in_the_docs_names_every_module_and_no_other():
    assert drawn_modules() == modules()


def test_no_class_name_stands_twice_in_the_package():
    names = (node.name.lstrip("_") for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert repeated(names) - MAY_REPEAT == set()
