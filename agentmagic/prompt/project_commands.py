"""Project commands: `/NAME arguments` sends the prompt in `.agents/commands/NAME.md`, with the arguments filled in."""

import re
from collections.abc import Sequence

from agentmagic.context.project_files import COMMAND_NAME, COMMANDS, ProjectFile
from agentmagic.context.request_view import tokens_of_text
from agentmagic.errors import UsageError
from agentmagic.events import PromptValue
from agentmagic.messages import Content, Prompt, Text, as_prompt, user
from agentmagic.platforms import split_command
from agentmagic.text import close_names, join_names, sanitize

_COMMAND = re.compile(rf"/({COMMAND_NAME.pattern})(?:\s+|\Z)")
"""Matches a command at the beginning of a message, but not a path: its first name has a slash or a dot after it."""
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])(?![A-Za-z0-9_])")
_CLOSE = 0.75
"""Minimum similarity, from 0 to 1, of a misspelt command to a real name. A less similar word after / is a prompt."""


def parse_command(message: str, commands: Sequence[ProjectFile], others: Sequence[str] = ()) -> tuple[str, str] | None:
    """Return the name of the command `/NAME` that begins a message and the text after it, or None if none begins it.

    Raises UsageError for a misspelt name: a name similar to that of a command, or to a name in `others`.
    """
    if (match := _COMMAND.match(message)) is None:
        return None
    name, names = match[1], [one.name for one in commands]
    if name in names:
        return name, message[match.end() :]
    if close := close_names(name, [*names, *others], cutoff=_CLOSE):
        raise UsageError(
            f"There is no command /{name}. Did you mean /{close[0]}? Begin with a blank to send it as a message."
        )
    return None


def find_command(name: str, commands: Sequence[ProjectFile]) -> ProjectFile:
    """Return the command with this name. Raises UsageError if the project does not have it."""
    by_name = {one.name: one for one in commands}
    if name in by_name:
        return by_name[name]
    close = close_names(name, by_name)
    hint = f" Did you mean /{close[0]}?" if close else ""
    names = join_names([f"/{one}" for one in by_name])
    where = f"Commands: {names}." if by_name else f"Write one as {COMMANDS}/NAME.md."
    raise UsageError(f"The project has no command /{sanitize(name)[:80]}.{hint} {where}")


def command_prompt(command: ProjectFile, arguments: Prompt, before: str = "") -> tuple[Prompt, PromptValue]:
    """Return the prompt of a project command, and the `PromptValue` that describes the command for the user.

    `arguments` is the text that was typed after the command, with its attachments; `before` is put in front of that
    text. In the command's own file, braces are not evaluated and no attachments are made.
    """
    first, *attachments = user(arguments).parts if isinstance(arguments, str) else as_prompt(arguments).parts
    text = fill_template(command.body, "\n".join(filter(None, (before, first.text if isinstance(first, Text) else ""))))
    parts: list[str | Content] = [text, *(part for part in attachments if isinstance(part, Content))]
    value = PromptValue(f"/{command.name}", "command", command.file, tokens_of_text(command.body), command.body)
    return parts if attachments else text, value


def fill_template(template: str, arguments: str) -> str:
    """Return a template with `$ARGUMENTS` and `$1` to `$9` filled in, as in Claude Code.

    If the template has none of these placeholders, the arguments are appended.
    """
    words = _split_arguments(arguments)

    def argument_for(match: re.Match[str]) -> str:
        if match[1] == "ARGUMENTS":
            return arguments
        number = int(match[1])
        return words[number - 1] if number <= len(words) else ""

    if _PLACE.search(template):
        return _PLACE.sub(argument_for, template)
    return f"{template}\n\nARGUMENTS: {arguments}" if arguments else template


def _split_arguments(arguments: str) -> list[str]:
    try:
        return split_command(arguments)
    except ValueError:  # A quote is not closed, for example an apostrophe.
        return arguments.split()
