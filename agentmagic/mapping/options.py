"""The options of a map, with their defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, TypedDict

from agentmagic.agent import Agent, Output, ToolSource, check_limit
from agentmagic.errors import UsageError
from agentmagic.loop.turn_options import KeywordSettings, TurnSettings
from agentmagic.providers.base import ModelSettings
from agentmagic.settings import Replay

OnError = Literal["keep", "stop"]


class MapOptions(TypedDict, total=False):
    """The options of a map.

    `as_` is the type or JSON Schema of each answer. `to` is the file that stores the answers: if the map runs again, it
    continues with this file, and asks no answered row again. With `again`, all rows are asked again if the prompt, the
    model or another part of the request has changed. `sample` asks only this number of rows, chosen with `seed`, and
    estimates the cost of all rows. `max_cost` (US dollars) and `max_tokens` are limits for the whole map. `concurrency`
    is the largest number of rows asked at a time; without it, the provider's limits set the pace. `tools` replace the
    tools of the session's agent, `agent` replaces the agent, and `settings` are added to its settings. `batch` sends
    each row as one request in a batch of the provider: at half the price and within a day. If `on_error` is "stop", a
    failed row ends the map. `replay` is the mode of the session's cassette.
    """

    as_: Output | None
    to: str | Path | None
    sample: int | None
    seed: int
    max_cost: float | None
    max_tokens: int | None
    concurrency: int | None
    tools: Sequence[ToolSource] | None
    batch: bool
    again: bool
    on_error: OnError
    agent: Agent | None
    settings: ModelSettings | None
    replay: Replay | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings(KeywordSettings):
    """The options of a map: the caller's values or the defaults, checked.

    Raises UsageError for an invalid value.
    """

    keywords: ClassVar[type] = MapOptions

    as_: Output | None = None
    to: str | Path | None = None
    sample: int | None = None
    seed: int = 0
    max_cost: float | None = None
    max_tokens: int | None = None
    concurrency: int | None = None
    tools: Sequence[ToolSource] | None = None
    batch: bool = False
    again: bool = False
    on_error: OnError = "keep"
    agent: Agent | None = None
    settings: ModelSettings | None = None
    replay: Replay | None = None

    def __post_init__(self) -> None:
        check_limit("max_cost", self.max_cost, "US dollars")
        check_limit("max_tokens", self.max_tokens, "a number of tokens")
        for name in ("sample", "concurrency"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise UsageError(f"{name} is {number!r}. Give a whole number of rows, at least 1.")
        if self.to is not None and not _is_path(self.to):
            raise UsageError(f"to is {self.to!r}. Give the path of a file on this machine, as in 'labels.jsonl'.")
        if self.on_error not in ("keep", "stop"):
            raise UsageError(f'on_error is {self.on_error!r}. Choose "keep" or "stop".')

    def recipe(self, usual: Agent) -> Agent:
        """Return the agent for each row. Raises UsageError if its limits exceed those of a teacher or administrator."""
        recipe = TurnSettings(agent=self.agent, output=self.as_, settings=self.settings).recipe(usual)
        return recipe if self.tools is None else replace(recipe, tools=tuple(self.tools), mcp=())


def _is_path(value: object) -> bool:
    """Return whether a value can be the path of a file. A URL cannot: folders named "https:" would be created."""
    text = str(value) if isinstance(value, (str, Path)) else ""
    return text not in ("", ".") and "\0" not in text and "://" not in text
