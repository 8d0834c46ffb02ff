"""A view without a page: follows the messages of a feed as js/src/link.js and js/src/state.js do."""

import json


class Reader:
    """Keeps what a view would show; `hello` is what it would ask next, or None where it is content."""

    def __init__(self, name="view"):
        self.name = name
        self.number = -1
        self.blocks = {}
        self.state = {}
        self.behind = True
        self._early = {}
        self._pieces = {}

    def take(self, message):
        message = json.loads(json.dumps(message))
        if "piece" in message:
            message = self._joined(message)
        if message is None or message.get("view", self.name) != self.name:
            return
        if "blocks" in message:
            self._begin(message)
        elif "view" in message:
            self.behind = message["n"] != self.number
        elif message["n"] > self.number:
            self._early[message["n"]] = message
        self._catch_up()

    def shown(self):
        return [self.blocks[key] for key in sorted(self.blocks)]

    def _begin(self, snapshot):
        if snapshot["n"] < self.number:
            return
        self.number = snapshot["n"]
        self.blocks = dict(snapshot["blocks"])
        self.state = snapshot["state"]
        self.behind = False

    def _catch_up(self):
        if self.number < 0:
            return
        while frame := self._early.pop(self.number + 1, None):
            self._apply(frame)
        self._early = {number: frame for number, frame in self._early.items() if number > self.number}
        self.behind = self.behind or bool(self._early)

    def _apply(self, frame):
        self.number = frame["n"]
        for key, change in frame["ops"]:
            if change is None:
                del self.blocks[key]
            elif isinstance(change, str):
                self.blocks[key]["text"] = self.blocks[key].get("text", "") + change
            else:
                self.blocks[key] = self.blocks.get(key, {}) | change
        self.state |= frame.get("state", {})

    def _joined(self, message):
        parts = self._pieces.setdefault(message["id"], {})
        parts[message["piece"]] = message["text"]
        if len(parts) < message["of"]:
            return None
        del self._pieces[message["id"]]
        return json.loads("".join(parts[place] for place in range(message["of"])))
