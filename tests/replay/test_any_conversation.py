"""Random conversations with all that a turn can do, recorded, replayed, and gone on with."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from agentmagic import Agent, Approve, Deny, Reply, RetrySettings, Session, ToolContext, ToolError, tool
from agentmagic.errors import BadRequest, Unavailable
from agentmagic.events import Event, Intent, is_delta
from agentmagic.host import begin_cell
from agentmagic.messages import user
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay.cassette import Cassette
from agentmagic.replay.report import problems
from agentmagic.settings import Replay
from tests.turns import calls

TEXTS = ["a", "päö", "two\nlines", "- y: [1]", "no", "null", "1.5", "x" * 300, 'a: b\n---\n{"a": 1}\n', "**so**\n"]


def fails(text: str) -> str:
    """Fail."""
    raise ValueError(text)


@tool(ask=True)
def approved(text: str) -> str:
    """Run after a yes."""
    return f"ran {text}"


@tool(timeout=0.01)
async def hangs(text: str) -> str:
    """Never return."""
    await asyncio.sleep(600)
    return text


async def asks(text: str, context: ToolContext) -> str:
    """Ask the user twice, after a while that differs from call to call."""
    for _ in range(len(text) % 7):
        await asyncio.sleep(0)
    return f"{await context.ask(f'{text}?')} {await context.ask('Sure?')}"


async def reports(text: str, context: ToolContext) -> dict[str, Any]:
    """Say how far it is."""
    context.progress(-0.5, None, text)
    context.tell(text)
    return {"text": text, "values": [1, 2.5, None, True]}


async def completes(text: str, context: ToolContext) -> str:
    """Ask the model."""
    return (await context.complete([user(text)], "Be brief.", max_tokens=20)).text


async def combines(text: str, context: ToolContext) -> str:
    """Call other tools."""
    found: list[str] = []
    for name in ("approved", "asks", "fails"):
        try:
            found.append(str(await context.call_tool(name, {"text": text})))
        except ToolError as error:
            found.append(str(error))
    return " ".join(found)


TOOLS: list[Callable[..., Any]] = [fails, approved, hangs, asks, reports, completes, combines]


def conversation(random: Random) -> tuple[list[str], list[Any]]:
    """Prompts, and what the model does: several calls at once, bad arguments, failures, words around calls."""

    def call() -> tuple[str, dict[str, str]]:
        name = "text" if random.random() < 0.9 else "txt"
        return random.choice(TOOLS).__name__, {name: random.choice(TEXTS)}

    prompts = [f"{random.choice(TEXTS)} {number}" for number in range(random.randrange(1, 4))]
    steps: list[Any] = []
    for _ in prompts:
        for _ in range(random.randrange(4)):
            said = {"text": random.choice(TEXTS)} if random.random() < 0.4 else {}
            steps.append(calls(*(call() for _ in range(random.choice([1, 1, 2, 3])))) | said)
            steps += [Unavailable("busy")] * (random.random() < 0.2)
        steps.append({"text": random.choice(TEXTS), "reasoning": random.choice(TEXTS)})
    return prompts, steps


def person(random: Random) -> Callable[[Event], Intent]:
    """Answer each question, and each approval in one of the ways that there are."""

    def answer(event: Any) -> Intent:
        if event.type == "question_asked":
            return Reply(event.id, random.choice(TEXTS))
        denied = Deny(event.id, random.choice(["", "not this one"]))
        approved = Approve(event.id, always=random.random() < 0.2)
        return random.choice([approved, Approve(event.id, arguments={"text": "another"}), denied])

    return answer


def played(session: Session, prompts: list[str], answer: Callable[[Event], Intent] | None) -> list[Any]:
    """What is seen of each turn. Calls that run side by side may come in another order."""
    found: list[Any] = []
    for prompt in prompts:
        run = session.start(prompt, attended=answer is not None)
        if answer is not None:
            run.listen(lambda event, run=run: event.type.endswith("_asked") and run.send(answer(event)))
        with suppress(BadRequest):  # of a script that is over
            run.wait()
        events: list[Any] = [event for event in run.events if not is_delta(event)]
        found.append((events[-1].result.history_delta, events[-1].result.error, sorted(event.type for event in events)))
    session.close()
    return found


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40))])
def test_a_conversation_is_replayed_and_gone_on_with(seed, tmp_path):
    random, path = Random(seed), tmp_path / "a.cassette.yaml"  # noqa: S311  (a seed is the point)
    prompts, steps = conversation(random)

    def session(mode: Replay, *said: Any) -> Session:
        begin_cell()
        retry = RetrySettings(first_wait=0, longest_wait=0)
        return Session(Agent(ScriptedModel(said), tools=TOOLS, retry=retry), cassette=path, replay=mode)

    before = played(session("record", *steps), prompts, person(random))
    assert played(session("replay"), prompts, None) == before
    longer = played(session("auto", "Yes."), [*prompts, "One more."], person(random))
    assert longer[:-1] == before
    assert played(session("replay"), [*prompts, "One more."], None) == longer
    assert list(problems(Cassette.at(path))) == []
