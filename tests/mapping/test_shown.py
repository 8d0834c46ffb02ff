"""A map as its listeners hear it, and as the terminal of a script shows it."""

import io
import sys
import threading
from queue import SimpleQueue

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import BadRequest
from tests.mapping.models import RowModel


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Refusing(RowModel):
    """Refuses rows that say so."""

    async def stream(self, request):
        if "refused" in request.messages[-1].text:
            raise BadRequest(request.messages[-1].text)
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize(("stream", "is_shown"), [(Terminal, True), (io.StringIO, False)])
def test_a_script_draws_a_bar_if_stderr_is_a_terminal(monkeypatch, stream, is_shown):
    monkeypatch.setattr(sys, "stderr", stream())
    result = Session(Agent(Refusing())).map(["a", "b refused\x1b[31m", "c"], "Say {row}")
    drawn = sys.stderr.getvalue()
    assert result.progress.answered == 2
    assert ("3/3" in drawn) == is_shown
    assert ("1 failed" in drawn) == is_shown
    assert ("1 row: " in drawn) == is_shown
    assert "\x1b[31m" not in drawn


def test_who_listens_to_the_maps_of_a_session_hears_them_from_where_they_are_to_their_end():
    session = Session(Agent(RowModel()))
    heard, over = [], threading.Event()

    def hear(event):
        heard.append(event)
        if event.ended:
            over.set()

    session.listen_to_maps(hear)
    run = session.start_map(["a", "b waits"], "Say {row}")
    assert session.running_map is run
    run.stop()
    run.stop()
    run.wait()
    assert over.wait(5)
    assert session.running_map is None
    assert {event.id for event in heard} == {run.progress.id}
    assert heard[-1].ended == "stopped"
    late = SimpleQueue()
    run.listen(late.put)
    assert late.get(timeout=5).ended == "stopped"


def test_the_head_of_a_result_is_the_head_of_its_frame():
    result = Session(Agent(RowModel())).map(list("abcd"), "Say {row}")
    assert result.head(2).equals(result.frame.head(2))
    sample = Session(Agent(RowModel())).map(list("abcd"), "Say {row}", sample=2)
    assert sample.head(9).equals(sample.frame)
