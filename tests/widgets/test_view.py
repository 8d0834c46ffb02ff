"""The widget between a feed and a page; a recorder stands in for the comm."""

import threading

import pytest

from agentmagic.errors import UsageError
from agentmagic.events import PartDelta, PartStarted, Stop
from agentmagic.messages import Text, ToolCall
from agentmagic.runtime.engine import engine
from agentmagic.widgets import view as widget
from agentmagic.widgets.view import Library, View
from tests.display.logs import one_call, started
from tests.widgets.reader import Reader


class Sent(View):
    """A view whose messages are kept instead of sent; `arrived` is set with each."""

    def __init__(self, listener, **options):
        self.messages = []
        self.arrived = threading.Event()
        super().__init__(listener, **options)

    def send(self, content, buffers=None):
        self.messages.append(content)
        self.arrived.set()

    def hear(self, content):
        """Take a message as if it came from a page."""
        self._handle_custom_msg(content, [])


class Listener:
    def __init__(self, error=None):
        self.actions = []
        self._error = error

    def act(self, action):
        if self._error:
            raise self._error
        self.actions.append(action)


HELLO = {"type": "hello", "view": "view", "seen": -1}


def on_the_engine(function, *arguments):
    async def call():
        return function(*arguments)

    return engine().call(call())


def test_nothing_is_sent_before_a_page_has_said_hello_which_is_answered_with_all_there_is_and_then_frames_follow():
    view = Sent(Listener())
    for event in started():
        on_the_engine(view.feed, event)
    on_the_engine(view.flush)
    assert view.messages == []
    for seen in (None, "1", -1.5, []):  # that is no hello
        view.hear({**HELLO, "seen": seen})
    assert [list(view.messages.pop()) for _ in range(4)] == [["problem"]] * 4
    assert not view.mounted.is_set()
    view.hear(HELLO)
    assert view.mounted.is_set()
    for event in [PartStarted(0, "text"), PartDelta(0, "one "), PartDelta(0, "two ")]:
        on_the_engine(view.feed, event)
    view.arrived.clear()
    assert view.arrived.wait(5)
    reader = Reader()
    for message in view.messages:
        reader.take(message)
    assert reader.shown()[-1] == {"kind": "text", "open": True, "text": "one two "}
    assert len(view.messages) == 2


def test_a_hello_that_is_said_again_at_once_is_answered_once(monkeypatch):
    view = Sent(Listener(), events=started())
    view.hear(HELLO)
    view.hear(HELLO)
    assert len(view.messages) == 1
    monkeypatch.setattr(widget, "AGAIN", 0)
    view.hear(HELLO)
    assert len(view.messages) == 2


@pytest.mark.parametrize(
    ("listener", "message"),
    [(Listener(), {"type": "explode"}), (Listener(UsageError("A turn is running.")), {"type": "stop"})],
)
def test_an_action_is_handed_on_as_a_value_and_what_is_refused_is_said_in_the_page(listener, message):
    view = Sent(listener)
    view.hear(message)
    assert [list(message) for message in view.messages] == [["problem"]]
    assert listener.actions == []
    taken = Listener()
    Sent(taken).hear({"type": "stop"})
    assert taken.actions == [Stop()]


def test_a_page_may_ask_for_the_whole_of_a_result():
    view = Sent(Listener(), events=one_call(ToolCall("c1", "read", {}), Text("z" * 30_000)))
    view.hear(HELLO)
    key = next(key for key, block in view.messages[-1]["blocks"] if block["kind"] == "card")
    view.hear({"type": "whole", "key": key + 1000})
    assert len(view.messages) == 1
    view.hear({"type": "whole", "key": key})
    assert "z" * 30_000 in str(view.messages[-1]["ops"])


def test_the_views_of_a_kernel_share_one_library_which_alone_has_the_code_that_draws():
    one, other = View(Listener()), View(Listener(), home="panel")
    assert one.library == other.library == widget._library().name
    assert (one.home, other.home) == ("cell", "panel")
    assert len(str(one._esm)) < 500
    assert "initialize" in str(Library()._esm)


def test_a_page_is_there_if_it_answers_and_an_answer_to_an_earlier_question_does_not_count(monkeypatch):
    library, asked = Library(), []

    def page(content, buffers=None):
        asked.append(content)
        if len(asked) != 2:  # it is closed meanwhile
            library._handle_custom_msg({"type": "here"}, [])

    monkeypatch.setattr(library, "send", page)
    assert [library.has_page(seconds) for seconds in (30, 0, 30)] == [True, False, True]
    assert asked == [{"type": "there"}] * 3
