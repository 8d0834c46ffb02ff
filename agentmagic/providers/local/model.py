"""`local:`, a small model on the user's own machine.

It needs no API key, and no network once its weights are downloaded.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import replace
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from agentmagic.errors import BadRequest, UnknownModel
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, ToolDef, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, PlanQuestion, Request, busy_with
from agentmagic.providers.finish_reasons import ending_of
from agentmagic.providers.local import downloads, llama, prompts, tool_texts
from agentmagic.providers.local.llama import Finished, Generator, RefusedForm
from agentmagic.providers.local.prompts import GenerationRequest, Talk
from agentmagic.providers.wire import PartWriter
from agentmagic.text import join_names

MODEL = "qwen2.5-coder-1.5b"
WHO = (
    "You are {name}, a small language model that agentmagic runs on the user's own machine. "
    'To the question who you are, you answer: "I am {name}, a small language model on your own machine."'
)
"""The first sentence of the prompt. Without it, the model claims to be another, larger model."""


def make(model: str = "") -> "LocalModel":
    """Return the built-in model for "" or "qwen2.5-coder-1.5b", or else the model in the GGUF file `model`.

    Its weights are downloaded and loaded at the first request, not here. Raises UnknownModel.
    """
    model = model.removeprefix("local:")
    if model in ("", MODEL):
        return LocalModel(f"local:{MODEL}", WHO.format(name="Qwen2.5-Coder 1.5B"), _load_default)
    path = Path(model).expanduser()
    if path.suffix != ".gguf":
        raise UnknownModel(f"local:{model} is not known. Write local: for {MODEL}, or local:/path/to/a/file.gguf.")
    if not path.is_file():
        raise UnknownModel(
            f"There is no file {path}. Write local: for {MODEL}, which is fetched, or the path of a GGUF file."
        )
    return LocalModel(f"local:{model}", WHO.format(name=path.stem), lambda: llama.load(path))


async def _load_default() -> llama.Runtime:
    llama.require()  # raises if this machine cannot run the model, before a gigabyte is downloaded in vain
    stop = threading.Event()
    try:
        path = await asyncio.to_thread(downloads.fetch, stop=stop, tell=busy_with.get())
    except asyncio.CancelledError:
        stop.set()  # ends the download; without this, its thread would continue after the task is cancelled
        raise
    return await llama.load(path)


_SERVERS = (
    (11434, "/", "Ollama is running", "Ollama runs on this machine; choose one of its models with ollama:MODEL."),
    (1234, "/v1/models", '"data"', "LM Studio runs on this machine; {compatible}"),
    (8080, "/v1/models", '"llamacpp"', "A llama.cpp server runs on this machine; {compatible}"),
)
"""For each server: its default port, the path of a page, a text in that page, and the sentence for the user."""

_COMPATIBLE = "set OPENAI_BASE_URL to http://127.0.0.1:{port}/v1 and choose openai-chat:MODEL."
_PATIENCE = 0.05
"""Seconds to wait for the answers of all servers together."""


@cache
def running_servers() -> str:
    """Return text for the user, with a sentence for each model server (such as Ollama) that runs on this machine.

    The search is done once per process.
    """
    until = time.monotonic() + _PATIENCE
    servers = [(port, sentence) for port, page, marker, sentence in _SERVERS if marker in _read(port, page, until)]
    return " ".join(sentence.format(compatible=_COMPATIBLE.format(port=port)) for port, sentence in servers)


def _read(port: int, page: str, until: float) -> str:
    """Return the beginning of an HTTP response from a port of this machine, or "" if none came before `until`."""
    connection = HTTPConnection("127.0.0.1", port, timeout=max(until - time.monotonic(), 0.001))
    with closing(connection), suppress(OSError, HTTPException):
        connection.request("GET", page)
        return connection.getresponse().read(65_536).decode(errors="replace")
    return ""


class LocalModel:
    """A small model. It writes plans that follow a grammar, arguments that follow a JSON Schema, and free-text answers.

    `load` returns the loaded model, and is called once, at the first request. No other state is kept between requests.
    `aclose` does not unload the model, because the whole process shares it.
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
        """Download the weights (1.1 GB, once), load them (2 GB of memory, once per process) and warm up the model."""
        await self._ready()

    def advice(self) -> str:
        """Return advice for the user: a sentence for each server on this machine that offers larger models."""
        return running_servers()

    async def _ready(self) -> Generator:
        if self._generator is None:
            self._generator = await self._load()
        return self._generator

    def choose(self, tools: Sequence[ToolDef], question: str) -> tuple[ToolDef, ...]:
        """Return at most five of the tools: those that are most relevant to the question."""
        return tool_texts.choose(tools, question)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Yield the model events of a tool call or of an answer. Only the tools from `choose` are offered."""
        replies = _Replies(await self._ready())
        talk = prompts.read(request)
        decision = request.decision
        call = None if decision else await self._next_call(replies, request, talk)
        if decision:
            text = await self._decide(replies, request, decision)
            yield PartStarted(0, "text")
            yield PartDelta(0, text)
            yield PartFinished(0, Text(text))
            reason, cut = "stop", False
        elif call:
            yield PartStarted(0, "tool_call", call.name)
            yield PartDelta(0, json.dumps(dict(call.arguments), ensure_ascii=False))
            yield PartFinished(0, call)
            reason, cut = "tool_calls", prompts.RAW in call.arguments
        else:
            if request.output and talk.found_nothing:
                raise _no_facts(talk)
            text = ""
            prompt = prompts.answer(talk, request.instructions, self._who, request.output)
            writer = PartWriter()  # the model of a user's GGUF file can write its thinking as text
            async with aclosing(replies.pieces(prompt)) as pieces:
                async for piece in pieces:
                    text += piece
                    for event in writer.say(piece):
                        yield event
            for event in writer.finish(Text(text)):
                yield event
            reason, cut = replies.reason, ending_of(replies.reason) == "cut"
        # `once=False`, because several generations of one request read the same conversation.
        yield ModelFinished(replies.usage + Usage(requests=1), reason, cut, once=False)

    async def _next_call(self, replies: "_Replies", request: Request, talk: Talk) -> ToolCall | None:
        """Return the next tool call, or None if the model should answer now."""
        tool = await self._next_tool(replies, request, talk)
        if tool is None:
            return None
        arguments = await self._arguments(replies, talk, tool)
        call = ToolCall(prompts.next_id(request.messages), tool.name, arguments)
        # If the model repeats an earlier call, its result would be the same. So no call is made, and the model answers
        # from the earlier result.
        return call if request.tool_choice != "auto" or not prompts.repeats(talk, call) else None

    async def _next_tool(self, replies: "_Replies", request: Request, talk: Talk) -> ToolDef | None:
        choice = request.tool_choice
        if choice == "none" or not request.tools:
            return None
        if choice not in ("auto", "required"):
            return next((tool for tool in request.tools if tool.name == choice), None)
        tools = self.choose(request.tools, talk.question)
        required = choice == "required"
        steps = prompts.tools_in_plan(await replies.whole(prompts.plan(talk, tools, required=required)), tools)
        tool = prompts.next_tool(talk, steps)
        # If a call is required, a tool must be returned even if the plan has no next step. Return the last tool of the
        # plan again, or the last tool offered if the reply was cut off before it named any tool.
        return (steps or tools)[-1] if required and tool is None else tool

    async def _decide(self, replies: "_Replies", request: Request, decision: PlanQuestion) -> str:
        """Return the model's decision as JSON, for a turn in which the model first writes a list of tasks.

        The small model gets the same prompts for plans and arguments as in a turn without such a list.
        """
        if decision.tool is None:
            # The last message of the request asks for the decision in words. It is left out: only other models need it.
            talk = prompts.read(replace(request, messages=request.messages[:-1]))
            tools = self.choose(request.tools, talk.question)
            steps = prompts.tools_in_plan(await replies.whole(prompts.plan(talk, tools)), tools) if tools else ()
            if decision.kind == "route":
                return prompts.route(steps)
            return prompts.task_list(steps, await self._known_arguments(replies, talk, steps))
        talk = prompts.talk_of(decision)
        if decision.kind == "parameters":
            return json.dumps(await self._arguments(replies, talk, decision.tool), ensure_ascii=False)
        new_arguments = await self._arguments(replies, talk, decision.tool) if talk.calls[-1].failed else {}
        return prompts.judgement(talk, decision.tool, new_arguments)

    async def _known_arguments(
        self, replies: "_Replies", talk: Talk, steps: Sequence[ToolDef]
    ) -> list[dict[str, object]]:
        """Return the arguments of the calls in a plan, as far as they are known before the first call.

        If the plan has only one tool, these are the arguments of every call. If not, they are those of the first call.
        """
        if not prompts.one_tool(steps) or prompts.takes_nothing(steps[0]):
            return [await self._arguments(replies, talk, tool) for tool in steps[:1]]
        return prompts.parse_argument_list(await replies.whole(prompts.arguments(talk, steps[0], several=True)))

    @staticmethod
    async def _arguments(replies: "_Replies", talk: Talk, tool: ToolDef) -> dict[str, object]:
        return (
            {}
            if prompts.takes_nothing(tool)
            else prompts.parse_arguments(await replies.whole(prompts.arguments(talk, tool)))
        )

    async def aclose(self) -> None:
        """Do nothing, because the whole process shares the loaded model."""


def _no_facts(talk: Talk) -> BadRequest:
    """Return the error for a turn that must end with an answer in JSON, but in which all tool calls failed.

    Without the results of the calls, the model would invent the values in the JSON.
    """
    names = join_names(dict.fromkeys(call.name for call in talk.calls))
    advice = "Ask in other words, or with --no-tools if it needs no tool."
    return BadRequest(f"The local model can give no value, since no tool gave a result; {names} failed. {advice}")


class _Replies:
    """Runs the generations that one request needs. `usage` is their total usage; `reason` says why the last ended."""

    def __init__(self, generator: Generator) -> None:
        self.usage = Usage()
        self.reason = ""
        self._generator = generator

    async def whole(self, prompt: GenerationRequest) -> str:
        """Return the whole reply to a prompt."""
        return "".join([piece async for piece in self.pieces(prompt)])

    async def pieces(self, prompt: GenerationRequest) -> AsyncGenerator[str]:
        """Yield the reply to a prompt, piece by piece.

        If llama.cpp refuses the prompt's grammar, try again without it. If it refuses the JSON Schema, try again with
        a schema that allows any JSON object.
        """
        try:
            # `aclosing` closes the generator when the request is cancelled, so that its generation ends at once.
            async with aclosing(self._generator.generate(prompt)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Finished):
                        self.usage += piece.usage
                        self.reason = piece.reason
                    else:
                        yield piece
        except RefusedForm:
            if prompt.grammar:
                looser = replace(prompt, grammar="")
            elif prompt.schema is not None and prompt.schema != prompts.ANY_OBJECT:
                looser = replace(prompt, schema=prompts.ANY_OBJECT)
            else:
                raise
            async with aclosing(self.pieces(looser)) as pieces:
                async for piece in pieces:
                    yield piece
