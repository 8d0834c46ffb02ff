"""The process of an outside agent: what it sees, how it is read, and how it ends."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import acp
import pytest

from agentmagic.acp.agents import KNOWN, OutsideAgent, outside_agent
from agentmagic.acp.process import environment_for, start_agent
from agentmagic.errors import AuthenticationFailed, MissingExtra, ProviderError, Unavailable
from agentmagic.secrets import register_secret
from agentmagic.tools.mcp.guardian import guardian
from tests.tools.mcp.calling import PATIENCE, are_gone, is_alive, played

UNRULY = Path(__file__).with_name("unruly.py")
WIRE = Path(__file__).with_name("wire")
ROOT = Path(__file__).parents[2]


def unruly(*words, own=()):
    return OutsideAgent("unruly", sys.executable, ("-S", str(UNRULY), *words), own=frozenset(own))


class Unasked(acp.Client):
    """A client that nobody asks anything."""


@asynccontextmanager
async def started(agent, folder=ROOT):
    """Start an agent, connected with the acp library as a turn is."""
    process = await start_agent(agent, folder)
    connection = acp.connect_to_agent(Unasked(), process)
    try:
        async with asyncio.timeout(PATIENCE):
            yield process, connection
    finally:
        await connection.close()


run = played(lambda scene: asyncio.run(scene()))


async def wrote(process, word):
    """Wait until an agent has written a word to its stderr."""
    while word not in process.stderr_tail():  # noqa: ASYNC110  (no event tells that it wrote)
        await asyncio.sleep(0)


# -- what it sees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        ("PATH", "/bin", True),
        ("LANG", "C.UTF-8", True),
        ("VIRTUAL_ENV", "/home/ada/venv", True),
        ("https_proxy", "http://ada:pass-of-a-proxy@proxy.example:3128", True),
        ("NODE_EXTRA_CA_CERTS", "/etc/our-authority.pem", True),
        ("OPENAI_API_KEY", "short", False),
        ("ANTHROPIC_API_KEY", "sk-ant-api03-0123456789abcdefghij", False),
        ("GEMINI_API_KEY", "one-of-gemini", False),
        ("AWS_SECRET_ACCESS_KEY", "abc", False),
        ("GITHUB_TOKEN", "abc", False),
        ("OUR_OWN_NAME", "a-name-that-the-user-calls-secret", False),
        ("DATABASE_URL", "postgres://ada:pass-of-a-database@db.example/x", False),
        ("ODD", "holds sk-ant-api03-0123456789abcdefghij", False),
        ("REGISTERED", "a-value-that-was-registered", False),
        ("ITS_TOKEN", "one-of-the-agent", True),
    ],
)
def test_an_agent_sees_all_variables_but_those_that_name_or_hold_a_secret_and_are_not_its_own(
    monkeypatch, name, value, passes
):
    register_secret("a-value-that-was-registered")
    monkeypatch.setenv("AGENTMAGIC_SECRETS", "OUR_OWN_NAME")
    seen = environment_for(OutsideAgent("x", "x", own=frozenset({"ITS_TOKEN"})), {name: value})
    assert seen == ({name: value} if passes else {})


def test_the_process_sees_these_variables_and_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-agents")
    monkeypatch.setenv("ITS_TOKEN", "one-of-the-agent")

    async def main():
        process = await start_agent(unruly(own=["ITS_TOKEN"]), tmp_path)
        await process.send({"jsonrpc": "2.0", "id": 7, "method": "environment"})
        answer = await process.receive()
        await process.close()
        assert answer is not None
        return answer["result"]

    environment, folder = asyncio.run(main())
    assert environment["ITS_TOKEN"] == "one-of-the-agent"
    assert "not-for-agents" not in environment.values()
    assert Path(folder) == tmp_path


# -- what it says ------------------------------------------------------------------------------------------------


@run
async def test_an_agent_that_floods_stderr_and_prints_rubbish_and_a_huge_message_is_understood_all_the_same():
    async with started(unruly("babbles", "prints")) as (process, connection):
        answer = await process.await_answer("start", connection.initialize(protocol_version=1), PATIENCE)
        assert answer.protocol_version == 1
        assert len(process.stderr_tail()) <= 4000


@run
async def test_an_agent_that_never_answers_is_given_up_with_the_command_to_look_at():
    async with started(unruly("silent")) as (process, connection):
        with pytest.raises(
            Unavailable, match=r"acp:unruly did not start within 0\.05 s\. Try it in a terminal: .*unruly"
        ):
            await process.await_answer("start", connection.initialize(protocol_version=1), 0.05)


@run
async def test_an_agent_that_dies_at_its_start_is_named_with_its_last_words_without_a_key():
    async with started(unruly("dies")) as (process, connection):
        with pytest.raises(Unavailable, match=r"acp:unruly ended with exit status 3: .*Error: no such model") as failed:
            await process.await_answer("start", connection.initialize(protocol_version=1), PATIENCE)
        assert "0123456789" not in str(failed.value)


@pytest.mark.posix
@pytest.mark.slow
@run
async def test_an_agent_that_is_gone_is_noticed_although_its_child_holds_the_output():
    async with started(unruly("silent", "spawn")) as (process, connection):
        asking = asyncio.create_task(process.await_answer("start", connection.initialize(protocol_version=1)))
        await wrote(process, "child ")
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Unavailable, match=r"acp:unruly ended with exit status -9: child "):
            await asking


@run
async def test_a_program_that_is_missing_or_cannot_be_run_is_named_with_what_to_type():
    with pytest.raises(Unavailable, match=r"no program 'no-such-agent' .* acp:/path/to/no-such-agent"):
        await start_agent(outside_agent("acp:no-such-agent"), ROOT)
    with pytest.raises(Unavailable, match=r"cannot be started: its folder .* does not exist"):
        await start_agent(unruly(), Path("/no/such/folder"))


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(MissingExtra, match=r"agentmagic\[acp\]"):
        asyncio.run(start_agent(unruly(), ROOT))


# -- how it ends -------------------------------------------------------------------------------------------------


@pytest.mark.posix
@pytest.mark.slow
@run
async def test_closing_leaves_no_process_of_an_agent_that_ignores_it_and_is_not_cut_short():
    async with started(unruly("stubborn", "spawn")) as (process, _):
        await wrote(process, "child ")
        pids = [process.pid, int(process.stderr_tail().split()[1])]
        assert all(map(is_alive, pids))
        begun = time.monotonic()
        closing = asyncio.create_task(process.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await process.aclose()
        assert time.monotonic() - begun < 5
    assert are_gone(pids)
    assert process.pid not in guardian._servers


@pytest.mark.slow
@run
async def test_a_message_that_an_agent_does_not_read_holds_up_neither_the_end_nor_the_one_who_sends():
    async with started(unruly("deaf")) as (process, _):
        sending = asyncio.create_task(process.send({"jsonrpc": "2.0", "method": "x", "params": ["x" * 10**6]}))
        await asyncio.sleep(0)
        await process.aclose()
        with pytest.raises(ConnectionError):
            await sending


KILLED = """
import asyncio, os, signal
from tests.acp.test_process import started, unruly, wrote

