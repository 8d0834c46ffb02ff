"""Servers made by others, run as their users run them."""

import asyncio
import json

import pytest

from agentmagic.messages import Media, Resource
from agentmagic.tools.mcp import config
from agentmagic.tools.mcp.pending import Host, SamplingAnswer
from tests.tools.mcp import real
from tests.tools.mcp.calling import answering, call, connected
from tests.tools.mcp.real import of_npm, of_pypi

pytestmark = pytest.mark.slow

CLOCK = {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
THOUGHT = {"thought": "first", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
ADA = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
MEMORY = {"MEMORY_FILE_PATH": "{folder}/memory.json"}


def filled(value, **words):
    """Fill words in where a value has their names in braces."""
    for name, word in words.items():
        value = json.loads(json.dumps(value).replace(f"{{{name}}}", str(word)))
    return value


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        pytest.param(
            "mcp-server-time",
            {"convert_time": (CLOCK, "21:00"), "get_current_time": ({"timezone": "Nowhere/Atlantis"}, "Nowhere")},
            marks=of_pypi("mcp-server-time"),
            id="time",
        ),
        pytest.param(
            "mcp-server-git",
            {
                "git_status": ({"repo_path": "{folder}"}, "note.txt"),
                "git_add": ({"repo_path": "{folder}", "files": ["note.txt"]}, ""),
                "git_diff_staged": ({"repo_path": "{folder}"}, "+hello"),
            },
            marks=of_pypi("mcp-server-git"),
            id="git",
        ),
        pytest.param(
            "mcp-server-fetch --allow-private-ips",
            {"fetch": ({"url": "{page}", "raw": True}, "All is well.")},
            marks=of_pypi("mcp-server-fetch"),
            id="fetch",
        ),
        pytest.param(
            "fastmcp run --no-banner {folder}/shop.py",
            {"price": ({"items": ["a", "b"]}, '{"total":5.0}')},
            marks=of_pypi("fastmcp"),
            id="fastmcp",
        ),
        pytest.param(
            real.entry(real.npm("memory"), env=MEMORY),
            {"create_entities": ({"entities": [ADA]}, ""), "search_nodes": ({"query": "Ada"}, "likes engines")},
            marks=of_npm("memory"),
            id="memory",
        ),
        pytest.param(
            real.entry(real.npm("sequential-thinking")),
            {"sequentialthinking": (THOUGHT, '"thoughtNumber": 1')},
            marks=of_npm("sequential-thinking"),
            id="thinking",
        ),
    ],
)
def test_a_server_made_by_others_answers(entry, told, tmp_path):
    async def main(page):
        async with connected(**config.read({"it": filled(entry, folder=tmp_path)})) as servers:
            await servers.restart("it")  # so that it is ready, however long that takes
            for name, (arguments, words) in told.items():
                assert words in (await call(servers, name, **filled(arguments, folder=tmp_path, page=page))).text

    real.shop(real.repository(tmp_path))
    with real.a_page() as page:
        asyncio.run(main(page))


async def complete(_request, _call):
    return SamplingAnswer("forty-two", "a-model")


@of_npm("everything")
def test_the_everything_server_asks_and_gives_over_stdio(tmp_path):
    async def main():
        entry = real.entry(real.npm("everything"), roots=[str(tmp_path)])
        async with connected(host=Host(complete), **config.read({"everything": entry})) as servers:
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


@of_npm("everything")
def test_the_everything_server_works_over_http():
    async def main(url):
        async with connected(host=Host(complete), everything=config.parse(url)) as servers:
            assert servers.get("everything").left_out == {}
            assert (await call(servers, "echo", message="hello")).text == "Echo: hello"
            image = await call(servers, "get-tiny-image")
            assert any(isinstance(part, Media) and part.media_type == "image/png" for part in image.content)
            links = await call(servers, "get-resource-links", count=2)
            assert sum(isinstance(part, Resource) for part in links.content) == 2
            weather = await call(servers, "get-structured-content", location="New York")
            assert set(weather.structured) == {"temperature", "conditions", "humidity"}
            told = []
            steps = {"duration": 0.2, "steps": 4, "on_progress": lambda *words: told.append(words)}
            await call(servers, "trigger-long-running-operation", **steps)
            assert told[-1][1:3] == (4.0, 4.0)

    with real.everything_over_http() as url:
        asyncio.run(main(url))
