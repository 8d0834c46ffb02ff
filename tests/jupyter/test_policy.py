"""The administrator's policy: ways in which a notebook may try to get around it, in a kernel that it binds."""

import asyncio
import json
import sys
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from traitlets.config import Config

from agentmagic import classroom
from agentmagic.classroom import class_settings
from tests.jupyter.harness import BATCH, ROOT, Kernel

POLICY = """
models = ["scripted:*", "openai-chat:small"]
addresses = ["https://gateway.example.org/*"]
servers = []
max-cost = 0.5
session-max-tokens = 100000
monthly-budget = 20
max-iterations = 3
timeout = 60
permission = "ask"
code = "deny"
web = "deny"
rules = false
agents = false
serve = false
save = false
keyring = false
schema-only = true
replay = "live"
prices = {"openai-chat:small" = {input = 1, output = 2}}
"""

STARTUP = """
import sys
from pathlib import Path
from types import SimpleNamespace
from agentmagic import classroom
classroom.POLICY_FILE = Path({policy!r})
if sys.platform != "win32":
    import pwd
    pwd.getpwuid = lambda _number: SimpleNamespace(pw_dir="/home/anna")
get_ipython().run_line_magic("load_ext", "agentmagic")
"""
"""What runs before the user's first cell. It puts a file of the test in the place of the one in /etc, and gives the
user a home of the test."""

SETUP = """
import os
import time
from agentmagic import Agent, ModelSettings, ScriptedModel, Session, Usage, priced, register_model, tool, web_search
from agentmagic.bill import ledger, today
from agentmagic.settings import keep_key
from agentmagic.providers.openai.chat_completions import OpenAIChat

secret_number = 4711
MANY = Usage(input_tokens=10**6)
MODEL = "openai-chat:small"
CALL = {"calls": [{"name": "delete", "arguments": {}}]}
PROGRAM = {"calls": [{"name": "run_python", "arguments": {"code": "print('all is', 'gone')"}}]}

@tool(ask=True)
def delete() -> str:
    "Delete everything."
    return "all is gone"

class Pretender(ScriptedModel):
    "Asks a server of its own."

def make_free(name):
    register_model(name, input_price=0, output_price=0)

def day_in(zone):
    "Return the date of the budgets in a time zone."
    os.environ["TZ"] = zone
    time.tzset()
    return today()

def start_again(_info):
    "Put back what the cell before has changed."
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    get_ipython().user_ns["agent"] = Session()

def show_what_is_sent(prompt):
    agent.agent = Agent(ScriptedModel(["done"]))
    get_ipython().run_cell_magic("agent", "", prompt)
    print([part.text for message in agent.agent.model.requests[0].messages for part in message.parts])

def ask(*steps, model=None, path=None, most=None, prompt="hello", **options):
    made = Session(Agent(model or ScriptedModel([*steps, "done", "done"]), **options), path=path, max_tokens=most)
    result = made.ask(prompt)
    print(result.stop_reason, [part.text for message in result.history_delta if message.role == "tool"
          for called in message.parts for part in called.parts], result.error,
          [event.text for event in result.events if event.type == "notice"])
    return made
"""
NOT_MODEL = "is not among those of this machine: models = ['scripted:*', 'openai-chat:small'] in "
NOT_ADDRESS = "is not among those of this machine: addresses = ['https://gateway.example.org/*'] in "
HERE = "OpenAIChat('small', base_url='http://127.0.0.1:9/v1', api_key='key-of-nobody')"

