"""What was not meant: each is answered in a sentence or two, without a traceback, and nothing is lost."""

import pytest

BAD = [
    ("%%agent --modle x\nhello", "Did you mean --model?"),  # what else a line may have wrong: test_options.py
    ("%%agent -m opnai:gpt-5.4\nhello", "Did you mean openai:?"),
    ("%%agent -m gpt-5.4\nhello", "Did you mean openai:gpt-5.4?"),
    ("%%agent -m gemini\nhello", "Write gemini:gemini-3.5-flash"),
    ("%%agent", "The prompt is empty"),
    ("%%agent\n   \n", "The prompt is empty"),
    ("x = %agent ask", "The prompt is empty. Write it in quotes"),
    ("%agent What is this?", "write %%agent and the prompt below it"),  # IPython would take it for help
    ("%%agent --timeout 0\nhello", "Give seconds above 0"),
    ("%%agent --max-cost 0\nhello", "Give US dollars above 0"),
    ("%%agent -o str\nhello", "'str' cannot take an answer"),
    ("%%agent -o agent\nhello", "agent is a session and stays"),
    ("%%agent --new --as os\nhello", "--as os is no type of an answer: output is <module"),
    ("%%agent --as Nocity\nhello", "name 'Nocity' is not defined. Name a pydantic model"),
    ("%%agent --as os.getcwd()\nhello", "it may hold names, brackets and | only"),
    ("%%agent --as list[\nhello", "--as list[ is no type of an answer: SyntaxError"),
    ("%%agent --tools nosuch\nhello", "no function of the notebook"),
    ("get_ipython().run_cell_magic('agent', '', 'x' * 10_000_000)", "10,000,000 characters"),
    ("%agent histroy", "Did you mean history?"),
    ("%agent stauts", "Did you mean status?"),
    ("%%agent --as list[Mnth]\nhello", "name 'Mnth' is not defined. Did you mean list[Month]? Name a"),
    ("%%agent --as lits[Month]\nhello", "Did you mean list[Month]?"),
    ("%%agent --set temprature=1\nhello", "Did you mean temperature?"),
    ("%agent status -s agnet", "There is no session agnet. Did you mean agent?"),
    ("%mcp add clock", "write its command line or its web address"),
    ("%mcp add web -e A=1 http://localhost/mcp", "http://localhost/mcp is a web address, which takes no -e."),
    ("%mcp add -e A other x", "'A' is not a variable. Write NAME=VALUE."),
    ("%mcp add clock no-such-program --here", "command not found: no-such-program"),
    ("%mcp tools clok", "There is no server 'clok'"),
    ("%mcp load nowhere.json", "There is no file"),
    ("%mcp load broken.json", "this is not JSON"),
]
KEY = "sk-" + "a" * 30


@pytest.fixture
def talking(kernel):
    """A kernel with a conversation that must not be lost."""
    kernel.run(
        "import os, pathlib\npathlib.Path('broken.json').write_text('{')\nclass Month: pass\nplay('first', 'second')"
    )
    kernel.run("os.environ |= {'OPENAI_BASE_URL': 'http://127.0.0.1:9/v1', 'OPENAI_API_KEY': 'k'}")
    kernel.run("%%agent\nhello")
    yield kernel
    kernel.run("del os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY']")
    kernel.run("%mcp remove clock")


def test_bad_input_is_answered_in_a_line_and_loses_nothing(talking):
    for code, said in BAD:
        cell = talking.run(code)
        assert not cell.ok, code
        assert said in cell.error
        assert len(cell.error.splitlines()) == 1
        assert "Traceback" not in cell.error
    assert talking.value("agent.messages[1].text, len(agent.messages)") == "('first', 2)"
    assert "second" in talking.run("%%agent\nagain").text


def test_neither_an_error_nor_a_line_that_a_magic_prints_keeps_a_key(talking):
    cell = talking.run(f"%agent {KEY}")
    assert "[redacted]" in cell.error
    assert KEY not in str([message["content"] for message in cell.messages if message["msg_type"] == "error"])
    cell = talking.run(f"%agent models openai-chat:{KEY} -s unsaid")
    assert cell.ok
    assert "openai-chat:[redacted]" in cell.stream


def test_what_errors_say_to_type_for_the_options_works_and_a_wrong_base_url_is_named(talking):
    assert "%%agent? tells the options" in talking.run("%%agent --modle x\nhello").error
    assert "--max-iterations" in str(talking.run("%%agent?").reply["content"]["payload"])
    cell = talking.run("%%agent -m openai-chat:x --timeout 20\nhello")
    assert "127.0.0.1:9" in cell.text
    assert len(cell.error.splitlines()) == 1
