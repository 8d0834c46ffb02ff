"""What the pages of the reference take from the code: `python -m tests.site.reference` writes it into them.

The table of events is written by `python -m tests.test_events`, and Sphinx describes the names of Python.
"""

import re
from pathlib import Path

from agentmagic.jupyter.magics.agent_commands import agent_magic
from agentmagic.jupyter.magics.mcp_commands import mcp_magic
from agentmagic.jupyter.magics.options import ask_parser
from agentmagic.replay import checks

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
BEGIN, END = "<!-- the table of documents begins -->\n", "<!-- the table of documents ends -->"


def help_texts():
    """The help of each magic and command, by the line that shows it without its `--help`."""
    texts = {"%%agent": ask_parser().format_help()}
    for magic in (agent_magic(), mcp_magic()):
        texts[f"%{magic.name}"] = f"{magic.overview().text}\n"
        texts |= {f"%{magic.name} {word}": magic.parser(word).format_help() for word in magic.commands}
    return texts


def missing_help(text, magic):
    """The magic and its commands whose help the text of a page does not hold word for word."""
    texts = {name: words for name, words in help_texts().items() if name.split()[0] == magic}
    return [name for name, words in texts.items() if f"```text\n{words}```" not in text]


def with_help(text):
    """The text of a page with its help texts as they are now."""
    for name, words in help_texts().items():
        block = re.compile(rf"(## `{name}`\n(?:(?!^#|^```).*\n)*```text\n)(?:(?!```).*\n)+", re.MULTILINE)
        text = block.sub(lambda found, words=words: found[1] + words, text)
    return text


def documents():
    """The documents of a cassette and their fields as a Markdown table."""
    rows = []
    for kind, fields in checks._FORMS.items():
        needed = [f"`{name}`" for name in fields if not name.endswith("_")]
        others = [f"`{name.removesuffix('_')}`" for name in fields if name.endswith("_")]
        rows.append(f"| `{kind}` | {', '.join(needed)} | {', '.join(others)} |")
    return "\n".join(["| document | fields | fields that may be missing |", "|---|---|---|", *rows]) + "\n"


def table_in(text):
    """The table of documents that the text of a page holds."""
    return text.split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    for page in sorted(REFERENCE.glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = with_help(old)
        if BEGIN in new:
            new = new.replace(table_in(new), documents()) if table_in(new) else new.replace(BEGIN, BEGIN + documents())
        if new != old:
            page.write_text(new, encoding="utf-8")