WAYS = {
    # options of a cell
    "another model": ("%%agent -m openai:gpt-5.4\nhello", f"The model openai:gpt-5.4 {NOT_MODEL}"),
    "a higher cost": ("%%agent -m scripted:a.json --max-cost 9\nhello", "than this machine allows: max-cost = 0.5 in "),
    "more time": ("%%agent -m scripted:a.json --timeout 999\nhello", "than this machine allows: timeout = 60 in "),
    "more steps": (
        "%%agent -m scripted:a.json --max-iterations 9\nhello",
        "than this machine allows: max-iterations = ",
    ),
    "an outside agent": ("%%agent -m acp:claude\nhello", f"The model acp:claude {NOT_MODEL}"),
    # magics
    "a model for the session": ("%agent models openai:gpt-5.4", NOT_MODEL),
    "a server": (
        "%mcp add clock python -m clock\n%agent tools\n%mcp remove clock",
        "is not among those of this machine: servers = [] in ",
    ),
    "serving": ("%agent serve", "The notebook is not served: this machine has serve = False in "),
    "saving": ("%agent save a.jsonl", "The conversation is not saved: this machine has save = False in "),
    "recording": ("%agent cassette a.cassette.yaml\n%agent record", "The mode record is not that of this machine: "),
    "loading again": ("%reload_ext agentmagic", "Bound by the administrator's policy in "),
    "a level": (
        "%agent permission trusted\nask(CALL, tools=[delete], permission=agent.agent.permission)",
        "delete was not run: it needs a person's approval",
    ),
    # arguments
    "an address": (f"ask(model={HERE})", f"is asked at http://127.0.0.1:9/v1, which {NOT_ADDRESS}"),
    "a class of one's own": (
        "ask(model=Pretender(['hi']))",
        "is an object of __main__.Pretender, which is not of that",
    ),
    "a permission": (
        "ask(CALL, tools=[delete], permission='allow')",
        "The agent's permission lets tools run unasked, and this machine does not: permission = 'ask' in ",
    ),
    "more steps of an agent": (
        "ask(max_iterations=99)",
        "max_iterations is 99, which is more than this machine allows: ",
    ),
    "more tokens of a session": ("ask(most=10**6)", "than this machine allows: session-max-tokens = 100000 in "),
    "a path": ("ask(path='b.jsonl')", "The conversation is not saved: this machine has save = False in "),
    "another model of the request": (
        "ask(settings=ModelSettings(extra={'model': 'large'}))",
        "The setting extra has 'model', which may do more than shape the answer, and this machine has models = [",
    ),
    "a server of the provider": (
        "ask(settings=ModelSettings(extra={'tools': [{'type': 'mcp', 'server_url': 'https://elsewhere.example.org'}]}))",
        "The setting extra has 'tools', which may do more than shape the answer, and this machine has models = [",
    ),
    "another address of the request": (
        "ask(settings=ModelSettings(extra={'api_base': 'https://elsewhere.example.org'}))",
        "The setting extra has 'api_base', which may do more than shape the answer, and this machine has models = [",
    ),
    "a program": (
        "agent.agent = Agent(ScriptedModel([PROGRAM, 'done']))\n%agent tools notebook\nagent.ask('go')",
        'run_python was not run: the settings of this machine have code = "deny".',
    ),
    "the web": (
        "ask(tools=[web_search()], permission='allow')",
        'web_search was not run: the settings of this machine have web = "deny".',
    ),
    "the keyring": (
        "keep_key('OPENAI_API_KEY', 'key-of-nobody')",
        "The key is not kept: this machine has keyring = False in ",
    ),
    "another agent": (
        "ask(tools=[Agent(ScriptedModel(['hi'])).as_tool('scout', 'Looks.')])",
        "The agent scout is left out: this machine has agents = False in ",
    ),
    "a price": (
        "register_model(MODEL, input_price=0, output_price=0)\nprint(priced(MODEL, Usage(input_tokens=10**6)).cost)",
        "1.0\n",
    ),
    "a price where the administrator has none": (
        "make_free('openai:gpt-5.4')\nprint(priced('openai:gpt-5.4', MANY, 'https://gateway.example.org/v1').cost)",
        "None\n",
    ),
    "an address in capitals": (
        "make_free('openai:gpt-5.4')\nprint(priced('openai:gpt-5.4', MANY, 'HTTPS://API.OPENAI.COM/v1').cost > 0)",
        "True\n",
    ),
    # variables
    "AGENTMAGIC_MODEL": (
        "%env AGENTMAGIC_MODEL=openai:gpt-5.4\nask()",
        f"The model openai:gpt-5.4, which AGENTMAGIC_MODEL names, {NOT_MODEL}",
    ),
    "AGENTMAGIC_PERMISSION": (
        "%env AGENTMAGIC_PERMISSION=allow\nask(CALL, tools=[delete])",
        "AGENTMAGIC_PERMISSION=allow is set, and this machine does not allow it: permission = 'ask' in ",
    ),
    "AGENTMAGIC_REPLAY": (
        "%env AGENTMAGIC_REPLAY=record\nask()",
        "The mode record, which AGENTMAGIC_REPLAY names, is not",
    ),
    "AGENTMAGIC_SCHEMA_ONLY": (
        "%env AGENTMAGIC_SCHEMA_ONLY=0\nshow_what_is_sent('@secret_number and {secret_number}')",
        "['@secret_number and int', 'int']",
    ),
    "another ledger": (
        "%env XDG_STATE_HOME=elsewhere\n%env HOME=elsewhere\nprint(ledger().path())",
        "/home/anna/",
    ),
    "another time zone": ("print(day_in('UTC+12') == day_in('UTC-14'))", "True\n"),
    "an address in the environment": (
        "%env OPENAI_BASE_URL=https://elsewhere.example.org/v1\nask(model='openai-chat:small')",
        f"is asked at https://elsewhere.example.org/v1, which {NOT_ADDRESS}",
    ),
    "no address in the environment": (
        "ask(model='openai-chat:small')",
        f"is asked at https://api.openai.com/v1, which {NOT_ADDRESS}",
    ),
    "a file that a variable names": (
        "%env AGENTMAGIC_CLASS=mine.toml\n%reload_ext agentmagic\n%agent models openai:gpt-5.4",
        NOT_MODEL,
    ),
    # nearer files and %cd
    "a file in the folder of the notebook": (
        "%reload_ext agentmagic",
        "max-cost = 99 in {file} asks for more than this machine allows, and max-cost = 0.5 in {policy} holds.",
    ),
    "another folder": ("%cd -q /\n%agent models openai:gpt-5.4", NOT_MODEL),
}
if sys.platform == "win32":  # where the system is asked for the folder anyway
    del WAYS["another ledger"], WAYS["another time zone"]


