"""The options of a map, each with its usual value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypedDict

from agentmagic.agent import Agent, Output, ToolSource, check_limit
from agentmagic.errors import UsageError
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.providers.base import ModelSettings
from agentmagic.settings import Replay

OnError = Literal["keep", "stop"]


class MapOptions(TypedDict, total=False):
    """How a map asks its rows.

    `as_` is the form of each answer, a type or a JSON Schema. `to` is the file in which answers are kept: run again,
    the map goes on there and asks no answered row again. With `again`, all rows are asked anew if the prompt, the model
    or another part of what is asked has changed. `sample` asks so many rows only, chosen by `seed`, and tells what all
    of them may cost. `max_cost` (US dollars) and `max_tokens` hold for the whole map. `concurrency` bounds the rows
    that are asked at a time; without it the pace is that of the provider. `tools` replace those of the session's agent,
    `agent` replaces it, and `settings` are added to its settings. `batch` sends rows of one request in the provider's
    batches, at half the price and within a day. A failed row ends the map if `on_error` is "stop". `replay` is the mode
    of the session's cassette.
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
class MapSettings:
    """The options of a map, each with its value: the one that the caller gave, or the usual one.

    Raises UsageError for an invalid value.
    """

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

    @classmethod
    def of(cls, options: MapOptions) -> Self:
        """Fill in what the caller left out. Raises TypeError for an option that there is not."""
        known = MapOptions.__annotations__
        if unknown := options.keys() - known.keys():
            raise TypeError(f"A map has no option {min(unknown)!r}. Its options: {', '.join(known)}.")
        return cls(**options)

    def recipe(self, usual: Agent) -> Agent:
        """Return the agent of each row. Raises UsageError if it names wider limits than the class has."""
        recipe = TurnSettings(agent=self.agent, output=self.as_, settings=self.settings).recipe(usual)
        return recipe if self.tools is None else replace(recipe, tools=tuple(self.tools), mcp=())


def _is_path(given: object) -> bool:
    """Return whether a value may be the path of a file: a URL would become folders of odd names."""
    text = str(given) if isinstance(given, (str, Path)) else ""
    return text not in ("", ".") and "\0" not in text and "://" not in text