async def main():
    async with started(unruly("stubborn", "spawn")) as (process, _):
        await wrote(process, "child ")
        print(process.pid, process.stderr_tail().split()[1], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.posix
@pytest.mark.slow
def test_after_a_kill_of_this_process_neither_the_agent_nor_its_child_survives():
    program = [sys.executable, "-c", KILLED]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert are_gone([int(pid) for pid in ended.stdout.split()]), ended.stderr
    assert ended.stdout


# -- without a login: as the published agents answer -------------------------------------------------------------


async def asked(process, connection):
    """Ask as a turn does, up to the first error."""
    await process.await_answer("start", connection.initialize(protocol_version=1), PATIENCE)
    session = await process.await_answer("begin a session", connection.new_session(cwd=str(ROOT), mcp_servers=[]))
    prompt = [acp.text_block("hello")]
    await process.await_answer("answer", connection.prompt(session_id=session.session_id, prompt=prompt))


LOGINS = {
    "claude": "acp:claude is not logged in. Log in once, in a terminal: claude-agent-acp --cli auth login",
    "codex": "acp:codex is not logged in. Log in once, in a terminal: codex-acp login",
    "gemini": (
        "acp:gemini is not logged in: Gemini API key is missing or not configured. Log in once, in a terminal: gemini"
    ),
}


async def refusal(agent):
    async with started(agent) as (process, connection):
        with pytest.raises(ProviderError) as refused:
            await asked(process, connection)
    return refused.value


@pytest.mark.parametrize("name", LOGINS)
def test_a_recorded_agent_without_a_login_is_named_with_the_command_that_logs_in(name):
    tape = unruly("tape", str(WIRE / f"{name}.jsonl"))
    agent = OutsideAgent(name, tape.command, tape.args, login=KNOWN[name].login)
    error = asyncio.run(refusal(agent))
    assert type(error) is AuthenticationFailed
    assert str(error) == LOGINS[name]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            {
                "error": {
                    "code": -32000,
                    "message": "No.",
                    "data": {"authMethods": [{"name": "ChatGPT"}, 5, {"name": 7}]},
                }
            },
            "acp:x is not logged in (ChatGPT): No. Log in once with its own command, in a terminal: ",
        ),
        (
            {"error": {"code": -32000, "message": "Authentication required", "data": {"odd": 1}}},
            "acp:x is not logged in. Log in once with its own command, in a terminal: ",
        ),
        (
            {"error": {"code": -32000, "message": "No.", "data": ["odd"]}},
            "acp:x did not begin a session: No: odd. If it needs a login, log in once, in a terminal: ",
        ),
        (
            {"error": {"code": -32603, "message": "It broke with sk-ant-api03-0123456789abcdefghij.", "data": None}},
            "acp:x did not begin a session: It broke with [redacted].",
        ),
        ({"error": {"message": ""}}, "acp:x did not begin a session: it gave no reason."),
        (
            {"result": {"sessionId": 5}},
            "acp:x did not begin a session in a form that is of the Agent Client Protocol.",
        ),
    ],
)
def test_what_an_agent_answers_in_place_of_a_session_is_told(answer, sentence, tmp_path):
    assert str(refusal_of(answer, tmp_path)).startswith(sentence)


