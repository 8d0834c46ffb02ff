import json
from pathlib import Path

import pytest

from agentmagic.errors import ConfigError
from agentmagic.secrets import redact
from agentmagic.tools.mcp import config, trust
from agentmagic.tools.mcp.config import Http, InProcess, ServerConfig, Stdio, Unreadable

WEB = "http://localhost/mcp"


@pytest.mark.parametrize(
    ("entry", "meant"),
    [
        ("x -y server-x 'two words'", ServerConfig(Stdio("x", ("-y", "server-x", "two words")))),
        ("/usr/bin/uvx time", ServerConfig(Stdio("/usr/bin/uvx", ("time",)), connect_timeout=60)),
        (WEB, ServerConfig(Http(WEB))),
        (  # of another host, with keys that we do not know
            {"command": "x", "args": ["-p", 80], "env": {"A": "1"}, "cwd": "data", "disabled": False, "icon": "x"},
            ServerConfig(Stdio("x", ("-p", "80"), {"A": "1"}, Path("/work/data"))),
        ),
        (
            {"url": WEB, "connect_timeout": 90, "timeout": None, "client_id": "a", "client_secret": "b"},
            ServerConfig(Http(WEB, client_id="a", client_secret="b"), timeout=60, connect_timeout=90),
        ),
        (
            {
                "url": WEB,
                "headers": {"X": "y"},
                "allow": ["get_*"],
                "trust": True,
                "timeout": 5,
                "roots": [".", "data"],
            },
            ServerConfig(Http(WEB, {"X": "y"}), ("get_*",), 5.0, roots=(Path("/work"), Path("/work/data")), trust=True),
        ),
    ],
)
def test_an_entry_is_read_for_what_it_means(entry, meant):
    assert config.parse(entry, workspace=Path("/work")) == meant


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_a_whole_file_is_read_and_its_workspace_is_its_folder(tmp_path, key):
    (tmp_path / ".vscode").mkdir()
    entries = {"a": {"command": "x", "args": ["${workspaceFolder}"]}, "b": {"url": WEB}}
    for path in (tmp_path / ".mcp.json", tmp_path / ".vscode" / "mcp.json"):
        path.write_text(json.dumps({key: entries, "inputs": []}))
        assert list(config.read(path)) == list(config.read(str(path))) == ["a", "b"]
        assert config.read(path)["a"].transport == Stdio("x", (str(tmp_path),))


def test_a_bad_entry_of_a_file_leaves_the_others_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    entries = {
        "git": {"command": "x", "env": {"T": "${GITHUB_TOKEN}"}},
        "odd": {"args": []},
        "number": 7,
        "notebook": {"command": "x"},
        "a\nb": {"command": "x"},
        "good": {"command": "one"},
    }
    path = tmp_path / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    read = config.read(path)
    problems = {name: one.transport.problem for name, one in read.items() if isinstance(one.transport, Unreadable)}
    assert list(read) == ["git", "odd", "number", "unnamed", "unnamed-2", "good"]
    assert list(problems) == list(read)[:-1]
    assert f"In the server 'git' in {path}, ${{GITHUB_TOKEN}} is used, but the variable" in problems["git"]
    assert 'neither "command" nor "url"' in problems["odd"]
    assert "A server cannot be called 'notebook'" in problems["unnamed"]
    assert read["good"].transport == Stdio("one")
    monkeypatch.setenv("GITHUB_TOKEN", "given-by-now")
    again = read["git"].transport.again()
    assert (again.transport, again.origin) == (Stdio("x", (), {"T": "given-by-now"}), read["git"].origin)


def test_tables_and_lists_name_their_servers_and_no_two_alike():
    assert list(config.read({"command": {"command": "x"}})) == ["command"]
    entries = ["mcp-server-time", {"command": "uvx", "args": ["mcp-server-time"]}, {"mcpServers": {"a": "x"}}]
    assert list(config.read(entries)) == ["time", "time-2", "a"]


