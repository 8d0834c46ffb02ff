"""Files with a byte order mark, as editors on Windows write it, are read like any other."""

import codecs

import pytest

from agentmagic import classroom, settings
from agentmagic.approval_file import ApprovalFile
from agentmagic.context.project_files import find_files
from agentmagic.plain_files import decode_text
from agentmagic.prompt.attachments import Attacher
from agentmagic.providers.catalog import ModelInfo
from agentmagic.tools.mcp import config

FRONT = "---\nname: stats\ndescription: Größe\n---\nBody.\n"


def project_files(path):
    root = next(folder for folder in path.parents if folder.name == "project")
    return [(one.kind, one.description, one.body) for one in find_files(root).files]


READERS = {
    "rules": ("AGENTS.md", "Größe\nzwei\n", project_files),
    "a skill": (".claude/skills/stats/SKILL.md", FRONT, project_files),
    "a command": (".agents/commands/stats.md", FRONT, project_files),
    "servers": (
        ".mcp.json",
        '{"mcpServers": {"s": {\n"command": "größe"}}}',
        lambda path: config.read(path)["s"].transport,
    ),
    "settings": ("pyproject.toml", '[tool.agentmagic]\nmodel = "größe"\n', settings._project_table),
    "keys": (".env", "SOME_API_KEY=a-key-of-some-length\nOTHER=größe\n", settings._dotenv_values),
    "approvals": ("trusted.json", '{"a": {"server": "größe"}}', lambda path: ApprovalFile(path).read()),
    "limits": ("pyproject.toml", '[tool.agentmagic.class]\nmodels = ["größe"]\n', classroom._read),
    "an attachment": ("rows.csv", "größe\n1\n", lambda path: Attacher(ModelInfo).file("x", path, "rows.csv").part),
}

WRITERS = {
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16, little end first": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "UTF-16, big end first": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("kind", READERS)
def test_a_file_with_a_byte_order_mark_is_read_like_one_without(tmp_path, kind, write):
    name, text, reader = READERS[kind]
    path = tmp_path / "project" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    plain = repr(reader(path))
    assert "ö" in plain
    path.write_bytes(write(text))
    assert repr(reader(path)) == plain


def test_bytes_that_are_no_text_are_refused():
    for data in (codecs.BOM_UTF16_LE + b"a", codecs.BOM_UTF16_LE + b"\x00\xd8", b"\xff", "Grüße".encode("latin-1")):
        with pytest.raises(UnicodeDecodeError):
            decode_text(data)
    assert decode_text(codecs.BOM_UTF16_LE + b"a\0b", "replace").startswith("a")
