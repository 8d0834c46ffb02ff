"""When an outside agent's turn ends, and what the agent sends after that.

An agent may send its last words just after its response to the prompt. So its turn does not end with the response, but
a moment after the last words.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from agentmagic.acp import bounds
from agentmagic.acp.reports import text_of
from agentmagic.acp.updates import CallNews, LateCall, News, PlanNews
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

    def hear_held(self, now: float) -> None:
        """Take a chunk of text that `LateWords` holds as the last word. `now` is its time."""
        self.kind, self.at = "text", now

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


@dataclass(slots=True)
class _Texts:
    """The texts and thoughts that an agent has sent for one prompt, by their ids.

    `plain`: whether some have no id. `named`: whether some have a new id. `held`: updates with ids of earlier prompts,
    and `size`, the number of their characters. `ends_held`: whether a held text is the last word, also among the calls.
    """

    plain: bool = False
    named: bool = False
    held: list[Any] = field(default_factory=list[Any])
    size: int = 0
    ends_held: bool = False


class LateWords:
    """What an agent sends after its turn has ended. A notice of the next turn contains it, but no answer does.

    The ids of messages and calls show which updates belong to an earlier prompt. Updates without an id that come after
    a prompt was sent belong to that prompt. Some agents take the ids of messages from their model's server, and some
    servers give the same id to every message. So texts with an old id are held until the prompt has ended.
    """

    def __init__(self) -> None:
        self._earlier = _Ids()
        self._current = _Ids()
        self._texts = _Texts()
        self._entries: dict[tuple[str, Id | None], str] = {}
        self._mixes_ids = False  # whether the agent has sent texts with and without an id for one prompt
        self._repeats_ids = False  # whether the agent gives the same id to messages of different prompts

    def begin_prompt(self) -> None:
        """Begin a prompt: all ids so far are of earlier prompts."""
        for held in self._texts.held:  # of a prompt that was stopped
            self.add(held.update)
        for key, title in self._current.items():
            self._earlier.keep(key, title)
        self._current.clear()
        self._texts = _Texts()

    def end_prompt(self) -> list[Any]:
        """End a prompt. Return the held updates if they are its answer, because the agent repeats its ids."""
        texts, self._texts = self._texts, _Texts()
        is_answer = texts.ends_held and not texts.named and (self._mixes_ids or not texts.plain)
        self._mixes_ids = self._mixes_ids or (texts.plain and texts.named)
        self._repeats_ids = self._repeats_ids or is_answer
        if is_answer:
            return texts.held
        for held in texts.held:
            self.add(held.update)
        return []

    def hold(self, report: Any) -> bool:
        """Return whether an update of the running prompt has an id of an earlier prompt. If so, keep the update."""
        content, key = report.update, _id_of(report.update)
        is_text = content.session_update in _QUOTES
        # The announcement of a call always begins a new call: some agents count their calls from 1 in each prompt.
        is_new = key is None or content.session_update == "tool_call" or (is_text and self._repeats_ids)
        if is_new or key in self._current or key not in self._earlier:
            self.note(content)
            return False
        if not is_text:
            self.add(content)
            return True
        self._texts.ends_held = True
        self._texts.size += len(text_of(content))
        if self._texts.size <= bounds.LATE_HELD:
            self._texts.held.append(report)
        return True

    def note(self, content: Any) -> None:
        """Note the id in an update, or in a permission request, as one of the running prompt."""
        key = _id_of(content)
        if key is not None:
            self._current.keep(key, _title_of(content))
            self._texts.ends_held = False
        if getattr(content, "session_update", "") in _QUOTES:
            self._texts.ends_held = False
            self._texts.plain = self._texts.plain or key is None
            self._texts.named = self._texts.named or key is not None

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
