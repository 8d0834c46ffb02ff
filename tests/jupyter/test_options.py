"""The line behind a magic as a value."""

import shlex
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agentmagic import Agent, ModelSettings
from agentmagic.errors import UsageError
from agentmagic.jupyter.extension import AgentMagics
from agentmagic.jupyter.magics import options
from agentmagic.jupyter.magics.agent_commands import _how_to_load, agent_magic
from agentmagic.jupyter.magics.mcp_commands import mcp_magic
from agentmagic.jupyter.magics.options import ParsedLine
from agentmagic.jupyter.magics.parser import Help
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.jupyter.panel.panels import ShellNotebook
from agentmagic.mapping.options import MapSettings
from tests.site.reference import REFERENCE, missing_help

AGENT, MCP = agent_magic(), mcp_magic()


def parsed_line(word, **arguments):
    return ParsedLine(word, arguments)


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("", options.Ask()),
        (
            'tutor -m local:x --instructions "Be kind." --tools a,b --timeout 2.5 --new --bg',
            options.Ask(
                name="tutor", model="local:x", instructions="Be kind.", tools=("a", "b"), timeout=2.5, new=True, bg=True
            ),
        ),
        ("--max-cost 0.25", options.Ask(max_cost=0.25)),
    ],
)
def test_the_line_of_a_cell_becomes_a_value(line, asked):
    assert options.parse_ask(line) == asked


def test_settings_of_the_model_are_given_one_by_one():
    asked = options.parse_ask(
        "--set temperature=0 --set=reasoning=low --set extra.text.verbosity=low --set extra.top_p=0.5"
    )
    assert options.read_settings(asked.settings) == ModelSettings(
        temperature=0, reasoning="low", extra={"text": {"verbosity": "low"}, "top_p": 0.5}
    )


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("sessions", parsed_line("sessions")),
        ("", parsed_line("status", session="agent")),  # the first one is meant
        ("-s bob history", parsed_line("history", session="bob", search=())),
        ("load agent.1 -s bob", parsed_line("load", session="bob", saved="agent.1")),
        ("save talk.jsonl", parsed_line("save", session="agent", target="talk.jsonl")),
        ("-s bob fork carol --turns 2", parsed_line("fork", session="bob", name="carol", turns=2)),
        (
            "export 'my talk.md' --overwrite",
            parsed_line("export", session="agent", target="my talk.md", overwrite=True),
        ),
        ("debug on", parsed_line("debug", detail="on")),
        ("history --search two words -s bob", parsed_line("history", session="bob", search=("two", "words"))),
    ],
)
def test_a_subcommand_becomes_a_value(line, parsed):
    assert AGENT.read(line) == parsed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fork", "required: NEW"),
        ("fork my-talk", "'my-talk' cannot name a session"),
        ("debug maybe", "invalid choice"),
        ("save", "required: FILE"),
        ("-s bob sessions", "no option '-s'"),
        ("load --he", "no option '--he'"),
        ("What is 2 plus 2?", "'What'. To ask the agent, write %%agent and the prompt below it."),
    ],
)
def test_a_subcommand_that_cannot_be_read_says_why(line, said):
    with pytest.raises(UsageError) as error:
        AGENT.read(line)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "written", ["{exit()}", "-o {x}{quit()}", "$exit", "{open('made', 'w')}", "{x or get_ipython()}"]
)
def test_a_line_evaluates_nothing_that_leads_into_the_process(written):
    names = {**InteractiveShell().user_ns, "x": 5}
    assert options.fill_line(written, names) == written
    assert options.fill_line("{exit} {x}", {**names, "exit": "out"}) == "out 5"
    assert options.fill_line("{leave()}", {"leave": sys.exit}) == "{leave()}"


@pytest.mark.parametrize("line", ["?", "help", "-h", "save --help", "save -h", "-s bob save -h", "help save", "save?"])
def test_help_is_a_word_an_option_and_a_question_mark(line):
    read = AGENT.read(line)
    assert isinstance(read, Help)
    assert ("a file that is not there yet" in read.text) == ("save" in line)


@pytest.mark.parametrize("magic", [AGENT, MCP], ids=["agent", "mcp"])
def test_help_of_each_command_is_that_of_the_command_also_if_a_code_of_errors_has_its_name(magic):
    shown = {word: magic.read(f"help {word}").text for word in magic.commands}
    assert shown == {word: magic.parser(word).format_help() for word in magic.commands}
    assert magic.read("help [cassette]").text.startswith("cassette: A recording")


