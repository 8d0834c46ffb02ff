"""A loopback server that refuses what a real API refuses, and otherwise plays a script."""

import json
from collections.abc import Iterable, Iterator

from agentmagic.providers.base import Model
from tests.providers.loopback import Exchange, Loopback, Received
from tests.providers.strict.anthropic import Anthropic
from tests.providers.strict.chat import Chat
from tests.providers.strict.gemini import Gemini
from tests.providers.strict.ollama import Ollama
from tests.providers.strict.responses import Responses
from tests.providers.strict.rules import Api, Json, Refused, refuse_unless
from tests.providers.strict.script import Answer, Fault, Step

KEY = "test-key-of-nobody"

APIS: dict[str, type[Responses | Chat | Gemini | Anthropic | Ollama]] = {
    "openai": Responses,
    "openai-chat": Chat,
    "gemini": Gemini,
    "anthropic": Anthropic,
    "ollama": Ollama,
}


class Strict(Loopback):
    """Answers each request that its API accepts with the next step of a script, and refuses the others.

    `refusals` says why requests were refused, one beyond the script among them.
    """

    def __init__(self, api: Api, steps: Iterable[Step]) -> None:
        super().__init__(())
        self.api = api
        self.refusals: list[str] = []
        self._steps: Iterator[Step] = iter(steps)
        self._prompt = ""

    def script(self, *steps: Step, to: str = "") -> None:
        """Play other steps from now on, to requests with that prompt alone: one of a cancelled turn may come late."""
        self._steps = iter(steps)
        self._prompt = to

    def begin_anew(self, *steps: Step) -> None:
        """Forget what was asked, for another test; the API goes on knowing what it wrote."""
        self.requests.clear()
        self.refusals.clear()
        self.stalled.clear()
        self.dropped.clear()
        self.script(*steps)

    def model(self) -> Model:
        """Return the provider of this API, pointed at this server."""
        return self.api.model(self.url, KEY)

    def answer(self, received: Received) -> Exchange:
        """Check a request, and return what the next step answers it with."""
        if self._prompt.encode() not in received.body:
            return Exchange("", dropped=True)
        try:
            self.api.check(received.path, _decoded(received.body))
            return self._play(self._next())
        except Refused as refused:
            self.refusals.append(str(refused))
            return _json(self.api.refusal(refused), refused.status)

    def _next(self) -> Step:
        step = next(self._steps, None)
        if step is None:
            message = "The script has no step for this request."
            raise Refused(message)
        return step

    def _play(self, step: Step) -> Exchange:
        match step:
            case Answer():
                return self._stream(step)
            case Fault(kind="dropped"):
                return Exchange("", dropped=True)
            case Fault(status=status, retry_after=seconds):
                # Google says it in the body instead.
                headers = {"retry-after": seconds} if seconds and not isinstance(self.api, Gemini) else {}
                return _json(self.api.failure(step), status, headers)

    def _stream(self, answer: Answer) -> Exchange:
        begin, rest = ("".join(events) for events in self.api.stream(answer))
        match answer.ending:
            case "whole" | "length":
                return Exchange(begin + rest)
            case "closed":
                return Exchange(begin + rest, cut_at=len(begin.encode()))
            case "stall":
                return Exchange(begin + rest, stall_at=len(begin.encode()))
            case "error":
                return Exchange(begin + self.api.midway_failure())


def strict(api: str, *steps: Step) -> Strict:
    """Make a server of the API of a provider's name, which plays the steps."""
    return Strict(APIS[api](), steps)


def _decoded(body: bytes) -> Json:
    try:
        decoded = json.loads(body.decode("utf-8"))
    except ValueError as error:  # or no UTF-8
        message = "We could not parse the JSON body of your request."
        raise Refused(message) from error
    refuse_unless(isinstance(decoded, dict), "Invalid body: expected an object.")
    return decoded


def _json(body: Json, status: int, headers: dict[str, str] | None = None) -> Exchange:
    return Exchange(json.dumps(body), status, "application/json", headers or {})
