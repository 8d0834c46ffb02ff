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
    "Codex": (
        "[mcp_servers.s]\ncommand = 'npx'\nargs = ['-y', 'server']\n[mcp_servers.s.env]\nTOKEN = 't'\n",
        PROGRAM,
    ),
    "Codex, an address": (
        "# mine\n[mcp_servers.s]\nurl = 'https://example.org/mcp'\nhttp_headers = {'X-Key' = 'k'}\nenabled = true\n",
        ADDRESS,
    ),
    "Cline": ({"mcpServers": {"s": {**COMMAND, "disabled": False}}}, PROGRAM),
    "Cursor": ({"mcpServers": {"s": {"type": "streamable_http", **URL}}}, ADDRESS),
}


@pytest.fixture
def read(tmp_path):
    """Read a file with this content."""

    def read_file(content):
        file = tmp_path / ("mcp.json" if not isinstance(content, str) or content.lstrip()[:1] not in "#[" else "c.toml")
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return config.read(file)

    return read_file


@pytest.mark.parametrize(("content", "transport"), HOSTS.values(), ids=HOSTS)
def test_a_file_of_another_program_is_read(read, content, transport):
    server = read(content)["s"]
    assert (server.transport, server.unread) == (transport, "")


def test_a_server_that_is_switched_off_is_none(read):
    content = {"mcpServers": {"a": {**COMMAND, "disabled": True}, "b": {**URL, "enabled": False}, "c": COMMAND}}
    assert list(read(content)) == list(config.read(content)) == ["c"]


CHOICES = [
    ({"disabledTools": ["a"]}, (), ("a",)),  # Cline, Roo
    ({"includeTools": ["a", "b"], "excludeTools": ["b"]}, ("a", "b"), ("b",)),  # Gemini CLI
    ({"enabled_tools": ["a"], "disabled_tools": []}, ("a",), ()),  # Codex
    ({"only": ["a_*"], "disable": ["a_x"]}, ("a_*",), ("a_x",)),
]


@pytest.mark.parametrize(("more", "only", "disable"), CHOICES)
def test_tools_that_another_program_does_not_offer_are_not_offered_and_that_is_told(read, more, only, disable):
    server = read({"mcpServers": {"s": COMMAND | more}})["s"]
    assert (server.only, server.disable, server.unread) == (only, disable, "")
    told = trust.entry_of(server)
    assert all(name in told for name in (*only, *disable))


VARIABLES = """[mcp_servers.s]
url = "https://example.org/mcp"
bearer_token_env_var = "MY_TOKEN"
env_http_headers = {"X-Region" = "MY_REGION"}
startup_timeout_sec = 12
tool_timeout_sec = 7
"""


def test_variables_that_codex_names_are_filled_in_and_their_values_are_not_told(read, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a-secret-token-1234")
    monkeypatch.setenv("MY_REGION", "eu-south")
    server = read(VARIABLES)["s"]
    assert server.transport.headers == {"Authorization": "Bearer a-secret-token-1234", "X-Region": "eu-south"}
    assert (server.connect_timeout, server.timeout, server.unread) == (12, 7, "")
    assert "a-secret-token-1234" not in trust.entry_of(server)


def test_a_variable_that_is_not_set_is_named(read, monkeypatch):
    monkeypatch.setenv("MY_REGION", "eu-south")
    monkeypatch.delenv("MY_TOKEN", raising=False)
    problem = read(VARIABLES)["s"].transport
    assert "MY_TOKEN" in problem.problem


@pytest.mark.parametrize("text", ["[mcp_servers", "# none\n", "[[mcp_servers]]\n", "[other]\nmcp = 1\n"])
def test_toml_without_servers_is_refused(read, text):
    with pytest.raises(config.ConfigError, match=r"c\.toml"):
        read(text)


def test_an_entry_of_toml_that_is_none_is_told(read):
    assert "3 is no server" in read("[mcp_servers]\ns = 3\n")["s"].transport.problem


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


@pytest.mark.parametrize(
    "text",
    ["[1," + "/" * 60 + "\nx]", "/* " * 300_000, '"' * 600_001, '"\\' * 300_000, "[" + ", " * 300_000, "," * 600_000],
)
def test_a_hostile_file_is_refused_at_once(text):
    with pytest.raises(json.JSONDecodeError):
        entries.load(text)


@pytest.mark.parametrize("command", ["x", ["x"]])
def test_a_server_can_have_the_name_of_a_table(command):
    data = {"mcp": {"command": command}, "other": {"command": command}}
    assert entries.table_of(data) == data