def test_values_are_put_into_a_line_but_not_within_quotes():
    names = {"x": 5, "data": {"k": "v"}}
    written = """-m {x} --instructions "say {x}, $x" $x '{x}' {data["k"]} {nothing} don't"""
    filled = """-m 5 --instructions "say {x}, $x" 5 '{x}' {data["k"]} {nothing} don't"""
    assert options.fill_line(written, names) == filled
    assert options.fill_line('save {data["k"]}.jsonl', names) == "save v.jsonl"


@pytest.mark.parametrize("line", ["--help", "--new --help --modle"])
def test_help_wins_over_everything_else_on_the_line(line):
    assert isinstance(options.parse_ask(line), Help)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--modle x", "no option '--modle'. Did you mean --model?"),
        ("--tools", "expected one argument"),
        ("--notebook --no-tools", "contradict each other"),
        ("--web --no-tools", "contradict each other"),
        ("--step --bg", "--step needs you at the cell"),
        ("--confirm", "are about a plan. Add --plan."),
        ("my-agent", "'my-agent' cannot name a session"),
        ("one two", "cannot place the word 'two'"),
        ("Summarise the table", "The prompt stands below this line."),
        ("str", "it is a name of Python or IPython itself"),
        ("--permission maybe", "invalid choice"),
        ("'", "Close its quotes"),
        ("--set temperature", "--set temperature is no setting. Write NAME=VALUE with one of temperature,"),
        ("--set top_p=0.5", "extra.FIELD=VALUE"),
        ("--set seed=many", "seed is 'many'. Give a whole number"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line, said):
    with pytest.raises(UsageError) as error:
        options.parse_ask(line)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        "add clock -e A=1 --timeout=5 --env=B=two uvx -e x --help",
        "add -e A=1 clock --timeout 5 -e B=two -- uvx -e x --help",
    ],
)
def test_the_options_of_a_server_stand_before_or_behind_its_name_and_its_command_keeps_its_own(line):
    options = {"env": ("A=1", "B=two"), "header": (), "timeout": 5.0, "connect_timeout": None, "sse": False}
    assert MCP.read(line) == parsed_line("add", **options, name="clock", command=("uvx", "-e", "x", "--help"))


@pytest.mark.parametrize(
    ("magic", "page"),
    [("%%agent", "cell-options.md"), ("%agent", "agent-commands.md"), ("%mcp", "mcp-commands.md")],
)
def test_the_page_of_a_magic_holds_its_help_as_it_is(magic, page):
    assert missing_help((REFERENCE / page).read_text(encoding="utf-8"), magic) == []


@pytest.mark.parametrize("name", ["list", "In", "class", "_x", "my notes"])
def test_the_command_that_loads_a_conversation_uses_its_name_as_a_session_only_if_that_can_be_one(name):
    assert _how_to_load(name) == f"load {shlex.quote(name)}"
    assert _how_to_load("draft") == "-s draft load"


@pytest.mark.parametrize("line", ["ask {x}", "-s agent ask {x}", "'ask' {x}", "fix", "resume", "chat x", "serve"])
def test_a_panel_refuses_the_subcommands_that_need_a_cell(line):
    shell = InteractiveShell()
    namespace = Namespace({"x": 1}, KnownNotebook(shell))
    magics = AgentMagics(shell, "agent", namespace)
    notebook = ShellNotebook(namespace, magics.agent, magics.commands)
    with pytest.raises(UsageError, match="works only in a cell"):
        notebook.run_line(namespace.session("agent"), "agent", line)


def test_the_options_of_a_map_are_given_to_the_map_and_not_to_each_row():
    asked = options.parse_ask(
        "-o labels --map reviews --to l.jsonl --sample 20 --again --batch --concurrency 8 --on-error stop --max-cost 5 "
        "--timeout 9 --replay live"
    )
    assert asked.options_for(MapSettings) == {
        "to": "l.jsonl",
        "sample": 20,
        "max_cost": 5.0,
        "concurrency": 8,
        "batch": True,
        "again": True,
        "on_error": "stop",
        "replay": "live",
    }
    assert asked.options_for(Agent) == {"timeout": 9.0}


@pytest.mark.parametrize("flag", ["--to x", "--sample 3", "--again", "--batch", "--concurrency 3", "--on-error stop"])
def test_an_option_of_maps_needs_a_map(flag):
    with pytest.raises(UsageError, match=rf"{flag.split()[0]} is about a map\. Add --map NAME\."):
        options.parse_ask(flag)


@pytest.mark.parametrize("flag", ["--plan", "--step", "--drop", "--bg"])
def test_a_map_refuses_what_its_rows_cannot_do(flag):
    with pytest.raises(UsageError, match=rf"A map asks its rows without {flag}\."):
        options.parse_ask(f"--map reviews {flag}")
