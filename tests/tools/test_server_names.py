"""A stranger's MCP server cannot pass for ours or for a provider: a name that could be mistaken has its address."""

import uuid
from typing import Any

import pytest

from agentmagic.display import html, terminal
from agentmagic.display.block_json import JsonRenderer
from agentmagic.display.transcript import Transcript
from agentmagic.events import ApprovalAsked, ToolStarted
from agentmagic.jupyter.cell.questions import describe
from agentmagic.jupyter.magics import formatting
from agentmagic.messages import ToolCall, ToolDef
from agentmagic.tools.mcp import McpServers
from agentmagic.tools.mcp.config import parse
from agentmagic.tools.server_names import address_to_show, quoted_server, register_server, resembles_ours, shown_server

MISTAKEN = [
    *("NOTEBOOK", "Note book", "note-book", "notebook-files", "my_notebook", "n0teb00k", "n\u00f3tebook"),
    *(
        "n\u043etebook",
        "\uff4eotebook",
        "\U0001d427otebook",
        "noteb\u03bf\u03bfk",
        "\u0578otebook",
        "\u0274otebook"[1:] + "notebook",
    ),
    *("agentmagic", "\u0430gentmagic", "agentrnagic", "agentmag1c", "agentmagic-official", "A G E N T magic"),
    *("acp:claude", "\uff41cp\uff1aclaude", "acp\ua789codex", "\u0430cp:x", "ACP:gemini", "acp"),
    *("openai:", "openai", "0penai:gpt-5.4", "\u043epenai", "OpenAI", "ollama:", "gemini:pro", "anthropic", "1ocal:"),
    *("claude", "c1aude", "cl\u0430ude", "cod\u0435x"),
    *("\u0441lock", "f\u0456les", "\ufb01les", "\uff46iles"),  # letters that resemble those of any other server
]
PLAIN = [
    *("clock", "files", "github", "openai-docs", "my server", "web", "shop3", "acme", "a:b", "note", "book"),
    *(
        "caf\u00e9",
        "\u0444\u0430\u0439\u043b\u044b",
        "\u6587\u4ef6",
        "\u03b4\u03b5\u03b4\u03bf\u03bc\u03ad\u03bd\u03b1 \u03c6",
    ),
]


@pytest.mark.parametrize("name", MISTAKEN, ids=ascii)
def test_a_name_that_could_be_mistaken_is_shown_with_the_address(name):
    address = f"npx -y {uuid.uuid4().hex}"
    register_server(name, address)
    assert address_to_show(name).endswith(address)
    assert shown_server(name).startswith(f"{name} (")


@pytest.mark.parametrize("name", PLAIN, ids=ascii)
def test_another_name_stands_alone(name):
    register_server(name, "npx -y other")
    assert shown_server(name) == name


def test_what_is_ours_stands_alone_and_a_server_that_is_not_known_here_is_called_one():
    assert [shown_server(name) for name in ("notebook", "acp:opencode", "google-vertex", "")] == [
        "notebook",
        "acp:opencode",
        "google-vertex",
        "",
    ]
    assert shown_server("agentmagic tools") == "agentmagic tools (an MCP server)"


def test_two_servers_of_one_name_are_shown_with_both_addresses_and_a_secret_with_neither():
    name = "notebook two"
    for command in ("npx one", "npx two", "npx one"):
        register_server(name, command)
    assert shown_server(name) == "notebook two (npx one or npx two)"
    McpServers({"agentmagic keys": parse({"command": "npx", "env": {"API_KEY": "sk-" + "a" * 40}})})
    assert "a" * 40 not in shown_server("agentmagic keys")
    assert "npx" in shown_server("agentmagic keys")


def test_a_hidden_character_is_not_left_out_of_the_comparison():
    assert resembles_ours("note\u200bbook")
    assert resembles_ours("open\u00adai:")


def test_a_card_a_question_a_line_and_a_list_show_the_address():
    server, address = "n\u043etebook 3", "python evil.py"
    register_server(server, address)
    call = ToolCall("c1", "run_python", {"code": "1"})
    asked = ApprovalAsked("a1", call, server)
    transcript = Transcript([asked])
    shown = f"{server} ({address})"
    (card,) = transcript.blocks
    assert shown in html.render(transcript)
    assert shown in terminal.render(transcript)
    fields: Any = card.render(JsonRenderer())
    assert (fields["server"], fields["addressed"]) == (shown, True)
    assert shown in describe(asked)
    assert shown in formatting.tools([ToolDef("run_python", "Run.", server=server)]).text
    assert shown in html.render(Transcript([ToolStarted(call, server)]))


def test_a_card_of_a_server_that_is_named_like_an_outside_agent_hides_no_argument():
    server = "acp:evil"
    register_server(server, "python evil.py")
    transcript = Transcript([ToolStarted(ToolCall("c1", "add", {"title": "harmless", "what": "all"}), server)])
    assert "what: all" in terminal.render(transcript)
    assert "(python evil.py)" in terminal.render(transcript)


def test_the_lists_of_servers_show_it():
    servers = McpServers({"acp:claude": parse({"command": "npx", "args": ["evil"]}), "clock": parse("npx clock")})
    lines = formatting.servers([servers]).text.splitlines()
    assert lines[0].startswith("acp:claude (npx evil)")
    assert lines[1].startswith("clock  ")


def test_a_question_of_a_server_names_it_with_the_address():
    register_server("agentmagic helper", "npx helper")
    assert quoted_server("agentmagic helper") == "'agentmagic helper' (npx helper)"
    assert quoted_server("clock") == "'clock'"
