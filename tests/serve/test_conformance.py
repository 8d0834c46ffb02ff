"""The conformance suite of the MCP project, against a served session."""

import json
import re
import subprocess

import pytest

from agentmagic.serve import limits
from tests.serve.conformance_session import serve_tools
from tests.serve.token_proxy import token_proxy
from tests.tools.mcp.test_conformance import NODE, SUITE

PROMPTS = "prompts"
FORMS = "forms of a tool's own: a question has one field, `answer`"
SAMPLING = "sampling: a tool asks no model of the client"
TASKS = "the extension for tasks"
NEEDS = {
    # What a scenario needs that a served notebook does not offer.
    "2025-11-25": {
        "logging-set-level": "logging",
        "tools-call-with-logging": "logging",
        "completion-complete": "completion of the arguments of prompts",
        "tools-call-sampling": SAMPLING,
        "elicitation-sep1034-defaults": FORMS,
        "elicitation-sep1330-enums": FORMS,
        "resources-read-binary": "resources that are no text",
        "resources-templates-read": "templates of resources",
        "resources-subscribe": "subscriptions to resources",
        "resources-unsubscribe": "subscriptions to resources",
        "prompts-list": PROMPTS,
        "prompts-get-simple": PROMPTS,
        "prompts-get-with-args": PROMPTS,
        "prompts-get-embedded-resource": PROMPTS,
        "prompts-get-with-image": PROMPTS,
        "server-sse-polling": "streams that go on after a break (not scored)",
    },
    "2026-07-28": {
        "server-stateless": SAMPLING,
        "completion-complete": "completion of the arguments of prompts",
        "resources-read-binary": "resources that are no text",
        "resources-templates-read": "templates of resources",
        "prompts-list": PROMPTS,
        "prompts-get-simple": PROMPTS,
        "prompts-get-with-args": PROMPTS,
        "prompts-get-embedded-resource": PROMPTS,
        "prompts-get-with-image": PROMPTS,
        "caching": PROMPTS,
        "input-required-result-basic-elicitation": FORMS,
        "input-required-result-multi-round": FORMS,
        "input-required-result-ignore-extra-params": "answers that come with the first request (a warning)",
        "input-required-result-basic-sampling": SAMPLING,
        "input-required-result-capability-check": SAMPLING,
        "input-required-result-multiple-input-requests": SAMPLING,
        "input-required-result-basic-list-roots": "the folders of the client",
        "input-required-result-non-tool-request": PROMPTS,
        "tasks-lifecycle": TASKS,
        "tasks-capability-negotiation": TASKS,
        "tasks-wire-fields": TASKS,
        "tasks-request-state-removal": TASKS,
        "tasks-mrtr-input": TASKS,
        "tasks-request-headers": TASKS,
        "tasks-dispatch-and-envelope": TASKS,
        "tasks-required-task-error": TASKS,
        "tasks-mrtr-composition": TASKS,
    },
}
PARTS_THAT_FAIL = {
    # Of a scenario with many checks, those that need what its row names; all others pass.
    "server-stateless": {"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"},
    "caching": {"sep-2549-prompts-list-caching-hints"},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NODE.is_file() and SUITE.is_file()), reason="AGENTMAGIC_NPM has no conformance suite"),
]


@pytest.mark.parametrize("revision", NEEDS)
def test_the_server_meets_the_requirements_of_a_revision_for_what_it_offers(revision, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the file of a served kernel is
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.5)  # the suite leaves many questions unanswered
    _, serving = serve_tools()
    try:
        with token_proxy(serving.url, serving._token) as url:
            command = [
                NODE,
                SUITE,
                "server",
                "--url",
                url,
                "--requirements",
                revision,
                "--output-dir",
                tmp_path / "results",
            ]
            suite = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    finally:
        serving.stop()
    bad, scenarios = {}, set()
    for file in (tmp_path / "results").glob("server-*/checks.json"):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.+", file.parent.name)[1]
        scenarios.add(name)
        found = {one["id"] for one in json.loads(file.read_text()) if one["status"] in ("FAILURE", "WARNING")}
        if found:
            bad[name] = found
    assert len(scenarios) > 30, suite.stdout[-3000:] + suite.stderr[-3000:]
    assert set(bad) == set(NEEDS[revision]), suite.stdout[-6000:]
    assert all(bad[name] == parts for name, parts in PARTS_THAT_FAIL.items() if name in bad), bad
