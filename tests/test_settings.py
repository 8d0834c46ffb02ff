from pathlib import Path

import pytest

from agentmagic import secrets, settings
from agentmagic.errors import AuthenticationMissing, UsageError
from agentmagic.settings import file_of, path_of


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, "_typed_keys", {})
    monkeypatch.chdir(tmp_path)


def test_an_empty_variable_counts_as_unset_and_off_is_read_in_any_case(monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_MODEL", "")
    assert settings.model_override() is None
    for name, written in (("AGENTMAGIC_HINTS", "off"), ("AGENTMAGIC_VIEW", "Off"), ("AGENTMAGIC_SCHEMA_ONLY", "OFF")):
        monkeypatch.setenv(name, written)
    assert (settings.hints(), settings.shows_runs(), settings.schema_only()) == (False, False, False)


def test_what_the_environment_overrides_is_said(monkeypatch):
    assert settings.override_notes("local:small", "openai:gpt-5.4") == []
    monkeypatch.setenv("AGENTMAGIC_MODEL", "local:")
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "deny")
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "live")
    others = [
        "AGENTMAGIC_PERMISSION=deny is set, and holds for each turn.",
        "AGENTMAGIC_REPLAY=live is set, and holds for each turn.",
    ]
    said = ["AGENTMAGIC_MODEL is set: local:small is asked in each turn.", *others]
    assert settings.override_notes("local:small", "openai:gpt-5.4") == said
    for same in ("", "local:small", "local:"):  # nothing is overridden if no model is named, or the same one
        assert settings.override_notes("local:small", same) == others


def test_a_key_is_looked_for_in_the_environment_then_typed_then_in_the_file_and_never_written_again(
    monkeypatch, tmp_path
):
    assert settings.find_key(["THE_KEY"]) is None
    (tmp_path / ".env").write_bytes(b"THE_KEY=\xff\xfe")
    assert settings.find_key(["THE_KEY"]) is None
    (tmp_path / ".env").write_text("THE_KEY=from-the-file\n")
    assert settings.find_key(["THE_KEY"]) == "from-the-file"
    settings.type_key("OTHER_KEY", " typed-by-hand\n")
    assert settings.find_key(["THE_KEY", "OTHER_KEY"]) == "typed-by-hand"  # each name in a place before the next place
    monkeypatch.setenv("THE_KEY", "from-the-environment")
    assert settings.find_key(["THE_KEY", "OTHER_KEY"]) == "from-the-environment"
    assert secrets.redact("from-the-environment") == secrets.BLANK


def test_a_missing_key_names_its_variables_and_what_works_without():
    with pytest.raises(AuthenticationMissing, match=r"Set A_KEY or B_KEY .* local: works without a key") as caught:
        settings.require_key("Somebody", ["A_KEY", "B_KEY"])
    assert caught.value.variables == ("A_KEY", "B_KEY")


# paths that a user wrote


def test_a_path_stays_as_it_was_written_but_for_its_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert path_of("talk.jsonl") == Path("talk.jsonl")
    assert path_of("~/talk.jsonl") == tmp_path / "talk.jsonl"
    assert path_of(Path("of/nobody.jsonl")) == Path("of/nobody.jsonl")


@pytest.mark.parametrize("written", ["x" * 300, "~no_such_user_here/x", "a\0b", "\ud800"], ids=ascii)
def test_what_no_file_can_be_called_is_refused_in_a_line(written):
    with pytest.raises(UsageError, match=r"^'.+' cannot be used as a path: .+[^.]\. Write another one\.$") as refused:
        path_of(written)
    assert len(str(refused.value)) < 250
    str(refused.value).encode()


def test_a_file_to_write_has_a_name_and_is_no_folder(tmp_path):
    with pytest.raises(UsageError, match="name of the file is empty"):
        path_of("")
    with pytest.raises(UsageError, match="is a folder"):
        file_of(tmp_path)
    assert file_of(tmp_path / "new.md") == tmp_path / "new.md"
    (tmp_path / "file").touch()
    assert path_of(tmp_path / "file" / "below") == tmp_path / "file" / "below"  # left to the code that opens it
