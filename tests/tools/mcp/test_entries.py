"""Configuration files of MCP servers as other programs write them."""

import json

import pytest

from agentmagic.tools.mcp import config, entries, trust

PROGRAM = config.Stdio("npx", ("-y", "server"), {"TOKEN": "t"})
ADDRESS = config.Http("https://example.org/mcp", {"X-Key": "k"})
COMMAND = {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "t"}}
URL = {"url": "https://example.org/mcp", "headers": {"X-Key": "k"}}

HOSTS = {
    "Claude Code": ({"mcpServers": {"s": {"type": "stdio", **COMMAND}}}, PROGRAM),
    "Claude Code, an address": ({"mcpServers": {"s": {"type": "http", **URL}}}, ADDRESS),
    "VS Code": ({"servers": {"s": {"type": "stdio", **COMMAND}}, "inputs": []}, PROGRAM),
    "VS Code, its settings": ({"mcp": {"servers": {"s": COMMAND}}}, PROGRAM),
    "Windsurf": ({"mcpServers": {"s": {"serverUrl": URL["url"], "headers": URL["headers"]}}}, ADDRESS),
    "Gemini CLI": ({"mcpServers": {"s": {"httpUrl": URL["url"], "headers": URL["headers"]}}}, ADDRESS),
    "Zed": ({"context_servers": {"s": {"source": "custom", **COMMAND}}}, PROGRAM),
    "Zed, before": (
        {"context_servers": {"s": {"command": {"path": "npx", "args": ["-y", "server"], "env": {"TOKEN": "t"}}}}},
        PROGRAM,
    ),
    "opencode": (
        {"mcp": {"s": {"type": "local", "command": ["npx", "-y", "server"], "environment": {"TOKEN": "t"}}}},
        PROGRAM,
    ),
    "opencode, an address": ({"mcp": {"s": {"type": "remote", "enabled": True, **URL}}}, ADDRESS),
    "Cline": ({"mcpServers": {"s": {**COMMAND, "disabled": False}}}, PROGRAM),
    "Cursor": ({"mcpServers": {"s": {"type": "streamable_http", **URL}}}, ADDRESS),
}


@pytest.fixture
def read(tmp_path):
    """Read a file with this content."""

    def read_file(content):
        file = tmp_path / "mcp.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return config.read(file)

    return read_file


@pytest.mark.parametrize(("content", "transport"), HOSTS.values(), ids=HOSTS)
def test_a_file_of_another_program_is_read(read, content, transport):
    server = read(content)["s"]
    assert (server.transport, server.unread) == (transport, "")


def test_a_server_that_is_switched_off_is_none(read):
    content = {"mcpServers": {"a": {**COMMAND, "disabled": True}, "b": {**URL, "enabled": False}, "c": COMMAND}}
    assert list(read(content)) == ["c"]


@pytest.mark.parametrize(
    ("written", "seconds"), [(30, 30), (3600, 3600), (5000, 5), (30_000, 30), (600_000, 600), (0.5, 0.5)]
)
def test_a_time_limit_above_an_hour_is_in_milliseconds(read, written, seconds):
    assert read({"servers": {"s": {**COMMAND, "timeout": written}}})["s"].timeout == seconds


def test_keys_that_are_not_read_are_named_when_the_server_is_approved_and_are_no_permission(read):
    more = {"alwaysAllow": ["delete"], "autoApprove": ["*"], "\x1b[31mred": 1, "description": "Mine"}
    server = read({"mcpServers": {"s": COMMAND | more}})["s"]
    (line,) = [line for line in trust.entry_of(server).splitlines() if line.startswith("Not read")]
    assert line.startswith("Not read of its entry: alwaysAllow, autoApprove, ")
    assert "\x1b" not in line
    assert (server.allow, server.trust) == ((), False)


COMMENTED = """{
  // my "servers"
  "servers": {
    "s": {"command": "npx", "args": ["-y", "server",], "env": {"TOKEN": "t",}, /* , } */ },  // the last
  },
}"""


def test_comments_and_closing_commas_are_read_and_texts_stay_as_they_are(read):
    assert read(COMMENTED)["s"].transport == PROGRAM
    assert entries.load('{"a": "// no, ] comment /* , } */", /* one */ }') == {"a": "// no, ] comment /* , } */"}


@pytest.mark.parametrize("text", ["{,}", "[,]", '{"a" // b', '{"a": 1,,}', '{"a": [1 2]}', "//"])
def test_what_is_no_json_even_so_is_told_with_its_place(text):
    with pytest.raises(json.JSONDecodeError) as told:
        entries.load(f"\n{text}")
    assert told.value.lineno >= 2


def test_a_long_text_that_is_no_json_is_read_in_linear_time(read):
    for text in ("/*" * 100_000, '"' + "\\" * 200_001, "[" + "1, // x\n" * 50_000, "[1" + " " * 100_000 + ","):
        with pytest.raises(config.ConfigError):
            read(text)
