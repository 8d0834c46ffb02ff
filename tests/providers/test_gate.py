import asyncio
import gc
import weakref
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.agent import Agent, RetrySettings
from agentmagic.errors import BadRequest, ProviderError, RateLimited, TurnTimeout, Unavailable
from agentmagic.events import StepRetried
from agentmagic.loop.step import TurnContext
from agentmagic.loop.turn import Channel, run_turn
from agentmagic.messages import Usage, user
from agentmagic.providers import gate as gates
from agentmagic.providers.gate import ProviderGate, gate_of
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Faulty
from tests.benchmarks.pace import STORM, Scene, in_virtual_time, play, share

SHORT, LONG = (0.8, 2.5), (2.0, 12.0)


@pytest.mark.parametrize(
    "scene",
    [
        Scene(limit=60, latency=SHORT),
        Scene(limit=60, latency=LONG, grants="window", tells="wait"),
        Scene(limit=60, latency=LONG, grants="minute", tells="headers", storm=STORM),
        Scene(limit=500, latency=LONG, storm=STORM),
        Scene(limit=500, latency=SHORT, grants="window", storm=replace_status(STORM, 503))
        if (replace_status := lambda storm, status: (*storm[:3], status))
        else Scene(),
        Scene(limit=5000, tokens=300_000, latency=SHORT, tells="headers", grants="minute"),
    ],
    ids=str,
)
def test_the_gate_uses_what_a_provider_allows_and_is_seldom_refused(scene):
    server = play(scene, 1)
    assert share(server) >= 0.9
    assert server.refused <= 0.3 * server.accepted
