"""When an outside agent's turn ends, and what the agent sends after that.

An agent may send its last words just after its response to the prompt. So its turn does not end with the response, but
a moment after the last words.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from agentmagic.acp import bounds
from agentmagic.acp.updates import CallNews, LateCall, News, PlanNews, text_of
from agentmagic.events import PartDelta, PartStarted
from agentmagic.secrets import redact
from agentmagic.text import plural, single_line

Id = tuple[str, str]
"""Whether an id is of a "message" or of a "call", and the id."""


@dataclass(slots=True)
class LastWord:
    """The last text, thought, call or plan that an agent has sent for one prompt.

    `kind` is "text", "reasoning", "tool_call" or "plan"; it is "" if the agent has sent nothing. `at` is the time of
    the last word in seconds, by the clock of the event loop.
    """

    kind: str = ""
    at: float = 0.0
    _part: str = ""

    def hear(self, news: News, now: float) -> None:
        """Take `news` as the last word if it is text, a thought, a call or a plan. `now` is its time."""
        match news:
            case PartStarted():
                self._part = self.kind = news.kind
            case PartDelta():
                self.kind = self._part
            case CallNews() | LateCall():
                self.kind = "tool_call"
            case PlanNews():
                self.kind = "plan"
            case _:
                return
        self.at = now

    def turn_end(self, answered: float) -> float:
        """Return the time at which the agent's turn ends. `answered` is the time of its response to the prompt."""
        latest = answered + bounds.LAST_WORDS
        if not self.kind:
            return latest
        # After a call or a thought, a short answer often follows the response as a whole: wait for it.
        begin = self.at if self.kind == "text" else max(self.at, answered)
        return min(begin + bounds.SILENCE, latest)


class _Ids(OrderedDict[Id, str]):
    """Ids of messages and of calls, with the titles of the calls. Only the newest ids are kept."""

    def keep(self, key: Id, title: str) -> None:
        """Add an id. An empty title leaves the title as it is."""
        self[key] = title or self.get(key, "")
        if len(self) > bounds.LATE_IDS:
            self.popitem(last=False)


class LateWords:
    """What an agent sends after its turn has ended. A notice of the next turn contains it, but no answer does.

    The ids of messages and calls show which updates belong to an earlier prompt. Updates without an id that come after
    a prompt was sent belong to that prompt.
    """

    def __init__(self) -> None:
        self._earlier = _Ids()
        self._current = _Ids()
        self._entries: dict[tuple[str, Id | None], str] = {}

    def begin_prompt(self) -> None:
        """Begin a prompt: all ids so far are of earlier prompts."""
        for key, title in self._current.items():
            self._earlier.keep(key, title)
        self._current.clear()

    def is_late(self, content: Any) -> bool:
        """Return whether an update that came during the running prompt has an id of an earlier prompt.

        The announcement of a call, or a permission request for it, always begins a new call, because some agents count
        their calls from 1 in each prompt.
        """
        key = _id_of(content)
        if key is None:
            return False
        is_new = key in self._current or getattr(content, "session_update", "tool_call") == "tool_call"
        if key in self._earlier and not is_new:
            return True
        self._current.keep(key, _title_of(content))
        return False

    def add(self, content: Any) -> None:
        """Keep what a late update says. An update that is not text, a thought, a call or a plan is dropped."""
        key = _id_of(content)
        if key is not None:
            self._earlier.keep(key, _title_of(content))
        match content.session_update:
            case "agent_message_chunk" | "agent_thought_chunk" as kind if text := text_of(content):
                entry, words = (kind, key), self._entries.get((kind, key), "") + text
            case "tool_call" | "tool_call_update" if key is not None:
                status = f" ({content.status})" if content.status else ""
                entry, words = ("call", key), f'the call "{self._earlier.get(key, "")}"{status}'
            case "plan":
                entry, words = ("plan", None), f"a plan of {plural(len(content.entries), 'step')}"
            case _:
                return
        if entry in self._entries or len(self._entries) < bounds.LATE_ENTRIES:
            self._entries[entry] = words[: bounds.LATE_TEXT]

    def add_request(self, call: Any) -> None:
        """Keep that a permission request for a call came while no turn was running. It was refused."""
        entry = ("request", ("call", call.tool_call_id[: bounds.ID]))
        if len(self._entries) < bounds.LATE_ENTRIES:
            self._entries[entry] = f'a request for permission, which was refused: "{_title_of(call)}"'

    def take(self, name: str) -> str:
        """Return a sentence that says what the agent `name` has sent late, "" for nothing, and forget it."""
        told = [_QUOTES.get(kind, "{}").format(words.strip()) for (kind, _), words in self._entries.items()]
        self._entries.clear()
        if not told:
            return ""
        text = single_line("; ".join(told), bounds.LATE_TEXT)
        return redact(f"{name} sent more after its last turn had ended. It is no part of an answer: {text}")


_QUOTES = {"agent_message_chunk": '"{}"', "agent_thought_chunk": 'the thought "{}"'}


def _title_of(content: Any) -> str:
    """Return the title in an update about a call, "" if it has none."""
    return single_line(getattr(content, "title", None) or "", bounds.TITLE)


def _id_of(content: Any) -> Id | None:
    """Return the id of the message or the call that an update belongs to, or None if the update has no id."""
    if isinstance(call := getattr(content, "tool_call_id", None), str):
        return "call", call[: bounds.ID]
    message = getattr(content, "message_id", None)
    return ("message", message[: bounds.ID]) if isinstance(message, str) and message else None
