from dataclasses import FrozenInstanceError

import pytest

from agentmagic import Agent, ModelSettings, RetrySettings, Session, tool
from agentmagic.errors import ConfigError, UsageError
from agentmagic.messages import ToolDef
from agentmagic.tools.base import Tool


def add(a: int, b: int) -> int:
    return a + b


def test_an_agent_is_a_frozen_recipe_with_the_defaults_of_the_contract_and_its_repr_holds_no_key():
    tools = [add]
    agent = Agent("openai:gpt-5.4", tools=tools)  # no key is looked for
    tools.clear()
    assert agent.tools == (add,)
    assert (agent.max_iterations, agent.timeout, agent.tool_choice, agent.permission) == (10, 120.0, "auto", "ask")
    with pytest.raises(FrozenInstanceError):
        agent.model = "local:"
    secret = Agent(mcp={"x": {"command": "y", "env": {"API_KEY": "a-very-secret-key"}}}, deps="also secret")
    assert "secret" not in repr(secret)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Agent(123), "123"),
        (lambda: Agent(max_iterations=0), "max_iterations is 0. A turn needs a whole number of steps, at least 1"),
        (lambda: Agent(timeout=0), "timeout is 0. Give seconds above 0, or None"),
        (lambda: Agent(timeout=float("nan")), "timeout is nan"),
        (lambda: Agent(max_tokens=float("inf")), "max_tokens is inf. Give a number of tokens above 0, or None for no"),
        (lambda: Agent(permission="maybe"), "permission is 'maybe'. Choose one of allow, ask, deny"),
        (lambda: Agent(on_limit="explode"), 'on_limit is \'explode\'. Choose "answer" or "stop"'),
        (lambda: Agent(tools=["add"]), "'add' is no tool. Give functions"),
        (lambda: Agent(tools=add), r"Put it into a list: tools=\[...\]"),
        (lambda: Agent(instructions=None), "instructions is None. Give a text, or leave it out"),
        (lambda: Agent(before_finish="again"), "before_finish is 'again'. Give a function of the answer, or None"),
        (lambda: Agent(tools=[lambda a: a]), "<lambda> is no name for a tool"),
        (lambda: Agent(tools=[Tool(ToolDef("odd", "", {"type": "any"}), add)]), 'The schema of odd cannot be used: "a'),
        (lambda: Agent(settings={"temperature": 0}), r"Write settings=ModelSettings\(...\)"),
        (lambda: Agent(retry=3), r"retry is 3. Write retry=RetrySettings\(...\)"),
        (lambda: Agent(mcp={"web": {"url": "nowhere"}}), "is no web address"),
        (lambda: ModelSettings(temperature=-1), "temperature is -1. Give a number from 0 on, or None"),
        (lambda: ModelSettings(max_output_tokens=0), "max_output_tokens is 0. Give a whole number from 1 on"),
        (lambda: ModelSettings(seed=True), "seed is True"),
        (lambda: ModelSettings(reasoning="lots"), "reasoning is 'lots'. Choose one of none, low, medium, high"),
        (lambda: ModelSettings(extra={"a": object()}), "extra is .*Give a dict of JSON values"),
        (lambda: RetrySettings(tries=0), "tries is 0"),
        (lambda: RetrySettings(first_wait=-1), "first_wait is -1. Give seconds, 0 or more"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(make, words):
    with pytest.raises((UsageError, ConfigError), match=words):
        make()


@pytest.mark.parametrize("name", ["größe", "1st", "x" * 65, "a.b", ""])
def test_a_tool_needs_a_name_that_every_provider_takes(name):
    def fine(): ...

    fine.__name__ = name or "<lambda>"
    with pytest.raises(UsageError, match=r"give it one with @tool\(name="):
        Agent(tools=[fine])
    with pytest.raises(UsageError, match=r"give it one with @tool\(name="):
        tool(name=name)(fine)


def test_a_file_of_servers_is_read_at_the_first_turn_only(tmp_path):
    path = tmp_path / "mcp.json"
    sessions = [Session(Agent("scripted:x", mcp=given)) for given in (str(path), [path])]
    for session in sessions:
        with pytest.raises(ConfigError, match=r"There is no file .*mcp\.json"):
            session.start("Hello")
    path.write_text('{"mcpServers": {"clock": {"command": "no-such-program"}}}', encoding="utf-8")
    for session in sessions:
        (servers,) = session.toolsets()
        assert [server.name for server in servers.servers] == ["clock"]
