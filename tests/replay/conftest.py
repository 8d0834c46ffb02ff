"""Every turn of these tests reads its cassette from the file, as another kernel would, not what is still in memory."""

import pytest

from agentmagic.replay.cassette import Cassette


@pytest.fixture(autouse=True)
def _cassettes_are_read_from_their_files(monkeypatch):
    monkeypatch.setattr(Cassette, "_read", property(lambda _: None, lambda _self, _state: None), raising=False)