def refusal_of(answer, folder, **fields):
    """Return the error of an agent that sends `answer` in place of a session."""
    entries = [{"sent": {"method": "session/new"}}, {"received": {"jsonrpc": "2.0", "id": 0, **answer}}]
    (folder / "tape").write_text("\n".join(map(json.dumps, entries)))
    program = unruly("tape", str(folder / "tape"))
    return asyncio.run(refusal(OutsideAgent("x", program.command, program.args, **fields)))


INTERNAL, AUTH, PARAMS = (-32603, "Internal error"), (-32000, "Authentication required"), (-32602, "Invalid params")


@pytest.mark.parametrize(
    ("error", "data", "words"),
    [
        (
            INTERNAL,
            {"details": "You have reached your 5-hour usage limit."},
            "You have reached your 5-hour usage limit",
        ),
        (INTERNAL, "Quota exceeded for this month", "Quota exceeded for this month"),
        (INTERNAL, {"error": {"message": "The model is overloaded"}}, "The model is overloaded"),
        (INTERNAL, {"error": "out of memory"}, "out of memory"),
        (INTERNAL, [{"message": "first"}, {"message": "second"}], "first: second"),
        (INTERNAL, {"details": "internal error", "message": "Internal error."}, "Internal error"),
        (INTERNAL, {"details": 5, "message": ["a\nb\x1b[31m"]}, "a b"),
        (INTERNAL, {"details": "x" * 10_000}, f"{'x' * 499}…"),
        (INTERNAL, {"details": f"{'x' * 470} sk-ant-api03-0123456789abcdefghij {'x' * 99}"}, f"{'x' * 470} [redacted]"),
        (INTERNAL, {"error": {"error": {"error": {"error": {"error": "deep"}}}}}, "Internal error"),
        (PARAMS, {"message": "model not found"}, "Invalid params: model not found"),
        (PARAMS, {"details": "Invalid params: no model 'x'"}, "Invalid params: no model 'x'"),
        (AUTH, {"message": "The usage limit is reached. Try again at 12:16 PM."}, "The usage limit is reached. Try"),
        ((-32000, "Too many requests"), None, "Too many requests"),
        ((-32000, "Sign in again, your credits are used up"), {}, "Sign in again, your credits are used up"),
    ],
)
def test_the_words_of_an_agents_error_are_shown_without_secrets_and_not_as_a_missing_login(
    error, data, words, tmp_path
):
    code, message = error
    told = refusal_of({"error": {"code": code, "message": message, "data": data}}, tmp_path)
    assert type(told) is ProviderError
    assert str(told).startswith(f"acp:x did not begin a session: {words}")
    assert "is not logged in" not in str(told)
    assert "Log in" not in str(told)
    assert "0123456789" not in str(told)


