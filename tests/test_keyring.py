"""Keys in the system's keyring."""

import sys

import keyring
import keyring.backends.fail
import keyring.backends.null
import pytest
from keyring.backend import KeyringBackend

from agentmagic import settings
from agentmagic.errors import UsageError


class Ring(KeyringBackend):
    """A keyring in memory, or one that refuses."""

    priority = 1  # pyright: ignore[reportAssignmentType]  (as the documentation of keyring has it)

    def __init__(self, *, refuses=False):
        self.kept = {}
        self.refuses = refuses

    def get_password(self, service, username):
        return self.kept.get((service, username))

    def set_password(self, service, username, password):
        if self.refuses:
            raise RuntimeError(f"no room for {password}")
        self.kept[service, username] = password

    def delete_password(self, service, username):
        del self.kept[service, username]


@pytest.fixture
def own_keyring():
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


def test_a_key_is_kept_in_the_keyring_and_found_there_after_all_other_places(own_keyring, monkeypatch):
    own_keyring(Ring())
    assert settings.keyring_problem() == ""
    settings.keep_key("THE_KEY", "kept-in-the-ring")
    assert settings.find_key_with_place(["THE_KEY"]) == ("kept-in-the-ring", "the system keyring")
    assert settings.find_key_with_place(["THE_KEY"], keyring=False) is None
    monkeypatch.setenv("THE_KEY", "from-the-environment")
    assert settings.find_key_with_place(["THE_KEY"]) == ("from-the-environment", "the environment")


def test_a_keyring_that_refuses_says_what_else_there_is_and_not_the_key(own_keyring):
    own_keyring(Ring(refuses=True))
    with pytest.raises(UsageError, match=r"RuntimeError.*kernel only, or set THE_KEY in") as caught:
        settings.keep_key("THE_KEY", "kept-in-the-ring")
    assert "kept-in-the-ring" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        (keyring.backends.fail.Keyring(), "This machine has no system keyring."),
        (keyring.backends.null.Keyring(), "This machine has no system keyring."),
    ],
)
def test_a_keyring_that_keeps_nothing_is_none(own_keyring, backend, problem):
    own_keyring(backend)
    assert settings.keyring_problem() == problem


def test_without_the_package_there_is_no_keyring(monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert settings.keyring_problem() == "The package keyring is not installed."
