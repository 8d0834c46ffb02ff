"""The tool with which a model reads a skill of the project and the skill's other files. The tool runs nothing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from agentmagic.context.project_files import LARGEST_FILE, SKILL, ProjectFile, Unusable, as_text, digest_of, read_bytes
from agentmagic.context.rules import Project
from agentmagic.errors import ToolError
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.text import did_you_mean, join_names, single_line
from agentmagic.tools.base import Tool, ToolContext, Toolset, result

READ_SKILL = "read_skill"

_DEFINITION = ToolDef(
    READ_SKILL,
    "Read a skill of the project before you do what it is for, or a file that the skill names.",
    {
        "type": "object",
        "properties": {
            "skill": {"type": "string", "description": "The name of the skill."},
            "file": {"type": "string", "description": "A file in the skill's folder; empty for the skill itself."},
        },
        "required": ["skill"],
        "additionalProperties": False,
    },
)


def with_skills(sources: Sequence[Toolset], project: Project) -> Sequence[Toolset]:
    """Return the toolsets, plus the one that reads skills if the project has skills."""
    has_skills = any(one.kind == "skill" for one in project.listing.files)
    return (*sources, SkillReader(project)) if has_skills else sources


class SkillReader:
    """A toolset with one tool, which reads the skills that the user approved. Without such skills it has no tool."""

    is_local = True

    def __init__(self, project: Project) -> None:
        self._project = project

    async def tools(self) -> Sequence[Tool]:
        """Return the tool that reads skills, or [] without approved skills."""
        return [Tool(_DEFINITION, self._invoke, reads=True)] if self._project.files_of_kind("skill") else []

    async def aclose(self) -> None:
        """Do nothing: no file is kept open."""

    async def _invoke(self, call: ToolCall, _context: ToolContext) -> ToolResult:
        text = await engine().in_pool(lambda: self._read(call.arguments))
        return result(call, text)

    def _read(self, arguments: Mapping[str, object]) -> str:
        name, file = str(arguments.get("skill", "")), str(arguments.get("file") or "")
        skills = {one.name: one for one in self._project.files_of_kind("skill")}
        if (skill := skills.get(name)) is None:
            hint = did_you_mean(name, skills)
            raise ToolError(f"There is no skill {single_line(name, 80)!r}.{hint} Skills: {', '.join(skills)}.")
        if file not in ("", SKILL):
            return _file(skill, file)
        folder = os.path.relpath(skill.path.parent, self._project.listing.folder).replace(os.sep, "/")
        files = join_names([one for one, *_ in skill.others], 100)
        return f"{skill.text}\n\n[Its folder, from that of the notebook: {folder}. Files in it: {files}.]"


def _file(skill: ProjectFile, file: str) -> str:
    """Return the text of a file beside a skill's SKILL.md.

    Raises ToolError for a file that is not part of the skill, that has changed in this turn, or that cannot be read.
    """
    digests = {one: digest for one, _, digest in skill.others}
    name = str(PurePosixPath(file))
    if name not in digests:
        hint = did_you_mean(name, digests)
        raise ToolError(
            f"The skill {skill.name} has no file {single_line(file, 200)!r}.{hint} Files: {join_names(digests, 100)}."
        )
    folder = skill.path.parent
    try:
        data = read_bytes(folder / name, folder, LARGEST_FILE)
        text = redact(as_text(data))  # no secrets or hidden characters reach the model
    except Unusable as error:
        raise ToolError(f"{name} of the skill {skill.name} {error}.") from None
    except OSError as error:
        raise ToolError(f"{name} of the skill {skill.name} cannot be read ({type(error).__name__}).") from None
    if digest_of(data) != digests[name]:
        raise ToolError(f"{name} of the skill {skill.name} has changed since this turn began.")
    return text
