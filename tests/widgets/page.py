"""A page before a view, without a browser: does what a person does, and waits for what is shown."""

import threading
import time

from tests.widgets.reader import Reader

PATIENCE = 30.0
"""Seconds after which what is waited for has failed to come."""
LOOK = 0.1
"""Seconds between two looks at what is waited for."""


class Page:
    """Says hello to a view at once, and follows it from then on; what is said in words is kept."""

    def __init__(self, view, name="view"):
        self.problems = []
        self.said = []
        self.given_back = []
        self._view = view
        self._reader = Reader(name)
        self._changed = threading.Condition()
        self._others = view.send
        view.send = self._take
        self.act("hello", view=self._reader.name, seen=-1)

    @property
    def state(self):
        return self._reader.state

    def act(self, kind, **fields):
        """Send a message as the page does."""
        self._view._handle_custom_msg({"type": kind, **fields}, [])

    def blocks(self, kind):
        return [block for block in self._reader.shown() if block["kind"] == kind]

    def texts(self, kind):
        return [block.get("text", "") for block in self.blocks(kind)]

    @property
    def printed(self):
        """What commands have printed into the conversation, a text for each."""
        return ["\n".join(part["text"] for part in block["parts"]) for block in self.blocks("printout")]

    def until(self, holds):
        """Wait until something holds, and return what it came to."""
        ends = time.monotonic() + PATIENCE
        with self._changed:
            # What is waited for can come without a message to the page, so look again now and then.
            while not (found := self._changed.wait_for(holds, LOOK)) and time.monotonic() < ends:
                pass
        assert found, f"problems {self.problems}, said {self.said}, state {self.state}, shown {self._reader.shown()}"
        return found

    def asked(self):
        """Wait for a question about an act of the page."""
        return self.until(lambda: self.state.get("asked"))

    def allow(self, kind, **fields):
        """Send a message that opens a question, and approve it on its card."""
        self.act(kind, **fields)
        self.act("approve", id=self.asked()["ask"])
        self.until(lambda: not self.state["asked"])

    def card(self, state):
        """Wait for a card in a state."""
        return self.until(lambda: next((card for card in self.blocks("card") if card["state"] == state), None))

    def turns(self, number):
        """Wait until so many turns are over."""
        self.until(lambda: len(self.blocks("footer")) == number and not self.state.get("running"))

    def _take(self, content, buffers=None):
        with self._changed:
            if "problem" in content:
                self.problems.append((content["problem"], content.get("unsent", "")))
            elif "unsent" in content:
                self.given_back.append(content["unsent"])
            elif "said" in content:
                self.said.append(content["said"])
            else:
                self._reader.take(content)
            self._changed.notify_all()
        self._others(content, buffers)
