"""Every turn of these tests reads its cassette from the file, as another kernel would, not what is still in memory."""

from pathlib import Path

import pytest

from agentmagic.replay.cassette import Cassette


class Forgetful(dict[Path, Cassette]):
    """Keeps no cassette."""

    def __setitem__(self, path, cassette):
        pass


@pytest.fixture(autouse=True)
def _cassettes_are_read_from_their_files(monkeypatch):
    monkeypatch.setattr(Cassette, "_instances", Forgetful())
