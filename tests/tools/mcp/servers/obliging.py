"""A server of the mcp library that asks its client for all there is, and offers prompts and resources.

What a tool's parameter resolves to is asked for in the way of either era; `visit` and `talk` only in that of the
handshake.
"""

from typing import Annotated

from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field


class Trip(BaseModel):
    city: str = Field(description="Where to?")
    nights: int = 2
    breakfast: bool = False


def ask_for_trip() -> Elicit[Trip]:
    return Elicit("Book a trip", Trip)


def ask_model() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="2 + 2?"))
    return Sample([message], max_tokens=10, system_prompt="Be short.")


def ask_for_roots() -> ListRoots:
    return ListRoots()


def make(**settings):
    server = MCPServer("obliging", instructions="Be kind\u202e to it.", **settings)

    @server.tool()
    def book(trip: Annotated[ElicitationResult[Trip], Resolve(ask_for_trip)]) -> str:
        """Ask for a trip."""
        return f"{trip.action} {getattr(trip, 'data', None)}"

    @server.tool()
    def think(answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
        """Ask a model."""
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    def places(roots: Annotated[ListRootsResult, Resolve(ask_for_roots)]) -> str:
        """List the client's folders."""
        return " ".join(str(root.uri) for root in roots.roots)

    @server.tool()
    async def visit(ctx: Context) -> str:
        """Ask for a visit."""
        answer = await ctx.elicit_url("Sign in", "https://example.org/sign-in", "e-1")
        return answer.action

    @server.tool()
    async def talk(ctx: Context) -> str:
        """Say something to the log."""
        await ctx.info("all is well")
        return "said"

    @server.prompt()
    def greet(name: str, tone: str = "warm") -> str:
        """Greet somebody."""
        return f"Say hello to {name} in a {tone} tone."

    @server.resource("memo://one", name="one", mime_type="text/plain")
    def one() -> str:
        """The only memo."""
        return "remember the milk"

    @server.resource("memo://of/{day}")
    def of_day(day: str) -> str:
        """The memo of a day."""
        return f"nothing on {day}"

    return server


if __name__ == "__main__":
    make().run()
