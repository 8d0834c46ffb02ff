"""Conversations with strict servers, through a real session and the real SDKs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import AgentMagicError
from agentmagic.events import RunResult
from agentmagic.messages import Media, Text, ToolCall
from agentmagic.providers.base import Model
from agentmagic.providers.registry import providers
from agentmagic.runtime.engine import engine
from agentmagic.testing import invalid_history
from tests.providers.strict.script import Step, say
from tests.providers.strict.server import APIS, Strict, strict

PIXEL = Media("image/png", b"\x89PNG\r\n\x1a\n-a-picture", "pixel.png")
GOES_ON = "Here is more."
SDKS = {name: providers()[name].package or "httpx2" for name in APIS}


def is_installed(module: str) -> bool:
    """Return whether a module, of an SDK for example, can be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def api_case(name: str):
    """The API as a parameter of a test, which is skipped where its SDK is not installed."""
    return pytest.param(name, marks=pytest.mark.skipif(not is_installed(SDKS[name]), reason=f"{SDKS[name]} is missing"))


every_api = pytest.mark.parametrize("api", [api_case(name) for name in SDKS])
one_api = pytest.mark.parametrize("api", [api_case("openai")])
"""`every_api` is for what a provider does, `one_api` for what the loop does, which no provider changes."""


@dataclass
class Conversation:
    """A session with a model behind a strict server; `ran` has the arguments of every run of the clock."""

    server: Strict
    model: Model
    session: Session
    ran: list[str] = field(default_factory=list)

    def ask(self, prompt: str = "What time is it?", **options: Any) -> tuple[RunResult, AgentMagicError | None]:
        """Run a turn; return its result, and the error that it raises if it does."""
        try:
            return self.session.ask(prompt, **options), None
        except AgentMagicError as error:
            return error.result, error

    def goes_on(self) -> None:
        """Check that what was said so far is sound, and that the next prompt gets its answer."""
        assert self.server.refusals == []
        assert invalid_history(self.session.messages) is None
        self.server.script(say(GOES_ON), to="And now?")
        result, error = self.ask("And now?")
        assert error is None, error
        assert self.server.refusals == []
        assert (result.stop_reason, result.final_text) == ("answer", GOES_ON)


def tools(ran: list[str]):
    """The tools of every conversation."""

    def clock(zone: str) -> str:
        """Tell the time in a zone."""
        ran.append(zone)
        return f"noon in {zone}"

    def faulty() -> str:
        """Fail."""
        message = "the gears are stuck"
        raise RuntimeError(message)

    def camera() -> list[Any]:
        """Take a picture."""
        return [Text("What I see:"), PIXEL]

    return [clock, faulty, camera]


class Conversations:
    """Opens conversations, one at a time with each API: `with conversation("openai", say("Hello.")) as talk`.

    The servers and models are kept from one to the next, since an SDK takes long to connect.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Strict, Model]] = {}
        self._closing = ExitStack()

    @contextmanager
    def __call__(self, api: str, *steps: Step, **options: Any) -> Iterator[Conversation]:
        """Open a conversation whose server plays the steps; options are the agent's."""
        if api not in self._kept:
            server = self._closing.enter_context(strict(api))
            self._kept[api] = (server, server.model())
        server, model = self._kept[api]
        server.begin_anew(*steps)
        ran: list[str] = []
        with ExitStack() as closing:
            session = Session(Agent(model, tools=tools(ran), **options))
            closing.callback(session.close)
            yield Conversation(server, model, session, ran)

    def close(self) -> None:
        """Close every model and server."""
        for _, model in self._kept.values():
            engine().call(model.aclose())
        self._closing.close()


def retries(result: RunResult) -> int:
    """How often a step of a turn was tried again."""
    return sum(event.type == "step_retried" for event in result.events)


def words_of(result: RunResult) -> str:
    """All that the messages of a turn say and call."""
    parts = [part for message in result.history_delta for part in message.parts]
    return "\n".join(str(part.arguments) if isinstance(part, ToolCall) else getattr(part, "text", "") for part in parts)
