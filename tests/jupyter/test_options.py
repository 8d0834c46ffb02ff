"""The line behind a magic as a value."""

from pathlib import Path

import pytest

from agentmagic.errors import UsageError
from agentmagic.jupyter import options, subcommands
from agentmagic.jupyter.option_parser import Help

PAGE = Path(__file__).parent.parent.parent / "docs" / "magics.md"


def test_an_empty_line_means_the_default_session():
    assert options.parse_ask("") == options.Ask()


def test_options_become_fields():
    parsed = options.parse_ask('tutor -m local:x --instructions "Be kind." --tools a,b --timeout 2.5 --new --bg')
    assert parsed == options.Ask(
        name="tutor", model="local:x", instructions="Be kind.", tools=("a", "b"), timeout=2.5, new=True, bg=True
    )


def test_a_limit_of_cost_is_a_number_of_dollars():
    assert options.parse_ask("--max-cost 0.25") == options.Ask(max_cost=0.25)


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("sessions", subcommands.ListSessions()),
        ("load", subcommands.Load()),
        ("load agent.1 -s bob", subcommands.Load(session="bob", saved="agent.1")),
        ("save talk.jsonl", subcommands.Save(target="talk.jsonl")),
        ("-s bob fork carol --turns 2", subcommands.Fork(session="bob", name="carol", turns=2)),
        ("export 'my talk.md' --overwrite", subcommands.Export(target="my talk.md", overwrite=True)),
        ("debug", subcommands.Debug()),
        ("debug on", subcommands.Debug(detail="on")),
        ("history --search two words -s bob", subcommands.ListHistory(session="bob", search=("two", "words"))),
    ],
)
def test_a_subcommand_about_conversations_becomes_a_value(line, parsed):
    assert options.parse_line(line, "agent") == parsed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("fork", "required: NEW"),
        ("fork my-talk", "'my-talk' cannot name a session"),
        ("fork carol --turns -1", "--turns is -1"),
        ("debug maybe", "invalid choice"),
        ("save", "required: FILE"),
        ("-s bob sessions", "no option '-s'"),
        ("help", "%agent --help tells the subcommands"),
    ],
)
def test_a_subcommand_that_cannot_be_read_says_why(line, said):
    with pytest.raises(UsageError) as error:
        options.parse_line(line, "agent")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["save --plan x", "load --he", "status who"])
def test_only_what_is_close_is_offered_and_never_the_help(line):
    with pytest.raises(UsageError) as error:
        options.parse_line(line, "agent")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("line", ["-h", "save -h", "-s bob export -h"])
def test_help_has_a_short_form_too(line):
    assert isinstance(options.parse_line(line, "agent"), Help)


@pytest.mark.parametrize("line", ["--help", "tutor --help", "--new --help --modle"])
def test_help_wins_over_everything_else_on_the_line(line):
    assert isinstance(options.parse_ask(line), Help)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--modle x", "no option '--modle'. Did you mean --model?"),
        ("--mod x", "no option '--mod'"),
        ("one two", "cannot place the word 'two'"),
        ("class", "'class' cannot name a session"),
        ("--tools a --no-tools", "contradict each other"),
        ("--permission maybe", "invalid choice"),
        ("'", "Close its quotes"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(line, said):
    with pytest.raises(UsageError) as error:
        options.parse_ask(line)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_session_may_be_named_before_and_behind_the_subcommand():
    assert options.parse_line("-s bob history", "agent") == subcommands.ListHistory(session="bob")
    assert options.parse_line("history -s bob", "agent") == subcommands.ListHistory(session="bob")


def test_the_first_subcommand_is_meant_where_none_is_named():
    assert options.parse_line("", "agent") == subcommands.Status()
    assert options.parse_line("-s bob", "agent") == subcommands.Status(session="bob")
    assert options.parse_line("", "mcp") == subcommands.ListServers()


def test_the_command_of_a_server_keeps_its_own_options():
    parsed = options.parse_line("add files npx -y server --help /data", "mcp")
    assert parsed == subcommands.AddServer("files", ("npx", "-y", "server", "--help", "/data"))


def test_every_subcommand_has_help_of_its_own():
    for table, words in subcommands.SUBCOMMANDS.items():
        for word in words:
            assert isinstance(options.parse_line(f"{word} --help", table), Help)


def test_the_page_of_the_magics_holds_the_help_as_it_is():
    text = PAGE.read_text(encoding="utf-8")
    assert [magic for magic, help_text in options.help_page().items() if f"```text\n{help_text}```" not in text] == []
