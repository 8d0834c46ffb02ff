"""Runs one call of a tool: checks the arguments, runs the tool, and turns its value, output or error into a result."""

import asyncio
import concurrent.futures
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from traceback import TracebackException
from types import FrameType, TracebackType
from typing import Any, cast, get_args

from agentmagic import json_schema
from agentmagic.errors import CassetteError, ReplayMismatch, ServerError, ToolError, describe, describe_group
from agentmagic.messages import Content, Media, Resource, ResultStatus, Text, ToolCall, ToolDef, ToolResult
from agentmagic.runtime.exits import CodeExit, CodeInterrupt, describe_exit
from agentmagic.runtime.timeouts import Deadline, is_cancelling
from agentmagic.secrets import redact
from agentmagic.text import a_type, clip, cut_middle
from agentmagic.tools.base import TaskComplete, Tool, ToolContext, failure, result

LONGEST_INSIDE = 2_000
"""Maximum number of characters of the description of the errors in an exception group."""


async def call_tool(tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult:
    """Check the arguments of one call, run the call and return its result. If it fails, return an error result.

    Only a few exceptions are raised: ServerError if the tool's server cannot be reached again, CancelledError if the
    caller is cancelled, and CassetteError or ReplayMismatch in a turn that is recorded or replayed.
    """
    problem = check_arguments(tool.definition, call.arguments)
    return failure(call, problem) if problem else await carry_out(tool, call, context)


async def carry_out(tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult:
    """Run a call whose arguments were checked, and return its result with the tool's output.

    Raises the same exceptions as `call_tool`.
    """
    return with_output(await _carry_out(tool, call, context), context)


def with_output(result: ToolResult, context: ToolContext) -> ToolResult:
    """Add what the tool printed, displayed and plotted to its result. Set `context.rich` to the HTML of all parts."""
    count = len(result.content)
    own = list(zip(result.content, context.rich if len(context.rich) == count else ("",) * count, strict=True))
    # If the tool called `exit` or `sys.exit`, `own` has a sentence that says so. It comes after the earlier output.
    parts = [*context.output, *own] if context.exited else [*own, *context.output]
    context.rich = tuple(html for _, html in parts)
    return replace(result, content=tuple(part for part, _ in parts))


async def _carry_out(tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult:
    call = replace(call, arguments=_without_refused_nulls(tool.definition, call.arguments))
    context.deadline = Deadline(tool.timeout, context.outer)
    try:
        async with context.deadline:
            return validate_result(call, await tool.invoke(call, context))
    except TaskComplete as completion:
        return result(call, describe(completion), done=describe(completion))
    except (ServerError, CassetteError, ReplayMismatch):
        raise
    except asyncio.CancelledError as error:
        context.cancel()
        if is_cancelling():
            raise
        return failure(call, _error_text(error))  # The tool raised it; nobody cancelled the call.
    except BaseException as error:  # noqa: BLE001  (the model reads all failures; SystemExit must not end the kernel)
        if isinstance(error, TimeoutError) and context.deadline.expired:
            context.cancel()
            fate = f"was given up. {context.left}" if context.left else "was stopped."
            return failure(call, f"{call.name} took longer than {tool.timeout:g} s and {fate}", "timeout")
        return _failure_result(tool, call, context, error)


def _failure_result(tool: Tool, call: ToolCall, context: ToolContext, error: BaseException) -> ToolResult:
    """Return the result of a call that raised an exception.

    A tool that exits has failed, unless it is a program written by the model (`Tool.code`) and its exit code is 0.
    """
    if isinstance(error, CodeInterrupt):
        error = error.__cause__ or error
    if not isinstance(error, (CodeExit, SystemExit)):
        context.error = error
        return failure(call, _error_text(error))
    context.exited = True
    message = f"The {'program' if tool.code else 'tool'} {describe_exit(error.code)}"
    if tool.code and not error.code:
        return result(call, message)
    context.error = error.__cause__ if isinstance(error, CodeExit) else error
    return failure(call, message)


def _without_refused_nulls(definition: ToolDef, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments without the nulls that the schema refuses for optional parameters.

    Models often write null for a parameter that they do not want to give.
    """
    if all(value is not None for value in arguments.values()):
        return arguments
    schema = definition.parameters
    optional: dict[str, Any] = {**schema, "required": []}
    return {
        name: value
        for name, value in arguments.items()
        if value is not None
        or name in schema.get("required", ())
        or not json_schema.problem("", optional, {name: value})
    }


def check_arguments(definition: ToolDef, arguments: Mapping[str, Any]) -> str | None:
    """Return a sentence that says why a call's arguments do not match the tool's schema, or None if they do."""
    if set(arguments) == {"_raw"} and "_raw" not in definition.parameters.get("properties", {}):
        return f"The arguments of {definition.name} were not a JSON object; send them again as one."
    return json_schema.problem(definition.name, definition.parameters, _without_refused_nulls(definition, arguments))


def validate_result(call: ToolCall, value: object) -> ToolResult:
    """Check the ToolResult that a tool returned, and return it as the result of the call.

    Raises ToolError for a value that is not a ToolResult, or whose content the history cannot store.
    """
    if not isinstance(value, ToolResult):
        raise ToolError(f"The tool returned {a_type(value)}, which is no result.")
    # A tool written by the user can set the fields of a ToolResult to any value, so each field is checked or set here.
    content = (value.content,) if isinstance(cast("object", value.content), str) else tuple(value.content)
    parts = tuple(_part(part) for part in content)
    done = value.done if value.done is None else str(value.done)
    status = value.status if value.status in get_args(ResultStatus) else "error"
    return replace(
        value, call_id=call.id, name=call.name, content=parts, status=status, done=done, in_doubt=value.in_doubt is True
    )


def _part(part: object) -> Content:
    match part:
        case str():
            return Text(part)
        case Text(text=str()) | Media(media_type=str(), data=bytes(), name=str()):
            return part
        case Resource(uri=str(), name=str(), media_type=str(), text=str()):
            return part
        case _:
            raise ToolError(
                f"The tool returned {a_type(part)} among its content, where text, media and resources belong."
            )


def _error_text(error: BaseException) -> str:
    # Blank the secrets before the text is clipped: half of a secret would not be recognized.
    message = ": ".join(filter(None, (describe(error), clip(redact(describe_group(error)), LONGEST_INSIDE))))
    if isinstance(error, ToolError):
        return message or "The tool failed without saying why."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


# -- tracebacks ----------------------------------------------------------------------------------------------

LONGEST_TRACEBACK = 20_000
"""Maximum number of characters of a traceback; a longer one is cut in the middle."""

_CELL = re.compile(r'File "(?:[^"\n]*ipykernel_\d+[^"\n]*|<ipython-input-[^"\n]*>)"')
_CALLING = tuple(f"{Path(str(one.__file__)).parent}{os.sep}" for one in (json_schema, asyncio, concurrent.futures))
"""The folders of agentmagic, asyncio and concurrent.futures: code in them calls tools."""


def own_traceback(error: BaseException) -> TracebackType | None:
    """Return a traceback from the first frame of the tool or cell on, or None if the traceback has no such frame."""
    trace = error.__traceback__
    while trace is not None and _is_calling(trace.tb_frame):
        trace = trace.tb_next
    return trace


def _is_calling(frame: FrameType) -> bool:
    """Return whether a frame belongs to the code that calls tools or runs cells, and not to the tool or cell itself."""
    return frame.f_code.co_filename.startswith(_CALLING) or str(frame.f_globals.get("__name__")).startswith("IPython.")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception that a tool or cell raised, as text.

    The text is "" for a ToolError, which a tool raises on purpose. Secrets are blanked. Paths are written as in
    Jupyter: the home folder is ~, and the file of a cell is left out.
    """
    if isinstance(error, ToolError) or (trace := own_traceback(error)) is None:
        return ""
    text = "".join(TracebackException(type(error), error, trace, compact=True).format())
    text = _CELL.sub("Cell", text).replace(f'File "{Path("~").expanduser()}{os.sep}', f'File "~{os.sep}')
    return cut_middle(redact(text), LONGEST_TRACEBACK, lambda start, end: f"\n({end - start:,} characters left out)\n")
