"""What runs elsewhere, where no test of this machine sees it: workflows, forms, hooks. They agree with the clone."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


WORKFLOWS = {path.stem: read(path) for path in sorted(GITHUB.glob("workflows/*.yml"))}
JOBS = {f"{name}.{job}": body for name, workflow in WORKFLOWS.items() for job, body in workflow["jobs"].items()}
RIGHTS = {"docs.publish": {"pages": "write", "id-token": "write"}, "release.publish": {"id-token": "write"}}
"""What a job may do that does more than read the clone."""
HOOKS = [hook for repo in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
FORMS = [path for path in sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) if path.stem != "config"]


def commands(job):
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_every_python_that_is_supported_is_tested_on_every_system():
    said = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={said[0]}"
    assert JOBS["ci.fast"]["strategy"]["matrix"] == {"python": said}
    assert JOBS["ci.core"]["strategy"]["matrix"] == {"os": ["macos-latest", "windows-latest"], "python": said}
    assert {JOBS[job]["runs-on"] for job in ("ci.fast", "ci.oldest", "ci.full")} == {"ubuntu-latest"}


def test_workflows_run_what_is_there():
    run = "\n".join(line for job in JOBS for line in commands(job))
    assert [name for name in re.findall(r"^bash (\S+)", run, re.MULTILINE) if not (ROOT / name).is_file()] == []
    extras = re.findall(r"\.\[([\w,-]+)\]", run)
    assert {*extras} == {"test", "core-test", "site"} <= {*PROJECT["optional-dependencies"]}


def test_a_release_is_built_for_the_tag_that_was_pushed_or_not_at_all():
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v[0-9]*"]}}  # YAML reads "on" as True
    (step,) = (one for one in JOBS["release.build"]["steps"] if "run" in one)
    assert step["run"] == 'bash .ci/release dist "${TAG:?}"'
    assert step["env"]["TAG"] == "${{ github.ref_name }}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_only_the_code_that_was_looked_at_and_may_write_only_to_publish(name):
    lines = re.findall(r"uses: (.*)", (GITHUB / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert WORKFLOWS[name]["permissions"] == {}
    for job, body in WORKFLOWS[name]["jobs"].items():
        assert body["permissions"] == RIGHTS.get(f"{name}.{job}", {"contents": "read"})
        checkouts = [step for step in body["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)
        # What may write runs no code of the clone.
        assert f"{name}.{job}" not in RIGHTS or not (checkouts or commands(f"{name}.{job}"))


def test_pre_commit_checks_what_ci_run_checks():
    hooks = {hook["id"]: hook["entry"] for hook in HOOKS}
    assert hooks.pop("actionlint") == "actionlint"  # which fetches a program where it is installed
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [entry for entry in hooks.values() if entry not in run] == []


def test_dependabot_looks_at_packages_locks_and_workflows():
    updates = {one["package-ecosystem"]: one for one in read(GITHUB / "dependabot.yml")["updates"]}
    assert set(updates) == {"pip", "npm", "github-actions"}
    locks = [*ROOT.glob("js/package-lock.json"), *ROOT.glob("js/*/package-lock.json")]
    assert updates["npm"]["directories"] == [f"/{path.parent.relative_to(ROOT).as_posix()}" for path in locks]


def test_the_hooks_pin_what_they_fetch_which_a_maintainer_raises():
    fetched = {hook["id"]: hook["additional_dependencies"] for hook in HOOKS if hook["language"] != "system"}
    assert [*fetched] == ["actionlint"]
    assert [one for one in fetched["actionlint"] if not re.fullmatch(r"[\w-]+==[\d.]+", one)] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_something_that_has_to_be_answered(path):
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("path", sorted(GITHUB.glob("*.md")), ids=lambda path: path.stem)
def test_links_between_the_pages_for_maintainers_and_the_docs_lead_somewhere(path):
    links = re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
