"""`local:`, a small model on the user's own machine: no key, no network once it is fetched."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from agentmagic.errors import UnknownModel
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, ToolDef, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, Request
from agentmagic.providers.local import files, prompts, runtime
from agentmagic.providers.local.prompts import GenerationRequest, Talk
from agentmagic.providers.local.runtime import Finished, Generator, RefusedForm

MODEL = "qwen2.5-coder-1.5b"
WHO = (
    "You are {name}, a small language model that agentmagic runs on the user's own machine. "
    'To the question who you are, you answer: "I am {name}, a small language model on your own machine."'
)
"""It must not pass for another, larger model."""

__all__ = ["MODEL", "Local", "make"]


def make(model: str = "") -> "Local":
    """Return the model of a name: "" or "qwen2.5-coder-1.5b" for the one that is fetched, or a path to a GGUF.

    Nothing is fetched or loaded before the first request. Raises UnknownModel.
    """
    model = model.removeprefix("local:")
    if model in ("", MODEL):
        return Local(f"local:{MODEL}", WHO.format(name="Qwen2.5-Coder 1.5B"), _fetched)
    path = Path(model).expanduser()
    if path.suffix != ".gguf":
        message = f"local:{model} is not known. Write local: for {MODEL}, or local:/path/to/a/file.gguf."
        raise UnknownModel(message)
    if not path.is_file():
        message = f"There is no file {path}. Write local: for {MODEL}, which is fetched, or the path of a GGUF file."
        raise UnknownModel(message)
    return Local(f"local:{model}", WHO.format(name=path.stem), lambda: runtime.load(path))


async def _fetched() -> runtime.Runtime:
    runtime.require()  # said before a gigabyte is fetched for nothing
    stop = threading.Event()
    try:
        path = await asyncio.to_thread(files.fetch, stop=stop)
    except asyncio.CancelledError:
        stop.set()
        raise
    return await runtime.load(path)


class _Meter:
    """Adds up what the generations of one request took."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.reason = ""

    def add(self, finished: Finished) -> None:
        self.usage += finished.usage
        self.reason = finished.reason


class Local:
    """A small model that plans under a grammar, fills in arguments under a schema and answers in free text.

    `load` gives the loaded model; it is asked once, at the first request. Nothing is kept between requests
    but the loaded model, and closing does not unload it: it is shared by the whole process.
    """

    def __init__(self, name: str, who: str, load: Callable[[], Awaitable[Generator]]) -> None:
        self._name = name
        self._who = who
        self._load = load
        self._generator: Generator | None = None

    @property
    def name(self) -> str:
        """The full name, "local:model"."""
        return self._name

    async def prepare(self) -> None:
        """Fetch the weights (1.1 GB, once), load them (2 GB of memory, once per process) and warm up."""
        await self._ready()

    async def _ready(self) -> Generator:
        if self._generator is None:
            self._generator = await self._load()
        return self._generator

    def choose(self, tools: Sequence[ToolDef], question: str) -> tuple[ToolDef, ...]:
        """Return at most five of the tools: those that have most to do with the question."""
        return prompts.choose(tools, question)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Yield a tool call or an answer; of more tools than `choose` keeps, the others are not looked at."""
        generator = await self._ready()
        meter = _Meter()
        call = await self._next_call(generator, request, meter)
        if call:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
            yield PartStarted(0, "tool_call", call.name)
            yield PartDelta(0, arguments)
            yield PartFinished(0, call)
            reason, cut = "tool_calls", prompts.RAW in call.arguments
        else:
            async with aclosing(self._answer(generator, request, meter)) as events:
                async for event in events:
                    yield event
            reason, cut = meter.reason, meter.reason == "length"
        yield ModelFinished(meter.usage + Usage(requests=1), reason, cut, once=False)

    async def _answer(self, generator: Generator, request: Request, meter: _Meter) -> AsyncGenerator[ModelEvent]:
        """Stream the answer as one text part, held to its form where one is asked for."""
        talk = prompts.read(request)
        prompt = prompts.answer(talk, request.instructions, self._who, request.output)
        text = ""
        yield PartStarted(0, "text")
        async with aclosing(_formed(generator, prompt, meter)) as pieces:
            async for piece in pieces:
                text += piece
                yield PartDelta(0, piece)
        yield PartFinished(0, Text(text))

    async def _next_call(self, generator: Generator, request: Request, meter: _Meter) -> ToolCall | None:
        """Return the call to make now, or None where the answer is due."""
        talk = prompts.read(request)
        tool = await self._next_tool(generator, request, talk, meter)
        if tool is None:
            return None
        values = {} if prompts.takes_nothing(tool) else await _arguments(generator, talk, tool, meter)
        call = ToolCall(prompts.next_id(request.messages), tool.name, values)
        # The same call again would give the same result: what it gave before is answered from.
        return call if request.tool_choice != "auto" or not prompts.repeats(talk, call) else None

    async def _next_tool(self, generator: Generator, request: Request, talk: Talk, meter: _Meter) -> ToolDef | None:
        choice = request.tool_choice
        if choice == "none" or not request.tools:
            return None
        if choice not in ("auto", "required"):
            return next((tool for tool in request.tools if tool.name == choice), None)
        kept = self.choose(request.tools, talk.question)
        required = choice == "required"
        reply = await _reply(generator, prompts.plan(talk, kept, required=required), meter)
        steps = prompts.planned(reply, kept)
        tool = prompts.next_tool(talk, steps)
        return (steps or kept)[-1] if required and tool is None else tool

    async def aclose(self) -> None:
        """Close nothing: the loaded model is shared by the whole process."""


async def _arguments(generator: Generator, talk: Talk, tool: ToolDef, meter: _Meter) -> dict[str, object]:
    return prompts.parsed(await _reply(generator, prompts.arguments(talk, tool), meter))


async def _reply(generator: Generator, prompt: GenerationRequest, meter: _Meter) -> str:
    """Return a whole reply."""
    return "".join([piece async for piece in _formed(generator, prompt, meter)])


async def _formed(generator: Generator, prompt: GenerationRequest, meter: _Meter) -> AsyncGenerator[str]:
    """Yield a reply; where the runtime makes no grammar of a schema, any JSON object will do."""
    try:
        async with aclosing(_pieces(generator, prompt, meter)) as pieces:
            async for piece in pieces:
                yield piece
    except RefusedForm:
        if prompt.schema is None or prompt.schema == prompts.ANY_OBJECT:
            raise
        async with aclosing(_pieces(generator, replace(prompt, schema=prompts.ANY_OBJECT), meter)) as pieces:
            async for piece in pieces:
                yield piece


async def _pieces(generator: Generator, prompt: GenerationRequest, meter: _Meter) -> AsyncGenerator[str]:
    async with aclosing(generator.generate(prompt)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Finished):
                meter.add(piece)
            else:
                yield piece