@pytest.mark.parametrize(
    ("message", "data", "said"),
    [
        ("Authentication required", None, ""),
        ("Authentication required", {"details": "Please run /login"}, ": Please run /login"),
        ("Not authorised: the token has expired", None, ": Not authorised: the token has expired"),
    ],
)
def test_a_missing_login_has_the_words_of_the_agent(message, data, said, tmp_path):
    told = refusal_of({"error": {"code": -32000, "message": message, "data": data}}, tmp_path, login="x login")
    assert type(told) is AuthenticationFailed
    assert str(told) == f"acp:x is not logged in{said}. Log in once, in a terminal: x login"


@pytest.mark.posix
@pytest.mark.parametrize(
    ("version", "data", "before", "after"),
    [
        ("v18.2.0", None, "acp:x needs Node.js 22 or newer, and v18.2.0 was found", "and then the agent: x"),
        (
            "v18.2.0",
            {"details": "x is not a function"},
            "acp:x did not begin a session: x is not a function. acp:x",
            "x",
        ),
        ("v18.2.0", "Quota exceeded", "acp:x did not begin a session: Quota exceeded.", "Quota exceeded."),
        ("v24.0.0", None, "acp:x did not begin a session: Internal error.", "Internal error."),
    ],
)
def test_an_error_of_an_agent_on_an_unfit_node_names_the_version_that_it_needs(
    version, data, before, after, tmp_path, monkeypatch
):
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {version}\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    error = {"code": -32603, "message": "Internal error", "data": data}
    told = str(refusal_of({"error": error}, tmp_path, node=22, install="x"))
    assert told.startswith(before)
    assert told.endswith(after)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGINS)
def test_a_real_agent_without_a_login_is_named_with_the_command_that_logs_in(name, monkeypatch, tmp_path):
    npm = Path(os.environ.get("AGENTMAGIC_NPM") or "nowhere") / "node_modules" / ".bin"
    if not shutil.which(KNOWN[name].command, path=npm):
        pytest.skip(f"AGENTMAGIC_NPM names no folder with {KNOWN[name].command}")
    monkeypatch.setenv("PATH", str(npm), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("IS_SANDBOX", raising=False)  # claude refuses to start as root with an odd value of it
    assert str(asyncio.run(refusal(KNOWN[name]))) == LOGINS[name]
