"""What the contracts share."""

import pytest

from tests.contracts.conversing import Conversations


@pytest.fixture(scope="session")
def conversation():
    """Opens conversations with strict servers."""
    conversations = Conversations()
    yield conversations
    conversations.close()
