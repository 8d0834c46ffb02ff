"""Notices tool calls that a server sends a second time within one answer."""

from agentmagic.messages import ToolCall
from agentmagic.serialization import same_json


class SentCalls:
    """Remembers the calls of one answer, with the ids that the server sent; the id "" stands for no id.

    The same call twice is one call only if the server says so: by the same id, or by a copy without the id that the
    first one has. Equal calls with different ids, or without any id, are several calls.
    """

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []

    def has_id(self, call_id: str) -> bool:
        """Return whether a call with this id was sent before."""
        return any(one.id == call_id for one in self._calls)

    def is_again(self, call: ToolCall) -> bool:
        """Return whether the server sent this call before, and remember it if not."""
        for one in self._calls:
            is_same = one.id and call.id in ("", one.id) and call.name == one.name
            if is_same and same_json(call.arguments, one.arguments):
                return True
        self._calls.append(call)
        return False