def test_variables_are_filled_in_and_one_that_is_not_set_is_named(monkeypatch):
    monkeypatch.setenv("PLACE", "Rome")
    monkeypatch.delenv("NOWHERE", raising=False)
    entry = {"command": "x", "args": ["${PLACE}", "${env:PLACE}/b", "${NOWHERE:-Oslo}", "${NOWHERE:-}", "$PLACE"]}
    assert config.parse(entry).transport == Stdio("x", ("Rome", "Rome/b", "Oslo", "", "$PLACE"))
    with pytest.raises(ConfigError, match=r"'git'.*NOWHERE is not set.*\$\{NOWHERE:-default\}"):
        config.read({"git": {"command": "x", "env": {"T": "${NOWHERE}"}}})


def test_secrets_are_blanked_from_then_on_and_settings_that_are_none_are_not(monkeypatch):
    monkeypatch.setenv("KEYCLOAK_REALM", "production")
    config.parse({"command": "x", "args": ["${KEYCLOAK_REALM}"], "env": {"API_KEY": "development"}})
    assert redact("in production and development") == "in production and development"
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    config.parse({"command": "x", "args": ["${SOME_API_KEY}"]})
    config.parse({"url": "http://localhost", "headers": {"Authorization": "Basic dXNlcjpwYXNzd29yZA"}})
    assert redact("correct-horse-battery dXNlcjpwYXNzd29yZA") == "[redacted] [redacted]"
    assert "hidden-value" not in repr(config.parse({"url": WEB, "headers": {"X": "hidden-value"}}))


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://example.org/mcp?team=blue&apiKey=a-long-secret-1"},
        {"url": "https://someone:a-long-secret-1@example.org/mcp"},
        {"command": "x", "args": ["--access-token=a-long-secret-1"]},
        {"command": "x", "env": {"DATABASE": "postgres://me:a-long-secret-1@db/x"}},
        "x postgres://me:a-long-secret-1@db/x --password a-long-secret-1",
    ],
)
def test_secrets_of_addresses_and_options_are_blanked_too(entry):
    assert "a-long-secret-1" not in trust.describe(config.parse(entry))


@pytest.mark.parametrize("args", [["--key-file", "/srv/file"], ["--token", "--other-option"], ["-c", "key=command"]])
def test_what_a_person_has_to_see_of_a_command_is_not_taken_for_a_secret(args):
    assert trust.describe(config.parse({"command": "x", "args": args})) == f"x {' '.join(args)}"


def test_a_file_that_is_missing_or_no_text_or_no_table_is_said_and_broken_json_with_its_line(tmp_path):
    with pytest.raises(ConfigError, match="There is no file"):
        config.read(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.read(tmp_path)
    line = r", line 2, column 16: this is not JSON"
    for content, said in ((b"\xff\xfe\x00", ""), (b"[" * 100_000, ""), (b"[]", ""), (b'{\n"mcpServers": {,}\n}', line)):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.json" + said):
            config.read(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, 'neither "command" nor "url"'),
        ({"command": "x", "url": "http://y"}, "both"),
        ({"command": ""}, "is empty"),
        ({"command": "x", "args": "y"}, "should be a list of texts"),
        ({"command": "x", "env": {"A": None}}, "should hold texts by name"),
        ("htp://localhost/mcp", r"'htp://localhost/mcp' is no web address\. It should begin with http"),
        *((url, "is no web address") for url in ("ftp://x", "http://[x", "http://", "http://h:0/", "http://h:99999/")),
        ({"url": "http://x", "type": "gopher"}, "for an old server"),
        ({"url": "http://x", "headers": {"A": "b\r\nC: d"}}, "line break"),
        ({"command": "x", "timeout": -1}, "number of seconds above 0"),
        ({"command": "x", "args": ["${input:token}"]}, "a value that was not given"),
        ("", "is empty"),
        ("x 'y", "Close its quotes"),
        (7, "is no server"),
    ],
)
def test_an_entry_that_cannot_be_read_says_what_to_do(entry, problem):
    with pytest.raises(ConfigError, match=problem):
        config.parse(entry)


def test_server_objects_are_taken_as_they_are():
    from mcp import StdioServerParameters
    from mcp.server import MCPServer

    server = MCPServer("shop floor")
    assert config.read([server]) == {"shop-floor": ServerConfig(InProcess(server))}
    given = StdioServerParameters(command="x", args=["y"], cwd=Path("z"))
    assert config.read(given) == {"x": ServerConfig(Stdio("x", ("y",), {}, Path("z")))}
