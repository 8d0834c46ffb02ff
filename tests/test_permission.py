import pytest

from agentmagic.errors import UsageError
from agentmagic.messages import ToolDef
from agentmagic.permission import Policy, denial, doubtful_denial

FETCH = ToolDef("fetch", "Fetch a page.", server="web")


@pytest.mark.parametrize(
    ("default", "override", "asks", "verdict"),
    [
        ("ask", None, False, "allow"),
        ("ask", None, True, "ask"),
        ("allow", None, True, "allow"),
        ("deny", None, False, "deny"),
        ("deny", None, True, "deny"),
        ("ask", "allow", True, "allow"),
        ("deny", "allow", True, "deny"),
        ("deny", "allow", False, "deny"),
        ("allow", "deny", False, "deny"),
        ("ask", "deny", True, "deny"),
        ("ask", "ask", False, "allow"),
        ("allow", "ask", True, "ask"),
    ],
)
def test_what_becomes_of_a_call(monkeypatch, default, override, asks, verdict):
    if override:
        monkeypatch.setenv("AGENTMAGIC_PERMISSION", override)
    assert Policy(default).decide(FETCH, asks=asks) == verdict


def test_a_tool_is_not_asked_about_again_after_always():
    policy = Policy()
    policy.approve(FETCH, always=True)
    assert policy.decide(FETCH, asks=True) == "allow"
    assert policy.decide(ToolDef("fetch", "", server="another"), asks=True) == "ask"
    assert policy.decide(ToolDef("post", "", server="web"), asks=True) == "ask"


def test_always_does_not_outweigh_deny(monkeypatch):
    policy = Policy()
    policy.approve(FETCH, always=True)
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "deny")
    assert policy.decide(FETCH, asks=True) == "deny"


def test_a_setting_that_is_none_says_which_there_are(monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "never")
    with pytest.raises(UsageError, match="Set it to allow, ask or deny"):
        Policy().decide(FETCH, asks=False)


def test_a_denial_says_how_to_allow_the_call():
    words = denial(FETCH)
    assert words.startswith("fetch was not run: it needs a person's approval, and nobody is there")
    assert 'permission="allow"' in words
    assert "%mcp allow web" in words
    assert "AGENTMAGIC_PERMISSION=allow" in words


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("default", ["allow", "ask"])
def test_a_tool_in_doubt_is_asked_about_whatever_else_holds_until_it_is_approved(monkeypatch, default, asks):
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "allow")
    policy = Policy(default, remembered={("web", "fetch")}, in_doubt={("web", "fetch")})
    assert policy.decide(FETCH, asks=asks) == "ask"
    policy.approve(FETCH, always=False)
    assert policy.decide(FETCH, asks=asks) == "allow"
    assert not policy.in_doubt


def test_a_denial_of_a_tool_in_doubt_says_why_and_what_to_do():
    words = doubtful_denial(FETCH)
    assert words.startswith("fetch was not run: it was under way when the kernel stopped")
    assert "session.in_doubt.clear()" in words
