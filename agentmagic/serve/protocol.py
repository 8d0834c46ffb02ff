"""Connects a desk (the tools and pages of a session) to the mcp library: handlers, progress, questions to users."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from agentmagic.serialization import is_shallow
from agentmagic.serve import limits
from agentmagic.serve.client_calls import CallRequest, ClientCall, ClientCalls, Notify, Push
from agentmagic.serve.content import fit_text, to_answer, to_tool
from agentmagic.serve.desk import Desk
from agentmagic.text import about_seconds, cut, join_names, single_line

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    Context = ServerRequestContext[Any, Any]

CLIENT_GONE = "agentmagic.gone"
"""Key in the scope of a request. The value is an event, set when the client no longer waits for the answer."""
UNKNOWN = "a client without a name"
QUESTION: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer"}},
    "required": ["answer"],
}
"""JSON schema of the form in which a client's user answers a question."""

STALE = (
    f"The requestState continues no call: it holds once, for {about_seconds(limits.ANSWER_SECONDS)}, and for the same "
    "tool and arguments. Make the call again without it."
)
NO_TOOL = f"There is no such tool: a name has up to {limits.TOOL_NAME} letters, digits and _ - . : /"
TOO_DEEP = f"The arguments are nested more than {limits.DEPTH} levels deep."

_NO_NAME = re.compile(r"[^A-Za-z0-9 ._/@+-]+")
_TOOL_NAME = re.compile(rf"[A-Za-z0-9_.:/-]{{1,{limits.TOOL_NAME}}}")


def protocol(desk: Desk) -> "Server[Any]":
    """Return a server of the mcp library that offers a desk (the tools and pages of a session) to MCP clients."""
    from mcp.server.lowlevel import Server

    handlers = _Handlers(desk)
    return Server(
        "agentmagic",
        version=version("agentmagic"),
        title="A notebook",
        instructions=desk.instructions,
        lifespan=handlers.calls.lifespan,
        get_tool_input_schema=handlers.schemas.get,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
    )


class _Handlers:
    """Answers the MCP requests for one desk (the tools and pages of a session).

    `schemas` holds the tools' input schemas, as they were listed last.
    """

    def __init__(self, desk: Desk) -> None:
        self.calls = ClientCalls(desk)
        self.schemas: dict[str, Mapping[str, Any]] = {}
        self._desk = desk

    async def list_tools(self, _context: "Context", _params: object) -> "types.ListToolsResult":
        from mcp import types

        tools = await self._desk.tools()
        self.schemas.clear()
        self.schemas.update((tool.name, tool.parameters) for tool in tools)
        return types.ListToolsResult(tools=[to_tool(tool) for tool in tools])

    async def call_tool(
        self, context: "Context", params: "types.CallToolRequestParams"
    ) -> "types.CallToolResult | types.InputRequiredResult":
        from mcp import types

        client_gone = getattr(context.request, "scope", {}).get(CLIENT_GONE) or asyncio.Event()
        async with _progress(context) as notify:
            call = self._call(context, params, notify)
            while (result := await call.wait(client_gone)) is None:
                if state := self.calls.store(call):
                    questions = {name: _question(text) for name, text in call.questions.items()}
                    return types.InputRequiredResult(input_requests={**questions}, request_state=state)
                call.answer(dict.fromkeys(call.questions))
            return to_answer(result)

    def _call(self, context: "Context", params: "types.CallToolRequestParams", notify: Notify) -> ClientCall:
        """Start the tool call of a request, or return the waiting call that the request continues with an answer."""
        from mcp import MCPError, types

        if not _TOOL_NAME.fullmatch(params.name):
            raise MCPError(types.INVALID_PARAMS, NO_TOOL)
        if not is_shallow(params.arguments, limits.DEPTH + 1):
            raise MCPError(types.INVALID_PARAMS, TOO_DEEP)
        request = CallRequest(client_of(context), params.name, params.arguments or {})
        if params.request_state is None:
            return self.calls.begin(request, _push(context), notify)
        call = self.calls.resume(params.request_state, request)
        if call is None:
            raise MCPError(types.INVALID_PARAMS, STALE)
        call.notify = notify
        call.answer(_answers(params.input_responses or {}))
        return call

    async def list_resources(self, _context: "Context", _params: object) -> "types.ListResourcesResult":
        from mcp import types

        pages = [
            types.Resource(uri=page.uri, name=page.name, description=page.description, mime_type=page.media_type)
            for page in self._desk.pages
        ]
        return types.ListResourcesResult(resources=pages)

    async def list_templates(self, _context: "Context", _params: object) -> "types.ListResourceTemplatesResult":
        """Return an empty list of resource templates, because many MCP clients request it, and show a refusal."""
        from mcp import types

        return types.ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(
        self, _context: "Context", params: "types.ReadResourceRequestParams"
    ) -> "types.ReadResourceResult":
        from mcp import MCPError, types

        page = next((one for one in self._desk.pages if one.uri == params.uri), None)
        if page is None:
            uris = join_names([one.uri for one in self._desk.pages])
            uri = single_line(fit_text(params.uri), limits.URI)
            raise MCPError(types.INVALID_PARAMS, f"There is no resource {uri}. Resources: {uris}.", {"uri": uri})
        text = fit_text(await page.read())
        content = types.TextResourceContents(uri=page.uri, mime_type=page.media_type, text=text)
        return types.ReadResourceResult(contents=[content])