@pytest.fixture(scope="module")
def bound(tmp_path_factory):
    """A kernel that a policy binds, in a folder with files that ask for more; and these files."""
    folder, ipython = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("ipython")
    policy, nearer = ipython / "agentmagic.toml", folder / "pyproject.toml"
    policy.write_text(POLICY)
    nearer.write_text('[tool.agentmagic.class]\nmax-cost = 99\nmodels = ["*"]\n')
    (folder / "agentmagic.toml").write_text('models = ["*"]\n')
    (folder / "mine.toml").write_text('[tool.agentmagic.class]\nmodels = ["*"]\n')
    (folder / "a.json").write_text('["It is done."]')
    startup = ipython / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-policy.py").write_text(STARTUP.format(policy=str(policy)))
    env = {
        "IPYTHONDIR": str(ipython),
        "AGENTMAGIC_CLASS": str(folder / "mine.toml"),
        "OPENAI_API_KEY": "key-of-nobody",
        "XDG_STATE_HOME": str(ipython),
    }
    with Kernel(sys.executable, env, folder) as kernel:
        kernel.run(SETUP)
        kernel.run(
            f"folder = {str(folder)!r}\nvariables = dict(os.environ)\n"
            "get_ipython().events.register('pre_run_cell', start_again)"
        )
        yield kernel, policy, nearer


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_a_notebook_leads_around_the_policy(bound, way):
    kernel, policy, nearer = bound
    cell, words = WAYS[way]
    done = kernel.run(cell, **BATCH)
    said = done.stream + done.error + done.text
    assert words.format(file=nearer, policy=policy) in said
    assert "all is gone" not in said


def test_the_status_and_the_help_name_the_file_and_what_it_bounds(bound):
    kernel, policy, _ = bound
    names = "models, addresses, prices, servers, max-cost, "
    assert f"policy      bound by {policy}: {names}" in kernel.run("%agent status").stream
    assert f"Bound by the administrator's policy in {policy}: {names}" in kernel.run("%agent help").stream


# -- what the docs show ----------------------------------------------------------------------------------

DOCS = ROOT / "docs"


def fences(page: str, kind: str) -> list[str]:
    """The blocks of a kind on a page."""
    tokens = MarkdownIt().parse((DOCS / page).read_text(encoding="utf-8"))
    return [token.content for token in tokens if token.type == "fence" and token.info == kind]


@pytest.mark.parametrize("page", ["reference/policy.md", "guide/hub.md"])
def test_the_policy_of_a_page_is_one(page, tmp_path, monkeypatch):
    monkeypatch.setattr(classroom, "POLICY_FILE", tmp_path / "agentmagic.toml")
    (written,) = fences(page, "toml")
    (tmp_path / "agentmagic.toml").write_text(written, encoding="utf-8")
    class_settings.cache_clear()
    assert class_settings().policy is not None
    assert class_settings().price("openai-chat:gpt-5.4-mini") == (0.25, 2.0, 0.03)
    class_settings.cache_clear()


def test_every_setting_of_a_policy_is_in_its_reference():
    page = (DOCS / "reference/policy.md").read_text(encoding="utf-8")
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    assert [name for name in classroom._SETTINGS if f"`{name.replace('_', '-')}`" not in rows] == []


def test_the_hub_gives_each_user_a_key_of_the_gateway_and_the_address_and_keeps_its_own_key(monkeypatch):
    asked = []

    class Gateway(RequestHandler):
        def post(self) -> None:
            asked.append((self.request.headers["Authorization"], json.loads(self.request.body)))
            self.write({"key": f"key-of-{asked[-1][1]['user_id']}"})

    async def start() -> dict[str, str]:
        server = HTTPServer(Application([("/key/generate", Gateway)]))
        (listening,) = bind_sockets(0, "127.0.0.1")
        server.add_socket(listening)
        monkeypatch.setenv("GATEWAY_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        monkeypatch.setenv("GATEWAY_ADMIN_KEY", "key-of-the-hub")
        config = Config()
        exec(fences("guide/hub.md", "py")[0], {"get_config": lambda: config})  # noqa: S102  (as the hub does)
        spawner = SimpleNamespace(user=SimpleNamespace(name="anna"), environment={**config.Spawner.environment})
        await config.Spawner.pre_spawn_hook(spawner)
        server.stop()
        return spawner.environment

    environment = asyncio.run(start())
    assert asked == [
        ("Bearer key-of-the-hub", {"user_id": "anna", "models": ["gpt-5.4-mini"], "duration": "24h"}),
    ]
    assert environment["OPENAI_API_KEY"] == "key-of-anna"
    assert environment["OPENAI_BASE_URL"].endswith("/v1")
    assert "key-of-the-hub" not in str(environment)
