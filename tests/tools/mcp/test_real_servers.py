"""Servers made by others, run as their users run them."""

import asyncio
import subprocess

import pytest

from agentmagic.tools.mcp import config, content
from agentmagic.tools.mcp.pending import SamplingAnswer, ServerHost
from tests.tools.mcp import real
from tests.tools.mcp.calling import answering, call, connected
from tests.tools.mcp.real import of_npm, of_pypi

pytestmark = pytest.mark.slow

CLOCK = {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
THOUGHT = {"thought": "first", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}


@pytest.mark.parametrize(
    ("command", "name", "arguments", "words"),
    [
        pytest.param(["mcp-server-time"], "convert_time", CLOCK, "21:00", marks=of_pypi("mcp-server-time")),
        pytest.param(
            real.npm("filesystem", "."), "read_text_file", {"path": "note.txt"}, "hello", marks=of_npm("filesystem")
        ),
        pytest.param(["mcp-server-git"], "git_status", {"repo_path": "."}, "note.txt", marks=of_pypi("mcp-server-git")),
        pytest.param(real.npm("memory"), "read_graph", {}, '"entities"', marks=of_npm("memory")),
        pytest.param(
            real.npm("sequential-thinking"), "sequentialthinking", THOUGHT, "1", marks=of_npm("sequential-thinking")
        ),
    ],
    ids=["time", "filesystem", "git", "memory", "thinking"],
)
def test_a_server_made_by_others_answers(command, name, arguments, words, tmp_path):
    async def main():
        async with connected(it=config.parse(real.entry(command, cwd=str(tmp_path)))) as servers:
            await servers.restart("it")  # so that it is ready, however long that takes
            assert words in (await call(servers, name, **arguments)).text

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "note.txt").write_text("hello")
    asyncio.run(main())


NOTE = 'A "note" of some\nlines\twith \\ and é'
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program of all"]}
EDIT = {"path": "note.txt", "edits": [{"oldText": "some", "newText": "many"}]}
RESULTS = {
    "filesystem": [
        ("list_allowed_directories", {}),
        ("list_directory", {"path": "."}),
        ("list_directory_with_sizes", {"path": "."}),
        ("directory_tree", {"path": "."}),
        ("search_files", {"path": ".", "pattern": "*.txt"}),
        ("get_file_info", {"path": "note.txt"}),
        ("read_file", {"path": "note.txt"}),
        ("read_text_file", {"path": "note.txt"}),
        ("read_multiple_files", {"paths": ["note.txt", "other.txt"]}),
        ("create_directory", {"path": "folder"}),
        ("write_file", {"path": "new.txt", "content": "new"}),
        ("move_file", {"source": "new.txt", "destination": "newer.txt"}),
        ("edit_file", EDIT),
    ],
    "memory": [
        ("create_entities", {"entities": [ENTITY]}),
        ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["was born in London"]}]}),
        ("create_relations", {"relations": [{"from": "Ada", "to": "Ada", "relationType": "knows herself"}]}),
        ("read_graph", {}),
        ("search_nodes", {"query": "Ada"}),
        ("open_nodes", {"names": ["Ada"]}),
        ("delete_entities", {"entityNames": ["Ada"]}),
    ],
    "sequential-thinking": [("sequentialthinking", THOUGHT)],
    "everything": [
        ("echo", {"message": "a message of some length"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-structured-content", {"location": "New York"}),
        ("get-tiny-image", {}),
        ("get-annotated-message", {"messageType": "success"}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("get-resource-links", {"count": 2}),
    ],
}
"""Tools of the servers of npm, in an order in which all calls succeed."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=of_npm(name)) for name in RESULTS])
def test_no_result_is_told_as_text_and_again_as_structured_content(name, tmp_path):
    async def main():
        command = real.npm(name, *(["."] if name == "filesystem" else []))
        env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
        async with connected(it=config.parse(real.entry(command, cwd=str(tmp_path), env=env))) as servers:
            await servers.restart("it")
            for tool, arguments in RESULTS[name]:
                answer = await call(servers, tool, **arguments)
                assert answer.status == "ok", (tool, answer.text)
                told, _, more = answer.text.partition(content.BESIDE)  # `more` is what the text does not have
                assert [line for line in told.split("\n") if len(line) > 3 and line.strip() in more] == [], tool
                assert (more != "") == (tool == "delete_entities"), answer.text  # its text lacks {"success": true}

    for file in ("note.txt", "other.txt"):
        (tmp_path / file).write_text(NOTE)
    asyncio.run(main())


async def complete(_request, _call):
    return SamplingAnswer("forty-two", "a-model")


@of_npm("everything")
def test_the_everything_server_asks_and_gives_over_stdio(tmp_path):
    async def main():
        entry = real.entry(real.npm("everything"), roots=[str(tmp_path)])
        async with connected(host=ServerHost(complete), **config.read({"everything": entry})) as servers:
            await servers.restart("everything")
            assert tmp_path.as_uri() in (await call(servers, "get-roots-list")).text
            link = {"url": "https://example.org/x", "message": "Sign in"}
            for name, answers, arguments, words in (
                ("trigger-elicitation-request", ["Ada", "y", *[""] * 20], {}, '"name": "Ada"'),
                ("trigger-sampling-request", ["y"], {"prompt": "why?", "maxTokens": 20}, "forty-two"),
                ("trigger-url-elicitation", ["y"], link, '"accept"'),
                ("trigger-url-elicitation", ["y"], {**link, "errorPath": True}, "The user agreed to visit it"),
            ):
                ask, _ = answering(*answers)
                assert words in (await call(servers, name, ask=ask, **arguments)).text
            (message,) = await servers.prompt("everything", "args-prompt", {"city": "Rome"})
            assert message.text == "What's weather in Rome?"
            assert any(one.template for one in await servers.resources())
            (blob,) = await servers.read("everything", "demo://resource/dynamic/blob/2")
            assert blob.data.startswith(b"Resource 2")
            assert servers.logs("everything")

    asyncio.run(main())