def client_of(context: "Context") -> str:
    """Return the name that an MCP client gives itself, made safe to show and to use in prompts."""
    params = context.session.client_params
    name = "" if params is None else params.client_info.name
    return single_line(_NO_NAME.sub(" ", fit_text(name)), limits.NAME).strip() or UNKNOWN


@asynccontextmanager
async def _progress(context: "Context") -> AsyncGenerator[Notify]:
    """Yield a function that sends the progress of a call to its client. At the end, the last message is sent."""
    notices = _Progress(context)
    task = asyncio.create_task(notices.send_all())
    try:
        yield notices.update
        await notices.send()
    finally:
        task.cancel()


class _Progress:
    """Sends the latest progress of a call, at most once in `PROGRESS_SECONDS`. The numbers sent always grow."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._latest: tuple[float, float | None, str] | None = None
        self._sent = 0.0
        self._news = asyncio.Event()

    def update(self, progress: float, total: float | None, message: str) -> None:
        """Store a progress message for sending; a newer message replaces one that was not sent yet."""
        self._latest = progress, total, cut(fit_text(message), limits.PROGRESS_TEXT)
        self._news.set()

    async def send_all(self) -> None:
        """Send progress messages until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.send()
            await asyncio.sleep(limits.PROGRESS_SECONDS)

    async def send(self) -> None:
        """Send the stored progress message, if there is one."""
        notice, self._latest = self._latest, None
        if notice is not None:
            progress, total, message = notice
            has_grown = progress > self._sent
            self._sent = progress if has_grown else self._sent + 1e-3
            with suppress(Exception):  # sending fails if the client has gone
                await self._context.session.report_progress(self._sent, total if has_grown else None, message or None)


def _push(context: "Context") -> Push | None:
    """Return a function that asks the client's user a question, and returns the answer or None.

    Return None in place of a function for a stateless client that can ask its user: it gets a question as the answer
    to its request. If the client cannot ask, the function returns None.
    """
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    async def no_one(_text: str) -> None:
        return None

    async def push(text: str) -> str | None:
        with suppress(Exception):  # this fails if the answer is invalid, or the client has gone
            return _answer(await context.session.elicit_form(_message(text), dict(QUESTION), context.request_id))
        return None

    can = context.session.client_capabilities
    form = None if can is None else can.elicitation
    if form is None or (form.form is None and form.url is not None):
        return no_one
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return push if context.session.can_send_request else no_one


def _question(text: str) -> "types.ElicitRequest":
    """Return the request that asks a stateless client's user a question."""
    from mcp import types

    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=_message(text), requested_schema=dict(QUESTION))
    )


def _message(text: str) -> str:
    return cut(fit_text(text), limits.QUESTION_TEXT)


def _answers(responses: Mapping[str, object]) -> dict[str, str | None]:
    """Return the user's answers by the names of the questions; an answer is None if its response contains none."""
    from mcp.types import ElicitResult

    return {name: _answer(one) for name, one in responses.items() if isinstance(one, ElicitResult)}


def _answer(response: "types.ElicitResult") -> str | None:
    answer = (response.content or {}).get("answer") if response.action == "accept" else None
    return answer if isinstance(answer, str) else None
