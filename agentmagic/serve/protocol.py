"""A desk in the protocol's words: the handlers of the mcp library's server, and what a call says of its client."""

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from agentmagic.secrets import redact
from agentmagic.serve import limits
from agentmagic.serve.content import to_answer, to_tool
from agentmagic.serve.desk import Desk, Exchange
from agentmagic.text import cut, one_line

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    Context = ServerRequestContext[Any, Any]

T = TypeVar("T")

GONE = "agentmagic.gone"
"""The key, in the scope of a request, of the event that says that its client no longer waits for the answer."""
UNKNOWN = "a client without a name"
QUESTION: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer"}},
    "required": ["answer"],
}
"""The form in which a client's user answers a question."""

_NO_NAME = re.compile(r"[^A-Za-z0-9 ._/@+-]+")


def protocol(desk: Desk) -> "Server[Any]":
    """Return the mcp library's server, which asks a desk."""
    from mcp import MCPError, types
    from mcp.server.lowlevel import Server

    async def list_tools(_context: "Context", _params: object) -> "types.ListToolsResult":
        return types.ListToolsResult(tools=[to_tool(tool) for tool in await desk.tools()])

    async def call_tool(context: "Context", params: "types.CallToolRequestParams") -> "types.CallToolResult":
        async with _exchange(context) as made:
            call = desk.call(made, params.name, params.arguments or {})
            return to_answer(await _while_waited_for(context, call))

    async def list_resources(_context: "Context", _params: object) -> "types.ListResourcesResult":
        pages = [
            types.Resource(uri=page.uri, name=page.name, description=page.description, mime_type=page.media_type)
            for page in desk.pages
        ]
        return types.ListResourcesResult(resources=pages)

    async def read_resource(
        _context: "Context", params: "types.ReadResourceRequestParams"
    ) -> "types.ReadResourceResult":
        page = next((one for one in desk.pages if one.uri == params.uri), None)
        if page is None:
            known = ", ".join(one.uri for one in desk.pages)
            raise MCPError(
                types.INVALID_PARAMS, f"There is no resource {params.uri:.200}. Resources: {known or 'none'}."
            )
        text = redact(await page.read())
        inside = types.TextResourceContents(uri=page.uri, mime_type=page.media_type, text=text)
        return types.ReadResourceResult(contents=[inside])

    return Server(
        "agentmagic",
        version=version("agentmagic"),
        title="A notebook",
        instructions=desk.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def client_of(context: "Context") -> str:
    """Return the name that a client gives itself; it is shown, and is a part of prompts."""
    given = context.session.client_params
    name = "" if given is None else given.client_info.name
    return one_line(_NO_NAME.sub(" ", redact(name)), limits.NAME).strip() or UNKNOWN


@asynccontextmanager
async def _exchange(context: "Context") -> AsyncGenerator[Exchange]:
    """Yield what a call says of its client; its progress is sent until the block ends."""
    notices = _Progress(context)
    task = asyncio.create_task(notices.send())
    try:
        yield Exchange(client_of(context), notices.take, lambda text: _ask(context, text))
    finally:
        task.cancel()


class _Progress:
    """Sends the latest notice of progress of a call, at most one in `PROGRESS_SECONDS`. The numbers always grow."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._latest: tuple[float, float | None, str] | None = None
        self._sent = 0.0
        self._news = asyncio.Event()

    def take(self, done: float, total: float | None, words: str) -> None:
        """Take a notice; it is dropped if another one comes before it is sent."""
        self._latest = done, total, cut(redact(words), limits.PROGRESS_TEXT)
        self._news.set()

    async def send(self) -> None:
        """Send notices for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._latest is not None:
                done, total, words = self._latest
                grown = done > self._sent
                self._sent = done if grown else self._sent + 1e-3
                with suppress(Exception):  # of a client that has gone
                    await self._context.session.report_progress(self._sent, total if grown else None, words)
            await asyncio.sleep(limits.PROGRESS_SECONDS)


async def _while_waited_for(context: "Context", call: Coroutine[Any, Any, T]) -> T:
    """Return what a call returns; cancel it if the client goes away or cancels it."""
    task = asyncio.ensure_future(call)
    gone = getattr(context.request, "scope", {}).get(GONE)
    left = asyncio.ensure_future((gone or asyncio.Event()).wait())
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    return task.result()


async def _ask(context: "Context", text: str) -> str | None:
    """Put a question to the client's user, if the client can. Return None without an answer."""
    can = context.session.client_capabilities
    if can is None or can.elicitation is None or not context.session.can_send_request:
        return None
    with suppress(Exception):  # an answer that is none, or a client that has gone
        answer = await context.session.elicit_form(redact(text), dict(QUESTION), context.request_id)
        given = (answer.content or {}).get("answer") if answer.action == "accept" else None
        return given if isinstance(given, str) else None
    return None
