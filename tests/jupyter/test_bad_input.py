"""What was not meant: each is answered in a sentence or two, without a traceback, and nothing is lost."""

import pytest

BAD = {
    "an unknown option": ("%%agent --modle x\nhello", "Did you mean --model?"),
    "an unknown model": ("%%agent -m opnai:gpt-5.4\nhello", "Did you mean openai:?"),
    "a model without a provider": ("%%agent -m gpt-5.4\nhello", "Did you mean openai:gpt-5.4?"),
    "a provider without a model": ("%%agent -m gemini\nhello", "Write gemini:gemini-3.5-flash"),
    "a builtin as a session": ("%%agent str\nhello", "'str' cannot name a session"),
    "a prompt on the line": ("%%agent Summarise the table\n", "The prompt stands below this line"),
    "nothing but the magic": ("%%agent", "The prompt is empty: write it below the line %%agent"),
    "nothing but a name": ("%%agent tutor\n", "The prompt is empty"),
    "a question that IPython would take for help": ("%agent What is this?", "write %%agent and the prompt below it"),
    "a missing value": ("%%agent --timeout\nhello", "expected one argument"),
    "a timeout of nothing": ("%%agent --timeout 0\nhello", "Give seconds above 0"),
    "a name that is no identifier": ("%%agent my-agent\nhello", "'my-agent' cannot name a session"),
    "an answer as a builtin": ("%%agent -o str\nhello", "'str' cannot take an answer"),
    "an answer as IPython's result": ("%%agent -o _3\nhello", "'_3' cannot take an answer: IPython keeps"),
    "an answer as the session": ("%%agent -o agent\nhello", "agent is a session and stays"),
    "a type that is none": ("%%agent --new --as os\nhello", "--as os is no type of an answer: output is <module"),
    "a type that is not defined": ("%%agent --as Nocity\nhello", "NameError: name 'Nocity' is not defined"),
    "a type that calls": ("%%agent --as os.getcwd()\nhello", "it may hold names, brackets and | only"),
    "a type that is cut": ("%%agent --as list[\nhello", "--as list[ is no type of an answer: SyntaxError"),
    "two names": ("%%agent one two\nhello", "cannot place the word 'two'"),
    "open quotes": ('%%agent --instructions "be\nhello', "Close its quotes"),
    "a tool that is not there": ("%%agent --tools nosuch\nhello", "no function of the notebook"),
    "a prompt of blanks": ("%%agent\n   \n", "The prompt is empty"),
    "a prompt that is too long": (
        "get_ipython().run_cell_magic('agent', '', 'x' * 10_000_000)",
        "10,000,000 characters",
    ),
    "an unknown subcommand": ("%agent histroy", "Did you mean history?"),
    "a question on one line": ("%agent what is this", "write %%agent and the prompt below it"),
    "a server without a command": ("%mcp add clock", "write its command line or its web address"),
    "a server that is not installed": ("%mcp add clock no-such-program --here", "command not found: no-such-program"),
    "tools of a server that nobody knows": ("%mcp tools clock", "There is no server 'clock'"),
    "a server that nobody knows": ("%mcp remove clock", "There is no server 'clock'"),
    "an address where nobody listens": ("%mcp add clock http://127.0.0.1:9/mcp", "clock"),
    "a file that is not there": ("%mcp load nowhere.json", "There is no file"),
    "a file that is no JSON": ("%mcp load broken.json", "this is not JSON"),
}


@pytest.fixture
def talking(kernel):
    """A kernel with a conversation that must not be lost."""
    kernel.run("import os, pathlib\npathlib.Path('broken.json').write_text('{')\nplay('first', 'second')")
    kernel.run("os.environ |= {'OPENAI_BASE_URL': 'http://127.0.0.1:9/v1', 'OPENAI_API_KEY': 'k'}")
    kernel.run("%%agent\nhello")
    yield kernel
    kernel.run("del os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY']")
    kernel.run("%mcp remove clock")


@pytest.mark.parametrize(("code", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_answered_in_a_line(talking, code, said):
    cell = talking.run(code)
    assert not cell.ok
    assert said in cell.error
    assert len(cell.error.splitlines()) == 1
    assert "Traceback" not in cell.error
    assert talking.value("agent.messages[1].text") == "'first'"
    assert "second" in talking.run("%%agent\nagain").text


def test_an_error_keeps_no_key_beside_its_line(talking):
    key = "sk-" + "a" * 30
    cell = talking.run(f"%agent {key}")
    assert "[redacted]" in cell.error
    assert key not in str([message["content"] for message in cell.messages if message["msg_type"] == "error"])


def need_openai(kernel):
    if kernel.value("__import__('importlib.util').util.find_spec('openai') is None") == "True":
        pytest.skip("this kernel has no openai")


def test_a_line_that_a_magic_prints_has_no_key_in_it(talking):
    need_openai(talking)
    key = "sk-" + "a" * 30
    cell = talking.run(f"%agent models openai-chat:{key} -s unsaid")
    assert cell.ok
    assert "openai-chat:[redacted]" in cell.stream


def test_what_errors_say_to_type_for_the_options_works(talking):
    assert "%%agent? tells the options" in talking.run("%%agent --modle x\nhello").error
    payload = talking.run("%%agent?").reply["content"]["payload"]
    assert "--max-iterations" in str(payload)


def test_a_wrong_base_url_is_named(talking):
    need_openai(talking)
    cell = talking.run("%%agent -m openai-chat:x --timeout 20\nhello")
    assert "127.0.0.1:9" in cell.text
    assert len(cell.error.splitlines()) == 1
    assert "second" in talking.run("%%agent\nagain").text
